"""That equal consumers of a queue get equal parts, whatever comes when, and nobody is touched for nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.hungry import LOOK_MS, RUNS_PER_S, Hungry
from amqp_broker.persistence import Record
from amqp_broker.queue import Consumer, Queue, QueueLimits
from tests.filters.test_selection import filter_of, record_of
from tests.support.by_hand import connection_by_hand, idle_link
from tests.support.examples import examples

HUGE = 10**9
BROKEN: Any = {1: 7}  # no set of links


class World:
    """Equal consumers of a queue, and by how much each got ahead of each while that one wanted more."""

    def __init__(self, credit: int) -> None:
        self.credit = credit
        self.queue = Queue("q", 1, QueueLimits(HUGE, HUGE, HUGE))
        self.connection = connection_by_hand()
        self.now_ms = 0
        self.held: dict[Consumer, list[Record]] = {}
        self.got: Counter[Consumer] = Counter()
        self.ahead: Counter[tuple[Consumer, Consumer]] = Counter()

    def attach(self, *, text: str = "", priority: int = 0) -> Consumer:
        """A link begins to receive, with all of its credit."""
        made = Consumer(
            self.connection, idle_link(self.connection), self.queue, browser=False, settled=False,
            filter=filter_of(text) if text else None,
        )  # fmt: skip
        made.priority = priority
        self.queue.attach(made)
        self.held[made] = []
        made.ask(self.credit)
        return made

    def detach(self, consumer: Consumer) -> None:
        """It goes; what it held comes back."""
        self.queue.detach(consumer)
        consumer.ask(0)
        back = self.held.pop(consumer)
        del self.got[consumer]
        for pair in list(self.ahead):
            if consumer in pair:
                del self.ahead[pair]
        self.queue.give_back(back)

    def post(self, count: int) -> None:
        """Messages come."""
        records = [record_of("red", number) for number in range(count)]
        self.queue.number(records)
        self.queue.make_available(records, sum([len(record.body) for record in records]))

    def settle(self, consumer: Consumer, count: int) -> None:
        """A consumer accepts what it got first, and has as much more credit."""
        held = self.held[consumer]
        self.queue.retire(held[:count])
        del held[:count]
        consumer.ask(self.credit - len(held))

    def pump(self) -> dict[Consumer, int]:
        """What each gets now."""
        found: Counter[Consumer] = Counter()
        for consumer, run in self.queue.assign(self.now_ms):
            found[consumer] += len(run)
            self.held[consumer] += run
        self.got.update(found)
        for one in self.held:
            for other in self.held:
                if one.demand <= 0:
                    self.ahead[other, one] = 0
                elif found[other] or found[one]:
                    ahead = self.ahead[other, one] + found[other] - found[one]
                    self.ahead[other, one] = max(0, ahead)
        return found


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["post", "post", "settle", "settle", "settle all", "attach", "detach", "wait"]),
        st.integers(0, 60),
        st.integers(0, 10),
    ),
    max_size=60,
)


def act(world: World, step: str, number: int, which: int) -> None:
    """One thing happens."""
    links = list(world.held)
    if step == "post":
        world.post(number)
    elif step == "attach" and len(links) < 8:
        world.attach()
    elif step == "wait":
        world.now_ms += number * 4
    elif links and step == "settle":
        world.settle(links[which % len(links)], number % (world.credit + 1))
    elif links and step == "settle all":
        for each in links:
            world.settle(each, world.credit)
    elif len(links) > 1 and step == "detach":
        world.detach(links[which % len(links)])


@given(STEPS, st.sampled_from([1, 2, 5, 10, 100]), st.integers(2, 8))
@examples(400)
def test_nobody_gets_ahead_of_an_equal_that_wants_more(
    steps: list[tuple[str, int, int]], credit: int, links: int
) -> None:
    """Over any time in which one wants more than it gets, no other gets more than it by more than the credit;
    and nothing waits while somebody wants it.
    """
    world = World(credit)
    for _ in range(links):
        world.attach()
    for step, number, which in steps:
        act(world, step, number, which)
        world.pump()
        assert max(world.ahead.values(), default=0) <= credit
        assert not world.queue.backlog.loaded() or all(each.demand <= 0 for each in world.held)


@given(st.lists(st.tuples(st.integers(0, 90), st.integers(0, 250)), max_size=60), st.integers(1, 9))
@examples(200)
def test_who_always_wants_messages_gets_as_many(steps: list[tuple[int, int]], links: int) -> None:
    """With credit that is renewed at once, counts differ by at most the credit at any time; without a stream,
    by one.
    """
    world = World(100)
    for _ in range(links):
        world.attach()
    fast = False
    for count, wait_ms in steps:
        world.now_ms += wait_ms
        world.post(count)
        world.pump()
        (level,) = world.queue.levels
        fast = fast or level.least > 1
        for each in world.held:
            world.settle(each, world.credit)
        counts = [world.got[each] for each in world.held]
        assert max(counts) - min(counts) <= (world.credit if fast else 1)


def test_a_thousand_with_a_hundred_in_flight() -> None:
    """Credit of ten each, and never more than a hundred messages in all: everybody gets as many."""
    world = World(10)
    links = [world.attach() for _ in range(1_000)]
    for _ in range(200):
        world.post(100)
        for consumer, run in world.queue.assign(0):
            world.got[consumer] += len(run)
            world.held[consumer] += run
            world.settle(consumer, len(run))
    assert {world.got[each] for each in links} == {20}


def test_whoever_wants_nothing_is_not_touched() -> None:
    """Of a thousand, the two with credit are looked at."""
    looked: list[Any] = []

    class Watched(Consumer):
        def __getattribute__(self, name: str) -> Any:
            if name == "demand":
                looked.append(self)
            return super().__getattribute__(name)

    world = World(0)
    links = [
        Watched(world.connection, idle_link(world.connection), world.queue, browser=False, settled=False)
        for _ in range(1_000)
    ]
    for each in links:
        world.queue.attach(each)
    links[3].ask(10)
    links[700].ask(10)
    looked.clear()
    world.post(4)
    assert {consumer: len(run) for consumer, run in world.queue.assign(0)} == {links[3]: 2, links[700]: 2}
    assert set(looked) <= {links[3], links[700]}


def test_who_comes_late_has_nothing_to_catch_up() -> None:
    """Others go on getting as many, beside a new link and one that had no credit."""
    world = World(10)
    first, second = world.attach(), world.attach()
    second.ask(0)
    for _ in range(10):
        world.post(10)
        world.pump()
        world.settle(first, 10)
    second.ask(10)
    third = world.attach()
    before = world.got.copy()
    for _ in range(9):
        world.post(1)
        world.pump()
    assert {each: world.got[each] - before[each] for each in world.held} == {first: 3, second: 3, third: 3}


def test_only_a_stream_is_given_in_runs() -> None:
    """A batch is shared evenly, and while messages go on to come fast, runs get longer up to what is needed
    for so many in a second.
    """
    world = World(1_000)
    links = [world.attach() for _ in range(100)]
    world.post(1_000)
    assert set(world.pump().values()) == {10}
    world.now_ms += 10 * LOOK_MS
    batch, at_last = 15, 5
    for longest in (1, 2, 4, at_last, at_last):
        for _ in range(at_last * RUNS_PER_S * LOOK_MS // 1_000 // batch):
            world.post(batch)
            assert set(world.pump().values()) == {longest, batch % longest or longest}
        world.now_ms += LOOK_MS
    assert max(world.got.values()) - min(world.got[each] for each in links) <= at_last
    world.now_ms += LOOK_MS
    world.post(25)
    assert set(world.pump().values()) == {1}


def test_a_lower_priority_shares_what_is_left() -> None:
    """The higher ones have all of their credit used; those below are equal among themselves."""
    world = World(3)
    high = [world.attach(priority=1) for _ in range(2)]
    low = [world.attach() for _ in range(3)]
    world.post(12)
    found = world.pump()
    assert [found[each] for each in (*high, *low)] == [3, 3, 2, 2, 2]


def test_equal_filters_share_evenly() -> None:
    """Links that take the same by a filter are equal, beside others."""
    world = World(10)
    red = [world.attach(text="colour = 'red'") for _ in range(4)]
    for _ in range(20):
        world.post(3)
        for consumer in world.pump():
            world.settle(consumer, 10)
    assert {world.got[each] for each in red} == {15}


def test_a_fault_leaves_nobody_out() -> None:
    """Who had a message assigned when something unexpected came is served later."""
    world = World(5)
    links = [world.attach() for _ in range(3)]
    world.post(3)
    world.queue._excluded = BROKEN
    with pytest.raises(TypeError):
        world.queue.assign(0)
    world.queue._excluded = {}
    world.post(3)
    assert set(world.pump()) == set(links)


def test_what_left_is_forgotten() -> None:
    """Links that come, ask and go leave nothing behind where no message comes."""
    world = World(5)
    stays = world.attach()
    for _ in range(1_000):
        world.detach(world.attach())
    (level,) = world.queue.levels
    assert isinstance(level, Hungry)
    assert len(level._entries) < 100
    world.post(3)
    assert world.pump() == {stays: 3}
