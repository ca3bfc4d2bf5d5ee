"""Frames that look alike: one is encoded or read with `frames`, the others differ from it in some numbers.

    frame 0  | head | handle, delivery-id, tag, ... | sections | run number time abc...
    frame 1  | the same, `size` octets further on
                             ~~~~~~~~~~~  ~~~                      ~~~~~~ ~~~~

All frames of a stencil have one size, so octet k of a number stands at `k + i * size` in frame i, and one
extended slice writes it, or compares it, in all of them: about 0.05 us a message, where encoding each one
would take a hundred times as long and make the tool the bottleneck.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from amqp_broker.frames import EMPTY_FRAME
from amqp_broker.frames.hot_frames import read_transfer

LARGEST_BLOCK: Final = 256
BLOCK_BYTES: Final = 1_048_576
HEAD_BYTES: Final = len(EMPTY_FRAME)
"""What stands before the body of a frame; an empty frame has nothing else."""
# What stands in a frame where numbers will be written: they need the widest encoding and stand nowhere else.
ID: Final = 0x7E51C2A9
LAST_ID: Final = 0x7E51C3B6
ID_OCTETS: Final = ID.to_bytes(4, "big")
NUMBER: Final = b"\xc7\x19\xb5\x62\xf0\x8d\x3a\xe1"
TIME: Final = b"\xa4\x5e\x90\x17\xcb\x3d\xf2\x68"
_MARKS: Final = {"id": ID_OCTETS, "last": LAST_ID.to_bytes(4, "big"), "number": NUMBER, "time": TIME}
_RAMP: Final = bytes(range(256)) * 260
Place = tuple[int, int]  # where it begins, and how many octets it has


class Stencil:
    """One frame, or the frames of one message, and the places in it that differ from message to message."""

    __slots__ = ("block", "places", "settled", "size", "_constants", "_frame")

    def __init__(self, data: bytes, places: dict[str, list[Place]], settled: bool = False) -> None:
        """What is behind the last place is not looked at in reading."""
        self.size = len(data)
        self.places = places
        self.settled = settled
        self.block = LARGEST_BLOCK
        while self.block > 1 and self.block * self.size > BLOCK_BYTES:
            self.block //= 2
        self._frame = bytearray(data)
        self._constants: list[tuple[int, bytes]] = []
        at = 0
        for start, width in sorted(place for found in places.values() for place in found):
            self._constants.append((at, data[at:start]))
            at = start + width

    @classmethod
    def marked(cls, data: bytes, **more: list[Place]) -> Stencil:
        """For writing: the places are where `ID`, `LAST_ID`, `NUMBER` and `TIME` stand, and some more."""
        places = {name: [(at, len(mark)) for at in found_at(data, mark)] for name, mark in _MARKS.items()}
        return cls(data, places | more)

    @classmethod
    def learned(cls, data: bytes, start: int, end: int, run: bytes) -> Stencil | None:
        """For reading: from the frame whose body is `data[start:end]`. None if it is no whole delivery with a
        delivery-id of four octets and the stamp of this run: that is read by the general codec.

        The message's number stands behind each `run` in it, and behind the last one also its time.
        """
        head = read_transfer(data, start, end)
        if head is None or head.more or head.aborted or head.delivery_id < 0 or not head.delivery_tag:
            return None
        identity, tag = head.delivery_id.to_bytes(4, "big"), head.delivery_tag
        id_at = data.find(identity, start, head.payload_at)
        tag_at = data.find(tag, id_at + 4, head.payload_at)
        stamps = [at + len(run) for at in found_at(data[:end], run, head.payload_at)]
        if id_at < 0 or tag_at < 0 or not stamps or stamps[-1] + 16 > end:
            return None
        # Octets that looked like them may stand elsewhere: other values there have to be read as such.
        other = bytearray(data[start:end])
        for at, octets in ((id_at, identity), (tag_at, tag)):
            other[at - start : at - start + len(octets)] = bytes(octet ^ 0xFF for octet in octets)
        again = read_transfer(bytes(other), 0, len(other))
        if again is None or (again.delivery_id, again.delivery_tag, again.handle, again.settled) != (
            head.delivery_id ^ 0xFFFFFFFF,
            bytes(octet ^ 0xFF for octet in tag),
            head.handle,
            head.settled,
        ):
            return None
        first = start - HEAD_BYTES
        places = {
            "id": [(id_at - first, 4)],
            "tag": [(tag_at - first, len(tag))],
            "number": [(at - first, 8) for at in stamps],
            "time": [(stamps[-1] + 8 - first, 8)],
        }
        return cls(data[first:end], places, head.settled == 1)

    def fill(self, count: int, *, txn_id: bytes = b"", now_ns: int = 0, **numbers: int) -> bytearray:
        """At most `block` frames; `numbers` go up by one from frame to frame, the rest is the same."""
        frame, size = self._frame, self.size
        octets = {name: first.to_bytes(8, "big") for name, first in numbers.items()}
        octets |= {"txn_id": txn_id, "time": now_ns.to_bytes(8, "big")}
        for name, places in self.places.items():
            for at, width in places:
                frame[at : at + width] = octets[name][-width:] if width else b""
        filled = frame * count
        for name, first in numbers.items() if count > 1 else ():
            low = first & 255
            for at, width in self.places[name]:
                if low <= 256 - count:
                    filled[at + width - 1 :: size] = _RAMP[low : low + count]
                    continue
                for place, value in enumerate(columns(first, count, width), at):
                    filled[place::size] = value
        return filled

    def run_length(self, data: bytes, at: int) -> int:
        """How many whole frames from `at` on look so; the first is known to be whole."""
        size = self.size
        for offset, constant in self._constants:
            if data[at + offset : at + offset + len(constant)] != constant:
                return 0
        count = (len(data) - at) // size
        for offset, constant in self._constants if count > 1 else ():
            for place, value in enumerate(constant, at + offset):
                column = data[place : at + count * size : size]
                if column.count(value) != count:
                    count -= len(column.lstrip(bytes((value,))))
        return count

    def consecutive(self, data: bytes, at: int, count: int) -> bool:
        """Whether delivery-ids and numbers of `count` frames from `at` on both go up by one."""
        size, end = self.size, at + count * self.size
        for name in ("id", "number"):
            values = columns(self.first(name, data, at), count, self.places[name][0][1])
            for start, _ in self.places[name]:
                for place, value in enumerate(values, at + start):
                    if data[place:end:size] != value:
                        return False
        return True

    def first(self, name: str, data: bytes, at: int) -> int:
        """A number of the frame at `at`."""
        start, width = self.places[name][0]
        return int.from_bytes(data[at + start : at + start + width], "big")

    def times(self, data: bytes, at: int, count: int) -> Iterator[tuple[int, int]]:
        """The times of a run, in nanoseconds, each with how many messages have it: they only grow, and whole
        slices were stamped at once.
        """
        first = self.first("time", data, at)
        if count == 1 or first == self.first("time", data, at + (count - 1) * self.size):
            yield first, count
            return
        half = count // 2
        yield from self.times(data, at, half)
        yield from self.times(data, at + half * self.size, count - half)


def found_at(data: bytes, octets: bytes, at: int = 0) -> Iterator[int]:
    """Where these octets stand."""
    while (at := data.find(octets, at)) >= 0:
        yield at
        at += len(octets)


def columns(first: int, count: int, width: int) -> list[bytes]:
    """The bytes of the numbers first .. first+count-1, most significant column first.

    `count` is at most 65,536.
    """
    found = [_RAMP[first & 255 : (first & 255) + count]]
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
