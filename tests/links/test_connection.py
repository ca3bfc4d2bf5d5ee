"""Opening, closing, idle time and errors of a connection, as transcripts (2.4)."""

from __future__ import annotations

import attrs
import pytest

from amqp_broker.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    Accepted,
    Begin,
    Close,
    Disposition,
    End,
    Error,
    Open,
    Source,
    Target,
    encode_frame,
    encode_sasl_frame,
)
from amqp_broker.frames.sasl import SaslInit
from amqp_broker.links import (
    AttachReceived,
    ConnectionClosed,
    ConnectionOpened,
    DeliveriesReceived,
    Event,
    Limits,
    LinkDetached,
    LinkLeaving,
    LocalProtocolError,
    OperationRate,
    SessionBegun,
    SessionEnded,
)
from amqp_broker.links.connection_states import ConnectionState
from tests.links.pair import NOW, Message, Pair, error_of, of_type, receiving, taken
from tests.links.raw_peer import (
    RawPeer,
    closed_with,
    deliveries,
    flow,
    in_session,
    receiver_attach,
    sender_attach,
    transfer,
)

BEGIN = Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100)


# --- open


def test_open_tells_our_limits() -> None:
    """2.7.1: container-id, max-frame-size, channel-max and idle-time-out of the settings."""
    peer = RawPeer(offered_capabilities=("x",), properties={"product": "p"}).open()
    assert peer.heard() == [
        Open(
            container_id="server", max_frame_size=65536, channel_max=1023, idle_time_out=30000,
            offered_capabilities=("x",), properties={"product": "p"},
        )
    ]  # fmt: skip
    assert peer.headers == [AMQP_HEADER]
    (opened,) = peer.events
    assert isinstance(opened, ConnectionOpened) and opened.remote_open.container_id == "peer"


def test_everything_in_one_write() -> None:
    """2.4.2: header, open, begin, attach, transfers and close without waiting; all is taken, all is
    answered.
    """
    peer = RawPeer(credit=2)
    events = peer.feed(
        AMQP_HEADER
        + encode_frame(0, Open(container_id="c"))
        + encode_frame(0, BEGIN)
        + encode_frame(0, sender_attach())
        + encode_frame(0, transfer(0), b"one")
        + encode_frame(0, transfer(1), b"two")
        + encode_frame(0, Close())
    )
    assert [type(event) for event in events] == [
        ConnectionOpened, SessionBegun, AttachReceived, DeliveriesReceived, LinkLeaving,
    ]  # fmt: skip
    assert [delivery.payload for delivery in of_type(events, DeliveriesReceived)[0].deliveries] == [
        b"one",
        b"two",
    ]
    (link,) = [event.link for event in of_type(events, LinkLeaving)]
    link.settle(deliveries(events), Accepted())
    link.processed(2)
    assert [type(event) for event in peer.server.take_events()] == [
        LinkDetached, SessionEnded, ConnectionClosed,
    ]  # fmt: skip
    assert [type(item) for item in peer.heard()[-2:]] == [Disposition, Close]
    assert peer.server.wants_close


@pytest.mark.parametrize(
    ("frame", "condition"),
    [
        (encode_frame(0, BEGIN), "amqp:not-allowed"),
        (encode_frame(0, Close()), "amqp:not-allowed"),
        (EMPTY_FRAME, "amqp:not-allowed"),
        (encode_frame(1, Open(container_id="c")), "amqp:not-allowed"),
        (b"\x00\x00\x20\x01\x02\x00\x00\x00", "amqp:connection:framing-error"),
        (encode_frame(0, Open(container_id="c", max_frame_size=511)), "amqp:invalid-field"),
        (encode_frame(0, Open(container_id="c", idle_time_out=999)), "amqp:not-allowed"),
        (encode_sasl_frame(SaslInit(mechanism="PLAIN")), "amqp:connection:framing-error"),
    ],
)
def test_a_first_frame_that_is_no_good_open(frame: bytes, condition: str) -> None:
    """2.4.1: open comes first, on channel 0, in 8,192 octets; our open goes out before the close that says
    so.
    """
    peer = RawPeer()
    events = peer.feed(AMQP_HEADER + frame)
    heard = peer.heard()
    assert isinstance(heard[0], Open) and isinstance(heard[1], Close) and len(heard) == 2
    assert heard[1].error is not None and heard[1].error.condition == condition
    assert of_type(events, ConnectionClosed)
    assert not of_type(events, ConnectionOpened)


def test_a_second_open_is_refused() -> None:
    """2.4.6: OPENED receives no open."""
    peer = RawPeer().open()
    peer.say(Open(container_id="again"))
    closed_with(peer, "amqp:illegal-state")


def test_no_open_within_ten_seconds() -> None:
    """The limit is absolute: what trickles in does not move it."""
    peer = RawPeer()
    peer.feed(AMQP_HEADER)
    peer.now = NOW + 9
    peer.feed(encode_frame(0, Open(container_id="c"))[:5])
    assert peer.server.next_deadline() == NOW + 10
    peer.server.handle_timeout(NOW + 10)
    closed_with(peer, "amqp:resource-limit-exceeded")


# --- frames


@pytest.mark.parametrize(
    "junk",
    [
        b"\x00\x00\x00\x07\x02\x00\x00\x00",
        b"\x00\x00\x00\x08\x01\x00\x00\x00",
        b"\x00\x00\x00\x08\x03\x00\x00\x00",
        b"\x00\x00\x00\x08\x02\x05\x00\x00",
        b"\xff\xff\xff\xff\x02\x00\x00\x00",
        b"\x00\x01\x00\x01\x02\x00\x00\x00",
    ],
)
def test_what_is_no_frame_closes_with_framing_error(junk: bytes) -> None:
    """2.3.1: sizes and offsets that cannot be; the announced size is checked before the body is waited
    for.
    """
    peer = RawPeer().open()
    peer.feed(junk)
    closed_with(peer, "amqp:connection:framing-error")


@pytest.mark.parametrize(
    "body",
    [b"\x00", b"\x40", b"\x00\x53\x99\x45", b"\x00\x53\x14\xc0\x02\x01", b"\x00\x53\x12\x45", b"\xff" * 40],
)
def test_what_is_no_performative_closes_with_decode_error(body: bytes) -> None:
    """2.8.15: data could not be decoded; a mandatory field is missing."""
    peer = in_session()
    peer.feed((8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body)
    close = peer.heard()[-1]
    assert isinstance(close, Close) and close.error is not None
    assert close.error.condition in ("amqp:decode-error", "amqp:invalid-field")
    assert peer.server.wants_close


def test_an_unknown_channel() -> None:
    """A frame for a session that is not there closes, and the text says which there are."""
    peer = RawPeer().open()
    peer.begin(channel=2)
    peer.say(flow(), channel=7)
    assert closed_with(peer, "amqp:not-allowed") == "flow on channel 7, but sessions are on: 2"


def test_a_channel_beyond_channel_max() -> None:
    """2.7.1: a channel number outside the supported range MUST close with framing-error."""
    peer = RawPeer(channel_max=3).open()
    peer.begin(channel=3)
    peer.say(BEGIN, channel=4)
    assert (
        closed_with(peer, "amqp:connection:framing-error")
        == "begin on channel 4, but channel-max is 3 (2.7.1; limits.max_sessions)"
    )


def test_an_empty_frame_on_any_valid_channel_is_one() -> None:
    """2.4.5: with a session on it or not; beyond channel-max it is as wrong as any other."""
    peer = RawPeer(channel_max=3).open()
    peer.begin(channel=1)
    peer.heard()
    for channel in range(4):
        assert peer.feed(EMPTY_FRAME[:6] + channel.to_bytes(2, "big")) == []
    assert peer.heard() == []
    peer.feed(EMPTY_FRAME[:6] + b"\x00\x04")
    assert "an empty frame on channel 4" in closed_with(peer, "amqp:connection:framing-error")


def test_a_thousand_and_twenty_four_sessions() -> None:
    """The default channel-max of 1,023 is 1,024 sessions."""
    peer = RawPeer().open()
    for channel in range(1_024):
        peer.begin(channel=channel)
    assert len(peer.server.sessions) == 1_024
    peer.say(BEGIN, channel=1_024)
    closed_with(peer, "amqp:connection:framing-error")


def test_each_session_of_a_read_is_looked_after() -> None:
    """Of a hundred sessions those answer that were asked, once each, in one read or in several."""
    peer = RawPeer().open()
    for channel in range(100):
        peer.begin(channel=channel)
    peer.heard()
    peer.feed(b"".join(encode_frame(channel, flow(echo=True)) for channel in (9, 3, 9)))
    assert [frame.channel for frame in peer.frames()] == [9, 3]
    peer.feed(encode_frame(9, flow(echo=True)))
    assert [frame.channel for frame in peer.frames()] == [9]


def test_more_sessions_than_the_peer_takes() -> None:
    """Its channel-max leaves us no channel for the answer."""
    peer = RawPeer().open(channel_max=0)
    peer.begin(channel=0)
    peer.say(BEGIN, channel=1)
    closed_with(peer, "amqp:not-allowed")


LIMITS = Limits(control_operations_per_s=200.0, control_operations_burst=500)


def cycles(count: int, opened: int = 0) -> bytes:
    """So many sessions that begin and end."""
    frame = encode_frame(0, BEGIN) + encode_frame(0, End())
    return (AMQP_HEADER + encode_frame(0, Open(container_id="c")) if opened else b"") + frame * count


def begun(events: list[Event]) -> int:
    """How many sessions began."""
    return len(of_type(events, SessionBegun))


def test_control_operations_beyond_the_rate_are_slowed_down() -> None:
    """500 begin, attach, detach and end at once, then 200 in a second: what is beyond waits, nothing is
    cut.
    """
    peer = RawPeer(limits=LIMITS)
    count = begun(peer.feed(cycles(1_000, opened=True)))
    assert 249 <= count <= 251 and not peer.server.takes_data()
    while not peer.server.takes_data():
        deadline = peer.server.next_deadline()
        assert deadline is not None
        peer.now = deadline
        count += begun(peer.server.handle_timeout(peer.now))
    assert count == 1_000
    assert 7.4 < peer.now - NOW < 7.6
    assert peer.server.handle_timeout(peer.now + 0.1) == []
    assert not peer.server.wants_close


def test_slow_enough_is_not_slowed_down() -> None:
    """A template that opens and closes a session and a link for each message, 100 times a second."""
    peer = RawPeer(limits=LIMITS).open()
    for _ in range(2_000):
        peer.feed(cycles(1))
        assert peer.server.takes_data()
        peer.now += 0.01


def test_who_is_slowed_down_is_not_idle_and_keeps_what_came() -> None:
    """Data that is given nevertheless waits, and silence is ours for so long."""
    peer = RawPeer(limits=attrs.evolve(LIMITS, control_operations_per_s=0.001), idle_time_out_ms=1_000)
    assert begun(peer.feed(cycles(250, opened=True))) == 250
    assert peer.feed(cycles(1)) == []
    assert peer.server.handle_timeout(NOW + 10) == []
    assert not peer.server.wants_close
    assert begun(peer.server.handle_timeout(NOW + 10_000)) == 1


def test_a_new_connection_is_no_new_start() -> None:
    """Connections of one address share a rate, so that short ones do not get around it; each open counts."""
    shared = OperationRate(200.0, 500, NOW)
    total = 0
    for _ in range(100):
        peer = RawPeer(limits=LIMITS, peer_rate=shared)
        total += begun(peer.feed(cycles(10, opened=True)))
        peer.server.receive_eof(peer.now)
    assert 230 <= total <= 250
    assert begun(RawPeer(limits=LIMITS).feed(cycles(10, opened=True))) == 10


# --- close


def test_a_close_is_answered_and_ends_everything() -> None:
    """2.4.3: our close, then the transport's end; links and sessions are told first."""
    peer = in_session()
    peer.attach_sender()
    peer.heard()
    events = peer.say(Close(error=Error(condition="amqp:internal-error", description="gone")))
    assert peer.heard() == [Close()]
    assert [type(event) for event in events] == [LinkDetached, SessionEnded, ConnectionClosed]
    assert error_of(events).description == "gone"
    assert not of_type(events, ConnectionClosed)[0].local
    assert peer.server.state is ConnectionState.END and peer.server.wants_close


def test_our_close_waits_for_the_peers() -> None:
    """2.4.3: nothing is written after close, what still comes is dropped until the peer's close."""
    peer = in_session()
    session = peer.server.incoming[0]
    link = peer.attach_sender()
    peer.heard()
    peer.server.close(Error(condition="amqp:connection:forced", description="stop"))
    events = peer.server.take_events()
    assert [type(event) for event in events] == [LinkDetached, SessionEnded]
    link.set_credit(50)
    session.end()
    (close,) = peer.heard()
    assert isinstance(close, Close) and not peer.server.wants_close
    assert peer.say(transfer(0), b"late") == []
    events = peer.say(Close())
    assert [type(event) for event in events] == [ConnectionClosed]
    assert events[0].error.description == "stop" and events[0].local  # type: ignore[attr-defined]
    assert peer.server.wants_close and peer.heard() == []


def test_a_peer_that_does_not_close_is_not_waited_for() -> None:
    """2.4.3: a time-out for the partner's close."""
    peer = RawPeer().open()
    peer.server.close()
    assert peer.server.next_deadline() == NOW + 5
    assert peer.server.handle_timeout(NOW + 4.9) == []
    assert of_type(peer.server.handle_timeout(NOW + 5), ConnectionClosed)
    assert peer.server.wants_close and peer.server.next_deadline() is None


def test_both_close_at_once() -> None:
    """2.4.4: each takes the other's close as the answer."""
    pair = Pair().open()
    pair.client.close()
    pair.server.close()
    up, down = taken(pair.client), taken(pair.server)
    pair.server.receive_data(up, NOW)
    pair.client.receive_data(down, NOW)
    assert pair.client.state is pair.server.state is ConnectionState.END
    assert taken(pair.client) == taken(pair.server) == b""


def test_a_lost_transport_tells_once() -> None:
    """Links with what was unsettled, sessions, the connection; a second end says nothing."""
    pair, _, sender = receiving(credit=5)
    assert sender.send([Message(b"a"), Message(b"b")]) == 2
    events = pair.server.receive_eof(NOW)
    assert [type(event) for event in events] == [LinkDetached, SessionEnded, ConnectionClosed]
    assert [delivery.message.body for delivery in events[0].unsettled] == [b"a", b"b"]  # type: ignore[attr-defined]
    assert pair.server.receive_eof(NOW) == []
    assert pair.server.receive_data(b"more", NOW) == []
    assert pair.server.handle_timeout(NOW + 1e6) == []


def test_a_client_may_close_before_the_servers_open() -> None:
    """2.4.6: OPEN_PIPE, then OC_PIPE, CLOSE_PIPE, CLOSE_SENT, END."""
    pair = Pair()
    pair.client.open()
    states = [pair.client.state]
    pair.client.close()
    states.append(pair.client.state)
    assert states == [ConnectionState.OPEN_PIPE, ConnectionState.OC_PIPE]
    pair.flush()
    assert pair.client.state is pair.server.state is ConnectionState.END


# --- idle time


def test_heartbeats_at_half_of_the_peers_idle_time() -> None:
    """2.4.5: an empty frame when nothing else was sent."""
    peer = RawPeer().open(idle_time_out=10_000)
    peer.heard()
    assert peer.server.next_deadline() == NOW + 5
    peer.server.handle_timeout(NOW + 4)
    assert taken(peer.server) == b""
    peer.server.handle_timeout(NOW + 5)
    assert taken(peer.server) == EMPTY_FRAME
    assert peer.server.next_deadline() == NOW + 10


def test_a_silent_peer_is_closed_after_twice_the_announced_time() -> None:
    """2.4.5: close with an error explaining why; heartbeats of the peer keep it alive."""
    peer = RawPeer().open()
    peer.heard()
    peer.now = NOW + 59
    peer.feed(EMPTY_FRAME)
    assert peer.server.next_deadline() == NOW + 119
    assert peer.server.handle_timeout(NOW + 118) == []
    events = peer.server.handle_timeout(NOW + 119)
    assert of_type(events, ConnectionClosed)
    assert "60 s" in closed_with(peer, "amqp:resource-limit-exceeded")


def test_a_peer_of_whom_something_waits_to_be_read_is_not_idle() -> None:
    """The caller has not given it yet; what it says next is awaited as long as ever."""
    peer = RawPeer().open()
    assert peer.server.handle_timeout(NOW + 60, unread=True) == []
    assert not peer.server.wants_close and peer.server.next_deadline() == NOW + 120
    assert of_type(peer.server.handle_timeout(NOW + 120), ConnectionClosed)


def test_a_peer_that_waits_for_us_is_not_idle() -> None:
    """While our caller owes an answer nothing is read, so nothing that is missing is the peer's fault."""
    peer = in_session()
    peer.answering = False
    peer.say(sender_attach())
    assert peer.server.handle_timeout(NOW + 60) == []
    assert not peer.server.wants_close and peer.server.next_deadline() == NOW + 120


def test_an_answer_that_comes_too_late_is_harmless() -> None:
    """The connection is gone before the attach is answered: accept and refuse do nothing."""
    for answer in ("accept", "refuse"):
        peer = in_session()
        peer.answering = False
        (event,) = peer.say(sender_attach())
        assert isinstance(event, AttachReceived)
        peer.server.receive_eof(NOW)
        if answer == "accept":
            event.link.accept(credit=5)
        else:
            event.link.refuse(Error(condition="amqp:not-found"))
        assert peer.server.take_events() == []


def test_half_a_frame_is_no_sign_of_life() -> None:
    """2.4.5: the time starts with the last frame received."""
    peer = RawPeer().open()
    peer.now = NOW + 50
    peer.feed(EMPTY_FRAME[:4])
    assert peer.server.next_deadline() == NOW + 60


# --- the caller's mistakes


def test_sessions_need_a_connection() -> None:
    """begin before open, or after close, is our caller's fault."""
    pair = Pair()
    with pytest.raises(LocalProtocolError):
        pair.client.begin()
    pair.open()
    pair.client.close()
    with pytest.raises(LocalProtocolError):
        pair.client.begin()
    pair.client.close()


def test_an_attach_that_the_peer_cannot_take_ends_the_session() -> None:
    """2.8.15: frame-size-too-small, when our answer does not fit into the peer's frames."""
    peer = RawPeer().open(max_frame_size=512)
    peer.begin()
    peer.answering = False
    (event,) = peer.say(receiver_attach())
    assert isinstance(event, AttachReceived)
    peer.heard()
    event.link.accept(source=Source(address="s" * 600), target=Target())
    (end,) = peer.heard()
    assert isinstance(end, End) and end.error is not None
    assert end.error.condition == "amqp:frame-size-too-small"
    assert [type(told) for told in peer.feed(b"")] == [LinkDetached, SessionEnded]


def test_an_error_that_the_peer_cannot_take_is_shortened() -> None:
    """The condition is told in any case."""
    peer = RawPeer().open(max_frame_size=512)
    peer.begin()
    peer.heard()
    peer.server.close(Error(condition="amqp:internal-error", description="d" * 600))
    assert peer.heard() == [Close(error=Error(condition="amqp:internal-error"))]
