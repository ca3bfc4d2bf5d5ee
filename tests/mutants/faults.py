"""The seeded faults: what is changed where, and the suite that has to fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Mutant:
    """In `file` the text `old`, which is there once, becomes `new`; then `suite` (for pytest) fails."""

    name: str
    file: str
    old: str
    new: str
    suite: tuple[str, ...]


MUTANTS: Final[tuple[Mutant, ...]] = ()
