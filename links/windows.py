"""Session windows (2.5.6) and link credit (2.6.7) as pure arithmetic. Nothing here sends or raises.

All sequences are unbounded integers (serial.py).
"""

from __future__ import annotations

from typing import Final

from amqp_broker.links.serial import extend

OUTGOING_WINDOW: Final = 0x7FFFFFFF
"""What we announce: we keep no transfers for sending again, so nothing of ours limits them."""


class SessionWindow:
    """The transfer-ids and windows of one session endpoint.

    `capacity` is the largest incoming-window we ever announce; `incoming_window` is what the peer may still
    send. `remote_incoming_window` is what we may still send (it can be negative after the peer took window
    back). What the peer announces to send binds nobody, and is not kept.
    """

    __slots__ = (
        "capacity", "incoming_window", "next_incoming_id", "initial_outgoing_id", "next_outgoing_id",
        "remote_incoming_window",
    )  # fmt: skip

    def __init__(self, capacity: int, next_outgoing_id: int) -> None:
        self.capacity = capacity
        self.incoming_window = capacity
        self.next_incoming_id = -1
        self.initial_outgoing_id = next_outgoing_id
        self.next_outgoing_id = next_outgoing_id
        self.remote_incoming_window = 0

    def begun(self, next_outgoing_id: int, incoming_window: int) -> None:
        """The peer's begin: what it says about itself. Transfers that we sent before it came count against
        it.
        """
        self.next_incoming_id = next_outgoing_id
        self.remote_incoming_window = self.initial_outgoing_id + incoming_window - self.next_outgoing_id

    def received(self, transfers: int) -> None:
        """`transfers` frames arrived; the caller made sure that `incoming_window` allowed them."""
        self.next_incoming_id += transfers
        self.incoming_window -= transfers

    def sent(self, transfers: int) -> None:
        """`transfers` frames were written; the caller made sure that `remote_incoming_window` allowed
        them.
        """
        self.next_outgoing_id += transfers
        self.remote_incoming_window -= transfers

    def flow_received(self, next_incoming_id: int, incoming_window: int, next_outgoing_id: int) -> None:
        """The peer's flow; `next_incoming_id` is -1 when it had not seen our begin."""
        self.next_incoming_id = extend(next_outgoing_id, self.next_incoming_id)
        start = self.initial_outgoing_id
        if next_incoming_id >= 0:
            start = extend(next_incoming_id, self.next_outgoing_id)
        self.remote_incoming_window = start + incoming_window - self.next_outgoing_id

    def renewable(self, held: int) -> bool:
        """Whether a flow would be worth it, when `held` of the capacity is in use by what we have not
        finished.
        """
        return self.incoming_window * 2 <= self.capacity and self.capacity - held > self.incoming_window

    def renew(self, held: int) -> int:
        """The incoming-window to announce now. It never takes back what was announced."""
        self.incoming_window = max(self.incoming_window, self.capacity - held)
        return self.incoming_window


class ReceiverCredit:
    """Credit of a link on which we receive.

    `target` is the level that is kept; `outstanding` what the sender may still send; `unprocessed` what has
    arrived and the caller is not done with; `unsettled` what we have not settled. outstanding + unprocessed
    never exceeds `target`, and outstanding + unsettled never `unsettled_limit`. With `kept` False the caller
    gives credit by hand.
    """

    __slots__ = (
        "target", "kept", "delivery_count", "limit", "allowed", "unprocessed", "unsettled",
        "unsettled_limit", "drain",
    )  # fmt: skip

    def __init__(self, unsettled_limit: int) -> None:
        self.target = 0
        self.kept = True
        self.delivery_count = 0
        self.limit = 0
        # The largest limit ever granted: what is in flight when credit is taken back is taken as normal
        # (2.6.7).
        self.allowed = 0
        self.unprocessed = 0
        self.unsettled = 0
        self.unsettled_limit = unsettled_limit
        self.drain = False

    def start(self, initial_delivery_count: int) -> None:
        """The sender's attach told its delivery-count."""
        given = self.limit - self.delivery_count
        self.delivery_count = initial_delivery_count
        self.limit = self.allowed = initial_delivery_count + given

    @property
    def outstanding(self) -> int:
        """What the sender may still send."""
        return max(0, self.limit - self.delivery_count)

    def acceptable(self) -> int:
        """How many deliveries may arrive before the sender breaks the limit."""
        return self.allowed - self.delivery_count

    def received(self, deliveries: int, unsettled: int) -> None:
        """`deliveries` arrived, `unsettled` of them unsettled."""
        self.delivery_count += deliveries
        self.unprocessed += deliveries
        self.unsettled += unsettled

    def room(self) -> int:
        """What may be outstanding now."""
        return max(0, min(self.target - self.unprocessed, self.unsettled_limit - self.unsettled))

    def renewable(self) -> bool:
        """Whether a flow with `grant()` is due: less than half of the target is left and more can be
        given.
        """
        outstanding = self.limit - self.delivery_count
        if outstanding * 2 > self.target or not self.kept:  # as it is nearly always
            return False
        return self.room() > max(0, outstanding)

    def grant(self, credit: int) -> None:
        """The flow that is sent now carries `credit`."""
        self.limit = self.delivery_count + credit
        self.allowed = max(self.allowed, self.limit)

    def forfeit(self) -> None:
        """What was taken back so long ago that its sender has heard of it is not taken as normal any more."""
        self.allowed = self.limit

    def flow_received(self, delivery_count: int) -> None:
        """The sender's flow: it may have advanced its delivery-count (drain)."""
        advanced = extend(delivery_count, self.delivery_count)
        if advanced > self.delivery_count:
            self.delivery_count = advanced
            self.allowed = max(self.allowed, self.limit)


class SenderCredit:
    """Credit of a link on which we send. `credit` may be used; `drain` is the receiver's wish."""

    __slots__ = ("initial_delivery_count", "delivery_count", "credit", "drain", "available")

    def __init__(self, initial_delivery_count: int) -> None:
        self.initial_delivery_count = initial_delivery_count
        self.delivery_count = initial_delivery_count
        self.credit = 0
        self.drain = False
        self.available = 0

    def sent(self, deliveries: int) -> None:
        """`deliveries` were begun; the caller made sure that `credit` allowed them."""
        self.delivery_count += deliveries
        self.credit -= deliveries
        self.available = max(0, self.available - deliveries)

    def flow_received(self, delivery_count: int, link_credit: int, drain: bool) -> None:
        """link-credit_snd := delivery-count_rcv + link-credit_rcv - delivery-count_snd (2.6.7); -1 is not
        set.
        """
        known = self.initial_delivery_count
        if delivery_count >= 0:
            known = extend(delivery_count, self.delivery_count)
        if link_credit >= 0:
            self.credit = max(0, known + link_credit - self.delivery_count)
        self.drain = drain

    def drained(self) -> None:
        """Nothing is left to send: the delivery-count advances until the credit is zero."""
        self.delivery_count += self.credit
        self.credit = 0
