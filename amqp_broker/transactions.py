"""The transactions of one connection on the wire: its control links, and the work that names a txn-id.

    control link --declare, discharge-->  +--------------+ --Discharge--> writer --> one commit
    posts, dispositions, flows with   --> | Transactions | <--discharged--+
    a txn-id, from sinks and sources      +--------------+ --Ended--> queues now, the peer in a turn

What becomes of what is decided in room `coordinator`; here it is done. `_execute` touches queues only and
runs where the decision falls, also in the writer's task; `tell` touches the engine and runs in a turn of the
connection.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import trio

from amqp_broker.connection import Connection, Sink, TransactionalWork
from amqp_broker.coordinator import (
    TXN_ID_BYTES,
    ControlLinkTerminated,
    Disposed,
    Effect,
    Ended,
    Transaction,
    TransactionError,
    TransactionLimits,
    TransactionRollback,
    TransactionTable,
    Work,
    decode_request,
    failed_answer,
)
from amqp_broker.counts import left_by
from amqp_broker.frames import (
    Accepted,
    Declare,
    Declared,
    Error,
    Modified,
    Rejected,
    Released,
    TransactionalState,
)
from amqp_broker.links import OutgoingDelivery, in_words
from amqp_broker.live_transactions import LiveTransaction
from amqp_broker.message_events import settled
from amqp_broker.operations.discharge import Discharge, Provisional, records_of, refusal
from amqp_broker.operations.operation import OperationFault, error_of
from amqp_broker.operations.posting import Posting, Step, ended_by, record_of_item, without
from amqp_broker.origin import Origin
from amqp_broker.persistence import RECORD_OVERHEAD_BYTES, octets_of
from amqp_broker.queue import Consumer, full_error

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.links import Delivery, OutcomesLost, ReceiverLink, SenderLink
    from amqp_broker.persistence import Record
    from amqp_broker.queue import Queue

ACCEPTED: Final = Accepted()
RELEASED: Final = Released()
FAILED: Final = Modified(delivery_failed=True)
ROLLED_BACK: Final = TransactionRollback("it was rolled back")
SERIAL_MASK: Final = 0xFFFFFFFF  # of delivery-ids on the wire
LOOK_OCTETS: Final = 8  # what a look at one message that a transaction holds counts for, of a turn's work
TXN_IDS_AT_ONCE: Final = 16  # of random bytes: a system call for each declare would be noticed


class Transactions(TransactionalWork):
    """Serves one connection."""

    def __init__(self, connection: Connection, nodes: BrokerNodes) -> None:
        self.connection = connection
        connection.transactions = self
        self._random = b""
        self._decided: list[tuple[Discharge, Ended]] = []  # that the peer is told of in the next turn
        self._nodes = nodes
        self._merged_bytes = 0  # of the account: for what outcomes have made of messages
        self._aborting: list[tuple[set[SenderLink], ReceiverLink, Delivery, TransactionError | None]] = []
        limits = nodes.config.limits
        self._table = TransactionTable(
            connection,
            "",
            TransactionLimits(
                limits.max_transactions,
                limits.transaction_operations,
                limits.transaction_bytes,
                limits.transaction_timeout_ms / 1000,
            ),
        )

    # Control links: declare and discharge

    def attach(self) -> None:
        """A control link attaches (4.1): by now the peer has said its name."""
        self._table.container_id = self.connection.container_id

    def request(self, link: ReceiverLink, delivery: Delivery) -> None:
        """A declare or a discharge on a control link."""
        try:
            self._answer_request(link, delivery)
        except TransactionError as error:
            self._answer(link, delivery, error)

    def _answer_request(self, link: ReceiverLink, delivery: Delivery) -> None:
        request = decode_request(delivery.payload, delivery.settled, delivery.state)
        if isinstance(request, Declare):
            if self._table.full and self._table.discharging:
                self.connection.hold(partial(self._declare_behind_store, link, delivery))
                return
            txn_id = self._new_txn_id()
            transaction = self._table.declare(link, request, txn_id, trio.current_time())
            self._nodes.live_transactions.enter(transaction, self)
            link.settle([delivery], Declared(txn_id=txn_id))
            return
        self._look_for_obstacles(request.txn_id)
        found = self._table.discharge(link, request, self.connection.engine.partial_txn_ids())
        if isinstance(found, Ended):
            self._end(found)
            self._answer_when_aborted(found, link, delivery)
        else:
            try:
                discharge = Discharge(self.connection, found, link, delivery, self.discharged)
            except Exception:
                self._execute(self._table.commit_failed(found, "a fault of the broker"))
                raise
            self._nodes.writer.collect(discharge)

    def _look_for_obstacles(self, txn_id: object) -> None:
        """What is in a transaction may have become impossible since it was enlisted."""
        for posting in self._table.postings(txn_id):
            obstacle = posting.obstacle()
            if obstacle is not None:
                self._table.lose(txn_id, f"{obstacle.condition}: {obstacle.description}")

    async def _declare_behind_store(self, link: ReceiverLink, delivery: Delivery) -> None:
        """What is being discharged is no live transaction once it is decided."""
        await self.decided()
        if link.context is not None:
            self.request(link, delivery)

    def _new_txn_id(self) -> bytes:
        """16 random bytes; the system is asked for many at a time."""
        if not self._random:
            self._random = secrets.token_bytes(TXN_ID_BYTES * TXN_IDS_AT_ONCE)
        txn_id, self._random = self._random[:TXN_ID_BYTES], self._random[TXN_ID_BYTES:]
        return txn_id

    def _answer(self, link: ReceiverLink, delivery: Delivery, error: TransactionError | None) -> None:
        """Accepted, or the error: rejected where the source of the control link offers that, else its end
        (4.3).
        """
        if error is None:
            link.settle([delivery], ACCEPTED)
            return
        rejected = failed_answer(link.source, error)
        if rejected is None:
            self._terminate(link, error)
        else:
            assert rejected.error is not None, "a refusal says why"
            link.reject([delivery], rejected.error)

    def _terminate(self, control: ReceiverLink, error: TransactionError) -> None:
        """End a control link: no request that arrived on it is heard any more, and what it declared rolls
        back. What the peer asked before a detach of its own is done, although the link is gone by then.
        """
        sink: Sink | None = control.context
        if sink is not None:
            sink.detach(error.error())

    def discharged(self, discharge: Discharge, error: Exception | None) -> None:
        """The commit of a discharge returned, or nothing of it was stored. Not in the connection's turn."""
        transaction = discharge.transaction
        if error is None:
            ended = self._table.commit_done(transaction)
        else:
            self.connection.log.warning(
                "transaction.not_stored", txn_id=transaction.txn_id.hex(), reason=str(error)
            )
            cause = error_of(error)
            same = cause.condition == TransactionRollback.condition
            reason = cause.description or "" if same else f"{cause.condition}: {cause.description}"
            ended = self._table.commit_failed(transaction, reason)
        self._decided.append((discharge, ended))
        if len(self._decided) == 1:
            self.connection.mail.post(self._tell_decided)
        self._execute(ended)

    def _tell_decided(self, _first: None, _second: None) -> None:
        """Tell the peer what was decided since its last turn."""
        decided, self._decided = self._decided, []
        for discharge, ended in decided:
            self.tell_discharged(discharge, ended)

    def tell_discharged(self, discharge: Discharge, ended: Ended) -> None:
        """Tell the peer, in one write: what the transaction settles, then the answer to its discharge. In a
        turn of the connection.
        """
        self.tell(ended)
        if discharge.link is not None and discharge.delivery is not None:
            self._answer_when_aborted(ended, discharge.link, discharge.delivery)

    def _answer_when_aborted(self, ended: Ended, link: ReceiverLink, delivery: Delivery) -> None:
        """4.4.3: "If the discharge indicates the failure of the transaction the resource MUST abort or
        complete the sending the remainder of the message before completing the discharge."

        What is half sent is aborted by `tell`, which may have to wait for the peer's window.
        """
        sending: set[SenderLink] = set()
        if not ended.committed:
            released = [work.consumer.link for work in ended.works if work.effect is Effect.RELEASE]
            sending.update([link for link in released if link.sending])
        if sending:
            self._aborting.append((sending, link, delivery, ended.error))
            for each in sending:
                self.connection.when_sent(each, self._on_sent)
        else:
            self._answer(link, delivery, ended.error)

    @property
    def aborting(self) -> bool:
        """Whether the answer to a discharge waits until what is half sent is aborted."""
        return bool(self._aborting)

    def _on_sent(self, link: SenderLink) -> None:
        """`link` is not in the middle of a message any more."""
        for waiting in list(self._aborting):
            sending, control, delivery, error = waiting
            sending.discard(link)
            if not sending:
                self._aborting.remove(waiting)
                self._answer(control, delivery, error)

    # Posting

    def find(self, txn_id: object) -> Transaction:
        """The transaction that transfers name. Raises TransactionError: their link is detached with it."""
        return self._table.find(txn_id)

    def post(
        self,
        transaction: Transaction,
        sink: Sink,
        deliveries: list[Delivery],
        queue: Queue,
        records: list[Record],
    ) -> None:
        """Messages become part of the transaction, and their sender gets the provisional outcome (4.4.1)."""
        link = sink.link
        count = queue.reserve(records)
        if count:
            origin = Origin(self.connection.container_id, transaction.txn_id)
            try:
                posting = Posting(
                    self._nodes, queue, records[:count], origin, reserved=True,
                    account=self.connection.account,
                )  # fmt: skip
            except BaseException:
                queue.unreserve(count, octets_of(records[:count]))
                raise
            refused = self.enlist(transaction, posting)
            if refused is None:
                state = transaction.state_of(ACCEPTED)
                link.settle(deliveries[:count], state)
            else:
                posting.refused(refused)
                self.refuse_posts(transaction, link, deliveries[:count], refused.error())
        if count < len(deliveries):
            full = full_error(queue)
            self._nodes.writer.watcher.refused(records[count:], full)
            self.refuse_posts(transaction, link, deliveries[count:], full)
        sink.processed(len(deliveries))

    def post_request(
        self, transaction: Transaction, link: ReceiverLink, delivery: Delivery, found: Any
    ) -> None:
        """What a message asks of one of the broker's own nodes becomes part of the transaction, or it is
        refused.
        """
        if not isinstance(found, Error):
            refused = self.enlist(transaction, found)
            if refused is None:
                self.connection.hold(partial(self._judge, transaction, link, delivery, found))
                return
            found.refused(refused)
            found = refused.error()
        self.refuse_posts(transaction, link, [delivery], found)

    async def _judge(
        self, transaction: Transaction, link: ReceiverLink, delivery: Delivery, request: Any
    ) -> None:
        """The provisional outcome (4.4.1). What the peer said behind it is heard when it is known whether the
        transaction can still commit.
        """
        provisional = Provisional(self.connection, request)
        self._nodes.writer.submit(provisional)
        refusal = await provisional.judged()
        if refusal is None:
            link.settle([delivery], transaction.state_of(ACCEPTED))
        else:
            self.refuse_posts(transaction, link, [delivery], refusal)

    def refuse_posts(
        self, transaction: Transaction, link: ReceiverLink, deliveries: list[Delivery], error: Error
    ) -> None:
        """These can't be done, so the transaction can't commit, whether their sender hears of it (4.4.1) or
        has sent them settled (4.4.4).
        """
        self._table.fail(transaction, refusal(link, deliveries, error))
        link.reject(deliveries, error, transaction.txn_id)

    def lose(self, txn_id: object, part: str, why: str) -> None:
        """Work that named a transaction is not done, and nobody is told otherwise: it can't commit."""
        self._table.lose(txn_id, f"{part} can't be done: {why}")

    def lose_outcomes(self, event: OutcomesLost) -> None:
        """An outcome in a transaction for deliveries that are not unsettled any more. Said once more of those
        that have it in this very transaction, it is no loss.
        """
        session, found, state = event.session, event.found, event.state
        self.connection.spent_octets += LOOK_OCTETS * self._table.count_held(state.txn_id)
        first, last = event.first, event.last

        def again(delivery: Any) -> bool:
            return (
                isinstance(delivery, OutgoingDelivery)
                and delivery.link.session is session
                and first <= delivery.number <= last
                and delivery.number not in found
            )

        repeated = self._table.count_given(state.txn_id, state.outcome, again)
        missing = last - first + 1 - len(found) - repeated
        if missing:
            part = f"the outcome of {in_words(first & SERIAL_MASK, last & SERIAL_MASK)}"
            self.lose(state.txn_id, part, f"{missing} of them are unknown or settled on their session")

    def enlist(self, transaction: Transaction, posting: Any) -> TransactionError | None:
        """A posting becomes part of the transaction, or why not: then `refuse_posts` has to follow."""
        try:
            refused = self._table.enlist(transaction, posting)
            if refused is None:
                self.connection.account.hold(_kept_bytes(posting.operations, posting.size_bytes))
        except Exception as fault:
            posting.refused(OperationFault(f"a fault of the broker: {fault!r}"))
            raise
        return refused

    def tell_provisionally(
        self, transaction: Transaction, link: ReceiverLink, deliveries: list[Delivery], outcome: Any
    ) -> None:
        """The outcome that messages have if the transaction is committed (4.4.1)."""
        if type(outcome) is Rejected and outcome.error is not None:
            link.reject(deliveries, outcome.error, transaction.txn_id)
        else:
            link.settle(deliveries, transaction.state_of(outcome))

    def fail(self, transaction: Transaction, reason: str) -> None:
        """Something of it can't be done: it can't commit."""
        self._table.fail(transaction, reason)

    # Retirement

    @property
    def holds_any(self) -> bool:
        """Whether a plain disposition has to be shown to `dispose_plainly`."""
        return self._table.holds_any

    def at_once(self, deliveries: list[OutgoingDelivery], state: Any) -> int:
        """How many of the first of these outcomes may be given together: up to one that ends a control link.
        """
        return self._table.count_before_end(deliveries, state)

    def commit_in_progress(self, deliveries: list[OutgoingDelivery]) -> bool:
        """Whether a commit that discharges one of these deliveries is in progress."""
        return self._table.commit_in_progress(deliveries)

    async def decided(self) -> None:
        """Wait until the commits in progress have ended, and their peers have been told."""
        await self._nodes.store_step([])  # stored after them
        self.connection.read_mail()

    def dispose(
        self, consumer: Consumer, deliveries: list[OutgoingDelivery], state: TransactionalState,
        settled: bool,
    ) -> None:  # fmt: skip
        """Outcomes in a transaction (4.4.2)."""
        table = self._table
        self._disposed(
            consumer, table.dispose(consumer, deliveries, state, settled, consumer.default_outcome)
        )
        outcome = state.outcome
        if ended_by(consumer.queue, deliveries, outcome):
            consumer.queue.endings.make_ready()
        if type(outcome) is Modified and outcome.message_annotations:
            for delivery in deliveries:
                if delivery.merged and table.given(delivery) is not outcome:  # it did not become part of it
                    delivery.merged = [pair for pair in delivery.merged if pair[0] is not outcome]
            self._keep_merged()

    def _keep_merged(self) -> None:
        """Count, for the connection, the octets that wait in memory for discharges."""
        merged = self._table.merged_bytes
        self.connection.account.change(merged - self._merged_bytes)
        self._merged_bytes = merged

    def dispose_plainly(
        self, consumer: Consumer, deliveries: list[OutgoingDelivery], state: Any, settled: bool
    ) -> list[OutgoingDelivery]:
        """Outcomes outside of transactions; returns those that no transaction holds."""
        disposed = self._table.dispose_plainly(deliveries, state, settled)
        self._disposed(consumer, disposed)
        return disposed.free

    def _disposed(self, consumer: Consumer, disposed: Disposed) -> None:
        for work in disposed.works:
            self._do(work)
        for error in disposed.errors:
            if isinstance(error, ControlLinkTerminated):
                control: ReceiverLink = error.control  # type: ignore[assignment]
                self._terminate(control, error)
            else:
                consumer.detach(error.error())

    def given(self, delivery: OutgoingDelivery) -> Any:
        """The outcome that a transaction has for it so far."""
        return self._table.given(delivery) if self._table.holds_any else None

    # Acquisition

    def on_flow(self, consumer: Consumer, txn_id: object) -> None:
        """A flow of the receiver named a transaction, or none after one: what is sent from now on belongs to
        it (4.4.3).
        """
        link = consumer.link
        if txn_id is not None and consumer.browser:
            description = "a browser acquires nothing, so no transaction can acquire on it (4.4.3)"
            consumer.detach(Error(condition="amqp:not-implemented", description=description))
            return
        try:
            self._table.flow(consumer, txn_id)
        except TransactionError as error:
            consumer.detach(error.error())
            return
        link.flow_handled()

    def acquires(self, consumer: Consumer) -> bool:
        """Whether what is sent to `consumer` now belongs to a transaction."""
        return self._table.acquires(consumer)

    def send(self, consumer: Consumer, records: list[Record]) -> int:
        """Send in the transaction that the consumer's last flow named; returns how many were sent."""
        table = self._table
        link = consumer.link
        try:
            transaction = table.acquiring(consumer)
            assert transaction is not None, "ask `acquires` before"
            room = table.admit(transaction, [len(record.body) for record in records])
        except TransactionError as error:
            consumer.detach(error.error())
            return 0
        state = TransactionalState(txn_id=transaction.txn_id)
        send = consumer.send_mixed if consumer.queue.large else link.send_in
        taken, deliveries = send(records[:room], state)
        sent = records[:taken]
        table.acquired(transaction, consumer, sent if consumer.settled else deliveries, consumer.settled)
        consumer.queue.keep_in_sight(sent)
        return taken

    def lose_sending(self, consumer: Consumer, item: OutgoingDelivery | Record, why: str) -> bool:
        """The rest of a message can't be had that is being sent, and it is aborted; whether a transaction
        holds it: then it comes back with its end.
        """
        return self._table.lose_sending(item, f"a message on link {consumer.link.name[:64]!r}: {why}")

    def show_acquired(self, queue: Queue) -> None:
        """Browsers see what a transaction has acquired, also if it never was available when they looked."""
        if queue.browsers.wants():
            self._nodes.pump(queue)

    # Ends

    def control_gone(self, link: ReceiverLink) -> None:
        """A control link is gone: what it declared and did not discharge rolls back at once (4.1)."""
        for ended in self._table.control_closed(link):
            self._end(ended)

    def consumer_gone(
        self, consumer: Consumer, deliveries: list[OutgoingDelivery], *, left: bool
    ) -> list[OutgoingDelivery]:
        """A consumer's link is gone; returns those of its deliveries that no transaction holds. `left`: it
        has left them unsettled.
        """
        return self._table.consumer_gone(consumer, deliveries, left=left)

    def connection_gone(self) -> None:
        """Roll back everything that the store is not at."""
        for ended in self._table.connection_gone():
            self._end(ended)

    def next_deadline(self) -> float | None:
        """When `expire` is worth a call, in trio's time."""
        return self._table.next_deadline()

    def expire(self, now: float) -> None:
        """Roll back what lasted too long."""
        for ended in self._table.expired(now):
            self.connection.log.warning("transaction.timed_out", txn_id=ended.transaction.txn_id.hex())
            self._end(ended)

    def force_rollback(self, txn_id: bytes, reason: str) -> bool:
        """An administrator's rollback, in any task; False while its commit is in progress."""
        ended = self._table.force_rollback(txn_id, reason)
        if ended is None:
            return False
        self.connection.log.warning("transaction.forced_back", txn_id=txn_id.hex(), reason=reason)
        self.connection.run_in_turn(self.tell, ended)
        self._execute(ended)
        return True

    def force_commit(self, txn_id: bytes, reason: str, then: Callable[[Exception | None], None]) -> bool:
        """An administrator's commit, in any task; `then` is called when it is decided. False where it can't
        be.
        """
        self._look_for_obstacles(txn_id)
        found = self._table.force_commit(txn_id, self.connection.engine.partial_txn_ids())
        if found is None:
            return False

        def told(discharge: Discharge, error: Exception | None) -> None:
            self.discharged(discharge, error)
            then(error)

        self.connection.log.warning("transaction.forced", txn_id=txn_id.hex(), reason=reason)
        self._nodes.writer.submit(Discharge(self.connection, found, None, None, told))
        return True

    def describe(self, transaction: Transaction) -> LiveTransaction:
        """What an administrator sees of it."""
        now = trio.current_time()
        return LiveTransaction(
            txn_id=transaction.txn_id,
            container_id=transaction.container_id,
            principal=self.connection.principal.name,
            state=transaction.state.value,
            age_s=transaction.age(now),
            timeout_in_s=max(0.0, transaction.deadline - now),
            posted=transaction.posted,
            retired=transaction.retired,
            acquired=transaction.acquired,
            size_bytes=transaction.size_bytes,
            reason=None if transaction.reason is None else str(transaction.reason),
        )

    # What an end does

    def _end(self, ended: Ended) -> None:
        self._execute(ended)
        self.tell(ended)

    def tell(self, ended: Ended) -> None:
        """The peer's part of an end, in the connection's turn."""
        for work in ended.works:
            link = work.consumer.link
            if work.settles:
                released = work.effect is Effect.RELEASE
                state = RELEASED if released else ended.transaction.state_of(work.outcome)
                link.settle(work.items, state)
            elif work.effect is Effect.RELEASE:
                for item in work.items:
                    link.abort_sending(item)  # if it was sent settled and is still on its way

    def _execute(self, ended: Ended) -> None:
        """The queues' part: nothing here touches an engine."""
        transaction = ended.transaction
        self._nodes.live_transactions.leave(transaction)
        if transaction.merged_bytes:
            self._keep_merged()
        queues: dict[Queue, None] = {}
        for posting in ended.postings:
            self.connection.account.give_back(_kept_bytes(posting.operations, posting.size_bytes))
            if ended.committed:
                posting.stored()
                if isinstance(posting, Posting):
                    queues[posting.queue] = None
            else:
                posting.refused(ended.error or ROLLED_BACK)
        for queue in queues:
            if not queue.nobody_waits():
                self._nodes.pump(queue)
        consumers = dict.fromkeys(ended.consumers)
        watcher = self._nodes.writer.watcher
        for work in ended.works:
            records = records_of(work)
            if ended.committed:
                watcher.stored(records)
            else:
                watcher.refused(records, ended.error or ROLLED_BACK)
            work.consumer.queue.end_in_sight(records)
            if work.settles:  # until `tell` settles them, nothing else decides them once more
                for item in work.items:
                    item.decided = True
            self._do(work)
            consumers[work.consumer] = None
            if transaction.merged_bytes:
                for item in work.items:
                    if isinstance(item, OutgoingDelivery):
                        item.merged = None
        for consumer in consumers:
            consumer.deliver([])  # its credit stays, and may be used outside of it now

    def _do(self, work: Work) -> None:
        consumer: Consumer = work.consumer
        if work.effect is Effect.RETIRE:
            if type(work.outcome) is Rejected:
                self._nodes.rejected(consumer.queue, work.items, work.outcome)
            consumer.queue.retire(records_of(work), left_by(work.outcome))
            self._nodes.drained(consumer.queue)
        elif work.effect is Effect.RETURN:
            ended = ended_by(consumer.queue, work.items, work.outcome)
            if ended:
                consumer.queue.retire([record_of_item(item) for item in ended], left_by(work.outcome))
                self._nodes.drained(consumer.queue)
            consumer.give_back(without(work.items, ended) if ended else work.items, work.outcome)
        elif work.effect is Effect.RELEASE:
            self._release(consumer, work)
        elif work.effect is Effect.LEFT:
            consumer.left(work.items)
        elif work.effect is Effect.APPLY_DEFAULT:
            consumer.apply(work.items, consumer.default_outcome, True)

    def _release(self, consumer: Consumer, work: Work) -> None:
        """The acquisition is undone."""
        records = records_of(work)
        suspect = consumer.suspect
        if suspect is not None and suspect in work.items:
            records.remove(suspect.message)
            consumer.apply([suspect], FAILED, True)
        consumer.give_back(records, RELEASED)
        if consumer.queue.events:
            self._log_released(consumer, records)

    def _log_released(self, consumer: Consumer, records: list[Record]) -> None:
        """What a transaction had acquired goes back with its end."""
        now_ms = self._nodes.clock.now_ms()
        container = consumer.container_id
        verbs = settled(consumer.queue, records, RELEASED, container, now_ms, reason="rolled back")
        self._nodes.writer.defer(Step(verbs, only_events=True))


class ControlSink(Sink):
    """One control link: declares and discharges for the transactions of its connection."""

    __slots__ = ("_transactions",)

    def __init__(self, connection: Connection, link: ReceiverLink, transactions: Transactions) -> None:
        super().__init__(connection, link)
        self._transactions = transactions

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """Take declares and discharges."""
        for at, delivery in enumerate(deliveries):
            if self.ended:
                return
            self.processed(1)  # at once: what is under way is bounded by the live transactions
            self._transactions.request(self.link, delivery)
            if self.held(deliveries[at + 1 :]):
                return

    def on_leaving(self) -> None:
        """What it declared and did not discharge rolls back at once (4.1)."""
        self._transactions.control_gone(self.link)


def _kept_bytes(operations: int, size_bytes: int) -> int:
    """What is posted takes in memory until its transaction ends."""
    return operations * RECORD_OVERHEAD_BYTES + size_bytes
