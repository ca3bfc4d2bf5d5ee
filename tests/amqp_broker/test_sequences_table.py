"""The rows of the decision table, by the operation that stores messages of a stream, in either store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from amqp_broker.persistence import MemoryStore, Store, StreamOf
from amqp_broker.persistence.sqlite import SqliteStore
from tests.support.broker_clients import error_of
from tests.support.sequence_jobs import Bench, answers, bench
from tests.support.sequenced import Place, chain, info_of

SEQ_NO_MAX = 2**32 - 1
SEQ_ID_MAX = 2**64 - 1
LAST = (SEQ_ID_MAX, SEQ_NO_MAX, 0)
OK = "accepted"
GAP = "seq:gap"
STALE = "seq:stale"

Run = tuple[list[Place], list[str]]
"""Messages of one commit, and what each of them is told."""

CASES: dict[str, list[Run]] = {
    "first and next (rows 6 and 1)": [(chain(1, 3), [OK] * 3), (chain(4, 5), [OK] * 2)],
    "a duplicate is discarded (4, 5)": [
        ([(1, 1, 0), (1, 2, 1), (1, 2, 1), (1, 1, 0)], [OK] * 4), ([(1, 1, 0)], [OK]),
    ],
    "a gap refuses everything behind it (3)": [
        ([*chain(1, 2), *chain(4, 6)], [OK] * 2 + [GAP] * 3), (chain(3, 6), [OK] * 4),
    ],
    "a sender chains over what it dropped (1, 2)": [
        ([*chain(1, 2), (1, 10, 2), (1, 11, 10)], [OK] * 4), ([(1, 20, 5)], [OK]),
    ],
    "an overlap is taken from where it is new": [(chain(1, 3), [OK] * 3), (chain(2, 5), [OK] * 4)],
    "a new id begins with its start (6, 7, 8)": [
        (chain(1, 3), [OK] * 3), ([(7, 2, 1)], [GAP]), ([(1, 4, 3), (7, 1, 0), (7, 2, 1)], [OK] * 3),
        ([(1, 4, 3), (1, 5, 4)], [OK, STALE]),
    ],
    "a new id may begin with any number": [([(1, 1, 0), (2, 41, 0), (2, 42, 41)], [OK] * 3)],
    "the largest numbers": [([LAST], [OK]), ([LAST], [OK])],
    "a hundred pipelined with one lost": [
        ([place for place in chain(1, 100) if place[1] != 40], [OK] * 39 + [GAP] * 60),
        (chain(40, 100), [OK] * 61),
    ],
}  # fmt: skip
LEFT: dict[str, list[str]] = {
    "first and next (rows 6 and 1)": ["1.1", "1.2", "1.3", "1.4", "1.5"],
    "a duplicate is discarded (4, 5)": ["1.1", "1.2"],
    "a gap refuses everything behind it (3)": ["1.1", "1.2", "1.3", "1.4", "1.5", "1.6"],
    "a sender chains over what it dropped (1, 2)": ["1.1", "1.2", "1.10", "1.11", "1.20"],
    "an overlap is taken from where it is new": ["1.1", "1.2", "1.3", "1.4", "1.5"],
    "a new id begins with its start (6, 7, 8)": ["1.1", "1.2", "1.3", "1.4", "7.1", "7.2"],
    "a new id may begin with any number": ["1.1", "2.41", "2.42"],
    "the largest numbers": [f"{SEQ_ID_MAX}.{SEQ_NO_MAX}"],
    "a hundred pipelined with one lost": [f"1.{number}" for number in range(1, 101)],
}


@pytest.fixture(params=["memory", "disk"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Of each kind."""
    found: Store = MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "data")
    yield found
    found.close()


def arrived(at: Bench, *places: Place, stream: str = "s") -> list[str]:
    """What messages of one commit are told."""
    posting = at.posting(*places, stream=stream)
    at.commit(posting)
    return answers(posting)


@pytest.mark.parametrize("case", CASES)
def test_rows_of_the_table(store: Store, case: str) -> None:
    """What each message is told, what is stored, and where the stream stands then."""

    async def main() -> None:
        async with bench(store) as at:
            for places, told in CASES[case]:
                assert arrived(at, *places) == told
            assert at.stored() == LEFT[case]
            assert at.position() == tuple(map(int, LEFT[case][-1].split(".")))

    trio.run(main)


def test_a_refusal_says_where_to_begin_again(store: Store) -> None:
    """Behind a gap, without the beginning of a new id, and for an id that is over; refusals are
    counted until something is accepted.
    """

    async def main() -> None:
        async with bench(store) as at:

            def rejects() -> int:
                stored = at.store.ask(StreamOf(at.queue.queue_id, "s"))
                assert stored is not None
                return stored.reject_count

            arrived(at, *chain(1, 2))
            gap = at.posting((1, 4, 3), (7, 2, 1), (1, 1, 0))
            at.commit(gap)
            behind, begins, _ = gap.outcomes
            assert info_of(behind) == info_of(begins) | {"expected-prev": 2}
            assert info_of(begins) == {"seq-id": 1, "seq-no": 2, "expected-prev": 0}
            assert "number 2: expected prev 2" in (error_of(behind).description or "")
            assert "beginning of id 7" in (error_of(begins).description or "")
            assert rejects() == 3
            assert arrived(at, (7, 1, 0)) == [OK] and rejects() == 0
            stale = at.posting((1, 3, 2))
            at.commit(stale)
            assert info_of(stale.outcomes[0]) == {"seq-id": 7, "seq-no": 1}

    trio.run(main)


def test_eight_former_ids_know_their_duplicates(store: Store) -> None:
    """Late ones of the last eight are accepted and discarded, of older ones stale."""

    async def main() -> None:
        async with bench(store) as at:
            for seq_id in range(1, 11):
                assert arrived(at, *chain(1, 2, seq_id)) == [OK] * 2
            assert arrived(at, (2, 2, 1), (2, 3, 2), (1, 1, 0)) == [OK, STALE, STALE]
            stored = at.store.ask(StreamOf(at.queue.queue_id, "s"))
            assert stored is not None and stored.former == tuple((seq_id, 2) for seq_id in range(2, 10))

    trio.run(main)


def test_streams_of_a_queue_and_queues_are_apart(store: Store) -> None:
    """The state's key is (destination, stream)."""

    async def main() -> None:
        async with bench(store, ("q", "other")) as at:
            for queue in at.broker.nodes.queues.queues():
                at.queue = queue
                told = [arrived(at, (1, 1, 0), stream=stream) for stream in ("a", "b", "a")]
                assert told == [[OK]] * 3
                assert at.stored() == ["1.1", "1.1"]

    trio.run(main)
