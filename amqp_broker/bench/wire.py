"""A connection of the load tool: the frame-level peer that never waits to write, and that reads and counts
transfers by whole runs.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Self

import attrs

from amqp_broker.bench.settings import BenchSettings
from amqp_broker.bench.stencil import HEAD_BYTES, Stencil
from amqp_broker.frames import (
    Accepted,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    decode_state,
    encode_composite,
)
from amqp_broker.frames.hot_frames import read_disposition
from amqp_broker.testing.blocking_peer import READ_BYTES, BlockingPeer, ConnectionLost
from amqp_broker.testing.peer import SERIAL, PeerLink, PeerReceiver, PeerSender, PeerSession

ACCEPTED_STATE: Final = Accepted()
ACCEPTED: Final = encode_composite(ACCEPTED_STATE)
UNSETTLED: Final = 0
SETTLED: Final = 1


class BenchError(Exception):
    """The run cannot go on: what the broker said or did, as a sentence."""


class Wire(BlockingPeer):
    """One connection with one session; from `begin_run` on it reads and writes without waiting."""

    name = ""
    session: PeerSession
    on_disposition: Callable[[bool, int, int, bool, object], None] = staticmethod(lambda *disposition: None)
    """What wants to know of dispositions: role, first, last, settled and state."""
    _unsent: list[memoryview]

    @classmethod
    def of(cls, settings: BenchSettings, name: str) -> Self:
        """Connect as the settings say."""
        login: tuple[str, bytes | None] | None = ("ANONYMOUS", b"bench")
        if settings.user is not None:
            login = "PLAIN", b"\0" + settings.user.encode() + b"\0" + settings.password.encode()
        wire = cls.connect(
            settings.host,
            settings.port,
            container_id=f"bench-{settings.run}-{name}",
            login=None if settings.no_sasl else login,
            timeout=settings.timeout,
        )
        wire.name = name
        wire._unsent = []
        wire.session = wire.begin()
        return wire

    def sender(self, address: str | None, settled: bool, **fields: Any) -> PeerSender:
        """Attach a link on which we send."""
        link = self.session.attach_sender(**self._attach(address, settled), **fields)
        self._check(link)
        return link

    def receiver(self, address: str, settled: bool, **fields: Any) -> PeerReceiver:
        """Attach a link on which we receive."""
        link = self.session.attach_receiver(**self._attach(address, settled), **fields)
        self._check(link)
        return link

    def _attach(self, address: str | None, settled: bool) -> dict[str, Any]:
        name = f"{self.name}-{len(self.session.links)}"
        mode = SETTLED if settled else UNSETTLED
        return {"name": name, "address": address, "snd_settle_mode": mode, "rcv_settle_mode": 0}

    def _check(self, link: PeerLink) -> None:
        if link.remote_terminus is None:
            raise BenchError(f"{self.name}: the broker refuses the link {link.name} without an error")

    def begin_run(self) -> None:
        """From now on nothing waits."""
        super().flush()
        self.transport.setblocking(False)

    @property
    def writing(self) -> bool:
        """Bytes wait for the socket to take them."""
        return bool(self._unsent)

    def write(self, *data: bytes | bytearray) -> None:
        """Send what the socket takes now and keep the rest."""
        if self.output:
            self._unsent.append(memoryview(self.take()))
        self._unsent += [memoryview(part) for part in data if len(part)]
        self.flush()

    def flush(self) -> None:
        """Go on with what `write` kept and `put` added."""
        if self.transport.gettimeout() != 0.0:
            super().flush()
            return
        if self.output:
            self._unsent.append(memoryview(self.take()))
        while self._unsent:
            try:
                sent = self.transport.sendmsg(self._unsent[:64])
            except BlockingIOError:
                return
            except OSError as error:
                raise BenchError(f"{self.name}: the connection broke while writing: {error}") from None
            self._last_write = time.monotonic()
            while self._unsent and sent >= len(self._unsent[0]):
                sent -= len(self._unsent.pop(0))
            if sent:
                self._unsent[0] = self._unsent[0][sent:]

    def read(self) -> bool:
        """Give the reader what is there; False when nothing was."""
        try:
            data = self.transport.recv(READ_BYTES)
        except BlockingIOError:
            return False
        except OSError as error:
            raise BenchError(f"{self.name}: the connection broke while reading: {error}") from None
        if not data:
            raise BenchError(f"{self.name}: the broker closed the connection")
        self.feed(data)
        return True

    def parse(self, other: Callable[[], None] | None = None) -> None:
        """Tell of the dispositions that have come, which are read in place; `other` decodes other frames."""
        reader = self.reader
        while reader.advance():
            found = read_disposition(reader.data, reader.body_start, reader.body_end)
            if found is None:
                (other or self.general)()
            else:
                role, first, last, settled, at, end = found
                self.on_disposition(role, first, last, bool(settled), self.state_of(reader.data[at:end]))

    def state_of(self, octets: bytes) -> object:
        """The delivery-state that these are, or None."""
        if octets == ACCEPTED:
            return ACCEPTED_STATE
        return decode_state(octets) if octets else None

    def general(self) -> None:
        """Decode and count the frame that the reader has gone to."""
        frame = self.reader.decode()
        performative = frame.performative
        if performative is None:
            return
        self.on_frame(frame)
        if isinstance(performative, Disposition):
            first, last = performative.first, performative.last
            last = first if last is None else last
            settled = bool(performative.settled)
            self.on_disposition(performative.role, first, last, settled, performative.state)
        elif isinstance(performative, Detach | End | Close):
            raise BenchError(f"{self.name}: the broker sent {type(performative).__name__.lower()}")
        elif isinstance(performative, Flow) and performative.echo:
            link = None if performative.handle is None else self.session.by_remote_handle[performative.handle]
            if not isinstance(link, PeerReceiver):
                self.session.flow()

    def failed(self, scope: str, error: Error, link: PeerLink | None = None) -> None:
        """A close, end or detach with an error ends the run."""
        refused = link is not None and link.remote_terminus is None
        what = "refuses" if refused else "ended"
        raise BenchError(f"{self.name}: the broker {what} the {scope}: {describe(error)}")

    def may_send(self, link: PeerSender, frames: int = 1) -> int:
        """Messages of so many frames that credit and window allow on this link now."""
        return min(link.credit, self.session.remote_incoming_window // frames)

    def count_sent(self, link: PeerSender, count: int, frames: int = 1) -> int:
        """Account for messages about to be written; the delivery-id of the first."""
        session = self.session
        first = session.next_delivery_id
        session.next_delivery_id = (first + count) % SERIAL
        session.next_outgoing_id = (session.next_outgoing_id + count * frames) % SERIAL
        session.remote_incoming_window -= count * frames
        link.delivery_count = (link.delivery_count + count) % SERIAL
        link.credit -= count
        return first

    def wait(self, timeout_s: float) -> None:
        """Until the socket has something, or takes something."""
        wait_for(self, timeout_s=timeout_s)

    def close(self, error: Error | None = None) -> None:
        """Close only the connection, and wait until the broker has read everything before it."""
        self.transport.settimeout(self.timeout)
        try:
            for part in self._unsent:
                self.transport.sendall(part)
            self.put(Close(error=error))
            self.flush()
            while self.transport.recv(READ_BYTES):
                pass
        except (ConnectionLost, OSError):
            # The run is over: its result does not depend on how the broker says goodbye.
            self._unsent.clear()
        finally:
            self.abort()


@attrs.define
class Run:
    """Deliveries with consecutive ids and numbers, and when they were sent: (nanoseconds, how many).

    The number is -1 for a message of something else.
    """

    delivery_id: int
    number: int
    count: int
    settled: bool = False
    times: tuple[tuple[int, int], ...] = ()

    def continues(self, other: Run) -> bool:
        """Whether this one stands right behind `other`."""
        return (
            self.number == other.number + other.count and self.delivery_id == other.delivery_id + other.count
        )

    def split(self, count: int) -> tuple[Run, Run]:
        """The first `count` and the rest, without their times."""
        rest = Run(self.delivery_id + count, self.number + count, self.count - count, self.settled)
        return Run(self.delivery_id, self.number, count, self.settled), rest


class Incoming:
    """What comes on one link: runs of deliveries that look alike; everything else by the general codec."""

    def __init__(self, wire: Wire, link: PeerReceiver, run: int) -> None:
        self.wire = wire
        self.link = link
        self.overruns = 0
        self._run = run.to_bytes(8, "big")
        self._stencil: Stencil | None = None

    def runs(self) -> Iterator[Run]:
        """What the frame that the reader has gone to, and those that look like it, bring."""
        reader, link = self.wire.reader, self.link
        data, at = reader.data, reader.body_start - HEAD_BYTES
        stencil = self._stencil
        count = 0 if stencil is None else stencil.run_length(data, at)
        if not count:
            stencil = Stencil.learned(data, reader.body_start, reader.body_end, self._run)
            count = 0 if stencil is None else stencil.run_length(data, at)
        if stencil is None:
            yield from self._one_by_one()
            return
        self._stencil = stencil
        reader.position = at + count * stencil.size
        session = link.session
        session.next_incoming_id = ((session.next_incoming_id or 0) + count) % SERIAL
        link.delivery_count = (link.delivery_count + count) % SERIAL
        self._use_credit(count)
        step = count if count == 1 or stencil.consecutive(data, at, count) else 1
        for place in range(at, reader.position, step * stencil.size):
            times = tuple(stencil.times(data, place, step))
            identity, number = stencil.first("id", data, place), stencil.first("number", data, place)
            yield Run(identity, number, step, stencil.settled, times)

    def _one_by_one(self) -> Iterator[Run]:
        link, before = self.link, self.link.credit
        self.wire.general()
        if before >= 0 > link.credit:
            self._use_credit(0)
        while link.deliveries:
            delivery = link.deliveries.popleft()
            at = delivery.payload.rfind(self._run)
            number, sent_ns = -1, 0
            if at >= 0:
                number = int.from_bytes(delivery.payload[at + 8 : at + 16], "big")
                sent_ns = int.from_bytes(delivery.payload[at + 16 : at + 24], "big")
            yield Run(delivery.delivery_id, number, 1, delivery.settled, ((sent_ns, 1),))
        link.session.received_unsettled.clear()

    def _use_credit(self, count: int) -> None:
        self.link.credit -= count
        if self.link.credit < 0:
            self.overruns -= self.link.credit
            self.link.credit = 0


def wait_for(*wires: Wire, timeout_s: float) -> None:
    """Wait until one of the sockets has something to read, or takes what is still to be written."""
    poll = select.poll()
    for wire in wires:
        poll.register(wire.transport, select.POLLIN | (select.POLLOUT if wire.writing else 0))
    poll.poll(max(0.0, timeout_s) * 1_000)
    for wire in wires:
        if not wire.writing:
            wire._keep_alive()
        wire.flush()


def describe(error: Error | None) -> str:
    """An error of the broker as a phrase."""
    return f"{error.condition}: {error.description}" if error else "no error given"
