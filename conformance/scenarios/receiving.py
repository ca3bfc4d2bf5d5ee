"""Deliveries that the broker sends: ids, tags, splitting, order (2.6.12, 2.6.14, 2.7.5)."""

from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Session
from amqp_broker.conformance.messages import data
from amqp_broker.conformance.outcomes import Unexpected
from amqp_broker.conformance.queues import put
from amqp_broker.conformance.scenario import scenario
from amqp_broker.frames import Transfer


@scenario("2.7.5/first-transfer", "2.7.5-01", "2.7.5-02", "2.7.5-03", "2.6.12-01", "2.8.7-tag")
def first_transfer(broker: Broker) -> None:
    """A delivery comes with delivery-id, delivery-tag of 1 to 32 octets, and message-format."""
    session = broker.session()
    put(broker, broker.queue(), b"named")
    delivery = session.receiver(broker.queue(), credit=1).receive()
    if not delivery.transfer.delivery_tag:
        raise Unexpected("the delivery-tag is empty")
    if delivery.transfer.message_format != 0:
        raise Unexpected(f"expected message-format 0, as sent, got {delivery.transfer.message_format}")


@scenario("2.6.12/unique-tags", "2.6.12-02", "2.7.5-unique", "2.6.12-delivery-id")
def unique_tags(broker: Broker) -> None:
    """Ten unsettled deliveries have ten tags, and ids that follow each other."""
    session = broker.session()
    put(broker, broker.queue(), *(b"%d" % number for number in range(10)))
    receiver = session.receiver(broker.queue(), credit=10)
    deliveries = [receiver.receive() for _ in range(10)]
    if len({delivery.transfer.delivery_tag for delivery in deliveries}) != 10:
        raise Unexpected("two unsettled deliveries have one delivery-tag")
    ids = [delivery.delivery_id for delivery in deliveries]
    if ids != [(ids[0] + number) & 0xFFFF_FFFF for number in range(10)]:
        raise Unexpected(f"the delivery-ids do not follow each other: {ids}")


@scenario("2.6.12/ids-of-the-session", "2.6.12-delivery-id", "2.7.6-01")
def ids_of_the_session(broker: Broker) -> None:
    """Two links of a session share its delivery-ids: none comes twice."""
    session = broker.session()
    first, second = broker.queue("first"), broker.queue("second")
    put(broker, first, b"1", b"2")
    put(broker, second, b"3", b"4")
    one = session.receiver(first, handle=1)
    two = session.receiver(second, handle=2)
    ids = []
    for receiver in (one, two, one, two):
        receiver.flow(1)
        ids.append(receiver.receive().delivery_id)
    if len(set(ids)) != 4:
        raise Unexpected(f"a delivery-id came twice within a session: {ids}")


@scenario("2.6.14/split", "2.6.14-split", "2.7.1-04", "2.7.5-same-id")
def split(broker: Broker) -> None:
    """A message larger than our frames comes over several transfers, all of them with more but the last."""
    session = broker.session(max_frame_size=1024)
    body = bytes(range(256)) * 40
    put(broker, broker.queue(), body)
    delivery = session.receiver(broker.queue(), credit=1).receive()
    if not delivery.payload.endswith(body):
        raise Unexpected(f"the message of {len(body)} octets came as {len(delivery.payload)} others")
    if delivery.frames < 10:
        raise Unexpected(f"expected at least 10 frames of 1,024 octets, got {delivery.frames}")


@scenario("2.6.14/not-interleaved", "2.6.14-01", "2.6.14-split")
def not_interleaved(broker: Broker) -> None:
    """Large messages of one link come one after the other."""
    session = broker.session(max_frame_size=512)
    bodies = [bytes([number]) * 4000 for number in range(4)]
    put(broker, broker.queue(), *bodies)
    receiver = session.receiver(broker.queue(), credit=4)
    for body in bodies:
        if not receiver.receive().payload.endswith(body):
            raise Unexpected("two messages of one link are mixed")


@scenario("2.6.14/two-large-links", "2.6.14-interleaved", "2.6.14-01")
def two_large_links(broker: Broker) -> None:
    """Large messages of two links may be interleaved, and both arrive whole."""
    session = broker.session(max_frame_size=512)
    addresses = [broker.queue("first"), broker.queue("second")]
    for number, address in enumerate(addresses):
        put(broker, address, bytes([number + 1]) * 5000)
    links = [session.receiver(address, handle=number) for number, address in enumerate(addresses)]
    for link in links:
        link.flow(1)
    parts: dict[int | None, bytes] = {}
    complete = 0
    while complete < 2:
        frame = session.peer.expect_frame(Transfer)
        handle = frame.performative.handle
        parts[handle] = parts.get(handle, b"") + frame.payload
        complete += not frame.performative.more
    for number, link in enumerate(links):
        if not parts[link.remote_handle].endswith(bytes([number + 1]) * 5000):
            raise Unexpected("the messages of two links are mixed")


@scenario("2.6.12/order", "2.6.12-delivery-id", "3.3.1-available")
def order(broker: Broker) -> None:
    """The messages of one sender come in the order in which they were sent."""
    session = broker.session()
    sender = session.sender(broker.queue())
    for number in range(100):
        sender.send(data(b"%03d" % number), settled=True)
    receiver = session.receiver(broker.queue(), credit=100)
    for number in range(100):
        payload = receiver.receive().payload
        if not payload.endswith(b"%03d" % number):
            raise Unexpected(f"expected message {number}, got {payload[-3:]!r}")


def _receive_one(session: Session, address: str, **fields: Any) -> Transfer:
    return session.receiver(address, credit=1, **fields).receive().transfer


@scenario("2.8.2/mixed", "2.8.2-mixed", "2.7.3-snd-mode")
def mixed(broker: Broker) -> None:
    """In mode mixed, the default, an unsettled delivery waits for our outcome before it is gone."""
    session = broker.session()
    put(broker, broker.queue(), b"mixed")
    receiver = session.receiver(broker.queue(), credit=1)
    delivery = receiver.receive()
    if not delivery.transfer.settled:
        receiver.settle(delivery)
    receiver.detach()
    session.receiver(broker.queue(), handle=2).expect_empty()


@scenario("2.8.2/settled-is-gone", "2.8.2-settled", "2.7.5-06", "3.5.2-move")
def settled_is_gone(broker: Broker) -> None:
    """What the broker sends settled is gone: it does not come again when the link goes."""
    session = broker.session()
    put(broker, broker.queue(), b"at most once")
    transfer = _receive_one(session, broker.queue(), snd_settle_mode=1)
    session.end()
    session = session.peer.begin()
    receiver = session.receiver(broker.queue(), handle=2)
    if transfer.settled:
        receiver.expect_empty()
    else:
        receiver.flow(1)
        receiver.receive()


@scenario("2.7.5/state-never-received", "3.4.1-01", "2.7.5-state")
def state_never_received(broker: Broker) -> None:
    """No transfer of a new delivery carries a terminal state or the state received."""
    session = broker.session(max_frame_size=512)
    put(broker, broker.queue(), bytes(2000))
    session.receiver(broker.queue(), credit=1)
    while True:
        transfer: Transfer = session.peer.expect_frame(Transfer).performative
        if transfer.state is not None:
            raise Unexpected(f"a transfer of a new delivery carries the state {transfer.state!r}")
        if not transfer.more:
            break
