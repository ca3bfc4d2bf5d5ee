"""Links that read with a durable cursor: where they begin, what moves it, and that nobody shares it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from amqp_broker.authorisation import ANONYMOUS
from amqp_broker.broker import open_broker
from amqp_broker.configuration import BrokerConfig
from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import Accepted, Rejected, Released
from amqp_broker.persistence import MemoryStore
from amqp_broker.retained.cursors import Prefix
from amqp_broker.testing.peer import PeerError, PeerSession
from tests.support.broker_clients import bodies, receive, send, session_to, settle_down
from tests.support.jumping_broker import InEachStore, JumpingBroker, stopping
from tests.support.retained import Asker, offset_of, read, retaining

TEN = [b"%d" % number for number in range(10)]


@pytest.fixture
def config(in_each_store: InEachStore) -> BrokerConfig:
    """Two queues that retain."""
    return in_each_store(retaining("kept", "other"))


def filled(session: PeerSession) -> Asker:
    """Ten messages, and somebody to ask where cursors stand."""
    send(session.attach_sender("filler", "kept"), *TEN)
    return Asker(session)


@pytest.mark.parametrize(
    ("steps", "stands"),
    [
        ([(slice(0, 2), Accepted()), (slice(3, 6), Accepted())], 2),
        ([(slice(0, 2), Accepted()), (slice(3, 6), Accepted()), (slice(2, 3), Accepted())], 6),
        ([(slice(0, 2), Rejected()), (slice(2, 3), Released()), (slice(3, 10), Accepted())], 2),
    ],
)
def test_what_is_done_with_moves_the_cursor_up_to_a_gap(
    broker: RunningBroker, session: PeerSession, steps: list[tuple[slice, Any]], stands: int
) -> None:
    """A message that is invalid does not hold it for ever; one that is released does."""
    asker = filled(session)
    reader = read(session, "kept", "first", cursor="c")
    found = receive(reader, 10)
    for which, outcome in steps:
        reader.settle(found[which], outcome)
        settle_down(broker, session)
    assert asker.positions("c") == {"kept": stands}


@pytest.mark.parametrize("ends", ["detach", "close"])
def test_the_next_link_begins_behind_what_was_accepted_while_a_move_is_stored(ends: str) -> None:
    """Accepted before the link went, stored after it: the next link need not know how busy the disk was."""
    with stopping(JumpingBroker(retaining("kept"))) as broker, session_to(broker) as session:
        asker = filled(session)
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


def test_accepted_is_settled_after_the_commit_of_the_move() -> None:
    """What the receiver was told it has is not read again by the next link, whatever happens then."""
    with stopping(JumpingBroker(retaining("kept"))) as broker, session_to(broker) as session:
        asker = filled(session)
        reader = read(session, "kept", "first", cursor="c")
        found = receive(reader, 10)
        with broker.faults.held_commits():
            reader.settle(found, Accepted(), settled=False)
            session.connection.pump(0.2)
            assert not reader.confirmed
        session.connection.pump_until(lambda: len(reader.confirmed) == 10)
        assert asker.positions("c") == {"kept": 10}


def test_a_move_that_finds_the_disk_full_waits_for_room() -> None:
    """The receiver has decided: its outcome is settled when it is stored."""
    with stopping(JumpingBroker(retaining("kept"))) as broker, session_to(broker) as session:
        asker = filled(session)
        reader = read(session, "kept", "first", cursor="c")
        found = receive(reader, 10)
        broker.faults.refuse_commit()
        reader.settle(found, Accepted(), settled=False)
        settle_down(broker, session)
        broker.jump(1)
        session.connection.pump_until(lambda: len(reader.confirmed) == 10)
        assert asker.positions("c") == {"kept": 10}


def test_a_cursor_is_one_links_at_a_node(broker: RunningBroker, session: PeerSession) -> None:
    """The second link is refused, one at another node is not, and a detach frees it."""
    with session_to(broker, "rival") as other:
        filled(session)
        session.attach_sender("o", "other")
        reader = read(session, "kept", "first", cursor="c")
        read(session, "other", "first", cursor="c")
        with pytest.raises(PeerError, match="amqp:resource-locked"):
            read(other, "kept", "first", cursor="c")
        reader.detach()
        settle_down(broker, session)
        read(other, "kept", "first", cursor="c")


def test_a_connection_that_breaks_frees_its_cursors(broker: RunningBroker, session: PeerSession) -> None:
    """Those that it read with and those that it held."""
    with session_to(broker, "lost") as lost:
        filled(session)
        read(lost, "kept", "first", cursor="c")
        Asker(lost).ask("hold", cursor="d", start={"kept": "first"})
        lost.connection.abort()
        settle_down(broker, session)
        read(session, "kept", "first", cursor="c")
        Asker(session).ask("hold", cursor="d", start={})


def test_a_pre_settled_link_begins_at_the_cursor_and_leaves_it(
    broker: RunningBroker, session: PeerSession
) -> None:
    """There are no outcomes that could move it; `move` does."""
    asker = filled(session)
    asker.ask("move", cursor="c", positions={"kept": 3})
    reader = read(session, "kept", "first", cursor="c", settled=True)
    assert bodies(receive(reader, 7)) == TEN[3:]
    settle_down(broker, session)
    assert asker.positions("c") == {"kept": 3}


def test_a_cursor_of_the_journal(session: PeerSession) -> None:
    """`$events` has cursors like any node."""
    asker = filled(session)
    held = asker.ask("hold", cursor="c", start={"$events": "first"})
    assert held["positions"] == {"$events": 1}


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
