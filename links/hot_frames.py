"""Runs of transfers, dispositions and flows, as `frames` reads them straight from the reader's buffer.

Everything that is not certain is left to the general way, which starts at the same byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from amqp_broker.frames.hot_frames import HotFrames, TransferLayout
from amqp_broker.links.errors import RemoteProtocolError
from amqp_broker.links.link_states import LinkState
from amqp_broker.links.receiver_link import ReceiverLink
from amqp_broker.links.session_frames import disposition_received, flow_received, transfer_received
from amqp_broker.links.session_states import SessionState

if TYPE_CHECKING:
    from amqp_broker.frames.hot_frames import FlowHead, TransferHead
    from amqp_broker.links.connection import Connection
    from amqp_broker.links.session import Session

_ATTACHED = LinkState.ATTACHED
_MAPPED = SessionState.MAPPED


class HotReading(HotFrames):
    """What a connection does with its hot frames."""

    __slots__ = ("_connection", "_session", "run_link")
    __deletable__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._session: Session | None = None
        """The session of the last frame that was taken."""
        self.run_link: ReceiverLink | None = None
        """The link of the last transfer: the next one is probably for it, too."""

    def let_go(self) -> None:
        """Nothing is read any more."""
        self._session = self.run_link = None
        del self._connection

    def read(self) -> None:
        """Reads hot frames until one comes that is not, or more bytes are needed. Raises like the general
        way.
        """
        connection = self._connection
        while True:
            if self.run_link is not None:
                self._read_runs(self.run_link)
                if connection.reader.go_on():
                    self._read_runs(self.run_link)  # behind a frame that came in two pieces
            try:
                if not self.read_next(connection.reader):
                    return
            except RemoteProtocolError as error:
                assert self._session is not None, "only what a session takes fails it"
                connection.session_failed(self._session, error)
            connection.timers.last_received = connection.now

    def _find(self, channel: int) -> Session | None:
        session = self._connection.incoming.get(channel)
        if session is None or session.state is not _MAPPED:
            return None
        self._session = session
        return session

    def _read_runs(self, link: ReceiverLink) -> None:
        """Reads the transfers that come next, of `link` and of others on its session, as long as each looks
        like the last one of its link. For many queues a run is one message: the session counts all runs
        together.
        """
        session = link.session
        if session.state is not _MAPPED:
            return
        connection = self._connection
        reader = connection.reader
        input_links = session.input_links
        window = session.window
        begun = first = session.next_delivery
        end = first + window.incoming_window
        read: ReceiverLink | None = None
        while (layout := link.layout) is not None:
            following = input_links.get(layout.next_handle(reader))
            if following is read or not isinstance(following, ReceiverLink):
                break
            if following is not link:
                self.run_link = link = following
                if (layout := link.layout) is None:
                    break
            first += self._read_run(link, layout, first, end - first)
            read = link
        count = first - begun
        if count:
            connection.timers.last_received = connection.now
            session.next_delivery = first
            window.received(count)
            session.held += count
            session.mark_read()

    def _read_run(self, link: ReceiverLink, layout: TransferLayout, first: int, most: int) -> int:
        """Reads the transfers of `link` that look like its last one, as many as credit allows, and at most so
        many; the first one's number is `first`. How many they were.
        """
        flow = link.flow_state
        events = self._connection.events
        reader = self._connection.reader
        limit = min(most, flow.allowed - flow.delivery_count)
        if limit <= 0 or link.partial is not None or link.state is not _ATTACHED:
            return 0
        if len(reader.data) - reader.position < layout.head_bytes:
            return 0
        deliveries = events.deliveries_of(link)
        count = layout.read_run(reader, first & 0xFFFFFFFF, limit, link.max_message_size, deliveries)
        if not count:
            events.drop_empty_run()
        elif layout.settled:
            flow.received(count, 0)
        else:
            flow.received(count, count)
            link.session.unsettled_in.add(first, first + count - 1, link)
        return count

    def on_transfer(
        self, channel: int, head: TransferHead, payload: bytes, state: object, start: int
    ) -> bool:
        """One transfer, field by field; what it looks like is remembered for the next ones."""
        session = self._find(channel)
        if session is None:
            return False
        link = transfer_received(session, head, payload, state)
        self.run_link = link
        if link is not None:
            mode = link.rcv_settle_mode if head.rcv_settle_mode < 0 else head.rcv_settle_mode
            link.layout = TransferLayout.learn(self._connection.reader.data, start, head, mode, state)
        return True

    def on_disposition(
        self, channel: int, role: bool, first: int, last: int, settled: bool, state: object
    ) -> bool:
        """A disposition."""
        session = self._find(channel)
        if session is None:
            return False
        disposition_received(session, role, first, last, settled, state)
        return True

    def on_flow(self, channel: int, flow: FlowHead) -> bool:
        """A flow."""
        session = self._find(channel)
        if session is None:
            return False
        flow_received(session, flow, None)
        return True
