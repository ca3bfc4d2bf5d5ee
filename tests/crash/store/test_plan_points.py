"""Kills at the named points on the way of a plan: the store holds what its book says, and goes on."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from amqp_broker.persistence import (
    Advance,
    Configure,
    DecideEpoch,
    ForgetStream,
    ForgetTerminus,
    ForgetUnsettled,
    KeepTerminus,
    KeepUnsettled,
    Move,
    MoveCursor,
    Post,
    Reschedule,
    Retain,
    Retire,
    StoredTerminus,
    Stream,
    Verb,
)
from amqp_broker.persistence.fault_points import FAULT_POINTS
from amqp_broker.persistence.halves import COMMITTED, PARKED
from amqp_broker.persistence.sqlite import SqliteStore, verify_directory
from amqp_broker.testing.store_suite.events import event
from amqp_broker.testing.store_suite.halves import GROUP, decide, half_id, hold
from amqp_broker.testing.store_suite.helpers import do, do_idle_work, messages, new_queue
from amqp_broker.testing.store_suite.sets import AT_MS, decision
from tests.persistence.stores import killed_at, passed_points, small_store
from tests.power_loss.plan import Plan, make_plan
from tests.power_loss.workload import Executor, open_store
from tests.power_loss.workloads import MESSAGES, RESUMPTION, SETS, WORKLOADS
from tests.promises.book import Book, differences
from tests.promises.facts import SMALL_PAGE, facts_of

GROUPS = 80
WORK = """
import sys
from tests.power_loss.workload import main
sys.argv[1:] = [sys.argv[1] + "/data", sys.argv[1] + "/plan", "/dev/stdout"]
main()
"""
VERBS = {
    MESSAGES: ("discharge", "hold", "decide", "advance"),
    SETS: ("move", "epoch", "cursor", "retain"),
    RESUMPTION: ("terminus",),
}
"""The points that a group passes for what it holds, by the word before the dot."""
ANY = ("apply", "commit", "checkpoint", "expire", "forget", "sweep", "migration")
NTH = {MESSAGES: (1, 2, 5, 9), SETS: (1, 2, 5), RESUMPTION: (1, 2, 5, 9)}
PASSES = [
    (workload, point, nth)
    for workload, words in VERBS.items()
    for point in FAULT_POINTS
    for nth in (NTH[workload] if point.startswith(words) else (1, 4) if point.startswith(ANY) else ())
    if workload != RESUMPTION or point.startswith(words)
    if (nth == 1 or not point.startswith("migration"))
    and (workload == MESSAGES or not point.startswith("forget"))
]


@pytest.fixture(scope="module")
def plans() -> dict[str, Plan]:
    return {name: make_plan(kind, 1, GROUPS) for name, kind in WORKLOADS.items()}


def assert_kept(store: SqliteStore, book: Book) -> None:
    assert differences(facts_of(store, SMALL_PAGE), book.promised()) == []


@pytest.mark.parametrize(("workload", "point", "nth"), PASSES)
def test_kill(plans: dict[str, Plan], workload: str, point: str, nth: int, tmp_path: Path) -> None:
    """The group in progress is there wholly or not at all, from its COMMIT on. All before it is there."""
    plan = plans[workload]
    event_bytes = plan.book.bound.event_bytes
    (tmp_path / "plan").write_bytes(pickle.dumps((plan.groups, 0, event_bytes)))
    told = "".join(killed_at(point, nth, WORK, tmp_path))
    begun, done = told.count("begin"), told.count("done")
    if point.startswith(VERBS[workload]) and "drop" not in point:
        begun = done = done + point.endswith("after_commit")
    assert verify_directory(tmp_path / "data") == []
    store = open_store(tmp_path / "data", event_keep_bytes=event_bytes)
    found = facts_of(store, SMALL_PAGE)
    kept = [each for each in plan.promised[done : begun + 1] if not differences(found, each)]
    assert kept, differences(found, plan.promised[begun])
    more = make_plan(WORKLOADS[workload], point, 2, plan.book.until(kept[-1].pages))
    executor = Executor(store, more.rests)
    executor.run(more.groups, lambda words: None)
    assert_kept(store, more.book)
    executor.rest()
    more.book.end_group(rests=True)
    more.book.end_group()  # it has swept what it has to
    assert_kept(store, more.book)
    store.close()
    assert verify_directory(tmp_path / "data") == []


def points_of(*words: str) -> list[str]:
    """Those that begin with one of these words."""
    return [point for point in FAULT_POINTS if point.startswith(words)]


def test_each_verb_passes_its_points_and_no_others(tmp_path: Path) -> None:
    """Only puts pass the points of a put; it is the same for all other verbs."""
    store = small_store(tmp_path)
    queue_id, target, one, two = (new_queue(store, name) for name in ("orders", "target", "one", "two"))
    seen: list[tuple[tuple[Verb, ...], list[str]]] = [
        ((Post(queue_id, messages(0, 5)), Retire(queue_id, 0, 1), event(1), Configure(one, {"a": 1})), []),
        ((Post(one, messages(0, 5)), Retire(one, 0, 1), ForgetStream(queue_id, "s")), []),
        ((hold(1), hold(2)), points_of("hold")),
        ((Reschedule(GROUP, half_id(1), PARKED, 1, 2, 3),), []),
        ((decide(1, COMMITTED),), points_of("decide")),
        ((Advance(Stream(queue_id, "s", "o", 1, 1)),), points_of("advance")),
        ((Move(two, target, 0, AT_MS),), []),  # without messages there are no rows to move
        ((Move(one, target, 0, AT_MS),), points_of("move")),
        ((DecideEpoch(decision(1)),), points_of("epoch")),
        ((MoveCursor("c", queue_id, 1, 1),), points_of("cursor")),
        ((KeepTerminus(StoredTerminus(1, "u", "c", "l", "never", 1)),), points_of("terminus")),
        ((KeepUnsettled(1, {b"a": b""}), Post(queue_id, messages(5, 1))), points_of("terminus")),
        ((ForgetUnsettled(1, [b"a"]),), points_of("terminus")),
        ((ForgetTerminus(1),), points_of("terminus")),
        ((Retain(queue_id, 0, 1),), [point for point in points_of("retain") if "drop" not in point]),
    ]
    do_idle_work(store, 1e9)
    for verbs, expected in seen:
        with passed_points(points_of(*sum(VERBS.values(), ()))) as passed:
            do(store, *verbs)
        assert passed == expected, verbs
    store.close()
