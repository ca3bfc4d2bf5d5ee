"""The filters of a link that reads a retaining node (3.5.1, 3.5.8), and the errors of reading.

    rabbitmq:stream-offset-spec     where to begin: "first", "last", "next", an offset, or a timestamp
    amqp-broker:until               ulong, exclusive: exactly the offsets before it
    amqp-broker:cursor              string: the durable cursor to begin at, and to move by accepted

Each is a described value whose descriptor is its own name as a symbol; the key in the map does not matter.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from amqp_broker.filters.source_filter import SourceFilter, filter_name
from amqp_broker.frames import (
    INTEGERS,
    Described,
    Symbol,
    Timestamp,
)
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.nodes.termini import filters_in_effect

OFFSET_SPEC: Final = "rabbitmq:stream-offset-spec"
UNTIL: Final = "amqp-broker:until"
CURSOR: Final = "amqp-broker:cursor"
NAMES: Final = frozenset((OFFSET_SPEC, UNTIL, CURSOR))

FIRST: Final = "first"
LAST: Final = "last"
NEXT: Final = "next"
AT_OFFSET: Final = "offset"
AT_TIME: Final = "time"
WORDS: Final = (FIRST, LAST, NEXT)

OFFSET_MAX: Final = 2**62  # above what a store numbers

DROPPED: Final = "retained:dropped"
BEYOND: Final = "retained:beyond"
INVALID: Final = "amqp:invalid-field"
NOT_ALLOWED: Final = "amqp:not-allowed"
LOCKED: Final = "amqp:resource-locked"
NO_ROOM: Final = "amqp:resource-limit-exceeded"


@attrs.frozen
class Start:
    """Where reading begins: one of WORDS, or AT_OFFSET, or AT_TIME (milliseconds of the Unix epoch) in
    `number`.
    """

    kind: str
    number: int = 0


BEGIN_NEXT: Final = Start(NEXT)


@attrs.frozen
class ReadRequest:
    """What the filters of a link ask for; `effective` is what is echoed (3.5.8)."""

    start: Start
    until: int | None
    cursor: str | None
    passes: SourceFilter | None
    """Which messages are sent; None is all."""
    effective: dict[str, Any]


def asks_to_read(filters: object) -> bool:
    """Whether one of the filters is ours."""
    return isinstance(filters, dict) and any(
        filter_name(key, value) in NAMES for key, value in filters.items()
    )


def read_filters(filters: dict[str, Any] | None, name_bytes: int) -> ReadRequest:
    """What the filters ask for, cursors by names of so many bytes at most. Raises NodeRefused."""
    start, until, cursor = BEGIN_NEXT, None, None
    effective: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for key, value in (filters or {}).items():
        name = filter_name(key, value)
        if value is None:
            continue
        if name not in NAMES:
            others[key] = value
            continue
        if not isinstance(value, Described):
            raise NodeRefused(
                INVALID, f"filter {key!r:.80}: expected a described value, its descriptor the symbol {name!r}"
            )
        if name == OFFSET_SPEC:
            start = read_start(value.value, f"filter {name}")
        elif name == UNTIL:
            until = read_offset(value.value, f"filter {name}")
        else:
            cursor = read_cursor_name(value.value, f"filter {name}", name_bytes)
        effective[key] = value
    passes, honoured = filters_in_effect(others)
    return ReadRequest(start, until, cursor, passes, effective | (honoured or {}))



def read_start(value: object, what: str) -> Start:
    """Where to begin. Raises NodeRefused."""
    text = value.value if isinstance(value, Symbol) else value
    if isinstance(text, str) and text in WORDS:
        return Start(text)
    if isinstance(value, Timestamp):
        return Start(AT_TIME, value.value)
    number = whole(value)
    if number is not None and 0 <= number <= OFFSET_MAX:
        return Start(AT_OFFSET, number)
    raise NodeRefused(
        INVALID, f'{what}: expected "first", "last", "next", an offset or a timestamp, got {value!r:.80}'
    )


def read_offset(value: object, what: str) -> int:
    """An offset. Raises NodeRefused."""
    number = whole(value)
    if number is None or not 0 <= number <= OFFSET_MAX:
        raise NodeRefused(INVALID, f"{what}: expected an offset from 0 on, got {value!r:.80}")
    return number


def read_cursor_name(value: object, what: str, name_bytes: int) -> str:
    """The name of a cursor. Raises NodeRefused."""
    if isinstance(value, str) and value.isprintable() and 0 < len(value.encode()) <= name_bytes:
        return value
    raise NodeRefused(
        INVALID,
        f"{what}: expected the name of a cursor, 1 to {name_bytes} bytes of UTF-8 "
        f"(limits.cursor_name_bytes) without control characters, got {value!r:.80}",
    )


def whole(value: object) -> int | None:
    """An integer of any integral type, or None."""
    if isinstance(value, INTEGERS):
        return value.value
    return value if type(value) is int else None
