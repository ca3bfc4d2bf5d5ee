"""What a seeded fault is, and how its suite is named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Mutant:
    """In `file` the text `old`, which is there once, becomes `new`; then `suite` (for pytest) fails.

    `rule` is the promise that the fault breaks, by its name in `promises.py`; "" is no rule of transactions.
    """

    name: str
    file: str
    old: str
    new: str
    suite: tuple[str, ...]
    rule: str = ""


SCENARIO: Final = "tests/mutants/scenario_suite.py::test_scenario["


def scenarios(*ids: str) -> tuple[str, ...]:
    """The suite that consists of these conformance scenarios, against our broker."""
    return tuple([f"{SCENARIO}{id}]" for id in ids])


def is_scenario(part: str) -> bool:
    """Whether a part of a suite is one conformance scenario."""
    return part.startswith(SCENARIO)
