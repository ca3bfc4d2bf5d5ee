"""What a store is asked between its groups: questions as values, each with the type of its answer.

A question is declared here; each store has one table, from the type of a question to the function that
answers it. Only PageOf changes anything: it puts what is damaged into quarantine.

What is damaged raises RowDamaged, unless the question says otherwise; StoreFailed is raised by any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import attrs

from amqp_broker.persistence.halves import Decision, Event, Half, Stream
from amqp_broker.persistence.records import Record
from amqp_broker.persistence.retention import Cursor, Retained
from amqp_broker.persistence.termini import StoredTerminus

Answer = TypeVar("Answer")
Asked = TypeVar("Asked", bound="Question[Any]")
Answering = tuple[type["Question[Any]"], Callable[[Any], Any]]
Answers = dict[type["Question[Any]"], Callable[[Any], Any]]

MISSING: Final = "there is no message of this number"  # Quarantined.reason in an answer to RetainedPageOf
MISSING_AT_ONCE: Final = 1024  # numbers without a message that one such page tells at most


@attrs.define
class Quarantined:
    """A message whose stored bytes do not match their checksum. It left its queue and is never delivered.

    Of a node, `offset` is -1.
    """

    queue_id: int
    offset: int
    reason: str


@attrs.define
class ReadResult:
    """One page of a queue, in order. `next_offset` is where the next page begins.

    When nothing more is stored, `next_offset` is the node's own. `lost_bytes` is what the bodies of those in
    `quarantined` had together, as far as it is known; only the answer to PageOf tells it. `large`: there are
    LargeRecords among the records.
    """

    records: list[Record]
    next_offset: int
    quarantined: list[Quarantined]
    lost_bytes: int = 0
    large: bool = False


class Asks(Protocol):
    """A store, as a question sees it."""

    def ask(self, question: Question[Answer]) -> Answer:
        """The answer."""


class Question(Generic[Answer]):
    """What a store can be asked. It is also a function of a store, whose result is the answer."""

    __slots__ = ()

    def __call__(self, store: Asks) -> Answer:
        """The answer of `store`."""
        return store.ask(self)

    @classmethod
    def answered_by(cls: type[Asked], function: Callable[[Asked], Answer]) -> Answering:
        """An entry of a store's table: `function` takes such a question and gives its answer."""
        return cls, function


@attrs.define
class StoreId(Question[str]):
    """The name of this store, a UUID: another one after the store was wiped."""


@attrs.define
class PageOf(Question[ReadResult]):
    """The next messages of a queue at or after `from_offset`: fresh records, at least one if there is any.

    What is damaged goes into quarantine, and is told the first time only. Raises NoSuchNode. Where they need
    not be `whole`, large ones may come as LargeRecords.
    """

    queue_id: int
    from_offset: int
    max_messages: int
    max_bytes: int
    whole: bool = True


@attrs.define
class FoundDamaged(Question[ReadResult]):
    """Put a stored message into quarantine, since its body was found damaged while it was read: `reason` says
    how. The answer tells it as that to PageOf does; nothing where it is not stored. Raises NoSuchNode.
    """

    queue_id: int
    offset: int
    reason: str


@attrs.define
class DischargedAt(Question[int | None]):
    """When a transaction was committed (`at_ms` of its `Discharged`); None if it was not, or forgotten.

    `idle` forgets outcomes that are too many or too old. Raises OutcomesDamaged.
    """

    txn_id: bytes


@attrs.define
class HalfOf(Question[Half | None]):
    """A half message, decided ones included until `idle` has forgotten them; None if there is none.

    That may be later than its `expires_at_ms`.
    """

    group: str
    half_id: bytes


@attrs.define
class SomeHalves(Question[dict[bytes, Half | None]]):
    """Several half messages of a group by half-id, None for one that there is not, decided ones included
    until `idle` has forgotten them; what is damaged is left out.
    """

    group: str
    half_ids: Sequence[bytes]


@attrs.define
class HalfBodyOf(Question[bytes | None]):
    """The body of a half message that is open, or was rolled back by policy and is within the bound of bytes;
    None if there is none.
    """

    group: str
    half_id: bytes


@attrs.define
class OpenHalves(Question[list[Half]]):
    """The prepared and the parked half messages of all groups, oldest first. What is damaged is left out."""


@attrs.define
class HalvesOf(Question[list[Half]]):
    """Up to `count` half messages of a group, those of one state or all, whose half-id is after `after`.

    In the order of their half-ids; fewer mean that there are no more. What is damaged is left out.
    """

    group: str
    state: str | None
    after: bytes
    count: int


@attrs.define
class StreamOf(Question[Stream | None]):
    """Where a stream of a queue stands; None if there is none, or the queue is gone."""

    queue_id: int
    stream: str


@attrs.define
class StreamsOf(Question[list[Stream]]):
    """Up to `count` streams of a queue whose name is after `after`, in the order of their names. What is
    damaged is left out.
    """

    queue_id: int
    after: str
    count: int


@attrs.define
class StreamCount(Question[int]):
    """How many streams there are in all queues."""


@attrs.define
class DecisionOf(Question[Decision | None]):
    """What was decided about an epoch of a producer; None if nothing was, or it is forgotten.

    Forgotten are those with `halves.KEEP_DECISIONS` later ones.
    """

    group: str
    producer: str
    epoch: int


@attrs.define
class LatestDecisionOf(Question[Decision | None]):
    """The decision of a producer's highest epoch; None if it has none."""

    group: str
    producer: str


@attrs.define
class DecisionsOf(Question[list[Decision]]):
    """Up to `count` decisions of a producer, the highest epoch first. What is damaged is left out."""

    group: str
    producer: str
    count: int


@attrs.define
class EventsFrom(Question[list[Event]]):
    """Up to `count` events at and after a number, in order, each for itself: a run that was logged as one is
    told as its entries. The oldest ones are forgotten by `idle`. What is damaged is left out.
    """

    from_seq: int
    count: int


@attrs.define
class EventRange(Question[tuple[int, int]]):
    """The number of the oldest event that is kept, and of the next one that will be logged."""


@attrs.define
class RetainedBy(Question[Retained | None]):
    """What a node retains; None if it does not, or does not exist."""

    queue_id: int


@attrs.define
class RetainedPageOf(Question[ReadResult]):
    """The next messages of a retaining node at or after `from_offset`, live and archived alike; at least one
    if there is any, and none from below the watermark (`Retained.first_offset`).

    Offsets are dense: each one from there up to `next_offset` of the page is in `records` or, if its message
    is damaged or missing, in `quarantined`, each time it is read. `enqueued_at_ms` is not before the time by
    which OffsetAt finds it. A node that does not retain has none. Raises NoSuchNode.
    """

    queue_id: int
    from_offset: int
    max_messages: int
    max_bytes: int


@attrs.define
class OffsetAt(Question[int]):
    """The first offset that was published at or after a time, above the watermark; `next_offset` if there is
    none.

    What was posted in one commit counts as published together, and never before an earlier one. Raises
    NoSuchNode.
    """

    queue_id: int
    at_ms: int


@attrs.define
class CursorsOf(Question[list[Cursor]]):
    """Where a named cursor stands, in the order of the nodes; none if there is no such cursor. What is
    damaged is left out.
    """

    name: str


@attrs.define
class CursorNames(Question[list[str]]):
    """Up to `count` names of cursors after `after`, in order; fewer mean that there are no more."""

    after: str
    count: int


@attrs.define
class Termini(Question[list[StoredTerminus]]):
    """All termini, in the order of their numbers. What is damaged is left out."""


@attrs.define
class UnsettledOf(Question[dict[bytes, bytes]]):
    """The states of a terminus' deliveries, by delivery-tag; none if there is no such terminus. What is
    damaged is left out.
    """

    number: int


@attrs.define
class HeldBy(Question[dict[bytes, tuple[int, int]]]):
    """The messages that a terminus holds, by delivery-tag: (queue, offset), in their order; none if there is
    no such terminus. What is damaged is left out. A message may have left its queue without a word to this.
    """

    number: int
