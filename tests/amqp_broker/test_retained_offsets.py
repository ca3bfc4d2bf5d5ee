"""Offsets of a queue that retains have no holes, whatever the store refuses; and whose turn it is to read."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from amqp_broker.broker import Broker, open_broker
from amqp_broker.configuration import BrokerConfig
from amqp_broker.frames import encode_message
from amqp_broker.operations.posting import Posting
from amqp_broker.origin import OF_THE_BROKER
from amqp_broker.page_turns import BURST_S, BUSY_OPERATIONS_PER_S, WINDOW_S, Allowance
from amqp_broker.persistence import MemoryStore, Post, Record, StoreFull, Unit
from amqp_broker.persistence.questions import RetainedPageOf
from amqp_broker.queue import Queue
from amqp_broker.records import record_of
from tests.support.logs import logs
from tests.support.retained import retaining


class Refusing(MemoryStore):
    """A store that answers some posts with StoreFull, alone or by refusing the whole group at its commit."""

    def __init__(self) -> None:
        super().__init__(store_id="log")
        self.refused: set[bytes] = set()
        self.refuse_commits = 0

    def apply(self, units: Sequence[Unit]) -> list[Exception | None]:
        taken = [unit for unit in units if not self._refuses(unit)]
        errors = iter(super().apply(taken))
        return [StoreFull("scripted") if self._refuses(unit) else next(errors) for unit in units]

    def _refuses(self, unit: Unit) -> bool:
        return any(
            record.body in self.refused for verb in unit if isinstance(verb, Post) for record in verb.records
        )

    def commit(self) -> None:
        if self.refuse_commits:
            self.refuse_commits -= 1
            self.abandon()
            raise StoreFull("scripted")
        super().commit()


def body(number: int) -> bytes:
    """A message without a header, encoded: its body as a record has it."""
    return encode_message(body=b"%d" % number)


def submit(broker: Broker, queue: Queue, number: int) -> Record:
    """Post one message, with the next group."""
    record = record_of(body(number), 0, 1_000, queue.queue_id, True)
    record.durable = True
    broker.writer.submit(Posting(broker.nodes, queue, [record], OF_THE_BROKER))
    return record


@pytest.mark.parametrize("refused", [(0,), (1,), (4,), (0, 2, 3), (0, 1, 2, 3, 4)])
@pytest.mark.parametrize("commits", [0, 1])
@pytest.mark.parametrize("config", [retaining("kept"), logs("kept")], ids=["queue", "log"])
def test_what_the_store_refuses_leaves_no_hole(
    config: BrokerConfig, refused: tuple[int, ...], commits: int
) -> None:
    """Those behind it in the same group get the numbers, and the next group goes on where they end; also
    where the commit finds the disk full, which may cost one message more.
    """

    async def main() -> list[tuple[int, bytes]]:
        store = Refusing()
        store.refused = {body(number) for number in refused}
        async with open_broker(config, store=store) as broker:
            queue = await broker.nodes.queues.create("kept")
            await broker.nodes.store_step([])
            store.refuse_commits = commits
            for number in range(5):
                submit(broker, queue, number)
            await broker.nodes.store_step([])
            submit(broker, queue, 5)
            await broker.nodes.store_step([])
            page = await broker.writer.ask(RetainedPageOf(queue.queue_id, 0, 100, 10_000))
            assert not page.quarantined
            assert queue.next_offset == queue.backlog.available_to == page.next_offset
            return [(record.offset, record.body) for record in page.records]

    kept = [number for number in range(6) if number not in refused]
    found = trio.run(main)
    assert [offset for offset, _ in found] == list(range(len(found)))
    assert len(found) >= len(kept) - commits
    assert [each for each in map(body, kept) if each in dict(found).values()] == [each for _, each in found]


def read_for(allowance: Allowance, seconds: float, page_s: float, jobs_per_s: int) -> float:
    """The part of the time that readers use who always want another page."""
    now = used = 0.0
    while now < seconds:
        wait_s = allowance.wait_s(now, int(now * jobs_per_s))
        now += wait_s
        if wait_s == 0:
            allowance.used(page_s)
            used += page_s
            now += page_s
    return used / now


@pytest.mark.parametrize("page_s", [0.0005, 0.002, 0.02])
def test_readers_use_their_share_while_others_store(page_s: float) -> None:
    """A fifth, however long a page takes; with nobody else, all of the time."""
    assert 0.15 < read_for(Allowance(0.2, 0), 10, page_s, 1_000) < 0.25
    assert read_for(Allowance(0.2, 0), 10, page_s, 0) == 1
    assert read_for(Allowance(1, 0), 10, page_s, 1_000) == 1


def test_readers_are_not_slowed_by_a_trickle_and_soon_by_a_flood() -> None:
    """A few jobs now and then are served in between; what was used while nobody else was there is no debt
    that lasts.
    """
    assert read_for(Allowance(0.2, 0), 10, 0.002, BUSY_OPERATIONS_PER_S // 2) == 1
    allowance = Allowance(0.2, 0)
    read_for(allowance, 10, 0.002, 0)
    longest = BURST_S / 0.2 + BURST_S
    assert 0 < allowance.wait_s(10 + WINDOW_S / 2, 1_000) <= longest
