"""Latencies in nanoseconds, counted in buckets of at most 1.6 % width."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# 64 buckets for each power of two.
PRECISION_BITS = 6


class Histogram:
    """Counts of nanoseconds; merging and percentiles."""

    __slots__ = ("counts", "largest")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.largest = 0

    def add(self, nanoseconds: int, times: int = 1) -> None:
        """Count one latency, `times` times; a negative one (clocks of two cores) counts as 0."""
        if nanoseconds < 0:
            nanoseconds = 0
        if nanoseconds > self.largest:
            self.largest = nanoseconds
        shift = max(0, nanoseconds.bit_length() - PRECISION_BITS - 1)
        bucket = (shift << PRECISION_BITS) + (nanoseconds >> shift)
        self.counts[bucket] = self.counts.get(bucket, 0) + times

    def result(self) -> dict[str, object]:
        """What a process tells the report."""
        return {"latencies": self.counts, "largest": self.largest}

    @classmethod
    def merged(cls, results: Iterable[Mapping[str, Any]]) -> Histogram:
        """What several processes counted; their results have been JSON, where keys are text."""
        merged = cls()
        for result in results:
            for bucket, times in result["latencies"].items():
                merged.counts[int(bucket)] = merged.counts.get(int(bucket), 0) + times
            merged.largest = max(merged.largest, result["largest"])
        return merged

    def percentile(self, percent: float) -> float:
        """Microseconds that `percent` of the messages stayed within; 0 when nothing was counted."""
        wanted = sum(self.counts.values()) * percent / 100
        seen = 0
        for bucket in sorted(self.counts):
            seen += self.counts[bucket]
            if seen >= wanted:
                shift = max(0, (bucket >> PRECISION_BITS) - 1)
                return min(self.largest, (bucket - (shift << PRECISION_BITS)) << shift) / 1_000
        return 0.0

    def summary(self) -> dict[str, float]:
        """The percentiles that the report shows, in microseconds."""
        points = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9}
        found = {name: self.percentile(percent) for name, percent in points.items()}
        return {**found, "max": self.largest / 1_000}
