"""The asynchronous client: over memory streams and a virtual clock, and over real sockets on both loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import anyio.abc
import pytest
import trio
import trio.testing

from amqp_broker.broker import Broker, open_broker
from amqp_broker.client import async_pump
from amqp_broker.client.async_client import Client, open_client
from amqp_broker.client.errors import (
    ConnectFailed,
    ConnectionGone,
    LinkGone,
    LinkRefused,
    LoginRefused,
    MessageRefused,
    SessionGone,
)
from amqp_broker.client.groups import one_error
from amqp_broker.client.messages import message
from amqp_broker.embedding import memory_config, running_broker
from amqp_broker.frames import AMQP_HEADER, Open, encode_frame
from amqp_broker.testing import ScriptedFaults, connected, run_with_virtual_clock
from tests.amqp_broker.test_listener import Keys
from tests.amqp_broker.test_listener import keys as keys
from tests.amqp_broker.test_logins import config
from tests.support.both_loops import OfTrio, on_both_loops
from tests.support.by_hand import Main, drives, in_virtual_time

URL = "amqp://127.0.0.1"


@asynccontextmanager
async def client_of(broker: Broker) -> AsyncIterator[Client]:
    """A client over a memory stream."""
    async with connected(broker) as stream, open_client(URL, stream=OfTrio(stream)) as client:
        yield client


def run_with_client(function: Main, faults: ScriptedFaults | None = None) -> None:
    """Run it with a client and its broker in memory, by a virtual clock."""

    async def main() -> None:
        async with open_broker(memory_config(listeners=()), faults=faults) as broker:
            async with client_of(broker) as client:
                await function(client, broker)

    run_with_virtual_clock(main)


with_client = drives(run_with_client, given=2)


# --- messages


@with_client
async def test_send_receive_and_outcomes(client: Client, broker: Broker) -> None:
    """Accepted is gone, modified comes again, rejected does not; settling does not wait."""
    sender = await client.open_sender("orders")
    for number in range(3):
        await sender.send(message(f"order {number}", subject="new"))
    receiver = await client.open_receiver("orders", credit=1)
    receiver.accept(await receiver.receive())
    receiver.reject(await receiver.receive())
    tried = await receiver.receive()
    receiver.modify(tried)
    again = await receiver.receive()
    assert (again.body, again.header.delivery_count) == ("order 2", 1)
    assert again.properties.subject == "new"
    receiver.accept(again)
    assert await receiver.receive_now() is None


@with_client
async def test_many_messages_in_a_window(client: Client, broker: Broker) -> None:
    """In order, each once, more of them than any window takes."""
    assert await (await client.open_sender("orders")).send_many(range(5_000)) == 5_000
    receiver = await client.open_receiver("orders", credit=500)
    seen = 0
    async for received in receiver:
        assert received.body == seen
        receiver.accept(received)
        seen += 1
        if seen == 5_000:
            break


@with_client
async def test_tasks_share_links(client: Client, broker: Broker) -> None:
    """Many senders and receivers on one link each; every message is had once."""
    sender = await client.open_sender("orders")
    receiver = await client.open_receiver("orders", credit=7)
    seen: list[int] = []

    async def consume() -> None:
        async for received in receiver:
            seen.append(received.body)
            await trio.lowlevel.checkpoint()
            receiver.accept(received)
            if len(seen) == 100:
                consumers.cancel_scope.cancel()

    async with trio.open_nursery() as consumers:
        for _ in range(5):
            consumers.start_soon(consume)
        for number in range(100):
            consumers.start_soon(sender.send, number)
    assert sorted(seen) == list(range(100))


@with_client
async def test_a_dynamic_node_and_settled_messages(client: Client, broker: Broker) -> None:
    """The broker makes up a name; settled messages need no answer."""
    replies = await client.open_receiver(None)
    sender = await client.open_sender(replies.address)
    await sender.send("one", settled=True)
    assert (await replies.receive()).body == "one"


# --- cancelling


def test_cancelling_a_send_without_credit_sends_nothing() -> None:
    """What was given up does not go out with later credit."""
    faults = ScriptedFaults()
    faults.grant_no_credit()

    async def main(client: Client, broker: Broker) -> None:
        sender = await client.open_sender("orders")
        with trio.move_on_after(1) as scope:
            await sender.send("one")
        assert scope.cancelled_caught and sender.core.waiting == 0

    run_with_client(main, faults)


@with_client
async def test_cancelling_a_receive_loses_nothing(client: Client, broker: Broker) -> None:
    """Nobody but the next one who receives gets the message."""
    receiver = await client.open_receiver("orders")
    with trio.move_on_after(1) as scope:
        await receiver.receive()
    assert scope.cancelled_caught
    await (await client.open_sender("orders")).send("one")
    assert (await receiver.receive()).body == "one"


@with_client
async def test_cancelling_an_attach_undoes_it(client: Client, broker: Broker) -> None:
    """A receiver that nobody has does not hold messages."""
    session = await client.open_session()
    await (await client.open_sender("orders")).send("one")
    with trio.CancelScope() as scope:
        scope.cancel()
        await session.open_receiver("orders")
    assert scope.cancelled_caught
    receiver = await client.open_receiver("orders")
    assert (await receiver.receive()).body == "one"


@with_client
async def test_draining_that_is_cancelled_leaves_the_flow_on(client: Client, broker: Broker) -> None:
    """The level of credit is as before."""
    receiver = await client.open_receiver("orders")
    with trio.CancelScope() as scope:
        scope.cancel()
        await receiver.receive_now()
    await (await client.open_sender("orders")).send("one")
    assert (await receiver.receive()).body == "one"


# --- time


@with_client
async def test_a_quiet_connection_lives(client: Client, broker: Broker) -> None:
    """Heartbeats both ways through ten minutes of nothing (2.4.5)."""
    sender = await client.open_sender("orders")
    await trio.sleep(600)
    await sender.send("one")


@in_virtual_time
async def test_a_silent_server_is_left() -> None:
    """No open within open_timeout_s, by the loop's clock."""
    ours, theirs = trio.testing.memory_stream_pair()
    began = trio.current_time()
    with pytest.raises(ConnectionGone, match="no open within 10 s"):
        async with open_client(URL, stream=OfTrio(ours)):
            raise AssertionError("it never opened")
    assert trio.current_time() - began == pytest.approx(10, abs=0.5)
    assert (await theirs.receive_some()).startswith(b"AMQP")


@in_virtual_time
async def test_a_server_that_does_not_close_is_left() -> None:
    """After close_timeout_s, and what it does not read after a grace."""
    ours, theirs = trio.testing.memory_stream_pair()
    await theirs.send_all(AMQP_HEADER + encode_frame(0, Open(container_id="deaf")))
    began = trio.current_time()
    async with open_client(URL, stream=OfTrio(ours), sasl=False) as client:
        assert client.remote_open.container_id == "deaf"
    assert client.gone == "we closed it"
    assert trio.current_time() - began < 5 + async_pump.CLOSE_GRACE_S + 1


# --- what goes wrong


@in_virtual_time
async def test_errors_of_the_block_come_as_they_are() -> None:
    """Not as groups: that there are tasks inside is no matter of the caller's."""
    async with open_broker(memory_config(listeners=())) as broker, connected(broker) as stream:
        with pytest.raises(ValueError, match="mine"):
            async with open_client(URL, stream=OfTrio(stream)):
                raise ValueError("mine")


def test_errors_of_several_kinds_stay_a_group() -> None:
    """One end of a connection that many saw is one error, all else is told as it is."""
    with pytest.raises(ConnectionGone, match="first"), one_error():
        raise ExceptionGroup("", [ConnectionGone("first"), ExceptionGroup("", [LinkGone("second")])])
    with pytest.raises(ExceptionGroup) as caught, one_error():
        raise ExceptionGroup("", [ConnectionGone("first"), ValueError("second")])
    assert len(caught.value.exceptions) == 2


def test_refusals_say_why() -> None:
    """A link, a message, a session that was ended, a link that was closed; the connection goes on."""
    faults = ScriptedFaults()

    async def main(client: Client, broker: Broker) -> None:
        with pytest.raises(LinkRefused, match="amqp:not-found"):
            await client.open_sender("$nope")
        sender = await client.open_sender("orders")
        faults.refuse_commit()
        with pytest.raises(MessageRefused, match="amqp:resource-limit-exceeded"):
            await sender.send("one")
        faults.refuse_commit(count=2)  # that of the first ones, and of the first one alone
        with pytest.raises(MessageRefused):
            await sender.send_many(range(200))
        session = await client.open_session()
        other = await session.open_sender("orders")
        session.end()
        with pytest.raises(SessionGone):
            await other.send("one")
        receiver = await client.open_receiver("orders")
        receiver.set_credit(1)
        receiver.close()
        with pytest.raises(LinkGone):
            while True:
                await receiver.receive()
        sender.core.link.session.context.end()
        sender = await client.open_sender("orders")
        await sender.send("three")
        sender.close()
        with pytest.raises(LinkGone):
            await sender.send("four")

    run_with_client(main, faults)


@in_virtual_time
async def test_a_transport_that_breaks() -> None:
    """The reason is told, and the end of the block does not hang."""
    ours, theirs = trio.testing.memory_stream_pair()
    await theirs.send_all(AMQP_HEADER + encode_frame(0, Open(container_id="short")))
    async with open_client(URL, stream=OfTrio(ours), sasl=False) as client:
        await theirs.send_stream.aclose()
        with pytest.raises(ConnectionGone, match="the peer ended the transport without a close"):
            await client.open_session()


# --- real sockets, on both loops


@on_both_loops
async def test_nobody_listens() -> None:
    """The error names the endpoint and the system's reason."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
    with pytest.raises(ConnectFailed, match=f"expected a listener at amqp://127.0.0.1:{port}, but"):
        async with open_client(f"amqp://127.0.0.1:{port}"):
            raise AssertionError("nobody listens")


@on_both_loops
async def test_a_listener_that_never_answers_is_left() -> None:
    """TLS with one that says nothing: the error says how long was waited."""
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        with pytest.raises(ConnectFailed, match="nothing within 0.1 s"):
            async with open_client(f"amqps://127.0.0.1:{port}", open_timeout_s=0.1):
                raise AssertionError("nobody answers")


@on_both_loops
async def test_the_same_client_on_both_loops() -> None:
    """Sending, many at once, receiving, draining; what is cancelled has changed nothing."""
    with running_broker() as broker:
        async with open_client(broker.url) as client:
            sender = await client.open_sender("orders")
            assert await sender.send_many(range(1_000)) == 1_000
            receiver = await client.open_receiver("orders", credit=50)
            for number in range(1_000):
                received = await receiver.receive()
                assert received.body == number
                receiver.accept(received)
            assert await receiver.receive_now() is None
            with pytest.raises(TimeoutError), anyio.fail_after(0.01):
                await receiver.receive()
            await sender.send("one more")
            assert (await receiver.receive()).body == "one more"


def test_a_task_of_asyncio_that_is_cancelled_loses_nothing() -> None:
    """By asyncio's own means, which know nothing of ours."""

    async def main(url: str) -> None:
        async with open_client(url) as client:
            receiver = await client.open_receiver("orders")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await receiver.receive()
            waiting = asyncio.ensure_future(receiver.receive())
            await anyio.wait_all_tasks_blocked()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            sender = await client.open_sender("orders")
            await asyncio.gather(*(sender.send(number) for number in range(10)))
            assert [(await receiver.receive()).body for _ in range(10)] == [*range(10)]

    with running_broker() as broker:
        asyncio.run(main(broker.url))


@on_both_loops
async def test_a_broker_that_stops_ends_what_waits() -> None:
    """Its condition reaches every task."""
    with running_broker() as broker:
        async with open_client(broker.url) as client:
            receiver = await client.open_receiver("orders")
            heard: list[str | None] = []

            async def wait() -> None:
                with pytest.raises(ConnectionGone) as caught:
                    await receiver.receive()
                heard.append(caught.value.condition)

            async with anyio.create_task_group() as tasks:
                for _ in range(3):
                    tasks.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                await anyio.to_thread.run_sync(broker.stop)
            assert heard == ["amqp:connection:forced"] * 3
            await client.close()


@on_both_loops
async def test_tls_and_a_login(keys: Keys) -> None:
    """SCRAM inside TLS; a wrong password and an unknown authority are told apart."""
    with running_broker(config(listeners=(keys.listener(),))) as broker:
        url = broker.url.replace("//", "//ada:word@")
        async with open_client(url, ssl_context=keys.client()) as client:
            await (await client.open_sender("orders.new")).send(bytes(1_000_000))
        with pytest.raises(LoginRefused, match="code 1"):
            async with open_client(url, ssl_context=keys.client(), password="other"):
                raise AssertionError("no login")
        with pytest.raises(ConnectFailed, match="(?i)certificate"):
            async with open_client(url):
                raise AssertionError("no trust")
