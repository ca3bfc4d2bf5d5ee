"""The low-water mark and the ballast."""

from __future__ import annotations

import os
from pathlib import Path

from amqp_broker.persistence import CreateNode, Post, Retire, StoreFull
from amqp_broker.persistence.free_space import CRITICAL_BYTES, SpaceGuard, free_bytes_of
from amqp_broker.persistence.sqlite_store import BALLAST_NAME
from amqp_broker.testing.store_suite.helpers import do, do_units, messages, new_queue, offsets
from tests.persistence.stores import MIB, small_store


class Disk:
    """A disk with as much room as the test says."""

    def __init__(self, free: int) -> None:
        self.free = free

    def __call__(self) -> int:
        return self.free


def test_below_the_low_water_mark_posts_are_refused_and_settling_goes_on(tmp_path: Path) -> None:
    """Units with new messages get StoreFull, until there is a quarter more room than the mark."""
    disk = Disk(1000 * MIB)
    store = small_store(tmp_path, low_water_bytes=100 * MIB, free_bytes=disk)
    queue_id = new_queue(store)
    do(store, Post(queue_id, messages(0, 5)))
    for free, taken in ((99, False), (101, False), (124, False), (126, True), (101, True), (99, False)):
        disk.free = free * MIB
        first = store.recover().nodes[0].next_offset
        oldest = offsets(store, queue_id)[0]
        answers = do_units(
            store,
            [
                [Retire(queue_id, oldest, oldest)],
                [Post(queue_id, messages(first, 1)), CreateNode("left over", "queue")],
                [CreateNode(f"at {free}", "queue")] if free == 124 else [],
            ],
        )
        assert [type(answer) for answer in answers] == [
            type(None),
            type(None) if taken else StoreFull,
            type(None),
        ]
        assert offsets(store, queue_id)[0] == oldest + 1
        assert store.space.refusing is not taken
        if taken:
            break
    names = [node.name for node in store.recover().nodes]
    assert names == ["orders", "at 124", "left over"]


def test_ballast_is_dropped_at_the_last_moment_and_comes_back(tmp_path: Path) -> None:
    """Only when nearly nothing is free the ballast goes. It returns with room for both above the mark."""
    disk = Disk(1000 * MIB)
    store = small_store(tmp_path, low_water_bytes=100 * MIB, ballast_bytes=8 * MIB, free_bytes=disk)
    queue_id = new_queue(store)
    ballast = tmp_path / BALLAST_NAME
    assert os.stat(ballast).st_blocks * 512 >= 8 * MIB, "the ballast takes real room"
    seen = []
    for free in (1000 * MIB, 50 * MIB, CRITICAL_BYTES - 1, 50 * MIB, 132 * MIB, 134 * MIB):
        disk.free = free
        first = store.recover().nodes[0].next_offset
        do_units(store, [[Post(queue_id, messages(first, 1))]])
        store.idle(0.0)
        assert ballast.exists() is store.space.ballast_present
        seen.append(ballast.exists())
    assert seen == [True, True, False, False, False, True]
    store.close()
    assert ballast.exists()


def test_full_disk_drops_the_ballast(tmp_path: Path) -> None:
    """When SQLite finds the disk full, the ballast goes, and the group did not happen."""
    disk = Disk(1000 * MIB)
    store = small_store(tmp_path, ballast_bytes=8 * MIB, free_bytes=disk)
    queue_id = new_queue(store)
    store._connection.execute("PRAGMA max_page_count=20").fetchall()
    try:
        store.apply([[Post(queue_id, messages(0, 1000, size=1000))]])
        raise AssertionError("expected StoreFull")
    except StoreFull:
        assert not (tmp_path / BALLAST_NAME).exists()
    answers = do_units(store, [[Post(queue_id, messages(0, 1))], [Retire(queue_id, 0, 0)]])
    assert [type(answer) for answer in answers] == [StoreFull, type(None)]


def test_ballast_that_finds_no_room_is_left_out(tmp_path: Path) -> None:
    """A start on a nearly full disk works without ballast. Ballast of another size is made again."""
    guard = SpaceGuard(str(tmp_path / "b"), 100, MIB, Disk(MIB))
    assert not guard.state().ballast_present and not (tmp_path / "b").exists()
    (tmp_path / "b").write_bytes(b"cut short")
    guard = SpaceGuard(str(tmp_path / "b"), 100, MIB, Disk(100 * MIB))
    assert guard.state().ballast_present and (tmp_path / "b").stat().st_size == MIB


def test_room_on_the_disk() -> None:
    """The room is what statvfs says an ordinary user may write."""
    assert free_bytes_of("/") > 0
