"""`running_broker`, the pytest fixture and the package's lazy door."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import trio

import amqp_broker as package
from amqp_broker.broker import Broker, open_broker
from amqp_broker.configuration import BrokerConfig, ListenerConfig
from amqp_broker.embedding import RunningBroker, memory_config, running_broker
from amqp_broker.frames import AMQP_HEADER
from amqp_broker.listener import ListenError
from amqp_broker.testing import connected, run_with_virtual_clock
from amqp_broker.testing.blocking_peer import PATIENCE_S, BlockingPeer, ConnectionLost

WAIT_S = PATIENCE_S


def test_a_running_broker_serves_on_an_ephemeral_port() -> None:
    """Its URL is one that a client can dial, and nothing is left when the block ends."""
    before = threading.active_count()
    with running_broker() as broker:
        assert broker.url == f"amqp://127.0.0.1:{broker.port}"
        assert broker.urls == (broker.url,)
        BlockingPeer.connect(broker.host, broker.port).close()
        assert broker.alive
    assert not broker.alive
    assert threading.active_count() == before
    with pytest.raises(ConnectionLost):
        BlockingPeer.connect(broker.host, broker.port)


def test_two_brokers_run_side_by_side() -> None:
    """Each has its own port and its own queues."""
    with running_broker() as one, running_broker() as two:
        assert one.url != two.url


def test_what_opening_raises_comes_out_of_the_block() -> None:
    """A port in use is an error in the caller's thread."""
    with running_broker() as broker:
        config = BrokerConfig(memory=True, listeners=(ListenerConfig(url=broker.url),))
        with pytest.raises(ListenError, match="in use"):
            with running_broker(config):
                raise AssertionError("never reached")


def test_the_error_of_the_block_is_the_one_to_see() -> None:
    """And the broker is stopped all the same."""
    with pytest.raises(ZeroDivisionError):
        with running_broker() as broker:
            raise ZeroDivisionError
    assert not broker.alive


def test_stopping_twice_is_harmless() -> None:
    """A test may stop its broker in the middle."""
    with running_broker() as broker:
        broker.stop()
        assert not broker.alive
        broker.stop()


def test_the_brokers_own_thread_can_be_asked() -> None:
    """`call` runs plain and async functions with the Broker."""

    def kind(broker: Broker) -> str:
        return type(broker).__name__

    async def second(broker: Broker, number: int) -> int:
        await trio.lowlevel.checkpoint()
        return number

    with running_broker() as broker:
        assert broker.call(kind) == "Broker"
        assert broker.call(second, 7) == 7


def test_the_fixture_gives_a_fresh_broker(amqp_broker: RunningBroker) -> None:
    """The plugin is installed with the package."""
    with BlockingPeer.connect(amqp_broker.host, amqp_broker.port) as connection:
        connection.begin()


def test_a_memory_stream_is_served_as_a_socket_is() -> None:
    """No listener, no port: header for header."""

    async def main() -> bytes:
        async with open_broker(memory_config()) as broker, connected(broker) as stream:
            await stream.send_all(AMQP_HEADER)
            return bytes(await stream.receive_some(8))

    assert trio.run(main) == AMQP_HEADER


def test_a_silent_stranger_is_put_out_in_virtual_time() -> None:
    """Two seconds to the header (header_timeout_ms) pass without anybody sleeping."""

    async def main() -> float:
        async with open_broker(memory_config()) as broker, connected(broker) as stream:
            start = trio.current_time()
            while await stream.receive_some():
                continue
            return trio.current_time() - start

    assert run_with_virtual_clock(main) == pytest.approx(2.0, abs=0.5)


@pytest.mark.parametrize("name", [*package.__all__])
def test_every_public_name_of_the_package_can_be_had(name: str) -> None:
    """What `__all__` promises is there, and `dir()` shows it."""
    assert getattr(package, name) is not None
    assert name in dir(package)


def test_unknown_names_are_attribute_errors() -> None:
    """As of any module, and of the testing package."""
    import amqp_broker.testing as testing

    for module in (package, testing):
        with pytest.raises(AttributeError, match="nothing_of_the_kind"):
            module.nothing_of_the_kind  # noqa: B018
    for name in testing.__all__:
        assert getattr(testing, name) is not None
        assert name in dir(testing)


def test_frames_alone_load_no_broker() -> None:
    """A program that decodes messages elsewhere loads neither trio nor the store."""
    code = (
        "import sys, amqp_broker.frames, amqp_broker;"
        "heavy = {'trio', 'structlog', 'sqlite_utils', 'pysqlite3', 'scramp', 'amqp_broker.persistence'};"
        "loaded = heavy & set(sys.modules);"
        "sys.exit(f'loaded {loaded}' if loaded else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
