"""The broker asks what became of half messages: when, whom, and with which message (check-back)."""

import time

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.halves import SOON, Check, Halves, half
from amqp_broker.conformance.messages import bare_octets
from amqp_broker.conformance.outcomes import Unexpected, expect_equal
from amqp_broker.conformance.queues import body_of, expect_left
from amqp_broker.conformance.scenario import scenario
from amqp_broker.frames import Accepted, Flow, Released, Transfer, Ulong

HALVES = "half-messages"


@scenario("half.check/default", "half.check-due", "half.put-timers", profile=HALVES, waits=True)
def default(broker: Broker) -> None:
    """Without a wish of its own a half message is asked about after 6 s, and not before."""
    halves = Halves(broker)
    producer, checker = halves.producer(), halves.checker()
    producer.put(half("1"))
    checker.is_silent(5.5)
    check = checker.asked("1")
    expect_equal("whether its age is 6 s", True, 6_000 <= check.named["half_age_ms"] < 6_500)


@scenario("half.check/custom", "half.check-due", "half.put-timers", profile=HALVES, waits=True)
def custom(broker: Broker) -> None:
    """half_first_check_ms: asked then, and not before; each half message at its own time."""
    halves = Halves(broker)
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


@scenario("half.check/message", "half.check-message", "half.check-jms", profile=HALVES, waits=True)
def message(broker: Broker) -> None:
    """The check has the body, the application properties, and all that an answer needs."""
    halves = Halves(broker)
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


@scenario("half.check/id-types", "half.check-message", "half.put-id", profile=HALVES, waits=True)
def id_types(broker: Broker) -> None:
    """The correlation-id of a check is the half-id, of the type that the producer gave it."""
    halves = Halves(broker)
    producer, checker = halves.producer(), halves.checker(by_outcome=True)
    for half_id in (b"\x01\x02", Ulong(7), "7"):
        producer.put(half(half_id, named=SOON))
        check = checker.asked(half_id)
        expect_equal("the type", type(half_id), type(check.half_id))
        checker.answers(check, Accepted())
        producer.commit(half_id)


@scenario("half.check/answered", "half.check-message", "half.resolve-message", profile=HALVES, waits=True)
def answered(broker: Broker) -> None:
    """Who is asked answers where reply-to says: the commit is accepted, and never asked about again."""
    halves = Halves(broker)
    producer, checker, answering = halves.producer(), halves.checker(), halves.producer("answering")
    producer.put(half("1", b"half", named=SOON))
    check = checker.asked("1")
    answering.commit(check.properties.correlation_id)
    checker.answers(check, Accepted())
    expect_left(broker, halves.queue, b"half")
    checker.is_silent(1.5)


@scenario("half.check/large-body", "half.check-message", "half.put-octets", profile=HALVES, waits=True)
def large_body(broker: Broker) -> None:
    """A body of 300 KiB is left out of the check, one of 200 KiB is not; both are delivered whole."""
    halves = Halves(broker)
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


@scenario("half.check/nobody", "half.check-waits", profile=HALVES, waits=True)
def nobody(broker: Broker) -> None:
    """Nobody is connected: it waits; who comes then is asked at once, as attempt 1."""
    halves = Halves(broker)
    producer = halves.producer()
    producer.put(half("1", named=SOON))
    halves.pause(1.5)
    begun = time.monotonic()
    check = halves.checker().asked("1")
    expect_equal("whether it came at once", True, time.monotonic() - begun < 0.8)
    expect_equal("whether its age is from the storage", True, check.named["half_age_ms"] >= 1_500)


@scenario("half.check/no-credit", "half.check-waits", profile=HALVES, waits=True)
def no_credit(broker: Broker) -> None:
    """No credit, no check; with credit at once, as attempt 1, and never more than the credit."""
    halves = Halves(broker)
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


@scenario("half.check/drain", "half.check-waits", profile=HALVES, waits=True)
def drain(broker: Broker) -> None:
    """A drain is answered: what is due comes, and the rest of the credit is used up."""
    halves = Halves(broker)
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


@scenario("half.check/batches", "half.check-waits", "half.check-offered", profile=HALVES, waits=True)
def batches(broker: Broker) -> None:
    """Many are due, and the credit is small: never more are asked about at a time, and each once."""
    halves = Halves(broker)
    producer = halves.producer()
    producer.put(*[half(f"{number}", named={"half_first_check_ms": 1}) for number in range(40)])
    checker = halves.checker(by_outcome=True, credit=8)
    seen = set()
    for _ in range(5):
        checks = [Check(halves.next(checker.link)) for _ in range(8)]
        seen |= {check.half_id for check in checks}
        checker.is_silent(0.1)
        for check in checks:
            checker.answers(check, Accepted())
        checker.link.flow(8)
    expect_equal("how many are asked about", 40, len(seen))
    expect_left(broker, halves.queue, *([b"the body"] * 40))


@scenario("half.check/own-container-first", "half.check-offered", profile=HALVES, waits=True)
def own_container_first(broker: Broker) -> None:
    """First a link of the container that put it is asked, then another."""
    halves = Halves(broker)
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


@scenario("half.check/in-turn", "half.check-offered", profile=HALVES, waits=True)
def in_turn(broker: Broker) -> None:
    """Others are asked in turn, each half message on one link."""
    halves = Halves(broker)
    producer = halves.producer()
    others = [halves.checker(name) for name in ("first", "second", "third")]
    producer.put(*[half(f"{number}", named=SOON) for number in range(6)])
    halves.pause(0.8)
    for other in others:
        for _ in range(2):
            halves.next(other.link)
    for other in others:
        other.is_silent(0.1)


@scenario("half.check/taken-back", "half.check-out", profile=HALVES, waits=True)
def taken_back(broker: Broker) -> None:
    """A resolution arrives while a check is out: it is applied, and the check is settled released."""
    halves = Halves(broker)
    producer = halves.producer()
    for by_outcome, half_id in ((False, "1"), (True, "2")):
        checker = halves.checker(f"checker-{half_id}", by_outcome=by_outcome)
        producer.put(half(half_id, half_id.encode(), named=SOON))
        check = checker.asked(half_id)
        if by_outcome:
            producer.roll_back(half_id)
        else:
            producer.commit(half_id)
        checker.settlement(check, Released)
        checker.answers(check, Accepted())
        checker.is_silent(1.3)
        halves.leave(checker.session)
    expect_left(broker, halves.queue, b"1")


@scenario("half.check/clock", "half.check-clock", profile=HALVES, waits=True)
def clock(broker: Broker) -> None:
    """The producer's clock is wrong by a minute, either way: its age is by the broker's."""
    halves = Halves(broker)
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


@scenario("half.check/slow", "half.check-slow", "half.check-accepted", profile=HALVES, waits=True)
def slow(broker: Broker) -> None:
    """A slow local transaction: unknown when asked, committed later, delivered once."""
    halves = Halves(broker)
    producer, checker, consumer = halves.producer(), halves.checker("producer"), halves.consumer()
    producer.put(half("1", named=SOON))
    checker.answers(checker.asked("1"), Accepted())
    halves.silent(consumer, 1.0)
    producer.commit("1")
    expect_equal("the body", b"the body", body_of(halves.next(consumer)))
    halves.silent(consumer)
    checker.session.peer.expect_nothing(Transfer, within_s=0.1)
