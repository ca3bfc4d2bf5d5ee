"""What the outcome of a check does, and what follows when there is none (check-back)."""

from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.halves import CONFLICT, SOON, Checker, Halves, Producer, half, half_id_annotation
from amqp_broker.conformance.outcomes import expect_equal
from amqp_broker.conformance.queues import expect_left
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.scenarios.halves_resolve import info_of
from amqp_broker.frames import Accepted, Disposition, Error, Rejected, Released, Transfer

HALVES = "half-messages"


def _begun(halves: Halves, by_outcome: bool = False) -> tuple[Producer, Checker]:
    """Returns a producer, and somebody who is asked."""
    return halves.producer(), halves.checker(by_outcome=by_outcome)


def _asked(halves: Halves, by_outcome: bool) -> tuple[Producer, Checker, Any]:
    """The same, and the check of the half message "1"."""
    producer, checker = _begun(halves, by_outcome)
    producer.put(half("1", named=SOON))
    return producer, checker, checker.asked("1")


@scenario("half.check/automatic", "half.check-automatic", "half.check-accepted", profile=HALVES, waits=True)
def automatic(broker: Broker) -> None:
    """A consumer that accepts automatically commits nothing: it was asked, and will be again later."""
    for number, settled in enumerate((True, False)):
        halves = Halves(broker, queue=f"q{number}")
        halves.group = f"{halves.group[:62]}.{number}"
        producer, checker, check = _asked(halves, False)
        checker.answers(check, Accepted(), settled=settled)
        if not settled:
            checker.settlement(check, Accepted)
        checker.is_silent(1.3)
        expect_left(broker, halves.queue)
        producer.put(half("1", named=SOON))
        producer.roll_back("1")


@scenario("half.check/rejected-is-no-rollback", "half.check-rejected", profile=HALVES, waits=True)
def rejected_is_no_rollback(broker: Broker) -> None:
    """A consumer that rejects a check rolls nothing back, unless it chose by-outcome."""
    halves = Halves(broker)
    producer, checker, check = _asked(halves, False)
    checker.answers(check, Rejected(error=Error(condition="x:y")), settled=False)
    checker.settlement(check, Rejected)
    checker.is_silent(1.3)
    producer.commit("1")
    expect_left(broker, halves.queue, b"the body")


@scenario(
    "half.check/outcome-commits", "half.check-accepted", "half.nodes-by-outcome", profile=HALVES, waits=True
)
def outcome_commits(broker: Broker) -> None:
    """On by-outcome, accepted commits; the settlement follows the commit."""
    halves = Halves(broker)
    producer, checker, check = _asked(halves, True)
    checker.answers(check, Accepted(), settled=False)
    checker.settlement(check, Accepted)
    expect_left(broker, halves.queue, b"the body")
    info = info_of(producer.conflict("1", "rollback", CONFLICT))
    expect_equal("half_resolved_by", "check", info.get("half_resolved_by"))
    producer.commit("1")


@scenario(
    "half.check/outcome-rolls-back",
    "half.check-rejected",
    "half.nodes-by-outcome",
    profile=HALVES,
    waits=True,
)
def outcome_rolls_back(broker: Broker) -> None:
    """On by-outcome, rejected rolls back."""
    halves = Halves(broker)
    producer, checker, check = _asked(halves, True)
    checker.answers(check, Rejected(error=Error(condition="x:y", description="bad")), settled=False)
    checker.settlement(check, Rejected)
    info = info_of(producer.conflict("1", "commit", CONFLICT))
    expect_equal("half_state", "rolled-back", info.get("half_state"))
    expect_equal("half_resolved_by", "check", info.get("half_resolved_by"))
    producer.roll_back("1")
    expect_left(broker, halves.queue)


@scenario(
    "half.check/outcome-settled", "half.check-accepted", "half.check-rejected", profile=HALVES, waits=True
)
def outcome_settled(broker: Broker) -> None:
    """On by-outcome, an outcome that comes settled decides as well."""
    halves = Halves(broker)
    producer, checker = _begun(halves, True)
    consumer = halves.consumer()
    producer.put(half("1", named=SOON), half("2", named=SOON))
    first, second = checker.asked("1"), checker.asked("2")
    checker.answers(second, Rejected())
    checker.answers(first, Accepted())
    expect_equal("x-opt-half-id", "1", half_id_annotation(halves.next(consumer)))
    producer.conflict("2", "commit", CONFLICT)
    halves.silent(consumer)


@scenario("half.check/released", "half.check-released", profile=HALVES, waits=True)
def released(broker: Broker) -> None:
    """Released: it was not asked, on either node; it comes again after a second, as attempt 1."""
    for number, by_outcome in enumerate((False, True)):
        halves = Halves(broker)
        halves.group = f"{halves.group[:62]}.{number}"
        _, checker, check = _asked(halves, by_outcome)
        checker.answers(check, Released())
        checker.is_silent(0.7)
        again = checker.asked("1")
        checker.answers(again, Released(), settled=False)
        checker.settlement(again, Released)
        expect_left(broker, halves.queue)


@scenario(
    "half.check/released-elsewhere", "half.check-released", "half.check-offered", profile=HALVES, waits=True
)
def released_elsewhere(broker: Broker) -> None:
    """What one link lets go is asked of another."""
    halves = Halves(broker)
    _, checker, check = _asked(halves, True)
    other = halves.checker("other", by_outcome=True)
    checker.answers(check, Released())
    other.asked("1")
    checker.session.peer.expect_nothing(Transfer, within_s=0.1)


@scenario("half.check/no-outcome", "half.check-released", profile=HALVES, waits=True)
def no_outcome(broker: Broker) -> None:
    """A check that is settled without an outcome was not asked: the default outcome is released."""
    halves = Halves(broker)
    producer, checker, check = _asked(halves, True)
    checker.session.put(_settled_without_state(check.delivery.delivery_id))
    checker.asked("1", within_s=3)
    producer.roll_back("1")


def _settled_without_state(delivery_id: int) -> Any:
    return Disposition(role=True, first=delivery_id, settled=True)


@scenario("half.check/cut", "half.check-released", "half.check-automatic", profile=HALVES, waits=True)
def cut(broker: Broker) -> None:
    """A connection that is cut commits nothing: another link is asked after a second, as attempt 1."""
    halves = Halves(broker)
    producer, checker, _ = _asked(halves, True)
    other = halves.checker("other", by_outcome=True)
    halves.leave(checker.session)
    other.is_silent(0.6)
    check = other.asked("1")
    expect_left(broker, halves.queue)
    other.answers(check, Rejected(), settled=False)
    other.settlement(check, Rejected)
    producer.conflict("1", "commit", CONFLICT)


@scenario("half.check/detached", "half.check-released", profile=HALVES, waits=True)
def detached(broker: Broker) -> None:
    """A link that is detached, or whose session ends, with a check out: it was not asked."""
    for number, how in enumerate(("detach", "end")):
        halves = Halves(broker)
        halves.group = f"{halves.group[:62]}.{number}"
        producer, checker, _ = _asked(halves, True)
        if how == "detach":
            checker.link.detach()
        else:
            checker.session.end()
        other = halves.checker("other", by_outcome=True)
        other.asked("1")
        expect_left(broker, halves.queue)
        producer.roll_back("1")
