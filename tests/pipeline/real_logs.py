"""The journals of brokers of this process, after random traffic, as rows that the audits are told."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from amqp_broker.embedding import RunningBroker
from amqp_broker.event_types import event_fields, event_type
from amqp_broker.frames import Accepted, Source
from amqp_broker.persistence import Event as StoredEvent
from amqp_broker.pipeline.event_schema import EVENT_COLUMNS
from amqp_broker.testing.peer import PeerReceiver, PeerSession
from tests.amqp_broker.test_events_replay import QUEUES, STEPS, Worker, patiently
from tests.pipeline.truthful_day import Event
from tests.support.broker_clients import DRAIN_CREDIT, attach_with, session_to, settle_down
from tests.support.half_sets import SetClient, checksum, row
from tests.support.jumping_broker import JumpingBroker, stopping
from tests.support.message_events import config_with_events, log_of

EPOCHS: Final = 5
TICK_S: Final = 0.007
"""Between two things that a client does."""
_NAMES = [name for name, _ in EVENT_COLUMNS]


def journal_of(broker: RunningBroker) -> list[Event]:
    """All of it, as the archive has it."""
    return archived(log_of(broker))


def archived(events: Iterable[StoredEvent]) -> list[Event]:
    """Events of a store as the archive has them."""
    rows = []
    for event in events:
        fields = event_fields(event)
        known = {name: fields[name] for name in _NAMES if name in fields}
        time = datetime.fromtimestamp(event.at_ms / 1000, UTC)
        rows.append({**known, "type": event_type(event.kind), "lsn": event.seq, "time": time})
    return rows


def random_log(seed: int, rounds: int = 1) -> list[Event]:
    """Posting, settling, transactions, half messages, sequences, links that end; and sets of a sink. At the
    end every queue is empty.
    """
    chance = random.Random(seed)
    with stopping(JumpingBroker(config_with_events())) as broker:
        for number in range(rounds):
            with session_to(broker, "one") as one, session_to(broker, "two") as two:
                workers = [Worker(one, chance), Worker(two, chance)]
                for _ in range(STEPS):
                    broker.jump(TICK_S)
                    chance.choice(workers).step()
                patiently(lambda: settle_down(broker, one, two))
            with session_to(broker, "sink") as session:
                sink(broker, session, chance, number * EPOCHS)
        with session_to(broker, "kitchen") as session:
            for queue in QUEUES:
                broker.jump(TICK_S)
                drain(session, queue)
        return journal_of(broker)


def sink(broker: JumpingBroker, session: PeerSession, chance: random.Random, first: int) -> None:
    """Epochs of some sets each: some are tried twice, some given up."""
    client = SetClient(session)

    def sealed(epoch: int, name: str, rows: list[bytes]) -> tuple[str, int, int]:
        broker.jump(TICK_S)
        client.staged(name, *rows, epoch=epoch, destination=QUEUES[0]).detach()
        broker.jump(TICK_S)
        client.seal(name, *rows, epoch=epoch)
        return name, len(rows), checksum(*rows)

    for epoch in range(first + 1, first + 1 + EPOCHS):
        won = []
        for task in range(chance.randint(1, 3)):
            rows = [row(b"row %d" % number) for number in range(chance.randint(0, 4))]
            tries = [sealed(epoch, f"{epoch}-{task}-{at}", rows) for at in range(chance.choice((1, 1, 2)))]
            won.append(tries[-1])
        if chance.random() < 0.5:
            gone, *_ = sealed(epoch, f"{epoch}-gone", [row(b"row")])
            broker.jump(TICK_S)
            client.void(gone, epoch=epoch)
        if chance.random() < 0.3:  # a task that died: never sealed
            client.staged(f"{epoch}-open", row(b"row"), epoch=epoch, destination=QUEUES[0]).detach()
        broker.jump(TICK_S)
        outcome = client.commit(*won, epoch=epoch)
        assert isinstance(outcome, Accepted), outcome


def drain(session: PeerSession, queue: str) -> None:
    """Everything is accepted, settled."""
    receiver = attach_with(session, f"drain {queue}", source=Source(address=queue), snd_settle_mode=1)
    assert isinstance(receiver, PeerReceiver)
    receiver.flow(DRAIN_CREDIT, drain=True)
    session.connection.pump_until(lambda: receiver.credit == 0)
