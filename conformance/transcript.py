"""A dialogue as text: one line for each header, frame and event, in the order in which they were seen.

-> header AMQP 0 1.0.0
-> open(container_id='conformance', max_frame_size=65536)
<- header AMQP 0 1.0.0
<- open(container_id='broker', channel_max=63)
-- the broker closed its side
"""

import threading
import time
from typing import Any

import attrs

from amqp_broker.frames import ProtocolHeader

MAX_VALUE_CHARACTERS = 160
"""A value is cut beyond this many characters: a transcript is for reading."""

MAX_LINES = 400
"""Lines kept for each scenario; what comes later is counted, not kept."""


def shortened(text: str, limit: int = MAX_VALUE_CHARACTERS) -> str:
    """Returns ``text``, or its beginning and its length when it is longer than ``limit`` characters."""
    return text if len(text) <= limit else f"{text[:limit]}... ({len(text)} characters)"


def describe_value(value: Any) -> str:
    """Returns a value as a transcript shows it: composites by their fields, everything else by its
    representation.
    """
    if attrs.has(type(value)):
        return describe(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(describe_value(item) for item in value) + "]"
    return shortened(repr(value))


def describe(composite: Any) -> str:
    """Returns a performative or another composite with the fields that are set: ``begin(next_outgoing_id=0,
    ...)``.
    """
    fields = [
        f"{field.name}={describe_value(value)}"
        for field in attrs.fields(type(composite))
        if (value := getattr(composite, field.name)) is not None and value != field.default
    ]
    return f"{describe_kind(type(composite))}({', '.join(fields)})"


def describe_frame(channel: int, performative: Any, payload: bytes = b"") -> str:
    """Returns one frame's line without its arrow."""
    where = f"[{channel}] " if channel else ""
    if performative is None:
        return where + "empty frame"
    size = f" + {len(payload)} octets" if payload else ""
    return where + describe(performative) + size


def describe_header(header: ProtocolHeader) -> str:
    """Returns a protocol header's line without its arrow."""
    return f"header AMQP {header.protocol_id} {header.major}.{header.minor}.{header.revision}"


def describe_kind(kind: type) -> str:
    """Returns the standard's name of a performative's class: ``sasl-init`` for SaslInit."""
    name = "".join(
        "-" + character.lower() if character.isupper() else character for character in kind.__name__
    )
    return name.lstrip("-")


class Transcript:
    """The lines of one scenario; connections of one scenario share it and are told apart by a letter."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.left_out = 0
        self._begun = self._last = time.monotonic()
        self._lock = threading.Lock()
        self._connections = 0

    def next_letter(self) -> str:
        """Returns the letter of a new connection: '' for the first, then B, C, ..."""
        with self._lock:
            self._connections += 1
            return "" if self._connections == 1 else chr(ord("A") + (self._connections - 1) % 26) + " "

    def _add(self, line: str) -> None:
        with self._lock:
            self._last = time.monotonic()
            if len(self.lines) < MAX_LINES:
                milliseconds = (self._last - self._begun) * 1000
                self.lines.append(f"{milliseconds:7.0f} ms  {line}")
            else:
                self.left_out += 1

    def sent(self, letter: str, what: str) -> None:
        """Notes what we sent."""
        self._add(f"{letter}-> {what}")

    def received(self, letter: str, what: str) -> None:
        """Notes what came."""
        self._add(f"{letter}<- {what}")

    def event(self, letter: str, what: str) -> None:
        """Notes what is neither: a connection made, a stream that ended, silence."""
        self._add(f"{letter}-- {what}")

    def quiet_s(self) -> float:
        """Returns for how many seconds nothing has been seen."""
        return time.monotonic() - self._last

    def text(self) -> list[str]:
        """Returns the lines, with a last one that counts those left out."""
        return self.lines + ([f"... and {self.left_out} more lines"] if self.left_out else [])
