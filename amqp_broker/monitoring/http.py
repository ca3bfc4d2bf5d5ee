"""A small HTTP/1.1 listener: GET of a few paths, each answered by a function; h11 under trio.

    accept --> http_connections at once --> request within http_timeout_ms, http_request_bytes --> answer
                                                      ^------ the next one on the same connection ----+

Whoever can reach it may ask: there is no login. Whatever is sent, and whatever goes wrong with an answer,
ends its connection and nothing else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

import attrs
import h11
import trio

from amqp_broker.configuration import HttpConfig, is_loopback
from amqp_broker.configuration_limits import BrokerLimits
from amqp_broker.host_names import is_local_name
from amqp_broker.links import Refusals
from amqp_broker.listener import accept, reason_of
from amqp_broker.listener_tls import AddressUnavailable
from amqp_broker.log_setup import logger

TEXT: Final = "text/plain; charset=utf-8"
READ_BYTES: Final = 8_192
BACKLOG_SOCKETS: Final = 16


@attrs.frozen
class HttpAnswer:
    """What a path is answered with."""

    body: bytes
    status: int = 200
    content_type: str = TEXT


Paths = Mapping[str, Callable[[], Awaitable[HttpAnswer]]]


def _called_locally(request: h11.Request) -> bool:
    """Not by a name that leads here, as a page of somebody else's would call it (DNS rebinding)."""
    for name, value in request.headers:
        if name == b"host":
            try:
                return is_local_name(urlsplit(f"//{value.decode('latin-1')}").hostname or "")
            except ValueError:
                return False
    return True  # HTTP/1.0, which no browser speaks


class _TooLarge(Exception):
    """The body of a request is larger than anybody needs."""


class HttpServer:
    """One listener. `url` is where it can be asked, once it is open."""

    def __init__(self, config: HttpConfig, limits: BrokerLimits, paths: Paths, refusals: Refusals) -> None:
        self.url = ""
        self._config = config
        self._limits = limits
        self._paths = paths
        self._refusals = refusals
        self._open = 0
        self._log = logger("http")

    async def serve(
        self, handler_nursery: trio.Nursery, *, task_status: trio.TaskStatus[str] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Listen, and accept until cancelled. Raises AddressUnavailable."""
        config = self._config
        try:
            listeners = await trio.open_tcp_listeners(config.port, host=config.host, backlog=BACKLOG_SOCKETS)
        except OSError as error:
            told = f'http.url = "{config.url}": cannot listen: {reason_of(error)}'
            raise AddressUnavailable(told) from error
        host, port = listeners[0].socket.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        async with trio.open_nursery() as nursery:
            for listener in listeners:
                nursery.start_soon(accept, listener, self.url, self._handle, handler_nursery)
            task_status.started(self.url)

    async def _handle(self, stream: trio.SocketStream) -> None:
        self._open += 1
        try:
            if self._open <= self._limits.http_connections:
                await self._converse(stream)
            else:
                self._refusals.met("http_connections")
        except (trio.BrokenResourceError, trio.ClosedResourceError, h11.LocalProtocolError):
            pass  # who asked has gone, or was cut short
        except Exception:
            self._log.exception("http.fault")
        finally:
            self._open -= 1
            await trio.aclose_forcefully(stream)

    async def _converse(self, stream: trio.SocketStream) -> None:
        """Answer one request after the other, each within its time."""
        limit_s = self._limits.http_timeout_ms / 1_000
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=self._limits.http_request_bytes)
        while True:
            with trio.move_on_after(limit_s) as reading:
                answer, method = await self._asked(connection, stream)
            if reading.cancelled_caught and (
                connection.their_state is not h11.IDLE or connection.trailing_data[0]
            ):
                self._refusals.met("http_timeout_ms")  # of a request that has begun
            if reading.cancelled_caught or answer is None:
                return
            with trio.move_on_after(limit_s) as writing:
                await self._say(connection, stream, answer, method)
            if writing.cancelled_caught:
                self._refusals.met("http_timeout_ms")
            if answer.status in (413, 431):
                self._refusals.met("http_request_bytes")
            if writing.cancelled_caught or connection.our_state is not h11.DONE:
                return
            if connection.their_state is not h11.DONE:
                return
            connection.start_next_cycle()

    async def _asked(
        self, connection: h11.Connection, stream: trio.SocketStream
    ) -> tuple[HttpAnswer | None, bytes]:
        """The answer to the next request, None where none comes; and its method."""
        request: h11.Request | None = None
        size, most = 0, self._limits.http_request_bytes
        room = most + 1  # for the head: with so many octets of one that is not complete h11 says 431
        try:
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    data = await stream.receive_some(max(1, min(READ_BYTES, room)))
                    room -= len(data)
                    connection.receive_data(data)
                elif isinstance(event, h11.Request):
                    request, room = event, READ_BYTES
                elif isinstance(event, h11.Data):
                    size, room = size + len(event.data), READ_BYTES
                    if size > most:
                        raise _TooLarge
                elif isinstance(event, h11.EndOfMessage):
                    assert request is not None, "h11 keeps their order"
                    return await self._answer(request), request.method
                else:  # h11.ConnectionClosed, or a pause that nothing leads out of
                    return None, b""
        except h11.RemoteProtocolError as error:
            return HttpAnswer(f"{error}\n".encode(), error.error_status_hint or 400), b""
        except _TooLarge:
            words = f"expected a body of at most {most} octets (http_request_bytes)\n"
            return HttpAnswer(words.encode(), 413), b""

    async def _answer(self, request: h11.Request) -> HttpAnswer:
        if is_loopback(self._config.host) and not _called_locally(request):
            return HttpAnswer(b"expected Host to be an address or localhost: on a loopback listener\n", 421)
        if request.method not in (b"GET", b"HEAD"):
            return HttpAnswer(b"expected GET or HEAD\n", 405)
        answer = self._paths.get(request.target.split(b"?")[0].decode("latin-1"))
        if answer is None:
            return HttpAnswer(f"expected one of {', '.join(self._paths)}\n".encode(), 404)
        try:
            return await answer()
        except Exception:
            self._log.exception("http.fault")
            return HttpAnswer(b"a fault of the broker; see its log\n", 500)

    async def _say(
        self, connection: h11.Connection, stream: trio.SocketStream, answer: HttpAnswer, method: bytes
    ) -> None:
        headers = [
            ("Content-Type", answer.content_type), ("Content-Length", str(len(answer.body))),
            ("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"),
        ]  # fmt: skip
        if answer.status == 405:
            headers.append(("Allow", "GET, HEAD"))
        if connection.their_state is not h11.DONE:  # what is left of its request is not read
            headers.append(("Connection", "close"))
        said = connection.send(h11.Response(status_code=answer.status, headers=headers)) or b""
        if method != b"HEAD":
            said += connection.send(h11.Data(data=answer.body)) or b""
        said += connection.send(h11.EndOfMessage()) or b""
        await stream.send_all(said)
