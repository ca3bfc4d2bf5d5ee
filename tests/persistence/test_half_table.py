"""Half messages, streams and events on disk."""

from __future__ import annotations

import gc
import random
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from amqp_broker.persistence import (
    Advance,
    DeleteNode,
    Discharged,
    Event,
    ForgetStream,
    Half,
    Hold,
    Log,
    Post,
    Reschedule,
    Retire,
    RowDamaged,
    Store,
    StoreError,
    StoreFull,
    Stream,
    Unit,
    Verb,
    event_table,
    half_rows,
    half_table,
    stream_table,
)
from amqp_broker.persistence.checksums import half_checksum
from amqp_broker.persistence.half_checks import (
    GROUP,
    body,
    decide,
    half,
    half_id,
    hold,
    numbers,
    stored,
)
from amqp_broker.persistence.half_keeping_checks import KEEP_S, LATE_S, forget_all
from amqp_broker.persistence.halves import COMMITTED, PARKED, PREPARED, ROLLED_BACK
from amqp_broker.persistence.sqlite import SqliteStore, check_directory, check_store_file
from amqp_broker.persistence.sqlite_store import DATABASE_NAME
from amqp_broker.persistence.store_checks import do, do_units, messages, new_queue, offsets
from tests.persistence.stores import MIB, edit, small_store


def fill(store: SqliteStore) -> int:
    """Forty halves of four kinds, ten streams, twenty events; a queue."""
    queue_id = new_queue(store)
    do(store, *[hold(number) for number in range(40)])
    do(store, *[decide(number, COMMITTED) for number in range(0, 40, 4)])
    do(store, *[decide(number, ROLLED_BACK) for number in range(1, 40, 4)])
    do(store, *[Reschedule(GROUP, half_id(number), PARKED, 15, 0, 1) for number in range(2, 40, 4)])
    do(store, *[Advance(stream(queue_id, number)) for number in range(10)])
    do(store, *[Log(event(number)) for number in range(20)])
    return queue_id


def stream(queue_id: int, number: int) -> Stream:
    return Stream(queue_id, f"stream-{number}", "owner", 2**64 - 1 - number, number, ((1, 2), (3, 4)), 5, 6)


def event(number: int) -> Event:
    return Event("half.put", number, {"half_id": f"id-{number}"})


STATES = [COMMITTED, ROLLED_BACK, PARKED, PREPARED]


def check_filled(store: SqliteStore, queue_id: int) -> None:
    """All of it is there."""
    assert [stored(store, number) for number in range(40)] == STATES * 10
    for number in range(40):
        expected = None if number % 4 == 0 else body(number)
        assert store.half_body(GROUP, half_id(number)) == expected
    assert len(store.open_halves()) == 20
    assert store.streams(queue_id, "", 99) == [stream(queue_id, number) for number in range(10)]
    found = store.events(0, 99)
    assert [one.seq for one in found] == [*range(1, 21)]
    assert [one.at_ms for one in found] == [*range(20)]


def count(store: SqliteStore, table: str) -> int:
    """How many rows a table has."""
    ((rows,),) = store._connection.execute(f"SELECT count(*) FROM {table}").fetchall()
    return int(rows)


def test_all_of_it_survives_a_reopening_and_a_crash(tmp_path: Path) -> None:
    """Committed groups do, the one under way does not; numbering goes on."""
    store = small_store(tmp_path / "data")
    queue_id = fill(store)
    new = Stream(queue_id, "new", "owner", 1, 1)
    later: Unit = [hold(50), decide(3, COMMITTED), Log(event(20)), Advance(new)]
    store.apply([later])
    shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    store.abandon()
    store.close()
    for name in ("data", "crashed"):
        assert check_directory(tmp_path / name) == []
        store = small_store(tmp_path / name)
        check_filled(store, queue_id)
        log = Log(event(20))
        do(store, *later[:2], log, later[3])
        assert log.event.seq == 21
        assert (stored(store, 50), stored(store, 3)) == (PREPARED, COMMITTED)
        store.close()
        assert check_directory(tmp_path / name) == []


def test_body_of_a_half_that_is_decided_at_once_is_written_nowhere(tmp_path: Path) -> None:
    """Put and committed in one group: one row, and a message."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    pages: list[int] = []
    big = [Hold(half(number), bytes(MIB)) for number in (1, 2)]
    for unit in ([big[0], decide(1, COMMITTED), Post(queue_id, messages(0, 1))], [big[1]]):
        before = store._measure_wal()
        do(store, *unit)
        pages.append((store._measure_wal() - before) // 8192)
    assert pages[0] < 20 < 100 < pages[1]
    assert (count(store, "half"), count(store, "half_body")) == (2, 1)
    do(store, decide(2, COMMITTED))
    assert count(store, "half_body") == 0
    store.close()


def test_full_disk_refuses_what_is_new_and_settling_goes_on(tmp_path: Path) -> None:
    """Below the low-water mark: no Hold, Post or Advance; decisions without a message, and all else."""
    free = [1 << 40]
    store = small_store(tmp_path, free_bytes=lambda: free[0], low_water_bytes=1 << 20)
    queue_id = new_queue(store)
    do(store, *[hold(number) for number in range(4)], Advance(stream(queue_id, 1)))
    free[0] = 1000
    store._space.trip()
    refused: list[Unit] = [
        [hold(9)],
        [decide(0, COMMITTED), Post(queue_id, messages(0, 1))],
        [Advance(stream(queue_id, 2))],
        [decide(1, ROLLED_BACK), Log(event(0)), hold(8)],
    ]
    logs = [Log(event(number)) for number in range(2)]
    taken: list[Unit] = [
        [decide(1, ROLLED_BACK), logs[0]],
        [Reschedule(GROUP, half_id(2), PARKED, 1, 2, 3)],
        [ForgetStream(queue_id, "stream-1")],
        [logs[1]],
        [Discharged(b"id", 1)],
    ]
    errors = do_units(store, [*refused, *taken])
    assert [type(error) for error in errors] == [StoreFull] * 4 + [type(None)] * 5, errors
    assert [stored(store, number) for number in (0, 1, 2, 3, 8, 9)] == [
        PREPARED, ROLLED_BACK, PARKED, PREPARED, None, None,
    ]  # fmt: skip
    assert store.streams(queue_id, "", 9) == []
    for unit in (refused[0], refused[2]):
        assert [type(error) for error in do_units(store, [unit])] == [StoreFull], "alone in its group"
    assert [log.event.seq for log in logs] == [1, 2]
    errors = do_units(store, [[decide(2, ROLLED_BACK)], [decide(3, ROLLED_BACK)]])
    assert errors == [None, None]
    store.close()
    assert check_directory(tmp_path) == []


def test_group_that_finds_the_disk_full_leaves_everything_as_it_was(tmp_path: Path) -> None:
    """SQLite met the end of the disk in the middle of it: the same verbs happen later."""
    store = small_store(tmp_path)
    queue_id = fill(store)
    ((pages,),) = store._connection.execute("PRAGMA page_count").fetchall()
    store._connection.execute(f"PRAGMA max_page_count={pages + 2}").fetchall()
    unit: Unit = [
        hold(50), decide(50, COMMITTED), hold(51), decide(3, COMMITTED), Log(event(20)),
        Advance(stream(queue_id, 11)), Hold(half(52), bytes(MIB)),
    ]  # fmt: skip
    with pytest.raises(StoreFull):
        store.apply([unit])
    check_filled(store, queue_id)
    store._connection.execute("PRAGMA max_page_count=1000000").fetchall()
    assert [type(error) for error in do_units(store, [unit])] == [StoreFull], "not the first time"
    do(store, *unit)
    assert [stored(store, number) for number in (50, 51, 52, 3)] == [COMMITTED, PREPARED, PREPARED, COMMITTED]
    assert store.events(21, 9)[0].at_ms == 20
    store.close()
    assert check_directory(tmp_path) == []


def test_last_event_is_kept_so_that_no_number_comes_twice(tmp_path: Path) -> None:
    """Over a restart, when all others are forgotten."""
    store = small_store(tmp_path, event_keep_ms=1000)
    do(store, *[Log(event(number)) for number in range(20)])
    forget_all(store, 0.0)
    forget_all(store, 1000.0)
    assert [one.seq for one in store.events(0, 99)] == [20]
    store.close()
    assert check_directory(tmp_path) == []
    store = small_store(tmp_path, event_keep_ms=1000)
    log = Log(event(20))
    do(store, log)
    assert log.event.seq == 21
    store.close()


def test_age_goes_on_after_a_restart(tmp_path: Path) -> None:
    """What an earlier process has counted is not counted anew, but for the last minutes."""
    store = small_store(tmp_path)
    do(store, hold(1), decide(1, ROLLED_BACK), Log(event(1)), Log(event(2)))
    forget_all(store, 0.0)
    forget_all(store, 6 * 86_400.0)
    store.close()
    store = small_store(tmp_path)
    forget_all(store, 0.0)
    forget_all(store, 86_400.0 - 1000)
    assert (stored(store, 1), len(store.events(0, 9))) == (ROLLED_BACK, 2)
    forget_all(store, 86_400.0 + LATE_S)
    assert (stored(store, 1), len(store.events(0, 9))) == (None, 1)
    store.close()
    assert check_directory(tmp_path) == []


def test_bodies_are_forgotten_in_bounded_steps(tmp_path: Path) -> None:
    """Large ones are few in a step; each step goes on where the last one ended."""
    store = small_store(tmp_path, synchronous="OFF")
    size = half_table.FORGET_BYTES // 4
    forget_all(store, 0.0)
    for number in range(12):
        do(store, Hold(half(number, size=size), bytes(size)), decide(number, ROLLED_BACK))
    forget_all(store, 1.0)
    left = []
    more = True
    while more:
        more = store.idle(KEEP_S + LATE_S)
        left.append(count(store, "half_body"))
    assert left[:3] == [7, 2, 0]
    assert count(store, "half") == 0
    store.close()
    assert check_directory(tmp_path) == []


def test_streams_of_a_deleted_queue_are_swept_in_steps(tmp_path: Path) -> None:
    """Also after a restart; meanwhile nobody sees them, and the checker finds nothing wrong."""
    store = small_store(tmp_path, synchronous="OFF")
    gone, kept = new_queue(store, "gone"), new_queue(store, "kept")
    many = 2 * stream_table.FORGET_STREAMS + 5
    do(store, *[Advance(stream(queue_id, number)) for queue_id in (gone, kept) for number in range(many)])
    do(store, DeleteNode(gone))
    assert store.idle(0.0) is True
    assert count(store, "stream") == 2 * many - stream_table.FORGET_STREAMS
    assert (store.stream(gone, "stream-3"), store.streams(gone, "", 9)) == (None, [])
    store.close()
    assert check_directory(tmp_path) == []
    store = small_store(tmp_path, synchronous="OFF")
    assert (store.stream(gone, "stream-3"), store.streams(gone, "", 9)) == (None, [])
    forget_all(store, 0.0)
    assert count(store, "stream") == many
    assert store.stream(kept, "stream-3") == stream(kept, 3)
    store.close()
    assert check_directory(tmp_path) == []


def test_every_question_is_answered_by_a_search(tmp_path: Path) -> None:
    """No table is gone through for what is asked on the way of a message; nor for a page of a list."""
    store = small_store(tmp_path)
    fill(store)
    texts = [
        value
        for module in (half_table, stream_table, event_table)
        for text in vars(module).values()
        for value in (text if isinstance(text, tuple) else (text,))
        if isinstance(value, str) and value.startswith(("SELECT", "UPDATE", "DELETE"))
    ]
    assert len(texts) > 15
    told = {
        sql: " / ".join(row[3] for row in store._connection.execute(f"EXPLAIN QUERY PLAN {sql}", (1,) * n))
        for sql in texts
        for n in (sql.count("?"),)
    }
    scans = {sql: plan for sql, plan in told.items() if "SCAN" in plan.replace("SCAN CONSTANT ROW", "")}
    assert {plan for plan in scans.values() if "COMPOUND" not in plan} <= {
        "SCAN half USING INDEX half_open / USE TEMP B-TREE FOR ORDER BY",  # once, at the start
        "SCAN event",  # backwards, one row
    }, scans
    sorts = [sql for sql, plan in told.items() if "TEMP B-TREE" in plan and sql not in scans]
    assert sorts == []
    store.close()


def test_memory_does_not_grow_with_streams_and_halves(tmp_path: Path) -> None:
    """Thousands more take no more of it than the last group did."""
    store = small_store(tmp_path, synchronous="OFF")
    queue_id = new_queue(store)

    def add(first: int) -> None:
        for begin in range(first, first + 5000, 500):
            chosen = range(begin, begin + 500)
            do(store, *[Advance(stream(queue_id, number)) for number in chosen])
            do(store, *[hold(number) for number in chosen], *[Log(event(number)) for number in chosen])
            for number in chosen:
                store.stream(queue_id, f"stream-{number}")
                store.half(GROUP, half_id(number))
        forget_all(store, float(first))

    def traced() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    add(0)
    tracemalloc.start()
    try:
        add(5000)
        before = traced()
        add(10_000)
        grown = traced() - before
    finally:
        tracemalloc.stop()
    assert grown < 100_000, f"{grown} bytes for 5,000 more"
    store.close()


def test_few_pages_for_each_decision(tmp_path: Path) -> None:
    """Random ids among fifty thousand tombstones: a put writes one page of the index, a decision none."""
    store = small_store(tmp_path, synchronous="OFF", checkpoint_bytes=1 << 30)
    randomness = random.Random(3)
    ids = [randomness.randbytes(17) for _ in range(52_000)]

    def verbs(name: bytes) -> tuple[Verb, Verb]:
        one = half(1)
        one.half_id = name
        verb = decide(1, COMMITTED)
        verb.half_id = name
        return Hold(one, b"body"), verb

    for first in range(0, 50_000, 5000):
        do(store, *[verb for name in ids[first : first + 5000] for verb in verbs(name)])
    store._checkpoint()
    pages = []
    for which in (0, 1):
        for first in range(50_000, 52_000, 50):
            do(store, *[verbs(name)[which] for name in ids[first : first + 50]])
        pages.append(store._measure_wal() // 8192 / 2000)
        store._checkpoint()
    assert pages[0] < 1.4 and pages[1] < 0.4, f"{pages} pages for each put and decision"
    store.close()


def test_backup_holds_all_of_it(tmp_path: Path) -> None:
    """And the copy opens with it."""
    store = small_store(tmp_path / "data")
    queue_id = fill(store)
    store.backup(tmp_path / "copy")
    store.close()
    assert check_store_file(tmp_path / "copy") == []
    (tmp_path / "restored").mkdir()
    (tmp_path / "copy").rename(tmp_path / "restored" / DATABASE_NAME)
    restored = small_store(tmp_path / "restored")
    check_filled(restored, queue_id)
    restored.close()


# Damage

WRONG_STATE = "UPDATE half SET state='half-baked' WHERE id=7"


@pytest.mark.parametrize(
    ("sql", "findings"),
    [
        (WRONG_STATE, ["half message 7: the row does not match its checksum"]),
        ("UPDATE half SET container_id='other' WHERE id=3", ["half message 3: the row does not match"]),
        ("DELETE FROM half_body WHERE id=3", ["half message 3: is not committed, but has no body"]),
        ("DELETE FROM half WHERE id=3", ["half message 3: has a body, but there is none"]),
        ("DELETE FROM half WHERE id=1", []),  # a tombstone that is lost cannot be told
        (
            "INSERT INTO half_body VALUES (1, x'00', 5)",
            ["1: is committed, but has a body", "1: the body does not"],
        ),
        ("UPDATE half_body SET body=x'00' WHERE id=3", ["half message 3: the body does not match"]),
        ("UPDATE half_body SET id=99 WHERE id=3", ["3: is not committed", "99: has a body", "99: the body"]),
        ("UPDATE stream SET seq_no=77 WHERE stream='stream-3'", ["queue 1, stream b'stream-3': the row"]),
        ("UPDATE stream SET queue_id=9 WHERE stream='stream-3'", ["queue 9: 1 streams", "queue 9, stream"]),
        ("UPDATE event SET at_ms=99 WHERE seq=5", ["event 5: the row does not match"]),
        ("DELETE FROM event WHERE seq=5", ["event 6: comes after event 4"]),
        ("DELETE FROM event WHERE seq<5", []),
    ],
)
def test_checker_finds_damage(sql: str, findings: list[str], tmp_path: Path) -> None:
    """Rows that were changed, lost, or belong nowhere; the store opens and goes on all the same."""
    store = small_store(tmp_path)
    queue_id = fill(store)
    store.close()
    edit(tmp_path, sql)
    found = check_directory(tmp_path)
    assert len(found) == len(findings), found
    for one, expected in zip(found, findings, strict=True):
        assert expected in one
    store = small_store(tmp_path)
    do(store, hold(50), decide(3, COMMITTED), Log(event(20)), Advance(stream(queue_id, 20)))
    assert (stored(store, 50), stored(store, 3)) == (PREPARED, COMMITTED)
    forget_all(store, 0.0)
    forget_all(store, KEEP_S + LATE_S)
    store.close()


def sealed(directory: Path, number: int, **changes: object) -> None:
    """Change a row, with a checksum that is right."""
    names = "group_name half_id destination container_id digest put_at_ms size_bytes message_format priority "
    names += "ttl_ms state attempts due_at_ms deadline_ms resolved_at_ms resolver reason expires_at_ms queue "
    columns = ["id", *names.split(), "offset", "forget_ms"]
    (row,) = edit(directory, f"SELECT {half_rows.COLUMNS} FROM half WHERE id=?", number)
    values = dict(zip(columns, row, strict=False)) | changes
    checksum = half_checksum(*values.values())
    sets = ", ".join(f"{name}=CAST(? AS TEXT)" if isinstance(value, bytes) else f"{name}=?"
                     for name, value in changes.items())  # fmt: skip
    edit(directory, f"UPDATE half SET {sets}, checksum=? WHERE id=?", *changes.values(), checksum, number)


def test_checker_finds_rows_that_contradict_themselves(tmp_path: Path) -> None:
    """With right checksums: the mistakes of a writer."""
    store = small_store(tmp_path)
    fill(store)
    store.close()
    sealed(tmp_path, 7, state=b"half-baked")
    sealed(tmp_path, 4, forget_ms=5)
    sealed(tmp_path, 2, forget_ms=0)
    assert check_directory(tmp_path) == [
        "half message 2: is rolled-back, but it is forgotten at 0",
        "half message 4: is prepared, but it is forgotten at 5",
        "half message 7: its state is 'half-baked'",
    ]


def test_damaged_rows_are_told_and_never_believed(tmp_path: Path) -> None:
    """The one that is damaged raises, lists leave it out, its neighbours are well."""
    store = small_store(tmp_path)
    queue_id = fill(store)
    store.close()
    edit(tmp_path, "UPDATE half SET state='prepared' WHERE id=1")
    edit(tmp_path, "UPDATE half SET destination=CAST(x'ff61' AS TEXT) WHERE id=3")
    edit(tmp_path, "UPDATE half_body SET body=x'00' WHERE id=4")
    edit(tmp_path, "UPDATE stream SET owner=CAST(x'ff61' AS TEXT) WHERE stream='stream-3'")
    edit(tmp_path, "UPDATE event SET fields=CAST(x'ff61' AS TEXT) WHERE seq=3")
    store = small_store(tmp_path)
    questions: list[Callable[[], object]] = [
        lambda: store.half(GROUP, half_id(0)),
        lambda: store.half_body(GROUP, half_id(0)),
        lambda: store.half(GROUP, half_id(2)),
        lambda: store.half_body(GROUP, half_id(3)),
        lambda: store.stream(queue_id, "stream-3"),
    ]
    for question in questions:
        with pytest.raises(RowDamaged):
            question()
    assert store.half(GROUP, half_id(3)) == half(3)
    assert numbers(store.halves(GROUP, None, b"", 5)) == [1, 3, 4, 5, 6]
    assert numbers(store.open_halves())[:3] == [3, 6, 7]
    assert [one.seq_no for one in store.streams(queue_id, "stream-1", 3)] == [2, 4, 5]
    assert [one.seq for one in store.events(2, 3)] == [2, 4, 5]
    refused: list[Unit] = [
        [Log(event(99)), decide(2, COMMITTED), Post(queue_id, messages(0, 1))],
        [hold(0)],
        [Reschedule(GROUP, half_id(2), PREPARED, 1, 2, 3)],
    ]
    last = Log(event(20))
    errors = do_units(store, [*refused, [last, hold(50)]])
    assert [type(error) for error in errors] == [RowDamaged] * 3 + [type(None)]
    assert (last.event.seq, stored(store, 50), offsets(store, queue_id)) == (21, PREPARED, [])
    do(store, decide(3, COMMITTED), Advance(stream(queue_id, 3)))
    assert store.stream(queue_id, "stream-3") == stream(queue_id, 3), "a new position heals it"
    store.close()


def test_damaged_pages_are_told_and_the_store_goes_on(tmp_path: Path) -> None:
    """Questions that cannot be answered end no broker, nor does what cannot be forgotten."""
    store = small_store(tmp_path, page_size_bytes=1024)
    queue_id = fill(store)
    do(store, *[Hold(half(number), body(number) * 30) for number in range(100, 200)])
    do(store, *[decide(number, ROLLED_BACK) for number in range(100, 200)])
    do(store, *[Log(event(number)) for number in range(20, 200)])
    store.close()
    data = bytearray((tmp_path / DATABASE_NAME).read_bytes())
    for text in (b"container-150", body(150) * 30, b'"id-100"', b"stream-5"):
        page = data.index(text) // 1024 * 1024
        data[page : page + 1024] = b"\xff" * 1024
    (tmp_path / DATABASE_NAME).write_bytes(data)
    store = small_store(tmp_path, page_size_bytes=1024)
    with pytest.raises(RowDamaged):
        store.half(GROUP, half_id(150))
    with pytest.raises(RowDamaged):
        store.halves(GROUP, None, half_id(140), 50)
    with pytest.raises(RowDamaged):
        store.stream(queue_id, "stream-5")
    with pytest.raises(RowDamaged):
        store.events(90, 50)
    assert stored(store, 102) == ROLLED_BACK
    do(store, Post(queue_id, messages(0, 2)), Log(event(0)), hold(201))
    forget_all(store, 0.0)
    forget_all(store, KEEP_S + LATE_S)
    do(store, Retire(queue_id, 0, 0), decide(201, COMMITTED))
    assert (offsets(store, queue_id), stored(store, 201)) == ([1], COMMITTED)
    store.close()


def test_flipped_bits_make_no_state(tmp_path: Path) -> None:
    """Anywhere in the file: what is told of a half message, a stream or an event is what was stored."""
    store = small_store(tmp_path / "sound", page_size_bytes=1024)
    queue_id = fill(store)
    expected: list[Half | None] = [store.half(GROUP, half_id(number)) for number in range(40)]
    store.close()
    sound = (tmp_path / "sound" / DATABASE_NAME).read_bytes()
    (tmp_path / "damaged").mkdir()
    randomness = random.Random(11)
    lost = told = refused = 0
    for _ in range(150):
        data = bytearray(sound)
        data[randomness.randrange(len(data))] ^= 1 << randomness.randrange(8)
        (tmp_path / "damaged" / DATABASE_NAME).write_bytes(data)
        try:
            store = small_store(tmp_path / "damaged", synchronous="OFF")
        except StoreError:
            refused += 1
            continue
        for number in range(40):
            try:
                found = store.half(GROUP, half_id(number))
                lost += found is None
                assert found in (expected[number], None)
                found_body = store.half_body(GROUP, half_id(number))
                assert found_body in (body(number), None)
                position = store.stream(queue_id, f"stream-{number % 10}")
                assert position in (stream(queue_id, number % 10), None)
                for one in store.events(number, 3):
                    assert one == event_of(one.seq)
            except StoreError:
                told += 1
        store.close()
    assert refused < 40 and told > 10 and lost < 100, f"{refused} refused, {told} told, {lost} lost"


def event_of(seq: int) -> Event:
    """As `fill` logged it."""
    one = event(seq - 1)
    one.seq = seq
    return one


def test_store_protocol() -> None:
    """The store on disk is one, for the type checker."""
    make: Callable[[Path], Store] = SqliteStore
    assert make is SqliteStore
