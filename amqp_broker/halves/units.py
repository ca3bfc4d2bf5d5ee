"""What operations on half messages want stored in one unit: as few verbs and events as can be.

commit, commit, rollback, commit --> one Post for each queue | a Decide for each | events: 2, 1, 1 entries
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqp_broker.coordinator import OpenHalf, shown_half_id
from amqp_broker.jobs import post_verbs
from amqp_broker.message_events import RUN_ENTRIES, Values, homeless, log_run, put_by_halves
from amqp_broker.persistence import Record, Unit

if TYPE_CHECKING:
    from amqp_broker.persistence import Verb
    from amqp_broker.queue import Queue

Shared = tuple[tuple[str, str | int], ...]


class _Placed:
    """Messages of half messages that were committed, in one queue with events."""

    __slots__ = ("group", "half_ids", "producer", "queue", "records")

    def __init__(self, queue: Queue, group: str, producer: str) -> None:
        self.queue = queue
        self.group = group
        self.producer = producer
        self.records: list[Record] = []
        self.half_ids: list[str] = []


class HalfUnit:
    """Gathers what they ask for, in their order."""

    __slots__ = (
        "_columns", "_count", "_kind", "_placed", "_posts", "_rest", "_shared", "_txn_id", "now_ms",
    )  # fmt: skip

    def __init__(self, now_ms: int, txn_id: bytes = b"") -> None:
        self.now_ms = now_ms
        self._txn_id = txn_id
        self._posts: dict[Queue, list[Record]] = {}
        self._rest: Unit = []
        self._placed: _Placed | None = None
        self._kind = ""
        self._shared: Shared = ()
        self._count = 0
        self._columns: dict[str, Values] = {}

    def add(self, verb: Verb) -> None:
        """One more verb."""
        self._rest.append(verb)

    def post(self, queue: Queue, record: Record) -> None:
        """A message that has its number; those of a queue without holes come in order."""
        if record.durable:
            records = self._posts.get(queue)
            if records is None:
                self._posts[queue] = [record]
            else:
                records.append(record)

    def placed(self, queue: Queue, record: Record, group: str, half: OpenHalf, reason: str) -> None:
        """The event log tells of a message that became available in a queue with events; for a `reason` not
        in its destination.
        """
        half_id, producer = shown_half_id(half.half_id), half.container_id
        placed = self._placed
        if placed is None or (placed.queue, placed.group, placed.producer) != (queue, group, producer):
            self._end_placed()
            placed = self._placed = _Placed(queue, group, producer)
        placed.records.append(record)
        placed.half_ids.append(half_id)
        if reason:
            self._end_placed()
            self._rest.extend(homeless(queue, half.destination, group, half_id, reason, self.now_ms))

    def log(self, kind: str, shared: Shared, own: dict[str, str | int]) -> None:
        """One event; those in a row of one kind that share `shared` are stored as one."""
        if kind != self._kind or shared != self._shared or self._count >= RUN_ENTRIES:
            self._end_run()
            self._kind = kind
            self._shared = shared
            self._columns = {name: [value] for name, value in own.items()}
        else:
            for name, values in self._columns.items():
                values.append(own[name])
        self._count += 1

    def _end_run(self) -> None:
        self._end_placed()  # that a message is there is told before why
        if self._count:
            fields = dict(self._shared)
            self._rest.append(log_run(self._kind, self.now_ms, fields, self._count, self._columns))
            self._count = 0

    def _end_placed(self) -> None:
        placed, self._placed = self._placed, None
        if placed is not None:
            self._rest.extend(
                put_by_halves(
                    placed.queue,
                    placed.records,
                    placed.group,
                    placed.half_ids,
                    placed.producer,
                    self.now_ms,
                    self._txn_id,
                )  # fmt: skip
            )

    def verbs(self) -> Unit:
        """All of it."""
        self._end_run()
        if not self._posts:
            return self._rest
        posts: Unit = []
        for queue, records in self._posts.items():
            posts.extend(post_verbs(queue, records, len(records)))
        return posts + self._rest
