"""Discharges: what ends a transaction, who may, and what is answered when (4.3)."""

import time

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Receiver, Session
from amqp_broker.conformance.messages import data
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected
from amqp_broker.conformance.queues import expect_left, put, reader
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transactions import (
    MULTI_TXNS,
    NEVER_DECLARED,
    ROLLBACK,
    TIMEOUT,
    UNKNOWN_ID,
    Controller,
    Delivered,
    acquire,
    anonymous_sender,
    elsewhere,
    post,
    receive_in,
    require_acquisition,
    within,
)
from amqp_broker.conformance.transcript import describe
from amqp_broker.frames import Accepted, Detach, Discharge, Disposition, Rejected, Released

LASTS_AT_MOST_S = 6.5
"""How long we wait for a transaction to time out; a broker may let it live for much longer."""


@scenario("4.3/fail-not-set", "4.3-fail", "4.5.3-fail", "4.3-discharge")
def fail_not_set(broker: Broker) -> None:
    """A discharge whose fail flag is not set commits: what was posted is there."""
    control = Controller(broker)
    txn = control.declare()
    post(control.session.sender(broker.queue()), txn, b"there")
    control.discharge(txn, None)
    expect_left(broker, broker.queue(), b"there")


@scenario("4.3/over", "4.5.3-discharge", "4.5.8-unknown-id", "4.3-01", "4.3-02")
def over(broker: Broker) -> None:
    """A txn-id is no longer in use after its discharge: a second one is rejected with unknown-id."""
    control = Controller(broker)
    for fail in (False, True):
        txn = control.declare()
        control.discharge(txn, fail)
        control.refused(Discharge(txn_id=txn, fail=False), UNKNOWN_ID)
    control.commit(control.declare())


@scenario("4.3/unknown-id", "4.5.8-unknown-id", "4.3-01", "4.3-02")
def unknown_id(broker: Broker) -> None:
    """A discharge of an id that was never declared is rejected with unknown-id; the link works on."""
    control = Controller(broker)
    control.refused(Discharge(txn_id=NEVER_DECLARED, fail=False), UNKNOWN_ID)
    control.commit(control.declare())


@scenario("4.3/unknown-id-without-rejected", "4.3-03", "4.5.8-unknown-id")
def unknown_id_without_rejected(broker: Broker) -> None:
    """Where the source does not offer rejected, the error of a discharge comes in a detach."""
    control = Controller(broker, outcomes=("amqp:accepted:list",))
    control.ask(Discharge(txn_id=NEVER_DECLARED, fail=False))
    control.link.expect_detach(UNKNOWN_ID)
    control.session.catch_up()
    control.peer.close()


@scenario("4.3/unknown-id-with-fail", "4.5.8-unknown-id", "4.3-02", profile="full")
def unknown_id_with_fail(broker: Broker) -> None:
    """Also with the fail flag an unknown id is rejected: there is nothing that could be rolled back."""
    control = Controller(broker)
    control.refused(Discharge(txn_id=NEVER_DECLARED, fail=True), UNKNOWN_ID)
    txn = control.declare()
    control.commit(txn)
    control.refused(Discharge(txn_id=txn, fail=True), UNKNOWN_ID)


@scenario("4.3/fail-always", "4.3-04", "4.3-fail", "4.5.3-fail")
def fail_always(broker: Broker) -> None:
    """A discharge with the fail flag is accepted, whatever was done in the transaction, or nothing."""
    control = Controller(broker)
    control.roll_back(control.declare())
    put(broker, broker.queue("in"), b"1", b"2")
    receiver = control.session.receiver(broker.queue("in"))
    sender = control.session.sender(broker.queue("out"))
    for settled in (False, True):
        receiver.flow(1)
        delivery = receiver.receive(skip=(Disposition,))
        txn = control.declare()
        post(sender, txn, b"unsettled")
        post(sender, txn, b"settled", settled=True)
        receiver.settle(delivery, within(txn, Accepted()), settled=settled)
        control.roll_back(txn)
    control.peer.close()
    expect_left(broker, broker.queue("out"))


@scenario("4.3/fail-of-what-cannot-commit", "4.3-04", "4.4.4-01")
def fail_of_what_cannot_commit(broker: Broker) -> None:
    """A transaction that cannot commit, since a settled message went nowhere, can be rolled back."""
    control = Controller(broker)
    txn = control.declare()
    sender = anonymous_sender(control.session)
    sender.send(elsewhere(broker.settings.unknown_address), state=within(txn), settled=True)
    control.ask(Discharge(txn_id=txn, fail=True))
    answer = control.peer.expect_frame(Disposition, Detach).performative
    if isinstance(answer, Detach):
        return  # 4.4.4 lets a broker destroy the control link at once instead.
    if not isinstance(answer.state, Accepted):
        raise Unexpected(f"4.3-04: expected accepted, got {describe(answer)}")


@scenario("4.3/settled-discharge", "4.3-settled", "4.1-closed", "4.4.4-08")
def settled_discharge(broker: Broker) -> None:
    """A discharge that is sent settled: the control link is detached with an error, and all rolled back."""
    work = Delivered(broker)
    post(work.control.session.sender(broker.queue("out")), work.txn, b"never")
    work.retire(Accepted(), settled=True)
    work.control.ask(Discharge(txn_id=work.txn, fail=False), settled=True)
    work.control.link.expect_detach()
    expect_left(broker, broker.queue("out"))
    expect_left(broker, broker.queue(), b"0")


@scenario("4.3/foreign-connection", "4.5.8-unknown-id", "4.3-01")
def foreign_connection(broker: Broker) -> None:
    """A discharge of another connection's transaction is rejected; its own controller commits it."""
    control = Controller(broker)
    txn = control.declare()
    post(control.session.sender(broker.queue()), txn, b"its own")
    stranger = Controller(broker, broker.session(container="stranger"))
    stranger.refused(Discharge(txn_id=txn, fail=False))
    stranger.refused(Discharge(txn_id=txn, fail=True))
    control.commit(txn)
    expect_left(broker, broker.queue(), b"its own")


@scenario("4.3/another-control-link", "4.5.8-unknown-id", "4.3-02", profile="full")
def another_control_link(broker: Broker) -> None:
    """A discharge through another control link of the session is unknown-id; its own link commits it."""
    control = Controller(broker)
    other = Controller(broker, control.session, handle=101, name="another")
    txn = control.declare()
    post(control.session.sender(broker.queue()), txn, b"its own")
    other.refused(Discharge(txn_id=txn, fail=False), UNKNOWN_ID)
    other.refused(Discharge(txn_id=txn, fail=True), UNKNOWN_ID)
    control.commit(txn)
    expect_left(broker, broker.queue(), b"its own")


def _position(session: Session, performative: object) -> int:
    """Returns where a performative stands in what the broker sent on a session."""
    return next(index for index, seen in enumerate(session.seen) if seen is performative)


@scenario("4.3/provisional-first", "4.4.4-02", "4.4.1-04", "4.4.1-05", "4.4.1-informs")
def provisional_first(broker: Broker) -> None:
    """All in one write: the provisional outcome of each post comes before the discharge is accepted."""
    control = Controller(broker)
    sender = control.session.sender(broker.queue())
    txn = control.declare()
    sender.await_credit(5)
    control.link.await_credit()
    with control.peer.one_write():
        posts = post(sender, txn, *(b"%d" % number for number in range(5)), wait=False)
        discharge = control.ask(Discharge(txn_id=txn, fail=False), wait=False)
    control.answer(discharge)
    end = _position(control.session, control.session.outcomes[discharge])
    for number in posts:
        disposition = control.session.outcomes.get(number)
        if disposition is None or _position(control.session, disposition) > end:
            raise Unexpected(f"4.4.4-02: delivery {number} had no outcome when the discharge was accepted")


@scenario("4.3/settlements-first", "4.4.2-applied", "4.4-01", profile="full")
def settlements_first(broker: Broker) -> None:
    """The broker settles what the transaction retired, in its name, and accepts the discharge after it."""
    put(broker, broker.queue(), b"1", b"2", b"3")
    control = Controller(broker)
    session = control.session
    receiver = session.receiver(broker.queue(), credit=3)
    deliveries = [receiver.receive() for _ in range(3)]
    for outcome in (Accepted(), Rejected(), Released()):
        txn = control.declare()
        delivery = deliveries.pop(0)
        receiver.settle(delivery, within(txn, outcome), settled=False)
        discharge = control.ask(Discharge(txn_id=txn, fail=False))
        control.answer(discharge)
        settlement = session.settlements.get(delivery.delivery_id)
        if settlement is None or not settlement.settled or settlement.state != within(txn, outcome):
            said = "nothing" if settlement is None else describe(settlement)
            raise Unexpected(f"expected {delivery.delivery_id} settled in the transaction, got {said}")
        if _position(session, settlement) > _position(session, session.outcomes[discharge]):
            raise Unexpected("the discharge was accepted before what it retired was settled")


@scenario("4.3/interleaved", "4.5.7-multi-txns", "4.4-requests")
def interleaved(broker: Broker) -> None:
    """Two transactions post in turn over one link; one commits, one is rolled back."""
    control = Controller(broker, needs=(MULTI_TXNS,))
    sender = control.session.sender(broker.queue())
    good, bad = control.declare(), control.declare()
    sender.await_credit(6)
    with control.peer.one_write():
        for number in range(3):
            post(sender, good, b"good %d" % number, wait=False)
            post(sender, bad, b"bad %d" % number, wait=False)
    control.roll_back(bad)
    control.commit(good)
    expect_left(broker, broker.queue(), b"good 0", b"good 1", b"good 2")


@scenario("4.3/transform", "4.1-distinct-links", "4.4-state", "4.4.2-applied", "4.4.1-not-available")
def transform(broker: Broker) -> None:
    """Five times consume, post elsewhere and commit: one queue is empty, the other has all of it."""
    bodies = [b"%d" % number for number in range(5)]
    put(broker, broker.queue("in"), *bodies)
    control = Controller(broker)
    receiver = control.session.receiver(broker.queue("in"))
    sender = control.session.sender(broker.queue("out"))
    for number in range(5):
        receiver.flow(1)
        delivery = receiver.receive(skip=(Disposition,))
        txn = control.declare()
        post(sender, txn, b"%d" % number)
        receiver.settle(delivery, within(txn, Accepted()), settled=number % 2 == 0)
        control.commit(txn)
    control.peer.close()
    expect_left(broker, broker.queue("in"))
    expect_left(broker, broker.queue("out"), *bodies)


def _timed_out(control: Controller, waiting: Receiver) -> None:
    """Waits until what the transaction has acquired comes to somebody else; keeps connections alive."""
    end = time.monotonic() + LASTS_AT_MOST_S
    while not waiting.deliveries:
        if time.monotonic() > end:
            raise NotApplicable(f"no transaction has timed out within {LASTS_AT_MOST_S:g} s")
        control.peer.send_empty_frame()
        waiting.peer.send_empty_frame()
        if waiting.peer.has_more(0.5):
            waiting.receive()


@scenario("4.5.8/timeout", "4.5.8-timeout", "4.3-02", profile="full", waits=True)
def timeout(broker: Broker) -> None:
    """A transaction that lasts too long is rolled back at once, and its discharge answers timeout."""
    require_acquisition(broker)
    put(broker, broker.queue("in"), b"mine")
    control = Controller(broker)
    sender = control.session.sender(broker.queue())
    late, txn = control.declare(), control.declare()
    post(sender, txn, b"never")
    receiver = control.session.receiver(broker.queue("in"))
    acquire(receiver, txn, 1)
    receive_in(receiver, txn, skip=(Disposition,))
    freed = reader(broker, broker.queue("in"), 1)
    _timed_out(control, freed)
    control.refused(Discharge(txn_id=txn, fail=False), TIMEOUT)
    control.refused(Discharge(txn_id=txn, fail=False), UNKNOWN_ID)
    sender.send(data(b"too late"), state=within(late))
    detach = control.peer.expect(Detach, skip=(Disposition,))
    if detach.error is None or detach.error.condition != TIMEOUT:
        raise Unexpected(f"expected a detach with {TIMEOUT}, got {describe(detach)}")
    control.commit(control.declare())
    freed.peer.close()
    expect_left(broker, broker.queue())


@scenario("4.4.4/settled-goes-nowhere", "4.4.4-01", "4.4.4-communicated", "4.5.8-rollback")
def settled_goes_nowhere(broker: Broker) -> None:
    """A settled message that cannot be posted: the transaction cannot commit, nothing of it is there."""
    control = Controller(broker)
    good, sender = control.session.sender(broker.queue()), anonymous_sender(control.session, handle=2)
    txn = control.declare()
    post(good, txn, b"never")
    sender.send(elsewhere(broker.settings.unknown_address), state=within(txn), settled=True)
    discharge = control.ask(Discharge(txn_id=txn, fail=False))
    answer = None
    while answer is None:
        got = control.peer.expect_frame(Disposition, Detach).performative
        if isinstance(got, Detach) or discharge in control.session.outcomes:
            answer = got
    error = answer.error if isinstance(answer, Detach) else getattr(answer.state, "error", None)
    if error is None or error.condition != ROLLBACK:
        raise Unexpected(f"expected {ROLLBACK} as rejected or detach, got {describe(answer)}")
    expect_left(broker, broker.queue())
