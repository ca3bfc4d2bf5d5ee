"""Deadlines as plain arithmetic."""

from amqp_broker.links.limits import Limits
from amqp_broker.links.timers import Due, Timers


def opened(idle_ms: int = 30_000) -> Timers:
    """Timers of a connection that is open."""
    timers = Timers(Limits(), idle_ms, 100.0)
    timers.header_at = timers.open_at = None
    return timers


def test_header_and_open_have_absolute_deadlines() -> None:
    """2 s to the header, 10 s to open, counted from the accept."""
    timers = Timers(Limits(), 30_000, 100.0)
    assert timers.next_deadline() == 102.0
    assert timers.due(101.9) is Due.NOTHING
    assert timers.due(102.0) is Due.HEADER
    timers.header_at = None
    assert timers.next_deadline() == 110.0
    assert timers.due(110.0) is Due.OPEN


def test_ours_is_enforced_at_twice_the_announced_value() -> None:
    """Announce 30 s, enforce 60 s (2.4.5)."""
    timers = opened()
    assert timers.next_deadline() == 160.0
    assert timers.due(159.9) is Due.NOTHING
    assert timers.due(160.0) is Due.IDLE
    timers.last_received = 130.0
    assert timers.next_deadline() == 190.0


def test_the_peers_is_served_at_half_of_it() -> None:
    """A peer that wants a frame each 10 s gets one each 5 s."""
    timers = opened(0)
    assert timers.next_deadline() is None
    timers.remote_idle_time_out(10_000)
    assert timers.next_deadline() == 105.0
    assert timers.due(105.0) is Due.HEARTBEAT


def test_while_closing_only_the_close_counts() -> None:
    """After our close nothing else is due, and after the end nothing at all."""
    timers = opened()
    timers.remote_idle_time_out(1_000)
    timers.close_at = 120.0
    assert timers.due(119.0) is Due.NOTHING
    assert timers.next_deadline() == 120.0
    assert timers.due(120.0) is Due.CLOSE
    timers.stop()
    assert timers.next_deadline() is None
    assert timers.due(1e9) is Due.NOTHING
