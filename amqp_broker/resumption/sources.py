"""Behind a link on which the peer receives, and which it may resume: what is unsettled when it ends stays
acquired, and is sent once more, with its delivery-tag, on the next one.

Where the source is durable, the store has what the peer holds before it is sent:

    queue --assign--> deliver --Holding--> COMMIT --mail--> sent with the tag that is stored
    outcome --> its commit forgets the row, too
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from amqp_broker.counts import SENT
from amqp_broker.frames import Error, Modified, Released, TransactionalState
from amqp_broker.links import OutgoingDelivery, Resumption, resumption_of
from amqp_broker.nodes.queue_source import QueueSource
from amqp_broker.nodes.refusals import LINK_ENDED
from amqp_broker.nodes.termini import OUTCOMES
from amqp_broker.operations.operation import Operation, error_of
from amqp_broker.operations.posting import Step, record_of_item
from amqp_broker.persistence import LargeRecord, TailReader, size_of
from amqp_broker.records import AnnotationsRefused, prepare

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.connection import Connection
    from amqp_broker.endings import Letter
    from amqp_broker.nodes.node import Attachment
    from amqp_broker.persistence import Record, Unit
    from amqp_broker.queue import Queue
    from amqp_broker.resumption.terminus import Terminus


class Resumed:
    """A delivery that is to be resumed. `state` is its outcome where that is applied already: then nothing
    but this is told.
    """

    __slots__ = ("delivery", "delivery_tag", "state")

    def __init__(self, delivery_tag: bytes, delivery: OutgoingDelivery, state: Any = None) -> None:
        self.delivery_tag = delivery_tag
        self.delivery = delivery
        self.state = state


class LastingSource(QueueSource):
    """One link that receives from a queue, and whose source outlives it."""

    __slots__ = ("_gone", "_left", "_resuming", "_terminus")

    def __init__(
        self, attachment: Attachment, queue: Queue, nodes: BrokerNodes, terminus: Terminus,
        gone: Callable[[Terminus, Any, bool], None],
    ) -> None:
        answer = attachment.answer
        super().__init__(
            attachment.connection, attachment.link, queue, nodes, attachment.transactions, browser=False,
            settled=False, default_outcome=answer.default_outcome,
            outcomes=frozenset(answer.outcomes or ()), filter=attachment.filter,
        )  # fmt: skip
        self._terminus = terminus
        self._gone = gone
        self._resuming: deque[Resumed] = deque()
        self._left = False  # the end of the link has had its place in the order of what the peer said

    def compare(self, attachment: Attachment) -> bool:
        """Compare both sides' unsettled maps, and do what the table says: True where an outcome has to be
        stored before our attach may tell of it.
        """
        terminus, link, attach = self._terminus, self.link, attachment.attach
        link.outlived = True
        link.tag_prefix = terminus.tag_prefix
        in_order = sorted(terminus.held.items(), key=lambda each: each[1].message.offset)
        if terminus.reattaches(link.session, attach.unsettled):
            for tag, delivery in in_order:
                if not delivery.link.detached_live:
                    self._resuming.append(Resumed(tag, terminus.held.pop(tag)))
            return False
        terminus.forget_live()
        theirs = attach.unsettled or {}
        ours: dict[bytes, Any] = dict.fromkeys(terminus.held)
        returned = []
        applied = False
        for tag, delivery in in_order:
            what = resumption_of(ours, theirs, tag)
            if what is Resumption.ANEW:
                if not attach.incomplete_unsettled:
                    returned.append(tag)
            elif what is Resumption.TELL and self._applies(delivery, theirs[tag]):
                applied = True
                ours[tag] = theirs[tag]
                self._resuming.append(Resumed(tag, delivery, theirs[tag]))
            else:
                self._resuming.append(Resumed(tag, delivery))
        for resumed in self._resuming:
            del terminus.held[resumed.delivery_tag]
        for tag in returned:
            del ours[tag]
        terminus.return_anew(returned, resumes=attach.unsettled is not None)
        if attach.unsettled is not None:
            attachment.unsettled = ours
        return applied

    def restore(self) -> None:
        """The attach fails: what was to be resumed waits for the next link."""
        for resumed in self._resuming:
            if resumed.state is None:
                self._terminus.held[resumed.delivery_tag] = resumed.delivery
        self._resuming.clear()

    def unsettled(self) -> dict[bytes, Record]:
        """What the peer has of this source, by delivery-tag, before anything new is sent."""
        found = {tag: delivery.message for tag, delivery in self._terminus.held.items()}
        waiting = [each for each in self._resuming if each.state is None]
        return found | {each.delivery_tag: each.delivery.message for each in waiting}

    def _applies(self, delivery: OutgoingDelivery, outcome: Any) -> bool:
        """Apply the outcome that the receiver came to while the link was gone, if it can be: else it is sent
        the message, and told why not when it says its outcome again.
        """
        if OUTCOMES[type(outcome)] not in self.outcomes:
            return False
        if type(outcome) is Modified and outcome.message_annotations:
            try:
                self._merge(delivery, outcome)
            except AnnotationsRefused:
                return False
        self._decide([delivery], outcome, outcome, True)
        return True

    def lost(self, delivery: OutgoingDelivery) -> None:
        """A delivery will never be whole: the store need not know that it is held."""
        verbs = self.outcome_verbs([delivery])
        if verbs:
            self._nodes.writer.defer(Step(verbs))

    def on_credit(self) -> None:
        """Resume first what is to be resumed; nothing new overtakes that."""
        if self.link.attached and self._resume():
            super().on_credit()

    def _resume(self) -> bool:
        """Whether all of it is sent."""
        resuming, link = self._resuming, self.link
        while resuming:
            resumed = resuming[0]
            delivery = resumed.delivery
            told = resumed.state is not None
            if not told:
                prepare([delivery.message], self._nodes.clock.now_ms())
            largest, message = link.remote_max_message_size, delivery.message
            size = len(message.header_bytes) + size_of(message)
            too_large = bool(largest and not told and size > largest)
            sent = link.resume(
                resumed.delivery_tag, message, payload=not told and not too_large, state=resumed.state,
                settled=told, aborted=too_large, pieces=_pieces_of(message),
            )  # fmt: skip
            if sent is None:
                self.demand = 0
                return False
            resuming.popleft()
            if too_large:
                self.left([delivery])
        return True

    def on_outcomes(self, deliveries: list[OutgoingDelivery], state: Any, settled: bool) -> None:
        """The receiver gave a run of its deliveries a state, perhaps after it has detached (2.7.6)."""
        if not self._left:
            super().on_outcomes(deliveries, state, settled)
            return
        held = self._terminus.held
        live = [each for each in deliveries if each.delivery_tag in held]
        if type(state) is TransactionalState:
            self.lose(live, state, LINK_ENDED)
            return
        super().on_outcomes(live, state, settled)
        for delivery in live:
            if delivery.decided:
                held.pop(delivery.delivery_tag, None)
        user = self._terminus.user
        if user is not None and user is not self:
            user.on_credit()  # it may hold more now

    # In the store

    def outcome_verbs(self, items: Sequence[Any]) -> Unit:
        """The row of what is held goes with its outcome."""
        return self._terminus.letting_go([record_of_item(item) for item in items])

    def _settle(
        self, deliveries: list[OutgoingDelivery], settled: bool, retired: list[Record], state: Any,
        verbs: Unit, letter: Letter | None = None,
    ) -> None:  # fmt: skip
        verbs = [*verbs, *self.outcome_verbs(deliveries)]
        super()._settle(deliveries, settled, retired, state, verbs, letter)

    def apply(self, deliveries: list[OutgoingDelivery], outcome: Any, settled: bool) -> None:
        """Of what is released the store has nothing to know but that it is not held."""
        if type(outcome) is Released and not self.queue.events and self.outcome_verbs(deliveries):
            self._settle(deliveries, settled, [], outcome, [])
        else:
            super().apply(deliveries, outcome, settled)

    def on_detached(self, unsettled: list[OutgoingDelivery], broken: bool) -> None:
        """The link is gone. Unless its source goes with it, what is unsettled stays acquired."""
        self._left = True
        rest, self._resuming = self._resuming, deque()
        waiting = [each for each in rest if each.state is None]
        terminus = self._terminus
        if self.closed or self.stuck or self.queue.deleted:
            terminus.owner = self
            super().on_detached(unsettled, broken)
            self.left([each.delivery for each in waiting])
            self._gone(terminus, self, True)
            return
        queue = self.queue
        self.demand = 0
        queue.detach(self)
        while self.pending:
            queue.take_back((self.pending.popleft(),))
        for each in waiting:
            terminus.held[each.delivery_tag] = each.delivery
        held = [delivery for delivery in unsettled if not delivery.decided]
        self.suspect_of(held, broken)
        for delivery in self.transactions.consumer_gone(self, held, left=True):
            terminus.held[delivery.delivery_tag] = delivery
        terminus.owner = self
        if self.link.detached_live:
            self.link.context = self  # outcomes may follow
        self._nodes.pump(queue)
        self._gone(terminus, self, False)


def _pieces_of(message: Any) -> TailReader | None:
    """What reads the rest of a message of which only the head is in memory."""
    return TailReader(message.tail) if isinstance(message, LargeRecord) else None


class Holding(Operation):
    """Messages are held by a terminus, each under the tag with which it is sent when that is stored."""

    __slots__ = ("_source", "_terminus", "delivery_tags")

    def __init__(self, source: DurableSource, terminus: Terminus, delivery_tags: dict[bytes, Record]) -> None:
        self._source = source
        self._terminus = terminus
        self.delivery_tags = delivery_tags

    def prepare(self, now_ms: int) -> Unit:
        """Nothing, where the link has gone: the messages were given back."""
        return self._terminus.holding(self.delivery_tags) if self._source.attached else []

    def stored(self) -> None:
        """They can be sent."""
        self._source.connection.mail.post(self._source.on_held, self.delivery_tags)

    def refused(self, error: Exception) -> None:
        """A fault of the broker: the link ends, and they are given back."""
        self._source.connection.mail.post(self._source.on_not_held, error)

    def judges(self) -> bool:
        """They are assigned."""
        return False

    def waits_for_space(self) -> bool:
        """Where there is no room, they wait for what others settle."""
        return True

    def asking_connection(self) -> Connection | None:
        """The receiver's connection."""
        return self._source.connection


class DurableSource(LastingSource):
    """One link that receives from a queue, and whose source outlives the broker."""

    __slots__ = ("_last_tag", "_ready", "_tags")

    def __init__(
        self, attachment: Attachment, queue: Queue, nodes: BrokerNodes, terminus: Terminus,
        gone: Callable[[Terminus, Any, bool], None],
    ) -> None:
        super().__init__(attachment, queue, nodes, terminus, gone)
        self._last_tag = 0
        self._tags: dict[int, bytes] = {}  # of what is pending, by offset
        self._ready: set[int] = set()  # those of them that are stored

    # From any task

    def deliver(self, records: list[Record]) -> None:
        """The queue assigned `records`, which are sent when it is stored that they are held."""
        if not records:
            super().deliver(records)
            return
        self.pending.extend(records)
        tags: dict[bytes, Record] = {}
        for record in records:
            self._last_tag += 1
            tag = self.link.tag_prefix + self._last_tag.to_bytes(4, "big")
            tags[tag] = record
            self._tags[record.offset] = tag
        self._nodes.writer.submit(Holding(self, self._terminus, tags))

    # In a turn of the connection

    def on_held(self, delivery_tags: dict[bytes, Record], _: None = None) -> None:
        """These can be sent; some may have gone back meanwhile."""
        for tag, record in delivery_tags.items():
            if self._tags.get(record.offset) == tag:
                self._ready.add(record.offset)
        self.on_offer()

    def on_not_held(self, error: Exception, _: None = None) -> None:
        """It could not be stored that messages are held."""
        if self.attached:
            self.detach(error_of(error))

    def on_credit(self) -> None:
        """As long as what is pending waits for its commit there is nothing to be sent."""
        if self.link.context is self and self.pending:
            self._send_pending()
            if self._waits():
                self.draining = self.link.drain and self.link.credit > 0
                return
        super().on_credit()

    def on_offer(self) -> None:
        """Send what is stored."""
        if self.link.context is self and self.pending:
            self._send_pending()
            if self._waits():
                return
        super().on_offer()

    def _waits(self) -> bool:
        """Whether the next message waits for its commit."""
        return bool(self.pending) and self.pending[0].offset not in self._ready

    def _wanted(self) -> int:
        """As many as fit beside those that it holds."""
        held = len(self._terminus.held) + self.link.unsettled_count
        return max(0, min(super()._wanted(), self._nodes.config.limits.max_unsettled_per_link - held))

    def _send_pending(self) -> None:
        pending, link = self.pending, self.link
        now_ms = self._nodes.clock.now_ms()
        sent: list[Record] = []
        while pending and pending[0].offset in self._ready:
            record = pending[0]
            prepare([record], now_ms)
            if not link.send_tagged(record, self._tags[record.offset], _pieces_of(record)):
                break
            self._forget([pending.popleft()])
            sent.append(record)
        excess = len(pending) - link.credit
        if excess > 0:  # the peer took credit back: others may have these
            self.demand = 0
            back = [pending.pop() for _ in range(excess)]
            self._let_go(back)
            self.queue.take_back(back)
            self._nodes.pump(self.queue)
        self.queue.counts[SENT] += len(sent)
        if sent:
            self._nodes.writer.watcher.sent(self, sent, len(sent))
        if sent and self.queue.events:
            self._log_delivered(sent)

    def _forget(self, records: Sequence[Record]) -> None:
        for record in records:
            del self._tags[record.offset]
            self._ready.discard(record.offset)

    def _let_go(self, records: list[Record]) -> None:
        """These were never sent."""
        self._forget(records)
        verbs = self._terminus.letting_go(records)
        if verbs:
            self._nodes.writer.defer(Step(verbs))

    def on_flow(self, txn_id: object) -> None:
        """A transaction would have to be kept with what it acquires (4.4.3)."""
        if txn_id is None:
            super().on_flow(txn_id)
            return
        description = "nothing is acquired in a transaction where the source is durable (4.4.3)"
        self.detach(Error(condition="amqp:not-implemented", description=description))

    def on_detached(self, unsettled: list[OutgoingDelivery], broken: bool) -> None:
        """What was not sent goes back; the rest stays held."""
        self._let_go([*self.pending])
        super().on_detached(unsettled, broken)
