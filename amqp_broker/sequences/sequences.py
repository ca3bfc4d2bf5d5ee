"""What all connections share of sequenced streams: where they stand, whose they are, and what transactions
would make of them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

from amqp_broker.addresses import Address
from amqp_broker.authorisation import SEQUENCE, Principal
from amqp_broker.persistence import Stream
from amqp_broker.persistence.questions import StreamCount, StreamOf
from amqp_broker.sequences.judging import Judging
from amqp_broker.sequences.positions import Key, StreamPositions

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.coordinator import Transaction
    from amqp_broker.queue import Queue

T = TypeVar("T")


class Sequences:
    """The sequenced streams of one broker."""

    def __init__(self, nodes: BrokerNodes) -> None:
        self.nodes = nodes
        limits = nodes.config.limits
        self.positions = StreamPositions(
            self._stored_stream, self._stored_count, limits.max_streams, limits.max_temporary_streams
        )
        self._tentative: dict[Transaction, dict[Key, Stream]] = {}

    def _stored_stream(self, queue_id: int, name: str) -> Stream | None:
        return self.nodes.writer.lookup(StreamOf(queue_id, name))

    def _stored_count(self) -> int:
        return self.nodes.writer.lookup(StreamCount())

    def now_ms(self) -> int:
        """The broker's time."""
        return self.nodes.clock.now_ms()

    # Judging

    def judging(
        self, queue: Queue, principal: Principal, tentative: dict[Key, Stream] | None = None
    ) -> Judging:
        """Answers for a run that `principal` sends to `queue`, on the durable state or a tentative one."""
        find = partial(self.positions.find, queue)
        if tentative:
            find = partial(self._find_tentative, tentative, queue)
        check_room = self.positions.check_room if queue.persistent else _room_for_all
        may_use = partial(self.may_use, principal, queue)
        return Judging(find, principal.rule_name, may_use, check_room)

    def _find_tentative(self, tentative: dict[Key, Stream], queue: Queue, name: str) -> Stream:
        return tentative.get((queue.queue_id, name)) or self.positions.find(queue, name)

    def may_use(self, principal: Principal, queue: Queue) -> bool:
        """Whether the access list lets `principal` use streams of others at `queue`."""
        return self.nodes.authoriser.grants(principal, SEQUENCE, Address(queue.name))

    # Transactions

    def tentative_of(self, transaction: Transaction) -> dict[Key, Stream]:
        """The streams that a transaction moves, as it would leave them."""
        return self._tentative.setdefault(transaction, {})

    def forget_tentative(self, transaction: Transaction) -> None:
        """The transaction is over; harmless when called twice."""
        self._tentative.pop(transaction, None)

    # Questions, answered between two commits

    async def position(self, queue: Queue, name: str) -> Stream:
        """Where a stream stands. Raises RowDamaged, TooManyStreams."""
        return await self.nodes.writer.ask(lambda _store: self.positions.find(queue, name))


def _room_for_all(more: int) -> None:
    """Refuse nothing: a queue in memory refuses when a stream is looked for."""
