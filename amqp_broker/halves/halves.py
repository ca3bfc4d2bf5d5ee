"""The half messages of a broker in time: who is asked when, and what ends of itself.

put, resolve --> writer --> stored --> group (schedule) --due--> checker's task
deadline, lock, due: one entry in the table of timers, for the earliest of all groups
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from amqp_broker.coordinator import PARK_POLICY, HalfGroup, HalfInput, OpenHalf, Resolver
from amqp_broker.coordinator.half_sets import OpenSet, StagedSet
from amqp_broker.halves.groups import HalfGroups, HalfSource
from amqp_broker.halves.known import Pace
from amqp_broker.halves.operations import Answer, HalfChange
from amqp_broker.operations.operation import Operation
from amqp_broker.operations.posting import Step
from amqp_broker.persistence import Event, Journal, Reschedule, RowDamaged, Store, StoreFailed, Unit
from amqp_broker.persistence.questions import HalfBodyOf

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes

BodyRead = Callable[[OpenHalf, bytes | None], None]
"""Called with a half message and its body, or None where there is none."""

VoidSet = Callable[[StagedSet, str], Operation]
"""Makes the operation that ends a set, for a reason."""

KeepAsk = Callable[[OpenSet], Unit]
"""Makes the verbs that store how often a set was asked about, and when it is asked about next."""


class Halves(HalfGroups):
    """The half messages of one broker."""

    def __init__(self, nodes: BrokerNodes) -> None:
        super().__init__(nodes)
        self._pace = Pace(nodes.config.limits.half_asks_per_s, trio.current_time())
        self.void_set: VoidSet | None = None
        """Ends a set, after the answer of a check-back; `HalfSets` fills it in."""
        self.keep_ask: KeepAsk | None = None
        """What stores that a set was asked about and nobody answered; `HalfSets` fills it in."""

    def change(
        self, group: HalfGroup, half_id: bytes, what: HalfInput, resolver: Resolver, reason: str,
        answer: Answer | None = None, who: str = "",
    ) -> None:  # fmt: skip
        """Commit, roll back, park or resume; `answer` is called with the outcome after the commit."""
        self.submit(HalfChange(self, group, half_id, what, resolver, reason, who, answer))

    # Asking

    def ask(self, group: HalfGroup) -> None:
        """Ask about what is due, on the links that can be asked."""
        now_ms = self.now_ms()
        events: Unit = []
        grants = group.assign(now_ms, self._pace.room(trio.current_time()))
        for checker, half in grants:
            checker.source.assigned(half)  # a drain waits for all of them
        for checker, half in grants:
            source: HalfSource = checker.source
            fields: dict[str, str | int] = {
                "group": group.name,
                **half.names(),
                "attempt": half.attempts + 1,
            }
            self._pace.taken()
            self.figures(group.name).asks += 1
            events.append(Journal(Event("half.asked", now_ms, fields)))
            if isinstance(half, OpenSet):
                source.ask(half, b"")
            else:
                self.read_body(group, half, source.ask)
        if events:
            self._nodes.writer.defer(Step(events, only_events=True))
        self.rearm(group)

    def read_body(self, group: HalfGroup, half: OpenHalf, then: BodyRead) -> None:
        """`then(half, body)` is called now, or when the store has answered: None where it has none, since it
        was decided meanwhile, is damaged, or a fault of the broker met it.
        """
        body = self._bodies.get(half)
        if body is not None:
            then(half, body)
            return

        def look(store: Store) -> None:
            found = None
            try:
                found = store.ask(HalfBodyOf(group.name, half.half_id))
            except RowDamaged as damaged:
                self._log.error("half.damaged", group=group.name, reason=str(damaged))
            except StoreFailed:
                raise
            except Exception:
                self._log.exception("half.unread", group=group.name)
            then(half, found)

        self._nodes.writer.read(look)

    def attempt(self, group: HalfGroup, half: OpenHalf, now_ms: int) -> Unit:
        """The verbs that keep an answer which leaves it undecided, with the entry of the journal."""
        fields: dict[str, str | int] = {"group": group.name, **half.names(), "attempts": half.attempts}
        unit: Unit = [Journal(Event("half.answered", now_ms, fields))]
        if isinstance(half, OpenSet):
            assert self.keep_ask is not None, "a set is asked about, but no HalfSets was made"
            return unit + self.keep_ask(half)
        state, attempts = half.state.value, half.attempts
        unit.append(Reschedule(group.name, half.half_id, state, attempts, half.due_ms, half.deadline_ms))
        return unit

    def decision(self, group: HalfGroup, half: OpenHalf, what: HalfInput, reason: str, who: str) -> Operation:
        """The operation that does what the outcome of a check-back decides."""
        if isinstance(half, OpenSet):
            assert self.void_set is not None, "a set is asked about, but no HalfSets was made"
            return self.void_set(half.staged, reason)
        return HalfChange(self, group, half.half_id, what, Resolver.CHECK, reason, who)

    def ending(self, group: HalfGroup, half: OpenHalf) -> HalfChange:
        """The operation that does what the policy of its group decides at its maximum age, or after its last
        attempt.
        """
        parks = group.settings.policy == PARK_POLICY
        what = HalfInput.PARK if parks else HalfInput.ROLLBACK
        reason = "last attempt" if group.ends(half) else "maximum age"
        return HalfChange(self, group, half.half_id, what, Resolver.DEADLINE, reason)

    # Time

    def rearm(self, group: HalfGroup) -> None:
        """Set a timer for the earliest deadline of `group`."""
        earliest = group.next_deadline_ms()
        if earliest is not None:
            wait_s = max(0, earliest - self.now_ms()) / 1000
            wait_s = max(wait_s, self._pace.wait_s(trio.current_time()))
            self._nodes.timers.set(trio.current_time() + wait_s, self)

    def wake(self) -> None:
        """A deadline has come: ask, and end what is too old, in all groups."""
        now_ms = self.now_ms()
        for group in list(self.groups.values()):
            for checker, half in group.unlocked(now_ms):
                source: HalfSource = checker.source
                source.settle_released(half)
            for half in group.expired(now_ms):
                self.submit(self.ending(group, half))
            self.ask(group)
            self.rearm(group)
