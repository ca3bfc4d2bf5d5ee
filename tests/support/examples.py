"""How many examples a property is tried with, and how many random histories something lives through: a share
of them in the everyday run, all in the long ones.
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis import settings

ALL: Final = 100
"""What `max_examples` of a profile is where nothing is left out."""
FEWEST: Final = 10
FEWEST_SEEDS: Final = 3
"""One history is many steps, each of which is an example."""


def examples(count: int, **others: Any) -> settings:
    """Settings with `count` examples, or with the share of them that the profile says: its `max_examples`, in
    percent. The profiles are in tests/conftest.py: `house` tries a quarter; `thorough` and `searching`, all.
    """
    return settings(max_examples=max(min(count, FEWEST), count * settings().max_examples // ALL), **others)


def seeds(count: int) -> range:
    """Those of `count` random histories, or of the share of them that the profile says: the first ones."""
    return range(max(min(count, FEWEST_SEEDS), count * settings().max_examples // ALL))
