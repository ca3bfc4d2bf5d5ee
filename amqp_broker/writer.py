"""The one writer: what all connections want stored is gathered, applied and committed together.

    submit(job) ... submit(job)          while one commit syncs, the next group gathers
          |              |
          +--> jobs --> unit() each --> Store.apply (loop's thread) --> Store.commit (worker thread) -->
          finished() each

The statements run in the loop's thread and only COMMIT, one call that gives the interpreter lock away for the
whole sync, runs in the worker: a store thread that executes statements itself starves beside a busy loop,
because each step gives the lock away and waits 5 ms to get it back (measured in `conformance/load`). The two
take strict turns.
"""

from __future__ import annotations

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

import trio

from amqp_broker.persistence import Move, Post, Store, StoreFailed, StoreFull, Unit
from amqp_broker.timers import Timers

T = TypeVar("T")

INLINE_COMMIT_S: Final = 0.001  # a disk that syncs faster than this may hold the loop for it
INLINE_JOBS: Final = 8  # of a group that is committed in the loop: larger ones mean that there is traffic
COMMIT_TIME_WEIGHT: Final = 0.1  # of the newest commit in the average that predicts the next
DEFER_S: Final = 0.01  # how long work that nobody waits for may wait for a commit that happens anyway
DEFERRED_JOBS: Final = 64  # of them at most: beyond it they are a group of their own
READ_TURN_S: Final = 0.005  # of reads without a pause: a page or two of the largest window
READ_PART: Final = 1.0  # of an average commit's time is what reads have between two commits
HOUSEKEEPING_EVERY_S: Final = 1.0  # a step of it also where there is never a pause
IDLE_AFTER_S: Final = (
    0.2  # without work for so long, the writer offers the store time for its own (checkpoints)
)


class Job(Protocol):
    """What one connection wants stored: wholly or not at all."""

    def unit(self) -> Unit:
        """The verbs, asked for right before they are applied; empty when only the order matters."""

    def finished(self, error: Exception | None) -> None:
        """Called after the commit returned, or with the reason why nothing was stored."""

    def withdraw(self) -> None:
        """Take back what `unit` did, the last job first: nothing of it was stored."""

    def keeps(self) -> bool:
        """Whether a full store is no answer: the job waits for room, because its effect can't be undone."""


class JobRun(ABC):
    """A job that can be done in parts: where the store refuses it, each part is tried alone."""

    @abstractmethod
    def parts(self) -> list[Job]:
        """Jobs that do the same one after the other; nothing of it was stored, and `finished` is not called.
        One part is the job itself.
        """


class CommitThread:
    """One thread that runs one blocking call at a time, and wakes the loop when it returned."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._token = trio.lowlevel.current_trio_token()
        self._task: trio.lowlevel.Task | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="amqp-broker-commit", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except BaseException as error:
                self._error = error
            self._token.run_sync_soon(self._resume)

    def _resume(self) -> None:
        assert self._task is not None
        task, self._task = self._task, None
        trio.lowlevel.reschedule(task)

    async def run(self, call: Callable[[], None]) -> None:
        """Run `call` in the thread; not cancellable, since a commit can't be called back."""
        self._task = trio.lowlevel.current_task()
        self._error = None
        self._calls.put(call)
        await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def stop(self) -> None:
        """Let the thread end after what it is doing."""
        self._calls.put(None)
        self._thread.join()


class Writer:
    """Owns the store: nobody else calls it while the broker runs."""

    def __init__(self, store: Store, timers: Timers) -> None:
        self._store = store
        self._timers = timers
        self._jobs: list[Job] = []
        self._due = False  # some of the jobs do not wait for company
        self._kept: list[Job] = []  # met a full store, and are tried again
        self._parts: list[Job] = []  # of runs that were refused
        self._reads: deque[Callable[[Store], None]] = deque()
        self._task: trio.lowlevel.Task | None = None
        self._deferred_at = self._busy_at = trio.current_time()
        self._housekeeping_at = self._busy_at + HOUSEKEEPING_EVERY_S
        self._stopping = False
        self._in_worker = False  # it has the store
        self._commit_s = 2 * INLINE_COMMIT_S  # what a commit takes, on average; the first are not trusted
        self.dense: set[int] = set()
        """The queues whose offsets have no holes."""
        self.jobs_begun = 0
        """How many jobs were part of a group, since ever."""
        self.after_commit: Callable[[Store], None] | None = None
        """Called after a group was committed and its jobs were told, between two commits."""
        self.failure: StoreFailed | None = None
        self.ended = trio.Event()

    def submit(self, job: Job) -> None:
        """Have `job` stored with the next group; `job.finished` is called after the commit."""
        self._jobs.append(job)
        self._due = True
        self._wake()

    def collect(self, job: Job) -> None:
        """As `submit`, but it waits for the end of the caller's turn: `commit_or_wake` has to follow."""
        self._jobs.append(job)
        self._due = True

    def commit_or_wake(self) -> None:
        """Commit what is due in the caller's own step, if it is little, the disk is quick and the writer is
        idle; else leave it to the writer's task.

        A lone client that waits for each message is spared the switches to the writer and to the worker. No
        loop is held longer than by INLINE_COMMIT_S on average.
        """
        if not self._due:
            return
        if self._task is None or len(self._jobs) > INLINE_JOBS or self._kept or self._stopping:
            self._wake()
        elif self._commit_s >= INLINE_COMMIT_S:
            self._wake()
        else:
            self._commit_here()

    def _commit_here(self) -> None:
        group = self._begin_group()
        begun = time.perf_counter()
        try:
            units = [job.unit() for job in group]
            errors = self._store.apply(units)
            if self._leaves_holes(units, errors):
                self._store.abandon()
                raise StoreFull("offsets have to be given anew")
            self._store.commit()
        except StoreFull:
            self._withdraw(group)
            self._jobs, self._due = [*group, *self._jobs], True  # the task knows what to do with a full store
            self._wake()
            return
        except StoreFailed as failure:
            self.failure = failure
            self._wake()
            return
        self._measured(begun)
        for job, error in zip(group, errors, strict=True):
            self._answer(job, error)
        if self.after_commit is not None:
            self.after_commit(self._store)
        if self._store.checkpoint_due:
            self._wake()

    def defer(self, job: Job) -> None:
        """Have `job` stored with the next group, or a little later: nobody is promised anything by it.

        What a receiver has settled itself, or was sent settled, waits for no answer. Sharing the commit of
        the next post saves a client that sends one message at a time every second sync.
        """
        self._jobs.append(job)
        if self._due:
            return
        if len(self._jobs) == 1:
            self._deferred_at = trio.current_time()
            self._timers.set(self._deferred_at + DEFER_S, self)
        elif len(self._jobs) >= DEFERRED_JOBS:
            self._due = True
            self._wake()

    def lookup(self, call: Callable[[Store], T]) -> T:
        """The answer of `call(store)` at once: only between two commits, that is in a job's `unit`."""
        assert not self._in_worker, "a lookup while the worker has the store"
        return call(self._store)

    def read(self, call: Callable[[Store], None]) -> None:
        """Have `call(store)` run between two commits, in the loop's thread."""
        self._reads.append(call)
        self._wake()

    async def ask(self, question: Callable[[Store], T]) -> T:
        """The answer of `question(store)` between two commits; raises what it raises."""
        done = trio.Event()
        answers: list[T] = []
        errors: list[Exception] = []

        def look(store: Store) -> None:
            try:
                answers.append(question(store))
            except Exception as error:  # it is the asker's, and must not end the writer
                errors.append(error)
            done.set()

        self.read(look)
        await done.wait()
        if errors:
            raise errors[0]
        return answers[0]

    def stop(self) -> None:
        """Let `run` return once everything submitted was committed."""
        self._stopping = True
        self._wake()

    def _wake(self) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task)

    async def run(self) -> None:
        """Commit groups until stopped. Raises StoreFailed when nobody knows what the store holds."""
        thread = CommitThread()
        try:
            while True:
                if self.failure is not None:
                    raise self.failure
                if self._due:
                    await self._commit_group(thread)
                if self._store.checkpoint_due or trio.current_time() >= self._housekeeping_at:
                    await self._housekeeping(thread)
                if self._reads:
                    self._run_reads()
                    if self._reads:  # their time is over, or a page led to the next one: others have a turn
                        await trio.lowlevel.cancel_shielded_checkpoint()
                if not self._due and not self._reads:
                    if not self._stopping:
                        await self._wait_for_work(thread)
                    elif self._jobs:
                        self._due = True
                    else:
                        if self._kept:
                            await self._commit_group(thread)  # the last chance to find room
                        return
        except StoreFailed as failure:
            self.failure = failure
            raise
        finally:
            thread.stop()
            self.ended.set()

    async def _wait_for_work(self, thread: CommitThread) -> None:
        """Wait for a job that is due, or until deferred ones are. When nothing comes, the store has time.

        The deadlines are in the timer table: a timeout scope of its own would cost each message as
        much as the engine does.
        """
        self._timers.set((self._deferred_at + DEFER_S) if self._jobs else self._busy_at + IDLE_AFTER_S, self)
        await self._park()
        if self._work_waits() or trio.current_time() < self._busy_at + IDLE_AFTER_S:
            return
        self._busy_at = trio.current_time()
        if self._kept:
            await self._housekeeping(thread)
            self._due = True
        while not self._work_waits():
            if not await self._housekeeping(thread) and not self._work_waits():
                await self._park()

    def wake(self) -> None:
        """A deadline has come: deferred jobs may be due, or nothing came for a while."""
        if self._jobs:
            due_at = self._deferred_at + DEFER_S
            if trio.current_time() < due_at:  # those that set this deadline went with another group
                self._timers.set(due_at, self)
                return
            self._due = True
        self._wake()

    def _work_waits(self) -> bool:
        return bool(self._due or self._jobs or self._reads or self._stopping)

    async def _housekeeping(self, thread: CommitThread) -> bool:
        """A bounded step of the store's own work, in the worker; True if more waits."""
        now = trio.current_time()
        self._housekeeping_at = now + HOUSEKEEPING_EVERY_S
        more = False

        def step() -> None:
            nonlocal more
            more = self._store.idle(now)

        await self._run_in(thread, step)
        return more

    async def _park(self) -> None:
        def abort(_: object) -> trio.lowlevel.Abort:
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(abort)

    def _run_reads(self) -> None:
        """As many as there is time for, at least one; those that these lead to have to wait.

        While jobs are due, reads have as much time as a commit takes on average, so that both have half of it
        however many readers there are; else a turn, after which whoever wants something stored can say so.
        """
        begun = time.perf_counter()
        most_s = min(READ_TURN_S, self._commit_s * READ_PART) if self._due else READ_TURN_S
        for _ in range(len(self._reads)):
            self._reads.popleft()(self._store)
            if time.perf_counter() - begun >= most_s:
                return

    def _begin_group(self) -> list[Job]:
        group = [*self._kept, *self._parts, *self._jobs]
        self._kept, self._parts, self._jobs, self._due = [], [], [], False
        self._busy_at = trio.current_time()
        self.jobs_begun += len(group)
        return group

    async def _commit_group(self, thread: CommitThread) -> None:
        group = self._begin_group()
        errors: list[Exception | None]
        try:
            units = [job.unit() for job in group]
            if any(units):
                errors = self._store.apply(units)
                if self._leaves_holes(units, errors):
                    self._store.abandon()
                    self._withdraw(group)
                    if len(group) > 1:
                        await self._one_by_one(group, thread)
                        return
                else:
                    await self._commit(thread)
            else:
                errors = [None] * len(group)
        except StoreFull as full:
            errors = [full] * len(group)
            self._withdraw(group)
            if len(group) > 1:
                await self._one_by_one(group, thread)
                return
        for job, error in zip(group, errors, strict=True):
            self._answer(job, error)
        if self.after_commit is not None:
            self.after_commit(self._store)

    def _withdraw(self, group: list[Job]) -> None:
        for job in reversed(group):
            job.withdraw()

    def _leaves_holes(self, units: list[Unit], errors: list[Exception | None]) -> bool:
        """Whether something was refused that has numbers in a queue without holes: those behind it in the
        group have to get them.
        """
        if not self.dense or not any(errors):
            return False
        return any(
            isinstance(verb, Post | Move) and verb.queue_id in self.dense
            for unit, error in zip(units, errors, strict=True)
            if error is not None
            for verb in unit
        )

    async def _commit(self, thread: CommitThread) -> None:
        """In the worker, beside which the loop goes on."""
        begun = time.perf_counter()
        await self._run_in(thread, self._store.commit)
        self._measured(begun)

    async def _run_in(self, thread: CommitThread, call: Callable[[], None]) -> None:
        self._in_worker = True
        try:
            await thread.run(call)
        finally:
            self._in_worker = False

    def _measured(self, begun: float) -> None:
        self._commit_s += COMMIT_TIME_WEIGHT * (time.perf_counter() - begun - self._commit_s)

    def _answer(self, job: Job, error: Exception | None) -> None:
        if isinstance(error, StoreFull) and job.keeps():
            self._kept.append(job)
            return
        parts = job.parts() if error is not None and isinstance(job, JobRun) else []
        if len(parts) > 1:
            self._parts.extend(parts)
            self._due = True
        else:
            job.finished(error)

    async def _one_by_one(self, group: list[Job], thread: CommitThread) -> None:
        """A full store refused the group as a whole: what still fits (settling above all) goes alone."""
        for job in group:
            error: Exception | None = None
            if self._kept and job.keeps():
                self._kept.append(job)  # there is no room for the one before it either
                continue
            try:
                unit = job.unit()
                if unit:
                    error = self._store.apply([unit])[0]
                    await self._commit(thread)
            except StoreFull as full:
                error = full
            if error is not None:
                job.withdraw()
            self._answer(job, error)
            if self.after_commit is not None:
                self.after_commit(self._store)
