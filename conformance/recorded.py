"""Recorded dialogues of anybody, judged by the table of rules: a capture (pcap, pcapng) or a trace.

A trace is text, one line for what one side wrote: `C: 414d5150 00010000`, `S: ...`; `C2:` is the client of a
second connection. `FrameTrace.save` (`amqp_broker.testing.traces`) writes one.

Captures are taken apart by dpkt, as the extra `read` installs it. TCP segments are put in order here, since
dpkt does not: some go twice, and some overtake each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import attrs

from amqp_broker.conformance.dialogue_rules import LETTERS, Breach, Dialogue
from amqp_broker.conformance.dialogue_state import CLIENT, SERVER
from amqp_broker.testing.peer import SERIAL

MAGICS: Final = tuple(map(bytes.fromhex, ("a1b2c3d4", "d4c3b2a1", "a1b23c4d", "4d3cb2a1", "0a0d0d0a")))
"""What pcap (in micro- and nanoseconds) and pcapng begin with."""

LINE: Final = re.compile(r"([CS])(\d*): *([0-9a-fA-F ]*)$")
USUAL_DOFF: Final = 2
FRAME_TYPES: Final = (0, 1)
FRAME_HEADER_OCTETS: Final = 8
NO_DPKT: Final = "captures are read with dpkt: pip install 'amqp-broker[read]'"
LINUX_COOKED: Final = 113
LINUX_COOKED_2: Final = 276
NULL_LOOPBACK: Final = (0, 108)
RAW_IP: Final = (12, 14, 101, 228, 229)
SLL2_HEADER_OCTETS: Final = 20

Endpoint = tuple[bytes, int]


class Unreadable(Exception):
    """A file that is neither a capture nor a trace; the text says what is wrong."""


@attrs.define(eq=False)
class Recording:
    """One connection of a file."""

    name: str
    dialogue: Dialogue = attrs.field(factory=Dialogue)
    complete: bool = True
    """Whether all octets from its beginning are there; what stands behind a gap is not judged."""
    begins: bool = True
    """Whether its beginning is there; without the first header and open nothing of it can be judged."""


def read(path: Path) -> list[Recording]:
    """Judges a file; the recordings have what was found. Raises Unreadable, OSError."""
    octets = path.read_bytes()
    if octets[:4] in MAGICS:
        return _of_capture(path)
    try:
        return _of_trace(octets.decode("ascii"))
    except UnicodeDecodeError as error:
        raise Unreadable(f"{path} is neither a capture (pcap, pcapng) nor a trace") from error


def told(recordings: list[Recording]) -> Iterator[str]:
    """The findings as text: rule, frame and direction of each, and the sentence that it breaks."""
    for recording in recordings:
        dialogue = recording.dialogue
        if not recording.begins:
            yield f"{recording.name}: began before the capture, not judged"
            continue
        musts = sum(not one.level.startswith("SHOULD") for one in dialogue.breaches)
        counts = f"{musts} against a MUST, {len(dialogue.breaches) - musts} against a SHOULD"
        rest = "" if recording.complete else "; octets are missing, what follows them was not judged"
        yield f"{recording.name}: {dialogue.count} headers and frames, {counts}{rest}"
        for breach in dialogue.breaches:
            yield from _told_breach(breach)


def _told_breach(breach: Breach) -> Iterator[str]:
    row = breach.requirement
    yield f"  frame {breach.number}, of the {breach.by}: {breach.text}"
    yield f'    {breach.rule} {breach.level} ({row.section} {row.title}): "{row.sentence}"'


def _of_trace(text: str) -> list[Recording]:
    recordings: dict[str, Recording] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        found = LINE.match(line.strip())
        if found is None:
            raise Unreadable(f"line {number} is not 'C: octets' or 'S: octets' in hexadecimal: {line[:60]!r}")
        side, connection, octets = found[1], found[2] or "1", found[3]
        recording = recordings.setdefault(connection, Recording(f"connection {connection}"))
        try:
            recording.dialogue.octets(CLIENT if side == "C" else SERVER, bytes.fromhex(octets))
        except ValueError as error:
            raise Unreadable(f"line {number}: {error}") from error
    return list(recordings.values())


# ---- captures ----------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Direction:
    """One direction of a TCP connection: segments by sequence number, and what of them is in order."""

    expected: int | None = None
    later: dict[int, bytes] = attrs.field(factory=dict)
    acknowledged: int | None = None
    """What the other side has read: the capture must have it, too."""
    spoke: bool = False
    ends: bool = False
    """Whether a FIN came, which is acknowledged as an octet is."""

    @property
    def has_gap(self) -> bool:
        """Whether octets are missing: later ones are there, or the other side has acknowledged them."""
        if self.later or self.expected is None or self.acknowledged is None:
            return bool(self.later)
        return 0 < (self.acknowledged - self.expected - self.ends) % SERIAL < SERIAL // 2

    def taken(self, sequence: int, octets: bytes) -> bytes:
        """What has come in order with this segment."""
        if self.expected is None:
            self.expected = sequence
        if octets:
            self.later[sequence] = max(self.later.get(sequence, b""), octets, key=len)
        ordered = b""
        while (start := self._next()) is not None:
            fresh = self.later.pop(start)[(self.expected - start) % SERIAL :]
            ordered += fresh
            self.expected = (self.expected + len(fresh)) % SERIAL
        return ordered

    def _next(self) -> int | None:
        """Where a segment begins that goes on from here, or came before."""
        expected = self.expected or 0
        return next((each for each in self.later if (expected - each) % SERIAL < SERIAL // 2), None)


@attrs.define(eq=False)
class Connection:
    """One TCP connection of a capture."""

    client: Endpoint
    recording: Recording
    from_its_syn: bool
    directions: dict[Endpoint, Direction] = attrs.field(factory=dict)
    begun: bool = False
    """Whether its first octets are there, which are a protocol header."""
    goes_on: bool = False
    """Whether it began before the capture, by all appearance: a frame is the first that came."""
    waiting: list[tuple[str, bytes]] = attrs.field(factory=list)
    """What came while the other side had a gap: it is judged when that is filled."""

    @property
    def has_gap(self) -> bool:
        """Whether octets of either side are missing."""
        return any(direction.has_gap for direction in self.directions.values())

    def hear_first(self, speaker: Endpoint, octets: bytes) -> None:
        """Sees by what one side says first whether the connection speaks AMQP, and begins in this capture."""
        if octets.startswith(LETTERS) and not self.goes_on:
            if not (self.begun or self.from_its_syn):
                self.client = speaker  # who speaks first (2.2)
            self.begun = True
        elif not self.from_its_syn and (self.begun or _looks_like_a_frame(octets)):
            self.begun, self.goes_on = False, True
            self.recording = Recording(self.recording.name)

    def say(self, side: str, octets: bytes) -> None:
        """Judges what one side wrote, behind what it may have answered."""
        self.waiting.insert(
            0 if self.waiting and self.waiting[0][0] != side else len(self.waiting), (side, octets)
        )
        if self.has_gap:
            return
        for spoke, each in self.waiting:
            self.recording.dialogue.octets(spoke, each)
        self.waiting.clear()


def _looks_like_a_frame(octets: bytes) -> bool:
    """Whether they may begin a frame without an extended header, of AMQP or SASL (2.3.1)."""
    return len(octets) >= FRAME_HEADER_OCTETS and octets[4] == USUAL_DOFF and octets[5] in FRAME_TYPES


def _of_capture(path: Path) -> list[Recording]:
    try:
        import dpkt
    except ImportError as error:
        raise Unreadable(NO_DPKT) from error
    open_ones: dict[frozenset[Endpoint], Connection] = {}
    done: list[Connection] = []
    try:
        with path.open("rb") as file:
            reader = dpkt.pcap.UniversalReader(file)
            unpack = _layers(dpkt, reader.datalink())
            for _, packet in reader:
                _segment(dpkt, unpack(packet), open_ones, done)
    except (ValueError, dpkt.Error) as error:
        raise Unreadable(f"{path}: {error}") from error
    for connection in (*done, *open_ones.values()):
        connection.recording.begins = connection.begun
        connection.recording.complete = connection.begun and not connection.has_gap
    return [one.recording for one in (*done, *open_ones.values()) if one.begun or one.goes_on]


def _layers(dpkt: Any, link_type: int) -> Callable[[bytes], Any]:
    """What finds the IP packet in a packet of this link layer; None where there is none."""
    if link_type == LINUX_COOKED:
        return lambda packet: dpkt.sll.SLL(packet).data
    if link_type == LINUX_COOKED_2:
        return lambda packet: _ip(dpkt, packet[SLL2_HEADER_OCTETS:])
    if link_type in NULL_LOOPBACK:
        return lambda packet: dpkt.loopback.Loopback(packet).data
    if link_type in RAW_IP:
        return lambda packet: _ip(dpkt, packet)
    if link_type == dpkt.pcap.DLT_EN10MB:
        return lambda packet: dpkt.ethernet.Ethernet(packet).data
    raise Unreadable(
        f"link layer {link_type} is not known here (Ethernet, Linux cooked, loopback, raw IP are)"
    )


def _ip(dpkt: Any, octets: bytes) -> Any:
    return dpkt.ip6.IP6(octets) if octets[:1] and octets[0] >> 4 == 6 else dpkt.ip.IP(octets)


def _segment(
    dpkt: Any, packet: Any, open_ones: dict[frozenset[Endpoint], Connection], done: list[Connection]
) -> None:
    segment = getattr(packet, "data", None)
    if not isinstance(segment, dpkt.tcp.TCP):
        return
    here, there = (packet.src, segment.sport), (packet.dst, segment.dport)
    key = frozenset((here, there))
    opens = segment.flags & dpkt.tcp.TH_SYN and not segment.flags & dpkt.tcp.TH_ACK
    connection = open_ones.get(key)
    if opens and connection is not None and connection.begun:  # the same two ports again
        done.append(open_ones.pop(key))
        connection = None
    if connection is None:
        name = f"{_address(here)} -> {_address(there)}"
        connection = open_ones[key] = Connection(here, Recording(name), bool(opens))
    first = (segment.seq + bool(segment.flags & dpkt.tcp.TH_SYN)) % SERIAL
    if segment.flags & dpkt.tcp.TH_ACK:
        connection.directions.setdefault(there, Direction()).acknowledged = segment.ack
    direction = connection.directions.setdefault(here, Direction())
    direction.ends = direction.ends or bool(segment.flags & dpkt.tcp.TH_FIN)
    octets = direction.taken(first, bytes(segment.data))
    if octets and not direction.spoke:
        direction.spoke = True
        connection.hear_first(here, octets)
    if octets and connection.begun:
        connection.say(CLIENT if here == connection.client else SERVER, octets)


def _address(endpoint: Endpoint) -> str:
    octets, port = endpoint
    if len(octets) == 4:
        return ".".join(map(str, octets)) + f":{port}"
    return f"[{octets.hex(':', 2)}]:{port}"
