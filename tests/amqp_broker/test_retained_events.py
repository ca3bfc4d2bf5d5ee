"""The journal: each event is a message, read by offset like a retaining queue."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import attrs
import pytest

from amqp_broker.configuration import AccessRule, BrokerConfig, QueuePolicy
from amqp_broker.embedding import RunningBroker
from amqp_broker.event_checksums import FIELDS, MODULUS, checksum
from amqp_broker.event_types import event_fields, event_type
from amqp_broker.frames import Accepted, Rejected, Timestamp, Ulong
from amqp_broker.persistence import Event
from amqp_broker.testing import memory_config
from amqp_broker.testing.peer import PeerError, PeerSession
from tests.support.broker_clients import at_rest, receive, send, session_to, settle_down
from tests.support.halves import half, putter, resolution, resolver, tell
from tests.support.jumping_broker import EPOCH_MS, PATIENT, JumpingBroker, Start, stopping
from tests.support.retained import Asker, Refused, event_of, offset_of, read, time_of

TOLD = memory_config(queue_policies=(QueuePolicy(pattern="q", events=True),))


@pytest.fixture
def config() -> BrokerConfig:
    """A queue with events."""
    return TOLD


def some_traffic(session: PeerSession) -> None:
    """Three messages, of which one is accepted and one rejected."""
    send(session.attach_sender("s", "q"), b"a", b"b", b"c")
    receiver = session.attach_receiver("r", "q", credit=2)
    one, two = receive(receiver, 2)
    receiver.settle([one], Accepted())
    receiver.settle([two], Rejected())


def test_each_event_is_a_message(broker: RunningBroker, session: PeerSession) -> None:
    """Its subject is the type, its body the fields, its offset the number, which has no gaps."""
    reader = read(session, "$events", "first", credit=1_000)
    some_traffic(session)
    settle_down(broker, session)
    found = list(reader.deliveries)
    events = [event_of(each) for each in found]
    assert [each["lsn"] for each in events] == [offset_of(each) for each in found]
    assert [each["lsn"] for each in events] == list(range(1, len(events) + 1))
    assert all(each["time"] == time_of(delivery) for each, delivery in zip(events, found, strict=True))
    of_type: dict[str, list[dict[str, Any]]] = {}
    for each in events:
        of_type.setdefault(each["type"], []).append(each)
    assert [(each["address"], each["offset"]) for each in of_type["put"]] == [
        ("q", 0), ("q", 1), ("q", 2)
    ]  # fmt: skip
    assert [each["outcome"] for each in of_type["settle"]] == ["accepted", "rejected"]
    assert [each["offset"] for each in of_type["dead"]] == [1]


def test_a_range_within_a_run_of_events(session: PeerSession) -> None:
    """Events of one commit are one row of the store; they are read one by one all the same."""
    sender = session.attach_sender("s", "q")
    for number in range(40):
        session.connection.pump_until(lambda: sender.may_send)
        sender.send(half(f"{number}"))
    session.connection.pump_until(lambda: len(sender.outcomes) == 40)
    for start, until in ((1, 41), (7, 9), (20, 21), (40, 41)):
        found = receive(read(session, "$events", start, until=until, settled=True), until - start)
        assert [event_of(each)["offset"] for each in found] == list(range(start - 1, until - 1))
        assert [event_of(each)["message_id"] for each in found] == [
            f"{number - 1}" for number in range(start, until)
        ]


def test_half_messages_are_told_by_the_types_of_the_wire(start: Start) -> None:
    """half, decide, and no name of the store's own; from a time on, by the broker's clock."""
    broker = start(attrs.evolve(PATIENT, queue_policies=TOLD.queue_policies))
    with session_to(broker) as session:
        put, resolve = putter(session), resolver(session)
        tell(put, half("1", b"body"))
        broker.jump(1)
        tell(resolve, resolution("1", "commit"))
        tell(put, half("2"))
        tell(resolve, resolution("2", "rollback"))
        settle_down(broker, session)
        found = [event_of(each) for each in receive(read(session, "$events", "first"), 5)]
        assert found[0]["type"] == "half"
        assert {"group", "half_id", "address", "container", "bytes"} <= set(found[0])
        decided = [each for each in found if each["type"] == "decide"]
        assert [each["outcome"] for each in decided] == ["committed", "rolled-back"]
        assert [each["resolver"] for each in decided] == ["producer", "producer"]
        late = receive(read(session, "$events", Timestamp(EPOCH_MS + 1)), 1)
        assert offset_of(late[0]) == 2
        at = Asker(session).ask("find", address="$events", timestamp=Timestamp(EPOCH_MS + 1))
        assert at == {"offset": 2}


def test_waiting_for_an_event(broker: RunningBroker, session: PeerSession) -> None:
    """`wait` takes `$events` as an address, together with others."""
    asker = Asker(session)
    number = asker.tell("wait", positions={"$events": 1}, timeout_ms=10_000)
    settle_down(broker, session)
    assert number not in asker.link.outcomes
    send(session.attach_sender("s", "q"), b"a")
    assert asker.reply()["nodes"][0]["next"] >= 2


def test_reading_events_needs_the_right() -> None:
    """manage-read; who may browse everything may not read the log."""
    rule = AccessRule(users=("anonymous",), actions=("connect", "create", "send", "receive", "browse"))
    config = memory_config(access_rules=(rule,))
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        with pytest.raises(PeerError, match="amqp:unauthorized-access"):
            read(session, "$events", "first")
        assert Asker(session).ask("describe")["nodes"] == []


def test_names_of_the_store_have_names_of_the_wire() -> None:
    """What stands in the log of half messages, and what passes through as it is."""
    stored = Event("half.committed", 5, {"group": "g", "queue": "q", "offset": 3, "who": "me"}, 7)
    assert event_type(stored.kind) == "decide"
    assert event_fields(stored) == {"group": "g", "address": "q", "offset": 3, "outcome": "committed"}
    assert event_type("put") == "put" and event_fields(Event("put", 5, {"queue": "q"})) == {"queue": "q"}


def test_the_journal_is_bounded_in_bytes(start: Start) -> None:
    """The oldest events go, though they are young and a cursor has not read them; who wanted them is told as
    with any log.
    """
    limits = attrs.evolve(TOLD.limits, event_keep_bytes=2_000)
    broker = start(attrs.evolve(TOLD, limits=limits))
    with session_to(broker) as session:
        sender = session.attach_sender("s", "q")
        send(sender, b"first")
        asker = Asker(session)
        held = asker.ask("hold", cursor="c", start={"$events": "first"})
        assert held["positions"] == {"$events": 1}
        for number in range(40):
            send(sender, b"%d" % number)
        broker.jump(5)
        at_rest(broker)
        (found,) = asker.ask("describe", address="$events")["nodes"]
        assert found["retention_bytes"] == 2_000 and 10 < found["first"] < found["next"]
        assert asker.ask("cursor", cursor="c")["positions"] == {"$events": 1}
        with pytest.raises(PeerError, match="retained:dropped"):
            read(session, "$events", 1, until=5)
        begun = receive(read(session, "$events", 1), 1)
        assert [offset_of(each) for each in begun] == [found["first"]]


def test_the_checksum_of_a_range_is_that_of_its_events(broker: RunningBroker, session: PeerSession) -> None:
    """Read or asked for, in one request or in parts, over several pages."""
    some_traffic(session)
    for round_ in range(3):
        send(session.attach_sender(f"more-{round_}", "q"), *(b"%d" % number for number in range(600)))
    settle_down(broker, session)
    asker = Asker(session)
    (journal,) = asker.ask("describe", address="$events")["nodes"]
    reader = read(session, "$events", "first", credit=10_000, until=journal["next"])
    session.connection.pump_until(lambda: len(reader.deliveries) == journal["next"] - 1)
    sums = [checksum(event_of(each)) for each in reader.deliveries]
    for start, until in ((1, 2), (1, journal["next"]), (700, 1_800), (1_023, 1_026)):
        told = asker.ask("checksum", address="$events", start=Ulong(start), until=Ulong(until))
        mine = sum(sums[start - 1 : until - 1]) % MODULUS
        assert told == {"count": until - start, "checksum": mine.to_bytes(32, "big")}


def test_a_checksum_tells_events_apart() -> None:
    """By each field, by what a text is and where it ends; what is no field of the list does not count."""
    event: dict[str, Any] = {"lsn": 1, "time": 5, "type": "put", "address": "é", "producer": "a\n-"}
    others: list[dict[str, Any]] = [
        {**event, "lsn": 2}, {**event, "address": "e"}, {**event, "container": "a\n-"},
        {**event, "producer": "a"}, {**event, "count": 0}, {**event, "half_id": ""},
    ]  # fmt: skip
    assert len({checksum(each) for each in [event, *others]}) == len(others) + 1
    assert checksum(event) == checksum({**event, "coordinator": "b"})
    lines = ["1", "5", "3:put", "2:é", "-", "-", "3:a\n-", *["-"] * (len(FIELDS) - 7)]
    assert checksum(event) == int(sha256("\n".join(lines).encode()).hexdigest(), 16)


@pytest.mark.parametrize(
    ("body", "condition"),
    [
        ({"address": "$events", "start": 1, "until": 1}, "amqp:invalid-field"),
        ({"address": "$events", "start": 1, "until": 70_000}, "amqp:invalid-field"),
        ({"address": "$events", "start": -1, "until": 4}, "amqp:invalid-field"),
        ({"address": "$events", "start": 1, "until": 60_000}, "retained:beyond"),
        ({"address": "$events", "start": 0, "until": 2}, "retained:dropped"),
        ({"address": "nowhere", "start": 1, "until": 2}, "amqp:not-found"),
    ],
)
def test_a_checksum_that_cannot_be_is_refused(
    broker: RunningBroker, session: PeerSession, body: dict[str, Any], condition: str
) -> None:
    """What is no range, what is not there, and what is no journal."""
    some_traffic(session)
    with pytest.raises(Refused, match=condition):
        Asker(session).ask("checksum", **body)
