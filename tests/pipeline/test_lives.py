"""The tables of lives, and what they find: faults that were missed once, by name; single changes by chance;
nothing in logs of brokers that did nothing wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from amqp_broker.pipeline.audits.judging import Half, Life, Message, Set
from amqp_broker.pipeline.audits.lives import FAULTS, FIELDS, WARNING
from amqp_broker.pipeline.event_schema import EVENT_COLUMNS, EVENT_TYPES
from tests.pipeline.events_with_faults import FAULTS as WORLDS
from tests.pipeline.events_with_faults import FAULTS_OF, Expected, all_worlds, log_with_faults
from tests.pipeline.plain_audit import found_in, found_in_order
from tests.pipeline.real_logs import random_log
from tests.pipeline.truthful_day import World, clock, numbered, truthful_world

NOT_OF_JUDGES: Final = {*FAULTS_OF["traffic"], "sent_twice"}
"""What Spark counts."""


@pytest.mark.parametrize("life", [Message, Half, Set])
def test_a_table_says_what_follows_each_pair(life: type[Life]) -> None:
    """Each state and word has a cell, each cell a state that there is and a fault that is described."""
    words = {word for cells in life.CELLS.values() for word in cells}
    for state, cells in life.CELLS.items():
        assert cells.keys() == words, state
        for after, fault in cells.values():
            assert after in life.CELLS
            assert fault in {"", "open", "undecided", *FAULTS}


def test_each_type_has_its_fields() -> None:
    """Of columns that there are."""
    assert FIELDS.keys() == set(EVENT_TYPES)
    columns = {name for name, _ in EVENT_COLUMNS}
    named = " ".join(part for shapes in FIELDS.values() for shape in shapes for part in shape)
    assert {column.split("=")[0] for column in named.split()} <= columns


def test_each_warning_says_why_it_is_no_fault() -> None:
    """And the guide tells of each."""
    guide = (Path(__file__).parents[2] / "docs/how-to/audit.md").read_text()
    for name, fault in FAULTS.items():
        assert bool(fault.because) is (fault.severity == WARNING), name
        assert fault.severity != WARNING or f"`{name}`" in guide, name


@pytest.fixture(scope="module")
def found() -> Expected:
    """What is found in a log of a truthful world and one for each fault: audit, kind, key."""
    events, _ = log_with_faults()
    return {(FAULTS[each.kind].audit, each.kind, each.key) for each in found_in(events, drained=True)}


@pytest.fixture(scope="module")
def planted() -> dict[str, Expected]:
    """What is to be found in each world."""
    return all_worlds()[1]


@pytest.mark.parametrize("name", ["truth", *(name for name in WORLDS if name not in NOT_OF_JUDGES)])
def test_exactly_what_was_planted_is_found(
    found: Expected, planted: dict[str, Expected], name: str
) -> None:
    """In each world its fault is found with its key, and nothing else; in the truthful one nothing."""
    mine = {each for each in found if each[2].startswith((f"{name}.", f"group {name} "))}
    assert mine == planted[name]


def _swap(world: World, one: dict[str, object], other: dict[str, object]) -> None:
    world.exchange(*(world.events.index(world.find(**fields)[0]) for fields in (one, other)))


def _rejected_without_dead(world: World) -> None:
    world.events.remove(world.find(type="dead", offset=0)[0])


def _attempts(world: World, *attempts: int) -> None:
    offset = world.put("plain")
    for attempt in attempts:
        world.deliver("plain", offset, attempt)
        world.settle("plain", offset, "released")
    world.consume("plain", offset)


def _half_visible_early(world: World) -> None:
    publish = world.find(type="publish", half_id="h3")[0]
    world.events.remove(publish)
    at = world.events.index(world.find(type="half", half_id="h3")[0])
    world.events.insert(at + 1, {**publish, "time": world.events[at]["time"]})


def _set_visible_early(world: World) -> None:
    publish = world.find(type="publish", set_id="1-1")[0]
    publish["time"] = world.find(type="seal", set_id="1-1")[0]["time"]


def _sealed_after_its_epoch(world: World) -> None:
    about = {"group": world.name, "producer": "enrich", "epoch": 2}
    world.say("seal", **about, set_id="belated", count=2)


def _published_elsewhere(world: World) -> None:
    decided = world.find(type="decide", half_id="h2")[0]
    decided["address"] = world.at("another")


def _a_set_twice_sealed(world: World) -> None:
    world.find(type="seal", set_id="1-0")[0]["count"] = 5
    at = world.events.index(world.find(type="seal", set_id="1-0")[0])
    world.events.insert(at + 1, {**world.events[at], "count": 9})


def _in_reverse(world: World) -> None:
    offsets = [world.put("back") for _ in range(10)]
    for offset in reversed(offsets):
        world.consume("back", offset)


def _starts_at_five(world: World) -> None:
    for number in range(5, 9):
        world.consume("stream", world.put("stream", seq_stream="till 3", seq_id=1, seq_no=number))


def _an_hour_back(world: World) -> None:
    for _ in range(50):
        world.consume("plain", world.put("plain"))
    for event in world.find(type="put", address=world.at("plain"))[-50:]:
        event["time"] -= timedelta(hours=1)


def _first_epoch_leaves_its_set(world: World) -> None:
    about = {"group": world.name, "producer": "first", "epoch": 1}
    world.say("seal", **about, set_id="only", count=2)
    world.say("decide", **about, outcome="committed", resolver="producer")
    world.say("half", group=world.name, half_id="later", address=world.at("paid"), container="shop", bytes=9)


def _cannot_roll_back(world: World) -> None:
    world.find(type="decide", epoch=1, half_id=None)[0]["outcome"] = "rolled-back"


MISSED: Final[dict[str, tuple[Callable[[World], object], str, str]]] = {
    "a rejected without its dead event": (_rejected_without_dead, "not-dead", "{w}.orders offset 0"),
    "a rejected that is a modified": (
        lambda w: w.find(type="settle", outcome="rejected")[0].update(outcome="modified", reason=None),
        "dead-unrejected", "{w}.orders offset 0"),
    "rejected for one reason, and given up for another": (
        lambda w: w.find(type="dead", offset=0)[0].update(reason="max-deliveries"),
        "dead-otherwise", "{w}.orders offset 0"),
    "a half message visible before its decision": (
        _half_visible_early, "visible-early", "group {w} half-id h3"),
    "a set visible before its decision": (
        _set_visible_early, "set-early", "group {w} producer enrich epoch 1 set 1-1"),
    "a set sealed after its epoch": (
        _sealed_after_its_epoch, "set-sealed-late", "group {w} producer enrich epoch 2 set belated"),
    "a decision before its put": (
        lambda w: _swap(w, {"type": "half", "half_id": "h1"}, {"type": "decide", "half_id": "h1"}),
        "half-unknown", "group {w} half-id h1"),
    "an epoch rolled back whose set is visible": (
        _cannot_roll_back, "epoch-rolled-back", "group {w} producer enrich epoch 1"),
    "the decision of a visible set is that of a later epoch": (
        lambda w: w.find(type="decide", half_id=None)[-1].update(epoch=90),
        "set-undecided", "group {w} producer enrich epoch "),
    "accepted, then released": (
        lambda w: w.settle("plain", 4, "released"), "settled-after", "{w}.plain offset 4"),
    "settled by a container that never had it": (
        lambda w: w.find(type="settle", address=w.at("plain"), offset=3)[0].update(container="thief"),
        "settled-by-another", "{w}.plain offset 3"),
    "attempts 1 to 7": (lambda w: _attempts(w, 1, 7), "attempt", "{w}.plain offset 16"),
    "attempts 3 to 1": (lambda w: _attempts(w, 3, 1), "attempt", "{w}.plain offset 16"),
    "committed for A, published at B": (_published_elsewhere, "visible-elsewhere", "group {w} half-id h2"),
    "committed at one place of a queue, published at another": (
        lambda w: w.find(type="decide", half_id="h2")[0].update(offset=90),
        "visible-elsewhere", "group {w} half-id h2"),
    "90 octets published as 9,000": (
        lambda w: w.find(type="publish", half_id="h0")[0].update(bytes=9_000),
        "visible-otherwise", "group {w} half-id h0"),
    "a set sealed with 5 and with 9": (
        _a_set_twice_sealed, "set-sealed-twice", "group {w} producer enrich epoch 1 set 1-0"),
    "a put without offset": (
        lambda w: w.find(type="put", address=w.at("log"))[2].pop("offset"), "event-malformed", "lsn "),
    "deliveries to one consumer in reverse": (
        _in_reverse, "delivered-backwards", "{w}.back to kitchen"),
    "a sequence that starts at 5": (
        _starts_at_five, "sequence-gap", "{w}.stream stream till 3 id 1 number 5"),
    "50 messages an hour back": (_an_hour_back, "time-backwards", "lsn "),
    "the only set of a first epoch neither visible nor void": (
        _first_epoch_leaves_its_set, "sets-unseen", "group {w} producer first"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISSED)
def test_what_was_missed_once_is_found(name: str) -> None:
    """Faults that somebody else planted, and that the first audits did not see."""
    plant_it, kind, key = MISSED[name]
    world = truthful_world("w", clock())
    plant_it(world)
    found = found_in_order(world.events, drained=True)
    assert any(each.kind == kind and each.key.startswith(key.format(w="w")) for each in found), found


def test_numbers_that_a_sender_leaves_out_are_no_gap() -> None:
    """It says of each message which number is the one before it, and the journal tells it."""
    world = truthful_world("w", clock())
    for number, before in ((5, 0), (6, 5), (9, 6), (12, 7)):
        said = None if before == number - 1 else before
        offset = world.put("stream", seq_stream="till 3", seq_id=1, seq_no=number, seq_prev=said)
        world.consume("stream", offset)
    assert found_in_order(world.events, drained=True) == []
    world.find(type="put", seq_no=9)[0]["seq_prev"] = 7
    assert [(each.kind, each.key) for each in found_in_order(world.events, drained=True)] == [
        ("sequence-gap", "w.stream stream till 3 id 1 number 9")
    ]


def test_events_that_were_replaced_by_copies_of_the_same_sum_are_found() -> None:
    """No sum of numbers is compared: each number follows the one before it."""
    events = numbered([truthful_world("w", clock())])
    replaced = {11: 10, 14: 15, 21: 22, 24: 23}
    damaged = [events[replaced.get(lsn, lsn) - 1] for lsn in range(1, len(events) + 1)]
    assert sum(event["lsn"] for event in damaged) == sum(event["lsn"] for event in events)
    keys = {(each.kind, each.key) for each in found_in(damaged, drained=True)}
    assert keys >= {("events-missing", f"lsn {lsn} to {lsn}") for lsn in replaced}
    assert keys >= {("events-double", f"lsn {lsn}") for lsn in replaced.values()}


@pytest.mark.parametrize("first", [2, 41, 100])
def test_a_log_that_begins_in_the_middle_invents_nothing(first: int) -> None:
    """What began before the log is not judged by its beginning."""
    events = numbered([truthful_world("cut", clock())])
    assert found_in(events[first - 1 :]) == []


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_found_in_the_log_of_a_broker(seed: int) -> None:
    """Random clients: settling, transactions, half messages, sequences, sets; wherever it begins and ends."""
    log = random_log(seed)
    assert found_in(log, drained=True) == []
    chance = random.Random(seed)
    for _ in range(5):
        first, last = sorted(chance.sample(range(len(log)), 2))
        assert found_in(log[first : last + 1]) == [], (first, last)
