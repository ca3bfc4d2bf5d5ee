"""How long and how often the broker asks, and what it does in the end (check-back)."""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.halves import CONFLICT, SOON, Checker, Halves, Producer, half, half_id_annotation
from amqp_broker.conformance.messages import bare_octets
from amqp_broker.conformance.outcomes import expect_equal
from amqp_broker.conformance.queues import expect_left
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.scenarios.halves_resolve import info_of
from amqp_broker.frames import Accepted, Detach, Modified, Rejected, Released, Source

HALVES = "half-messages"


@scenario("half.check/maximum-age", "half.check-end", "half.put-timers", profile=HALVES, waits=True)
def maximum_age(broker: Broker) -> None:
    """At its maximum age a half message is rolled back by the deadline, whether it was asked or not."""
    halves = Halves(broker)
    producer, checker = _begun(halves, True)
    producer.put(
        half("asked", named={"half_first_check_ms": 100, "half_max_age_ms": 700}),
        half("never", named={"half_first_check_ms": 700, "half_max_age_ms": 700}),
        half("kept", named={"half_max_age_ms": 60_000}),
    )
    check = checker.asked("asked")
    halves.pause(1.2)
    for half_id in ("asked", "never"):
        info = info_of(producer.conflict(half_id, "commit", CONFLICT))
        expect_equal("half_resolved_by", "deadline", info.get("half_resolved_by"))
    checker.settlement(check, Released)
    checker.answers(check, Accepted())
    producer.commit("kept")
    expect_left(broker, halves.queue, b"the body")


def _begun(halves: Halves, by_outcome: bool = False) -> tuple[Producer, Checker]:
    """Returns a producer, and somebody who is asked."""
    return halves.producer(), halves.checker(by_outcome=by_outcome)


def _short(broker: Broker, group: str) -> tuple[Halves, str]:
    """Returns a group with short times, and a half-id that no other run has used in it."""
    halves = Halves(broker, f"conformance.{group}")
    halves.require_short()
    return halves, f"{broker.settings.run_id}-1"


@scenario("half.check/lock", "half.check-lock", profile=HALVES, waits=True)
def lock(broker: Broker) -> None:
    """No outcome in the group's time: the broker settles released, a later outcome is ignored."""
    halves, half_id = _short(broker, "lock")
    producer, checker = _begun(halves, True)
    producer.put(half(half_id, named=SOON))
    late = checker.asked(half_id)
    checker.is_silent(0.4)
    checker.settlement(late, Released)
    checker.answers(late, Accepted())
    checker.is_silent(0.6)
    again = checker.asked(half_id)
    expect_left(broker, halves.queue)
    checker.answers(again, Accepted(), settled=False)
    checker.settlement(again, Accepted)
    expect_left(broker, halves.queue, b"the body")


@scenario("half.check/schedule", "half.check-schedule", "half.check-failed", profile=HALVES, waits=True)
def schedule(broker: Broker) -> None:
    """Attempts are counted by answers, and each waits longer than the one before."""
    halves, half_id = _short(broker, "schedule")
    producer, checker = _begun(halves)
    producer.put(half(half_id, named=SOON))
    answers = (Accepted(), Modified(delivery_failed=True), Rejected(), Accepted())
    waits = (0.4, 0.8, 1.2, 1.2)
    for number, (outcome, wait_s) in enumerate(zip(answers, waits, strict=True), 1):
        checker.answers(checker.asked(half_id, number), outcome)
        checker.is_silent(wait_s - 0.15)
    checker.answers(checker.asked(half_id, 5), Released())
    checker.asked(half_id, 5)
    producer.commit(half_id)
    expect_left(broker, halves.queue, b"the body")


@scenario("half.check/failed", "half.check-failed", "half.check-undeliverable", profile=HALVES, waits=True)
def failed(broker: Broker) -> None:
    """On by-outcome modified decides nothing: one attempt; undeliverable-here never comes here again."""
    halves, half_id = _short(broker, "failed")
    producer, checker = _begun(halves, True)
    producer.put(half(half_id, named=SOON))
    checker.answers(checker.asked(half_id), Modified(delivery_failed=True), settled=False)
    check = checker.asked(half_id, 2)
    checker.answers(check, Modified(undeliverable_here=True))
    checker.is_silent(1.8)
    other = halves.checker("other", by_outcome=True)
    check = other.asked(half_id, 3)
    expect_left(broker, halves.queue)
    other.answers(check, Rejected(), settled=False)
    other.settlement(check, Rejected)
    producer.conflict(half_id, "commit", CONFLICT)


@scenario("half.check/last-attempt", "half.check-end", profile=HALVES, waits=True)
def last_attempt(broker: Broker) -> None:
    """After the last unknown answer the deadline rolls back, where that is the policy."""
    halves, half_id = _short(broker, "gives-up")
    producer, checker = _begun(halves)
    producer.put(half(half_id, named=SOON))
    for number in (1, 2, 3):
        checker.answers(checker.asked(half_id, number), Accepted())
    checker.is_silent(1.5)
    info = info_of(producer.conflict(half_id, "commit", CONFLICT))
    expect_equal("half_resolved_by", "deadline", info.get("half_resolved_by"))
    producer.roll_back(half_id)


@scenario(
    "half.check/parked",
    "half.check-parked",
    "half.check-end",
    "half.nodes-parked",
    profile=HALVES,
    waits=True,
)
def parked(broker: Broker) -> None:
    """Where the policy is to park: it is looked at, asked about no more, and still resolved."""
    halves, half_id = _short(broker, "parks")
    producer, checker = _begun(halves)
    address = f"$half-parked/{halves.group}"
    source = Source(address=address, distribution_mode="copy")
    look = halves.session("administrator").receiver(address, source=source, credit=10)
    payload = half(half_id, b"parked", named=SOON)
    producer.put(payload)
    halves.silent(look, 0.1)
    for number in (1, 2):
        checker.answers(checker.asked(half_id, number), Accepted())
    shown = halves.next(look)
    while half_id_annotation(shown) != half_id:  # another run's, and its remains are there for ever
        shown = halves.next(look)
    expect_equal("the bare message", bare_octets(payload), bare_octets(shown.payload))
    look.settle(shown, Accepted())
    checker.is_silent(1.0)
    producer.put(payload)
    expect_left(broker, halves.queue)
    producer.commit(half_id)
    expect_left(broker, halves.queue, b"parked")
    look.peer.expect_nothing(Detach, within_s=0.1)


@scenario("half.check/parked-age", "half.check-end", "half.check-parked", profile=HALVES, waits=True)
def parked_age(broker: Broker) -> None:
    """At its maximum age a half message is parked, where that is the policy, and can be rolled back."""
    halves, half_id = _short(broker, "parks-at-age")
    producer = halves.producer()
    producer.put(half(half_id, named={"half_first_check_ms": 300, "half_max_age_ms": 300}))
    halves.pause(0.8)
    halves.checker().is_silent(0.5)
    producer.put(half(half_id, named={"half_first_check_ms": 300, "half_max_age_ms": 300}))
    producer.roll_back(half_id)
    producer.conflict(half_id, "commit", CONFLICT)
    expect_left(broker, halves.queue)
