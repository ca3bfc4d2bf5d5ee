"""What every store does with nodes and their messages."""

from __future__ import annotations

from functools import partial
from typing import Any

import attrs

from amqp_broker.persistence import (
    Configure,
    CreateNode,
    DeleteNode,
    NodeExists,
    NoSuchNode,
    Post,
    Purge,
    Record,
    RecoveredNode,
    Retire,
    Return,
    Store,
    Unit,
    questions,
)
from amqp_broker.persistence.questions import PageOf, Question
from amqp_broker.testing.store_suite.helpers import (
    do,
    do_idle_work,
    do_units,
    fields,
    is_refused,
    messages,
    new_queue,
    node_of,
    offsets,
    read_all,
    store_test,
)


@store_test()
def new_store_is_empty(store: Store) -> None:
    """A new store recovers nothing, and an empty group commits."""
    assert store.recover().nodes == []
    assert do_units(store, []) == []
    assert do_units(store, [[]]) == [None]
    store.close()


@store_test()
def nodes_keep_what_they_were_made_with(store: Store) -> None:
    """Nodes come back in the order of their creation, with name, kind and settings."""
    first, second = CreateNode("b", "queue", {"limit": 5, "deep": {"a": [1, None]}}), CreateNode("a", "topic")
    assert do_units(store, [[first], [second]]) == [None, None]
    assert 0 < first.queue_id < second.queue_id
    found = store.recover().nodes
    assert found == [
        RecoveredNode(first.queue_id, "b", "queue", {"limit": 5, "deep": {"a": [1, None]}}, 0, 0, 0, 0),
        RecoveredNode(second.queue_id, "a", "topic", {}, 0, 0, 0, 0),
    ], found


@store_test()
def refused_unit_leaves_no_trace(store: Store) -> None:
    """A unit that cannot happen is refused alone and wholly undone. The others of its group happen."""
    queue_id = new_queue(store)
    errors = do_units(
        store,
        [
            [Post(queue_id, messages(0, 1))],
            [CreateNode("left over", "queue"), Post(queue_id + 99, messages(0, 1))],
            [Post(queue_id, messages(5, 1)), CreateNode("orders", "queue")],
            [CreateNode("new", "queue"), CreateNode("new", "queue")],
            [Purge(queue_id + 99)],
            [DeleteNode(queue_id + 99)],
            [DeleteNode(queue_id), DeleteNode(queue_id)],
            [Post(queue_id, messages(1, 1))],
        ],
    )
    kinds = [type(error) for error in errors]
    nothing = type(None)
    assert kinds == [
        nothing, NoSuchNode, NodeExists, NodeExists, NoSuchNode, NoSuchNode, NoSuchNode, nothing,
    ], errors  # fmt: skip
    assert [node.name for node in store.recover().nodes] == ["orders"]
    assert offsets(store, queue_id) == [0, 1]


@store_test()
def messages_come_back_octet_for_octet(store: Store) -> None:
    """Every field that is kept comes back, for messages with and without extras, side by side."""
    queue_id = new_queue(store)
    posted = [
        Record(0, b"", enqueued_at_ms=1_700_000_000_000),
        Record(1, bytes(range(256)) * 3, 7, 9, 1_800_000_000_000, 1_700_000_000_001),
        Record(2, b"x", priority=0),
        Record(3, b"y" * 70_000, message_format=0xFFFFFFFF, enqueued_at_ms=1),
        Record(4, b"z", delivery_count=3, acquired_before=True, annotations=b"\x00\x53\x72\x45"),
    ]
    do(store, Post(queue_id, posted))
    do(store, Post(queue_id, [Record(5, b"alone", 1, 2, 3, 4)]))
    do(store, Post(queue_id, [Record(6, b"alone, plain", enqueued_at_ms=4)]))
    found = read_all(store, queue_id)
    expected = [
        *posted, Record(5, b"alone", 1, 2, 3, 4), Record(6, b"alone, plain", enqueued_at_ms=4),
    ]  # fmt: skip
    for record in expected:
        record.queue_id = queue_id
    assert list(map(fields, found)) == list(map(fields, expected))


@store_test()
def reading_gives_fresh_records(store: Store) -> None:
    """What a reader does to its record changes nothing that is stored."""
    queue_id = new_queue(store)
    do(store, Post(queue_id, messages(0, 1)))
    (first,) = read_all(store, queue_id)
    first.delivery_count = 9
    first.header_bytes = b"mine"
    (second,) = read_all(store, queue_id)
    assert (second.delivery_count, second.header_bytes) == (0, b"")


@store_test()
def pages_keep_their_bounds(store: Store) -> None:
    """Pages of any size are together the queue in order. A page has at least one message, however large."""
    queue_id = new_queue(store)
    do(store, Post(queue_id, messages(0, 300, size=100)))
    do(store, *[Post(queue_id, messages(offset, 1, size=5000)) for offset in range(300, 320)])
    do(store, Retire(queue_id, 10, 290), Retire(queue_id, 305, 305))
    expected = [*range(10), *range(291, 305), *range(306, 320)]
    for page, max_bytes in ((1, 1 << 30), (7, 1 << 30), (1000, 1), (1000, 450), (1000, 12_000), (40, 5000)):
        found = [record.offset for record in read_all(store, queue_id, page, max_bytes)]
        assert found == expected, f"pages of {page} messages and {max_bytes} bytes: {found}"
    end = store.ask(PageOf(queue_id, 320, 10, 1000))
    assert (end.records, end.next_offset) == ([], 320)
    beyond = store.ask(PageOf(queue_id, 5000, 10, 1000))
    assert (beyond.records, beyond.next_offset) == ([], 5000)


@store_test()
def reading_an_unknown_node_is_refused(store: Store) -> None:
    """Reading a node that does not exist raises NoSuchNode."""
    assert is_refused(partial(store.ask, PageOf(7, 0, 1, 1)), NoSuchNode)


@store_test()
def offsets_may_have_gaps(store: Store) -> None:
    """Offsets that were never posted are holes in reading, retiring and counting."""
    queue_id = new_queue(store)
    do(store, Post(queue_id, [Record(offset, b"%d" % offset) for offset in (0, 1, 4, 9, 10, 50)]))
    assert offsets(store, queue_id) == [0, 1, 4, 9, 10, 50]
    do(
        store,
        Retire(queue_id, 2, 3),
        Retire(queue_id, 1, 9),
        Retire(queue_id, 11, 49),
        Retire(queue_id, 60, 99),
    )
    assert offsets(store, queue_id) == [0, 10, 50]
    node = node_of(store, queue_id)
    assert (node.next_offset, node.message_count, node.first_offset) == (51, 3, 0), node
    do(store, Post(queue_id, messages(100, 2)))
    assert offsets(store, queue_id) == [0, 10, 50, 100, 101]


@store_test()
def retiring_in_pieces(store: Store) -> None:
    """Retired ranges in any order, overlapping, repeated, over many runs, leave what none of them covered."""
    queue_id = new_queue(store)
    do(store, Post(queue_id, messages(0, 3000)))
    for offset in range(3000, 3040):
        do(store, Post(queue_id, messages(offset, 1)))
    left = set(range(3040))
    for first, last in (
        (0, 0),
        (1020, 1030),
        (5, 9),
        (7, 12),
        (5, 9),
        (2047, 2048),
        (2990, 3010),
        (3012, 3035),
    ):
        do(store, Retire(queue_id, first, last))
        left -= set(range(first, last + 1))
        assert offsets(store, queue_id) == sorted(left), f"after retiring {first} to {last}"
        node = node_of(store, queue_id)
        assert (node.message_count, node.first_offset) == (len(left), min(left)), node
        assert node.byte_count == 10 * len(left), node
    do(store, Retire(queue_id, 0, 1 << 40))
    node = node_of(store, queue_id)
    assert (node.message_count, node.byte_count, node.first_offset, node.next_offset) == (0, 0, 3040, 3040), (
        node
    )


@store_test()
def retiring_with_holes(store: Store) -> None:
    """Whole runs that are retired in one group leave the messages between them, and other queues, alone."""
    queue_id, other = new_queue(store), new_queue(store, "other")
    for offset in range(40):
        do(store, Post(queue_id, messages(offset, 1)))
        do(store, Post(other, messages(offset, 1)))
    do(store, *[Retire(queue_id, offset, offset) for offset in range(0, 40, 2)], Retire(other, 10, 19))
    assert offsets(store, queue_id) == list(range(1, 40, 2))
    assert offsets(store, other) == [*range(10), *range(20, 40)]
    do(store, Retire(queue_id, 3, 3), Retire(queue_id, 9, 11), Retire(queue_id, 0, 1))
    assert offsets(store, queue_id) == [5, 7, *range(13, 40, 2)]


@store_test()
def posted_and_retired_in_one_group(store: Store) -> None:
    """A group may retire and return what it posts, in the same unit or in a later one."""
    queue_id = new_queue(store)
    do_units(
        store,
        [
            [Post(queue_id, messages(0, 10)), Retire(queue_id, 0, 4)],
            [Retire(queue_id, 6, 6), Post(queue_id, messages(10, 2))],
            [Retire(queue_id, 11, 11), Return(queue_id, 11, 5), Return(queue_id, 7, 5)],
        ],
    )
    assert offsets(store, queue_id) == [5, 7, 8, 9, 10]
    assert [record.delivery_count for record in read_all(store, queue_id)] == [0, 5, 0, 0, 0]
    do(store, Post(queue_id, messages(12, 3)), Retire(queue_id, 12, 14))
    node = node_of(store, queue_id)
    assert (node.next_offset, node.message_count) == (15, 5), node


@store_test()
def numbering_survives_emptiness(store: Store) -> None:
    """`next_offset` stays when the last message goes: in its own group, in a later one, or by a purge."""
    queue_id = new_queue(store)
    do(store, Post(queue_id, messages(0, 5)))
    do(store, Retire(queue_id, 0, 4))
    assert node_of(store, queue_id).next_offset == 5
    do(store, Post(queue_id, messages(5, 5)), Retire(queue_id, 5, 9))
    assert node_of(store, queue_id).next_offset == 10
    do(store, Post(queue_id, messages(10, 1)), Retire(queue_id, 3, 3))
    do(store, Retire(queue_id, 10, 10), Post(queue_id, messages(11, 1)))
    assert offsets(store, queue_id) == [11]
    do(store, Purge(queue_id))
    node = node_of(store, queue_id)
    assert (node.next_offset, node.first_offset, node.message_count, node.byte_count) == (12, 12, 0, 0), node


@store_test()
def returned_messages_keep_their_changes(store: Store) -> None:
    """A returned message has the delivery-count, first-acquirer and annotations of its last return."""
    queue_id = new_queue(store)
    do(store, Post(queue_id, messages(0, 4)))
    do(store, Return(queue_id, 1, 2, b"changed"), Return(queue_id, 2, 0), Return(queue_id, 9, 1))
    do(store, Return(queue_id, 3, 1, b"x", acquired_before=False))
    found = [(r.delivery_count, r.acquired_before, r.annotations) for r in read_all(store, queue_id)]
    assert found == [(0, False, None), (2, True, b"changed"), (0, True, None), (1, False, b"x")], found
    assert store.ask(PageOf(queue_id, 1, 1, 1000)).records[0].annotations == b"changed"
    do(store, Return(queue_id, 1, 3), Retire(queue_id, 3, 3))
    found = [(r.delivery_count, r.acquired_before, r.annotations) for r in read_all(store, queue_id)]
    assert found == [(0, False, None), (3, True, None), (0, True, None)], found
    do(
        store,
        Retire(queue_id, 1, 1),
        Return(queue_id, 1, 9),
        Return(queue_id, 3, 9),
        Return(queue_id + 9, 1, 1),
    )
    assert offsets(store, queue_id) == [0, 2]


@store_test()
def purge_and_delete(store: Store) -> None:
    """A purge empties one queue, in the order of its unit. A deleted node's name is free, its id is not."""
    one, two = new_queue(store, "one"), new_queue(store, "two")
    do(store, Post(one, messages(0, 2000)), Post(two, messages(0, 5)), Return(one, 3, 1))
    do(store, Retire(one, 0, 3), Purge(one), Post(one, messages(2000, 3)), Retire(one, 1999, 2000))
    assert offsets(store, one) == [2001, 2002]
    do(store, Post(one, messages(2003, 2)), Purge(one), Post(one, messages(2005, 1)))
    assert offsets(store, one) == [2005]
    assert offsets(store, two) == [0, 1, 2, 3, 4]
    do(store, Post(one, messages(2006, 1)), DeleteNode(one))
    again = CreateNode("one", "queue")
    assert do_units(store, [[Retire(one, 0, 1 << 30)], [again], [Return(one, 2001, 1)]]) == [None] * 3
    assert again.queue_id not in (one, two)
    assert [node.name for node in store.recover().nodes] == ["two", "one"]
    assert offsets(store, again.queue_id) == []
    do_idle_work(store, 0.0)
    do(store, Post(again.queue_id, messages(0, 1)))
    assert offsets(store, again.queue_id) == [0]
    assert offsets(store, two) == [0, 1, 2, 3, 4]


@store_test()
def abandoned_group_leaves_nothing(store: Store) -> None:
    """After `abandon` the store is as the last commit left it, names and ids included."""
    queue_id = new_queue(store)
    do(store, Post(queue_id, messages(0, 10)), Return(queue_id, 4, 1))
    before = (store.recover(), list(map(fields, read_all(store, queue_id))))
    create = CreateNode("never", "queue")
    units: list[Unit] = [
        [create, Post(queue_id, messages(10, 5)), Retire(queue_id, 0, 8), Return(queue_id, 9, 7)],
        [Purge(queue_id)],
        [DeleteNode(queue_id)],
    ]
    assert store.apply(units) == [None, None, None]
    store.abandon()
    assert (store.recover(), list(map(fields, read_all(store, queue_id)))) == before
    assert do_units(store, [[CreateNode("never", "queue")], [Post(queue_id, messages(10, 1))]]) == [
        None,
        None,
    ]
    assert offsets(store, queue_id) == list(range(11))


@store_test()
def calls_out_of_turn_are_mistakes(store: Store) -> None:
    """Calls out of turn are AssertionErrors, and change nothing."""
    queue_id = new_queue(store)
    assert is_refused(store.commit)
    assert is_refused(store.abandon)
    store.apply([[Post(queue_id, messages(0, 1))]])
    assert is_refused(lambda: store.apply([]))
    assert is_refused(store.recover)
    store.commit()
    assert is_refused(store.commit)
    assert is_refused(lambda: store.apply([[Post(queue_id, messages(0, 1))]])), "an offset was posted twice"
    assert offsets(store, queue_id) == [0]


@store_test()
def questions_have_their_turn(store: Store) -> None:
    """Each question is answered before `apply`, and not between `apply` and `commit`."""
    queue_id = new_queue(store)
    samples: dict[Any, object] = {"int": queue_id, "str": "name", "bytes": b"id", "bool": False}
    samples |= {"str | None": None, "Sequence[bytes]": [b"id"]}
    kinds = [kind for kind in vars(questions).values() if isinstance(kind, type)]
    declared: list[Any] = [kind for kind in kinds if issubclass(kind, Question) and kind is not Question]
    assert PageOf in declared
    for kind in declared:
        question = kind(*[samples[field.type] for field in attrs.fields(kind)])
        before = store.ask(question)
        store.apply([[Post(queue_id, messages(0, 1))]])
        assert is_refused(partial(store.ask, question)), f"{question} between apply and commit"
        store.abandon()
        assert store.ask(question) == before


@store_test()
def large_and_many_messages(store: Store) -> None:
    """Messages beyond the size of a segment, and runs beyond its count, keep their order and bytes."""
    queue_id = new_queue(store)
    sizes = [10, 3 * 1024 * 1024, 10, 700_000, 700_000, 0, 1024 * 1024, 1]
    posted = [Record(offset, bytes([offset]) * size) for offset, size in enumerate(sizes)]
    do(store, Post(queue_id, posted))
    do(store, Post(queue_id, messages(8, 2500)))
    found = read_all(store, queue_id, page=1000)
    assert [len(record.body) for record in found[:8]] == sizes
    assert [record.body for record in found[:8]] == [record.body for record in posted]
    assert [record.offset for record in found] == list(range(2508))
    assert node_of(store, queue_id).byte_count == sum(sizes) + 2500 * 10


@store_test()
def settings_are_replaced(store: Store) -> None:
    """`Configure` replaces all settings of one node, also twice in a group. An unknown node is refused."""
    one, two = new_queue(store, "one"), new_queue(store, "two")
    do(store, Configure(one, {"a": 1}), Configure(one, {"b": [2, None]}))
    created = CreateNode("three", "set", {"old": 1})
    errors = do_units(
        store, [[created, Configure(two, {"c": "ü"})], [Configure(two + 9, {})], [DeleteNode(two)]]
    )
    assert [type(error) for error in errors] == [type(None), NoSuchNode, type(None)]
    do(store, Configure(created.queue_id, {}))
    assert [(node.name, node.settings) for node in store.recover().nodes] == [
        ("one", {"b": [2, None]}), ("three", {}),
    ]  # fmt: skip
    store.apply([[Configure(one, {"never": 1})]])
    store.abandon()
    assert node_of(store, one).settings == {"b": [2, None]}
