"""A peer that writes frames by hand against one server engine, so that scenarios read like a transcript."""

from __future__ import annotations

from typing import Any

from amqp_broker.frames import (
    AMQP_HEADER,
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Close,
    Detach,
    End,
    Flow,
    FrameReader,
    Open,
    ProtocolHeader,
    Source,
    Target,
    Transfer,
    encode_frame,
)
from amqp_broker.links import (
    AttachReceived,
    Connection,
    ConnectionSettings,
    DeliveriesReceived,
    Delivery,
    Event,
    Limits,
    LinkDetached,
    ReceiverLink,
    SenderLink,
    Session,
    SessionEnded,
)
from amqp_broker.links.connection_states import ConnectionState
from tests.links.pair import NOW, of_type, taken

WINDOW = 2**31 - 1


class RawPeer:
    """The engine under test is `server`; `say` writes to it, `heard` are the performatives that it wrote.

    Attaches are accepted with `credit` and `max_message_size`, unless `answering` is False.
    """

    def __init__(self, credit: int = 10, limits: Limits | None = None, **settings: Any) -> None:
        fields: dict[str, Any] = {"container_id": "server"} | settings
        if limits is not None:
            fields["limits"] = limits
        self.now = NOW
        self.server = Connection(ConnectionSettings(**fields), self.now)
        self.credit = credit
        self.max_message_size: int | None = None
        self.answering = True
        self.events: list[Event] = []
        self.headers: list[bytes] = []
        self._reader = FrameReader(2**31)
        self._reader.expect_header()

    # --- to the engine

    def feed(self, data: bytes) -> list[Event]:
        """Writes bytes; the events that they caused."""
        told = list(self.server.receive_data(data, self.now))
        events = told
        while self.answering and events and isinstance(events[-1], AttachReceived):
            link = events[-1].link
            link.accept(credit=self.credit, max_message_size=self.max_message_size)
            events = self.server.receive_data(b"", self.now)
            told.extend(events)
        self.events.extend(told)
        return told

    def say(self, performative: Any, payload: bytes = b"", channel: int = 0) -> list[Event]:
        """Writes one frame."""
        return self.feed(encode_frame(channel, performative, payload))

    def open(self, **fields: Any) -> RawPeer:
        """Header and open."""
        self.feed(AMQP_HEADER + encode_frame(0, Open(container_id="peer", **fields)))
        return self

    def begin(self, channel: int = 0, **fields: Any) -> Session:
        """One session."""
        values: dict[str, Any] = {
            "next_outgoing_id": 0,
            "incoming_window": WINDOW,
            "outgoing_window": WINDOW,
        } | fields
        self.say(Begin(**values), channel=channel)
        return self.server.incoming[channel]

    def attach_sender(
        self, handle: int = 0, name: str = "up", channel: int = 0, **fields: Any
    ) -> ReceiverLink:
        """A link on which the peer sends."""
        self.say(sender_attach(handle, name, **fields), channel=channel)
        link = self.server.incoming[channel].input_links[handle]
        assert isinstance(link, ReceiverLink)
        return link

    def attach_receiver(
        self, handle: int = 0, name: str = "down", channel: int = 0, credit: int = 0, **fields: Any
    ) -> SenderLink:
        """A link on which the peer receives."""
        self.say(receiver_attach(handle, name, **fields), channel=channel)
        link = self.server.incoming[channel].input_links[handle]
        assert isinstance(link, SenderLink)
        if credit:
            self.say(flow(handle=handle, delivery_count=0, link_credit=credit), channel=channel)
        return link

    # --- from the engine

    def heard(self) -> list[Any]:
        """The performatives written since the last call, transfers with their payload as `payload_of`."""
        return [frame.performative for frame in self.frames()]

    def frames(self) -> list[Any]:
        """The frames written since the last call; protocol headers go to `headers`."""
        self._reader.feed(taken(self.server))
        found = []
        while (item := self._reader.next()) is not None:
            if isinstance(item, ProtocolHeader):
                self.headers.append(item.octets)
            else:
                found.append(item)
        return found


def sender_attach(handle: int = 0, name: str = "up", **fields: Any) -> Attach:
    """An attach of a sending peer."""
    values: dict[str, Any] = {
        "source": Source(address="a"),
        "target": Target(address="b"),
        "initial_delivery_count": 0,
    } | fields
    return Attach(name=name, handle=handle, role=SENDER, **values)


def receiver_attach(handle: int = 0, name: str = "down", **fields: Any) -> Attach:
    """An attach of a receiving peer."""
    values: dict[str, Any] = {"source": Source(address="a"), "target": Target(address="b")} | fields
    return Attach(name=name, handle=handle, role=RECEIVER, **values)


def flow(**fields: Any) -> Flow:
    """A flow with open windows."""
    values: dict[str, Any] = {
        "next_incoming_id": 0,
        "incoming_window": WINDOW,
        "next_outgoing_id": 0,
        "outgoing_window": WINDOW,
    } | fields
    return Flow(**values)


def transfer(delivery_id: int | None, **fields: Any) -> Transfer:
    """A transfer on handle 0 with the delivery-id as its tag."""
    tag = None if delivery_id is None else delivery_id.to_bytes(4, "big")
    values: dict[str, Any] = {
        "handle": 0,
        "delivery_id": delivery_id,
        "delivery_tag": tag,
        "message_format": 0,
    } | fields
    return Transfer(**values)


def deliveries(events: list[Any]) -> list[Delivery]:
    """All deliveries of the events."""
    return [delivery for event in of_type(events, DeliveriesReceived) for delivery in event.deliveries]


def in_session(credit: int = 10, limits: Limits | None = None, **settings: Any) -> RawPeer:
    """A peer that has begun a session on channel 0, and heard of it."""
    peer = RawPeer(credit, limits, **settings).open()
    peer.begin()
    peer.heard()
    return peer


def attached(credit: int = 10, peer: RawPeer | None = None, **fields: Any) -> tuple[RawPeer, ReceiverLink]:
    """A peer with one link on which it sends."""
    peer = peer or RawPeer(credit=credit)
    peer.open().begin()
    link = peer.attach_sender(**fields)
    peer.heard()
    return peer, link


def closed_with(peer: RawPeer, condition: str) -> str:
    """The engine wrote a close with this condition and wants to go; the description."""
    close = peer.heard()[-1]
    assert isinstance(close, Close) and close.error is not None and close.error.condition == condition
    assert peer.server.wants_close and peer.server.state is ConnectionState.END
    assert close.error.description
    return close.error.description


def detached_with(peer: RawPeer, condition: str) -> str:
    """The engine wrote a closing detach with this condition; the description."""
    detach = next(item for item in peer.heard() if isinstance(item, Detach))
    assert detach.closed and detach.error is not None and detach.error.condition == condition
    assert detach.error.description
    (told,) = of_type(peer.events, LinkDetached)
    assert told.error.condition == condition and told.closed
    return detach.error.description


def ended_with(peer: RawPeer, condition: str) -> str:
    """The engine wrote an end with this condition, and the connection lives; the description."""
    end = peer.heard()[-1]
    assert isinstance(end, End) and end.error is not None and end.error.condition == condition
    assert of_type(peer.events, SessionEnded) and not peer.server.wants_close
    assert end.error.description
    return end.error.description
