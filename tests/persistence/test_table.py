"""Declared tables: what the migrations leave is what is declared, and rows stay as they always were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amqp_broker.persistence import Cursor, Half, StoredTerminus
from amqp_broker.persistence.cursor_table import CURSOR
from amqp_broker.persistence.epoch_table import EPOCH
from amqp_broker.persistence.event_table import EVENT
from amqp_broker.persistence.half_table import HALF, HALF_BODY
from amqp_broker.persistence.halves import PREPARED
from amqp_broker.persistence.node_rows import NODE
from amqp_broker.persistence.outcomes import GENERATION, OUTCOME
from amqp_broker.persistence.retained_table import RETAINED
from amqp_broker.persistence.runs import CHANGED, RUN
from amqp_broker.persistence.schema import SCHEMA_VERSION
from amqp_broker.persistence.spreads import SPREAD, encode_places
from amqp_broker.persistence.stream_table import STREAM
from amqp_broker.persistence.table import SqlTable
from amqp_broker.persistence.terminus_table import HELD, TERMINUS, UNSETTLED
from tests.persistence.stores import edit, small_store
from tests.persistence.versions import STATEMENTS, write_version

HALF_MESSAGE = Half("gr\u00fcn", b"\x01", "q", PREPARED, b"d", 1, 2, 3, "c", 5)
# A row of each table, as each version since the first one with it has written it: files hold these checksums.
ROWS: dict[SqlTable[Any], list[tuple[tuple[object, ...], int]]] = {
    RUN: [
        ((1, 0, 6, 1, 0, b"\x06", 4, 40, 60, 0), 4067064500),
        ((1, 0, 6, 1, 0, None, 6, 60, 60, 5), 3156590654),
    ],
    CHANGED: [((1, 4, 2, 1, b"notes"), 2964201876), ((1, 4, 2, 0, None), 297439688)],
    NODE: [
        ((3, "empty", "queue", "{}", 3, 0), 3710121989),
        ((2, None, "queue", "{}", 0, 1 << 62), 2899548932),
    ],
    GENERATION: [((0, 1000), 2372300572)],
    OUTCOME: [((0, 2000, b"two"), 3640682969)],
    HALF: [((HALF_MESSAGE, 9, 7), 1320253888)],
    HALF_BODY: [((1, b"body1"), 2601041068)],
    STREAM: [((1, 1, 2, 0, 0, "s", "me", b""), 142331126)],
    EVENT: [
        ((1, 5, 60000, "half.put", '{"half_id":"1"}', 1), 3911359571),
        ((1, 5, 6, "put", '[{},{"a":[1,2]}]', 2), 2034757612),
    ],
    RETAINED: [((1, 2, 3, 4, 5, 6), 1458454519)],
    CURSOR: [((Cursor("c", 1, 4, 5),), 2707475683), ((Cursor("c", 1, 4, 5, "\u00f6"),), 3167607908)],
    EPOCH: [((1, 5, "g", "p", "[]"), 844137604)],
    TERMINUS: [
        ((StoredTerminus(1, "u", "c", "l", "never", 5, 6),), 1931094686),
        ((StoredTerminus(1, "u", "c", "l", "never", 5, 6, True, 3),), 175459795),
    ],
    UNSETTLED: [((1, b"tag", b"state"), 2125978058)],
    HELD: [((1, 2, 3, b"tag"), 3707959364)],
    SPREAD: [((1, 3, b"\x06", encode_places([(1, 5, 2), (2, 9, 1)])), 1066860443)],
}


@pytest.mark.parametrize("table", ROWS, ids=lambda table: table.name)
def test_migrations_leave_what_is_declared(table: SqlTable[Any], tmp_path: Path) -> None:
    """Names, types, defaults, what may be missing, and the key; in an older store, those that it had."""
    sql = 'SELECT name, type, dflt_value, NOT pk AND NOT "notnull", pk FROM pragma_table_info(?)'
    small_store(tmp_path / "new").close()
    for version in range(table.since, SCHEMA_VERSION + 1):
        path = tmp_path / "new"
        if version in STATEMENTS:
            path = tmp_path / str(version)
            write_version(version, path)
        found = edit(path, sql, table.name)
        expected = {
            (column.name, column.type, repr(column.default) if column.since else None, int(column.nullable))
            for column in table.columns
            if column.since <= version
        }
        if table.sealed <= version:
            expected.add(("checksum", "INTEGER", "0" if table.sealed else None, 0))
        assert {row[:4] for row in found} == expected, version
        assert tuple(name for _, name in sorted((row[4], row[0]) for row in found if row[4])) == table.key


@pytest.mark.parametrize("table", ROWS, ids=lambda table: table.name)
def test_rows_are_as_they_always_were(table: SqlTable[Any]) -> None:
    """Each checksum is that of the files that are out there, and covers every column."""
    for values, checksum in ROWS[table]:
        row: tuple[Any, ...] = table.row(*values)
        assert row[-1] == checksum
        read: tuple[Any, ...] = tuple([one.encode() if isinstance(one, str) else one for one in row])
        assert table.is_sound(read) and table.value(read) is not None
        for at, one in enumerate(read):
            others: list[object] = [one ^ 1 if isinstance(one, int) else (one or b"") + b"x"]
            if table not in (RUN, CHANGED):
                others += [None, "text", 1.5, 1 << 70]
            for other in others:
                damaged = (*read[:at], other, *read[at + 1 :])
                assert one is other or not (table.is_sound(damaged) or table.value(damaged)), damaged
