"""What has arrived: each number once, in order, and how long it was on its way."""

from __future__ import annotations

from amqp_broker.bench.histogram import Histogram


class Ledger:
    """Counts messages of one run by their numbers; some of them must not be there at all."""

    __slots__ = (
        "count",
        "duplicates",
        "forbidden",
        "foreign",
        "highest",
        "latencies",
        "out_of_order",
        "received",
        "_seen",
        "_wanted",
    )

    def __init__(self, wanted: bytes | bytearray) -> None:
        """One byte for each number: not 0 when this message must be there."""
        self.count = len(wanted) - wanted.count(0)
        self.received = 0
        self.duplicates = 0
        self.foreign = 0
        self.forbidden = 0
        self.out_of_order = 0
        self.highest = -1
        self.latencies = Histogram()
        self._wanted = wanted
        self._seen = bytearray(len(wanted))

    @property
    def lost(self) -> int:
        """Numbers that have not arrived yet."""
        return self.count - self.received

    @property
    def position(self) -> int:
        """Grows with everything that comes."""
        return self.received + self.duplicates + self.foreign + self.forbidden

    def add(self, number: int, latency_ns: int) -> None:
        """One message."""
        if not 0 <= number < len(self._seen):
            self.foreign += 1
        elif not self._wanted[number]:
            self.forbidden += 1
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
        """Consecutive numbers that are all wanted, new and behind the highest; False (and nothing done)
        otherwise.
        """
        end = first + count
        if first <= self.highest or end > len(self._seen) or 0 in self._wanted[first:end]:
            return False
        self._seen[first:end] = b"\1" * count
        self.received += count
        self.highest = end - 1
        return True

    def result(self) -> dict[str, object]:
        """What this process tells the report."""
        names = ("received", "lost", "duplicates", "foreign", "forbidden", "out_of_order")
        return {name: getattr(self, name) for name in names} | self.latencies.result()
