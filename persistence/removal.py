"""Removing what is damaged from a closed store, one thing at a time, by the words of verification.

    queue 3, offset 17      one message                      also: orders/17, by the name of the queue
    queue 3, run 100        a damaged row of the index, or a whole run of messages
    half message 12         with its body
    node 5                  with all of its messages

What can be read of it goes into table `quarantine` first. Everything else stays as it is.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from amqp_broker.persistence.body_files import PLACED, bodies_of
from amqp_broker.persistence.data_directory import FileLock, sync_names
from amqp_broker.persistence.directory import DirectoryDamaged, decode_directory
from amqp_broker.persistence.errors import StoreCorrupt, StoreError
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.group import EVERYTHING, NodeState
from amqp_broker.persistence.half_table import HALF, KEPT_KEY
from amqp_broker.persistence.node_rows import NODE, TOMBSTONE_NODE, node_checksum
from amqp_broker.persistence.quarantine import PUT_AWAY, QUARANTINED, mend_nodes, put_into_quarantine
from amqp_broker.persistence.reader import Damage
from amqp_broker.persistence.recovery import load
from amqp_broker.persistence.runs import RUN, RunCache
from amqp_broker.persistence.sqlite_library import open_connection
from amqp_broker.persistence.store_file import DATABASE_NAME, LOCK_NAME, PRAGMAS, closed_store
from amqp_broker.persistence.unit_of_work import Row, UnitOfWork
from amqp_broker.persistence.write_ahead_log import LOG_SUFFIX, lost_commits, make_durable

REASON: Final = "removed by an administrator"
_MESSAGE: Final = re.compile(r"queue (\d+)(?: \(.*\))?, (offset|run) (\d+)")
_HALF: Final = re.compile(r"half message (\d+)")
_NODE: Final = re.compile(r"node (\d+)(?: \(.*\))?")
_NAMED: Final = re.compile(r"(.+)/(\d+)")
_SELECT_BODY: Final = f"SELECT {PLACED} FROM segment WHERE id=?"


class NothingToRemove(StoreError):
    """There is no such thing in the store, or the words for it are not known."""


def remove(directory: str | os.PathLike[str], what: str) -> str:
    """Remove it, and tell what was removed. Raises NothingToRemove, StoreCorrupt (what stands around it is
    damaged, too: nothing was removed), and as `closed_store`.
    """
    with closed_store(directory) as store:
        return remove_from(store.unit, Path(directory), what.strip())


def remove_from(unit: UnitOfWork, directory: Path, what: str) -> str:
    """The same, of a store that is open. Raises NothingToRemove, StoreCorrupt, StoreFailed."""
    if found := _HALF.fullmatch(what):
        return _remove_half(unit, int(found[1]))
    if found := _NODE.fullmatch(what):
        return _remove_node(unit, int(found[1]))
    mend_nodes(unit)
    runs = RunCache(unit)
    nodes = load(unit, runs).nodes
    if found := _MESSAGE.fullmatch(what):
        node = nodes.get(int(found[1]))
        if node is not None:
            return _remove_messages(unit, directory, node, runs, int(found[3]), found[2] == "run")
    elif found := _NAMED.fullmatch(what):
        for node in nodes.values():
            if node.name == found[1]:
                return _remove_messages(unit, directory, node, runs, int(found[2]), whole_run=False)
    raise NothingToRemove(
        f"{what!r} is nothing that can be removed: expected what a finding begins with (queue 3, offset 17; "
        "queue 3, run 100; half message 12; node 5), or the name of a queue and an offset (orders/17)"
    )


def _remove_messages(
    unit: UnitOfWork, directory: Path, node: NodeState, runs: RunCache, offset: int, whole_run: bool
) -> str:
    rows = [row for row in runs.select(node.queue_id, offset, offset, 2) if isinstance(row[1], int)]
    row: Row | None = rows[0] if rows and rows[0][1] <= offset else None
    run = None if row is None else RUN.value(row)
    if row is not None and run is None and (row[1] == offset or not whole_run):
        first, last = int(row[1]), _last_of(unit, node, int(row[1]))
        damage = Damage(first, last, 0, REASON, repr(row).encode(), damaged_row=first)
        put_into_quarantine(unit, [damage], node, runs)
        return f"queue {node.queue_id} ({node.name}): the damaged row of run {first}"
    if run is None or offset >= run.end or (whole_run and run.first != offset):
        raise NothingToRemove(f"queue {node.queue_id} ({node.name}) has nothing at offset {offset}")
    last = run.end - 1 if whole_run else offset
    runs.add(run)
    at = run.position + offset - run.first
    body = None if whole_run else _body(unit, directory, run.segment_id, at)
    put_into_quarantine(unit, [Damage(offset, last, run.segment_id, REASON, body)], node, runs)
    return f"queue {node.queue_id} ({node.name}): offsets {offset} to {last}"


def _last_of(unit: UnitOfWork, node: NodeState, first: int) -> int:
    """The last offset that a damaged row could stand for."""
    rows = unit.query(
        "SELECT min(first_offset) FROM run WHERE queue_id=? AND first_offset>?", (node.queue_id, first)
    )
    return (rows[0][0] or node.next_offset) - 1


def _body(unit: UnitOfWork, directory: Path, segment_id: int, position: int) -> bytes | None:
    """A body as it is stored, or None if it cannot be read."""
    try:
        for row in unit.query(_SELECT_BODY, (segment_id,)):
            begin, end = decode_directory(row[0]).bounds(position)
            bodies = bodies_of(directory, row)
            return bodies[begin:end] if isinstance(bodies, bytes) else None
    except (StoreCorrupt, DirectoryDamaged, IndexError, TypeError):
        pass
    return None


def _remove_half(unit: UnitOfWork, number: int) -> str:
    """The indexes are made anew: what a damaged row says of itself does not lead to its entries."""
    rows = _read(unit, HALF.select("WHERE id=?"), number)
    bodies = _read(unit, "SELECT body FROM half_body WHERE id=?", number)
    if rows == [] and bodies == []:
        raise NothingToRemove(f"there is no half message {number}")
    unit.begin()
    kept = [body for (body,) in bodies or [] if isinstance(body, bytes)]
    evidence = b"\n".join([repr(rows).encode(), *kept])
    unit.execute(PUT_AWAY, (0, number, 0, f"half message, {REASON}", evidence))
    unit.execute("REINDEX half")
    unit.execute("DELETE FROM half WHERE id=?", (number,))
    unit.execute("DELETE FROM meta WHERE key=?", (KEPT_KEY,))  # the next start counts anew
    fault_point("quarantine.before_commit")
    unit.commit()
    try:
        unit.begin()
        unit.execute("DELETE FROM half_body WHERE id=?", (number,))
        unit.commit()
    except StoreCorrupt:
        return f"half message {number}; its body cannot be read, and stays where it is"
    return f"half message {number}"


def _read(unit: UnitOfWork, sql: str, number: int) -> list[Row] | None:
    """None: it cannot be."""
    try:
        return unit.query(sql, (number,))
    except StoreCorrupt:
        return None


def _remove_node(unit: UnitOfWork, queue_id: int) -> str:
    rows = unit.query(NODE.select("WHERE id=?"), (queue_id,))
    if not rows:
        raise NothingToRemove(f"there is no node {queue_id}")
    ((_, name, kind, _, next_offset, _, _),) = rows
    kind = kind if isinstance(kind, bytes) else b"queue"
    next_offset = next_offset if isinstance(next_offset, int) else 0
    unit.begin()
    unit.execute("REINDEX node")
    unit.execute(PUT_AWAY, (queue_id, QUARANTINED, 0, f"node, {REASON}", repr(rows).encode()))
    try:
        kind.decode()
    except UnicodeDecodeError:
        kind = b"queue"
    unit.execute("UPDATE node SET kind=?, next_offset=? WHERE id=?", (kind.decode(), next_offset, queue_id))
    checksum = node_checksum(queue_id, None, kind, b"{}", next_offset, EVERYTHING)
    unit.execute(TOMBSTONE_NODE, (EVERYTHING, checksum, queue_id))
    fault_point("quarantine.before_commit")
    unit.commit()
    return f"node {queue_id} ({name!r}) with all of its messages; the next start clears them away"


def give_up_log(directory: str | os.PathLike[str]) -> str | None:
    """Go on with what stands before the damage in the log; the damaged log is kept beside it. What became of
    it, or None if it is not damaged. Raises as `closed_store`.
    """
    path = Path(directory) / DATABASE_NAME
    log = path.with_name(path.name + LOG_SUFFIX)
    if not log.is_file():
        raise FileNotFoundError(f"{directory} holds no log of commits: there is no {log.name}")
    lock = FileLock(str(Path(directory) / LOCK_NAME))
    try:
        damage = lost_commits(os.fspath(path))
        if damage is None:
            return None
        kept = _free_name(log)
        _copy(log, kept)
        fault_point("log.before_cut")
        cut_log(path)
        fault_point("log.after_cut")
    finally:
        lock.release()
    return f"{damage}; it is kept as {kept.name}"


def _free_name(log: Path) -> Path:
    number = 1
    while (name := log.with_name(f"{log.name}.damaged-{number}")).exists():
        number += 1
    return name


def _copy(log: Path, kept: Path) -> None:
    descriptor = os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        data = memoryview(log.read_bytes())
        while data:
            data = data[os.write(descriptor, data) :]
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    sync_names(log.parent)


def cut_log(path: Path) -> None:
    """Have SQLite move what it can believe of the log to a database file, and empty it."""
    log = path.with_name(path.name + LOG_SUFFIX)
    if not path.is_file() or not path.stat().st_size:
        log.unlink()
        sync_names(log.parent)
        return
    connection = open_connection(os.fspath(path), PRAGMAS)
    try:
        make_durable(UnitOfWork(connection), os.fspath(path))
    finally:
        connection.close()
