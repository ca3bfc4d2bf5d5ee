"""Half messages, streams and events on disk: damage is found, reported, and never believed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from amqp_broker.persistence import (
    Advance,
    Event,
    Hold,
    Journal,
    Post,
    Reschedule,
    Retire,
    RowDamaged,
    Unit,
)
from amqp_broker.persistence.half_table import HALF
from amqp_broker.persistence.halves import COMMITTED, PREPARED, ROLLED_BACK
from amqp_broker.persistence.questions import (
    EventsFrom,
    HalfBodyOf,
    HalfOf,
    HalvesOf,
    OpenHalves,
    SomeHalves,
    StreamOf,
    StreamsOf,
)
from amqp_broker.persistence.sqlite import verify_directory
from amqp_broker.persistence.store_file import DATABASE_NAME
from amqp_broker.testing.store_suite.forgotten_halves import KEEP_S
from amqp_broker.testing.store_suite.halves import GROUP, body, decide, half, half_id, hold, numbers, stored
from amqp_broker.testing.store_suite.helpers import LATE_S, do, do_idle_work, do_units, messages, offsets
from tests.persistence.stores import assert_findings, edit, small_store
from tests.persistence.test_half_table import event, fill, stream

WRONG_STATE = "UPDATE half SET state='half-baked' WHERE id=7"


def event_of(seq: int) -> Event:
    """The event that `fill` wrote with this number."""
    one = event(seq - 1)
    one.seq = seq
    return one


@pytest.mark.parametrize(
    ("sql", "findings"),
    [
        (WRONG_STATE, ["half message 7: the row does not match its checksum"]),
        ("UPDATE half SET container_id='other' WHERE id=3", ["half message 3: the row does not match"]),
        ("DELETE FROM half_body WHERE id=3", ["half message 3: its body is kept, but there is none"]),
        ("DELETE FROM half WHERE id=3", ["half message 3: has a body, but there is none"]),
        ("DELETE FROM half WHERE id=1", []),  # nothing shows that a tombstone is lost
        (
            "INSERT INTO half_body VALUES (1, x'00', 5)",
            ["1: is committed, but has a body", "1: the body does not"],
        ),
        ("UPDATE half_body SET body=x'00' WHERE id=3", ["half message 3: the body does not match"]),
        ("UPDATE half_body SET id=99 WHERE id=3", ["3: its body is kept", "99: has a body", "99: the body"]),
        ("UPDATE stream SET seq_no=77 WHERE stream='stream-3'", ["queue 1, stream b'stream-3': the row"]),
        ("UPDATE stream SET queue_id=9 WHERE stream='stream-3'", ["queue 9: 1 streams", "queue 9, stream"]),
        ("UPDATE event SET at_ms=99 WHERE seq=5", ["event 5: the row does not match"]),
        ("DELETE FROM event WHERE seq=5", ["event 6: comes after event 4"]),
        ("DELETE FROM event WHERE seq<5", []),
    ],
)
def test_verification_finds_damage(sql: str, findings: list[str], tmp_path: Path) -> None:
    """Changed, lost and stray rows are found. The store opens and goes on all the same."""
    store = small_store(tmp_path)
    queue_id = fill(store)
    store.close()
    edit(tmp_path, sql)
    assert_findings(tmp_path, findings)
    store = small_store(tmp_path)
    do(store, hold(50), decide(3, COMMITTED), Journal(event(20)), Advance(stream(queue_id, 20)))
    assert (stored(store, 50), stored(store, 3)) == (PREPARED, COMMITTED)
    do_idle_work(store, 0.0)
    do_idle_work(store, KEEP_S + LATE_S)


def sealed(directory: Path, number: int, **changes: Any) -> None:
    """Change a row, and give it a right checksum."""
    (row,) = edit(directory, HALF.select("WHERE id=?"), number)
    sql, parameters = HALF.update(*changes)
    forget_ms = changes.pop("forget_ms", row[HALF.names.index("forget_ms")])
    edit(directory, sql, *parameters(HALF.row(attrs.evolve(HALF.made(row), **changes), number, forget_ms)))


def test_verification_finds_rows_that_contradict_themselves(tmp_path: Path) -> None:
    """Wrong rows with right checksums are found, too: mistakes of a writer."""
    store = small_store(tmp_path)
    fill(store)
    store.close()
    sealed(tmp_path, 7, state="half-baked")
    sealed(tmp_path, 4, forget_ms=5)
    sealed(tmp_path, 2, forget_ms=0)
    assert verify_directory(tmp_path) == [
        "half message 2: is rolled-back, but it is forgotten at 0",
        "half message 4: is prepared, but it is forgotten at 5",
        "half message 7: its state is 'half-baked'",
    ]


def test_damaged_rows_are_told_and_never_believed(tmp_path: Path) -> None:
    """A question for a damaged row raises, lists leave it out, and its neighbours are well."""
    store = small_store(tmp_path)
    queue_id = fill(store)
    store.close()
    edit(tmp_path, "UPDATE half SET state='prepared' WHERE id=1")
    edit(tmp_path, "UPDATE half SET destination=CAST(x'ff61' AS TEXT) WHERE id=3")
    edit(tmp_path, "UPDATE half_body SET body=x'00' WHERE id=4")
    edit(tmp_path, "UPDATE stream SET owner=CAST(x'ff61' AS TEXT) WHERE stream='stream-3'")
    edit(tmp_path, "UPDATE event SET fields=CAST(x'ff61' AS TEXT) WHERE seq=3")
    store = small_store(tmp_path)
    questions: list[Callable[[], object]] = [
        lambda: store.ask(HalfOf(GROUP, half_id(0))),
        lambda: store.ask(HalfBodyOf(GROUP, half_id(0))),
        lambda: store.ask(HalfOf(GROUP, half_id(2))),
        lambda: store.ask(HalfBodyOf(GROUP, half_id(3))),
        lambda: store.ask(StreamOf(queue_id, "stream-3")),
    ]
    for question in questions:
        with pytest.raises(RowDamaged):
            question()
    assert store.ask(HalfOf(GROUP, half_id(3))) == half(3)
    some = store.ask(SomeHalves(GROUP, [half_id(number) for number in (3, 99)]))
    assert some == {half_id(3): half(3), half_id(99): None}
    assert not {half_id(0), half_id(2)} & store.ask(SomeHalves(GROUP, [half_id(n) for n in range(4)])).keys()
    assert numbers(store.ask(HalvesOf(GROUP, None, b"", 5))) == [1, 3, 4, 5, 6]
    assert numbers(store.ask(OpenHalves()))[:3] == [3, 6, 7]
    assert [one.seq_no for one in store.ask(StreamsOf(queue_id, "stream-1", 3))] == [2, 4, 5]
    assert [one.seq for one in store.ask(EventsFrom(2, 3))] == [2, 4, 5]
    refused: list[Unit] = [
        [Journal(event(99)), decide(2, COMMITTED), Post(queue_id, messages(0, 1))],
        [hold(0)],
        [Reschedule(GROUP, half_id(2), PREPARED, 1, 2, 3)],
    ]
    last = Journal(event(20))
    errors = do_units(store, [*refused, [last, hold(50)]])
    assert [type(error) for error in errors] == [RowDamaged] * 3 + [type(None)]
    assert (last.event.seq, stored(store, 50), offsets(store, queue_id)) == (21, PREPARED, [])
    do(store, decide(3, COMMITTED), Advance(stream(queue_id, 3)))
    assert store.ask(StreamOf(queue_id, "stream-3")) == stream(queue_id, 3), "a new position heals it"


def test_damaged_pages_are_told_and_the_store_goes_on(tmp_path: Path) -> None:
    """A question that cannot be answered ends no broker, nor does a row that cannot be forgotten."""
    store = small_store(tmp_path, page_size_bytes=1024)
    queue_id = fill(store)
    do(store, *[Hold(half(number), body(number) * 30) for number in range(100, 200)])
    do(store, *[decide(number, ROLLED_BACK) for number in range(100, 200)])
    do(store, *[Journal(event(number)) for number in range(20, 200)])
    store.close()
    data = bytearray((tmp_path / DATABASE_NAME).read_bytes())
    for text in (b"container-150", body(150) * 30, b'"id-100"', b"stream-5"):
        page = data.index(text) // 1024 * 1024
        data[page : page + 1024] = b"\xff" * 1024
    (tmp_path / DATABASE_NAME).write_bytes(data)
    store = small_store(tmp_path, page_size_bytes=1024)
    with pytest.raises(RowDamaged):
        store.ask(HalfOf(GROUP, half_id(150)))
    with pytest.raises(RowDamaged):
        store.ask(HalvesOf(GROUP, None, half_id(140), 50))
    with pytest.raises(RowDamaged):
        store.ask(StreamOf(queue_id, "stream-5"))
    with pytest.raises(RowDamaged):
        store.ask(EventsFrom(90, 50))
    assert stored(store, 102) == ROLLED_BACK
    do(store, Post(queue_id, messages(0, 2)), Journal(event(0)), hold(201))
    do_idle_work(store, 0.0)
    do_idle_work(store, KEEP_S + LATE_S)
    do(store, Retire(queue_id, 0, 0), decide(201, COMMITTED))
    assert (offsets(store, queue_id), stored(store, 201)) == ([1], COMMITTED)
