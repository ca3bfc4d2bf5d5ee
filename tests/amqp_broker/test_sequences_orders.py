"""Every arrival order through the jobs of the broker and its store: in order and once, however the messages
are cut into runs and commits; and what a refused commit leaves.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest
import trio

from amqp_broker.authorisation import Principal
from amqp_broker.persistence import NoSuchNode, PageOf, StoreFull, StreamOf, StreamsOf
from amqp_broker.persistence.sqlite import SqliteStore
from tests.support.sequence_jobs import Bench, answers, bench
from tests.support.sequenced import Place, chain

STREAM_OF_FOUR: list[Place] = chain(1, 4)
THREE_THEN_TWO: list[Place] = [*chain(1, 3), *chain(1, 2, 2)]


def orders(messages: list[Place]) -> Iterator[list[Place]]:
    """Every arrival order of one to five of the messages, with repetitions."""
    for length in range(1, 6):
        for order in product(messages, repeat=length):
            yield list(order)


def arrive(at: Bench, order: list[Place], stream: str, cut: int) -> list[str]:
    """The messages that are stored when they arrive so: in one run, in runs of one commit, or in commits of
    one run each.
    """
    before = at.queue.next_offset
    if cut == 0:
        at.commit(at.posting(*order, stream=stream))
    elif cut == 1:
        at.commit(*[at.posting(place, stream=stream) for place in order])
    else:
        for place in order:
            at.commit(at.posting(place, stream=stream))
    page = at.store.ask(PageOf(at.queue.queue_id, before, 100, 100_000))
    return [record.body.decode() for record in page.records]


def in_order_and_once(bodies: list[str]) -> bool:
    """Whether within each id the numbers are 1, 2, 3, ... and no id comes back."""
    last = (0, 0)
    for body in bodies:
        seq_id, seq_no = map(int, body.split("."))
        if (seq_id, seq_no) not in ((last[0], last[1] + 1), (max(last[0] + 1, seq_id), 1)):
            return False
        last = (seq_id, seq_no)
    return True


@pytest.mark.parametrize(
    ("messages", "count"), [(STREAM_OF_FOUR, 1_364), (THREE_THEN_TWO, 3_905)], ids=["four", "three then two"]
)
def test_every_arrival_order_is_stored_in_order_and_once(messages: list[Place], count: int) -> None:
    """Each on a stream of its own; tests/coordinator has all orders of six."""

    async def main() -> None:
        async with bench() as at:
            seen = 0
            for seen, order in enumerate(orders(messages), 1):
                bodies = arrive(at, order, f"s{seen}", seen % 3)
                assert in_order_and_once(bodies), f"{order} became {bodies}"
            assert seen == count

    trio.run(main)


def test_a_resend_of_all_completes_every_order() -> None:
    """Whatever came before, the sender's resend from the beginning leaves each message there once."""

    async def main() -> None:
        async with bench() as at:
            for number, order in enumerate(product(STREAM_OF_FOUR, repeat=4)):
                first = at.queue.next_offset
                arrive(at, list(order), f"s{number}", number % 3)
                arrive(at, STREAM_OF_FOUR, f"s{number}", number % 2)
                page = at.store.ask(PageOf(at.queue.queue_id, first, 100, 100_000))
                assert [record.body for record in page.records] == [b"1.1", b"1.2", b"1.3", b"1.4"]

    trio.run(main)


def test_two_runs_of_one_stream_in_one_commit() -> None:
    """The second is judged where the first leaves the stream; both are one commit."""

    async def main() -> None:
        async with bench() as at:
            first, second = at.posting(*chain(1, 3)), at.posting((1, 3, 2), *chain(4, 5))
            at.commit(first, second)
            assert answers(first) == answers(second) == ["accepted"] * 3
            assert at.position() == (1, 5)
            assert at.stored() == ["1.1", "1.2", "1.3", "1.4", "1.5"]

    trio.run(main)


def test_a_group_that_is_undone_leaves_nothing() -> None:
    """The last one first; the same ones are judged again, also alone."""

    async def main() -> None:
        async with bench() as at:
            at.commit(at.posting((1, 1, 0)))
            jobs = [at.posting((1, 2, 1)), at.posting((1, 3, 2), (1, 9, 8))]
            for job in jobs:
                assert job.prepare(0)
            for job in reversed(jobs):
                job.undo()
                job.undo()  # once more is harmless
            assert (at.queue.next_offset, len(at.service.positions)) == (1, 1)
            at.commit(jobs[1])
            assert answers(jobs[1]) == ["seq:gap"] * 2
            at.commit(jobs[0])
            assert answers(jobs[0]) == ["accepted"]
            assert at.stored() == ["1.1", "1.2"]

    trio.run(main)


@pytest.mark.parametrize("error", [StoreFull("full"), NoSuchNode("gone")])
def test_a_refused_unit_does_not_move_the_stream(error: Exception) -> None:
    """Nothing of it was stored, nor of the one behind it: both are told, and a resend comes through."""

    async def main() -> None:
        async with bench() as at:
            at.commit(at.posting((1, 1, 0)))
            jobs = [at.posting((1, 2, 1)), at.posting((1, 3, 2))]
            for job in jobs:
                job.prepare(0)
            for job in reversed(jobs):
                job.undo()
            for job in jobs:
                job.refused(error)
            at.connection.read_mail()
            assert at.told[1:] == [error, error]
            assert at.position() == (1, 1)
            again = at.posting(*chain(2, 3))
            at.commit(again)
            assert answers(again) == ["accepted"] * 2
            assert at.stored() == ["1.1", "1.2", "1.3"]

    trio.run(main)


def test_below_the_low_water_mark_no_run_of_a_stream_gets_past_another(tmp_path: Path) -> None:
    """Durable messages are refused there, and messages that are not would leave the state behind them: a
    group of both is refused as a whole.
    """

    async def main() -> None:
        store = SqliteStore(tmp_path / "data")
        try:
            async with bench(store) as at:
                at.commit(at.posting((1, 1, 0)))
                store._space.refuse_posts = lambda: True  # type: ignore[method-assign]
                durable, volatile = at.posting((1, 2, 1)), at.posting((1, 3, 2), durable=False)
                at.commit(durable, volatile)
                assert [type(error) for error in at.told[1:]] == [StoreFull, StoreFull]
                store._space.refuse_posts = lambda: False  # type: ignore[method-assign]
                again = at.posting(*chain(2, 3))
                at.commit(again)
                assert answers(again) == ["accepted"] * 2
                assert (at.position(), at.stored()) == ((1, 3), ["1.1", "1.2", "1.3"])
        finally:
            store.close()

    trio.run(main)


def test_what_was_refused_alone_is_counted_on_disk() -> None:
    """A run of gaps keeps the count and the time, and does not move the stream; of a stream that there is not
    nothing is kept.
    """

    async def main() -> None:
        async with bench() as at:
            at.commit(at.posting((1, 1, 0)))
            at.commit(at.posting((1, 3, 2), (1, 1, 0)), at.posting((1, 4, 3)))
            stored = at.store.ask(StreamOf(at.queue.queue_id, "s"))
            assert stored is not None
            assert (stored.seq_no, stored.reject_count, stored.last_access_ms > 0) == (1, 3, True)
            at.commit(at.posting((1, 2, 1)))
            stored = at.store.ask(StreamOf(at.queue.queue_id, "s"))
            assert stored is not None and stored.reject_count == 0
            at.commit(*[at.posting((1, 2, 1), stream=f"invented {number}") for number in range(10)])
            assert [stream.stream for stream in at.store.ask(StreamsOf(at.queue.queue_id, "", 100))] == ["s"]

    trio.run(main)


def test_the_owner_is_who_was_accepted_first() -> None:
    """Also when another one's message stands in the same commit."""

    async def main() -> None:
        async with bench() as at:
            ann, ben = Principal("ann", "PLAIN"), Principal("ben", "PLAIN")
            first, second = at.posting((1, 1, 0), principal=ann), at.posting((1, 2, 1), principal=ben)
            at.commit(first, second)
            assert answers(second) == ["amqp:unauthorized-access"]
            stored = at.store.ask(StreamOf(at.queue.queue_id, "s"))
            assert stored is not None and (stored.owner, stored.seq_no) == ("ann", 1)

    trio.run(main)
