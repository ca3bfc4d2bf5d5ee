"""Kills on the way of a policy, an archived message, a drop and a cursor: each is there wholly, or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from amqp_broker.persistence import Cursor, CursorsOf, MoveCursor, Post, Retain, RetainedBy, Retire
from amqp_broker.persistence.fault_points import FAULT_POINTS
from amqp_broker.persistence.sqlite import SqliteStore, check_directory
from amqp_broker.testing.store_suite.events import event
from amqp_broker.testing.store_suite.helpers import (
    do,
    do_idle_work,
    messages,
    new_queue,
    offsets,
    read_all_retained,
)
from tests.persistence.stores import killed_at, passed_points, small_store

# Group n posts five messages, retires those of the group before but the last one, moves a cursor to n, and
# sets the bound of 20 + n kilobytes, each message having one; after it everything is dropped that is over.
# Two lines tell that a group is on its way, and that it was committed.
WORK = """
import sys
from pathlib import Path
from amqp_broker.persistence import MoveCursor, Post, Retain, Retire
from amqp_broker.persistence.sqlite import SqliteStore
from amqp_broker.testing.store_suite.helpers import do, do_idle_work, messages, new_queue

store = SqliteStore(Path(sys.argv[1]), ballast_bytes=0, checkpoint_bytes=128 * 1024)
queue_id = new_queue(store)
do(store, Retain(queue_id, 0, 20_000))
for number in range(16):
    print("begin", number, flush=True)
    first = 5 * number
    do(
        store,
        Post(queue_id, messages(first, 5, size=1000)),
        Retire(queue_id, first - 5, first - 2),
        MoveCursor("c", queue_id, number, number),
        Retain(queue_id, 0, 20_000 + 1000 * number),
    )
    do(store, Retire(queue_id, first - 6, first - 6))
    print("done", number, flush=True)
    do_idle_work(store, 0.0)
store.close()
"""
POINTS = [point for point in FAULT_POINTS if point.startswith(("retain", "cursor"))]
PASSES = [(point, nth) for point in POINTS for nth in (1, 2, 5, 9)]
PASSES += [(point, nth) for point in ("apply.done", "commit.before", "commit.after") for nth in (6, 20)]


@pytest.mark.parametrize(("point", "nth"), PASSES)
def test_kill(point: str, nth: int, tmp_path: Path) -> None:
    """Messages, the cursor and the bound are of the same group. What was promised is there."""
    lines = [line.split() for line in killed_at(point, nth, WORK, tmp_path)]
    done = sum(word == "done" for word, _ in lines)
    assert check_directory(tmp_path) == []
    store = small_store(tmp_path)
    nodes = store.recover().nodes
    groups = nodes[0].next_offset // 5 if nodes else 0
    assert groups in (done, len(lines) - done), f"{groups} groups are there, {done} were promised"
    if nodes:
        assert_groups(store, nodes[0].queue_id, groups)
    store.close()
    assert check_directory(tmp_path) == []


def assert_groups(store: SqliteStore, queue_id: int, groups: int) -> None:
    """So many groups are there, and after a sweep the messages that have to be."""
    last = groups - 1
    assert store.ask(CursorsOf("c")) == ([Cursor("c", queue_id, last, last)] if groups else [])
    retained = store.ask(RetainedBy(queue_id))
    if not groups:
        return
    assert retained is not None and retained.keep_bytes == 20_000 + 1000 * last
    live = offsets(store, queue_id)
    assert live[-5:] == [*range(5 * last, 5 * groups)]
    assert set(live[:-5]) <= {5 * last - 6, 5 * last - 1}, live
    found, missing = read_all_retained(store, queue_id)
    assert missing == [] and found[-1][1] == 5 * groups - 1
    assert len(found) >= min(5 * groups, 20 + last - 5)
    do_idle_work(store, 0.0)
    found, missing = read_all_retained(store, queue_id)
    assert missing == [] and len(found) == min(5 * groups, (20 + last) // 5 * 5)
    do(store, Post(queue_id, messages(5 * groups, 1)), Retire(queue_id, 0, 1 << 40))
    assert read_all_retained(store, queue_id)[0][-1][1] == 5 * groups


def test_other_groups_pass_none_of_them(tmp_path: Path) -> None:
    """A group without retention and cursors passes none of these points."""
    with passed_points(POINTS) as passed:
        store = small_store(tmp_path)
        queue_id = new_queue(store)
        do(store, Post(queue_id, messages(0, 5)), Retire(queue_id, 0, 1), event(1))
        do_idle_work(store, 1e9)
        assert passed == []
        do(store, MoveCursor("c", queue_id, 1, 1))
        assert passed == [point for point in POINTS if point.startswith("cursor")]
        passed.clear()
        do(store, Retain(queue_id, 0, 1))
        assert passed == [point for point in POINTS if point.startswith("retain") and "drop" not in point]
        store.close()


# Group n posts three messages to a log and moves two of a set behind them; all five are retired in the
# unit that brings them, as a log has it. Between groups what is beyond 20 kilobytes is dropped.
LOG_WORK = """
import sys
from pathlib import Path
from amqp_broker.persistence import CreateNode, Move, Post, Retire
from amqp_broker.persistence.sqlite import SqliteStore
from amqp_broker.testing.store_suite.helpers import do, do_idle_work, messages, new_queue

store = SqliteStore(Path(sys.argv[1]), ballast_bytes=0, checkpoint_bytes=128 * 1024)
create = CreateNode("log", "queue", keep_bytes=20_000)
do(store, create)
log = create.queue_id
for number in range(16):
    staged = new_queue(store, f"set {number}")
    do(store, Post(staged, messages(0, 2, size=1000)))
    print("begin", number, flush=True)
    first = 5 * number
    do(
        store,
        Post(log, messages(first, 3, size=1000)),
        Retire(log, first, first + 2),
        Move(staged, log, first + 3, number),
        Retire(log, first + 3, first + 4),
    )
    print("done", number, flush=True)
    do_idle_work(store, 0.0)
store.close()
"""
LOG_PASSES = [(point, 1) for point in POINTS if point.startswith("retain") and "drop" not in point]
LOG_PASSES += [(point, nth) for point in POINTS if "drop" in point for nth in (1, 2, 5)]
LOG_PASSES += [(point, nth) for point in ("move.before_rows", "move.after_rows") for nth in (1, 5)]
LOG_PASSES += [(point, nth) for point in ("apply.done", "commit.before", "commit.after") for nth in (7, 20)]


@pytest.mark.parametrize(("point", "nth"), LOG_PASSES)
def test_kill_of_a_log(point: str, nth: int, tmp_path: Path) -> None:
    """No message of a log is ever live, its offsets have no holes, and what was promised is there."""
    words = [line.split()[0] for line in killed_at(point, nth, LOG_WORK, tmp_path)]
    assert check_directory(tmp_path) == []
    store = small_store(tmp_path)
    logs = [node for node in store.recover().nodes if node.name == "log"]
    begun, done = words.count("begin"), words.count("done")
    assert logs or not begun
    for node in logs:
        assert node.next_offset in (5 * done, 5 * begun) and node.message_count == 0
        retained = store.ask(RetainedBy(node.queue_id))
        assert retained is not None and retained.keep_bytes == 20_000
        found, missing = read_all_retained(store, node.queue_id)
        assert missing == [] and retained.first_offset <= max(0, node.next_offset - 20)
        assert [each[1] for each in found] == [*range(retained.first_offset, node.next_offset)]
    store.close()
    assert check_directory(tmp_path) == []
