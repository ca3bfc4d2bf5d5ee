"""The node `$retained`: what can be read, from where, waiting for more, and cursors by request."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerConfig
from amqp_broker.frames import (
    Accepted,
    AmqpValue,
    Properties,
    Rejected,
    Target,
    Timestamp,
    Ulong,
    encode_message,
)
from amqp_broker.testing.peer import PeerError, PeerSender, PeerSession
from tests.support.broker_clients import attach_with, send, session_to, settle_down
from tests.support.jumping_broker import EPOCH_MS, JumpingBroker
from tests.support.retained import DAY_MS, Asker, Refused, read, retaining


@pytest.fixture
def config() -> BrokerConfig:
    """Queues that retain."""
    return retaining("kept", "kept.*")


def refusal(asker: Asker, operation: str, **body: Any) -> str:
    """The condition of the error that a request gets."""
    with pytest.raises(Refused) as caught:
        asker.ask(operation, **body)
    return caught.value.error.condition


def test_describe_tells_what_can_be_read(session: PeerSession) -> None:
    """The journal and all retaining queues, with their offsets and their policies; or one of them."""
    send(session.attach_sender("s", "kept"), b"a", b"bb")
    send(session.attach_sender("t", "plain"), b"a")
    asker = Asker(session)
    found = asker.ask("describe")
    nodes = {node["address"]: node for node in found["nodes"]}
    assert set(nodes) == {"$events", "kept"} and found["store_id"]
    assert nodes["kept"]["first"] == 0 and nodes["kept"]["next"] == 2 and nodes["kept"]["bytes"] > 0
    assert nodes["kept"]["retention_ms"] == DAY_MS and nodes["kept"]["retention_bytes"] == 0
    assert asker.ask("describe", address="kept") == {"store_id": found["store_id"], "nodes": [nodes["kept"]]}


def test_describe_refuses_what_cannot_be_read(session: PeerSession) -> None:
    """A queue that retains nothing, one that is not there, and an address that is none."""
    session.attach_sender("t", "plain")
    asker = Asker(session)
    assert refusal(asker, "describe", address="plain") == "amqp:not-allowed"
    assert refusal(asker, "describe", address="nowhere") == "amqp:not-found"
    assert refusal(asker, "describe", address=Ulong(3)) == "amqp:invalid-field"


def test_find_tells_the_first_offset_of_a_time(broker: JumpingBroker, session: PeerSession) -> None:
    """That of the first message at that time or later; the next offset where there is none."""
    sender = session.attach_sender("s", "kept")
    for body in (b"a", b"b", b"c"):
        send(sender, body)
        broker.jump(10)
    asker = Asker(session)
    found = [
        asker.ask("find", address="kept", timestamp=Timestamp(EPOCH_MS + ms))["offset"]
        for ms in (0, 1, 10_000, 10_001, 20_001)
    ]
    assert found == [0, 1, 1, 2, 3]


def test_wait_is_answered_when_something_has_grown(
    broker: JumpingBroker, session: PeerSession, other: PeerSession
) -> None:
    """At once if more is there than is known, else after the next message."""
    sender = other.attach_sender("s", "kept")
    send(sender, b"a")
    asker = Asker(session)
    asker.ask("wait", positions={"kept": Ulong(0)}, timeout_ms=Ulong(10_000))
    number = asker.tell("wait", positions={"kept": Ulong(1)}, timeout_ms=Ulong(10_000))
    settle_down(broker, session)
    assert number not in asker.link.outcomes
    send(sender, b"b")
    assert asker.reply()["nodes"][0]["next"] == 2


def test_wait_ends_when_its_time_is_over(broker: JumpingBroker, session: PeerSession) -> None:
    """The same reply, with nothing new in it; by a clock that the test moves."""
    send(session.attach_sender("s", "kept"), b"a")
    asker = Asker(session)
    number = asker.tell("wait", positions={"kept": Ulong(1)}, timeout_ms=Ulong(5_000))
    settle_down(broker, session)
    assert number not in asker.link.outcomes
    broker.jump(6)
    assert asker.reply()["nodes"][0]["next"] == 1


def test_wait_refuses_what_it_cannot_wait_for(session: PeerSession) -> None:
    """Too long, nothing at all, or a queue that retains nothing."""
    asker = Asker(session)
    session.attach_sender("s", "kept")
    assert refusal(asker, "wait", positions={"kept": 0}, timeout_ms=10_001) == "amqp:invalid-field"
    assert refusal(asker, "wait", positions={}, timeout_ms=1) == "amqp:invalid-field"
    assert refusal(asker, "wait", positions={"none": 0}, timeout_ms=1) == "amqp:not-found"


def test_hold_freezes_where_a_cursor_begins(session: PeerSession) -> None:
    """What is not there yet is made; what is there stays, whatever is asked for now."""
    sender = session.attach_sender("s", "kept")
    session.attach_sender("s2", "kept.more")
    send(sender, b"a", b"b", b"c")
    asker = Asker(session)
    held = asker.ask("hold", cursor="c", start={"kept": "last"})
    assert held["positions"] == {"kept": 2} and held["store_id"] == asker.ask("describe")["store_id"]
    send(sender, b"d")
    again = asker.ask("hold", cursor="c", start={"kept": "next", "kept.more": "first"})
    assert again["positions"] == {"kept": 2, "kept.more": 0}
    assert asker.ask("cursor", cursor="c") == {"positions": again["positions"], "held_by": "test-peer"}


def test_a_held_cursor_is_refused_to_others_until_its_link_goes(broker: JumpingBroker) -> None:
    """The error names the holder's container; after the detach another link may hold it."""
    with session_to(broker, "first") as session, session_to(broker, "second") as other:
        session.attach_sender("s", "kept")
        one, two = Asker(session), Asker(other)
        one.ask("hold", cursor="c", start={"kept": "first"})
        with pytest.raises(Refused) as caught:
            two.ask("hold", cursor="c", start={"kept": "first"})
        assert caught.value.error.condition == "amqp:resource-locked"
        assert "'first'" in str(caught.value)
        with pytest.raises(PeerError, match="amqp:resource-locked"):
            read(other, "kept", "first", cursor="c")
        one.link.detach()
        settle_down(broker, session)
        assert two.ask("hold", cursor="c", start={})["positions"] == {"kept": 0}


def test_move_goes_forward_only(session: PeerSession) -> None:
    """Lower positions are ignored, one above the next offset is refused and nothing moves."""
    send(session.attach_sender("s", "kept"), b"a", b"b", b"c")
    session.attach_sender("s2", "kept.more")
    asker = Asker(session)
    assert asker.ask("move", cursor="c", positions={"kept": Ulong(2)}) == {"positions": {"kept": 2}}
    assert asker.ask("move", cursor="c", positions={"kept": Ulong(1)}) == {"positions": {"kept": 2}}
    beyond = {"kept": Ulong(3), "kept.more": Ulong(1)}
    assert refusal(asker, "move", cursor="c", positions=beyond) == "amqp:invalid-field"
    assert asker.positions("c") == {"kept": 2}


def test_forget_ends_a_cursor(broker: JumpingBroker) -> None:
    """It stands nowhere any more; while somebody else holds it, it is not forgotten."""
    with session_to(broker, "first") as session, session_to(broker, "second") as other:
        session.attach_sender("s", "kept")
        one, two = Asker(session), Asker(other)
        one.ask("hold", cursor="c", start={"kept": "first"})
        assert refusal(two, "forget", cursor="c") == "amqp:resource-locked"
        assert one.ask("forget", cursor="c") == {}
        assert one.positions("c") == {}


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        ("find", {"address": "kept"}),
        ("find", {"address": "kept", "timestamp": "today"}),
        ("hold", {"cursor": "", "start": {}}),
        ("hold", {"cursor": "c", "start": {"kept": "middle"}}),
        ("hold", {"cursor": "c"}),
        ("move", {"cursor": "c" * 256, "positions": {}}),
        ("move", {"cursor": "c", "positions": {"kept": -1}}),
        ("move", {"cursor": "c", "positions": {"kept": True}}),
        ("cursor", {}),
        ("explode", {}),
    ],
)
def test_requests_that_are_none_are_rejected(
    session: PeerSession, operation: str, body: dict[str, Any]
) -> None:
    """Each with amqp:invalid-field, and the link goes on."""
    session.attach_sender("s", "kept")
    asker = Asker(session)
    assert refusal(asker, operation, **body) == "amqp:invalid-field"
    assert asker.ask("describe", address="kept")["nodes"]


def test_a_request_without_a_map_or_a_reply_queue_is_rejected(session: PeerSession) -> None:
    """And says what was expected."""
    asker = Asker(session)
    for payload in (
        encode_message(properties=Properties(subject="describe", reply_to=asker.reply_to), body=b"x"),
        encode_message(properties=Properties(subject="describe")),
        encode_message(properties=Properties(subject="describe", reply_to="nowhere")),
    ):
        number = asker.link.send(payload)
        session.connection.pump_until(partial(asker.link.outcomes.__contains__, number))
        assert isinstance(asker.link.outcomes[number], Rejected)


def test_through_the_anonymous_terminus_nothing_is_held(session: PeerSession) -> None:
    """There would be no link whose detach frees it; other requests are answered."""
    session.attach_sender("s", "kept")
    asker = Asker(session)
    relay = attach_with(session, "relay", target=Target())
    assert isinstance(relay, PeerSender)
    for operation, body in (("hold", {"cursor": "c", "start": {"kept": "first"}}), ("describe", {})):
        properties = Properties(subject=operation, to="$retained", reply_to=asker.reply_to)
        session.connection.pump_until(lambda: relay.may_send)
        number = relay.send(encode_message(properties=properties, body=AmqpValue(body)))
        session.connection.pump_until(partial(relay.outcomes.__contains__, number))
        outcome = relay.outcomes[number]
        if operation == "describe":
            assert isinstance(outcome, Accepted)
        else:
            assert isinstance(outcome, Rejected) and outcome.error is not None
            assert outcome.error.condition == "amqp:not-allowed"


def test_an_administrator_sees_nodes_and_cursors(broker: JumpingBroker, session: PeerSession) -> None:
    """`Broker.retained` and `Broker.cursors`."""
    send(session.attach_sender("s", "kept"), b"a")
    Asker(session).ask("hold", cursor="c", start={"kept": "next"})

    async def there(running: Broker) -> tuple[Any, Any]:
        return await running.retained(), await running.cursors()

    nodes, cursors = broker.call(there)
    assert [(node.address, node.first, node.next_offset) for node in nodes][1:] == [("kept", 0, 1)]
    assert [(each.name, each.positions, each.held_by) for each in cursors] == [
        ("c", {"kept": 1}, "test-peer")
    ]
