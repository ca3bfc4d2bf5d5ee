"""A transaction controller on the frame-level peer: a control link, declare and discharge."""

from __future__ import annotations

from amqp_broker.frames import (
    Accepted,
    AmqpValue,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Source,
    encode_message,
)
from amqp_broker.testing.peer import PeerSession

ALL_OUTCOMES = ("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list")


class Controller:
    """One control link. `outcomes` are what its source offers; without `rejected` failures detach it
    (4.3).
    """

    def __init__(
        self, session: PeerSession, name: str = "control", outcomes: tuple[str, ...] = ALL_OUTCOMES
    ) -> None:
        self.session = session
        source = Source(outcomes=outcomes)
        self.link = session.attach_sender(name, None, source=source, target=Coordinator())

    def declare(self) -> bytes:
        """The txn-id of a new transaction."""
        state = self.answer(self.ask(Declare()))
        assert isinstance(state, Declared), f"expected declared, got {state!r}"
        return state.txn_id

    def discharge(self, txn_id: bytes, *, fail: bool = False) -> object:
        """Discharge and wait; returns the outcome."""
        return self.answer(self.ask(Discharge(txn_id=txn_id, fail=fail)))

    def commit(self, txn_id: bytes) -> None:
        """Discharge, which has to be accepted."""
        state = self.discharge(txn_id)
        assert isinstance(state, Accepted), f"expected accepted, got {state!r}"

    def roll_back(self, txn_id: bytes) -> None:
        """Discharge with fail=true, which always succeeds (4.3)."""
        state = self.discharge(txn_id, fail=True)
        assert isinstance(state, Accepted), f"expected accepted, got {state!r}"

    def ask(self, request: Declare | Discharge) -> int:
        """Send a declare or discharge; returns its delivery id."""
        self.session.connection.pump_until(lambda: self.link.may_send)
        return self.link.send(encode_message(body=AmqpValue(request)))

    def answer(self, delivery_id: int) -> object:
        """Wait for the outcome of what `ask` sent."""
        self.session.connection.pump_until(lambda: delivery_id in self.link.outcomes)
        return self.link.outcomes[delivery_id]
