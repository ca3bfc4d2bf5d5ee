"""Half messages, streams and events on disk."""

from __future__ import annotations

import itertools
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from amqp_broker.persistence import (
    Advance,
    DeleteNode,
    Discharged,
    Event,
    ForgetStream,
    Hold,
    Journal,
    KeepTime,
    Post,
    Reschedule,
    Store,
    StoreFull,
    Stream,
    Unit,
    Verb,
    event_table,
    half_table,
    keep_clock,
    stream_table,
)
from amqp_broker.persistence.halves import BY_POLICY, COMMITTED, EVENT_RUN_MAX, PARKED, PREPARED, ROLLED_BACK
from amqp_broker.persistence.keep_clock import AWAY_MS
from amqp_broker.persistence.questions import (
    EventRange,
    EventsFrom,
    HalfBodyOf,
    HalfOf,
    OpenHalves,
    StreamOf,
    StreamsOf,
)
from amqp_broker.persistence.removal import remove
from amqp_broker.persistence.sqlite import SqliteStore, verify_directory
from amqp_broker.testing.store_suite.events import EVENT_BYTES, KEPT_EVENTS, logged
from amqp_broker.testing.store_suite.forgotten_halves import BODY_BYTES, KEEP_S, given_up, kept_bodies
from amqp_broker.testing.store_suite.halves import (
    GROUP,
    KEEP_MS,
    PUT_AT_MS,
    body,
    decide,
    half,
    half_id,
    hold,
    stored,
)
from amqp_broker.testing.store_suite.helpers import LATE_S, do, do_idle_work, do_units, messages, new_queue
from tests.persistence.stores import MIB, assert_whole, backed_up, edit, reopened, small_store
from tests.support.memory import left_by_each_round


def fill(store: SqliteStore) -> int:
    """Write forty half messages of four kinds, ten streams, twenty events and a queue."""
    queue_id = new_queue(store)
    do(store, *[hold(number) for number in range(40)])
    do(store, *[decide(number, COMMITTED) for number in range(0, 40, 4)])
    do(store, *[decide(number, ROLLED_BACK, by=BY_POLICY) for number in range(1, 40, 8)])
    do(store, *[decide(number, ROLLED_BACK) for number in range(5, 40, 8)])
    do(store, *[Reschedule(GROUP, half_id(number), PARKED, 15, 0, 1) for number in range(2, 40, 4)])
    do(store, *[Advance(stream(queue_id, number)) for number in range(10)])
    do(store, *[Journal(event(number)) for number in range(20)])
    return queue_id


def stream(queue_id: int, number: int) -> Stream:
    return Stream(queue_id, f"stream-{number}", "owner", 2**64 - 1 - number, number, ((1, 2), (3, 4)), 5, 6)


def event(number: int) -> Event:
    return Event("half.put", number, {"half_id": f"id-{number}"})


STATES = [COMMITTED, ROLLED_BACK, PARKED, PREPARED]


def assert_filled(store: SqliteStore, queue_id: int) -> None:
    """All that `fill` wrote is there."""
    assert [stored(store, number) for number in range(40)] == STATES * 10
    for number in range(40):
        expected = None if number % 4 == 0 or number % 8 == 5 else body(number)
        assert store.ask(HalfBodyOf(GROUP, half_id(number))) == expected
    assert len(store.ask(OpenHalves())) == 20
    assert store.ask(StreamsOf(queue_id, "", 99)) == [stream(queue_id, number) for number in range(10)]
    found = store.ask(EventsFrom(0, 99))
    assert [one.seq for one in found] == [*range(1, 21)]
    assert [one.at_ms for one in found] == [*range(20)]


def count(store: SqliteStore, table: str) -> int:
    """How many rows a table has."""
    ((rows,),) = store._connection.execute(f"SELECT count(*) FROM {table}").fetchall()
    return int(rows)


def test_all_of_it_survives_a_reopening_and_a_crash(tmp_path: Path) -> None:
    """Committed groups survive, the one in progress does not. The numbering goes on."""
    store = small_store(tmp_path / "data")
    queue_id = fill(store)
    new = Stream(queue_id, "new", "owner", 1, 1)
    later: Unit = [hold(50), decide(3, COMMITTED), Journal(event(20)), Advance(new)]
    store.apply([later])
    shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    store.abandon()
    store.close()
    for name in ("data", "crashed"):
        assert verify_directory(tmp_path / name) == []
        store = small_store(tmp_path / name)
        assert_filled(store, queue_id)
        journal = Journal(event(20))
        do(store, *later[:2], journal, later[3])
        assert journal.event.seq == 21
        assert (stored(store, 50), stored(store, 3)) == (PREPARED, COMMITTED)
        assert_whole(store)


def test_body_of_a_half_that_is_decided_at_once_is_written_nowhere(tmp_path: Path) -> None:
    """Put and committed in one group, a half message is one row and a message."""
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


def test_full_disk_refuses_what_is_new_and_settling_goes_on(tmp_path: Path) -> None:
    """Below the low-water mark Hold, Post and Advance are refused. Decisions without a message happen."""
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
        [decide(1, ROLLED_BACK), Journal(event(0)), hold(8)],
    ]
    journals = [Journal(event(number)) for number in range(2)]
    taken: list[Unit] = [
        [decide(1, ROLLED_BACK), journals[0]],
        [Reschedule(GROUP, half_id(2), PARKED, 1, 2, 3)],
        [ForgetStream(queue_id, "stream-1")],
        [journals[1]],
        [Discharged(b"id", 1)],
    ]
    errors = do_units(store, [*refused, *taken])
    assert [type(error) for error in errors] == [StoreFull] * 4 + [type(None)] * 5, errors
    assert [stored(store, number) for number in (0, 1, 2, 3, 8, 9)] == [
        PREPARED, ROLLED_BACK, PARKED, PREPARED, None, None,
    ]  # fmt: skip
    assert store.ask(StreamsOf(queue_id, "", 9)) == []
    for unit in (refused[0], refused[2]):
        assert [type(error) for error in do_units(store, [unit])] == [StoreFull], "alone in its group"
    assert [journal.event.seq for journal in journals] == [1, 2]
    errors = do_units(store, [[decide(2, ROLLED_BACK)], [decide(3, ROLLED_BACK)]])
    assert errors == [None, None]
    assert_whole(store)


def test_group_that_finds_the_disk_full_leaves_everything_as_it_was(tmp_path: Path) -> None:
    """When SQLite finds the disk full in a group, nothing happened. The same verbs happen later."""
    store = small_store(tmp_path)
    queue_id = fill(store)
    ((pages,),) = store._connection.execute("PRAGMA page_count").fetchall()
    store._connection.execute(f"PRAGMA max_page_count={pages + 2}").fetchall()
    unit: Unit = [
        hold(50), decide(50, COMMITTED), hold(51), decide(3, COMMITTED), Journal(event(20)),
        Advance(stream(queue_id, 11)), Hold(half(52), bytes(MIB)),
    ]  # fmt: skip
    with pytest.raises(StoreFull):
        store.apply([unit])
    assert_filled(store, queue_id)
    store._connection.execute("PRAGMA max_page_count=1000000").fetchall()
    assert [type(error) for error in do_units(store, [unit])] == [StoreFull], "not the first time"
    do(store, *unit)
    assert [stored(store, number) for number in (50, 51, 52, 3)] == [COMMITTED, PREPARED, PREPARED, COMMITTED]
    assert store.ask(EventsFrom(21, 9))[0].at_ms == 20
    assert_whole(store)


def test_last_event_is_kept_so_that_no_number_comes_twice(tmp_path: Path) -> None:
    """The last event stays when all others are forgotten, also over a restart."""
    store = small_store(tmp_path, event_keep_ms=1000)
    do(store, *[Journal(event(number)) for number in range(20)])
    do_idle_work(store, 0.0)
    do_idle_work(store, 1000.0)
    assert [one.seq for one in store.ask(EventsFrom(0, 99))] == [20]
    store = reopened(store, event_keep_ms=1000)
    journal = Journal(event(20))
    do(store, journal)
    assert journal.event.seq == 21


def test_events_are_forgotten_in_steps(tmp_path: Path) -> None:
    """One step forgets a bounded number of events, and the next one goes on there."""
    store = small_store(tmp_path, synchronous="OFF", event_keep_ms=1000)
    do_idle_work(store, 0.0)
    many = keep_clock.FORGET_ROWS + 500
    do(store, *[Journal(event(number)) for number in range(many)])
    do_idle_work(store, 1.0)
    steps = [(store.idle(1000.0), count(store, "event")) for _ in range(2)]
    assert steps == [(True, 500), (False, 1)]
    assert store.ask(EventsFrom(0, 9))[0].seq == many


def test_runs_are_forgotten_in_steps(tmp_path: Path) -> None:
    """One step forgets whole rows, of a bounded number of events together."""
    store = small_store(tmp_path, synchronous="OFF", event_keep_ms=1000)
    do_idle_work(store, 0.0)
    rows = keep_clock.FORGET_EVENTS // EVENT_RUN_MAX + 4
    do(store, *[Journal(Event("k", 1, {}, 0, EVENT_RUN_MAX)) for _ in range(rows)])
    do_idle_work(store, 1.0)
    steps = [(store.idle(1000.0), count(store, "event")) for _ in range(2)]
    assert steps == [(True, 4), (False, 1)]
    assert store.ask(EventRange()) == ((rows - 1) * EVENT_RUN_MAX + 1, rows * EVENT_RUN_MAX + 1)


def test_numbers_go_on_behind_a_run_after_a_restart(tmp_path: Path) -> None:
    """All numbers of a run that is the last row are used, also when only it is left."""
    store = small_store(tmp_path, event_keep_ms=1000)
    numbers: list[str | int | None] = [*range(7)]
    do(store, Journal(event(1)), Journal(Event("put", 2, {}, 0, 7, {"offset": numbers})))
    do_idle_work(store, 0.0)
    for _ in range(2):
        store = reopened(store, event_keep_ms=1000)
        assert store.ask(EventRange())[1] == 9
        do_idle_work(store, 0.0)
        do_idle_work(store, 1000.0)
        assert [one.fields["offset"] for one in store.ask(EventsFrom(0, 99))] == [*range(7)]
    journal = Journal(event(20))
    do(store, journal)
    assert journal.event.seq == 9
    assert_whole(store)


def test_age_goes_on_after_a_restart(tmp_path: Path) -> None:
    """What an earlier process has counted is not counted again, except for the last minutes."""
    store = small_store(tmp_path)
    do(store, hold(1), decide(1, ROLLED_BACK), Journal(event(1)), Journal(event(2)))
    do_idle_work(store, 0.0)
    do_idle_work(store, 6 * 86_400.0)
    store.close()
    store = small_store(tmp_path)
    do_idle_work(store, 0.0)
    do_idle_work(store, 86_400.0 - 1000)
    assert (stored(store, 1), len(store.ask(EventsFrom(0, 9)))) == (ROLLED_BACK, 2)
    do_idle_work(store, 86_400.0 + LATE_S)
    assert (stored(store, 1), len(store.ask(EventsFrom(0, 9)))) == (None, 1)
    assert_whole(store)


def test_age_goes_on_with_the_time_that_is_told(tmp_path: Path) -> None:
    """However often the store is opened again, exactly the time that has passed counts."""
    begun_ms, late_ms = PUT_AT_MS, 2 * AWAY_MS
    store = small_store(tmp_path)
    do(store, KeepTime(begun_ms, ""), hold(1), decide(1, ROLLED_BACK), Journal(event(1)), Journal(event(2)))
    for day in range(1, 8):
        if day == 7:
            do_idle_work(store, (begun_ms + KEEP_MS) / 1000 - 1)
            assert (stored(store, 1), len(store.ask(EventsFrom(0, 99)))) == (ROLLED_BACK, 8)
        do(store, KeepTime(begun_ms + day * 86_400_000, ""), Journal(event(day)))
        store.close()
        store = small_store(tmp_path)
        recovered = store.recover()
        assert recovered.now_ms == begun_ms + day * 86_400_000
    assert KEEP_MS == 7 * 86_400_000
    do_idle_work(store, (begun_ms + KEEP_MS + late_ms) / 1000)
    assert (stored(store, 1), len(store.ask(EventsFrom(0, 99)))) == (None, 7)
    assert_whole(store)


def test_bodies_are_forgotten_in_bounded_steps(tmp_path: Path) -> None:
    """One step forgets few large bodies, and the next one goes on there."""
    store = small_store(tmp_path, synchronous="OFF")
    size = half_table.FORGET_BYTES // 4
    do_idle_work(store, 0.0)
    for number in range(12):
        do(store, Hold(half(number, size=size), bytes(size)), decide(number, ROLLED_BACK, by=BY_POLICY))
    do_idle_work(store, 1.0)
    left = []
    more = True
    while more:
        more = store.idle(KEEP_S + LATE_S)
        left.append(count(store, "half_body"))
    assert left[:3] == [7, 2, 0]
    assert count(store, "half") == 0
    assert_whole(store)


def test_streams_of_a_deleted_queue_are_swept_in_steps(tmp_path: Path) -> None:
    """The sweep goes on after a restart. Meanwhile nobody sees the streams, and the file verifies."""
    store = small_store(tmp_path, synchronous="OFF")
    gone, kept = new_queue(store, "gone"), new_queue(store, "kept")
    many = 2 * stream_table.FORGET_STREAMS + 5
    do(store, *[Advance(stream(queue_id, number)) for queue_id in (gone, kept) for number in range(many)])
    do(store, DeleteNode(gone))
    assert store.idle(0.0) is True
    assert count(store, "stream") == 2 * many - stream_table.FORGET_STREAMS
    assert (store.ask(StreamOf(gone, "stream-3")), store.ask(StreamsOf(gone, "", 9))) == (None, [])
    store = reopened(store, synchronous="OFF")
    assert (store.ask(StreamOf(gone, "stream-3")), store.ask(StreamsOf(gone, "", 9))) == (None, [])
    do_idle_work(store, 0.0)
    assert count(store, "stream") == many
    assert store.ask(StreamOf(kept, "stream-3")) == stream(kept, 3)
    assert_whole(store)


def test_every_question_is_answered_by_a_search(tmp_path: Path) -> None:
    """No question on the way of a message scans a table, nor does one for a page of a list."""
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
    plans = {
        sql: " / ".join(row[3] for row in store._connection.execute(f"EXPLAIN QUERY PLAN {sql}", (1,) * n))
        for sql in texts
        for n in (sql.count("?"),)
    }
    scans = {sql: plan for sql, plan in plans.items() if "SCAN" in plan.replace("SCAN CONSTANT ROW", "")}
    assert {plan for plan in scans.values() if "COMPOUND" not in plan} <= {
        "SCAN half USING INDEX half_open / USE TEMP B-TREE FOR ORDER BY",  # once, at the start
        "SCAN event",  # backwards, one row
        # bodies beyond their bound, the oldest first; and once at a start, where nobody has counted them
        "SCAN b / SEARCH h USING INTEGER PRIMARY KEY (rowid=?)",
    }, scans
    sorts = [sql for sql, plan in plans.items() if "TEMP B-TREE" in plan and sql not in scans]
    assert sorts == []


def test_memory_does_not_grow_with_streams_and_halves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the rows that are kept in memory are full, each further one takes less than a byte."""
    store = small_store(tmp_path, synchronous="OFF")
    queue_id = new_queue(store)
    count = 200
    monkeypatch.setattr(half_table, "RECENT_ROWS", count)
    rounds = itertools.count()

    def add() -> None:
        first = next(rounds) * count
        for begin in range(first, first + count, 100):
            chosen = range(begin, begin + 100)
            do(store, *[Advance(stream(queue_id, number)) for number in chosen])
            do(store, *[hold(number) for number in chosen], *[Journal(event(number)) for number in chosen])
            for number in chosen:
                store.ask(StreamOf(queue_id, f"stream-{number}"))
                store.ask(HalfOf(GROUP, half_id(number)))
        do_idle_work(store, float(first))

    assert left_by_each_round(add, count) < count


def test_few_pages_for_each_decision(tmp_path: Path) -> None:
    """Among fifty thousand tombstones with random ids a put writes one page of the index, a decision none."""
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


def test_backup_holds_all_of_it(tmp_path: Path) -> None:
    """A backup opens with half messages, streams and events."""
    store = small_store(tmp_path / "data")
    queue_id = fill(store)
    backed_up(store, tmp_path / "copy")
    store.close()
    assert verify_directory(tmp_path / "copy") == []
    restored = small_store(tmp_path / "copy")
    assert_filled(restored, queue_id)
    restored.close()


def test_store_protocol() -> None:
    """The store on disk is a `Store` to the type checker."""
    make: Callable[[Path], Store] = SqliteStore
    assert make is SqliteStore


def test_bytes_of_bodies_are_known_after_a_restart(tmp_path: Path) -> None:
    """The bytes of bodies count also after an older version that did not, and after a removal by hand."""
    store = small_store(tmp_path, half_keep_bytes=4 * BODY_BYTES)
    given_up(store, 0, 1, 2, 3)
    assert_whole(store)
    edit(tmp_path, "DELETE FROM meta WHERE key='half_kept_bytes'")
    remove(tmp_path, "half message 1")
    store = small_store(tmp_path, half_keep_bytes=4 * BODY_BYTES)
    do_idle_work(store, 0.0)
    given_up(store, 4)
    do_idle_work(store, 1.0)
    assert kept_bodies(store, 9) == [1, 2, 3, 4]
    store.close()
    remove(tmp_path, "half message 2")
    store = small_store(tmp_path, half_keep_bytes=4 * BODY_BYTES)
    given_up(store, 5)
    do_idle_work(store, 0.0)
    assert kept_bodies(store, 9) == [2, 3, 4, 5]
    store.close()
    store = small_store(tmp_path, half_keep_bytes=BODY_BYTES)
    do_idle_work(store, 0.0)
    assert kept_bodies(store, 9) == [5]
    assert_whole(store)


@pytest.mark.parametrize("rows", [3, 7, 20, 1_000])
def test_events_that_were_there_are_counted_in_steps(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart, also with a new bound, the store counts in steps. Then the bound holds."""
    monkeypatch.setattr(event_table, "FORGET_ROWS", rows)
    store = small_store(tmp_path)
    do(store, *[Journal(logged(number)) for number in range(20)])
    store.close()
    for first in (15, 25):
        store = small_store(tmp_path, event_keep_bytes=KEPT_EVENTS * EVENT_BYTES)
        store.idle(0.0)
        do(store, *[Journal(logged(number)) for number in range(5)])
        do_idle_work(store, 0.0)
        assert store.ask(EventRange()) == (first + 1, first + 11)
        do(store, *[Journal(logged(number)) for number in range(5)])
        do_idle_work(store, 0.0)
        assert store.ask(EventRange()) == (first + 6, first + 16)
        assert_whole(store)
