"""What a node puts behind one link (`link.context`): a Sink where the peer sends, a Source where we send.

    transfers --on_deliveries(run)--> Sink        Source <--on_credit, on_flow, on_outcomes(run)-- the peer's
    detach -----on_detached()-------> both                                          flows and dispositions

The connection calls them in its own turns, with runs of messages. `end` and `unblock` may be called from any
task; a sink or source that is told something elsewhere leaves mail for its connection (`run_in_turn`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from amqp_broker.compilation import mypyc_attr
from amqp_broker.coordinator import TransactionError
from amqp_broker.frames import Error, Rejected, TransactionalState, takes_rejected
from amqp_broker.links import Delivery, OutgoingDelivery, ReceiverLink, SenderLink
from amqp_broker.nodes.refusals import LINK_ENDED, detach_error

if TYPE_CHECKING:
    from amqp_broker.connection import Connection


@mypyc_attr(allow_interpreted_subclasses=True)
class Sink:
    """Takes what arrives on one link. `ended`: nothing more of it is taken.

    What the peer sent before a detach of its own is taken, although the link is gone by then.
    """

    __slots__ = ("_waited", "connection", "ended", "link", "transactions")

    def __init__(self, connection: Connection, link: ReceiverLink) -> None:
        self._waited = False
        self.connection = connection
        self.link = link
        self.ended = False
        self.transactions: Any = None
        """The `Transactions` of the connection, where what arrives may be part of one."""

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """A run of complete messages; `processed` has to follow for each, or `lose` where it ends. Not called
        once it has ended.
        """
        raise AssertionError("a sink takes messages")

    def on_leaving(self) -> None:
        """The peer has ended the link, or we have, at this place in the order of what it sent. The answer may
        wait for outcomes that are under way, which are still heard; called again when the link is gone.
        """

    def on_detached(self) -> None:
        """The link is gone: no answer that is under way reaches it."""

    def on_posted(self, posting: Any, error: Exception | None) -> None:
        """What was posted for this link was stored, or why it was not. From any task."""

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
        if waited or self.link.context is not self or self.link.flow_state.unprocessed <= len(rest):
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
        self.link.settle(deliveries, Rejected(error=error))
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

    __slots__ = ("connection", "ended", "link")

    def __init__(self, connection: Connection, link: SenderLink) -> None:
        self.connection = connection
        self.link = link
        self.ended = False

    def on_credit(self) -> None:
        """Credit or drain changed, or there is room again."""

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
