"""Are the stored decisions about epochs whole? A part of the checker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from amqp_broker.persistence.checksums import epoch_checksum, is_sound
from amqp_broker.persistence.epoch_table import EPOCH_COLUMNS
from amqp_broker.persistence.unit_of_work import UnitOfWork

_ROWS_AT_ONCE: Final = 256
_DECIDED_SETS: Final = ([str, int, int], [str, int, int, str])
_PAGE: Final = (
    f"SELECT {EPOCH_COLUMNS} FROM epoch WHERE (group_name, producer, epoch)>"
    "(CAST(? AS TEXT), CAST(? AS TEXT), ?) ORDER BY group_name, producer, epoch LIMIT ?"
)


def epoch_findings(unit: UnitOfWork) -> Iterator[str]:
    """What is wrong with them."""
    cursor: tuple[object, object, object] = (b"", b"", -1)
    while rows := unit.query(_PAGE, (*cursor, _ROWS_AT_ONCE)):
        for group, producer, epoch, decided_at_ms, winners, checksum in rows:
            where = f"group {group!r}, producer {producer!r}, epoch {epoch}"
            if not is_sound(epoch_checksum, (group, producer, epoch, decided_at_ms, winners, checksum)):
                yield f"{where}: the decision does not match its checksum"
            elif not _are_winners(winners):
                yield f"{where}: the winners are no list of (set, count, checksum)"
        cursor = (rows[-1][0], rows[-1][1], rows[-1][2])


def _are_winners(text: bytes) -> bool:
    try:
        winners = json.loads(text)
    except ValueError:
        return False
    if isinstance(winners, dict) and set(winners) == {"home", "sets"} and isinstance(winners["home"], str):
        winners = winners["sets"]
    return isinstance(winners, list) and all(
        isinstance(winner, list) and list(map(type, winner)) in _DECIDED_SETS for winner in winners
    )
