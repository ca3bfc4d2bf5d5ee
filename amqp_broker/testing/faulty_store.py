"""A store whose commits go through a script of faults; everything else is the real store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from amqp_broker.persistence import (
    Cursor,
    Decision,
    Event,
    Half,
    ReadResult,
    Recovered,
    Retained,
    SpaceState,
    Store,
    Stream,
    Unit,
)

if TYPE_CHECKING:
    from amqp_broker.testing.scripted_faults import ScriptedFaults


class FaultyStore:
    """A `Store` around another one."""

    def __init__(self, store: Store, faults: ScriptedFaults) -> None:
        self._store = store
        self._faults = faults

    def recover(self) -> Recovered:
        """As the real store."""
        return self._store.recover()

    def apply(self, units: Sequence[Unit]) -> list[Exception | None]:
        """As the real store."""
        return self._store.apply(units)

    def commit(self) -> None:
        """Commit, or not, as the script says."""
        happens, error = self._faults.before_commit()
        if happens:
            self._store.commit()
            self._faults.after_commit()
        else:
            self._store.abandon()
        if error is not None:
            raise error

    def abandon(self) -> None:
        """As the real store."""
        self._store.abandon()

    def read(self, queue_id: int, from_offset: int, max_messages: int, max_bytes: int) -> ReadResult:
        """As the real store."""
        return self._store.read(queue_id, from_offset, max_messages, max_bytes)

    def discharged(self, txn_id: bytes) -> int | None:
        """As the real store."""
        return self._store.discharged(txn_id)

    def half(self, group: str, half_id: bytes) -> Half | None:
        """As the real store."""
        return self._store.half(group, half_id)

    def some_halves(self, group: str, half_ids: Sequence[bytes]) -> dict[bytes, Half | None]:
        """As the real store."""
        return self._store.some_halves(group, half_ids)

    def half_body(self, group: str, half_id: bytes) -> bytes | None:
        """As the real store."""
        return self._store.half_body(group, half_id)

    def open_halves(self) -> list[Half]:
        """As the real store."""
        return self._store.open_halves()

    def halves(self, group: str, state: str | None, after: bytes, count: int) -> list[Half]:
        """As the real store."""
        return self._store.halves(group, state, after, count)

    def stream(self, queue_id: int, stream: str) -> Stream | None:
        """As the real store."""
        return self._store.stream(queue_id, stream)

    def stream_count(self) -> int:
        """See `Store`."""
        return self._store.stream_count()

    def streams(self, queue_id: int, after: str, count: int) -> list[Stream]:
        """As the real store."""
        return self._store.streams(queue_id, after, count)

    def decision(self, group: str, producer: str, epoch: int) -> Decision | None:
        """As the real store."""
        return self._store.decision(group, producer, epoch)

    def latest_decision(self, group: str, producer: str) -> Decision | None:
        """As the real store."""
        return self._store.latest_decision(group, producer)

    def decisions(self, group: str, producer: str, count: int) -> list[Decision]:
        """As the real store."""
        return self._store.decisions(group, producer, count)

    def events(self, from_seq: int, count: int) -> list[Event]:
        """As the real store."""
        return self._store.events(from_seq, count)

    def event_range(self) -> tuple[int, int]:
        """As the real store."""
        return self._store.event_range()

    @property
    def store_id(self) -> str:
        """As the real store."""
        return self._store.store_id

    def retained(self, queue_id: int) -> Retained | None:
        """As the real store."""
        return self._store.retained(queue_id)

    def read_retained(self, queue_id: int, from_offset: int, max_messages: int, max_bytes: int) -> ReadResult:
        """As the real store."""
        return self._store.read_retained(queue_id, from_offset, max_messages, max_bytes)

    def offset_at(self, queue_id: int, at_ms: int) -> int:
        """As the real store."""
        return self._store.offset_at(queue_id, at_ms)

    def cursors(self, name: str) -> list[Cursor]:
        """As the real store."""
        return self._store.cursors(name)

    def cursor_names(self, after: str, count: int) -> list[str]:
        """As the real store."""
        return self._store.cursor_names(after, count)

    def idle(self, now: float) -> bool:
        """As the real store."""
        return self._store.idle(now)

    @property
    def kept_bytes(self) -> int:
        """As the real store."""
        return self._store.kept_bytes

    @property
    def checkpoint_due(self) -> bool:
        """As the real store."""
        return self._store.checkpoint_due

    @property
    def space(self) -> SpaceState:
        """As the real store."""
        return self._store.space

    def close(self) -> None:
        """As the real store."""
        self._store.close()
