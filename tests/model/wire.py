"""The clients of the machine on the wire: what the broker says is kept in its order, and a link
that it ends with an error is no failure of the test.
"""

from __future__ import annotations

from typing import Literal

from amqp_broker.frames import RECEIVER, Begin, Detach, Disposition, Error
from amqp_broker.testing.peer import PeerLink, PeerSession, ids_of
from tests.support.jumping_broker import JumpingBroker, JumpingPeer


class Said:
    """One thing that the broker said of a delivery: the sender's word that it is settled (`settled`), or an
    outcome for what was sent (`outcome`). `at` counts on through the life of the connection.
    """

    __slots__ = ("at", "delivery_id", "kind", "link", "settled", "state")

    def __init__(
        self,
        kind: Literal["settled", "outcome"],
        link: PeerLink,
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


class RecordingConnection(JumpingPeer):
    """`said` is what the broker said of deliveries on all sessions, `ended` are the links that it ended."""

    def __init__(self, broker: JumpingBroker) -> None:
        super().__init__(broker)
        self.said: list[Said] = []
        self.ended: list[tuple[PeerLink, Error]] = []
        self._said = 0

    def make_session(self, channel: int, begin: Begin) -> PeerSession:
        """One that records."""
        return RecordingSession(self, channel, begin)

    def record(self, session: PeerSession, disposition: Disposition) -> None:
        """Keep what the broker said of deliveries that are not settled."""
        for number in ids_of(disposition):
            sent = disposition.role == RECEIVER
            link = (session.sent_unsettled if sent else session.received_unsettled).get(number)
            if link is not None:
                self._said += 1
                settled = bool(disposition.settled)
                kind: Literal["settled", "outcome"] = "outcome" if sent else "settled"
                self.said.append(Said(kind, link, number, disposition.state, settled, self._said))

    def failed(self, scope: str, error: Error, link: PeerLink | None = None) -> None:
        """A link that ends is answered, and its deliveries are forgotten; all else is a failure."""
        if link is None:
            super().failed(scope, error, link)
            return
        self.ended.append((link, error))
        session = link.session
        if not link.detach_sent:
            session.put(Detach(handle=link.handle, closed=True))
        for unsettled in (session.sent_unsettled, session.received_unsettled):
            for number in [number for number, each in unsettled.items() if each is link]:
                del unsettled[number]


class RecordingSession(PeerSession):
    """One session of such a connection."""

    def __init__(self, connection: RecordingConnection, channel: int, begin: Begin) -> None:
        super().__init__(connection, channel, begin)
        self._recording = connection

    def on_disposition(self, disposition: Disposition) -> None:
        """Recorded before it is counted."""
        self._recording.record(self, disposition)
        super().on_disposition(disposition)
