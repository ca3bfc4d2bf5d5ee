"""From the tables of a TOML file to the classes of the configuration; all errors of a file are told at once.

A table whose own values are wrong is not compared with others: what contradicts what is told when each value
is allowed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeVar, get_args

import attrs

from amqp_broker.configuration_fields import ConfigurationError, Problem, key_of, raise_all, shown

T = TypeVar("T")


def structured(cls: type[T], table: object, path: str = "") -> T:
    """The class that this table spells.  Raises ConfigurationError with every problem of the table."""
    if not isinstance(table, dict):
        raise ConfigurationError(Problem(path, shown(table), "must be a table"))
    attrs.resolve_types(cls)  # type: ignore[type-var]
    fields = {key_of(field): field for field in attrs.fields(cls)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, field in fields.items():
        if key in table:
            try:
                values[field.name] = _value(field, table[key], path)
            except ConfigurationError as error:
                problems += error.problems
        elif field.default is attrs.NOTHING:
            problems.append(Problem(_join(path, key), None, "is missing"))
    # What stands behind an unknown key is not shown: a password, as often as not.
    problems += [Problem(_join(path, key), None, _unknown(key, fields)) for key in table if key not in fields]
    raise_all(problems)
    try:
        return cls(**values)
    except ConfigurationError as error:
        raise error.within(path) from None


def _value(field: attrs.Attribute[Any], value: Any, path: str) -> object:
    """One value of the table at this path: a table or an array of tables by its class, else what it is."""
    place = _join(path, key_of(field))
    if attrs.has(field.type):  # type: ignore[arg-type]
        return structured(field.type, value, place)
    member: Any = next(iter(get_args(field.type)), None)
    if attrs.has(member):
        return _tables(member, value, place)
    value = tuple(value) if isinstance(value, list) else value
    assert field.validator is not None, f"anything may stand in {field.name}"
    try:
        field.validator(None, field, value)
    except ConfigurationError as error:
        raise error.within(path) from None
    return value


def _tables(cls: type[T], value: object, place: str) -> tuple[T, ...]:
    """An array of tables."""
    if not isinstance(value, list):
        raise ConfigurationError(
            Problem(place, shown(value), f"must be an array of tables, written as [[{place}]]")
        )
    made: list[T] = []
    problems: list[Problem] = []
    for index, item in enumerate(value):
        try:
            made.append(structured(cls, item, f"{place}[{index}]"))
        except ConfigurationError as error:
            problems += error.problems
    raise_all(problems)
    return tuple(made)


def _join(path: str, key: str) -> str:
    """A dotted path; a key that is not bare is quoted, as TOML does."""
    bare = bool(key) and key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    name = key if bare else shown(key)
    return f"{path}.{name}" if path else name


def _unknown(key: str, known: Collection[str]) -> str:
    """What to say about a key that nobody knows; a near miss is offered."""
    import difflib  # only an error needs it

    near = difflib.get_close_matches(key, known, n=1)
    if near:
        return f"unknown key; did you mean {near[0]}?"
    return f"unknown key; known here: {', '.join(sorted(known))}"
