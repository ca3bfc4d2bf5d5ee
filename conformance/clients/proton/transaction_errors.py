"""The checks of transactions that fail: bounds, ids that nobody knows, and what the coordinator says then."""

from __future__ import annotations

import os
from typing import Any

from client import TIMEOUT_S, Client, check, expect, text
from controller import ACCEPTED, COMMIT_FAILED, DECLARE_FAILED, DECLARED, Controller, provisional, update
from proton import Delivery, Endpoint, Message, uint
from proton.reactor import AtMostOnce, Transaction

OPERATIONS = int(os.environ.get("AMQP_TXN_OPERATIONS", "10000"))
"""What a transaction may do; a broker that allows more fails these checks, one that allows less too."""

LIMIT_S = os.environ.get("AMQP_TXN_TIMEOUT_S")
"""After how many seconds the broker rolls a transaction back; it is known only if it is told."""

LIVE = 64
"""Transactions that one connection may have at a time."""

UNKNOWN_ID = "amqp:transaction:unknown-id"
ROLLBACK = "amqp:transaction:rollback"
LIMIT = "amqp:resource-limit-exceeded"
TIMEOUT = "amqp:transaction:timeout"


def overfill(client: Client, controller: Controller) -> Transaction:
    """A transaction with one send too many; only that one is rejected, and the controller is told why."""
    transaction = controller.declare()
    sender = client.sender()
    controller.send(transaction, sender, (Message(body=uint(n)) for n in range(OPERATIONS)))
    (delivery,) = controller.post(transaction, sender, [text("one too many")])
    expect("outcome of the send beyond the bound", 0x25, provisional(transaction, delivery)[1])
    return transaction


def goes_on(client: Client, controller: Controller) -> None:
    """The next transaction commits."""
    transaction = controller.declare()
    controller.send(transaction, client.sender(), [text("the next one")])
    controller.commit(transaction)
    expect("the next transaction", "the next one", client.receiver().accept().body)


@check(f"transaction: {OPERATIONS:,} operations commit")
def at_the_bound(client: Client, controller: Controller) -> None:
    sender = client.sender()
    transaction = controller.declare()
    controller.send(transaction, sender, (Message(body=uint(n)) for n in range(OPERATIONS)))
    controller.commit(transaction)
    receiver = client.receiver(credit=OPERATIONS)
    expect("order", list(range(OPERATIONS)), [receiver.accept().body for _ in range(OPERATIONS)])


@check("transaction: one operation too many: the commit is rejected, nothing of it happens")
def commit_rejected(client: Client, controller: Controller) -> None:
    transaction = overfill(client, controller)
    expect("commit", f"{COMMIT_FAILED}: {ROLLBACK}", controller.discharge(transaction, fail=False))
    expect("arrived", 0, client.receiver().drained())
    goes_on(client, controller)


@check("transaction: one pre-settled send too many: the commit is rejected, nothing of it happens")
def settled_commit_rejected(client: Client, controller: Controller) -> None:
    transaction = controller.declare()
    sender = client.sender(AtMostOnce())
    for number in range(OPERATIONS + 1):
        transaction.send(sender.link, Message(body=uint(number)))
    # What waits for credit would come behind the discharge, with an id that is not known any more.
    client.connection.wait(lambda: not sender.link.queued, timeout=TIMEOUT_S, msg="no credit for all sends")
    expect("commit", f"{COMMIT_FAILED}: {ROLLBACK}", controller.discharge(transaction, fail=False))
    expect("arrived", 0, client.receiver().drained())


@check("transaction: a failed commit where the control link's source excludes rejected: detached")
def commit_detached(client: Client) -> None:
    controller = Controller(client, excludes_rejected=True)
    other = controller.declare()
    controller.send(other, client.sender(), [text("of a transaction on the same control link")])
    transaction = overfill(client, controller)
    expect("commit", f"control link: {ROLLBACK}", controller.discharge(transaction, fail=False))
    expect("arrived", 0, client.receiver().drained())
    controller.forget()
    goes_on(client, controller)


@check("transaction: one that can only roll back is aborted without an error")
def abort_after_bound(client: Client, controller: Controller) -> None:
    controller.abort(overfill(client, controller))
    expect("arrived", 0, client.receiver().drained())


def fill(controller: Controller) -> tuple[list[Transaction], str]:
    """As many as the connection may have, and what the declare of one more is answered."""
    live = [controller.declare() for _ in range(LIVE)]
    return live, controller.result(controller.ask())


@check("transaction: declare rejected, the others go on")
def declare_rejected(client: Client, controller: Controller) -> None:
    live, answer = fill(controller)
    expect("declare", f"{DECLARE_FAILED}: {LIMIT}", answer)
    controller.send(live[0], client.sender(), [text("of the first")])
    controller.commit(live[0])
    expect("arrived", "of the first", client.receiver().accept().body)
    expect("declare after a commit", DECLARED, controller.result(controller.ask()))


@check("transaction: a failed declare where rejected is excluded: detached, the others roll back")
def declare_detached(client: Client) -> None:
    controller = Controller(client, excludes_rejected=True)
    first = controller.declare()
    controller.send(first, client.sender(), [text("never")])
    live = [controller.declare() for _ in range(LIVE - 1)]
    expect("live", LIVE - 1, len(live))
    expect("declare", f"control link: {LIMIT}", controller.result(controller.ask()))
    expect("arrived", 0, client.receiver().drained())


# --- the time of a transaction


def rolled_back_by_time(client: Client, controller: Controller) -> Transaction:
    """A transaction that the broker has rolled back: what it had received is at another link."""
    client.send([text("kept")])
    receiver = client.receiver(credit=1)
    transaction = controller.declare(settle_before_discharge=True)
    transaction.accept(receiver.receive()[0])
    controller.send(transaction, client.sender(), [text("never")])
    other = client.receiver()
    message = other.accept(TIMEOUT_S + float(LIMIT_S or 0))
    expect("body, delivery-count", ("kept", 0), (message.body, message.delivery_count))
    expect("more", 0, other.drained())
    other.close()
    return transaction


def older_rejected(client: Client, controller: Controller) -> None:
    transaction = rolled_back_by_time(client, controller)
    expect("commit", f"{COMMIT_FAILED}: {TIMEOUT}", controller.discharge(transaction, fail=False))
    goes_on(client, controller)


def older_send(client: Client) -> None:
    transaction = rolled_back_by_time(client, Controller(client))
    sender = client.connection.create_sender(client.queue, handler=Detached())
    transaction.send(sender.link, text("never"))
    expect("sending link", TIMEOUT, detached_with(client, sender.link))
    expect("arrived", 0, client.receiver().drained())


if LIMIT_S:
    check("transaction: older than the limit: rolled back, the commit is told why")(older_rejected)
    check("transaction: older than the limit: a send in it detaches the link")(older_send)


# --- ids that are not known


def used_up(client: Client, controller: Controller) -> Transaction:
    transaction = controller.declare()
    controller.send(transaction, client.sender(), [text("committed")])
    controller.commit(transaction)
    return transaction


def detached_with(client: Client, link: Any) -> str:
    """The condition with which the broker detaches ``link``."""
    closed = Endpoint.REMOTE_CLOSED
    client.connection.wait(lambda: link.state & closed, timeout=TIMEOUT_S, msg="the link was not detached")
    return str(link.remote_condition.name) if link.remote_condition else "none"


class Detached:
    """As a link's handler: takes its end as an answer, where the blocking connection would raise."""

    def on_link_remote_close(self, event: Any) -> None:
        event.link.close()


@check("transaction: discharged twice: unknown-id, and committed once")
def twice(client: Client, controller: Controller) -> None:
    transaction = used_up(client, controller)
    answer = controller.discharge(transaction, fail=False)
    expect("second discharge", f"{COMMIT_FAILED}: {UNKNOWN_ID}", answer)
    client.expect_queue("committed")


@check("transaction: discharged twice where rejected is excluded: detached with unknown-id")
def twice_detached(client: Client) -> None:
    controller = Controller(client, excludes_rejected=True)
    transaction = used_up(client, controller)
    expect("second discharge", f"control link: {UNKNOWN_ID}", controller.discharge(transaction, fail=True))
    expect("arrived", "committed", client.receiver().accept().body)


@check("transaction: a send with a discharged id: the link is detached, nothing is stored")
def send_unknown(client: Client, controller: Controller) -> None:
    transaction = used_up(client, controller)
    sender = client.connection.create_sender(client.queue, handler=Detached())
    transaction.send(sender.link, text("never"))
    expect("sending link", UNKNOWN_ID, detached_with(client, sender.link))
    client.expect_queue("committed")


@check("transaction: an accept with a discharged id: the link is detached, nothing is retired")
def accept_unknown(client: Client, controller: Controller) -> None:
    transaction = used_up(client, controller)
    receiver = client.receiver(credit=1)
    delivery, _ = receiver.receive()
    transaction.update(delivery, Delivery.ACCEPTED)
    expect("receiving link", UNKNOWN_ID, detached_with(client, receiver.link))
    receiver = client.receiver()
    receiver.expect_again("committed", 0)
    expect("more", 0, receiver.drained())


@check("transaction: an id of another connection is unknown")
def foreign(client: Client, controller: Controller) -> None:
    mine = controller.declare()
    with client.another() as other:
        theirs = Controller(other).declare()
        sender = client.connection.create_sender(client.queue, handler=Detached())
        mine.id, own = theirs.id, mine.id
        mine.send(sender.link, text("never"))
        expect("sending link", UNKNOWN_ID, detached_with(client, sender.link))
        expect("discharge", f"{COMMIT_FAILED}: {UNKNOWN_ID}", controller.discharge(mine, fail=False))
        mine.id = own
        controller.commit(mine)
    expect("arrived", 0, client.receiver().drained())


@check("transaction: outcomes for one delivery in two live transactions: the control link is terminated")
def two_transactions(client: Client, controller: Controller) -> None:
    client.send([text("kept")])
    receiver = client.receiver(credit=1)
    first, second = controller.declare(), controller.declare()
    delivery, _ = receiver.receive()
    update(first, delivery, ACCEPTED)
    client.flush()
    update(second, delivery, ACCEPTED)
    expect("control link", ROLLBACK, detached_with(client, first.txn_ctrl))
    receiver.close()
    client.receiver().expect_again("kept", 0)
