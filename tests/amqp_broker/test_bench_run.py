"""The load tool against a running broker: every mode ends with every message once and in order."""

from __future__ import annotations

import json
import socket

import pytest

from amqp_broker import RunningBroker
from amqp_broker.bench.command_line import run


@pytest.mark.parametrize(
    "options",
    [
        ["--settled"],
        ["--durable"],
        ["--durable", "--settle-each", "--pairs", "2"],
        ["--credit", "1", "--in-flight", "1", "--count", "50"],
        ["--body", "200000", "--count", "40"],
        ["--rtt", "--count", "50", "--durable"],
        ["--rtt", "--count", "50", "--settled"],
        ["--no-sasl"],
    ],
    ids=" ".join,
)
def test_every_message_comes_once_and_in_order(
    options: list[str], amqp_broker: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status is 0, and the report says so in JSON."""
    status = run([amqp_broker.url, "--json", "--count", "3000", "--timeout", "20", *options])
    captured = capsys.readouterr()
    assert status == 0, captured
    report = json.loads(captured.out)
    assert report["lost"] == report["duplicates"] == report["out_of_order"] == report["foreign"] == 0
    assert report["received"] == report["sent"] > 0
    assert report["latency_us"]["max"] >= report["latency_us"]["p50"] > 0


def test_the_report_is_readable_and_progress_is_shown(
    amqp_broker: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rates, percentiles and counts in words; progress goes to standard error."""
    assert run([f"{amqp_broker.url}/named", "--count", "2000", "--progress"]) == 0
    captured = capsys.readouterr()
    assert "messages/s received" in captured.out
    assert "2,000 received: 0 lost, 0 duplicates, 0 out of order" in captured.out
    assert "of 2,000" in captured.err


def test_a_refused_address_is_reported(
    amqp_broker: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the broker says about the attach reaches the user."""
    assert run([amqp_broker.url, "--address", "no such thing \x07", "--count", "10"]) == 1
    assert "the broker refuses" in capsys.readouterr().err


def test_a_broker_that_is_not_there_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """A refused connection is a sentence and exit status 1, not a traceback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert run([f"amqp://127.0.0.1:{port}", "--count", "10"]) == 1
    assert "refused" in capsys.readouterr().err
