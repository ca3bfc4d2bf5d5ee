"""What every store does with messages that move, and decisions about epochs."""

from __future__ import annotations

from typing import Final

from amqp_broker.persistence import (
    CreateNode,
    DecidedSet,
    DecideEpoch,
    Decision,
    DeleteNode,
    Move,
    NoSuchNode,
    Post,
    Purge,
    Record,
    Retire,
    Return,
    Store,
    Unit,
)
from amqp_broker.persistence.halves import KEEP_DECISIONS, LAST_EPOCH
from amqp_broker.persistence.questions import DecisionOf, DecisionsOf, LatestDecisionOf
from amqp_broker.testing.store_suite.helpers import (
    do,
    do_idle_work,
    do_units,
    fields,
    is_a_mistake,
    messages,
    new_queue,
    node_of,
    read_all,
    store_test,
)

AT_MS: Final = 1_800_000_000_000
FAR: Final = 1 << 40


def decision(
    epoch: int, *winners: DecidedSet, producer: str = "p", group: str = "g", coordinator: str = ""
) -> Decision:
    """A decision about an epoch, with a time of its own."""
    return Decision(group, producer, epoch, AT_MS + epoch % 1000, winners, coordinator)


def sharded_decision(epoch: int) -> Decision:
    """A decision that names sets of another store, or one that another store has made."""
    far = ("far", epoch, 2**64 - 1, "another store")
    if epoch % 2:
        return decision(epoch, ("near", 1, 2), far)
    return decision(epoch, ("near", 1, 2), coordinator="elsewhere")


def bodies(store: Store, queue_id: int) -> list[tuple[int, bytes]]:
    """What a queue holds: offsets and bodies without their padding."""
    return [(record.offset, record.body.rstrip(b".")) for record in read_all(store, queue_id)]


def names(first: int, *numbers: int) -> list[tuple[int, bytes]]:
    """The bodies that `messages` gives these numbers, at offsets from `first` on."""
    return [(first + at, b"%d:" % number) for at, number in enumerate(numbers)]


@store_test()
def moved_messages_are_the_same(store: Store) -> None:
    """A moved message keeps all fields but queue and offset. The name of the node it left is free."""
    source, target = new_queue(store, "set"), new_queue(store)
    posted = [
        Record(0, b"plain", enqueued_at_ms=5),
        Record(1, b"", 7, 9, 1_900_000_000_000, 6),
        Record(2, b"back", delivery_count=3, acquired_before=True, annotations=b"\x00Sr"),
        Record(3, b"z" * 70_000, priority=0),
    ]
    do(store, Post(source, posted), Return(source, 3, 2, b"new"))
    do(store, Post(target, messages(0, 2)))
    expected = [fields(record) for record in read_all(store, source)]
    do(store, Move(source, target, 2, AT_MS))
    found = read_all(store, target)[2:]
    assert [(record.queue_id, record.offset) for record in found] == [(target, 2 + at) for at in range(4)]
    assert [fields(record)[2:] for record in found] == [one[2:] for one in expected]
    node = node_of(store, target)
    assert (node.next_offset, node.message_count, node.byte_count) == (6, 6, 20 + 9 + 70_000), node
    assert [node.name for node in store.recover().nodes] == ["orders"]
    again = new_queue(store, "set")
    assert again > target and read_all(store, again) == []
    do_idle_work(store, 0.0)
    assert [fields(record)[2:] for record in read_all(store, target)[2:]] == [one[2:] for one in expected]


@store_test()
def moved_messages_have_no_holes(store: Store) -> None:
    """What is live moves, and no offset between is left out, whatever was retired or never posted before."""
    source, target = new_queue(store, "set"), new_queue(store)
    do(store, Post(source, messages(0, 1500)), Return(source, 1499, 4))
    do(store, Post(source, messages(1600, 3)), Post(source, messages(1700, 1)))
    do(store, Retire(source, 3, 1400), Retire(source, 1402, 1402), Retire(source, 1601, 1601))
    units: list[Unit] = [
        [Retire(source, 0, 0), Return(source, 2, 7)],
        [Retire(source, 1404, 1497)],
        [Post(source, messages(1800, 3)), Retire(source, 1801, 1801)],
        [Move(source, target, 5, AT_MS)],
        [Post(target, messages(20, 1)), Retire(target, 6, 6)],
    ]
    assert do_units(store, units) == [None] * 5
    kept = [1, 2, 1401, 1403, 1498, 1499, 1600, 1602, 1700, 1800, 1802]
    expected = [one for one in names(5, *kept) if one[0] != 6] + names(20, 20)
    assert bodies(store, target) == expected
    counts = {record.offset: record.delivery_count for record in read_all(store, target)}
    assert [offset for offset, count in counts.items() if count] == [10], counts
    node = node_of(store, target)
    assert (node.next_offset, node.message_count, node.first_offset) == (21, 11, 5), node
    do(store, Retire(target, 7, 9), Retire(target, 20, 20))
    assert bodies(store, target) == [one for one in expected if one[0] not in (7, 8, 9, 20)]
    do(store, Retire(target, 0, FAR))
    node = node_of(store, target)
    assert (node.message_count, node.byte_count, node.next_offset) == (0, 0, 21), node


@store_test()
def moves_and_posts_in_one_group(store: Store) -> None:
    """Moves to one queue, posts between them, and a move on happen in the order of their units."""
    sets = [new_queue(store, f"set{number}") for number in range(4)]
    target, other = new_queue(store), new_queue(store, "other")
    for number, queue_id in enumerate(sets[:3]):
        do(store, Post(queue_id, messages(100 * number, 3)))
    do(store, Post(target, messages(0, 2)))
    made = CreateNode("made", "set")
    units: list[Unit] = [
        [Post(target, messages(2, 1)), Move(sets[1], target, 3, AT_MS), Post(target, messages(6, 1))],
        [Move(sets[0], target, 7, AT_MS)],
        [Move(sets[3], target, 10, AT_MS)],  # which is empty
        [made],
        [Post(other, messages(0, 1)), Move(sets[2], other, 1, AT_MS)],
    ]
    assert do_units(store, units) == [None] * 5
    expected = [*names(0, 0, 1, 2), *names(3, 100, 101, 102), *names(6, 6), *names(7, 0, 1, 2)]
    assert bodies(store, target) == expected
    do_units(
        store,
        [
            [Post(made.queue_id, messages(50, 2)), Move(made.queue_id, other, 4, AT_MS)],
            [Retire(other, 2, 4), Post(other, messages(6, 1))],
            [Move(other, target, 10, AT_MS), Retire(target, 11, 11), Return(target, 12, 5)],
            [Post(target, messages(14, 1))],
        ],
    )
    expected += [*names(10, 0), *names(12, 51, 6, 14)]
    assert bodies(store, target) == expected
    assert [record.offset for record in read_all(store, target) if record.delivery_count] == [12]
    assert [node.queue_id for node in store.recover().nodes] == [target]


@store_test()
def what_moved_may_go_in_the_same_group(store: Store) -> None:
    """A group may retire or purge what it moved, or delete the queue that it moved to. Nothing comes back."""
    sets = [new_queue(store, f"set{number}") for number in range(3)]
    one, two, three = (new_queue(store, name) for name in ("one", "two", "three"))
    for queue_id in sets:
        do(store, Post(queue_id, messages(0, 3)), Return(queue_id, 1, 1))
        do(store, Post(queue_id, messages(3, 1)))
    do(store, Move(sets[0], one, 0, AT_MS), Retire(one, 0, 3), Post(one, messages(4, 1)))
    do(store, Move(sets[1], two, 0, AT_MS), Purge(two), Post(two, messages(4, 1)))
    do(store, Move(sets[2], three, 0, AT_MS), DeleteNode(three))
    assert bodies(store, one) == bodies(store, two) == names(4, 4)
    do_idle_work(store, 0.0)
    found = [(node.name, node.next_offset, node.message_count) for node in store.recover().nodes]
    assert found == [("one", 5, 1), ("two", 5, 1)], found


@store_test()
def purged_and_emptied_nodes_move_as_nothing(store: Store) -> None:
    """Moving an empty node leaves the target's numbering, in the same group and in a later one."""
    target = new_queue(store)
    do(store, Post(target, messages(0, 2)))
    for number in range(4):
        source = new_queue(store, "set")
        do(store, Post(source, messages(0, 5)))
        gone = Purge(source) if number % 2 else Retire(source, 0, 9)
        if number < 2:
            do(store, gone)
            do(store, Move(source, target, 2, AT_MS))
        else:
            do(store, gone, Move(source, target, 2, AT_MS))
        assert node_of(store, target).next_offset == 2
    source = new_queue(store, "set")
    do(store, Post(source, messages(0, 5)), Purge(source), Post(source, messages(5, 1)))
    do(store, Move(source, target, 2, AT_MS))
    assert bodies(store, target) == names(0, 0, 1, 5)


@store_test()
def refused_moves_leave_no_trace(store: Store) -> None:
    """A move is refused from or into an unknown node, twice, and beside a refused verb."""
    source, target = new_queue(store, "set"), new_queue(store)
    do(store, Post(source, messages(0, 3)))
    before = store.recover()
    store.apply([[Move(source, target, 0, AT_MS), Post(target, messages(3, 1))]])
    store.abandon()
    assert store.recover() == before
    units: list[Unit] = [
        [Move(source + 99, target, 0, AT_MS)],
        [Move(source, target + 99, 0, AT_MS)],
        [Move(source, target, 0, AT_MS), Post(target + 99, messages(0, 1))],
        [Move(source, target, 0, AT_MS), Move(source, target, 3, AT_MS)],
        [Post(source, messages(3, 1))],
        [Move(source, target, 0, AT_MS)],
        [Post(source, messages(4, 1))],
        [CreateNode("set", "queue")],
    ]
    kinds = [type(error) for error in do_units(store, units)]
    assert kinds == [*[NoSuchNode] * 4, type(None), type(None), NoSuchNode, type(None)], kinds
    assert bodies(store, target) == names(0, 0, 1, 2, 3)
    assert is_a_mistake(store, [Move(target, target, 4, AT_MS)])


@store_test()
def decisions_come_back(store: Store) -> None:
    """Decisions are found by group, producer and epoch. The highest epoch is the latest."""
    kept = [
        decision(5),
        decision(7, ("a-1", 3, 2**64 - 1), ("b", 0, 0)),
        decision(6, ("ü", 2**40, 17)),
        decision(LAST_EPOCH, producer="öther"),
        decision(0, ("x", 1, 1), group="h"),
        sharded_decision(1),
        sharded_decision(2),
    ]
    assert store.ask(DecisionOf("g", "p", 5)) is None and store.ask(LatestDecisionOf("g", "p")) is None
    assert store.ask(DecisionsOf("g", "p", 10)) == []
    do(store, DecideEpoch(kept[0]), DecideEpoch(kept[1]))
    do_units(store, [[DecideEpoch(one)] for one in kept[2:]])
    for one in kept:
        assert store.ask(DecisionOf(one.group, one.producer, one.epoch)) == one
    assert store.ask(DecisionOf("g", "p", 8)) is None and store.ask(DecisionOf("h", "p", 5)) is None
    assert store.ask(LatestDecisionOf("g", "p")) == kept[1]
    assert store.ask(LatestDecisionOf("g", "öther")) == kept[3]
    assert store.ask(DecisionsOf("g", "p", 10)) == [kept[1], kept[2], kept[0], kept[6], kept[5]]
    assert store.ask(DecisionsOf("g", "p", 2)) == [kept[1], kept[2]]
    store.apply([[DecideEpoch(decision(9))]])
    store.abandon()
    assert store.ask(LatestDecisionOf("g", "p")) == kept[1]
    assert is_a_mistake(store, [DecideEpoch(decision(7))]), "an epoch was decided twice"
    assert is_a_mistake(store, [DecideEpoch(decision(9))], [DecideEpoch(decision(9))])
    assert is_a_mistake(store, [DecideEpoch(decision(LAST_EPOCH + 1))])


@store_test()
def decision_and_messages_are_one_unit(store: Store) -> None:
    """A decision and the move of its messages happen both or not at all."""
    source, target = new_queue(store, "set"), new_queue(store)
    do(store, Post(source, messages(0, 2)))
    units: list[Unit] = [
        [Move(source, target, 0, AT_MS), DecideEpoch(decision(1)), Post(target + 9, messages(0, 1))],
        [DecideEpoch(decision(2)), Move(source, target, 0, AT_MS)],
    ]
    assert [type(error) for error in do_units(store, units)] == [NoSuchNode, type(None)]
    assert store.ask(DecisionsOf("g", "p", 9)) == [decision(2)]
    assert bodies(store, target) == names(0, 0, 1)


@store_test()
def old_decisions_are_forgotten(store: Store) -> None:
    """A producer's decisions go that have `KEEP_DECISIONS` later ones, and no others."""
    do(store, DecideEpoch(decision(3, producer="q")))
    for first in (0, KEEP_DECISIONS - 5):
        do(store, *[DecideEpoch(decision(first + at)) for at in range(KEEP_DECISIONS - 5)])
    last = 2 * KEEP_DECISIONS - 11
    found = store.ask(DecisionsOf("g", "p", 2 * KEEP_DECISIONS))
    assert [one.epoch for one in found] == [*range(last, last - KEEP_DECISIONS, -1)]
    assert store.ask(DecisionOf("g", "p", last - KEEP_DECISIONS)) is None
    assert store.ask(DecisionOf("g", "q", 3)) == decision(3, producer="q")
