"""Acquisition: a flow names a transaction, and what is sent for its credit belongs to it (4.4.3)."""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.outcomes import Unexpected
from amqp_broker.conformance.queues import body_of, expect_left, put
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transactions import (
    MULTI_SSNS,
    MULTI_TXNS,
    NEVER_DECLARED,
    UNKNOWN_ID,
    Acquired,
    Controller,
    acquire,
    copying,
    expect_some_error,
    post,
    receive_in,
    require_acquisition,
    within,
)
from amqp_broker.conformance.transcript import describe
from amqp_broker.frames import (
    Accepted,
    Detach,
    Transfer,
)


@scenario("4.4.3/supported", "4.4.3-01", "4.4.3-properties", "4.4.3-state", "4.4-01")
def supported(broker: Broker) -> None:
    """A flow that names a transaction: its transfers name it, too, or the link ends with not-implemented."""
    control = Controller(broker)
    put(broker, broker.queue(), b"mine")
    receiver = control.session.receiver(broker.queue())
    txn = control.declare()
    acquire(receiver, txn, 1)
    answer = control.peer.expect_frame(Transfer, Detach).performative
    if isinstance(answer, Detach):
        if answer.error is None or answer.error.condition != "amqp:not-implemented":
            raise Unexpected(f"4.4.3-01: expected amqp:not-implemented, got {describe(answer)}")
    elif answer.state != within(txn):
        raise Unexpected(f"4.4-01: expected a transfer in the transaction, got {describe(answer)}")


@scenario("4.4.3/drain", "4.4.3-drain", "4.4.3-properties")
def drain(broker: Broker) -> None:
    """With drain, what is there comes in the transaction, and the rest of the credit is used up."""
    require_acquisition(broker)
    put(broker, broker.queue(), b"0", b"1")
    control = Controller(broker)
    receiver = control.session.receiver(broker.queue())
    txn = control.declare()
    count = receiver.delivery_count
    acquire(receiver, txn, 10, drain=True)
    for _ in range(2):
        receiver.settle(receive_in(receiver, txn), within(txn, Accepted()), settled=False)
    flow = receiver.expect_flow()
    if flow.link_credit != 0 or flow.delivery_count != count + 10:
        raise Unexpected(f"expected delivery-count {count + 10} and no credit, got {describe(flow)}")
    put(broker, broker.queue(), b"2")
    control.peer.expect_nothing(Transfer, within_s=0.2)
    control.commit(txn)
    control.peer.close()
    expect_left(broker, broker.queue(), b"2")


@scenario("4.4.3/credit-left-over", "4.4.3-cleared", "4.4.3-credit")
def credit_left_over(broker: Broker) -> None:
    """Credit that is left at the commit stays; what comes for it afterwards is in no transaction."""
    work = Acquired(broker)
    acquire(work.receiver, work.txn, 2)
    work.settle(Accepted())
    work.control.commit(work.txn)
    put(broker, broker.queue(), b"1", b"2", b"3")
    for _ in range(2):
        work.receiver.settle(receive_in(work.receiver, None))
    work.control.peer.expect_nothing(Transfer, within_s=0.2)
    work.left(b"3")


@scenario("4.4.3/credit-left-over-rollback", "4.4.3-cleared", "4.4.3-credit", profile="full")
def credit_left_over_rollback(broker: Broker) -> None:
    """Credit that is left at the rollback stays: what comes back comes at once, in no transaction."""
    work = Acquired(broker, 2)
    acquire(work.receiver, work.txn, 3)
    work.settle(Accepted())
    work.control.roll_back(work.txn)
    for body in (b"0", b"1"):
        delivery = receive_in(work.receiver, None)
        if body_of(delivery) != body:
            raise Unexpected(f"expected {body!r}, got {body_of(delivery)!r}")
        work.receiver.settle(delivery)
    work.control.session.catch_up()
    work.left()


@scenario("4.4.3/arrives-later", "4.4.3-state", "4.4.3-properties", "4.4-01")
def arrives_later(broker: Broker) -> None:
    """What arrives at the queue later, while the credit lasts, is acquired in the transaction, too."""
    require_acquisition(broker)
    control = Controller(broker)
    receiver = control.session.receiver(broker.queue())
    txn = control.declare()
    acquire(receiver, txn, 2)
    control.peer.expect_nothing(Transfer, within_s=0.2)
    put(broker, broker.queue(), b"0", b"1", b"2")
    for _ in range(2):
        receive_in(receiver, txn)
    control.peer.expect_nothing(Transfer, within_s=0.2)
    control.roll_back(txn)
    control.peer.close()
    expect_left(broker, broker.queue(), b"0", b"1", b"2")


@scenario("4.4.3/more-credit", "4.4.3-state", "4.4.3-cleared", profile="full")
def more_credit(broker: Broker) -> None:
    """A flow without properties leaves the txn-id of the link as it is; one with an empty map clears it."""
    work = Acquired(broker, 1, messages=3)
    work.receiver.flow(1)
    receive_in(work.receiver, work.txn)
    work.receiver.flow(1, properties={})
    plain = receive_in(work.receiver, None)
    work.receiver.settle(plain)
    work.control.roll_back(work.txn)
    work.left(b"0", b"1")


@scenario("4.4.3/two-transactions-on-a-link", "4.4.3-properties", "4.5.7-multi-txns", "4.4-01")
def two_transactions_on_a_link(broker: Broker) -> None:
    """The last flow says to which transaction the next message belongs; each one goes its own way."""
    require_acquisition(broker)
    put(broker, broker.queue(), b"0", b"1", b"2")
    control = Controller(broker, needs=(MULTI_TXNS,))
    receiver = control.session.receiver(broker.queue())
    good, bad = control.declare(), control.declare()
    for txn in (good, bad, good):
        acquire(receiver, txn, 1)
        receiver.settle(receive_in(receiver, txn), within(txn, Accepted()), settled=False)
    control.roll_back(bad)
    control.commit(good)
    control.peer.close()
    expect_left(broker, broker.queue(), b"1")


@scenario("4.4.3/several-links", "4.1-distinct-links", "4.1-any-link", "4.5.7-multi-ssns")
def several_links(broker: Broker) -> None:
    """Two links of two sessions acquire in one transaction; its rollback undoes both."""
    require_acquisition(broker)
    put(broker, broker.queue("one"), b"1")
    put(broker, broker.queue("two"), b"2")
    control = Controller(broker, needs=(MULTI_SSNS,))
    other = control.peer.begin()
    txn = control.declare()
    for session, name in ((control.session, "one"), (other, "two")):
        receiver = session.receiver(broker.queue(name), name=f"receives-{name}")
        acquire(receiver, txn, 1)
        receiver.settle(receive_in(receiver, txn), within(txn, Accepted()), settled=False)
        session.catch_up()
    control.roll_back(txn)
    control.peer.close()
    expect_left(broker, broker.queue("one"), b"1")
    expect_left(broker, broker.queue("two"), b"2")


@scenario("4.4.3/own-posts", "4.4.1-not-available", "4.4.3-state")
def own_posts(broker: Broker) -> None:
    """A transaction does not acquire what it has posted itself: that is not available yet."""
    require_acquisition(broker)
    control = Controller(broker)
    sender = control.session.sender(broker.queue())
    receiver = control.session.receiver(broker.queue())
    txn = control.declare()
    post(sender, txn, b"mine", settled=True)
    acquire(receiver, txn, 1)
    control.peer.expect_nothing(Transfer)
    receiver.flow(0)
    control.commit(txn)
    control.peer.close()
    expect_left(broker, broker.queue(), b"mine")


@scenario("4.4.3/unknown-id", "4.5.8-unknown-id", "4.4-requests")
def unknown_id(broker: Broker) -> None:
    """A flow that names a transaction that was never declared fails with an error; nothing is acquired."""
    require_acquisition(broker)
    put(broker, broker.queue(), b"0")
    control = Controller(broker)
    receiver = control.session.receiver(broker.queue())
    acquire(receiver, NEVER_DECLARED, 1)
    expect_some_error(control.peer)
    expect_left(broker, broker.queue(), b"0")


@scenario("4.4.3/unknown-id-detaches", "4.5.8-unknown-id", profile="full")
def unknown_id_detaches(broker: Broker) -> None:
    """A flow that names an unknown id: its link is detached with unknown-id, and other work goes on."""
    work = Acquired(broker, 1)
    for wrong in (NEVER_DECLARED, b"", work.txn[:15], "a string", 7):
        other = work.control.session.receiver(broker.queue(), handle=2)
        other.flow(1, properties={"txn-id": wrong})
        other.expect_detach(UNKNOWN_ID)
    work.settle(Accepted())
    work.control.commit(work.txn)
    work.left()


@scenario("4.4.3/copying-link", "4.4.3-01")
def copying_link(broker: Broker) -> None:
    """A copying link acquires nothing: a flow that names a transaction ends it with not-implemented."""
    receiver = copying(broker, broker.queue())
    control = Controller(broker, receiver.session)
    acquire(receiver, control.declare(), 1)
    receiver.expect_detach("amqp:not-implemented")
    control.commit(control.declare())
    control.peer.close()
