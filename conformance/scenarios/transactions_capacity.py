"""Posts that cannot be done: unknown transactions and nodes, full queues, messages that expire (4.4.1)."""

import time

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Sender
from amqp_broker.conformance.messages import data
from amqp_broker.conformance.queues import expect_left
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transactions import (
    NEVER_DECLARED,
    ROLLBACK,
    TOO_MUCH,
    UNKNOWN_ID,
    Controller,
    anonymous_sender,
    elsewhere,
    error_of,
    expect_provisional,
    expect_some_error,
    fill,
    post,
    within,
)
from amqp_broker.frames import (
    Accepted,
    Discharge,
    Header,
    Rejected,
    encode_composite,
)


@scenario("4.4.1/unknown-id", "4.5.8-unknown-id", "4.4-requests")
def unknown_id(broker: Broker) -> None:
    """A transfer that names an id that was never declared fails, settled or not; nothing is posted."""
    for settled in (False, True):
        control = Controller(broker)
        sender = control.session.sender(broker.queue())
        control.declare()
        post(sender, NEVER_DECLARED, b"never", settled=settled)
        expect_some_error(control.peer)
        control.peer.drop()
    expect_left(broker, broker.queue())


@scenario("4.4.1/unknown-id-detaches", "4.5.8-unknown-id", profile="full")
def unknown_id_detaches(broker: Broker) -> None:
    """A transfer that names an unknown id: its link is detached with it, and no other work is touched."""
    control = Controller(broker)
    sender, txn = control.session.sender(broker.queue()), control.declare()
    other = control.session.sender(broker.queue(), handle=2, name="sender-2")
    post(sender, txn, b"good")
    for wrong in (NEVER_DECLARED, txn[:15], txn + b"\x00", b"", b"x" * 32):
        post(other, wrong, b"never")
        other.expect_detach(UNKNOWN_ID)
        other = control.session.sender(broker.queue(), handle=2, name="sender-2")
    control.commit(txn)
    expect_left(broker, broker.queue(), b"good")


@scenario("4.4.1/rejected-cannot-commit", "4.4.1-informs", "4.4.1-05", "4.5.8-rollback", profile="full")
def rejected_cannot_commit(broker: Broker) -> None:
    """A post that goes nowhere is provisionally rejected, and so is what follows; nothing can be committed
    without it.
    """
    control = Controller(broker)
    sender, txn = control.session.sender(broker.queue()), control.declare()
    anonymous = anonymous_sender(control.session, handle=2)
    post(sender, txn, b"good")
    number = anonymous.send(elsewhere(broker.settings.unknown_address), state=within(txn))
    error_of(expect_provisional(anonymous, number, txn, Rejected))
    relayed = anonymous.send(elsewhere(broker.queue(), b"relayed"), state=within(txn))
    error_of(expect_provisional(anonymous, relayed, txn, Rejected), ROLLBACK)
    control.refused(Discharge(txn_id=txn, fail=False), ROLLBACK)
    expect_left(broker, broker.queue())


@scenario("4.4.1/expires", "4.4.1-not-available", profile="full", waits=True)
def expires(broker: Broker) -> None:
    """The time to live is judged at the commit: what has expired by then is not delivered."""
    control = Controller(broker)
    sender, txn = control.session.sender(broker.queue()), control.declare()
    sender.send(encode_composite(Header(ttl=200)) + data(b"short"), state=within(txn))
    sender.send(encode_composite(Header(ttl=60_000)) + data(b"long"), state=within(txn))
    time.sleep(0.4)
    control.commit(txn)
    expect_left(broker, broker.queue(), b"long")


def _bounded(broker: Broker) -> str:
    """Returns the address of a queue for which the broker's configuration may have a bound."""
    return f"{broker.settings.address_prefix}bounded.{broker.container_id()}"


def _put(broker: Broker, sender: Sender, txn: bytes, body: bytes, *, settled: bool = False) -> int:
    """Posts through the anonymous terminus, whose credit is not the queue's; returns the delivery-id."""
    return sender.send(elsewhere(_bounded(broker), body), state=within(txn), settled=settled, wait=False)


@scenario("4.4.1/queue-full", "4.4.1-05", "4.4.1-informs", profile="full")
def queue_full(broker: Broker) -> None:
    """A post beyond the queue's capacity is provisionally rejected; the transaction cannot commit, and what
    it had posted has no place any more.
    """
    control = Controller(broker)
    sender = anonymous_sender(control.session)
    txn = control.declare()
    fill(sender, _bounded(broker), txn)
    control.refused(Discharge(txn_id=txn, fail=False), ROLLBACK)
    expect_left(broker, _bounded(broker))


@scenario("4.4.1/queue-full-settled", "4.4.4-01", "4.5.8-rollback", profile="full")
def queue_full_settled(broker: Broker) -> None:
    """A settled post beyond the queue's capacity: nobody was told, so the transaction cannot commit."""
    control = Controller(broker)
    sender = anonymous_sender(control.session)
    txn = control.declare()
    count = fill(sender, _bounded(broker), txn)
    control.roll_back(txn)
    txn = control.declare()
    sender.await_credit(count + 1)
    with control.peer.one_write():
        for number in range(count + 1):
            _put(broker, sender, txn, b"%d" % number, settled=True)
    control.refused(Discharge(txn_id=txn, fail=False), ROLLBACK)
    expect_left(broker, _bounded(broker))


@scenario("4.4.1/capacity-reserved", "4.4.1-informs", "4.4.4-02", profile="full")
def capacity_reserved(broker: Broker) -> None:
    """What a transaction has posted has its place: others cannot take it, and a rollback frees it."""
    control = Controller(broker)
    sender = anonymous_sender(control.session)
    txn = control.declare()
    count = fill(sender, _bounded(broker), txn)
    stranger = Controller(broker, broker.session(container="stranger"))
    other = anonymous_sender(stranger.session)
    late = stranger.declare()
    number = _put(broker, other, late, b"too much")
    error_of(expect_provisional(other, number, late, Rejected), TOO_MUCH)
    stranger.roll_back(late)
    late = stranger.declare()
    control.roll_back(txn)
    posts = [_put(broker, other, late, b"%d" % number) for number in range(count)]
    for number in posts:
        expect_provisional(other, number, late, Accepted)
    stranger.commit(late)
    expect_left(broker, _bounded(broker), *(b"%d" % number for number in range(count)))
