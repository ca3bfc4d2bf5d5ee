"""How a command prints what the broker says: a table for people, JSON for programs."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from typing import Any, Final, TextIO
from unicodedata import combining, east_asian_width

BOLD: Final = "\x1b[1m"
PLAIN: Final = "\x1b[0m"
CLEAR: Final = "\x1b[H\x1b[J"


def has_colours(stream: TextIO) -> bool:
    """Whether what is written goes to a terminal whose user wants colours (no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def as_json(value: Any) -> str:
    """One line of JSON. Octets that are no UTF-8 are `{"base64": ...}`."""
    return json.dumps(value, ensure_ascii=False, default=_of_wire) + "\n"


def _of_wire(value: Any) -> Any:
    if not isinstance(value, bytes):
        return str(value)
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def as_table(
    names: Sequence[str], rows: Sequence[Sequence[Any]], *, colours: bool = False,
    right: Sequence[bool] | None = None,
) -> str:  # fmt: skip
    """Columns as wide as what is in them, numbers to the right, or those that `right` says; no octet of a
    name reaches the terminal that could steer it.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max([width(name), *(width(row[at]) for row in cells)]) for at, name in enumerate(names)]
    columns = [[row[at] for row in rows if row[at] is not None] for at in range(len(names))]
    if right is None:
        right = [bool(column) and all(is_number(value) for value in column) for column in columns]
    lines = []
    for row in [[*names], *cells]:
        padded = [
            " " * (room - width(text)) + text if to_right else text + " " * (room - width(text))
            for text, room, to_right in zip(row, widths, right, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    if colours:
        lines[0] = f"{BOLD}{lines[0]}{PLAIN}"
    return "\n".join(lines) + "\n"


def as_text(value: Any) -> str:
    """A value on one line, without what could steer a terminal."""
    return _cell(value) + "\n"


def is_number(value: Any) -> bool:
    """Whether a value of an attribute is a number: true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, dict | list):
        value = as_json(value).rstrip()
    return printable(str(value))


def width(text: str) -> int:
    """How many cells of a terminal it takes: some letters take two, marks on letters none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if combining(letter) else 2 if east_asian_width(letter) in "WF" else 1 for letter in text
    )


def cut(text: str, most: int) -> str:
    """So many cells of it at most."""
    if width(text) <= most:
        return text
    while width(text) > most - 1:
        text = text[:-1]
    return f"{text}…"


def printable(text: str) -> str:
    """Without what could steer a terminal: names are chosen by clients."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
