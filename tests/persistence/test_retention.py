"""Retention on disk: damage is reported, never believed; steps are bounded; a restart forgets nothing."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from amqp_broker.persistence import DeleteNode, MoveCursor, Post, Purge, Retain, Retained, Retire, Return
from amqp_broker.persistence.questions import CursorsOf, OffsetAt, PageOf, RetainedBy, RetainedPageOf
from amqp_broker.persistence.removal import remove
from amqp_broker.persistence.retention import SWEEP_RETAINED
from amqp_broker.persistence.sqlite import SqliteStore, verify_directory
from amqp_broker.testing.store_suite.helpers import (
    do,
    do_idle_work,
    messages,
    new_queue,
    node_of,
    offsets,
    read_all_retained,
)
from amqp_broker.testing.store_suite.retention import NOON_MS, at, retained_offsets
from tests.persistence.stores import assert_whole, edit, edit_nodes, reopened, small_store
from tests.support.memory import left_by_each_round

DAY_MS = 86_400_000


def filled(directory: Path, retire: bool = True) -> int:
    """A closed store that retains ten messages in one run and five runs of one message, the last one live."""
    store = small_store(directory)
    queue_id = new_queue(store)
    do(store, Retain(queue_id, DAY_MS, 0), Post(queue_id, at(NOON_MS, 0, 10, size=100)))
    for offset in range(10, 15):
        do(store, Post(queue_id, at(NOON_MS + offset, offset, 1, size=100)))
    do(store, Return(queue_id, 4, 1, b"annotations"), MoveCursor("c", queue_id, 5, 5))
    if retire:
        do(store, Retire(queue_id, 0, 13))
    store.close()
    return queue_id


DAMAGED = "CAST(substr(bodies, 1, 350) || x'ff' || substr(bodies, 352) AS BLOB)"
DAMAGE = {
    "a body of many": (f"UPDATE segment SET bodies={DAMAGED} WHERE id=1", [3]),
    "a body of one": ("UPDATE segment SET bodies=x'00' WHERE id=3", [11]),
    "a directory": ("UPDATE segment SET directory=x'0102' WHERE id=1", [*range(10)]),
    "a lost segment": ("DELETE FROM segment WHERE id=4", [12]),
    "a lost row": ("DELETE FROM run WHERE first_offset=11", [11]),
    "a damaged row": ("UPDATE run SET bytes=7 WHERE first_offset=0", [*range(10)]),
    "a damaged time": ("UPDATE run SET at_ms=7 WHERE first_offset=12", [12]),
    "a row of too many": ("UPDATE run SET count=2 WHERE first_offset=12", [12]),
    "the last row": ("UPDATE run SET live_count=9 WHERE first_offset=14", [14]),
    "a changed header": ("UPDATE changed SET delivery_count=9", [4]),
}


@pytest.mark.parametrize("retire", [True, False], ids=["archived", "live"])
@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_told_as_holes(name: str, retire: bool, tmp_path: Path) -> None:
    """Damage is a hole, from wherever one reads. The neighbours come, and verification finds it, too."""
    queue_id = filled(tmp_path, retire)
    sql, bad = DAMAGE[name]
    edit(tmp_path, sql)
    if name == "the last row":  # it says where the numbering stands
        edit_nodes(tmp_path, "UPDATE node SET next_offset=15")
    assert verify_directory(tmp_path) != []
    store = small_store(tmp_path)
    for begin in (0, 2, 3, 4, 9, 11, 12, 13, 0):
        for page in (1, 4, 100):
            found, missing = read_all_retained(store, queue_id, begin, page)
            assert missing == [offset for offset in bad if offset >= begin]
            assert [offset for _, offset, *_ in found] == [*sorted({*range(begin, 15)} - {*bad})]
    assert edit_open(store, "SELECT count(*) FROM quarantine") == [(0,)], "the queue's own reads do that"
    quarantined = store.ask(RetainedPageOf(queue_id, 0, 99, 9999)).quarantined
    reasons = {one.reason for one in quarantined}
    assert len(reasons) == 1 and "" not in reasons


def edit_open(store: SqliteStore, sql: str) -> list[tuple[object, ...]]:
    """Ask an open store a question with a statement."""
    return store._unit.query(sql)


@pytest.mark.parametrize("name", [name for name in DAMAGE if name not in ("a lost row", "the last row")])
def test_what_the_queue_put_away_stays_a_hole(name: str, tmp_path: Path) -> None:
    """A message that the queue put into quarantine stays a hole for readers, and the file is sound."""
    queue_id = filled(tmp_path, retire=False)
    sql, bad = DAMAGE[name]
    edit(tmp_path, sql)
    store = small_store(tmp_path)
    assert store.ask(PageOf(queue_id, 0, 99, 1 << 20)).quarantined != []
    assert store.ask(PageOf(queue_id, 0, 99, 1 << 20)).quarantined == []
    for _ in range(2):
        quarantined = store.ask(RetainedPageOf(queue_id, 0, 99, 1 << 20)).quarantined
        assert [one.offset for one in quarantined] == bad
    do(store, Retire(queue_id, 0, 14))
    assert_whole(store)


@pytest.mark.parametrize(
    ("sql", "finding"),
    [
        ("UPDATE retained SET keep_ms=5", "what it retains: the row does not match its checksum"),
        ("UPDATE retained SET queue_id=9", "queue 9, what it retains: the row does not match"),
        ("DELETE FROM retained", "live_count is 0"),
        ("UPDATE cursor SET offset=6", "cursor b'c', queue 1: the row does not match its checksum"),
        ("UPDATE node SET name=NULL, purged_to=4611686018427387904", "there is no such node"),
    ],
)
def test_verification_finds_damage(sql: str, finding: str, tmp_path: Path) -> None:
    """Damage of policies and cursors is found. The store opens all the same."""
    filled(tmp_path)
    edit_nodes(tmp_path, sql)
    findings = verify_directory(tmp_path)
    assert any(finding in one for one in findings), findings
    store = small_store(tmp_path)
    store.recover()
    assert len(store.ask(CursorsOf("c"))) == (0 if sql.startswith("UPDATE cursor") else 1)
    do_idle_work(store, 0.0)


def test_damaged_policy_keeps_everything(tmp_path: Path) -> None:
    """A damaged policy drops nothing, until the next Retain makes it whole."""
    queue_id = filled(tmp_path)
    edit(tmp_path, "UPDATE retained SET keep_ms=1")
    store = small_store(tmp_path)
    assert retained_offsets(store, queue_id) == [*range(15)]
    do(store, Retire(queue_id, 14, 14))
    for now in (0.0, 1e6):
        assert store.idle(now) is False
    assert retained_offsets(store, queue_id) == [*range(15)]
    do(store, Retain(queue_id, DAY_MS, 0))
    store = reopened(store)
    assert store.ask(RetainedBy(queue_id)) == Retained(DAY_MS, 0, 0, 15, 1500)


@pytest.mark.parametrize("changed", [1 << 40, -(1 << 40)], ids=["more", "less"])
@pytest.mark.parametrize("reads", [False, True], ids=["kept", "put away"])
def test_a_damaged_size_drops_nothing_else(changed: int, reads: bool, tmp_path: Path) -> None:
    """Only sizes in sound rows count: a flipped bit drops no other runs, nor keeps them for ever."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    do(store, Retain(queue_id, 0, 3_000))
    for first in range(0, 40, 10):
        do(store, Post(queue_id, messages(first, 10, size=50)))
    store.close()
    edit(tmp_path, "UPDATE run SET bytes=bytes+? WHERE first_offset=20", changed)
    store = small_store(tmp_path)
    if reads:
        page = store.ask(PageOf(queue_id, 0, 99, 1 << 20))
        assert [lost.offset for lost in page.quarantined] == [*range(20, 30)]
    do_idle_work(store, 0.0)
    found, missing = read_all_retained(store, queue_id)
    assert [offset for _, offset, *_ in found] == [*range(20), *range(30, 40)]
    assert missing == [*range(20, 30)]
    assert store.ask(RetainedBy(queue_id)) == Retained(0, 3_000, 0, 40, 1_500)
    for first in range(40, 100, 10):
        do(store, Post(queue_id, messages(first, 10, size=50)))
    do_idle_work(store, 0.0)
    assert store.ask(RetainedBy(queue_id)) == Retained(0, 3_000, 40, 100, 3_000)


def test_a_damaged_time_is_no_time_of_others(tmp_path: Path) -> None:
    """A message posted after a restart keeps its time, although the damaged row before it has a later one."""
    queue_id = filled(tmp_path)
    edit(tmp_path, "UPDATE run SET at_ms=at_ms+? WHERE first_offset=14", 1 << 50)
    edit_nodes(tmp_path, "UPDATE node SET next_offset=15")
    store = small_store(tmp_path)
    do(store, Post(queue_id, at(NOON_MS + 20, 15, 1)))
    assert [record.enqueued_at_ms for record in store.ask(RetainedPageOf(queue_id, 15, 9, 999)).records] == [
        NOON_MS + 20
    ]
    do_idle_work(store, (NOON_MS + 20 + DAY_MS) / 1_000)
    assert store.ask(RetainedBy(queue_id)) == Retained(DAY_MS, 0, 16, 16, 0)


@pytest.mark.parametrize("damaged", [1, 2, 3])
def test_a_time_is_found_behind_damaged_neighbours(damaged: int, tmp_path: Path) -> None:
    """A search by time goes on with the first sound run, however many damaged ones stand before it."""
    queue_id = filled(tmp_path)
    edit(tmp_path, "UPDATE run SET at_ms=7 WHERE first_offset BETWEEN 10 AND ?", 9 + damaged)
    store = small_store(tmp_path)
    assert store.ask(OffsetAt(queue_id, NOON_MS + 11)) == max(10 + damaged, 11)
    assert store.ask(OffsetAt(queue_id, NOON_MS + 14)) == 14


def test_a_segment_that_went_is_no_damage_of_the_next_one(tmp_path: Path) -> None:
    """What was put away of a dropped segment says nothing of a new one with its number."""
    queue_id = filled(tmp_path)
    edit(tmp_path, "UPDATE segment SET directory=x'0102' WHERE id=1")
    remove(tmp_path, f"queue {queue_id}, run 0")
    store = small_store(tmp_path)
    page = store.ask(RetainedPageOf(queue_id, 0, 99, 9_999))
    assert [lost.offset for lost in page.quarantined] == [*range(10)]
    do(store, Retire(queue_id, 14, 14))
    do_idle_work(store, (NOON_MS + 2 * DAY_MS) / 1_000)
    assert store.ask(RetainedBy(queue_id)) == Retained(DAY_MS, 0, 15, 15, 0)
    store.close()
    store = small_store(tmp_path)
    do(store, Post(queue_id, at(NOON_MS + 3 * DAY_MS, 15, 3)), Retire(queue_id, 15, 17))
    assert edit_open(store, "SELECT id FROM segment") == [(1,)]
    assert retained_offsets(store, queue_id) == [15, 16, 17]


def test_dropping_takes_bounded_steps(tmp_path: Path) -> None:
    """One step drops a bounded number of runs with their segments, and leaves a sound file."""
    store = small_store(tmp_path, synchronous="OFF")
    queue_id = new_queue(store)
    do(store, Retain(queue_id, DAY_MS, 0))
    for offset in range(3 * SWEEP_RETAINED):
        do(store, Post(queue_id, at(NOON_MS, offset, 1)), Retire(queue_id, offset, offset))
    store.idle(0.0)
    steps = 0
    while store.idle((NOON_MS + DAY_MS) / 1000 + 1):
        steps += 1
        retained = store.ask(RetainedBy(queue_id))
        assert retained is not None and retained.first_offset == steps * SWEEP_RETAINED
        runs, segments = (edit_open(store, f"SELECT count(*) FROM {name}") for name in ("run", "segment"))
        assert runs == segments
    assert steps == 3
    assert edit_open(store, "SELECT count(*) FROM segment") == [(0,)]
    store = reopened(store)
    assert node_of(store, queue_id).next_offset == 3 * SWEEP_RETAINED


def test_a_restart_forgets_no_watermark(tmp_path: Path) -> None:
    """Dropped messages stay dropped also where a live one is left among them, and the bounds go on."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    do(store, Retain(queue_id, 0, 300))
    for first in range(0, 100, 10):
        do(store, Post(queue_id, messages(first, 10)))
    do(store, Retire(queue_id, 0, 94), MoveCursor("c", queue_id, 5, 5))
    do(store, Retain(queue_id, 0, 250))
    do_idle_work(store, 0.0)
    before = store.ask(RetainedBy(queue_id))
    assert before == Retained(0, 250, 80, 100, 200)
    live = offsets(store, queue_id)
    store = reopened(store)
    assert store.ask(RetainedBy(queue_id)) == before
    assert offsets(store, queue_id) == live
    assert retained_offsets(store, queue_id) == [*range(80, 100)]
    do(store, Retain(queue_id, 0, 100))
    do_idle_work(store, 0.0)
    store.close()
    store = small_store(tmp_path)
    assert retained_offsets(store, queue_id) == [*range(90, 100)]


def test_unswept_files_are_sound(tmp_path: Path) -> None:
    """Archived messages of a purged and of a deleted node wait for the sweep in a sound file."""
    store = small_store(tmp_path)
    one, two = new_queue(store, "one"), new_queue(store, "two")
    for queue_id in (one, two):
        do(store, Retain(queue_id, DAY_MS, 0))
        for offset in range(3):
            do(store, Post(queue_id, messages(offset, 1)), Retire(queue_id, offset, offset))
    do(store, Purge(one), DeleteNode(two))
    store = reopened(store)
    do_idle_work(store, 0.0)
    assert edit_open(store, "SELECT count(*) FROM run") == [(0,)]
    assert store.ask(RetainedBy(one)) == Retained(DAY_MS, 0, 3, 3, 0)
    assert_whole(store)


def test_restart_in_the_middle_of_ending(tmp_path: Path) -> None:
    """After a restart the archived messages still go, and only those."""
    store = small_store(tmp_path, synchronous="OFF")
    queue_id = new_queue(store)
    do(store, Retain(queue_id, DAY_MS, 0))
    for offset in range(2 * SWEEP_RETAINED + 9):
        do(store, Post(queue_id, messages(offset, 1)))
    do(store, Retire(queue_id, 0, 2 * SWEEP_RETAINED), Retain(queue_id, 0, 0))
    assert store.idle(0.0) is True
    store = reopened(store)
    live = [*range(2 * SWEEP_RETAINED + 1, 2 * SWEEP_RETAINED + 9)]
    assert offsets(store, queue_id) == live and node_of(store, queue_id).first_offset == live[0]
    do_idle_work(store, 0.0)
    assert edit_open(store, "SELECT count(*) FROM run") == [(8,)]
    assert edit_open(store, "SELECT count(*) FROM retained") == [(0,)]
    assert offsets(store, queue_id) == live
    do(store, DeleteNode(queue_id))
    assert_whole(store)


def test_compactor_leaves_what_is_kept(tmp_path: Path) -> None:
    """A large segment with little live is not rewritten while it is retained, but afterwards."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    do(store, Retain(queue_id, DAY_MS, 0), Post(queue_id, messages(0, 200, size=1000)))
    do(store, Retire(queue_id, 0, 197))
    size = "SELECT sum(length(bodies)) FROM segment"
    do_idle_work(store, 0.0)
    assert edit_open(store, size) == [(200_000,)]
    assert retained_offsets(store, queue_id) == [*range(200)]
    do(store, Retain(queue_id, 0, 0))
    do_idle_work(store, 0.0)
    assert edit_open(store, size) == [(2000,)]
    assert offsets(store, queue_id) == [198, 199]
    assert_whole(store)


def test_memory_is_flat(tmp_path: Path) -> None:
    """Archived messages, and reading them through, take less than a byte of memory each."""
    store = small_store(tmp_path, synchronous="OFF", run_cache_messages=10_000)
    queue_id = new_queue(store)
    do(store, Retain(queue_id, DAY_MS, 0))

    count = 200
    rounds = itertools.count()

    def work() -> None:
        first = next(rounds) * count
        for offset in range(first, first + count):
            do(store, Post(queue_id, messages(offset, 1)), Retire(queue_id, offset - 9, offset - 9))
        at_offset = 0
        while at_offset < first + count:
            at_offset = store.ask(RetainedPageOf(queue_id, at_offset, 100, 1 << 20)).next_offset
        assert store.ask(PageOf(queue_id, 0, 100, 1 << 20)).records[0].offset == first + count - 9

    assert left_by_each_round(work, count) < count
