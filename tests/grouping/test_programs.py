"""Random programs under every grouping: what clients see and what the store holds is the same."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.grouping.programs import random_program
from tests.grouping.stores import MemoryStores, SqliteStores, Stores, quick_folder
from tests.grouping.verdicts import judge
from tests.support.examples import seeds

PROGRAMS = 500
"""Half of them on each kind of store. The profile says which share of them; `python -m tests.grouping` runs
more.
"""
PARTS = 20


@pytest.fixture(scope="module")
def kinds() -> Iterator[tuple[Stores, Stores]]:
    """Both kinds of stores."""
    folder = quick_folder()
    yield MemoryStores(), SqliteStores(folder)
    shutil.rmtree(folder)


@pytest.mark.parametrize("part", range(PARTS))
def test_random_programs(part: int, kinds: tuple[Stores, Stores]) -> None:
    """Programs one step at a time, in random groups and in one group agree."""
    for seed in seeds(PROGRAMS)[part::PARTS]:
        program = random_program(seed)
        found = judge(program, kinds[seed // PARTS % 2], seed)
        assert not found, "\n".join([str(program), *found])


def test_a_seed_is_a_program() -> None:
    """A failure can be repeated by its seed."""
    assert str(random_program(7)) == str(random_program(7))
