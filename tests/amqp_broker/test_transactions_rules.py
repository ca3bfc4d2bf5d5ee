"""Rules of transactions that no peer alone can see: commits, crashes, restarts, full disks.

Their bounds are in test_transactions_bounds.py; what a peer can see is shown by the conformance scenarios of
part 4. The seeded faults of tests/mutants say which of them notices when a rule is broken.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerConfig, ListenerConfig
from amqp_broker.embedding import RunningBroker, running_broker
from amqp_broker.frames import (
    Accepted,
    Discharge,
    Error,
    Message,
    Modified,
    Rejected,
    Released,
    Symbol,
    TransactionalState,
)
from amqp_broker.persistence import DeleteNode, DischargedAt, StoreFailed, StoreFull
from amqp_broker.testing import ScriptedFaults
from amqp_broker.testing.blocking_peer import ConnectionLost
from amqp_broker.testing.peer import PeerError, PeerSender, PeerSession
from tests.support.broker_clients import (
    at_rest,
    bodies,
    counts,
    message,
    receive,
    round_trip,
    send,
    session_to,
)
from tests.support.controllers import Controller

TIMEOUT = "amqp:transaction:timeout"
ROLLBACK = "amqp:transaction:rollback"
TOO_MUCH = "amqp:resource-limit-exceeded"


def on_disk(directory: Path) -> BrokerConfig:
    """A broker on disk."""
    return BrokerConfig(data_dir=str(directory), listeners=(ListenerConfig(url="amqp://127.0.0.1:0"),))


def within(txn_id: bytes, outcome: Any) -> TransactionalState:
    """An outcome in a transaction."""
    return TransactionalState(txn_id=txn_id, outcome=outcome)


def sender_to(session: PeerSession, name: str) -> PeerSender:
    """A link that may send to a queue of its own name."""
    sender = session.attach_sender(f"to-{name}", name)
    session.connection.pump_until(lambda: sender.may_send)
    return sender


def post(sender: PeerSender, txn_id: bytes, *texts: bytes) -> list[Accepted | Error | None]:
    """Post durable messages in a transaction; the provisional outcomes, rejections by their errors."""
    numbers = [sender.send(message(text, durable=True), txn_id=txn_id) for text in texts]
    outcomes = sender.outcomes
    sender.session.connection.pump_until(lambda: all(number in outcomes for number in numbers))
    found: list[Accepted | Error | None] = []
    for number in numbers:
        state = outcomes[number]
        assert isinstance(state, TransactionalState) and state.txn_id == txn_id, f"got {state!r}"
        assert isinstance(state.outcome, Accepted | Rejected)
        found.append(state.outcome if isinstance(state.outcome, Accepted) else state.outcome.error)
    return found


def condition_of(state: object) -> str:
    """The condition of a rejected request."""
    assert isinstance(state, Rejected) and state.error is not None, f"expected rejected, got {state!r}"
    return str(state.error.condition)


def left(broker: RunningBroker, name: str) -> list[bytes]:
    """What somebody else finds in a queue, in its order."""
    with session_to(broker, "reader") as session:
        receiver = session.attach_receiver("reads", name)
        receiver.drain_all(100)
        return bodies(receiver.deliveries)


def was_committed(broker: RunningBroker, txn_id: bytes) -> bool:
    """Whether the store has the record of its discharge."""

    found = broker.call(lambda running: running.writer.ask(DischargedAt(txn_id)))
    return found is not None


@contextmanager
def crashing(
    directory: Path, faults: ScriptedFaults, crashes: bool
) -> Iterator[tuple[RunningBroker, PeerSession]]:
    """A broker on disk, which a commit that failed has ended where it `crashes`, and a session."""
    ends = pytest.raises(StoreFailed, match="scripted") if crashes else nullcontext()
    with ends, running_broker(on_disk(directory), faults=faults) as broker:
        with session_to(broker) as session:
            yield broker, session


def slow_disk(broker: RunningBroker) -> None:
    """Commits are left to the writer's thread, beside which the broker goes on."""
    broker.call(lambda running: setattr(running.writer._pace, "commit_s", 1.0))


def test_a_discharge_is_accepted_after_the_commit_only() -> None:
    """Durability: while the commit is under way there is no answer, and nobody sees the messages."""
    faults = ScriptedFaults()
    with running_broker(faults=faults) as broker, session_to(broker) as session, session_to(broker) as other:
        controller, sender = Controller(session), sender_to(session, "q")
        rival = other.attach_receiver("rival", "q", credit=10)
        txn_id = controller.declare()
        post(sender, txn_id, b"1", b"2")
        slow_disk(broker)
        with faults.held_commits():
            number = controller.ask(Discharge(txn_id=txn_id))
            for _ in range(3):
                round_trip(session, other)
            assert number not in controller.link.outcomes and not rival.deliveries
            (live,) = broker.call(Broker.transactions)
            assert live.state == "DISCHARGING"
        assert isinstance(controller.answer(number), Accepted)
        assert bodies(receive(rival, 2)) == [b"1", b"2"]


def test_everything_of_a_discharge_is_one_commit() -> None:
    """Row "half messages, ...": posts to two queues, what two others lose and get back, and the record of the
    discharge.
    """
    faults = ScriptedFaults()
    with running_broker(faults=faults) as broker, session_to(broker) as session:
        send(sender_to(session, "in"), b"1", b"2", b"3", durable=True)
        send(sender_to(session, "more"), b"4", durable=True)
        controller = Controller(session)
        a, b = sender_to(session, "a"), sender_to(session, "b")
        receiver = session.attach_receiver("r", "in", credit=3)
        first, second, third = receive(receiver, 3)
        txn_id = controller.declare()
        acquiring = session.attach_receiver("acquires", "more")
        acquiring.flow(1, txn_id=txn_id)
        (fourth,) = receive(acquiring, 1)
        post(a, txn_id, b"a1", b"a2")
        post(b, txn_id, b"b1")
        receiver.settle([first], within(txn_id, Accepted()), settled=False)
        receiver.settle([second], within(txn_id, Modified(delivery_failed=True)), settled=True)
        receiver.settle([third], within(txn_id, Rejected()), settled=True)
        acquiring.settle([fourth], within(txn_id, Accepted()), settled=False)
        round_trip(session)
        at_rest(broker)
        before = faults.commits
        controller.commit(txn_id)
        at_rest(broker)
        assert faults.commits == before + 1
        receiver.flow(0)
        assert left(broker, "in") == [b"2"] and left(broker, "more") == []
        assert left(broker, "a") == [b"a1", b"a2"] and left(broker, "b") == [b"b1"]


@pytest.mark.parametrize("moment", ["before", "after", "answered"])
def test_after_a_crash_all_of_it_is_there_or_nothing(moment: str, tmp_path: Path) -> None:
    """Durability: a crash before the COMMIT leaves nothing of the transaction, one after it all of it,
    whether the answer was sent or not; the record of the discharge says which.
    """
    faults = ScriptedFaults()
    with crashing(tmp_path, faults, moment != "answered") as (broker, session):
        send(sender_to(session, "in"), b"1", b"2", b"3", b"4", durable=True)
        sender_to(session, "replies")
        controller = Controller(session)
        a, b = sender_to(session, "a"), sender_to(session, "b")
        receiver = session.attach_receiver("r", "in", credit=4)
        deliveries = receive(receiver, 4)
        txn_id = controller.declare()
        post(a, txn_id, b"a1")
        post(b, txn_id, b"b1", b"b2")
        modified = Modified(delivery_failed=True, message_annotations={"x-opt-tried": True})
        for delivery, outcome in zip(deliveries, (Accepted(), modified, Rejected(), Released()), strict=True):
            receiver.settle([delivery], within(txn_id, outcome), settled=False)
        round_trip(session)
        at_rest(broker)
        if moment == "answered":
            controller.commit(txn_id)
        else:
            faults.fail_commit(happened=moment == "after")
            number = controller.ask(Discharge(txn_id=txn_id))
            with pytest.raises((ConnectionLost, PeerError)):
                controller.answer(number)
    happened = moment != "before"
    with running_broker(on_disk(tmp_path)) as broker, session_to(broker) as session:
        receiver = session.attach_receiver("r", "in", credit=10)
        found = [Message(delivery.payload) for delivery in receive(receiver, 2 if happened else 4)]
        assert [one.header.delivery_count for one in found] == ([1, 0] if happened else [0] * 4)
        tried = {Symbol("x-opt-tried"): True}
        annotations = [one.message_annotations or {} for one in found]
        assert annotations == ([tried, {}] if happened else [{}] * 4)
        assert left(broker, "in") == []
        assert left(broker, "a") == ([b"a1"] if happened else [])
        assert left(broker, "b") == ([b"b1", b"b2"] if happened else [])
        assert was_committed(broker, txn_id) is happened


def test_what_was_sent_settled_is_there_until_its_commit(tmp_path: Path) -> None:
    """4.4.4.3: acquired by settled transfers, messages are counted and stored until the discharge; a rollback
    and a restart find them.
    """
    for end in ("roll back", "restart", "commit"):
        with running_broker(on_disk(tmp_path)) as broker, session_to(broker) as session:
            if end == "roll back":
                send(sender_to(session, "q"), b"1", b"2", durable=True)
            controller = Controller(session)
            receiver = session.attach_receiver("r", "q", snd_settle_mode=1)
            txn_id = controller.declare()
            receiver.flow(2, txn_id=txn_id)
            deliveries = receive(receiver, 2)
            assert bodies(deliveries) == [b"1", b"2"] and all(one.settled for one in deliveries)
            at_rest(broker)
            assert counts(broker, "q")[0] == 2
            if end == "roll back":
                controller.roll_back(txn_id)
                assert counts(broker, "q")[0] == 2
            elif end == "commit":
                controller.commit(txn_id)
                assert counts(broker, "q") == (0, 0)
    with running_broker(on_disk(tmp_path)) as broker:
        assert left(broker, "q") == []


class FullDisk(ScriptedFaults):
    """While `full`, every commit finds the disk full."""

    full = False

    def before_commit(self) -> tuple[bool, Exception | None]:
        """(whether the commit is to happen, what to raise after it)."""
        if self.full:
            return False, StoreFull("scripted: the disk is full")
        return super().before_commit()


def test_a_full_disk_at_the_commit_rolls_back_and_the_broker_goes_on(tmp_path: Path) -> None:
    """Durability: rejected with amqp:transaction:rollback, everything undone in memory too; the same work can
    be committed later, and a restart finds it as it was told.
    """
    faults = FullDisk()
    with running_broker(on_disk(tmp_path), faults=faults) as broker, session_to(broker) as session:
        send(sender_to(session, "in"), b"1", b"2", durable=True)
        controller, sender = Controller(session), sender_to(session, "out")
        send(sender, b"0", durable=True)
        receiver = session.attach_receiver("r", "in", credit=1)
        (first,) = receive(receiver, 1)
        acquiring = session.attach_receiver("acquires", "in")
        for full in (True, False):
            txn_id = controller.declare()
            acquiring.flow(1, txn_id=txn_id)
            (second,) = receive(acquiring, 1)
            post(sender, txn_id, b"a", b"b")
            for link, delivery in ((receiver, first), (acquiring, second)):
                link.settle([delivery], within(txn_id, Accepted()), settled=False)
            round_trip(session)
            at_rest(broker)
            faults.full = full
            state = controller.discharge(txn_id)
            faults.full = False
            if full:
                assert condition_of(state) == ROLLBACK
                assert counts(broker, "out")[0] == 1 and counts(broker, "in")[0] == 2
            else:
                assert isinstance(state, Accepted)
            assert broker.call(Broker.transactions) == []
            assert was_committed(broker, txn_id) is not full
        send(sender, b"c", durable=True)
        expected = [b"0", b"a", b"b", b"c"]
        assert left(broker, "in") == [] and left(broker, "out") == expected
        assert offsets(broker, "out") == [0, 1, 2, 3]
    with running_broker(on_disk(tmp_path)) as broker:
        assert left(broker, "in") == [] and left(broker, "out") == expected


def offsets(broker: RunningBroker, name: str) -> list[int]:
    """The offsets of the messages that are available."""

    def there(running: Broker) -> list[int]:
        backlog = running.nodes.queues._queues[name].backlog
        return [record.offset for record in backlog.peek(0, 100)]

    at_rest(broker)
    return list(broker.call(there))


def test_a_discharge_that_the_store_refuses_leaves_no_record() -> None:
    """The record is part of the unit: who asks later is never told of a commit that did not happen."""
    with running_broker() as broker, session_to(broker) as session:
        controller, sender = Controller(session), sender_to(session, "q")
        txn_id = controller.declare()
        post(sender, txn_id, b"1")

        async def delete(running: Broker) -> None:
            queue = running.nodes.queues._queues["q"]
            await running.nodes.store_step([DeleteNode(queue.queue_id)])

        broker.call(delete)
        assert condition_of(controller.discharge(txn_id)) == ROLLBACK
        at_rest(broker)
        assert not was_committed(broker, txn_id)


def test_ids_are_never_used_again_in_the_life_of_a_store(tmp_path: Path) -> None:
    """Row "form of the txn-id": also after a restart an id that was told once means nothing else."""
    seen: set[bytes] = set()
    for _ in range(3):
        with running_broker(on_disk(tmp_path)) as broker, session_to(broker) as session:
            controller = Controller(session)
            for _ in range(20):
                txn_id = controller.declare()
                assert len(txn_id) == 16 and txn_id not in seen
                assert not was_committed(broker, txn_id)
                seen.add(txn_id)
                controller.commit(txn_id)
