"""When a message comes and when it expires, as its sender says beside the ttl.

    x-opt-delivery-time    message-annotation: comes then, by the clock on the wall
    x-opt-delivery-delay   message-annotation: comes so many milliseconds after the broker took it
    absolute-expiry-time   property (3.2.4): expires then, by the clock on the wall

What names a time of the clock on the wall is read once, when the message comes, as a time of the broker's own
clock. From then on elapsed time counts, and no jump makes anything early.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from amqp_broker.frames import DecodeError, IntegerValue, Message, Symbol
from amqp_broker.persistence import Record

TIME_KEY: Final = Symbol("x-opt-delivery-time")
DELAY_KEY: Final = Symbol("x-opt-delivery-delay")
WAIT_MS_MAX: Final = 100 * 365 * 86_400_000  # a century: nothing waits longer, and no time overflows


class DeliveryTimes:
    """Reads the times of what comes on one link. `time_of` is the broker's time of one of the clock on the
    wall. `waits`: since somebody set it back, a message came that waits for its time.
    """

    __slots__ = ("_time_of", "waits")

    def __init__(self, time_of: Callable[[int], int]) -> None:
        self._time_of = time_of
        self.waits = False

    def read(self, record: Record, now_ms: int) -> None:
        """Take the times of a message that came now. Raises DecodeError where one is none."""
        message = Message(record.body)
        annotations = message.message_annotations or {}
        due_ms = 0
        if TIME_KEY in annotations:
            due_ms = self._time_of(_milliseconds(TIME_KEY, annotations[TIME_KEY]))
        elif DELAY_KEY in annotations:
            due_ms = now_ms + _milliseconds(DELAY_KEY, annotations[DELAY_KEY])
        if due_ms > now_ms:
            if due_ms - now_ms > WAIT_MS_MAX:
                raise DecodeError(f"a message can wait for a century ({WAIT_MS_MAX} ms), not longer")
            record.due_at_ms = due_ms
            self.waits = True
        properties = message.properties
        if properties is not None and properties.absolute_expiry_time is not None:
            expires_ms = max(1, self._time_of(properties.absolute_expiry_time))
            if not record.expires_at_ms or expires_ms < record.expires_at_ms:
                record.expires_at_ms = min(expires_ms, now_ms + WAIT_MS_MAX)
                record.header_bytes = b""


def _milliseconds(key: Symbol, value: object) -> int:
    """A number of milliseconds, of any integer type or a timestamp."""
    number = value.value if isinstance(value, IntegerValue) else value
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise DecodeError(f"expected {key} as a number of milliseconds, from 0 on, got {value!r:.80}")
    return number
