"""What `$management` tells of sessions, the configuration and each feature, and what it does with them."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from amqp_broker.configuration import AccessRule, BindingConfig, BrokerConfig, QueuePolicy, UserConfig
from amqp_broker.frames import AmqpValue, Message, Properties, encode_message, plain_value
from amqp_broker.testing import memory_config
from amqp_broker.testing.peer import PeerSession
from amqp_broker.verifiers import make_verifier
from tests.support.broker_clients import receive, send, session_to
from tests.support.half_sets import SetClient, row
from tests.support.halves import half, halves, putter, tell
from tests.support.jumping_broker import PATIENT, JumpingBroker
from tests.support.managing import Asking, asks
from tests.support.retained import Asker as CursorAsker
from tests.support.sequenced import annotated, outcomes, stream_of
from tests.support.topics import publish, shared_durable, subscribe


@pytest.fixture
def config() -> BrokerConfig:
    """A queue that retains."""
    return attrs.evolve(PATIENT, queue_policies=(QueuePolicy(pattern="kept", retention_ms=10_000),))


class Boss:
    """Asks `$management` in a whole broker."""

    def __init__(self, session: PeerSession) -> None:
        self.replies = session.attach_receiver("replies", "replies", credit=1_000)
        self.requests = session.attach_sender("requests", "$management")

    def ask(self, operation: str, kind: str, body: Any = None, **told: Any) -> tuple[int, Any]:
        """Status and body."""
        self.requests.send(encode_message(
            properties=Properties(reply_to="replies", message_id="1"),
            application_properties={"operation": operation, "type": kind, **told}, body=AmqpValue(body),
        ))  # fmt: skip
        reply = Message(receive(self.replies, 1)[0].payload)
        found = plain_value(reply.application_properties)
        return found["statusCode"], plain_value(reply.body_sections()[0].value)

    def all(self, kind: str) -> list[dict[str, Any]]:
        """All entities of a type."""
        status, found = self.ask("QUERY", "org.amqp.management", entityType=kind)
        assert status == 200
        return [dict(zip(found["attributeNames"], each, strict=True)) for each in found["results"]]


@pytest.fixture
def boss(session: PeerSession) -> Boss:
    """One who asks."""
    return Boss(session)


def test_half_messages(broker: JumpingBroker, session: PeerSession, boss: Boss) -> None:
    """Listed until they are decided; committed and rolled back by hand, each alone."""
    put = putter(session)
    for half_id in ("a", "b", b"\x01"):
        tell(put, half(half_id, b"xy"))
    found = boss.all("half")
    assert [each["identity"] for each in found] == ["g/binary:01", "g/string:a", "g/string:b"]
    assert (found[1]["state"], found[1]["destination"], found[1]["group"]) == ("prepared", "q", "g")
    assert boss.ask("COMMIT", "half", identity="g/string:a", reason="asked for") == (200, {})
    assert boss.ask("ROLLBACK", "half", identity="g/binary:01") == (200, {})
    assert boss.ask("RESUME", "half", identity="g/string:b") == (200, {})
    assert [each["identity"] for each in boss.all("half")] == ["g/string:b"]
    for wrong in ("g/string:a", "g/uuid:x", "g", "x/string:b"):
        assert boss.ask("COMMIT", "half", identity=wrong)[0] == 404
    told = halves(broker)
    assert {key: each.lifecycle for key, each in told.items()} == {
        "a": "ready", "b": "transaction pending", b"\x01": "rollback"
    }  # fmt: skip
    assert told["a"].resolver == "admin" and told["a"].reason == "asked for"


def test_half_sets(session: PeerSession, boss: Boss) -> None:
    """Voided by hand, alone."""
    client = SetClient(session)
    client.sealed("one", row(b"1"))
    client.sealed("two", row(b"2"), epoch=2)
    one, two = boss.all("set")
    assert (one["identity"], two["identity"], one["destinations"]) == ("g/p/one", "g/p/two", {"q": 1})
    assert boss.ask("VOID", "set", identity="g/p/one", reason="a test") == (200, {})
    assert [each["identity"] for each in boss.all("set")] == ["g/p/two"]
    assert boss.ask("VOID", "set", identity="g/p/one")[0] == 404


def test_streams(broker: JumpingBroker, session: PeerSession, boss: Boss) -> None:
    """Where they stand; a reset has one begin anew."""
    sender = session.attach_sender("s", "q")
    outcomes(sender, [annotated((1, 1, 0)), annotated((1, 2, 1)), annotated((1, 1, 0), "t")])
    found = boss.all("stream")
    assert [(each["identity"], each["seq_no"]) for each in found] == [("q/s", 2), ("q/t", 1)]
    assert boss.ask("RESET", "stream", identity="q/s") == (200, {})
    assert [(each["identity"], each["seq_no"]) for each in boss.all("stream")] == [("q/t", 1)]
    assert boss.ask("RESET", "stream", identity="q/s")[0] == 404
    assert stream_of(broker, "q", "t").seq_no == 1


def test_cursors(session: PeerSession, boss: Boss) -> None:
    """Where they stand; one is deleted, alone."""
    send(session.attach_sender("s", "kept"), b"a")
    asker = CursorAsker(session)
    for name in ("c", "d"):
        asker.ask("hold", cursor=name, start={"kept": "next"})
    assert [(each["identity"], each["positions"]) for each in boss.all("cursor")] == [
        ("c", {"kept": 1}), ("d", {"kept": 1})
    ]  # fmt: skip
    assert boss.ask("DELETE", "cursor", identity="c") == (204, {})
    assert boss.ask("DELETE", "cursor", identity="c")[0] == 404
    assert [each["identity"] for each in boss.all("cursor")] == ["d"]


@asks(memory_config(bindings=(BindingConfig(topic="news.#", queue="all", selector="n = 1"),)))
async def test_topics_subscriptions_and_bindings(one: Asking) -> None:
    """A subscription is none of the queues; its messages are purged as those of one, and it is deleted."""
    at = one.at
    assert (await one.ask("CREATE", "topic", name="news.a"))[0] == 201
    assert (await one.ask("CREATE", "topic", name="news.a"))[0] == 200
    for name, status in (("replies", 409), ("$x", 403), ("news.#", 403), ("", 400)):
        assert (await one.refused("CREATE", "topic", name=name))[0] == status
    link = await subscribe(at, shared_durable("news.a"), "sub", credit=1)
    await publish(at, "news.a", b"1", b"2", b"3")
    await at.settle()
    (binding,) = (await one.body("QUERY", entityType="binding"))["results"]
    assert binding[3:] == ["news.#", "all", "n = 1", None, True, 0, 3]
    topic = await one.body("READ", "topic", name="news.a")
    assert (topic["declared"], topic["posted"], topic["receivers"]) == (True, 3, 2)
    names = (await one.body("QUERY", body={"attributeNames": ["name"]}, entityType="queue"))["results"]
    assert names == [["all"], ["replies"]]
    ((name,),) = (await one.body("QUERY", body={"attributeNames": ["name"]}, entityType="subscription"))[
        "results"
    ]
    read = await one.body("READ", "subscription", identity=name)
    assert (read["topic"], read["durable"], read["shared"], read["messages"]) == ("news.a", True, True, 3)
    assert (await one.refused("READ", "queue", name=name))[0] == 404
    purged = await one.body("PURGE", "subscription", identity=name)
    assert purged["messages"] == 2
    assert (await one.body("READ", "subscription", identity=name))["messages"] == 1
    status, why = await one.refused("DELETE", "subscription", identity=name)
    assert status == 409 and "1 messages and 1 links" in why
    assert (await one.ask("DELETE", "subscription", identity=name, force=True))[0] == 204
    assert (await one.body("QUERY", entityType="subscription"))["results"] == []
    await at.settle()
    assert not link.attached and at.queue("all").message_count == 0


def test_sessions_of_a_connection(session: PeerSession, boss: Boss) -> None:
    """By the number of the connection and the channel."""
    (found,) = boss.all("session")
    assert found["identity"] == f"{found['connection']}/{found['channel']}"
    assert (found["state"], found["links"]) == ("MAPPED", 2)


SECRET = str(make_verifier("SCRAM-SHA-256", "a password", 4_096, b"0123456789abcdef"))
EVERYBODY = AccessRule(users=("*",), actions=("connect", "create", "send", "receive", "manage-read"))


@asks(memory_config(
    users=(UserConfig(name="ann", scram_sha_256=SECRET),), queue_policies=(QueuePolicy(pattern="small"),),
    access_rules=(EVERYBODY,),
))  # fmt: skip
async def test_the_configuration_without_its_secrets(one: Asking) -> None:
    """Every key once, what is default said so, and no verifier anywhere."""
    body = await one.body("QUERY", entityType="configuration")
    rows = {each[0]: dict(zip(body["attributeNames"], each, strict=True)) for each in body["results"]}
    assert rows["user[0].scram_sha_256"]["value"] == "(not shown)"
    assert rows["user[0].scram_sha_512"]["value"] is None and rows["user[0].name"]["value"] == "ann"
    assert (rows["memory"]["value"], rows["memory"]["is_default"]) == (True, False)
    assert rows["limits.max_nodes"]["is_default"] and rows["queue[0].pattern"]["value"] == "small"
    assert SECRET not in repr(body) and SECRET.split("$")[-1] not in repr(body)


def test_who_asked_is_gone_before_the_answer(broker: JumpingBroker) -> None:
    """What was asked for is done, and the reply is where it was wanted."""
    with session_to(broker, "boss") as session, session_to(broker, "other") as other:
        replies = other.attach_receiver("replies", "replies", credit=10)
        send(other.attach_sender("s", "q"), b"1", b"2", durable=True)
        requests = session.attach_sender("requests", "$management")
        with broker.faults.held_commits():
            requests.send(encode_message(
                properties=Properties(reply_to="replies", message_id="1"),
                application_properties={"operation": "PURGE", "type": "queue", "name": "q"},
                body=AmqpValue(None),
            ))  # fmt: skip
            session.connection.flush()
            broker.rest()
            session.connection.abort()
            broker.rest()
        broker.rest()

        def look(running: Any) -> tuple[int, int]:
            find = running.nodes.queues.find
            return find("replies").reserved_messages, find("q").message_count

        assert broker.call(look) == (0, 0)
        assert len(receive(replies, 1)) == 1
