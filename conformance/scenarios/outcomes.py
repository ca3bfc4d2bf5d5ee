"""Outcomes and what they do to a message (3.4); dispositions: ranges, roles, settling first and second
(2.6.12, 2.7.6, 2.8.3).
"""

from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Receiver, Session
from amqp_broker.conformance.messages import MESSAGE_ANNOTATIONS, data, map_of, section
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, expect, expect_equal
from amqp_broker.conformance.queues import delivery_count, numbered, put
from amqp_broker.conformance.scenario import Case, cases, scenario
from amqp_broker.conformance.transcript import describe
from amqp_broker.frames import (
    RECEIVER,
    SENDER,
    Accepted,
    Close,
    Disposition,
    End,
    Error,
    Modified,
    Received,
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


@cases(
    Case("3.4.2/accepted", "3.4.2-retired 3.4.2-target 3.5.2-move",
         "Accepted retires the message from the node.",
         Accepted()),
    Case("3.4.3/rejected", "3.4.3-target 3.4.3-source 3.3.1-remains",
         "Rejected takes the message from the node: it does not come again.",
         Rejected(error=Error(condition="amqp:invalid-field", description="not for me")), profile="full"),
)
def _gone_after(broker: Broker, outcome: Accepted | Rejected) -> None:
    receiver, delivery = _one(broker)
    receiver.settle(delivery, outcome)
    receiver.session.catch_up()
    receiver.expect_empty()


@scenario("3.4.3/never-rejects-by-itself", "3.4.3-01")
def never_rejects_by_itself(broker: Broker) -> None:
    """The broker settles what we accept as accepted, not as rejected."""
    session, receiver, (delivery,) = _delivered(broker, 1, rcv_settle_mode=1)
    receiver.settle(delivery, Accepted(), settled=False)
    disposition = session.peer.expect(Disposition)
    if isinstance(disposition.state, (Rejected, Released, Modified)):
        raise Unexpected(f"the broker changed the outcome to {disposition.state!r}")


@cases(
    Case("3.4.4/released", "3.4.4-source 3.4.4-01",
         "Released makes the message available again, unchanged: its delivery-count stays.",
         Released(), 0),
    Case("3.4.5/modified", "3.4.5-source 3.4.5-02",
         "Modified without a flag makes the message available again, and does not count.",
         Modified(), 0),
    Case("3.4.5/delivery-failed", "3.4.5-02 3.2.1-incremented",
         "Modified with delivery-failed increments the delivery-count, each time.",
         Modified(delivery_failed=True), 1, 2, 3),
)
def _comes_back(broker: Broker, outcome: Released | Modified, *counts: int) -> None:
    """Gives a message its outcome again and again; it comes with these delivery-counts."""
    receiver, delivery = _one(broker)
    for count in counts:
        receiver.settle(delivery, outcome)
        delivery = _again(broker, receiver)
        expect_equal("delivery-count", count, delivery_count(delivery))


@scenario("3.4.5/undeliverable-here", "3.4.5-03", "3.4.5-source")
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
    attach = broker.session().receiver(broker.queue()).attach
    outcomes = set(getattr(attach.source, "outcomes", None) or ())
    default = getattr(attach.source, "default_outcome", None)
    if default is not None and not isinstance(default, (Accepted, Rejected, Released, Modified)):
        raise Unexpected(f"the default-outcome {default!r} is no outcome")
    if not outcomes:
        raise NotApplicable("the broker's source names no outcomes, and need not")
    expect(outcomes <= OUTCOMES, f"not outcomes of the standard: {sorted(outcomes - OUTCOMES)}")


@scenario("3.4/outcomes-wished", "3.5.3-outcomes", "3.5.3-11")
def outcomes_wished(broker: Broker, session: Session) -> None:
    """A source that allows only accepted is taken, and accepted works there."""
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
    expect(delivery_count(delivery) == 0, f"expected delivery-count 0, got {delivery_count(delivery)}")


def _delivered(broker: Broker, count: int, **fields: Any) -> tuple[Session, Receiver, list[Delivery]]:
    """Returns a session with a receiver that has so many unsettled deliveries."""
    put(broker, broker.queue(), *numbered(count))
    session = broker.session()
    receiver = session.put_receiver(broker.queue(), **fields)
    receiver.expect_attach(or_end="amqp:not-implemented")
    receiver.flow(count)
    return session, receiver, receiver.take(count)


def _left(broker: Broker, session: Session, *numbers: int) -> None:
    """Ends the session, and raises Unexpected unless exactly these messages come again."""
    session.catch_up()
    session.end()
    session = session.peer.begin()
    receiver = session.receiver(broker.queue(), handle=9, name="reader", credit=max(len(numbers), 1))
    left = set(numbers)
    while left:
        payload = receiver.receive().payload
        number = int(payload.rsplit(b" ", 1)[1])
        expect(number in left, f"message {number} came again, though it was settled")
        left.discard(number)
    receiver.expect_empty()
    session.peer.close()


@cases(
    Case("2.7.6/one", "2.7.6-last 2.7.6-settled 3.4.2-retired",
         "A disposition without last is about one delivery: the others stay unsettled.",
         (0, 2, 3, 4, 5), (1, Accepted())),
    Case("2.7.6/range", "2.7.6-range 2.7.6-settled 3.4.2-retired",
         "A disposition from first to last is about all between, both included.",
         (0, 5), (slice(1, 5), Accepted())),
    Case("2.7.6/overlapping-ranges", "2.7.6-range 3.4-terminal",
         "A range may hold deliveries that are settled already: they keep their outcome.",
         (0, 2, 3, 4, 5), (1, Accepted()), (slice(0, 3), Released()), breaks="3.4-terminal"),
    Case("2.7.6/any-order", "2.7.6-range 2.6.12-delivery-id",
         "Deliveries may be settled in any order.",
         (1, 4, 5), (3, Accepted()), (0, Accepted()), (2, Accepted())),
)
def _settled_of_six(broker: Broker, left: tuple[int, ...], *settled: tuple[int | slice, Any]) -> None:
    """Settles some of six deliveries, one or a range at a time, with these outcomes; these are left then."""
    session, receiver, deliveries = _delivered(broker, 6)
    for which, outcome in settled:
        receiver.settle(deliveries[which], outcome)
    _left(broker, session, *left)


@scenario("2.7.6/two-links", "2.7.6-01", "2.7.6-range")
def two_links(broker: Broker) -> None:
    """One disposition may be about deliveries of several links."""
    first, second = broker.queue("first"), broker.queue("second")
    session = broker.session()
    for handle, address in enumerate((first, second)):
        session.sender(address, handle=10 + handle, name=f"out-{handle}").put([data(b"1"), data(b"2")])
    one_link = session.receiver(first, handle=1)
    two_link = session.receiver(second, handle=2)
    deliveries = []
    for receiver in (one_link, two_link, one_link, two_link):
        receiver.flow(1)
        deliveries.append(receiver.receive())
    one_link.settle(deliveries)
    session.catch_up()
    session.end()
    session = session.peer.begin()
    for handle, address in enumerate((first, second)):
        session.receiver(address, handle=handle, name=f"reader-{handle}").expect_empty(0.2)


@scenario("2.6.12/outcome-first", "2.6.12-settle", "2.7.6-settled", "2.7.6-role")
def outcome_first(broker: Broker) -> None:
    """An outcome that is not settled: the broker acts on it, and settles."""
    session, receiver, deliveries = _delivered(broker, 1, rcv_settle_mode=1)  # in first we would settle
    receiver.settle(deliveries[0], settled=False)
    disposition = session.peer.expect(Disposition)
    got = disposition.role, disposition.settled, disposition.first
    if got != (SENDER, True, deliveries[0].delivery_id):
        raise Unexpected(f"expected a settled disposition of the sender, got {describe(disposition)}")
    _left(broker, session)


@scenario("2.6.12/second-as-receiver", "2.8.3-second", "2.7.3-rcv-mode", "2.6.12-settle")
def second_as_receiver(broker: Broker) -> None:
    """In rcv-settle-mode second, ours by right, the broker settles after our outcome."""
    session, receiver, deliveries = _delivered(broker, 2, rcv_settle_mode=1)
    receiver.settle(deliveries[0:2], settled=False)
    settled: set[int] = set()
    while len(settled) < 2:
        disposition = session.peer.expect(Disposition)
        if disposition.role is not SENDER or not disposition.settled:
            raise Unexpected(f"expected a settled disposition of the sender, got {describe(disposition)}")
        settled |= set(range(disposition.first, (disposition.last or disposition.first) + 1))
    _left(broker, session)


@scenario("2.7.6/not-terminal", "3.4-terminal", "2.7.6-settled")
def not_terminal(broker: Broker) -> None:
    """The state received is not terminal: nothing is settled, and accepted may follow."""
    session, receiver, deliveries = _delivered(broker, 2)
    state = Received(section_number=0, section_offset=1)
    receiver.settle(deliveries[0:2], state, settled=False)
    session.catch_up()
    receiver.settle(deliveries[0])
    _left(broker, session, 1)


@scenario("2.7.6/batchable", "2.7.6-settled")
def batchable(broker: Broker) -> None:
    """A disposition hinted as batchable is a disposition."""
    session, _, deliveries = _delivered(broker, 1)
    first = deliveries[0].delivery_id
    session.put(Disposition(role=RECEIVER, first=first, settled=True, state=Accepted(), batchable=True))
    _left(broker, session)


@scenario("2.7.6/settled-without-state", "3.5.3-default-outcome", "3.3.1-default-outcome")
def settled_without_state(broker: Broker) -> None:
    """Settled without a state: the source's default-outcome is used; here it is released."""
    source = Source(address=broker.queue(), default_outcome=Released())
    session, receiver, deliveries = _delivered(broker, 1, source=source)
    actual = getattr(receiver.attach.source, "default_outcome", None)
    if not isinstance(actual, Released):
        raise NotApplicable(
            f"the broker's source has the default-outcome {actual!r} where released was wished"
        )
    session.put(Disposition(role=RECEIVER, first=deliveries[0].delivery_id, settled=True))
    _left(broker, session, 0)


@scenario("2.7.6/unknown-deliveries", "2.7.6-range", profile="full", breaks="2.7.6-range")
def unknown_deliveries(broker: Broker) -> None:
    """A disposition about deliveries that never were does no harm."""
    session, receiver, deliveries = _delivered(broker, 1)
    session.put(Disposition(role=RECEIVER, first=1000, last=2000, settled=True, state=Accepted()))
    session.peer.expect_nothing(End, Close, within_s=0.2)
    receiver.settle(deliveries[0])
    _left(broker, session)


@scenario("2.7.6/huge-range", "2.7.6-range", "2.8.10-serial", alone=True, breaks="2.7.6-range")
def huge_range(broker: Broker) -> None:
    """A range of half of all numbers costs no more than what is unsettled: the broker answers at once."""
    session, _, deliveries = _delivered(broker, 1)
    last = (deliveries[0].delivery_id + 0x7FFF_FFFE) & 0xFFFF_FFFF
    session.put(
        Disposition(role=RECEIVER, first=deliveries[0].delivery_id, last=last, settled=True, state=Accepted())
    )
    session.catch_up()
    broker.still_serves()


@scenario("2.7.6/as-a-sender", "2.7.6-role", "2.7.6-01", profile="full", breaks="2.7.6-range")
def as_a_sender(broker: Broker) -> None:
    """A disposition in role sender is about what we sent, not about what we received."""
    session, _, deliveries = _delivered(broker, 1)
    session.put(Disposition(role=SENDER, first=deliveries[0].delivery_id, settled=True, state=Accepted()))
    session.peer.expect_nothing(Transfer, within_s=0.2)
    _left(broker, session, 0)
