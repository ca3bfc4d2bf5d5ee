"""From a queue to one receiver, and back: what is sent, and the outcomes of that.

    queue --assign--> deliver --mail--> on_offer --> link.send       outcome --> verbs --commit--> settled

Everything here but `deliver` and `settled` runs in a turn of the connection, and waits for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from amqp_broker import message_events
from amqp_broker.connection import OCTETS_AT_ONCE
from amqp_broker.counts import RETURNED, SENT, left_by
from amqp_broker.frames import Accepted, Error, Modified, Received, Rejected, Released, TransactionalState
from amqp_broker.links import OutgoingDelivery, SenderLink, no_memory
from amqp_broker.nodes.termini import OUTCOMES
from amqp_broker.operations.posting import (
    Settlement,
    Step,
    dead_after_tries,
    ended_by,
    letter_of,
    record_of_item,
    retire_verbs,
    return_verbs,
    without,
)
from amqp_broker.persistence import (
    RECORD_OVERHEAD_BYTES,
    LargeRecord,
    Record,
    TailReader,
    Unit,
)
from amqp_broker.queue import Consumer, Queue
from amqp_broker.records import (
    AnnotationsRefused,
    added_bytes,
    annotate,
    annotated,
    annotations_bytes,
    changed,
    prepare,
)

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.connection import Connection
    from amqp_broker.endings import Letter
    from amqp_broker.filters.source_filter import SourceFilter
    from amqp_broker.transactions import Transactions

ACCEPTED: Final = Accepted()
RELEASED: Final = Released()
FAILED: Final = Modified(delivery_failed=True)
MS: Final = 0.001


class QueueSource(Consumer):
    """One link that receives from a queue. `transactions` are those of its connection."""

    __slots__ = ("_copied_bytes", "_damaged", "_half_sent", "_nodes", "transactions")

    def __init__(
        self, connection: Connection, link: SenderLink, queue: Queue, nodes: BrokerNodes,
        transactions: Transactions, *, browser: bool, settled: bool, default_outcome: object,
        outcomes: frozenset[str], filter: SourceFilter | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            connection, link, queue, browser=browser, settled=settled, default_outcome=default_outcome,
            outcomes=outcomes, largest=link.remote_max_message_size, filter=filter,
        )  # fmt: skip
        link.copies = browser
        self._nodes = nodes
        self._copied_bytes = 0
        self._damaged: tuple[tuple[Record, str], ...] = ()  # what a transaction holds, and why it is put away
        self._half_sent: tuple[Record, ...] = ()  # settled, and large: not all of them is out
        self.transactions = transactions

    # From any task

    def deliver(self, records: list[Record]) -> None:
        """The queue assigned `records`; none: look again whether there is something to send."""
        if records:
            self.pending.extend(records)
            if self.browser:
                self._copy(records)
            self.connection.mail.post(self._send_assigned)
        else:
            self.connection.offer(self)

    def _copy(self, records: list[Record]) -> None:
        """What a browser is given counts as memory of its connection until all of it went out."""
        octets = sum([len(record.body) + RECORD_OVERHEAD_BYTES for record in records])
        self._copied_bytes += octets
        self.connection.account.hold(octets)

    def _copies_gone(self) -> None:
        self.connection.account.give_back(self._copied_bytes)
        self._copied_bytes = 0

    def on_settled(self, settlement: Any) -> None:
        """Outcomes that the receiver gave were committed."""
        self.connection.mail.post(self._settled, settlement)

    # What the client receives

    def on_credit(self) -> None:
        """Send what waits for this link, and ask the queue for more."""
        link = self.link
        self._send_pending()
        queue = self.queue
        self.ask(0 if self.pending else self._wanted())
        if self.demand > 0:
            self._nodes.pump(queue)
        link.set_available(queue.available_for(self))
        if link.drain and link.credit > 0 and not self.pending and queue.empty_for(self):
            self.demand = 0
            link.drained()
        self.draining = link.drain and link.credit > 0

    def _wanted(self) -> int:
        """How many messages the link could be sent now."""
        return self.link.sendable()

    def on_flow(self, txn_id: object) -> None:
        """A flow named a transaction, or none after one (4.4.3)."""
        self.transactions.on_flow(self, txn_id)

    def _send_assigned(self, _first: None = None, _second: None = None) -> None:
        self.on_offer()

    def on_offer(self) -> None:
        """Send the messages that the queue assigned."""
        link = self.link
        if link.context is not self:
            return
        self._send_pending()
        if self.pending:
            self.demand = 0
        elif link.credit > 0 and (self.demand <= 0 or link.drain):
            self.on_credit()  # window or unsettled bounds were the limit, or the drain waits for an answer

    def _send_pending(self) -> None:
        pending = self.pending
        link = self.link
        if not pending or (not link.sendable() and len(pending) <= link.credit):
            return
        records = list(pending)
        now_ms = self._nodes.clock.now_ms()
        prepare(records, now_ms)
        transactional = self.transactions.acquires(self)
        if transactional:
            taken = self.transactions.send(self, records)
        else:
            taken = self.send_mixed(records)[0] if self.queue.large else link.send(records)
        if taken == len(records):
            pending.clear()
        else:
            for _ in range(taken):
                pending.popleft()
            excess = len(pending) - link.credit
            if excess > 0:  # the peer took credit back: others may have these
                self.demand = 0
                back = [pending.pop() for _ in range(excess)]
                if not self.browser:  # which has copies
                    self.queue.take_back(back)
                    self._nodes.pump(self.queue)
        if not self.browser:
            self.queue.counts[SENT] += taken
            if taken:
                self._nodes.ages.add(MS * (now_ms - records[0].enqueued_at_ms), taken)
                self._nodes.writer.watcher.sent(self, records, taken)
        elif self._copied_bytes and not pending:
            self._copies_gone()
        if taken and self.queue.events and not self.browser:
            self._log_delivered(records[:taken])
        if taken and transactional:  # not before: what this assigns to the same link is pending, too
            self.transactions.show_acquired(self.queue)
            self._send_pending()  # what the link could take did not fit: that is too much, and told now
        elif taken and self.settled and not self.browser:
            self._settle_sent(records[:taken])

    # Messages of which only the head is in memory

    def send_mixed(self, records: list[Record], state: Any = None) -> tuple[int, list[OutgoingDelivery]]:
        """Send `records`, among which may be large ones, whose bodies are read as they are sent; as `send_in`
        of the link, where there is a `state`.
        """
        link = self.link
        taken = 0
        deliveries: list[OutgoingDelivery] = []
        while taken < len(records):
            record = records[taken]
            end = taken + 1
            if isinstance(record, LargeRecord):
                count, sent = link.send_streamed(record, TailReader(record.tail), state=state)
            else:
                while end < len(records) and not isinstance(records[end], LargeRecord):
                    end += 1
                run = records[taken:end]
                count, sent = (link.send(run), []) if state is None else link.send_in(run, state)
            taken += count
            deliveries += sent
            if taken < end:
                break
        return taken, deliveries

    def _settle_sent(self, sent: list[Record]) -> None:
        """Messages that are sent settled leave the queue: large ones when all of them is out."""
        if self.queue.large:
            large = [record for record in sent if isinstance(record, LargeRecord)]
            if large:
                self._half_sent = (*self._half_sent, *large)
                sent = [record for record in sent if not isinstance(record, LargeRecord)]
        if sent:
            self._settle([], True, sent, ACCEPTED, self._retire_verbs(sent, ACCEPTED))

    def on_body_sent(self, message: Any) -> None:
        """All of a large message that is sent settled is out, and it leaves the queue."""
        if self._left_half_sent(message):
            self._settle([], True, [message], ACCEPTED, self._retire_verbs([message], ACCEPTED))

    def _left_half_sent(self, message: Any) -> bool:
        """Whether it was one that is sent settled, outside of transactions, and on its way until now."""
        before = self._half_sent
        self._half_sent = tuple([record for record in before if record is not message])
        return len(self._half_sent) < len(before)

    def on_body_lost(
        self, message: Any, delivery: OutgoingDelivery | None, why: str, damaged: bool
    ) -> None:  # fmt: skip
        """The body of a message could not be had while it was being sent. Damaged, nobody else gets it;
        else it comes again. But for one that has an outcome by then; what a transaction holds waits for its
        end.
        """
        if self.browser:
            return
        if delivery is None:
            if not self._left_half_sent(message):
                self._waits_for_transaction(message, message, why, damaged)
                return
        elif delivery.decided or self._waits_for_transaction(delivery, message, why, damaged):
            return
        if delivery is not None:
            delivery.decided = True
            self.lost(delivery)
        if damaged:
            self._nodes.damaged(self.queue, message, why)
        else:
            message.acquired_before = True
            changed(message)
            self._nodes.unread(self.queue, message, why)

    def _waits_for_transaction(
        self, item: OutgoingDelivery | Record, message: Record, why: str, damaged: bool
    ) -> bool:  # fmt: skip
        held = self.transactions.lose_sending(self, item, why)
        if held and damaged:
            self._damaged = (*self._damaged, (message, why))
        return held

    def lost(self, delivery: OutgoingDelivery) -> None:
        """A delivery will never be whole."""

    # Outcomes of what the client received

    def on_outcomes(self, deliveries: list[OutgoingDelivery], state: Any, settled: bool) -> None:
        """The receiver gave a run of its deliveries a state."""
        transactional = type(state) is TransactionalState
        outcome = state.outcome if transactional else state
        if outcome is None or type(outcome) is Received:
            if not settled and not transactional:
                return
            outcome = self.default_outcome
        # A terminal outcome stands (3.4).
        decided = [delivery for delivery in deliveries if delivery.decided]
        if decided:
            deliveries = [delivery for delivery in deliveries if not delivery.decided]
        if deliveries:
            self._on_terminal(deliveries, state, outcome, settled)
        if decided:
            self.lose(decided, state, "another outcome of theirs stands")
        if self.demand == 0 and not self.ended:
            self.on_credit()

    def _on_terminal(
        self, deliveries: list[OutgoingDelivery], state: Any, outcome: Any, settled: bool
    ) -> None:
        if type(outcome) not in _OUTCOMES or OUTCOMES[type(outcome)] not in self.outcomes:
            self.lose(deliveries, state, "the source does not offer it")
            self._refuse_outcome(outcome, deliveries if settled else [])
        elif self.browser:
            if not settled:
                self.link.settle(deliveries, state)
        elif type(outcome) is Modified and outcome.message_annotations:
            self._on_annotated(deliveries, state, outcome, settled)
        else:
            self._decide(deliveries, state, outcome, settled)

    def _decide(self, deliveries: list[OutgoingDelivery], state: Any, outcome: Any, settled: bool) -> None:
        transactional = type(state) is TransactionalState
        self._nodes.writer.watcher.outcome(self, deliveries, outcome, transactional)
        if transactional:
            self.transactions.dispose(self, deliveries, state, settled)
            return
        if self.transactions.holds_any:
            deliveries = self.transactions.dispose_plainly(self, deliveries, state, settled)
        if deliveries:
            self.apply(deliveries, outcome, settled)

    # Annotations of modified (3.4.5): maps are read, merged and written once, a bounded part in each turn

    def at_once(self, deliveries: list[OutgoingDelivery], state: Any) -> int:
        """All of them, unless there are maps to be merged."""
        outcome = state.outcome if type(state) is TransactionalState else state
        if type(outcome) is not Modified or not outcome.message_annotations or self.browser:
            return len(deliveries)
        connection = self.connection
        added = added_bytes(outcome.message_annotations)
        count = 0
        for delivery in deliveries:
            count += 1
            if not delivery.decided:
                connection.spent_octets += annotations_bytes(delivery.message) + added
                if connection.spent_octets >= OCTETS_AT_ONCE:
                    break
        return count

    def _on_annotated(
        self, deliveries: list[OutgoingDelivery], state: Any, outcome: Modified, settled: bool
    ) -> None:
        """Each delivery for itself, as far as a read may join them: up to the first that is refused. A
        transaction for which there is no memory can't commit, so nothing is merged for it.
        """
        account = self.connection.account
        if type(state) is TransactionalState and not account.fits(_merged_most(deliveries, outcome)):
            self.lose(deliveries, state, no_memory(account, "what it adds"))
            self._decide(deliveries, state, outcome, settled)
            return
        for count, delivery in enumerate(deliveries):
            try:
                self._merge(delivery, outcome)
            except AnnotationsRefused as refused:
                if count:
                    self._decide(deliveries[:count], state, outcome, settled)
                why = "it adds more message-annotations than a message may have"
                self.lose(deliveries[count:], state, why)
                if not self.ended:
                    self._refuse_annotations(delivery, outcome, refused)
                if settled:
                    self.unheard(deliveries[count:])
                return
        self._decide(deliveries, state, outcome, settled)

    def _merge(self, delivery: OutgoingDelivery, outcome: Any) -> None:
        """What the outcome makes of the message is known from now on. What a transaction has for it so far
        stays known, too: its commit may be under way.
        """
        if delivery.merged_by(outcome) is not None:
            return
        most = self._nodes.config.limits.annotations_bytes
        section = annotated(delivery.message, outcome.message_annotations, most)
        given = self.transactions.given(delivery)
        delivery.merged = [pair for pair in delivery.merged or () if pair[0] is given]
        delivery.merged.append((outcome, section))

    def apply(self, deliveries: list[OutgoingDelivery], outcome: Any, settled: bool) -> None:
        """Do what an outcome says with deliveries that no transaction holds."""
        _OUTCOMES[type(outcome)](self, deliveries, outcome, settled)

    def _refuse_outcome(self, state: object, settled: list[OutgoingDelivery]) -> None:
        """Detach for an outcome that the source does not offer; what the peer settled by it comes back."""
        if not self.browser:
            free = self.transactions.consumer_gone(self, settled, left=False)
            self._return(free)
        offered = ", ".join(sorted(self.outcomes))
        description = f"expected one of the outcomes that the source offers ({offered}), got {state!r:.120}"
        self.detach(Error(condition="amqp:not-allowed", description=description))

    def _refuse_annotations(
        self, delivery: OutgoingDelivery, outcome: Modified, refused: AnnotationsRefused
    ) -> None:
        """Detach: what was to be added is not, so the outcome is not told as done. Everything else of it is:
        without the count of the try, the message would come back for ever.
        """
        self.demand = 0
        free = self.transactions.consumer_gone(self, [delivery], left=False)
        delivery.decided = True
        if free:
            bare = Modified(
                delivery_failed=outcome.delivery_failed, undeliverable_here=outcome.undeliverable_here
            )
            self._modify(free, bare, True)
        most = self._nodes.config.limits.annotations_bytes
        description = (
            f"expected message-annotations of at most {most} octets (limits.annotations_bytes) with those of "
            f"modified: {refused}"
        )
        self.detach(Error(condition="amqp:resource-limit-exceeded", description=description))

    def _retire(self, deliveries: list[OutgoingDelivery], state: Any, settled: bool) -> None:
        records = [delivery.message for delivery in deliveries]
        verbs = self._retire_verbs(records, state)
        self._settle(deliveries, settled, records, state, verbs)

    def _reject(self, deliveries: list[OutgoingDelivery], state: Any, settled: bool) -> None:
        self._nodes.rejected(self.queue, deliveries, state)
        self._give_up(deliveries, state, settled)

    def _give_up(self, deliveries: list[OutgoingDelivery], state: Any, settled: bool) -> None:
        """Messages leave the queue, and nobody has processed them."""
        queue = self.queue
        records = [delivery.message for delivery in deliveries]
        verbs = self._retire_verbs(records, state)
        if type(state) is Modified:
            verbs.extend(dead_after_tries(queue, records, self._nodes.clock.now_ms()))
        letter = letter_of(queue, deliveries, state)
        self._settle(deliveries, settled, records, state, verbs, letter)

    def _release(self, deliveries: list[OutgoingDelivery], state: Any, settled: bool) -> None:
        if self.queue.events:
            verbs = self._outcome_events([delivery.message for delivery in deliveries], state)
            self._settle(deliveries, settled, [], state, verbs)
            return
        self._return(deliveries)
        if not settled:
            self.link.settle(deliveries, state)

    def _modify(self, deliveries: list[OutgoingDelivery], state: Any, settled: bool) -> None:
        ended = ended_by(self.queue, deliveries, state)
        if ended:
            self._give_up(ended, state, settled)
            deliveries = without(deliveries, ended)
            if not deliveries:
                return
        verbs = return_verbs(self.queue.queue_id, deliveries, state)
        if self.queue.events:
            verbs.extend(self._outcome_events([delivery.message for delivery in deliveries], state))
        self._settle(deliveries, settled, [], state, verbs)

    def _change(self, deliveries: list[OutgoingDelivery], state: Any) -> None:
        """What `modified` does to messages (3.4.5)."""
        queue = self.queue
        for delivery in deliveries:
            record: Record = delivery.message
            if state.delivery_failed:
                record.delivery_count += 1
            if state.message_annotations:
                section = delivery.merged_by(state)
                assert section is not None, "it was merged when the outcome came"
                before = len(record.body)
                annotate(record, section)
                queue.grew(record, len(record.body) - before)
            if state.undeliverable_here:
                queue.exclude(record, self)
                queue.endings.excluded(record)

    def give_back(self, items: list[Any], outcome: Any) -> None:
        """Messages, or what they were delivered as, return to their places as an outcome says, which the
        store knows already. Those that failed may have to wait before.
        """
        failed = False
        if type(outcome) is Modified:
            failed = bool(outcome.delivery_failed)
            self._change(items, outcome)
        self._return(items, failed)

    def _return(self, items: Sequence[Any], failed: bool = False) -> None:
        """Messages, or what they were delivered as: each is decided when it is in its place."""
        queue = self.queue
        if self._damaged:
            items = self._put_away(items)
        queue.counts[RETURNED] += len(items)
        for item in items:
            record = record_of_item(item)
            changed(record)
            if not failed or not queue.endings.put_off(record):
                queue.give_back((record,))
            if item is not record:
                item.decided = True
        self._nodes.pump(self.queue)

    def _put_away(self, items: Sequence[Any]) -> list[Any]:
        """Those that were found damaged when they were sent are for nobody; the others."""
        others = []
        for item in items:
            record = record_of_item(item)
            found = [each for each in self._damaged if each[0] is record]
            if not found:
                others.append(item)
                continue
            self._damaged = tuple([each for each in self._damaged if each[0] is not record])
            if item is not record:
                item.decided = True
            self._nodes.damaged(self.queue, record, found[0][1])
        return others

    def _retire_verbs(self, records: list[Record], state: Any) -> Unit:
        queue = self.queue
        verbs = retire_verbs(queue.queue_id, records)
        if queue.events:
            verbs.extend(self._outcome_events(records, state))
        return verbs

    def _outcome_events(self, records: list[Record], state: Any) -> Unit:
        now_ms = self._nodes.clock.now_ms()
        return message_events.settled(self.queue, records, state, self.container_id, now_ms)

    def _log_delivered(self, records: list[Record]) -> None:
        """Journal that messages were delivered, with the next group or a little later: nobody waits for it.
        """
        now_ms = self._nodes.clock.now_ms()
        verbs = message_events.delivered(self.queue, records, self.container_id, now_ms)
        self._nodes.writer.defer(Step(verbs, only_events=True))

    def _settle(
        self, deliveries: list[OutgoingDelivery], settled: bool, retired: list[Record], state: Any,
        verbs: Unit, letter: Letter | None = None,
    ) -> None:  # fmt: skip
        """Those that are not retired return. They are decided when that is for the store to do: from then on
        no fault gives them back.
        """
        told = [] if settled else deliveries
        settlement = Settlement(self, told, retired, state, self._nodes, verbs, letter)
        if letter is not None:
            self.queue.endings.make_ready()
        if not verbs and letter is None:
            self.queue.retire(retired, left_by(state))
        elif settled:
            self._nodes.writer.defer(settlement)
        else:
            self._nodes.writer.collect(settlement)
        if retired:
            for delivery in deliveries:
                delivery.decided = True
        else:
            self.give_back(deliveries, state)
        if not verbs and letter is None:
            settlement.done()

    def _settled(self, settlement: Settlement, _: None) -> None:
        """In the turn after the commit: the receiver that waits for it is told that its outcome holds."""
        if self.attached:
            self.link.settle(settlement.deliveries, settlement.state)

    # The end of the link

    def unheard(self, deliveries: list[OutgoingDelivery]) -> None:
        """The messages of these deliveries go back to their places as if they had stayed unsettled until the
        end of the link.
        """
        if not self.browser:
            self._leave(deliveries, False)

    def left(self, deliveries: list[OutgoingDelivery]) -> None:
        """These were unsettled at the end of the link, and nobody said anything of them.

        A default outcome that removes them is applied (3.3.1). One that returns them is not: who asks for
        `modified(delivery-failed)`, as Qpid JMS does, would have each message that was only prefetched
        counted as a failed try. The broker takes such messages back by itself before the source is gone, as
        if they were released ("State transitions may also occur spontaneously at the distribution node",
        3.3.1), and counts one: the oldest of a link that broke, or kept a message too long. The
        default outcome of the attach's answer is for what the receiver settles without an outcome (3.5.3),
        and for settled outcomes that are rolled back (4.4.2).
        """
        self.leave(deliveries, RELEASED if type(self.default_outcome) is Modified else self.default_outcome)

    def leave(self, deliveries: list[OutgoingDelivery], outcome: Any) -> None:
        """Do this with what is left, but for what the client may have died of."""
        suspect = self.suspect
        if suspect is not None and type(outcome) is Released and suspect in deliveries:
            self.apply([suspect], FAILED, True)
            deliveries = [delivery for delivery in deliveries if delivery is not suspect]
        if deliveries:
            self.apply(deliveries, outcome, True)

    def _leave(self, unsettled: list[OutgoingDelivery], broken: bool) -> None:
        held = [delivery for delivery in unsettled if not delivery.decided]
        self.suspect_of(held, broken)
        held = self.transactions.consumer_gone(self, held, left=True)
        self.left(held)

    def suspect_of(self, held: list[OutgoingDelivery], broken: bool) -> None:
        """Remember what the client may have died of, where the link is `broken`, or what it is stuck at."""
        if broken or self.stuck:
            self.suspect = next((delivery for delivery in held if not _has_outcome(delivery.state)), None)

    def on_detached(self, unsettled: list[OutgoingDelivery], broken: bool) -> None:
        """The link is gone: what it held goes back to its place."""
        queue = self.queue
        self.demand = 0
        queue.detach(self)
        if self.browser:
            self.pending.clear()
            self._copies_gone()
        else:
            while self.pending:
                queue.take_back((self.pending[0],))
                self.pending.popleft()
            half_sent, self._half_sent = self._half_sent, ()
            for record in half_sent:
                changed(record)
            queue.give_back(half_sent)  # nobody has got them
            self._leave(unsettled, broken)
            self._nodes.pump(queue)
        if queue.lifetime is not None:
            self._nodes.left(queue, self)


def _merged_most(deliveries: list[OutgoingDelivery], outcome: Modified) -> int:
    """Octets of all their annotations with those of the outcome, or a little less."""
    added = added_bytes(outcome.message_annotations or {})
    return sum([annotations_bytes(delivery.message) + added for delivery in deliveries])


def _has_outcome(state: object) -> bool:
    """Whether the receiver has said what becomes of the delivery, in a transaction or not."""
    outcome = state.outcome if type(state) is TransactionalState else state
    return type(outcome) in OUTCOMES


_OUTCOMES: Final[dict[type, Callable[[QueueSource, list[OutgoingDelivery], Any, bool], None]]] = {
    Accepted: QueueSource._retire,
    Rejected: QueueSource._reject,
    Released: QueueSource._release,
    Modified: QueueSource._modify,
}
