"""A run of messages of which some are of sequenced streams: judged when the writer makes its group, and
stored in one unit with the positions that it leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from amqp_broker.frames import Error, Rejected
from amqp_broker.links import Delivery
from amqp_broker.message_events import places_of, put, refused
from amqp_broker.operations.operation import Operation
from amqp_broker.operations.posting import Arrival
from amqp_broker.persistence import (
    RECORD_OVERHEAD_BYTES,
    Advance,
    ForgetStream,
    Record,
    RowDamaged,
    Stream,
    Unit,
)
from amqp_broker.places import Place
from amqp_broker.queue import Queue
from amqp_broker.sequences.judging import ACCEPTED, Judging
from amqp_broker.sequences.positions import TooManyStreams

if TYPE_CHECKING:
    from amqp_broker.authorisation import Principal
    from amqp_broker.connection import Connection, Sink
    from amqp_broker.sequences.sequences import Sequences
    from amqp_broker.watching import Watcher

Places = Sequence[Place | Error | None]
"""For each message of a run its place, or what is wrong with its fields, or None: it is of no stream."""


class SequencedPosting(Arrival):
    """A run of messages from one link to one queue. After the commit `outcomes` has what each is told, and
    `then` is called with the posting and the store's error in a turn of the connection.
    """

    __slots__ = (
        "_changes", "_made", "_connection", "_places", "_principal", "_records", "_sequences", "_size_bytes",
        "_taken", "_then",
        "deliveries", "link", "outcomes",
    )  # fmt: skip

    def __init__(
        self,
        sequences: Sequences,
        connection: Connection,
        principal: Principal,
        sink: Sink,
        deliveries: list[Delivery],
        queue: Queue,
        records: list[Record],
        places: Places,
        then: Callable[[SequencedPosting, Exception | None], None],
    ) -> None:
        super().__init__(queue, sink, len(records))
        self._sequences = sequences
        self._connection = connection
        self._principal = principal
        self._then = then
        self._records = records
        self._places = places
        self._taken: list[Record] = []
        self._changes: list[Stream] = []
        self._made = 0
        self.link = sink.link
        self.deliveries = deliveries
        self.outcomes: list[Any] = []
        self._size_bytes = sum([len(record.body) for record in records])
        self.begin()

    @property
    def places(self) -> Places:
        """The place of each message."""
        return self._places

    def prepare(self, now_ms: int) -> Unit:
        """Judge each message by where the one before left its stream."""
        sequences = self._sequences
        queue = self.queue
        judging = sequences.judging(queue, self._principal)
        self._taken, self.outcomes = judge(judging, self._records, self._places)
        self._changes = judging.changes(now_ms)
        self._made = judging.made if queue.persistent else 0
        sequences.positions.make(self._made)
        self.number(self._taken)
        unit = queue.post_verbs(self._taken, sum([record.durable for record in self._taken]))
        if queue.events:
            places, container = places_of(self._records, self._places), self._connection.container_id
            unit.extend(put(queue, self._taken, container, now_ms, b"", places))
            unit.extend(refused(queue, self._places, self.outcomes, container, now_ms))
        for stream in self._changes:
            sequences.positions.change(self, stream)
        return unit + advances(queue, self._changes)

    def undo(self) -> None:
        """The offsets are free again, and the streams stand where they stood."""
        changes, self._changes = self._changes, []
        self._sequences.positions.undo(self, changes)
        made, self._made = self._made, 0
        self._sequences.positions.make(-made)
        super().undo()

    def parts(self) -> Sequence[Operation]:
        """One posting for each message."""
        sink = self.sink
        if len(self._records) < 2 or sink is None:
            return [self]
        parts = [
            SequencedPosting(
                self._sequences, self._connection, self._principal, sink, [delivery], self.queue,
                [record], [place], self._then,
            )
            for delivery, record, place in zip(self.deliveries, self._records, self._places, strict=True)
        ]  # fmt: skip
        self.end()
        return parts

    def stored(self) -> None:
        """The messages are there, and their streams have moved."""
        queue = self.queue
        self.end()
        self._sequences.positions.stored(self, queue, self._changes)
        if self._taken and not queue.deleted:
            size = sum([len(record.body) for record in self._taken])
            queue.make_available(self._taken, size, self._connection.account)
        self._connection.run_in_turn(self._then, self, None)
        watcher = self._sequences.nodes.writer.watcher
        if len(self._taken) < len(self._records):
            tell_rejected(watcher, self._records, self.outcomes)
        watcher.stored(self._records)
        if self._taken:
            self._sequences.nodes.pump(queue)
        else:
            self._sequences.nodes.drained(queue)

    def refused(self, error: Exception) -> None:
        """No message of the run is there; the sender is told."""
        self.end()
        self._connection.run_in_turn(self._then, self, error)
        self._sequences.nodes.writer.watcher.refused(self._records, error)
        self._sequences.nodes.drained(self.queue)

    def asking_connection(self) -> Connection | None:
        """The connection of the sender."""
        return self._connection

    def kept_bytes(self) -> int:
        """The octets of the messages."""
        return self._size_bytes + len(self._records) * RECORD_OVERHEAD_BYTES


Admit = Callable[[Record], Rejected | None]
"""None where there is room for a message that would be taken, else the outcome that its sender is told."""


def judge(
    judging: Judging, records: Sequence[Record], places: Places, admit: Admit | None = None
) -> tuple[list[Record], list[Any]]:
    """What is taken of a run, and the outcome of each of its messages."""
    taken: list[Record] = []
    outcomes: list[Any] = []
    for record, place in zip(records, places, strict=True):
        room = None if admit is None else partial(admit, record)
        is_taken = False
        outcome: Any
        if isinstance(place, Place):
            is_taken, outcome = judging.answer(place, room)
        elif place is not None:
            outcome = Rejected(error=place)
        else:
            outcome = None if room is None else room()
            if outcome is None:
                is_taken, outcome = True, ACCEPTED
        if is_taken:
            taken.append(record)
        outcomes.append(outcome)
    return taken, outcomes


def tell_rejected(watcher: Watcher, records: Sequence[Record], outcomes: Sequence[Any]) -> None:
    """Who looks on hears which messages of a run were rejected."""
    for record, outcome in zip(records, outcomes, strict=True):
        if type(outcome) is Rejected:
            watcher.refused([record], outcome.error)


def advances(queue: Queue, streams: list[Stream]) -> Unit:
    """The verbs that store streams that changed. One of which nothing was ever accepted is no stream: who
    invents names does not fill the disk.
    """
    if not queue.persistent:
        return []
    return [Advance(stream) for stream in streams if stream.seq_id]


class Reset(Operation):
    """An administrator has a stream begin anew; `then(there was one)` follows once it is stored, or
    `then(error)`.
    """

    __slots__ = ("_change", "_made", "_name", "_queue", "_sequences", "_then", "_was")

    def __init__(
        self,
        sequences: Sequences,
        queue: Queue,
        name: str,
        then: Callable[[bool | Exception], None],
    ) -> None:
        self._sequences = sequences
        self._queue = queue
        self._name = name
        self._then = then
        self._was = False
        self._made = 0
        self._change = Stream(queue.queue_id, name, "", 0, 0)

    def prepare(self, now_ms: int) -> Unit:
        """The verbs that have the stream begin anew, for what follows in the group, too."""
        positions = self._sequences.positions
        try:
            self._was = positions.find(self._queue, self._name).seq_id > 0
        except (RowDamaged, TooManyStreams) as error:
            self._was = isinstance(error, RowDamaged)  # what cannot be read is mended by a new beginning
        positions.change(self, self._change)
        self._made = -1 if self._was and self._queue.persistent else 0
        positions.make(self._made)
        return [ForgetStream(self._queue.queue_id, self._name)] if self._queue.persistent else []

    def undo(self) -> None:
        """The stream stands where it stood."""
        self._sequences.positions.undo(self, [self._change])
        made, self._made = self._made, 0
        self._sequences.positions.make(-made)

    def stored(self) -> None:
        """The stream begins anew; the administrator is told."""
        self._sequences.positions.stored(self, self._queue, [self._change])
        self._then(self._was)

    def refused(self, error: Exception) -> None:
        """The stream stands where it stood; the administrator is told why."""
        self._then(error)
