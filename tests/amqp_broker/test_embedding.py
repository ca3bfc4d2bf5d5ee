"""`running_broker`, the pytest fixture and the package's lazy door."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest
import trio

import amqp_broker as package
from amqp_broker.broker import Broker, open_broker
from amqp_broker.configuration import BrokerConfig, ListenerConfig
from amqp_broker.embedding import RunningBroker, memory_config, running_broker
from amqp_broker.frames import AMQP_HEADER, Begin
from amqp_broker.listener import ListenError
from amqp_broker.testing import FrameTrace, ScriptedFaults, connected, run_with_virtual_clock
from amqp_broker.testing.blocking_peer import PATIENCE_S, BlockingPeer, ConnectionLost
from amqp_broker.testing.peer import PeerError

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


def test_a_stop_is_immediate_and_tells_every_client() -> None:
    """Also while connections are open, and somebody does not answer; time stands still, so nobody waits."""
    for faults in (None, ScriptedFaults(FrameTrace())):
        with running_broker(faults=faults) as broker:
            broker.clock.deadline_to_sleep_time = lambda deadline: float("inf")  # type: ignore[method-assign]
            peers = [BlockingPeer.connect(broker.host, broker.port) for _ in range(3)]
            broker.call(lambda _: None)  # the loop sleeps by the clock that stands
        for peer in peers:
            with pytest.raises(PeerError, match="the broker is stopping"):
                peer.expect(Begin)
            peer.abort()


def test_who_is_given_time_to_close_has_it() -> None:
    """A grace is waited for until the last connection has ended."""
    with running_broker(grace_s=PATIENCE_S) as broker:
        peer = BlockingPeer.connect(broker.host, broker.port)
        ended = threading.Thread(target=broker.stop)
        ended.start()
        with pytest.raises(PeerError, match="the broker is stopping"):
            peer.expect(Begin)
        assert broker.alive
        peer.abort()
        ended.join()
        assert not broker.alive


def test_a_call_to_a_broker_that_has_stopped_says_so() -> None:
    """And one that is in progress ends with it."""
    with running_broker() as broker:
        waits = threading.Event()
        errors: list[BaseException] = []

        async def wait(_: Broker) -> None:
            waits.set()
            await trio.sleep_forever()

        def ask() -> None:
            try:
                broker.call(wait)
            except RuntimeError as error:
                errors.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        assert waits.wait(PATIENCE_S)
        broker.stop()
        asking.join()
        for call in (lambda: broker.call(wait), lambda: broker.clock.advance(1)):
            with pytest.raises(RuntimeError, match="has stopped"):
                call()
        assert ["has stopped" in str(error) for error in errors] == [True]


@pytest.mark.parametrize("run", [asyncio.run, trio.run], ids=["asyncio", "trio"])
def test_an_event_loop_goes_on_beside_a_broker(run: Any) -> None:
    """`async with`, and `until` leaves the loop to others; what ends the block ends the broker."""
    found: list[RunningBroker] = []

    async def main() -> None:
        async with running_broker() as broker:
            found.append(broker)
            broker.declare("orders")
            await broker.until(lambda: broker.queues() == ["orders"])
            with pytest.raises(TimeoutError, match=r"0\.01 s; messages in queues: {'orders': 0}"):
                await broker.until(lambda: False, 0.01)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        if run is trio.run:
            trio.run(main)
        else:
            asyncio.run(main())
    assert not found[0].alive


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
