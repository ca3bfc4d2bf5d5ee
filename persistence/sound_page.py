"""A page of a list: what is damaged is left out, and it is full nevertheless if there is enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from amqp_broker.persistence.unit_of_work import Row

K = TypeVar("K", int, bytes)
V = TypeVar("V")


def sound_page(
    read: Callable[[K, int], list[Row]],
    value_of: Callable[[Row], V | None],
    key_of: Callable[[Row], K],
    after: K,
    count: int,
) -> list[V]:
    """Up to `count` values behind the key `after`; `read` gives rows behind a key, up to a limit."""
    found: list[V] = []
    while len(found) < count:
        limit = count - len(found)
        rows = read(after, limit)
        found.extend([value for value in map(value_of, rows) if value is not None])
        if len(rows) < limit:
            break
        last = key_of(rows[-1])
        if not isinstance(last, type(after)) or last <= after:
            break  # a damaged key would lead round in a circle
        after = last
    return found
