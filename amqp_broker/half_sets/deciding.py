"""How sets of half messages end: an epoch is committed, or sets are voided (operations.py has the others)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from amqp_broker.coordinator import Resolver
from amqp_broker.coordinator.half_sets import (
    EpochInput,
    EpochVerdict,
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
from amqp_broker.half_sets.operations import Answer, SetOperation, stored_parts
from amqp_broker.half_sets.reading import PAGE_MESSAGES, named
from amqp_broker.half_sets.requests import CommitRequest, VoidRequest
from amqp_broker.log import Log
from amqp_broker.message_events import put_by_set
from amqp_broker.operations.operation import NotYet, Refused
from amqp_broker.persistence import DecidedSet, DecideEpoch, Decision, DeleteNode, Move, Unit

if TYPE_CHECKING:
    from amqp_broker.half_sets.staged_sets import StagedSets
    from amqp_broker.queue import Queue


class CommitEpoch(SetOperation):
    """The commit of an epoch: its winners come into their queues, in the order named."""

    def __init__(
        self, half_sets: StagedSets, group: str, request: CommitRequest, resolver: Resolver, answer: Answer
    ) -> None:
        super().__init__(half_sets, group, request.producer, answer)
        self._request = request
        self._resolver = resolver
        self._ended: list[StagedSet] = []
        self._moves: list[tuple[Queue, int, SetPart]] = []

    def _unnamed(self) -> list[tuple[Queue, SetPart]]:
        """The parts of winners whose messages the journal is to name, and whose names were not read yet."""
        producer = self.half_sets.known(self.producer.group, self.producer.name)
        unnamed: list[tuple[Queue, SetPart]] = []
        for winner in self._request.winners:
            staged = producer.of_epoch(winner.set_id, self._request.epoch)
            for part in () if staged is None or staged.store else staged.parts.values():
                queue = self.half_sets.destination_of(part)
                if not isinstance(queue, Error) and queue.events and part.put_events is None:
                    unnamed.append((queue, part))
        return unnamed

    def reads_first(self) -> bool:
        """Whether the journal has to name more messages than the loop may read at once: then what others
        ask meanwhile comes before it. Fewer are read where it is judged.
        """
        return sum([part.count for _, part in self._unnamed()]) > PAGE_MESSAGES

    def read_first(self, then: Callable[[], None]) -> None:
        """What it will say of them is known when `then` is called, if nothing is staged meanwhile."""
        self.half_sets.when_named(self._unnamed(), then)

    def _judge(self, now_ms: int) -> Unit:
        self._ended, self._moves = [], []
        request, producer = self._request, self.producer
        answer = decide_epoch(self.half_sets.epoch_state(producer, request.epoch), EpochInput.COMMIT)
        if answer is SetAnswer.REPEAT:
            return self._repeat()
        if answer is not SetAnswer.DONE:
            raise Refused(refusal(answer, "", request.epoch))
        verdict = judge_winners(producer, request.epoch, request.winners, request.coordinator)
        if verdict.answer is not SetAnswer.DONE:
            raise Refused(self._why_not(verdict))
        destinations: list[tuple[Queue, SetPart]] = []
        for part in [part for each in verdict.winners if not each.store for part in stored_parts(each)]:
            target = self.half_sets.destination_of(part)
            if isinstance(target, Error):
                raise Refused(target)
            if target.events and not named(part):
                if part.under_way:
                    raise NotYet  # what is to be named is not stored yet
                self.half_sets.name(target, part)
            destinations.append((target, part))
        return self._decide(verdict.winners, verdict.losers, destinations, now_ms)

    def _repeat(self) -> Unit:
        """What was decided stands; who brings another decision of a coordinator is told so."""
        request = self._request
        if request.coordinator:
            decided = self.half_sets.committed(self.producer, request.epoch)
            chosen = {each.set_id for each in request.winners}
            if decided != chosen:
                raise Refused(other_winners_error(request.epoch, decided, chosen))
        return []

    def _why_not(self, verdict: EpochVerdict) -> Error:
        if verdict.answer is SetAnswer.UNDECIDED:
            return undecided_error(verdict.in_the_way)
        if verdict.answer is SetAnswer.PREPARED:
            return prepared_error(verdict.in_the_way[0], self._request.coordinator)
        winner, epoch = verdict.reason, self._request.epoch
        assert winner is not None, "a refusal names a set"
        found = self.producer.of_epoch(winner.set_id, epoch)
        return refusal(verdict.answer, winner.set_id, epoch, winner, found)

    def _decide(
        self, winners: Sequence[StagedSet], losers: Sequence[StagedSet],
        destinations: Iterable[tuple[Queue, SetPart]], now_ms: int,
    ) -> Unit:  # fmt: skip
        request = self._request
        nowhere = [*losers, *[each for each in winners if each.store]]
        gone = [part for each in nowhere for part in stored_parts(each)]
        voided = [each for each in losers if each.state is not SetState.VOIDED]
        self._ended = [*winners, *losers]
        for staged in self._ended:
            self._set(staged, state=None, end=decided_error(request.epoch))
            self._remove(staged)
        unit: Unit = []
        for queue, part in destinations:
            if not part.count:
                unit.append(DeleteNode(part.queue_id))
                continue
            first_offset = queue.next_offset
            self._moves.append((queue, first_offset, part))
            queue.pending_posts += 1
            self._set(queue, next_offset=first_offset + part.count)
            unit.append(Move(part.queue_id, queue.queue_id, first_offset, now_ms))
            if queue.events:
                unit.extend(self._events_of(part, queue, first_offset, now_ms))
        unit.extend(self._archived())
        unit.extend([DeleteNode(part.queue_id) for part in gone])
        producer, epoch = self.producer, request.epoch
        won = tuple(_decided_set(each) for each in request.winners)
        decision = Decision(producer.group, producer.name, epoch, now_ms, won, request.coordinator)
        producer.decided[epoch] = decision
        self._back.append(partial(producer.decided.pop, epoch, None))
        unit.append(DecideEpoch(decision))
        fields: dict[str, str | int] = {"outcome": "committed", "resolver": self._resolver.value}
        if request.coordinator:
            fields["coordinator"] = request.coordinator
        unit.append(self.journal("epoch.decided", now_ms, epoch=request.epoch, **fields))
        reason = f"epoch {request.epoch} was committed without it"
        for each in voided:
            fields = {"set_id": each.set_id, "epoch": each.epoch, "reason": reason}
            unit.append(self.journal("set.voided", now_ms, **fields))
        return unit

    def _archived(self) -> Unit:
        """Into a log the messages move as one range, which is archived as one."""
        firsts: dict[Log, int] = {}
        for queue, first_offset, _ in self._moves:
            if isinstance(queue, Log):
                firsts.setdefault(queue, first_offset)
        return [log.archive_verb(first, log.next_offset - first) for log, first in firsts.items()]

    def _events_of(self, part: SetPart, queue: Queue, first_offset: int, now_ms: int) -> Unit:
        """The entries of the journal about the messages of a part. Their names were read before, where the
        queue has events.
        """
        if not part.put_events:
            return put_by_set(
                queue, first_offset, part.count, self.producer.group, part.staged.set_id, self.producer.name,
                self._request.epoch, now_ms,
            )  # fmt: skip
        unit: Unit = []
        for before, entry in part.put_events:
            event = entry.event
            first = first_offset + before
            event.at_ms = now_ms
            if event.count == 1:  # what is the same in all entries stands in the fields
                event.fields["offset"] = first
            else:
                event.columns["offset"] = [*range(first, first + event.count)]
            unit.append(entry)
        return unit

    def undo(self) -> None:
        """Memory is as it was before; the numbers of the messages are free again."""
        super().undo()
        moves, self._moves = self._moves, []
        for queue, _, _ in moves:
            queue.pending_posts -= 1

    def _done(self) -> None:
        moves, self._moves = self._moves, []
        self.producer.decided.pop(self._request.epoch, None)
        for queue, first_offset, part in moves:
            queue.pending_posts -= 1
            queue.make_stored_available(
                first_offset, part.count, part.byte_count, may_expire=part.may_expire
            )
        for staged in self._ended:
            self.half_sets.ended(staged)
        for queue in dict.fromkeys([queue for queue, _, _ in moves]):
            self.half_sets.pump(queue)


def _decided_set(winner: Winner) -> DecidedSet:
    known = (winner.set_id, winner.count, winner.checksum)
    return (*known, winner.store) if winner.store else known


class VoidSets(SetOperation):
    """The end of sets that are not wanted: what is in them is gone. With `force` also where their
    coordinator has not decided so.
    """

    def __init__(
        self, half_sets: StagedSets, group: str, request: VoidRequest, resolver: Resolver, reason: str,
        answer: Answer | None, *, force: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(half_sets, group, request.producer, answer)
        self._force = force
        self._request = request
        self._resolver = resolver
        self._reason = reason
        self._ended: list[StagedSet] = []

    def _judge(self, now_ms: int) -> Unit:
        self._ended = []
        producer = self.producer
        found = [producer.sets.get(set_id) for set_id in self._request.sets]
        there = [staged for staged in found if staged is not None]
        absent = set(self._request.sets) - {staged.set_id for staged in there}
        if absent:
            decided = self.half_sets.committed(producer, self._request.epoch) & absent
            for set_id in sorted(decided):
                answer, _ = decide_set(SetState.COMMITTED, SetInput.VOID)
                raise Refused(refusal(answer, set_id, self._request.epoch))
        ending: list[StagedSet] = []
        for staged in there:
            answer, _ = decide_set(staged.state, self._what(staged))
            if answer is SetAnswer.PREPARED:
                raise Refused(prepared_error(staged, self._request.coordinator))
            if answer is SetAnswer.DONE:
                ending.append(staged)
        return self._end(ending, now_ms)

    def _what(self, staged: StagedSet) -> SetInput:
        if self._resolver is Resolver.DEADLINE:
            return SetInput.AGE
        coordinator = self._request.coordinator
        if self._force or (coordinator and staged.coordinator == coordinator):
            return SetInput.VOID_AT_COORDINATOR
        return SetInput.VOID

    def _end(self, ending: list[StagedSet], now_ms: int) -> Unit:
        unit: Unit = []
        gone = [(staged, stored_parts(staged), staged.state) for staged in ending]
        for staged, parts, before in gone:
            why = self._reason or self._resolver.value
            self._set(staged, state=None, end=voided_error(staged, why))
            self._remove(staged)
            self._ended.append(staged)
            unit.extend([DeleteNode(part.queue_id) for part in parts])
            if before is SetState.VOIDED:
                continue  # the log has it
            fields: dict[str, str | int] = {
                "resolver": self._resolver.value,
                "reason": self._reason or self._resolver.value,
            }
            entry = self.journal("set.voided", now_ms, set_id=staged.set_id, epoch=staged.epoch, **fields)
            unit.append(entry)
        return unit

    def waits_for_space(self) -> bool:
        """Nobody waits for what an age ends."""
        return self._answer is None

    def _done(self) -> None:
        for staged in self._ended:
            self.half_sets.ended(staged)
