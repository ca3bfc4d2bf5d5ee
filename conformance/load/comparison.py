"""Contestants in turns: each case on each of them, round by round, and what their ratios say.

A machine changes while it measures. Runs within the same seconds meet the same machine, so only the ratios of
a round count; the order turns round with each round. The median of the ratios is given with an interval that
holds it with 95 % (by the order of the ratios, whatever their distribution is): where the interval is wide,
the machine was too restless to tell. Rounds are added until it is told, so of many equal rows a few more than
one in twenty may be told wrongly: measure such a row again.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from math import comb
from typing import Final

import attrs

from amqp_broker.bench.run import Client
from amqp_broker.conformance.load.cases import Case
from amqp_broker.conformance.load.contestants import Contestant
from amqp_broker.conformance.load.processes import wait_for_quiet
from amqp_broker.conformance.load.sitting import Report, Sitting
from amqp_broker.conformance.load.tables import Row, failed, number, remarks

FEWEST: Final = 6  # below it no interval of 95 % exists
CONFIDENCE: Final = 0.95
WARM_S: Final = 3.0
"""What a broker that is kept gets of each case before it counts: Java compiles what was called often."""


@attrs.frozen
class Interval:
    """A median, and the bounds that hold it with 95 %."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def interval_of(values: Sequence[float]) -> Interval:
    """The interval of the median by the order of the values: the true one is below the k-th of n with the
    chance that fewer than k of n throws of a coin are heads. Below six values it is all of them.
    """
    ordered, count = sorted(values), len(values)
    dropped, tail = 0, 0.0
    while dropped < (count - 1) // 2:
        tail += comb(count, dropped) / 2**count
        if 1 - 2 * (tail + comb(count, dropped + 1) / 2**count) < CONFIDENCE:
            break
        dropped += 1
    return Interval(statistics.median(ordered), ordered[dropped], ordered[-1 - dropped])


@attrs.frozen
class Rules:
    """How long is measured, and what counts as slower."""

    rounds: int = FEWEST
    most_rounds: int = 30
    tolerance: float = 0.03
    seconds: float = 1.0
    patience_s: float = 60.0

    def verdict(self, found: Interval) -> str:
        """Whether a rate of so many times the first one's is too small; "" where that cannot be told."""
        least = 1 - self.tolerance
        if found.low >= least:
            return "no"
        return "SLOWER" if found.high < least else ""


class Comparison:
    """One case on all contestants; the first one is what the others are compared with."""

    def __init__(self, case: Case, contestants: Sequence[Contestant], client: Client, rules: Rules) -> None:
        self.case = case
        self.contestants = contestants
        self.client = client
        self.rules = rules
        self.reports: list[list[Report]] = [[] for _ in contestants]
        self.sizes: dict[int, dict[str, object]] = {}
        """How long the runs of those are that are kept."""
        self.absent: dict[int, str] = {}
        """Why one of the others has no figures."""

    def run(self) -> None:
        """Rounds until each of the others is told from the first, or there were enough. Raises RuntimeError
        when a run of a tree fails.
        """
        with ExitStack() as stack:
            kept: dict[int, Sitting] = {
                place: stack.enter_context(one.sitting(self.client, self.rules.seconds))
                for place, one in enumerate(self.contestants)
                if not one.starts_afresh
            }
            changes = self._once(0, kept, None)
            for place, sitting in kept.items():
                self._warm(place, sitting)
            for done in range(self.rules.most_rounds):
                if done >= self.rules.rounds and all(self._verdict(place) for place in self._judged()):
                    break
                wait_for_quiet(self.rules.patience_s)
                order = range(len(self.contestants))
                for place in order if done % 2 else reversed(order):
                    if place not in self.absent:
                        self._once(place, kept, self.sizes.get(place, changes))

    def _warm(self, place: int, sitting: Sitting) -> None:
        """Some seconds of a broker that is kept, which say how long its runs are; one that fails is out of
        this case.
        """
        if not self.case.fits(sitting):
            self.absent[place] = "has it not"
            return
        end = time.monotonic() + WARM_S
        try:
            while time.monotonic() < end:
                self.sizes[place] = self.case.sized(sitting)
        except RuntimeError as error:
            self.absent[place] = f"failed: {str(error)[:80]}"

    def _once(
        self, place: int, kept: dict[int, Sitting], changes: dict[str, object] | None
    ) -> dict[str, object]:
        """One run of a contestant; without changes a run that is only to find how long one lasts."""
        with ExitStack() as stack:
            one = self.contestants[place]
            sitting = kept.get(place) or stack.enter_context(one.sitting(self.client, self.rules.seconds))
            if changes is None:
                return self.case.sized(sitting)
            if one.starts_afresh:
                self.case.warm_up(sitting, changes)
            try:
                self.reports[place].append(self.case.once(sitting, changes))
            except RuntimeError as error:
                if one.starts_afresh:
                    raise
                self.absent[place] = f"failed: {str(error)[:80]}"
            return changes

    def ratios(self) -> list[Interval]:
        """How many times the first one's figure each of the other trees reached: more is always better."""
        return [self._ratio(place) for place in self._judged()]

    def _judged(self) -> list[int]:
        """The other trees: nobody else can be too slow."""
        return [place for place, one in enumerate(self.contestants) if place and one.starts_afresh]

    def _verdict(self, place: int) -> str:
        return self.rules.verdict(self._ratio(place))

    def _ratio(self, place: int) -> Interval:
        figure = self.case.figure
        pairs = zip(self.reports[0], self.reports[place], strict=True)
        found = [(figure(first), figure(other)) for first, other in pairs]
        less = self.case.less_is_better
        return interval_of([first / other if less else other / first for first, other in found])

    def row(self) -> Row:
        """The first one's median, how far two of its runs differ, and for each of the others the ratio, the
        ratio of the broker's processor time where it is known (less is better), and the verdict.
        """
        own = [self.case.figure(report) for report in self.reports[0]]
        steps = [abs(after / before - 1) for before, after in zip(own, own[1:], strict=False)]
        noise = f"{statistics.median(steps):.1%}" if steps else ""
        found = [self.case.name + self._remarks(0), number(statistics.median(own)), noise]
        for place, one in enumerate(self.contestants[1:], 1):
            if place in self.absent:
                found += [self.absent[place], ""]
                continue
            found += [str(self._ratio(place)) + self._remarks(place), self._processor_time(place)]
            if one.starts_afresh:
                found.append(self._verdict(place))
        return [*found, str(len(own))]

    def _remarks(self, place: int) -> str:
        reports = self.reports[place]
        return remarks(reports, reports[len(reports) // 2])

    def _processor_time(self, place: int) -> str:
        both = [
            (first["broker_us"], other["broker_us"])
            for first, other in zip(self.reports[0], self.reports[place], strict=True)
            if first.get("broker_us") and other.get("broker_us")
        ]
        return str(interval_of([other / first for first, other in both])) if both else ""


def heads(contestants: Sequence[Contestant]) -> list[str]:
    """Of the table."""
    first, *others = contestants
    found = ["case", f"{first.name}: a second (median)", "two of its runs differ by"]
    for one in others:
        found += [f"{one.name}: times that", "its processor time", *(["slower"] if one.starts_afresh else [])]
    return [*found, "rounds"]


def compared(
    cases: Sequence[Case], contestants: Sequence[Contestant], client: Client, rules: Rules
) -> Iterator[Row]:
    """A row for each case, each also on standard error when it is known."""
    for case in cases:
        comparison = Comparison(case, contestants, client, rules)
        try:
            comparison.run()
            found = comparison.row()
        except RuntimeError as error:
            found = failed(case, error)
        print(" | ".join(found), file=sys.stderr, flush=True)
        yield found
