"""The share of its examples that a property is tried with, and of its histories."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import settings

from tests.support.examples import ALL, FEWEST, FEWEST_SEEDS, examples, seeds


@contextmanager
def profile_of(name: str) -> Iterator[None]:
    """As if pytest had been asked for it."""
    before = settings.get_current_profile_name()
    settings.load_profile(name)
    try:
        yield
    finally:
        settings.load_profile(before)


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
    with profile_of(profile):
        found = examples(wanted)
    assert found.max_examples == tried and found.deadline is None
    thorough = settings.get_profile("thorough")
    assert thorough.max_examples == ALL and thorough.derandomize


@pytest.mark.parametrize(
    ("profile", "wanted", "lived"),
    [("house", 400, 100), ("house", 6, FEWEST_SEEDS), ("house", 1, 1), ("thorough", 400, 400)],
)
def test_everyday_a_quarter_of_the_histories(profile: str, wanted: int, lived: int) -> None:
    """The same ones each time."""
    with profile_of(profile):
        assert seeds(wanted) == range(lived)
