"""Are the stored half messages, streams and events whole? A part of the checker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from amqp_broker.persistence.checksums import event_checksum, half_checksum, is_sound, stream_checksum
from amqp_broker.persistence.event_table import EVENT_COLUMNS, run_of
from amqp_broker.persistence.half_rows import COLUMNS, body_checksum
from amqp_broker.persistence.halves import COMMITTED, DECIDED, OPEN
from amqp_broker.persistence.stream_table import STREAM_COLUMNS
from amqp_broker.persistence.unit_of_work import Row, UnitOfWork

_ROWS_AT_ONCE: Final = 256
_STATE: Final = 11  # of COLUMNS
_FORGET_MS: Final = -2


def half_findings(unit: UnitOfWork) -> Iterator[tuple[str, Iterator[str]]]:
    """What is wrong with them, table by table."""
    yield "half", _halves(unit)
    yield "half_body", _bodies(unit)
    yield "stream", _streams(unit)
    yield "event", _events(unit)


def _pages(unit: UnitOfWork, sql: str) -> Iterator[Row]:
    """The rows of a table whose first column is its key; `sql` takes the last one seen, and a limit."""
    last = -1 << 63
    while rows := unit.query(sql, (last, _ROWS_AT_ONCE)):
        last = rows[-1][0]
        yield from rows


def _halves(unit: UnitOfWork) -> Iterator[str]:
    for row in _pages(unit, f"SELECT {COLUMNS} FROM half WHERE id>? ORDER BY id LIMIT ?"):
        if not is_sound(half_checksum, row):
            yield f"half message {row[0]}: the row does not match its checksum"
            continue
        state = row[_STATE].decode()
        if state not in OPEN + DECIDED:
            yield f"half message {row[0]}: its state is {state!r}"
        elif (state in DECIDED) != (row[_FORGET_MS] > 0):
            yield f"half message {row[0]}: is {state}, but it is forgotten at {row[_FORGET_MS]}"


def _bodies(unit: UnitOfWork) -> Iterator[str]:
    # What an older broker rolled back because somebody asked for it has its body still; what policy rolled
    # back has it up to a bound.
    sql = (
        "SELECT h.id, b.id FROM half h LEFT JOIN half_body b ON b.id=h.id "
        "WHERE (b.id IS NULL AND h.forget_ms=0) OR (b.id IS NOT NULL AND h.state=?) ORDER BY h.id"
    )
    for number, body_number in unit.query(sql, (COMMITTED,)):
        if body_number is None:
            yield f"half message {number}: its body is kept, but there is none"
        else:
            yield f"half message {number}: is committed, but has a body"
    for (number,) in unit.query("SELECT id FROM half_body WHERE id NOT IN (SELECT id FROM half)"):
        yield f"half message {number}: has a body, but there is none"
    for (number,) in _pages(unit, "SELECT id FROM half_body WHERE id>? ORDER BY id LIMIT ?"):
        try:
            rows = unit.query("SELECT body, checksum FROM half_body WHERE id=?", (number,))
        except Exception as error:  # whatever is wrong with it is a finding
            yield f"half message {number}: the body cannot be read: {error}"
            continue
        if any(not isinstance(body, bytes) or body_checksum(number, body) != crc for body, crc in rows):
            yield f"half message {number}: the body does not match its checksum"


def _streams(unit: UnitOfWork) -> Iterator[str]:
    sql = (
        "SELECT queue_id, count(*) FROM stream WHERE queue_id NOT IN (SELECT id FROM node) GROUP BY queue_id"
    )
    for queue_id, count in unit.query(sql):
        yield f"queue {queue_id}: {count} streams, but there is no such node"
    sql = (
        f"SELECT {STREAM_COLUMNS} FROM stream s WHERE (queue_id, s.stream)>(?, CAST(? AS TEXT)) "
        "ORDER BY queue_id, s.stream LIMIT ?"
    )
    cursor: tuple[object, object] = (-1, b"")
    while rows := unit.query(sql, (*cursor, _ROWS_AT_ONCE)):
        for row in rows:
            if not is_sound(stream_checksum, row):
                yield f"queue {row[0]}, stream {row[1]!r}: the row does not match its checksum"
        cursor = (rows[-1][0], rows[-1][1])


def _events(unit: UnitOfWork) -> Iterator[str]:
    before: int | None = None
    columns = EVENT_COLUMNS
    if not unit.query("SELECT 1 FROM pragma_table_info('event') WHERE name='count'"):
        columns = columns.replace("count", "1")  # version 3 knew no runs
    for row in _pages(unit, f"SELECT {columns} FROM event WHERE seq>? ORDER BY seq LIMIT ?"):
        seq, at_ms, _, kind, fields, count, _ = row
        if before is not None and seq != before + 1:
            yield f"event {seq}: comes after event {before}"
        if not is_sound(event_checksum, row):
            yield f"event {seq}: the row does not match its checksum"
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
