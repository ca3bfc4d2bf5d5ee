"""The connection engine: bytes in, events out, bytes to send; it does no I/O and reads no clock (2.4).

Call `receive_data` with what the transport gave, act on the events, then write what `data_to_send` gives
until that is empty. Ask `next_deadline` and call `handle_timeout` when it has come. When `wants_close` is
True, write the rest, close.
"""

from __future__ import annotations

from typing import Any

from amqp_broker.frames import (
    EMPTY_FRAME,
    AmqpError,
    Close,
    Error,
    Frame,
    FrameReader,
    Open,
    ProtocolHeader,
    encode_frame,
)
from amqp_broker.frames.sasl import SASL_AUTH, SaslChallenge, SaslInit, SaslResponse
from amqp_broker.links.connection_frames import CLOSING, frame_received, header_received
from amqp_broker.links.connection_states import CONNECTION_TABLE, ConnectionInput, ConnectionState
from amqp_broker.links.deliveries import PartialDelivery
from amqp_broker.links.dispositions import txn_id_of
from amqp_broker.links.errors import (
    FRAME_SIZE_TOO_SMALL,
    FRAMING_ERROR,
    ILLEGAL_STATE,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    LocalProtocolError,
    RemoteProtocolError,
    Scope,
    connection_error,
    link_error,
)
from amqp_broker.links.event_queue import EventQueue
from amqp_broker.links.events import ConnectionClosed, Event
from amqp_broker.links.hot_frames import HotReading
from amqp_broker.links.limits import MIN_MAX_FRAME_SIZE, OperationRate
from amqp_broker.links.link import Link
from amqp_broker.links.link_states import LinkState
from amqp_broker.links.lowest_free import LowestFree
from amqp_broker.links.memory_budget import CONNECTION_BYTES, LINK_BYTES, SESSION_BYTES
from amqp_broker.links.negotiation import Negotiation
from amqp_broker.links.output import Output, Piece
from amqp_broker.links.receiver_link import ReceiverLink
from amqp_broker.links.refusals import LOGIN
from amqp_broker.links.sasl_states import SaslInput
from amqp_broker.links.sender_link import SenderLink
from amqp_broker.links.session import Session
from amqp_broker.links.session_states import SessionState
from amqp_broker.links.settings import ConnectionSettings
from amqp_broker.links.timers import Due, Timers

_S = ConnectionState
_I = ConnectionInput
_OPENED = ConnectionState.OPENED


class Connection:
    """One end of a connection. `wants_close`: write what waits, then close the transport.

    `remote_open` is the peer's open once it came. `context` belongs to the caller.
    """

    def __init__(self, settings: ConnectionSettings, now: float) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.now = now
        self.state = ConnectionState.START
        self.wants_close = False
        self.remote_open: Open | None = None
        self.remote_max_frame_size = MIN_MAX_FRAME_SIZE
        self.remote_channel_max = 0
        self.output = Output(self.limits.output_bytes)
        self.reader = FrameReader(MIN_MAX_FRAME_SIZE)
        self.reader.expect_header()
        self.negotiation = Negotiation(self)
        self.timers = Timers(self.limits, settings.idle_time_out_ms, now)
        self.sessions: dict[int, Session] = {}
        """The sessions by our channel."""
        self.incoming: dict[int, Session] = {}
        """The sessions by the peer's channel."""
        self._channels = LowestFree()
        self.read_sessions: list[Session] = []
        """Sessions on which something came in this read that may want an answer at its end."""
        self.echo_links: set[Link] = set()
        self.sending_links: dict[SenderLink, None] = {}
        self.partial_links: set[ReceiverLink] = set()
        self.leaving_at: dict[Link | Session | Connection, float] = {}
        """What waits with its answer to a detach, end or close for outcomes, and when it is answered without
        them.
        """
        self.hot = HotReading(self)
        self.hot_path = True
        """False reads everything the general way; the two have to say the same."""
        self.context: Any = None
        self.link_count = 0
        """How many links have a handle in use, in all sessions."""
        self._links: dict[tuple[str, bool], Link] = {}
        self.rate = OperationRate(
            self.limits.control_operations_per_s, self.limits.control_operations_burst, now
        )
        self.events = EventQueue()
        self.leaving: Close | None = None
        """The peer's close; our answer waits for outcomes of what it sent before."""
        self.owing: set[Link] = set()
        """The links for which it waits."""
        self._waiting = False
        self._slowed_until: float | None = None
        self._closed_told = False
        self.broken = False
        """The peer went without a word."""
        self._close_error: Error | None = None
        self.frames_before_open = 0

    # --- the transport's side

    def receive_data(self, data: bytes, now: float) -> list[Event]:
        """Takes bytes and tells what happened. Reading stops at an event that wants an answer; after the
        answer call again, with b"" if nothing came. Never raises for what a peer sent.

        It also stops when the peer is slowed down (`takes_data`): what was given is read later.
        """
        self.now = now
        if data and not self.wants_close:
            self.reader.feed(data)
        self._read()
        self._after_read()
        return self.events.take()

    def takes_data(self) -> bool:
        """False while the peer is slowed down: give nothing then, not even the end of the stream, until a
        `handle_timeout` has read what was given before. False also after its close, while that waits.
        """
        return self._slowed_until is None and self.leaving is None

    def receive_eof(self, now: float, *, cut: bool = False) -> list[Event]:
        """The transport is at its end or broken; nothing more comes. `cut`: by us, so the peer had no chance
        to say a word.
        """
        self.now = now
        self.broken = not cut
        self.lose(None)
        return self.events.take()

    def let_go(self) -> None:
        """Nothing is read or written any more: what stands in a circle with the connection lets go of it, so
        that all of it goes with the last who knows it.
        """
        self.hot.let_go()
        self.output.waiting.clear()
        self.negotiation.let_go()

    def data_to_send(self) -> list[Piece]:
        """Takes all that waits, in pieces of any size: join small ones. Call again after writing it, until it
        is empty: large messages go on then.
        """
        if self.echo_links:
            self._answer_echoes()
        chunks = self.output.take()
        if self.output.wrote:
            self.output.wrote = False
            self.timers.last_sent = self.now
        if chunks and self.sending_links:
            self.go_on_sending()
        return chunks

    def kept_bytes(self) -> int:
        """What it keeps in memory for itself, about: its sessions and links, and octets not read or written
        yet.
        """
        own = CONNECTION_BYTES + len(self.sessions) * SESSION_BYTES + self.link_count * LINK_BYTES
        return own + self.reader.buffered + self.output.size_bytes

    def awaited_octets(self) -> int:
        """Of the frame that has begun to come, and is not whole; 0 where nobody knows."""
        return self.reader.awaited

    def output_size(self) -> int:
        """Octets that wait."""
        if self.echo_links:
            self._answer_echoes()
        return self.output.size_bytes

    def partial_txn_ids(self) -> set[bytes]:
        """The txn-ids of all incoming deliveries that are not complete: they must not be discharged
        (4.4.1).
        """
        partials = [link.partial for link in self.partial_links if link.partial is not None]
        txn_ids = [txn_id_of(partial.state) for partial in partials]
        return {txn_id for txn_id in txn_ids if txn_id is not None}

    def take_events(self) -> list[Event]:
        """What was told since the last call of anything that returns events: the caller's own detach, end and
        close.
        """
        return self.events.take()

    def next_deadline(self) -> float | None:
        """When `handle_timeout` is to be called, on the clock of `now`; None: no need."""
        deadline = self.timers.next_deadline()
        if self._slowed_until is not None:
            deadline = self._slowed_until if deadline is None else min(deadline, self._slowed_until)
        incomplete = [self._given_up_at(each.partial) for each in self.partial_links if each.partial]
        for at in (*incomplete, *self.leaving_at.values()):
            deadline = at if deadline is None else min(deadline, at)
        return deadline

    def handle_timeout(self, now: float, *, unread: bool = False) -> list[Event]:
        """Does what is due at `now`; harmless when nothing is. `unread`: there is more of the peer than was
        given, so it is not silent.
        """
        self.now = now
        if self.partial_links:
            self._drop_idle_partials()
        if self.leaving_at:
            self._answer_overdue()
        if self._slowed_until is not None and now >= self._slowed_until:
            self._slowed_until = None
            self._read()
            self._after_read()
        due = self.timers.due(now)
        if due is Due.HEARTBEAT:
            if not self.output.size_bytes:
                self.output.write(EMPTY_FRAME)
            self.timers.last_sent = now
        elif due is Due.IDLE and (unread or self._waiting or not self.takes_data()):
            # The peer's frames are not read meanwhile, and what is missing is our caller's answer or time.
            self.timers.last_received = now
        elif due is Due.IDLE:
            self.broken = True
            self._fail(
                RESOURCE_LIMIT_EXCEEDED,
                f"nothing came for {self.timers.receive_s:g} s, twice our idle-time-out (2.4.5; "
                f"limits.idle_time_out_ms)",
                "idle_time_out_ms",
            )
        elif due is Due.CLOSE:
            self.lose(self._close_error)
        elif due is Due.HEADER:
            self._refuse_silence()
        elif due is Due.OPEN:
            self._fail(
                RESOURCE_LIMIT_EXCEEDED,
                f"no open within {self.limits.open_timeout_s:g} s (limits.login_timeout_ms)",
                "login_timeout_ms",
            )
        return self.events.take()

    # --- the caller's side

    def open(self) -> None:
        """Client: speaks first. With `settings.sasl` the open itself follows a good SASL outcome."""
        if self.settings.server or self.negotiation.header_sent:
            raise LocalProtocolError(
                "open() is called once, by a client; a server answers the peer's open by itself"
            )
        self.timers.header_at = None
        self.negotiation.start()
        if not self.settings.sasl:
            self.send_open()

    def close(self, error: Error | None = None) -> None:
        """Closes (2.4.3): nothing is sent after this. Links and sessions end at once; ConnectionClosed
        follows when the peer has answered or did not in time. Nothing happens when it is closing already.
        """
        if self.state in CLOSING or self.state is _S.END:
            return
        if self.leaving is not None:
            self.answer_close(error)
            return
        if self.state not in (_OPENED, _S.OPEN_SENT, _S.OPEN_PIPE):
            self.lose(error)
            return
        self._close_error = error
        self.send_close(error)
        self.timers.close_at = self.now + self.limits.close_timeout_s
        self._drop_sessions(error)

    def begin(self) -> Session:
        """Begins a session on the lowest free channel; SessionBegun follows. Raises LocalProtocolError."""
        if self.state not in (_OPENED, _S.OPEN_SENT, _S.OPEN_PIPE):
            raise LocalProtocolError(f"cannot begin a session in connection state {self.state.value}")
        session = Session(self, self.free_channel())
        self.sessions[session.channel] = session
        session.begin(-1)
        return session

    def sasl_init(
        self, mechanism: str, initial_response: bytes | None = None, hostname: str | None = None
    ) -> None:
        """Client: answers SaslMechanismsReceived."""
        init = SaslInit(mechanism, initial_response, hostname or self.settings.hostname)
        self.negotiation.send(SaslInput.INIT, init)

    def sasl_response(self, data: bytes) -> None:
        """Client: answers SaslChallengeReceived."""
        self.negotiation.send(SaslInput.RESPONSE, SaslResponse(data))

    def sasl_challenge(self, data: bytes) -> None:
        """Server: answers SaslInitReceived or SaslResponseReceived with one more step."""
        self.negotiation.send(SaslInput.CHALLENGE, SaslChallenge(data))
        self.answered()

    def sasl_outcome(self, code: int, additional_data: bytes | None = None) -> None:
        """Server: answers with the verdict; 0 is success, after anything else the connection is over
        (5.3.3.6).
        """
        self.negotiation.outcome(code, additional_data)
        self.answered()
        if code != 0:
            if code == SASL_AUTH:  # the others are faults of ours
                self.settings.refusals.met(LOGIN)
            self.lose(
                Error(condition="amqp:unauthorized-access", description=f"SASL failed with code {code}")
            )

    # --- for sessions and links

    def wants_answer(self, event: Event) -> None:
        """Adds an event that stops reading until `answered`."""
        self._waiting = True
        self.events.tell(event)

    def count_operation(self) -> None:
        """One more operation that makes us build or tear down something. Beyond the rate of the connection,
        or of its address, reading stops for a while: the peer is slowed down, and nothing of it is refused.
        """
        if not self.settings.server:
            return  # a client is only answered
        pause, slowed_by = self.rate.take(self.now), "control_operations_per_s"
        if self.settings.peer_rate is not None:
            of_address = self.settings.peer_rate.take(self.now)
            if of_address > pause:
                pause, slowed_by = of_address, "address_operations_per_s"
        if pause > 0.0:
            self._slowed_until = self.now + pause
            self.settings.refusals.met(slowed_by)

    def relieved(self) -> None:
        """The account is not pressed any more: credit and windows are given again."""
        for session in list(self.sessions.values()):
            for link in list(session.output_links.values()):
                if isinstance(link, ReceiverLink):
                    link.renew()
            session.renew_window()

    def answered(self) -> None:
        """The caller answered; reading may go on."""
        self._waiting = False

    def send(self, channel: int, performative: Any) -> None:
        """Writes a frame. An error's text is left out when the frame would be too large for the peer."""
        if self.output.closed:
            return
        frame = encode_frame(channel, performative)
        if len(frame) > self.remote_max_frame_size:
            error = getattr(performative, "error", None)
            if error is None:
                raise LocalProtocolError(
                    f"{type(performative).__name__} of {len(frame)} octets, but the peer takes "
                    f"{self.remote_max_frame_size}",
                    FRAME_SIZE_TOO_SMALL,
                )
            performative.error = Error(condition=error.condition)
            frame = encode_frame(channel, performative)
        self.output.write(frame)

    def send_header(self, header: bytes) -> None:
        """Writes the AMQP protocol header."""
        self.step(_I.S_HDR)
        self.output.write(header)

    def open_now(self, header: bytes) -> None:
        """Client after SASL: header and open."""
        self.negotiation.header_sent = header
        self.send_header(header)
        self.send_open()

    def step(self, what: ConnectionInput) -> None:
        """Take one transition. Raises a connection error for what the peer may not do, LocalProtocolError for
        us.
        """
        following = CONNECTION_TABLE[self.state][what]
        if following is None:
            if what.value.startswith("R:"):
                raise connection_error(
                    ILLEGAL_STATE, f"{what.value} in connection state {self.state.value} (2.4.6)"
                )
            raise LocalProtocolError(f"cannot do {what.value} in connection state {self.state.value}")
        self.state = following

    def go_on_sending(self) -> None:
        """Large messages that wait for window or output go on, each in its turn: the first may take all the
        room.
        """
        links = list(self.sending_links)
        for link in links:
            link.go_on()
        if len(links) > 1 and links[0] in self.sending_links:
            del self.sending_links[links[0]]
            self.sending_links[links[0]] = None

    def remember_link(self, link: Link) -> None:
        """Note a link by its name, for link stealing (2.6.1)."""
        self._links[link.name, link.role] = link

    def forget_link(self, link: Link) -> None:
        """The link is gone, or going."""
        if self._links.get((link.name, link.role)) is link:
            del self._links[link.name, link.role]
        self.echo_links.discard(link)
        self.leaving_at.pop(link, None)
        if isinstance(link, ReceiverLink):
            self.partial_links.discard(link)
            if self.hot.run_link is link:
                self.hot.run_link = None

    def steal(self, name: str, remote_role: bool) -> None:
        """A new attach of this name and direction: the old link, if attached, is closed with
        amqp:link:stolen.
        """
        old = self._links.pop((name, not remote_role), None)
        if old is not None and old.state is LinkState.ATTACHED:
            old.session.steal(old)
        elif old is not None and old.leaving is not None:
            old.answer_detach()  # the peer is told of the old link's end before it hears of the new one

    def links_full(self) -> bool:
        """Whether all sessions together have as many links as they may."""
        return self.link_count >= self.limits.links_per_connection

    def wait_for_outcomes(self, leaving: Link | Session | Connection) -> None:
        """The answer to its detach, end or close waits, for a bounded time."""
        self.leaving_at[leaving] = self.now + self.limits.outcome_wait_s

    def close_received(self, close: Close) -> None:
        """The peer's close, which came first. As with a detach, a server's answer waits for the outcomes of
        what came before it, for a bounded time; links that owe none end at once.
        """
        owing: list[Link] = []
        if self.settings.server:
            for session in list(self.sessions.values()):
                session.settle_deferred()
                owing.extend(session.lose_decided(close.error))
            for link in owing:
                link.tell_leaving()
            self.owing = set(owing)
        self.leaving = close
        if owing:
            self.wait_for_outcomes(self)
        else:
            self.answer_close()

    def link_ended(self, link: Link) -> None:
        """A link is gone: was it the last one that the peer's close waits for?"""
        if self.owing:
            self.owing.discard(link)
            if not self.owing:
                self.answer_close()

    def answer_close(self, error: Error | None = None) -> None:
        """Sends the answer that waited; the connection is over."""
        close = self.leaving
        assert close is not None, "only a close that waits is answered"
        self.send_close(error)
        self.lose(error or close.error, local=error is not None)

    def session_gone(self, session: Session) -> None:
        """Both sides have ended it: its channel is free again."""
        if self.sessions.pop(session.channel, None) is not None:
            self._channels.release(session.channel)
        self.leaving_at.pop(session, None)

    # --- reading

    def _read(self) -> None:
        """Reads frames until more bytes or an answer are needed. Errors of the peer end here."""
        while not self._waiting and not self.wants_close and self.takes_data():
            try:
                if self.state is _OPENED and self.hot_path:
                    self.hot.read()
                    if self._waiting:
                        return
                frame = self.reader.next()
                if frame is None:
                    return
                self.timers.last_received = self.now
                if type(frame) is ProtocolHeader:
                    header_received(self, frame)
                else:
                    assert isinstance(frame, Frame)
                    frame_received(self, frame)
            except RemoteProtocolError as error:
                self._fail(error.condition, error.description, error.limit)
            except LocalProtocolError as error:
                # We could not answer within what the peer allows (channels, frame size): it has to go.
                self._fail(error.condition, error.description)
            except AmqpError as error:
                # Neither a frame nor a performative: what follows cannot be trusted (2.8.16).
                self._fail(error.condition, error.description)

    def session_failed(self, session: Session, error: RemoteProtocolError) -> None:
        """Ends `session` for a session error; what is worse goes on up."""
        if error.scope is not Scope.SESSION or session.state is not SessionState.MAPPED:
            raise error
        told = Error(condition=error.condition, description=error.description, info=error.info or None)
        session.fail(told, error.limit)

    def free_channel(self) -> int:
        """The lowest channel that is free on our side (2.5.1). Raises LocalProtocolError."""
        channel = self._channels.find(self.sessions)
        if channel > min(self.settings.channel_max, self.remote_channel_max):
            raise LocalProtocolError(
                f"no channel is left: {len(self.sessions)} sessions, channel-max of the peer is "
                f"{self.remote_channel_max}, and ours is {self.settings.channel_max} (limits.max_sessions)",
                NOT_ALLOWED,
            )
        return channel

    def _after_read(self) -> None:
        if self.state is not _OPENED:
            most = self.limits.bytes_before_open
            if self.remote_open is None and self.reader.buffered > most and not self.wants_close:
                why = f"more than {most} octets before open (limits.login_buffer_bytes)"
                self._fail(RESOURCE_LIMIT_EXCEEDED, why, "login_buffer_bytes")
            return
        if self.read_sessions:
            sessions, self.read_sessions = self.read_sessions, []
            for session in sessions:
                session.after_read()

    def _answer_echoes(self) -> None:
        """Tells the state of links whose peer asked for it: once for each turn, and after our caller has
        acted on the events, so that what it says of `available` and `drained` is in the answer (2.7.4).
        """
        for link in self.echo_links:
            if link.state is LinkState.ATTACHED and isinstance(link, (SenderLink, ReceiverLink)):
                link.answer_echo()
        self.echo_links.clear()

    # --- opening and closing

    def send_open(self) -> None:
        """Our open (2.7.1)."""
        settings = self.settings
        self.step(_I.S_OPEN)
        self.send(
            0,
            Open(
                container_id=settings.container_id,
                hostname=settings.hostname,
                max_frame_size=settings.max_frame_size,
                channel_max=settings.channel_max,
                idle_time_out=settings.idle_time_out_ms or None,
                offered_capabilities=settings.offered_capabilities or None,
                desired_capabilities=settings.desired_capabilities or None,
                properties=settings.properties,
            ),
        )

    def send_close(self, error: Error | None, limit: str = "") -> None:
        """Our close: the last frame (2.4.3). `limit` is the one that was met, where that is known."""
        if error is not None:
            self.count_refusal(error, limit)
        for session in self.sessions.values():
            session.settle_deferred()
        self.step(_I.S_CLOSE if error is None else _I.S_CLOSE_ERROR)
        self.send(0, Close(error=error))
        self.output.close()

    def count_refusal(self, error: Error, limit: str = "") -> None:
        """The peer is told this error: counts the limit that was met, else what its condition says."""
        if limit:
            self.settings.refusals.met(limit)
        else:
            self.settings.refusals.told(error.condition)

    def _fail(self, condition: str, description: str, limit: str = "") -> None:
        """Closes for an error: the peer is told if there is a connection to tell it on, and dropped."""
        error = Error(condition=condition, description=description)
        if self.state in (_S.HDR_EXCH, _S.OPEN_RCVD):
            # A close is never the first frame (2.4.1).
            self.send_open()
        if self.state in (_OPENED, _S.OPEN_SENT, _S.OPEN_PIPE):
            self.send_close(error, limit)
        else:
            self.count_refusal(error, limit)
        self.lose(error, local=True)

    def _refuse_silence(self) -> None:
        """No complete protocol header in time: tells what we would take (2.2)."""
        if self.settings.server:
            self.output.write(self.negotiation.acceptable_header())
        error = Error(
            condition=FRAMING_ERROR,
            description=f"no protocol header within {self.limits.header_timeout_s:g} s "
            f"(limits.header_timeout_ms)",
        )
        self.settings.refusals.met("header_timeout_ms")
        self.lose(error)

    def lose(self, error: Error | None, local: bool = True) -> None:
        """The end: every link, session and the connection are told once, and the transport is to be
        closed.
        """
        self.wants_close = True
        self._waiting = False
        self._slowed_until = None
        self.output.close()
        self.timers.stop()
        if self._closed_told:
            return
        self._closed_told = True
        self.owing.clear()
        self.step(_I.LOST)
        self._drop_sessions(error)
        self.events.tell(ConnectionClosed(error, local and error is not None))

    def closed_by_us(self) -> None:
        """The peer answered our close."""
        self.lose(self._close_error)

    def _drop_sessions(self, error: Error | None) -> None:
        if self.broken:  # what the peer held is known before what rolls back with its other links
            for session in list(self.sessions.values()):
                session.lose_senders(error)
        for session in list(self.sessions.values()):
            session.lost(error)
        self.sessions.clear()
        self.incoming.clear()
        self.leaving_at.clear()

    def _answer_overdue(self) -> None:
        """What has waited long enough is answered: no outcome comes any more."""
        for leaving, at in list(self.leaving_at.items()):
            if self.now < at or leaving not in self.leaving_at:
                continue
            if isinstance(leaving, Session):
                leaving.answer_end()
            elif isinstance(leaving, Connection):
                leaving.answer_close()
            else:
                leaving.answer_detach()

    def _drop_idle_partials(self) -> None:
        for link in list(self.partial_links):
            partial = link.partial
            if partial is None:
                self.partial_links.discard(link)
            elif self.now >= self._given_up_at(partial):
                link.session.link_failed(link, self._too_slow(partial))

    def _given_up_at(self, partial: PartialDelivery) -> float:
        """When an incomplete delivery has rested, or lasted, for too long."""
        limits = self.limits
        return min(partial.last_at + limits.partial_idle_s, partial.begun_at + limits.partial_total_s)

    def _too_slow(self, partial: PartialDelivery) -> RemoteProtocolError:
        limits = self.limits
        if self.now >= partial.last_at + limits.partial_idle_s:
            return link_error(
                RESOURCE_LIMIT_EXCEEDED,
                f"delivery {partial.delivery_id} did not go on for {limits.partial_idle_s:g} s "
                f"(limits.partial_idle_ms)",
                "partial_idle_ms",
            )
        return link_error(
            RESOURCE_LIMIT_EXCEEDED,
            f"delivery {partial.delivery_id} is not complete {limits.partial_total_s:g} s after its first "
            f"transfer (limits.partial_total_ms)",
            "partial_total_ms",
        )
