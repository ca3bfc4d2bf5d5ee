"""The checker of transactions: honest histories pass, and each planted half, loss or lie is found."""

from __future__ import annotations

import re

import pytest

from tests.crash.checks import check_history
from tests.crash.history import Event, Kind, Message, Step, StepKind
from tests.promises.fates import Fate, collect_accounts

_STEPS = {"declared", "commit_sent", "rollback_sent", "left", "accepted!", "rejected", "question", "told"}


def _history(*lines: str) -> tuple[list[Event], list[Step]]:
    """`kind life ...`; a step says its word, an event its link, its message and `in T` where it belongs to
    it.
    """
    events: list[Event] = []
    steps: list[Step] = []
    for order, line in enumerate(lines):
        kind, life, *rest = line.split()
        if kind in _STEPS:
            step: StepKind = kind.rstrip("!")  # type: ignore[assignment]
            steps.append(Step(order, step, int(life), "T", "".join(rest)))
            continue
        event: Kind = kind  # type: ignore[assignment]
        link, name, *more = rest
        producer, number = name.split("/")
        message: Message = (producer, int(number))
        count = int(more[-1].removeprefix("count=")) if more and more[-1].startswith("count=") else 0
        events.append(Event(order, event, int(life), link, message, "T" if "in" in more else "", count))
    return events, steps


def _complaints(*lines: str) -> list[str]:
    return check_history(*_history(*lines))


_BEFORE = ("sent 0 s in/1", "accepted 0 s in/1", "received 0 r in/1")
"""A message waits with a controller."""

_WORK = ("declared 0", "sent 0 p a/1 in T", "sent 0 q b/1 in T", "retired 0 r in/1 in T")
_BOTH_SEEN = (
    "received 1 d a/1",
    "accept_sent 1 d a/1",
    "settled 1 d a/1",
    "received 1 e b/1",
    "accept_sent 1 e b/1",
    "settled 1 e b/1",
)
_CAME_BACK = ("received 1 f in/1", "accept_sent 1 f in/1", "settled 1 f in/1")
_COMMIT = "commit_sent 0"
_TOLD = {word: ("question 1", f"told 1 {word}") for word in ("committed", "not-committed", "pending", "live")}


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param((*_BEFORE, *_WORK, _COMMIT, "accepted! 0", *_BOTH_SEEN), id="committed"),
        pytest.param(
            (*_BEFORE, *_WORK, _COMMIT, *_TOLD["committed"], *_BOTH_SEEN), id="answer lost, committed"
        ),
        pytest.param(
            (*_BEFORE, *_WORK, _COMMIT, *_TOLD["not-committed"], *_CAME_BACK), id="answer lost, not committed"
        ),
        pytest.param((*_BEFORE, *_WORK, "rollback_sent 0", "accepted! 0", *_CAME_BACK), id="rolled back"),
        pytest.param((*_BEFORE, *_WORK, _COMMIT, "rejected 0", *_CAME_BACK), id="rejected"),
        pytest.param((*_BEFORE, *_WORK, *_CAME_BACK), id="killed before the discharge"),
        pytest.param(
            (*_BEFORE, *_WORK, "rollback_sent 0", "accepted! 0", "accept_sent 0 r in/1"),
            id="rolled back, then accepted by the link that still held it",
        ),
        pytest.param(
            (
                *_BEFORE,
                *_WORK[:-1],
                "retired_settled 0 r in/1 in T",
                "rollback_sent 0",
                "received 0 x in/1",
                "accept_sent 0 x in/1",
            ),
            id="a settled retirement was rolled back: another link of the same life gets it",
        ),
        pytest.param(
            (
                *_BEFORE[:2],
                "declared 0",
                "received 0 r in/1 in T",
                "left 0",
                "received 0 x in/1",
                "accept_sent 0 x in/1",
            ),
            id="an acquisition ended with its control link",
        ),
        pytest.param(
            (*_BEFORE[:2], "declared 0", "received 0 r in/1 in T", "left 0", "received 0 x in/1")
            + ("dropped 0 r in/1", "accept_sent 0 x in/1"),
            id="an acquisition ended with its connection, and another link had it at once",
        ),
        pytest.param(
            (
                *_BEFORE[:2],
                "declared 0",
                "rollback_sent 0",
                "received 0 r in/1 in T",
                "accepted! 0",
                "received 0 r in/1",
                "accept_sent 0 r in/1",
            ),
            id="an acquisition that was on its way when its transaction was rolled back",
        ),
        pytest.param(
            (*_BEFORE, "declared 0", "modified 0 r in/1 in T", _COMMIT, "accepted! 0")
            + ("received 0 x in/1 count=1", "accept_sent 0 x in/1"),
            id="given back as failed, and counted",
        ),
        pytest.param(
            (*_BEFORE, "declared 0", "modified 0 r in/1 in T", "rollback_sent 0", "accepted! 0")
            + ("released 0 r in/1", "received 0 x in/1", "accept_sent 0 x in/1"),
            id="given back as failed, but rolled back",
        ),
        pytest.param(
            (*_BEFORE, "browsed 0 x in/1", *_WORK, "browsed 0 x in/1", _COMMIT, "browsed 0 x a/1")
            + ("accepted! 0", "browsed 0 x in/1", *_BOTH_SEEN),
            id="looked at, also by one whom a retired message reaches late",
        ),
        pytest.param(
            ("declared 0", "question 0", "told 0 live", _COMMIT, "question 0", "told 0 pending")
            + ("accepted! 0", "question 0", "told 0 committed"),
            id="asked at each stage",
        ),
    ],
)
def test_an_honest_transaction_passes(lines: tuple[str, ...]) -> None:
    """Whole transactions, and what a crash may leave open, are no violation."""
    assert _complaints(*lines) == []


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        pytest.param(
            (*_BEFORE, *_WORK, _COMMIT, "accepted! 0", *_BOTH_SEEN[:3]),
            r"half: .* 1 of 2 posts were seen, 1 of 1 retirements",
            id="one post is missing",
        ),
        pytest.param(
            (*_BEFORE, *_WORK, _COMMIT, "accepted! 0", *_BOTH_SEEN, *_CAME_BACK),
            r"half: .* 2 of 2 posts were seen, 0 of 1 retirements",
            id="the posts without the retirement",
        ),
        pytest.param(
            (*_BEFORE, *_WORK, _COMMIT, "accepted! 0"),
            r"half: .* 0 of 2 posts were seen, 1 of 1 retirements",
            id="the retirement without the posts",
        ),
        pytest.param(
            (*_BEFORE, *_WORK, _COMMIT, "accepted! 0", *_CAME_BACK),
            r"wholly absent: .* \(commit answered accepted\) 0 of 2 posts",
            id="accepted, and not there",
        ),
        pytest.param(
            (*_BEFORE, *_WORK, _COMMIT, "accepted! 0"), "lost: message 1 of a", id="a committed post is lost"
        ),
        pytest.param(
            (*_BEFORE, *_WORK, _COMMIT, *_TOLD["committed"], *_CAME_BACK),
            r"wholly absent: .* told committed",
            id="told committed, and not there",
        ),
        pytest.param(
            (*_BEFORE, *_WORK, _COMMIT, *_TOLD["not-committed"], *_BOTH_SEEN),
            r"wholly there: .* told not-committed",
            id="told not committed, and there: the outcome was stored apart",
        ),
        pytest.param(
            (*_BEFORE, *_WORK, _COMMIT, *_TOLD["not-committed"], *_BOTH_SEEN, *_CAME_BACK),
            r"half: .* 2 of 2 posts were seen, 0 of 1 retirements",
            id="told not committed, and half there",
        ),
        pytest.param(
            (*_BEFORE, *_WORK, _COMMIT, *_TOLD["not-committed"]),
            r"half: .* 0 of 2 posts were seen, 1 of 1 retirements",
            id="told not committed, and the retirement in force",
        ),
        pytest.param(
            (*_BEFORE, *_WORK, _COMMIT, *_BOTH_SEEN, *_CAME_BACK),
            r"half: .* never told.* 2 of 2 posts were seen, 0 of 1 retirements",
            id="never told, and half there",
        ),
        pytest.param(
            (*_BEFORE, *_WORK, _COMMIT, *_BOTH_SEEN), "nobody could say how it ended", id="never told"
        ),
        pytest.param(
            (*_BEFORE, *_WORK, "rollback_sent 0", "accepted! 0", *_BOTH_SEEN, *_CAME_BACK),
            r"and no commit of transaction T .* had been sent",
            id="posts of a rolled back one are seen",
        ),
        pytest.param(
            (*_BEFORE, *_WORK, "rollback_sent 0", "accepted! 0"),
            r"half: .* \(rolled back\) 0 of 2 posts were seen, 1 of 1 retirements",
            id="the retirement of a rolled back one is in force",
        ),
        pytest.param(
            (*_BEFORE, *_WORK, *_BOTH_SEEN[:3], *_CAME_BACK),
            r"half: .* \(never discharged\) 1 of 2 posts",
            id="never discharged, and a post is seen",
        ),
        pytest.param(
            (*_BEFORE, *_WORK, "received 0 d a/1", _COMMIT, "accepted! 0", "accept_sent 0 d a/1")
            + _BOTH_SEEN[3:],
            "and no commit of transaction T .* had been sent",
            id="seen before the discharge",
        ),
        pytest.param(
            (*_BEFORE, *_WORK, "browsed 0 x a/1", _COMMIT, "accepted! 0", *_BOTH_SEEN),
            "message 1 of a was browsed on x, and no commit of transaction T",
            id="browsed before the discharge",
        ),
        pytest.param(
            (*_BEFORE, *_WORK, _COMMIT, "rejected 0", "browsed 0 x a/1", *_CAME_BACK),
            "message 1 of a was browsed on x, posted in transaction T",
            id="browsed although the commit was rejected",
        ),
        pytest.param(
            (*_BEFORE, *_WORK, _COMMIT, "accepted! 0", *_BOTH_SEEN, "browsed 1 x in/1"),
            "came back: message 1 of in was browsed",
            id="a retired message is browsed in a later life",
        ),
        pytest.param(
            (*_BEFORE, *_WORK, _COMMIT, "accepted! 0", *_BOTH_SEEN, "received 2 d a/1"),
            "came back: message 1 of a",
            id="a post is there twice",
        ),
        pytest.param(
            (*_BEFORE, *_WORK, "received 0 x in/1", "rollback_sent 0", *_CAME_BACK),
            "twice: message 1 of in",
            id="two controllers hold one message",
        ),
        pytest.param(
            (*_BEFORE, *_WORK, "rollback_sent 0", "accepted! 0", "received 0 x in/1", "accept_sent 0 x in/1"),
            "twice: message 1 of in",
            id="an unsettled retirement was rolled back, and its link lost the message",
        ),
        pytest.param(
            (*_BEFORE, *_WORK, "rollback_sent 0", "rejected 0", *_CAME_BACK),
            "a discharge with fail was answered rejected",
            id="a rollback is refused",
        ),
        pytest.param(
            (*_BEFORE, *_WORK, _COMMIT, "accepted! 0", *_BOTH_SEEN, *_TOLD["not-committed"]),
            "was called not-committed",
            id="the answer is denied afterwards",
        ),
        pytest.param(
            (*_BEFORE, *_WORK, _COMMIT, *_TOLD["committed"], *_TOLD["not-committed"], *_BOTH_SEEN),
            "was called not-committed",
            id="two answers to one question",
        ),
        pytest.param(
            (*_BEFORE, *_WORK, *_CAME_BACK, *_TOLD["committed"]),
            "was called committed",
            id="never discharged, and called committed",
        ),
        pytest.param(
            (*_BEFORE, *_WORK, _COMMIT, *_TOLD["live"], *_TOLD["committed"], *_BOTH_SEEN),
            "was called live in life 1",
            id="called live after its connection",
        ),
        pytest.param(
            ("declared 0", _COMMIT, "accepted! 0", "question 0", "told 0 pending"),
            "was called pending after its discharge had been answered",
            id="called pending after its answer",
        ),
        pytest.param(
            ("declared 0", _COMMIT, "accepted! 0", *_TOLD["pending"][:1], "told 1 perhaps"),
            "'perhaps', which is no answer",
            id="another word",
        ),
        pytest.param(
            ("declared 0", "told 0 live"),
            "was told 'live' and nobody had asked",
            id="told without a question",
        ),
        pytest.param(
            ("declared 0", "accepted! 0"), "no discharge had been sent", id="answered without a discharge"
        ),
        pytest.param(
            ("declared 0", _COMMIT, "accepted! 0", "accepted! 0"), "was answered twice", id="answered twice"
        ),
        pytest.param(
            (*_BEFORE, "declared 0", "modified 0 r in/1 in T", _COMMIT, "accepted! 0")
            + ("received 0 x in/1", "accept_sent 0 x in/1"),
            "with delivery-count 0, expected 1",
            id="given back as failed, and not counted",
        ),
        pytest.param(
            (*_BEFORE, "declared 0", "modified 0 r in/1 in T", "rollback_sent 0", "released 0 r in/1")
            + ("received 0 x in/1 count=1", "accept_sent 0 x in/1"),
            "with delivery-count 1, expected 0",
            id="counted although it was rolled back",
        ),
    ],
)
def test_a_planted_violation_of_a_transaction_is_found(lines: tuple[str, ...], complaint: str) -> None:
    """Each rule finds the history that breaks it."""
    complaints = _complaints(*lines)
    assert any(re.search(complaint, words) for words in complaints), complaints


def test_posts_come_in_the_order_of_their_discharges() -> None:
    """Of one producer link the earlier discharge comes first, whatever was posted first."""

    def complaints(first: int, second: int) -> list[str]:
        events = [
            Event(2, "sent", 0, "p", ("p", 1), "T"),
            Event(3, "sent", 0, "p", ("p", 2), "U"),
            *(Event(10 + n, "received", 0, "r", ("p", n), "") for n in (first,)),
            *(Event(20 + n, "received", 0, "r", ("p", n), "") for n in (second,)),
            *(Event(30 + n, "accept_sent", 0, "r", ("p", n), "") for n in (first, second)),
        ]
        steps = [
            Step(0, "declared", 0, "T"),
            Step(1, "declared", 0, "U"),
            Step(4, "commit_sent", 0, "U"),
            Step(5, "commit_sent", 0, "T"),
            Step(6, "accepted", 0, "U"),
            Step(7, "accepted", 0, "T"),
        ]
        return check_history(events, steps)

    assert complaints(2, 1) == []
    assert complaints(1, 2) == ["order: message 2 of p was received on r after number 1"]


def test_the_fate_is_what_the_last_word_says() -> None:
    """An answer decides, else what was told, and passing words say nothing."""
    for lines, fate in (
        (("declared 0",), Fate.ABSENT),
        (("declared 0", _COMMIT), Fate.UNKNOWN),
        (("declared 0", _COMMIT, "question 0", "told 0 pending"), Fate.UNKNOWN),
        (("declared 0", _COMMIT, *_TOLD["committed"]), Fate.COMMITTED),
        (("declared 0", _COMMIT, "rejected 0", *_TOLD["committed"]), Fate.ABSENT),
        (("declared 0", "rollback_sent 0", "accepted! 0"), Fate.ABSENT),
    ):
        accounts, complaints = collect_accounts(_history(*lines)[1])
        assert accounts["T"].fate is fate and complaints == [], lines
