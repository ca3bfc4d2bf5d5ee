"""A store whose commits can be held, which can be full, and which can fail: the seam below the broker.

A commit runs in a worker thread, where it can wait while the broker goes on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import trio

from amqp_broker.operations.writer import CommitThread
from amqp_broker.persistence import Advance, Hold, MemoryStore, Post, SpaceState, Store, StoreFull, Unit, Verb
from amqp_broker.testing.clock import HELD

HOLD_TIMEOUT_S: Final = 60.0  # of real time: a commit that a test forgot must not hang the run for ever
SLOW_COMMIT_S: Final = 0.05  # what a commit seems to take, so that the broker never makes it in its own loop
FULL: Final = "scripted: the disk is full"
STEPS_MAX: Final = 100_000  # of all tasks between two moments of rest: beyond it the broker spins


DECOY: Final = b"decoy"
"""The end of a message for which there is always room: what makes a commit that can be held."""


def _messages(unit: Unit) -> int:
    return sum(len(verb.records) for verb in unit if isinstance(verb, Post))


def _wants_room(verb: Verb) -> bool:
    if isinstance(verb, Post):
        return not all(record.body.endswith(DECOY) for record in verb.records)
    return isinstance(verb, Hold | Advance)


class Spinning(BaseException):
    """The broker takes steps for ever and comes to no rest."""


class HeldStore:
    """A `Store` around another one; what is not written here goes to that one as it is."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.in_memory = isinstance(store, MemoryStore)
        self._loop = threading.get_ident()
        self._gate = threading.Event()
        self._gate.set()
        self._applied = False
        self.room = "enough"
        """What the disk has room for: `enough`; or nothing new, and then `units` are refused each for itself,
        `groups` or `commits` as a whole unless they are one unit; or `nothing`; or for units of one message.
        """
        self.slow = False
        self.spinning = False
        self.on_apply: Callable[[Sequence[Unit]], None] | None = None
        self._fails = False
        self._skew_s = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    # What the broker calls

    def apply(self, units: Sequence[Unit]) -> list[Exception | None]:
        """As the real store, unless it is full or a test looks at the group."""
        self._check()
        if self.on_apply is not None:
            self.on_apply(units)
        if self.room == "one":
            refused = [_messages(unit) > 1 for unit in units]
        else:
            full = self.room != "enough"
            refused = [full and any(_wants_room(verb) for verb in unit) for unit in units]
        together = len(units) > 1 and any(refused)
        if self.room == "nothing" and any(units) or self.room == "groups" and together:
            raise StoreFull(FULL)
        if self.room == "commits" and together:
            self._fails = True
            refused = [False] * len(units)
        answers = iter(self._store.apply([unit for unit, no in zip(units, refused, strict=True) if not no]))
        errors = [StoreFull(FULL) if no else next(answers) for no in refused]
        self._applied = True
        return errors

    def commit(self) -> None:
        """As the real store, once nobody holds commits."""
        here = threading.get_ident() == self._loop
        if not here:
            assert self._gate.wait(HOLD_TIMEOUT_S), "a commit was held for ever"
        failed, self._fails = self._fails, False
        if failed:
            self._store.abandon()
        else:
            self._store.commit()
        if self.slow:
            self._skew_s += SLOW_COMMIT_S
        self._applied = False
        if failed:
            raise StoreFull(FULL)

    def abandon(self) -> None:
        """As the real store."""
        self._store.abandon()
        self._applied = False

    def idle(self, now: float) -> bool:
        """As the real store."""
        self._check()
        return self._store.idle(now)

    @property
    def checkpoint_due(self) -> bool:
        """As the real store; asked by the task that is about to have a worker."""
        self._check()
        return self._store.checkpoint_due

    @property
    def space(self) -> SpaceState:
        """As the real store, but refusing while it is full."""
        found = self._store.space
        return found if self.room == "enough" else SpaceState(0, found.low_water_bytes, True, False)

    # What a test calls

    @property
    def holding(self) -> bool:
        """Commits that a worker makes wait, now or when one comes."""
        return not self._gate.is_set()

    @property
    def held(self) -> bool:
        """A commit is under way and waits for `let_go`."""
        return self.holding and self._applied and bool(CommitThread.at_work)

    def hold(self) -> None:
        """The next commit that a worker makes waits."""
        self._gate.clear()
        HELD.add(self)

    def let_go(self) -> None:
        """Commits go on."""
        self._gate.set()
        HELD.discard(self)

    def perf_counter(self) -> float:
        """`time.perf_counter` for a broker on a disk as slow as `slow` says."""
        return _perf_counter() + self._skew_s

    def _check(self) -> None:
        if self.spinning:
            raise Spinning(f"more than {STEPS_MAX} steps without a rest")


_perf_counter: Final = time.perf_counter


class Watch(trio.abc.Instrument):
    """Counts steps between two moments of rest, and says when they are too many."""

    def __init__(self, too_many: Callable[[], object]) -> None:
        self._too_many = too_many
        self.steps = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Any task of the loop."""
        self.steps += 1
        if self.steps == STEPS_MAX:
            self._too_many()
