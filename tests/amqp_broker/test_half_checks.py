"""Check-back by a clock that the test moves; who is asked, and by which schedule, tests/coordinator asks."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerConfig, BrokerLimits, HalfGroupConfig
from amqp_broker.coordinator import half_id_of
from amqp_broker.frames import Accepted, Error, Message, Modified, Rejected, Released, Symbol
from amqp_broker.halves.administration import HalfRefusedByHand
from amqp_broker.testing import memory_config
from amqp_broker.testing.peer import PeerSession
from tests.support.broker_clients import at_rest, counts, nothing_comes, receive, session_to, settle_down
from tests.support.halves import (
    answer,
    checker,
    half,
    halves,
    named,
    parked,
    putter,
    resolution,
    resolver,
    tell,
)
from tests.support.jumping_broker import PATIENT, JumpingBroker, stopping


@pytest.fixture
def config() -> BrokerConfig:
    """With groups that park and roll back after two unknown answers."""
    parking = HalfGroupConfig(name="parking", max_attempts=2, policy="park")
    return attrs.evolve(PATIENT, half_groups=(parking, HalfGroupConfig(name="twice", max_attempts=2)))


def administer(broker: JumpingBroker, what: str, group: str, half_id: str) -> None:
    """commit, roll_back or resume by hand."""

    async def there(running: Broker) -> None:
        await getattr(running.half_messages, what)(group, half_id, "somebody", "by hand")

    broker.call(there)


def test_it_is_asked_at_6_s_and_not_before(broker: JumpingBroker, session: PeerSession) -> None:
    """The check has the body, the application properties and everything that an answer needs."""
    check = checker(session)
    tell(putter(session), half("1", b"the body", named={"color": "blue"}))
    broker.jump(5.9)
    assert nothing_comes(broker, check)
    broker.jump(0.1)
    (delivery,) = receive(check, 1)
    message = Message(delivery.payload)
    properties = message.properties
    assert properties is not None
    assert (properties.correlation_id, properties.reply_to) == ("1", "$half-resolve/g")
    assert properties.subject == "check" and properties.message_id
    assert message.body_sections()[0].value == b"the body"
    found = named(delivery.payload)
    assert (found["color"], found["half_id"], found["half_group"]) == ("blue", "1", "g")
    assert found["half_destination"] == "q" and found["half_attempt"].value == 1
    assert found["half_age_ms"].value == 6_000
    assert found["half_deadline"].value == broker.now_ms() - 6_000 + 4 * 3_600_000


@pytest.mark.parametrize(
    ("by_outcome", "outcome", "wait_s", "attempt"),
    [
        (False, Accepted(), 30, 2), (False, Rejected(), 30, 2), (False, Released(), 1, 1),
        (True, Released(), 1, 1), (True, Modified(), 1, 1), (True, Modified(delivery_failed=True), 30, 2),
    ],
)  # fmt: skip
def test_what_decides_nothing_is_asked_again(
    broker: JumpingBroker, session: PeerSession, by_outcome: bool, outcome: Any, wait_s: int, attempt: int
) -> None:
    """An answer that is none is an attempt, and asked again after 30 s; who was not asked, after a second."""
    check = checker(session, by_outcome=by_outcome)
    tell(putter(session), half("1"))
    broker.jump(6)
    answer(broker, check, receive(check, 1), outcome)
    found = halves(broker)["1"]
    assert (found.lifecycle, found.attempts) == ("transaction pending", attempt - 1)
    broker.jump(wait_s - 0.1)
    assert nothing_comes(broker, check)
    broker.jump(0.1)
    (again,) = receive(check, 1)
    assert named(again.payload)["half_attempt"].value == attempt
    assert isinstance(tell(resolver(session), resolution("1", "commit")), Accepted)
    assert counts(broker, "q")[0] == 1


@pytest.mark.parametrize(
    ("outcome", "lifecycle"), [(Accepted(), "ready"), (Rejected(error=Error("x:y", "bad")), "rollback")]
)
def test_by_outcome_an_outcome_decides(
    broker: JumpingBroker, session: PeerSession, outcome: Any, lifecycle: str
) -> None:
    """Accepted commits, rejected rolls back with the error as reason; the settlement follows the commit."""
    check = checker(session, by_outcome=True)
    tell(putter(session), half("1"))
    broker.jump(6)
    deliveries = receive(check, 1)
    answer(broker, check, deliveries, outcome, settled=False)
    at_rest(broker)
    session.connection.pump(0.2)
    found = halves(broker)["1"]
    assert (found.lifecycle, found.resolver) == (lifecycle, "check")
    assert (found.reason == "x:y: bad") == (lifecycle == "rollback")
    assert counts(broker, "q")[0] == (1 if lifecycle == "ready" else 0)


def test_the_last_unknown_answer_rolls_back(broker: JumpingBroker, session: PeerSession) -> None:
    """By the deadline's hand, and the body stays recoverable."""
    check = checker(session, "twice")
    tell(putter(session, "twice"), half("1", b"precious"))
    for wait_s in (6, 30):
        broker.jump(wait_s)
        answer(broker, check, receive(check, 1), Accepted())
    broker.jump(0.1)
    found = halves(broker, "twice")["1"]
    assert (found.lifecycle, found.resolver, found.reason) == ("rollback", "deadline", "last attempt")
    assert b"precious" in broker.call(lambda running: running.half_messages.body("twice", "1"))


def test_parking_is_not_final(broker: JumpingBroker, session: PeerSession) -> None:
    """A parked one can be looked at, resumed by an administrator, and resolved."""
    look = parked(session, "parking")
    look.flow(10)
    check = checker(session, "parking")
    put, resolve = putter(session, "parking"), resolver(session, "parking")
    tell(put, half("1", b"parked body"))
    broker.jump(6)
    for _ in range(2):
        answer(broker, check, receive(check, 1), Accepted())
        at_rest(broker)
        broker.jump(60)
        at_rest(broker)
    assert halves(broker, "parking")["1"].lifecycle == "parked"
    (shown,) = receive(look, 1)
    message = Message(shown.payload)
    assert message.body_sections()[0].value == b"parked body"
    assert (message.message_annotations or {})[Symbol("x-opt-half-id")] == "1"
    assert isinstance(tell(put, half("1", b"parked body")), Accepted)
    administer(broker, "resume", "parking", "1")
    assert named(receive(check, 1)[0].payload)["half_attempt"].value == 1
    assert isinstance(tell(resolve, resolution("1", "commit")), Accepted)
    assert counts(broker, "q")[0] == 1


def test_what_is_more_than_the_output_takes_is_all_sent() -> None:
    """Checks, and what is parked: nothing else has to move for the rest to follow."""
    limits = BrokerLimits(max_frame_size_bytes=4_096, output_buffer_bytes=8_192)
    groups = (HalfGroupConfig(name="g", max_attempts=1, policy="park"),)
    config = attrs.evolve(PATIENT, limits=limits, half_groups=groups)
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        put, check, look = putter(session), checker(session, credit=100), parked(session)
        for number in range(40):
            tell(put, half(str(number), b"x" * 1_000))
        broker.jump(6)
        asked = receive(check, 40)
        look.flow(100)
        answer(broker, check, asked, Accepted())
        broker.jump(60)
        assert len(receive(look, 40)) == 40


def test_by_hand_with_the_resolver_recorded(broker: JumpingBroker, session: PeerSession) -> None:
    """Commit and roll back; a contradiction is refused with what was decided."""
    put = putter(session)
    tell(put, half("1"))
    tell(put, half("2"))
    administer(broker, "commit", "g", "1")
    administer(broker, "roll_back", "g", "2")
    with pytest.raises(HalfRefusedByHand, match="committed"):
        administer(broker, "roll_back", "g", "1")
    found = {key: (each.lifecycle, each.resolver, each.reason) for key, each in halves(broker).items()}
    assert found == {"1": ("ready", "admin", "by hand"), "2": ("rollback", "admin", "by hand")}


def test_the_lifecycle_of_the_feature_page(broker: JumpingBroker, session: PeerSession) -> None:
    """transaction pending, ready, in flight, acknowledged."""
    tell(putter(session), half("1"))
    assert halves(broker)["1"].lifecycle == "transaction pending"
    tell(resolver(session), resolution("1", "commit"))
    assert halves(broker)["1"].lifecycle == "ready"
    receiver = session.attach_receiver("r", "q", credit=1)
    deliveries = receive(receiver, 1)
    assert halves(broker)["1"].lifecycle == "in flight"
    receiver.settle(deliveries, Accepted())
    settle_down(broker, session)
    assert halves(broker)["1"].lifecycle == "acknowledged"


def test_the_journal_has_every_step(broker: JumpingBroker, session: PeerSession) -> None:
    """put, asked, answered, committed, in their order, with times and the resolver."""
    check = checker(session)
    tell(putter(session), half("1"))
    broker.jump(6)
    answer(broker, check, receive(check, 1), Accepted())
    at_rest(broker)
    tell(resolver(session), resolution("1", "commit"))

    async def there(running: Broker) -> list[Any]:
        return await running.half_messages.events()

    events = broker.call(there)
    assert [each.kind for each in events] == ["half.put", "half.asked", "half.answered", "half.committed"]
    assert [each.seq for each in events] == list(range(events[0].seq, events[0].seq + 4))
    assert events[-1].fields["resolver"] == "check" and events[-1].fields["half_id"] == "string:1"
    assert events[1].at_ms - events[0].at_ms == 6_000


def test_figures_of_a_group(broker: JumpingBroker, session: PeerSession) -> None:
    """Read from what is there."""
    put, resolve = putter(session), resolver(session)
    for number in "123":
        tell(put, half(number))
    broker.jump(10)
    tell(resolve, resolution("1", "commit"))
    tell(resolve, resolution("1", "rollback"))
    tell(resolve, resolution("9", "rollback"))
    figures = broker.call(lambda running: running.half_messages.figures("g"))
    assert (figures.prepared, figures.parked, figures.due_unasked) == (2, 0, 2)
    assert (figures.conflicts, figures.unknown_ids) == (1, 1)
    assert figures.decided == {("committed", "producer"): 1}
    assert figures.mean_resolution_ms == 10_000 and figures.oldest_age_ms == 10_000
    assert half_id_of("1") is not None


def test_idle_groups_of_peers_make_room_for_others() -> None:
    """Names that a peer made up are forgotten; a group with something open is not."""
    limits = BrokerLimits(max_half_groups=4)
    with stopping(JumpingBroker(memory_config(limits=limits))) as broker, session_to(broker) as session:
        put = putter(session, "kept")
        tell(put, half("1"))
        for number in range(10):
            resolver(session, f"made-up-{number}").detach()
        assert isinstance(tell(resolver(session, "kept"), resolution("1", "commit")), Accepted)
        assert isinstance(tell(put, half("2")), Accepted)


# Who decided: a producer, or a checker that resolves by a message what it was asked about


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
