"""Who decided a half message: a producer, or a checker that resolves by a message what it was asked about."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.frames import Accepted, Modified, Rejected, Released
from tests.support.broker_clients import receive, session_to, settle_down
from tests.support.halves import answer, checker, half, halves, named, putter, resolution, resolver, tell
from tests.support.jumping_broker import JumpingBroker


def resolved_by(broker: JumpingBroker, group: str = "g") -> dict[Any, tuple[str, str]]:
    """Half-id to its end and who brought it about."""
    return {key: (each.lifecycle, each.resolver) for key, each in halves(broker, group).items()}


def test_a_resolution_of_who_was_asked_is_by_the_check(broker: JumpingBroker) -> None:
    """While its answer is expected; the record, the conflict and the figures say so."""
    with session_to(broker, "producer") as session, session_to(broker, "checker") as other:
        check = checker(other)
        tell(putter(session), half("1"))
        broker.jump(6)
        receive(check, 1)
        resolve = resolver(other)
        assert isinstance(tell(resolve, resolution("1", "commit")), Accepted)
        assert resolved_by(broker) == {"1": ("ready", "check")}
        conflict = tell(resolver(session), resolution("1", "rollback"))
        assert isinstance(conflict, Rejected) and conflict.error is not None
        info = conflict.error.info or {}
        assert info["half_resolved_by"] == "check"

        assert broker.call(lambda running: running.half_messages.figures("g").decided) == {
            ("committed", "check"): 1
        }


@pytest.mark.parametrize(
    ("outcome", "resolver_word"),
    [
        (Accepted(), "check"),
        (Modified(delivery_failed=True), "check"),
        (Released(), "producer"),
        (Modified(), "producer"),
        (None, "check"),
    ],
)
def test_the_last_one_asked_may_answer_later(broker: JumpingBroker, outcome: Any, resolver_word: str) -> None:
    """Also after its outcome or its lock (None), but not when it said that it was not asked."""
    with session_to(broker, "producer") as session, session_to(broker, "checker") as other:
        check = checker(other, credit=1)
        tell(putter(session), half("1"))
        broker.jump(6)
        asked = receive(check, 1)
        if outcome is None:
            broker.jump(31)
            settle_down(broker, other)
        else:
            answer(broker, check, asked, outcome)
        assert isinstance(tell(resolver(other), resolution("1", "rollback")), Accepted)
        assert resolved_by(broker) == {"1": ("rollback", resolver_word)}


def test_who_was_not_asked_or_not_last_resolves_as_a_producer(broker: JumpingBroker) -> None:
    """Another container, one that waits with a check unsent, and one after which another was asked."""
    with (
        session_to(broker, "producer") as session,
        session_to(broker, "first") as first,
        session_to(broker, "second") as second,
    ):
        put = putter(session)
        checks = checker(first, credit=1)
        for half_id in ("1", "2", "3"):
            tell(put, half(half_id))
        broker.jump(6)
        (asked,) = receive(checks, 1)
        about = named(asked.payload)["half_id"]
        unasked = next(each for each in ("1", "2", "3") if each != about)
        resolve = resolver(first)
        tell(resolve, resolution(unasked, "commit"))
        tell(resolver(session), resolution(about, "commit"))
        assert resolved_by(broker)[unasked] == ("ready", "producer")
        assert resolved_by(broker)[about] == ("ready", "producer")
        checks.detach()
        (last,) = {"1", "2", "3"} - {about, unasked}
        again = checker(first, credit=1)
        broker.jump(2)
        answer(broker, again, receive(again, 1), Accepted())
        others = checker(second, credit=1)
        again.detach()
        broker.jump(31)
        receive(others, 1)
        tell(resolve, resolution(last, "commit"))
        assert resolved_by(broker)[last] == ("ready", "producer")
