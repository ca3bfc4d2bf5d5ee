"""`python -m tests.power_loss --states 1000000 --seed 1 --processes 2`: many simulated power cuts; 0
violations wanted.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Final

from tests.power_loss.recording import build_library, scratch_directory
from tests.power_loss.simulation import Report, Setting, simulate

STATES_PER_RUN: Final = 6_000
MAX_VIOLATIONS: Final = 20


def _run(library: str, seed: int, states: int, setting: Setting) -> Report:
    with scratch_directory("power-loss-") as scratch:
        return simulate(Path(library), Path(scratch), seed, states, setting)


def run_many(states: int, seed: int, processes: int, setting: Setting, *, show: bool = True) -> Report:
    """Runs with the seeds `seed`, `seed` + 1, ... until `states` were checked or violations pile up."""
    total = Report()
    started = time.monotonic()
    with scratch_directory("recorder-") as place, ProcessPoolExecutor(processes) as pool:
        library = str(build_library(Path(place)))
        waiting: set[Future[Report]] = set()
        next_seed, asked = seed, 0
        while total.states < states and len(total.violations) < MAX_VIOLATIONS:
            while len(waiting) < processes and (asked < states or not waiting):
                part = min(STATES_PER_RUN, max(states - asked, STATES_PER_RUN // 4))
                waiting.add(pool.submit(_run, library, next_seed, part, setting))
                next_seed, asked = next_seed + 1, asked + part
            finished, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in finished:
                total.add(future.result())
            if show:
                seconds = time.monotonic() - started
                print(
                    f"{total.states:,} of {states:,} states, {len(total.violations)} violations, "
                    f"{total.states / seconds:,.0f} states/s",
                    file=sys.stderr,
                )
        for future in waiting:
            total.add(future.result())
    total.seconds = time.monotonic() - started
    return total


def main() -> int:
    """The command; its exit status is 1 when a violation was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.power_loss", description=__doc__)
    parser.add_argument("--states", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--synchronous", default="FULL", help="NORMAL shows that the proof can fail")
    parser.add_argument(
        "--acknowledge-first", action="store_true", help="a mistake that the proof has to find"
    )
    options = parser.parse_args()
    print(f"seed {options.seed}")
    setting = Setting(options.synchronous, options.acknowledge_first)
    total = run_many(options.states, options.seed, options.processes, setting)
    for violation in total.violations[:MAX_VIOLATIONS]:
        print(violation)
    print(
        f"{total.states:,} states at {total.calls:,} calls in {total.seconds:.0f} s "
        f"({total.states / total.seconds:,.0f}/s): {len(total.violations)} violations, seed {options.seed}"
    )
    return 1 if total.violations or not total.states else 0


if __name__ == "__main__":
    sys.exit(main())
