"""What a verdict calls flat."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.soak.page import page
from tests.soak.verdict import FEWEST, MIB, RULES, Finding, judge, slope

TIMES = [float(second) for second in range(0, 2_400, 12)]


def judged(figure: str, value: Callable[[float], float], beside_others: bool = False) -> Finding:
    """The finding about one figure; the others stand still."""
    figures: dict[str, list[float | None]] = {rule.figure: [100.0] * len(TIMES) for rule in RULES}
    figures[figure] = [value(time) for time in TIMES]
    findings = judge(TIMES, figures, beside_others)
    others = [finding for finding in findings if finding.rule.figure != figure]
    assert all(finding.flat and finding.growth == 0 for finding in others) and len(others) == len(RULES) - 1
    return next(finding for finding in findings if finding.rule.figure == figure)


def test_the_slope_is_that_of_most_pairs() -> None:
    """A tenth of the samples that stand out does not move it."""
    dice = random.Random(1)
    values = [5 * time + dice.uniform(-10, 10) for time in TIMES]
    for at in range(0, len(values), 10):
        values[at] += 1e6
    assert slope(TIMES, values) == pytest.approx(5, rel=0.02)


def test_a_leak_of_a_kilobyte_each_act_is_found_and_noise_is_not() -> None:
    """Eight acts a second, 40 minutes: 1 KiB each is 9 MiB in the second half of the run."""
    dice = random.Random(2)

    def noise(_: float) -> float:
        return 80 * MIB + dice.uniform(-1, 1) * 5 * MIB

    assert judged("memory", noise).flat
    found = judged("memory", lambda time: noise(time) + 8 * 1_024 * time)
    assert not found.flat and found.growth == pytest.approx(8 * 1_024 * 1_200, rel=0.3)


def test_what_is_warmed_up_in_the_first_half_is_no_growth() -> None:
    """Caches fill, and stay."""
    assert judged("memory", lambda time: 60 * MIB + min(time, 1_100) * 40_000).flat


def test_a_store_that_goes_up_and_down_is_flat() -> None:
    """A log that is emptied now and then."""
    assert judged("store", lambda time: 30 * MIB + (time % 300) * 20_000).flat
    assert not judged("store", lambda time: 30 * MIB + time * 50_000).flat


def test_latency_is_judged_loosely_beside_others() -> None:
    """Only latency."""

    def slower(time: float) -> float:
        return 10 + time / 20

    assert not judged("latency p50", slower).flat and judged("latency p50", slower, True).flat
    assert not judged("links", slower, True).flat


def test_links_that_are_never_forgotten_are_found() -> None:
    """One in a minute is enough, where there are thirty."""
    assert not judged("links", lambda time: 30 + time / 60).flat
    assert not judged("descriptors", lambda time: 25 + time // 60).flat


def test_too_few_samples_are_no_verdict() -> None:
    """Nobody calls that flat."""
    figures: dict[str, list[float | None]] = {rule.figure: [1.0] * FEWEST for rule in RULES}
    with pytest.raises(ValueError, match="fewer than"):
        judge(TIMES[:FEWEST], figures)


def test_the_page_says_what_grew() -> None:
    """And what is wrong, and has a plot for each group of figures."""
    figures: dict[str, list[float | None]] = {rule.figure: [100.0] * len(TIMES) for rule in RULES}
    findings = judge(TIMES, figures)
    assert ">FLAT<" in page("told", TIMES, figures, findings, [])
    figures["links"] = [*TIMES]
    bad = page("<told>", TIMES, figures, judge(TIMES, figures), ["something & else"])
    assert ">FAIL<" in bad and "GROWS links" in bad
    assert "&lt;told&gt;" in bad and "something &amp; else" in bad
    assert bad.count("<svg") == 5
