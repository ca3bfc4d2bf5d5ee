"""All sets of half messages of a broker that are not decided: what is staged, by whom, and for how long.

attach --> OpenPart --> part --Staging--> store (a hidden node)     seal, commit-epoch, void --> operations.py
at the group's maximum age: voided; without room for too long: links that wait are detached

The hidden nodes are of kind "set"; their settings say what they are, so that a start finds them again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final

import trio

from amqp_broker.coordinator import (
    NEVER_MS,
    EpochState,
    HalfSettings,
    OpenSet,
    ProducerSets,
    Resolver,
    SetPart,
    SetState,
    StagedSet,
    epoch_state,
)
from amqp_broker.frames import Error
from amqp_broker.half_sets.answers import elsewhere_error
from amqp_broker.half_sets.asking import SetAsking
from amqp_broker.half_sets.deciding import VoidSets
from amqp_broker.half_sets.operations import Answer, SetOperation
from amqp_broker.half_sets.reading import NameReading, ReadBack, name
from amqp_broker.half_sets.requests import VoidRequest
from amqp_broker.half_sets.settings import SetSettings, settings_of
from amqp_broker.log_setup import logger
from amqp_broker.operations.operation import NotYet
from amqp_broker.persistence import (
    RECORD_OVERHEAD_BYTES,
    Configure,
    Decision,
    DecisionOf,
    DecisionsOf,
    LatestDecisionOf,
    RecoveredNode,
    Unit,
)
from amqp_broker.queue import RESUME_PART

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.half_sets.staging import StagingSink
    from amqp_broker.halves.halves import Halves
    from amqp_broker.queue import Queue

AGE_REASON: Final = "maximum age"
AGE_RETRY_MS: Final = 60_000  # what could not be voided because the store was full is tried again
DECISIONS_SEARCHED: Final = 1_000  # of a producer, the newest, where a request names no epoch


class HalfSets:
    """The sets of half messages of one broker that are not decided."""

    def __init__(self, nodes: BrokerNodes, halves: Halves) -> None:
        self._nodes = nodes
        self._halves = halves
        halves.void_set = self._void_asked
        halves.keep_ask = self._keep_ask
        self._log = logger("half_sets")
        self._deadlines: list[tuple[int, int, StagedSet]] = []
        self._serial = count()
        self._links: dict[SetPart, set[StagingSink]] = {}
        self._waiting: dict[StagingSink, float] = {}  # for room, and since when
        self._asking = SetAsking(halves)
        self._lines: dict[str, deque[SetOperation]] = {}  # by group: who waits for one that reads first
        self.producers: dict[tuple[str, str], ProducerSets] = {}
        self._begun: set[StagedSet] = set()
        self.part_count = 0
        self.byte_count = 0

    # What there is

    def producer(self, group: str, name: str) -> ProducerSets:
        """The sets of a producer, none at first; `forget_idle` has to follow."""
        return self.producers.setdefault((group, name), ProducerSets(group, name))

    def known(self, group: str, name: str) -> ProducerSets:
        """The sets of a producer, for reading only."""
        return self.producers.get((group, name)) or ProducerSets(group, name)

    def forget_idle(self, producer: ProducerSets) -> None:
        """Forget a producer that has nothing staged."""
        if not producer.sets and not producer.decided:
            self.producers.pop((producer.group, producer.name), None)

    def sets(self) -> list[StagedSet]:
        """All sets that are not decided."""
        return [each for producer in self.producers.values() for each in producer.sets.values()]

    def now_ms(self) -> int:
        """The broker's time."""
        return self._nodes.clock.now_ms()

    def shown(self, at_ms: int) -> int:
        """What the clock on the wall shows at a time of the broker's."""
        return self._halves.shown(at_ms)

    def max_age_ms(self, group: str) -> int:
        """How old a set of this group may become."""
        found = self._halves.groups.get(group)
        return (HalfSettings() if found is None else found.settings).max_age_ms

    def decision(self, producer: ProducerSets, epoch: int) -> Decision | None:
        """The decision of an epoch; only in `Operation.prepare`. Raises RowDamaged."""
        pending: Decision | None = producer.decided.get(epoch)
        if pending is not None:
            return pending
        return self._nodes.writer.lookup(DecisionOf(producer.group, producer.name, epoch))

    def epoch_state(self, producer: ProducerSets, epoch: int) -> EpochState:
        """Where an epoch stands; only in `Operation.prepare`. Raises RowDamaged."""
        if self.decision(producer, epoch) is not None:
            return EpochState.DECIDED
        latest = self.latest_decision(producer)
        return epoch_state(epoch, False, None if latest is None else latest.epoch)

    def latest_decision(self, producer: ProducerSets) -> Decision | None:
        """The decision of the highest epoch; only in `Operation.prepare`. Raises RowDamaged."""
        if producer.decided:  # none that is stored is later
            latest: Decision = producer.decided[max(producer.decided)]
            return latest
        return self._nodes.writer.lookup(LatestDecisionOf(producer.group, producer.name))

    def committed(self, producer: ProducerSets, epoch: int | None) -> set[str]:
        """The sets that decisions name: one epoch's, or the newest ones; only in `Operation.prepare`."""
        if epoch is None:
            found = self._kept_decisions(producer)
        else:
            one = self._nodes.writer.lookup(DecisionOf(producer.group, producer.name, epoch))
            found = [] if one is None else [one]
        found += [each for at, each in producer.decided.items() if epoch is None or epoch == at]
        return {winner[0] for decision in found for winner in decision.winners}

    def may_have_forgotten(self, producer: ProducerSets, epoch: int) -> bool:
        """Whether a decision of this epoch, which none is kept of, may have been one of those that were kept
        before; only in `Operation.prepare`.
        """
        kept = self._kept_decisions(producer)
        return len(kept) >= DECISIONS_SEARCHED and epoch < kept[-1].epoch

    def _kept_decisions(self, producer: ProducerSets) -> list[Decision]:
        return self._nodes.writer.lookup(DecisionsOf(producer.group, producer.name, DECISIONS_SEARCHED))

    def destination_of(self, part: SetPart) -> Queue | Error:
        """The queue that the messages of a part go to, or why they can't."""
        queue = self._nodes.queues.find(part.destination)
        if queue is None or queue.deleted or not queue.persistent or queue.sequences.required:
            return elsewhere_error(part.destination, queue)
        return queue

    # Parts

    def room_for_part(self, staged: StagedSet | None, parts: int = 1) -> Error | None:
        """Why no more can be staged at once, or None."""
        limits = self._nodes.config.limits
        if self.part_count + parts > limits.max_half_sets:
            return _limit(f"{self.part_count} sets are staged, as many as max_half_sets allows")
        if staged is not None and len(staged.parts) >= limits.half_set_destinations:
            return _limit(
                f"set {staged.set_id!r} has {len(staged.parts)} destinations, as many as "
                "half_set_destinations allows"
            )
        return None

    def new_set(
        self, producer: ProducerSets, set_id: str, epoch: int, container_id: str, now_ms: int
    ) -> StagedSet:
        """Make a set that is not there yet."""
        deadline_ms = now_ms + self.max_age_ms(producer.group)
        return StagedSet(producer, set_id, epoch, now_ms, deadline_ms, container_id)

    def begin(self, staged: StagedSet) -> None:
        """A part of the set is stored: from the first one on its time runs, and the group asks about it."""
        if staged in self._begun or staged.state is None:
            return
        self._begun.add(staged)
        if staged.deadline_ms != NEVER_MS:
            heappush(self._deadlines, (staged.deadline_ms, next(self._serial), staged))
            self._rearm()
        if staged.state is not SetState.VOIDED:
            self._asking.begin(staged)

    def prepared(self, staged: StagedSet) -> None:
        """The coordinator of the set decides about it, however long that takes: the group asks about it for
        ever.
        """
        staged.deadline_ms = NEVER_MS
        self._asking.for_ever(staged)

    def voted(self, staged: StagedSet) -> None:
        """It is decided that the set never wins: a trace of it is kept for as long as a set may become old.
        """
        self._asking.end(staged)

    def ended(self, staged: StagedSet) -> None:
        """The set was committed or voided, and that is stored; links that stage in it are told why they end.
        """
        self._asking.end(staged)
        self._begun.discard(staged)
        for part in staged.parts.values():
            self.part_count -= 1
            self.count(0 if staged.store else -part.count, -part.byte_count)
            for link in self._links.pop(part, ()):
                link.end(staged.end)
        self._room_again()

    def attach(self, link: StagingSink) -> None:
        """A link begins to stage."""
        self._links.setdefault(link.part, set()).add(link)

    def detach(self, link: StagingSink) -> None:
        """A link that staged is gone."""
        self._waiting.pop(link, None)
        links = self._links.get(link.part)
        if links is not None:
            links.discard(link)
            if not links:
                del self._links[link.part]

    # Room

    def count(self, messages: int, octets: int) -> None:
        """Count messages and octets that are staged, or (negative) are staged no longer. A store in memory
        counts them as the broker's own.
        """
        self.byte_count += octets
        if self._nodes.config.memory:
            self._nodes.memory.own.change(octets + messages * RECORD_OVERHEAD_BYTES)

    def full(self) -> bool:
        """Whether nothing more may be staged."""
        return self.byte_count >= self._nodes.config.limits.half_set_bytes

    def wait_for_room(self, link: StagingSink) -> None:
        """`link.go_on()` is called when there is room, `link.end(...)` when there is none for too long."""
        self._waiting.setdefault(link, trio.current_time())
        self._rearm()

    def _room_again(self) -> None:
        if self._waiting and self.byte_count <= self._nodes.config.limits.half_set_bytes * RESUME_PART:
            waiting, self._waiting = self._waiting, {}
            for link in waiting:
                link.go_on()

    # Operations and reads

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

    def name(self, queue: Queue, part: SetPart) -> None:
        """Read the events that name a part's messages; only in `Operation.prepare`."""
        self._nodes.writer.lookup(lambda store: name(store, queue, part))

    def pump(self, queue: Queue) -> None:
        """Distribute what a commit made available."""
        self._nodes.pump(queue)

    def when_read(self, staged: StagedSet | None, then: Callable[[], None]) -> None:
        """`then()` is called when the checksum of a set is known: at once, or after what was there at the
        start was read back. Of a set that has ended meanwhile nothing is read any more.
        """
        part = None
        if staged is not None and staged.state is not None:
            part = next((p for p in staged.parts.values() if p.unread_to), None)
        if part is None:
            then()
        else:
            ReadBack(self, self._nodes.writer, part, then).start()

    def when_named(self, destinations: Iterable[tuple[Queue, SetPart]], then: Callable[[], None]) -> None:
        """`then()` is called when the events are known that name the messages of these parts."""
        NameReading(self._nodes.writer, destinations, then).start()

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

    def _rearm(self) -> None:
        now = trio.current_time()
        if self._deadlines:
            wait_s = max(0, self._deadlines[0][0] - self.now_ms()) / 1000
            self._nodes.timers.set(now + wait_s, self)
        if self._waiting:
            self._nodes.timers.set(next(iter(self._waiting.values())) + self._patience_s(), self)

    def _patience_s(self) -> float:
        return self._nodes.config.limits.half_set_wait_ms / 1000

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
            link.end(
                _limit(f"no room for {self._patience_s():g} s: sets hold as much as half_set_bytes allows")
            )
        self._rearm()


def _closed_state(settings: SetSettings) -> SetState:
    if settings.voided:
        return SetState.VOIDED
    return SetState.PREPARED if settings.coordinator else SetState.SEALED


def _limit(description: str) -> Error:
    return Error(condition="amqp:resource-limit-exceeded", description=description)
