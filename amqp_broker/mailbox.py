"""What others want done in a connection's turns: calls that wait for its owner.

other tasks, the writer --post--> Mailbox --read, in the owner's turn--> handler(first, second)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Mail = tuple[Callable[..., None], Any, Any]


class Mailbox:
    """The calls that wait for one owner; `wake` has it take a turn."""

    __slots__ = ("_closed", "_mail", "_wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._mail: list[Mail] = []
        self._closed = False

    def __bool__(self) -> bool:
        return bool(self._mail)

    def post(self, handler: Callable[..., None], first: Any = None, second: Any = None) -> None:
        """Have `handler(first, second)` called in the owner's next turn."""
        if self._closed:
            handler(first, second)  # the engine is dead; what a commit still does to queues has to be done
            return
        self._mail.append((handler, first, second))
        self._wake()

    def read(self) -> None:
        """Call everything that waits, also what that leads to."""
        while self._mail:
            mail, self._mail = self._mail, []
            for handler, first, second in mail:
                handler(first, second)

    def close(self) -> None:
        """There are no turns any more: what waits and what comes is called at once."""
        self._closed = True
        self.read()
