"""Tests of the asynchronous client: the same test on both loops, and memory streams as it likes them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.abc
import pytest
import trio


class OfTrio(anyio.abc.ByteStream):
    """A stream of trio as one of anyio: the same octets, errors and ends."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        """Some octets. Raises EndOfStream."""
        try:
            found = bytes(await self._stream.receive_some(max_bytes))
        except trio.BrokenResourceError as error:
            raise anyio.BrokenResourceError from error
        except trio.ClosedResourceError as error:
            raise anyio.ClosedResourceError from error
        if not found:
            raise anyio.EndOfStream
        return found

    async def send(self, item: bytes) -> None:
        """All of it."""
        try:
            await self._stream.send_all(item)
        except trio.BrokenResourceError as error:
            raise anyio.BrokenResourceError from error
        except trio.ClosedResourceError as error:
            raise anyio.ClosedResourceError from error

    async def send_eof(self) -> None:
        """Never asked for here."""
        raise AssertionError("a client ends its connection with a close")

    async def aclose(self) -> None:
        """Both ways."""
        await self._stream.aclose()


def on_both_loops(function: Callable[..., Awaitable[None]]) -> Any:
    """The test once on asyncio and once on trio; fixtures are its arguments."""

    @functools.wraps(function)
    def run(loop: str, **fixtures: Any) -> None:
        anyio.run(functools.partial(function, **fixtures), backend=loop)

    own = inspect.signature(function)
    loop = inspect.Parameter("loop", inspect.Parameter.KEYWORD_ONLY)
    changed = own.replace(parameters=[*own.parameters.values(), loop])
    run.__signature__ = changed  # type: ignore[attr-defined]
    return pytest.mark.parametrize("loop", ["asyncio", "trio"])(run)
