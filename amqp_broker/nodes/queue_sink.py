"""What a client posts to a queue: from the transfers of a link to the writer, and the answers.

    run --record_of--> records --rule.take?--> a feature that has a say in it
                         +--> Posting, or part of the transaction that the run names

Everything here but `unblock` and `on_posted` runs in a turn of the connection, and waits for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from amqp_broker.compilation import mypyc_attr
from amqp_broker.connection import Connection, Sink
from amqp_broker.coordinator import TransactionError
from amqp_broker.delivery_times import DeliveryTimes
from amqp_broker.frames import DecodeError, Error, TransactionalState
from amqp_broker.judged_queue import JudgedQueue, too_large_error
from amqp_broker.links import Delivery, PartialDelivery, ReceiverLink, no_memory
from amqp_broker.nodes.incoming_bodies import IncomingBody, begin_body
from amqp_broker.nodes.refusals import refusal_of
from amqp_broker.operations.operation import Refused, error_of
from amqp_broker.operations.posting import BodyPosting, Posting, Postings
from amqp_broker.persistence import Record
from amqp_broker.queue import Queue, deleted_error
from amqp_broker.records import record_of, store_all

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.coordinator import Transaction
    from amqp_broker.transactions import Transactions

FOOTER_COPIES: Final = 2  # as it came, and what it says


@mypyc_attr(allow_interpreted_subclasses=True)
class PostRule:
    """What a feature has to say about the messages of one link before they are posted."""

    __slots__ = ()

    def wants_all(self, queue: Queue) -> bool:
        """Whether also messages without annotations and application properties have to be shown to `take`."""
        return False

    def take(
        self, sink: QueueSink, deliveries: list[Delivery], records: list[Record],
        transaction: Transaction | None,
    ) -> bool:  # fmt: skip
        """Have a run stored by other means; False: it is posted as any other."""
        return False

    def concerns(self, queue: Queue, head: bytes) -> bool:
        """Whether `take` might have a message stored by other means that begins with these sections."""
        return True

    def on_detached(self) -> None:
        """The link is gone."""


class QueueSink(Sink):
    """One link that sends to a queue. `transactions` are those of its connection."""

    __slots__ = (
        "_asked_back", "_given", "_granted", "_incoming", "_nodes", "_rule", "_rule_wants_all", "_seen",
        "_times", "credit", "queue",
    )  # fmt: skip

    def __init__(
        self, connection: Connection, link: ReceiverLink, queue: Queue, nodes: BrokerNodes,
        transactions: Transactions, rule: PostRule | None,
    ) -> None:  # fmt: skip
        super().__init__(connection, link)
        self.queue = queue
        self.credit = nodes.config.limits.link_credit
        self._granted = 0  # more credit, that its peer is told of in the next turn
        self._given = 0  # by the last grant
        self._seen = -1  # deliveries when the last period was over
        self._asked_back = 0  # for so many periods
        self.transactions = transactions
        link.keeps_messages = True
        self._nodes = nodes
        self._rule = rule
        self._rule_wants_all = rule is not None and rule.wants_all(queue)
        self._times = DeliveryTimes(nodes.clock.time_of)
        self._incoming: IncomingBody | None = None  # the large message that is on its way

    def begin(self) -> int:
        """The link begins to post; the credit that it begins with."""
        queue = self.queue
        shares = self._nodes.shares_of(queue)
        queue.produce(self, self.credit)
        plain = type(queue) is Queue and not queue.events  # the journal tells the order over all queues
        if type(self) is QueueSink and queue.may_stream():
            self.link.stream_bytes = self._nodes.config.limits.stream_body_bytes
        self.link.apart = plain and self.connection.posts_first(queue, self)
        if not queue.scarce:
            return self.credit
        queue.blocked.append(self)
        shares.share()
        return 0

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """A run of complete messages."""
        if self.queue.deleted:
            self.lose(deliveries, "its queue was deleted")
            self.detach(deleted_error(self.queue))
            return
        for delivery in deliveries:
            if delivery.state is not None:
                self._post_by_state(deliveries)
                return
        self._post_run(deliveries, None)

    def _post_by_state(self, deliveries: list[Delivery]) -> None:
        """Some of the run name transactions: each stretch of one transaction, or of none, for itself."""
        self.connection.submit_postings()
        start = 0
        while start < len(deliveries) and not self.ended:
            txn_id = txn_id_of(deliveries[start])
            end = start + 1
            state = deliveries[start].state
            while end < len(deliveries) and (
                deliveries[end].state is state or txn_id_of(deliveries[end]) == txn_id
            ):
                end += 1
            transaction = None
            if txn_id is not None:
                if self.behind_store(deliveries[start:]):
                    return
                try:
                    transaction = self.transactions.find(txn_id)
                except TransactionError as error:
                    self.detach(error.error())
                    break  # nothing is stored outside of the transaction that was meant
            self._post_run(deliveries[start:end], transaction)
            start = end
        self.lose(deliveries[start:])

    def _post_run(self, deliveries: list[Delivery], transaction: Transaction | None) -> None:
        queue = self.queue
        postings = self.connection.postings
        now_ms: int = self._nodes.clock.now_ms() if postings is None else postings.now_ms
        persistent = queue.persistent
        queue_id = queue.queue_id
        times = self._times
        with_maps: list[bytes] = []
        try:
            records = [
                record_of(d.payload, d.message_format, now_ms, queue_id, persistent, with_maps, times)
                for d in deliveries
            ]
        except DecodeError:
            self._post_around_malformed(deliveries, now_ms, transaction)
            return
        self._post(deliveries, records, transaction, with_maps)

    def _post_around_malformed(
        self, deliveries: list[Delivery], now_ms: int, transaction: Transaction | None
    ) -> None:
        """Messages with malformed sections are refused; what stands between them is taken, in order, as long
        as the link is there.
        """
        queue = self.queue
        begin = 0
        records: list[Record] = []
        with_maps: list[bytes] = []
        for at, delivery in enumerate(deliveries):
            try:
                records.append(
                    record_of(
                        delivery.payload,
                        delivery.message_format,
                        now_ms,
                        queue.queue_id,
                        queue.persistent,
                        with_maps,
                        self._times,
                    )
                )
            except DecodeError as error:
                if records:
                    self._post(deliveries[begin:at], records, transaction, with_maps)
                if not self.ended:
                    self.refuse_each([delivery], refusal_of(error))
                if self.ended:
                    self.lose(deliveries[at + 1 :])
                    return
                begin, records, with_maps = at + 1, [], []
        if records:
            self._post(deliveries[begin:], records, transaction, with_maps)

    def _post(
        self,
        deliveries: list[Delivery],
        records: list[Record],
        transaction: Transaction | None,
        with_maps: list[bytes],
    ) -> None:
        queue = self.queue
        connection = self.connection
        if self._times.waits:
            connection.submit_postings()
            self._times.waits = False
            queue.expect_delays()
        if with_maps:
            self._nodes.writer.watcher.came(queue, records)
        if queue.stores_all:
            store_all(records)
        rule = self._rule
        if rule is not None and (with_maps or self._rule_wants_all):
            connection.submit_postings()
            if self._taken(rule, deliveries, records, transaction):
                return
        if transaction is not None:
            self.transactions.post(transaction, self, deliveries, queue, records)
            return
        posting = self._posting(deliveries, records)
        joins = type(posting) is Posting  # others may be refused, each for itself
        if not joins:
            connection.submit_postings()
        if connection.postings is not None:
            connection.postings.join(posting)
        elif not posting.waits:
            posting.at_once()
        elif joins and connection.runs_together:
            connection.postings = Postings(self._nodes, connection, posting)
        else:
            self._nodes.writer.collect(posting)

    def _posting(self, deliveries: list[Delivery], records: list[Record]) -> Posting:
        """What has a run stored that is in no transaction."""
        connection = self.connection
        return Posting(
            self._nodes, self.queue, records, connection.origin, self, deliveries, account=connection.account
        )

    # A large message, piece by piece

    def on_part(self, part: PartialDelivery) -> None:
        """More of a large message has come: to its file with it, unless it has to be whole in memory."""
        incoming = self._incoming
        if incoming is None:
            if part.taken_bytes or self.queue.deleted or not self.queue.may_stream():
                return  # there may be an events journal by now, say
            concerns = None if self._rule is None else self._rule.concerns
            most_bytes = self.link.max_message_size
            incoming = self._incoming = begin_body(self._nodes, self.queue, concerns, part, most_bytes)
            if incoming is None:
                return  # it stays in memory until it is complete
        incoming.take(self.link.take_parts(part, incoming))
        if incoming.behind:
            self.connection.wait_for_disk(incoming.sync)

    def on_stream(self, delivery: Delivery, stream: Any) -> None:
        """All of it is there; its commit has it on the disk."""
        incoming: IncomingBody = stream
        incoming.take([delivery.payload])
        self._look_for_memory(incoming)
        record = incoming.finished()
        self._incoming = None
        if self.queue.deleted and incoming.error is None:
            incoming.error = Refused(deleted_error(self.queue))
        if incoming.error is not None or record is None:
            assert incoming.error is not None, "there is a record, or a reason why not"
            incoming.over(stored=False)
            self._refuse_body(delivery, incoming.error)
            return
        self.queue.large = True
        try:
            if incoming.has_maps:
                self._nodes.writer.watcher.came(self.queue, [record])
            posting = BodyPosting(
                self._nodes, self.queue, record, self.connection.origin, self, delivery, incoming.over
            )
            self._nodes.writer.collect(posting, heavy=True)
        except BaseException:
            incoming.over(stored=False)
            raise

    def _look_for_memory(self, incoming: IncomingBody) -> None:
        """Refuse one with a footer that has no place in memory, where it is looked at."""
        account = self.connection.account
        octets = incoming.footer_bytes * FOOTER_COPIES
        if octets and incoming.error is None and not account.fits(octets):
            description = no_memory(account, f"the footer of a message on link {self.link.name[:64]!r}")
            error = Error(condition="amqp:resource-limit-exceeded", description=description)
            incoming.error = Refused(error)

    def _refuse_body(self, delivery: Delivery, error: Exception) -> None:
        if self.ended:
            self.lose([delivery])
        elif isinstance(error, DecodeError):
            self.refuse_each([delivery], refusal_of(error))
        elif self.attached:
            self.refuse([delivery], error_of(error))

    def on_stream_lost(self, stream: Any) -> None:
        """Its sender has aborted it."""
        if stream is self._incoming:
            self._incoming = None
        stream.over(stored=False)

    def _taken(
        self, rule: PostRule, deliveries: list[Delivery], records: list[Record],
        transaction: Transaction | None,
    ) -> bool:  # fmt: skip
        """Whether the rule has a run stored by other means."""
        return rule.take(self, deliveries, records, transaction)

    # From any task

    def on_posted(self, posting: Any, error: Exception | None) -> None:
        """A posting was committed, or refused by the store."""
        if error is None:
            self.connection.accept(self, posting.deliveries)
        else:
            self.connection.mail.post(self._refused, posting.deliveries, error)

    def unblock(self) -> None:
        """The queue has room again."""
        self.connection.run_in_turn(self._unblock)

    # In the turn after that

    def _refused(self, deliveries: list[Delivery], error: Exception) -> None:
        """Tell the sender, if it is there."""
        if self.attached:
            self.refuse(deliveries, error_of(error))

    def processed(self, count: int) -> None:
        """`count` deliveries are done with: credit is renewed, as far as the queue has room."""
        if not self.attached:
            return
        super().processed(count)
        if self.queue.scarce:
            self._wait_for_credit()
            self._nodes.drained(self.queue)

    # Credit, while it is scarce

    @property
    def blocked(self) -> bool:
        """Whether the sink waits for credit."""
        return self in self.queue.blocked

    def out(self) -> int:
        """How many messages its peer may still send, of all the credit that it was ever given, and how many
        are not decided.
        """
        flow = self.link.flow_state
        return max(0, flow.acceptable()) + flow.unprocessed + self._granted

    def _wait_for_credit(self) -> None:
        """Wait for credit: the peer has used up half of what it was given, or the queue has no room for what
        it may send.
        """
        link = self.link
        if link.credit > 0 and self.queue.octets_full():
            link.flow(0)
        if link.credit * 2 <= self._given and not self._granted and not self.blocked:
            self.queue.blocked.append(self)

    def offered(self, count: int) -> int:
        """Take credit for the peer, who is told in the next turn. What was taken back from it is its own
        again.
        """
        flow = self.link.flow_state
        bound = min(self.credit, flow.unsettled_limit - flow.unsettled) - self.out()
        count = min(count, bound)
        if self._asked_back or self.queue.octets_full():
            return -1
        if count <= 0 and flow.acceptable() <= flow.outstanding:
            return -1
        self._granted = max(0, count)
        self.connection.run_in_turn(self._grant)
        return self._granted

    def _grant(self) -> None:
        granted, self._granted = self._granted, 0
        if self.attached:
            self._given = max(0, self.link.flow_state.acceptable()) + granted
            self.link.flow(self._given)

    def period_over(self, waits: bool) -> None:
        """Ask for unused credit, take it a period later, and have it for others after one more."""
        flow = self.link.flow_state
        used = flow.delivery_count != self._seen
        self._seen = flow.delivery_count
        if not self.attached or self._granted:
            return
        if flow.acceptable() <= 0:
            self._asked_back = 0
            if not flow.unprocessed and not self.blocked:
                self.queue.blocked.append(self)
        elif used or not waits:
            self._asked_back = 0
            self._wait_for_credit()  # what was taken back, and nobody wants, is its own again
        elif self._asked_back < 2:
            self._asked_back += 1
            self.connection.run_in_turn(self._ask_back)
        else:
            self._asked_back = 0
            flow.forfeit()
            self._wait_for_credit()

    def _ask_back(self) -> None:
        link = self.link
        if self.attached and self._asked_back:
            if self._asked_back == 1 and link.credit > 0:
                link.flow(link.credit, drain=True)
            else:
                link.flow(0)

    def on_drained(self) -> None:
        """The credit that the peer gave back goes to others; the sink waits behind them."""
        self._asked_back = 0
        if self.queue.scarce:
            self._wait_for_credit()
            self._nodes.drained(self.queue)

    def _unblock(self) -> None:
        if not self.attached:
            return
        self._asked_back = 0
        if self.queue.scarce:  # again
            self._wait_for_credit()
            self._nodes.drained(self.queue)
        else:
            self.link.set_credit(self.credit)

    def on_leaving(self) -> None:
        """A dynamic node may go with the link, before anything that came behind its detach is taken."""
        if self.queue.lifetime is not None:
            self.queue.produce_no_more(self)
            self._nodes.left(self.queue, self)

    def on_detached(self) -> None:
        """The link is gone: nobody waits for room."""
        queue = self.queue
        incoming, self._incoming = self._incoming, None
        if incoming is not None:
            incoming.over(stored=False)
        queue.produce_no_more(self)
        self.connection.posts_no_more(queue, self)
        self._nodes.drained(queue)
        if self._rule is not None:
            self._rule.on_detached()


class RelayedSink(QueueSink):
    """One message that came through the anonymous terminus on `relay`, and is for a queue. No credit stands
    for its room, so that is kept until its commit.
    """

    __slots__ = ("_kept", "_relay")

    def __init__(
        self, relay: Sink, queue: Queue, nodes: BrokerNodes, transactions: Transactions, rule: PostRule | None
    ) -> None:
        super().__init__(relay.connection, relay.link, queue, nodes, transactions, rule)
        self._relay = relay
        self._kept: int | None = None  # octets

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """Its message, unless it is larger than all that may wait in the queue: no attach said so."""
        queue = self.queue
        largest = queue.largest if isinstance(queue, JudgedQueue) else 0
        if largest and len(deliveries[0].payload) > largest:
            self.refuse_each(deliveries, too_large_error(queue.name, largest))
        else:
            super().on_deliveries(deliveries)

    def _posting(self, deliveries: list[Delivery], records: list[Record]) -> Posting:
        self._kept = sum([len(record.body) for record in records])
        self.queue.reserve_one(self._kept, anyway=True)
        return super()._posting(deliveries, records)

    def on_posted(self, posting: Posting, error: Exception | None) -> None:
        """The message is there, or never comes."""
        if self._kept is not None:
            self.queue.unreserve(1, self._kept)
            self._kept = None
        super().on_posted(posting, error)

    def processed(self, count: int) -> None:
        """The link's credit does not depend on one queue."""
        if self.attached:
            self._relay.processed(count)

    def detach(self, error: Error) -> None:
        """End the link on which the message came."""
        self.ended = True
        self._relay.detach(error)


def txn_id_of(delivery: Delivery) -> object:
    """The transaction that a transfer names (4.5.4), or None."""
    state = delivery.state
    return state.txn_id if isinstance(state, TransactionalState) else None
