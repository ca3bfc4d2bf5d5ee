"""Refusals are counted by the limit that they name."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.frames import Accepted, Error, Rejected, Released, TransactionalState
from amqp_broker.links import Refusals

FULL = "amqp:resource-limit-exceeded"


@pytest.mark.parametrize(
    ("condition", "description", "limit"),
    [
        (FULL, "queue 'a' is full (max_messages, 5, of its [[queue]])", "max_messages"),
        (FULL, "queue 'max_bytes' is full (max_messages, 5)", "max_messages"),
        (FULL, "only 1,024 sessions (limits.max_sessions)", "max_sessions"),
        (FULL, "the disk is full (database or disk is full)", "disk"),
        (FULL, "too much of it", "other"),
        (FULL, None, "other"),
        ("amqp:not-allowed", "channel 9, and ours is 3 (limits.max_sessions)", "max_sessions"),
        ("amqp:unauthorized-access", "'max_bytes' may not send", "rights"),
        ("amqp:transaction:timeout", "the transaction lasted longer than 4 s", "transaction_timeout_ms"),
        ("amqp:not-found", "no such node", None),
        ("amqp:decode-error", "it names_no setting", None),
    ],
)
def test_the_limit_of_an_error(condition: str, description: str | None, limit: str | None) -> None:
    """The setting that its text names outside of quotes, else what its condition says; or it is none."""
    refusals = Refusals(["max_messages", "max_bytes", "max_sessions"])
    refusals.told(Error(condition=condition, description=description), 3)
    assert refusals.counts == ({} if limit is None else {limit: 3})


def test_outcomes_that_refuse() -> None:
    """Rejected, in a transaction too; others are none, and neither is one without an error."""
    refusals = Refusals(["max_messages"])
    rejected = Rejected(error=Error(condition=FULL, description="(max_messages)"))
    states: list[Any] = [
        Accepted(), Released(), Rejected(), TransactionalState(txn_id=b"1"),
        TransactionalState(txn_id=b"1", outcome=Accepted()),
    ]  # fmt: skip
    for state in states:
        refusals.told_outcome(state, 7)
    assert refusals.counts == {}
    refusals.told_outcome(rejected, 2)
    refusals.told_outcome(TransactionalState(txn_id=b"1", outcome=rejected), 3)
    assert refusals.counts == {"max_messages": 5}


def test_what_ends_before_anybody_is_told() -> None:
    """By the setting that the reason names."""
    refusals = Refusals(["websocket_timeout_ms"])
    refusals.said("no handshake within 5 ms (websocket_timeout_ms)")
    refusals.said("it went")
    assert refusals.counts == {"websocket_timeout_ms": 1}
