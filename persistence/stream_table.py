"""Sequenced streams on disk: a row for each, found by one search; memory holds none of them.

Measured with a million streams of random names in one queue (176 MB): `StreamOf` takes 13 us of CPU, 8.5 us
if there is none; to ask, post and advance in groups of 300 takes 41 us for each message. The process grew by
20 MB from the first to the millionth, SQLite's cache of 16 MiB included.
"""

from __future__ import annotations

import struct
from operator import itemgetter
from typing import Any, Final

from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.half_changes import StreamKey
from amqp_broker.persistence.halves import Stream
from amqp_broker.persistence.questions import StreamCount, StreamOf, StreamsOf
from amqp_broker.persistence.sqlite_library import Parameters
from amqp_broker.persistence.table import SqlTable, blobs, integers, sound_page, texts
from amqp_broker.persistence.unit_of_work import UnitOfWork

FORGET_STREAMS: Final = 1024  # of a deleted queue in one step

_NUMBER: Final = struct.Struct("<Q")
_SIGNED: Final = struct.Struct("<q")


def _stream_of(queue_id: int, seq_id: int, seq_no: int, *rest: Any) -> Stream:
    reject_count, last_access_ms, stream, owner, former = rest
    (seq_id,) = _NUMBER.unpack(_SIGNED.pack(seq_id))
    numbers = struct.unpack(f"<{len(former) // 8}Q", former)
    pairs = tuple(zip(numbers[::2], numbers[1::2], strict=True))
    return Stream(queue_id, stream, owner, seq_id, seq_no, pairs, reject_count, last_access_ms)


STREAM: Final = SqlTable(
    "stream",
    3,
    ("queue_id", "stream"),
    [
        *integers("queue_id", "seq_id", "seq_no", "reject_count", "last_access_ms"),
        *texts("stream", "owner"),
        *blobs("former"),
    ],
    _stream_of,
    measured=3,
)

_NAME: Final = STREAM.names.index("stream")
_FIND: Final = STREAM.select("WHERE queue_id=? AND stream=?")
_LIST: Final = STREAM.select(
    "WHERE queue_id=? AND stream.stream>CAST(? AS TEXT) ORDER BY stream.stream LIMIT ?"
)
_DELETE: Final = "DELETE FROM stream WHERE queue_id=? AND stream=?"
_FORGET: Final = (
    "DELETE FROM stream WHERE queue_id=? AND stream IN (SELECT stream FROM stream WHERE queue_id=? LIMIT ?)"
)


class StreamTable:
    """The table `stream`."""

    def __init__(self, unit: UnitOfWork) -> None:
        self._unit = unit

    def find(self, asked: StreamOf) -> Stream | None:
        """The answer, as if the queue were there. Raises RowDamaged, StoreFailed."""
        return STREAM.only(self._unit, _FIND, (asked.queue_id, asked.stream), "stream {1!r} of queue {0}")

    def count(self, _: StreamCount) -> int:
        """The answer. Raises RowDamaged, StoreFailed."""
        ((count,),) = STREAM.query(self._unit, "SELECT count(*) FROM stream")
        return int(count)

    def page(self, asked: StreamsOf) -> list[Stream]:
        """The answer, as if the queue were there."""
        return sound_page(
            lambda after, limit: STREAM.query(self._unit, _LIST, (asked.queue_id, after, limit)),
            STREAM.value,
            itemgetter(_NAME),
            asked.after.encode(),
            asked.count,
        )

    def write(self, streams: dict[StreamKey, Stream | None]) -> None:
        """Run inside the transaction of the group. Raises as `UnitOfWork.execute`."""
        advanced = [_row_of(stream) for stream in streams.values() if stream is not None]
        forgotten = [key for key, stream in streams.items() if stream is None]
        if advanced:
            fault_point("advance.before_streams")
            self._unit.execute_many(STREAM.replace, advanced)
            fault_point("advance.after_streams")
        if forgotten:
            self._unit.execute_many(_DELETE, forgotten)


def forget_streams(unit: UnitOfWork, queue_id: int) -> bool:
    """Delete some streams of a queue that is gone; False if there was none. Raises as `UnitOfWork.commit`."""
    unit.begin()
    if not unit.execute(_FORGET, (queue_id, queue_id, FORGET_STREAMS)):
        unit.rollback()
        return False
    fault_point("sweep.before_commit")
    unit.commit()
    return True


def _row_of(stream: Stream) -> Parameters:
    numbers = [number for former in stream.former for number in former]
    (seq_id,) = _SIGNED.unpack(_NUMBER.pack(stream.seq_id))  # it has 64 bits, as SQLite's, which have a sign
    return STREAM.row(
        stream.queue_id, seq_id, stream.seq_no, stream.reject_count, stream.last_access_ms,
        stream.stream, stream.owner, struct.pack(f"<{len(numbers)}Q", *numbers),
    )  # fmt: skip
