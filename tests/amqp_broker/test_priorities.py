"""Queues with priorities (3.2.1): the most urgent message in memory first, inside each priority in order."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from amqp_broker.configuration import BrokerLimits, QueuePolicy
from amqp_broker.frames import Accepted, Described, Header, Released, Source, Symbol, encode_message
from amqp_broker.persistence import Record
from amqp_broker.priorities import AHEAD_MESSAGES, PriorityBacklog
from tests.links.pair import Message as Sendable
from tests.support.broker_clients import at_rest, bodies, receive, session_to, take_everything
from tests.support.by_hand import Control, Served, at_hand, within
from tests.support.examples import examples
from tests.support.jumping_broker import PATIENT, Start, on_disk

CONFIG = attrs.evolve(
    PATIENT, queue_policies=(QueuePolicy(pattern="q", priorities=True), QueuePolicy(pattern="small",
    priorities=True, max_messages=3)),
)  # fmt: skip
LITTLE = attrs.evolve(
    CONFIG, limits=BrokerLimits(idle_time_out_ms=2**32 - 1, queue_window_messages=4)
)  # fmt: skip
here = at_hand(CONFIG)
in_little_memory = at_hand(LITTLE)
NUMBERS = (4, 9, 0, 4, 9, 7, 0, 4)


def of(offset: int, priority: int, *, durable: bool = True) -> Record:
    """A message of ten octets."""
    return Record(offset, bytes(10), priority=priority, durable=durable)


def in_order(priorities: tuple[int, ...]) -> list[bytes]:
    """The bodies of `urgent` for these, as they come."""
    places = sorted(range(len(priorities)), key=lambda at: (-priorities[at], at))
    return [b"%d.%d" % (priorities[at], at) for at in places]


def sendable(priority: int, at: int, *, durable: bool = True) -> bytes:
    """A message with its priority and number as the body."""
    return encode_message(header=Header(durable=durable, priority=priority), body=b"%d.%d" % (priority, at))


# Pure


def test_one_priority_costs_nothing() -> None:
    """Whichever it is: nothing is kept beside the window."""
    backlog = PriorityBacklog()
    for priority in (4, 7):
        backlog.add([of(backlog.available_to + at, priority) for at in range(5)])
        assert not backlog.mixed and not backlog._next
        backlog.put_back(backlog.take(1)[0])
        assert len(backlog.take(5)) == 5 and not backlog._next


def test_more_urgent_than_all_on_disk() -> None:
    """They overtake it, as many as may be ahead; then they stand in their places, and none of their priority
    overtakes those.
    """
    backlog = PriorityBacklog(window_messages=4)
    backlog.add([of(offset, 4) for offset in range(10)])
    backlog.add([of(10 + at, 9, durable=at % 3 > 0) for at in range(AHEAD_MESSAGES + 5)])
    assert len(backlog._returned) == AHEAD_MESSAGES and max(backlog._on_disk) == 9
    first = backlog.take(AHEAD_MESSAGES - 1)
    assert [each.offset for each in first] == list(range(10, AHEAD_MESSAGES + 9))
    backlog.add([of(2_000, 9)])
    assert [each.offset for each in backlog.take(9)] == [AHEAD_MESSAGES + 9, 0, 1, 2, 3]
    assert backlog.take(1) == [] and backlog.page_wanted()


def test_what_came_back_waits_for_its_like_on_disk() -> None:
    """A link with a filter took it from there; others of its priority stand before it. When the disk was read
    to its end, everything is as at the beginning.
    """
    backlog = PriorityBacklog(window_messages=2)
    backlog.add([of(offset, 4) for offset in range(6)])
    backlog.add([of(6, 9)])
    backlog.take_out([of(5, 4)])
    backlog.put_back(of(5, 4))
    assert [each.offset for each in backlog.take(9)] == [6, 0, 1]
    backlog.paged([of(2, 4), of(3, 4), of(4, 4)], 7)
    assert [each.offset for each in backlog.take(9)] == [2, 3, 4, 5]
    backlog.add([of(offset, 4) for offset in range(7, 12)])
    backlog.paged([of(offset, 4) for offset in range(9, 12)], 12)
    backlog.add([of(offset, 2) for offset in range(12, 20)])
    backlog.add([of(20, 4)])
    assert [each.offset for each in backlog.take(6)] == [7, 8, 9, 10, 11, 20]


class RandomHistories(RuleBasedStateMachine):
    """A window of six and a disk that is a list, against all there is in one list."""

    def __init__(self) -> None:
        super().__init__()
        self.backlog = PriorityBacklog(window_messages=6)
        self.stored: dict[int, Record] = {}
        self.there: dict[int, Record] = {}
        self.held: list[Record] = []
        self.next = 0

    @rule(
        kinds=st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=5), copies=st.integers(0, 7)
    )
    def add(self, kinds: list[tuple[int, bool]], copies: int) -> None:
        """Messages of some priorities, volatile ones among them."""
        records = [of(self.next + at, *kind[:1], durable=kind[1]) for at, kind in enumerate(kinds)]
        self.next += len(records)
        self.there.update({each.offset: each for each in records})
        self.stored.update({each.offset: each for each in records if each.durable})
        self.backlog.add(records, copies > 0)

    def in_memory(self) -> list[Record]:
        """What can be given at once."""
        backlog = self.backlog
        return backlog._ready[backlog._head :] + [record for _, record in backlog._returned]

    @rule(count=st.integers(1, 5))
    def take(self, count: int) -> None:
        """The most urgent one in memory; nothing of its priority stands before it."""
        for record in self.backlog.take(count):
            before = [each for each in self.there.values() if each.offset < record.offset]
            assert not [each for each in before if each.priority == record.priority]
            waits = [each for each in self.in_memory() if each.priority > record.priority]
            assert all(0 <= self.backlog.disk_from < each.offset for each in waits)
            del self.there[record.offset]
            self.held.append(record)

    @rule(at=st.integers(0, 20))
    def give_back(self, at: int) -> None:
        """Somebody releases one."""
        if self.held:
            record = self.held.pop(at % len(self.held))
            self.there[record.offset] = record
            self.backlog.put_back(record)

    @rule(at=st.integers(0, 20))
    def take_out(self, at: int) -> None:
        """A link with a filter takes one, wherever it stands."""
        if self.there:
            record = self.there.pop(sorted(self.there)[at % len(self.there)])
            self.backlog.take_out([record])
            self.held.append(record)

    @rule(at=st.integers(0, 20))
    def accept(self, at: int) -> None:
        """One that is held leaves for good."""
        if self.held:
            self.stored.pop(self.held.pop(at % len(self.held)).offset, None)

    @rule()
    def page(self) -> None:
        """The disk is read, if that is wanted."""
        backlog = self.backlog
        if backlog.page_wanted():
            room, _ = backlog.page_room()
            found = [each for at, each in sorted(self.stored.items()) if at >= backlog.disk_from][:room]
            next_offset = found[-1].offset + 1 if found else self.next
            if len(found) < room:
                next_offset = self.next
            backlog.paged([each for each in found if each.offset not in backlog.ahead], next_offset)

    @invariant()
    def all_are_there(self) -> None:
        """Nothing is lost or twice."""
        assert self.backlog.available() == len(self.there)

    def teardown(self) -> None:
        """All come, each once."""
        for _ in range(200):
            self.page()
            self.take(5)
        assert not self.there


RandomHistories.TestCase.settings = examples(60, stateful_step_count=60)
TestRandomHistories = RandomHistories.TestCase


# A broker


def urgent(*priorities: int, durable: bool = True) -> list[Sendable]:
    """A message of each priority."""
    return [Sendable(sendable(each, at, durable=durable)) for at, each in enumerate(priorities)]


@pytest.mark.parametrize("durable", [True, False])
@here
async def test_the_most_urgent_first(at: Served, durable: bool) -> None:
    """Inside each priority in order; who browses sees all in the places in which they came."""
    sender = await at.sender("q")
    sender.send(urgent(*NUMBERS, durable=durable))
    await at.settle()
    link = await at.receiver(Source(address="q", distribution_mode="copy"), 100, "looks")
    assert at.bodies() == [b"%d.%d" % (each, place) for place, each in enumerate(NUMBERS)]
    link.detach()
    at.take()
    await at.receiver("q", 100)
    assert at.bodies() == in_order(NUMBERS)


@here
async def test_without_the_setting_all_are_of_one_priority(at: Served) -> None:
    """As they came."""
    sender = await at.sender("plain")
    sender.send(urgent(*NUMBERS))
    await at.settle()
    await at.receiver("plain", 100)
    assert at.bodies() == [b"%d.%d" % (each, place) for place, each in enumerate(NUMBERS)]


@here
async def test_released_ones_take_their_places(at: Served) -> None:
    """Among those of their priority; in a transaction that rolls back, too."""
    sender = await at.sender("q")
    sender.send(urgent(*NUMBERS))
    await at.settle()
    receiver = await at.receiver("q", 4)
    first = at.take()
    control = Control(at)
    txn_id = await control.declare()
    receiver.settle(first[:2], Released())
    receiver.settle(first[2:], within(txn_id, Accepted()))
    await control.roll_back(txn_id)
    receiver.detach()
    await at.rest()
    await at.receiver("q", 100, "again")
    assert at.bodies() == in_order(NUMBERS)


@here
async def test_links_with_filters(at: Served) -> None:
    """They get what they are for in the same order, and so do those beside them what is left."""
    sender = await at.sender("q")
    sender.send(urgent(*NUMBERS))
    await at.settle()
    selector = Described(Symbol("apache.org:selector-filter:string"), "JMSPriority <> 9")
    wanted = Source(address="q", filter={"mine": selector})
    filtered = await at.receiver(wanted, 2, "filtered")
    assert at.bodies() == [b"7.5", b"4.0"]
    filtered.flow(2)
    await at.settle()
    assert at.bodies()[2:] == [b"4.3", b"4.7"]
    await at.receiver("q", 100)
    assert at.bodies()[4:] == [b"9.1", b"9.4", b"0.2", b"0.6"]


@in_little_memory
async def test_a_backlog_on_disk(at: Served) -> None:
    """What comes later and is more urgent overtakes it. What is on disk comes in its order, by priority as
    far as the window goes.
    """
    sender = await at.sender("q")
    sender.send(urgent(*[4] * 10))
    await at.rest()
    sender.send(urgent(*[9] * 3))
    await at.rest()
    sender.send(urgent(0, 4, 9))
    await at.rest()
    assert at.queue().backlog.disk_from >= 0
    await at.receiver("q", 100)
    await at.rest()
    assert at.bodies() == [
        b"9.0", b"9.1", b"9.2", b"9.2", *[b"4.%d" % place for place in range(10)], b"4.1", b"0.0",
    ]  # fmt: skip


@in_little_memory
async def test_nothing_is_lost_or_twice_in_little_memory(at: Served) -> None:
    """Each priority in its order, whatever is read when."""
    sender = await at.sender("q")
    priorities = [(7 * place) % 10 for place in range(60)]
    sender.send(urgent(*priorities))
    await at.rest()
    receiver = await at.receiver("q", 7)
    found: list[bytes] = []
    for _ in range(60):
        found += at.bodies()
        receiver.settle(at.take(), Accepted())
        receiver.flow(7)
        await at.rest()
    assert sorted(found) == sorted(b"%d.%d" % (each, place) for place, each in enumerate(priorities))
    for priority in range(10):
        places = [int(body[2:]) for body in found if body.startswith(b"%d" % priority)]
        assert places == sorted(places)
    assert at.queue().message_count == 0


@here
async def test_max_messages_is_as_it_was(at: Served) -> None:
    """An urgent one has no room of its own."""
    sender = await at.sender("small")
    sender.send(urgent(4, 9, 0))
    await at.settle()
    assert sender.credit == 0
    await at.receiver("small", 1)
    assert at.bodies() == [b"9.1"]


def test_order_survives_a_restart(start: Start, tmp_path: Path) -> None:
    """The priorities are stored; what fits into the window is given by them."""
    config = on_disk(tmp_path, CONFIG)
    broker = start(config)
    with session_to(broker) as session:
        link = session.attach_sender("sends", "q")
        numbers = [link.send(sendable(each, place)) for place, each in enumerate(NUMBERS)]
        session.connection.pump_until(lambda: all(number in link.outcomes for number in numbers))
    broker = start(config, broker)
    with session_to(broker) as session:
        receiver = session.attach_receiver("takes", "q", credit=3)
        assert bodies(receive(receiver, 3)) == in_order(NUMBERS)[:3]
        receiver.detach()
        at_rest(broker)
        assert bodies(take_everything(session.attach_receiver("all", "q"))) == in_order(NUMBERS)


@at_hand(attrs.evolve(PATIENT, queue_policies=(QueuePolicy(pattern="**", priorities=True),)))
async def test_not_among_dead_letters(at: Served) -> None:
    """Where there are too many, the oldest are dropped, not the most urgent."""
    sender = await at.sender("dead-letters")
    sender.send(urgent(*NUMBERS))
    await at.settle()
    assert await at.left("dead-letters") == [b"%d.%d" % (each, place) for place, each in enumerate(NUMBERS)]
