"""The store on disk: one SQLite connection, strict turns, one commit for each group.

    idle --apply--> applied --commit--> idle          apply: statements, in the caller's thread
                       |                              commit: one call, which may run in a worker
                       +-----abandon--> idle

After an I/O error at a commit nobody knows what the disk holds: the store refuses everything from then on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from amqp_broker.persistence import free_space, questions
from amqp_broker.persistence.body_files import BODY_FILE_SIZES, BodyFiles, BodyFileSizes
from amqp_broker.persistence.data_directory import make_directory, sync_path
from amqp_broker.persistence.errors import BackupFailed, NoSuchNode, StoreCorrupt, StoreError, StoreFull
from amqp_broker.persistence.fault_points import fault_point
from amqp_broker.persistence.free_space import SpaceGuard, free_bytes_of
from amqp_broker.persistence.gathering import gather, gather_all
from amqp_broker.persistence.generations import KEEP_COUNT, KEEP_MS, Placement
from amqp_broker.persistence.group import EVERYTHING, Group, NodeState
from amqp_broker.persistence.group_writer import GroupWriter
from amqp_broker.persistence.housekeeping import Compactor, orphan_step, sweep_step
from amqp_broker.persistence.keep_clock import KEEP_EVENTS_MS
from amqp_broker.persistence.ledger import Ledger, pass_points
from amqp_broker.persistence.moving import Mover
from amqp_broker.persistence.node_table import NEW_DATA, NodeTable, Objectionable
from amqp_broker.persistence.outcomes import Outcomes
from amqp_broker.persistence.quarantine import mend_nodes, put_into_quarantine
from amqp_broker.persistence.questions import Answer, Answers, Quarantined, Question, ReadResult
from amqp_broker.persistence.reader import Damage, Page, PageReader
from amqp_broker.persistence.recovery import load
from amqp_broker.persistence.retained_reader import RetainedReader, offset_at
from amqp_broker.persistence.retained_sweep import drop_step
from amqp_broker.persistence.retained_table import verify_step
from amqp_broker.persistence.retention import Retain, Retained
from amqp_broker.persistence.runs import CACHE_MESSAGES, RunCache
from amqp_broker.persistence.schema import SCHEMA_VERSION, STORE_ID
from amqp_broker.persistence.shrinking import Shrinker
from amqp_broker.persistence.spools import Spool
from amqp_broker.persistence.spreads import SPREAD_SIZES, Spread, SpreadSizes
from amqp_broker.persistence.sqlite_library import Pragmas, check_library, library_version
from amqp_broker.persistence.store import Recovered, SpaceState
from amqp_broker.persistence.store_file import CACHE_BYTES, CHECKPOINT_BYTES, PAGE_SIZE_BYTES, StoreFile
from amqp_broker.persistence.verbs import DeleteNode, Move, PostLarge, Purge, Unit, Verb

if TYPE_CHECKING:
    from amqp_broker.persistence.backup import Backup

T = TypeVar("T")

BALLAST_NAME: Final = "store.ballast"

WAL_LIMIT_FACTOR: Final = 4  # a WAL that one large group made longer than this is cut afterwards
assert CHECKPOINT_BYTES * WAL_LIMIT_FACTOR <= free_space.BALLAST_BYTES

_WAL_FRAME_HEADER_BYTES: Final = 24
_PAGES_OF_A_COMMIT: Final = 3  # segment, run and node, at least
_LOOKS: Final = (DeleteNode, Purge, Retain, Move)  # at all that a node has
_IDLE: Final = "idle"
_APPLIED: Final = "applied"


class SqliteStore:
    """A `Store` in a data directory, which is made (mode 0700) if it does not exist."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        allow_unsafe_sqlite: bool = False,
        page_size_bytes: int = PAGE_SIZE_BYTES,
        cache_bytes: int = CACHE_BYTES,
        checkpoint_bytes: int = CHECKPOINT_BYTES,
        low_water_bytes: int = free_space.LOW_WATER_BYTES,
        ballast_bytes: int | None = None,
        synchronous: str = "FULL",
        free_bytes: Callable[[], int] | None = None,
        run_cache_messages: int = CACHE_MESSAGES,
        discharge_keep_ms: int = KEEP_MS,
        discharge_keep_count: int = KEEP_COUNT,
        event_keep_ms: int = KEEP_EVENTS_MS,
        event_keep_bytes: int = 0,
        half_keep_bytes: int = 0,
        body_files: BodyFileSizes = BODY_FILE_SIZES,
        spread: SpreadSizes = SPREAD_SIZES,
    ) -> None:
        """Open or make the store. Sizes in bytes; `ballast_bytes` 0 is no ballast. Outcomes of transactions
        are forgotten after `discharge_keep_ms`, and beyond `discharge_keep_count`; events after
        `event_keep_ms`, and beyond `event_keep_bytes`; bodies of half messages that policy rolled back
        beyond `half_keep_bytes` (0: no such bound).

        `body_files` says which bodies go to files of their own, and `spread` what of a commit for many queues
        shares a row.

        `synchronous`, `free_bytes` (room on the disk) and `run_cache_messages` are for tests. Raises
        StoreInUse, StoreTooNew, StoreCorrupt, StoreFailed, StoreFull, UnsafeSqlite, and OSError for the
        directory.
        """
        check_library(library_version(), allow_unsafe_sqlite)
        self.directory = Path(directory)
        self._checkpoint_bytes = checkpoint_bytes
        make_directory(self.directory)
        wal_limit_bytes = checkpoint_bytes * WAL_LIMIT_FACTOR
        pragmas = Pragmas(page_size_bytes, cache_bytes, wal_limit_bytes, synchronous)
        with ExitStack() as opened:  # whatever fails, nothing stays open or locked
            self._file = StoreFile(self.directory, pragmas)
            opened.callback(self._file.close)
            self._connection, self._unit = self._file.connection, self._file.unit
            ((self._page_size,),) = self._unit.query("PRAGMA page_size")
            self._store_id = self._unit.query(STORE_ID)[0][0]
            self._wal_bytes, self._wal_guess = self._measure_wal(), 0  # and written since, about
            free_bytes = free_bytes or partial(free_bytes_of, os.fspath(self.directory))
            ballast = str(self.directory / BALLAST_NAME)
            ballast_bytes = free_space.BALLAST_BYTES if ballast_bytes is None else ballast_bytes
            self._space = SpaceGuard(ballast, low_water_bytes, ballast_bytes, free_bytes)
            self._files = BodyFiles(self.directory, self._unit, body_files)
            opened.callback(os.close, self._files.names)
            self._spread = spread
            self._gather_waits = False  # for room: tried when a step is due for another reason
            self._gather_left()
            self._runs = RunCache(self._unit, run_cache_messages)
            self._outcomes = Outcomes(self._unit, discharge_keep_ms, discharge_keep_count)
            self._ledger = Ledger(self._unit, event_keep_ms, event_keep_bytes, half_keep_bytes)
            self._begin()
            opened.pop_all()

    def _begin(self) -> None:
        """What is in memory only, before anything was loaded."""
        self._reader = PageReader(self._unit, self._runs, self.directory, bodies=self._files.opened)
        self._retained_reader = RetainedReader(self._unit, self.directory)
        self._compactor = Compactor(self.directory)
        self._shrinker = Shrinker(self._unit, self._page_size)
        self._mover = Mover(self._unit)
        self._table = NodeTable(self._objection)
        self._mended: list[Quarantined] = []  # damaged rows of nodes, as far as they were found
        self._nodes: dict[int, NodeState] = {}
        self._sweep: dict[int, int] = {}
        self._retaining: dict[int, NodeState] = {}
        self._orphans: list[int] = []  # segments without runs that are still to be deleted
        self._next_segment_id = 0  # until loaded
        self._turn = _IDLE
        self._group: Group | None = None
        self._writer: GroupWriter | None = None
        self._placement: Placement | None = None  # the outcomes of the group under way
        self._not_put_away: set[tuple[int, int]] = set()  # damaged ones that were told, still there
        self._next_half = 0  # the number of the next half message if the group under way commits
        self._closed = False
        self._backup: Backup | None = None  # whose steps are under way
        self._answers = self._who_answers()

    def _gather_left(self) -> None:
        """What was spread when the store was not closed; on a full disk, in the room of the ballast."""
        try:
            gather_all(self._unit, SCHEMA_VERSION)
        except StoreFull:
            self._space.trip()
            gather_all(self._unit, SCHEMA_VERSION)

    # Turns

    def _take_turn(self, name: str, expected: str = _IDLE) -> None:
        assert not self._closed, f"{name} after close"
        assert self._turn == expected, f"{name} while the store is in {self._turn!r}, expected {expected!r}"
        self._turn = name

    def _checked(self) -> None:
        """Raises StoreFailed if the store failed before; loads what is in memory if nothing did yet."""
        self._unit.check()
        if not self._next_segment_id:
            self._load()

    def recover(self) -> Recovered:
        """What is stored: nodes, numbering and counts. Raises StoreFailed, and StoreFull if a damaged row of
        a node cannot be put away.
        """
        self._take_turn("recover")
        try:
            return self._load()
        except StoreCorrupt as error:
            self._unit.give_up(error)
            raise
        finally:
            self._turn = _IDLE

    def _load(self) -> Recovered:
        if not self._next_segment_id:
            self._mended += _naming_damage("nodes", lambda: mend_nodes(self._unit))
        loaded = _naming_damage("nodes and their messages", lambda: load(self._unit, self._runs))
        loaded.recovered.quarantined = [*self._mended]
        loaded.recovered.now_ms, loaded.recovered.notes = self._ledger.time()
        if not self._next_segment_id:
            self._files.recover()
            _naming_damage("the outcomes of transactions", self._outcomes.load)
            _naming_damage("half messages, cursors and events", self._ledger.load)
            self._nodes = loaded.nodes
            self._sweep = loaded.sweep
            self._retaining = {i: node for i, node in loaded.nodes.items() if node.retention is not None}
            self._next_segment_id = loaded.next_segment_id
            self._table.reserve(loaded.last_node_id)
            for node in loaded.nodes.values():
                self._table.load(node.queue_id, node.name)
        return loaded.recovered

    # Writing

    def apply(self, units: Sequence[Unit]) -> list[Exception | None]:
        """Run the units, in order; one entry for each: None, or why it did not happen. Raises StoreFull
        (nothing happened) or StoreFailed.
        """
        self._take_turn("apply")
        try:
            self._checked()
            errors = self._apply(units)
        except BaseException as error:
            self._end_group()
            if isinstance(error, StoreFull):
                self._no_room()
            elif isinstance(error, StoreCorrupt):
                self._unit.give_up(error)
            raise
        self._turn = _APPLIED
        return errors

    def _apply(self, units: Sequence[Unit]) -> list[Exception | None]:
        new_data = any(type(verb) in NEW_DATA for unit in units for verb in unit)
        refuse = new_data and self._space.refuse_posts()
        if self._runs.spreads:
            self._gather_for(units)
        group = self._group = Group(self._nodes, self._runs, self._ledger.changes, self._mover.move)
        errors: list[Exception | None] = []
        for unit in units:
            error = self._table.admit(unit, refuse)
            if error is None:
                group.add(unit)
            errors.append(error)
        if group.halves is not None and group.halves.time is not None:
            self._ledger.tell(group.halves.time)
        if group.queues or group.discharges or group.halves is not None:
            try:
                self._write(group, deletes_segments=True)
            except StoreCorrupt:
                # A damaged segment cannot be deleted. Its run can, and verification will find what is left
                # over.
                self._write(group, deletes_segments=False)
        return errors

    def _gather_for(self, units: Sequence[Unit]) -> None:
        """Whatever a group does with a queue but to post and to retire, it finds all of it by its runs."""
        if any(self._finds_spread(verb) for unit in units for verb in unit if type(verb) in _LOOKS):
            self._gather(self._runs.spread_messages)

    def _finds_spread(self, verb: Verb) -> bool:
        if isinstance(verb, Move):
            return self._runs.is_spread(verb.from_queue_id)
        return isinstance(verb, _LOOKS) and self._runs.is_spread(verb.queue_id)

    def _gather(self, messages: int) -> None:
        """At least so many of the oldest that are spread."""
        spreads: list[Spread] = []
        for each in self._runs.spreads:
            spreads.append(each)
            messages -= sum([run.count for run in each.runs if run.live_count])
            if messages <= 0:
                break
        gathered = gather(self._unit, spreads, self._next_segment_id)
        self._next_segment_id = gathered.next_segment_id
        self._orphans.extend(gathered.orphans)
        for each in spreads:
            del self._runs.spreads[each]
            for run in each.runs:
                if run.live_count:
                    self._runs.discard(run.queue_id, run.first)
        for run in gathered.runs:
            self._runs.add(run)
        self._runs.trim()
        self._reader.forget()
        octets = sum([run.total_bytes for run in gathered.runs])
        self._count_wal(octets + self._page_size * len(gathered.runs))

    def _objection(self, verb: Objectionable) -> StoreError | None:
        if isinstance(verb, Move):
            return self._mover.objection(verb, self._nodes.get(verb.from_queue_id))
        if isinstance(verb, PostLarge):
            return self._files.objection(verb.record.tail.file.number)
        return self._ledger.objection(verb)

    def _write(self, group: Group, deletes_segments: bool) -> None:
        self._files.forget()
        room = self._spread.most + self._spread.gathered - self._runs.spread_messages
        writer = GroupWriter(
            self._unit, self._next_segment_id, deletes_segments, self._files, self._spread, room
        )
        self._unit.begin()
        fault_point("apply.begun")
        wrote = writer.write(group)
        if group.halves is not None:
            self._next_half = self._ledger.write(group.halves)
            wrote = True
        if group.node_verbs:
            deleted = [i for i, changes in group.queues.items() if changes.purged_to == EVERYTHING]
            self._ledger.cursors.forget_queues(deleted, group.halves)
            self._ledger.termini.forget_queues(deleted)
        if group.discharges:
            fault_point("discharge.after_posts")
            self._placement = self._outcomes.write(group.discharges)
        if wrote or group.discharges:
            self._writer = writer
        else:
            self._unit.rollback()
        fault_point("apply.done")

    def commit(self) -> None:
        """End the group; it is durable when this returns. Raises StoreFull (nothing happened) or StoreFailed
        (unknown).
        """
        self._take_turn("commit", _APPLIED)
        try:
            writer, group = self._writer, self._group
            if writer is None or group is None:
                return
            if group.halves is not None:
                pass_points(group.halves, "before_commit")
            if group.retains:
                fault_point("retain.before_commit")
            if self._placement is not None:
                fault_point("discharge.before_commit")
            self._files.sync_spools()
            if self._files.waits:
                self._files.write()
            self._unit.commit()
            self._files.keep()  # first: whatever goes wrong from here on, they are there
            if group.halves is not None:
                pass_points(group.halves, "after_commit")
                self._count_wal(self._page_size * self._ledger.keep(group.halves, self._next_half))
            if self._placement is not None:
                fault_point("discharge.after_commit")
                self._count_wal(self._page_size * self._outcomes.keep(self._placement))
            if group.retains:
                fault_point("retain.after_commit")
            self._settle(writer, group)
        except StoreFull:
            self._no_room()
            raise
        finally:
            self._end_group()

    def _settle(self, writer: GroupWriter, group: Group) -> None:
        self._table.keep()
        for queue_id in writer.settle(group, self._nodes, self._runs):
            node = self._nodes.get(queue_id)
            self._sweep[queue_id] = EVERYTHING if node is None else node.purged_to
        for queue_id in group.retains:
            if (node := self._nodes.get(queue_id)) is not None:
                self._retaining[queue_id] = node
        self._next_segment_id = writer.next_segment_id
        if writer.touched_rows:
            self._files.retired()
        self._orphans.extend(writer.orphans)
        if writer.updated_runs:
            self._compactor.retired()
        self._count_wal(
            writer.written_bytes + self._page_size * (_PAGES_OF_A_COMMIT + writer.touched_rows // 8)
        )

    def abandon(self) -> None:
        """Roll back what was applied."""
        self._take_turn("abandon", _APPLIED)
        try:
            self._unit.rollback()
        finally:
            self._end_group()

    def _no_room(self) -> None:
        """The disk is full."""
        self._space.trip()
        self._files.remove_spares()

    def _end_group(self) -> None:
        """What was not kept is forgotten."""
        try:
            if self._unit.failure is None:
                self._unit.rollback()
        finally:
            self._table.forget()
            self._mover.forget()
            self._files.forget()
            self._group = self._writer = self._placement = None
            self._turn = _IDLE

    # Reading

    def ask(self, question: Question[Answer]) -> Answer:
        """The answer to a question (questions.py). Raises what the question says, and StoreFailed."""
        self._take_turn(type(question).__name__)
        try:
            self._checked()
            answer: Answer = self._answers[type(question)](question)
            return answer
        except StoreCorrupt as error:
            self._unit.give_up(error)
            raise
        finally:
            self._turn = _IDLE

    def _who_answers(self) -> Answers:
        halves, streams, epochs = self._ledger.halves, self._ledger.streams, self._ledger.epochs
        events, cursors, termini = self._ledger.events, self._ledger.cursors, self._ledger.termini
        return dict(
            (
                questions.StoreId.answered_by(lambda _: self._store_id),
                questions.PageOf.answered_by(self._page),
                questions.FoundDamaged.answered_by(self._found_damaged),
                questions.DischargedAt.answered_by(self._outcomes.find),
                questions.HalfOf.answered_by(halves.half),
                questions.SomeHalves.answered_by(halves.some),
                questions.HalfBodyOf.answered_by(halves.body),
                questions.OpenHalves.answered_by(halves.open_ones),
                questions.HalvesOf.answered_by(halves.page),
                # The streams of a deleted queue are swept later.
                questions.StreamOf.answered_by(
                    lambda q: streams.find(q) if q.queue_id in self._nodes else None
                ),
                questions.StreamsOf.answered_by(
                    lambda q: streams.page(q) if q.queue_id in self._nodes else []
                ),
                questions.StreamCount.answered_by(streams.count),
                questions.DecisionOf.answered_by(epochs.decision),
                questions.LatestDecisionOf.answered_by(epochs.latest),
                questions.DecisionsOf.answered_by(epochs.page),
                questions.EventsFrom.answered_by(events.page),
                questions.EventRange.answered_by(events.range),
                questions.RetainedBy.answered_by(self._retained),
                questions.RetainedPageOf.answered_by(self._retained_page),
                questions.OffsetAt.answered_by(lambda q: offset_at(self._unit, self._node(q), q.at_ms)),
                questions.CursorsOf.answered_by(cursors.find),
                questions.CursorNames.answered_by(cursors.names),
                questions.Termini.answered_by(termini.all),
                questions.UnsettledOf.answered_by(termini.unsettled),
                questions.HeldBy.answered_by(termini.held),
            )
        )

    def _node(
        self, asked: questions.PageOf | questions.FoundDamaged | questions.RetainedPageOf | questions.OffsetAt
    ) -> NodeState:
        node = self._nodes.get(asked.queue_id)
        if node is None:
            raise NoSuchNode(f"{asked} asks about a node that does not exist")
        return node

    def _retained(self, asked: questions.RetainedBy) -> Retained | None:
        node = self._nodes.get(asked.queue_id)
        if node is None or node.retention is None or not node.retention.retains():
            return None
        kept = node.retention
        return Retained(kept.keep_ms, kept.keep_bytes, kept.first_offset, node.next_offset, kept.byte_count)

    def _retained_page(self, asked: questions.RetainedPageOf) -> ReadResult:
        node = self._node(asked)
        return self._retained_reader.page(node, asked.from_offset, asked.max_messages, asked.max_bytes)

    def _page(self, asked: questions.PageOf) -> ReadResult:
        node = self._node(asked)
        page = self._reader.read(node, asked.from_offset, asked.max_messages, asked.max_bytes, asked.whole)
        return self._result(page)

    def _result(self, page: Page) -> ReadResult:
        quarantined = self._put_away(page) if page.damages else []
        lost_bytes = page.lost_bytes * len(quarantined) // (len(page.quarantined) or 1)
        return ReadResult(page.records, page.at, quarantined, lost_bytes, page.large)

    def _found_damaged(self, asked: questions.FoundDamaged) -> ReadResult:
        page = Page(self._node(asked), asked.offset + 1, 1, 1)
        run = self._runs.find(asked.queue_id, asked.offset, asked.offset)
        if run is not None and not run.gone >> (asked.offset - run.first) & 1:
            size = run.live_bytes // (run.live_count or 1)
            damage = Damage(asked.offset, asked.offset, run.segment_id, asked.reason)
            page.damaged(damage, (asked.offset,), size)
        return self._result(page)

    def _put_away(self, page: Page) -> list[Quarantined]:
        """What of it nobody was told before."""
        met = {(lost.queue_id, lost.offset) for lost in page.quarantined}
        new = [lost for lost in page.quarantined if (lost.queue_id, lost.offset) not in self._not_put_away]
        try:
            put_into_quarantine(self._unit, page.damages, page.node, self._runs)
            self._not_put_away -= met
        except StoreFull:
            self._no_room()  # it is not delivered, and the next read tries again
            self._not_put_away |= met
        except StoreCorrupt:
            self._not_put_away |= met  # the same; what stands in the way is for verification
        self._count_wal(self._page_size * _PAGES_OF_A_COMMIT)
        return new

    # Housekeeping

    def idle(self, now: float) -> bool:
        """One step of housekeeping; True if more waits: one step of forgetting; one of sweeping, or else of
        compaction, or else of giving room back; a checkpoint when due or when nothing else waits.

        `now` makes outcomes, half messages and events older; all else depends on what was stored only.
        """
        self._take_turn("idle")
        try:
            self._checked()
            if self._space.restore_ballast():
                sync_path(self.directory)
            if self._wal_bytes >= self._checkpoint_bytes:
                self._checkpoint()
            self._gather_step()
            more = self._forget_step(now)
            more = self._files_step() or more
            if self._sweep_step() or self._drop_step(now) or self._compact_step():
                self._files.retired()
                more = True
            more = more or self._shrink_step()
            if not more and self._wal_bytes + self._wal_guess:
                self._checkpoint()
            return more
        except StoreFull:
            self._no_room()
            return False
        except StoreCorrupt as error:
            self._unit.give_up(error)
            raise
        finally:
            self._turn = _IDLE

    def _gather_step(self) -> None:
        """Where much is spread, the oldest of it is not any more: tens of milliseconds."""
        self._gather_waits = self._runs.spread_messages > self._spread.most
        if self._gather_waits:
            try:
                self._gather(self._spread.gathered)
            except StoreFull:
                self._unit.rollback()  # it is whole where it is
                raise
            self._gather_waits = False

    def _forget_step(self, now: float) -> bool:
        pages, more = self._outcomes.forget_step(now)
        other_pages, more_others = self._ledger.forget_step(now)
        if pages or other_pages:
            self._count_wal(self._page_size * (pages + other_pages))
        return more or more_others

    def _sweep_step(self) -> bool:
        if self._orphans:
            orphan_step(self._unit, self._orphans)
            return True
        if not self._sweep:
            return False
        sweep_step(self._unit, self._sweep, self._orphans)
        self._count_wal(self._page_size * 16)
        return True

    def _drop_step(self, now: float) -> bool:
        """What retention has kept long enough, of one node."""
        if not self._retaining:
            return False
        clock_ms = round(1_000 * now)
        for queue_id, node in [*self._retaining.items()]:
            if node is not self._nodes.get(queue_id) or node.retention is None:
                del self._retaining[queue_id]
            elif node.retention.to_be_verified():
                verify_step(self._unit, queue_id, node.retention)
                return True
            elif node.retention.is_due(clock_ms):
                dropping = drop_step(self._unit, node, clock_ms, self._runs, self._orphans)
                if dropping is not None:
                    if dropping.leaves_live:
                        self._compactor.retired()
                    self._count_wal(self._page_size * 16)
                    return True
        return False

    def _compact_step(self) -> bool:
        rewritten = self._compactor.step(self._unit, self._runs, self._nodes)
        if rewritten:
            self._files.moved = True
            self._reader.forget()
            self._retained_reader.forget()
            self._count_wal(rewritten * self._page_size * _PAGES_OF_A_COMMIT * 8)
        return rewritten > 0

    def _files_step(self) -> bool:
        moved = self._files.step()
        if moved:
            self._count_wal(moved)
        return moved is not None

    def _shrink_step(self) -> bool:
        pages = self._shrinker.step()
        self._count_wal(2 * pages * self._page_size)
        return pages > 0

    @property
    def kept_bytes(self) -> int:
        return 0

    def begin_spool(self, most_bytes: int = 0) -> Spool | None:
        if self._unit.failure is not None or self._space.refuses(most_bytes + self._files.promised_bytes()):
            return None
        if not self._next_segment_id:
            self.recover()  # before its file is there: those without a row go then
        return self._files.begin_spool(most_bytes, self._space.refuses_more)

    def end_spool(self, spool: Spool, stored: bool) -> None:
        self._files.end_spool(spool, stored)

    @property
    def checkpoint_due(self) -> bool:
        """Whether `idle` should run before the next group."""
        if self._wal_bytes >= self._checkpoint_bytes or self._files.filled:
            return True
        return self._runs.spread_messages > self._spread.most and not self._gather_waits

    def _count_wal(self, guess: int) -> None:
        """Measuring costs 3 microseconds, so small commits are guessed until they make a sixteenth of the
        limit.
        """
        self._wal_guess += guess
        if self._wal_guess * 16 >= self._checkpoint_bytes:
            self._wal_bytes = self._measure_wal()
            self._wal_guess = 0

    def _measure_wal(self) -> int:
        """What a checkpoint would have to copy, in bytes. (NOOP: tell, but do nothing.)"""
        ((_, frames, copied),) = self._unit.query("PRAGMA wal_checkpoint(NOOP)")
        return int(max(0, frames - copied) * (self._page_size + _WAL_FRAME_HEADER_BYTES))

    def _checkpoint(self) -> None:
        fault_point("checkpoint.before")
        # There is one connection and no reader, so a passive checkpoint copies everything, and the next
        # commit begins at the front of the same file: no truncation, no growth, hence cheaper syncs.
        ((busy, frames, copied),) = self._unit.query("PRAGMA wal_checkpoint(PASSIVE)")
        assert not busy and frames == copied, f"checkpoint copied {copied} of {frames} frames"
        self._wal_bytes = self._wal_guess = 0
        fault_point("checkpoint.after")

    @property
    def space(self) -> SpaceState:
        """The room on the disk."""
        return self._space.state()

    def begin_backup(self, destination: str | os.PathLike[str]) -> Backup:
        """Begin a copy of the store in use, to a new directory; its steps are taken by `backup_step`. Raises
        FileExistsError, BackupFailed, StoreFailed.
        """
        self._take_turn("begin_backup")
        try:
            self._unit.check()
            if self._backup is not None:
                raise BackupFailed(f"another one is under way, to {self._backup.destination}")
            from amqp_broker.persistence.backup import Backup  # few starts see one

            let_go = self._files.let_go_of
            backup = Backup(self._connection, self.directory, Path(destination), self._store_id, let_go)
            self._backup = backup
            return backup
        finally:
            self._turn = _IDLE

    def backup_step(self) -> bool:
        """Copy one piece; True while there is more. Blocking, and it may run in a worker. Raises
        BackupFailed, StoreFailed.
        """
        self._take_turn("backup_step")
        more = False
        try:
            self._unit.check()
            assert self._backup is not None, "none is under way"
            more = self._backup.step()
            if not more:  # up to now it follows what happens to the rows
                self._files.keep_for(self._backup)
            return more
        finally:
            if not more:
                self._backup = None
            self._turn = _IDLE

    def end_backup(self) -> None:
        """Give up the backup whose steps are under way, if one is."""
        backup, self._backup = self._backup, None
        if backup is not None:
            backup.give_up()

    def close(self) -> None:
        """End cleanly; a second call is harmless. SQLite checkpoints and removes the WAL, so one file is
        left.
        """
        if self._closed:
            return
        self.end_backup()
        if self._turn == _APPLIED and self._unit.failure is None:
            self.abandon()
        assert self._turn == _IDLE, f"close while the store is in {self._turn!r}"
        self._closed = True
        try:
            if self._runs.spreads and self._unit.failure is None:
                with suppress(StoreError):  # else the next start does
                    self._gather(self._runs.spread_messages)
            self._files.close()
        finally:
            self._file.close()


def _naming_damage(what: str, load_part: Callable[[], T]) -> T:
    """A part of what is loaded; damage in it is told with its name."""
    try:
        return load_part()
    except StoreCorrupt as error:
        raise StoreCorrupt(f"{what} cannot be loaded: {error}") from error
