"""Kills at every named point: what was committed is there, wholly, and the file is sound."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from amqp_broker.persistence import Discharged, Post, Retire, fault_points
from amqp_broker.persistence.fault_points import FAULT_POINTS, arm, disarm, fault_point
from amqp_broker.persistence.open_bodies import PREFIX
from amqp_broker.persistence.questions import DischargedAt, PageOf
from amqp_broker.persistence.sqlite import SqliteStore, verify_directory
from amqp_broker.testing.store_suite.helpers import do, messages, new_queue, offsets
from tests.persistence.stores import edit, killed_at, passed_points, small_store

LEDGER_POINTS = ("hold", "decide", "advance", "epoch", "cursor", "terminus")
"""What a group has of `pass_points` (`ledger.py`), around its COMMIT."""

# Transactions (the outcomes of 16 are kept) that post 20 large messages and retire all but one of the 20
# before, so that segments become sparse, and some that stay in files with little else, or in a file of their
# own, to which they came piece by piece; a purge; a damaged message; a backup. After each commit one line
# says what is promised: (offsets kept, next_offset).
WORK = """
import json, sys
from pathlib import Path
from amqp_broker.persistence import CreateNode, Discharged, LargeRecord, Post, PostLarge, Purge, Retire
from amqp_broker.persistence.body_files import BodyFileSizes
from amqp_broker.persistence.questions import PageOf
from amqp_broker.persistence.sqlite import SqliteStore
from amqp_broker.testing.store_suite.helpers import do, do_idle_work, messages, new_queue

path = Path(sys.argv[1])
store = SqliteStore(path / "data", ballast_bytes=0, checkpoint_bytes=256 * 1024, discharge_keep_count=16,
                    body_files=BodyFileSizes(file=400_000))
def promise(kept, first):
    print(json.dumps([kept, first]), flush=True)
do(store, CreateNode("orders", "queue"), CreateNode("other", "queue"))
queue_id, other = [node.queue_id for node in store.recover().nodes]
def large(record):
    spool, body = store.begin_spool(), record.body
    record.body = body[:9]
    for piece in (record.body, body[9:99], body[99:]):
        spool.write(piece)
    spool.finish()
    return spool, PostLarge(other, LargeRecord(record, spool.tail(record.body)))
promise([], 0)
kept, first = [], 0
for group in range(24):
    print(json.dumps("next"), flush=True)
    (record,) = messages(group, 1, size=10 if group % 6 else 30_000)
    spool, post = large(record) if group % 2 else (None, Post(other, [record]))
    do(store, Post(queue_id, messages(first, 20, size=5000)), Retire(queue_id, first - 19, first - 1),
       post, Discharged(b"%d" % group, group))
    if spool is not None:
        store.end_spool(spool, stored=True)
    kept = [offset for offset in kept if offset % 20 == 0] + list(range(first, first + 20))
    first += 20
    promise(kept, first)
    if group % 6 == 5:
        do_idle_work(store, 0.0)
    elif store.checkpoint_due:
        store.idle(0.0)
do(store, Purge(other))
do_idle_work(store, 0.0)
do(store, Post(other, messages(24, 1)))
do(store, Purge(other))
do_idle_work(store, 0.0)
sql = "SELECT segment_id FROM run WHERE first_offset=0 AND queue_id=1"
store._connection.execute(f"UPDATE segment SET bodies=x'00' WHERE id=({sql})").fetchall()
store._reader.forget()
print(json.dumps("next"), flush=True)
store.ask(PageOf(queue_id, 0, 10, 1 << 20))
promise(kept[1:], first)
backup = store.begin_backup(path / "copy")
while store.backup_step():
    pass
backup.finish(1)
store.close()
"""


ONCE = ("migration", "quarantine", "backup")
# The other modules of fault points; `log` is passed by a command on a closed store only.
ELSEWHERE = (
    "compact.", "log.", "restore.", "salvage.", "spread.",
    "hold", "decide", "advance", "expire", "move", "epoch", "retain", "cursor", "terminus",
)  # fmt: skip
POINTS = [point for point in FAULT_POINTS if not point.startswith(ELSEWHERE)]
PASSES = [(point, 1) for point in POINTS]
PASSES += [(point, 2) for point in POINTS if not point.startswith(ONCE)]
PASSES += [(point, 9) for point in POINTS if point.startswith(("apply", "commit", "discharge"))]


@pytest.mark.parametrize(("point", "nth"), PASSES)
def test_kill(point: str, nth: int, tmp_path: Path) -> None:
    """The process dies at the point. A new one finds what was promised, and all or nothing of the group."""
    (tmp_path / "data").mkdir()
    lines = [json.loads(line) for line in killed_at(point, nth, WORK, tmp_path)]
    promised = [line for line in lines if line != "next"]
    findings = verify_directory(tmp_path / "data")
    damaged = point == "quarantine.before_commit" and nth == 1
    assert [finding for finding in findings if "offset 0" not in finding] == [] or damaged, findings
    store = small_store(tmp_path / "data")
    nodes = store.recover().nodes
    if not promised:
        assert [node.name for node in nodes] in ([], ["orders", "other"])
    else:
        kept, first = promised[-1]
        possible = [(kept, first)]
        if lines[-1] == "next" and not damaged:
            after = [offset for offset in kept if offset % 20 == 0] + list(range(first, first + 20))
            possible.append((after, first + 20))
        if damaged:
            possible = [(kept[1:], first)]
            assert store.ask(PageOf(1, 0, 1, 1)).quarantined[0].offset == 0
        found = (offsets(store, 1), nodes[0].next_offset)
        assert found in [tuple(entry) for entry in possible], f"{found} is none of {possible}"
    assert_outcomes(store, nodes[0].next_offset // 20 if nodes else 0)
    wanted = {f"{PREFIX}{number}" for (number,) in store._unit.query("SELECT file FROM segment WHERE file>0")}
    assert {path.name for path in (tmp_path / "data").glob(f"{PREFIX}*")} == wanted
    store.close()
    if (tmp_path / "copy").exists():
        assert verify_directory(tmp_path / "copy") == []
    assert edit(tmp_path / "data", "PRAGMA integrity_check") == [("ok",)]


def assert_outcomes(store: SqliteStore, committed: int) -> None:
    """Exactly the transactions whose posts are there have outcomes. The oldest may be forgotten."""
    outcomes = [store.ask(DischargedAt(b"%d" % group)) for group in range(25)]
    known = [at_ms for at_ms in outcomes if at_ms is not None]
    assert known == [*range(committed - len(known), committed)], outcomes
    assert len(known) >= min(committed, 16), outcomes


# Each group posts a message to each of eight queues, and retires what four of them got two groups before, so
# that rows are changed, and go, and those of the others are gathered.
WORK_FOR_MANY = """
import json, sys
from pathlib import Path
from amqp_broker.persistence import Post, Retire
from amqp_broker.persistence.spreads import SpreadSizes
from amqp_broker.persistence.sqlite import SqliteStore
from amqp_broker.testing.store_suite.helpers import do_units, messages, new_queue

store = SqliteStore(Path(sys.argv[1]), ballast_bytes=0, spread=SpreadSizes(most=40, gathered=20))
queues = [new_queue(store, f"q{number}") for number in range(8)]
print(json.dumps(0), flush=True)
for group in range(24):
    posts = [[Post(each, messages(group, 1))] for each in queues]
    retires = [[Retire(each, group - 2, group - 2)] for each in queues[:4] if group > 1]
    assert do_units(store, [*posts, *retires]) == [None] * len([*posts, *retires])
    print(json.dumps(group + 1), flush=True)
    if store.checkpoint_due:
        store.idle(0.0)
store.close()
"""


@pytest.mark.parametrize("nth", [1, 2, 5])
@pytest.mark.parametrize("point", [point for point in FAULT_POINTS if point.startswith("spread.")])
def test_kill_amid_many_queues(point: str, nth: int, tmp_path: Path) -> None:
    """All of a group is there or nothing, in all of its queues, and whatever was spread is where it belongs.
    """
    (tmp_path / "data").mkdir()
    groups = int(json.loads(killed_at(point, nth, WORK_FOR_MANY, tmp_path / "data")[-1]))
    assert verify_directory(tmp_path / "data") == []
    store = small_store(tmp_path / "data")
    queues = [node.queue_id for node in store.recover().nodes]
    found = [offsets(store, each) for each in queues]
    possible = [
        [[*range(max(0, done - 2), done)]] * 4 + [[*range(done)]] * 4 for done in (groups, groups + 1)
    ]
    assert found in possible, f"{found} is none of {possible}"
    assert {node.next_offset for node in store.recover().nodes} == {len(found[-1])}
    store.close()
    assert verify_directory(tmp_path / "data") == []


def test_points_are_quiet_unless_armed() -> None:
    """An armed point acts once, when it is passed for the n-th time."""
    seen: list[str] = []
    fault_point("commit.before")
    arm("commit.before", lambda: seen.append("now"), nth=2)
    fault_point("commit.after")
    fault_point("commit.before")
    assert seen == []
    fault_point("commit.before")
    fault_point("commit.before")
    assert seen == ["now"]
    arm("commit.before", lambda: seen.append("never"))
    disarm()
    fault_point("commit.before")
    assert seen == ["now"]


def test_unknown_names_are_mistakes() -> None:
    """A misspelt point is refused, since it would never be reached."""
    with pytest.raises(AssertionError, match="no fault point"):
        arm("commit.befor")
    fault_points.arm_from_environment(None)
    fault_points.arm_from_environment("")


def test_other_groups_pass_no_point_of_a_discharge(tmp_path: Path) -> None:
    """Groups without a transaction do not pass the points of a discharge."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    with passed_points(point for point in FAULT_POINTS if point.startswith("discharge")) as passed:
        do(store, Post(queue_id, messages(0, 5)), Retire(queue_id, 0, 1))
        assert passed == []
        do(store, Post(queue_id, messages(5, 5)), Retire(queue_id, 2, 2), Discharged(b"id", 5))
    assert passed == [
        "discharge.after_retires",
        "discharge.after_posts",
        "discharge.before_record",
        "discharge.after_record",
        "discharge.before_commit",
        "discharge.after_commit",
    ]
    store.close()


def test_every_point_is_passed_somewhere() -> None:
    """The list of points and the source agree."""
    source = "".join(path.read_text() for path in Path(fault_points.__file__).parent.glob("*.py"))
    named = {f"{what}.{when}" for what in LEDGER_POINTS for when in ("before_commit", "after_commit")}
    passed = set(re.findall(r'fault_point\("([a-z._]+)"\)', source)) | named
    assert passed == set(FAULT_POINTS)
