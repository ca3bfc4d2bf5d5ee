"""A session: windows, delivery-ids, handles, and the frames that belong to its links (2.5, 2.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from amqp_broker.frames import RECEIVER, Attach, Begin, End, Error, encode_state
from amqp_broker.frames.hot_frames import Delivery, encode_disposition, encode_flow
from amqp_broker.links.dispositions import runs_of
from amqp_broker.links.errors import (
    ILLEGAL_STATE,
    INVALID_FIELD,
    STOLEN,
    LocalProtocolError,
    RemoteProtocolError,
    Scope,
    connection_error,
    session_error,
)
from amqp_broker.links.events import SessionEnded
from amqp_broker.links.link import Link
from amqp_broker.links.link_states import LinkState
from amqp_broker.links.lowest_free import LowestFree
from amqp_broker.links.receiver_link import ReceiverLink
from amqp_broker.links.sender_link import SenderLink
from amqp_broker.links.session_frames import HANDLERS, lose_work
from amqp_broker.links.session_states import SESSION_TABLE, SessionInput, SessionState
from amqp_broker.links.unsettled_ranges import UnsettledRanges
from amqp_broker.links.windows import OUTGOING_WINDOW, SessionWindow

if TYPE_CHECKING:
    from amqp_broker.links.connection import Connection
    from amqp_broker.links.deliveries import OutgoingDelivery

_MAPPED = SessionState.MAPPED
_ATTACHED = LinkState.ATTACHED
_WRITABLE: Final = (SessionState.MAPPED, SessionState.BEGIN_SENT)
PRESSED_WINDOW: Final = 16
"""Frames, while the connection should bring no more messages: requests and discharges go on."""


class Session:
    """One session endpoint. `context` belongs to the caller."""

    def __init__(self, connection: Connection, channel: int) -> None:
        self.connection = connection
        self.output = connection.output
        self.settings = connection.settings
        self.limits = connection.settings.limits
        self.partial_bytes = connection.settings.partial_bytes
        self.account = connection.settings.account
        self.channel = channel
        """Our channel (outgoing)."""
        self.remote_channel = -1
        self.state = SessionState.UNMAPPED
        self.window = SessionWindow(self.limits.unsettled_per_session, self.settings.next_outgoing_id)
        self.next_delivery = -1
        """Number of the next incoming delivery; -1 before the first, whose delivery-id starts the
        sequence.
        """
        self.next_outgoing_delivery = self.settings.next_outgoing_id
        self.unsettled_in = UnsettledRanges()
        self.unsettled_out: dict[int, OutgoingDelivery] = {}
        self.held = 0
        """Incoming deliveries that the caller is not done with."""
        self.blocked: list[SenderLink] = []
        """Links that are held up by more than credit."""
        self.input_links: dict[int, Link] = {}
        self.output_links: dict[int, Link] = {}
        self._handles = LowestFree()
        self._unanswered = 0
        # Of our attaches: a broker sends none, and need not look for them.
        self.read = False
        """Whether something came in the read that goes on."""
        self.remote_handle_max = 0xFFFFFFFF
        self.echo_due = False
        self.end_told = False
        self.leaving: End | None = None
        """The peer's end, while our answer waits for outcomes of what it sent before."""
        self._owing: set[Link] = set()
        # The links for which it waits.
        self.context: Any = None

    def __repr__(self) -> str:
        return f"<Session channel {self.channel}/{self.remote_channel} {self.state.value}>"

    # --- the caller's side

    def end(self, error: Error | None = None) -> None:
        """Ends the session (2.5.2); SessionEnded comes at once, and nothing when the peer answers.

        Nothing happens when it is ending already. An end of the peer whose answer waits is answered now, with
        `error`.

        Raises LocalProtocolError when our begin is not answered yet.
        """
        if self.leaving is not None:
            self.answer_end(error)
            return
        if self.state in (SessionState.UNMAPPED, SessionState.END_SENT, SessionState.DISCARDING):
            return
        self.settle_deferred()
        self._send_end(error)
        self.drop(error)

    def attach_sender(self, name: str, source: Any = None, target: Any = None, **fields: Any) -> SenderLink:
        """Attaches a link on which we send; `fields` are `snd_settle_mode`, `rcv_settle_mode` and
        `properties`.

        LinkAttached follows. Raises LocalProtocolError when no handle is left.
        """
        link = SenderLink(self, name, self.free_handle())
        self._attach(link, source, target, fields)
        return link

    def attach_receiver(
        self, name: str, source: Any = None, target: Any = None, credit: int = 0, **fields: Any
    ) -> ReceiverLink:
        """Attaches a link on which we receive, with a level of `credit` to keep; `fields` as for
        `attach_sender`.
        """
        link = ReceiverLink(self, name, self.free_handle())
        link.max_message_size = self.limits.max_message_bytes
        link.flow_state.target = credit
        self._attach(link, source, target, fields)
        return link

    def _attach(self, link: Link, source: Any, target: Any, fields: dict[str, Any]) -> None:
        if self.state not in (SessionState.BEGIN_SENT, _MAPPED):
            raise LocalProtocolError(f"cannot attach on {self!r}")
        link.source = source
        link.target = target
        link.snd_settle_mode = fields.pop("snd_settle_mode", 2)
        link.rcv_settle_mode = fields.pop("rcv_settle_mode", 0)
        properties = fields.pop("properties", None)
        assert not fields, f"unknown fields {sorted(fields)}"
        self.output_links[link.handle] = link
        self._unanswered += 1
        self.connection.link_count += 1
        link.end_told = False
        link.send_attach(None, properties)

    def free_handle(self) -> int:
        """The lowest handle that is free (2.7.3). Raises LocalProtocolError."""
        handle = self._handles.find(self.output_links)
        if handle > min(self.remote_handle_max, self.handle_max):
            raise LocalProtocolError(
                f"no handle is left: the session has {len(self.output_links)} links, handle-max of the "
                f"peer is {self.remote_handle_max}, ours is {self.handle_max} (limits.max_links_per_session)"
            )
        return handle

    @property
    def deliveries_sent(self) -> int:
        """So far, those that were resumed included."""
        return self.next_outgoing_delivery - self.settings.next_outgoing_id

    @property
    def handle_max(self) -> int:
        """Ours, announced and enforced (2.7.2)."""
        return min(self.settings.handle_max, self.limits.links_per_session - 1)

    # --- writing

    @property
    def writable(self) -> bool:
        """Both sides have begun, neither has ended, and the connection is not closed for writing."""
        return self.state is _MAPPED and not self.output.closed

    def send(self, performative: Any) -> None:
        """Writes one frame of a link; nothing once the session is ending."""
        if self.state not in _WRITABLE:
            return
        try:
            self.connection.send(self.channel, performative)
        except LocalProtocolError as error:
            # 2.8.15: the smallest encoding does not fit into a frame of the peer.
            self.end(Error(condition=error.condition, description=error.description))

    def send_flow(self, link: tuple[bytes, int] = (b"", 0)) -> None:
        """Writes a flow with our window as it is now, and about a link. Nothing for who has closed."""
        if self.state not in _WRITABLE or self.connection.leaving is not None:
            return
        window = self.window
        window.renew(self._held())
        self.output.write(
            encode_flow(
                self.channel,
                window.next_incoming_id & 0xFFFFFFFF if self.remote_channel >= 0 else -1,
                window.incoming_window,
                window.next_outgoing_id & 0xFFFFFFFF,
                OUTGOING_WINDOW,
                link[0],
                link[1],
            )
        )

    def send_disposition(self, role: bool, first: int, last: int, settled: bool, state: bytes) -> None:
        """Writes a disposition for the numbers `first` to `last`."""
        if self.state is _MAPPED or self.leaving is not None:
            self.output.write(
                encode_disposition(self.channel, role, first & 0xFFFFFFFF, last & 0xFFFFFFFF, settled, state)
            )

    def settle(self, runs: list[tuple[ReceiverLink, list[Delivery]]], state: Any) -> None:
        """Gives deliveries of several links the outcome `state`, as `ReceiverLink.settle` does: what is
        consecutive on the session is one disposition, whatever its links (2.7.6).
        """
        delivery_ids: list[int] = []
        for link, deliveries in runs:
            if not link.settles_first():
                link.settle(deliveries, state)
            elif link.may_settle():
                for delivery in deliveries:
                    delivery_ids.append(delivery.delivery_id)
        if delivery_ids:
            delivery_ids.sort()
            self.settle_first(delivery_ids, encode_state(state))

    def settle_first(self, delivery_ids: list[int], encoded: bytes) -> None:
        """Settles what of these is unsettled, in mode first: one disposition for each range."""
        runs = runs_of(delivery_ids, self.next_delivery)
        if len(runs) == 1:
            taken = self.unsettled_in.take(runs[0][0], runs[0][1])
            if len(taken) == 1:  # as it is nearly always
                begin, end, link = taken[0]
                link.forget_awaited(begin, end)
                self.send_disposition(RECEIVER, begin, end, True, encoded)
                link.count_settled(end - begin + 1)
                return
        else:
            taken = [each for first, last in runs for each in self.unsettled_in.take(first, last)]
        self._settle_ranges(taken, encoded)

    def _settle_ranges(self, taken: list[tuple[int, int, ReceiverLink]], encoded: bytes) -> None:
        """These ranges are not unsettled any more: what is consecutive is one disposition."""
        counts: dict[ReceiverLink, int] = {}
        begin = end = -1
        for first, last, link in taken:
            counts[link] = counts.get(link, 0) + last - first + 1
            link.forget_awaited(first, last)
            if first != end + 1:
                if end >= 0:
                    self.send_disposition(RECEIVER, begin, end, True, encoded)
                begin = first
            end = last
        if end >= 0:
            self.send_disposition(RECEIVER, begin, end, True, encoded)
        for link, count in counts.items():
            link.count_settled(count)

    def renew_window(self) -> None:
        """Sends a session flow when less than half of the incoming-window is left and more can be given."""
        window = self.window
        if window.incoming_window * 2 > window.capacity:  # as it is nearly always
            return
        if self.state is _MAPPED and window.renewable(self._held()):
            self.send_flow()

    def _held(self) -> int:
        held = max(self.held, self.unsettled_in.count)
        if self.account.pressed:
            held = max(held, self.window.capacity - PRESSED_WINDOW)
        return held

    def mark_read(self) -> None:
        """Something came that may want an answer at the end of the read (`after_read`)."""
        if not self.read:
            self.read = True
            self.connection.read_sessions.append(self)

    def after_read(self) -> None:
        """At the end of a read in which something came: answers echoes, once each, and renews the window."""
        self.read = False
        if self.state is not _MAPPED:
            return
        if self.echo_due:
            self.echo_due = False
            self.send_flow()
        self.renew_window()

    def wake_blocked(self) -> None:
        """Room was made: links that were held up by more than credit may send again."""
        if not self.blocked:
            return
        blocked, self.blocked = self.blocked, []
        for link in blocked:
            link.blocked = False
            link.wake()

    # --- for the connection

    def begin(self, reply_to: int) -> None:
        """Sends our begin; `reply_to` is the peer's channel that it answers, -1 for none."""
        self._send_state(SessionInput.S_BEGIN)
        window = self.window
        self.connection.send(
            self.channel,
            Begin(
                remote_channel=None if reply_to < 0 else reply_to,
                next_outgoing_id=window.next_outgoing_id & 0xFFFFFFFF,
                incoming_window=window.incoming_window,
                outgoing_window=OUTGOING_WINDOW,
                handle_max=self.handle_max,
            ),
        )

    def begin_received(self, begin: Begin, channel: int) -> None:
        """The peer's begin."""
        self._receive_state(SessionInput.R_BEGIN)
        self.remote_channel = channel
        self.remote_handle_max = begin.handle_max
        self.window.begun(begin.next_outgoing_id, begin.incoming_window)

    def end_received(self, end: End) -> None:
        """The peer's end: answers if it came first. As with a detach, a server's answer waits for the
        outcomes of what came before it, for a bounded time; links that owe none end at once.
        """
        initiated = self.state is _MAPPED
        self.settle_deferred()
        self._receive_state(SessionInput.R_END)
        if initiated and self.settings.server:
            owing = self.lose_decided(end.error)
            if owing:
                for link in owing:
                    link.tell_leaving()
                self._owing = set(owing)
                self.leaving = end
                self.connection.wait_for_outcomes(self)
                return
        if initiated:
            self._send_state(SessionInput.S_END)
            self.connection.send(self.channel, End())
        self.drop(end.error)

    def owed(self, link: Link) -> bool:
        """Whether our answer to the peer's detach, end or close waits for outcomes on this link."""
        return link.leaving is not None or link in self._owing or link in self.connection.owing

    def link_decided(self, link: Link) -> None:
        """The peer's end or close waits, and this link owes no outcome any more."""
        reason = self.connection.leaving if self.leaving is None else self.leaving
        assert reason is not None, "the peer has ended the session, or closed"
        self._lose_link(link, reason.error)

    def link_ended(self, link: Link) -> None:
        """A link is gone, by whoever's doing: was it the last one that the peer's end or close waits for?"""
        if self.leaving is not None:
            self._owing.discard(link)
            if not self._owing:
                self.answer_end()
        self.connection.link_ended(link)

    def answer_end(self, error: Error | None = None) -> None:
        """Sends the answer that waited, and tells the caller of the end."""
        end = self.leaving
        assert end is not None, "only an end that waits is answered"
        self.settle_deferred()
        if self.leaving is None:
            return  # those were the last outcomes, and the answer went out after them
        self.leaving = None
        self._send_end(error)
        self.connection.session_gone(self)
        self.drop(end.error)

    def lose_decided(self, error: Error | None) -> list[Link]:
        """The peer has ended the session, or closed: links that owe no outcome are gone at once. The
        others.
        """
        owing = []
        for link in list(self.output_links.values()):
            if link.undecided():
                owing.append(link)
            else:
                self._lose_link(link, error)
        return owing

    def _lose_link(self, link: Link, error: Error | None) -> None:
        self.release_handle(link)
        link.lost(error)

    def settle_deferred(self) -> None:
        """Tells the outcomes that wait on its links: it is about to end."""
        for link in self.output_links.values():
            link.settle_deferred()

    def fail(self, error: Error, limit: str = "") -> None:
        """A session error of the peer (2.5.4): ends, discards until its end, tells the caller at once."""
        self.settle_deferred()
        self._send_end(error, limit)
        self.drop(error)

    def _send_end(self, error: Error | None, limit: str = "") -> None:
        self._send_state(SessionInput.S_END if error is None else SessionInput.S_END_ERROR)
        if error is not None:
            self.connection.count_refusal(error, limit)
        self.connection.send(self.channel, End(error=error))

    def lost(self, error: Error | None) -> None:
        """The connection is gone."""
        self.state = SessionState.UNMAPPED
        self.leaving = None
        self.drop(error)

    def lose_senders(self, error: Error | None) -> None:
        """The connection is gone, and the links on which we send are told before all others."""
        for link in list(self.output_links.values()):
            if isinstance(link, SenderLink):
                link.lost(error)

    def drop(self, error: Error | None) -> None:
        """Forgets all links and tells the caller, once."""
        self._owing.clear()
        for link in list(self.output_links.values()):
            link.lost(error)
        self.connection.link_count -= len(self.output_links)
        self.output_links.clear()
        self.input_links.clear()
        self.blocked.clear()
        if not self.end_told:
            self.end_told = True
            self.connection.events.tell(SessionEnded(self, error))

    def frame_received(self, performative: Any, payload: bytes) -> None:
        """One frame of this session, decoded. Raises RemoteProtocolError for session and connection
        errors.
        """
        self._receive_state(SessionInput.R_FRAME)
        if self.state is not _MAPPED:
            lose_work(self, performative)
            return
        HANDLERS[type(performative)](self, performative, payload)

    # --- transfers

    def take_delivery_id(self, delivery_id: int, link: Link) -> int:
        """The number of a new incoming delivery. Raises a session error unless its delivery-id is the next
        one.
        """
        if delivery_id < 0:
            raise session_error(
                INVALID_FIELD,
                f"the first transfer of a delivery on link {link.name[:64]!r} has no delivery-id (2.7.5)",
            )
        expected = self.next_delivery
        if expected < 0:
            # Far from zero, so that numbers before the first one are never negative.
            expected = (1 << 32) + delivery_id
        elif delivery_id != expected & 0xFFFFFFFF:
            raise session_error(
                INVALID_FIELD,
                f"delivery-id {delivery_id}, but {expected & 0xFFFFFFFF} is the next one of this session",
            )
        self.next_delivery = expected + 1
        return expected

    def number_of(self, delivery_id: int) -> int:
        """The number of an incoming delivery that has come, by its delivery-id."""
        return self.next_delivery - ((self.next_delivery - delivery_id) & 0xFFFFFFFF)

    def link_failed(self, link: Link, error: RemoteProtocolError) -> None:
        """Detaches `link` for a link error; what is worse goes on up."""
        if error.scope is not Scope.LINK:
            raise error
        told = Error(condition=error.condition, description=error.description, info=error.info or None)
        link.fail(told, error.limit)

    # --- links

    def link_waiting_for(self, attach: Attach) -> Link | None:
        """Our link whose attach this one answers."""
        if self._unanswered:
            for link in self.output_links.values():
                if (
                    link.state is LinkState.ATTACH_SENT
                    and link.name == attach.name
                    and link.role != attach.role
                ):
                    self._unanswered -= 1
                    return link
        return None

    def release_handle(self, link: Link) -> None:
        """Both sides detached: the handles are free again."""
        self.release_input_handle(link)
        if self.output_links.get(link.handle) is link:
            del self.output_links[link.handle]
            self._handles.release(link.handle)
            self.connection.link_count -= 1

    def release_input_handle(self, link: Link) -> None:
        """The peer detached: it may use its handle for another link."""
        if self.input_links.get(link.input_handle) is link:
            del self.input_links[link.input_handle]

    def steal(self, link: Link) -> None:
        """Another attach with this link's name came: it is closed (2.6.1)."""
        link.fail(Error(condition=STOLEN, description=f"link {link.name[:64]!r} was attached elsewhere"))

    # --- states

    def _receive_state(self, what: SessionInput) -> None:
        following = SESSION_TABLE[self.state][what]
        if following is None:
            raise connection_error(
                ILLEGAL_STATE, f"{what.value} on channel {self.remote_channel} in state {self.state.value}"
            )
        self.state = following

    def _send_state(self, what: SessionInput) -> None:
        following = SESSION_TABLE[self.state][what]
        if following is None:
            raise LocalProtocolError(f"cannot do {what.value} on {self!r}")
        self.state = following
