"""What others want done in a connection's turns: calls that wait for the next one.

other tasks, the writer --post--> Mailbox --read, in the connection's turn--> handler(first, second)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Mail = tuple[Callable[..., None], Any, Any]


def nobody() -> None:
    """Whom to wake where there are no turns any more."""


class Mailbox:
    """The calls that wait for one connection; `wake` has it take a turn."""

    __slots__ = ("_closed", "_mail", "_wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._mail: list[Mail] = []
        self._closed = False

    def __bool__(self) -> bool:
        return bool(self._mail)

    def post(self, handler: Callable[..., None], first: Any = None, second: Any = None) -> None:
        """Have `handler(first, second)` called in the connection's next turn."""
        if self._closed:
            handler(first, second)  # the engine is dead; what a commit still does to queues has to be done
            return
        self._mail.append((handler, first, second))
        self._wake()

    def read(self) -> None:
        """Call everything that waits, also what that leads to. Where one of them raises, the rest stays."""
        while self._mail:
            mail, self._mail = self._mail, []
            called = 0
            try:
                for handler, first, second in mail:
                    called += 1
                    handler(first, second)
            finally:
                if called < len(mail):
                    self._mail = mail[called:] + self._mail

    def close(self) -> None:
        """There are no turns any more: what waits and what comes is called at once. Raises the first of what
        they raise when all of them were called.
        """
        self._closed = True
        self._wake = nobody
        raised: Exception | None = None
        while self._mail:
            try:
                self.read()
            except Exception as error:
                raised = raised or error
        if raised is not None:
            raise raised
