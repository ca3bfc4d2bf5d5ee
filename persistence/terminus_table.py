"""Termini on disk, and their deliveries that are not settled; memory holds none of them."""

from __future__ import annotations

from typing import Final

from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.half_changes import HalfChanges
from amqp_broker.persistence.questions import Termini, UnsettledOf
from amqp_broker.persistence.table import SqlTable, blobs, integers, texts
from amqp_broker.persistence.termini import StoredTerminus
from amqp_broker.persistence.unit_of_work import UnitOfWork

TERMINUS: Final = SqlTable(
    "terminus",
    7,
    ("number",),
    [*integers("number", "timeout_s", "ends_at_ms"), *texts("user", "container", "name", "expiry_policy")],
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

_ALL: Final = TERMINUS.select("ORDER BY number")
_OF: Final = UNSETTLED.select("WHERE number=? ORDER BY delivery_tag")
_FORGET: Final = "DELETE FROM terminus WHERE number=?"
_FORGET_ALL_OF: Final = "DELETE FROM unsettled WHERE number=?"
_FORGET_ONE: Final = "DELETE FROM unsettled WHERE number=? AND delivery_tag=?"


class TerminusTable:
    """The tables `terminus` and `unsettled`."""

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

    def write(self, changes: HalfChanges) -> None:
        """Run inside the transaction of the group. Raises as `UnitOfWork.execute`."""
        fault_point("terminus.before_rows")
        execute_many = self._unit.execute_many
        if changes.forgotten_termini:
            gone = [(number,) for number in changes.forgotten_termini]
            execute_many(_FORGET, gone)
            execute_many(_FORGET_ALL_OF, gone)
        if changes.termini:
            execute_many(TERMINUS.replace, map(TERMINUS.row, changes.termini.values()))
        kept = [UNSETTLED.row(*key, state) for key, state in changes.unsettled.items() if state is not None]
        if kept:
            execute_many(UNSETTLED.replace, kept)
        settled = [key for key, state in changes.unsettled.items() if state is None]
        if settled:
            execute_many(_FORGET_ONE, settled)
        fault_point("terminus.after_rows")
