"""The sets of half messages of a broker in time: their operations in line, those of the last run, and the end
of what is too old.

attach --> OpenPart --> part --Staging--> store (a hidden node)     seal, commit-epoch, void --> operations.py
at the group's maximum age: voided; without room for too long: links that wait are detached

The hidden nodes are of kind "set"; their settings say what they are, so that a start finds them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import partial
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

import trio

from amqp_broker.coordinator import Resolver
from amqp_broker.coordinator.half_sets import NEVER_MS, OpenSet, SetPart, SetState, StagedSet
from amqp_broker.half_sets.deciding import VoidSets
from amqp_broker.half_sets.operations import Answer, SetOperation
from amqp_broker.half_sets.requests import VoidRequest
from amqp_broker.half_sets.settings import SetSettings, settings_of
from amqp_broker.half_sets.staged_sets import StagedSets, limit_error
from amqp_broker.log_setup import logger
from amqp_broker.operations.operation import NotYet
from amqp_broker.persistence import (
    Configure,
    RecoveredNode,
    Unit,
)

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.halves.halves import Halves

AGE_REASON: Final = "maximum age"
AGE_RETRY_MS: Final = 60_000  # what could not be voided because the store was full is tried again


class HalfSets(StagedSets):
    """The sets of half messages of one broker."""

    def __init__(self, nodes: BrokerNodes, halves: Halves) -> None:
        super().__init__(nodes, halves)
        halves.void_set = self._void_asked
        halves.keep_ask = self._keep_ask
        self._log = logger("half_sets")
        self._lines: dict[str, deque[SetOperation]] = {}  # by group: who waits for one that reads first

    # Operations

    def enter(self, operation: SetOperation) -> None:
        """Have an operation judged and stored after those of its group that came before: some have to read
        first.
        """
        group = operation.producer.group
        line = self._lines.get(group)
        if line is not None:
            line.append(operation)
        elif operation.reads_first():
            self._lines[group] = deque([operation])
            operation.read_first(partial(self._go_on, group))
        else:
            self._nodes.writer.submit(operation)

    def _go_on(self, group: str) -> None:
        """The first operation of a group has read what it had to: judge it, and those that can follow."""
        line = self._lines[group]
        self._nodes.writer.submit(line.popleft())
        while line:
            if line[0].reads_first():
                line[0].read_first(partial(self._go_on, group))
                return
            self._nodes.writer.submit(line.popleft())
        del self._lines[group]

    def void(
        self, staged: StagedSet, resolver: Resolver, reason: str, answer: Answer | None = None,
        *, force: bool = False,
    ) -> None:  # fmt: skip
        """Void one set; `answer` is called with the outcome after the commit. With `force` also where its
        coordinator has not decided so.
        """
        self.enter(self._voiding(staged, resolver, reason, answer, force=force))

    def _voiding(
        self, staged: StagedSet, resolver: Resolver, reason: str, answer: Answer | None,
        *, force: bool = False,
    ) -> VoidSets:  # fmt: skip
        request = VoidRequest(staged.producer.name, staged.epoch, (staged.set_id,))
        return VoidSets(self, staged.producer.group, request, resolver, reason, answer, force=force)

    def _void_asked(self, staged: StagedSet, reason: str) -> VoidSets:
        """The operation that ends a set by the answer of a check-back."""
        return self._voiding(staged, Resolver.CHECK, reason, None)

    def _keep_ask(self, asked: OpenSet) -> Unit:
        """The verbs that store how often a set was asked about, and when next: one row of it says so."""
        staged = asked.staged
        if staged.unstored:
            raise NotYet
        staged.attempts, staged.due_ms = asked.attempts, asked.due_ms
        return [Configure(part.queue_id, settings_of(part)) for part in [*staged.parts.values()][:1]]

    # Start and time

    def recover(self, nodes: Iterable[RecoveredNode]) -> None:
        """Take up what the store has staged. Of a damaged node nothing but its name is believed: its set is
        sealed only if another part of it says so, and then all that was sealed has to be there. No age ends
        it: it may have been prepared, and can be again.
        """
        damaged: list[RecoveredNode] = []
        for node in nodes:
            try:
                self._recover(node, SetSettings.read(node.settings))
            except ValueError as error:
                self._log.error("set.damaged", name=node.name, reason=repr(error))
                damaged.append(node)
        for node in damaged:
            settings = SetSettings.of_name(node.name, self.now_ms())
            if settings is not None:
                self._recover(node, settings, None if settings.voided else NEVER_MS)
        self._rearm()

    def _recover(self, node: RecoveredNode, settings: SetSettings, deadline_ms: int | None = None) -> None:
        producer = self.producer(settings.group, settings.producer)
        staged = producer.sets.get(settings.set_id)
        if staged is None:
            if deadline_ms is None:
                deadline_ms = settings.begun_at_ms + self.max_age_ms(settings.group)
            staged = StagedSet(
                producer, settings.set_id, settings.epoch, settings.begun_at_ms, deadline_ms,
                settings.container_id,
            )  # fmt: skip
            staged.attempts, staged.due_ms = settings.attempts, settings.due_at_ms
        part = SetPart(staged, settings.destination, node.queue_id)
        part.next_offset = node.next_offset
        part.add(node.message_count, node.byte_count, 0)
        part.may_expire = node.message_count > 0
        if settings.sealed is not None or settings.voided:
            staged.coordinator, staged.store = settings.coordinator, settings.store
            staged.sealed = settings.sealed
            staged.state = _closed_state(settings)
            if staged.state is SetState.PREPARED:
                staged.deadline_ms = NEVER_MS
            if settings.store and settings.sealed is not None:
                part.add(settings.sealed.count, 0, settings.sealed.checksum)
        elif node.message_count:
            part.unread_to = node.next_offset
        staged.parts[part.destination] = part
        producer.add(staged)
        self.part_count += 1
        self.count(0 if staged.store else part.count, part.byte_count)
        self.begin(staged)

    def wake(self) -> None:
        """A deadline has come: void what is too old, and end links that have waited for too long."""
        now_ms, now = self.now_ms(), trio.current_time()
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            staged = heappop(self._deadlines)[2]
            if staged.state is None or staged.deadline_ms == NEVER_MS:
                continue
            if staged.deadline_ms > now_ms:  # it was put off
                heappush(self._deadlines, (staged.deadline_ms, next(self._serial), staged))
            else:
                self.void(staged, Resolver.DEADLINE, AGE_REASON)
                heappush(self._deadlines, (now_ms + AGE_RETRY_MS, next(self._serial), staged))
        late = [link for link, since in self._waiting.items() if since + self._patience_s() <= now]
        for link in late:
            del self._waiting[link]
            why = f"no room for {self._patience_s():g} s: sets hold as much as half_set_bytes allows"
            link.end(limit_error(why))
        self._rearm()


def _closed_state(settings: SetSettings) -> SetState:
    if settings.voided:
        return SetState.VOIDED
    return SetState.PREPARED if settings.coordinator else SetState.SEALED
