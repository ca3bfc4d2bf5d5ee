"""What a field of the configuration says of itself, how its value is checked, and how an error reads.

A field is declared once, by `setting`: its default, what may stand in it, and its meaning.  Every check runs
when the attrs class is made, so that a configuration built in Python is checked exactly as one that was read
from TOML.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import attrs

VALUE_CHARACTERS_SHOWN: Final = 100
"""A longer value is cut in an error: the message has to stay readable in a terminal."""

MEANING: Final = "meaning"
"""Metadata: what the field is for, for people."""
KEY: Final = "key"
"""Metadata: the key in the file, where it differs from the attribute (`[[listener]]` fills `listeners`)."""
SECRET: Final = "secret"
"""Metadata: the value is never shown."""

Check = Callable[[Any, "attrs.Attribute[Any]", Any], None]


@attrs.frozen
class Problem:
    """One thing that is wrong in a configuration.

    `field` is dotted as in the file (`limits.max_frame_size_bytes`, `listener[0].url`), `value` is the
    shortened text of what was found (None when something is missing, or is not to be shown), `allowed` says
    what may stand there.
    """

    field: str
    value: str | None
    allowed: str

    def __str__(self) -> str:
        found = self.field if self.value is None else f"{self.field} = {self.value}"
        return f"{found}: {self.allowed}"


class ConfigurationError(Exception):
    """Something is wrong in a configuration; `problems` says what, one for each place."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        lines = [str(problem) for problem in problems]
        super().__init__("\n  ".join([f"{len(lines)} errors", *lines] if len(lines) > 1 else lines))

    def within(self, path: str) -> ConfigurationError:
        """These problems, with their fields named from the table that holds this one."""
        start = path and f"{path}."
        return ConfigurationError(
            *(attrs.evolve(problem, field=start + problem.field) for problem in self.problems)
        )

    def named(self, field: str) -> ConfigurationError:
        """These problems, of a value that came by the name `field`."""
        return ConfigurationError(*(attrs.evolve(problem, field=field) for problem in self.problems))


def shown(value: object) -> str:
    """A value as an error shows it: as in TOML where that is easy, shortened, without control characters."""
    if isinstance(value, bool):
        text = "true" if value else "false"
    elif isinstance(value, str):
        text = '"' + value.encode("unicode_escape").decode("ascii") + '"'
    else:
        text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= VALUE_CHARACTERS_SHOWN else text[: VALUE_CHARACTERS_SHOWN - 3] + "..."


def key_of(field: attrs.Attribute[Any]) -> str:
    """How the file names a field."""
    key: str = field.metadata.get(KEY, field.name)
    return key


@attrs.frozen
class Allowed:
    """A validator: what may stand in a field in words, and the question whether a value is that.

    `holds` may raise ValueError to say why not.  None may stand where it is the default.
    """

    words: str
    holds: Callable[[Any], bool]

    def __call__(self, instance: object, field: attrs.Attribute[Any], value: object) -> None:
        if value is not None or field.default is not None:
            text = "(not shown)" if field.metadata.get(SECRET) else shown(value)
            self.check(key_of(field), value, text)

    def check(self, name: str, value: object, text: str) -> None:
        """Raise ConfigurationError unless the value of this name is allowed; `text` shows it."""
        reason = ""
        try:
            if self.holds(value):
                return
        except ValueError as error:
            reason = f" ({error})"
        raise ConfigurationError(Problem(name, text, self.words + reason))


FLAG: Final = Allowed("must be true or false", lambda value: isinstance(value, bool))


def whole_number(low: int, high: int, unit: str) -> Allowed:
    """An integer from `low` to `high`; `unit` is said in the error."""

    def holds(value: object) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

    return Allowed(f"must be a whole number from {low} to {high} ({unit})", holds)


def one_of(*words: str) -> Allowed:
    """One of these words."""
    return Allowed("must be one of " + ", ".join(f'"{word}"' for word in words), lambda value: value in words)


def text(max_bytes: int = 255) -> Allowed:
    """A non-empty string of at most `max_bytes` of UTF-8 without control characters."""

    def holds(value: object) -> bool:
        fine = isinstance(value, str) and 0 < len(value.encode("utf-8", "replace")) <= max_bytes
        return fine and str(value).isprintable()

    return Allowed(f"must be a string of 1 to {max_bytes} bytes of UTF-8 without control characters", holds)


def each(member: Allowed) -> Check:
    """A validator: a tuple of at least one value, each of which is allowed."""
    some = Allowed(
        "must be an array of at least one string", lambda value: isinstance(value, tuple) and bool(value)
    )
    return _members(some, member)


def any_of(member: Allowed) -> Check:
    """A validator: a tuple of any number of values, each of which is allowed."""
    return _members(Allowed("must be an array of strings", lambda value: isinstance(value, tuple)), member)


def _members(some: Allowed, member: Allowed) -> Check:
    def check(instance: object, field: attrs.Attribute[Any], value: Any) -> None:
        some(instance, field, value)
        raise_all(_problems_of_members(member, key_of(field), value))

    return check


def _problems_of_members(member: Allowed, name: str, values: tuple[object, ...]) -> Iterator[Problem]:
    for index, value in enumerate(values):
        try:
            member.check(f"{name}[{index}]", value, shown(value))
        except ConfigurationError as error:
            yield from error.problems


def raise_all(problems: Iterable[Problem]) -> None:
    """Raise ConfigurationError if there are any."""
    found = tuple(problems)
    if found:
        raise ConfigurationError(*found)


def about(meaning: str, key: str = "", secret: bool = False) -> dict[str, object]:
    """The metadata of a field."""
    return {MEANING: meaning} | ({KEY: key} if key else {}) | ({SECRET: True} if secret else {})


def setting(default: object, allowed: Check, meaning: str, key: str = "", secret: bool = False) -> Any:
    """A field with a default; one that has to be given is an `attrs.field` with the metadata of `about`."""
    return attrs.field(
        default=default, validator=allowed, repr=not secret, metadata=about(meaning, key, secret)
    )


@attrs.frozen(kw_only=True)
class Table:
    """A table of the configuration.  Its fields are checked one by one, then against each other."""

    def __attrs_post_init__(self) -> None:
        raise_all(self.contradictions())

    def contradictions(self) -> Iterator[Problem]:
        """What is wrong although each field for itself is allowed."""
        yield from ()

    def _not_above(self, *relations: tuple[str, str]) -> Iterator[Problem]:
        """Each (lower, higher) of which the first exceeds the second."""
        for lower, higher in relations:
            low, high = getattr(self, lower), getattr(self, higher)
            if low > high:
                yield Problem(lower, shown(low), f"must be at most {higher}, which is {high}")
