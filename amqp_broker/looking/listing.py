"""Rows of a table as a page asks for them: filtered, sorted, cut.

shop                  rows in which a text has these characters
messages>100          rows of which an attribute is above, below (<), or is (=) a value
shop consumers=0      all of these at once
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import attrs

from amqp_broker.looking.limits import FILTER_CHARACTERS_MAX, ROWS, ROWS_MAX
from amqp_broker.looking.output import is_number
from amqp_broker.looking.shown import text
from amqp_broker.natural_order import natural

Row = dict[str, Any]
_COMPARED: Final = re.compile(r"([a-z_]+(?:/s)?)(>=|<=|!=|=|>|<)(.*)", re.DOTALL)
_ORDERS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": lambda a, b: a > b, "<": lambda a, b: a < b, ">=": lambda a, b: a >= b, "<=": lambda a, b: a <= b,
}  # fmt: skip


@attrs.frozen
class Wanted:
    """What a page asks for; `sort` is a column, falling with `-` before it. Pages count from 1."""

    words: str = ""
    sort: str = ""
    page: int = 1
    size: int = ROWS

    @classmethod
    def of(cls, query: Mapping[str, str], sort: str) -> Wanted:
        """What stands in the address of a page; what is none of it counts as not there."""
        return cls(
            query.get("q", "")[:FILTER_CHARACTERS_MAX],
            query.get("sort") or sort,
            whole(query.get("page"), 1, 1, 1_000_000),
            whole(query.get("size"), ROWS, 1, ROWS_MAX),
        )


@attrs.frozen
class Listing:
    """The rows of a page, how many pass the filter, and how many pages they are."""

    rows: list[Row]
    found: int
    page: int
    pages: int


def whole(told: str | None, default: int, least: int, most: int) -> int:
    """A number between bounds; the default where it is none."""
    try:
        return min(max(int(told or default), least), most)
    except ValueError:
        return default


def listed(rows: Iterable[Row], wanted: Wanted, columns: Iterable[str]) -> Listing:
    """What the page shows."""
    passing = [_test(word, [*columns]) for word in wanted.words.split()]
    found = [row for row in rows if all(test(row) for test in passing)]
    name, falls = wanted.sort.removeprefix("-"), wanted.sort.startswith("-")
    numbers = [row for row in found if is_number(row.get(name))]
    empty = [row for row in found if row.get(name) is None]
    others = [row for row in found if row.get(name) is not None and not is_number(row.get(name))]
    numbers.sort(key=lambda row: row[name], reverse=falls)
    others.sort(key=lambda row: natural(text(row[name])), reverse=falls)
    ordered = [*numbers, *others, *empty]
    pages = max(1, -(-len(ordered) // wanted.size))
    page = min(wanted.page, pages)
    return Listing(ordered[(page - 1) * wanted.size : page * wanted.size], len(ordered), page, pages)


def _test(word: str, columns: list[str]) -> Callable[[Row], bool]:
    compared = _COMPARED.fullmatch(word)
    if compared is None or compared[1] not in columns:
        low = word.lower()
        return lambda row: any(low in text(row.get(name)).lower() for name in ("identity", *columns))
    name, sign, told = compared[1], compared[2], compared[3]
    if sign in _ORDERS:
        try:
            limit = float(told)
        except ValueError:
            return lambda row: False
        return lambda row: is_number(row.get(name)) and _ORDERS[sign](row[name], limit)
    if sign == "=":
        return lambda row: _same(row.get(name), told)
    return lambda row: not _same(row.get(name), told)


def _same(value: Any, told: str) -> bool:
    return text(value).lower() == told.lower() or is_number(value) and told == f"{value:g}"
