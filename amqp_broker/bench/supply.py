"""Deliveries that a controller holds until a transaction retires them, as runs of ids and numbers."""

from __future__ import annotations

from collections import deque
from typing import Any

from amqp_broker.bench.settings import BenchSettings
from amqp_broker.bench.wire import BenchError, Incoming, Run, Wire


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

    def __init__(self, settings: BenchSettings, wire: Wire, address: str, **fields: Any) -> None:
        self.settings = settings
        self.address = address
        self.pool = Pool()
        self.link = wire.receiver(address, settled=False, **fields)
        self.incoming = Incoming(wire, self.link, settings.run)
        # Each message of the input: how often a committed transaction retired it.
        self.retired = bytearray(settings.inputs)
        self.retired_twice = 0
        self.renew()

    def read(self) -> None:
        """Take in what the frame that the reader has gone to brings."""
        for run in self.incoming.runs():
            if run.settled or run.number < 0:
                raise BenchError(f"{self.address!r} must hold only the messages of this run, unsettled")
            self.pool.add(run)

    def commit(self, runs: list[Run]) -> None:
        """Their transaction committed: they must never be seen again."""
        for run in runs:
            fresh = self.retired.count(0, run.number, run.number + run.count)
            self.retired_twice += run.count - fresh
            self.retired[run.number : run.number + run.count] = b"\1" * run.count

    def renew(self) -> None:
        """Give credit again when half of it is used."""
        if self.pool.held + self.link.credit <= self.settings.credit // 2:
            self.link.flow(self.settings.credit - self.pool.held)
