"""Protocol headers (2.2): what is asked for, what is answered, and when the broker closes."""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Peer
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected
from amqp_broker.conformance.scenario import Case, cases, scenario
from amqp_broker.frames import AMQP_HEADER, SASL_HEADER, TLS_HEADER, Open


@scenario("2.2/supported-version", "2.2-01", "2.2-06", "2.2-02")
def supported_version(broker: Broker) -> None:
    """A supported version is answered with the same header, before any frame."""
    peer = broker.logged_in()
    peer.put(broker.own_open())
    peer.expect(Open)


@scenario("2.2/bare-header", "2.2-06", "2.2-11")
def bare_header(broker: Broker) -> None:
    """AMQP without a security layer is accepted, or answered with an acceptable protocol id and the end."""
    peer = broker.connect()
    peer.send_header(AMQP_HEADER)
    header = peer.expect_header(None)
    if header.protocol_id == 0:
        peer.put(broker.own_open())
        peer.expect_frame(Open, object)
    elif header.protocol_id in (2, 3):
        peer.expect_eof()
    else:
        raise Unexpected(f"expected protocol id 0, 2 or 3, got {header.protocol_id}")


@cases(
    Case("2.2/higher-major", "2.2-07 2.2-03",
         "Version 2.0.0 is answered with a supported version, then the socket is closed.",
         b"AMQP\x00\x02\x00\x00", "header AMQP 0 2.0.0"),
    Case("2.2/highest-below", "2.2-08 2.2-09",
         "Asked for 1.1.0, the broker answers 1.0.0: the highest that is not above it.",
         b"AMQP\x00\x01\x01\x00", "header AMQP 0 1.1.0", supported=b"\x01\x00\x00"),
    Case("2.2/higher-revision", "2.2-07 2.2-03",
         "Revision 1.0.1 is another version, and refused.",
         b"AMQP\x00\x01\x00\x01", "header AMQP 0 1.0.1"),
    Case("2.2/lower-version", "2.2-07 2.2-09",
         "Version 0.1.0, which never was, is answered with a supported version.",
         b"AMQP\x00\x00\x01\x00", "header AMQP 0 0.1.0"),
    Case("2.2/not-amqp", "2.2-10",
         "A client of HTTP gets a valid protocol header, then the end.",
         b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "a request of HTTP"),
    Case("2.2/zeroes", "2.2-10",
         "Eight zero octets get a valid protocol header, then the end.",
         bytes(8), "8 octets of zero", breaks="2.3.1-small-size"),
    Case("2.2/unknown-protocol-id", "2.2-11",
         "Protocol id 9 is answered with an acceptable protocol id, then the socket is closed.",
         b"AMQP\x09\x01\x00\x00", "header AMQP 9 1.0.0"),
)
def _refused(broker: Broker, octets: bytes, what: str, *, supported: bytes | None = None) -> None:
    """Sends a header that cannot be accepted; expects another, valid one, and the end of the stream."""
    peer = broker.connect()
    peer.send_octets(octets, what)
    header = peer.expect_header(None)
    answer = bytes((header.protocol_id, header.major, header.minor, header.revision))
    if answer == octets[4:8] and octets[:4] == b"AMQP":
        raise Unexpected(f"the broker accepted {what}")
    if supported is not None and answer[1:] != supported:
        raise Unexpected(f"expected the highest version not above the requested, got {tuple(answer[1:])}")
    _expect_end(peer)
    broker.still_serves()


def _expect_end(peer: Peer) -> None:
    """Waits for the end of the stream. Frames of the broker's own version may come before it (2.2)."""
    peer.read_until_end()


@scenario("2.2/tls-protocol-id", "2.2-11", "5.2-01")
def tls_protocol_id(broker: Broker) -> None:
    """TLS is accepted where it is offered, or answered with another protocol id and the end."""
    peer = broker.connect()
    peer.send_octets(TLS_HEADER, "header AMQP 2 1.0.0")
    header = peer.expect_header(None)
    if header.protocol_id == 2:
        raise NotApplicable("the broker offers TLS inside the AMQP port; scenarios do not follow there")
    _expect_end(peer)


@scenario("2.2/octet-by-octet", "2.2-06", "2.2-wait")
def octet_by_octet(broker: Broker) -> None:
    """A header that arrives octet by octet is a header."""
    header = SASL_HEADER if broker.findings.mechanisms else AMQP_HEADER
    peer = broker.connect()
    for octet in header:
        peer.send_octets(bytes([octet]))
    peer.expect_header(header)


@scenario("2.2/half-header", "2.2-10")
def half_header(broker: Broker) -> None:
    """A client that ends within the header costs nothing: the stream ends, and the broker lives on."""
    peer = broker.connect()
    peer.send_octets(b"AMQ", "the first three octets of a header")
    peer.finish_sending()
    try:
        peer.expect_header(None)
    except Unexpected:
        broker.still_serves()
        return
    peer.expect_eof()
    broker.still_serves()
