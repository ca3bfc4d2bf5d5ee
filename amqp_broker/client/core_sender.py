"""A link on which the client sends, and the outcomes of what it sent (2.6.12)."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Any, Final

from amqp_broker.client.core_connection import ConnectionCore, Ending
from amqp_broker.client.core_link import LinkCore
from amqp_broker.client.errors import ClientError, MessageRefused, OutcomeUnknown, WrongUse, shown_outcome
from amqp_broker.client.messages import OutgoingMessage
from amqp_broker.client.pending import Pending
from amqp_broker.frames import (
    SETTLE_MODE_MIXED,
    SETTLE_MODE_SETTLED,
    Accepted,
    Attach,
    Error,
    Modified,
    Rejected,
    Released,
)
from amqp_broker.links import LinkDetached, OutcomesReceived, SenderLink

RUN: Final = 256  # messages offered to the engine at once
WAITING_MAX: Final = 65_536  # messages without credit; a caller that sends more has to wait for some first


class _Sending:
    """A message of the engine's, with who waits for its outcome."""

    __slots__ = ("body", "header_bytes", "message_format", "pending", "settled")

    def __init__(self, content: OutgoingMessage, settled: bool, pending: Pending[Any]) -> None:
        self.header_bytes = b""
        self.body = content.data
        self.message_format = content.message_format
        self.settled = settled
        self.pending = pending


class SenderCore(LinkCore[SenderLink]):
    """One sending link."""

    def __init__(self, connection: ConnectionCore, session: Ending, address: str | None) -> None:
        super().__init__(connection, session, address, "a sender to")
        self._waiting: deque[_Sending] = deque()

    def send(self, content: OutgoingMessage, settled: bool = False) -> Pending[Any]:
        """Sends as soon as there is credit. The answer is Accepted; every other outcome is a MessageRefused.
        For a message that is sent settled, where the link's mode allows, it is None as soon as it left.
        """
        pending: Pending[Any] = self.connection.pending(
            f"the outcome of a message to {self.shown_address}", lambda: self._withdraw(pending)
        )
        error = self._refusal(content, pending.what)
        if error is not None:
            pending.fail(error)
            return pending
        mode = self.link.snd_settle_mode
        settled = mode == SETTLE_MODE_SETTLED or (settled and mode == SETTLE_MODE_MIXED)
        self._waiting.append(_Sending(content, settled, pending))
        if len(self._waiting) == 1:
            self.go_on()
        return pending

    @property
    def waiting(self) -> int:
        """How many messages wait for credit, window or room in the output."""
        return len(self._waiting)

    def go_on(self) -> None:
        """Gives the engine what it takes now."""
        waiting = self._waiting
        while waiting:
            settled = waiting[0].settled
            run = []
            for sending in islice(waiting, RUN):
                if sending.settled is not settled:
                    break
                run.append(sending)
            taken = self.link.send(run, settled)
            for _ in range(taken):
                sending = waiting.popleft()
                if sending.settled:
                    sending.pending.finish(None)
            if taken < len(run):
                break

    def _withdraw(self, pending: Pending[Any]) -> str:
        """The caller does not wait for this outcome any longer."""
        for sending in self._waiting:
            if sending.pending is pending:
                self._waiting.remove(sending)
                return "it was not sent, for want of credit, and will not be"
        return "it was sent, and may be stored, or not"

    # --- for the connection

    def terminus(self, attach: Attach) -> Any:
        """Ours to send to."""
        return attach.target

    def on_credit(self) -> None:
        """There is credit, or it is wanted back."""
        self.go_on()
        if self.link.drain and not self._waiting:
            self.link.drained()

    def on_outcomes(self, event: OutcomesReceived) -> None:
        """The receiver told a state for a run of messages."""
        state = event.state
        terminal = isinstance(state, (Accepted, Rejected, Released, Modified))
        if not terminal and not event.settled:
            return
        if not event.settled:
            self.link.settle(event.deliveries, state)
        for delivery in event.deliveries:
            pending = delivery.message.pending
            if isinstance(state, Accepted):
                pending.finish(state)
            elif terminal:
                error = state.error if isinstance(state, Rejected) else None
                text = f"expected accepted as {pending.what}, but it was {shown_outcome(state)}"
                pending.fail(MessageRefused(text, error, state))
            else:
                why = f"it was settled with {'no outcome' if state is None else type(state).__name__.lower()}"
                pending.fail(_unknown(pending.what, why, None))

    def ended(self, event: LinkDetached) -> None:
        """What was sent has no known outcome; what was not, never was."""
        for delivery in event.unsettled:
            pending = delivery.message.pending
            gone = self.gone_error("it")
            why = str(gone).partition(", but ")[2]
            pending.fail(_unknown(pending.what, why, gone.error))
        for sending in self._waiting:
            sending.pending.fail(self.gone_error(f"{sending.pending.what} (it was not sent)"))
        self._waiting.clear()

    def _refusal(self, content: OutgoingMessage, what: str) -> ClientError | None:
        """Why this cannot be sent."""
        if self.over:
            return self.gone_error(f"{what} (it was not sent)")
        most = self.link.remote_max_message_size
        if most and len(content) > most:
            return WrongUse(f"expected at most {most} octets to {self.shown_address}, found {len(content)}")
        if len(self._waiting) >= WAITING_MAX:
            return WrongUse(f"{WAITING_MAX} messages to {self.shown_address} wait for credit already")
        return None


def _unknown(what: str, why: str, error: Error | None) -> OutcomeUnknown:
    """The error for a message that was sent."""
    return OutcomeUnknown(f"expected {what}, but {why}; it may have been stored, or not", error)
