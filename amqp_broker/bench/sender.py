"""A sender: writes slices of a prepared block as far as credit, window and the bound on unsettled allow."""

from __future__ import annotations

import time
from typing import Final

from amqp_broker.bench.settings import BenchSettings
from amqp_broker.bench.templates import Block
from amqp_broker.bench.wire import WIDE_WINDOW, BenchError, Wire, wait_for
from amqp_broker.frames import (
    RECEIVER,
    SENDER,
    Accepted,
    Disposition,
    Flow,
    Modified,
    Rejected,
    Released,
    encode_frame,
)

OUTCOMES: Final = ("accepted", "rejected", "released", "modified", "none")
KINDS: Final[dict[type, int]] = {Accepted: 0, Rejected: 1, Released: 2, Modified: 3}
SERIAL: Final = 2**32
# One turn writes at most this, so that dispositions are read in time.
TURN_BYTES: Final = 131_072


class Sender:
    """One connection with one sending link."""

    def __init__(self, settings: BenchSettings, pair: int) -> None:
        self.settings = settings
        self.wire = Wire(settings, settings.address_of(pair), SENDER, f"sender-{pair}")
        self.block = Block(settings, self.wire.remote_max_frame_size)
        self.credit = 0
        self.sent = 0
        self.settled = 0
        self.repeated = 0
        self.outcomes = [0] * len(OUTCOMES)
        self.first_at = self.last_at = 0.0
        self._done = bytearray(settings.count)

    @property
    def finished(self) -> bool:
        """Everything is written and, unless it was sent settled, settled by the broker."""
        if self.sent < self.settings.count or self.wire.writing:
            return False
        return self.settings.settled or self.settled >= self.settings.count

    def turn(self, most: int = SERIAL) -> None:
        """Read what has come and write what may go."""
        while self.wire.read():
            self._parse()
        while not self.wire.writing:
            count = min(self._allowed(), most)
            if count <= 0:
                return
            place = self.block.prepare(self.sent)
            count = min(count, self.block.size - place, max(1, TURN_BYTES // self.block.stride))
            if not self.sent:
                self.first_at = time.monotonic()
            data = self.block.stamped(place, place + count, time.monotonic_ns())
            self.sent += count
            self.credit -= count
            most -= count
            frames = count * self.block.frames
            self.wire.next_outgoing_id += frames
            self.wire.remote_window -= frames
            self.wire.write(data)
            if self.sent == self.settings.count and self.settings.settled:
                self.last_at = time.monotonic()

    def _allowed(self) -> int:
        settings = self.settings
        allowed = min(self.credit, settings.count - self.sent, self.wire.remote_window // self.block.frames)
        if not settings.settled:
            allowed = min(allowed, settings.in_flight - (self.sent - self.settled))
        return allowed

    def wait(self, timeout_s: float) -> None:
        """Sleep until the socket has something, or takes something."""
        wait_for(self.wire, timeout_s=timeout_s)

    def _parse(self) -> None:
        wire = self.wire
        while size := wire.frame_size(wire.start):
            at = wire.start
            wire.start += size
            if not self._disposition_by_shape(at):
                self._frame(wire.other_frame(at, size))

    def _disposition_by_shape(self, at: int) -> bool:
        """A settled accepted of one range in the layout that brokers send; False for every other frame."""
        buffer = self.wire.buffer
        if buffer[at + 8 : at + 12] != b"\x00\x53\x15\xc0" or buffer[at + 14] != 0x41 or buffer[at + 4] != 2:
            return False
        end = at + 13 + buffer[at + 12]
        first, here = small_uint(buffer, at + 15)
        last, here = (first, here + 1) if buffer[here] == 0x40 else small_uint(buffer, here)
        if first < 0 or last < 0 or buffer[here : here + 4] != b"\x41\x00\x53\x24" or here >= end:
            return False
        self._settle(first, last, 0)
        return True

    def _frame(self, performative: object) -> None:
        if isinstance(performative, Flow):
            self._flow(performative)
        elif isinstance(performative, Disposition) and performative.role == RECEIVER:
            outcome = KINDS.get(type(performative.state))
            if outcome is None and not performative.settled:
                return
            first = performative.first
            last = first if performative.last is None else performative.last
            self._settle(first, last, len(OUTCOMES) - 1 if outcome is None else outcome)
            if not performative.settled:
                settling = Disposition(role=SENDER, first=first, last=last, settled=True)
                self.wire.write(encode_frame(0, settling))

    def _flow(self, flow: Flow) -> None:
        wire = self.wire
        next_incoming_id = flow.next_incoming_id or 0
        window = (next_incoming_id + flow.incoming_window - wire.next_outgoing_id) % SERIAL
        wire.remote_window = window if window <= WIDE_WINDOW else 0
        if flow.handle is not None and flow.link_credit is not None:
            credit = ((flow.delivery_count or 0) + flow.link_credit - self.sent) % SERIAL
            self.credit = credit if credit <= WIDE_WINDOW else 0
        if flow.echo:
            answer = Flow(
                next_incoming_id=wire.next_incoming_id,
                incoming_window=WIDE_WINDOW,
                next_outgoing_id=wire.next_outgoing_id,
                outgoing_window=WIDE_WINDOW,
            )
            wire.write(encode_frame(0, answer))

    def _settle(self, first: int, last: int, outcome: int) -> None:
        if not first <= last < self.sent:
            raise BenchError(f"a disposition of {first}..{last}, but only 0..{self.sent - 1} were sent")
        fresh = self._done.count(0, first, last + 1)
        self._done[first : last + 1] = b"\1" * (last + 1 - first)
        self.repeated += last + 1 - first - fresh
        self.settled += fresh
        self.outcomes[outcome] += fresh
        if self.settled >= self.settings.count:
            self.last_at = time.monotonic()

    def result(self) -> dict[str, object]:
        """What this process tells the report."""
        return {
            "sent": self.sent,
            "settled": self.settled,
            "repeated": self.repeated,
            "outcomes": dict(zip(OUTCOMES, self.outcomes, strict=True)),
            "first_at": self.first_at,
            "last_at": self.last_at or time.monotonic(),
        }


def small_uint(buffer: bytearray, at: int) -> tuple[int, int]:
    """A uint in one of its three encodings and the place behind it; -1 for anything else."""
    constructor = buffer[at]
    if constructor == 0x52:
        return buffer[at + 1], at + 2
    if constructor == 0x70:
        return int.from_bytes(buffer[at + 1 : at + 5], "big"), at + 5
    return (0 if constructor == 0x43 else -1), at + 1
