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
        4096,
        2048,
        5000,
    )
    assert (limits.links_per_connection, limits.outcome_wait_s) == (16384, 2)
    assert (limits.control_operations_per_s, limits.control_operations_burst) == (2000, 8000)
    assert (limits.output_bytes, limits.partial_idle_s, limits.max_message_bytes) == (262144, 60, 16777216)
    assert limits.min_idle_time_out_ms == 1000
    assert PartialBytes().limit_bytes == 268435456


def test_relations_are_asserted() -> None:
    """A frame before open has to fit into what is buffered before open."""
    with pytest.raises(AssertionError):
        Limits(frame_size_before_open=20_000)
    with pytest.raises(AssertionError):
        Limits(links_per_session=20_000)


def test_the_bucket_allows_a_burst_and_then_the_rate() -> None:
    """500 at once, then 200 in a second: every pause is long enough to be worth it, and nothing is
    refused.
    """
    rate = OperationRate(200.0, 500, 0.0)
    assert [rate.take(0.0) for _ in range(500)] == [0.0] * 500
    now = pauses = 0.0
    for _ in range(2_000):
        pause = rate.take(now)
        assert pause == 0.0 or pause >= 0.05
        now += pause
        pauses += pause > 0
    assert 9.9 < now < 10.1
    assert pauses < 210


def test_a_bucket_that_many_share_lets_each_wait_for_its_turn() -> None:
    """Who comes when others have overdrawn it waits until it is full again."""
    rate = OperationRate(100.0, 1, 0.0)
    assert [rate.take(0.0) for _ in range(4)] == [0.0, 0.05, 0.05, 0.05]
    assert [rate.take(0.0) for _ in range(16)][-1] == pytest.approx(0.19)
    assert not rate.idle(0.1)
    assert rate.idle(0.3)
    assert rate.take(100.0) == 0.0


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
