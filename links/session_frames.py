"""The frames of a session's links: attach, detach, flow, transfer and disposition (2.6, 2.7.3 to 2.7.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from amqp_broker.frames import (
    RECEIVER,
    SENDER,
    Attach,
    Detach,
    Disposition,
    Flow,
    TransactionalState,
    Transfer,
)
from amqp_broker.frames.hot_frames import FlowHead, TransferHead
from amqp_broker.links.dispositions import txn_id_of
from amqp_broker.links.errors import (
    FRAMING_ERROR,
    HANDLE_IN_USE,
    INVALID_FIELD,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
    WINDOW_VIOLATION,
    LocalProtocolError,
    RemoteProtocolError,
    connection_error,
    session_error,
)
from amqp_broker.links.events import AttachReceived, LinkAttached, OutcomesLost, WorkLost
from amqp_broker.links.link import Link
from amqp_broker.links.link_states import LinkState
from amqp_broker.links.receiver_link import ReceiverLink
from amqp_broker.links.sender_link import SenderLink
from amqp_broker.links.serial import difference, extend

if TYPE_CHECKING:
    from amqp_broker.links.deliveries import OutgoingDelivery
    from amqp_broker.links.session import Session

_ATTACHED = LinkState.ATTACHED


def on_transfer(session: Session, transfer: Transfer, payload: bytes) -> None:
    """A transfer that came the general way."""
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
    transfer_received(session, head, payload, transfer.state)


def transfer_received(
    session: Session, head: TransferHead, payload: bytes, state: object
) -> ReceiverLink | None:
    """One transfer; the link that took it, None when it was dropped. Raises RemoteProtocolError."""
    try:
        return _transfer(session, head, payload, state)
    except RemoteProtocolError as error:
        _lose_transfer(session, head.handle, head.delivery_id, state, error.description)
        raise


def _transfer(
    session: Session, head: TransferHead, payload: bytes, state: object
) -> ReceiverLink | None:
    if session.window.incoming_window <= 0:
        raise session_error(
            WINDOW_VIOLATION,
            f"transfer {session.window.next_incoming_id & 0xFFFFFFFF}, but the incoming-window is used up "
            f"(limits.max_unsettled_per_session)",
        )
    session.window.received(1)
    session.mark_read()
    link = _input_link(session, head.handle, "transfer")
    if link.state is not _ATTACHED:
        if head.delivery_id >= 0 and head.delivery_id == session.next_delivery & 0xFFFFFFFF:
            session.next_delivery += 1
        _lose_transfer(session, head.handle, head.delivery_id, state, "its link has ended")
        return None
    if not isinstance(link, ReceiverLink):
        raise session_error(
            NOT_ALLOWED, f"transfer on handle {head.handle}, but there the peer is the receiver"
        )
    try:
        delivery = link.on_transfer(head, payload, state)
    except RemoteProtocolError as error:
        named = link.partial.state if state is None and link.partial is not None else state
        _lose_transfer(session, head.handle, head.delivery_id, named, error.description)
        session.link_failed(link, error)
        return None
    if delivery is not None:
        session.connection.events.deliveries_of(link).append(delivery)
    return link


def lose_work(session: Session, performative: Any) -> None:
    """A frame came on a session that we have ended: what it wanted in a transaction has to be known there."""
    if type(performative) is Transfer:
        number = -1 if performative.delivery_id is None else performative.delivery_id
        _lose_transfer(session, performative.handle, number, performative.state, "its session has ended")
    elif type(performative) is Disposition and performative.role == RECEIVER:
        first = performative.first
        width = max(0, difference(first if performative.last is None else performative.last, first))
        start = extend(first, session.next_outgoing_delivery)
        _lose_outcomes(session, start, start + width, set(), performative.state, performative.settled)


def _lose_transfer(session: Session, handle: int, delivery_id: int, state: object, why: str) -> None:
    """Nobody is given a transfer; the transaction that it names has to know."""
    txn_id = txn_id_of(state)
    if txn_id is not None and session.settings.server:
        link = session.input_links.get(handle)
        where = f"handle {handle}" if link is None else f"link {link.name[:64]!r}"
        which = "a delivery" if delivery_id < 0 else f"delivery {delivery_id}"
        session.connection.events.tell(WorkLost(txn_id, f"{which} on {where}", why))


def _lose_outcomes(
    session: Session, first: int, last: int, found: set[int], state: object, settled: bool
) -> None:
    """Some of these deliveries are not unsettled (any more); the transaction of their outcome has to know."""
    if not session.settings.server:
        return
    if type(state) is TransactionalState and (settled or state.outcome is not None):
        session.connection.events.tell(OutcomesLost(session, first, last, found, state, settled))


def on_attach(session: Session, attach: Attach, _payload: bytes) -> None:
    """The peer's attach: a new link, or the answer to ours (2.6.3). Raises RemoteProtocolError."""
    handle = attach.handle
    if handle > session.handle_max:
        raise connection_error(
            FRAMING_ERROR,
            f"attach with handle {handle}, but handle-max is {session.handle_max} "
            f"(2.7.2; limits.max_links_per_session)",
            "max_links_per_session",
        )
    if handle in session.input_links:
        # 2.7.3: an immediate close carrying a handle-in-use session-error.
        raise connection_error(
            HANDLE_IN_USE,
            f"attach of {attach.name[:64]!r} with handle {handle}, which link "
            f"{session.input_links[handle].name[:64]!r} has",
        )
    if attach.role == SENDER and attach.initial_delivery_count is None:
        raise session_error(INVALID_FIELD, "attach of a sender without initial-delivery-count (2.7.3)")
    ours = session.link_waiting_for(attach)
    if ours is not None:
        _attach_answered(session, ours, attach)
        return
    session.connection.steal(attach.name, attach.role)
    if session.connection.links_full():
        raise session_error(
            RESOURCE_LIMIT_EXCEEDED,
            f"attach of {attach.name[:64]!r}, but the connection has {session.limits.links_per_connection} "
            f"links (limits.max_links_per_connection)",
            "max_links_per_connection",
        )
    link: ReceiverLink | SenderLink
    try:
        output_handle = session.free_handle()
    except LocalProtocolError as error:
        raise session_error(NOT_ALLOWED, error.description) from None
    if attach.role == SENDER:
        link = ReceiverLink(session, attach.name, output_handle)
    else:
        link = SenderLink(session, attach.name, output_handle)
    session.input_links[handle] = link
    session.output_links[output_handle] = link
    session.connection.link_count += 1
    link.on_attach(attach, False)
    session.connection.remember_link(link)
    session.connection.wants_answer(AttachReceived(link, attach))


def _attach_answered(session: Session, link: Link, attach: Attach) -> None:
    session.input_links[attach.handle] = link
    link.on_attach(attach, True)
    session.connection.remember_link(link)
    assert isinstance(link, (ReceiverLink, SenderLink))
    session.connection.events.tell(LinkAttached(link, attach))
    if isinstance(link, ReceiverLink) and link.flow_state.kept and link.flow_state.target:
        link.set_credit(link.flow_state.target)


def _input_link(session: Session, handle: int, what: str) -> Link:
    link = session.input_links.get(handle)
    if link is None:
        raise session_error(
            UNATTACHED_HANDLE,
            f"{what} on handle {handle}, but the session has {_handles(session.input_links)}",
        )
    return link


def on_detach(session: Session, detach: Detach, _payload: bytes) -> None:
    """The peer's detach (2.6.6). Raises a session error without such a link."""
    link = _input_link(session, detach.handle, "detach")
    link.detach_received(detach)


def on_flow(session: Session, flow: Flow, _payload: bytes) -> None:
    """A flow that came the general way."""
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
    flow_received(session, head, flow.properties)


def flow_received(session: Session, flow: FlowHead, properties: dict[str, Any] | None) -> None:
    """One flow (2.7.4). Raises RemoteProtocolError."""
    window = session.window
    closed = window.remote_incoming_window <= 0
    window.flow_received(flow.next_incoming_id, flow.incoming_window, flow.next_outgoing_id)
    if closed and window.remote_incoming_window > 0:
        session.connection.go_on_sending()
        session.wake_blocked()
    if flow.handle < 0:
        if (
            flow.delivery_count >= 0
            or flow.link_credit >= 0
            or flow.available >= 0
            or flow.drain
            or properties is not None
        ):
            # Of each of these: "When the handle field is not set, this field MUST NOT be set" (2.7.4).
            raise session_error(
                INVALID_FIELD,
                "a flow without handle has delivery-count, link-credit, available, drain or properties "
                "(2.7.4)",
            )
        if flow.echo:
            session.echo_due = True
            session.mark_read()
        return
    link = _input_link(session, flow.handle, "flow")
    if link.state is not _ATTACHED:
        return
    if isinstance(link, SenderLink):
        link.on_flow(flow.delivery_count, flow.link_credit, flow.drain, properties)
    elif isinstance(link, ReceiverLink):
        link.on_flow(flow.delivery_count, flow.available)
        if flow.drain or flow.echo:
            link.settle_deferred()
    if flow.echo:
        session.connection.echo_links.add(link)


def on_disposition(session: Session, disposition: Disposition, _payload: bytes) -> None:
    """A disposition that came the general way."""
    last = disposition.first if disposition.last is None else disposition.last
    disposition_received(
        session, disposition.role, disposition.first, last, disposition.settled, disposition.state
    )


def disposition_received(
    session: Session, role: bool, first: int, last: int, settled: bool, state: object
) -> None:
    """One disposition: its cost is what is unsettled of the range. Raises RemoteProtocolError."""
    width = difference(last, first)
    if width < 0:
        raise session_error(
            INVALID_FIELD, f"disposition from {first} to {last}: last comes before first (RFC 1982)"
        )
    if role == RECEIVER:
        start = extend(first, session.next_outgoing_delivery)
        _outcomes(session, start, start + width, settled, state)
    elif settled and session.next_delivery >= 0:
        start = extend(first, session.next_delivery)
        for found_first, found_last, link in session.unsettled_in.take(start, start + width):
            link.sender_settled(found_first, found_last)


def _outcomes(session: Session, first: int, last: int, settled: bool, state: object) -> None:
    """What the receiver says of our deliveries: one event for each run of one link."""
    unsettled = session.unsettled_out
    numbers: Any = range(first, last + 1)
    if last - first >= len(unsettled):
        numbers = [number for number in unsettled if first <= number <= last]
    run: list[OutgoingDelivery] = []
    link: SenderLink | None = None
    get = unsettled.get
    runs = []
    count = 0
    for number in numbers:
        delivery = get(number)
        if delivery is None:
            continue
        if delivery.link is not link:
            if run:
                _tell_outcomes(session, link, run, state, settled)
            run = []
            runs.append(run)
            link = delivery.link
        count += 1
        delivery.state = state
        run.append(delivery)
        if settled:
            del unsettled[number]
    if run:
        _tell_outcomes(session, link, run, state, settled)
        if settled:
            session.wake_blocked()
    if count <= last - first and type(state) is TransactionalState:
        found = {delivery.number for run in runs for delivery in run}
        _lose_outcomes(session, first, last, found, state, settled)


def _tell_outcomes(
    session: Session, link: SenderLink | None, run: list[OutgoingDelivery], state: object, settled: bool
) -> None:
    assert link is not None
    if settled:
        link.unsettled_count -= len(run)
    session.connection.events.tell_outcomes(link, run, state, settled)


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


HANDLERS: Final[dict[type, Callable[[Session, Any, bytes], None]]] = {
    Attach: on_attach,
    Flow: on_flow,
    Transfer: on_transfer,
    Disposition: on_disposition,
    Detach: on_detach,
}
