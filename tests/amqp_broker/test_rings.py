"""Ring queues: at most so many messages or octets wait, and a new one drops the oldest that nobody holds, in
the commit of its posting, whatever shares that commit, and after a restart.
"""

from __future__ import annotations

from random import Random
from typing import Any
from unittest.mock import patch

import attrs
import pytest

from amqp_broker.configuration import (
    BindingConfig,
    BrokerLimits,
    ConfigurationError,
    QueuePolicy,
    parse_configuration,
)  # fmt: skip
from amqp_broker.frames import Accepted, Header, Properties, Released, Source, encode_message
from amqp_broker.judged_queue import JudgedQueue
from amqp_broker.persistence import StoreFull
from amqp_broker.testing.peer import Delivery, PeerReceiver, PeerSession
from tests.links.pair import Message as Sendable
from tests.support.broker_clients import at_rest, body_of, counts, session_to, settle_down, take_everything
from tests.support.by_hand import Control, Served, at_hand, posted, text, within
from tests.support.examples import seeds
from tests.support.jumping_broker import PATIENT, InEachStore, JumpingBroker, Start

RING = 3
OCTETS = 500
SECTION_OCTETS = 5  # before a body of less than 256
NO_BOUND = 1 << 60


def ring(pattern: str, most: int = RING, **fields: Any) -> QueuePolicy:
    """The setting."""
    return QueuePolicy(pattern=pattern, ring_messages=most, message_type="normal", **fields)


POLICIES = (
    ring("q"),
    ring("told", events=True),
    ring("urgent", priorities=True),
    ring("once", duplicate_window_ms=60_000),
    ring("small", max_messages=5),
    ring("large", 12),
    QueuePolicy(pattern="octets", ring_bytes=OCTETS, message_type="normal"),
    QueuePolicy(pattern="both", ring_bytes=OCTETS, ring_messages=9, message_type="normal"),
    QueuePolicy(pattern="copied", ring_bytes=OCTETS, message_type="normal"),
    QueuePolicy(pattern="topic", kind="topic"),
)
CONFIG = attrs.evolve(
    PATIENT, queue_policies=POLICIES,
    bindings=(BindingConfig(topic="topic", queue="q"), BindingConfig(topic="topic", queue="all"),
              BindingConfig(topic="topic", queue="copied")),
)  # fmt: skip
LITTLE = attrs.evolve(
    CONFIG, limits=BrokerLimits(idle_time_out_ms=2**32 - 1, queue_window_messages=4)
)  # fmt: skip
here = at_hand(CONFIG)


def texts(count: int, start: int = 0, *, durable: bool = True) -> list[Sendable]:
    """Numbered messages."""
    return [text(b"%d" % number, durable=durable) for number in range(start, start + count)]


def sized(*sizes: int, durable: bool = True) -> list[Sendable]:
    """Messages of so many octets behind their headers, which say their sizes."""
    bodies = [(b"%d" % size).ljust(size - SECTION_OCTETS, b".") for size in sizes]
    return [text(body, durable=durable) for body in bodies]


def judged(at: Served, name: str = "q") -> JudgedQueue:
    """Such a queue, which is at rest."""
    queue = at.queue(name)
    assert isinstance(queue, JudgedQueue)
    assert (queue.pending_posts, queue.reserved_messages, len(queue.never)) == (0, 0, 0)
    return queue


async def seen(at: Served, name: str) -> list[bytes]:
    """What a browser sees: nobody holds any of it."""
    looks = at.another("looks")
    await looks.receiver(Source(address=name, distribution_mode="copy"), 1_000)
    await looks.close()
    return looks.bodies()


@pytest.mark.parametrize("durable", [True, False])
@here
async def test_a_new_one_drops_the_oldest(at: Served, durable: bool) -> None:
    """One by one, and many at once: the last ones wait."""
    sender = await at.sender("q")
    for number in range(5):
        sender.send(texts(1, number, durable=durable))
        await at.rest()
    assert await seen(at, "q") == [b"2", b"3", b"4"]
    sender.send(texts(7, 5, durable=durable))
    await at.rest()
    assert at.conditions == ["accepted"] * 12
    assert await seen(at, "q") == [b"9", b"10", b"11"]
    queue = judged(at)
    assert (queue.message_count, queue.dropped, queue.byte_count > 0) == (3, 9, True)


@here
async def test_what_a_consumer_holds_or_held_is_not_dropped(at: Served) -> None:
    """It does not count either, in its old place again."""
    sender = await at.sender("q")
    receiver = await at.receiver("q", 2)
    sender.send(texts(6))
    await at.rest()
    held = at.take()
    assert [each.payload[-1:] for each in held] == [b"0", b"1"]
    assert await seen(at, "q") == [b"3", b"4", b"5"]
    receiver.settle(held[:1], Accepted())
    receiver.settle(held[1:], Released())
    await at.rest()
    assert await seen(at, "q") == [b"1", b"3", b"4", b"5"]
    sender.send(texts(1, 6))
    await at.rest()
    assert await seen(at, "q") == [b"1", b"4", b"5", b"6"] and judged(at).dropped == 2


@here
async def test_a_consumer_that_keeps_up_loses_nothing(at: Served) -> None:
    """However many come at once."""
    receiver = await at.receiver("q", 50)
    sender = await at.sender("q")
    sender.send(texts(50))
    await at.rest()
    assert at.bodies() == [b"%d" % number for number in range(50)] and judged(at).dropped == 0
    receiver.settle(at.take(), Accepted())
    receiver.flow(10)
    await at.rest()
    sender.send(texts(20))
    await at.rest()
    assert at.bodies() == [b"%d" % number for number in range(10)] and judged(at).dropped == 7
    assert await seen(at, "q") == [b"17", b"18", b"19"]


@here
async def test_a_transaction_drops_at_its_discharge(at: Served) -> None:
    """Not before, and not at all where it rolls back."""
    sender = await at.sender("q", "plain")
    sender.send(texts(3))
    control = Control(at)
    link = await at.sender("q")
    kept, dropped = await control.declare(), await control.declare()
    await posted(at, link, kept, b"a", b"b")
    await posted(at, link, dropped, b"c")
    assert await seen(at, "q") == [b"0", b"1", b"2"]
    await control.roll_back(dropped)
    assert await seen(at, "q") == [b"0", b"1", b"2"]
    await control.commit(kept)
    assert await seen(at, "q") == [b"2", b"a", b"b"] and judged(at).dropped == 2


@here
async def test_what_is_not_stored_drops_nothing(at: Served) -> None:
    """Those that waited are there again, in their places, for whoever asks."""
    sender = await at.sender("q")
    sender.send(texts(3))
    await at.rest()
    with patch.object(at.broker.writer._store, "apply", side_effect=StoreFull("a fault")):
        sender.send([*texts(5, 3), *texts(2, 8, durable=False)])
        await at.rest()
    assert at.conditions[3:] == ["amqp:resource-limit-exceeded"] * 7
    assert await seen(at, "q") == [b"0", b"1", b"2"] and judged(at).dropped == 0
    sender.send(texts(1, 10))
    await at.rest()
    assert await seen(at, "q") == [b"1", b"2", b"10"]


@here
async def test_the_journal_tells_of_it(at: Served) -> None:
    """Behind the coming of the message, and that it is dead."""
    sender = await at.sender("told")
    sender.send(texts(2))
    await at.rest()
    sender.send(texts(5, 2))
    await at.rest()
    events = [each for each in await at.broker.half_messages.events() if each.kind in ("put", "dead")]
    told = [(each.kind, each.fields["offset"]) for each in events]
    expected = [("put", offset) for offset in range(7)] + [("dead", offset) for offset in range(4)]
    assert told == expected
    assert events[-1].fields["reason"] == "dropped: the ring is full"


@here
async def test_beside_priorities_delays_and_duplicates(at: Served) -> None:
    """The oldest goes, urgent or not; what waits for its time does not count; a duplicate drops nothing."""
    sender = await at.sender("urgent")
    for number, priority in enumerate((9, 1, 1, 1)):
        payload = encode_message(header=Header(durable=True, priority=priority), body=b"%d" % number)
        sender.send([Sendable(payload)])
        await at.rest()
    assert await seen(at, "urgent") == [b"1", b"2", b"3"]
    late = await at.sender("q", "late")
    late.send([text(b"%d" % n, message_annotations={"x-opt-delivery-delay": 1_000}) for n in range(5)])
    late.send(texts(3, 5))
    await at.rest()
    assert await seen(at, "q") == [b"5", b"6", b"7"]
    await at.pass_time(1)
    assert await seen(at, "q") == [b"2", b"3", b"4"]
    once = await at.sender("once", "once")
    once.send([text(b"%d" % n, properties=Properties(message_id="ab"[n % 2])) for n in range(9)])
    await at.rest()
    assert await seen(at, "once") == [b"0", b"1"] and judged(at, "once").dropped == 0


@here
async def test_a_copy_of_a_topic_drops_in_its_queue(at: Served) -> None:
    """And nowhere else."""
    sender = await at.sender("topic")
    sender.send(texts(5))
    await at.rest()
    assert await seen(at, "q") == [b"2", b"3", b"4"] and len(await seen(at, "all")) == 5
    assert judged(at).dropped == 2


@here
async def test_a_full_ring_takes_on(at: Served) -> None:
    """Senders never wait for room that the ring makes; they do where consumers hold all of it."""
    sender = await at.sender("small")
    for number in range(10):
        sender.send(texts(1, number))
        await at.pass_time(10)
    assert at.conditions == ["accepted"] * 10 and await seen(at, "small") == [b"7", b"8", b"9"]


async def sizes_seen(at: Served, name: str) -> list[int]:
    """What a browser sees of `sized` ones."""
    found = [int(body.rstrip(b".")) for body in await seen(at, name)]
    queue = judged(at, name)
    assert queue.byte_count == sum(found) and queue.held_bytes == 0
    return found


@pytest.mark.parametrize("durable", [True, False])
@here
async def test_the_oldest_go_until_the_new_one_fits(at: Served, durable: bool) -> None:
    """One by one, and many at once."""
    sender = await at.sender("octets")
    for size in (200, 100, 150):
        sender.send(sized(size, durable=durable))
        await at.rest()
    assert await sizes_seen(at, "octets") == [200, 100, 150]
    sender.send(sized(51, durable=durable))
    await at.rest()
    assert await sizes_seen(at, "octets") == [100, 150, 51]
    sender.send(sized(140, 60, 141, 30, 100, durable=durable))
    await at.rest()
    assert await sizes_seen(at, "octets") == [140, 60, 141, 30, 100] and judged(at, "octets").dropped == 4
    sender.send(sized(249, 250, durable=durable))
    await at.rest()
    assert await sizes_seen(at, "octets") == [249, 250] and at.conditions == ["accepted"] * 11


@here
async def test_one_that_is_larger_than_the_ring_is_refused(at: Served) -> None:
    """By the link, which said so; by its outcome where no link could; a copy of a topic is dropped."""
    link = await at.sender("octets")
    assert link.remote_max_message_size == OCTETS
    relay = await at.sender(None, "relay")
    sized_500, sized_501 = sized(OCTETS, OCTETS + 1)
    to = Properties(to="octets")
    relay.send([text(b"1", properties=to), text(b"." * OCTETS, properties=to)])
    await at.rest()
    assert sorted(at.conditions) == ["accepted", "amqp:link:message-size-exceeded"]
    assert (await seen(at, "octets")) == [b"1"]
    copies = await at.sender("topic", "copies")
    copies.send([sized_501])
    await at.rest()
    assert await seen(at, "copied") == [] and judged(at, "copied").dropped == 1
    assert len(await seen(at, "all")) == 1
    link.remote_max_message_size = 0  # a client that does not look
    link.send([sized_500])
    await at.rest()
    assert at.condition() == "amqp:link:message-size-exceeded"


@here
async def test_octets_that_a_consumer_holds_or_held_do_not_count(at: Served) -> None:
    """Nor does what is posted in a transaction before its discharge, or is undone."""
    sender = await at.sender("octets")
    receiver = await at.receiver("octets", 1)
    sender.send(sized(250, 251, 100))
    await at.rest()
    held = at.take()
    sender.send(sized(149))
    await at.rest()
    queue = judged(at, "octets")
    assert (queue.byte_count, queue.held_bytes, queue.dropped) == (750, 250, 0)
    receiver.settle(held, Released())
    await at.rest()
    assert len(await seen(at, "octets")) == 4
    control, link = Control(at), await at.sender("octets", "in")
    txn_id = await control.declare()
    link.send_in(sized(251), within(txn_id))
    await at.rest()
    assert len(await seen(at, "octets")) == 4
    with patch.object(at.broker.writer._store, "apply", side_effect=StoreFull("a fault")):
        sender.send(sized(100))
        await at.rest()
    assert (queue.byte_count, queue.held_bytes, queue.dropped) == (750, 250, 0)
    await control.commit(txn_id)
    assert (queue.byte_count, queue.held_bytes, queue.dropped) == (750, 250, 1)
    await at.receiver("octets", 10, "last")
    assert [int(body.rstrip(b".")) for body in at.bodies()] == [250, 100, 149, 251]


@pytest.mark.parametrize(
    ("lines", "field"),
    [("", "message_type"), ('message_type = "normal"\nmax_messages = 3', "ring_messages")],
)
def test_what_does_not_go_together(lines: str, field: str) -> None:
    """Half messages, and a bound that is met before the ring's."""
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(f'[[queue]]\npattern = "q"\nring_messages = 3\n{lines}\n')
    assert [problem.field for problem in caught.value.problems] == [f"queue[0].{field}"]


# Random histories


class Client:
    """Sends, takes some, gives back or accepts; `waits` is what a plain list says."""

    def __init__(self, broker: JumpingBroker, name: str, most: int, octets: int) -> None:
        self.broker = broker
        self.most = most
        self.octets = octets
        self.sizes: dict[int, int] = {}
        self.name = name
        self.waits: list[tuple[int, bool]] = []  # number, durable
        self.held: dict[int, Delivery] = {}
        self.flags: dict[int, bool] = {}
        self.back: set[int] = set()
        self.next = 0
        self.begin()

    def begin(self) -> None:
        """One link each way."""
        self.open = session_to(self.broker)
        self.session: PeerSession = self.open.__enter__()
        self.sender = self.session.attach_sender("to", self.name)
        self.receiver: PeerReceiver = self.session.attach_receiver("from", self.name)
        self.held = {}

    def post(self, count: int, chance: Random) -> None:
        """So many in one write; all accepted."""
        numbers = []
        for _ in range(count):
            durable, body = chance.random() < 0.7, (b"%d" % self.next).ljust(chance.randrange(5, 200))
            payload = encode_message(header=Header(durable=durable), body=body)
            self.sizes[self.next] = len(body) + SECTION_OCTETS
            numbers.append(self.sender.send(payload))
            self.flags[self.next] = durable
            self.waits.append((self.next, durable))
            new = [each for each in self.waits if each[0] not in self.back]
            while len(new) > self.most or sum([self.sizes[each] for each, _ in new]) > self.octets:
                self.waits.remove(new.pop(0))
            self.next += 1
        self.session.connection.pump_until(lambda: all(each in self.sender.outcomes for each in numbers))
        assert {type(self.sender.outcomes[each]) for each in numbers} == {Accepted}

    def take(self, count: int) -> None:
        """So many, which are held."""
        self.receiver.drain_all(count)
        came = [int(body_of(each)) for each in self.receiver.deliveries]
        expected = [number for number, _ in self.waits[:count]]
        assert came == expected, f"expected {expected}, got {came}"
        self.held |= dict(zip(came, self.receiver.deliveries, strict=True))
        self.receiver.deliveries.clear()
        del self.waits[:count]

    def decide(self, number: int, accepted: bool) -> None:
        """About one that is held."""
        delivery = self.held.pop(number)
        self.receiver.settle([delivery], Accepted() if accepted else Released())
        if not accepted:
            self.waits = sorted([*self.waits, (number, self.flags[number])])
            self.back.add(number)
        settle_down(self.broker, self.session)

    def restart(self, start: Start, config: Any) -> None:
        """What was held is there again, if it is durable."""
        at_rest(self.broker)
        held = [(number, True) for number in self.held if self.flags[number]]
        self.waits = sorted([*[each for each in self.waits if each[1]], *held])
        self.back.clear()
        self.broker.stop()
        self.broker = start(config, self.broker)
        self.begin()


@pytest.mark.parametrize("seed", seeds(16))
def test_random_histories(start: Start, in_each_store: InEachStore, seed: int) -> None:
    """Posts, deliveries, outcomes and starts, with a window smaller than the ring: as a plain list."""
    chance = Random(f"rings {seed}")
    config = in_each_store(LITTLE)
    rings = (("q", RING, NO_BOUND), ("large", 12, NO_BOUND), ("octets", NO_BOUND, OCTETS))
    client = Client(start(config), *(*rings, ("both", 9, OCTETS))[seed % 4])
    name = client.name
    for _ in range(60):
        kind = chance.random()
        if kind < 0.5:
            client.post(chance.choice((1, 1, 2, 5, 20)), chance)
        elif kind < 0.65:
            client.take(chance.randrange(1, 6))
        elif kind < 0.9 and client.held:
            client.decide(chance.choice([*client.held]), chance.random() < 0.5)
        elif kind > 0.95 and not config.memory:
            client.restart(start, config)
        at_rest(client.broker)
        assert counts(client.broker, name)[0] == len(client.waits) + len(client.held)
    left = [int(body_of(each)) for each in take_everything(client.receiver)]
    assert left == [number for number, _ in client.waits]
