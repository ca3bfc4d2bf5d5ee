"""A session: windows, delivery-ids, handles, and the frames that belong to its links (2.5, 2.6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from amqp_broker.frames import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Transfer,
)
from amqp_broker.frames.fast_encoding import encode_disposition, encode_flow
from amqp_broker.frames.fast_path import FlowHead, TransferHead
from amqp_broker.links.errors import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    ILLEGAL_STATE,
    INVALID_FIELD,
    NOT_ALLOWED,
    STOLEN,
    UNATTACHED_HANDLE,
    WINDOW_VIOLATION,
    LocalProtocolError,
    RemoteProtocolError,
    Scope,
    connection_error,
    session_error,
)
from amqp_broker.links.events import (
    AttachReceived,
    DeliveriesReceived,
    LinkAttached,
    OutcomesReceived,
    SessionBegun,
    SessionEnded,
)
from amqp_broker.links.link import Link
from amqp_broker.links.link_states import LinkState
from amqp_broker.links.receiver_link import ReceiverLink
from amqp_broker.links.sender_link import SenderLink
from amqp_broker.links.serial import difference, extend
from amqp_broker.links.session_states import SESSION_TABLE, SessionInput, SessionState
from amqp_broker.links.unsettled_ranges import UnsettledRanges
from amqp_broker.links.windows import OUTGOING_WINDOW, SessionWindow

if TYPE_CHECKING:
    from amqp_broker.links.connection import Connection
    from amqp_broker.links.deliveries import OutgoingDelivery

_MAPPED = SessionState.MAPPED
_ATTACHED = LinkState.ATTACHED
_WRITABLE: Final = (SessionState.MAPPED, SessionState.BEGIN_SENT)


class Session:
    """One session endpoint. `context` belongs to the caller."""

    def __init__(self, connection: Connection, channel: int) -> None:
        self.connection = connection
        self.output = connection.output
        self.settings = connection.settings
        self.limits = connection.settings.limits
        self.partial_bytes = connection.settings.partial_bytes
        self.channel = channel
        """Our channel (outgoing)."""
        self.remote_channel = -1
        self.state = SessionState.UNMAPPED
        self.window = SessionWindow(self.limits.unsettled_per_session, self.settings.next_outgoing_id)
        self.next_delivery = -1
        """Number of the next incoming delivery; -1 before the first, whose delivery-id starts the
        sequence.
        """
        self.next_outgoing_delivery = self.settings.next_outgoing_id
        self.unsettled_in = UnsettledRanges()
        self.unsettled_out: dict[int, OutgoingDelivery] = {}
        self.held = 0
        """Incoming deliveries that the caller is not done with."""
        self.blocked = False
        self.input_links: dict[int, Link] = {}
        self.output_links: dict[int, Link] = {}
        self.remote_handle_max = 0xFFFFFFFF
        self.echo_due = False
        self.told = False
        self.context: Any = None
        self._handlers: dict[type, Callable[[Any, bytes], None]] = {
            Attach: self._on_attach,
            Flow: self._on_flow,
            Transfer: self._on_transfer,
            Disposition: self._on_disposition,
            Detach: self._on_detach,
        }

    def __repr__(self) -> str:
        return f"<Session channel {self.channel}/{self.remote_channel} {self.state.value}>"

    # --- the caller's side

    def end(self, error: Error | None = None) -> None:
        """Ends the session (2.5.2); SessionEnded comes at once, and nothing when the peer answers.

        Nothing happens when it is ending already.

        Raises LocalProtocolError when our begin is not answered yet.
        """
        if self.state in (SessionState.UNMAPPED, SessionState.END_SENT, SessionState.DISCARDING):
            return
        self._send_state(SessionInput.S_END if error is None else SessionInput.S_END_ERROR)
        self.connection.send(self.channel, End(error=error))
        self.drop(error)

    def attach_sender(self, name: str, source: Any = None, target: Any = None, **fields: Any) -> SenderLink:
        """Attaches a link on which we send; `fields` are `snd_settle_mode`, `rcv_settle_mode` and
        `properties`.

        LinkAttached follows. Raises LocalProtocolError when no handle is left.
        """
        link = SenderLink(self, name, self._free_handle())
        self._attach(link, source, target, fields)
        return link

    def attach_receiver(
        self, name: str, source: Any = None, target: Any = None, credit: int = 0, **fields: Any
    ) -> ReceiverLink:
        """Attaches a link on which we receive, with a level of `credit` to keep; `fields` as for
        `attach_sender`.
        """
        link = ReceiverLink(self, name, self._free_handle())
        link.max_message_size = self.limits.max_message_bytes
        link.flow_state.target = credit
        self._attach(link, source, target, fields)
        return link

    def _attach(self, link: Link, source: Any, target: Any, fields: dict[str, Any]) -> None:
        if self.state not in (SessionState.BEGIN_SENT, _MAPPED):
            raise LocalProtocolError(f"cannot attach on {self!r}")
        link.source = source
        link.target = target
        link.snd_settle_mode = fields.pop("snd_settle_mode", 2)
        link.rcv_settle_mode = fields.pop("rcv_settle_mode", 0)
        properties = fields.pop("properties", None)
        assert not fields, f"unknown fields {sorted(fields)}"
        self.output_links[link.handle] = link
        link.told = False
        link.send_attach(None, properties)

    def _free_handle(self) -> int:
        limit = min(self.remote_handle_max, self.settings.handle_max, self.limits.links_per_session - 1)
        for handle in range(limit + 1):
            if handle not in self.output_links:
                return handle
        raise LocalProtocolError(f"no handle is left: the session has {len(self.output_links)} links")

    # --- writing

    @property
    def writable(self) -> bool:
        """Both sides have begun, neither has ended, and the connection is not closed for writing."""
        return self.state is _MAPPED and not self.output.closed

    def send(self, performative: Any) -> None:
        """Writes one frame of a link; nothing once the session is ending."""
        if self.state in _WRITABLE:
            self.connection.send(self.channel, performative)

    def send_flow(self, link_fields: bytes, count: int) -> None:
        """Writes a flow with our window as it is now; `link_fields` are `count` encoded fields from handle
        on.
        """
        if self.state not in _WRITABLE:
            return
        window = self.window
        window.renew(self._held())
        self.output.write(
            encode_flow(
                self.channel,
                window.next_incoming_id & 0xFFFFFFFF if self.remote_channel >= 0 else -1,
                window.incoming_window,
                window.next_outgoing_id & 0xFFFFFFFF,
                OUTGOING_WINDOW,
                link_fields,
                count,
            )
        )

    def send_disposition(self, role: bool, first: int, last: int, settled: bool, state: bytes) -> None:
        """Writes a disposition for the numbers `first` to `last`."""
        if self.state is _MAPPED:
            self.output.write(
                encode_disposition(self.channel, role, first & 0xFFFFFFFF, last & 0xFFFFFFFF, settled, state)
            )

    def renew_window(self) -> None:
        """Sends a session flow when less than half of the incoming-window is left and more can be given."""
        if self.state is _MAPPED and self.window.renewable(self._held()):
            self.send_flow(b"", 0)

    def _held(self) -> int:
        return max(self.held, self.unsettled_in.count)

    def after_read(self) -> None:
        """At the end of a read: answers echoes, once each, and renews the window."""
        if self.state is not _MAPPED:
            return
        if self.echo_due:
            self.echo_due = False
            self.send_flow(b"", 0)
        self.renew_window()

    def wake_blocked(self) -> None:
        """Room was made: links that were held up by more than credit may send again."""
        if not self.blocked:
            return
        self.blocked = False
        for link in self.output_links.values():
            if isinstance(link, SenderLink) and link.blocked:
                link.blocked = False
                link.wake()

    # --- for the connection

    def begin(self, reply_to: int) -> None:
        """Sends our begin; `reply_to` is the peer's channel that it answers, -1 for none."""
        self._send_state(SessionInput.S_BEGIN)
        window = self.window
        self.connection.send(
            self.channel,
            Begin(
                remote_channel=None if reply_to < 0 else reply_to,
                next_outgoing_id=window.next_outgoing_id & 0xFFFFFFFF,
                incoming_window=window.incoming_window,
                outgoing_window=OUTGOING_WINDOW,
                handle_max=min(self.settings.handle_max, self.limits.links_per_session - 1),
            ),
        )

    def begin_received(self, begin: Begin, channel: int) -> None:
        """The peer's begin."""
        self._receive_state(SessionInput.R_BEGIN)
        self.remote_channel = channel
        self.remote_handle_max = begin.handle_max
        self.window.begun(begin.next_outgoing_id, begin.incoming_window, begin.outgoing_window)

    def end_received(self, end: End) -> None:
        """The peer's end: answers if it came first."""
        initiated = self.state is _MAPPED
        self._receive_state(SessionInput.R_END)
        if initiated:
            self._send_state(SessionInput.S_END)
            self.connection.send(self.channel, End())
        self.drop(end.error)

    def fail(self, error: Error) -> None:
        """A session error of the peer (2.5.4): ends, discards until its end, tells the caller at once."""
        self._send_state(SessionInput.S_END_ERROR)
        self.connection.send(self.channel, End(error=error))
        self.drop(error)

    def lost(self, error: Error | None) -> None:
        """The connection is gone."""
        self.state = SessionState.UNMAPPED
        self.drop(error)

    def drop(self, error: Error | None) -> None:
        """Forgets all links and tells the caller, once."""
        for link in list(self.output_links.values()):
            link.lost(error)
        self.output_links.clear()
        self.input_links.clear()
        if not self.told:
            self.told = True
            self.connection.tell(SessionEnded(self, error))

    def frame_received(self, performative: Any, payload: bytes) -> None:
        """One frame of this session, decoded. Raises RemoteProtocolError for session and connection
        errors.
        """
        self._receive_state(SessionInput.R_FRAME)
        if self.state is not _MAPPED:
            return
        self._handlers[type(performative)](performative, payload)

    # --- transfers

    def take_delivery_id(self, delivery_id: int, link: Link) -> int:
        """The number of a new incoming delivery. Raises a session error unless its delivery-id is the next
        one.
        """
        if delivery_id < 0:
            raise session_error(
                INVALID_FIELD,
                f"the first transfer of a delivery on link {link.name[:64]!r} has no delivery-id (2.7.5)",
            )
        expected = self.next_delivery
        if expected < 0:
            # Far from zero, so that numbers before the first one are never negative.
            expected = (1 << 32) + delivery_id
        elif delivery_id != expected & 0xFFFFFFFF:
            raise session_error(
                INVALID_FIELD,
                f"delivery-id {delivery_id}, but {expected & 0xFFFFFFFF} is the next one of this session",
            )
        self.next_delivery = expected + 1
        return expected

    def _on_transfer(self, transfer: Transfer, payload: bytes) -> None:
        head = TransferHead()
        head.handle = transfer.handle
        head.delivery_id = -1 if transfer.delivery_id is None else transfer.delivery_id
        head.delivery_tag = transfer.delivery_tag
        head.message_format = -1 if transfer.message_format is None else transfer.message_format
        head.settled = -1 if transfer.settled is None else int(transfer.settled)
        head.more = transfer.more
        head.rcv_settle_mode = -1 if transfer.rcv_settle_mode is None else transfer.rcv_settle_mode
        head.resume = transfer.resume
        head.aborted = transfer.aborted
        head.batchable = transfer.batchable
        self.transfer_received(head, payload, transfer.state)

    def transfer_received(self, head: TransferHead, payload: bytes, state: object) -> ReceiverLink | None:
        """One transfer; the link that took it, None when it was dropped. Raises RemoteProtocolError."""
        if self.window.incoming_window <= 0:
            raise session_error(
                WINDOW_VIOLATION,
                f"transfer {self.window.next_incoming_id & 0xFFFFFFFF}, but the incoming-window is used up",
            )
        self.window.received(1)
        link = self._input_link(head.handle, "transfer")
        if link.state is not _ATTACHED:
            if head.delivery_id >= 0 and head.delivery_id == self.next_delivery & 0xFFFFFFFF:
                self.next_delivery += 1
            return None
        if not isinstance(link, ReceiverLink):
            raise session_error(
                NOT_ALLOWED, f"transfer on handle {head.handle}, but there the peer is the receiver"
            )
        try:
            delivery = link.on_transfer(head, payload, state)
        except RemoteProtocolError as error:
            self.link_failed(link, error)
            return None
        if delivery is not None:
            self.connection.tell_delivery(link, delivery)
        return link

    def link_failed(self, link: Link, error: RemoteProtocolError) -> None:
        """Detaches `link` for a link error; what is worse goes on up."""
        if error.scope is not Scope.LINK:
            raise error
        link.fail(Error(condition=error.condition, description=error.description, info=error.info or None))

    # --- links

    def _on_attach(self, attach: Attach, _payload: bytes) -> None:
        handle = attach.handle
        largest = min(self.settings.handle_max, self.limits.links_per_session - 1)
        if handle > largest:
            raise connection_error(
                FRAMING_ERROR, f"attach with handle {handle}, but handle-max is {largest} (2.7.2)"
            )
        if handle in self.input_links:
            # 2.7.3: an immediate close carrying a handle-in-use session-error.
            raise connection_error(
                HANDLE_IN_USE,
                f"attach of {attach.name[:64]!r} with handle {handle}, which link "
                f"{self.input_links[handle].name[:64]!r} has",
            )
        if attach.role == SENDER and attach.initial_delivery_count is None:
            raise session_error(INVALID_FIELD, "attach of a sender without initial-delivery-count (2.7.3)")
        ours = self._waiting_for(attach)
        if ours is not None:
            self._attach_answered(ours, attach)
            return
        self.connection.steal(attach.name, attach.role)
        link: ReceiverLink | SenderLink
        try:
            output_handle = self._free_handle()
        except LocalProtocolError as error:
            raise session_error(NOT_ALLOWED, error.description) from None
        if attach.role == SENDER:
            link = ReceiverLink(self, attach.name, output_handle)
        else:
            link = SenderLink(self, attach.name, output_handle)
        self.input_links[handle] = link
        self.output_links[output_handle] = link
        link.on_attach(attach, False)
        self.connection.remember_link(link)
        self.connection.wants_answer(AttachReceived(link, attach))

    def _waiting_for(self, attach: Attach) -> Link | None:
        """Our link whose attach this one answers."""
        for link in self.output_links.values():
            if link.state is LinkState.ATTACH_SENT and link.name == attach.name and link.role != attach.role:
                return link
        return None

    def _attach_answered(self, link: Link, attach: Attach) -> None:
        self.input_links[attach.handle] = link
        link.on_attach(attach, True)
        self.connection.remember_link(link)
        assert isinstance(link, (ReceiverLink, SenderLink))
        self.connection.tell(LinkAttached(link, attach))
        if isinstance(link, ReceiverLink) and link.flow_state.kept and link.flow_state.target:
            link.set_credit(link.flow_state.target)

    def _input_link(self, handle: int, what: str) -> Link:
        link = self.input_links.get(handle)
        if link is None:
            raise session_error(
                UNATTACHED_HANDLE,
                f"{what} on handle {handle}, but the session has {_handles(self.input_links)}",
            )
        return link

    def _on_detach(self, detach: Detach, _payload: bytes) -> None:
        link = self._input_link(detach.handle, "detach")
        link.detach_received(detach)
        self.release_handle(link)

    def release_handle(self, link: Link) -> None:
        """Both sides detached: the handles are free again."""
        self.input_links.pop(link.input_handle, None)
        self.output_links.pop(link.handle, None)

    def steal(self, link: Link) -> None:
        """Another attach with this link's name came: it is closed (2.6.1)."""
        link.fail(Error(condition=STOLEN, description=f"link {link.name[:64]!r} was attached elsewhere"))

    # --- flow

    def _on_flow(self, flow: Flow, _payload: bytes) -> None:
        head = FlowHead()
        head.next_incoming_id = -1 if flow.next_incoming_id is None else flow.next_incoming_id
        head.incoming_window = flow.incoming_window
        head.next_outgoing_id = flow.next_outgoing_id
        head.outgoing_window = flow.outgoing_window
        head.handle = -1 if flow.handle is None else flow.handle
        head.delivery_count = -1 if flow.delivery_count is None else flow.delivery_count
        head.link_credit = -1 if flow.link_credit is None else flow.link_credit
        head.available = -1 if flow.available is None else flow.available
        head.drain = flow.drain
        head.echo = flow.echo
        self.flow_received(head, flow.properties)

    def flow_received(self, flow: FlowHead, properties: dict[str, Any] | None) -> None:
        """One flow (2.7.4). Raises RemoteProtocolError."""
        window = self.window
        closed = window.remote_incoming_window <= 0
        window.flow_received(
            flow.next_incoming_id, flow.incoming_window, flow.next_outgoing_id, flow.outgoing_window
        )
        if closed and window.remote_incoming_window > 0:
            self.connection.go_on_sending()
            self.wake_blocked()
        if flow.handle < 0:
            if flow.delivery_count >= 0 or flow.link_credit >= 0:
                raise session_error(
                    INVALID_FIELD, "a flow without handle has delivery-count or link-credit (2.7.4)"
                )
            self.echo_due = self.echo_due or flow.echo
            return
        link = self._input_link(flow.handle, "flow")
        if link.state is not _ATTACHED:
            return
        if isinstance(link, SenderLink):
            link.on_flow(flow.delivery_count, flow.link_credit, flow.drain, properties)
        elif isinstance(link, ReceiverLink):
            link.on_flow(flow.delivery_count, flow.available, properties)
        if flow.echo:
            self.connection.echo_links.add(link)

    # --- dispositions

    def _on_disposition(self, disposition: Disposition, _payload: bytes) -> None:
        last = disposition.first if disposition.last is None else disposition.last
        self.disposition_received(
            disposition.role, disposition.first, last, disposition.settled, disposition.state
        )

    def disposition_received(self, role: bool, first: int, last: int, settled: bool, state: object) -> None:
        """One disposition: its cost is what is unsettled of the range. Raises RemoteProtocolError."""
        width = difference(last, first)
        if width < 0:
            raise session_error(
                INVALID_FIELD, f"disposition from {first} to {last}: last comes before first (RFC 1982)"
            )
        if role == RECEIVER:
            start = extend(first, self.next_outgoing_delivery)
            self._outcomes(start, start + width, settled, state)
        elif settled and self.next_delivery >= 0:
            start = extend(first, self.next_delivery)
            for found_first, found_last, link in self.unsettled_in.take(start, start + width):
                link.sender_settled(found_first, found_last)

    def _outcomes(self, first: int, last: int, settled: bool, state: object) -> None:
        """What the receiver says of our deliveries: one event for each run of one link."""
        unsettled = self.unsettled_out
        numbers: Any = range(first, last + 1)
        if last - first >= len(unsettled):
            numbers = [number for number in unsettled if first <= number <= last]
        run: list[OutgoingDelivery] = []
        link: SenderLink | None = None
        get = unsettled.get
        for number in numbers:
            delivery = get(number)
            if delivery is None:
                continue
            if delivery.link is not link:
                if run:
                    self._tell_outcomes(link, run, state, settled)
                run = []
                link = delivery.link
            delivery.state = state
            run.append(delivery)
            if settled:
                del unsettled[number]
        if run:
            self._tell_outcomes(link, run, state, settled)
            if settled:
                self.wake_blocked()

    def _tell_outcomes(
        self, link: SenderLink | None, run: list[OutgoingDelivery], state: object, settled: bool
    ) -> None:
        assert link is not None
        if settled:
            link.unsettled_count -= len(run)
        self.connection.tell(OutcomesReceived(link, run, state, settled))

    # --- states

    def _receive_state(self, what: SessionInput) -> None:
        following = SESSION_TABLE[self.state][what]
        if following is None:
            raise connection_error(
                ILLEGAL_STATE, f"{what.value} on channel {self.remote_channel} in state {self.state.value}"
            )
        self.state = following

    def _send_state(self, what: SessionInput) -> None:
        following = SESSION_TABLE[self.state][what]
        if following is None:
            raise LocalProtocolError(f"cannot do {what.value} on {self!r}")
        self.state = following

    def begun_event(self) -> SessionBegun:
        """Told when both begins are there."""
        return SessionBegun(self)

    def deliveries_event(self, link: ReceiverLink) -> DeliveriesReceived:
        """An event for a new run."""
        return DeliveriesReceived(link, [])


def _handles(links: dict[int, Link]) -> str:
    """The handles in words, shortened: "handles 0-3, 7"."""
    if not links:
        return "no handles"
    ranges: list[list[int]] = []
    for handle in sorted(links):
        if ranges and ranges[-1][1] == handle - 1:
            ranges[-1][1] = handle
        else:
            ranges.append([handle, handle])
    shown = [str(low) if low == high else f"{low}-{high}" for low, high in ranges[:8]]
    if len(ranges) > 8:
        shown.append("...")
    return ("handle " if len(links) == 1 else "handles ") + ", ".join(shown)
