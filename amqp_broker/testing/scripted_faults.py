"""Scripted faults: what can go wrong between a broker, its disk and its clients, told beforehand.

    faults = ScriptedFaults()
    faults.reset_after_commit(2)                  # the client never learns that its second commit happened
    faults.drop(Disposition)                      # one disposition of the broker gets lost
    with running_broker(config, faults=faults) as broker:
        ...

"The n-th" counts from 1 over all connections, and from the moment when the fault is scripted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import trio

from amqp_broker.persistence import Store, StoreFailed, StoreFull
from amqp_broker.testing.clock import HELD
from amqp_broker.testing.traces import FrameTrace

if TYPE_CHECKING:
    from amqp_broker.testing.faulty_stream import FaultyStream

HOLD_TIMEOUT_S: Final = 60.0  # a commit that a test forgot to let go must not hang the run for ever
RESET_TIMEOUT_S: Final = 10.0


class Countdown:
    """Fires from the n-th time on, `count` times."""

    def __init__(self, nth: int, count: int = 1) -> None:
        assert nth >= 1 and count >= 1, "counting starts at 1"
        self._before = nth - 1
        self._left = count

    def fires(self) -> bool:
        """Count one; whether it is hit."""
        if self._before:
            self._before -= 1
            return False
        if self._left:
            self._left -= 1
            return True
        return False


class ScriptedFaults:
    """An implementation of `amqp_broker.faults.Faults`; its methods may be called from any thread, at any
    time.
    """

    def __init__(self, trace: FrameTrace | None = None) -> None:
        self.trace = trace
        self.frame_drops: list[tuple[type, Countdown]] = []
        self.frame_delays: list[tuple[type, Countdown, float]] = []
        self.detaches: list[tuple[Countdown, str, str]] = []
        self.arrival_resets: list[tuple[type, Countdown]] = []
        self.credit_withheld = False
        self.commits = 0
        self.frames_lost = 0
        self._commit_errors: list[tuple[Countdown, bool, Exception]] = []
        self._resets: list[tuple[Countdown, bool]] = []
        self._gate = threading.Event()
        self._gate.set()
        self._streams: set[FaultyStream] = set()

    # The script

    def fail_commit(self, nth: int = 1, *, happened: bool = False) -> None:
        """The n-th commit fails as an I/O error does; with `happened` its work is stored nevertheless."""
        error = StoreFailed(f"scripted: commit failed, and it did {'' if happened else 'not '}happen")
        self._commit_errors.append((Countdown(nth), happened, error))

    def refuse_commit(self, nth: int = 1, count: int = 1) -> None:
        """The n-th commit finds the disk full: nothing of it happened."""
        self._commit_errors.append((Countdown(nth, count), False, StoreFull("scripted: the disk is full")))

    @contextmanager
    def held_commits(self) -> Iterator[None]:
        """Inside the block commits wait; they go on when it ends."""
        self._gate.clear()
        HELD.add(self)
        try:
            yield
        finally:
            HELD.discard(self)
            self._gate.set()

    def reset_before_commit(self, nth: int = 1) -> None:
        """All connections are reset right before the n-th commit, which then happens."""
        self._resets.append((Countdown(nth), False))

    def reset_after_commit(self, nth: int = 1) -> None:
        """All connections are reset right after the n-th commit, before anybody is told."""
        self._resets.append((Countdown(nth), True))

    def reset_connections(self) -> None:
        """All connections are reset now; returns when they are."""
        for stream in list(self._streams):
            stream.reset_from_any_thread(RESET_TIMEOUT_S)

    def reset_at(self, performative: type, nth: int = 1) -> None:
        """The connection is reset when the client's n-th frame of this class arrives; the broker never sees
        it.
        """
        self.arrival_resets.append((performative, Countdown(nth)))

    def drop(self, performative: type, nth: int = 1, count: int = 1) -> None:
        """The broker's n-th frame of this class (and `count - 1` after it) gets lost."""
        self.frame_drops.append((performative, Countdown(nth, count)))

    def delay(self, performative: type, seconds: float, nth: int = 1, count: int = 1) -> None:
        """The broker's n-th frame of this class waits, and everything behind it on its connection."""
        self.frame_delays.append((performative, Countdown(nth, count), seconds))

    def detach_at(self, nth: int = 1, condition: str = "amqp:internal-error", text: str = "scripted") -> None:
        """The link of the client's n-th transfer is detached with this error; the broker does have the
        transfer.
        """
        self.detaches.append((Countdown(nth), condition, text))

    def grant_no_credit(self, withheld: bool = True) -> None:
        """Every credit that the broker gives from now on reads 0."""
        self.credit_withheld = withheld

    # amqp_broker.faults.Faults

    def wrap_store(self, store: Store) -> Store:
        """A store whose commits go through the script."""
        from amqp_broker.testing.faulty_store import FaultyStore

        return FaultyStore(store, self)

    def wrap_stream(self, stream: trio.abc.Stream) -> trio.abc.Stream:
        """A stream whose frames go through the script."""
        from amqp_broker.testing.faulty_stream import FaultyStream

        faulty = FaultyStream(stream, self)
        self._streams.add(faulty)
        return faulty

    # What the wrappers ask

    def forget(self, stream: FaultyStream) -> None:
        """A connection is over."""
        self._streams.discard(stream)

    def before_commit(self) -> tuple[bool, Exception | None]:
        """(whether the commit is to happen, what to raise after it).  Waits while commits are held."""
        self._gate.wait(HOLD_TIMEOUT_S)
        self.commits += 1
        self._reset_where_due(after=False)
        for countdown, happened, error in self._commit_errors:
            if countdown.fires():
                return happened, error
        return True, None

    def after_commit(self) -> None:
        """The commit returned; nobody has been told yet."""
        self._reset_where_due(after=True)

    def _reset_where_due(self, *, after: bool) -> None:
        due = [countdown.fires() for countdown, is_after in self._resets if is_after == after]
        if any(due):
            self.reset_connections()
