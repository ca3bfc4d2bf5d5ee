"""Moving the messages of a node to another: index rows get new places, bodies stay where they are.

A row of `run` knows its queue and its offsets, so each gets a new one, and the old one goes; its segment is
not touched. Where some messages of a run are gone, each stretch between the holes becomes a run of its own,
since the new offsets have none, and the segment counts them all.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import Final

import attrs

from amqp_broker.persistence.errors import RowDamaged, StoreCorrupt
from amqp_broker.persistence.group import LargeRun, MovedRun, NodeState, PendingRun, QueueChanges, SharedRun
from amqp_broker.persistence.records import LargeRecord, Record
from amqp_broker.persistence.runs import CHANGED, RUN, Run, bits_between, bytes_of_bits, stretches
from amqp_broker.persistence.sqlite_library import Parameters
from amqp_broker.persistence.unit_of_work import UnitOfWork
from amqp_broker.persistence.verbs import Move, Return

_SELECT_RUNS: Final = RUN.select("WHERE queue_id=? AND first_offset>=? ORDER BY first_offset")
_SELECT_CHANGED: Final = CHANGED.select("WHERE queue_id=? AND offset>=?")


@attrs.define
class Held:
    """What a node holds on disk, as the last commit left it."""

    runs: list[Run] = attrs.field(factory=list)
    changed: list[Return] = attrs.field(factory=list)


class Mover:
    """Reads what is to move, and gathers it into the changes of a group."""

    def __init__(self, unit: UnitOfWork) -> None:
        self._unit = unit
        self._held: dict[int, Held] = {}  # of the group under way

    def objection(self, verb: Move, node: NodeState | None) -> RowDamaged | None:
        """Why the messages of a node cannot move: which they are is unknown. Raises StoreFailed.

        `node` is None if the group under way made it.
        """
        try:
            self._held[verb.from_queue_id] = Held() if node is None else self._read(node)
        except StoreCorrupt as error:
            return RowDamaged(f"the index of node {verb.from_queue_id} cannot be read: {error}")
        except RowDamaged as error:
            return error
        return None

    def forget(self) -> None:
        """The group is over."""
        self._held.clear()

    def _read(self, node: NodeState) -> Held:
        held = Held()
        for row in self._unit.query(_SELECT_RUNS, (node.queue_id, node.purged_to)):
            run = RUN.value(row)
            if run is None:
                raise RowDamaged(f"node {node.queue_id}, run {row[1]}: the row does not match its checksum")
            held.runs.append(run)
        if node.changed_high < 0:
            return held
        for row in self._unit.query(_SELECT_CHANGED, (node.queue_id, node.purged_to)):
            changed = CHANGED.value(row)
            if changed is None:
                raise RowDamaged(f"node {node.queue_id}: the changed header of a message is damaged")
            held.changed.append(changed)
        return held

    def move(self, source: QueueChanges, target: QueueChanges, verb: Move) -> None:
        """Give what is live in `source`, with what the group did to it before, its place in `target`."""
        assert verb.first_offset >= target.next_offset, (
            f"moved to offset {verb.first_offset}, expected {target.next_offset} or above"
        )
        held = self._held.pop(verb.from_queue_id)
        if source.purged_to != source.node.purged_to:
            held = Held()  # the group has purged it
        places = _Places(verb.first_offset, verb.at_ms)
        for run in held.runs:
            touched = source.touched.get(run.first)
            places.stored(run, run.first, 0, run.count, run.gone if touched is None else touched.gone)
        for pending in source.pending:
            if isinstance(pending, MovedRun):
                places.stored(pending.run, pending.first, pending.skipped, pending.count, pending.gone)
            else:
                assert not isinstance(pending, SharedRun), "subscriptions do not move"
                places.new(pending)
        if places.found:
            target.pending.extend(places.found)
            target.next_offset = places.next_offset
        changed = {one.offset: one for one in held.changed} | source.changed
        for offset, one in changed.items():
            place = places.of(offset)
            if place is not None:
                target.changed[place] = Return(
                    verb.queue_id, place, one.delivery_count, one.annotations, one.acquired_before
                )


class _Places:
    """New places, in the order in which what gets them is told."""

    def __init__(self, first: int, at_ms: int) -> None:
        self.next_offset = first
        self.found: list[PendingRun] = []
        self._at_ms = at_ms
        self._from: list[int] = []  # former first offsets, ascending
        self._to: list[tuple[int, int]] = []  # (new first offset, count) of each

    def of(self, offset: int) -> int | None:
        """Where the message with a former offset is now; None if it was gone."""
        index = bisect_right(self._from, offset) - 1
        if index < 0:
            return None
        first, count = self._to[index]
        at = offset - self._from[index]
        return first + at if at < count else None

    def stored(self, run: Run, former: int, skipped: int, count: int, gone: int) -> None:
        """`count` messages of a stored run from `skipped` on, whose first one had the offset `former`."""
        for at, length in stretches(((1 << count) - 1) & ~gone):
            self.found.append(MovedRun(self.next_offset, run, skipped + at, length, self._at_ms))
            self._took(former + at, length)

    def new(self, pending: PendingRun) -> None:
        """Messages that have no row yet."""
        if isinstance(pending, LargeRun):
            if pending.live_count:
                large = pending.record
                self.found.append(LargeRun(LargeRecord(_copy(large, self.next_offset), large.tail)))
                self._took(pending.first, 1)
            return
        for at, length in stretches(((1 << len(pending.records)) - 1) & ~pending.gone):
            run = PendingRun(self.next_offset)
            for record in pending.records[at : at + length]:
                run.records.append(_copy(record, self.next_offset + len(run.records)))
                run.total_bytes += len(record.body)
            run.live_count = length
            self.found.append(run)
            self._took(pending.first + at, length)

    def _took(self, former: int, count: int) -> None:
        self._from.append(former)
        self._to.append((self.next_offset, count))
        self.next_offset += count


def _copy(record: Record, offset: int) -> Record:
    return Record(
        offset,
        record.body,
        record.message_format,
        record.priority,
        record.expires_at_ms,
        record.enqueued_at_ms,
        record.durable,
        record.delivery_count,
        record.acquired_before,
        record.annotations,
        record.header_bytes,
        record.queue_id,
    )


def run_of_moved(queue_id: int, moved: MovedRun, at_ms: int) -> Run:
    """The row of its new place. `moved.run.ends` is known if only a part of that run is in it, or live."""
    run = moved.run
    live_bytes = run.live_bytes if moved.live_count else 0
    if 0 < moved.live_count != run.count:
        assert run.ends is not None
        live = bits_between(0, moved.count - 1, 0) & ~moved.gone
        live_bytes = bytes_of_bits(live, run.ends, run.position + moved.skipped)
    # `total_bytes` stays that of the whole run: so many are loaded to read any of it.
    return Run(
        queue_id, moved.first, moved.count, run.segment_id, run.position + moved.skipped, moved.gone,
        moved.live_count, live_bytes, run.total_bytes, None, at_ms,
    )  # fmt: skip


def bytes_of_moved(moved: MovedRun) -> int:
    """The bytes of all the messages that move, those that the group retires at once included."""
    run = moved.run
    if moved.count == run.count:
        return run.live_bytes  # the whole run moves only if all of it is live
    assert run.ends is not None
    return bytes_of_bits(bits_between(0, moved.count - 1, 0), run.ends, run.position + moved.skipped)


def more_runs(moved: list[MovedRun]) -> list[Parameters]:
    """(how many more, segment) where a run became several."""
    pieces = Counter([(one.run.segment_id, one.run.queue_id, one.run.first) for one in moved])
    return [(count - 1, key[0]) for key, count in pieces.items() if count > 1]
