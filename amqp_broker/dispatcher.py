"""From the events of one connection's engine to the nodes, and back: posting, and the outcomes of what was
sent.

Everything here runs in the turn of the connection's own task and waits for nothing but the answer to an
attach.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from amqp_broker.frames import Accepted, DecodeError, Error, Modified, Received, Rejected, Released
from amqp_broker.jobs import Posting, Settlement, retire_verbs, return_verbs
from amqp_broker.links import (
    CreditReceived,
    DeliveriesReceived,
    DeliveriesSettled,
    Delivery,
    LinkDetached,
    OutcomesReceived,
    OutgoingDelivery,
    ReceiverLink,
    SenderLink,
)
from amqp_broker.persistence import Record
from amqp_broker.producers import Producer
from amqp_broker.queue import Consumer, Queue
from amqp_broker.records import annotate, changed, prepare, record_of
from amqp_broker.termini import OUTCOMES

if TYPE_CHECKING:
    from amqp_broker.node_service import NodeService

ACCEPTED: Final = Accepted()
RELEASED: Final = Released()


def deleted_error(queue: Queue) -> Error:
    """Why a link of a queue that is gone ends."""
    return Error(condition="amqp:resource-deleted", description=f"queue {queue.name!r} was deleted")


class Dispatcher:
    """Serves the links of one connection. `task` is its owner, `nodes` what all connections share."""

    def __init__(self, task: Any, nodes: NodeService) -> None:
        self._task = task
        self._nodes = nodes
        self.producers: dict[ReceiverLink, Producer] = {}
        self.consumers: dict[SenderLink, Consumer] = {}
        self.stalled: set[Consumer] = set()
        self._outcomes: dict[type, Callable[[Consumer, list[OutgoingDelivery], Any, bool], None]] = {
            Accepted: self._retire,
            Rejected: self._reject,
            Released: self._release,
            Modified: self._modify,
        }

    # What a client posted

    def on_deliveries(self, event: DeliveriesReceived) -> None:
        """A run of complete messages on one link."""
        link = event.link
        producer = self.producers.get(link)
        if producer is None:
            return
        deliveries = event.deliveries
        if producer.queue is None:
            for delivery in deliveries:
                self._post_by_properties(producer, delivery)
            return
        queue = producer.queue
        now_ms = self._nodes.wall_clock_ms()
        persistent = queue.persistent
        queue_id = queue.queue_id
        try:
            records = [
                record_of(d.payload, d.message_format, now_ms, queue_id, persistent) for d in deliveries
            ]
        except DecodeError:
            self._post_up_to_malformed(link, deliveries, queue, now_ms)
            return
        self._post(link, deliveries, queue, records)

    def _post_up_to_malformed(
        self, link: ReceiverLink, deliveries: list[Delivery], queue: Queue, now_ms: int
    ) -> None:
        """What came before a message with malformed sections is taken, wherever a read ended."""
        records: list[Record] = []
        for delivery in deliveries:
            try:
                records.append(
                    record_of(
                        delivery.payload, delivery.message_format, now_ms, queue.queue_id, queue.persistent
                    )
                )
            except DecodeError as error:
                if records:
                    self._post(link, deliveries[: len(records)], queue, records)
                self._malformed(link, error)
                return

    def _post(
        self, link: ReceiverLink, deliveries: list[Delivery], queue: Queue, records: list[Record]
    ) -> None:
        if queue.deleted:
            link.detach(deleted_error(queue))
            return
        posting = Posting(self._task, link, deliveries, queue, records, self._nodes)
        if posting.durable_count or queue.pending_posts > 1:
            self._nodes.writer.collect(posting)  # nothing overtakes what stands before it in its queue
        else:
            posting.unit()
            posting.finished(None)

    def _post_by_properties(self, producer: Producer, delivery: Delivery) -> None:
        """The anonymous terminus: each message names its node in properties.to."""
        link = producer.link
        now_ms = self._nodes.wall_clock_ms()
        try:
            found = self._nodes.relay_target(self._task.principal, delivery.payload)
            if isinstance(found, Error):
                self.refuse_posts(link, [delivery], found)
                return
            record = record_of(
                delivery.payload, delivery.message_format, now_ms, found.queue_id, found.persistent
            )
        except DecodeError as error:
            self._malformed(link, error)
            return
        self._post(link, [delivery], found, [record])

    def _malformed(self, link: ReceiverLink, error: DecodeError) -> None:
        """A message that misrepresents its sections ends the session (behaviour paper 2.2.1)."""
        link.session.end(Error(condition=error.condition, description=error.description))

    def posted(self, posting: Posting, error: Exception | None) -> None:
        """In the turn after the commit: tell the sender, and renew its credit."""
        link = posting.link
        if link not in self.producers:
            return
        if error is None:
            link.settle(posting.deliveries, ACCEPTED)
        else:
            self.refuse_posts(
                link,
                posting.deliveries,
                Error(condition="amqp:resource-limit-exceeded", description=str(error)),
            )
            return
        self._processed(link, len(posting.deliveries))

    def refuse_posts(self, link: ReceiverLink, deliveries: list[Delivery], error: Error) -> None:
        """These messages were not stored: rejected where the sender listens, else the link is detached (fail
        fast).
        """
        if any(delivery.settled for delivery in deliveries):
            link.detach(error)
            return
        link.settle(deliveries, Rejected(error=error))
        self._processed(link, len(deliveries))

    def _processed(self, link: ReceiverLink, count: int) -> None:
        producer = self.producers[link]
        queue = producer.queue
        if queue is not None and not producer.blocked and queue.full():
            producer.blocked = True
            queue.blocked.append(producer)
            link.set_credit(0)
        link.processed(count)

    def unblock(self, producer: Producer) -> None:
        """The queue has room again: the link gets its credit back."""
        if producer.link in self.producers:
            producer.blocked = False
            producer.link.set_credit(producer.credit)

    # What a client receives

    def on_credit(self, event: CreditReceived) -> None:
        """Credit or drain of a link on which we send changed."""
        consumer = self.consumers.get(event.link)
        if consumer is not None:
            self.offer(consumer)

    def offer(self, consumer: Consumer) -> None:
        """Send what waits for this consumer, and ask its queue for more."""
        link = consumer.link
        self._send_pending(consumer)
        queue = consumer.queue
        consumer.demand = 0 if consumer.pending else link.sendable()
        if consumer.demand == 0 and link.credit > 0:
            self.stalled.add(consumer)
        if consumer.demand > 0:
            self._nodes.pump(queue)
        link.set_available(queue.backlog.available())
        if link.drain and link.credit > 0 and not consumer.pending and queue.empty_for(consumer):
            consumer.demand = 0
            link.drained()
        consumer.draining = link.drain and link.credit > 0

    def offer_stalled(self) -> None:
        """The output has room again: links that could not send for lack of it go on."""
        if self.stalled:
            stalled, self.stalled = self.stalled, set()
            for consumer in stalled:
                if consumer.link in self.consumers:
                    self.offer(consumer)

    def send_assigned(self, consumer: Consumer) -> None:
        """Messages that a queue assigned go out, in the turn of the task that owns the link's engine."""
        link = consumer.link
        if link not in self.consumers:
            return
        self._send_pending(consumer)
        if consumer.pending:
            consumer.demand = 0
            self.stalled.add(consumer)
        elif link.credit > 0 and (consumer.demand <= 0 or link.drain):
            self.offer(
                consumer
            )  # window or unsettled bounds were the limit, or the drain waits for an answer

    def _send_pending(self, consumer: Consumer) -> None:
        pending = consumer.pending
        if not pending:
            return
        records = list(pending)
        link = consumer.link
        prepare(records, self._nodes.wall_clock_ms())
        taken = link.send(records)
        if taken == len(records):
            pending.clear()
        else:
            for _ in range(taken):
                pending.popleft()
            excess = len(pending) - link.credit
            if excess > 0:  # the peer took credit back: others may have these
                consumer.demand = 0
                consumer.queue.take_back([pending.pop() for _ in range(excess)])
                self._nodes.pump(consumer.queue)
        if taken and consumer.settled and not consumer.browser:
            sent = records[:taken]
            self._settle(consumer, [], sent, ACCEPTED, retire_verbs(consumer.queue.queue_id, sent))

    # Outcomes of what a client received

    def on_outcomes(self, event: OutcomesReceived) -> None:
        """A run of deliveries got the same state from their receiver."""
        consumer = self.consumers.get(event.link)
        if consumer is None:
            return
        state = event.state
        if state is None or type(state) is Received:
            if not event.settled:
                return
            state = consumer.default_outcome
        deliveries = event.deliveries
        if consumer.decided:
            deliveries = self._undecided(consumer, deliveries, event.settled)
        if not deliveries:
            if consumer.demand == 0:
                self.offer(consumer)
            return
        handler = self._outcomes.get(type(state))
        if handler is None or OUTCOMES[type(state)] not in consumer.outcomes:
            self._refuse_outcome(consumer, state, deliveries if event.settled else [])
            return
        if consumer.browser:
            if not event.settled:
                event.link.settle(deliveries, state)
            self.offer(consumer)
            return
        if not event.settled:
            consumer.decided.update([delivery.number for delivery in deliveries])
        handler(consumer, deliveries, state, event.settled)
        if consumer.demand == 0:
            self.offer(consumer)

    def _undecided(
        self, consumer: Consumer, deliveries: list[OutgoingDelivery], settled: bool
    ) -> list[OutgoingDelivery]:
        """A terminal outcome stands (3.4): what follows it for the same delivery only settles."""
        decided = consumer.decided
        new = [delivery for delivery in deliveries if delivery.number not in decided]
        if settled:
            decided.difference_update([delivery.number for delivery in deliveries])
        return new

    def _refuse_outcome(self, consumer: Consumer, state: object, settled: list[OutgoingDelivery]) -> None:
        """Detach for an outcome that the source does not offer; what the peer settled by it comes back."""
        if not consumer.browser:
            self._return(consumer, [delivery.message for delivery in settled])
        link = consumer.link
        offered = ", ".join(sorted(consumer.outcomes))
        description = f"expected one of the outcomes that the source offers ({offered}), got {state!r:.120}"
        link.detach(Error(condition="amqp:not-allowed", description=description))

    def _retire(
        self, consumer: Consumer, deliveries: list[OutgoingDelivery], state: Any, settled: bool
    ) -> None:
        records = [delivery.message for delivery in deliveries]
        verbs = retire_verbs(consumer.queue.queue_id, records)
        self._settle(consumer, [] if settled else deliveries, records, state, verbs)

    def _reject(
        self, consumer: Consumer, deliveries: list[OutgoingDelivery], state: Any, settled: bool
    ) -> None:
        self._nodes.rejected(consumer.queue, deliveries, state)
        self._retire(consumer, deliveries, state, settled)

    def _release(
        self, consumer: Consumer, deliveries: list[OutgoingDelivery], state: Any, settled: bool
    ) -> None:
        self._return(consumer, [delivery.message for delivery in deliveries])
        if not settled:
            self._confirm(consumer, deliveries, state)

    def _modify(
        self, consumer: Consumer, deliveries: list[OutgoingDelivery], state: Any, settled: bool
    ) -> None:
        records = [delivery.message for delivery in deliveries]
        queue = consumer.queue
        effects = bool(state.delivery_failed or state.message_annotations)
        for record in records:
            if state.delivery_failed:
                record.delivery_count += 1
            if state.message_annotations:
                before = len(record.body)
                annotate(record, state.message_annotations)
                queue.grew(record, len(record.body) - before)
            if state.undeliverable_here:
                queue.exclude(record, consumer)
        verbs = return_verbs(queue.queue_id, records) if effects else []
        self._settle(consumer, [] if settled else deliveries, [], state, verbs)
        self._return(consumer, records)

    def _return(self, consumer: Consumer, records: list[Record]) -> None:
        for record in records:
            changed(record)
        consumer.queue.give_back(records)
        self._nodes.pump(consumer.queue)

    def _settle(
        self,
        consumer: Consumer,
        deliveries: list[OutgoingDelivery],
        retired: list[Record],
        state: Any,
        verbs: list[Any],
    ) -> None:
        link = consumer.link
        job = Settlement(self._task, link, deliveries, consumer.queue, retired, state, self._nodes, verbs)
        if not verbs:
            job.finished(None)
        elif deliveries:
            self._nodes.writer.collect(job)
        else:
            self._nodes.writer.defer(job)

    def settled(self, settlement: Settlement, error: Exception | None) -> None:
        """In the turn after the commit: the receiver that waits for it is told that its outcome holds."""
        consumer = self.consumers.get(settlement.link)
        if consumer is not None and settlement.deliveries:
            self._confirm(consumer, settlement.deliveries, settlement.state)

    def _confirm(self, consumer: Consumer, deliveries: list[OutgoingDelivery], state: Any) -> None:
        link = consumer.link
        link.settle(deliveries, state)
        consumer.decided.difference_update([delivery.number for delivery in deliveries])

    # The end of links

    def on_detached(self, event: LinkDetached) -> None:
        """A link is gone: what it held goes back to its place, as the default outcome says."""
        link = event.link
        self._nodes.link_names.release(self._task.link_key(link), link)
        producer = self.producers.pop(link, None) if isinstance(link, ReceiverLink) else None
        if producer is not None:
            self._nodes.forget_producer(producer)
        consumer = self.consumers.pop(link, None) if isinstance(link, SenderLink) else None
        if consumer is None:
            return
        queue = consumer.queue
        consumer.demand = 0
        queue.detach(consumer)
        waiting = list(consumer.pending)
        consumer.pending.clear()
        if not consumer.browser:
            held = [delivery for delivery in event.unsettled if delivery.number not in consumer.decided]
            queue.take_back(waiting)
            if held:
                self._outcomes[type(consumer.default_outcome)](consumer, held, consumer.default_outcome, True)
            self._nodes.pump(queue)
        self._nodes.forget_consumer(consumer)

    def on_sender_settled(self, event: DeliveriesSettled) -> None:
        """The sender settled what it had our outcome for (mode second): nothing is left to do."""
