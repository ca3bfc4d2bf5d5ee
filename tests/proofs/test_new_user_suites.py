"""The three suites of a new user: a tenth of the one that needs nothing else, and how a run is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.benchmarks.new_user_suites.__main__ import GOAL_S, TESTS, Taken, run, suite_names
from tests.tidy.sources import ROOT

GOOD = Taken("asyncio", passed=TESTS, wall_s=GOAL_S, processor_s=GOAL_S, status=0, said="")


def test_each_tenth_test_of_asyncio() -> None:
    """As the command runs them."""
    taken = run("asyncio", part=10)
    assert (taken.wrong(part=10, goal=False), taken.passed) == ("", TESTS // 10)
    assert taken.processor_s > 0


@pytest.mark.parametrize(
    ("change", "goal", "wrong"),
    [
        ({}, True, ""),
        ({"wall_s": GOAL_S + 1}, False, ""),
        ({"wall_s": GOAL_S + 1}, True, "expected at most 10 s, it took 11.0 s"),
        ({"passed": TESTS - 1}, False, "expected at least 100 tests, 99 passed"),
        ({"status": 1, "said": "1 failed"}, False, "pytest ended with status 1:\n1 failed"),
    ],
)
def test_what_is_wrong_with_a_run(change: dict[str, Any], goal: bool, wrong: str) -> None:
    """Too few tests and failures always, and its time where that is asked for."""
    assert attrs.evolve(GOOD, **change).wrong(part=1, goal=goal) == wrong


def test_a_test_that_fails_is_told(tmp_path: Path) -> None:
    """With what pytest says of it."""
    (tmp_path / "bad_suite").mkdir()
    (tmp_path / "bad_suite" / "test_it.py").write_text("def test_it():\n    assert 1 == 2\n")
    assert "assert 1 == 2" in run("bad", suites=tmp_path).wrong(part=1, goal=False)


def test_ci_runs_a_tenth_of_the_others() -> None:
    """Where their libraries are."""
    steps = (ROOT / ".ci" / "run").read_text()
    assert suite_names() == ["asyncio", "node", "proton"]
    for name, step in (("node", "clients"), ("proton", "interop")):
        body = steps.split(f"step_{step}()")[1].split("\n}\n")[0]
        assert f"tests.benchmarks.new_user_suites {name} --part 10" in body
