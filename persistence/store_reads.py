"""What a store on disk answers between its groups, each in a turn of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Final, ParamSpec, TypeVar

from amqp_broker.persistence.epochs import Decision
from amqp_broker.persistence.errors import NoSuchNode
from amqp_broker.persistence.group import NodeState
from amqp_broker.persistence.halves import Event, Half, Stream
from amqp_broker.persistence.ledger import Ledger
from amqp_broker.persistence.outcomes import Outcomes
from amqp_broker.persistence.retained_reader import RetainedReader, offset_at
from amqp_broker.persistence.retention import Cursor, Retained
from amqp_broker.persistence.store import ReadResult
from amqp_broker.persistence.unit_of_work import UnitOfWork

STORE_ID: Final = "SELECT value FROM meta WHERE key='store_id'"
P = ParamSpec("P")
T = TypeVar("T")


class StoreReads(ABC):
    """The questions of `Store` that change nothing, as a part of SqliteStore."""

    _ledger: Ledger
    _outcomes: Outcomes
    _nodes: dict[int, NodeState]
    _store_id: str
    _unit: UnitOfWork
    _retained_reader: RetainedReader

    @abstractmethod
    def _ask(self, question: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A turn that changes nothing."""

    def discharged(self, txn_id: bytes) -> int | None:
        """See `Store`."""
        return self._ask(self._outcomes.find, txn_id)

    def half(self, group: str, half_id: bytes) -> Half | None:
        """See `Store`."""
        return self._ask(self._ledger.halves.half, group, half_id)

    def some_halves(self, group: str, half_ids: Sequence[bytes]) -> dict[bytes, Half | None]:
        """See `Store`."""
        return self._ask(self._ledger.halves.some, group, half_ids)

    def half_body(self, group: str, half_id: bytes) -> bytes | None:
        """See `Store`."""
        return self._ask(self._ledger.halves.body, group, half_id)

    def open_halves(self) -> list[Half]:
        """See `Store`."""
        return self._ask(self._ledger.halves.open_ones)

    def halves(self, group: str, state: str | None, after: bytes, count: int) -> list[Half]:
        """See `Store`."""
        return self._ask(self._ledger.halves.page, group, state, after, count)

    def stream(self, queue_id: int, stream: str) -> Stream | None:
        """See `Store`."""
        found = self._ask(self._ledger.streams.find, queue_id, stream)
        return found if queue_id in self._nodes else None  # those of a deleted queue are swept later

    def stream_count(self) -> int:
        """See `Store`."""
        return self._ask(self._ledger.streams.count)

    def streams(self, queue_id: int, after: str, count: int) -> list[Stream]:
        """See `Store`."""
        found = self._ask(self._ledger.streams.page, queue_id, after, count)
        return found if queue_id in self._nodes else []

    def decision(self, group: str, producer: str, epoch: int) -> Decision | None:
        """See `Store`."""
        return self._ask(self._ledger.epochs.find, group, producer, epoch)

    def latest_decision(self, group: str, producer: str) -> Decision | None:
        """See `Store`."""
        return self._ask(self._ledger.epochs.latest, group, producer)

    def decisions(self, group: str, producer: str, count: int) -> list[Decision]:
        """See `Store`."""
        return self._ask(self._ledger.epochs.page, group, producer, count)

    @property
    def store_id(self) -> str:
        """See `Store`."""
        return self._store_id

    def retained(self, queue_id: int) -> Retained | None:
        """See `Store`."""
        return self._ask(self._retained, queue_id)

    def _retained(self, queue_id: int) -> Retained | None:
        node = self._nodes.get(queue_id)
        if node is None or node.retention is None or not node.retention.keeps():
            return None
        kept = node.retention
        return Retained(kept.keep_ms, kept.keep_bytes, kept.first_offset, node.next_offset, kept.byte_count)

    def read_retained(self, queue_id: int, from_offset: int, max_messages: int, max_bytes: int) -> ReadResult:
        """See `Store`."""
        return self._ask(self._read_retained, queue_id, from_offset, max_messages, max_bytes)

    def _read_retained(
        self, queue_id: int, from_offset: int, max_messages: int, max_bytes: int
    ) -> ReadResult:
        node = self._node("read_retained", queue_id)
        return self._retained_reader.page(node, from_offset, max_messages, max_bytes)

    def offset_at(self, queue_id: int, at_ms: int) -> int:
        """See `Store`."""
        return self._ask(self._offset_at, queue_id, at_ms)

    def _offset_at(self, queue_id: int, at_ms: int) -> int:
        return offset_at(self._unit, self._node("offset_at", queue_id), at_ms)

    def _node(self, name: str, queue_id: int) -> NodeState:
        node = self._nodes.get(queue_id)
        if node is None:
            raise NoSuchNode(f"{name} of node {queue_id}, which does not exist")
        return node

    def cursors(self, name: str) -> list[Cursor]:
        """See `Store`."""
        return self._ask(self._ledger.cursors.find, name)

    def cursor_names(self, after: str, count: int) -> list[str]:
        """See `Store`."""
        return self._ask(self._ledger.cursors.names, after, count)

    def events(self, from_seq: int, count: int) -> list[Event]:
        """See `Store`."""
        return self._ask(self._ledger.events.page, from_seq, count)

    def event_range(self) -> tuple[int, int]:
        """See `Store`."""
        return self._ask(self._ledger.events.range)
