"""Lives that end at a named fault point, and what must be true of the commits on their way."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from amqp_broker.persistence.fault_points import POINTS
from tests.crash.broker_process import BrokerProcess
from tests.promises.fates import Fate


@dataclass(frozen=True, slots=True)
class Death:
    """The broker of this life died at this point by itself."""

    life: int
    point: str
    starting: bool = False
    """It died before it had clients."""


def points_of(*words: str) -> tuple[str, ...]:
    """All points that have one of these words before the dot, in the order of their names."""
    return tuple(sorted(point for point in POINTS if point.split(".")[0] in words))


def died_at_a_point(broker: BrokerProcess) -> bool:
    """Whether it was killed, and not by us: so it passed the point for which it was armed."""
    return broker.process.poll() == -signal.SIGKILL


def check_deaths(
    deaths: Iterable[Death], ways: Sequence[str], lost: Mapping[int, Sequence[Fate]]
) -> list[str]:
    """At a death on the way of a commit one that is on its way is stored, or is not, as the place of the
    point before or after the COMMIT says.

    `ways` are the words before the dot of such points; `lost` tells by life how the commits ended whose
    answer was lost.
    """
    complaints = []
    for death in deaths:
        way, _, place = death.point.partition(".")
        if way not in ways or death.starting:
            continue
        expected = Fate.COMMITTED if place == "after_commit" else Fate.ABSENT
        fates = lost.get(death.life, ())
        if expected not in fates:
            complaints.append(
                f"life {death.life} died at {death.point}, and of {len(fates)} commits on their way none is "
                f"{expected.value}"
            )
    return complaints


def count_deaths(deaths: Iterable[Death]) -> str:
    """How many there were at each point, in words."""
    counts = Counter(death.point for death in deaths)
    return ", ".join(f"{count} at {point}" for point, count in sorted(counts.items()))
