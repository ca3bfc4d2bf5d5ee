"""What the two shells have in common: all that does not wait."""

from __future__ import annotations

import ssl
import uuid
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from amqp_broker.client.core import ClientCore
from amqp_broker.client.core_receiver import ReceiverCore
from amqp_broker.client.core_sender import SenderCore
from amqp_broker.client.core_session import SessionCore
from amqp_broker.client.errors import WrongUse
from amqp_broker.client.messages import ReceivedMessage
from amqp_broker.client.settings import ClientSettings, Endpoint, parse_url
from amqp_broker.frames import Accepted, Error, Modified, Open, Rejected, Released

P = ParamSpec("P")
T = TypeVar("T")


def settings_of(url: str, fields: dict[str, Any]) -> tuple[ClientSettings, Endpoint]:
    """The settings for a URL: what it says of the user, `fields` of ClientSettings, and a container-id of our
    own making where none is given. Raises WrongUse.
    """
    endpoint = parse_url(url)
    known = {
        "container_id": f"amqp-broker-client-{uuid.uuid4()}",
        "user": endpoint.user,
        "password": endpoint.password,
    }
    try:
        return ClientSettings(**(known | fields)), endpoint
    except TypeError as error:
        raise WrongUse(f"expected settings of a client: {error}") from None


def tls_of(endpoint: Endpoint, context: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """The TLS settings for this endpoint; None where it wants none. Raises WrongUse."""
    if not endpoint.tls:
        if context is not None:
            raise WrongUse(f"expected no ssl_context for {endpoint}: only amqps has TLS")
        return None
    return ssl.create_default_context() if context is None else context


class CorePump(Protocol):
    """The way of all calls to the core, in either shell."""

    core: ClientCore

    def call(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Calls a function of the core; what it made is written."""


Pump = TypeVar("Pump", bound=CorePump)


class AnySender(Generic[Pump]):
    """A sender of either shell."""

    def __init__(self, pump: Pump, link: SenderCore) -> None:
        self._pump = pump
        self.core = link

    def close(self) -> None:
        """Detaches. What has no outcome yet is OutcomeUnknown for whoever waits for it."""
        self._pump.call(self.core.detach)


class AnyReceiver(Generic[Pump]):
    """A receiver of either shell; it gives outcomes, also by their names (3.4)."""

    def __init__(self, pump: Pump, link: ReceiverCore) -> None:
        self._pump = pump
        self.core = link

    @property
    def address(self) -> str | None:
        """The node's; what the peer made up for a dynamic one."""
        return self.core.address

    def set_credit(self, credit: int) -> None:
        """How many messages may be here without an outcome; 0 stops the flow."""
        self._pump.call(self.core.set_credit, credit)

    def close(self) -> None:
        """Detaches. Messages without an outcome go back to their node."""
        self._pump.call(self.core.detach)

    def settle(self, received: ReceivedMessage, outcome: Any) -> None:
        """Gives a message its outcome. Raises WrongUse when it has one, Gone when the link is."""
        self._pump.call(self.core.settle, received, outcome)

    def accept(self, received: ReceivedMessage) -> None:
        """It is processed: the peer forgets it."""
        self.settle(received, Accepted())

    def reject(
        self, received: ReceivedMessage, condition: str = "amqp:not-allowed", description: str | None = None
    ) -> None:
        """It can never be processed, by nobody."""
        self.settle(received, Rejected(error=Error(condition=condition, description=description)))

    def release(self, received: ReceivedMessage) -> None:
        """It was not looked at: somebody else may have it."""
        self.settle(received, Released())

    def modify(
        self, received: ReceivedMessage, *, delivery_failed: bool = True, undeliverable_here: bool = False
    ) -> None:
        """Processing it failed (this counts), and it never comes here again if `undeliverable_here`."""
        outcome = Modified(delivery_failed=delivery_failed, undeliverable_here=undeliverable_here)
        self.settle(received, outcome)


class AnySession(Generic[Pump]):
    """What a session of either shell tells, and how it ends."""

    _pump: Pump
    core: SessionCore

    @property
    def gone(self) -> str | None:
        """Why it ended; None as long as it has not."""
        return self.core.over

    def end(self) -> None:
        """Ends it, and its links."""
        self._pump.call(self.core.end)


class AnyConnection(Generic[Pump]):
    """What a connection of either shell tells."""

    _pump: Pump

    @property
    def remote_open(self) -> Open:
        """What the peer said of itself (2.7.1)."""
        found = self._pump.core.remote_open
        assert found is not None, "who opens it waits for that"
        return found

    @property
    def gone(self) -> str | None:
        """Why the connection ended; None as long as it has not."""
        return self._pump.core.gone
