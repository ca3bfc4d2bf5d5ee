"""Where the broker's own nodes send their replies: a queue that exists, named by properties.reply-to.

    request --> PendingReply (or why there can be none: nothing is done) --> what is asked for
            full --> asked once more when what came before is stored
            --> send: it is accepted | refuse: it is rejected | failed
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amqp_broker.addresses import AddressError, parse_address
from amqp_broker.authorisation import SEND, Principal
from amqp_broker.frames import Accepted, AmqpValue, Error, Properties, Rejected, encode_message
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.nodes.requests import AskAgain, Request
from amqp_broker.operations.operation import Batch
from amqp_broker.operations.posting import Posting
from amqp_broker.origin import OF_THE_BROKER
from amqp_broker.queue import why_full
from amqp_broker.records import record_of, store_all

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.queue import Queue


def _reply_queue(nodes: BrokerNodes, principal: Principal, reply_to: object) -> Queue:
    """The queue that `principal` wants the reply in. Raises NodeRefused."""
    if reply_to is None:
        description = "expected the address of a queue in properties.reply-to, got null"
        raise NodeRefused("amqp:invalid-field", description)
    if isinstance(reply_to, str):
        reply_to, _ = nodes.names.of(reply_to)
    try:
        parsed = parse_address(reply_to, nodes.config.limits.address_bytes)
    except AddressError as error:
        raise NodeRefused("amqp:invalid-field", f"properties.reply-to: {error}") from None
    if not nodes.authoriser.authorise(principal, SEND, parsed):
        raise NodeRefused(
            "amqp:unauthorized-access", f"{principal.rule_name!r} may not send to {parsed.name!r}"
        )
    queue = nodes.queues.find(parsed.name)
    if queue is None:
        raise NodeRefused("amqp:not-found", f"properties.reply-to: no queue {parsed.name!r}")
    try:
        nodes.queues.site_by_name(queue.name).check_replies()
    except NodeRefused as refused:
        raise NodeRefused(str(refused.error.condition), f"properties.reply-to: {refused}") from None
    return queue


class _Reply(Batch):
    """The posting of a reply: its place is kept until it is there, or never comes."""

    def __init__(self, posting: Posting) -> None:
        super().__init__([posting])
        self._queue = posting.queue

    def stored(self) -> None:
        """It has its place."""
        self._queue.unreserve(1, 0)
        super().stored()

    def refused(self, error: Exception) -> None:
        """Its place is free."""
        self._queue.unreserve(1, 0)
        super().refused(error)


def post_in_place(nodes: BrokerNodes, queue: Queue, payload: bytes) -> None:
    """Put a message of the broker itself, encoded, into a queue where a place was kept for it (`reserve_one`
    of 0 bytes).
    """
    if queue.deleted:
        queue.unreserve(1, 0)
        return
    record = record_of(payload, 0, nodes.clock.now_ms(), queue.queue_id, queue.persistent)
    if queue.stores_all:
        store_all([record])
    posting = Posting(nodes, queue, [record], OF_THE_BROKER)
    if posting.waits:
        nodes.writer.submit(_Reply(posting))
    else:
        queue.unreserve(1, 0)
        posting.at_once()


class PendingReply:
    """How a request is answered, once. The place for the reply is kept from the request on: what was done is
    never answered `rejected` because there was no place for telling it. In a queue that is gone by then
    nobody waits for the reply.
    """

    __slots__ = ("_nodes", "_queue", "request")

    def __init__(self, nodes: BrokerNodes, request: Request, reply_to: object) -> None:
        """Raises NodeRefused: why there can be no reply; AskAgain where what came before may make room."""
        queue = _reply_queue(nodes, request.principal, reply_to)
        if not queue.find_room():
            if not request.again and not nodes.writer.at_rest:
                raise AskAgain
            raise NodeRefused("amqp:resource-limit-exceeded", f"properties.reply-to: {why_full(queue)}")
        queue.reserve_one(0, anyway=True)
        self._nodes = nodes
        self._queue = queue
        self.request = request

    def send(self, payload: bytes) -> None:
        """The request is done: send this reply."""
        post_in_place(self._nodes, self._queue, payload)
        self.request.answer(Accepted())

    def refuse(self, error: Error) -> None:
        """Nothing of the request was done: reply with the error."""
        self._give_back()
        self.request.answer(Rejected(error=error))

    def failed(self, error: Exception) -> None:
        """A fault of the broker met it: nothing was done."""
        self._give_back()
        self.request.failed(error)

    def _give_back(self) -> None:
        self._queue.unreserve(1, 0)
        self._nodes.drained(self._queue)


def ok_reply(correlation_id: Any, body: dict[str, Any]) -> bytes:
    """A reply with the subject "ok" and a map as its value, encoded."""
    return encode_message(
        properties=Properties(correlation_id=correlation_id, subject="ok"), body=AmqpValue(body)
    )
