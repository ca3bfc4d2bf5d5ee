"""What ends transactions without a discharge: the end of their control link, session or connection (4.1)."""

from collections.abc import Callable

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Receiver, Sender
from amqp_broker.conformance.messages import data
from amqp_broker.conformance.outcomes import expect_state
from amqp_broker.conformance.queues import expect_left, put, reader
from amqp_broker.conformance.scenario import Case, cases, scenario
from amqp_broker.conformance.transactions import (
    MULTI_SSNS,
    MULTI_TXNS,
    UNKNOWN_ID,
    Controller,
    acquire,
    expect_some_error,
    post,
    receive_in,
    require_acquisition,
    within,
)
from amqp_broker.frames import Accepted, Detach, Discharge, Disposition, End, Transfer


class _Work:
    """A transaction with a posting and a retirement, and the links that they were done on."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        put(broker, broker.queue("in"), b"retired")
        self.control = Controller(broker)
        session = self.control.session
        self.txn = self.control.declare()
        self.sender: Sender = session.sender(broker.queue("out"))
        self.receiver: Receiver = session.receiver(broker.queue("in"), credit=1)
        self.delivery = self.receiver.receive()
        post(self.sender, self.txn, b"posted", settled=True)
        self.receiver.settle(self.delivery, within(self.txn, Accepted()), settled=False)
        session.catch_up()

    def expect_undone(self) -> None:
        """What was posted is not there, and what was retired is."""
        expect_left(self.broker, self.broker.queue("out"))
        expect_left(self.broker, self.broker.queue("in"), b"retired")


@cases(
    Case("4.1/session-ended", "4.1-closed",
         "The end of the control link's session rolls its transactions back.",
         lambda control: control.session.end()),
    Case("4.1/connection-closed", "4.1-closed",
         "The close of the connection rolls its transactions back.",
         lambda control: control.peer.close()),
)
def _ended_by(broker: Broker, end: Callable[[Controller], object]) -> None:
    """Ends a transaction in some way that ends the receiver's link, too."""
    work = _Work(broker)
    end(work.control)
    work.expect_undone()


@scenario("4.1/control-closed", "4.1-closed", "4.4.2-03", "4.4.1-not-available")
def control_closed(broker: Broker, work: _Work) -> None:
    """The control link is closed: nothing posted is there, what was retired is live and still acquired."""
    work.control.link.detach()
    expect_left(broker, broker.queue("out"))
    expect_left(broker, broker.queue("in"))
    work.receiver.settle(work.delivery)
    work.control.session.catch_up()
    work.control.peer.close()
    expect_left(broker, broker.queue("in"))


@scenario("4.1/control-detached", "4.1-closed", "4.2-not-resumed")
def control_detached(work: _Work) -> None:
    """The control link is detached without being closed: it cannot be resumed, so that is its end, too."""
    work.control.link.detach(closed=False)
    work.receiver.detach()
    work.expect_undone()


@scenario("4.1/connection-lost", "4.1-closed")
def connection_lost(broker: Broker, work: _Work) -> None:
    """A connection that breaks rolls its transactions back, as soon as the broker notices."""
    waiting = reader(broker, broker.queue("in"), 1)
    work.control.peer.drop()
    waiting.receive()
    waiting.peer.close()
    work.expect_undone()


@scenario("4.1/several-at-once", "4.1-closed", "4.5.7-multi-txns")
def several_at_once(broker: Broker) -> None:
    """The end of a control link rolls back all of its transactions, and none of another control link."""
    bodies = [b"0", b"1", b"2"]
    put(broker, broker.queue("in"), *bodies)
    one = Controller(broker, needs=(MULTI_TXNS,))
    two = Controller(broker, one.session, handle=101, name="second-control")
    receiver = one.session.receiver(broker.queue("in"), credit=3)
    deliveries = [receiver.receive() for _ in bodies]
    sender = one.session.sender(broker.queue("out"))
    stays = two.declare()
    post(sender, stays, b"of the other", settled=True)
    for delivery in deliveries:
        txn = one.declare()
        post(sender, txn, b"never", settled=True)
        receiver.settle(delivery, within(txn, Accepted()), settled=False)
    one.session.catch_up()
    one.link.detach()
    receiver.detach()
    expect_left(broker, broker.queue("in"), *bodies)
    two.commit(stays)
    expect_left(broker, broker.queue("out"), b"of the other")


@scenario("4.1/other-session-ended", "4.1-closed", "4.5.7-multi-ssns", profile="full")
def other_session_ended(broker: Broker) -> None:
    """A session that only did work ends right after it: what it posted and retired is committed."""
    put(broker, broker.queue("in"), b"retired before")
    control = Controller(broker, needs=(MULTI_SSNS,))
    txn = control.declare()
    other = control.peer.begin()
    sender = other.sender(broker.queue("out"))
    receiver = other.receiver(broker.queue("in"), credit=1)
    delivery = receiver.receive()
    sender.await_credit()
    with control.peer.one_write():
        post(sender, txn, b"posted before", settled=True, wait=False)
        receiver.settle(delivery, within(txn, Accepted()))
        other.put(End())
    other.expect_end()
    control.commit(txn)
    expect_left(broker, broker.queue("out"), b"posted before")
    expect_left(broker, broker.queue("in"))


@scenario("4.1/links-closed-at-once", "4.4.4.1-settled-post", "4.4.4.2-applied", profile="full")
def links_closed_at_once(broker: Broker) -> None:
    """Links that are closed in one write with their last work: all of it is in the transaction."""
    put(broker, broker.queue("in"), b"retired before")
    control = Controller(broker)
    session = control.session
    txn = control.declare()
    sender = session.sender(broker.queue("out"))
    receiver = session.receiver(broker.queue("in"), credit=1)
    delivery = receiver.receive()
    sender.await_credit()
    with control.peer.one_write():
        post(sender, txn, b"posted before", settled=True, wait=False)
        session.put(Detach(handle=sender.handle, closed=True))
        receiver.settle(delivery, within(txn, Accepted()))
        session.put(Detach(handle=receiver.handle, closed=True))
        discharge = control.ask(Discharge(txn_id=txn, fail=False), wait=False)
    expect_state(control.answer(discharge, skip=(Detach,)), Accepted)
    control.peer.close()
    expect_left(broker, broker.queue("out"), b"posted before")
    expect_left(broker, broker.queue("in"))


@scenario("4.1/closed-after-the-discharge", "4.1-closed", "4.5.3-discharge", profile="full")
def closed_after_the_discharge(broker: Broker) -> None:
    """A control link that is closed in one write with a discharge: the discharge came first, and counts."""
    for fail in (False, True):
        control = Controller(broker, broker.session(container=f"controller-{fail}"))
        sender = control.session.sender(broker.queue())
        txn = control.declare()
        post(sender, txn, b"there", settled=True)
        with control.peer.one_write():
            control.ask(Discharge(txn_id=txn, fail=fail), wait=False)
            control.session.put(Detach(handle=control.link.handle, closed=True))
        control.peer.expect(Detach, skip=(Disposition,))
        control.session.catch_up()
        control.peer.close()
    expect_left(broker, broker.queue(), b"there")


@scenario("4.1/work-after-the-end", "4.1-closed", "4.4-requests")
def work_after_the_end(broker: Broker, work: _Work) -> None:
    """Work in a transaction whose control link is closed fails: an error comes, and nothing is posted."""
    work.control.link.detach()
    work.sender.send(data(b"too late"), state=within(work.txn), settled=False)
    expect_some_error(work.control.peer)
    expect_left(broker, broker.queue("out"))


@scenario("4.1/work-after-the-end-detaches", "4.1-closed", "4.5.8-unknown-id", profile="full")
def work_after_the_end_detaches(broker: Broker) -> None:
    """A transfer, an outcome, a flow in a transaction that has ended: the link is detached, unknown-id."""
    require_acquisition(broker)
    work = _Work(broker)
    work.control.link.detach()
    work.sender.send(data(b"too late"), state=within(work.txn), settled=False)
    work.sender.expect_detach(UNKNOWN_ID)
    work.receiver.settle(work.delivery, within(work.txn, Accepted()), settled=False)
    work.receiver.expect_detach(UNKNOWN_ID)
    receiver = work.control.session.receiver(broker.queue("more"), handle=7)
    acquire(receiver, work.txn, 1)
    receiver.expect_detach(UNKNOWN_ID)
    work.expect_undone()


@scenario("4.1/acquired-comes-back", "4.1-closed", "4.4.4.3-acquired")
def acquired_comes_back(broker: Broker) -> None:
    """The end of the control link undoes acquisitions: the message goes to somebody who waits."""
    require_acquisition(broker)
    put(broker, broker.queue(), b"mine for a while")
    control = Controller(broker)
    txn = control.declare()
    receiver = control.session.receiver(broker.queue())
    acquire(receiver, txn, 1)
    delivery = receive_in(receiver, txn)
    receiver.settle(delivery, within(txn, Accepted()), settled=False)
    waiting = reader(broker, broker.queue(), 1)
    waiting.peer.expect_nothing(Transfer, within_s=0.2)
    control.link.detach()
    waiting.receive()


@scenario("4.1/retiring-link-closed", "4.4.4.2-applied", "4.4.2-applied", profile="full")
def retiring_link_closed(broker: Broker, work: _Work) -> None:
    """The receiver's link is closed before the discharge: the commit still applies its outcome."""
    work.receiver.detach()
    expect_left(broker, broker.queue("in"))
    work.control.commit(work.txn)
    expect_left(broker, broker.queue("in"))
    expect_left(broker, broker.queue("out"), b"posted")


@scenario("4.1/retiring-link-closed-rollback", "4.4.4.2-01", "4.4.4.2-not-applied", profile="full")
def retiring_link_closed_rollback(work: _Work) -> None:
    """The receiver's link is closed before the discharge: at the rollback its message comes back."""
    work.receiver.detach()
    work.control.roll_back(work.txn)
    work.expect_undone()


@scenario("4.1/posting-link-closed", "4.4.1-not-available", "4.4.4.1-settled-post", profile="full")
def posting_link_closed(broker: Broker, work: _Work) -> None:
    """The sender's link is closed before the discharge: the commit still makes its message available."""
    work.sender.detach()
    expect_left(broker, broker.queue("out"))
    work.control.commit(work.txn)
    expect_left(broker, broker.queue("out"), b"posted")
