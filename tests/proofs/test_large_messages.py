"""A durable message of 100 MiB through a broker: the memory of its process grows by less than 8 MiB.

    python -m pytest -n 0 -s tests/proofs/test_large_messages.py

It prints the most that was in memory beyond what an idle broker has, as the kernel counts it (`VmHWM`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from amqp_broker.frames import Accepted, Released
from amqp_broker.persistence.open_bodies import PREFIX
from amqp_broker.testing.broker_process import BrokerProcess, running
from amqp_broker.testing.peer import PeerReceiver, PeerSender
from tests.support.streaming import (
    MIB,
    Taken,
    checksum,
    highest_rss_bytes,
    peer_to,
    reset_highest,
    rss_bytes,
    send_large,
    streams,
)

SIZE: Final = 100 * MIB
GROWTH_BYTES: Final = 8 * MIB
ROUNDS: Final = 3  # a steady stream grows no further
CONFIGURATION: Final = f"""
[limits]
max_message_size_bytes = {2 * SIZE}
partial_deliveries_bytes = {2 * SIZE}
transaction_bytes = {2 * SIZE}
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A process with a store, which takes such messages."""
    configuration = tmp_path / "broker.toml"
    configuration.write_text(CONFIGURATION)
    with running("--config", str(configuration), "--data", str(tmp_path / "data")) as process:
        yield process


def sent(sender: PeerSender) -> None:
    """One message is accepted."""
    number, _ = send_large(sender, SIZE)
    sender.session.connection.pump_until(lambda: number in sender.outcomes)
    assert sender.outcomes[number] == Accepted()


def received(receiver: PeerReceiver) -> int:
    """One message, as it was sent; its delivery-id."""
    receiver.flow(1)
    receiver.session.connection.pump_until(lambda: receiver.deliveries)
    found: Any = receiver.deliveries.popleft()
    assert isinstance(found, Taken) and found.crc == checksum(SIZE)
    return int(found.delivery_id)


def test_memory_does_not_grow_with_the_message(broker: BrokerProcess, tmp_path: Path) -> None:
    """On its way in, on its way out, released and sent again, and on a stream of several."""
    with peer_to(broker.host, broker.port) as peer:
        session = peer.begin()
        sender = session.attach_sender("up", "large")
        receiver = session.attach_receiver("down", "large")
        streams(receiver)
        idle = rss_bytes(broker.pid)
        reset_highest(broker.pid)
        for number in range(ROUNDS):
            sent(sender)
            if not number:
                receiver.settle([received(receiver)], Released())
            receiver.settle([received(receiver)])
            peer.flush()
            grown = highest_rss_bytes(broker.pid) - idle
            print(f"{number + 1} of {SIZE // MIB} MiB: {grown / MIB:.1f} MiB more than idle")
            assert grown < GROWTH_BYTES
            assert len([*(tmp_path / "data").glob(f"{PREFIX}*")]) <= 2


def test_two_at_once_and_a_slow_reader(broker: BrokerProcess, tmp_path: Path) -> None:
    """Each of them has its window: twice as much is in memory, not twice the message. A reader that takes
    nothing holds a few frames of it.
    """
    with peer_to(broker.host, broker.port) as peer, peer_to(broker.host, broker.port) as slow:
        session = peer.begin()
        sender = session.attach_sender("up", "large")
        sent(sender)
        idle = rss_bytes(broker.pid)
        reset_highest(broker.pid)
        reader = slow.begin(incoming_window=2).attach_receiver("slow", "large")
        reader.flow(1)
        slow.pump_until(lambda: reader.partial is not None and reader.partial.frames == 2)
        sent(sender)
        receiver = session.attach_receiver("down", "large")
        streams(receiver)
        receiver.settle([received(receiver)])
        peer.flush()
        assert highest_rss_bytes(broker.pid) - idle < GROWTH_BYTES
