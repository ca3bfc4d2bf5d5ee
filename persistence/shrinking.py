"""Giving the room of what was deleted back to the file system, in bounded units of work.

SQLite keeps the pages of what was deleted for what comes next: a file that was large once stays large. In the
files that this version makes, pages at the end can be moved to free places before them (auto_vacuum =
INCREMENTAL). Costs of it for who posts and retires: 0 to 3 % of the CPU with bodies of 100 B; with bodies of
10 KiB in groups of 300, it is 15 to 30 % less (a chain of pages is freed without reading it).
"""

from __future__ import annotations

from typing import Final

from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.unit_of_work import UnitOfWork

INCREMENTAL: Final = 2  # what PRAGMA auto_vacuum reads back
IDLE_PAGES: Final = 64  # moved in one step of an idle store, about a millisecond
SHRINK_BYTES: Final = 64 * 1024 * 1024  # less than this is not worth it: it will be wanted again
BEGIN_PART: Final = 2  # an idle store begins when so much of the file is free (a half) ...
END_PART: Final = 8  # ... and ends at an eighth: what it gave back is not wanted at once


class Shrinker:
    """Makes the file of an idle store smaller, step by step."""

    def __init__(self, unit: UnitOfWork, page_size: int) -> None:
        self._unit = unit
        self._least = SHRINK_BYTES // page_size
        self._possible = is_incremental(unit)
        self._begun = False

    def step(self) -> int:
        """The number of pages given back; 0 if there is nothing to do. Raises StoreFull (nothing happened),
        StoreCorrupt, StoreFailed.
        """
        if not self._possible:
            return 0
        free = number_of(self._unit, "freelist_count")
        pages = number_of(self._unit, "page_count") if free > self._least else 0
        self._begun = free > self._least and free * (END_PART if self._begun else BEGIN_PART) > pages
        return give_back(self._unit, IDLE_PAGES) if self._begun else 0


def is_incremental(unit: UnitOfWork) -> bool:
    """Can pages of this file be moved?"""
    return number_of(unit, "auto_vacuum") == INCREMENTAL


def give_back(unit: UnitOfWork, pages: int) -> int:
    """One unit of work that moves so many pages at most; how many it gave back. Raises as `UnitOfWork`."""
    before = number_of(unit, "freelist_count")
    unit.begin()
    unit.execute(f"PRAGMA incremental_vacuum({pages})")
    fault_point("compact.step")
    unit.commit()
    return before - number_of(unit, "freelist_count")


def number_of(unit: UnitOfWork, pragma: str) -> int:
    """What a PRAGMA answers with one number."""
    ((value,),) = unit.query(f"PRAGMA {pragma}")
    return int(value)
