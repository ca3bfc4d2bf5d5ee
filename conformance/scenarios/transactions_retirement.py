"""Retirement: outcomes in a transaction, for what was delivered outside of it (4.4.2)."""

from collections.abc import Callable
from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.messages import MESSAGE_ANNOTATIONS, map_of
from amqp_broker.conformance.outcomes import Unexpected
from amqp_broker.conformance.queues import body_of, delivery_count, expect_left, put
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transactions import (
    MULTI_SSNS,
    MULTI_TXNS,
    NEVER_DECLARED,
    ROLLBACK,
    UNKNOWN_ID,
    Controller,
    Delivered,
    expect_some_error,
    within,
)
from amqp_broker.conformance.transcript import describe_value
from amqp_broker.frames import (
    Accepted,
    Detach,
    Discharge,
    Disposition,
    Error,
    Modified,
    Rejected,
    Released,
    Source,
)


def _both(broker: Broker, outcome: Any, check: Callable[[Delivered, bool], object]) -> None:
    """Gives an outcome in a transaction, settled and not; nothing of it shows before the commit."""
    for settled in (False, True):
        work = Delivered(broker)
        work.retire(outcome, settled=settled)
        work.control.session.catch_up()
        expect_left(broker, broker.queue())
        work.control.commit(work.txn)
        check(work, settled)


@scenario("4.4.2/accepted", "4.4.2-outcome", "4.4.2-applied", "4.4.4-applied", "4.4.4-unsettled-applied")
def accepted(broker: Broker) -> None:
    """Accepted in a transaction: after the commit the message has gone."""
    _both(broker, Accepted(), lambda work, settled: work.left())


@scenario("4.4.2/rejected", "4.4.2-outcome", "4.4.2-applied", "4.4.4-applied", "4.4.4-unsettled-applied")
def rejected(broker: Broker) -> None:
    """Rejected in a transaction: after the commit the message has gone."""
    error = Error(condition="amqp:invalid-field", description="not for me")
    _both(broker, Rejected(error=error), lambda work, settled: work.left())


@scenario("4.4.2/released", "4.4.2-outcome", "4.4.2-applied", "4.4.4-applied", "4.4.4-unsettled-applied")
def released(broker: Broker) -> None:
    """Released in a transaction: the commit makes the message available, its delivery-count unchanged."""

    def check(work: Delivered, settled: bool) -> None:
        (delivery,) = expect_left(broker, broker.queue(), b"0")
        if delivery_count(delivery) != 0:
            raise Unexpected(f"expected delivery-count 0, got {delivery_count(delivery)}")
        work.receiver.flow(1)
        work.receiver.settle(work.receiver.receive(skip=(Disposition,)))
        work.left()

    _both(broker, Released(), check)


@scenario("4.4.2/modified", "4.4.2-outcome", "4.4.2-applied", "4.4.4-applied", "4.4.4-unsettled-applied")
def modified(broker: Broker) -> None:
    """Modified in a transaction: the commit makes it available, counted and annotated as the outcome says."""
    outcome = Modified(delivery_failed=True, message_annotations={"x-opt-new": "new"})

    def check(work: Delivered, settled: bool) -> None:
        (delivery,) = expect_left(broker, broker.queue(), b"0")
        got = delivery_count(delivery), map_of(delivery.payload, MESSAGE_ANNOTATIONS).get("x-opt-new")
        if got != (1, "new"):
            raise Unexpected(f"expected the delivery-count and annotation (1, 'new'), got {got}")
        work.receiver.flow(1)
        work.receiver.settle(work.receiver.receive(skip=(Disposition,)))
        work.left()

    _both(broker, outcome, check)


@scenario("4.4.2/undeliverable-here", "4.4.2-applied", "4.4.2-outcome")
def undeliverable_here(broker: Broker) -> None:
    """Modified with undeliverable-here in a transaction: after the commit it comes to others, not here."""
    work = Delivered(broker)
    work.retire(Modified(undeliverable_here=True), settled=False)
    work.control.commit(work.txn)
    work.receiver.expect_empty()
    expect_left(broker, broker.queue(), b"0")


@scenario("4.4.2/range", "4.4.2-outcome", "4.4.2-applied", "4.4-state")
def a_range(broker: Broker) -> None:
    """An outcome in a transaction for a range is for all between; the rest is not touched."""
    for settled in (False, True):
        work = Delivered(broker, 6)
        state = within(work.txn, Accepted())
        work.receiver.settle(work.deliveries[1:5], state, settled=settled)
        work.control.commit(work.txn)
        work.left(b"0", b"5")
        work = Delivered(broker, 0)
        work.receiver.flow(2)
        for _ in range(2):
            work.receiver.settle(work.receiver.receive())
        work.left()


@scenario("4.4.2/several-links", "4.1-distinct-links", "4.4.2-outcome", "4.4.2-applied")
def several_links(broker: Broker) -> None:
    """One disposition in a transaction may be about deliveries of several links."""
    put(broker, broker.queue("one"), b"1", b"2")
    put(broker, broker.queue("two"), b"3", b"4")
    control = Controller(broker)
    one = control.session.receiver(broker.queue("one"), handle=1)
    two = control.session.receiver(broker.queue("two"), handle=2)
    deliveries = []
    for receiver in (one, two, one, two):
        receiver.flow(1)
        deliveries.append(receiver.receive())
    txn = control.declare()
    one.settle(deliveries[1:4], within(txn, Accepted()), settled=False)
    control.commit(txn)
    control.peer.close()
    expect_left(broker, broker.queue("one"), b"1")
    expect_left(broker, broker.queue("two"))


@scenario("4.4.2/several-sessions", "4.5.7-multi-ssns", "4.1-any-link")
def several_sessions(broker: Broker) -> None:
    """A transaction retires deliveries of every session of its connection."""
    put(broker, broker.queue(), b"1", b"2")
    control = Controller(broker, needs=(MULTI_SSNS,))
    txn = control.declare()
    for channel in (1, 2):
        session = control.peer.begin(channel)
        receiver = session.receiver(broker.queue(), name=f"on-session-{channel}", credit=1)
        receiver.settle(receiver.receive(), within(txn, Accepted()), settled=channel == 1)
        session.catch_up()
    control.commit(txn)
    control.peer.close()
    expect_left(broker, broker.queue())


@scenario("4.4.2/second", "4.4.2-applied", "4.4.4-unsettled-applied", "4.4.4-reverts")
def second(broker: Broker) -> None:
    """In rcv-settle-mode second, too, a rollback leaves it live, and a commit applies the outcome."""
    put(broker, broker.queue(), b"0", b"1")
    control = Controller(broker)
    receiver = control.session.put_receiver(broker.queue(), rcv_settle_mode=1)
    receiver.refusal_may_be("amqp:not-implemented")
    receiver.expect_attach()
    txn = control.declare()
    receiver.flow(2)
    deliveries = [receiver.receive() for _ in range(2)]
    receiver.settle(deliveries[0:2], within(txn, Accepted()), settled=False)
    control.roll_back(txn)
    receiver.settle(deliveries[0], Released(), settled=False)
    txn = control.declare()
    receiver.settle(deliveries[1], within(txn, Accepted()), settled=False)
    control.commit(txn)
    control.session.catch_up()
    control.peer.close()
    expect_left(broker, broker.queue(), b"0")


@scenario("4.4.2/plain-beside", "4.4-state", "4.4-requests")
def plain_beside(broker: Broker) -> None:
    """An outcome that names no transaction is none of its work: it applies at once, and stays."""
    work = Delivered(broker, 3)
    work.retire(Accepted(), 0, settled=False)
    work.receiver.settle(work.deliveries[1])
    work.receiver.settle(work.deliveries[2], Released())
    work.control.session.catch_up()
    expect_left(broker, broker.queue(), b"2")
    work.control.roll_back(work.txn)
    work.left(b"0", b"2")


@scenario("4.4.2/last-wins", "4.4.2-outcome", profile="full")
def last_wins(broker: Broker) -> None:
    """Two outcomes for one delivery in one transaction: the last one is applied."""
    work = Delivered(broker, 3)
    work.retire(Accepted(), 0, settled=False)
    work.retire(Released(), 0, settled=False)
    work.retire(Released(), 1, settled=False)
    work.retire(Accepted(), 1, settled=True)
    work.retire(Modified(delivery_failed=True), 2, settled=False)
    work.retire(Released(), 2, settled=True)
    work.control.commit(work.txn)
    for delivery in work.left(b"0", b"2"):
        if delivery_count(delivery):
            raise Unexpected(f"{body_of(delivery)!r}: an outcome that was replaced has counted a failure")


@scenario("4.4.2/two-transactions", "4.4.2-01", "4.4.2-02", "4.5.7-multi-txns")
def two_transactions(broker: Broker) -> None:
    """An outcome in one transaction for what another live one retires: the control link is terminated."""
    broker.require_coordinator(MULTI_TXNS)
    work = Delivered(broker)
    other = work.control.declare()
    work.retire(Accepted(), settled=False)
    work.retire(Accepted(), settled=False, txn=other)
    work.control.link.expect_detach(ROLLBACK)
    work.left(b"0")


@scenario("4.4.2/two-controllers", "4.4.2-02", "4.4.2-01", profile="full")
def two_controllers(broker: Broker) -> None:
    """It is the control link of the second transaction that is terminated; the first one may commit."""
    work = Delivered(broker)
    other = Controller(broker, work.control.session, handle=101, name="second-control")
    txn = other.declare()
    work.retire(Accepted(), settled=False)
    work.retire(Released(), settled=False, txn=txn)
    other.link.expect_detach(ROLLBACK)
    work.control.commit(work.txn)
    work.left()


@scenario("4.4.2/unknown-id", "4.5.8-unknown-id", "4.4-requests")
def unknown_id(broker: Broker) -> None:
    """An outcome in a transaction that was never declared fails with an error, and is not applied."""
    work = Delivered(broker)
    work.retire(Accepted(), settled=False, txn=NEVER_DECLARED)
    expect_some_error(work.control.peer)
    work.control.peer.drop()
    expect_left(broker, broker.queue(), b"0")


@scenario("4.4.2/unknown-id-detaches", "4.5.8-unknown-id", profile="full")
def unknown_id_detaches(broker: Broker) -> None:
    """An unknown id: each link that the disposition is about is detached with it, and all comes back."""
    put(broker, broker.queue("one"), b"1")
    put(broker, broker.queue("two"), b"2")
    for settled in (False, True):
        control = Controller(broker)
        txn = control.declare()
        one = control.session.receiver(broker.queue("one"), handle=1, credit=1)
        first = one.receive()
        two = control.session.receiver(broker.queue("two"), handle=2, credit=1)
        last = two.receive()
        one.settle([first, last], within(NEVER_DECLARED, Accepted()), settled=settled)
        links = {one.remote_handle, two.remote_handle}
        for _ in range(2):
            detach = control.peer.expect(Detach)
            if detach.handle not in links or detach.error is None or detach.error.condition != UNKNOWN_ID:
                raise Unexpected(
                    f"expected detach of both links with {UNKNOWN_ID}, got {describe_value(detach)}"
                )
            links.discard(detach.handle)
        control.commit(txn)
        expect_left(broker, broker.queue("one"), b"1")
        expect_left(broker, broker.queue("two"), b"2")


@scenario("4.4.2/outcome-not-offered", "4.4.2-outcome", profile="full")
def outcome_not_offered(broker: Broker) -> None:
    """An outcome outside of those that the source offers is an error in a transaction, too: the link goes,
    and the transaction can't be committed without it.
    """
    source = Source(address=broker.queue(), outcomes=("amqp:accepted:list", "amqp:released:list"))
    work = Delivered(broker, source=source)
    work.retire(Rejected(), settled=False)
    work.receiver.expect_detach()
    work.control.refused(Discharge(txn_id=work.txn, fail=False), ROLLBACK)
    work.left(b"0")


@scenario("4.4.2/link-gone", "4.4.2-outcome", "4.5.8-rollback", profile="full")
def link_gone(broker: Broker) -> None:
    """An outcome for a delivery whose link has gone: the commit is rejected, as the message comes again."""
    work = Delivered(broker)
    work.receiver.detach()
    work.retire(Accepted(), settled=True)
    work.control.refused(Discharge(txn_id=work.txn, fail=False), ROLLBACK)
    work.left(b"0")
