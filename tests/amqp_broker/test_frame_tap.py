"""The stream that sees frames: cutting, passing on, recording."""

from __future__ import annotations

import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    SASL_HEADER,
    Begin,
    Close,
    Frame,
    Open,
    ProtocolHeader,
    Transfer,
    encode_frame,
    encode_sasl_frame,
)
from amqp_broker.frames.sasl import SaslMechanisms
from amqp_broker.testing.frame_tap import FrameCutter, FrameTap, decode_piece
from amqp_broker.testing.traces import FrameTrace
from tests.support.by_hand import in_trio

PIECES = [
    SASL_HEADER,
    encode_sasl_frame(SaslMechanisms(sasl_server_mechanisms=("ANONYMOUS",))),
    AMQP_HEADER,
    encode_frame(0, Open(container_id="c")),
    encode_frame(3, Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)),
    encode_frame(3, Transfer(handle=0, delivery_id=0, delivery_tag=b"t"), b"payload"),
    EMPTY_FRAME,
    encode_frame(0, Close()),
]
WHOLE = b"".join(PIECES)


@given(st.lists(st.integers(0, len(WHOLE)), max_size=20))
def test_pieces_are_the_same_however_the_bytes_come(cuts: list[int]) -> None:
    """Headers and frames are cut where they begin and end, whatever the reads were."""
    cutter = FrameCutter()
    found: list[bytes] = []
    edges = [0, *sorted(cuts), len(WHOLE)]
    for start, end in zip(edges, edges[1:], strict=False):
        found += [piece.octets for piece in cutter.feed(WHOLE[start:end])]
    assert found == PIECES
    assert cutter.rest() == b""


@given(st.binary(max_size=200))
def test_noise_passes_unchanged(noise: bytes) -> None:
    """The tap adds nothing and loses nothing of what is no frame."""
    cutter = FrameCutter()
    out = b"".join(piece.octets for half in (noise[:7], noise[7:]) for piece in cutter.feed(half))
    assert out + cutter.rest() == noise


def test_pieces_are_decoded() -> None:
    """A header is a header, a frame has its performative, rubbish has none."""
    header = decode_piece(SASL_HEADER)
    assert isinstance(header, ProtocolHeader)
    assert header.protocol_id == 3
    frame = decode_piece(PIECES[5])
    assert isinstance(frame, Frame)
    assert isinstance(frame.performative, Transfer)
    assert frame.payload == b"payload"
    assert decode_piece(b"\0\0\0\x0a\x02\0\0\0\xff\xff") is None


@in_trio
async def test_a_tap_is_transparent_in_both_directions() -> None:
    """Bytes, the end of the stream, and what is left over in the middle of a frame."""
    client, inner = trio.testing.memory_stream_pair()
    tap = FrameTap(inner)
    await client.send_all(WHOLE + b"\0\0\0\x10half")
    assert await tap.receive_some() == WHOLE
    await client.send_eof()
    assert await tap.receive_some() == b"\0\0\0\x10half"
    assert await tap.receive_some() == b""
    for start in range(0, len(WHOLE), 5):
        await tap.send_all(WHOLE[start : start + 5])
    await tap.aclose()
    got = b""
    async for data in client:
        got += bytes(data)
    assert got == WHOLE


@in_trio
async def test_a_trace_reads_like_a_dialogue() -> None:
    """One line for each piece, with the side that sent it, in order."""
    trace = FrameTrace()
    client, inner = trio.testing.memory_stream_pair()
    stream = trace.stream(inner)
    await client.send_all(AMQP_HEADER + PIECES[3])
    await stream.receive_some()
    await stream.send_all(AMQP_HEADER + PIECES[3] + b"\0\0\0\x0a\x02\0\0\0\xff\xff")
    lines = str(trace).splitlines()
    assert [line[:2] for line in lines] == ["C:", "C:", "S:", "S:", "S:"]
    assert lines[1] == "C: [0] Open(container_id='c')"
    assert lines[4] == "S: 10 octets that are no frame"
    assert [type(performative) for performative in trace.performatives("C")] == [Open]


def test_a_trace_is_bounded() -> None:
    """What is beyond the bound is counted, not kept."""
    trace = FrameTrace(frames_kept_max=2)
    for piece in FrameCutter().feed(WHOLE):
        trace.record("C", piece)
    assert len(trace.frames) == 2
    assert str(trace).endswith(f"and {len(PIECES) - 2} more")
