"""The addresses of half messages.

$half/<group>/<destination>         put         the destination may contain "/"
$half-set/<group>/<producer>/<epoch>/<set>/<destination>                stage in a set; the same
$half-resolve/<group>               resolve
$half-check/<group>                 be asked
$half-check/<group>/by-outcome      be asked, and answer by the outcome
$half-parked/<group>                look at what is parked

group = 1*64 of A-Z a-z 0-9 . _ -
producer, set = 1*128 of the same
epoch = 1*19 digits
"""

from __future__ import annotations

import re
from typing import Final

import attrs

from amqp_broker.addresses import is_group_name
from amqp_broker.coordinator.half_sets import EPOCH_MAX

PUT: Final = "$half"
RESOLVE: Final = "$half-resolve"
CHECK: Final = "$half-check"
PARKED: Final = "$half-parked"
SET: Final = "$half-set"
BY_OUTCOME: Final = "by-outcome"
KINDS: Final = (PUT, RESOLVE, CHECK, PARKED, SET)

_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)
_EPOCH: Final = re.compile(r"[0-9]{1,19}", re.ASCII)


@attrs.frozen
class HalfAddress:
    """One of these addresses; `destination` is for PUT and SET only, `by_outcome` for CHECK, the rest for
    SET.
    """

    kind: str
    group: str
    destination: str = ""
    by_outcome: bool = False
    producer: str = ""
    epoch: int = 0
    set_id: str = ""


def is_set_name(name: object) -> bool:
    """Whether this can be the name of a producer, or the id of a set."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def parse_half_address(name: str) -> HalfAddress | None:
    """The parts of the address; None for what does not keep the grammar."""
    kind, _, rest = name.partition("/")
    group, _, last = rest.partition("/")
    if kind not in KINDS or not is_group_name(group):
        return None
    if kind == PUT:
        return HalfAddress(PUT, group, destination=last) if last else None
    if kind == SET:
        return _parse_set(group, last)
    if not last and "/" not in rest:
        return HalfAddress(kind, group)
    if kind == CHECK and last == BY_OUTCOME:
        return HalfAddress(CHECK, group, by_outcome=True)
    return None


def resolve_address(group: str) -> str:
    """The address where half messages of `group` are resolved, and check-backs answered."""
    return f"{RESOLVE}/{group}"


def _parse_set(group: str, rest: str) -> HalfAddress | None:
    parts = rest.split("/", 3)
    if len(parts) < 4 or not parts[3] or not (is_set_name(parts[0]) and is_set_name(parts[2])):
        return None
    if _EPOCH.fullmatch(parts[1]) is None or int(parts[1]) > EPOCH_MAX:
        return None
    return HalfAddress(
        SET, group, destination=parts[3], producer=parts[0], epoch=int(parts[1]), set_id=parts[2]
    )


def set_address(group: str, producer: str, epoch: int, set_id: str, destination: str) -> str:
    """Where messages of a set are staged, and the name of the hidden node that keeps them."""
    return f"{SET}/{group}/{producer}/{epoch}/{set_id}/{destination}"
