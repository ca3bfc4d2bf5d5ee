"""Puts and resolutions as they come from the wire: a read of many is one job, one unit and one answer.

deliveries of a link --> HalfSink --> HalfRun --writer, one commit with everybody's--> accepted
    one that has to wait for another's change <-- judged again, alone
    a full store                              <-- each again, alone
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amqp_broker.frames import Error, Rejected
from amqp_broker.halves.operations import HalfChange, HalfPut, Posted, refusal_of
from amqp_broker.halves.units import HalfUnit
from amqp_broker.nodes.requests import Request, RequestSink
from amqp_broker.writer import JobRun

if TYPE_CHECKING:
    from amqp_broker.authorisation import Principal
    from amqp_broker.halves.service import HalfService
    from amqp_broker.links import Delivery
    from amqp_broker.nodes.node import Attachment
    from amqp_broker.persistence import Unit
    from amqp_broker.writer import Job

Operations = list[tuple["HalfPut | HalfChange", "Delivery"]]
Answers = list[tuple[Any, "list[Delivery]"]]
"""Outcomes, each with those that it is for."""


class HalfSink(RequestSink):
    """Base: one link that puts or resolves half messages."""

    unsettled_only = True

    def __init__(self, attachment: Attachment, service: HalfService) -> None:
        super().__init__(attachment)
        self.service = service

    def operation(
        self, payload: bytes, message_format: int, principal: Principal, container_id: str
    ) -> HalfPut | HalfChange | Error | None:
        """What a message asks for, if it can be part of a run; or what its sender is told."""
        return None

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """A read of them is one run, but for what is settled, in a transaction, or no plain put or
        resolution.
        """
        principal, container_id = self.connection.principal, self.connection.container_id
        run: Operations = []
        for delivery in deliveries:
            if self.ended:
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
            else:
                Request(self, delivery).answer(Rejected(error=operation))
        self._submit(run)

    def _submit(self, run: Operations) -> None:
        if run:
            self.service.collect(HalfRun(self, self.service, run))

    def answered(self, answers: Answers) -> None:
        """From any task: what became of the messages of a run."""
        self.connection.run_in_turn(self._answer, answers)

    def _answer(self, answers: Answers) -> None:
        if self.attached:
            for outcome, deliveries in answers:
                self.link.settle(deliveries, outcome)
                self.processed(len(deliveries))


class HalfRun(JobRun):
    """Operations on half messages of one group, stored together."""

    __slots__ = ("_owner", "_run", "_service")

    def __init__(self, owner: HalfSink, service: HalfService, run: Operations) -> None:
        self._owner = owner
        self._service = service
        self._run = run

    def unit(self) -> Unit:
        service = self._service
        unit = HalfUnit(service.now_ms())
        looked = service.look_up(self._run[0][0].group, [operation.half_id for operation, _ in self._run])
        for operation, _ in self._run:
            operation.judge(unit, looked)
        return unit.verbs()

    def withdraw(self) -> None:
        """Nothing was stored."""
        for operation, _ in reversed(self._run):
            operation.withdraw()

    def keeps(self) -> bool:
        """The asker is told that there is no room."""
        return False

    def parts(self) -> list[Job]:
        if len(self._run) == 1:
            return [self]
        for operation, _ in self._run:
            operation.again()
        return [HalfRun(self._owner, self._service, [each]) for each in self._run]

    def finished(self, error: Exception | None) -> None:
        if error is not None:
            for operation, _ in self._run:
                operation.rolled_back()
            refused = Rejected(error=refusal_of(error))
            self._owner.answered([(refused, [delivery for _, delivery in self._run])])
            return
        service = self._service
        posted: Posted = {}
        answers: Answers = []
        group = self._run[0][0].group
        counted = service.counted(group.name)
        again: Operations = []
        for each in self._run:
            operation, delivery = each
            if operation.waits:
                again.append(each)
                continue
            operation.done(posted)
            if operation.error is not None:
                counted.refusal(operation.error)
            outcome = operation.outcome()
            if answers and answers[-1][0] is outcome:
                answers[-1][1].append(delivery)
            else:
                answers.append((outcome, [delivery]))
        service.available(posted)
        service.rearm(group)
        if answers:
            self._owner.answered(answers)
        for each in again:
            service.submit(HalfRun(self._owner, service, [each]))
