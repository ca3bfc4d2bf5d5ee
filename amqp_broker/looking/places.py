"""Places for what waits for a broker: so many at once, and who comes beyond waits a moment, in the loop.

A thread that waits for a hung broker is one that nobody else has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from amqp_broker.looking.limits import PLACE_WAIT_S


class Busy(Exception):
    """Too many wait for the same already."""


class Places:
    """So many at once. Used in the loop only."""

    def __init__(self, at_once: int) -> None:
        self._free = asyncio.Semaphore(at_once)

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """A place as long as the block. Raises Busy where none is free after PLACE_WAIT_S."""
        try:
            async with asyncio.timeout(PLACE_WAIT_S):
                await self._free.acquire()
        except TimeoutError:
            raise Busy("others are waiting for this broker already: try again") from None
        try:
            yield
        finally:
            self._free.release()
