"""What is staged in sets of half messages and not decided, in the memory of one broker: what the operations
judge by, and change.

known, epoch_state, decision, room_for_part (prepare)    begin, prepared, voted, ended (stored)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from heapq import heappush
from itertools import count
from typing import TYPE_CHECKING, Final

import trio

from amqp_broker.connection import Sink
from amqp_broker.coordinator import HalfSettings
from amqp_broker.coordinator.half_sets import (
    NEVER_MS,
    EpochState,
    ProducerSets,
    SetPart,
    SetState,
    StagedSet,
    epoch_state,
)
from amqp_broker.frames import Error
from amqp_broker.half_sets.answers import elsewhere_error
from amqp_broker.half_sets.asking import SetAsking
from amqp_broker.half_sets.reading import NameReading, ReadBack, name
from amqp_broker.persistence import RECORD_OVERHEAD_BYTES, Decision
from amqp_broker.persistence.questions import DecisionOf, DecisionsOf, LatestDecisionOf
from amqp_broker.queue import RESUME_PART

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.halves.halves import Halves
    from amqp_broker.queue import Queue

DECISIONS_SEARCHED: Final = 1_000  # of a producer, the newest, where a request names no epoch


class StagedSets:
    """The sets of half messages of one broker that are not decided."""

    def __init__(self, nodes: BrokerNodes, halves: Halves) -> None:
        self._nodes = nodes
        self._halves = halves
        self._deadlines: list[tuple[int, int, StagedSet]] = []
        self._serial = count()
        self._links: dict[SetPart, set[Sink]] = {}
        self._waiting: dict[Sink, float] = {}  # for room, and since when
        self._asking = SetAsking(halves)
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
            return limit_error(f"{self.part_count} sets are staged, as many as max_half_sets allows")
        if staged is not None and len(staged.parts) >= limits.half_set_destinations:
            return limit_error(
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
            for sink in self._links.pop(part, ()):
                sink.end(staged.end)
        self._room_again()

    def attach(self, part: SetPart, sink: Sink) -> None:
        """A link begins to stage in a part."""
        self._links.setdefault(part, set()).add(sink)

    def detach(self, part: SetPart, sink: Sink) -> None:
        """A link that staged in a part is gone."""
        self._waiting.pop(sink, None)
        sinks = self._links.get(part)
        if sinks is not None:
            sinks.discard(sink)
            if not sinks:
                del self._links[part]

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

    def wait_for_room(self, sink: Sink) -> None:
        """`sink.unblock()` is called when there is room, `sink.end(...)` when there is none for too long."""
        self._waiting.setdefault(sink, trio.current_time())
        self._rearm()

    def _room_again(self) -> None:
        if self._waiting and self.byte_count <= self._nodes.config.limits.half_set_bytes * RESUME_PART:
            waiting, self._waiting = self._waiting, {}
            for sink in waiting:
                sink.unblock()

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
            ReadBack(self._nodes.writer, part, partial(self.when_read, staged, then), then).start()

    def when_named(self, destinations: Iterable[tuple[Queue, SetPart]], then: Callable[[], None]) -> None:
        """`then()` is called when the events are known that name the messages of these parts."""
        NameReading(self._nodes.writer, destinations, then).start()

    # Time

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
        """A deadline has come."""
        raise AssertionError("HalfSets ends what is too old")


def limit_error(description: str) -> Error:
    """The error where a limit is reached."""
    return Error(condition="amqp:resource-limit-exceeded", description=description)
