"""What rows of `spread` still have is gathered by queue: what each has of it becomes a segment and a row of
`run`, as if it had come by itself (spreads.py).

    spread 7 (a, b, c, ...), spread 8 (a, b, d, ...), ...   -->   a: 7, 8, ...   b: 7, 8, ...   in one commit

Done with the oldest by housekeeping when there are many, before anything else is done with a queue than to
post and to retire, and when a store is opened or closed. Bodies are written once more, with what the
directory says of them; a body that does not match its checksum gets one that it does not match, either. Where
a segment cannot be read, its messages get rows that point into it, and whoever reads them finds out.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from amqp_broker.persistence.checksums import crc32
from amqp_broker.persistence.directory import (
    MAX_SEGMENT_BYTES,
    MAX_SEGMENT_MESSAGES,
    Directory,
    DirectoryDamaged,
    body_seed,
    decode_directory,
)
from amqp_broker.persistence.errors import StoreCorrupt
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.group_writer import INSERT_SEGMENT, delete_segments
from amqp_broker.persistence.quarantine import PUT_AWAY
from amqp_broker.persistence.records import DEFAULT_PRIORITY
from amqp_broker.persistence.runs import RUN, Run
from amqp_broker.persistence.spreads import DELETE_SPREAD, SPREAD, Spread, decode_places
from amqp_broker.persistence.sqlite_library import Parameters
from amqp_broker.persistence.unit_of_work import Row, UnitOfWork

_SELECT_SEGMENT: Final = "SELECT directory, bodies FROM segment WHERE id=?"
_LAST_SEGMENT: Final = "SELECT coalesce(max(id), 0) FROM segment"
_COUNT_RUNS: Final = "UPDATE segment SET runs=? WHERE id=?"
_ANY: Final = "SELECT EXISTS (SELECT 1 FROM spread)"
# What a damaged row says may be what another one has.
_INSERT_UNSOUND: Final = RUN.insert.replace("INSERT INTO", "INSERT OR IGNORE INTO")
_UNSOUND: Final = "the row that says whose the messages of the segment are does not match its checksum"
_HIGHEST: Final = 1 << 48  # above it, the number of a damaged row is not believed


@attrs.define
class Gathered:
    """What became of it: rows of `run`, the next number of a segment, and the segments that could not be
    deleted.
    """

    runs: list[Run]
    next_segment_id: int
    orphans: list[int]


class _Chain:
    """Messages of one queue that follow each other, and become a segment."""

    def __init__(self, run: Run, seed: int) -> None:
        self.queue_id = run.queue_id
        self.first = self.end = run.first
        self.seed = seed
        self.bodies: list[bytes] = []
        self.size = self.live_bytes = self.gone = 0
        self.ends = array("I")
        self.crcs = array("I")
        self.places: list[tuple[Directory, int]] = []  # of each message, in what was its directory

    def fits(self, run: Run) -> bool:
        """Whether a run may follow."""
        return (
            run.first == self.end
            and run.queue_id == self.queue_id
            and len(self.bodies) + run.count <= MAX_SEGMENT_MESSAGES
            and self.size + run.live_bytes <= MAX_SEGMENT_BYTES
        )

    def add(self, run: Run, directory: Directory, stored: bytes) -> None:
        """The messages of a run, those that are gone without a body."""
        former = body_seed(run.segment_id)
        for index in range(run.count):
            at = run.position + index
            if run.gone >> index & 1:
                self.gone |= 1 << len(self.bodies)
                body, damaged = b"", 0
            else:
                begin, end = directory.bounds(at)
                body = stored[begin:end]
                damaged = int(crc32(body, former) != directory.crcs[at])
            self.size += len(body)
            self.bodies.append(body)
            self.ends.append(self.size)
            self.crcs.append(crc32(body, self.seed) ^ damaged)
            self.places.append((directory, at))
        self.end = run.end

    def directory(self) -> bytes:
        """That of its segment."""
        places = self.places
        enqueued = [
            each.enqueued_at_ms if each.enqueued is None else each.enqueued[at] for each, at in places
        ]
        made = Directory(len(places), enqueued[0], self.ends, self.crcs)
        if enqueued.count(enqueued[0]) != len(enqueued):
            made.enqueued = array("q", enqueued)
        if any(each.formats for each, _ in places):
            made.formats = array("I", [each.formats[at] if each.formats else 0 for each, at in places])
        if any(each.priorities for each, _ in places):
            priorities = [each.priorities[at] if each.priorities else DEFAULT_PRIORITY for each, at in places]
            made.priorities = array("B", priorities)
        if any(each.expiries for each, _ in places):
            made.expiries = array("q", [each.expiries[at] if each.expiries else 0 for each, at in places])
        return made.encode()

    def run(self, segment_id: int) -> Run:
        """Its row."""
        count = len(self.bodies)
        return Run(
            self.queue_id, self.first, count, segment_id, 0, self.gone, count - self.gone.bit_count(),
            self.size, self.size, self.ends,
        )  # fmt: skip


def gather(unit: UnitOfWork, spreads: Sequence[Spread], next_segment_id: int) -> Gathered:
    """Gather what these rows have, in one commit. Raises StoreFull (nothing happened), StoreCorrupt,
    StoreFailed.
    """
    try:
        return _gather(unit, spreads, next_segment_id, deletes_segments=True)
    except StoreCorrupt:
        return _gather(unit, spreads, next_segment_id, deletes_segments=False)  # a damaged one stays


def _gather(
    unit: UnitOfWork, spreads: Sequence[Spread], next_segment_id: int, deletes_segments: bool
) -> Gathered:
    where_they_are: list[Run] = []
    dead: list[int] = []
    counts: list[Parameters] = []
    moved: list[tuple[Run, Directory, bytes]] = []
    for spread in spreads:
        live = [run for run in spread.runs if run.live_count]
        segment = _read(unit, spread)
        if segment is None and live:
            where_they_are.extend(live)
            counts.append((len(live), spread.segment_id))
        else:
            dead.append(spread.segment_id)
            moved.extend([(run, *segment) for run in live] if segment is not None else ())
    moved.sort(key=_place)
    chains: list[_Chain] = []
    for run, directory, stored in moved:
        if not chains or not chains[-1].fits(run):
            chains.append(_Chain(run, body_seed(next_segment_id + len(chains))))
        chains[-1].add(run, directory, stored)
    found = Gathered([], next_segment_id + len(chains), [] if deletes_segments else [*dead])
    found.runs = [chain.run(next_segment_id + at) for at, chain in enumerate(chains)]
    unit.begin()
    unit.execute_many(
        INSERT_SEGMENT,
        [
            (next_segment_id + at, chain.directory(), b"".join(chain.bodies))
            for at, chain in enumerate(chains)
        ],
    )
    fault_point("spread.before_gather")
    rows = [*found.runs, *[_in_place(run) for run in where_they_are]]
    unit.execute_many(RUN.insert, [run.row() for run in rows])
    unit.execute_many(_COUNT_RUNS, counts)
    unit.execute_many(DELETE_SPREAD, [(spread.segment_id,) for spread in spreads])
    if deletes_segments and dead:
        delete_segments(unit, dead)
    fault_point("spread.after_gather")
    unit.commit()
    return found


def _read(unit: UnitOfWork, spread: Spread) -> tuple[Directory, bytes] | None:
    """The segment of a row; None where it cannot be read."""
    try:
        rows = unit.query(_SELECT_SEGMENT, (spread.segment_id,))
        directory = decode_directory(rows[0][0]) if rows else None
    except (StoreCorrupt, DirectoryDamaged, TypeError):
        return None
    if directory is None or directory.count != spread.count or not isinstance(rows[0][1], bytes):
        return None
    ends = [0, *directory.ends]
    return (directory, rows[0][1]) if ends == sorted(ends) and ends[-1] == len(rows[0][1]) else None


def _place(one: tuple[Run, Directory, bytes]) -> tuple[int, int]:
    return one[0].queue_id, one[0].first


def _in_place(run: Run) -> Run:
    return Run(
        run.queue_id, run.first, run.count, run.segment_id, run.position, run.gone, run.live_count,
        run.live_bytes, run.total_bytes,
    )  # fmt: skip


# Of a store that was not open


def with_runs(unit: UnitOfWork, spread: Spread) -> bool:
    """Give a row that was read the runs of which something is left, with what their bodies take, as far as
    that can be read; False where it cannot be of so many messages.
    """
    places = decode_places(spread.places, spread.count)
    if places is None or spread.gone >> spread.count:
        return False
    segment = _read(unit, spread)
    ends = array("I", bytes(4 * spread.count)) if segment is None else segment[0].ends
    position = 0
    for queue_id, first, count in places:
        gone = spread.gone >> position & ((1 << count) - 1)
        live = count - gone.bit_count()
        run = Run(queue_id, first, count, spread.segment_id, position, gone, live, 0, ends[-1], ends)
        for index in range(count):
            if not gone >> index & 1:
                at = position + index
                run.live_bytes += ends[at] - (ends[at - 1] if at else 0)
        if live:
            spread.runs.append(run)
        position += count
    return True


def gather_all(unit: UnitOfWork, version: int) -> list[str]:
    """Gather all that a store has which was not closed, before anything else is done with it. What was
    damaged.

    A row that does not match its checksum gives rows of `run` that do not, either, as far as it says
    anything: whoever reads them puts the messages into quarantine, and their offsets are used by nobody else.
    Raises StoreFull (nothing happened), StoreCorrupt, StoreFailed.
    """
    if unit.query(_ANY) == [(0,)]:
        return []
    spreads: list[Spread] = []
    damaged: list[tuple[Row, list[Run]]] = []
    for row in SPREAD.walk(unit, version):
        spread = SPREAD.value(row)
        if spread is not None and with_runs(unit, spread):
            spreads.append(spread)
        else:
            damaged.append((row, _believed(unit, row)))
    if damaged:
        _put_away(unit, damaged)
    ((last,),) = unit.query(_LAST_SEGMENT)
    gather(unit, spreads, last + 1)
    return [f"segment {row[0]}: {_UNSOUND}" for row, _ in damaged]


def _believed(unit: UnitOfWork, row: Row) -> list[Run]:
    """What a damaged row may stand for, with all of its messages."""
    segment_id, count, _, places, _ = row
    if not (isinstance(segment_id, int) and isinstance(count, int) and isinstance(places, bytes)):
        return []
    spread = Spread(segment_id, count, 0, places)
    if not 0 < count <= MAX_SEGMENT_MESSAGES or not with_runs(unit, spread):
        return []
    nodes = {queue_id for (queue_id,) in unit.query("SELECT id FROM node")}
    return [run for run in spread.runs if run.queue_id in nodes and 0 <= run.first < _HIGHEST]


def _put_away(unit: UnitOfWork, damaged: Iterable[tuple[Row, list[Run]]]) -> None:
    unit.begin()
    for row, runs in damaged:
        unit.execute(PUT_AWAY, (0, 0, _number(row[0]), _UNSOUND, repr(row).encode()))
        for run in runs:
            *fields, checksum = run.row()
            assert isinstance(checksum, int), "the last column"
            unit.execute(_INSERT_UNSOUND, (*fields, checksum ^ 1))
        unit.execute(_COUNT_RUNS, (len(runs), row[0]))
        unit.execute(DELETE_SPREAD, (row[0],))
    fault_point("quarantine.before_commit")
    unit.commit()


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
