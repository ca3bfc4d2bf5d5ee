"""How long the tests of a user take: `python -m tests.benchmarks.new_user_suites [proton] [asyncio] [node]`.

Three suites of a hundred tests each, written from `docs/` alone, run as their user would run them: in a
folder of their own, by pytest with two workers of pytest-xdist. For each it says

the tests that passed, the seconds from the start of pytest to its end, the ends of all brokers included
the seconds of processor time, those of pytest's workers and of Node included

`--goal` makes it a failure to take longer than the goal, which is meant for two cores that do nothing else;
`--part 10` runs each tenth test. `proton` needs `pip install -e '.[interop]'`, `node` what
`conformance/clients/run.py --build-only --only rhea` loads.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

HERE: Final = Path(__file__).parent
RHEA: Final = HERE.parents[2] / "conformance" / "clients" / "rhea" / "node_modules"
GOAL_S: Final = 10.0
TESTS: Final = 100
HANGS_S: Final = 600
INI: Final = "[pytest]\nfilterwarnings = error\n"
OTHERS: Final = ("-p", "no:hypothesispytest", "-p", "no:timeout")
"""Plugins that are here for our own tests; each costs every process of pytest a moment."""

PART: Final = "def pytest_collection_modifyitems(items):\n    items[:] = items[::{part}]\n"


@attrs.frozen
class Taken:
    """What one suite took, and what pytest said."""

    name: str
    passed: int
    wall_s: float
    processor_s: float
    status: int
    said: str

    def wrong(self, part: int, goal: bool) -> str:
        """What is not as it should be, or nothing."""
        if self.status:
            return f"pytest ended with status {self.status}:\n{self.said}"
        if self.passed < TESTS // part:
            return f"expected at least {TESTS // part} tests, {self.passed} passed"
        if goal and self.wall_s > GOAL_S:
            return f"expected at most {GOAL_S:g} s, it took {self.wall_s:.1f} s"
        return ""


def missing(name: str) -> str:
    """What the suite needs and is not there, with the way to get it; or nothing."""
    if name == "proton" and importlib.util.find_spec("proton") is None:
        return "python-qpid-proton is missing: pip install -e '.[interop]'"
    if name == "node" and not RHEA.is_dir():
        return "rhea is missing: python conformance/clients/run.py --build-only --only rhea"
    return ""


def processor_s() -> float:
    """Of all processes that have ended and that somebody of ours has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(name: str, part: int = 1, suites: Path = HERE) -> Taken:
    """Run one; `part` 10 is each tenth test."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(suites / f"{name}_suite", Path(folder, f"{name}_suite"))
        Path(folder, "pytest.ini").write_text(INI)
        if part > 1:
            Path(folder, "conftest.py").write_text(PART.format(part=part))
        unwanted = {"PYTEST_ADDOPTS", "PYTEST_DISABLE_PLUGIN_AUTOLOAD", "PYTEST_XDIST_WORKER"}
        environment = {key: value for key, value in os.environ.items() if key not in unwanted}
        began, used = time.perf_counter(), processor_s()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-n", "2", *OTHERS],
            env={**environment, "NODE_PATH": str(RHEA)},
            cwd=folder, text=True, capture_output=True, timeout=HANGS_S, check=False,
        )  # fmt: skip
        wall_s, used = time.perf_counter() - began, processor_s() - used
    passed = re.search(r"(\d+) passed", done.stdout)
    said = done.stdout + done.stderr
    return Taken(name, int(passed[1]) if passed else 0, wall_s, used, done.returncode, said)


def suite_names(suites: Path = HERE) -> list[str]:
    """Those that there are."""
    return sorted(path.name.removesuffix("_suite") for path in suites.glob("*_suite"))


def main(arguments: Sequence[str]) -> int:
    """Those that are named, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("only", nargs="*", help=f"some of {', '.join(suite_names())}")
    parser.add_argument("--part", type=int, default=1, metavar="N", help="each N-th test only")
    parser.add_argument("--goal", action="store_true", help=f"who takes more than {GOAL_S:g} s has failed")
    options = parser.parse_args(arguments)
    if not {*options.only} <= {*suite_names()} or options.part < 1:
        parser.error(f"expected some of {', '.join(suite_names())}, and a part from 1 on")
    complaints = []
    print(f"{'suite':<8} {'tests':>5} {'wall s':>7} {'processor s':>11} {'goal s':>7}", flush=True)
    for name in options.only or suite_names():
        if lack := missing(name):
            complaints.append(f"{name}: {lack}")
            continue
        taken = run(name, options.part)
        figures = f"{taken.passed:>5} {taken.wall_s:>7.1f} {taken.processor_s:>11.1f} {GOAL_S:>7.1f}"
        print(f"{name:<8} {figures}", flush=True)
        if wrong := taken.wrong(options.part, options.goal):
            complaints.append(f"{name}: {wrong}")
    print("\n".join(complaints), end="\n" if complaints else "")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
