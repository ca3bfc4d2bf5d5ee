"""How many lines of one kind a peer may cause: beyond it they are counted, and the count is one line.

A kind is the name of an event; a peer is its address, whatever its port. Events without a peer are one
peer's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import attrs

from amqp_broker.configuration_limits import DEFAULT_LIMITS
from amqp_broker.host_names import counted_address

WINDOW_S: Final = 60.0
KINDS_MAX: Final = 4_096
"""Of pairs of kind and peer that are counted; the oldest is told and forgotten."""


@attrs.frozen
class Suppressed:
    """Lines of one kind and peer that were not written, and how many."""

    level: str
    event: str
    host: str
    count: int


@attrs.define
class _Window:
    level: str
    host: str
    begun: float
    written: int = 0
    suppressed: int = 0


class LineRates:
    """Counts lines in windows of a minute, each begun by the first line of its kind and peer."""

    def __init__(
        self, lines: int = DEFAULT_LIMITS.log_lines_per_minute, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lines = lines
        self._clock = clock
        # In the order in which they began.
        self._windows: dict[tuple[str, str], _Window] = {}

    def admit(self, level: str, event: str, peer: object) -> bool:
        """Whether the line is written; it is counted."""
        host = _host(peer)
        key = (event, counted_address(host))
        window = self._windows.get(key)
        if window is None:
            window = self._windows[key] = _Window(level, host, self._clock())
        if window.written >= self._lines:
            window.suppressed += 1
            return False
        window.written += 1
        return True

    def over(self, everything: bool = False) -> list[Suppressed]:
        """What was suppressed in the windows that are over, or in all; ask before each line."""
        suppressed: list[Suppressed] = []
        windows = self._windows
        now = self._clock()
        while windows:
            key = next(iter(windows))
            window = windows[key]
            if not everything and len(windows) < KINDS_MAX and now - window.begun < WINDOW_S:
                break
            del windows[key]
            if window.suppressed:
                suppressed.append(Suppressed(window.level, key[0], window.host, window.suppressed))
        return suppressed


def _host(peer: object) -> str:
    """The host of `host:port`."""
    if not isinstance(peer, str):
        return ""
    host, colon, port = peer.rpartition(":")
    return host if colon and port.isdecimal() else peer
