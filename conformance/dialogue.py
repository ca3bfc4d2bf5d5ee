"""Sessions and links for scenarios that are about something else: they count ids and credit, and send what
they say.
"""

from collections.abc import Iterable
from typing import Any

import attrs

from amqp_broker.conformance.outcomes import NotApplicable, Unexpected
from amqp_broker.conformance.transcript import describe, describe_value
from amqp_broker.conformance.wire import Peer
from amqp_broker.frames import (
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Flow,
    Frame,
    Source,
    Target,
    Transfer,
)

SENDER = False
RECEIVER = True

WINDOW = 2048
"""Our incoming and outgoing session window unless a scenario is about windows."""


@attrs.frozen
class Delivery:
    """A complete delivery that came: its first transfer, the whole message, and how many frames it took."""

    transfer: Transfer
    payload: bytes
    frames: int = 1

    @property
    def id(self) -> int:
        """The delivery-id (2.7.5)."""
        assert self.transfer.delivery_id is not None
        return self.transfer.delivery_id


class Session:
    """One session: our channel, the broker's, and the counters of 2.5.6.

    ``seen`` has the broker's performatives in order; ``outcomes`` its last disposition about each delivery
    that we sent, ``settlements`` the last one about each that we received.
    """

    def __init__(self, peer: Peer, channel: int = 0) -> None:
        self.peer = peer
        self.channel = channel
        self.remote_channel: int | None = None
        self.remote_begin: Begin | None = None
        self.remote_max_frame_size = 0xFFFF_FFFF
        self.next_outgoing_id = 0
        self.next_incoming_id: int | None = None
        self.next_delivery_id = 0
        self.incoming_window = WINDOW
        self.senders: dict[int, Sender] = {}
        self.remote_flow: Flow | None = None
        self.own_address = ""
        self.remote_handles: dict[str, int] = {}
        self.last_attach: Attach | None = None
        self.seen: list[Any] = []
        self.outcomes: dict[int, Disposition] = {}
        self.settlements: dict[int, Disposition] = {}
        peer.observers.append(self._observe)

    def begin(self, **fields: Any) -> Begin:
        """Sends begin, waits for the broker's begin, and returns it."""
        self.send_begin(**fields)
        return self.expect_begin()

    def send_begin(self, **fields: Any) -> None:
        """Sends begin, changed by ``fields``, and does not wait."""
        begin = Begin(
            **{
                "next_outgoing_id": 0,
                "incoming_window": WINDOW,
                "outgoing_window": WINDOW,
                "handle_max": 255,
                **fields,
            }
        )
        self.next_outgoing_id = begin.next_outgoing_id or 0
        self.incoming_window = begin.incoming_window or 0
        self.peer.send(begin, self.channel)

    def expect_begin(self) -> Begin:
        """Waits for the begin that answers ours."""
        frame = self.peer.expect_frame(Begin)
        begin: Begin = frame.performative
        if begin.remote_channel != self.channel:
            raise Unexpected(f"expected begin with remote_channel={self.channel}, got {describe(begin)}")
        self.remote_channel, self.remote_begin = frame.channel, begin
        self.next_incoming_id = begin.next_outgoing_id
        return begin

    def send(self, performative: Any, payload: bytes = b"") -> None:
        """Sends a frame on this session's channel."""
        if isinstance(performative, Transfer):
            self.next_outgoing_id = (self.next_outgoing_id + 1) & 0xFFFF_FFFF
        self.peer.send(performative, self.channel, payload)

    def flow(self, **fields: Any) -> None:
        """Sends flow with this session's counters; ``fields`` add a link's state or change them."""
        self.send(
            Flow(
                **{
                    "next_incoming_id": self.next_incoming_id,
                    "incoming_window": self.incoming_window,
                    "next_outgoing_id": self.next_outgoing_id,
                    "outgoing_window": WINDOW,
                    **fields,
                }
            )
        )

    def attach_sender(
        self, address: str | None, handle: int = 0, name: str | None = None, **fields: Any
    ) -> "Sender":
        """Attaches a link on which we send; waits for the broker's attach, which must have a target."""
        sender = self.send_attach_sender(address, handle, name, **fields)
        sender.expect_attach()
        return sender

    def send_attach_sender(
        self, address: str | None, handle: int = 0, name: str | None = None, **fields: Any
    ) -> "Sender":
        """Sends the attach of a link on which we send, and does not wait."""
        sender = Sender(self, handle, name or f"sender-{handle}")
        self.senders[handle] = sender
        self.send(
            Attach(
                **{
                    "name": sender.name,
                    "handle": handle,
                    "role": SENDER,
                    "source": Source(),
                    "target": Target(address=address),
                    "initial_delivery_count": 0,
                    **fields,
                }
            )
        )
        sender.delivery_count = fields.get("initial_delivery_count", 0)
        return sender

    def attach_receiver(
        self, address: str | None, handle: int = 1, name: str | None = None, credit: int = 0, **fields: Any
    ) -> "Receiver":
        """Attaches a link on which we receive, waits for the broker's attach, and gives ``credit``."""
        receiver = self.send_attach_receiver(address, handle, name, **fields)
        receiver.expect_attach()
        if credit:
            receiver.give_credit(credit)
        return receiver

    def send_attach_receiver(
        self, address: str | None, handle: int = 1, name: str | None = None, **fields: Any
    ) -> "Receiver":
        """Sends the attach of a link on which we receive, and does not wait."""
        receiver = Receiver(self, handle, name or f"receiver-{handle}")
        self.send(
            Attach(
                **{
                    "name": receiver.name,
                    "handle": handle,
                    "role": RECEIVER,
                    "source": Source(address=address),
                    "target": Target(),
                    **fields,
                }
            )
        )
        return receiver

    def catch_up(self) -> None:
        """Returns when the broker has taken every frame before: it has attached and detached a link of no
        use.
        """
        link = Receiver(self, 254, f"catch-up-{self.next_outgoing_id}")
        self.send(
            Attach(
                name=link.name,
                handle=254,
                role=RECEIVER,
                source=Source(address=self.own_address),
                target=Target(),
            )
        )
        self.peer.expect(Attach, skip=(Disposition, Transfer), name=link.name)
        self.send(Detach(handle=254, closed=True))
        self.peer.expect(Detach, skip=(Disposition, Transfer))

    def end(self) -> None:
        """Ends the session in good order (2.5.2), and waits for the broker's end."""
        self.send(End())
        self.peer.expect_end(channel=self.remote_channel)

    def _observe(self, frame: Frame) -> None:
        if self.remote_channel is None or frame.channel != self.remote_channel:
            return
        performative = frame.performative
        self.seen.append(performative)
        if isinstance(performative, Attach):
            self.remote_handles[performative.name] = performative.handle
            self.last_attach = performative
        elif isinstance(performative, Transfer) and self.next_incoming_id is not None:
            self.next_incoming_id = (self.next_incoming_id + 1) & 0xFFFF_FFFF
        elif isinstance(performative, Disposition):
            known = self.outcomes if performative.role is RECEIVER else self.settlements
            for delivery_id in ids_of(performative):
                known[delivery_id] = performative
        elif isinstance(performative, Flow):
            self.remote_flow = performative
            for sender in self.senders.values():
                if sender.remote_handle is not None and performative.handle == sender.remote_handle:
                    sender.credit_flow = performative


def ids_of(disposition: Disposition) -> range:
    """Returns the delivery-ids that a disposition is about, at most 65,536 of them (2.7.6)."""
    first = disposition.first or 0
    last = first if disposition.last is None else disposition.last
    return range(first, min(last, first + 0xFFFF) + 1)


class Link:
    """What both kinds of link have: a name, our handle, the broker's handle and attach."""

    def __init__(self, session: Session, handle: int, name: str) -> None:
        self.session = session
        self.peer = session.peer
        self.handle = handle
        self.name = name
        self.remote_handle: int | None = None
        self.allowed_refusal: str | None = None
        self.remote_attach: Attach | None = None

    def expect_attach(self) -> Attach:
        """Waits for the broker's attach of this link; raises Unexpected when it refuses the terminus
        (2.6.3).
        """
        kinds = (Attach, End) if self.allowed_refusal else (Attach,)
        answer = self.peer.expect_frame(*kinds, skip=(Disposition,)).performative
        if isinstance(answer, End):
            condition = answer.error.condition if answer.error else None
            if condition == self.allowed_refusal:
                raise NotApplicable(f"the broker refuses with {condition}")
            raise Unexpected(f"expected attach or {self.allowed_refusal}, got {describe(answer)}")
        attach: Attach = answer
        if attach.name != self.name:
            raise Unexpected(f"expected attach of {self.name!r}, got {describe(attach)}")
        self.remote_attach, self.remote_handle = attach, attach.handle
        terminus = attach.source if isinstance(self, Receiver) else attach.target
        if terminus is None:
            detach = self.peer.expect_detach()
            raise Unexpected(f"the link was refused: {describe_value(detach.error)}")
        return attach

    def refusal_may_be(self, condition: str) -> None:
        """Says that the broker may end the session with ``condition`` instead of attaching: nothing is shown
        then.
        """
        self.allowed_refusal = condition

    def detach(self, closed: bool = True, skip: tuple[type, ...] = (Transfer, Disposition)) -> Detach:
        """Detaches or closes the link, and waits for the broker's detach (2.6.6)."""
        self.session.send(Detach(handle=self.handle, closed=closed))
        return self.peer.expect(Detach, skip=skip, handle=self.remote_handle)


class Sender(Link):
    """A link on which we send."""

    def __init__(self, session: Session, handle: int, name: str) -> None:
        super().__init__(session, handle, name)
        self.delivery_count = 0
        self.credit_flow: Flow | None = None

    @property
    def credit(self) -> int:
        """How many deliveries the broker lets us send now, by the formula of 2.6.7."""
        flow = self.credit_flow
        if flow is None or flow.link_credit is None:
            return 0
        counted = flow.delivery_count if flow.delivery_count is not None else 0
        left = (counted + flow.link_credit - self.delivery_count) & 0xFFFF_FFFF
        return left if left < 0x8000_0000 else 0

    def await_credit(self, credit: int = 1) -> None:
        """Reads until the broker gives at least ``credit``."""
        while self.credit < credit:
            self.peer.expect_frame(Flow, skip=(Disposition,))

    def send(
        self, payload: bytes, *, wait: bool = True, frame_octets: int | None = None, **fields: Any
    ) -> int:
        """Sends one delivery, waiting for credit first, and returns its delivery-id.

        With ``frame_octets`` the payload is split over transfers that carry at most as many octets each; a
        ``state`` among ``fields`` stands in each of them (4.4.1).
        """
        if wait:
            self.await_credit()
        session = self.session
        delivery_id = session.next_delivery_id
        session.next_delivery_id = (delivery_id + 1) & 0xFFFF_FFFF
        self.delivery_count = (self.delivery_count + 1) & 0xFFFF_FFFF
        size = frame_octets or max(len(payload), 1)
        pieces = [payload[start : start + size] for start in range(0, max(len(payload), 1), size)]
        first = {
            "delivery_id": delivery_id,
            "delivery_tag": delivery_id.to_bytes(4, "big"),
            "message_format": 0,
            **fields,
        }
        later = {"state": fields["state"]} if "state" in fields else {}
        for index, piece in enumerate(pieces):
            more = index < len(pieces) - 1
            session.send(Transfer(handle=self.handle, more=more, **(first if index == 0 else later)), piece)
        return delivery_id

    def expect_outcome(self, kind: type = Accepted, *, delivery_id: int | None = None) -> Any:
        """Waits for the settled outcome of one delivery (the last sent) and returns it."""
        wanted = self.session.next_delivery_id - 1 if delivery_id is None else delivery_id
        while True:
            disposition = self.peer.expect(Disposition)
            first = disposition.first or 0
            last = first if disposition.last is None else disposition.last
            if disposition.role is RECEIVER and first <= wanted <= last:
                break
        if not isinstance(disposition.state, kind) or not disposition.settled:
            raise Unexpected(f"expected a settled {kind.__name__.lower()}, got {describe(disposition)}")
        return disposition.state

    def put(self, payloads: Iterable[bytes]) -> None:
        """Sends messages one by one, each accepted and settled before the next."""
        for payload in payloads:
            self.send(payload)
            self.expect_outcome(Accepted)


class Receiver(Link):
    """A link on which we receive."""

    def __init__(self, session: Session, handle: int, name: str) -> None:
        super().__init__(session, handle, name)
        self.received = 0

    @property
    def delivery_count(self) -> int:
        """The delivery-count as we know it: the broker's first, and what came since (2.6.7)."""
        initial = self.remote_attach.initial_delivery_count if self.remote_attach else None
        return ((initial or 0) + self.received) & 0xFFFF_FFFF

    def give_credit(self, credit: int, **fields: Any) -> None:
        """Sends flow with link-credit, and ``fields`` such as drain or echo."""
        self.session.flow(
            **{"handle": self.handle, "delivery_count": self.delivery_count, "link_credit": credit, **fields}
        )

    def receive(self, timeout_s: float | None = None, skip: tuple[type, ...] = ()) -> Delivery:
        """Returns the next complete delivery; a message over several transfers is put together (2.6.14)."""
        first: Transfer | None = None
        payload, frames = b"", 0
        while True:
            frame = self.peer.expect_frame(Transfer, timeout_s=timeout_s, skip=skip)
            transfer: Transfer = frame.performative
            if transfer.handle != self.remote_handle:
                raise Unexpected(
                    f"expected transfer on handle {self.remote_handle}, got handle {transfer.handle}"
                )
            first = first or transfer
            payload += frame.payload
            frames += 1
            if not transfer.more:
                self.received += 1
                return Delivery(first, payload, frames)

    def settle(
        self,
        delivery: Delivery,
        state: Any = None,
        *,
        last: Delivery | None = None,
        settled: bool = True,
    ) -> None:
        """Sends the disposition of one delivery, or of a range up to ``last``; accepted unless ``state`` is
        given.
        """
        self.session.send(
            Disposition(
                role=RECEIVER,
                first=delivery.id,
                last=None if last is None else last.id,
                settled=settled,
                state=Accepted() if state is None else state,
            )
        )

    def expect_empty(self, within_s: float = 0.3) -> None:
        """Gives one credit, and checks that no message comes; no drain, so that a broker's drain is not at
        stake.
        """
        self.give_credit(1)
        self.peer.expect_nothing(Transfer, within_s=within_s)
