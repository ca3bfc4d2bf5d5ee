"""The frame-level peer of `peer` over a blocking socket. One thread uses one connection.

    with BlockingPeer.connect("127.0.0.1", port) as connection:
        session = connection.begin()
        sender = session.attach_sender("s", "orders")
        number = sender.send(encode_message(body=b"hello"))
        connection.pump_until(lambda: number in sender.outcomes)
        receiver = session.attach_receiver("r", "orders", credit=10)
        connection.pump_until(lambda: receiver.deliveries)
        receiver.settle([receiver.deliveries.popleft()], Accepted())

Whatever arrives is counted in `pump`; the calls that wait pump by themselves. A transport that is gone is a
`ConnectionLost`, a close, end or detach with an error a `PeerError`.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TypeVar

from amqp_broker.frames import (
    EMPTY_FRAME,
    SASL_HEADER,
    Close,
    Error,
    Frame,
    Open,
    ProtocolHeader,
    encode_sasl_frame,
)
from amqp_broker.frames.sasl import SaslInit, SaslMechanisms, SaslOutcome
from amqp_broker.testing.peer import Peer, PeerError

READ_BYTES: Final = 262_144
PATIENCE_S: Final = 120.0
"""How long the other side may take for anything, on a busy machine, too: only a fault takes so long."""

_Expected = TypeVar("_Expected")


class ConnectionLost(Exception):
    """The transport ended without a close frame."""


class BlockingPeer(Peer):
    """A peer over a socket; `timeout` in seconds is for each wait."""

    def __init__(self, transport: socket.socket, timeout: float = PATIENCE_S) -> None:
        super().__init__()
        self.transport = transport
        self.timeout = timeout
        self._last_write = time.monotonic()

    @classmethod
    def connect(
        cls,
        host: str,
        port: int,
        *,
        container_id: str = "test-peer",
        login: tuple[str, bytes | None] | None = None,
        timeout: float = PATIENCE_S,
        desired: tuple[str, ...] = (),
    ) -> Self:
        """Connect and open. `login` is a SASL mechanism with its initial response; without one the bare
        header is sent. `desired` are the capabilities that the open asks for.
        """
        try:
            transport = socket.create_connection((host, port), timeout)
        except OSError as error:
            raise ConnectionLost(str(error)) from error
        transport.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = cls(transport, timeout)
        try:
            if login is not None:
                connection._log_in(*login, host)
            connection.open(container_id, hostname=host, desired_capabilities=desired or None)
            header = connection.expect(ProtocolHeader)
            if header.protocol_id != 0:
                raise PeerError("header", None)
            connection.expect(Open)
        except BaseException:
            connection.abort()
            raise
        return connection

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.abort()

    def _log_in(self, mechanism: str, response: bytes | None, hostname: str) -> None:
        self.reader.expect_header()
        self.put_octets(SASL_HEADER)
        self.expect(ProtocolHeader)
        self.expect(SaslMechanisms)
        init = SaslInit(mechanism=mechanism, initial_response=response, hostname=hostname)
        self.put_octets(encode_sasl_frame(init))
        code = self.expect(SaslOutcome).code
        if code != 0:
            raise PeerError("login", Error(condition="amqp:unauthorized-access", description=f"code {code}"))

    def next(self) -> object:
        """Carry what was put, and wait for the next protocol header or performative."""
        self.flush()
        while (item := self.received()) is None:
            data = self._read(self.timeout)
            if data is None:
                raise TimeoutError(f"nothing came within {self.timeout} s")
            self.feed(data)
        return item.performative if isinstance(item, Frame) else item

    def expect(self, kind: type[_Expected]) -> _Expected:
        """What `next` brings, which has to be of this kind; a close is a PeerError."""
        found = self.next()
        if isinstance(found, Close):
            raise PeerError("connection", found.error)
        assert isinstance(found, kind), f"expected {kind.__name__}, got {found!r}"
        return found

    def abort(self) -> None:
        """End the transport without a word."""
        self.transport.close()

    def flush(self) -> None:
        """Write what was put."""
        data = self.take()
        if not data:
            return
        self._last_write = time.monotonic()
        try:
            self.transport.settimeout(self.timeout)
            self.transport.sendall(data)
        except OSError as error:
            raise ConnectionLost(str(error)) from error

    def pump(self, timeout: float) -> bool:
        """Write what was put, read once, count all that came. False: nothing came within `timeout` s."""
        self._keep_alive()
        self.flush()
        data = self._read(timeout)
        if data is None:
            return False
        self.feed(data)
        while self.received() is not None:
            pass
        return True

    def pump_until(self, reached: Callable[[], object], timeout: float | None = None) -> None:
        """Pump until `reached` holds; TimeoutError after `timeout` seconds (by default the connection's)."""
        limit = self.timeout if timeout is None else timeout
        deadline = time.monotonic() + limit
        while not reached():
            left = deadline - time.monotonic()
            if left <= 0 or not self.pump(left):
                raise TimeoutError(f"what was waited for did not come within {limit} s")

    def _read(self, timeout: float) -> bytes | None:
        try:
            self.transport.settimeout(max(timeout, 0.000_001))
            data = self.transport.recv(READ_BYTES)
        except (TimeoutError, BlockingIOError):
            return None
        except OSError as error:
            raise ConnectionLost(str(error)) from error
        if not data:
            raise ConnectionLost("the other side ended the transport")
        return data

    def _keep_alive(self) -> None:
        idle_time_out = self.remote_open.idle_time_out if self.remote_open else None
        if idle_time_out and (time.monotonic() - self._last_write) * 1000 > idle_time_out / 2:
            self.put_octets(EMPTY_FRAME)
