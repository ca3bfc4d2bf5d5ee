"""Kills on the way of a half message, of its decision and of a stream's position, and where old ones go."""

from __future__ import annotations

from pathlib import Path

import pytest

from amqp_broker.persistence import (
    Advance,
    Event,
    EventsFrom,
    ForgetStream,
    HalfBodyOf,
    HalfOf,
    Journal,
    Post,
    Reschedule,
    Retire,
    Stream,
    StreamOf,
)
from amqp_broker.persistence.fault_points import FAULT_POINTS
from amqp_broker.persistence.halves import COMMITTED, PARKED, PREPARED, ROLLED_BACK
from amqp_broker.persistence.sqlite import SqliteStore, check_directory
from amqp_broker.testing.store_suite.halves import GROUP, body, decide, half_id, hold
from amqp_broker.testing.store_suite.helpers import do, messages, new_queue, read_all
from tests.persistence.stores import killed_at, passed_points, small_store

# Group n puts half n, commits half n-1 or rolls it back (every third), posts its message with the commit, and
# advances a stream with one message more; each with its event. Every fifth group has checkpoints and
# forgetting after it, as if days had passed. A line says which group is on its way, and which was committed.
WORK = """
import sys
from pathlib import Path
from amqp_broker.persistence import Advance, Event, Journal, Post, Stream
from amqp_broker.persistence.sqlite import SqliteStore
from amqp_broker.testing.store_suite.halves import GROUP, body, decide, half_id, hold
from amqp_broker.testing.store_suite.helpers import do, do_idle_work, do_units, messages, new_queue

store = SqliteStore(Path(sys.argv[1]), ballast_bytes=0, checkpoint_bytes=64 * 1024, event_keep_ms=86_400_000)
queue_id, plain = new_queue(store), new_queue(store, "plain")
offset = 0
for number in range(20):
    print("begin", number, flush=True)
    units = [[hold(number), Journal(Event("half.put", number, {"number": number}))]]
    if number % 3 == 0:
        units.append([decide(number - 1, "rolled-back")] if number else [])
    else:
        units.append([decide(number - 1, "committed"), Post(queue_id, messages(offset, 1))])
        offset += 1
    units[1].append(Journal(Event("half.decided", number, {"number": number - 1})))
    units.append([Post(plain, messages(number, 1)), Advance(Stream(plain, "s", "o", 1, number + 1))])
    do_units(store, units)
    print("done", number, flush=True)
    if number % 5 == 4:
        for now in (0.0, 5.0, 10 * 86_400.0):
            do_idle_work(store, number * 1_000_000.0 + now)
store.close()
"""

VERBS = ("hold", "decide", "advance")
POINTS = [point for point in FAULT_POINTS if point.startswith((*VERBS, "expire"))]
COMMON_POINTS = [point for point in FAULT_POINTS if point.startswith(("apply", "commit", "checkpoint"))]
PASSES = [(point, nth) for point in POINTS if point.startswith(VERBS) for nth in (1, 2, 9, 16)]
PASSES += [(point, nth) for point in POINTS if not point.startswith(VERBS) for nth in (1, 2, 5)]
PASSES += [(point, nth) for point in COMMON_POINTS for nth in (1, 4, 7)]


@pytest.mark.parametrize(("point", "nth"), PASSES)
def test_kill(point: str, nth: int, tmp_path: Path) -> None:
    """The group in progress is there wholly or not at all. What was committed before it is there."""
    lines = [line.split() for line in killed_at(point, nth, WORK, tmp_path / "data")]
    done = sum(word == "done" for word, _ in lines)
    assert check_directory(tmp_path / "data") == []
    store = small_store(tmp_path / "data")
    groups = number_of_groups(store)
    assert groups in (done, len(lines) - done), f"{groups} groups are there, {done} were promised"
    if point.startswith(VERBS):
        assert groups == done + point.endswith("after_commit"), "it is there from its COMMIT on"
    if len(store.recover().nodes) < 2:
        store.close()
        return
    assert_groups(store, groups)
    next_event = Journal(Event("next", 1, {}))
    do(store, hold(groups), next_event)
    assert next_event.event.seq == 2 * groups + 1
    store.close()
    assert check_directory(tmp_path / "data") == []


def number_of_groups(store: SqliteStore) -> int:
    """The groups that were committed, by the position of the stream."""
    positions = [store.ask(StreamOf(node.queue_id, "s")) for node in store.recover().nodes]
    return max([found.seq_no for found in positions if found is not None], default=0)


def assert_groups(store: SqliteStore, groups: int) -> None:
    """So many groups are there, with positions, decisions and messages. Old events may be forgotten."""
    queue_id, plain = (node.queue_id for node in store.recover().nodes)
    assert len(read_all(store, plain)) == groups
    states = [one.state if (one := store.ask(HalfOf(GROUP, half_id(n)))) else None for n in range(20)]
    forgotten = next((n for n, state in enumerate(states) if state is not None), 0)
    assert forgotten % 5 in (0, 4) or forgotten == 0, states
    decided = [ROLLED_BACK if n % 3 == 2 else COMMITTED for n in range(groups - 1)]
    expected: list[str | None] = [*decided, PREPARED] if groups else []
    assert states[forgotten:groups] == expected[forgotten:]
    assert states[groups:] == [None] * (20 - groups)
    assert len(read_all(store, queue_id)) == decided.count(COMMITTED)
    for number in range(forgotten, groups):
        held = body(number) if states[number] == PREPARED else None
        assert store.ask(HalfBodyOf(GROUP, half_id(number))) == held
    events = store.ask(EventsFrom(0, 100))
    assert [one.seq for one in events] == [*range(2 * groups + 1 - len(events), 2 * groups + 1)]


def test_other_groups_pass_none_of_them(tmp_path: Path) -> None:
    """Only puts pass the points of a put. It is the same for decisions and positions."""
    with passed_points(POINTS) as passed:
        store = small_store(tmp_path)
        queue_id = new_queue(store)
        do(store, Post(queue_id, messages(0, 5)), Retire(queue_id, 0, 1), Journal(Event("k", 1, {})))
        do(store, ForgetStream(queue_id, "s"))
        assert passed == []
        do(store, hold(1), hold(2))
        assert passed == [point for point in POINTS if point.startswith("hold")]
        passed.clear()
        do(store, Reschedule(GROUP, half_id(1), PARKED, 1, 2, 3))
        assert passed == []
        do(store, decide(1, COMMITTED))
        assert passed == [point for point in POINTS if point.startswith("decide")]
        passed.clear()
        do(store, Advance(Stream(queue_id, "s", "o", 1, 1)))
        assert passed == [point for point in POINTS if point.startswith("advance")]
        store.close()
