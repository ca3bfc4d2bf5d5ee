"""Wherever in a store's file a bit is flipped: what is read is as it was stored, or the damage is told.

Hundreds of damaged files for each kind of row; that each single kind of damage is told is tested in
`tests/persistence`.
"""

from __future__ import annotations

import random
from pathlib import Path

from amqp_broker.persistence import Decision, Half, Post, Record, Retire, RowDamaged, StoreError, StoreFailed
from amqp_broker.persistence.questions import (
    DecisionOf,
    EventsFrom,
    HalfBodyOf,
    HalfOf,
    PageOf,
    StreamOf,
)
from amqp_broker.persistence.salvage import salvage
from amqp_broker.persistence.sqlite import SqliteStore, StoreCorrupt, StoreTooNew, verify_directory
from amqp_broker.persistence.store_file import DATABASE_NAME
from amqp_broker.testing.store_suite.halves import GROUP, body, half_id
from amqp_broker.testing.store_suite.helpers import do, do_units, new_queue
from amqp_broker.testing.store_suite.sets import decision
from tests.persistence.stores import flipped_files, flipped_stores, small_store
from tests.persistence.test_event_damage import fill as fill_events
from tests.persistence.test_half_damage import event_of
from tests.persistence.test_half_table import fill as fill_halves
from tests.persistence.test_half_table import stream
from tests.persistence.test_salvage import fill as fill_queues
from tests.persistence.test_salvage import queues
from tests.persistence.test_set_damage import RUNS, moves
from tests.persistence.test_set_damage import filled as filled_sets


def test_flipped_bits_are_never_delivered(tmp_path: Path) -> None:
    """Wherever a bit is flipped, delivered messages are what was sent, and a second start works alike."""
    store = small_store(tmp_path / "sound", page_size_bytes=1024)  # few empty pages
    queue_id = new_queue(store)
    posted = {
        offset: Record(offset, random.Random(offset).randbytes(300), offset % 3, offset % 10, offset, 5)
        for offset in range(120)
    }
    do(store, Post(queue_id, [posted[offset] for offset in range(100)]))
    for offset in range(100, 120):
        do(store, Post(queue_id, [posted[offset]]))
    do(store, Retire(queue_id, 10, 19))
    store.close()
    unnoticed = refused = 0
    for damaged in flipped_files(tmp_path / "sound", 200, seed=7):
        for attempt in range(2):
            try:
                store = small_store(damaged, synchronous="OFF")
            except (StoreCorrupt, StoreFailed, StoreTooNew):
                refused += 1
                break
            try:
                count = deliver(store, posted)
                if attempt == 0 and count == 110:
                    unnoticed += 1  # free space, or what nobody relies on
            except (StoreCorrupt, StoreFailed):
                refused += 1
            finally:
                store.close()
    assert refused < 100, f"{refused} starts refused"
    assert unnoticed < 150, f"{unnoticed} without any sign"


def deliver(store: SqliteStore, posted: dict[int, Record]) -> int:
    """Read everything. Each record is as it was posted."""
    count = 0
    for node in store.recover().nodes:
        at = 0
        while at < node.next_offset and at < 200:
            page = store.ask(PageOf(node.queue_id, at, 50, 1 << 20))
            for record in page.records:
                sent = posted[record.offset]
                assert record.body == sent.body
                assert record.message_format == sent.message_format
                assert record.priority == sent.priority
                assert record.expires_at_ms == sent.expires_at_ms
                assert not 10 <= record.offset <= 19, "a settled message came back"
                count += 1
            assert page.next_offset > at
            at = page.next_offset
    return count


def test_flipped_bits_make_no_state(tmp_path: Path) -> None:
    """Wherever in the file a bit is flipped, a half message, a stream or an event is as it was stored."""
    store = small_store(tmp_path / "sound", page_size_bytes=1024)
    queue_id = fill_halves(store)
    expected: list[Half | None] = [store.ask(HalfOf(GROUP, half_id(number))) for number in range(40)]
    store.close()
    lost = reported = refused = 0
    for damaged in flipped_stores(tmp_path / "sound", 150, seed=11):
        if damaged is None:
            refused += 1
            continue
        for number in range(40):
            try:
                found = damaged.ask(HalfOf(GROUP, half_id(number)))
                lost += found is None
                assert found in (expected[number], None)
                found_body = damaged.ask(HalfBodyOf(GROUP, half_id(number)))
                assert found_body in (body(number), None)
                position = damaged.ask(StreamOf(queue_id, f"stream-{number % 10}"))
                assert position in (stream(queue_id, number % 10), None)
                for one in damaged.ask(EventsFrom(number, 3)):
                    assert one == event_of(one.seq)
            except StoreError:
                reported += 1
    assert refused < 40 and reported > 10 and lost < 100, (refused, reported, lost)


def test_flipped_bits_make_no_decision_and_no_message(tmp_path: Path) -> None:
    """Wherever a bit is flipped, moved messages and decisions are as stored, or damage is reported. A row
    whose key is hit is not found by it any more: then a whole run is missing, which verification tells.
    """
    target, one = filled_sets(tmp_path / "sound", page_size_bytes=1024)
    expected: dict[int, Decision] = {n: decision(n, ("set", n, 2**64 - 1)) for n in range(10)}
    bodies = [b"%d:" % number for number in (0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4)]
    refused = reported = unmoved = missing = 0
    for damaged in flipped_files(tmp_path / "sound", 120, seed=12):
        try:
            findings = verify_directory(damaged)
            store = small_store(damaged, synchronous="OFF")
        except StoreError:
            refused += 1
            continue
        try:
            for number in range(10):
                assert store.ask(DecisionOf("g", "p", number)) in (expected[number], None)
            errors = do_units(store, moves(target, one))
            unmoved += any(isinstance(error, RowDamaged) for error in errors)
            page = store.ask(PageOf(target, 0, 100, 1 << 20))
            found = [(record.offset, record.body.rstrip(b".")) for record in page.records]
            if found != [(offset, bodies[offset]) for offset, _ in found]:
                assert findings and of_whole_runs([body for _, body in found]), found
                missing += 1
        except StoreError:
            reported += 1
        finally:
            store.close()
    assert refused + reported < 60, f"{refused} refused, {reported} reported, {unmoved} unmoved"
    assert missing < 6, f"{missing} of 120 lost a row"


def of_whole_runs(bodies: list[bytes]) -> bool:
    """Whether these are the messages of two sets and what stands between them, but for whole runs."""
    left = [run for part in (RUNS, ((b"5:",),), RUNS) for run in part]
    while bodies:
        at = next((at for at, run in enumerate(left) if tuple(bodies[: len(run)]) == run), None)
        if at is None:
            return False
        bodies, left = bodies[len(left[at]) :], left[at + 1 :]
    return True


def test_flipped_bits_make_no_event(tmp_path: Path) -> None:
    """Wherever in the file a bit is flipped, the event of a number is the one that was written."""
    store = small_store(tmp_path / "sound", page_size_bytes=1024)
    entries = {event.seq: event for event in fill_events(store)}
    store.close()
    row = (tmp_path / "sound" / DATABASE_NAME).read_bytes().index(b'"offset":[200')
    missing = unreadable = 0
    for damaged in flipped_stores(tmp_path / "sound", 120, seed=7, near=row):
        if damaged is None:
            continue
        for first in (0, 11, 15, 22):
            try:
                found = damaged.ask(EventsFrom(first, 12))
            except RowDamaged:
                unreadable += 1
                continue
            except StoreError:
                break
            missing += len(found) < 10
            for one in found:
                assert one == entries[one.seq]
    assert missing > 10, f"{missing} pages lacked entries, {unreadable} could not be read"


def test_salvage_at_random(tmp_path: Path) -> None:
    """Any flipped bit, in forty files: what is brought out verifies and opens, or is refused as a whole;
    nearly all messages are there.
    """
    fill_queues(tmp_path / "data")
    kept = {*range(5), *range(10, 400)}
    for trial, damaged in enumerate(flipped_files(tmp_path / "data", 40, seed=7)):
        target = tmp_path / f"new{trial}"
        try:
            salvaged = salvage(damaged, target, "another")
        except StoreError:
            assert not target.exists()
            continue
        assert verify_directory(target) == salvaged.repaired.left
        store = small_store(target)
        found = queues(store)
        names = [name for name in found if name != "other"]
        assert set(found[names[0]]) <= kept and len(found[names[0]]) >= 380, (trial, salvaged)
        store.close()
