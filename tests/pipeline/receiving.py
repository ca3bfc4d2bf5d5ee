"""What a queue has, taken out of it."""

from __future__ import annotations

from amqp_broker.client import BlockingConnection, ReceivedMessage


def drained(connection: BlockingConnection, address: str) -> list[ReceivedMessage]:
    """All messages, in their order; they are accepted."""
    receiver = connection.open_receiver(address, credit=500)
    found = []
    while (received := receiver.receive_now()) is not None:
        found.append(received)
        receiver.accept(received)
    receiver.close()
    return found
