"""The links of the small client in `wire_client`: sending, receiving, and what arrived."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from amqp_broker.frames import (
    RECEIVER,
    Accepted,
    Attach,
    Detach,
    Disposition,
    Modified,
    Received,
    Rejected,
    Released,
    TransactionalState,
    Transfer,
)

if TYPE_CHECKING:
    from tests.support.wire_client import WireSession

MAX_FRAME_SIZE: Final = 65_536
TRANSFER_ROOM_BYTES: Final = 64
"""Room for the frame header and the performative in a transfer that is split."""

SERIAL: Final = 2**32
Outcome = Accepted | Rejected | Released | Modified | Received | TransactionalState


class Arrived:
    """One complete incoming delivery: `payload` is the whole message."""

    __slots__ = ("delivery_id", "delivery_tag", "payload", "settled")

    def __init__(self, delivery_id: int, delivery_tag: bytes, settled: bool) -> None:
        self.delivery_id = delivery_id
        self.delivery_tag = delivery_tag
        self.payload = b""
        self.settled = settled


class WireSender:
    """A link on which we send."""

    def __init__(self, session: WireSession, name: str, handle: int) -> None:
        self.session = session
        self.name = name
        self.handle = handle
        self.remote_attach: Attach | None = None
        self.detached: Detach | None = None
        self.credit = 0
        self.delivery_count = 0
        self.outcomes: dict[int, object] = {}
        """The latest delivery-state of each delivery that has one, by delivery id."""
        self.settled: deque[int] = deque()
        """Delivery ids in the order in which the peer settled them."""

    @property
    def may_send(self) -> bool:
        """There is credit and room in the peer's window."""
        return self.credit > 0 and self.session.remote_window > 0

    def send(
        self,
        payload: bytes,
        *,
        settled: bool = False,
        tag: bytes | None = None,
        message_format: int = 0,
        txn_id: bytes | None = None,
        batchable: bool = False,
    ) -> int:
        """Queue one delivery, in as many frames as it takes; returns its delivery id. Needs `may_send`.

        With a txn-id it is posted in that transaction; `batchable`: its outcome is not urgent (2.7.5).
        """
        session = self.session
        assert self.may_send, f"link {self.name}: credit {self.credit}, window {session.remote_window}"
        delivery_id = session.next_delivery_id
        session.next_delivery_id = (delivery_id + 1) % SERIAL
        self.delivery_count = (self.delivery_count + 1) % SERIAL
        self.credit -= 1
        if not settled:
            session.senders[delivery_id] = self
        remote_open = session.connection.remote_open
        assert remote_open is not None
        room = min(remote_open.max_frame_size, MAX_FRAME_SIZE) - TRANSFER_ROOM_BYTES
        pieces = [payload[at : at + room] for at in range(0, len(payload), room)] or [b""]
        for number, piece in enumerate(pieces):
            transfer = Transfer(
                handle=self.handle,
                delivery_id=delivery_id,
                delivery_tag=delivery_id.to_bytes(4, "big") if tag is None else tag,
                message_format=message_format,
                settled=settled,
                more=number + 1 < len(pieces),
                batchable=batchable,
                state=None if txn_id is None else TransactionalState(txn_id=txn_id),
            )
            session.put(transfer, piece)
            session.next_outgoing_id = (session.next_outgoing_id + 1) % SERIAL
            session.remote_window -= 1
        return delivery_id

    def detach(self, *, closed: bool = True) -> None:
        """Detach and wait for the answer."""
        _detach(self, closed)


class WireReceiver:
    """A link on which we receive."""

    def __init__(self, session: WireSession, name: str, handle: int) -> None:
        self.session = session
        self.name = name
        self.handle = handle
        self.remote_attach: Attach | None = None
        self.detached: Detach | None = None
        self.credit = 0
        self.drain = False
        self.delivery_count = 0
        self.deliveries: deque[Arrived] = deque()
        """Complete deliveries in order; the test takes them."""
        self.confirmed: deque[int] = deque()
        """Delivery ids in the order in which the peer settled them after our unsettled outcome."""
        self._partial: Arrived | None = None

    @property
    def half_here(self) -> bool:
        """The first frame of a delivery came, and more of it is to come."""
        return self._partial is not None

    @property
    def used_up(self) -> bool:
        """No credit is left, and each delivery that took some is complete. `credit` alone does not say that,
        because a delivery takes its credit with its first frame.
        """
        return self.credit <= 0 and not self.half_here

    def drain_all(self, credit: int) -> None:
        """Ask for what the peer has, up to `credit`, and wait until all of that is in `deliveries`."""
        self.flow(credit, drain=True)
        self.session.connection.pump_until(lambda: self.used_up)

    def flow(self, credit: int, *, drain: bool = False, txn_id: bytes | None = None) -> None:
        """Set the credit; with `drain` the peer sends what it has and then uses up the rest.

        With a txn-id what is sent from now on is acquired in that transaction; b"" ends that.
        """
        self.credit = credit
        self.drain = drain
        properties: dict[str, object] | None = None
        if txn_id is not None:
            properties = {"txn-id": txn_id} if txn_id else {}
        self.session.flow(self, properties=properties)

    def settle(
        self, deliveries: Sequence[Arrived] | Iterable[int], state: Outcome, *, settled: bool = True
    ) -> None:
        """Give deliveries (or delivery ids) an outcome: one disposition for each run of consecutive ids."""
        ids = [item if isinstance(item, int) else item.delivery_id for item in deliveries]
        start = 0
        for index in range(1, len(ids) + 1):
            if index == len(ids) or ids[index] != ids[index - 1] + 1:
                disposition = Disposition(
                    role=RECEIVER, first=ids[start], last=ids[index - 1], settled=settled, state=state
                )
                self.session.put(disposition)
                start = index
        if settled:
            for delivery_id in ids:
                self.session.receivers.pop(delivery_id, None)

    def transfer(self, transfer: Transfer, payload: bytes) -> None:
        """One transfer frame of the peer."""
        arrived = self._partial
        if arrived is None:
            assert transfer.delivery_id is not None, "the first transfer of a delivery has no delivery-id"
            arrived = Arrived(transfer.delivery_id, transfer.delivery_tag or b"", bool(transfer.settled))
            # With its first frame: a flow between its frames has counted it, too (2.6.7).
            self.credit -= 1
            self.delivery_count = (self.delivery_count + 1) % SERIAL
        arrived.payload += payload
        arrived.settled |= bool(transfer.settled)
        self._partial = arrived if transfer.more and not transfer.aborted else None
        if transfer.more and not transfer.aborted:
            return
        if not transfer.aborted:
            self.deliveries.append(arrived)
            if not arrived.settled:
                self.session.receivers[arrived.delivery_id] = self

    def detach(self, *, closed: bool = True) -> None:
        """Detach and wait for the answer."""
        _detach(self, closed)


def _detach(link: WireSender | WireReceiver, closed: bool) -> None:
    link.session.put(Detach(handle=link.handle, closed=closed))
    link.session.connection.pump_until(lambda: link.detached is not None)
    del link.session.links[link.handle]
