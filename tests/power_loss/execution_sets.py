"""Carry out a plan of half-message sets on a store, read back what it holds, and judge that.

`read_set_snapshot` looks at what is found for itself: whatever was acknowledged, a decision and its messages
are one, offsets have no holes, and no cursor is ahead. `set_differences` compares it with a plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar
from zlib import crc32

import attrs

from amqp_broker.persistence import (
    JOURNAL_ID,
    Configure,
    CreateNode,
    CursorNames,
    CursorsOf,
    DecideEpoch,
    Decision,
    DecisionOf,
    DecisionsOf,
    DeleteNode,
    Event,
    EventRange,
    EventsFrom,
    ForgetCursor,
    Journal,
    LatestDecisionOf,
    Move,
    MoveCursor,
    PageOf,
    Post,
    Record,
    RecoveredNode,
    Retain,
    RetainedBy,
    RetainedPageOf,
    Retire,
    Verb,
)
from amqp_broker.persistence.halves import Columns, size_of
from amqp_broker.persistence.sqlite import SqliteStore
from tests.power_loss.execution import NO_SUCH_QUEUE, SMALL_PAGE_MESSAGES, Executor
from tests.power_loss.plan import Plan
from tests.power_loss.plan_sets import (
    CURSORS,
    EVENTS,
    GROUP,
    IDLE_JUMP_MS,
    PRODUCERS,
    START_MS,
    Archive,
    DecideSets,
    DropNode,
    Entry,
    Fail,
    Keep,
    Kept,
    MakeNode,
    Part,
    Point,
    Publish,
    Say,
    Send,
    SetGroup,
    SetPlan,
    SetSnapshot,
    SetStep,
    Settle,
    Winners,
)

LARGEST_RUN_BYTES: Final = 3_000
"""Of events in one row, which is forgotten as a whole."""

SET_KIND: Final = "set"
_MANY: Final = 1_000_000

Key = TypeVar("Key", str, tuple[str, int], tuple[str, str])


class SetExecutor(Executor):
    """One store and the names of its nodes."""

    def run(
        self, plan: Plan | SetPlan, tell: Callable[[str], None], *, acknowledge_first: bool = False
    ) -> None:
        """As there, by the clock of the plan's messages."""
        assert isinstance(plan, SetPlan)
        self.now = (START_MS + plan.snapshots[0].idles * IDLE_JUMP_MS) / 1_000
        super().run(plan, tell, acknowledge_first=acknowledge_first)

    def idle(self) -> None:
        """Let the store do all of its housekeeping."""
        self.now += IDLE_JUMP_MS / 1_000
        while self.store.idle(self.now):
            pass

    def learn(self, group: SetGroup, units: list[list[Verb]]) -> None:
        """Remember the ids of nodes that a committed group made."""
        for steps, verbs in zip(group.units, units, strict=True):
            for step, verb in zip(steps, verbs, strict=True):
                if isinstance(step, MakeNode) and isinstance(verb, CreateNode):
                    self.queue_ids[step.name] = verb.queue_id

    def _verb(self, step: SetStep) -> Verb:
        match step:
            case MakeNode():
                kind = "queue" if step.settings is None else SET_KIND
                return CreateNode(step.name, kind, dict(step.settings or {}))
            case DecideSets():
                told = Decision(GROUP, step.producer, step.epoch, START_MS + step.epoch, step.winners)
                return DecideEpoch(told)
            case Say():
                columns: Columns = {"offset": [*step.offsets]} if len(step.offsets) > 1 else {}
                fields = dict(step.fields) | ({"offset": step.offsets[0]} if len(step.offsets) == 1 else {})
                return Journal(Event(step.kind, step.at_ms, fields, 0, max(len(step.offsets), 1), columns))
            case Fail():
                return Post(NO_SUCH_QUEUE, [Record(0, b"refused")])
            case Point():
                if step.offset is None:
                    return ForgetCursor(step.cursor)
                where = JOURNAL_ID if step.name == EVENTS else self.queue_ids[step.name]
                return MoveCursor(step.cursor, where, step.offset, START_MS)
        queue_id = self.queue_ids[step.name]
        match step:
            case DropNode():
                return DeleteNode(queue_id)
            case Keep():
                return Retain(queue_id, *step.policy)
            case Send():
                return Post(
                    queue_id,
                    [
                        Record(step.first_offset + at, body, enqueued_at_ms=step.at_ms, queue_id=queue_id)
                        for at, body in enumerate(step.bodies)
                    ],
                )
            case Settle():
                return Configure(queue_id, dict(step.settings))
            case Publish():
                return Move(queue_id, self.queue_ids[step.queue], step.first_offset, step.at_ms)
            case Archive():
                return Retire(queue_id, step.first_offset, step.last_offset)


@attrs.define
class FoundQueue:
    """A retaining queue as it was read: bodies by offset."""

    policy: tuple[int, int] = (0, 0)
    first_offset: int = 0
    next_offset: int = 0
    retained: Mapping[int, bytes] = attrs.field(factory=dict)
    live: Mapping[int, bytes] = attrs.field(factory=dict)


@attrs.define
class FoundSets:
    """What a store holds, as `SetSnapshot` tells it."""

    queues: dict[str, FoundQueue]
    parts: dict[str, Part]
    decisions: dict[tuple[str, int], Winners]
    cursors: dict[tuple[str, str], int]
    events: tuple[Entry, ...]


def read_set_snapshot(store: SqliteStore, page: int) -> FoundSets:
    """What the store holds, read through its door. A contradiction in it is an AssertionError."""
    nodes = store.recover().nodes
    queues = {node.name: _read_queue(store, node, page) for node in nodes if node.kind != SET_KIND}
    parts = {
        node.name: Part(_settings(node), tuple(_read_live(store, node, page).values()))
        for node in nodes
        if node.kind == SET_KIND
    }
    thorough = page == SMALL_PAGE_MESSAGES
    decisions: dict[tuple[str, int], Winners] = {}
    for producer in PRODUCERS:
        listed = store.ask(DecisionsOf(GROUP, producer, _MANY))
        assert store.ask(LatestDecisionOf(GROUP, producer)) == (listed[0] if listed else None)
        for decision in listed:
            assert not thorough or store.ask(DecisionOf(GROUP, producer, decision.epoch)) == decision
            assert decision.decided_at_ms == START_MS + decision.epoch
            decisions[producer, decision.epoch] = decision.winners
    names = {node.queue_id: node.name for node in nodes} | {JOURNAL_ID: EVENTS}
    cursors = {
        (cursor, names[one.queue_id]): one.offset
        for cursor in CURSORS
        for one in store.ask(CursorsOf(cursor))
    }
    assert {*store.ask(CursorNames("", _MANY))} == {name for name, _ in cursors}
    found = FoundSets(queues, parts, decisions, cursors, tuple(_read_events(store, page)))
    contradictions = [*_contradictions(found, store.ask(EventRange())[1])]
    assert not contradictions, "; ".join(contradictions)
    return found


def _settings(node: RecoveredNode) -> dict[str, str | int]:
    settings: dict[str, str | int] = {}
    for name, value in node.settings.items():
        assert isinstance(value, str | int), f"{node.name}: {name} is {value!r}"
        settings[name] = value
    return settings


def _read_live(store: SqliteStore, node: RecoveredNode, page: int) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    while at < node.next_offset:
        result = store.ask(PageOf(node.queue_id, at, page, _MANY))
        assert not result.quarantined, f"quarantined: {result.quarantined}"
        found.update({record.offset: record.body for record in result.records})
        assert result.next_offset > at, f"{node.name}: reading stays at {at}"
        at = result.next_offset
    assert node.message_count == len(found), f"{node.name}: {node.message_count} counted, {len(found)} read"
    if node.kind == SET_KIND:
        assert [*found] == [*range(node.next_offset)], f"{node.name}: offsets {[*found]} have holes"
    return found


def _read_queue(store: SqliteStore, node: RecoveredNode, page: int) -> FoundQueue:
    live = _read_live(store, node, page)
    policy = store.ask(RetainedBy(node.queue_id))
    if policy is None:
        return FoundQueue(next_offset=node.next_offset, live=live)
    retained: dict[int, bytes] = {}
    at = policy.first_offset
    while at < node.next_offset:
        result = store.ask(RetainedPageOf(node.queue_id, at, page, _MANY))
        assert not result.quarantined, f"{node.name}: {result.quarantined} are missing or damaged"
        retained.update({record.offset: record.body for record in result.records})
        assert result.next_offset > at, f"{node.name}: reading stays at {at}"
        at = result.next_offset
    assert [*retained] == [*range(policy.first_offset, node.next_offset)], (
        f"{node.name}: the offsets retained, {[*retained]}, are not dense from {policy.first_offset} to "
        f"{node.next_offset}"
    )
    assert policy.byte_count == sum(map(len, retained.values())), f"{node.name}: byte count"
    assert all(body == retained.get(offset, body) for offset, body in live.items())
    bounds = (policy.keep_ms, policy.keep_bytes)
    return FoundQueue(bounds, policy.first_offset, node.next_offset, retained, live)


def _read_events(store: SqliteStore, page: int) -> Iterator[Entry]:
    at = 0
    while listed := store.ask(EventsFrom(at, page)):
        for event in listed:
            yield Entry(event.seq, event.kind, event.at_ms, event.fields)
        at = listed[-1].seq + 1
        if len(listed) < page:
            break


def _contradictions(found: FoundSets, next_seq: int) -> Iterator[str]:
    """What cannot be, whatever was acknowledged."""
    yield from _publication(found)
    for name, part in found.parts.items():
        told = part.settings
        decided = [epoch for producer, epoch in found.decisions if producer == told["producer"]]
        if decided and int(told["epoch"]) <= max(decided):
            yield f"{name} is still staged, but epoch {max(decided)} is decided"
    for (cursor, name), offset in found.cursors.items():
        end = next_seq if name == EVENTS else found.queues[name].next_offset
        if offset > end:
            yield f"cursor {cursor} on {name} is at {offset}, ahead of {end}"
    for event in found.events:
        told = event.fields
        if event.kind == "epoch.decided":
            if (str(told["producer"]), int(told["epoch"])) not in found.decisions:
                yield f"event {event.seq}: {told} is not decided"
        elif event.kind == "message.put":
            queue, offset = found.queues[str(told["queue"])], int(told["offset"])
            body = queue.retained.get(offset, queue.live.get(offset))
            if body is None and offset >= queue.first_offset:
                yield f"event {event.seq}: {told} is not there"
            elif body is not None and _set_of(body) != told.get("set"):
                yield f"event {event.seq}: {told}, but there is {body[:40]!r}"


def _set_of(body: bytes) -> str | None:
    """What the body says, "producer.epoch.set.number."; None if it was in no set."""
    return None if body.startswith(b"-") else body.split(b".")[2].decode()


def _publication(found: FoundSets) -> Iterator[str]:
    """A decision and the messages of its winners are one."""
    winners = {
        (producer, epoch, one[0]): (one[1], one[2])
        for (producer, epoch), named in found.decisions.items()
        for one in named
    }
    published: dict[tuple[str, int, str], list[bytes]] = {}
    for name, queue in found.queues.items():
        places: dict[tuple[str, int, str], dict[int, int]] = {}
        for offset, body in (queue.retained | queue.live).items():  # type: ignore[operator]
            if _set_of(body) is not None:
                producer, epoch, set_id, number, _ = body.split(b".", 4)
                key = (producer.decode(), int(epoch), set_id.decode())
                places.setdefault(key, {})[int(number)] = offset
                published.setdefault(key, []).append(body)
        for key, at in places.items():
            yield from _placing(name, queue, key, at)
    for key in published.keys() - winners.keys():
        yield f"{len(published[key])} messages of {key} are published, and it won no epoch"
    nothing_swept = not any(queue.first_offset for queue in found.queues.values())
    for key, (count, checksum) in winners.items():
        bodies = published.get(key, [])
        if len(bodies) > count or (nothing_swept and len(bodies) < count):
            yield f"{key} is decided with {count} messages, there are {len(bodies)}"
        elif len(bodies) == count and sum(map(crc32, bodies)) != checksum:
            yield f"the messages of {key} are other ones than were sealed"


def _placing(name: str, queue: FoundQueue, key: object, at: Mapping[int, int]) -> Iterator[str]:
    """Numbers and offsets of one set in one queue: one behind another; what is missing was swept."""
    starts = {offset - number for number, offset in at.items()}
    if len(starts) != 1:
        yield f"{name}: the messages of {key} are at {at}"
        return
    (start,) = starts
    missing = [number for number in range(max(at)) if number not in at]
    if any(start + number >= queue.first_offset for number in missing):
        yield f"{name}: of {key} {missing} are missing"


def set_differences(found: FoundSets, expected: SetSnapshot) -> list[str]:
    """How `found` differs from `expected`, in words; nothing if it is what may be there."""
    told = [
        *_part_differences(found.parts, expected.parts),
        *_compared("decision", found.decisions, expected.decisions),
        *_compared("cursor", found.cursors, expected.cursors),
    ]
    if found.queues.keys() != expected.queues.keys():
        told.append(f"queues {sorted(found.queues)}, expected {sorted(expected.queues)}")
    else:
        for name, kept in expected.queues.items():
            told += _queue_differences(name, found.queues[name], kept)
    return [*told, *_event_differences(found.events, expected)]


def _compared(what: str, found: Mapping[Key, object], expected: Mapping[Key, object]) -> Iterator[str]:
    for key in sorted(found.keys() | expected.keys()):
        if key not in found:
            yield f"{what} {key} is lost"
        elif key not in expected:
            yield f"{what} {key} is there and should not be"
        elif found[key] != expected[key]:
            yield f"{what} {key}: {found[key]}, expected {expected[key]}"


def _part_differences(found: Mapping[str, Part], expected: Mapping[str, Part]) -> Iterator[str]:
    yield from _compared("part", dict.fromkeys(found), dict.fromkeys(expected))
    for name in found.keys() & expected.keys():
        have, want = found[name], expected[name]
        if have.settings != want.settings:
            yield f"part {name} says {have.settings}, expected {want.settings}"
        if have.bodies != want.bodies:
            yield f"part {name} holds {len(have.bodies)} messages, expected {len(want.bodies)}, or other ones"


def _queue_differences(name: str, found: FoundQueue, expected: Kept) -> Iterator[str]:
    if (found.policy, found.next_offset) != (expected.policy, expected.next_offset):
        yield f"queue {name}: {found.policy}, next offset {found.next_offset}, expected {expected.policy}, "
        yield f"{expected.next_offset}"
    if not expected.swept <= found.first_offset <= expected.floor:
        yield (
            f"queue {name}: keeps from {found.first_offset} on, expected {expected.swept} to {expected.floor}"
        )
    live = {offset: message.body for offset, message in expected.messages.items() if not message.gone}
    if found.live != live:
        yield f"queue {name}: live are {[*found.live]}, expected {[*live]}"
    for offset, body in found.retained.items():
        message = expected.messages.get(offset)
        if message is None or message.body != body:
            yield f"queue {name}: other content at offset {offset}"


def _event_differences(found: tuple[Entry, ...], snapshot: SetSnapshot) -> Iterator[str]:
    """The oldest ones may be forgotten, if the store was idle since, or if they are too many."""
    expected, idles, bound = snapshot.events, snapshot.idles, snapshot.event_keep_bytes
    size = sum(size_of(entry.kind.encode(), repr(entry.fields).encode()) for entry in found)
    if bound and size > bound - LARGEST_RUN_BYTES:
        idles += 1 << 32
    if found != expected[len(expected) - len(found) :]:
        yield f"events {found[:1]} to {found[-1:]}, expected the last of {expected[:1]} to {expected[-1:]}"
    elif any(event.idles >= idles for event in expected[: len(expected) - len(found)]):
        yield f"{len(expected) - len(found)} events are lost"
    elif expected and not found:
        yield f"all {len(expected)} events are lost"
