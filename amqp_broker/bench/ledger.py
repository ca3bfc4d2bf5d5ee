"""What has arrived: each number once, in order, and how long it was on its way."""

from __future__ import annotations

from amqp_broker.bench.histogram import Histogram


class Ledger:
    """Counts messages of one run by their numbers 0 .. count-1."""

    __slots__ = (
        "count",
        "duplicates",
        "foreign",
        "highest",
        "latencies",
        "out_of_order",
        "received",
        "_seen",
    )

    def __init__(self, count: int) -> None:
        self.count = count
        self.received = 0
        self.duplicates = 0
        self.foreign = 0
        self.out_of_order = 0
        self.highest = -1
        self.latencies = Histogram()
        self._seen = bytearray(count)

    @property
    def lost(self) -> int:
        """Numbers that have not arrived yet."""
        return self.count - self.received

    def add(self, number: int, latency_ns: int) -> None:
        """One message."""
        if not 0 <= number < len(self._seen):
            self.foreign += 1
        elif self._seen[number]:
            self.duplicates += 1
        else:
            self._seen[number] = 1
            self.received += 1
            if number < self.highest:
                self.out_of_order += 1
            else:
                self.highest = number
            self.latencies.add(latency_ns)

    def add_run(self, first: int, count: int) -> bool:
        """Consecutive numbers that are all new and all behind the highest; False (and nothing done)
        otherwise.
        """
        end = first + count
        if first <= self.highest or end > len(self._seen):
            return False
        self._seen[first:end] = b"\1" * count
        self.received += count
        self.highest = end - 1
        return True

    def result(self) -> dict[str, object]:
        """What this process tells the report."""
        return {
            "received": self.received,
            "lost": self.lost,
            "duplicates": self.duplicates,
            "foreign": self.foreign,
            "out_of_order": self.out_of_order,
            "latencies": self.latencies.counts,
            "largest": self.latencies.largest,
        }
