"""What the fast path reads, as plain classes: deliveries, and the fields of transfers and flows."""

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


class TransferHead:
    """The fields of one transfer (2.7.5); -1 or None where a field was not set.

    `state_at` and `state_end` bound the still encoded delivery-state (`state_at` is -1 without one).
    `number_at` and `tag_at` are where those two fields start in the buffer; `payload_at` is where the payload
    starts.
    """

    __slots__ = (
        "handle", "delivery_id", "delivery_tag", "message_format", "settled", "more", "rcv_settle_mode",
        "state_at", "state_end", "resume", "aborted", "batchable", "number_at", "tag_at", "payload_at",
    )  # fmt: skip

    def __init__(self) -> None:
        self.handle = -1
        self.delivery_id = -1
        self.delivery_tag: bytes | None = None
        self.message_format = -1
        self.settled = -1
        self.more = False
        self.rcv_settle_mode = -1
        self.state_at = -1
        self.state_end = -1
        self.resume = False
        self.aborted = False
        self.batchable = False
        self.number_at = -1
        self.tag_at = -1
        self.payload_at = 0


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


class FlowHead:
    """The fields of one flow (2.7.4); -1 where a field was not set. A flow with properties is left to the
    general decoder.
    """

    __slots__ = (
        "next_incoming_id", "incoming_window", "next_outgoing_id", "outgoing_window", "handle",
        "delivery_count", "link_credit", "available", "drain", "echo",
    )  # fmt: skip

    def __init__(self) -> None:
        self.next_incoming_id = -1
        self.incoming_window = -1
        self.next_outgoing_id = -1
        self.outgoing_window = -1
        self.handle = -1
        self.delivery_count = -1
        self.link_credit = -1
        self.available = -1
        self.drain = False
        self.echo = False
