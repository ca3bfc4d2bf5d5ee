"""Jobs of sequenced messages by hand: a broker without connections, whose store a test drives itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio

from amqp_broker.authorisation import ANONYMOUS, Principal
from amqp_broker.broker import Broker, open_broker
from amqp_broker.connection import Sink
from amqp_broker.coordinator.sequences import Numbering
from amqp_broker.frames import Accepted, Rejected
from amqp_broker.links import ReceiverLink, Session
from amqp_broker.persistence import MemoryStore, Record, Store
from amqp_broker.persistence.questions import PageOf, StreamOf
from amqp_broker.places import Place
from amqp_broker.queue import Queue
from amqp_broker.sequences.operations import SequencedPosting
from amqp_broker.testing import memory_config
from tests.support import sequenced
from tests.support.by_hand import connection_by_hand


class Bench:
    """One queue of a broker, its store, and postings to it."""

    def __init__(self, broker: Broker, store: Store, queue: Queue) -> None:
        self.broker = broker
        self.store = store
        self.queue = queue
        self.connection = connection_by_hand()
        self.told: list[Exception | None] = []
        self.service = broker.features.sequences

    def posting(
        self,
        *places: sequenced.Place,
        stream: str = "s",
        principal: Principal = ANONYMOUS,
        durable: bool = True,
    ) -> SequencedPosting:
        """A posting of messages at these places."""
        records = [Record(0, sequenced.text_of(place), durable=durable) for place in places]
        found = [Place(stream, Numbering(*place)) for place in places]
        deliveries: list[Any] = [None] * len(places)
        sink = Sink(self.connection, ReceiverLink(Session(self.connection.engine, 0), "link", 0))
        return SequencedPosting(
            self.service, self.connection, principal, sink, deliveries, self.queue, records, found,
            self._posted,
        )  # fmt: skip

    def _posted(self, posting: SequencedPosting, error: Exception | None) -> None:
        """A posting ended."""
        self.told.append(error)

    def commit(self, *jobs: Any) -> None:
        """One group of the writer, which is judged, applied, committed and told before this returns."""
        writer = self.broker.writer
        for job in jobs:
            writer.collect(job)
        group = writer._make_group()
        assert group is not None and [*group.operations] == [*jobs], "all of it is one group"
        if group.stores:
            self.store.commit()
        writer._finish(group)
        self.connection.read_mail()

    def position(self, stream: str = "s") -> tuple[int, int]:
        """Where a stream stands on disk."""
        found = self.store.ask(StreamOf(self.queue.queue_id, stream))
        return (0, 0) if found is None else (found.seq_id, found.seq_no)

    def stored(self) -> list[str]:
        """The bodies that the store has of the queue."""
        page = self.store.ask(PageOf(self.queue.queue_id, 0, 1_000_000, 2**40))
        return [record.body.decode() for record in page.records]


def answers(posting: SequencedPosting) -> list[str]:
    """`accepted`, or the condition of a rejection, for each message of a posting."""
    return [_word(outcome) for outcome in posting.outcomes]


def _word(outcome: Accepted | Rejected) -> str:
    if isinstance(outcome, Accepted):
        return "accepted"
    assert outcome.error is not None
    return outcome.error.condition


@asynccontextmanager
async def bench(store: Store | None = None, names: Sequence[str] = ("q",)) -> AsyncIterator[Bench]:
    """A broker with a queue, whose writer has nothing to do."""
    used = MemoryStore() if store is None else store
    async with open_broker(memory_config(), store=used) as broker:
        queues = [await broker.nodes.queues.create(name) for name in names]
        while not broker.writer.at_rest:
            await trio.sleep(0.001)
        yield Bench(broker, used, queues[0])
