"""Brokers without a socket for whichever test asks for one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from amqp_broker.configuration import BrokerConfig
from tests.support.jumping_broker import PATIENT, JumpingBroker, Start


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts brokers, one at a time, which are stopped at the end."""
    started: list[JumpingBroker] = []

    def begin(config: BrokerConfig = PATIENT, after: JumpingBroker | None = None) -> JumpingBroker:
        started.append(JumpingBroker(config, after))
        return started[-1]

    yield begin
    for broker in started:
        broker.stop()
