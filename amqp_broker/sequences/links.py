"""Links that send messages of sequenced streams: from runs to operations, and the order acknowledgements back
(MS-MQQB 3.1.5.8.6).

    attach   properties: seq-stream = the stream of all its messages
    answer   target capability tx-sequence; properties: seq-id, seq-no = the last accepted of the stream

    run --places--> SequencedPosting --commit--> outcomes --> at once, or kept by the link until
                                                              its timer, or a reason to flush

What the engine keeps (`settle_later`) it tells by itself before a detach, end or close, and when the sender's
flow drains or asks for an echo. Here are the other reasons: a message that is not batchable, and credit or
window below a quarter.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from amqp_broker.configuration import SEQUENCE_OFF
from amqp_broker.connection import Expiring
from amqp_broker.coordinator.sequences import FLUSH_PART, OrderTimer
from amqp_broker.frames import Error, Rejected, Uint, Ulong
from amqp_broker.links import Delivery, ReceiverLink
from amqp_broker.nodes.queue_sink import PostRule, QueueSink
from amqp_broker.nodes.queues import PostRules
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.operations.operation import error_of
from amqp_broker.persistence import RowDamaged
from amqp_broker.places import Place
from amqp_broker.sequences.fields import MISSING, place_of, stream_property
from amqp_broker.sequences.operations import Places, SequencedPosting
from amqp_broker.sequences.positions import TooManyStreams
from amqp_broker.sequences.settings import sequences_of
from amqp_broker.sequences.transactions import SequencedEnlistment, TransactionalJudging

if TYPE_CHECKING:
    from amqp_broker.authorisation import Principal
    from amqp_broker.connection import Connection
    from amqp_broker.coordinator import Transaction
    from amqp_broker.frames import Attach
    from amqp_broker.nodes.node import Attachment
    from amqp_broker.persistence import Record
    from amqp_broker.queue import Queue
    from amqp_broker.queues import Site
    from amqp_broker.sequences.sequences import Sequences

TX_SEQUENCE: Final = "tx-sequence"


class SequenceRules(PostRules):
    """Makes the rules of links that send messages of streams, for one broker."""

    def __init__(self, sequences: Sequences) -> None:
        self._sequences = sequences

    def check(self, attach: Attach, site: Site | None) -> None:
        """Whether the stream that the link names can be one. Raises NodeRefused."""
        if site is None or site.policy.sequence != SEQUENCE_OFF:
            _stream_of(attach)

    async def open(self, attachment: Attachment, queue: Queue | None) -> PostRule | None:
        """A link to the anonymous terminus may name a stream, which is then that of each message's node."""
        if queue is not None:
            if queue.sequences.off:
                return None
            answer = attachment.answer
            answer.capabilities = (*(answer.capabilities or ()), TX_SEQUENCE)
        stream = _stream_of(attachment.attach)
        if queue is not None and stream is not None:
            attachment.properties = await self._position(attachment.principal, queue, stream)
        return SequenceRule(self._sequences, attachment.connection, queue, stream)

    async def _position(self, principal: Principal, queue: Queue, stream: str) -> dict[str, Any]:
        sequences = self._sequences
        try:
            found = await sequences.position(queue, stream)
        except RowDamaged as error:
            raise NodeRefused(
                "amqp:internal-error", f"where stream {stream!r} stands is not known: {error}"
            ) from None
        except TooManyStreams as error:
            raise NodeRefused("amqp:resource-limit-exceeded", str(error)) from None
        if found.owner not in ("", principal.rule_name) and not sequences.may_use(principal, queue):
            raise NodeRefused(
                "amqp:unauthorized-access",
                f"stream {stream!r} belongs to another principal than {principal.rule_name!r}",
            )
        return {"seq-id": Ulong(found.seq_id), "seq-no": Uint(found.seq_no)}


def _stream_of(attach: Attach) -> str | None:
    """The stream of all messages of a link. Raises NodeRefused where it can be none."""
    named = stream_property(attach.properties)
    if isinstance(named, Error):
        raise NodeRefused(named.condition, named.description or "")
    return named


class OrderDeadline(Expiring):
    """Tells the outcomes that a link keeps when their time has come."""

    def __init__(self, link: ReceiverLink, timer: OrderTimer) -> None:
        self._link = link
        self.timer = timer

    def next_deadline(self) -> float | None:
        """When `expire` is worth a call."""
        return self.timer.deadline

    def expire(self, now: float) -> None:
        """Tell the outcomes that waited long enough."""
        deadline = self.timer.deadline
        if deadline is not None and now >= deadline:
            self._link.settle_deferred()
            self.timer.sent(now)


class SequenceRule(PostRule):
    """One link to `queue`, or to the anonymous terminus (None), which named `stream` for its messages."""

    def __init__(
        self, sequences: Sequences, connection: Connection, queue: Queue | None, stream: str | None
    ) -> None:
        self._sequences = sequences
        self._connection = connection
        self._queue = queue
        self._stream = stream
        self._deadline: OrderDeadline | None = None

    def wants_all(self, queue: Queue) -> bool:
        """Whether each message has to have a place: where the link names a stream, or the queue wants one."""
        return self._stream is not None or queue.sequences.required

    def concerns(self, queue: Queue, head: bytes) -> bool:
        """Whether the message has a place in a stream, or has to have one."""
        wanted = queue.sequences
        return not wanted.off and (wanted.required or place_of(head, self._stream) is not None)

    # From a run to an operation

    def take(
        self, sink: QueueSink, deliveries: list[Delivery], records: list[Record],
        transaction: Transaction | None,
    ) -> bool:  # fmt: skip
        """Have a run stored in which messages may be of streams; False if none of it is, nor has to be."""
        queue = sink.queue
        if queue.sequences.off:
            return False
        places: list[Place | Error | None] = [place_of(record.body, self._stream) for record in records]
        if queue.sequences.required:
            places = [MISSING if place is None else place for place in places]
        elif places.count(None) == len(places):
            return False
        if transaction is None:
            posting = SequencedPosting(
                self._sequences, self._connection, self._connection.principal, sink, deliveries, queue,
                records, places, partial(self._posted, sink),
            )  # fmt: skip
            self._sequences.nodes.writer.collect(posting)
        else:
            self._enlist(transaction, sink, deliveries, records, places)
        return True

    def _enlist(
        self, transaction: Transaction, sink: QueueSink, deliveries: list[Delivery], records: list[Record],
        places: Places,
    ) -> None:  # fmt: skip
        enlistment = SequencedEnlistment(
            self._sequences, self._connection.principal, transaction, sink.queue, records, places, sink.link,
            deliveries, self._connection.container_id,
        )  # fmt: skip
        refused = sink.transactions.enlist(transaction, enlistment)
        if refused is not None:
            sink.transactions.refuse_posts(transaction, sink.link, deliveries, refused.error())
            sink.processed(len(deliveries))
            return
        judging = TransactionalJudging(
            self._connection, sink.link, deliveries, enlistment, partial(self._judged, sink)
        )
        self._sequences.nodes.writer.collect(judging)

    # From the outcomes to the peer, in turns of the connection

    def _posted(self, sink: QueueSink, posting: SequencedPosting, error: Exception | None) -> None:
        link = sink.link
        if not sink.attached:
            return
        if error is not None:
            sink.refuse(posting.deliveries, error_of(error))
            return
        timer = self._timer(link)
        for deliveries, outcome, in_stream in runs_of_outcomes(posting):
            if type(outcome) is Rejected:
                assert outcome.error is not None, "a refusal says why"
                if any(delivery.settled for delivery in deliveries):
                    sink.detach(outcome.error)  # fail fast: its sender does not listen
                    return
                link.session.connection.settings.refusals.told(outcome.error.condition, len(deliveries))
            if timer is None or not in_stream:
                link.settle(deliveries, outcome)
            else:
                link.settle_later(deliveries, outcome)
        if timer is not None:
            _arrived(sink, timer, posting.deliveries)
        sink.processed(len(posting.deliveries))

    def _judged(self, sink: QueueSink, judging: TransactionalJudging) -> None:
        """The provisional outcomes of what was posted in a transaction (4.4.1)."""
        enlistment = judging.enlistment
        for deliveries, outcome in equal_runs(judging.deliveries, enlistment.outcomes):
            sink.transactions.tell_provisionally(enlistment.transaction, sink.link, deliveries, outcome)
        if enlistment.failure is not None:
            sink.transactions.fail(enlistment.transaction, enlistment.failure.description)
        sink.processed(len(judging.deliveries))

    # Order acknowledgements

    def _timer(self, link: ReceiverLink) -> OrderTimer | None:
        if self._deadline is not None:
            return self._deadline.timer
        if self._queue is None:  # each message of a relay has a node of its own
            return None
        settings = sequences_of(self._queue)
        if not settings.debounce_ms:
            return None
        self._deadline = OrderDeadline(link, OrderTimer(settings.debounce_ms, settings.max_delay_ms))
        self._connection.expiring[self._deadline] = None
        return self._deadline.timer

    def on_detached(self) -> None:
        """The link is gone."""
        if self._deadline is not None:
            del self._connection.expiring[self._deadline]


def _arrived(sink: QueueSink, timer: OrderTimer, deliveries: list[Delivery]) -> None:
    """Tell the outcomes that are kept, where there is a reason not to wait for the timer."""
    link = sink.link
    now = trio.current_time()
    window = link.session.window
    due = timer.arrived(now)
    if window.incoming_window * FLUSH_PART < window.capacity:
        link.session.settle_deferred()  # what waits on its other links takes of the window too
        timer.sent(now)
    elif (
        due
        or link.credit * FLUSH_PART < sink.credit
        or not all(delivery.batchable for delivery in deliveries)
    ):
        link.settle_deferred()
        timer.sent(now)


def runs_of_outcomes(posting: SequencedPosting) -> list[tuple[list[Delivery], Any, bool]]:
    """The runs of deliveries with equal outcomes, in order, and whether they are of streams."""
    in_stream = [place is not None for place in posting.places]
    pairs = list(zip(posting.outcomes, in_stream, strict=True))
    return [(run, outcome, place) for run, (outcome, place) in equal_runs(posting.deliveries, pairs)]


def equal_runs(deliveries: list[Delivery], outcomes: list[Any]) -> list[tuple[list[Delivery], Any]]:
    """Runs of deliveries with equal outcomes that follow each other."""
    runs: list[tuple[list[Delivery], Any]] = []
    last: Any = None
    for delivery, outcome in zip(deliveries, outcomes, strict=True):
        if runs and (outcome is last or outcome == last):
            runs[-1][0].append(delivery)
        else:
            runs.append(([delivery], outcome))
            last = outcome
    return runs
