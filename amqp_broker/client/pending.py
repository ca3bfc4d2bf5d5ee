"""What a client waits for: an answer that comes with a later read, or never."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from amqp_broker.client.errors import ClientError

T = TypeVar("T")


class Pending(Generic[T]):
    """An answer that is not here yet. `what` says in words what is expected.

    The core ends it, once: with a value or with an error. `waiter` is the shell's: what it waits at. A
    pending that ends is told by `ClientCore.take_finished` only when it has one.
    """

    __slots__ = ("_error", "_finished", "_give_up", "_value", "done", "waiter", "what")

    def __init__(
        self, what: str, finished: list[Pending[Any]], give_up: Callable[[], str] | None = None
    ) -> None:
        self.what = what
        self.done = False
        self.waiter: Any = None
        self._value: Any = None
        self._error: ClientError | None = None
        self._finished = finished
        self._give_up = give_up

    def __repr__(self) -> str:
        return f"<Pending {self.what} {'done' if self.done else 'waits'}>"

    def finish(self, value: T) -> None:
        """The answer is here. Nothing happens when it is done already."""
        self._end(value, None)

    def fail(self, error: ClientError) -> None:
        """The answer will not come. Nothing happens when it is done already."""
        self._end(None, error)

    def result(self) -> T:
        """The value; raises the error. Only to be called when `done`."""
        assert self.done, f"{self!r} was asked for its result"
        if self._error is not None:
            raise self._error
        value: T = self._value
        return value

    def give_up(self) -> str:
        """The caller does not wait any longer: undoes what can be undone. What became of it, in words."""
        return "" if self._give_up is None else self._give_up()

    def _end(self, value: Any, error: ClientError | None) -> None:
        if self.done:
            return
        self.done = True
        self._value = value
        self._error = error
        if self.waiter is not None:
            self._finished.append(self)
