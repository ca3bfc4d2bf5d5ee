"""The frames of a connection: open, begin, end, close, and the way to a session for all others (2.4, 2.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from amqp_broker.frames import Attach, Begin, Close, Detach, End, Frame, Open, ProtocolHeader
from amqp_broker.links.connection_states import ConnectionInput, ConnectionState
from amqp_broker.links.errors import (
    FRAMING_ERROR,
    INVALID_FIELD,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    LocalProtocolError,
    RemoteProtocolError,
    Scope,
    connection_error,
)
from amqp_broker.links.events import ConnectionOpened, SessionBegun
from amqp_broker.links.limits import MIN_MAX_FRAME_SIZE
from amqp_broker.links.session import Session
from amqp_broker.links.session_states import SessionState

if TYPE_CHECKING:
    from amqp_broker.links.connection import Connection

_S = ConnectionState
_I = ConnectionInput
CLOSING: Final = (
    ConnectionState.CLOSE_SENT,
    ConnectionState.DISCARDING,
    ConnectionState.CLOSE_PIPE,
    ConnectionState.OC_PIPE,
)
# What makes us build or tear down something; who does it beyond a rate is read slower.
_CONTROL: Final = frozenset({Begin, Attach, Detach, End})


def header_received(connection: Connection, header: ProtocolHeader) -> None:
    """A protocol header (2.2). Raises a connection error for one that we do not take."""
    connection.timers.header_at = None
    connection.negotiation.header_received(header)
    if connection.negotiation.in_sasl:
        connection.reader.max_frame_size = connection.limits.sasl_frame_size
    else:
        connection.reader.max_frame_size = connection.limits.frame_size_before_open
        connection.reader.limit_name = " (limits.open_frame_size_bytes)"


def frame_received(connection: Connection, frame: Frame) -> None:
    """Any frame, decoded. Raises RemoteProtocolError for what closes the connection."""
    if connection.state in CLOSING and connection.state not in (_S.CLOSE_PIPE, _S.OC_PIPE):
        if type(frame.performative) is Close:
            connection.step(_I.R_CLOSE)
            connection.closed_by_us()
        return
    performative = frame.performative
    if connection.remote_open is None:
        connection.frames_before_open += 1
        if connection.frames_before_open > connection.limits.frames_before_open:
            raise connection_error(
                RESOURCE_LIMIT_EXCEEDED,
                f"more than {connection.limits.frames_before_open} frames before open (limits.login_frames)",
                "login_frames",
            )
    if connection.negotiation.in_sasl:
        if not frame.is_sasl:
            raise connection_error(FRAMING_ERROR, "expected a SASL frame, but found an AMQP frame (5.3.1)")
        connection.negotiation.frame_received(performative)
        return
    if frame.is_sasl:
        raise connection_error(FRAMING_ERROR, "a SASL frame outside of the SASL exchange (5.3.1)")
    if performative is None:
        if connection.remote_open is None:
            raise connection_error(NOT_ALLOWED, "an empty frame, but the first frame has to be open (2.4.1)")
        # "Implementations MUST be prepared to handle empty frames arriving on any valid channel" (2.4.5).
        _check_channel(connection, "an empty frame", frame.channel)
        return
    kind = type(performative)
    if kind is Open:
        _on_open(connection, performative, frame.channel)
    else:
        _check(connection, kind, frame.channel)
        _dispatch(connection, kind, frame, performative)


def _check(connection: Connection, kind: type, channel: int) -> None:
    """What every frame but open has to keep."""
    name = kind.__name__.lower()
    if connection.remote_open is None:
        raise connection_error(NOT_ALLOWED, f"{name}, but the first frame has to be open (2.4.1)")
    _check_channel(connection, name, channel)
    if kind in _CONTROL:
        connection.count_operation()


def _check_channel(connection: Connection, name: str, channel: int) -> None:
    largest = connection.settings.channel_max
    if channel > largest:
        raise connection_error(
            FRAMING_ERROR,
            f"{name} on channel {channel}, but channel-max is {largest} (2.7.1; limits.max_sessions)",
            "max_sessions",
        )


def _dispatch(connection: Connection, kind: type, frame: Frame, performative: Any) -> None:
    if kind is Begin:
        connection.step(_I.R_FRAME)
        _on_begin(connection, performative, frame.channel)
    elif kind is Close:
        _on_close(connection, performative)
    else:
        connection.step(_I.R_FRAME)
        session = session_of(connection, frame.channel, kind.__name__.lower())
        if kind is End:
            _on_end(connection, session, performative)
            return
        try:
            session.frame_received(performative, frame.payload)
        except RemoteProtocolError as error:
            connection.session_failed(session, error)
        except LocalProtocolError as error:
            connection.session_failed(
                session, RemoteProtocolError(Scope.SESSION, error.condition, error.description)
            )


def session_of(connection: Connection, channel: int, what: str) -> Session:
    """The session of an incoming channel. Raises a connection error without one."""
    session = connection.incoming.get(channel)
    if session is None:
        channels = ", ".join(str(number) for number in sorted(connection.incoming)[:16]) or "none"
        raise connection_error(NOT_ALLOWED, f"{what} on channel {channel}, but sessions are on: {channels}")
    return session


def _on_open(connection: Connection, open_: Open, channel: int) -> None:
    if channel != 0:
        raise connection_error(NOT_ALLOWED, f"open on channel {channel}, but it is only sent on 0 (2.4.1)")
    connection.step(_I.R_OPEN)
    connection.count_operation()
    connection.remote_open = open_
    connection.timers.open_at = None
    if connection.state in CLOSING:
        return
    connection.remote_max_frame_size = max(MIN_MAX_FRAME_SIZE, open_.max_frame_size)
    connection.remote_channel_max = open_.channel_max
    connection.reader.max_frame_size = connection.settings.max_frame_size
    connection.reader.limit_name = " (limits.max_frame_size_bytes)"
    if connection.state is _S.OPEN_RCVD:
        connection.send_open()
    if open_.max_frame_size < MIN_MAX_FRAME_SIZE:
        raise connection_error(
            INVALID_FIELD,
            f"max-frame-size {open_.max_frame_size}, but at least {MIN_MAX_FRAME_SIZE} (2.8.19)",
        )
    idle = open_.idle_time_out or 0
    if 0 < idle < connection.limits.min_idle_time_out_ms:
        raise connection_error(
            NOT_ALLOWED,
            f"idle-time-out {idle} ms, but at least {connection.limits.min_idle_time_out_ms} is supported "
            f"(limits.min_peer_idle_time_out_ms)",
            "min_peer_idle_time_out_ms",
        )
    connection.timers.remote_idle_time_out(idle)
    connection.events.tell(ConnectionOpened(open_))


def _on_begin(connection: Connection, begin: Begin, channel: int) -> None:
    if channel in connection.incoming:
        raise connection_error(NOT_ALLOWED, f"begin on channel {channel}, which has a session (2.5.1)")
    if begin.remote_channel is not None:
        session = connection.sessions.get(begin.remote_channel)
        if session is None or session.state is not SessionState.BEGIN_SENT:
            raise connection_error(
                NOT_ALLOWED,
                f"begin with remote-channel {begin.remote_channel}, but no begin of ours waits there",
            )
        session.begin_received(begin, channel)
    else:
        session = Session(connection, connection.free_channel())
        session.begin_received(begin, channel)
        connection.sessions[session.channel] = session
        session.begin(channel)
    connection.incoming[channel] = session
    connection.events.tell(SessionBegun(session))


def _on_end(connection: Connection, session: Session, end: End) -> None:
    session.end_received(end)
    connection.incoming.pop(session.remote_channel, None)
    if session.leaving is None:
        connection.session_gone(session)


def _on_close(connection: Connection, close: Close) -> None:
    connection.step(_I.R_CLOSE)
    if connection.state is _S.CLOSE_RCVD:
        connection.close_received(close)
    else:
        connection.lose(close.error, local=False)
