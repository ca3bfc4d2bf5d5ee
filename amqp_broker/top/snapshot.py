"""One look for programs, and for who has no terminal: two readings, so that there are rates."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from amqp_broker.looking.listing import Wanted
from amqp_broker.looking.output import as_json, as_table
from amqp_broker.looking.shown import NUMBERS
from amqp_broker.looking.tables import TABLES
from amqp_broker.top import lines
from amqp_broker.top.looker import Looker, Reading

KINDS: Final = ("queue", "connection", "transaction", "half")
ROWS_SHOWN: Final = 10
ROWS_FOR_PROGRAMS: Final = 50
Sleep = Callable[[float], object]


def taken(looker: Looker, *, as_json_line: bool, sleep: Sleep = time.sleep) -> str:
    """The text to print. Raises as `Looker.look` does."""
    size = ROWS_FOR_PROGRAMS if as_json_line else ROWS_SHOWN
    wanted = {kind: Wanted(sort=TABLES[kind].sort, size=size) for kind in KINDS}
    looker.look(wanted)
    sleep(looker.pause_s)
    looker.view.forget()  # who waits for one look does not wait for the share of many
    reading = looker.look(wanted)
    return as_json(_values(reading)) if as_json_line else "\n".join(_lines(reading)) + "\n"


def _values(reading: Reading) -> dict[str, Any]:
    series = lines.series_of(reading.figures)
    return {
        "broker": dict(reading.broker),
        "figures": {
            name: {"unit": unit, "value": values[-1] if values else None}
            for name, (unit, values) in series.items()
        },
        **{
            kind: {"found": page.listing.found, "rows": page.listing.rows}
            for kind, page in reading.pages.items()
        },
    }


def _lines(reading: Reading) -> Iterator[str]:
    broker = reading.broker
    yield lines.described(broker)
    yield lines.counted(broker)
    yield from filter(None, (lines.memory(broker), lines.disk(broker)))
    series = lines.series_of(reading.figures)
    yield ", ".join(f"{name} {lines.newest(*told)}" for name, told in series.items())
    for kind, page in reading.pages.items():
        if not page.listing.rows:
            continue
        columns = lines.columns_of(kind)
        right = [column.form in NUMBERS for column in columns]
        rows = [lines.cells_of(kind, row) for row in page.listing.rows]
        yield f"\n{TABLES[kind].title}: {page.listing.found}"
        yield as_table([column.title for column in columns], rows, right=right).rstrip()
