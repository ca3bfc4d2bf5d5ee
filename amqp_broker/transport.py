"""The bytes of one connection: a socket by its shortest way, any other stream (TLS, memory) by trio's.

A request and its answer are a few hundred microseconds apart, and a tenth of that is the way from a
turn to the kernel: what the socket takes at once needs neither another task nor another round of the loop.
"""

from __future__ import annotations

import os
from typing import Final, Protocol

import trio

from amqp_broker.compilation import mypyc_attr

READ_BYTES: Final = 65_536  # one read is one batch: about 450 messages of 100 B


class Transport(Protocol):
    """What a connection task reads from and writes to."""

    async def receive(self) -> bytes:
        """What came, empty at the end. Raises BrokenResourceError or ClosedResourceError (trio)."""

    def send_now(self, data: bytes) -> int:
        """Write without waiting; how many bytes went. Raises BrokenResourceError."""

    async def send_all(self, data: bytes | memoryview) -> None:
        """Write all of it. Raises BrokenResourceError or ClosedResourceError."""


class SocketTransport:
    """A TCP socket. trio tells when it is readable; reading and writing are one system call each."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._descriptor = stream.socket.fileno()
        self._drained = True  # the last read took all there was: asking again before waiting is in vain

    async def receive(self) -> bytes:
        if not self._drained:
            await trio.lowlevel.checkpoint()
        while True:
            if self._drained:
                await trio.lowlevel.wait_readable(self._descriptor)
            try:
                data = os.read(self._descriptor, READ_BYTES)
            except BlockingIOError:
                self._drained = True
                continue
            except OSError as error:
                raise trio.BrokenResourceError(str(error)) from error
            self._drained = len(data) < READ_BYTES
            return data

    def send_now(self, data: bytes) -> int:
        try:
            return os.write(self._descriptor, data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error

    async def send_all(self, data: bytes | memoryview) -> None:
        await self._stream.send_all(data)


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamTransport:
    """Any stream of trio's: nothing goes without a task that may wait."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream

    async def receive(self) -> bytes:
        return bytes(await self._stream.receive_some(READ_BYTES))

    def send_now(self, data: bytes) -> int:
        return 0

    async def send_all(self, data: bytes | memoryview) -> None:
        await self._stream.send_all(data)


def transport_of(stream: trio.abc.Stream) -> Transport:
    """The shortest way to the bytes of `stream`."""
    if type(stream) is trio.SocketStream:
        return SocketTransport(stream)
    return StreamTransport(stream)
