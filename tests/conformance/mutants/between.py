"""A mutant is our broker with a stranger on the wire, who changes frames in one direction or in both.

What the stranger lets pass goes through octet for octet. So a broker that forgets a field, ignores one of the
client's or mistakes one thing for another is a function of one frame.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import attrs

from amqp_broker.conformance.dialogue_rules import Stream
from amqp_broker.conformance.dialogue_state import CLIENT, SERVER, Conversation
from amqp_broker.frames import AmqpError, EncodeError, Frame, ProtocolHeader, encode_frame, encode_sasl_frame

NO_FRAME_OCTETS = 1 << 24
"""A size above this is none of a frame."""


def is_no_frame(octets: bytes) -> bool:
    """Whether these can be neither the beginning of a frame nor that of a protocol header (2.2, 2.3.1)."""
    return octets[:4] != b"AMQP" and int.from_bytes(octets[:4], "big") > NO_FRAME_OCTETS


Changed = Any
"""What goes on instead of a performative: another, several in a tuple, a pair with another payload or channel
(`Sent`), or nothing (None)."""


@attrs.frozen
class Sent:
    """A performative with its payload, or on another channel."""

    performative: Any
    payload: bytes = b""
    channel: int | None = None


def evolve(said: Any, **fields: Any) -> Any:
    """A composite with other fields."""
    return attrs.evolve(said, **fields)


Change = Callable[[Any, "Wiretap"], Changed]


@attrs.frozen
class Mutant:
    """One broken rule: which rows it breaks, and how frames are changed on their way."""

    name: str
    rows: str
    answers: dict[type, Change] = attrs.field(factory=dict)
    """Changes of what the broker says, by performative."""
    asks: dict[type, Change] = attrs.field(factory=dict)
    """Changes of what the broker is told."""
    also: str = ""
    """Sections whose scenarios meet it as well, with good reason."""
    tells: str = ""
    """What any scenario says of it where it stands in the way of all of them: that, and nothing else."""
    needs_second: bool = False
    """Whether it shows on the broker of second_broker.toml only."""


class Wiretap:
    """One connection through the stranger, who knows what both sides have said."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        self.conversation = Conversation()
        self.payload = b""
        """Of the frame that is looked at."""
        self.channel = 0
        self.notes: dict[Any, Any] = {}
        """What a change remembers for the next frame."""
        self._lock = threading.Lock()

    def link(self, side: str, handle: int | None) -> Any:
        """What a side said of its link of this handle, on the frame's channel; None where there is none."""
        session = self.conversation.sides[side].sessions.get(self.channel)
        return None if session is None or handle is None else session.links.get(handle)

    def run(self, by: str, here: socket.socket, there: socket.socket) -> None:
        """Carries what one side says until its end."""
        direction = Direction(self, by)
        with suppress(OSError):
            while data := here.recv(65536):
                there.sendall(direction.feed(data))
            there.sendall(direction.pending)  # what a side began and never finished
        with suppress(OSError):
            there.shutdown(socket.SHUT_WR)

    def changed(self, by: str, item: Any, raw: bytes, changes: dict[type, Change]) -> bytes:
        if isinstance(item, AmqpError):
            return raw
        said = item if isinstance(item, ProtocolHeader) else item.performative
        change = changes.get(type(said))
        with self._lock:
            self.payload, self.channel = getattr(item, "payload", b""), getattr(item, "channel", 0)
            changed = said if change is None else change(said, self)
            self.conversation.note(self.conversation.sides[by], item)
        if changed is said:
            return raw
        parts = changed if isinstance(changed, tuple) else (changed,)
        return b"".join(self._octets(part, item) for part in parts if part is not None)

    def _octets(self, part: Any, item: Any) -> bytes:
        if isinstance(part, bytes):
            return part
        sent = part if isinstance(part, Sent) else Sent(part, self.payload)
        if isinstance(item, Frame) and item.type == 1:
            return encode_sasl_frame(sent.performative)
        channel = self.channel if sent.channel is None else sent.channel
        try:
            return encode_frame(channel, sent.performative, sent.payload)
        except EncodeError:
            return b""  # what our encoder refuses to write is not said at all


class Direction:
    """What one side says, in whatever pieces, on its way to the other."""

    def __init__(self, tap: Wiretap, by: str) -> None:
        self.pending = b""
        """The beginning of a frame or header whose rest has not come."""
        self._tap, self._by = tap, by
        self._changes = tap.mutant.asks if by == CLIENT else tap.mutant.answers
        self._stream = Stream()

    def feed(self, data: bytes) -> bytes:
        """What goes on of this piece and of those before: whole frames and headers, changed or not, and at
        once what is none of either.
        """
        self.pending += data
        out = b""
        for item, size in self._stream.feed(data):
            raw, self.pending = self.pending[: max(size, 8)], self.pending[max(size, 8) :]
            out += self._tap.changed(self._by, item, raw, self._changes)
        if self._stream.lost or is_no_frame(self.pending):
            out, self.pending = out + self.pending, b""
            self._stream = Stream()
        return out


@contextmanager
def mutated(mutant: Mutant, host: str, port: int) -> Iterator[int]:
    """The port of loopback on which the mutant listens, of the broker at another."""
    listener = socket.create_server(("127.0.0.1", 0))
    open_sockets: set[socket.socket] = set()

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
                broker = socket.create_connection((host, port))
            except OSError:
                return
            open_sockets.update((client, broker))
            for one in (client, broker):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            tap = Wiretap(mutant)
            for way in ((CLIENT, client, broker), (SERVER, broker, client)):
                threading.Thread(target=tap.run, args=way, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        for one in open_sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
