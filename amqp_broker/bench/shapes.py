"""Transfers known by their shape: where the varying bytes stand, and how many frames look the same.

    size | 02 00 channel | 00 53 14 .. | handle | delivery-id | tag | ... | sections | run | number | time |
    ...
           ~~~~~~~~~~~~~ constant ~~~~~~~~~~~~~~~   varies      varies  ~~~~ constant ~~~~~~   varies  varies

The first frame of a kind is taken apart byte by byte; after that a whole run of frames of one size is
compared column by column, a few extended slices for hundreds of messages. What a shape does not cover is read
frame by frame.
"""

from __future__ import annotations

from typing import Final

from amqp_broker.bench.templates import columns

TRANSFER: Final = b"\x00\x53\x14"
DATA: Final = 0x75
# Bytes behind the constructor, by the constructor's upper half (part 1, 1.2); variable ones are handled
# apart.
FIXED_WIDTHS: Final = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
# run, number, time
STAMP_BYTES: Final = 24


def skip(data: bytes | bytearray, at: int) -> int:
    """The place behind the value at `at`; ValueError for no value at all, IndexError beyond the data."""
    constructor = data[at]
    if constructor == 0:
        return skip(data, skip(data, at + 1))
    kind = constructor >> 4
    if kind in FIXED_WIDTHS:
        return at + 1 + FIXED_WIDTHS[kind]
    if kind in (0xA, 0xC, 0xE):
        return at + 2 + data[at + 1]
    if kind in (0xB, 0xD, 0xF):
        return at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
    raise ValueError(f"no type has the constructor 0x{constructor:02x}")


class Shape:
    """What transfers of one layout have in common; offsets count from the frame's first byte."""

    __slots__ = ("constants", "id_at", "id_width", "more", "run", "settled", "size", "stamp_at")

    def __init__(self, data: bytes) -> None:
        """Take one whole transfer frame apart.

        Raises ValueError or IndexError for a frame that is not a transfer with fields in a list.
        """
        self.size = len(data)
        at = data[4] * 4
        if data[5] != 0 or data[at : at + 3] != TRANSFER:
            raise ValueError("not a transfer")
        fields, payload_at = field_places(data, at + 3)
        self.id_at, self.id_width = -1, 0
        id_at = fields[1] if len(fields) > 1 else -1
        if id_at >= 0 and data[id_at] in (0x43, 0x52, 0x70):
            self.id_at = id_at + 1
            self.id_width = {0x43: 0, 0x52: 1, 0x70: 4}[data[id_at]]
        self.settled = len(fields) > 4 and is_true(data, fields[4])
        self.more = len(fields) > 5 and is_true(data, fields[5])
        self.stamp_at, self.run = find_stamp(data, payload_at)
        variable = [(self.id_at, self.id_at + self.id_width)] if self.id_at >= 0 else []
        if len(fields) > 2 and data[fields[2]] == 0xA0:
            variable.append((fields[2] + 2, skip(data, fields[2])))
        end = self.stamp_at + 8 if self.stamp_at >= 0 else payload_at
        self.constants: list[tuple[int, bytes]] = []
        at = 0
        for start, stop in [*variable, (end, end)]:
            self.constants.append((at, data[at:start]))
            at = stop

    def fits(self, buffer: bytearray, at: int) -> bool:
        """Whether the frame at `at` has this shape."""
        for offset, constant in self.constants:
            if buffer[at + offset : at + offset + len(constant)] != constant:
                return False
        return True

    def run_length(self, buffer: bytearray, at: int, end: int) -> int:
        """How many whole frames from `at` on have this shape, the first of which is known to have it."""
        size = self.size
        count = (end - at) // size
        if count < 2:
            return 1
        for offset, constant in self.constants:
            for place, value in enumerate(constant, at + offset):
                column = buffer[place : at + count * size : size]
                if column.count(value) != count:
                    count -= len(column.lstrip(constant[place - at - offset : place - at - offset + 1]))
        return count

    def consecutive(self, buffer: bytearray, at: int, count: int) -> bool:
        """Whether delivery-ids and numbers of `count` frames from `at` on both go up by one."""
        size, end = self.size, at + count * self.size
        number, identity = self.number(buffer, at), self.delivery_id(buffer, at)
        identities = columns(identity, count, self.id_width) if self.id_width else []
        places = (at + self.stamp_at + 8, columns(number, count, 8)), (at + self.id_at, identities)
        for start, values in places:
            for place, value in enumerate(values, start):
                if buffer[place:end:size] != value:
                    return False
        return self.id_width > 0

    def number(self, buffer: bytearray, at: int) -> int:
        """The message's number in its run."""
        return int.from_bytes(buffer[at + self.stamp_at + 8 : at + self.stamp_at + 16], "big")

    def time_ns(self, buffer: bytearray, at: int) -> int:
        """When the message was sent, on the machine's monotonic clock."""
        return int.from_bytes(buffer[at + self.stamp_at + 16 : at + self.stamp_at + 24], "big")

    def delivery_id(self, buffer: bytearray, at: int) -> int:
        """The delivery-id of the frame at `at`."""
        return int.from_bytes(buffer[at + self.id_at : at + self.id_at + self.id_width], "big")


def field_places(data: bytes, at: int) -> tuple[list[int], int]:
    """Where the fields of the list at `at` stand, and the place behind it."""
    end = skip(data, at)
    first = {0x45: end, 0xC0: at + 3, 0xD0: at + 9}.get(data[at])
    if first is None:
        raise ValueError("a performative's fields stand in a list")
    places = []
    while first < end:
        places.append(first)
        first = skip(data, first)
    return places, end


def is_true(data: bytes, at: int) -> bool:
    """A boolean in either encoding."""
    return data[at] == 0x41 or data[at : at + 2] == b"\x56\x01"


def find_stamp(data: bytes, at: int) -> tuple[int, int]:
    """Where the stamp begins in the first data section, and the run it names; -1, -1 without one."""
    while at + 3 < len(data):
        if data[at] != 0 or data[at + 1] != 0x53:
            break
        if data[at + 2] == DATA:
            stamp = at + 3 + {0xA0: 2, 0xB0: 5}.get(data[at + 3], len(data))
            if stamp + STAMP_BYTES > len(data):
                break
            return stamp, int.from_bytes(data[stamp : stamp + 8], "big")
        at = skip(data, at + 3)
    return -1, -1
