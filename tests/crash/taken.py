"""What one queue gave in all lives of a broker to those who take from it, and what was said of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from tests.crash.history import Notes

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
    """Failed deliveries that the broker has confirmed; `asked` is how many it may have heard of."""
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

    def came(self, row: str, life: int, failures: int = 0) -> None:
        """It was received; its delivery-count says how many deliveries failed."""
        self.notes.record(self.queue, "came", row=row, life=life, count=failures)
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
        if not known.failures <= failures <= known.asked:
            most = f" to {known.asked}" if known.asked > known.failures else ""
            self._wrong(row, f"came with delivery-count {failures}, expected {known.failures}{most}")
        known.life, known.held, known.leaves = life, True, False
        known.failures = known.asked = failures

    def leaving(self, row: str) -> None:
        """An outcome is about to be sent that takes it out of its queue."""
        self.notes.record(self.queue, "leaving", row=row)
        self.rows[row].leaves = True

    def failing(self, row: str) -> None:
        """The outcome is about to be sent that its delivery failed, which is not its last."""
        self.notes.record(self.queue, "failing", row=row)
        self.rows[row].asked += 1

    def confirmed(self, row: str, delay_s: float = 0.0) -> None:
        """The broker has settled what was said of it; after `delay_s` it may come again where it failed."""
        self.notes.record(self.queue, "confirmed", row=row)
        known = self.rows[row]
        known.held = False
        if known.leaves:
            known.gone = True
        else:
            known.failures += 1
            known.not_before = time.monotonic() + delay_s

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

    def _wrong(self, row: str, what: str) -> None:
        self.complaints.append(f"{self.queue}: {row} {what}")
