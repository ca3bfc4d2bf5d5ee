"""A store whose commits go through a script of faults; everything else is the real store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from amqp_broker.persistence import Question, Recovered, SpaceState, Store, Unit

if TYPE_CHECKING:
    from amqp_broker.testing.scripted_faults import ScriptedFaults

T = TypeVar("T")


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

    def ask(self, question: Question[T]) -> T:
        """As the real store."""
        return self._store.ask(question)

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
