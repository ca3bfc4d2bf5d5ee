"""Recorded frame traces: what passed on a connection, as a transcript.

trace = FrameTrace()
stream = trace.stream(stream)                 # on the broker's side
print(trace)

C: ProtocolHeader(...)
S: ProtocolHeader(...)
C: [0] Open(container_id='c')
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import attrs
import trio

from amqp_broker.frames import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Frame,
    Open,
    ProtocolHeader,
    Rejected,
    Transfer,
)
from amqp_broker.testing.frame_tap import FrameTap, Piece

FRAMES_KEPT_MAX: Final = 100_000
OCTETS_KEPT_MAX: Final = 64 << 20


@attrs.frozen
class TracedFrame:
    """One line of a transcript.  `sender` is `C` for the client, `S` for the broker; `connection` counts from
    1, in the order in which they came.
    """

    sender: str
    octets: bytes = attrs.field(repr=False)
    frame: Frame | ProtocolHeader | None
    connection: int = 1

    @property
    def performative(self) -> object:
        """That of a frame; None of an empty frame, and of a header."""
        return self.frame.performative if isinstance(self.frame, Frame) else None

    def __str__(self) -> str:
        text = repr(self.frame) if self.frame is not None else f"{len(self.octets)} octets that are no frame"
        return f"{self.sender}: {text}"


@attrs.frozen
class Refusal:
    """Something that the broker has refused: `what` is `message`, `link`, `session` or `connection`;
    `address` is that of the link, `client` the container-id of who was refused.
    """

    what: str
    client: str
    address: str | None
    condition: str
    description: str


class FrameTrace:
    """Records frames; one trace may watch many streams.  The first `frames_kept_max` are kept, and of these
    as many as fit in `OCTETS_KEPT_MAX`; the others are counted.
    """

    def __init__(self, frames_kept_max: int = FRAMES_KEPT_MAX) -> None:
        self.frames: list[TracedFrame] = []
        self.dropped = 0
        self.octets = 0
        self._most = frames_kept_max
        self._connections = 0

    def connection(self) -> int:
        """The number of one more connection."""
        self._connections += 1
        return self._connections

    def record(self, sender: str, piece: Piece, connection: int = 1) -> None:
        """Add one piece."""
        self.octets += len(piece.octets)
        if len(self.frames) < self._most and self.octets <= OCTETS_KEPT_MAX:
            self.frames.append(TracedFrame(sender, piece.octets, piece.frame, connection))
        else:
            self.dropped += 1

    def save(self, path: Path) -> None:
        """Write what was recorded as text, for `amqp-conformance read`: a line of octets for each frame."""
        lines = (f"{each.sender}{each.connection}: {each.octets.hex()}\n" for each in self.frames)
        path.write_text("".join(lines), encoding="ascii")

    def clear(self) -> None:
        """Forget what was recorded so far."""
        self.frames.clear()
        self.dropped = self.octets = 0

    def of(self, container_id: str) -> list[TracedFrame]:
        """What was said on the connections of one client, in order."""
        clients = self._clients()
        return [line for line in self.frames if clients.get(line.connection) == container_id]

    def _clients(self) -> dict[int, str]:
        """The container-id of each connection."""
        found: dict[int, str] = {}
        for line in self.frames:
            if line.sender == "C" and isinstance(line.performative, Open):
                found[line.connection] = line.performative.container_id
        return found

    def refusals(self) -> list[Refusal]:
        """What the broker has refused, in order."""
        clients = self._clients()
        reader = _Refusals()
        return [
            Refusal(what, clients.get(line.connection, ""), address, error.condition, error.description or "")
            for line in self.frames
            for what, address, error in reader.read(line)
        ]

    def stream(self, stream: trio.abc.Stream) -> trio.abc.Stream:
        """The broker's side of a stream, recorded."""
        return _TracedStream(stream, self)

    def performatives(self, sender: str) -> list[object]:
        """The performatives that one side sent, in order, without empty frames."""
        found = [line.performative for line in self.frames if line.sender == sender]
        return [performative for performative in found if performative is not None]

    def __str__(self) -> str:
        lines = [str(line) for line in self.frames]
        if self.dropped:
            lines.append(f"and {self.dropped} more")
        return "\n".join(lines)


class _TracedStream(FrameTap):
    def __init__(self, stream: trio.abc.Stream, trace: FrameTrace) -> None:
        super().__init__(stream)
        self._trace = trace
        self._number = trace.connection()

    async def received(self, piece: Piece) -> bytes:
        self._trace.record("C", piece, self._number)
        return piece.octets

    async def sent(self, piece: Piece) -> bytes:
        self._trace.record("S", piece, self._number)
        return piece.octets


class _Refusals:
    """Finds the errors that the broker sends, and the addresses that they are about."""

    def __init__(self) -> None:
        self._addresses: dict[tuple[int, str, bool], str | None] = {}  # by the client's link
        self._channels: dict[tuple[int, int], int] = {}  # of the client, by the broker's
        self._links: dict[tuple[int, int, int], str | None] = {}  # addresses, by the broker's handle
        self._senders: dict[tuple[int, int, int], str | None] = {}  # addresses, by the client's handle
        self._sent: dict[tuple[int, int, int], str | None] = {}  # addresses, by delivery-id

    def read(self, line: TracedFrame) -> list[tuple[str, str | None, Error]]:
        """What is refused in one line of a transcript: what it is, its address, and the error."""
        if not isinstance(line.frame, Frame):
            return []
        said, at, channel = line.frame.performative, line.connection, line.frame.channel
        if line.sender == "S":
            return self._from_broker(said, at, channel)
        if isinstance(said, Attach):
            node = said.target if said.role is SENDER else said.source
            address = self._addresses[at, said.name, said.role is SENDER] = getattr(node, "address", None)
            if said.role is SENDER:
                self._senders[at, channel, said.handle] = address
        elif isinstance(said, Transfer) and said.delivery_id is not None:
            self._sent[at, channel, said.delivery_id] = self._senders.get((at, channel, said.handle))
        return []

    def _from_broker(self, said: object, at: int, channel: int) -> list[tuple[str, str | None, Error]]:
        if isinstance(said, Begin) and said.remote_channel is not None:
            self._channels[at, channel] = said.remote_channel
        elif isinstance(said, Attach):
            address = self._addresses.get((at, said.name, said.role is RECEIVER))
            self._links[at, channel, said.handle] = address
        elif isinstance(said, Disposition) and isinstance(said.state, Rejected) and said.state.error:
            last = said.first if said.last is None else said.last
            theirs = self._channels.get((at, channel), channel)
            addresses = [self._sent.get((at, theirs, number)) for number in range(said.first, last + 1)]
            return [("message", address, said.state.error) for address in addresses]
        elif isinstance(said, Detach | End | Close) and said.error is not None:
            kind = {Detach: "link", End: "session", Close: "connection"}[type(said)]
            found = self._links.get((at, channel, said.handle)) if isinstance(said, Detach) else None
            return [(kind, found, said.error)]
        return []
