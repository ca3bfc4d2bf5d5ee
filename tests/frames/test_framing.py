"""Frames and protocol headers from a stream, in whatever pieces it comes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    SASL_HEADER,
    TLS_HEADER,
    Accepted,
    AmqpError,
    Begin,
    Close,
    DecodeError,
    EncodeError,
    Frame,
    FrameReader,
    Open,
    ProtocolHeader,
    Transfer,
    encode_composite,
    encode_frame,
    encode_sasl_frame,
)
from amqp_broker.frames.errors import FramingError
from amqp_broker.frames.sasl import SaslInit, SaslMechanisms, SaslOutcome, SaslResponse
from tests import strategies
from tests.support.examples import examples

MAX = 65_536


def read(data: bytes, max_frame_size: int = MAX) -> list[Any]:
    """All frames in `data`."""
    reader = FrameReader(max_frame_size)
    reader.feed(data)
    return drain(reader)


def drain(reader: FrameReader) -> list[Any]:
    """What the reader has, until it needs more."""
    found = []
    while (item := reader.next()) is not None:
        found.append(item)
    return found


def raw(body: bytes, *, size: int | None = None, doff: int = 2, kind: int = 0, channel: int = 0) -> bytes:
    """A frame by hand."""
    total = 8 + len(body) if size is None else size
    return total.to_bytes(4, "big") + bytes((doff, kind)) + channel.to_bytes(2, "big") + body


CLOSE = encode_composite(Close())


@given(strategies.performatives(), st.integers(0, 65535), st.binary(max_size=50))
def test_what_is_encoded_is_read_back(performative: Any, channel: int, payload: bytes) -> None:
    """Channel, performative and payload."""
    (frame,) = read(encode_frame(channel, performative, payload))
    assert (frame.type, frame.channel, frame.performative, frame.payload) == (
        0,
        channel,
        performative,
        payload,
    )


def test_sasl_frames() -> None:
    """Each SASL body in its own type of frame; the channel's octets are ignored."""
    for body in (
        SaslMechanisms(sasl_server_mechanisms=("PLAIN", "ANONYMOUS")),
        SaslInit(mechanism="PLAIN", initial_response=b"x", hostname="h"),
        SaslOutcome(code=1),
    ):
        (frame,) = read(encode_sasl_frame(body))
        assert (frame.type, frame.channel, frame.performative) == (1, 0, body)
    (frame,) = read(raw(encode_composite(SaslOutcome(code=0)), kind=1, channel=7))
    assert frame.channel == 0


@pytest.mark.parametrize("step", [1, 2, 3, 7, 8, 9, 64, 1000])
def test_any_pieces_give_the_same_frames(step: int) -> None:
    """A dialogue octet by octet, in odd pieces, and at once."""
    stream = (
        encode_frame(0, Open(container_id="c"))
        + EMPTY_FRAME
        + encode_frame(1, Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))
        + encode_frame(1, Transfer(handle=0, delivery_id=0, delivery_tag=b"t"), b"payload" * 100)
        + encode_frame(0, Close())
    )
    reader = FrameReader(MAX)
    reader.expect_header()
    found = []
    whole = AMQP_HEADER + stream
    for start in range(0, len(whole), step):
        reader.feed(whole[start : start + step])
        found += drain(reader)
    header, *frames = found
    assert isinstance(header, ProtocolHeader)
    assert [repr(frame) for frame in frames] == [repr(frame) for frame in read(stream)]
    assert frames[3].payload == b"payload" * 100
    assert len(frames) == 5
    assert reader.buffered == 0


def test_empty_frames() -> None:
    """Heartbeats have no performative; an extended header does not make a body."""
    assert [frame.performative for frame in read(EMPTY_FRAME + raw(bytes(8), doff=4))] == [None, None]


def test_extended_header_is_skipped() -> None:
    """DOFF says where the body begins."""
    (frame,) = read(raw(b"\xff" * 4 + CLOSE, doff=3))
    assert frame.performative == Close()


def test_protocol_headers() -> None:
    """The three of the standard, and whatever else a stream begins with."""
    for octets in (AMQP_HEADER, TLS_HEADER, SASL_HEADER, b"GET / HT"):
        reader = FrameReader(MAX)
        reader.expect_header()
        reader.feed(octets[:5])
        assert reader.next() is None
        reader.feed(octets[5:])
        header = reader.next()
        assert isinstance(header, ProtocolHeader)
        assert (header.protocol_id, header.major, header.minor, header.revision) == tuple(octets[4:])
        assert header.octets == octets
        assert repr(octets) in repr(header)


def test_a_header_between_frames() -> None:
    """After SASL a second header comes in the same stream, possibly in the same piece."""
    reader = FrameReader(512)
    reader.expect_header()
    reader.feed(SASL_HEADER + encode_sasl_frame(SaslOutcome(code=0)) + AMQP_HEADER + encode_frame(0, Close()))
    assert isinstance(reader.next(), ProtocolHeader)
    assert isinstance(reader.next(), Frame)
    reader.expect_header()
    assert isinstance(reader.next(), ProtocolHeader)
    frame = reader.next()
    assert isinstance(frame, Frame)
    assert frame.performative == Close()


MALFORMED = {
    "size below 8": (raw(b"", size=7), "at least 8 octets, but found 7"),
    "size 0": (raw(b"", size=0), "at least 8 octets, but found 0"),
    "data offset below 2": (raw(CLOSE, doff=1), "data offset of 2 to 3 in a frame of 12 octets, but found 1"),
    "data offset beyond the frame": (raw(CLOSE, doff=4), "but found 4"),
    "unknown type": (raw(CLOSE, kind=2), "type 0 .AMQP. or 1 .SASL., but found 2"),
    "too large": (raw(b"", size=MAX + 1), "at most 65536 octets, but found 65537"),
    "empty SASL frame": (raw(b"", kind=1), "SASL frame is empty"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_frames(name: str) -> None:
    """Each is a FramingError that says what was expected, and the reader stays broken."""
    data, message = MALFORMED[name]
    reader = FrameReader(MAX)
    reader.feed(EMPTY_FRAME + data + EMPTY_FRAME)
    assert reader.next() is not None
    for _ in range(2):
        with pytest.raises(FramingError, match=message) as caught:
            reader.next()
        assert caught.value.condition == "amqp:connection:framing-error"


WRONG_BODIES = {
    "SASL body in an AMQP frame": (
        raw(encode_composite(SaslOutcome(code=0))),
        "type 0, but found sasl-outcome",
    ),
    "AMQP body in a SASL frame": (raw(CLOSE, kind=1), "type 1, but found close"),
    "outcome as performative": (raw(encode_composite(Accepted())), "type 0, but found accepted"),
    "unknown performative": (raw(b"\x00\x53\x19\x45"), "expected a composite of the standard"),
    "no described value": (raw(b"\x45"), "expected a described value"),
    "two bodies in a SASL frame": (raw(encode_composite(SaslOutcome(code=0)) * 2, kind=1), "octets follow"),
    "performative cut off": (raw(CLOSE[:-1]), "expected the list of close"),
}


@pytest.mark.parametrize("name", WRONG_BODIES)
def test_wrong_bodies(name: str) -> None:
    """A whole frame with a wrong body is a DecodeError."""
    data, message = WRONG_BODIES[name]
    with pytest.raises(DecodeError, match=message):
        read(data)


def test_a_performative_cannot_reach_into_the_next_frame() -> None:
    """The frame's end bounds its performative, even when more octets follow in the buffer."""
    with pytest.raises(DecodeError):
        read(raw(b"\x00\x53\x18\xc0\x0a\x01") + raw(CLOSE))


def test_an_announced_size_is_checked_before_the_body_is_waited_for() -> None:
    """Four octets of a lie are enough."""
    reader = FrameReader(8_192)
    reader.feed((8_193).to_bytes(4, "big"))
    with pytest.raises(FramingError, match="at most 8192 octets, but found 8193"):
        reader.next()
    reader = FrameReader(8_192)
    reader.feed((8_192).to_bytes(4, "big"))
    assert reader.next() is None
    assert reader.buffered == 4


def test_max_frame_size_can_be_raised() -> None:
    """After open the reader takes what was announced."""
    frame = encode_frame(0, Transfer(handle=0), bytes(1_000))
    reader = FrameReader(512)
    reader.max_frame_size = 2_000
    reader.feed(frame)
    assert reader.next() is not None


def test_pieces_of_a_frame_are_joined_once() -> None:
    """A large frame in many small pieces costs no copy for each piece."""
    frame = encode_frame(0, Transfer(handle=0), bytes(200_000))
    reader = FrameReader(1_000_000)
    for start in range(0, len(frame), 10):
        assert reader.next() is None
        before = reader.data
        reader.feed(frame[start : start + 10])
        joined = reader.data is not before and start > 10
        assert not joined or start + 10 >= len(frame)
    assert reader.buffered == len(frame)
    assert reader.next() is not None


def test_what_comes_behind_a_frame_in_pieces_is_not_copied() -> None:
    """Only the frame that came in two pieces is joined; the rest of the second piece is read where it is."""
    frame = encode_frame(0, Transfer(handle=0), bytes(1_000))
    reader = FrameReader(MAX)
    reader.feed(frame + frame[:100])
    assert reader.next() is not None and reader.next() is None
    assert reader.awaited == len(frame)
    second = frame[100:] + frame * 2 + frame[:7]
    reader.feed(second)
    assert reader.awaited == 0
    assert reader.buffered == 3 * len(frame) + 7
    assert not reader.go_on()
    assert reader.next() is not None and len(reader.data) == len(frame)
    assert reader.go_on() and reader.data is second
    assert reader.next() is not None and reader.next() is not None and reader.next() is None
    assert reader.awaited == 0
    reader.feed(frame[7:])
    assert len(drain(reader)) == 1 and reader.buffered == 0 and not reader.go_on()


@given(st.lists(st.integers(0, 300), min_size=1, max_size=20), st.lists(st.integers(1, 900), min_size=1))
def test_any_frames_in_any_pieces(payloads: list[int], cuts: list[int]) -> None:
    """Whatever the stream is cut into, and however many pieces wait, the same frames come out."""
    stream = b"".join(encode_frame(n, Transfer(handle=0), bytes(size)) for n, size in enumerate(payloads))
    reader = FrameReader(MAX)
    found: list[Any] = []
    at = 0
    for number, cut in enumerate(cuts * (1 + len(stream) // sum(cuts))):
        reader.feed(stream[at : at + cut])
        at += cut
        if number % 3:
            found += drain(reader)
        assert reader.buffered == min(at, len(stream)) - sum(frame_octets(frame) for frame in found)
    found += drain(reader)
    assert [(frame.channel, len(frame.payload)) for frame in found] == list(enumerate(payloads))


def frame_octets(frame: Any) -> int:
    """What it took on the wire."""
    return len(encode_frame(frame.channel, frame.performative, frame.payload))


def test_taken_octets_are_not_kept() -> None:
    """A reader that waits holds no buffer of what it has given away."""
    reader = FrameReader(MAX)
    reader.feed(encode_frame(0, Transfer(handle=0), bytes(60_000)) + b"\x00")
    assert reader.next() is not None
    assert reader.next() is None
    assert len(reader.data) == reader.buffered == 1


def test_a_caller_may_take_frames_itself() -> None:
    """`data` from `position` on is what waits."""
    frame = encode_frame(3, Close())
    reader = FrameReader(MAX)
    reader.feed(frame * 3)
    assert reader.data[reader.position : reader.position + len(frame)] == frame
    reader.position += len(frame)
    assert [(frame.channel, frame.performative) for frame in drain(reader)] == [(3, Close())] * 2


@examples(1_000)
@given(strategies.mutated(strategies.performatives().map(lambda performative: encode_frame(1, performative))))
def test_mutations_raise_nothing_but_our_errors(data: bytes) -> None:
    """Damaged frames are frames, or a DecodeError or FramingError; and they print themselves in a line."""
    try:
        for frame in read(data, 10_000):
            assert len(repr(frame)) <= 256
    except AmqpError as error:
        assert isinstance(error, (DecodeError, FramingError))


@given(st.binary(max_size=100), st.integers(1, 20))
def test_noise_raises_nothing_but_our_errors(data: bytes, step: int) -> None:
    """10,000 octets of it would be no different."""
    reader = FrameReader(512)
    try:
        for start in range(0, len(data), step):
            reader.feed(data[start : start + step])
            drain(reader)
    except AmqpError as error:
        assert isinstance(error, (DecodeError, FramingError))


def test_frames_that_cannot_be_encoded() -> None:
    """A wrong channel, a wrong body, and a SASL frame beyond 512 octets."""
    for channel in (-1, 65_536):
        with pytest.raises(EncodeError, match="channel"):
            encode_frame(channel, Close())
    for body in (Accepted(), SaslOutcome(code=0), None, "close"):
        with pytest.raises(EncodeError, match="frame of type 0"):
            encode_frame(0, body)
    with pytest.raises(EncodeError, match="frame of type 1"):
        encode_sasl_frame(Close())
    with pytest.raises(EncodeError, match="at most 512 octets"):
        encode_sasl_frame(SaslResponse(response=bytes(512)))
    assert len(encode_sasl_frame(SaslResponse(response=bytes(480)))) <= 512


def test_frames_print_themselves() -> None:
    """One line with channel, performative and the size of the payload; no secrets."""
    frame = Frame(0, 3, Transfer(handle=0, delivery_id=1), b"x" * 100)
    assert repr(frame) == "[3] Transfer(handle=0, delivery_id=1) + 100 octets"
    assert repr(read(EMPTY_FRAME)[0]) == "[0] empty"
    (sasl,) = read(encode_sasl_frame(SaslInit(mechanism="PLAIN", initial_response=b"hunter2")))
    assert repr(sasl).startswith("SASL [0] SaslInit(mechanism='PLAIN'")
    assert "hunter2" not in repr(sasl)
    assert len(repr(Frame(0, 0, Open(container_id="\n" * 10_000), b"x"))) <= 256
