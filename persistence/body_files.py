"""Large bodies lie in files of their own beside the database, and are written once.

    a commit:   bodies -> pwritev -> fdatasync  |  rows that say where they are -> COMMIT
    store.bodies.7:   | bodies of a commit | .. | bodies of the next one | ...... room that is preallocated |
                      0                         a block's beginning

In SQLite a body is written to its log, and at the checkpoint once more; here it is on the disk, once, before
the row of its segment points to it (columns `file`, `at` and `size`). A file is only appended to, each commit
from a new block on, so that no write touches what an earlier one synced, and by one process: a start begins a
file of its own. Where the bodies of a commit end is known by its rows alone; what a crash has left behind
them belongs to nobody. The directory of the segment has the checksum of each body.

A body that is larger than what memory should hold comes piece by piece to a file of its own (spools.py),
before there is a row: the same name, the same place in a row. Rows alone say whether such a file is wanted.

A file of which no row is left is written again from its front, or removed. One of which little is left gives
that back to the rows of its segments, in SQLite.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import attrs

from amqp_broker.persistence.errors import BodyGone, StoreCorrupt, StoreFailed, StoreFull
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.open_bodies import PREFIX as PREFIX
from amqp_broker.persistence.open_bodies import UNREADABLE, OpenBodies, path_of
from amqp_broker.persistence.spools import Spool
from amqp_broker.persistence.unit_of_work import Row, UnitOfWork

LARGE_BODY_BYTES: Final = 4 * 1024  # smaller ones gain nothing: SQLite writes whole pages of 8 KiB
COMMIT_BYTES: Final = 64 * 1024  # with fewer the second sync costs more than the copies that it saves
FILE_BYTES: Final = 32 * 1024 * 1024  # less than the low-water mark: the guard of free space acts first
BLOCK_BYTES: Final = 4096  # what a disk and a file system write wholly
SPARES: Final = 2  # files without bodies that are kept: while two fill up, what is in a third is delivered
SPARSE_FRACTION: Final = 4  # sparse: less than a quarter is wanted
MOVE_BYTES: Final = 1024 * 1024  # moved into SQLite in one step; one segment may be larger
SPOOLS_MAX: Final = 128  # that are written at once: each has a descriptor
FILES_OF_A_STEP: Final = 128  # looked at: as many as the store can get in one commit
FREED_BYTES: Final = 64 * 1024 * 1024  # given back to the file system in a step: 16 MiB take up to 10 ms
GONE_FILES: Final = 16  # wait for a step of their own
_PIECES: Final = os.sysconf("SC_IOV_MAX")
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_NAME: Final = re.compile(re.escape(PREFIX) + r"(\d{1,15})")
_HIGHEST: Final = 10**15  # a damaged row may have any number

PLACED: Final = "directory, bodies, file, at, size"
"""The columns of a segment that `bodies_of` takes."""
FILES_OF_ROWS: Final = "SELECT DISTINCT file FROM segment WHERE file>0"
_WANTED_BYTES: Final = "SELECT sum(size) FROM segment WHERE file>0 AND file=?"
_SEGMENTS: Final = (
    "SELECT id, file, at, size FROM segment WHERE file>0 AND file=? AND id>? ORDER BY id LIMIT 64"
)
MOVE_TO_ROW: Final = "UPDATE segment SET bodies=?, file=0, at=0, size=0 WHERE id=?"


@attrs.frozen
class BodyFileSizes:
    """In bytes: from which size on a body is large (0: none is), how much of large bodies a commit has at
    least for a file to be worth while, and how large a file is.
    """

    large_body: int = LARGE_BODY_BYTES
    commit: int = COMMIT_BYTES
    file: int = FILE_BYTES


BODY_FILE_SIZES: Final = BodyFileSizes()


@attrs.define
class Writing:
    """The bodies of the commit under way, and where they go; `fresh`: the file is to be made."""

    number: int
    fresh: bool
    begin: int
    end: int
    pieces: list[bytes]


def body_file_names(directory: str | os.PathLike[str]) -> list[str]:
    """The files of a data directory that rows of its database may point to. Where nobody removes one, they
    hold what the rows of any copy of the database point to that was made since it was complete.
    """
    return sorted([name for name in os.listdir(directory) if _NAME.fullmatch(name)])


def bodies_of(directory: str | os.PathLike[str], row: Row) -> object:
    """The bodies of a segment, of a row that ends with `bodies, file, at, size`, wherever they are. None
    where they cannot be read. Raises StoreFailed.
    """
    bodies, number, at, size = row[-4:]
    return read_bodies(directory, number, at, size) if number else bodies


def read_bodies(directory: str | os.PathLike[str], number: object, at: object, size: object) -> bytes | None:
    """What is at a place, whose numbers may be damaged; None where there is none, or it cannot be read.
    Raises StoreFailed.
    """
    if not (isinstance(number, int) and isinstance(at, int) and isinstance(size, int)):
        return None
    try:
        descriptor = os.open(path_of(directory, number), os.O_RDONLY | os.O_CLOEXEC)
        try:
            if min(at, size) < 0 or at + size > os.fstat(descriptor).st_size:
                return None
            found = os.pread(descriptor, size, at)
            while len(found) < size and (more := os.pread(descriptor, size - len(found), at + len(found))):
                found += more
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in UNREADABLE:
            return None
        raise StoreFailed(f"the bodies of {PREFIX}{number} cannot be read: {error}") from error
    return found if len(found) == size else None


class BodyFiles:
    """The files of an open store. What it says of them is what the last commit left."""

    def __init__(self, directory: Path, unit: UnitOfWork, sizes: BodyFileSizes) -> None:
        self._directory = directory
        self.names = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        """The directory: there may be no descriptor left when a commit has to sync it."""
        self._unit = unit
        self.sizes = sizes
        self.filled = False  # a file is full: look for one that can be written again
        self.held = False  # what is full stays: which rows point to it cannot be read
        self.moved = False  # bodies went to rows that are in SQLite's log only
        self._copies: dict[object, int] = {}  # made of the store: what was there before a number stays
        self._next = 1
        self._current = 0  # the file that is written, 0 if none is
        self._descriptor = -1
        self._end = 0  # where its next block begins
        self._room = 0
        self._full: dict[int, None] = {}  # those that have bodies, in the order in which they were filled
        self._filled_last = 0
        self._spools: dict[int, Spool] = {}  # those that come piece by piece, until their message is stored
        self._joined: list[Spool] = []  # those of the commit under way
        self.opened = OpenBodies(directory, self._let_go)
        self._spares: list[int] = []
        self._gone: dict[int, None] = {}  # those that nobody in memory wants any more
        self._round: list[int] = []  # those that this round has to look at
        self._round_wanted = False
        self._sparse: tuple[int, int] | None = None  # file, and the segment up to which it was moved
        self._stuck: set[int] = set()  # something in them cannot be moved
        self.waits: Writing | None = None  # for `write`; without it, what was not committed is forgotten

    def recover(self) -> None:
        """Find what is there, and remove what no row points to: a crash has left it. Raises StoreFailed."""
        found = map(_NAME.fullmatch, os.listdir(self._directory))
        named = sorted([int(one[1]) for one in found if one is not None])
        try:
            wanted = {row[0] for row in self._unit.query(FILES_OF_ROWS)}
        except StoreCorrupt:
            wanted, self.held = set(named), True  # verification tells about it
        self._full = dict.fromkeys(number for number in named if number in wanted)
        self._spares = []
        self._next = max([0, *named, *[n for n in wanted if isinstance(n, int) and n < _HIGHEST]]) + 1
        for number in named:
            if number not in wanted:
                self._remove(number)
        self.retired()

    # Writing

    def place(self, segments: Sequence[Sequence[bytes]]) -> list[tuple[int, int, int]]:
        """Where the bodies of each segment will be (file, at, size). They are in `write`, before the rows are
        committed; nothing happens before.
        """
        assert self.waits is None, "the bodies of a commit get their places at once"
        sizes = [sum(map(len, bodies)) for bodies in segments]
        wanted = sum(sizes)
        number, fresh, begin = self._current, False, self._end
        if not number or begin + wanted > self._room:
            fresh, begin = not self._spares or wanted > self.sizes.file, 0
            number = self._next if fresh else self._spares[0]
            if fresh:
                self._next = number + 1  # a spool that begins meanwhile has another one
        places: list[tuple[int, int, int]] = []
        at = begin
        for size in sizes:
            places.append((number, at, size))
            at += size
        self.waits = Writing(number, fresh, begin, at, [one for bodies in segments for one in bodies])
        return places

    def write(self) -> None:
        """Have the bodies of the commit under way on the disk. Raises StoreFull (they are not, and nothing
        happened) or StoreFailed (unknown, and final).
        """
        writing = self.waits
        assert writing is not None, "there is nothing to write"
        try:
            if writing.number != self._current:
                self._begin(writing)
            fault_point("body_file.before_write")
            _write_all(self._descriptor, writing.pieces, writing.begin)
        except OSError as error:
            if error.errno in _FULL:
                raise StoreFull(f"the disk is full ({error})") from error
            raise self._failed(error) from error
        try:
            fault_point("body_file.before_sync")
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise self._failed(error) from error
        fault_point("body_file.after_sync")

    def _begin(self, writing: Writing) -> None:
        """Go on with another file, which is there also after a power cut."""
        path = path_of(self._directory, writing.number)
        room = max(self.sizes.file, writing.end)
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_TRUNC if writing.fresh else 0)
        try:
            descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            if error.errno in _NO_DESCRIPTOR:  # nothing happened, and somebody's file may be closed soon
                raise StoreFull(f"there is no descriptor for a file of bodies ({error})") from error
            raise
        try:
            if writing.fresh:
                os.posix_fallocate(descriptor, 0, room)
                fault_point("body_file.made")
        except OSError:
            os.close(descriptor)
            os.unlink(path)
            raise
        self._leave_current()
        self._current, self._descriptor, self._room, self._end = writing.number, descriptor, room, 0
        if writing.fresh:
            self._sync_names()
        else:
            self._spares.remove(writing.number)

    def _sync_names(self) -> None:
        """The files that were made are there after a power cut, too. Raises StoreFailed for any error: the
        system tells it once, and the next time would say that all is well.
        """
        try:
            os.fsync(self.names)
        except OSError as error:
            raise self._failed(error) from error

    def _leave_current(self) -> None:
        if self._current:
            os.close(self._descriptor)
            self._full[self._current] = None
            self._filled_last = self._current
            self.filled = self._round_wanted = True
        self._current, self._descriptor = 0, -1

    def _failed(self, error: OSError) -> StoreFailed:
        failure = StoreFailed(f"bodies could not be written, what the disk holds is unknown: {error}")
        self._unit.give_up(failure)
        return failure

    def forget(self) -> None:
        """Nothing is written for a commit."""
        self.waits = None
        self._joined = []

    def keep(self) -> None:
        """The commit is durable: the next one goes behind it."""
        if self.waits is not None:
            self._end = -(-self.waits.end // BLOCK_BYTES) * BLOCK_BYTES
            self.waits = None
        for spool in self._joined:
            spool.stored = True

    # Bodies that come piece by piece

    def begin_spool(self, most_bytes: int, refuses: Callable[[int], bool]) -> Spool | None:
        """A file for one body, in the thread of `place`, also during a commit or a step; `refuses` tells if
        there is no room for so much more of it. None where SPOOLS_MAX are written. Raises OSError.
        """
        if len(self._spools) >= SPOOLS_MAX:
            return None
        number = self._next
        self._next = number + 1
        spool = Spool(self._directory, self.opened, number, self.sizes.file, most_bytes, refuses)
        self._spools[number] = spool
        return spool

    def promised_bytes(self) -> int:
        """What those that are under way may still come to."""
        return sum(max(0, spool.most_bytes - spool.size) for spool in self._spools.values())

    def join(self, number: int) -> None:
        """A row of the commit under way points to the file of one body: `sync_spools` before it is committed.
        """
        spool = self._spools.get(number)
        if spool is not None and not spool.stored:  # else it was synced for another row, and may be closed
            self._joined.append(spool)

    def sync_spools(self) -> None:
        """Have the bodies of the commit under way that came piece by piece on the disk, and their names.
        Raises as `write`.
        """
        if not self._joined:
            return
        try:
            for spool in self._joined:
                spool.sync()
        except OSError as error:
            if error.errno in _FULL:
                raise StoreFull(f"the disk is full ({error})") from error
            raise self._failed(error) from error
        self._sync_names()

    def end_spool(self, spool: Spool, stored: bool) -> None:
        """Its message is stored: from now on its file is as any other that is full. Or it never will be: its
        room is free at once. Not to be said while nobody knows which.
        """
        spool.close()
        self._spools.pop(spool.number, None)
        if self._unit.failure is not None:
            return  # the next start decides
        if not stored:
            try:
                os.unlink(path_of(self._directory, spool.number))
                return
            except OSError:
                pass  # a later step tries it again
        self._full[spool.number] = None
        if not self.opened.wants(spool.number):
            self._let_go(spool.number)

    def objection(self, number: int) -> BodyGone | None:
        """Why a row cannot point to a file with one body, or None."""
        if number in self._full or number in self._spools:
            return None
        return BodyGone(f"the file {PREFIX}{number} with the body of a message is not there any more")

    # Housekeeping

    def keep_for(self, copy: object) -> None:
        """`copy` is made of the store as it is now, and may have any file that is there."""
        self._copies[copy] = self._next

    def let_go_of(self, copy: object) -> None:
        """It has what it needs, or will not be. In any thread; harmless again."""
        if self._copies.pop(copy, None) is not None:
            self.filled = self._round_wanted = True

    def retired(self) -> None:
        """Segments were deleted or moved: a file may have none any more."""
        if self._full:
            self._round_wanted = True

    def _let_go(self, number: int) -> None:
        """No message in memory has a file any more; in any thread."""
        self._gone[number] = None
        if len(self._gone) % GONE_FILES == 0:
            self.filled = True

    def step(self) -> int | None:
        """Look at some of the files: one without bodies is written again or removed, one with few gives them
        to SQLite. The number of bytes that were moved; None if nothing waits.

        Raises StoreFull (nothing happened), StoreFailed.
        """
        self.filled = False
        if self.held:
            return None
        try:
            return self._step()
        except StoreCorrupt:
            self.held = True  # verification tells about it
            return None

    def _step(self) -> int | None:
        freed = 0
        for _ in range(min(len(self._gone), FILES_OF_A_STEP)):
            if freed >= FREED_BYTES:
                self.filled = True  # another step after the next commit
                return 0
            number, _ = self._gone.popitem()
            if number in self._full and self._wanted_bytes(number) is None:
                freed += self._free(number)
        if self._sparse is not None:
            return self._move(*self._sparse)
        if not self._round and self._round_wanted:
            self._round_wanted = False
            self._round = list(self._full)[::-1]
        for _ in range(min(len(self._round), FILES_OF_A_STEP)):
            if freed >= FREED_BYTES:
                self.filled = True  # another step after the next commit
                return 0
            number = self._round.pop()
            if number not in self._full:
                continue
            wanted = self._wanted_bytes(number)
            if wanted is None:
                freed += self._free(number)
            elif self._is_sparse(number, wanted):
                self._sparse = (number, 0)
                break
        return 0 if self._gone or self._round or self._sparse or self._round_wanted else None

    def _wanted_bytes(self, number: int) -> int | None:
        """What rows want of a file; None where none does."""
        ((wanted,),) = self._unit.query(_WANTED_BYTES, (number,))
        assert wanted is None or isinstance(wanted, int)
        return wanted

    def _free(self, number: int) -> int:
        """No row has the file: it goes, unless somebody may read it, or bring it to another node, or a copy
        of the store may have it. How many octets the file system got back.
        """
        if self.opened.wants(number) or number < max(self._copies.values(), default=0):
            return 0
        if self.moved:  # without its log the database still points here (`give_up_log`)
            self._unit.query("PRAGMA wal_checkpoint(PASSIVE)")
            self.moved = False
        del self._full[number]
        return self._spare(number)

    def _is_sparse(self, number: int, wanted: int) -> bool:
        """The last one that was filled may be so because its messages are just being delivered."""
        if number in self._stuck or (self._current and number == self._filled_last):
            return False
        return wanted * SPARSE_FRACTION < self._size_of(number)

    def _size_of(self, number: int) -> int:
        try:
            return os.path.getsize(path_of(self._directory, number))
        except FileNotFoundError:
            return 0

    def _spare(self, number: int) -> int:
        size = self._size_of(number)
        if len(self._spares) < SPARES and size == self.sizes.file:
            self._spares.append(number)
            return 0
        self._remove(number)
        return size

    def _move(self, number: int, behind: int) -> int:
        rows = self._unit.query(_SEGMENTS, (number, behind))
        self._sparse = None
        moved: list[tuple[bytes, int]] = []
        size = 0
        for row in rows:
            segment_id = row[0]
            bodies = read_bodies(self._directory, *row[1:])
            if bodies is None:
                self._stuck.add(number)  # `read` will put it into quarantine; it stays where it is
            else:
                moved.append((bodies, segment_id))
                size += len(bodies)
            self._sparse = (number, segment_id)
            if size >= MOVE_BYTES:
                break
        self._round_wanted = True
        if moved:
            self._unit.begin()
            self._unit.execute_many(MOVE_TO_ROW, moved)
            fault_point("body_file.before_move")
            self._unit.commit()
            self.moved = True
        return size

    def _remove(self, number: int) -> None:
        """That it is gone need not be durable: the next start removes what no row points to."""
        fault_point("body_file.before_remove")
        self.opened.close(number)
        try:
            os.unlink(path_of(self._directory, number))
        except FileNotFoundError:
            pass  # somebody else did
        except OSError as error:
            raise self._failed(error) from error

    def remove_spares(self) -> None:
        """Give their room to the file system. Raises StoreFailed."""
        spares, self._spares = self._spares, []
        for number in spares:
            self._remove(number)

    def close(self) -> None:
        """Let go of the files, and remove those without bodies. Raises StoreFailed."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._current, self._descriptor = 0, -1
        self.opened.close()
        os.close(self.names)
        if self._unit.failure is None and not self._copies:  # else the next start removes them
            self.recover()


def _write_all(descriptor: int, pieces: Sequence[bytes], at: int) -> None:
    """Write pieces one behind the other. Raises OSError."""
    first = done = 0  # what of the first piece is written
    while first < len(pieces):
        part: list[bytes | memoryview] = [*pieces[first : first + _PIECES]]
        if done:
            part[0] = memoryview(part[0])[done:]
        written = os.pwritev(descriptor, part, at)
        at += written
        done += written
        while first < len(pieces) and done >= len(pieces[first]):
            done -= len(pieces[first])
            first += 1
