"""What stands behind the links of topics: that of a queue, but for the end of what lives with the link."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from amqp_broker.frames import Error
from amqp_broker.links import Delivery, OutgoingDelivery
from amqp_broker.nodes.node import Attachment
from amqp_broker.nodes.queue_sink import QueueSink
from amqp_broker.nodes.queue_source import QueueSource
from amqp_broker.persistence import Record
from amqp_broker.queue import Queue
from amqp_broker.topics.topic import Topic

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.coordinator import Transaction

SETTLED_MODE = 1  # snd-settle-mode settled (2.8.2)


class TopicSink(QueueSink):
    """One link that sends to a topic; `gone` is told of the end of the link that the topic was made for."""

    __slots__ = ("_gone", "_topic")

    def __init__(
        self, attachment: Attachment, nodes: BrokerNodes, topic: Topic, gone: Callable[[Topic], None] | None
    ) -> None:
        super().__init__(
            attachment.connection, attachment.link, topic, nodes, attachment.transactions, None
        )
        self._topic = topic
        self._gone = gone

    def _post(
        self, deliveries: list[Delivery], records: list[Record], transaction: Transaction | None,
        with_maps: list[bytes],
    ) -> None:  # fmt: skip
        if transaction is not None or len(records) == 1 or not self._topic.takes_one_by_one():
            super()._post(deliveries, records, transaction, with_maps)
            return
        for delivery, record in zip(deliveries, records, strict=True):
            super()._post([delivery], [record], None, with_maps)

    def on_leaving(self) -> None:
        """A topic that was made for the link goes with it."""
        gone, self._gone = self._gone, None
        if gone is not None:
            gone(self._topic)


class SubscriptionSource(QueueSource):
    """One link that receives what a subscription holds; `left` is told when it is gone."""

    __slots__ = ("_left",)

    def __init__(
        self, attachment: Attachment, nodes: BrokerNodes, queue: Queue, left: Callable[[Any], None]
    ) -> None:
        answer = attachment.answer
        super().__init__(
            attachment.connection, attachment.link, queue, nodes, attachment.transactions, browser=False,
            settled=attachment.attach.snd_settle_mode == SETTLED_MODE,
            default_outcome=answer.default_outcome, outcomes=frozenset(answer.outcomes or ()),
        )  # fmt: skip
        attachment.link.closes_later = queue.persistent
        self._left = left

    def on_detached(self, unsettled: list[OutgoingDelivery], broken: bool) -> None:
        """The link is gone: what it held goes back, and the subscription may go with it."""
        super().on_detached(unsettled, broken)
        self._left(self)

    def answer_close(self, error: Error | None = None) -> None:
        """Answer the detach that closed the link, if its answer waits: what it ended is stored. From any
        task.
        """
        self.connection.run_in_turn(self._answer_close, error)

    def _answer_close(self, error: Error | None) -> None:
        if self.link.leaving is not None:
            self.link.answer_detach(error)
