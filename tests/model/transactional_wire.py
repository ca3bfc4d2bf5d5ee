"""The clients of the transactional machine on the wire: what the broker says is kept in its order, and a link
that it ends with an error is no failure of the test.
"""

from __future__ import annotations

import socket
from typing import Any, Literal

from amqp_broker.frames import (
    RECEIVER,
    Attach,
    Begin,
    Detach,
    Disposition,
    Error,
    Flow,
    Source,
    Target,
    TransactionalState,
    Transfer,
    encode_frame,
)
from tests.support.wire_client import WINDOW, WireConnection, WireReceiver, WireSender, WireSession
from tests.support.wire_links import SERIAL


class Said:
    """One thing that the broker said of a delivery: the sender's word that it is settled (`settled`), or an
    outcome for what was sent (`outcome`). `at` counts on through the life of the connection.
    """

    __slots__ = ("at", "delivery_id", "kind", "link", "settled", "state")

    def __init__(
        self,
        kind: Literal["settled", "outcome"],
        link: WireSender | WireReceiver,
        delivery_id: int,
        state: object,
        settled: bool,
        at: int,
    ) -> None:
        self.kind = kind
        self.link = link
        self.delivery_id = delivery_id
        self.state = state
        self.settled = settled
        self.at = at

    def __repr__(self) -> str:
        return f"<{self.kind} {self.link.name} {self.delivery_id} {self.state!r:.80}>"


class StatefulReceiver(WireReceiver):
    """A receiving link that keeps with which state each delivery came."""

    def __init__(self, session: WireSession, name: str, handle: int) -> None:
        super().__init__(session, name, handle)
        self.states: dict[int, object] = {}

    @property
    def midway(self) -> bool:
        """A delivery has begun to arrive."""
        return self._partial is not None

    def transfer(self, transfer: Transfer, payload: bytes) -> None:
        """One transfer frame of the peer."""
        if transfer.delivery_id is not None and transfer.delivery_id not in self.states:
            self.states[transfer.delivery_id] = transfer.state
        super().transfer(transfer, payload)


class RecordingConnection(WireConnection):
    """`said` is what the broker said of deliveries on all sessions, `ended` are the links that it ended."""

    def __init__(self, transport: socket.socket, timeout: float) -> None:
        super().__init__(transport, timeout)
        self.said: list[Said] = []
        self.ended: list[tuple[WireSender | WireReceiver, Error]] = []
        self._said = 0

    def say(
        self,
        kind: Literal["settled", "outcome"],
        link: WireSender | WireReceiver,
        delivery_id: int,
        state: object,
        settled: bool,
    ) -> None:
        """Keep one thing that the broker said."""
        self._said += 1
        self.said.append(Said(kind, link, delivery_id, state, settled, self._said))

    def begin(self) -> RecordingSession:
        """Begin a session and wait for the answer."""
        session = RecordingSession(self, max(self.sessions, default=-1) + 1)
        self.sessions[session.channel] = session
        begin = Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW, handle_max=1023)
        self.put(encode_frame(session.channel, begin))
        self.pump_until(lambda: session.remote_begin is not None)
        return session


class RecordingSession(WireSession):
    """One session of such a connection."""

    def __init__(self, connection: RecordingConnection, channel: int) -> None:
        super().__init__(connection, channel)
        self._recording = connection

    def attach_consumer(
        self, name: str, queue: str, *, settled: bool, browser: bool, default: Any,
        outcomes: tuple[str, ...],
    ) -> StatefulReceiver:  # fmt: skip
        """A receiving link, with the default outcome that it wants, and the outcomes that it may give."""
        link = StatefulReceiver(self, name, max(self.links, default=-1) + 1)
        source = Source(
            address=queue, distribution_mode="copy" if browser else None, default_outcome=default,
            outcomes=outcomes,
        )  # fmt: skip
        attach = Attach(
            name=link.name, handle=link.handle, role=RECEIVER, snd_settle_mode=1 if settled else 2,
            source=source, target=Target(),
        )  # fmt: skip
        self._attach(link, attach)
        return link

    def handle(self, performative: object, payload: bytes) -> None:
        """One frame of the peer on this session."""
        if isinstance(performative, Detach) and performative.error is not None:
            self._ended(performative, performative.error)
            return
        if isinstance(performative, Disposition):
            self._record(performative)
        super().handle(performative, payload)

    def _ended(self, detach: Detach, error: Error) -> None:
        link = self.by_remote_handle.pop(detach.handle)
        link.detached = detach
        self._recording.ended.append((link, error))
        if self.links.pop(link.handle, None) is not None:
            self.put(Detach(handle=link.handle, closed=True))
        self.senders = {number: each for number, each in self.senders.items() if each is not link}
        self.receivers = {number: each for number, each in self.receivers.items() if each is not link}

    def _record(self, disposition: Disposition) -> None:
        last = disposition.first if disposition.last is None else disposition.last
        for number in range(disposition.first, disposition.first + (last - disposition.first) % SERIAL + 1):
            settled = bool(disposition.settled)
            sender = self.senders.get(number % SERIAL)
            receiver = self.receivers.get(number % SERIAL)
            if disposition.role == RECEIVER and sender is not None:
                self._recording.say("outcome", sender, number % SERIAL, disposition.state, settled)
            elif disposition.role != RECEIVER and receiver is not None:
                self._recording.say("settled", receiver, number % SERIAL, disposition.state, settled)

    def begin_post(self, link: WireSender, payload: bytes, txn_id: bytes) -> int:
        """The first transfer of a post in a transaction, with more to come; returns its delivery-id."""
        number = self.next_delivery_id
        self.next_delivery_id = (number + 1) % SERIAL
        link.delivery_count = (link.delivery_count + 1) % SERIAL
        link.credit -= 1
        self.senders[number] = link
        tag = number.to_bytes(4, "big")
        state = TransactionalState(txn_id=txn_id)
        transfer = Transfer(
            handle=link.handle, delivery_id=number, delivery_tag=tag, message_format=0, more=True, state=state
        )
        self._put_transfer(transfer, payload)
        return number

    def end_post(self, link: WireSender, number: int, payload: bytes, *, aborted: bool) -> None:
        """The last transfer of such a post, or its abort."""
        self._put_transfer(Transfer(handle=link.handle, aborted=aborted), b"" if aborted else payload)
        if aborted:
            self.senders.pop(number, None)

    def _put_transfer(self, transfer: Transfer, payload: bytes) -> None:
        self.put(transfer, payload)
        self.next_outgoing_id = (self.next_outgoing_id + 1) % SERIAL
        self.remote_window -= 1

    def flow_for_one_frame(self, link: WireReceiver, txn_id: bytes) -> None:
        """Credit for one delivery in a transaction, and a window for one frame of it."""
        link.credit = 1
        link.drain = False
        self.put(
            Flow(
                next_incoming_id=self.next_incoming_id,
                incoming_window=1,
                next_outgoing_id=self.next_outgoing_id,
                outgoing_window=WINDOW,
                handle=link.handle,
                delivery_count=link.delivery_count,
                link_credit=1,
                properties={"txn-id": txn_id},
            )
        )
