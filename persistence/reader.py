"""One page of a queue, read from disk, with every message held against its checksum."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from itertools import repeat
from pathlib import Path
from typing import Final

import attrs

from amqp_broker.persistence.body_files import PLACED, read_bodies
from amqp_broker.persistence.checksums import crc32
from amqp_broker.persistence.crc_combining import combined
from amqp_broker.persistence.directory import (
    MAX_SEGMENT_MESSAGES,
    Directory,
    DirectoryDamaged,
    body_seed,
    decode_directory,
    decode_one,
)
from amqp_broker.persistence.errors import StoreCorrupt
from amqp_broker.persistence.group import EVERYTHING, NodeState
from amqp_broker.persistence.open_bodies import OpenBodies
from amqp_broker.persistence.questions import Quarantined
from amqp_broker.persistence.records import DEFAULT_PRIORITY, BodyTail, LargeRecord, Record, size_of
from amqp_broker.persistence.runs import CHANGED, RUN, Run, RunCache
from amqp_broker.persistence.spools import decode_head
from amqp_broker.persistence.unit_of_work import Row, UnitOfWork

FIRST_ROWS: Final = 8  # rows of `run` asked for at first, four times as many each further time
MOST_ROWS: Final = 1024
LOAD_BYTES: Final = 4 * 1024 * 1024  # of segments loaded at once, retired bodies in them included
SEGMENT_CACHE_BYTES: Final = 4 * 1024 * 1024  # segments of which a page took only a part

_SELECT_SEGMENTS: Final = (
    "SELECT r.first_offset, s.directory, s.bodies, s.file, s.at, s.size "
    "FROM run r JOIN segment s ON s.id=r.segment_id "
    "WHERE r.queue_id=? AND r.first_offset BETWEEN ? AND ?"
)
_SELECT_SEGMENT: Final = f"SELECT {PLACED} FROM segment WHERE id=?"
_SELECT_CHANGED: Final = CHANGED.select("WHERE queue_id=? AND offset BETWEEN ? AND ?")

Segment = tuple[Directory, bytes]
RawSegment = tuple[bytes, bytes]
Placed = tuple[bytes, bytes, int, int, int]
"""Directory and copy of the head of a body in a file of its own, and its place: file, at, size."""


@attrs.define
class Damage:
    """What has to go into quarantine: some messages of a run, or a damaged row.

    `damaged_row` is the first_offset of a row of `run` that does not match its checksum and goes as a whole.
    """

    first: int
    last: int
    segment_id: int
    reason: str
    body: bytes | None = None
    damaged_row: object = None


@attrs.define
class Page:
    """A page in the making."""

    node: NodeState
    at: int
    max_messages: int
    max_bytes: int
    records: list[Record] = attrs.field(factory=list)
    size: int = 0
    quarantined: list[Quarantined] = attrs.field(factory=list)
    lost_bytes: int = 0
    damages: list[Damage] = attrs.field(factory=list)
    whole: bool = True
    placed: dict[int, Placed] = attrs.field(factory=dict)
    """Of those that were loaded last, what comes as a LargeRecord unless it is damaged, by first offset."""
    large: bool = False
    segments: dict[int, int] = attrs.field(factory=dict)
    """Those of LargeRecords, by offset."""

    def full(self) -> bool:
        return len(self.records) >= self.max_messages or (bool(self.records) and self.size >= self.max_bytes)

    def damaged(self, damage: Damage, offsets: Sequence[int], size: int) -> None:
        """Messages of `size` bytes in all, as far as that is known."""
        self.damages.append(damage)
        self.lost_bytes += size
        queue_id = self.node.queue_id
        self.quarantined.extend([Quarantined(queue_id, offset, damage.reason) for offset in offsets])


class PageReader:
    """Reads pages; `forget` drops what it keeps of segments. Where it is `learning`, `runs` gets what it
    finds of them.
    """

    def __init__(
        self, unit: UnitOfWork, runs: RunCache, directory: Path, learning: bool = True,
        bodies: OpenBodies | None = None,
    ) -> None:  # fmt: skip
        self._unit = unit
        self._bodies = bodies or OpenBodies(directory)
        self._directory = directory
        self._runs = runs
        self._learning = learning
        self._segments: OrderedDict[int, Segment] = OrderedDict()
        self._segment_bytes = 0

    def read(
        self, node: NodeState, from_offset: int, max_messages: int, max_bytes: int, whole: bool = True
    ) -> Page:
        """A page whose `at` is where the next one begins. Raises StoreFailed, StoreCorrupt."""
        page = Page(node, max(from_offset, node.purged_to), max(max_messages, 1), max_bytes, whole=whole)
        select = self._runs.select if node.retention is None else self._runs.select_live
        return self._fill(page, from_offset, select)

    def _fill(self, page: Page, from_offset: int, select: Callable[[int, int, int, int], list[Row]]) -> Page:
        node = page.node
        limit = FIRST_ROWS
        row_from = page.at
        seen_below = 0
        while not page.full():
            rows = select(node.queue_id, row_from, EVERYTHING, limit)
            runs = self._sound_runs(page, rows, seen_below)
            chosen = self._choose(page, runs)
            if not self._take_runs(page, chosen):
                return page
            if len(chosen) < len(runs):
                if page.records:
                    return page
                row_from = seen_below = runs[len(chosen)].first
                continue
            if len(rows) < limit:
                page.at = max(from_offset, node.next_offset)
                return page
            last = rows[-1][1]
            row_from = seen_below = max(page.at, last + 1 if isinstance(last, int) else page.at)
            limit = min(limit * 4, MOST_ROWS)
        return page

    def forget(self) -> None:
        """After segments were rewritten."""
        self._segments.clear()
        self._segment_bytes = 0

    def _run_of(self, row: Row) -> Run | None:
        return RUN.value(row)

    def _sound_runs(self, page: Page, rows: list[Row], seen_below: int) -> list[Run]:
        runs: list[Run] = []
        for row in rows:
            run = self._run_of(row)
            if run is None:
                self._lose_row(page, row, seen_below)
            elif run.end > page.at and run.first >= seen_below:
                runs.append(run)
        return runs

    def _lose_row(self, page: Page, row: Row, seen_below: int) -> None:
        """A damaged row, whose values may be of any type and size."""
        first, count, segment_id = (value if isinstance(value, int) else 0 for value in row[1:4])
        if first < seen_below:
            return  # the row before `row_from`, which a look at an earlier one has dealt with
        last = first + (count if 0 < count <= MAX_SEGMENT_MESSAGES else 1) - 1
        reason = "the index row of the run does not match its checksum"
        damage = Damage(first, last, segment_id, reason, damaged_row=row[1])
        gone = int.from_bytes(row[5], "little") if isinstance(row[5], bytes) else 0
        live = [offset for offset in range(first, last + 1) if not gone >> (offset - first) & 1]
        lost = [offset for offset in live if offset >= page.at]
        page.damaged(damage, lost, _counted_bytes(row) * len(lost) // (len(live) or 1))

    def _choose(self, page: Page, runs: list[Run]) -> list[Run]:
        """As many of these runs as the page can take, and as may be loaded at once."""
        messages = page.max_messages - len(page.records)
        room = page.max_bytes - page.size
        load = LOAD_BYTES
        for index, run in enumerate(runs):
            if index and (messages <= 0 or room <= 0 or load < run.total_bytes):
                return runs[:index]
            live = run.live_count
            if run.first < page.at:
                skipped = page.at - run.first
                live = run.count - skipped - (run.gone >> skipped).bit_count()
            messages -= live
            room -= run.live_bytes * live // (run.live_count or 1)
            load -= run.total_bytes
        return runs

    def _take_runs(self, page: Page, runs: list[Run]) -> bool:
        """False if the page became full before the last run's end."""
        if not runs:
            return True
        found = self._load(page, runs)
        begin = len(page.records)
        complete = True
        for run in runs:
            raw = found.get(run.first)
            if raw is None and page.placed and (placed := page.placed.get(run.first)) is not None:
                taken = self._take_large(page, run, placed)
                if taken is None:
                    page.at = max(page.at, run.first)
                    complete = False
                    break
                if taken:
                    self._runs.add(run)
                    continue
                raw = self._read_placed(placed)
            if raw is not None and self._take_one(page, run, raw):
                if self._learning:
                    self._runs.add(run)
                continue
            segment = self._segment(run, raw)
            if isinstance(segment, str):
                self._lose_run(page, run, segment)
                continue
            run.ends = segment[0].ends
            if self._learning:
                self._runs.add(run)
            complete = self._take(page, run, segment)
            if not complete:
                self._keep(run, segment)
                break
        if page.node.changed_high >= 0 and len(page.records) > begin:
            self._apply_changed(page, begin)
        self._runs.trim()
        return complete

    def _lose_run(self, page: Page, run: Run, reason: str) -> None:
        first = max(run.first, page.at)
        offsets = [first + i for i in range(run.end - first) if not run.gone >> (first - run.first + i) & 1]
        size = run.live_bytes * len(offsets) // (run.live_count or 1)
        page.damaged(Damage(first, run.end - 1, run.segment_id, reason), offsets, size)
        page.at = run.end

    def _take_one(self, page: Page, run: Run, raw: RawSegment) -> bool:
        """The short way for a run of one sound, plain message that fits; False if it is anything else."""
        if run.count != 1 or run.position or len(page.records) >= page.max_messages:
            return False
        decoded = decode_one(raw[0])
        body = raw[1]
        if decoded is None or crc32(body, body_seed(run.segment_id)) != decoded[1]:
            return False
        size = len(body)
        if page.records and page.size + size > page.max_bytes:
            return False
        page.records.append(
            Record(
                run.first, body, 0, DEFAULT_PRIORITY, 0, decoded[0], True, 0, False, None, b"", run.queue_id
            )
        )
        page.size += size
        page.at = run.end
        return True

    def _take_large(self, page: Page, run: Run, placed: Placed) -> bool | None:
        """A message of which only the head is read; False where that is not known to be sound, None where the
        page has enough.
        """
        if run.count != 1 or run.position:
            return False
        raw, stored, number, at, size = placed
        seed = body_seed(run.segment_id)
        head = decode_head(stored, seed)
        try:
            directory = decode_directory(raw)
        except DirectoryDamaged:
            return False
        if head is None or directory.count != 1 or directory.ends[0] != size or size <= len(head):
            return False
        full = len(page.records) >= page.max_messages or page.size + len(head) > page.max_bytes
        if page.records and full:
            return None
        begin = len(page.records)
        self._append(page, run, directory, (0,), [head])
        crc = combined(seed, directory.crcs[0], size)  # which takes the seed out as it brings it in
        tail = BodyTail(self._bodies.file(number), head, at + len(head), size - len(head), crc)
        page.records[begin] = LargeRecord(page.records[begin], tail)
        page.segments[run.first] = run.segment_id
        page.large = True
        page.at = run.end
        run.ends = directory.ends
        return True

    def _read_placed(self, placed: Placed) -> RawSegment | None:
        directory, _, number, at, size = placed
        bodies = read_bodies(self._directory, number, at, size)
        return None if bodies is None else (directory, bodies)

    def _load(self, page: Page, runs: list[Run]) -> dict[int, RawSegment]:
        """By first offset: directory and bodies. What is missing or unreadable, or kept already, is left
        out, and so is what is `placed`.
        """
        queue_id = page.node.queue_id
        page.placed = {}
        if runs[0].segment_id in self._segments:
            runs = runs[1:]
        if not runs:
            return {}
        rows: list[Row]
        try:
            rows = self._unit.query(_SELECT_SEGMENTS, (queue_id, runs[0].first, runs[-1].first))
        except StoreCorrupt:
            rows = self._load_one_by_one(runs)
        found: dict[int, RawSegment] = {}
        for first, directory, bodies, number, at, size in rows:
            if number:
                if bodies and not page.whole and isinstance(directory, bytes):
                    page.placed[first] = directory, bodies, number, at, size
                    continue
                bodies = read_bodies(self._directory, number, at, size)
            if isinstance(directory, bytes) and isinstance(bodies, bytes):
                found[first] = directory, bodies
        if self._runs.is_spread(queue_id):
            self._load_spread([run for run in runs if run.first not in found], found)
        return found

    def _load_spread(self, runs: list[Run], found: dict[int, RawSegment]) -> None:
        """Of runs that have no row themselves."""
        for first, directory, bodies, number, _, _ in self._load_one_by_one(runs):
            if not number and isinstance(directory, bytes) and isinstance(bodies, bytes):
                found[first] = directory, bodies

    def _segment(self, run: Run, raw: RawSegment | None) -> Segment | str:
        """Decoded, or why it cannot be."""
        kept = self._segments.get(run.segment_id)
        if kept is not None:
            return kept
        if raw is None:
            return "the segment of the run is missing or unreadable"
        try:
            directory = decode_directory(raw[0])
        except DirectoryDamaged as error:
            return str(error)
        if directory.count < run.position + run.count:
            return f"the directory has {directory.count} messages, the run wants {run.position + run.count}"
        return directory, raw[1]

    def _load_one_by_one(self, runs: list[Run]) -> list[Row]:
        """A damaged page made the whole query fail: find out whose it is."""
        rows: list[Row] = []
        for run in runs:
            try:
                rows.extend((run.first, *row) for row in self._unit.query(_SELECT_SEGMENT, (run.segment_id,)))
            except StoreCorrupt:
                continue
        return rows

    def _keep(self, run: Run, segment: Segment) -> None:
        """The next page will want the rest of it."""
        if run.segment_id in self._segments:
            self._segments.move_to_end(run.segment_id)
            return
        self._segments[run.segment_id] = segment
        self._segment_bytes += len(segment[1])
        while self._segment_bytes > SEGMENT_CACHE_BYTES and len(self._segments) > 1:
            _, (_, bodies) = self._segments.popitem(last=False)
            self._segment_bytes -= len(bodies)

    def _take(self, page: Page, run: Run, segment: Segment) -> bool:
        """Append the run's live messages from `page.at` on; False if some did not fit."""
        directory, stored = segment
        start = max(page.at - run.first, 0)
        gone = run.gone
        indexes: Sequence[int] = range(start, run.count)
        if gone:
            indexes = [index for index in indexes if not gone >> index & 1]
        wanted = len(indexes)
        indexes = indexes[: page.max_messages - len(page.records)]
        ends, position = directory.ends, run.position
        indexes = self._fitting(page, indexes, ends, position)
        bodies: list[bytes] = []
        for index in indexes:
            at = position + index
            bodies.append(stored[ends[at - 1] if at else 0 : ends[at]])
        crcs = directory.crcs
        found = list(map(crc32, bodies, repeat(body_seed(run.segment_id))))
        if found == [crcs[position + index] for index in indexes]:
            self._append(page, run, directory, indexes, bodies)
        else:
            self._append_sound(page, run, directory, indexes, bodies, found)
        if len(indexes) < wanted:
            page.at = run.first + indexes[-1] + 1 if indexes else max(page.at, run.first)
            return False
        page.at = run.end
        return True

    def _fitting(
        self, page: Page, indexes: Sequence[int], ends: Sequence[int], position: int
    ) -> Sequence[int]:
        """Cut where the page has its bytes; its first message is always taken."""
        room = page.max_bytes - page.size
        if not indexes:
            return indexes
        first, last = position + indexes[0], position + indexes[-1]
        if ends[last] - (ends[first - 1] if first else 0) <= room:
            return indexes
        for number, index in enumerate(indexes):
            at = position + index
            room -= ends[at] - (ends[at - 1] if at else 0)
            if room < 0 and (number or page.records):
                return indexes[:number]
        return indexes

    def _append_sound(
        self,
        page: Page,
        run: Run,
        directory: Directory,
        indexes: Sequence[int],
        bodies: list[bytes],
        found: list[int],
    ) -> None:
        """Some body does not match: it goes into quarantine, the others are delivered."""
        good_indexes: list[int] = []
        good_bodies: list[bytes] = []
        for index, body, crc in zip(indexes, bodies, found, strict=True):
            if crc == directory.crcs[run.position + index]:
                good_indexes.append(index)
                good_bodies.append(body)
                continue
            offset = run.first + index
            reason = f"the body does not match its checksum ({len(body)} bytes read)"
            page.damaged(Damage(offset, offset, run.segment_id, reason, body), (offset,), len(body))
        self._append(page, run, directory, good_indexes, good_bodies)

    def _append(
        self, page: Page, run: Run, directory: Directory, indexes: Sequence[int], bodies: list[bytes]
    ) -> None:
        queue_id, first = run.queue_id, run.first
        enqueued_at_ms = directory.enqueued_at_ms
        new = [
            Record(
                first + index,
                body,
                0,
                DEFAULT_PRIORITY,
                0,
                enqueued_at_ms,
                True,
                0,
                False,
                None,
                b"",
                queue_id,
            )
            for index, body in zip(indexes, bodies, strict=True)
        ]
        for values, name in (
            (directory.formats, "message_format"),
            (directory.priorities, "priority"),
            (directory.expiries, "expires_at_ms"),
            (directory.enqueued, "enqueued_at_ms"),
        ):
            if values is not None:
                for record, index in zip(new, indexes, strict=True):
                    setattr(record, name, values[run.position + index])
        page.records.extend(new)
        page.size += sum(map(len, bodies))

    def _apply_changed(self, page: Page, begin: int) -> None:
        new = page.records[begin:]
        first, last = new[0].offset, new[-1].offset
        if page.node.changed_high < first or page.node.changed_low > last:
            return
        rows = self._unit.query(_SELECT_CHANGED, (page.node.queue_id, first, last))
        if not rows:
            return
        by_offset = {record.offset: record for record in new}
        spoiled: set[int] = set()
        for row in rows:
            offset = row[1]
            record = by_offset.get(offset)
            if record is None:
                continue
            changed = CHANGED.value(row)
            if changed is None:
                spoiled.add(offset)
                reason = "the changed header does not match its checksum"
                segment_id = page.segments.get(offset, 0)  # of a large one, the evidence
                body = None if segment_id else record.body
                damage = Damage(offset, offset, segment_id, reason, body)
                page.damaged(damage, (offset,), size_of(record))
                continue
            record.delivery_count = changed.delivery_count
            record.acquired_before = changed.acquired_before
            record.annotations = changed.annotations
        if spoiled:
            page.records[begin:] = [record for record in new if record.offset not in spoiled]


def _counted_bytes(row: Row) -> int:
    """What a damaged row of `run` was counted for when the store was opened (recovery.py)."""
    live_bytes, size = row[7:9]
    if not isinstance(live_bytes, int) or not isinstance(size, int):
        return 0
    return max(0, min(live_bytes, size))
