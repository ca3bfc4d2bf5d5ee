"""Sets whose messages another store has, which this one decides about (docs/protocols/sets.md).

EnlistSet    a set that is sealed, or will be, in another store: it can win here like any other
VoteSets     the word that such sets never win, so that their store may void them

The word is kept until nothing of the epoch is taken any more, or for the group's maximum age: what is sent
again, or was delayed on its way, brings no set back that was given up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqp_broker.coordinator.half_sets import (
    ELSEWHERE,
    EpochInput,
    EpochState,
    SetAnswer,
    SetInput,
    SetPart,
    SetState,
    StagedSet,
    Winner,
    decide_epoch,
    decide_set,
)
from amqp_broker.half_sets.answers import forgotten_error, other_epoch_error, other_store_error, refusal
from amqp_broker.half_sets.operations import Answer, SetOperation, stored_parts
from amqp_broker.half_sets.requests import SealRequest, VoidRequest
from amqp_broker.half_sets.settings import settings_of
from amqp_broker.operations.operation import Refused
from amqp_broker.persistence import Configure, CreateNode, Unit

if TYPE_CHECKING:
    from amqp_broker.half_sets.staged_sets import StagedSets

VOTE_REASON = "its coordinator voted that it never wins"


class EnlistSet(SetOperation):
    """A set of another store becomes known here, and can be committed."""

    def __init__(
        self, half_sets: StagedSets, group: str, request: SealRequest, container_id: str, answer: Answer
    ) -> None:
        super().__init__(half_sets, group, request.producer, answer)
        self._request = request
        self._container_id = container_id
        self._made: tuple[SetPart, CreateNode] | None = None

    def _judge(self, now_ms: int) -> Unit:
        self._made = None
        request, producer = self._request, self.producer
        staged = producer.sets.get(request.set_id)
        answer = decide_epoch(self.half_sets.epoch_state(producer, request.epoch), EpochInput.SEAL)
        if staged is not None and staged.epoch != request.epoch and answer is SetAnswer.DONE:
            raise Refused(other_epoch_error(staged, request.epoch))
        if answer is SetAnswer.DONE:
            answer, _ = decide_set(None if staged is None else staged.state, self._what(staged))
        if answer is SetAnswer.REPEAT:
            return []
        if answer is not SetAnswer.DONE:
            named = Winner(request.set_id, request.count, request.checksum, request.store)
            raise Refused(refusal(answer, request.set_id, request.epoch, named, staged))
        full = self.half_sets.room_for_part(None)
        if full is not None:
            raise Refused(full)
        return self._enlist(now_ms)

    def _what(self, staged: StagedSet | None) -> SetInput:
        request = self._request
        same = staged is None or (
            staged.store == request.store and staged.is_as(request.count, request.checksum)
        )
        return SetInput.ENLIST if same else SetInput.SEAL_OTHER

    def _enlist(self, now_ms: int) -> Unit:
        request = self._request
        producer, set_id = self.producer, request.set_id
        staged = self.half_sets.new_set(producer, set_id, request.epoch, self._container_id, now_ms)
        staged.state = SetState.SEALED
        staged.sealed = Winner(set_id, request.count, request.checksum)
        staged.store = request.store
        self._add(staged)
        self._made = part, verb = self._make_part(staged, ELSEWHERE)
        part.add(request.count, 0, request.checksum)
        fields: dict[str, str | int] = {
            "set_id": staged.set_id,
            "epoch": staged.epoch,
            "count": 0,  # so many became hidden here
            "store": staged.store,
        }
        return [verb, self.journal("set.sealed", now_ms, **fields)]

    def _done(self) -> None:
        if self._made is not None:
            part, verb = self._made
            part.queue_id = verb.queue_id
            self.half_sets.begin(part.staged)


class VoteSets(SetOperation):
    """The decision that these sets of another store never win."""

    def __init__(self, half_sets: StagedSets, group: str, request: VoidRequest, answer: Answer) -> None:
        super().__init__(half_sets, group, request.producer, answer)
        self._request = request
        self._voted: list[StagedSet] = []
        self._made: list[tuple[SetPart, CreateNode]] = []

    def _judge(self, now_ms: int) -> Unit:
        self._voted, self._made = [], []
        request, producer = self._request, self.producer
        epoch = request.epoch
        assert epoch is not None, "who asks for a word says of which epoch"
        found = {set_id: producer.sets.get(set_id) for set_id in request.sets}
        state = self.half_sets.epoch_state(producer, epoch)
        if state is not EpochState.AHEAD:
            return self._look_back(state, epoch)
        for set_id, staged in found.items():
            answer, _ = decide_set(None if staged is None else staged.state, SetInput.VOTE)
            if staged is not None and staged.epoch != epoch:
                raise Refused(other_epoch_error(staged, epoch))
            if staged is not None and answer is not SetAnswer.REPEAT and staged.store != request.store:
                raise Refused(other_store_error(staged, request.store))
            assert answer in (SetAnswer.DONE, SetAnswer.REPEAT), f"{answer} for set {set_id!r}"
        return self._give_word(found, epoch, now_ms)

    def _look_back(self, state: EpochState, epoch: int) -> Unit:
        """Nothing of this epoch is taken any more: the decision tells who won, if there is one."""
        request = self._request
        if state is EpochState.DECIDED:
            won = self.half_sets.committed(self.producer, epoch).intersection(request.sets)
            if won:
                answer, _ = decide_set(SetState.COMMITTED, SetInput.VOTE)
                raise Refused(refusal(answer, min(won), epoch))
        elif self.half_sets.may_have_forgotten(self.producer, epoch):
            raise Refused(forgotten_error(epoch))
        return []

    def _give_word(self, found: dict[str, StagedSet | None], epoch: int, now_ms: int) -> Unit:
        absent = [set_id for set_id, staged in found.items() if staged is None]
        full = self.half_sets.room_for_part(None, len(absent)) if absent else None
        if full is not None:
            raise Refused(full)
        known = [each for each in found.values() if each is not None and each.state is not SetState.VOIDED]
        parts = [(staged, part) for staged in known for part in stored_parts(staged)]
        unit: Unit = []
        for staged, part in parts:
            self._voted.append(staged)
            unit.append(Configure(part.queue_id, settings_of(part, voided_at_ms=now_ms)))
            deadline_ms = now_ms + self.half_sets.max_age_ms(staged.producer.group)
            self._set(staged, state=SetState.VOIDED, begun_at_ms=now_ms, deadline_ms=deadline_ms)
            fields: dict[str, str | int] = {"resolver": "producer", "reason": VOTE_REASON}
            unit.append(self.journal("set.voided", now_ms, set_id=staged.set_id, epoch=epoch, **fields))
        for set_id in absent:
            unit.append(self._make(set_id, epoch, now_ms))
        return unit

    def _make(self, set_id: str, epoch: int, now_ms: int) -> CreateNode:
        """Nothing is known of it here, and nothing will be."""
        staged = self.half_sets.new_set(self.producer, set_id, epoch, "", now_ms)
        staged.state = SetState.VOIDED
        staged.store = self._request.store
        self._add(staged)
        made = self._make_part(staged, ELSEWHERE)
        self._made.append(made)
        return made[1]

    def _done(self) -> None:
        for staged in self._voted:
            self.half_sets.voted(staged)
        for part, verb in self._made:
            part.queue_id = verb.queue_id
            self.half_sets.begin(part.staged)
