"""The deadlines of a connection (2.4.5 and the limits table). Time is an argument; nothing here waits.

All times are seconds of the caller's monotonic clock.
"""

from __future__ import annotations

from enum import Enum

from amqp_broker.links.limits import Limits


class Due(Enum):
    """What a deadline asks for."""

    NOTHING = "nothing"
    HEADER = "header"
    OPEN = "open"
    IDLE = "idle"
    HEARTBEAT = "heartbeat"
    CLOSE = "close"


class Timers:
    """Knows when something is due; None is never."""

    __slots__ = ("header_at", "open_at", "close_at", "last_received", "last_sent", "receive_s", "send_s")

    def __init__(self, limits: Limits, idle_time_out_ms: int, now: float) -> None:
        self.header_at: float | None = now + limits.header_timeout_s
        self.open_at: float | None = now + limits.open_timeout_s
        self.close_at: float | None = None
        self.last_received = now
        self.last_sent = now
        # Enforced at twice the announced value: 2.4.5 asks that the announced one is half of the threshold.
        self.receive_s = idle_time_out_ms * 2 / 1000
        self.send_s = 0.0

    def remote_idle_time_out(self, milliseconds: int) -> None:
        """The peer wants a frame at least so often; we send at half of it. 0: it does not care."""
        self.send_s = milliseconds / 2000

    def next_deadline(self) -> float | None:
        """The earliest deadline."""
        if self.close_at is not None:
            return self.close_at
        if self.open_at is not None:
            return self.open_at if self.header_at is None else min(self.header_at, self.open_at)
        earliest: float | None = None
        if self.receive_s > 0:
            earliest = self.last_received + self.receive_s
        if self.send_s > 0:
            heartbeat = self.last_sent + self.send_s
            earliest = heartbeat if earliest is None else min(earliest, heartbeat)
        return earliest

    def due(self, now: float) -> Due:
        """The most serious thing that is due at `now`."""
        if self.close_at is not None:
            return Due.CLOSE if now >= self.close_at else Due.NOTHING
        if self.header_at is not None and now >= self.header_at:
            return Due.HEADER
        if self.open_at is not None:
            return Due.OPEN if now >= self.open_at else Due.NOTHING
        if self.receive_s > 0 and now >= self.last_received + self.receive_s:
            return Due.IDLE
        if self.send_s > 0 and now >= self.last_sent + self.send_s:
            return Due.HEARTBEAT
        return Due.NOTHING

    def spare(self, seconds: float) -> None:
        """The clock was moved on by so much at once: neither side was silent for this time."""
        self.last_received += seconds
        self.last_sent += seconds
        if self.header_at is not None:
            self.header_at += seconds
        if self.open_at is not None:
            self.open_at += seconds
        if self.close_at is not None:
            self.close_at += seconds

    def stop(self) -> None:
        """The connection is over."""
        self.header_at = self.open_at = self.close_at = None
        self.receive_s = self.send_s = 0.0
