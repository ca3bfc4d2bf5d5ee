"""The tables of the report. Where scripts run they are sorted by a click on a head."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from amqp_broker.plots import short


class Shown(str):
    """A number as it is to be shown."""


def name(text: str) -> str:
    """A name or a sentence from outside: it keeps its direction to itself."""
    return f"<bdi>{escape(text)}</bdi>"


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Texts and numbers, row by row."""
    kept = list(rows)
    is_number = [bool(kept) and not _is_text(value) for value in (kept[0] if kept else heads)]
    titles = "".join(
        f'<th scope="col"{" class=n" if number else ""}>{head}</th>'
        for head, number in zip(heads, is_number, strict=True)
    )
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in kept)
    return (
        f'<div class="wide" tabindex="0"><table><thead><tr>{titles}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, Shown)


def _cell(value: Any) -> str:
    if _is_text(value):
        return f"<td>{name(value)}</td>"
    if isinstance(value, Shown):
        return f'<td class="n">{value}</td>'
    return f'<td class="n" data-v="{value}">{short(value)}</td>'
