"""How a message and a link say their place in a stream, and whose a stream is (sequences: on the wire)."""

from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Session
from amqp_broker.conformance.messages import (
    APPLICATION_PROPERTIES,
    MESSAGE_ANNOTATIONS,
    bare_octets,
    data,
    map_of,
    section,
)
from amqp_broker.conformance.outcomes import NotApplicable, expect_equal
from amqp_broker.conformance.queues import expect_left, reader
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.sequences import (
    ACCEPTED,
    CAPABILITY,
    GAP,
    INVALID,
    MISSING,
    OFF,
    REQUIRED,
    STALE,
    UNAUTHORIZED,
    body,
    capabilities,
    chain,
    expect_link_refused,
    expect_told,
    other_principal,
    placed,
    sender_on,
    standing,
    stated,
    states_of,
    stream_sender,
    words,
)
from amqp_broker.conformance.transactions import anonymous_sender
from amqp_broker.frames import (
    Byte,
    Int,
    Long,
    Properties,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
    encode_composite,
)

INTEGRAL: tuple[Any, ...] = (Ubyte, Ushort, Uint, Ulong, Byte, Short, Int, Long)


@scenario("seq.fields/both-forms", "seq.fields-names")
def both_forms(broker: Broker) -> None:
    """Message annotations and application properties continue the same stream; both at once agree."""
    sender = stream_sender(broker)
    annotated, stating = placed((1, 3, 2)), stated((1, 3, 2))
    both = annotated[: -len(data(body((1, 3, 2))))] + stating
    expect_told(sender, [placed((1, 1, 0)), stated((1, 2, 1)), both], ACCEPTED * 3)
    expect_left(broker, broker.queue(), b"1.1", b"1.2", b"1.3", in_order=True)


@scenario("seq.fields/link-stream", "seq.fields-names", "seq.links-attach", breaks="2.5-one-session")
def link_stream(broker: Broker) -> None:
    """The link names the stream once: its messages need the numbers only, and may name it again."""
    sender = stream_sender(broker, "of the link")
    expect_equal("a new stream", (0, 0), standing(sender))
    payloads = [placed((1, 1, 0), None), placed((1, 2, 1), "of the link")]
    expect_told(sender, payloads, ACCEPTED * 2)
    expect_told(sender, [placed((1, 3, 2), "another")], [INVALID])
    expect_equal("the stream", (1, 2), standing(stream_sender(broker, "of the link")))


@scenario("seq.fields/types", "seq.fields-types")
def types(broker: Broker) -> None:
    """Each of the eight integral types is taken by its value."""
    sender = stream_sender(broker)
    for number, integer in enumerate(INTEGRAL, 1):
        named = {"seq_id": integer(1), "seq_no": integer(number), "seq_prev": integer(number - 1)}
        expect_told(sender, [stated((1, number, number - 1), **named)], ACCEPTED)
    expect_left(broker, broker.queue(), *[body(place) for place in chain(1, 8)], in_order=True)


@scenario("seq.fields/other-types", "seq.fields-types")
def other_types(broker: Broker) -> None:
    """What is no integer, or not in the range of its field, is refused."""
    sender = stream_sender(broker)
    wrong: list[dict[str, Any]] = [
        {"seq_no": "1"},
        {"seq_no": True},
        {"seq_no": Timestamp(1)},
        {"seq_no": 1.0},
        {"seq_no": Long(2**32)},
        {"seq_id": Long(-1)},
        {"seq_prev": Long(-1)},
        {"seq_stream": Symbol("s")},
        {"seq_stream": ""},
        {"seq_stream": "x" * 129},
    ]
    payloads = [stated((1, 1, 0), **changed) for changed in wrong]
    expect_told(sender, payloads, [INVALID] * len(wrong))
    expect_told(sender, [stated((1, 1, 0), "x" * 128)], ACCEPTED)


@scenario("seq.fields/contradiction", "seq.fields-types")
def contradiction(broker: Broker) -> None:
    """Annotations and properties that differ in one field are refused, and the stream does not move."""
    sender = stream_sender(broker)
    annotations = placed((1, 1, 0))[: -len(data(body((1, 1, 0))))]
    for named in ({"seq_stream": "t"}, {"seq_id": 2}, {"seq_no": 2}, {"seq_no": 2, "seq_prev": 1}):
        payload = annotations + section(APPLICATION_PROPERTIES, named) + data(b"1.1")
        expect_told(sender, [payload], [INVALID])
    expect_told(sender, [placed((1, 1, 0))], ACCEPTED)
    expect_left(broker, broker.queue(), b"1.1")


@scenario("seq.fields/incomplete", "seq.fields-names")
def incomplete(broker: Broker) -> None:
    """Some of the fields without the others are refused."""
    sender = stream_sender(broker)
    for absent in ("seq_stream", "seq_id", "seq_no", "seq_prev"):
        changed: dict[str, Any] = {absent: None}
        expect_told(sender, [stated((1, 1, 0), **changed)], [INVALID])
    expect_left(broker, broker.queue())


@scenario("seq.fields/link-refused", "seq.fields-names")
def link_refused(broker: Broker) -> None:
    """A link property that can be no stream's name refuses the link."""
    for stream in ("", "x" * 129, 7, Symbol("s")):
        expect_link_refused(broker, stream, INVALID)


@scenario("seq.fields/delivered", "seq.fields-names")
def delivered(broker: Broker) -> None:
    """A message comes with its fields, its bare message octet for octet."""
    receiver = reader(broker, broker.queue(), 10)
    payloads = [placed((1, 1, 0)), stated((1, 2, 1))]
    expect_told(stream_sender(broker), payloads, ACCEPTED * 2)
    first, second = receiver.receive(), receiver.receive()
    expect_equal("the bare message", bare_octets(payloads[1]), bare_octets(second.payload))
    expect_equal("the annotations", Uint(1), map_of(first.payload, MESSAGE_ANNOTATIONS).get("x-opt-seq-no"))


@scenario("seq.fields/optional", "seq.fields-required")
def optional(broker: Broker) -> None:
    """Where sequences are optional, messages without a place stand among those with one."""
    sender = stream_sender(broker)
    payloads = [data(b"a"), placed((1, 1, 0)), data(b"b"), placed((1, 3, 2)), data(b"c")]
    expect_told(sender, payloads, [*ACCEPTED * 3, GAP, *ACCEPTED])
    expect_left(broker, broker.queue(), b"a", b"1.1", b"b", b"c", in_order=True)


@scenario("seq.fields/missing-on-a-link-of-a-stream", "seq.fields-required")
def missing_on_a_link_of_a_stream(broker: Broker) -> None:
    """Where the link names a stream, a message without numbers is refused."""
    sender = stream_sender(broker, "s")
    expect_told(sender, [placed((1, 1, 0), None), data(b"none")], [*ACCEPTED, MISSING])
    expect_left(broker, broker.queue(), b"1.1")


@scenario("seq.fields/required", "seq.fields-required")
def required(broker: Broker) -> None:
    """Where sequences are required, a message without the fields is refused; sent settled, the link ends."""
    address = broker.queue(kind=REQUIRED)
    sender = stream_sender(broker, address=address)
    if words(states_of(sender, [data(b"none")])) == ACCEPTED:
        raise NotApplicable(f"sequences are not required at {address}")
    expect_told(sender, [data(b"none"), placed((1, 1, 0)), data(b"none")], [MISSING, *ACCEPTED, MISSING])
    sender.send(data(b"none"), settled=True)
    sender.expect_detach(MISSING)
    expect_left(broker, address, b"1.1")


@scenario("seq.fields/off", "seq.fields-off")
def off(broker: Broker) -> None:
    """Where sequences are off nothing is offered, nothing judged, and the octets pass as they are."""
    address = broker.queue(kind=OFF)
    sender = stream_sender(broker, "s", address)
    if CAPABILITY in capabilities(sender):
        raise NotApplicable(f"sequences are not off at {address}")
    attach = sender.remote_attach
    expect_equal("properties of the attach", None, attach.properties if attach else None)
    payloads = [placed((1, 5, 4)), placed((1, 5, 4)), placed((0, 0, 9)), stated((1, 1, 0), seq_no="x")]
    expect_told(sender, payloads, ACCEPTED * 4)
    receiver = reader(broker, address, 10)
    for payload in payloads:
        delivery = receiver.receive()
        expect_equal("the bare message", bare_octets(payload), bare_octets(delivery.payload))
        annotations = map_of(payload, MESSAGE_ANNOTATIONS)
        expect_equal("the annotations", annotations, map_of(delivery.payload, MESSAGE_ANNOTATIONS))


@scenario("seq.fields/anonymous-terminus", "seq.links-key", "seq.fields-names")
def anonymous_terminus(broker: Broker, session: Session) -> None:
    """On the anonymous terminus each message is judged by the stream of its own node."""
    for handle, name in enumerate(("one", "two"), 2):
        sender_on(session, broker.queue(name), handle=handle).detach()
    relay = anonymous_sender(session)

    def to(name: str, number: int) -> bytes:
        named = {"seq_stream": "s", "seq_id": 1, "seq_no": number, "seq_prev": number - 1}
        properties = encode_composite(Properties(to=broker.queue(name)))
        return properties + section(APPLICATION_PROPERTIES, named) + data(b"%d" % number)

    expect_told(
        relay,
        [to("one", 1), to("two", 1), to("one", 2), to("two", 3), to("two", 2)],
        [*ACCEPTED * 3, GAP, *ACCEPTED],
    )
    expect_left(broker, broker.queue("one"), b"1", b"2", in_order=True)
    expect_left(broker, broker.queue("two"), b"1", b"2", in_order=True)


@scenario("seq.links/capability", "seq.fields-off")
def capability(broker: Broker) -> None:
    """The target says that it takes sequences, whether the link names a stream or not."""
    for stream in (None, "s"):
        sender = stream_sender(broker, stream, container=str(stream))
        expect_equal(f"the capability {CAPABILITY}", True, CAPABILITY in capabilities(sender))


@scenario("seq.links/attach", "seq.links-attach", "seq.rule-first")
def attach(broker: Broker) -> None:
    """The answer to an attach says where the stream stands; without one it says nothing."""
    sender = stream_sender(broker, "s")
    expect_equal("a new stream", (0, 0), standing(sender))
    expect_told(sender, [placed(place, None) for place in chain(1, 4, 6)], ACCEPTED * 4)
    expect_equal("the stream", (6, 4), standing(stream_sender(broker, "s", container="two")))
    expect_equal("another stream", (0, 0), standing(stream_sender(broker, "t", container="three")))
    plain = stream_sender(broker, container="four").remote_attach
    expect_equal("properties", None, plain.properties if plain else None)


@scenario("seq.links/key", "seq.links-key")
def key(broker: Broker, session: Session) -> None:
    """The same name at another queue is another stream."""
    one, two = sender_on(session, broker.queue("one"), "s"), sender_on(session, broker.queue("two"), "s", 1)
    expect_told(one, [placed(place, None) for place in chain(1, 3)], ACCEPTED * 3)
    expect_told(two, [placed((1, 1, 0), None)], ACCEPTED)
    expect_equal("the stream", (0, 0), standing(sender_on(session, broker.queue("three"), "s", 2)))
    expect_left(broker, broker.queue("two"), b"1.1")


@scenario("seq.links/two-links", "seq.rule-1", "seq.links-key")
def two_links(broker: Broker, session: Session) -> None:
    """Two links of one stream in turns, on one session and on two connections: one order."""
    links = [sender_on(session, broker.queue(), "s", handle) for handle in (0, 1)]
    links.append(stream_sender(broker, "s", container="other"))
    for number in range(1, 10):
        expect_told(links[number % 3], [placed((1, number, number - 1), None)], ACCEPTED)
    left = [b"1.%d" % number for number in range(1, 10)]
    expect_left(broker, broker.queue(), *left, in_order=True)


@scenario("seq.links/zombie", "seq.rule-8", "seq.outcomes-stale")
def zombie(broker: Broker) -> None:
    """The successor of a sender that is not dead begins a new id: what the old one still sends changes
    nothing.
    """
    old = stream_sender(broker, "s", container="old")
    expect_told(old, [placed(place, None) for place in chain(1, 3)], ACCEPTED * 3)
    new = stream_sender(broker, "s", container="new")
    seq_id, seq_no = standing(new)
    expect_equal("the stream", (1, 3), (seq_id, seq_no))
    expect_told(new, [placed((2, 1, 0), None)], ACCEPTED)
    late = [placed(place, None) for place in chain(3, 5)]
    expect_told(old, late, [*ACCEPTED, STALE, STALE])
    expect_told(new, [placed((2, 2, 1), None)], ACCEPTED)
    expect_left(broker, broker.queue(), b"1.1", b"1.2", b"1.3", b"2.1", b"2.2", in_order=True)


@scenario("seq.links/foreign", "seq.links-owner")
def foreign(broker: Broker) -> None:
    """A stream belongs to who used it first: others are refused, at the attach and for each message."""
    stranger = other_principal(broker)
    sender = stream_sender(broker)
    expect_told(sender, [placed((1, 1, 0))], ACCEPTED)
    theirs = sender_on(stranger, broker.queue())
    payloads = [placed((1, 2, 1)), placed((1, 1, 0)), placed((1, 1, 0), "their own")]
    expect_told(theirs, payloads, [UNAUTHORIZED, UNAUTHORIZED, *ACCEPTED])
    expect_link_refused(broker, "s", UNAUTHORIZED, stranger)
    expect_equal("the stream", (1, 1), standing(stream_sender(broker, "s", container="asks")))
    expect_told(sender, [placed((1, 1, 0), "their own")], [UNAUTHORIZED])
