"""What happens to the fields of a log event before it is rendered: secrets are replaced, everything else is
bounded.

All are structlog processors, and none needs structlog.
"""

from __future__ import annotations

import traceback
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
OWN_KEYS: Final = frozenset(("event", "level", "timestamp", "room", "exception", "exc_info"))
"""Keys that we fill ourselves; the exception has its own length."""

EXCEPTION_CHARACTERS: Final = 16_384
"""The last ones of a traceback are kept."""

EventDict = MutableMapping[str, Any]


def redact(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """A processor: the values of fields that name a secret are replaced, at any depth."""
    for key, value in event.items():
        if key not in OWN_KEYS:
            event[key] = REDACTED if _is_secret(key) else _redacted_inside(value, DEPTH_MAX)
    return event


def _is_secret(key: object) -> bool:
    name = str(key).lower().replace("-", "_")
    return any(word in name for word in SECRET_WORDS)


def _redacted_inside(value: object, depth: int) -> object:
    if depth and isinstance(value, dict):
        return {k: REDACTED if _is_secret(k) else _redacted_inside(v, depth - 1) for k, v in value.items()}
    if depth and isinstance(value, (list, tuple)):
        return [_redacted_inside(item, depth - 1) for item in value]
    return value


class Bounder:
    """A processor: every field is cut to a number of characters, and its control characters are escaped."""

    def __init__(self, characters: int = DEFAULT_LIMITS.log_field_characters) -> None:
        self._characters = characters

    def __call__(self, _logger: Any, _method: str, event: EventDict) -> EventDict:
        for key in list(event):
            if key not in OWN_KEYS:
                event[key] = self._bounded(event[key], DEPTH_MAX)
        return event

    def _bounded(self, value: object, depth: int) -> object:
        if value is None or isinstance(value, (bool, float)):
            return value
        if isinstance(value, int):
            return value if value.bit_length() <= 64 else self._text(f"{value.bit_length()} bits")
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, (bytes, bytearray, memoryview)):
            return self._text(bytes(value[: self._characters]).hex())
        if depth and isinstance(value, dict):
            items = list(value.items())[:ITEMS_MAX]
            return {self._text(str(k)): self._bounded(v, depth - 1) for k, v in items}
        if depth and isinstance(value, (list, tuple, set, frozenset)):
            return [self._bounded(item, depth - 1) for item in list(value)[:ITEMS_MAX]]
        try:
            return self._text(str(value))
        except Exception as error:  # an object that cannot print itself must not end a connection
            return f"<{type(value).__name__}: {type(error).__name__}>"

    def _text(self, value: str) -> str:
        """Cut and escaped; the end says how much was there."""
        cut = value[: self._characters]
        escaped = cut if cut.isprintable() else "".join(_escaped(character) for character in cut)
        if len(escaped) <= self._characters and len(cut) == len(value):
            return escaped
        mark = f"...({len(value)})"
        return escaped[: self._characters - len(mark)] + mark


def _escaped(character: str) -> str:
    return (
        character
        if character.isprintable()
        else character.encode("unicode_escape", "replace").decode("ascii")
    )


def exception_text(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """A processor: `exc_info=True` becomes the text of the traceback, cut and escaped.

    The values of variables are not in it: they may be passwords and messages.  What an exception says may
    come from a peer.
    """
    if event.pop("exc_info", None):
        lines = traceback.format_exc().rstrip("\n")[-EXCEPTION_CHARACTERS:].split("\n")
        event["exception"] = "\n".join("".join(_escaped(character) for character in line) for line in lines)
    return event
