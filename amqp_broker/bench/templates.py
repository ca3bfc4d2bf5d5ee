"""Frames that are prepared once: a block of equal transfers in one buffer, patched column by column.

    message 0  | size 02 00 channel | handle, delivery-id, tag, ... | sections | run number time abc...
    message 1  | the same, `stride` bytes further on
    ...

All messages of a block have the same length, so byte k of a field stands at `k + i * stride` for message i,
and one assignment to an extended slice patches it in every message: about 0.05 us a message, where building
each one would take ten times as long and make the tool the bottleneck.
"""

from __future__ import annotations

from typing import Final

from amqp_broker.bench.settings import SMALLEST_BODY, BenchSettings
from amqp_broker.frames import Header, Transfer, encode_composite, encode_frame

LARGEST_BLOCK: Final = 256
BLOCK_BYTES: Final = 1_048_576
# Values that need the widest encoding and stand nowhere else in a frame.
PLACE_ID: Final = 0x7E51C2A9
PLACE_TAG: Final = b"\xd3\x1f\x86\xe4"
PLACE_BODY: Final = b"\xc7\x19\xb5\x62\xf0\x8d\x3a\xe1"
RAMP: Final = bytes(range(256)) * 260


def columns(first: int, count: int, width: int) -> list[bytes]:
    """The bytes of the numbers first .. first+count-1, most significant column first.

    `count` is at most 65,536.
    """
    found = [RAMP[first & 255 : (first & 255) + count]]
    last = first + count - 1
    for shift in range(8, width * 8, 8):
        if first >> shift == last >> shift:
            found.append(bytes([first >> shift & 255]) * count)
            continue
        runs, at = [], first
        while at <= last:
            end = min(last, at | (1 << shift) - 1)
            runs.append(bytes([at >> shift & 255]) * (end - at + 1))
            at = end + 1
        found.append(b"".join(runs))
    return found[::-1]


def message_sections(settings: BenchSettings, head: bytes) -> bytes:
    """Header and one data section whose body begins with `head`."""
    header = encode_composite(Header(durable=True)) if settings.durable else b""
    size = max(settings.body, SMALLEST_BODY)
    filling = (b"abcdefghijklmnopqrstuvwxyz" * (size // 26 + 1))[: size - len(head)]
    length = b"\xa0" + bytes([size]) if size < 256 else b"\xb0" + size.to_bytes(4, "big")
    return header + b"\x00\x53\x75" + length + head + filling


def transfer_frames(settings: BenchSettings, max_frame_size: int) -> tuple[bytes, int]:
    """The frames of one message with placeholders, and how many they are."""
    payload = message_sections(settings, settings.run.to_bytes(8, "big") + PLACE_BODY * 2)
    frames: list[bytes] = []
    room = max_frame_size - 64
    for at in range(0, len(payload), room):
        transfer = Transfer(
            handle=0,
            delivery_id=PLACE_ID if not at else None,
            delivery_tag=PLACE_TAG if not at else None,
            message_format=0 if not at else None,
            settled=settings.settled,
            more=at + room < len(payload),
        )
        frames.append(encode_frame(0, transfer, payload[at : at + room]))
    return b"".join(frames), len(frames)


class Block:
    """The next messages of a sender, ready to be written."""

    __slots__ = ("buffer", "first", "frames", "size", "stride", "_id_at", "_number_at", "_tag_at", "_time_at")

    def __init__(self, settings: BenchSettings, max_frame_size: int) -> None:
        message, self.frames = transfer_frames(settings, max_frame_size)
        self.stride = len(message)
        self.size = LARGEST_BLOCK
        while self.size > 1 and self.size * self.stride > BLOCK_BYTES:
            self.size //= 2
        self.buffer = bytearray(message * self.size)
        self._id_at = message.index(PLACE_ID.to_bytes(4, "big"))
        self._tag_at = message.index(PLACE_TAG)
        self._number_at = message.index(PLACE_BODY)
        self._time_at = self._number_at + 8
        self.first = -1

    def prepare(self, number: int) -> int:
        """Patch the block that holds this message; the message's place in it.

        Nothing of the block before may still wait to be written.
        """
        place = number % self.size
        if self.first != number - place:
            self.first = number - place
            self._patch(self._number_at, columns(self.first, self.size, 8), 0, self.size)
            identities = columns(self.first, self.size, 4)
            self._patch(self._id_at, identities, 0, self.size)
            self._patch(self._tag_at, identities, 0, self.size)
        return place

    def stamped(self, place: int, end: int, now_ns: int) -> memoryview:
        """The bytes of the messages place .. end-1, with the time they are sent at."""
        count = end - place
        self._patch(self._time_at, [bytes([byte]) * count for byte in now_ns.to_bytes(8, "big")], place, end)
        return memoryview(self.buffer)[place * self.stride : end * self.stride]

    def _patch(self, at: int, values: list[bytes], place: int, end: int) -> None:
        stride, buffer = self.stride, self.buffer
        at += place * stride
        stop = end * stride
        for value in values:
            buffer[at:stop:stride] = value
            at += 1
