"""Composites from bytes: defaults, absent fields, and errors that name the field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import (
    Accepted,
    Array,
    Attach,
    Begin,
    Close,
    Coordinator,
    DecodeError,
    DeleteOnClose,
    Described,
    Disposition,
    Error,
    Flow,
    Long,
    Modified,
    Open,
    Properties,
    Received,
    Rejected,
    Source,
    Symbol,
    Target,
    TransactionalState,
    Transfer,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
    decode_composite,
    encode_composite,
    encode_value,
)
from amqp_broker.frames.composite_decoding import read_composite
from amqp_broker.frames.declarations import DECLARATIONS
from amqp_broker.frames.decoding import Decoder
from amqp_broker.frames.limits import DELIVERY_TAG_OCTETS_MAX, PERFORMATIVE_NODES_MAX
from amqp_broker.frames.sasl import SaslMechanisms
from tests import strategies
from tests.support.examples import examples


def described(code: int, *fields: Any) -> bytes:
    """A described list by hand: any values as fields of the composite with this code."""
    return encode_value(Described(Ulong(code), list(fields)))


OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, CLOSE = 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x18


@pytest.mark.parametrize("made", DECLARATIONS, ids=lambda made: made.__name__)
def test_round_trip_of_each_composite(made: type) -> None:
    """What is encoded decodes to an equal composite of the same class."""

    @examples(25)
    @given(strategies.composites_of(DECLARATIONS[made]))
    def check(value: Any) -> None:
        data = encode_composite(value)
        decoded, offset = decode_composite(b"\xff" + data + b"\x00", 1)
        assert decoded == value
        assert type(decoded) is made
        assert offset == 1 + len(data)

    check()


def test_fields_left_out_have_their_defaults() -> None:
    """Trailing fields that are absent, and nulls, give the standard's defaults."""
    short, _ = decode_composite(described(OPEN, "c"))
    assert short == Open(container_id="c", max_frame_size=4294967295, channel_max=65535)
    nulls, _ = decode_composite(described(OPEN, "c", None, None, None, None, None, None, None, None, None))
    assert nulls == short
    attach, _ = decode_composite(described(ATTACH, "l", Uint(0), True))
    assert (attach.snd_settle_mode, attach.rcv_settle_mode, attach.incomplete_unsettled) == (2, 0, False)
    source, _ = decode_composite(described(0x28))
    assert (source.durable, source.expiry_policy, source.timeout, source.dynamic) == (
        0,
        "session-end",
        0,
        False,
    )


@pytest.mark.parametrize("form", ["45", "c0 01 00", "d0 00 00 00 04 00 00 00 00"])
def test_every_form_of_the_empty_list(form: str) -> None:
    """list0, list8 and list32 without fields."""
    assert decode_composite(bytes.fromhex("00 53 18" + form))[0] == Close()


def test_every_form_of_the_list_and_of_the_fields() -> None:
    """list32 with the wide encodings of each field, and booleans of two octets."""
    data = bytes.fromhex(
        "00 80 0000000000000015 d0 00000016 00000005 5601 70 00000007 70 00000100 5600 00 53 24 45"
    )
    assert decode_composite(data)[0] == Disposition(role=True, first=7, last=256, state=Accepted())


INVALID: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "expected a described value"),
    "not described": (b"\x45", "expected a described value, but found list"),
    "unknown descriptor": (described(0x1F), "expected a composite of the standard, but found the descriptor"),
    "unknown symbol": (encode_value(Described(Symbol("x"), [])), "found the descriptor Symbol"),
    "not a list": (encode_value(Described(Ulong(OPEN), {})), "expected a list for open, but found map"),
    "descriptor only": (b"\x00\x53\x10", "expected the list of open"),
    "too many fields": (described(CLOSE, None, None), "expected at most 1 fields in close, but found 2"),
    "mandatory field left out": (described(OPEN), "mandatory field container-id in open"),
    "later mandatory field left out": (
        described(BEGIN, None, Uint(0)),
        "mandatory field incoming-window in begin",
    ),
    "mandatory field null": (described(OPEN, None), "mandatory field open.container-id, but found null"),
    "wrong type": (
        described(OPEN, Symbol("c")),
        r"expected string for open.container-id, but found symbol \(sym8",
    ),
    "wider type": (
        described(BEGIN, Uint(1), Uint(0), Uint(0), Uint(0)),
        "expected ushort for begin.remote-channel, but found uint",
    ),
    "signed for unsigned": (
        described(ATTACH, "l", Long(1), True),
        "expected uint for attach.handle, but found long",
    ),
    "number for boolean": (described(ATTACH, "l", Uint(1), Uint(1)), "expected boolean for attach.role"),
    "boolean for number": (
        described(ATTACH, "l", True, True),
        "expected uint for attach.handle, but found boolean",
    ),
    "bad boolean": (bytes.fromhex("00 53 15 c0 05 02 56 02 52 00"), "0x02"),
    "choice that is none": (
        described(ATTACH, "l", Uint(1), True, Ubyte(3)),
        "one of 0, 1, 2 for attach.snd-settle",
    ),
    "policy that is none": (
        described(0x28, None, None, Symbol("someday")),
        "never for source.expiry-policy, but found 'someday'",
    ),
    "delivery-tag too long": (described(TRANSFER, Uint(0), Uint(0), b"x" * 33), "at most 32 octets"),
    "map for fields with a string key": (
        described(OPEN, "c", *[None] * 8, {"k": 1}),
        "expected a symbol as key in open.properties",
    ),
    "same key twice": (
        b"\x00\x53\x1d\xc0\x10\x03\xa3\x01c\x40\xc1\x09\x04\xa3\x01k\x40\xa3\x01k\x40",
        "error.info has the key 'k' twice",
    ),
    "list for map": (
        described(OPEN, "c", *[None] * 8, [1]),
        "expected map for open.properties, but found list",
    ),
    "list for error": (described(CLOSE, [Symbol("x")]), "expected error for close.error, but found list"),
    "outcome for error": (described(CLOSE, Accepted()), "expected error for close.error, but found accepted"),
    "unknown composite for error": (
        described(CLOSE, Described(Ulong(99), [])),
        "expected error for close.error",
    ),
    "error without condition": (
        described(CLOSE, Described(Ulong(0x1D), [])),
        "mandatory field condition in error",
    ),
    "string for source": (
        described(ATTACH, "l", Uint(0), True, None, None, "q"),
        "expected a type that provides source for attach.source, but found string",
    ),
    "target for source": (
        described(ATTACH, "l", Uint(0), True, None, None, Target()),
        "expected a type that provides source for attach.source, but found target",
    ),
    "received for outcome": (
        described(0x34, b"t", Received(section_number=0, section_offset=0)),
        "expected a type that provides outcome for transactional-state.outcome, but found received",
    ),
    "symbol for address": (
        described(0x29, Symbol("q")),
        "expected string for target.address, but found symbol",
    ),
    "uint for message-id": (described(0x73, Uint(1)), "expected ulong or uuid or binary or string"),
    "array of strings for symbols": (
        described(0x30, Array("string", ["a"])),
        "expected an array of symbol for coordinator.capabilities, but found one of string",
    ),
    "described symbols": (
        described(0x30, Array("symbol", [Symbol("a")], (Symbol("x"),))),
        "expected an array of symbol for coordinator.capabilities",
    ),
    "string for symbols": (described(0x30, "a"), "expected symbol or an array of symbol for coordinator.cap"),
    "no mechanisms": (
        described(0x40, Array("symbol", [])),
        "at least one value for sasl-mechanisms.sasl-server",
    ),
    "list longer than its fields": (bytes.fromhex("00 53 18 c0 03 01 40 40"), "by its 1 fields, but at byte"),
    "list longer than the data": (bytes.fromhex("00 53 18 c0 09 01 40"), "says 9 octets"),
    "map that covers the next field": (
        bytes.fromhex("00 53 12 c0 0d 09 a1 00 43 41 40 40 40 40 c1 02 00 41"),
        "map in attach.unsettled ends at byte 17 by its count, but at byte 18 by its size",
    ),
    "field beyond the list": (bytes.fromhex("00 53 15 c0 03 02 41 70 00 00 00 07"), "by its 2 fields"),
    "field beyond the data": (bytes.fromhex("00 53 15 c0 04 02 41 70 00"), "cut off at byte 9"),
    "fewer fields than the count": (bytes.fromhex("00 53 15 c0 02 02 41"), "cut off at byte 7"),
}


@pytest.mark.parametrize("name", INVALID)
def test_errors_say_what_was_expected_and_what_came(name: str) -> None:
    """Each violation is a DecodeError that names composite and field."""
    data, message = INVALID[name]
    with pytest.raises(DecodeError, match=message):
        decode_composite(data)


def test_choices_have_their_own_condition() -> None:
    """A value outside a closed set is an invalid field, all else a decode error."""
    with pytest.raises(DecodeError) as caught:
        decode_composite(INVALID["choice that is none"][0])
    assert caught.value.condition == "amqp:invalid-field"
    with pytest.raises(DecodeError) as caught:
        decode_composite(INVALID["wrong type"][0])
    assert caught.value.condition == "amqp:decode-error"


def test_the_longest_delivery_tag() -> None:
    """32 octets are allowed, in both encodings; the empty tag, too."""
    for tag in (b"", b"x" * DELIVERY_TAG_OCTETS_MAX):
        short = described(TRANSFER, Uint(0), Uint(0), tag)
        assert decode_composite(short)[0].delivery_tag == tag
    body = b"\x43\x43\xb0" + (32).to_bytes(4, "big") + b"y" * 32
    assert (
        decode_composite(b"\x00\x53\x14\xc0" + bytes((len(body) + 1, 3)) + body)[0].delivery_tag == b"y" * 32
    )


def test_multiple_takes_one_value_many_and_none() -> None:
    """A lone symbol is one value; null and the empty array are absence (1.4)."""
    for field, wanted in (
        (Symbol("a"), ("a",)),
        (Array("symbol", [Symbol("a"), Symbol("b")]), ("a", "b")),
        (Array("symbol", []), None),
        (None, None),
    ):
        assert decode_composite(described(0x30, field))[0] == Coordinator(capabilities=wanted)
    assert decode_composite(described(0x40, Symbol("PLAIN")))[0] == SaslMechanisms(
        sasl_server_mechanisms=("PLAIN",)
    )


def test_composites_inside_composites() -> None:
    """States, outcomes, termini and policies are found where the standard puts them."""
    state = TransactionalState(txn_id=b"1", outcome=Rejected(error=Error(condition="amqp:not-found")))
    source = Source(
        address="q",
        default_outcome=Modified(delivery_failed=True, message_annotations={"x": Long(1)}),
        dynamic_node_properties={"lifetime-policy": DeleteOnClose()},
        filter={"f": Described(Symbol("x:selector"), "a = 1")},
    )
    attach = Attach(
        name="l",
        handle=1,
        role=False,
        source=source,
        target=Coordinator(capabilities=("amqp:local-transactions",)),
        unsettled={b"1": state, b"2": None, b"3": Received(section_number=1, section_offset=2)},
    )
    assert decode_composite(encode_composite(attach))[0] == attach


def test_types_of_others_stay_described() -> None:
    """An unknown descriptor in a field of type * gives a Described."""
    own = Described(Ulong(1 << 32 | 7), [True])
    transfer, _ = decode_composite(described(TRANSFER, Uint(0), None, None, None, None, None, None, own))
    assert transfer == Transfer(handle=0, state=own)
    attach, _ = decode_composite(described(ATTACH, "l", Uint(0), True, None, None, own, own))
    assert (attach.source, attach.target) == (own, own)
    assert decode_composite(described(0x29, Described(Symbol("x"), "q")))[0].address == Described(
        Symbol("x"), "q"
    )


def test_message_ids_keep_their_type() -> None:
    """A ulong id is no string and no binary."""
    for identity in (Ulong(7), "7", b"7"):
        found, _ = decode_composite(described(0x73, identity))
        assert found == Properties(message_id=identity)
        assert type(found.message_id) is type(identity)


def test_values_in_a_performative_are_bounded() -> None:
    """1,024 values with the list and its fields; the next one is refused."""
    fields = [Uint(0), Uint(0), Uint(0), Uint(0), *[None] * 6]
    # One for the list, eleven for the fields, one for the map, two for each pair.
    pairs = (PERFORMATIVE_NODES_MAX - 13) // 2
    most = {Symbol(str(n)): None for n in range(pairs)}
    flow, _ = decode_composite(described(FLOW, *fields, most))
    assert len(flow.properties) == pairs
    with pytest.raises(DecodeError, match="too many values"):
        decode_composite(described(FLOW, *fields, {**most, Symbol("x"): None, Symbol("y"): None}))
    with pytest.raises(DecodeError, match="too many values"):
        decode_composite(described(FLOW, *fields, {Symbol("x"): [None] * PERFORMATIVE_NODES_MAX}))


def test_depth_within_a_performative_is_bounded() -> None:
    """A bomb in a map of an open, in an unsettled map, and behind descriptors."""
    bomb = b"\x45"
    for _ in range(2_000):
        bomb = b"\xd0" + (len(bomb) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + bomb
    entry = b"\xa3\x01k" + bomb
    info = b"\xd1" + (len(entry) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x02" + entry
    body = b"\xa3\x01c\x40" + info
    with pytest.raises(DecodeError, match="deeper than DEPTH_MAX"):
        decode_composite(
            b"\x00\x53\x1d\xd0" + (len(body) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x03" + body
        )
    state = b"\x00\x53\x34\xc0" + bytes((4 + 300 % 256, 2)) + b"\xa0\x01t"
    chain = described(DISPOSITION, True, Uint(0), None, None)[:-1] + state * 1_000
    with pytest.raises(DecodeError):
        decode_composite(chain)


@examples(1_000)
@given(strategies.mutated(strategies.composites().map(encode_composite)))
def test_mutations_raise_nothing_but_decode_errors(data: bytes) -> None:
    """Damaged composites decode to something that can be encoded, or raise DecodeError."""
    try:
        value, offset = decode_composite(data)
    except DecodeError as error:
        assert error.condition in ("amqp:decode-error", "amqp:invalid-field")
        assert len(error.description) < 1_000
        return
    assert offset <= len(data)
    assert decode_composite(encode_composite(value))[0] == value
    assert len(repr(value)) <= 256


@given(strategies.composites(), st.data())
def test_no_cut_composite_decodes(value: Any, data: st.DataObject) -> None:
    """A composite without its last octets is an error at every length."""
    octets = encode_composite(value)
    length = data.draw(st.integers(0, len(octets) - 1))
    with pytest.raises(DecodeError):
        decode_composite(octets[:length])


def test_composites_in_maps_of_composites_are_bounded() -> None:
    """An attach in the unsettled map of an attach, 500 times: refused, and so is one level too many."""
    attach = b"\x00\x53\x12\x45"
    for _ in range(500):
        pair = b"\xa0\x00" + attach
        unsettled = b"\xd1" + (len(pair) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x02" + pair
        body = b"\xa1\x00\x43\x41\x40\x40\x40\x40" + unsettled
        attach = b"\x00\x53\x12\xd0" + (len(body) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x08" + body
    with pytest.raises(DecodeError, match="deeper than DEPTH_MAX"):
        decode_composite(attach)
    accepted = DECLARATIONS[Accepted]
    assert read_composite(Decoder(b"\x45", 0, 9), accepted, 1, 2) == Accepted()
    with pytest.raises(DecodeError, match="deeper than DEPTH_MAX"):
        read_composite(Decoder(b"\x45", 0, 9), accepted, 1, 1)


def test_channel_numbers_have_two_octets() -> None:
    """A ushort field takes ushort only, and gives a plain int."""
    begin, _ = decode_composite(described(BEGIN, Ushort(7), Uint(0), Uint(1), Uint(2)))
    assert begin == Begin(remote_channel=7, next_outgoing_id=0, incoming_window=1, outgoing_window=2)
    assert type(begin.remote_channel) is int


def test_a_flow_of_a_client() -> None:
    """A flow with the fields in the encodings that clients choose."""
    data = bytes.fromhex("00 53 13 c0 11 0a 43 52 ff 43 70 7f ff ff ff 43 43 52 64 43 42 41")
    assert decode_composite(data)[0] == Flow(
        next_incoming_id=0,
        incoming_window=255,
        next_outgoing_id=0,
        outgoing_window=2147483647,
        handle=0,
        delivery_count=0,
        link_credit=100,
        available=0,
        drain=False,
        echo=True,
    )
