"""Requests to `$management` (AMQP Management, working draft 11), as any AMQP client can send them.

asks = ManagementRequests(connection)
asks.ask("READ", "queue", identity="orders")       the body of the reply, in plain values
asks.all("queue", "messages", "bytes")             rows of all there are, page by page
"""

from __future__ import annotations

import threading
import time
from typing import Any, Final

from amqp_broker.client.blocking_links import BlockingReceiver, BlockingSender, OpensLinks
from amqp_broker.client.errors import WaitTimeout
from amqp_broker.client.messages import message
from amqp_broker.frames import plain_value

MANAGEMENT: Final = "$management"
NODE_TYPE: Final = "org.amqp.management"
"""The type of the node itself, which is asked for what there is (3.2)."""
PAGE: Final = 1_000
"""Entities of one reply."""


class Refused(Exception):
    """The broker answered with a status that says no; `status` as HTTP has it."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class ManagementRequests:
    """Asks the node `$management`; one request at a time, from any thread. Its links are opened for the first
    one. Raises Refused, and the errors of the client.
    """

    def __init__(self, session: OpensLinks, timeout_s: float) -> None:
        self._session = session
        self._timeout_s = timeout_s
        self._links: tuple[BlockingSender, BlockingReceiver] | None = None
        self._count = 0
        self._asking = threading.Lock()

    @property
    def gone(self) -> str | None:
        """Why its links ended, None as long as they have not."""
        if self._links is None:
            return None
        return self._links[0].core.over or self._links[1].core.over

    def ask(self, operation: str, kind: str = NODE_TYPE, body: Any = None, **told: Any) -> Any:
        """The body of the reply, in plain values. What is told as None is left out."""
        with self._asking:
            return self._ask(operation, kind, body, {k: v for k, v in told.items() if v is not None})

    def _ask(self, operation: str, kind: str, body: Any, told: dict[str, Any]) -> Any:
        if self._links is None:
            replies = self._session.open_receiver(None, name="replies")
            self._links = (self._session.open_sender(MANAGEMENT), replies)
        requests, replies = self._links
        self._count += 1
        asked = str(self._count)
        deadline = time.monotonic() + self._timeout_s
        requests.send(message(
            {} if body is None else body,
            application_properties={"operation": operation, "type": kind, **told},
            reply_to=replies.address, message_id=asked,
        ), timeout_s=self._timeout_s)  # fmt: skip
        while True:
            try:
                reply = replies.receive(max(0.0, deadline - time.monotonic()))
            except WaitTimeout:
                raise WaitTimeout(
                    f"expected a reply of {MANAGEMENT} to {operation} within {self._timeout_s:g} s, none came"
                ) from None
            if not reply.settled:
                replies.accept(reply)
            if reply.properties.correlation_id == asked:  # not one that came too late for its request
                break
        answer = plain_value(reply.message.application_properties or {})
        status = answer.get("statusCode")
        if not isinstance(status, int) or not 200 <= status < 300:
            text = f"{status}: {answer.get('statusDescription')}"
            raise Refused(text, status if isinstance(status, int) else 0)
        return plain_value(reply.body)

    def all(self, kind: str, *names: str) -> tuple[list[str], list[list[Any]]]:
        """The names of the attributes of a type, those that are asked for or all, and a row for each of its
        entities.
        """
        rows: list[list[Any]] = []
        while True:
            wanted = {"attributeNames": [*names]} if names else None
            page = self.ask("QUERY", body=wanted, entityType=kind, offset=len(rows), count=PAGE)
            rows.extend(page["results"])
            if len(page["results"]) < PAGE:
                return page["attributeNames"], rows
