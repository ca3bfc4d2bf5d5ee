"""Two engines back to back, without a transport: what one writes the other reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amqp_broker.frames import Error, Source, Target
from amqp_broker.links import (
    AttachReceived,
    Connection,
    ConnectionSettings,
    Event,
    ReceiverLink,
    SaslInitReceived,
    SaslMechanismsReceived,
    SenderLink,
    Session,
)

NOW = 1_000.0


class Message:
    """A Sendable."""

    __slots__ = ("body", "header_bytes", "message_format")

    def __init__(self, body: bytes, header_bytes: bytes = b"", message_format: int = 0) -> None:
        self.body = body
        self.header_bytes = header_bytes
        self.message_format = message_format

    def __repr__(self) -> str:
        return f"<Message {len(self.header_bytes)}+{len(self.body)}>"


def taken(connection: Connection) -> bytes:
    """All that the engine wants to write."""
    parts = []
    while chunks := connection.data_to_send():
        parts.extend(chunks)
    return b"".join(parts)


class Pair:
    """A client and a server; `flush` carries bytes both ways until nothing moves.

    `answer` decides about attaches on the server (default: accept with credit 100).
    """

    def __init__(self, client: dict[str, Any] | None = None, server: dict[str, Any] | None = None) -> None:
        client_fields: dict[str, Any] = {"server": False, "container_id": "client", "sasl": False} | (
            client or {}
        )
        server_fields: dict[str, Any] = {"server": True, "container_id": "server"} | (server or {})
        self.now = NOW
        self.client = Connection(ConnectionSettings(**client_fields), self.now)
        self.server = Connection(ConnectionSettings(**server_fields), self.now)
        self.client_events: list[Event] = []
        self.server_events: list[Event] = []
        self.credit = 100
        self.answer: Callable[[AttachReceived], None] = self._accept

    def _accept(self, event: AttachReceived) -> None:
        event.link.accept(source=event.attach.source, target=event.attach.target, credit=self.credit)

    def _react(self, connection: Connection, event: Event) -> bool:
        if isinstance(event, AttachReceived):
            self.answer(event)
            return True
        if isinstance(event, SaslMechanismsReceived):
            connection.sasl_init(event.mechanisms[0])
        elif isinstance(event, SaslInitReceived):
            connection.sasl_outcome(0)
            return True
        return False

    def give(self, connection: Connection, data: bytes) -> list[Event]:
        """Feeds bytes to one engine and answers what wants an answer; all events of it."""
        mine = self.client_events if connection is self.client else self.server_events
        told: list[Event] = []
        events = connection.receive_data(data, self.now)
        while True:
            told.extend(events)
            again = [self._react(connection, event) for event in events]
            if not any(again):
                break
            events = connection.receive_data(b"", self.now)
        mine.extend(told)
        return told

    def flush(self) -> None:
        """Carries bytes both ways until nothing moves."""
        while True:
            up = taken(self.client)
            if up:
                self.give(self.server, up)
            down = taken(self.server)
            if down:
                self.give(self.client, down)
            if not up and not down:
                return

    def open(self) -> Pair:
        """Opens the connection."""
        self.client.open()
        self.flush()
        return self

    def begin(self) -> tuple[Session, Session]:
        """A session: (the client's, the server's)."""
        session = self.client.begin()
        self.flush()
        return session, self.server.incoming[session.channel]

    def sending_client(
        self, session: Session, name: str = "up", **fields: Any
    ) -> tuple[SenderLink, ReceiverLink]:
        """A link on which the client sends."""
        link = session.attach_sender(name, Source(address="a"), Target(address="b"), **fields)
        self.flush()
        remote = self.server.incoming[session.channel].input_links[link.handle]
        assert isinstance(remote, ReceiverLink)
        return link, remote

    def receiving_client(
        self, session: Session, name: str = "down", credit: int = 0, **fields: Any
    ) -> tuple[ReceiverLink, SenderLink]:
        """A link on which the client receives."""
        link = session.attach_receiver(
            name, Source(address="a"), Target(address="b"), credit=credit, **fields
        )
        self.flush()
        remote = self.server.incoming[session.channel].input_links[link.handle]
        assert isinstance(remote, SenderLink)
        return link, remote


def of_type(events: list[Event], kind: type) -> list[Any]:
    """The events of one kind."""
    return [event for event in events if isinstance(event, kind)]


def error_of(events: list[Event]) -> Error:
    """The error of the last event that has one."""
    for event in reversed(events):
        error = getattr(event, "error", None)
        if error is not None:
            assert isinstance(error, Error)
            return error
    raise AssertionError(f"no error in {events}")


def sending(
    client: dict[str, Any] | None = None, server: dict[str, Any] | None = None, **fields: Any
) -> tuple[Pair, SenderLink, ReceiverLink]:
    """Two engines with a link on which the client sends: its end, and the server's."""
    pair = Pair(client, server).open()
    return pair, *pair.sending_client(pair.begin()[0], **fields)


def receiving(
    client: dict[str, Any] | None = None, server: dict[str, Any] | None = None, **fields: Any
) -> tuple[Pair, ReceiverLink, SenderLink]:
    """Two engines with a link on which the client receives: its end, and the server's."""
    pair = Pair(client, server).open()
    return pair, *pair.receiving_client(pair.begin()[0], **fields)
