"""Links on which the broker asks about half messages, and those on which parked ones are looked at.

group --assign--> CheckBackSource.ask --mail--> sent in a turn --outcome--> CheckBackAnswer --> writer
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Any, Final

from amqp_broker.connection import Connection
from amqp_broker.coordinator import (
    Asked,
    CheckEffect,
    Checker,
    CheckGiven,
    HalfGroup,
    HalfInput,
    HalfState,
    OpenHalf,
    check_given,
)
from amqp_broker.coordinator.half_sets import OpenSet
from amqp_broker.frames import (
    Error,
    Header,
    Received,
    Rejected,
    Released,
    TransactionalState,
    encode_composite,
)
from amqp_broker.half_sets.asking import write_set_check
from amqp_broker.halves.groups import HalfSource
from amqp_broker.halves.requests import parked_body, write_check
from amqp_broker.operations.operation import Operation, Refused
from amqp_broker.persistence import Unit

if TYPE_CHECKING:
    from amqp_broker.halves.halves import Halves
    from amqp_broker.links import OutgoingDelivery, SenderLink

CHECK_HEADER: Final = encode_composite(Header(durable=False))
RELEASED: Final = Released()


class CheckBack:
    """A message of the broker that asks about a half message, or shows a parked one (`half` None)."""

    __slots__ = ("body", "half", "header_bytes", "message_format")

    def __init__(self, half: OpenHalf | None, body: bytes) -> None:
        self.half = half
        self.header_bytes = CHECK_HEADER
        self.body = body
        self.message_format = 0


def too_large(link: SenderLink, check: CheckBack) -> bool:
    """Whether a check-back must not be sent on `link` (max-message-size, 2.7.3)."""
    largest = link.remote_max_message_size
    return largest > 0 and len(check.header_bytes) + len(check.body) > largest


class CheckBackSource(HalfSource):
    """One link of `$half-check/<group>`; on `by-outcome` an outcome decides."""

    def __init__(
        self, connection: Connection, halves: Halves, group: HalfGroup, link: SenderLink,
        by_outcome: bool,
    ) -> None:  # fmt: skip
        super().__init__(connection, link)
        self._halves = halves
        self._group = group
        self._waiting: deque[CheckBack] = deque()
        self._coming: set[OpenHalf] = set()  # assigned, and their bodies are being read
        self._out: dict[OpenHalf, OutgoingDelivery] = {}
        self._checker = Checker(self, link, connection.container_id, by_outcome)
        group.attach(self._checker)

    # From the group, in any task

    def assigned(self, half: OpenHalf) -> None:
        """The group will ask about `half` here: `ask` follows when its body is there. A drain waits for that.
        """
        self._coming.add(half)

    def ask(self, half: OpenHalf, body: bytes | None) -> None:
        """Ask about `half`, whose stored bytes after the header are `body`, in the connection's next turn.
        Without a body nobody is asked, until the lock is over at least.
        """
        self._coming.discard(half)
        if body is None:
            self.connection.run_in_turn(self._send)  # a drain does not wait for it
            return
        if half.asked_by is not self._checker:  # it was decided or taken back meanwhile
            return
        check = CheckBack(half, self._written(half, body))
        if too_large(self.link, check):
            half.excluded.add(self._checker)
            self._group.answered(half, CheckGiven.LOST, self._checker.by_outcome, self._halves.now_ms())
            self.connection.log.warning("check.too_large", group=self._group.name, **half.names())
            self._halves.rearm(self._group)
            self.connection.run_in_turn(self.on_credit)
            return
        self._waiting.append(check)
        self.connection.run_in_turn(self._send)

    def _written(self, half: OpenHalf, body: bytes) -> bytes:
        """The encoded check-back; a body that makes it too large for the link is left out."""
        now_ms = self._halves.now_ms()
        if isinstance(half, OpenSet):
            deadline_ms = self._halves.shown(half.staged.deadline_ms)
            return write_set_check(self._group.name, half, now_ms, deadline_ms)
        deadline_ms = self._halves.shown(half.deadline_ms)
        check = write_check(self._group.name, half, body, now_ms, deadline_ms)
        if too_large(self.link, CheckBack(half, check)):
            check = write_check(self._group.name, half, body, now_ms, deadline_ms, body_bytes=0)
        return check

    def settle_released(self, half: OpenHalf) -> None:
        """Nobody is to answer for `half` any more: it was decided, or the lock is over."""
        self.connection.run_in_turn(self._release, half)

    # In the connection's turn

    def _send(self) -> None:
        self._send_waiting()
        link = self.link
        if link.drain and link.credit > 0 and not self._waiting and not self._coming:
            link.drained()

    def _send_waiting(self) -> None:
        link = self.link
        while self._waiting and link.sendable():
            check = self._waiting[0]
            first = link.session.next_outgoing_delivery
            if not link.send([check]):
                break
            self._waiting.popleft()
            assert check.half is not None
            check.half.asked_container = self._checker.container_id
            self._out[check.half] = link.session.unsettled_out[first]

    def _release(self, half: OpenHalf) -> None:
        self._coming.discard(half)
        delivery = self._out.pop(half, None)
        if delivery is not None:
            self.link.settle([delivery], RELEASED)
        else:
            self._waiting = deque(check for check in self._waiting if check.half is not half)
        self.on_credit()

    def on_credit(self) -> None:
        """Credit or drain changed, or there is room again."""
        self._send_waiting()
        taken = len(self._waiting) + len(self._coming)
        self._checker.demand = max(0, self.link.sendable() - taken)
        self._halves.ask(self._group)
        if self.link.drain:
            self._checker.demand = 0
            self.connection.run_in_turn(self._send)  # after what was assigned now

    def on_outcomes(self, deliveries: list[OutgoingDelivery], state: Any, settled: bool) -> None:
        """The receiver answered check-backs."""
        if isinstance(state, TransactionalState):
            description = "a check is answered outside of transactions"
            self.lose(deliveries, state, description)
            self.detach(Error(condition="amqp:not-implemented", description=description))
            return
        if state is None or isinstance(state, Received):
            if not settled:
                return
            state = RELEASED  # the source's default outcome
        for delivery in deliveries:
            if not delivery.decided:  # a terminal outcome stands (3.4)
                delivery.decided = True
                self._answered(delivery, state, settled)
        self.on_credit()

    def _answered(self, delivery: OutgoingDelivery, state: Any, settled: bool) -> None:
        half = delivery.message.half
        if self._out.get(half) is not delivery or half.asked_by is not self._checker:
            self.confirm(delivery, RELEASED, settled)  # too late: it was decided, or asked again
            return
        del self._out[half]
        self._group.answer_begins(half)
        answer = CheckBackAnswer(self, self._halves, self._group, delivery, state, settled)
        self._halves.collect(answer)

    def confirm(self, delivery: OutgoingDelivery, state: Any, settled: bool) -> None:
        """Settle an answer that was stored. In a turn of the connection."""
        if not settled:
            self.link.settle([delivery], state)

    def on_detached(self, unsettled: list[OutgoingDelivery], broken: bool) -> None:
        """The link is gone: what it was asked is asked elsewhere, which is no attempt."""
        asked = [*self._out, *[check.half for check in self._waiting if check.half is not None]]
        now_ms = self._halves.now_ms()
        held = self._group.held_by(self._checker)
        self._group.detach(self._checker, dict.fromkeys([*asked, *held]), now_ms)
        self._out.clear()
        self._coming.clear()
        self._waiting.clear()
        self._halves.rearm(self._group)


class CheckBackAnswer(Operation):
    """The outcome of a check-back: an attempt that is kept, a decision, or too late."""

    def __init__(
        self, source: CheckBackSource, halves: Halves, group: HalfGroup, delivery: OutgoingDelivery,
        state: Any, settled: bool,
    ) -> None:  # fmt: skip
        self._source = source
        self._halves = halves
        self._group = group
        self._half: OpenHalf = delivery.message.half
        self._delivery = delivery
        self._state = state
        self._settled = settled
        self._settles_with: Any = RELEASED
        self._before: Asked | None = None
        self._decision: Operation | None = None

    def prepare(self, now_ms: int) -> Unit:
        """Judge what the answer means by now."""
        half, group = self._half, self._group
        self._settles_with = RELEASED
        if not group.holds(half) or not half.undecided:
            return []
        self._before = half.asked()
        half.changes += 1
        checker = half.answering
        assert checker is not None, "an answer is under way"
        effect = group.answered(half, check_given(self._state), checker.by_outcome, now_ms)
        self._settles_with = self._state
        if effect is CheckEffect.NOT_ASKED:
            return []
        if effect is not CheckEffect.ATTEMPT:
            what = HalfInput.COMMIT if effect is CheckEffect.COMMIT else HalfInput.ROLLBACK
            who = self._source.connection.principal.name
            self._decision = self._halves.decision(group, half, what, _reason(self._state), who)
            try:
                return self._decision.prepare(now_ms)
            except Refused:  # a set that its coordinator decides about, say: it is asked about again
                self._undo_decision()
                self._settles_with = RELEASED
                group.attempted(half, now_ms)
        unit = self._halves.attempt(group, half, now_ms)
        if group.ends(half):  # the policy decides in the same commit: nothing comes in between
            self._decision = self._halves.ending(group, half)
            unit = unit + self._decision.prepare(now_ms)
        return unit

    def _undo_decision(self) -> None:
        decision, self._decision = self._decision, None
        if decision is not None:
            decision.undo()

    def undo(self) -> None:
        """The half message is not answered yet."""
        self._undo_decision()
        before, self._before = self._before, None
        if before is not None:
            self._half.become(before)
            self._half.changes -= 1

    def stored(self) -> None:
        """Tell the checker that its outcome holds, or came too late."""
        if self._before is not None:
            self._half.changes -= 1
        if self._decision is not None:
            self._decision.stored()
        self._group.answer_ends(self._half, self._halves.now_ms())
        self._tell(self._settles_with)

    def refused(self, error: Exception) -> None:
        """Nothing was decided: the group asks again."""
        self._half.answering = None
        self._group.put_off(self._half, self._halves.now_ms())
        self._tell(RELEASED)

    def _tell(self, state: Any) -> None:
        self._halves.rearm(self._group)
        source = self._source
        source.connection.run_in_turn(source.confirm, self._delivery, state, self._settled)

    def asking_connection(self) -> Connection | None:
        """The connection of the checker."""
        return self._source.connection


def _reason(state: Any) -> str:
    if isinstance(state, Rejected) and state.error is not None:
        return f"{state.error.condition}: {state.error.description or ''}"
    return ""


class ParkedSource(HalfSource):
    """One link of `$half-parked/<group>`: copies of what is parked, the oldest first, each once until it is
    parked again.
    """

    def __init__(
        self, connection: Connection, halves: Halves, group: HalfGroup, link: SenderLink
    ) -> None:
        super().__init__(connection, link)
        self._halves = halves
        self._group = group
        parked = [half for half in group.open.values() if half.state is HalfState.PARKED]
        self._waiting = OrderedDict.fromkeys(parked)  # its first one is found at once, whatever went before
        self._reading = False
        halves.watch_parked(group, self)

    def on_credit(self) -> None:
        """Show the parked half messages that were not shown yet."""
        if self._reading or not self.link.sendable():
            return
        while self._waiting:
            half = next(iter(self._waiting))
            if half.state is HalfState.PARKED:
                self._reading = True
                self._halves.read_body(self._group, half, self._read)
                return
            del self._waiting[half]
        if self.link.drain:
            self.link.drained()

    def parked(self, half: OpenHalf) -> None:
        """A half message was parked: show it, too."""
        self._waiting[half] = None
        self.connection.run_in_turn(self.on_credit)

    def _read(self, half: OpenHalf, body: bytes | None) -> None:
        self.connection.run_in_turn(self._send, half, body)

    def _send(self, half: OpenHalf, body: bytes | None) -> None:
        self._reading = False
        if half.state is not HalfState.PARKED or body is None or self._showed(half, body):
            self._waiting.pop(half, None)  # also what is damaged: it hides no others
        self.on_credit()

    def _showed(self, half: OpenHalf, body: bytes) -> bool:
        copy = CheckBack(None, parked_body(half, body, self._halves.shown(half.put_at_ms)))
        if too_large(self.link, copy):
            self.connection.log.warning("parked.too_large", group=self._group.name, **half.names())
            return True
        return bool(self.link.send([copy]))

    def on_outcomes(self, deliveries: list[OutgoingDelivery], state: Any, settled: bool) -> None:
        """What is shown is a copy: its outcome has no effect."""
        if not settled and state is not None and not isinstance(state, Received):
            self.link.settle(deliveries, state)
        self.on_credit()

    def on_detached(self, unsettled: list[OutgoingDelivery], broken: bool) -> None:
        """The link is gone; it held nothing."""
        self._halves.forget_watcher(self._group, self)
