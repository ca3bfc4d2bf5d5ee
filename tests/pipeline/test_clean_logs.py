"""Nothing is found in the journals of brokers that did nothing wrong, whatever the traffic was: a kind of
queue, or of clients, each; all with random outcomes. Only warnings that the documentation explains for it
may be there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import pytest

from amqp_broker.client import BlockingConnection, BlockingReceiver, connect, message
from amqp_broker.configuration import BrokerConfig, QueuePolicy
from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import Described, Source, Symbol
from amqp_broker.pipeline.audit_result import FAULT
from amqp_broker.pipeline.audits.lives import FAULTS
from amqp_broker.testing import memory_config, running_broker
from amqp_broker.testing.blocking_peer import PATIENCE_S
from tests.pipeline.plain_audit import found_in
from tests.pipeline.real_logs import journal_of
from tests.pipeline.truthful_day import Event
from tests.support.broker_clients import at_rest

MESSAGES: Final = 60
QUEUE: Final = "work"
DEAD: Final = ("dead", "late")
EVERY: Final = QueuePolicy(pattern="**", events=True, dead_letter_address="dead", expiry_address="late")
TURNED: Final = ("delivered-backwards", "overtaken")
"""Warnings where the order is not that of the queue."""


@contextmanager
def open_broker(config: BrokerConfig, **of_the_queue: Any) -> Iterator[RunningBroker]:
    """All queues have events; of `work` this holds besides."""
    policy = attrs.evolve(EVERY, pattern=QUEUE, **of_the_queue)
    with running_broker(attrs.evolve(config, queue_policies=(EVERY, policy))) as broker:
        yield broker


def take(receiver: BlockingReceiver, chance: random.Random, most: int, *outcomes: str) -> None:
    """Takes what is there now, `most` at most, and gives each an outcome by chance."""
    for _ in range(most):
        received = receiver.receive_now()
        if received is None:
            return
        outcome = chance.choice(outcomes)
        if outcome == "failed":
            receiver.modify(received, delivery_failed=True)
        elif outcome == "reject why":
            receiver.reject(received, "shop:no-such-size", "41 is not made")
        else:
            getattr(receiver, outcome)(received)


def drain(broker: RunningBroker, connection: BlockingConnection, *addresses: str) -> None:
    """Until nothing is left in any of them. What was given back is in its queue after the commit that says
    so, which a link that is closed does not wait for.
    """
    for address in addresses:
        at_rest(broker)
        receiver = connection.open_receiver(address, credit=20)
        while (received := receiver.receive_now()) is not None:
            receiver.accept(received)
        receiver.close()


def consumers(
    broker: RunningBroker, connection: BlockingConnection, chance: random.Random, *outcomes: str
) -> None:
    """Two of them, one after the other, that may leave something; then all the rest is accepted."""
    for _ in range(2):
        receiver = connection.open_receiver(QUEUE, credit=chance.randint(1, 12))
        take(receiver, chance, 2 * MESSAGES, *outcomes)
        receiver.close()
    drain(broker, connection, QUEUE, *DEAD)


def post(connection: BlockingConnection, make: Callable[[int], Any]) -> None:
    """So many messages."""
    connection.open_sender(QUEUE).send_many(make(number) for number in range(MESSAGES))


def in_memory(make: Callable[[int], Any], *outcomes: str, **policy: Any) -> Callable[..., list[Event]]:
    """Such messages through such a queue, with consumers that give such outcomes."""

    def traffic(chance: random.Random, folder: Path) -> list[Event]:
        with open_broker(memory_config(), **policy) as broker, connect(broker.url) as connection:
            post(connection, make)
            consumers(broker, connection, chance, *outcomes)
            return journal_of(broker)

    return traffic


def plain(number: int) -> Any:
    """A message with an id of its own."""
    return message(b"%d" % number, message_id=f"m{number}")


def over_two_lives(chance: random.Random, folder: Path) -> list[Event]:
    """A broker on disk that stops while a consumer has messages without an outcome, and is started again."""
    config = attrs.evolve(memory_config(), memory=False, data_dir=str(folder / "data"))
    with open_broker(config) as broker, connect(broker.url) as connection:
        post(connection, plain)
        receiver = connection.open_receiver(QUEUE, credit=MESSAGES)
        for _ in range(MESSAGES // 2):
            received = receiver.receive(PATIENCE_S)
            if chance.random() < 0.5:
                receiver.accept(received)
    with open_broker(config) as broker, connect(broker.url) as connection:
        post(connection, plain_again)
        consumers(broker, connection, chance, "accept", "release")
        return journal_of(broker)


def plain_again(number: int) -> Any:
    """Other ids."""
    return plain(number + MESSAGES)


def by_filters(chance: random.Random, folder: Path) -> list[Event]:
    """A consumer that takes every other message, one that only looks, and one that takes the rest."""
    with open_broker(memory_config()) as broker, connect(broker.url) as connection:
        post(connection, lambda n: message(b"x", application_properties={"even": n % 2 == 0}))
        looking = connection.open_receiver(None, source=Source(address=QUEUE, distribution_mode="copy"))
        take(looking, chance, MESSAGES, "accept", "release")
        looking.close()
        name = Symbol("apache.org:selector-filter:string")
        selector: dict[Any, Any] = {name: Described(name, "even = TRUE")}
        taking = connection.open_receiver(None, source=Source(address=QUEUE, filter=selector))
        take(taking, chance, 2 * MESSAGES, "accept", "release")
        taking.close()
        drain(broker, connection, QUEUE, *DEAD)
        return journal_of(broker)


def later_again(chance: random.Random, folder: Path) -> list[Event]:
    """Each message that failed waits for its time; some fail several times."""
    with open_broker(memory_config(), redelivery_delay_ms=2, max_deliveries=0) as broker:
        with connect(broker.url) as connection:
            post(connection, plain)
            receiver = connection.open_receiver(QUEUE, credit=7)
            accepted = 0
            while accepted < MESSAGES:
                received = receiver.receive(PATIENCE_S)
                if chance.random() < 0.3:
                    receiver.modify(received, delivery_failed=True)
                else:
                    receiver.accept(received)
                    accepted += 1
        return journal_of(broker)


def by_a_topic(chance: random.Random, folder: Path) -> list[Event]:
    """Two subscribers, of which one gives messages back."""
    policy: dict[str, Any] = {"kind": "topic", "events": False}
    with open_broker(memory_config(), **policy) as broker, connect(broker.url) as connection:
        receivers = [connection.open_receiver(QUEUE, credit=2 * MESSAGES) for _ in range(2)]
        post(connection, plain)
        for receiver, outcomes in zip(receivers, (["accept"], ["accept", "release", "reject"]), strict=True):
            take(receiver, chance, 3 * MESSAGES, *outcomes)
            take(receiver, chance, 3 * MESSAGES, "accept")
        drain(broker, connection, *DEAD)
        return journal_of(broker)


TRAFFIC: Final[dict[str, tuple[Callable[..., list[Event]], tuple[str, ...]]]] = {
    "released and failed": (in_memory(plain, "accept", "release", "failed"), ()),
    "priorities": (
        in_memory(lambda n: message(b"x", priority=n * 7 % 10), "accept", "release", priorities=True), TURNED,
    ),
    "expiry": (in_memory(lambda n: message(b"x", ttl_ms=1 + n % 3), "accept"), ()),
    "dead letters": (in_memory(plain, "accept", "reject", "reject why", "failed", max_deliveries=2), ()),
    "later again": (later_again, TURNED),
    "a ring": (in_memory(plain, "accept", ring_messages=10, message_type="normal"), ()),
    "last values": (
        in_memory(
            lambda n: message(b"x", application_properties={"k": n % 7}), "accept", "release",
            last_value_key="k", max_messages=1_000, message_type="normal",
        ), TURNED,
    ),
    "duplicates": (
        in_memory(lambda n: message(b"x", message_id=f"m{n // 2}"), "accept", duplicate_window_ms=60_000), (),
    ),
    "groups": (
        in_memory(lambda n: message(b"x", group_id=f"g{n % 5}"), "accept", "release", groups=True), TURNED,
    ),
    "filters": (by_filters, TURNED),
    "a topic": (by_a_topic, ()),
    "two lives": (over_two_lives, ()),
}  # fmt: skip


@pytest.mark.parametrize("kind", TRAFFIC)
def test_nothing_is_found_whatever_the_traffic(kind: str, tmp_path: Path) -> None:
    """The log is of many events, and no finding but what may be."""
    traffic, warnings = TRAFFIC[kind]
    log = traffic(random.Random(kind), tmp_path)
    assert len(log) >= MESSAGES, f"{len(log)} events"
    found = found_in(log, drained=True)
    assert [each for each in found if each.kind not in warnings] == []
    assert all(FAULTS[name].severity != FAULT for name in warnings)
