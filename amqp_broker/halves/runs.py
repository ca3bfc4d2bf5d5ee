"""Puts and resolutions as they come from the wire: a read of many is one operation, one unit and one answer.

deliveries of a link --> HalfNodeLink --> HalfRun --writer, one commit with everybody's--> accepted
    the store refuses the unit                <-- each again, alone
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amqp_broker.control_nodes import ControlNodeLink, control_post
from amqp_broker.frames import Error, Rejected
from amqp_broker.halves.operations import ACCEPTED, HalfChange, HalfOperation, HalfPut, Posted
from amqp_broker.halves.units import HalfUnit
from amqp_broker.operations.operation import Operation, Owner, Refused, error_of
from amqp_broker.persistence import RowDamaged

if TYPE_CHECKING:
    from amqp_broker.halves.nodes import HalfPutNode, HalfResolveNode
    from amqp_broker.halves.service import HalfService
    from amqp_broker.link_owner import LinkOwner
    from amqp_broker.links import Delivery, ReceiverLink
    from amqp_broker.persistence import Unit

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

    @property
    def connection(self) -> LinkOwner:
        """Whose link it is."""
        return self._task

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


class HalfRun(Operation):
    """Operations on half messages of one group, stored together; each has an outcome of its own."""

    __slots__ = ("_link", "_owner", "_refusals", "_run", "_service")

    def __init__(
        self, owner: HalfNodeLink, service: HalfService, link: ReceiverLink, run: Operations
    ) -> None:
        self._owner = owner
        self._service = service
        self._link = link
        self._run = run
        self._refusals: dict[HalfOperation, Exception] = {}

    def prepare(self, now_ms: int) -> Unit:
        """Each is judged after the ones before it."""
        service = self._service
        unit = HalfUnit(now_ms)
        looked = service.look_up(self._run[0][0].group, [operation.half_id for operation, _ in self._run])
        self._refusals = {}
        for operation, _ in self._run:
            try:
                operation.judge(unit, looked)
            except (Refused, RowDamaged) as refusal:
                self._refusals[operation] = refusal
        return unit.verbs()

    def undo(self) -> None:
        """The last one first."""
        for operation, _ in reversed(self._run):
            operation.undo()

    def parts(self) -> list[Operation]:
        """Each for itself."""
        if len(self._run) == 1:
            return [self]
        return [HalfRun(self._owner, self._service, self._link, [each]) for each in self._run]

    def stored(self) -> None:
        """All are told, in their order."""
        service = self._service
        posted: Posted = {}
        answers: Answers = []
        group = self._run[0][0].group
        counted = service.counted(group.name)
        for operation, delivery in self._run:
            outcome: Any = ACCEPTED
            refusal = self._refusals.get(operation)
            if refusal is None:
                operation.done(posted)
            else:
                operation.given_up()
                error = error_of(refusal)
                counted.refusal(error)
                outcome = Rejected(error=error)
            if answers and answers[-1][0] is outcome:
                answers[-1][1].append(delivery)
            else:
                answers.append((outcome, [delivery]))
        service.available(posted)
        service.rearm(group)
        self._owner.answered(self._link, answers)

    def refused(self, error: Exception) -> None:
        """None of them happens."""
        for operation, _ in self._run:
            operation.given_up()
        told = Rejected(error=error_of(error))
        self._owner.answered(self._link, [(told, [delivery for _, delivery in self._run])])

    def owner(self) -> Owner | None:
        """The connection of the link."""
        return self._owner.connection
