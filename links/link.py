"""What both kinds of link endpoint have in common: attaching, detaching, and the answer to an attach
(2.6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from amqp_broker.frames import RECEIVER, Attach, Detach, Error, encode_frame, encode_state
from amqp_broker.links.errors import ILLEGAL_STATE, LocalProtocolError, session_error
from amqp_broker.links.events import LinkDetached
from amqp_broker.links.link_states import LINK_TABLE, LinkInput, LinkState

if TYPE_CHECKING:
    from amqp_broker.links.deliveries import OutgoingDelivery
    from amqp_broker.links.receiver_link import ReceiverLink
    from amqp_broker.links.sender_link import SenderLink
    from amqp_broker.links.session import Session

_ATTACHED = LinkState.ATTACHED
_DETACHED = LinkState.DETACHED
MAP_ROOM_BYTES: Final = 16  # for longer sizes in front of the list and the map than those of empty ones


class Link:
    """One end of a link. `role` is ours. `source` and `target` are those of the peer's attach until we answer
    it.

    `context` belongs to the caller; the engine never looks at it.
    """

    def __init__(self, session: Session, name: str, handle: int, role: bool) -> None:
        self.session = session
        self.name = name
        self.role = role
        self.handle = handle
        """Our handle (the output handle, 2.6.2); -1 without one."""
        self.input_handle = -1
        """The peer's handle; -1 without one."""
        self.state = LinkState.DETACHED
        self.source: Any = None
        self.target: Any = None
        self.snd_settle_mode = 2
        self.rcv_settle_mode = 0
        self.remote_attach: Attach | None = None
        self.max_message_size = 0
        """Ours, in octets; 0 is none."""
        self.end_told = True
        """Whether the caller knows of this link's end, or was never told of the link."""
        self.leaving: Detach | None = None
        """The peer's detach, while our answer waits: for outcomes of what came before, or for the caller."""
        self.closes_later = False
        """Whether the caller says with `answer_detach` when a detach that closes is answered, since what it
        ends has to be stored before. LinkDetached comes at once.
        """
        self.unsettled_map: dict[bytes, Any] | None = None
        """What our attach says is unsettled of a link that is resumed (2.7.3); None: it is a new one."""
        self.incomplete = False
        """Whether our attach says that this is not all: it had no room for that."""
        self.context: Any = None

    @property
    def attached(self) -> bool:
        """Both sides attached and none has detached."""
        return self.state is _ATTACHED

    def __repr__(self) -> str:
        kind = "ReceiverLink" if self.role == RECEIVER else "SenderLink"
        return f"<{kind} {self.name[:64]!r} handle {self.handle} {self.state.value}>"

    # --- the caller's answers

    def accept(
        self,
        source: Any = None,
        target: Any = None,
        offered_capabilities: tuple[str, ...] | None = None,
        properties: dict[str, Any] | None = None,
        max_message_size: int | None = None,
        credit: int = 0,
        unsettled: dict[bytes, Any] | None = None,
    ) -> None:
        """Answers an AttachReceived. Termini that are not given are those of the peer. `max_message_size` and
        `credit`, the level to keep, are what a receiver says; a sending link uses neither. `unsettled` is
        what a link that is resumed has unsettled here, by delivery-tag.

        Nothing happens when the link is gone meanwhile. Raises LocalProtocolError when it was answered
        already.
        """
        if self._gone_unanswered():
            return
        if source is not None:
            self.source = source
        if target is not None:
            self.target = target
        self.limit_messages(max_message_size)
        self.end_told = False
        self.unsettled_map = unsettled
        self.send_attach(offered_capabilities, properties)
        self.accepted(credit)
        self.session.connection.answered()

    def limit_messages(self, max_message_size: int | None) -> None:
        """How large a message may be, for a link on which we receive."""

    def accepted(self, credit: int) -> None:
        """Our attach is out."""

    def refuse(self, error: Error, limit: str = "") -> None:
        """Answers an AttachReceived with an attach without our terminus and a closing detach (2.6.3).

        Nothing happens when the link is gone meanwhile. Raises LocalProtocolError when it was answered
        already.
        """
        if self._gone_unanswered():
            return
        if self.role == RECEIVER:
            self.target = None
        else:
            self.source = None
        self.send_attach(None, None)
        self._send_detach(True, error, limit)
        self.session.connection.answered()

    def detach(self, error: Error | None = None, closed: bool = True) -> None:
        """Detaches the link (2.6.6); LinkDetached comes at once, and nothing when the peer answers.

        Nothing happens when the link is gone already. A detach of the peer whose answer waits is answered
        now, with `error`.

        Raises LocalProtocolError when the attach is not answered yet.
        """
        if self.leaving is not None:
            self.answer_detach(error)
            return
        if self.state is _DETACHED or self.state in (LinkState.DETACH_SENT, LinkState.DISCARDING):
            return
        if self.state is not _ATTACHED:
            raise LocalProtocolError(f"cannot detach {self!r}: its attach has not been answered yet")
        self.settle_deferred()
        self._send_detach(closed, error)
        self._end(closed, error)

    def settle_deferred(self) -> None:
        """Tells outcomes that wait, before the end of the link; a sender has none."""

    # --- for the session

    def attach_received(self, attach: Attach) -> None:
        """The peer's attach: what it says is known from here on."""
        self._receive(LinkInput.R_ATTACH)
        self.remote_attach = attach
        self.input_handle = attach.handle

    def on_attach(self, attach: Attach, ours: bool) -> None:
        """The peer's attach; `ours` tells that it answers ours."""
        self.attach_received(attach)

    def detach_received(self, detach: Detach) -> None:
        """The peer's detach: answers if it came first, and tells the caller unless it knows.

        What the peer sent before it may still be on its way to an outcome. A detach that went out now would
        be the last word on it, so a server's answer waits (`answer_detach`), for a bounded time.
        """
        initiated = self.state is _ATTACHED
        self.settle_deferred()
        self._receive(LinkInput.R_DETACH)
        self.session.release_input_handle(self)
        if initiated and self.session.settings.server and self.undecided():
            self.tell_leaving()
            self.leaving = detach
            self.session.connection.wait_for_outcomes(self)
            return
        if initiated and detach.closed and self.closes_later:
            self.leaving = detach
            self._end(detach.closed, detach.error)
            self.session.connection.wait_for_outcomes(self)
            return
        if initiated:
            self._send_detach(detach.closed, None)
        self.session.release_handle(self)
        self._end(detach.closed, detach.error)

    def undecided(self) -> bool:
        """Whether the peer still waits for an outcome of something that it sent; never on a link on which we
        send. What is incomplete is given up: the rest of it will not come.
        """
        return False

    def tell_leaving(self) -> None:
        """Tells the caller, once, that the peer has left and our answer waits; a sender's never does."""

    def answer_detach(self, error: Error | None = None) -> None:
        """Sends the answer that waited, and tells the caller of the end if it does not know."""
        detach = self.leaving
        assert detach is not None, "only a detach that waits is answered"
        self.settle_deferred()
        if self.leaving is None:
            return  # that was the last outcome, and the answer went out after it
        self.leaving = None
        self._send_detach(detach.closed, error)
        self._end(detach.closed, detach.error)

    def fail(self, error: Error, limit: str = "") -> None:
        """A link error of the peer (2.6.5): detaches, closed, and tells the caller at once."""
        self.settle_deferred()
        self._send(LinkInput.S_DETACH_ERROR)
        self.session.connection.count_refusal(error, limit)
        self.session.send(Detach(handle=self.handle, closed=True, error=error))
        self._end(True, error)

    def lost(self, error: Error | None) -> None:
        """The session is gone."""
        self.state = LinkState.DETACHED
        self.leaving = None
        self._end(False, error)

    # --- parts

    def _end(self, closed: bool, error: Error | None) -> None:
        """Forgets all deliveries and tells the caller, once."""
        connection = self.session.connection
        connection.forget_link(self)
        unsettled = self._drop()
        if not self.end_told:
            self.end_told = True
            connection.events.tell(
                LinkDetached(
                    cast("ReceiverLink | SenderLink", self), closed, error, unsettled, connection.broken
                )
            )
        self.session.link_ended(self)

    def _drop(self) -> list[OutgoingDelivery]:
        """Forgets all deliveries; what a sender had unsettled is the answer."""
        return []

    def _gone_unanswered(self) -> bool:
        """Whether session or connection went before the attach was answered."""
        if self.state is LinkState.DETACHED and self.end_told:
            return True
        if self.state is not LinkState.ATTACH_RCVD:
            raise LocalProtocolError(f"{self!r} does not wait for an answer to its attach")
        return False

    def send_attach(self, offered: tuple[str, ...] | None, properties: dict[str, Any] | None) -> None:
        self._send(LinkInput.S_ATTACH)
        remote = self.remote_attach
        # Who resumes a link of which we have nothing gets an empty map, and sends again what it has unsettled
        # (2.6.13, "deliveries that only the source considers unsettled").
        resumed = remote is not None and remote.unsettled is not None
        attach = Attach(
            name=self.name,
            handle=self.handle,
            role=self.role,
            snd_settle_mode=self.snd_settle_mode,
            rcv_settle_mode=self.rcv_settle_mode,
            source=self.source,
            target=self.target,
            unsettled={} if resumed else None,
            initial_delivery_count=self._initial_delivery_count(),
            max_message_size=self.max_message_size or None,
            offered_capabilities=offered,
            properties=properties,
        )
        if self.unsettled_map:
            self._tell_unsettled(attach, self.unsettled_map)
        self.session.send(attach)

    def _tell_unsettled(self, attach: Attach, unsettled: dict[bytes, Any]) -> None:
        """As much of the map as a frame of the peer has room for: "The endpoint SHOULD make use of the
        ability to send an incomplete unsettled map" (2.7.3).
        """
        room = self.session.connection.remote_max_frame_size
        room -= len(encode_frame(self.session.channel, attach)) + MAP_ROOM_BYTES
        told: dict[bytes, Any] = {}
        for delivery_tag, state in unsettled.items():
            room -= len(delivery_tag) + 2 + max(1, len(encode_state(state)))
            if room < 0:
                self.incomplete = True
                break
            told[delivery_tag] = state
        attach.unsettled, attach.incomplete_unsettled = told, self.incomplete

    def _initial_delivery_count(self) -> int | None:
        return None

    def _send_detach(self, closed: bool, error: Error | None, limit: str = "") -> None:
        self._send(LinkInput.S_DETACH)
        if error is not None:
            self.session.connection.count_refusal(error, limit)
        self.session.send(Detach(handle=self.handle, closed=closed, error=error))
        if self.state is _DETACHED:
            self.session.release_handle(self)

    def _receive(self, what: LinkInput) -> None:
        following = LINK_TABLE[self.state][what]
        if following is None:
            raise session_error(
                ILLEGAL_STATE, f"{what.value} on link {self.name[:64]!r} in state {self.state.value}"
            )
        self.state = following

    def _send(self, what: LinkInput) -> None:
        following = LINK_TABLE[self.state][what]
        if following is None:
            raise LocalProtocolError(f"cannot do {what.value} on {self!r}")
        self.state = following
