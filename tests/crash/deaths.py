"""Lives that end at a named fault point of a discharge, and what must be true of the commits on their way."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from amqp_broker.persistence.fault_points import POINTS
from tests.crash.broker_process import BrokerProcess
from tests.crash.fates import Account, Fate

DISCHARGE: Final = "discharge."
DISCHARGE_POINTS: Final = tuple(sorted(point for point in POINTS if point.startswith(DISCHARGE)))
STORED: Final = ("discharge.after_commit",)
"""The points of a discharge at which it is durable."""


@dataclass(frozen=True, slots=True)
class Death:
    """The broker of this life died at this point by itself."""

    life: int
    point: str


def died_at_a_point(broker: BrokerProcess) -> bool:
    """Whether it was killed, and not by us: so it passed the point for which it was armed."""
    return broker.process.poll() == -signal.SIGKILL


def check_deaths(deaths: Iterable[Death], accounts: Iterable[Account]) -> list[str]:
    """At a death on the way of a discharge one commit is on its way that is stored, or is not, as the place
    of the point before or after the COMMIT says.
    """
    lost = [account for account in accounts if account.lost_its_answer]
    complaints = []
    for death in deaths:
        if not death.point.startswith(DISCHARGE):
            continue
        expected = Fate.COMMITTED if death.point in STORED else Fate.ABSENT
        fates = [account.fate for account in lost if account.life == death.life]
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
