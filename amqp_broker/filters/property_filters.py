"""Filters that compare fields of a message with values (AMQP Filter Expressions 1.0, 4.2.4 and 4.2.5)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final

from amqp_broker.filters.fields import MessageFields, plain
from amqp_broker.frames import Symbol, Ulong

FILTER_FIELDS: Final = 100
"""Of one filter: each is compared with each message."""

Test = Callable[[Any], bool]
_TEXT: Final = (str,)
_ID: Final = (str, bytes, uuid.UUID, Ulong)
FIELDS: Final[dict[str, tuple[type, ...]]] = {
    "message-id": _ID, "user-id": (bytes,), "to": _TEXT, "subject": _TEXT, "reply-to": _TEXT,
    "correlation-id": _ID, "content-type": _TEXT, "content-encoding": _TEXT,
    "absolute-expiry-time": (object,), "creation-time": (object,), "group-id": _TEXT,
    "group-sequence": (object,), "reply-to-group-id": _TEXT,
}  # fmt: skip
"""The fields of properties (3.2.4), and what may be asked of each."""


def properties_test(asked: Any) -> Callable[[MessageFields], bool]:
    """Whether the properties of a message have these values. Raises ValueError for a filter that is none."""
    tests: list[tuple[str, Test]] = []
    for key, value in _entries(asked):
        name = str(key)
        if name not in FIELDS:
            raise ValueError(f"expected a field of properties (3.2.4), got {name!r:.80}")
        if value is not None and not isinstance(value, FIELDS[name]):
            raise ValueError(f"expected a value of the type of {name}, got {value!r:.80}")
        tests.append((name.replace("-", "_"), test_of(value)))
    return lambda fields: all(test(getattr(fields.properties, name)) for name, test in tests)


def application_properties_test(asked: Any) -> Callable[[MessageFields], bool]:
    """Whether the application-properties of a message have these values. Raises ValueError for a filter
    that is none.
    """
    tests: list[tuple[str, Test]] = []
    for key, value in _entries(asked):
        if not isinstance(key, str) or isinstance(value, (list, dict)):
            raise ValueError(f"expected strings as keys and simple values, got {key!r:.80} = {value!r:.80}")
        tests.append((str(key), test_of(value)))

    def matches(fields: MessageFields) -> bool:
        found = fields.application_properties
        return all(name in found and test(found[name]) for name, test in tests)

    return matches


def _entries(asked: Any) -> list[tuple[Any, Any]]:
    if not isinstance(asked, dict) or not 0 < len(asked) <= FILTER_FIELDS:
        raise ValueError(f"expected a map of 1 to {FILTER_FIELDS} fields, got {asked!r:.80}")
    return [(_text(key), _text(value)) for key, value in asked.items()]


def _text(value: Any) -> Any:
    """The text of a symbol; everything else as it is."""
    return value.value if isinstance(value, Symbol) else value


def test_of(asked: Any) -> Test:
    """Whether a field has this value (4.1.1): null asks for nothing, `&p:` and `&s:` for how a text begins
    and ends, `&&` for a text that begins with `&`. Numbers are equal across their types, and nothing else
    is.
    """
    if asked is None:
        return lambda _value: True
    if isinstance(asked, str):
        return _text_test(str(asked))
    wanted = plain(asked)
    if isinstance(wanted, bool) or not isinstance(wanted, (int, float)):
        return lambda value: type(value) is type(wanted) and value == wanted
    return lambda value: (
        isinstance(plain(value), (int, float)) and not isinstance(value, bool) and plain(value) == wanted
    )


def _text_test(asked: str) -> Test:
    mark, rest = asked[:3], asked[3:]
    if mark == "&p:":
        return lambda value: isinstance(value, str) and value.startswith(rest)
    if mark == "&s:":
        return lambda value: isinstance(value, str) and value.endswith(rest)
    if asked.startswith("&") and not asked.startswith("&&"):
        raise ValueError(f"expected &p:, &s: or && where a text begins with &, got {asked!r:.80}")
    text = asked[1:] if asked.startswith("&&") else asked
    return lambda value: isinstance(value, str) and str(value) == text


