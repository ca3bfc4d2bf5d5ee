"""Flow control of links (2.6.7 to 2.6.10, 2.7.4) and of sessions (2.5.6)."""

from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Peer, Receiver, Session
from amqp_broker.conformance.messages import data
from amqp_broker.conformance.octets import TRANSFER, TRUE, binary8, described, frame, list8, uint, uint0
from amqp_broker.conformance.outcomes import Late, NotApplicable, Unexpected, error_of, expect, expect_equal
from amqp_broker.conformance.queues import numbered, put
from amqp_broker.conformance.scenario import Case, cases, scenario
from amqp_broker.conformance.transcript import describe
from amqp_broker.frames import Close, Detach, Disposition, End, Flow, Transfer

LARGEST_CREDIT = 20_000
"""A link-credit above this is not overrun here."""


def _queue_with(broker: Broker, messages: int) -> Receiver:
    """Returns a receiver without credit at a queue with so many messages."""
    put(broker, broker.queue(), *numbered(messages))
    return broker.session().receiver(broker.queue())


@cases(
    Case("2.6.7/credit", "2.6.7-illegal 2.6.7-04 2.7.4-link-credit",
         "With a credit of 3 come exactly 3 of 6 messages.",
         3),
    Case("2.6.7/credit-again", "2.6.7-01 2.6.7-02",
         "New credit counts from the delivery-count that the flow names: 2 more come, no third.",
         2, 2),
    Case("2.6.7/drain-all-used", "2.6.7-drain 2.6.7-illegal",
         "Drain with less credit than messages: the credit is used, and not more.",
         2, drain=True),
)
def _used(broker: Broker, *credits: int, **flow: Any) -> None:
    """Gives credit at a queue of 6, once or again: so many messages come each time, and no more."""
    receiver = _queue_with(broker, 6)
    for credit in credits:
        receiver.flow(credit, **flow)
        receiver.take(credit)
    receiver.peer.expect_nothing(Transfer)


@scenario("2.6.7/credit-is-not-added", "2.6.7-02", "2.6.7-01")
def credit_is_not_added(broker: Broker) -> None:
    """Credit given twice is set, not added: 2 and then 3 from the same delivery-count are 3."""
    receiver = _queue_with(broker, 6)
    count = receiver.delivery_count
    receiver.flow(2)
    receiver.take(2)
    receiver.flow(3, delivery_count=count)
    receiver.receive()
    receiver.peer.expect_nothing(Transfer)


@scenario("2.6.7/stop", "2.6.10-stop", "2.6.7-reduced", "2.6.7-illegal")
def stop(broker: Broker, session: Session) -> None:
    """A credit of zero stops the link: what arrives at the queue afterwards is not sent."""
    sender = session.sender(broker.queue())
    receiver = session.receiver(broker.queue(), credit=5)
    receiver.flow(0)
    session.catch_up()
    sender.put([data(b"too late")])
    session.peer.expect_nothing(Transfer)
    receiver.flow(1)
    receiver.receive()


@cases(
    Case("2.6.7/drain-empty", "2.6.7-07 2.6.7-drain 2.7.4-03",
         "Drain at an empty queue: the delivery-count advances until the credit is zero, and a flow says "
         "so.",
         0, 10),
    Case("2.6.7/drain-some", "2.6.7-07 2.6.7-drain 2.6.8-promptly",
         "Drain at a queue of 2 with a credit of 5: both messages, then the flow that uses up the rest.",
         2, 5),
)
def _drained(broker: Broker, messages: int, credit: int) -> None:
    """Drains a queue; expects what is there, and then the flow that uses up the rest of the credit."""
    receiver = _queue_with(broker, messages)
    count = receiver.delivery_count
    receiver.flow(credit, drain=True)
    receiver.take(messages)
    flow = receiver.expect_flow()
    expected = (count + credit) & 0xFFFF_FFFF, 0
    expect_equal("delivery-count and credit", expected, (flow.delivery_count, flow.link_credit))


@cases(
    Case("2.6.7/drain-half-sent", "2.6.7-drain",
         "Drain in the middle of a message of several frames that used up the credit: all of it comes before "
         "the flow that says so, or a receiver that counts whole messages counts it twice.",
         1),
    Case("2.6.7/drain-half-sent-rest", "2.6.7-drain 2.6.7-07",
         "The same with credit to be used up beside it.",
         2),
)
def _drained_half_sent(broker: Broker, credit: int) -> None:
    """Drains a queue of one message, of which two frames have come."""
    put(broker, broker.queue(), bytes(3_000))
    peer, _ = broker.opened(max_frame_size=512)
    session = peer.begin(incoming_window=2)
    receiver = session.receiver(broker.queue())
    receiver.flow(credit, incoming_window=2)
    for _ in range(2):
        peer.expect_frame(Transfer)
    receiver.flow(credit, drain=True, incoming_window=0)
    session.flow(incoming_window=100)
    more = True
    while True:
        got = peer.expect_frame(Transfer, Flow).performative
        if isinstance(got, Transfer):
            more = bool(got.more)
        elif got.handle == receiver.remote_handle and got.link_credit == 0:
            break
    expect(not more, "a flow without credit came before the last transfer of the message")


@scenario("2.6.7/drain-later", "2.6.7-07", "2.6.8-timeout", "2.6.8-promptly")
def drain_later(broker: Broker) -> None:
    """A get with time-out: credit, silence, then drain of the same credit ends the wait at once."""
    receiver = _queue_with(broker, 0)
    count = receiver.delivery_count
    receiver.flow(1)
    receiver.peer.expect_nothing(Transfer, within_s=0.2)
    receiver.flow(1, drain=True)
    flow = receiver.expect_flow()
    while flow.link_credit != 0:
        flow = receiver.expect_flow()
    if flow.delivery_count != (count + 1) & 0xFFFF_FFFF:
        raise Unexpected(f"expected delivery-count {count + 1}, got {describe(flow)}")


@scenario("2.6.7/after-drain", "2.6.7-07", "2.6.7-02")
def after_drain(broker: Broker, session: Session) -> None:
    """After a drain the link works on: new credit, counted from the drained delivery-count."""
    sender = session.sender(broker.queue())
    receiver = session.receiver(broker.queue())
    receiver.flow(4, drain=True)
    receiver.expect_flow()
    sender.put([data(b"after the drain")])
    session.peer.expect_nothing(Transfer, within_s=0.2)
    receiver.flow(1, drain=False)
    receiver.receive()


@scenario("2.6.10/echo", "2.6.10-echo", "2.7.4-echo", "2.7.4-03", "2.7.4-sender-credit", "2.7.4-loop")
def echo(broker: Broker) -> None:
    """A flow with echo is answered with the link's state: delivery-count and credit as both know them."""
    receiver = _queue_with(broker, 1)
    count = receiver.delivery_count
    receiver.flow(5)
    receiver.receive()
    receiver.flow(4, echo=True)
    flow = receiver.expect_flow()
    if flow.delivery_count != (count + 1) & 0xFFFF_FFFF or flow.link_credit != 4:
        raise Unexpected(f"expected delivery-count {count + 1} and credit 4, got {describe(flow)}")
    expect(not flow.echo, "2.7.4-loop: the answer to an echo asks for an echo itself")


@scenario("2.6.10/echo-to-receiver", "2.6.10-echo", "2.7.4-echo", "2.7.4-04")
def echo_to_receiver(broker: Broker, session: Session) -> None:
    """Asked for an echo, the broker as receiver names the last delivery-count that it knows."""
    sender = session.sender(broker.queue(), initial_delivery_count=100)
    sender.put([data(b"one"), data(b"two")])
    session.flow(handle=0, delivery_count=102, available=0, echo=True)
    while True:
        flow: Flow = session.peer.expect_frame(Flow).performative
        if flow.handle == sender.remote_handle and flow.delivery_count == 102:
            break


@scenario("2.6.7/available", "2.7.4-available", "2.6.7-available")
def available(broker: Broker) -> None:
    """Where the broker says how many messages are available, at a queue of 3 it is 3."""
    receiver = _queue_with(broker, 3)
    receiver.flow(0, echo=True)
    receiver.session.catch_up()
    flow = receiver.session.remote_flow
    if flow is None or flow.handle != receiver.remote_handle or flow.available is None:
        raise NotApplicable("the broker does not say how many messages are available")
    expect(flow.available == 3, f"expected 3 available messages, got {flow.available}")


@scenario("2.6.7/our-available", "2.6.7-available", "2.6.7-05")
def our_available(broker: Broker, session: Session) -> None:
    """We send although we had said that nothing is available: the broker takes it."""
    sender = session.sender(broker.queue())
    sender.await_credit()
    session.flow(handle=0, delivery_count=0, link_credit=sender.credit, available=0)
    sender.put([data(b"one"), data(b"two")])


@scenario("2.6.7/initial-count", "2.7.4-04", "2.6.7-initial", "2.6.7-serial")
def initial_count(broker: Broker) -> None:
    """The broker counts from our initial-delivery-count, also across 2^32."""
    sender = broker.session().sender(broker.queue(), initial_delivery_count=0xFFFF_FFFE)
    sender.await_credit()
    assert sender.last_flow is not None
    if sender.last_flow.delivery_count != 0xFFFF_FFFE:
        raise Unexpected(
            f"expected delivery-count 4294967294 in the first flow, got {describe(sender.last_flow)}"
        )
    sender.put(data(b"%d" % number) for number in range(5))


@scenario("2.6.7/wrapping-credit", "2.6.7-serial", "2.6.7-02")
def wrapping_credit(broker: Broker) -> None:
    """A credit of 2^32 - 1 is much credit, not less than none: the messages come."""
    receiver = _queue_with(broker, 3)
    receiver.flow(0x7FFF_FFFF)
    receiver.take(3)


@scenario(
    "2.6.7/overrun", "2.8.18-transfer-limit", "2.6.7-illegal", "2.6.5-01", profile="full",
    breaks="2.6.7-illegal",
)  # fmt: skip
def overrun(broker: Broker, session: Session) -> None:
    """More deliveries than there is credit for: detach with transfer-limit-exceeded."""
    sender = session.sender(broker.queue())
    sender.await_credit()
    credit = sender.credit
    if credit > LARGEST_CREDIT:
        raise NotApplicable(f"the broker's credit of {credit} is too large to overrun here")
    # Small enough that a few thousand arrive in one read, before the broker can renew its credit.
    count = credit + 60
    with session.peer.one_write():
        for number in range(count):
            fields = list8(uint0(), uint(number), binary8(b"t"), uint0(), TRUE)
            session.peer.send_octets(frame(described(TRANSFER, fields) + data(b"")), "transfer(settled=True)")
    while True:
        answer = session.peer.expect_frame(Flow, Detach, End, Close, skip=(Disposition,)).performative
        if not isinstance(answer, Flow):
            break
        if sender.last_flow is answer and (answer.delivery_count or 0) + (answer.link_credit or 0) >= count:
            raise NotApplicable("the broker renews credit as messages arrive, faster than we can overrun it")
    error_of(answer, "amqp:link:transfer-limit-exceeded")
    expect(isinstance(answer, Detach), f"2.6.5-01: expected detach, got {describe(answer)}")
    broker.still_serves()


@scenario("2.6.8/synchronous-get", "2.6.8-sync-get", "2.6.7-04")
def synchronous_get(broker: Broker, session: Session) -> None:
    """A credit of one that waits: the message comes when it arrives at the queue, and only one."""
    receiver = session.receiver(broker.queue(), credit=1)
    broker.session().sender(broker.queue()).put([data(b"first"), data(b"second")])
    first = receiver.receive()
    expect(b"first" in first.payload, "another message came first")
    session.peer.expect_nothing(Transfer)


@scenario("2.6.9/asynchronous", "2.6.9-async", "2.6.7-01")
def asynchronous(broker: Broker) -> None:
    """Credit renewed below a threshold: 60 messages come in order over a credit of 10."""
    receiver = _queue_with(broker, 60)
    receiver.flow(10)
    for number in range(60):
        delivery = receiver.receive()
        if b"message %d" % number != delivery.payload[-len(b"message %d" % number) :]:
            raise Unexpected(f"expected message {number}, got {delivery.payload[-12:]!r}")
        receiver.settle(delivery)
        if number % 5 == 4:
            receiver.flow(10)


@scenario(
    "2.7.4/unattached-handle", "2.7.4-01", "2.8.17-unattached-handle",
    breaks="2.8.17-unattached-handle",
)  # fmt: skip
def unattached_handle(broker: Broker, session: Session) -> None:
    """A flow for a handle that no link has ends the session with unattached-handle."""
    session.flow(handle=5, delivery_count=0, link_credit=1)
    session.expect_end("amqp:session:unattached-handle")
    broker.still_serves()


@scenario("2.7.4/broker-gives-credit", "2.7.4-link-credit", "2.7.4-04")
def broker_gives_credit(broker: Broker) -> None:
    """The broker gives credit to a sender, and goes on giving it: 300 messages pass."""
    sender = broker.session().sender(broker.queue())
    for number in range(300):
        sender.send(data(b"%d" % number), settled=True)


LARGEST_WINDOW = 70_000
"""A window of more transfers is not overrun here."""


def _session_with(broker: Broker, messages: int, address: str, **begin: int) -> Session:
    """Returns a new session with ``begin``'s fields, after ``messages`` were put on the queue by another."""
    put(broker, address, *numbered(messages))
    return broker.opened()[0].begin(**begin)


ECHO_WITHIN_S = 1.0
"""What an answer to an echo may be behind that to a later frame."""


def _flow_on_request(session: Session) -> Flow:
    """Returns the flow that answers an echo; the scenario shows nothing where none comes (2.6.10/echo
    does).
    """
    session.remote_flow = None
    session.catch_up()
    if session.remote_flow is None:
        try:
            session.peer.expect_frame(Flow, timeout_s=ECHO_WITHIN_S)
        except Late as silence:
            raise NotApplicable("the broker answers no flow with echo") from silence
    flow: Flow | None = session.remote_flow
    assert flow is not None
    return flow


@cases(
    Case("2.5.6/our-window", "2.5.6-01 2.5.6-incoming-window 2.5.6-sending",
         "The broker sends no more transfers than our incoming-window, whatever the credit.",
         2, 1),
    Case("2.5.6/closed-window", "2.5.6-incoming-window 2.5.6-remote-incoming-window 2.5.6-01",
         "With an incoming-window of zero nothing comes; a flow that opens it lets the messages through.",
         0, 3),
)
def _our_windows(broker: Broker, first: int, *later: int) -> None:
    """Gives credit for five messages and one window after the other: what fits comes, and no more."""
    session = _session_with(broker, 5, broker.queue(), incoming_window=first)
    receiver = session.receiver(broker.queue())
    receiver.flow(5, incoming_window=first)
    receiver.take(first)
    session.peer.expect_nothing(Transfer)
    for window in later:
        session.flow(incoming_window=window)
        receiver.take(window)
        session.peer.expect_nothing(Transfer)


@scenario("2.5.6/window-from-old-flow", "2.5.6-remote-incoming-window", "2.5.6-01")
def window_from_old_flow(broker: Broker) -> None:
    """The window counts from the flow's next-incoming-id: an old one gives less than it says."""
    session = _session_with(broker, 6, broker.queue(), incoming_window=2)
    receiver = session.receiver(broker.queue())
    first_id = session.next_incoming_id
    receiver.flow(6, incoming_window=2)
    receiver.take(2)
    session.flow(next_incoming_id=first_id, incoming_window=3)
    receiver.receive()
    session.peer.expect_nothing(Transfer)


@scenario("2.5.6/window-before-begin", "2.5.6-initial", "2.7.4-next-incoming-id", "2.6.7-03", "2.7.4-05")
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
    receiver.take(2)
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
    expect(bytes(3000) in payload, f"the message of 3,000 octets came as {len(payload)}")


@scenario("2.5.6/wrapping-ids", "2.5.6-next-outgoing-id", "2.8.10-serial", "2.5.6-receiving")
def wrapping_ids(broker: Broker, peer: Peer) -> None:
    """Transfer-ids begin anywhere and wrap at 2^32, by serial number arithmetic."""
    session = peer.begin(next_outgoing_id=0xFFFF_FFFE)
    sender = session.sender(broker.queue())
    sender.put(data(b"%d" % number) for number in range(5))
    session.flow(sender, echo=True)
    flow = _flow_on_request(session)
    if flow.next_incoming_id != 3:
        raise Unexpected(
            f"after 5 transfers from 2^32 - 2 next-incoming-id must be 3, not {flow.next_incoming_id}"
        )


@scenario("2.5.6/counts-our-transfers", "2.5.6-receiving", "2.5.6-02", "2.5.6-03", "2.7.4-next-incoming-id")
def counts_our_transfers(broker: Broker, session: Session) -> None:
    """The broker's flow says which of our transfers it expects next."""
    sender = session.sender(broker.queue())
    sender.put(data(b"%d" % number) for number in range(3))
    session.flow(sender, echo=True)
    flow = _flow_on_request(session)
    expect(flow.next_incoming_id == 3, f"expected next-incoming-id 3, got {describe(flow)}")


@scenario("2.5.6/counts-its-transfers", "2.5.6-sending", "2.5.6-next-outgoing-id")
def counts_its_transfers(broker: Broker) -> None:
    """The broker's next-outgoing-id grows by one for each transfer that it sends."""
    session = _session_with(broker, 3, broker.queue())
    receiver = session.receiver(broker.queue(), credit=3)
    receiver.take(3)
    receiver.flow(0, echo=True)
    flow = _flow_on_request(session)
    expected = (session.begun.next_outgoing_id + 3) & 0xFFFF_FFFF
    if flow.next_outgoing_id != expected:
        raise Unexpected(f"expected next-outgoing-id {expected}, got {flow.next_outgoing_id}")


@scenario("2.5.6/next-id-from-flow", "2.5.6-03", breaks="2.5.6-next-outgoing-id")
def next_id_from_flow(broker: Broker, session: Session) -> None:
    """The broker takes next-incoming-id from our flow's next-outgoing-id."""
    sender = session.sender(broker.queue())
    sender.await_credit()
    session.next_outgoing_id = 500
    session.flow(sender, echo=True)
    flow = _flow_on_request(session)
    expect(flow.next_incoming_id == 500, f"expected next-incoming-id 500, got {flow.next_incoming_id}")
    sender.put([data(b"500")])


@scenario(
    "2.5.6/overrun", "2.8.17-window-violation", "2.5.6-incoming-window", "2.5.4-01",
    profile="full", breaks="2.5.6-incoming-window",
)  # fmt: skip
def overrun_windows(broker: Broker, session: Session) -> None:
    """More transfers than the broker's incoming-window: it ends the session with window-violation."""
    window = session.begun.incoming_window
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
    error_of(performative, "amqp:session:window-violation")
    broker.still_serves()
