"""Sessions and links of the frame-level peer as scenarios use them: they wait for what they expect, and say
what came instead.

Ids, credit and windows are counted by `amqp_broker.testing.peer`; whatever a scenario gives as ``fields``
replaces what was counted, however wrong.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any

from amqp_broker.conformance.outcomes import NotApplicable, Unexpected
from amqp_broker.conformance.transcript import describe, describe_value
from amqp_broker.conformance.wire import Wire
from amqp_broker.frames import (
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Frame,
    Open,
    Transfer,
)
from amqp_broker.testing.peer import Delivery, PeerLink, PeerReceiver, PeerSender, PeerSession, ids_of

WINDOW = 2048
"""Our incoming and outgoing session window unless a scenario is about windows."""

ASIDE = 61
"""The channel of a session on which nothing happens: that the broker begins and ends it shows how far it has
read.
"""


class Session(PeerSession):
    """One session.

    ``seen`` has the broker's performatives in order; ``outcomes`` its last disposition about each delivery
    that we sent, ``settlements`` the last one about each that we received.
    """

    def __init__(self, peer: "Peer", channel: int, begin: Begin) -> None:
        super().__init__(peer, channel, begin)
        self.peer = peer
        self.remote_flow: Flow | None = None
        self.seen: list[Any] = []
        self.outcomes: dict[int, Disposition] = {}
        self.settlements: dict[int, Disposition] = {}

    @property
    def begun(self) -> Begin:
        """The broker's begin, which has come."""
        assert self.remote_begin is not None
        return self.remote_begin

    def expect_begin(self) -> None:
        """Waits for the begin that answers ours."""
        self.peer.expect(Begin, remote_channel=self.channel)

    def make_link(self, attach: Attach) -> "Sender | Receiver":
        """What stands for a link that our attach attached."""
        return Receiver(self, attach) if attach.role == RECEIVER else Sender(self, attach)

    def sender(
        self, address: str | None, handle: int = 0, name: str | None = None, **fields: Any
    ) -> "Sender":
        """Attaches a link on which we send; waits for the broker's attach, which must have a target."""
        sender = self.put_sender(address, handle, name, **fields)
        sender.expect_attach()
        return sender

    def put_sender(
        self, address: str | None, handle: int = 0, name: str | None = None, **fields: Any
    ) -> "Sender":
        """Sends the attach of a link on which we send, and does not wait."""
        link = self.put_attach(SENDER, name or f"sender-{handle}", address, handle=handle, **fields)
        assert isinstance(link, Sender)
        return link

    def receiver(
        self, address: str | None, handle: int = 1, name: str | None = None, credit: int = 0, **fields: Any
    ) -> "Receiver":
        """Attaches a link on which we receive, waits for the broker's attach, and gives ``credit``."""
        receiver = self.put_receiver(address, handle, name, **fields)
        receiver.expect_attach()
        if credit:
            receiver.flow(credit)
        return receiver

    def put_receiver(
        self, address: str | None, handle: int = 1, name: str | None = None, **fields: Any
    ) -> "Receiver":
        """Sends the attach of a link on which we receive, and does not wait."""
        link = self.put_attach(RECEIVER, name or f"receiver-{handle}", address, handle=handle, **fields)
        assert isinstance(link, Receiver)
        return link

    def catch_up(self) -> None:
        """Returns when the broker has taken every frame before: it has attached and detached a link of no
        use.
        """
        name = f"catch-up-{self.next_outgoing_id}"
        self.put_receiver(self.peer.own_address, 254, name)
        self.peer.expect(Attach, skip=(Disposition, Transfer), name=name)
        self.put(Detach(handle=254, closed=True))
        self.peer.expect(Detach, skip=(Disposition, Transfer))

    def expect_end(self, *conditions: str) -> End:
        """Waits for the end of this session with an error of one of ``conditions`` (none: any)."""
        return self.peer.expect_end(*conditions, channel=self.remote_channel)

    def end(self, error: Any = None) -> None:
        """Ends the session in good order (2.5.2), and waits for the broker's end."""
        self.put(End(error=error))
        self.expect_end()

    def await_outcome(self, delivery_id: int, skip: tuple[type, ...] = ()) -> Disposition:
        """Reads until there is a disposition about a delivery that we sent, and returns the last one."""
        while delivery_id not in self.outcomes:
            self.peer.expect_frame(Disposition, skip=skip)
        return self.outcomes[delivery_id]

    def await_settled(self, delivery_id: int, skip: tuple[type, ...] = ()) -> Any:
        """Returns the outcome of a delivery that we sent, which must be settled."""
        disposition = self.await_outcome(delivery_id, skip)
        if not disposition.settled:
            raise Unexpected(f"expected a settled outcome, got {describe(disposition)}")
        return disposition.state

    def on_performative(self, performative: Any, payload: bytes) -> None:
        """Notes one frame of the broker on this session."""
        self.seen.append(performative)
        super().on_performative(performative, payload)

    def on_disposition(self, disposition: Disposition) -> None:
        """Notes about which deliveries it is."""
        known = self.outcomes if disposition.role == RECEIVER else self.settlements
        known |= dict.fromkeys(ids_of(disposition), disposition)
        super().on_disposition(disposition)

    def on_flow(self, flow: Flow) -> None:
        """Notes the last flow."""
        self.remote_flow = flow
        super().on_flow(flow)


class Link(PeerLink):
    """What both kinds of link have."""

    session: Session

    @property
    def peer(self) -> "Peer":
        """Our side of the connection."""
        return self.session.peer

    @property
    def attach(self) -> Attach:
        """The broker's attach of this link, which has come."""
        assert self.remote_attach is not None
        return self.remote_attach

    @property
    def remote_handle(self) -> int | None:
        """The broker's handle of this link."""
        return None if self.remote_attach is None else self.remote_attach.handle

    def expect_attach(self, or_end: str | None = None) -> Attach:
        """Waits for the broker's attach of this link; raises Unexpected when it refuses the terminus (2.6.3).

        The scenario shows nothing where the broker ends the session with the condition ``or_end`` instead.
        """
        kinds = (Attach, End) if or_end else (Attach,)
        answer = self.peer.expect_frame(*kinds, skip=(Disposition,)).performative
        if isinstance(answer, End):
            condition = answer.error.condition if answer.error else None
            if condition == or_end:
                raise NotApplicable(f"the broker refuses with {condition}")
            raise Unexpected(f"expected attach or {or_end}, got {describe(answer)}")
        attach: Attach = answer
        if attach is not self.remote_attach:
            raise Unexpected(f"expected attach of {self.name!r}, got {describe(attach)}")
        if self.remote_terminus is None:
            detach = self.peer.expect_detach()
            raise Unexpected(f"the link was refused: {describe_value(detach.error)}")
        return attach

    def expect_detach(self, *conditions: str, skip: tuple[type, ...] = (Disposition, Transfer)) -> Error:
        """Waits until the broker ends this link with an error of ``conditions`` (none: any), and answers."""
        detach = self.peer.expect(Detach, skip=skip)
        if detach.handle != self.remote_handle or detach.error is None:
            raise Unexpected(
                f"expected detach of handle {self.remote_handle} with an error, got {describe(detach)}"
            )
        if conditions and detach.error.condition not in conditions:
            raise Unexpected(f"expected {' or '.join(conditions)}, got {describe(detach)}")
        self.session.put(Detach(handle=self.handle, closed=True))
        return detach.error

    def expect_refused(self, *conditions: str) -> Error:
        """Waits until the broker refuses this link: a null terminus, and then `expect_detach` (2.6.3)."""
        attach = self.peer.expect(Attach, name=self.name)
        if self.remote_terminus is not None:
            raise Unexpected(f"expected a null terminus, got {describe(attach)}")
        return self.expect_detach(*conditions, skip=())

    def detach(self, *, closed: bool = True, skip: tuple[type, ...] = (Transfer, Disposition)) -> Detach:
        """Detaches or closes the link, waits for the broker's detach, and returns it (2.6.6)."""
        self.session.put(Detach(handle=self.handle, closed=closed))
        return self.peer.expect(Detach, skip=skip, handle=self.remote_handle)


class Sender(Link, PeerSender):
    """A link on which we send."""

    last_flow: Flow | None = None
    """The broker's last flow of this link."""

    def on_flow(self, flow: Flow) -> None:
        """Notes it."""
        self.last_flow = flow
        super().on_flow(flow)

    def await_credit(self, credit: int = 1) -> None:
        """Reads until the broker gives at least ``credit``."""
        while self.credit < credit:
            self.peer.expect_frame(Flow, skip=(Disposition,))

    def send(self, payload: bytes, *, wait: bool = True, **fields: Any) -> int:
        """Sends one delivery, waiting for credit first, and returns its delivery-id; it is not settled, by
        leaving that out. See `PeerSender.send`.
        """
        if wait:
            self.await_credit()
        return super().send(payload, **{"settled": None} | fields)

    def expect_outcome(self, kind: type = Accepted, *, delivery_id: int | None = None) -> Any:
        """Waits for the settled outcome of one delivery (the last sent) and returns it."""
        wanted = self.session.next_delivery_id - 1 if delivery_id is None else delivery_id
        while True:
            disposition = self.peer.expect(Disposition)
            if disposition.role == RECEIVER and wanted in ids_of(disposition):
                break
        if not isinstance(disposition.state, kind) or not disposition.settled:
            raise Unexpected(f"expected a settled {kind.__name__.lower()}, got {describe(disposition)}")
        return disposition.state

    def put(self, payloads: Iterable[bytes]) -> None:
        """Sends messages one by one, each accepted and settled before the next."""
        for payload in payloads:
            self.send(payload)
            self.expect_outcome(Accepted)


class Receiver(Link, PeerReceiver):
    """A link on which we receive."""

    def receive(self, timeout_s: float | None = None, skip: tuple[type, ...] = ()) -> Delivery:
        """Returns the next complete delivery; a message over several transfers is put together (2.6.14)."""
        while True:
            transfer = self.peer.expect_frame(Transfer, timeout_s=timeout_s, skip=skip).performative
            if transfer.handle != self.remote_handle:
                raise Unexpected(
                    f"expected transfer on handle {self.remote_handle}, got handle {transfer.handle}"
                )
            if self.partial is None and not transfer.aborted:
                return self.deliveries[-1]

    def take(self, count: int) -> list[Delivery]:
        """Returns the next deliveries, so many."""
        return [self.receive() for _ in range(count)]

    def expect_flow(self) -> Flow:
        """Waits for the broker's flow of this link."""
        while True:
            flow: Flow = self.peer.expect_frame(Flow).performative
            if flow.handle == self.remote_handle:
                return flow

    def expect_empty(self, within_s: float = 0.3) -> None:
        """Gives one credit, and checks that no message comes; no drain, so that a broker's drain is not at
        stake.
        """
        self.flow(1)
        self.peer.expect_nothing(Transfer, within_s=within_s)


class Peer(Wire):
    """One TCP connection to the broker, on which a scenario begins sessions."""

    channel_max = 0
    """What our open said."""

    def make_session(self, channel: int, begin: Begin) -> Session:
        """What stands for a session that our begin began."""
        return Session(self, channel, begin)

    def put_begin(self, channel: int | None = None, **fields: Any) -> Session:
        """Sends begin, changed by ``fields``, and does not wait."""
        usual = {"incoming_window": WINDOW, "outgoing_window": WINDOW, "handle_max": 255}
        session = super().put_begin(channel, **usual | fields)
        assert isinstance(session, Session)
        return session

    def put(self, performative: Any, payload: bytes = b"", channel: int = 0) -> None:
        """Sends one AMQP frame (2.3.2)."""
        if isinstance(performative, Open):
            self.channel_max = performative.channel_max
        super().put(performative, payload, channel)

    def expect_nothing(self, *kinds: type, within_s: float = 0.3, aside: bool = True) -> None:
        """Raises Unexpected when a frame of one of ``kinds`` comes (none: any) before the broker has read all
        that we sent, or ``within_s`` seconds later: a broker that is only late is not taken for a silent one.

        Without ``aside`` nothing is sent meanwhile, and the time alone counts.
        """
        if aside:
            self.catch_up_aside(*kinds)
        super().expect_nothing(*kinds, within_s=within_s)

    def catch_up_aside(self, *kinds: type) -> None:
        """Begins and ends a session that has nothing else; raises Unexpected when a frame of one of ``kinds``
        comes meanwhile (none: any). A broker that does not answer is for others to judge.
        """
        opened = self.remote_open
        usable = opened is not None and min(opened.channel_max, self.channel_max) >= ASIDE
        if not usable or self.closed is not None or self.close_sent or ASIDE in self.sessions:
            return
        session = self.put_begin(ASIDE)
        if self._came(lambda: session.remote_begin is not None, session, kinds):
            session.put(End())
            self._came(lambda: session.ended is not None, session, kinds)
        self.sessions.pop(ASIDE, None)  # also where nobody answered: the next session has the next channel

    def _came(self, has_come: Callable[[], bool], session: Session, kinds: tuple[type, ...]) -> bool:
        """Reads until something of a session aside has come; what comes for others must not be of
        ``kinds``.
        """
        deadline = time.monotonic() + self.timeout
        while not has_come():
            got = self._next(deadline)
            if isinstance(got, str):
                return False
            if not isinstance(got, Frame) or got.channel != session.remote_channel:
                self.refuse(got, kinds)
        return True

    def begin(self, channel: int | None = None, **fields: Any) -> Session:
        """Sends begin, and waits for the broker's begin."""
        session = self.put_begin(channel, **fields)
        session.expect_begin()
        return session
