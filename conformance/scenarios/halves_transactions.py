"""Half messages inside AMQP transactions: put and resolved at the discharge, with everything else."""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Sender
from amqp_broker.conformance.halves import (
    CONFLICT,
    ID_CONFLICT,
    INVALID,
    NOT_ALLOWED,
    SOON,
    UNKNOWN,
    Halves,
    Producer,
    half,
    resolution,
)
from amqp_broker.conformance.outcomes import error_of, expect_equal
from amqp_broker.conformance.queues import body_of, expect_left, put
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transactions import ROLLBACK, Controller, expect_provisional, post, within
from amqp_broker.frames import Accepted, Discharge, Rejected


def _begun(halves: Halves) -> tuple[Producer, Controller]:
    """Returns a producer, and a control link on its session."""
    producer = halves.producer()
    return producer, Controller(halves.broker, producer.session)


def _in(link: Sender, txn: bytes, payload: bytes) -> None:
    """Sends a message in a transaction, which must be provisionally accepted."""
    expect_provisional(link, link.send(payload, state=within(txn)), txn, Accepted)


def _refused(link: Sender, txn: bytes, payload: bytes, *conditions: str) -> None:
    """Sends a message in a transaction, which must be provisionally rejected."""
    error_of(expect_provisional(link, link.send(payload, state=within(txn)), txn, Rejected), *conditions)


@scenario("half.put/in-transaction", "half.put-transaction")
def in_transaction(broker: Broker, halves: Halves) -> None:
    """A put in a transaction is provisionally accepted, and prepared at the discharge."""
    (producer, control), other = _begun(halves), halves.producer("other")
    txn = control.declare()
    _in(producer.put_link, txn, half("1"))
    other.conflict("1", "commit", UNKNOWN)
    control.commit(txn)
    other.put(half("1"))
    other.commit("1")
    expect_left(broker, halves.queue, b"the body")


@scenario("half.put/in-transaction-rolled-back", "half.put-transaction")
def in_transaction_rolled_back(broker: Broker, halves: Halves) -> None:
    """A put in a transaction that rolls back, or whose connection goes, never was."""
    (producer, control), other = _begun(halves), halves.producer("other")
    txn = control.declare()
    _in(producer.put_link, txn, half("1"))
    control.roll_back(txn)
    other.conflict("1", "commit", UNKNOWN)
    txn = control.declare()
    _in(producer.put_link, txn, half("1"))
    halves.leave(producer.session)
    other.conflict("1", "commit", UNKNOWN)
    other.put(half("1", b"another"))
    other.commit("1")
    expect_left(broker, halves.queue, b"another")


@scenario("half.put/in-transaction-timers", "half.put-transaction", "half.check-due", waits=True)
def in_transaction_timers(halves: Halves) -> None:
    """The timers of a half message that was put in a transaction start at the discharge."""
    (producer, control), checker = _begun(halves), halves.checker()
    txn = control.declare()
    _in(producer.put_link, txn, half("1", named={"half_first_check_ms": 800}))
    checker.is_silent(1.2)
    control.commit(txn)
    checker.is_silent(0.5)
    check = checker.asked("1")
    expect_equal("whether the age began at the discharge", True, check.named["half_age_ms"] < 1_200)


@scenario("half.put/in-transaction-refused", "half.put-transaction", "half.put-repeat")
def in_transaction_refused(halves: Halves) -> None:
    """What a put is refused for is refused in a transaction, too, which can't commit without it."""
    producer, control = _begun(halves)
    producer.put(half("decided"), half("open"))
    producer.roll_back("decided")
    for wrong, condition in (
        (half("decided"), CONFLICT),
        (half("open", b"other"), ID_CONFLICT),
        (half("1", named={"half_other": 1}), NOT_ALLOWED),
    ):
        txn = control.declare()
        _in(producer.put_link, txn, half("1", b"good"))
        _refused(producer.put_link, txn, wrong, condition)
        control.refused(Discharge(txn_id=txn, fail=False), ROLLBACK)
        producer.conflict("1", "commit", UNKNOWN)


@scenario("half.put/in-transaction-settled", "half.put-settled", "half.put-transaction")
def in_transaction_settled(halves: Halves) -> None:
    """A put that was sent settled detaches its link in a transaction, too."""
    (producer, control), other = _begun(halves), halves.producer("other")
    txn = control.declare()
    producer.put_link.send(half("1"), state=within(txn), settled=True)
    producer.put_link.expect_detach(NOT_ALLOWED)
    control.roll_back(txn)
    other.conflict("1", "commit", UNKNOWN)


@scenario("half.resolve/in-transaction", "half.resolve-transaction")
def in_transaction_commit(broker: Broker, halves: Halves) -> None:
    """A commit in a transaction: nothing before the discharge, the message after it, in one with a post."""
    (producer, control), consumer = _begun(halves), halves.consumer()
    producer.put(half("1", b"half"))
    sender = producer.session.sender(broker.queue("beside"), 12, "beside")
    txn = control.declare()
    _in(producer.resolve_link, txn, resolution("1", "commit"))
    post(sender, txn, b"beside")
    halves.silent(consumer)
    control.commit(txn)
    expect_equal("the body", b"half", body_of(halves.next(consumer)))
    producer.commit("1")
    expect_left(broker, broker.queue("beside"), b"beside")


@scenario("half.resolve/in-transaction-rolled-back", "half.resolve-transaction")
def in_transaction_resolved_not(halves: Halves) -> None:
    """After a rollback of the transaction nothing is decided: neither by its commit nor by its rollback."""
    (producer, control), consumer = _begun(halves), halves.consumer()
    producer.put(half("1", b"one"), half("2", b"two"))
    txn = control.declare()
    _in(producer.resolve_link, txn, resolution("1", "commit"))
    _in(producer.resolve_link, txn, resolution("2", "rollback"))
    control.roll_back(txn)
    halves.silent(consumer)
    producer.commit("2")
    producer.roll_back("1")
    expect_equal("the body", b"two", body_of(halves.next(consumer)))


@scenario("half.resolve/in-transaction-changed", "half.resolve-transaction")
def in_transaction_changed(broker: Broker, halves: Halves) -> None:
    """Somebody decides before the discharge: it is rejected, and nothing of the transaction happens."""
    (producer, control), other = _begun(halves), halves.producer("other")
    producer.put(half("1"))
    sender = producer.session.sender(broker.queue("beside"), 12, "beside")
    txn = control.declare()
    _in(producer.resolve_link, txn, resolution("1", "commit"))
    post(sender, txn, b"beside")
    other.roll_back("1")
    control.refused(Discharge(txn_id=txn, fail=False), ROLLBACK)
    expect_left(broker, halves.queue)
    expect_left(broker, broker.queue("beside"))


@scenario("half.resolve/in-transaction-refused", "half.resolve-transaction", "half.resolve-info")
def in_transaction_resolution_refused(broker: Broker, halves: Halves) -> None:
    """What can be seen to fail is provisionally rejected, and the transaction can't commit without it."""
    producer, control = _begun(halves)
    producer.put(half("1"), half("2"))
    producer.roll_back("1")
    for wrong, condition in ((resolution("1", "commit"), CONFLICT), (resolution("2", "perhaps"), INVALID)):
        txn = control.declare()
        _in(producer.resolve_link, txn, resolution("2", "commit"))
        _refused(producer.resolve_link, txn, wrong, condition)
        control.refused(Discharge(txn_id=txn, fail=False), ROLLBACK)
    expect_left(broker, halves.queue)
    producer.commit("2")
    expect_left(broker, halves.queue, b"the body")


@scenario("half.resolve/put-and-commit", "half.resolve-transaction", "half.put-transaction")
def put_and_committed(halves: Halves) -> None:
    """Two half messages resolved in one transaction: both decisions at its discharge, or neither."""
    (producer, control), consumer = _begun(halves), halves.consumer()
    producer.put(half("1", b"one"), half("2", b"two"))
    for fail in (True, False):
        txn = control.declare()
        _in(producer.resolve_link, txn, resolution("2", "commit"))
        _in(producer.resolve_link, txn, resolution("1", "commit"))
        halves.silent(consumer)
        control.discharge(txn, fail)
    bodies = [body_of(halves.next(consumer)) for _ in range(2)]
    expect_equal("the bodies", [b"two", b"one"], bodies)


@scenario("half.resolve/consume-and-commit", "half.resolve-both", "half.resolve-transaction")
def consume_and_commit(broker: Broker, halves: Halves) -> None:
    """A message is consumed and a half message committed in one transaction: both, or neither."""
    put(broker, broker.queue("in"), b"in")
    producer, control = _begun(halves)
    producer.put(half("1", b"out"))
    receiver = producer.session.receiver(broker.queue("in"), 12, "in", credit=1)
    for fail in (True, False):
        delivery = receiver.receive()
        txn = control.declare()
        receiver.settle(delivery, within(txn, Accepted()))
        _in(producer.resolve_link, txn, resolution("1", "commit"))
        control.discharge(txn, fail)
        if fail:
            receiver.detach()
            expect_left(broker, halves.queue)
            receiver = producer.session.receiver(broker.queue("in"), 13, "in-again", credit=1)
    producer.session.peer.close()
    expect_left(broker, broker.queue("in"))
    expect_left(broker, halves.queue, b"out")


@scenario("half.check/in-transaction", "half.resolve-transaction", "half.check-due", waits=True)
def asked_meanwhile(broker: Broker, halves: Halves) -> None:
    """While a commit waits for its discharge nothing is decided: the broker still asks."""
    (producer, control), checker = _begun(halves), halves.checker()
    producer.put(half("1", named=SOON))
    txn = control.declare()
    _in(producer.resolve_link, txn, resolution("1", "commit"))
    checker.asked("1")
    control.commit(txn)
    expect_left(broker, halves.queue, b"the body")
