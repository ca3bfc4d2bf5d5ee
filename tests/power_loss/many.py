"""Many simulated power cuts, run after run, on several processes."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Final

from tests.power_loss.recording import build_library, scratch_directory
from tests.power_loss.simulation import Report, Setting, SumsOfFrames, simulate

STATES_PER_RUN: Final = 6_000
MAX_VIOLATIONS: Final = 20


def _run(library: str, seed: int, states: int, setting: Setting, until: Sequence[str]) -> Report:
    with scratch_directory("power-loss-") as scratch:
        return simulate(Path(library), Path(scratch), seed, states, setting, until)


def run_many(
    states: int, seed: int, processes: int, setting: Setting, *, until: Sequence[str] = (), show: bool = True
) -> Report:
    """Runs with the seeds `seed`, `seed` + 1, ... until `states` were checked, or violations pile up, or each
    of the patterns `until` is found in one.
    """
    total = Report()
    started = time.monotonic()
    fresh = multiprocessing.get_context("spawn")  # a fork would take along whatever threads its parent has
    with (
        scratch_directory("recorder-") as place,
        ProcessPoolExecutor(processes, mp_context=fresh, initializer=SumsOfFrames().install) as pool,
    ):
        library = str(build_library(Path(place)))
        waiting: set[Future[Report]] = set()
        next_seed, asked = seed, 0
        while total.states < states and len(total.violations) < MAX_VIOLATIONS and not total.tells(until):
            while len(waiting) < processes and (asked < states or not waiting):
                part = min(STATES_PER_RUN, max(states - asked, STATES_PER_RUN // 4))
                waiting.add(pool.submit(_run, library, next_seed, part, setting, until))
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
