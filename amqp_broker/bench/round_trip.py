"""One message at a time: sender and receiver in one process, and each waits for the last to be done."""

from __future__ import annotations

import time

from amqp_broker.bench.driver import PROGRESS_S, Driver
from amqp_broker.bench.histogram import Histogram
from amqp_broker.bench.receiver import Receiver
from amqp_broker.bench.sender import Sender
from amqp_broker.bench.settings import BenchSettings


class RoundTrips(Driver):
    """A message's time to the receiver, and to its outcome at the sender."""

    def __init__(self, settings: BenchSettings, pair: int) -> None:
        self.settings = settings
        self.receiver = Receiver(settings, pair)
        self.sender = Sender(settings, pair)
        self.wires = self.sender.wires + self.receiver.wires
        self.outcomes = Histogram()
        self.done = 0
        self.started_at = 0.0
        self._sent_ns = 0
        self._settled = False

    @property
    def finished(self) -> bool:
        """All messages have arrived and are settled."""
        return self.done >= self.settings.count

    @property
    def position(self) -> int:
        """What is done."""
        return self.done

    at = position

    def turn(self) -> None:
        """Look what has happened to the message, and send the next one when it is done."""
        sender, receiver = self.sender, self.receiver
        self.started_at = self.started_at or time.monotonic()
        receiver.turn()
        sender.turn(most=0)
        if sender.sent > self.done:
            if not self._settled and sender.settled > self.done:
                self._settled = True
                self.outcomes.add(time.monotonic_ns() - self._sent_ns)
            self.done += self._settled and receiver.ledger.received > self.done
        if sender.sent == self.done and self._due_s() <= 0.0:
            sender.turn(most=1)
            if sender.sent > self.done:
                self._sent_ns, self._settled = time.monotonic_ns(), self.settings.settled

    def _due_s(self) -> float:
        """How long until the next message may be sent."""
        if not self.settings.rate:
            return 0.0
        return self.started_at + self.done / self.settings.rate - time.monotonic()

    def pause_s(self) -> float:
        """Until the next message is due, or until something is heard of the current one."""
        waiting = self.sender.sent == self.done and self.sender.link.credit > 0
        return min(PROGRESS_S, self._due_s()) if waiting else PROGRESS_S

    def result(self) -> dict[str, object]:
        """What this process tells the report."""
        times = {"first_at": self.started_at, "last_at": time.monotonic()}
        return {**self.sender.result(), **self.receiver.result(), **times, "outcome": self.outcomes.result()}
