"""What a field of a log event may show: no secret, a bounded number of characters, no control characters."""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from typing import Any, Final

from amqp_broker.configuration_limits import DEFAULT_LIMITS

REDACTED: Final = "[redacted]"
SECRET_WORDS: Final = (
    "password",
    "secret",
    "verifier",
    "scram",
    "token",
    "credential",
    "initial_response",
    "stored_key",
    "server_key",
    "private_key",
    "salt",
)
"""A field whose name contains one of these is redacted; `scram` stands in the keys of the configuration."""
ITEMS_MAX: Final = 16
"""Items of a list or map that are shown."""
DEPTH_MAX: Final = 3
"""Levels of nested lists and maps that are shown."""
OWN_KEYS: Final = frozenset(("event", "level", "timestamp", "room"))
"""Keys that we fill ourselves."""
EXCEPTION: Final = "exception"
"""The key of a traceback: its lines stay lines.  The values of variables are not in it, but what an exception
says may come from a peer.
"""
EXCEPTION_CHARACTERS: Final = 16_384
"""The last ones of a traceback are kept."""


class FieldBounds:
    """A structlog processor: what stands in an event's fields becomes fit to be written.

    Secrets are replaced; the rest is cut to a number of characters, and control characters are escaped.
    """

    def __init__(self, characters: int = DEFAULT_LIMITS.log_field_characters) -> None:
        self._characters = characters

    def __call__(
        self, _logger: Any, _method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        for key, value in event.items():
            if key == EXCEPTION:
                event[key] = "\n".join(map(_printable, str(value)[-EXCEPTION_CHARACTERS:].split("\n")))
            elif key not in OWN_KEYS:
                event[key] = REDACTED if _is_secret(key) else self._bounded(value, DEPTH_MAX)
        return event

    def _bounded(self, value: object, depth: int) -> object:
        if value is None or isinstance(value, bool) or (isinstance(value, float) and math.isfinite(value)):
            return value
        if isinstance(value, int):
            return value if value.bit_length() <= 64 else self._text(f"{value.bit_length()} bits")
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._text(bytes(value[: self._characters]).hex())
        if isinstance(value, (dict, list, tuple, set, frozenset)):
            return self._items(value, depth - 1) if depth else f"...({len(value)})"
        try:
            return self._text(str(value))
        except Exception as error:  # an object that cannot print itself must not end a connection
            return f"<{type(value).__name__}: {type(error).__name__}>"

    def _items(self, value: Any, depth: int) -> object:
        """The first ones of a map or list."""
        items = list(value)[:ITEMS_MAX]
        if not isinstance(value, dict):
            return [self._bounded(item, depth) for item in items]
        return {
            self._text(str(key)): REDACTED if _is_secret(key) else self._bounded(value[key], depth)
            for key in items
        }

    def _text(self, value: str) -> str:
        """Cut and escaped; the end says how much was there."""
        cut = value[: self._characters]
        escaped = _printable(cut)
        if len(escaped) <= self._characters and len(cut) == len(value):
            return escaped
        mark = f"...({len(value)})"
        return escaped[: self._characters - len(mark)] + mark


def _is_secret(key: object) -> bool:
    name = str(key).lower().replace("-", "_")
    return any(word in name for word in SECRET_WORDS)


def _printable(text: str) -> str:
    """The text with its control characters escaped."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )
