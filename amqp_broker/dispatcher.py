"""From the nodes to one connection's receivers, and back: what is sent, and the outcomes of that.

Everything here runs in the turn of the connection's own task and waits for nothing but the answer to an
attach.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from amqp_broker import message_events
from amqp_broker.frames import Accepted, Error, Modified, Received, Rejected, Released, TransactionalState
from amqp_broker.links import (
    CreditReceived,
    DeliveriesSettled,
    FlowReceived,
    LinkDetached,
    OutcomesReceived,
    OutgoingDelivery,
    ReceiverLink,
    SenderLink,
)
from amqp_broker.operations.posting import Settlement, Step, retire_verbs, return_verbs
from amqp_broker.persistence import Record, Unit
from amqp_broker.posts import Posts
from amqp_broker.queue import Consumer
from amqp_broker.records import annotate, changed, prepare, takes_annotations
from amqp_broker.termini import OUTCOMES
from amqp_broker.transactions import Transactions

if TYPE_CHECKING:
    from amqp_broker.link_owner import Service, Source
    from amqp_broker.links import AttachReceived
    from amqp_broker.producers import Producer
    from amqp_broker.services import Services

ACCEPTED: Final = Accepted()
RELEASED: Final = Released()


class Dispatcher:
    """Serves the links of one connection. `task` is its owner, `services` what all connections share.

    What they post is served by `posts`, and what names a transaction by `transactions`.
    """

    def __init__(self, task: Any, services: Services) -> None:
        nodes = services.nodes
        self._task = task
        self._nodes = nodes
        self.transactions = Transactions(task, self, nodes)
        self.posts = Posts(task, services, self.transactions)
        self.sources: dict[SenderLink, Source] = {}
        self.consumers: dict[SenderLink, Consumer] = {}
        self.stalled: set[Consumer] = set()
        self.stalled_sources: set[Source] = set()
        self._outcomes: dict[type, Callable[[Consumer, list[OutgoingDelivery], Any, bool], None]] = {
            Accepted: self._retire,
            Rejected: self._reject,
            Released: self._release,
            Modified: self._modify,
        }

    def holds(self, link: object) -> bool:
        """Whether `link` is attached here."""
        return link in self.consumers or link in self.sources or self.posts.holds(link)

    # What an attach puts behind a link

    def serve_source(self, link: SenderLink, source: Source) -> None:
        """From now on `source` stands behind a link on which we send."""
        self.sources[link] = source

    def serve_consumer(self, link: SenderLink, consumer: Consumer) -> None:
        """From now on a queue's consumer does."""
        self.consumers[link] = consumer

    def serve_posts(self, link: ReceiverLink, service: Service) -> None:
        """From now on `service` takes what arrives on a link."""
        self.posts.services[link] = service

    def serve_producer(self, link: ReceiverLink, producer: Producer) -> None:
        """From now on what arrives on it is posted."""
        self.posts.producers[link] = producer

    def serve_transactions(self, link: ReceiverLink, event: AttachReceived) -> None:
        """A control link: the transactions of this connection stand behind it, and accept it (4.1)."""
        self.posts.services[link] = self.transactions
        self.transactions.attach(link, event)

    def wait_for_output(self, source: Source) -> None:
        """Have `source.on_credit` called when the output has room again."""
        self.stalled_sources.add(source)

    def wait_no_more(self, source: Source) -> None:
        """It is not to be called; harmless where nothing waits."""
        self.stalled_sources.discard(source)

    # What a client receives

    def on_credit(self, event: CreditReceived) -> None:
        """Credit or drain of a link on which we send changed, or it may send again."""
        if self.transactions.aborting and not event.link.sending:
            self.transactions.on_sent(event.link)
        consumer = self.consumers.get(event.link)
        if consumer is not None:
            self.offer(consumer)
        elif event.link in self.sources:
            self.sources[event.link].on_credit()

    def on_flow(self, event: FlowReceived) -> None:
        """A flow of a link on which we send named a transaction, or none after one (4.4.3)."""
        consumer = self.consumers.get(event.link)
        if consumer is not None:
            self.transactions.on_flow(consumer, event.txn_id)
        elif event.link in self.sources:
            description = "nothing is acquired on this link, so no transaction can acquire on it (4.4.3)"
            event.link.detach(Error(condition="amqp:not-implemented", description=description))

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
        link.set_available(queue.available_for(consumer))
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
        if self.stalled_sources:
            sources, self.stalled_sources = self.stalled_sources, set()
            for source in sources:
                source.on_credit()

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
        transactional = self.transactions.acquires(consumer)
        taken = self.transactions.send(consumer, records) if transactional else link.send(records)
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
        if taken and consumer.queue.events and not consumer.browser:
            self._log_delivered(consumer, records[:taken])
        if taken and transactional:  # not before: what this assigns to the same consumer is pending, too
            self.transactions.show_acquired(consumer.queue)
        elif taken and consumer.settled and not consumer.browser:
            sent = records[:taken]
            self._settle(consumer, [], sent, ACCEPTED, self._retire_verbs(consumer, sent, ACCEPTED))

    # Outcomes of what a client received

    def on_outcomes(self, event: OutcomesReceived) -> None:
        """A run of deliveries got the same state from their receiver."""
        consumer = self.consumers.get(event.link)
        if consumer is not None:
            self.dispose(consumer, event.deliveries, event.state, event.settled)
        elif event.link in self.sources:
            self.sources[event.link].on_outcomes(event.deliveries, event.state, event.settled)

    def dispose(
        self, consumer: Consumer, deliveries: list[OutgoingDelivery], state: Any, settled: bool
    ) -> None:
        """What the receiver says of a run of its deliveries."""
        transactional = type(state) is TransactionalState
        outcome = state.outcome if transactional else state
        if outcome is None or type(outcome) is Received:
            if not settled and not transactional:
                return
            outcome = consumer.default_outcome
        deliveries = [
            delivery for delivery in deliveries if not delivery.decided
        ]  # a terminal outcome stands (3.4)
        handler = self._outcomes.get(type(outcome))
        if not deliveries:
            pass
        elif handler is None or OUTCOMES[type(outcome)] not in consumer.outcomes:
            self._refuse_outcome(consumer, outcome, deliveries if settled else [])
            return
        elif consumer.browser:
            if not settled:
                consumer.link.settle(deliveries, state)
        elif type(outcome) is Modified and outcome.message_annotations and self._grow(deliveries, outcome):
            self._refuse_annotations(consumer, outcome, deliveries)
            return
        elif transactional:
            self.transactions.dispose(consumer, deliveries, state, settled)
        else:
            if self.transactions.holds_any:
                deliveries = self.transactions.dispose_plainly(consumer, deliveries, state, settled)
            for delivery in deliveries:
                delivery.decided = True
            if deliveries:
                handler(consumer, deliveries, outcome, settled)
        if consumer.demand == 0:
            self.offer(consumer)

    def apply(
        self, consumer: Consumer, deliveries: list[OutgoingDelivery], outcome: Any, settled: bool
    ) -> None:
        """Do what an outcome says with deliveries that no transaction holds."""
        self._outcomes[type(outcome)](consumer, deliveries, outcome, settled)

    def _refuse_outcome(self, consumer: Consumer, state: object, settled: list[OutgoingDelivery]) -> None:
        """Detach for an outcome that the source does not offer; what the peer settled by it comes back."""
        if not consumer.browser:
            free = self.transactions.holder_gone(consumer, settled)
            for delivery in free:
                delivery.decided = True
            self._return(consumer, [delivery.message for delivery in free])
        link = consumer.link
        offered = ", ".join(sorted(consumer.outcomes))
        description = f"expected one of the outcomes that the source offers ({offered}), got {state!r:.120}"
        link.detach(Error(condition="amqp:not-allowed", description=description))

    def _grow(self, deliveries: list[OutgoingDelivery], outcome: Modified) -> bool:
        """Whether some of the messages would have more message-annotations than they may."""
        return not all(self._takes(delivery.message, outcome) for delivery in deliveries)

    def _takes(self, record: Record, outcome: Any) -> bool:
        most = self._nodes.config.limits.annotations_bytes
        return takes_annotations(record, outcome.message_annotations, most)

    def _refuse_annotations(
        self, consumer: Consumer, outcome: Modified, deliveries: list[OutgoingDelivery]
    ) -> None:
        """Detach: what was to be added (3.4.5) is not, so the outcome is not told as done. Everything else of
        it is: without the count of the try, the message would come back for ever.
        """
        bare = Modified(
            delivery_failed=outcome.delivery_failed, undeliverable_here=outcome.undeliverable_here
        )
        consumer.demand = 0
        free = self.transactions.holder_gone(consumer, deliveries)
        for delivery in deliveries:
            delivery.decided = True
        if free:
            self._modify(consumer, free, bare, True)
        most = self._nodes.config.limits.annotations_bytes
        description = (
            f"expected message-annotations of at most {most} octets with those of modified, got more"
        )
        consumer.link.detach(Error(condition="amqp:resource-limit-exceeded", description=description))

    def _retire(
        self, consumer: Consumer, deliveries: list[OutgoingDelivery], state: Any, settled: bool
    ) -> None:
        records = [delivery.message for delivery in deliveries]
        verbs = self._retire_verbs(consumer, records, state)
        self._settle(consumer, [] if settled else deliveries, records, state, verbs)

    def _reject(
        self, consumer: Consumer, deliveries: list[OutgoingDelivery], state: Any, settled: bool
    ) -> None:
        self._nodes.rejected(consumer.queue, deliveries, state)
        self._retire(consumer, deliveries, state, settled)

    def _release(
        self, consumer: Consumer, deliveries: list[OutgoingDelivery], state: Any, settled: bool
    ) -> None:
        records = [delivery.message for delivery in deliveries]
        if consumer.queue.events:
            verbs = self._outcome_events(consumer, records, state)
            self._settle(consumer, [] if settled else deliveries, [], state, verbs)
            self._return(consumer, records)
            return
        self._return(consumer, records)
        if not settled:
            consumer.link.settle(deliveries, state)

    def _modify(
        self, consumer: Consumer, deliveries: list[OutgoingDelivery], state: Any, settled: bool
    ) -> None:
        records = [delivery.message for delivery in deliveries]
        effects = bool(state.delivery_failed or state.message_annotations)
        self._change(consumer, records, state)
        verbs = return_verbs(consumer.queue.queue_id, records) if effects else []
        if consumer.queue.events:
            verbs.extend(self._outcome_events(consumer, records, state))
        self._settle(consumer, [] if settled else deliveries, [], state, verbs)
        self._return(consumer, records)

    def _change(self, consumer: Consumer, records: list[Record], state: Any) -> None:
        """What `modified` does to messages (3.4.5)."""
        queue = consumer.queue
        for record in records:
            if state.delivery_failed:
                record.delivery_count += 1
            if state.message_annotations and self._takes(record, state):
                before = len(record.body)
                annotate(record, state.message_annotations)
                queue.grew(record, len(record.body) - before)
            if state.undeliverable_here:
                queue.exclude(record, consumer)

    def give_back(self, consumer: Consumer, records: list[Record], outcome: Any) -> None:
        """Messages return to their places as an outcome says, which the store knows already."""
        if type(outcome) is Modified:
            self._change(consumer, records, outcome)
        self._return(consumer, records)

    def _return(self, consumer: Consumer, records: list[Record]) -> None:
        for record in records:
            changed(record)
        consumer.queue.give_back(records)
        self._nodes.pump(consumer.queue)

    def _retire_verbs(self, consumer: Consumer, records: list[Record], state: Any) -> Unit:
        queue = consumer.queue
        verbs = retire_verbs(queue.queue_id, records)
        if queue.events:
            verbs.extend(self._outcome_events(consumer, records, state))
        return verbs

    def _outcome_events(self, consumer: Consumer, records: list[Record], state: Any) -> Unit:
        now_ms = self._nodes.wall_clock_ms()
        return message_events.settled(consumer.queue, records, state, self._task.container_id, now_ms)

    def _log_delivered(self, consumer: Consumer, records: list[Record]) -> None:
        """With the next group, or a little later: nobody waits for it."""
        now_ms = self._nodes.wall_clock_ms()
        verbs = message_events.delivered(consumer.queue, records, self._task.container_id, now_ms)
        self._nodes.writer.defer(Step(verbs, told=True))

    def _settle(
        self,
        consumer: Consumer,
        deliveries: list[OutgoingDelivery],
        retired: list[Record],
        state: Any,
        verbs: Unit,
    ) -> None:
        link = consumer.link
        settlement = Settlement(
            self._task, link, deliveries, consumer.queue, retired, state, self._nodes, verbs
        )
        if not verbs:
            settlement.stored()
        elif deliveries:
            self._nodes.writer.collect(settlement)
        else:
            self._nodes.writer.defer(settlement)

    def settled(self, settlement: Settlement) -> None:
        """In the turn after the commit: the receiver that waits for it is told that its outcome holds."""
        consumer = self.consumers.get(settlement.link)
        if consumer is not None:
            consumer.link.settle(settlement.deliveries, settlement.state)

    # The end of links

    def on_detached(self, event: LinkDetached) -> None:
        """A link is gone: what it held goes back to its place, as the default outcome says."""
        link = event.link
        self._nodes.link_names.release(self._task.link_key(link), link)
        if isinstance(link, ReceiverLink):
            self.posts.on_detached(link)
            return
        if self.transactions.aborting:
            self.transactions.on_sent(link)
        source = self.sources.pop(link, None)
        if source is not None:
            source.on_detached(event.unsettled)
        consumer = self.consumers.pop(link, None)
        if consumer is None:
            return
        queue = consumer.queue
        consumer.demand = 0
        queue.detach(consumer)
        waiting = list(consumer.pending)
        consumer.pending.clear()
        if not consumer.browser:
            held = [delivery for delivery in event.unsettled if not delivery.decided]
            held = self.transactions.holder_gone(consumer, held)
            queue.take_back(waiting)
            if held:
                self._outcomes[type(consumer.default_outcome)](consumer, held, consumer.default_outcome, True)
            self._nodes.pump(queue)
        self._nodes.forget_consumer(consumer)

    def on_sender_settled(self, event: DeliveriesSettled) -> None:
        """The sender settled what it had our outcome for (mode second): nothing is left to do."""
