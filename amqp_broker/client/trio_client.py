"""The client for trio programs.

    async with open_client("amqp://127.0.0.1:5672") as client:
        sender = await client.open_sender("orders")
        await sender.send("one pair of shoes")
        receiver = await client.open_receiver("orders")
        received = await receiver.receive()
        receiver.accept(received)

Timeouts are the caller's cancel scopes: whatever is cancelled was either not sent, or its outcome is unknown.
A connection does not come back by itself: what is waited for then ends with a Gone, and the caller connects
again.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import trio

from amqp_broker.client.core import ClientCore
from amqp_broker.client.core_session import SessionCore
from amqp_broker.client.errors import ConnectFailed
from amqp_broker.client.settings import Endpoint
from amqp_broker.client.shells import AnyConnection, AnySession, settings_of, tls_of
from amqp_broker.client.trio_links import OpensLinks
from amqp_broker.client.trio_pump import TrioPump

if TYPE_CHECKING:
    from amqp_broker.client.trio_producer import Check, TransactionProducer


@asynccontextmanager
async def open_client(
    url: str,
    *,
    stream: trio.abc.Stream | None = None,
    ssl_context: ssl.SSLContext | None = None,
    **settings: Any,
) -> AsyncIterator[Client]:
    """Connects, logs in and opens; closes at the end of the block. `amqps` uses TLS, with the system's
    authorities unless `ssl_context` says otherwise; `settings` are fields of ClientSettings (`container_id`,
    `user`, `password`, ...). `stream` is used instead of a connection of our own making.

    Raises ConnectFailed, LoginRefused, ConnectionGone, WrongUse.
    """
    made, endpoint = settings_of(url, settings)
    if stream is None:
        stream = await _dial(endpoint, tls_of(endpoint, ssl_context), made.open_timeout_s)
    core = ClientCore(made, endpoint, trio.current_time())
    opening = core.open()
    pump = TrioPump(stream, core)
    async with pump.running():
        await pump.wait(opening)
        client = Client(pump)
        yield client
        await client.close()


async def _dial(endpoint: Endpoint, context: ssl.SSLContext | None, timeout_s: float) -> trio.abc.Stream:
    stream: trio.abc.Stream | None = None
    try:
        with trio.fail_after(timeout_s):
            stream = await trio.open_tcp_stream(endpoint.host, endpoint.port)
            if context is None:
                return stream
            secure = trio.SSLStream(stream, context, server_hostname=endpoint.host)
            await secure.do_handshake()
            return secure
    except (OSError, trio.BrokenResourceError, trio.TooSlowError) as error:
        if stream is not None:
            await trio.aclose_forcefully(stream)
        why = error.__cause__ or error
        raise ConnectFailed(f"expected a listener at {endpoint}, but: {why}") from error


class Session(AnySession[TrioPump], OpensLinks):
    """A session: links of one session have one window, and one error of theirs ends them all (2.5)."""

    def __init__(self, pump: TrioPump, session: SessionCore) -> None:
        super().__init__(pump)
        self.core = session

    async def _session_core(self) -> SessionCore:
        return self.core


class Client(AnyConnection[TrioPump], OpensLinks):
    """An open connection. Made by `open_client`."""

    def __init__(self, pump: TrioPump) -> None:
        super().__init__(pump)
        self._session: Session | None = None
        self._beginning = trio.Lock()

    async def open_session(self) -> Session:
        """One more session."""
        return Session(self._pump, await self._pump.wait(self._pump.call(self._pump.core.begin)))

    def producer(
        self, group: str, check: Check | None = None, **options: Any
    ) -> AbstractAsyncContextManager[TransactionProducer]:
        """A producer of half messages for this group: see `trio_producer.open_producer`."""
        from amqp_broker.client.trio_producer import open_producer

        return open_producer(self, group, check, **options)

    async def close(self) -> None:
        """Closes, and waits for the peer's close, a few seconds at most. Harmless when called again."""
        await self._pump.wait(self._pump.call(self._pump.core.close))

    async def _session_core(self) -> SessionCore:
        async with self._beginning:
            session = self._session
            if session is None or session.core.gone is not None:
                session = self._session = await self.open_session()
            return session.core
