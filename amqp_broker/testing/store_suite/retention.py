"""What every store does with retained messages and cursors."""

from __future__ import annotations

from typing import Final

from amqp_broker.persistence import (
    JOURNAL_ID,
    CreateNode,
    Cursor,
    DeleteNode,
    ForgetCursor,
    Move,
    MoveCursor,
    NodeExists,
    NoSuchNode,
    Post,
    Purge,
    Record,
    Retain,
    Retained,
    Retire,
    Return,
    Store,
    Unit,
)
from amqp_broker.persistence.questions import CursorNames, CursorsOf, OffsetAt, RetainedBy, RetainedPageOf
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
    read_all_retained,
    store_test,
)

DAY_MS: Final = 86_400_000
NOON_MS: Final = 1_800_000_000_000


def at(at_ms: int, first: int, count: int, size: int = 10) -> list[Record]:
    """Messages that are enqueued at this time."""
    found = messages(first, count, size)
    for record in found:
        record.enqueued_at_ms = at_ms
    return found


def retained_offsets(store: Store, queue_id: int, from_offset: int = 0) -> list[int]:
    """The offsets of retained messages, of which none is missing."""
    found, missing = read_all_retained(store, queue_id, from_offset)
    assert missing == [], missing
    return [offset for _, offset, *_ in found if isinstance(offset, int)]


@store_test()
def retained_messages_come_back(store: Store) -> None:
    """A consumed message is read again octet for octet, with its annotations. Its queue no longer has it."""
    queue_id = new_queue(store)
    do(store, Retain(queue_id, DAY_MS, 0))
    posted = [
        Record(0, b"plain", enqueued_at_ms=NOON_MS),
        Record(1, bytes(range(256)) * 30, 7, 9, NOON_MS + 5, NOON_MS + 1),
        Record(2, b"z", annotations=b"\x00\x53\x72\x45", delivery_count=3, enqueued_at_ms=NOON_MS),
        Record(3, b"", enqueued_at_ms=NOON_MS),
    ]
    do(store, Post(queue_id, posted))
    do(
        store,
        Post(queue_id, [Record(4, b"alone", enqueued_at_ms=NOON_MS)]),
        Return(queue_id, 0, 2, b"changed"),
    )
    for record in posted:
        record.enqueued_at_ms = NOON_MS + 1  # what is posted together is published together
    before = read_all_retained(store, queue_id)
    do(store, Retire(queue_id, 0, 1), Retire(queue_id, 4, 4), Return(queue_id, 4, 9))
    assert read_all_retained(store, queue_id) == before
    do(store, Retire(queue_id, 2, 3))
    found, missing = read_all_retained(store, queue_id)
    assert (found, missing) == before
    posted.append(Record(4, b"alone", enqueued_at_ms=NOON_MS + 1))  # and not before what came before
    posted[0].delivery_count, posted[0].acquired_before, posted[0].annotations = 2, True, b"changed"
    for record in posted:
        record.queue_id = queue_id
    assert found == list(map(fields, posted))
    assert offsets(store, queue_id) == []
    node = node_of(store, queue_id)
    assert (node.message_count, node.byte_count, node.first_offset, node.next_offset) == (0, 0, 5, 5), node
    size = sum(len(record.body) for record in posted)
    assert store.ask(RetainedBy(queue_id)) == Retained(DAY_MS, 0, 0, 5, size)


@store_test()
def retention_begins_at_the_next_message(store: Store) -> None:
    """Messages are retained from the next one on, also within a group. New bounds change nothing of that."""
    one, two = new_queue(store, "one"), new_queue(store, "two")
    do(store, Post(one, messages(0, 3)))
    do(store, Post(one, at(5, 3, 2)), Retain(one, DAY_MS, 0), Post(one, at(5, 5, 2)), Retire(one, 0, 6))
    do(store, Post(two, messages(0, 3)), Retire(two, 0, 1))
    assert retained_offsets(store, one) == [5, 6]
    do(store, Retain(one, 2 * DAY_MS, 99), Post(one, at(6, 7, 1)))
    assert store.ask(RetainedBy(one)) == Retained(2 * DAY_MS, 99, 5, 8, 30)
    assert retained_offsets(store, one, 6) == [6, 7]
    assert store.ask(RetainedBy(two)) is None and retained_offsets(store, two) == []
    assert offsets(store, two) == [2] and offsets(store, one) == [7]
    create = CreateNode("three", "queue")
    assert do_units(store, [[create], [Retain(99, 1, 1)]])[1].__class__ is NoSuchNode
    do(store, Retain(create.queue_id, 1, 0))
    assert store.ask(RetainedBy(create.queue_id)) == Retained(1, 0, 0, 0, 0)
    assert store.ask(RetainedBy(99)) is None


@store_test()
def posted_and_retired_in_one_group_is_retained(store: Store) -> None:
    """A message that one group posts and retires is there for readers, and the numbering stays dense."""
    queue_id = new_queue(store)
    do(store, Retain(queue_id, 0, 1 << 40))
    do(store, Post(queue_id, messages(0, 2000)), Retire(queue_id, 0, 1999))
    do(store, Post(queue_id, messages(2000, 1)), Retire(queue_id, 2000, 2000))
    do(store, Post(queue_id, messages(2001, 1)))
    assert retained_offsets(store, queue_id) == [*range(2002)]
    assert offsets(store, queue_id) == [2001]
    store.apply([[Retire(queue_id, 2001, 2001), Retain(queue_id, 0, 0)]])
    store.abandon()
    assert offsets(store, queue_id) == [2001]
    assert store.ask(RetainedBy(queue_id)) == Retained(0, 1 << 40, 0, 2002, 20020)


@store_test()
def node_is_made_with_its_retention(store: Store) -> None:
    """A node may retain from the commit that makes it, also what is moved there."""
    create, source = CreateNode("log", "queue", keep_ms=DAY_MS, keep_bytes=1 << 40), new_queue(store, "set")
    do(store, Post(source, messages(0, 5)), Retire(source, 2, 2))
    assert do_units(store, [[create], [CreateNode("log", "queue", keep_ms=1)]])[1].__class__ is NodeExists
    queue_id = create.queue_id
    assert store.ask(RetainedBy(queue_id)) == Retained(DAY_MS, 1 << 40, 0, 0, 0)
    do(store, Post(queue_id, messages(0, 3)), Retire(queue_id, 0, 2))
    do(store, Move(source, queue_id, 3, NOON_MS), Retire(queue_id, 3, 6), Post(queue_id, messages(7, 1)))
    do(store, Retire(queue_id, 7, 7))
    assert retained_offsets(store, queue_id) == [*range(8)] and offsets(store, queue_id) == []
    bodies = [record.body[:2] for record in store.ask(RetainedPageOf(queue_id, 0, 99, 9999)).records]
    assert bodies == [b"0:", b"1:", b"2:", b"0:", b"1:", b"3:", b"4:", b"7:"]
    assert store.ask(RetainedBy(queue_id)) == Retained(DAY_MS, 1 << 40, 0, 8, 80)
    made = CreateNode("both", "queue", keep_bytes=1 << 40)
    store.apply([[made]])
    store.abandon()
    store.apply([[made]])
    store.commit()
    do(store, Post(made.queue_id, messages(0, 2)), Retire(made.queue_id, 0, 1))
    assert retained_offsets(store, made.queue_id) == [0, 1]


@store_test()
def retained_pages_keep_their_bounds(store: Store) -> None:
    """Retained messages are read from anywhere, in pages of any size. Each hole in the numbering is named."""
    queue_id = new_queue(store)
    do(store, Retain(queue_id, DAY_MS, 0))
    do(store, Post(queue_id, messages(0, 300, size=100)))
    do(store, *[Post(queue_id, messages(offset, 1, size=5000)) for offset in range(300, 320)])
    do(store, Post(queue_id, messages(330, 5, size=100)), Retire(queue_id, 10, 318))
    whole, missing = read_all_retained(store, queue_id)
    assert [offset for _, offset, *_ in whole] == [*range(320), *range(330, 335)]
    assert missing == [*range(320, 330)]
    for page, max_bytes in ((1, 1 << 30), (7, 1 << 30), (1000, 1), (1000, 450), (1000, 12_000)):
        assert read_all_retained(store, queue_id, 0, page, max_bytes) == (whole, missing), (page, max_bytes)
    for begin in (1, 150, 299, 300, 310, 319):
        assert read_all_retained(store, queue_id, begin) == (whole[begin:], missing)
    end = store.ask(RetainedPageOf(queue_id, 335, 10, 1000))
    assert (end.records, end.next_offset, end.quarantined) == ([], 335, [])
    assert store.ask(RetainedPageOf(queue_id, 5000, 10, 1000)).next_offset == 5000
    do(store, Post(queue_id, messages(5000, 1)))
    _, missing = read_all_retained(store, queue_id, 334)
    assert missing == [*range(335, 5000)], "however many there are"


@store_test()
def dropping_by_age(store: Store) -> None:
    """The oldest messages go when their time is over by the clock of `idle`. Live ones stay in the queue."""
    queue_id = new_queue(store)
    do(store, Retain(queue_id, DAY_MS, 0))
    for number in range(4):
        do(store, Post(queue_id, at(NOON_MS + number * 1000, 10 * number, 10)))
    do(store, Retire(queue_id, 0, 9), Retire(queue_id, 12, 39))
    day_after = (NOON_MS + DAY_MS) / 1000
    do_idle_work(store, day_after - 0.5)
    assert retained_offsets(store, queue_id) == [*range(40)]
    do_idle_work(store, day_after + 0.5)
    assert retained_offsets(store, queue_id) == [*range(10, 40)]
    do_idle_work(store, day_after + 1.5)
    assert store.ask(RetainedBy(queue_id)) == Retained(DAY_MS, 0, 20, 40, 200)
    assert offsets(store, queue_id) == [10, 11], "what is live is still to be consumed"
    assert retained_offsets(store, queue_id, 3) == [*range(20, 40)], "and nobody re-reads it"
    do(store, Retire(queue_id, 10, 11), Post(queue_id, at(NOON_MS + 3 * DAY_MS, 40, 1)))
    do_idle_work(store, day_after + 1.5)
    assert retained_offsets(store, queue_id) == [*range(20, 41)], "a message tells nothing about others"
    do(store, Retire(queue_id, 40, 40))
    do_idle_work(store, day_after + 4.5)
    assert retained_offsets(store, queue_id) == [40]
    do_idle_work(store, day_after * 2)
    assert store.ask(RetainedBy(queue_id)) == Retained(DAY_MS, 0, 41, 41, 0)
    assert node_of(store, queue_id).next_offset == 41, "the numbering goes on"
    do(store, Post(queue_id, at(NOON_MS, 41, 1)))
    assert retained_offsets(store, queue_id) == [41]


@store_test()
def dropping_by_size(store: Store) -> None:
    """The oldest commits go while more than the bound is retained. Without a bound none goes."""
    queue_id, other = new_queue(store), new_queue(store, "other")
    do(store, Retain(queue_id, 0, 1000), Retain(other, 1 << 40, 0))
    for number in range(300):
        do(store, Post(queue_id, messages(number * 3, 3, size=20)), Post(other, messages(number, 1)))
        do(store, Retire(queue_id, number * 3, number * 3 + 2), Retire(other, number, number))
    do_idle_work(store, 0.0)
    assert store.ask(RetainedBy(queue_id)) == Retained(0, 1000, 900 - 48, 900, 960)
    assert retained_offsets(store, queue_id) == [*range(900 - 48, 900)]
    do(store, Retain(queue_id, 0, 100))
    do_idle_work(store, 0.0)
    assert retained_offsets(store, queue_id) == [897, 898, 899]
    assert retained_offsets(store, other) == [*range(300)]


@store_test()
def ending_retention(store: Store) -> None:
    """Archived messages go when retention ends, live ones stay. It may begin again at the next message."""
    queue_id = new_queue(store)
    do(store, Retain(queue_id, 0, 0), Retain(queue_id, DAY_MS, 0))
    for first in range(0, 600, 2):
        do(store, Post(queue_id, messages(first, 2)))
    do(store, Retire(queue_id, 0, 400), Return(queue_id, 500, 1, b"x"))
    do(store, Retain(queue_id, 0, 0))
    assert store.ask(RetainedBy(queue_id)) is None
    assert retained_offsets(store, queue_id) == []
    assert offsets(store, queue_id) == [*range(401, 600)]
    do(store, Post(queue_id, messages(600, 4)), Retire(queue_id, 600, 601), Retain(queue_id, 0, 50))
    do(store, Post(queue_id, messages(604, 2)), Retire(queue_id, 603, 604))
    do_idle_work(store, 0.0)
    assert retained_offsets(store, queue_id) == [604, 605]
    assert offsets(store, queue_id) == [*range(401, 600), 602, 605]
    do(store, Retain(queue_id, 0, 0), Retire(queue_id, 0, 605))
    do_idle_work(store, 0.0)
    assert (offsets(store, queue_id), node_of(store, queue_id).next_offset) == ([], 606)


@store_test()
def purged_and_deleted_are_not_retained(store: Store) -> None:
    """A purge and a deletion drop archived messages too. A purged node goes on to retain."""
    one, two = new_queue(store, "one"), new_queue(store, "two")
    for queue_id in (one, two):
        do(store, Retain(queue_id, DAY_MS, 0), Post(queue_id, messages(0, 10)), Retire(queue_id, 0, 4))
    do(store, Purge(one), MoveCursor("c", one, 3, 1), MoveCursor("c", two, 3, 1))
    assert store.ask(RetainedBy(one)) == Retained(DAY_MS, 0, 10, 10, 0)
    assert retained_offsets(store, one) == []
    do(store, Post(one, messages(10, 2)), Retire(one, 10, 11), DeleteNode(two), Retire(two, 5, 9))
    assert retained_offsets(store, one) == [10, 11]
    assert store.ask(RetainedBy(two)) is None
    assert [cursor.queue_id for cursor in store.ask(CursorsOf("c"))] == [one]
    assert is_refused(lambda: store.ask(RetainedPageOf(two, 0, 1, 1)), NoSuchNode)
    assert is_refused(lambda: store.ask(OffsetAt(two, 0)), NoSuchNode)
    do_idle_work(store, 0.0)
    assert retained_offsets(store, one) == [10, 11]


@store_test()
def offset_at_a_time(store: Store) -> None:
    """The first message that was published at or after a time. Times never fall, whatever the clock did."""
    queue_id = new_queue(store)
    do(store, Post(queue_id, at(NOON_MS, 0, 5)), Retain(queue_id, DAY_MS, 0))
    assert store.ask(OffsetAt(queue_id, 0)) == 5
    for number, at_ms in enumerate([10, 10, 20, 15, 30, 40, 35, 50]):
        do(store, Post(queue_id, at(NOON_MS + at_ms, 5 + 3 * number, 3)))
    do(store, Retire(queue_id, 0, 15))
    expected = {0: 5, 10: 5, 11: 11, 20: 11, 21: 17, 30: 17, 31: 20, 36: 20, 40: 20, 41: 26, 50: 26, 51: 29}
    found = {at_ms: store.ask(OffsetAt(queue_id, NOON_MS + at_ms)) for at_ms in expected}
    assert found == expected, found
    plain = new_queue(store, "plain")
    do(store, Post(plain, at(NOON_MS, 0, 5)))
    assert store.ask(OffsetAt(plain, 0)) == 5, "it does not retain"


@store_test()
def moved_messages_are_retained(store: Store) -> None:
    """A message that moves into a retaining node is published there at the time of the move, and kept when it
    is consumed. Where it came from nothing is left.
    """
    queue_id, source, other = new_queue(store), new_queue(store, "set"), new_queue(store, "set 2")
    do(store, Retain(queue_id, DAY_MS, 0), Post(queue_id, at(NOON_MS, 0, 2)))
    for first in (0, 1, 2, 10):
        do(store, Post(source, at(NOON_MS - 99, first, 1)))
    do(store, Post(other, at(NOON_MS - 99, 0, 10)))
    do(store, Retire(source, 1, 1), Retire(other, 3, 4), Return(other, 6, 2, b"notes"))
    moves: list[Unit] = [[Move(source, queue_id, 2, NOON_MS + 5), Move(other, queue_id, 5, NOON_MS + 5)]]
    assert do_units(store, [*moves, [Retire(queue_id, 0, 3), Retire(queue_id, 6, 6)]]) == [None, None]
    assert retained_offsets(store, queue_id) == [*range(13)]
    assert offsets(store, queue_id) == [4, 5, *range(7, 13)]
    assert store.ask(OffsetAt(queue_id, NOON_MS + 1)) == 2
    assert store.ask(RetainedBy(queue_id)) == Retained(DAY_MS, 0, 0, 13, 130)
    do(store, Retire(queue_id, 0, 20))
    bodies = [record.body[:2] for record in store.ask(RetainedPageOf(queue_id, 0, 99, 9999)).records]
    assert bodies == [b"0:", b"1:", b"0:", b"2:", b"10", *[b"%d:" % n for n in (0, 1, 2, 5, 6, 7, 8, 9)]]
    assert store.ask(RetainedPageOf(queue_id, 9, 1, 99)).records[0].annotations == b"notes"
    page = store.ask(RetainedPageOf(queue_id, 0, 99, 9999))
    times = [record.enqueued_at_ms - NOON_MS for record in page.records]
    assert times == [0, 0, *[5] * 11], "that of the move, not that of the staging"
    do_idle_work(store, 0.0)
    assert retained_offsets(store, queue_id) == [*range(13)]
    do_idle_work(store, (NOON_MS + DAY_MS) / 1000 + 1)
    assert retained_offsets(store, queue_id) == []


@store_test()
def cursors_stand_where_they_were_moved(store: Store) -> None:
    """A cursor stands where it was moved last, in each node and in the journal, until it is forgotten."""
    one, two = new_queue(store, "one"), new_queue(store, "two")
    assert (store.ask(CursorsOf("a")), store.ask(CursorNames("", 9))) == ([], [])
    do(store, MoveCursor("a", two, 1, 10), MoveCursor("a", one, 2, 11), MoveCursor("ü", JOURNAL_ID, 3, 12))
    do(store, MoveCursor("a", two, 7, 13, "änn"), MoveCursor("b\x00", one, 1 << 40, 14))
    assert store.ask(CursorsOf("a")) == [Cursor("a", one, 2, 11), Cursor("a", two, 7, 13, "änn")]
    assert store.ask(CursorsOf("ü")) == [Cursor("ü", JOURNAL_ID, 3, 12)]
    assert store.ask(CursorNames("", 9)) == ["a", "b\x00", "ü"]
    assert (store.ask(CursorNames("", 1)), store.ask(CursorNames("a", 1))) == (["a"], ["b\x00"])
    assert store.ask(CursorNames("ü", 9)) == []
    assert (
        do_units(store, [[MoveCursor("x", 99, 1, 1), MoveCursor("y", one, 1, 1)]])[0].__class__ is NoSuchNode
    )
    do(store, MoveCursor("c", one, 1, 1), ForgetCursor("c"), ForgetCursor("nobody"))
    do(store, ForgetCursor("a"), MoveCursor("a", one, 5, 20))
    assert store.ask(CursorsOf("a")) == [Cursor("a", one, 5, 20)]
    assert (store.ask(CursorsOf("c")), store.ask(CursorsOf("y"))) == ([], [])
    store.apply([[MoveCursor("a", one, 99, 99), ForgetCursor("ü")]])
    store.abandon()
    do(store, MoveCursor("d", two, 1, 1), DeleteNode(two))
    assert (store.ask(CursorsOf("a")), store.ask(CursorsOf("d"))) == ([Cursor("a", one, 5, 20)], [])
    assert store.ask(CursorNames("", 9)) == ["a", "b\x00", "ü"]
