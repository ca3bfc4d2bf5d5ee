"""What the engine allows a peer, each as a number with its unit and reason, and the two counters that enforce
sums.

The defaults are those of the limits table (reliability.md); every one can be configured.
"""

from typing import Final

import attrs

MIN_MAX_FRAME_SIZE: Final = 512  # 2.8.19; also the largest SASL frame (5.3.1)
MEBIBYTE: Final = 1_048_576


@attrs.frozen
class Limits:
    """Bounds of one connection."""

    header_timeout_s: float = 2.0
    """The time from accept to a complete protocol header."""
    open_timeout_s: float = 10.0
    """The time from accept to `open`, whatever arrives in between."""
    close_timeout_s: float = 5.0
    """How long a peer's `close` is waited for after ours (2.4.3)."""
    outcome_wait_s: float = 2.0
    """How long the answer to a peer's detach or end waits for the outcomes of what it sent before."""
    sasl_frame_size: int = MIN_MAX_FRAME_SIZE
    """Octets of a SASL frame, theirs and ours. The standard has 512 (5.3.1), for which bearer tokens are
    too long.
    """
    frame_size_before_open: int = 8_192
    frames_before_open: int = 8
    """Protocol headers not counted; SASL takes 2 or 3, `open` one."""
    bytes_before_open: int = 16_384
    """Waiting unread, from all that comes before `open`."""
    links_per_session: int = 4_096
    links_per_connection: int = 16_384
    """The links in all sessions of a connection: what full tables of both would come to fits no memory."""
    unsettled_per_link: int = 2_048
    unsettled_per_session: int = 5_000
    """The incoming-window, too: frames that are neither settled nor processed never exceed it."""
    control_operations_per_s: float = 2_000.0
    """begin, attach, detach and end: what makes the broker build or tear down something. Who wants more is
    read slower.
    """
    control_operations_burst: int = 8_000
    """A client that comes back restores its sessions and links: 4,000 of them without a pause."""
    output_bytes: int = 262_144
    """Waiting output beyond which `send` takes nothing."""
    partial_idle_s: float = 60.0
    """A delivery of several transfers that does not go on for so long is detached."""
    partial_total_s: float = 600.0
    """A delivery that is not complete so long after its first transfer is detached, however often it goes on.
    """
    max_message_bytes: int = 16 * MEBIBYTE
    """Unless the link's attach says less."""
    min_idle_time_out_ms: int = 1_000
    """A peer that wants to hear from us more often is refused."""

    def __attrs_post_init__(self) -> None:
        assert MIN_MAX_FRAME_SIZE <= self.frame_size_before_open <= self.bytes_before_open
        assert self.header_timeout_s <= self.open_timeout_s
        assert 0 < self.unsettled_per_link <= self.unsettled_per_session
        assert 0 < self.links_per_session <= self.links_per_connection
        assert self.partial_idle_s <= self.partial_total_s


class PartialBytes:
    """Bytes of incomplete deliveries in the whole process; all connections share one of these."""

    __slots__ = ("limit_bytes", "used_bytes")

    def __init__(self, limit_bytes: int = 256 * MEBIBYTE) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    def take(self, count: int) -> bool:
        """True when `count` more bytes fit; only then they count."""
        if self.used_bytes + count > self.limit_bytes:
            return False
        self.used_bytes += count
        return True

    def give_back(self, count: int) -> None:
        """The delivery is complete, aborted or dropped."""
        assert count <= self.used_bytes, "more partial bytes given back than were taken"
        self.used_bytes -= count


PAUSE_S: Final = 0.05
"""How long reading stops when a rate is used up: short for the peer, and few turns for us."""


class OperationRate:
    """A token bucket: `burst` operations at once, `per_second` in the long run. Nothing is refused: who is
    too quick is told how long to wait before the next.
    """

    __slots__ = ("_burst", "_per_second", "_tokens", "_at")

    def __init__(self, per_second: float, burst: int, now: float) -> None:
        self._burst = float(burst)
        self._per_second = per_second
        self._tokens = float(burst)
        self._at = now

    def take(self, now: float) -> float:
        """Counts one operation at `now`; the seconds to wait before the next, 0 for none."""
        self._refill(now)
        self._tokens -= 1.0
        if self._tokens >= 0.0:
            return 0.0
        return max(PAUSE_S, -self._tokens / self._per_second)

    def idle(self, now: float) -> bool:
        """Whether it stands as a new one does."""
        self._refill(now)
        return self._tokens >= self._burst

    def _refill(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_second)
            self._at = now
