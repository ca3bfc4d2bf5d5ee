"""Each connection logs its end once, with the reason, in whatever way it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import trio
import trio.testing

from amqp_broker import connection_task
from amqp_broker.authorisation import Authoriser
from amqp_broker.broker import Broker
from amqp_broker.frames import AMQP_HEADER, EMPTY_FRAME, Begin, Close, End, Error, Flow
from amqp_broker.nodes.queue_sink import QueueSink
from amqp_broker.testing import run_with_virtual_clock
from amqp_broker.transport import StreamTransport
from tests.amqp_broker.test_connection_task import Peer, serving

Ends = Callable[[Broker, Peer], Awaitable[None]]
GONE = Error(condition="amqp:connection:forced", description="enough")


class Told:
    """A logger that keeps its events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def bind(self, **_: Any) -> Told:
        """The same, whatever it is bound to."""
        return self

    def info(self, event: str, /, **fields: Any) -> None:
        """Keep an event."""
        self.events.append((event, fields))

    warning = exception = info

    def fields(self, event: str) -> list[dict[str, Any]]:
        """Those of each event of this name."""
        return [fields for name, fields in self.events if name == event]


class Wire(StreamTransport):
    """A transport that a test breaks on one side."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        super().__init__(stream)
        self.reading = trio.CancelScope()
        self.breaks_at_once = self.breaks_later = self.stalls = False
        wires.append(self)

    async def receive(self) -> bytes:
        """What came, until the test cancels `reading`."""
        with self.reading:
            data = await super().receive()
            self.reading = trio.CancelScope()
            return data
        raise trio.BrokenResourceError("reset while the broker read")

    def send_now(self, data: bytes) -> int:
        """Nothing goes at once."""
        if self.breaks_at_once:
            raise trio.BrokenResourceError("reset while the broker wrote")
        return 0

    async def send_all(self, data: bytes | memoryview) -> None:
        """All of it, some time."""
        if self.breaks_later:
            raise trio.BrokenResourceError("reset while the broker wrote")
        if self.stalls:
            await trio.sleep_forever()
        await super().send_all(data)


wires: list[Wire] = []


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """What connections log; their transports are in `wires`."""
    found = Told()
    wires.clear()
    monkeypatch.setattr(connection_task, "logger", lambda _: found)
    monkeypatch.setattr(connection_task, "transport_of", Wire)
    return found


def end_of(told: Told, ends: Ends) -> tuple[str, str | None]:
    """How the only connection says that it ended: why, and the condition of the close."""

    async def main() -> None:
        async with serving() as (broker, connect):
            peer = connect()
            await peer.hello()
            await peer.until(Begin)
            await ends(broker, peer)
            while broker._connections:
                await trio.sleep(1)

    run_with_virtual_clock(main)
    assert len(told.fields("connection.opened")) == 1
    (closed,) = told.fields("connection.closed")
    return closed["why"], closed["condition"]


async def ask_for_an_answer(peer: Peer) -> None:
    """The broker has something to write."""
    await peer.say(
        Flow(next_incoming_id=0, incoming_window=9, next_outgoing_id=0, outgoing_window=9, echo=True)
    )


async def peer_closes(_: Broker, peer: Peer) -> None:
    """The other side has had enough, and waits for the answer."""
    await peer.say(Close())
    await peer.until(Close)


async def peer_closes_with_an_error(_: Broker, peer: Peer) -> None:
    """It says why."""
    await peer.say(Close(error=GONE))


async def peer_closes_and_ends(_: Broker, peer: Peer) -> None:
    """It does not wait for the answer."""
    await peer.say(Close())
    await peer.stream.aclose()


async def peer_ends(_: Broker, peer: Peer) -> None:
    """The transport is at its end."""
    await peer.stream.aclose()


async def peer_is_silent(_: Broker, peer: Peer) -> None:
    """For twice the idle-time-out."""
    await peer.until(Close)


async def peer_breaks_a_rule(_: Broker, peer: Peer) -> None:
    """It ends a session twice."""
    await peer.say(End(), End())
    await peer.until(Close)


async def reads_break(_: Broker, peer: Peer) -> None:
    """The transport is reset while the broker waits for something to read."""
    wires[-1].reading.cancel()


async def writes_break_at_once(_: Broker, peer: Peer) -> None:
    """It is reset when the socket is to take something."""
    wires[-1].breaks_at_once = True
    await ask_for_an_answer(peer)


async def writes_break_later(_: Broker, peer: Peer) -> None:
    """It is reset while the rest is written."""
    wires[-1].breaks_later = True
    await ask_for_an_answer(peer)


async def writes_stall(broker: Broker, peer: Peer) -> None:
    """The peer is there, and reads nothing."""
    wires[-1].stalls = True
    await ask_for_an_answer(peer)
    while broker._connections:
        await trio.sleep(10)
        with suppress(trio.BrokenResourceError):
            await peer.stream.send_all(EMPTY_FRAME)


async def broker_stops(broker: Broker, peer: Peer) -> None:
    """And the peer answers its close."""
    for task in broker._connections:
        task.stop()
    await peer.until(Close)
    await peer.say(Close())


async def broker_stops_and_peer_ends(broker: Broker, peer: Peer) -> None:
    """The peer does not answer."""
    for task in broker._connections:
        task.stop()
    await peer.until(Close)
    await peer.stream.aclose()


@pytest.mark.parametrize(
    ("ends", "why", "condition"),
    [
        (peer_closes, "peer's close", None),
        (peer_closes_with_an_error, "peer's close", "amqp:connection:forced"),
        (peer_closes_and_ends, "peer's close", None),
        (peer_ends, "end without close", None),
        (peer_is_silent, "our close", "amqp:resource-limit-exceeded"),
        (peer_breaks_a_rule, "our close", "amqp:not-allowed"),
        (reads_break, "reset while reading", None),
        (writes_break_at_once, "reset while writing", None),
        (writes_break_later, "reset while writing", None),
        (writes_stall, "write stalled", None),
        (broker_stops, "broker stopping", "amqp:connection:forced"),
        (broker_stops_and_peer_ends, "broker stopping", "amqp:connection:forced"),
    ],
)
def test_an_open_connection_logs_its_end_once(
    told: Told, ends: Ends, why: str, condition: str | None
) -> None:
    """With the reason, and with the condition of the close if there was one."""
    assert end_of(told, ends) == (why, condition)


def test_a_fault_of_ours_is_the_reason(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the entry with the trace."""

    def fail(*_: Any) -> None:
        raise AssertionError("planted")

    async def peer_sends(_: Broker, peer: Peer) -> None:
        await peer.send_to("q", 1)
        await peer.until(Close)

    monkeypatch.setattr(QueueSink, "on_deliveries", fail)
    assert end_of(told, peer_sends) == ("internal error", "amqp:internal-error")
    assert len(told.fields("connection.internal_error")) == 1


@pytest.mark.parametrize("answers", [True, False])
def test_who_may_not_connect_is_closed_by_us(
    told: Told, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    """Whether the peer answers our close or not."""
    monkeypatch.setattr(Authoriser, "authorise", lambda *_: False)

    async def main() -> None:
        async with serving() as (broker, connect):
            peer = connect()
            await peer.hello()
            await peer.until(Close)
            if answers:
                await peer.say(Close())
            await peer.stream.aclose()
            while broker._connections:
                await trio.sleep(1)

    run_with_virtual_clock(main)
    (closed,) = told.fields("connection.closed")
    assert (closed["why"], closed["condition"]) == ("our close", "amqp:unauthorized-access")


@pytest.mark.parametrize("hello", [b"", AMQP_HEADER])
def test_a_connection_that_never_opens_says_so_once(told: Told, hello: bytes) -> None:
    """It is dropped when the time for its header or its open is over."""

    async def main() -> None:
        async with serving() as (broker, connect):
            await connect().stream.send_all(hello)
            await trio.testing.wait_all_tasks_blocked()
            while broker._connections:
                await trio.sleep(1)

    run_with_virtual_clock(main)
    (closed,) = told.fields("connection.closed")
    assert closed["why"] == "our close" and not told.fields("connection.opened")


def test_a_connection_that_is_cut_off_with_its_broker_says_so(told: Told) -> None:
    """The grace is over, and nobody waits for the peer any more."""

    async def main() -> None:
        async with serving() as (_, connect):
            peer = connect()
            await peer.hello()
            await peer.until(Begin)

    run_with_virtual_clock(main)
    (closed,) = told.fields("connection.closed")
    assert closed["why"] == "broker stopping"
