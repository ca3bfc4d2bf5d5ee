"""The client as a machine without I/O: one connection of our own engine, and what is waited for on it.

    connection = ClientCore(settings, endpoint, now)
    opened = connection.open()                       # a Pending; so is the answer of everything below
    transport.write(connection.data_to_send())       # until it is empty
    connection.receive_data(transport.read(), now)   # ends pendings: opened.done, opened.result()
    session = connection.begin().result()
    sender = session.attach_sender("orders").result()
    outcome = sender.send(message("hello")).result()

A shell calls, writes, reads, and waits at pendings. It asks `next_deadline`, calls `handle_timeout` then, and
closes the transport when `wants_close` is True and all is written. Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from amqp_broker.client.core_login import CoreLogin, engine_settings
from amqp_broker.client.core_session import SessionCore
from amqp_broker.client.errors import ConnectionGone, OutcomeUnknown, WrongUse, shown
from amqp_broker.client.pending import Pending
from amqp_broker.client.settings import ClientSettings, Endpoint
from amqp_broker.frames import Error, Open
from amqp_broker.links import (
    AttachReceived,
    Connection,
    ConnectionClosed,
    ConnectionOpened,
    CreditDrained,
    CreditReceived,
    DeliveriesReceived,
    Event,
    FlowReceived,
    LinkAttached,
    LinkDetached,
    LocalProtocolError,
    OutcomesReceived,
    SessionBegun,
    SessionEnded,
)

if TYPE_CHECKING:
    from amqp_broker.client.core_sender import SenderCore


class ClientCore:
    """One connection as its client sees it. `gone` says why it ended, None as long as it has not."""

    def __init__(self, settings: ClientSettings, endpoint: Endpoint, now: float) -> None:
        self.settings = settings
        self.endpoint = endpoint
        self.gone: str | None = None
        self.stalled: set[SenderCore] = set()
        """Senders with messages that wait for credit, window or room in the output."""
        self.remote_open: Open | None = None
        self._gone_error: Error | None = None
        self._finished: list[Pending[Any]] = []
        self._links = 0
        self._opening: Pending[Open] = self.pending("the peer's open")
        self._closing: Pending[None] = self.pending("the peer's close")
        self._engine = Connection(engine_settings(settings, endpoint), now)
        self._login = CoreLogin(self._engine, settings, endpoint)
        self._handlers: dict[type, Callable[[Any], None]] = {
            ConnectionOpened: self._on_opened,
            ConnectionClosed: self._on_closed,
            SessionBegun: self._on_begun,
            SessionEnded: self._on_ended,
            AttachReceived: self._on_attach,
            LinkAttached: lambda event: event.link.context.on_attached(event.attach),
            LinkDetached: lambda event: event.link.context.on_detached(event),
            CreditReceived: lambda event: event.link.context.on_credit(),
            FlowReceived: lambda event: event.link.flow_handled(),
            OutcomesReceived: lambda event: event.link.context.on_outcomes(event),
            DeliveriesReceived: lambda event: event.link.context.on_deliveries(event.deliveries),
            CreditDrained: lambda event: event.link.context.on_drained(),
            **self._login.handlers,
        }

    def __repr__(self) -> str:
        return f"<ClientCore {self.endpoint} {self.gone or self._engine.state.value}>"

    # --- the transport's side

    def receive_data(self, data: bytes, now: float) -> None:
        """Takes what was read."""
        self._handle(self._engine.receive_data(data, now))

    def receive_eof(self, now: float, why: str = "the peer ended the transport without a close") -> None:
        """The transport is at its end or broken, for the reason `why`; nothing more comes."""
        if self.gone is None:
            self.gone = why
        self._handle(self._engine.receive_eof(now))

    def data_to_send(self) -> list[bytes]:
        """Takes what is to be written. Call again after writing, until it is empty."""
        chunks = self._engine.data_to_send()
        if chunks:
            for sender in list(self.stalled):
                sender.go_on()
        return chunks

    @property
    def wants_close(self) -> bool:
        """Write what waits, then close the transport."""
        return self._engine.wants_close

    def next_deadline(self) -> float | None:
        """When `handle_timeout` is to be called, on the clock of `now`; None: no need."""
        return self._engine.next_deadline()

    def handle_timeout(self, now: float) -> None:
        """Does what is due; harmless when nothing is."""
        self._handle(self._engine.handle_timeout(now))

    def take_finished(self) -> list[Pending[Any]]:
        """The pendings with a waiter that ended since the last call. Ask after every other call."""
        finished = self._finished.copy()
        self._finished.clear()
        return finished

    # --- the caller's side

    def open(self) -> Pending[Open]:
        """Begins; the answer is the peer's open. Called once."""
        self._engine.open()
        return self._opening

    def begin(self) -> Pending[SessionCore]:
        """A session of its own; a connection has at most 64."""
        begun: Pending[SessionCore] = self.pending("the peer's begin")
        if self.gone is not None:
            begun.fail(self.gone_error(begun.what))
            return begun
        try:
            SessionCore(self, self._engine.begin(), begun)
        except LocalProtocolError as error:
            begun.fail(WrongUse(f"expected a new session, but {error.description}"))
        return begun

    def close(self, error: Error | None = None) -> Pending[None]:
        """Closes; what was sent and has no outcome yet is OutcomeUnknown. Harmless when that has happened."""
        if self.gone is None:
            self.gone = "we closed it"
            self._gone_error = error
        if self._engine.wants_close:
            self._closing.finish(None)
        else:
            self._engine.close(error)
            self._handle(self._engine.take_events())
        return self._closing

    # --- for sessions and links

    def pending(self, what: str, give_up: Callable[[], str] | None = None) -> Pending[Any]:
        """A new one."""
        return Pending(what, self._finished, give_up)

    def link_name(self, address: str | None) -> str:
        """A name that no other link of this connection has."""
        self._links += 1
        return f"{self.settings.container_id[:64]}-{self._links}-{(address or 'dynamic')[:64]}"

    def gone_error(self, what: str) -> ConnectionGone:
        """The error for whoever waits for `what`."""
        return ConnectionGone(
            f"expected {what}, but the connection to {self.endpoint} ended: {self.gone}", self._gone_error
        )

    def unknown_error(self, what: str, why: str, error: Error | None) -> OutcomeUnknown:
        """The error for a message that was sent."""
        return OutcomeUnknown(f"expected {what}, but {why}; it may have been stored, or not", error)

    def handle_own(self) -> None:
        """Tells what our own calls made of links and sessions."""
        self._handle(self._engine.take_events())

    # --- parts

    def _handle(self, events: list[Event]) -> None:
        while events:
            for event in events:  # links are told first, and want to tell why
                if type(event) is ConnectionClosed:
                    self._note_end(event)
                elif type(event) is SessionEnded and event.session.context is not None:
                    event.session.context.note_end(event.error)
            asked = False
            for event in events:
                handler = self._handlers.get(type(event))
                if handler is not None:
                    handler(event)
                asked = asked or type(event) is AttachReceived
            events = self._engine.receive_data(b"", self._engine.now) if asked else self._engine.take_events()

    def _note_end(self, event: ConnectionClosed) -> None:
        if self.gone is None:
            who = "we closed it" if event.local else "the peer closed it"
            self.gone = f"{who}, {shown(event.error)}"
            self._gone_error = event.error

    def _on_opened(self, event: ConnectionOpened) -> None:
        self.remote_open = event.remote_open
        if self._login.refused is None:
            self._opening.finish(event.remote_open)

    def _on_closed(self, event: ConnectionClosed) -> None:
        self._opening.fail(self._login.refused or self.gone_error(self._opening.what))
        self._closing.finish(None)

    def _on_begun(self, event: SessionBegun) -> None:
        # A session that the peer begins by itself is answered by the engine, and of no use to us.
        if event.session.context is not None:
            event.session.context.on_begun()

    def _on_ended(self, event: SessionEnded) -> None:
        if event.session.context is not None:
            event.session.context.on_ended()

    def _on_attach(self, event: AttachReceived) -> None:
        event.link.refuse(Error(condition="amqp:not-allowed", description="this client attaches by itself"))
