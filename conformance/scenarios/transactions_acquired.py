"""What becomes of acquired messages: by commit, rollback, and outcomes that do not fit (4.4.3, 4.4.4)."""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected
from amqp_broker.conformance.queues import body_of, delivery_count, expect_left, reader
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transactions import MULTI_TXNS, ROLLBACK, Acquired, acquire, receive_in, within
from amqp_broker.conformance.transcript import describe
from amqp_broker.frames import (
    Accepted,
    Modified,
    Rejected,
    Released,
    Transfer,
)


@scenario("4.4.3/commit", "4.4.4-acquired", "4.4.3-properties", "4.4.2-applied")
def commit(broker: Broker) -> None:
    """Acquired and accepted, settled or not: after the commit the messages have gone."""
    work = Acquired(broker, 4, messages=5)
    for number in range(4):
        outcome = Rejected() if number == 3 else Accepted()
        work.settle(outcome, number, settled=number % 2 == 0)
    work.control.commit(work.txn)
    work.left(b"4")


@scenario("4.4.3/commit-returns", "4.4.4-acquired", "4.4.2-applied")
def commit_returns(broker: Broker) -> None:
    """Acquired and given back: after the commit the messages are available, counted as the outcomes say."""
    work = Acquired(broker, 2)
    work.settle(Released(), 0)
    work.settle(Modified(delivery_failed=True), 1, settled=True)
    work.control.session.catch_up()
    expect_left(broker, broker.queue())
    work.control.commit(work.txn)
    counts = {body_of(delivery): delivery_count(delivery) for delivery in work.left(b"0", b"1")}
    if counts != {b"0": 0, b"1": 1}:
        raise Unexpected(f"expected delivery-counts 0 and 1, got {counts}")


@scenario("4.4.3/rollback", "4.4.4-acquired", "4.3-fail")
def rollback(broker: Broker) -> None:
    """The rollback undoes acquisitions, whatever outcome they had: somebody who waits gets the messages."""
    work = Acquired(broker, 5)
    for number, outcome in enumerate((Accepted(), Rejected(), Released(), Modified(delivery_failed=True))):
        work.settle(outcome, number, settled=number % 2 == 0)
    waiting = reader(broker, broker.queue(), 10)
    waiting.peer.expect_nothing(Transfer)
    work.control.roll_back(work.txn)
    got = sorted(body_of(waiting.receive()) for _ in range(5))
    if got != [b"%d" % number for number in range(5)]:
        raise Unexpected(f"expected all five messages, got {got}")


@scenario("4.4.3/rollback-in-place", "4.4.4-acquired", profile="full")
def rollback_in_place(broker: Broker) -> None:
    """After a rollback the queue is as it was: the same order, and no delivery is counted."""
    work = Acquired(broker, 4, messages=6)
    for number, outcome in enumerate((Modified(delivery_failed=True), Released(), Accepted())):
        work.settle(outcome, number, settled=number == 1)
    work.control.roll_back(work.txn)
    bodies = [b"%d" % number for number in range(6)]
    for delivery in expect_left(broker, broker.queue(), *bodies, in_order=True):
        if delivery_count(delivery):
            raise Unexpected(f"{body_of(delivery)!r} has the delivery-count {delivery_count(delivery)}")


@scenario("4.4.3/rollback-settles", "4.4.4-acquired", profile="full")
def rollback_settles(broker: Broker) -> None:
    """After a rollback the broker settles what was acquired as released, before it accepts the discharge."""
    work = Acquired(broker, 2)
    work.settle(Accepted(), 1)
    work.control.roll_back(work.txn)
    for delivery in work.deliveries:
        settlement = work.control.session.settlements.get(delivery.delivery_id)
        if settlement is None or not settlement.settled or settlement.state != Released():
            said = "nothing" if settlement is None else describe(settlement)
            raise Unexpected(f"expected delivery {delivery.delivery_id} settled as released, got {said}")


@scenario("4.4.3/no-outcome-stays", "4.4.3-state", "4.4.4-acquired", profile="full")
def no_outcome_stays(broker: Broker) -> None:
    """Acquired and without an outcome at the commit: it stays acquired, and can be settled outside of it."""
    work = Acquired(broker, 3)
    work.settle(Accepted(), 2)
    work.control.commit(work.txn)
    if set(work.control.session.settlements) & {each.delivery_id for each in work.deliveries[:2]}:
        raise Unexpected("the broker has settled a delivery that has no outcome")
    expect_left(broker, broker.queue())
    work.receiver.settle(work.deliveries[0])
    again = work.control.declare()
    work.receiver.settle(work.deliveries[1], within(again, Accepted()), settled=False)
    work.control.commit(again)
    work.left()


@scenario("4.4.3/settled-by-the-broker", "4.4.4-acquired-settled")
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


@scenario("4.4.3/outcome-of-another", "4.4.2-01", "4.4.2-02", "4.4.4-09", "4.5.7-multi-txns")
def outcome_of_another(broker: Broker) -> None:
    """An outcome in another live transaction than the acquisition's: the control link is terminated."""
    broker.require_coordinator(MULTI_TXNS)
    work = Acquired(broker)
    other = work.control.declare()
    work.receiver.settle(work.deliveries[0], within(other, Accepted()), settled=False)
    work.control.link.expect_detach(ROLLBACK)
    work.left(b"0")


@scenario("4.4.3/plain-outcome", "4.4.4-09", profile="full")
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
