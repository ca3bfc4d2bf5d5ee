"""Are the stored outcomes of transactions whole? A part of the checker."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Final

from amqp_broker.persistence.checksums import generation_checksum, is_sound, outcome_checksum
from amqp_broker.persistence.unit_of_work import UnitOfWork

_ROWS_AT_ONCE: Final = 1024
_GENERATIONS: Final = "SELECT first_number, opened_at_ms, checksum FROM discharge_generation ORDER BY 1"
_COUNTS: Final = "SELECT generation, count(*) FROM discharge GROUP BY generation ORDER BY 1"
_PAGE: Final = (
    "SELECT generation, txn_id, at_ms, checksum FROM discharge WHERE (generation, txn_id)>(?, ?) "
    "ORDER BY generation, txn_id LIMIT ?"
)


def outcome_findings(unit: UnitOfWork) -> Iterator[str]:
    """What is wrong with them."""
    yield from _generations(unit)
    cursor: tuple[object, object] = (-1, b"")
    while rows := unit.query(_PAGE, (*cursor, _ROWS_AT_ONCE)):
        cursor = (rows[-1][0], rows[-1][1])
        for row in rows:
            if not is_sound(outcome_checksum, row):
                yield f"generation {row[0]}, an outcome at {row[2]}: the row does not match its checksum"


def _generations(unit: UnitOfWork) -> Iterator[str]:
    counts: dict[int, int] = dict(unit.query(_COUNTS))
    rows = unit.query(_GENERATIONS)
    for row in rows:
        if not is_sound(generation_checksum, row):
            yield f"generation {row[0]} of outcomes: the row does not match its checksum"
    for (first, *_), following in zip_longest(rows, rows[1:]):
        count = counts.pop(first, 0)
        if following is None and count == 0:
            yield f"generation {first} of outcomes: has none"
        elif following is not None and count != following[0] - first:
            yield f"generation {first} of outcomes: has {count}, expected {following[0] - first}"
    for first, count in counts.items():
        yield f"generation {first} of outcomes: {count} rows, but there is no such generation"
