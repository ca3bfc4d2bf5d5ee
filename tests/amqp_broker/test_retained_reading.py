"""Reading retaining queues by offset: where it begins, what comes, that it goes on, and ranges."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

from amqp_broker.broker import open_broker
from amqp_broker.configuration import BrokerConfig, QueuePolicy
from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import (
    Accepted,
    Described,
    Header,
    Message,
    Properties,
    Source,
    Symbol,
    Timestamp,
    Ulong,
    encode_message,
)
from amqp_broker.persistence import MemoryStore, RetainedBy, Store
from amqp_broker.testing import memory_config
from amqp_broker.testing.peer import PeerError, PeerReceiver, PeerSession
from tests.support.broker_clients import (
    attach_with,
    bodies,
    browse,
    nothing_comes,
    receive,
    send,
    session_to,
    settle_down,
)
from tests.support.controllers import Controller
from tests.support.jumping_broker import EPOCH_MS, InEachStore, JumpingBroker, Start, stopping
from tests.support.retained import OFFSET_SPEC, Asker, offset_of, read, retaining, time_of

TEN = [b"%d" % number for number in range(10)]


@pytest.fixture
def config(in_each_store: InEachStore) -> BrokerConfig:
    """Queues that retain."""
    return in_each_store(retaining("kept", "small.*"))


def filled(session: PeerSession, address: str = "kept", *, consumed: int = 0) -> None:
    """Ten messages, of which the first ones were received and accepted."""
    send(session.attach_sender("filler", address), *TEN)
    if consumed:
        consumer = session.attach_receiver("consumer", address, credit=consumed)
        consumer.settle(receive(consumer, consumed), Accepted())
        consumer.detach()


def condition_of(session: PeerSession, *arguments: object, **options: object) -> str:
    """Why a reading link is refused."""
    with pytest.raises(PeerError) as caught:
        read(session, *arguments, **options)  # type: ignore[arg-type]
    assert caught.value.error is not None
    return caught.value.error.condition


@pytest.mark.parametrize(
    ("begins", "expected"),
    [("first", 0), ("last", 9), ("next", 10), (0, 0), (4, 4), (10, 10), (12, 12)],
)
def test_a_reader_begins_where_it_asks(session: PeerSession, begins: object, expected: int) -> None:
    """At the first, the last, the next message or an offset, settled or not; one that is above waits."""
    filled(session, consumed=6)
    reader = read(session, "kept", begins)
    attach = reader.remote_attach
    assert attach is not None and attach.properties is not None
    assert attach.properties["first"] == Ulong(0) and attach.properties["next"] == Ulong(10)
    assert attach.properties["start"] == Ulong(expected)
    send(session.attach_sender("late", "kept"), b"10", b"11", b"12")
    found = receive(reader, 13 - expected)
    assert bodies(found) == [b"%d" % number for number in range(expected, 13)]
    assert [offset_of(each) for each in found] == list(range(expected, 13))


def test_a_timestamp_begins_at_the_first_message_of_that_time_or_later(
    broker: JumpingBroker, session: PeerSession
) -> None:
    """By the broker's clock, which each message carries; a time to come waits for its messages."""
    sender = session.attach_sender("s", "kept")
    for body in TEN[:3]:
        send(sender, body)
        broker.jump(1)
    found = receive(read(session, "kept", Timestamp(EPOCH_MS + 1)), 2)
    assert bodies(found) == TEN[1:3]
    assert [time_of(each) for each in found] == [EPOCH_MS + 1_000, EPOCH_MS + 2_000]
    late = read(session, "kept", Timestamp(EPOCH_MS + 10_000))
    assert nothing_comes(broker, late)
    send(sender, b"late")
    assert bodies(receive(late, 1)) == [b"late"]


def test_the_attach_is_answered_with_what_is_in_effect(session: PeerSession) -> None:
    """The filters are echoed as they were asked, and the mode is copy; one of others refuses the link."""
    filled(session)
    ours = Described(Symbol(OFFSET_SPEC), "first")
    asked = {"position": ours, "selector": Described(Symbol("apache.org:selector-filter:string"), "a = 1")}
    link = attach_with(session, "r", source=Source(address="kept", filter=asked))
    assert link.remote_attach is not None
    source = link.remote_attach.source
    assert isinstance(source, Source)
    assert source.filter == asked and source.distribution_mode == "copy"
    foreign = {"position": ours, "other": Described(Symbol("example:filter:string"), "a")}
    with pytest.raises(PeerError, match="amqp:not-implemented"):
        attach_with(session, "f", source=Source(address="kept", filter=foreign))


def test_what_does_not_pass_is_not_sent(session: PeerSession) -> None:
    """A selector among the filters: a cursor moves over what it leaves out."""
    sender = session.attach_sender("coloured", "kept")
    for number in range(6):
        colour = {"colour": "red" if number % 2 else "blue"}
        sender.send(encode_message(application_properties=colour, body=b"%d" % number))
    session.connection.pump_until(lambda: len(sender.outcomes) == 6)
    filters = {
        "where": Described(Symbol(OFFSET_SPEC), "first"),
        "cursor": Described(Symbol("amqp-broker:cursor"), "reds"),
        "what": Described(Symbol("apache.org:selector-filter:string"), "colour = 'red'"),
    }
    reader = attach_with(session, "reds", source=Source(address="kept", filter=filters))
    assert isinstance(reader, PeerReceiver)
    reader.flow(10)
    taken = receive(reader, 3)
    assert bodies(taken) == [b"1", b"3", b"5"]
    reader.settle(taken, Accepted(), settled=False)
    session.connection.pump_until(lambda: len(reader.confirmed) == 3)
    assert Asker(session).ask("cursor", cursor="reds")["positions"] == {"kept": 6}


def test_the_bare_message_is_the_same_octets(session: PeerSession) -> None:
    """Annotations that were there stay beside ours; properties, body and footer are not encoded again."""
    payload = encode_message(
        header=Header(priority=7),
        message_annotations={"x-colour": "red"},
        properties=Properties(message_id="m"),
        application_properties={"weight": 3},
        body=b"a",
        footer={"x-sum": "1"},
    )
    sender = session.attach_sender("s", "kept")
    number = sender.send(payload)
    session.connection.pump_until(lambda: number in sender.outcomes)
    found = Message(receive(read(session, "kept", "first"), 1)[0].payload)
    assert found.bare == Message(payload).bare
    assert (found.message_annotations or {})[Symbol("x-colour")] == "red"
    assert found.header.priority == 7 and found.header.ttl is None


def test_a_reader_gets_what_its_credit_allows_and_a_drain_is_answered(
    broker: RunningBroker, session: PeerSession
) -> None:
    """Three of ten for a credit of three; a drain at the end gives the credit back."""
    filled(session)
    reader = read(session, "kept", "first", credit=3)
    assert bodies(receive(reader, 3)) == TEN[:3]
    assert nothing_comes(broker, reader)
    reader.flow(20, drain=True)
    assert bodies(receive(reader, 7)) == TEN[3:]
    session.connection.pump_until(lambda: reader.used_up)


def test_two_readers_at_their_own_pace(session: PeerSession) -> None:
    """Each has a position of its own."""
    filled(session)
    slow = read(session, "kept", "first", credit=1)
    fast = read(session, "kept", "first", settled=True)
    assert bodies(receive(fast, 10)) == TEN
    for body in TEN:
        assert bodies(receive(slow, 1)) == [body]
        slow.flow(1)


def test_pages_are_small_and_nothing_is_lost_between_them() -> None:
    """A thousand messages of a kilobyte by pages of 4 KiB, while more come."""
    with stopping(JumpingBroker(retaining("kept", limits={"retained_page_bytes": 4_096}))) as broker:
        with session_to(broker) as session:
            sender = session.attach_sender("s", "kept")
            sent = [b"%04d" % number + bytes(1_000) for number in range(600)]
            send(sender, *sent[:400])
            reader = read(session, "kept", "first", credit=1_000, settled=True)
            send(sender, *sent[400:])
            assert bodies(receive(reader, 600)) == sent


def test_a_message_larger_than_a_page_and_a_frame_is_read(session: PeerSession) -> None:
    """One at a time, in several transfers."""
    sent = [bytes([number]) * 700_000 for number in range(3)]
    send(session.attach_sender("s", "kept"), *sent)
    assert bodies(receive(read(session, "kept", "first"), 3)) == sent


def test_messages_that_are_not_durable_are_kept_too(broker: RunningBroker, session: PeerSession) -> None:
    """Offsets have no holes, and every reader sees them, also after they were consumed."""
    sender = session.attach_sender("s", "kept")
    send(sender, b"a", durable=False)
    send(sender, b"b", durable=True)
    send(sender, b"c", durable=False, settled=True)
    settle_down(broker, session)
    consumer = session.attach_receiver("c", "kept", credit=3)
    consumer.settle(receive(consumer, 3), Accepted())
    assert bodies(receive(read(session, "kept", "first"), 3)) == [b"a", b"b", b"c"]


def test_a_transaction_is_read_when_it_is_discharged(session: PeerSession) -> None:
    """Its messages come at once and behind those that were accepted before; a rolled back one leaves no
    hole.
    """
    controller = Controller(session)
    sender = session.attach_sender("s", "kept")
    reader = read(session, "kept", "first")
    committed, rolled_back = controller.declare(), controller.declare()
    for txn_id, body in ((rolled_back, b"no"), (committed, b"yes")):
        number = sender.send(encode_message(body=body), txn_id=txn_id)
        session.connection.pump_until(partial(sender.outcomes.__contains__, number))
    send(sender, b"plain")
    assert bodies(receive(reader, 1)) == [b"plain"]
    controller.roll_back(rolled_back)
    controller.commit(committed)
    found = receive(reader, 1)
    assert bodies(found) == [b"yes"] and offset_of(found[0]) == 1


# Ranges


def test_a_range_is_exactly_its_messages(broker: RunningBroker, session: PeerSession) -> None:
    """From 3 until 7, whatever comes later; then a drain is answered."""
    filled(session, consumed=5)
    reader = read(session, "kept", 3, until=7, settled=True)
    found = receive(reader, 4)
    assert [offset_of(each) for each in found] == [3, 4, 5, 6]
    send(session.attach_sender("late", "kept"), b"more")
    assert nothing_comes(broker, reader)
    reader.drain_all(5)


def test_an_empty_range_has_no_messages(session: PeerSession) -> None:
    """Its drain is answered at once."""
    filled(session)
    reader = read(session, "kept", 10, until=10, credit=0)
    reader.drain_all(5)
    assert not reader.deliveries


def test_a_range_beyond_the_end_is_refused(session: PeerSession) -> None:
    """The error says what there is."""
    filled(session)
    with pytest.raises(PeerError) as caught:
        read(session, "kept", 3, until=11)
    error = caught.value.error
    assert error is not None and error.condition == "retained:beyond"
    assert error.info == {
        "address": "kept", "first": Ulong(0), "next": Ulong(10), "asked": Ulong(11)
    }  # fmt: skip


def test_what_retention_dropped_is_refused_as_a_range_and_passed_over_else(start: Start) -> None:
    """A range says what there is; without `until` reading begins at the first that is there."""
    broker = start(retaining("kept", keep_ms=5_000))
    with session_to(broker) as session:
        filled(session, consumed=10)
        broker.jump(10)
        send(session.attach_sender("late", "kept"), b"10")
        settle_down(broker, session)

        def sweep(store: Store) -> None:
            while store.idle(trio.current_time()):
                pass

        broker.call(lambda running: running.writer.ask(sweep))
        with pytest.raises(PeerError) as caught:
            read(session, "kept", 3, until=10)
        error = caught.value.error
        assert error is not None and error.condition == "retained:dropped"
        assert error.info == {
            "address": "kept", "first": Ulong(10), "next": Ulong(11), "asked": Ulong(3)
        }  # fmt: skip
        assert bodies(receive(read(session, "kept", 3), 1)) == [b"10"]
        assert Asker(session).ask("describe", address="kept")["nodes"][0]["first"] == 10


# Refusals


def test_filters_that_are_none_are_refused(session: PeerSession) -> None:
    """A word that is none, a negative offset, a range that ends before it begins, and the mode move."""
    filled(session)
    assert condition_of(session, "kept", "middle") == "amqp:invalid-field"
    assert condition_of(session, "kept", 5, until=4) == "amqp:invalid-field"
    assert condition_of(session, "kept", "first", cursor="") == "amqp:invalid-field"
    assert condition_of(session, "kept", "first", mode="move") == "amqp:not-allowed"
    with pytest.raises(PeerError):
        attach_with(session, "bare", source=Source(address="kept", filter={OFFSET_SPEC: "first"}))


def test_the_number_of_readers_is_bounded() -> None:
    """By max_retained_readers; one that goes makes room."""
    with stopping(JumpingBroker(retaining("kept", limits={"max_retained_readers": 2}))) as broker:
        with session_to(broker) as session:
            one = read(session, "kept", "first")
            read(session, "kept", "first")
            assert condition_of(session, "kept", "first") == "amqp:resource-limit-exceeded"
            assert condition_of(session, "kept", "middle") == "amqp:invalid-field"
            one.detach()
            read(session, "kept", "first")


def test_browsing_without_an_offset_is_as_it_was(session: PeerSession) -> None:
    """Distribution-mode copy alone shows what is available, without annotations of ours."""
    filled(session, consumed=4)
    found = receive(browse(session, "b", "kept", credit=20), 6)
    assert bodies(found) == TEN[4:]
    assert Message(found[0].payload).message_annotations is None


# Configuration


@pytest.mark.parametrize("disk", [False, True])
def test_retention_that_is_switched_off_drops_what_was_kept(disk: bool, tmp_path: Path) -> None:
    """At the next start on the same store; other bounds only change what is dropped from then on."""
    store = None if disk else MemoryStore(store_id="log")

    async def firsts(policy: QueuePolicy) -> tuple[int, int] | None:
        config = memory_config(queue_policies=(policy,))
        config = attrs.evolve(config, memory=not disk, data_dir=str(tmp_path / "data"))
        async with open_broker(config, store=store) as broker:
            queue = await broker.nodes.queues.create("kept")
            broker.nodes.post(queue, encode_message(body=b"x"))
            await broker.nodes.store_step([])
            found = await broker.writer.ask(RetainedBy(queue.queue_id))
            return None if found is None else (found.first_offset, found.next_offset)

    keeps = QueuePolicy(pattern="kept", retention_ms=1_000)
    assert trio.run(firsts, keeps) == (0, 1)
    assert trio.run(firsts, keeps) == (0, 2)
    assert trio.run(firsts, QueuePolicy(pattern="kept", retention_bytes=10_000)) == (0, 3)
    assert trio.run(firsts, QueuePolicy(pattern="kept")) is None
