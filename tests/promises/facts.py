"""Everything that a store says, as facts with names: read through its door, whichever store it is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from amqp_broker.persistence import JOURNAL_ID, Event, MemoryStore, RecoveredNode, Store
from amqp_broker.persistence.halves import OPEN
from amqp_broker.persistence.questions import (
    CursorNames,
    CursorsOf,
    DecisionOf,
    DecisionsOf,
    DischargedAt,
    EventRange,
    EventsFrom,
    HalfBodyOf,
    HalfOf,
    HalvesOf,
    HeldBy,
    LatestDecisionOf,
    OpenHalves,
    RetainedBy,
    StreamOf,
    StreamsOf,
    Termini,
    UnsettledOf,
)
from amqp_broker.persistence.sqlite import SqliteStore
from amqp_broker.testing.store_suite.helpers import fields, read_all, read_all_retained

Facts = dict[tuple[Any, ...], Any]
"""What is there by its name, which begins with the kind of it. What has an order is in that order: the
messages of a queue, the journal, and the transactions as they were committed.
"""

GROUPS: Final = ("g", "h", "refused")
"""Of half messages: nobody tells which groups a store has."""
PRODUCERS: Final = ("p0", "p1")
"""Of the sets of group `g`."""

PAGE: Final = 1_000
SMALL_PAGE: Final = 7
"""Small enough that what is read takes more than one page. Then each thing is also asked for by its name."""
MANY: Final = 1_000_000


def facts_of(store: Store, page: int = PAGE) -> Facts:
    """All of them; a contradiction between two answers, and what is damaged, is an AssertionError."""
    thorough = page < PAGE
    recovered = store.recover()
    assert not recovered.quarantined, f"quarantined: {recovered.quarantined}"
    names = {node.queue_id: node.name for node in recovered.nodes} | {JOURNAL_ID: "$events"}
    facts: Facts = {}
    for node in recovered.nodes:
        facts |= _node(store, node, page)
        facts |= _streams(store, node, page, thorough)
    facts |= {("transaction", txn_id): at_ms for txn_id, at_ms in _outcomes(store)}
    for group in GROUPS:
        facts |= _halves(store, group, page, thorough)
    waiting = {("half", half.group, half.half_id) for half in store.ask(OpenHalves())}
    assert waiting == {key for key, told in facts.items() if key[0] == "half" and told[0].state in OPEN}
    for producer in PRODUCERS:
        facts |= _decisions(store, producer, thorough)
    for name in store.ask(CursorNames("", MANY)):
        facts |= {("cursor", name, names[one.queue_id]): one for one in store.ask(CursorsOf(name))}
    for terminus in store.ask(Termini()):
        facts["terminus", terminus.number] = terminus
        unsettled = store.ask(UnsettledOf(terminus.number))
        facts |= {("unsettled", terminus.number, tag): state for tag, state in unsettled.items()}
        held = store.ask(HeldBy(terminus.number))
        facts |= {("held", names[one[0]], one[1]): (terminus.number, tag) for tag, one in held.items()}
    facts |= {("event", event.seq): event for event in _events(store, page)}
    return facts


def _node(store: Store, node: RecoveredNode, page: int) -> Facts:
    messages = read_all(store, node.queue_id, page, node=node)
    first = messages[0].offset if messages else node.next_offset
    read = len(messages), sum(len(each.body) for each in messages), first
    counted = node.message_count, node.byte_count, node.first_offset
    assert counted == read, f"{node.name}: count, bytes and first offset are {read}, recovered {counted}"
    policy = store.ask(RetainedBy(node.queue_id))
    bounds = policy and (policy.keep_ms, policy.keep_bytes)
    facts: Facts = {("node", node.name): (node.queue_id, node.kind, node.settings, node.next_offset, bounds)}
    facts |= {("message", node.name, message.offset): fields(message) for message in messages}
    if policy is not None:
        told, missing = read_all_retained(store, node.queue_id, 0, page)
        retained: list[Any] = told
        facts |= {("missing", node.name, offset): True for offset in missing}
        assert policy.byte_count == sum(len(each[2]) for each in retained), f"{node.name}: bytes retained"
        facts |= {("retained", node.name, each[1]): each for each in retained}
    return facts


def _streams(store: Store, node: RecoveredNode, page: int, thorough: bool) -> Facts:
    streams = store.ask(StreamsOf(node.queue_id, "", page))
    assert not thorough or streams == [store.ask(StreamOf(node.queue_id, each.stream)) for each in streams]
    return {("stream", node.name, each.stream): each for each in streams}


def _halves(store: Store, group: str, page: int, thorough: bool) -> Facts:
    facts: Facts = {}
    after = b""
    while listed := store.ask(HalvesOf(group, None, after, page)):
        after = listed[-1].half_id
        for half in listed:
            assert not thorough or store.ask(HalfOf(group, half.half_id)) == half
            facts["half", group, half.half_id] = (half, store.ask(HalfBodyOf(group, half.half_id)))
        if len(listed) < page:
            break
    return facts


def _decisions(store: Store, producer: str, thorough: bool) -> Facts:
    listed = store.ask(DecisionsOf("g", producer, MANY))
    assert store.ask(LatestDecisionOf("g", producer)) == (listed[0] if listed else None)
    assert not thorough or listed == [store.ask(DecisionOf("g", producer, each.epoch)) for each in listed]
    return {("decision", producer, each.epoch): each for each in listed}


def _events(store: Store, page: int) -> Iterator[Event]:
    first, end = store.ask(EventRange())
    at = first
    while listed := store.ask(EventsFrom(at, page)):
        assert [event.seq for event in listed] == [*range(at, at + len(listed))], f"events {listed}"
        yield from listed
        at += len(listed)
    assert at == end, f"the journal ends with {at}, expected {end}"


def _outcomes(store: Store) -> list[tuple[bytes, int]]:
    """Of all transactions: the door answers for a name only."""
    if isinstance(store, MemoryStore):
        return [*store._outcomes.items()]
    assert isinstance(store, SqliteStore)
    rows = store._connection.execute("SELECT txn_id, at_ms FROM discharge ORDER BY txn_id").fetchall()
    for txn_id, at_ms in rows[:1] + rows[-1:]:
        found = store.ask(DischargedAt(txn_id))
        assert found == at_ms, f"a transaction of {at_ms} is answered with {found}"
    assert store.ask(DischargedAt(b"never")) is None
    return rows
