"""The client as a machine without I/O: one connection of our own engine, and what is waited for on it.

    connection = ClientCore(settings, endpoint, now)
    opened = connection.open()                       # a Pending; so is the answer of everything below
    transport.write(connection.data_to_send())       # until it is empty
    connection.receive_data(transport.read(), now)   # ends pendings: opened.done, opened.result()
    session = connection.begin().result()
    sender = session.attach_sender("orders").result()
    outcome = sender.send(message("hello")).result()

A shell calls, writes, reads, and waits at pendings. It asks `next_deadline`, calls `handle_timeout` then, and
closes the transport when `wants_close` is True and all is written. Nothing here reads a clock.
"""

from __future__ import annotations

from typing import Any

from amqp_broker.client.core_connection import ConnectionCore
from amqp_broker.client.core_session import SessionCore
from amqp_broker.client.errors import WrongUse
from amqp_broker.client.pending import Pending
from amqp_broker.frames import Error, Open
from amqp_broker.links import LocalProtocolError, Piece


class ClientCore(ConnectionCore):
    """One connection as its client sees it."""

    def __repr__(self) -> str:
        return f"<ClientCore {self.endpoint} {self.gone or self._engine.state.value}>"

    # --- the transport's side

    def receive_data(self, data: bytes, now: float) -> None:
        """Takes what was read."""
        self._handle(self._engine.receive_data(data, now))

    def receive_eof(self, now: float, why: str = "the peer ended the transport without a close") -> None:
        """The transport is at its end or broken, for the reason `why`; nothing more comes."""
        self.note_gone(why)
        self._handle(self._engine.receive_eof(now))

    def data_to_send(self) -> list[Piece]:
        """Takes what is to be written. Call again after writing, until it is empty."""
        chunks = self._engine.data_to_send()
        while (link := self._engine.output.next_waiting()) is not None:
            link.context.on_credit()
        return chunks

    @property
    def wants_close(self) -> bool:
        """Write what waits, then close the transport."""
        return self._engine.wants_close

    def next_deadline(self) -> float | None:
        """When `handle_timeout` is to be called, on the clock of `now`; None: no need."""
        return self._engine.next_deadline()

    def handle_timeout(self, now: float) -> None:
        """Does what is due; harmless when nothing is."""
        self._handle(self._engine.handle_timeout(now))

    def take_finished(self) -> list[Pending[Any]]:
        """The pendings with a waiter that ended since the last call. Ask after every other call."""
        finished = self._finished.copy()
        self._finished.clear()
        return finished

    # --- the caller's side

    def open(self) -> Pending[Open]:
        """Begins; the answer is the peer's open. Called once."""
        self._engine.open()
        return self._opening

    def begin(self) -> Pending[SessionCore]:
        """A session of its own; a connection has at most 64."""
        begun: Pending[SessionCore] = self.pending("the peer's begin")
        if self.gone is not None:
            begun.fail(self.gone_error(begun.what))
            return begun
        try:
            SessionCore(self, self._engine.begin(), begun)
        except LocalProtocolError as error:
            begun.fail(WrongUse(f"expected a new session, but {error.description}"))
        return begun

    def close(self, error: Error | None = None) -> Pending[None]:
        """Closes; what was sent and has no outcome yet is OutcomeUnknown. Harmless when that has happened."""
        self.note_gone("we closed it", error)
        if self._engine.wants_close:
            self._closing.finish(None)
        else:
            self._engine.close(error)
            self.handle_own()
        return self._closing
