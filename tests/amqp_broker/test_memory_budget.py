"""One budget for the memory of the process, over real sockets: who fills queues or transactions waits, and is
then refused with the setting's name; others go on, and everything is given back in the end.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerConfig, BrokerLimits, HalfGroupConfig, QueuePolicy
from amqp_broker.embedding import RunningBroker, running_broker
from amqp_broker.frames import Accepted, Modified, Rejected, TransactionalState, Transfer, encode_message
from amqp_broker.links.memory_budget import CACHE_PART, PRESSED_PART
from amqp_broker.links.receiver_link import CHUNK_BYTES
from amqp_broker.persistence import RECORD_OVERHEAD_BYTES
from amqp_broker.testing import memory_config
from amqp_broker.testing.blocking_peer import PATIENCE_S
from amqp_broker.testing.peer import PeerError, PeerSender, PeerSession
from tests.support.broker_clients import (
    at_rest,
    bodies,
    message,
    receive,
    round_trip,
    send,
    session_to,
    take_everything,
)
from tests.support.controllers import Controller
from tests.support.half_sets import SetClient, checksum, row
from tests.support.halves import half, putter, resolution, resolver, tell
from tests.support.logs import log_policy
from tests.support.memory_kept import memory_faults

MIB = 1 << 20
BUDGET = 8 * MIB
QUEUES = 45
AT_ONCE = 9  # messages, of which none is refused where there is still credit
BODY = bytes(10_000)
TOO_MUCH = "amqp:resource-limit-exceeded"
SETTING = "limits.memory_bytes"


def config(wait_ms: int = 0) -> BrokerConfig:
    """A broker with little memory, at which nothing waits before it is refused."""
    small = BrokerLimits(
        memory_bytes=BUDGET, memory_wait_ms=wait_ms, max_message_size_bytes=MIB, transaction_bytes=4 * MIB
    )
    return memory_config(limits=small)


def on_disk(tmp_path: Path) -> BrokerConfig:
    """The same with a store on disk."""
    return attrs.evolve(config(), memory=False, data_dir=str(tmp_path / "data"))


def used_bytes(broker: RunningBroker) -> int:
    """Of the budget."""

    def used(real: Broker) -> int:
        return real.memory.used_bytes

    return int(broker.call(used))


def without_faults(broker: RunningBroker) -> None:
    """At rest the accountant agrees with what the broker has."""
    at_rest(broker)
    assert broker.call(memory_faults) == []


def without_faults_but(broker: RunningBroker, octets: int) -> None:
    """So many more are used than there are messages, transactions and connections for."""
    at_rest(broker)
    (fault,) = broker.call(memory_faults)
    used, kept = re.findall(r"\d+", fault)[:2]
    assert int(used) - int(kept) == octets


@contextmanager
def two_sessions(config: BrokerConfig) -> Iterator[tuple[RunningBroker, PeerSession, PeerSession]]:
    """A broker, and two connections to it."""
    with running_broker(config) as broker, session_to(broker) as session, session_to(broker, "b") as other:
        yield broker, session, other


def fill(senders: list[PeerSender], body: bytes = BODY, **fields: Any) -> int:
    """Send as long as there is credit anywhere, a few at a time; how many messages."""
    session = senders[0].session
    count = 0
    while ready := [sender for sender in senders if sender.may_send]:
        sent = [(sender, sender.send(message(body, **fields))) for sender in ready[:AT_ONCE]]
        senders = senders[AT_ONCE:] + senders[:AT_ONCE]
        session.connection.pump_until(lambda: all(number in each.outcomes for each, number in sent))  # noqa: B023
        round_trip(session)
        count += len(sent)
    return count


def refusals(sender: PeerSender) -> list[str]:
    """Why messages were rejected."""
    states = [
        state.outcome if isinstance(state, TransactionalState) else state
        for state in sender.outcomes.values()
    ]
    return [
        f"{state.error.condition} {state.error.description}"
        for state in states
        if isinstance(state, Rejected) and state.error is not None
    ]


@pytest.mark.parametrize("durable", [False, True])
def test_many_queues_do_not_fill_the_memory(durable: bool) -> None:
    """One connection with messages that only memory has, on 45 queues: its credit ends before half of the
    budget is used. Others still send and receive; consumers drain everything, and its credit is given again.
    """
    with two_sessions(config()) as (broker, session, other):
        senders = [session.attach_sender(f"to-{at}", f"q{at}") for at in range(QUEUES)]
        count = fill(senders, durable=durable)
        assert not any(refusals(sender) for sender in senders)
        assert BUDGET // 4 < count * len(BODY) <= BUDGET // 2
        assert used_bytes(broker) <= BUDGET // 2 + MIB
        small = other.attach_sender("small", "small")
        assert [small.outcomes[number] for number in send(small, *[b"x"] * 50)] == [Accepted()] * 50
        assert len(receive(other.attach_receiver("drain", "small", credit=50), 50)) == 50
        taken = sum(
            len(take_everything(other.attach_receiver(f"from-{at}", f"q{at}"))) for at in range(QUEUES)
        )
        assert taken == count
        session.connection.pump_until(lambda: all(sender.may_send for sender in senders))
        without_faults(broker)


def test_what_was_on_its_way_is_refused_with_the_name() -> None:
    """Credit was given before: what comes beyond the budget is rejected, and the error names the setting.
    What was accepted is there, and nothing else.
    """
    with running_broker(config()) as broker, session_to(broker) as session:
        sender = session.attach_sender("up", "q")
        numbers = [sender.send(message(BODY)) for _ in range(1_000)]
        session.connection.pump_until(lambda: len(sender.outcomes) == len(numbers))
        refused = refusals(sender)
        assert refused and all(text.startswith(TOO_MUCH) and SETTING in text for text in refused)
        assert used_bytes(broker) <= BUDGET
        found = take_everything(session.attach_receiver("down", "q"))
        assert len(found) == len(numbers) - len(refused)
        without_faults(broker)


def test_who_does_not_listen_is_detached_with_the_name() -> None:
    """Messages that were sent settled cannot be rejected: their link ends."""
    with running_broker(config()) as broker, session_to(broker) as session:
        sender = session.attach_sender("up", "q")
        for _ in range(1_000):
            sender.send(message(BODY), settled=True)
        with pytest.raises(PeerError) as ended:
            session.connection.pump_until(lambda: False)
        assert ended.value.error is not None and ended.value.error.condition == TOO_MUCH
        assert SETTING in str(ended.value.error.description)


def test_reading_waits_before_anything_is_refused() -> None:
    """Back-pressure first: a sender with old credit is not read where all is used up, and when a consumer
    comes in time nothing of it is refused.
    """
    with two_sessions(config(30_000)) as (broker, session, other):
        sender = session.attach_sender("up", "q")
        numbers = [sender.send(message(BODY), settled=False) for _ in range(2_000)]
        writing = threading.Thread(target=session.connection.flush)
        writing.start()
        while not broker.call(_waiting):
            pass
        for _ in range(50):
            round_trip(other)
        receiver = other.attach_receiver("down", "q")
        found = 0
        receiver.flow(100)
        while found < len(numbers):
            other.connection.pump_until(lambda: receiver.deliveries)
            arrived = list(receiver.deliveries)
            receiver.deliveries.clear()
            receiver.settle(arrived, Accepted())
            found += len(arrived)
            receiver.flow(100)
        writing.join()
        session.connection.pump_until(lambda: len(sender.outcomes) == len(numbers))
        assert not refusals(sender)
        without_faults(broker)


@pytest.fixture(params=["memory", "disk"])
def configured(request: pytest.FixtureRequest, tmp_path: Path) -> BrokerConfig:
    """Little memory, with both stores."""
    return config() if request.param == "memory" else on_disk(tmp_path)


def post_until_short(session: PeerSession, controller: Controller, sender: PeerSender) -> list[bytes]:
    """Post in transactions until there is no credit any more; their ids."""
    txn_ids: list[bytes] = []
    while sender.may_send:
        txn_ids.append(controller.declare())
        for _ in range(100):
            if not sender.may_send:
                break
            sender.send(message(BODY, durable=True), txn_id=txn_ids[-1])
            round_trip(session)
    return txn_ids


def test_open_transactions_do_not_fill_the_memory(configured: BrokerConfig) -> None:
    """Their credit ends before half of the budget is used, others go on, and each of them can be discharged,
    which makes room again.
    """
    with two_sessions(configured) as (broker, session, other):
        controller = Controller(session)
        sender = session.attach_sender("up", "q")
        txn_ids = post_until_short(session, controller, sender)
        assert len(txn_ids) >= 2 and not refusals(sender)
        assert BUDGET // 4 < used_bytes(broker) <= BUDGET // 2 + MIB
        small = other.attach_sender("small", "small")
        assert [small.outcomes[number] for number in send(small, *[b"x"] * 50)] == [Accepted()] * 50
        without_faults(broker)
        for txn_id in txn_ids[1:]:
            controller.roll_back(txn_id)
        controller.commit(txn_ids[0])
        session.connection.pump_until(lambda: sender.may_send)
        assert len(take_everything(other.attach_receiver("down", "q"))) == 100
        take_everything(other.attach_receiver("rest", "small"))
        without_faults(broker)


def test_a_posting_beyond_the_budget_is_refused_with_the_name() -> None:
    """Provisionally rejected, and the transaction can be rolled back."""
    with running_broker(config()) as broker, session_to(broker) as session:
        controller = Controller(session)
        sender = session.attach_sender("up", "q")
        first, second = controller.declare(), controller.declare()
        for at in range(700):
            sender.send(message(BODY), txn_id=first if at < 350 else second)
        session.connection.pump_until(lambda: len(sender.outcomes) == 700)
        too_much, *others = refusals(sender)
        assert too_much.startswith(TOO_MUCH) and SETTING in too_much
        assert all(SETTING in text for text in others), "what comes behind it is told why it is too late"
        controller.roll_back(second)
        controller.roll_back(first)
        session.connection.pump_until(lambda: sender.may_send)
        without_faults(broker)


def test_a_connection_that_goes_leaves_only_its_messages() -> None:
    """Transactions, incomplete deliveries and buffers are given back with it; what was accepted stays."""
    with running_broker(config()) as broker:
        before = used_bytes(broker)
        with session_to(broker) as session:
            controller = Controller(session)
            sender = session.attach_sender("up", "q")
            txn_id = controller.declare()
            sender.send(message(BODY), txn_id=txn_id)
            send(sender, BODY)
            half = session.attach_sender("half", "q")
            number = session.next_delivery_id
            session.put(Transfer(handle=half.handle, delivery_id=number, delivery_tag=b"t", more=True), BODY)
            round_trip(session)
            without_faults_but(broker, len(BODY) + CHUNK_BYTES)
            session.connection.abort()
        while broker.call(_connections):
            pass
        without_faults(broker)
        assert used_bytes(broker) - before == len(encode_message(body=BODY)) + RECORD_OVERHEAD_BYTES


def _waiting(broker: Broker) -> bool:
    return any(task._reads_again_at is not None for task in broker._connections)


def _connections(broker: Broker) -> int:
    return len(broker._connections)


def test_copies_of_what_is_on_disk_take_a_part(tmp_path: Path) -> None:
    """Durable messages are accepted without end, and memory has copies in a quarter of the budget only; each
    consumer gets all of its queue, in order, although the others hold what they got.
    """
    with running_broker(on_disk(tmp_path)) as broker, session_to(broker) as session:
        senders = [session.attach_sender(f"to-{at}", f"q{at}") for at in range(8)]
        texts = [str(number).encode().ljust(len(BODY)) for number in range(100)]
        for text in texts:
            numbers = [(sender, sender.send(message(text, durable=True))) for sender in senders]
            session.connection.pump_until(lambda: all(n in sender.outcomes for sender, n in numbers))  # noqa: B023
        assert not any(refusals(sender) for sender in senders)
        without_faults(broker)

        def copies(real: Broker) -> int:
            return real.memory.cache.used_bytes

        assert broker.call(copies) <= BUDGET // CACHE_PART + len(senders) * 2 * len(BODY)
        receivers = [session.attach_receiver(f"from-{at}", f"q{at}", credit=100) for at in range(8)]
        held = [receive(receiver, 60) for receiver in receivers]
        for receiver, arrived in zip(receivers, held, strict=True):
            receiver.settle(arrived, Accepted())
            rest = receive(receiver, 40)
            receiver.settle(rest, Accepted())
            assert bodies([*arrived, *rest]) == texts
        without_faults(broker)


def test_the_log_says_when_it_begins_and_when_it_is_over() -> None:
    """One event when the first sender has to wait, and one when none has to: whatever happens in between."""
    with running_broker(config()) as broker:

        def storm(real: Broker) -> list[tuple[str, dict[str, Any]]]:
            told: list[tuple[str, dict[str, Any]]] = []
            real._log = _Recorder(told)  # type: ignore[assignment]
            accounts = [type(real.memory.cache)(real.memory, lambda: None) for _ in range(3)]
            for account in accounts:
                account.hold(BUDGET // 4)
            for _ in range(100):
                accounts[0].give_back(BUDGET // PRESSED_PART // 4)
                accounts[0].hold(BUDGET // PRESSED_PART // 4)
            for account in accounts:
                account.give_back(account.used_bytes)
            return told

        told = broker.call(storm)
        assert [event for event, _ in told] == ["memory.reached", "memory.relieved"]
        assert told[0][1]["memory_bytes"] == BUDGET and told[0][1]["used_bytes"] > BUDGET // 4


class _Recorder:
    def __init__(self, told: list[tuple[str, dict[str, Any]]]) -> None:
        self._told = told

    def warning(self, event: str, **facts: Any) -> None:
        """One line."""
        self._told.append((event, facts))

    info = warning


@pytest.mark.parametrize("leave", [False, True])
def test_what_outcomes_add_in_transactions_does_not_fill_the_memory(leave: bool) -> None:
    """A few octets that a receiver says add large annotations to each of many small messages. What waits for
    a discharge counts, and what does not fit dooms its transaction, with the setting's name.
    """
    each, octets = 50, 60_000
    added = Modified(message_annotations={"x-opt-note": "n" * octets})
    with two_sessions(config()) as (broker, session, other):
        send(other.attach_sender("up", "q"), *[b"x"] * (4 * each))
        before = used_bytes(broker)
        controller = Controller(session)
        receiver = session.attach_receiver("down", "q", credit=4 * each)
        got = receive(receiver, 4 * each)
        txn_ids = [controller.declare() for _ in range(4)]
        for at, txn_id in enumerate(txn_ids):
            state = TransactionalState(txn_id=txn_id, outcome=added)
            receiver.settle(got[at * each : (at + 1) * each], state, settled=False)
            round_trip(session)
            if at == 0:
                assert used_bytes(broker) - before >= each * octets
            without_faults(broker)
        assert used_bytes(broker) <= BUDGET
        if leave:
            session.connection.abort()
            while broker.call(_connections) > 1:
                pass
        else:
            assert controller.discharge(txn_ids[0], fail=True) == Accepted()
            answer = controller.discharge(txn_ids[3])
            assert isinstance(answer, Rejected) and answer.error is not None
            assert SETTING in (answer.error.description or "")
            receiver.settle(got, Accepted())
            session.connection.close()
        without_faults(broker)
        assert used_bytes(broker) - before <= 0


# What only a store in memory has of messages counts, too


DAY_MS = 86_400_000
MANY = 100


def with_policies(*policies: QueuePolicy) -> BrokerConfig:
    """A broker in memory that has little of it."""
    small = BrokerLimits(memory_bytes=BUDGET, memory_wait_ms=0, max_message_size_bytes=MIB)
    patient = HalfGroupConfig(name="g", first_check_ms=DAY_MS, max_age_ms=DAY_MS)
    return memory_config(limits=small, queue_policies=policies, half_groups=(patient,))


def send_many(session: PeerSession, address: str, count: int = MANY) -> int:
    """Durable messages, as long as there is credit; how many."""
    sender = session.attach_sender(f"to-{len(session.links)}", address)
    sent = 0
    while sent < count and sender.may_send:
        send(sender, *[BODY] * min(9, count - sent), durable=True)
        assert not refusals(sender)
        sent += min(9, count - sent)
        round_trip(session)
    return sent


def wait_until_at_most(broker: RunningBroker, octets: int) -> None:
    """The store forgets when it has time."""
    begun = time.monotonic()
    while used_bytes(broker) > octets:
        assert time.monotonic() - begun < PATIENCE_S
        time.sleep(0.01)


def test_retained_messages_count_until_they_are_dropped() -> None:
    """Settled ones, too: their retention ends what the budget has of them."""
    kept = QueuePolicy(pattern="kept", retention_bytes=MIB, retention_ms=DAY_MS)
    with running_broker(with_policies(kept)) as broker, session_to(broker) as session:
        before = used_bytes(broker)
        assert send_many(session, "kept") == MANY
        assert len(take_everything(session.attach_receiver("down", "kept"))) == MANY
        assert used_bytes(broker) - before > MANY * len(BODY)
        without_faults(broker)
        for at in range(3):
            assert send_many(session, "kept") == MANY
            take_everything(session.attach_receiver(f"down-{at}", "kept"))
        wait_until_at_most(broker, before + MIB + MIB // 4)
        without_faults(broker)


def test_a_log_does_not_fill_the_memory() -> None:
    """Its senders have credit as long as there is memory, and none of what they send is refused."""
    with running_broker(with_policies(log_policy("log"))) as broker, session_to(broker) as session:
        sent = send_many(session, "log", 2_000)
        assert BUDGET // 2 < sent * len(BODY) < BUDGET
        assert used_bytes(broker) <= BUDGET
        without_faults(broker)


def test_what_is_staged_counts_until_its_set_is_over() -> None:
    """Voided it is gone, committed it is in its queue."""
    rows = [row(BODY)] * MANY
    with running_broker(with_policies()) as broker, session_to(broker) as session:
        client = SetClient(session)
        before = used_bytes(broker)
        for set_id in ("a", "b"):
            client.staged(set_id, *rows).detach()
        assert used_bytes(broker) - before > 2 * MANY * len(BODY)
        without_faults(broker)
        assert client.void("a") == Accepted()
        without_faults(broker)
        assert used_bytes(broker) - before < (MANY + 30) * len(BODY)
        total = checksum(*rows)
        assert client.seal("b", *rows) == Accepted()
        assert client.commit(("b", MANY, total)) == Accepted()
        without_faults(broker)
        assert len(take_everything(session.attach_receiver("down", "q"))) == MANY
        without_faults(broker)
        assert used_bytes(broker) - before < MIB // 8


def test_half_messages_count_until_they_are_decided() -> None:
    """Rolled back their bodies are gone, committed they are in their queue."""
    with running_broker(with_policies()) as broker, session_to(broker) as session:
        put, resolve = putter(session), resolver(session)
        before = used_bytes(broker)
        for at in range(MANY):
            assert tell(put, half(f"h{at}", BODY)) == Accepted()
        assert used_bytes(broker) - before > MANY * len(BODY)
        without_faults(broker)
        for at in range(MANY):
            assert tell(resolve, resolution(f"h{at}", "commit" if at % 2 else "rollback")) == Accepted()
        without_faults(broker)
        assert used_bytes(broker) - before < MANY // 2 * len(BODY) + MIB // 8
        assert len(receive(session.attach_receiver("down", "q", credit=MANY), MANY // 2)) == MANY // 2


def test_messages_on_disk_are_not_the_budgets(tmp_path: Any) -> None:
    """A store on disk has nothing in memory that the broker does not know of."""
    disk = attrs.evolve(with_policies(log_policy("log")), memory=False, data_dir=str(tmp_path))
    with running_broker(disk) as broker, session_to(broker) as session:
        before = used_bytes(broker)
        assert send_many(session, "log", 900) == 900
        without_faults(broker)
        assert used_bytes(broker) - before < MIB
