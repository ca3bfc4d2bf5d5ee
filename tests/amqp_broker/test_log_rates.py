"""A flood of one kind of event by one peer is some lines, and one line with a count."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from amqp_broker import log_setup
from amqp_broker.configuration import BrokerConfig, BrokerLimits
from amqp_broker.log_rates import KINDS_MAX, WINDOW_S, LineRates, Suppressed
from amqp_broker.log_setup import configure_logging, logger, tell_suppressed


class Clock:
    """A monotonic clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """What counts the lines is on this clock."""
    clock = Clock()
    monkeypatch.setattr(log_setup, "LineRates", lambda lines: LineRates(lines, clock))
    return clock


def configured(lines: int = 3) -> io.StringIO:
    """Where the lines go."""
    stream = io.StringIO()
    configure_logging(BrokerConfig(limits=BrokerLimits(log_lines_per_minute=lines)), stream)
    return stream


def lines_of(stream: io.StringIO) -> list[dict[str, Any]]:
    """What was written, without what is in every line."""
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [{key: line[key] for key in line if key not in ("timestamp", "room")} for line in lines]


def test_a_flood_is_some_lines_and_one_with_a_count(clock: Clock) -> None:
    """10,000 failed logins, each from another port: the first three, and after the minute the number of the
    rest.
    """
    stream = configured()
    for number in range(10_000):
        logger("t").bind(peer=f"192.0.2.1:{number}").warning("login.failed", name="ada")
    assert [line["peer"] for line in lines_of(stream)] == ["192.0.2.1:0", "192.0.2.1:1", "192.0.2.1:2"]
    clock.now = WINDOW_S
    logger("t").info("something.else")
    assert lines_of(stream)[3:] == [
        {
            "level": "warning",
            "event": "login.failed",
            "peer": "192.0.2.1",
            "suppressed": 9_997,
            "window_s": 60.0,
        },
        {"level": "info", "event": "something.else"},
    ]
    logger("t").bind(peer="192.0.2.1:7").warning("login.failed", name="ada")
    assert lines_of(stream)[-1]["name"] == "ada"


def test_other_kinds_and_other_peers_are_not_silenced(clock: Clock) -> None:
    """Each pair has its own number; events without a peer are one peer's; levels that are off cost
    nothing.
    """
    stream = configured(lines=1)
    for peer in ("192.0.2.1:1", "192.0.2.1:2", "192.0.2.2:1", "2001:db8::1:5", "2001:db8::2:6", "memory"):
        for kind in ("link.refused", "connection.closed"):
            logger("t").bind(peer=peer).info(kind)
    logger("t").error("message.quarantined", offset=1)
    logger("t").error("message.quarantined", offset=2)
    logger("t").debug("link.attached")
    told = [(line["event"], line.get("peer")) for line in lines_of(stream)]
    assert told == [
        (kind, peer)
        for peer in ("192.0.2.1:1", "192.0.2.2:1", "2001:db8::1:5", "memory")
        for kind in ("link.refused", "connection.closed")
    ] + [("message.quarantined", None)]
    clock.now = WINDOW_S
    logger("t").info("x")
    counts = {(line["event"], line["peer"]): line["suppressed"] for line in lines_of(stream)[9:-1]}
    assert counts == {
        ("link.refused", "192.0.2.1"): 1,
        ("connection.closed", "192.0.2.1"): 1,
        ("link.refused", "2001:db8::1"): 1,
        ("connection.closed", "2001:db8::1"): 1,
        ("message.quarantined", ""): 1,
    }


def test_a_flood_of_faults_has_its_trace_once_each(clock: Clock) -> None:
    """Tracebacks count as other lines do."""
    stream = configured(lines=2)
    for _ in range(100):
        try:
            raise ValueError("x")
        except ValueError:
            logger("t").bind(peer="192.0.2.1:1").exception("connection.internal_error")
    assert stream.getvalue().count("Traceback") == 2


def test_what_is_not_told_is_told_at_the_end(clock: Clock) -> None:
    """A broker that stops within the minute."""
    stream = configured(lines=1)
    for _ in range(5):
        logger("t").info("a.b")
    tell_suppressed()
    tell_suppressed()
    assert [line.get("suppressed") for line in lines_of(stream)] == [None, 4]


def test_many_peers_fill_no_memory() -> None:
    """The oldest is told and forgotten."""
    clock = Clock()
    rates = LineRates(1, clock)
    told: list[Suppressed] = []
    for number in range(3 * KINDS_MAX):
        for _ in range(2):
            told += rates.over()
            rates.admit("info", "a.b", f"198.51.{number // 256}.{number % 256}:1")
        assert len(rates._windows) <= KINDS_MAX
    told += rates.over(everything=True)
    assert len(told) == 3 * KINDS_MAX
    assert {each.count for each in told} == {1}
