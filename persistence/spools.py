"""Large bodies that pass piece by piece: into a file before their row is there, and out of it again.

    transfers --pieces--> Spool: pwrite .. --> complete --fdatasync, row (file, at, size)--> COMMIT
    store.bodies.8:   | head | rest of the body ...................... |       a file for each body
                       memory  |<------ BodyTail: TailReader.read ----->|

The head of a body, what stands before the sections of its body, is in memory as long as its message is; the
row has a copy of it beside the place of the whole, so that a page is read without its bodies. The rest is
checked while it is read: the last piece is not given before the checksum of all of them is right.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from amqp_broker.persistence.checksums import crc32
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.open_bodies import UNREADABLE, OpenBodies, path_of
from amqp_broker.persistence.records import BodyTail

_BLOCK_BYTES: Final = 4096
_HEAD_CRC_BYTES: Final = 4  # before the copy of a head in its row


class Spool:
    """The file of one body that is on its way to the store; nobody else knows it. Raises OSError, and then is
    good for nothing but `BodyFiles.end_spool`.
    """

    def __init__(
        self, directory: Path, bodies: OpenBodies, number: int, spare_bytes: int, most_bytes: int,
        refuses: Callable[[int], bool],
    ) -> None:  # fmt: skip
        """A new file, for at most so many octets. One with `spare_bytes` might be written again while it is
        read: none gets so large. `refuses` says whether the disk has no room for so many more.
        """
        self.number = number
        self.most_bytes = most_bytes
        """What it may come to: as much is promised to it."""
        self._bodies = bodies
        self.size = 0
        self.crc = 0
        self.stored = False
        """Whether a commit has returned that synced it: its file may be closed from then on."""
        self._spare_bytes = spare_bytes
        self._synced_bytes = 0
        self._error: OSError | None = None  # of a sync: the system tells it once, and it is true ever after
        self._syncing = threading.Lock()
        self._refuses = refuses
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._descriptor = os.open(path_of(directory, number), flags, 0o600)
        fault_point("spool.made")

    def write(self, piece: bytes) -> None:
        """Append a piece of the body. Raises OSError (ENOSPC) also where the last of the room is for others.
        """
        if self._refuses(len(piece)):
            raise OSError(errno.ENOSPC, "the disk is below its low-water mark")
        rest = memoryview(piece)
        at = self.size
        while rest:
            written = os.pwrite(self._descriptor, rest, at)
            at += written
            rest = rest[written:]
        self.size = at
        self.crc = crc32(piece, self.crc)
        fault_point("spool.written")

    def last(self, octets: int) -> bytes:
        """So many octets from its end. Raises OSError."""
        found, at = b"", self.size - octets
        while len(found) < octets:
            piece = os.pread(self._descriptor, octets - len(found), at + len(found))
            if not piece:
                raise OSError(errno.EIO, f"the file of its body ends before {self.size} bytes")
            found += piece
        return found

    @property
    def unsynced(self) -> int:
        """Octets that were written since the last `sync`."""
        return self.size - self._synced_bytes

    def sync(self) -> None:
        """What was written so far is on the disk. Blocking, and it may run in a worker, also in two, but one
        after the other: none passes while another one is told an error. Raises OSError, from the first time
        on each time.
        """
        with self._syncing:
            if self._error is not None:
                raise self._error
            size = self.size
            try:
                os.fdatasync(self._descriptor)
            except OSError as error:
                self._error = error
                raise
            self._synced_bytes = size
        fault_point("spool.synced")

    def finish(self) -> None:
        """The body is complete, and the file as large as it stays: the commit of its row has it synced."""
        self.most_bytes = self.size
        if self.size == self._spare_bytes:
            os.ftruncate(self._descriptor, self.size + _BLOCK_BYTES)

    def tail(self, head: bytes) -> BodyTail:
        """What is behind the head of the complete body."""
        return BodyTail(self._bodies.file(self.number), head, len(head), self.size - len(head), self.crc)

    def close(self) -> None:
        """Let go of the file; harmless again."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):  # a file system may tell it as late as here: what is wanted was synced
                os.close(descriptor)


class TailReader:
    """Reads a tail from its beginning, in pieces."""

    def __init__(self, tail: BodyTail) -> None:
        self.size_bytes = tail.size
        self.why = ""
        """Why a `read` came to nothing."""
        self.damaged = False
        """Whether that is for good: the octets are not there, or others are. Else another try may do."""
        self._tail = tail
        self._at = 0
        self._crc = crc32(tail.head)

    def read(self, octets: int) -> bytes:
        """The next octets, at most so many; empty where they are damaged or cannot be read, and at the end.
        The last ones come only if all octets are as they were written.
        """
        tail = self._tail
        wanted = min(octets, tail.size - self._at)
        if self.why or wanted <= 0:
            return b""
        at = tail.at + self._at
        try:
            piece = tail.file.read(wanted, at)
        except OSError as error:
            return self._fails(f"the file of its body cannot be read: {error}", error.errno in UNREADABLE)
        if not piece:
            return self._fails(f"the file of its body ends before {tail.at + tail.size} bytes")
        self._at += len(piece)
        self._crc = crc32(piece, self._crc)
        if self._at == tail.size and self._crc != tail.crc:
            return self._fails(f"the body does not match its checksum ({tail.whole_size} bytes read)")
        return piece

    def _fails(self, why: str, damaged: bool = True) -> bytes:
        self.why, self.damaged = why, damaged
        return b""


def encode_head(head: bytes, seed: int) -> bytes:
    """The copy of a head as its row has it."""
    return crc32(head, seed).to_bytes(_HEAD_CRC_BYTES, "little") + head


def decode_head(stored: object, seed: int) -> bytes | None:
    """The head, of which a row has a sound copy; None where it has none."""
    if not isinstance(stored, bytes) or len(stored) < _HEAD_CRC_BYTES:
        return None
    head = stored[_HEAD_CRC_BYTES:]
    return head if crc32(head, seed).to_bytes(_HEAD_CRC_BYTES, "little") == stored[:_HEAD_CRC_BYTES] else None
