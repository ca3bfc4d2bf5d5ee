"""A sender: writes blocks of a stencil as far as credit, window and the bound on unsettled allow."""

from __future__ import annotations

import time
from typing import Any, Final

from amqp_broker.bench.driver import Driver
from amqp_broker.bench.settings import SMALLEST_BODY, BenchSettings
from amqp_broker.bench.stencil import ID, ID_OCTETS, NUMBER, TIME, Stencil
from amqp_broker.bench.wire import BenchError, Wire
from amqp_broker.frames import (
    RECEIVER,
    SENDER,
    Accepted,
    Disposition,
    Header,
    Modified,
    Properties,
    Rejected,
    Released,
    Transfer,
    encode_frame,
    encode_message,
)
from amqp_broker.testing.peer import SERIAL, TRANSFER_ROOM_BYTES

OUTCOMES: Final = ("accepted", "rejected", "released", "modified", "none")
KINDS: Final[dict[type, int]] = {Accepted: 0, Rejected: 1, Released: 2, Modified: 3}
# One turn writes at most this, so that dispositions are read in time.
TURN_BYTES: Final = 131_072


def message_of(settings: BenchSettings, properties: Properties | None = None) -> bytes:
    """The message that all others are like."""
    filling = b"abcdefghijklmnopqrstuvwxyz" * (settings.body // 26 + 1)
    body = settings.run.to_bytes(8, "big") + NUMBER + TIME + filling[: settings.body - SMALLEST_BODY]
    header = Header(durable=True) if settings.durable else None
    return encode_message(header=header, properties=properties, body=body)


def transfers(message: bytes, max_frame_size: int, **fields: Any) -> list[bytes]:
    """Its frames; only the first carries delivery-id and tag, and all but the last say more (2.6.14)."""
    room = max_frame_size - TRANSFER_ROOM_BYTES
    fields |= {"delivery_id": ID, "delivery_tag": ID_OCTETS, "message_format": 0}
    frames = []
    for at in range(0, len(message), room):
        transfer = Transfer(more=at + room < len(message), **fields)
        frames.append(encode_frame(0, transfer, message[at : at + room]))
        fields |= {"delivery_id": None, "delivery_tag": None, "message_format": None}
    return frames


class Sender(Driver):
    """One connection with one sending link."""

    def __init__(
        self, settings: BenchSettings, pair: int, message: bytes = b"", name: str = "sender"
    ) -> None:
        """`message` instead of the usual one, with `NUMBER` and `TIME` where they are to be written."""
        self.settings = settings
        wire = self.wire = Wire.of(settings, f"{name}-{pair}")
        wire.on_disposition = self._on_disposition
        self.wires = (wire,)
        self.link = wire.sender(settings.address_of(pair), settings.settled)
        assert wire.remote_open is not None
        most = wire.remote_open.max_frame_size
        frames = transfers(message or message_of(settings), most, handle=0, settled=settings.settled)
        self.frames = len(frames)
        self.stencil = Stencil.marked(b"".join(frames))
        self._most = max(1, TURN_BYTES // self.stencil.size)
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

    @property
    def position(self) -> int:
        """What was sent and settled."""
        return self.sent + self.settled

    @property
    def at(self) -> int:
        """What was sent."""
        return self.sent

    def turn(self, most: int = SERIAL) -> None:
        """Read what has come and write what may go."""
        while self.wire.read():
            self.wire.parse()
        while not self.wire.writing:
            count = min(self._allowed(), most)
            if count <= 0:
                return
            count = min(count, self.stencil.block, 256 - self.sent % 256, self._most)
            if not self.sent:
                self.first_at = time.monotonic()
            first = self.wire.count_sent(self.link, count, self.frames)
            data = self.stencil.fill(count, now_ns=time.monotonic_ns(), id=first, number=self.sent)
            self.sent += count
            most -= count
            self.wire.write(data)
            if self.sent == self.settings.count and self.settings.settled:
                self.last_at = time.monotonic()

    def _allowed(self) -> int:
        settings = self.settings
        allowed = min(self.wire.may_send(self.link, self.frames), settings.count - self.sent)
        if not settings.settled:
            allowed = min(allowed, settings.in_flight - (self.sent - self.settled))
        return allowed

    def _on_disposition(self, role: bool, first: int, last: int, settled: bool, state: object) -> None:
        if role != RECEIVER:
            return
        outcome = KINDS.get(type(state))
        if outcome is None and not settled:
            return
        self._settle(first, last, len(OUTCOMES) - 1 if outcome is None else outcome)
        if not settled:
            self.wire.session.put(Disposition(role=SENDER, first=first, last=last, settled=True))

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
