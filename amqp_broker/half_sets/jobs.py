"""What can be done with sets of half messages, each decided where it falls: when the writer asks for the
verbs, between two commits and in the order of the jobs.

    OpenPart      a link begins to stage in a set
    SealSet       it is complete; for a home that decides about it: prepared
    CountAsk      it was asked about in vain
    CommitEpoch   half_set_deciding: the winners are in their queues, the decision is kept, all others are
    VoidSets      voided; or by the producer, a check, an administrator, or its age

Two changes of one set, and two decisions of one producer, never share a commit: the later one is judged again
after it, so that nobody is told of a decision that is not stored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from amqp_broker.coordinator import (
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
from amqp_broker.frames import Accepted, Error, Rejected
from amqp_broker.half_sets.answers import (
    internal_error,
    other_epoch_error,
    prepared_error,
    refusal,
)
from amqp_broker.half_sets.requests import SealRequest
from amqp_broker.half_sets.settings import SET_KIND, settings_of
from amqp_broker.halves.addresses import HalfAddress, set_address
from amqp_broker.persistence import (
    Configure,
    CreateNode,
    Event,
    Log,
    RowDamaged,
    Unit,
)

if TYPE_CHECKING:
    from amqp_broker.half_sets.service import SetService

Answer = Callable[[Any], None]
"""Told the outcome after the commit, once."""


class SetJob(ABC):
    """Base: one request as a unit of its own."""

    def __init__(self, service: SetService, group: str, producer: str, answer: Answer) -> None:
        self.service = service
        self.producer: ProducerSets = service.known(group, producer)
        self.error: Error | None = None
        self._answer = answer
        self._waits = False
        self._held: list[StagedSet] = []
        self._closed: list[StagedSet] = []

    def unit(self) -> Unit:
        """Decide what it means, by what there is now."""
        self.error = None
        self._waits = False
        self.producer = self.service.producer(self.producer.group, self.producer.name)
        try:
            return self._judge()
        except RowDamaged as damaged:
            self._release()
            self.error = internal_error(f"the store: {damaged}")
            return []

    @abstractmethod
    def _judge(self) -> Unit:
        """The verbs, and `error` where it can't be; may raise RowDamaged."""

    @abstractmethod
    def _done(self) -> None:
        """It is stored, or nothing had to be."""

    def _wait(self) -> Unit:
        """Another change is in the same group: to be judged again after that."""
        self._waits = True
        return []

    def _refuse(self, error: Error) -> Unit:
        self.error = error
        return []

    def _hold(self, staged: StagedSet, *, closing: bool) -> None:
        """Nobody else changes it until this is stored; with `closing` nothing is staged in it either."""
        staged.busy = self
        self._held.append(staged)
        if closing and not staged.closing:
            staged.closing = True
            self._closed.append(staged)

    def _release(self) -> None:
        """It did not happen, or it is over."""
        for staged in self._held:
            staged.busy = None
        for staged in self._closed:
            staged.closing = False
        self._held, self._closed = [], []
        if self.producer.deciding is self:
            self.producer.deciding = None

    def withdraw(self) -> None:
        """Nothing was stored."""
        self._release()

    def keeps(self) -> bool:
        """The asker is told that there is no room."""
        return False

    def finished(self, error: Exception | None) -> None:
        """After the commit."""
        if error is None and self._waits:
            self.service.submit(self)
            return
        if error is not None:
            damaged = isinstance(error, RowDamaged)
            condition = "amqp:internal-error" if damaged else "amqp:resource-limit-exceeded"
            self.error = Error(condition=condition, description=str(error))
        elif self.error is None:
            self._done()
        self._release()
        self.service.forget_idle(self.producer)
        self._answer(Accepted() if self.error is None else Rejected(error=self.error))

    def log(self, kind: str, now_ms: int, **fields: str | int) -> Log:
        """An entry of the event log."""
        known: dict[str, str | int] = {"group": self.producer.group, "producer": self.producer.name}
        return Log(Event(kind, now_ms, {**known, **fields}))


class PartJob(SetJob):
    """Base: a part of a set is made."""

    def __init__(self, service: SetService, group: str, producer: str, answer: Answer) -> None:
        super().__init__(service, group, producer, answer)
        self.part: SetPart | None = None
        self._verb: CreateNode | None = None

    def _create(self, staged: StagedSet, destination: str) -> SetPart:
        self._hold(staged, closing=False)
        self.part = SetPart(staged, destination, 0)
        producer = staged.producer
        name = set_address(producer.group, producer.name, staged.epoch, staged.set_id, destination)
        self._verb = CreateNode(name, SET_KIND, settings_of(self.part))
        return self.part

    def _release(self) -> None:
        for staged in self._held:
            if not staged.parts:
                staged.producer.sets.pop(staged.set_id, None)
        super()._release()

    def _done(self) -> None:
        if self._verb is not None and self.part is not None:
            self.part.queue_id = self._verb.queue_id
            self.service.add_part(self.part.owner, self.part)


class OpenPart(PartJob):
    """A link is to stage in a set for one destination; `part` is where."""

    def __init__(self, service: SetService, address: HalfAddress, container_id: str, answer: Answer) -> None:
        super().__init__(service, address.group, address.producer, answer)
        self._address = address
        self._container_id = container_id

    def _judge(self) -> Unit:
        self.part = self._verb = None
        address, producer = self._address, self.producer
        staged = producer.sets.get(address.set_id)
        if producer.deciding is not None or (staged is not None and staged.busy is not None):
            return self._wait()
        answer = decide_epoch(self.service.epoch_state(producer, address.epoch), EpochInput.STAGE)
        if answer is not SetAnswer.DONE:
            return self._refuse(refusal(answer, address.set_id, address.epoch))
        if staged is not None and staged.epoch != address.epoch:
            return self._refuse(other_epoch_error(staged, address.epoch))
        answer, _ = decide_set(None if staged is None else staged.state, SetInput.STAGE)
        if answer not in (SetAnswer.DONE, SetAnswer.REPEAT):
            return self._refuse(refusal(answer, address.set_id, address.epoch))
        if staged is not None and address.destination in staged.parts:
            self.part = staged.parts[address.destination]
            return []
        full = self.service.room_for_part(staged)
        if full is not None:
            return self._refuse(full)
        if staged is None:
            staged = self.service.begin_set(producer, address.set_id, address.epoch, self._container_id)
            producer.sets[address.set_id] = staged
        self._create(staged, address.destination)
        assert self._verb is not None, "it was made now"
        return [self._verb]


class CountAsk(SetJob):
    """A set was asked about in vain: one row of it says how often, and when next."""

    def __init__(self, service: SetService, staged: StagedSet, log: Log, answer: Answer) -> None:
        super().__init__(service, staged.producer.group, staged.producer.name, answer)
        self._staged = staged
        self._log = log

    def _judge(self) -> Unit:
        staged = self._staged
        if self.producer.deciding is not None or staged.busy is not None:
            return self._wait()
        parts = [] if staged.state is None else [*staged.parts.values()][:1]
        return [self._log, *[Configure(part.queue_id, settings_of(part)) for part in parts]]

    def _done(self) -> None:
        """Nothing waits for it."""


class SealSet(SetJob):
    """A set is complete: nothing more is staged in it, and it can be committed."""

    def __init__(self, service: SetService, group: str, request: SealRequest, answer: Answer) -> None:
        super().__init__(service, group, request.producer, answer)
        self._request = request
        self._sealed: StagedSet | None = None
        self._waited = False

    def _judge(self) -> Unit:
        self._sealed = None
        request, producer = self._request, self.producer
        staged = producer.of_epoch(request.set_id, request.epoch)
        if producer.deciding is not None or (staged is not None and staged.busy is not None):
            return self._wait()
        if staged is not None and staged.under_way and not self._waited:
            self._waited = True  # once: who goes on staging while it seals is told a mismatch
            return self._wait()
        answer = decide_epoch(self.service.epoch_state(producer, request.epoch), EpochInput.SEAL)
        if answer is SetAnswer.DONE:
            answer, _ = decide_set(None if staged is None else staged.state, self._what(staged))
        if answer is SetAnswer.REPEAT:
            return []
        if answer is SetAnswer.PREPARED and staged is not None:
            return self._refuse(prepared_error(staged, request.home))
        if answer is not SetAnswer.DONE or staged is None:
            named = Winner(request.set_id, request.count, request.checksum)
            return self._refuse(refusal(answer, request.set_id, request.epoch, named, staged))
        return self._seal(staged)

    def _what(self, staged: StagedSet | None) -> SetInput:
        request = self._request
        if staged is None or staged.store or staged.under_way:
            return SetInput.SEAL_OTHER
        if not staged.is_as(request.count, request.checksum):
            return SetInput.SEAL_OTHER
        for_home = request.home and staged.home in ("", request.home)
        return SetInput.PREPARE if for_home else SetInput.SEAL_SAME

    def _seal(self, staged: StagedSet) -> Unit:
        self._sealed = staged
        self._hold(staged, closing=True)
        staged.home = self._request.home
        staged.sealed = Winner(staged.set_id, staged.count, staged.checksum)
        unit: Unit = [Configure(part.queue_id, settings_of(part)) for part in staged.parts.values()]
        fields: dict[str, str | int] = {
            "set_id": staged.set_id,
            "epoch": staged.epoch,
            "count": staged.count,
        }
        if staged.home:
            fields["home"] = staged.home
        unit.append(self.log("set.sealed", self.service.now_ms(), **fields))
        return unit

    def _release(self) -> None:
        staged, self._sealed = self._sealed, None
        if staged is not None and staged.state is SetState.OPEN:
            staged.sealed = None
            staged.home = ""
        super()._release()

    def _done(self) -> None:
        staged = self._sealed
        if staged is not None:
            staged.state = SetState.PREPARED if staged.home else SetState.SEALED
            self._closed = []
            if staged.home:
                self.service.prepared(staged)
