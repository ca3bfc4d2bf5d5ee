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
from amqp_broker.links import Account, MemoryBudget
from amqp_broker.persistence import Record, Unit
from amqp_broker.queue import Queue, QueueLimits

NOWHERE: Final = -1  # the offset of a message that is accepted and does not come


@mypyc_attr(allow_interpreted_subclasses=True)
class ArrivalRule:
    """What a feature says of the messages that come into one queue. For each posting `begin`, then `admit`
    and `numbered`; `undo` takes back the last posting that is not undone. `stored`: all are committed.
    """

    def begin(self) -> None:
        """A posting is judged from here on. Raises Refused or NotYet, with nothing changed."""

    def admit(self, records: Sequence[Record]) -> Sequence[Record]:
        """Those of a client's messages that come; the others get the offset NOWHERE."""
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

    def kept_bytes(self) -> int:
        """The octets of memory that it has counted."""
        return 0

    def forget(self) -> None:
        """The queue is gone."""


class JudgedQueue(Queue):
    """A queue whose `rules` features fill. Since the start `duplicates` were accepted and did not come, and
    `dropped` left for others that came. `never`: offsets of messages that leave with the commit that brings
    them.
    """

    __slots__ = ("dropped", "duplicates", "never", "rules")

    def __init__(
        self, name: str, queue_id: int, limits: QueueLimits, *, persistent: bool = True,
        memory: MemoryBudget | None = None,
    ) -> None:  # fmt: skip
        super().__init__(name, queue_id, limits, persistent=persistent, memory=memory)
        self.by_writer = True
        self.rules: list[ArrivalRule] = []
        self.duplicates = 0
        self.dropped = 0
        self.never: set[int] = set()

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
            size = sum([len(record.body) for record in there])
        super().make_available(there, size, account)

    def forget(self) -> None:
        """The queue is gone, with what its rules keep."""
        super().forget()
        for rule in self.rules:
            rule.forget()


def coming(records: Sequence[Record]) -> Sequence[Record]:
    """Those of judged messages that come."""
    return [record for record in records if record.offset != NOWHERE]
