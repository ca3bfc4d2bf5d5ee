"""What operations on half messages want stored in one unit: as few verbs and events as can be.

commit, commit, rollback, commit --> one Post for each queue | a Decide for each | events: 2, 1, 1 entries
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from amqp_broker.coordinator import OpenHalf, shown_half_id
from amqp_broker.message_events import RUN_ENTRIES, Values, homeless, journal_run, put_by_halves
from amqp_broker.persistence import Record, Unit

if TYPE_CHECKING:
    from amqp_broker.persistence import Verb
    from amqp_broker.queue import Queue

Shared = tuple[str, ...]
"""What events of half messages in a row have in common, in the order of `SHARED`."""

PUT: Final = "half.put"
COMMITTED: Final = "half.committed"
_BY: Final = ("resolver", "who", "reason")
SHARED: Final[dict[str, tuple[str, ...]]] = {
    PUT: ("group", "destination", "container"), COMMITTED: ("group", "queue", *_BY),
    "half.rolled_back": ("group", *_BY), "half.parked": ("group", *_BY), "half.resumed": ("group", *_BY),
}  # fmt: skip
NUMBER: Final[dict[str, str]] = {PUT: "bytes", COMMITTED: "offset"}
"""The column of its own that each kind of event has, besides the half-id."""


class _CommittedMessages:
    """Messages of half messages that were committed, in one queue with events."""

    __slots__ = ("group", "half_ids", "producer", "queue", "records")

    def __init__(self, queue: Queue, group: str, producer: str) -> None:
        self.queue = queue
        self.group = group
        self.producer = producer
        self.records: list[Record] = []
        self.half_ids: list[str] = []


class HalfUnit:
    """Gathers the verbs and events of operations, in their order."""

    __slots__ = (
        "_half_ids", "_kind", "_numbers", "_committed", "_posts", "_rest", "_shared", "_txn_id", "now_ms",
    )  # fmt: skip

    def __init__(self, now_ms: int, txn_id: bytes = b"") -> None:
        self.now_ms = now_ms
        self._txn_id = txn_id
        self._posts: dict[Queue, list[Record]] = {}
        self._rest: Unit = []
        self._committed: _CommittedMessages | None = None
        self._kind = ""
        self._shared: Shared = ()
        self._half_ids: Values = []
        self._numbers: Values = []

    def add(self, verb: Verb) -> None:
        """Add one verb."""
        self._rest.append(verb)

    def post(self, queue: Queue, record: Record) -> None:
        """Add a message that has its number; those of a queue without holes come in order."""
        if record.durable:
            records = self._posts.get(queue)
            if records is None:
                self._posts[queue] = [record]
            else:
                records.append(record)

    def journal_available(
        self, queue: Queue, record: Record, group: str, half: OpenHalf, reason: str
    ) -> None:
        """Journal that a message became available in a queue with events; for a `reason` that is not its
        destination.
        """
        half_id, producer = shown_half_id(half.half_id), half.container_id
        committed = self._committed
        if committed is None or (
            (committed.queue, committed.group, committed.producer) != (queue, group, producer)
        ):  # fmt: skip
            self._end_committed()
            committed = self._committed = _CommittedMessages(queue, group, producer)
        committed.records.append(record)
        committed.half_ids.append(half_id)
        if reason:
            self._end_committed()
            self._rest.extend(homeless(queue, half.destination, group, half_id, reason, self.now_ms))

    def journal(self, kind: str, shared: Shared, half_id: str, number: int = 0) -> None:
        """Add one event; events in a row of one kind that share `shared` are stored as one."""
        if kind != self._kind or shared != self._shared or len(self._half_ids) >= RUN_ENTRIES:
            self._end_run()
            self._kind = kind
            self._shared = shared
        self._half_ids.append(half_id)
        self._numbers.append(number)

    def _end_run(self) -> None:
        self._end_committed()  # that a message is there is told before why
        if self._half_ids:
            fields: dict[str, str | int] = dict(zip(SHARED[self._kind], self._shared, strict=True))
            columns = {"half_id": self._half_ids}
            name = NUMBER.get(self._kind)
            if name is not None:
                columns[name] = self._numbers
            self._rest.append(journal_run(self._kind, self.now_ms, fields, len(self._half_ids), columns))
            self._half_ids = []
            self._numbers = []

    def _end_committed(self) -> None:
        committed, self._committed = self._committed, None
        if committed is not None:
            self._rest.extend(
                put_by_halves(
                    committed.queue,
                    committed.records,
                    committed.group,
                    committed.half_ids,
                    committed.producer,
                    self.now_ms,
                    self._txn_id,
                )  # fmt: skip
            )

    def verbs(self) -> Unit:
        """All verbs that were gathered."""
        self._end_run()
        if not self._posts:
            return self._rest
        posts: Unit = []
        for queue, records in self._posts.items():
            posts.extend(queue.post_verbs(records, len(records)))
        return posts + self._rest
