"""Messages: their sections, the bare message, the header and its effects (3.2)."""

import time
import uuid

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Receiver, Sender, Session
from amqp_broker.conformance.messages import (
    AMQP_SEQUENCE,
    AMQP_VALUE,
    APPLICATION_PROPERTIES,
    BARE,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    bare_octets,
    data,
    header_of,
    map_of,
    properties_of,
    section,
    split_sections,
)
from amqp_broker.conformance.octets import described, described_symbol, list32, map32, string32, uint
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, error_of, expect, expect_state
from amqp_broker.conformance.scenario import Case, cases, scenario
from amqp_broker.conformance.transcript import describe
from amqp_broker.frames import (
    Accepted,
    Close,
    Detach,
    Disposition,
    End,
    Header,
    Properties,
    Rejected,
    Released,
    Symbol,
    Ulong,
    encode_composite,
)
from amqp_broker.testing.peer import Delivery


def _through(broker: Broker, payload: bytes) -> tuple[Receiver, Delivery]:
    """Sends a message to a queue and receives it from there."""
    session = broker.session()
    session.sender(broker.queue()).put([payload])
    receiver = session.receiver(broker.queue(), credit=1)
    return receiver, receiver.receive()


def _put_durable(sender: Sender, payload: bytes) -> None:
    """Puts a durable message; the scenario shows nothing where the broker takes none, and says so as 3.2.1
    wants: rejected, or the link detached where that outcome is not offered, with precondition-failed.
    """
    sender.send(payload)
    answer = sender.peer.expect_frame(Disposition, Detach).performative
    said = answer if isinstance(answer, Detach) else answer.state
    if isinstance(said, (Detach, Rejected)):
        error_of(said, "amqp:precondition-failed")
        raise NotApplicable("the broker does not take durable messages, and says so")
    expect_state(said, Accepted)


@cases(
    Case("3.2/data", "3.2-01 3.2-immutable 3.2-body",
         "A body of one data section comes octet for octet.",
         data(bytes(range(256)))),
    Case("3.2/several-data", "3.2-01 3.2-body 3.2-immutable",
         "A body of several data sections stays several, octet for octet.",
         data(b"one") + data(b"") + data(b"three" * 100)),
    Case("3.2/several-sequences", "3.2-01 3.2-body 3.2-immutable",
         "A body of several amqp-sequence sections comes octet for octet.",
         section(AMQP_SEQUENCE, [1, "two", b"3"]) + section(AMQP_SEQUENCE, [])),
    Case("3.2/value", "3.2-01 3.2-body 3.2-immutable",
         "A body of an amqp-value section comes octet for octet; null is a value, too.",
         section(AMQP_VALUE, {"key": [1, 2.5, None]})),
    Case("3.2/value-null", "3.2-01 3.2-body",
         "A body whose value is null comes octet for octet.",
         section(AMQP_VALUE, None)),
)
def _unchanged(broker: Broker, payload: bytes) -> Delivery:
    """Sends a message; raises Unexpected unless its bare message comes octet for octet."""
    _, delivery = _through(broker, payload)
    got, sent = bare_octets(delivery.payload), bare_octets(payload)
    expect(got == sent, f"the bare message was {sent[:60].hex()}, it came as {got[:60].hex()}")
    return delivery


@scenario("3.2/all-sections", "3.2-01", "3.2-order", "3.2-immutable")
def all_sections(broker: Broker) -> None:
    """A message with every section comes with its bare message octet for octet, in order."""
    payload = (
        encode_composite(Header(durable=False, priority=4))
        + section(DELIVERY_ANNOTATIONS, {Symbol("x-opt-delivery"): 1})
        + section(MESSAGE_ANNOTATIONS, {Symbol("x-opt-message"): 2})
        + encode_composite(Properties(message_id="m-1", subject="all sections"))
        + section(APPLICATION_PROPERTIES, {"a": 1, "b": "two"})
        + data(b"body")
        + section(FOOTER, {Symbol("x-opt-footer"): 3})
    )
    delivery = _unchanged(broker, payload)
    codes = [code for code, _ in split_sections(delivery.payload)]
    expect(codes == sorted(codes), f"the sections came in the order {[hex(code) for code in codes]}")


@scenario("3.2/other-encodings", "3.2-01", "3.2-immutable")
def other_encodings(broker: Broker) -> None:
    """Properties in encodings longer than needed come in these: nothing is encoded again."""
    properties = described(
        PROPERTIES, list32(string32("id"), b"\x40", string32("to"), string32("subject"), b"\x40")
    )
    application = described(APPLICATION_PROPERTIES, map32(string32("key"), uint(7)))
    body = described_symbol("amqp:data:binary", b"\xb0\x00\x00\x00\x04body")
    _, delivery = _through(broker, properties + application + body)
    if properties + application + body not in delivery.payload:
        raise Unexpected(f"the bare message came in other octets: {delivery.payload[:120].hex()}")


@scenario("3.2/map-order", "1.6.23-02", "3.2-01")
def map_order(broker: Broker) -> None:
    """The order of a map's entries is kept: application-properties come as they were sent."""
    entries = {f"key-{number}": number for number in (3, 1, 2, 9, 0)}
    delivery = _unchanged(broker, section(APPLICATION_PROPERTIES, entries) + data(b"x"))
    if list(map_of(delivery.payload, APPLICATION_PROPERTIES)) != list(entries):
        raise Unexpected("the entries came in another order")


@scenario("3.2/nothing-inserted", "3.2-inserted", "3.2-immutable")
def nothing_inserted(broker: Broker) -> None:
    """Sections that are not there are not put in."""
    delivery = _unchanged(broker, data(b"only a body"))
    bare = [code for code, _ in split_sections(delivery.payload) if code in BARE]
    expect(bare == [DATA], f"sections of the bare message: {[hex(code) for code in bare]}")


@scenario("3.2/footer", "3.2-order")
def footer(broker: Broker) -> None:
    """A footer comes with its message."""
    _, delivery = _through(broker, data(b"x") + section(FOOTER, {Symbol("x-opt-sum"): b"\x01\x02"}))
    if map_of(delivery.payload, FOOTER) != {"x-opt-sum": b"\x01\x02"}:
        raise Unexpected("the footer did not come, or came changed")


@scenario("3.2.4/message-ids", "3.2-01", "3.2.4-01")
def message_ids(broker: Broker, session: Session) -> None:
    """A message-id may be a ulong, a uuid, octets or a string: it comes as it was."""
    ids = (Ulong(2**63), uuid.UUID(int=5), b"octets", "text")
    sender = session.sender(broker.queue())
    sender.put(encode_composite(Properties(message_id=one, correlation_id=one)) + data(b"x") for one in ids)
    receiver = session.receiver(broker.queue(), credit=len(ids))
    for one in ids:
        properties = properties_of(receiver.receive().payload)
        if properties is None or properties.message_id != one or properties.correlation_id != one:
            raise Unexpected(f"expected the message-id {one!r}, got {properties!r}")


@scenario("3.2.4/properties", "3.2.4-01", "3.2-01")
def properties(broker: Broker) -> None:
    """All properties of a message come octet for octet."""
    user = broker.settings.address.user
    every = Properties(
        message_id="id",
        user_id=None if user is None else user.encode(),
        to="to",
        subject="subject",
        reply_to="reply",
        correlation_id="other",
        content_type="text/plain",
        content_encoding="gzip",
        absolute_expiry_time=4102444800000,
        creation_time=1311704463521,
        group_id="group",
        group_sequence=7,
        reply_to_group_id="replies",
    )
    _unchanged(broker, encode_composite(every) + data(b"x"))


@scenario("3.2.1/no-header", "3.2.1-01", "3.2.1-first-delivery")
def no_header(broker: Broker) -> None:
    """Without a header the defaults hold: not durable, priority 4, no ttl, first delivery."""
    _, delivery = _through(broker, data(b"bare"))
    header = header_of(delivery.payload)
    if header.durable or header.priority not in (None, 4) or header.ttl is not None or header.delivery_count:
        raise Unexpected(f"expected the defaults, got {describe(header)}")


@scenario("3.2.1/header-kept", "3.2-header-once")
def header_kept(broker: Broker) -> None:
    """Durable and priority of a header come with the message."""
    session = broker.session()
    payload = encode_composite(Header(durable=True, priority=7)) + data(b"x")
    _put_durable(session.sender(broker.queue()), payload)
    delivery = session.receiver(broker.queue(), credit=1).receive()
    header = header_of(delivery.payload)
    if header.durable is not True or header.priority != 7:
        raise Unexpected(f"expected durable and priority 7, got {describe(header)}")
    if sum(code == HEADER for code, _ in split_sections(delivery.payload)) != 1:
        raise Unexpected("the message came with two headers")


@scenario("3.2.1/durable-accepted", "3.2.1-03")
def durable_accepted(broker: Broker, session: Session) -> None:
    """A durable message is accepted, or refused with precondition-failed; never lost in silence."""
    sender = session.sender(broker.queue())
    _put_durable(sender, encode_composite(Header(durable=True)) + data(b"durable"))


@scenario("3.2.1/ttl-reduced", "3.2.1-10", "3.2.1-expiry")
def ttl_reduced(broker: Broker, session: Session) -> None:
    """A message that has waited comes with a ttl reduced by the time that it waited."""
    session.sender(broker.queue()).put([encode_composite(Header(ttl=60_000)) + data(b"x")])
    time.sleep(0.3)
    delivery = session.receiver(broker.queue(), credit=1).receive()
    ttl = header_of(delivery.payload).ttl
    if ttl is None or not 50_000 <= ttl <= 59_750:
        raise Unexpected(f"expected a ttl of about 59,700 ms after 300 ms, got {ttl}")


@scenario("3.2.1/expired", "3.2.1-discarded", "3.2.1-expiry", waits=True)
def expired(broker: Broker, session: Session) -> None:
    """A message whose ttl is over is not delivered; one after it is."""
    short = encode_composite(Header(ttl=100)) + data(b"too late")
    session.sender(broker.queue()).put([short, data(b"in time")])
    time.sleep(1.0)
    delivery = session.receiver(broker.queue(), credit=1).receive()
    expect(delivery.payload.endswith(b"in time"), "a message came after its ttl was over")


@scenario("3.2.1/first-acquirer", "3.2.1-first-acquirer", "3.2.1-acquired-before")
def first_acquirer(broker: Broker) -> None:
    """Where the broker says first-acquirer on the first delivery, it does not after a release."""
    receiver, delivery = _through(broker, data(b"x"))
    said = header_of(delivery.payload).first_acquirer is True
    receiver.settle(delivery, Released())
    receiver.flow(1)
    if header_of(receiver.receive().payload).first_acquirer is True:
        raise Unexpected("a message that was released comes as if it had never been acquired")
    if not said:
        raise NotApplicable("the broker never says first-acquirer, and need not")


@scenario("3.2.3/annotations-propagate", "3.2.3-01", "3.2.3-02", "3.2.10-x-opt", "1.6.23-01")
def annotations_propagate(broker: Broker) -> None:
    """Message annotations go with the message, also those that nobody knows, if they begin with x-opt-."""
    annotations = {Symbol("x-opt-one"): "1", Symbol("x-opt-two"): 2}
    _, delivery = _through(broker, section(MESSAGE_ANNOTATIONS, annotations) + data(b"x"))
    got = map_of(delivery.payload, MESSAGE_ANNOTATIONS)
    expect(got.get("x-opt-one") == "1" and "x-opt-two" in got, f"expected both annotations, got {got}")


@scenario("3.2.3/no-annotations", "3.2.3-omitted")
def no_annotations(broker: Broker) -> None:
    """Without message annotations, or with none in them, the message comes all the same."""
    _through(broker, section(MESSAGE_ANNOTATIONS, {}) + data(b"x"))


@scenario("3.2.10/unknown-annotation", "3.2.10-01", profile="full")
def unknown_annotation(broker: Broker, session: Session) -> None:
    """An annotation that nobody knows and that is no x-opt- one: detach with not-implemented."""
    sender = session.sender(broker.queue())
    sender.send(section(MESSAGE_ANNOTATIONS, {Symbol("nobody-knows-this"): 1}) + data(b"x"))
    answer = session.peer.expect_frame(Disposition, Detach, End, Close).performative
    if isinstance(answer, Disposition):
        raise Unexpected(f"expected detach with amqp:not-implemented, got {describe(answer)}")
    error_of(answer, "amqp:not-implemented")


NOT_SIMPLE = (
    (b"\xa3\x03key", b"\x41"),
    (string32("key"), b"\x45"),
    (string32("key"), map32()),
    (string32("key"), b"\xe0\x03\x01\x50\x07"),
    (b"\x40", b"\x41"),
)
"""Entries that application-properties may not have."""


@cases(
    Case("3.2.4/field-types", "3.2.4-types 2.8.15-decode-error",
         "Properties whose fields are of other types than declared, or more of them, are refused.",
         described(PROPERTIES, list32(b"\x41")) + data(b"a message-id that is a boolean"),
         described(PROPERTIES, list32(*[b"\x40"] * 14)) + data(b"fourteen fields"),
         described(PROPERTIES, list32(b"\x40", string32("user"))) + data(b"no binary"),
         profile="full"),
    Case("3.2.5/keys-and-values", "3.2.5-simple",
         "Application-properties with a symbol as key, or with a list, a map or an array, are refused.",
         *[described(APPLICATION_PROPERTIES, map32(*entries)) + data(b"x") for entries in NOT_SIMPLE],
         profile="full"),
    Case("3.2.10/keys", "3.2.10-keys",
         "Annotations of each kind with a string as key are refused.",
         *[described(code, map32(string32("x-opt-key"), b"\x41")) + data(b"x")
           for code in (DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS)],
         data(b"x") + described(FOOTER, map32(string32("x-opt-key"), b"\x41")),
         profile="full"),
    Case("3.2.10/counts", "3.2.10-keys 2.8.15-decode-error",
         "Annotations whose count is odd, or is more than their octets can hold, are refused, and never "
         "meet a consumer.",
         *[described(MESSAGE_ANNOTATIONS, b"\xd1\x00\x00\x00\x05" + count + b"\x41") + data(b"x")
           for count in (b"\x00\x00\x00\x01", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff")],
         profile="full"),
    Case("3.2/sections-out-of-order", "3.2-order",
         "A header after the body is no message of this format: it is refused.",
         data(b"x") + encode_composite(Header(durable=True)), profile="full"),
    Case("3.2/two-headers", "3.2-header-once",
         "Two headers are no message of this format: refused.",
         encode_composite(Header()) * 2 + data(b"x"), profile="full"),
    Case("3.2/mixed-bodies", "3.2-body",
         "A data section and an amqp-value section are no body: refused.",
         data(b"x") + section(AMQP_VALUE, 1), profile="full"),
    Case("3.2/cut-section", "2.8.15-decode-error 3.2-order",
         "A section that ends before it is complete is no message: refused.",
         described(DATA, b"\xb0\x00\x00\x01\x00only a part"), profile="full"),
)
def _invalid(broker: Broker, *payloads: bytes) -> None:
    """Sends what is no message; expects that it is rejected, or an error, and never delivered."""
    for number, payload in enumerate(payloads):
        session = broker.session(container=f"sender-{number}")
        session.sender(broker.queue()).send(payload)
        answer = session.peer.expect_frame(Disposition, Detach, End, Close).performative
        if isinstance(answer, Disposition):
            expect_state(answer.state, Rejected)
        else:
            error_of(answer)
        broker.still_serves()
