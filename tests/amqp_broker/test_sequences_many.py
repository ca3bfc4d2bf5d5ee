"""Many streams of one message each: memory does not grow with them, and each is found by one search."""

from __future__ import annotations

from pathlib import Path

import trio

from amqp_broker.persistence.sqlite import SqliteStore
from amqp_broker.sequences.positions import REMEMBERED_STREAMS
from tests.benchmarks.streams import run
from tests.support.sequence_jobs import answers, bench

STREAMS = 17_000
"""`python -m tests.benchmarks.streams` has a million."""


def test_many_streams_of_one_message_each(tmp_path: Path) -> None:
    """Memory holds as many positions as it may; every stream is known, also to its duplicates."""
    figures = trio.run(run, tmp_path, STREAMS)
    positions = [part.positions for part in figures.parts]
    assert positions[-1] == REMEMBERED_STREAMS < STREAMS
    assert max(positions) <= REMEMBERED_STREAMS


def test_a_stream_is_found_by_one_search_of_its_key(tmp_path: Path) -> None:
    """The plan that SQLite has for the question, whatever the number of rows."""
    from amqp_broker.persistence import stream_table

    store = SqliteStore(tmp_path / "data")
    try:
        plan = store._unit.query(f"EXPLAIN QUERY PLAN {stream_table._FIND}", (1, "s"))
        assert [row[-1] for row in plan] == ["SEARCH stream USING PRIMARY KEY (queue_id=? AND stream=?)"]
    finally:
        store.close()


def test_a_forgotten_stream_is_where_it_was(tmp_path: Path) -> None:
    """With room for three positions: streams that are used in turn are looked up, and none is lost."""

    async def main() -> None:
        store = SqliteStore(tmp_path / "data")
        try:
            async with bench(store) as at:
                at.service.positions._most = 3
                for number in range(1, 4):
                    for name in "abcdefgh":
                        at.commit(at.posting((1, number, number - 1), stream=name))
                        assert len(at.service.positions) <= 3
                for name in "abcdefgh":
                    posting = at.posting((1, 3, 2), (1, 5, 4), (1, 4, 3), stream=name)
                    at.commit(posting)
                    assert answers(posting) == ["accepted", "seq:gap", "accepted"]
                    assert at.position(name) == (1, 4)
        finally:
            store.close()

    trio.run(main)
