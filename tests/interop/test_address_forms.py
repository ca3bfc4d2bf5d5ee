"""Addresses in forms of other brokers with python-qpid-proton's blocking client, which takes no link whose
answer has another address than it asked for.
"""

from __future__ import annotations

import pytest
from proton import Message
from proton.utils import BlockingConnection

from amqp_broker.configuration import AliasConfig
from amqp_broker.testing import memory_config, running_broker


@pytest.mark.parametrize("address", ["queue://q", "/queues/q", "q::q", "old"])
def test_a_blocking_client_may_write_any_form(address: str) -> None:
    """It sends by the one and receives by the other."""
    forms = ("uri", "rabbitmq", "artemis")
    config = memory_config(address_forms=forms, aliases=(AliasConfig(name="old", node="q"),))
    with running_broker(config) as broker:
        connection = BlockingConnection(broker.url)
        connection.create_sender(address).send(Message(body="hello"))
        receiver = connection.create_receiver(address)
        assert receiver.receive(timeout=20.0).body == "hello"
        receiver.accept()
        connection.close()
