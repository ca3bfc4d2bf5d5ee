"""Damage is noticed on delivery, put away, reported, and never met twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from amqp_broker.persistence import Post, Purge, Retire, Return
from amqp_broker.persistence.questions import PageOf
from amqp_broker.persistence.sqlite import SqliteStore, verify_directory
from amqp_broker.persistence.store_file import DATABASE_NAME
from amqp_broker.testing.store_suite.helpers import do, do_idle_work, messages, new_queue, node_of
from tests.persistence.stores import IN_ROWS, assert_whole, edit, reopened, small_store

QUARANTINE = "SELECT queue_id, offset, reason, bytes FROM quarantine ORDER BY offset"


def filled(directory: Path) -> int:
    """A closed store with ten messages in one run and two runs of one message."""
    store = small_store(directory)
    queue_id = new_queue(store)
    do(store, Post(queue_id, messages(0, 10, size=100)))
    do(store, Post(queue_id, messages(10, 1, size=100)))
    do(store, Post(queue_id, messages(11, 1, size=100)))
    do(store, Return(queue_id, 4, 1, b"annotations"))
    store.close()
    return queue_id


def read_with_damage(store: SqliteStore, queue_id: int) -> tuple[list[int], list[int]]:
    """The delivered and the quarantined offsets of a queue, read page by page."""
    delivered: list[int] = []
    put_away: list[int] = []
    at = 0
    while at < node_of(store, queue_id).next_offset:
        page = store.ask(PageOf(queue_id, at, 3, 1 << 20))
        assert page.next_offset > at
        delivered += [record.offset for record in page.records]
        put_away += [found.offset for found in page.quarantined]
        for record in page.records:
            assert record.body.startswith(b"%d:" % record.offset)
        at = page.next_offset
    return delivered, put_away


def assert_put_away(directory: Path, queue_id: int, bad: list[int]) -> None:
    """The bad messages are reported once and the others delivered. A restart meets no bad one again."""
    assert verify_directory(directory) != []
    good = [offset for offset in range(12) if offset not in bad]
    store = small_store(directory)
    assert read_with_damage(store, queue_id) == (good, bad)
    assert read_with_damage(store, queue_id) == (good, [])
    store = reopened(store)
    assert read_with_damage(store, queue_id) == (good, [])
    node = node_of(store, queue_id)
    assert (node.message_count, node.next_offset) == (len(good), 12)
    do(store, Retire(queue_id, 0, 11), Post(queue_id, messages(12, 1)))
    assert read_with_damage(store, queue_id) == ([12], [])
    assert_whole(store)


def test_damaged_body(tmp_path: Path) -> None:
    """With one flipped bit in a body that message goes. Its neighbours in the segment are delivered."""
    queue_id = filled(tmp_path)
    damaged = "CAST(substr(bodies, 1, 350) || x'ff' || substr(bodies, 352) AS BLOB)"
    edit(tmp_path, f"UPDATE segment SET bodies={damaged} WHERE id=1")
    assert_put_away(tmp_path, queue_id, [3])
    ((found_queue, offset, reason, body),) = edit(tmp_path, QUARANTINE)
    assert (found_queue, offset, len(body)) == (queue_id, 3, 100)
    assert "checksum" in reason and body.startswith(b"3:") and b"\xff" in body


def test_damaged_single_message(tmp_path: Path) -> None:
    """The short way for runs of one message notices damage, too, also in the last run."""
    queue_id = filled(tmp_path)
    edit(tmp_path, "UPDATE segment SET bodies=x'00' WHERE id IN (2, 3)")
    assert_put_away(tmp_path, queue_id, [10, 11])


def test_what_finds_no_room_in_quarantine_is_told_once(tmp_path: Path) -> None:
    """On a full disk damage is met at each read until there is room to put it away, and is counted once."""
    store = small_store(tmp_path, body_files=IN_ROWS)
    queue_id = new_queue(store)
    do(store, Post(queue_id, messages(0, 3, size=100_000)))
    store.close()
    edit(tmp_path, "UPDATE segment SET bodies=CAST(x'ff' || substr(bodies, 2) AS BLOB)")
    store = small_store(tmp_path)
    ((pages,),) = store._connection.execute("PRAGMA page_count").fetchall()
    store._connection.execute(f"PRAGMA max_page_count={pages}").fetchall()
    pages = [store.ask(PageOf(queue_id, 0, 9, 1 << 20)) for _ in range(3)]
    assert [[lost.offset for lost in page.quarantined] for page in pages] == [[0], [], []]
    assert [page.lost_bytes for page in pages] == [100_000, 0, 0]
    assert store._unit.query(QUARANTINE) == []
    store._connection.execute("PRAGMA max_page_count=1000000").fetchall()
    page = store.ask(PageOf(queue_id, 0, 9, 1 << 20))
    assert ([record.offset for record in page.records], page.quarantined) == ([1, 2], [])
    assert [row[1] for row in store._unit.query(QUARANTINE)] == [0]


def test_damaged_directory(tmp_path: Path) -> None:
    """With a damaged directory no message of the segment can be told apart, and the whole run goes."""
    queue_id = filled(tmp_path)
    edit(tmp_path, "UPDATE segment SET directory=CAST(substr(directory, 1, 40) AS BLOB) WHERE id=1")
    assert_put_away(tmp_path, queue_id, list(range(10)))


def test_missing_segment(tmp_path: Path) -> None:
    """A run whose segment is missing goes."""
    queue_id = filled(tmp_path)
    edit(tmp_path, "DELETE FROM segment WHERE id IN (1, 3)")
    assert_put_away(tmp_path, queue_id, [*range(10), 11])


@pytest.mark.parametrize(
    "column", ["count", "segment_id", "first_position", "live_count", "bytes", "checksum"]
)
def test_damaged_index_row(tmp_path: Path, column: str) -> None:
    """A row of the index that does not match its checksum is not believed, whatever it says."""
    queue_id = filled(tmp_path)
    edit(tmp_path, f"UPDATE run SET {column}={column}+1 WHERE first_offset=0")
    store = small_store(tmp_path)
    delivered, put_away = read_with_damage(store, queue_id)
    assert delivered == [10, 11]
    assert set(range(10)) <= set(put_away)
    assert read_with_damage(store, queue_id) == ([10, 11], [])
    store.close()
    # Where the row does not tell its segment, the segment stays, and verification says so.
    left_over = ["segment 1: no run points to it"] if column == "segment_id" else []
    assert verify_directory(tmp_path) == left_over


def test_damaged_gone_bits(tmp_path: Path) -> None:
    """A settled message does not come back because a bit was flipped."""
    queue_id = filled(tmp_path)
    store = small_store(tmp_path)
    do(store, Retire(queue_id, 2, 3))
    store.close()
    edit(tmp_path, "UPDATE run SET gone=x'0400' WHERE first_offset=0")
    store = small_store(tmp_path)
    assert read_with_damage(store, queue_id)[0] == [10, 11]


def test_damaged_changed_header(tmp_path: Path) -> None:
    """Annotations are held against a checksum like bodies."""
    queue_id = filled(tmp_path)
    edit(tmp_path, "UPDATE changed SET annotations=x'00'")
    assert_put_away(tmp_path, queue_id, [4])


def test_segment_that_sqlite_cannot_read(tmp_path: Path) -> None:
    """A run with a broken chain of pages is put away. Retiring and purging damage ends no broker."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    do(store, Post(queue_id, messages(0, 200, size=1000)))
    do(store, Post(queue_id, messages(200, 2)))
    do(store, Post(queue_id, messages(202, 200, size=1000)))
    do(store, Post(queue_id, messages(402, 1)))
    store.close()
    break_chain(tmp_path)
    for sweep in (False, True):
        copy = tmp_path / f"copy{sweep}"
        copy.mkdir()
        shutil.copy(tmp_path / DATABASE_NAME, copy)
        store = small_store(copy)
        if sweep:
            do(store, Purge(queue_id), Post(queue_id, messages(403, 1)))
            do_idle_work(store, 0.0)
            assert read_with_damage(store, queue_id) == ([403], [])
        else:
            do(
                store, Retire(queue_id, 0, 199)
            )  # delivered from memory before the damage: it cannot be deleted
            assert read_with_damage(store, queue_id) == ([200, 201, 402], list(range(202, 402)))
        store.close()
        store = small_store(copy)
        assert read_with_damage(store, queue_id)[1] == []
        store.close()


def break_chain(directory: Path) -> None:
    """Point the overflow chains of both large segments at a page beyond the end of the file."""
    path = directory / DATABASE_NAME
    data = bytearray(path.read_bytes())
    pages = len(data) // 8192
    broken = 0
    for number in range(1, pages):
        page = number * 8192
        following = int.from_bytes(data[page : page + 4], "big")
        if following == number + 2 and b":...." in data[page + 4 : page + 1100]:
            data[page : page + 4] = (pages + 1000).to_bytes(4, "big")
            broken += 1
    assert broken > 10
    path.write_bytes(data)
