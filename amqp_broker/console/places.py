"""Places for who logs in, beside those that each broker and each login has (`looking/places.py`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from amqp_broker.console.limits import LOGINS_AT_ONCE, LOGINS_OF_ADDRESS
from amqp_broker.host_names import counted_address
from amqp_broker.looking.places import Busy, Places


class LoginPlaces:
    """LOGINS_AT_ONCE for all, LOGINS_OF_ADDRESS for each address that browsers come from."""

    def __init__(self) -> None:
        self._all = Places(LOGINS_AT_ONCE)
        self._taken: Counter[str] = Counter()

    @asynccontextmanager
    async def one(self, host: str) -> AsyncIterator[None]:
        """A place as long as the block. Raises Busy."""
        whose = counted_address(host)
        if self._taken[whose] >= LOGINS_OF_ADDRESS:
            raise Busy("others are just logging in: try again")
        self._taken[whose] += 1
        try:
            async with self._all.one():
                yield
        finally:
            self._taken[whose] -= 1
            self._taken += Counter()  # those of 0 go
