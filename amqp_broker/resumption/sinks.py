"""Behind a link on which the peer sends, and which it may resume: each delivery is taken once.

    new delivery --tag: under way--> posted --commit--> tag: outcome --told--> the peer settles: forgotten
    resumed, or sent again with a tag that both had unsettled --> its outcome, and nothing is posted

Where the target is durable, tag and outcome are stored in the commit of the message.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from amqp_broker.connection import ACCEPTED
from amqp_broker.frames import Accepted, Error, Modified, Rejected, Released, TransactionalState
from amqp_broker.nodes.queue_sink import PostRule, QueueSink
from amqp_broker.operations.operation import error_of
from amqp_broker.operations.posting import Posting
from amqp_broker.resumption.terminus import SECOND, Terminus

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.coordinator import Transaction
    from amqp_broker.links import Delivery
    from amqp_broker.nodes.node import Attachment
    from amqp_broker.persistence import Record, Unit
    from amqp_broker.queue import Queue

OUTCOMES: Final = (Accepted, Rejected, Released, Modified)


class RememberedPosting(Posting):
    """A run of messages, and the outcomes that its terminus remembers of them."""

    __slots__ = ("_terminus",)

    def __init__(
        self, sink: LastingSink, terminus: Terminus, nodes: BrokerNodes, deliveries: list[Delivery],
        records: list[Record],
    ) -> None:  # fmt: skip
        connection = sink.connection
        super().__init__(
            nodes, sink.queue, records, connection.origin, sink, deliveries, account=connection.account
        )
        self._terminus = terminus
        if terminus.keeps_unsettled:
            self.waits = True  # also where only memory has the messages

    def prepare(self, now_ms: int) -> Unit:
        """The messages and the outcomes, together."""
        unit = super().prepare(now_ms)
        unit.extend(self._terminus.accepting(self.deliveries))
        return unit

    def part(self, record: Record, delivery: Delivery) -> Posting:
        """A posting of one of its messages."""
        assert isinstance(self.sink, LastingSink)
        return self.sink._posting([delivery], [record])


class LastingSink(QueueSink):
    """One link that sends to a queue, and whose target outlives it."""

    __slots__ = ("_gone", "_most", "_terminus")

    def __init__(
        self, attachment: Attachment, queue: Queue, nodes: BrokerNodes, rule: PostRule | None,
        terminus: Terminus, gone: Callable[[Terminus, Any, bool], None],
    ) -> None:
        super().__init__(
            attachment.connection, attachment.link, queue, nodes, attachment.transactions, rule
        )
        self._terminus = terminus
        self._gone = gone
        self._most = nodes.config.limits.max_unsettled_per_link

    def compare(self, attachment: Attachment) -> None:
        """Compare both sides' unsettled maps: what only we have is settled (2.6.13)."""
        outcomes = self._terminus.outcomes
        attach = attachment.attach
        for tag in [tag for tag, outcome in outcomes.items() if outcome is None]:
            del outcomes[tag]  # a fault kept it from being posted: the peer sends it again
        if self._terminus.reattaches(self.link.session, attach.unsettled):
            return
        theirs = attach.unsettled or {}
        if not attach.incomplete_unsettled:
            for tag in [tag for tag in outcomes if tag not in theirs]:
                del outcomes[tag]
        if attach.unsettled is not None:
            attachment.unsettled = dict(outcomes)

    def _post(
        self, deliveries: list[Delivery], records: list[Record], transaction: Transaction | None,
        with_maps: list[bytes],
    ) -> None:  # fmt: skip
        """What is new is posted; what the peer may have sent before is answered with its outcome."""
        if transaction is not None:
            super()._post(deliveries, records, transaction, with_maps)
            return
        outcomes = self._terminus.outcomes
        resumable = self.link.unsettled_map or {}
        fresh: list[Delivery] = []
        fresh_records: list[Record] = []
        again: list[Delivery] = []
        error: Error | None = None
        for delivery, record in zip(deliveries, records, strict=True):
            tag = delivery.delivery_tag
            if not delivery.settled:
                if tag in resumable:
                    again.append(delivery)
                    continue
                error = self._error_of(tag)
                if error is not None:
                    break
                outcomes[tag] = None
            fresh.append(delivery)
            fresh_records.append(record)
        if fresh:
            super()._post(fresh, fresh_records, None, with_maps)
        for delivery in again:
            resumable.pop(delivery.delivery_tag, None)
            self._answer(delivery)
        if error is not None:
            self.detach(error)

    def _posting(self, deliveries: list[Delivery], records: list[Record]) -> Posting:
        return RememberedPosting(self, self._terminus, self._nodes, deliveries, records)

    def _taken(
        self, rule: PostRule, deliveries: list[Delivery], records: list[Record],
        transaction: Transaction | None,
    ) -> bool:  # fmt: skip
        """What a rule takes it tells apart by itself when it comes again: no tags are remembered for it."""
        taken = super()._taken(rule, deliveries, records, transaction)
        if taken and transaction is None:
            self._terminus.forget(deliveries)
        return taken

    def _error_of(self, tag: bytes) -> Error | None:
        """Why nothing new can be taken with this tag."""
        outcomes = self._terminus.outcomes
        if tag in outcomes:
            return Error(
                condition="amqp:not-allowed",
                description=f"delivery-tag {tag.hex()} is that of another delivery which is not settled "
                f"(2.6.12)",
            )
        if len(outcomes) >= self._most:
            return Error(
                condition="amqp:resource-limit-exceeded",
                description=f"{self._most} deliveries of the link are not settled by their sender, as many "
                f"as limits.max_unsettled_per_link allows",
            )
        return None

    def on_resumed(self, delivery: Delivery, aborted: bool) -> None:
        """The peer resumed a delivery that both sides had unsettled."""
        if aborted:
            self._terminus.forget([delivery])
            self.processed(1)
        else:
            self._answer(delivery)

    def _answer(self, delivery: Delivery) -> None:
        """Tell the outcome that it has; that of the sender stands where it has one of its own (3.4.6)."""
        terminus = self._terminus
        state = delivery.state
        if delivery.settled:
            terminus.forget([delivery])
        elif isinstance(state, OUTCOMES):
            terminus.forget([delivery], partial(self._settled_for_good, delivery, state))
        else:
            outcome = terminus.outcomes[delivery.delivery_tag]
            if delivery.rcv_settle_mode == SECOND:
                self.link.settle([delivery], outcome)
                self._forget_settled([delivery])
            else:
                terminus.forget([delivery], partial(self._settled_for_good, delivery, outcome))
        self.processed(1)

    def _settled_for_good(self, delivery: Delivery, state: Any, error: Exception | None) -> None:
        """We have settled a delivery, also where a restart is. From any task."""
        self.connection.mail.post(self._tell_settled, (delivery, state), error)

    def _tell_settled(self, settled: tuple[Delivery, Any], error: Exception | None) -> None:
        delivery, state = settled
        if not self.attached:
            return
        if error is not None:
            self.detach(error_of(error))
            return
        self.link.dispose([delivery], state, settled=True)

    def _forget_settled(self, deliveries: list[Delivery]) -> None:
        """Those that no sender will settle once it has their outcome: it has, or we did (mode first). A peer
        that has left meanwhile settles them on its next link.
        """
        link = self.link
        stays = link.attached
        self._terminus.forget(
            [
                each
                for each in deliveries
                if each.rcv_settle_mode != SECOND or (stays and not link.awaits(each))
            ]
        )

    def on_settled(self, deliveries: list[Delivery]) -> None:
        """The peer has settled these: it will not resume them."""
        self._terminus.forget(deliveries)

    def on_posted(self, posting: Any, error: Exception | None) -> None:
        """A posting was committed, or refused by the store. From any task, also when the link is gone."""
        self._terminus.decide(posting.deliveries, ACCEPTED if error is None else None)
        super().on_posted(posting, error)

    def accepted(self, deliveries: list[Delivery]) -> None:
        """The peer was told: what it will not settle itself is forgotten."""
        super().accepted(deliveries)
        if self.attached:
            self._forget_settled(deliveries)

    def refuse(self, deliveries: list[Delivery], error: Error) -> None:
        """These messages are not taken, which is their outcome where the sender listens."""
        super().refuse(deliveries, error)
        if self.ended:
            self._terminus.decide(deliveries, None)
            return
        for delivery in deliveries:
            if not isinstance(delivery.state, TransactionalState):
                self._terminus.refused(delivery, Rejected(error=error))
        self._forget_settled(deliveries)

    def on_detached(self) -> None:
        """The link is gone; its target may be taken up by another one."""
        super().on_detached()
        self._gone(self._terminus, self, self.closed or self.queue.deleted)
