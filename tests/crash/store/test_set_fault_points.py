"""Kills on the way of an epoch: its sets are moved and its decision is kept, or neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from amqp_broker.persistence import Configure, DecideEpoch, DecisionsOf, Move, Post, Retire
from amqp_broker.persistence.fault_points import FAULT_POINTS
from amqp_broker.persistence.sqlite import check_directory
from amqp_broker.testing.store_suite.helpers import do, do_idle_work, messages, new_queue, node_of, read_all
from amqp_broker.testing.store_suite.sets import AT_MS, decision, sharded_decision
from tests.persistence.stores import killed_at, passed_points, small_store

# Epoch n: three sets of n+1 messages each in several posts, of the second one each third message is retired
# again, all sealed; then, in one group with a post to the same queue, the first two move behind one another,
# the third is voided, and the decision is kept. Every fourth one has housekeeping after it.
WORK = """
import sys
from pathlib import Path
from amqp_broker.persistence import Configure, CreateNode, DecideEpoch, DeleteNode, Move, Post, Record, Retire
from amqp_broker.persistence.sqlite import SqliteStore
from amqp_broker.testing.store_suite.helpers import do, do_idle_work, do_units, new_queue
from amqp_broker.testing.store_suite.sets import AT_MS, decision, sharded_decision

store = SqliteStore(Path(sys.argv[1]), ballast_bytes=0, checkpoint_bytes=64 * 1024)
target = new_queue(store)
offset = 0
for epoch in range(12):
    sets = [new_queue(store, f"set{epoch}.{which}") for which in range(3)]
    for which, queue_id in enumerate(sets):
        for at in range(epoch + 1):
            do(store, Post(queue_id, [Record(at, b"%d.%d.%d" % (epoch, which, at))]))
    gone = [at for at in range(epoch + 1) if at % 3 == 1]
    do(store, *[Retire(sets[1], at, at) for at in gone])
    do(store, *[Configure(queue_id, {"sealed": True}) for queue_id in sets])
    print("begin", epoch, flush=True)
    second = offset + 1 + epoch + 1
    do_units(store, [
        [Post(target, [Record(offset, b"%d" % epoch)])],
        [Move(sets[0], target, offset + 1, AT_MS), Move(sets[1], target, second, AT_MS),
         DeleteNode(sets[2]), DecideEpoch(sharded_decision(epoch))],
    ])
    offset = second + epoch + 1 - len(gone)
    print("done", epoch, flush=True)
    if epoch % 4 == 3:
        do_idle_work(store, 0.0)
store.close()
"""

VERBS = ("move", "epoch")
POINTS = [point for point in FAULT_POINTS if point.startswith(VERBS)]
PASSES = [(point, nth) for point in POINTS for nth in (1, 7)]
PASSES += [(point, 2) for point in FAULT_POINTS if point.startswith(("sweep", "checkpoint"))]
PASSES += [("commit.before", 80), ("commit.after", 150), ("apply.done", 211)]


def bodies_of(epoch: int) -> list[bytes]:
    """The bodies that an epoch leaves in the queue, in order."""
    first = [b"%d.0.%d" % (epoch, at) for at in range(epoch + 1)]
    return [b"%d" % epoch, *first, *[b"%d.1.%d" % (epoch, at) for at in range(epoch + 1) if at % 3 != 1]]


@pytest.mark.parametrize(("point", "nth"), PASSES)
def test_kill(point: str, nth: int, tmp_path: Path) -> None:
    """Each epoch is there wholly, once and in order, with its decision, or its sets are as they were."""
    lines = [line.split() for line in killed_at(point, nth, WORK, tmp_path / "data")]
    done = sum(word == "done" for word, _ in lines)
    assert check_directory(tmp_path / "data") == []
    store = small_store(tmp_path / "data")
    decided = store.ask(DecisionsOf("g", "p", 100))
    epochs = len(decided)
    assert epochs in (done, len(lines) - done), f"{epochs} epochs are there, {done} were promised"
    if point.startswith(VERBS):
        assert epochs == done + point.endswith("after_commit"), "it is there from its COMMIT on"
    assert decided == [sharded_decision(epoch) for epoch in reversed(range(epochs))]
    nodes = {node.name: node for node in store.recover().nodes}
    target = nodes.pop("orders")
    found = [record.body for record in read_all(store, target.queue_id)]
    assert found == [body for epoch in range(epochs) for body in bodies_of(epoch)]
    assert target.next_offset == len(found) == target.message_count
    assert all(name.startswith(f"set{epochs}.") for name in nodes), "sets of a decided epoch are gone"
    if len(lines) - done > epochs:
        assert [node.settings for node in nodes.values()] == [{"sealed": True}] * 3
    do_idle_work(store, 0.0)
    assert [record.body for record in read_all(store, target.queue_id)] == found
    store.close()
    assert check_directory(tmp_path / "data") == []


def test_other_groups_pass_none_of_them(tmp_path: Path) -> None:
    """Only epochs pass the points of an epoch. A set without messages has no rows to move."""
    with passed_points(POINTS) as passed:
        store = small_store(tmp_path)
        target, one, two = (new_queue(store, name) for name in ("orders", "one", "two"))
        do(store, Post(one, messages(0, 5)), Retire(one, 0, 1), Configure(one, {"a": 1}))
        do(store, Move(two, target, 0, AT_MS))
        assert passed == []
        do(store, Move(one, target, 0, AT_MS))
        assert passed == ["move.before_rows", "move.after_rows"]
        do(store, DecideEpoch(decision(1)))
        assert passed == POINTS
        assert node_of(store, target).message_count == 3
        store.close()
