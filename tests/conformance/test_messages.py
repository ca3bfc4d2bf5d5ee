"""Messages and octets by hand: what the scenarios build is what they mean."""

from amqp_broker.conformance.messages import (
    APPLICATION_PROPERTIES,
    FOOTER,
    HEADER,
    bare_octets,
    data,
    header_of,
    map_of,
    properties_of,
    section,
    split_sections,
)
from amqp_broker.conformance.octets import (
    array8,
    array32,
    binary8,
    described,
    described_symbol,
    described_ulong,
    frame,
    list8,
    list32,
    map8,
    map32,
    smalluint,
    string8,
    string32,
    symbol8,
    symbol32,
    uint,
    uint0,
    ushort,
)
from amqp_broker.conformance.scenarios.types import ONE_OF_EACH
from amqp_broker.frames import Begin, Header, Properties, Symbol, decode_value, encode_composite, encode_frame


def _value(octets: bytes) -> object:
    value, end = decode_value(octets)
    assert end == len(octets)
    return value


def test_encodings_of_one_value_are_equal() -> None:
    """Each pair of encodings by hand stands for the same value."""
    assert _value(uint0()) == _value(smalluint(0)) == _value(uint(0))
    assert _value(string8("é")) == _value(string32("é")) == "é"
    assert _value(symbol8("s")) == _value(symbol32("s")) == Symbol("s")
    assert _value(list8(uint0(), string8("x"))) == _value(list32(uint(0), string32("x")))
    assert _value(map8(string8("k"), uint0())) == _value(map32(string8("k"), uint0()))
    assert _value(array8(0x50, b"\x01", b"\x02")) == _value(array32(0x50, b"\x01", b"\x02"))
    assert _value(described(5, binary8(b"x"))) == _value(described_ulong(5, binary8(b"x")))
    assert _value(described_symbol("a:b", ushort(1))) != _value(described(5, ushort(1)))


def test_one_of_each_is_one_of_each() -> None:
    """The list of all encodings holds every constructor of the standard, and each is decoded."""
    assert len({octets[0] for octets in ONE_OF_EACH}) == 39 + 1
    for octets in ONE_OF_EACH:
        _value(octets)


def test_a_frame_by_hand_is_a_frame() -> None:
    """Without lies, a frame by hand equals the codec's."""
    header = encode_composite(Header(durable=True))
    assert frame(header)[:8] == (8 + len(header)).to_bytes(4, "big") + b"\x02\x00\x00\x00"
    assert frame(b"", channel=3) == b"\x00\x00\x00\x08\x02\x00\x00\x03"
    begin = Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
    assert encode_frame(5, begin) == frame(encode_composite(begin), channel=5)


def test_a_message_is_taken_apart_without_loss() -> None:
    """Sections keep their octets; the bare message leaves out header, annotations and footer."""
    head = encode_composite(Header(priority=7, delivery_count=2))
    bare = (
        encode_composite(Properties(subject="s")) + section(APPLICATION_PROPERTIES, {"a": 1}) + data(b"body")
    )
    payload = head + bare + section(FOOTER, {Symbol("x-opt-f"): 1})
    assert b"".join(octets for _, octets in split_sections(payload)) == payload
    assert [code for code, _ in split_sections(payload)][:1] == [HEADER]
    assert bare_octets(payload) == bare
    assert header_of(payload) == Header(priority=7, delivery_count=2)
    assert header_of(data(b"")) == Header()
    properties = properties_of(payload)
    assert properties is not None and properties.subject == "s"
    assert properties_of(data(b"")) is None
    assert list(map_of(payload, APPLICATION_PROPERTIES)) == ["a"]
    assert map_of(data(b""), FOOTER) == {}
