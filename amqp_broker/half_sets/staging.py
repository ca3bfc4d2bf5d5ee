"""Links on which messages are staged in a set: at the speed of posting, and seen by nobody.

    run of messages --> Staging --writer, one commit with everybody's--> hidden node --> accepted

Unsettled only, and in no transaction. Each message is durable whatever its header says. Its time to live
begins when it arrives (3.2.1), not when its epoch is committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from amqp_broker.connection import Connection, Sink
from amqp_broker.coordinator import TransactionError
from amqp_broker.coordinator.half_sets import CHECKSUM_MODULUS, SetPart, SetState
from amqp_broker.frames import Accepted, DecodeError, Error, TransactionalState
from amqp_broker.half_sets.answers import closed_error
from amqp_broker.links import Delivery
from amqp_broker.nodes.refusals import refusal_of
from amqp_broker.nodes.requests import SETTLED_ERROR
from amqp_broker.operations.operation import Operation, Refused, error_of
from amqp_broker.persistence import RECORD_OVERHEAD_BYTES, Post, Record, Unit
from amqp_broker.records import record_of

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.half_sets.staged_sets import StagedSets
    from amqp_broker.nodes.node import Attachment
    from amqp_broker.queue import Queue

ACCEPTED: Final = Accepted()
TRANSACTION_ERROR: Final = Error(
    condition="amqp:not-allowed",
    description="a set is staged outside of transactions: the commit of its epoch is what makes it seen",
)
SEQUENCE_ERROR: Final = Error(
    condition="amqp:not-allowed",
    description="a message of a set has no place in a stream: it carries sequence fields",
)


class Closed(Refused):
    """Nothing is staged in the set any more."""


class Staging(Operation):
    """A run of messages from one link to one part of a set."""

    __slots__ = ("_checksum", "_counted", "deliveries", "half_sets", "link", "records", "size")

    def __init__(
        self, half_sets: StagedSets, link: StagingSink, deliveries: list[Delivery], records: list[Record]
    ) -> None:
        self.half_sets = half_sets
        self.link = link
        self.deliveries = deliveries
        self.records = records
        self.size = sum([len(record.body) for record in records])
        self._checksum = sum([crc32(record.body) for record in records]) % CHECKSUM_MODULUS
        self._counted = False

    def prepare(self, now_ms: int) -> Unit:
        """Stage the messages, unless the set is sealed or over."""
        part = self.link.part
        staged = part.staged
        if staged.state is not SetState.OPEN:
            raise Closed(staged.end or closed_error(staged))
        offset = part.next_offset
        for record in self.records:
            record.offset = offset
            offset += 1
        part.next_offset = offset
        self._count(1)
        return [Post(part.queue_id, self.records)]

    def _count(self, sign: int) -> None:
        part = self.link.part
        part.add(sign * len(self.records), sign * self.size, sign * self._checksum)
        part.under_way += sign
        self.half_sets.count(sign * len(self.records), sign * self.size)
        self._counted = sign > 0

    def undo(self) -> None:
        """The offsets of the messages are free again."""
        if self._counted:
            self._count(-1)
            self.link.part.next_offset = self.records[0].offset

    def stored(self) -> None:
        """The messages are staged; the sender is told."""
        self._counted = False
        self.link.part.under_way -= 1
        self.link.staged(self, None)

    def refused(self, error: Exception) -> None:
        """The messages are not staged: the sender is told why, or its link ends."""
        self.link.staged(self, error)

    def asking_connection(self) -> Connection | None:
        """The connection of the sender."""
        return self.link.connection

    def kept_bytes(self) -> int:
        """The octets of the messages."""
        return self.size + len(self.records) * RECORD_OVERHEAD_BYTES


class StagingSink(Sink):
    """One link of `$half-set/...`; it also stands in the list of those who wait for room in its queue."""

    def __init__(
        self, attachment: Attachment, nodes: BrokerNodes, half_sets: StagedSets, part: SetPart, queue: Queue
    ) -> None:
        super().__init__(attachment.connection, attachment.link)
        self.part = part
        self.transactions = attachment.transactions
        self.link.keeps_messages = True
        self._nodes = nodes
        self._half_sets = half_sets
        self._queue = queue
        self._credit = nodes.config.limits.link_credit
        self._blocked = False
        half_sets.attach(part, self)

    # In the connection's turn

    def begin(self) -> int:
        """Begin to stage; the credit that the link begins with."""
        return 0 if self._block() else self._credit

    def on_deliveries(self, deliveries: list[Delivery]) -> None:
        """Stage a run of complete messages."""
        for delivery in deliveries:
            if delivery.settled or delivery.state is not None:
                self._stage_one_by_one(deliveries)
                return
        self._stage(deliveries)

    def _stage_one_by_one(self, deliveries: list[Delivery]) -> None:
        for at, delivery in enumerate(deliveries):
            if self.ended:
                self.lose(deliveries[at:])
                return
            if delivery.settled:
                self.lose([delivery], "it was sent settled")
                self.detach(SETTLED_ERROR)
            elif isinstance(delivery.state, TransactionalState):
                self._refuse_in_transaction(delivery, delivery.state.txn_id)
            else:
                self._stage([delivery])

    def _refuse_in_transaction(self, delivery: Delivery, txn_id: Any) -> None:
        try:
            transaction = self.transactions.find(txn_id)
        except TransactionError as error:
            self.detach(error.error())
            return
        self.transactions.refuse_posts(transaction, self.link, [delivery], TRANSACTION_ERROR)
        self.processed(1)

    def _stage(self, deliveries: list[Delivery]) -> None:
        now_ms = self._nodes.clock.now_ms()
        sequences = not self._queue.sequences.off
        queue_id = self.part.queue_id
        records: list[Record] = []
        taken: list[Delivery] = []
        for delivery in deliveries:
            with_maps: list[bytes] = []
            try:
                record = record_of(
                    delivery.payload, delivery.message_format, now_ms, queue_id, True, with_maps
                )
            except DecodeError as error:
                self.link.reject([delivery], refusal_of(error))
                self.processed(1)
                continue
            if with_maps and sequences and self._queue.sequences.place_of(record.body) is not None:
                self.link.reject([delivery], SEQUENCE_ERROR)
                self.processed(1)
                continue
            record.durable = True
            if record.expires_at_ms:
                self.part.may_expire = True
            records.append(record)
            taken.append(delivery)
        if records:
            self._nodes.writer.collect(Staging(self._half_sets, self, taken, records))

    def _staged(self, staging: Staging, error: Exception | None) -> None:
        if self.ended:
            return
        if isinstance(error, Closed):
            self.detach(error.error)
            return
        if error is None:
            self.link.settle(staging.deliveries, ACCEPTED)
        else:
            self.link.reject(staging.deliveries, error_of(error))
        self.processed(len(staging.deliveries))

    def processed(self, count: int) -> None:
        """`count` deliveries are done with: credit is renewed, unless there is no room."""
        if not self._blocked and self._block():
            self.link.set_credit(0)
        super().processed(count)

    def _block(self) -> bool:
        """Wait for room, if there is none: in the queue to be, or for all sets together."""
        if self._queue.full():
            self._queue.blocked.append(self)
        elif self._half_sets.full():
            self._half_sets.wait_for_room(self)
        else:
            return False
        self._blocked = True
        return True

    def _go_on(self) -> None:
        self._blocked = False
        if not self.ended and not self._block():
            self.link.set_credit(self._credit)

    def on_detached(self) -> None:
        """The link is gone; what it staged stays staged."""
        self.ended = True
        self._half_sets.detach(self.part, self)
        if self in self._queue.blocked:
            self._queue.blocked.remove(self)

    # From any task

    def staged(self, staging: Staging, error: Exception | None) -> None:
        """A run was stored, or `error` says why not."""
        self.connection.run_in_turn(self._staged, staging, error)

    def unblock(self) -> None:
        """The queue, or the sets, have room again."""
        self.connection.run_in_turn(self._go_on)
