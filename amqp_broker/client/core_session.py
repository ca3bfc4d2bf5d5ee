"""A session of the client: where links are attached, and what they have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amqp_broker.client.core_connection import ConnectionCore, Ending
from amqp_broker.client.core_link import L, LinkCore
from amqp_broker.client.core_receiver import ReceiverCore
from amqp_broker.client.core_sender import SenderCore
from amqp_broker.client.errors import SessionGone, WrongUse
from amqp_broker.client.pending import Pending
from amqp_broker.frames import (
    SETTLE_MODE_FIRST,
    SETTLE_MODE_MIXED,
    Source,
    Target,
)
from amqp_broker.links import LocalProtocolError, Session


class SessionCore(Ending):
    """One session."""

    def __init__(self, connection: ConnectionCore, session: Session, begun: Pending[SessionCore]) -> None:
        super().__init__(SessionGone, "the session ended", connection)
        self.connection = connection
        self.session = session
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
        link = SenderCore(self.connection, self, address)
        return self._attach(link, lambda name: self.session.attach_sender(
            name, Source(), Target(address=address), snd_settle_mode=snd_settle_mode,
            rcv_settle_mode=SETTLE_MODE_FIRST, properties=properties,
        ))  # fmt: skip

    def attach_receiver(
        self,
        address: str | None,
        credit: int,
        *,
        source: Source | None = None,
        snd_settle_mode: int = SETTLE_MODE_MIXED,
        properties: dict[str, Any] | None = None,
        name: str = "",
    ) -> Pending[ReceiverCore]:
        """A link to receive from `address`, with `credit`: how many messages may be here without an outcome.

        None is a node that the peer makes for us, for as long as the link is there; `ReceiverCore.address`
        tells its name. `source` is for whoever wants more: filters, distribution-mode; `snd_settle_mode`
        settled asks for messages that want no outcome. By its `name` a durable subscription is found again.
        """
        link = ReceiverCore(self.connection, self, address, credit)
        wanted = source or Source(address=address, dynamic=address is None)
        return self._attach(link, lambda fresh: self.session.attach_receiver(
            name or fresh, wanted, Target(), credit=credit, snd_settle_mode=snd_settle_mode,
            rcv_settle_mode=SETTLE_MODE_FIRST, properties=properties,
        ))  # fmt: skip

    def end(self) -> None:
        """Ends it, with its links. Harmless when it has ended already."""
        if self.gone is None:
            self.note_gone("we ended it")
            self.session.end()
            self.connection.handle_own()

    # --- for the connection

    def on_begun(self) -> None:
        """The peer answered."""
        self._begun.finish(self)

    def on_ended(self) -> None:
        """It is gone; its links were told."""
        self._begun.fail(self.gone_error(self._begun.what))

    def _attach(self, link: LinkCore[L], attach: Callable[[str], L]) -> Pending[Any]:
        """Attaches a link under a name of its own; the answer is its core."""
        if self.over:
            link.attaching.fail(self.gone_error(link.attaching.what))
            return link.attaching
        try:
            link.attached_as(attach(self.connection.link_name(link.address)))
        except LocalProtocolError as error:
            link.attaching.fail(WrongUse(f"expected a new link, but {error.description}"))
        return link.attaching
