"""Are retention and cursors whole? A part of the checker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from amqp_broker.persistence.checksums import cursor_checksum, is_sound, retained_checksum
from amqp_broker.persistence.retained_table import RETAINED_COLUMNS, Retention
from amqp_broker.persistence.retention import EVENT_LOG
from amqp_broker.persistence.runs import Run
from amqp_broker.persistence.unit_of_work import UnitOfWork

_QUARANTINE: Final = "SELECT queue_id, offset, segment_id, bytes IS NULL FROM quarantine"
_NEXT_OFFSETS: Final = (
    "SELECT n.id, n.name, max(n.next_offset, coalesce((SELECT first_offset+count FROM run "
    "WHERE queue_id=n.id ORDER BY first_offset DESC LIMIT 1), 0)) "
    "FROM node n JOIN retained r ON r.queue_id=n.id"
)


class RetainedChecker:
    """What the checker has to know of retaining nodes while it walks over the runs."""

    def __init__(self, unit: UnitOfWork, cursor_columns: str) -> None:
        self._unit = unit
        self._cursor_columns = cursor_columns
        self._retained: dict[int, Retention] = {}
        self._purged_to: dict[int, int] = {}
        self._spoiled: set[tuple[int, int]] = set()
        self._spoiled_segments: set[tuple[int, int]] = set()  # nothing of them can be read
        self._before: Run | None = None

    def findings(self) -> Iterator[str]:
        """What is wrong with the tables `retained` and `cursor`; to be asked first."""
        self._purged_to = dict(self._unit.query("SELECT id, purged_to FROM node WHERE purged_to>0"))
        for queue_id, offset, segment_id, whole in self._unit.query(_QUARANTINE):
            self._spoiled.add((queue_id, offset))
            if whole:
                self._spoiled_segments.add((queue_id, segment_id))
        ends = {row[0]: row[1:] for row in self._unit.query(_NEXT_OFFSETS)}
        for row in self._unit.query(f"SELECT {RETAINED_COLUMNS} FROM retained"):
            queue_id, keep_ms, keep_bytes, first_offset, swept_to, at_ms, _ = row
            where = f"queue {queue_id}, what it retains"
            if not is_sound(retained_checksum, row):
                yield f"{where}: the row does not match its checksum"
                self._retained[queue_id] = Retention(0, 0, 0, 0, 0)
                continue
            retention = self._retained[queue_id] = Retention(
                keep_ms, keep_bytes, first_offset, swept_to, at_ms
            )
            name, next_offset = ends.get(queue_id, (None, 0))
            if name is None:
                yield f"{where}: there is no such node"
            elif not 0 <= swept_to <= first_offset <= next_offset:
                yield f"{where}: swept to {swept_to}, from {first_offset}, but next_offset is {next_offset}"
            if min(keep_ms, keep_bytes) < 0 or (not retention.retains() and swept_to > first_offset):
                yield f"{where}: bounds of {keep_ms} ms and {keep_bytes} bytes"
        yield from self._cursors()

    def _cursors(self) -> Iterator[str]:
        sql = (
            f"SELECT {self._cursor_columns}, queue_id IN (SELECT id FROM node WHERE name IS NOT NULL) "
            "FROM cursor c ORDER BY c.name, queue_id"
        )
        for *row, exists in self._unit.query(sql):
            if not is_sound(cursor_checksum, row):
                yield f"cursor {row[0]!r}, queue {row[1]}: the row does not match its checksum"
            elif not exists and row[1] != EVENT_LOG:
                yield f"cursor {row[0]!r}, queue {row[1]}: there is no such node"

    def may_be_archived(self, run: Run) -> bool:
        """May all of it be retired? Below a purge mark it waits for the sweep."""
        if run.first < self._purged_to.get(run.queue_id, 0):
            return True
        retention = self._retained.get(run.queue_id)
        return retention is not None and run.first >= retention.swept_to

    def changes_may_be_left(self, queue_id: int, offset: int) -> bool:
        """May there be a changed header without a message, until it is swept?"""
        retention = self._retained.get(queue_id)
        return retention is not None and offset >= retention.swept_to

    def is_spoiled(self, queue_id: int, offset: int) -> bool:
        """Was it put into quarantine?"""
        return (queue_id, offset) in self._spoiled

    def wanted(self, run: Run) -> int:
        """The bits of the messages that have to be there: archived ones too where they are kept."""
        everything = (1 << run.count) - 1
        retention = self._retained.get(run.queue_id)
        if retention is None or not retention.retains() or run.first < retention.first_offset:
            return everything & ~run.gone
        if (run.queue_id, run.segment_id) in self._spoiled_segments:
            return everything & ~run.gone
        for index in range(run.count):
            if run.gone >> index & 1 and self.is_spoiled(run.queue_id, run.first + index):
                everything &= ~(1 << index)
        return everything

    def order(self, run: Run) -> Iterator[str]:
        """Times of publication never fall."""
        before, self._before = self._before, run
        retention = self._retained.get(run.queue_id)
        if before is None or before.queue_id != run.queue_id or retention is None:
            return
        if before.first >= retention.first_offset and run.at_ms < before.at_ms:
            yield f"queue {run.queue_id}, run {run.first}: published before run {before.first}"
