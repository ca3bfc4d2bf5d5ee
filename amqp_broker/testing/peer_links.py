"""The links of the frame-level peer in `peer`: sending, receiving, and the deliveries that came."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from amqp_broker.frames import (
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Detach,
    Disposition,
    Flow,
    Modified,
    Received,
    Rejected,
    Released,
    TransactionalState,
    Transfer,
)

if TYPE_CHECKING:
    from amqp_broker.testing.peer import PeerSession

MAX_FRAME_SIZE: Final = 65_536
"""In octets: the largest frame that we take, and that we make of a delivery."""
TRANSFER_ROOM_BYTES: Final = 64
"""Room for the frame header and the performative in a transfer that is split."""

SERIAL: Final = 2**32
"""Ids and delivery-counts are serial numbers of 32 bits (2.8.8)."""
ACCEPTED: Final = Accepted()
Outcome = Accepted | Rejected | Released | Modified | Received | TransactionalState


class Delivery:
    """One incoming delivery: `payload` is the whole message, `state` the last that a transfer of it had,
    `transfer` its first of so many `frames`.
    """

    __slots__ = ("delivery_id", "delivery_tag", "frames", "payload", "settled", "state", "transfer")

    def __init__(self, transfer: Transfer, payload: bytes = b"") -> None:
        assert transfer.delivery_id is not None, "the first transfer of a delivery has no delivery-id"
        self.transfer = transfer
        self.delivery_id = transfer.delivery_id
        self.delivery_tag = transfer.delivery_tag or b""
        self.payload = payload
        self.frames = 0
        self.settled = False
        self.state: object = None


class PeerLink:
    """One of our link endpoints, with its flow state (2.6.7)."""

    role: bool
    """Ours."""

    def __init__(self, session: PeerSession, attach: Attach) -> None:
        self.session = session
        self.name = attach.name
        self.handle = attach.handle
        self.remote_attach: Attach | None = None
        self.detached: Detach | None = None
        """The detach of the other side."""
        self.detach_sent = False
        self.credit = 0
        self.drain = False
        self.delivery_count = attach.initial_delivery_count or 0

    @property
    def remote_terminus(self) -> Any:
        """The other side's terminus as it answered our attach: the source if we receive, else the target."""
        if self.remote_attach is None:
            return None
        return self.remote_attach.source if self.role == RECEIVER else self.remote_attach.target

    @property
    def address(self) -> str:
        """The address of that terminus; empty without one."""
        return str(getattr(self.remote_terminus, "address", None) or "")

    def is_answered_by(self, attach: Attach) -> bool:
        """Whether this attach is the answer to ours (2.6.3)."""
        return self.remote_attach is None and (attach.name, attach.role) == (self.name, not self.role)

    def on_attach(self, attach: Attach) -> None:
        """The answer to our attach."""
        self.remote_attach = attach

    def detach(self, *, closed: bool = True) -> Detach | None:
        """Detach, or close the link; returns the detach of the other side where it was waited for."""
        self.session.put(Detach(handle=self.handle, closed=closed))
        self.session.connection.pump_until(lambda: self.detached is not None)
        return self.detached


class PeerSender(PeerLink):
    """A link on which we send."""

    role = SENDER

    def __init__(self, session: PeerSession, attach: Attach) -> None:
        super().__init__(session, attach)
        self.outcomes: dict[int, object] = {}
        """The latest delivery-state of each delivery that has one, by delivery-id."""
        self.settled: deque[int] = deque()
        """Delivery-ids in the order in which the other side settled them."""
        self.incomplete: int | None = None
        """The delivery-id of a delivery of which more is to be sent."""

    @property
    def may_send(self) -> bool:
        """There is credit, and room in the window of the other side."""
        return self.credit > 0 and self.session.remote_incoming_window > 0

    def send(
        self,
        payload: bytes,
        *,
        txn_id: bytes | None = None,
        more: bool = False,
        frame_octets: int | None = None,
        **fields: Any,
    ) -> int:
        """Put one delivery, in as many frames as it takes; returns its delivery-id. Needs `may_send`.

        With a txn-id it is posted in that transaction. With `more` the delivery goes on with `send_more`.
        `frame_octets` is the most payload of a frame, by default what the other side takes. `fields` change
        the first transfer; a `state` among them stands in each (4.4.1).
        """
        session = self.session
        assert self.may_send or not session.connection.checks_credit, (
            f"link {self.name}: credit {self.credit}, window {session.remote_incoming_window}"
        )
        number = session.next_delivery_id
        state = fields.pop("state", None) if txn_id is None else TransactionalState(txn_id=txn_id)
        first: dict[str, Any] = {"delivery_id": number, "delivery_tag": number.to_bytes(4, "big")}
        first |= {"message_format": 0, "settled": False} | fields
        largest = min(session.connection.remote_max_frame_size, MAX_FRAME_SIZE)
        room = frame_octets or largest - TRANSFER_ROOM_BYTES
        for at in range(0, max(len(payload), 1), room):
            goes_on = more or at + room < len(payload)
            transfer = Transfer(handle=self.handle, more=goes_on, state=state, **{} if at else first)
            session.put(transfer, payload[at : at + room])
        return number

    def send_more(self, payload: bytes = b"", **fields: Any) -> None:
        """Put one more frame of a delivery, its last unless there is `more`; `aborted` takes it back."""
        self.session.put(Transfer(handle=self.handle, **fields), payload)

    def count(self, transfer: Transfer) -> None:
        """Count a transfer of ours. A delivery takes its credit with its first frame (2.6.7)."""
        session = self.session
        if self.incomplete is None and transfer.delivery_id is not None:
            self.incomplete = transfer.delivery_id
            session.next_delivery_id = (transfer.delivery_id + 1) % SERIAL
            self.delivery_count = (self.delivery_count + 1) % SERIAL
            self.credit -= 1
            if not transfer.settled:
                session.sent_unsettled[transfer.delivery_id] = self
        if transfer.aborted and self.incomplete is not None:
            session.sent_unsettled.pop(self.incomplete, None)
        if transfer.aborted or not transfer.more:
            self.incomplete = None

    def on_flow(self, flow: Flow) -> None:
        """What we may send is counted from what the other side had received."""
        received = flow.delivery_count or 0
        self.credit = (flow.link_credit or 0) - (self.delivery_count - received) % SERIAL

    def on_outcome(self, delivery_id: int, disposition: Disposition) -> None:
        """The other side's state of one delivery of ours that was not settled."""
        self.outcomes[delivery_id] = disposition.state
        if disposition.settled:
            del self.session.sent_unsettled[delivery_id]
            self.settled.append(delivery_id)


class PeerReceiver(PeerLink):
    """A link on which we receive."""

    role = RECEIVER

    def __init__(self, session: PeerSession, attach: Attach) -> None:
        super().__init__(session, attach)
        self.deliveries: deque[Delivery] = deque()
        """Complete deliveries in order; the test takes them."""
        self.confirmed: deque[int] = deque()
        """Delivery-ids in the order in which the other side settled them after our unsettled outcome."""
        self.partial: Delivery | None = None
        """The delivery of which more is to come."""

    @property
    def used_up(self) -> bool:
        """No credit is left, and each delivery that took some is complete. `credit` alone does not say that,
        because a delivery takes its credit with its first frame.
        """
        return self.credit <= 0 and self.partial is None

    def drain_all(self, credit: int) -> None:
        """Ask for what the other side has, up to `credit`, and wait until all of that is in `deliveries`."""
        self.flow(credit, drain=True)
        self.session.connection.pump_until(lambda: self.used_up)

    def flow(self, credit: int, *, txn_id: bytes | None = None, **fields: Any) -> None:
        """Set the credit; with `drain` the other side sends what it has and then uses up the rest.

        With a txn-id what is sent from now on is acquired in that transaction; b"" ends that. `fields` change
        the flow.
        """
        properties = None if txn_id is None else {"txn-id": txn_id} if txn_id else {}
        values = {"link_credit": credit, "drain": False, "properties": properties}
        self.session.flow(self, **values | fields)

    def settle(
        self,
        deliveries: Delivery | Iterable[Delivery | int],
        state: Outcome = ACCEPTED,
        *,
        settled: bool = True,
    ) -> None:
        """Give deliveries (or delivery-ids) an outcome: one disposition for each run of consecutive ids."""
        given = [deliveries] if isinstance(deliveries, Delivery) else deliveries
        ids = [item if isinstance(item, int) else item.delivery_id for item in given]
        start = 0
        for end in range(1, len(ids) + 1):
            if end == len(ids) or ids[end] != ids[end - 1] + 1:
                last = ids[end - 1] if end - start > 1 else None
                fields: Any = {"settled": settled, "state": state}
                self.session.put(Disposition(role=RECEIVER, first=ids[start], last=last, **fields))
                start = end

    def on_attach(self, attach: Attach) -> None:
        """The answer to our attach; the sender's delivery-count is the one that both count from."""
        super().on_attach(attach)
        self.delivery_count = attach.initial_delivery_count or 0

    def on_flow(self, flow: Flow) -> None:
        """A drained sender advances its delivery-count until no credit is left (2.6.7). Echo is answered."""
        if self.drain and flow.delivery_count is not None:
            self.credit = max(0, self.credit - (flow.delivery_count - self.delivery_count) % SERIAL)
            self.delivery_count = flow.delivery_count
        if flow.echo and self.session.connection.answers_echo:
            self.session.flow(self)

    def on_transfer(self, transfer: Transfer, payload: bytes) -> None:
        """One transfer of the other side."""
        delivery = self.partial
        if delivery is None:
            delivery = Delivery(transfer)
            # With its first frame: a flow between its frames has counted it, too (2.6.7).
            self.credit -= 1
            self.delivery_count = (self.delivery_count + 1) % SERIAL
        delivery.payload += payload
        delivery.frames += 1
        delivery.settled |= bool(transfer.settled)
        delivery.state = delivery.state if transfer.state is None else transfer.state
        self.partial = delivery if transfer.more and not transfer.aborted else None
        if self.partial is None and not transfer.aborted:
            self.deliveries.append(delivery)
            if not delivery.settled:
                self.session.received_unsettled[delivery.delivery_id] = self
