"""Types and their encodings in what a broker must read (part 1): every encoding of a value is that value."""

import struct

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.messages import AMQP_VALUE, bare_octets
from amqp_broker.conformance.octets import (
    ATTACH,
    BEGIN,
    FALSE,
    NULL,
    OPEN,
    TRUE,
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
from amqp_broker.conformance.outcomes import Unexpected
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.wire import ANY_ERROR, Peer
from amqp_broker.frames import Attach, Begin, Open

ID = string8("conformance-types")

DECODE_ERROR = ("amqp:decode-error", "amqp:invalid-field", "amqp:connection:framing-error")
"""Conditions that say that octets cannot be decoded, or hold what must not be there."""


def _open_with(broker: Broker, body: bytes, what: str) -> Peer:
    """Returns a connection on which an open of these octets was sent."""
    peer = broker.connect()
    broker.log_in(peer)
    peer.send_octets(frame(body), what)
    return peer


def _is_open(broker: Broker, body: bytes, what: str) -> None:
    peer = _open_with(broker, body, what)
    peer.expect(Open)
    peer.begin()
    peer.close()


def _is_no_open(broker: Broker, body: bytes, what: str, *conditions: str) -> None:
    peer = _open_with(broker, body, what)
    peer.expect_close(*(conditions or DECODE_ERROR))
    broker.still_serves()


@scenario("1.3.1/symbolic-descriptor", "1.3.1-descriptor", "1.2-descriptor")
def symbolic_descriptor(broker: Broker) -> None:
    """An open with the symbolic descriptor amqp:open:list is an open."""
    _is_open(broker, described_symbol("amqp:open:list", list8(ID)), "open with a symbolic descriptor")


@scenario("1.3.1/wide-descriptor", "1.3.1-descriptor", "1.2-descriptor")
def wide_descriptor(broker: Broker) -> None:
    """An open whose descriptor is a ulong of eight octets is an open."""
    _is_open(broker, described_ulong(OPEN, list8(ID)), "open with a descriptor of 8 octets")


@scenario("1.3.1/list32", "1.2.24-compound", "1.3.1-position")
def wide_list(broker: Broker) -> None:
    """An open whose list has sizes of four octets is an open."""
    _is_open(broker, described(OPEN, list32(ID, NULL, uint(65536), ushort(255))), "open as a list32")


@scenario("1.3.1/trailing-nulls", "1.3.1-trailing", "1.3.1-position")
def trailing_nulls(broker: Broker) -> None:
    """Trailing nulls may be there, or not."""
    _is_open(broker, described(OPEN, list8(ID, *[NULL] * 9)), "open with nine trailing nulls")


@scenario("1.3.1/list0", "1.2.1-fixed", "1.3.1-trailing")
def empty_list(broker: Broker) -> None:
    """A composite without fields may be the list without data: end, and the source of an attach."""
    session = broker.session()
    source, target = described(0x28, b"\x45"), described(0x29, list8(string8(broker.queue())))
    body = list8(string8("list0"), uint0(), FALSE, NULL, NULL, source, target, NULL, NULL, uint0())
    session.peer.send_octets(frame(described(ATTACH, body)), "attach(source=source() as list0)")
    session.peer.expect(Attach, name="list0")
    session.peer.send_octets(frame(described(0x17, b"\x45")), "end() as list0")
    session.peer.expect_end()


@scenario("1.2/uint-encodings", "1.2.1-fixed", "1.2-network-order")
def uint_encodings(broker: Broker) -> None:
    """A uint is the same in no, one and four octets."""
    peer, _ = broker.opened()
    for channel, zero in enumerate((uint0(), smalluint(0), uint(0))):
        body = described(BEGIN, list8(NULL, zero, smalluint(100), uint(100)))
        peer.send_octets(frame(body, channel=channel), f"begin with next-outgoing-id as {zero.hex()}")
        peer.expect(Begin, remote_channel=channel)


@scenario("1.2/boolean-encodings", "1.2.1-fixed")
def boolean_encodings(broker: Broker) -> None:
    """A boolean is the same with and without an octet of data."""
    session = broker.session()
    target = described(0x29, list8(string8(broker.queue())))
    for handle, false in enumerate((FALSE, b"\x56\x00")):
        body = list8(
            string8(f"link-{handle}"),
            smalluint(handle),
            false,
            NULL,
            NULL,
            described(0x28, list8()),
            target,
            NULL,
            b"\x56\x00",
            uint0(),
        )
        session.peer.send_octets(frame(described(ATTACH, body)), f"attach with role as {false.hex()}")
        session.peer.expect(Attach, name=f"link-{handle}", role=True)


@scenario("1.2/string-encodings", "1.2.20-variable")
def string_encodings(broker: Broker) -> None:
    """A string and a symbol are the same with sizes of one and four octets."""
    body = list8(
        string32("conformance-types"), string32("host"), NULL, NULL, NULL, symbol32("en-US"), symbol8("en-US")
    )
    _is_open(broker, described(OPEN, body), "open with str32 and sym32")


@scenario("1.2/characters", "1.2.20-variable")
def characters(broker: Broker) -> None:
    """A string of several octets for each character is a string: a link's name comes back as it was."""
    broker.session().sender(broker.queue(), name="Fjärrström \N{SNOWMAN} \U0001f4e8")


@scenario("1.3/single-value", "1.3-single")
def single_value(broker: Broker) -> None:
    """A field of multiple values takes a single one without an array."""
    body = list8(ID, *[NULL] * 4, symbol8("en-US"), symbol8("en-US"), symbol8("x-one"), symbol8("x-two"))
    _is_open(broker, described(OPEN, body), "open with single symbols")


@scenario("1.3/array-values", "1.3-multiple", "1.2.27-array")
def array_values(broker: Broker) -> None:
    """A field of multiple values takes an array, with sizes of one and four octets."""
    small = array8(0xA3, b"\x05en-US", b"\x05de-DE")
    wide = array32(0xB3, b"\x00\x00\x00\x05en-US", b"\x00\x00\x00\x05de-DE")
    _is_open(broker, described(OPEN, list8(ID, *[NULL] * 4, small, wide)), "open with array8 and array32")


@scenario("1.3/empty-array", "1.3-01", "1.2.27-array")
def empty_array(broker: Broker) -> None:
    """An array without elements is the same as null."""
    body = list8(ID, *[NULL] * 4, array8(0xA3), array8(0xA3), array8(0xA3), array32(0xA3))
    _is_open(broker, described(OPEN, body), "open with empty arrays")


ONE_OF_EACH = (
    NULL,
    TRUE,
    FALSE,
    b"\x56\x01",
    b"\x50\xff",
    ushort(65535),
    uint(1),
    smalluint(1),
    uint0(),
    b"\x80" + bytes(8),
    b"\x53\x07",
    b"\x44",
    b"\x51\x80",
    b"\x61\x80\x00",
    b"\x71\x80\x00\x00\x00",
    b"\x54\xff",
    b"\x81" + b"\xff" * 8,
    b"\x55\xff",
    b"\x72" + struct.pack(">f", 1.5),
    b"\x82" + struct.pack(">d", -1.5),
    b"\x74" + bytes(4),
    b"\x84" + bytes(8),
    b"\x94" + bytes(16),
    b"\x73\x00\x01\xf4\xe8",
    b"\x83" + struct.pack(">q", 1311704463521),
    b"\x98" + bytes(range(16)),
    binary8(b"\x00\xff"),
    b"\xb0\x00\x00\x00\x01\x00",
    string8("s"),
    string32("s"),
    symbol8("y"),
    symbol32("y"),
    b"\x45",
    list8(TRUE, list8()),
    list32(NULL),
    map8(symbol8("k"), TRUE),
    map32(string8("k"), map8()),
    array8(0x50, b"\x01", b"\x02"),
    array32(0xA1, b"\x01a", b"\x00"),
    array8(0x41, b"", b""),
    described(0x7F, string8("of an unknown kind")),
    described_symbol("x:y:list", list8(TRUE)),
)
"""A value in each encoding of part 1."""


@scenario("1.2/every-type-in-properties", "1.2.1-fixed", "1.2.20-variable", "1.2.24-compound", "1.2.27-array")
def every_type_in_properties(broker: Broker) -> None:
    """The properties of an open may hold a value in each encoding of the standard."""
    items = []
    for number, value in enumerate(ONE_OF_EACH):
        items += [symbol8(f"x-{number}"), value]
    body = described(OPEN, list32(ID, *[NULL] * 8, map32(*items)))
    _is_open(broker, body, f"open with {len(ONE_OF_EACH)} properties, one for each encoding")


@scenario(
    "1.2/every-type-in-a-body", "3.2-01", "1.2.1-fixed", "1.2.20-variable", "1.2.24-compound", "1.2.27-array"
)
def every_type_in_a_body(broker: Broker) -> None:
    """A message whose value holds each encoding of the standard comes octet for octet."""
    session = broker.session()
    payload = described(AMQP_VALUE, list32(*ONE_OF_EACH))
    session.sender(broker.queue()).put([payload])
    delivery = session.receiver(broker.queue(), credit=1).receive()
    if bare_octets(delivery.payload) != payload:
        raise Unexpected("the value came in other octets")


@scenario("1.2.26/odd-map", "1.2.26-01", "2.8.15-decode-error")
def odd_map(broker: Broker) -> None:
    """A map of three items is refused with an error."""
    bad = map8(symbol8("a"), TRUE, symbol8("b"))
    _is_no_open(broker, described(OPEN, list8(ID, *[NULL] * 8, bad)), "open with a map of three items")


@scenario("1.2.26/key-twice", "1.2.26-identical-keys", "2.8.15-decode-error")
def key_twice(broker: Broker) -> None:
    """A map with two identical keys is invalid, and refused with an error."""
    bad = map8(symbol8("a"), TRUE, symbol8("a"), FALSE)
    _is_no_open(broker, described(OPEN, list8(ID, *[NULL] * 8, bad)), "open with a key twice")


@scenario("1.3/mandatory-multiple", "1.3-02", profile="full")
def mandatory_multiple(broker: Broker) -> None:
    """A value where the field's type is another is refused with an error: container-id as a uint."""
    _is_no_open(broker, described(OPEN, list8(uint(5))), "open(container_id=5)")


@scenario("1.2/unknown-constructor", "1.2.1-fixed", "2.8.15-decode-error")
def unknown_constructor(broker: Broker) -> None:
    """A constructor that the standard does not know is refused with an error."""
    _is_no_open(broker, described(OPEN, list8(ID, b"\x5f\x00")), "open with constructor 0x5f", ANY_ERROR)


@scenario("1.2/string-beyond-the-frame", "1.2.20-variable", "2.8.15-decode-error")
def string_beyond_the_frame(broker: Broker) -> None:
    """A string that says that it is longer than its frame is refused with an error."""
    bad = b"\xb1\x7f\xff\xff\xffname"
    _is_no_open(broker, described(OPEN, list8(bad)), "open with a string of 2 GiB", ANY_ERROR)


@scenario("1.2/not-utf8", "1.2.20-variable", "2.8.15-decode-error")
def not_utf8(broker: Broker) -> None:
    """A string that is no UTF-8 is refused with an error."""
    _is_no_open(broker, described(OPEN, list8(b"\xa1\x02\xff\xfe")), "open with ff fe as a string", ANY_ERROR)


@scenario("1.2/list-size-lies", "1.2.24-compound", "2.8.15-decode-error")
def list_size_lies(broker: Broker) -> None:
    """A list whose size does not fit its items is refused with an error."""
    good = list8(ID)
    bad = bytes([good[0], good[1] + 40]) + good[2:]
    _is_no_open(broker, described(OPEN, bad), "open whose list is 40 octets too large", ANY_ERROR)
