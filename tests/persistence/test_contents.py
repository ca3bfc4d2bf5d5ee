"""Messages of several queues whose bodies are stored once: against a store that has each for itself."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from amqp_broker.persistence import (
    Contents,
    DeleteNode,
    MemoryStore,
    Post,
    Purge,
    Record,
    Retire,
    Return,
    Store,
    Unit,
    group_writer,
)
from amqp_broker.persistence.errors import StoreCorrupt
from amqp_broker.persistence.sqlite import verify_directory
from amqp_broker.persistence.unit_of_work import UnitOfWork
from amqp_broker.testing.store_suite.helpers import do, do_idle_work, do_units, new_queue, node_of, read_all
from tests.persistence.stores import small_store
from tests.support.examples import seeds


def copies(offset: int, contents: Contents, positions: list[int]) -> list[Record]:
    """Those of the contents at `positions`, numbered from `offset` on."""
    found = []
    for number, at in enumerate(positions, offset):
        one = contents.records[at]
        found.append(Record(number, one.body, one.message_format, one.priority, one.expires_at_ms, 7))
    return found


def contents_of(chance: random.Random, count: int) -> Contents:
    """Messages that differ in all that a directory keeps; a few are large, and a few are the same object."""
    body = chance.randbytes(3)
    sizes = [chance.choice((0, 5, 70, 3_000, 400_000)) for _ in range(count)]
    bodies = [body if chance.random() < 0.2 else chance.randbytes(size) for size in sizes]
    return Contents([Record(0, each, 0, chance.choice((4, 9)), chance.choice((0, 5)), 7) for each in bodies])


def segments(store: Store) -> list[tuple[int, int]]:
    """How many rows point to each segment, and its octets."""
    sql = "SELECT runs, length(bodies) FROM segment ORDER BY id"
    rows: list[tuple[int, int]] = store._connection.execute(sql).fetchall()  # type: ignore[attr-defined]
    return rows


def test_a_body_is_stored_once(tmp_path: Path) -> None:
    """A thousand queues, one segment; it goes with the last that has it, in whatever way."""
    store = small_store(tmp_path)
    queues = [new_queue(store, f"s{number}") for number in range(1_000)]
    contents = Contents([Record(0, bytes(10_000), 0, 4, 0, 7) for _ in range(3)])
    everything = [0, 1, 2]
    do(store, *[Post(each, copies(0, contents, everything), contents) for each in queues])
    assert segments(store) == [(1_000, 30_000)]
    for each in queues[:500]:
        do(store, Retire(each, 0, 2))
    do_units(store, [[Retire(each, 0, 2)] for each in queues[500:800]])
    assert segments(store) == [(200, 30_000)]
    do(store, *[Purge(each) for each in queues[800:900]])
    do(store, *[DeleteNode(each) for each in queues[900:998]])
    do_idle_work(store, 0.0)
    assert segments(store) == [(2, 30_000)]
    assert [len(record.body) for record in read_all(store, queues[999])] == [10_000] * 3
    do(store, Retire(queues[998], 0, 2), Retire(queues[999], 0, 2))
    assert segments(store) == []
    store.close()
    assert verify_directory(tmp_path) == []


def test_a_queue_with_some_of_them(tmp_path: Path) -> None:
    """What stands side by side is one row; the same object twice is two messages."""
    store = small_store(tmp_path)
    one, two = new_queue(store, "one"), new_queue(store, "two")
    same = b"the same object"
    contents = Contents([Record(0, same, 0, at % 10, 0, 7) for at in range(6)])
    some = [1, 2, 4]
    do(store, Post(one, copies(0, contents, list(range(6))), contents),
       Post(two, copies(0, contents, some), contents, some))  # fmt: skip
    assert segments(store) == [(3, 6 * len(same))]
    assert [record.priority for record in read_all(store, two)] == some
    assert node_of(store, two).byte_count == 3 * len(same)
    store.close()
    assert verify_directory(tmp_path) == []


@pytest.mark.parametrize("seed", seeds(10))
def test_shared_contents_are_as_good_as_own_ones(tmp_path: Path, seed: int) -> None:
    """Random groups of posts, retires, returns, purges and deletes, and starts between them."""
    chance = random.Random(seed)
    store, model = small_store(tmp_path), MemoryStore()
    queues = [new_queue(store, f"s{number}") for number in range(5)]
    assert queues == [new_queue(model, f"s{number}") for number in range(5)]
    offsets = dict.fromkeys(queues, 0)
    for _ in range(chance.randint(5, 25)):
        units: list[Unit] = []
        for _ in range(chance.randint(1, 6)):
            units.append(_unit(chance, queues, offsets))
        assert do_units(store, units) == do_units(model, units)
        if chance.random() < 0.2:
            do_idle_work(store, 0.0)
        if chance.random() < 0.2:
            store.close()
            assert verify_directory(tmp_path) == []
            store = small_store(tmp_path)
        for each in queues:
            assert list(map(_fields, read_all(store, each))) == list(map(_fields, read_all(model, each)))
            mine, other = node_of(store, each), node_of(model, each)
            assert (mine.next_offset, mine.message_count, mine.byte_count) == (
                other.next_offset, other.message_count, other.byte_count,
            )  # fmt: skip
    do(store, *[DeleteNode(each) for each in queues])
    do_idle_work(store, 0.0)
    assert segments(store) == []
    store.close()
    assert verify_directory(tmp_path) == []


def _unit(chance: random.Random, queues: list[int], offsets: dict[int, int]) -> Unit:
    kind = chance.random()
    queue = chance.choice(queues)
    if kind < 0.5:
        contents = contents_of(chance, chance.randint(1, 7))
        unit: Unit = []
        for each in chance.sample(queues, chance.randint(1, len(queues))):
            count = len(contents.records)
            positions = sorted(chance.sample(range(count), chance.randint(1, count)))
            offsets[each] += chance.choice((0, 0, 0, 2))
            records = copies(offsets[each], contents, positions)
            offsets[each] += len(records)
            unit.append(Post(each, records, contents, None if len(positions) == count else positions))
        return unit
    if kind < 0.6:
        record = Record(offsets[queue], chance.randbytes(9), enqueued_at_ms=7)
        offsets[queue] += 1
        return [Post(queue, [record])]
    first = chance.randint(0, max(0, offsets[queue] - 1))
    if kind < 0.9:
        return [Retire(queue, first, first + chance.choice((0, 1, 30)))]
    return [Return(queue, first, 3, b"changed")] if kind < 0.97 else [Purge(queue)]


def _fields(record: Record) -> tuple[object, ...]:
    return (
        record.offset, record.body, record.priority, record.expires_at_ms, record.delivery_count,
        record.annotations,
    )  # fmt: skip


@pytest.mark.interpreted
def test_what_a_failed_write_left_of_shared_bodies_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A segment that cannot be deleted has the group written again: its shared bodies, too, and their segment
    is no other one's.
    """
    store = small_store(tmp_path)
    one, two, other = (new_queue(store, name) for name in ("one", "two", "other"))
    do(store, Post(other, copies(0, Contents([Record(0, b"old", 0, 4, 0, 7)]), [0])))

    def refuses(unit: UnitOfWork, *_: object) -> None:
        unit.rollback()
        raise StoreCorrupt("planted: its page is damaged")

    monkeypatch.setattr(group_writer, "delete_segments", refuses)
    contents = Contents([Record(0, b"shared", 0, 4, 0, 7)])
    do(store, Retire(other, 0, 0), *[Post(each, copies(0, contents, [0]), contents) for each in (one, two)])
    monkeypatch.undo()
    do(store, Post(other, [Record(1, b"of another queue", 0, 4, 0, 7)]))
    assert [[record.body for record in read_all(store, each)] for each in (one, two)] == [[b"shared"]] * 2
    store.close()
    assert [each for each in verify_directory(tmp_path) if "one" in each or "two" in each] == []
