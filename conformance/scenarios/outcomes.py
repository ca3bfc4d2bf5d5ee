"""Outcomes and what they do to a message (3.4)."""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Receiver
from amqp_broker.conformance.messages import MESSAGE_ANNOTATIONS, data, map_of, section
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected
from amqp_broker.conformance.queues import delivery_count
from amqp_broker.conformance.scenario import scenario
from amqp_broker.frames import (
    Accepted,
    Disposition,
    Error,
    Modified,
    Rejected,
    Released,
    Source,
    Symbol,
    Transfer,
)
from amqp_broker.testing.peer import Delivery

OUTCOMES = {
    "amqp:accepted:list",
    "amqp:rejected:list",
    "amqp:released:list",
    "amqp:modified:list",
    "amqp:declared:list",
}


def _one(broker: Broker, payload: bytes | None = None) -> tuple[Receiver, Delivery]:
    """Returns a receiver that has one unsettled delivery, with a credit left."""
    session = broker.session()
    session.sender(broker.queue()).put([data(b"the message") if payload is None else payload])
    receiver = session.receiver(broker.queue(), credit=1)
    return receiver, receiver.receive()


def _again(broker: Broker, receiver: Receiver) -> Delivery:
    receiver.flow(1)
    return receiver.receive()


@scenario("3.4.2/accepted", "3.4.2-retired", "3.4.2-target", "3.5.2-move")
def accepted(broker: Broker) -> None:
    """Accepted retires the message from the node."""
    receiver, delivery = _one(broker)
    receiver.settle(delivery, Accepted())
    receiver.session.catch_up()
    receiver.expect_empty()


@scenario("3.4.3/rejected", "3.4.3-target", "3.4.3-source", "3.3.1-remains")
def rejected(broker: Broker) -> None:
    """Rejected takes the message from the node: it does not come again."""
    receiver, delivery = _one(broker)
    receiver.settle(delivery, Rejected(error=Error(condition="amqp:invalid-field", description="not for me")))
    receiver.session.catch_up()
    receiver.expect_empty()


@scenario("3.4.3/never-rejects-by-itself", "3.4.3-01")
def never_rejects_by_itself(broker: Broker) -> None:
    """The broker settles what we accept as accepted, not as rejected."""
    receiver, delivery = _one(broker)
    receiver.settle(delivery, Accepted(), settled=False)
    disposition = receiver.peer.expect(Disposition)
    if isinstance(disposition.state, (Rejected, Released, Modified)):
        raise Unexpected(f"the broker changed the outcome to {disposition.state!r}")


@scenario("3.4.4/released", "3.4.4-source", "3.4.4-01")
def released(broker: Broker) -> None:
    """Released makes the message available again, unchanged: its delivery-count stays."""
    receiver, delivery = _one(broker)
    receiver.settle(delivery, Released())
    again = _again(broker, receiver)
    if delivery_count(again) != delivery_count(delivery):
        raise Unexpected(
            f"3.4.4-01: the delivery-count went from {delivery_count(delivery)} to {delivery_count(again)}"
        )


@scenario("3.4.5/modified", "3.4.5-source", "3.4.5-02")
def modified(broker: Broker) -> None:
    """Modified without a flag makes the message available again, and does not count."""
    receiver, delivery = _one(broker)
    receiver.settle(delivery, Modified())
    again = _again(broker, receiver)
    if delivery_count(again) != 0:
        raise Unexpected(f"expected delivery-count 0, got {delivery_count(again)}")


@scenario("3.4.5/delivery-failed", "3.4.5-02", "3.2.1-incremented")
def delivery_failed(broker: Broker) -> None:
    """Modified with delivery-failed increments the delivery-count, each time."""
    receiver, delivery = _one(broker)
    for expected in (1, 2, 3):
        receiver.settle(delivery, Modified(delivery_failed=True))
        delivery = _again(broker, receiver)
        if delivery_count(delivery) != expected:
            raise Unexpected(f"expected delivery-count {expected}, got {delivery_count(delivery)}")


@scenario("3.4.5/undeliverable-here", "3.4.5-03")
def undeliverable_here(broker: Broker) -> None:
    """Modified with undeliverable-here: not over this link again, but over another."""
    receiver, delivery = _one(broker)
    receiver.settle(delivery, Modified(undeliverable_here=True))
    receiver.flow(1)
    receiver.peer.expect_nothing(Transfer)
    receiver.flow(0)
    receiver.session.catch_up()
    receiver.session.receiver(broker.queue(), handle=7, name="another", credit=1).receive()


@scenario("3.4.5/annotations", "3.4.5-annotations", "3.4.5-source")
def annotations(broker: Broker) -> None:
    """Modified with annotations: new ones are added, those of the same key replaced, others stay."""
    before = section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-stays"): "stays", Symbol("x-opt-changes"): "before"})
    receiver, delivery = _one(broker, before + data(b"annotated"))
    changes = {"x-opt-changes": "after", "x-opt-new": "new"}
    receiver.settle(delivery, Modified(message_annotations=changes))
    got = map_of(_again(broker, receiver).payload, MESSAGE_ANNOTATIONS)
    expected = {"x-opt-stays": "stays", "x-opt-changes": "after", "x-opt-new": "new"}
    if {key: got.get(key) for key in expected} != expected:
        raise Unexpected(f"expected the annotations {expected}, got {got}")


@scenario("3.4/outcomes-offered", "3.5.3-outcomes", "3.5.3-10", "3.5.3-11", "3.5.3-09")
def outcomes_offered(broker: Broker) -> None:
    """The outcomes that the broker's source names are outcomes; accepted is one of them, or there are
    none.
    """
    attach = broker.session().receiver(broker.queue()).remote_attach
    assert attach is not None
    outcomes = set(getattr(attach.source, "outcomes", None) or ())
    default = getattr(attach.source, "default_outcome", None)
    if default is not None and not isinstance(default, (Accepted, Rejected, Released, Modified)):
        raise Unexpected(f"the default-outcome {default!r} is no outcome")
    if not outcomes:
        raise NotApplicable("the broker's source names no outcomes, and need not")
    if not outcomes <= OUTCOMES:
        raise Unexpected(f"not outcomes of the standard: {sorted(outcomes - OUTCOMES)}")


@scenario("3.4/outcomes-wished", "3.5.3-outcomes", "3.5.3-11")
def outcomes_wished(broker: Broker) -> None:
    """A source that allows only accepted is taken, and accepted works there."""
    session = broker.session()
    session.sender(broker.queue()).put([data(b"accept me")])
    source = Source(address=broker.queue(), outcomes=("amqp:accepted:list",))
    receiver = session.receiver(broker.queue(), credit=1, source=source)
    receiver.settle(receiver.receive())
    session.catch_up()
    receiver.expect_empty()


@scenario("3.4.2/count-unchanged", "3.4.2-no-increment", "3.2.1-first-delivery")
def count_unchanged(broker: Broker) -> None:
    """On the first delivery the delivery-count is zero."""
    _, delivery = _one(broker)
    if delivery_count(delivery) != 0:
        raise Unexpected(f"expected delivery-count 0, got {delivery_count(delivery)}")
