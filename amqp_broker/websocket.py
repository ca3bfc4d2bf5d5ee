"""AMQP over WebSocket: a connection's octets in binary messages of the subprotocol `amqp` (OASIS, AMQP
WebSocket Binding).

    octets --> WebSocketStream --> messages of 32 KiB --> websockets (frames, masks) --> TCP or TLS
           <--                 <-- of any size        <--

A page in a browser says where it comes from (`Origin`), and is refused unless the listener names that:
otherwise any page in the web could talk to a broker that only its reader's machine can reach. Other
programs say nothing, and get in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import trio
from websockets.exceptions import ProtocolError, WebSocketException
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Origin, Subprotocol

from amqp_broker.configuration import is_loopback
from amqp_broker.configuration_limits import BrokerLimits
from amqp_broker.host_names import is_local_name

SUBPROTOCOL: Final = Subprotocol("amqp")
READ_BYTES: Final = 65_536
SENT_BYTES: Final = 32_768  # of a message; clients of Netty take 65,535 where nobody has set more


class WebSocketRefused(Exception):
    """There was no handshake that we take; the message is for the log. `limit`: the setting that was met."""

    def __init__(self, reason: str, limit: str = "") -> None:
        super().__init__(reason)
        self.limit = limit


class WebSocketStream(trio.abc.Stream):
    """The octets of one WebSocket; made by `accept_websocket`."""

    def __init__(
        self,
        transport: trio.abc.Stream,
        protocol: ServerProtocol,
        message_bytes: int,
        is_stranger: Callable[[], bool],
    ) -> None:
        """`message_bytes` is the most of a message once the peer is no stranger any more; before, it is what
        the protocol was made with.
        """
        self._transport = transport
        self._protocol = protocol
        self._message_bytes = message_bytes
        self._is_stranger = is_stranger
        self._received = bytearray()
        self._ended = False
        self._writing = trio.Lock()
        """The task that reads answers pings, beside the one that writes."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """What came, empty at the end. Raises BrokenResourceError."""
        if self._received:
            await trio.lowlevel.checkpoint()  # others have their turns between the pieces of a large message
        while not self._received and not self._ended:
            data = await self._transport.receive_some(READ_BYTES)
            if data:
                if not self._is_stranger():
                    self._protocol.max_message_size = self._message_bytes
                self._protocol.receive_data(bytes(data))
            else:
                self._protocol.receive_eof()
                self._ended = True
            self._take_events()
            await self._flush()
        most = len(self._received) if max_bytes is None else max_bytes
        data = bytes(self._received[:most])
        del self._received[:most]
        return data

    def _take_events(self) -> None:
        for event in self._protocol.events_received():
            assert isinstance(event, Frame), "the handshake is over"
            if event.opcode in (Opcode.BINARY, Opcode.CONT):
                self._received += event.data
            elif event.opcode is Opcode.TEXT:
                self._protocol.fail(CloseCode.UNSUPPORTED_DATA, "AMQP is binary")
                self._ended = True
            elif event.opcode is Opcode.CLOSE:
                self._ended = True
        if self._protocol.parser_exc is not None:
            self._ended = True

    async def _flush(self) -> None:
        async with self._writing:
            await self._write(self._protocol.data_to_send())

    async def _write(self, pieces: Sequence[bytes]) -> None:
        data = b"".join(pieces)
        if data:
            await self._transport.send_all(data)

    async def send_all(self, data: Any) -> None:
        """As many binary messages as it takes. Raises BrokenResourceError."""
        view = memoryview(data)
        for start in range(0, len(view), SENT_BYTES):
            async with self._writing:
                try:
                    self._protocol.send_binary(bytes(view[start : start + SENT_BYTES]))
                except (ProtocolError, WebSocketException) as error:
                    raise trio.BrokenResourceError("the WebSocket is closed") from error
                await self._write(self._protocol.data_to_send())

    async def wait_send_all_might_not_block(self) -> None:
        """Until there is room in the transport."""
        await self._transport.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        """Say that nothing more is to come: a Close frame. The peer answers with its own."""
        async with self._writing:
            try:
                self._protocol.send_close(CloseCode.NORMAL_CLOSURE)
            except (ProtocolError, WebSocketException):
                return  # it is closed already
            await self._write(self._protocol.data_to_send())

    async def aclose(self) -> None:
        """Close what is below."""
        await self._transport.aclose()


async def accept_websocket(
    transport: trio.abc.Stream,
    origins: Sequence[str],
    limits: BrokerLimits,
    is_stranger: Callable[[], bool],
    scheme: str,
) -> WebSocketStream:
    """The handshake, server side. What a stranger sends is bounded as on any transport before its login;
    `scheme` is http, or https where TLS is below. Raises WebSocketRefused, also where it takes too long, and
    BrokenResourceError.
    """
    protocol = ServerProtocol(subprotocols=[SUBPROTOCOL], max_size=limits.login_buffer_bytes)
    with trio.move_on_after(limits.websocket_timeout_ms / 1_000):
        request = await _request(transport, protocol, limits.websocket_header_bytes)
        protocol.origins = [None, *(Origin(origin) for origin in origins), *_own_origins(request, scheme)]
        response = protocol.accept(request)
        protocol.send_response(response)
        await transport.send_all(b"".join(protocol.data_to_send()))
        if response.status_code != 101:
            raise WebSocketRefused(str(protocol.handshake_exc or response.reason_phrase))
        stream = WebSocketStream(transport, protocol, limits.websocket_message_bytes, is_stranger)
        stream._take_events()  # what came right behind the request
        return stream
    reason = f"no handshake within {limits.websocket_timeout_ms} ms (websocket_timeout_ms)"
    raise WebSocketRefused(reason, "websocket_timeout_ms")


def _own_origins(request: Request, scheme: str) -> list[Origin]:
    """The address that was called, as an origin: programs on Netty name it. No page can come from there, as
    the broker has none; a name instead of an address could be anybody's that leads here (DNS rebinding).

    Qpid JMS writes `http` inside TLS, too. That is taken on this machine only: elsewhere somebody in between
    could show a page without TLS at the same address.
    """
    hosts = request.headers.get_all("Host")
    try:
        host = urlsplit(f"//{hosts[0]}").hostname if len(hosts) == 1 else None
    except ValueError:
        host = None
    if host is None or not is_local_name(host):
        return []
    schemes = {scheme, "http"} if is_loopback(host) else {scheme}
    return [Origin(f"{each}://{hosts[0]}") for each in schemes]


async def _request(transport: trio.abc.Stream, protocol: ServerProtocol, most_bytes: int) -> Request:
    read = 0
    while True:
        data = await transport.receive_some(READ_BYTES)
        if not data:
            raise WebSocketRefused("the end of the stream instead of a request")
        read += len(data)
        protocol.receive_data(bytes(data))
        for event in protocol.events_received():
            assert isinstance(event, Request), "nothing comes before the request"
            return event
        if protocol.handshake_exc is not None:
            await transport.send_all(b"".join(protocol.data_to_send()))
            raise WebSocketRefused(str(protocol.handshake_exc))
        if read > most_bytes:
            reason = f"a request of more than {most_bytes} bytes (websocket_header_bytes)"
            raise WebSocketRefused(reason, "websocket_header_bytes")
