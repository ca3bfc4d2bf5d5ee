"""Messages that the store finds damaged leave their queue; all others are delivered, and the counts go on as
what is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import attrs
import pytest

from amqp_broker.configuration import BrokerConfig
from amqp_broker.configuration_limits import BrokerLimits
from amqp_broker.frames import Accepted
from amqp_broker.persistence import CreateNode, Post, Record, Retire
from amqp_broker.persistence.directory import MAX_SEGMENT_MESSAGES
from amqp_broker.persistence.sqlite import verify_directory
from amqp_broker.records import record_of
from amqp_broker.testing.store_suite.helpers import do
from tests.persistence.stores import edit, small_store
from tests.support.by_hand import Served, by_hand, text

FIRST_RUN: Final = 100
RETIRED: Final = 90  # of its messages
END: Final = 140

DAMAGE: Final = {
    "the checksum of a row": ("UPDATE run SET checksum=checksum+1 WHERE first_offset=0", range(90, 100)),
    "the place of a row": ("UPDATE run SET segment_id=segment_id+5 WHERE first_offset=0", range(90, 100)),
    "the octets of a row": ("UPDATE run SET bytes=bytes+(1<<40) WHERE first_offset=0", range(90, 100)),
    "a row of one": ("UPDATE run SET checksum=checksum+1 WHERE first_offset=100", range(100, 101)),
    "a directory": ("UPDATE segment SET directory=x'0102' WHERE id=1", range(90, 100)),
    "a body": ("UPDATE segment SET bodies=zeroblob(length(bodies)) WHERE id=11", range(109, 110)),
}


def filled(directory: Path) -> BrokerConfig:
    """A closed store whose queue has what is left of a large run, and runs of one message behind it."""
    store = small_store(directory)
    create = CreateNode("q", "queue")
    do(store, create)
    records = [stored(offset, create.queue_id) for offset in range(END)]
    do(store, Post(create.queue_id, records[:FIRST_RUN]))
    do(store, Retire(create.queue_id, 0, RETIRED - 1))
    for record in records[FIRST_RUN:]:
        do(store, Post(create.queue_id, [record]))
    store.close()
    limits = attrs.evolve(BrokerLimits(), queue_window_messages=8)
    return BrokerConfig(memory=False, data_dir=str(directory), limits=limits)


def stored(offset: int, queue_id: int) -> Record:
    """As the broker stores it; its body is its number."""
    record = record_of(text(b"%d" % offset).body, 0, 0, queue_id, True)
    record.offset = offset
    return record


async def take_everything(at: Served) -> list[bytes]:
    """Accept what comes until nothing comes any more; nothing of the queue is left in memory or on disk."""
    receiver = await at.receiver("q", 50)
    found: list[bytes] = []
    while at.received:
        found += at.bodies()
        receiver.settle(at.take(), Accepted())
        receiver.processed(50)
        await at.rest()
    receiver.detach()
    await at.settle()
    return found


@pytest.mark.parametrize("name", DAMAGE)
def test_the_others_are_delivered_and_the_counts_are_right(name: str, tmp_path: Path) -> None:
    """Page by page, whatever is damaged of the first ones: nothing behind it stays on the disk, and an empty
    queue counts nothing.
    """
    config = filled(tmp_path)
    sql, lost = DAMAGE[name]
    edit(tmp_path, sql)

    async def main(at: Served) -> None:
        expected = [b"%d" % offset for offset in range(RETIRED, END) if offset not in lost]
        assert await take_everything(at) == expected
        queue = at.queue()
        assert (queue.message_count, queue.byte_count) == (0, 0)
        assert (queue.backlog.disk_from, queue.backlog.disk_count) == (-1, 0)

    by_hand(main, config)


@pytest.mark.parametrize("column", ["live_count", "live_bytes", "count", "bytes"])
def test_a_damaged_number_fills_no_queue(column: str, tmp_path: Path) -> None:
    """What a row says is at most what it can be, so senders have credit and everything goes on."""
    config = filled(tmp_path)
    edit(tmp_path, f"UPDATE run SET {column}={column}+(1<<40) WHERE first_offset={END - 1}")

    async def main(at: Served) -> None:
        queue = await at.post("q", b"new")
        expected = [*[b"%d" % offset for offset in range(RETIRED, END - 1)], b"new"]
        assert await take_everything(at) == expected
        assert END < queue.next_offset <= END + MAX_SEGMENT_MESSAGES
        assert 0 <= queue.message_count <= MAX_SEGMENT_MESSAGES and queue.byte_count == 0

    by_hand(main, config)


@pytest.mark.parametrize("changed", [1 << 40, -(1 << 40)])
def test_what_was_accepted_beside_a_damaged_count_never_comes_again(changed: int, tmp_path: Path) -> None:
    """A row that says that less than nothing is live does not keep the store from removing what is behind
    it.
    """
    config = filled(tmp_path)
    edit(tmp_path, "UPDATE run SET live_count=live_count+? WHERE first_offset=0", changed)
    for expected in ([b"%d" % offset for offset in range(FIRST_RUN, END)], []):

        async def main(at: Served, expected: list[bytes] = expected) -> None:
            assert await take_everything(at) == expected

        by_hand(main, config)
    assert verify_directory(tmp_path) == []
