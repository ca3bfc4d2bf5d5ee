"""What both kinds of the client's links have in common: attaching, and how they end."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from amqp_broker.client.core_connection import ConnectionCore, Ending
from amqp_broker.client.errors import LinkGone, LinkRefused, shown
from amqp_broker.client.pending import Pending
from amqp_broker.frames import Attach
from amqp_broker.links import LinkDetached, ReceiverLink, SenderLink

L = TypeVar("L", SenderLink, ReceiverLink)


class LinkCore(Ending, Generic[L]):
    """One link."""

    link: L
    """The engine's end; there as soon as the attach was sent."""

    def __init__(
        self, connection: ConnectionCore, session: Ending, address: str | None, what: str
    ) -> None:
        super().__init__(LinkGone, "the link was detached", session)
        self.connection = connection
        self.address = address
        self.remote_properties: dict[str, Any] = {}
        """The link properties of the peer's attach (2.7.3)."""
        self.attaching: Pending[Any] = self.connection.pending(
            f"the attach of {what} {self.shown_address}", self._abandon
        )
        self._abandoned = False
        self._refused = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.shown_address} {self.gone or 'attached'}>"

    @property
    def shown_address(self) -> str:
        """For messages to people."""
        return "(any address)" if self.address is None else repr(self.address)

    def attached_as(self, link: L) -> None:
        """The attach was sent; `link` is the engine's."""
        self.link = link
        link.context = self

    def detach(self) -> None:
        """Closes the link. Harmless when it is gone already, or not attached yet."""
        if self.gone is None and self.attaching.done:
            self.note_gone("we detached it")
            self.link.detach()
            self.connection.handle_own()

    # --- for the connection

    def on_attached(self, attach: Attach) -> None:
        """The peer answered. Without its terminus it refused, and its detach follows (2.6.3)."""
        self.remote_properties = {str(key): value for key, value in (attach.properties or {}).items()}
        if self.terminus(attach) is None:
            self._refused = True
        else:
            self.attached(attach)
            self.attaching.finish(self)
            if self._abandoned:
                self.detach()

    def on_detached(self, event: LinkDetached) -> None:
        """It is gone."""
        self.note_gone(f"the peer detached it, {shown(event.error)}", event.error)
        if self._refused and self.connection.gone is None:
            text = f"expected {self.attaching.what}, but it was refused, {shown(event.error)}"
            self.attaching.fail(LinkRefused(text, event.error))
        self.attaching.fail(self.gone_error(self.attaching.what))
        self.ended(event)

    def _abandon(self) -> str:
        """Nobody waits for the attach any longer: messages must not come to nobody."""
        self._abandoned = True
        if self.attaching.done:
            self.detach()
        return ""

    # --- for the two kinds

    def terminus(self, attach: Attach) -> Any:
        """The peer's end in its attach; None: it refuses."""
        raise AssertionError("each kind has its own")

    def attached(self, attach: Attach) -> None:
        """The attach came, with the terminus."""

    def ended(self, event: LinkDetached) -> None:
        """The link is gone: nobody waits any longer."""
