"""The bytes of one connection: a socket by its shortest way, any other stream (TLS, memory) by trio's.

A request and its answer are a few hundred microseconds apart, and a tenth of that is the way from a
turn to the kernel: what the socket takes at once needs neither another task nor another round of the loop.
"""

from __future__ import annotations

import os
from typing import Final, Protocol

import trio

from amqp_broker.compilation import mypyc_attr
from amqp_broker.links import Piece

READ_BYTES: Final = 49_152
"""One read is one batch, about 340 messages of 100 octets. A larger one costs less for each, but everybody
waits while it is taken: with 64 KiB, durable messages beside those that are sent settled wait a twentieth
longer.
"""
FRAMES_IN_READ: Final = 64  # of large frames: a turn costs more than most of what it does with one of them
LARGEST_READ_BYTES: Final = 1_048_576  # of large frames: what one read may bring into memory
assert READ_BYTES < LARGEST_READ_BYTES
JOINED_BYTES: Final = 4_096  # on average; larger pieces of the output are written from where they are
PIECES_IN_WRITE: Final = 1_024  # IOV_MAX of Linux


class Transport(Protocol):
    """What a connection task reads from and writes to."""

    async def receive(self, awaited_octets: int) -> bytes:
        """What came, empty at the end. `awaited_octets`: of the frame that is not whole, 0 where nobody knows
        or no more than READ_BYTES should come. Raises BrokenResourceError or ClosedResourceError (trio).
        """

    def send_now(self, pieces: list[Piece], octets: int) -> list[Piece]:
        """Write without waiting what the pieces (`octets` in all) hold; what did not go. Raises
        BrokenResourceError.
        """

    async def send_all(self, pieces: list[Piece]) -> None:
        """Write all of it. Raises BrokenResourceError or ClosedResourceError."""


def read_bytes(last: int, awaited_octets: int) -> int:
    """How much the next read takes at most: more than READ_BYTES only if the last one brought so much (`last`
    octets), and a large frame (`awaited_octets`) is not whole. Small messages would only wait for their like.
    """
    if last < READ_BYTES:
        return READ_BYTES
    return max(READ_BYTES, min(awaited_octets * FRAMES_IN_READ, LARGEST_READ_BYTES))


class SocketTransport:
    """A TCP socket. trio tells when it is readable; reading and writing are one system call each."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._descriptor = stream.socket.fileno()
        self._drained = True  # the last read took all there was: asking again before waiting is in vain
        self._last_bytes = 0  # that the last read brought

    async def receive(self, awaited_octets: int) -> bytes:
        most = read_bytes(self._last_bytes, awaited_octets)
        if not self._drained:
            await trio.lowlevel.checkpoint()
        while True:
            if self._drained:
                await trio.lowlevel.wait_readable(self._descriptor)
            try:
                data = os.read(self._descriptor, most)
            except BlockingIOError:
                self._drained = True
                continue
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error
            self._last_bytes = len(data)
            self._drained = len(data) < most
            return data

    def send_now(self, pieces: list[Piece], octets: int) -> list[Piece]:
        if len(pieces) > 1 and octets < len(pieces) * JOINED_BYTES:
            pieces = [b"".join(pieces)]
        try:
            return behind(pieces, os.writev(self._descriptor, pieces[:PIECES_IN_WRITE]))
        except BlockingIOError:
            return pieces
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error

    async def send_all(self, pieces: list[Piece]) -> None:
        while pieces:
            await trio.lowlevel.wait_writable(self._descriptor)
            pieces = self.send_now(pieces, sum(map(len, pieces)))


def behind(pieces: list[Piece], octets: int) -> list[Piece]:
    """What follows so many octets."""
    for at, piece in enumerate(pieces):
        if octets < len(piece):
            rest = pieces[at:]
            if octets:
                rest[0] = memoryview(piece)[octets:]
            return rest
        octets -= len(piece)
    return []


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamTransport:
    """Any stream of trio's: nothing goes without a task that may wait."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream

    async def receive(self, awaited_octets: int) -> bytes:
        return bytes(await self._stream.receive_some(READ_BYTES))

    def send_now(self, pieces: list[Piece], octets: int) -> list[Piece]:
        return pieces

    async def send_all(self, pieces: list[Piece]) -> None:
        await self._stream.send_all(b"".join(pieces))


def transport_of(stream: trio.abc.Stream) -> Transport:
    """The shortest way to the bytes of `stream`."""
    if type(stream) is trio.SocketStream:
        return SocketTransport(stream)
    return StreamTransport(stream)
