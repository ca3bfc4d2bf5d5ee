"""Every broken promise in a history of clients is found, and none is invented."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from amqp_broker.pipeline.audits import history
from amqp_broker.pipeline.history_file import HISTORY_COLUMNS, HISTORY_DDL, HistoryWriter
from tests.pipeline.events_with_faults import Expected
from tests.pipeline.history_faults import FAULTS, all_clients
from tests.pipeline.spark.frames import event_frame, for_few_rows, frame_of
from tests.pipeline.truthful_clients import Line, events_of, history_rows
from tests.pipeline.truthful_day import Event


def checked(spark: Any, lines: list[Line], events: list[Event] | None, *, drained: bool) -> Expected:
    """What the audit says, and each thing once."""
    with for_few_rows(spark):
        frame = frame_of(spark, history_rows(lines), HISTORY_COLUMNS).cache()
        log = None if events is None else event_frame(spark, events).cache()
        found = history.findings(frame, log, drained=drained).collect()
        frame.unpersist()
    said = [(row["kind"], row["key"]) for row in found]
    assert all(row["detail"] and row["example"] for row in found), found
    assert len(said) == len(set(said)), sorted(said)
    return set(said)


@pytest.fixture(scope="module")
def found(spark: Any) -> Expected:
    """What is found in the histories of all worlds together."""
    everybody, _ = all_clients()
    lines = [line for clients in everybody for line in clients.lines]
    return checked(spark, lines, events_of(everybody), drained=True)


@pytest.mark.parametrize("name", ["truth", *FAULTS])
def test_exactly_the_broken_promise_is_found(found: Expected, name: str) -> None:
    """In each world its fault is found, and nothing else; in the truthful one nothing."""
    expected = all_clients()[1]
    marks = (f"{name}.", f"transaction {name} ", f"link {name}/", f"group {name} ")
    assert {each for each in found if each[1].startswith(marks)} == expected[name]


def test_nothing_is_found_beyond_all_worlds(found: Expected) -> None:
    """The findings of all worlds together are all findings."""
    assert found == set().union(*all_clients()[1].values())


def test_a_history_alone_says_what_a_history_can_say(spark: Any) -> None:
    """Without events the truthful clients are believed, and what only clients can know is found."""
    everybody, expected = all_clients()
    named = {"truth", "history_came_back", "history_order", "history_half_both", "history_unexpected"}
    chosen = [clients for clients in everybody if clients.name in named]
    lines = [line for clients in chosen for line in clients.lines]
    lines.append({"order": 10**6, "kind": "guessed"})
    want = set().union(*(expected[name] for name in named)) | {("line-unknown", "kind guessed")}
    assert checked(spark, lines, None, drained=False) == want


def test_what_the_writer_writes_is_read_as_written(spark: Any, tmp_path: Any) -> None:
    """A history file has one JSON line for each record, and Spark reads it by HISTORY_DDL."""
    text = io.StringIO()
    with HistoryWriter(text) as writer:
        writer.record("sent", link="out", address="a", message_id="1", producer="out", number=1)
        writer.record("accepted", link="out", address="a", message_id="1")
        with pytest.raises(ValueError, match="expected one of sent"):
            writer.record("acknowledged")
        with pytest.raises(ValueError, match="adress"):
            writer.record("sent", adress="a")
    path = tmp_path / "history.jsonl"
    path.write_text(text.getvalue())
    assert [json.loads(line)["order"] for line in text.getvalue().splitlines()] == [0, 1]
    read = spark.read.schema(HISTORY_DDL).json(str(path)).orderBy("order").collect()
    assert [(row["kind"], row["number"], row["txn"]) for row in read] == [
        ("sent", 1, None),
        ("accepted", None, None),
    ]
