"""What is checked of a message when it is taken: learned layouts and the walk, against `Message.check`."""

from __future__ import annotations

import struct
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import (
    TIMED,
    UNSURE,
    AmqpSequence,
    AmqpValue,
    Array,
    Data,
    DecodeError,
    Described,
    Header,
    Int,
    Long,
    Message,
    Properties,
    Symbol,
    Timestamp,
    Ulong,
    check_body,
    encode_composite,
    encode_message,
    encode_section,
    encode_value,
    message_check,
)
from amqp_broker.frames.decoding import skip_value
from amqp_broker.frames.message_check import DELIVERY_KEYS, MAPPED, PLAIN, body_shape
from amqp_broker.frames.message_peek import find_maps, peek_header
from tests.strategies import messages, mutated
from tests.support.examples import examples

DATA = encode_message(body=Data(b"body"))


def may_have_times(body: bytes) -> bool:
    """What TIMED says, by what the decoder finds."""
    message = Message(body)
    properties = message.properties
    annotations = body[: message.after_message_annotations_offset]
    return DELIVERY_KEYS in annotations or (
        properties is not None and properties.absolute_expiry_time is not None
    )


def agrees(body: bytes) -> bool:
    """Whether a message is well-formed; that all ways to ask say the same."""
    try:
        Message(body).check()
    except DecodeError:
        with pytest.raises(DecodeError):
            check_body(body)
        return False
    shape = body_shape(body)
    assert check_body(body) == shape + (TIMED if shape != UNSURE and may_have_times(body) else 0)
    return True


@examples(150)
@given(messages())
def test_what_the_encoder_writes_is_well_formed(data: bytes) -> None:
    """Whatever values the sections have."""
    assert agrees(data[Message(data).after_header_offset :])


@examples(150)
@given(
    messages().flatmap(lambda data: st.lists(mutated(st.just(data)) | st.just(data), min_size=2, max_size=6))
)
def test_learned_layouts_say_nothing_that_the_decoder_does_not(family: list[bytes]) -> None:
    """Messages that are nearly the same, one after the other: what was learned of one is never believed of
    another that is malformed.
    """
    for data in family:
        agrees(data)


SMALL: Any = st.fixed_dictionaries(
    {
        "message_annotations": st.none()
        | st.dictionaries(
            st.sampled_from(("x-opt-a", "x-opt-b")), st.binary(max_size=3) | st.text(max_size=3)
        ),
        "properties": st.none()
        | st.builds(
            Properties,
            message_id=st.none() | st.text(max_size=4) | st.integers(0, 300).map(Ulong) | st.uuids(),
            subject=st.none() | st.text(max_size=3),
            creation_time=st.none() | st.integers(0, 2**40),
            group_sequence=st.none() | st.integers(0, 2**32 - 1),
        ),
        "application_properties": st.none()
        | st.dictionaries(st.sampled_from(("a", "bb")), st.text(max_size=3) | st.booleans() | st.none()),
        "body": st.binary(max_size=3) | st.just(AmqpValue("v")) | st.just(AmqpValue([1])),
    }
)


@examples(150)
@given(st.lists(SMALL.map(lambda parts: encode_message(**parts)), min_size=1, max_size=8), st.data())
def test_small_messages_of_real_clients_and_their_mutants(bodies: list[bytes], data: st.DataObject) -> None:
    """The layouts that are learned most, and what differs from them by some octets."""
    for body in bodies:
        assert agrees(body)
        agrees(data.draw(mutated(st.just(body))))


@examples(300)
@given(st.one_of(messages(), mutated(messages())))
def test_what_is_certain_is_true(data: bytes) -> None:
    """PLAIN and MAPPED are said of well-formed sections in order only, without delivery-annotations; where
    the maps are is what the message says.
    """
    try:
        body = data[peek_header(data)[5] :]
    except DecodeError:
        return
    shape = body_shape(body)
    if shape != UNSURE:
        message = Message(body)
        message.check_sections()
        assert message.after_delivery_annotations_offset == 0
        places = find_maps(body)
        assert places is not None
        annotations, _, properties, _ = places
        assert (shape == MAPPED) is (annotations >= 0 or properties >= 0)
        assert (annotations >= 0) is (message._find(0x72) >= 0)
        assert (properties >= 0) is (message._find(0x74) >= 0)
        for start, end in (places[:2], places[2:]):
            assert start < 0 or skip_value(body, start, len(body)) == end


@pytest.mark.parametrize(
    "body",
    [
        DATA,
        encode_message(body=Data(b"x" * 300)),
        encode_message(body=AmqpValue("text")),
        encode_message(message_annotations={"x": 1}, properties=Properties(subject="s"), body=Data(b"x")),
        encode_message(application_properties={"k": "v"}, body=AmqpValue(None)),
        encode_message(body=Data(b"x"), footer={"x": 1}),
        DATA + DATA,
        b"",
        encode_message(properties=Properties()),
    ],
)
def test_what_clients_send_is_certain(body: bytes) -> None:
    """The shapes of real clients need no decoding; a message without a body is one of them."""
    maps = Message(body)
    shape = MAPPED if maps.message_annotations or maps.application_properties else PLAIN
    assert body_shape(body) == shape


@pytest.mark.parametrize(
    "body",
    [
        DATA[:-1],
        DATA + b"\0",
        DATA + encode_message(body=AmqpValue(1)),
        encode_message(body=AmqpValue(1)) + DATA,
        encode_message(body=AmqpValue(1)) * 2,
        DATA + encode_message(properties=Properties()),
        encode_message(delivery_annotations={"x": 1}, body=Data(b"x")),
        encode_composite(Header()) + DATA,
        b"\x00\x53\x75\x40",
        b"\x00\x53\x73\xa0\x00",
        b"\x00\x53\x79\x45",
        b"\x00",
        b"\x40",
    ],
)
def test_what_is_not_certain(body: bytes) -> None:
    """Cut off, out of order, repeated, of another type, or with delivery-annotations: the message decides."""
    assert body_shape(body) == UNSURE


SECTIONS = st.sampled_from(
    [
        encode_section("header", Header()),
        encode_section("delivery-annotations", {"x-opt-hop": 1}),
        encode_section("message-annotations", {"x-opt-a": 1}),
        encode_section("message-annotations", {}),
        encode_section("properties", Properties(message_id="m")),
        encode_section("properties", Properties()),
        encode_section("application-properties", {"a": "b"}),
        encode_section("data", b""),
        encode_section("data", b"x" * 300),
        encode_section("amqp-sequence", []),
        encode_section("amqp-value", None),
        encode_section("amqp-value", "text"),
        encode_section("amqp-value", 300),
        encode_section("footer", {"x-opt-sum": b"1"}),
    ]
)


@examples(500)
@given(st.lists(SECTIONS, max_size=4))
def test_order_and_repetition(sections: list[bytes]) -> None:
    """Well-formed sections in any order, as often as one likes: only some of it is a message."""
    agrees(b"".join(sections))


def typical(number: int) -> bytes:
    """What a client sends again and again."""
    return encode_message(
        message_annotations={"x-opt-jms-msg-type": 5, "x-opt-at": Timestamp(number)},
        properties=Properties(
            message_id=uuid.UUID(int=number), to="orders", creation_time=1_800_000_000_000 + number,
            content_type="text/plain",
        ),
        application_properties={"customer": f"c-{number:09}", "amount": Long(1_000 + number), "vip": True},
        body=AmqpValue(f"order {number}"),
    )  # fmt: skip


@pytest.mark.interpreted
def test_messages_of_one_shape_are_walked_over_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first, neither the walk nor the decoder is asked."""
    message_check._learned.clear()
    shape = check_body(typical(0))
    asked: list[bytes] = []

    def walk(body: bytes, *more: object) -> int:
        asked.append(body)
        return -1

    monkeypatch.setattr(message_check, "_walk", walk)
    for number in range(1, 300):
        assert check_body(typical(number)) == shape
    assert asked == []


def test_what_is_learned_is_bounded() -> None:
    """A peer that invents layouts does not fill the memory, and soon none of its own is learned any more."""
    message_check._learned.clear()
    for number in range(2_000):
        check_body(encode_message(properties=Properties(subject="s" * (number % 700)), body=b"x"))
    assert len(message_check._learned) <= message_check.MAX_KEYS
    for number in range(2_000):
        check_body(encode_message(message_annotations={f"x-opt-{number:05}": 1}, body=b"x"))
    for learned in message_check._learned.values():
        assert len(learned.layouts) <= message_check.MAX_LAYOUTS


def nested(depth: int) -> bytes:
    """The annotation `x-opt-deep`, a list in a list in ..."""
    value = b"\x45"
    for _ in range(depth - 1):
        value = b"\xd0" + struct.pack(">II", 4 + len(value), 1) + value
    entries = encode_value(Symbol("x-opt-deep")) + value
    return b"\x00\x53\x72\xd1" + struct.pack(">II", 4 + len(entries), 2) + entries


def described(code: int, value: bytes) -> bytes:
    """A section with this value."""
    return b"\x00\x53" + bytes((code,)) + value


MALFORMED = {
    "annotations with a string as key": described(0x72, b"\xc1\x05\x02\xa1\x01k\x41"),
    "annotations with an odd count": described(0x72, b"\xc1\x05\x01\xa3\x01k\x41"),
    "annotations with a count of 2^32-1": described(0x72, b"\xd1" + struct.pack(">II", 4, 2**32 - 1)),
    "annotations that end before their size": described(0x72, b"\xc1\x06\x02\xa3\x01k\x41\x41"),
    "annotations with a key twice": described(0x72, b"\xc1\x09\x04\xa3\x01k\x41\xa3\x01k\x41"),
    "annotations with a symbol beyond ASCII": described(0x72, b"\xc1\x05\x02\xa3\x01\xff\x41"),
    "annotations nested too deep": nested(40),
    "delivery-annotations with a string as key": described(0x71, b"\xc1\x05\x02\xa1\x01k\x41"),
    "properties with a message-id of another type": described(0x73, b"\xc0\x02\x01\x41"),
    "properties with a described message-id": described(0x73, b"\xc0\x06\x01\x00\x53\x09\x52\x01"),
    "properties with a described address": described(0x73, b"\xc0\x09\x03\x40\x40\x00\x53\x09\xa1\x01a"),
    "properties with a subject that is no text": described(0x73, b"\xc0\x06\x04\x40\x40\x40\x52\x01"),
    "properties with a string that is no UTF-8": described(0x73, b"\xc0\x07\x04\x40\x40\x40\xa1\x01\xff"),
    "properties with fourteen fields": described(0x73, b"\xc0\x0f\x0e" + b"\x40" * 14),
    "properties with fewer fields than they say": described(0x73, b"\xc0\x02\x03\x40"),
    "application-properties with a symbol as key": described(0x74, b"\xc1\x05\x02\xa3\x01k\x41"),
    "application-properties with a list": described(0x74, b"\xc1\x05\x02\xa1\x01k\x45"),
    "application-properties with a map": described(0x74, b"\xc1\x07\x02\xa1\x01k\xc1\x01\x00"),
    "application-properties with an array": described(0x74, b"\xc1\x08\x02\xa1\x01k\xe0\x02\x00\x41"),
    "application-properties with an unknown constructor": described(0x74, b"\xc1\x05\x02\xa1\x01k\x47"),
}  # fmt: skip
MALFORMED_BODIES = {
    "a footer with a string as key": DATA + described(0x78, b"\xc1\x05\x02\xa1\x01k\x41"),
    "a value of an unknown constructor": described(0x77, b"\x47"),
    "two values": described(0x77, b"\x41") * 2,
    "data and a value": DATA + described(0x77, b"\x41"),
    "data and a text": DATA + described(0x77, b"\xa1\x01x"),
    "a value and data": described(0x77, b"\x41") + DATA,
    "data and a sequence": DATA + described(0x76, b"\x45"),
    "data that is text": described(0x75, b"\xa1\x01x"),
    "a sequence that is a map": described(0x76, b"\xc1\x01\x00"),
    "a sequence of more values than octets": described(0x76, b"\xd0" + struct.pack(">II", 4, 9)),
    "a value whose size does not hold its count": described(0x77, b"\xc0\x00\x00"),
    "a map of an odd count as value": described(0x77, b"\xc1\x02\x01\x41"),
    "a described list of more values than octets": described(0x77, b"\x00\x53\x09\xc0\x01\x07"),
    "a section that nobody knows": DATA + described(0x79, b"\x45"),
}


@pytest.mark.parametrize("name", [*MALFORMED, *MALFORMED_BODIES])
def test_what_is_malformed_is_refused(name: str) -> None:
    """Each form for itself, learned layouts or not; before a body and behind other sections."""
    bodies = [MALFORMED_BODIES[name]] if name in MALFORMED_BODIES else [MALFORMED[name] + DATA]
    bodies.append(encode_section("message-annotations", {"x-opt-a": 1}) + bodies[0])
    for body in bodies[: 1 if "annotations" in name else 2]:
        assert agrees(body) is False


@pytest.mark.parametrize("section", [b"\x00\x53\x75\xa0\x00", encode_section("amqp-sequence", [])])
def test_the_number_of_sections_is_bounded(section: bytes) -> None:
    """Three million empty ones fit into a message of 16 MiB, and each costs a step."""
    assert agrees(section * 60_000)
    assert not agrees(section * 66_000)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        encode_section("properties", Properties()),
        DATA * 3,
        encode_message(body=AmqpValue(None)),
        encode_message(body=AmqpValue([1, {"k": [2]}])),
        encode_message(body=[AmqpSequence([1]), AmqpSequence([])]),
        encode_message(body=AmqpValue(Described(Ulong(9), [1]))),
        encode_message(body=AmqpValue(Array("int", [Int(1), Int(2)]))),
        encode_message(message_annotations={"x-opt-list": [1, {Symbol("k"): [2]}]}, body=b"x"),
        encode_message(message_annotations={Ulong(7): "reserved"}, body=b"x"),
        encode_message(delivery_annotations={"x-opt-hop": 1}, body=b"x", footer={"x-opt-sum": b"1"}),
        nested(31) + DATA,
        b"\x00\x80" + (0x72).to_bytes(8, "big") + b"\xc1\x05\x02\xa3\x01k\x41" + DATA,
    ],
)
def test_what_is_well_formed_is_taken(body: bytes) -> None:
    """A message without a body is one: python-qpid-proton and others send it (D17 of the standard's open
    points); so are rare forms of descriptors, bodies of each kind, and annotations as deep as the limit.
    """
    assert agrees(body)
