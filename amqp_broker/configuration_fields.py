"""How one field of the configuration is checked, and how an error about it reads.

Every check runs when the attrs class is made, so that a configuration built in Python is checked exactly as
one that was read from TOML.  An error names the field (dotted, as in the file), the value that was found and
what is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import attrs

VALUE_CHARACTERS_SHOWN = 100
"""A longer value is cut in an error: the message has to stay readable in a terminal."""

KEY = "key"
"""Metadata: the key in the file, where it differs from the attribute (`[[listener]]` fills `listeners`)."""
TABLE = "table"
"""Metadata: the attrs class of a nested table."""
TABLES = "tables"
"""Metadata: the attrs class of each table of an array of tables."""
TUPLE = "tuple"
"""Metadata: an array of the file becomes a tuple."""
SECRET = "secret"
"""Metadata: the value is never shown."""

T = TypeVar("T")
Check = Callable[[Any, "attrs.Attribute[Any]", Any], None]


class ConfigurationError(Exception):
    """A field of the configuration is wrong.

    `field` is dotted as in the file (`limits.max_frame_size_bytes`, `listener[0].url`), `value` is the
    shortened text of what was found (None when something is missing), `allowed` says what may stand there.
    """

    def __init__(self, field: str, value: str | None, allowed: str) -> None:
        self.field = field
        self.value = value
        self.allowed = allowed
        found = field if value is None else f"{field} = {value}"
        super().__init__(f"{found}: {allowed}")

    def within(self, path: str) -> ConfigurationError:
        """The same error, seen from the table that holds this one."""
        if not path:
            return self
        return ConfigurationError(f"{path}.{self.field}" if self.field else path, self.value, self.allowed)


def shown(value: object) -> str:
    """A value as an error shows it: as in TOML where that is easy, shortened, without control characters."""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str):
        text = '"' + value.encode("unicode_escape").decode("ascii") + '"'
    else:
        text = repr(value)
    return text if len(text) <= VALUE_CHARACTERS_SHOWN else text[: VALUE_CHARACTERS_SHOWN - 3] + "..."


def wrong(field: attrs.Attribute[Any], value: object, allowed: str) -> ConfigurationError:
    """The error for one field of an attrs class."""
    name = field.metadata.get(KEY, field.name)
    text = "(not shown)" if field.metadata.get(SECRET) else shown(value)
    return ConfigurationError(name, text, allowed)


def whole_number(low: int, high: int, unit: str) -> Check:
    """A validator: an integer from `low` to `high`; `unit` is said in the error."""

    def check(instance: Any, field: attrs.Attribute[Any], value: Any) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise wrong(field, value, f"must be a whole number from {low} to {high} ({unit})")

    return check


def optional(inner: Check) -> Check:
    """A validator: absent, or what `inner` allows."""

    def check(instance: Any, field: attrs.Attribute[Any], value: Any) -> None:
        if value is not None:
            inner(instance, field, value)

    return check


def flag(instance: Any, field: attrs.Attribute[Any], value: Any) -> None:
    """A validator: true or false."""
    if not isinstance(value, bool):
        raise wrong(field, value, "must be true or false")


def one_of(*allowed: str) -> Check:
    """A validator: one of these words."""

    def check(instance: Any, field: attrs.Attribute[Any], value: Any) -> None:
        if value not in allowed:
            raise wrong(field, value, "must be one of " + ", ".join(f'"{word}"' for word in allowed))

    return check


def text(max_bytes: int = 255) -> Check:
    """A validator: a non-empty string of at most `max_bytes` of UTF-8 without control characters."""

    def check(instance: Any, field: attrs.Attribute[Any], value: Any) -> None:
        allowed = f"must be a string of 1 to {max_bytes} bytes of UTF-8 without control characters"
        if not isinstance(value, str) or not value or not value.isprintable():
            raise wrong(field, value, allowed)
        if len(value.encode("utf-8", "replace")) > max_bytes:
            raise wrong(field, value, allowed)

    return check


def read_table(cls: type[T], table: object, path: str = "") -> T:
    """Make an attrs class of a TOML table; unknown and missing keys are errors.

    Raises ConfigurationError with the whole dotted path of the field.
    """
    if not isinstance(table, Mapping):
        raise ConfigurationError(path, shown(table), "must be a table")
    fields = {field.metadata.get(KEY, field.name): field for field in attrs.fields(cls)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in table.items():
        field = fields.get(key)
        if field is None:
            raise ConfigurationError(_join(path, key), shown(value), _unknown_key(key, sorted(fields)))
        values[field.name] = _read_value(field, value, _join(path, key))
    for key, field in fields.items():
        if field.default is attrs.NOTHING and field.name not in values:
            raise ConfigurationError(_join(path, key), None, "is missing")
    try:
        return cls(**values)
    except ConfigurationError as error:
        raise error.within(path) from None


def _read_value(field: attrs.Attribute[Any], value: object, path: str) -> object:
    """One value of a table, with nested tables made into their classes."""
    if TABLE in field.metadata:
        return read_table(field.metadata[TABLE], value, path)
    if TABLES in field.metadata:
        if not isinstance(value, list):
            raise ConfigurationError(path, shown(value), f"must be an array of tables, written as [[{path}]]")
        return tuple(
            read_table(field.metadata[TABLES], item, f"{path}[{index}]") for index, item in enumerate(value)
        )
    if TUPLE in field.metadata:
        if not isinstance(value, list):
            raise ConfigurationError(path, shown(value), "must be an array of strings")
        return tuple(value)
    return value


def _join(path: str, key: str) -> str:
    """A dotted path; a key that is not bare is quoted, as TOML does."""
    bare = bool(key) and key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    name = key if bare else shown(key)
    return f"{path}.{name}" if path else name


def _unknown_key(key: str, known: list[str]) -> str:
    """What to say about a key that nobody knows; a near miss is offered."""
    import difflib  # only an error needs it, and start-up is short

    near = difflib.get_close_matches(key, known, n=1)
    if near:
        return f"unknown key; did you mean {near[0]}?"
    return f"unknown key; known here: {', '.join(known)}"
