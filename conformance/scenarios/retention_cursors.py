"""Durable cursors: on links that read, by requests, held and free; and the other requests to `$retained`."""

from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.messages import data
from amqp_broker.conformance.outcomes import expect_equal
from amqp_broker.conformance.retention import (
    INVALID,
    LOCKED,
    NOT_ALLOWED,
    Asker,
    asker,
    expect_offsets,
    expect_refused,
    expect_settled,
    filled,
    reader_on,
    source_of,
)
from amqp_broker.conformance.scenario import scenario
from amqp_broker.frames import (
    Accepted,
    AmqpValue,
    Properties,
    Rejected,
    Released,
    Timestamp,
    Ulong,
    encode_message,
)


@scenario("ret.cursor/prefix", "ret.cursor-accepted", "ret.cursor-settled")
def prefix(broker: Broker) -> None:
    """Accepted in any order: the cursor stands behind the last one before the first gap."""
    kept, questions = filled(broker, 8), asker(broker)
    name = broker.queue("cursor")
    reader = reader_on(kept.session, kept.address, "first", cursor=name, credit=8)
    found = expect_offsets(reader, range(8))
    for delivery in (found[0], found[3], found[2]):
        reader.settle(delivery, Accepted(), settled=False)
    expect_settled(kept.session, [found[0]])
    expect_equal("the cursor", {kept.address: 1}, questions.positions(name))
    reader.settle(found[1], Rejected(), settled=False)
    expect_settled(kept.session, [found[1]])
    expect_equal("the cursor", {kept.address: 4}, questions.positions(name))
    reader.settle(found[4], Released(), settled=False)
    reader.settle(found[5], Accepted(), settled=False)
    expect_settled(kept.session, found[4:6])
    expect_equal("the cursor", {kept.address: 4}, questions.positions(name))


@scenario("ret.cursor/begins", "ret.cursor-begins")
def begins(broker: Broker) -> None:
    """The next link begins at the cursor, whatever its offset filter says; another cursor by its filter."""
    kept, questions = filled(broker, 5), asker(broker)
    name = broker.queue("cursor")
    questions.ask("move", cursor=name, positions={kept.address: Ulong(3)})
    expect_offsets(reader_on(kept.session, kept.address, "first", cursor=name, credit=1), [3])
    other = reader_on(kept.session, kept.address, "last", cursor=f"{name}2", handle=2, credit=1)
    expect_offsets(other, [4])


@scenario("ret.cursor/one-link", "ret.cursor-one")
def one_link(broker: Broker) -> None:
    """The second link with a cursor is refused until the first one is gone."""
    kept = filled(broker, 2)
    name = broker.queue("cursor")
    reader = reader_on(kept.session, kept.address, "first", cursor=name)
    other = broker.session(container="other")
    error = expect_refused(other, LOCKED, source_of(kept.address, start="first", cursor=name))
    expect_equal("it names the container", True, broker.container_id() in (error.description or ""))
    reader.detach()
    expect_offsets(reader_on(other, kept.address, "first", cursor=name, credit=2), [0, 1])


@scenario("ret.cursor/pre-settled", "ret.cursor-pre-settled")
def pre_settled(broker: Broker) -> None:
    """A pre-settled link begins at the cursor and leaves it where it is."""
    kept, questions = filled(broker, 4), asker(broker)
    name = broker.queue("cursor")
    questions.ask("move", cursor=name, positions={kept.address: Ulong(2)})
    reader = reader_on(kept.session, kept.address, "first", cursor=name, settled=True, credit=2)
    expect_offsets(reader, [2, 3])
    expect_equal("the cursor", {kept.address: 2}, questions.positions(name))


@scenario("ret.requests/describe", "ret.describe", "ret.request")
def describe_nodes(broker: Broker) -> None:
    """One node by its address, and among all; the reply has what was asked as its correlation-id."""
    kept, questions = filled(broker, 3), asker(broker)
    one = questions.ask("describe", address=kept.address)
    (node,) = one["nodes"]
    expect_equal("address, first, next", (kept.address, 0, 3), (node["address"], node["first"], node["next"]))
    expect_equal("it retains", True, node["retention_ms"] > 0 and node["bytes"] > 0)
    everything = questions.ask("describe")
    expect_equal("the log", one["store_id"], everything["store_id"])
    expect_equal("it is among all", True, node in everything["nodes"])


@scenario("ret.requests/find", "ret.find")
def find(broker: Broker) -> None:
    """The first offset of a time, and the next for one to come."""
    kept, questions = filled(broker, 3), asker(broker)
    expect_equal(
        "offsets",
        [0, 3],
        [
            questions.ask("find", address=kept.address, timestamp=Timestamp(at))["offset"]
            for at in (0, 4_000_000_000_000)
        ],
    )


@scenario("ret.requests/wait", "ret.wait")
def wait(broker: Broker) -> None:
    """Answered at once, after the next message, or when the time is over."""
    kept, questions = filled(broker, 3), asker(broker)
    at_once = questions.ask("wait", positions={kept.address: Ulong(2)}, timeout_ms=Ulong(10_000))
    expect_equal("next", 3, at_once["nodes"][0]["next"])
    questions.send("wait", {"positions": {kept.address: Ulong(3)}, "timeout_ms": Ulong(10_000)})
    kept.put(b"3")
    expect_equal("next", 4, questions.reply()["nodes"][0]["next"])
    over = questions.ask("wait", positions={kept.address: Ulong(4)}, timeout_ms=Ulong(200))
    expect_equal("next", 4, over["nodes"][0]["next"])


@scenario("ret.requests/hold", "ret.hold", "ret.held")
def hold(broker: Broker) -> None:
    """What is frozen stays; others are refused until the link goes."""
    kept, one, two = filled(broker, 3), asker(broker, "one"), asker(broker, "two")
    name = broker.queue("cursor")
    first = one.ask("hold", cursor=name, start={kept.address: "next"})
    expect_equal("frozen", {kept.address: 3}, first["positions"])
    kept.put(b"3")
    again = one.ask("hold", cursor=name, start={kept.address: "first"})
    expect_equal("frozen", {kept.address: 3}, again["positions"])
    error = two.refused("hold", cursor=name, start={})
    expect_equal("the condition", LOCKED, error.condition)
    expect_equal("it names the container", True, broker.container_id("one") in (error.description or ""))
    expect_refused(kept.session, LOCKED, source_of(kept.address, start="first", cursor=name))
    expect_equal("held_by", broker.container_id("one"), two.ask("cursor", cursor=name).get("held_by"))
    one.link.detach()
    expect_equal("held now", {kept.address: 3}, two.ask("hold", cursor=name, start={})["positions"])


@scenario("ret.requests/move", "ret.move", "ret.forget")
def move(broker: Broker) -> None:
    """Forward only, not above the next offset, and then it is forgotten."""
    kept, questions = filled(broker, 3), asker(broker)
    name = broker.queue("cursor")
    for wanted, stands in ((2, 2), (1, 2), (3, 3)):
        found = questions.ask("move", cursor=name, positions={kept.address: Ulong(wanted)})
        expect_equal("the cursor", {"positions": {kept.address: stands}}, found)
    error = questions.refused("move", cursor=name, positions={kept.address: Ulong(4)})
    expect_equal("the condition", INVALID, error.condition)
    expect_equal("the cursor", {kept.address: 3}, questions.positions(name))
    expect_equal("the reply", {}, questions.ask("forget", cursor=name))
    expect_equal("the cursor", {}, questions.positions(name))


@scenario("ret.requests/refused", "ret.request-refused")
def refused(broker: Broker) -> None:
    """Requests that are none, and addresses that can't be read."""
    kept, questions = filled(broker, 1), asker(broker)
    kept.session.sender(broker.queue("plain"), 5)
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("explode", {}, INVALID),
        ("find", {"address": kept.address}, INVALID),
        ("move", {"cursor": "", "positions": {}}, INVALID),
        ("hold", {"cursor": "c", "start": {kept.address: "middle"}}, INVALID),
        ("wait", {"positions": {kept.address: Ulong(0)}, "timeout_ms": Ulong(10_001)}, INVALID),
        ("describe", {"address": broker.queue("plain")}, NOT_ALLOWED),
    ]
    for operation, body, condition in wrong:
        expect_equal(operation, condition, questions.refused(operation, **body).condition)
    expect_equal("no map", INVALID, _refused_payload(questions, data(b"x")).condition)
    nowhere = questions.refused("describe", address=broker.settings.unknown_address + "-nowhere")
    expect_equal("no such queue", "amqp:not-found", nowhere.condition)


def _refused_payload(questions: Asker, body: bytes) -> Any:
    properties = Properties(subject="describe", reply_to=questions.reply_to)
    number = questions.link.send(encode_message(properties=properties, body=AmqpValue(body)))
    state = questions.answer(number)
    expect_equal("the outcome", Rejected, type(state))
    return state.error
