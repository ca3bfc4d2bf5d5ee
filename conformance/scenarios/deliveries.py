"""Deliveries, ours and the broker's: ids, tags, several frames, aborted ones, order (2.6.12, 2.6.14,
2.7.5).
"""

from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Sender, Session
from amqp_broker.conformance.messages import data
from amqp_broker.conformance.octets import TRANSFER, binary8, described, frame, list8, uint0
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, error_of, expect
from amqp_broker.conformance.queues import expect_left, put
from amqp_broker.conformance.scenario import Case, cases, scenario
from amqp_broker.conformance.transcript import describe
from amqp_broker.frames import SENDER, Accepted, Close, Detach, Disposition, End, Transfer


def _begun(broker: Broker, payload: bytes, octets: int = 3, **fields: Any) -> Sender:
    """Returns a link on which so many octets of a message were sent, of which more is to come."""
    sender = broker.session().sender(broker.queue())
    sender.send(payload[:octets], more=True, **fields)
    return sender


def _refused(broker: Broker, session: Session) -> None:
    """Waits for detach, end or close with an error."""
    answer = session.peer.expect_frame(Detach, End, Close, skip=(Disposition,)).performative
    error_of(answer)
    broker.still_serves()


@scenario("2.6.12/accepted", "2.6.12-settle", "2.7.5-10", "2.8.3-first", "3.4.2-target", "2.6.12-01")
def accepted(broker: Broker, session: Session) -> None:
    """An unsettled delivery is answered with accepted, settled: the receiver settles first."""
    sender = session.sender(broker.queue())
    sender.send(data(b"accepted"))
    sender.expect_outcome(Accepted)
    session.peer.close()
    expect_left(broker, broker.queue(), b"accepted")


@scenario("2.6.12/settled", "2.6.12-no-response", "2.8.2-mixed")
def settled(broker: Broker, session: Session) -> None:
    """A delivery sent settled gets no answer, and the message is there."""
    sender = session.sender(broker.queue())
    sender.send(data(b"settled"), settled=True)
    session.peer.expect_nothing(Disposition)
    session.peer.close()
    expect_left(broker, broker.queue(), b"settled")


@scenario("2.7.5/settled-unset", "2.7.5-04")
def settled_unset(broker: Broker) -> None:
    """A delivery whose settled flag is not set is unsettled: an outcome comes."""
    sender = broker.session().sender(broker.queue())
    sender.send(data(b"unset"), settled=None)
    sender.expect_outcome()


@cases(
    Case("2.7.5/settled-on-the-last", "2.7.5-05 2.6.12-no-response",
         "A delivery settled on its last transfer only is settled: no outcome comes.",
         None, True),
    Case("2.7.5/settled-on-the-first", "2.7.5-05 2.6.12-no-response",
         "A delivery settled on its first transfer stays settled where the flag is unset later.",
         True, None),
)
def _settled_somewhere(broker: Broker, first: bool | None, last: bool | None) -> None:
    """Sends a message of two transfers with these settled flags: it is there, and no outcome comes."""
    payload = data(b"settled somewhere")
    sender = _begun(broker, payload, settled=first)
    sender.send_more(payload[3:], settled=last)
    sender.peer.expect_nothing(Disposition)
    sender.peer.close()
    expect_left(broker, broker.queue(), b"settled somewhere")


@cases(
    Case("2.6.14/several-transfers", "2.6.14-split 2.7.5-01 2.7.5-02 2.7.5-03",
         "A message over many transfers, the later ones without id, tag and format, is one message.",
         4, 100),
    Case("2.6.14/large", "2.6.14-split 2.7.1-04",
         "A message of 1 MiB passes both ways.",
         4096, 59_900),
)
def _in_pieces(broker: Broker, times: int, octets: int) -> None:
    """Sends a message of so many times 256 octets, by at most so many octets in a frame."""
    session = broker.session()
    sender = session.sender(broker.queue())
    body = bytes(range(256)) * times
    sender.send(data(body), frame_octets=min(session.peer.remote_max_frame_size - 100, octets))
    sender.expect_outcome()
    session.peer.close()
    expect_left(broker, broker.queue(), body)


@scenario("2.6.14/empty-transfer", "2.6.14-split", "2.3.2-payload")
def empty_transfer(broker: Broker) -> None:
    """A transfer without payload in the middle of a message adds nothing to it."""
    payload = data(b"with a gap")
    sender = _begun(broker, payload, delivery_tag=b"tag-0")
    sender.send_more(more=True)
    sender.send_more(payload[3:], delivery_id=0, delivery_tag=b"tag-0")
    sender.expect_outcome()
    sender.peer.close()
    expect_left(broker, broker.queue(), b"with a gap")


@scenario("2.6.14/interleaved-links", "2.6.14-interleaved")
def interleaved_links(broker: Broker, session: Session) -> None:
    """Messages of two links may be interleaved: each arrives whole."""
    first = session.sender(broker.queue("first"), handle=0)
    second = session.sender(broker.queue("second"), handle=1)
    first.await_credit()
    one, two = data(b"of the first link"), data(b"of the second link")
    numbers = first.send(one[:6], more=True), second.send(two[:6], more=True)
    first.send_more(one[6:])
    second.send_more(two[6:])
    for number in numbers:
        session.await_outcome(number)
    session.peer.close()
    expect_left(broker, broker.queue("first"), b"of the first link")
    expect_left(broker, broker.queue("second"), b"of the second link")


@scenario(
    "2.6.14/interleaved-on-a-link", "2.6.14-01", "2.7.5-same-id", profile="full",
    breaks="2.6.14-01 2.7.5-same-tag",
)  # fmt: skip
def interleaved_on_a_link(broker: Broker) -> None:
    """A second delivery on a link before the first is complete is an error."""
    sender = _begun(broker, data(b"first"))
    sender.send_more(data(b"second")[:4], delivery_id=1, delivery_tag=b"tag-1", message_format=0, more=True)
    _refused(broker, sender.session)


@cases(
    Case("2.6.14/aborted", "2.6.14-02 2.7.5-15 2.7.5-aborted",
         "An aborted delivery is discarded and settled: no message, no outcome; the next one is fine.",
         data(b"aborted")[3:]),
    Case("2.6.14/aborted-and-more", "2.7.5-aborted-precedence 2.7.5-08",
         "Where both aborted and more are set, aborted counts: the delivery is over.",
         b"", more=True),
)
def _aborted(broker: Broker, rest: bytes, **fields: Any) -> None:
    """Aborts a message of which a part was sent; only the next one is there."""
    sender = _begun(broker, data(b"aborted"))
    sender.send_more(rest, aborted=True, **fields)
    sender.peer.expect_nothing(Disposition, within_s=0.2)
    sender.put([data(b"the next")])
    sender.peer.close()
    expect_left(broker, broker.queue(), b"the next")


@scenario("2.6.14/broken-off", "2.6.14-02", "2.5.2-automatic")
def broken_off(broker: Broker) -> None:
    """A message whose last transfer never comes is no message: the connection broke before."""
    sender = _begun(broker, data(b"half a message"), 9)
    sender.session.catch_up()
    sender.peer.drop()
    expect_left(broker, broker.queue())


@cases(
    Case("2.7.5/no-delivery-id", "2.7.5-01 2.6.5-01",
         "A first transfer of several without delivery-id is an error.",
         {"delivery_id": None}, profile="full", breaks="2.7.5-01"),
    Case("2.7.5/no-delivery-tag", "2.7.5-02 2.6.12-01",
         "A first transfer of several without delivery-tag is an error.",
         {"delivery_tag": None}, profile="full", breaks="2.7.5-02"),
    Case("2.7.5/other-delivery-id", "2.7.5-same-id",
         "A continuation with another delivery-id than the first transfer is an error.",
         {}, delivery_id=7, breaks="2.6.14-01"),
    Case("2.7.5/other-delivery-tag", "2.7.5-same-tag",
         "A continuation with another delivery-tag than the first transfer is an error.",
         {}, delivery_tag=b"another", breaks="2.7.5-same-tag"),
    Case("2.7.5/other-message-format", "2.7.5-same-format",
         "A continuation with another message-format than the first transfer is an error.",
         {}, message_format=7, breaks="2.7.5-same-format"),
)
def _continued(broker: Broker, first: dict[str, Any], **later: Any) -> None:
    """A message of two transfers with these fields must be refused."""
    sender = _begun(broker, data(b"x"), **first)
    sender.send_more(data(b"x")[3:], **later)
    _refused(broker, sender.session)


@scenario("2.7.5/tag-of-32-octets", "2.8.7-tag", "2.7.5-unique")
def tag_of_32_octets(broker: Broker) -> None:
    """Delivery-tags of 1 and of 32 octets are tags."""
    sender = broker.session().sender(broker.queue())
    sender.send(data(b"long tag"), delivery_tag=b"t" * 32)
    sender.expect_outcome()
    sender.send(data(b"short tag"), delivery_tag=b"t")
    sender.expect_outcome()


@scenario("2.7.5/tag-of-33-octets", "2.8.7-tag", profile="full", breaks="2.3.2-01")
def tag_of_33_octets(broker: Broker, session: Session) -> None:
    """A delivery-tag of 33 octets is an error."""
    sender = session.sender(broker.queue())
    sender.await_credit()
    performative = described(TRANSFER, list8(uint0(), uint0(), binary8(b"t" * 33), uint0()))
    session.peer.send_octets(frame(performative + data(b"x")), "transfer(delivery_tag=33 octets)")
    _refused(broker, session)


@scenario("2.6.12/wrapping-delivery-ids", "2.6.12-delivery-id", "2.8.10-serial")
def wrapping_delivery_ids(broker: Broker, session: Session) -> None:
    """Delivery-ids begin anywhere and wrap at 2^32; outcomes name the right ones."""
    session.next_delivery_id = 0xFFFF_FFFE
    sender = session.sender(broker.queue())
    for number in range(4):
        delivery_id = sender.send(data(b"%d" % number))
        sender.expect_outcome(delivery_id=delivery_id)


@scenario("2.7.5/batchable", "2.7.5-batchable")
def batchable(broker: Broker, session: Session) -> None:
    """Deliveries hinted as batchable get their outcomes, too."""
    sender = session.sender(broker.queue())
    numbers = [sender.send(data(b"%d" % number), batchable=True) for number in range(5)]
    for number in numbers:
        session.await_outcome(number)


@scenario("2.7.5/second-where-first", "2.7.5-mode-first", profile="full", breaks="2.7.5-mode-first")
def second_where_first(broker: Broker, session: Session) -> None:
    """On a link in rcv-settle-mode first a transfer may not ask for second: an error."""
    sender = session.sender(broker.queue())
    if sender.attach.rcv_settle_mode != 0:
        raise NotApplicable("the broker's link is not in rcv-settle-mode first")
    sender.send(data(b"x"), rcv_settle_mode=1)
    _refused(broker, session)


@scenario(
    "2.6.12/second", "2.7.5-11", "2.8.3-second", "2.6.12-settle", "2.7.3-rcv-mode", "2.7.3-rcv-settle-mode"
)
def second(broker: Broker, session: Session) -> None:
    """In rcv-settle-mode second the broker gives its outcome unsettled, and settles when we have."""
    sender = session.put_sender(broker.queue(), rcv_settle_mode=1)
    sender.expect_attach(or_end="amqp:not-implemented")
    if sender.attach.rcv_settle_mode != 1:
        raise NotApplicable("the broker as receiver settles first, and says so in its attach")
    sender.send(data(b"exactly once"))
    disposition = session.peer.expect(Disposition)
    if disposition.settled or not isinstance(disposition.state, Accepted):
        raise Unexpected(f"expected accepted and not settled, got {describe(disposition)}")
    session.put(Disposition(role=SENDER, first=0, settled=True, state=Accepted()))
    session.peer.close()
    expect_left(broker, broker.queue(), b"exactly once")


@scenario("2.6.12/sender-settles-early", "2.7.6-settled", "2.7.6-role")
def sender_settles_early(broker: Broker, session: Session) -> None:
    """A sender may settle before an outcome came: the message is there all the same."""
    sender = session.sender(broker.queue())
    sender.await_credit()
    with session.peer.one_write():
        sender.send(data(b"forgotten"), wait=False)
        session.put(Disposition(role=SENDER, first=0, settled=True))
    session.catch_up()
    session.peer.close()
    expect_left(broker, broker.queue(), b"forgotten")


@scenario("2.7.5/on-a-link-of-ours-to-receive", "2.7.5-handle", "2.8.15-not-allowed", breaks="2.7.5-handle")
def on_a_receiving_link(broker: Broker, session: Session) -> None:
    """A transfer on a link on which we receive is an error."""
    session.receiver(broker.queue(), handle=0)
    first = Transfer(handle=0, delivery_id=0, delivery_tag=b"tag-0", message_format=0)
    session.put(first, data(b"the wrong way"))
    _refused(broker, session)


@scenario("2.7.5/first-transfer", "2.7.5-01", "2.7.5-02", "2.7.5-03", "2.6.12-01", "2.8.7-tag")
def first_transfer(broker: Broker, session: Session) -> None:
    """A delivery comes with delivery-id, delivery-tag of 1 to 32 octets, and message-format."""
    put(broker, broker.queue(), b"named")
    delivery = session.receiver(broker.queue(), credit=1).receive()
    expect(delivery.transfer.delivery_tag, "the delivery-tag is empty")
    if delivery.transfer.message_format != 0:
        raise Unexpected(f"expected message-format 0, as sent, got {delivery.transfer.message_format}")


@scenario("2.6.12/unique-tags", "2.6.12-02", "2.7.5-unique", "2.6.12-delivery-id")
def unique_tags(broker: Broker, session: Session) -> None:
    """Ten unsettled deliveries have ten tags, and ids that follow each other."""
    put(broker, broker.queue(), *(b"%d" % number for number in range(10)))
    receiver = session.receiver(broker.queue(), credit=10)
    deliveries = receiver.take(10)
    if len({delivery.transfer.delivery_tag for delivery in deliveries}) != 10:
        raise Unexpected("two unsettled deliveries have one delivery-tag")
    ids = [delivery.delivery_id for delivery in deliveries]
    if ids != [(ids[0] + number) & 0xFFFF_FFFF for number in range(10)]:
        raise Unexpected(f"the delivery-ids do not follow each other: {ids}")


@scenario("2.6.12/ids-of-the-session", "2.6.12-delivery-id", "2.7.6-01")
def ids_of_the_session(broker: Broker, session: Session) -> None:
    """Two links of a session share its delivery-ids: none comes twice."""
    first, second = broker.queue("first"), broker.queue("second")
    put(broker, first, b"1", b"2")
    put(broker, second, b"3", b"4")
    one = session.receiver(first, handle=1)
    two = session.receiver(second, handle=2)
    ids = []
    for receiver in (one, two, one, two):
        receiver.flow(1)
        ids.append(receiver.receive().delivery_id)
    expect(len(set(ids)) == 4, f"a delivery-id came twice within a session: {ids}")


@scenario("2.6.14/split", "2.6.14-split", "2.7.1-04", "2.7.5-same-id")
def split(broker: Broker) -> None:
    """A message larger than our frames comes over several transfers, all of them with more but the last."""
    session = broker.session(max_frame_size=1024)
    body = bytes(range(256)) * 40
    put(broker, broker.queue(), body)
    delivery = session.receiver(broker.queue(), credit=1).receive()
    if not delivery.payload.endswith(body):
        raise Unexpected(f"the message of {len(body)} octets came as {len(delivery.payload)} others")
    expect(delivery.frames >= 10, f"expected at least 10 frames of 1,024 octets, got {delivery.frames}")


@scenario("2.6.14/not-interleaved", "2.6.14-01", "2.6.14-split")
def not_interleaved(broker: Broker) -> None:
    """Large messages of one link come one after the other."""
    session = broker.session(max_frame_size=512)
    bodies = [bytes([number]) * 4000 for number in range(4)]
    put(broker, broker.queue(), *bodies)
    receiver = session.receiver(broker.queue(), credit=4)
    for body in bodies:
        expect(receiver.receive().payload.endswith(body), "two messages of one link are mixed")


@scenario("2.6.14/two-large-links", "2.6.14-interleaved", "2.6.14-01")
def two_large_links(broker: Broker) -> None:
    """Large messages of two links may be interleaved, and both arrive whole."""
    session = broker.session(max_frame_size=512)
    addresses = [broker.queue("first"), broker.queue("second")]
    for number, address in enumerate(addresses):
        put(broker, address, bytes([number + 1]) * 5000)
    links = [session.receiver(address, handle=number) for number, address in enumerate(addresses)]
    for link in links:
        link.flow(1)
    parts: dict[int | None, bytes] = {}
    complete = 0
    while complete < 2:
        frame = session.peer.expect_frame(Transfer)
        handle = frame.performative.handle
        parts[handle] = parts.get(handle, b"") + frame.payload
        complete += not frame.performative.more
    for number, link in enumerate(links):
        if not parts[link.remote_handle].endswith(bytes([number + 1]) * 5000):
            raise Unexpected("the messages of two links are mixed")


@scenario("2.6.12/order", "2.6.12-delivery-id", "3.3.1-available")
def order(broker: Broker, session: Session) -> None:
    """The messages of one sender come in the order in which they were sent."""
    sender = session.sender(broker.queue())
    for number in range(100):
        sender.send(data(b"%03d" % number), settled=True)
    receiver = session.receiver(broker.queue(), credit=100)
    for number in range(100):
        payload = receiver.receive().payload
        expect(payload.endswith(b"%03d" % number), f"expected message {number}, got {payload[-3:]!r}")


def _receive_one(session: Session, address: str, **fields: Any) -> Transfer:
    return session.receiver(address, credit=1, **fields).receive().transfer


@scenario("2.8.2/mixed", "2.8.2-mixed", "2.7.3-snd-mode")
def mixed(broker: Broker, session: Session) -> None:
    """In mode mixed, the default, an unsettled delivery waits for our outcome before it is gone."""
    put(broker, broker.queue(), b"mixed")
    receiver = session.receiver(broker.queue(), credit=1)
    delivery = receiver.receive()
    if not delivery.transfer.settled:
        receiver.settle(delivery)
    receiver.detach()
    session.receiver(broker.queue(), handle=2).expect_empty()


@scenario("2.8.2/settled-is-gone", "2.8.2-settled", "2.7.5-06", "3.5.2-move")
def settled_is_gone(broker: Broker, session: Session) -> None:
    """What the broker sends settled is gone: it does not come again when the link goes."""
    put(broker, broker.queue(), b"at most once")
    transfer = _receive_one(session, broker.queue(), snd_settle_mode=1)
    session.end()
    session = session.peer.begin()
    receiver = session.receiver(broker.queue(), handle=2)
    if transfer.settled:
        receiver.expect_empty()
    else:
        receiver.flow(1)
        receiver.receive()


@scenario("2.7.5/state-never-received", "3.4.1-01", "2.7.5-state")
def state_never_received(broker: Broker) -> None:
    """No transfer of a new delivery carries a terminal state or the state received."""
    session = broker.session(max_frame_size=512)
    put(broker, broker.queue(), bytes(2000))
    session.receiver(broker.queue(), credit=1)
    while True:
        transfer: Transfer = session.peer.expect_frame(Transfer).performative
        expect(transfer.state is None, f"a transfer of a new delivery carries the state {transfer.state!r}")
        if not transfer.more:
            break
