"""The checkers of histories: each planted violation is found, and an honest history passes."""

from __future__ import annotations

import threading

import pytest

from tests.crash.checks import check_history
from tests.crash.history import Event, History, Kind, count_events
from tests.promises.delivered import MAX_COMPLAINTS


def _events(*told: tuple[Kind, int, str, int]) -> list[Event]:
    return [
        Event(order, kind, life, link, ("p", number)) for order, (kind, life, link, number) in enumerate(told)
    ]


_PASSED: tuple[tuple[Kind, int, str, int], ...] = (
    ("sent", 0, "p", 1),
    ("accepted", 0, "p", 1),
    ("received", 0, "r", 1),
    ("accept_sent", 0, "r", 1),
    ("settled", 0, "r", 1),
)


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(_PASSED, id="delivered once"),
        pytest.param((("sent", 0, "p", 1),), id="never accepted, never seen"),
        pytest.param((*_PASSED[:1], *_PASSED[2:]), id="unknown to the sender, but delivered"),
        pytest.param(
            (*_PASSED[:4], ("received", 1, "r2", 1), ("accept_sent", 1, "r2", 1), ("settled", 1, "r2", 1)),
            id="settlement unknown, came back in the next life",
        ),
        pytest.param(_PASSED[:4], id="settlement unknown, did not come back"),
        pytest.param(
            (*_PASSED[:3], ("received", 1, "r2", 1), ("accept_sent", 1, "r2", 1), ("settled", 1, "r2", 1)),
            id="no outcome given, came back in the next life",
        ),
        pytest.param(
            (*_PASSED[:3], ("released", 0, "r", 1), ("received", 0, "s", 1), ("accept_sent", 0, "s", 1)),
            id="released, then given to another in the same life",
        ),
    ],
)
def test_an_honest_history_passes(told: tuple[tuple[Kind, int, str, int], ...]) -> None:
    """What a crash may leave unknown is no violation, however it turns out."""
    assert check_history(_events(*told)) == []


@pytest.mark.parametrize(
    ("told", "complaint"),
    [
        pytest.param(
            _PASSED[:2], "lost: message 1 of p was accepted by the broker and never received", id="lost"
        ),
        pytest.param(_PASSED[:3], "lost: .* received but never given an outcome", id="lost after delivery"),
        pytest.param((_PASSED[0], _PASSED[2]), "did not come back", id="unknown, delivered, then lost"),
        pytest.param((*_PASSED, ("received", 1, "r2", 1)), "came back", id="settled and back"),
        pytest.param(
            (*_PASSED[:4], ("received", 0, "r2", 1), ("accept_sent", 0, "r2", 1)), "twice", id="two at once"
        ),
        pytest.param(
            (*_PASSED[:3], ("released", 0, "r", 1)), "lost: .* never given an outcome", id="released and lost"
        ),
        pytest.param(_PASSED[2:], "had never been sent", id="out of nothing"),
        pytest.param((*_PASSED[:2], *_PASSED[1:]), "accepted twice", id="accepted twice"),
        pytest.param(
            (*_PASSED[:3], _PASSED[4], _PASSED[3]), "which had sent no outcome", id="confirmed unasked"
        ),
        pytest.param((*_PASSED, ("settled", 0, "other", 1)), "which had not received it", id="wrong link"),
    ],
)
def test_a_planted_violation_is_found(told: tuple[tuple[Kind, int, str, int], ...], complaint: str) -> None:
    """Each rule finds the history that breaks it."""
    with pytest.raises(AssertionError, match=complaint):
        assert check_history(_events(*told)) == []


def test_order_is_kept_for_each_producer_on_each_receiving_link() -> None:
    """An earlier number after a later one is a violation on one link, and none on two."""
    sent: list[tuple[Kind, int, str, int]] = [("sent", 0, "p", 1), ("sent", 0, "p", 2)]
    tail: list[tuple[Kind, int, str, int]] = [("accept_sent", 0, "r", 1), ("accept_sent", 0, "r", 2)]
    wrong = check_history(_events(*sent, ("received", 0, "r", 2), ("received", 0, "r", 1), *tail))
    assert wrong == ["order: message 1 of p was received on r after number 2"]
    apart = _events(
        *sent,
        ("received", 0, "r", 2),
        ("received", 0, "s", 1),
        ("accept_sent", 0, "r", 2),
        ("accept_sent", 0, "s", 1),
    )
    assert check_history(apart) == []
    back = _events(
        *sent,
        ("received", 0, "r", 1),
        ("released", 0, "r", 1),
        ("received", 0, "r", 2),
        ("received", 0, "r", 1),
        *tail,
    )
    assert check_history(back) == [], "a released message may come after later ones"


def test_many_complaints_are_shortened() -> None:
    """A broker that loses everything is told in a page, with the number of what is left out."""
    told: list[tuple[Kind, int, str, int]] = []
    for number in range(MAX_COMPLAINTS + 7):
        told += [("sent", 0, "p", number), ("accepted", 0, "p", number)]
    complaints = check_history(_events(*told))
    assert len(complaints) == MAX_COMPLAINTS + 1
    assert complaints[-1] == "and 7 more"


def test_a_history_recorded_by_threads_has_one_order() -> None:
    """Two clients that record at once never share a place."""
    history = History()

    def record_many() -> None:
        for number in range(200):
            history.record("sent", 0, "p", [("p", number)])

    threads = [threading.Thread(target=record_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(event.order for event in history.events) == list(range(800))
    assert count_events(history.events)["sent"] == 800
