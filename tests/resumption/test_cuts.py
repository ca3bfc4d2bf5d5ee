"""Exactly once, however the connection is cut, for programs that resume (2.6.12, 2.6.13)."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from amqp_broker.configuration import BrokerConfig
from amqp_broker.testing.blocking_peer import BlockingPeer, ConnectionLost
from tests.support.jumping_broker import PATIENT, JumpingBroker, on_disk, stopping
from tests.support.resuming import Consumer, Producer

QUEUE = "orders"


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


@pytest.mark.parametrize("seed", range(4))
def test_random_cuts(seed: int, tmp_path: Path) -> None:
    """Nothing is lost and nothing comes twice, wherever the transport breaks."""
    config: BrokerConfig = on_disk(tmp_path) if seed % 2 else PATIENT
    chance = random.Random(seed)
    sent = [b"%d" % number * (1 if chance.random() < 0.8 else 500) for number in range(150)]
    producer, consumer = Producer(QUEUE, sent[:]), Consumer(QUEUE)
    silent: list[BlockingPeer] = []
    with stopping(JumpingBroker(config)) as broker:
        cuts = 0
        while cuts < 500 and not (producer.done and len(consumer.bodies) >= len(sent)):
            octets = chance.randrange(700, 5_000)
            dialogue(broker, producer, consumer, octets, chance, silent if chance.random() < 0.3 else None)
            cuts += 1
        for peer in silent:
            peer.abort()
        settle_all(broker, producer, consumer, len(sent))
        check(consumer, sent)
        assert producer.done
        assert cuts > 20
        assert producer.resumed
        assert consumer.resumed


def test_a_cut_at_each_octet() -> None:
    """A dialogue of four messages, cut after each octet of it in turn, and gone on with."""
    with stopping(JumpingBroker()) as broker:
        number = 0
        octets = 300
        while True:
            sent = [b"%d.%d" % (octets, each) for each in range(4)]
            name = f"{octets}"
            producer, consumer = Producer(name, sent[:], name), Consumer(name, name)
            silent: list[BlockingPeer] | None = None if octets % 3 else []
            whole = dialogue(broker, producer, consumer, octets, random.Random(1), silent)
            settle_all(broker, producer, consumer, len(sent))
            check(consumer, sent)
            number += 1
            for peer in silent or ():
                peer.abort()
            if whole < octets:
                break
            octets += 7
        assert number > 100
