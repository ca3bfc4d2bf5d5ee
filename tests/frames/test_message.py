"""Messages as retained bytes: sections found, decoded on demand, checked for order and number."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import (
    AmqpSequence,
    AmqpValue,
    Array,
    Data,
    Declare,
    DecodeError,
    EncodeError,
    Header,
    Int,
    Long,
    Message,
    Properties,
    Symbol,
    Ulong,
    annotated,
    encode_message,
    encode_section,
    encode_value,
)
from amqp_broker.frames.limits import SECTION_NODES_MAX
from amqp_broker.frames.sections import SECTION_CODES, SECTION_SYMBOLS
from tests import strategies
from tests.support.examples import examples

SECTIONS: dict[str, bytes] = {
    "header": encode_section("header", Header(durable=True)),
    "delivery-annotations": encode_section("delivery-annotations", {"d": 1}),
    "message-annotations": encode_section("message-annotations", {"m": 1}),
    "properties": encode_section("properties", Properties(message_id="i")),
    "application-properties": encode_section("application-properties", {"a": 1}),
    "data": encode_section("data", b"x"),
    "amqp-sequence": encode_section("amqp-sequence", [True]),
    "amqp-value": encode_section("amqp-value", "v"),
    "footer": encode_section("footer", {"f": 1}),
}
ORDER = list(SECTIONS)
BODY = ("data", "amqp-sequence", "amqp-value")


@given(strategies.message_parts())
def test_every_section_comes_back(parts: dict[str, Any]) -> None:
    """What is encoded is decoded: values, absence and the bare message's octets."""
    data = encode_message(**parts)
    message = Message(data)
    message.check_sections()
    assert message.header == (parts["header"] or Header())
    for name in (
        "delivery_annotations",
        "message_annotations",
        "properties",
        "application_properties",
        "footer",
    ):
        assert getattr(message, name) == parts[name], name
    assert message.body_sections() == parts["body"]
    bare = {
        **parts,
        "header": None,
        "delivery_annotations": None,
        "message_annotations": None,
        "footer": None,
    }
    assert message.bare == encode_message(**bare)
    assert data.endswith(message.bare + data[message.footer_offset :])


@given(strategies.message_parts())
def test_offsets(parts: dict[str, Any]) -> None:
    """Where the sections before the bare message end, whether or not they are there."""
    message = Message(encode_message(**parts))
    header = b"" if parts["header"] is None else encode_section("header", parts["header"])
    found = parts["delivery_annotations"]
    deliveries = b"" if found is None else encode_section("delivery-annotations", found)
    found = parts["message_annotations"]
    annotations = b"" if found is None else encode_section("message-annotations", found)
    assert message.after_header_offset == len(header)
    assert message.after_delivery_annotations_offset == len(header + deliveries)
    assert message.after_message_annotations_offset == len(header + deliveries + annotations)


def test_reading_the_header_touches_nothing_behind_it() -> None:
    """Sections behind the one that is asked for may be anything."""
    message = Message(SECTIONS["header"] + b"\xff\xff\xff")
    assert message.header.durable is True
    assert message.after_header_offset == len(SECTIONS["header"])
    with pytest.raises(DecodeError):
        message.check_sections()
    message = Message(SECTIONS["properties"] + SECTIONS["data"] + b"\xff")
    assert message.header == Header()
    assert message.message_annotations is None
    assert message.properties == Properties(message_id="i")
    assert message.application_properties is None
    assert "properties" in repr(message)
    with pytest.raises(DecodeError):
        _ = message.bare


def is_valid(names: tuple[str, ...]) -> bool:
    """The standard's sentence, as a predicate of its own (3.2)."""
    places = [ORDER.index(name) for name in names]
    body = {name for name in names if name in BODY}
    once = all(names.count(name) == 1 for name in names if name not in ("data", "amqp-sequence"))
    return places == sorted(places) and once and len(body) <= 1


def test_order_and_multiplicity_of_all_sequences() -> None:
    """All sequences of up to three sections, and the full message with each section moved, doubled or left
    out.
    """
    sequences: list[tuple[str, ...]] = []
    for length in range(4):
        sequences += itertools.product(ORDER, repeat=length)
    for body in BODY:
        full = [name for name in ORDER if name not in BODY or name == body]
        sequences.append(tuple(full))
        for at, name in enumerate(full):
            sequences.append((*full[:at], name, *full[at:]))
            sequences.append((*full[:at], *full[at + 1 :]))
            sequences.append((*full[:at], *full[at + 1 :], name))
    for names in sequences:
        message = Message(b"".join([SECTIONS[name] for name in names]))
        if is_valid(names):
            message.check_sections()
        else:
            with pytest.raises(DecodeError, match="cannot follow"):
                message.check_sections()


def test_a_message_without_body_passes() -> None:
    """What python-qpid-proton sends for an empty Message: an empty header and empty properties."""
    message = Message(bytes.fromhex("00 53 70 45 00 53 73 45"))
    message.check_sections()
    assert message.body_sections() == []
    assert message.bare == bytes.fromhex("00 53 73 45")
    Message(b"").check_sections()
    assert Message(b"").header == Header()


@pytest.mark.parametrize("name", SECTION_CODES)
def test_sections_are_found_by_each_form_of_their_descriptor(name: str) -> None:
    """The ulong in both encodings, and the symbol."""
    data = SECTIONS[name]
    symbol = next(symbol for symbol, code in SECTION_SYMBOLS.items() if code == SECTION_CODES[name])
    for descriptor in (data[1:3], b"\x80" + bytes(7) + data[2:3], encode_value(Symbol(symbol))):
        message = Message(b"\x00" + descriptor + data[3:])
        message.check_sections()
        assert name in repr(message)


INVALID = {
    "not described": (b"\x45", "expected a section, but found list"),
    "unknown code": (b"\x00\x53\x79\x45", "found the descriptor Ulong.121."),
    "outcome": (b"\x00\x53\x24\x45", "found the descriptor Ulong.36."),
    "unknown symbol": (encode_value(None).join([b"\x00\xa3\x01x", b""]), "found the descriptor Symbol"),
    "descriptor of another type": (b"\x00\xa1\x01x\x45", "ulong or symbol as descriptor"),
    "header as map": (b"\x00\x53\x70\xc1\x01\x00", "section header cannot be map"),
    "annotations as list": (b"\x00\x53\x72\x45", "section message-annotations cannot be list"),
    "data as string": (b"\x00\x53\x75\xa1\x00", "section data cannot be string"),
    "sequence as map": (b"\x00\x53\x76\xc1\x01\x00", "section amqp-sequence cannot be map"),
    "described header": (b"\x00\x53\x70\x00\x53\x01\x45", "cannot be a described value"),
    "value of no type": (b"\x00\x53\x77\x4f", "unknown format code"),
    "descriptor only": (b"\x00\x53\x77", "cut off"),
    "cut descriptor": (b"\x00\x53", "cut off"),
    "cut body": (b"\x00\x53\x75\xb0\x00\x00\x00\x09abc", "needs 13 octets, but 7 are left"),
    "cut size": (b"\x00\x53\x75\xb0\x00", "cut off within its size"),
    "octets behind": (SECTIONS["data"] + b"\x00", "expected a descriptor"),
}


@pytest.mark.parametrize("name", INVALID)
def test_malformed_messages(name: str) -> None:
    """Each is a DecodeError that says what was found."""
    data, message = INVALID[name]
    with pytest.raises(DecodeError, match=message):
        Message(data).check_sections()


def test_the_body_stays_opaque() -> None:
    """Sizes are checked, contents are not, until somebody asks for the body."""
    message = Message(b"\x00\x53\x76\xc0\x03\x09\x4f\x4f")
    message.check_sections()
    with pytest.raises(DecodeError):
        message.body_sections()


@examples(300)
@given(strategies.mutants(strategies.messages()))
def test_mutations_raise_nothing_but_decode_errors(damaged: list[bytes]) -> None:
    """Every reader of a damaged message gives a value or a DecodeError."""
    for data in damaged:
        _read_everything(data)


def _read_everything(data: bytes) -> None:
    readers = [
        "header",
        "delivery_annotations",
        "message_annotations",
        "properties",
        "application_properties",
        "footer",
        "bare",
        "after_message_annotations_offset",
    ]
    for name in readers:
        try:
            getattr(Message(data), name)
        except DecodeError:
            continue
    for read in (Message.check_sections, Message.body_sections):
        try:
            read(Message(data))
        except DecodeError:
            continue


def test_keys_of_the_maps() -> None:
    """Annotations have symbols or ulongs, application-properties strings (3.2.5, 3.2.10)."""
    wrong = encode_value({"s": 1})
    for name, attribute in (("message-annotations", "message_annotations"), ("footer", "footer")):
        with pytest.raises(DecodeError, match="expected a symbol or ulong as key"):
            getattr(Message(bytes((0, 0x53, SECTION_CODES[name])) + wrong), attribute)
        right = encode_value({Symbol("s"): 1, Ulong(2): None})
        found = getattr(Message(bytes((0, 0x53, SECTION_CODES[name])) + right), attribute)
        assert found == {Symbol("s"): Long(1), Ulong(2): None}
    with pytest.raises(DecodeError, match="expected a string as key"):
        _ = Message(b"\x00\x53\x74" + encode_value({Symbol("s"): 1})).application_properties


def test_values_in_a_section_are_bounded() -> None:
    """65,536 values in annotations or application-properties, not more."""
    many: dict[Any, Any] = {"k": None}
    many.update({str(n): None for n in range(SECTION_NODES_MAX // 2 - 2)})
    assert len(Message(encode_section("application-properties", many)).application_properties or {}) == len(
        many
    )
    many.update({"a": None, "b": None})
    with pytest.raises(DecodeError, match="too many values"):
        _ = Message(encode_section("application-properties", many)).application_properties


def test_bodies() -> None:
    """What `encode_message` makes of each kind of body."""
    for body, sections in (
        (b"x", [Data(b"x")]),
        (Data(b"x"), [Data(b"x")]),
        ([Data(b"x"), Data(b"y")], [Data(b"x"), Data(b"y")]),
        ([AmqpSequence([1]), AmqpSequence([])], [AmqpSequence([Long(1)]), AmqpSequence([])]),
        (AmqpSequence([True]), [AmqpSequence([True])]),
        (AmqpValue(b"x"), [AmqpValue(b"x")]),
        ("text", [AmqpValue("text")]),
        (None, [AmqpValue(None)]),
        ([True], [AmqpValue([True])]),
        ([], [AmqpValue([])]),
        ({"k": True}, [AmqpValue({"k": True})]),
        (Array("uint", []), [AmqpValue(Array("uint", []))]),
        (AmqpValue(Declare()), [AmqpValue(Declare())]),
    ):
        assert Message(encode_message(body=body)).body_sections() == sections
    assert Data(b"x") in {Data(b"x")}


def test_sections_that_cannot_be_encoded() -> None:
    """Wrong names, wrong types and wrong keys are EncodeErrors."""
    for name, value in (
        ("heading", {}),
        ("header", Properties()),
        ("properties", {}),
        ("data", "text"),
        ("amqp-sequence", ()),
        ("footer", []),
        ("message-annotations", {1: 1}),
        ("application-properties", {Symbol("s"): 1}),
        ("application-properties", {"s": [1]}),
        ("application-properties", []),
    ):
        with pytest.raises(EncodeError, match="expected"):
            encode_section(name, value)
    for body in ([Data(b""), AmqpSequence([])], [AmqpValue(1), AmqpValue(2)]):
        with pytest.raises(EncodeError, match="a body of one kind"):
            encode_message(body=body)


ENTRIES = st.dictionaries(
    st.text("x-optab", min_size=1, max_size=20),
    st.text(max_size=9) | st.binary(max_size=9) | st.text(min_size=200, max_size=300) | st.just(Int(7)),
    min_size=1, max_size=3,
)  # fmt: skip


@given(strategies.messages(), ENTRIES)
def test_annotations_are_added_to_a_message(data: bytes, added: dict[str, Any]) -> None:
    """Those that were there stay but for the same names, and all behind them is octet for octet the same."""
    body = data[Message(data).after_delivery_annotations_offset :]
    found, before = Message(annotated(body, added)), Message(body)
    found.check_sections()
    expected = dict(before.message_annotations or {}) | {Symbol(key): value for key, value in added.items()}
    assert found.message_annotations == expected
    offsets = [each.after_message_annotations_offset for each in (found, before)]
    assert found.data[offsets[0] :] == body[offsets[1] :]
