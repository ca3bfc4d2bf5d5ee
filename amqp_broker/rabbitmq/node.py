"""RabbitMQ's management node, `/management` for those who write its form of addresses: requests on a link,
replies on the receiving link of the same name on the same connection (AMQP Link Pairing).

    attach (paired) --> PairedReplies     attach (paired) --> PairedRequests
    transfer --> PairedRequests: who gets the reply? --hold--> Translation --> PairedReplies --credit-->

Its clients send settled: a request that nobody could be told of is not done.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any, Final

from amqp_broker.connection import Connection, Source
from amqp_broker.frames import Accepted, AmqpValue, DecodeError, Error, Message, Properties, encode_message
from amqp_broker.links import Delivery, SenderLink
from amqp_broker.management.errors import Unmanageable
from amqp_broker.management.node import Management
from amqp_broker.management.requests import Answer
from amqp_broker.nodes.node import Attachment
from amqp_broker.nodes.refusals import NodeRefused, refusal_of
from amqp_broker.nodes.requests import Request, RequestNode, RequestSink
from amqp_broker.rabbitmq.requests import PAIRED_LINK, read_call, reply_payload
from amqp_broker.rabbitmq.translation import Translation

REPLIES_MAX: Final = 100  # that wait for credit on one link, as many as its clients give it
PAIRED: Final = "paired"
NULL_BODY: Final = encode_message(body=AmqpValue(None))
"""RabbitMQ's client for Python writes it over the header of a request that has no body, against 3.2."""

Pairs = dict[tuple[Connection, str], "PairedReplies"]
"""Links that receive replies, by their connection and name."""


class Reply:
    """An encoded reply, as a link sends it."""

    __slots__ = ("body", "header_bytes", "message_format")

    def __init__(self, body: bytes) -> None:
        self.header_bytes = b""
        self.body = body
        self.message_format = 0


class PairedNode(RequestNode):
    """The node; rights are asked for with each request."""

    is_received_from = True

    def __init__(self, translation: Translation, pairs: Pairs, name: str) -> None:
        super().__init__(name)
        self._translation = translation
        self._pairs = pairs

    def check_sink(self, attachment: Attachment) -> None:
        """One of two paired links."""
        _check_pairing(attachment)
        super().check_sink(attachment)

    def check_source(self, attachment: Attachment) -> None:
        """The other one."""
        _check_pairing(attachment)
        super().check_source(attachment)

    def sink(self, attachment: Attachment) -> PairedRequests:
        """The sink for the requests of one link."""
        return PairedRequests(self._translation, self._pairs, attachment)

    async def open_source(self, attachment: Attachment) -> Source:
        """The source of the replies to one link."""
        return PairedReplies(self._pairs, attachment.connection, attachment.link)

    def relayed(self, relay: Any, attachment: Attachment) -> Any:
        """A request needs a link, and one beside it."""
        raise NodeRefused("amqp:not-allowed", f"{self.name!r:.120} needs two paired links of its own")


def _check_pairing(attachment: Attachment) -> None:
    told = attachment.attach.properties or {}
    if not any(getattr(key, "value", key) == PAIRED and value is True for key, value in told.items()):
        raise NodeRefused(
            "amqp:not-allowed",
            "expected the property paired in the attach, as true: replies go on a second link of this name",
        )
    attachment.properties = {PAIRED: True}


class PairedReplies(Source):
    """One link on which replies go out; what has no credit waits."""

    def __init__(self, pairs: Pairs, connection: Connection, link: SenderLink) -> None:
        super().__init__(connection, link)
        self._pairs = pairs
        self._waiting: deque[Reply] = deque()
        pairs[connection, link.name] = self

    @property
    def full(self) -> bool:
        """Whether no further reply may wait."""
        return len(self._waiting) >= REPLIES_MAX

    def send(self, payload: bytes) -> None:
        """One more reply, in a turn of the connection."""
        self._waiting.append(Reply(payload))
        self.on_credit()

    def on_credit(self) -> None:
        """Send what waits, as far as there is credit."""
        link = self.link
        while self._waiting and link.send([self._waiting[0]]):
            self._waiting.popleft()
        link.set_available(len(self._waiting))
        if link.drain and link.credit > 0 and not self._waiting:
            link.drained()

    def on_detached(self, unsettled: list[Any], broken: bool) -> None:
        """Nobody waits for the rest."""
        if self._pairs.get((self.connection, self.link.name)) is self:
            del self._pairs[self.connection, self.link.name]


class PairedRequests(RequestSink):
    """One link on which requests come; each waits for the one before it."""

    def __init__(self, translation: Translation, pairs: Pairs, attachment: Attachment) -> None:
        super().__init__(attachment)
        self._translation = translation
        self._pairs = pairs

    def receive(self, request: Request) -> None:
        """Take one request; what comes behind it on its connection waits."""
        try:
            message = Message(request.payload.removeprefix(NULL_BODY))
            properties = message.properties or Properties()
            replies = self._replies(properties)
            try:
                call = read_call(message)
            except Unmanageable as refused:
                answer = Answer(refused.status, str(refused))
                self._reply(replies, request, properties.message_id, answer)
                return
        except (NodeRefused, DecodeError) as refused:
            self._refuse(request.delivery, refusal_of(refused))
        else:
            self.connection.hold(partial(self._answer, call, properties.message_id, replies, request))

    def _replies(self, properties: Properties) -> PairedReplies:
        """The link on which the reply goes. Raises NodeRefused."""
        if properties.reply_to != PAIRED_LINK:
            raise NodeRefused(
                "amqp:invalid-field", f"properties.reply-to: expected '{PAIRED_LINK}', the paired link, got "
                f"{properties.reply_to!r:.120}"
            )  # fmt: skip
        replies = self._pairs.get((self.connection, self.link.name))
        if replies is None:
            raise NodeRefused(
                "amqp:illegal-state", f"expected a link that receives from here, too, with the name "
                f"{self.link.name!r:.120}: nobody would be told what was done"
            )  # fmt: skip
        if replies.full:
            raise NodeRefused(
                "amqp:illegal-state", f"{REPLIES_MAX} replies wait for credit on the paired link: give some"
            )
        return replies

    def _refuse(self, delivery: Delivery, error: Error) -> None:
        """Nothing was done, and there is no way to reply."""
        self.refuse([delivery], error)

    async def _answer(self, call: Any, message_id: Any, replies: PairedReplies, request: Request) -> None:
        try:
            answer = await self._translation.answer(call, request)
        except Exception as fault:
            request.failed(fault)
            return
        self._reply(replies, request, message_id, answer)

    def _reply(self, replies: PairedReplies, request: Request, message_id: Any, answer: Answer) -> None:
        self.connection.run_in_turn(replies.send, reply_payload(message_id, answer))
        request.answer(Accepted())


class PairedManagement:
    """The node of one broker, beside `$management`."""

    def __init__(self, management: Management) -> None:
        self._translation = Translation(management)
        self._pairs: Pairs = {}

    def node(self, name: str) -> PairedNode:
        """The node as an attach finds it."""
        return PairedNode(self._translation, self._pairs, name)
