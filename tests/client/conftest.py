"""What the tests of the blocking client share: a broker, and a connection to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from amqp_broker.client.blocking import BlockingConnection, connect
from amqp_broker.embedding import RunningBroker, running_broker
from tests.client.shops import WAIT_S


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    """A broker in memory."""
    with running_broker() as running:
        yield running


@pytest.fixture
def connection(broker: RunningBroker) -> Iterator[BlockingConnection]:
    """An open connection to the broker of the test's module."""
    with connect(broker.url, timeout_s=WAIT_S) as opened:
        yield opened
