"""Puts and resolutions as they come from the wire: a read of many is one job, one unit and one answer.

deliveries of a link --> HalfNodeLink --> HalfRun --writer, one commit with everybody's--> accepted
    one that has to wait for another's change <-- judged again, alone
    a full store                              <-- each again, alone
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amqp_broker.control_nodes import ControlNodeLink, control_post
from amqp_broker.frames import Error, Rejected
from amqp_broker.halves.operations import HalfChange, HalfPut, Posted, refusal_of
from amqp_broker.halves.units import HalfUnit
from amqp_broker.writer import JobRun

if TYPE_CHECKING:
    from amqp_broker.halves.nodes import HalfPutNode, HalfResolveNode
    from amqp_broker.halves.service import HalfService
    from amqp_broker.link_owner import LinkOwner
    from amqp_broker.links import Delivery, ReceiverLink
    from amqp_broker.persistence import Unit
    from amqp_broker.writer import Job

Operations = list[tuple["HalfPut | HalfChange", "Delivery"]]
Answers = list[tuple[Any, "list[Delivery]"]]
"""Outcomes, each with those that it is for."""


class HalfNodeLink(ControlNodeLink):
    """A link of one connection that puts or resolves half messages."""

    def __init__(self, task: LinkOwner, node: HalfPutNode | HalfResolveNode) -> None:
        super().__init__(task, node)
        self._service = node.service
        self._half_node = node
        self._gone = False

    def on_deliveries(self, link: ReceiverLink, deliveries: list[Delivery]) -> None:
        """A read of them is one run, but for what is settled, in a transaction, or no plain put or
        resolution.
        """
        node = self._half_node
        principal, container_id = self._task.principal, self._task.container_id
        run: Operations = []
        for delivery in deliveries:
            if self._ended:
                break
            operation: HalfPut | HalfChange | Error | None = None
            if not delivery.settled and delivery.state is None:
                operation = node.operation(
                    delivery.payload, delivery.message_format, principal, container_id
                )  # fmt: skip
            if isinstance(operation, HalfPut | HalfChange):
                run.append((operation, delivery))
                continue
            self._submit(link, run)
            run = []
            if operation is None:
                super().on_deliveries(link, [delivery])
            else:
                control_post(self._task, link, delivery).answer(Rejected(error=operation))
        self._submit(link, run)

    def _submit(self, link: ReceiverLink, run: Operations) -> None:
        if run:
            self._service.collect(HalfRun(self, self._service, link, run))

    def answered(self, link: ReceiverLink, answers: Answers) -> None:
        """From any task: what became of the messages of a run."""
        self._task.run_in_turn(self._answer, link, answers)

    def _answer(self, link: ReceiverLink, answers: Answers) -> None:
        if not self._gone:
            for outcome, deliveries in answers:
                link.settle(deliveries, outcome)
                link.processed(len(deliveries))

    def on_detached(self, link: ReceiverLink) -> None:
        """Answers that are under way find the link gone."""
        self._gone = True
        super().on_detached(link)


class HalfRun(JobRun):
    """Operations on half messages of one group, stored together."""

    __slots__ = ("_link", "_owner", "_run", "_service")

    def __init__(
        self, owner: HalfNodeLink, service: HalfService, link: ReceiverLink, run: Operations
    ) -> None:
        self._owner = owner
        self._service = service
        self._link = link
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
        return [HalfRun(self._owner, self._service, self._link, [each]) for each in self._run]

    def finished(self, error: Exception | None) -> None:
        if error is not None:
            for operation, _ in self._run:
                operation.rolled_back()
            refused = Rejected(error=refusal_of(error))
            self._owner.answered(self._link, [(refused, [delivery for _, delivery in self._run])])
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
            self._owner.answered(self._link, answers)
        for each in again:
            service.submit(HalfRun(self._owner, service, self._link, [each]))
