"""Distribution over consumers: one message to one consumer, even shares, old places, browsers, expiry."""

from __future__ import annotations

from amqp_broker.persistence import RECORD_OVERHEAD_BYTES, Record
from amqp_broker.queue import Consumer, Queue, QueueLimits
from tests.support.by_hand import connection_by_hand, idle_link

HUGE = 10**9


def test_a_volatile_message_that_grew_is_counted_as_it_is() -> None:
    """Annotations that a consumer added count in both sums, and leave nothing behind."""
    queue = make_queue()
    post(queue, 2, durable=False)
    record, other = queue.backlog.take(2)
    before = queue.byte_count
    record.body += b"annotations"
    queue.grew(record, len(b"annotations"))
    assert queue.byte_count == before + len(b"annotations")
    queue.retire([record])
    assert queue._volatile_bytes == len(other.body) + RECORD_OVERHEAD_BYTES == queue.memory.used_bytes
    queue.grew(other, -1)
    other.body = other.body[1:]
    queue.retire([other])
    assert queue._volatile_bytes == queue.memory.used_bytes == 0


def make_queue(messages: int = 0, *, max_messages: int = HUGE, max_volatile_bytes: int = HUGE) -> Queue:
    queue = Queue("q", 1, QueueLimits(max_messages, HUGE, max_volatile_bytes))
    post(queue, messages)
    return queue


def post(queue: Queue, count: int, *, expires_at_ms: int = 0, durable: bool = True) -> list[Record]:
    records = [Record(0, b"body", expires_at_ms=expires_at_ms, durable=durable) for _ in range(count)]
    queue.number(records)
    queue.make_available(records, 4 * count)
    return records


def consumer(queue: Queue, demand: int, *, browser: bool = False) -> Consumer:
    connection = connection_by_hand()
    made = Consumer(connection, idle_link(connection), queue, browser=browser, settled=False)
    queue.attach(made)
    made.ask(demand)
    return made


def got(grants: list[tuple[Consumer, list[Record]]], who: Consumer) -> list[int]:
    return [record.offset for to, run in grants if to is who for record in run]


def test_offsets_are_dense() -> None:
    """Messages are numbered in the order of the calls, without a gap."""
    queue = make_queue(3)
    assert [record.offset for record in post(queue, 2)] == [3, 4]


def test_two_consumers_share_and_no_message_goes_to_both() -> None:
    """Competing consumers with equal credit get equal shares of disjoint messages."""
    queue = make_queue(10)
    first, second = consumer(queue, 100), consumer(queue, 100)
    grants = queue.assign(0)
    assert len(got(grants, first)) == len(got(grants, second)) == 5
    assert sorted(got(grants, first) + got(grants, second)) == list(range(10))


def test_single_messages_go_round() -> None:
    """One message at a time alternates between the consumers."""
    queue = make_queue()
    first, second = consumer(queue, 100), consumer(queue, 100)
    served = []
    for _ in range(4):
        post(queue, 1)
        ((to, _run),) = queue.assign(0)
        served.append(to)
    assert served in ([first, second, first, second], [second, first, second, first])


def test_demand_bounds_what_is_assigned() -> None:
    """A consumer never gets more than its demand, and the rest goes to the others."""
    queue = make_queue(10)
    small, large = consumer(queue, 2), consumer(queue, 100)
    grants = queue.assign(0)
    assert (len(got(grants, small)), len(got(grants, large))) == (2, 8)
    assert small.demand == 0 and large.demand == 92


def test_what_comes_back_is_delivered_first_and_marked() -> None:
    """A returned message stands in its old place, and no longer claims its first acquirer (3.2.1)."""
    queue = make_queue(4)
    one = consumer(queue, 2)
    ((_, held),) = queue.assign(0)
    queue.give_back(held)
    one.ask(4)
    assert got(queue.assign(0), one) == [0, 1, 2, 3]
    assert held[0].acquired_before


def test_undeliverable_here_goes_to_others_only() -> None:
    """A consumer that said undeliverable-here never gets the message again, others do, and nothing is blocked
    (3.4.5).
    """
    queue = make_queue(2)
    one = consumer(queue, 1)
    ((_, held),) = queue.assign(0)
    queue.exclude(held[0], one)
    queue.give_back(held)
    one.ask(5)
    assert got(queue.assign(0), one) == [1]
    assert queue.empty_for(one)
    other = consumer(queue, 5)
    assert not queue.empty_for(other)
    assert got(queue.assign(0), other) == [0]


def test_expired_messages_are_not_assigned() -> None:
    """A message whose time to live is over is handed out for retirement, not to a consumer."""
    queue = make_queue()
    post(queue, 2, expires_at_ms=1_000)
    post(queue, 1)
    one = consumer(queue, 5)
    assert got(queue.assign(1_000), one) == [2]
    assert [record.offset for record in queue.take_expired()] == [0, 1]
    assert queue.take_expired() == []


def test_a_browser_sees_everything_and_takes_nothing() -> None:
    """distribution-mode copy leaves the messages available, in order, each once (3.5.3)."""
    queue = make_queue(3)
    browser = consumer(queue, 10, browser=True)
    assert got(queue.assign(0), browser) == [0, 1, 2]
    assert got(queue.assign(0), browser) == []
    post(queue, 1)
    assert got(queue.assign(0), browser) == [3]
    assert queue.backlog.available() == 4


def test_full_by_count_and_roomy_again() -> None:
    """At max_messages the queue is full; it takes from its senders again below four fifths."""
    queue = make_queue(10, max_messages=10)
    assert queue.full()
    one = consumer(queue, 10)
    ((_, held),) = queue.assign(0)
    queue.retire(held[:1])
    assert not queue.plenty() and not queue.full()
    queue.retire(held[1:3])
    assert queue.plenty() and not queue.full()
    assert one.demand == 0


def test_full_by_memory() -> None:
    """Messages that only memory holds have a bound of their own."""
    queue = make_queue(max_volatile_bytes=1_000)
    post(queue, 10)
    assert not queue.full()
    records = post(queue, 4, durable=False)
    assert queue.full()
    queue.retire(records)
    assert queue.plenty()


def test_recovered_messages_may_have_been_acquired() -> None:
    """After a restart everything below the recovered offset counts as on disk."""
    queue = make_queue()
    queue.recover(5, 20, 7, 700)
    assert (queue.message_count, queue.byte_count, queue.next_offset, queue.recovered_to) == (7, 700, 20, 20)
    assert queue.backlog.disk_from == 5 and queue.backlog.available() == 7
    assert [record.offset for record in post(queue, 1)] == [20]


def test_a_detached_consumer_gets_nothing() -> None:
    """After its link ended a consumer is not assigned anything."""
    queue = make_queue(1)
    one = consumer(queue, 5)
    queue.detach(one)
    assert queue.assign(0) == []
