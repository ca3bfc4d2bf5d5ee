"""Are the tables beside those of messages whole? A part of verification, which only reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any, Final

from amqp_broker.persistence.cursor_table import CURSOR
from amqp_broker.persistence.epoch_table import EPOCH
from amqp_broker.persistence.event_table import EVENT, run_of
from amqp_broker.persistence.group import EVERYTHING
from amqp_broker.persistence.half_table import HALF, HALF_BODY
from amqp_broker.persistence.halves import COMMITTED, DECIDED, OPEN
from amqp_broker.persistence.node_rows import NODE
from amqp_broker.persistence.outcomes import GENERATION, OUTCOME
from amqp_broker.persistence.retained_table import RETAINED, Retention
from amqp_broker.persistence.retention import JOURNAL_ID
from amqp_broker.persistence.runs import Run
from amqp_broker.persistence.stream_table import STREAM
from amqp_broker.persistence.table import SqlTable
from amqp_broker.persistence.terminus_table import HELD, TERMINUS, UNSETTLED
from amqp_broker.persistence.unit_of_work import UnitOfWork

Problems = Callable[[dict[str, Any]], Iterator[str]]
"""What is wrong with a row that is sound, by the names of its columns."""

_UNSOUND: Final = "the row does not match its checksum"
_QUARANTINE: Final = "SELECT queue_id, offset, segment_id, bytes IS NULL FROM quarantine"
_NEXT_OFFSETS: Final = (
    "SELECT n.id, n.name, max(n.next_offset, coalesce((SELECT first_offset+count FROM run "
    "WHERE queue_id=n.id ORDER BY first_offset DESC LIMIT 1), 0)) "
    "FROM node n JOIN retained r ON r.queue_id=n.id"
)
_COUNTS: Final = "SELECT generation, count(*) FROM discharge GROUP BY generation ORDER BY 1"
# What an older broker rolled back because somebody asked for it has its body still; what policy rolled back
# has it up to a bound.
_WRONG_BODIES: Final = (
    "SELECT h.id, b.id FROM half h LEFT JOIN half_body b ON b.id=h.id "
    "WHERE (b.id IS NULL AND h.forget_ms=0) OR (b.id IS NOT NULL AND h.state=?) ORDER BY h.id"
)
_LOST_STREAMS: Final = (
    "SELECT queue_id, count(*) FROM stream WHERE queue_id NOT IN (SELECT id FROM node) GROUP BY queue_id"
)
_NOBODYS: Final = (
    "SELECT number, count(*) FROM unsettled WHERE number NOT IN (SELECT number FROM terminus) GROUP BY number"
)
_HELD_FOR_NOBODY: Final = (
    "SELECT number, count(*) FROM held WHERE number NOT IN (SELECT number FROM terminus) GROUP BY number"
)
_HELD_OF_NOTHING: Final = (
    "SELECT queue_id, count(*) FROM held WHERE queue_id NOT IN (SELECT id FROM node) GROUP BY queue_id"
)
_DECIDED_SETS: Final = ([str, int, int], [str, int, int, str])


def table_findings(unit: UnitOfWork, version: int) -> Iterator[tuple[str, Iterator[str]]]:
    """What is wrong with what does not lie in queues, table by table."""
    if OUTCOME.since <= version:
        yield "discharge: the tables", _outcomes(unit, version)
    if HALF.since <= version:
        yield "half: the table", _rows(HALF, unit, version, "half message {id}", _half)
        yield "half_body: the table", _bodies(unit)
        yield "stream: the table", _streams(unit, version)
        yield "event: the table", _events(unit, version)
    if EPOCH.since <= version:
        where = "group {group_name!r}, producer {producer!r}, epoch {epoch}"
        yield "epoch: the table", _rows(EPOCH, unit, version, where, _epoch)
    if TERMINUS.since <= version:
        yield "terminus: the tables", _termini(unit, version)


def _rows(
    table: SqlTable[Any], unit: UnitOfWork, version: int, where: str, problems: Problems = lambda _: iter(())
) -> Iterator[str]:
    for row in table.walk(unit, version):
        named = dict(zip(table.names, row, strict=False))
        for problem in problems(named) if table.is_sound(row) else (_UNSOUND,):
            yield f"{where.format(**named)}: {problem}"


def node_findings(unit: UnitOfWork, version: int) -> Iterator[str]:
    """What is wrong with the nodes."""
    for row in NODE.walk(unit, version):
        queue_id, called, _, settings, next_offset, purged_to, _ = row
        if version >= NODE.sealed and not NODE.is_sound(row):
            yield f"node {queue_id} ({called!r}): {_UNSOUND}"
            continue
        if called is None:
            if purged_to != EVERYTHING:
                yield f"node {queue_id} has no name, but its messages are not marked as deleted"
            continue
        where = f"node {queue_id} ({called.decode(errors='replace')})"
        try:
            if not isinstance(json.loads(settings), dict):
                yield f"{where}: the settings are no JSON object"
        except ValueError as error:
            yield f"{where}: the settings are no JSON: {error}"
        if not 0 <= purged_to <= next_offset:
            yield f"{where}: purged to {purged_to}, but next_offset is {next_offset}"


def _outcomes(unit: UnitOfWork, version: int) -> Iterator[str]:
    yield from _rows(GENERATION, unit, version, "generation {first_number} of outcomes")
    counts: dict[int, int] = dict(unit.query(_COUNTS))
    numbers = [row[0] for row in GENERATION.walk(unit, version)]
    for first, following in zip_longest(numbers, numbers[1:]):
        count = counts.pop(first, 0)
        if following is None and count == 0:
            yield f"generation {first} of outcomes: has none"
        elif following is not None and count != following - first:
            yield f"generation {first} of outcomes: has {count}, expected {following - first}"
    for first, count in counts.items():
        yield f"generation {first} of outcomes: {count} rows, but there is no such generation"
    yield from _rows(OUTCOME, unit, version, "generation {generation}, an outcome at {at_ms}")


def _half(row: dict[str, Any]) -> Iterator[str]:
    state = row["state"].decode()
    if state not in OPEN + DECIDED:
        yield f"its state is {state!r}"
    elif (state in DECIDED) != (row["forget_ms"] > 0):
        yield f"is {state}, but it is forgotten at {row['forget_ms']}"


def _bodies(unit: UnitOfWork) -> Iterator[str]:
    for number, body_number in unit.query(_WRONG_BODIES, (COMMITTED,)):
        if body_number is None:
            yield f"half message {number}: its body is kept, but there is none"
        else:
            yield f"half message {number}: is committed, but has a body"
    for (number,) in unit.query("SELECT id FROM half_body WHERE id NOT IN (SELECT id FROM half)"):
        yield f"half message {number}: has a body, but there is none"
    for (number,) in unit.query("SELECT id FROM half_body ORDER BY id"):
        try:
            rows = unit.query(HALF_BODY.select("WHERE id=?"), (number,))
        except Exception as error:  # whatever is wrong with it is a finding
            yield f"half message {number}: the body cannot be read: {error}"
            continue
        if not all(map(HALF_BODY.is_sound, rows)):
            yield f"half message {number}: the body does not match its checksum"


def _streams(unit: UnitOfWork, version: int) -> Iterator[str]:
    for queue_id, count in unit.query(_LOST_STREAMS):
        yield f"queue {queue_id}: {count} streams, but there is no such node"
    yield from _rows(STREAM, unit, version, "queue {queue_id}, stream {stream!r}")


def _events(unit: UnitOfWork, version: int) -> Iterator[str]:
    before: int | None = None
    for row in EVENT.walk(unit, version):
        seq, at_ms, _, kind, fields, count, _ = row
        if before is not None and seq != before + 1:
            yield f"event {seq}: comes after event {before}"
        if not EVENT.is_sound(row):
            yield f"event {seq}: {_UNSOUND}"
            before = None  # for how many it stood is unknown
            continue
        before = seq + count - 1
        try:
            content = json.loads(fields)
        except ValueError as error:
            yield f"event {seq}: the fields are no JSON: {error}"
            continue
        parts = content if isinstance(content, list) and len(content) == 2 else [content]
        if not all(isinstance(part, dict) for part in parts):
            yield f"event {seq}: the fields are no JSON object"
            continue
        problem = run_of(seq, at_ms, kind.decode(), content, count).problem()
        if problem is not None:
            yield f"event {seq}: {problem}"


def _epoch(row: dict[str, Any]) -> Iterator[str]:
    try:
        winners = json.loads(row["winners"])
    except ValueError:
        winners = None
    if isinstance(winners, dict) and set(winners) == {"home", "sets"} and isinstance(winners["home"], str):
        winners = winners["sets"]
    if not isinstance(winners, list) or not all(
        isinstance(winner, list) and list(map(type, winner)) in _DECIDED_SETS for winner in winners
    ):
        yield "the winners are no list of (set, count, checksum)"


def _termini(unit: UnitOfWork, version: int) -> Iterator[str]:
    yield from _rows(TERMINUS, unit, version, "terminus {number}")
    for number, count in unit.query(_NOBODYS):
        yield f"terminus {number}: {count} deliveries, but there is no such terminus"
    yield from _rows(UNSETTLED, unit, version, "terminus {number}, delivery {delivery_tag!r}")
    if HELD.since <= version:
        yield from _rows(HELD, unit, version, "queue {queue_id}, offset {offset}, held by terminus {number}")
        for number, count in unit.query(_HELD_FOR_NOBODY):
            yield f"terminus {number}: it holds {count} messages, but there is no such terminus"
        for queue_id, count in unit.query(_HELD_OF_NOTHING):
            yield f"queue {queue_id}: {count} of its messages are held, but there is no such node"


class RetainedRuns:
    """What verification has to know of retaining nodes while it walks over the runs."""

    def __init__(self, unit: UnitOfWork, version: int) -> None:
        self._unit = unit
        self._version = version
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
        for row in RETAINED.walk(self._unit, self._version):
            queue_id = row[0]
            where = f"queue {queue_id}, what it retains"
            if not RETAINED.is_sound(row):
                yield f"{where}: {_UNSOUND}"
                self._retained[queue_id] = Retention(0, 0, 0, 0, 0)
                continue
            kept = self._retained[queue_id] = RETAINED.made(row)
            swept_to, first_offset = kept.swept_to, kept.first_offset
            name, next_offset = ends.get(queue_id, (None, 0))
            if name is None:
                yield f"{where}: there is no such node"
            elif not 0 <= swept_to <= first_offset <= next_offset:
                yield f"{where}: swept to {swept_to}, from {first_offset}, but next_offset is {next_offset}"
            if min(kept.keep_ms, kept.keep_bytes) < 0 or (not kept.retains() and swept_to > first_offset):
                yield f"{where}: bounds of {kept.keep_ms} ms and {kept.keep_bytes} bytes"
        yield from _rows(CURSOR, self._unit, self._version, "cursor {name!r}, queue {queue_id}", self._cursor)

    def _cursor(self, row: dict[str, Any]) -> Iterator[str]:
        live = "SELECT 1 FROM node WHERE id=? AND name IS NOT NULL"
        if row["queue_id"] != JOURNAL_ID and not self._unit.query(live, (row["queue_id"],)):
            yield "there is no such node"

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
