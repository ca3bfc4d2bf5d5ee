"""The hot path of reading: runs of transfers, dispositions and flows straight from the reader's buffer.

Everything that is not certain is left to the general way, which starts at the same byte.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from amqp_broker.frames import (
    DISPOSITION_CODE,
    FLOW_CODE,
    TRANSFER_CODE,
    learn_shape,
    read_disposition,
    read_flow,
    read_run,
    read_transfer,
)
from amqp_broker.links.dispositions import decode_state
from amqp_broker.links.errors import RemoteProtocolError
from amqp_broker.links.link_states import LinkState
from amqp_broker.links.session_frames import disposition_received, flow_received, transfer_received
from amqp_broker.links.session_states import SessionState

if TYPE_CHECKING:
    from amqp_broker.frames import FrameReader
    from amqp_broker.links.connection import Connection
    from amqp_broker.links.receiver_link import ReceiverLink
    from amqp_broker.links.session import Session

_ATTACHED = LinkState.ATTACHED
_MAPPED = SessionState.MAPPED
_frame_header: Final = struct.Struct(">IBBHHB").unpack_from
_SHORTEST_FRAME: Final = 12
_DESCRIBED_SMALLULONG: Final = 0x0053


def read_fast(connection: Connection) -> None:
    """Reads hot frames until one comes that is not, or more bytes are needed. Raises like the general way."""
    reader = connection.reader
    while True:
        link = connection.run_link
        if link is not None and link.shape is not None:
            _read_runs(connection, link, reader)
        data = reader.data
        start = reader.position
        if len(data) - start < _SHORTEST_FRAME:
            return
        size, doff, frame_type, channel, described, code = _frame_header(data, start)
        stop = start + size
        if (
            described != _DESCRIBED_SMALLULONG
            or doff != 2
            or frame_type != 0
            or stop > len(data)
            or size > reader.max_frame_size
            or size < _SHORTEST_FRAME
        ):
            return
        session = connection.incoming.get(channel)
        if session is None or session.state is not _MAPPED:
            return
        try:
            if code == TRANSFER_CODE:
                taken = _read_transfer(connection, session, reader, start, stop)
            elif code == DISPOSITION_CODE:
                taken = _read_disposition(session, reader, start, stop)
            elif code == FLOW_CODE:
                taken = _read_flow(session, reader, start, stop)
            else:
                return
        except RemoteProtocolError as error:
            connection.session_failed(session, error)
            taken = True
        if not taken:
            return
        connection.timers.last_received = connection.now


def _read_runs(connection: Connection, link: ReceiverLink, reader: FrameReader) -> None:
    """Reads the transfers of `link` that look like its last one, as many as credit and window allow."""
    shape = link.shape
    session = link.session
    flow = link.flow_state
    window = session.window
    limit = min(window.incoming_window, flow.acceptable())
    if shape is None or limit <= 0 or link.partial is not None or link.state is not _ATTACHED:
        return
    if session.state is not _MAPPED or len(reader.data) - reader.position < shape.head_bytes:
        return
    max_frame = reader.max_frame_size
    if link.max_message_size:
        max_frame = min(max_frame, shape.head_bytes + link.max_message_size)
    first = session.next_delivery
    deliveries = connection.events.deliveries_of(link)
    before = len(deliveries)
    reader.position = read_run(
        reader.data, reader.position, shape, first & 0xFFFFFFFF, limit, max_frame, deliveries
    )
    count = len(deliveries) - before
    if not count:
        connection.events.drop_empty_run()
        return
    connection.timers.last_received = connection.now
    session.next_delivery = first + count
    window.received(count)
    session.held += count
    session.mark_read()
    if shape.settled:
        flow.received(count, 0)
    else:
        flow.received(count, count)
        session.unsettled_in.add(first, first + count - 1, link)


def _read_transfer(
    connection: Connection, session: Session, reader: FrameReader, start: int, stop: int
) -> bool:
    """One transfer, byte by byte; what it looks like is remembered for the next ones."""
    data = reader.data
    head = read_transfer(data, start + 8, stop)
    if head is None:
        return False
    state: object = None
    if head.state_at >= 0:
        state = decode_state(data[head.state_at : head.state_end])
    reader.position = stop
    link = transfer_received(session, head, data[head.payload_at : stop], state)
    connection.run_link = link
    if link is None:
        return True
    mode = link.rcv_settle_mode if head.rcv_settle_mode < 0 else head.rcv_settle_mode
    link.shape = learn_shape(data, start, head, mode, state)
    return True


def _read_disposition(session: Session, reader: FrameReader, start: int, stop: int) -> bool:
    data = reader.data
    fields = read_disposition(data, start + 8, stop)
    if fields is None:
        return False
    role, first, last, settled, state_at, state_end = fields
    state: object = None
    if state_at >= 0:
        state = decode_state(data[state_at:state_end])
    reader.position = stop
    disposition_received(session, role, first, last, settled, state)
    return True


def _read_flow(session: Session, reader: FrameReader, start: int, stop: int) -> bool:
    flow = read_flow(reader.data, start + 8, stop)
    if flow is None:
        return False
    reader.position = stop
    flow_received(session, flow, None)
    return True
