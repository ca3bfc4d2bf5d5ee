"""The checks of transactions: posting, retirement, and who sees what of them (part 4.4)."""

from __future__ import annotations

from client import TIMEOUT_S, Check, Client, Receiver, check, expect, settle, text
from controller import ACCEPTED, REJECTED, RELEASED, TRANSACTIONAL_STATE, Controller, provisional, update
from proton import Delivery, Described, Message, symbol, uint, ulong
from proton.reactor import AtMostOnce, Copy, Transaction

LARGE_BODY_BYTES = 1 << 20
"""Many frames, each of which must carry the transaction (part 4.4.1)."""

LIVE = 20
"""Transactions of one connection at the same time."""

WAYS = ((False, "settled by the broker"), (True, "settle_before_discharge"))


def bodies(receiver: Receiver, count: int) -> list[object]:
    return [receiver.accept().body for _ in range(count)]


def texts(*names: str) -> list[Message]:
    return [text(name) for name in names]


# --- sending


@check("transaction: sends appear at the commit, in order, and not before")
def send_commit(client: Client, controller: Controller) -> None:
    receiver = client.receiver()
    transaction = controller.declare()
    controller.send(transaction, client.sender(), texts("1", "2", "3"))
    expect("arrived before the commit", 0, receiver.drained())
    receiver.link.flow(10)
    controller.commit(transaction)
    expect("after the commit", ["1", "2", "3"], bodies(receiver, 3))
    expect("more", 0, receiver.drained())


@check("transaction: sends vanish at the abort")
def send_abort(client: Client, controller: Controller) -> None:
    receiver = client.receiver()
    transaction = controller.declare()
    controller.send(transaction, client.sender(), texts("1", "2", "3"))
    controller.abort(transaction)
    expect("arrived after the abort", 0, receiver.drained())


@check("transaction: pre-settled sends, commit and abort")
def send_settled(client: Client, controller: Controller) -> None:
    receiver = client.receiver()
    sender = client.sender(AtMostOnce())
    for fail in (True, False):
        transaction = controller.declare()
        for name in ("1", "2"):
            # proton settles the delivery before it puts the state on it; both are sent, since neither is yet.
            transaction.send(sender.link, text(f"{name} {fail}"))
        client.send(texts(f"fence {fail}"))
        expect("before the discharge", f"fence {fail}", receiver.accept().body)
        controller.end(transaction, fail)
    expect("after both", ["1 False", "2 False"], bodies(receiver, 2))
    expect("more", 0, receiver.drained())


@check("transaction: a message of 1 MiB, commit and abort")
def send_large(client: Client, controller: Controller) -> None:
    receiver = client.receiver()
    sender = client.sender()
    for fail, fill in ((True, b"a"), (False, b"c")):
        transaction = controller.declare()
        controller.send(transaction, sender, [Message(body=fill * LARGE_BODY_BYTES, inferred=True)])
        controller.end(transaction, fail)
    _, message = receiver.receive()
    expect("same octets", True, bytes(message.body) == b"c" * LARGE_BODY_BYTES)
    expect("more", 0, receiver.drained())


@check("transaction: a plain send on the same link is not part of it")
def send_mixed(client: Client, controller: Controller) -> None:
    receiver = client.receiver()
    sender = client.sender()
    transaction = controller.declare()
    controller.send(transaction, sender, texts("in it"))
    sender.send(text("beside it"))
    expect("before the commit", "beside it", receiver.accept().body)
    controller.commit(transaction)
    expect("after the commit", "in it", receiver.accept().body)


@check("transaction: another connection's consumer and browser see nothing of an open one")
def invisible(client: Client) -> None:
    with client.another() as other:
        controller = Controller(client)
        consumer = other.receiver(credit=10)
        browser = other.receiver(credit=10, options=[Copy(), AtMostOnce()])
        transaction = controller.declare()
        controller.send(transaction, client.sender(), texts("1", "2"))
        expect("consumer, browser: before the commit", (0, 0), (consumer.drained(), browser.drained()))
        browser.link.flow(10)
        controller.commit(transaction)
        expect("browser: after the commit", ["1", "2"], [browser.receive()[1].body for _ in range(2)])
        consumer.link.flow(10)
        expect("consumer: after the commit", ["1", "2"], bodies(consumer, 2))


# --- outcomes of what was received


def accept_commit(settle_before_discharge: bool) -> Check:
    def run(client: Client) -> None:
        controller = Controller(client)
        client.send(texts("first", "second"))
        receiver = client.receiver(credit=1)
        transaction = controller.declare(settle_before_discharge)
        delivery, message = receiver.receive()
        expect("body", "first", message.body)
        transaction.accept(delivery)
        if settle_before_discharge:
            controller.commit(transaction)
        else:
            expect("settled before the discharge", False, delivery.settled)
            controller.commit(transaction)
            got = (delivery.settled, *provisional(transaction, delivery))
            expect("settled, state, outcome after the commit", (True, TRANSACTIONAL_STATE, 0x24), got)
            delivery.settle()
        receiver.close()
        client.expect_queue("second")

    return run


def accept_abort(settle_before_discharge: bool) -> Check:
    """In both ways the message is released: by proton itself, or by the default outcome of the source."""

    def run(client: Client) -> None:
        controller = Controller(client)
        client.send(texts("first", "second"))
        receiver = client.receiver(credit=2)
        transaction = controller.declare(settle_before_discharge)
        for name in ("first", "second"):
            delivery, message = receiver.receive()
            expect("body", name, message.body)
            transaction.accept(delivery)
        controller.abort(transaction)
        again = client.receiver()
        for name in ("first", "second"):
            again.expect_again(name, 0)

    return run


for _settle_before_discharge, _way in WAYS:
    check(f"transaction: accept and commit, {_way}")(accept_commit(_settle_before_discharge))
    check(f"transaction: accept and abort, {_way}: comes again")(accept_abort(_settle_before_discharge))


@check("transaction: what was accepted unsettled stays with its link after the abort")
def stays_acquired(client: Client, controller: Controller) -> None:
    client.send(texts("kept"))
    receiver = client.receiver(credit=1)
    delivery, _ = receiver.receive()
    competitor = client.receiver()
    first = controller.declare()
    first.update(delivery, Delivery.ACCEPTED)
    controller.abort(first)
    expect("at another link after the abort", 0, competitor.drained())
    second = controller.declare()
    update(second, delivery, ACCEPTED)
    controller.commit(second)
    receiver.close()
    expect("at another link after the second's commit", 0, competitor.drained())


@check("transaction: what was accepted unsettled can be settled plainly after the abort")
def plain_after_abort(client: Client, controller: Controller) -> None:
    client.send(texts("kept"))
    receiver = client.receiver(credit=1)
    delivery, _ = receiver.receive()
    transaction = controller.declare()
    transaction.update(delivery, Delivery.ACCEPTED)
    controller.abort(transaction)
    delivery.local.failed = True
    delivery.local.data = None
    settle(delivery, Delivery.MODIFIED)
    client.receiver().expect_again("kept", 1)


def committed_outcome(client: Client, outcome: Described, fail: bool = False) -> Receiver:
    """Gives "first" the outcome, discharges, and returns a new link to the queue; "second" is behind it."""
    controller = Controller(client)
    client.send([text("first", annotations={symbol("x-opt-old"): "old"}), text("second")])
    receiver = client.receiver(credit=1)
    competitor = client.receiver(credit=0)
    delivery, message = receiver.receive()
    expect("body, delivery-count", ("first", 0), (message.body, message.delivery_count))
    transaction = controller.declare()
    update(transaction, delivery, outcome)
    competitor.link.flow(2)
    competitor.drained()
    held, message = competitor.receive()
    expect("at another link before the discharge", ("second", 0), (message.body, competitor.waiting))
    settle(held, Delivery.RELEASED)
    competitor.close()
    if fail:
        controller.abort(transaction)
    else:
        controller.commit(transaction)
        expect("settled by the broker", True, delivery.settled)
    receiver.close()
    return client.receiver(credit=2)


@check("transaction: release and commit: comes again, delivery-count unchanged")
def release_commit(client: Client) -> None:
    receiver = committed_outcome(client, RELEASED)
    receiver.expect_again("first", 0)
    expect("next", "second", receiver.accept().body)


@check("transaction: modify and commit: delivery-count + 1, annotations merged")
def modify_commit(client: Client) -> None:
    changes = {symbol("x-opt-old"): "replaced", symbol("x-opt-new"): ulong(7)}
    receiver = committed_outcome(client, Described(ulong(0x27), [True, False, changes]))
    message = receiver.accept()
    expect("body, delivery-count", ("first", 1), (message.body, message.delivery_count))
    got = {name: message.annotations.get(symbol(name)) for name in ("x-opt-old", "x-opt-new")}
    expect("annotations", {"x-opt-old": "replaced", "x-opt-new": ulong(7)}, got)
    expect("next", "second", receiver.accept().body)


@check("transaction: modify and abort: nothing is modified")
def modify_abort(client: Client) -> None:
    changes = {symbol("x-opt-old"): "replaced"}
    receiver = committed_outcome(client, Described(ulong(0x27), [True, True, changes]), fail=True)
    message = receiver.accept()
    expect("body, delivery-count", ("first", 0), (message.body, message.delivery_count))
    expect("annotation", "old", message.annotations.get(symbol("x-opt-old")))


@check("transaction: reject and commit: not delivered again")
def reject_commit(client: Client) -> None:
    receiver = committed_outcome(client, REJECTED)
    expect("next", "second", receiver.accept().body)
    expect("more", 0, receiver.drained())


@check("transaction: two outcomes for one delivery: the last one wins")
def last_outcome_wins(client: Client, controller: Controller) -> None:
    client.send(texts("first", "second"))
    receiver = client.receiver(credit=2)
    transaction = controller.declare()
    first, second = receiver.receive()[0], receiver.receive()[0]
    for outcomes in ((ACCEPTED, RELEASED), (RELEASED, ACCEPTED)):
        for delivery, outcome in zip((first, second), outcomes, strict=True):
            update(transaction, delivery, outcome)
        client.flush()
    controller.commit(transaction)
    client.expect_queue("first")


# --- several at a time


@check(f"transaction: {LIVE} at a time on one connection, some committed, some aborted")
def several(client: Client, controller: Controller) -> None:
    receiver = client.receiver(credit=2 * LIVE)
    sender = client.sender()
    live: list[Transaction] = [controller.declare() for _ in range(LIVE)]
    expect("different ids", LIVE, len({transaction.id for transaction in live}))
    for half in range(2):
        for number, transaction in enumerate(live):
            controller.send(transaction, sender, [Message(body=[number, half])])
    expected = []
    for number in reversed(range(LIVE)):
        if number % 3:
            controller.commit(live[number])
            expected += [[number, 0], [number, 1]]
        else:
            controller.abort(live[number])
    expect("in the order of the commits", expected, bodies(receiver, len(expected)))
    expect("more", 0, receiver.drained())


@check("transaction: declares and discharges without waiting for the answers")
def pipelined(client: Client, controller: Controller) -> None:
    receiver = client.receiver(credit=LIVE)
    sender = client.sender()
    asked = [controller.ask() for _ in range(LIVE)]
    for transaction in asked:
        expect("declare", "declared", controller.result(transaction))
    deliveries = []
    for number, transaction in enumerate(asked):
        deliveries.append(transaction.send(sender.link, Message(body=uint(number))))
        controller.begin_discharge(transaction, fail=number % 2 == 1)
    for number, transaction in enumerate(asked):
        expect("discharge", "aborted" if number % 2 else "committed", controller.result(transaction))
    for transaction, delivery in zip(asked, deliveries, strict=True):
        expect("answer to the send", (TRANSACTIONAL_STATE, 0x24), provisional(transaction, delivery))
    expect("bodies", list(range(0, LIVE, 2)), bodies(receiver, LIVE // 2))


@check("transaction: over several queues, links and sessions")
def several_queues(client: Client) -> None:
    names = [f"{client.queue}-{part}" for part in ("in-1", "in-2", "out-1", "out-2", "out-3")]
    for fail in (True, False):
        controller = Controller(client)
        if fail:
            for name in names[:2]:
                sender = client.connection.create_sender(name)
                sender.send(text(f"{name} message"))
                sender.close()
        receivers = [client.receiver_of(name, credit=1) for name in names[:2]]
        session = client.session()
        senders = [client.sender_on(session, name) for name in names[2:]]
        transaction = controller.declare()
        for receiver in receivers:
            transaction.accept(receiver.receive()[0])
        for sender in senders:
            controller.send(transaction, sender, texts("to each"))
        controller.end(transaction, fail)
        for receiver in receivers:
            receiver.close()
        session.close()
        client.reconnect()
        counts = []
        for name in names:
            receiver = client.receiver_of(name, credit=10)
            counts.append(receiver.drained())
            receiver.close()
        client.reconnect()
        expect(f"messages in each queue, fail={fail}", [1, 1, 0, 0, 0] if fail else [0, 0, 1, 1, 1], counts)


@check("transaction: the connection ends in the middle: rolled back")
def connection_ends(client: Client, controller: Controller) -> None:
    client.send(texts("kept"))
    receiver = client.receiver(credit=1)
    transaction = controller.declare()
    delivery, _ = receiver.receive()
    transaction.accept(delivery)
    controller.send(transaction, client.sender(), texts("never"))
    client.reconnect()
    receiver = client.receiver()
    receiver.expect_again("kept", 0)
    expect("more", 0, receiver.drained())


@check("transaction: the control link is closed in the middle: rolled back at once")
def control_link_closed(client: Client, controller: Controller) -> None:
    client.send(texts("kept"))
    receiver = client.receiver(credit=1)
    sender = client.sender()
    transactions = [controller.declare(), controller.declare()]
    delivery, _ = receiver.receive()
    transactions[0].update(delivery, Delivery.ACCEPTED)
    for transaction in transactions:
        controller.send(transaction, sender, texts("never"))
    link = transactions[0].txn_ctrl
    link.close()
    client.connection.wait(
        lambda: link.state & link.REMOTE_CLOSED, timeout=TIMEOUT_S, msg="no detach in return"
    )
    competitor = client.receiver()
    expect("at another link: acquired, and no sends", 0, competitor.drained())
    competitor.link.flow(1)
    delivery.local.data = None
    settle(delivery, Delivery.RELEASED)
    expect("after its release", "kept", competitor.accept().body)
