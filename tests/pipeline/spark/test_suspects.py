"""A thing that is not suspected is one in which its judge finds nothing: faults by chance in random logs."""

from __future__ import annotations

import random
from typing import Any, Final

import pytest

from amqp_broker.pipeline.audits import suspects
from amqp_broker.pipeline.audits.judging import JUDGES, Judge, judged
from amqp_broker.pipeline.audits.messages import messages
from amqp_broker.pipeline.audits.transactions import halves
from tests.pipeline.events_with_faults import log_with_faults
from tests.pipeline.plain_audit import in_turn, plain, sight_of
from tests.pipeline.planter import Log, planted
from tests.pipeline.real_logs import random_log
from tests.pipeline.spark.frames import event_frame, for_few_rows
from tests.pipeline.truthful_day import Event, clock, numbered_events, truthful_world

PLANTED: Final = 120
OWN: Final = ("address", "group", "txn_id")
"""A log that is one of many has these for itself."""


def together(logs: list[Log]) -> list[Event]:
    """One log of all of them, which share nothing."""
    return numbered_events(
        {**event, **{name: f"{number}-{event[name]}" for name in OWN if event.get(name) is not None}}
        for number, log in enumerate(logs)
        for event in log
    )


@pytest.fixture(scope="module")
def log() -> list[Event]:
    """Random logs and a truthful day, each with a change in it; and all faults that have a name."""
    chance = random.Random(90_125)
    logs = [random_log(1), truthful_world("day", clock()).events]
    changed = [planted(chance.choice(logs), chance)[1] for _ in range(PLANTED)]
    return together([*changed, log_with_faults()[0]])


@pytest.fixture(scope="module", params=[1, 2_000], ids=["whole", "cut"])
def frames(request: pytest.FixtureRequest, spark: Any, log: list[Event]) -> Any:
    """The log, whole or from its middle on, and what is suspected in it."""
    rows = sorted(plain(log[request.param - 1 :]), key=lambda event: int(event["lsn"]))
    sight = sight_of(rows, drained=True)
    with for_few_rows(spark):
        frame = event_frame(spark, log[request.param - 1 :]).cache()
        found = suspects.of_all(frame, messages(frame), halves(frame), sight)
        keys = {judge: {tuple(row) for row in of_it().collect()} for judge, of_it in found.items()}
        frame.unpersist()
    return rows, sight, keys


@pytest.mark.parametrize("judge", [judge for judge in JUDGES if judge.__name__ != "Producer"])
def test_who_is_not_suspected_has_done_nothing(frames: Any, judge: type[Judge]) -> None:
    """The judge finds the same in those that are suspected as in all; and not all are."""
    rows, sight, keys = frames
    suspected = [row for row in rows if tuple(row[name] for name in judge.KEY) in keys[judge]]
    everything = list(judged(judge, in_turn(judge, rows), sight))
    assert list(judged(judge, in_turn(judge, suspected), sight)) == everything
    assert everything or judge.__name__ == "Consumer"
    there = {tuple(row[name] for name in judge.KEY) for row in rows if judge.takes(row)}
    assert len(keys[judge]) < 0.6 * len(there), (len(keys[judge]), len(there))
