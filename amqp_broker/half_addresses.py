"""The addresses of half messages.

$half/<group>/<destination>         put         the destination may contain "/"
$half-resolve/<group>               resolve
$half-check/<group>                 be asked
$half-check/<group>/by-outcome      be asked, and answer by the outcome
$half-parked/<group>                look at what is parked

group = 1*64 of A-Z a-z 0-9 . _ -
"""

from __future__ import annotations

import re
from typing import Final

import attrs

PUT: Final = "$half"
RESOLVE: Final = "$half-resolve"
CHECK: Final = "$half-check"
PARKED: Final = "$half-parked"
BY_OUTCOME: Final = "by-outcome"
KINDS: Final = (PUT, RESOLVE, CHECK, PARKED)

_GROUP: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


@attrs.frozen
class HalfAddress:
    """One of these addresses; `destination` is for PUT only, `by_outcome` for CHECK."""

    kind: str
    group: str
    destination: str = ""
    by_outcome: bool = False


def is_group_name(name: str) -> bool:
    """Whether this can be the name of a producer group."""
    return _GROUP.fullmatch(name) is not None


def is_half_address(name: str) -> bool:
    """Whether this is meant to be one of them."""
    return name.partition("/")[0] in KINDS


def parse_half_address(name: str) -> HalfAddress | None:
    """The parts of the address; None for what does not keep the grammar."""
    kind, _, rest = name.partition("/")
    group, _, last = rest.partition("/")
    if kind not in KINDS or not is_group_name(group):
        return None
    if kind == PUT:
        return HalfAddress(PUT, group, destination=last) if last else None
    if not last and "/" not in rest:
        return HalfAddress(kind, group)
    if kind == CHECK and last == BY_OUTCOME:
        return HalfAddress(CHECK, group, by_outcome=True)
    return None


def resolve_address(group: str) -> str:
    """Where checks are answered."""
    return f"{RESOLVE}/{group}"
