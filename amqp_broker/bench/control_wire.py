"""The connection of a controller: one session with a control link, a link for postings and one for what it
retires.

    handle 0 --> coordinator      declare, discharge
    handle 1 --> ADDRESS          postings
    handle 2 <-- ADDRESS-input    deliveries to be retired (only with --retire)

One session numbers the deliveries of all its outgoing links (2.6.12), so the controller does, too.
"""

from __future__ import annotations

from typing import Final

from amqp_broker.bench.settings import BenchSettings
from amqp_broker.bench.transaction_frames import CONTROL_HANDLE, INPUT_HANDLE, POSTING_HANDLE
from amqp_broker.bench.wire import SETTLED, UNSETTLED, WIDE_WINDOW, Wire
from amqp_broker.frames import (
    RECEIVER,
    SENDER,
    AnyTarget,
    Attach,
    Coordinator,
    Flow,
    Released,
    Source,
    Target,
    encode_frame,
)

SERIAL: Final = 2**32
OUTCOMES: Final = ("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list")


class ControlWire(Wire):
    """A connection that keeps the credit of two sending links and the windows of its session."""

    HANDLE_MAX = INPUT_HANDLE

    def __init__(self, settings: BenchSettings, pair: int) -> None:
        self.input = settings.input_of(pair) if settings.retire else None
        self.sent = {CONTROL_HANDLE: 0, POSTING_HANDLE: 0}
        self.credit = {CONTROL_HANDLE: 0, POSTING_HANDLE: 0}
        # The broker's handles, which are not ours.
        self._ours: dict[int, int] = {}
        super().__init__(settings, settings.address_of(pair), SENDER, f"controller-{pair}")
        for flow in self.early_flows:
            self.flow(flow)

    def _attach_links(self) -> None:
        source = Source(outcomes=OUTCOMES, default_outcome=Released())
        posting = SETTLED if self.settings.settled else UNSETTLED
        wanted: list[tuple[int, int, AnyTarget, str]] = [
            (CONTROL_HANDLE, UNSETTLED, Coordinator(), "a coordinator"),
            (POSTING_HANDLE, posting, Target(address=self.address), repr(self.address)),
        ]
        for handle, mode, target, what in wanted:
            attach = Attach(
                name=f"{self.name}-{handle}",
                handle=handle,
                role=SENDER,
                snd_settle_mode=mode,
                rcv_settle_mode=0,
                source=source,
                target=target,
                initial_delivery_count=0,
            )
            self._ours[self._attached(attach, what).handle] = handle
        if self.input is not None:
            attach = Attach(
                name=f"{self.name}-{INPUT_HANDLE}",
                handle=INPUT_HANDLE,
                role=RECEIVER,
                snd_settle_mode=UNSETTLED,
                rcv_settle_mode=0,
                source=Source(address=self.input, outcomes=OUTCOMES, default_outcome=Released()),
                target=Target(),
            )
            attached = self._attached(attach, repr(self.input))
            self._ours[attached.handle] = INPUT_HANDLE
            self.remote_delivery_count = attached.initial_delivery_count or 0

    def flow(self, flow: Flow) -> None:
        """The broker's windows and the credit that it gives."""
        next_incoming_id = flow.next_incoming_id or 0
        window = (next_incoming_id + flow.incoming_window - self.next_outgoing_id) % SERIAL
        self.remote_window = window if window <= WIDE_WINDOW else 0
        handle = self._ours.get(flow.handle) if flow.handle is not None else None
        if handle in self.credit and flow.link_credit is not None:
            assert handle is not None
            credit = ((flow.delivery_count or 0) + flow.link_credit - self.sent[handle]) % SERIAL
            self.credit[handle] = credit if credit <= WIDE_WINDOW else 0
        if flow.echo:
            self.tell()

    def tell(self, delivery_count: int | None = None, link_credit: int | None = None) -> None:
        """Our windows and, if given, the credit of the link whose deliveries are retired."""
        flow = Flow(
            next_incoming_id=self.next_incoming_id % SERIAL,
            incoming_window=WIDE_WINDOW,
            next_outgoing_id=self.next_outgoing_id,
            outgoing_window=WIDE_WINDOW,
            handle=None if link_credit is None else INPUT_HANDLE,
            delivery_count=delivery_count,
            link_credit=link_credit,
        )
        self.write(encode_frame(0, flow))

    def may_send(self, handle: int) -> int:
        """Transfers that credit and window allow on this link now."""
        return min(self.credit[handle], self.remote_window)

    def count_sent(self, handle: int, count: int) -> int:
        """Account for transfers about to be written; the delivery-id of the first."""
        first = self.sent[CONTROL_HANDLE] + self.sent[POSTING_HANDLE]
        self.sent[handle] += count
        self.credit[handle] -= count
        self.remote_window -= count
        self.next_outgoing_id += count
        return first
