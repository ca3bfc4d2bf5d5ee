"""Messages that are too large for a link (max-message-size, 2.7.3): passed over there, and nobody waits."""

from __future__ import annotations

from typing import Any, cast

import pytest

from amqp_broker.frames import Accepted, Released, Source, Target
from amqp_broker.links import ReceiverLink
from amqp_broker.oversized import OVERSIZED_BYTES, OVERSIZED_MESSAGES
from amqp_broker.persistence import Record
from amqp_broker.queue import Consumer, Queue, QueueLimits
from amqp_broker.records import octets
from tests.amqp_broker.test_queue import HUGE, got
from tests.links.pair import Message as Sendable
from tests.support.by_hand import Served, at_hand, connection_by_hand, idle_link
from tests.support.halves import half, named
from tests.support.jumping_broker import PATIENT
from tests.support.retained import filters

LIMIT = 1_000
LARGE, SMALL = b"L" * 2_000, b"s" * 10


def post(queue: Queue, *sizes: int) -> list[Record]:
    """Messages of so many octets."""
    records = [Record(0, bytes(size)) for size in sizes]
    queue.number(records)
    queue.make_available(records, sum(sizes))
    return records


def consumer(queue: Queue, demand: int, largest: int = 0) -> Consumer:
    """A link that takes messages of `largest` octets."""
    connection = connection_by_hand()
    link = idle_link(connection)
    made = Consumer(connection, link, queue, browser=False, settled=False, largest=largest)
    queue.attach(made)
    made.ask(demand)
    return made


def make_queue() -> Queue:
    """An empty queue without bounds."""
    return Queue("q", 1, QueueLimits(HUGE, HUGE, HUGE))


# The queue


def test_those_behind_a_large_one_do_not_wait() -> None:
    """A link gets what it takes, in order; what is too large keeps its place for others."""
    queue = make_queue()
    narrow = consumer(queue, 10, LIMIT)
    post(queue, 2_000, 10, 3_000, 20)
    assert got(queue.assign(0), narrow) == [1, 3]
    assert (queue.backlog.available(), queue.available_for(narrow), queue.oversized_for_all()) == (2, 0, 2)
    post(queue, 30)
    assert got(queue.assign(0), narrow) == [4]
    wide = consumer(queue, 10)
    assert queue.oversized_for_all() == 0
    assert got(queue.assign(0), wide) == [0, 2]


@pytest.mark.parametrize("wide_first", [True, False])
def test_another_link_gets_it_at_once(wide_first: bool) -> None:
    """Whoever has its turn first: one pass over the links is enough."""
    queue = make_queue()
    links = [consumer(queue, 10, 0 if wide else LIMIT) for wide in (wide_first, not wide_first)]
    wide = links[0 if wide_first else 1]
    post(queue, 2_000)
    assert got(queue.assign(0), wide) == [0]
    assert queue.backlog.available() == 0


def test_the_old_place_is_kept() -> None:
    """What stood aside comes before what stands behind it, and after what stands before it."""
    queue = make_queue()
    narrow = consumer(queue, 1, LIMIT)
    post(queue, 10, 2_000, 20, 30)
    ((_, held),) = queue.assign(0)
    narrow.ask(1)
    ((_, later),) = queue.assign(0)
    assert [record.offset for record in [*held, *later]] == [0, 2]
    queue.give_back(held)
    wide = consumer(queue, 10)
    assert got(queue.assign(0), wide) == [0, 1, 3]


def test_links_of_several_sizes() -> None:
    """Each message goes to a link that takes it."""
    queue = make_queue()
    small, middle = consumer(queue, 10, 100), consumer(queue, 10, LIMIT)
    post(queue, 500, 50, 5_000)
    grants = queue.assign(0)
    assert 0 in got(grants, middle) and 2 not in got(grants, middle)
    assert set(got(grants, small)) <= {1}
    assert queue.oversized_for_all() == 1


def test_the_size_is_that_of_the_whole_message() -> None:
    """Header and all: exactly the bound goes, one octet more does not."""
    queue = make_queue()
    (record,) = post(queue, 100)
    size = octets(record, 110, 0)
    assert 100 < size < 132
    exact = consumer(queue, 1, size)
    below = consumer(queue, 1, size - 1)
    grants = queue.assign(0)
    assert (got(grants, exact), got(grants, below)) == ([0], [])


def test_more_than_may_stand_aside_waits_for_others() -> None:
    """The bound by number and that by octets: beyond it narrow links wait, a drain is answered, and wide
    links make room.
    """
    assert OVERSIZED_BYTES >= 16 << 20, "at least one of the largest size"
    queue = make_queue()
    queue.backlog.window_messages = queue.backlog.window_bytes = HUGE
    narrow = consumer(queue, 10, LIMIT)
    large = OVERSIZED_MESSAGES + 20
    post(queue, *[2_000] * large, 10)
    assert got(queue.assign(0), narrow) == []
    assert queue.backlog.oversized.count == OVERSIZED_MESSAGES and queue.empty_for(narrow)
    wide = consumer(queue, 30)
    grants = queue.assign(0)
    assert (got(grants, wide), got(grants, narrow)) == ([*range(30)], [large])


def test_a_flood_of_large_ones_is_looked_at_once() -> None:
    """Each assignment costs what is new, not what stands aside."""
    queue = make_queue()
    narrow = consumer(queue, HUGE, LIMIT)
    post(queue, *[2_000] * 1_000)
    queue.assign(0)
    heaps = queue.backlog.oversized._heaps
    before = {bound: list(heap) for bound, heap in heaps.items()}
    for number in range(10):
        post(queue, 10)
        assert got(queue.assign(0), narrow) == [1_000 + number]
    assert {bound: list(heap) for bound, heap in heaps.items()} == before
    assert queue.backlog.loaded() == 0


# What links to a queue get


class Told:
    """Stands for the log of the nodes."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []

    def warning(self, event: str, **fields: Any) -> None:
        self.events.append((event, fields))

    info = error = warning


async def narrow_receiver(
    at: Served, address: str = "q", credit: int = 10, name: str = "narrow", limit: int = LIMIT, **fields: Any
) -> ReceiverLink:
    """A link that takes messages of at most so many octets."""
    link = ReceiverLink(at.session, name, at.session.free_handle())
    link.max_message_size = limit
    at.session._attach(link, Source(address=address, **fields), Target(), {})
    link.set_credit(credit)
    await at.settle()
    return link


@at_hand()
async def test_a_link_gets_what_it_takes_and_another_the_rest(at: Served) -> None:
    """And the log says once that nobody takes the rest, as long as that is so."""
    told = Told()
    at.broker.nodes._log = cast("Any", told)
    narrow = await narrow_receiver(at)
    for _ in range(2):
        await at.post("q", LARGE, SMALL)
    assert at.bodies() == [SMALL, SMALL] and at.queue().message_count == 4
    warnings = [fields for event, fields in told.events if event == "messages.too_large"]
    assert [(each["queue"], each["max_message_size"]) for each in warnings] == [("q", LIMIT)]
    narrow.flow(10, drain=True)
    await at.settle()
    assert narrow.credit == 0
    assert await at.left("q") == [LARGE, LARGE]
    assert len(told.events) == 1


@at_hand()
async def test_what_comes_back_to_a_narrow_link_is_not_sent_there(at: Served) -> None:
    """A wide link releases a large message: the narrow one does not get it, the wide one gets it again."""
    other = at.another()
    wide = await other.receiver("q")
    wide.flow(1)
    await narrow_receiver(at)
    await at.post("q", LARGE, SMALL, durable=False)
    assert other.bodies() == [LARGE]
    wide.settle(other.take(), Released())
    await at.settle()
    assert at.bodies() == [SMALL]
    wide.flow(1)
    await at.settle()
    assert other.bodies() == [LARGE] and len(at.received) == 1


@at_hand()
async def test_a_browser_is_not_shown_what_it_does_not_take(at: Served) -> None:
    """Wide ones see everything in its place, also what stands aside for a consumer."""
    await narrow_receiver(at, credit=1, name="consumer")
    await at.post("q", LARGE, SMALL, LARGE, durable=False)
    at.received.clear()
    browser = await narrow_receiver(at, credit=0, name="browser", distribution_mode="copy")
    browser.flow(10, drain=True)
    await at.settle()
    assert not at.received and browser.credit == 0
    await at.receiver(Source(address="q", distribution_mode="copy"), 10)
    assert at.bodies() == [LARGE, LARGE]


@at_hand(PATIENT)
async def test_a_check_for_a_narrow_link_has_no_body_and_a_too_large_one_goes_elsewhere(at: Served) -> None:
    """What must not be sent is not: the question fits without the body, or another link is asked."""
    narrow, put = await narrow_receiver(at, "$half-check/g"), await at.sender("$half/g/q")
    put.send([Sendable(half("1", LARGE))])
    await at.settle()
    await at.pass_time(6)
    (check,) = at.take()
    assert named(check.payload)["half_body_omitted"] is True and len(check.payload) <= LIMIT
    narrow.dispose([check], Accepted(), True)
    put.send([Sendable(half("2", named={"much": "x" * 2_000}))])
    await at.settle()
    await at.pass_time(6)
    assert not at.received
    wide = at.another()
    await wide.receiver("$half-check/g", 10)
    await at.pass_time(2)
    assert [named(check.payload)["half_id"] for check in wide.received] == ["2"] and not at.received


@at_hand()
async def test_a_reader_by_offset_is_told_which_message_it_cannot_take(at: Served) -> None:
    """It reads every message or none: the link ends with message-size-exceeded, and says where."""
    put = await at.sender("$half/g/q")
    put.send([Sendable(half("1" * 250, named={"x": "y"}))])
    await at.settle()
    await narrow_receiver(at, "$events", limit=100, distribution_mode="copy", filter=filters("first"))
    await at.rest()
    (gone,) = at.detached
    assert gone.error is not None and "offset" in (gone.error.description or "")
    assert at.condition() == "amqp:link:message-size-exceeded"
