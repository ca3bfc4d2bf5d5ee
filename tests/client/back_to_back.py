"""The client's core and a server's engine, back to back: what one writes the other reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from amqp_broker.client.core import ClientCore
from amqp_broker.client.core_receiver import ReceiverCore
from amqp_broker.client.core_sender import SenderCore
from amqp_broker.client.core_session import SessionCore
from amqp_broker.client.pending import Pending
from amqp_broker.client.settings import ClientSettings, Endpoint
from amqp_broker.frames import encode_message
from amqp_broker.links import (
    AttachReceived,
    Connection,
    ConnectionSettings,
    DeliveriesReceived,
    Event,
    ReceiverLink,
    SaslInitReceived,
    SaslResponseReceived,
    SenderLink,
)
from tests.links.pair import NOW, Message

T = TypeVar("T")
Answer = Callable[[Any], None]


class BackToBack:
    """`flush` carries bytes both ways until nothing moves. `answers` are what the server does by event type;
    without one it accepts links with credit 100, takes any login, and leaves deliveries alone.
    """

    def __init__(self, settings: dict[str, Any] | None = None, server: dict[str, Any] | None = None) -> None:
        fields: dict[str, Any] = {"container_id": "client", **(settings or {})}
        self.now = NOW
        self.core = ClientCore(ClientSettings(**fields), Endpoint("127.0.0.1", 5672, tls=False), self.now)
        self.server = Connection(ConnectionSettings(server=True, **(server or {})), self.now)
        self.credit = 100
        self.events: list[Event] = []
        self.answers: dict[type, Answer] = {
            AttachReceived: self.accept_link,
            SaslInitReceived: lambda event: self.server.sasl_outcome(0),
        }

    def accept_link(self, event: AttachReceived) -> None:
        """What the server does with an attach."""
        event.link.accept(source=event.attach.source, target=event.attach.target, credit=self.credit)

    def flush(self) -> None:
        """Until nothing moves."""
        while True:
            up = _taken(self.core)
            if up:
                self._serve(self.server.receive_data(up, self.now))
            down = _taken(self.server)
            if down:
                self.core.receive_data(down, self.now)
            if not up and not down:
                return

    def _serve(self, events: list[Event]) -> None:
        while events:
            self.events += events
            asked = False
            for event in events:
                answer = self.answers.get(type(event))
                if answer is not None:
                    answer(event)
                asked = asked or type(event) in (AttachReceived, SaslInitReceived, SaslResponseReceived)
            events = self.server.receive_data(b"", self.now) if asked else self.server.take_events()

    def done(self, pending: Pending[T]) -> T:
        """The result after everything moved."""
        self.flush()
        return pending.result()

    def open(self) -> BackToBack:
        """Opens the connection."""
        self.done(self.core.open())
        return self

    def begin(self) -> SessionCore:
        """A session."""
        return self.done(self.core.begin())

    def sender(self, address: str = "orders", **fields: Any) -> tuple[SenderCore, ReceiverLink]:
        """A link of the client's on which it sends, and the server's end."""
        link: SenderCore = self.done(self.begin().attach_sender(address, **fields))
        remote = self.server_end(link)
        assert isinstance(remote, ReceiverLink)
        return link, remote

    def receiver(self, address: str | None = "orders", credit: int = 10) -> tuple[ReceiverCore, SenderLink]:
        """A link of the client's on which it receives, and the server's end."""
        link: ReceiverCore = self.done(self.begin().attach_receiver(address, credit))
        remote = self.server_end(link)
        assert isinstance(remote, SenderLink)
        return link, remote

    def server_end(self, link: SenderCore | ReceiverCore) -> Any:
        """The engine's link at the server."""
        return self.server.incoming[link.link.session.channel].input_links[link.link.handle]

    def received(self) -> list[bytes]:
        """The payloads that came to the server, in order."""
        deliveries = [event.deliveries for event in self.events if isinstance(event, DeliveriesReceived)]
        return [delivery.payload for run in deliveries for delivery in run]

    def answer_deliveries(self, state: Any) -> None:
        """From now on the server gives each delivery this outcome."""

        def answer(event: DeliveriesReceived) -> None:
            event.link.settle(event.deliveries, state)
            event.link.processed(len(event.deliveries))

        self.answers[DeliveriesReceived] = answer


def sendable(body: Any) -> Message:
    """A message as the server sends it."""
    return Message(encode_message(body=body))


def _taken(engine: ClientCore | Connection) -> bytes:
    parts: list[bytes | memoryview] = []
    while chunks := engine.data_to_send():
        parts.extend(chunks)
    return b"".join(parts)
