"""Sequenced streams on disk: a row for each, found by one search; memory holds none of them.

Measured with a million streams of random names in one queue (176 MB): `StreamOf` takes 13 us of CPU, 8.5 us
if there is none; to ask, post and advance in groups of 300 takes 41 us for each message. The process grew by
20 MB from the first to the millionth, SQLite's cache of 16 MiB included.
"""

from __future__ import annotations

import struct
from typing import Final

from amqp_broker.persistence.checksums import is_sound, stream_checksum
from amqp_broker.persistence.errors import RowDamaged, StoreCorrupt
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.half_changes import StreamKey
from amqp_broker.persistence.halves import Stream
from amqp_broker.persistence.questions import StreamCount, StreamOf, StreamsOf
from amqp_broker.persistence.sound_page import sound_page
from amqp_broker.persistence.sqlite_library import Parameters
from amqp_broker.persistence.unit_of_work import Row, UnitOfWork

FORGET_STREAMS: Final = 1024  # of a deleted queue in one step

# Texts are read as bytes: what is damaged may be no UTF-8.
STREAM_COLUMNS: Final = (
    "queue_id, CAST(stream AS BLOB), CAST(owner AS BLOB), seq_id, seq_no, former, reject_count, "
    "last_access_ms, checksum"
)
_FIND: Final = f"SELECT {STREAM_COLUMNS} FROM stream WHERE queue_id=? AND stream=?"
_LIST: Final = (
    f"SELECT {STREAM_COLUMNS} FROM stream s WHERE queue_id=? AND s.stream>CAST(? AS TEXT) "
    "ORDER BY s.stream LIMIT ?"
)
_REPLACE: Final = "REPLACE INTO stream VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_DELETE: Final = "DELETE FROM stream WHERE queue_id=? AND stream=?"
_FORGET: Final = (
    "DELETE FROM stream WHERE queue_id=? AND stream IN (SELECT stream FROM stream WHERE queue_id=? LIMIT ?)"
)
_NUMBER: Final = struct.Struct("<Q")
_SIGNED: Final = struct.Struct("<q")


class StreamTable:
    """The table `stream`."""

    def __init__(self, unit: UnitOfWork) -> None:
        self._unit = unit

    def find(self, asked: StreamOf) -> Stream | None:
        """The answer, as if the queue were there. Raises RowDamaged, StoreFailed."""
        queue_id, stream = asked.queue_id, asked.stream
        for row in self._read(_FIND, (queue_id, stream)):
            if not is_sound(stream_checksum, row):
                raise RowDamaged(f"stream {stream!r} of queue {queue_id} does not match its checksum")
            return stream_of(row)
        return None

    def count(self, _: StreamCount) -> int:
        """The answer. Raises RowDamaged, StoreFailed."""
        ((count,),) = self._read("SELECT count(*) FROM stream", ())
        return int(count)

    def page(self, asked: StreamsOf) -> list[Stream]:
        """The answer, as if the queue were there."""
        return sound_page(
            lambda cursor, limit: self._read(_LIST, (asked.queue_id, cursor, limit)),
            lambda row: stream_of(row) if is_sound(stream_checksum, row) else None,
            lambda row: row[1],
            asked.after.encode(),
            asked.count,
        )

    def _read(self, sql: str, parameters: Parameters) -> list[Row]:
        try:
            return self._unit.query(sql, parameters)
        except StoreCorrupt as error:
            raise RowDamaged(f"the stored streams cannot be read: {error}") from error

    def write(self, streams: dict[StreamKey, Stream | None]) -> None:
        """Run inside the transaction of the group. Raises as `UnitOfWork.execute`."""
        advanced = [row_of(stream) for stream in streams.values() if stream is not None]
        forgotten = [key for key, stream in streams.items() if stream is None]
        if advanced:
            fault_point("advance.before_streams")
            self._unit.execute_many(_REPLACE, advanced)
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


def row_of(stream: Stream) -> Parameters:
    """The row of a stream, in the order of the columns."""
    numbers = [number for former in stream.former for number in former]
    former = struct.pack(f"<{len(numbers)}Q", *numbers)
    (seq_id,) = _SIGNED.unpack(_NUMBER.pack(stream.seq_id))  # it has 64 bits, as SQLite's, which have a sign
    values = (stream.seq_no, former, stream.reject_count, stream.last_access_ms)
    checksum = stream_checksum(
        stream.queue_id, stream.stream.encode(), stream.owner.encode(), seq_id, *values
    )
    return (stream.queue_id, stream.stream, stream.owner, seq_id, *values, checksum)


def stream_of(row: Row) -> Stream:
    """A sound row of STREAM_COLUMNS."""
    queue_id, stream, owner, seq_id, seq_no, former, reject_count, last_access_ms, _ = row
    numbers = struct.unpack(f"<{len(former) // 8}Q", former)
    (seq_id,) = _NUMBER.unpack(_SIGNED.pack(seq_id))
    pairs = tuple(zip(numbers[::2], numbers[1::2], strict=True))
    return Stream(
        queue_id, stream.decode(), owner.decode(), seq_id, seq_no, pairs, reject_count, last_access_ms
    )
