"""Link flow control: credit, drain, echo, available (2.6.7 to 2.6.10, 2.7.4)."""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Receiver
from amqp_broker.conformance.messages import data
from amqp_broker.conformance.octets import TRANSFER, TRUE, binary8, described, frame, list8, uint, uint0
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected
from amqp_broker.conformance.queues import numbered, put
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transcript import describe
from amqp_broker.frames import Close, Detach, Disposition, End, Flow, Transfer

LARGEST_CREDIT = 20_000
"""A link-credit above this is not overrun here."""


def _queue_with(broker: Broker, messages: int) -> Receiver:
    """Returns a receiver without credit at a queue with so many messages."""
    put(broker, broker.queue(), *numbered(messages))
    return broker.session().receiver(broker.queue())


@scenario("2.6.7/credit", "2.6.7-illegal", "2.6.7-04", "2.7.4-link-credit")
def credit(broker: Broker) -> None:
    """With a credit of 3 come exactly 3 of 6 messages."""
    receiver = _queue_with(broker, 6)
    receiver.flow(3)
    for _ in range(3):
        receiver.receive()
    receiver.peer.expect_nothing(Transfer)


@scenario("2.6.7/credit-again", "2.6.7-01", "2.6.7-02")
def credit_again(broker: Broker) -> None:
    """New credit counts from the delivery-count that the flow names: 2 more come, no third."""
    receiver = _queue_with(broker, 6)
    receiver.flow(2)
    receiver.receive()
    receiver.receive()
    receiver.flow(2)
    receiver.receive()
    receiver.receive()
    receiver.peer.expect_nothing(Transfer)


@scenario("2.6.7/credit-is-not-added", "2.6.7-02", "2.6.7-01")
def credit_is_not_added(broker: Broker) -> None:
    """Credit given twice is set, not added: 2 and then 3 from the same delivery-count are 3."""
    receiver = _queue_with(broker, 6)
    count = receiver.delivery_count
    receiver.flow(2)
    receiver.receive()
    receiver.receive()
    receiver.flow(3, delivery_count=count)
    receiver.receive()
    receiver.peer.expect_nothing(Transfer)


@scenario("2.6.7/stop", "2.6.10-stop", "2.6.7-reduced", "2.6.7-illegal")
def stop(broker: Broker) -> None:
    """A credit of zero stops the link: what arrives at the queue afterwards is not sent."""
    session = broker.session()
    sender = session.sender(broker.queue())
    receiver = session.receiver(broker.queue(), credit=5)
    receiver.flow(0)
    session.catch_up()
    sender.put([data(b"too late")])
    session.peer.expect_nothing(Transfer)
    receiver.flow(1)
    receiver.receive()


@scenario("2.6.7/drain-empty", "2.6.7-07", "2.6.7-drain", "2.7.4-03")
def drain_empty(broker: Broker) -> None:
    """Drain at an empty queue: the delivery-count advances until the credit is zero, and a flow says so."""
    receiver = _queue_with(broker, 0)
    count = receiver.delivery_count
    receiver.flow(10, drain=True)
    flow = receiver.expect_flow()
    if flow.link_credit != 0 or flow.delivery_count != (count + 10) & 0xFFFF_FFFF:
        raise Unexpected(f"expected delivery-count {count + 10} and no credit, got {describe(flow)}")


@scenario("2.6.7/drain-some", "2.6.7-07", "2.6.7-drain", "2.6.8-promptly")
def drain_some(broker: Broker) -> None:
    """Drain at a queue of 2 with a credit of 5: both messages, then the flow that uses up the rest."""
    receiver = _queue_with(broker, 2)
    count = receiver.delivery_count
    receiver.flow(5, drain=True)
    receiver.receive()
    receiver.receive()
    flow = receiver.expect_flow()
    if flow.link_credit != 0 or flow.delivery_count != (count + 5) & 0xFFFF_FFFF:
        raise Unexpected(f"expected delivery-count {count + 5} and no credit, got {describe(flow)}")


@scenario("2.6.7/drain-later", "2.6.7-07", "2.6.8-timeout", "2.6.8-promptly")
def drain_later(broker: Broker) -> None:
    """A get with time-out: credit, silence, then drain of the same credit ends the wait at once."""
    receiver = _queue_with(broker, 0)
    count = receiver.delivery_count
    receiver.flow(1)
    receiver.peer.expect_nothing(Transfer, within_s=0.2)
    receiver.flow(1, drain=True)
    flow = receiver.expect_flow()
    while flow.link_credit != 0:
        flow = receiver.expect_flow()
    if flow.delivery_count != (count + 1) & 0xFFFF_FFFF:
        raise Unexpected(f"expected delivery-count {count + 1}, got {describe(flow)}")


@scenario("2.6.7/after-drain", "2.6.7-07", "2.6.7-02")
def after_drain(broker: Broker) -> None:
    """After a drain the link works on: new credit, counted from the drained delivery-count."""
    session = broker.session()
    sender = session.sender(broker.queue())
    receiver = session.receiver(broker.queue())
    receiver.flow(4, drain=True)
    receiver.expect_flow()
    sender.put([data(b"after the drain")])
    session.peer.expect_nothing(Transfer, within_s=0.2)
    receiver.flow(1, drain=False)
    receiver.receive()


@scenario("2.6.7/drain-all-used", "2.6.7-drain", "2.6.7-illegal")
def drain_all_used(broker: Broker) -> None:
    """Drain with less credit than messages: the credit is used, and not more."""
    receiver = _queue_with(broker, 4)
    receiver.flow(2, drain=True)
    receiver.receive()
    receiver.receive()
    receiver.peer.expect_nothing(Transfer)


@scenario("2.6.10/echo", "2.6.10-echo", "2.7.4-echo", "2.7.4-03", "2.7.4-sender-credit")
def echo(broker: Broker) -> None:
    """A flow with echo is answered with the link's state: delivery-count and credit as both know them."""
    receiver = _queue_with(broker, 1)
    count = receiver.delivery_count
    receiver.flow(5)
    receiver.receive()
    receiver.flow(4, echo=True)
    flow = receiver.expect_flow()
    if flow.delivery_count != (count + 1) & 0xFFFF_FFFF or flow.link_credit != 4:
        raise Unexpected(f"expected delivery-count {count + 1} and credit 4, got {describe(flow)}")


@scenario("2.6.10/echo-to-receiver", "2.6.10-echo", "2.7.4-echo", "2.7.4-04")
def echo_to_receiver(broker: Broker) -> None:
    """Asked for an echo, the broker as receiver names the last delivery-count that it knows."""
    session = broker.session()
    sender = session.sender(broker.queue(), initial_delivery_count=100)
    sender.put([data(b"one"), data(b"two")])
    session.flow(handle=0, delivery_count=102, available=0, echo=True)
    while True:
        flow: Flow = session.peer.expect_frame(Flow).performative
        if flow.handle == sender.remote_handle and flow.delivery_count == 102:
            break


@scenario("2.6.7/available", "2.7.4-available", "2.6.7-available")
def available(broker: Broker) -> None:
    """Where the broker says how many messages are available, at a queue of 3 it is 3."""
    receiver = _queue_with(broker, 3)
    receiver.flow(0, echo=True)
    receiver.session.catch_up()
    flow = receiver.session.remote_flow
    if flow is None or flow.handle != receiver.remote_handle or flow.available is None:
        raise NotApplicable("the broker does not say how many messages are available")
    if flow.available != 3:
        raise Unexpected(f"expected 3 available messages, got {flow.available}")


@scenario("2.6.7/our-available", "2.6.7-available", "2.6.7-05")
def our_available(broker: Broker) -> None:
    """We send although we had said that nothing is available: the broker takes it."""
    session = broker.session()
    sender = session.sender(broker.queue())
    sender.await_credit()
    session.flow(handle=0, delivery_count=0, link_credit=sender.credit, available=0)
    sender.put([data(b"one"), data(b"two")])


@scenario("2.6.7/initial-count", "2.7.4-04", "2.6.7-initial", "2.6.7-serial")
def initial_count(broker: Broker) -> None:
    """The broker counts from our initial-delivery-count, also across 2^32."""
    sender = broker.session().sender(broker.queue(), initial_delivery_count=0xFFFF_FFFE)
    sender.await_credit()
    assert sender.last_flow is not None
    if sender.last_flow.delivery_count != 0xFFFF_FFFE:
        raise Unexpected(
            f"expected delivery-count 4294967294 in the first flow, got {describe(sender.last_flow)}"
        )
    sender.put(data(b"%d" % number) for number in range(5))


@scenario("2.6.7/wrapping-credit", "2.6.7-serial", "2.6.7-02")
def wrapping_credit(broker: Broker) -> None:
    """A credit of 2^32 - 1 is much credit, not less than none: the messages come."""
    receiver = _queue_with(broker, 3)
    receiver.flow(0x7FFF_FFFF)
    for _ in range(3):
        receiver.receive()


@scenario("2.6.7/overrun", "2.8.18-transfer-limit", "2.6.7-illegal", "2.6.5-01")
def overrun(broker: Broker) -> None:
    """More deliveries than there is credit for: detach with transfer-limit-exceeded."""
    session = broker.session()
    sender = session.sender(broker.queue())
    sender.await_credit()
    credit = sender.credit
    if credit > LARGEST_CREDIT:
        raise NotApplicable(f"the broker's credit of {credit} is too large to overrun here")
    # Small enough that a few thousand arrive in one read, before the broker can renew its credit.
    count = credit + 60
    with session.peer.one_write():
        for number in range(count):
            fields = list8(uint0(), uint(number), binary8(b"t"), uint0(), TRUE)
            session.peer.send_octets(frame(described(TRANSFER, fields) + data(b"")), "transfer(settled=True)")
    while True:
        answer = session.peer.expect_frame(Flow, Detach, End, Close, skip=(Disposition,)).performative
        if not isinstance(answer, Flow):
            break
        if sender.last_flow is answer and (answer.delivery_count or 0) + (answer.link_credit or 0) >= count:
            raise NotApplicable("the broker renews credit as messages arrive, faster than we can overrun it")
    if answer.error is None or answer.error.condition != "amqp:link:transfer-limit-exceeded":
        raise Unexpected(f"expected amqp:link:transfer-limit-exceeded, got {describe(answer)}")
    if not isinstance(answer, Detach):
        raise Unexpected(f"2.6.5-01: expected detach, got {describe(answer)}")
    broker.still_serves()


@scenario("2.6.8/synchronous-get", "2.6.8-sync-get", "2.6.7-04")
def synchronous_get(broker: Broker) -> None:
    """A credit of one that waits: the message comes when it arrives at the queue, and only one."""
    session = broker.session()
    receiver = session.receiver(broker.queue(), credit=1)
    broker.session().sender(broker.queue()).put([data(b"first"), data(b"second")])
    first = receiver.receive()
    if b"first" not in first.payload:
        raise Unexpected("another message came first")
    session.peer.expect_nothing(Transfer)


@scenario("2.6.9/asynchronous", "2.6.9-async", "2.6.7-01")
def asynchronous(broker: Broker) -> None:
    """Credit renewed below a threshold: 60 messages come in order over a credit of 10."""
    receiver = _queue_with(broker, 60)
    receiver.flow(10)
    for number in range(60):
        delivery = receiver.receive()
        if b"message %d" % number != delivery.payload[-len(b"message %d" % number) :]:
            raise Unexpected(f"expected message {number}, got {delivery.payload[-12:]!r}")
        receiver.settle(delivery)
        if number % 5 == 4:
            receiver.flow(10)


@scenario("2.7.4/unattached-handle", "2.7.4-01", "2.8.17-unattached-handle")
def unattached_handle(broker: Broker) -> None:
    """A flow for a handle that no link has ends the session with unattached-handle."""
    session = broker.session()
    session.flow(handle=5, delivery_count=0, link_credit=1)
    session.expect_end("amqp:session:unattached-handle")
    broker.still_serves()


@scenario("2.7.4/broker-gives-credit", "2.7.4-link-credit", "2.7.4-04")
def broker_gives_credit(broker: Broker) -> None:
    """The broker gives credit to a sender, and goes on giving it: 300 messages pass."""
    sender = broker.session().sender(broker.queue())
    for number in range(300):
        sender.send(data(b"%d" % number), settled=True)
