"""A ring that a slow consumer reads, with a client of others."""

from __future__ import annotations

import attrs
from proton import Message, Timeout
from proton.utils import BlockingConnection

from amqp_broker.configuration import QueuePolicy
from amqp_broker.testing import memory_config, running_broker

CONFIG = attrs.evolve(
    memory_config(),
    queue_policies=(QueuePolicy(pattern="prices", ring_messages=10, message_type="normal"),),
)


def test_the_last_ones_are_there() -> None:
    """With python-qpid-proton: 100 sent, each accepted; ten wait."""
    with running_broker(CONFIG) as broker:
        connection = BlockingConnection(broker.url)
        sender = connection.create_sender("prices")
        for number in range(100):
            sender.send(Message(body=number, durable=number % 2 == 0))  # raises: refused
        receiver = connection.create_receiver("prices", credit=20)
        came: list[int] = []
        while True:
            try:
                came.append(receiver.receive(timeout=1.0).body)
            except Timeout:
                break
            receiver.accept()
        connection.close()
    assert came == [*range(90, 100)]
