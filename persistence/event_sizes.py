"""What an entry of the journal is as a row, and how many bytes that counts for."""

from __future__ import annotations

import json
from typing import Final

from amqp_broker.persistence.halves import Event

ROW_BYTES: Final = 48  # of its numbers and of the row itself, about

_encode = json.JSONEncoder(separators=(",", ":")).encode


def encoded_fields(event: Event) -> str:
    """The fields of a run as they are stored (event_table.py)."""
    if not event.columns:
        return _encode(event.fields)
    if event.count == 1:
        return _encode(event.singles(0, 1)[0].fields)
    return _encode([event.fields, event.columns])


def size_of(kind: bytes, fields: bytes) -> int:
    """The bytes that a row with these texts counts."""
    return ROW_BYTES + len(kind) + len(fields)


def size_of_event(event: Event) -> int:
    """The bytes that an event counts where it is not in rows."""
    return size_of(event.kind.encode(), encoded_fields(event).encode())
