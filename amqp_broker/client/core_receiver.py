"""A link on which the client receives, and the outcomes that it gives."""

from __future__ import annotations

from collections import deque
from typing import Any

from amqp_broker.client.core_connection import ConnectionCore, Ending
from amqp_broker.client.core_link import LinkCore
from amqp_broker.client.errors import WrongUse
from amqp_broker.client.messages import ReceivedMessage
from amqp_broker.client.pending import Pending
from amqp_broker.frames import Attach, Source
from amqp_broker.links import Delivery, LinkDetached, ReceiverLink


class ReceiverCore(LinkCore[ReceiverLink]):
    """One receiving link. At most `credit` messages are here or on their way without an outcome."""

    def __init__(
        self, connection: ConnectionCore, session: Ending, address: str | None, credit: int
    ) -> None:
        super().__init__(connection, session, address, "a receiver from")
        self.credit = credit
        self.remote_source: Any = None
        """The source of the peer's attach; the filters that hold are there (3.5.3)."""
        self._here: deque[Delivery] = deque()
        self._arrival: Pending[None] | None = None
        self._draining: Pending[None] | None = None
        self._flows_after = False

    def take(self) -> ReceivedMessage | None:
        """The next message, None when none is here. Raises Gone when none is and none will come."""
        if self._here:
            received = ReceivedMessage(self, self._here.popleft())
            if received.settled:
                self.link.processed(1)
            return received
        if self.over:
            raise self.gone_error(f"a message from {self.shown_address}")
        return None

    def take_settled(self) -> list[Delivery]:
        """All messages that are here, which their sender settled; empty when none is. Makes room for as many.

        Raises Gone when none is and none will come, WrongUse where one of them wants an outcome.
        """
        if not self._here and self.over:
            raise self.gone_error(f"a message from {self.shown_address}")
        deliveries = list(self._here)
        for delivery in deliveries:
            if not delivery.settled:
                raise WrongUse(f"expected messages that their sender settled, found {delivery!r}")
        self._here.clear()
        self.link.processed(len(deliveries))
        return deliveries

    def arrival(self) -> Pending[None]:
        """Ends when it is worth calling `take` again. One for all who wait."""
        if self._arrival is None or self._arrival.done:
            self._arrival = self.connection.pending(f"a message from {self.shown_address}")
            if self._here or self.over:
                self._arrival.finish(None)
        return self._arrival

    def settle(self, received: ReceivedMessage, outcome: Any) -> None:
        """Gives a message its outcome; room is made for another one.

        Raises WrongUse for one that has an outcome, and Gone when the link is: then the peer delivers the
        message again.
        """
        if received.link is not self:
            raise WrongUse(f"expected a message of {self!r}, found {received!r}")
        if received.settled:
            raise WrongUse(f"expected a message without an outcome, but {received!r} is settled")
        if self.over:
            raise self.gone_error(f"an outcome for {received!r}")
        received.settled = True
        self.link.settle([received.delivery], outcome)
        self.link.processed(1)

    def set_credit(self, credit: int) -> None:
        """Another level of credit; 0 stops the flow after what is on its way. A drain ends before that."""
        self.credit = credit
        if self._draining is not None:
            self._flows_after = True
        elif not self.over:
            self.link.set_credit(credit)

    def drain(self) -> Pending[None]:
        """Asks the peer to send what it has, up to the credit, and to say so (2.6.7): after it, nothing is
        there that is not here. The credit is 0 then; `set_credit` gives new.
        """
        draining: Pending[None] = self.connection.pending(f"the end of what {self.shown_address} has")
        if self.over:
            draining.fail(self.gone_error(draining.what))
        elif self._draining is not None:
            draining.fail(WrongUse(f"{self.shown_address} is drained already; wait for that"))
        else:
            self._draining = draining
            self.link.flow(self.link.credit, drain=True, echo=True)
        return draining

    # --- for the connection

    def terminus(self, attach: Attach) -> Any:
        """Ours to receive from."""
        return attach.source

    def attached(self, attach: Attach) -> None:
        """A node that the peer made has a name now."""
        self.remote_source = attach.source
        if self.address is None and isinstance(attach.source, Source):
            self.address = attach.source.address

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """Messages came."""
        self._here.extend(deliveries)
        self._wake()

    def on_drained(self) -> None:
        """The credit is used up or given back."""
        draining, self._draining = self._draining, None
        if draining is not None:
            draining.finish(None)
        if self._flows_after:
            self._flows_after = False
            self.link.set_credit(self.credit)

    def ended(self, event: LinkDetached) -> None:
        """What has no outcome will be delivered again: it is not shown any more. The rest is ours."""
        self._here = deque(delivery for delivery in self._here if delivery.settled)
        draining, self._draining = self._draining, None
        if draining is not None:
            draining.fail(self.gone_error(draining.what))
        self._wake()

    def _wake(self) -> None:
        if self._arrival is not None:
            self._arrival.finish(None)
