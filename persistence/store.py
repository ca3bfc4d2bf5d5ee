"""The store as the broker sees it: a protocol that MemoryStore and SqliteStore implement.

Turns. A store is used by one caller at a time, in strict turns: `apply` runs the statements, in the caller's
thread; then `commit` (blocking, it may run in a worker thread) or `abandon` ends the group. All else are
turns of their own between groups. Overlap is an AssertionError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import attrs

from amqp_broker.persistence.epochs import Decision
from amqp_broker.persistence.halves import Event, Half, Stream
from amqp_broker.persistence.records import Record
from amqp_broker.persistence.retention import Cursor, Retained
from amqp_broker.persistence.verbs import Unit

MISSING: Final = "there is no message of this number"  # Quarantined.reason in `read_retained`
MISSING_AT_ONCE: Final = 1024  # numbers without a message that one page of `read_retained` tells at most


@attrs.define
class Quarantined:
    """A message whose stored bytes do not match their checksum. It left its queue and is never delivered.

    Of a node, `offset` is -1.
    """

    queue_id: int
    offset: int
    reason: str


@attrs.define
class RecoveredNode:
    """A node as the store holds it. `first_offset` is that of its oldest message, or `next_offset` if it has
    none.

    `byte_count` sums the bodies of its messages, in bytes.
    """

    queue_id: int
    name: str
    kind: str
    settings: dict[str, object]
    next_offset: int
    message_count: int
    byte_count: int
    first_offset: int


@attrs.define
class Recovered:
    """What a store holds at its start, nodes in the order of their creation.

    `quarantined` are nodes whose own row was damaged, since the store was opened: their messages are there,
    their settings are not. `now_ms` and `notes` are of the last `KeepTime`, 0 if there is none.
    """

    nodes: list[RecoveredNode]
    quarantined: list[Quarantined] = attrs.field(factory=list)
    now_ms: int = 0
    notes: str = ""


@attrs.define
class ReadResult:
    """One page of a queue, in order. `next_offset` is where the next page begins.

    When nothing more is stored, `next_offset` is the node's own. `lost_bytes` is what the bodies of those in
    `quarantined` had together, as far as it is known; only `read` tells it.
    """

    records: list[Record]
    next_offset: int
    quarantined: list[Quarantined]
    lost_bytes: int = 0


@attrs.define
class SpaceState:
    """Room on the disk, in bytes. While `refusing`, Post, Hold and Advance are answered with StoreFull and
    everything else goes on.
    """

    free_bytes: int
    low_water_bytes: int
    refusing: bool
    ballast_present: bool


class Store(Protocol):
    """Where durable messages are. What `commit` returned for is there after any crash."""

    def recover(self) -> Recovered:
        """What is stored: nodes, numbering and counts. Raises StoreFailed, and StoreFull if a damaged row of
        a node cannot be put away.
        """

    def apply(self, units: Sequence[Unit]) -> list[Exception | None]:
        """Run the units, in order. One entry for each: None, or why it did not happen (NodeExists,
        NoSuchNode, StoreFull, RowDamaged).

        A unit that is refused leaves no trace and does not disturb the others. The others are durable when
        `commit` returned. Raises StoreFull (nothing happened; the same units again are answered one by one)
        or StoreFailed.
        """

    def commit(self) -> None:
        """End the group; durable when it returns. Raises StoreFull (nothing happened) or StoreFailed
        (unknown).
        """

    def abandon(self) -> None:
        """Roll back what was applied."""

    def read(self, queue_id: int, from_offset: int, max_messages: int, max_bytes: int) -> ReadResult:
        """The next messages of a queue at or after `from_offset`: fresh records, at least one if there is
        any.

        Raises NoSuchNode or StoreFailed.
        """

    def discharged(self, txn_id: bytes) -> int | None:
        """When a transaction was committed (`at_ms` of its `Discharged`); None if it was not, or forgotten.

        `idle` forgets outcomes that are too many or too old. Raises OutcomesDamaged or StoreFailed.
        """

    def half(self, group: str, half_id: bytes) -> Half | None:
        """A half message, decided ones included until `idle` has forgotten them; None if there is none.

        That may be later than its `expires_at_ms`. Raises RowDamaged or StoreFailed, as the next ten do.
        """

    def some_halves(self, group: str, half_ids: Sequence[bytes]) -> dict[bytes, Half | None]:
        """The same of several at once, None for those that there are not; what is damaged is left out."""

    def half_body(self, group: str, half_id: bytes) -> bytes | None:
        """The body of a half message that is open, or was rolled back by policy and is within the bound of
        bytes; None if there is none.
        """

    def open_halves(self) -> list[Half]:
        """The prepared and the parked ones of all groups, the oldest first. What is damaged is left out."""

    def halves(self, group: str, state: str | None, after: bytes, count: int) -> list[Half]:
        """Up to `count` half messages of a group, those of one state or all, whose half-id is after `after`.

        In the order of their half-ids; fewer mean that there are no more. What is damaged is left out.
        """

    def stream(self, queue_id: int, stream: str) -> Stream | None:
        """Where a stream of a queue stands; None if there is none, or the queue is gone."""

    def streams(self, queue_id: int, after: str, count: int) -> list[Stream]:
        """Up to `count` streams of a queue whose name is after `after`, in the order of their names."""

    def stream_count(self) -> int:
        """How many streams there are in all queues."""

    def decision(self, group: str, producer: str, epoch: int) -> Decision | None:
        """What was decided about an epoch of a producer; None if nothing was, or it is forgotten.

        Forgotten are those with `epochs.KEEP_DECISIONS` later ones.
        """

    def latest_decision(self, group: str, producer: str) -> Decision | None:
        """The decision of a producer's highest epoch; None if it has none."""

    def decisions(self, group: str, producer: str, count: int) -> list[Decision]:
        """Up to `count` decisions of a producer, the highest epoch first. What is damaged is left out."""

    def events(self, from_seq: int, count: int) -> list[Event]:
        """Up to `count` events at and after a number, in order, each for itself: a run that was logged as one
        is told as its entries. The oldest ones are forgotten by `idle`. What is damaged is left out.
        """

    def event_range(self) -> tuple[int, int]:
        """The number of the oldest event that is kept, and of the next one that will be logged."""

    @property
    def store_id(self) -> str:
        """The name of this log, a UUID: another one after the store was wiped."""

    def retained(self, queue_id: int) -> Retained | None:
        """What a node retains; None if it does not, or does not exist. Raises StoreFailed."""

    def read_retained(self, queue_id: int, from_offset: int, max_messages: int, max_bytes: int) -> ReadResult:
        """The next messages of a retaining node at or after `from_offset`, live and archived alike; at least
        one if there is any, and none from below the watermark (`Retained.first_offset`).

        Offsets are dense: each one from there up to `next_offset` of the page is in `records` or, if its
        message is damaged or missing, in `quarantined`, each time it is read. `enqueued_at_ms` is not before
        the time by which `offset_at` finds it. A node that does not retain has none. Raises NoSuchNode or
        StoreFailed.
        """

    def offset_at(self, queue_id: int, at_ms: int) -> int:
        """The first offset that was published at or after a time, above the watermark;
        `next_offset` if there is none.

        What was posted in one commit counts as published together, and never before an earlier one. Raises
        NoSuchNode or StoreFailed.
        """

    def cursors(self, name: str) -> list[Cursor]:
        """Where a named cursor stands, in the order of the nodes; none if there is no such cursor.

        What is damaged is left out. Raises RowDamaged or StoreFailed, as the next one does.
        """

    def cursor_names(self, after: str, count: int) -> list[str]:
        """Up to `count` names of cursors after `after`, in order; fewer mean that there are no more."""

    def idle(self, now: float) -> bool:
        """Housekeeping in bounded steps (checkpoint, forgetting what was kept long enough, sweeping,
        compaction); True if more waits. May run in a worker.

        `now` is seconds of the clock that the times in the verbs are of, which never jumps. Call it when
        nothing else is to do, and when `checkpoint_due` says so.
        """

    @property
    def kept_bytes(self) -> int:
        """Octets of memory for messages and events that only the store knows of: retained ones that are in no
        queue any more, half messages, the event log. 0 where they are on disk.
        """

    @property
    def checkpoint_due(self) -> bool:
        """`idle` should run before the next group."""

    @property
    def space(self) -> SpaceState:
        """Room on the disk."""

    def close(self) -> None:
        """End cleanly; a second call is harmless."""
