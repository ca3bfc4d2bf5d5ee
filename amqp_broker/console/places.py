"""Places for what waits for a broker: so many at once, and who comes beyond waits a moment, in the loop.

A thread that waits for a hung broker is one that nobody else has. So each broker has its own places, each
login some of them, and logins have others.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from amqp_broker.console.limits import IPV6_PREFIX_BITS, LOGINS_AT_ONCE, LOGINS_OF_ADDRESS, PLACE_WAIT_S


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


class LoginPlaces:
    """LOGINS_AT_ONCE for all, LOGINS_OF_ADDRESS for each address that browsers come from."""

    def __init__(self) -> None:
        self._all = Places(LOGINS_AT_ONCE)
        self._taken: Counter[str] = Counter()

    @asynccontextmanager
    async def one(self, host: str) -> AsyncIterator[None]:
        """A place as long as the block. Raises Busy."""
        whose = network_of(host)
        if self._taken[whose] >= LOGINS_OF_ADDRESS:
            raise Busy("others are just logging in: try again")
        self._taken[whose] += 1
        try:
            async with self._all.one():
                yield
        finally:
            self._taken[whose] -= 1
            self._taken += Counter()  # those of 0 go


def network_of(host: str) -> str:
    """Whom an address counts for: of IPv6 a whole network, which is what one subscriber has."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if address.version == 4:
        return str(address)
    return str(ipaddress.ip_network((int(address), IPV6_PREFIX_BITS), strict=False))
