"""A receiver: takes runs of transfers apart by their shape, one disposition for each read."""

from __future__ import annotations

import time

from amqp_broker.bench.ledger import Ledger
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.bench.shapes import Shape
from amqp_broker.bench.wire import WIDE_WINDOW, Wire, wait_for
from amqp_broker.frames import RECEIVER, Flow, encode_frame

SERIAL = 2**32
# Both numbers in their widest form, so that they stand at fixed places.
DISPOSITION_HEAD = bytes.fromhex("0000001e 02000000 005315 c0 11 05 41 70")
DISPOSITION_TAIL = bytes.fromhex("41 00532445")


class Receiver:
    """One connection with one receiving link."""

    def __init__(self, settings: BenchSettings, pair: int, ledger: Ledger | None = None) -> None:
        self.settings = settings
        self.wire = Wire(settings, settings.address_of(pair), RECEIVER, f"receiver-{pair}")
        self.ledger = Ledger(settings.count) if ledger is None else ledger
        self.delivery_count = self.wire.remote_delivery_count
        self.credit = 0
        self.overruns = 0
        self.first_at = self.last_at = 0.0
        self._shape: Shape | None = None
        self._partial: Shape | None = None
        self._partial_stamp = (0, 0)
        self._id = 0
        # Deliveries to be accepted: one range, because a session numbers them one after the other.
        self._owed: tuple[int, int] | None = None
        self._grant()

    @property
    def finished(self) -> bool:
        """All numbers have arrived, and what we answered is written."""
        return self.ledger.lost == 0 and not self.wire.writing

    def turn(self) -> None:
        """Read once, account for the messages, answer once."""
        if not self.wire.read():
            return
        now_ns = time.monotonic_ns()
        if not self.first_at:
            self.first_at = now_ns / 1e9
        wire = self.wire
        while size := wire.frame_size(wire.start):
            at = wire.start
            shape = self._shape
            if shape is None or size != shape.size or not shape.fits(wire.buffer, at):
                shape = self._learn(at, size)
                if shape is None:
                    wire.start += size
                    self._frame(wire.other_frame(at, size))
                    continue
            count = shape.run_length(wire.buffer, at, wire.end)
            wire.start += count * size
            wire.next_incoming_id += count
            if shape.more or self._partial is not None or shape.id_at < 0:
                for place in range(at, wire.start, size):
                    self._part(shape, place, now_ns)
            else:
                self._run(shape, at, count, now_ns)
        self._accept()
        self._renew()
        if not self.ledger.lost and not self.last_at:
            self.last_at = time.monotonic()

    def wait(self, timeout_s: float) -> None:
        """Sleep until the socket has something, or takes something."""
        wait_for(self.wire, timeout_s=timeout_s)

    def _learn(self, at: int, size: int) -> Shape | None:
        try:
            self._shape = Shape(bytes(self.wire.buffer[at : at + size]))
        except (ValueError, IndexError):
            return None
        return self._shape

    def _run(self, shape: Shape, at: int, count: int, now_ns: int) -> None:
        """Whole deliveries of one shape."""
        buffer, size = self.wire.buffer, shape.size
        first = shape.delivery_id(buffer, at)
        ours = shape.run == self.settings.run
        if ours and count > 1 and shape.consecutive(buffer, at, count):
            if self.ledger.add_run(shape.number(buffer, at), count):
                self._latencies(shape, at, count, now_ns)
                self._delivered(first, count, shape.settled)
                return
        for place in range(at, at + count * size, size):
            if ours:
                self.ledger.add(shape.number(buffer, place), now_ns - shape.time_ns(buffer, place))
            else:
                self.ledger.foreign += 1
            self._delivered(shape.delivery_id(buffer, place), 1, shape.settled)

    def _latencies(self, shape: Shape, at: int, count: int, now_ns: int) -> None:
        """Count a run's latencies; its times only grow, and whole slices of it were stamped at once."""
        buffer, size = self.wire.buffer, shape.size
        first, last = shape.time_ns(buffer, at), shape.time_ns(buffer, at + (count - 1) * size)
        if first == last or count == 1:
            self.ledger.latencies.add(now_ns - first, count)
            return
        half = count // 2
        self._latencies(shape, at, half, now_ns)
        self._latencies(shape, at + half * size, count - half, now_ns)

    def _part(self, shape: Shape, at: int, now_ns: int) -> None:
        """One frame of a delivery that takes several (2.6.14); the stamp stands in the first."""
        buffer = self.wire.buffer
        if self._partial is None:
            self._partial = shape
            self._id = shape.delivery_id(buffer, at)
            if shape.run == self.settings.run and shape.stamp_at >= 0:
                self._partial_stamp = (shape.number(buffer, at), shape.time_ns(buffer, at))
            else:
                self._partial_stamp = (-1, 0)
        if not shape.more:
            number, sent_ns = self._partial_stamp
            self.ledger.add(number, now_ns - sent_ns)
            self._delivered(self._id, 1, self._partial.settled or shape.settled)
            self._partial = None

    def _delivered(self, first: int, count: int, settled: bool) -> None:
        self.delivery_count = (self.delivery_count + count) % SERIAL
        self.credit -= count
        if self.credit < 0:
            self.overruns -= self.credit
            self.credit = 0
        if settled:
            return
        if self._owed is not None and (self._owed[1] + 1) % SERIAL == first:
            self._owed = self._owed[0], (first + count - 1) % SERIAL
        else:
            self._accept()
            self._owed = first, (first + count - 1) % SERIAL

    def _accept(self) -> None:
        if self._owed is None:
            return
        first, last = self._owed
        self._owed = None
        if not self.settings.settle_each:
            self.wire.write(disposition(first, last))
            return
        span = (last - first) % SERIAL + 1
        each = [disposition((first + i) % SERIAL, (first + i) % SERIAL) for i in range(span)]
        self.wire.write(b"".join(each))

    def _renew(self) -> None:
        if self.credit <= self.settings.credit // 2 and self.ledger.lost:
            self._grant()

    def _grant(self) -> None:
        self.credit = self.settings.credit
        self._flow(link=True)

    def _flow(self, link: bool, drain: bool = False) -> None:
        flow = Flow(
            next_incoming_id=self.wire.next_incoming_id % SERIAL,
            incoming_window=WIDE_WINDOW,
            next_outgoing_id=0,
            outgoing_window=WIDE_WINDOW,
            handle=0 if link else None,
            delivery_count=self.delivery_count if link else None,
            link_credit=self.credit if link else None,
            drain=drain,
        )
        self.wire.write(encode_frame(0, flow))

    def _frame(self, performative: object) -> None:
        if isinstance(performative, Flow) and performative.echo:
            self._flow(link=True)

    def result(self) -> dict[str, object]:
        """What this process tells the report."""
        times = {"first_at": self.first_at, "last_at": self.last_at or time.monotonic()}
        return {**self.ledger.result(), **times, "overruns": self.overruns}


def disposition(first: int, last: int) -> bytes:
    """Settled and accepted, from first to last, as a prepared frame.

    The general encoder gives the same values; a test compares the two.
    """
    return DISPOSITION_HEAD + first.to_bytes(4, "big") + b"\x70" + last.to_bytes(4, "big") + DISPOSITION_TAIL
