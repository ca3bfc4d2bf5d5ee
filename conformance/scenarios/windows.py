"""Session flow control: windows and transfer-ids (2.5.6)."""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Session
from amqp_broker.conformance.messages import data
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected
from amqp_broker.conformance.queues import numbered, put
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transcript import describe
from amqp_broker.frames import Disposition, End, Flow, Transfer

LARGEST_WINDOW = 70_000
"""A window of more transfers is not overrun here."""


def _session_with(broker: Broker, messages: int, address: str, **begin: int) -> Session:
    """Returns a new session with ``begin``'s fields, after ``messages`` were put on the queue by another."""
    put(broker, address, *numbered(messages))
    return broker.opened()[0].begin(**begin)


def _flow_on_request(session: Session) -> Flow:
    """Returns the flow that answers an echo; the scenario shows nothing where none comes (2.6.10/echo
    does).
    """
    session.remote_flow = None
    session.catch_up()
    if session.remote_flow is None:
        raise NotApplicable("the broker answers no flow with echo")
    return session.remote_flow


@scenario("2.5.6/our-window", "2.5.6-01", "2.5.6-incoming-window", "2.5.6-sending")
def our_window(broker: Broker) -> None:
    """The broker sends no more transfers than our incoming-window, whatever the credit."""
    session = _session_with(broker, 5, broker.queue(), incoming_window=2)
    receiver = session.receiver(broker.queue())
    receiver.flow(5, incoming_window=2)
    receiver.receive()
    receiver.receive()
    session.peer.expect_nothing(Transfer)
    session.flow(incoming_window=1)
    receiver.receive()
    session.peer.expect_nothing(Transfer)


@scenario("2.5.6/closed-window", "2.5.6-incoming-window", "2.5.6-remote-incoming-window", "2.5.6-01")
def closed_window(broker: Broker) -> None:
    """With an incoming-window of zero nothing comes; a flow that opens it lets the messages through."""
    session = _session_with(broker, 3, broker.queue(), incoming_window=0)
    receiver = session.receiver(broker.queue())
    receiver.flow(3, incoming_window=0)
    session.peer.expect_nothing(Transfer)
    session.flow(incoming_window=100)
    for _ in range(3):
        receiver.receive()


@scenario("2.5.6/window-from-old-flow", "2.5.6-remote-incoming-window", "2.5.6-01")
def window_from_old_flow(broker: Broker) -> None:
    """The window counts from the flow's next-incoming-id: an old one gives less than it says."""
    session = _session_with(broker, 6, broker.queue(), incoming_window=2)
    receiver = session.receiver(broker.queue())
    first_id = session.next_incoming_id
    receiver.flow(6, incoming_window=2)
    receiver.receive()
    receiver.receive()
    session.flow(next_incoming_id=first_id, incoming_window=3)
    receiver.receive()
    session.peer.expect_nothing(Transfer)


@scenario("2.5.6/window-before-begin", "2.5.6-initial", "2.7.4-next-incoming", "2.6.7-03", "2.7.4-05")
def window_before_begin(broker: Broker) -> None:
    """A flow sent before the broker's begin and attach are seen carries neither id nor count, and is
    taken.
    """
    put(broker, broker.queue(), *numbered(3))
    peer, _ = broker.opened()
    with peer.one_write():
        session = peer.put_begin(incoming_window=100)
        receiver = session.put_receiver(broker.queue())
        session.put(
            Flow(incoming_window=2, next_outgoing_id=0, outgoing_window=100, handle=1, link_credit=3)
        )
    session.expect_begin()
    receiver.expect_attach()
    receiver.receive()
    receiver.receive()
    peer.expect_nothing(Transfer)
    session.flow(incoming_window=100)
    receiver.receive()


@scenario("2.5.6/split-over-windows", "2.5.6-01", "2.5.6-incoming-window", "2.6.14-split")
def split_over_windows(broker: Broker) -> None:
    """A message of more frames than our window waits in its middle until the window opens."""
    put(broker, broker.queue(), bytes(3000))
    peer, _ = broker.opened(max_frame_size=512)
    session = peer.begin(incoming_window=2)
    receiver = session.receiver(broker.queue())
    receiver.flow(1, incoming_window=2)
    payload = b""
    for _ in range(2):
        payload += peer.expect_frame(Transfer).payload
    peer.expect_nothing(Transfer)
    session.flow(incoming_window=100)
    while True:
        frame = peer.expect_frame(Transfer)
        payload += frame.payload
        if not frame.performative.more:
            break
    if bytes(3000) not in payload:
        raise Unexpected(f"the message of 3,000 octets came as {len(payload)}")


@scenario("2.5.6/wrapping-ids", "2.5.6-next-outgoing-id", "2.8.10-serial", "2.5.6-receiving")
def wrapping_ids(broker: Broker) -> None:
    """Transfer-ids begin anywhere and wrap at 2^32, by serial number arithmetic."""
    peer, _ = broker.opened()
    session = peer.begin(next_outgoing_id=0xFFFF_FFFE)
    sender = session.sender(broker.queue())
    sender.put(data(b"%d" % number) for number in range(5))
    session.flow(handle=0, echo=True)
    flow = _flow_on_request(session)
    if flow.next_incoming_id != 3:
        raise Unexpected(
            f"after 5 transfers from 2^32 - 2 next-incoming-id must be 3, not {flow.next_incoming_id}"
        )


@scenario("2.5.6/counts-our-transfers", "2.5.6-receiving", "2.5.6-02", "2.5.6-03", "2.7.4-next-incoming")
def counts_our_transfers(broker: Broker) -> None:
    """The broker's flow says which of our transfers it expects next."""
    session = broker.session()
    sender = session.sender(broker.queue())
    sender.put(data(b"%d" % number) for number in range(3))
    session.flow(handle=0, echo=True)
    flow = _flow_on_request(session)
    if flow.next_incoming_id != 3:
        raise Unexpected(f"expected next-incoming-id 3, got {describe(flow)}")


@scenario("2.5.6/counts-its-transfers", "2.5.6-sending", "2.5.6-next-outgoing-id")
def counts_its_transfers(broker: Broker) -> None:
    """The broker's next-outgoing-id grows by one for each transfer that it sends."""
    session = _session_with(broker, 3, broker.queue())
    assert session.remote_begin is not None
    receiver = session.receiver(broker.queue(), credit=3)
    for _ in range(3):
        receiver.receive()
    receiver.flow(0, echo=True)
    flow = _flow_on_request(session)
    expected = (session.remote_begin.next_outgoing_id + 3) & 0xFFFF_FFFF
    if flow.next_outgoing_id != expected:
        raise Unexpected(f"expected next-outgoing-id {expected}, got {flow.next_outgoing_id}")


@scenario("2.5.6/next-id-from-flow", "2.5.6-03")
def next_id_from_flow(broker: Broker) -> None:
    """The broker takes next-incoming-id from our flow's next-outgoing-id."""
    session = broker.session()
    sender = session.sender(broker.queue())
    sender.await_credit()
    session.next_outgoing_id = 500
    session.flow(handle=0, echo=True)
    flow = _flow_on_request(session)
    if flow.next_incoming_id != 500:
        raise Unexpected(f"expected next-incoming-id 500, got {flow.next_incoming_id}")
    sender.put([data(b"500")])


@scenario("2.5.6/overrun", "2.8.17-window-violation", "2.5.6-incoming-window", "2.5.4-01")
def overrun(broker: Broker) -> None:
    """More transfers than the broker's incoming-window: it ends the session with window-violation."""
    session = broker.session()
    assert session.remote_begin is not None
    window = session.remote_begin.incoming_window
    if window > LARGEST_WINDOW:
        raise NotApplicable(
            f"the broker's incoming-window of {window} transfers is too large to overrun here"
        )
    sender = session.sender(broker.queue())
    sender.await_credit()
    if session.remote_flow is not None:
        window = max(window, session.remote_flow.incoming_window)
    # One delivery that never completes: its transfers cost window, but no credit.
    with session.peer.one_write():
        sender.send(b"\x00", more=True)
        for _ in range(window + 10):
            sender.send_more(b"\x00", more=True)
    while True:
        performative = session.peer.expect_frame(Flow, End, skip=(Disposition,)).performative
        if isinstance(performative, End):
            break
        limit = (performative.next_incoming_id or 0) + performative.incoming_window
        if limit >= session.next_outgoing_id:
            raise NotApplicable(
                "the broker opens its window as transfers arrive, faster than we can overrun it"
            )
    if performative.error is None or performative.error.condition != "amqp:session:window-violation":
        raise Unexpected(f"expected end with amqp:session:window-violation, got {performative.error}")
    broker.still_serves()
