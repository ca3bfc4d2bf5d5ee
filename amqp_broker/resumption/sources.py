"""Behind a link on which the peer receives, and which it may resume: what is unsettled when it ends stays
acquired, and is sent once more, with its delivery-tag, on the next one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from amqp_broker.frames import Modified, TransactionalState
from amqp_broker.links import OutgoingDelivery, Resumption, resumption_of
from amqp_broker.nodes.queue_source import QueueSource
from amqp_broker.nodes.refusals import LINK_ENDED
from amqp_broker.nodes.termini import OUTCOMES
from amqp_broker.records import AnnotationsRefused, prepare

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.nodes.node import Attachment
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
            too_large = bool(
                largest and not told and len(message.header_bytes) + len(message.body) > largest
            )
            sent = link.resume(
                resumed.delivery_tag, message, payload=not told and not too_large, state=resumed.state,
                settled=told, aborted=too_large,
            )  # fmt: skip
            if sent is None:
                self.demand = 0
                if link.credit > 0:
                    self.connection.wait_for_output(self)
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
