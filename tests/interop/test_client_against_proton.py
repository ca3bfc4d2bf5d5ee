"""Our client against a foreign server: a queue made of python-qpid-proton's listener."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import proton
import pytest
import trio
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector

from amqp_broker.client.async_client import open_client
from amqp_broker.client.blocking import connect
from amqp_broker.client.errors import Gone, MessageRefused
from amqp_broker.client.half_errors import HalfNotSupported
from amqp_broker.client.messages import message
from amqp_broker.frames import Ulong
from amqp_broker.testing.blocking_peer import PATIENCE_S

WAIT_S = PATIENCE_S


class ForeignQueue(MessagingHandler):
    """Takes messages, gives them to whoever has credit. The body `reject me` is rejected, `close me` closes
    the connection.
    """

    def __init__(self) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.listening = threading.Event()
        self.url = ""
        self.stored: deque[Any] = deque()
        self.told: list[str] = []
        self.injector = EventInjector()

    def on_start(self, event: Any) -> None:
        # proton shows the listening socket to nobody, and leaves it open.
        self.listener = event.container.listen("127.0.0.1:0")._selectable._delegate
        self.url = f"amqp://127.0.0.1:{self.listener.getsockname()[1]}"
        self.container = event.container
        self.container.selectable(self.injector)
        self.listening.set()

    def on_stop_now(self, event: Any) -> None:
        self.container.stop()

    def on_link_opening(self, event: Any) -> None:
        event.link.source.copy(event.link.remote_source)
        event.link.target.copy(event.link.remote_target)
        if event.link.is_receiver:
            event.link.flow(100)

    def on_message(self, event: Any) -> None:
        event.receiver.flow(1)
        if event.message.body == "reject me":
            self.reject(event.delivery)
        elif event.message.body == "close me":
            event.connection.condition = proton.Condition("amqp:connection:forced", "as you like")
            event.connection.close()
        else:
            self.stored.append(event.message)
            self.accept(event.delivery)

    def on_sendable(self, event: Any) -> None:
        while self.stored and event.sender.credit:
            event.sender.send(self.stored.popleft())

    def on_accepted(self, event: Any) -> None:
        self.told.append("accepted")

    def on_released(self, event: Any) -> None:
        self.told.append("released or modified")


@pytest.fixture
def foreign() -> Iterator[ForeignQueue]:
    """Listens on a free port, in a thread."""
    handler = ForeignQueue()
    thread = threading.Thread(target=Container(handler).run, daemon=True)
    thread.start()
    assert handler.listening.wait(WAIT_S)
    yield handler
    handler.injector.trigger(ApplicationEvent("stop_now"))
    thread.join(WAIT_S)
    handler.listener.close()


BODIES = ["text", b"octets" * 50_000, {"a": ["b", None, True]}, Ulong(7)]


def test_messages_go_both_ways(foreign: ForeignQueue) -> None:
    """Every kind of body, many at once, large ones in pieces; outcomes are understood."""
    with connect(foreign.url, timeout_s=WAIT_S) as connection:
        sender = connection.open_sender("anything")
        for body in BODIES:
            sender.send(message(body, subject="s", message_id="m", application_properties={"p": "v"}))
        with pytest.raises(MessageRefused, match="rejected"):
            sender.send("reject me")
        sender.send_many(range(500))
        receiver = connection.open_receiver("anything", credit=20)
        for body in BODIES:
            received = receiver.receive(WAIT_S)
            assert received.properties.subject == "s" and received.application_properties["p"] == "v"
            assert received.body == body
            receiver.accept(received)
        for number in range(500):
            received = receiver.receive(WAIT_S)
            assert received.body == number
            (receiver.accept if number % 2 else receiver.modify)(received)
        receiver.close()
        sender.send("the outcomes before this one were read")
    assert foreign.told.count("accepted") == 254 and foreign.told.count("released or modified") == 250


def test_a_foreign_server_knows_no_half_messages(foreign: ForeignQueue) -> None:
    """It takes any address: the producer notices before anything is lost."""
    with connect(foreign.url, timeout_s=WAIT_S) as connection:
        with pytest.raises(HalfNotSupported, match="expected the link property half-version 1"):
            with connection.producer("shop"):
                raise AssertionError("no such thing")


def test_its_close_reaches_trio(foreign: ForeignQueue) -> None:
    """With condition and description."""

    async def main() -> None:
        async with open_client(foreign.url) as client:
            sender = await client.open_sender("anything")
            await sender.send("text")
            with pytest.raises(Gone, match="amqp:connection:forced: as you like"):
                await sender.send("close me")

    trio.run(main)
