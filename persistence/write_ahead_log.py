"""SQLite's log of commits (`-wal`) at the start: is all of it there, and is it on the disk?

    header 32 B | frame 1 | frame 2 | ...          https://sqlite.org/fileformat2.html#walformat
    frame:  page number, size after a commit (0: none), salt 1, salt 2, sum 1, sum 2 (4 B each) | page

SQLite takes the first frame that does not match for the end of the log. After a power cut that is right: only
the frames of the one commit that was not synced yet can be torn. But where a later commit of the same log
stands behind that frame, the one before it had been synced, and was damaged afterwards: what was acknowledged
would be lost in silence. Which log a frame is of, its salts say, and nothing else: sums leave the salts out,
and go on from the sum of the frame before, so a torn frame that shows its sum of an older log is matched by
that log's next one.
"""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct
from typing import Final

from amqp_broker.persistence.errors import StoreFailed, StoreFull
from amqp_broker.persistence.unit_of_work import UnitOfWork

LOG_SUFFIX: Final = "-wal"
_HEADER: Final = Struct(">8I")
_FRAME: Final = Struct(">6I")
_LITTLE: Final = 0x377F0682  # the magic number of a log with little-endian sums
_BIG: Final = 0x377F0683
_VERSION: Final = 3_007_000
_PAGE_SIZES: Final = tuple(1 << bits for bits in range(9, 17))
_SALT_AT: Final = 8  # of a frame
_SECTOR_BYTES: Final = 512  # that a disk writes wholly or not at all
_MASK: Final = 0xFFFFFFFF
_PIECE_BYTES: Final = 1024 * 1024

Sum = tuple[int, int]


class _Log:
    """The frames of a log, counted from 1; `salt` is that of its header."""

    def __init__(self, data: bytes, page_size: int, order: str, salt: Sum, seed: Sum) -> None:
        self._data = data
        self._size = _FRAME.size + page_size
        self._start = Struct(f"{order}2I").unpack_from
        self._page = Struct(f"{order}{page_size // 4}I").unpack_from
        self.salt = salt
        self._seed = seed
        self.count = (len(data) - _HEADER.size) // self._size

    def at(self, number: int) -> int:
        """Where a frame begins."""
        return _HEADER.size + (number - 1) * self._size

    def stored(self, number: int) -> Sum:
        """The sum that stands in a frame; of frame 0: in the header."""
        return _FRAME.unpack_from(self._data, self.at(number))[4:] if number else self._seed

    def fields(self, number: int) -> tuple[int, int]:
        """Page number, and the size after the commit that it ends, or 0."""
        return _FRAME.unpack_from(self._data, self.at(number))[:2]

    def is_salted(self, number: int) -> bool:
        """Does it say that it is of this log?"""
        return _FRAME.unpack_from(self._data, self.at(number))[2:4] == self.salt

    def summed(self, number: int, before: Sum) -> Sum:
        """Its sum, behind a frame with the sum `before`."""
        at = self.at(number)
        begin = _add(before, self._start(self._data, at))
        return _add(begin, self._page(self._data, at + _FRAME.size))

    def matches(self, number: int, before: Sum) -> bool:
        """Is it what was written behind a frame with the sum `before`?"""
        return self.summed(number, before) == self.stored(number)

    def is_repaired_commit(self, number: int, before: Sum) -> bool:
        """Would it match, and end a commit, if one byte of its first two fields were another one?"""
        at = self.at(number)
        page = self._page(self._data, at + _FRAME.size)
        zero, one, two = _add((0, 0), page), _add((1, 0), page), _add((0, 1), page)
        first, second = ((one[i] - zero[i], two[i] - zero[i]) for i in (0, 1))
        wanted = self.stored(number)
        found = bytearray(self._data[at : at + 8])
        for index in range(8):
            kept = found[index]
            for byte in range(256):
                found[index] = byte
                begin = _add(before, self._start(found, 0))
                summed = [
                    (zero[i] + begin[0] * factors[0] + begin[1] * factors[1]) & _MASK
                    for i, factors in enumerate((first, second))
                ]
                if (summed[0], summed[1]) == wanted and any(found[4:]):
                    return True
            found[index] = kept
        return False


def _add(before: Sum, words: tuple[int, ...]) -> Sum:
    first, second = before
    pairs = iter(words)
    for one, two in zip(pairs, pairs, strict=True):
        first = (first + one + second) & _MASK
        second = (second + two + first) & _MASK
    return first, second


def lost_commits(database: str) -> str | None:
    """Why commits that were acknowledged would be lost if the store of this file were opened; None: nothing
    tells so. Raises OSError.

    It reads the log only: nothing but SQLite opens the database file.
    """
    log = Path(database + LOG_SUFFIX)
    if not log.is_file():
        return None
    data = log.read_bytes()
    if len(data) < _HEADER.size + _FRAME.size:
        return None
    found = _find_damage(data)
    if found is None and not (os.path.exists(database) and os.path.getsize(database)):
        found = _without_database(data)
    return None if found is None else f"{log.name}: {found}"


def _find_damage(data: bytes) -> str | None:
    log = _open(data)
    if log is None:
        return _behind_damaged_header(data)
    before = log.stored(0)
    bad = 1
    while bad <= log.count and log.is_salted(bad) and log.fields(bad)[0] and log.matches(bad, before):
        before = log.stored(bad)
        bad += 1
    if bad > log.count:
        return None
    behind = [number for number in range(bad + 1, log.count + 1) if log.is_salted(number)]
    if not any(_goes_on(log, number - 1) for number in behind):
        follows = bad + 1 in behind and log.matches(bad + 1, log.stored(bad))
        if not follows or not log.is_repaired_commit(bad, before):
            return None
    return (
        f"frame {bad} of {log.count}, at byte {log.at(bad)}, does not match its checksum, but commits behind "
        f"it are there (up to frame {behind[-1]})"
    )


def _goes_on(log: _Log, end: int) -> bool:
    """Does this frame end a commit that the next frame, which is of this log, follows?"""
    before = log.stored(end - 1)
    is_written = log.is_salted(end) and (log.at(end) + _SALT_AT) % _SECTOR_BYTES != 0
    if not is_written and not log.matches(end, before):
        return False  # torn, it shows as its size what stood there before
    if not log.fields(end)[1]:
        return False
    return log.matches(end + 1, log.stored(end)) or log.matches(end + 1, log.summed(end, before))


def _open(data: bytes) -> _Log | None:
    """None if its header is damaged, or was never written as a whole."""
    magic, version, page_size, _, *rest = _HEADER.unpack_from(data)
    order = {_LITTLE: "<", _BIG: ">"}.get(magic)
    if order is None or version != _VERSION or page_size not in _PAGE_SIZES:
        return None
    if _header_sum(data, order) != (rest[2], rest[3]):
        return None
    return _Log(data, page_size, order, (rest[0], rest[1]), (rest[2], rest[3]))


def _header_sum(data: bytes, order: str) -> Sum:
    return _add((0, 0), Struct(f"{order}6I").unpack_from(data))


def _behind_damaged_header(data: bytes) -> str | None:
    """A header is synced before the first frame is written: where there are frames it was damaged."""
    sums = _HEADER.unpack_from(data)[6:]
    for page_size in _PAGE_SIZES:
        for order in "<>":
            log = _Log(data, page_size, order, (0, 0), (sums[0], sums[1]))
            if not log.count or not log.fields(1)[0]:
                continue
            seeds = ((sums[0], sums[1]), _header_sum(data, order))
            if any(log.matches(1, seed) for seed in seeds) or (
                log.count > 1 and log.matches(2, log.stored(1))
            ):
                return f"its header does not match its checksum, but there are frames behind it ({log.count})"
    return None


def _without_database(data: bytes) -> str | None:
    """The first commit makes the tables. Where there are more, the file had been on the disk before."""
    log = _open(data)
    if log is None:
        return None
    commits = 0
    before = log.stored(0)
    for number in range(1, log.count + 1):
        if not log.is_salted(number) or not log.matches(number, before):
            break
        before = log.stored(number)
        commits += bool(log.fields(number)[1])
    if commits < 2:
        return None
    return f"the database file that its {commits} commits belong to is missing or empty"


def make_durable(unit: UnitOfWork, database: str) -> None:
    """Have everything that recovery found survive a power cut, before anything is answered from it.

    The process before may have ended between a write and its sync, or because a sync failed. After that the
    system may call pages clean that never reached the disk, so that another sync alone proves nothing: what
    was recovered is written once more. The connection holds SQLite's lock, and has written nothing yet. Then
    the log is emptied: no frame of a torn commit is left behind later ones. Raises StoreFailed.
    """
    try:
        _write_again(database + LOG_SUFFIX)
    except OSError as error:
        raise StoreFailed(f"what was recovered cannot be synced: {error}") from error
    try:
        unit.query("PRAGMA wal_checkpoint(TRUNCATE)")
    except StoreFull:
        pass  # it is durable where it is, and settling goes on


def _write_again(path: str) -> None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        at = 0
        while piece := os.pread(descriptor, _PIECE_BYTES, at):
            at += os.pwrite(descriptor, piece, at)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
