"""The sender's side of a sequenced stream, for any AMQP 1.0 client: which numbers a message gets, what is
sent again, and when.

    outbox = Outbox("orders of shop 7")
    outbox.attached(reply["seq-id"], reply["seq-no"])     # of an attach with the link property seq-stream
    outbox.put(b"first"); outbox.put(b"second")
    for sending in outbox.next():                         # in order; also what has to be sent again
        client.send(sending.message, annotations=sending.annotations(), ...)
    outbox.accepted(sending) / outbox.refused(sending, condition)      # its outcome
    outbox.lost()                                         # the link is gone: `attached` comes again

A client that cannot read the attach reply (JMS) makes it with an id of its own, higher than any before, and
never calls `attached`: what the broker has already is accepted once more and discarded.

One link at a time: a sender that goes on while its former connection may still deliver keeps its id, whose
duplicates are known. Nothing here waits, sends, or knows the time. Messages may be of any kind.
"""

from __future__ import annotations

from typing import Any, Final

from amqp_broker.coordinator.sequences import SEQ_ID_MAX, SEQ_NO_MAX
from amqp_broker.frames import Int, Long, Symbol, Uint, Ulong

GAP: Final = "seq:gap"
STALE: Final = "seq:stale"
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1


class OutboxError(Exception):
    """Base of what an outbox refuses."""


class StreamTaken(OutboxError):
    """Another sender goes on with the stream, under a higher id: nothing of this one is accepted any more."""


class Unacknowledged(OutboxError):
    """A new id while messages of the old one may have been accepted, or be on their way: they would be lost,
    or there twice.
    """


class NumbersUsedUp(OutboxError):
    """The id has no numbers left; begin a new one when everything is acknowledged."""


class Sending:
    """One message with its place, as it is sent once. `message` is what was put."""

    __slots__ = ("_round", "message", "seq_id", "seq_no", "seq_prev", "stream")

    def __init__(
        self, stream: str, seq_id: int, seq_no: int, seq_prev: int, message: Any, round_: int
    ) -> None:
        self.stream = stream
        self.seq_id = seq_id
        self.seq_no = seq_no
        self.seq_prev = seq_prev
        self.message = message
        self._round = round_

    def __repr__(self) -> str:
        return f"<Sending {self.stream!r} {self.seq_id}.{self.seq_no} behind {self.seq_prev}>"

    def annotations(self) -> dict[Symbol, Any]:
        """The place as message annotations."""
        return {
            Symbol("x-opt-seq-stream"): self.stream,
            Symbol("x-opt-seq-id"): Ulong(self.seq_id),
            Symbol("x-opt-seq-no"): Uint(self.seq_no),
            Symbol("x-opt-seq-prev"): Uint(self.seq_prev),
        }

    def application_properties(self) -> dict[str, Any]:
        """The place as application properties, in types that Java has too, as far as they reach."""
        return {
            "seq_stream": self.stream,
            "seq_id": Long(self.seq_id) if self.seq_id <= _LONG_MAX else Ulong(self.seq_id),
            "seq_no": _java_int(self.seq_no),
            "seq_prev": _java_int(self.seq_prev),
        }


class _Waiting:
    """A message that is not acknowledged."""

    __slots__ = ("message", "prev", "sent")

    def __init__(self, message: Any, prev: int) -> None:
        self.message = message
        self.prev = prev
        self.sent = False  # in this round


class Outbox:
    """The messages of one stream that are not acknowledged, in order.

    `seq_id` 0: the id follows the one that the first `attached` tells.
    """

    def __init__(self, stream: str, seq_id: int = 0) -> None:
        self.stream = stream
        self._check_id(seq_id, 0)
        self.seq_id = seq_id
        self._waiting: dict[int, _Waiting] = {}
        self._last = 0  # the number that was given last
        self._before = 0  # the prev of the next message
        self._round = 0  # refusals of what was sent before the last going back are old news
        self._uncertain = False  # something was sent whose outcome may never come

    def __len__(self) -> int:
        """How many messages are not acknowledged."""
        return len(self._waiting)

    @property
    def unacknowledged(self) -> list[Any]:
        """The messages that are not acknowledged, in order."""
        return [waiting.message for waiting in self._waiting.values()]

    # Messages

    def put(self, message: Any) -> int:
        """Add a message; returns its number. Raises NumbersUsedUp."""
        if self._last >= SEQ_NO_MAX:
            raise NumbersUsedUp(f"id {self.seq_id} of stream {self.stream!r} has given all its numbers")
        self._last += 1
        self._waiting[self._last] = _Waiting(message, self._before)
        self._before = self._last
        return self._last

    def drop(self, number: int) -> None:
        """Give a message up: the next one is chained over it. It may be there already, or never will be."""
        dropped = self._waiting.pop(number, None)
        if dropped is None:
            return
        following = next((at for at in self._waiting if at > number), None)
        if following is None:
            self._before = dropped.prev
        else:
            self._waiting[following].prev = dropped.prev
        self._go_back()

    # Sending

    def next(self, most: int | None = None) -> list[Sending]:
        """What to send now, at most so many, in order; each is in exactly one answer until the outbox goes
        back. Empty as long as the id is not known.
        """
        if not self.seq_id:
            return []
        sendings: list[Sending] = []
        for number, waiting in self._waiting.items():
            if most is not None and len(sendings) >= most:
                break
            if not waiting.sent:
                waiting.sent = True
                sendings.append(
                    Sending(self.stream, self.seq_id, number, waiting.prev, waiting.message, self._round)
                )
        self._uncertain = self._uncertain or bool(sendings)
        return sendings

    def accepted(self, sending: Sending) -> None:
        """Its outcome: the message is there, or was before."""
        if sending.seq_id == self.seq_id:
            self._waiting.pop(sending.seq_no, None)

    def refused(self, sending: Sending, condition: str) -> None:
        """Its outcome is another one: the message is not there, and nothing behind it will be. It is sent
        again with everything behind it, in order, by `next`: at once for a gap; for another condition (no
        room, no right) when the caller thinks that this has changed, unless it drops the message.

        Raises StreamTaken where a higher id has begun.
        """
        if sending.seq_id != self.seq_id:
            return
        if condition == STALE:
            raise StreamTaken(f"stream {self.stream!r} goes on under a higher id than {self.seq_id}")
        if sending._round == self._round:
            self._go_back()

    def _go_back(self) -> None:
        self._round += 1
        for waiting in self._waiting.values():
            waiting.sent = False

    # Links and ids

    def lost(self) -> None:
        """The link is gone, and with it the outcomes that were under way: what is not acknowledged is sent
        again on the next one.
        """
        self._go_back()

    def attached(self, seq_id: int, seq_no: int) -> None:
        """A new link says where the stream stands: what is there is acknowledged. Raises StreamTaken."""
        if not self.seq_id:
            self._check_id(seq_id + 1, 1)
            self.seq_id = seq_id + 1
        elif seq_id > self.seq_id:
            raise StreamTaken(f"stream {self.stream!r} is at id {seq_id}, above {self.seq_id}")
        elif seq_id == self.seq_id:
            for number in [number for number in self._waiting if number <= seq_no]:
                del self._waiting[number]
        self._uncertain = False
        self._go_back()

    def new_id(self, seq_id: int = 0) -> None:
        """Go on under a higher id (the next one for 0), with numbers from 1.

        Where nothing of the old id was sent since `attached`, what is not acknowledged is known not to be
        there: it is sent again under the new id. Else everything has to be acknowledged. Raises
        Unacknowledged.
        """
        if self._waiting and self._uncertain:
            raise Unacknowledged(
                f"{len(self._waiting)} messages of id {self.seq_id} of stream {self.stream!r} are not "
                "acknowledged: attach again to know which of them are there, or wait for their outcomes"
            )
        seq_id = seq_id or self.seq_id + 1
        self._check_id(seq_id, self.seq_id + 1)
        messages = self.unacknowledged
        self.seq_id = seq_id
        self._waiting.clear()
        self._last = self._before = 0
        self._go_back()
        for message in messages:
            self.put(message)

    def _check_id(self, seq_id: int, lowest: int) -> None:
        if not lowest <= seq_id <= SEQ_ID_MAX:
            raise ValueError(f"expected an id from {lowest} to {SEQ_ID_MAX}, got {seq_id}")


def _java_int(number: int) -> Int | Long:
    """JMS has signed types only; the broker takes any."""
    return Int(number) if number <= _INT_MAX else Long(number)
