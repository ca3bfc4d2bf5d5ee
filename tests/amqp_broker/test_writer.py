"""Group commit: one commit for many jobs, answers only after it, strict turns, a full store refuses job by
job.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
import trio
import trio.testing

from amqp_broker.clock import BrokerClock
from amqp_broker.operations.operation import Operation
from amqp_broker.operations.pace import DEFER_S, INLINE_COMMIT_S, READ_TURN_S
from amqp_broker.operations.writer import IDLE_AFTER_S, Writer
from amqp_broker.persistence import (
    CreateNode,
    MemoryStore,
    Post,
    Record,
    Retire,
    Store,
    StoreFailed,
    StoreFull,
    Unit,
)
from amqp_broker.testing import run_with_virtual_clock
from amqp_broker.testing.blocking_peer import PATIENCE_S
from amqp_broker.timers import Timers
from tests.support.by_hand import Main, drives, in_trio


class Probe(MemoryStore):
    """A real memory store that notes its calls, can hold a commit, and can be out of room or broken."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.gate: threading.Event | None = None
        self.full = False
        self.broken = False

    def apply(self, units: Sequence[Unit]) -> list[Exception | None]:
        self.calls.append(f"apply {len(units)}")
        if self.full and any(isinstance(verb, Post) for unit in units for verb in unit):
            raise StoreFull("no room for new messages")
        return super().apply(units)

    def idle(self, now: float) -> bool:
        self.calls.append("idle")
        return super().idle(now)

    def commit(self) -> None:
        if self.gate is not None:
            assert self.gate.wait(PATIENCE_S)
        if self.broken:
            raise StoreFailed("I/O error at commit")
        super().commit()
        self.calls.append("commit")


class Note(Operation):
    """An operation that notes when it was asked and answered."""

    def __init__(self, verbs: Unit, store: Probe, name: str = "it") -> None:
        self.verbs = verbs
        self.store = store
        self.name = name
        self.error: Exception | None = None
        self.done = trio.Event()
        self.undone = False

    def prepare(self, now_ms: int) -> Unit:
        return self.verbs

    def undo(self) -> None:
        self.undone = True

    def stored(self) -> None:
        self.store.calls.append(f"stored {self.name}")
        self.done.set()

    def refused(self, error: Exception) -> None:
        self.error = error
        self.store.calls.append(f"refused {self.name}")
        self.done.set()


def new_store() -> Probe:
    store = Probe()
    store.apply([[CreateNode("q", "queue")]])
    store.commit()
    store.calls.clear()
    return store


def post(offset: int) -> Unit:
    return [Post(1, [Record(offset, b"body")])]


async def timed(writer: Writer, timers: Timers) -> None:
    """Run the writer, and the timers for as long."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(timers.run)
        await writer.run()
        nursery.cancel_scope.cancel()


def kept_clock() -> BrokerClock:
    """One whose time was kept just now: nothing is stored of it for a second."""
    clock = BrokerClock()
    clock.to_be_kept()
    return clock


async def run_with(store: Store, nursery: trio.Nursery) -> Writer:
    timers = Timers()
    writer = Writer(store, timers, kept_clock())
    nursery.start_soon(timed, writer, timers)
    await trio.testing.wait_all_tasks_blocked()
    return writer


async def beside_a_writer(main: Main) -> None:
    """Run `main` with a store and a writer, which is stopped behind it."""
    store = new_store()
    async with trio.open_nursery() as nursery:
        writer = await run_with(store, nursery)
        await main(store, writer)
        writer.stop()


with_writer = drives(lambda main: trio.run(beside_a_writer, main), given=2)
with_writer_and_time = drives(lambda main: run_with_virtual_clock(lambda: beside_a_writer(main)), given=2)
"""The same, where hours pass as soon as every task waits."""


@with_writer
async def test_jobs_are_answered_after_the_commit(store: Probe, writer: Writer) -> None:
    """Law 4: `finished` comes after `commit` returned."""
    job = Note(post(0), store)
    writer.submit(job)
    await job.done.wait()
    assert store.calls == ["apply 1", "commit", "stored it"]


@with_writer
async def test_while_one_commit_syncs_the_next_group_gathers(store: Probe, writer: Writer) -> None:
    """Everything submitted during a commit shares the next one."""
    store.gate = threading.Event()
    jobs = [Note(post(offset), store, str(offset)) for offset in range(4)]
    writer.submit(jobs[0])
    await trio.testing.wait_all_tasks_blocked()
    for job in jobs[1:]:
        writer.submit(job)
    assert store.calls == ["apply 1"]
    store.gate.set()
    await jobs[3].done.wait()
    assert [call for call in store.calls if call.startswith("apply")] == ["apply 1", "apply 3"]
    assert [call for call in store.calls if call.startswith("stored")] == [f"stored {n}" for n in range(4)]


@with_writer
async def test_jobs_without_verbs_keep_their_place_and_take_no_disk(store: Probe, writer: Writer) -> None:
    """A job of order alone is answered without a commit, after those before it."""
    job = Note([], store)
    writer.submit(job)
    await job.done.wait()
    assert store.calls == ["stored it"]


@with_writer
async def test_a_full_store_refuses_posts_and_goes_on_settling(store: Probe, writer: Writer) -> None:
    """When the group fails for room, each job goes alone: the retirement happens, the post is refused and
    withdrawn.
    """
    store.apply([post(0)])
    store.commit()
    store.full = True
    refused, settled = Note(post(1), store, "post"), Note([Retire(1, 0, 0)], store, "retire")
    writer.submit(refused)
    writer.submit(settled)
    await settled.done.wait()
    assert isinstance(refused.error, StoreFull) and refused.undone
    assert settled.error is None
    assert store.recover().nodes[0].message_count == 0


@in_trio
async def test_after_an_io_error_nobody_is_answered() -> None:
    """The outcome of a failed commit is unknown: no job is told anything, and the failure ends the writer."""
    store = new_store()
    store.broken = True
    job = Note(post(0), store)
    writer = Writer(store, Timers(), kept_clock())
    writer.submit(job)
    with pytest.raises(StoreFailed):
        await writer.run()
    assert not job.done.is_set()
    assert writer.failure is not None


@with_writer
async def test_reads_run_between_commits(store: Probe, writer: Writer) -> None:
    """A page is read when no group is under way, in the loop's thread."""
    store.gate = threading.Event()
    read: list[str] = []
    job = Note(post(0), store)
    writer.submit(job)
    await trio.testing.wait_all_tasks_blocked()
    writer.read(lambda _: read.append(threading.current_thread().name))
    await trio.testing.wait_all_tasks_blocked()
    assert read == []
    store.gate.set()
    await job.done.wait()
    await trio.testing.wait_all_tasks_blocked()
    assert read == [threading.current_thread().name]


@in_trio
async def test_stopping_commits_what_was_submitted() -> None:
    """A clean stop loses nothing."""
    store = new_store()
    writer = Writer(store, Timers(), kept_clock())
    jobs = [Note(post(offset), store) for offset in range(3)]
    for job in jobs:
        writer.submit(job)
    writer.stop()
    await writer.run()
    assert all(job.done.is_set() and job.error is None for job in jobs)
    assert writer.ended.is_set()


@with_writer
async def test_work_that_nobody_waits_for_shares_the_next_commit(store: Probe, writer: Writer) -> None:
    """A deferred job is committed with the next submitted one, in one group."""
    later, now = Note([Retire(1, 5, 5)], store, "later"), Note(post(0), store, "now")
    writer.defer(later)
    writer.submit(now)
    await later.done.wait()
    assert store.calls == ["apply 2", "commit", "stored later", "stored now"]


@with_writer
async def test_deferred_work_is_due_by_itself_after_a_moment(store: Probe, writer: Writer) -> None:
    """Without company a deferred job is committed after DEFER_S, and at once when the writer stops."""
    alone = Note([Retire(1, 5, 5)], store, "alone")
    start = trio.current_time()
    writer.defer(alone)
    await alone.done.wait()
    assert trio.current_time() - start >= DEFER_S
    last = Note([Retire(1, 6, 6)], store, "last")
    writer.defer(last)
    writer.stop()
    await writer.ended.wait()
    assert last.done.is_set()


@with_writer_and_time
async def test_deferred_work_wakes_a_writer_that_had_gone_idle(store: Probe, writer: Writer) -> None:
    """After the store's own work was done, a deferred job is still committed soon."""
    await trio.sleep(10 * IDLE_AFTER_S)
    late = Note([Retire(1, 5, 5)], store, "late")
    writer.defer(late)
    with trio.fail_after(1):
        await late.done.wait()


async def quick(writer: Writer, store: Probe) -> None:
    """Let the writer learn that this disk is quick, however busy the machine is."""
    for number in range(100, 200):
        job = Note(post(number), store)
        writer.submit(job)
        await job.done.wait()
    await trio.testing.wait_all_tasks_blocked()
    writer._pace.commit_s = min(writer._pace.commit_s, INLINE_COMMIT_S / 2)
    store.calls.clear()


@with_writer
async def test_a_small_group_is_committed_in_the_turn_that_made_it(store: Probe, writer: Writer) -> None:
    """With a quick disk and an idle writer `commit_or_wake` has committed and answered when it returns."""
    await quick(writer, store)
    job = Note(post(500), store)
    writer.collect(job)
    assert store.calls == []
    writer.commit_or_wake()
    assert store.calls == ["apply 1", "commit", "stored it"]


@with_writer
async def test_a_slow_disk_never_holds_the_loop(store: Probe, writer: Writer) -> None:
    """Where commits take longer, the group is left to the worker."""
    job = Note(post(500), store)
    writer.collect(job)
    writer.commit_or_wake()
    assert not job.done.is_set()
    await job.done.wait()


@with_writer
async def test_a_full_store_met_in_a_turn_is_left_to_the_writer(store: Probe, writer: Writer) -> None:
    """The group that found no room is withdrawn and goes job by job in the writer's own task."""
    await quick(writer, store)
    store.full = True
    refused, settled = Note(post(500), store, "post"), Note([Retire(1, 100, 100)], store, "retire")
    writer.collect(refused)
    writer.collect(settled)
    writer.commit_or_wake()
    assert refused.undone and not refused.done.is_set()
    await settled.done.wait()
    assert isinstance(refused.error, StoreFull) and settled.error is None


@in_trio
async def test_an_io_error_met_in_a_turn_ends_the_writer() -> None:
    """Nobody is answered, and the failure comes out of the writer's task, which ends the broker."""
    store = new_store()
    job = Note(post(500), store)
    with pytest.RaisesGroup(StoreFailed, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            writer = await run_with(store, nursery)
            await quick(writer, store)
            store.broken = True
            writer.collect(job)
            writer.commit_or_wake()
    assert not job.done.is_set()


@with_writer_and_time
async def test_the_store_gets_its_turn_also_without_a_pause(store: Probe, writer: Writer) -> None:
    """A step of housekeeping is made once a second although jobs keep coming."""
    for number in range(60):
        job = Note(post(number), store)
        writer.submit(job)
        await job.done.wait()
        await trio.sleep(IDLE_AFTER_S / 4)
    assert 2 <= store.calls.count("idle") <= 4


@with_writer_and_time
async def test_housekeeping_goes_on_while_more_of_it_waits(store: Probe, writer: Writer) -> None:
    """Else what comes and goes faster than a step a second takes away would grow without a bound. There is
    time for other work between the steps.
    """

    def idle(now: float) -> bool:
        store.calls.append("idle")
        return True

    store.idle = idle  # type: ignore[method-assign]
    for number in range(60):
        job = Note(post(number), store)
        writer.submit(job)
        await job.done.wait()
        await trio.sleep(IDLE_AFTER_S / 4)
    assert 20 <= store.calls.count("idle") <= 60


class Clock:
    """Stands for the module `time`: goes on when a read or a commit says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        """Seconds."""
        return self.now


@pytest.mark.parametrize("commit_s", [0.0005, 0.002, 1.0])
@with_writer
async def test_many_reads_do_not_keep_jobs_from_their_commit(
    store: Probe, writer: Writer, monkeypatch: pytest.MonkeyPatch, commit_s: float
) -> None:
    """Reads have as much time as a commit takes, and never more than a turn, at least one of them."""
    clock = Clock()
    monkeypatch.setattr("time.perf_counter", clock.perf_counter)
    read_s, reads = 1 / 1_024, 200
    between: list[int] = [0]
    commit = store.commit

    def slow_commit() -> None:
        commit()
        clock.now += commit_s
        between.append(0)

    store.commit = slow_commit  # type: ignore[method-assign]

    def read(_: Store) -> None:
        clock.now += read_s
        between[-1] += 1

    writer.submit(Note([], store))
    for _ in range(reads):
        writer.read(read)
    offset = 0
    while sum(between) < reads:
        writer.submit(Note(post(offset), store))  # a job is always due
        offset += 1
        await trio.lowlevel.checkpoint()
    assert max(between) <= READ_TURN_S / read_s + 1 and sum(between) == reads
    if commit_s < READ_TURN_S:
        settled = between[30:-2]  # the average has learnt what a commit takes
        assert all(1 <= each <= commit_s / read_s + 1 for each in settled), settled


@with_writer
async def test_reads_alone_have_pauses(store: Probe, writer: Writer) -> None:
    """Nobody waits for a commit, and still others have a turn."""
    seen: list[str] = []

    def again(_: Store) -> None:
        seen.append("read")
        if seen.count("read") < 50:
            writer.read(again)

    writer.read(again)
    while seen.count("read") < 50:
        seen.append("other")
        await trio.lowlevel.checkpoint()
    assert seen.count("other") > 10
