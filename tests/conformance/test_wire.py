"""The frame-level client: what it sends, what it expects, and how it says what came instead."""

from collections.abc import Callable

import pytest

from amqp_broker.conformance.dialogue import ASIDE, Peer
from amqp_broker.conformance.dialogue_state import SERVER
from amqp_broker.conformance.octets import frame
from amqp_broker.conformance.outcomes import CannotConnect, Late, Unexpected
from amqp_broker.conformance.transcript import Transcript, describe_kind
from amqp_broker.conformance.wire import ANY_ERROR
from amqp_broker.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    SASL_HEADER,
    Begin,
    Close,
    End,
    Error,
    Flow,
    Open,
    encode_frame,
    encode_sasl_frame,
)
from amqp_broker.frames.sasl import SaslInit
from amqp_broker.testing.blocking_peer import PATIENCE_S
from tests.conformance.scripted_server import EVERYTHING, Step, scripted_server

OPEN = encode_frame(0, Open(container_id="server"))
BEGIN = encode_frame(0, Begin(remote_channel=0, next_outgoing_id=0, incoming_window=1, outgoing_window=1))
MINE = Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
FLOW = encode_frame(0, Flow(incoming_window=1, next_outgoing_id=0, outgoing_window=1))
CLOSE = encode_frame(0, Close())


def _close(condition: str) -> bytes:
    return encode_frame(0, Close(error=Error(condition=condition, description="because")))


class Dialogue:
    """A peer connected to a scripted server, with a session for the server's begin to answer."""

    def __init__(self, *steps: Step) -> None:
        self._server = scripted_server(list(steps))
        self.transcript = Transcript()

    def __enter__(self) -> Peer:
        self.peer = Peer(("127.0.0.1", self._server.__enter__()), self.transcript, timeout_s=PATIENCE_S)
        self.peer.sessions[0] = self.peer.make_session(0, MINE)
        return self.peer

    def __exit__(self, *exception: object) -> None:
        self.peer.abort()
        self._server.__exit__(None, None, None)


def test_a_header_and_frames_are_expected_in_turn() -> None:
    """A header, an open, a begin and an end come in order; empty frames and flows between are passed over."""
    with Dialogue(AMQP_HEADER + OPEN + BEGIN + EMPTY_FRAME + FLOW + encode_frame(0, End())) as peer:
        peer.expect_header(AMQP_HEADER)
        assert peer.expect(Open).container_id == "server"
        assert peer.expect(Begin, remote_channel=0).incoming_window == 1
        peer.expect(End)


def test_what_belongs_to_nothing_is_noted() -> None:
    """A frame without a session of ours may answer octets by hand: it is not counted, and can be expected."""
    dialogue = Dialogue(AMQP_HEADER + OPEN + FLOW)
    with dialogue as peer:
        peer.expect_header()
        peer.expect(Open)
        peer.expect(Flow)
    assert "not counted: a frame on channel 0" in dialogue.transcript.text()[-1]


Expectation = Callable[[Peer], object]


def _opened(peer: Peer) -> None:
    peer.expect_header()
    peer.expect(Open)


def _small_open(peer: Peer) -> None:
    peer.expect_header()
    peer.put(Open(container_id="client", max_frame_size=512))


LARGE = encode_frame(0, Open(container_id="x" * 600))
OPENED = AMQP_HEADER + OPEN
INSTEAD: dict[str, tuple[list[Step], Expectation, Expectation, str]] = {
    "another header": (
        [SASL_HEADER], lambda peer: None, lambda peer: peer.expect_header(AMQP_HEADER),
        r"AMQP 0 1\.0\.0, got header AMQP 3 1\.0\.0"),
    "silence, with the time waited": (
        [AMQP_HEADER, 1], Peer.expect_header, lambda peer: peer.expect(Open, timeout_s=0.1),
        r"expected open within 0\.1 s, but nothing came"),
    "another performative, with its fields": (
        [OPENED + _close("amqp:not-allowed")], _opened, lambda peer: peer.expect(Begin),
        r"expected begin, got close\(error=error\(condition='amqp:not-allowed'"),
    "another field": (
        [OPENED + BEGIN], _opened, lambda peer: peer.expect(Begin, remote_channel=7),
        "remote_channel=7, got remote_channel=0"),
    "the end of the stream": (
        [AMQP_HEADER], Peer.expect_header, lambda peer: peer.expect(Open), "but the broker closed its side"),
    "a reset where a clean end is asked for": (
        [8, "reset"], Peer.send_header, lambda peer: peer.expect_eof(reset_allowed=False),
        "reset the connection"),
    "octets that are no frame, in the codec's words": (
        [AMQP_HEADER + frame(size=3)], Peer.expect_header, lambda peer: peer.expect(Open),
        "malformed: amqp:connection:framing-error"),
    "a frame larger than ours": (
        [AMQP_HEADER, 8, LARGE], _small_open, lambda peer: peer.expect(Open), "framing-error"),
    "no error instead of a condition": (
        [OPENED + CLOSE, 8], Peer.expect_header, lambda peer: peer.expect_close("amqp:not-found"),
        r"expected close with amqp:not-found, got close\(\)"),
    "no error instead of any": (
        [OPENED + CLOSE, 8], Peer.expect_header, lambda peer: peer.expect_close(ANY_ERROR),
        r"expected close with an error, got close\(\)"),
    "another condition": (
        [OPENED + _close("amqp:not-found"), 8], Peer.expect_header,
        lambda peer: peer.expect_close("amqp:decode-error"),
        r"expected close with amqp:decode-error, got close\(error"),
    "a close where a session should end": (
        [OPENED + _close("amqp:internal-error")], Peer.expect_header, Peer.expect_end,
        "expected end, got close"),
    "a frame of a kind that must not come": (
        [OPENED + BEGIN, 1], Peer.expect_header, lambda peer: peer.expect_nothing(Begin, within_s=0.5),
        "expected no begin"),
    "the end where silence is expected": (
        [AMQP_HEADER], Peer.expect_header, lambda peer: peer.expect_nothing(Begin, within_s=0.5),
        "an open connection"),
}  # fmt: skip


@pytest.mark.parametrize(("steps", "before", "expects", "message"), INSTEAD.values(), ids=INSTEAD)
def test_what_came_instead_is_told(
    steps: list[Step], before: Expectation, expects: Expectation, message: str
) -> None:
    """Whatever does not come as expected fails the scenario, and is told."""
    with Dialogue(*steps) as peer:
        before(peer)
        with pytest.raises(Unexpected, match=message):
            expects(peer)


def test_a_reset_is_an_end_where_it_may_be() -> None:
    """A reset counts as the end of the stream unless a clean end is asked for."""
    with Dialogue(8, "reset") as peer:
        peer.send_header(AMQP_HEADER)
        peer.expect_eof()


def test_an_error_is_found_behind_what_was_under_way() -> None:
    """A close with an error is waited for past other frames, answered, and nothing may follow."""
    with Dialogue(AMQP_HEADER + OPEN + BEGIN + FLOW + _close("amqp:decode-error"), 8) as peer:
        peer.expect_header()
        assert peer.expect_close("amqp:decode-error").error is not None


def test_any_error_will_do_for_any_error() -> None:
    """Where the standard does not say which condition, each one is expected."""
    with Dialogue(OPENED + _close("amqp:not-found"), 8) as peer:
        peer.expect_header()
        assert peer.expect_close(ANY_ERROR).error is not None


def test_silence_can_be_expected() -> None:
    """Nothing of a kind within a time passes."""
    with Dialogue(OPENED + BEGIN + FLOW, 1) as peer:
        _opened(peer)
        peer.expect(Begin)
        peer.expect_nothing(Begin, within_s=0.05)


def test_one_write_holds_everything_back() -> None:
    """Inside one_write nothing leaves; at its end everything does, in order."""
    octets = AMQP_HEADER + encode_frame(0, Open(container_id="c")) + EMPTY_FRAME
    with Dialogue(len(octets), AMQP_HEADER) as peer:
        with peer.one_write():
            peer.send_header()
            peer.put(Open(container_id="c"))
            peer.send_empty_frame()
            assert not peer.has_more(within_s=0.05)
        peer.expect_header()


def test_a_frame_after_close_is_a_breach() -> None:
    """What comes after close is noted with the rule that it breaks; the scenario that names it fails."""
    with Dialogue(AMQP_HEADER + OPEN + CLOSE + BEGIN, 8) as peer:
        peer.expect_header()
        peer.expect_close()
        assert "2.4.3-02" in [breach.rule for breach in peer.rules.breaches if breach.by == SERVER]


def test_everything_is_in_the_transcript() -> None:
    """What was sent and what came stands in the transcript, as people read it."""
    init = SaslInit(mechanism="ANONYMOUS")
    sent = len(SASL_HEADER + encode_sasl_frame(init) + encode_frame(3, End()))
    dialogue = Dialogue(AMQP_HEADER + OPEN, sent)  # the server reads all of it before it closes
    with dialogue as peer:
        peer.send_header(SASL_HEADER)
        peer.send_sasl(init)
        peer.put(End(), channel=3)
        peer.expect_header()
        peer.expect(Open)
    told = [line.split(" ms  ", 1)[1] for line in dialogue.transcript.text()]
    lines = [line for line in told if "break" not in line]
    assert lines == [
        "-- connected",
        "-> header AMQP 3 1.0.0",
        "-> sasl sasl-init(mechanism='ANONYMOUS')",
        "-> [3] end()",
        "<- header AMQP 0 1.0.0",
        "<- open(container_id='server')",
    ]


def test_nobody_listening_is_a_failure_of_its_own() -> None:
    """Where nobody listens, the error is not that of a scenario."""
    with scripted_server() as port:
        pass
    with pytest.raises(CannotConnect):
        Peer(("127.0.0.1", port), Transcript())


def test_kinds_have_the_standards_names() -> None:
    """A class is named as in the standard."""
    assert [describe_kind(kind) for kind in (Open, SaslInit)] == ["open", "sasl-init"]


ASIDE_BEGUN = encode_frame(
    7, Begin(remote_channel=ASIDE, next_outgoing_id=0, incoming_window=1, outgoing_window=1)
)
ASIDE_ENDED = encode_frame(7, End())
OURS = Open(container_id="us", channel_max=255)
UNTIL_ASIDE = len(encode_frame(0, OURS)) + 1
"""Octets of ours after which the broker has something to read of a session aside."""


def test_a_late_frame_is_no_silence() -> None:
    """What must not come is waited for until the broker has read all that was sent, however late that is."""
    with Dialogue(OPEN + BEGIN, UNTIL_ASIDE, FLOW + ASIDE_BEGUN) as peer:
        peer.put(OURS)
        peer.expect(Open)
        with pytest.raises(Unexpected, match="expected no flow"):
            peer.expect_nothing(Flow, within_s=0)


def test_a_session_aside_is_begun_and_ended() -> None:
    """Its frames are none of those that must not come."""
    with Dialogue(OPEN + BEGIN, UNTIL_ASIDE, ASIDE_BEGUN + ASIDE_ENDED, EVERYTHING) as peer:
        peer.put(OURS)
        peer.expect(Open)
        peer.expect(Begin)
        peer.expect_nothing(Begin, End, within_s=0)
        assert ASIDE not in peer.sessions


def test_silence_is_told_from_what_is_wrong() -> None:
    """What a clock has decided can be run again; a frame that must not come, or an end, cannot be undone."""
    with Dialogue(OPEN, EVERYTHING) as peer, pytest.raises(Late):
        peer.expect_frame(Close, timeout_s=0)
    with Dialogue(OPEN + CLOSE) as peer, pytest.raises(Unexpected) as wrong:
        peer.expect(Begin)
    assert not isinstance(wrong.value, Late)
