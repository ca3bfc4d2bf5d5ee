"""Whether something grew: the slope of each figure over the second half of a run.

The slope is that of Theil and Sen: the median of the slopes between all pairs of samples, which a few
samples that stand out do not move. What a figure grows by is that slope times the time of the second half;
what it may grow by is its `share` of what it was in the middle of the run, and `floor` more, for a figure
that goes up and down.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from amqp_broker.persistence.body_files import FILE_BYTES

MIB: Final = 1 << 20
FEWEST: Final = 10
"""Samples in a half below which nobody can say anything."""


@attrs.frozen
class Rule:
    """By how much a figure may grow over the second half of a run."""

    figure: str
    unit: str
    share: float
    floor: float


# A file of large bodies is made whole, so the store may have one more of them at any time.
RULES: Final = (
    Rule("memory", "octets", 0.04, 3 * MIB),
    Rule("descriptors", "files", 0.20, 6),
    Rule("threads", "threads", 0.0, 2),
    Rule("store", "octets", 0.10, FILE_BYTES + 6 * MIB),
    Rule("queues", "queues", 0.10, 4),
    Rule("links", "links", 0.20, 8),
    Rule("transactions", "transactions", 0.20, 4),
    Rule("subscriptions", "subscriptions", 0.20, 4),
    Rule("halves", "half messages", 0.20, 6),
    Rule("messages", "messages", 0.20, 100),
    Rule("latency p50", "ms", 0.50, 10),
    Rule("latency p99", "ms", 1.00, 100),
)
LATENCIES: Final = ("latency p50", "latency p99")
BESIDE_OTHERS: Final = 10
"""So many times what is allowed may latencies grow where other work shares the machine."""


@attrs.frozen
class Finding:
    """What became of one figure."""

    rule: Rule
    usual: float
    growth: float
    allowed: float

    @property
    def flat(self) -> bool:
        """It did not grow by more than it may."""
        return self.growth <= self.allowed

    def __str__(self) -> str:
        return (
            f"{'flat ' if self.flat else 'GROWS'} {self.rule.figure:14} {self.usual:14,.1f} "
            f"{self.rule.unit}, {self.growth:+,.1f} in the second half, {self.allowed:,.1f} allowed"
        )


def slope(times: Sequence[float], values: Sequence[float]) -> float:
    """The median of the slopes between all pairs."""
    slopes = [
        (values[later] - values[one]) / (times[later] - times[one])
        for one in range(len(times))
        for later in range(one + 1, len(times))
        if times[later] > times[one]
    ]
    return statistics.median(slopes)


def second_half(times: Sequence[float]) -> int:
    """The place of the first sample that counts."""
    middle = (times[0] + times[-1]) / 2
    return next(at for at, time in enumerate(times) if time >= middle)


def judge(
    times: Sequence[float], figures: Mapping[str, Sequence[float | None]], beside_others: bool = False
) -> list[Finding]:
    """A finding for each rule. Raises ValueError where there are too few samples."""
    begin = second_half(times) if times else 0
    found = []
    for rule in RULES:
        told = zip(times[begin:], figures[rule.figure][begin:], strict=True)
        pairs = [(time, value) for time, value in told if value is not None]
        if len(pairs) < FEWEST:
            raise ValueError(f"{rule.figure}: {len(pairs)} samples in the second half, fewer than {FEWEST}")
        at, values = [time for time, _ in pairs], [value for _, value in pairs]
        usual = statistics.median(values)
        loose = BESIDE_OTHERS if beside_others and rule.figure in LATENCIES else 1
        growth = slope(at, values) * (at[-1] - at[0])
        at_first = max(0.0, usual - growth / 2)
        found.append(Finding(rule, usual, growth, loose * (rule.share * at_first + rule.floor)))
    return found
