"""Puts and resolutions as they come from the wire: a read of many is one operation, one unit and one answer.

deliveries of a link --> HalfSink --> HalfRun --writer, one commit with everybody's--> accepted
    the store refuses the unit                <-- each again, alone
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amqp_broker.frames import Error, Rejected
from amqp_broker.halves.known import Posted
from amqp_broker.halves.operations import ACCEPTED, HalfChange, HalfOperation, HalfPut
from amqp_broker.halves.units import HalfUnit
from amqp_broker.nodes.requests import Request, RequestSink, settle_answer
from amqp_broker.operations.operation import Operation, Refused, error_of
from amqp_broker.persistence import RowDamaged

if TYPE_CHECKING:
    from amqp_broker.authorisation import Principal
    from amqp_broker.connection import Connection
    from amqp_broker.halves.groups import HalfGroups
    from amqp_broker.links import Delivery
    from amqp_broker.nodes.node import Attachment
    from amqp_broker.persistence import Unit

Operations = list[tuple["HalfPut | HalfChange", "Delivery"]]
Answers = list[tuple[Any, "list[Delivery]"]]
"""Outcomes, each with the deliveries that it is for."""


class HalfSink(RequestSink):
    """Base: one link that puts or resolves half messages."""

    unsettled_only = True

    def __init__(self, attachment: Attachment, halves: HalfGroups) -> None:
        super().__init__(attachment)
        self.halves = halves

    def operation(
        self, payload: bytes, message_format: int, principal: Principal, container_id: str
    ) -> HalfPut | HalfChange | Error | None:
        """What a message asks for, if it can be part of a run; or what its sender is told."""
        return None

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """Make one run of what was read, except for messages that are settled, in a transaction, or no plain
        put or resolution.
        """
        principal, container_id = self.connection.principal, self.connection.container_id
        run: Operations = []
        for at, delivery in enumerate(deliveries):
            if self.ended:
                self.lose(deliveries[at:])
                break
            operation: HalfPut | HalfChange | Error | None = None
            if not delivery.settled and delivery.state is None:
                operation = self.operation(
                    delivery.payload, delivery.message_format, principal, container_id
                )  # fmt: skip
            if isinstance(operation, HalfPut | HalfChange):
                run.append((operation, delivery))
                continue
            self._submit(run)
            run = []
            if operation is None:
                super().on_deliveries([delivery])
                if self.held(deliveries[at + 1 :]):
                    return
            else:
                Request(self, delivery).answer(Rejected(error=operation))
        self._submit(run)

    def _submit(self, run: Operations) -> None:
        if run:
            self.halves.collect(HalfRun(self, self.halves, run))

    def answered(self, answers: Answers) -> None:
        """Called in any task with what became of the messages of a run."""
        self.connection.run_in_turn(self._answer, answers)

    def _answer(self, answers: Answers) -> None:
        if self.attached:
            for outcome, deliveries in answers:
                settle_answer(self.link, deliveries, outcome)
                self.processed(len(deliveries))


class HalfRun(Operation):
    """Operations on half messages of one group, stored together; each has an outcome of its own."""

    __slots__ = ("_halves", "_refusals", "_run", "_sink")

    def __init__(self, sink: HalfSink, halves: HalfGroups, run: Operations) -> None:
        self._sink = sink
        self._halves = halves
        self._run = run
        self._refusals: dict[HalfOperation, Exception] = {}

    def prepare(self, now_ms: int) -> Unit:
        """Judge each operation after the ones before it."""
        halves = self._halves
        unit = HalfUnit(now_ms)
        half_ids = [operation.half_id for operation, _ in self._run]
        stored_halves = halves.look_up(self._run[0][0].group, half_ids)
        self._refusals = {}
        for operation, _ in self._run:
            try:
                operation.judge(unit, stored_halves)
            except (Refused, RowDamaged) as refusal:
                self._refusals[operation] = refusal
        return unit.verbs()

    def undo(self) -> None:
        """Undo the operations, the last one first."""
        for operation, _ in reversed(self._run):
            operation.undo()

    def parts(self) -> list[Operation]:
        """One run for each operation."""
        if len(self._run) == 1:
            return [self]
        return [HalfRun(self._sink, self._halves, [each]) for each in self._run]

    def stored(self) -> None:
        """Tell the senders their outcomes, in order."""
        halves = self._halves
        posted: Posted = {}
        answers: Answers = []
        group = self._run[0][0].group
        figures = halves.figures(group.name)
        for operation, delivery in self._run:
            outcome: Any = ACCEPTED
            refusal = self._refusals.get(operation)
            if refusal is None:
                operation.done(posted)
            else:
                operation.given_up()
                error = error_of(refusal)
                figures.refusal(error)
                outcome = Rejected(error=error)
            if answers and answers[-1][0] is outcome:
                answers[-1][1].append(delivery)
            else:
                answers.append((outcome, [delivery]))
        halves.available(posted)
        halves.rearm(group)
        self._sink.answered(answers)

    def refused(self, error: Exception) -> None:
        """None of the operations happens; all senders are told."""
        for operation, _ in self._run:
            operation.given_up()
        outcome = Rejected(error=error_of(error))
        self._sink.answered([(outcome, [delivery for _, delivery in self._run])])

    def asking_connection(self) -> Connection | None:
        """The connection of the link that sent the run."""
        return self._sink.connection

    def kept_bytes(self) -> int:
        """The octets of the bodies of half messages."""
        return sum([operation.kept_bytes() for operation, _ in self._run])
