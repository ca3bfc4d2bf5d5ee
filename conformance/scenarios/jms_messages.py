"""What JMS programs need of messages, their outcomes, and consumers (docs/protocols/jms.md)."""

import time
import uuid
from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Receiver, Session
from amqp_broker.conformance.jms import (
    DELAYED_DELIVERY,
    bodies_of,
    drained,
    expect_bodies,
    require_offered,
    selecting,
    selector,
    source,
)
from amqp_broker.conformance.messages import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    MESSAGE_ANNOTATIONS,
    bare_octets,
    data,
    header_of,
    map_of,
    section,
)
from amqp_broker.conformance.outcomes import NotApplicable, expect, expect_equal
from amqp_broker.conformance.queues import body_of, delivery_count, put, reader
from amqp_broker.conformance.scenario import Case, cases, scenario
from amqp_broker.conformance.transactions import Controller, post, within
from amqp_broker.frames import (
    Accepted,
    Byte,
    Double,
    Float,
    Header,
    Int,
    Long,
    Modified,
    Properties,
    Rejected,
    Released,
    Short,
    Symbol,
    Transfer,
    Ulong,
    encode_composite,
)
from amqp_broker.testing.peer import Delivery


def _properties(**fields: Any) -> bytes:
    return encode_composite(Properties(**fields))


def _through(broker: Broker, payload: bytes) -> bytes:
    """What comes of a message that is sent to a queue."""
    session = broker.session()
    session.sender(broker.queue()).put([payload])
    return session.receiver(broker.queue(), credit=1).receive().payload


@scenario("jms.message/annotations", "jms.message-annotations")
def annotations(broker: Broker) -> None:
    """The annotations of the mapping come with their values and types."""
    sent = {"x-opt-jms-msg-type": Byte(5), "x-opt-jms-dest": Byte(0), "x-opt-jms-reply-to": Byte(1)}
    told = section(MESSAGE_ANNOTATIONS, {Symbol(key): value for key, value in sent.items()})
    got = map_of(_through(broker, told + section(AMQP_VALUE, "text")), MESSAGE_ANNOTATIONS)
    expect_equal("the annotations of JMS", sent, {key: got.get(key) for key in sent})


_PROGRAM = {
    "z": True, "b": Byte(-1), "s": Short(-2), "i": Int(-3), "l": Long(-4), "f": Float(0.5),
    "d": Double(0.25), "t": "text",
}  # fmt: skip


@cases(
    Case("jms.message/text", "jms.message-bodies", "The text of a TextMessage comes as it was sent.",
         section(AMQP_VALUE, "gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n")),
    Case("jms.message/octets", "jms.message-bodies", "Octets come with their content-type.",
         _properties(content_type="application/octet-stream"), data(bytes(range(256)))),
    Case("jms.message/object", "jms.message-bodies", "A serialized object comes with its content-type.",
         _properties(content_type="application/x-java-serialized-object"), data(b"\xac\xed\x00\x05")),
    Case("jms.message/map", "jms.message-bodies", "The entries of a MapMessage come with their types.",
         section(AMQP_VALUE, {"b": Byte(1), "l": Long(2), "d": Double(0.5), "o": b"\x01", "t": True})),
    Case("jms.message/stream", "jms.message-bodies", "The values of a StreamMessage come in their order.",
         section(AMQP_SEQUENCE, [Short(1), "two", b"3", False, Float(4.0)])),
    Case("jms.message/nothing", "jms.message-bodies", "A message without a content comes as one without.",
         section(AMQP_VALUE, None)),
    Case("jms.message/types", "jms.message-types", "The properties of a program come with their types.",
         section(APPLICATION_PROPERTIES, _PROGRAM), data(b"x")),
    Case("jms.message/identifiers", "jms.message-identifiers", "Identifiers keep their types.",
         _properties(message_id=Ulong(7), correlation_id=uuid.UUID(int=7)), data(b"x")),
    Case("jms.message/fields", "jms.message-identifiers", "The fields that JMS reads come as they were sent.",
         _properties(message_id=b"\x01", correlation_id="ID:2", subject="t", group_id="g", group_sequence=3,
                     creation_time=1_700_000_000_000, user_id=b"who", reply_to="there"), data(b"x")),
)
def _as_sent(broker: Broker, *sections: bytes) -> None:
    sent = b"".join(sections)
    expect_equal("the bare message", sent, bare_octets(_through(broker, sent)))


@scenario("jms.message/header", "jms.message-header")
def header(broker: Broker, session: Session) -> None:
    """Whether a message is durable, and its priority, come as they were sent."""
    told = [(True, 7), (False, 1)]
    headers = [Header(durable=durable, priority=rank) for durable, rank in told]
    session.sender(broker.queue()).put(encode_composite(each) + data(b"x") for each in headers)
    got = [header_of(each.payload) for each in session.receiver(broker.queue(), credit=2).take(2)]
    expect_equal("durable and priority", told, [(bool(each.durable), each.priority) for each in got])


@scenario("jms.message/priority", "jms.message-priority")
def priority(broker: Broker, session: Session) -> None:
    """Of six messages that wait the urgent ones come first, those of one priority in their order."""
    address = broker.queue(kind="urgent")
    sent = [(4, b"1"), (0, b"2"), (9, b"3"), (4, b"4"), (9, b"5"), (0, b"6")]
    link = session.sender(address)
    link.put(encode_composite(Header(priority=rank)) + data(body) for rank, body in sent)
    receiver = session.receiver(address, credit=6)
    got = bodies_of(receiver.take(6))
    if got == [body for _, body in sent]:
        raise NotApplicable("all messages are of one priority here (see second_broker.toml)")
    expect_equal("the order", [b"3", b"5", b"1", b"4", b"2", b"6"], got)


def _due(in_s: float, body: bytes) -> bytes:
    at = int((time.time() + in_s) * 1000)
    return section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-delivery-time"): Long(at)}) + data(body)


@scenario("jms.message/delay", "jms.message-delay", waits=True)
def delay(broker: Broker, session: Session) -> None:
    """A message with a time of delivery comes then, after one that was sent later (by clocks that agree)."""
    require_offered(session, DELAYED_DELIVERY)
    receiver = session.receiver(broker.queue(), credit=3)
    session.sender(broker.queue()).put([_due(1.5, b"delayed"), data(b"at once")])
    expect_equal("the first", b"at once", body_of(receiver.receive()))
    session.peer.expect_nothing(Transfer, within_s=0.7)
    expect_equal("the second", b"delayed", body_of(receiver.receive()))


@scenario("jms.message/delay-past", "jms.message-delay-past")
def delay_past(broker: Broker, session: Session) -> None:
    """A time of delivery of a minute ago delays nothing."""
    require_offered(session, DELAYED_DELIVERY)
    session.sender(broker.queue()).put([_due(-60, b"1"), data(b"2")])
    expect_bodies(session.receiver(broker.queue()), b"1", b"2")


@scenario("jms.message/ttl", "jms.message-ttl", waits=True)
def ttl(broker: Broker, session: Session) -> None:
    """Of two messages that wait the one whose ttl is over does not come."""
    short = encode_composite(Header(ttl=200)) + data(b"too late")
    session.sender(broker.queue()).put([short, data(b"in time")])
    time.sleep(1.0)
    expect_bodies(session.receiver(broker.queue()), b"in time")


FAILED = Modified(delivery_failed=True)


def _waiting(broker: Broker, *bodies: bytes) -> tuple[Receiver, list[Delivery]]:
    """A consumer that has all but the last of these messages, unsettled and for the first time."""
    put(broker, broker.queue(), *bodies)
    receiver = reader(broker, broker.queue(), len(bodies) - 1)
    deliveries = receiver.take(len(bodies) - 1)
    for each in deliveries:
        expect_equal("delivery-count of a first delivery", 0, delivery_count(each))
    return receiver, deliveries


@cases(
    Case("jms.redelivery/recovered", "jms.redelivery-first jms.redelivery-recovered jms.redelivery-order",
         "What a session recovers comes again, in its place, counted once more each time.", FAILED, 1, 2),
    Case("jms.redelivery/released", "jms.redelivery-first jms.redelivery-released jms.redelivery-order",
         "What a consumer gives back unused comes again, in its place, and counts nothing.",
         Released(), 0, 0),
)
def _comes_again(broker: Broker, outcome: Any, *counts: int) -> None:
    receiver, deliveries = _waiting(broker, b"1", b"2", b"3")
    for count in counts:
        receiver.settle(deliveries, outcome)
        receiver.flow(2)
        deliveries = receiver.take(2)
        expect_equal("what comes next", [b"1", b"2"], bodies_of(deliveries))
        expect_equal("delivery-counts", [count] * 2, [delivery_count(each) for each in deliveries])


@cases(
    Case("jms.redelivery/undeliverable-here", "jms.redelivery-undeliverable",
         "What a program says it can never handle does not come to it again.",
         Modified(delivery_failed=True, undeliverable_here=True)),
    Case("jms.redelivery/rejected", "jms.redelivery-rejected",
         "What was rejected comes to nobody again.", Rejected(), others=False),
)
def _not_again(broker: Broker, outcome: Any, others: bool = True) -> None:
    receiver, deliveries = _waiting(broker, b"poison", b"good")
    receiver.settle(deliveries, outcome)
    expect_bodies(receiver, b"good")
    if not others:
        expect_bodies(reader(broker, broker.queue()))


@scenario("jms.redelivery/lost", "jms.redelivery-lost")
def lost(broker: Broker) -> None:
    """Messages whose consumer's connection broke come to another, in their order."""
    receiver, _ = _waiting(broker, b"1", b"2", b"3")
    other = reader(broker, broker.queue(), 3)
    expect_equal("what waits", b"3", body_of(other.receive()))
    receiver.peer.drop()
    expect_equal("what was lost", [b"1", b"2"], bodies_of(other.take(2)))


@scenario("jms.redelivery/transacted", "jms.redelivery-transacted")
def transacted(broker: Broker) -> None:
    """A session that is rolled back has sent nothing and handled nothing; committed, it has done both."""
    put(broker, broker.queue("in"), b"work")
    control = Controller(broker)
    session = control.session
    consumer = source(session, broker.queue("in"))
    producer = session.sender(broker.queue("out"))
    for end in (control.roll_back, control.commit):
        txn = control.declare()
        consumer.flow(1)
        delivery = consumer.receive()
        (number,) = post(producer, txn, b"result")
        session.await_outcome(number)
        consumer.settle(delivery, within(txn, Accepted()), settled=False)
        end(txn)
        if end == control.roll_back and delivery.delivery_id not in session.settlements:
            consumer.settle(delivery, FAILED)
    expect_bodies(reader(broker, broker.queue("out")), b"result")
    expect_bodies(reader(broker, broker.queue("in")))


@scenario("jms.consumer/no-credit", "jms.consumer-no-credit")
def no_credit(broker: Broker) -> None:
    """A consumer whose connection was not started gets nothing; one that asks for one message gets one."""
    put(broker, broker.queue(), b"1", b"2", b"3")
    receiver = reader(broker, broker.queue())
    receiver.peer.expect_nothing(Transfer)
    receiver.flow(1)
    receiver.settle(receiver.receive())
    receiver.peer.expect_nothing(Transfer)
    expect_bodies(receiver, b"2", b"3")


@scenario("jms.consumer/drain", "jms.consumer-drain")
def drain(broker: Broker) -> None:
    """A drain is answered at once where nothing is there, and brings what is there."""
    receiver = reader(broker, broker.queue())
    expect_equal("an empty queue", [], drained(receiver, 1))
    put(broker, broker.queue(), b"1", b"2")
    expect_equal("one of two", [b"1"], bodies_of(drained(receiver, 1)))


def _browser(broker: Broker, **fields: Any) -> Receiver:
    """A link that is shown four messages of a queue, two of them red."""
    colours = ({"colour": each} for each in ("red", "blue", "red", "blue"))
    told = [section(APPLICATION_PROPERTIES, each) for each in colours]
    session = broker.session(container="browser")
    session.sender(broker.queue()).put(each + data(b"%d" % at) for at, each in enumerate(told))
    if fields:
        link = selecting(session, broker.queue(), fields["filter"], distribution_mode="copy")
    else:
        link = source(session, broker.queue(), distribution_mode="copy")
    mode = getattr(link.attach.source, "distribution_mode", None)
    if mode != "copy":
        raise NotApplicable(f"the broker's source has the distribution-mode {mode!r} where copy was wished")
    return link


@scenario("jms.consumer/browser", "jms.consumer-browser", "jms.consumer-browser-end")
def browser(broker: Broker) -> None:
    """Two browsers are shown four messages, in order, and the end; then a consumer gets all of them."""
    four = [b"0", b"1", b"2", b"3"]
    first = _browser(broker)
    second = source(first.session, broker.queue(), distribution_mode="copy")
    for link in (first, second):
        expect_equal("what is shown", four, bodies_of(drained(link)))
    expect_bodies(reader(broker, broker.queue()), *four)


@scenario("jms.consumer/browser-selector", "jms.consumer-browser-selector")
def browser_selector(broker: Broker) -> None:
    """A browser with a selector is shown what matches, and the end."""
    link = _browser(broker, filter=selector("colour = 'red'"))
    found = drained(link)
    expect(bodies_of(found) == [b"0", b"2"], f"expected 0 and 2, got {bodies_of(found)}")
