"""Bounds and the counters that enforce them."""

import pytest

from amqp_broker.links.limits import Limits, OperationRate, PartialBytes


def test_defaults_are_those_of_the_limits_table() -> None:
    """The figures of reliability.md."""
    limits = Limits()
    assert (limits.header_timeout_s, limits.open_timeout_s) == (2, 10)
    assert (limits.frame_size_before_open, limits.frames_before_open, limits.bytes_before_open) == (
        8192,
        8,
        16384,
    )
    assert (limits.links_per_session, limits.unsettled_per_link, limits.unsettled_per_session) == (
        256,
        2048,
        5000,
    )
    assert (limits.control_operations_per_s, limits.control_operations_burst) == (200, 500)
    assert (limits.output_bytes, limits.partial_idle_s, limits.max_message_bytes) == (262144, 60, 16777216)
    assert limits.min_idle_time_out_ms == 1000
    assert PartialBytes().limit_bytes == 268435456


def test_relations_are_asserted() -> None:
    """A frame before open has to fit into what is buffered before open."""
    with pytest.raises(AssertionError):
        Limits(frame_size_before_open=20_000)


def test_the_bucket_allows_a_burst_and_then_the_rate() -> None:
    """500 at once, then one for each 5 ms."""
    rate = OperationRate(200.0, 500, 0.0)
    assert all(rate.allow(0.0) for _ in range(500))
    assert not rate.allow(0.0)
    assert rate.allow(0.0051)
    assert not rate.allow(0.0051)
    assert sum(rate.allow(100.0) for _ in range(1_000)) == 500


def test_partial_bytes_are_a_sum_over_connections() -> None:
    """What does not fit is not counted; what is given back fits again."""
    shared = PartialBytes(10)
    assert shared.take(6)
    assert not shared.take(5)
    assert shared.take(4)
    shared.give_back(10)
    assert shared.used_bytes == 0
    with pytest.raises(AssertionError):
        shared.give_back(1)
