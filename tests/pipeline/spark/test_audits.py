"""Every planted fault of every audit is found, and none is invented."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.pipeline.audits.log import malformed, malformed_sql
from amqp_broker.pipeline.audits.span import span_of
from amqp_broker.pipeline.audits.together import Bounds, all_audits
from amqp_broker.pipeline.event_schema import EVENT_COLUMNS
from tests.pipeline.events_with_faults import FAULTS, Expected, all_worlds, log_with_faults
from tests.pipeline.plain_audit import plain
from tests.pipeline.spark.frames import event_frame, for_few_rows
from tests.pipeline.truthful_day import Event, clock, numbered, truthful_world


def audited(spark: Any, events: list[Event], bounds: Bounds, *only: str) -> Expected:
    """What the audits (or only some of them) say about these events, and each thing once; times that worlds
    with faults have on purpose are left out.
    """
    with for_few_rows(spark):
        frame = event_frame(spark, events).cache()
        audits = all_audits(frame, span_of(frame), bounds)
        found = [
            (row["audit"], row["kind"], row["key"], row["detail"], row["example"])
            for name, findings in audits.findings.items()
            if not only or name in only
            for row in findings().collect()
            if row["kind"] != "time-backwards"
        ]
        audits.forget()
        frame.unpersist()
    assert all(all(part for part in each) for each in found), found
    said: Expected = {each[:3] for each in found}
    assert len(said) == len(found), sorted(found)
    return said


@pytest.fixture(scope="module")
def found(spark: Any) -> Expected:
    """What is found in a log of a truthful world and one world for each fault, where only what is suspected
    is judged, as in a large log; the other tests have small ones.
    """
    events, _ = log_with_faults()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("amqp_broker.pipeline.audits.suspects.FEW_EVENTS", 0)
        return audited(spark, events, Bounds(drained=True))


@pytest.mark.parametrize("name", ["truth", *FAULTS])
def test_exactly_what_was_planted_is_found(found: Expected, name: str) -> None:
    """In each world its fault is found with its key, and nothing else; in the truthful one nothing."""
    expected = all_worlds()[1]
    group = f"group {name}"
    mine = {each for each in found if each[2].startswith((f"{name}.", f"{group} "))}
    assert mine == expected[name]


def test_nothing_is_found_that_belongs_to_no_world(found: Expected) -> None:
    """The findings of all worlds together are all findings."""
    assert found == log_with_faults()[1]


def test_a_log_that_begins_in_the_middle_invents_nothing(spark: Any) -> None:
    """What began before the log is not judged by its beginning."""
    world = truthful_world("cut", clock())
    events = numbered([world])[40:]
    assert audited(spark, events, Bounds()) == set()


def test_holes_doubles_and_wrong_fields_of_the_log_are_found(spark: Any) -> None:
    """Numbers that are missing, also many at once, twice there, an unknown type, columns of another one."""
    events = numbered([truthful_world("log", clock())])
    last = events[-1]
    far = [{"type": "rejoice", "time": last["time"], "lsn": 200_000}]
    events[59] = {**events[59], "attempt": 0, "count": 4}
    damaged = [each for each in events if each["lsn"] not in (17, 18)] + [events[29]] + far
    found = audited(spark, damaged, Bounds(), "log")
    assert found == {
        ("log", "events-missing", "lsn 17 to 18"),
        ("log", "events-missing", f"lsn {last['lsn'] + 1} to 199999"),
        ("log", "events-double", "lsn 30"),
        ("log", "event-malformed", "lsn 60"),
        ("log", "event-malformed", "lsn 200000"),
    }


def test_spark_and_the_judge_agree_on_what_is_malformed(spark: Any) -> None:
    """Each column of each type taken away, or with another value: the SQL finds what the judge finds."""
    events = [
        {**event, name: value, "lsn": lsn}
        for lsn, (event, name, value) in enumerate(
            (event, name, value)
            for event in numbered([truthful_world("log", clock())])[::5]
            for name, kind in EVENT_COLUMNS if name not in ("lsn", "time", "type")
            for value in ((None, "another", "archived") if kind == "string" else (None, -1, 0, 7))
        )
    ]  # fmt: skip
    with for_few_rows(spark):
        rows = event_frame(spark, events).where(malformed_sql()).select("lsn").collect()
    judged = (malformed({**event, "at_us": None}) for event in plain(events))
    wrong = [found.key for found in judged if found is not None]
    assert {f"lsn {row['lsn']}" for row in rows} == set(wrong)
    assert len(events) > len(wrong) > 500


def test_a_message_that_a_thousand_overtook_is_worth_a_look(spark: Any) -> None:
    """In a log that ends with full queues, a message that is never delivered is told as a warning."""
    world = truthful_world("slow", clock())
    waiting = world.put("long")
    for _ in range(1001):
        world.consume("long", world.put("long"))
    found = audited(spark, numbered([world]), Bounds(), "ledger")
    assert found == {("ledger", "overtaken", f"slow.long offset {waiting}")}
