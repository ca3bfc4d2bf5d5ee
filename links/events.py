"""What the engine tells its caller: values, in the order of the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from amqp_broker.frames import TransactionalState
from amqp_broker.links.dispositions import txn_id_of

if TYPE_CHECKING:
    from amqp_broker.frames import Attach, Error, Open
    from amqp_broker.frames.hot_frames import Delivery
    from amqp_broker.links.deliveries import OutgoingDelivery, PartialDelivery
    from amqp_broker.links.receiver_link import ReceiverLink
    from amqp_broker.links.sender_link import SenderLink
    from amqp_broker.links.session import Session


class Event:
    """Base of all events."""

    __slots__ = ()


@attrs.define(eq=False)
class ConnectionOpened(Event):
    """The peer's `open` was accepted (2.7.1)."""

    remote_open: Open


@attrs.define(eq=False)
class ConnectionClosed(Event):
    """The last event of a connection. `error` is the peer's, or the one that we closed with, or None.

    `local` is True when the error is what we told the peer, or would have.
    """

    error: Error | None
    local: bool = False


@attrs.define(eq=False)
class SessionBegun(Event):
    """A session is mapped (2.5.5): the peer began one, or answered ours."""

    session: Session


@attrs.define(eq=False)
class SessionEnded(Event):
    """The session is gone; a LinkDetached for each of its links came before."""

    session: Session
    error: Error | None


@attrs.define(eq=False)
class AttachReceived(Event):
    """The peer attaches a link and wants an answer: `link.accept` or `link.refuse`. Reading stops until
    then.
    """

    link: ReceiverLink | SenderLink
    attach: Attach


@attrs.define(eq=False)
class LinkAttached(Event):
    """The peer answered our attach (2.6.3). Its terminus may be missing: then a detach follows."""

    link: ReceiverLink | SenderLink
    attach: Attach


@attrs.define(eq=False)
class LinkDetached(Event):
    """An attached link is gone: by either side's detach, or with its session or connection. Exactly once for
    each.

    `unsettled` is what a sending link had sent and nobody settled, in delivery order. `broken`: the peer went
    without a word, neither detach nor end nor close.
    """

    link: ReceiverLink | SenderLink
    closed: bool
    error: Error | None
    unsettled: list[OutgoingDelivery]
    broken: bool = False


@attrs.define(eq=False)
class LinkLeaving(Event):
    """The peer has detached a receiving link, ended its session or closed, at this place among the events,
    and our answer waits for outcomes of what came before: nothing more comes, and LinkDetached follows.
    """

    link: ReceiverLink


@attrs.define(eq=False)
class WorkLost(Event):
    """Work that named a transaction and that nobody is given: a transfer that was dropped, or a message of
    which the rest will not come. `part` says which, `why` what became of it.
    """

    txn_id: bytes
    part: str
    why: str


@attrs.define(eq=False)
class OutcomesLost(Event):
    """A transactional state for deliveries from number `first` to `last` of a session, of which only those
    in `found` are unsettled: what the state says of the others is given to nobody.
    """

    session: Session
    first: int
    last: int
    found: set[int]
    state: TransactionalState
    settled: bool


@attrs.define(eq=False)
class BodyLost(Event):
    """The rest of a message that was sent from `pieces` could not be had, `why`; `damaged`: another try is in
    vain. The delivery is aborted (2.7.5), and nobody waits for an outcome of it. `delivery` is what was
    unsettled, None where it was not.
    """

    link: SenderLink
    message: Any
    delivery: OutgoingDelivery | None
    why: str
    damaged: bool


@attrs.define(eq=False)
class BodySent(Event):
    """A message that `send_streamed` sent settled is out, to its last octet: not before is it the receiver's.
    """

    link: SenderLink
    message: Any


@attrs.define(eq=False)
class PartReceived(Event):
    """An incomplete delivery has more octets than the link's `stream_bytes`: `link.take_parts` takes them out
    of memory, else they stay until it is complete. The delivery may be over by now: then it is not the link's
    `partial` any more.
    """

    link: ReceiverLink
    partial: PartialDelivery


@attrs.define(eq=False)
class StreamReceived(Event):
    """A delivery is complete whose parts were taken out: its payload is what was not, the end of it, and
    `stream` what the caller left in the partial. As of DeliveriesReceived, `link.processed(1)` has to follow.
    """

    link: ReceiverLink
    delivery: Delivery
    stream: Any


@attrs.define(eq=False)
class StreamLost(Event):
    """A delivery whose parts were taken out will not be complete: its sender has aborted it, or leaves. Not
    told where its link is gone, which LinkDetached says.
    """

    link: ReceiverLink
    stream: Any


@attrs.define(eq=False)
class CreditReceived(Event):
    """Our sending link may send again, or its drain flag changed: call `send`, and `drained` when
    `link.drain`.
    """

    link: SenderLink


@attrs.define(eq=False)
class FlowReceived(Event):
    """A flow of the receiver named a transaction for what it acquires from here on, or, with `txn_id` None,
    ended this. One for each such flow, at its place among the events. A flow without properties says nothing
    of transactions: the txn-id is state of the link, set by an entry of the map, cleared by the discharge
    (4.4.3).

    Answer each with `link.flow_handled()`: the link sends nothing until then, so that no credit is used
    outside of its transaction. Reading goes on. `txn_id` is what the peer sent, of whatever type.
    """

    link: SenderLink
    txn_id: Any


@attrs.define(eq=False)
class CreditDrained(Event):
    """The sender used up or gave back all credit of our receiving link after we asked to drain (2.6.7)."""

    link: ReceiverLink


@attrs.define(eq=False)
class DeliveriesReceived(Event):
    """A run of complete deliveries of one link, in order. Call `link.processed(n)` when done with n of
    them.
    """

    link: ReceiverLink
    deliveries: list[Delivery]


@attrs.define(eq=False)
class RunsReceived(Event):
    """Runs of several links that are `apart`, which came in one read with nothing else between them."""

    runs: list[DeliveriesReceived]


@attrs.define(eq=False)
class DeliveryResumed(Event):
    """The sender resumed a delivery of the link's unsettled map (2.6.13): complete, or `aborted`. Its payload
    is what the sender sent again. Call `link.processed(1)`; unless it is aborted or settled, it wants an
    outcome.
    """

    link: ReceiverLink
    delivery: Delivery
    aborted: bool


@attrs.define(eq=False)
class OutcomesReceived(Event):
    """The receiver told the same `state` for a run of our deliveries. When not `settled`, answer with
    `link.settle`.
    """

    link: SenderLink
    deliveries: list[OutgoingDelivery]
    state: object
    settled: bool

    @property
    def txn_id(self) -> bytes | None:
        """The opaque txn-id when the state is a transactional-state (4.5.4), else None."""
        return txn_id_of(self.state)

    @property
    def outcome(self) -> object:
        """The outcome inside a transactional-state, or the state itself."""
        return self.state.outcome if type(self.state) is TransactionalState else self.state


@attrs.define(eq=False)
class DeliveriesSettled(Event):
    """The sender settled what we had given an outcome, unsettled (rcv-settle-mode second, 2.6.12)."""

    link: ReceiverLink
    deliveries: list[Delivery]


@attrs.define(eq=False)
class SaslMechanismsReceived(Event):
    """The server's offer; answer with `connection.sasl_init`."""

    mechanisms: tuple[str, ...]


@attrs.define(eq=False)
class SaslInitReceived(Event):
    """The client chose; answer with `connection.sasl_challenge` or `sasl_outcome`. Reading stops until then.

    The initial response is a secret and not printed.
    """

    mechanism: str
    initial_response: bytes | None = attrs.field(repr=False)
    hostname: str | None


@attrs.define(eq=False)
class SaslChallengeReceived(Event):
    """The server's challenge; answer with `connection.sasl_response`. Not printed."""

    challenge: bytes = attrs.field(repr=False)


@attrs.define(eq=False)
class SaslResponseReceived(Event):
    """The client's response; answer with `connection.sasl_challenge` or `sasl_outcome`. Not printed."""

    response: bytes = attrs.field(repr=False)


@attrs.define(eq=False)
class SaslOutcomeReceived(Event):
    """The server's verdict (5.3.3.6): code 0 is success, and `open` follows by itself."""

    code: int
    additional_data: bytes | None = attrs.field(repr=False)
