"""The sets of half messages of one producer that are not decided: what is staged in each, and what the commit
of an epoch means for all of them. Pure: no clock, no I/O.

    producer --> set --> part, one for each destination: a hidden node of the store
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs

from amqp_broker.coordinator.half_checks import SET_CHECK_OUTCOMES
from amqp_broker.coordinator.half_group import OpenHalf
from amqp_broker.coordinator.half_set_table import (
    EpochInput,
    EpochState,
    SetAnswer,
    SetInput,
    SetState,
    decide_epoch,
    decide_set,
    epoch_state,
)

__all__ = [
    "CHECKSUM_MODULUS", "ELSEWHERE", "EPOCH_MAX", "EpochInput", "EpochState", "EpochVerdict", "NEVER_MS",
    "OpenSet", "ProducerSets", "SetAnswer", "SetInput", "SetPart", "SetState", "StagedSet", "Winner",
    "decide_epoch", "decide_set", "epoch_state", "judge_winners", "set_key",
]  # fmt: skip

CHECKSUM_MODULUS: Final = 1 << 64  # a set's checksum is the sum of its messages' ones, modulo this
EPOCH_MAX: Final = (1 << 63) - 1  # what a store keeps as a number
NEVER_MS: Final = (1 << 63) - 1  # the deadline of what no age ends
ELSEWHERE: Final = ""  # the destination of the part of a set whose messages are in another store


@attrs.frozen
class Winner:
    """A set that the commit of an epoch names, with what its producer staged in it."""

    set_id: str
    count: int
    checksum: int
    store: str = ""
    """Which store has its messages; empty: the one that decides."""


@attrs.define(eq=False)
class SetPart:
    """What a set stages for one destination. What is below `unread_to` was there at the start of the broker,
    and is not in `checksum` yet (0: nothing). `under_way` runs are counted, and not stored yet. `put_events`
    is for the shell: the events that name the messages (None: not read yet). `may_expire`: some may have a
    ttl.
    """

    staged: StagedSet = attrs.field(repr=False)
    destination: str
    queue_id: int
    next_offset: int = 0
    count: int = 0
    byte_count: int = 0
    checksum: int = 0
    unread_to: int = 0
    under_way: int = 0
    may_expire: bool = False
    put_events: list[Any] | None = None

    def add(self, count: int, size: int, checksum: int) -> None:
        """Messages are staged, or (negative) were not."""
        self.count += count
        self.byte_count += size
        self.checksum = (self.checksum + checksum) % CHECKSUM_MODULUS


@attrs.define(eq=False)
class StagedSet:
    """A set that is not decided, or whose decision is not stored yet.

    `store` names the one that has its messages (empty: they are here), `coordinator` the one that decides
    about it (empty: this one does). `attempts` counts unanswered questions about it, `due_ms` is when to
    ask next.
    """

    producer: ProducerSets = attrs.field(repr=False)
    set_id: str
    epoch: int
    begun_at_ms: int
    deadline_ms: int
    container_id: str
    state: SetState | None = SetState.OPEN
    end: Any = None  # the shell's: what is said of it once it is decided
    parts: dict[str, SetPart] = attrs.field(factory=dict)
    sealed: Winner | None = None
    store: str = ""
    coordinator: str = ""
    attempts: int = 0
    due_ms: int = 0

    @property
    def count(self) -> int:
        """How many messages all parts have."""
        return sum([part.count for part in self.parts.values()])

    @property
    def byte_count(self) -> int:
        """The bytes of the messages of all parts."""
        return sum([part.byte_count for part in self.parts.values()])

    @property
    def checksum(self) -> int:
        """The sum of the checksums of all parts; known unless some are `unread`."""
        return sum([part.checksum for part in self.parts.values()]) % CHECKSUM_MODULUS

    @property
    def unread(self) -> bool:
        """Whether messages from before the start of the broker have to be read first."""
        return any(part.unread_to for part in self.parts.values())

    @property
    def under_way(self) -> bool:
        """Whether an operation on the set is on its way to the store."""
        return any(part.under_way for part in self.parts.values())

    @property
    def unstored(self) -> bool:
        """Whether the store has no node of a part yet, so that no verb can name it."""
        return any(not part.queue_id for part in self.parts.values())

    def is_as(self, count: int, checksum: int) -> bool:
        """Whether the set has so many messages with this sum of checksums; a sealed one: was sealed so, and
        has all of them still.
        """
        if self.sealed is not None:
            sealed = (self.sealed.count, self.sealed.checksum)
            return (count, checksum) == sealed and self.count == self.sealed.count
        return (count, checksum) == (self.count, self.checksum)


def set_key(staged: StagedSet) -> bytes:
    """What a group knows a set by; no half-id begins like that."""
    return f"S{staged.producer.name}/{staged.set_id}".encode()


class OpenSet(OpenHalf):
    """A set that its group asks about as about a half message (half_group), until it is decided or reaches
    its maximum age: no number of unknown answers ends one.
    """

    __slots__ = ("staged",)

    outcomes = SET_CHECK_OUTCOMES
    ends_by_attempts = False

    def __init__(self, staged: StagedSet, due_ms: int) -> None:
        super().__init__(
            set_key(staged), "", b"", staged.begun_at_ms, due_ms, staged.deadline_ms, staged.container_id, 0
        )
        self.staged = staged

    @property
    def undecided(self) -> bool:
        """Whether an answer to a check-back still means something."""
        return self.staged.state not in (None, SetState.VOIDED)

    def names(self) -> dict[str, Any]:
        """What the journal calls it."""
        staged = self.staged
        return {"set_id": staged.set_id, "producer": staged.producer.name, "epoch": staged.epoch}


class ProducerSets:
    """The sets of one producer of a group that are not decided; `decided` are its epochs whose decision is
    not stored yet, each with what is to be stored.
    """

    __slots__ = ("_by_epoch", "_epochs", "decided", "group", "name", "sets")

    def __init__(self, group: str, name: str) -> None:
        self.group = group
        self.name = name
        self.sets: dict[str, StagedSet] = {}
        self.decided: dict[int, Any] = {}
        self._by_epoch: dict[int, dict[str, StagedSet]] = {}
        self._epochs: list[int] = []  # those that have sets, ascending

    def add(self, staged: StagedSet) -> None:
        """Take up a set in which somebody stages; harmless when it is there already."""
        self.sets[staged.set_id] = staged
        of_epoch = self._by_epoch.get(staged.epoch)
        if of_epoch is None:
            of_epoch = self._by_epoch[staged.epoch] = {}
            insort(self._epochs, staged.epoch)
        of_epoch[staged.set_id] = staged

    def remove(self, staged: StagedSet) -> None:
        """Drop a set that is decided, or never was stored; harmless when it is gone already."""
        if self.sets.get(staged.set_id) is not staged:
            return
        del self.sets[staged.set_id]
        of_epoch = self._by_epoch[staged.epoch]
        del of_epoch[staged.set_id]
        if not of_epoch:
            del self._by_epoch[staged.epoch]
            del self._epochs[bisect_left(self._epochs, staged.epoch)]

    def of_epoch(self, set_id: str, epoch: int) -> StagedSet | None:
        """The set of this id, if it is of this epoch."""
        found = self.sets.get(set_id)
        return found if found is not None and found.epoch == epoch else None

    def up_to(self, epoch: int) -> list[StagedSet]:
        """The sets of this epoch and of earlier ones, in the order of their epochs."""
        passed = self._epochs[: bisect_right(self._epochs, epoch)]
        return [staged for each in passed for staged in self._by_epoch[each].values()]


@attrs.frozen
class EpochVerdict:
    """What the commit of an epoch means: `answer` is DONE, or why it can't be, and which of the named sets is
    the reason, or which set is in the way. `winners` in the order named; `losers` are voided.
    """

    answer: SetAnswer
    reason: Winner | None = None
    winners: Sequence[StagedSet] = ()
    losers: Sequence[StagedSet] = ()
    in_the_way: Sequence[StagedSet] = ()


def judge_winners(
    producer: ProducerSets, epoch: int, named: Iterable[Winner], coordinator: str = ""
) -> EpochVerdict:
    """What the commit of an epoch that is ahead means, all or nothing; with `coordinator` that one decided
    it.
    """
    blocked = _judge_prepared(producer, epoch, coordinator)
    if blocked is not None:
        return blocked
    as_it_is = SetInput.APPLY_SAME if coordinator else SetInput.WIN_SAME
    winners: list[StagedSet] = []
    for winner in named:
        found = producer.of_epoch(winner.set_id, epoch)
        same = found is not None and found.is_as(winner.count, winner.checksum)
        what = as_it_is if same and found is not None and found.store == winner.store else SetInput.WIN_OTHER
        answer, _ = decide_set(None if found is None else found.state, what)
        if answer is not SetAnswer.DONE or found is None:
            return EpochVerdict(answer, winner)
        winners.append(found)
    chosen = {each.set_id for each in winners}
    losers = [each for each in producer.up_to(epoch) if each.set_id not in chosen]
    return EpochVerdict(SetAnswer.DONE, None, winners, losers)


def _judge_prepared(producer: ProducerSets, epoch: int, coordinator: str) -> EpochVerdict | None:
    """Prepared sets lose by their coordinator's vote only, and a decision says nothing of earlier epochs'."""
    prepared = [each for each in producer.up_to(epoch) if each.state is SetState.PREPARED]
    foreign = [each for each in prepared if each.coordinator != coordinator]
    if foreign:
        answer, _ = decide_set(SetState.PREPARED, SetInput.LOSE)
        return EpochVerdict(answer, in_the_way=foreign)
    earlier = [each for each in prepared if each.epoch < epoch]
    return EpochVerdict(SetAnswer.UNDECIDED, in_the_way=earlier) if earlier else None
