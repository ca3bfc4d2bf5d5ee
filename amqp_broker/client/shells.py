"""What the two shells have in common."""

from __future__ import annotations

import ssl
import uuid
from typing import Any

from amqp_broker.client.errors import WrongUse
from amqp_broker.client.messages import ReceivedMessage
from amqp_broker.client.settings import ClientSettings, Endpoint, parse_url
from amqp_broker.frames import Accepted, Error, Modified, Rejected, Released


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


class GivesOutcomes:
    """The outcomes by their names (3.4), for a receiver that has `settle`. None of them waits."""

    def settle(self, received: ReceivedMessage, outcome: Any) -> None:
        """Gives a message its outcome. Raises WrongUse when it has one, Gone when the link is."""
        raise AssertionError("each receiver has its own")

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
