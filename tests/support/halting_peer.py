"""A peer that sends one frame for each read of its client, so that a client which stops too early is seen.

    connection = HaltingPeer(["first", "last"])      a BlockingPeer without a transport
    receiver = connection.begin().attach_receiver("r", "q")
    receiver.drain_all(10)

Each unit of credit gets a message as long as there are some; the last message for a flow comes in two frames,
and between them the peer says that a drain is over (2.6.7).
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, cast

from amqp_broker.frames import (
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    Flow,
    Frame,
    Open,
)
from amqp_broker.testing.blocking_peer import BlockingPeer, ConnectionLost
from amqp_broker.testing.peer import MAX_FRAME_SIZE, Peer, PeerSender, PeerSession

CREDIT: Final = 100
WINDOW: Final = 2_048


class HaltingPeer(BlockingPeer):
    """A client's connection and its other side at once. When nothing more is to be read, the transport is
    gone.
    """

    def __init__(self, messages: Iterable[bytes], *, settled: bool = False, txn_id: bytes = b"") -> None:
        super().__init__(cast(socket.socket, None))
        self.remote_open = Open(container_id="halting", max_frame_size=MAX_FRAME_SIZE)
        self._other = OtherSide(deque(messages), settled, txn_id or None)

    def flush(self) -> None:
        """Answer what was put."""
        self._other.feed(self.take())
        while self._other.received() is not None:
            pass

    def abort(self) -> None:
        """There is no transport."""

    def _read(self, timeout: float) -> bytes | None:
        if not self._other.output:
            raise ConnectionLost("the peer has said everything")
        return self._other.output.pop(0)


class OtherSide(Peer):
    """Answers each frame; its links are those that the client attached."""

    checks_credit = False

    def __init__(self, messages: deque[bytes], settled: bool, txn_id: bytes | None) -> None:
        super().__init__()
        self._messages = messages
        self._settled = settled
        self._txn_id = txn_id

    def on_frame(self, frame: Frame) -> None:
        """Answer one frame of the client."""
        performative = frame.performative
        if isinstance(performative, Begin):
            windows: dict[str, Any] = {"incoming_window": WINDOW, "outgoing_window": WINDOW}
            self.put(Begin(remote_channel=frame.channel, next_outgoing_id=0, **windows), b"", frame.channel)
            return
        session = self.sessions[frame.channel]
        if isinstance(performative, Attach):
            ours = SENDER if performative.role == RECEIVER else RECEIVER
            count = 0 if ours == SENDER else None
            name, handle, source = performative.name, performative.handle, performative.source
            terms: dict[str, Any] = {"source": source, "target": performative.target}
            session.put(Attach(name=name, handle=handle, role=ours, initial_delivery_count=count, **terms))
            if ours == RECEIVER:
                session.flow(session.links[handle], link_credit=CREDIT)
        elif isinstance(performative, Detach):
            session.put(Detach(handle=performative.handle, closed=performative.closed))
        elif isinstance(performative, Disposition) and not performative.settled:
            first, last = performative.first, performative.last
            session.put(Disposition(role=SENDER, first=first, last=last, settled=True, state=Accepted()))
        elif isinstance(performative, Flow) and performative.handle is not None:
            self._send(session, performative)

    def _send(self, session: PeerSession, flow: Flow) -> None:
        """What a link is given for its credit; what is left of a drain goes back before the last frame."""
        assert flow.handle is not None
        link = session.links[flow.handle]
        assert isinstance(link, PeerSender)
        credit = flow.link_credit or 0
        payloads = [self._messages.popleft() for _ in range(min(credit, len(self._messages)))]
        over = {"delivery_count": (flow.delivery_count or 0) + credit, "link_credit": 0}
        goes_back = bool(flow.drain) and len(payloads) < credit
        for payload in payloads[:-1]:
            link.send(payload, settled=self._settled, txn_id=self._txn_id)
        for payload in payloads[-1:]:
            link.send(payload[:9], settled=self._settled, txn_id=self._txn_id, more=True)
        if goes_back:
            session.flow(link, **over)
        for payload in payloads[-1:]:
            link.send_more(payload[9:])
