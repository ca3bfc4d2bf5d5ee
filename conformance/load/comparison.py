"""Contestants in turns: each case on each of them, round by round, and what their ratios say.

A machine changes while it measures. Runs within the same second meet the same machine, so only the ratios
of neighbours count. In a round each contestant has a process of its own, all of them live, and short runs
go from one to the next and back again, some turns of it; the round's ratio is the median of the turns'. The
median of the rounds' ratios is given with an interval that holds it with 95 % (by the order of the ratios,
whatever their distribution is): where the interval is wide, the machine was too restless to tell. Rounds
are added until it is told, so of many equal rows a few more than one in twenty may be told wrongly: measure
such a row again.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
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
    turns: int = 5
    """Of each contestant in each round."""
    seconds: float = 0.4
    """Of each turn."""
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
        self.rounds: list[list[list[Report]]] = [[] for _ in contestants]
        """Of each contestant, by round and turn."""
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
                place: stack.enter_context(self._sitting(place))
                for place, one in enumerate(self.contestants)
                if not one.starts_afresh
            }
            with self._sitting(0) as first:
                changes = self.case.sized(first)
            for place, sitting in kept.items():
                self._warm(place, sitting)
            for done in range(self.rules.most_rounds):
                if done >= self.rules.rounds and all(self._verdict(place) for place in self._judged()):
                    break
                wait_for_quiet(self.rules.patience_s)
                self._round(done, kept, changes)

    def _round(self, number: int, kept: dict[int, Sitting], changes: dict[str, object]) -> None:
        """Some turns of each; who is first changes with each turn, and with each round."""
        order = [place for place in range(len(self.contestants)) if place not in self.absent]
        if number % 2:
            order.reverse()
        with ExitStack() as stack:
            sittings = dict(kept)
            for place in order:
                if place not in kept:
                    sittings[place] = stack.enter_context(self._sitting(place))
                    self.case.warm_up(sittings[place], changes)
                self.rounds[place].append([])
            for turn in range(self.rules.turns):
                for place in reversed(order) if turn % 2 else order:
                    if place not in self.absent:
                        self._turn(place, sittings[place], self.sizes.get(place, changes))

    def _turn(self, place: int, sitting: Sitting, changes: dict[str, object]) -> None:
        """One run. Raises RuntimeError when one of a tree fails; another broker is out of this case then."""
        try:
            self.rounds[place][-1].append(self.case.once(sitting, changes))
        except RuntimeError as error:
            if self.contestants[place].starts_afresh:
                raise
            self._leave_out(place, sitting, error)

    def _leave_out(self, place: int, sitting: Sitting, error: RuntimeError) -> None:
        """A broker that is kept has failed."""
        sitting.failed = True
        self.absent[place] = f"failed: {str(error)[:80]}"

    def _sitting(self, place: int) -> AbstractContextManager[Sitting]:
        return self.contestants[place].sitting(self.client, self.rules.seconds)

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
            self._leave_out(place, sitting, error)

    def ratios(self) -> list[Interval]:
        """How many times the first one's figure each of the other trees reached: more is always better."""
        return [self._ratio(place) for place in self._judged()]

    def _judged(self) -> list[int]:
        """The other trees: nobody else can be too slow."""
        return [place for place, one in enumerate(self.contestants) if place and one.starts_afresh]

    def _verdict(self, place: int) -> str:
        return self.rules.verdict(self._ratio(place))

    def _ratio(self, place: int) -> Interval:
        figure, less = self.case.figure, self.case.less_is_better
        return self._beside_the_first(place, lambda report: 1 / figure(report) if less else figure(report))

    def _beside_the_first(self, place: int, figure: Callable[[Report], float]) -> Interval:
        """How many times the first one's figure another one has: of each round, the median of its turns."""
        both = zip(self.rounds[0], self.rounds[place], strict=True)
        return interval_of(
            [
                statistics.median(
                    figure(other) / figure(first) for first, other in zip(firsts, others, strict=True)
                )
                for firsts, others in both
            ]
        )

    def row(self) -> Row:
        """The first one's median, how far two of its runs differ, and for each of the others the ratio, the
        ratio of the broker's processor time where it is known (less is better), and the verdict.
        """
        own = [statistics.median(map(self.case.figure, turns)) for turns in self.rounds[0]]
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
        reports = [report for turns in self.rounds[place] for report in turns]
        return remarks(reports, reports[len(reports) // 2])

    def _processor_time(self, place: int) -> str:
        reports = [report for one in (0, place) for turns in self.rounds[one] for report in turns]
        if not all(report.get("broker_us") for report in reports):
            return ""
        return str(self._beside_the_first(place, lambda report: float(report["broker_us"])))


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
