"""What can be done with sets of half messages, each judged where it falls: when its group is made, by what
the store has and what the operations before it in the group leave.

    OpenPart      a link begins to stage in a set
    SealSet       it is complete; for a coordinator that decides about it: prepared
    CommitEpoch   deciding.py: the winners are in their queues, the decision is kept, all others are voided
    VoidSets      voided; by the producer, a check, an administrator, or its age
    EnlistSet, VoteSets   enlisting.py: sets of other stores

Each change of memory is noted with what takes it back, so that `undo` is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from amqp_broker.coordinator.half_sets import (
    EpochInput,
    ProducerSets,
    SetAnswer,
    SetInput,
    SetPart,
    SetState,
    StagedSet,
    Winner,
    decide_epoch,
    decide_set,
)
from amqp_broker.frames import Accepted, Rejected
from amqp_broker.half_sets.answers import internal_error, other_epoch_error, prepared_error, refusal
from amqp_broker.half_sets.requests import SealRequest
from amqp_broker.half_sets.settings import SET_KIND, settings_of
from amqp_broker.halves.addresses import HalfAddress, set_address
from amqp_broker.operations.operation import NotYet, Operation, Refused, error_of
from amqp_broker.persistence import Configure, CreateNode, Event, Journal, Unit

if TYPE_CHECKING:
    from amqp_broker.connection import Connection
    from amqp_broker.half_sets.staged_sets import StagedSets

Answer = Callable[[Any], None]
"""Called once with the outcome, after the commit."""


class SetOperation(Operation):
    """Base: one request about the sets of a producer."""

    def __init__(self, half_sets: StagedSets, group: str, producer: str, answer: Answer | None) -> None:
        self.half_sets = half_sets
        self.producer: ProducerSets = half_sets.known(group, producer)
        self._answer = answer
        self.asker: Connection | None = None
        self._back: list[Callable[[], object]] = []  # takes back what was changed, the last one first

    def prepare(self, now_ms: int) -> Unit:
        """Decide what the request means, by what there is now."""
        self.producer = self.half_sets.producer(self.producer.group, self.producer.name)
        return self._judge(now_ms)

    def _judge(self, now_ms: int) -> Unit:
        raise AssertionError("a request says what it does")

    def _done(self) -> None:
        """The operation is stored, or nothing had to be."""

    # What memory has until the commit returned, or the group is undone

    def _set(self, thing: object, **fields: Any) -> None:
        for name, value in fields.items():
            self._back.append(partial(setattr, thing, name, getattr(thing, name)))
            setattr(thing, name, value)

    def _add(self, staged: StagedSet) -> None:
        staged.producer.add(staged)
        self._back.append(partial(staged.producer.remove, staged))

    def _remove(self, staged: StagedSet) -> None:
        staged.producer.remove(staged)
        self._back.append(partial(staged.producer.add, staged))

    def _make_part(self, staged: StagedSet, destination: str) -> tuple[SetPart, CreateNode]:
        part = SetPart(staged, destination, 0)
        staged.parts[destination] = part
        self._back.append(partial(staged.parts.pop, destination))
        self._set(self.half_sets, part_count=self.half_sets.part_count + 1)
        producer = staged.producer
        name = set_address(producer.group, producer.name, staged.epoch, staged.set_id, destination)
        return part, CreateNode(name, SET_KIND, settings_of(part))

    def undo(self) -> None:
        """Memory is as it was before the operation."""
        back, self._back = self._back, []
        for each in reversed(back):
            each()

    def stored(self) -> None:
        """The request is done; whoever asked is told."""
        self._back = []
        self._done()
        self.half_sets.forget_idle(self.producer)
        if self._answer is not None:
            self._answer(Accepted())

    def refused(self, error: Exception) -> None:
        """The request is refused; whoever asked is told why."""
        self.half_sets.forget_idle(self.producer)
        if self._answer is not None:
            self._answer(Rejected(error=error_of(error)))

    def asking_connection(self) -> Connection | None:
        """The connection of who asked, if it was one."""
        return self.asker

    # What has to be read before it can be judged

    def reads_first(self) -> bool:
        """Whether something has to be read before the request is judged."""
        return False

    def read_first(self, then: Callable[[], None]) -> None:
        """Read what has to be read, page by page, and call `then`."""
        then()

    def journal(self, kind: str, now_ms: int, **fields: str | int) -> Journal:
        """An entry of the journal."""
        known: dict[str, str | int] = {"group": self.producer.group, "producer": self.producer.name}
        return Journal(Event(kind, now_ms, {**known, **fields}))


def stored_parts(staged: StagedSet) -> list[SetPart]:
    """The parts of a set, for verbs that name them. Raises NotYet while the store does not know them."""
    if staged.unstored:
        raise NotYet
    return [*staged.parts.values()]


class OpenPart(SetOperation):
    """A link is to stage in a set for one destination; `part` is where."""

    def __init__(
        self, half_sets: StagedSets, address: HalfAddress, container_id: str, answer: Answer
    ) -> None:
        super().__init__(half_sets, address.group, address.producer, answer)
        self._address = address
        self._container_id = container_id
        self._verb: CreateNode | None = None
        self.part: SetPart | None = None

    def _judge(self, now_ms: int) -> Unit:
        self.part = self._verb = None
        address, producer = self._address, self.producer
        staged = producer.sets.get(address.set_id)
        answer = decide_epoch(self.half_sets.epoch_state(producer, address.epoch), EpochInput.STAGE)
        if answer is not SetAnswer.DONE:
            raise Refused(refusal(answer, address.set_id, address.epoch))
        if staged is not None and staged.epoch != address.epoch:
            raise Refused(other_epoch_error(staged, address.epoch))
        answer, _ = decide_set(None if staged is None else staged.state, SetInput.STAGE)
        if answer not in (SetAnswer.DONE, SetAnswer.REPEAT):
            raise Refused(refusal(answer, address.set_id, address.epoch))
        if staged is not None and address.destination in staged.parts:
            self.part = staged.parts[address.destination]
            return []
        full = self.half_sets.room_for_part(staged)
        if full is not None:
            raise Refused(full)
        if staged is None:
            staged = self.half_sets.new_set(
                producer, address.set_id, address.epoch, self._container_id, now_ms
            )
            self._add(staged)
        self.part, self._verb = self._make_part(staged, address.destination)
        return [self._verb]

    def _done(self) -> None:
        if self._verb is not None and self.part is not None:
            self.part.queue_id = self._verb.queue_id
            self.half_sets.begin(self.part.staged)


class SealSet(SetOperation):
    """A set is complete: nothing more is staged in it, and it can be committed."""

    def __init__(self, half_sets: StagedSets, group: str, request: SealRequest, answer: Answer) -> None:
        super().__init__(half_sets, group, request.producer, answer)
        self._request = request
        self._prepared: StagedSet | None = None

    def _staged(self) -> StagedSet | None:
        producer = self.half_sets.known(self.producer.group, self.producer.name)
        return producer.of_epoch(self._request.set_id, self._request.epoch)

    def reads_first(self) -> bool:
        """Whether what was staged before the start of the broker is not in its checksum yet."""
        staged = self._staged()
        return staged is not None and staged.unread

    def read_first(self, then: Callable[[], None]) -> None:
        """Read the checksum of the set, and call `then`."""
        self.half_sets.when_read(self._staged(), then)

    def _judge(self, now_ms: int) -> Unit:
        self._prepared = None
        request, producer = self._request, self.producer
        staged = producer.of_epoch(request.set_id, request.epoch)
        answer = decide_epoch(self.half_sets.epoch_state(producer, request.epoch), EpochInput.SEAL)
        if answer is SetAnswer.DONE:
            if staged is not None and staged.unread:
                raise Refused(internal_error("what was staged before the start could not be read back"))
            answer, _ = decide_set(None if staged is None else staged.state, self._what(staged))
        if answer is SetAnswer.REPEAT:
            return []
        if answer is SetAnswer.PREPARED and staged is not None:
            raise Refused(prepared_error(staged, request.coordinator))
        if answer is not SetAnswer.DONE or staged is None:
            named = Winner(request.set_id, request.count, request.checksum)
            raise Refused(refusal(answer, request.set_id, request.epoch, named, staged))
        return self._seal(staged, now_ms)

    def _what(self, staged: StagedSet | None) -> SetInput:
        request = self._request
        if staged is None or staged.store:
            return SetInput.SEAL_OTHER
        if not staged.is_as(request.count, request.checksum):
            return SetInput.SEAL_OTHER
        for_coordinator = request.coordinator and staged.coordinator in ("", request.coordinator)
        return SetInput.PREPARE if for_coordinator else SetInput.SEAL_SAME

    def _seal(self, staged: StagedSet, now_ms: int) -> Unit:
        parts = stored_parts(staged)
        coordinator = self._request.coordinator
        sealed = Winner(staged.set_id, staged.count, staged.checksum)
        state = SetState.PREPARED if coordinator else SetState.SEALED
        self._set(staged, coordinator=coordinator, sealed=sealed, state=state)
        self._prepared = staged if coordinator else None
        unit: Unit = [Configure(part.queue_id, settings_of(part)) for part in parts]
        fields: dict[str, str | int] = {
            "set_id": staged.set_id,
            "epoch": staged.epoch,
            "count": staged.count,
        }
        if coordinator:
            fields["coordinator"] = coordinator
        unit.append(self.journal("set.sealed", now_ms, **fields))
        return unit

    def _done(self) -> None:
        if self._prepared is not None and self._prepared.state is SetState.PREPARED:
            self.half_sets.prepared(self._prepared)
