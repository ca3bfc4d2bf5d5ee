"""Outcomes that were given in a transaction and are rolled back (4.4.2, 4.4.4)."""

from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.messages import MESSAGE_ANNOTATIONS, map_of
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected
from amqp_broker.conformance.queues import delivery_count, expect_left, put
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transactions import Delivered
from amqp_broker.conformance.transcript import describe_value
from amqp_broker.frames import (
    Accepted,
    Modified,
    Rejected,
    Released,
    Source,
)

OUTCOMES = (
    Accepted(),
    Rejected(),
    Released(),
    Modified(delivery_failed=True, message_annotations={"x-opt-new": "new"}),
)


@scenario("4.4.2/rollback-stays-acquired", "4.4.2-03", "4.4.4-reverts", "4.4.4-free")
def rollback_stays_acquired(broker: Broker) -> None:
    """Unsettled outcomes that are rolled back: the deliveries are live, and nobody else gets the messages."""
    work = Delivered(broker, len(OUTCOMES))
    for number, outcome in enumerate(OUTCOMES):
        work.retire(outcome, number, settled=False)
    work.control.roll_back(work.txn)
    expect_left(broker, broker.queue())
    for number in range(len(OUTCOMES)):
        work.receiver.settle(work.deliveries[number])
    work.control.session.catch_up()
    work.left()


@scenario("4.4.2/rollback-then-released", "4.4.2-03", "4.4.4-reverts")
def rollback_then_released(broker: Broker) -> None:
    """Unsettled outcomes that are rolled back have changed nothing: released then, they come as they were."""
    work = Delivered(broker, len(OUTCOMES))
    for number, outcome in enumerate(OUTCOMES):
        work.retire(outcome, number, settled=False)
    work.control.roll_back(work.txn)
    work.receiver.settle(work.deliveries, Released())
    work.control.session.catch_up()
    for delivery in work.left(b"0", b"1", b"2", b"3"):
        new = map_of(delivery.payload, MESSAGE_ANNOTATIONS).get("x-opt-new")
        if delivery_count(delivery) or new is not None:
            raise Unexpected(
                f"expected it unchanged, got delivery-count {delivery_count(delivery)}, annotation {new!r}"
            )


@scenario("4.4.2/rollback-then-again", "4.4.2-03", "4.4.4-free", "4.4.2-not-associated")
def rollback_then_again(broker: Broker) -> None:
    """An unsettled outcome that was rolled back can be given in another transaction, again and again."""
    work = Delivered(broker)
    for _ in range(3):
        work.retire(Accepted(), settled=False)
        work.control.roll_back(work.txn)
        work.txn = work.control.declare()
    work.retire(Accepted(), settled=False)
    work.control.commit(work.txn)
    work.left()


def _with_default(broker: Broker, outcome: Any) -> Delivered:
    """As Delivered, on a source with this default-outcome."""
    work = Delivered(broker, source=Source(address=broker.queue(), default_outcome=outcome))
    attach = work.receiver.remote_attach
    actual = getattr(attach.source, "default_outcome", None) if attach else None
    if actual != outcome:
        raise NotApplicable(
            f"the broker's source has the default-outcome {describe_value(actual)} "
            f"where {describe_value(outcome)} was wished"
        )
    return work


@scenario("4.4.4/default-released", "4.4.4-08", "4.4.4-not-applied")
def default_released(broker: Broker) -> None:
    """A settled outcome that is rolled back: the default outcome applies, here released."""
    work = _with_default(broker, Released())
    work.retire(Accepted(), settled=True)
    work.control.roll_back(work.txn)
    (delivery,) = expect_left(broker, broker.queue(), b"0")
    if delivery_count(delivery) != 0:
        raise Unexpected(f"expected delivery-count 0, got {delivery_count(delivery)}")


@scenario("4.4.4/default-modified", "4.4.4-08", "4.4.4-not-applied")
def default_modified(broker: Broker) -> None:
    """Settled outcomes that are rolled back: the default outcome applies, here it counts a failure."""
    for outcome in (Accepted(), Rejected(), Released()):
        work = _with_default(broker, Modified(delivery_failed=True))
        work.retire(outcome, settled=True)
        work.control.roll_back(work.txn)
        (delivery,) = expect_left(broker, broker.queue(), b"0")
        if delivery_count(delivery) != 1:
            raise Unexpected(f"expected delivery-count 1, got {delivery_count(delivery)}")
        work.receiver.flow(1)
        work.receiver.settle(work.receiver.receive())
        work.left()


@scenario("4.4.4/default-accepted", "4.4.4-08")
def default_accepted(broker: Broker) -> None:
    """A settled outcome that is rolled back: the default outcome applies, also where that is accepted."""
    work = _with_default(broker, Accepted())
    work.retire(Released(), settled=True)
    work.control.roll_back(work.txn)
    work.left()


@scenario("4.4.4/default-at-the-end", "4.4.4-08", "4.1-closed")
def default_at_the_end(broker: Broker) -> None:
    """A settled outcome whose control link goes: the default outcome applies, here a failure is counted."""
    work = _with_default(broker, Modified(delivery_failed=True))
    work.retire(Accepted(), settled=True)
    work.control.session.catch_up()
    work.control.link.detach()
    (delivery,) = expect_left(broker, broker.queue(), b"0")
    if delivery_count(delivery) != 1:
        raise Unexpected(f"expected delivery-count 1, got {delivery_count(delivery)}")


@scenario("4.4.4/default-in-place", "4.4.4-08", profile="full")
def default_in_place(broker: Broker) -> None:
    """What a rollback gives back stands where it stood: before all that came later, in its old order."""
    work = Delivered(broker, 4)
    put(broker, broker.queue(), b"4")
    for number in (2, 0, 3, 1):
        work.retire(Accepted(), number, settled=True)
    work.control.roll_back(work.txn)
    expect_left(broker, broker.queue(), b"0", b"1", b"2", b"3", b"4", in_order=True)


@scenario("4.4.2/settled-without-outcome", "4.4.4-08", profile="full")
def settled_without_outcome(broker: Broker) -> None:
    """Settled in a transaction without an outcome: commit and rollback apply the default outcome."""
    for fail in (False, True):
        work = _with_default(broker, Modified(delivery_failed=True))
        work.retire(None, settled=True)
        work.control.session.catch_up()
        expect_left(broker, broker.queue())
        work.control.discharge(work.txn, fail)
        (delivery,) = expect_left(broker, broker.queue(), b"0")
        if delivery_count(delivery) != 1:
            raise Unexpected(f"expected delivery-count 1, got {delivery_count(delivery)}")
        work.receiver.flow(1)
        work.receiver.settle(work.receiver.receive())
        work.left()
