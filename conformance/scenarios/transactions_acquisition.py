"""Acquisition: a flow names a transaction, and what is sent for its credit belongs to it; what becomes of
it, and who else sees it (4.4.3, 4.4.4).
"""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import WINDOW, Receiver
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, error_of, expect
from amqp_broker.conformance.queues import body_of, delivery_count, expect_left, put, reader
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transactions import (
    MULTI_SSNS,
    MULTI_TXNS,
    NEVER_DECLARED,
    ROLLBACK,
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
    RECEIVER,
    Accepted,
    Detach,
    Discharge,
    Disposition,
    Modified,
    Rejected,
    Released,
    Transfer,
)


def _begun(broker: Broker, *bodies: bytes) -> tuple[Controller, Receiver, bytes]:
    """Returns a control link, a receiver at this scenario's queue, and a transaction to acquire in."""
    require_acquisition(broker)
    if bodies:
        put(broker, broker.queue(), *bodies)
    control = Controller(broker)
    return control, control.session.receiver(broker.queue()), control.declare()



@scenario("4.4.3/supported", "4.4.3-01", "4.4.3-properties", "4.4.3-state", "4.4-01")
def supported(broker: Broker, control: Controller) -> None:
    """A flow that names a transaction: its transfers name it, too, or the link ends with not-implemented."""
    put(broker, broker.queue(), b"mine")
    receiver = control.session.receiver(broker.queue())
    txn = control.declare()
    acquire(receiver, txn, 1)
    answer = control.peer.expect_frame(Transfer, Detach).performative
    if isinstance(answer, Detach):
        error_of(answer, "amqp:not-implemented")
    elif answer.state != within(txn):
        raise Unexpected(f"4.4-01: expected a transfer in the transaction, got {describe(answer)}")


@scenario("4.4.3/drain", "4.4.3-drain", "4.4.3-properties")
def drain(broker: Broker) -> None:
    """With drain, what is there comes in the transaction, and the rest of the credit is used up."""
    control, receiver, txn = _begun(broker, b"0", b"1")
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
def credit_left_over(broker: Broker, work: Acquired) -> None:
    """Credit that is left at the commit stays; what comes for it afterwards is in no transaction."""
    acquire(work.receiver, work.txn, 2)
    work.retire(Accepted())
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
    work.retire(Accepted())
    work.control.roll_back(work.txn)
    for body in (b"0", b"1"):
        delivery = receive_in(work.receiver, None)
        expect(body_of(delivery) == body, f"expected {body!r}, got {body_of(delivery)!r}")
        work.receiver.settle(delivery)
    work.control.session.catch_up()
    work.left()


@scenario("4.4.3/arrives-later", "4.4.3-state", "4.4.3-properties", "4.4-01")
def arrives_later(broker: Broker) -> None:
    """What arrives at the queue later, while the credit lasts, is acquired in the transaction, too."""
    control, receiver, txn = _begun(broker)
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
    work.retire(Accepted())
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


@scenario("4.4.3/commit", "4.4.4.3-acquired", "4.4.3-properties", "4.4.2-applied")
def commit(broker: Broker) -> None:
    """Acquired and accepted, settled or not: after the commit the messages have gone."""
    work = Acquired(broker, 4, messages=5)
    for number in range(4):
        outcome = Rejected() if number == 3 else Accepted()
        work.retire(outcome, number, settled=number % 2 == 0)
    work.control.commit(work.txn)
    work.left(b"4")


@scenario("4.4.3/commit-returns", "4.4.4.3-acquired", "4.4.2-applied")
def commit_returns(broker: Broker) -> None:
    """Acquired and given back: after the commit the messages are available, counted as the outcomes say."""
    work = Acquired(broker, 2)
    work.retire(Released(), 0)
    work.retire(Modified(delivery_failed=True), 1, settled=True)
    work.control.session.catch_up()
    expect_left(broker, broker.queue())
    work.control.commit(work.txn)
    counts = {body_of(delivery): delivery_count(delivery) for delivery in work.left(b"0", b"1")}
    expect(counts == {b"0": 0, b"1": 1}, f"expected delivery-counts 0 and 1, got {counts}")


@scenario("4.4.3/rollback", "4.4.4.3-acquired", "4.3-fail")
def rollback(broker: Broker) -> None:
    """The rollback undoes acquisitions, whatever outcome they had: somebody who waits gets the messages."""
    work = Acquired(broker, 5)
    for number, outcome in enumerate((Accepted(), Rejected(), Released(), Modified(delivery_failed=True))):
        work.retire(outcome, number, settled=number % 2 == 0)
    waiting = reader(broker, broker.queue(), 10)
    waiting.peer.expect_nothing(Transfer)
    work.control.roll_back(work.txn)
    got = sorted(body_of(waiting.receive()) for _ in range(5))
    expect(got == [b"%d" % number for number in range(5)], f"expected all five messages, got {got}")


@scenario("4.4.3/rollback-in-place", "4.4.4.3-acquired", profile="full")
def rollback_in_place(broker: Broker) -> None:
    """After a rollback the queue is as it was: the same order, and no delivery is counted."""
    work = Acquired(broker, 4, messages=6)
    for number, outcome in enumerate((Modified(delivery_failed=True), Released(), Accepted())):
        work.retire(outcome, number, settled=number == 1)
    work.control.roll_back(work.txn)
    bodies = [b"%d" % number for number in range(6)]
    for delivery in expect_left(broker, broker.queue(), *bodies, in_order=True):
        if delivery_count(delivery):
            raise Unexpected(f"{body_of(delivery)!r} has the delivery-count {delivery_count(delivery)}")


@scenario("4.4.3/rollback-settles", "4.4.4.3-acquired", profile="full")
def rollback_settles(broker: Broker) -> None:
    """After a rollback the broker settles what was acquired as released, before it accepts the discharge."""
    work = Acquired(broker, 2)
    work.retire(Accepted(), 1)
    work.control.roll_back(work.txn)
    for delivery in work.deliveries:
        settlement = work.control.session.settlements.get(delivery.delivery_id)
        if settlement is None or not settlement.settled or settlement.state != Released():
            said = "nothing" if settlement is None else describe(settlement)
            raise Unexpected(f"expected delivery {delivery.delivery_id} settled as released, got {said}")


@scenario("4.4.3/no-outcome-stays", "4.4.3-state", "4.4.4.3-acquired", profile="full")
def no_outcome_stays(broker: Broker) -> None:
    """Acquired and without an outcome at the commit: it stays acquired, and can be settled outside of it."""
    work = Acquired(broker, 3)
    work.retire(Accepted(), 2)
    work.control.commit(work.txn)
    if set(work.control.session.settlements) & {each.delivery_id for each in work.deliveries[:2]}:
        raise Unexpected("the broker has settled a delivery that has no outcome")
    expect_left(broker, broker.queue())
    work.receiver.settle(work.deliveries[0])
    again = work.control.declare()
    work.receiver.settle(work.deliveries[1], within(again, Accepted()), settled=False)
    work.control.commit(again)
    work.left()


@scenario("4.4.3/settled-by-the-broker", "4.4.4.3-acquired-settled")
def settled_by_the_broker(broker: Broker) -> None:
    """Acquired on a link that sends settled: back with the rollback, gone with the commit."""
    work = Acquired(broker, 2, snd_settle_mode=1)
    if not work.deliveries[0].transfer.settled:
        raise NotApplicable("the broker does not send settled where settled is wished")
    work.control.session.catch_up()
    expect_left(broker, broker.queue())
    work.control.roll_back(work.txn)
    expect_left(broker, broker.queue(), b"0", b"1")
    txn = work.control.declare()
    acquire(work.receiver, txn, 1)
    taken = body_of(receive_in(work.receiver, txn))
    work.control.commit(txn)
    work.left(b"1" if taken == b"0" else b"0")


@scenario("4.4.3/outcome-of-another", "4.4.2-01", "4.4.2-02", "4.4.4.3-01", "4.5.7-multi-txns")
def outcome_of_another(broker: Broker) -> None:
    """An outcome in another live transaction than the acquisition's: the control link is terminated."""
    broker.require_coordinator(MULTI_TXNS)
    work = Acquired(broker)
    other = work.control.declare()
    work.receiver.settle(work.deliveries[0], within(other, Accepted()), settled=False)
    work.control.link.expect_detach(ROLLBACK)
    work.left(b"0")


@scenario("4.4.3/plain-outcome", "4.4.4.3-01", profile="full")
def plain_outcome(broker: Broker) -> None:
    """A plain outcome for what a live transaction has acquired: the control link is terminated."""
    for settled in (False, True):
        work = Acquired(broker)
        work.receiver.settle(work.deliveries[0], settled=settled)
        work.control.link.expect_detach(ROLLBACK)
        work.left(b"0")
        taker = reader(broker, broker.queue(), 1)
        taker.settle(taker.receive())
        taker.peer.close()


LARGE = bytes(range(256)) * 20
"""A message of several frames where frames are small."""

SMALL_FRAMES = 1024


@scenario("4.4.3/two-controllers", "4.4.3-state", "4.4.4.3-acquired")
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
    expect(sorted(got[0] + got[1]) == bodies, f"expected each of 20 messages once, got {got}")
    (committer, good), (other, bad) = controls
    committer.commit(good)
    other.roll_back(bad)
    committer.peer.close()
    other.peer.close()
    expect_left(broker, broker.queue(), *got[1])


@scenario("4.4.3/turn-by-turn", "4.4.3-state", "4.4.4.3-acquired")
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
    expect(sorted(committed) == bodies, f"expected each message committed once, got {committed}")


@scenario("4.4.3/invisible", "4.4.3-state", "4.4.4.3-acquired")
def invisible(broker: Broker) -> None:
    """What a live transaction has acquired comes over no other link, not even of its own session."""
    control, receiver, txn = _begun(broker, b"mine")
    acquire(receiver, txn, 1)
    receiver.settle(receive_in(receiver, txn), within(txn, Accepted()), settled=False)
    beside = control.session.receiver(broker.queue(), handle=2, credit=1)
    waiting = reader(broker, broker.queue(), 1)
    waiting.peer.expect_nothing(Transfer)
    control.peer.expect_nothing(Transfer, within_s=0.1)
    control.commit(txn)
    waiting.peer.expect_nothing(Transfer, within_s=0.1)
    beside.flow(0)


@scenario("4.4.3/browser-sees", "4.4.2-applied", "4.4.4.3-acquired", profile="full")
def browser_sees(broker: Broker) -> None:
    """A copying link sees what a transaction has acquired and retired, until the commit removes it."""
    control, receiver, txn = _begun(broker, b"0", b"1")
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
