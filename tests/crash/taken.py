"""What one queue gave in all lives of a broker to those who take from it, and what was said of it."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Final

from tests.crash.history import Notes
from tests.promises.fates import Fate

AFTER: Final = 0.002
"""Seconds by which two clocks of one machine may differ."""


@dataclass(slots=True)
class _Row:
    life: int
    held: bool = True
    leaves: bool = False
    """An outcome left that may have taken it out of its queue."""
    gone: bool = False
    """The broker has confirmed that."""
    failures: int = 0
    """Failed deliveries that the broker has confirmed; of `asked` ones it may have heard."""
    asked: int = 0
    not_before: float = 0.0


@dataclass(slots=True)
class Taken:
    """Each row comes once, unless it was given back or its outcome was never confirmed. What is wrong is in
    `complaints`; `rows` has all in the order in which each came first.
    """

    queue: str
    notes: Notes
    complaints: list[str] = field(default_factory=list)
    rows: dict[str, _Row] = field(default_factory=dict)
    discharging: set[tuple[str, int]] = field(default_factory=set)
    """Rows with the life in which the commit was sent of a transaction that has their outcome: its answer is
    not there.
    """
    due: dict[str, float] = field(default_factory=dict)
    """When each row may come that was sent for later, by the monotonic clock."""

    def came(self, row: str, life: int, failures: int = 0) -> None:
        """It was received; its delivery-count says how many deliveries failed."""
        self.notes.record(self.queue, "came", row=row, life=life, count=failures)
        early = self.due.get(row, 0.0) - time.monotonic()
        if early > AFTER:
            self._wrong(row, f"came {early:.3f} s before its time")
        known = self.rows.get(row)
        if known is None:
            known = self.rows[row] = _Row(life)
        elif known.gone:
            self._wrong(row, "came back after the broker had confirmed that it left")
        elif known.held and known.life == life:
            self._wrong(row, "was received twice in one life")
        elif known.life == life and time.monotonic() + AFTER < known.not_before:
            early = known.not_before - time.monotonic()
            self._wrong(row, f"failed, and came {early:.3f} s before its delay was over")
        least = known.asked if known.life == life else known.failures
        if not least <= failures <= known.asked:
            expected = f"{least} to {known.asked}" if known.asked > least else least
            self._wrong(row, f"came with delivery-count {failures}, expected {expected}")
        if known.life != life:
            known.failures = known.asked = failures
        known.life, known.held, known.leaves = life, True, False

    def leaving(self, row: str) -> None:
        """An outcome is about to be sent that takes it out of its queue."""
        self.notes.record(self.queue, "leaving", row=row)
        self.rows[row].leaves = True

    def confirmed(self, row: str) -> None:
        """The broker has settled that."""
        self.notes.record(self.queue, "confirmed", row=row)
        self.rows[row].held, self.rows[row].gone = False, True

    def failing(self, row: str, delay_s: float) -> None:
        """The outcome is about to be sent that its delivery failed, which is not its last: it comes again,
        but in this life not before `delay_s` are over.
        """
        self.notes.record(self.queue, "failing", row=row)
        known = self.rows[row]
        known.held = False
        known.asked += 1
        known.not_before = time.monotonic() + delay_s

    def failed(self, row: str) -> None:
        """The broker has settled that: from now on each life counts it."""
        self.notes.record(self.queue, "failed", row=row)
        self.rows[row].failures += 1

    def lost_discharges(self, elsewhere: Container[str]) -> dict[int, list[Fate]]:
        """By life, how these commits ended: what came in a later life, or expired and is `elsewhere`, was not
        taken.
        """
        lost: dict[int, list[Fate]] = defaultdict(list)
        for row, life in self.discharging:
            taken = self.rows[row].life == life and row not in elsewhere
            lost[life].append(Fate.COMMITTED if taken else Fate.ABSENT)
        return lost

    def returned(self, row: str) -> None:
        """Its link ended, or released it."""
        self.notes.record(self.queue, "returned", row=row)
        self.rows[row].held = False

    def all_came(self) -> list[str]:
        """The rows that came, in the order in which each came first."""
        return [*self.rows]

    def left(self) -> list[str]:
        """Of these, the ones that an outcome may have taken out the last time that they came."""
        return [row for row, known in self.rows.items() if known.leaves]

    def absence_of(self, row: str) -> Fate:
        """Whether a row that counts, and that nobody has to take, is elsewhere: COMMITTED if it has to be."""
        known = self.rows.get(row)
        if known is None or not known.leaves:
            return Fate.COMMITTED
        return Fate.ABSENT if known.gone else Fate.UNKNOWN

    def _wrong(self, row: str, what: str) -> None:
        self.complaints.append(f"{self.queue}: {row} {what}")
