"""A broker without a socket, and sessions to it. A module that wants another one has a fixture `config`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from amqp_broker.configuration import BrokerConfig
from amqp_broker.testing.peer import PeerSession
from tests.support.broker_clients import session_to
from tests.support.half_sets import SetClient
from tests.support.jumping_broker import PATIENT, InEachStore, JumpingBroker, Start, on_disk


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


@pytest.fixture(params=["memory", "disk"])
def in_each_store(request: pytest.FixtureRequest, tmp_path: Path) -> InEachStore:
    """A configuration as it is, and the same with a data directory."""
    return lambda config: config if request.param == "memory" else on_disk(tmp_path, config)


@pytest.fixture
def config() -> BrokerConfig:
    """In memory."""
    return PATIENT


@pytest.fixture
def broker(start: Start, config: BrokerConfig) -> JumpingBroker:
    """One that runs."""
    return start(config)


@pytest.fixture
def session(broker: JumpingBroker) -> Iterator[PeerSession]:
    """One on a connection of its own."""
    with session_to(broker) as begun:
        yield begun


@pytest.fixture
def other(broker: JumpingBroker) -> Iterator[PeerSession]:
    """Another one."""
    with session_to(broker, "other") as begun:
        yield begun


@pytest.fixture
def client(session: PeerSession) -> SetClient:
    """Who stages sets on `session`."""
    return SetClient(session)
