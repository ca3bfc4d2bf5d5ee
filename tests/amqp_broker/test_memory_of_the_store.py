"""One budget for the memory of the process: what only a store in memory has of messages counts, too."""

from __future__ import annotations

import time
from typing import Any

import attrs

from amqp_broker.configuration import BrokerConfig, BrokerLimits, HalfGroupConfig, QueuePolicy
from amqp_broker.embedding import RunningBroker, running_broker
from amqp_broker.frames import Accepted
from amqp_broker.testing import memory_config
from amqp_broker.testing.blocking_peer import PATIENCE_S
from amqp_broker.testing.peer import PeerSession
from tests.support.broker_clients import receive, round_trip, send, session_to, take_everything
from tests.support.half_sets import SetClient, checksum, row
from tests.support.halves import half, putter, resolution, resolver, tell
from tests.support.logs import log_policy

from .test_memory_budget import BUDGET, MIB, refusals, used_bytes, without_faults

DAY_MS = 86_400_000
BODY = bytes(10_000)
MANY = 100


def config(*policies: QueuePolicy) -> BrokerConfig:
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
    with running_broker(config(kept)) as broker, session_to(broker) as session:
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
    with running_broker(config(log_policy("log"))) as broker, session_to(broker) as session:
        sent = send_many(session, "log", 2_000)
        assert BUDGET // 2 < sent * len(BODY) < BUDGET
        assert used_bytes(broker) <= BUDGET
        without_faults(broker)


def test_what_is_staged_counts_until_its_set_is_over() -> None:
    """Voided it is gone, committed it is in its queue."""
    rows = [row(BODY)] * MANY
    with running_broker(config()) as broker, session_to(broker) as session:
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
    with running_broker(config()) as broker, session_to(broker) as session:
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
    disk = attrs.evolve(config(log_policy("log")), memory=False, data_dir=str(tmp_path))
    with running_broker(disk) as broker, session_to(broker) as session:
        before = used_bytes(broker)
        assert send_many(session, "log", 900) == 900
        without_faults(broker)
        assert used_bytes(broker) - before < MIB
