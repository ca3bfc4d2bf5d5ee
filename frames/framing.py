"""Protocol headers and frames (2.2, 2.3, 5.3.1).

      +0       +1       +2       +3                         +0       +1       +2       +3
  +-----------------------------------+                 +-----------------------------------+
0 |                SIZE               |               0 |   'A'  |   'M'  |   'Q'  |   'P'  |
  +-----------------------------------+                 +-----------------------------------+
4 |  DOFF  |  TYPE  |     CHANNEL     |               4 |   ID   |  MAJOR |  MINOR |REVISION|
  +-----------------------------------+                 +-----------------------------------+
8 |   extended header, DOFF * 4 - 8   |
  +-----------------------------------+               ID: 0 AMQP, 2 TLS, 3 SASL
  |   performative, then payload      |
  |   SIZE - DOFF * 4 octets          |               TYPE: 0 AMQP, 1 SASL (CHANNEL is ignored)
  +-----------------------------------+
"""

import struct
from typing import Any, Final

from amqp_broker.frames.composite_decoding import declaration_at, read_composite
from amqp_broker.frames.composite_encoding import encode_composite
from amqp_broker.frames.declarations import DECLARATIONS
from amqp_broker.frames.decoding import Decoder
from amqp_broker.frames.errors import DecodeError, EncodeError, FramingError
from amqp_broker.frames.fixed_width import U32
from amqp_broker.frames.limits import (
    CHANNEL_MAX,
    DEPTH_MAX,
    FRAME_SIZE_MAX,
    MIN_MAX_FRAME_SIZE,
    PERFORMATIVE_NODES_MAX,
)
from amqp_broker.frames.printing import cut, shorten

AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1
FRAME_HEADER_OCTETS: Final = 8
PROTOCOL_HEADER_OCTETS: Final = 8

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
TLS_HEADER: Final = b"AMQP\x02\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"

EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"
"""An AMQP frame without body on channel 0: traffic for a peer's idle time-out (2.4.5)."""

_FRAME_HEADER: Final = struct.Struct(">IBBH").pack
_TYPES_AND_CHANNEL: Final = struct.Struct(">BBH").unpack_from


class ProtocolHeader:
    """The eight octets before the frames, as they came (2.2)."""

    __slots__ = ("major", "minor", "octets", "protocol_id", "revision")

    def __init__(self, octets: bytes) -> None:
        self.octets: bytes = octets
        self.protocol_id: int = octets[4]
        self.major: int = octets[5]
        self.minor: int = octets[6]
        self.revision: int = octets[7]

    def __repr__(self) -> str:
        return f"ProtocolHeader({shorten(self.octets)})"


class Frame:
    """One frame. `performative` is a composite, or None for an empty frame; `payload` is what follows it."""

    __slots__ = ("channel", "payload", "performative", "type")

    def __init__(self, type: int, channel: int, performative: Any, payload: bytes) -> None:
        self.type: int = type
        self.channel: int = channel
        self.performative: Any = performative
        self.payload: bytes = payload

    @property
    def is_sasl(self) -> bool:
        """Whether it is a frame of the SASL exchange (5.3.1)."""
        return self.type == SASL_FRAME

    def __repr__(self) -> str:
        payload = f" + {len(self.payload)} octets" if self.payload else ""
        kind = "SASL " if self.type == SASL_FRAME else ""
        text = "empty" if self.performative is None else repr(self.performative)
        return cut(f"{kind}[{self.channel}] {cut(text, 200)}{payload}")


def encode_frame(channel: int, performative: Any, payload: bytes = b"") -> bytes:
    """An AMQP frame. Raises EncodeError for what the wire cannot carry."""
    if not 0 <= channel <= CHANNEL_MAX:
        raise EncodeError(f"expected 0 to {CHANNEL_MAX} for a channel, but got {shorten(channel)}")
    return _encode(AMQP_FRAME, channel, performative, payload)


def encode_sasl_frame(composite: Any, max_octets: int = MIN_MAX_FRAME_SIZE) -> bytes:
    """A SASL frame. Raises EncodeError for what the wire cannot carry, or beyond `max_octets`: 512 (5.3.1)
    but for bearer tokens.
    """
    frame = _encode(SASL_FRAME, 0, composite, b"")
    if len(frame) > max_octets:
        raise EncodeError(
            f"expected at most {max_octets} octets in a SASL frame, but got {len(frame)}"
        )
    return frame


def _encode(frame_type: int, channel: int, performative: Any, payload: bytes) -> bytes:
    declaration = DECLARATIONS.get(type(performative))
    if declaration is None or declaration.frame_type != frame_type:
        raise EncodeError(
            f"expected a performative for a frame of type {frame_type}, but got {shorten(performative)}"
        )
    body = encode_composite(performative)
    size = FRAME_HEADER_OCTETS + len(body) + len(payload)
    if size > FRAME_SIZE_MAX:
        raise EncodeError(f"expected at most {FRAME_SIZE_MAX} octets in a frame, but got {size}")
    return _FRAME_HEADER(size, 2, frame_type, channel) + body + payload


def _decode_performative(frame_type: int, data: bytes, start: int, end: int) -> tuple[Any, int]:
    """The performative of a frame of this type at `start`, and the offset of its payload.

    `data` may go on beyond `end`; nothing behind it is read as part of the value. Raises DecodeError.
    """
    decoder = Decoder(data, start, PERFORMATIVE_NODES_MAX)
    declaration = declaration_at(decoder, end)
    if declaration.frame_type != frame_type:
        raise DecodeError(
            f"expected a performative for a frame of type {frame_type}, but found {declaration.name}"
        )
    return read_composite(decoder, declaration, end, DEPTH_MAX), decoder.pos


class FrameReader:
    """Cuts a stream into frames, and into a protocol header where `expect_header` asks for one.

    The announced size of a frame is compared with `max_frame_size` (octets) before its body is waited for;
    `limit_name` stands behind the number in the error: where it comes from.
    After a FramingError the stream is lost: the same error comes again.

    What was fed and not yet taken lies in `data` from `position` on; a caller may read whole frames from
    there itself and move `position` behind them. A frame that came in pieces is joined for itself: what came
    behind it follows when it is taken (`go_on`), and is never copied.
    """

    __slots__ = (
        "_chunk_at",
        "_chunks",
        "_chunks_octets",
        "_failure",
        "_needed",
        "_wants_header",
        "body_end",
        "body_start",
        "channel",
        "data",
        "frame_type",
        "limit_name",
        "max_frame_size",
        "position",
    )

    def __init__(self, max_frame_size: int) -> None:
        self.max_frame_size: int = max_frame_size
        self.limit_name: str = ""
        self.data: bytes = b""
        self.position: int = 0
        self.frame_type: int = 0
        self.channel: int = 0
        self.body_start: int = 0
        self.body_end: int = 0
        self._chunks: list[bytes] = []
        self._chunk_at: int = 0  # so much of the first one was taken
        self._chunks_octets: int = 0
        self._wants_header: bool = False
        self._needed: int = 0
        self._failure: FramingError | None = None

    @property
    def buffered(self) -> int:
        """Octets that were fed and not yet taken."""
        return len(self.data) - self.position + self._chunks_octets

    @property
    def awaited(self) -> int:
        """Octets of the frame that has begun, and is not whole; 0 where none has, or its size is not here."""
        return self._needed if self._needed > FRAME_HEADER_OCTETS else 0

    def go_on(self) -> bool:
        """Whether all of `data` was taken, and more was fed: that is in `data` now."""
        return self.position >= len(self.data) and bool(self._chunks) and self._has(1)

    def expect_header(self) -> None:
        """The next eight octets are a protocol header."""
        self._wants_header = True

    def feed(self, data: bytes) -> None:
        """Takes octets from the stream. Call `next` until it gives None."""
        if not data:
            return
        if self.position >= len(self.data) and not self._chunks:
            self.data = data
            self.position = 0
            return
        self._chunks.append(data)
        self._chunks_octets += len(data)
        # Octets of a frame that is still not whole are joined once, when it is: not at each of its pieces.
        self._has(self._needed)

    def next(self) -> "Frame | ProtocolHeader | None":
        """The next frame or header; None when more octets are needed. Raises FramingError and DecodeError."""
        if self._wants_header:
            if not self._has(PROTOCOL_HEADER_OCTETS):
                return None
            header = ProtocolHeader(self.data[self.position : self.position + PROTOCOL_HEADER_OCTETS])
            self.position += PROTOCOL_HEADER_OCTETS
            self._wants_header = False
            return header
        if not self.advance():
            return None
        return self.decode()

    def advance(self) -> bool:
        """Goes to the next whole frame; False when more octets are needed. Raises FramingError.

        After True the frame is `data[body_start:body_end]` with `frame_type` and `channel`, until the next
        call of any method: for callers that read the common performatives themselves (`decode` does the
        rest).
        """
        if self._failure is not None:
            raise self._failure
        pos = self.position
        data = self.data
        if len(data) - pos < FRAME_HEADER_OCTETS:
            if not self._has(4):
                return False
            self._check_size(U32(self.data, self.position)[0])
            if not self._has(FRAME_HEADER_OCTETS):
                return False
            pos = self.position
            data = self.data
        size = U32(data, pos)[0]
        self._check_size(size)
        doff, frame_type, channel = _TYPES_AND_CHANNEL(data, pos + 4)
        if doff < 2 or doff * 4 > size or frame_type > SASL_FRAME:
            raise self._malformed(size, doff, frame_type)
        if len(data) - pos < size:
            if not self._has(size):
                return False
            pos = self.position
        self.frame_type = frame_type
        self.channel = channel
        self.body_start = pos + 4 * doff
        self.body_end = self.position = pos + size
        return True

    def decode(self) -> Frame:
        """The frame that `advance` went to. Raises DecodeError, and FramingError for an empty SASL frame."""
        start = self.body_start
        end = self.body_end
        if start == end:
            if self.frame_type == SASL_FRAME:
                self._failure = FramingError("expected a SASL performative, but the SASL frame is empty")
                raise self._failure
            return Frame(self.frame_type, self.channel, None, b"")
        performative, payload_start = _decode_performative(self.frame_type, self.data, start, end)
        if self.frame_type == SASL_FRAME:
            if payload_start != end:
                raise DecodeError(
                    f"expected one value in a SASL frame, but {end - payload_start} octets follow it"
                )
            return Frame(SASL_FRAME, 0, performative, b"")
        return Frame(self.frame_type, self.channel, performative, self.data[payload_start:end])

    def _has(self, octets: int) -> bool:
        """Whether so many octets wait; then they lie in `data` from `position` on."""
        waiting = len(self.data) - self.position
        if waiting >= octets:
            return True
        if waiting + self._chunks_octets < octets:
            self._needed = octets
            if self.position:
                # What was taken is not kept while the rest is waited for: idle connections are many.
                self.data = self.data[self.position :]
                self.position = 0
            return False
        self._needed = 0
        if waiting:
            pieces = [self.data[self.position :]]
            self.data = b""
            self._move(pieces, octets - waiting)
            self.data = b"".join(pieces)
            self.position = 0
            return True
        self.data = self._chunks.pop(0)
        self.position = self._chunk_at
        self._chunk_at = 0
        self._chunks_octets -= len(self.data) - self.position
        return self._has(octets)

    def _move(self, pieces: list[bytes], octets: int) -> None:
        """So many of the octets that wait elsewhere."""
        self._chunks_octets -= octets
        whole = 0
        while octets:
            chunk = self._chunks[whole]
            at = self._chunk_at
            piece = chunk[at : at + octets]
            pieces.append(piece)
            octets -= len(piece)
            self._chunk_at = at + len(piece)
            if self._chunk_at == len(chunk):
                self._chunk_at = 0
                whole += 1
        del self._chunks[:whole]

    def _check_size(self, size: int) -> None:
        if size < FRAME_HEADER_OCTETS:
            self._failure = FramingError(
                f"expected a frame of at least {FRAME_HEADER_OCTETS} octets, but found {size}"
            )
            raise self._failure
        if size > self.max_frame_size:
            self._failure = FramingError(
                f"expected a frame of at most {self.max_frame_size} octets{self.limit_name}, but found "
                f"{size}",
            )
            raise self._failure

    def _malformed(self, size: int, doff: int, frame_type: int) -> FramingError:
        if frame_type > SASL_FRAME:
            text = f"expected a frame of type 0 (AMQP) or 1 (SASL), but found {frame_type}"
        else:
            text = f"expected a data offset of 2 to {size // 4} in a frame of {size} octets, but found {doff}"
        self._failure = FramingError(text)
        return self._failure
