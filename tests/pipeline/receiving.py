"""What a queue has, taken out of it; and what retention takes."""

from __future__ import annotations

from amqp_broker.client import BlockingConnection, ReceivedMessage
from amqp_broker.pipeline.options import BrokerAddress
from amqp_broker.pipeline.retained_client import Node, RetainedClient
from amqp_broker.testing.blocking_peer import PATIENCE_S

OF_A_ROUND = 20


def drained(connection: BlockingConnection, address: str) -> list[ReceivedMessage]:
    """All messages, in their order; they are accepted."""
    receiver = connection.open_receiver(address, credit=500)
    found = []
    while (received := receiver.receive_now()) is not None:
        found.append(received)
        receiver.accept(received)
    receiver.close()
    return found


def overtake(connection: BlockingConnection, url: str, address: str, first: int = 1) -> Node:
    """Sends and receives until retention, by a small size, has dropped all before the offset `first`; then
    three messages are left that nobody received. Where the node stands.
    """
    client = RetainedClient(BrokerAddress((url,)))
    sender, receiver = connection.open_sender(address), connection.open_receiver(address)
    while client.describe().nodes[address].first < first:
        sender.send_many(b"x" * 500 for _ in range(OF_A_ROUND))
        for _ in range(OF_A_ROUND):
            receiver.accept(receiver.receive(PATIENCE_S))
    receiver.close()
    sender.send_many([b"left"] * 3)
    node = client.describe().nodes[address]
    client.close()
    return node
