"""One connection, as what stands behind its links knows it: the engine, the mail, and who waits for a turn.

    engine --events--> Connection --> link.context, a Sink or a Source
    other tasks, the writer --run_in_turn, offer--> the next turn

The task that owns it is `connection_task.ConnectionTask`; without one (in a test) `read_mail` and the events
of the engine are all that happens. Outside of its turns only `run_in_turn`, `offer` and `fail` may be called.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from amqp_broker.authorisation import ANONYMOUS, Principal
from amqp_broker.compilation import mypyc_attr
from amqp_broker.frames import Error, TransactionalState
from amqp_broker.link_names import LinkNames
from amqp_broker.links import Connection as Engine
from amqp_broker.links import (
    CreditDrained,
    CreditReceived,
    DeliveriesReceived,
    Delivery,
    FlowReceived,
    LinkDetached,
    LinkLeaving,
    OutcomesLost,
    OutcomesReceived,
    ReceiverLink,
    SenderLink,
    WorkLost,
    in_words,
    no_memory,
)
from amqp_broker.mailbox import Mailbox
from amqp_broker.message_events import Origin
from amqp_broker.nodes.refusals import LINK_ENDED
from amqp_broker.persistence import RECORD_OVERHEAD_BYTES

if TYPE_CHECKING:
    from amqp_broker.links import OutgoingDelivery
    from amqp_broker.nodes.ends import Sink, Source

OCTETS_AT_ONCE: Final = 65_536  # of maps that are read and written before others have their turn: about 5 ms


@mypyc_attr(allow_interpreted_subclasses=True)
class Expiring:
    """Something of one connection that has deadlines, in trio's time."""

    __slots__ = ()

    def next_deadline(self) -> float | None:
        """When `expire` is worth a call."""
        return None

    def expire(self, now: float) -> None:
        """Do what is due; a spurious call is harmless."""


@mypyc_attr(allow_interpreted_subclasses=True)
class TransactionalWork(Expiring):
    """The transactions of one connection, as it knows them: it tells what of their work is lost."""

    __slots__ = ()

    def lose(self, txn_id: object, part: str, why: str) -> None:
        """Work that named a transaction is not done: that can't be committed without it."""

    def lose_outcomes(self, event: OutcomesLost) -> None:
        """An outcome in a transaction for deliveries that are not unsettled any more."""

    def commit_in_progress(self, deliveries: list[OutgoingDelivery]) -> bool:
        """Whether a commit that discharges one of them is in progress: their outcomes wait for its end."""
        raise AssertionError("transactions know what they hold")

    async def decided(self) -> None:
        """Wait until the commits in progress have ended."""


class Connection:
    """The broker's side of one connection: its links and what they share. `wake` has its task take a turn."""

    __slots__ = (
        "_offers", "_origin", "_sending", "_stalled", "_wake", "account", "engine", "fault", "held_for",
        "links", "log", "mail", "names", "principal", "expiring", "rest", "spent_octets", "transactions",
    )  # fmt: skip

    def __init__(self, engine: Engine, names: LinkNames, log: Any, wake: Callable[[], None]) -> None:
        self.engine = engine
        self.account = engine.settings.account
        self.names = names
        self.log = log
        self.principal: Principal = ANONYMOUS
        self.mail = Mailbox(wake)
        self.links: dict[ReceiverLink | SenderLink, None] = {}
        """The links that something stands behind."""
        self.expiring: dict[Expiring, None] = {}
        self.transactions: TransactionalWork | None = None
        """The transactions that its peer declares."""
        self.fault: Exception | None = None
        """The fault of the broker that met what the peer asked for."""
        self.held_for: Callable[[], Awaitable[None]] | None = None
        """What has to be done before anything else is heard that the peer said."""
        self.spent_octets = 0
        """The octets of maps that were worked on since others had their turn."""
        self.rest: OutcomesReceived | None = None
        """What is left of an event that is too much work at once."""
        self._origin: Origin | None = None  # since something was posted
        self._wake = wake
        self._offers: dict[Source, None] = {}
        self._stalled: dict[Source, None] = {}
        self._sending: dict[SenderLink, list[Callable[[SenderLink], None]]] = {}

    @property
    def container_id(self) -> str:
        """The peer's container-id, from its open."""
        remote_open = self.engine.remote_open
        return "" if remote_open is None else remote_open.container_id or ""

    @property
    def origin(self) -> Origin:
        """The origin of what its peer posts outside of transactions."""
        if self._origin is None:
            self._origin = Origin(self.container_id, b"")
        return self._origin

    # From any task

    def fail(self, error: Exception) -> None:
        """A fault of the broker met what the peer asked for: the connection ends, and nobody else notices."""
        self.fault = error
        self._wake()

    def run_in_turn(self, call: Callable[..., None], *arguments: Any) -> None:
        """Have `call(*arguments)` run in a turn, where the engine may be touched."""
        self.mail.post(_call, call, arguments)

    def offer(self, source: Source) -> None:
        """Have `source.on_offer` called, once, in the next turn."""
        self._offers[source] = None
        self._wake()

    # In its turns

    @property
    def waiting(self) -> bool:
        """Whether there is mail."""
        return bool(self._offers) or bool(self.mail)

    @property
    def stalled(self) -> bool:
        """Whether a source waits for the output."""
        return bool(self._stalled)

    def read_mail(self) -> None:
        """Do what others left to be done."""
        self.mail.read()
        if self._offers:
            offers, self._offers = self._offers, {}
            for source in offers:
                source.on_offer()

    def wait_for_output(self, source: Source) -> None:
        """Have `source.on_credit` called when the output has room again."""
        self._stalled[source] = None

    def offer_stalled(self) -> None:
        """The output has room again: sources that could not send for lack of it go on."""
        if self._stalled:
            stalled, self._stalled = self._stalled, {}
            for source in stalled:
                if source.link.context is source:
                    source.on_credit()

    def when_sent(self, link: SenderLink, call: Callable[[SenderLink], None]) -> None:
        """Have `call(link)` called when `link` is not in the middle of a message any more."""
        self._sending.setdefault(link, []).append(call)

    def next_deadline(self) -> float | None:
        """The earliest of all that have deadlines."""
        earliest: float | None = None
        for expiring in self.expiring:
            deadline = expiring.next_deadline()
            if deadline is not None and (earliest is None or deadline < earliest):
                earliest = deadline
        return earliest

    def expire(self, now: float) -> None:
        """Have everything done that is due."""
        for expiring in list(self.expiring):
            expiring.expire(now)

    # Links, and what stands behind them

    def serve(self, link: ReceiverLink | SenderLink, context: Sink | Source) -> None:
        """From now on `context` stands behind `link`, which has its name among all connections (2.6.1)."""
        link.context = context
        self.links[link] = None
        self.names.take(self._key(link), context)

    def _key(self, link: ReceiverLink | SenderLink) -> tuple[str, str, bool, str]:
        """What a link is known by, and whose it is: a container-id is only claimed."""
        return self.principal.rule_name, self.container_id, isinstance(link, SenderLink), link.name

    def hold(self, until: Callable[[], Awaitable[None]]) -> None:
        """What the peer said behind this is heard when `until` is done; said while it is heard."""
        assert self.held_for is None, "one thing at a time is waited for"
        self.held_for = until

    def hold_behind(self, call: Callable[[], None]) -> None:
        """`call` belongs to what is heard now, and follows what is waited for."""
        self.hold(partial(self._behind, self.released(), call))

    async def _behind(self, until: Callable[[], Awaitable[None]], call: Callable[[], None]) -> None:
        await until()
        if self.held_for is None:
            call()
        else:  # there was more to wait for
            self.hold_behind(call)

    def released(self) -> Callable[[], Awaitable[None]]:
        """What the rest waits for, to be done now; it may hold it again."""
        until, self.held_for = self.held_for, None
        assert until is not None, "nothing is held"
        return until

    def handlers(self) -> dict[type, Callable[[Any], None]]:
        """What is called with which event of the engine."""
        return {
            DeliveriesReceived: self.on_deliveries,
            OutcomesReceived: self.on_outcomes,
            CreditReceived: self.on_credit,
            CreditDrained: self.on_drained,
            FlowReceived: self.on_flow,
            LinkDetached: self.on_detached,
            LinkLeaving: self.on_leaving,
            WorkLost: self.on_work_lost,
            OutcomesLost: self.on_outcomes_lost,
        }

    def on_deliveries(self, event: DeliveriesReceived) -> None:
        """A run of complete messages on one link."""
        sink: Sink | None = event.link.context
        if sink is None or sink.ended:
            self.lose(event.link, event.deliveries, LINK_ENDED)
        elif self.account.pressed and event.link.keeps_messages:
            self._take_what_fits(sink, event.deliveries)
        else:
            sink.on_deliveries(event.deliveries)

    def on_leaving(self, event: LinkLeaving) -> None:
        """The peer has left a link on which it sent, and waits for the last outcomes."""
        sink: Sink | None = event.link.context
        if sink is not None:
            sink.on_leaving()

    def lose(self, link: ReceiverLink, deliveries: list[Delivery], why: str) -> None:
        """Messages that nobody takes: the transactions that they name can't be committed without them."""
        for delivery in deliveries:
            if type(delivery.state) is TransactionalState:
                part = f"delivery {delivery.delivery_id} on link {link.name[:64]!r}"
                self.lose_work(delivery.state.txn_id, part, why)

    def lose_outcomes(
        self, link: SenderLink, deliveries: list[OutgoingDelivery], state: Any, why: str
    ) -> None:
        """Outcomes that are not done: the transaction that they name can't be committed without them."""
        if type(state) is TransactionalState and deliveries:
            first, last = deliveries[0].delivery_id, deliveries[-1].delivery_id
            part = f"the outcome of {in_words(first, last)} on link {link.name[:64]!r}"
            self.lose_work(state.txn_id, part, why)

    def lose_work(self, txn_id: object, part: str, why: str) -> None:
        """A part of a transaction is lost, so it can't be committed."""
        if self.transactions is not None:
            self.transactions.lose(txn_id, part, why)

    def on_work_lost(self, event: WorkLost) -> None:
        """A transfer that named a transaction was dropped."""
        self.lose_work(event.txn_id, event.part, event.why)

    def on_outcomes_lost(self, event: OutcomesLost) -> None:
        """Some of the deliveries to which a transaction gave an outcome are not there any more."""
        if self.transactions is not None:
            self.transactions.lose_outcomes(event)

    def _take_what_fits(self, sink: Sink, deliveries: list[Delivery]) -> None:
        """Memory is short: what of a run is too much is refused."""
        count = octets = 0
        for delivery in deliveries:
            octets += len(delivery.payload) + RECORD_OVERHEAD_BYTES
            if not self.account.fits(octets):
                break
            count += 1
        if count:
            sink.on_deliveries(deliveries[:count])
        rest = deliveries[count:]
        if rest and self.held_for is None:
            self._refuse(sink, rest)
        elif rest:
            self.hold_behind(partial(self._refuse, sink, rest))

    def _refuse(self, sink: Sink, deliveries: list[Delivery]) -> None:
        description = no_memory(self.account, f"a message on link {sink.link.name[:64]!r}")
        error = Error(condition="amqp:resource-limit-exceeded", description=description)
        sink.refuse_each(deliveries, error)

    def on_outcomes(self, event: OutcomesReceived) -> None:
        """A run of deliveries got the same state from their receiver. While there is a `rest`, or much was
        `spent_octets`, others are to have a turn, and then `go_on` has to follow.
        """
        source: Source | None = event.link.context
        deliveries = event.deliveries
        if source is None or source.ended:
            self.lose_outcomes(event.link, deliveries, event.state, LINK_ENDED)
            if source is not None and event.settled:
                source.unheard(deliveries)
            return
        if self.transactions is not None and self.transactions.commit_in_progress(deliveries):
            self.hold(partial(self._hear_after_commit, event))
            return
        count = source.at_once(deliveries, event.state)
        if count < len(deliveries):
            self.rest = OutcomesReceived(event.link, deliveries[count:], event.state, event.settled)
            deliveries = deliveries[:count]
        source.on_outcomes(deliveries, event.state, event.settled)

    async def _hear_after_commit(self, event: OutcomesReceived) -> None:
        assert self.transactions is not None, "only transactions have a commit in progress"
        await self.transactions.decided()
        self.on_outcomes(event)

    @property
    def pauses(self) -> bool:
        """Whether others are to have a turn before the next event."""
        return self.spent_octets >= OCTETS_AT_ONCE

    def go_on(self) -> None:
        """Others had their turn."""
        self.spent_octets = 0
        rest, self.rest = self.rest, None
        if rest is not None:
            self.on_outcomes(rest)

    def unheard(self, event: OutcomesReceived) -> None:
        """A fault of the broker kept it from being heard, or from being heard to its end."""
        source: Source | None = event.link.context
        if source is not None:
            source.unheard(event.deliveries)

    def on_credit(self, event: CreditReceived) -> None:
        """Credit or drain of a link on which we send changed, or it may send again."""
        link = event.link
        if self._sending and not link.sending:
            self._sent(link)
        source: Source | None = link.context
        if source is not None:
            source.on_credit()

    def on_drained(self, event: CreditDrained) -> None:
        """The peer gave back the credit of a link on which it sends."""
        sink: Sink | None = event.link.context
        if sink is not None:
            sink.on_drained()

    def on_flow(self, event: FlowReceived) -> None:
        """A flow of a link on which we send named a transaction, or none after one (4.4.3)."""
        source: Source | None = event.link.context
        if source is not None:
            source.on_flow(event.txn_id)

    def on_detached(self, event: LinkDetached) -> None:
        """A link is gone. After a fault of the broker it may be told once more."""
        link = event.link
        context = link.context
        self.names.release(self._key(link), context)
        link.context = None
        self.links.pop(link, None)
        try:
            self._end(link, context, event)
        except Exception:
            link.context = context  # what it held is given back at the end of the connection
            self.links[link] = None
            raise

    def _end(self, link: ReceiverLink | SenderLink, context: Any, event: LinkDetached) -> None:
        if isinstance(link, ReceiverLink):
            if context is not None:
                sink: Sink = context
                sink.on_leaving()
                sink.on_detached()
            return
        self._sent(link)
        if context is not None:
            source: Source = context
            self._stalled.pop(source, None)
            source.on_detached(event.unsettled, event.broken)

    def _sent(self, link: SenderLink) -> None:
        for call in self._sending.pop(link, ()):
            call(link)


def _call(call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    call(*arguments)
