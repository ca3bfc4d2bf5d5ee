"""What a `[[queue]]` says of sequences."""

from __future__ import annotations

import pytest

from amqp_broker.configuration import ConfigurationError, QueuePolicy, parse_configuration


def test_the_keys_of_a_queue() -> None:
    """In TOML the timer has MSMQ's words; by default sequences are optional and told at once."""
    config = parse_configuration(
        '[[queue]]\npattern = "orders"\nsequence = "required"\nack_debounce_ms = 20\nack_max_delay_ms = 50\n'
    )
    policy = config.policy_of("orders")
    assert (policy.sequence, policy.order_debounce_ms, policy.order_max_delay_ms) == ("required", 20, 50)
    default = config.policy_of("others")
    assert (default.sequence, default.order_debounce_ms, default.order_max_delay_ms) == ("optional", 0, 100)


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ('sequence = "always"', "sequence"),
        ("sequence = true", "sequence"),
        ("ack_debounce_ms = -1", "ack_debounce_ms"),
        ("ack_debounce_ms = 60001", "ack_debounce_ms"),
        ("ack_max_delay_ms = 0", "ack_max_delay_ms"),
        ("order_debounce_ms = 5", "order_debounce_ms"),
    ],
)
def test_what_is_not_allowed_is_named(line: str, field: str) -> None:
    """The key as it stands in the file, and what may stand there."""
    with pytest.raises(ConfigurationError, match=field):
        parse_configuration(f'[[queue]]\npattern = "orders"\n{line}\n')


def test_a_policy_made_in_python() -> None:
    """The same bounds."""
    with pytest.raises(ConfigurationError):
        QueuePolicy(pattern="q", order_max_delay_ms=0)
