"""The client for asyncio and trio programs.

    async with open_client("amqp://127.0.0.1:5672") as client:
        sender = await client.open_sender("orders")
        await sender.send("one pair of shoes")
        receiver = await client.open_receiver("orders")
        received = await receiver.receive()
        receiver.accept(received)

Timeouts are the caller's (`asyncio.timeout`, `trio.fail_after`): whatever is cancelled was either not sent,
or its outcome is unknown. A connection does not come back by itself: what is waited for then ends with a
Gone, and the caller connects again.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
import attrs
from anyio.streams.tls import TLSAttribute, TLSStream

from amqp_broker.client.async_links import OpensLinks
from amqp_broker.client.async_pump import AsyncPump
from amqp_broker.client.core import ClientCore
from amqp_broker.client.core_session import SessionCore
from amqp_broker.client.errors import ConnectFailed
from amqp_broker.client.settings import Endpoint
from amqp_broker.client.shells import AnyConnection, AnySession, settings_of, tls_of

if TYPE_CHECKING:
    from amqp_broker.client.async_producer import Check, TransactionProducer


@asynccontextmanager
async def open_client(
    url: str,
    *,
    stream: anyio.abc.ByteStream | None = None,
    ssl_context: ssl.SSLContext | None = None,
    **settings: Any,
) -> AsyncIterator[Client]:
    """Connects, logs in and opens; closes at the end of the block. `amqps` uses TLS, with the system's
    authorities unless `ssl_context` says otherwise; `settings` are fields of ClientSettings (`container_id`,
    `user`, `password`, ...). `stream` (anyio's ByteStream) is used instead of a connection of our own making.

    Raises ConnectFailed, LoginRefused, ConnectionGone, WrongUse.
    """
    made, endpoint = settings_of(url, settings)
    if stream is None:
        stream = await _dial(endpoint, tls_of(endpoint, ssl_context), made.open_timeout_s)
        endpoint = attrs.evolve(endpoint, channel=stream.extra(TLSAttribute.ssl_object, None))
    core = ClientCore(made, endpoint, anyio.current_time())
    opening = core.open()
    pump = AsyncPump(stream, core)
    async with pump.running():
        await pump.wait(opening)
        client = Client(pump)
        yield client
        await client.close()


async def _dial(endpoint: Endpoint, context: ssl.SSLContext | None, timeout_s: float) -> anyio.abc.ByteStream:
    stream: anyio.abc.ByteStream | None = None
    try:
        with anyio.fail_after(timeout_s):
            stream = await anyio.connect_tcp(endpoint.host, endpoint.port)
            if context is None:
                return stream
            return await TLSStream.wrap(stream, hostname=endpoint.host, ssl_context=context)
    except (OSError, anyio.BrokenResourceError) as error:
        if stream is not None:
            await anyio.aclose_forcefully(stream)
        why = error.__cause__ or str(error) or f"nothing within {timeout_s:g} s"
        raise ConnectFailed(f"expected a listener at {endpoint}, but: {why}") from error


class Session(AnySession[AsyncPump], OpensLinks):
    """A session: links of one session have one window, and one error of theirs ends them all (2.5)."""

    def __init__(self, pump: AsyncPump, session: SessionCore) -> None:
        super().__init__(pump)
        self.core = session

    async def _session_core(self) -> SessionCore:
        return self.core


class Client(AnyConnection[AsyncPump], OpensLinks):
    """An open connection. Made by `open_client`."""

    def __init__(self, pump: AsyncPump) -> None:
        super().__init__(pump)
        self._session: Session | None = None
        self._beginning = anyio.Lock()

    async def open_session(self) -> Session:
        """One more session."""
        return Session(self._pump, await self._pump.wait(self._pump.call(self._pump.core.begin)))

    def producer(
        self, group: str, check: Check | None = None, **options: Any
    ) -> AbstractAsyncContextManager[TransactionProducer]:
        """A producer of half messages for this group: see `async_producer.open_producer`."""
        from amqp_broker.client.async_producer import open_producer

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
