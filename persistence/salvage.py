"""`amqp-broker salvage DIR TO`: a new store of all that can be read of a damaged one, which is not changed.

    copy of the files --rows that can be read, table by table--> new store --repair--> what is whole

A damaged page makes the rows on it unreadable, not those on the pages behind it. Each table is read forward
up to the damage and backward down to it; what is between is looked through by the numbers in the key: doubled
steps find the next page that is whole, and halves what is between two damaged ones.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import attrs

from amqp_broker.persistence.body_files import BLOCK_BYTES, body_file_names
from amqp_broker.persistence.data_directory import FileLock, make_directory, restrict_files, sync_names
from amqp_broker.persistence.errors import StoreCorrupt, StoreFailed, StoreFull
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.migrations import bring_up_to_date
from amqp_broker.persistence.removal import cut_log
from amqp_broker.persistence.repairing import Repaired, repair
from amqp_broker.persistence.schema import schema_version
from amqp_broker.persistence.sqlite_library import (
    DATABASE_ERRORS,
    Connection,
    Parameters,
    connect,
    raise_translated,
    translate,
)
from amqp_broker.persistence.store_file import DATABASE_NAME, LOCK_NAME, StoreFile
from amqp_broker.persistence.unit_of_work import Row, UnitOfWork
from amqp_broker.persistence.verify import MessageProblem
from amqp_broker.persistence.write_ahead_log import LOG_SUFFIX, lost_commits

COPY_NAME: Final = "damaged.sqlite3"
PARTIAL_SUFFIX: Final = ".partial"
LOOKS: Final = 1_000  # for rows between two damaged pages, where several are damaged
GROUP_BYTES: Final = 8 * 1024 * 1024  # of one commit
LOST_TOLD: Final = 200
_PIECE_BYTES: Final = 1024 * 1024

_LAST: Final = bytes([255])
_LOWEST: Final[dict[str, object]] = {"INTEGER": -16, "TEXT": b"", "BLOB": b""}
_HIGHEST: Final[dict[str, object]] = {"INTEGER": (1 << 63) - 1, "TEXT": _LAST * 64, "BLOB": _LAST * 64}
_TABLES: Final = (
    "SELECT name FROM sqlite_schema WHERE type='table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
)
_SEQUENCE: Final = "SELECT seq FROM sqlite_sequence WHERE name='node'"


@attrs.define
class Salvaged:
    """How many rows of each table were brought out, what could not be read, and what repairing made of it."""

    rows: dict[str, int] = attrs.field(factory=dict)
    lost: list[str] = attrs.field(factory=list)
    repaired: Repaired = attrs.field(factory=lambda: Repaired([], []))

    def lose(self, what: str) -> None:
        """Note what is lost, as far as all of it can be told."""
        if len(self.lost) < LOST_TOLD:
            self.lost.append(what)
        elif len(self.lost) == LOST_TOLD:
            self.lost.append(f"and more: only the first {LOST_TOLD} are told")


def salvage(
    directory: str | os.PathLike[str], target: str | os.PathLike[str], new_id: str,
    message_problem: MessageProblem | None = None,
) -> Salvaged:  # fmt: skip
    """Make a new store, of this id, in a directory that is not there; it appears when it is complete.

    Raises FileNotFoundError, FileExistsError, StoreInUse, StoreTooNew, StoreFull, and StoreCorrupt where not
    even the names of the tables can be read.
    """
    source, target = Path(directory), Path(target)
    if not (source / DATABASE_NAME).is_file():
        raise FileNotFoundError(f"{source} holds no store: there is no {DATABASE_NAME}")
    if target.exists():
        raise FileExistsError(f"{target} exists; name a directory that does not")
    partial = target.with_name(target.name + PARTIAL_SUFFIX)
    shutil.rmtree(partial, ignore_errors=True)  # of a time before, that was cut off
    make_directory(partial)
    salvaged = Salvaged()
    lock = FileLock(str(source / LOCK_NAME))
    try:
        copy = _copied(source, partial, salvaged)
        _bring_out(copy, partial, new_id, salvaged)
    finally:
        lock.release()
    for name in (COPY_NAME, COPY_NAME + LOG_SUFFIX):
        (partial / name).unlink(missing_ok=True)
    salvaged.repaired = repair(partial, message_problem)
    fault_point("salvage.before_rename")
    os.rename(partial, target)
    sync_names(target)
    return salvaged


def _copied(source: Path, partial: Path, salvaged: Salvaged) -> Path:
    """A copy that may be written to: opening it moves the log into the file."""
    copy = partial / COPY_NAME
    for suffix in ("", LOG_SUFFIX):
        if (source / (DATABASE_NAME + suffix)).exists():
            shutil.copyfile(source / (DATABASE_NAME + suffix), partial / (COPY_NAME + suffix))
    restrict_files(str(copy))
    damage = lost_commits(str(copy))
    if damage is not None:
        salvaged.lose(damage)
        cut_log(copy)
    for name in body_file_names(source):
        try:
            stream = open(source / name, "rb", buffering=0)
        except OSError as error:
            salvaged.lose(f"{name}: {error}")
            continue
        with stream:
            lost = _copy_readable(stream.fileno(), partial / name)
        if lost:
            salvaged.lose(f"{name}: {lost} bytes of it cannot be read")
    return copy


def _copy_readable(source: int, target: Path) -> int:
    """Copy and sync what can be read of a file, where it is in it; how many bytes cannot be."""
    size, lost = os.fstat(source).st_size, 0
    made = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(made, size)
        for first in range(0, size, _PIECE_BYTES):
            ranges = [(first, min(first + _PIECE_BYTES, size))]
            while ranges:
                at, end = ranges.pop()
                try:
                    data = os.pread(source, end - at, at)
                except OSError as error:
                    if error.errno != errno.EIO:
                        raise
                    if end - at > BLOCK_BYTES:
                        blocks = range(at, end, BLOCK_BYTES)
                        ranges += [(each, min(each + BLOCK_BYTES, end)) for each in blocks]
                    else:
                        lost += end - at
                    continue
                if data:
                    ranges.append((at + os.pwrite(made, data, at), end))
                    ranges = [each for each in ranges if each[0] < each[1]]
        os.fsync(made)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise StoreFull(f"the disk is full ({error})") from error
        raise
    finally:
        os.close(made)
    return lost


def _bring_out(copy: Path, partial: Path, new_id: str, salvaged: Salvaged) -> None:
    try:
        with closing(connect(str(copy))) as damaged, closing(StoreFile(partial)) as made:
            damaged.execute("PRAGMA locking_mode=EXCLUSIVE").fetchall()
            try:
                schema_version(UnitOfWork(damaged))
            except StoreCorrupt as error:
                raise StoreCorrupt(f"nothing can be brought out of it: {error}") from None
            try:
                bring_up_to_date(damaged, UnitOfWork(damaged))
            except (StoreCorrupt, StoreFailed):
                pass  # a step reads whole tables: what an older version has is brought out as it is
            damaged.text_factory = bytes
            for (name,) in made.unit.query(_TABLES):
                salvaged.rows[name] = _Table(damaged, made.connection, name, salvaged).bring_out()
            made.unit.begin()
            made.unit.execute("UPDATE meta SET value=? WHERE key='store_id'", (new_id,))
            made.unit.commit()
            _keep_numbering(damaged, made.connection)
    except DATABASE_ERRORS as error:
        raise_translated(error)


def _keep_numbering(damaged: Connection, made: Connection) -> None:
    """The id of a deleted node is not used again."""
    try:
        rows = damaged.execute(_SEQUENCE).fetchall()
    except DATABASE_ERRORS:
        return
    for (last,) in rows:
        if isinstance(last, int):
            made.execute("UPDATE sqlite_sequence SET seq=max(seq, ?) WHERE name='node'", (last,)).fetchall()


class _Table:
    """One table, out of the damaged file and into the new one."""

    def __init__(self, damaged: Connection, made: Connection, name: str, salvaged: Salvaged) -> None:
        self._damaged, self._made = damaged, made
        self._name = name
        self._salvaged = salvaged
        columns = made.execute(f"PRAGMA table_info({name})").fetchall()
        there = {row[1].decode() for row in damaged.execute(f"PRAGMA table_info({name})").fetchall()}
        columns = [column for column in columns if column[1] in there]  # the others have their defaults
        self._names = [column[1] for column in columns]
        self._types = {column[1]: column[2] for column in columns}
        self._key = [column[1] for column in sorted(columns, key=lambda column: column[5]) if column[5]]
        marks = ", ".join([self._mark(column) for column in self._names])
        self._insert = f"INSERT OR REPLACE INTO {name} ({', '.join(self._names)}) VALUES ({marks})"

    def _mark(self, column: str) -> str:
        return "CAST(? AS TEXT)" if self._types[column] == "TEXT" else "?"

    def bring_out(self) -> int:
        """How many rows it has in the new file."""
        count = size = 0
        if not self._names:
            return 0  # an older version has no such table
        self._made.execute("BEGIN IMMEDIATE").fetchall()
        for row in self._rows():
            try:
                self._made.execute(self._insert, row).fetchall()
            except DATABASE_ERRORS as error:
                if not self._made.in_transaction:  # the disk is full, for one
                    raise
                self._salvaged.lose(f"{self._name}, the row {self._shown(self._key_of(row))}: {error}")
                continue
            count += 1
            size += sum(len(value) if isinstance(value, bytes) else 8 for value in row)
            if size > GROUP_BYTES:
                size = 0
                self._commit()
                self._made.execute("BEGIN IMMEDIATE").fetchall()
        self._commit()
        return count

    def _commit(self) -> None:
        self._made.execute("COMMIT").fetchall()
        fault_point("salvage.step")
        self._made.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    # Reading around damage

    def _rows(self) -> Iterator[Row]:
        types = [self._types[name] for name in self._key]
        lowest, highest = tuple(_LOWEST[each] for each in types), tuple(_HIGHEST[each] for each in types)
        ranges: deque[tuple[Any, Any, int]] = deque([(lowest, highest, LOOKS)])
        gaps: list[tuple[Any, Any, Exception]] = []
        while ranges:
            after, before, looks = ranges.popleft()
            for descending in (False, True):
                met = yield from self._between(after, before, descending)
                if met is None:
                    break
                error, last = met
                after, before = (after, last) if descending else (last, before)
            else:
                parts = self._parts(after, before, types, looks)
                ranges.extend(parts)
                if not parts:
                    gaps.append((after, before, error))
        for after, before, error in _joined(gaps):
            self._salvaged.lose(
                f"{self._name}, rows between {self._shown(after)} and {self._shown(before)}: {error}"
            )

    def _parts(self, after: Any, before: Any, types: list[str], looks: int) -> list[tuple[Any, Any, int]]:
        """Where to look for rows between two keys on damaged pages; nowhere, where there is no number left
        that could be halved.
        """
        if before == tuple(_HIGHEST[each] for each in types):
            beyond = self._beyond(after, types)
            if beyond is None:
                return []
            return [(after, _following(beyond), LOOKS), (beyond, before, LOOKS)]
        halves = _halves(after, before, types) if looks > 0 else []
        return [(low, high, looks // 2 - 1) for low, high in halves]

    def _beyond(self, after: Any, types: list[str]) -> Any:
        """A key not far behind this one, behind which a look meets no damage; None: there is none."""
        for at in reversed(range(len(types))):
            if types[at] != "INTEGER" or not isinstance(after[at], int):
                continue
            for bit in range(62):
                rest = [_LOWEST[each] for each in types[at + 1 :]]
                key = (*after[:at], after[at] + (1 << bit), *rest)
                if key[at] >= _HIGHEST["INTEGER"]:
                    break
                try:
                    self._damaged.execute(self._sql(False) + " LIMIT 1", (*key, *self._highest)).fetchall()
                except DATABASE_ERRORS:
                    continue
                return key
        return None

    @property
    def _highest(self) -> Parameters:
        return tuple([_HIGHEST[self._types[name]] for name in self._key])

    def _between(self, after: Any, before: Any, descending: bool) -> Any:
        """The rows between two keys; then None, or what stands in the way, and the key of the last row."""
        last = before if descending else after
        try:
            cursor = self._damaged.execute(self._sql(descending), (*after, *before))
            for row in cursor:
                last = self._key_of(row)
                yield row
        except DATABASE_ERRORS as error:
            return translate(error), last
        return None

    def _sql(self, descending: bool) -> str:
        key = ", ".join(self._key)
        marks = ", ".join([self._mark(name) for name in self._key])
        order = ", ".join([f"{name} DESC" if descending else name for name in self._key])
        selected = ", ".join(self._names)
        where = f"({key})>({marks}) AND ({key})<({marks})"
        return f"SELECT {selected} FROM {self._name} WHERE {where} ORDER BY {order}"

    def _key_of(self, row: Row) -> Parameters:
        return tuple([row[self._names.index(name)] for name in self._key])

    def _shown(self, key: Parameters) -> str:
        return ", ".join([
            "the first" if value == _LOWEST[self._types[name]]
            else "the last" if value == _HIGHEST[self._types[name]]
            else value.decode(errors="replace") if isinstance(value, bytes) and self._types[name] == "TEXT"
            else value.hex() if isinstance(value, bytes)
            else str(value)
            for name, value in zip(self._key, key, strict=True)
        ])  # fmt: skip


def _following(key: Any) -> Any:
    """The key behind this one, whose last part is a number, or the lowest of its type."""
    return (*key[:-1], key[-1] + 1) if isinstance(key[-1], int) else (*key[:-1], key[-1] + b"\0")


def _joined(gaps: list[tuple[Any, Any, Exception]]) -> list[tuple[Any, Any, Exception]]:
    """Gaps that touch each other as one."""
    joined: list[tuple[Any, Any, Exception]] = []
    for after, before, error in sorted(gaps, key=lambda gap: gap[:2]):
        if joined and after <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], before), joined[-1][2])
        else:
            joined.append((after, before, error))
    return joined


def _halves(after: Any, before: Any, types: list[str]) -> list[tuple[Any, Any]]:
    """The two halves of what is between two keys; none where it has no number that could be halved."""
    for at, kind in enumerate(types):
        if after[at] == before[at]:
            continue
        if kind != "INTEGER" or not isinstance(after[at], int) or not isinstance(before[at], int):
            return []
        lowest, highest = (
            [_LOWEST[each] for each in types[at + 1 :]],
            [_HIGHEST[each] for each in types[at + 1 :]],
        )
        if lowest and [*after[at + 1 :]] == highest:
            after = (*after[:at], after[at] + 1, *lowest)
        if lowest and [*before[at + 1 :]] == lowest:
            before = (*before[:at], before[at] - 1, *highest)
        low, high = after[at], before[at]
        if low == high:
            continue
        if high < low or (not lowest and high - low <= 2):
            return []
        middle = (low + high + 1) // 2
        return [
            (after, (*before[:at], middle, *lowest)),
            ((*after[:at], middle - 1, *highest), before),
        ]
    return []
