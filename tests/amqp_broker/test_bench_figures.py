"""What the load tool counts: latencies, losses, duplicates, order, and what it says about them."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.bench.command_line import run
from amqp_broker.bench.histogram import Histogram
from amqp_broker.bench.ledger import Ledger
from amqp_broker.bench.report import as_text, combine, is_clean
from amqp_broker.bench.settings import BenchSettings, parse_url


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=200))
def test_percentiles_are_within_two_percent(values: list[int]) -> None:
    """The median of the buckets is the median of the values, 1.6 % below it at most."""
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    exact = sorted(values)[(len(values) + 1) // 2 - 1] / 1_000
    assert exact * 0.98 <= histogram.percentile(50) <= exact
    assert histogram.summary()["max"] == max(values) / 1_000


def test_histograms_of_several_processes_add_up() -> None:
    """Counts travel as JSON, where keys are text."""
    one, other = Histogram(), Histogram()
    one.add(1_000, 3)
    other.add(9_000)
    merged = Histogram.merged(json.loads(json.dumps(each.result())) for each in (one, other, one))
    assert sum(merged.counts.values()) == 7
    assert merged.percentile(50) == pytest.approx(1.0, rel=0.02)
    assert merged.summary()["max"] == 9.0


def test_a_ledger_tells_losses_duplicates_and_disorder_apart() -> None:
    """Each number counts once; a late one is out of order; what belongs to no number is foreign."""
    ledger = Ledger(b"\1" * 10)
    assert ledger.add_run(0, 4)
    for number in (5, 4, 4, 99, -1):
        ledger.add(number, 1)
    assert (ledger.received, ledger.lost, ledger.duplicates) == (6, 4, 1)
    assert (ledger.out_of_order, ledger.foreign, ledger.forbidden) == (1, 2, 0)


def test_what_must_not_be_there_is_told_apart_from_losses_and_duplicates() -> None:
    """Numbers 0, 1 and 4 were committed; 2 and 3 were rolled back, and nobody knows 9."""
    ledger = Ledger(b"\1\1\0\0\1")
    for number in (1, 1, 2, 9):
        ledger.add(number, 0)
    assert (ledger.received, ledger.lost, ledger.duplicates) == (1, 2, 1)
    assert (ledger.forbidden, ledger.foreign) == (1, 1)
    assert not ledger.add_run(1, 2)
    assert ledger.add_run(4, 1)
    assert ledger.lost == 1


def test_a_run_that_repeats_or_goes_back_is_counted_one_by_one() -> None:
    """The short cut is only for new numbers behind the highest."""
    ledger = Ledger(b"\1" * 10)
    assert ledger.add_run(2, 3)
    assert not ledger.add_run(4, 2)
    assert not ledger.add_run(0, 2)
    assert not ledger.add_run(8, 3)
    assert ledger.received == 3


@given(st.integers(0, 2**32), st.booleans())
def test_run_and_single_counting_agree(seed: int, all_wanted: bool) -> None:
    """Whatever arrives, both ways count the same; the short cut is only for numbers that are all wanted."""
    chance = random.Random(seed)
    wanted = bytes(all_wanted or chance.randrange(4) > 0 for _ in range(40))
    fast, slow = Ledger(wanted), Ledger(wanted)
    for _ in range(12):
        first, count = chance.randrange(40), chance.randrange(1, 6)
        if not fast.add_run(first, count):
            for number in range(first, first + count):
                fast.add(number, 1)
        for number in range(first, first + count):
            slow.add(number, 1)
    for name in ("received", "lost", "duplicates", "out_of_order", "foreign", "forbidden", "highest"):
        assert getattr(fast, name) == getattr(slow, name), name


def results(**changes: Any) -> dict[str, dict[str, Any]]:
    """What the two processes of a clean run of ten messages tell."""
    times = {"first_at": 1.0, "last_at": 2.0, "stalled": False}
    receiver = {
        "received": 10, "lost": 0, "duplicates": 0, "foreign": 0, "out_of_order": 0, "overruns": 0,
        "latencies": {"5": 10}, "largest": 5, "cpu_s": 0.2, **times,
    }  # fmt: skip
    sender = {"sent": 10, "repeated": 0, "outcomes": {"accepted": 10, "rejected": 0}, "cpu_s": 0.1, **times}
    return {"receiver-0": {**receiver, **changes}, "sender-0": sender}


SETTINGS = BenchSettings(host="localhost", port=1, count=10)


def test_a_clean_run_is_clean() -> None:
    """Ten messages in a second, all accepted, nothing wrong, and the tool mostly waiting."""
    report = combine(SETTINGS, results())
    assert is_clean(SETTINGS, report)
    assert report["messages_per_second"] == 10
    assert report["bottleneck"] == []


@pytest.mark.parametrize("wrong", [{"lost": 1}, {"duplicates": 1}, {"out_of_order": 1}, {"stalled": True}])
def test_a_run_with_anything_wrong_is_not(wrong: dict[str, Any]) -> None:
    """One lost, doubled or late message makes the exit status 1, and so does giving up."""
    assert not is_clean(SETTINGS, combine(SETTINGS, results(**wrong)))


def test_the_tool_says_when_it_is_the_bottleneck() -> None:
    """More than nine tenths of a core over the whole run."""
    report = combine(SETTINGS, results(cpu_s=0.95))
    assert report["bottleneck"] == ["receiver-0"]
    assert "THE TOOL WAS THE BOTTLENECK (receiver-0)" in as_text(report)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["http://localhost"], "expected a URL amqp://HOST:PORT"),
        (["amqp://"], "expected a URL amqp://HOST:PORT"),
        (["amqps://localhost"], "expected a URL like amqp://127.0.0.1:5672"),
        (["amqp://localhost", "--count", "0"], "--count must be at least 1, got 0"),
        (["amqp://localhost", "--body", "3"], "--body must be at least 24 bytes"),
    ],
)
def test_a_wrong_command_says_what_is_wrong(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status 2 and a sentence, before anything is connected."""
    assert run(arguments) == 2
    assert said in capsys.readouterr().err


def test_a_url_names_user_and_address() -> None:
    """Percent signs are decoded; the port has its default."""
    login = {"user": "me", "password": "a/b"}
    said = {"host": "::1", "port": 5672, "address": "orders.new"}
    assert parse_url("amqp://me:a%2Fb@[::1]/orders.new") == said | login
