"""Message groups: random histories against a plain model, and what a client sees of them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from amqp_broker.configuration import ConfigurationError, QueuePolicy
from amqp_broker.frames import Accepted, Modified, Properties, Released, Source, encode_message
from amqp_broker.links import ReceiverLink
from amqp_broker.message_groups import CLOSING_SEQUENCE, MessageGroups
from amqp_broker.persistence import Record
from amqp_broker.queue import Consumer, Queue, QueueLimits
from amqp_broker.testing import memory_config
from tests.filters.test_selection import filter_of
from tests.support.by_hand import (
    Control,
    Served,
    at_hand,
    by_hand,
    connection_by_hand,
    idle_link,
    text,
    within,
)
from tests.support.examples import seeds
from tests.support.jumping_broker import on_disk

HUGE = 10**9
COLOURS = ("red", "green")
GROUPED = memory_config(queue_policies=(QueuePolicy(pattern="g", groups=True),))
REBALANCED = memory_config(queue_policies=(QueuePolicy(pattern="g", groups=True, group_rebalance=True),))
Lane = tuple[str, str]


def record_of(group: str | None, colour: str, closes: bool = False) -> Record:
    """A message of a group (None: of none) that a filter can ask for."""
    sequence = CLOSING_SEQUENCE if closes else 1
    properties = Properties(group_id=group, group_sequence=sequence, subject=colour)
    return Record(0, encode_message(properties=properties, body=b"x"), durable=False)


class World:
    """A queue with groups, and what it should do. With `coloured` each link has a filter for one colour, and
    a lane is a group of one colour; else a lane is a group.
    """

    def __init__(self, coloured: bool, rebalances: bool, most: int) -> None:
        self.queue = Queue("q", 1, QueueLimits(HUGE, HUGE, HUGE))
        self.queue.groups = self.groups = MessageGroups(self.queue, most, rebalances=rebalances)
        self.most = most
        self.coloured = coloured
        self.rebalances = rebalances
        self.connection = connection_by_hand()
        self.told: dict[int, tuple[str | None, str, bool]] = {}
        self.waiting: dict[int, Record] = {}
        self.held: dict[Consumer, list[Record]] = {}
        self.colour: dict[Consumer, str] = {}
        self.holder: dict[Lane, Consumer] = {}
        self.loose: set[Lane] = set()

    def lane(self, record: Record) -> Lane | None:
        """Where a message belongs."""
        group, colour, _ = self.told[record.offset]
        return None if group is None else (group, colour if self.coloured else "")

    def out(self, lane: Lane) -> set[Consumer]:
        """Who has messages of a lane."""
        lanes = {each: {self.lane(record) for record in records} for each, records in self.held.items()}
        return {each for each, held in lanes.items() if lane in held}

    def settle_holders(self) -> None:
        """What is loose, and nothing is out of, is free."""
        for lane in [*self.loose]:
            if not self.out(lane):
                self.loose.discard(lane)
                self.holder.pop(lane, None)

    def attach(self, colour: str) -> None:
        """A link begins to receive."""
        wanted = filter_of(f"JMSType = '{colour}'") if self.coloured else None
        made = Consumer(
            self.connection, idle_link(self.connection), self.queue, browser=False, settled=False,
            filter=wanted,
        )  # fmt: skip
        self.colour[made] = colour
        self.held[made] = []
        if self.rebalances:
            self.loose |= set(self.holder)
        self.queue.attach(made)

    def detach(self, consumer: Consumer, kept: list[Record]) -> None:
        """A link goes; what it held comes back, but for what a transaction has `kept`."""
        self.queue.detach(consumer)
        back = [record for record in self.held[consumer] if record not in kept]
        self.loose |= {lane for lane, holder in self.holder.items() if holder is consumer}
        self.held[consumer] = kept
        self.give_back(back)

    def give_back(self, records: list[Record]) -> None:
        """Messages are available again."""
        for record in records:
            self.waiting[record.offset] = record
            for held in self.held.values():
                if record in held:
                    held.remove(record)
        self.queue.give_back(records)

    def retire(self, consumer: Consumer, records: list[Record]) -> None:
        """Messages are consumed."""
        for record in records:
            self.held[consumer].remove(record)
        self.queue.retire(records)

    def post(self, records: list[Record], told: list[tuple[str | None, str, bool]]) -> None:
        """Messages come."""
        self.queue.number(records)
        for record, each in zip(records, told, strict=True):
            self.told[record.offset] = each
            self.waiting[record.offset] = record
        self.queue.make_available(records, 0)

    def is_for(self, consumer: Consumer, record: Record) -> bool:
        """Whether a link may have a message."""
        return not self.coloured or self.told[record.offset][1] == self.colour[consumer]

    def pump(self) -> None:
        """Assign, and see that each message goes where the model says, in the order of its lane."""
        self.settle_holders()
        for consumer, run in self.queue.assign(0):
            for record in run:
                lane = self.lane(record)
                assert self.is_for(consumer, record)
                del self.waiting[record.offset]
                self.held[consumer].append(record)
                if lane is None:
                    continue
                assert lane not in self.loose, "something of it is still out"
                if self.most < HUGE and not self.out(lane) - {consumer}:
                    self.holder[lane] = consumer  # it may have been forgotten
                assert self.holder.setdefault(lane, consumer) is consumer
                assert not [
                    each for each in self.waiting.values()
                    if each.offset < record.offset and self.lane(each) == lane
                ]  # fmt: skip
                if self.told[record.offset][2]:
                    self.loose.add(lane)
        self.check()

    def check(self) -> None:
        """Nobody wants what he could have."""
        for consumer in self.queue.consumers:
            for record in self.waiting.values() if consumer.demand > 0 else ():
                lane = self.lane(record)
                if self.is_for(consumer, record):
                    assert lane is not None, "it is of no group"
                    full = sum(bool(self.out(each)) for each in self.holder) >= self.most
                    held = lane in self.holder and self.holder[lane].demand == 0
                    assert lane in self.loose or held or full
        for lane in self.holder:
            assert len(self.out(lane)) <= 1


@pytest.mark.parametrize("coloured", [False, True])
@pytest.mark.parametrize("rebalances", [False, True])
@pytest.mark.parametrize("most", [2, HUGE])
@pytest.mark.parametrize("seed", seeds(12))
def test_any_history(seed: int, most: int, rebalances: bool, coloured: bool) -> None:
    """Links come, go, want, settle and give back; messages come, some of no group, some that close one."""
    rand = random.Random(seed)
    world = World(coloured, rebalances, most)
    for _ in range(100):
        links = [*world.queue.consumers]
        choice = rand.random()
        if choice < 0.12 or not links:
            world.attach(rand.choice(COLOURS))
        elif choice < 0.18:
            gone = rand.choice(links)
            world.detach(gone, [each for each in world.held[gone] if rand.random() < 0.3])
        elif choice < 0.5:
            link = rand.choice(links)
            link.ask(link.demand + rand.randrange(4))
        elif choice < 0.75:
            told = [_spec(rand) for _ in range(rand.randrange(5))]
            world.post([record_of(*each) for each in told], told)
        else:
            consumer = rand.choice([*world.held])
            some = [each for each in world.held[consumer] if rand.random() < 0.6]
            world.give_back(some) if rand.random() < 0.3 else world.retire(consumer, some)
        world.pump()
    assert world.groups.count == len(world.holder) or world.groups.count <= most < HUGE


def _spec(rand: random.Random) -> tuple[str | None, str, bool]:
    group = rand.choice([None, "a", "b", "c", "d" * 100])
    return group, rand.choice(COLOURS), group is not None and rand.random() < 0.2


# What a client sees


def grouped(body: bytes, group: str | None, *, closes: bool = False) -> Any:
    """A message of a group."""
    return text(body, properties=Properties(group_id=group, group_sequence=CLOSING_SEQUENCE if closes else 0))


async def put(at: Served, *messages: Any) -> None:
    """Messages in the queue."""
    link = await at.sender("g", "puts")
    link.send(messages)
    await at.settle()
    assert at.outcomes == [Accepted()] * len(messages)
    at.outcomes.clear()
    link.detach()
    await at.settle()


def come(at: Served) -> list[bytes]:
    """What has come, which is forgotten here."""
    found = at.bodies()
    at.received.clear()
    return found


async def settle(at: Served, link: ReceiverLink, outcome: Any) -> list[bytes]:
    """Give what has come an outcome; its bodies."""
    found = at.bodies()
    link.settle(at.take(), outcome)
    await at.settle()
    return found


@at_hand(GROUPED)
async def test_a_group_goes_to_one_consumer(at: Served) -> None:
    """Also what comes later, although others have credit and it has none."""
    one, two = at.another("one"), at.another("two")
    await one.receiver("g", 2)
    await two.receiver("g", 9)
    await put(at, *(grouped(b"%d" % number, "a") for number in range(2)), grouped(b"x", "b"))
    assert [come(one), come(two)] == [[b"0", b"1"], [b"x"]]
    await put(at, grouped(b"2", "a"), grouped(b"y", "b"), grouped(b"none", None))
    assert [come(one), come(two)] == [[], [b"y", b"none"]]


@at_hand(GROUPED)
async def test_a_released_message_comes_back_to_its_holder(at: Served) -> None:
    """In its old place, before what came behind it."""
    one, two = at.another("one"), at.another("two")
    link = await one.receiver("g", 1)
    await two.receiver("g", 9)
    await put(at, grouped(b"0", "a"), grouped(b"1", "a"))
    assert await settle(one, link, Released()) == [b"0"]
    link.flow(2)
    await at.settle()
    assert [come(one), come(two)] == [[b"0", b"1"], []]


@at_hand(GROUPED)
async def test_a_group_ends_with_its_consumer(at: Served) -> None:
    """What that held comes first to the next one."""
    one, two = at.another("one"), at.another("two")
    link = await one.receiver("g", 2)
    await two.receiver("g", 9)
    await put(at, *(grouped(b"%d" % number, "a") for number in range(4)))
    link.detach()
    await at.settle()
    assert come(two) == [b"0", b"1", b"2", b"3"]


@at_hand(GROUPED)
async def test_a_closing_message_ends_its_group(at: Served) -> None:
    """What follows goes to whoever wants it, once everything before it is settled."""
    one, two = at.another("one"), at.another("two")
    link = await one.receiver("g", 2)
    await two.receiver("g", 9)
    await put(at, grouped(b"0", "a"), grouped(b"1", "a", closes=True), grouped(b"2", "a"))
    assert come(two) == []
    assert await settle(one, link, Accepted()) == [b"0", b"1"]
    assert [come(one), come(two)] == [[], [b"2"]]


@at_hand(GROUPED)
async def test_a_group_waits_for_the_transaction_that_has_its_messages(at: Served) -> None:
    """The consumer is gone, but what becomes of its messages is not decided."""
    one, two = at.another("one"), at.another("two")
    control = Control(one)
    txn_id = await control.declare()
    link = await one.receiver("g", 1)
    await put(at, grouped(b"0", "a"), grouped(b"1", "a"))
    link.settle(one.take(), within(txn_id, Accepted()))
    await at.settle()
    link.detach()
    await two.receiver("g", 9)
    assert come(two) == []
    await control.commit(txn_id)
    assert come(two) == [b"1"]


@at_hand(GROUPED)
async def test_who_cannot_have_a_message_keeps_the_rest(at: Served) -> None:
    """Undeliverable-here: that message goes to another one, what follows does not."""
    one, two = at.another("one"), at.another("two")
    link = await one.receiver("g", 1)
    await two.receiver("g", 9)
    await put(at, grouped(b"0", "a"), grouped(b"1", "a"))
    assert await settle(one, link, Modified(undeliverable_here=True)) == [b"0"]
    assert come(two) == [b"0"]
    link.flow(1)
    await at.settle()
    assert [come(one), come(two)] == [[b"1"], []]


@at_hand(REBALANCED)
async def test_a_new_consumer_gets_its_share(at: Served) -> None:
    """Each group moves when nothing of it is with its holder."""
    one, two = at.another("one"), at.another("two")
    link = await one.receiver("g", 9)
    await put(at, grouped(b"a0", "a"), grouped(b"b0", "b"))
    await two.receiver("g", 9)
    await put(at, grouped(b"a1", "a"), grouped(b"b1", "b"))
    assert come(two) == [] and len(one.received) == 2
    assert await settle(one, link, Accepted()) == [b"a0", b"b0"]
    assert len(come(one)) == len(come(two)) == 1


@at_hand(memory_config(queue_policies=(QueuePolicy(pattern="g", groups=True, max_groups=2),)))
async def test_there_are_at_most_so_many_groups(at: Served) -> None:
    """`max_groups`: a third one waits while messages of both are out, and takes the place of one then."""
    link = await at.receiver("g", 9)
    other = at.another()
    await put(other, *(grouped(name.encode(), name) for name in "abc"))
    groups = at.queue("g").groups
    assert groups is not None and groups.count == 2
    assert await settle(at, link, Accepted()) == [b"a", b"b"]
    assert come(at) == [b"c"]
    assert groups.count == 2


@at_hand(GROUPED)
async def test_a_drain_is_answered(at: Served) -> None:
    """What waits for another consumer is not there for this one."""
    one, two = at.another("one"), at.another("two")
    await one.receiver("g", 1)
    link = await two.receiver("g", 0)
    await put(at, grouped(b"0", "a"), grouped(b"1", "a"))
    link.flow(5, drain=True)
    await at.settle()
    assert (link.credit, come(two)) == (0, [])


@at_hand(GROUPED)
async def test_browsers_see_all_groups(at: Served) -> None:
    """They hold none."""
    other = at.another()
    await other.receiver(Source(address="g", distribution_mode="copy"), 9)
    await put(at, grouped(b"0", "a"), grouped(b"1", "b"))
    assert come(other) == [b"0", b"1"]
    groups = at.queue("g").groups
    assert groups is not None and groups.count == 0


def test_after_a_restart_groups_begin_anew(tmp_path: Path) -> None:
    """Messages keep their order, whoever holds their group then."""
    config = on_disk(tmp_path, GROUPED)

    async def before(at: Served) -> None:
        await at.receiver("g", 1)
        await put(at.another(), *(grouped(b"%d" % number, "a") for number in range(4)))

    async def after(at: Served) -> None:
        one, two = at.another("one"), at.another("two")
        await one.receiver("g", 2)
        await two.receiver("g", 9)
        assert [come(one), come(two)] == [[b"0", b"1"], []]

    by_hand(before, config)
    by_hand(after, config)


def test_a_queue_without_groups_has_none() -> None:
    """Off unless the queue asks: group-ids mean nothing there."""

    async def main(at: Served) -> None:
        one, two = at.another("one"), at.another("two")
        await one.receiver("g", 9)
        await two.receiver("g", 9)
        await put(at, *(grouped(b"%d" % number, "a") for number in range(4)))
        assert at.queue("g").groups is None
        assert [len(come(one)), len(come(two))] == [2, 2]

    by_hand(main)


def test_a_log_has_no_groups() -> None:
    """Nobody takes from it."""
    with pytest.raises(ConfigurationError, match="groups"):
        QueuePolicy(pattern="x", kind="log", groups=True, retention_ms=1000)
