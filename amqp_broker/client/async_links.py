"""Senders and receivers for asyncio and trio."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, Self

from amqp_broker.client.async_pump import AsyncPump
from amqp_broker.client.core_session import SessionCore
from amqp_broker.client.errors import ClientError
from amqp_broker.client.messages import ReceivedMessage, outgoing
from amqp_broker.client.pending import Pending
from amqp_broker.client.shells import AnyReceiver, AnySender

BATCH: Final = 100  # messages that send_many gives to the core at once


class Sender(AnySender[AsyncPump]):
    """Sends and waits for outcomes. Made by `open_sender`."""

    async def send(self, content: Any, *, settled: bool = False) -> None:
        """Sends one message (`message(...)`, or a body) and returns when it was accepted.

        Settled, it returns when the message has left, and nobody promises anything. Raises MessageRefused,
        WrongUse for what is too large, and OutcomeUnknown, after which it may have been stored; the same
        holds when it is cancelled.
        """
        await self._pump.wait(self._pump.call(self.core.send, outgoing(content), settled))

    async def send_many(self, contents: Iterable[Any], *, window: int = 1_000) -> int:
        """Sends all, with up to `window` messages without an outcome at a time; how many were accepted: all.

        Raises the first failure, after the outcomes of the others that were sent.
        """
        waiting: deque[Pending[Any]] = deque()
        iterator = iter(contents)
        count = 0
        while batch := [outgoing(content) for content in islice(iterator, min(BATCH, window))]:
            while len(waiting) + len(batch) > window:
                await self._outcome(waiting)
            for content in batch:
                waiting.append(self._pump.call(self.core.send, content))
            count += len(batch)
        while waiting:
            await self._outcome(waiting)
        return count

    async def _outcome(self, waiting: deque[Pending[Any]]) -> None:
        """The outcome of the first one; the others' before a failure is raised."""
        try:
            await self._pump.wait(waiting.popleft())
        except ClientError:
            while waiting:
                try:
                    await self._pump.wait(waiting.popleft())
                except ClientError:
                    continue  # the first one is told
            raise


class Receiver(AnyReceiver[AsyncPump]):
    """Receives and gives outcomes. Made by `open_receiver`; iterating waits for each next message."""

    def __aiter__(self) -> Self:
        # Not a generator: leaving the loop must leave nothing to be closed.
        return self

    async def __anext__(self) -> ReceivedMessage:
        return await self.receive()

    async def receive(self) -> ReceivedMessage:
        """The next message; it wants an outcome. Raises Gone when none will come. Cancelling loses none."""
        while (received := self._pump.call(self.core.take)) is None:
            await self._pump.wait(self._pump.call(self.core.arrival))
        return received

    async def receive_now(self) -> ReceivedMessage | None:
        """The next message that the peer has, None when it has none for us (it is asked: drain, 2.6.7)."""
        received = self._pump.call(self.core.take)
        if received is None:
            try:
                await self._pump.wait(self._pump.call(self.core.drain))
            finally:
                self._pump.call(self.core.set_credit, self.core.credit)
            received = self._pump.call(self.core.take)
        return received


class OpensLinks:
    """Where links are opened: a session, or a connection, which opens them on its usual session."""

    def __init__(self, pump: AsyncPump) -> None:
        self._pump = pump

    @property
    def gone(self) -> str | None:
        """Why it ended; None as long as it has not."""
        raise AssertionError("each kind has its own")

    async def open_sender(self, address: str | None, **fields: Any) -> Sender:
        """A link to send to `address` (None: each message says in `to` where it goes). `fields` are
        `snd_settle_mode` and `properties` of the attach. Raises LinkRefused.
        """
        attaching = self._pump.call((await self._session_core()).attach_sender, address, **fields)
        return Sender(self._pump, await self._pump.wait(attaching))

    async def open_receiver(self, address: str | None, *, credit: int = 10, **fields: Any) -> Receiver:
        """A link to receive from `address` (None: a node that the peer makes for us), with `credit`: how many
        messages may be here without an outcome. `fields` are `source` for whoever wants more than an address
        (filters, a durable subscription), the `name` that this is found again by, and `snd_settle_mode` and
        `properties` of the attach. Raises LinkRefused.
        """
        attaching = self._pump.call((await self._session_core()).attach_receiver, address, credit, **fields)
        return Receiver(self._pump, await self._pump.wait(attaching))

    async def _session_core(self) -> SessionCore:
        raise AssertionError("each kind has its own")
