"""Runs of events on disk: damage is found, left out, and never believed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from amqp_broker.persistence import Event, Journal
from amqp_broker.persistence.event_table import EVENT
from amqp_broker.persistence.halves import EVENT_RUN_MAX
from amqp_broker.persistence.questions import EventsFrom
from amqp_broker.persistence.sqlite import SqliteStore, verify_directory
from amqp_broker.testing.store_suite.helpers import do
from tests.persistence.stores import assert_findings, edit, small_store


def run(count: int, first_offset: int) -> Journal:
    """A run of events in one row, each with its offset."""
    offsets: list[str | int | None] = [*range(first_offset, first_offset + count)]
    return Journal(Event("put", 5, {"address": "q"}, 0, count, {"offset": offsets}))


def fill(store: SqliteStore) -> list[Event]:
    """Write rows 1 to 10, 11, 12 to 21 and 22 to 31. Gives all events."""
    do(store, run(10, 100), Journal(Event("half.put", 6, {"half_id": "x"})), run(10, 200), run(10, 300))
    return store.ask(EventsFrom(0, 99))


@pytest.mark.parametrize(
    ("sql", "findings"),
    [
        ("UPDATE event SET count=9 WHERE seq=12", ["event 12: the row does not match its checksum"]),
        ("UPDATE event SET count=-1 WHERE seq=22", ["event 22: the row does not match its checksum"]),
        ("UPDATE event SET fields='{}' WHERE seq=12", ["event 12: the row does not match its checksum"]),
        ("UPDATE event SET kind='dead' WHERE seq=1", ["event 1: the row does not match its checksum"]),
        ("DELETE FROM event WHERE seq=12", ["event 22: comes after event 11"]),
        ("UPDATE event SET seq=13 WHERE seq=12", ["event 13: comes after", "event 13: the row does not"]),
        ("DELETE FROM event WHERE seq<12", []),
    ],
)
def test_verification_finds_damaged_runs(sql: str, findings: list[str], tmp_path: Path) -> None:
    """Changed, lost and moved rows are found. The others are read as they were written."""
    store = small_store(tmp_path)
    entries = fill(store)
    store.close()
    edit(tmp_path, sql)
    assert_findings(tmp_path, findings)
    store = small_store(tmp_path)
    read = store.ask(EventsFrom(0, 99))
    assert 0 < len(read) < len(entries)
    assert all(one in entries for one in read)


def sealed(directory: Path, seq: int, content: object, count: int) -> None:
    """Change a row, and give it a right checksum."""
    fields = json.dumps(content)
    ((at_ms, kept_ms),) = edit(directory, "SELECT at_ms, kept_ms FROM event WHERE seq=?", seq)
    checksum = EVENT.row(seq, at_ms, kept_ms, "put", fields, count)[-1]
    edit(
        directory, "UPDATE event SET fields=?, count=?, checksum=? WHERE seq=?", fields, count, checksum, seq
    )


def test_verification_finds_runs_that_contradict_themselves(tmp_path: Path) -> None:
    """Wrong rows with right checksums are found, too: mistakes of a writer."""
    store = small_store(tmp_path)
    fill(store)
    store.close()
    sealed(tmp_path, 1, [{}, {"offset": [1, 2, 3]}], 10)
    sealed(tmp_path, 12, [1, 2], 10)
    sealed(tmp_path, 22, {"a": 1}, EVENT_RUN_MAX + 1)
    assert verify_directory(tmp_path) == [
        "event 1: it stands for 10 entries, but has 3 values of 'offset'",
        "event 12: the fields are no JSON object",
        f"event 22: it stands for {EVENT_RUN_MAX + 1} entries, expected 1 to {EVENT_RUN_MAX}",
    ]


@pytest.mark.parametrize("count", [0, 1, 9, -5])
def test_no_number_comes_twice_behind_a_damaged_run(count: int, tmp_path: Path) -> None:
    """The numbers go on behind the longest run that a damaged last row may have been."""
    store = small_store(tmp_path)
    fill(store)
    store.close()
    edit(tmp_path, "UPDATE event SET count=? WHERE seq=22", count)
    store = small_store(tmp_path)
    journal = run(2, 400)
    do(store, journal)
    assert journal.event.seq == 22 + EVENT_RUN_MAX
    assert [one.seq for one in store.ask(EventsFrom(21, 9))] == [21, journal.event.seq, journal.event.seq + 1]
