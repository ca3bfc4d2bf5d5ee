"""The links of one connection that send messages of sequenced streams: from their runs to operations, and the
order acknowledgements back (MS-MQQB 3.1.5.8.6).

    run --places--> SequencedPosting --commit--> outcomes --> at once, or kept by the link until
                                                              its timer, or a reason to flush

What the engine keeps (`settle_later`) it tells by itself before a detach, end or close, and when the sender's
flow drains or asks for an echo. Here are the other reasons: a message that is not batchable, and credit or
window below a quarter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio

from amqp_broker.coordinator import FLUSH_PART, OrderTimer, TransactionRollback
from amqp_broker.frames import Error, Rejected
from amqp_broker.links import Delivery, ReceiverLink
from amqp_broker.operations.operation import error_of
from amqp_broker.sequences.fields import MISSING, Place, place_of
from amqp_broker.sequences.jobs import Places, SequencedPosting
from amqp_broker.sequences.transactions import SequencedEnlistment, TransactionalJudging

if TYPE_CHECKING:
    from amqp_broker.coordinator import Transaction
    from amqp_broker.node_service import NodeService
    from amqp_broker.persistence import Record
    from amqp_broker.posts import Posts
    from amqp_broker.producers import Producer
    from amqp_broker.queue import Queue
    from amqp_broker.sequences.service import SequenceService
    from amqp_broker.transactions import Transactions


class SequencedLinks:
    """`task` is the owner of the connection, `posts` serves its receiving links."""

    def __init__(
        self,
        task: Any,
        posts: Posts,
        nodes: NodeService,
        sequences: SequenceService,
        transactions: Transactions,
    ) -> None:
        self._task = task
        self._posts = posts
        self._nodes = nodes
        self._sequences = sequences
        self._transactions = transactions
        self._timers: dict[ReceiverLink, OrderTimer] = {}

    # From a run to a job

    def take(
        self,
        producer: Producer,
        deliveries: list[Delivery],
        queue: Queue,
        records: list[Record],
        transaction: Transaction | None,
    ) -> bool:
        """Have a run stored in which messages may be of streams; False if none of it is, nor has to be."""
        if queue.sequences.off:
            return False
        places: list[Place | Error | None] = [place_of(record.body, producer.stream) for record in records]
        if queue.sequences.required:
            places = [MISSING if place is None else place for place in places]
        elif places.count(None) == len(places):
            return False
        link = producer.link
        if transaction is None:
            posting = SequencedPosting(
                self._sequences, self._task, self._task.principal, link, deliveries, queue, records,
                places, self._posted,
            )  # fmt: skip
            self._nodes.writer.collect(posting)
        else:
            self._enlist(transaction, link, deliveries, queue, records, places)
        return True

    def _enlist(
        self, transaction: Transaction, link: ReceiverLink, deliveries: list[Delivery], queue: Queue,
        records: list[Record], places: Places,
    ) -> None:  # fmt: skip
        settled = [delivery.settled for delivery in deliveries]
        enlistment = SequencedEnlistment(
            self._sequences, self._task.principal, transaction, queue, records, places, settled,
            self._task.container_id,
        )  # fmt: skip
        refused = self._transactions.enlist(transaction, enlistment)
        if refused is not None:
            self._transactions.refuse_posts(transaction, link, deliveries, refused.error())
            self._posts.processed(link, len(deliveries))
            return
        job = TransactionalJudging(self._task, link, deliveries, enlistment, self._judged)
        self._nodes.writer.collect(job)

    # From the outcomes to the peer, in turns of the connection

    def _posted(self, posting: SequencedPosting, error: Exception | None) -> None:
        link = posting.link
        producer = self._posts.producers.get(link)
        if producer is None:
            return
        if error is not None:
            self._posts.refuse_posts(link, posting.deliveries, error_of(error))
            return
        timer = self._timer_of(producer)
        for deliveries, outcome, placed in runs_of_outcomes(posting):
            if type(outcome) is Rejected and any(delivery.settled for delivery in deliveries):
                assert outcome.error is not None, "a refusal says why"
                producer.detach(outcome.error)  # fail fast: its sender does not listen
                return
            if timer is None or not placed:
                link.settle(deliveries, outcome)
            else:
                link.settle_later(deliveries, outcome)
        if timer is not None:
            self._arrived(producer, timer, posting.deliveries)
        self._posts.processed(link, len(posting.deliveries))

    def _judged(self, job: TransactionalJudging) -> None:
        """The provisional outcomes of what was posted in a transaction (4.4.1)."""
        link = job.link
        enlistment = job.enlistment
        outcomes = enlistment.outcomes
        if not outcomes:  # it was over before
            reason = enlistment.transaction.reason or TransactionRollback("it was rolled back")
            outcomes = [Rejected(error=reason.error())] * len(job.deliveries)
        for deliveries, outcome in equal_runs(job.deliveries, outcomes):
            self._transactions.tell_provisionally(enlistment.transaction, link, deliveries, outcome)
        self._posts.processed(link, len(job.deliveries))

    # Order acknowledgements

    def _timer_of(self, producer: Producer) -> OrderTimer | None:
        queue = producer.queue
        if queue is None or not queue.sequences.debounce_ms:  # each message of a relay has a node of its own
            return None
        timer = self._timers.get(producer.link)
        if timer is None:
            settings = queue.sequences
            timer = self._timers[producer.link] = OrderTimer(settings.debounce_ms, settings.max_delay_ms)
        return timer

    def _arrived(self, producer: Producer, timer: OrderTimer, deliveries: list[Delivery]) -> None:
        link = producer.link
        now = trio.current_time()
        window = link.session.window
        due = timer.arrived(now)
        if window.incoming_window * FLUSH_PART < window.capacity:
            link.session.settle_deferred()  # what waits on its other links takes of the window too
            timer.sent(now)
        elif (
            due
            or link.credit * FLUSH_PART < producer.credit
            or not all(delivery.batchable for delivery in deliveries)
        ):
            link.settle_deferred()
            timer.sent(now)

    def next_deadline(self) -> float | None:
        """When `expire` is worth a call, in trio's time."""
        deadlines = [timer.deadline for timer in self._timers.values() if timer.deadline is not None]
        return min(deadlines, default=None)

    def expire(self, now: float) -> None:
        """Tell the outcomes that waited long enough."""
        for link, timer in self._timers.items():
            if timer.deadline is not None and now >= timer.deadline:
                link.settle_deferred()
                timer.sent(now)

    @property
    def waiting(self) -> bool:
        """Whether there is any link with a timer."""
        return bool(self._timers)

    def on_detached(self, link: ReceiverLink) -> None:
        """A link is gone."""
        self._timers.pop(link, None)


def runs_of_outcomes(posting: SequencedPosting) -> list[tuple[list[Delivery], Any, bool]]:
    """The runs of deliveries with equal outcomes, in order, and whether they are of streams."""
    placed = [place is not None for place in posting.places]
    pairs = list(zip(posting.outcomes, placed, strict=True))
    return [(run, outcome, place) for run, (outcome, place) in equal_runs(posting.deliveries, pairs)]


def equal_runs(deliveries: list[Delivery], outcomes: list[Any]) -> list[tuple[list[Delivery], Any]]:
    """Deliveries with equal outcomes that follow each other."""
    runs: list[tuple[list[Delivery], Any]] = []
    last: Any = None
    for delivery, outcome in zip(deliveries, outcomes, strict=True):
        if runs and (outcome is last or outcome == last):
            runs[-1][0].append(delivery)
        else:
            runs.append(([delivery], outcome))
            last = outcome
    return runs
