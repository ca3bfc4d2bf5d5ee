"""A receiver: takes what comes by runs, one disposition for each read."""

from __future__ import annotations

import time

from amqp_broker.bench.driver import Driver
from amqp_broker.bench.ledger import Ledger
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.bench.wire import ACCEPTED, Incoming, Run, Wire
from amqp_broker.frames import RECEIVER
from amqp_broker.frames.hot_frames import encode_disposition
from amqp_broker.testing.peer import SERIAL


class Receiver(Driver):
    """One connection with one receiving link."""

    def __init__(
        self, settings: BenchSettings, pair: int, wanted: bytes | bytearray | None = None
    ) -> None:
        """With `wanted` it takes everything out of the queue: first what must be there (not 0 for the number
        of a message), then, with drain, what must not (2.6.7).
        """
        self.settings = settings
        self.ledger = Ledger(b"\1" * settings.count if wanted is None else wanted)
        self.wire = Wire.of(settings, f"receiver-{pair}")
        self.wires = (self.wire,)
        self.link = self.wire.receiver(settings.address_of(pair), settings.settled)
        self.incoming = Incoming(self.wire, self.link, settings.run)
        self.first_at = self.last_at = 0.0
        self._drains = wanted is not None
        self._empty = False
        # Deliveries to be accepted: one range, because a session numbers them one after the other.
        self._owed: tuple[int, int] | None = None
        self._renew()

    @property
    def finished(self) -> bool:
        """All numbers have arrived (and the queue has no more), and what we answered is written."""
        if self.ledger.lost or self.wire.writing:
            return False
        return self._empty or not self._drains

    @property
    def position(self) -> int:
        """Everything that came."""
        return self.ledger.position

    @property
    def at(self) -> int:
        """What came as it must."""
        return self.ledger.received

    def turn(self) -> None:
        """Read once, account for the messages, answer once."""
        wire = self.wire
        if not wire.read():
            return
        now_ns = time.monotonic_ns()
        if not self.first_at:
            self.first_at = now_ns / 1e9
        while wire.reader.advance():
            credit = self.link.credit
            for run in self.incoming.runs():
                self._account(run, now_ns)
                credit -= run.count
            # Credit that no message took was given back for lack of messages.
            self._empty = self._empty or (self.link.drain and credit > self.link.credit)
        self._accept()
        self._renew()
        wire.flush()
        if not self.ledger.lost and not self.last_at:
            self.last_at = time.monotonic()

    def _account(self, run: Run, now_ns: int) -> None:
        if run.count > 1 and self.ledger.add_run(run.number, run.count):
            for sent_ns, count in run.times:
                self.ledger.latencies.add(now_ns - sent_ns, count)
        else:
            for number in range(run.number, run.number + run.count):
                self.ledger.add(number, now_ns - run.times[0][0])
        if run.settled:
            return
        first, last = run.delivery_id, (run.delivery_id + run.count - 1) % SERIAL
        if self._owed is not None and (self._owed[1] + 1) % SERIAL == first:
            self._owed = self._owed[0], last
        else:
            self._accept()
            self._owed = first, last

    def _accept(self) -> None:
        if self._owed is None:
            return
        first, last = self._owed
        self._owed = None
        count = (last - first) % SERIAL + 1
        step = 1 if self.settings.settle_each else count
        for at in range(first, first + count, step):
            ends = at % SERIAL, (at + step - 1) % SERIAL
            self.wire.put_octets(encode_disposition(0, RECEIVER, *ends, True, ACCEPTED))

    def _renew(self) -> None:
        """Give credit again when half of it is used; when nothing is missing, ask what else there is."""
        link, most = self.link, self.settings.credit
        if self.ledger.lost:
            if link.credit <= most // 2:
                link.flow(most)
        elif self._drains and not self._empty and (not link.drain or not link.credit):
            link.flow(link.credit or most, drain=True)

    def result(self) -> dict[str, object]:
        """What this process tells the report."""
        times = {"first_at": self.first_at, "last_at": self.last_at or time.monotonic()}
        return {**self.ledger.result(), **times, "overruns": self.incoming.overruns}
