"""A blocking connection with one session and one link, up to the moment when messages flow.

    header  sasl-mechanisms  sasl-init  sasl-outcome  header  open  begin  attach

From then on sender and receiver read and write bytes on their own; what they don't know by its shape comes
here.
"""

from __future__ import annotations

import select
import socket
import time
from typing import Final, TypeVar

from amqp_broker.bench.settings import BenchSettings
from amqp_broker.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    SASL_HEADER,
    SENDER,
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Error,
    Flow,
    Open,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    Source,
    Target,
    decode_composite,
    encode_frame,
    encode_sasl_frame,
)

MAX_FRAME_SIZE: Final = 65_536
# Transfers that may be on their way: no limit that would be felt.
WIDE_WINDOW: Final = 2**31 - 1
READ_SIZE: Final = 262_144
T = TypeVar("T")
SETTLED: Final = 1
UNSETTLED: Final = 0


class BenchError(Exception):
    """The run cannot go on: what the broker said or did, as a sentence."""


class Wire:
    """One connection: handshake, reading and writing without blocking, heartbeats."""

    HANDLE_MAX = 0

    def __init__(self, settings: BenchSettings, address: str, role: bool, name: str) -> None:
        self.settings = settings
        self.address = address
        self.role = role
        self.name = name
        self.next_incoming_id = 0
        self.next_outgoing_id = 0
        self.remote_window = 0
        self.remote_delivery_count = 0
        # Flows that came while the handshake waited for something else.
        self.early_flows: list[Flow] = []
        self.remote_max_frame_size = MAX_FRAME_SIZE
        self.heartbeat_s = 0.0
        self.written_at = time.monotonic()
        self._unsent: list[memoryview] = []
        self.buffer = bytearray(READ_SIZE)
        self.start = self.end = 0
        self.socket = socket.create_connection((settings.host, settings.port), timeout=settings.timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._shake_hands()
        except (OSError, TimeoutError) as error:
            self.socket.close()
            raise BenchError(f"{name}: no answer to the handshake: {error or type(error).__name__}") from None
        except BenchError:
            self.socket.close()
            raise
        self.socket.setblocking(False)

    def _shake_hands(self) -> None:
        if self.settings.sasl:
            self._log_in()
        self.socket.sendall(AMQP_HEADER)
        self._expect_header(AMQP_HEADER)
        opening = Open(
            container_id=f"bench-{self.settings.run}-{self.name}",
            hostname=self.settings.host,
            max_frame_size=MAX_FRAME_SIZE,
            channel_max=0,
        )
        begin = Begin(
            next_outgoing_id=0,
            incoming_window=WIDE_WINDOW,
            outgoing_window=WIDE_WINDOW,
            handle_max=self.HANDLE_MAX,
        )
        self.socket.sendall(encode_frame(0, opening))
        opened = self._expect(Open)
        self.remote_max_frame_size = max(512, opened.max_frame_size or 2**32 - 1)
        self.heartbeat_s = (opened.idle_time_out or 0) / 2_000
        self.socket.sendall(encode_frame(0, begin))
        begun = self._expect(Begin)
        self.next_incoming_id = begun.next_outgoing_id
        self.remote_window = begun.incoming_window
        self._attach_links()

    def _attach_links(self) -> None:
        attached = self._attached(self._attach(), repr(self.address))
        self.remote_delivery_count = attached.initial_delivery_count or 0

    def _attached(self, attach: Attach, what: str) -> Attach:
        """The broker's answer to this attach; raises BenchError when it refuses the terminus."""
        self.socket.sendall(encode_frame(0, attach))
        attached = self._expect(Attach)
        if (attached.target if attach.role == SENDER else attached.source) is None:
            refusal = self._expect(Detach)
            raise BenchError(f"{self.name}: the broker refuses {what}: {describe(refusal.error)}")
        return attached

    def _attach(self) -> Attach:
        return Attach(
            name=self.name,
            handle=0,
            role=self.role,
            snd_settle_mode=SETTLED if self.settings.settled else UNSETTLED,
            rcv_settle_mode=0,
            source=Source(address=None if self.role == SENDER else self.address),
            target=Target(address=self.address if self.role == SENDER else None),
            initial_delivery_count=0 if self.role == SENDER else None,
        )

    def _log_in(self) -> None:
        self.socket.sendall(SASL_HEADER)
        self._expect_header(SASL_HEADER)
        offered = self._expect(SaslMechanisms).sasl_server_mechanisms
        user, password = self.settings.user, self.settings.password
        mechanism = "ANONYMOUS" if user is None else "PLAIN"
        if mechanism not in offered:
            raise BenchError(f"the broker offers {', '.join(offered)}, not {mechanism}")
        response = b"bench" if user is None else b"\0" + user.encode() + b"\0" + password.encode()
        init = SaslInit(mechanism=mechanism, initial_response=response, hostname=self.settings.host)
        self.socket.sendall(encode_sasl_frame(init))
        outcome = self._expect(SaslOutcome)
        if outcome.code != 0:
            raise BenchError(f"the broker refuses the login with {mechanism}: outcome code {outcome.code}")

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise BenchError(f"{self.name}: the broker closed the connection during the handshake")
            data += more
        return bytes(data)

    def _expect_header(self, header: bytes) -> None:
        answer = self._exactly(8)
        if answer != header:
            raise BenchError(f"expected the header {header.hex()}, the broker sent {answer.hex()}")

    def _expect(self, kind: type[T]) -> T:
        """The next frame, which must be of this kind; flows and heartbeats before it are passed over."""
        while True:
            size = int.from_bytes(self._exactly(4), "big")
            if not 8 <= size <= MAX_FRAME_SIZE:
                raise BenchError(f"{self.name}: the broker announces a frame of {size} bytes")
            frame = self._exactly(size - 4)
            body = frame[frame[0] * 4 - 4 :]
            if not body:
                continue
            performative = decode_composite(body)[0]
            if isinstance(performative, kind):
                return performative
            if isinstance(performative, Close | End | Detach):
                raise BenchError(f"{self.name}: the broker sent {describe_frame(performative)}")
            if not isinstance(performative, Flow):
                raise BenchError(f"{self.name}: expected {kind.__name__}, got {performative!r:.200}")
            self.early_flows.append(performative)

    @property
    def writing(self) -> bool:
        """Bytes wait for the socket to take them; buffers handed to `write` must not change yet."""
        return bool(self._unsent)

    def write(self, *data: bytes | memoryview) -> None:
        """Send what the socket takes now and keep the rest."""
        self._unsent += [memoryview(part) for part in data if len(part)]
        self.flush()

    def flush(self) -> None:
        """Go on with what `write` kept."""
        while self._unsent:
            try:
                sent = self.socket.sendmsg(self._unsent[:64])
            except BlockingIOError:
                return
            except OSError as error:
                raise BenchError(f"{self.name}: the connection broke while writing: {error}") from None
            self.written_at = time.monotonic()
            while self._unsent and sent >= len(self._unsent[0]):
                sent -= len(self._unsent.pop(0))
            if sent:
                self._unsent[0] = self._unsent[0][sent:]

    def read(self) -> bool:
        """Read once behind what is still unparsed in `buffer[start:end]`; False when nothing was there."""
        if self.start:
            self.buffer[: self.end - self.start] = self.buffer[self.start : self.end]
            self.end -= self.start
            self.start = 0
        try:
            size = self.socket.recv_into(memoryview(self.buffer)[self.end :])
        except BlockingIOError:
            return False
        except OSError as error:
            raise BenchError(f"{self.name}: the connection broke while reading: {error}") from None
        if not size:
            raise BenchError(f"{self.name}: the broker closed the connection")
        self.end += size
        return True

    def frame_size(self, at: int) -> int:
        """The size of the frame at `at`, or 0 while it is incomplete."""
        if self.end - at < 8:
            return 0
        size = int.from_bytes(self.buffer[at : at + 4], "big")
        if not 8 <= size <= MAX_FRAME_SIZE:
            raise BenchError(f"{self.name}: a frame of {size} bytes, but {MAX_FRAME_SIZE} was announced")
        return size if self.end - at >= size else 0

    def other_frame(self, at: int, size: int) -> object:
        """Decode a frame that was not known by its shape; raises BenchError when it ends the link."""
        body = bytes(self.buffer[at + self.buffer[at + 4] * 4 : at + size])
        if not body:
            return None
        performative = decode_composite(body)[0]
        if isinstance(performative, Detach | End | Close):
            raise BenchError(f"{self.name}: the broker sent {describe_frame(performative)}")
        return performative

    def heartbeat(self) -> None:
        """Send an empty frame when the broker would miss us (2.4.5)."""
        if self.heartbeat_s and time.monotonic() - self.written_at > self.heartbeat_s and not self._unsent:
            self.write(EMPTY_FRAME)

    def close(self) -> None:
        """Close only the connection, and wait until the broker has read everything before it."""
        self.socket.settimeout(self.settings.timeout_s)
        try:
            for part in self._unsent:
                self.socket.sendall(part)
            self.socket.sendall(encode_frame(0, Close()))
            while self.socket.recv(READ_SIZE):
                pass
        except OSError:
            # The run is over: its result does not depend on how the broker says goodbye.
            self._unsent.clear()
        finally:
            self.socket.close()


def wait_for(*wires: Wire, timeout_s: float) -> None:
    """Wait until one of the sockets has something to read, or takes what is still to be written."""
    poll = select.poll()
    for wire in wires:
        poll.register(wire.socket, select.POLLIN | (select.POLLOUT if wire.writing else 0))
    poll.poll(max(0.0, timeout_s) * 1_000)
    for wire in wires:
        wire.flush()
        wire.heartbeat()


def describe(error: Error | None) -> str:
    """An error of the broker as a phrase."""
    return f"{error.condition}: {error.description}" if error else "no error given"


def describe_frame(performative: Close | End | Detach) -> str:
    """A frame that ends something, with its error."""
    return f"{type(performative).__name__.lower()} ({describe(performative.error)})"
