"""What one commit brought to many queues, a message or two to each: one segment, and one row that lists whose
its messages are.

    commit    segment: the bodies of all      spread: (queue, first offset, count) of each stretch of them
    retired   the row has a bit for each message; when all are set, both rows go
    still there when many more came, or when the store is opened or closed
              gathered by queue (gathering.py): a segment and a row of `run` for what each queue has of them

A row of `run` for each would lie on a page of its own for each queue. A commit writes whole pages, and a
checkpoint once more: 16 KiB for a message of 100 octets. What is taken within seconds never needs them, and
what stays shares them with what came before and after it.

All rows of an open store are in memory, too: where a queue's messages are, no index on the disk tells. An
offset that was in a row of `spread` is known to be used by that row, as by one of `run`.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import attrs

from amqp_broker.persistence.table import SqlTable, blobs, integers

_PLACE: Final = struct.Struct("<qqI")


@attrs.frozen
class SpreadSizes:
    """How many small runs a group has at least to make one row of them, and when a run is small; what such a
    row holds at most, in messages and octets of bodies; how many messages there may be in all of them, and
    how many of the oldest are gathered by queue when there are more.
    """

    runs: int = 4
    run_messages: int = 4  # what has more gains little: its row is not for itself on its page
    run_bytes: int = 2 * 1024  # gathering writes bodies once more
    messages: int = 256
    bytes: int = 64 * 1024
    most: int = 24 * 1024  # about 400 octets of memory each
    gathered: int = 8 * 1024  # about 20 ms


SPREAD_SIZES: Final = SpreadSizes()


class Spread:
    """A row of `spread`, as the last commit left it: a set bit of `gone` is a retired message. `runs` are the
    stretches, of which those that are wholly gone may be left out.
    """

    __slots__ = ("count", "gone", "places", "runs", "segment_id")

    def __init__(self, segment_id: int, count: int, gone: int, places: bytes) -> None:
        self.segment_id: int = segment_id
        self.count: int = count
        self.gone: int = gone
        self.places: bytes = places
        self.runs: list[Any] = []

    def row(self, gone: int) -> tuple[object, ...]:
        """The row with these bits, and a fresh checksum."""
        bits = gone.to_bytes((self.count + 7) >> 3, "little")
        return SPREAD.row(self.segment_id, self.count, bits, self.places)


def _spread_of(segment_id: int, count: int, gone: bytes, places: bytes) -> Spread:
    return Spread(segment_id, count, int.from_bytes(gone, "little"), places)


SPREAD: Final = SqlTable(
    "spread",
    10,
    ("segment_id",),
    [*integers("segment_id", "count"), *blobs("gone", "places")],
    _spread_of,
    measured=1,
)
_GONE: Final = SPREAD.names.index("gone")


def changed(row: tuple[object, ...]) -> tuple[object, ...]:
    """The parameters of SET_GONE, of a row."""
    return row[_GONE], row[-1], row[0]


SET_GONE: Final = "UPDATE spread SET gone=?, checksum=? WHERE segment_id=?"
DELETE_SPREAD: Final = "DELETE FROM spread WHERE segment_id=?"


def encode_places(places: list[tuple[int, int, int]]) -> bytes:
    """Each stretch of the messages of a segment, as `decode_places` has it."""
    pack = _PLACE.pack
    return b"".join([pack(*place) for place in places])


def decode_places(places: bytes, count: int) -> list[tuple[int, int, int]] | None:
    """(queue, first offset, count) of each stretch; None where they cannot be those of so many messages."""
    if len(places) % _PLACE.size:
        return None
    found = list(_PLACE.iter_unpack(places))
    if sum([each for _, _, each in found]) != count or not all(each for _, _, each in found):
        return None
    return found
