"""One socket, the lock around its core, and the thread that reads it.

    caller's thread --call()--> core --bytes--> socket        what the socket takes at once is written at once
    I/O thread      <--bytes-- socket; core.receive_data; wakes who waits; writes the rest; heartbeats

The thread is what keeps a connection alive while its program is busy with something else for minutes (2.4.5).
It is a daemon and ends with the connection. Nobody waits for anything while holding the lock.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

from amqp_broker.client.blocking_bytes import TransportBytes
from amqp_broker.client.core import ClientCore
from amqp_broker.client.errors import WaitTimeout
from amqp_broker.client.pending import Pending

READ_BYTES: Final = 262_144
CLOSE_GRACE_S: Final = 2.0  # how long the last bytes may take that a peer does not read
FOR_EVER: Final = float("inf")

P = ParamSpec("P")
T = TypeVar("T")


class Pump:
    """The way of all calls to the core. `call` and `wait` are safe from any thread."""

    def __init__(self, transport: socket.socket, octets: TransportBytes, core: ClientCore) -> None:
        self.core = core
        self._transport = transport
        self._octets = octets
        self._lock = threading.Lock()
        self._unsent = b""
        self._sleeps_until = 0.0
        self._broken: str | None = None
        self._close_by: float | None = None
        self._waker, self._wakes = socket.socketpair()
        for end in (transport, self._waker, self._wakes):
            end.setblocking(False)
        self._thread = threading.Thread(target=self._run, name=f"amqp-client {core.endpoint}", daemon=True)
        self._thread.start()

    def call(self, function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Calls a function of the core, and writes what it made."""
        with self._lock:
            try:
                return function(*arguments, **named)
            finally:
                self._after()

    def wait(self, pending: Pending[T], timeout_s: float | None) -> T:
        """The answer. Raises its error, and WaitTimeout after `timeout_s` seconds (None: never)."""
        with self._lock:
            if not pending.done and pending.waiter is None:
                pending.waiter = threading.Event()
        if pending.done or self._came(pending, timeout_s):
            return pending.result()
        became = self.call(_give_up, pending)
        if became is None:
            return pending.result()
        raise WaitTimeout(
            f"expected {pending.what} within {timeout_s:g} s, but nothing came"
            + (f"; {became}" if became else "")
        )

    def join(self, timeout_s: float) -> None:
        """Waits for the end of the thread, which comes after that of the connection."""
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _came(self, pending: Pending[Any], timeout_s: float | None) -> bool:
        try:
            return bool(pending.waiter.wait(timeout_s))
        except BaseException:
            # Ctrl-C: nobody will take the answer.
            self.call(pending.give_up)
            raise

    # --- with the lock held

    def _after(self) -> None:
        """After each call of the core: write, wake who waited, wake the thread if it has to do more."""
        self._flush()
        for pending in self.core.take_finished():
            pending.waiter.set()
        deadline = self.core.next_deadline()
        sooner = deadline is not None and deadline < self._sleeps_until
        if (self._unsent or sooner or self.core.wants_close) and not self._is_io_thread():
            self._wake()

    def _is_io_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def _wake(self) -> None:
        try:
            self._waker.send(b"\0")
        except OSError:
            pass  # full: it is awake; closed: it is over

    def _flush(self) -> None:
        """Writes what the socket takes."""
        while self._broken is None:
            try:
                if not self._unsent:
                    self._unsent = self._octets.outgoing(b"".join(self.core.data_to_send()))
                    if not self._unsent:
                        return
                sent = self._transport.send(self._unsent)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._lose(f"the transport broke: {error}")
                return
            self._unsent = self._unsent[sent:]

    def _lose(self, why: str) -> None:
        self._broken = why
        self._unsent = b""
        self.core.receive_eof(time.monotonic(), why)

    # --- the thread

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._transport, selectors.EVENT_READ)
            selector.register(self._wakes, selectors.EVENT_READ)
            try:
                while self._go_on(selector):
                    ready = selector.select(self._wait_s())
                    with self._lock:
                        self._read({key.fileobj for key, _ in ready})
            except Exception as error:
                with self._lock:
                    self._lose(f"a fault of the client: {error!r}")
                raise
            finally:
                with self._lock:
                    self._lose("the client is at its end")
                    self._after()
                for end in (self._transport, self._waker, self._wakes):
                    end.close()

    def _go_on(self, selector: selectors.BaseSelector) -> bool:
        """Writes; False when the connection is over and its last bytes are out."""
        with self._lock:
            self._after()
            deadline = self.core.next_deadline()
            if self.core.wants_close:
                now = time.monotonic()
                if self._close_by is None:
                    self._close_by = now + CLOSE_GRACE_S
                if not self._unsent or now >= self._close_by:
                    return False
                deadline = self._close_by
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
            selector.modify(self._transport, events)
            self._sleeps_until = FOR_EVER if deadline is None else deadline
            return True

    def _wait_s(self) -> float | None:
        """How long to wait for the socket; None is for ever."""
        if self._sleeps_until == FOR_EVER:
            return None
        return max(0.0, self._sleeps_until - time.monotonic())

    def _read(self, ready: set[Any]) -> None:
        """One read, and what is due."""
        now = time.monotonic()
        if self._wakes in ready:
            self._wakes.recv(4096)
        if self._transport in ready and self._broken is None:
            try:
                data = self._transport.recv(READ_BYTES)
                if data:
                    self.core.receive_data(self._octets.incoming(data), now)
                else:
                    self._lose("the peer ended the transport without a close")
            except (BlockingIOError, InterruptedError):
                pass
            except OSError as error:
                self._lose(f"the transport broke: {error}")
        self.core.handle_timeout(now)


def _give_up(pending: Pending[Any]) -> str | None:
    """What became of what was asked for; None when the answer came at the last moment."""
    return None if pending.done else pending.give_up()
