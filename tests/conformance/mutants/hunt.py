"""Runs scenarios against a mutant, and tells who found it and who blamed something else."""

from __future__ import annotations

import random
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path

import attrs

from amqp_broker.conformance.broker import Settings
from amqp_broker.conformance.gaps import load_gaps
from amqp_broker.conformance.outcomes import Verdict
from amqp_broker.conformance.requirements import load_requirements
from amqp_broker.conformance.runner import Result, run_scenario
from amqp_broker.conformance.scenario import DECLARED, Scenario, load_scenarios
from tests.conformance.mutants.between import Mutant, mutated

ROOT = Path(__file__).resolve().parents[3]
GAPS = load_gaps(ROOT / "conformance" / "admitted_gaps.toml")
"""What fails on our broker without a fault, too."""

STEP_S = 2.0
"""How long a scenario waits for a frame of a mutant: of one that keeps silent, too."""


@attrs.frozen
class Hunt:
    """What became of one mutant."""

    mutant: Mutant
    found: tuple[Result, ...]
    """Scenarios that name a rule of it, and failed."""
    blamed: tuple[Result, ...]
    """Scenarios of other sections that failed, and did not say that it stood in their way
    (`Mutant.tells`).
    """


def scenarios() -> list[Scenario]:
    """Those of the standard that are quick enough to be run against each mutant."""
    return [
        one for one in load_scenarios() if one.profile in DECLARED and not one.alone and one.id not in GAPS
    ]


def finders(mutant: Mutant) -> list[Scenario]:
    """The scenarios that name a row of it."""
    return [one for one in scenarios() if set(one.rows) & set(mutant.rows.split())]


def is_related(mutant: Mutant, one: Scenario) -> bool:
    """Whether a scenario may fail for it: of a section of its rows, by its id or by a row, or of `also`."""
    rows = load_requirements()
    sections = {rows[row].section for row in mutant.rows.split()}
    touched = {one.section, *(rows[row].section for row in one.rows)}
    if touched & sections:
        return True
    return any(
        section == also or section.startswith(also + ".")
        for also in mutant.also.split()
        for section in touched
    )


def hunt(mutant: Mutant, settings: Settings, chosen: Iterable[Scenario], jobs: int = 8) -> Hunt:
    """Runs the chosen scenarios against the mutant of the broker of the settings."""
    address = settings.address
    with mutated(mutant, address.host, address.port) as port:
        through = attrs.evolve(
            settings, address=attrs.evolve(address, port=port), run_id=f"m-{mutant.name}", timeout_s=STEP_S
        )
        with ThreadPoolExecutor(jobs) as pool:
            results = list(pool.map(lambda one: run_scenario(one, through), chosen))
        again = attrs.evolve(through, run_id=f"{through.run_id}-again")
        results = [run_scenario(one.scenario, again) if _is_doubtful(mutant, one) else one for one in results]
    failed = [result for result in results if result.verdict is Verdict.FAILED]
    names_it = set(mutant.rows.split())
    return Hunt(
        mutant,
        tuple(result for result in failed if set(result.scenario.rows) & names_it),
        tuple(
            result
            for result in failed
            if not is_related(mutant, result.scenario) and result.message != mutant.tells
        ),
    )


def _is_doubtful(mutant: Mutant, result: Result) -> bool:
    """Whether a busy machine may have been the fault, and not the mutant."""
    return result.late and result.verdict is Verdict.FAILED and not is_related(mutant, result.scenario)


def sample(mutant: Mutant, count: int) -> list[Scenario]:
    """Some scenarios that have nothing to do with it, always the same."""
    others = [one for one in scenarios() if not is_related(mutant, one) and not one.waits]
    return random.Random(mutant.name).sample(others, min(count, len(others)))


def chosen(mutants: Iterable[Mutant], patterns: list[str]) -> list[Mutant]:
    """The mutants with these names; none: all."""
    return [one for one in mutants if not patterns or any(fnmatchcase(one.name, each) for each in patterns)]
