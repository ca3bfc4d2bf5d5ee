"""Recorded frame traces: what passed on a connection, as a transcript.

trace = FrameTrace()
stream = trace.stream(stream)                 # on the broker's side
print(trace)

C: ProtocolHeader(...)
S: ProtocolHeader(...)
C: [0] Open(container_id='c')
"""

from __future__ import annotations

import attrs
import trio

from amqp_broker.frames import Frame, ProtocolHeader
from amqp_broker.testing.frame_tap import FrameTap, Piece

FRAMES_KEPT_MAX = 100_000


@attrs.frozen
class TracedFrame:
    """One line of a transcript.  `sender` is `C` for the client, `S` for the broker."""

    sender: str
    octets: bytes = attrs.field(repr=False)
    frame: Frame | ProtocolHeader | None

    def __str__(self) -> str:
        text = repr(self.frame) if self.frame is not None else f"{len(self.octets)} octets that are no frame"
        return f"{self.sender}: {text}"


class FrameTrace:
    """Records frames; one trace may watch many streams.  The first `frames_kept_max` are kept, the others
    counted.
    """

    def __init__(self, frames_kept_max: int = FRAMES_KEPT_MAX) -> None:
        self.frames: list[TracedFrame] = []
        self.dropped = 0
        self._most = frames_kept_max

    def record(self, sender: str, piece: Piece) -> None:
        """Add one piece."""
        if len(self.frames) < self._most:
            self.frames.append(TracedFrame(sender, piece.octets, piece.frame))
        else:
            self.dropped += 1

    def stream(self, stream: trio.abc.Stream) -> trio.abc.Stream:
        """The broker's side of a stream, recorded."""
        return _TracedStream(stream, self)

    def performatives(self, sender: str) -> list[object]:
        """The performatives that one side sent, in order, without empty frames."""
        found = [
            line.frame.performative
            for line in self.frames
            if line.sender == sender and isinstance(line.frame, Frame)
        ]
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

    async def received(self, piece: Piece) -> bytes:
        self._trace.record("C", piece)
        return piece.octets

    async def sent(self, piece: Piece) -> bytes:
        self._trace.record("S", piece)
        return piece.octets
