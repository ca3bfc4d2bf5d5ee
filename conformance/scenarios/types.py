"""Types and their encodings in what a broker must read (part 1): every encoding of a value is that value."""

import struct

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Peer, Session
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
from amqp_broker.conformance.outcomes import expect
from amqp_broker.conformance.scenario import Case, cases, scenario
from amqp_broker.conformance.wire import ANY_ERROR
from amqp_broker.frames import Attach, Begin, Open

ID = string8("conformance-types")

GOOD = list8(ID)
TOO_LARGE = bytes([GOOD[0], GOOD[1] + 40]) + GOOD[2:]
"""The fields of an open, in a list that says that it has forty octets more."""

DECODE_ERROR = ("amqp:decode-error", "amqp:invalid-field", "amqp:connection:framing-error")
"""Conditions that say that octets cannot be decoded, or hold what must not be there."""


def _open_with(broker: Broker, body: bytes, what: str) -> Peer:
    """Returns a connection on which an open of these octets was sent."""
    peer = broker.logged_in()
    peer.send_octets(frame(body), what)
    return peer


def _own(name: str) -> bytes:
    """A container-id that no other scenario has: they run beside each other."""
    return string8(f"conformance-{name}")


@cases(
    Case("1.4/symbolic-descriptor", "1.4-descriptor 1.2-descriptor",
         "An open with the symbolic descriptor amqp:open:list is an open.",
         described_symbol("amqp:open:list", list8(_own("symbolic-descriptor"))),
         "open with a symbolic descriptor"),
    Case("1.4/wide-descriptor", "1.4-descriptor 1.2-descriptor",
         "An open whose descriptor is a ulong of eight octets is an open.",
         described_ulong(OPEN, list8(_own("wide-descriptor"))), "open with a descriptor of 8 octets"),
    Case("1.4/list32", "1.2.3-compound 1.4-position",
         "An open whose list has sizes of four octets is an open.",
         described(OPEN, list32(_own("list32"), NULL, uint(65536), ushort(255))), "open as a list32"),
    Case("1.4/trailing-nulls", "1.4-trailing 1.4-position",
         "Trailing nulls may be there, or not.",
         described(OPEN, list8(_own("trailing-nulls"), *[NULL] * 9)), "open with nine trailing nulls"),
    Case("1.2/string-encodings", "1.2.2-variable",
         "A string and a symbol are the same with sizes of one and four octets.",
         described(OPEN, list8(string32("conformance-string-encodings"), *[NULL] * 4,
                               symbol32("en-US"), symbol8("en-US"))),
         "open with str32 and sym32"),
    Case("1.4/single-value", "1.4-single",
         "A field of multiple values takes a single one without an array.",
         described(OPEN, list8(_own("single-value"), *[NULL] * 4, symbol8("en-US"), symbol8("en-US"),
                               symbol8("x-one"), symbol8("x-two"))),
         "open with single symbols"),
    Case("1.4/array-values", "1.4-multiple 1.2.4-array",
         "A field of multiple values takes an array, with sizes of one and four octets.",
         described(OPEN, list8(_own("array-values"), *[NULL] * 4, array8(0xA3, b"\x05en-US", b"\x05de-DE"),
                               array32(0xB3, b"\x00\x00\x00\x05en-US", b"\x00\x00\x00\x05de-DE"))),
         "open with array8 and array32"),
    Case("1.4/empty-array", "1.4-01 1.2.4-array",
         "An array without elements is the same as null.",
         described(OPEN, list8(_own("empty-array"), *[NULL] * 4, array8(0xA3), array8(0xA3), array8(0xA3),
                               array32(0xA3))),
         "open with empty arrays"),
)
def _is_open(broker: Broker, body: bytes, what: str) -> None:
    peer = _open_with(broker, body, what)
    peer.expect(Open)
    peer.begin()
    peer.close()


@scenario("1.4/list0", "1.2.1-fixed", "1.4-trailing")
def empty_list(broker: Broker, session: Session) -> None:
    """A composite without fields may be the list without data: end, and the source of an attach."""
    source, target = described(0x28, b"\x45"), described(0x29, list8(string8(broker.queue())))
    body = list8(string8("list0"), uint0(), FALSE, NULL, NULL, source, target, NULL, NULL, uint0())
    session.peer.send_octets(frame(described(ATTACH, body)), "attach(source=source() as list0)")
    session.peer.expect(Attach, name="list0")
    session.peer.send_octets(frame(described(0x17, b"\x45")), "end() as list0")
    session.peer.expect_end()


@scenario("1.2/uint-encodings", "1.2.1-fixed", "1.2-network-order")
def uint_encodings(peer: Peer) -> None:
    """A uint is the same in no, one and four octets."""
    for channel, zero in enumerate((uint0(), smalluint(0), uint(0))):
        body = described(BEGIN, list8(NULL, zero, smalluint(100), uint(100)))
        peer.send_octets(frame(body, channel=channel), f"begin with next-outgoing-id as {zero.hex()}")
        peer.expect(Begin, remote_channel=channel)


@scenario("1.2/boolean-encodings", "1.2.1-fixed")
def boolean_encodings(broker: Broker, session: Session) -> None:
    """A boolean is the same with and without an octet of data."""
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


@scenario("1.2/characters", "1.2.2-variable")
def characters(broker: Broker) -> None:
    """A string of several octets for each character is a string: a link's name comes back as it was."""
    broker.session().sender(broker.queue(), name="Fjärrström \N{SNOWMAN} \U0001f4e8")


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
    described(0x7F, string8("of an unknown kind")),
    described_symbol("x:y:list", list8(TRUE)),
)
"""A value in each encoding of part 1."""


@scenario("1.2/every-type-in-properties", "1.2.1-fixed", "1.2.2-variable", "1.2.3-compound", "1.2.4-array")
def every_type_in_properties(broker: Broker) -> None:
    """The properties of an open may hold a value in each encoding of the standard."""
    half = len(ONE_OF_EACH) // 2  # an open has 512 octets: nothing larger is agreed on before it (2.4.1)
    for values in (ONE_OF_EACH[:half], ONE_OF_EACH[half:]):
        items = []
        for number, value in enumerate(values):
            items += [symbol8(f"x-{number}"), value]
        body = described(OPEN, list32(ID, *[NULL] * 8, map32(*items)))
        _is_open(broker, body, f"open with {len(values)} properties, each in another encoding")


@scenario(
    "1.2/every-type-in-a-body", "3.2-01", "1.2.1-fixed", "1.2.2-variable", "1.2.3-compound", "1.2.4-array"
)
def every_type_in_a_body(broker: Broker, session: Session) -> None:
    """A message whose value holds each encoding of the standard comes octet for octet."""
    payload = described(AMQP_VALUE, list32(*ONE_OF_EACH))
    session.sender(broker.queue()).put([payload])
    delivery = session.receiver(broker.queue(), credit=1).receive()
    expect(bare_octets(delivery.payload) == payload, "the value came in other octets")


@cases(
    Case("1.6.23/odd-map", "2.4.3-01",
         "A map of three items: a broker that refuses it says why.",
         described(OPEN, list8(ID, *[NULL] * 8, map8(symbol8("a"), TRUE, symbol8("b")))),
         "open with a map of three items", breaks="2.3.2-01 2.4.1-01"),
    Case("1.2/unknown-constructor", "2.4.3-01",
         "A constructor that the standard does not know: a broker that refuses it says why.",
         described(OPEN, list8(ID, b"\x5f\x00")), "open with constructor 0x5f",
         breaks="2.3.2-01 2.4.1-01"),
    Case("1.2/string-beyond-the-frame", "2.4.3-01",
         "A string that says that it is longer than its frame: a broker that refuses it says why.",
         described(OPEN, list8(b"\xb1\x7f\xff\xff\xffname")), "open with a string of 2 GiB",
         breaks="2.3.2-01 2.4.1-01"),
    Case("1.2/list-size-lies", "2.4.3-01",
         "A list whose size does not fit its items: a broker that refuses it says why.",
         described(OPEN, TOO_LARGE), "open whose list is 40 octets too large", breaks="2.3.2-01 2.4.1-01"),
)
def _is_refused_with_a_word(broker: Broker, body: bytes, what: str) -> None:
    _open_with(broker, body, what).expect_error_if_any()
    broker.still_serves()


@cases(
    Case("1.6.23/key-twice", "1.6.23-identical-keys 2.8.15-decode-error",
         "A map with two identical keys is invalid, and refused with an error.",
         described(OPEN, list8(ID, *[NULL] * 8, map8(symbol8("a"), TRUE, symbol8("a"), FALSE))),
         "open with a key twice", profile="full", breaks="2.3.2-01 2.4.1-01"),
    Case("1.4/mandatory-multiple", "1.4-02",
         "A value where the field's type is another is refused with an error: container-id as a uint.",
         described(OPEN, list8(uint(5))), "open(container_id=5)", profile="full",
         breaks="2.3.2-01 2.4.1-01"),
    Case("1.6.21/not-ascii", "1.6.21-ascii 2.8.15-decode-error",
         "A symbol with an octet above 7f is refused with an error.",
         described(OPEN, list8(ID, *[NULL] * 4, b"\xa3\x02\xc3\xa9")), "open with c3 a9 as a symbol",
         ANY_ERROR, profile="full", breaks="2.3.2-01 2.4.1-01"),
    Case("1.2/not-utf8", "1.2.2-variable 2.8.15-decode-error",
         "A string that is no UTF-8 is refused with an error.",
         described(OPEN, list8(b"\xa1\x02\xff\xfe")), "open with ff fe as a string", ANY_ERROR,
         profile="full", breaks="2.3.2-01 2.4.1-01"),
)
def _is_no_open(broker: Broker, body: bytes, what: str, *conditions: str) -> None:
    peer = _open_with(broker, body, what)
    peer.expect_close(*(conditions or DECODE_ERROR))
    broker.still_serves()
