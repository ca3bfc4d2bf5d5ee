"""Senders and receivers that block."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from typing import Any, Final, Self

from amqp_broker.client.blocking_pump import Pump
from amqp_broker.client.core_receiver import ReceiverCore
from amqp_broker.client.core_sender import SenderCore
from amqp_broker.client.core_session import SessionCore
from amqp_broker.client.errors import ClientError, WaitTimeout
from amqp_broker.client.messages import ReceivedMessage, outgoing
from amqp_broker.client.pending import Pending
from amqp_broker.client.shells import AnyReceiver, AnySender
from amqp_broker.links import Delivery

BATCH: Final = 100  # messages for each write of send_many


class BlockingSender(AnySender[Pump]):
    """Sends and waits for outcomes. Made by `open_sender`."""

    def __init__(self, pump: Pump, link: SenderCore, timeout_s: float | None) -> None:
        super().__init__(pump, link)
        self._timeout_s = timeout_s

    def send(self, content: Any, *, settled: bool = False, timeout_s: float | None = None) -> None:
        """Sends one message (`message(...)`, or a body) and returns when it was accepted.

        Settled, it returns when the message has left, and nobody promises anything. Raises MessageRefused,
        WrongUse for what is too large, WaitTimeout, and OutcomeUnknown, after which it may have been stored.
        """
        pending = self._pump.call(self.core.send, outgoing(content), settled)
        self._pump.wait(pending, self._timeout_s if timeout_s is None else timeout_s)

    def send_many(self, contents: Iterable[Any], *, window: int = 1_000) -> int:
        """Sends all, with up to `window` messages without an outcome at a time; how many were accepted: all.

        Raises the first failure, after the outcomes of the others that were sent, if they come in time.
        """
        waiting: deque[Pending[Any]] = deque()
        iterator = iter(contents)
        count = 0
        while batch := [outgoing(content) for content in islice(iterator, min(BATCH, window))]:
            while len(waiting) + len(batch) > window:
                self._outcome(waiting)
            waiting.extend(self._pump.call(list, map(self.core.send, batch)))
            count += len(batch)
        while waiting:
            self._outcome(waiting)
        return count

    def _outcome(self, waiting: deque[Pending[Any]]) -> None:
        """The outcome of the first one; those of the others, if they come in time, before it is raised that
        there was a failure.
        """
        try:
            self._pump.wait(waiting.popleft(), self._timeout_s)
        except ClientError as error:
            late = isinstance(error, WaitTimeout)
            deadline = None if self._timeout_s is None else time.monotonic() + self._timeout_s * (not late)
            while waiting:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                try:
                    self._pump.wait(waiting.popleft(), left)
                except ClientError:
                    continue  # the first one is told
            raise


class BlockingReceiver(AnyReceiver[Pump]):
    """Receives and gives outcomes. Made by `open_receiver`; iterating waits for each next message."""

    def __init__(self, pump: Pump, link: ReceiverCore, timeout_s: float | None) -> None:
        super().__init__(pump, link)
        self._timeout_s = timeout_s

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        return self.receive()

    def receive(self, timeout_s: float | None = None) -> ReceivedMessage:
        """The next message; it wants an outcome. Waits for ever unless `timeout_s` says how long.

        Raises WaitTimeout, and Gone when none will come.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while (received := self._pump.call(self.core.take)) is None:
            self._wait_for_arrival(timeout_s, deadline)
        return received

    def _wait_for_arrival(self, timeout_s: float | None, deadline: float | None) -> None:
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            where = self.core.shown_address
            raise WaitTimeout(f"expected a message from {where} within {timeout_s:g} s, but none came")
        with suppress(WaitTimeout):
            self._pump.wait(self._pump.call(self.core.arrival), left)

    def receive_settled(self, timeout_s: float | None = None) -> list[Delivery]:
        """All messages that are here, at least one, of a link whose sender settles what it sends. Waits for
        ever unless `timeout_s` says how long.

        Raises WaitTimeout, WrongUse for a message that wants an outcome, and Gone when none will come.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not (deliveries := self._pump.call(self.core.take_settled)):
            self._wait_for_arrival(timeout_s, deadline)
        return deliveries

    def receive_now(self) -> ReceivedMessage | None:
        """The next message that the peer has, None when it has none for us (it is asked: drain, 2.6.7)."""
        received = self._pump.call(self.core.take)
        if received is None:
            self._pump.wait(self._pump.call(self.core.drain), self._timeout_s)
            self._pump.call(self.core.set_credit, self.core.credit)
            received = self._pump.call(self.core.take)
        return received


class OpensLinks:
    """Where links are opened: a session, or a connection, which opens them on its usual session."""

    def __init__(self, pump: Pump, timeout_s: float | None) -> None:
        self._pump = pump
        self.timeout_s = timeout_s

    @property
    def gone(self) -> str | None:
        """Why it ended; None as long as it has not."""
        raise AssertionError("each kind has its own")

    def open_sender(self, address: str | None, **fields: Any) -> BlockingSender:
        """A link to send to `address` (None: each message says in `to` where it goes). `fields` are
        `snd_settle_mode` and `properties` of the attach. Raises LinkRefused.
        """
        attaching = self._pump.call(self._session_core().attach_sender, address, **fields)
        return BlockingSender(self._pump, self._pump.wait(attaching, self.timeout_s), self.timeout_s)

    def open_receiver(self, address: str | None, *, credit: int = 10, **fields: Any) -> BlockingReceiver:
        """A link to receive from `address` (None: a node that the peer makes for us), with `credit`: how many
        messages may be here without an outcome. `fields` are `source` for whoever wants more than an address
        (filters, a durable subscription), the `name` that this is found again by, and `snd_settle_mode` and
        `properties` of the attach. Raises LinkRefused.
        """
        attaching = self._pump.call(self._session_core().attach_receiver, address, credit, **fields)
        return BlockingReceiver(self._pump, self._pump.wait(attaching, self.timeout_s), self.timeout_s)

    def _session_core(self) -> SessionCore:
        raise AssertionError("each kind has its own")
