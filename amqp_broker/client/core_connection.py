"""What sessions and links of the client have of their connection: the engine, its events, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amqp_broker.client.core_login import CoreLogin, engine_settings
from amqp_broker.client.errors import ConnectionGone, Gone, shown
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
    OutcomesReceived,
    SessionBegun,
    SessionEnded,
)


class Ending:
    """A connection, session or link. `gone` says why it ended, None as long as it has not."""

    def __init__(self, kind: type[Gone], ended: str, whole: Ending | None = None) -> None:
        self.gone: str | None = None
        self._gone_error: Error | None = None
        self._kind = kind
        self._ended = ended
        self._whole = whole

    @property
    def over(self) -> str | None:
        """Why nothing will come here any more: it ended, or what it is a part of. None as long as it may."""
        return self.gone or (None if self._whole is None else self._whole.over)

    def note_gone(self, why: str, error: Error | None = None) -> None:
        """It ended; the first reason stays."""
        if self.gone is None:
            self.gone = why
            self._gone_error = error

    def gone_error(self, what: str) -> Gone:
        """The error for whoever waits for `what`: that of the session or connection where they are gone."""
        if self._whole is not None and self._whole.over:
            return self._whole.gone_error(what)
        return self._kind(f"expected {what}, but {self._ended}: {self.gone}", self._gone_error)


class ConnectionCore(Ending):
    """The inner side of `ClientCore`."""

    def __init__(self, settings: ClientSettings, endpoint: Endpoint, now: float) -> None:
        super().__init__(ConnectionGone, f"the connection to {endpoint} ended")
        self.settings = settings
        self.endpoint = endpoint
        self.remote_open: Open | None = None
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

    def pending(self, what: str, give_up: Callable[[], str] | None = None) -> Pending[Any]:
        """A new one."""
        return Pending(what, self._finished, give_up)

    def link_name(self, address: str | None) -> str:
        """A name that no other link of this connection has."""
        self._links += 1
        return f"{self.settings.container_id[:64]}-{self._links}-{(address or 'dynamic')[:64]}"

    def handle_own(self) -> None:
        """Tells what our own calls made of links and sessions."""
        self._handle(self._engine.take_events())

    # --- parts

    def _handle(self, events: list[Event]) -> None:
        while events:
            for event in events:  # links are told first, and want to tell why
                if type(event) is ConnectionClosed:
                    who = "we closed it" if event.local else "the peer closed it"
                    self.note_gone(f"{who}, {shown(event.error)}", event.error)
                elif type(event) is SessionEnded and event.session.context is not None:
                    event.session.context.note_gone(f"the peer ended it, {shown(event.error)}", event.error)
            asked = False
            for event in events:
                handler = self._handlers.get(type(event))
                if handler is not None:
                    handler(event)
                asked = asked or type(event) is AttachReceived
            events = self._engine.receive_data(b"", self._engine.now) if asked else self._engine.take_events()

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
