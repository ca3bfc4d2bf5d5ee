"""The one writer: what all connections want stored is gathered, judged, applied and committed together.

    submit(operation) ... submit(operation)     while one commit syncs, the next group gathers
          |                    |
          +--> prepare() each, in order --> Store.apply (loop's thread) --> Store.commit (worker thread) -->
          stored() or refused() each, in order

| what happens while a group is made       | what the writer does                                            |
|------------------------------------------|-----------------------------------------------------------------|
| `prepare` raises Refused or a StoreError | it is left out, and refused after the commit                    |
| `prepare` raises NotYet                  | the group ends before it; it is the first of the next one       |
| `prepare` raises anything else           | our own fault: as refused, and its connection ends              |
| the store refuses some of the units      | undo all; again without those (a run is taken in parts). What   |
|                                          | was judged behind the first of them is judged again; where that |
|                                          | takes many rounds, each is a group of its own                   |
| the store has no room for the group, or  | undo all; each is a group of its own, in order: the one that it |
| raises what nobody expected              | was is refused, waits for room, or is at fault                  |
| `commit` raises StoreFailed              | nobody is told anything; the broker ends                        |
| `stored` raises                          | memory does not fit the disk any more: the broker ends          |

The statements run in the loop's thread and only COMMIT, one call that gives the interpreter lock away for the
whole sync, runs in the worker: a store thread that executes statements itself starves beside a busy loop,
because each step gives the lock away and waits 5 ms to get it back (measured in `conformance/load`). The two
take strict turns.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import ClassVar, Final, TypeVar

import trio

from amqp_broker.clock import BrokerClock
from amqp_broker.links import Account, MemoryBudget
from amqp_broker.log_setup import logger
from amqp_broker.operations.commit_counts import CommitCounts
from amqp_broker.operations.operation import NotYet, Operation, OperationFault, Refused
from amqp_broker.operations.pace import DEFER_S, DEFERRED_OPERATIONS, Pace
from amqp_broker.persistence import SpaceState, Spool, Store, StoreError, StoreFailed, StoreFull, Unit
from amqp_broker.timers import Timers
from amqp_broker.watching import UNWATCHED, Watcher

T = TypeVar("T")
Read = tuple[Callable[[Store], None], Callable[[Exception], None] | None]

Work = tuple[Callable[[Store], None], Callable[[], None], Callable[[Exception], None]]

HOUSEKEEPING_EVERY_S: Final = 1.0  # a step of it also where there is never a pause
HOUSEKEEPING_SOON_S: Final = 0.05  # the next one, where more of it waits: else it might never be done
HOUSEKEEPING_PART: Final = 20  # such steps take at most one in so many parts of the time
ROUNDS: Final = 8  # in which a group is made again without what the store refused
IDLE_AFTER_S: Final = (
    0.2  # without work for so long, the writer offers the store time for its own (checkpoints)
)


class CommitThread:
    """One thread that runs one blocking call at a time, and wakes the loop when it returned."""

    at_work: ClassVar[set[CommitThread]] = set()
    """Those of the process that run a call, which trio does not see."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.token = trio.lowlevel.current_trio_token()
        self._task: trio.lowlevel.Task | None = None
        self._then: Callable[[], None] | None = None
        self._error: BaseException | None = None
        self._worker = threading.Thread(target=self._run, name="amqp-broker-commit", daemon=True)
        self._worker.start()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except BaseException as error:
                self._error = error
            self.token.run_sync_soon(self._resume)

    def _resume(self) -> None:
        assert self._task is not None
        task, self._task = self._task, None
        then, self._then = self._then, None  # it has the group, and the group has files that are to go
        if then is not None and self._error is None:
            try:
                then()
            except BaseException as error:
                self._error = error
        trio.lowlevel.reschedule(task)

    async def run(self, call: Callable[[], None], then: Callable[[], None] | None = None) -> None:
        """Run `call` in the thread; not cancellable, since a commit can't be called back. `then` is called in
        the loop once `call` has returned, before this task has its turn: that is a round of the loop earlier,
        which takes milliseconds where others are busy. Raises what either raises.
        """
        self._task = trio.lowlevel.current_task()
        self._then = then
        CommitThread.at_work.add(self)
        self._calls.put(call)
        try:
            await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
        finally:
            CommitThread.at_work.discard(self)
        error = self._take_error()
        if error is not None:
            raise error

    def _take_error(self) -> BaseException | None:
        """A call of its own: compiled code believes that what was set before an await is so behind it."""
        error, self._error = self._error, None
        return error

    def stop(self) -> None:
        """Let the thread end after what it is doing."""
        self._calls.put(None)
        self._worker.join()


class Group:
    """Operations that share a commit, in their order. `prepared` are those whose verbs it has, `errors` says
    why the others are not among them, and `stores` whether there are verbs at all.
    """

    __slots__ = ("errors", "operations", "prepared", "stores")

    def __init__(self, operations: list[Operation]) -> None:
        self.operations = operations
        self.prepared: list[Operation] = []
        self.errors: dict[Operation, Exception] = {}
        self.stores = False

    def undo(self) -> None:
        """Undo the operations: nothing of the group was stored."""
        prepared, self.prepared = self.prepared, []
        for operation in reversed(prepared):
            operation.undo()


class Writer:
    """Owns the store: nobody else calls it while the broker runs."""

    def __init__(
        self, store: Store, timers: Timers, clock: BrokerClock, memory: MemoryBudget | None = None
    ) -> None:
        self._store = store
        self._memory = memory or MemoryBudget()
        self._timers = timers
        self._clock = clock
        self._pace = Pace()
        self._waiting: list[Operation] = []
        self._due = False  # some of them do not wait for company
        self._heavy = False  # some of them are
        self._alone = 0  # so many of them, the first ones, are groups of their own
        self._kept: list[Operation] = []  # met a full store, and are tried again
        self._reads: deque[Read] = deque()
        self._works: deque[Work] = deque()
        self._idle = trio.lowlevel.ParkingLot()
        self._deferred_at = self._busy_at = trio.current_time()
        self._housekeeping_at = self._busy_at + HOUSEKEEPING_EVERY_S
        self._stopping = False
        self._in_worker = False  # it has the store
        self._store_bytes = 0  # of memory, as the budget has it
        self._log = logger("writer")
        self.counts = CommitCounts()
        self.operations_begun = 0
        """How many operations were part of a group, since ever."""
        self.after_commit: Callable[[Store], None] | None = None
        """Called after a group was committed and its operations were told, between two commits."""
        self.watcher: Watcher = UNWATCHED
        """Who looks on."""
        self.failure: StoreFailed | None = None
        self.ended = trio.Event()

    # From all tasks

    def submit(self, operation: Operation) -> None:
        """Have an operation stored with the next group."""
        self._add(operation)
        self._due = True
        self._wake()

    def collect(self, operation: Operation, *, heavy: bool = False) -> None:
        """Take an operation as `submit` does, for the end of the caller's turn: `commit_or_wake` has to
        follow. One that is `heavy` has megabytes synced: its group is committed in the worker.
        """
        self._add(operation)
        self._due = True
        self._heavy |= heavy

    def defer(self, operation: Operation) -> None:
        """Have it stored with the next group, or a little later: nobody is promised anything by it.

        What a receiver has settled itself, or was sent settled, waits for no answer. Sharing the commit of
        the next post saves a client that sends one message at a time every second sync.
        """
        self._add(operation)
        if self._due:
            return
        if len(self._waiting) == 1:
            self._deferred_at = trio.current_time()
            self._timers.set(self._deferred_at + DEFER_S, self)
        elif len(self._waiting) >= DEFERRED_OPERATIONS:
            self._due = True
            self._wake()

    def _add(self, operation: Operation) -> None:
        try:
            kept = operation.kept_bytes()
            if kept:
                self._account_of(operation).hold(kept)
        except Exception as error:
            operation.refused(self._at_fault(operation, error))  # it was begun by who submits it
            return
        self._waiting.append(operation)

    def _account_of(self, operation: Operation) -> Account:
        connection = operation.asking_connection()
        return self._memory.own if connection is None else connection.account

    def _decided(self, operation: Operation) -> None:
        """An operation is stored or refused: what it kept in memory is given back."""
        kept = operation.kept_bytes()
        if kept:
            self._account_of(operation).give_back(kept)

    def commit_or_wake(self) -> None:
        """Commit what is due in the caller's own step, if it is little, the disk is quick and the writer is
        idle; else leave it to the writer's task.
        """
        if not self._due:
            return
        idle = bool(self._idle) and not (self._kept or self._alone or self._stopping or self._heavy)
        if not idle or not self._pace.inline(len(self._waiting)):
            self._wake()
            return
        try:
            group = self._make_group()
            if group is not None and group.stores:
                begun = self.counts.begun_at = time.perf_counter()
                self._store.commit()
                self._committed(time.perf_counter() - begun, group)
            if group is not None:
                self._finish(group)
        except StoreFull:
            assert group is not None
            self._take_back(group)
        except Exception as error:
            self.failure = self._failure(error)
        if self._due or self.failure is not None or self._store.checkpoint_due:
            self._wake()

    def lookup(self, call: Callable[[Store], T]) -> T:
        """The answer of `call(store)`, a Question or a function that asks several, at once: only between two
        commits, that is in `Operation.prepare`.
        """
        assert not self._in_worker, "a lookup while the worker has the store"
        return call(self._store)

    def read(self, call: Callable[[Store], None], failed: Callable[[Exception], None] | None = None) -> None:
        """Have `call(store)` run between two commits, in the loop's thread, after what was submitted before.
        `failed` is told what nobody expected it to raise.
        """
        self._reads.append((call, failed))
        self._wake()

    async def ask(self, question: Callable[[Store], T]) -> T:
        """The answer of `question(store)`, a Question or a function that asks several, between two commits;
        raises what it raises.
        """
        done = trio.Event()
        answers: list[T] = []
        errors: list[Exception] = []

        def look(store: Store) -> None:
            try:
                answers.append(question(store))
            except Exception as error:  # it is the asker's, and must not end the writer
                errors.append(error)
            done.set()

        def failed(error: Exception) -> None:
            errors.append(error)
            done.set()

        self.read(look, failed)
        await done.wait()
        if errors:
            raise errors[0]
        return answers[0]

    async def work(self, call: Callable[[Store], T]) -> T:
        """What `call(store)` gives, which may take its time: it is run in the worker between two commits;
        raises what it raises, and StoreFailed where the writer has ended. Not cancellable: it would go on.
        """
        done = trio.Event()
        answers: list[T] = []
        errors: list[Exception] = []

        def ended(error: Exception) -> None:
            errors.append(error)
            done.set()

        def run(store: Store) -> None:
            answers.append(call(store))

        if self.ended.is_set():
            raise StoreFailed("the broker ends")
        self._works.append((run, done.set, ended))
        self._wake()
        with trio.CancelScope(shield=True):
            await done.wait()
        if errors:
            raise errors[0]
        return answers[0]

    def begin_spool(self, most_bytes: int) -> Spool | None:
        """A file of the store for one large body; None where there is no place for one. Raises OSError."""
        ended = self.failure is not None or self.ended.is_set()
        return None if ended else self._store.begin_spool(most_bytes)

    def end_spool(self, spool: Spool, stored: bool) -> None:
        """What `begin_spool` gave is a message that is `stored`, or will be none."""
        if self.failure is None and not self.ended.is_set():
            self._store.end_spool(spool, stored)
        else:
            spool.close()  # the next start knows what of it is wanted

    @property
    def space(self) -> SpaceState:
        """The room on the disk."""
        return self._store.space

    @property
    def stuck_s(self) -> float:
        """For how long the commit in progress has been, in seconds; 0 where none is."""
        begun = self.counts.begun_at
        return time.perf_counter() - begun if begun else 0.0

    @property
    def caught_up(self) -> bool:
        """Whether nothing that was submitted waits for its group: what is done now overtakes none of it."""
        return not self._due

    @property
    def at_rest(self) -> bool:
        """Whether nothing waits, and the worker has nothing to do."""
        return not (self._waiting or self._kept or self._reads or self._works or self._in_worker)

    def stop(self) -> None:
        """Let `run` return once everything submitted was committed."""
        self._stopping = True
        self._wake()

    def wake(self) -> None:
        """A deadline has come: deferred operations may be due, or nothing came for a while."""
        if self._waiting:
            due_at = self._deferred_at + DEFER_S
            if trio.current_time() < due_at:  # those that set this deadline went with another group
                self._timers.set(due_at, self)
                return
            self._due = True
        self._wake()

    # The task

    async def run(self) -> None:
        """Commit groups until stopped. Raises StoreFailed when nobody knows what the store holds, or memory
        does not fit it.
        """
        thread = CommitThread()
        try:
            while True:
                if self.failure is not None:
                    raise self.failure
                if self._due:
                    await self._commit_group(thread)
                if self._store.checkpoint_due or trio.current_time() >= self._housekeeping_at:
                    await self._housekeeping(thread)
                if self._works:
                    await self._work(thread)
                if self._reads:
                    self._run_reads()
                    if self._reads:  # their time is over, or a page led to the next one: others have a turn
                        await trio.lowlevel.cancel_shielded_checkpoint()
                if not self._due and not self._reads and not self._works:
                    if not self._stopping:
                        await self._wait_for_work(thread)
                    elif self._waiting:
                        self._due = True
                    else:
                        if self._kept:
                            await self._commit_group(thread)  # the last chance to find room
                        return
        except Exception as error:
            self.failure = self._failure(error)
            raise self.failure from error
        finally:
            thread.stop()
            self.ended.set()
            for _, _, failed in self._works:
                failed(StoreFailed("the broker ends"))

    async def _commit_group(self, thread: CommitThread) -> None:
        group = self._make_group()
        if group is None:
            return
        if not group.stores:
            self._finish(group)
            return
        begun = self.counts.begun_at = time.perf_counter()

        def committed() -> None:
            self._in_worker = False
            self._committed(time.perf_counter() - begun, group)
            self._finish(group)

        try:
            await self._run_in(thread, self._store.commit, committed)
        except StoreFull:
            self._take_back(group)
        except Exception as error:
            raise self._failure(error) from error

    def _committed(self, seconds: float, group: Group) -> None:
        self._pace.committed(seconds)
        self.counts.committed(seconds, len(group.operations))
        self.watcher.committed(seconds, len(group.operations))

    async def _wait_for_work(self, thread: CommitThread) -> None:
        """Wait for an operation that is due, or until deferred ones are. When nothing comes, the store has
        time.

        The deadlines are in the timer table: a timeout scope of its own would cost each message as
        much as the engine does.
        """
        self._timers.set(
            (self._deferred_at + DEFER_S) if self._waiting else self._busy_at + IDLE_AFTER_S, self
        )
        await self._idle.park()
        if self._work_waits() or trio.current_time() < self._busy_at + IDLE_AFTER_S:
            return
        self._busy_at = trio.current_time()
        if self._kept:
            await self._housekeeping(thread)
            self._due = True
        while not self._work_waits():
            if not await self._housekeeping(thread) and not self._work_waits():
                await self._idle.park()

    def _work_waits(self) -> bool:
        return bool(
            self._due or self._waiting or self._reads or self._works or self._stopping or self.failure
        )

    async def _housekeeping(self, thread: CommitThread) -> bool:
        """A bounded step of the store's own work, in the worker; True if more waits."""
        begun = trio.current_time()
        self._housekeeping_at = begun + HOUSEKEEPING_EVERY_S
        now = self._clock.now_ms() / 1_000
        more = False

        def step() -> None:
            nonlocal more
            more = self._store.idle(now)

        try:
            await self._run_in(thread, step)
        except StoreFailed:
            raise
        except Exception:
            self._log.exception("housekeeping.failed")
            return False
        if more:
            ended = trio.current_time()
            self._housekeeping_at = ended + max(HOUSEKEEPING_SOON_S, HOUSEKEEPING_PART * (ended - begun))
        self._count_store()
        return more

    async def _work(self, thread: CommitThread) -> None:
        """One piece of work; others have their turn before the next one."""
        work, done, failed = self._works.popleft()
        try:
            await self._run_in(thread, partial(work, self._store))
        except Exception as error:  # it is the asker's; a store that failed says so at the next commit
            failed(error)
        else:
            done()

    def _count_store(self) -> None:
        """Count as memory what only the store knows of."""
        more = self._store.kept_bytes - self._store_bytes
        if more:
            self._store_bytes += more
            self._memory.own.change(more)

    async def _run_in(
        self, thread: CommitThread, call: Callable[[], None], then: Callable[[], None] | None = None
    ) -> None:
        self._in_worker = True
        try:
            await thread.run(call, then)
        finally:
            self._in_worker = False

    def _wake(self) -> None:
        if self._idle:
            self._idle.unpark()

    def _run_reads(self) -> None:
        """Run as many reads as there is time for, at least one; those that they lead to wait."""
        begun = time.perf_counter()
        most_s = self._pace.reads_s(self._due)
        for _ in range(len(self._reads)):
            read, failed = self._reads.popleft()
            try:
                read(self._store)
            except StoreFailed:
                raise
            except Exception as error:
                self._log.exception("read.failed")
                if failed is not None:
                    failed(error)
            if time.perf_counter() - begun >= most_s:
                return

    # One group

    def _next_operations(self) -> list[Operation]:
        """The operations of the next group, out of what waits."""
        if self._alone:
            self._alone -= 1
            operations = [self._waiting.pop(0)]
        else:
            operations = [*self._kept, *self._waiting] if self._kept else self._waiting
            self._kept, self._waiting = [], []
        self._due = bool(self._waiting)  # those behind one that is alone
        self._heavy = self._heavy and self._due
        self._busy_at = trio.current_time()
        return operations

    def _make_group(self) -> Group | None:
        """Judge the next operations, and have the store apply what they say. None: it could not be, and all
        of it waits again.
        """
        operations = self._next_operations()
        group = Group(operations)
        if self._kept and operations[0].waits_for_space():
            self._kept.extend(operations)  # one by one: there was no room for the one before it either
            return None
        now_ms = self._clock.now_ms()
        for _ in range(ROUNDS):
            units = self._prepare(group, now_ms)
            group.stores = any(units)
            if not group.stores:
                break
            try:
                errors = self._apply(units)
            except StoreFailed:
                raise
            except Exception as error:
                group.undo()
                self._one_by_one(group, error)
                return None
            if not any(errors):
                break
            self._store.abandon()
            refused = [pair for pair in zip(group.prepared, errors, strict=True) if pair[1] is not None]
            group.undo()
            self._leave_out(group, refused)
        else:
            self._leave_alone(group)
        self.operations_begun += len(group.operations)
        return group

    def _apply(self, units: list[Unit]) -> list[Exception | None]:
        """With what time it is, once in a while: no group is stored for that alone."""
        time_kept = self._clock.to_be_kept()
        if time_kept is None:
            return self._store.apply(units)
        return self._store.apply([[time_kept], *units])[1:]

    def _prepare(self, group: Group, now_ms: int) -> list[Unit]:
        """The verbs of each operation that is not refused; what can't be judged yet goes back."""
        units: list[Unit] = []
        errors = group.errors
        prepared = group.prepared = []
        for at, operation in enumerate(group.operations):
            if errors and operation in errors:
                continue
            prepared.append(operation)
            try:
                units.append(operation.prepare(now_ms))
                continue
            except StoreFailed:
                raise
            except (Refused, StoreError) as error:
                errors[operation] = error
            except NotYet as early:
                if at:
                    prepared.pop().undo()
                    self._put_back(group.operations[at:])
                    group.operations = group.operations[:at]
                    break
                errors[operation] = early.refusal or self._at_fault(operation, early)
            except Exception as error:
                errors[operation] = self._at_fault(operation, error)
            prepared.pop().undo()
        return units

    def _leave_out(self, group: Group, refused: list[tuple[Operation, Exception | None]]) -> None:
        """The store refused some: they are taken in parts, wait for room, or are told. Those behind the first
        one are judged again, if that may make a difference: what they were judged by did not happen.
        """
        first = group.operations.index(refused[0][0])
        for operation in group.operations[first + 1 :]:
            if operation in group.errors and not isinstance(group.errors[operation], OperationFault):
                del group.errors[operation]
        for operation, error in refused:
            assert error is not None
            if operation is not refused[0][0] and operation.judges():
                continue
            parts = operation.parts()
            at = group.operations.index(operation)
            if len(parts) > 1:
                group.operations = [*group.operations[:at], *parts, *group.operations[at + 1 :]]
            elif isinstance(error, StoreFull) and operation.waits_for_space():
                group.operations = [*group.operations[:at], *group.operations[at + 1 :]]
                self._kept.append(operation)
            else:
                group.errors[operation] = error

    def _leave_alone(self, group: Group) -> None:
        """Make a group of each operation that has no answer yet."""
        rest = [operation for operation in group.operations if operation not in group.errors]
        group.operations = [operation for operation in group.operations if operation in group.errors]
        group.stores = False
        self._put_back(rest)
        self._alone += len(rest)

    def _one_by_one(self, group: Group, error: Exception) -> None:
        """The store could not do the group. Each operation is tried for itself; one that was alone has its
        answer.
        """
        operations = group.operations
        parts = operations[0].parts() if len(operations) == 1 else operations
        if len(parts) > 1:
            self._put_back(list(parts))
            self._alone += len(parts)
            return
        operation = operations[0]
        if isinstance(error, StoreFull) and operation.waits_for_space():
            self._kept.append(operation)
            return
        if not isinstance(error, StoreError):
            error = self._at_fault(operation, error)
        self._refuse(operation, error)

    def _take_back(self, group: Group) -> None:
        """The disk had no room for the commit: nothing happened."""
        self.counts.begun_at = 0.0
        group.undo()
        self._one_by_one(group, StoreFull("the disk is full"))

    def _put_back(self, operations: list[Operation]) -> None:
        """Make these operations the first of the next group."""
        self._waiting = [*operations, *self._waiting]
        self._due = True

    def _finish(self, group: Group) -> None:
        """The group is stored: tell its operations. Raises StoreFailed where memory does not follow."""
        errors = group.errors
        own = self._memory.own
        for operation in group.operations:
            if errors and operation in errors:
                self._refuse(operation, errors[operation])
                continue
            try:
                kept = operation.kept_bytes()
                if kept:  # as `_decided`, without a call more
                    connection = operation.asking_connection()
                    (own if connection is None else connection.account).give_back(kept)
                operation.stored()
            except StoreFailed:
                raise
            except Exception as error:
                raise self._failure(error) from error
        self.watcher.told()
        self._count_store()
        if self.after_commit is not None:
            try:
                self.after_commit(self._store)
            except StoreFailed:
                raise
            except Exception:
                self._log.exception("after_commit.failed")

    def _refuse(self, operation: Operation, error: Exception) -> None:
        self._decided(operation)
        try:
            operation.refused(error)
        except Exception as fault:
            self._at_fault(operation, fault)
            try:
                operation.refused(fault)  # what it kept has to be free, also where telling it went wrong
            except Exception as again:
                self._log.error("operation.fault", operation=type(operation).__name__, exc_info=again)

    def _at_fault(self, operation: Operation, error: Exception) -> OperationFault:
        """What nobody expected, in what is done for one operation: its connection ends, no other one."""
        name = type(operation).__name__
        self._log.error("operation.fault", operation=name, exc_info=error)
        connection = operation.asking_connection()
        if connection is not None:
            connection.fail(error)
        return OperationFault(f"a fault of the broker in {name}; see its log")

    def _failure(self, error: Exception) -> StoreFailed:
        """Why the broker ends: what the disk holds is not known, or memory does not fit it any more."""
        if isinstance(error, StoreFailed):
            return error
        self._log.error("writer.failed", exc_info=error)
        return StoreFailed(
            f"memory does not fit the store any more, recovery at the next start decides: {error!r}"
        )
