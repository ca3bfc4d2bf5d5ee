"""Upgrades: what a broker of each former schema version has left is taken up by the one of today.

Each store was left by a broker of its version that was killed (`former_stores`): "orders" has the messages 2
(which came back failed) to 5, and what one transaction posted, but not what another one did that was never
committed; from version 3 on there are a half message that nobody decided and a stream, from 4 on a queue that
retains and a cursor, from 7 on a target that outlives its link, from 10 on what one commit brought to many
queues.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from amqp_broker.broker import open_broker
from amqp_broker.configuration import parse_configuration
from amqp_broker.frames import Message
from amqp_broker.persistence.questions import CursorsOf, StreamOf, Termini
from amqp_broker.persistence.schema import SCHEMA_VERSION
from amqp_broker.persistence.sqlite import verify_directory
from tests.persistence.former_stores import (
    BODIES_SINCE,
    CONFIGURATION,
    FORMER,
    HALVES_SINCE,
    KEPT_SINCE,
    LARGE,
    MANY,
    SPREAD_SINCE,
    TERMINI_SINCE,
    TRANSACTIONS_SINCE,
    make,
    unpack,
)
from tests.persistence.stores import edit
from tests.support.by_hand import Served

VERSIONS = range(1, SCHEMA_VERSION)
WALL_MS = 1_795_804_000_000  # some minutes after the last one was made: no time is over


def test_there_is_one_of_every_former_version() -> None:
    """Who makes a new version packs what the one before it leaves."""
    assert sorted(path.name for path in FORMER.iterdir()) == [f"{version}.tar.xz" for version in VERSIONS]


@pytest.mark.parametrize("version", [*VERSIONS, SCHEMA_VERSION])
def test_a_store_of_a_former_version_is_taken_up(version: int, tmp_path: Path) -> None:
    """Every message, outcome, half message, stream, cursor and terminus; it is whole before and after. So is
    what is packed of today's, of which nobody would know otherwise whether anything is forgotten.
    """
    before, after = tmp_path / "before", tmp_path / "after"
    unpack(_packed(version, tmp_path), before)
    assert verify_directory(before) == []
    assert edit(before, "PRAGMA user_version") == [(version,)]
    if version >= SPREAD_SINCE:
        assert edit(before, "SELECT count(*) FROM spread") == [(1,)]
    unpack(_packed(version, tmp_path), after)  # nobody has opened it since the kill
    trio.run(_take_up, version, after)
    assert edit(after, "PRAGMA user_version") == [(SCHEMA_VERSION,)]
    assert verify_directory(after) == []


def _packed(version: int, directory: Path) -> Path:
    if version in VERSIONS:
        return FORMER / f"{version}.tar.xz"
    packed = directory / "today.tar.xz"
    if not packed.exists():
        make(version, packed)
    return packed


async def _take_up(version: int, directory: Path) -> None:
    config = parse_configuration(f'data_dir = "{directory}"\n{CONFIGURATION}')
    async with open_broker(config, wall_clock=lambda: WALL_MS) as broker:
        at = Served(broker)
        await at.receiver("orders", 10)
        await at.settle()
        messages = [Message(each.payload) for each in at.take()]
        wanted = [b"order %d" % number for number in range(2, 6)]
        posted = [b"in a transaction"] if version >= TRANSACTIONS_SINCE else []
        assert [each.body_sections()[0].value for each in messages] == [*wanted, *posted]
        counts = [each.header and each.header.delivery_count for each in messages]
        assert counts == [1, 0, 0, 0, *[0 for _ in posted]]
        if version >= HALVES_SINCE:
            (half,) = await broker.half_messages.messages("shop")
            assert (half.half_id, half.destination) == ("undecided", "orders")
            queue = broker.nodes.queues.find("numbered")
            assert queue is not None
            stream = await broker.writer.ask(StreamOf(queue.queue_id, "s"))
            assert stream is not None and (stream.seq_id, stream.seq_no) == (1, 3)
        if version >= KEPT_SINCE:
            kept = broker.nodes.queues.find("kept")
            assert kept is not None and (kept.message_count, kept.next_offset) == (1, 3)
            (cursor,) = await broker.writer.ask(CursorsOf("reader"))
            assert (cursor.queue_id, cursor.offset) == (kept.queue_id, 1)
        if version >= BODIES_SINCE:
            await at.receiver("large", 1)
            await at.settle()
            assert [Message(each.payload).body_sections()[0].value for each in at.take()] == [LARGE]
        for number in range(MANY if version >= SPREAD_SINCE else 0):
            await at.receiver(f"many-{number}", 1)
            await at.settle()
            (one,) = at.take()
            assert Message(one.payload).body_sections()[0].value == b"many %d" % number
        if version >= TERMINI_SINCE:
            assert [each.name for each in await broker.writer.ask(Termini())] == ["lasting"]
        await at.close()
