"""What runs of transfers are read into: deliveries, and what those of a run have in common."""

from __future__ import annotations

from typing import Any


class Delivery:
    """One complete incoming delivery: the whole message as its bytes, and what its transfers said about it
    (2.7.5).

    `delivery_id` is the wire's number (32 bits). `state` is the decoded delivery-state of the transfer, or
    None. `rcv_settle_mode` is what holds for this delivery: its own, or the link's.
    """

    __slots__ = (
        "delivery_id", "delivery_tag", "message_format", "settled", "payload", "state", "rcv_settle_mode",
        "batchable",
    )  # fmt: skip

    def __init__(
        self,
        delivery_id: int,
        delivery_tag: bytes,
        message_format: int,
        settled: bool,
        payload: bytes,
        state: object,
        rcv_settle_mode: int,
        batchable: bool,
    ) -> None:
        self.delivery_id = delivery_id
        self.delivery_tag = delivery_tag
        self.message_format = message_format
        self.settled = settled
        self.payload = payload
        self.state = state
        self.rcv_settle_mode = rcv_settle_mode
        self.batchable = batchable

    @property
    def txn_id(self) -> bytes | None:
        """The opaque txn-id when the state is a transactional-state (4.5.4), else None."""
        txn_id: bytes | None = getattr(self.state, "txn_id", None)
        return txn_id

    @property
    def outcome(self) -> object:
        """The outcome inside a transactional-state, or the state itself."""
        return getattr(self.state, "outcome", None) if self.txn_id is not None else self.state

    def __repr__(self) -> str:
        settled = " settled" if self.settled else ""
        return f"<Delivery {self.delivery_id}{settled} {len(self.payload)} bytes>"


class TransferShape:
    """What a run of transfers has in common: everything but size, delivery-id, delivery-tag and payload.

    `channel` and `handle` are part of `prefix`; the delivery-id follows it in `number_bytes` octets; `state`
    is the decoded delivery-state that `suffix` encodes.
    """

    __slots__ = (
        "handle", "number_bytes", "prefix", "middle", "suffix", "head_bytes", "unpack", "message_format",
        "settled", "state", "rcv_settle_mode", "batchable",
    )  # fmt: skip

    def __init__(
        self, handle: int, number_bytes: int, prefix: bytes, middle: bytes, suffix: bytes, unpack: Any,
        head_bytes: int, message_format: int, settled: bool, state: object, rcv_settle_mode: int,
        batchable: bool,
    ) -> None:  # fmt: skip
        self.handle = handle
        self.number_bytes = number_bytes
        self.prefix = prefix
        self.middle = middle
        self.suffix = suffix
        self.unpack = unpack
        self.head_bytes = head_bytes
        self.message_format = message_format
        self.settled = settled
        self.state = state
        self.rcv_settle_mode = rcv_settle_mode
        self.batchable = batchable
