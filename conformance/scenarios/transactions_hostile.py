"""Floods of requests, ids that are none, connections cut anywhere, and more of everything than a broker
lets a controller have: answered, and nothing left over (4.2 to 4.4).
"""

import random

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Receiver, Sender
from amqp_broker.conformance.messages import AMQP_VALUE, data
from amqp_broker.conformance.octets import NULL, binary8, described, list8, smalluint, string8
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, error_of, expect, expect_state
from amqp_broker.conformance.queues import expect_left, put
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transactions import (
    ROLLBACK,
    TOO_MUCH,
    UNKNOWN_ID,
    Controller,
    acquire,
    expect_some_error,
    post,
    receive_in,
    request,
    require_acquisition,
    within,
)
from amqp_broker.frames import (
    Accepted,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    Rejected,
    TransactionalState,
    Transfer,
)


@scenario("4.2/pipelined-flood", "4.2-declared", "4.2-06", alone=True)
def pipelined_flood(control: Controller) -> None:
    """Declares and discharges in writes as large as the credit allows: each request has its own answer."""
    for _ in range(20):
        control.link.await_credit()
        count = min(control.link.credit, 50)
        with control.peer.one_write():
            requests = [control.ask(Declare(), wait=False) for _ in range(count)]
        ids = []
        for number in requests:
            state = control.answer(number)
            if isinstance(state, Declared):
                ids.append(state.txn_id)
            else:
                error_of(expect_state(state, Rejected))
        for txn in ids:
            control.roll_back(txn)


@scenario("4.3/guesses", "4.5.8-unknown-id", "4.3-01", "4.3-02", alone=True)
def guesses(broker: Broker, control: Controller) -> None:
    """A thousand guessed ids are rejected, each with unknown-id; a transaction that is live stays so."""
    txn = control.declare()
    sender = control.session.sender(broker.queue())
    post(sender, txn, b"not guessed")
    noise = random.Random(4)
    for _ in range(1_000):
        control.refused(Discharge(txn_id=noise.randbytes(len(txn)), fail=False), UNKNOWN_ID)
    control.commit(txn)
    expect_left(broker, broker.queue(), b"not guessed")


IDS = {
    "null": NULL,
    "a number": smalluint(7),
    "a string": string8("txn"),
    "no octets": binary8(b""),
    "33 octets": binary8(b"x" * 33),
    "a list": list8(smalluint(1)),
    "70,000 octets": b"\xb0" + (70_000).to_bytes(4, "big") + b"x" * 70_000,
}
"""Txn-ids that are none."""


@scenario("4.3/ids-that-are-none", "4.5.4-length", "4.3-01", alone=True)
def ids_that_are_none(broker: Broker) -> None:
    """A discharge whose txn-id is of another type, too long or null is answered with an error."""
    for what, octets in IDS.items():
        broker.transcript.event("", what)
        control = Controller(broker, broker.session(container=what.replace(" ", "-")))
        control.declare()
        payload = described(AMQP_VALUE, described(0x32, _list(octets)))
        control.link.send(payload, frame_octets=20_000)
        expect_some_error(control.peer)
        control.peer.drop()
    broker.still_serves()


def _list(octets: bytes) -> bytes:
    """Returns a list of one item, with sizes of four octets."""
    return b"\xd0" + (len(octets) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + octets


@scenario("4.4/states-that-are-none", "4.4-requests", "4.5.4-length", alone=True, breaks="2.3.2-01 4.4-01")
def states_that_are_none(broker: Broker) -> None:
    """A transfer whose txn-id is of another type, too long or null ends in an error; nothing is posted."""
    for number, txn_id in enumerate((None, 7, "txn", b"", b"x" * 33, [1], b"x" * 40_000)):
        control = Controller(broker, broker.session(container=f"controller-{number}"))
        sender = control.session.sender(broker.queue())
        state = TransactionalState(txn_id=txn_id)  # type: ignore[arg-type]
        try:
            sender.send(data(b"never"), state=state)
        except Exception as error:  # our own encoder refuses it: nothing was sent
            broker.transcript.event("", f"not sent: {error}")
            continue
        expect_some_error(control.peer)
        control.peer.drop()
    expect_left(broker, broker.queue())
    broker.still_serves()


@scenario("4.4/cut-anywhere", "4.1-closed", "4.4.4.3-acquired", alone=True)
def cut_anywhere(broker: Broker) -> None:
    """Connections cut after each step of a transaction leave the queues as they were."""
    require_acquisition(broker)
    put(broker, broker.queue("in"), b"0", b"1", b"2")
    for steps in range(1, 7):
        session = broker.session(container=f"cut-{steps}")
        control = Controller(broker, session)
        sender = session.sender(broker.queue("out"))
        receiver = session.receiver(broker.queue("in"))
        txn = control.declare()
        if steps > 1:
            post(sender, txn, b"never", settled=True)
        if steps > 2:
            acquire(receiver, txn, 2)
        if steps > 3:
            delivery = receive_in(receiver, txn, skip=(Disposition,))
        if steps > 4:
            receiver.settle(delivery, within(txn, Accepted()), settled=steps % 2 == 0)
        if steps > 5:
            with control.peer.one_write():
                session.flow(echo=True)
                control.peer.send_octets(b"\x00\x00\x00\x40\x02\x00", "half a frame")
        control.peer.drop()
    expect_left(broker, broker.queue("out"))
    expect_left(broker, broker.queue("in"), b"0", b"1", b"2")
    broker.still_serves()


@scenario("4.4/many-cut-at-once", "4.1-closed", "4.4.4.3-acquired", profile="full", alone=True)
def many_cut_at_once(broker: Broker) -> None:
    """Twenty connections with a live transaction each are cut: the queue is as it was, in its order."""
    require_acquisition(broker)
    bodies = [b"%02d" % number for number in range(40)]
    put(broker, broker.queue(), *bodies)
    controls = []
    for number in range(20):
        control = Controller(broker, broker.session(container=f"cut-{number}"))
        receiver = control.session.receiver(broker.queue())
        txn = control.declare()
        acquire(receiver, txn, 2)
        for _ in range(2):
            receiver.settle(receive_in(receiver, txn), within(txn, Accepted()), settled=number % 2 == 0)
        controls.append(control)
    for control in controls:
        control.session.catch_up()
    for control in controls:
        control.peer.drop()
    expect_left(broker, broker.queue(), *bodies, in_order=True)


@scenario("4.4/churn", "4.5.3-discharge", "4.3-discharge", alone=True)
def churn(broker: Broker, control: Controller) -> None:
    """Five hundred transactions one after the other on one link: each is there, or not, as it was ended."""
    sender = control.session.sender(broker.queue())
    kept = []
    for number in range(500):
        txn = control.declare()
        body = b"%d" % number
        post(sender, txn, body, settled=number % 3 == 0)
        if number % 50 == 7:
            control.commit(txn)
            kept.append(body)
        else:
            control.roll_back(txn)
    expect_left(broker, broker.queue(), *kept)


@scenario("4.2/unfinished-requests", "4.2-body", "4.1-control-link", alone=True)
def unfinished_requests(broker: Broker, control: Controller) -> None:
    """Half a declare, and then an abort or the end of its link: no harm, and the next one is answered."""
    half = request(Declare())[:3]
    for number in range(20):
        _await_credit(control)
        control.link.send(half, more=True)
        if number % 2:
            control.link.detach()
            control = Controller(broker, control.session)
        else:
            control.link.send_more(aborted=True)
            _await_credit(control)
            control.commit(control.declare())
    control.commit(control.declare())


def _await_credit(control: Controller) -> None:
    """What was aborted has used up its credit, and no sentence says that there is more."""
    try:
        control.link.await_credit()
    except Unexpected as silence:
        raise NotApplicable(f"no credit is given for what was aborted: {silence}") from silence


MOST_TRANSACTIONS = 1_000
"""A broker that lets one connection have more live transactions than this has no bound for a flood."""

MOST_OPERATIONS = 50_000
"""More operations than this project's broker takes in one transaction."""

MOST_LARGE_MESSAGES = 100
"""More messages of a megabyte than this project's broker takes in one transaction."""

MANY = 520
"""More messages than a transaction may hold where its bound is small."""


@scenario("4.2/flood", "4.2-05", "4.2-06", "4.5.7-multi-txns", profile="full", alone=True)
def flood(broker: Broker, control: Controller) -> None:
    """Declares without end: the 65th live one and each more is rejected as too many; others work."""
    live: list[bytes] = []
    refused = 0
    while len(live) < MOST_TRANSACTIONS and refused < 50:
        state = control.answer(control.ask(Declare()))
        if isinstance(state, Declared):
            live.append(state.txn_id)
        else:
            error_of(expect_state(state, Rejected), TOO_MUCH)
            refused += 1
    expect(len(live) < MOST_TRANSACTIONS, f"{len(live)} live transactions on one connection, and no bound")
    if len(live) != 64:
        raise NotApplicable(f"this broker's bound is {len(live)}, which its configuration may have set")
    sender = control.session.sender(broker.queue())
    post(sender, live[0], b"of the first")
    stranger = Controller(broker, broker.session(container="stranger"))
    stranger.commit(stranger.declare())
    control.roll_back(live.pop())
    live.append(control.declare())
    control.refused(Declare(), TOO_MUCH)
    for txn in live:
        control.commit(txn)
    expect_left(broker, broker.queue(), b"of the first")


def _post_until_refused(sender: Sender, txn: bytes) -> None:
    """Posts settled messages, with an unsettled one after each run, until that one is rejected."""
    outcomes = sender.session.outcomes
    for _ in range(0, MOST_OPERATIONS, 100):
        sender.await_credit(2)
        with sender.peer.one_write():
            for _ in range(min(sender.credit - 1, 500)):
                post(sender, txn, b"x", settled=True, wait=False)
            (last,) = post(sender, txn, b"x", wait=False)
        while last not in outcomes:
            sender.peer.expect_frame(Disposition)
        outcome = getattr(outcomes[last].state, "outcome", None)
        if isinstance(outcome, Rejected):
            error_of(outcome, TOO_MUCH, ROLLBACK)
            return
    raise Unexpected("there is no bound for the operations of one transaction")


@scenario("4.4/too-many-operations", "4.4.4.1-01", "4.5.8-rollback", profile="full", alone=True)
def too_many_operations(broker: Broker) -> None:
    """Posts without end in one transaction: it can then be rolled back only, and nothing is there."""
    for fail in (False, True):
        control = Controller(broker, broker.session(container=f"controller-{fail}"))
        sender = control.session.sender(broker.queue(), name=f"sender-{fail}")
        txn = control.declare()
        _post_until_refused(sender, txn)
        if fail:
            control.roll_back(txn)
        else:
            control.refused(Discharge(txn_id=txn, fail=False), ROLLBACK)
        control.commit(control.declare())
        control.peer.close()
    expect_left(broker, broker.queue())


@scenario("4.4/too-many-octets", "4.4.4.1-01", "4.5.8-rollback", profile="full", alone=True)
def too_many_octets(broker: Broker, control: Controller) -> None:
    """Large posts without end: one is rejected as too much, and the transaction can then only roll back."""
    sender = control.session.sender(broker.queue())
    txn = control.declare()
    body = bytes(1_000_000)
    for _ in range(MOST_LARGE_MESSAGES):
        (number,) = post(sender, txn, body, frame_octets=60_000)
        control.session.await_outcome(number)
        outcome = getattr(control.session.outcomes[number].state, "outcome", None)
        if isinstance(outcome, Rejected):
            error_of(outcome, TOO_MUCH)
            break
    else:
        raise Unexpected("there is no bound for the octets of one transaction")
    control.refused(Discharge(txn_id=txn, fail=False), ROLLBACK)
    expect_left(broker, broker.queue())


def _many(broker: Broker) -> tuple[Controller, Receiver]:
    """Returns a control link and a receiver at a queue with more messages than a small bound lets in."""
    quiet = Broker(broker.settings, broker.scenario_id)  # a transcript is for reading
    put(quiet, broker.queue(), *[b"%04d" % number for number in range(MANY)])
    quiet.discard()
    control = Controller(broker)
    return control, control.session.receiver(broker.queue())


@scenario("4.4.3/too-many-acquired", "4.4.4.3-acquired", "4.4.3-state", profile="full", alone=True)
def too_many_acquired(broker: Broker) -> None:
    """Acquisitions beyond the bound: the link is detached, and the transaction can only roll back."""
    require_acquisition(broker)
    control, receiver = _many(broker)
    txn = control.declare()
    acquire(receiver, txn, MANY)
    for _ in range(MANY):
        frame = control.peer.expect_frame(Transfer, Detach).performative
        if isinstance(frame, Detach):
            break
    else:
        raise NotApplicable(f"one transaction may acquire {MANY} messages here")
    error_of(frame, TOO_MUCH)
    control.refused(Discharge(txn_id=txn, fail=False), ROLLBACK)
    control.peer.close()
    expect_left(broker, broker.queue(), *[b"%04d" % number for number in range(MANY)], in_order=True)


@scenario("4.4.2/too-many-retired", "4.4.4.2-not-applied", "4.5.8-rollback", profile="full", alone=True)
def too_many_retired(broker: Broker) -> None:
    """Outcomes beyond the bound: the transaction can only roll back, and none of them is applied."""
    control, receiver = _many(broker)
    receiver.flow(MANY)
    deliveries = receiver.take(MANY)
    txn = control.declare()
    for delivery in deliveries:
        receiver.settle(delivery, within(txn, Accepted()), settled=delivery is deliveries[-1])
    state = control.answer(control.ask(Discharge(txn_id=txn, fail=False)))
    if isinstance(state, Accepted):
        raise NotApplicable(f"one transaction may retire {MANY} messages here")
    error_of(expect_state(state, Rejected), ROLLBACK)
    control.peer.close()
    expect_left(broker, broker.queue(), *[b"%04d" % number for number in range(MANY)], in_order=True)
