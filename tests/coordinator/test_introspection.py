"""What an administrator sees of live transactions, and may do to them."""

from __future__ import annotations

import pytest

from amqp_broker.coordinator import Ended, TransactionRollback
from amqp_broker.frames import Discharge
from tests.coordinator.parts import Delivery, Posting, dispose, table, txn


def test_introspection() -> None:
    """Live ones with age, container and the work done, the oldest first."""
    of = table()
    one = txn(of, 1, now=3.0)
    txn(of, 2, now=4.0)
    of.enlist(one, Posting(operations=5, size=70))
    delivery = Delivery()
    of.acquired(one, "consumer", [delivery], False)
    dispose(of, one, [delivery])
    first, second = of.live()
    assert (first.age(10.0), first.container_id, first.connection) == (7.0, "peer", "connection")
    assert (first.posted, first.acquired, first.retired) == (5, 1, 1)
    assert (first.operations, first.size_bytes) == (6, 71)
    assert second.age(10.0) == 6.0 and "2 " not in repr(second)[:14]


def test_a_forced_rollback_is_told_at_the_next_use() -> None:
    """What it held is free at once; its controller learns amqp:transaction:rollback."""
    of = table()
    one = txn(of)
    of.enlist(one, Posting())
    ended = of.force_rollback(one.txn_id, "by the administrator")
    assert ended is not None and len(ended.postings) == 1
    with pytest.raises(TransactionRollback, match="administrator"):
        of.find(one.txn_id)
    answer = of.discharge("control", Discharge(txn_id=one.txn_id))
    assert isinstance(answer, Ended) and isinstance(answer.error, TransactionRollback)
    assert of.force_rollback(one.txn_id, "again") is None
