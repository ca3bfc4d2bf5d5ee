"""In order and exactly once (`sequences`): what becomes of a message of a sequenced stream, as one table; and
when its sender is told.

A stream's durable position is (ID, N), at first (0, 0); a message carries (id, seq, prev). Three relations
decide:

    id    to ID:       LOWER, SAME or HIGHER
    seq   to reached:  what of the message's id is known to have been accepted (N; for a former id what is
                       remembered of it; for a new one 0): AFTER it or not
    prev  to expected: what has to be the last accepted one before it (N; for a new id 0): BELOW, AT, ABOVE

The rows are numbered as in the design page; row 0, a malformed message, is `valid`. The position moves on
acceptance only: the source's last sentence, taken literally, breaks exactly-once in 2,930 of the 5,460
arrival orders of up to six messages from a stream of four (tests/coordinator).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import attrs

REMEMBERED_IDS: Final = 8  # former ids of a stream with their final numbers, for late duplicates
SEQ_ID_MAX: Final = 2**64 - 1
SEQ_NO_MAX: Final = 2**32 - 1
ORDER_DEBOUNCE_MS: Final = 0
ORDER_MAX_DELAY_MS: Final = 100  # MSMQ's MaximumOrderAckDelay is 10 s
FLUSH_PART: Final = 4  # credit or window below a quarter: nobody is kept waiting for room


class IdRelation(Enum):
    """How a message's id stands to the id of its stream."""

    LOWER = "lower"
    SAME = "same"
    HIGHER = "higher"


class PrevRelation(Enum):
    """How a message's prev stands to the number that has to be the last accepted one."""

    BELOW = "below"
    AT = "at"
    ABOVE = "above"


class SequenceAnswer(Enum):
    """What the sender is told; the values of the refusals are the wire's conditions."""

    ACCEPT = "accept"
    DUPLICATE = "duplicate"
    """Accepted, and discarded: it is there already."""
    GAP = "seq:gap"
    STALE = "seq:stale"


_L: Final = IdRelation.LOWER
_S: Final = IdRelation.SAME
_H: Final = IdRelation.HIGHER
_P: Final = PrevRelation
_A: Final = SequenceAnswer
Row = tuple[int, SequenceAnswer]

# (id, seq is after what was reached, prev): (row of the page, answer). None can't be: for a new id nothing
# was reached or expected yet, so that seq is after it and prev not below.
SEQUENCE_TABLE: Final[dict[tuple[IdRelation, bool, PrevRelation], Row | None]] = {
    (_S, True, _P.AT): (1, _A.ACCEPT),
    (_S, True, _P.BELOW): (2, _A.ACCEPT),
    (_S, True, _P.ABOVE): (3, _A.GAP),
    (_S, False, _P.BELOW): (4, _A.DUPLICATE),
    (_S, False, _P.AT): (5, _A.DUPLICATE),
    (_S, False, _P.ABOVE): (5, _A.DUPLICATE),
    (_H, True, _P.AT): (6, _A.ACCEPT),
    (_H, True, _P.ABOVE): (7, _A.GAP),
    (_H, True, _P.BELOW): None,
    (_H, False, _P.BELOW): None,
    (_H, False, _P.AT): None,
    (_H, False, _P.ABOVE): None,
    (_L, True, _P.BELOW): (8, _A.STALE),
    (_L, True, _P.AT): (8, _A.STALE),
    (_L, True, _P.ABOVE): (8, _A.STALE),
    (_L, False, _P.BELOW): (8, _A.DUPLICATE),
    (_L, False, _P.AT): (8, _A.DUPLICATE),
    (_L, False, _P.ABOVE): (8, _A.DUPLICATE),
}


@attrs.frozen
class Numbering:
    """What a message says of its place: `seq_id` is a sequence of its stream, `seq_no` its number there,
    `seq_prev` the number of the one before it (0: it is the first).
    """

    seq_id: int
    seq_no: int
    seq_prev: int

    def problem(self) -> str | None:
        """What is wrong with the numbering (row 0 of the table), or None."""
        if not 0 < self.seq_id <= SEQ_ID_MAX:
            return f"expected a seq id from 1 to {SEQ_ID_MAX}, got {self.seq_id}"
        if not 0 < self.seq_no <= SEQ_NO_MAX:
            return f"expected a seq number from 1 to {SEQ_NO_MAX}, got {self.seq_no}"
        if not 0 <= self.seq_prev < self.seq_no:
            return f"expected a seq prev from 0 to below the number {self.seq_no}, got {self.seq_prev}"
        return None


@attrs.frozen
class StreamPosition:
    """The last accepted (id, number) of a stream, and of its former ids, the oldest first, their last
    numbers.
    """

    seq_id: int = 0
    seq_no: int = 0
    former: tuple[tuple[int, int], ...] = ()

    def reached(self, seq_id: int) -> int:
        """The last number of this id that was accepted, as far as it is remembered; else 0."""
        if seq_id == self.seq_id:
            return self.seq_no
        for former_id, last in self.former:
            if former_id == seq_id:
                return last
        return 0

    def after(self, numbering: Numbering) -> StreamPosition:
        """The position of the stream once the message is accepted."""
        former = self.former
        if numbering.seq_id != self.seq_id and self.seq_id:
            former = (*former, (self.seq_id, self.seq_no))[-REMEMBERED_IDS:]
        return StreamPosition(numbering.seq_id, numbering.seq_no, former)


def judge(position: StreamPosition, numbering: Numbering) -> Row:
    """The answer to a valid numbering (its `problem` is None), from the table."""
    seq_id = numbering.seq_id
    relation = _S if seq_id == position.seq_id else _H if seq_id > position.seq_id else _L
    expected = position.seq_no if relation is _S else 0
    prev = numbering.seq_prev
    prev_relation = _P.AT if prev == expected else _P.BELOW if prev < expected else _P.ABOVE
    after = numbering.seq_no > position.reached(seq_id)
    row = SEQUENCE_TABLE[relation, after, prev_relation]
    assert row is not None, f"{numbering!r} at {position!r}"
    return row


def accept(position: StreamPosition, numbering: Numbering) -> tuple[SequenceAnswer, StreamPosition]:
    """The answer, and the position after it: unchanged unless the message is accepted."""
    _, answer = judge(position, numbering)
    return answer, position.after(numbering) if answer is _A.ACCEPT else position


def expected_prev(position: StreamPosition, numbering: Numbering) -> int:
    """What a refused message's prev should have been: the last accepted number of its id."""
    return position.seq_no if numbering.seq_id == position.seq_id else 0


class OrderTimer:
    """When the outcomes of the streams of one link are sent: the Order Ack Send Timer (MS-MQQB 3.1.5.8.6).

        arrival, timer inactive             start it: debounce from now, at most max_delay after the last one
                                              sent, or from now if that is longer ago
        arrival, last sent less than the    restart it: debounce from now, at most max_delay after the last
          maximum ago, timer active
        arrival, timer active, else         it runs on
        expiry, or a reason to flush        send, inactive

    With a debounce of 0 everything is sent at once, after its commit. Times are seconds of the caller's
    monotonic clock.
    """

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
