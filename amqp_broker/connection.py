"""One connection and what nodes put behind its links (`link.context`): a Sink where the peer sends, a Source
where we send.

    engine --events--> Connection --> link.context
    transfers --on_deliveries(run)--> Sink        Source <--on_credit, on_flow, on_outcomes(run)-- the peer's
    detach -----on_detached()-------> both                                          flows and dispositions
    other tasks, the writer --run_in_turn, offer--> the next turn

The task that owns it is `connection_task.ConnectionTask`; without one (in a test) `read_mail` and the events
of the engine are all that happens. Outside of its turns only `run_in_turn`, `offer` and `fail` of it may be
called, and `end` and `unblock` of what stands behind a link; who is told something elsewhere leaves mail.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from amqp_broker.authorisation import ANONYMOUS, Principal
from amqp_broker.compilation import mypyc_attr
from amqp_broker.coordinator import TransactionError
from amqp_broker.frames import Accepted, Error, TransactionalState, takes_rejected
from amqp_broker.link_names import LinkNames
from amqp_broker.links import (
    BodyLost,
    BodySent,
    CreditDrained,
    CreditReceived,
    DeliveriesReceived,
    DeliveriesSettled,
    Delivery,
    DeliveryResumed,
    FlowReceived,
    LinkDetached,
    LinkLeaving,
    OutcomesLost,
    OutcomesReceived,
    OutgoingDelivery,
    PartialDelivery,
    PartReceived,
    ReceiverLink,
    RunsReceived,
    SenderLink,
    Session,
    SessionEnded,
    StreamLost,
    StreamReceived,
    WorkLost,
    in_words,
    no_memory,
)
from amqp_broker.links import Connection as Engine
from amqp_broker.mailbox import Mailbox, nobody
from amqp_broker.nodes.refusals import LINK_ENDED, detach_error
from amqp_broker.origin import Origin
from amqp_broker.persistence import RECORD_OVERHEAD_BYTES

ACCEPTED: Final = Accepted()
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

    def at_once(self, deliveries: list[OutgoingDelivery], state: Any) -> int:
        """How many of the first of these outcomes may be given together: what one ends is over for the next.
        """
        raise AssertionError("transactions know what they hold")

    def commit_in_progress(self, deliveries: list[OutgoingDelivery]) -> bool:
        """Whether a commit that discharges one of them is in progress: their outcomes wait for its end."""
        raise AssertionError("transactions know what they hold")

    async def decided(self) -> None:
        """Wait until the commits in progress have ended."""


class Connection:
    """The broker's side of one connection: its links and what they share. `wake` has its task take a turn."""

    __slots__ = (
        "_afterwards", "_offers", "_origin", "_sending", "_wake", "account", "engine", "fault",
        "disk_waits", "held_for", "links", "log", "mail", "names", "principal", "expiring", "received",
        "postings", "rest", "runs_together", "_accepted", "_first_to_post", "_sent_before", "spent_octets",
        "transactions",
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
        self.disk_waits: list[Callable[[], Awaitable[None]]] = []
        """What is to be waited for before more is read, and did not begin yet."""
        self.received = 0
        """Deliveries, on all links so far."""
        self._sent_before = 0  # by sessions that are gone
        self.spent_octets = 0
        """The octets of maps that were worked on since others had their turn."""
        self.rest: OutcomesReceived | None = None
        """What is left of an event that is too much work at once."""
        self.runs_together = False
        """Whether what is heard now are runs of links that are apart: what they post is one operation."""
        self.postings: Any = None
        """That operation (`Postings`), while it is open."""
        self._origin: Origin | None = None  # since something was posted
        self._accepted: list[tuple[Sink, list[Delivery]]] = []
        self._first_to_post: dict[object, Sink] = {}  # by queue
        self._wake = wake
        self._offers: dict[Source, None] = {}
        self._sending: dict[SenderLink, list[Callable[[SenderLink], None]]] = {}
        self._afterwards: dict[object, tuple[Session | None, Callable[[], None]]] = {}

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

    @property
    def sent(self) -> int:
        """Deliveries, on all links so far."""
        return self._sent_before + sum([each.deliveries_sent for each in self.engine.sessions.values()])

    # From any task

    def fail(self, error: Exception) -> None:
        """A fault of the broker met what the peer asked for: the connection ends, and nobody else notices."""
        self.fault = error
        self._wake()

    def run_in_turn(self, call: Callable[..., None], *arguments: Any) -> None:
        """Have `call(*arguments)` run in a turn, where the engine may be touched."""
        self.mail.post(_call, call, arguments)

    def offer(self, source: Source) -> None:
        """Have `source.on_offer` called, once, in the next turn, if it stands behind its link: one that does
        not, whose transaction ended with its connection, would stay here.
        """
        if source.link.context is source:
            self._offers[source] = None
            self._wake()

    # In its turns

    @property
    def waiting(self) -> bool:
        """Whether there is mail."""
        return bool(self._offers) or bool(self.mail)

    def accept(self, sink: Sink, deliveries: list[Delivery]) -> None:
        """Have `sink.accepted(deliveries)` called in the next turn, when their sender was told so, together
        with all that waits for it. From any task.
        """
        self._accepted.append((sink, deliveries))
        if len(self._accepted) == 1:
            self.mail.post(self._tell_accepted)

    def _tell_accepted(self, _first: None, _second: None) -> None:
        accepted, self._accepted = self._accepted, []
        runs: dict[Session, list[tuple[ReceiverLink, list[Delivery]]]] = {}
        for sink, deliveries in accepted:
            link = sink.link
            if link.context is not None:
                runs.setdefault(link.session, []).append((link, deliveries))
        for session, each in runs.items():
            session.settle(each, ACCEPTED)
        for sink, deliveries in accepted:
            if sink.link.context is not None:
                sink.accepted(deliveries)

    def read_mail(self) -> None:
        """Do what others left to be done."""
        self.mail.read()
        if self._offers:
            offers, self._offers = self._offers, {}
            for source in offers:
                source.on_offer()

    def offer_room(self) -> None:
        """The output has room again: sources whose links could not send for lack of it go on, each in its
        turn, since the first may take all of it.
        """
        output = self.engine.output
        while (link := output.next_waiting()) is not None:
            source: Source | None = link.context
            if source is not None:
                source.on_credit()

    def when_sent(self, link: SenderLink, call: Callable[[SenderLink], None]) -> None:
        """Have `call(link)` called when `link` is not in the middle of a message any more."""
        self._sending.setdefault(link, []).append(call)

    def afterwards(self, key: object, session: Session | None, call: Callable[[], None]) -> None:
        """Have `call` called when `session` has ended; None: when the connection has. One for each `key`."""
        self._afterwards[key] = session, call

    def not_afterwards(self, key: object) -> None:
        """What was asked for with this `key` is not to be called any more."""
        self._afterwards.pop(key, None)

    def on_session_ended(self, event: SessionEnded) -> None:
        """A session is gone, after all of its links."""
        self._sent_before += event.session.deliveries_sent
        for key, (session, call) in list(self._afterwards.items()):
            if session is event.session:
                del self._afterwards[key]
                call()

    def on_ended(self) -> None:
        """The connection is gone, after all of its links and sessions."""
        while self._afterwards:
            _, (_, call) = self._afterwards.popitem()
            call()

    def let_go(self) -> None:
        """There are no turns any more, and nobody is asked about the peer's transactions."""
        self._wake = nobody
        self.expiring.clear()
        self._offers.clear()
        self.transactions = None

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
        key = self.key_of(link)
        former: Sink | Source | None = self.names.take(key, context)
        if former is not None and former.connection is not self:
            description = f"container {key[1]!r} attached {key[3]!r} on another connection"
            former.end(Error(condition="amqp:link:stolen", description=description))

    def posts_first(self, queue: object, sink: Sink) -> bool:
        """Whether `sink` is the only one of the connection that posts to `queue`, or was at first: what the
        others take keeps its place among all that comes.
        """
        return self._first_to_post.setdefault(queue, sink) is sink

    def posts_no_more(self, queue: object, sink: Sink) -> None:
        """`sink` posts to `queue` no longer."""
        if self._first_to_post.get(queue) is sink:
            del self._first_to_post[queue]

    def key_of(self, link: ReceiverLink | SenderLink) -> tuple[str, str, bool, str]:
        """What a link is known by, and whose it is: a container-id is only claimed."""
        return self.principal.rule_name, self.container_id, isinstance(link, SenderLink), link.name

    def wait_for_disk(self, until: Callable[[], Awaitable[None]]) -> None:
        """Nothing more is read until `until` is done, or the peer would count as silent; all else goes on."""
        self.disk_waits.append(until)

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
            RunsReceived: self.on_runs,
            DeliveriesSettled: self.on_settled,
            DeliveryResumed: self.on_resumed,
            PartReceived: self.on_part,
            StreamReceived: self.on_stream,
            StreamLost: self.on_stream_lost,
            BodyLost: self.on_body_lost,
            BodySent: self.on_body_sent,
            SessionEnded: self.on_session_ended,
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
            return
        sink.undecided += len(event.deliveries)
        self.received += len(event.deliveries)
        if self.account.pressed and event.link.keeps_messages:
            self._take_what_fits(sink, event.deliveries)
        else:
            sink.on_deliveries(event.deliveries)

    def on_runs(self, event: RunsReceived) -> None:
        """Runs of several links among which no order counts."""
        at = 0
        self.runs_together = True
        try:
            for run in event.runs:
                at += 1
                self.on_deliveries(run)
                if self.held_for is not None:
                    break
        finally:
            self.runs_together = False
            self.submit_postings()
        if at < len(event.runs):
            self.hold_behind(partial(self.on_runs, RunsReceived(event.runs[at:])))

    def submit_postings(self) -> None:
        """What was posted so far is one operation, and stands before what follows."""
        postings, self.postings = self.postings, None
        if postings is not None:
            postings.submit()

    def on_settled(self, event: DeliveriesSettled) -> None:
        """The sender settled what had an outcome here (mode second)."""
        sink: Sink | None = event.link.context
        if sink is not None:
            sink.on_settled(event.deliveries)

    def on_resumed(self, event: DeliveryResumed) -> None:
        """The sender resumed a delivery that is unsettled here (2.6.13)."""
        sink: Sink | None = event.link.context
        if sink is not None and not sink.ended:
            sink.undecided += 1
            sink.on_resumed(event.delivery, event.aborted)

    def on_part(self, event: PartReceived) -> None:
        """More of a large message has come; its sink may take it out of memory."""
        sink: Sink | None = event.link.context
        if sink is not None and not sink.ended and event.link.partial is event.partial:
            sink.on_part(event.partial)

    def on_stream(self, event: StreamReceived) -> None:
        """A message is complete whose parts were taken out of memory."""
        sink: Sink | None = event.link.context
        if sink is None or sink.ended:
            return  # what was taken was given up when the link ended
        sink.undecided += 1
        self.received += 1
        sink.on_stream(event.delivery, event.stream)

    def on_stream_lost(self, event: StreamLost) -> None:
        """Such a message will not be complete."""
        sink: Sink | None = event.link.context
        if sink is not None:
            sink.on_stream_lost(event.stream)

    def on_body_lost(self, event: BodyLost) -> None:
        """The rest of a message could not be had that was being sent."""
        source: Source | None = event.link.context
        if source is not None:
            source.on_body_lost(event.message, event.delivery, event.why, event.damaged)

    def on_body_sent(self, event: BodySent) -> None:
        """All of a large message that is sent settled is out."""
        source: Source | None = event.link.context
        if source is not None:
            source.on_body_sent(event.message)

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
        if self.transactions is not None:
            count = min(count, self.transactions.at_once(deliveries, event.state))
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
        return self.rest is not None or self.spent_octets >= OCTETS_AT_ONCE

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
        self.names.release(self.key_of(link), context)
        link.context = None
        self.links.pop(link, None)
        try:
            self._end(link, context, event)
        except Exception:
            link.context = context  # what it held is given back at the end of the connection
            self.links[link] = None
            raise

    def _end(self, link: ReceiverLink | SenderLink, context: Any, event: LinkDetached) -> None:
        closed = event.closed and event.error is None and not event.broken
        if isinstance(link, ReceiverLink):
            if context is not None:
                sink: Sink = context
                sink.closed = closed and not sink.ended
                sink.on_leaving()
                sink.on_detached()
            return
        self._sent(link)
        if context is not None:
            source: Source = context
            source.closed = closed and not source.ended
            source.on_detached(event.unsettled, event.broken)

    def _sent(self, link: SenderLink) -> None:
        for call in self._sending.pop(link, ()):
            call(link)


def _call(call: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    call(*arguments)


@mypyc_attr(allow_interpreted_subclasses=True)
class Sink:
    """Takes what arrives on one link. `ended`: nothing more of it is taken.

    What the peer sent before a detach of its own is taken, although the link is gone by then.
    """

    __slots__ = (
        "_waited", "closed", "coming", "connection", "ended", "left", "link", "transactions", "undecided",
    )  # fmt: skip

    def __init__(self, connection: Connection, link: ReceiverLink) -> None:
        self._waited = False
        self.coming = 0
        """Messages that were posted, and are neither stored nor refused."""
        self.left: Any = None
        """The queue that counts these by itself, since the link is gone."""
        self.connection = connection
        self.link = link
        self.ended = False
        self.undecided = 0
        """Deliveries that were taken and are not processed."""
        self.closed = False
        """Whether the peer has closed the link, and does not only leave it (2.6.4)."""
        self.transactions: Any = None
        """The `Transactions` of the connection, where what arrives may be part of one."""

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """A run of complete messages; `processed` has to follow for each, or `lose` where it ends. Not called
        once it has ended.
        """
        raise AssertionError("a sink takes messages")

    def on_settled(self, deliveries: list[Delivery]) -> None:
        """The sender has settled these, which had their outcome (mode second): it has forgotten them."""

    def on_resumed(self, delivery: Delivery, aborted: bool) -> None:
        """The sender resumed a delivery that our attach said to be unsettled."""
        raise AssertionError("who tells what is unsettled hears of it")

    def on_part(self, part: PartialDelivery) -> None:
        """More than the link's `stream_bytes` of a delivery is in memory: `link.take_parts` takes it."""
        raise AssertionError("who wants parts takes them")

    def on_stream(self, delivery: Delivery, stream: Any) -> None:
        """A delivery is complete whose parts were taken; as on_deliveries, else."""
        raise AssertionError("who takes parts takes the whole")

    def on_stream_lost(self, stream: Any) -> None:
        """Of a delivery whose parts were taken nothing more will come."""

    def on_leaving(self) -> None:
        """The peer has ended the link, or we have, at this place in the order of what it sent. The answer may
        wait for outcomes that are under way, which are still heard; called again when the link is gone.
        """

    def on_detached(self) -> None:
        """The link is gone: no answer that is under way reaches it."""

    def on_posted(self, posting: Any, error: Exception | None) -> None:
        """What was posted for this link was stored, or why it was not. From any task."""

    def accepted(self, deliveries: list[Delivery]) -> None:
        """Their sender was told that these are accepted."""
        self.processed(len(deliveries))

    def unblock(self) -> None:
        """There is room again in what the sink waits for. From any task."""

    # For a queue whose credit is scarce (`CreditShares`); from any task

    def out(self) -> int:
        """How many messages its peer may still send, or has sent without being told an outcome."""
        return 0

    def offered(self, count: int) -> int:
        """There is room for `count` messages, and it waits: how many it takes. Less than 0: it waits on."""
        if count <= 0:
            return -1
        self.unblock()
        return 0

    def period_over(self, waits: bool) -> None:
        """Its peer has had its credit for a period; `waits`: others have none."""

    def on_drained(self) -> None:
        """The peer has given its credit back. In a turn of its connection."""

    # For those who make sinks

    @property
    def attached(self) -> bool:
        """Whether the link has something behind it: else nobody hears an answer."""
        return self.link.context is not None

    def held(self, rest: list[Delivery]) -> bool:
        """Whether what was done last is waited for: then the `rest` of its run follows it."""
        if self.connection.held_for is None:
            return False
        if rest:
            self.connection.hold_behind(partial(self.on_deliveries, rest))
        return True

    def behind_store(self, rest: list[Delivery]) -> bool:
        """Whether `rest`, which names a transaction, comes behind something on its link that is not decided:
        if that is refused, the link may end, and `rest` is lost. So it is heard when that is known.
        """
        waited, self._waited = self._waited, False
        if waited or self.link.context is not self or self.undecided <= len(rest):
            return False
        self.connection.hold(partial(self._hear_after_commit, rest))
        return True

    async def _hear_after_commit(self, rest: list[Delivery]) -> None:
        await self.transactions.decided()
        if self.ended or not self.attached:
            self.lose(rest)
            return
        self._waited = True
        self.on_deliveries(rest)

    def processed(self, count: int) -> None:
        """`count` deliveries are done with: credit is renewed."""
        self.undecided -= count
        self.link.processed(count)

    def refuse(self, deliveries: list[Delivery], error: Error) -> None:
        """These messages are not taken: rejected where the sender listens, else the link is detached (fail
        fast).
        """
        hears = takes_rejected(self.link.source)
        for delivery in deliveries:
            if delivery.settled or not hears:
                self.detach(detach_error(self.link.target, error, delivery.delivery_tag))
                return
        self.link.reject(deliveries, error)
        self.processed(len(deliveries))

    def refuse_each(self, deliveries: list[Delivery], error: Error) -> None:
        """These messages are not taken, whether they are in transactions or not: each is rejected where the
        sender listens, else the link is detached.
        """
        for at, delivery in enumerate(deliveries):
            state = delivery.state
            if self.ended:
                self.lose(deliveries[at:])
                return
            if self.transactions is None or not isinstance(state, TransactionalState):
                self.refuse([delivery], error)
                continue
            try:
                transaction = self.transactions.find(state.txn_id)
            except TransactionError as unknown:
                self.detach(unknown.error())
                continue
            self.transactions.refuse_posts(transaction, self.link, [delivery], error)
            self.processed(1)

    def detach(self, error: Error) -> None:
        """End the link: nothing more that arrived on it is taken."""
        self.ended = True
        self.link.detach(error)
        self.on_leaving()

    def lose(self, deliveries: list[Delivery], why: str = LINK_ENDED) -> None:
        """Nobody takes these messages: the transactions that they name can't be committed."""
        self.connection.lose(self.link, deliveries, why)

    def end(self, error: Error) -> None:
        """Have the link ended. From any task."""
        self.connection.run_in_turn(self._end, error)

    def _end(self, error: Error) -> None:
        if self.attached and not self.ended:
            self.detach(error)


@mypyc_attr(allow_interpreted_subclasses=True)
class Source:
    """Gives what is sent on one link. `ended`: what the peer says of it is not heard any more, wherever the
    read that told it ended.
    """

    __slots__ = ("closed", "connection", "ended", "link")

    def __init__(self, connection: Connection, link: SenderLink) -> None:
        self.connection = connection
        self.link = link
        self.ended = False
        self.closed = False
        """Whether the peer has closed the link, and does not only leave it (2.6.4)."""

    def on_credit(self) -> None:
        """Credit or drain changed, or there is room again."""

    def on_body_lost(
        self, message: Any, delivery: OutgoingDelivery | None, why: str, damaged: bool
    ) -> None:  # fmt: skip
        """The rest of a message could not be had while it was being sent: that was aborted."""

    def on_body_sent(self, message: Any) -> None:
        """All of a large message that is sent settled is out."""

    def on_offer(self) -> None:
        """Something may have come for this link: what `connection.offer` asked for."""

    def on_flow(self, txn_id: object) -> None:
        """A flow named a transaction for what is acquired from now on, or none after one (4.4.3)."""
        description = "nothing is acquired on this link, so no transaction can acquire on it (4.4.3)"
        self.detach(Error(condition="amqp:not-implemented", description=description))

    def on_outcomes(self, deliveries: list[OutgoingDelivery], state: Any, settled: bool) -> None:
        """The receiver gave a run of deliveries this state."""

    def at_once(self, deliveries: list[OutgoingDelivery], state: Any) -> int:
        """How many of the first of them `on_outcomes` may be given before others have a turn: at least one.
        What they cost is `spent_octets` of the connection.
        """
        return len(deliveries)

    def on_detached(self, unsettled: list[OutgoingDelivery], broken: bool) -> None:
        """The link is gone; `unsettled` is what was sent on it and nobody settled. `broken`: its peer went
        without a word.
        """

    @property
    def attached(self) -> bool:
        """Whether the link has something behind it."""
        return self.link.context is not None

    def end(self, error: Error) -> None:
        """Have the link ended. From any task."""
        self.connection.run_in_turn(self._end, error)

    def detach(self, error: Error) -> None:
        """End the link. What the peer has settled and is not heard of any more is `unheard`."""
        self.ended = True
        self.link.detach(error)

    def lose(self, deliveries: list[OutgoingDelivery], state: Any, why: str) -> None:
        """Nothing is done with what the peer says of these deliveries: a transaction that it names can't be
        committed.
        """
        self.connection.lose_outcomes(self.link, deliveries, state, why)

    def unheard(self, deliveries: list[OutgoingDelivery]) -> None:
        """The peer settled these on a link that had ended: they are as good as never answered."""

    def _end(self, error: Error) -> None:
        if self.attached and not self.ended:
            self.detach(error)
