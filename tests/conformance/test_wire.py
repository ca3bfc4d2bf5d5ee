"""The frame-level client: what it sends, what it expects, and how it says what came instead."""

import pytest

from amqp_broker.conformance.octets import frame
from amqp_broker.conformance.outcomes import CannotConnect, Unexpected
from amqp_broker.conformance.transcript import Transcript, describe_kind
from amqp_broker.conformance.wire import ANY_ERROR, Peer
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
    SaslInit,
    encode_frame,
    encode_sasl_frame,
)
from amqp_broker.testing.blocking_peer import PATIENCE_S
from tests.conformance.scripted_server import Step, scripted_server

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


def test_another_header_is_told() -> None:
    """Where another header comes, both are named."""
    with (
        Dialogue(SASL_HEADER) as peer,
        pytest.raises(Unexpected, match=r"AMQP 0 1\.0\.0, got header AMQP 3 1\.0\.0"),
    ):
        peer.expect_header(AMQP_HEADER)


def test_silence_is_told_with_the_time_waited() -> None:
    """Where nothing comes, the message says what was expected and for how long."""
    with Dialogue(AMQP_HEADER, 1) as peer:
        peer.expect_header()
        with pytest.raises(Unexpected, match=r"expected open within 0\.1 s, but nothing came"):
            peer.expect(Open, timeout_s=0.1)


def test_another_performative_is_told_with_its_fields() -> None:
    """Where another performative comes, it is shown with its fields."""
    with Dialogue(AMQP_HEADER + OPEN + _close("amqp:not-allowed")) as peer:
        peer.expect_header()
        peer.expect(Open)
        with pytest.raises(
            Unexpected, match=r"expected begin, got close\(error=error\(condition='amqp:not-allowed'"
        ):
            peer.expect(Begin)


def test_another_field_is_told() -> None:
    """Where a field differs, its name and both values are shown."""
    with Dialogue(AMQP_HEADER + OPEN + BEGIN) as peer:
        peer.expect_header()
        peer.expect(Open)
        with pytest.raises(Unexpected, match="remote_channel=7, got remote_channel=0"):
            peer.expect(Begin, remote_channel=7)


def test_the_end_of_the_stream_is_told() -> None:
    """Where the broker goes instead of speaking, the message says so."""
    with Dialogue(AMQP_HEADER) as peer:
        peer.expect_header()
        with pytest.raises(Unexpected, match="but the broker closed its side"):
            peer.expect(Open)


def test_a_reset_is_an_end_only_where_it_may_be() -> None:
    """A reset counts as the end of the stream unless a clean end is asked for."""
    with Dialogue(8, "reset") as peer:
        peer.send_header(AMQP_HEADER)
        peer.expect_eof()
    with Dialogue(8, "reset") as peer, pytest.raises(Unexpected, match="reset the connection"):
        peer.send_header(AMQP_HEADER)
        peer.expect_eof(reset_allowed=False)


def test_malformed_octets_are_the_brokers_fault() -> None:
    """Octets that are no frame fail the scenario with the codec's words."""
    with Dialogue(AMQP_HEADER + frame(size=3)) as peer:
        peer.expect_header()
        with pytest.raises(Unexpected, match="malformed: amqp:connection:framing-error"):
            peer.expect(Open)


def test_a_frame_larger_than_ours_is_the_brokers_fault() -> None:
    """After our open a frame above its max-frame-size fails the scenario."""
    large = encode_frame(0, Open(container_id="x" * 600))
    with Dialogue(AMQP_HEADER, 8, large) as peer:
        peer.expect_header()
        peer.put(Open(container_id="client", max_frame_size=512))
        with pytest.raises(Unexpected, match="framing-error"):
            peer.expect(Open)


def test_an_error_is_found_behind_what_was_under_way() -> None:
    """A close with an error is waited for past other frames, answered, and nothing may follow."""
    with Dialogue(AMQP_HEADER + OPEN + BEGIN + FLOW + _close("amqp:decode-error"), 8) as peer:
        peer.expect_header()
        assert peer.expect_close("amqp:decode-error").error is not None


@pytest.mark.parametrize("conditions", [("amqp:not-found",), (ANY_ERROR,)])
def test_another_condition_is_told(conditions: tuple[str, ...]) -> None:
    """A close without an error, or with another one, is not what was expected."""
    with Dialogue(AMQP_HEADER + OPEN + CLOSE, 8) as peer:
        peer.expect_header()
        with pytest.raises(Unexpected, match=r"expected close with .*, got close\(\)"):
            peer.expect_close(*conditions)


def test_a_wrong_condition_is_told() -> None:
    """A close with an error of another condition is not what was expected; any will do for ANY_ERROR."""
    with Dialogue(AMQP_HEADER + OPEN + _close("amqp:not-found"), 8) as peer:
        peer.expect_header()
        with pytest.raises(Unexpected, match=r"expected close with amqp:decode-error, got close\(error"):
            peer.expect_close("amqp:decode-error")
    with Dialogue(AMQP_HEADER + OPEN + _close("amqp:not-found"), 8) as peer:
        peer.expect_header()
        assert peer.expect_close(ANY_ERROR).error is not None


def test_a_close_is_not_an_end() -> None:
    """Where a session should end, the end of the connection is too much."""
    with Dialogue(AMQP_HEADER + OPEN + _close("amqp:internal-error")) as peer:
        peer.expect_header()
        with pytest.raises(Unexpected, match="expected end, got close"):
            peer.expect_end()


def test_a_frame_after_close_fails() -> None:
    """Whatever follows close fails the scenario."""
    with Dialogue(AMQP_HEADER + OPEN + CLOSE + BEGIN, 8) as peer:
        peer.expect_header()
        with pytest.raises(Unexpected, match="2.4.3-02"):
            peer.expect_close()


def test_silence_can_be_expected() -> None:
    """Nothing of a kind within a time passes; a frame of that kind, or the end, does not."""
    with Dialogue(AMQP_HEADER + OPEN + BEGIN + FLOW, 1) as peer:
        peer.expect_header()
        peer.expect(Open)
        peer.expect(Begin)
        peer.expect_nothing(Begin, within_s=0.05)
    with Dialogue(AMQP_HEADER + OPEN + BEGIN, 1) as peer:
        peer.expect_header()
        with pytest.raises(Unexpected, match="expected no begin"):
            peer.expect_nothing(Begin, within_s=0.5)
    with Dialogue(AMQP_HEADER) as peer:
        peer.expect_header()
        with pytest.raises(Unexpected, match="an open connection"):
            peer.expect_nothing(Begin, within_s=0.5)


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
    lines = [line.split(" ms  ", 1)[1] for line in dialogue.transcript.text()]
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
