"""A stream that sees the frames that pass through it, in both directions, and may change them.

socket --bytes--> FrameCutter --Piece--> received(piece) --bytes--> the broker
the broker --bytes--> FrameCutter --Piece--> sent(piece) --bytes--> socket
"""

from __future__ import annotations

from typing import Final

import trio

from amqp_broker.frames import AmqpError, Frame, FrameReader, ProtocolHeader

SIZE_OCTETS: Final = 4
HEADER_OCTETS: Final = 8
READ_BYTES: Final = 65_536


class Piece:
    """A protocol header, a frame, or octets that are neither: `octets` as they came, `frame` None if
    undecodable.
    """

    __slots__ = ("frame", "octets")

    def __init__(self, octets: bytes, frame: Frame | ProtocolHeader | None) -> None:
        self.octets = octets
        self.frame = frame

    @property
    def performative(self) -> object:
        """The performative of a frame, else None."""
        return self.frame.performative if isinstance(self.frame, Frame) else None


class FrameCutter:
    """Cuts octets into pieces.  After octets that cannot be a frame everything passes as it is."""

    def __init__(self) -> None:
        self._buffer = b""
        self._lost = False

    def feed(self, data: bytes) -> list[Piece]:
        """The pieces that are complete now."""
        self._buffer += data
        pieces = []
        while (size := self._next_size()) is not None:
            octets, self._buffer = self._buffer[:size], self._buffer[size:]
            pieces.append(Piece(octets, None if self._lost else decode_piece(octets)))
        return pieces

    def rest(self) -> bytes:
        """What is left when the stream ends in the middle of a piece."""
        rest, self._buffer = self._buffer, b""
        return rest

    def _next_size(self) -> int | None:
        waiting = len(self._buffer)
        if self._lost:
            return waiting or None
        if waiting < HEADER_OCTETS:
            return None
        if self._buffer[:4] == b"AMQP":
            return HEADER_OCTETS
        size = int.from_bytes(self._buffer[:SIZE_OCTETS], "big")
        if size < HEADER_OCTETS:
            self._lost = True
            return waiting
        return size if waiting >= size else None


def decode_piece(octets: bytes) -> Frame | ProtocolHeader | None:
    """The frame or header in these octets, or None."""
    reader = FrameReader(max(len(octets), HEADER_OCTETS))
    if octets[:4] == b"AMQP":
        reader.expect_header()
    reader.feed(octets)
    try:
        return reader.next()
    except AmqpError:
        return None


class FrameTap(trio.abc.Stream):
    """The server's side of a stream, with `received` and `sent` called for each piece."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.inner = stream
        self._incoming = FrameCutter()
        self._outgoing = FrameCutter()
        self._ended = False

    async def received(self, piece: Piece) -> bytes:
        """What the broker gets instead of `piece`."""
        return piece.octets

    async def sent(self, piece: Piece) -> bytes:
        """What the peer gets instead of `piece`."""
        return piece.octets

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Pass on at least one whole piece, or the end."""
        while not self._ended:
            data = bytes(await self.inner.receive_some(READ_BYTES))
            if not data:
                self._ended = True
                return self._incoming.rest()
            out = [await self.received(piece) for piece in self._incoming.feed(data)]
            if any(out):
                return b"".join(out)
        return b""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Pass on what is whole now."""
        out = []
        for piece in self._outgoing.feed(bytes(data)):
            out.append(await self.sent(piece))
        octets = b"".join(out)
        if octets:
            await self.inner.send_all(octets)

    async def wait_send_all_might_not_block(self) -> None:
        """As the inner stream."""
        await self.inner.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        """As the inner stream, where it can."""
        send_eof = getattr(self.inner, "send_eof", None)
        if send_eof is not None:
            await send_eof()

    async def aclose(self) -> None:
        """Close the inner stream."""
        await self.inner.aclose()
