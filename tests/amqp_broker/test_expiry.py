"""Messages whose time to live is over while nobody receives: they leave their place and make room (3.2.1)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest

from amqp_broker.backlog import Backlog
from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerLimits, QueuePolicy
from amqp_broker.coordinator import StagedSet
from amqp_broker.embedding import RunningBroker
from amqp_broker.expiries import CHUNK_BITS, CROWDED_CHUNKS, NEVER, Expiries
from amqp_broker.expiry import SWEEP_DISK_EVERY_MS, SWEEP_EVERY_MS
from amqp_broker.frames import Accepted, Released
from amqp_broker.persistence import PageOf, Record, Store
from tests.support.broker_clients import at_rest, bodies, counts, receive, send, session_to, settle_down
from tests.support.half_sets import SetClient, seal_of
from tests.support.halves import events_of, half, putter, resolution, tell
from tests.support.jumping_broker import PATIENT, JumpingBroker, on_disk, stopping

LITTLE_MEMORY = BrokerLimits(
    idle_time_out_ms=2**32 - 1, queue_window_messages=4, retained_page_messages=7
)  # fmt: skip
POLICIES = (
    QueuePolicy(pattern="small", max_messages=3),
    QueuePolicy(pattern="told", events=True),
)


@pytest.fixture
def broker() -> Iterator[JumpingBroker]:
    """A broker in memory with small windows."""
    config = attrs.evolve(PATIENT, limits=LITTLE_MEMORY, queue_policies=POLICIES)
    with stopping(JumpingBroker(config)) as running:
        yield running


def pass_time(broker: RunningBroker, seconds: float) -> None:
    """So much time, and what it leads to."""
    assert isinstance(broker, JumpingBroker)
    broker.jump(seconds)
    at_rest(broker)


def stored(broker: RunningBroker, name: str = "q") -> int:
    """How many messages of a queue the store has."""

    async def there(running: Broker) -> int:
        queue = running.nodes.queues._queues[name]
        page = await running.writer.ask(PageOf(queue.queue_id, 0, 10_000, 1 << 30))
        return len(page.records)

    found = broker.call(there)
    assert isinstance(found, int)
    return found


# Pure


def timed(offset: int, expires_at_ms: int, *, durable: bool = True) -> Record:
    """A message of ten octets."""
    record = Record(0, bytes(10), expires_at_ms=expires_at_ms, durable=durable)
    record.offset = offset
    return record


def test_what_is_expired_leaves_every_place_in_memory() -> None:
    """Window, returned ones, those that only memory has, and those aside; the others stay in their order."""
    backlog = Backlog(window_messages=4)
    backlog.add([timed(offset, 100 if offset % 2 else 200) for offset in range(4)])
    (first,) = backlog.take(1)
    backlog.put_back(first)
    backlog.add([timed(4, 0), timed(5, 0)])  # the second one is on disk only
    backlog.add([timed(offset, 100 if offset % 2 else 200, durable=False) for offset in range(6, 11)])
    backlog.oversized.add(5, timed(11, 100))
    expired, stays = backlog.take_expired(0, 1 << CHUNK_BITS, 150)
    assert [record.offset for record in expired] == [1, 3, 7, 9, 11]
    assert (stays, backlog.oversized.count, backlog.oversized.byte_count) == (200, 0, 0)
    backlog.paged([timed(5, 0)], 11)
    assert [record.offset for record in backlog.take(10)] == [0, 2, 4, 5, 6, 8, 10]
    assert (backlog.volatile_bytes, backlog._ready_bytes) == (0, 0)


def test_only_the_offsets_asked_for_are_looked_at() -> None:
    """From the first up to the end, and the earliest expiry of those only."""
    backlog = Backlog()
    backlog.add([timed(offset, 100 + offset) for offset in range(10)])
    expired, stays = backlog.take_expired(3, 6, 104)
    assert ([record.offset for record in expired], stays) == ([3, 4], 105)
    assert [record.offset for record in backlog.take(10)] == [0, 1, 2, 5, 6, 7, 8, 9]


def test_expiries_are_kept_by_chunks() -> None:
    """The earliest of each; memory grows with chunks, and what was consumed is forgotten."""
    expiries = Expiries()
    assert expiries.next_ms() == NEVER and expiries.take_due(NEVER - 1) is None
    for offset in range(10 << CHUNK_BITS):
        expiries.note(offset, 1_000_000 - (offset & 15))
    assert len(expiries._chunks) == 10 and len(expiries._heap) <= 160
    assert expiries.next_ms() == 1_000_000 - 15
    assert expiries.take_due(999_000) is None
    assert expiries.take_due(1_000_000) == (0, 1 << CHUNK_BITS)
    for chunk in range(CROWDED_CHUNKS):
        expiries.note(chunk << CHUNK_BITS, 5)
    assert expiries.crowded()
    expiries.forget_below((CROWDED_CHUNKS - 1) << CHUNK_BITS)
    assert len(expiries._heap) == 1 and not expiries.crowded()


# A broker


def test_a_queue_without_ttl_knows_nothing_of_time(broker: JumpingBroker) -> None:
    """Nothing is kept, and nothing is armed."""
    with session_to(broker) as session:
        send(session.attach_sender("s", "q"), *[b"x"] * 20, durable=True)

        def look(running: Broker) -> tuple[object, int]:
            return running.nodes.queues._queues["q"].expiries, len(running.nodes.expiry._due)

        assert broker.call(look) == (None, 0)


@pytest.mark.parametrize("durable", [True, False])
def test_expired_messages_leave_at_their_time(broker: JumpingBroker, durable: bool) -> None:
    """In memory and on disk, without a consumer; what is younger or has no ttl stays, in its order."""
    with session_to(broker) as session:
        sender = session.attach_sender("s", "q")
        for number in range(30):
            body = b"%d" % number
            send(sender, body, durable=durable, ttl=[1_000, 60_000, None][number % 3])
        assert counts(broker, "q")[0] == 30
        pass_time(broker, 0.9)
        assert counts(broker, "q")[0] == 30
        pass_time(broker, 0.2)
        for _ in range(3):  # pages
            pass_time(broker, SWEEP_EVERY_MS / 1000)
        assert counts(broker, "q") == (20, sum([len(b"%d" % n) + 5 for n in range(30) if n % 3]))
        assert stored(broker) == (20 if durable else 0)
        receiver = session.attach_receiver("r", "q", credit=100)
        assert bodies(receive(receiver, 20)) == [b"%d" % n for n in range(30) if n % 3]


def test_who_waits_for_room_goes_on(broker: JumpingBroker) -> None:
    """The capacity of what expired is given back, and senders get their credit."""
    with session_to(broker) as session:
        sender = session.attach_sender("s", "small")
        send(sender, b"1", b"2", b"3", durable=True, ttl=500)
        settle_down(broker, session)
        assert sender.credit == 0
        pass_time(broker, 0.6)
        session.connection.pump_until(lambda: sender.may_send)
        assert counts(broker, "small") == (0, 0) and stored(broker, "small") == 0


def test_the_event_log_tells_of_it(broker: JumpingBroker) -> None:
    """As of what a consumer would have found expired."""
    with session_to(broker) as session:
        send(session.attach_sender("s", "told"), *[b"x"] * 10, ttl=500)
        for _ in range(3):
            pass_time(broker, 1)
        told = [event for event in events_of(broker) if event.kind == "expire"]
        assert sum(event.count for event in told) == 10


def test_what_a_consumer_holds_expires_after_it_came_back(broker: JumpingBroker) -> None:
    """Held messages are the consumer's; a released one is found by time again."""
    with session_to(broker) as session:
        receiver = session.attach_receiver("r", "q", credit=2)
        send(session.attach_sender("s", "q"), b"kept", b"released", ttl=1_000)
        kept, released = receive(receiver, 2)
        pass_time(broker, 2)
        assert counts(broker, "q")[0] == 2
        receiver.settle([released], Released())
        settle_down(broker, session)
        pass_time(broker, 2)
        assert counts(broker, "q")[0] == 1
        receiver.settle([kept], Accepted())


def test_half_messages_and_sets_expire_after_their_commit(broker: JumpingBroker) -> None:
    """A ttl begins at the commit of a half message, and at the staging of a set."""
    with session_to(broker) as session:
        tell(putter(session), half("1", ttl=1_000))
        pass_time(broker, 5)
        client = SetClient(session)
        tell(client.resolve, resolution("1", "commit"))
        rows = [half(str(number), ttl=20_000) for number in range(10)]
        link = client.staged("s", *rows)
        link.detach()
        assert counts(broker, "q")[0] == 1
        pass_time(broker, 2)
        assert counts(broker, "q")[0] == 0
        staged = broker.call(lambda running: running.features.half_sets.producer("g", "p").sets["s"])
        assert isinstance(staged, StagedSet)
        tell(client.resolve, seal_of("s", 10, staged.checksum))
        assert isinstance(client.commit(("s", 10, staged.checksum)), Accepted)
        assert counts(broker, "q")[0] == 10
        for _ in range(4):
            pass_time(broker, SWEEP_DISK_EVERY_MS / 1000)
        assert counts(broker, "q")[0] == 0 and stored(broker) == 0


def test_after_a_restart_a_queue_is_read_for_what_expired(tmp_path: Path) -> None:
    """Without a consumer and without a new message: its node says that there were messages with a ttl."""
    config = on_disk(tmp_path, limits=LITTLE_MEMORY)
    with stopping(JumpingBroker(config)) as before, session_to(before) as session:
        sender = session.attach_sender("s", "q")
        for number in range(40):
            send(sender, b"x", durable=True, ttl=[1_000, 30_000][number % 2])
        send(session.attach_sender("other", "never"), b"x", durable=True)
        settle_down(before, session)
        before.jump(0.5)
    with stopping(JumpingBroker(config, after=before)) as broker:
        assert counts(broker, "q")[0] == 40
        pass_time(broker, 1)
        for _ in range(8):
            pass_time(broker, SWEEP_EVERY_MS / 1000)
        assert 20 <= counts(broker, "q")[0] <= 40
        for _ in range(8):
            pass_time(broker, SWEEP_DISK_EVERY_MS / 1000)
        assert counts(broker, "q") == (0, 0) and stored(broker) == 0
        assert broker.call(lambda running: running.nodes.queues._queues["never"].expiries) is None
        with session_to(broker) as session:
            send(session.attach_sender("s", "q"), b"new", durable=True)
            assert bodies(receive(session.attach_receiver("r", "q", credit=9), 1)) == [b"new"]


def test_a_page_read_before_the_commit_has_nothing_that_expired(broker: JumpingBroker) -> None:
    """The sweep and a consumer read the same page between two commits: nothing is counted or sent twice."""
    with session_to(broker) as session:
        receiver = session.attach_receiver("r", "q")
        sender = session.attach_sender("s", "q")
        for number in range(20):
            send(sender, b"%d" % number, durable=True, ttl=None if number == 19 else 1_000)
        settle_down(broker, session)

        def both(running: Broker, store: Store) -> Any:
            queue = running.nodes.queues._queues["q"]
            expiries = queue.expiries
            assert expiries is not None
            broker.clock.jump(2)
            expiries.unread.append((0, 20))
            while expiries.unread:
                running.nodes.expiry.read(queue, store)
            gone = len(expiries.gone)
            running.nodes._read_page(queue, store)
            return gone

        gone = broker.call(lambda running: running.writer.ask(partial(both, running)))
        assert gone == 15  # four are in the window
        pass_time(broker, 2)
        assert counts(broker, "q") == (1, 7)
        receiver.flow(10)
        assert bodies(receive(receiver, 1)) == [b"19"]
        receiver.drain_all(10)
        expiries = broker.call(lambda running: running.nodes.queues._queues["q"].expiries)
        assert isinstance(expiries, Expiries) and not expiries.gone
