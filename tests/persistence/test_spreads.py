"""What a commit brings to many queues shares a row, until it is retired or gathered by queue."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from amqp_broker.persistence import (
    DeleteNode,
    MemoryStore,
    Move,
    Post,
    Purge,
    Record,
    Retain,
    Retire,
    Return,
    Store,
    Unit,
)
from amqp_broker.persistence.errors import StoreFull
from amqp_broker.persistence.fault_points import arm
from amqp_broker.persistence.questions import PageOf
from amqp_broker.persistence.repairing import repair
from amqp_broker.persistence.spreads import SpreadSizes
from amqp_broker.persistence.sqlite import SqliteStore, verify_directory
from amqp_broker.testing.store_suite.helpers import (
    do,
    do_idle_work,
    do_units,
    fields,
    messages,
    new_queue,
    node_of,
    offsets,
    read_all,
)
from tests.persistence.stores import MIB, SPREAD_ALL, assert_whole, edit, small_store
from tests.support.examples import seeds

MANY = 10
SMALL = SpreadSizes(most=60, gathered=30)


def rows(store: SqliteStore) -> tuple[int, int, int]:
    """How many there are of spread, run and segment."""
    execute = store._connection.execute
    ((spread, run, segment),) = execute(
        "SELECT (SELECT count(*) FROM spread), (SELECT count(*) FROM run), (SELECT count(*) FROM segment)"
    ).fetchall()
    return spread, run, segment


def of_many(directory: Path, posts: int = 1, **changes: SpreadSizes) -> tuple[SqliteStore, list[int]]:
    """A store with many queues, to each of which so many commits brought a message."""
    store = small_store(directory, **changes)
    queues = [new_queue(store, f"q{number}") for number in range(MANY)]
    for offset in range(posts):
        do_units(store, [[Post(each, messages(offset, 1))] for each in queues])
    return store, queues


def killed(store: SqliteStore, directory: Path) -> Path:
    """What the disk has of a store in use, which is left to itself."""
    copy = directory.with_name("killed")
    shutil.copytree(store.directory, copy)
    return copy


def test_a_commit_for_many_queues_is_one_row(tmp_path: Path) -> None:
    """And one segment; both go with the last of the messages, in whatever order."""
    store, queues = of_many(tmp_path, 3)
    assert rows(store) == (3, 0, 3)
    assert [offsets(store, each) for each in queues] == [[0, 1, 2]] * MANY
    for each in queues[::2]:
        do(store, Retire(each, 0, 2))
    assert rows(store) == (3, 0, 3)
    assert [offsets(store, each) for each in queues] == [[], [0, 1, 2]] * (MANY // 2)
    do_units(store, [[Retire(each, 1, 1)] for each in queues])
    assert rows(store) == (2, 0, 2)
    do_units(store, [[Retire(each, 0, 2)] for each in queues])
    assert rows(store) == (0, 0, 0)
    assert {node_of(store, each).next_offset for each in queues} == {3}
    assert_whole(store)


def test_few_queues_and_long_runs_have_rows_of_their_own(tmp_path: Path) -> None:
    """There is nothing to gain."""
    store, queues = of_many(tmp_path, 0)
    do_units(store, [[Post(each, messages(0, 1))] for each in queues[:3]])
    assert rows(store) == (0, 3, 3)
    do_units(store, [[Post(each, messages(1, 5))] for each in queues])
    assert rows(store) == (0, 3 + MANY, 3 + MANY)
    do_units(store, [[Post(each, messages(6, 1, size=3_000))] for each in queues])
    assert rows(store) == (0, 3 + 2 * MANY, 3 + 2 * MANY)
    assert_whole(store)


def test_what_stays_is_gathered_by_queue(tmp_path: Path) -> None:
    """The oldest, when there is much: then each queue has one row for all that it has of them."""
    store, queues = of_many(tmp_path, 6, spread=SMALL)
    assert rows(store) == (6, 0, 6)
    assert not store.checkpoint_due
    do_units(store, [[Post(each, messages(6, 1))] for each in queues])
    assert rows(store) == (7, 0, 7)
    assert store.checkpoint_due
    store.idle(0.0)
    assert rows(store) == (4, MANY, MANY + 4)
    assert not store.checkpoint_due
    assert [offsets(store, each) for each in queues] == [[*range(7)]] * MANY
    do_units(store, [[Retire(each, 1, 5)] for each in queues])
    assert [offsets(store, each) for each in queues] == [[0, 6]] * MANY
    assert_whole(store)


def test_gathering_waits_for_room(tmp_path: Path) -> None:
    """Nothing is lost where the disk is full, nobody tries it again for each group, and what comes meanwhile
    has rows of its own beyond a bound.
    """
    store, queues = of_many(tmp_path, 7, spread=SMALL)

    def full() -> None:
        raise StoreFull("no room")

    arm("spread.before_gather", full)
    assert not store.idle(0.0)
    assert not store.checkpoint_due
    do_units(store, [[Retire(each, 0, 0)] for each in queues])
    assert [offsets(store, each) for each in queues] == [[*range(1, 7)]] * MANY
    store.apply([[Post(queues[0], messages(7, 1))]])  # is refused once, as on any full disk
    store.commit()
    for offset in range(7, 12):
        do_units(store, [[Post(each, messages(offset, 1))] for each in queues])
    assert rows(store)[:2] == (9, 2 * MANY)
    assert [offsets(store, each) for each in queues] == [[*range(1, 12)]] * MANY
    store.idle(0.0)
    assert rows(store)[0] < 9
    store.close()
    assert edit(tmp_path, "SELECT count(*) FROM spread") == [(0,)]
    assert_whole(store)


def test_a_closed_store_has_none(tmp_path: Path) -> None:
    """All of it is gathered, with what was returned and what the directory knows; holes stay holes."""
    store, queues = of_many(tmp_path, 0)
    for offset in (0, 1, 3):
        units: list[Unit] = [
            [Post(each, [Record(offset, b"body %d" % each, 0, each % 10, offset, 7 + offset)])]
            for each in queues
        ]
        do_units(store, units)
    do(store, Return(queues[1], 1, 3, b"notes"), Retire(queues[2], 0, 0), Retire(queues[3], 3, 3))
    found = [[*map(fields, read_all(store, each))] for each in queues]
    store.close()
    assert verify_directory(tmp_path) == []
    assert edit(tmp_path, "SELECT count(*) FROM spread") == [(0,)]
    store = small_store(tmp_path)
    assert [[*map(fields, read_all(store, each))] for each in queues] == found
    assert {node_of(store, each).next_offset for each in queues} == {4}
    assert_whole(store)


def test_what_was_spread_is_there_after_a_kill(tmp_path: Path) -> None:
    """Verification reads it where it is, the next start gathers it, and no offset comes twice."""
    store, queues = of_many(tmp_path / "store", 3)
    do_units(store, [[Retire(each, 2, 2)] for each in queues[:4]])
    do_units(store, [[Retire(each, 0, 1)] for each in queues[3:5]])
    do(store, Return(queues[6], 1, 3, b"notes"))
    expected = [[*map(fields, read_all(store, each))] for each in queues]
    copy = killed(store, tmp_path / "store")
    assert verify_directory(copy) == []
    assert edit(copy, "SELECT count(*) FROM spread") == [(3,)]
    after = small_store(copy)
    assert rows(after)[0] == 0
    assert [[*map(fields, read_all(after, each))] for each in queues] == expected
    assert {node_of(after, each).next_offset for each in queues} == {3}
    assert_whole(after)


@pytest.mark.parametrize("verb", [DeleteNode, Purge, lambda each: Retain(each, 1_000, 0), "move"])
def test_what_looks_at_a_whole_queue_finds_it(verb: object, tmp_path: Path) -> None:
    """It is gathered before; other queues keep what they have."""
    store, queues = of_many(tmp_path, 2)
    end = new_queue(store, "end")
    one = queues[4]
    if callable(verb):
        do(store, verb(one))
    else:
        do(store, Move(one, end, 0, 5))
        assert offsets(store, end) == [0, 1]
    assert rows(store)[0] == 0
    assert [offsets(store, each) for each in queues if each != one] == [[0, 1]] * (MANY - 1)
    do_idle_work(store, 0.0)
    assert_whole(store)


def delivered(store: SqliteStore, queues: list[int]) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Which messages are delivered, and which are put away, by queue and offset."""
    good: set[tuple[int, int]] = set()
    bad: set[tuple[int, int]] = set()
    for each in queues:
        page = store.ask(PageOf(each, 0, 1_000, MIB))
        for record in page.records:
            assert record.body.startswith(b"%d:" % record.offset)
        good |= {(each, record.offset) for record in page.records}
        bad |= {(each, found.offset) for found in page.quarantined}
    return good, bad


BODY_DAMAGED = "CAST(substr(bodies, 1, 23) || x'ff' || substr(bodies, 25) AS BLOB)"
DAMAGES = {
    "UPDATE spread SET gone=x'ffff' WHERE segment_id=2": range(MANY),
    "UPDATE spread SET checksum=checksum+1 WHERE segment_id=2": range(MANY),
    "UPDATE spread SET places=x'00' WHERE segment_id=2": None,
    "DELETE FROM segment WHERE id=2": range(MANY),
    "UPDATE segment SET directory=x'00' WHERE id=2": range(MANY),
    f"UPDATE segment SET bodies={BODY_DAMAGED} WHERE id=2": [2],
}


@pytest.mark.parametrize("sql", DAMAGES, ids=range(len(DAMAGES)))
def test_damage_is_found_and_never_delivered(sql: str, tmp_path: Path) -> None:
    """What is damaged goes into quarantine, once, and everything else is delivered."""
    store, queues = of_many(tmp_path / "store", 3)
    copy = killed(store, tmp_path / "store")
    edit(copy, sql)
    assert verify_directory(copy) != []
    all_of_it = {(each, offset) for each in queues for offset in range(3)}
    lost = range(MANY) if DAMAGES[sql] is None else DAMAGES[sql]
    bad = {(queues[at], 1) for at in lost or ()}
    after = small_store(copy)
    assert delivered(after, queues) == (all_of_it - bad, set() if DAMAGES[sql] is None else bad)
    assert delivered(after, queues) == (all_of_it - bad, set())
    assert {node_of(after, each).next_offset for each in queues} == {3}
    assert_whole(after)


@pytest.mark.parametrize("sql", DAMAGES, ids=range(len(DAMAGES)))
def test_damage_is_repaired(sql: str, tmp_path: Path) -> None:
    """And everything else is there."""
    store, queues = of_many(tmp_path / "store", 3)
    copy = killed(store, tmp_path / "store")
    edit(copy, sql)
    repaired = repair(copy)
    assert (bool(repaired.done), repaired.left) == (True, [])
    lost = range(MANY) if DAMAGES[sql] is None else DAMAGES[sql]
    after = small_store(copy)
    bad = {(queues[at], 1) for at in lost or ()}
    assert delivered(after, queues) == ({(each, at) for each in queues for at in range(3)} - bad, set())
    assert_whole(after)


def test_a_damaged_body_in_use_goes_alone(tmp_path: Path) -> None:
    """Its neighbours of other queues in the segment do not notice."""
    store, queues = of_many(tmp_path, 2)
    store._connection.execute(f"UPDATE segment SET bodies={BODY_DAMAGED} WHERE id=1").fetchall()
    good, bad = delivered(store, queues)
    assert bad == {(queues[2], 0)} and len(good) == 2 * MANY - 1
    assert rows(store) == (2, 0, 2)
    assert_whole(store)


@pytest.mark.parametrize("seed", seeds(20))
def test_spread_messages_are_as_good_as_others(tmp_path: Path, seed: int) -> None:
    """Random groups of posts, retires, returns, purges and deletes, and starts after kills between them."""
    chance = random.Random(seed)
    sizes = chance.choice((SPREAD_ALL, SpreadSizes(runs=2, most=20, gathered=7, messages=5)))
    store, model = small_store(tmp_path / "0", spread=sizes), MemoryStore()
    queues = [new_queue(store, f"s{number}") for number in range(6)]
    assert queues == [new_queue(model, f"s{number}") for number in range(6)]
    ends = dict.fromkeys(queues, 0)
    for step in range(chance.randint(10, 40)):
        units = [_unit(chance, queues, ends) for _ in range(chance.randint(1, 9))]
        if chance.random() < 0.1:
            store.apply(units)
            store.abandon()
        assert do_units(store, units) == do_units(model, units)
        if store.checkpoint_due or chance.random() < 0.1:
            do_idle_work(store, 0.0)
        if chance.random() < 0.1:
            copy = tmp_path / str(step + 1)
            shutil.copytree(store.directory, copy)
            assert verify_directory(copy) == []
            store.close()
            assert verify_directory(store.directory) == []
            store = small_store(copy, spread=sizes)
        _assert_alike(store, model, queues)
    store.close()
    assert verify_directory(store.directory) == []


def _assert_alike(store: Store, model: Store, queues: list[int]) -> None:
    for each in queues:
        assert [*map(fields, read_all(store, each, 3))] == [*map(fields, read_all(model, each))]
    assert _counts(store, queues) == _counts(model, queues)


def _counts(store: Store, queues: list[int]) -> list[tuple[int, int, int]]:
    nodes = {node.queue_id: node for node in store.recover().nodes}
    told = [nodes[each] for each in queues]
    return [(node.next_offset, node.message_count, node.byte_count) for node in told]


def _unit(chance: random.Random, queues: list[int], ends: dict[int, int]) -> Unit:
    queue, kind = chance.choice(queues), chance.random()
    if kind < 0.6:
        count = chance.choice((1, 1, 1, 2, 5))
        ends[queue] += chance.choice((0, 0, 0, 0, 2))
        first, ends[queue] = ends[queue], ends[queue] + count
        size = chance.choice((0, 9, 9, 9, 5_000))
        priority, expires, at_ms = (chance.choice(each) for each in ((4, 4, 5), (0, 3), (7, 8)))
        bodies = [chance.randbytes(size) for _ in range(count)]
        records = [Record(first + at, body, 0, priority, expires, at_ms) for at, body in enumerate(bodies)]
        return [Post(queue, records)]
    first = chance.randrange(ends[queue] + 1)
    if kind < 0.85:
        return [Retire(queue, first, first + chance.choice((0, 0, 1, 3, 50)))]
    if kind < 0.95:
        return [Return(queue, first, chance.randint(1, 3), chance.choice((None, b"notes")))]
    return [Purge(queue)]
