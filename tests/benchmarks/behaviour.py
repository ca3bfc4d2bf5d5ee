"""What topics, filters, dead letters, priorities and delays cost: `python -m tests.benchmarks.behaviour`.

A broker process on disk; one process publishes durable messages of 100 octets in a window of 1,000. Printed
are messages a second until the last was accepted and has come, and the broker's processor time for each:

- a topic with 1, 10 and 1,000 durable subscriptions that nobody receives from, and the octets on disk;
- a topic with 1, 10 and 1,000 subscribers, each of whom gets each message settled, and the copies a second;
- a queue with 1, 100 and 1,000 consumers, each of whom asks by a selector for messages of its own;
- a backlog whose messages are accepted, and one whose messages are rejected: those are dead letters then;
- posting messages with ids of their own to an ordinary queue, one that detects duplicates, and a full ring;
- posting messages of 1,000 keys to an ordinary queue, and to one of last values;
- a million messages of ten priorities that wait: how they come to wait, and the most urgent ones accepted;
- a million messages that wait for their time: how they come to wait, a start of the broker with them, other
  messages through their queue, and messages whose time has come.

A small run: `--messages 2000 --waiting 5000`.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import attrs

from amqp_broker.client import connect, message
from amqp_broker.conformance.load.processes import processor_seconds, resident_kib
from amqp_broker.frames import Accepted, Described, Long, Rejected, Source, Symbol
from amqp_broker.testing.blocking_peer import BlockingPeer
from amqp_broker.testing.broker_process import BrokerProcess, running
from amqp_broker.testing.peer import Delivery, PeerReceiver
from tests.benchmarks.harness import options

BODY: Final = bytes(100)
CREDIT: Final = 2**31 - 1
COUNTS: Final = (1, 10, 1_000)
CONSUMERS: Final = (1, 100, 1_000)
LINKS_IN_A_SESSION: Final = 250
PAGE: Final = 1_000
TOPIC: Final = ("topic",)
SETTLED: Final = 1
PRIORITIES: Final = 10
KEYS: Final = 1_000
CONFIGURATION: Final = """
[limits]
idle_time_out_ms = 600_000  # a client that only receives sends nothing

[[queue]]
pattern = "urgent"
priorities = true

[[queue]]
pattern = "duplicates"
duplicate_window_ms = 600_000
[[queue]]
pattern = "ring"
ring_messages = 1_000
message_type = "normal"

[[queue]]
pattern = "last-values"
last_value_key = "key"
max_messages = 1_000_000
message_type = "normal"
"""
DUE_AT: Final = Symbol("x-opt-delivery-time")
FAR_S: Final = 86_400
POSTED_A_SECOND: Final = 10_000
"""At least, by the publisher: so late is the time of messages that are to be there before it."""


@attrs.frozen
class Taken:
    """What a case took: seconds by the clock, and of the broker's processor."""

    wall: float
    cpu: float

    def row(self, name: str, count: int, more: str = "") -> None:
        """Print it for so many messages."""
        rate, cpu_us = count / self.wall, self.cpu / count * 1e6
        print(f"| {name} | {rate:,.0f} | {cpu_us:,.1f} us | {more} |", flush=True)


@contextmanager
def measured(broker: BrokerProcess) -> Iterator[Callable[[], Taken]]:
    """What has been taken since."""
    wall, cpu = perf_counter(), processor_seconds(broker.pid)
    yield lambda: Taken(perf_counter() - wall, processor_seconds(broker.pid) - cpu)


Fields = dict[str, Any]
"""Of a message, as `amqp_broker.client.message` takes them."""


def keyed(keys: int) -> list[Fields]:
    """Messages that tell so many values of a property."""
    return [{"application_properties": {"key": f"k{at}"}} for at in range(keys)]


def due_in(seconds: float) -> list[Fields]:
    """A message that waits."""
    return [{"message_annotations": {DUE_AT: Long(int((time.time() + seconds) * 1_000))}}]


def publish(url: str, address: str, count: int, kinds: list[Fields]) -> None:
    """Send messages of these kinds in turn, and return when all are accepted."""
    with connect(url) as connection:
        sender = connection.open_sender(address)
        each = [message(BODY, durable=True, **fields) for fields in kinds]
        sender.send_many(each[at % len(each)] for at in range(count))


@contextmanager
def publishing(
    broker: BrokerProcess, address: str, count: int, kinds: list[Fields] | None = None
) -> Iterator[None]:
    """A process publishes meanwhile; it has ended well afterwards."""
    process = multiprocessing.Process(target=publish, args=(broker.url, address, count, kinds or keyed(1)))
    process.start()
    yield
    process.join()
    assert process.exitcode == 0, f"the publisher ended with {process.exitcode}"


def links(peer: BlockingPeer, sources: Iterable[Source], **fields: Any) -> list[PeerReceiver]:
    """A receiver for each, shared out over sessions; what comes is in one row, whichever got it."""
    found: list[PeerReceiver] = []
    arrived: deque[Delivery] = deque()
    for at, source in enumerate(sources):
        if at % LINKS_IN_A_SESSION == 0:
            session = peer.begin()
        found.append(session.attach_receiver(f"link-{at}", None, source=source, **fields))
        found[-1].deliveries = arrived
    return found


def come(peer: BlockingPeer, receivers: list[PeerReceiver], count: int) -> None:
    """Wait until so many deliveries are here; they are forgotten."""
    while count:
        peer.pump_until(lambda: receivers[0].deliveries)
        count -= len(receivers[0].deliveries)
        receivers[0].deliveries.clear()


def size_of(data: Path) -> int:
    """Of all files of the store."""
    return sum(path.stat().st_size for path in data.rglob("*") if path.is_file())


def topic_that_keeps(broker: BrokerProcess, data: Path, count: int, subscriptions: int) -> None:
    """Durable subscriptions whose links are detached."""
    address = f"kept-{subscriptions}"
    source = Source(address=address, capabilities=TOPIC, durable=2, expiry_policy="never")
    with BlockingPeer.connect(broker.host, broker.port, container_id=address) as peer:
        for link in links(peer, [source] * subscriptions):
            link.detach(closed=False)
    before = size_of(data)
    with measured(broker) as taken:
        with publishing(broker, address, count):
            pass
        used = taken()
    grown = (size_of(data) - before) / count
    used.row(f"to a topic; durable subscriptions: {subscriptions:,}", count, f"{grown:,.0f} octets on disk")


def topic_that_sends(broker: BrokerProcess, count: int, subscribers: int) -> None:
    """Subscribers that receive as fast as they can."""
    address = f"sent-{subscribers}"
    source = Source(address=address, capabilities=TOPIC)
    with BlockingPeer.connect(broker.host, broker.port) as peer:
        found = links(peer, [source] * subscribers, snd_settle_mode=SETTLED, credit=CREDIT)
        with measured(broker) as taken:
            with publishing(broker, address, count):
                come(peer, found, count * subscribers)
            used = taken()
    copies = count * subscribers
    each = f"{copies / used.wall:,.0f} copies/s, {used.cpu / copies * 1e6:,.1f} us each"
    used.row(f"through a topic; subscribers: {subscribers:,}", count, each)


def selective(broker: BrokerProcess, count: int, consumers: int) -> None:
    """Each consumer wants one key."""
    address = f"selective-{consumers}"
    words = (f"key = 'k{at}'" for at in range(consumers))
    chosen = (Described(Symbol("apache.org:selector-filter:string"), each) for each in words)
    sources = (Source(address=address, filter={"selector": each}) for each in chosen)
    with BlockingPeer.connect(broker.host, broker.port) as peer:
        found = links(peer, sources, snd_settle_mode=SETTLED, credit=CREDIT)
        with measured(broker) as taken:
            with publishing(broker, address, count, keyed(consumers)):
                come(peer, found, count)
            used = taken()
    used.row(f"through a queue; consumers with a selector each: {consumers:,}", count)


def backlog(broker: BrokerProcess, count: int, name: str, outcome: Accepted | Rejected) -> None:
    """It is taken in pages of a thousand, each of which gets one outcome."""
    with publishing(broker, name, count):
        pass
    taken_in_pages(broker, name, count, outcome).row(f"{name} from a backlog", count)


def taken_in_pages(broker: BrokerProcess, address: str, count: int, outcome: Accepted | Rejected) -> Taken:
    """What it takes that a consumer gives so many messages of a queue an outcome."""
    with BlockingPeer.connect(broker.host, broker.port) as peer:
        (receiver,) = links(peer, [Source(address=address)])
        with measured(broker) as taken:
            for _ in range(count // PAGE):
                receiver.flow(PAGE)
                peer.pump_until(lambda: len(receiver.deliveries) == PAGE)
                receiver.settle(receiver.deliveries, outcome)
                receiver.deliveries.clear()
            receiver.detach()  # its answer waits for the outcomes
            return taken()


def filled(broker: BrokerProcess, address: str, waiting: int, kinds: list[Fields], name: str) -> None:
    """Messages come to wait."""
    before_kib = resident_kib(broker.pid)
    with measured(broker) as taken:
        with publishing(broker, address, waiting, kinds):
            pass
        used = taken()
    octets = (resident_kib(broker.pid) - before_kib) * 1_024 / waiting
    used.row(f"to a queue, until {waiting:,} wait {name}", waiting, f"{octets:,.0f} octets of memory each")


def urgent(broker: BrokerProcess, count: int, waiting: int) -> None:
    """A queue that minds priorities, which come in turn."""
    filled(broker, "urgent", waiting, [{"priority": at} for at in range(PRIORITIES)], "of ten priorities")
    used = taken_in_pages(broker, "urgent", count, Accepted())
    used.row(f"accepted by priority, of {waiting:,} that wait", count)


def beside_delayed(broker: BrokerProcess, count: int, waiting: int) -> None:
    """Other messages go through the queue, and then some for which the time comes."""
    start = f"{broker.started_in_s:.2f} s from the command to listening"
    source = Source(address="delayed")
    with BlockingPeer.connect(broker.host, broker.port) as peer:
        found = links(peer, [source], snd_settle_mode=SETTLED, credit=CREDIT)
        with measured(broker) as taken:
            with publishing(broker, "delayed", count):
                come(peer, found, count)
            used = taken()
        used.row(f"through a queue where {waiting:,} wait for their time", count, start)
        late_s = count / POSTED_A_SECOND + 2
        due = time.time() + late_s
        with publishing(broker, "delayed", count, due_in(late_s)):
            pass
        time.sleep(max(0.0, due - time.time()))
        with measured(broker) as taken:
            come(peer, found, count)
            used = taken()
        used.row(f"from a queue where {waiting:,} wait, their time having come", count)


def post_named(url: str, address: str, count: int) -> None:
    """Send all, each with its id, and return when all are accepted."""
    with connect(url) as connection:
        sender = connection.open_sender(address)
        sender.send_many(message(BODY, durable=True, message_id=f"order {at}") for at in range(count))


def post_keyed(url: str, address: str, count: int) -> None:
    """Send messages of so many keys."""
    publish(url, address, count, keyed(KEYS))


def posting(
    broker: BrokerProcess, address: str, count: int, what: str = "ids",
    post: Callable[[str, str, int], None] = post_named,
) -> None:  # fmt: skip
    """By a process of its own; nobody receives."""
    process = multiprocessing.Process(target=post, args=(broker.url, address, count))
    with measured(broker) as taken:
        process.start()
        process.join()
        used = taken()
    assert process.exitcode == 0, f"the publisher ended with {process.exitcode}"
    used.row(f"{address} queue, with {what}", count)


def main() -> None:
    """Measure all of it."""
    told = options(__doc__, messages=100_000, waiting=1_000_000)
    count, waiting = told.messages, told.waiting
    print("| case | messages/s | broker time a message | |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        data, config = Path(folder) / "data", Path(folder) / "broker.toml"
        config.write_text(CONFIGURATION)
        broker_on_disk = ("--data", str(data), "--config", str(config))
        with running(*broker_on_disk) as broker:
            for name in ("ordinary", "duplicates", "ring"):
                posting(broker, name, count)
            for name in ("ordinary", "last-values"):
                posting(broker, name, count, "keys", post_keyed)
            for number in COUNTS:
                topic_that_keeps(broker, data, max(count // number, PAGE), number)
            for number in COUNTS:
                topic_that_sends(broker, max(count // number, PAGE), number)
            for number in CONSUMERS:
                selective(broker, count, number)
            backlog(broker, count, "accepted", Accepted())
            backlog(broker, count, "rejected", Rejected())
            urgent(broker, min(count, waiting), waiting)
        with running(*broker_on_disk) as broker:
            filled(broker, "delayed", waiting, due_in(FAR_S), "for their time")
        with running(*broker_on_disk) as broker:
            beside_delayed(broker, count, waiting)


if __name__ == "__main__":
    main()
