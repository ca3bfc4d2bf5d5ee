"""A queue with rules about what comes into it, a kind of queue: each rule judges when the group is made, and
what it does is stored in the commit of the posting.

    Posting --number--> admit: what does not come has no offset (NOWHERE) --> offsets --> numbered
            --post_verbs--> the posts, and what the rules store --COMMIT--> make_available --> stored

An ordinary queue knows nothing of this. Half messages and sets of them are not judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from amqp_broker.compilation import mypyc_attr
from amqp_broker.counts import ACCEPTED
from amqp_broker.frames import Error
from amqp_broker.links import Account, MemoryBudget
from amqp_broker.persistence import Record, Unit, size_of
from amqp_broker.queue import Consumer, Queue, QueueLimits

MESSAGE_SIZE_EXCEEDED: Final = "amqp:link:message-size-exceeded"
NOWHERE: Final = -1  # the offset of a message that is accepted and does not come


@mypyc_attr(allow_interpreted_subclasses=True)
class ArrivalRule:
    """What a feature says of the messages that come into one queue. For each posting `begin`, then `admit`
    and `numbered`; `undo` takes back the last posting that is not undone. `stored`: all are committed.
    """

    def begin(self) -> None:
        """A posting is judged from here on. Raises Refused or NotYet, with nothing changed."""

    def admit(self, records: Sequence[Record]) -> Sequence[Record]:
        """Those of a client's messages that come; the others get the offset NOWHERE. Raises Refused or
        NotYet; then `undo` is called, too.
        """
        return records

    def numbered(self, records: Sequence[Record]) -> None:
        """Messages have their offsets, those that wait for their time in the place of those."""

    def verbs(self) -> Unit:
        """What has to be stored with the postings that are judged since the last call."""
        return []

    def events(self, now_ms: int) -> Unit:
        """What the journal tells of the last posting, beside that its messages came."""
        return []

    def undo(self) -> None:
        """The last posting that was begun does not happen."""

    def stored(self) -> None:
        """The postings that were begun are committed."""

    def retired(self, records: Sequence[Record]) -> None:
        """These have left the queue."""

    def looks_at_withheld(self) -> bool:
        """Whether `withheld` has to be told what consumers still hold after a restart."""
        return False

    def withheld(self, records: Sequence[Record]) -> None:
        """After a restart consumers still hold these."""

    def overtaken(self, offset: int) -> bool:
        """Whether a message that a consumer holds is not to be seen any more."""
        return False

    def takes_back(self, record: Record) -> bool:
        """Whether it is for the rule to make a message available again that a consumer had."""
        return False

    def kept_bytes(self) -> int:
        """The octets of memory that it has counted."""
        return 0

    def forget(self) -> None:
        """The queue is gone."""


class JudgedQueue(Queue):
    """A queue whose `rules` features fill. Since the start `duplicates` were accepted and did not come;
    `dropped` left for others that came, `replaced` for newer ones of their key. `never`: offsets of messages
    that leave with the commit that brings them. A message of more octets than `largest` never fits; 0: any
    does.
    """

    __slots__ = ("_held", "dropped", "duplicates", "held_bytes", "largest", "never", "replaced", "rules")

    def __init__(
        self, name: str, queue_id: int, limits: QueueLimits, *, persistent: bool = True,
        memory: MemoryBudget | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name, queue_id, limits, persistent=persistent, memory=memory)
        self.by_writer = True
        self.rules: list[ArrivalRule] = []
        self.duplicates = 0
        self.dropped = 0
        self.replaced = 0
        self.never: set[int] = set()
        self.largest = 0
        self.held_bytes = 0
        """The octets of what was given to consumers, and is there, or came back; counted where asked for."""
        self._held: dict[int, int] | None = None

    def counts_held(self, largest: int) -> None:
        """From now on what was held is counted; messages have at most `largest` octets."""
        self.largest = largest
        self._held = {}

    def number(self, records: Sequence[Record], container: str = "") -> None:
        """Judge the messages of a client, and give those that come their offsets."""
        self._number(records, True)

    def number_again(self, records: Sequence[Record]) -> None:
        """Messages that were posted before are none that a rule could keep out."""
        self._number(records, False)

    def _number(self, records: Sequence[Record], new: bool) -> None:
        first_offset = self.next_offset
        begun: list[ArrivalRule] = []
        try:
            for rule in self.rules:
                rule.begin()
                begun.append(rule)
                if new:
                    records = rule.admit(records)
            super().number(records)
            for rule in self.rules:
                rule.numbered(records)
        except BaseException:
            self.next_offset = first_offset
            for rule in reversed(begun):
                rule.undo()
            raise

    def unnumber(self, first_offset: int) -> None:
        """Take back the offsets of the last posting, and what the rules did."""
        for rule in reversed(self.rules):
            rule.undo()
        super().unnumber(first_offset)

    def post_verbs(self, records: Sequence[Record], durable_count: int) -> Unit:
        """The posts of what comes, and what the rules store."""
        records = coming(records)
        unit = super().post_verbs(records, sum([record.durable for record in records]))
        for rule in self.rules:
            unit = [*unit, *rule.verbs()]
        return unit

    def make_available(self, records: Sequence[Record], size: int, account: Account | None = None) -> None:
        """What comes is there, once its commit has returned."""
        for rule in self.rules:
            rule.stored()
        there = coming(records)
        self.duplicates += len(records) - len(there)
        if self.never:
            there = [record for record in there if record.due_at_ms or record.offset not in self.never]
            self.never.difference_update([record.offset for record in records if not record.due_at_ms])
        if len(there) < len(records):
            size = self.octets_of(there)
        super().make_available(there, size, account)

    # What consumers hold

    def assign(self, now_ms: int) -> list[tuple[Consumer, list[Record]]]:
        """Distribute what is loaded; what consumers get is held."""
        grants = super().assign(now_ms)
        if self._held is not None:
            for consumer, records in grants:
                if not consumer.browser:
                    self._hold(records)
        return grants

    def take_out(self, records: Sequence[Record]) -> None:
        """Remove messages from where they are: they are held."""
        super().take_out(records)
        self._hold(records)

    def looks_at_withheld(self) -> bool:
        """Where what is held is counted, or a rule has to know it."""
        counts = self._held is not None or any(rule.looks_at_withheld() for rule in self.rules)
        return counts or super().looks_at_withheld()

    def withheld(self, records: Sequence[Record]) -> None:
        """These are held."""
        super().withheld(records)
        self._hold(records)
        for rule in self.rules:
            rule.withheld(records)

    def _hold(self, records: Sequence[Record]) -> None:
        held = self._held
        if held is not None:
            for record in records:
                size = size_of(record)
                self.held_bytes += size - held.get(record.offset, 0)
                held[record.offset] = size

    def hold_no_more(self, records: Sequence[Record]) -> None:
        """Nobody has held these, or they have left the queue."""
        held = self._held
        if held:
            for record in records:
                self.held_bytes -= held.pop(record.offset, 0)

    def grew(self, record: Record, size: int) -> None:
        """The body of a message, which somebody holds, has `size` bytes more than it had."""
        super().grew(record, size)
        held = self._held
        if held and record.offset in held:
            held[record.offset] += size
            self.held_bytes += size

    def _put_back(self, record: Record) -> None:
        for rule in self.rules:
            if rule.takes_back(record):
                return
        super()._put_back(record)

    def in_sight(self, start: int, end: int) -> list[Record]:
        """What browsers see although nobody can have it now, but for what is overtaken."""
        seen = super().in_sight(start, end)
        for rule in self.rules:
            seen = [record for record in seen if not rule.overtaken(record.offset)]
        return seen

    def retire(self, records: Sequence[Record], why: int = ACCEPTED, *, cached: bool = True) -> None:
        """Messages left the queue for good, which its rules hear, too."""
        super().retire(records, why, cached=cached)
        self.hold_no_more(records)
        for rule in self.rules:
            rule.retired(records)

    def forget(self) -> None:
        """The queue is gone, with what its rules keep."""
        super().forget()
        for rule in self.rules:
            rule.forget()


def too_large_error(name: str, largest: int) -> Error:
    """The error for the sender of a message that is larger than all that may wait in a queue."""
    described = f"queue {name!r} takes messages of at most {largest} octets (ring_bytes, of its [[queue]])"
    return Error(condition=MESSAGE_SIZE_EXCEEDED, description=described)


def coming(records: Sequence[Record]) -> Sequence[Record]:
    """Those of judged messages that come."""
    return [record for record in records if record.offset != NOWHERE]
