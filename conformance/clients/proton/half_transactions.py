"""The checks of half messages that are put and resolved in transactions."""

from __future__ import annotations

from client import expect
from controller import COMMIT_FAILED, Controller, provisional
from half_group import ACCEPTED, UNKNOWN_ID, Halves, half, halves, resolution
from proton import Message

REJECTED = 0x25
"""The descriptor of the outcome (part 3.4.3)."""


@halves("in a transaction: a put that is aborted leaves nothing; committed, it is prepared")
def transactional_put(group: Halves, controller: Controller) -> None:
    sender = group.sender(group.put_to)
    transaction = controller.declare()
    controller.send(transaction, sender, [half("1")])
    expect("before the end", UNKNOWN_ID, group.commit("1"))
    controller.abort(transaction)
    expect("after the abort", UNKNOWN_ID, group.commit("1"))
    transaction = controller.declare()
    controller.send(transaction, sender, [half("1")])
    controller.commit(transaction)
    expect("queue", [], group.queued())
    expect("commit", ACCEPTED, group.commit("1"))
    expect("queue", ["body"], group.queued())


@halves("in a transaction: a resolution is done at its commit, not at its abort")
def transactional_resolution(group: Halves, controller: Controller) -> None:
    group.prepared("1", "committed")
    group.prepared("2", "rolled back")
    answers = [resolution("1", "commit"), resolution("2", "rollback")]
    for fail in (True, False):
        transaction = controller.declare()
        controller.send(transaction, group.sender(group.resolve_at), answers)
        expect("queue before the end", [], group.queued())
        controller.discharge(transaction, fail)
        expect("queue afterwards", [] if fail else ["committed"], group.queued())
    expect("commit, rollback again", (ACCEPTED, ACCEPTED), (group.commit("1"), group.roll_back("2")))


@halves("in a transaction: what is refused is a provisional rejected, and so is the commit without it")
def transactional_refusal(group: Halves, controller: Controller) -> None:
    for address, refused in ((group.put_to, half(None)), (group.resolve_at, resolution("1", "Commit"))):
        transaction = controller.declare()
        controller.send(transaction, group.sender(group.put_to), [half("1")])
        (delivery,) = controller.post(transaction, group.sender(address), [refused])
        expect("outcome", REJECTED, provisional(transaction, delivery)[1])
        answer = controller.discharge(transaction, fail=False)
        expect("commit", f"{COMMIT_FAILED}: amqp:transaction:rollback", answer)
    transaction = controller.declare()
    controller.send(transaction, group.sender(group.put_to), [half("1")])
    controller.commit(transaction)
    expect("commit", ACCEPTED, group.commit("1"))


@halves("in a transaction: decided otherwise meanwhile, the commit is rejected and nothing of it happens")
def transactional_conflict(group: Halves, controller: Controller) -> None:
    group.prepared("1", "never")
    transaction = controller.declare()
    controller.send(transaction, group.sender(group.resolve_at), [resolution("1", "commit")])
    controller.send(transaction, group.client.sender(), [Message(body="of the same transaction")])
    expect("rollback", ACCEPTED, group.roll_back("1"))
    answer = controller.discharge(transaction, fail=False)
    expect("commit", f"{COMMIT_FAILED}: amqp:transaction:rollback", answer)
    expect("queue", [], group.queued())


@halves("in a transaction: what is received and what is decided by it, both or neither")
def transactional_both(group: Halves, controller: Controller) -> None:
    group.prepared("1", "the order")
    payments = f"{group.client.queue}-payments"
    group.client.connection.create_sender(payments).send(Message(body="paid"))
    for fail in (True, False):
        receiver = group.client.receiver_of(payments, 1)
        transaction = controller.declare(settle_before_discharge=True)
        delivery, message = receiver.receive()
        expect("received", "paid", message.body)
        transaction.accept(delivery)
        controller.send(transaction, group.sender(group.resolve_at), [resolution("1", "commit")])
        controller.discharge(transaction, fail)
        receiver.close()
        expect("queue", [] if fail else ["the order"], group.queued())
    expect("payments left", 0, group.client.receiver_of(payments, 10).drained())
