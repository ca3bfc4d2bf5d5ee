"""Termini on disk, their deliveries that are not settled, and what they hold; memory has none of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.half_changes import HalfChanges
from amqp_broker.persistence.questions import HeldBy, Termini, UnsettledOf
from amqp_broker.persistence.table import INTEGER, Column, SqlTable, blobs, integers, texts
from amqp_broker.persistence.termini import StoredTerminus
from amqp_broker.persistence.unit_of_work import UnitOfWork

TERMINUS: Final = SqlTable(
    "terminus",
    7,
    ("number",),
    [
        *integers("number", "timeout_s", "ends_at_ms"),
        *texts("user", "container", "name", "expiry_policy"),
        Column("sends", INTEGER, 8),
        Column("attachments", INTEGER, 8),
    ],
    StoredTerminus,
    measured=3,
)


def _unsettled(number: int, delivery_tag: bytes, state: bytes) -> tuple[bytes, bytes]:
    return delivery_tag, state


UNSETTLED: Final = SqlTable(
    "unsettled",
    7,
    ("number", "delivery_tag"),
    [*integers("number"), *blobs("delivery_tag", "state")],
    _unsettled,
    measured=1,
)


def _held(queue_id: int, offset: int, number: int, delivery_tag: bytes) -> tuple[bytes, tuple[int, int]]:
    return delivery_tag, (queue_id, offset)


HELD: Final = SqlTable(
    "held",
    8,
    ("queue_id", "offset"),
    [*integers("queue_id", "offset", "number"), *blobs("delivery_tag")],
    _held,
    measured=1,
)

_ALL: Final = TERMINUS.select("ORDER BY number")
_OF: Final = UNSETTLED.select("WHERE number=? ORDER BY delivery_tag")
_FORGET: Final = "DELETE FROM terminus WHERE number=?"
_FORGET_ALL_OF: Final = "DELETE FROM unsettled WHERE number=?"
_FORGET_ONE: Final = "DELETE FROM unsettled WHERE number=? AND delivery_tag=?"
_HELD_BY: Final = HELD.select("WHERE number=? ORDER BY queue_id, offset")
_FORGET_HELD_BY: Final = "DELETE FROM held WHERE number=?"
_FORGET_HELD: Final = "DELETE FROM held WHERE queue_id=? AND offset=? AND number=?"
_FORGET_HELD_OF: Final = "DELETE FROM held WHERE queue_id=?"


class TerminusTable:
    """The tables `terminus`, `unsettled` and `held`."""

    def __init__(self, unit: UnitOfWork) -> None:
        self._unit = unit

    def all(self, _: Termini) -> list[StoredTerminus]:
        """The answer. Raises RowDamaged, StoreFailed."""
        found = map(TERMINUS.value, TERMINUS.query(self._unit, _ALL))
        return [terminus for terminus in found if terminus is not None]

    def unsettled(self, asked: UnsettledOf) -> dict[bytes, bytes]:
        """The answer. Raises RowDamaged, StoreFailed."""
        found = map(UNSETTLED.value, UNSETTLED.query(self._unit, _OF, (asked.number,)))
        return dict([pair for pair in found if pair is not None])

    def held(self, asked: HeldBy) -> dict[bytes, tuple[int, int]]:
        """The answer. Raises RowDamaged, StoreFailed."""
        found = map(HELD.value, HELD.query(self._unit, _HELD_BY, (asked.number,)))
        return dict([pair for pair in found if pair is not None])

    def forget_queues(self, queue_ids: Iterable[int]) -> None:
        """The group deletes these nodes: nobody holds a message of theirs. Raises as `UnitOfWork.execute`."""
        for queue_id in queue_ids:
            self._unit.execute(_FORGET_HELD_OF, (queue_id,))

    def write(self, changes: HalfChanges) -> None:
        """Run inside the transaction of the group. Raises as `UnitOfWork.execute`."""
        fault_point("terminus.before_rows")
        execute_many = self._unit.execute_many
        if changes.forgotten_termini:
            gone = [(number,) for number in changes.forgotten_termini]
            execute_many(_FORGET, gone)
            execute_many(_FORGET_ALL_OF, gone)
            execute_many(_FORGET_HELD_BY, gone)
        if changes.termini:
            execute_many(TERMINUS.replace, map(TERMINUS.row, changes.termini.values()))
        kept = [UNSETTLED.row(*key, state) for key, state in changes.unsettled.items() if state is not None]
        if kept:
            execute_many(UNSETTLED.replace, kept)
        settled = [key for key, state in changes.unsettled.items() if state is None]
        if settled:
            execute_many(_FORGET_ONE, settled)
        self._write_held(changes)
        fault_point("terminus.after_rows")

    def _write_held(self, changes: HalfChanges) -> None:
        freed = [(*key, number) for key, (number, tag) in changes.held.items() if tag is None]
        if freed:
            self._unit.execute_many(_FORGET_HELD, freed)
        held = [HELD.row(*key, number, tag) for key, (number, tag) in changes.held.items() if tag is not None]
        if held:
            self._unit.execute_many(HELD.replace, held)
