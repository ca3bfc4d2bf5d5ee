"""One stream and its core: a task that reads, one that writes, one for what is due.

    caller's task --call()--> core        whatever it made is written by the writer
    reader        --bytes---> core        wakes who waits
    timer         --now-----> core        heartbeats, idle time-outs, the end of a close

Callers never touch the stream, so that cancelling them breaks nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, ParamSpec, TypeVar

import anyio
import anyio.abc
import anyio.lowlevel

from amqp_broker.client.core import ClientCore
from amqp_broker.client.groups import one_error
from amqp_broker.client.pending import Pending

READ_BYTES: Final = 262_144
CLOSE_GRACE_S: Final = 2.0  # how long the last bytes may take that a peer does not read
FOR_EVER: Final = float("inf")

P = ParamSpec("P")
T = TypeVar("T")


class AsyncPump:
    """The way of all calls to the core, for the tasks of one loop."""

    def __init__(self, stream: anyio.abc.ByteStream, core: ClientCore) -> None:
        self.core = core
        self._stream = stream
        self._written = anyio.Event()
        self._output = anyio.Event()
        self._sooner = anyio.Event()
        self._sleeps_until = FOR_EVER

    def call(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Calls a function of the core, and has written what it made."""
        try:
            return function(*arguments, **named)
        finally:
            self._after()

    async def wait(self, pending: Pending[T]) -> T:
        """The answer. Raises its error. When it is cancelled, what can be undone is undone."""
        if pending.done:
            await anyio.lowlevel.checkpoint_if_cancelled()
            return pending.result()
        if pending.waiter is None:
            pending.waiter = anyio.Event()
        try:
            await pending.waiter.wait()
        except anyio.get_cancelled_exc_class():
            self.call(pending.give_up)
            raise
        return pending.result()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The tasks run during the block; the stream is closed at its end, whatever ends it."""
        try:
            with one_error():
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._read)
                    tasks.start_soon(self._write)
                    tasks.start_soon(self._time)
                    yield
                    with anyio.move_on_after(CLOSE_GRACE_S):
                        await self._written.wait()
                    tasks.cancel_scope.cancel()
        finally:
            self._lose("the client is at its end")
            await anyio.aclose_forcefully(self._stream)

    # --- parts

    def _after(self) -> None:
        """After each call of the core: wake who waited, and the tasks that have to do something."""
        self._wake()
        self._output.set()
        deadline = self.core.next_deadline()
        if deadline is not None and deadline < self._sleeps_until:
            self._sooner.set()

    def _wake(self) -> None:
        for pending in self.core.take_finished():
            pending.waiter.set()

    def _take_output(self) -> bytes:
        # Not by `call`: that would ask the writer to look again, for ever.
        chunks = self.core.data_to_send()
        self._wake()
        return b"".join(chunks)

    def _lose(self, why: str) -> None:
        self.core.receive_eof(anyio.current_time(), why)
        self._after()

    async def _read(self) -> None:
        while not self.core.wants_close:
            try:
                data = await self._stream.receive(READ_BYTES)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
                self._lose(f"the transport broke: {error.__cause__ or error}")
                return
            except anyio.EndOfStream:
                self._lose("the peer ended the transport without a close")
                return
            self.call(self.core.receive_data, bytes(data), anyio.current_time())

    async def _write(self) -> None:
        try:
            while True:
                self._output = anyio.Event()
                while output := self._take_output():
                    await self._stream.send(output)
                if self.core.wants_close:
                    return
                await self._output.wait()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            self._lose(f"the transport broke: {error.__cause__ or error}")
        finally:
            self._written.set()
            await anyio.aclose_forcefully(self._stream)

    async def _time(self) -> None:
        while not self.core.wants_close:
            deadline = self.core.next_deadline()
            self._sleeps_until = FOR_EVER if deadline is None else deadline
            self._sooner = anyio.Event()
            with anyio.CancelScope(deadline=self._sleeps_until):
                await self._sooner.wait()
            self.call(self.core.handle_timeout, anyio.current_time())
