"""The checks of settling, credit, links and connections."""

from __future__ import annotations

import random
from collections.abc import Callable

import values
from client import TIMEOUT_S, Check, Client, SettleSecond, check, expect, settle, text
from proton import Delivery, Endpoint, Link, Message, Terminus, symbol, timestamp, ubyte, uint, ulong
from proton.reactor import AtLeastOnce, AtMostOnce, Copy

LARGE_BODY_BYTES = 8 * 1024 * 1024
ORDERED_MESSAGES = 1_000
COMPETING_MESSAGES = 200


@check("large message of 8 MiB")
def large_message(client: Client) -> None:
    body = random.Random(1).randbytes(LARGE_BODY_BYTES)
    received = client.round_trip(Message(body=body, inferred=True))
    expect("length", len(body), len(received.body))
    expect("same octets", True, bytes(received.body) == body)


@check("large message of 8 MiB, pre-settled, interleaved with a small one")
def large_settled_message(client: Client) -> None:
    body = random.Random(2).randbytes(LARGE_BODY_BYTES)
    client.send([Message(body=body, inferred=True), text("small")], AtMostOnce())
    receiver = client.receiver()
    received = receiver.accept()  # its body is a view of it, and has no octets of its own
    expect("same octets", True, bytes(received.body) == body)
    expect("next", "small", receiver.accept().body)


@check("send unsettled: the outcome is accepted and settled")
def send_unsettled(client: Client) -> None:
    sender = client.sender(AtLeastOnce())
    delivery = sender.link.send(text("unsettled"))
    expect("settled at once", False, delivery.settled)
    client.connection.wait(lambda: delivery.settled, timeout=TIMEOUT_S, msg="not settled by the broker")
    expect("outcome", Delivery.ACCEPTED, delivery.remote_state)
    delivery.settle()
    expect("body", "unsettled", client.receiver().accept().body)


@check("send pre-settled")
def send_settled(client: Client) -> None:
    client.send([text(f"settled {n}") for n in range(10)], AtMostOnce())
    receiver = client.receiver()
    expect("bodies", [f"settled {n}" for n in range(10)], [receiver.accept().body for _ in range(10)])


@check("receive pre-settled: gone without a disposition")
def receive_settled(client: Client) -> None:
    client.send([text("first"), text("second")])
    receiver = client.receiver(credit=1, options=[AtMostOnce()])
    delivery, message = receiver.receive()
    expect("body, settled", ("first", True), (message.body, delivery.settled))
    receiver.close()
    expect("next", "second", client.receiver().accept().body)


def gone_after(outcome: int) -> Check:
    def run(client: Client) -> None:
        client.send([text("first"), text("second")])
        receiver = client.receiver(credit=1)
        delivery, message = receiver.receive()
        expect("body", "first", message.body)
        settle(delivery, outcome)
        receiver.close()
        expect("next", "second", client.receiver().accept().body)

    return run


check("outcome accepted: gone")(gone_after(Delivery.ACCEPTED))
check("outcome rejected: not delivered again")(gone_after(Delivery.REJECTED))


def redelivered(client: Client, change: Callable[[Delivery], None], outcome: int) -> Message:
    """The message as it comes to another link after ``outcome`` on the first."""
    client.send([text("again", annotations={symbol("x-opt-kept"): "kept", symbol("x-opt-old"): "old"})])
    first = client.receiver(credit=1)
    delivery, message = first.receive()
    expect("delivery-count on first delivery", 0, message.delivery_count)
    change(delivery)
    settle(delivery, outcome)
    first.close()
    second = client.receiver(credit=1)
    message = second.accept()
    second.close()
    expect("body", "again", message.body)
    expect("first-acquirer on redelivery to another link", False, message.first_acquirer)
    return message


@check("outcome released: comes again, delivery-count unchanged")
def outcome_released(client: Client) -> None:
    message = redelivered(client, lambda _: None, Delivery.RELEASED)
    expect("delivery-count", 0, message.delivery_count)


@check("outcome released: comes again to the same link")
def outcome_released_same_link(client: Client) -> None:
    client.send([text("again")])
    receiver = client.receiver(credit=1)
    for _ in range(3):
        delivery, message = receiver.receive()
        expect("body, delivery-count", ("again", 0), (message.body, message.delivery_count))
        settle(delivery, Delivery.RELEASED)
        receiver.link.flow(1)
    expect("body", "again", receiver.accept().body)


@check("outcome released: back in its place")
def outcome_released_in_place(client: Client) -> None:
    client.send([text("first"), text("second"), text("third")])
    receiver = client.receiver(credit=2)
    settle(receiver.receive()[0], Delivery.RELEASED)
    settle(receiver.receive()[0], Delivery.RELEASED)
    receiver.close()
    receiver = client.receiver()
    expect("order", ["first", "second", "third"], [receiver.accept().body for _ in range(3)])


@check("outcome modified, delivery-failed: delivery-count + 1")
def outcome_modified_failed(client: Client) -> None:
    def failed(delivery: Delivery) -> None:
        delivery.local.failed = True

    message = redelivered(client, failed, Delivery.MODIFIED)
    expect("delivery-count", 1, message.delivery_count)


@check("outcome modified without delivery-failed: delivery-count unchanged")
def outcome_modified_plain(client: Client) -> None:
    message = redelivered(client, lambda _: None, Delivery.MODIFIED)
    expect("delivery-count", 0, message.delivery_count)


@check("outcome modified with message-annotations: merged")
def outcome_modified_annotations(client: Client) -> None:
    def annotate(delivery: Delivery) -> None:
        delivery.local.failed = True
        delivery.local.annotations = {symbol("x-opt-new"): ulong(7), symbol("x-opt-old"): "replaced"}

    message = redelivered(client, annotate, Delivery.MODIFIED)
    annotations = message.annotations or {}
    got = {name: annotations.get(symbol(name)) for name in ("x-opt-kept", "x-opt-new", "x-opt-old")}
    expected = {"x-opt-kept": "kept", "x-opt-new": ulong(7), "x-opt-old": "replaced"}
    expect("annotations", values.shape(expected), values.shape(got))


@check("outcome modified, undeliverable-here: not to this link, but to another")
def outcome_undeliverable_here(client: Client) -> None:
    client.send([text("first")])
    here = client.receiver(credit=1)
    delivery, message = here.receive()
    expect("body", "first", message.body)
    delivery.local.undeliverable = True
    settle(delivery, Delivery.MODIFIED)
    client.send([text("second")])
    here.link.flow(1)
    expect("next at this link", "second", here.accept().body)
    expect("at another link", "first", client.receiver().accept().body)


@check("receiver-settle-mode second: settled by the broker after our outcome")
def receive_second(client: Client) -> None:
    client.send([text("first"), text("second")])
    receiver = client.receiver(credit=1, options=[AtLeastOnce(), SettleSecond()])
    expect("mode", Link.RCV_SECOND, receiver.link.remote_rcv_settle_mode)
    delivery, message = receiver.receive()
    expect("body, settled", ("first", False), (message.body, delivery.settled))
    delivery.update(Delivery.ACCEPTED)
    client.connection.wait(lambda: delivery.settled, timeout=TIMEOUT_S, msg="the broker did not settle")
    delivery.settle()
    receiver.close()
    expect("next", "second", client.receiver().accept().body)


@check("receiver-settle-mode second on a sending link: the broker waits for our settlement")
def send_second(client: Client) -> None:
    sender = client.sender([AtLeastOnce(), SettleSecond()])
    expect("mode", Link.RCV_SECOND, sender.link.remote_rcv_settle_mode)
    delivery = sender.link.send(text("second mode"))
    client.connection.wait(lambda: delivery.remote_state, timeout=TIMEOUT_S, msg="no outcome")
    expect("outcome, settled", (Delivery.ACCEPTED, False), (delivery.remote_state, delivery.settled))
    delivery.settle()
    expect("body", "second mode", client.receiver().accept().body)


@check("drain: 3 messages for 10 credits, then credit 0")
def drain(client: Client) -> None:
    client.send([text(f"{n}") for n in range(3)])
    receiver = client.receiver(credit=0)
    receiver.link.drain(10)
    client.connection.wait(lambda: not receiver.link.draining(), timeout=TIMEOUT_S, msg="drain not answered")
    expect("arrived, credit", (3, 0), (receiver.waiting, receiver.link.credit))
    expect("bodies", ["0", "1", "2"], [receiver.accept().body for _ in range(3)])
    client.send([text("later")])
    receiver.link.drain_mode = False
    receiver.link.flow(1)
    expect("after the drain", "later", receiver.accept().body)


@check("drain of an empty queue")
def drain_empty(client: Client) -> None:
    receiver = client.receiver(credit=0)
    receiver.link.drain(10)
    client.connection.wait(lambda: not receiver.link.draining(), timeout=TIMEOUT_S, msg="drain not answered")
    expect("arrived, credit", (0, 0), (receiver.waiting, receiver.link.credit))


@check("reconnect: what was not settled comes again")
def reconnect(client: Client) -> None:
    client.send([text("first", durable=True), text("second", durable=True)])
    receiver = client.receiver(credit=1)
    expect("body", "first", receiver.receive()[1].body)
    client.reconnect()
    receiver = client.receiver()
    expect("after reconnect", ["first", "second"], [receiver.accept().body for _ in range(2)])


@check("browse: distribution-mode copy takes nothing away")
def browse(client: Client) -> None:
    client.send([text(f"{n}") for n in range(3)])
    browser = client.receiver(options=[Copy(), AtMostOnce()])
    expect("mode", Terminus.DIST_MODE_COPY, browser.link.remote_source.distribution_mode)
    expect("browsed", ["0", "1", "2"], [browser.receive()[1].body for _ in range(3)])
    browser.close()
    receiver = client.receiver()
    expect("consumed", ["0", "1", "2"], [receiver.accept().body for _ in range(3)])


@check("order of 1,000 messages")
def order(client: Client) -> None:
    client.send((Message(body=uint(n)) for n in range(ORDERED_MESSAGES)), AtMostOnce())
    receiver = client.receiver(credit=ORDERED_MESSAGES)
    expect("order", list(range(ORDERED_MESSAGES)), [receiver.accept().body for _ in range(ORDERED_MESSAGES)])


@check("two competing consumers: each message exactly once")
def competing(client: Client) -> None:
    receivers = [client.receiver(credit=1), client.receiver(credit=1)]
    client.send((Message(body=uint(n)) for n in range(COMPETING_MESSAGES)), AtMostOnce())
    got: list[list[int]] = [[], []]
    while sum(map(len, got)) < COMPETING_MESSAGES:
        client.connection.wait(lambda: any(r.waiting for r in receivers), timeout=TIMEOUT_S, msg="no message")
        for receiver, mine in zip(receivers, got, strict=True):
            if receiver.waiting:
                mine.append(receiver.accept().body)
                receiver.link.flow(1)
    expect("union", list(range(COMPETING_MESSAGES)), sorted(got[0] + got[1]))
    expect("both took part", (True, True), (bool(got[0]), bool(got[1])))
    client.send([text("last")], AtMostOnce())
    client.connection.wait(lambda: any(r.waiting for r in receivers), timeout=TIMEOUT_S, msg="no message")
    expect("nothing came twice", ["last"], [r.accept().body for r in receivers if r.waiting])


@check("links: closing is answered, a name can be used again")
def close_and_reuse(client: Client) -> None:
    for body in ("first", "second"):
        sender = client.connection.create_sender(client.queue, name="the-same-name")
        sender.send(text(body, priority=ubyte(4), creation_time=timestamp(0)))
        sender.close()
        expect("remote end of the link is closed", True, bool(sender.link.state & Endpoint.REMOTE_CLOSED))
    receiver = client.receiver()
    expect("bodies", ["first", "second"], [receiver.accept().body for _ in range(2)])
