"""When the outcomes of a stream's messages are sent: the Order Ack Send Timer (MS-MQQB 3.1.5.8.6).

    arrival, timer inactive               start it: debounce from now, at most max_delay after the last one
                                            sent, or from now if that is longer ago
    arrival, last sent less than the      restart it: debounce from now, at most max_delay after the last
      maximum ago, timer active
    arrival, timer active, else           it runs on
    expiry, or a reason to flush          send, inactive

With a debounce of 0 everything is sent at once, after its commit.
"""

from __future__ import annotations

from typing import Final

ORDER_DEBOUNCE_MS: Final = 0
ORDER_MAX_DELAY_MS: Final = 100  # MSMQ's MaximumOrderAckDelay is 10 s
FLUSH_PART: Final = 4  # credit or window below a quarter: nobody is kept waiting for room


class OrderTimer:
    """When the outcomes of one link are sent. Times are seconds of the caller's monotonic clock."""

    __slots__ = ("_debounce_s", "_last_sent", "_max_delay_s", "deadline")

    def __init__(self, debounce_ms: int, max_delay_ms: int) -> None:
        self._debounce_s = debounce_ms / 1000
        self._max_delay_s = max_delay_ms / 1000
        self._last_sent = float("-inf")
        self.deadline: float | None = None

    def arrived(self, now: float) -> bool:
        """A message of a stream arrived, and its outcome is known; True when it is to be sent at once."""
        if self._debounce_s <= 0:
            return True
        recently = now - self._last_sent < self._max_delay_s
        if recently:
            self.deadline = min(now + self._debounce_s, self._last_sent + self._max_delay_s)
        elif self.deadline is None:
            self.deadline = now + min(self._debounce_s, self._max_delay_s)
        return now >= self.deadline

    def sent(self, now: float) -> None:
        """All outcomes that waited were sent."""
        self._last_sent = now
        self.deadline = None
