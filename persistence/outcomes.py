"""Outcomes of transactions on disk: which were committed (presumed abort: the others are not kept).

`discharge_generation` has a row for each generation (generations.py); `discharge` has the outcomes, by
generation and txn-id. A txn-id is 16 random bytes, and is looked for only when a client lost an answer.

Why not a key of the txn-id alone: each random key falls on a page of its own, and a commit writes whole
pages. Measured with a million outcomes in the table, pages of 8 KiB, synced commits of 20 discharges; a
question is the time of one lookup:

    design                                    WAL for each    CPU for each    question
    txn-id as primary key, index on time           9,014 B           26 us     0.01 ms
    rowid table, index on txn-id                   9,834 B           30 us     0.01 ms
    rowid table, index on a 32-bit hash            9,411 B           31 us     0.01 ms
    rowid table, no index                            497 B            8 us     53 ms
    generations of 1024                            1,624 B           11 us     1.8 ms
    generations of 2048                            2,456 B           13 us     0.9 ms
    generations of 4096                            3,726 B           15 us     0.5 ms

Any index in the order of random keys costs 90 MB of WAL a second at 10,000 discharges, and as much again at
the checkpoints; a table without one takes 50 ms of the loop for a question that any client may ask. Inside a
generation keys are random too, but it is ten pages, which the commits before have just written; a question is
one search in each of five hundred generations; and to forget the oldest is to delete one range of neighbours
(0.9 ms for 4,096; 6 to 36 ms with an index).
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from amqp_broker.persistence.errors import OutcomesDamaged, StoreCorrupt
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.generations import GENERATION_OUTCOMES, Generations, Placement
from amqp_broker.persistence.questions import DischargedAt
from amqp_broker.persistence.sqlite_library import Parameters
from amqp_broker.persistence.table import SqlTable, blobs, integers
from amqp_broker.persistence.unit_of_work import UnitOfWork
from amqp_broker.persistence.verbs import Discharged

GENERATION_PAGES: Final = 16  # about, of 8 KiB: no commit writes more for one generation
_OUTCOMES_ON_A_PAGE: Final = GENERATION_OUTCOMES // GENERATION_PAGES

GENERATION: Final = SqlTable(
    "discharge_generation",
    2,
    ("first_number",),
    integers("first_number", "opened_at_ms"),
    lambda first_number, opened_at_ms: (first_number, opened_at_ms),
)
OUTCOME: Final = SqlTable(
    "discharge",
    2,
    ("generation", "txn_id"),
    [*integers("generation", "at_ms"), *blobs("txn_id")],
    lambda generation, at_ms, txn_id: at_ms,
)

_GENERATIONS: Final = GENERATION.select("ORDER BY first_number")
_COUNT: Final = "SELECT count(*) FROM discharge WHERE generation=?"
_FIND: Final = (
    f"SELECT {OUTCOME.selected}, g.opened_at_ms "
    "FROM discharge_generation g CROSS JOIN discharge ON generation=g.first_number AND txn_id=? "
    "ORDER BY g.first_number DESC LIMIT 1"
)
_FORGET: Final = "DELETE FROM discharge WHERE generation<?"
_FORGET_GENERATIONS: Final = "DELETE FROM discharge_generation WHERE first_number<?"


class Outcomes:
    """The two tables; memory follows them with `load`, `keep` and `forget_step`."""

    def __init__(self, unit: UnitOfWork, keep_ms: int, keep_count: int) -> None:
        self._unit = unit
        self._generations = Generations(keep_ms, keep_count)

    def load(self) -> None:
        """Raises StoreCorrupt, StoreFailed. A damaged row is left out: the one before it takes its place."""
        rows = self._unit.query(_GENERATIONS)
        opened = [GENERATION.made(row) for row in rows if GENERATION.is_sound(row)]
        newest_count = 0
        if opened:
            ((newest_count,),) = self._unit.query(_COUNT, (opened[-1][0],))
        self._generations.load(opened, newest_count)

    def write(self, discharges: list[Discharged]) -> Placement:
        """Run inside the transaction of their group. Raises as `UnitOfWork.execute`."""
        placement = self._generations.place(discharges)
        if placement.opened:
            # A damaged row may stand for a generation that exists: REPLACE mends it.
            self._unit.execute_many(GENERATION.replace, [GENERATION.row(*one) for one in placement.opened])
        fault_point("discharge.before_record")
        rows: list[Parameters] = []
        for number, members in placement.members.items():
            members.sort(key=attrgetter("txn_id"))  # neighbours on a page are written one after the other
            rows.extend([OUTCOME.row(number, verb.at_ms, verb.txn_id) for verb in members])
        self._unit.execute_many(OUTCOME.insert, rows)
        fault_point("discharge.after_record")
        return placement

    def keep(self, placement: Placement) -> int:
        """The outcomes are durable: memory follows. Returns about how many pages they took."""
        self._generations.keep(placement)
        return sum([min(len(members), GENERATION_PAGES) for members in placement.members.values()])

    def find(self, asked: DischargedAt) -> int | None:
        """The answer. Raises OutcomesDamaged, StoreFailed."""
        try:
            rows = self._unit.query(_FIND, (asked.txn_id,))
        except StoreCorrupt as error:
            raise OutcomesDamaged(f"the stored outcomes cannot be read: {error}") from error
        if not rows:
            return None
        *outcome, opened_at_ms = rows[0]
        # The id is what was asked for, so it was committed; a time that is damaged is told by its generation.
        at_ms = OUTCOME.value(tuple(outcome))
        return int(opened_at_ms if at_ms is None else at_ms)

    def forget_step(self, now: float) -> tuple[int, bool]:
        """Forget some of what is too old or too much: about how many pages that took, and whether more waits.

        What is damaged stays, for verification. Raises StoreFull (nothing happened), StoreFailed.
        """
        generations = self._generations.forgettable(now)
        if not generations:
            return 0, False
        number = self._generations.number_after(generations)
        try:
            forgotten = self._forget_below(number)
        except StoreCorrupt:
            forgotten = 0
        self._generations.forget(generations)
        return forgotten // _OUTCOMES_ON_A_PAGE + 2, self._generations.forgettable(now) > 0

    def _forget_below(self, number: int) -> int:
        self._unit.begin()
        forgotten = self._unit.execute(_FORGET, (number,))
        self._unit.execute(_FORGET_GENERATIONS, (number,))
        fault_point("forget.before_commit")
        self._unit.commit()
        return forgotten
