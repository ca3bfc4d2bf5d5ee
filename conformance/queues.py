"""What scenarios put at queues and find there, over connections of their own.

put(broker, broker.queue(), b"1", b"2")
expect_left(broker, broker.queue(), b"1", b"2")
"""

import itertools
from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Receiver, Session
from amqp_broker.conformance.messages import DATA, data, header_of, split_sections
from amqp_broker.conformance.outcomes import Unexpected, expect_equal
from amqp_broker.frames import (
    Described,
    Disposition,
    Message,
    Properties,
    Source,
    Transfer,
    decode_value,
    plain_value,
)
from amqp_broker.testing.peer import Delivery

_connection_numbers = itertools.count(1)


def body_of(delivery: Delivery) -> bytes:
    """Returns the octets of a message's data section."""
    for code, octets in split_sections(delivery.payload):
        if code == DATA:
            section, _ = decode_value(octets)
            assert isinstance(section, Described), "a section is a described value"
            octets_of_it: bytes = section.value  # type: ignore[assignment]
            return octets_of_it
    raise Unexpected("the message has no data section")


def delivery_count(delivery: Delivery) -> int:
    """Returns the delivery-count of a message (3.2.1)."""
    return header_of(delivery.payload).delivery_count or 0


def numbered(count: int) -> list[bytes]:
    """Returns the bodies of so many messages."""
    return [b"message %d" % number for number in range(count)]


def put(broker: Broker, address: str, *bodies: bytes) -> None:
    """Puts messages into a queue over a connection of their own."""
    session = broker.session(container=f"writer-{next(_connection_numbers)}")
    session.sender(address).put(data(body) for body in bodies)
    session.peer.close()


def reader(broker: Broker, address: str, credit: int = 0, **fields: Any) -> Receiver:
    """Returns a receiver on a connection of its own: somebody else."""
    session = broker.session(container=f"reader-{next(_connection_numbers)}")
    return session.receiver(address, credit=credit, **fields)


def expect_left(broker: Broker, address: str, *bodies: bytes, in_order: bool = False) -> list[Delivery]:
    """Returns what somebody else gets from a queue: exactly these messages, else Unexpected."""
    receiver = reader(broker, address, len(bodies) + 1)
    deliveries = [receiver.receive() for _ in bodies]
    receiver.peer.expect_nothing(Transfer, within_s=0.25)
    got = [body_of(delivery) for delivery in deliveries]
    if (got if in_order else sorted(got)) != (list(bodies) if in_order else sorted(bodies)):
        raise Unexpected(f"expected {list(bodies)} at the queue, got {got}")
    receiver.peer.close()
    return deliveries


class Replies:
    """A node that the broker makes for the replies to requests, and what comes there."""

    def __init__(self, session: Session, handle: int, name: str = "replies") -> None:
        self._link = session.receiver(None, handle, name, credit=100, source=Source(dynamic=True))
        self.address: str | None = getattr(self._link.attach.source, "address", None)

    def expect(self, correlation_id: Any) -> dict[str, Any]:
        """Returns the body of the next reply; raises Unexpected unless it says ok to this request."""
        message = Message(self._link.receive(skip=(Disposition,)).payload)
        properties = message.properties or Properties()
        told = properties.subject, properties.correlation_id
        expect_equal("subject and correlation-id", ("ok", correlation_id), told)
        found: dict[str, Any] = plain_value(message.body_sections()[0].value)
        return found
