"""Attaching, detaching and closing links, and link errors (2.6.1 to 2.6.6, 2.7.3, 2.7.7)."""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Peer, Session
from amqp_broker.conformance.messages import data
from amqp_broker.conformance.octets import (
    ATTACH,
    FALSE,
    NULL,
    TRUE,
    described,
    frame,
    list8,
    smalluint,
    string8,
    uint0,
)
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, error_of, expect
from amqp_broker.conformance.scenario import Case, cases, scenario
from amqp_broker.conformance.transcript import describe, describe_value
from amqp_broker.conformance.wire import ANY_ERROR
from amqp_broker.frames import (
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Source,
    Target,
    Transfer,
)

HANDLE_IN_USE = "amqp:session:handle-in-use"

MOST_MESSAGE_OCTETS = 32 << 20
"""A max-message-size above this is not exceeded here."""

SMALL_MESSAGE_OCTETS = 1_000
"""The max-message-size of a receiver that takes small messages only."""

SOURCE = described(0x28, list8(string8("x")))
TARGET = described(0x29, list8())


@scenario("2.6.3/sender", "2.6.3-reply", "2.7.3-01", "3.5.4-06")
def sender(broker: Broker, session: Session) -> None:
    """An attach in role sender is answered by an attach in role receiver: same name, same target."""
    address = broker.queue()
    attach = session.sender(address, name="a link of mine").attach
    if attach.role is not RECEIVER or getattr(attach.target, "address", None) != address:
        raise Unexpected(f"expected role receiver and target {address}, got {describe(attach)}")


@scenario("2.6.3/receiver", "2.6.3-reply", "2.7.3-08", "2.6.7-initial", "3.5.3-06")
def receiver(broker: Broker, session: Session) -> None:
    """An attach in role receiver is answered in role sender, with source and initial-delivery-count."""
    address = broker.queue()
    attach = session.receiver(address).attach
    if attach.role is not SENDER or getattr(attach.source, "address", None) != address:
        raise Unexpected(f"expected role sender and source {address}, got {describe(attach)}")
    if attach.initial_delivery_count is None:
        raise Unexpected("initial-delivery-count must not be null if role is sender")


@scenario("2.6.3/nothing-without-credit", "2.6.7-initial", "2.6.7-illegal")
def nothing_without_credit(broker: Broker, session: Session) -> None:
    """A new link has no credit: messages wait until some is given."""
    session.sender(broker.queue()).put([data(b"waits")])
    receiver = session.receiver(broker.queue())
    session.peer.expect_nothing(Transfer)
    receiver.flow(1)
    receiver.receive()


@cases(
    Case("2.6.3/unknown-target", "2.6.3-refused 2.6.3-01 2.8.15-not-found 2.7.7-error 2.7.7-01",
         "A target that does not exist: attach without target, then detach with not-found at once.",
         SENDER),
    Case("2.6.3/unknown-source", "2.6.3-refused 2.6.3-01 2.8.15-not-found 2.7.7-error",
         "A source that does not exist: attach without source, then detach with not-found at once.",
         RECEIVER),
)
def _refused(broker: Broker, role: bool) -> None:
    session = broker.session()
    address = broker.settings.unknown_address
    if role is SENDER:
        session.put_sender(address, handle=4, name="refused")
    else:
        session.put_receiver(address, handle=4, name="refused")
    attach = session.peer.expect_frame(Attach, End, Close).performative
    expect(isinstance(attach, Attach), f"2.6.3-01: expected attach, then detach; got {describe(attach)}")
    terminus = attach.target if role is SENDER else attach.source
    if terminus is not None:
        session.peer.expect_nothing(Detach)  # a link that is refused has no terminus in its attach (2.6.3)
        raise NotApplicable(f"the broker knows the address {address}; give another with --unknown-address")
    detach = session.peer.expect(Detach, handle=attach.handle)
    if detach.error is None or not detach.closed:
        raise Unexpected(f"expected detach with closed and an error, got {describe(detach)}")
    if detach.error.condition != "amqp:not-found":
        raise Unexpected(f"expected amqp:not-found, got {describe_value(detach.error)}")
    session.put(Detach(handle=4, closed=True))
    session.sender(broker.queue(), handle=4, name="accepted").put([data(b"the session lives on")])
    session.peer.close()


@scenario("2.6.3/no-target", "2.7.3-target", "2.7.3-no-target")
def no_target(broker: Broker, session: Session) -> None:
    """A link for which we name no target permits no messages: it is refused, or gets no credit."""
    session.put_sender(None, name="nowhere", target=None)
    attach = session.peer.expect(Attach, name="nowhere")
    if attach.target is None:
        session.peer.expect(Detach)
    else:
        raise Unexpected(f"the broker made up a target: {describe_value(attach.target)}")
    session.peer.close()


@scenario("2.6.3/no-source", "2.7.3-source")
def no_source(broker: Broker, session: Session) -> None:
    """A link for which we name no source never produces messages: it is refused."""
    session.put_receiver(None, name="nowhere", source=None)
    attach = session.peer.expect(Attach, name="nowhere")
    expect(attach.source is None, f"the broker made up a source: {describe_value(attach.source)}")
    session.peer.expect(Detach)
    session.peer.close()


@scenario("2.6.1/two-directions", "2.6.1-01", "2.7.3-name")
def two_directions(broker: Broker, session: Session) -> None:
    """Links of one name in the two directions are two links."""
    session.sender(broker.queue(), handle=0, name="twin").put([data(b"twin")])
    session.receiver(broker.queue(), handle=1, name="twin", credit=1).receive()


@scenario("2.6.1/long-name", "2.6.1-long", "2.7.3-name")
def long_name(broker: Broker) -> None:
    """A link's name may be long: a thousand characters."""
    broker.session().sender(broker.queue(), name="n" * 1000).put([data(b"named")])


@cases(
    Case("2.6.1/stolen", "2.6.1-02 2.8.18-stolen 2.6.1-01 2.5-one-session",
         "A link attached again on another connection of the container is closed at the first, with stolen.",
         "", "amqp:link:stolen", breaks="2.5-one-session"),
    Case("2.6.1/other-container", "2.6.1-01 2.7.3-name",
         "Links of one name from two containers are two links: nothing is stolen.",
         "another"),
)
def _again_on_another(broker: Broker, container: str, condition: str = "") -> None:
    """Attaches a link again on a connection of this container: at the first it ends so, or lives on."""
    first, second = broker.session(), broker.session(container=container)
    first.receiver(broker.queue(), name="mine")
    second.receiver(broker.queue(), name="mine")
    if condition:
        first.peer.expect_detach(condition)
    else:
        first.peer.expect_nothing(Detach)


@scenario("2.6.2/independent-handles", "2.6.2-handles", "2.7.5-handle")
def independent_handles(broker: Broker, session: Session) -> None:
    """Our handles are our choice: 200 and 3 serve like 0 and 1."""
    high = min(200, session.begun.handle_max)
    session.sender(broker.queue(), handle=high).put([data(b"over handle 200")])
    session.receiver(broker.queue(), handle=3, credit=1).receive()


@scenario("2.7.3/handle-in-use", "2.7.3-02", "2.8.17-handle-in-use", breaks="2.7.3-01")
def handle_in_use(broker: Broker, session: Session) -> None:
    """An attach on a handle in use ends session or connection with handle-in-use.

    The sentence says "close" and "session-error": close and end are both taken.
    """
    session.sender(broker.queue(), handle=0, name="first")
    session.put_sender(broker.queue(), handle=0, name="second")
    answer = session.peer.expect_frame(End, Close, skip=(Attach, Detach)).performative
    error_of(answer, HANDLE_IN_USE)
    broker.still_serves()


@scenario("2.7.3/handle-again", "2.8.4-reused", "2.7.7-unmaps")
def handle_again(broker: Broker, session: Session) -> None:
    """After detach both ways the handle serves the next link."""
    for number in range(3):
        link = session.sender(broker.queue(), handle=0, name=f"link-{number}")
        link.put([data(b"again")])
        link.detach()


@cases(
    Case("2.7.3/no-name", "1.3.4-mandatory 2.5.4-01 2.4.3-01",
         "An attach whose mandatory name is null is refused with an error, or answered by one with a name.",
         list8(NULL, uint0(), TRUE, NULL, NULL, SOURCE, TARGET), "attach(name=null)", breaks="2.3.2-01"),
    Case("2.7.3/no-role", "2.5.4-01 2.4.3-01",
         "An attach whose mandatory role is null is refused with an error, or answered.",
         list8(string8("n"), uint0(), NULL, NULL, NULL, SOURCE, TARGET), "attach(role=null)",
         breaks="2.3.2-01"),
    Case("2.7.3/role-of-another-type", "2.5.4-01 2.4.3-01",
         "An attach whose role is a uint is refused with an error, or answered.",
         list8(string8("n"), uint0(), smalluint(1), NULL, NULL, SOURCE, TARGET), "attach(role=1)",
         breaks="2.3.2-01"),
    Case("2.7.3/sender-without-count", "2.7.3-08 2.8.15-invalid-field",
         "An attach in role sender without initial-delivery-count is refused with an error.",
         list8(string8("n"), uint0(), FALSE, NULL, NULL, described(0x28, list8()), TARGET),
         "attach(role=sender, initial_delivery_count=null)", profile="full", breaks="2.7.3-08"),
)
def _bad_attach(broker: Broker, octets: bytes, what: str) -> None:
    session = broker.session()
    session.peer.send_octets(frame(described(ATTACH, octets)), what)
    session.peer.expect_error_if_any()
    broker.still_serves()


@cases(
    Case("2.7.3/settled-sender", "2.7.3-snd-mode 2.7.3-snd-actual 2.7.5-06 2.8.2-settled",
         "We wish settled deliveries: the broker says which mode is in use, and keeps to it.",
         1),
    Case("2.7.3/unsettled-sender",
         "2.7.3-snd-mode 2.7.3-snd-actual 2.7.5-07 2.8.2-unsettled 2.7.3-snd-settle-mode",
         "We wish unsettled deliveries: the broker says which mode is in use, and keeps to it.",
         0),
)
def _sent_in_mode(broker: Broker, mode: int) -> None:
    session = broker.session()
    session.sender(broker.queue()).put([data(b"in a mode")])
    receiver = session.receiver(broker.queue(), credit=1, snd_settle_mode=mode)
    actual = receiver.attach.snd_settle_mode
    settled = receiver.receive().transfer.settled is True
    if actual == 1 and not settled:
        raise Unexpected("2.7.5-06: in mode settled the delivery must be settled")
    if actual == 0 and settled:
        raise Unexpected("2.7.5-07: in mode unsettled the delivery must not be settled")
    if actual != mode:
        raise NotApplicable(
            f"the broker sends in snd-settle-mode {actual} where {mode} was wished, and says so"
        )
    session.peer.close()


@scenario(
    "2.7.3/message-too-large", "2.7.3-max-message-size", "2.8.18-message-size", "2.6.5-01",
    breaks="2.7.3-max-message-size",
)  # fmt: skip
def message_too_large(broker: Broker, session: Session) -> None:
    """A message larger than max-message-size: detach with message-size-exceeded."""
    link = session.sender(broker.queue())
    limit = link.attach.max_message_size or 0
    if limit == 0:
        raise NotApplicable("the broker announces no max-message-size")
    if limit > MOST_MESSAGE_OCTETS:
        raise NotApplicable(f"the broker takes messages of {limit} octets, too many to exceed here")
    piece = min(session.peer.remote_max_frame_size, 1 << 20) - 64
    if (limit + 100) // piece > session.begun.incoming_window:
        raise NotApplicable("the message would not fit into the broker's incoming-window")
    link.send(data(bytes(limit + 100)), frame_octets=piece)
    session.peer.expect_detach("amqp:link:message-size-exceeded", timeout_s=20)
    session.put(Detach(handle=0, closed=True))
    broker.still_serves()


@scenario("2.7.3/receiver-of-small-messages", "2.7.3-max-message-size", "2.7.3-supported-size")
def receiver_of_small_messages(broker: Broker, session: Session) -> None:
    """A message larger than our max-message-size is not delivered to that link, and holds up no other."""
    small, large = data(b"small"), data(bytes(2 * SMALL_MESSAGE_OCTETS))
    session.sender(broker.queue()).put([large, small])
    narrow = session.receiver(broker.queue(), credit=10, max_message_size=SMALL_MESSAGE_OCTETS)
    arrived = narrow.receive()
    if len(arrived.payload) > SMALL_MESSAGE_OCTETS:
        raise Unexpected(
            f"expected messages of at most {SMALL_MESSAGE_OCTETS} octets, got one of {len(arrived.payload)}"
        )
    narrow.settle(arrived)
    session.peer.expect_nothing(Transfer)
    narrow.detach()
    wide = session.receiver(broker.queue(), handle=2, credit=10)
    expect(len(wide.receive().payload) > SMALL_MESSAGE_OCTETS, "the small message was delivered twice")


@scenario("2.7.3/unknown-wishes", "2.6.3-reply", "2.6.3-05")
def unknown_wishes(broker: Broker) -> None:
    """Capabilities and properties of a link that the broker does not know do no harm, and are not offered."""
    link = broker.session().sender(
        broker.queue(), desired_capabilities=("x-conformance",), properties={"x-conformance": [1, "two"]}
    )
    if "x-conformance" in (link.attach.offered_capabilities or ()):
        raise Unexpected("the broker offers a capability that nobody has ever defined")
    link.put([data(b"fine")])


@scenario("2.6.3/resume-unknown", "2.6.13-01", "2.7.5-12", "2.6.3-02")
def resume_unknown(broker: Broker, session: Session) -> None:
    """A delivery resumed that the broker never heard of is ignored: it makes no message."""
    link = session.put_sender(broker.queue(), name="resumed", unsettled={b"old": None})
    link.expect_attach(or_end="amqp:not-implemented")
    if b"old" in (link.attach.unsettled or {}):
        raise Unexpected("the broker claims to know a delivery that was never sent")
    link.send(data(b"must be ignored"), delivery_tag=b"old", resume=True)
    session.catch_up()
    broker.session(container="reader").receiver(broker.queue()).expect_empty()


@scenario("2.6.3/pipelined-attach", "2.6.3-reply", "2.4.2-pipelined")
def pipelined_attach(broker: Broker, peer: Peer) -> None:
    """Begin, two attaches and a flow in one write are answered one by one."""
    address = broker.queue()
    with peer.one_write():
        peer.put(Begin(next_outgoing_id=0, incoming_window=10, outgoing_window=10))
        out = Attach(
            name="out",
            handle=0,
            role=SENDER,
            source=Source(),
            target=Target(address=address),
            initial_delivery_count=0,
        )
        peer.put(out)
        peer.put(Attach(name="in", handle=1, role=RECEIVER, source=Source(address=address), target=Target()))
        peer.put(Flow(incoming_window=10, next_outgoing_id=0, outgoing_window=10, handle=1, link_credit=5))
    peer.expect(Begin, remote_channel=0)
    answered = {peer.expect(Attach).name, peer.expect(Attach).name}
    expect(answered == {"out", "in"}, f"expected attach of 'out' and 'in', got {sorted(answered)}")


UNATTACHED = "amqp:session:unattached-handle"
ERRANT_LINK = "amqp:session:errant-link"


@scenario("2.6.6/close-sender", "2.6.6-closed", "2.7.7-unmaps")
def close_sender(broker: Broker) -> None:
    """A closing detach of our sender is answered by a closing detach."""
    answer = broker.session().sender(broker.queue()).detach()
    if not answer.closed or answer.error is not None:
        raise Unexpected(f"expected detach with closed and no error, got {describe(answer)}")


@scenario("2.6.6/close-receiver", "2.6.6-closed", "2.7.7-unmaps")
def close_receiver(broker: Broker, session: Session) -> None:
    """A closing detach of our receiver is answered by a closing detach, and no transfer follows."""
    sender = session.sender(broker.queue())
    receiver = session.receiver(broker.queue(), credit=10)
    answer = receiver.detach()
    if not answer.closed or answer.error is not None:
        raise Unexpected(f"expected detach with closed and no error, got {describe(answer)}")
    sender.put([data(b"not for the closed link")])
    session.peer.expect_nothing(Transfer, within_s=0.2)


@scenario("2.6.4/detach", "2.6.4-01", "2.7.7-unmaps")
def detach(broker: Broker) -> None:
    """A detach that does not close is answered by a detach."""
    answer = broker.session().sender(broker.queue()).detach(closed=False)
    expect(answer.error is None, f"expected detach without error, got {describe(answer)}")


@scenario("2.6.4/reattach", "2.6.4-01", "2.7.3-06")
def reattach(broker: Broker, session: Session) -> None:
    """A link that was detached can be attached again, and works."""
    for number in range(2):
        link = session.sender(broker.queue(), name="again")
        link.put([data(b"%d" % number)])
        link.detach(closed=False)
    receiver = session.receiver(broker.queue(), name="reader", credit=2)
    receiver.take(2)


@scenario("2.6.4/pipelined-reattach", "2.6.4-01", "2.8.4-reused")
def pipelined_reattach(broker: Broker, session: Session) -> None:
    """Detach and attach of the same link in one write are answered in turn."""
    session.sender(broker.queue(), name="again")
    with session.peer.one_write():
        session.put(Detach(handle=0))
        link = session.put_sender(broker.queue(), name="again")
    session.peer.expect(Detach)
    link.expect_attach()
    link.put([data(b"after")])


@scenario("2.6.6/detach-with-error", "2.6.6-closed", "2.7.7-error")
def detach_with_error(broker: Broker, session: Session) -> None:
    """A detach that carries an error of ours is answered by detach, and the session lives on."""
    session.sender(broker.queue(), name="failing")
    error = Error(condition="amqp:internal-error", description="the client has failed")
    session.put(Detach(handle=0, closed=True, error=error))
    session.peer.expect(Detach)
    session.sender(broker.queue(), name="next").put([data(b"fine")])


@cases(
    Case("2.6.6/detach-unattached", "2.8.17-unattached-handle 2.5.4-01",
         "A detach of a handle that no link has ends the session with unattached-handle.",
         Detach(handle=9, closed=True), profile="full", breaks="2.7.7-unmaps"),
    Case("2.6.6/transfer-unattached", "2.8.17-unattached-handle 2.5.4-01",
         "A transfer on a handle that no link has ends the session, or more, with an error.",
         Transfer(handle=9, delivery_id=0, delivery_tag=b"t", message_format=0), data(b"lost"),
         breaks="2.7.5-handle"),
)
def _unattached(broker: Broker, performative: Detach | Transfer, payload: bytes = b"") -> None:
    """Names a handle that no link has; expects an error, and a broker that lives on. Which error, the
    standard says of flows only (2.7.4).
    """
    session = broker.session()
    session.put(performative, payload)
    error_of(session.peer.expect_frame(End, Close).performative)
    broker.still_serves()


@scenario("2.6.6/transfer-after-detach", "2.8.17-unattached-handle", "2.7.7-unmaps", breaks="2.7.5-handle")
def transfer_after_detach(broker: Broker, session: Session) -> None:
    """A transfer on a link that we have detached ends the session, or more, with an error."""
    link = session.sender(broker.queue())
    link.put([data(b"before")])
    link.detach()
    session.put(Transfer(handle=0, delivery_id=1, delivery_tag=b"t", message_format=0), data(b"after"))
    error_of(session.peer.expect_frame(End, Close).performative)
    broker.still_serves()


@scenario("2.6.5/error-detaches", "2.6.5-01", "2.7.7-01", "2.7.5-01", breaks="2.7.5-01 2.7.5-02 2.7.5-03")
def error_detaches(broker: Broker, session: Session) -> None:
    """An error of a link is answered at the link or above, with an error that says what is wrong."""
    link = session.sender(broker.queue())
    link.await_credit()
    # A new delivery without delivery-id and delivery-tag.
    session.put(Transfer(handle=0), data(b"nameless"))
    answer = session.peer.expect_frame(Detach, End, Close).performative
    error_of(answer)
    broker.still_serves()


def _detached_with_error(broker: Broker) -> Session:
    """Returns a session with a link of handle 0, name "errant", that the broker has detached with an
    error.
    """
    session = broker.session()
    session.put_sender(broker.settings.unknown_address, handle=0, name="errant")
    attach = session.peer.expect_frame(Attach, End, Close).performative
    if not isinstance(attach, Attach):
        raise NotApplicable(f"no attach answers one that is refused, others judge that: {describe(attach)}")
    if attach.target is not None:
        raise NotApplicable("the broker knows the unknown address; give another with --unknown-address")
    session.peer.expect_detach(ANY_ERROR)
    return session


@scenario("2.6.5/errant-link", "2.6.5-03", "2.8.17-errant-link", "2.6.5-02", breaks="2.6.7-illegal")
def errant_link(broker: Broker) -> None:
    """After its detach with an error the broker ends the session when more comes for that link."""
    session = _detached_with_error(broker)
    session.put(Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0), data(b"more"))
    session.expect_end(ERRANT_LINK)
    broker.still_serves()


@scenario("2.6.5/errant-attach", "2.6.5-06", "2.8.17-errant-link", "2.6.5-05", breaks="2.6.1-01")
def errant_attach(broker: Broker) -> None:
    """After its detach with an error the broker ends the session on a pipelined attach of that link."""
    session = _detached_with_error(broker)
    session.put_sender(broker.queue(), handle=1, name="errant")
    session.expect_end(ERRANT_LINK)
    broker.still_serves()


@scenario("2.6.5/detach-is-no-error", "2.6.5-03", "2.6.6-closed")
def detach_is_no_error(broker: Broker) -> None:
    """After its detach with an error the broker takes our detach, and the session lives on."""
    session = _detached_with_error(broker)
    session.put(Detach(handle=0, closed=True))
    session.sender(broker.queue(), handle=0, name="next").put([data(b"fine")])
    session.peer.close()


@scenario("2.6.5/session-lives-on", "2.6.5-02", "2.6.5-01")
def session_lives_on(broker: Broker, session: Session) -> None:
    """After a refused link, detached both ways, name and handle serve again."""
    session.put_receiver(broker.settings.unknown_address, name="once")
    attach = session.peer.expect(Attach, name="once")
    if attach.source is not None:
        raise NotApplicable("the broker knows the unknown address; give another with --unknown-address")
    session.peer.expect(Detach)
    session.put(Detach(handle=1, closed=True))
    session.receiver(broker.queue(), name="once")
    session.peer.close()


@scenario("2.7.6/after-detach", "2.7.6-02", "3.3.1-remains")
def disposition_after_detach(broker: Broker, session: Session) -> None:
    """A delivery of a link that was detached, not closed, is live: an outcome that follows is applied."""
    session.sender(broker.queue()).put([data(b"settled late")])
    receiver = session.receiver(
        broker.queue(), credit=1, source=Source(address=broker.queue(), expiry_policy="never")
    )
    delivery = receiver.receive()
    receiver.detach(closed=False)
    session.put(Disposition(role=RECEIVER, first=delivery.delivery_id, settled=True, state=Accepted()))
    session.end()
    other = broker.session()
    other.receiver(broker.queue(), name="reader").expect_empty()
    other.peer.close()


@scenario("2.7.6/after-close", "3.3.1-remains", "3.4.4-source")
def close_returns(broker: Broker, session: Session) -> None:
    """What was unsettled on a link that is closed becomes available to others."""
    session.sender(broker.queue()).put([data(b"returns")])
    receiver = session.receiver(broker.queue(), credit=1)
    receiver.receive()
    receiver.detach(closed=True)
    session.receiver(broker.queue(), handle=5, name="other", credit=1).receive()
