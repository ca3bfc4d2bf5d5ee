"""Requests and their replies over plain messages: a node that answers to the reply-to of what it is sent.

request   subject = the operation, body = an amqp-value map, reply-to = a node of ours, correlation-id
reply     correlation-id = the request's, body = an amqp-value map
refusal   the outcome of the request: rejected, with a condition
"""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any

from amqp_broker.client.blocking_links import OpensLinks
from amqp_broker.client.errors import WaitTimeout
from amqp_broker.client.messages import message
from amqp_broker.frames import SETTLE_MODE_UNSETTLED, plain_value

REPLY_CREDIT = 10  # one reply is waited for at a time; the others are late ones, which are thrown away


class BlockingRequester:
    """Asks a node. Made by `open_requester`; one request at a time, from any thread."""

    def __init__(self, session: OpensLinks, address: str) -> None:
        self.address = address
        self._timeout_s = session.timeout_s
        self._replies = session.open_receiver(None, credit=REPLY_CREDIT)
        self._sender = session.open_sender(address, snd_settle_mode=SETTLE_MODE_UNSETTLED)
        self._asking = threading.Lock()

    @property
    def gone(self) -> str | None:
        """Why its links ended, None as long as they have not."""
        return self._sender.core.over or self._replies.core.over

    def request(self, subject: str, body: dict[str, Any], *, timeout_s: float | None = None) -> Any:
        """The body of the reply, in plain Python values (`plain_value`).

        Raises MessageRefused with the condition of the node, WaitTimeout after `timeout_s` (by default the
        connection's), Gone.
        """
        limit = self._timeout_s if timeout_s is None else timeout_s
        deadline = None if limit is None else time.monotonic() + limit
        asked = str(uuid.uuid4())
        with self._asking:
            self._sender.send(
                message(body, subject=subject, reply_to=self._replies.address, correlation_id=asked),
                timeout_s=limit,
            )
            while True:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                try:
                    reply = self._replies.receive(left)
                except WaitTimeout:
                    raise WaitTimeout(
                        f"expected a reply of {self.address!r} to {subject!r} within {limit:g} s, none came"
                    ) from None
                if not reply.settled:
                    self._replies.accept(reply)
                if reply.properties.correlation_id == asked:
                    return plain_value(reply.body)

    def tell(self, subject: str, body: dict[str, Any], *, timeout_s: float | None = None) -> None:
        """A request without a reply: it is done when this returns. Raises as `request`."""
        self._sender.send(
            message(body, subject=subject), timeout_s=self._timeout_s if timeout_s is None else timeout_s
        )

    def close(self) -> None:
        """Detaches both links."""
        self._sender.close()
        self._replies.close()
