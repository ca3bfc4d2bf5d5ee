"""Is a closed store whole? Everything that the store relies on, looked at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Final

from amqp_broker.persistence.body_files import PLACED, PREFIX, bodies_of
from amqp_broker.persistence.data_directory import FileLock
from amqp_broker.persistence.directory import Directory, DirectoryDamaged, body_seed, decode_directory
from amqp_broker.persistence.errors import StoreCorrupt, StoreTooNew
from amqp_broker.persistence.gathering import with_runs
from amqp_broker.persistence.retained_table import RETAINED
from amqp_broker.persistence.runs import CHANGED, RUN, Run, bytes_of_bits
from amqp_broker.persistence.schema import SCHEMA_VERSION, schema_version
from amqp_broker.persistence.spools import decode_head
from amqp_broker.persistence.spreads import SPREAD
from amqp_broker.persistence.sqlite_library import DATABASE_ERRORS, Connection, connect, raise_translated
from amqp_broker.persistence.store_file import DATABASE_NAME, LOCK_NAME, WHAT_TO_DO
from amqp_broker.persistence.unit_of_work import Row, UnitOfWork
from amqp_broker.persistence.verify_tables import RetainedRuns, node_findings, table_findings
from amqp_broker.persistence.write_ahead_log import LOG_SUFFIX, lost_commits

MessageProblem = Callable[[bytes], "str | None"]
"""What is wrong with the octets of a message, which are only octets here; None: nothing."""

MAX_FINDINGS: Final = 200
PLACED_SINCE: Final = 9  # the version of the schema from which on bodies may be in files
_SEGMENT: Final = f"SELECT {PLACED} FROM segment WHERE id=?"
_SEGMENT_BEFORE: Final = "SELECT directory, bodies, 0, 0, 0 FROM segment WHERE id=?"
_INSERT_SPREAD: Final = RUN.insert.replace("INTO run", "INTO temp.spread_run")
_WITH_SPREAD: Final = (
    "CREATE TEMP VIEW run AS SELECT * FROM main.run UNION ALL SELECT * FROM temp.spread_run"
)
_PLACES: Final = "SELECT id, bodies<>x'', file, at, size FROM segment WHERE file>0 ORDER BY file, at"


def verify_directory(
    directory: str | os.PathLike[str], message_problem: MessageProblem | None = None
) -> list[str]:
    """What is wrong with the store of a data directory; empty if nothing is. `message_problem` is asked about
    each message that is whole.

    What a crash left in the WAL is recovered first, as the next start would do; nothing else is changed.
    Raises FileNotFoundError if there is none, StoreInUse while a broker holds it, StoreCorrupt, StoreTooNew.
    """
    path = Path(directory) / DATABASE_NAME
    if not path.is_file() and not path.with_name(path.name + LOG_SUFFIX).is_file():
        raise FileNotFoundError(f"{directory} holds no store: there is no {DATABASE_NAME}")
    lock = FileLock(str(Path(directory) / LOCK_NAME))
    try:
        return verify_file(path, message_problem)
    finally:
        lock.release()


def node_names(directory: str | os.PathLike[str]) -> dict[int, str]:
    """The names of the nodes of a closed store by their ids, as far as they can be read. Raises as
    `verify_directory`.
    """
    lock = FileLock(str(Path(directory) / LOCK_NAME))
    try:
        if lost_commits(os.fspath(Path(directory) / DATABASE_NAME)) is not None:
            return {}
        with _exclusive(Path(directory) / DATABASE_NAME) as connection:
            rows = connection.execute("SELECT id, name FROM node WHERE name IS NOT NULL").fetchall()
    except DATABASE_ERRORS:
        return {}
    finally:
        lock.release()
    return {queue_id: name for queue_id, name in rows if isinstance(name, str)}


def verify_file(
    path: str | os.PathLike[str], message_problem: MessageProblem | None = None
) -> list[str]:
    """What is wrong with a database file that nobody uses, such as a backup; empty if nothing is. Raises as
    `verify_directory`.
    """
    damage = lost_commits(os.fspath(path))
    if damage is not None:  # SQLite would empty the log when the file is closed
        return [f"{damage}. {WHAT_TO_DO}"]
    if not Path(path).is_file():
        raise FileNotFoundError(f"there is no file {os.fspath(path)}")
    try:
        with _exclusive(Path(path)) as connection:
            return _verify(connection, Path(path).parent, message_problem)
    except DATABASE_ERRORS as error:
        raise_translated(error)


@contextmanager
def _exclusive(path: Path) -> Iterator[Connection]:
    """A connection to a file that is there, which lets nobody else in."""
    with closing(connect(f"{path.absolute().as_uri()}?mode=rw", uri=True)) as connection:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE").fetchall()
        yield connection


def _verify(
    connection: Connection, directory: Path, message_problem: MessageProblem | None
) -> list[str]:
    unit = UnitOfWork(connection)
    version = schema_version(unit)
    if version > SCHEMA_VERSION:
        raise StoreTooNew(f"the store has schema version {version}, this broker knows {SCHEMA_VERSION}")
    if version == 0:
        return []  # a store whose making was cut short: the next start makes it
    findings: list[str] = []
    verification = _Verification(unit, version, directory, message_problem)
    for finding in chain(_sqlite_findings(unit), verification.findings()):
        findings.append(finding)
        if len(findings) >= MAX_FINDINGS:
            findings.append(f"and maybe more: only the first {MAX_FINDINGS} are told")
            break
    return findings


def _sqlite_findings(unit: UnitOfWork) -> Iterator[str]:
    try:
        rows = unit.query("PRAGMA integrity_check")
    except StoreCorrupt as error:
        yield f"SQLite: {error}"
        return
    for (words,) in rows:
        if words != "ok":
            yield f"SQLite: {words}"


class _Verification:
    def __init__(
        self, unit: UnitOfWork, version: int, directory: Path, message_problem: MessageProblem | None
    ) -> None:
        self._unit = unit
        self._directory = directory
        self._segment = _SEGMENT if version >= PLACED_SINCE else _SEGMENT_BEFORE
        self._message_problem = message_problem
        self._version = version
        self._retained = RetainedRuns(unit, version)

    def findings(self) -> Iterator[str]:
        yield from _as_far_as_readable("node: the table", node_findings(self._unit, self._version))
        if self._version >= SPREAD.since:
            yield from _as_far_as_readable("spread: the table", self._spreads())
        if self._version >= RETAINED.since:
            yield from _as_far_as_readable("retained, cursor: the tables", self._retained.findings())
        yield from _as_far_as_readable("run: the table", self._runs())
        yield from _as_far_as_readable("run, segment: the tables", self._references())
        yield from _as_far_as_readable("changed: the table", self._changed())
        for what, findings in table_findings(self._unit, self._version):
            yield from _as_far_as_readable(what, findings)

    def _spreads(self) -> Iterator[str]:
        """What is spread, of a store that was not closed, is seen as rows of `run` from here on: a view of
        this connection hides the table of that name.
        """
        runs: list[Run] = []
        for row in SPREAD.walk(self._unit, self._version):
            spread = SPREAD.value(row)
            if spread is None:
                yield f"spread {row[0]}: the row does not match its checksum"
            elif not with_runs(self._unit, spread):
                yield f"spread {row[0]}: it does not tell whose its {spread.count} messages are"
            else:
                runs.extend(spread.runs)
                if not spread.runs:
                    yield f"spread {row[0]}: none of its {spread.count} messages is left"
        if runs:
            self._unit.query("CREATE TEMP TABLE spread_run AS SELECT * FROM main.run LIMIT 0")
            for run in runs:
                self._unit.query(_INSERT_SPREAD, run.row())
            self._unit.query(_WITH_SPREAD)

    def _runs(self) -> Iterator[str]:
        before: Run | None = None
        for row in RUN.walk(self._unit, self._version):
            run = RUN.value(row)
            if run is None:
                yield f"queue {row[0]}, run {row[1]}: the row does not match its checksum"
                continue
            yield from self._run(run, row)
            yield from self._retained.order(run)
            if before is not None and before.queue_id == run.queue_id and before.end > run.first:
                yield f"queue {run.queue_id}, run {run.first}: overlaps run {before.first}"
            before = run

    def _run(self, run: Run, row: Row) -> Iterator[str]:
        where = f"queue {run.queue_id}, run {run.first}"
        gone = row[5]
        if run.count < 1 or run.first < 0 or run.position < 0:
            yield f"{where}: {run.count} messages at position {run.position}"
            return
        if gone is not None and (len(gone) != (run.count + 7) >> 3 or run.gone >> run.count):
            yield f"{where}: a bit set of {len(gone)} bytes for {run.count} messages"
            return
        live = run.count - run.gone.bit_count()
        if live != run.live_count or (live == 0 and not self._retained.may_be_archived(run)):
            yield f"{where}: live_count is {run.live_count}, but {live} of {run.count} are live"
        if not self._retained.wanted(run):
            return
        try:
            segments = self._unit.query(self._segment, (run.segment_id,))
            stored = bodies_of(self._directory, segments[0]) if segments else None
        except Exception as error:  # whatever is wrong with it is a finding
            yield f"{where}: segment {run.segment_id} cannot be read: {error}"
            return
        if not segments:
            yield f"{where}: there is no segment {run.segment_id}"
            return
        if not isinstance(stored, bytes):
            yield f"{where}: the bodies of segment {run.segment_id} cannot be read: {_place(segments[0])}"
            return
        try:
            directory = decode_directory(segments[0][0])
        except DirectoryDamaged as error:
            yield f"{where}, segment {run.segment_id}: {error}"
            return
        if segments[0][2] and segments[0][1]:  # in a file, with a copy of its head
            head = decode_head(segments[0][1], body_seed(run.segment_id))
            if head is None or not stored.startswith(head):
                yield f"{where}, segment {run.segment_id}: the copy of the head of its body is damaged"
        yield from self._messages(run, directory, stored, where)

    def _messages(self, run: Run, directory: Directory, stored: bytes, where: str) -> Iterator[str]:
        if directory.count < run.position + run.count:
            yield f"{where}: wants {run.position + run.count} messages of a segment of {directory.count}"
            return
        if directory.ends[-1] != len(stored):
            yield f"{where}: segment {run.segment_id} has {len(stored)} bytes, expected {directory.ends[-1]}"
        wanted = self._retained.wanted(run)
        for index in range(run.count):
            if wanted >> index & 1:
                begin, end = directory.bounds(run.position + index)
                body = stored[begin:end]
                one = f"queue {run.queue_id}, offset {run.first + index}"
                if not directory.verify(run.position + index, body, run.segment_id):
                    yield f"{one}: the body does not match its checksum"
                elif self._message_problem is not None:
                    problem = self._message_problem(bytes(body))
                    if problem is not None:
                        yield f"{one}: the message is malformed: {problem}"
        live = ((1 << run.count) - 1) & ~run.gone
        live_bytes = bytes_of_bits(live, directory.ends, run.position)
        if live_bytes != run.live_bytes:
            yield f"{where}: live_bytes is {run.live_bytes}, but the live bodies have {live_bytes}"

    def _references(self) -> Iterator[str]:
        for queue_id, count in self._unit.query(
            "SELECT queue_id, count(*) FROM run WHERE queue_id NOT IN (SELECT id FROM node) GROUP BY queue_id"
        ):
            yield f"queue {queue_id}: {count} runs, but there is no such node"
        spread = "(SELECT segment_id FROM spread)" if self._version >= SPREAD.since else "()"
        for segment_id, runs, found in self._unit.query(
            "SELECT s.id, s.runs, r.found FROM segment s JOIN "
            "(SELECT segment_id, count(*) AS found FROM run GROUP BY segment_id) r ON r.segment_id=s.id "
            f"WHERE s.runs<>CASE WHEN s.id IN {spread} THEN 1 ELSE r.found END"
        ):
            yield f"segment {segment_id}: counts {runs} runs, but there are {found}"
        for (segment_id,) in self._unit.query(
            "SELECT id FROM segment WHERE id NOT IN (SELECT segment_id FROM run) "
            f"AND id NOT IN (SELECT segment_id FROM quarantine) AND id NOT IN {spread}"
        ):
            yield f"segment {segment_id}: no run points to it"
        if self._version >= PLACED_SINCE:
            yield from self._places()

    def _places(self) -> Iterator[str]:
        """No two segments have the same octets of a file, but those of a body that came piece by piece, which
        may be in several queues: all of them have all of it, and a copy of its head.
        """
        number = end = before = 0
        shared: list[object] = []
        for segment_id, with_head, *place in self._unit.query(_PLACES):
            if place[0] == number and place[1] < end and not (with_head and place == shared):
                yield f"segment {segment_id}: {_place(place)} is also that of segment {before}"
            number, end, before = place[0], place[1] + place[2], segment_id
            shared = place if with_head else []

    def _changed(self) -> Iterator[str]:
        rows = self._unit.query(
            f"SELECT {CHANGED.selected} FROM changed JOIN node n ON n.id=queue_id WHERE offset>=n.purged_to"
        )
        columns = RUN.selected_of(self._version)
        spoiled_queues = {row[0] for row in self._unit.query("SELECT DISTINCT queue_id FROM quarantine")}
        for row in rows:
            if not CHANGED.is_sound(row) and not self._retained.is_spoiled(row[0], row[1]):
                yield f"queue {row[0]}, offset {row[1]}: the changed header does not match its checksum"
            held = self._unit.query(
                f"SELECT {columns} FROM run WHERE queue_id=? AND first_offset<=? "
                "ORDER BY first_offset DESC LIMIT 1",
                (row[0], row[1]),
            )
            run = RUN.value(held[0]) if held else None
            if held and run is None:
                continue  # told already
            if row[0] in spoiled_queues:
                continue  # what went into quarantine may leave its changed header behind
            if self._retained.changes_may_be_left(row[0], row[1]):
                continue
            if run is None or row[1] >= run.end or run.gone >> (row[1] - run.first) & 1:
                yield f"queue {row[0]}, offset {row[1]}: a changed header, but no such message"


def _place(row: Sequence[object]) -> str:
    number, at, size = row[-3:]
    return f"file {PREFIX}{number}, {size} bytes at {at}"


def _as_far_as_readable(what: str, findings: Iterator[str]) -> Iterator[str]:
    """What a damaged page does not let be read is a finding; the other tables are looked at nevertheless."""
    try:
        yield from findings
    except StoreCorrupt as error:
        yield f"{what} cannot be read to the end: {error}"
