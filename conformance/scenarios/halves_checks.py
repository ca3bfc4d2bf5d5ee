"""The broker asks what became of half messages: when, whom, how often, and what an answer does (check-
back).
"""

import time
from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.halves import (
    CONFLICT,
    SOON,
    Check,
    Checker,
    Halves,
    Producer,
    half,
    half_id_annotation,
)
from amqp_broker.conformance.messages import bare_octets, info_of
from amqp_broker.conformance.outcomes import Unexpected, expect_equal
from amqp_broker.conformance.queues import body_of, expect_left
from amqp_broker.conformance.scenario import scenario
from amqp_broker.frames import (
    Accepted,
    Detach,
    Disposition,
    Error,
    Flow,
    Modified,
    Rejected,
    Released,
    Source,
    Transfer,
    Ulong,
)


@scenario("half.check/default", "half.check-due", "half.put-timers", waits=True)
def default(halves: Halves) -> None:
    """Without a wish of its own a half message is asked about after 6 s, and not before."""
    producer, checker = halves.producer(), halves.checker()
    producer.put(half("1"))
    checker.is_silent(5.5)
    check = checker.asked("1")
    expect_equal("whether its age is 6 s", True, 6_000 <= check.named["half_age_ms"] < 6_500)


@scenario("half.check/custom", "half.check-due", "half.put-timers", waits=True)
def custom(halves: Halves) -> None:
    """half_first_check_ms: asked then, and not before; each half message at its own time."""
    producer, checker = halves.producer(), halves.checker()
    producer.put(
        half("late", named={"half_first_check_ms": 1_200}),
        half("early", named={"half_first_check_ms": 500}),
        half("much later", named={"half_first_check_ms": 600_000}),
    )
    checker.is_silent(0.35)
    checker.asked("early")
    checker.is_silent(0.4)
    checker.asked("late")
    checker.is_silent(0.5)


@scenario("half.check/message", "half.check-message", "half.check-jms", waits=True)
def message(halves: Halves) -> None:
    """The check has the body, the application properties, and all that an answer needs."""
    producer, checker = halves.producer(), halves.checker()
    before = time.time() * 1000
    producer.put(half("m1", b"remember", named={**SOON, "color": "blue", "half_id": "1"}, subject="order"))
    check = checker.asked("1")
    expect_equal("the body", b"remember", body_of(check.delivery))
    expect_equal("reply-to", f"$half-resolve/{halves.group}", check.properties.reply_to)
    expect_equal("subject", "check", check.properties.subject)
    if check.properties.message_id in (None, "m1", "1"):
        raise Unexpected(f"expected a fresh message-id, got {check.properties.message_id!r}")
    named = check.named
    expect_equal("the application property", "blue", named.get("color"))
    expect_equal("half_id", "1", named.get("half_id"))
    expect_equal("half_group", halves.group, named.get("half_group"))
    expect_equal("half_destination", halves.queue, named.get("half_destination"))
    expect_equal("half_body_omitted", False, bool(named.get("half_body_omitted")))
    expect_equal("whether half_age_ms is the age", True, 200 <= named["half_age_ms"] < 3_000)
    left = named["half_deadline"] - before
    expect_equal("whether half_deadline is 4 h from the put", True, abs(left - 4 * 3_600_000) < 60_000)


@scenario("half.check/id-types", "half.check-message", "half.put-id", waits=True)
def id_types(halves: Halves) -> None:
    """The correlation-id of a check is the half-id, of the type that the producer gave it."""
    producer, checker = halves.producer(), halves.checker(by_outcome=True)
    for half_id in (b"\x01\x02", Ulong(7), "7"):
        producer.put(half(half_id, named=SOON))
        check = checker.asked(half_id)
        expect_equal("the type", type(half_id), type(check.half_id))
        checker.answers(check, Accepted())
        producer.commit(half_id)


@scenario("half.check/answered", "half.check-message", "half.resolve-message", waits=True)
def answered(broker: Broker, halves: Halves) -> None:
    """Who is asked answers where reply-to says: the commit is accepted, and never asked about again."""
    producer, checker, answering = halves.producer(), halves.checker(), halves.producer("answering")
    producer.put(half("1", b"half", named=SOON))
    check = checker.asked("1")
    answering.commit(check.properties.correlation_id)
    checker.answers(check, Accepted())
    expect_left(broker, halves.queue, b"half")
    checker.is_silent(1.5)


@scenario("half.check/large-body", "half.check-message", "half.put-octets", waits=True)
def large_body(halves: Halves) -> None:
    """A body of 300 KiB is left out of the check, one of 200 KiB is not; both are delivered whole."""
    producer, checker = halves.producer(), halves.checker(by_outcome=True, credit=1)
    for half_id, size in (("large", 300 << 10), ("small", 200 << 10)):
        payload = half(half_id, b"x" * size, named=SOON)
        producer.put_link.send(payload, frame_octets=50_000)
        producer.put_link.expect_outcome(Accepted)
        check = checker.asked(half_id)
        expect_equal("half_body_omitted", half_id == "large", bool(check.named.get("half_body_omitted")))
        expect_equal("the size of its body", 0 if half_id == "large" else size, len(body_of(check.delivery)))
        checker.answers(check, Accepted())
        checker.link.flow(1)
        consumer = halves.consumer(1)
        delivery = halves.next(consumer)
        expect_equal("whether it is whole", True, bare_octets(payload) == bare_octets(delivery.payload))
        consumer.settle(delivery)
        consumer.detach()


@scenario("half.check/nobody", "half.check-waits", waits=True)
def nobody(producer: Producer) -> None:
    """Nobody is connected: it waits; who comes then is asked at once, as attempt 1."""
    producer.put(half("1", named=SOON))
    producer.halves.pause(1.5)
    begun = time.monotonic()
    check = producer.halves.checker().asked("1")
    expect_equal("whether it came at once", True, time.monotonic() - begun < 0.8)
    expect_equal("whether its age is from the storage", True, check.named["half_age_ms"] >= 1_500)


@scenario("half.check/no-credit", "half.check-waits", waits=True)
def no_credit(halves: Halves) -> None:
    """No credit, no check; with credit at once, as attempt 1, and never more than the credit."""
    producer, checker = halves.producer(), halves.checker(credit=0)
    producer.put(*[half(f"{number}", named=SOON) for number in range(5)])
    checker.is_silent(0.8)
    checker.link.flow(2)
    checker.asked("0")
    checker.asked("1")
    checker.is_silent(0.3)
    checker.link.flow(3)
    for number in range(2, 5):
        checker.asked(f"{number}")


@scenario("half.check/drain", "half.check-waits", waits=True)
def drain(halves: Halves) -> None:
    """A drain is answered: what is due comes, and the rest of the credit is used up."""
    producer, checker = halves.producer(), halves.checker(credit=0)
    producer.put(half("1", named=SOON), half("2", named={"half_first_check_ms": 1_500}))
    halves.pause(0.5)
    count = checker.link.delivery_count
    checker.link.flow(5, drain=True)
    checker.asked("1")
    flow = checker.session.peer.expect_frame(Flow).performative
    while flow.handle != checker.link.remote_handle or flow.link_credit != 0:
        flow = checker.session.peer.expect_frame(Flow).performative
    expect_equal("the delivery-count", 5, flow.delivery_count - count)
    checker.is_silent(1.5)


@scenario("half.check/batches", "half.check-waits", "half.check-offered", waits=True)
def batches(broker: Broker, producer: Producer) -> None:
    """Many are due, and the credit is small: never more are asked about at a time, and each once."""
    producer.put(*[half(f"{number}", named={"half_first_check_ms": 1}) for number in range(40)])
    checker = producer.halves.checker(by_outcome=True, credit=8)
    seen = set()
    for _ in range(5):
        checks = [Check(producer.halves.next(checker.link)) for _ in range(8)]
        seen |= {check.half_id for check in checks}
        checker.is_silent(0.1)
        for check in checks:
            checker.answers(check, Accepted())
        checker.link.flow(8)
    expect_equal("how many are asked about", 40, len(seen))
    expect_left(broker, producer.queue, *([b"the body"] * 40))


@scenario("half.check/own-container-first", "half.check-offered", waits=True)
def own_container_first(halves: Halves) -> None:
    """First a link of the container that put it is asked, then another."""
    producer, stranger = halves.producer(), halves.checker("stranger")
    own = halves.checker("producer", credit=2)
    later = halves.checker("later")
    producer.put(half("1", named=SOON), half("2", named=SOON))
    own.asked("1")
    own.asked("2")
    stranger.is_silent(0.2)
    later.is_silent(0.1)
    producer.put(half("3", named=SOON))
    halves.pause(0.6)
    expect_equal("how many others", 1, sum(other.session.peer.has_more(0.1) for other in (stranger, later)))


@scenario("half.check/in-turn", "half.check-offered", waits=True)
def in_turn(producer: Producer) -> None:
    """Others are asked in turn, each half message on one link."""
    others = [producer.halves.checker(name) for name in ("first", "second", "third")]
    producer.put(*[half(f"{number}", named=SOON) for number in range(6)])
    producer.halves.pause(0.8)
    for other in others:
        for _ in range(2):
            producer.halves.next(other.link)
    for other in others:
        other.is_silent(0.1)


@scenario("half.check/taken-back", "half.check-out", waits=True)
def taken_back(broker: Broker, producer: Producer) -> None:
    """A resolution arrives while a check is out: it is applied, and the check is settled released."""
    for by_outcome, half_id in ((False, "1"), (True, "2")):
        checker = producer.halves.checker(f"checker-{half_id}", by_outcome=by_outcome)
        producer.put(half(half_id, half_id.encode(), named=SOON))
        check = checker.asked(half_id)
        if by_outcome:
            producer.roll_back(half_id)
        else:
            producer.commit(half_id)
        checker.settlement(check, Released)
        checker.answers(check, Accepted())
        checker.is_silent(1.3)
        producer.halves.leave(checker.session)
    expect_left(broker, producer.queue, b"1")


@scenario("half.check/clock", "half.check-clock", waits=True)
def clock(broker: Broker, halves: Halves) -> None:
    """The producer's clock is wrong by a minute, either way: its age is by the broker's."""
    producer, checker = halves.producer(), halves.checker()
    now = int(time.time() * 1000)
    timers = {"half_first_check_ms": 800, "half_max_age_ms": 30_000}
    producer.put(
        half("slow", named=timers, creation_time=now - 60_000),
        half("fast", named=timers, creation_time=now + 60_000),
    )
    checker.is_silent(0.6)
    checks = [Check(halves.next(checker.link)) for _ in range(2)]
    expect_equal("which are asked about", {"slow", "fast"}, {check.half_id for check in checks})
    for check in checks:
        expect_equal("whether the age is the broker's", True, 800 <= check.named["half_age_ms"] < 3_000)


@scenario("half.check/slow", "half.check-slow", "half.check-accepted", waits=True)
def slow(halves: Halves) -> None:
    """A slow local transaction: unknown when asked, committed later, delivered once."""
    producer, checker, consumer = halves.producer(), halves.checker("producer"), halves.consumer()
    producer.put(half("1", named=SOON))
    checker.answers(checker.asked("1"), Accepted())
    halves.silent(consumer, 1.0)
    producer.commit("1")
    expect_equal("the body", b"the body", body_of(halves.next(consumer)))
    halves.silent(consumer)
    checker.session.peer.expect_nothing(Transfer, within_s=0.1)


def _begun(halves: Halves, by_outcome: bool = False) -> tuple[Producer, Checker]:
    """Returns a producer, and somebody who is asked."""
    return halves.producer(), halves.checker(by_outcome=by_outcome)


def _asked(halves: Halves, by_outcome: bool) -> tuple[Producer, Checker, Any]:
    """The same, and the check of the half message "1"."""
    producer, checker = _begun(halves, by_outcome)
    producer.put(half("1", named=SOON))
    return producer, checker, checker.asked("1")


@scenario(
    "half.check/automatic", "half.check-automatic", "half.check-accepted", waits=True,
    breaks="2.5-one-session",
)  # fmt: skip
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


@scenario("half.check/rejected-is-no-rollback", "half.check-rejected", waits=True)
def rejected_is_no_rollback(broker: Broker, halves: Halves) -> None:
    """A consumer that rejects a check rolls nothing back, unless it chose by-outcome."""
    producer, checker, check = _asked(halves, False)
    checker.answers(check, Rejected(error=Error(condition="x:y")), settled=False)
    checker.settlement(check, Rejected)
    checker.is_silent(1.3)
    producer.commit("1")
    expect_left(broker, halves.queue, b"the body")


@scenario("half.check/outcome-commits", "half.check-accepted", "half.nodes-by-outcome", waits=True)
def outcome_commits(broker: Broker, halves: Halves) -> None:
    """On by-outcome, accepted commits; the settlement follows the commit."""
    producer, checker, check = _asked(halves, True)
    checker.answers(check, Accepted(), settled=False)
    checker.settlement(check, Accepted)
    expect_left(broker, halves.queue, b"the body")
    info = info_of(producer.conflict("1", "rollback", CONFLICT))
    expect_equal("half_resolved_by", "check", info.get("half_resolved_by"))
    producer.commit("1")


@scenario("half.check/outcome-rolls-back", "half.check-rejected", "half.nodes-by-outcome", waits=True)
def outcome_rolls_back(broker: Broker, halves: Halves) -> None:
    """On by-outcome, rejected rolls back."""
    producer, checker, check = _asked(halves, True)
    checker.answers(check, Rejected(error=Error(condition="x:y", description="bad")), settled=False)
    checker.settlement(check, Rejected)
    info = info_of(producer.conflict("1", "commit", CONFLICT))
    expect_equal("half_state", "rolled-back", info.get("half_state"))
    expect_equal("half_resolved_by", "check", info.get("half_resolved_by"))
    producer.roll_back("1")
    expect_left(broker, halves.queue)


@scenario("half.check/outcome-settled", "half.check-accepted", "half.check-rejected", waits=True)
def outcome_settled(halves: Halves) -> None:
    """On by-outcome, an outcome that comes settled decides as well."""
    producer, checker = _begun(halves, True)
    consumer = halves.consumer()
    producer.put(half("1", named=SOON), half("2", named=SOON))
    first, second = checker.asked("1"), checker.asked("2")
    checker.answers(second, Rejected())
    checker.answers(first, Accepted())
    expect_equal("x-opt-half-id", "1", half_id_annotation(halves.next(consumer)))
    producer.conflict("2", "commit", CONFLICT)
    halves.silent(consumer)


@scenario("half.check/released", "half.check-released", waits=True, breaks="2.5-one-session")
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


@scenario("half.check/released-elsewhere", "half.check-released", "half.check-offered", waits=True)
def released_elsewhere(halves: Halves) -> None:
    """What one link lets go is asked of another."""
    _, checker, check = _asked(halves, True)
    other = halves.checker("other", by_outcome=True)
    checker.answers(check, Released())
    other.asked("1")
    checker.session.peer.expect_nothing(Transfer, within_s=0.1)


@scenario("half.check/no-outcome", "half.check-released", waits=True)
def no_outcome(halves: Halves) -> None:
    """A check that is settled without an outcome was not asked: the default outcome is released."""
    producer, checker, check = _asked(halves, True)
    checker.session.put(_settled_without_state(check.delivery.delivery_id))
    checker.asked("1", within_s=3)
    producer.roll_back("1")


def _settled_without_state(delivery_id: int) -> Any:
    return Disposition(role=True, first=delivery_id, settled=True)


@scenario("half.check/cut", "half.check-released", "half.check-automatic", waits=True)
def cut(broker: Broker, halves: Halves) -> None:
    """A connection that is cut commits nothing: another link is asked after a second, as attempt 1."""
    producer, checker, _ = _asked(halves, True)
    other = halves.checker("other", by_outcome=True)
    halves.leave(checker.session)
    other.is_silent(0.6)
    check = other.asked("1")
    expect_left(broker, halves.queue)
    other.answers(check, Rejected(), settled=False)
    other.settlement(check, Rejected)
    producer.conflict("1", "commit", CONFLICT)


@scenario("half.check/detached", "half.check-released", waits=True, breaks="2.5-one-session")
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


@scenario("half.check/maximum-age", "half.check-end", "half.put-timers", waits=True)
def maximum_age(broker: Broker, halves: Halves) -> None:
    """At its maximum age a half message is rolled back by the deadline, whether it was asked or not."""
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


def _short(broker: Broker, group: str) -> tuple[Halves, str]:
    """Returns a group with short times, and a half-id that no other run has used in it."""
    halves = Halves(broker, f"conformance.{group}")
    halves.require_short()
    return halves, f"{broker.settings.run_id}-1"


@scenario("half.check/lock", "half.check-lock", waits=True)
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


@scenario("half.check/schedule", "half.check-schedule", "half.check-failed", waits=True)
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


@scenario("half.check/failed", "half.check-failed", "half.check-undeliverable", waits=True)
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


@scenario("half.check/last-attempt", "half.check-end", waits=True)
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


@scenario("half.check/parked", "half.check-parked", "half.check-end", "half.nodes-parked", waits=True)
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


@scenario("half.check/parked-age", "half.check-end", "half.check-parked", waits=True)
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
