"""A session of the client: where links are attached, and what they have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amqp_broker.client.core_receiver import ReceiverCore
from amqp_broker.client.core_sender import SenderCore
from amqp_broker.client.errors import ClientError, SessionGone, WrongUse, shown
from amqp_broker.client.pending import Pending
from amqp_broker.frames import (
    SETTLE_MODE_FIRST,
    SETTLE_MODE_MIXED,
    Error,
    Source,
    Target,
)
from amqp_broker.links import LocalProtocolError, Session

if TYPE_CHECKING:
    from amqp_broker.client.core import ClientCore


class SessionCore:
    """One session. `gone` says why it ended, None as long as it has not."""

    def __init__(self, connection: ClientCore, session: Session, begun: Pending[SessionCore]) -> None:
        self.connection = connection
        self.session = session
        self.gone: str | None = None
        self._gone_error: Error | None = None
        self._begun = begun
        session.context = self

    def attach_sender(
        self,
        address: str | None,
        *,
        snd_settle_mode: int = SETTLE_MODE_MIXED,
        properties: dict[str, Any] | None = None,
    ) -> Pending[SenderCore]:
        """A link to send to `address`; None is the anonymous terminus, where each message says its own."""
        link = SenderCore(self, address)
        if self._may_attach(link.attaching):
            try:
                link.attached_as(
                    self.session.attach_sender(
                        self.connection.link_name(address),
                        Source(),
                        Target(address=address),
                        snd_settle_mode=snd_settle_mode,
                        rcv_settle_mode=SETTLE_MODE_FIRST,
                        properties=properties,
                    )
                )
            except LocalProtocolError as error:
                link.attaching.fail(WrongUse(f"expected a new link, but {error.description}"))
        return link.attaching

    def attach_receiver(
        self,
        address: str | None,
        credit: int,
        *,
        source: Source | None = None,
        snd_settle_mode: int = SETTLE_MODE_MIXED,
        properties: dict[str, Any] | None = None,
    ) -> Pending[ReceiverCore]:
        """A link to receive from `address`, with `credit`: how many messages may be here without an outcome.

        None is a node that the peer makes for us, for as long as the link is there; `ReceiverCore.address`
        tells its name. `source` is for whoever wants more: filters, distribution-mode; `snd_settle_mode`
        settled asks for messages that want no outcome.
        """
        link = ReceiverCore(self, address, credit)
        if self._may_attach(link.attaching):
            try:
                link.attached_as(
                    self.session.attach_receiver(
                        self.connection.link_name(address),
                        source or Source(address=address, dynamic=address is None),
                        Target(),
                        credit=credit,
                        snd_settle_mode=snd_settle_mode,
                        rcv_settle_mode=SETTLE_MODE_FIRST,
                        properties=properties,
                    )
                )
            except LocalProtocolError as error:
                link.attaching.fail(WrongUse(f"expected a new link, but {error.description}"))
        return link.attaching

    def end(self) -> None:
        """Ends it, with its links. Harmless when it has ended already."""
        if self.gone is None:
            self.gone = "we ended it"
            self.session.end()
            self.connection.handle_own()

    def gone_error(self, what: str) -> ClientError:
        """The error for whoever waits for `what`: the connection's where that is gone as well."""
        if self.connection.gone is not None:
            return self.connection.gone_error(what)
        return SessionGone(f"expected {what}, but the session ended: {self.gone}", self._gone_error)

    # --- for the connection

    def on_begun(self) -> None:
        """The peer answered."""
        self._begun.finish(self)

    def note_end(self, error: Error | None) -> None:
        """It is gone; its links are told next."""
        if self.gone is None:
            self.gone = f"the peer ended it, {shown(error)}"
            self._gone_error = error

    def on_ended(self) -> None:
        """It is gone; its links were told."""
        self._begun.fail(self.gone_error(self._begun.what))

    def _may_attach(self, attaching: Pending[Any]) -> bool:
        if self.gone is None and self.connection.gone is None:
            return True
        attaching.fail(self.gone_error(attaching.what))
        return False
