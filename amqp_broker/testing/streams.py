"""A connection to a broker without any socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import trio
import trio.testing

from amqp_broker.configuration import ListenerConfig
from amqp_broker.listener import peer_of_stream

if TYPE_CHECKING:
    from amqp_broker.broker import Broker

MemoryStream = trio.StapledStream[trio.testing.MemorySendStream, trio.testing.MemoryReceiveStream]


@asynccontextmanager
async def connected(broker: Broker) -> AsyncIterator[MemoryStream]:
    """A client's stream that the broker serves as if it had come over loopback.

    When the block ends, the stream is closed and the broker's side is waited for.
    """
    ours, theirs = trio.testing.memory_stream_pair()
    peer = peer_of_stream(ListenerConfig())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.serve_stream, theirs, peer)
        try:
            yield ours
        finally:
            await trio.aclose_forcefully(ours)
