"""`python -m tests.mutants`: apply each seeded fault to a copy of the checkout, and see its suite fail.

With words only the mutants of these names or promises. `--each` judges every test and scenario that is named
by itself; `--table` shows which promise of transactions each fault breaks, and what notices.

First every suite has to pass on an unchanged copy. A mutant whose text is no longer found exactly once is
stale, and a suite that cannot be collected proves nothing: both are errors of the list, told apart from
mutants that survive.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.mutants.faults import MUTANTS
from tests.mutants.mutant import Mutant, is_scenario
from tests.mutants.promises import PROMISES

CHECKOUT: Final = Path(__file__).resolve().parents[2]
SUITE_SECONDS: Final = 600
CAUGHT: Final = "caught"
_NOT_COPIED: Final = shutil.ignore_patterns(
    ".git",
    "__pycache__",
    ".*_cache",
    ".hypothesis",
    "*.so",
    "*.egg-info",
    "build",
    "dist",
    "node_modules",
    "target",
)
PYTEST: Final = (
    "-m", "pytest", "-n", "0", "-xq", "--no-header", "-p", "no:cacheprovider", "--timeout=300",
    "--hypothesis-profile=thorough",
)  # fmt: skip


class BadMutant(Exception):
    """The list of mutants is wrong: stale text, or a suite that does not run."""


def apply(mutant: Mutant, checkout: Path) -> None:
    """Change the one place in `checkout`; raises BadMutant when it is not there exactly once."""
    path = checkout / mutant.file
    if not path.exists():
        raise BadMutant(f"{mutant.name}: there is no {mutant.file}")
    text = path.read_text()
    if text.count(mutant.old) != 1:
        raise BadMutant(
            f"{mutant.name} is stale: {mutant.old!r} is {text.count(mutant.old)} times in {mutant.file}"
        )
    path.write_text(text.replace(mutant.old, mutant.new))


def run_suite(suite: Sequence[str], checkout: Path) -> tuple[int, str]:
    """The exit status of pytest on `suite` in `checkout`, and its closing lines. A hang is a failure."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {
        "PYTHONPATH": str(checkout),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": "",
    }
    try:
        done = subprocess.run(
            [sys.executable, *PYTEST, *suite],
            cwd=checkout,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SUITE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, f"hung for {SUITE_SECONDS} s"
    return done.returncode, "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])


def judge(mutant: Mutant, checkout: Path) -> str:
    """CAUGHT, or how the mutant got away; the copy is as it was afterwards. Raises BadMutant."""
    original = (checkout / mutant.file).read_text() if (checkout / mutant.file).exists() else ""
    apply(mutant, checkout)
    try:
        status, tail = run_suite(mutant.suite, checkout)
    finally:
        (checkout / mutant.file).write_text(original)
    if status == 1:
        return CAUGHT
    if status == 0:
        return f"SURVIVED: {' '.join(mutant.suite)} passes"
    raise BadMutant(f"{mutant.name}: pytest ended with {status}, so it proves nothing:\n{tail}")


def copy_checkout(place: Path) -> Path:
    """A copy of the checkout, and the certainty that Python runs its code and not the original."""
    shutil.copytree(CHECKOUT, place, symlinks=True, ignore=_NOT_COPIED)
    program = "import amqp_broker.persistence as room; print(room.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=place, capture_output=True, text=True, check=True
    )
    if not Path(found.stdout.strip()).is_relative_to(place):
        raise BadMutant(f"the copy runs the code of {found.stdout.strip()}")
    return place


def check_unchanged(suites: set[tuple[str, ...]], checkout: Path) -> list[str]:
    """Suites that fail without any mutant: they would seem to catch everything. All scenarios are one run."""
    parts = {part for suite in suites for part in suite if is_scenario(part)}
    rest = {tuple([part for part in suite if not is_scenario(part)]) for suite in suites}
    failing = []
    for suite in sorted({tuple(sorted(parts)), *rest} - {()}):
        status, tail = run_suite(suite, checkout)
        if status != 0:
            failing.append(f"{' '.join(suite)} fails without a mutant:\n{tail}")
    return failing


def run_mutants(mutants: Sequence[Mutant], processes: int) -> list[str]:
    """All complaints; a line for each mutant goes to standard output."""
    complaints: list[str] = []
    with TemporaryDirectory(prefix="mutants-") as temporary:
        copies = [copy_checkout(Path(temporary).resolve() / f"copy{number}") for number in range(processes)]
        complaints += check_unchanged({mutant.suite for mutant in mutants}, copies[0])
        if complaints:
            return complaints
        free = list(copies)

        def one(mutant: Mutant) -> str:
            copy = free.pop()
            started = time.monotonic()
            try:
                verdict = judge(mutant, copy)
            except BadMutant as error:
                verdict = f"BAD: {error}"
            finally:
                free.append(copy)
            print(f"{mutant.name}: {verdict} ({time.monotonic() - started:.0f} s)", flush=True)
            return "" if verdict == CAUGHT else f"{mutant.name}: {verdict}"

        with ThreadPoolExecutor(processes) as pool:
            complaints += [complaint for complaint in pool.map(one, mutants) if complaint]
    return complaints


def split(mutants: Sequence[Mutant]) -> list[Mutant]:
    """A mutant for each part of each suite: every test and scenario that is named has to notice by itself."""
    return [
        replace(mutant, name=f"{mutant.name} ({shown(part)})", suite=(part,))
        for mutant in mutants
        for part in mutant.suite
    ]


def shown(part: str) -> str:
    """A part of a suite as one reads it: the id of a scenario, the name of a test, else the file."""
    return part.rpartition("::")[2].removeprefix("test_scenario[").removesuffix("]")


def meant(mutant: Mutant, word: str) -> bool:
    """Whether a word of the command line means it: the name of a promise, or a part of its own name."""
    return mutant.rule == word if word in PROMISES else word in mutant.name


def table(mutants: Sequence[Mutant]) -> str:
    """Which fault breaks which promise of transactions, and what notices, as Markdown."""
    lines = ["| promise | seeded fault | noticed by |", "|---|---|---|"]
    for rule, promise in PROMISES.items():
        for mutant in [mutant for mutant in mutants if mutant.rule == rule]:
            noticed = ", ".join([f"`{shown(part)}`" for part in mutant.suite])
            lines.append(f"| {rule}: {promise} | {mutant.name} | {noticed} |")
    return "\n".join(lines)


def main() -> int:
    """The command; its exit status is 1 when a mutant survived or the list is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument(
        "names", nargs="*", help="only mutants of these promises, or with such a word in their names"
    )
    parser.add_argument("--each", action="store_true", help="each part of a suite has to fail by itself")
    parser.add_argument("--table", action="store_true", help="show what breaks which promise; run nothing")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    names = options.names
    chosen = [mutant for mutant in MUTANTS if not names or any(meant(mutant, word) for word in names)]
    if options.table:
        print(table(chosen))
        return 0
    if options.each:
        chosen = split(chosen)
    complaints = run_mutants(chosen, options.processes)
    print(f"{len(chosen)} mutants, {len(chosen) - len(complaints)} caught" if chosen else "no such mutant")
    for complaint in complaints:
        print(complaint)
    return 1 if complaints or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
