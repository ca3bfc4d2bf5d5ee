"""A broker that is killed at any moment has told of each message once (a quick version of `python -m
tests.crash.kills --with events`), and the check of that finds what is planted.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs
import pytest

from amqp_broker.persistence import Event
from tests.crash.events import Events, check_events, events_of, known_by_clients
from tests.crash.history import History
from tests.crash.lives import run_kills
from tests.crash.messages import TRANSACTIONS, Messages
from tests.pipeline.plain_audit import found_in
from tests.pipeline.real_logs import archived

KILLS: Final = 3
SEED: Final = 4_711

Log = list[Event]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Log, History]:
    """What is left of some lives with plain clients."""
    directory = tmp_path_factory.mktemp("lives")
    messages = Messages(SEED)
    complaints, line = run_kills(directory, [messages, Events(messages)], KILLS, SEED)
    assert complaints == [], line
    return [*events_of(directory / "data")], messages.history


def test_kills_with_transactions_leave_a_true_log(tmp_path: Path) -> None:
    """Postings and retirements are told with their discharge, or neither happened."""
    messages = Messages(SEED, TRANSACTIONS)
    complaints, line = run_kills(tmp_path, [messages, Events(messages)], KILLS, SEED)
    assert complaints == [], line


def test_log_of_all_lives_is_true(sound: tuple[Log, History]) -> None:
    """Nothing to complain of, and there is something to look at."""
    complaints, kinds = check_events(*sound)
    assert complaints == []
    assert kinds["put"] > 50 and kinds["settle"] >= kinds["put"]


def test_audits_find_nothing_in_the_log_of_all_lives(sound: tuple[Log, History]) -> None:
    """What a crash does to a log is no finding: deliveries that are missing, a second that came twice."""
    assert found_in(archived(sound[0]), drained=True) == []


def _last(events: Log, kind: str) -> int:
    """Of an entry in the middle of the log, of a message that is removed by it if it is a settle."""
    found = [
        at for at, event in enumerate(events)
        if event.kind == kind and event.fields.get("outcome", "accepted") == "accepted"
    ]  # fmt: skip
    return found[len(found) // 2]


def _known_put(events: Log, history: History) -> int:
    """Of a put in the middle of the log whose sender was told: of no other can be said that it is missing."""
    accepted = known_by_clients(history)[0]
    found = [
        at for at, event in enumerate(events)
        if event.kind == "put" and event.fields.get("message_id") in accepted
    ]  # fmt: skip
    return found[len(found) // 2]


def _without(kind: str) -> Callable[[Log, History], Log]:
    def plant(events: Log, history: History) -> Log:
        at = _known_put(events, history) if kind == "put" else _last(events, kind)
        rest = [attrs.evolve(event, seq=event.seq - 1) for event in events[at + 1 :]]
        return [*events[:at], *rest]

    return plant


def _twice(kind: str) -> Callable[[Log, History], Log]:
    def plant(events: Log, _: History) -> Log:
        return [*events, attrs.evolve(events[_last(events, kind)], seq=events[-1].seq + 1)]

    return plant


def _again_elsewhere(events: Log, _: History) -> Log:
    one = events[_last(events, "put")]
    there = {**one.fields, "offset": 1_000_000}
    return [*events, attrs.evolve(one, fields=there, seq=events[-1].seq + 1)]


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (_without("put"), "has no put"),
        (_without("settle"), "is live in the log"),
        (_twice("put"), "was there before"),
        (_twice("settle"), "which is accepted"),
        (_again_elsewhere, "more than one put"),
        (lambda events, _: [event for event in events if event.seq != 20], "comes after event 19"),
    ],
    ids=["put missing", "settle missing", "put twice", "settle twice", "put again elsewhere", "gap"],
)
def test_what_is_planted_is_found(
    plant: Callable[[Log, History], Log], words: str, sound: tuple[Log, History]
) -> None:
    """A log that tells too little or too much is complained of."""
    events, history = sound
    complaints, _ = check_events(plant(events, history), history)
    assert any(words in complaint for complaint in complaints), complaints
