"""A client that sends again since it heard nothing, with a client of others."""

from __future__ import annotations

from uuid import UUID

import attrs
from proton import Message, Timeout, ulong
from proton.utils import BlockingConnection

from amqp_broker.configuration import QueuePolicy
from amqp_broker.testing import memory_config, running_broker

CONFIG = attrs.evolve(
    memory_config(), queue_policies=(QueuePolicy(pattern="orders", duplicate_window_ms=60_000),)
)


def test_what_is_sent_again_comes_once() -> None:
    """With python-qpid-proton: each id of four types on two connections, and none at all."""
    ids = ["7", b"7", ulong(7), UUID(int=7), None]
    with running_broker(CONFIG) as broker:
        for _ in range(2):
            connection = BlockingConnection(broker.url)
            sender = connection.create_sender("orders")
            for message_id in ids:
                sender.send(Message(body=repr(message_id), id=message_id, durable=True))  # raises: refused
            connection.close()
        connection = BlockingConnection(broker.url)
        receiver = connection.create_receiver("orders", credit=20)
        came: list[str] = []
        while True:
            try:
                came.append(receiver.receive(timeout=1.0).body)
            except Timeout:
                break
            receiver.accept()
        connection.close()
    assert came == [*map(repr, ids), repr(None)]
