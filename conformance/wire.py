"""A blocking client at frame level: it sends exactly what a scenario says, also what is wrong, and notes
everything.

There is no protocol engine here: nothing is answered, corrected or counted by itself.
"""

import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from amqp_broker.conformance.invariants import Invariants
from amqp_broker.conformance.outcomes import CannotConnect, Unexpected
from amqp_broker.conformance.transcript import (
    Transcript,
    describe,
    describe_frame,
    describe_header,
    shortened,
)
from amqp_broker.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    MIN_MAX_FRAME_SIZE,
    SASL_HEADER,
    AmqpError,
    Close,
    Detach,
    End,
    Error,
    Flow,
    Frame,
    FrameReader,
    Open,
    ProtocolHeader,
    encode_frame,
    encode_sasl_frame,
)

T = TypeVar("T")

STEP_TIMEOUT_S = 5.0
"""How long a scenario waits for one frame. A broker that needs longer on an idle machine hangs in users'
eyes.
"""

LARGEST_FRAME = 0xFFFF_FFFF
"""What our reader takes until an open of ours says less; a larger frame then fails the scenario (2.7.1-04).
"""

READ_OCTETS = 65536

AFTER_CLOSE_S = 0.2
"""How long we look for something after close."""

ANY_ERROR = "*"
"""Stands for any condition: an error must be there, and the standard does not say which."""

HEADERS = {
    AMQP_HEADER: "header AMQP 0 1.0.0",
    SASL_HEADER: "header AMQP 3 1.0.0",
}


class Peer:
    """One TCP connection to the broker."""

    def __init__(
        self, address: tuple[str, int], transcript: Transcript, timeout_s: float = STEP_TIMEOUT_S
    ) -> None:
        """Connects; raises CannotConnect when nobody listens there."""
        self.transcript = transcript
        self.letter = transcript.next_letter()
        self.timeout_s = timeout_s
        self.observers: list[Callable[[Frame], None]] = []
        self.invariants = Invariants()
        self.close_sent = False
        self._reader = FrameReader(LARGEST_FRAME)
        self._gathered: list[bytes] | None = None
        self._eof = False
        try:
            self._socket = socket.create_connection(address, timeout=timeout_s)
        except OSError as error:
            raise CannotConnect(f"{address[0]}:{address[1]}: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transcript.event(self.letter, "connected")

    # ---- sending -------------------------------------------------------------------------------------------

    def send_octets(self, data: bytes, what: str = "") -> None:
        """Sends octets as they are; ``what`` says in the transcript what they are."""
        self.transcript.sent(self.letter, what or f"octets {shortened(data.hex(' '))}")
        self._write(data)

    def send_header(self, header: bytes = AMQP_HEADER) -> None:
        """Sends a protocol header (2.2)."""
        self.send_octets(header, HEADERS.get(header, f"header {header!r}"))

    def send(self, performative: Any, channel: int = 0, payload: bytes = b"") -> None:
        """Sends one AMQP frame (2.3.2)."""
        self.transcript.sent(self.letter, describe_frame(channel, performative, payload))
        self.close_sent = self.close_sent or isinstance(performative, Close)
        self.invariants.sent(performative, channel)
        if isinstance(performative, Open):
            self._reader.max_frame_size = max(performative.max_frame_size, MIN_MAX_FRAME_SIZE)
        self._write(encode_frame(channel, performative, payload))

    def send_sasl(self, body: Any) -> None:
        """Sends one SASL frame (5.3.1)."""
        self.transcript.sent(self.letter, "sasl " + describe(body))
        self._write(encode_sasl_frame(body))

    def send_empty_frame(self) -> None:
        """Sends an empty frame, as against an idle time-out (2.4.5)."""
        self.transcript.sent(self.letter, "empty frame")
        self._write(EMPTY_FRAME)

    @contextmanager
    def one_write(self) -> Iterator[None]:
        """Gathers everything sent inside, and writes it at once: a pipelining client."""
        self._gathered = []
        try:
            yield
        finally:
            data, self._gathered = b"".join(self._gathered), None
        self._write(data)

    def finish_sending(self) -> None:
        """Closes our direction of the TCP stream."""
        self.transcript.event(self.letter, "we closed our side")
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            self.transcript.event(self.letter, f"closing our side failed: {error}")

    def drop(self) -> None:
        """Drops the TCP connection without a word."""
        self.transcript.event(self.letter, "dropped")
        self._socket.close()

    def discard(self) -> None:
        """Frees the socket at the end of a scenario; harmless when it is gone."""
        self._socket.close()

    def _write(self, data: bytes) -> None:
        if self._gathered is not None:
            self._gathered.append(data)
            return
        try:
            self._socket.settimeout(self.timeout_s)
            self._socket.sendall(data)
        except OSError as error:
            # A broker may close while we still write; what it said before is read by the next expectation.
            self.transcript.event(self.letter, f"writing failed: {error}")

    # ---- receiving -----------------------------------------------------------------------------------------

    def _next(self, deadline: float) -> Frame | ProtocolHeader | str:
        """Returns what comes next, or why nothing does: "eof", "reset" or "silence"."""
        while True:
            try:
                item = self._reader.next()
            except AmqpError as error:
                raise Unexpected(
                    f"what the broker sent is malformed: {error.condition}: {error.description}"
                ) from error
            if item is not None:
                return self._noted(item)
            if self._eof:
                return "eof"
            left = deadline - time.monotonic()
            if left <= 0:
                return "silence"
            self._socket.settimeout(left)
            try:
                data = self._socket.recv(READ_OCTETS)
            except TimeoutError:
                return "silence"
            except OSError as error:
                self.transcript.event(self.letter, f"the connection broke: {error}")
                self._eof = True
                return "reset"
            if data:
                self._reader.feed(data)
            else:
                self.transcript.event(self.letter, "the broker closed its side")
                self._eof = True

    def _noted(self, item: Frame | ProtocolHeader) -> Frame | ProtocolHeader:
        if isinstance(item, ProtocolHeader):
            self.transcript.received(self.letter, describe_header(item))
            return item
        kind = "sasl " if item.type == 1 else ""
        self.transcript.received(
            self.letter, kind + describe_frame(item.channel, item.performative, item.payload)
        )
        self.invariants.check(item)
        for observer in self.observers:
            observer(item)
        return item

    def _fail(self, expected: str, timeout_s: float, got: Frame | ProtocolHeader | str) -> NoReturn:
        if got == "silence":
            raise Unexpected(f"expected {expected} within {timeout_s:g} s, but nothing came")
        if isinstance(got, str):
            ended = "closed its side" if got == "eof" else "reset the connection"
            raise Unexpected(f"expected {expected}, but the broker {ended}")
        if isinstance(got, ProtocolHeader):
            raise Unexpected(f"expected {expected}, got {describe_header(got)}")
        raise Unexpected(
            f"expected {expected}, got {describe_frame(got.channel, got.performative, got.payload)}"
        )

    def expect_header(
        self, header: bytes | None = AMQP_HEADER, timeout_s: float | None = None
    ) -> ProtocolHeader:
        """Returns the broker's protocol header; raises Unexpected unless it is ``header`` (None: any)."""
        wait = self.timeout_s if timeout_s is None else timeout_s
        self._reader.expect_header()
        got = self._next(time.monotonic() + wait)
        if not isinstance(got, ProtocolHeader):
            self._fail("a protocol header", wait, got)
        if header is not None and (got.protocol_id, got.major, got.minor, got.revision) != tuple(header[4:]):
            self._fail(HEADERS.get(header, repr(header)), wait, got)
        return got

    def expect_frame(
        self,
        *kinds: type,
        channel: int | None = None,
        skip: tuple[type, ...] = (),
        timeout_s: float | None = None,
        skip_flows: bool = True,
    ) -> Frame:
        """Returns the next frame, which must be of one of ``kinds``, on ``channel`` when that is given.

        Passed over: empty frames; flows (a peer may send one at any time) unless they are asked for;
        ``skip``.
        """
        wait = self.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + wait
        expected = " or ".join(describe_kind(kind) for kind in kinds)
        if channel is not None:
            expected += f" on channel {channel}"
        while True:
            got = self._next(deadline)
            if isinstance(got, Frame):
                performative = got.performative
                if isinstance(performative, kinds) and channel in (None, got.channel):
                    return got
                if performative is None or isinstance(performative, skip):
                    continue
                if skip_flows and isinstance(performative, Flow) and Flow not in kinds:
                    continue
            self._fail(expected, wait, got)

    def expect_any_frame(self, timeout_s: float) -> Frame:
        """Returns the next frame of any kind, also an empty one."""
        got = self._next(time.monotonic() + timeout_s)
        if not isinstance(got, Frame):
            self._fail("a frame", timeout_s, got)
        return got

    def expect(
        self,
        kind: type[T],
        *,
        channel: int | None = None,
        skip: tuple[type, ...] = (),
        timeout_s: float | None = None,
        **fields: object,
    ) -> T:
        """Returns the next performative of ``kind`` (see expect_frame), whose fields must be as given."""
        frame = self.expect_frame(kind, channel=channel, skip=skip, timeout_s=timeout_s)
        performative: T = frame.performative
        for name, value in fields.items():
            got = getattr(performative, name)
            if got != value:
                raise Unexpected(f"expected {describe_kind(kind)} with {name}={value!r}, got {name}={got!r}")
        return performative

    def expect_nothing(self, *kinds: type, within_s: float = 0.3) -> None:
        """Reads for ``within_s`` seconds; raises Unexpected when a frame of one of ``kinds`` comes (none:
        any).
        """
        deadline = time.monotonic() + within_s
        while True:
            got = self._next(deadline)
            if got == "silence":
                self.transcript.event(self.letter, f"nothing of the kind within {within_s:g} s")
                return
            if isinstance(got, str):
                names = " or ".join(describe_kind(kind) for kind in kinds) or "frame"
                self._fail(f"no {names}, and an open connection", within_s, got)
            if isinstance(got, Frame) and not kinds and got.performative is not None:
                self._fail("silence", within_s, got)
            if isinstance(got, Frame) and isinstance(got.performative, kinds):
                self._fail(f"no {describe_kind(type(got.performative))}", within_s, got)

    def expect_eof(self, timeout_s: float | None = None, *, reset_allowed: bool = True) -> None:
        """Waits until the broker closes its side; raises Unexpected when a frame comes instead.

        A reset counts as an end by default: a broker that closes with unread octets of ours causes one.
        """
        wait = self.timeout_s if timeout_s is None else timeout_s
        got = self._next(time.monotonic() + wait)
        if got == "eof" or (got == "reset" and reset_allowed):
            return
        self._fail("the end of the stream", wait, got)

    def has_more(self, within_s: float = 0.3) -> bool:
        """Whether octets or the end of the stream come within ``within_s`` seconds; takes none of them."""
        readable, _, _ = select.select([self._socket], [], [], within_s)
        return self._reader.buffered > 0 or bool(readable)

    def read_until_end(self, timeout_s: float | None = None) -> list[Any]:
        """Returns the performatives that come until the broker closes its side; a reset is an end, too."""
        wait = self.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + wait
        performatives: list[Any] = []
        while True:
            got = self._next(deadline)
            if got == "silence":
                self._fail("the end of the stream", wait, got)
            if isinstance(got, str):
                return performatives
            performatives.append(getattr(got, "performative", got))

    def receive_octets(self, count: int, timeout_s: float | None = None) -> bytes:
        """Returns the next octets as they come, past the frame reader (before it has read any)."""
        self._socket.settimeout(self.timeout_s if timeout_s is None else timeout_s)
        data = b""
        while len(data) < count:
            try:
                piece = self._socket.recv(count - len(data))
            except OSError as error:
                raise Unexpected(f"expected {count} octets, got {len(data)}: {error}") from error
            if not piece:
                raise Unexpected(f"expected {count} octets, but the broker closed its side after {len(data)}")
            data += piece
        self.transcript.received(self.letter, f"octets {shortened(data.hex(' '))}")
        return data

    # ---- whole exchanges -----------------------------------------------------------------------------------

    def _expect_error(
        self,
        kind: type[T],
        channel: int | None,
        conditions: tuple[str, ...],
        timeout_s: float | None,
        stronger: tuple[type, ...],
    ) -> T:
        """Waits for ``kind``, passing over what was under way, and checks its error's condition."""
        wait = self.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + wait
        names = "an error" if conditions == (ANY_ERROR,) else " or ".join(conditions)
        expected = describe_kind(kind) + (f" with {names}" if conditions else "")
        while True:
            got = self._next(deadline)
            if (
                isinstance(got, Frame)
                and isinstance(got.performative, kind)
                and channel in (None, got.channel)
            ):
                break
            if isinstance(got, str) or (isinstance(got, Frame) and isinstance(got.performative, stronger)):
                self._fail(expected, wait, got)
        performative: T = got.performative
        error: Error | None = getattr(performative, "error", None)
        if conditions and (error is None or ANY_ERROR != conditions[0] and error.condition not in conditions):
            raise Unexpected(f"expected {expected}, got {describe(performative)}")
        return performative

    def expect_close(self, *conditions: str, timeout_s: float | None = None) -> Close:
        """Waits for close with an error of one of ``conditions`` (none: any), answers it, and sees that
        nothing follows.
        """
        close = self._expect_error(Close, None, conditions, timeout_s, ())
        if not self.close_sent:
            self.send(Close())
        self.expect_nothing_more()
        return close

    def expect_nothing_more(self) -> None:
        """After close has gone both ways: closes our side, and raises Unexpected when anything still comes.

        Which of the two closes the TCP connection first is open in the standard, so a broker may wait for us.
        """
        self.finish_sending()
        got = self._next(time.monotonic() + AFTER_CLOSE_S)
        if not isinstance(got, str):
            self._fail("nothing more after close", AFTER_CLOSE_S, got)

    def expect_end(self, *conditions: str, channel: int | None = None, timeout_s: float | None = None) -> End:
        """Waits for end with an error of one of ``conditions`` (none: any), passing over what was under
        way.
        """
        return self._expect_error(End, channel, conditions, timeout_s, (Close,))

    def expect_detach(
        self, *conditions: str, channel: int | None = None, timeout_s: float | None = None
    ) -> Detach:
        """Waits for detach with an error of one of ``conditions`` (none: any), passing over what was under
        way.
        """
        return self._expect_error(Detach, channel, conditions, timeout_s, (Close, End))

    def close(self) -> None:
        """Closes the connection in good order (2.4.3), and checks that the broker does."""
        self.send(Close())
        self.expect_close()


def describe_kind(kind: type) -> str:
    """Returns the standard's name of a performative's class: ``sasl-init`` for SaslInit."""
    name = "".join(
        "-" + character.lower() if character.isupper() else character for character in kind.__name__
    )
    return name.lstrip("-")
