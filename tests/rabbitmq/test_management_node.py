"""RabbitMQ's management node, asked as its AMQP 1.0 clients ask: settled requests, replies on the paired
link.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import pytest

from amqp_broker.authorisation import Principal
from amqp_broker.configuration import AccessRule, BindingConfig, BrokerConfig, QueuePolicy
from amqp_broker.frames import AmqpValue, Message, Properties, encode_message, plain_value
from amqp_broker.links import Delivery, ReceiverLink, SenderLink
from amqp_broker.persistence.sqlite import verify_directory
from amqp_broker.rabbitmq.node import REPLIES_MAX
from amqp_broker.testing import memory_config
from tests.links.pair import Message as Sendable
from tests.support.by_hand import Main, Served, at_hand, by_hand, drives
from tests.support.topics import publish

PAIRED = {"paired": True}
SETTLED = 1
CONFIG = memory_config(
    address_forms=("rabbitmq",),
    container_id="here",
    bindings=(
        BindingConfig(topic="shop.orders.*", queue="orders"),
        BindingConfig(topic="all.#", queue="orders"),
        BindingConfig(topic="shop.red", queue="orders", selector="colour = 'red'"),
    ),
    queue_policies=(
        QueuePolicy(pattern="small", max_messages=10, max_deliveries=3, priorities=True),
        QueuePolicy(pattern="ring", ring_messages=5, message_type="normal"),
        QueuePolicy(pattern="kept", kind="log", retention_ms=1_000),
        QueuePolicy(pattern="news.**", kind="topic"),
    ),
)


@attrs.define
class Pair:
    """A client with its two paired links."""

    at: Served
    up: SenderLink
    down: ReceiverLink
    asked: int = 0

    def send(self, method: str, path: str | None, body: Any = None, **fields: Any) -> UUID:
        """One request, without waiting for what comes of it."""
        self.asked += 1
        known: dict[str, Any] = {"message_id": UUID(int=self.asked), "reply_to": "$me", "to": path}
        self.up.send([Sendable(encode_message(
            properties=Properties(subject=method, **known | fields), body=AmqpValue(body),
        ))])  # fmt: skip
        return UUID(int=self.asked)

    async def ask(self, method: str, path: str | None, body: Any = None) -> tuple[str, Any]:
        """Status and body of the reply."""
        asked = self.send(method, path, body)
        (came,) = await self.came(1)
        assert came.settled
        return read(came.payload, asked)

    async def came(self, count: int) -> list[Delivery]:
        """So many replies, however many commits they need."""
        found: list[Delivery] = []
        for _ in range(count + 1):
            await self.at.rest()
            found += self.at.take()
            if len(found) >= count:
                break
        return found

    async def refused(self, method: str, path: str | None, body: Any = None) -> tuple[str, str]:
        """The same for what is refused, which changes nothing and says why."""
        queues = self.at.broker.nodes.queues.queues()
        status, why = await self.ask(method, path, body)
        assert int(status) >= 400 and isinstance(why, str) and why
        assert self.at.broker.nodes.queues.queues() == queues
        return status, why


def read(payload: bytes, asked: Any) -> tuple[str, Any]:
    """Status and body of the reply to what was asked with this message-id."""
    reply = Message(payload)
    assert reply.properties is not None and reply.properties.correlation_id == asked
    assert reply.application_properties == {"http:response": "1.1"}
    (section,) = reply.body_sections()
    assert isinstance(section, AmqpValue)
    return str(reply.properties.subject), plain_value(section.value)


async def pair_of(at: Served, credit: int = 100, name: str = "management-link-pair") -> Pair:
    """Two such links."""
    up = at.attach_sender("/management", name, snd_settle_mode=SETTLED, properties=PAIRED)
    down = at.attach_receiver("/management", credit, name, snd_settle_mode=SETTLED, properties=PAIRED)
    await at.settle()
    return Pair(at, up, down)


def asks(config: BrokerConfig = CONFIG) -> Callable[[Callable[[Pair], Any]], Callable[..., None]]:
    """A test whose parameter is such a client."""

    def run(main: Main) -> None:
        async def served(at: Served) -> None:
            await main(await pair_of(at))

        by_hand(served, config)

    return drives(run)


@asks()
async def test_a_queue_is_declared_read_purged_and_deleted(one: Pair) -> None:
    """201, then 200; all fields that clients read; what was in it is counted."""
    lasts = {"durable": True, "exclusive": False, "auto_delete": False}
    asked = {**lasts, "arguments": {"x-queue-type": "quorum"}}
    told = {
        "name": "a/b", "vhost": "/", "durable": True, "auto_delete": False, "exclusive": False,
        "type": "classic", "arguments": {}, "message_count": 0, "consumer_count": 0, "leader": "here",
        "replicas": ["here"],
    }  # fmt: skip
    assert await one.ask("PUT", "/queues/a%2Fb", asked) == ("201", told)
    assert await one.ask("PUT", "/queues/a%2Fb", asked) == ("200", told)
    await one.at.post("a/b", b"1", b"2")
    assert await one.ask("GET", "/queues/a%2Fb") == ("200", told | {"message_count": 2})
    assert await one.ask("DELETE", "/queues/a%2Fb/messages") == ("200", {"message_count": 2})
    await one.at.post("a/b", b"3")
    assert await one.ask("DELETE", "/queues/a%2Fb") == ("200", {"message_count": 1})
    assert one.at.broker.nodes.queues.find("a/b") is None
    assert await one.ask("DELETE", "/queues/a%2Fb") == ("200", {"message_count": 0})
    assert (await one.refused("GET", "/queues/a%2Fb"))[0] == "404"


@asks()
async def test_a_long_queue_is_purged_in_groups(one: Pair) -> None:
    """One request, however many groups of `$management` that takes."""
    for _ in range(25):
        await one.at.post("q", *[b"x"] * 100)
    asked = one.send("DELETE", "/queues/q/messages")
    (came,) = await one.came(1)
    assert read(came.payload, asked) == ("200", {"message_count": 2_500})


@asks()
async def test_arguments_that_the_configuration_says_too(one: Pair) -> None:
    """They are taken; what it says otherwise, or does not know, is refused by name."""
    holds = {
        "x-queue-type": "classic", "x-max-length": 10, "x-overflow": "reject-publish", "x-delivery-limit": 3,
        "x-max-priority": 9, "x-max-length-bytes": 0, "x-consumer-timeout": 0,
    }  # fmt: skip
    for name, value in holds.items():
        other = "drop-head" if name == "x-overflow" else "stream" if name == "x-queue-type" else 0
        other = 11 if other == value else other
        status, why = await one.refused("PUT", "/queues/small", {"arguments": {**holds, name: other}})
        assert status == "409" and name in why
    assert (await one.ask("PUT", "/queues/small", {"arguments": holds}))[0] == "201"
    ring = {"x-max-length": 5, "x-max-length-bytes": 0, "x-overflow": "drop-head"}
    for name, other in (("x-max-length", 0), ("x-overflow", "reject-publish")):
        status, why = await one.refused("PUT", "/queues/ring", {"arguments": {**ring, name: other}})
        assert status == "409" and name in why
    assert (await one.ask("PUT", "/queues/ring", {"arguments": ring}))[0] == "201"
    status, told = await one.ask("PUT", "/queues/kept", {"arguments": {"x-queue-type": "stream"}})
    assert (status, told["type"]) == ("201", "stream")
    status, why = await one.refused("PUT", "/queues/q", {"arguments": {"x-expires": 1}})
    assert status == "501" and "x-expires" in why


@asks()
async def test_an_exchange_is_a_topic(one: Pair) -> None:
    """It is declared, a sender may use it, and it is deleted when nobody does."""
    for _ in range(2):
        assert await one.ask("PUT", "/exchanges/shop", {"type": "topic", "durable": True}) == ("204", None)
    assert one.at.broker.nodes.queues.is_topic("shop")
    sends = await one.at.sender("/exchanges/shop", "sends")
    status, why = await one.refused("DELETE", "/exchanges/shop")
    assert status == "409" and "1 links" in why
    sends.detach()
    await one.at.settle()
    assert await one.ask("DELETE", "/exchanges/shop") == ("204", None)
    assert not one.at.broker.nodes.queues.is_topic("shop")
    assert await one.ask("DELETE", "/exchanges/shop") == ("204", None)
    await one.ask("PUT", "/exchanges/news.all", {"type": "fanout"})
    assert (await one.refused("DELETE", "/exchanges/news.all"))[0] == "409"


BOUND = {"source": "shop", "destination_queue": "orders", "binding_key": "orders.*", "arguments": {}}


@asks()
async def test_bindings_of_the_configuration_stay(one: Pair) -> None:
    """They are there, need not be made, and are not deleted."""
    assert await one.ask("POST", "/bindings", BOUND) == ("204", None)
    assert await one.ask("POST", "/bindings", BOUND | {"source": "all", "binding_key": ""}) == ("204", None)
    assert (await one.refused("POST", "/bindings", BOUND | {"arguments": {"x-match": "all"}}))[0] == "501"
    to_exchange = {"source": "shop", "destination_exchange": "e", "binding_key": ""}
    assert (await one.refused("POST", "/bindings", to_exchange))[0] == "400"
    status, found = await one.ask("GET", "/bindings?src=shop&dstq=orders&key=orders.%2A")
    location = "/bindings/src=shop;dstq=orders;key=orders.%2A;args="
    assert (status, found) == ("200", [BOUND | {"location": location}])
    assert await one.ask("GET", "/bindings?src=shop&dstq=orders&key=") == ("200", [])
    assert (await one.refused("DELETE", location))[0] == "409"
    assert await one.ask("DELETE", "/bindings/src=shop;dstq=orders;key=b%3B;args=") == ("204", None)
    assert len(one.at.broker.features.bindings.all()) == 3


def bound(source: str, key: str, queue: str = "q") -> dict[str, Any]:
    """The body of a request that binds."""
    return {"source": source, "destination_queue": queue, "binding_key": key, "arguments": {}}


@asks()
async def test_a_binding_is_made_found_and_deleted(one: Pair) -> None:
    """With a key that is encoded in its path; twice is once; what is not there is gone already."""
    await one.ask("PUT", "/exchanges/e", {"type": "topic"})
    await one.ask("PUT", "/queues/q", {})
    for _ in range(2):
        assert await one.ask("POST", "/bindings", bound("e", "ü;/.*")) == ("204", None)
    location = "/bindings/src=e;dstq=q;key=%C3%BC%3B%2F.%2A;args="
    told = bound("e", "ü;/.*") | {"location": location}
    assert await one.ask("GET", "/bindings?src=e&dstq=q&key=%C3%BC%3B%2F.%2A") == ("200", [told])
    await publish(one.at, "e.ü;/.x", b"1")
    await publish(one.at, "e.other", b"2")
    assert await one.at.left("q") == [b"1"]
    for _ in range(2):
        assert await one.ask("DELETE", location) == ("204", None)
    assert await one.ask("GET", "/bindings?src=e&dstq=q&key=%C3%BC%3B%2F.%2A") == ("200", [])
    await publish(one.at, "e.ü;/.x", b"3")
    assert await one.at.left("q", "again") == [b"1"]


@pytest.mark.parametrize(
    ("kind", "key", "reached"),
    [
        ("direct", "red", {"e.red"}),
        ("direct", "", {"e"}),
        ("topic", "*.red", {"e.a.red"}),
        ("topic", "#", {"e", "e.red", "e.a.red"}),
        ("fanout", "", {"e", "e.red", "e.a.red"}),
        ("fanout", "blue", {"e", "e.red", "e.a.red"}),
    ],
)
def test_what_a_binding_means_is_said_by_the_type_of_its_exchange(
    kind: str, key: str, reached: set[str]
) -> None:
    """A fanout heeds no key."""

    async def main(one: Pair) -> None:
        await one.ask("PUT", "/exchanges/e", {"type": kind})
        await one.ask("PUT", "/queues/q", {})
        assert (await one.ask("POST", "/bindings", bound("e", key)))[0] == "204"
        for name in ("e", "e.red", "e.a.red"):
            await publish(one.at, name, name.encode())
        assert {body.decode() for body in await one.at.left("q")} == reached

    asks()(main)()


@asks()
async def test_what_cannot_be_bound_is_refused(one: Pair) -> None:
    """No such exchange, no such queue, a pattern where none is heeded; an exchange has one type."""
    await one.ask("PUT", "/exchanges/e", {"type": "direct"})
    await one.ask("PUT", "/queues/q", {})
    for told, status in (
        (bound("no", "k"), "404"), (bound("e", "k", "no"), "404"), (bound("e", "a.*"), "501"),
    ):  # fmt: skip
        assert (await one.refused("POST", "/bindings", told))[0] == status
    assert (await one.refused("PUT", "/exchanges/e", {"type": "fanout"}))[0] == "409"
    assert (await one.ask("PUT", "/exchanges/e", {"type": "direct"}))[0] == "204"


@asks()
async def test_bindings_go_with_their_exchange_and_their_queue(one: Pair) -> None:
    """As those of RabbitMQ do: neither is kept by them."""
    bindings = one.at.broker.features.bindings
    for _ in range(2):
        await one.ask("PUT", "/exchanges/e", {"type": "fanout"})
        await one.ask("PUT", "/queues/q", {})
        await one.ask("POST", "/bindings", bound("e", ""))
        assert len(bindings.all()) == 4
        assert (await one.ask("DELETE", "/queues/q"))[0] == "200"
        assert len(bindings.all()) == 3
        await one.ask("PUT", "/queues/q", {})
        await one.ask("POST", "/bindings", bound("e", ""))
        assert (await one.ask("DELETE", "/exchanges/e"))[0] == "204"
        assert len(bindings.all()) == 3


def test_exchanges_and_bindings_are_kept(tmp_path: Path) -> None:
    """Over a restart, with their types and what they mean; what was deleted is gone."""
    config = attrs.evolve(CONFIG, memory=False, data_dir=str(tmp_path))

    async def before(at: Served) -> None:
        one = await pair_of(at)
        await one.ask("PUT", "/exchanges/e", {"type": "fanout"})
        for name in ("q", "r", "s"):
            await one.ask("PUT", f"/queues/{name}", {})
            await one.ask("POST", "/bindings", bound("e", "k", name))
        await one.ask("DELETE", "/queues/r")
        await one.ask("DELETE", "/bindings/src=e;dstq=s;key=k;args=")

    async def after(at: Served) -> None:
        one = await pair_of(at)
        assert len(at.broker.features.bindings.all()) == 4
        assert len((await one.ask("GET", "/bindings?src=e&dstq=q&key=k"))[1]) == 1
        assert (await one.refused("PUT", "/exchanges/e", {"type": "topic"}))[0] == "409"
        await publish(at, "e.x", b"1")
        assert await at.left("q") == [b"1"] and await at.left("s", "s") == []
        assert (await one.ask("DELETE", "/exchanges/e"))[0] == "204"

    async def last(at: Served) -> None:
        assert len(at.broker.features.bindings.all()) == 3

    for main in (before, after, last):
        by_hand(main, config)
    assert verify_directory(tmp_path) == []


REFUSED: list[tuple[str, str | None, Any, str]] = [
    ("PATCH", "/queues/q", None, "501"),
    ("GET", "/queues", None, "501"),
    ("GET", "/vhosts/v", None, "501"),
    ("DELETE", "/queues/q/consumers", None, "404"),
    ("DELETE", "/queues/q/messages", None, "404"),
    ("GET", None, None, "400"),
    ("GET", "queues/q", None, "400"),
    ("GET", "/queues/%zz", None, "400"),
    ("GET", "/queues/%FF", None, "400"),
    ("GET", "/bindings?" + "a=1&" * 9, None, "400"),
    ("PUT", "/queues/", {}, "400"),
    ("PUT", "/queues/%24management", {}, "403"),
    ("PUT", "/queues/q", [], "400"),
    ("PUT", "/queues/q", {"colour": "red"}, "400"),
    ("PUT", "/queues/q", {"arguments": []}, "400"),
    ("PUT", "/queues/q", {"durable": False}, "501"),
    ("PUT", "/queues/kept", {"auto_delete": True}, "409"),
    ("PUT", "/queues/orders", {"exclusive": True}, "409"),
    ("PUT", "/queues/orders", {"auto_delete": True}, "409"),
    ("PUT", "/queues/%24x", {"exclusive": True}, "403"),
    ("PUT", "/queues/news.all", {"exclusive": True}, "409"),
    ("PUT", "/exchanges/e", {"auto_delete": True}, "501"),
    ("PUT", "/queues/news.all", {}, "409"),
    ("PUT", "/exchanges/e", {"type": "headers"}, "501"),
    ("PUT", "/exchanges/e", {"internal": True}, "501"),
    ("PUT", "/exchanges/orders", {}, "409"),
    ("DELETE", "/queues/orders", None, "409"),
    ("DELETE", "/bindings/src=e", None, "400"),
    ("PUT", "/auth/tokens", b"token", "501"),
]


@pytest.mark.parametrize(("method", "path", "body", "status"), REFUSED)
def test_what_cannot_be_is_told_with_its_status(
    method: str, path: str | None, body: Any, status: str
) -> None:
    """And the link goes on."""

    async def main(one: Pair) -> None:
        assert (await one.refused(method, path, body))[0] == status
        assert (await one.ask("PUT", "/queues/next", {}))[0] == "201"

    asks()(main)()


def ruled(*rights: str) -> BrokerConfig:
    """A broker where anybody who is not proved has these rights, at the node `small` only."""
    rule = AccessRule(users=("anonymous",), actions=("connect", *rights), nodes=("small",))
    return attrs.evolve(CONFIG, access_rules=(rule,))


ALL: list[tuple[str, str, Any]] = [
    ("GET", "/queues/orders", None),
    ("PUT", "/queues/small", {"arguments": {"x-max-length": 99}}),
    ("DELETE", "/queues/orders", None),
    ("DELETE", "/queues/orders/messages", None),
    ("PUT", "/exchanges/e", {}),
    ("GET", "/bindings?src=shop&dstq=orders&key=red", None),
    ("POST", "/bindings", BOUND),
]


NOBODY = ["403"] * 7
READER = ["200", "403", "403", "403", "403", "200", "204"]
WRITER = ["403", "409", "403", "403", "403", "403", "403"]


@pytest.mark.parametrize(
    ("rights", "statuses"), [((), NOBODY), (("manage-read",), READER), (("manage-write",), WRITER)]
)
def test_rights_are_those_of_management(rights: tuple[str, ...], statuses: list[str]) -> None:
    """One way for both: who may not do it there may not do it here, and learns nothing."""

    async def main(one: Pair) -> None:
        one.at.connection.principal = Principal("anonymous")
        told = [await one.ask(*each) for each in ALL]
        assert [status for status, _ in told] == statuses
        assert all("'anonymous' may not" in why for status, why in told if status == "403")
        made, _ = await one.ask("PUT", "/queues/small", {})
        assert made == ("201" if "manage-write" in rights else "403")
        assert (await one.ask("DELETE", "/queues/small"))[0] == "403"

    asks(ruled(*rights))(main)()


@asks()
async def test_requests_are_answered_in_their_order(one: Pair) -> None:
    """Each waits for the one before it."""
    sent = [one.send("PUT", f"/queues/q{at}", {}) for at in range(20)]
    sent.append(one.send("GET", "/queues/q19"))
    came = await one.came(len(sent))
    statuses = [read(each.payload, asked)[0] for each, asked in zip(came, sent, strict=True)]
    assert statuses == ["201"] * 20 + ["200"]


@asks()
async def test_a_null_body_may_stand_in_front(one: Pair) -> None:
    """So RabbitMQ's client for Python asks, although sections have an order (3.2)."""
    properties = Properties(message_id="1", reply_to="$me", to="/queues/q", subject="DELETE")
    one.up.send([Sendable(encode_message(body=AmqpValue(None)) + encode_message(properties=properties))])
    (came,) = await one.came(1)
    assert read(came.payload, "1") == ("200", {"message_count": 0})
    one.up.send([Sendable(encode_message(body=AmqpValue(None)) * 2 + encode_message(properties=properties))])
    await one.at.rest()
    assert one.at.condition() == "amqp:invalid-field"


@at_hand(CONFIG, max_frame_size_bytes=1_024, output_buffer_bytes=4_096)
async def test_replies_that_are_more_than_the_output_takes_are_all_sent(at: Served) -> None:
    """Nothing else has to move for the rest to follow."""
    one = await pair_of(at, credit=0)
    for index in range(REPLIES_MAX):
        one.send("PUT", f"/queues/q{index}", {})
        await at.rest()
    one.down.set_credit(REPLIES_MAX)
    await at.rest()
    assert len(at.take()) == REPLIES_MAX


@at_hand(CONFIG)
async def test_replies_wait_for_credit_up_to_a_bound(at: Served) -> None:
    """What is beyond is not done: its sender hears that by the end of its link."""
    one = await pair_of(at, credit=1)
    for index in range(REPLIES_MAX + 2):
        one.send("PUT", f"/queues/q{index}", {})
        await at.rest()
    assert len(at.take()) == 1
    assert at.condition() == "amqp:illegal-state"
    made = [queue.name for queue in at.broker.nodes.queues.queues() if queue.name.startswith("q")]
    assert len(made) == REPLIES_MAX + 1
    one.down.set_credit(2 * REPLIES_MAX)
    assert len(await one.came(REPLIES_MAX)) == REPLIES_MAX


@at_hand(CONFIG)
async def test_a_link_that_is_not_paired_is_refused(at: Served) -> None:
    """Its peer would wait for an answer for ever."""
    await at.sender("/management")
    assert at.condition() == "amqp:not-allowed"
    await at.receiver("/management", properties={"paired": False})
    assert at.condition() == "amqp:not-allowed"


@pytest.mark.parametrize("unsettled", [False, True])
def test_a_request_that_cannot_be_answered_is_not_done(unsettled: bool) -> None:
    """No paired link, or another reply-to: it is rejected, or the link ends where it was sent settled."""

    async def main(at: Served) -> None:
        mode = {} if unsettled else {"snd_settle_mode": SETTLED}
        down = await at.receiver("/management", 1, "other", properties=PAIRED)
        one = Pair(at, await at.sender("/management", "up", properties=PAIRED, **mode), down)
        one.send("PUT", "/queues/q", {})
        await at.settle()
        found = at.conditions.pop() if unsettled else at.condition()
        assert found == "amqp:illegal-state"
        paired = Pair(at, await at.sender("/management", "other", properties=PAIRED, **mode), down)
        paired.send("PUT", "/queues/q", {}, reply_to="replies")
        await at.settle()
        found = at.conditions.pop() if unsettled else at.condition()
        assert found == "amqp:invalid-field"
        assert at.broker.nodes.queues.find("q") is None

    at_hand(CONFIG)(main)()


@at_hand(CONFIG)
async def test_a_pair_is_of_one_connection(at: Served) -> None:
    """The same names on two connections are two pairs; a link that is gone is no longer one of a pair."""
    one, other = await pair_of(at), await pair_of(at.another())
    assert (await one.ask("PUT", "/queues/q", {}))[0] == "201"
    assert (await other.ask("PUT", "/queues/q", {}))[0] == "200"
    one.down.detach()
    await at.settle()
    at.detached.clear()
    one.send("PUT", "/queues/r", {})
    await at.settle()
    assert at.condition() == "amqp:illegal-state"
    assert (await other.ask("GET", "/queues/q"))[0] == "200"


@at_hand(memory_config())
async def test_without_the_setting_there_is_no_such_node(at: Served) -> None:
    """Neither by its address nor by its own name."""
    for address in ("/management", "$rabbitmq"):
        await at.sender(address, properties=PAIRED)
        assert at.condition() == "amqp:not-found"
