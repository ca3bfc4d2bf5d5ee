"""More transactions, and more in one of them, than a broker lets a controller have (4.2, 4.4.4)."""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Receiver, Sender
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected
from amqp_broker.conformance.queues import expect_left, put
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transactions import (
    ROLLBACK,
    TOO_MUCH,
    Controller,
    acquire,
    error_of,
    expect_state,
    post,
    require_acquisition,
    within,
)
from amqp_broker.conformance.transcript import describe_value
from amqp_broker.frames import (
    Accepted,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    Rejected,
    Transfer,
)

MOST_TRANSACTIONS = 1_000
"""A broker that lets one connection have more live transactions than this has no bound for a flood."""

MOST_OPERATIONS = 50_000
"""More operations than this project's broker takes in one transaction."""

MOST_LARGE_MESSAGES = 100
"""More messages of a megabyte than this project's broker takes in one transaction."""

MANY = 520
"""More messages than a transaction may hold where its bound is small."""


@scenario("4.2/flood", "4.2-05", "4.2-06", "4.5.7-multi-txns", profile="full", alone=True)
def flood(broker: Broker) -> None:
    """Declares without end: the 65th live one and each more is rejected as too many; others work."""
    control = Controller(broker)
    live: list[bytes] = []
    refused = 0
    while len(live) < MOST_TRANSACTIONS and refused < 50:
        state = control.answer(control.ask(Declare()))
        if isinstance(state, Declared):
            live.append(state.txn_id)
        else:
            error_of(expect_state(state, Rejected), TOO_MUCH)
            refused += 1
    if len(live) >= MOST_TRANSACTIONS:
        raise Unexpected(f"{len(live)} live transactions on one connection, and no bound")
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


@scenario("4.4/too-many-operations", "4.4.4-01", "4.5.8-rollback", profile="full", alone=True)
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


@scenario("4.4/too-many-octets", "4.4.4-01", "4.5.8-rollback", profile="full", alone=True)
def too_many_octets(broker: Broker) -> None:
    """Large posts without end: one is rejected as too much, and the transaction can then only roll back."""
    control = Controller(broker)
    sender = control.session.sender(broker.queue())
    txn = control.declare()
    body = bytes(1_000_000)
    for _ in range(MOST_LARGE_MESSAGES):
        (number,) = post(sender, txn, body, frame_octets=60_000)
        while number not in control.session.outcomes:
            control.peer.expect_frame(Disposition)
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


@scenario("4.4.3/too-many-acquired", "4.4.4-acquired", "4.4.3-state", profile="full", alone=True)
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
    if frame.error is None or frame.error.condition != TOO_MUCH:
        raise Unexpected(f"expected {TOO_MUCH}, got {describe_value(frame)}")
    control.refused(Discharge(txn_id=txn, fail=False), ROLLBACK)
    control.peer.close()
    expect_left(broker, broker.queue(), *[b"%04d" % number for number in range(MANY)], in_order=True)


@scenario("4.4.2/too-many-retired", "4.4.4-not-applied", "4.5.8-rollback", profile="full", alone=True)
def too_many_retired(broker: Broker) -> None:
    """Outcomes beyond the bound: the transaction can only roll back, and none of them is applied."""
    control, receiver = _many(broker)
    receiver.flow(MANY)
    deliveries = [receiver.receive() for _ in range(MANY)]
    txn = control.declare()
    for delivery in deliveries:
        receiver.settle(delivery, within(txn, Accepted()), settled=delivery is deliveries[-1])
    state = control.answer(control.ask(Discharge(txn_id=txn, fail=False)))
    if isinstance(state, Accepted):
        raise NotApplicable(f"one transaction may retire {MANY} messages here")
    error_of(expect_state(state, Rejected), ROLLBACK)
    control.peer.close()
    expect_left(broker, broker.queue(), *[b"%04d" % number for number in range(MANY)], in_order=True)
