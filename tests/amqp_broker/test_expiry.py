"""Messages whose time to live is over while nobody receives: they leave their place and make room (3.2.1)."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio.testing

from amqp_broker.backlog import Backlog
from amqp_broker.configuration import BrokerLimits, QueuePolicy
from amqp_broker.coordinator.half_sets import StagedSet
from amqp_broker.expiries import CHUNK_BITS, CROWDED_CHUNKS, NEVER, Expiries
from amqp_broker.expiry import SWEEP_DISK_EVERY_MS, SWEEP_EVERY_MS
from amqp_broker.frames import Accepted, Released
from amqp_broker.persistence import Record, Store
from amqp_broker.persistence.questions import PageOf
from tests.support.broker_clients import at_rest, counts, session_to
from tests.support.by_hand import Served, at_hand, by_hand, text
from tests.support.half_sets import SetClient, seal_of
from tests.support.halves import half, putter, resolution, tell
from tests.support.jumping_broker import PATIENT, JumpingBroker, on_disk, stopping

LITTLE_MEMORY = BrokerLimits(
    idle_time_out_ms=2**32 - 1, queue_window_messages=4, retained_page_messages=7
)  # fmt: skip
POLICIES = (
    QueuePolicy(pattern="small", max_messages=3),
    QueuePolicy(pattern="told", events=True),
)
CONFIG = attrs.evolve(PATIENT, limits=LITTLE_MEMORY, queue_policies=POLICIES)
in_little_memory = at_hand(CONFIG)


async def stored(at: Served, name: str = "q") -> int:
    """How many messages of a queue the store has."""
    page = await at.broker.writer.ask(PageOf(at.queue(name).queue_id, 0, 10_000, 1 << 30))
    return len(page.records)


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


@in_little_memory
async def test_a_queue_without_ttl_knows_nothing_of_time(at: Served) -> None:
    """Nothing is kept, and nothing is armed."""
    queue = await at.post("q", *[b"x"] * 20)
    assert queue.expiries is None and not at.broker.nodes.expiry._due


@pytest.mark.parametrize("durable", [True, False])
@in_little_memory
async def test_expired_messages_leave_at_their_time(at: Served, durable: bool) -> None:
    """In memory and on disk, without a consumer; what is younger or has no ttl stays, in its order."""
    sender = await at.sender("q")
    ttls = [1_000, 60_000, None] * 10
    sender.send([text(b"%d" % number, durable=durable, ttl=ttl) for number, ttl in enumerate(ttls)])
    await at.settle()
    queue, rest = at.queue(), [b"%d" % number for number in range(30) if number % 3]
    await at.pass_time(0.9)
    assert queue.message_count == 30
    for seconds in [0.2] + [SWEEP_EVERY_MS / 1000] * 3:  # pages
        await at.pass_time(seconds)
    assert (queue.message_count, queue.byte_count) == (20, sum([len(body) + 5 for body in rest]))
    assert await stored(at) == (20 if durable else 0)
    assert await at.left("q") == rest


@in_little_memory
async def test_who_waits_for_room_goes_on(at: Served) -> None:
    """The capacity of what expired is given back, and senders get their credit."""
    sender = await at.sender("small")
    sender.send([text(b"x", ttl=500)] * 3)
    await at.settle()
    assert sender.credit == 0
    await at.pass_time(0.6)
    assert sender.credit and at.queue("small").message_count == await stored(at, "small") == 0


@in_little_memory
async def test_the_journal_tells_of_it(at: Served) -> None:
    """As of what a consumer would have found expired."""
    await at.post("told", *[b"x"] * 10, durable=False, ttl=500)
    for _ in range(3):
        await at.pass_time(1)
    told = [event for event in await at.broker.half_messages.events() if event.kind == "expire"]
    assert sum(event.count for event in told) == 10


@in_little_memory
async def test_what_a_consumer_holds_expires_after_it_came_back(at: Served) -> None:
    """Held messages are the consumer's; a released one is found by time again."""
    receiver = await at.receiver("q", 2)
    queue = await at.post("q", b"kept", b"released", durable=False, ttl=1_000)
    await at.pass_time(2)
    assert queue.message_count == 2
    receiver.settle(at.received[1:], Released())
    await at.settle()
    await at.pass_time(2)
    assert queue.message_count == 1


def test_half_messages_and_sets_expire_after_their_commit() -> None:
    """A ttl begins at the commit of a half message, and at the staging of a set."""

    def pass_time(seconds: float) -> int:
        broker.jump(seconds)
        at_rest(broker)
        return counts(broker, "q")[0]

    with stopping(JumpingBroker(CONFIG)) as broker, session_to(broker) as session:
        tell(putter(session), half("1", ttl=1_000))
        pass_time(5)
        client = SetClient(session)
        tell(client.resolve, resolution("1", "commit"))
        link = client.staged("s", *[half(str(number), ttl=20_000) for number in range(10)])
        link.detach()
        assert (pass_time(0), pass_time(2)) == (1, 0)
        staged = broker.call(lambda running: running.features.half_sets.producer("g", "p").sets["s"])
        assert isinstance(staged, StagedSet)
        tell(client.resolve, seal_of("s", 10, staged.checksum))
        assert isinstance(client.commit(("s", 10, staged.checksum)), Accepted)
        assert counts(broker, "q")[0] == 10
        assert [pass_time(SWEEP_DISK_EVERY_MS / 1000) for _ in range(4)][-1] == 0


def test_after_a_restart_a_queue_is_read_for_what_expired(tmp_path: Path) -> None:
    """Without a consumer and without a new message: its node says that there were messages with a ttl."""

    async def before(at: Served) -> None:
        sender = await at.sender("q")
        sender.send([text(b"x", ttl=ttl) for ttl in [1_000, 30_000] * 20])
        await at.post("never", b"x")
        await at.pass_time(0.5)

    async def after(at: Served) -> None:
        queue = at.queue()
        assert queue.message_count == 40
        for seconds in [1.0] + [SWEEP_EVERY_MS / 1000] * 8:
            await at.pass_time(seconds)
        assert queue.message_count >= 20
        for _ in range(8):
            await at.pass_time(SWEEP_DISK_EVERY_MS / 1000)
        assert (queue.message_count, queue.byte_count, await stored(at)) == (0, 0, 0)
        assert at.queue("never").expiries is None
        await at.post("q", b"new")
        assert await at.left("q") == [b"new"]

    for main in (before, after):
        by_hand(main, on_disk(tmp_path, limits=LITTLE_MEMORY))


@in_little_memory
async def test_a_page_read_before_the_commit_has_nothing_that_expired(at: Served) -> None:
    """The sweep and a consumer read the same page between two commits: nothing is counted or sent twice."""
    receiver, sender = await at.receiver("q"), await at.sender("q")
    sender.send([text(b"%d" % number, ttl=None if number == 19 else 1_000) for number in range(20)])
    await at.settle()
    queue, nodes, clock = at.queue(), at.broker.nodes, trio.lowlevel.current_clock()
    expiries = queue.expiries
    assert expiries is not None and isinstance(clock, trio.testing.MockClock)

    def both(store: Store) -> int:
        clock.jump(2)
        expiries.unread.append((0, 20))
        while expiries.unread:
            nodes.expiry.read(queue, store)
        gone = len(expiries.gone)
        nodes._read_page(queue, store)
        return gone

    assert await at.broker.writer.ask(both) == 15  # four are in the window
    await at.pass_time(2)
    assert (queue.message_count, queue.byte_count) == (1, 7)
    receiver.flow(10)
    await at.rest()
    receiver.flow(10, drain=True)
    await at.rest()
    assert at.bodies() == [b"19"] and not expiries.gone
