"""The share of its examples that a property is tried with."""

from __future__ import annotations

import pytest
from hypothesis import settings

from tests.support.examples import ALL, FEWEST, examples


@pytest.mark.parametrize(
    ("profile", "wanted", "tried"),
    [
        ("house", 1_000, 250),
        ("house", 20, FEWEST),
        ("house", 3, 3),
        ("thorough", 1_000, 1_000),
        ("searching", 30, 30),
    ],
)
def test_everyday_a_quarter_and_else_all(profile: str, wanted: int, tried: int) -> None:
    """At least ten, where there are as many; the rest of the profile holds."""
    before = settings.get_current_profile_name()
    settings.load_profile(profile)
    try:
        found = examples(wanted)
    finally:
        settings.load_profile(before)
    assert found.max_examples == tried and found.deadline is None
    thorough = settings.get_profile("thorough")
    assert thorough.max_examples == ALL and thorough.derandomize
