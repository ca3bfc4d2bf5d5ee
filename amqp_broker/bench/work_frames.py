"""Prepared frames of a controller: declare, postings, retirements and discharge (4.5).

    posting      transfer: delivery-id, tag, state: txn-id | header | data: run number time abc...
    retirement   disposition: first, last, state: txn-id, accepted
    control      transfer: delivery-id, tag | amqp-value: declare, or discharge: txn-id

How long a txn-id is becomes known with the first one that the broker gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amqp_broker.bench.sender import message_of, transfers
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.bench.stencil import ID, LAST_ID, Stencil
from amqp_broker.bench.wire import BenchError
from amqp_broker.frames import (
    RECEIVER,
    Accepted,
    Declare,
    Discharge,
    Disposition,
    TransactionalState,
    encode_frame,
    encode_message,
)


def control_transfer(handle: int, request: Declare | Discharge, max_frame_size: int) -> bytes:
    """A message to the coordinator; it is not settled (4.2)."""
    return b"".join(transfers(encode_message(body=request), max_frame_size, handle=handle, settled=False))


def with_txn_id(make: Callable[[bytes], bytes], size: int) -> Stencil:
    """A stencil of what `make` gives for a txn-id of this size.

    An id may be as short as it likes, so it is found by where two of them differ.
    """
    data, other = make(bytes(size)), make(bytes([255]) * size)
    at = next((at for at, octet in enumerate(data) if octet != other[at]), 0)
    return Stencil.marked(data, txn_id=[(at, size)])


class WorkFrames:
    """The frames of transactions whose txn-ids have one length."""

    def __init__(
        self, settings: BenchSettings, control: int, posting: int, txn_id_size: int, max_frame_size: int
    ) -> None:
        """`control` and `posting` are the handles of the two links."""
        self.txn_id_size = txn_id_size
        message = message_of(settings)

        def post(txn_id: bytes) -> bytes:
            fields: dict[str, Any] = {"settled": settings.settled, "state": TransactionalState(txn_id=txn_id)}
            frames = transfers(message, max_frame_size - txn_id_size, handle=posting, **fields)
            if len(frames) > 1:
                raise BenchError(
                    f"a posting of {len(message)} bytes does not fit into the broker's frames of "
                    f"{max_frame_size}: transactions need a smaller --body"
                )
            return frames[0]

        def retire(txn_id: bytes) -> bytes:
            state = TransactionalState(txn_id=txn_id, outcome=Accepted())
            return encode_frame(
                0,
                Disposition(
                    role=RECEIVER, first=ID, last=LAST_ID, settled=settings.retire_settled, state=state
                ),
            )

        def end(fail: bool) -> Callable[[bytes], bytes]:
            return lambda txn_id: control_transfer(
                control, Discharge(txn_id=txn_id, fail=fail), max_frame_size
            )

        self._posting = with_txn_id(post, txn_id_size)
        self._retirement = with_txn_id(retire, txn_id_size)
        self._discharges = [with_txn_id(end(fail), txn_id_size) for fail in (False, True)]
        self.block = min(settings.in_each, self._posting.block)

    def postings(self, txn_id: bytes, delivery_id: int, number: int, count: int, now_ns: int) -> bytearray:
        """At most `block` transfers with consecutive delivery-ids and numbers."""
        return self._posting.fill(count, txn_id=txn_id, now_ns=now_ns, id=delivery_id, number=number)

    def retirement(self, txn_id: bytes, first: int, last: int) -> bytearray:
        """Accepted within the transaction, from first to last (4.4.2)."""
        return self._retirement.fill(1, txn_id=txn_id, id=first, last=last)

    def discharge(self, txn_id: bytes, delivery_id: int, fail: bool) -> bytearray:
        """The end of the transaction (4.5.3)."""
        return self._discharges[fail].fill(1, txn_id=txn_id, id=delivery_id)
