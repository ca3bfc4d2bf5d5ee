"""Both programs of an exactly-once dialogue, whose connection is cut after any octet: nothing is lost,
nothing comes twice (2.6.12, 2.6.13).
"""

from __future__ import annotations

import random
from itertools import count
from pathlib import Path
from typing import Final

from amqp_broker.testing.blocking_peer import BlockingPeer, ConnectionLost
from tests.support.jumping_broker import PATIENT, JumpingBroker, on_disk, stopping
from tests.support.resuming import DURABLE, LASTING, Consumer, Producer

QUEUE: Final = "orders"
MESSAGES: Final = 150
MOST_CUTS: Final = 500
"""Of one program; then it goes on without."""
FIRST_OCTET: Final = 300
"""What is before is the header and the open of a connection, which carry nothing of a link."""


def dialogue(
    broker: JumpingBroker, producer: Producer, consumer: Consumer, octets: int | None, chance: random.Random,
    silent: list[BlockingPeer] | None = None,
) -> int:  # fmt: skip
    """Both programs at work on one connection, until all is done or it is cut after so many octets; how many
    there were. The broker is not told of the cut where the connection goes to `silent`.
    """
    peer = broker.connect("program")
    peer.octets_left = octets
    try:
        session = peer.begin()
        sender, receiver = producer.attach(session), consumer.attach(session)
        producer.resume(sender)
        consumer.resume(receiver)
        receiver.flow(5)
        quiet = 0
        while quiet < 3:
            producer.send_one(sender)
            quiet = 0 if peer.pump(0) else quiet + 1
            producer.hear(sender)
            consumer.hear(receiver, tells=lambda: chance.random() < 0.9)
            if receiver.credit < 3:
                receiver.flow(5)
    except (ConnectionLost, TimeoutError):
        pass
    if silent is None:
        peer.abort()
        broker.rest()
    else:
        silent.append(peer)
    return peer.octets_carried


def settle_all(broker: JumpingBroker, producer: Producer, consumer: Consumer, total: int) -> None:
    """Without cuts, until each program has done its part."""
    for _ in range(20):
        dialogue(broker, producer, consumer, None, random.Random(1))
        if producer.done and not consumer.unsettled and len(consumer.bodies) >= total:
            return


def check(consumer: Consumer, sent: list[bytes]) -> None:
    """Nothing lost, nothing twice."""
    assert sorted(consumer.bodies) == sorted(sent)


def random_cuts(seed: int, folder: Path) -> tuple[int, Producer, Consumer]:
    """One program with its messages: how often it was cut. In memory, or for odd seeds on disk, with termini
    that are durable.
    """
    durable = bool(seed % 2)
    chance = random.Random(seed)
    sent = [b"%d" % number * (1 if chance.random() < 0.8 else 500) for number in range(MESSAGES)]
    producer = Producer(QUEUE, sent[:], lasting=DURABLE if durable else LASTING)
    consumer = Consumer(QUEUE, lasting=DURABLE if durable else LASTING)
    silent: list[BlockingPeer] = []
    with stopping(JumpingBroker(on_disk(folder) if durable else PATIENT)) as broker:
        cuts = 0
        while cuts < MOST_CUTS and not (producer.done and len(consumer.bodies) >= len(sent)):
            octets = chance.randrange(700, 5_000)
            dialogue(broker, producer, consumer, octets, chance, silent if chance.random() < 0.3 else None)
            cuts += 1
        for peer in silent:
            peer.abort()
        settle_all(broker, producer, consumer, len(sent))
        check(consumer, sent)
        assert producer.done
    return cuts, producer, consumer


def a_cut_at_each_octet(step: int) -> int:
    """A dialogue of four messages, cut after each `step` octets of it in turn, and gone on with: how many."""
    with stopping(JumpingBroker()) as broker:
        for number in count(1):
            octets = FIRST_OCTET + (number - 1) * step
            sent = [b"%d.%d" % (octets, each) for each in range(4)]
            name = f"{octets}"
            producer, consumer = Producer(name, sent[:], name), Consumer(name, name)
            silent: list[BlockingPeer] | None = None if octets % 3 else []
            whole = dialogue(broker, producer, consumer, octets, random.Random(1), silent)
            settle_all(broker, producer, consumer, len(sent))
            check(consumer, sent)
            for peer in silent or ():
                peer.abort()
            if whole < octets:
                return number
    raise AssertionError("it ends with the dialogue")
