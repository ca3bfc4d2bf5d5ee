"""Requests to `$retained` as values: the map in their body, and what may stand in it."""

from __future__ import annotations

from typing import Any

import attrs

from amqp_broker.frames import AmqpValue, Message, Properties, Symbol, Timestamp
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.retained.filters import (
    INVALID,
    Start,
    read_cursor_name,
    read_offset,
    read_start,
    whole,
)

MAX_ADDRESSES = 1_024
"""Of one request: a reply about more belongs into several."""


@attrs.frozen
class Request:
    """One request to `$retained`. Every method raises NodeRefused for what is not as expected."""

    correlation_id: Any
    body: dict[str, Any]

    def optional(self, key: str) -> Any:
        """The text of this key, or None."""
        return self.body.get(key)

    def cursor(self, name_bytes: int) -> str:
        """The name of the cursor, of so many bytes at most."""
        return read_cursor_name(self.body.get("cursor"), "cursor", name_bytes)

    def milliseconds(self, key: str) -> int:
        """A timestamp, or a number of milliseconds."""
        value = self.body.get(key)
        number = value.value if isinstance(value, Timestamp) else whole(value)
        if number is None or number < 0:
            raise NodeRefused(INVALID, f"{key}: expected milliseconds from 0 on, got {value!r:.80}")
        return number

    def offset(self, key: str) -> int:
        """One offset."""
        return read_offset(self.body.get(key), key)

    def positions(self, key: str) -> dict[str, int]:
        """The offsets by address."""
        return {name: read_offset(value, f"{key}: {name!r:.80}") for name, value in self._map(key).items()}

    def starts(self, key: str) -> dict[str, Start]:
        """Where to begin, by address."""
        return {name: read_start(value, f"{key}: {name!r:.80}") for name, value in self._map(key).items()}

    def _map(self, key: str) -> dict[str, Any]:
        value = self.body.get(key)
        if not isinstance(value, dict) or len(value) > MAX_ADDRESSES:
            raise NodeRefused(
                INVALID, f"{key}: expected a map of at most {MAX_ADDRESSES} addresses, got {value!r:.80}"
            )
        return _with_text_keys(value, key)


def read_request(payload: bytes, properties: Properties) -> Request:
    """The request of a message. Raises NodeRefused, and DecodeError where it is malformed."""
    sections: Any = Message(payload).body_sections()
    value = sections[0].value if sections and isinstance(sections[0], AmqpValue) else None
    if not isinstance(value, dict):
        raise NodeRefused(INVALID, "expected a map as the amqp-value of the body")
    return Request(properties.correlation_id, _with_text_keys(value, "body"))


def _with_text_keys(value: dict[Any, Any], what: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, item in value.items():
        name = key.value if isinstance(key, Symbol) else key
        if not isinstance(name, str):
            raise NodeRefused(INVALID, f"{what}: expected strings as keys, got {key!r:.80}")
        found[name] = item
    return found
