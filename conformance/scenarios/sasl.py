"""The SASL layer (5.3): headers, mechanisms, success, failure, and what is out of order."""

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.octets import array8, binary8, described, frame, list8, symbol8
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected
from amqp_broker.conformance.scenario import scenario
from amqp_broker.conformance.transcript import describe
from amqp_broker.conformance.wire import Peer
from amqp_broker.frames import (
    AMQP_HEADER,
    SASL_HEADER,
    Begin,
    Open,
    SaslChallenge,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)

SASL_INIT = 0x41


def _sasl(broker: Broker) -> Peer:
    """Returns a connection on which the broker has named its mechanisms."""
    if not broker.findings.mechanisms:
        raise NotApplicable("the broker offers no SASL")
    peer = broker.connect()
    peer.send_header(SASL_HEADER)
    peer.expect_header(SASL_HEADER)
    peer.expect(SaslMechanisms)
    return peer


def _goes_on(broker: Broker, peer: Peer) -> None:
    """After a good outcome: AMQP's header and open."""
    peer.send_header(AMQP_HEADER)
    peer.expect_header(AMQP_HEADER)
    peer.put(broker.own_open())
    peer.expect(Open)
    peer.close()


def _ends(broker: Broker, peer: Peer) -> None:
    """The broker ends the connection, perhaps after an outcome that is not ok; and lives on."""
    for performative in peer.read_until_end():
        if isinstance(performative, SaslOutcome) and performative.code != 0:
            continue
        raise Unexpected(f"expected the end of the connection, got {describe(performative)}")
    broker.still_serves()


def _fails(broker: Broker, peer: Peer) -> None:
    """The broker answers with an outcome that is not ok, then ends the connection."""
    frame_ = peer.expect_frame(SaslOutcome, SaslChallenge)
    while isinstance(frame_.performative, SaslChallenge):
        peer.send_sasl(SaslResponse(response=b""))
        frame_ = peer.expect_frame(SaslOutcome, SaslChallenge)
    outcome = frame_.performative
    if outcome.code == 0:
        raise Unexpected("the broker let us in")
    if outcome.additional_data is not None:
        raise Unexpected("an outcome that is not ok carries additional-data")
    peer.expect_eof()
    broker.still_serves()


@scenario("5.3/header", "5.3-01", "5.3-header")
def header(broker: Broker) -> None:
    """The header of SASL is answered with the same."""
    _sasl(broker)


@scenario("5.3/other-version", "5.3-header", "2.2-07")
def other_version(broker: Broker) -> None:
    """SASL 2.0.0 is answered with a supported header, and the end."""
    if not broker.findings.mechanisms:
        raise NotApplicable("the broker offers no SASL")
    peer = broker.connect()
    peer.send_octets(b"AMQP\x03\x02\x00\x00", "header AMQP 3 2.0.0")
    if peer.expect_header(None).major != 1:
        raise Unexpected("the broker names another version than 1.0.0")
    peer.expect_eof()


@scenario("5.3.2/mechanisms", "5.3.2-01", "5.3.3.1-not-empty", "5.3.2-03")
def mechanisms(broker: Broker) -> None:
    """The broker, as TCP server the SASL server, names its mechanisms: at least one."""
    if not broker.findings.mechanisms:
        raise NotApplicable("the broker offers no SASL")
    peer = broker.connect()
    peer.send_header(SASL_HEADER)
    peer.expect_header(SASL_HEADER)
    if not peer.expect(SaslMechanisms).sasl_server_mechanisms:
        raise Unexpected("the list of mechanisms is empty")


@scenario("5.3.1/frame-header", "5.3.1-01", "5.3.1-02", "5.3.1-03", "5.3.1-max-size")
def frame_header(broker: Broker) -> None:
    """The broker's SASL frames have DOFF 2, zeroes in octets 6 and 7, and at most 512 octets."""
    if not broker.findings.mechanisms:
        raise NotApplicable("the broker offers no SASL")
    peer = broker.connect()
    peer.send_header(SASL_HEADER)
    octets = peer.receive_octets(16)[8:]
    size = int.from_bytes(octets[:4], "big")
    if octets[4] != 2 or octets[5] != 1 or octets[6:8] != b"\x00\x00":
        raise Unexpected(f"expected DOFF 2, type 1 and zeroes, got {octets[4:8].hex(' ')}")
    if not 8 < size <= 512:
        raise Unexpected(f"5.3.1-max-size: a SASL frame of {size} octets")


@scenario("5.3.2/anonymous", "5.3.2-02", "5.3.3.6-ok", "5.3.3.5-01", "5.3.3.1-01")
def anonymous(broker: Broker) -> None:
    """ANONYMOUS, where it is offered, lets us in; then headers are exchanged again."""
    broker.require_mechanism("ANONYMOUS")
    peer = _sasl(broker)
    peer.send_sasl(SaslInit(mechanism="ANONYMOUS", initial_response=b"trace"))
    peer.expect(SaslOutcome, code=0)
    _goes_on(broker, peer)


@scenario("5.3.2/anonymous-without-trace", "5.3.2-02", "5.3.3.6-ok", "5.3.3.2-03")
def anonymous_without_trace(broker: Broker) -> None:
    """ANONYMOUS without an initial response: in, or an empty challenge first."""
    broker.require_mechanism("ANONYMOUS")
    peer = _sasl(broker)
    peer.send_sasl(SaslInit(mechanism="ANONYMOUS"))
    frame_ = peer.expect_frame(SaslOutcome, SaslChallenge)
    if isinstance(frame_.performative, SaslChallenge):
        peer.send_sasl(SaslResponse(response=b""))
        frame_ = peer.expect_frame(SaslOutcome)
    if frame_.performative.code != 0:
        raise Unexpected(f"expected ok, got {describe(frame_.performative)}")
    _goes_on(broker, peer)


@scenario("5.3.2/plain", "5.3.2-02", "5.3.3.6-ok", "5.3.3.5-01")
def plain(broker: Broker) -> None:
    """PLAIN with the right password lets us in."""
    if broker.settings.address.user is None:
        raise NotApplicable("no user is given: amqp://user:password@host")
    peer = _sasl(broker)
    peer.send_sasl(broker.sasl_init())
    peer.expect(SaslOutcome, code=0)
    _goes_on(broker, peer)


@scenario("5.3.2/plain-in-two-steps", "5.3.2-02", "5.3.3.3-challenge", profile="full")
def plain_in_two_steps(broker: Broker) -> None:
    """PLAIN without an initial response: an empty challenge, then the response lets us in."""
    if broker.settings.address.user is None:
        raise NotApplicable("no user is given: amqp://user:password@host")
    peer = _sasl(broker)
    peer.send_sasl(SaslInit(mechanism="PLAIN"))
    peer.expect(SaslChallenge)
    peer.send_sasl(SaslResponse(response=broker.sasl_init().initial_response or b""))
    peer.expect(SaslOutcome, code=0)
    _goes_on(broker, peer)


@scenario("5.3.3/wrong-password", "5.3.3.6-auth", "5.3.3.5-unsuccessful")
def wrong_password(broker: Broker) -> None:
    """A wrong password: an outcome that is not ok, then the end."""
    broker.require_mechanism("PLAIN")
    if broker.settings.address.user is None:
        raise NotApplicable("no user is given: amqp://user:password@host")
    peer = _sasl(broker)
    user = broker.settings.address.user
    peer.send_sasl(SaslInit(mechanism="PLAIN", initial_response=f"\0{user}\0wrong-password".encode()))
    _fails(broker, peer)


@scenario("5.3.3/unknown-user", "5.3.3.6-auth", "5.3.3.5-unsuccessful")
def unknown_user(broker: Broker) -> None:
    """A user that does not exist: an outcome that is not ok, then the end."""
    broker.require_mechanism("PLAIN")
    if broker.settings.address.user is None:
        raise NotApplicable("no user is given: amqp://user:password@host")
    peer = _sasl(broker)
    peer.send_sasl(SaslInit(mechanism="PLAIN", initial_response=b"\0no-such-user\0password"))
    _fails(broker, peer)


@scenario("5.3.3/malformed-plain", "5.3.3.6-auth", "5.3.3.5-unsuccessful")
def malformed_plain(broker: Broker) -> None:
    """A response of PLAIN without its separators: an outcome that is not ok, or the end."""
    broker.require_mechanism("PLAIN")
    peer = _sasl(broker)
    peer.send_sasl(SaslInit(mechanism="PLAIN", initial_response=b"no separators"))
    _ends(broker, peer)


@scenario("5.3.3/unknown-mechanism", "5.3.3.2-01", "5.3.3.2-mechanism", "5.1-01")
def unknown_mechanism(broker: Broker) -> None:
    """A mechanism that was not offered: the connection ends, as a failed authentication."""
    peer = _sasl(broker)
    peer.send_sasl(SaslInit(mechanism="X-NO-SUCH-MECHANISM", initial_response=b"x"))
    _ends(broker, peer)


@scenario("5.3.1/ignored-octets", "5.3.1-ignored")
def ignored_octets(broker: Broker) -> None:
    """Octets 6 and 7 of a SASL frame are ignored."""
    peer = _sasl(broker)
    init = broker.sasl_init()
    body = described(SASL_INIT, list8(symbol8(init.mechanism), binary8(init.initial_response or b"")))
    peer.send_octets(frame(body, frame_type=1, channel=0x1234), "sasl-init with 0x1234 in octets 6 and 7")
    peer.expect(SaslOutcome, code=0)
    _goes_on(broker, peer)


@scenario("5.3.1/extended-header", "5.3.1-extended")
def extended_header(broker: Broker) -> None:
    """The extended header of a SASL frame is ignored."""
    peer = _sasl(broker)
    init = broker.sasl_init()
    body = described(SASL_INIT, list8(symbol8(init.mechanism), binary8(init.initial_response or b"")))
    octets = frame(body, frame_type=1, doff=3, extended=b"\xff" * 4)
    peer.send_octets(octets, "sasl-init with 4 octets of extended header")
    peer.expect(SaslOutcome, code=0)
    _goes_on(broker, peer)


@scenario("5.3.1/empty-frame", "5.3.1-empty")
def empty_frame(broker: Broker) -> None:
    """An empty SASL frame is an irrecoverable error: the connection ends."""
    peer = _sasl(broker)
    peer.send_octets(frame(frame_type=1), "an empty SASL frame")
    _ends(broker, peer)


@scenario("5.3.1/oversized", "5.3.1-max-size")
def oversized(broker: Broker) -> None:
    """A SASL frame of more than 512 octets is an error: the connection ends."""
    peer = _sasl(broker)
    body = described(
        SASL_INIT,
        b"\xd0"
        + (620).to_bytes(4, "big")
        + (2).to_bytes(4, "big")
        + symbol8("ANONYMOUS")
        + b"\xb0"
        + (600).to_bytes(4, "big")
        + bytes(600),
    )
    peer.send_octets(frame(body, frame_type=1), f"a SASL frame of {len(body) + 8} octets")
    _ends(broker, peer)


@scenario("5.3.1/not-a-sasl-body", "5.3.1-03")
def not_a_sasl_body(broker: Broker) -> None:
    """A body that is no sasl-frame is an error: the connection ends."""
    peer = _sasl(broker)
    peer.send_octets(frame(described(0x10, list8(symbol8("x"))), frame_type=1), "open in a SASL frame")
    _ends(broker, peer)


@scenario("5.3.2/response-first", "5.3.2-02")
def response_first(broker: Broker) -> None:
    """A response before init is out of order: the connection ends."""
    peer = _sasl(broker)
    peer.send_sasl(SaslResponse(response=b"too early"))
    _ends(broker, peer)


@scenario("5.3.2/mechanisms-from-us", "5.3.2-03", "5.3.2-01")
def mechanisms_from_us(broker: Broker) -> None:
    """Mechanisms from the TCP client are out of order: it is the SASL client. The connection ends."""
    peer = _sasl(broker)
    octets = frame(described(0x40, list8(array8(0xA3, b"\x09ANONYMOUS"))), frame_type=1)
    peer.send_octets(octets, "sasl-mechanisms(sasl_server_mechanisms=['ANONYMOUS'])")
    _ends(broker, peer)


@scenario("5.3.2/outcome-from-us", "5.3.2-03")
def outcome_from_us(broker: Broker) -> None:
    """An outcome from the client does not let it in: the connection ends."""
    peer = _sasl(broker)
    peer.send_sasl(SaslOutcome(code=0))
    _ends(broker, peer)


@scenario("5.3.2/amqp-frame-within", "5.3.1-03", "5.3.3.5-01")
def amqp_frame_within(broker: Broker) -> None:
    """An AMQP frame within the SASL layer is an error: the connection ends."""
    peer = _sasl(broker)
    peer.put(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    _ends(broker, peer)


@scenario("5.3.2/header-instead-of-init", "5.3.2-02", "5.3.3.5-01")
def header_instead_of_init(broker: Broker) -> None:
    """AMQP's header before the outcome does not let anyone in: the connection ends."""
    peer = _sasl(broker)
    peer.send_header(AMQP_HEADER)
    peer.put(broker.own_open())
    _ends(broker, peer)


@scenario("5.3.3/no-header-after", "5.3.3.5-01", "2.2-10")
def no_header_after(broker: Broker) -> None:
    """After the outcome comes a header: an open at once cannot be parsed as one, and ends the connection."""
    peer = _sasl(broker)
    peer.send_sasl(broker.sasl_init())
    peer.expect(SaslOutcome, code=0)
    peer.put(broker.own_open())
    try:
        peer.expect_header(AMQP_HEADER)
    except Unexpected as end:
        broker.transcript.event("", str(end))
        return
    peer.expect_eof()


@scenario("5.3.2/pipelined", "2.4.2-pipelined", "5.3.3.5-01")
def pipelined(broker: Broker) -> None:
    """Header, init, header, open in one write: a client that knows its mechanism does not wait."""
    if not broker.findings.mechanisms:
        raise NotApplicable("the broker offers no SASL")
    peer = broker.connect()
    with peer.one_write():
        peer.send_header(SASL_HEADER)
        peer.send_sasl(broker.sasl_init())
        peer.send_header(AMQP_HEADER)
        peer.put(broker.own_open())
    peer.expect_header(SASL_HEADER)
    peer.expect(SaslMechanisms)
    peer.expect(SaslOutcome, code=0)
    peer.expect_header(AMQP_HEADER)
    peer.expect(Open)
