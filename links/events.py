"""What the engine tells its caller: values, in the order of the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amqp_broker.frames import TransactionalState
from amqp_broker.links.dispositions import txn_id_of

if TYPE_CHECKING:
    from amqp_broker.frames import Attach, Error, Open
    from amqp_broker.links.deliveries import Delivery, OutgoingDelivery
    from amqp_broker.links.receiver_link import ReceiverLink
    from amqp_broker.links.sender_link import SenderLink
    from amqp_broker.links.session import Session


class Event:
    """Base of all events."""

    __slots__ = ()


class ConnectionOpened(Event):
    """The peer's `open` was accepted (2.7.1)."""

    __slots__ = ("remote_open",)

    def __init__(self, remote_open: Open) -> None:
        self.remote_open = remote_open


class ConnectionClosed(Event):
    """The last event of a connection. `error` is the peer's, or the one that we closed with, or None.

    `local` is True when the error is what we told the peer, or would have.
    """

    __slots__ = ("error", "local")

    def __init__(self, error: Error | None, local: bool = False) -> None:
        self.error = error
        self.local = local


class SessionBegun(Event):
    """A session is mapped (2.5.5): the peer began one, or answered ours."""

    __slots__ = ("session",)

    def __init__(self, session: Session) -> None:
        self.session = session


class SessionEnded(Event):
    """The session is gone; a LinkDetached for each of its links came before."""

    __slots__ = ("session", "error")

    def __init__(self, session: Session, error: Error | None) -> None:
        self.session = session
        self.error = error


class AttachReceived(Event):
    """The peer attaches a link and wants an answer: `link.accept` or `link.refuse`. Reading stops until
    then.
    """

    __slots__ = ("link", "attach")

    def __init__(self, link: ReceiverLink | SenderLink, attach: Attach) -> None:
        self.link = link
        self.attach = attach


class LinkAttached(Event):
    """The peer answered our attach (2.6.3). Its terminus may be missing: then a detach follows."""

    __slots__ = ("link", "attach")

    def __init__(self, link: ReceiverLink | SenderLink, attach: Attach) -> None:
        self.link = link
        self.attach = attach


class LinkDetached(Event):
    """An attached link is gone: by either side's detach, or with its session or connection. Exactly once for
    each.

    `unsettled` is what a sending link had sent and nobody settled, in delivery order. `broken`: the peer went
    without a word, neither detach nor end nor close.
    """

    __slots__ = ("link", "closed", "error", "unsettled", "broken")

    def __init__(
        self,
        link: ReceiverLink | SenderLink,
        closed: bool,
        error: Error | None,
        unsettled: list[OutgoingDelivery],
        broken: bool = False,
    ) -> None:
        self.link = link
        self.closed = closed
        self.error = error
        self.unsettled = unsettled
        self.broken = broken


class LinkLeaving(Event):
    """The peer has detached a receiving link, ended its session or closed, at this place among the events,
    and our answer waits for outcomes of what came before: nothing more comes, and LinkDetached follows.
    """

    __slots__ = ("link",)

    def __init__(self, link: ReceiverLink) -> None:
        self.link = link


class WorkLost(Event):
    """Work that named a transaction and that nobody is given: a transfer that was dropped, or a message of
    which the rest will not come. `part` says which, `why` what became of it.
    """

    __slots__ = ("part", "txn_id", "why")

    def __init__(self, txn_id: bytes, part: str, why: str) -> None:
        self.txn_id = txn_id
        self.part = part
        self.why = why


class OutcomesLost(Event):
    """A transactional state for deliveries from number `first` to `last` of a session, of which only those
    in `found` are unsettled: what the state says of the others is given to nobody.
    """

    __slots__ = ("first", "found", "last", "session", "settled", "state")

    def __init__(
        self, session: Session, first: int, last: int, found: set[int], state: TransactionalState,
        settled: bool,
    ) -> None:  # fmt: skip
        self.session = session
        self.first = first
        self.last = last
        self.found = found
        self.state = state
        self.settled = settled


class CreditReceived(Event):
    """Our sending link may send again, or its drain flag changed: call `send`, and `drained` when
    `link.drain`.
    """

    __slots__ = ("link",)

    def __init__(self, link: SenderLink) -> None:
        self.link = link


class FlowReceived(Event):
    """A flow of the receiver named a transaction for what it acquires from here on, or, with `txn_id` None,
    ended this. One for each such flow, at its place among the events. A flow without properties says nothing
    of transactions: the txn-id is state of the link, set by an entry of the map, cleared by the discharge
    (4.4.3).

    Answer each with `link.flow_handled()`: the link sends nothing until then, so that no credit is used
    outside of its transaction. Reading goes on. `txn_id` is what the peer sent, of whatever type.
    """

    __slots__ = ("link", "txn_id")

    def __init__(self, link: SenderLink, txn_id: Any) -> None:
        self.link = link
        self.txn_id = txn_id


class CreditDrained(Event):
    """The sender used up or gave back all credit of our receiving link after we asked to drain (2.6.7)."""

    __slots__ = ("link",)

    def __init__(self, link: ReceiverLink) -> None:
        self.link = link


class DeliveriesReceived(Event):
    """A run of complete deliveries of one link, in order. Call `link.processed(n)` when done with n of
    them.
    """

    __slots__ = ("link", "deliveries")

    def __init__(self, link: ReceiverLink, deliveries: list[Delivery]) -> None:
        self.link = link
        self.deliveries = deliveries


class OutcomesReceived(Event):
    """The receiver told the same `state` for a run of our deliveries. When not `settled`, answer with
    `link.settle`.
    """

    __slots__ = ("link", "deliveries", "state", "settled")

    def __init__(
        self, link: SenderLink, deliveries: list[OutgoingDelivery], state: object, settled: bool
    ) -> None:
        self.link = link
        self.deliveries = deliveries
        self.state = state
        self.settled = settled

    @property
    def txn_id(self) -> bytes | None:
        """The opaque txn-id when the state is a transactional-state (4.5.4), else None."""
        return txn_id_of(self.state)

    @property
    def outcome(self) -> object:
        """The outcome inside a transactional-state, or the state itself."""
        return self.state.outcome if type(self.state) is TransactionalState else self.state


class DeliveriesSettled(Event):
    """The sender settled what we had given an outcome, unsettled (rcv-settle-mode second, 2.6.12)."""

    __slots__ = ("link", "deliveries")

    def __init__(self, link: ReceiverLink, deliveries: list[Delivery]) -> None:
        self.link = link
        self.deliveries = deliveries


class SaslMechanismsReceived(Event):
    """The server's offer; answer with `connection.sasl_init`."""

    __slots__ = ("mechanisms",)

    def __init__(self, mechanisms: tuple[str, ...]) -> None:
        self.mechanisms = mechanisms


class SaslInitReceived(Event):
    """The client chose; answer with `connection.sasl_challenge` or `sasl_outcome`. Reading stops until then.

    The initial response is a secret and not printed.
    """

    __slots__ = ("mechanism", "initial_response", "hostname")

    def __init__(self, mechanism: str, initial_response: bytes | None, hostname: str | None) -> None:
        self.mechanism = mechanism
        self.initial_response = initial_response
        self.hostname = hostname

    def __repr__(self) -> str:
        return f"<SaslInitReceived {self.mechanism!r} initial_response=(secret)>"


class SaslChallengeReceived(Event):
    """The server's challenge; answer with `connection.sasl_response`. Not printed."""

    __slots__ = ("challenge",)

    def __init__(self, challenge: bytes) -> None:
        self.challenge = challenge

    def __repr__(self) -> str:
        return "<SaslChallengeReceived challenge=(secret)>"


class SaslResponseReceived(Event):
    """The client's response; answer with `connection.sasl_challenge` or `sasl_outcome`. Not printed."""

    __slots__ = ("response",)

    def __init__(self, response: bytes) -> None:
        self.response = response

    def __repr__(self) -> str:
        return "<SaslResponseReceived response=(secret)>"


class SaslOutcomeReceived(Event):
    """The server's verdict (5.3.3.6): code 0 is success, and `open` follows by itself."""

    __slots__ = ("code", "additional_data")

    def __init__(self, code: int, additional_data: bytes | None) -> None:
        self.code = code
        self.additional_data = additional_data

    def __repr__(self) -> str:
        return f"<SaslOutcomeReceived {self.code} additional_data=(secret)>"
