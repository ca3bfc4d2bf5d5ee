"""Sessions: begin, end, and their errors (2.5.1 to 2.5.5, 2.7.2, 2.7.8)."""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Peer, Session
from amqp_broker.conformance.messages import data
from amqp_broker.conformance.octets import BEGIN, NULL, described, frame, list8, uint
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, expect
from amqp_broker.conformance.scenario import Case, cases, scenario
from amqp_broker.conformance.transcript import describe
from amqp_broker.conformance.wire import ANY_ERROR
from amqp_broker.frames import RECEIVER, Attach, Begin, Close, Detach, Disposition, End, Error, Source, Target

UNATTACHED = "amqp:session:unattached-handle"


def _provoke_end(session: Session) -> None:
    """Makes a session error: flow for a handle that no link has (2.7.4-01)."""
    session.flow(handle=77, delivery_count=0, link_credit=1)


@scenario("2.5.1/begin", "2.5.1-01", "2.7.2-02", "2.5.1-allocates")
def begin(peer: Peer) -> None:
    """A begin is answered with begin whose remote-channel is ours."""
    peer.put(Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10))
    peer.expect(Begin, remote_channel=0)


@scenario("2.5.1/any-channel", "2.5.1-01", "2.7.2-02", "2.5.1-allocates")
def any_channel(broker: Broker) -> None:
    """A session begins on any channel up to the maximum, and is known by it."""
    peer, opened = broker.opened()
    number = min(opened.channel_max, 41)
    peer.put(Begin(next_outgoing_id=7, incoming_window=10, outgoing_window=10), channel=number)
    peer.expect(Begin, remote_channel=number)


@scenario("2.5.1/two-sessions", "2.5.1-01", "2.7.1-sessions", "2.5-many")
def two_sessions(broker: Broker) -> None:
    """Two sessions of one connection are independent: ending one leaves the other at work."""
    peer, opened = broker.opened()
    if opened.channel_max == 0:
        raise NotApplicable("the broker allows only one session (channel-max 0)")
    first, second = peer.begin(), peer.begin()
    if first.remote_channel == second.remote_channel:
        raise Unexpected(f"both sessions are on the broker's channel {first.remote_channel}")
    first.end()
    second.sender(broker.queue()).put([data(b"still here")])


@scenario("2.5.1/many-links", "2.5-many", "2.6.2-handles")
def many_links(broker: Broker, session: Session) -> None:
    """Any number of links of any directionality can be attached to one session."""
    for number in range(6):
        session.sender(broker.queue(), handle=2 * number, name=f"out-{number}")
        session.receiver(broker.queue(), handle=2 * number + 1, name=f"in-{number}")


@scenario("2.5.1/channel-again", "2.5.2-end", "2.5.1-allocates")
def channel_again(broker: Broker, session: Session) -> None:
    """After end both ways the channel serves the next session."""
    for _ in range(3):
        session.end()
        session = session.peer.begin()
    session.sender(broker.queue()).put([data(b"again")])


@scenario(
    "2.5.1/channel-in-use", "2.5.1-allocates", "2.8.15-not-allowed", profile="full",
    breaks="2.5.1-allocates",
)  # fmt: skip
def channel_in_use(broker: Broker, session: Session) -> None:
    """A second begin on a channel that is in use is an error."""
    session.peer.put_begin(channel=0)
    session.peer.expect_close(ANY_ERROR)
    broker.still_serves()


@cases(
    Case("2.5.1/answer-to-nothing", "2.7.2-01 2.8.15-not-allowed",
         "A begin that answers a session that the broker never began is an error.",
         Begin(remote_channel=5, next_outgoing_id=0, incoming_window=9, outgoing_window=9),
         profile="full", breaks="2.7.2-02"),
    Case("2.5.5/frames-without-a-session", "2.5.5-unmapped 2.8.15-not-allowed",
         "A frame on a channel that no session has is an error: the connection is closed.",
         Attach(name="lost", handle=0, role=RECEIVER, source=Source(address="x"), target=Target()),
         profile="full", breaks="2.5.5-unmapped"),
    Case("2.5.5/end-without-a-session", "2.5.5-unmapped",
         "An end on a channel that no session has is an error: the connection is closed.",
         End(), profile="full", breaks="2.5.5-unmapped"),
)
def _closed_for(broker: Broker, performative: Begin | Attach | End) -> None:
    """Puts what belongs to no session; expects close with an error, and a broker that lives on."""
    peer = broker.given(Peer)
    peer.put(performative)
    peer.expect_close(ANY_ERROR)
    broker.still_serves()


@scenario("2.5.1/begin-without-window", "2.4.3-01", breaks="2.3.2-01")
def begin_without_window(broker: Broker, peer: Peer) -> None:
    """A begin whose mandatory incoming-window is null: a broker that refuses it says why."""
    peer.send_octets(
        frame(described(BEGIN, list8(NULL, uint(0), NULL, uint(5)))), "begin(incoming_window=null)"
    )
    peer.expect_error_if_any()
    broker.still_serves()


@scenario("2.5.2/end", "2.5.2-end", "2.7.8-01")
def end(session: Session) -> None:
    """An end is answered with end, without an error."""
    session.put(End())
    answer = session.peer.expect(End, channel=session.remote_channel)
    expect(answer.error is None, f"the answer to an end in good order carries an error: {answer.error}")


@scenario("2.5.2/end-with-error", "2.5.2-end", "2.7.8-error")
def end_with_error(session: Session) -> None:
    """An end that carries an error of ours is answered with end, and the connection lives on."""
    session.end(Error(condition="amqp:internal-error", description="the client has failed"))
    session.peer.begin()


@scenario("2.5.2/end-with-links", "2.5.2-end", "3.3.1-remains")
def end_with_links(broker: Broker, session: Session) -> None:
    """A session ends with its links: what was unsettled there is available again."""
    session.sender(broker.queue()).put([data(b"comes back")])
    session.receiver(broker.queue(), credit=1).receive()
    session.end()
    session = session.peer.begin()
    again = session.receiver(broker.queue(), credit=1).receive()
    expect(b"comes back" in again.payload, "another message came than the one that was unsettled")


@scenario("2.5.2/connection-takes-sessions", "2.5.2-automatic", "3.3.1-remains")
def connection_takes_sessions(broker: Broker, session: Session) -> None:
    """Sessions end when the connection breaks: what was unsettled there is available again."""
    session.sender(broker.queue()).put([data(b"comes back")])
    session.receiver(broker.queue(), credit=1).receive()
    session.peer.drop()
    broker.session().receiver(broker.queue(), credit=1).receive()


@scenario("2.5.3/simultaneous-end", "2.5.3-01", "2.5.4-02", breaks="2.8.17-unattached-handle")
def simultaneous_end(session: Session) -> None:
    """Our end crosses the broker's: each is the answer to the other."""
    with session.peer.one_write():
        _provoke_end(session)
        session.put(End())
    session.peer.expect_provoked(End)
    session.peer.expect_nothing(End)
    session.peer.begin()
    session.peer.close()


@scenario("2.5.4/session-error", "2.5.4-01", "2.7.8-error", breaks="2.8.17-unattached-handle")
def session_error(session: Session) -> None:
    """What a session cannot process is answered with an end that names a problem."""
    _provoke_end(session)
    session.expect_end(ANY_ERROR)
    session.put(End())
    session.peer.close()


@scenario("2.5.4/discarding", "2.5.4-02", "2.5.5-01", breaks="2.7.6-range 2.8.17-unattached-handle")
def discarding(session: Session) -> None:
    """After its end with an error the broker discards our frames until our end comes."""
    _provoke_end(session)
    session.peer.expect_provoked(End)
    session.put(Attach(name="late", handle=3, role=RECEIVER, source=Source(address="x"), target=Target()))
    session.put(Disposition(role=RECEIVER, first=0, settled=True))
    session.flow()
    session.put(End())
    session.peer.expect_nothing()
    session.peer.begin()
    session.peer.close()


@scenario("2.5.4/others-live-on", "2.5.4-01", breaks="2.8.17-unattached-handle")
def others_live_on(broker: Broker) -> None:
    """An error of one session leaves the connection's other sessions alone."""
    peer, opened = broker.opened()
    if opened.channel_max == 0:
        raise NotApplicable("the broker allows only one session (channel-max 0)")
    first, second = peer.begin(), peer.begin()
    _provoke_end(first)
    peer.expect_provoked(End)
    first.put(End())
    second.sender(broker.queue()).put([data(b"untouched")])
    peer.close()


@scenario("2.7.2/handle-beyond-maximum", "2.7.2-04", "2.7.2-handle-max", breaks="2.7.2-03")
def handle_beyond_maximum(broker: Broker, session: Session) -> None:
    """A handle above the broker's handle-max: it closes the connection with framing-error."""
    if session.begun.handle_max == 0xFFFF_FFFF:
        raise NotApplicable("the broker takes every handle (handle-max 4294967295)")
    handle = session.begun.handle_max + 1
    session.put_sender(broker.queue(), handle=handle)
    session.peer.expect_close("amqp:connection:framing-error")
    broker.still_serves()


@scenario("2.7.2/highest-handle", "2.7.2-handle-max")
def highest_handle(broker: Broker, session: Session) -> None:
    """The highest handle that the broker allows is a handle."""
    sender = session.sender(broker.queue(), handle=session.begun.handle_max)
    sender.put([data(b"highest")])


@scenario("2.7.2/our-handle-max", "2.7.2-03")
def our_handle_max(broker: Broker, peer: Peer) -> None:
    """With our handle-max at 0 the broker uses handle 0."""
    session = peer.begin(handle_max=0)
    sender = session.sender(broker.queue(), handle=0)
    if sender.remote_handle != 0:
        raise Unexpected(f"the broker uses handle {sender.remote_handle}, above our handle-max 0")


@scenario("2.7.2/unknown-wishes", "2.7.2-02")
def unknown_wishes(broker: Broker, peer: Peer) -> None:
    """Capabilities and properties of a session that the broker does not know do no harm."""
    begun = peer.begin(desired_capabilities=("x-conformance",), properties={"x-conformance": 1}).remote_begin
    assert begun is not None
    if "x-conformance" in (begun.offered_capabilities or ()):
        raise Unexpected("the broker offers a capability that nobody has ever defined")


@scenario("2.7.8/detach-after-end", "2.5.5-unmapped", profile="full", breaks="2.5.5-unmapped")
def detach_after_end(broker: Broker, session: Session) -> None:
    """A detach on a session that has ended both ways is a frame without a session: the connection is
    closed.
    """
    session.sender(broker.queue())
    session.end()
    session.put(Detach(handle=0, closed=True))
    session.peer.expect_close(ANY_ERROR)


@scenario(
    "2.7.4/session-flow", "2.7.4-session-only", "2.7.4-02", "2.7.4-06", "2.7.4-07", "2.7.4-08",
    "2.7.4-properties", "2.7.4-next-incoming-id",
)  # fmt: skip
def session_flow(broker: Broker, session: Session) -> None:
    """A flow without a handle is about the session only; one that comes back carries no link's state."""
    session.sender(broker.queue())
    session.flow(echo=True)
    session.peer.expect_nothing(End, Close, Detach)
    session.flow(incoming_window=5)
    session.peer.expect_nothing(End, Close, Detach, within_s=0.1)
    if session.remote_flow is None:
        raise NotApplicable("the broker sent no flow, and need not")
    if session.remote_flow.next_incoming_id is None:
        raise Unexpected("a flow after begin and begin has no next-incoming-id")
    if session.remote_flow.handle is None and session.remote_flow.properties is not None:
        raise Unexpected("a flow without a handle has properties")


@scenario(
    "2.8.14/error", "2.8.14-condition", "2.8.14-description", "2.7.8-01", "2.7.7-01", "2.7.9-02",
    breaks="2.3.2-01 2.7.1-04 2.7.1-07 2.8.17-unattached-handle",
)  # fmt: skip
def errors_say_why(broker: Broker, session: Session) -> None:
    """An error has a condition, and a description that says more: at a session and at a connection."""
    _provoke_end(session)
    ended = session.peer.expect_frame(End, Close).performative
    peer, _ = broker.opened()
    peer.provoke_close()
    closed = peer.expect_provoked(Close)
    for refusal in (ended, closed):
        if refusal.error is None or not refusal.error.condition:
            raise Unexpected(f"expected an error with a condition, got {describe(refusal)}")
        expect(refusal.error.description, f"expected a description, got {describe(refusal)}")
