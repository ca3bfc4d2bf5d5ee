"""From the tables of a TOML file to the classes of the configuration: cattrs structures them, and every error
of the file is told at once.

A table whose own values are wrong is not compared with others: what contradicts what is told when each value
is allowed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, get_args

import attrs
from cattrs import (
    AttributeValidationNote,
    BaseValidationError,
    Converter,
    ForbiddenExtraKeysError,
    IterableValidationNote,
)
from cattrs.gen import make_dict_structure_fn, override

from amqp_broker.configuration_fields import KEY, ConfigurationError, Problem, key_of, shown

T = TypeVar("T")


class _WrongShape(Exception):
    """Another type stands where the classes have a table: (the value, what is allowed)."""


def structured(cls: type[T], table: Mapping[str, Any]) -> T:
    """The class that this table spells.  Raises ConfigurationError with every problem of the table."""
    converter = Converter(forbid_extra_keys=True)
    converter.register_structure_hook_factory(attrs.has, _table_hook)
    try:
        return converter.structure(table, cls)
    except BaseValidationError as error:
        raise ConfigurationError(*_problems(error, "", table)) from None


def _table_hook(cls: Any, converter: Converter) -> Any:
    """How cattrs makes one class: keys as in the file, values checked by the validators of their fields."""
    attrs.resolve_types(cls)
    overrides = {
        field.name: override(rename=field.metadata.get(KEY), struct_hook=_field_hook(field, converter))
        for field in attrs.fields(cls)
    }
    # Its stub knows none of the names that it takes.
    structure = make_dict_structure_fn(cls, converter, **overrides)  # type: ignore[arg-type]

    def hook(value: Any, _cls: object) -> object:
        if not isinstance(value, dict):
            raise _WrongShape(value, "must be a table")
        return structure(value, cls)

    return hook


def _field_hook(field: attrs.Attribute[Any], converter: Converter) -> Any:
    """How cattrs makes one value: a table or an array of tables by its class, anything else as it is."""

    def tables(value: Any, cls: Any) -> object:
        if not isinstance(value, list):
            raise _WrongShape(value, f"must be an array of tables, written as [[{key_of(field)}]]")
        return converter.structure(value, cls)

    def checked(value: Any, _cls: object) -> object:
        value = tuple(value) if isinstance(value, list) else value
        assert field.validator is not None, f"anything may stand in {field.name}"
        field.validator(None, field, value)
        return value

    if attrs.has(field.type):  # type: ignore[arg-type]
        return converter.structure
    return tables if any(attrs.has(inner) for inner in get_args(field.type)) else checked


def _problems(error: Exception, path: str, found: Any) -> Iterator[Problem]:
    """What cattrs' tree of errors says about what was found at this path; a fault of ours is raised."""
    if isinstance(error, BaseValidationError):
        for inner in error.exceptions:
            yield from _problems_inside(inner, error.cl, path, found)
    elif isinstance(error, _WrongShape):
        yield Problem(path, shown(error.args[0]), error.args[1])
    else:
        raise error


def _problems_inside(error: Exception, cls: Any, path: str, found: Any) -> Iterator[Problem]:
    """The same of a part: an item of an array, or a field, an unknown key or the whole of a class."""
    note = getattr(error, "__notes__", [None])[0]
    if isinstance(error, ConfigurationError):  # it names the field itself
        yield from (problem.within(path) for problem in error.problems)
    elif isinstance(error, ForbiddenExtraKeysError):
        known = sorted(key_of(field) for field in attrs.fields(cls))
        # What stands there is not shown: a password, as often as not.
        for key in sorted(error.extra_fields):
            yield Problem(_join(path, key), None, _unknown(key, known))
    elif isinstance(note, IterableValidationNote):
        yield from _problems(error, f"{path}[{note.index}]", found[note.index])
    elif isinstance(note, AttributeValidationNote):
        key = key_of(attrs.fields_dict(cls)[note.name])
        if key in found:
            yield from _problems(error, _join(path, key), found[key])
        else:
            yield Problem(_join(path, key), None, "is missing")
    else:
        raise error


def _join(path: str, key: str) -> str:
    """A dotted path; a key that is not bare is quoted, as TOML does."""
    bare = bool(key) and key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    name = key if bare else shown(key)
    return f"{path}.{name}" if path else name


def _unknown(key: str, known: list[str]) -> str:
    """What to say about a key that nobody knows; a near miss is offered."""
    near = difflib.get_close_matches(key, known, n=1)
    if near:
        return f"unknown key; did you mean {near[0]}?"
    return f"unknown key; known here: {', '.join(known)}"
