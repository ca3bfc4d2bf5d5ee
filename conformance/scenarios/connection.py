"""Opening and closing a connection (2.4), its limits (2.7.1), and idle time-outs, both ways (2.4.5)."""

import time

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Peer, Session
from amqp_broker.conformance.messages import data
from amqp_broker.conformance.octets import NULL, OPEN, described, frame, list8, string8
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, by_the_clock, expect
from amqp_broker.conformance.queues import put
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.wire import ANY_ERROR
from amqp_broker.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Error,
    Frame,
    Open,
    Source,
    Target,
    Transfer,
    encode_composite,
)
from amqp_broker.frames.sasl import SaslMechanisms, SaslOutcome

BEGIN = Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100)


def _log_in_unanswered(broker: Broker, peer: Peer) -> None:
    """Sends what comes before open without waiting for an answer."""
    if broker.findings.mechanisms_usable(broker.settings.address):
        peer.send_header(SASL_HEADER)
        peer.send_sasl(broker.sasl_init())
    peer.send_header(AMQP_HEADER)


def _answers_before_open(broker: Broker, peer: Peer) -> None:
    if broker.findings.mechanisms_usable(broker.settings.address):
        peer.expect_header(SASL_HEADER)
        peer.expect(SaslMechanisms)
        peer.expect(SaslOutcome, code=0)
    peer.expect_header(AMQP_HEADER)


@scenario("2.4.1/open", "2.4.1-01", "2.7.1-01", "2.4.1-channel-0", "2.4.1-capabilities")
def open_exchange(broker: Broker) -> None:
    """Both peers send open first, on channel 0; the broker's names its container."""
    peer = broker.logged_in()
    peer.put(broker.own_open())
    opened = peer.expect(Open, channel=0)
    expect(opened.container_id, "the broker's open names no container")
    expect(opened.max_frame_size >= 512, f"2.8.19-02: max-frame-size {opened.max_frame_size} is below 512")


@scenario("2.4.1/begin-before-open", "2.4.1-01", "2.7.1-01", "2.4.3-01", breaks="2.4.1-01")
def begin_before_open(broker: Broker) -> None:
    """A begin before open: a broker that refuses it says why, in an open and a close."""
    peer = broker.logged_in()
    peer.put(BEGIN)
    peer.expect_error_if_any()
    broker.still_serves()


@scenario("2.4.1/second-open", "2.4.1-02", "2.8.15-not-allowed", profile="full", breaks="2.7.1-01")
def second_open(broker: Broker, peer: Peer) -> None:
    """A second open is used against its semantics: the broker closes with an error."""
    peer.put(broker.own_open())
    peer.expect_close(ANY_ERROR)
    broker.still_serves()


@scenario(
    "2.4.1/open-without-container-id", "2.4.3-01", breaks="2.3.2-01 2.4.1-01",
)  # fmt: skip
def open_without_container_id(broker: Broker) -> None:
    """A mandatory field may not be null: a broker that refuses an open without container-id says why."""
    peer = broker.logged_in()
    peer.send_octets(frame(described(OPEN, list8(NULL))), "open(container_id=null)")
    peer.expect_error_if_any()
    broker.still_serves()


@scenario("2.4.1/only-container-id", "2.7.1-02", "2.7.1-hostname", "2.7.1-limit")
def only_container_id(broker: Broker) -> None:
    """An open with nothing but the container-id is complete: defaults apply."""
    peer = broker.logged_in()
    peer.send_octets(frame(described(OPEN, list8(string8("bare")))), "open(container_id='bare')")
    peer.expect(Open)
    peer.begin()


@scenario("2.4.2/pipelined-open", "2.4.2-pipelined", "2.4.1-02")
def pipelined_open(broker: Broker) -> None:
    """Headers, open and begin in one write are answered as if each had waited."""
    peer = broker.connect()
    with peer.one_write():
        _log_in_unanswered(broker, peer)
        peer.put(broker.own_open())
        peer.put(BEGIN)
    _answers_before_open(broker, peer)
    peer.expect(Open)
    peer.expect(Begin, remote_channel=0)


@scenario("2.4.2/pipelined-link", "2.4.2-pipelined")
def pipelined_link(broker: Broker) -> None:
    """Everything from header to attach in one write, then a message: a client that waits for nothing."""
    peer = broker.connect()
    with peer.one_write():
        _log_in_unanswered(broker, peer)
        peer.put(broker.own_open())
        session = peer.put_begin()
        sender = session.put_sender(broker.queue())
    _answers_before_open(broker, peer)
    peer.expect(Open)
    session.expect_begin()
    sender.expect_attach()
    sender.put([data(b"pipelined")])


@scenario("2.4.2/pipelined-close", "2.4.2-pipelined", "2.4.3-04", "2.4.3-02")
def pipelined_close(broker: Broker) -> None:
    """A whole connection from header to close in one write gets open, what belongs to it, and close."""
    peer = broker.connect()
    with peer.one_write():
        _log_in_unanswered(broker, peer)
        peer.put(broker.own_open())
        peer.put(BEGIN)
        attach = Attach(
            name="link",
            handle=0,
            role=False,
            source=Source(),
            target=Target(address=broker.queue()),
            initial_delivery_count=0,
        )
        peer.put(attach)
        peer.put(Detach(handle=0, closed=True))
        peer.put(End())
        peer.put(Close())
    _answers_before_open(broker, peer)
    peer.expect(Open)
    peer.expect_close()


@scenario("2.4.3/close", "2.4.3-01", "2.4.3-02", "2.4.5-06", "2.7.9-01", "2.7.9-last")
def close(peer: Peer) -> None:
    """A close is answered with close, and that is the last thing the broker writes."""
    peer.put(Close())
    answer = peer.expect(Close, channel=0)
    expect(answer.error is None, f"the answer to a close in good order carries an error: {answer.error}")
    peer.expect_nothing_more()


@scenario("2.4.3/stream-ends", "2.4.3-02")
def stream_ends(peer: Peer) -> None:
    """When close has gone both ways and our side of the stream is closed, the broker closes its side."""
    peer.put(Close())
    peer.expect(Close)
    peer.finish_sending()
    peer.expect_eof()


@scenario("2.4.3/close-with-error", "2.4.3-01", "2.7.9-error")
def close_with_error(broker: Broker, peer: Peer) -> None:
    """A close that carries an error of ours is answered with close, too."""
    peer.put(Close(error=Error(condition="amqp:internal-error", description="the client has failed")))
    peer.expect_close()
    broker.still_serves()


@scenario("2.4.3/close-right-after-open", "2.4.3-04", "2.4.3-01")
def close_right_after_open(broker: Broker) -> None:
    """Open and close in one write are answered with open and close, on channel 0."""
    peer = broker.logged_in()
    with peer.one_write():
        peer.put(broker.own_open())
        peer.put(Close())
    peer.expect(Open, channel=0)
    peer.expect(Close, channel=0)
    peer.expect_nothing_more()


@scenario("2.4.3/close-on-another-channel", "2.4.3-any-channel", breaks="2.4.3-04")
def close_on_another_channel(broker: Broker) -> None:
    """A close is received on any channel up to the maximum."""
    peer, opened = broker.opened()
    if opened.channel_max == 0:
        raise NotApplicable("the broker has no channel but 0 (channel-max 0)")
    peer.put(Close(), channel=1)
    peer.expect_close()


@scenario("2.4.3/half-closed", "2.4.3-01", "2.4.3-02")
def half_closed(peer: Peer) -> None:
    """A client that closes its side of the stream after close still gets the broker's close."""
    peer.put(Close())
    peer.finish_sending()
    peer.expect(Close)
    peer.expect_eof()


@scenario("2.4.3/nothing-after-close", "2.4.3-02", "2.7.9-last")
def nothing_after_close(broker: Broker, session: Session) -> None:
    """Nothing follows close, not even messages that there is credit for; a race is lost in some of five."""
    for attempt in range(5):
        queue, session = broker.queue(f"{attempt}"), session if attempt == 0 else broker.session()
        session.sender(queue).put(data(b"%d" % number) for number in range(20))
        session.receiver(queue)
        with session.peer.one_write():
            session.flow(handle=1, delivery_count=0, link_credit=20)
            session.peer.put(Close())
        session.peer.expect(Close, skip=(Transfer,))
        session.peer.expect_nothing_more()


@scenario("2.4.3/no-answer-to-close", "2.4.3-03", waits=True, breaks="2.3.2-01 2.7.1-04 2.7.1-07")
def no_answer_to_close(broker: Broker, peer: Peer) -> None:
    """A broker that has closed waits for our close only for a reasonable time."""
    peer.provoke_close()
    peer.expect_provoked(Close)
    peer.expect_eof(timeout_s=20)


@scenario(
    "2.4.4/simultaneous-close", "2.4.4-simultaneous", "2.4.6-01", "2.4.3-02",
    breaks="2.3.2-01 2.7.1-04 2.7.1-07",
)  # fmt: skip
def simultaneous_close(broker: Broker, peer: Peer) -> None:
    """Our close crosses the broker's: each is the answer to the other, and frames between are discarded."""
    with peer.one_write():
        peer.provoke_close()
        peer.put(BEGIN)
        peer.put(Close())
    peer.expect_provoked(Close)
    peer.expect_nothing_more()
    broker.still_serves()


@scenario("2.4.6/discarding", "2.4.6-01", breaks="2.3.2-01 2.7.1-04 2.7.1-07")
def discarding(broker: Broker, peer: Peer) -> None:
    """After its close with an error the broker discards our frames until our close comes."""
    peer.provoke_close()
    peer.expect_provoked(Close)
    for channel in range(3):
        peer.put(BEGIN, channel=channel)
    peer.put(Close())
    peer.expect_nothing_more()
    broker.still_serves()


@scenario("2.7.1/accepts-its-frame-size", "2.7.1-06", "2.7.1-04")
def accepts_its_frame_size(broker: Broker, session: Session) -> None:
    """A frame exactly as large as the broker announced is accepted."""
    size = min(session.peer.remote_max_frame_size, 1 << 20)
    sender = session.sender(broker.queue())
    payload = data(bytes(size))
    sender.await_credit()
    first = Transfer(handle=0, delivery_id=0, delivery_tag=b"large", message_format=0, more=True)
    overhead = 8 + len(encode_composite(first))
    piece = size - overhead
    session.put(first, payload[:piece])
    sender.send_more(payload[piece:])
    sender.expect_outcome()


@scenario("2.7.1/oversized-frame", "2.7.1-05", "2.7.1-04", "2.8.16-framing-error", breaks="2.3.2-01")
def oversized_frame(broker: Broker) -> None:
    """A frame larger than the broker announced: it closes with framing-error."""
    peer, opened = broker.opened()
    size = opened.max_frame_size
    if size > 8 << 20:
        raise NotApplicable(f"the broker announces frames of {size} octets, too many to exceed here")
    peer.send_octets(frame(bytes(size - 7)), f"a frame of {size + 1} octets")
    peer.expect_close("amqp:connection:framing-error")
    broker.still_serves()


@scenario(
    "2.7.1/small-frames", "2.7.1-04", "2.7.1-06", "2.8.19-02", "2.6.14-split", "2.7.5-same-tag",
    "2.7.5-same-format",
)  # fmt: skip
def small_frames(broker: Broker) -> None:
    """With our max-frame-size at 512 the broker sends no larger frame: it splits its messages."""
    put(broker, broker.queue(), bytes(range(256)) * 8)  # over another connection: here frames stay small
    session = broker.session(max_frame_size=512)
    receiver = session.receiver(broker.queue(), credit=1)
    delivery = receiver.receive()
    if bytes(range(256)) * 8 not in delivery.payload or delivery.frames < 5:
        raise Unexpected(f"expected 2,048 octets in at least 5 frames, got {delivery.frames} frames")
    receiver.settle(delivery)


@scenario("2.7.1/frame-size-below-minimum", "2.8.19-02", profile="full")
def frame_size_below_minimum(broker: Broker) -> None:
    """A max-frame-size below 512 cannot be agreed on: the broker closes with an error."""
    peer = broker.logged_in()
    peer.put(broker.own_open(max_frame_size=511))
    peer.expect_close(ANY_ERROR)


@scenario("2.7.1/channel-beyond-maximum", "2.7.1-08", "2.7.1-07", breaks="2.7.1-07")
def channel_beyond_maximum(broker: Broker) -> None:
    """A channel above the broker's channel-max: it closes with framing-error."""
    peer, opened = broker.opened(channel_max=65535)
    if opened.channel_max == 65535:
        raise NotApplicable("the broker takes every channel number (channel-max 65535)")
    peer.put(BEGIN, channel=opened.channel_max + 1)
    peer.expect_close("amqp:connection:framing-error")
    broker.still_serves()


@scenario("2.7.1/our-channel-max", "2.7.1-07")
def our_channel_max(broker: Broker) -> None:
    """With our channel-max at 0 the broker answers on channel 0."""
    peer, _ = broker.opened(channel_max=0)
    peer.put(BEGIN)
    peer.expect(Begin, channel=0, remote_channel=0)


@scenario("2.7.1/all-channels", "2.7.1-sessions")
def all_channels(broker: Broker) -> None:
    """As many sessions as channel-max says are active at the same time."""
    peer, opened = broker.opened()
    count = min(opened.channel_max, 255) + 1
    with peer.one_write():
        for channel in range(count):
            peer.put(BEGIN, channel=channel)
    answered = {peer.expect(Begin).remote_channel for _ in range(count)}
    if answered != set(range(count)):
        raise Unexpected(f"expected begin for channels 0 to {count - 1}, got {sorted(answered, key=str)}")


@scenario("2.7.1/unknown-wishes", "2.7.1-11", "2.7.1-12", "2.8.12-01")
def unknown_wishes(broker: Broker) -> None:
    """Locales, capabilities and properties that the broker does not know do no harm, and are not offered."""
    _, opened = broker.opened(
        outgoing_locales=("de-DE",),
        incoming_locales=("de-DE", "fr-FR"),
        offered_capabilities=("x-conformance-offered",),
        desired_capabilities=("x-conformance-desired",),
        properties={"x-conformance": {"nested": [1, 2, 3]}},
    )
    if "x-conformance-desired" in (opened.offered_capabilities or ()):
        raise Unexpected("the broker offers a capability that nobody has ever defined")


LONGEST_WAIT_MS = 5_000
"""An announced idle-time-out above this is not waited for: the suite ends within a minute."""

SCHEDULING_S = 0.25
"""What a busy machine may be late."""


@scenario("2.4.5/zero", "2.7.1-zero", "2.7.1-10")
def zero(broker: Broker) -> None:
    """An idle-time-out of zero is the same as none: the connection opens and works."""
    peer, _ = broker.opened(idle_time_out=0)
    peer.put(Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9))
    peer.expect(Begin)


@scenario(
    "2.4.5/keeps-us-content", "2.7.1-idle", "2.4.5-desired", "2.4.5-empty", "2.4.5-any-channel", waits=True
)
def keeps_us_content(broker: Broker) -> None:
    """A broker with nothing to say sends something within our idle-time-out of 2 s, again and again."""
    peer, opened = broker.opened(idle_time_out=2_000)
    for _ in range(3):
        frame = _next_frame_while_alive(peer, opened, 2.0 + SCHEDULING_S)
        expect(not isinstance(frame.performative, Close), "expected traffic, got close")
        if frame.performative is None and frame.channel != 0:
            raise Unexpected(f"2.4.5-any-channel: an empty frame came on channel {frame.channel}, not 0")


def _next_frame_while_alive(peer: Peer, opened: Open, timeout_s: float) -> Frame:
    """Returns the next frame, and meanwhile keeps the broker content with empty frames of ours."""
    slice_s = min((opened.idle_time_out or 10_000) / 1000 / 2, timeout_s)
    deadline = time.monotonic() + timeout_s
    while time.monotonic() + slice_s < deadline:
        peer.send_empty_frame()
        if peer.has_more(within_s=slice_s):
            break
    return peer.expect_any_frame(timeout_s=max(deadline - time.monotonic(), 0.0))


@scenario("2.4.5/too-short", "2.4.5-03", "2.7.1-09")
def too_short(broker: Broker) -> None:
    """An idle-time-out of 10 ms is kept, or refused by a close that says why."""
    peer = broker.logged_in()
    peer.put(broker.own_open(idle_time_out=10))
    frame = peer.expect_frame(Open, Close)
    deadline = time.monotonic() + 1
    heard = 0
    while isinstance(frame.performative, Open) or frame.performative is None:
        if time.monotonic() > deadline:
            break
        frame = peer.expect_any_frame(timeout_s=1)
        heard += 1
    if isinstance(frame.performative, Close):
        expect(frame.performative.error is not None, "the broker closed without an error that explains why")
        return
    with by_the_clock():
        expect(heard >= 10, f"expected a close, or traffic every 10 ms, got {heard} frames in a second")
    peer.close()


def _announced(opened: Open) -> int:
    milliseconds = opened.idle_time_out or 0
    if milliseconds == 0:
        raise NotApplicable("the broker announces no idle-time-out")
    if milliseconds > LONGEST_WAIT_MS:
        raise NotApplicable(
            f"the broker announces an idle-time-out of {milliseconds} ms, too long to wait for"
        )
    return milliseconds


@scenario("2.4.5/we-are-silent", "2.4.5-triggered", "2.4.5-01", "2.4.5-07", waits=True)
def we_are_silent(broker: Broker) -> None:
    """A client that says nothing for longer than the broker's threshold gets close with an error."""
    peer, opened = broker.opened()
    milliseconds = _announced(opened)
    peer.expect_close(ANY_ERROR, timeout_s=milliseconds / 1000 * 4)


@scenario("2.4.5/threshold-is-twice", "2.4.5-02", waits=True)
def threshold_is_twice(broker: Broker) -> None:
    """What is announced is half the threshold: silence of one and a quarter of it does no harm."""
    peer, opened = broker.opened()
    milliseconds = _announced(opened)
    with by_the_clock():
        peer.expect_nothing(Close, within_s=milliseconds / 1000 * 1.25, aside=False)


@scenario("2.4.5/empty-frames-suffice", "2.4.5-empty", "2.4.5-triggered", waits=True)
def empty_frames_suffice(broker: Broker) -> None:
    """Empty frames within the broker's idle-time-out keep the connection."""
    peer, opened = broker.opened()
    milliseconds = _announced(opened)
    for _ in range(6):
        with by_the_clock():
            peer.expect_nothing(Close, within_s=milliseconds / 1000 * 0.6, aside=False)
        peer.send_empty_frame()
