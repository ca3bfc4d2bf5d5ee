"""Reading retaining queues by offset, cursors that are moved by it, and the node `$retained`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from amqp_broker.authorisation import ANONYMOUS
from amqp_broker.broker import Broker, open_broker
from amqp_broker.configuration import BrokerConfig, QueuePolicy
from amqp_broker.frames import (
    Accepted,
    AmqpValue,
    Described,
    Properties,
    Rejected,
    Source,
    Symbol,
    Target,
    Ulong,
    encode_message,
)
from amqp_broker.persistence import MemoryStore, Store
from amqp_broker.persistence.questions import RetainedBy
from amqp_broker.retained.cursors import Prefix
from amqp_broker.testing import memory_config
from amqp_broker.testing.peer import PeerError, PeerReceiver, PeerSender, PeerSession
from tests.support.broker_clients import attach_with, bodies, post_own, receive, send, session_to, settle_down
from tests.support.controllers import Controller
from tests.support.jumping_broker import InEachStore, JumpingBroker, Start, stopping
from tests.support.retained import OFFSET_SPEC, Asker, Refused, offset_of, read, retaining

TEN = [b"%d" % number for number in range(10)]


@pytest.fixture
def config(in_each_store: InEachStore) -> BrokerConfig:
    """Queues that retain."""
    return in_each_store(retaining("kept", "kept.*", "other"))


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
            post_own(broker, queue, encode_message(body=b"x"))
            await broker.nodes.store_step([])
            found = await broker.writer.ask(RetainedBy(queue.queue_id))
            return None if found is None else (found.first_offset, found.next_offset)

    keeps = QueuePolicy(pattern="kept", retention_ms=1_000)
    assert trio.run(firsts, keeps) == (0, 1)
    assert trio.run(firsts, keeps) == (0, 2)
    assert trio.run(firsts, QueuePolicy(pattern="kept", retention_bytes=10_000)) == (0, 3)
    assert trio.run(firsts, QueuePolicy(pattern="kept")) is None


# Links that read with a durable cursor: where they begin, what moves it, and that nobody shares it


def filled_and_asked(session: PeerSession) -> Asker:
    """Ten messages, and somebody to ask where cursors stand."""
    filled(session)
    return Asker(session)


@pytest.mark.parametrize("ends", ["detach", "close"])
def test_the_next_link_begins_behind_what_was_accepted_while_a_move_is_stored(
    broker: JumpingBroker, ends: str
) -> None:
    """Accepted before the link went, stored after it: the next link need not know how busy the disk was."""
    with session_to(broker) as session:
        asker = filled_and_asked(session)
        with session_to(broker) as reading:
            reader = read(reading, "kept", "first", cursor="c")
            found = receive(reader, 10)
            with broker.faults.held_commits():
                reader.settle(found[:2], Accepted())
                reading.connection.pump(0.2)  # the move to 2 is in its commit
                reader.settle(found[2:8], Accepted())
                if ends == "detach":
                    reader.detach()
                else:
                    reading.connection.close()
        following = read(session, "kept", "first", cursor="c")
        assert offset_of(receive(following, 1)[0]) == 8
        settle_down(broker, session)
        assert asker.positions("c") == {"kept": 8}


def test_accepted_is_settled_after_the_commit_of_the_move(broker: JumpingBroker) -> None:
    """What the receiver was told it has is not read again by the next link, whatever happens then."""
    with session_to(broker) as session:
        asker = filled_and_asked(session)
        reader = read(session, "kept", "first", cursor="c")
        found = receive(reader, 10)
        with broker.faults.held_commits():
            reader.settle(found, Accepted(), settled=False)
            session.connection.pump(0.2)
            assert not reader.confirmed
        session.connection.pump_until(lambda: len(reader.confirmed) == 10)
        assert asker.positions("c") == {"kept": 10}


def test_a_move_that_finds_the_disk_full_waits_for_room(broker: JumpingBroker) -> None:
    """The receiver has decided: its outcome is settled when it is stored."""
    with session_to(broker) as session:
        asker = filled_and_asked(session)
        reader = read(session, "kept", "first", cursor="c")
        found = receive(reader, 10)
        broker.faults.refuse_commit()
        reader.settle(found, Accepted(), settled=False)
        settle_down(broker, session)
        broker.jump(1)
        session.connection.pump_until(lambda: len(reader.confirmed) == 10)
        assert asker.positions("c") == {"kept": 10}


def test_a_connection_that_breaks_frees_its_cursors(broker: JumpingBroker, session: PeerSession) -> None:
    """Those that it read with and those that it held."""
    with session_to(broker, "lost") as lost:
        filled(session)
        read(lost, "kept", "first", cursor="c")
        Asker(lost).ask("hold", cursor="d", start={"kept": "first"})
        lost.connection.abort()
        settle_down(broker, session)
        read(session, "kept", "first", cursor="c")
        Asker(session).ask("hold", cursor="d", start={})


@pytest.mark.parametrize("disk", [False, True])
def test_cursors_are_there_after_a_restart(disk: bool, tmp_path: Path) -> None:
    """Where they stood, and counted against the bound."""
    store = None if disk else MemoryStore(store_id="log")
    config = retaining("kept", limits={"max_cursors": 1})
    config = attrs.evolve(config, memory=not disk, data_dir=str(tmp_path / "data"))

    async def names() -> list[tuple[str, dict[str, int]]]:
        async with open_broker(config, store=store) as broker:
            queue = await broker.nodes.queues.create("kept")
            done = trio.Event()
            if not broker.features.retained.cursors.names():
                broker.features.retained.cursors.move(
                    "c", ANONYMOUS, lambda _store: {queue.queue_id: 0}, lambda _error: done.set()
                )
                await done.wait()
            return [(each.name, each.positions) for each in await broker.cursors()]

    assert trio.run(names) == trio.run(names) == [("c", {"kept": 0})]


def test_a_prefix_takes_offsets_in_any_order() -> None:
    """It reaches the first that is missing; what is below it counts no more."""
    prefix = Prefix(5)
    assert not prefix.accept([7, 8, 3]) and prefix.offset == 5 and prefix.waiting() == 2
    assert prefix.accept([5]) and prefix.offset == 6
    assert not prefix.skip(9, 10**9) and prefix.offset == 6
    assert prefix.skip(3, 6) and prefix.offset == 10**9 + 1 and prefix.waiting() == 0


# The node `$retained`


def refusal(asker: Asker, operation: str, **body: Any) -> str:
    """The condition of the error that a request gets."""
    with pytest.raises(Refused) as caught:
        asker.ask(operation, **body)
    return caught.value.error.condition


def test_describe_refuses_what_cannot_be_read(session: PeerSession) -> None:
    """A queue that retains nothing, one that is not there, and an address that is none."""
    session.attach_sender("t", "plain")
    asker = Asker(session)
    assert refusal(asker, "describe", address="plain") == "amqp:not-allowed"
    assert refusal(asker, "describe", address="nowhere") == "amqp:not-found"
    assert refusal(asker, "describe", address=Ulong(3)) == "amqp:invalid-field"


def test_wait_refuses_what_it_cannot_wait_for(session: PeerSession) -> None:
    """Too long, nothing at all, or a queue that retains nothing."""
    asker = Asker(session)
    session.attach_sender("s", "kept")
    assert refusal(asker, "wait", positions={"kept": 0}, timeout_ms=10_001) == "amqp:invalid-field"
    assert refusal(asker, "wait", positions={}, timeout_ms=1) == "amqp:invalid-field"
    assert refusal(asker, "wait", positions={"none": 0}, timeout_ms=1) == "amqp:not-found"


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
