"""What a complete incoming delivery is, whichever way its transfers were read."""

from __future__ import annotations


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
