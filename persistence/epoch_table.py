"""The decisions about epochs on disk: a row for each, found by one search; memory holds none of them."""

from __future__ import annotations

import json
from typing import Final

from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.half_changes import EpochKey
from amqp_broker.persistence.halves import KEEP_DECISIONS, LAST_EPOCH, DecidedSet, Decision
from amqp_broker.persistence.questions import DecisionOf, DecisionsOf, LatestDecisionOf
from amqp_broker.persistence.sqlite_library import Parameters
from amqp_broker.persistence.table import SqlTable, integers, sound_page, texts
from amqp_broker.persistence.unit_of_work import UnitOfWork

_encode = json.JSONEncoder(separators=(",", ":")).encode


def _decision_of(epoch: int, decided_at_ms: int, group: str, producer: str, winners: str) -> Decision:
    told = json.loads(winners)
    # "home" is the coordinator, as stores of every version have it.
    coordinator, sets = (told["home"], told["sets"]) if isinstance(told, dict) else ("", told)
    won = tuple([_decided_set(*one) for one in sets])
    return Decision(group, producer, epoch, decided_at_ms, won, coordinator)


def _decided_set(set_id: str, count: int, checksum: int, store: str = "") -> DecidedSet:
    return (set_id, count, checksum, store) if store else (set_id, count, checksum)


EPOCH: Final = SqlTable(
    "epoch",
    4,
    ("group_name", "producer", "epoch"),
    [*integers("epoch", "decided_at_ms"), *texts("group_name", "producer", "winners")],
    _decision_of,
    measured=3,
)

_FIND: Final = EPOCH.select("WHERE group_name=? AND producer=? AND epoch=?")
_BELOW: Final = EPOCH.select("WHERE group_name=? AND producer=? AND epoch<=? ORDER BY epoch DESC LIMIT ?")
_FORGET: Final = (
    "DELETE FROM epoch WHERE group_name=?1 AND producer=?2 AND epoch<=(SELECT epoch FROM epoch "
    "WHERE group_name=?1 AND producer=?2 ORDER BY epoch DESC LIMIT 1 OFFSET ?3)"
)


class EpochTable:
    """The table `epoch`."""

    def __init__(self, unit: UnitOfWork) -> None:
        self._unit = unit

    def find(self, group: str, producer: str, epoch: int) -> Decision | None:
        """The decision, None if there is none. Raises RowDamaged, StoreFailed."""
        if not 0 <= epoch <= LAST_EPOCH:
            return None  # SQLite's integers end there
        return EPOCH.only(self._unit, _FIND, (group, producer, epoch), "epoch {2} of producer {1!r}")

    def decision(self, asked: DecisionOf) -> Decision | None:
        return self.find(asked.group, asked.producer, asked.epoch)

    def latest(self, asked: LatestDecisionOf) -> Decision | None:
        parameters = (asked.group, asked.producer, LAST_EPOCH, 1)
        return EPOCH.only(self._unit, _BELOW, parameters, "the latest decision of producer {1!r}")

    def page(self, asked: DecisionsOf) -> list[Decision]:
        unit, group, producer = self._unit, asked.group, asked.producer
        # From the highest to the lowest: the cursor of a page, which has to rise, is the distance to the top.
        return sound_page(
            lambda after, limit: EPOCH.query(unit, _BELOW, (group, producer, LAST_EPOCH - after, limit)),
            EPOCH.value,
            lambda row: LAST_EPOCH - row[0] + 1 if isinstance(row[0], int) else 0,
            0,
            asked.count,
        )

    def write(self, decisions: dict[EpochKey, Decision]) -> None:
        """Run inside the transaction of the group. Raises as `UnitOfWork.execute`."""
        fault_point("epoch.before_record")
        self._unit.execute_many(EPOCH.insert, [_row_of(decision) for decision in decisions.values()])
        producers = {(group, producer) for group, producer, _ in decisions}
        self._unit.execute_many(_FORGET, [(*producer, KEEP_DECISIONS) for producer in producers])
        fault_point("epoch.after_record")


def _row_of(decision: Decision) -> Parameters:
    # Of a decision of another store there is more to say than a list.
    of_another = {"home": decision.coordinator, "sets": decision.winners}
    told = of_another if decision.coordinator else decision.winners
    return EPOCH.row(
        decision.epoch, decision.decided_at_ms, decision.group, decision.producer, _encode(told)
    )
