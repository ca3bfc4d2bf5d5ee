"""What must hold of every frame from a broker, whatever the scenario is about: checked on each connection.

A breach fails the scenario in which it is seen, with the sentence it breaks.
"""

from collections.abc import Callable
from typing import Any

from amqp_broker.conformance.outcomes import Unexpected
from amqp_broker.frames import (
    Attach,
    Begin,
    Close,
    Declared,
    Detach,
    Disposition,
    End,
    Flow,
    Frame,
    Open,
    TransactionalState,
    Transfer,
)

MAX_DELIVERY_TAG_OCTETS = 32
"""2.8.7: "A delivery-tag may be up to 32 octets of binary data." """


class Invariants:
    """Watches the frames of one connection; ``check`` raises Unexpected at the first that breaks a rule."""

    def __init__(self) -> None:
        self.channel_max = 65535
        self.handle_max: dict[int, int] = {}
        self.opened = False
        self.closed = False
        self._handles: dict[tuple[int, int], Attach] = {}
        self._unfinished: dict[tuple[int, int], int] = {}
        self._txn_ids: set[bytes] = set()
        self._checks: dict[type, Callable[[int, Any], None]] = {
            Attach: self._attach,
            Detach: self._detach,
            Flow: self._flow,
            Transfer: self._transfer,
            Disposition: self._disposition,
            Begin: self._begin,
            End: self._end,
        }

    def sent(self, performative: Any, channel: int) -> None:
        """Notes our limits, which the broker must keep (2.7.1, 2.7.2)."""
        if isinstance(performative, Open):
            self.channel_max = performative.channel_max
        elif isinstance(performative, Begin):
            self.handle_max[channel] = performative.handle_max

    def check(self, frame: Frame) -> None:
        """Checks one frame of the broker; raises Unexpected with the sentence that it breaks."""
        if frame.type != 0:
            return
        if self.closed:
            raise Unexpected("2.4.3-02: a frame came after close, which must be the last thing ever written")
        performative = frame.performative
        if not self.opened and not isinstance(performative, Open):
            raise Unexpected("2.7.1-01: the first frame of a connection must be open")
        if frame.channel > self.channel_max:
            raise Unexpected(f"2.7.1-07: channel {frame.channel} is above our channel-max {self.channel_max}")
        if isinstance(performative, (Open, Close)) and frame.channel != 0:
            raise Unexpected(
                f"2.4.3-04: {type(performative).__name__.lower()} came on channel {frame.channel}, not 0"
            )
        self.opened = True
        self.closed = isinstance(performative, Close)
        check = self._checks.get(type(performative))
        if check is not None:
            check(frame.channel, performative)

    def _begin(self, channel: int, begin: Begin) -> None:
        if begin.remote_channel is None:
            raise Unexpected("2.5.1-01: begin without remote-channel answers no begin of ours")
        if begin.remote_channel in self.handle_max:
            self.handle_max[-1 - channel] = self.handle_max[begin.remote_channel]

    def _end(self, channel: int, end: End) -> None:
        for key in [key for key in self._handles if key[0] == channel]:
            del self._handles[key]
            self._unfinished.pop(key, None)

    def _attach(self, channel: int, attach: Attach) -> None:
        limit = self.handle_max.get(-1 - channel, 0xFFFF_FFFF)
        if attach.handle > limit:
            raise Unexpected(f"2.7.2-03: handle {attach.handle} is above our handle-max {limit}")
        if (channel, attach.handle) in self._handles:
            raise Unexpected(f"2.7.3-01: handle {attach.handle} is in use for another link")
        if attach.role is False and attach.initial_delivery_count is None:
            raise Unexpected("2.7.3-08: initial-delivery-count must not be null if role is sender")
        source, target = attach.source, attach.target
        if (
            attach.role is False
            and getattr(source, "dynamic", False)
            and getattr(source, "address", "") is None
        ):
            raise Unexpected("3.5.3-02: the sender of a dynamic source must set its address")
        for terminus in (source, target):
            if getattr(terminus, "dynamic_node_properties", None) and not getattr(terminus, "dynamic", False):
                raise Unexpected("3.5.3-06: dynamic-node-properties must be unset when dynamic is not true")
        self._handles[channel, attach.handle] = attach

    def _detach(self, channel: int, detach: Detach) -> None:
        self._handles.pop((channel, detach.handle), None)
        self._unfinished.pop((channel, detach.handle), None)

    def _flow(self, channel: int, flow: Flow) -> None:
        if flow.handle is None:
            for name, row in (
                ("delivery_count", "2.7.4-02"),
                ("link_credit", "2.7.4-06"),
                ("available", "2.7.4-07"),
            ):
                if getattr(flow, name) is not None:
                    raise Unexpected(f"{row}: {name} must not be set when the handle is not set")
            return
        attach = self._handles.get((channel, flow.handle))
        if attach is not None and attach.role is False and flow.delivery_count is None:
            raise Unexpected("2.7.4-03: the sender's flow must carry its delivery-count")

    def _disposition(self, channel: int, disposition: Disposition) -> None:
        state = disposition.state
        if isinstance(state, Declared):
            if not isinstance(state.txn_id, bytes):
                raise Unexpected(f"4.5.4-length: a txn-id is binary data, not {state.txn_id!r}")
            self._txn_ids.add(state.txn_id)
        self._in_transaction(state)

    def _in_transaction(self, state: object) -> None:
        if isinstance(state, TransactionalState) and state.txn_id not in self._txn_ids:
            raise Unexpected(f"4.4-01: the txn-id {state.txn_id!r} was never declared on this connection")

    def _transfer(self, channel: int, transfer: Transfer) -> None:
        self._in_transaction(transfer.state)
        key = (channel, transfer.handle)
        if key not in self._handles:
            raise Unexpected(f"2.7.5-handle: transfer on handle {transfer.handle}, which is not attached")
        unfinished = self._unfinished.get(key)
        if unfinished is None:
            for name, row in (
                ("delivery_id", "2.7.5-01"),
                ("delivery_tag", "2.7.5-02"),
                ("message_format", "2.7.5-03"),
            ):
                if getattr(transfer, name) is None:
                    raise Unexpected(f"{row}: {name} must be set on the first transfer of a delivery")
            assert transfer.delivery_tag is not None and transfer.delivery_id is not None
            if len(transfer.delivery_tag) > MAX_DELIVERY_TAG_OCTETS:
                raise Unexpected(f"2.8.7-tag: a delivery-tag of {len(transfer.delivery_tag)} octets")
            unfinished = transfer.delivery_id
        elif transfer.delivery_id not in (None, unfinished):
            raise Unexpected("2.6.14-01: a delivery began on the link before the last one was complete")
        if transfer.more and not transfer.aborted:
            self._unfinished[key] = unfinished
        else:
            self._unfinished.pop(key, None)
