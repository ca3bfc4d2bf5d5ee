"""Outcomes of transactions on disk."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from amqp_broker.persistence import (
    CreateNode,
    Discharged,
    OutcomesDamaged,
    Post,
    Retire,
    StoreError,
    StoreFull,
    Unit,
)
from amqp_broker.persistence.generations import GENERATION_OUTCOMES, STEP_OUTCOMES
from amqp_broker.persistence.questions import DischargedAt
from amqp_broker.persistence.sqlite import SqliteStore, verify_directory
from amqp_broker.persistence.store_file import DATABASE_NAME
from amqp_broker.testing.store_suite.discharges import txn_id
from amqp_broker.testing.store_suite.helpers import do, do_idle_work, do_units, messages, new_queue, offsets
from tests.persistence.stores import (
    assert_whole,
    backed_up,
    edit,
    edit_nodes,
    flipped_stores,
    reopened,
    small_store,
)

INDEX_LEAF = 0x0A  # the first byte of such a page; a table WITHOUT ROWID is an index


def discharge(store: SqliteStore, first: int, count: int, at_ms: int = 1000, group: int = 500) -> None:
    """Commit so many outcomes, in groups, each with a time of its own."""
    for begin in range(first, first + count, group):
        numbers = range(begin, min(begin + group, first + count))
        do_units(store, [[Discharged(txn_id(number), at_ms + number)] for number in numbers])


def known(store: SqliteStore, numbers: range) -> list[int]:
    """The transactions that the store holds as committed."""
    return [number for number in numbers if store.ask(DischargedAt(txn_id(number))) is not None]


def test_outcomes_survive_a_reopening(tmp_path: Path) -> None:
    """Outcomes of several generations keep their own times, and new ones go on behind them."""
    store = small_store(tmp_path)
    some = 2 * GENERATION_OUTCOMES + 500
    discharge(store, 0, some)
    store = reopened(store)
    assert [store.ask(DischargedAt(txn_id(number))) for number in range(some)] == [*range(1000, 1000 + some)]
    discharge(store, some, GENERATION_OUTCOMES)
    assert known(store, range(some + 9000)) == [*range(some + GENERATION_OUTCOMES)]
    assert_whole(store)
    assert edit(tmp_path, "SELECT first_number FROM discharge_generation ORDER BY 1") == [
        (0,),
        (GENERATION_OUTCOMES,),
        (2 * GENERATION_OUTCOMES,),
        (3 * GENERATION_OUTCOMES,),
    ]


def test_outcomes_survive_a_crash(tmp_path: Path) -> None:
    """Committed outcomes are in a copy of the open files, and those of an uncommitted group are not."""
    store = small_store(tmp_path / "data")
    queue_id = new_queue(store)
    do(store, Post(queue_id, messages(0, 2)), Discharged(txn_id(1), 5))
    store.apply([[Post(queue_id, messages(2, 1)), Retire(queue_id, 0, 0), Discharged(txn_id(2), 6)]])
    shutil.copytree(tmp_path / "data", tmp_path / "after")
    store.commit()
    shutil.copytree(tmp_path / "data", tmp_path / "later")
    store.close()
    for name, committed, held in (("after", [1], [0, 1]), ("later", [1, 2], [1, 2])):
        assert verify_directory(tmp_path / name) == []
        store = small_store(tmp_path / name)
        assert (known(store, range(5)), offsets(store, queue_id)) == (committed, held)
        store.close()


def test_abandoned_and_failed_groups_leave_the_numbering_alone(tmp_path: Path) -> None:
    """An outcome that did not happen takes no place in a generation, and its id may be used again."""
    store = small_store(tmp_path, free_bytes=lambda: 1 << 40)
    queue_id = new_queue(store)
    discharge(store, 0, 1000)
    store.apply([[Discharged(txn_id(number), 1)] for number in range(1000, 1100)])
    store.abandon()
    do(store, CreateNode("other", "queue"))
    ((pages,),) = store._connection.execute("PRAGMA page_count").fetchall()
    store._connection.execute(f"PRAGMA max_page_count={pages + 2}").fetchall()
    with pytest.raises(StoreFull):
        store.apply([[Post(queue_id, messages(0, 900, size=1000)), Discharged(txn_id(1000), 1)]])
    assert known(store, range(1100)) == [*range(1000)]
    store._connection.execute("PRAGMA max_page_count=1000000").fetchall()
    discharge(store, 1000, 2000, group=100)
    assert known(store, range(3200)) == [*range(3000)]
    assert_whole(store)


def test_full_disk_refuses_posts_and_discharges_retirements(tmp_path: Path) -> None:
    """Below the low-water mark a transaction that posts is refused. One that only retires commits."""
    free = [1 << 40]
    store = small_store(tmp_path, free_bytes=lambda: free[0], low_water_bytes=1 << 20)
    queue_id = new_queue(store)
    do(store, Post(queue_id, messages(0, 3)))
    free[0] = 1000
    store._space.trip()
    errors = do_units(
        store,
        [
            [Post(queue_id, messages(3, 1)), Discharged(txn_id(1), 1)],
            [Retire(queue_id, 0, 0), Discharged(txn_id(2), 2)],
        ],
    )
    assert [type(error) for error in errors] == [StoreFull, type(None)]
    assert (offsets(store, queue_id), known(store, range(3))) == ([1, 2], [2])


def test_too_many_are_forgotten_in_bounded_steps_after_a_crash(tmp_path: Path) -> None:
    """After a lower limit, or a process that fell behind, each step forgets a bounded number."""
    store = small_store(tmp_path / "data", synchronous="OFF")
    discharge(store, 0, 3 * STEP_OUTCOMES, group=5000)
    shutil.copytree(tmp_path / "data", tmp_path / "after")
    store.close()
    store = small_store(tmp_path / "after", synchronous="OFF", discharge_keep_count=5000)
    steps = []
    more = True
    while more:
        before = count(store)
        more = store.idle(0.0)
        steps.append(before - count(store))
    assert len(steps) in (3, 4) and max(steps) < STEP_OUTCOMES + GENERATION_OUTCOMES, steps
    kept = known(store, range(3 * STEP_OUTCOMES - 5500, 3 * STEP_OUTCOMES))
    assert kept == [*range(kept[0], 3 * STEP_OUTCOMES)]
    assert 5000 - GENERATION_OUTCOMES <= len(kept) <= 5000
    store.close()
    assert verify_directory(tmp_path / "after") == []


def count(store: SqliteStore) -> int:
    """How many outcomes are on disk."""
    ((number,),) = store._connection.execute("SELECT count(*) FROM discharge").fetchall()
    return int(number)


def test_age_goes_on_after_a_restart(tmp_path: Path) -> None:
    """The days between discharges are not counted again. The newest outcomes get their whole time."""
    day_ms = 86_400_000
    store = small_store(tmp_path)
    for number in range(33):
        do(store, Discharged(txn_id(number), number * day_ms // 4))
    store.close()
    store = small_store(tmp_path)
    do_idle_work(store, 0.0)
    kept = known(store, range(33))
    assert kept == [*range(kept[0], 33)] and 28 <= len(kept) <= 32, kept
    do_idle_work(store, 7 * 86_400.0 - 1)
    assert known(store, range(33)) == [30, 31, 32]
    do_idle_work(store, 7 * 86_400.0)
    assert known(store, range(33)) == []
    do(store, Discharged(txn_id(33), 0))
    assert_whole(store)
    assert edit(tmp_path, "SELECT first_number FROM discharge_generation") == [(33,)]


def test_a_commit_writes_few_pages_for_its_discharges(tmp_path: Path) -> None:
    """With random ids among a hundred thousand, twenty discharges write fewer than twenty pages of WAL."""
    store = small_store(tmp_path, synchronous="OFF", checkpoint_bytes=1 << 30)
    discharge(store, 0, 100_000, group=5000)
    store._checkpoint()
    discharge(store, 100_000, 2000, group=20)
    pages = store._measure_wal() / 8192
    assert pages < 2000 / 2.5, f"{pages} pages for 2,000 discharges"


def test_forgetting_waits_for_no_sweep(tmp_path: Path) -> None:
    """Both have their step in each `idle`, so outcomes do not pile up during a long sweep."""
    store = small_store(tmp_path, synchronous="OFF", discharge_keep_count=16)
    queue_id = new_queue(store)
    for offset in range(600):
        do(store, Post(queue_id, messages(offset, 1)))
    store.close()
    edit_nodes(tmp_path, "UPDATE node SET next_offset=600, purged_to=600")
    store = small_store(tmp_path, synchronous="OFF", discharge_keep_count=16)
    discharge(store, 0, 100)
    assert store.idle(0.0) is True
    assert count(store) == 16


def test_backup_holds_outcomes(tmp_path: Path) -> None:
    """A backup opens with the outcomes."""
    store = small_store(tmp_path / "data")
    discharge(store, 0, 50)
    backed_up(store, tmp_path / "copy", lambda: discharge(store, 50, 1) if count(store) == 50 else None)
    store.close()
    assert verify_directory(tmp_path / "copy") == []
    restored = small_store(tmp_path / "copy")
    assert known(restored, range(60))[:50] == [*range(50)]
    restored.close()


@pytest.mark.parametrize(
    ("sql", "finding"),
    [
        ("UPDATE discharge SET at_ms=at_ms+1 WHERE at_ms=1007", "an outcome at 1008"),
        ("UPDATE discharge SET txn_id=x'01' WHERE at_ms=1007", "an outcome at 1007"),
        ("DELETE FROM discharge WHERE at_ms=1007", f"has {GENERATION_OUTCOMES - 1}, expected"),
        ("DELETE FROM discharge WHERE generation>0", "has none"),
        ("UPDATE discharge_generation SET opened_at_ms=7 WHERE first_number=0", "generation 0 of outcomes"),
        ("DELETE FROM discharge_generation WHERE first_number=0", "there is no such generation"),
    ],
)
def test_verification_finds_damage(sql: str, finding: str, tmp_path: Path) -> None:
    """Changed, lost and stray rows are found. The store opens and discharges all the same."""
    store = small_store(tmp_path)
    discharge(store, 0, GENERATION_OUTCOMES + 500)
    store.close()
    edit(tmp_path, sql)
    findings = verify_directory(tmp_path)
    assert len(findings) == 1 and finding in findings[0], findings
    store = small_store(tmp_path)
    discharge(store, 5000, 2500)
    assert known(store, range(5000, 8000)) == [*range(5000, 7500)]
    do_idle_work(store, 0.0)


def test_time_that_is_damaged_is_told_by_the_generation(tmp_path: Path) -> None:
    """A transaction whose time is damaged was committed, at about the time of its generation."""
    store = small_store(tmp_path)
    discharge(store, 0, 3)
    store.close()
    edit(tmp_path, "UPDATE discharge SET at_ms=-99 WHERE at_ms=1002")
    store = small_store(tmp_path)
    assert [store.ask(DischargedAt(txn_id(number))) for number in range(3)] == [1000, 1001, 1000]


@pytest.mark.parametrize("sql", ["opened_at_ms=7", "first_number=first_number+(1<<40)"])
def test_damaged_row_of_the_newest_generation(sql: str, tmp_path: Path) -> None:
    """A damaged row is not believed: nothing is forgotten because of it, and discharges go on."""
    store = small_store(tmp_path)
    discharge(store, 0, GENERATION_OUTCOMES + 500)
    store.close()
    newest = "(SELECT max(first_number) FROM discharge_generation)"
    edit(tmp_path, f"UPDATE discharge_generation SET {sql} WHERE first_number={newest}")
    store = small_store(tmp_path)
    do_idle_work(store, 0.0)
    discharge(store, 5000, 500)
    assert known(store, range(GENERATION_OUTCOMES)) == [*range(GENERATION_OUTCOMES)]
    assert known(store, range(5000, 6000)) == [*range(5000, 5500)]


def test_damage_of_generations_is_forgotten_with_its_neighbours(tmp_path: Path) -> None:
    """Outcomes without a generation, and a generation with a damaged row, go when their neighbours go."""
    store = small_store(tmp_path)
    discharge(store, 0, 9000)
    store.close()
    edit(tmp_path, "DELETE FROM discharge_generation WHERE first_number=2048")
    edit(tmp_path, "UPDATE discharge_generation SET opened_at_ms=1 WHERE first_number=4096")
    store = small_store(tmp_path, discharge_keep_count=1000)
    do_idle_work(store, 0.0)
    assert_whole(store)
    assert edit(tmp_path, "SELECT min(generation), max(generation) FROM discharge") == [(8192, 8192)]


def test_damaged_pages_are_told_and_the_store_goes_on(tmp_path: Path) -> None:
    """A question that cannot be answered is not answered "not committed", and ends no broker."""
    store = small_store(tmp_path, page_size_bytes=1024)
    queue_id = new_queue(store)
    discharge(store, 0, 3000)
    store.close()
    data = bytearray((tmp_path / DATABASE_NAME).read_bytes())
    leaves = [
        begin
        for begin in range(1024, len(data), 1024)
        if data[begin] == INDEX_LEAF and any(txn_id(n) in data[begin : begin + 1024] for n in range(1, 1000))
    ]
    assert len(leaves) > 20
    for begin in leaves[:5]:
        data[begin : begin + 1024] = b"\xff" * 1024
    (tmp_path / DATABASE_NAME).write_bytes(data)
    store = small_store(tmp_path, page_size_bytes=1024)
    answers = {"known": 0, "unknown": 0}
    for number in range(900):
        try:
            assert store.ask(DischargedAt(txn_id(number))) == 1000 + number
            answers["known"] += 1
        except OutcomesDamaged:
            answers["unknown"] += 1
    assert answers["known"] > 300 and answers["unknown"] > 50, answers
    do(store, Post(queue_id, messages(0, 1)))
    store.idle(0.0)
    store.idle(8 * 86_400.0)
    assert offsets(store, queue_id) == [0]


def test_flipped_bits_make_no_outcome(tmp_path: Path) -> None:
    """Wherever a bit is flipped, nothing uncommitted counts as committed, and no time is far off."""
    store = small_store(tmp_path / "sound")
    discharge(store, 0, 300)
    store.close()
    lost = 0
    for damaged in flipped_stores(tmp_path / "sound", 150, seed=11):
        if damaged is None:
            continue
        try:
            for number in range(0, 600, 3):
                found = damaged.ask(DischargedAt(txn_id(number)))
                assert found in ((1000 + number, 1000, None) if number < 300 else (None,)), number
                lost += number < 300 and found is None
        except StoreError:
            pass
    assert lost < 150, f"{lost} of 15,000 answers"


def test_large_discharge_is_few_rows(tmp_path: Path) -> None:
    """Ten thousand posts over twenty queues, and as many retires, change rows by runs, not by messages."""
    store = small_store(tmp_path)
    queues = [new_queue(store, f"q{number}") for number in range(20)]
    do(store, *[Post(queue_id, messages(0, 500)) for queue_id in queues])
    unit: Unit = [Post(queue_id, messages(offset, 1)) for offset in range(500, 1000) for queue_id in queues]
    unit += [Retire(queue_id, offset, offset) for offset in range(500) for queue_id in queues]
    statements: list[str] = []
    store._connection.set_trace_callback(statements.append)
    changes = store._connection.total_changes
    do(store, *unit, Discharged(txn_id(1), 1))
    assert store._connection.total_changes - changes <= 20 * 4 + 2
    assert len(statements) <= 20 * 5 + 10, len(statements)
    assert_whole(store)
