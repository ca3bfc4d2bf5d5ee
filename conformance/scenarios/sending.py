"""Deliveries that we send: ids, tags, several frames, aborted ones, settlement (2.6.12, 2.6.14, 2.7.5)."""

from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Sender, Session
from amqp_broker.conformance.messages import data
from amqp_broker.conformance.octets import TRANSFER, binary8, described, frame, list8, uint0
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected
from amqp_broker.conformance.queues import expect_left
from amqp_broker.conformance.scenario import scenario
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
    if answer.error is None:
        raise Unexpected(f"expected an error, got {describe(answer)}")
    broker.still_serves()


@scenario("2.6.12/accepted", "2.6.12-settle", "2.7.5-10", "2.8.3-first", "3.4.2-target", "2.6.12-01")
def accepted(broker: Broker) -> None:
    """An unsettled delivery is answered with accepted, settled: the receiver settles first."""
    session = broker.session()
    sender = session.sender(broker.queue())
    sender.send(data(b"accepted"))
    sender.expect_outcome(Accepted)
    session.peer.close()
    expect_left(broker, broker.queue(), b"accepted")


@scenario("2.6.12/settled", "2.6.12-no-response", "2.8.2-mixed")
def settled(broker: Broker) -> None:
    """A delivery sent settled gets no answer, and the message is there."""
    session = broker.session()
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


@scenario("2.7.5/settled-on-the-last", "2.7.5-05", "2.6.12-no-response")
def settled_on_the_last(broker: Broker) -> None:
    """A delivery settled on its last transfer only is settled: no outcome comes."""
    payload = data(b"settled at the end")
    sender = _begun(broker, payload)
    sender.send_more(payload[3:], settled=True)
    sender.peer.expect_nothing(Disposition)
    sender.peer.close()
    expect_left(broker, broker.queue(), b"settled at the end")


@scenario("2.7.5/settled-on-the-first", "2.7.5-05", "2.6.12-no-response")
def settled_on_the_first(broker: Broker) -> None:
    """A delivery settled on its first transfer stays settled where the flag is unset later."""
    payload = data(b"settled at the beginning")
    sender = _begun(broker, payload, settled=True)
    sender.send_more(payload[3:])
    sender.peer.expect_nothing(Disposition)
    sender.peer.close()
    expect_left(broker, broker.queue(), b"settled at the beginning")


@scenario("2.6.14/several-transfers", "2.6.14-split", "2.7.5-01", "2.7.5-02", "2.7.5-03")
def several_transfers(broker: Broker) -> None:
    """A message over many transfers, the later ones without id, tag and format, is one message."""
    session = broker.session()
    sender = session.sender(broker.queue())
    body = bytes(range(256)) * 4
    sender.send(data(body), frame_octets=100)
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


@scenario("2.6.14/large", "2.6.14-split", "2.7.1-04")
def large(broker: Broker) -> None:
    """A message of 1 MiB passes both ways."""
    session = broker.session()
    sender = session.sender(broker.queue())
    body = bytes(range(256)) * 4096
    piece = min(session.peer.remote_max_frame_size, 60_000) - 100
    sender.send(data(body), frame_octets=piece)
    sender.expect_outcome()
    session.peer.close()
    expect_left(broker, broker.queue(), body)


@scenario("2.6.14/interleaved-links", "2.6.14-interleaved")
def interleaved_links(broker: Broker) -> None:
    """Messages of two links may be interleaved: each arrives whole."""
    session = broker.session()
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


@scenario("2.6.14/interleaved-on-a-link", "2.6.14-01", "2.7.5-same-id")
def interleaved_on_a_link(broker: Broker) -> None:
    """A second delivery on a link before the first is complete is an error."""
    sender = _begun(broker, data(b"first"))
    sender.send_more(data(b"second")[:4], delivery_id=1, delivery_tag=b"tag-1", message_format=0, more=True)
    _refused(broker, sender.session)


@scenario("2.6.14/aborted", "2.6.14-02", "2.7.5-15", "2.7.5-aborted")
def aborted(broker: Broker) -> None:
    """An aborted delivery is discarded and settled: no message, no outcome; the next one is fine."""
    sender = _begun(broker, data(b"aborted"))
    sender.send_more(data(b"aborted")[3:], aborted=True)
    sender.peer.expect_nothing(Disposition, within_s=0.2)
    sender.put([data(b"the next")])
    sender.peer.close()
    expect_left(broker, broker.queue(), b"the next")


@scenario("2.6.14/aborted-and-more", "2.7.5-aborted-precedence", "2.7.5-08")
def aborted_and_more(broker: Broker) -> None:
    """Where both aborted and more are set, aborted counts: the delivery is over."""
    sender = _begun(broker, data(b"aborted"))
    sender.send_more(aborted=True, more=True)
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


def _continued(broker: Broker, first: dict[str, Any], **later: Any) -> None:
    """A message of two transfers with these fields must be refused."""
    sender = _begun(broker, data(b"x"), **first)
    sender.send_more(data(b"x")[3:], **later)
    _refused(broker, sender.session)


@scenario("2.7.5/no-delivery-id", "2.7.5-01", "2.6.5-01")
def no_delivery_id(broker: Broker) -> None:
    """A first transfer of several without delivery-id is an error."""
    _continued(broker, {"delivery_id": None})


@scenario("2.7.5/no-delivery-tag", "2.7.5-02", "2.6.12-01")
def no_delivery_tag(broker: Broker) -> None:
    """A first transfer of several without delivery-tag is an error."""
    _continued(broker, {"delivery_tag": None})


@scenario("2.7.5/other-delivery-id", "2.7.5-same-id")
def other_delivery_id(broker: Broker) -> None:
    """A continuation with another delivery-id than the first transfer is an error."""
    _continued(broker, {}, delivery_id=7)


@scenario("2.7.5/other-delivery-tag", "2.7.5-same-tag")
def other_delivery_tag(broker: Broker) -> None:
    """A continuation with another delivery-tag than the first transfer is an error."""
    _continued(broker, {}, delivery_tag=b"another")


@scenario("2.7.5/other-message-format", "2.7.5-same-format")
def other_message_format(broker: Broker) -> None:
    """A continuation with another message-format than the first transfer is an error."""
    _continued(broker, {}, message_format=7)


@scenario("2.7.5/tag-of-32-octets", "2.8.7-tag", "2.7.5-unique")
def tag_of_32_octets(broker: Broker) -> None:
    """Delivery-tags of 1 and of 32 octets are tags."""
    sender = broker.session().sender(broker.queue())
    sender.send(data(b"long tag"), delivery_tag=b"t" * 32)
    sender.expect_outcome()
    sender.send(data(b"short tag"), delivery_tag=b"t")
    sender.expect_outcome()


@scenario("2.7.5/tag-of-33-octets", "2.8.7-tag")
def tag_of_33_octets(broker: Broker) -> None:
    """A delivery-tag of 33 octets is an error."""
    session = broker.session()
    sender = session.sender(broker.queue())
    sender.await_credit()
    performative = described(TRANSFER, list8(uint0(), uint0(), binary8(b"t" * 33), uint0()))
    session.peer.send_octets(frame(performative + data(b"x")), "transfer(delivery_tag=33 octets)")
    _refused(broker, session)


@scenario("2.6.12/wrapping-delivery-ids", "2.6.12-delivery-id", "2.8.10-serial")
def wrapping_delivery_ids(broker: Broker) -> None:
    """Delivery-ids begin anywhere and wrap at 2^32; outcomes name the right ones."""
    session = broker.session()
    session.next_delivery_id = 0xFFFF_FFFE
    sender = session.sender(broker.queue())
    for number in range(4):
        delivery_id = sender.send(data(b"%d" % number))
        sender.expect_outcome(delivery_id=delivery_id)


@scenario("2.7.5/batchable", "2.7.5-batchable")
def batchable(broker: Broker) -> None:
    """Deliveries hinted as batchable get their outcomes, too."""
    session = broker.session()
    sender = session.sender(broker.queue())
    numbers = [sender.send(data(b"%d" % number), batchable=True) for number in range(5)]
    for number in numbers:
        session.await_outcome(number)


@scenario("2.7.5/second-where-first", "2.7.5-mode-first", profile="full")
def second_where_first(broker: Broker) -> None:
    """On a link in rcv-settle-mode first a transfer may not ask for second: an error."""
    session = broker.session()
    sender = session.sender(broker.queue())
    assert sender.remote_attach is not None
    if sender.remote_attach.rcv_settle_mode != 0:
        raise NotApplicable("the broker's link is not in rcv-settle-mode first")
    sender.send(data(b"x"), rcv_settle_mode=1)
    _refused(broker, session)


@scenario(
    "2.6.12/second", "2.7.5-11", "2.8.3-second", "2.6.12-settle", "2.7.3-rcv-mode", "2.7.3-rcv-settle-mode"
)
def second(broker: Broker) -> None:
    """In rcv-settle-mode second the broker gives its outcome unsettled, and settles when we have."""
    session = broker.session()
    sender = session.put_sender(broker.queue(), rcv_settle_mode=1)
    sender.refusal_may_be("amqp:not-implemented")
    sender.expect_attach()
    assert sender.remote_attach is not None
    if sender.remote_attach.rcv_settle_mode != 1:
        raise NotApplicable("the broker as receiver settles first, and says so in its attach")
    sender.send(data(b"exactly once"))
    disposition = session.peer.expect(Disposition)
    if disposition.settled or not isinstance(disposition.state, Accepted):
        raise Unexpected(f"expected accepted and not settled, got {describe(disposition)}")
    session.put(Disposition(role=SENDER, first=0, settled=True, state=Accepted()))
    session.peer.close()
    expect_left(broker, broker.queue(), b"exactly once")


@scenario("2.6.12/sender-settles-early", "2.7.6-settled", "2.7.6-role")
def sender_settles_early(broker: Broker) -> None:
    """A sender may settle before an outcome came: the message is there all the same."""
    session = broker.session()
    sender = session.sender(broker.queue())
    sender.await_credit()
    with session.peer.one_write():
        sender.send(data(b"forgotten"), wait=False)
        session.put(Disposition(role=SENDER, first=0, settled=True))
    session.catch_up()
    session.peer.close()
    expect_left(broker, broker.queue(), b"forgotten")


@scenario("2.7.5/on-a-link-of-ours-to-receive", "2.7.5-handle", "2.8.15-not-allowed")
def on_a_receiving_link(broker: Broker) -> None:
    """A transfer on a link on which we receive is an error."""
    session = broker.session()
    session.receiver(broker.queue(), handle=0)
    first = Transfer(handle=0, delivery_id=0, delivery_tag=b"tag-0", message_format=0)
    session.put(first, data(b"the wrong way"))
    _refused(broker, session)
