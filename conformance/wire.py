"""The frame-level peer of scenarios: it sends exactly what they say, also what is wrong, and waits for what
they expect.

It counts as every frame-level peer does (`amqp_broker.testing.peer`). Nothing is answered by itself. `Peer`
(`amqp_broker.conformance.dialogue`) is this with sessions and links as scenarios use them.
"""

import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from amqp_broker.conformance.dialogue_rules import LETTERS, Dialogue
from amqp_broker.conformance.dialogue_state import CLIENT, SERVER
from amqp_broker.conformance.octets import frame
from amqp_broker.conformance.outcomes import CannotConnect, Late, NotApplicable, Unexpected, error_of
from amqp_broker.conformance.transcript import (
    Transcript,
    describe,
    describe_frame,
    describe_header,
    describe_kind,
    shortened,
)
from amqp_broker.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    MIN_MAX_FRAME_SIZE,
    SASL_HEADER,
    AmqpError,
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Error,
    Flow,
    Frame,
    Open,
    ProtocolHeader,
    encode_sasl_frame,
)
from amqp_broker.testing.blocking_peer import BlockingPeer, ConnectionLost
from amqp_broker.testing.peer import PeerLink

T = TypeVar("T")

STEP_TIMEOUT_S = 5.0
"""How long a scenario waits for one frame. A broker that needs longer on an idle machine hangs in users'
eyes.
"""

LARGEST_FRAME = 0xFFFF_FFFF
"""What our reader takes until an open of ours says less; a larger frame then fails the scenario (2.7.1-04).
"""

ACCEPTED_AFTER_S = 1.0
"""When an answer without an error after it counts as none."""

AFTER_CLOSE_S = 0.2
"""How long we look for something after close."""

LARGEST_PROVOCATION = 1 << 22
"""A frame larger than this is not sent to provoke an error."""

ANY_ERROR = "*"
"""Stands for any condition: an error must be there, and the standard does not say which."""

HEADERS = {
    AMQP_HEADER: "header AMQP 0 1.0.0",
    SASL_HEADER: "header AMQP 3 1.0.0",
}


class Wire(BlockingPeer):
    """One TCP connection to the broker: a frame-level peer that notes everything in the transcript."""

    checks_credit = raises_errors = answers_echo = False
    own_address = ""
    """Of a queue that only this scenario uses, where it catches up."""

    def __init__(
        self, address: tuple[str, int], transcript: Transcript, timeout_s: float = STEP_TIMEOUT_S
    ) -> None:
        """Connects; raises CannotConnect when nobody listens there."""
        try:
            transport = socket.create_connection(address, timeout=timeout_s)
        except OSError as error:
            raise CannotConnect(f"{address[0]}:{address[1]}: {error}") from error
        transport.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().__init__(transport, timeout_s)
        self.reader.max_frame_size = LARGEST_FRAME
        self.transcript = transcript
        self.letter = transcript.next_letter()
        self.rules = Dialogue(observer=CLIENT)
        """What both sides said, and which rules they broke."""
        self.close_sent = False
        self.in_order = True
        self._holds = False
        self._ended = False
        transcript.event(self.letter, "connected")

    # ---- sending -------------------------------------------------------------------------------------------

    def send_octets(self, data: bytes, what: str = "") -> None:
        """Sends octets as they are, and counts nothing; ``what`` says in the transcript what they are."""
        self._send(data, what or f"octets {shortened(data.hex(' '))}")

    def send_header(self, header: bytes = AMQP_HEADER) -> None:
        """Sends a protocol header (2.2)."""
        self._send(header, HEADERS.get(header, f"header {header!r}"))

    def put(self, performative: Any, payload: bytes = b"", channel: int = 0) -> None:
        """Sends one AMQP frame (2.3.2). What a frame of the peer says is sent at once, too."""
        self.transcript.sent(self.letter, describe_frame(channel, performative, payload))
        self.close_sent = self.close_sent or isinstance(performative, Close)
        if isinstance(performative, Open):
            self.reader.max_frame_size = max(performative.max_frame_size, MIN_MAX_FRAME_SIZE)
        super().put(performative, payload, channel)
        self.flush()

    def send_sasl(self, body: Any) -> None:
        """Sends one SASL frame (5.3.1)."""
        self._send(encode_sasl_frame(body), "sasl " + describe(body))

    def send_empty_frame(self) -> None:
        """Sends an empty frame, as against an idle time-out (2.4.5)."""
        self._send(EMPTY_FRAME, "empty frame")

    def put_octets(self, octets: bytes) -> None:
        """Octets for the next write. What they break is noted: a scenario names what it breaks on purpose."""
        for breach in self.rules.octets(CLIENT, octets):
            self.transcript.event(self.letter, f"we break {breach}")
        super().put_octets(octets)

    def _send(self, octets: bytes, what: str) -> None:
        self.transcript.sent(self.letter, what)
        self.put_octets(octets)
        self.flush()

    @contextmanager
    def one_write(self) -> Iterator[None]:
        """Gathers everything sent inside, and writes it at once: a pipelining client."""
        self._holds = True
        try:
            yield
        finally:
            self._holds = False
        self.flush()

    def flush(self) -> None:
        """Writes what was put, unless it is held back.

        A broker may close while we still write; what it said before is read by the next expectation.
        """
        if not self._holds:
            try:
                super().flush()
            except ConnectionLost as error:
                self.transcript.event(self.letter, f"writing failed: {error}")

    def finish_sending(self) -> None:
        """Closes our direction of the TCP stream."""
        self.transcript.event(self.letter, "we closed our side")
        try:
            self.transport.shutdown(socket.SHUT_WR)
        except OSError as error:
            self.transcript.event(self.letter, f"closing our side failed: {error}")

    def drop(self) -> None:
        """Drops the TCP connection without a word."""
        self.in_order, self.rules.conversation.over = False, True
        self.transcript.event(self.letter, "dropped")
        self.abort()

    # ---- receiving -----------------------------------------------------------------------------------------

    def _next(self, deadline: float) -> Frame | ProtocolHeader | str:
        """Returns what comes next, or why nothing does: "eof", "reset" or "silence"."""
        while True:
            try:
                item = self.received()
            except AmqpError as error:
                if self.reader.data.startswith(LETTERS, self.reader.position):
                    raise Unexpected("expected a frame, got a protocol header") from error
                raise Unexpected(
                    f"what the broker sent is malformed: {error.condition}: {error.description}"
                ) from error
            if item is not None:
                return item
            if self._ended:
                return "eof"
            left = deadline - time.monotonic()
            if left <= 0:
                return "silence"
            try:
                data = self._read(left)
            except ConnectionLost as lost:
                self._ended, self.in_order = True, False
                self.rules.conversation.over = True
                if lost.__cause__ is None:  # no error of the transport's
                    self.transcript.event(self.letter, "the broker closed its side")
                    return "eof"
                self.transcript.event(self.letter, f"the connection broke: {lost}")
                return "reset"
            if data is None:
                return "silence"
            self.feed(data)

    def on_item(self, item: Frame | ProtocolHeader) -> None:
        """Notes what came, sees that it keeps the rules, and counts it."""
        if isinstance(item, ProtocolHeader):
            self.transcript.received(self.letter, describe_header(item))
        else:
            kind = "sasl " if item.type == 1 else ""
            line = kind + describe_frame(item.channel, item.performative, item.payload)
            self.transcript.received(self.letter, line)
        for breach in self.rules.item(SERVER, item):
            self.transcript.event(self.letter, f"the broker breaks {breach}")
        super().on_item(item)

    def stray(self, what: str) -> None:
        """Notes what belongs to nothing that was counted: it may answer octets sent by hand.

        Whether a frame may come is for `dialogue_rules` to say, with the sentence that it breaks.
        """
        self.transcript.event(self.letter, f"not counted: {what}")

    def _fail(self, expected: str, timeout_s: float, got: Frame | ProtocolHeader | str) -> NoReturn:
        if got == "silence":
            raise Late(f"expected {expected} within {timeout_s:g} s, but nothing came")
        if isinstance(got, str):
            ended = "closed its side" if got == "eof" else "reset the connection"
            raise Unexpected(f"expected {expected}, but the broker {ended}")
        if isinstance(got, ProtocolHeader):
            raise Unexpected(f"expected {expected}, got {describe_header(got)}")
        raise Unexpected(
            f"expected {expected}, got {describe_frame(got.channel, got.performative, got.payload)}"
        )

    def expect_header(self, header: bytes | None = AMQP_HEADER) -> ProtocolHeader:
        """Returns the broker's protocol header; raises Unexpected unless it is ``header`` (None: any)."""
        self.reader.expect_header()
        got = self._next(time.monotonic() + self.timeout)
        if not isinstance(got, ProtocolHeader):
            self._fail("a protocol header", self.timeout, got)
        if header is not None and (got.protocol_id, got.major, got.minor, got.revision) != tuple(header[4:]):
            self._fail(HEADERS.get(header, repr(header)), self.timeout, got)
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
        wait = self.timeout if timeout_s is None else timeout_s
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
            self.refuse(got, kinds)

    def refuse(self, got: Frame | ProtocolHeader, kinds: tuple[type, ...]) -> None:
        """Raises Unexpected for a frame of one of ``kinds`` (none: any but an empty one)."""
        if not isinstance(got, Frame) or got.performative is None:
            return
        if not kinds:
            self._fail("silence", 0, got)
        if isinstance(got.performative, kinds):
            self._fail(f"no {describe_kind(type(got.performative))}", 0, got)

    def expect_eof(self, timeout_s: float | None = None, *, reset_allowed: bool = True) -> None:
        """Waits until the broker closes its side; raises Unexpected when a frame comes instead.

        A reset counts as an end by default: a broker that closes with unread octets of ours causes one.
        """
        wait = self.timeout if timeout_s is None else timeout_s
        got = self._next(time.monotonic() + wait)
        if got == "eof" or (got == "reset" and reset_allowed):
            return
        self._fail("the end of the stream", wait, got)

    def has_more(self, within_s: float = 0.3) -> bool:
        """Whether octets or the end of the stream come within ``within_s`` seconds; takes none of them."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.transport, selectors.EVENT_READ)
            return bool(selector.select(within_s)) or self.reader.buffered > 0

    def read_until_end(self, timeout_s: float | None = None) -> list[Any]:
        """Returns the performatives that come until the broker closes its side; a reset is an end, too."""
        wait = self.timeout if timeout_s is None else timeout_s
        deadline = time.monotonic() + wait
        performatives: list[Any] = []
        while True:
            got = self._next(deadline)
            if got == "silence":
                self._fail("the end of the stream", wait, got)
            if isinstance(got, str):
                return performatives
            performatives.append(getattr(got, "performative", got))

    def receive_octets(self, count: int) -> bytes:
        """Returns the next octets as they come, past the frame reader (before it has read any)."""
        self.transport.settimeout(self.timeout)
        data = b""
        while len(data) < count:
            try:
                piece = self.transport.recv(count - len(data))
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
        wait = self.timeout if timeout_s is None else timeout_s
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
            self.put(Close())
        self.expect_nothing_more()
        return close

    def expect_nothing_more(self) -> None:
        """After close has gone both ways: closes our side, and reads what still comes, which the rules judge
        (2.4.3-02).

        Which of the two closes the TCP connection first is open in the standard, so a broker may wait for us.
        """
        self.finish_sending()
        self._next(time.monotonic() + AFTER_CLOSE_S)

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

    def expect_error_if_any(self) -> None:
        """Waits for what a broker does with octets that the standard forbids their sender; it does not say
        that a receiver refuses them, but one that ends the connection or a session for them says why (2.4.3,
        2.5.4). The scenario shows nothing where the broker takes them, or is silent.
        """
        refusals, answers = (Close, End, Detach), (Open, Begin, Attach)
        try:
            answer = self.expect_frame(*refusals, *answers).performative
        except Late as silence:
            raise NotApplicable("the broker says nothing to it, and need not") from silence
        if isinstance(answer, answers):  # comes before a refusal, too: open (2.4.1), attach (2.6.3)
            try:
                answer = self.expect_frame(*refusals, skip=answers, timeout_s=ACCEPTED_AFTER_S).performative
            except Late as silence:
                raise NotApplicable("the broker takes it, and may") from silence
        error_of(answer)

    def provoke_close(self) -> None:
        """Makes an error for which the broker must close: a channel beyond its maximum, else a frame that is
        too large (2.7.1). The scenario shows nothing where it takes both.
        """
        opened = self.remote_open
        assert opened is not None, "open came"
        if opened.channel_max < 0xFFFF:
            begin = Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
            self.put(begin, channel=opened.channel_max + 1)
        elif opened.max_frame_size <= LARGEST_PROVOCATION:
            self.send_octets(
                frame(bytes(opened.max_frame_size)), f"a frame of {opened.max_frame_size + 8} octets"
            )
        else:
            raise NotApplicable(
                "the broker takes every channel and every frame: no error of a connection is certain"
            )

    def expect_provoked(self, *kinds: type) -> Any:
        """Returns the close or end that answers an error that the scenario made; it shows nothing where the
        broker does something else, which is for other scenarios to judge.
        """
        try:
            return self.expect_frame(*kinds).performative
        except Unexpected as answered:
            raise NotApplicable(
                f"the broker does not answer an error as it must, others judge that: {answered}"
            ) from answered

    def failed(self, scope: str, error: Error, link: PeerLink | None = None) -> None:
        """The broker ended something with an error: the scenario closes the connection, or nobody does."""
        self.in_order = False

    def finish(self) -> None:
        """Closes the connection if the scenario has left it open and in good order."""
        if self.in_order and self.remote_open is not None and self.closed is None and not self.close_sent:
            self.close()

    def close(self, error: Error | None = None) -> None:
        """Closes the connection in good order (2.4.3), and checks that the broker does."""
        self.put(Close(error=error))
        self.expect_close()
