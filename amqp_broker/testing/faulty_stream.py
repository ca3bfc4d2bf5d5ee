"""A stream whose frames go through a script of faults, on the broker's side of a connection.

To detach a link, the tap plays both parts: the broker gets a detach as if its client had asked, the client
gets the broker's answer with the scripted error in it, and the client's own answer ends here.
"""

from __future__ import annotations

import socket
import struct
import threading
from typing import TYPE_CHECKING

import trio

from amqp_broker.frames import RECEIVER, Attach, Detach, Error, Flow, Frame, Transfer, encode_frame
from amqp_broker.testing.frame_tap import FrameTap, Piece

if TYPE_CHECKING:
    from amqp_broker.testing.scripted_faults import ScriptedFaults

LINGER_ZERO = struct.pack("ii", 1, 0)
LinkKey = tuple[int, int]
"""(channel, handle) as one side numbers them."""


class FaultyStream(FrameTap):
    """One connection of a broker with scripted faults."""

    def __init__(self, stream: trio.abc.Stream, faults: ScriptedFaults) -> None:
        super().__init__(stream)
        self._faults = faults
        self._token = trio.lowlevel.current_trio_token()
        self._names_of_client: dict[LinkKey, str] = {}
        self._names_of_broker: dict[LinkKey, str] = {}
        self._broker_receives: set[LinkKey] = set()
        self._detaching: dict[str, Error] = {}
        self._swallowed: set[LinkKey] = set()

    async def received(self, piece: Piece) -> bytes:
        """The client's frames, on their way to the broker."""
        if self._faults.trace is not None:
            self._faults.trace.record("C", piece)
        performative = piece.performative
        for kind, countdown in self._faults.arrival_resets:
            if isinstance(performative, kind) and countdown.fires():
                self.reset()
                raise trio.BrokenResourceError("scripted reset")
        if not isinstance(piece.frame, Frame):
            return piece.octets
        channel = piece.frame.channel
        if isinstance(performative, Attach):
            self._names_of_client[channel, performative.handle] = performative.name
        key = (channel, getattr(performative, "handle", None) or 0)
        if isinstance(performative, (Transfer, Flow, Detach)) and key in self._swallowed:
            if isinstance(performative, Detach):
                self._swallowed.discard(key)
            return b""
        if isinstance(performative, Transfer):
            return piece.octets + self._detach_if_due(key)
        return piece.octets

    def _detach_if_due(self, key: LinkKey) -> bytes:
        for countdown, condition, text in self._faults.detaches:
            if countdown.fires() and key in self._names_of_client:
                self._detaching[self._names_of_client[key]] = Error(condition=condition, description=text)
                self._swallowed.add(key)
                return encode_frame(key[0], Detach(handle=key[1], closed=True))
        return b""

    async def sent(self, piece: Piece) -> bytes:
        """The broker's frames, on their way to the client."""
        octets = await self._sent(piece)
        if self._faults.trace is not None and octets:
            self._faults.trace.record("S", piece)
        return octets

    async def _sent(self, piece: Piece) -> bytes:
        performative = piece.performative
        for kind, countdown, seconds in self._faults.frame_delays:
            if isinstance(performative, kind) and countdown.fires():
                await trio.sleep(seconds)
        for kind, countdown in self._faults.frame_drops:
            if isinstance(performative, kind) and countdown.fires():
                self._faults.frames_lost += 1
                return b""
        if not isinstance(piece.frame, Frame):
            return piece.octets
        channel = piece.frame.channel
        if isinstance(performative, Attach):
            key = (channel, performative.handle)
            self._names_of_broker[key] = performative.name
            if performative.role is RECEIVER:
                self._broker_receives.add(key)
        if isinstance(performative, Flow) and self._faults.credit_withheld:
            key = (channel, performative.handle if performative.handle is not None else -1)
            if key in self._broker_receives:
                performative.link_credit = 0
                return encode_frame(channel, performative)
        if isinstance(performative, Detach):
            error = self._detaching.pop(self._names_of_broker.get((channel, performative.handle), ""), None)
            if error is not None:
                performative.error = error
                return encode_frame(channel, performative)
        return piece.octets

    async def aclose(self) -> None:
        """Close, and leave the script's list of connections."""
        self._faults.forget(self)
        await super().aclose()

    def reset(self) -> None:
        """Cut the connection as a crash of the peer's machine does.  In the broker's thread only."""
        self._faults.forget(self)
        close_now(self.inner)

    def reset_from_any_thread(self, timeout_s: float) -> None:
        """Reset, and return when it has happened."""
        try:
            here = trio.lowlevel.current_trio_token() is self._token
        except RuntimeError:
            here = False
        if here:
            self.reset()
            return
        done = threading.Event()

        def there() -> None:
            self.reset()
            done.set()

        try:
            self._token.run_sync_soon(there)
        except trio.RunFinishedError:
            return
        done.wait(timeout_s)


def close_now(stream: trio.abc.Stream) -> None:
    """Close without a goodbye; TCP sends RST."""
    if isinstance(stream, trio.SSLStream):
        close_now(stream.transport_stream)
    elif isinstance(stream, trio.SocketStream):
        if stream.socket.fileno() < 0:
            return  # it was closed while the reset was on its way from another thread
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_ZERO)
        stream.socket.close()
    elif isinstance(stream, trio.StapledStream):
        for half in (stream.send_stream, stream.receive_stream):
            close = getattr(half, "close", None)
            assert close is not None, f"{type(half).__name__} cannot be closed at once"
            close()
    elif isinstance(stream, FrameTap):
        close_now(stream.inner)
    else:
        raise AssertionError(f"expected a socket, TLS or memory stream, but got {type(stream).__name__}")
