"""What controllers need beyond the small client in `tests.support`: receivers that tell in which transaction
a message came, and a delivery that is never completed.
"""

from __future__ import annotations

from typing import Final, Self

from amqp_broker.frames import RECEIVER, Attach, Source, Target, TransactionalState, Transfer
from tests.support.controllers import ALL_OUTCOMES
from tests.support.wire_client import WireReceiver, WireSender, WireSession
from tests.support.wire_links import SERIAL

MIXED, SETTLED = 2, 1  # snd-settle-modes
PART: Final = b"\x00Su\xb0\x00\x0f\xff\xff"
"""The beginning of a data section of which more is announced than ever comes."""


class TransactionalReceiver(WireReceiver):
    """A link that can acquire in transactions; `acquired_in` says for each delivery in which it came."""

    def __init__(self, session: WireSession, name: str, handle: int) -> None:
        super().__init__(session, name, handle)
        self.acquired_in: dict[int, bytes] = {}
        self._delivery_id = 0

    @classmethod
    def attach(
        cls,
        session: WireSession,
        name: str,
        queue: str | None,
        *,
        settled: bool = False,
        browses: bool = False,
    ) -> Self:
        """Attach and wait for the answer; with `settled` the broker settles what it sends, and without a
        queue it makes one for this link. Who browses acquires nothing.
        """
        link = cls(session, name, max(session.links, default=-1) + 1)
        attach = Attach(
            name=name,
            handle=link.handle,
            role=RECEIVER,
            snd_settle_mode=SETTLED if settled else MIXED,
            source=Source(
                address=queue,
                dynamic=queue is None,
                outcomes=ALL_OUTCOMES,
                distribution_mode="copy" if browses else None,
            ),
            target=Target(),
        )
        session._attach(link, attach)
        return link

    @property
    def address(self) -> str:
        """Where this link receives from."""
        assert self.remote_attach is not None and isinstance(self.remote_attach.source, Source)
        address = self.remote_attach.source.address
        assert isinstance(address, str)
        return address

    def transfer(self, transfer: Transfer, payload: bytes) -> None:
        """One transfer frame of the peer."""
        if transfer.delivery_id is not None:
            self._delivery_id = transfer.delivery_id
        if isinstance(transfer.state, TransactionalState):
            self.acquired_in[self._delivery_id] = transfer.state.txn_id
        super().transfer(transfer, payload)


def send_incomplete(sender: WireSender, txn_id: bytes) -> None:
    """Queue the first frame of a delivery in a transaction, of which no other is ever sent."""
    session = sender.session
    delivery_id = session.next_delivery_id
    session.next_delivery_id = (delivery_id + 1) % SERIAL
    transfer = Transfer(
        handle=sender.handle,
        delivery_id=delivery_id,
        delivery_tag=delivery_id.to_bytes(4, "big"),
        message_format=0,
        more=True,
        state=TransactionalState(txn_id=txn_id),
    )
    session.put(transfer, PART)
    session.next_outgoing_id = (session.next_outgoing_id + 1) % SERIAL
    session.remote_window -= 1
