"""Refusals are counted by the limit, or by the condition that the peer is told."""

from __future__ import annotations

import pytest

from amqp_broker.links import Refusals


@pytest.mark.parametrize(
    ("condition", "limit"),
    [
        ("amqp:resource-limit-exceeded", "resources"),
        ("amqp:unauthorized-access", "rights"),
        ("amqp:link:message-size-exceeded", "max_message_size_bytes"),
        ("amqp:link:transfer-limit-exceeded", "credit"),
        ("amqp:session:window-violation", "window"),
        ("amqp:transaction:timeout", "transaction_timeout_ms"),
        ("amqp:link:detach-forced", "consumer_timeout_ms"),
        ("amqp:not-found", None),
        ("amqp:internal-error", None),
        ("my:own", None),
    ],
)
def test_the_label_of_a_condition(condition: str, limit: str | None) -> None:
    """What is no refusal is not counted."""
    refusals = Refusals()
    refusals.told(condition, 3)
    assert refusals.counts == ({} if limit is None else {limit: 3})


def test_a_limit_that_is_known() -> None:
    """By its name, and so often."""
    refusals = Refusals()
    refusals.met("max_sessions")
    refusals.met("max_sessions", 2)
    assert refusals.counts == {"max_sessions": 3}
