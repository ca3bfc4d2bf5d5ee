"""Retirement: outcomes in a transaction, for what was delivered outside of it, committed and rolled back
(4.4.2, 4.4.4).
"""

from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.messages import MESSAGE_ANNOTATIONS, map_of
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, expect_equal
from amqp_broker.conformance.queues import body_of, delivery_count, expect_left, put
from amqp_broker.conformance.scenario import Case, cases, scenario
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


def _back(broker: Broker, count: int) -> None:
    """Raises Unexpected unless the message is at its queue again, with this delivery-count."""
    (delivery,) = expect_left(broker, broker.queue(), b"0")
    expect_equal("delivery-count", count, delivery_count(delivery))


def _consumed(work: Delivered) -> None:
    """Receives and accepts the message that came back: it is the only one."""
    work.receiver.flow(1)
    work.receiver.settle(work.receiver.receive(skip=(Disposition,)))
    work.left()


@cases(
    Case("4.4.2/accepted", "4.4.2-outcome 4.4.2-applied 4.4.4.2-applied 4.4.4.2-unsettled-applied",
         "Accepted in a transaction: after the commit the message has gone.",
         Accepted()),
    Case("4.4.2/rejected", "4.4.2-outcome 4.4.2-applied 4.4.4.2-applied 4.4.4.2-unsettled-applied",
         "Rejected in a transaction: after the commit the message has gone.",
         Rejected(error=Error(condition="amqp:invalid-field", description="not for me")), profile="full"),
    Case("4.4.2/released", "4.4.2-outcome 4.4.2-applied 4.4.4.2-applied 4.4.4.2-unsettled-applied",
         "Released in a transaction: the commit makes the message available, its delivery-count unchanged.",
         Released(), 0),
    Case("4.4.2/modified", "4.4.2-outcome 4.4.2-applied 4.4.4.2-applied 4.4.4.2-unsettled-applied",
         "Modified in a transaction: the commit makes it available, counted and annotated as the outcome "
         "says.",
         Modified(delivery_failed=True, message_annotations={"x-opt-new": "new"}), 1, "new"),
)
def _both(broker: Broker, outcome: Any, count: int | None = None, annotation: str | None = None) -> None:
    """Gives an outcome in a transaction, settled and not; nothing of it shows before the commit. Then the
    message comes again with this delivery-count and this annotation, or (None) has gone.
    """
    for settled in (False, True):
        work = Delivered(broker)
        work.retire(outcome, settled=settled)
        work.control.session.catch_up()
        expect_left(broker, broker.queue())
        work.control.commit(work.txn)
        if count is None:
            work.left()
            continue
        (delivery,) = expect_left(broker, broker.queue(), b"0")
        got = delivery_count(delivery), map_of(delivery.payload, MESSAGE_ANNOTATIONS).get("x-opt-new")
        expect_equal("delivery-count and annotation", (count, annotation), got)
        _consumed(work)


@scenario("4.4.2/undeliverable-here", "4.4.2-applied", "4.4.2-outcome")
def undeliverable_here(broker: Broker, work: Delivered) -> None:
    """Modified with undeliverable-here in a transaction: after the commit it comes to others, not here."""
    work.retire(Modified(undeliverable_here=True))
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


@scenario("4.4.2/second", "4.4.2-applied", "4.4.4.2-unsettled-applied", "4.4.4.2-reverts")
def second(broker: Broker) -> None:
    """In rcv-settle-mode second, too, a rollback leaves it live, and a commit applies the outcome."""
    put(broker, broker.queue(), b"0", b"1")
    control = Controller(broker)
    receiver = control.session.put_receiver(broker.queue(), rcv_settle_mode=1)
    receiver.expect_attach(or_end="amqp:not-implemented")
    txn = control.declare()
    receiver.flow(2)
    deliveries = receiver.take(2)
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
    work.retire(Accepted(), 0)
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
    work.retire(Accepted(), 0)
    work.retire(Released(), 0)
    work.retire(Released(), 1)
    work.retire(Accepted(), 1, settled=True)
    work.retire(Modified(delivery_failed=True), 2)
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
    work.retire(Accepted())
    work.retire(Accepted(), settled=False, txn=other)
    work.control.link.expect_detach(ROLLBACK)
    work.left(b"0")


@scenario("4.4.2/two-controllers", "4.4.2-02", "4.4.2-01", profile="full")
def two_controllers(broker: Broker, work: Delivered) -> None:
    """It is the control link of the second transaction that is terminated; the first one may commit."""
    other = Controller(broker, work.control.session, handle=101, name="second-control")
    txn = other.declare()
    work.retire(Accepted())
    work.retire(Released(), settled=False, txn=txn)
    other.link.expect_detach(ROLLBACK)
    work.control.commit(work.txn)
    work.left()


@scenario("4.4.2/unknown-id", "4.5.8-unknown-id", "4.4-requests", breaks="4.4-01")
def unknown_id(broker: Broker, work: Delivered) -> None:
    """An outcome in a transaction that was never declared fails with an error, and is not applied."""
    work.retire(Accepted(), settled=False, txn=NEVER_DECLARED)
    expect_some_error(work.control.peer)
    work.control.peer.drop()
    expect_left(broker, broker.queue(), b"0")


@scenario("4.4.2/unknown-id-detaches", "4.5.8-unknown-id", profile="full", breaks="4.4-01")
def unknown_id_detaches(broker: Broker) -> None:
    """An unknown id: each link that the disposition is about is detached with it, and all comes back."""
    put(broker, broker.queue("one"), b"1")
    put(broker, broker.queue("two"), b"2")
    for settled in (False, True):
        control = Controller(broker, broker.session(container=f"controller-{settled}"))
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


@scenario("4.4.2/outcome-not-offered", "4.4.2-outcome", profile="full", breaks="3.5.3-outcomes")
def outcome_not_offered(broker: Broker) -> None:
    """An outcome outside of those that the source offers is an error in a transaction, too: the link goes,
    and the transaction can't be committed without it.
    """
    source = Source(address=broker.queue(), outcomes=("amqp:accepted:list", "amqp:released:list"))
    work = Delivered(broker, source=source)
    work.retire(Rejected())
    work.receiver.expect_detach()
    work.control.refused(Discharge(txn_id=work.txn, fail=False), ROLLBACK)
    work.left(b"0")


@scenario("4.4.2/link-gone", "4.4.2-outcome", "4.5.8-rollback", profile="full")
def link_gone(work: Delivered) -> None:
    """An outcome for a delivery whose link has gone: the commit is rejected, as the message comes again."""
    work.receiver.detach()
    work.retire(Accepted(), settled=True)
    work.control.refused(Discharge(txn_id=work.txn, fail=False), ROLLBACK)
    work.left(b"0")


OUTCOMES = (
    Accepted(),
    Rejected(),
    Released(),
    Modified(delivery_failed=True, message_annotations={"x-opt-new": "new"}),
)


@scenario("4.4.2/rollback-stays-acquired", "4.4.2-03", "4.4.4.2-reverts", "4.4.4.2-free")
def rollback_stays_acquired(broker: Broker) -> None:
    """Unsettled outcomes that are rolled back: the deliveries are live, and nobody else gets the messages."""
    work = Delivered(broker, len(OUTCOMES))
    for number, outcome in enumerate(OUTCOMES):
        work.retire(outcome, number)
    work.control.roll_back(work.txn)
    expect_left(broker, broker.queue())
    for number in range(len(OUTCOMES)):
        work.receiver.settle(work.deliveries[number])
    work.control.session.catch_up()
    work.left()


@scenario("4.4.2/rollback-then-released", "4.4.2-03", "4.4.4.2-reverts")
def rollback_then_released(broker: Broker) -> None:
    """Unsettled outcomes that are rolled back have changed nothing: released then, they come as they were."""
    work = Delivered(broker, len(OUTCOMES))
    for number, outcome in enumerate(OUTCOMES):
        work.retire(outcome, number)
    work.control.roll_back(work.txn)
    work.receiver.settle(work.deliveries, Released())
    work.control.session.catch_up()
    for delivery in work.left(b"0", b"1", b"2", b"3"):
        new = map_of(delivery.payload, MESSAGE_ANNOTATIONS).get("x-opt-new")
        if delivery_count(delivery) or new is not None:
            raise Unexpected(
                f"expected it unchanged, got delivery-count {delivery_count(delivery)}, annotation {new!r}"
            )


@scenario("4.4.2/rollback-then-again", "4.4.2-03", "4.4.4.2-free", "4.4.2-not-associated")
def rollback_then_again(work: Delivered) -> None:
    """An unsettled outcome that was rolled back can be given in another transaction, again and again."""
    for _ in range(3):
        work.retire(Accepted())
        work.control.roll_back(work.txn)
        work.txn = work.control.declare()
    work.retire(Accepted())
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


@cases(
    Case("4.4.4/default-released", "4.4.4.2-01 4.4.4.2-not-applied",
         "A settled outcome that is rolled back: the default outcome applies, here released.",
         Released(), 0),
    Case("4.4.4/default-accepted", "4.4.4.2-01",
         "A settled outcome that is rolled back: the default outcome applies, also where that is accepted.",
         Accepted()),
    Case("4.4.4/default-at-the-end", "4.4.4.2-01 4.1-closed",
         "A settled outcome whose control link goes: the default outcome applies, here a failure is counted.",
         Modified(delivery_failed=True), 1, closes=True),
)
def _default(broker: Broker, default: Any, count: int | None = None, *, closes: bool = False) -> None:
    """Gives another outcome, settled, and rolls back, or closes the control link: the default outcome counts.
    Then the message is there with this delivery-count, or (None) has gone.
    """
    work = _with_default(broker, default)
    work.retire(Released() if default == Accepted() else Accepted(), settled=True)
    if closes:
        work.control.session.catch_up()
        work.control.link.detach()
    else:
        work.control.roll_back(work.txn)
    if count is None:
        work.left()
    else:
        _back(broker, count)


@scenario("4.4.4/default-modified", "4.4.4.2-01", "4.4.4.2-not-applied")
def default_modified(broker: Broker) -> None:
    """Settled outcomes that are rolled back: the default outcome applies, here it counts a failure."""
    for outcome in (Accepted(), Rejected(), Released()):
        work = _with_default(broker, Modified(delivery_failed=True))
        work.retire(outcome, settled=True)
        work.control.roll_back(work.txn)
        _back(broker, 1)
        _consumed(work)


@scenario("4.4.4/default-in-place", "4.4.4.2-01", profile="full")
def default_in_place(broker: Broker) -> None:
    """What a rollback gives back stands where it stood: before all that came later, in its old order."""
    work = Delivered(broker, 4)
    put(broker, broker.queue(), b"4")
    for number in (2, 0, 3, 1):
        work.retire(Accepted(), number, settled=True)
    work.control.roll_back(work.txn)
    expect_left(broker, broker.queue(), b"0", b"1", b"2", b"3", b"4", in_order=True)


@scenario("4.4.2/settled-without-outcome", "4.4.4.2-01", profile="full")
def settled_without_outcome(broker: Broker) -> None:
    """Settled in a transaction without an outcome: commit and rollback apply the default outcome."""
    for fail in (False, True):
        work = _with_default(broker, Modified(delivery_failed=True))
        work.retire(None, settled=True)
        work.control.session.catch_up()
        expect_left(broker, broker.queue())
        work.control.discharge(work.txn, fail)
        _back(broker, 1)
        _consumed(work)
