"""The pytest plugin: a broker for each test that asks for one.

    def test_mine(amqp_broker):
        connect(amqp_broker.url)

Each test has a broker of its own, in memory on an ephemeral port, so no test sees another one's queues.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from amqp_broker.embedding import RunningBroker


@pytest.fixture(name="amqp_broker")
def amqp_broker_fixture() -> Iterator[RunningBroker]:
    """A running broker: `.url`, `.host`, `.port`, `.stop()`."""
    from amqp_broker.embedding import (
        running_broker,  # not before a test asks: this is loaded with every pytest
    )

    with running_broker() as broker:
        yield broker
