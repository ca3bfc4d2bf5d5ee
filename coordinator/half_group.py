"""One group of half messages that are not decided: who is to be asked, by whom, and when (`half-messages`:
check-back).

    put --> due heap --due, a checker has room--> asked (locked for 30 s) --outcome--> attempt --> due heap
              |                                      |                        \\--> decided
              +--------- released, lost, late <------+
    deadline heap: at the maximum age, or after the last attempt, the policy decides

Pure: times are milliseconds of the broker's clock and handed in; a checker is opaque. Only what is open
is here; what is decided is a tombstone in the store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import Any, ClassVar, Final

import attrs

from amqp_broker.coordinator.half_checks import CHECK_OUTCOMES, CheckEffect, CheckGiven
from amqp_broker.coordinator.half_ids import shown_half_id
from amqp_broker.coordinator.half_states import HalfState

FIRST_CHECK_MS: Final = 6_000  # RocketMQ's transactionTimeOut
MAX_AGE_MS: Final = 4 * 3_600_000
RETRY_MS: Final = 30_000  # after the first attempt; doubled after each
RETRY_MAX_MS: Final = 600_000
DOUBLINGS_MAX: Final = 40  # from then on it is the longest wait whatever the settings say
MAX_ATTEMPTS: Final = 15  # unknown answers
LOCK_MS: Final = 30_000  # how long one checker has for its outcome
RETURNED_MS: Final = 1_000  # until a check that was not asked is offered to another link
EVERYTHING: Final = 1 << 62
STALE_ENTRIES: Final = 1_000  # of a table of times that nothing open has any more, until it is tidied
MAX_PENDING: Final = 10_000  # half messages of one group that are not decided
TOMBSTONE_MS: Final = 7 * 24 * 3_600_000  # how long a decision is remembered
ROLLBACK_POLICY: Final = "rollback"
PARK_POLICY: Final = "park"

assert RETRY_MS <= RETRY_MAX_MS, "the schedule grows"
assert FIRST_CHECK_MS < MAX_AGE_MS, "who is to be asked is asked before the end"

Outcomes = dict[bool, dict[CheckGiven, tuple[CheckEffect, bool]]]


@attrs.frozen
class HalfSettings:
    """How one group is asked; milliseconds and counts."""

    first_check_ms: int = FIRST_CHECK_MS
    max_age_ms: int = MAX_AGE_MS
    retry_ms: int = RETRY_MS
    retry_max_ms: int = RETRY_MAX_MS
    max_attempts: int = MAX_ATTEMPTS
    lock_ms: int = LOCK_MS
    max_pending: int = MAX_PENDING
    tombstone_ms: int = TOMBSTONE_MS
    policy: str = ROLLBACK_POLICY


@attrs.frozen
class Asked:
    """Where a half message stands, and how it was asked about: what `become` gives back."""

    state: HalfState
    attempts: int
    due_ms: int
    deadline_ms: int
    asked_last: Checker | None
    asked_container: str
    excluded: frozenset[Checker]
    resolved_at_ms: int
    resolver: str


class OpenHalf:
    """A half message that is not decided, or whose decision is not stored yet. `attempts` are answers that
    left it unknown.
    """

    outcomes: ClassVar[Outcomes] = CHECK_OUTCOMES
    ends_by_attempts: ClassVar[bool] = True

    __slots__ = (
        "answering", "asked_by", "asked_container", "asked_last", "attempts", "changes", "container_id",
        "deadline_ms", "destination", "digest", "due_ms", "excluded", "half_id", "locked_until_ms",
        "message_format", "priority", "put_at_ms", "resolved_at_ms", "resolver", "size_bytes", "state",
        "ttl_ms",
    )  # fmt: skip

    def __init__(
        self, half_id: bytes, destination: str, digest: bytes, put_at_ms: int, due_ms: int, deadline_ms: int,
        container_id: str, size_bytes: int, attempts: int = 0, state: HalfState = HalfState.PREPARED,
    ) -> None:  # fmt: skip
        self.half_id = half_id
        self.destination = destination
        self.digest = digest
        self.put_at_ms = put_at_ms
        self.due_ms = due_ms
        self.deadline_ms = deadline_ms
        self.container_id = container_id
        self.size_bytes = size_bytes
        self.attempts = attempts
        self.state = state
        self.asked_by: Checker | None = None
        self.asked_last: Checker | None = None
        self.asked_container = ""  # that was sent a check last, unless it said that it was not asked
        self.locked_until_ms = 0
        self.answering: Checker | None = None  # its answer is on its way to the store
        self.changes = 0  # of it, in the group that is being stored
        self.resolved_at_ms = 0  # decided in that group
        self.resolver = ""
        self.message_format = 0
        self.priority = 4
        self.ttl_ms = 0  # from its commit on; 0 is for ever
        self.excluded: set[Checker] = set()

    def asked(self) -> Asked:
        """What a change of it may change, to be given back to `become`."""
        return Asked(
            self.state, self.attempts, self.due_ms, self.deadline_ms, self.asked_last, self.asked_container,
            frozenset(self.excluded), self.resolved_at_ms, self.resolver,
        )  # fmt: skip

    def become(self, before: Asked) -> None:
        """Become what it was when `asked` was called."""
        self.state, self.attempts = before.state, before.attempts
        self.due_ms, self.deadline_ms = before.due_ms, before.deadline_ms
        self.asked_last, self.asked_container = before.asked_last, before.asked_container
        self.excluded = set(before.excluded)
        self.resolved_at_ms, self.resolver = before.resolved_at_ms, before.resolver

    @property
    def undecided(self) -> bool:
        """Whether an answer to a check-back still means something."""
        return self.state is HalfState.PREPARED

    def names(self) -> dict[str, Any]:
        """What the journal calls it."""
        return {"half_id": shown_half_id(self.half_id)}

    def age_ms(self, now_ms: int) -> int:
        """The time since it was stored, by the broker's clock."""
        return max(0, now_ms - self.put_at_ms)


@attrs.define(eq=False)
class Checker:
    """One link on which the group asks; `demand` is how many check-backs it could be sent now."""

    source: Any
    link: Any
    container_id: str
    by_outcome: bool
    demand: int = 0


@attrs.define(eq=False)
class HalfGroup:
    """The open half messages of one producer group and those who are asked about them."""

    name: str
    settings: HalfSettings
    open: dict[bytes, OpenHalf] = attrs.field(factory=dict)
    decided: int = 0  # of the open ones, in the group that is being stored
    sets: dict[bytes, OpenHalf] = attrs.field(factory=dict)  # of half messages; they are asked about, too
    checkers: deque[Checker] = attrs.field(factory=deque)
    _due: list[tuple[int, bytes]] = attrs.field(factory=list)
    _unasked: list[tuple[int, bytes]] = attrs.field(factory=list)  # due, nobody may be asked: no timer helps
    _deadlines: list[tuple[int, bytes]] = attrs.field(factory=list)
    _locks: deque[tuple[int, OpenHalf]] = attrs.field(factory=deque)

    # What is open

    def full(self) -> bool:
        """Whether the group has as many pending half messages as it may."""
        return len(self.open) - self.decided >= self.settings.max_pending

    def add(self, half: OpenHalf) -> None:
        """A half message was put, or read back at the start."""
        assert half.half_id not in self.open, f"half {half.half_id!r} is there already"
        self.open[half.half_id] = half

    def schedule(self, half: OpenHalf) -> None:
        """Note when a half message is to be asked about and when it ends; a parked one waits for an
        administrator.
        """
        if half.state is HalfState.PREPARED:
            heappush(self._due, (half.due_ms, half.half_id))
            heappush(self._deadlines, (half.deadline_ms, half.half_id))

    def remove(self, half: OpenHalf) -> None:
        """A half message was decided, or its put was not stored."""
        self.open.pop(half.half_id, None)
        most = STALE_ENTRIES + 2 * (len(self.open) + len(self.sets))
        if len(self._deadlines) > most or len(self._due) > most:
            self._forget_stale()

    def _forget_stale(self) -> None:
        """Drop the times of half messages that are decided: else a busy group had hours of them."""
        opened, find = self.open, self._find
        self._deadlines = [
            entry for entry in self._deadlines
            if (half := opened.get(entry[1])) is not None and half.deadline_ms == entry[0]
        ]  # fmt: skip
        self._due = [
            entry for entry in self._due
            if (half := find(entry[1])) is not None and half.due_ms == entry[0]
        ]  # fmt: skip
        heapify(self._deadlines)
        heapify(self._due)

    def ask_about(self, asked: OpenHalf) -> None:
        """A set is asked about when it is due; its end is not the business of a group."""
        self.sets[asked.half_id] = asked
        heappush(self._due, (asked.due_ms, asked.half_id))

    def _find(self, key: bytes) -> OpenHalf | None:
        return self.open.get(key) or self.sets.get(key)

    def held_by(self, checker: Checker) -> list[OpenHalf]:
        """The half messages and sets that this link is asked about."""
        return [half for half in chain(self.open.values(), self.sets.values()) if half.asked_by is checker]

    # Asking

    def assign(self, now_ms: int, most: int = EVERYTHING) -> list[tuple[Checker, OpenHalf]]:
        """Whom to ask about what is due, at most `most`: first a link of the container that put it, then the
        others in turn. No link or no credit: it waits, and no attempt is counted.
        """
        grants: list[tuple[Checker, OpenHalf]] = []
        for entry in self._unasked:
            heappush(self._due, entry)
        self._unasked = []
        while self._due and self._due[0][0] <= now_ms and any(each.demand > 0 for each in self.checkers):
            entry = heappop(self._due)
            half = self._find(entry[1])
            if half is None or not self._askable(half, entry[0], now_ms):
                continue
            checker = self._checker_for(half)
            if checker is None:
                self._unasked.append(entry)
                continue
            if len(grants) >= most:
                heappush(self._due, entry)
                break
            checker.demand -= 1
            half.asked_by = checker
            half.locked_until_ms = now_ms + self.settings.lock_ms
            self._locks.append((half.locked_until_ms, half))
            grants.append((checker, half))
        return grants

    def _askable(self, half: OpenHalf, due_ms: int, now_ms: int) -> bool:
        return (
            half.state is HalfState.PREPARED
            and not half.changes
            and half.asked_by is None
            and half.answering is None
            and half.due_ms == due_ms
            and half.deadline_ms > now_ms  # else the policy decides in this turn
        )

    def _checker_for(self, half: OpenHalf) -> Checker | None:
        """A link of the container that put it, else any other in turn; who let it go last comes last."""
        best: Checker | None = None
        best_rank = 3
        for checker in self.checkers:
            if checker.demand <= 0 or checker in half.excluded:
                continue
            rank = 2 if checker is half.asked_last else checker.container_id != half.container_id
            if rank < best_rank:
                best, best_rank = checker, rank
        if best is not None:
            self.checkers.remove(best)
            self.checkers.append(best)
        return best

    def answered(self, half: OpenHalf, given: CheckGiven, by_outcome: bool, now_ms: int) -> CheckEffect:
        """How a check ended; what is not a decision has its next time here already, and an attempt is to be
        stored: `attempts`, `due_ms`.
        """
        effect, never_here = half.outcomes[by_outcome][given]
        checker = half.asked_by or half.answering
        half.asked_by = None
        half.asked_last = checker
        half.locked_until_ms = 0
        if given in (CheckGiven.RELEASED, CheckGiven.MODIFIED):
            half.asked_container = ""
        if never_here and checker is not None:
            half.excluded.add(checker)
        if effect is CheckEffect.ATTEMPT:
            self.attempted(half, now_ms)
        elif effect is CheckEffect.NOT_ASKED:
            self.put_off(half, now_ms)
        return effect

    def holds(self, half: OpenHalf) -> bool:
        """Whether the group still asks about it."""
        return self._find(half.half_id) is half

    def put_off(self, half: OpenHalf, now_ms: int) -> None:
        """The answer could not be stored: the group asks again a little later."""
        half.due_ms = now_ms + RETURNED_MS
        heappush(self._due, (half.due_ms, half.half_id))

    def ends(self, half: OpenHalf) -> bool:
        """Whether the attempt that was made was the last one."""
        return half.ends_by_attempts and half.attempts >= self.settings.max_attempts

    def attempted(self, half: OpenHalf, now_ms: int) -> None:
        """The answer left it undecided: the group asks again by the schedule, unless the attempt was the last
        one.
        """
        half.attempts += 1
        doublings = min(half.attempts - 1, DOUBLINGS_MAX)  # of what has no end there are many
        half.due_ms = now_ms + min(self.settings.retry_ms << doublings, self.settings.retry_max_ms)
        if self.ends(half):
            half.deadline_ms = min(half.deadline_ms, now_ms)
            heappush(self._deadlines, (half.deadline_ms, half.half_id))
        else:
            heappush(self._due, (half.due_ms, half.half_id))

    def resume(self, half: OpenHalf, now_ms: int) -> None:
        """An administrator has a parked one asked again, with fresh attempts and a fresh age."""
        half.attempts = 0
        half.due_ms = now_ms
        half.deadline_ms = now_ms + self.settings.max_age_ms
        half.excluded.clear()
        half.asked_container = ""

    def answer_begins(self, half: OpenHalf) -> None:
        """The link that was asked gave its outcome: the group asks nobody else until that is stored."""
        half.answering, half.asked_by = half.asked_by, None
        half.locked_until_ms = 0

    def answer_ends(self, half: OpenHalf, now_ms: int) -> None:
        """The answer is stored, or came too late. `assign` passed over what came due meanwhile: it is due
        now.
        """
        half.answering = None
        if self.holds(half) and half.due_ms <= now_ms:
            heappush(self._due, (half.due_ms, half.half_id))

    # Checkers

    def attach(self, checker: Checker) -> None:
        """A link on which the group can ask."""
        self.checkers.append(checker)

    def detach(self, checker: Checker, asked: Iterable[OpenHalf], now_ms: int) -> None:
        """The link is gone: what it was asked was not answered, which is no attempt."""
        self.checkers.remove(checker)
        for half in asked:
            if half.asked_by is checker:
                self.answered(half, CheckGiven.LOST, checker.by_outcome, now_ms)
        checker.source = checker.link = None  # a half message that is not asked there may know it for hours

    # Time

    def unlocked(self, now_ms: int) -> list[tuple[Checker, OpenHalf]]:
        """The check-backs without an outcome for too long: to be settled `released`, and asked again without
        an attempt.
        """
        late: list[tuple[Checker, OpenHalf]] = []
        while self._locks and self._locks[0][0] <= now_ms:
            until_ms, half = self._locks.popleft()
            if half.asked_by is not None and half.locked_until_ms == until_ms:
                checker = half.asked_by
                self.answered(half, CheckGiven.LATE, checker.by_outcome, now_ms)
                late.append((checker, half))
        return late

    def expired(self, now_ms: int) -> list[OpenHalf]:
        """The half messages that have reached their maximum age or their last attempt: the policy decides."""
        over: list[OpenHalf] = []
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            deadline_ms, half_id = heappop(self._deadlines)
            half = self.open.get(half_id)
            if half is not None and half.state is HalfState.PREPARED and half.deadline_ms == deadline_ms:
                over.append(half)
        return over

    def next_deadline_ms(self) -> int | None:
        """When `assign`, `unlocked` or `expired` is worth a call; None is never."""
        deadlines = [heap[0][0] for heap in (self._due, self._deadlines) if heap]
        if self._due and not any(checker.demand > 0 for checker in self.checkers):
            deadlines = deadlines[1:]  # nobody could be asked
        if self._locks:
            deadlines.append(self._locks[0][0])
        return min(deadlines) if deadlines else None

    # Figures, read from what is here and not counted apart

    def count(self, state: HalfState) -> int:
        """How many open half messages are in one state."""
        return sum([half.state is state for half in self.open.values()])

    def due_unasked(self, now_ms: int) -> int:
        """How many are due while nobody could be asked yet."""
        return sum(
            [
                half.due_ms <= now_ms and half.asked_by is None and half.state is HalfState.PREPARED
                for half in self.open.values()
            ]
        )

    def oldest_age_ms(self, now_ms: int) -> int:
        """The age of the oldest open one; 0 if there is none."""
        return max((half.age_ms(now_ms) for half in self.open.values()), default=0)
