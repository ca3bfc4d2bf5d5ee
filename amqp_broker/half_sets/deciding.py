"""How sets of half messages end: an epoch is committed, or sets are voided (half_set_jobs has the others)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from amqp_broker.coordinator import (
    EpochInput,
    EpochVerdict,
    Resolver,
    SetAnswer,
    SetInput,
    SetPart,
    SetState,
    StagedSet,
    Winner,
    decide_epoch,
    decide_set,
    judge_winners,
)
from amqp_broker.frames import Error
from amqp_broker.half_sets.answers import (
    decided_error,
    other_winners_error,
    prepared_error,
    refusal,
    undecided_error,
    voided_error,
)
from amqp_broker.half_sets.jobs import Answer, SetJob
from amqp_broker.half_sets.requests import CommitRequest, VoidRequest
from amqp_broker.jobs import archive_verb
from amqp_broker.message_events import put_by_set
from amqp_broker.persistence import DecidedSet, DecideEpoch, Decision, DeleteNode, Move, Unit

if TYPE_CHECKING:
    from amqp_broker.half_sets.service import SetService
    from amqp_broker.queue import Queue


class CommitEpoch(SetJob):
    """An epoch is decided: its winners are in their queues, in the order named."""

    def __init__(
        self, service: SetService, group: str, request: CommitRequest, resolver: Resolver, answer: Answer
    ) -> None:
        super().__init__(service, group, request.producer, answer)
        self._request = request
        self._resolver = resolver
        self._ended: list[StagedSet] = []
        self._moves: list[tuple[Queue, int, SetPart]] = []
        self._unnamed: list[tuple[Queue, SetPart]] = []

    def _judge(self) -> Unit:
        self._ended, self._moves, self._unnamed = [], [], []
        request, producer = self._request, self.producer
        touched = producer.up_to(request.epoch)
        if producer.deciding is not None or any(each.busy is not None for each in touched):
            return self._wait()
        answer = decide_epoch(self.service.epoch_state(producer, request.epoch), EpochInput.COMMIT)
        if answer is SetAnswer.REPEAT:
            return self._repeat()
        if answer is not SetAnswer.DONE:
            return self._refuse(refusal(answer, "", request.epoch))
        verdict = judge_winners(producer, request.epoch, request.winners, request.home)
        if verdict.answer is not SetAnswer.DONE:
            return self._refuse(self._why_not(verdict))
        here = [staged for staged in verdict.winners if not staged.store]
        parts = [part for staged in here for part in staged.parts.values()]
        placed: list[tuple[Queue, SetPart]] = []
        for part in parts:
            target = self.service.destination_of(part)
            if isinstance(target, Error):
                return self._refuse(target)
            placed.append((target, part))
        self._unnamed = [each for each in placed if each[0].events and each[1].told is None]
        if self._unnamed:
            return self._wait()
        return self._decide(verdict.winners, verdict.losers, placed)

    def _repeat(self) -> Unit:
        """What was decided stands; who brings the word of a home is told when that says otherwise."""
        request = self._request
        if request.home:
            decided = self.service.committed(self.producer, request.epoch)
            named = {each.set_id for each in request.winners}
            if decided != named:
                return self._refuse(other_winners_error(request.epoch, decided, named))
        return []

    def _why_not(self, verdict: EpochVerdict) -> Error:
        if verdict.answer is SetAnswer.UNDECIDED:
            return undecided_error(verdict.in_the_way)
        if verdict.answer is SetAnswer.PREPARED:
            return prepared_error(verdict.in_the_way[0], self._request.home)
        named, epoch = verdict.reason, self._request.epoch
        assert named is not None, "a refusal names a set"
        found = self.producer.of_epoch(named.set_id, epoch)
        return refusal(verdict.answer, named.set_id, epoch, named, found)

    def finished(self, error: Exception | None) -> None:
        """After the commit; or the names of the messages are read first, for the event log."""
        unnamed, self._unnamed = self._unnamed, []
        if error is None and unnamed:
            self.service.when_named(unnamed, partial(self.service.submit, self))
        else:
            super().finished(error)

    def _decide(
        self, winners: Sequence[StagedSet], losers: Sequence[StagedSet],
        placed: Iterable[tuple[Queue, SetPart]],
    ) -> Unit:  # fmt: skip
        request = self._request
        now_ms = self.service.now_ms()
        self.producer.deciding = self
        self._ended = [*winners, *losers]
        for staged in self._ended:
            self._hold(staged, closing=True)
        unit: Unit = []
        for queue, part in placed:
            if not part.count:
                unit.append(DeleteNode(part.queue_id))
                continue
            first_offset = queue.next_offset
            self._moves.append((queue, first_offset, part))
            queue.pending_posts += 1
            queue.next_offset = first_offset + part.count
            unit.append(Move(part.queue_id, queue.queue_id, first_offset, now_ms))
            if queue.events:
                unit.extend(self._events_of(part, queue, first_offset, now_ms))
        unit.extend(self._archived())
        nowhere = [*losers, *[each for each in winners if each.store]]
        unit.extend([DeleteNode(part.queue_id) for each in nowhere for part in each.parts.values()])
        named = tuple(_decided_set(each) for each in request.winners)
        decision = Decision(
            self.producer.group, self.producer.name, request.epoch, now_ms, named, request.home
        )
        unit.append(DecideEpoch(decision))
        fields: dict[str, str | int] = {"outcome": "committed", "resolver": self._resolver.value}
        if request.home:
            fields["home"] = request.home
        unit.append(self.log("epoch.decided", now_ms, epoch=request.epoch, **fields))
        reason = f"epoch {request.epoch} was committed without it"
        for each in losers:
            if each.state is not SetState.VOIDED:
                unit.append(
                    self.log("set.voided", now_ms, set_id=each.set_id, epoch=each.epoch, reason=reason)
                )
        return unit

    def _archived(self) -> Unit:
        """Into a log the messages move as one range, which is archived as one."""
        firsts: dict[Queue, int] = {}
        for queue, first_offset, _ in self._moves:
            if queue.archives:
                firsts.setdefault(queue, first_offset)
        return [archive_verb(queue, first, queue.next_offset - first) for queue, first in firsts.items()]

    def _events_of(self, part: SetPart, queue: Queue, first_offset: int, now_ms: int) -> Unit:
        """What the messages are called was read before; only a queue with events pays that."""
        if not part.told:
            return put_by_set(
                queue, first_offset, part.count, self.producer.group, part.owner.set_id, self.producer.name,
                self._request.epoch, now_ms,
            )  # fmt: skip
        unit: Unit = []
        for before, log in part.told:
            event = log.event
            first = first_offset + before
            event.at_ms = now_ms
            if event.count == 1:  # what is the same in all entries stands in the fields
                event.fields["offset"] = first
            else:
                event.columns["offset"] = [*range(first, first + event.count)]
            unit.append(log)
        return unit

    def withdraw(self) -> None:
        """Nothing was stored: the numbers are free again."""
        for queue, first_offset, _ in reversed(self._moves):
            queue.next_offset = first_offset
        self._release()

    def _release(self) -> None:
        for queue, first_offset, part in reversed(self._moves):
            queue.pending_posts -= 1
            if self.error is not None and queue.next_offset == first_offset + part.count:
                queue.next_offset = first_offset  # refused for itself, and nobody was numbered after it
        self._moves = []
        super()._release()

    def _done(self) -> None:
        moves = list(self._moves)
        for queue, first_offset, part in moves:
            queue.make_stored_available(first_offset, part.count, part.byte_count)
            if part.may_expire and not queue.archives:
                queue.may_expire(first_offset, first_offset + part.count)
        for staged in self._ended:
            self.service.ended(staged, decided_error(self._request.epoch))
        for queue in dict.fromkeys([queue for queue, _, _ in moves]):
            self.service.pump(queue)


def _decided_set(winner: Winner) -> DecidedSet:
    known = (winner.set_id, winner.count, winner.checksum)
    return (*known, winner.store) if winner.store else known


class VoidSets(SetJob):
    """Sets are not wanted; what is in them is gone. By `force` also without the word of their home."""

    def __init__(
        self, service: SetService, group: str, request: VoidRequest, resolver: Resolver, reason: str,
        answer: Answer, *, force: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(service, group, request.producer, answer)
        self._force = force
        self._request = request
        self._resolver = resolver
        self._reason = reason
        self._ended: list[StagedSet] = []

    def _judge(self) -> Unit:
        self._ended = []
        producer = self.producer
        found = [producer.sets.get(set_id) for set_id in self._request.sets]
        there = [staged for staged in found if staged is not None]
        if producer.deciding is not None or any(staged.busy is not None for staged in there):
            return self._wait()
        absent = set(self._request.sets) - {staged.set_id for staged in there}
        if absent:
            decided = self.service.committed(producer, self._request.epoch) & absent
            for set_id in decided:
                answer, _ = decide_set(SetState.COMMITTED, SetInput.VOID)
                return self._refuse(refusal(answer, set_id, self._request.epoch))
        ending: list[StagedSet] = []
        for staged in there:
            answer, _ = decide_set(staged.state, self._what(staged))
            if answer is SetAnswer.PREPARED:
                return self._refuse(prepared_error(staged, self._request.home))
            if answer is SetAnswer.DONE:
                ending.append(staged)
        return self._end(ending)

    def _what(self, staged: StagedSet) -> SetInput:
        if self._resolver is Resolver.DEADLINE:
            return SetInput.AGE
        home = self._request.home
        return SetInput.VOID_AT_HOME if self._force or (home and staged.home == home) else SetInput.VOID

    def _end(self, ending: Iterable[StagedSet]) -> Unit:
        now_ms = self.service.now_ms()
        unit: Unit = []
        for staged in ending:
            self._hold(staged, closing=True)
            self._ended.append(staged)
            unit.extend([DeleteNode(part.queue_id) for part in staged.parts.values()])
            if staged.state is SetState.VOIDED:
                continue  # the log has it
            fields: dict[str, str | int] = {
                "resolver": self._resolver.value,
                "reason": self._reason or self._resolver.value,
            }
            log = self.log("set.voided", now_ms, set_id=staged.set_id, epoch=staged.epoch, **fields)
            unit.append(log)
        return unit

    def _done(self) -> None:
        for staged in self._ended:
            self.service.ended(staged, voided_error(staged, self._reason or self._resolver.value))
