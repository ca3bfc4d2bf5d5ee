"""Several at one queue: who sees what, and messages that are half sent at the discharge (4.4.3)."""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.outcomes import Unexpected
from amqp_broker.conformance.queues import body_of, expect_left, put, reader
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transactions import (
    Controller,
    acquire,
    copying,
    receive_in,
    require_acquisition,
    within,
)
from amqp_broker.conformance.transcript import describe
from amqp_broker.conformance.wire import WINDOW
from amqp_broker.frames import RECEIVER, Accepted, Discharge, Disposition, Transfer

LARGE = bytes(range(256)) * 20
"""A message of several frames where frames are small."""

SMALL_FRAMES = 1024


@scenario("4.4.3/two-controllers", "4.4.3-state", "4.4.4-acquired")
def two_controllers(broker: Broker) -> None:
    """Two controllers at one queue never get one message; one commits, and the other's come back."""
    require_acquisition(broker)
    bodies = [b"%02d" % number for number in range(20)]
    put(broker, broker.queue(), *bodies)
    got: list[list[bytes]] = []
    controls = []
    for number in range(2):
        control = Controller(broker, broker.session(container=f"controller-{number}"))
        receiver = control.session.receiver(broker.queue())
        txn = control.declare()
        acquire(receiver, txn, 10)
        got.append([])
        for _ in range(10):
            delivery = receive_in(receiver, txn)
            got[-1].append(body_of(delivery))
            receiver.settle(delivery, within(txn, Accepted()), settled=False)
        controls.append((control, txn))
    if sorted(got[0] + got[1]) != bodies:
        raise Unexpected(f"expected each of 20 messages once, got {got}")
    (committer, good), (other, bad) = controls
    committer.commit(good)
    other.roll_back(bad)
    committer.peer.close()
    other.peer.close()
    expect_left(broker, broker.queue(), *got[1])


@scenario("4.4.3/turn-by-turn", "4.4.3-state", "4.4.4-acquired")
def turn_by_turn(broker: Broker) -> None:
    """Two controllers in turn, of which one always rolls back: each message is committed once."""
    require_acquisition(broker)
    bodies = [b"%d" % number for number in range(6)]
    put(broker, broker.queue(), *bodies)
    committed = []
    controls = [Controller(broker, broker.session(container=f"controller-{number}")) for number in range(2)]
    receivers = [control.session.receiver(broker.queue()) for control in controls]
    for number in range(2 * len(bodies)):
        control, receiver = controls[number % 2], receivers[number % 2]
        txn = control.declare()
        acquire(receiver, txn, 1)
        delivery = receive_in(receiver, txn, skip=(Disposition,))
        receiver.settle(delivery, within(txn, Accepted()), settled=number % 3 == 0)
        if number % 2:
            control.commit(txn)
            committed.append(body_of(delivery))
        else:
            control.roll_back(txn)
    if sorted(committed) != bodies:
        raise Unexpected(f"expected each message committed once, got {committed}")


@scenario("4.4.3/invisible", "4.4.3-state", "4.4.4-acquired")
def invisible(broker: Broker) -> None:
    """What a live transaction has acquired comes over no other link, not even of its own session."""
    require_acquisition(broker)
    put(broker, broker.queue(), b"mine")
    control = Controller(broker)
    receiver = control.session.receiver(broker.queue())
    txn = control.declare()
    acquire(receiver, txn, 1)
    receiver.settle(receive_in(receiver, txn), within(txn, Accepted()), settled=False)
    beside = control.session.receiver(broker.queue(), handle=2, credit=1)
    waiting = reader(broker, broker.queue(), 1)
    waiting.peer.expect_nothing(Transfer)
    control.peer.expect_nothing(Transfer, within_s=0.1)
    control.commit(txn)
    waiting.peer.expect_nothing(Transfer, within_s=0.1)
    beside.flow(0)


@scenario("4.4.3/browser-sees", "4.4.2-applied", "4.4.4-acquired", profile="full")
def browser_sees(broker: Broker) -> None:
    """A copying link sees what a transaction has acquired and retired, until the commit removes it."""
    require_acquisition(broker)
    put(broker, broker.queue(), b"0", b"1")
    control = Controller(broker)
    receiver = control.session.receiver(broker.queue())
    txn = control.declare()
    acquire(receiver, txn, 2)
    for _ in range(2):
        receiver.settle(receive_in(receiver, txn), within(txn, Accepted()), settled=False)
    control.session.catch_up()
    browser = copying(broker, broker.queue())
    browser.flow(10)
    for body in (b"0", b"1"):
        if body_of(browser.receive()) != body:
            raise Unexpected("the copying link does not see the messages in their order")
    browser.peer.close()
    control.commit(txn)
    late = copying(broker, broker.queue())
    late.expect_empty()


def _half_sent(broker: Broker) -> tuple[Controller, bytes, int]:
    """Returns the delivery-id of a large message of which one frame has come, acquired in a transaction."""
    require_acquisition(broker)
    put(broker, broker.queue(), LARGE)
    peer, _ = broker.opened(max_frame_size=SMALL_FRAMES)
    session = peer.begin(incoming_window=1)
    control = Controller(broker, session)
    receiver = session.receiver(broker.queue())
    txn = control.declare()
    acquire(receiver, txn, 1)
    first = peer.expect(Transfer)
    if not first.more or first.state != within(txn):
        raise Unexpected(f"expected the first of several transfers in the transaction, got {describe(first)}")
    session.incoming_window = WINDOW
    assert first.delivery_id is not None
    return control, txn, first.delivery_id


@scenario("4.4.3/half-sent-rollback", "4.4.3-04", "4.4.3-03")
def half_sent_rollback(broker: Broker) -> None:
    """A rollback while a message is half sent: the broker aborts or completes it before it accepts."""
    control, txn, _ = _half_sent(broker)
    session = control.session
    discharge = control.ask(Discharge(txn_id=txn, fail=True))
    control.peer.expect_nothing(Transfer, within_s=0.2)
    if discharge in session.outcomes:
        raise Unexpected("4.4.3-04: the discharge was answered while a message was half sent")
    session.flow()
    control.answer(discharge, skip=(Transfer,))
    transfers = [frame for frame in session.seen if isinstance(frame, Transfer)]
    end = next(i for i, frame in enumerate(session.seen) if frame is session.outcomes[discharge])
    if not (transfers[-1].aborted or not transfers[-1].more) or transfers[-1] in session.seen[end:]:
        raise Unexpected("4.4.3-04: the discharge was answered while a message was half sent")
    control.peer.close()
    expect_left(broker, broker.queue(), LARGE)


@scenario("4.4.3/half-sent-commit", "4.4.3-03", profile="full")
def half_sent_commit(broker: Broker) -> None:
    """A commit while a message is half sent: the rest of it comes, and it stays acquired."""
    control, txn, first = _half_sent(broker)
    session = control.session
    control.commit(txn)
    session.flow()
    while control.peer.expect(Transfer, aborted=False).more:
        pass
    expect_left(broker, broker.queue())
    session.put(Disposition(role=RECEIVER, first=first, settled=True, state=Accepted()))
    session.catch_up()
    control.peer.close()
    expect_left(broker, broker.queue())
