"""Carry out a plan on a store, and read back what a store holds in the plan's own terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from amqp_broker.persistence import (
    CreateNode,
    DeleteNode,
    Discharged,
    DischargedAt,
    EventsFrom,
    HalfBodyOf,
    HalfOf,
    HalvesOf,
    OpenHalves,
    PageOf,
    Post,
    Purge,
    Record,
    RecoveredNode,
    Retire,
    Return,
    Store,
    StreamOf,
    StreamsOf,
    Verb,
    halves,
)
from amqp_broker.persistence.generations import PARTS
from amqp_broker.persistence.sqlite import SqliteStore
from tests.power_loss.plan import (
    Clear,
    Discharge,
    Drop,
    Group,
    Make,
    Plan,
    Put,
    PutBack,
    Refused,
    Snapshot,
    Stored,
    Take,
)
from tests.power_loss.plan_halves import (
    ALL_GROUPS,
    KEEP_MS,
    Ask,
    DecideHalf,
    Holdings,
    Move,
    Note,
    PutHalf,
    StoredEvent,
    StoredHalf,
    holding_differences,
)
from tests.power_loss.plan_sets import Fail, SetGroup, SetPlan

NO_SUCH_QUEUE: Final = 1_000_000
SMALL_PAGE_MESSAGES: Final = 7
"""Small enough that reading a queue takes more than one page."""

PAGE_MESSAGES: Final = 1_000

KEEP_OUTCOMES: Final = 32
"""Few enough that a plan of forty groups makes the store forget some."""

SECONDS_OF_IDLENESS: Final = 1_000.0


class Executor:
    """One store and the names of its queues."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.queue_ids = {node.name: node.queue_id for node in store.recover().nodes}
        self.now = 0.0

    def run(
        self, plan: Plan | SetPlan, tell: Callable[[str], None], *, acknowledge_first: bool = False
    ) -> None:
        """Every group of the plan. `tell` hears "begin N" before a group and "done N" when its commit
        returned.

        With `acknowledge_first` it hears the latter before the commit: the mistake that the proof must find.
        """
        groups: Sequence[Group | SetGroup] = plan.groups
        for number, group in enumerate(groups):
            tell(f"begin {number}")
            verbs, errors = self.apply(group)
            if acknowledge_first:
                tell(f"done {number}")
            self.store.commit()
            if not acknowledge_first:
                tell(f"done {number}")
            check_errors(group, errors)
            self.learn(group, verbs)
            if group.idle_after:
                self.idle()
            elif self.store.checkpoint_due:
                self.store.idle(self.now)

    def apply(self, group: Group | SetGroup) -> tuple[list[list[Verb]], list[Exception | None]]:
        """Hand the units of a group to the store; the caller commits."""
        units = [[self._verb(step) for step in unit] for unit in group.units]
        return units, self.store.apply(units)

    def learn(self, group: Any, units: list[list[Verb]]) -> None:
        """Remember the ids of queues that a committed group made."""
        for steps, verbs in zip(group.units, units, strict=True):
            for step, verb in zip(steps, verbs, strict=True):
                if isinstance(step, Make) and isinstance(verb, CreateNode):
                    self.queue_ids[step.queue] = verb.queue_id
                elif isinstance(step, Drop):
                    del self.queue_ids[step.queue]

    def idle(self) -> None:
        """Let the store do all of its housekeeping."""
        self.now += SECONDS_OF_IDLENESS
        while self.store.idle(self.now):
            self.now += SECONDS_OF_IDLENESS

    def _verb(self, step: Any) -> Verb:
        match step:
            case Make():
                return CreateNode(step.queue, "queue", {"made_by": step.queue})
            case Refused():
                return Post(NO_SUCH_QUEUE, [_record(0, step.message, NO_SUCH_QUEUE)])
            case Discharge():
                return Discharged(step.txn_id, step.at_ms)
        if isinstance(step, PutHalf | Ask | DecideHalf | Note):
            return _half_verb(step)
        queue_id = self.queue_ids[step.queue]
        match step:
            case Drop():
                return DeleteNode(queue_id)
            case Clear():
                return Purge(queue_id)
            case Put():
                return Post(
                    queue_id,
                    [_record(offset, message, queue_id) for offset, message in step.messages.items()],
                )
            case Take():
                return Retire(queue_id, step.first_offset, step.last_offset)
            case Move():
                if step.position is None:
                    return halves.ForgetStream(queue_id, step.stream)
                former = ((step.position[0] - 1, 7),)
                return halves.Advance(halves.Stream(queue_id, step.stream, "owner", *step.position, former))
        assert isinstance(step, PutBack)
        return Return(queue_id, step.offset, step.delivery_count, step.annotations, step.acquired_before)


def check_errors(group: Group | SetGroup, errors: list[Exception | None]) -> None:
    """Exactly the units that must be refused were."""
    for unit, error in zip(group.units, errors, strict=True):
        refused = any(isinstance(step, Refused | Fail) for step in unit)
        assert refused == (error is not None), f"unit {unit}: {error!r}"


def _record(offset: int, message: Stored, queue_id: int) -> Record:
    return Record(
        offset,
        message.body,
        message.message_format,
        message.priority,
        message.expires_at_ms,
        message.enqueued_at_ms,
        queue_id=queue_id,
    )


def _half_verb(step: PutHalf | Ask | DecideHalf | Note) -> Verb:
    match step:
        case PutHalf():
            half, body = step.half, step.half.body
            assert body is not None
            group, half_id = step.key
            new = halves.Half(
                group, half_id, "destination", half.state, bytes(32), half.put_at_ms, half.due_at_ms, 5,
                "container", len(body),
            )  # fmt: skip
            return halves.Hold(new, body)
        case Ask():
            return halves.Reschedule(*step.key, step.state, step.attempts, step.due_at_ms, 5)
        case DecideHalf():
            expires_at_ms = step.at_ms + KEEP_MS
            return halves.Decide(*step.key, step.state, step.at_ms, step.resolver, step.reason, expires_at_ms)
        case Note():
            return halves.Journal(halves.Event("noted", step.at_ms, {"at": step.at_ms}))


def read_snapshot(store: SqliteStore, page_messages: int = PAGE_MESSAGES) -> Snapshot:
    """What the store holds, read through its door; a quarantined message is an AssertionError."""
    nodes = store.recover().nodes
    held = _read_held(store, {node.queue_id: node.name for node in nodes}, page_messages)
    return Snapshot(_read_queues(store, nodes, page_messages), _read_outcomes(store), held)


def _read_held(store: SqliteStore, names: dict[int, str], page: int) -> Holdings:
    """What lists tell; with small pages also that questions are answered alike."""
    thorough = page == SMALL_PAGE_MESSAGES
    found: dict[tuple[str, bytes], StoredHalf] = {}
    for group in ALL_GROUPS:
        after = b""
        while listed := store.ask(HalvesOf(group, None, after, page)):
            after = listed[-1].half_id
            for half in listed:
                assert not thorough or store.ask(HalfOf(group, half.half_id)) == half
                body = None
                if thorough or half.state != halves.COMMITTED:
                    body = store.ask(HalfBodyOf(group, half.half_id))
                found[group, half.half_id] = StoredHalf(
                    body, half.put_at_ms, half.state, half.attempts, half.due_at_ms, half.resolved_at_ms,
                    half.reason,
                )  # fmt: skip
            if len(listed) < page:
                break
    waiting = {(half.group, half.half_id) for half in store.ask(OpenHalves())}
    assert waiting == {key for key, half in found.items() if not half.resolved_at_ms}
    streams: dict[tuple[str, str], tuple[int, int]] = {}
    for queue_id, name in names.items():
        for one in store.ask(StreamsOf(queue_id, "", page)):
            assert not thorough or one == store.ask(StreamOf(queue_id, one.stream))
            assert one.former == ((one.seq_id - 1, 7),)
            streams[name, one.stream] = (one.seq_id, one.seq_no)
    events: list[StoredEvent] = []
    while listed_events := store.ask(EventsFrom(events[-1].seq + 1 if events else 0, page)):
        events += [StoredEvent(event.seq, event.at_ms) for event in listed_events]
        assert all(event.fields == {"at": event.at_ms} for event in listed_events)
        if len(listed_events) < page:
            break
    return Holdings(found, streams, tuple(events))


def _read_outcomes(store: SqliteStore) -> tuple[tuple[bytes, int], ...]:
    """All that are stored, in the order of their names: the door answers for a name only."""
    rows = store._connection.execute("SELECT txn_id, at_ms FROM discharge ORDER BY txn_id").fetchall()
    for txn_id, at_ms in rows[:1] + rows[-1:]:
        found = store.ask(DischargedAt(txn_id))
        assert found == at_ms, f"a transaction of {at_ms} is answered with {found}"
    assert store.ask(DischargedAt(b"never")) is None
    return tuple((txn_id, at_ms) for txn_id, at_ms in rows)


def _read_queues(
    store: SqliteStore, nodes: list[RecoveredNode], page_messages: int
) -> dict[str, tuple[int, dict[int, Stored]]]:
    found: dict[str, tuple[int, dict[int, Stored]]] = {}
    for node in nodes:
        messages: dict[int, Stored] = {}
        offset = 0
        while True:
            page = store.ask(PageOf(node.queue_id, offset, page_messages, 1_000_000))
            assert not page.quarantined, f"quarantined: {page.quarantined}"
            for record in page.records:
                assert record.offset not in messages, f"{node.name}: offset {record.offset} is there twice"
                messages[record.offset] = Stored(
                    record.body, record.message_format, record.priority, record.expires_at_ms,
                    record.enqueued_at_ms, record.delivery_count, record.acquired_before, record.annotations,
                )  # fmt: skip
            if page.next_offset >= node.next_offset:
                break
            assert page.next_offset > offset, f"{node.name}: reading stays at {offset}"
            offset = page.next_offset
        assert node.message_count == len(messages), (
            f"{node.name}: {node.message_count} counted, {len(messages)} read"
        )
        assert node.byte_count == sum(len(message.body) for message in messages.values()), (
            f"{node.name}: byte count"
        )
        first = min(messages, default=node.next_offset)
        assert node.first_offset == first, (
            f"{node.name}: first offset {node.first_offset}, but {first} was read"
        )
        found[node.name] = (node.next_offset, messages)
    return found


def differences(found: Snapshot, expected: Snapshot) -> list[str]:
    """How `found` differs from `expected`, in words; nothing if it is what may be there."""
    told = []
    for name in sorted(found.queues.keys() | expected.queues.keys()):
        if name not in found.queues:
            told.append(f"queue {name} is lost")
        elif name not in expected.queues:
            told.append(f"queue {name} is there and should not be")
        else:
            told += _queue_differences(name, found.queues[name], expected.queues[name])
    told += _outcome_differences(found.outcomes, expected.outcomes)
    return told + holding_differences(found.held, expected.held)


def _outcome_differences(
    found: tuple[tuple[bytes, int], ...], expected: tuple[tuple[bytes, int], ...]
) -> list[str]:
    """The newest have to be there; older ones may be, unless there are newer ones that are not."""
    told = []
    if wrong := set(found) - set(expected):
        told.append(f"{len(wrong)} transactions are told as committed and were not")
    elif set(found) != set(expected[len(expected) - len(found) :]):
        told.append(f"{len(found)} transactions are kept, but not the newest of {len(expected)}")
    if len(found) < min(len(expected), KEEP_OUTCOMES - KEEP_OUTCOMES // PARTS):
        told.append(f"transactions were committed and are not told: {len(found)} of {len(expected)}")
    return told


def _queue_differences(
    name: str, found: tuple[int, Mapping[int, Stored]], expected: tuple[int, Mapping[int, Stored]]
) -> list[str]:
    if found == expected:
        return []
    told = []
    if found[0] != expected[0]:
        told.append(f"queue {name}: next offset {found[0]}, expected {expected[0]}")
    have, want = found[1], expected[1]
    if lost := sorted(want.keys() - have.keys()):
        told.append(f"queue {name}: posted and lost: offsets {lost}")
    if back := sorted(have.keys() - want.keys()):
        told.append(f"queue {name}: retired and back (or never posted): offsets {back}")
    if changed := sorted(offset for offset in have.keys() & want.keys() if have[offset] != want[offset]):
        told.append(f"queue {name}: other content at offsets {changed}")
    return told
