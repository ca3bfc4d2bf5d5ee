"""Protocol headers and SASL, as transcripts (2.2, 5.3)."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.frames import AMQP_HEADER, SASL_HEADER, TLS_HEADER, Open, encode_frame, encode_sasl_frame
from amqp_broker.frames.sasl import SaslChallenge, SaslInit, SaslMechanisms, SaslOutcome, SaslResponse
from amqp_broker.links import (
    Connection,
    ConnectionClosed,
    ConnectionOpened,
    ConnectionSettings,
    Event,
    LocalProtocolError,
    SaslChallengeReceived,
    SaslInitReceived,
    SaslMechanismsReceived,
    SaslOutcomeReceived,
    SaslResponseReceived,
)
from amqp_broker.links.connection_states import ConnectionState
from tests.links.pair import NOW, Pair, error_of, of_type, taken
from tests.links.raw_peer import RawPeer

INIT = encode_sasl_frame(SaslInit(mechanism="PLAIN", initial_response=b"\0user\0secret"))
RESPONSE = encode_sasl_frame(SaslResponse(response=b"answer"))


def server(**settings: Any) -> RawPeer:
    """A server that offers PLAIN."""
    return RawPeer(sasl_mechanisms=("PLAIN",), **settings)


def test_a_bare_header_is_answered_with_the_same() -> None:
    """2.2: if the requested version is supported, the server sends its own header with it."""
    peer = RawPeer()
    peer.feed(AMQP_HEADER)
    assert taken(peer.server) == AMQP_HEADER
    assert peer.server.state is ConnectionState.HDR_EXCH


UNKNOWN = [
    b"HTTP/1.1", b"AMQP\x00\x01\x01\x00", b"AMQP\x00\x00\x09\x01", b"AMQP\x01\x01\x00\x00", TLS_HEADER,
    b"\0" * 8,
]  # fmt: skip


@pytest.mark.parametrize(
    ("header", "bare", "mechanisms"),
    [(header, bare, ("PLAIN",)) for header in UNKNOWN for bare in (True, False)]
    + [(AMQP_HEADER, False, ("PLAIN",)), (SASL_HEADER, True, ())],
)
def test_a_header_that_is_not_taken_gets_one_that_is_and_the_close(
    header: bytes, bare: bool, mechanisms: tuple[str, ...]
) -> None:
    """2.2: the server MUST send a valid header with a supported version, of an acceptable protocol id, and
    then close; nothing follows.
    """
    peer = RawPeer(allow_bare_header=bare, sasl_mechanisms=mechanisms)
    events = peer.feed(header + b"noise" * 2_000)
    assert taken(peer.server) == (AMQP_HEADER if bare else SASL_HEADER)
    assert peer.server.wants_close and peer.server.state is ConnectionState.END
    assert error_of(events).condition == "amqp:connection:framing-error"


def test_silence_is_refused_after_two_seconds() -> None:
    """No complete header in time: ours, then the close."""
    peer = server(allow_bare_header=False)
    peer.feed(b"AMQ")
    assert peer.server.next_deadline() == NOW + 2
    assert peer.server.handle_timeout(NOW + 1.9) == []
    events = peer.server.handle_timeout(NOW + 2)
    assert taken(peer.server) == SASL_HEADER
    assert peer.server.wants_close
    assert error_of(events).condition == "amqp:connection:framing-error"


def test_sasl_with_a_challenge_and_then_open() -> None:
    """5.3.2: mechanisms, init, challenge, response, outcome; then a new header exchange."""
    peer = server()
    peer.feed(SASL_HEADER)
    assert peer.heard() == [SaslMechanisms(sasl_server_mechanisms=("PLAIN",))]
    (init,) = of_type(peer.feed(INIT), SaslInitReceived)
    assert (init.mechanism, init.initial_response, init.hostname) == ("PLAIN", b"\0user\0secret", None)
    peer.server.sasl_challenge(b"prove it")
    assert peer.heard() == [SaslChallenge(challenge=b"prove it")]
    (response,) = of_type(peer.feed(RESPONSE), SaslResponseReceived)
    assert response.response == b"answer"
    peer.server.sasl_outcome(0, b"fine")
    assert peer.heard() == [SaslOutcome(code=0, additional_data=b"fine")]
    events = peer.feed(AMQP_HEADER + encode_frame(0, Open(container_id="c")))
    assert taken(peer.server).startswith(AMQP_HEADER)
    assert of_type(events, ConnectionOpened)


def test_reading_stops_at_init_until_it_is_answered() -> None:
    """Everything may be pipelined behind the init; it is read after the verdict, and never before."""
    peer = server()
    told = peer.feed(SASL_HEADER + INIT + AMQP_HEADER + encode_frame(0, Open(container_id="c")))
    assert [type(event) for event in told] == [SaslInitReceived]
    assert peer.feed(b"") == []
    peer.server.sasl_outcome(0)
    assert of_type(peer.feed(b""), ConnectionOpened)


@pytest.mark.parametrize(("code", "counted"), [(1, {"login": 1}), (2, {})])
def test_a_wrong_password_ends_the_connection(code: int, counted: dict[str, int]) -> None:
    """5.3.3.6: the outcome, without additional data, and nothing is read any more. A fault of the broker (2)
    is no refusal.
    """
    peer = server()
    peer.feed(SASL_HEADER + INIT + AMQP_HEADER + encode_frame(0, Open(container_id="c")))
    peer.heard()
    peer.server.sasl_outcome(code, b"not told")
    assert peer.heard() == [SaslOutcome(code=code)]
    assert peer.server.settings.refusals.counts == counted
    assert peer.server.wants_close
    events = peer.feed(b"")
    assert [type(event) for event in events] == [ConnectionClosed]
    assert peer.heard() == []


def test_a_mechanism_that_was_not_offered() -> None:
    """5.3.3.2: an unsupported mechanism closes with the authentication-failure code."""
    peer = server()
    events = peer.feed(SASL_HEADER + encode_sasl_frame(SaslInit(mechanism="CRAM-MD5")))
    assert peer.heard()[-1] == SaslOutcome(code=1)
    assert peer.server.wants_close
    assert "PLAIN" in (error_of(events).description or "")


@pytest.mark.parametrize(
    "frames",
    [
        [RESPONSE],
        [encode_sasl_frame(SaslOutcome(code=0))],
        [encode_sasl_frame(SaslMechanisms(sasl_server_mechanisms=("PLAIN",)))],
        [encode_sasl_frame(SaslChallenge(challenge=b"x"))],
        [encode_frame(0, Open(container_id="c"))],
        [b"\x00\x00\x00\x08\x02\x01\x00\x00"],
        [b"\x00\x00\x02\x01\x02\x01\x00\x00"],
        [b"AMQP\x00\x01\x00\x00"],
    ],
)
def test_what_is_not_an_init_after_the_offer(frames: list[bytes]) -> None:
    """Out of order, from the wrong side, of the wrong type, empty, or larger than 512: the end, and no
    outcome ok.
    """
    peer = server()
    events = peer.feed(SASL_HEADER + b"".join(frames))
    assert peer.server.wants_close
    assert of_type(events, ConnectionClosed)
    assert peer.heard() == [SaslMechanisms(sasl_server_mechanisms=("PLAIN",))]


def test_a_second_init_is_out_of_order() -> None:
    """After a challenge only a response is in order."""
    peer = server()
    peer.feed(SASL_HEADER + INIT)
    peer.server.sasl_challenge(b"x")
    events = peer.feed(INIT)
    assert "out of order" in (error_of(events).description or "")
    assert peer.server.wants_close


def test_no_more_than_eight_frames_before_open() -> None:
    """The limits table: a dialogue that goes on and on is cut off."""
    peer = server()
    peer.feed(SASL_HEADER + INIT)
    for _ in range(7):
        assert not peer.server.wants_close
        peer.server.sasl_challenge(b"again")
        peer.feed(RESPONSE)
    peer.server.sasl_challenge(b"again")
    events = peer.feed(RESPONSE)
    assert peer.server.wants_close
    assert error_of(events).condition == "amqp:resource-limit-exceeded"


def test_no_more_than_16_kib_wait_before_open() -> None:
    """What is pipelined behind an unanswered init is bounded."""
    peer = server()
    peer.feed(SASL_HEADER + INIT + b"x" * 16_384)
    assert not peer.server.wants_close
    events = peer.feed(b"x")
    assert peer.server.wants_close
    assert error_of(events).condition == "amqp:resource-limit-exceeded"


def test_secrets_are_not_printed() -> None:
    """No initial response, challenge, response or outcome data in a repr."""
    events: list[Event] = [
        SaslInitReceived("PLAIN", b"hunter2", None),
        SaslChallengeReceived(b"hunter2"),
        SaslResponseReceived(b"hunter2"),
        SaslOutcomeReceived(0, b"hunter2"),
    ]
    assert not any("hunter2" in repr(event) for event in events)


def test_the_callers_mistakes_are_local_errors() -> None:
    """An answer that nobody asked for is our caller's fault; nothing is written."""
    engine = Connection(ConnectionSettings(), NOW)
    with pytest.raises(LocalProtocolError):
        engine.sasl_outcome(0)
    with pytest.raises(LocalProtocolError):
        engine.sasl_challenge(b"x")
    with pytest.raises(LocalProtocolError):
        engine.sasl_init("PLAIN")
    with pytest.raises(LocalProtocolError):
        engine.open()
    assert taken(engine) == b""


def test_a_client_with_a_challenge() -> None:
    """The client's side: offer, choice, challenge, response, outcome, and open follows by itself."""
    pair = Pair({"sasl": True}, {"sasl_mechanisms": ("SCRAM-SHA-256",), "allow_bare_header": False})
    pair.client.open()
    pair.server.receive_data(taken(pair.client), NOW)
    (offer,) = pair.client.receive_data(taken(pair.server), NOW)
    assert isinstance(offer, SaslMechanismsReceived) and offer.mechanisms == ("SCRAM-SHA-256",)
    pair.client.sasl_init("SCRAM-SHA-256", b"first")
    pair.server.receive_data(taken(pair.client), NOW)
    pair.server.sasl_challenge(b"nonce")
    (challenge,) = pair.client.receive_data(taken(pair.server), NOW)
    assert isinstance(challenge, SaslChallengeReceived) and challenge.challenge == b"nonce"
    pair.client.sasl_response(b"proof")
    (response,) = pair.server.receive_data(taken(pair.client), NOW)
    assert isinstance(response, SaslResponseReceived) and response.response == b"proof"
    pair.server.sasl_outcome(0, b"signature")
    pair.flush()
    (outcome,) = of_type(pair.client_events, SaslOutcomeReceived)
    assert (outcome.code, outcome.additional_data) == (0, b"signature")
    assert pair.client.state is pair.server.state is ConnectionState.OPENED


@pytest.mark.parametrize("frame", [INIT, RESPONSE])
def test_a_server_that_speaks_for_the_client(frame: bytes) -> None:
    """5.3.2: only the client sends init and response."""
    pair = Pair({"sasl": True})
    pair.client.open()
    pair.server.receive_data(taken(pair.client), NOW)
    events = pair.client.receive_data(taken(pair.server) + frame, NOW)
    assert "out of order" in (error_of(events).description or "")
    assert pair.client.wants_close


def test_a_client_that_is_refused() -> None:
    """A code other than ok ends the client's connection."""
    pair = Pair({"sasl": True})
    pair.client.open()
    pair.server.receive_data(taken(pair.client), NOW)
    pair.client.receive_data(taken(pair.server), NOW)
    pair.client.sasl_init("ANONYMOUS")
    pair.server.receive_data(taken(pair.client), NOW)
    pair.server.sasl_outcome(1)
    events = pair.client.receive_data(taken(pair.server), NOW)
    assert [type(event) for event in events] == [SaslOutcomeReceived, ConnectionClosed]
    assert pair.client.wants_close


@pytest.mark.parametrize("answer", [SASL_HEADER, b"AMQP\x00\x01\x01\x00"])
def test_a_client_that_gets_another_header(answer: bytes) -> None:
    """2.2: if the headers do not match, both close."""
    client = Connection(ConnectionSettings(server=False), NOW)
    client.open()
    events = client.receive_data(answer, NOW)
    assert client.wants_close and client.state is ConnectionState.END
    assert error_of(events).condition == "amqp:connection:framing-error"
