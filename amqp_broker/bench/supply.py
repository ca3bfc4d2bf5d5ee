"""Deliveries that a controller holds until a transaction retires them, as runs of ids and numbers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from amqp_broker.bench.control_wire import SERIAL, ControlWire
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.bench.shapes import Shape
from amqp_broker.bench.wire import BenchError


@dataclass(frozen=True, slots=True)
class Run:
    """Deliveries with consecutive ids and numbers."""

    delivery_id: int
    number: int
    count: int

    def continues(self, other: Run) -> bool:
        """Whether this one stands right behind `other`."""
        return (
            self.number == other.number + other.count and self.delivery_id == other.delivery_id + other.count
        )

    def split(self, count: int) -> tuple[Run, Run]:
        """The first `count` and the rest."""
        rest = Run(self.delivery_id + count, self.number + count, self.count - count)
        return Run(self.delivery_id, self.number, count), rest


class Pool:
    """The runs themselves, the oldest first."""

    __slots__ = ("held", "_runs")

    def __init__(self) -> None:
        self.held = 0
        self._runs: deque[Run] = deque()

    def add(self, run: Run) -> None:
        """What has just come."""
        self.held += run.count
        if self._runs and run.continues(self._runs[-1]):
            last = self._runs.pop()
            run = Run(last.delivery_id, last.number, last.count + run.count)
        self._runs.append(run)

    def take(self, count: int) -> list[Run]:
        """The oldest `count` deliveries; there must be so many."""
        self.held -= count
        taken = []
        while count:
            run = self._runs.popleft()
            if run.count > count:
                run, rest = run.split(count)
                self._runs.appendleft(rest)
            taken.append(run)
            count -= run.count
        return taken

    def give_back(self, runs: list[Run]) -> None:
        """They stand before all others again."""
        self._runs.extendleft(reversed(runs))
        self.held += sum(run.count for run in runs)


class Supply:
    """What came on the input link and waits for a transaction; its credit keeps up with what is used."""

    def __init__(self, settings: BenchSettings, wire: ControlWire) -> None:
        self.settings = settings
        self.wire = wire
        self.pool = Pool()
        self.credit = 0
        self.delivery_count = wire.remote_delivery_count
        # Each message of the input: how often a committed transaction retired it.
        self.retired = bytearray(settings.inputs)
        self.retired_twice = 0
        self._shape: Shape | None = None

    def read(self, at: int, size: int) -> int:
        """Take the transfers at `at` in; how many bytes they are, 0 for another frame."""
        wire, shape = self.wire, self._shape
        if shape is None or size != shape.size or not shape.fits(wire.buffer, at):
            try:
                shape = self._shape = Shape(bytes(wire.buffer[at : at + size]))
            except (ValueError, IndexError):
                return 0
            if shape.more or shape.id_at < 0 or shape.settled or shape.run != self.settings.run:
                raise BenchError(
                    f"{wire.input!r} must hold only the messages of this run, unsettled and in one frame each"
                )
        count = shape.run_length(wire.buffer, at, wire.end)
        wire.next_incoming_id += count
        self.delivery_count = (self.delivery_count + count) % SERIAL
        self.credit -= count
        if count == 1 or shape.consecutive(wire.buffer, at, count):
            self._add(shape, at, count)
        else:
            for place in range(at, at + count * size, size):
                self._add(shape, place, 1)
        return count * size

    def _add(self, shape: Shape, at: int, count: int) -> None:
        buffer = self.wire.buffer
        self.pool.add(Run(shape.delivery_id(buffer, at), shape.number(buffer, at), count))

    def commit(self, runs: list[Run]) -> None:
        """Their transaction committed: they must never be seen again."""
        for run in runs:
            fresh = self.retired.count(0, run.number, run.number + run.count)
            self.retired_twice += run.count - fresh
            self.retired[run.number : run.number + run.count] = b"\1" * run.count

    def renew(self) -> None:
        """Give credit again when half of it is used."""
        if self.pool.held + self.credit <= self.settings.credit // 2:
            self.credit = self.settings.credit - self.pool.held
            self.wire.tell(self.delivery_count, self.credit)
