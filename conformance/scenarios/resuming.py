"""Links that are resumed after their connection broke: exactly once (2.6.12, 2.6.13, 3.4.6).

A broker shows nothing here unless it says that the terminus outlives its link (3.5.3, 3.5.4).
"""

from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Receiver, Sender
from amqp_broker.conformance.messages import data
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, expect
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transcript import describe
from amqp_broker.frames import (
    SENDER,
    Accepted,
    Disposition,
    Flow,
    Released,
    Source,
    Target,
    Transfer,
)
from amqp_broker.testing.peer import Delivery

PROFILE = "exactly-once"
SECOND = 1
LASTING: dict[str, Any] = {"expiry_policy": "connection-close", "timeout": 60}
SMALL_FRAMES = {"max_frame_size": 512}


def _sender(broker: Broker, **fields: Any) -> Sender:
    """A link in mode second, on a connection of its own, whose target outlives it."""
    opening = {"container": "", **fields.pop("opening", {})}
    link = broker.session(**opening).put_sender(
        broker.queue(), name="resumed", rcv_settle_mode=SECOND,
        target=Target(address=broker.queue(), **LASTING), **fields,
    )  # fmt: skip
    _attached(link)
    return link


def _receiver(broker: Broker, credit: int = 10, **fields: Any) -> Receiver:
    """A link in mode second, on a connection of its own, whose source outlives it."""
    opening = {"container": "", **fields.pop("opening", {})}
    link = broker.session(**opening).put_receiver(
        broker.queue(), name="resumed", rcv_settle_mode=SECOND,
        source=Source(address=broker.queue(), **LASTING), **fields,
    )  # fmt: skip
    _attached(link)
    link.flow(credit)
    return link


def _attached(link: Sender | Receiver) -> None:
    link.expect_attach(or_end="amqp:not-implemented")
    terminus = link.remote_terminus
    if not terminus.timeout and terminus.expiry_policy not in ("connection-close", "never"):
        raise NotApplicable("the broker's terminus does not outlive its link")
    if link.attach.rcv_settle_mode != SECOND:
        raise NotApplicable("the broker does not settle second")


def _map_of(link: Sender | Receiver) -> dict[Any, Any]:
    """The broker's unsettled map."""
    unsettled = link.attach.unsettled
    expect(unsettled is not None, f"2.7.3: resumed without an unsettled map: {describe(link.attach)}")
    assert unsettled is not None
    expect(None not in unsettled, "2.7.3: the unsettled map has a key that is null")
    return unsettled


def _taken(broker: Broker, *tags: bytes) -> None:
    """These were sent and have an outcome; the connection broke before they were settled."""
    link = _sender(broker)
    for tag in tags:
        number = link.send(data(tag), delivery_tag=tag)
        disposition = link.session.await_outcome(number, skip=(Flow,))
        expect(not disposition.settled, f"2.8.3: settled before the sender has: {describe(disposition)}")
    link.peer.drop()


def _received(broker: Broker, *messages: bytes) -> list[Delivery]:
    """These were received; the connection broke before anything was said of them."""
    broker.session(container="producer").sender(broker.queue()).put([data(each) for each in messages])
    link = _receiver(broker)
    deliveries = link.take(len(messages))
    link.peer.drop()
    return deliveries


def _transfer(link: Receiver) -> Transfer:
    transfer: Transfer = link.peer.expect_frame(Transfer, skip=(Flow, Disposition)).performative
    return transfer


@scenario("2.6.13/taken-once", "2.7.3-03", "2.7.3-05", "3.4.6-08", profile=PROFILE)
def taken_once(broker: Broker) -> None:
    """What was sent before the connection broke has its outcome in the map, and makes one message."""
    _taken(broker, b"one", b"two")
    link = _sender(broker, unsettled={b"one": None, b"two": None, b"lost": None})
    unsettled = _map_of(link)
    expect(unsettled == {b"one": Accepted(), b"two": Accepted()}, f"expected accepted twice, got {unsettled}")
    for tag in (b"one", b"two"):
        link.send(b"", delivery_tag=tag, resume=True, settled=True, state=Accepted())
    number = link.send(data(b"lost"), delivery_tag=b"lost")
    link.session.await_outcome(number, skip=(Flow,))
    reader = broker.session(container="reader").receiver(broker.queue(), credit=3)
    reader.take(3)
    reader.expect_empty()


@scenario("2.6.13/only-the-target", "2.6.13-02", profile=PROFILE)
def only_the_target(broker: Broker) -> None:
    """What the sender does not know any more is settled: its delivery-tag can be used again."""
    _taken(broker, b"tag")
    link = _sender(broker, unsettled={})
    number = link.send(data(b"another"), delivery_tag=b"tag")
    link.session.await_outcome(number, skip=(Flow,))
    broker.session(container="reader").receiver(broker.queue(), credit=2).take(2)


@scenario("3.4.6/restated", "3.4.6-13", profile=PROFILE)
def restated(broker: Broker) -> None:
    """An outcome of the sender that differs is echoed and settled."""
    _taken(broker, b"tag")
    link = _sender(broker, unsettled={b"tag": Released()})
    number = link.send(b"", delivery_tag=b"tag", resume=True, state=Released())
    disposition = link.session.await_outcome(number, skip=(Flow,))
    right = disposition.settled and isinstance(disposition.state, Released)
    expect(right, f"expected a settled released, got {describe(disposition)}")


@scenario("2.7.3/incomplete-map", "2.7.3-04", "2.7.3-07", profile=PROFILE)
def incomplete_map(broker: Broker) -> None:
    """A map for which a frame has no room is incomplete; then only deliveries that are resumed may come."""
    tags = [b"%028d" % number for number in range(40)]
    _taken(broker, *tags)
    link = _sender(broker, unsettled=dict.fromkeys(tags), opening=SMALL_FRAMES)
    unsettled = _map_of(link)
    expect(link.attach.incomplete_unsettled, f"40 tags of 28 octets in 512: {describe(link.attach)}")
    for tag in unsettled:
        link.send(b"", delivery_tag=tag, resume=True, settled=True)
    link.send(data(b"new"), delivery_tag=b"new")
    link.expect_detach(skip=(Flow, Disposition))
    rest = dict.fromkeys(tag for tag in tags if tag not in unsettled)
    again = _map_of(_sender(broker, unsettled=rest, opening={"max_frame_size": 65_536}))
    expect(set(again) == set(rest), f"expected the other {len(rest)} tags, got {len(again)}")


@scenario(
    "2.6.13/resumed", "2.6.13-03", "2.6.13-06", "3.4.6-06", "3.4.6-07", "3.4.6-11", "2.7.5-13",
    profile=PROFILE,
)  # fmt: skip
def resumed(broker: Broker) -> None:
    """What both have unsettled is resumed with its tag, and nobody else got it meanwhile."""
    first, second = _received(broker, b"one", b"two")
    other = broker.session(container="other").receiver(broker.queue())
    other.expect_empty()
    other.detach()
    tags = [first.delivery_tag, second.delivery_tag]
    link = _receiver(broker, unsettled=dict.fromkeys([*tags, b"never sent"]))
    unsettled = _map_of(link)
    expect(unsettled == dict.fromkeys(tags), f"expected both tags with null, got {unsettled}")
    for former in (first, second):
        delivery = link.receive(skip=(Flow,))
        transfer = delivery.transfer
        expect(bool(transfer.resume), f"2.6.13: not marked as resumed: {describe(transfer)}")
        same = (delivery.delivery_tag, delivery.payload) == (former.delivery_tag, former.payload)
        expect(same, f"expected the same message with its tag, got {describe(transfer)}")
    link.peer.expect_nothing(Transfer)


@scenario("3.4.6/outcome-applied", "3.4.6-04", "3.4.6-05", "3.4.6-12", profile=PROFILE)
def outcome_applied(broker: Broker) -> None:
    """An outcome to which the receiver came is applied, told on a resumed transfer, and settled."""
    (former,) = _received(broker, b"one")
    link = _receiver(broker, unsettled={former.delivery_tag: Accepted()})
    _map_of(link)
    transfer = _transfer(link)
    right = transfer.resume and transfer.delivery_tag == former.delivery_tag
    expect(bool(right), f"expected a resumed transfer, got {describe(transfer)}")
    expect(transfer.state == Accepted(), f"3.4.6: the state is not told: {describe(transfer)}")
    if not transfer.settled:
        settled = link.peer.expect_frame(Disposition).performative
        expect(settled.role == SENDER and settled.settled, f"expected settlement, got {describe(settled)}")
    link.peer.drop()
    broker.session(container="reader").receiver(broker.queue()).expect_empty()


@scenario("3.4.6/sent-anew", "3.4.6-02", profile=PROFILE)
def sent_anew(broker: Broker) -> None:
    """What the receiver has not got is sent again, as a new delivery."""
    _received(broker, b"one")
    link = _receiver(broker, unsettled={})
    delivery = link.receive(skip=(Flow,))
    expect(not delivery.transfer.resume, f"expected a new delivery, got {describe(delivery.transfer)}")
    link.settle([delivery], Accepted(), settled=False)


@scenario("2.7.5/resumed-in-pieces", "2.7.5-14", profile=PROFILE)
def resumed_in_pieces(broker: Broker) -> None:
    """A message that needs several transfers has the flag on its first one."""
    (former,) = _received(broker, b"x" * 2_000)
    link = _receiver(broker, unsettled={former.delivery_tag: None}, opening=SMALL_FRAMES)
    delivery = link.receive(skip=(Flow,))
    expect(delivery.frames > 1, "expected several transfers of at most 512 octets")
    expect(bool(delivery.transfer.resume), f"not marked as resumed: {describe(delivery.transfer)}")
    expect(delivery.payload == former.payload, "the message is not what it was")


@scenario("2.6.13/incomplete-at-the-receiver", "2.6.13-04", "2.7.3-07", profile=PROFILE)
def incomplete_at_the_receiver(broker: Broker) -> None:
    """The receiver's map is incomplete: what it has is resumed, nothing new is sent, nothing is forgotten."""
    first, second = _received(broker, b"one", b"two")
    broker.session(container="another-producer").sender(broker.queue()).put([data(b"new")])
    link = _receiver(broker, unsettled={first.delivery_tag: None}, incomplete_unsettled=True)
    delivery = link.receive(skip=(Flow,))
    expect(delivery.delivery_tag == first.delivery_tag, f"expected a resumed one, got {delivery.transfer}")
    link.peer.expect_nothing(Transfer)
    link.peer.drop()
    link = _receiver(broker, unsettled={first.delivery_tag: None, second.delivery_tag: None})
    tags = {each.delivery_tag for each in link.take(2)}
    if tags != {first.delivery_tag, second.delivery_tag}:
        raise Unexpected("what an incomplete map left out is not resumed later")
