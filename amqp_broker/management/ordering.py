"""Which entities a QUERY tells, and in which order: so that who wants one page is not told all of them."""

from __future__ import annotations

from typing import Any, Final

from amqp_broker.management.entity_types import EntityType
from amqp_broker.management.errors import Unmanageable

CONTAINS_MAX: Final = 200  # characters: every word is looked for in every identity
_BAD_REQUEST: Final = 400
Found = list[tuple[EntityType[Any], Any]]


def containing(found: Found, words: str | None) -> Found:
    """Those whose identity has all of these words, in small or capital letters. Raises Unmanageable."""
    if not words:
        return found
    if len(words) > CONTAINS_MAX:
        raise Unmanageable(
            _BAD_REQUEST, f"contains: expected at most {CONTAINS_MAX} characters, got {len(words)}"
        )
    low = words.lower().split()
    return [one for one in found if all(word in one[0].identity(one[1]).lower() for word in low)]


def ordered(found: Found, name: str | None) -> Found:
    """From the smallest value of an attribute on, or from the largest on with `-` before its name; where it
    is the same, in the order of identities. What has no value comes last. Raises Unmanageable.
    """
    if not name:
        return found
    attribute, falls = name.removeprefix("-"), name.startswith("-")
    for each in {one[0].name: one[0] for one in found}.values():
        if attribute not in each.attribute_names():
            raise Unmanageable(
                _BAD_REQUEST, f"orderBy: expected an attribute of a {each.name}, got {attribute!r:.80}"
            )
    keyed = [(each.said(thing, (attribute,))[attribute], (each, thing)) for each, thing in found]
    known = [one for one in keyed if one[0] is not None]
    known.sort(key=lambda one: _key(one[0]), reverse=falls)
    return [one[1] for one in [*known, *(one for one in keyed if one[0] is None)]]


def _key(value: Any) -> tuple[int, Any]:
    """Numbers before words."""
    return (0, value) if isinstance(value, int | float) else (1, str(value))
