"""`broker.clock.advance`: what is due happens, and nobody waits for it."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import trio

from amqp_broker.broker import Broker
from amqp_broker.client import Resolution, connect, message
from amqp_broker.embedding import RunningBroker, running_broker
from amqp_broker.frames import AMQP_HEADER, Long
from amqp_broker.testing import FrameTrace, ScriptedFaults
from amqp_broker.testing.blocking_peer import BlockingPeer
from amqp_broker.testing.clock import rest

HOUR_S = 3_600
DAY_S = 24 * HOUR_S
ROUNDED_MS = 1


def test_a_message_expires() -> None:
    """Not before its time, and without a consumer or anybody who waits."""
    with running_broker() as broker, connect(broker.url) as connection:
        connection.open_sender("orders").send(message("soon stale", ttl_ms=HOUR_S * 1_000))
        broker.clock.advance(HOUR_S - 60)
        assert broker.depth("orders") == 1
        broker.clock.advance(61)
        assert broker.depth("orders") == 0


def test_a_day_less_a_minute_is_less_than_a_day() -> None:
    """Something is due every ten seconds, and at last the broker is busy for half a real one: neither makes
    the day longer.
    """
    blocked_s = 0.5

    async def busy(running: Broker) -> None:
        trio.lowlevel.spawn_system_task(wakes)

    async def wakes() -> None:
        for _ in range(10):
            await trio.sleep(10)
        until = time.perf_counter() + blocked_s
        while time.perf_counter() < until:  # as a busy machine does
            pass

    with running_broker() as broker, connect(broker.url) as connection:
        connection.open_sender("orders").send(message("soon stale", ttl_ms=DAY_S * 1_000))
        broker.call(busy)
        began = time.perf_counter()
        before_ms = broker.clock.wall_ms()
        broker.clock.advance(DAY_S - 60)
        passed_ms = broker.clock.wall_ms() - before_ms
        beside_s = time.perf_counter() - began - blocked_s
        assert broker.depth("orders") == 1
        assert 0 <= passed_ms + ROUNDED_MS - (DAY_S - 60) * 1_000 <= beside_s * 1_000 + 3 * ROUNDED_MS
        broker.clock.advance(61)
        assert broker.depth("orders") == 0


def test_two_may_move_it_on_at_once() -> None:
    """From two threads: each adds its time, and then it goes on."""
    with running_broker() as broker, ThreadPoolExecutor(2) as threads:
        before_ms = broker.clock.wall_ms()
        list(threads.map(broker.clock.advance, (HOUR_S, HOUR_S)))
        after_ms = broker.clock.wall_ms()
        assert after_ms - before_ms >= 2 * HOUR_S * 1_000 - ROUNDED_MS
        broker.wait_until(lambda: broker.clock.wall_ms() > after_ms)


def test_a_producer_is_asked_what_became_of_its_half_message() -> None:
    """The check-back that comes after six seconds comes at once."""
    with running_broker() as broker, connect(broker.url) as connection:
        asked: list[object] = []

        def check(half: object) -> Resolution:
            asked.append(half)
            return Resolution.COMMIT

        with connection.producer("shop", check) as producer:
            producer.send_in_transaction("orders", "one", lambda _: Resolution.UNKNOWN, half_id="h")
            assert broker.depth("orders") == 0
            broker.clock.advance(7)
            broker.wait_until(lambda: broker.depth("orders") == 1)
            assert len(asked) == 1


def test_the_clock_on_the_wall_goes_on_with_it() -> None:
    """A message for tomorrow comes tomorrow, and nobody says that the clock was set."""
    with running_broker() as broker:
        before = broker.clock.wall_ms()
        broker.clock.advance(24 * HOUR_S)
        assert broker.clock.wall_ms() >= before + 24 * HOUR_S * 1_000 - ROUNDED_MS

        def shown(running: object) -> int:
            clock = running.clock  # type: ignore[attr-defined]
            found: int = clock.shown(clock.now_ms()) - broker.clock.wall_ms()
            return found

        assert abs(broker.call(shown)) < 1_000


def test_no_peer_counts_as_silent_for_it() -> None:
    """Neither one that is idle, nor one that has not said a word yet: nobody gave them the time."""
    with running_broker() as broker, BlockingPeer.connect(broker.host, broker.port) as idle:
        with socket.create_connection((broker.host, broker.port)) as stranger:
            broker.wait_until(lambda: len(broker.entities("connection")) == 2)
            broker.clock.advance(HOUR_S)
            stranger.sendall(AMQP_HEADER)
            assert stranger.recv(8) == AMQP_HEADER
        idle.begin()
        broker.clock.advance(HOUR_S)
        assert idle.begin() is not None


def test_no_stop_is_made_for_who_is_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A day with clients has no more stops than one without: nobody is told every 15 s that the other side
    is still there.
    """
    stops = []

    async def counted() -> None:
        stops.append(1)
        await rest()

    monkeypatch.setattr("amqp_broker.testing.clock.rest", counted)
    faults = ScriptedFaults(FrameTrace())
    with running_broker(faults=faults) as broker, connect(broker.url), connect(broker.url):
        broker.clock.advance(60)  # what follows the opens
        said = len(broker.trace.frames)
        stops.clear()
        broker.clock.advance(DAY_S)
        assert len(stops) <= 3
        assert len(broker.trace.frames) == said


def test_peers_hear_from_the_broker_again_when_time_goes_on_by_itself() -> None:
    """After half of what a peer wants to hear something in."""
    with running_broker() as broker, BlockingPeer.connect(broker.host, broker.port) as peer:
        broker.call(set_heartbeat, 200)
        broker.clock.advance(DAY_S)
        assert peer.pump(10)


def set_heartbeat(broker: Broker, milliseconds: int) -> None:
    """Every peer wants to hear something so often."""
    for task in broker.connections():
        task.engine.timers.remote_idle_time_out(milliseconds)


def test_time_does_not_go_back(amqp_broker: RunningBroker) -> None:
    """Nor by what is no number."""
    for seconds in (-1, float("nan")):
        with pytest.raises(ValueError, match="from 0 on"):
            amqp_broker.clock.advance(seconds)


SLOW = "[[queue]]\npattern = 'orders'\nconsumer_timeout_ms = 5_000\n"


def test_what_looks_again_and_again_has_looked() -> None:
    """A consumer that keeps a message is found by four looks: one advance has all of them."""
    with running_broker(SLOW) as broker, connect(broker.url) as connection:
        connection.open_sender("orders").send("one")
        connection.open_receiver("orders", credit=1).receive(timeout_s=10)
        broker.clock.advance(10)
        assert broker.entities("queue")[0]["consumers"] == 0


def test_things_happen_in_the_order_of_their_times() -> None:
    """Of two that are due within one advance, the earlier one first."""
    with running_broker() as broker, connect(broker.url) as connection:
        later = {"x-opt-delivery-delay": Long(20_000)}
        sender = connection.open_sender("orders")
        sender.send(message("second", message_annotations={**later}))
        sender.send(message("first", message_annotations={"x-opt-delivery-delay": Long(10_000)}))
        receiver = connection.open_receiver("orders", credit=2)
        broker.clock.advance(HOUR_S)
        assert [receiver.receive(timeout_s=10).body for _ in range(2)] == ["first", "second"]


@pytest.mark.parametrize("seconds", [-1, float("nan"), "5", None])
def test_only_a_time_can_be_advanced(seconds: Any) -> None:
    """Time never goes back, and a text is none."""
    with running_broker() as broker, pytest.raises(ValueError, match="expected a number from 0 on"):
        broker.clock.advance(seconds)
