"""Half messages are committed and rolled back: once, by anybody who may (half-messages: resolve)."""

import time

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.halves import (
    CONFLICT,
    INVALID,
    NOT_ALLOWED,
    UNKNOWN,
    Halves,
    Producer,
    half,
    half_id_annotation,
    resolution,
)
from amqp_broker.conformance.messages import MESSAGE_ANNOTATIONS, info_of, map_of
from amqp_broker.conformance.outcomes import (
    NotApplicable,
    Unexpected,
    error_of,
    expect,
    expect_equal,
    expect_state,
)
from amqp_broker.conformance.queues import body_of, expect_left
from amqp_broker.conformance.scenario import scenario
from amqp_broker.frames import Accepted, Rejected, Source, Ulong

RACES = 100
"""How often two connections resolve one half message at once; the project's tests do it a thousand times."""


@scenario("half.resolve/once", "half.resolve-once", "half.resolve-committed")
def once(halves: Halves) -> None:
    """Three commits are accepted, also from another connection, and deliver once."""
    producer, other, consumer = halves.producer(), halves.producer("other"), halves.consumer()
    producer.put(half("1"))
    producer.commit("1")
    producer.commit("1")
    other.commit("1")
    expect_equal("x-opt-half-id", "1", half_id_annotation(halves.next(consumer)))
    halves.silent(consumer)


@scenario("half.resolve/consumed", "half.resolve-once", "half.resolve-committed")
def consumed(broker: Broker, halves: Halves) -> None:
    """A repeated commit, and a late rollback, find the decision also after the message was consumed."""
    producer, consumer = halves.producer(), halves.consumer()
    producer.put(half("1"))
    producer.commit("1")
    delivery = halves.next(consumer)
    consumer.settle(delivery)
    consumer.detach()
    producer.commit("1")
    producer.conflict("1", "rollback", CONFLICT)
    expect_left(broker, halves.queue)


@scenario("half.resolve/rolled-back", "half.resolve-rolled-back", "half.resolve-open")
def rolled_back(broker: Broker, halves: Halves) -> None:
    """Three rollbacks are accepted; a commit after them is a conflict, and delivers nothing."""
    producer, other = halves.producer(), halves.producer("other")
    producer.put(half("1"))
    producer.roll_back("1")
    producer.roll_back("1")
    other.roll_back("1")
    producer.conflict("1", "commit", CONFLICT)
    other.conflict("1", "commit", CONFLICT)
    expect_left(broker, halves.queue)


@scenario("half.resolve/conflict", "half.resolve-info", "half.resolve-committed")
def conflict(producer: Producer) -> None:
    """A contradiction is told what was decided, when and by whom, in the info map and in words."""
    for first, second, state in (
        ("commit", "rollback", "committed"),
        ("rollback", "commit", "rolled-back"),
    ):
        producer.put(half(first))
        before = time.time() * 1000
        expect_state(producer.resolve(first, first), Accepted)
        error = producer.conflict(first, second, CONFLICT)
        info = info_of(error)
        expect_equal("half_state", state, info.get("half_state"))
        expect_equal("half_resolved_by", "producer", info.get("half_resolved_by"))
        at = info.get("half_resolved_at")
        number = at if isinstance(at, int) else 0
        if abs(number - before) > 3_600_000:
            raise Unexpected(f"expected the milliseconds of about now as half_resolved_at, got {at!r}")
        for word in (state, "producer", f"{number}"):
            expect_equal(f"whether the words have {word}", True, word in (error.description or ""))


@scenario("half.resolve/unknown-id", "half.resolve-unknown")
def unknown_id(producer: Producer) -> None:
    """What was never seen is half:unknown-id, never amqp:not-found; the link lives on."""
    for half_id in ("never", Ulong(7), b"never"):
        for subject in ("commit", "rollback"):
            producer.conflict(half_id, subject, UNKNOWN)
    producer.put(half("never"))
    producer.commit("never")


@scenario("half.resolve/invalid", "half.resolve-invalid", "half.resolve-message")
def invalid(broker: Broker, producer: Producer) -> None:
    """Another subject, or no correlation-id, is amqp:invalid-field and decides nothing."""
    producer.put(half("1"))
    for subject in (None, "", "Commit", "COMMIT", "commit ", "roll back", "perhaps"):
        producer.conflict("1", subject, INVALID)
    producer.conflict(None, "commit", INVALID)
    producer.conflict(None, "rollback", INVALID)
    producer.commit("1")
    expect_left(broker, producer.queue, b"the body")


@scenario("half.resolve/reason", "half.resolve-message")
def reason(broker: Broker, producer: Producer) -> None:
    """A resolution may say why."""
    producer.put(half("1"), half("2"))
    expect_state(producer.resolve("1", "rollback", {"half_reason": "no money"}), Accepted)
    expect_state(producer.resolve("2", "commit", {"half_reason": "r" * 5_000, "other": 1}), Accepted)
    expect_left(broker, producer.queue, b"the body")


@scenario("half.resolve/other-type", "half.resolve-message", "half.resolve-unknown")
def other_type(producer: Producer) -> None:
    """A correlation-id of another type, however equal its octets, is another half-id."""
    producer.put(half("1"))
    for half_id in (b"1", Ulong(1), "1 "):
        producer.conflict(half_id, "commit", UNKNOWN)
    producer.commit("1")


@scenario("half.resolve/wrong-group", "half.resolve-unknown", "half.resolve-message")
def wrong_group(broker: Broker, producer: Producer) -> None:
    """A half-id is of its group: another group has not seen it, and may have the same id."""
    other = producer.halves.producer("other", group=producer.halves.group[:60] + ".two")
    producer.put(half("1", b"of the one"))
    other.conflict("1", "commit", UNKNOWN)
    other.conflict("1", "rollback", UNKNOWN)
    other.put(half("1", b"of the other"))
    other.roll_back("1")
    producer.commit("1")
    expect_left(broker, producer.queue, b"of the one")


@scenario("half.resolve/race", "half.resolve-race", "half.resolve-committed")
def race(broker: Broker) -> None:
    """Commit and rollback at once from two connections: one accepted, one conflict; a hundred times."""
    halves = Halves(Broker(broker.settings, broker.scenario_id))  # a transcript is for reading
    one, two = halves.producer("one"), halves.producer("two")
    committed = 0
    for number in range(RACES):
        half_id = f"{number}"
        one.put(half(half_id))
        first = one.resolve_link.send(resolution(half_id, "commit"))
        second = two.resolve_link.send(resolution(half_id, "rollback"))
        outcomes = one.answer(first), two.answer(second)
        refused = [outcome for outcome in outcomes if not isinstance(outcome, Accepted)]
        expect(len(refused) == 1, f"expected one accepted and one conflict, got {outcomes}")
        error_of(expect_state(refused[0], Rejected), CONFLICT)
        committed += isinstance(outcomes[0], Accepted)
    halves.broker.discard()
    if committed:
        expect_left(broker, halves.queue, *([b"the body"] * committed))


@scenario("half.resolve/order", "half.resolve-order")
def order(broker: Broker, producer: Producer) -> None:
    """Messages stand in their queue in the order of the commits, also between ordinary ones."""
    ordinary = producer.session.sender(producer.queue, 12, "ordinary")
    producer.put(*[half(number, number.encode()) for number in "1234"])
    producer.commit("3")
    ordinary.put([half(None, b"ordinary")])
    for number in "142":
        producer.commit(number)
    expect_left(broker, producer.queue, b"3", b"ordinary", b"1", b"4", b"2", in_order=True)


@scenario("half.resolve/settled", "half.put-settled", "half.resolve-message")
def settled(broker: Broker, halves: Halves) -> None:
    """A resolution that was sent settled decides nothing."""
    producer, other = halves.producer(), halves.producer("other")
    producer.put(half("1"))
    producer.resolve_link.send(resolution("1", "commit"), settled=True)
    producer.resolve_link.expect_detach(NOT_ALLOWED)
    other.roll_back("1")
    expect_left(broker, halves.queue)


@scenario("half.resolve/gone", "half.resolve-gone", alone=True)
def gone(halves: Halves) -> None:
    """The destination is gone: the commit is accepted, and the message is with the dead letters."""
    session = halves.session("owner")
    temporary = session.receiver(None, source=Source(dynamic=True))
    source = temporary.attach.source
    producer = halves.producer("producer", getattr(source, "address", None) or "")
    body = f"left by {halves.group}".encode()
    producer.put(half("1", body))
    temporary.detach()
    producer.commit("1")
    producer.commit("1")
    letters = session.receiver("dead-letters", 2, credit=50)
    while True:
        expect(letters.peer.has_more(1.0), "the message is not with the dead letters")
        delivery = halves.next(letters)
        if body_of(delivery) == body:
            break
    why = map_of(delivery.payload, MESSAGE_ANNOTATIONS).get("x-opt-dead-letter-reason")
    expect_equal("whether it says why", True, bool(why))
    letters.settle(delivery)


@scenario("half.resolve/gone-rollback", "half.resolve-gone", "half.resolve-open")
def gone_rollback(broker: Broker, halves: Halves) -> None:
    """The destination is gone: a rollback is accepted."""
    session = halves.session("owner")
    temporary = session.receiver(None, source=Source(dynamic=True))
    source = temporary.attach.source
    address = getattr(source, "address", None)
    if not isinstance(address, str):
        raise NotApplicable("the broker made no dynamic node")
    producer = halves.producer("producer", address)
    producer.put(half("1"))
    temporary.detach()
    producer.roll_back("1")
    producer.conflict("1", "commit", CONFLICT)
