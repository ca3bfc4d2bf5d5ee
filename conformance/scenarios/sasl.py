"""The SASL layer (5.3): headers, mechanisms, success, failure, and what is out of order."""

from contextlib import suppress
from typing import Any

from amqp_broker.conformance.broker import Broker
from amqp_broker.conformance.dialogue import Peer
from amqp_broker.conformance.octets import array8, binary8, described, frame, list8, symbol8
from amqp_broker.conformance.outcomes import NotApplicable, Unexpected, expect
from amqp_broker.conformance.scenario import Case, cases, scenario
from amqp_broker.conformance.transcript import describe
from amqp_broker.frames import AMQP_HEADER, SASL_HEADER, Begin, Open
from amqp_broker.frames.sasl import SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse

SASL_INIT = 0x41

SILENT_AFTER_S = 1.0
"""When a broker counts as silent that has to answer nothing: late octets are judged where they must come."""

OVERSIZED = described(
    SASL_INIT,
    b"\xd0" + (620).to_bytes(4, "big") + (2).to_bytes(4, "big")
    + symbol8("ANONYMOUS") + b"\xb0" + (600).to_bytes(4, "big") + bytes(600),
)  # fmt: skip
"""A sasl-init that fits into no SASL frame."""


def _connected(broker: Broker) -> Peer:
    """Returns a connection on which nothing was said, to a broker that offers SASL."""
    if not broker.findings.mechanisms:
        raise NotApplicable("the broker offers no SASL")
    return broker.connect()


def _sasl(broker: Broker) -> Peer:
    """Returns a connection on which the broker has named its mechanisms."""
    peer = _connected(broker)
    peer.send_header(SASL_HEADER)
    peer.expect_header(SASL_HEADER)
    peer.expect(SaslMechanisms)
    return peer


def _user(broker: Broker) -> str:
    """Returns the user of the URL; not applicable without one."""
    if broker.settings.address.user is None:
        raise NotApplicable("no user is given: amqp://user:password@host")
    return broker.settings.address.user


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
    expect(outcome.code != 0, "the broker let us in")
    expect(outcome.additional_data is None, "an outcome that is not ok carries additional-data")
    peer.expect_eof()
    broker.still_serves()


@scenario("5.3/header", "5.3-01", "5.3-header")
def header(broker: Broker) -> None:
    """The header of SASL is answered with the same."""
    _sasl(broker)


@scenario("5.3/other-version", "5.3-header", "2.2-07")
def other_version(broker: Broker) -> None:
    """SASL 2.0.0 is answered with a supported header, and the end."""
    peer = _connected(broker)
    peer.send_octets(b"AMQP\x03\x02\x00\x00", "header AMQP 3 2.0.0")
    expect(peer.expect_header(None).major == 1, "the broker names another version than 1.0.0")
    peer.expect_eof()


@scenario("5.3.2/mechanisms", "5.3.2-01", "5.3.3.1-not-empty", "5.3.2-03")
def mechanisms(broker: Broker) -> None:
    """The broker, as TCP server the SASL server, names its mechanisms: at least one."""
    peer = _connected(broker)
    peer.send_header(SASL_HEADER)
    peer.expect_header(SASL_HEADER)
    expect(peer.expect(SaslMechanisms).sasl_server_mechanisms, "the list of mechanisms is empty")


@scenario("5.3.1/frame-header", "5.3.1-01", "5.3.1-02", "5.3.1-03", "5.3.1-max-size")
def frame_header(broker: Broker) -> None:
    """The broker's SASL frames have DOFF 2, zeroes in octets 6 and 7, and at most 512 octets."""
    peer = _connected(broker)
    peer.send_header(SASL_HEADER)
    octets = peer.receive_octets(16)[8:]
    size = int.from_bytes(octets[:4], "big")
    if octets[4] != 2 or octets[5] != 1 or octets[6:8] != b"\x00\x00":
        raise Unexpected(f"expected DOFF 2, type 1 and zeroes, got {octets[4:8].hex(' ')}")
    expect(8 < size <= 512, f"5.3.1-max-size: a SASL frame of {size} octets")


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
    expect(frame_.performative.code == 0, f"expected ok, got {describe(frame_.performative)}")
    _goes_on(broker, peer)


@scenario("5.3.2/plain", "5.3.2-02", "5.3.3.6-ok", "5.3.3.5-01")
def plain(broker: Broker) -> None:
    """PLAIN with the right password lets us in."""
    _user(broker)
    peer = _sasl(broker)
    peer.send_sasl(broker.sasl_init())
    peer.expect(SaslOutcome, code=0)
    _goes_on(broker, peer)


@scenario("5.3.2/plain-in-two-steps", "5.3.2-02", "5.3.3.3-challenge", profile="full")
def plain_in_two_steps(broker: Broker) -> None:
    """PLAIN without an initial response: an empty challenge, then the response lets us in."""
    _user(broker)
    peer = _sasl(broker)
    peer.send_sasl(SaslInit(mechanism="PLAIN"))
    peer.expect(SaslChallenge)
    peer.send_sasl(SaslResponse(response=broker.sasl_init().initial_response or b""))
    peer.expect(SaslOutcome, code=0)
    _goes_on(broker, peer)


@cases(
    Case("5.3.3/wrong-password", "5.3.3.6-auth 5.3.3.5-unsuccessful",
         "A wrong password: an outcome that is not ok, then the end.",
         "\0{}\0wrong-password"),
    Case("5.3.3/unknown-user", "5.3.3.6-auth 5.3.3.5-unsuccessful",
         "A user that does not exist: an outcome that is not ok, then the end.",
         "\0no-such-user\0password"),
)
def _refused(broker: Broker, login: str) -> None:
    """Logs in by PLAIN as somebody who may not."""
    broker.require_mechanism("PLAIN")
    user = _user(broker)
    peer = _sasl(broker)
    peer.send_sasl(SaslInit(mechanism="PLAIN", initial_response=login.format(user).encode()))
    _fails(broker, peer)


@scenario("5.3.3/malformed-plain", "5.3.3.6-auth", "5.3.3.5-unsuccessful", "5.1-01")
def malformed_plain(broker: Broker) -> None:
    """A response of PLAIN without its separators: an outcome that is not ok, or the end."""
    broker.require_mechanism("PLAIN")
    peer = _sasl(broker)
    peer.send_sasl(SaslInit(mechanism="PLAIN", initial_response=b"no separators"))
    _ends(broker, peer)


@cases(
    Case("5.3.3/unknown-mechanism", "5.3.3.2-01 5.3.3.2-mechanism 5.1-01",
         "A mechanism that was not offered: the connection ends, as a failed authentication.",
         SaslInit(mechanism="X-NO-SUCH-MECHANISM", initial_response=b"x"), breaks="5.3.2-02"),
    Case("5.3.1/oversized", "5.3.1-max-size",
         "A SASL frame of more than 512 octets is an error: the connection ends.",
         OVERSIZED, f"a SASL frame of {len(OVERSIZED) + 8} octets", profile="full", breaks="5.3.1-max-size"),
)
def _refused_init(broker: Broker, said: Any, what: str = "") -> None:
    """Says something after the broker's mechanisms for which it ends the connection."""
    peer = _sasl(broker)
    _say(peer, said, what)
    _ends(broker, peer)


@cases(
    Case("5.3.1/not-a-sasl-body", "5.3.3.5-01",
         "A body that is no sasl-frame lets nobody in.",
         described(0x10, list8(symbol8("x"))), "open in a SASL frame", alone=True, breaks="2.3.2-01 2.2-01"),
    Case("5.3.2/response-first", "5.3.3.5-01",
         "A response before init lets nobody in.",
         SaslResponse(response=b"too early"), alone=True, breaks="5.3.2-03 2.2-01"),
    Case("5.3.2/mechanisms-from-us", "5.3.3.5-01",
         "Mechanisms from the TCP client, which is the SASL client, let nobody in.",
         described(0x40, list8(array8(0xA3, b"\x09ANONYMOUS"))),
         "sasl-mechanisms(sasl_server_mechanisms=['ANONYMOUS'])", alone=True, breaks="5.3.2-03 2.2-01"),
    Case("5.3.2/outcome-from-us", "5.3.3.5-01",
         "An outcome from the client does not let it in.",
         SaslOutcome(code=0), alone=True, breaks="5.3.2-03 2.2-01"),
    Case("5.3.2/amqp-frame-within", "5.3.3.5-01",
         "An AMQP frame within the SASL layer lets nobody in.",
         Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1), alone=True,
         breaks="2.2-01 2.4.1-01"),
    Case("5.3.2/header-instead-of-init", "5.3.3.5-01",
         "AMQP's header before the outcome lets nobody in.",
         None, alone=True, breaks="2.2-01"),
)
def _not_let_in(broker: Broker, said: Any, what: str = "") -> None:
    """Says something instead of a login, and goes on as if it had been one. The standard does not say whether
    the broker answers it.
    """
    peer = _sasl(broker)
    if said is not None:
        _say(peer, said, what)
    peer.send_header(AMQP_HEADER)
    peer.put(broker.own_open())
    _is_not_in(broker, peer)


@scenario("5.3.1/empty-frame", "5.3.1-empty", alone=True, breaks="2.3.1-small-size 2.2-01 5.3.2-03")
def empty_frame(broker: Broker) -> None:
    """An empty SASL frame is an irrecoverable error: a good login after it lets nobody in."""
    peer = _sasl(broker)
    _say(peer, b"", "an empty SASL frame")
    peer.send_sasl(broker.sasl_init())
    peer.send_header(AMQP_HEADER)
    peer.put(broker.own_open())
    _is_not_in(broker, peer)


def _say(peer: Peer, said: Any, what: str) -> None:
    if isinstance(said, bytes):
        peer.send_octets(frame(said, frame_type=1), what)
    elif isinstance(said, Begin):
        peer.put(said)
    else:
        peer.send_sasl(said)


def _is_not_in(broker: Broker, peer: Peer) -> None:
    """No outcome lets us in, and no open comes; the broker may say something else, nothing, or end."""
    with suppress(Unexpected):
        outcome = peer.expect_frame(SaslOutcome, timeout_s=SILENT_AFTER_S).performative
        assert isinstance(outcome, SaslOutcome)
        if outcome.code == 0:
            peer.expect_header(AMQP_HEADER)
    with suppress(Unexpected):
        peer.reader.expect_header()
        peer.read_until_end(timeout_s=SILENT_AFTER_S)
    expect(peer.remote_open is None, "the broker let us in")
    broker.still_serves()


@cases(
    Case("5.3.1/ignored-octets", "5.3.1-ignored",
         "Octets 6 and 7 of a SASL frame are ignored.",
         "sasl-init with 0x1234 in octets 6 and 7", channel=0x1234),
    Case("5.3.1/extended-header", "5.3.1-extended",
         "The extended header of a SASL frame is ignored.",
         "sasl-init with 4 octets of extended header", doff=3, extended=b"\xff" * 4),
)
def _init_is_read(broker: Broker, what: str, **lies: Any) -> None:
    """Logs in by a frame with something that has to be ignored."""
    peer = _sasl(broker)
    init = broker.sasl_init()
    body = described(SASL_INIT, list8(symbol8(init.mechanism), binary8(init.initial_response or b"")))
    peer.send_octets(frame(body, frame_type=1, **lies), what)
    peer.expect(SaslOutcome, code=0)
    _goes_on(broker, peer)


@scenario("5.3.3/no-header-after", "5.3.3.5-01", "2.2-10", breaks="2.2-01")
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
    peer = _connected(broker)
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
