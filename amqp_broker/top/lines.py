"""What is shown of a reading, as texts: on the screen and in a snapshot alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from amqp_broker.looking import shown
from amqp_broker.looking.figures import Figure, Numbers
from amqp_broker.looking.output import cut, printable
from amqp_broker.looking.rates import Row
from amqp_broker.looking.tables import TABLES, Column

CELL_MAX: Final = 36
CELL_MIN: Final = 16
BESIDE: Final = 80
"""Cells of a terminal: names of queues can be long, and the other columns of the queues take BESIDE."""


def cell_max(width: int) -> int:
    """How long a cell may be in a terminal of this width."""
    return max(CELL_MIN, min(CELL_MAX, width - BESIDE))


_NAMES: Final = {
    ("Messages", "came"): "in", ("Messages", "sent"): "out", ("Messages", "accepted"): "settled",
    ("Depth", "waiting"): "depth", ("Latency of a commit", "commit"): "commit takes",
    ("Commits", "commits"): "commits", ("Memory", "used"): "memory", ("Memory", "cache"): "of it, cache",
    ("Free disk", "free"): "free disk",
}  # fmt: skip


def series_of(figures: list[Figure]) -> dict[str, tuple[str, Numbers]]:
    """Every series by the name that it has in a terminal, with its unit."""
    return {
        _NAMES.get((each.title, name), name): (each.unit, values)
        for each in figures for name, values in each.series.items()
    }  # fmt: skip


def newest(unit: str, values: Numbers) -> str:
    """The newest value with its unit."""
    last = values[-1] if values else None
    if last is None:
        return shown.NONE
    told = shown.number(round(last, 1 if last >= 1 else 3))
    return f"{told} {_UNITS.get(unit, unit)}"


_UNITS: Final = {"a second": "/s", "messages in all queues": "messages"}


def described(broker: Mapping[str, Any]) -> str:
    """Which broker it is."""
    store = "in memory" if broker["memory_only"] else f"store {broker['store_id']}"
    return printable(f"{broker['product']} {broker['version']} · {broker['container_id']} · {store}")


def counted(broker: Mapping[str, Any]) -> str:
    """How many there are."""
    names = ("messages", "queues", "connections", "transactions", "dead_letters")
    return "   ".join(f"{shown.number(broker[name])} {shown.label(name)}" for name in names)


def memory(broker: Mapping[str, Any]) -> str:
    """The budget of the memory, and who waits for it."""
    used, limit = broker["memory_used_bytes"], broker["memory_limit_bytes"]
    share = f" ({100 * used / limit:.0f} %)" if limit else ""
    waiting = broker["memory_pressed"]
    return (
        f"memory {shown.octets(used)} of {shown.octets(limit)}{share}, "
        f"cache {shown.octets(broker['memory_cache_bytes'])}, own {shown.octets(broker['memory_own_bytes'])}"
        + (f", {shown.number(waiting)} connections wait for it" if waiting else "")
    )


def disk(broker: Mapping[str, Any]) -> str:
    """Room on the disk; empty where there is none."""
    free = broker["disk_free_bytes"]
    if free is None:
        return ""
    refusing = ": too little, nothing is taken" if broker["disk_refusing"] else ""
    return f"disk {shown.octets(free)} free{refusing}"


def columns_of(kind: str) -> tuple[Column, ...]:
    """The columns of a table, as the console has them."""
    return TABLES[kind].columns


def cells_of(kind: str, row: Row, most: int = CELL_MAX) -> list[str]:
    """A row as texts of so many cells of a terminal at most, none of which can steer a terminal."""
    return [
        cut(printable(shown.FORMS[column.form](row.get(column.name)))[: 2 * most], most)
        for column in columns_of(kind)
    ]
