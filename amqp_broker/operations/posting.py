"""Messages that come, and messages that leave: what a commit makes true of a queue.

Arrival      what comes into one queue: pending until it is decided, numbered by the group under way
Posting      a run of messages is there; in a transaction its room was kept since it was posted
Postings     what one read brought for many queues, a Posting for each
Settlement   the outcome of a run of deliveries: its messages leave the queue, or returned changed
Leaving      messages leave their queue by the broker's own decision
Step         verbs that somebody waits for, or nobody
Question     nothing is stored: something is asked at its place in the order
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from amqp_broker.compilation import mypyc_attr
from amqp_broker.connection import Connection, Sink
from amqp_broker.counts import left_by
from amqp_broker.endings import REJECTED, TRIED_TOO_OFTEN, Departed, Letter
from amqp_broker.frames import Error, Message, Modified, Rejected
from amqp_broker.links import Account, Delivery, OutgoingDelivery
from amqp_broker.log_setup import logger
from amqp_broker.message_events import dead, put, reason_of
from amqp_broker.operations.operation import Batch, Operation, OperationFault
from amqp_broker.operations.pace import INLINE_OPERATIONS
from amqp_broker.origin import OF_THE_BROKER, Origin
from amqp_broker.persistence import RECORD_OVERHEAD_BYTES, Record, Retire, Return, Unit, tails_bytes
from amqp_broker.queue import Consumer, Queue, deleted_error

if TYPE_CHECKING:
    from amqp_broker.operations.writer import Writer
    from amqp_broker.timers import Timers


TOGETHER_BYTES: Final = 65_536  # of messages to many queues; a read of small ones has less


class Nodes(Protocol):
    """What an operation that is stored tells: a queue has something to distribute, or room again."""

    writer: Writer
    timers: Timers

    def pump(self, queue: Queue) -> None:
        """Distribute what `queue` has."""

    def store(self, verbs: Unit) -> None:
        """Have verbs stored that nobody waits for."""

    def drained(self, queue: Queue) -> None:
        """`queue` lost messages: senders that wait for room may go on."""

    def letter_leaves(self, queue: Queue) -> None:
        """Messages of `queue` are on their way elsewhere; `letter_over` has to follow."""

    def letter_over(self, queue: Queue) -> None:
        """They are there, or never will be."""


def retire_verbs(queue_id: int, records: Sequence[Record]) -> Unit:
    """The fewest ranges that hold exactly the durable ones of `records`."""
    offsets = sorted([record.offset for record in records if record.durable])
    if not offsets:
        return []
    if offsets[-1] - offsets[0] == len(offsets) - 1:
        return [Retire(queue_id, offsets[0], offsets[-1])]
    unit: Unit = []
    first = last = offsets[0]
    for offset in offsets[1:]:
        if offset != last + 1:
            unit.append(Retire(queue_id, first, last))
            first = offset
        last = offset
    unit.append(Retire(queue_id, first, last))
    return unit


@mypyc_attr(allow_interpreted_subclasses=True)
class Arrival(Operation):
    """Base: `count` messages that come into `queue`, from the link of `sink` or None. From the begin of it to
    its end nothing overtakes them there.
    """

    __slots__ = ("_first_offset", "_pending", "operations", "queue", "sink")

    def __init__(self, queue: Queue, sink: Sink | None, count: int) -> None:
        self._first_offset = -1  # where the group under way has numbered them
        self._pending = False
        self.operations = count
        self.queue = queue
        self.sink = sink

    def begin(self) -> None:
        """The messages are pending from now on."""
        if not self._pending:
            self._pending = True
            self.queue.pending_posts += 1
            sink = self.sink
            if sink is not None:
                sink.coming += self.operations
                if sink.left is not None:
                    sink.left.left_messages += self.operations

    def end(self) -> None:
        """The arrival is decided: its messages are there, or never come."""
        self._first_offset = -1
        if self._pending:
            self._pending = False
            self.queue.pending_posts -= 1
            sink = self.sink
            if sink is not None:
                sink.coming -= self.operations
                if sink.left is not None:
                    sink.left.left_messages -= self.operations

    def number(self, records: Sequence[Record], container: str = "", again: bool = False) -> None:
        """Give the messages, which a container posts, or the broker itself `again`, the next offsets."""
        queue = self.queue
        first_offset = queue.next_offset
        if again:
            queue.number_again(records)
        else:
            queue.number(records, container)
        self._first_offset = first_offset

    def undo(self) -> None:
        """Take back the offsets of the messages."""
        if self._first_offset >= 0:
            self.queue.unnumber(self._first_offset)
            self._first_offset = -1


class Posting(Arrival):
    """A run of messages to one queue; `origin` is where they come from, and `account` keeps what only memory
    has. Room that was `reserved` for them is
    used or given back; without it `sink` is told, and nothing overtakes them in their queue from now
    on.
    """

    __slots__ = (
        "_nodes", "account", "deliveries", "durable_count", "origin", "records", "reserved", "size_bytes",
        "waits",
    )  # fmt: skip

    def __init__(
        self, nodes: Nodes, queue: Queue, records: Sequence[Record], origin: Origin,
        sink: Sink | None = None, deliveries: list[Delivery] | None = None, reserved: bool = False,
        account: Account | None = None,
    ) -> None:  # fmt: skip
        super().__init__(queue, sink, len(records))
        self.account = account
        self._nodes = nodes
        self.records = records
        self.origin = origin
        self.deliveries: list[Delivery] = deliveries or []
        self.reserved = reserved
        self.size_bytes = queue.octets_of(records)
        if self.operations == 1:
            self.durable_count = int(records[0].durable)
        else:
            self.durable_count = sum([record.durable for record in records])
        self.waits = self.durable_count > 0 or self._stands_behind()
        """Whether something of it is for the store, or stands before it."""
        if not reserved:
            self.begin()

    def _stands_behind(self) -> bool:
        """Whether something stands before it in its queue, or may come there with the next group."""
        queue = self.queue
        ordered = queue.pending_posts > 0 or queue.events or queue.by_writer
        return ordered or not self._nodes.writer.caught_up

    def prepare(self, now_ms: int) -> Unit:
        """Number the messages. Those that waited for a discharge longer than they live expire in their queue.
        """
        queue = self.queue
        self.begin()
        records = self.records
        origin = self.origin
        self.number(records, origin.container, origin is OF_THE_BROKER)
        unit = queue.post_verbs(records, self.durable_count)
        if queue.events:
            unit.extend(put(queue, records, origin.container, now_ms, origin.txn_id, origin.places))
        return unit

    def obstacle(self) -> Error | None:
        """Why the posting can't be stored any more: its queue may have gone meanwhile."""
        return deleted_error(self.queue) if self.queue.deleted else None

    def judges(self) -> bool:
        """A posting is taken as it is."""
        return False

    def parts(self) -> Sequence[Operation]:
        """One posting for each message; where room is reserved, the posting as a whole."""
        if self.reserved or len(self.records) < 2:
            return [self]
        parts = [
            self.part(record, delivery)
            for record, delivery in zip(self.records, self.deliveries, strict=True)
        ]
        self.end()
        return parts

    def part(self, record: Record, delivery: Delivery) -> Posting:
        """A posting of one of its messages."""
        return Posting(
            self._nodes, self.queue, [record], self.origin, self.sink, [delivery], account=self.account
        )

    def at_once(self) -> None:
        """Make the messages available now: nothing has to be stored, and nothing stands before them."""
        try:
            self.prepare(0)
            self.stored()
        except Exception as fault:
            self.undo()
            self.refused(OperationFault(f"a fault of the broker: {fault!r}"))
            raise

    def undo(self) -> None:
        """Take back the offsets. What was reserved stands in nobody's way until it is tried again."""
        super().undo()
        if self.reserved:
            self.end()

    def stored(self) -> None:
        """The messages are there, if their queue is. Where room was reserved, who committed the posting
        distributes them.
        """
        queue = self.queue
        self.end()
        if self.reserved:
            queue.unreserve(self.operations, self.size_bytes)
        if not queue.deleted:
            queue.make_available(self.records, self.size_bytes, self.account)
        if self.sink is not None:
            self.sink.on_posted(self, None)
        self._nodes.writer.watcher.stored(self.records)
        if not self.reserved and not queue.nobody_waits():
            self._nodes.pump(queue)

    def refused(self, error: Exception) -> None:
        """The messages never come; their room is free."""
        self.end()
        if self.reserved:
            self.reserved = False
            self.queue.unreserve(self.operations, self.size_bytes)
        if self.sink is not None:
            self.sink.on_posted(self, error)
        self._nodes.writer.watcher.refused(self.records, error)
        self._nodes.drained(self.queue)

    def asking_connection(self) -> Connection | None:
        """The sender's connection; None: the broker itself posts, or a transaction."""
        return None if self.sink is None else self.sink.connection

    def kept_bytes(self) -> int:
        """The octets of the messages in memory; a transaction counts those that it posts."""
        if self.reserved:
            return 0
        on_disk = tails_bytes(self.records) if self.queue.large else 0
        return self.size_bytes - on_disk + self.operations * RECORD_OVERHEAD_BYTES


class Postings(Batch):
    """What one read brought for many queues: postings of one connection among which no order counts, and
    which the writer, the store and its journal take as one. Where the store refuses them, each is for itself.
    """

    __slots__ = ("_connection", "_kept_bytes", "_nodes", "_size_bytes", "now_ms")

    def __init__(self, nodes: Nodes, connection: Connection, first: Posting) -> None:
        super().__init__([first])
        self._nodes = nodes
        self._connection = connection
        self._kept_bytes = 0
        self._size_bytes = first.size_bytes
        self.now_ms = first.records[0].enqueued_at_ms
        """When the first of them came: no time has passed for the others."""

    def join(self, posting: Posting) -> None:
        """One more, which comes at the same time. What is kept in memory counts when it is submitted."""
        self.operations.append(posting)
        self._size_bytes += posting.size_bytes
        if self._size_bytes >= TOGETHER_BYTES:
            self._connection.submit_postings()

    def submit(self) -> None:
        """Have them stored: there are no more. Where they are many there is traffic, and the loop does not
        wait for the disk.
        """
        postings: list[Posting] = self.operations
        if len(postings) == 1:
            self._nodes.writer.collect(postings[0])
            return
        for posting in postings:
            self._kept_bytes += posting.kept_bytes()
        self._nodes.writer.collect(self, heavy=len(postings) > INLINE_OPERATIONS)

    def prepare(self, now_ms: int) -> Unit:
        """The verbs of all."""
        unit: Unit = []
        postings: list[Posting] = self.operations
        self._begun = len(postings)
        for posting in postings:
            unit.extend(posting.prepare(now_ms))
        return unit

    def parts(self) -> Sequence[Operation]:
        """Each posting."""
        return [*self.operations]

    def judges(self) -> bool:
        """Postings are taken as they are."""
        return False

    def asking_connection(self) -> Connection | None:
        """Their sender's."""
        return self._connection

    def kept_bytes(self) -> int:
        """The octets of all messages in memory."""
        return self._kept_bytes


class BodyPosting(Posting):
    """A posting of one message whose body is in a file already; `over` is told when it is stored (True), or
    will not be.
    """

    __slots__ = ("_over",)

    def __init__(
        self, nodes: Nodes, queue: Queue, record: Record, origin: Origin, sink: Sink, delivery: Delivery,
        over: Callable[[bool], None],
    ) -> None:  # fmt: skip
        super().__init__(nodes, queue, [record], origin, sink, [delivery], account=sink.connection.account)
        self._over = over

    def stored(self) -> None:
        """A row has the file."""
        super().stored()
        self._over(True)

    def refused(self, error: Exception) -> None:
        """None has."""
        super().refused(error)
        self._over(False)


class Settlement(Operation):
    """The outcome of a run of deliveries to one consumer. `retired` messages leave the queue with its commit,
    where there is a `letter` for another one; those that returned are there already. The queue does not end
    before a letter is stored: on a full disk that would be forgotten behind its end.
    """

    __slots__ = ("deliveries", "letter", "nodes", "queue", "records", "source", "state", "verbs")

    def __init__(
        self, source: Consumer, deliveries: list[OutgoingDelivery], retired: list[Record], state: object,
        nodes: Nodes, verbs: Unit, letter: Letter | None = None,
    ) -> None:  # fmt: skip
        self.source = source
        self.letter = letter
        self.nodes = nodes
        self.deliveries = deliveries
        self.queue = source.queue
        self.records = retired
        self.state = state
        self.verbs = verbs
        if letter is not None:
            nodes.letter_leaves(source.queue)

    def prepare(self, now_ms: int) -> Unit:
        """A delivery is decided once, so that nothing else of the group concerns it."""
        letter = self.letter
        return self.verbs if letter is None else [*self.verbs, *letter.prepare(now_ms)]

    def undo(self) -> None:
        """Undo the letter: nothing else has changed."""
        if self.letter is not None:
            self.letter.undo()

    def stored(self) -> None:
        """The messages are gone, or where their letter says."""
        if self.records:
            self.queue.retire(self.records, left_by(self.state))
        if self.letter is not None:
            self.letter.stored()
        self.done()

    def done(self) -> None:
        """Tell the receiver that its outcome holds, and senders that there is room."""
        if self.deliveries:  # first: the queue may go with its last message, and its links with it
            self.source.on_settled(self)
        self._letter_over()
        if self.records:
            self.nodes.writer.watcher.stored(self.records)
            self.nodes.drained(self.queue)

    def _letter_over(self) -> None:
        letter, self.letter = self.letter, None
        if letter is not None:
            self.nodes.letter_over(self.queue)

    def refused(self, error: Exception) -> None:
        """A fault of the broker: nothing is told, and what was to leave is there for others."""
        records, verbs = self.records, self.verbs
        self.records, self.verbs = [], []
        if records:
            self.nodes.writer.watcher.refused(records, error)
            if not self.queue.deleted:
                self.queue.give_back(records)
                self.nodes.pump(self.queue)
        elif verbs:
            self.nodes.store(verbs)  # memory has them back already, and what the outcome changed
        self._letter_over()

    def judges(self) -> bool:
        """The receiver has decided."""
        return False

    def waits_for_space(self) -> bool:
        """The receiver has decided: its outcome waits for room, and nothing is delivered once more."""
        return True

    def asking_connection(self) -> Connection | None:
        """The receiver's connection."""
        return self.source.connection


@mypyc_attr(allow_interpreted_subclasses=True)
class Leaving(Operation):
    """Messages leave their queue, which is done in memory already: `verbs` retire them in the store, and a
    `letter` is for what is kept of them. `then` is called once, with how many messages the store still has:
    none where it is stored.
    """

    __slots__ = ("_letter", "_verbs", "then")

    def __init__(self, verbs: Unit, letter: Letter | None = None) -> None:
        self._verbs = verbs
        self._letter = letter
        self.then: Callable[[int], None] | None = None

    def prepare(self, now_ms: int) -> Unit:
        """The verbs of both."""
        letter = self._letter
        return self._verbs if letter is None else [*self._verbs, *letter.prepare(now_ms)]

    def undo(self) -> None:
        """Undo the letter."""
        if self._letter is not None:
            self._letter.undo()

    def stored(self) -> None:
        """They are gone, or where their letter says."""
        if self._letter is not None:
            self._letter.stored()
        self._tell(0)

    def refused(self, error: Exception) -> None:
        """They are in no queue, and stay in the store as long as theirs does: the next start has them again.
        """
        logger("writer").error("messages.kept_back", reason=str(error))
        retired = [verb for verb in self._verbs if type(verb) is Retire]
        self._tell(sum([verb.last_offset - verb.first_offset + 1 for verb in retired]))

    def _tell(self, kept_back: int) -> None:
        then, self.then = self.then, None
        if then is not None:
            then(kept_back)

    def waits_for_space(self) -> bool:
        """The messages have left, and wait for room to be forgotten, or kept elsewhere."""
        return True


def record_of_item(item: Any) -> Record:
    """The message of a delivery, or, sent settled, the item itself."""
    return item if isinstance(item, Record) else item.message


def ended_by(queue: Queue, items: Sequence[Any], outcome: object) -> list[Any]:
    """Those of `items`, messages or what they were delivered as, that leave the queue unprocessed by an
    outcome: it rejects them, or says that their last delivery failed, too.
    """
    if type(outcome) is Rejected:
        return [*items]
    most = queue.endings.max_deliveries
    if not most or type(outcome) is not Modified or not outcome.delivery_failed:
        return []
    return [item for item in items if record_of_item(item).delivery_count + 1 >= most]


def without(items: list[Any], ended: list[Any]) -> list[Any]:
    """The others of `items`."""
    gone = set(map(id, ended))
    return [item for item in items if id(item) not in gone]


def letter_of(queue: Queue, items: Sequence[Any], outcome: object) -> Letter | None:
    """What is kept of those of `ended_by`."""
    rejected = type(outcome) is Rejected
    departed = [_departed(item, outcome) for item in items]
    return queue.endings.letter(
        REJECTED if rejected else TRIED_TOO_OFTEN, reason_of(outcome) if rejected else "", departed
    )


def _departed(item: Any, outcome: object) -> Departed:
    record = record_of_item(item)
    if type(outcome) is not Modified:
        return Departed(record, record.delivery_count, record.body)
    body = record.body
    if outcome.message_annotations:
        section = item.merged_by(outcome)
        assert section is not None, "it was merged when the outcome came"
        body = section + body[Message(body).after_message_annotations_offset :]
    return Departed(record, record.delivery_count + 1, body)


def dead_after_tries(queue: Queue, items: Sequence[Any], now_ms: int) -> Unit:
    """What the journal tells of messages whose last delivery failed, too."""
    if not queue.events:
        return []
    return dead(queue, [record_of_item(item).offset for item in items], TRIED_TOO_OFTEN, now_ms)


def return_verbs(queue_id: int, deliveries: Sequence[Any], outcome: Modified) -> Unit:
    """What the store has to know of messages that `modified` is about to give back (3.4.5)."""
    failed = 1 if outcome.delivery_failed else 0
    if not failed and not outcome.message_annotations:
        return []
    unit: Unit = []
    for delivery in deliveries:
        record: Record = delivery.message
        if record.durable:
            annotations = record.annotations
            if outcome.message_annotations:
                annotations = delivery.merged_by(outcome)
                assert annotations is not None, "it was merged when the outcome came"
            unit.append(Return(queue_id, record.offset, record.delivery_count + failed, annotations))
    return unit


@mypyc_attr(allow_interpreted_subclasses=True)
class Step(Operation):
    """Verbs that nothing has to judge. `then` is called with None, or with why they are not stored. Without
    `then` they wait for room, unless they are `only_events` of the journal.
    """

    __slots__ = ("_only_events", "_then", "_verbs")

    def __init__(
        self, verbs: Unit, then: Callable[[Exception | None], None] | None = None, *,
        only_events: bool = False,
    ) -> None:  # fmt: skip
        self._verbs = verbs
        self._then = then
        self._only_events = only_events

    def prepare(self, now_ms: int) -> Unit:
        """The verbs as they were handed in."""
        return self._verbs

    def stored(self) -> None:
        """Whoever waits goes on."""
        if self._then is not None:
            self._then(None)

    def refused(self, error: Exception) -> None:
        """Whoever waits is told."""
        if self._then is not None:
            self._then(error)

    def judges(self) -> bool:
        """Verbs stand for themselves."""
        return False

    def waits_for_space(self) -> bool:
        """Events promise nothing: where there is no room, they are left out."""
        return self._then is None and not self._only_events


class Question(Operation):
    """Asked at its place among the operations: `look` looks at the store and at what those before it leave,
    and returns what tells the answer, after their commit. `failed` is told of a fault of the broker.
    """

    __slots__ = ("_connection", "_failed", "_look", "_tell")

    def __init__(
        self, look: Callable[[], Callable[[], None]], failed: Callable[[Exception], None],
        connection: Connection | None = None,
    ) -> None:  # fmt: skip
        self._look = look
        self._failed = failed
        self._connection = connection
        self._tell: Callable[[], None] | None = None

    def prepare(self, now_ms: int) -> Unit:
        """Nothing is stored."""
        self._tell = self._look()
        return []

    def stored(self) -> None:
        """Give the answer: what it was read from is stored."""
        if self._tell is not None:
            self._tell()

    def refused(self, error: Exception) -> None:
        """A fault of the broker met the question."""
        self._failed(error)

    def asking_connection(self) -> Connection | None:
        """The asker's connection."""
        return self._connection
