"""One message at a time: sender and receiver in one process, and each waits for the last to be done."""

from __future__ import annotations

import time

from amqp_broker.bench.histogram import Histogram
from amqp_broker.bench.receiver import Receiver
from amqp_broker.bench.sender import Sender
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.bench.wire import wait_for


class RoundTrips:
    """A message's time to the receiver, and to its outcome at the sender."""

    def __init__(self, settings: BenchSettings, pair: int) -> None:
        self.settings = settings
        self.receiver = Receiver(settings, pair)
        self.sender = Sender(settings, pair)
        self.outcomes = Histogram()
        self.done = 0
        self.started_at = 0.0
        self._sent_ns = 0
        self._settled = False

    @property
    def finished(self) -> bool:
        """All messages have arrived and are settled."""
        return self.done >= self.settings.count

    def turn(self) -> None:
        """Send the next message when the last is done, and wait for what happens."""
        sender, receiver = self.sender, self.receiver
        self.started_at = self.started_at or time.monotonic()
        if sender.sent == self.done and self._due():
            sender.turn(most=1)
            if sender.sent > self.done:
                self._sent_ns, self._settled = time.monotonic_ns(), self.settings.settled
        wait_for(sender.wire, receiver.wire, timeout_s=self._pause_s())
        receiver.turn()
        sender.turn(most=0)
        if sender.sent > self.done and not self._settled and sender.settled > self.done:
            self._settled = True
            self.outcomes.add(time.monotonic_ns() - self._sent_ns)
        if sender.sent > self.done and self._settled and receiver.ledger.received > self.done:
            self.done += 1

    def _due(self) -> bool:
        if not self.settings.rate:
            return True
        return time.monotonic() >= self.started_at + self.done / self.settings.rate

    def _pause_s(self) -> float:
        """Until the next message is due, or until something is heard of the current one."""
        waiting = self.sender.sent == self.done and self.sender.credit > 0
        if not waiting:
            return 0.5
        due = self.started_at + self.done / self.settings.rate if self.settings.rate else 0.0
        return min(0.5, max(0.0, due - time.monotonic()))

    def result(self) -> dict[str, object]:
        """What this process tells the report."""
        outcomes = {"outcome_latencies": self.outcomes.counts, "outcome_largest": self.outcomes.largest}
        sent = {"outcomes": self.sender.result()["outcomes"], "sent": self.sender.sent}
        times = {"first_at": self.started_at, "last_at": time.monotonic()}
        return {**self.receiver.result(), **outcomes, **sent, **times, "repeated": self.sender.repeated}

    def close(self) -> None:
        """Close both connections."""
        self.sender.wire.close()
        self.receiver.wire.close()
