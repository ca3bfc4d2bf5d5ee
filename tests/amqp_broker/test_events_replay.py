"""Random work on queues with events: the log, replayed, gives what the queues hold."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
import pytest

from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import (
    Accepted,
    Header,
    Modified,
    Properties,
    Rejected,
    Released,
    TransactionalState,
    encode_message,
)
from amqp_broker.persistence import Event
from amqp_broker.testing.peer import Delivery, PeerError, PeerReceiver, PeerSession
from tests.support.broker_clients import attach_with, session_to, settle_down
from tests.support.controllers import Controller
from tests.support.event_replay import replay
from tests.support.examples import seeds
from tests.support.halves import half, putter, resolution, resolver, tell
from tests.support.jumping_broker import JumpingBroker, stopping
from tests.support.message_events import config_with_events, log_of, queue_offsets
from tests.support.sequenced import annotated, outcomes

T = TypeVar("T")

QUEUES: Final = ("e.one", "e.two")
STEPS: Final = 60
OUTCOMES: Final[tuple[Any, ...]] = (
    Accepted(), Accepted(), Rejected(), Released(), Modified(delivery_failed=True),
    Modified(undeliverable_here=True),
)  # fmt: skip


class Worker:
    """One session that does anything at all, by chance."""

    def __init__(self, session: PeerSession, chance: random.Random) -> None:
        self.session = session
        self.chance = chance
        self.number = 0
        self.controller = Controller(session)
        self.senders = {name: session.attach_sender(f"s-{name}", name) for name in QUEUES}
        self.receivers: list[PeerReceiver] = []
        self.held: list[tuple[PeerReceiver, Delivery]] = []
        self.txn_id = b""
        self.put = putter(session, "g", QUEUES[0])
        self.decide = resolver(session, "g")
        self.halves: list[str] = []
        self.seq_no = 0

    def step(self) -> None:
        """One thing, mostly posting and settling."""
        works = (
            self.post, self.post, self.receive, self.settle, self.settle, self.sequenced, self.transact,
            self.half, self.resolve, self.detach,
        )  # fmt: skip
        try:
            self.chance.choice(works)()
        except PeerError:  # a plain outcome for what a transaction holds ends its control link (4.4.4.3)
            self.receivers = [receiver for receiver in self.receivers if receiver.detached is None]
            self.txn_id = b""
            self.controller = patiently(lambda: Controller(self.session, f"control-{self.chance.random()}"))

    def _message(self) -> bytes:
        self.number += 1
        header = Header(durable=self.chance.random() < 0.7, ttl=self.chance.choice((None, None, None, 1)))
        return encode_message(
            header=header, properties=Properties(message_id=f"m{self.number}"), body=b"body"
        )

    def post(self) -> None:
        """Some messages, in the transaction that there may be, settled or not."""
        sender = self.senders[self.chance.choice(QUEUES)]
        payloads = [self._message() for _ in range(self.chance.randint(1, 5))]
        txn_id = self.chance.choice((b"", self.txn_id))
        if not txn_id and self.chance.random() < 0.3:
            self.session.connection.pump_until(lambda: sender.credit > 10)
            for payload in payloads:
                sender.send(payload, settled=True)
        else:
            outcomes(sender, payloads, txn_id=txn_id or None)

    def sequenced(self) -> None:
        """A stream goes on, repeats itself, or leaves something out."""
        number = max(1, self.seq_no + self.chance.choice((0, 1, 1, 1, 2)))
        (state,) = outcomes(self.senders[QUEUES[1]], [annotated((1, number, number - 1))])
        if isinstance(state, Accepted):
            self.seq_no = max(self.seq_no, number)

    def receive(self) -> None:
        """A new link with some credit, in the transaction that there may be, or settled."""
        name = f"r{self.number}-{len(self.session.links)}-{self.chance.random()}"
        receiver = attach_with(self.session, name, **_source(self.chance))
        assert isinstance(receiver, PeerReceiver)
        txn_id = self.chance.choice((None, self.txn_id or None))
        receiver.flow(self.chance.randint(1, 6), txn_id=txn_id)
        self.receivers.append(receiver)
        self.session.connection.flush()
        self._take()

    def _take(self) -> None:
        self.session.connection.pump(0)
        for receiver in self.receivers:
            while receiver.deliveries:
                self.held.append((receiver, receiver.deliveries.popleft()))

    def settle(self) -> None:
        """An outcome for some of what is held, in the transaction or not, settled or not."""
        self._take()
        self.chance.shuffle(self.held)
        for _ in range(min(len(self.held), self.chance.randint(0, 4))):
            receiver, delivery = self.held.pop()
            if not delivery.settled and receiver.detached is None:
                state = self.chance.choice(OUTCOMES)
                if self.txn_id and self.chance.random() < 0.3:
                    state = TransactionalState(txn_id=self.txn_id, outcome=state)
                receiver.settle([delivery], state, settled=self.chance.random() < 0.6)
        self.session.connection.flush()

    def transact(self) -> None:
        """The transaction begins or ends."""
        if not self.txn_id:
            self.txn_id = self.controller.declare()
            return
        self.controller.discharge(self.txn_id, fail=self.chance.random() < 0.3)
        self.txn_id = b""

    def half(self) -> None:
        """A half message is put."""
        self.number += 1
        self.halves.append(f"h{self.number}-{self.chance.random()}")
        tell(self.put, half(self.halves[-1]))

    def resolve(self) -> None:
        """One is decided, some a second time."""
        if self.halves:
            tell(
                self.decide,
                resolution(self.chance.choice(self.halves), self.chance.choice(("commit", "rollback"))),
            )

    def detach(self) -> None:
        """A receiving link goes, with what it holds."""
        if self.receivers:
            receiver = self.receivers.pop(self.chance.randrange(len(self.receivers)))
            self._take()
            self.held = [entry for entry in self.held if entry[0] is not receiver]
            receiver.detach()


def _source(chance: random.Random) -> dict[str, Any]:
    from amqp_broker.frames import Source

    source = Source(
        address=chance.choice(QUEUES), default_outcome=chance.choice((None, Modified(delivery_failed=True)))
    )
    return {"source": source, "snd_settle_mode": chance.choice((0, 0, 1))}


def work(broker: RunningBroker, chance: random.Random) -> None:
    """A life of clients; their connections end in the midst of it."""
    with session_to(broker, "one") as one, session_to(broker, "two") as two:
        workers = [Worker(one, chance), Worker(two, chance)]
        for _ in range(STEPS):
            chance.choice(workers).step()
        patiently(lambda: settle_down(broker, one, two))


def patiently(call: Callable[[], T]) -> T:
    """Once more for each link that is told that it ends."""
    for _ in range(50):
        try:
            return call()
        except PeerError:
            continue
    raise AssertionError("links end and end")


def check(broker: RunningBroker) -> list[Event]:
    """What follows from the log is there, and nothing else."""
    events = log_of(broker)
    replayed = replay(events)
    assert replayed.problems == []
    for name in QUEUES:
        assert replayed.offsets(name) == queue_offsets(broker, name), name
    return events


@pytest.mark.parametrize("seed", seeds(8))
def test_replayed_log_gives_the_content_of_the_queues(seed: int) -> None:
    """Whatever was posted, delivered, settled, rolled back, resolved, expired or cut off."""
    with stopping(JumpingBroker(config_with_events())) as broker:
        work(broker, random.Random(seed))
        events = check(broker)
    assert {event.kind for event in events} >= {"put", "deliver", "settle"}


@pytest.mark.parametrize("seed", (100, 101))
def test_replay_goes_on_over_restarts(seed: int, tmp_path: Path) -> None:
    """Every message is stored, durable or not, so nothing goes with a life, and no offset comes twice."""
    chance = random.Random(seed)
    config = attrs.evolve(config_with_events(), memory=False, data_dir=str(tmp_path))
    for life in range(3):
        with stopping(JumpingBroker(config)) as broker:
            if life:
                check(broker)
            work(broker, chance)
            check(broker)
