"""A seam for a feature that looks on: it is told what becomes of messages, run by run, and changes nothing.

    came --> stored | refused          a client posted them; in a transaction they wait for its discharge
    sent                               a consumer got them
    outcome --> stored | refused       it said what becomes of them
    committed ... told                 around the calls of `stored` and `refused` of one commit

The writer has the one that there is (`Writer.watcher`). What is called must not raise: a fault of who looks
on is none of the message's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from amqp_broker.persistence import Record
    from amqp_broker.queue import Consumer, Queue


class Watcher:
    """Here nobody looks on."""

    __slots__ = ()

    def came(self, queue: Queue, records: Sequence[Record]) -> None:
        """A client posts these, of which at least one has message-annotations or application-properties."""

    def sent(self, consumer: Consumer, records: Sequence[Record], count: int) -> None:
        """The first `count` of these were sent, to a consumer that takes what it gets."""

    def outcome(self, consumer: Consumer, deliveries: Sequence[Any], outcome: object, waits: bool) -> None:
        """The receiver said what becomes of these; `waits`: its transaction has to be discharged first."""

    def stored(self, records: Sequence[Record]) -> None:
        """What was said of these last holds: the commit has returned, where there is one."""

    def refused(self, records: Sequence[Record], why: object) -> None:
        """It does not happen; `why` is an exception, or the error that the peer is told."""

    def committed(self, seconds: float, operations: int) -> None:
        """A commit took so long, and so many operations are told next."""

    def told(self) -> None:
        """The operations of the last group were told."""

    def counts(self) -> Mapping[str, int]:
        """What it has to tell of itself, for the metrics."""
        return {}


UNWATCHED: Final = Watcher()
