"""python-qpid-proton against any AMQP 1.0 broker: ``python interop.py amqp://host:port``.

Prints one line for each check and exits 0 if none failed. Each check has its own queue and its own connection, so that
one that fails cannot spoil the next.
"""

from __future__ import annotations

import os
import random
import sys
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID, uuid4

import values
from proton import Delivery, Endpoint, Link, Message, Terminus, symbol, timestamp, ubyte, uint, ulong
from proton.handlers import MessagingHandler
from proton.reactor import AtLeastOnce, AtMostOnce, Copy, LinkOption
from proton.utils import BlockingConnection

TIMEOUT_S = 20
LARGE_BODY_BYTES = 8 * 1024 * 1024
ORDERED_MESSAGES = 1_000
COMPETING_MESSAGES = 200


class CheckFailed(Exception):
    """The broker answered other than the standard says."""


def expect(what: str, expected: Any, got: Any) -> None:
    if expected != got:
        raise CheckFailed(f"{what}: expected {expected!r:.300}, got {got!r:.300}")


class Inbox(MessagingHandler):
    """Keeps what arrives on a receiving link and settles nothing by itself."""

    def __init__(self) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=False)
        self.arrived: deque[tuple[Delivery, Message]] = deque()

    def on_message(self, event: Any) -> None:
        self.arrived.append((event.delivery, event.message))


class SettleSecond(LinkOption):
    """receiver-settle-mode second, on either end of a link."""

    def apply(self, link: Link) -> None:
        link.rcv_settle_mode = Link.RCV_SECOND


class Receiver:
    """A receiving link whose outcomes are chosen by the check."""

    def __init__(self, client: Client, address: str, credit: int, options: Any) -> None:
        self._connection = client.connection
        self._inbox = Inbox()
        self._blocking = client.connection.create_receiver(
            address,
            credit=credit or None,
            handler=self._inbox,
            name=uuid4().hex,
            options=options or [AtLeastOnce()],
        )
        self.link = self._blocking.link

    def receive(self) -> tuple[Delivery, Message]:
        self._connection.wait(lambda: self._inbox.arrived, timeout=TIMEOUT_S, msg="no message arrived")
        return self._inbox.arrived.popleft()

    def accept(self) -> Message:
        """Receives one message and settles it as accepted."""
        delivery, message = self.receive()
        settle(delivery, Delivery.ACCEPTED)
        return message

    @property
    def waiting(self) -> int:
        return len(self._inbox.arrived)

    def close(self) -> None:
        self._blocking.close()


class Client:
    """One connection, and the queue of one check."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.queue = f"clients-proton-{uuid4().hex[:12]}"
        self.connection = self._connect()

    def _connect(self) -> BlockingConnection:
        user = os.environ.get("AMQP_USER")
        if user:
            return BlockingConnection(
                self._url,
                timeout=TIMEOUT_S,
                user=user,
                password=os.environ.get("AMQP_PASSWORD", ""),
                allowed_mechs="PLAIN",
                allow_insecure_mechs=True,
            )
        return BlockingConnection(self._url, timeout=TIMEOUT_S, allowed_mechs="ANONYMOUS")

    def receiver(self, credit: int = 10, options: Any = None) -> Receiver:
        return Receiver(self, self.queue, credit, options)

    def sender(self, options: Any = None) -> Any:
        return self.connection.create_sender(self.queue, name=uuid4().hex, options=options)

    def send(self, messages: Iterable[Message], options: Any = None) -> None:
        sender = self.sender(options)
        for message in messages:
            sender.send(message)
        sender.close()

    def round_trip(self, message: Message) -> Message:
        """The message as it comes back. Keep it: binary values in it are views into its memory, not copies."""
        self.send([message])
        receiver = self.receiver(credit=1)
        received = receiver.accept()
        receiver.close()
        return received

    def reconnect(self) -> None:
        self.connection.close()
        self.connection = self._connect()

    def close(self) -> None:
        self.connection.close()


def settle(delivery: Delivery, outcome: int) -> None:
    delivery.update(outcome)
    delivery.settle()


def text(body: str, **fields: Any) -> Message:
    return Message(body=body, **fields)


CHECKS: list[tuple[str, Callable[[Client], None]]] = []
Check = Callable[[Client], None]


def check(name: str) -> Callable[[Check], Check]:
    def register(function: Check) -> Check:
        CHECKS.append((name, function))
        return function

    return register


def value_check(value: Any) -> Check:
    def run(client: Client) -> None:
        received = client.round_trip(Message(body=value, inferred=False))
        expect("amqp-value", values.shape(value), values.shape(received.body))
        expect("inferred", False, received.inferred)

    return run


def register_value_checks() -> None:
    for name, value in values.SIMPLE + values.COMPOUND:
        check(f"amqp-value {name}")(value_check(value))


@check("amqp-value null")
def null_body(client: Client) -> None:
    received = client.round_trip(Message(body=None, subject="null"))
    expect("subject, body", ("null", None), (received.subject, received.body))


@check("application-properties of every simple type")
def application_properties(client: Client) -> None:
    sent = {name: value for name, value in values.SIMPLE} | {"null": None}
    received = client.round_trip(Message(body="b", properties=sent))
    expect("application-properties", values.shape(sent), values.shape(received.properties))


@check("message-annotations of every type")
def message_annotations(client: Client) -> None:
    sent = {symbol(f"x-opt-{name}"): value for name, value in values.SIMPLE + values.COMPOUND}
    received = client.round_trip(Message(body="b", annotations=sent))
    kept = {key: value for key, value in received.annotations.items() if key in sent}
    expect("message-annotations", values.shape(sent), values.shape(kept))


@check("body data")
def data_body(client: Client) -> None:
    for body in (b"", b"\x00\x01\xff", values.LONG_BINARY):
        received = client.round_trip(Message(body=body, inferred=True))
        expect("data", (True, body), (received.inferred, bytes(received.body)))


@check("body amqp-sequence")
def sequence_body(client: Client) -> None:
    for body in ([], [1, "two", None, [symbol("three")]]):
        received = client.round_trip(Message(body=body, inferred=True))
        expect("amqp-sequence", (True, values.shape(body)), (received.inferred, values.shape(received.body)))


@check("properties: all fields")
def properties(client: Client) -> None:
    sent = Message(
        body="b", id="message-1", user_id=b"user\x00id", address="somewhere", subject="subject", reply_to="replies",
        correlation_id="correlation-1", content_type=symbol("text/plain"), content_encoding=symbol("gzip"),
        expiry_time=4_000_000_000.125, creation_time=1_700_000_000.25, group_id="group",
        group_sequence=2**32 - 1, reply_to_group_id="reply-group",
    )
    received = client.round_trip(sent)
    fields = (
        "id", "user_id", "address", "subject", "reply_to", "correlation_id", "content_type", "content_encoding",
        "expiry_time", "creation_time", "group_id", "group_sequence", "reply_to_group_id",
    )
    for field in fields:
        expect(field, getattr(sent, field), getattr(received, field))


def identity_shape(identity: Any) -> Any:
    """proton hands out a message-id of type ulong as a plain int; no other number may stand there."""
    return values.shape(ulong(identity) if isinstance(identity, int) else identity)


@check("properties: message-id and correlation-id of every type")
def message_ids(client: Client) -> None:
    for identity in (ulong(0), ulong(2**64 - 1), UUID(int=2**128 - 2), b"\x00binary", "", "string"):
        received = client.round_trip(Message(body="b", id=identity, correlation_id=identity))
        expect("message-id", identity_shape(identity), identity_shape(received.id))
        expect("correlation-id", identity_shape(identity), identity_shape(received.correlation_id))


@check("header: durable, priority, ttl")
def header(client: Client) -> None:
    received = client.round_trip(Message(body="b", durable=True, priority=9, ttl=600.0))
    expect("durable, priority", (True, 9), (received.durable, received.priority))
    expect("0 < ttl <= 600 s", True, 0 < received.ttl <= 600.0)
    received = client.round_trip(Message(body="b", durable=False, priority=0))
    expect("durable, priority, ttl", (False, 0, 0.0), (received.durable, received.priority, received.ttl))


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
    expect("same octets", True, bytes(receiver.accept().body) == body)
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


@check("outcome accepted: gone")
def outcome_accepted(client: Client) -> None:
    client.send([text("first"), text("second")])
    receiver = client.receiver(credit=1)
    expect("body", "first", receiver.accept().body)
    receiver.close()
    expect("next", "second", client.receiver().accept().body)


@check("outcome rejected: not delivered again")
def outcome_rejected(client: Client) -> None:
    client.send([text("first"), text("second")])
    receiver = client.receiver(credit=1)
    delivery, message = receiver.receive()
    expect("body", "first", message.body)
    settle(delivery, Delivery.REJECTED)
    receiver.close()
    expect("next", "second", client.receiver().accept().body)


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


def run_check(url: str, name: str, function: Check) -> bool:
    """Runs one check and prints its line; any error of the library counts as a failure of the check."""
    try:
        client = Client(url)
        try:
            function(client)
        finally:
            client.close()
    except Exception as error:
        message = str(error) or type(error).__name__
        if not isinstance(error, CheckFailed):
            message = f"expected no error, got {type(error).__name__}: {message}"
        print(f"FAIL {name}: {' '.join(message.split())}", flush=True)
        return False
    print(f"ok {name}", flush=True)
    return True


def main() -> int:
    if len(sys.argv) not in (2, 3):
        print("usage: interop.py amqp://host:port [part of a check's name]", file=sys.stderr)
        return 2
    register_value_checks()
    wanted = sys.argv[2] if len(sys.argv) == 3 else ""
    results = [run_check(sys.argv[1], name, function) for name, function in CHECKS if wanted in name]
    print("skip several data or amqp-sequence sections: proton's Message has one body", flush=True)
    print("skip SCRAM: proton from PyPI is built without Cyrus SASL, which brings it", flush=True)
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
