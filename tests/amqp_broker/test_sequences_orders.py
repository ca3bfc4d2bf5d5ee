"""Streams by the operations of the broker and its store: every order, either store, bounds, very many."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path

import attrs
import pytest
import trio

from amqp_broker.authorisation import Principal
from amqp_broker.broker import open_broker
from amqp_broker.configuration import BrokerLimits
from amqp_broker.frames import Target
from amqp_broker.persistence import MemoryStore, NoSuchNode, Store, StoreFull
from amqp_broker.persistence.questions import PageOf, StreamOf, StreamsOf
from amqp_broker.persistence.sqlite import SqliteStore
from amqp_broker.sequences.positions import REMEMBERED_STREAMS
from amqp_broker.testing import memory_config
from tests.benchmarks.streams import run
from tests.links.pair import Message
from tests.support.broker_clients import error_of
from tests.support.by_hand import Main, Served, at_hand, drives, in_trio
from tests.support.sequence_jobs import Bench, answers, bench
from tests.support.sequenced import Place, annotated, chain, info_of

STREAM_OF_FOUR: list[Place] = chain(1, 4)
THREE_THEN_TWO: list[Place] = [*chain(1, 3), *chain(1, 2, 2)]


def run_at_bench(main: Main) -> None:
    """Run `main` at one."""

    async def run() -> None:
        async with bench() as at:
            await main(at)

    trio.run(run)


at_bench = drives(run_at_bench)


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
@at_bench
async def test_every_arrival_order_is_stored_in_order_and_once(
    at: Bench, messages: list[Place], count: int
) -> None:
    """Each on a stream of its own; tests/coordinator has all orders of six."""
    seen = 0
    for seen, order in enumerate(orders(messages), 1):
        bodies = arrive(at, order, f"s{seen}", seen % 3)
        assert in_order_and_once(bodies), f"{order} became {bodies}"
    assert seen == count


@at_bench
async def test_a_resend_of_all_completes_every_order(at: Bench) -> None:
    """Whatever came before, the sender's resend from the beginning leaves each message there once."""
    for number, order in enumerate(product(STREAM_OF_FOUR, repeat=4)):
        first = at.queue.next_offset
        arrive(at, list(order), f"s{number}", number % 3)
        arrive(at, STREAM_OF_FOUR, f"s{number}", number % 2)
        page = at.store.ask(PageOf(at.queue.queue_id, first, 100, 100_000))
        assert [record.body for record in page.records] == [b"1.1", b"1.2", b"1.3", b"1.4"]


@at_bench
async def test_two_runs_of_one_stream_in_one_commit(at: Bench) -> None:
    """The second is judged where the first leaves the stream; both are one commit."""
    first, second = at.posting(*chain(1, 3)), at.posting((1, 3, 2), *chain(4, 5))
    at.commit(first, second)
    assert answers(first) == answers(second) == ["accepted"] * 3
    assert at.position() == (1, 5)
    assert at.stored() == ["1.1", "1.2", "1.3", "1.4", "1.5"]


@at_bench
async def test_a_group_that_is_undone_leaves_nothing(at: Bench) -> None:
    """The last one first; the same ones are judged again, also alone."""
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


@pytest.mark.parametrize("error", [StoreFull("full"), NoSuchNode("gone")])
@at_bench
async def test_a_refused_unit_does_not_move_the_stream(at: Bench, error: Exception) -> None:
    """Nothing of it was stored, nor of the one behind it: both are told, and a resend comes through."""
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


@in_trio
async def test_below_the_low_water_mark_no_run_of_a_stream_gets_past_another(tmp_path: Path) -> None:
    """Durable messages are refused there, and messages that are not would leave the state behind them: a
    group of both is refused as a whole.
    """
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


@at_bench
async def test_what_was_refused_alone_is_counted_on_disk(at: Bench) -> None:
    """A run of gaps keeps the count and the time, and does not move the stream; of a stream that there is not
    nothing is kept.
    """
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


@at_bench
async def test_the_owner_is_who_was_accepted_first(at: Bench) -> None:
    """Also when another one's message stands in the same commit."""
    ann, ben = Principal("ann", "PLAIN"), Principal("ben", "PLAIN")
    first, second = at.posting((1, 1, 0), principal=ann), at.posting((1, 2, 1), principal=ben)
    at.commit(first, second)
    assert answers(second) == ["amqp:unauthorized-access"]
    stored = at.store.ask(StreamOf(at.queue.queue_id, "s"))
    assert stored is not None and (stored.owner, stored.seq_no) == ("ann", 1)


# Rows of the decision table, in either store


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
@in_trio
async def test_rows_of_the_table(store: Store, case: str) -> None:
    """What each message is told, what is stored, and where the stream stands then."""
    async with bench(store) as at:
        for places, told in CASES[case]:
            assert arrived(at, *places) == told
        assert at.stored() == LEFT[case]
        assert at.position() == tuple(map(int, LEFT[case][-1].split(".")))


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


@in_trio
async def test_eight_former_ids_know_their_duplicates(store: Store) -> None:
    """Late ones of the last eight are accepted and discarded, of older ones stale."""
    async with bench(store) as at:
        for seq_id in range(1, 11):
            assert arrived(at, *chain(1, 2, seq_id)) == [OK] * 2
        assert arrived(at, (2, 2, 1), (2, 3, 2), (1, 1, 0)) == [OK, STALE, STALE]
        stored = at.store.ask(StreamOf(at.queue.queue_id, "s"))
        assert stored is not None and stored.former == tuple((seq_id, 2) for seq_id in range(2, 10))


@in_trio
async def test_streams_of_a_queue_and_queues_are_apart(store: Store) -> None:
    """The state's key is (destination, stream)."""
    async with bench(store, ("q", "other")) as at:
        for queue in at.broker.nodes.queues.queues():
            at.queue = queue
            told = [arrived(at, (1, 1, 0), stream=stream) for stream in ("a", "b", "a")]
            assert told == [[OK]] * 3
            assert at.stored() == ["1.1", "1.1"]


# Bounds: `max_streams` where a store keeps them, `max_temporary_streams` in each queue that lives in memory


FULL = "amqp:resource-limit-exceeded"


def at_a_bench(main: object, most: int) -> None:
    """Run `main` at a queue of a broker that has room for so many streams."""

    async def run() -> None:
        store = MemoryStore()
        async with open_broker(memory_config(limits=BrokerLimits(max_streams=most)), store=store) as broker:
            queue = await broker.nodes.queues.create("q")
            await main(Bench(broker, store, queue))  # type: ignore[operator]

    trio.run(run)


def test_streams_are_bounded_in_number() -> None:
    """In one group, over groups, and after an administrator's reset; the refusal names the setting."""

    async def main(at: Bench) -> None:
        first, second, third = (at.posting((1, 1, 0), (1, 2, 1), stream=name) for name in "abc")
        at.commit(first, second, third)
        assert [answers(each) for each in (first, second, third)] == [
            ["accepted", "accepted"],
            ["accepted", "accepted"],
            [FULL, "seq:gap"],
        ]
        assert "max_streams" in third.outcomes[0].error.description
        known, new = at.posting((1, 3, 2), stream="a"), at.posting((1, 1, 0), stream="d")
        at.commit(known, new)
        assert (answers(known), answers(new)) == (["accepted"], [FULL])
        assert await at.broker.reset_stream("q", "a")
        again, more = at.posting((1, 1, 0), stream="d"), at.posting((1, 1, 0), stream="a")
        at.commit(again, more)
        assert (answers(again), answers(more)) == (["accepted"], [FULL])

    at_a_bench(main, 2)


def test_what_is_undone_makes_no_stream() -> None:
    """The group is made again: nothing is counted twice."""

    async def main(at: Bench) -> None:
        posting = at.posting((1, 1, 0), stream="a")
        for _ in range(3):
            posting.prepare(1)
            posting.undo()
        other = at.posting((1, 1, 0), stream="b")
        at.commit(posting, other)
        assert (answers(posting), answers(other)) == (["accepted"], ["accepted"])

    at_a_bench(main, 2)


def test_streams_are_counted_after_a_restart() -> None:
    """What the store has counts."""
    store = MemoryStore(store_id="s")

    async def life(name: str, expected: list[str]) -> None:
        config = memory_config(limits=BrokerLimits(max_streams=1))
        async with open_broker(config, store=store) as broker:
            at = Bench(broker, store, await broker.nodes.queues.create("q"))
            posting = at.posting((1, 1, 0), stream=name)
            at.commit(posting)
            assert answers(posting) == expected

    trio.run(life, "a", ["accepted"])
    trio.run(life, "b", [FULL])
    trio.run(life, "a", ["accepted"])


@at_hand(memory_config(limits=BrokerLimits(max_temporary_streams=1)))
async def test_a_temporary_queue_names_its_own_setting(at: Served) -> None:
    """`max_temporary_streams`."""
    sender = at.attach_sender(Target(dynamic=True))
    await at.settle()
    for name in ("a", "b", "a"):
        sender.send([Message(annotated((1, 1, 0), name))])
        await at.settle()
    assert at.conditions == ["accepted", FULL, "accepted"]
    assert "max_temporary_streams" in at.outcomes[1].error.description


@pytest.mark.parametrize("address", ["$half/new/q", "$half-resolve/new"])
@at_hand(attrs.evolve(memory_config(), limits=BrokerLimits(max_half_groups=2)))
async def test_groups_of_half_messages_are_bounded_in_number(at: Served, address: str) -> None:
    """Idle ones make room; where none is idle the refusal names the setting."""
    for name in ("a", "b"):
        at.attach_receiver(f"$half-check/{name}", 1, name)
        await at.settle()
    assert at.detached == []
    at.attach_sender(address)
    await at.settle()
    (refused,) = at.detached
    assert refused.error is not None and refused.error.condition == FULL
    assert "max_half_groups" in (refused.error.description or "")


# Many streams of one message each: memory does not grow with them, and each is found by one search


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


@in_trio
async def test_a_forgotten_stream_is_where_it_was(tmp_path: Path) -> None:
    """With room for three positions: streams that are used in turn are looked up, and none is lost."""
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
