"""Which entities a QUERY tells, and in which order: so that who wants one page is not told all of them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any, Final

import trio

from amqp_broker.management.entity_types import EntityType
from amqp_broker.management.errors import Unmanageable
from amqp_broker.management.requests import BAD_REQUEST
from amqp_broker.natural_order import natural

CONTAINS_MAX: Final = 200  # characters
WORDS_MAX: Final = 10  # each is looked for in every identity
READ_AT_ONCE: Final = 500  # entities, in one turn: names in their order take some milliseconds
Found = list[tuple[EntityType[Any], Any]]


def containing(found: Found, words: str | None) -> Found:
    """Those whose identity has all of these words, in small or capital letters. Raises Unmanageable."""
    if not words:
        return found
    if len(words) > CONTAINS_MAX:
        raise Unmanageable(
            BAD_REQUEST, f"contains: expected at most {CONTAINS_MAX} characters, got {len(words)}"
        )
    low = {*words.lower().split()}
    if len(low) > WORDS_MAX:
        raise Unmanageable(BAD_REQUEST, f"contains: expected at most {WORDS_MAX} words, got {len(low)}")
    passing = []
    for one in found:
        identity = one[0].identity(one[1]).lower()
        for word in low:
            if word not in identity:
                break
        else:
            passing.append(one)
    return passing


def check_order(types: Iterable[EntityType[Any]], name: str | None) -> None:
    """Whether all these types have the attribute to be ordered by. Raises Unmanageable."""
    attribute = (name or "identity").removeprefix("-")
    for each in types:
        if attribute not in each.attribute_names():
            raise Unmanageable(
                BAD_REQUEST, f"orderBy: expected an attribute of a {each.name}, got {attribute!r:.80}"
            )


async def ordered(found: Found, name: str | None, most: int) -> Found:
    """The first `most`, from the smallest value of an attribute on, or from the largest on with `-` before
    its name; where it is the same, in the order of identities. What has no value comes last. Others have
    turns after each READ_AT_ONCE.
    """
    if not name:
        return found[:most]
    attribute = name.removeprefix("-")
    known, others = [], []
    for at, (each, thing) in enumerate(found, 1):
        if at % READ_AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
        value = each.said(thing, (attribute,))[attribute]
        if value is None:
            others.append((each, thing))
        else:
            known.append((_key(value), (each, thing)))
    first: Callable[..., list[Any]] = heapq.nlargest if name.startswith("-") else heapq.nsmallest
    return [*(one[1] for one in first(most, known, key=_first)), *others][:most]


def _first(one: tuple[Any, Any]) -> Any:
    return one[0]


def _key(value: Any) -> tuple[int, Any]:
    """Numbers before words, and names as people count."""
    return (0, value) if isinstance(value, int | float) else (1, natural(str(value)))
