"""The decisions about epochs on disk: a row for each, found by one search; memory holds none of them."""

from __future__ import annotations

import json
from typing import Final

from amqp_broker.persistence.checksums import epoch_checksum, is_sound
from amqp_broker.persistence.epochs import KEEP_DECISIONS, LAST_EPOCH, DecidedSet, Decision
from amqp_broker.persistence.errors import RowDamaged, StoreCorrupt
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.half_changes import EpochKey
from amqp_broker.persistence.questions import DecisionOf, DecisionsOf, LatestDecisionOf
from amqp_broker.persistence.sound_page import sound_page
from amqp_broker.persistence.sqlite_library import Parameters
from amqp_broker.persistence.unit_of_work import Row, UnitOfWork

# Texts are read as bytes: what is damaged may be no UTF-8.
EPOCH_COLUMNS: Final = (
    "CAST(group_name AS BLOB), CAST(producer AS BLOB), epoch, decided_at_ms, CAST(winners AS BLOB), checksum"
)
_FIND: Final = f"SELECT {EPOCH_COLUMNS} FROM epoch WHERE group_name=? AND producer=? AND epoch=?"
_BELOW: Final = (
    f"SELECT {EPOCH_COLUMNS} FROM epoch WHERE group_name=? AND producer=? AND epoch<=? "
    "ORDER BY epoch DESC LIMIT ?"
)
_INSERT: Final = "INSERT INTO epoch VALUES (?, ?, ?, ?, ?, ?)"
_FORGET: Final = (
    "DELETE FROM epoch WHERE group_name=?1 AND producer=?2 AND epoch<=(SELECT epoch FROM epoch "
    "WHERE group_name=?1 AND producer=?2 ORDER BY epoch DESC LIMIT 1 OFFSET ?3)"
)

_encode = json.JSONEncoder(separators=(",", ":")).encode


class EpochTable:
    """The table `epoch`."""

    def __init__(self, unit: UnitOfWork) -> None:
        self._unit = unit

    def find(self, group: str, producer: str, epoch: int) -> Decision | None:
        """The decision, None if there is none. Raises RowDamaged, StoreFailed."""
        if not 0 <= epoch <= LAST_EPOCH:
            return None  # SQLite's integers end there
        return self._only(_FIND, (group, producer, epoch))

    def decision(self, asked: DecisionOf) -> Decision | None:
        return self.find(asked.group, asked.producer, asked.epoch)

    def latest(self, asked: LatestDecisionOf) -> Decision | None:
        return self._only(_BELOW, (asked.group, asked.producer, LAST_EPOCH, 1))

    def page(self, asked: DecisionsOf) -> list[Decision]:
        group, producer = asked.group, asked.producer
        # From the highest to the lowest: the cursor of a page, which has to rise, is the distance to the top.
        return sound_page(
            lambda after, limit: self._read(_BELOW, (group, producer, LAST_EPOCH - after, limit)),
            lambda row: decision_of(row) if is_sound(epoch_checksum, row) else None,
            lambda row: LAST_EPOCH - row[2] + 1 if isinstance(row[2], int) else 0,
            0,
            asked.count,
        )

    def _only(self, sql: str, parameters: Parameters) -> Decision | None:
        for row in self._read(sql, parameters):
            if not is_sound(epoch_checksum, row):
                what = f"the decision about epoch {row[2]} of producer {parameters[1]!r}"
                raise RowDamaged(f"{what} does not match its checksum")
            return decision_of(row)
        return None

    def _read(self, sql: str, parameters: Parameters) -> list[Row]:
        try:
            return self._unit.query(sql, parameters)
        except StoreCorrupt as error:
            raise RowDamaged(f"the stored decisions cannot be read: {error}") from error

    def write(self, decisions: dict[EpochKey, Decision]) -> None:
        """Run inside the transaction of the group. Raises as `UnitOfWork.execute`."""
        fault_point("epoch.before_record")
        self._unit.execute_many(_INSERT, [row_of(decision) for decision in decisions.values()])
        producers = {(group, producer) for group, producer, _ in decisions}
        self._unit.execute_many(_FORGET, [(*producer, KEEP_DECISIONS) for producer in producers])
        fault_point("epoch.after_record")


def row_of(decision: Decision) -> Parameters:
    """The row of a decision, in the order of the columns."""
    # Of a decision of another store there is more to say than a list.
    told = {"home": decision.home, "sets": decision.winners} if decision.home else decision.winners
    winners = _encode(told)
    checksum = epoch_checksum(
        decision.group.encode(), decision.producer.encode(), decision.epoch, decision.decided_at_ms,
        winners.encode(),
    )  # fmt: skip
    return (
        decision.group, decision.producer, decision.epoch, decision.decided_at_ms, winners, checksum,
    )  # fmt: skip


def decision_of(row: Row) -> Decision:
    """A sound row of EPOCH_COLUMNS."""
    group, producer, epoch, decided_at_ms, winners, _ = row
    told = json.loads(winners)
    home, sets = (told["home"], told["sets"]) if isinstance(told, dict) else ("", told)
    return Decision(
        group.decode(),
        producer.decode(),
        epoch,
        decided_at_ms,
        tuple(_decided_set(*winner) for winner in sets),
        home,
    )


def _decided_set(set_id: str, count: int, checksum: int, store: str = "") -> DecidedSet:
    return (set_id, count, checksum, store) if store else (set_id, count, checksum)
