"""The runner of seeded faults: a stale mutant, a survivor and a broken suite are each told; the list is up to
date.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from amqp_broker.conformance.scenario import load_scenarios
from tests.mutants.__main__ import CAUGHT, CHECKOUT, BadMutant, judge, shown, split, table
from tests.mutants.faults import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.promises import PROMISES

_CONFTEST = "from hypothesis import settings\n\nsettings.register_profile('thorough')\n"
_CODE = "def double(number):\n    return number * 2\n"
_TEST = "from code_under_test import double\n\n\ndef test_double():\n    assert double(3) == 6\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(_CONFTEST)
    (tmp_path / "code_under_test.py").write_text(_CODE)
    (tmp_path / "test_it.py").write_text(_TEST)
    (tmp_path / "test_nothing.py").write_text("def test_nothing():\n    assert 1 + 1 == 2\n")
    return tmp_path


def _mutant(old: str, new: str, suite: str = "test_it.py") -> Mutant:
    return Mutant("example", "code_under_test.py", old, new, (suite,))


def test_a_caught_mutant_leaves_the_copy_as_it_was(checkout: Path) -> None:
    """The suite fails with the fault, and the next mutant finds the original text."""
    assert judge(_mutant("* 2", "* 3"), checkout) == CAUGHT
    assert (checkout / "code_under_test.py").read_text() == _CODE


def test_a_survivor_is_told_with_its_suite(checkout: Path) -> None:
    """A suite that passes with the fault is the bug, so its name is in the verdict."""
    assert "test_nothing.py passes" in judge(_mutant("* 2", "* 3", "test_nothing.py"), checkout)


@pytest.mark.parametrize(
    ("mutant", "reason"),
    [
        pytest.param(_mutant("* 7", "* 3"), "stale", id="text not found"),
        pytest.param(_mutant("number", "x"), "stale", id="text found twice"),
        pytest.param(_mutant("* 2", "* )"), "proves nothing", id="no longer Python"),
        pytest.param(_mutant("* 2", "* 3", "no_such_test.py"), "proves nothing", id="no such suite"),
        pytest.param(
            Mutant("example", "gone.py", "a", "b", ("test_it.py",)), "there is no gone.py", id="no such file"
        ),
    ],
)
def test_a_mutant_that_proves_nothing_is_an_error(checkout: Path, mutant: Mutant, reason: str) -> None:
    """It is told apart from a mutant that was caught: the list has to be repaired."""
    with pytest.raises(BadMutant, match=reason):
        judge(mutant, checkout)
    assert (checkout / "code_under_test.py").read_text() == _CODE


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_no_mutant_is_stale(mutant: Mutant) -> None:
    """Whoever changes a line that a mutant changes, repairs the mutant with it."""
    assert (CHECKOUT / mutant.file).read_text().count(mutant.old) == 1
    assert [part for part in mutant.suite if not _is_there(part)] == []


@cache
def _text(file: str) -> str:
    path = CHECKOUT / file
    return path.read_text() if path.is_file() else ""


@cache
def _scenario_ids() -> set[str]:
    return {scenario.id for scenario in load_scenarios()}


def _is_there(part: str) -> bool:
    """Whether a part of a suite names a file, a test in it, or a conformance scenario."""
    file, _, test = part.partition("::")
    name, _, parameter = test.partition("[")
    if name == "test_scenario":
        return parameter.removesuffix("]") in _scenario_ids()
    return (CHECKOUT / file).exists() and (not name or f"def {name}(" in _text(file))


def test_each_promise_of_transactions_has_a_fault_that_breaks_it() -> None:
    """Each rule of the standard, each choice of the broker, each promise of durability."""
    assert {mutant.rule for mutant in MUTANTS} - {""} == set(PROMISES)


@pytest.mark.parametrize("section", ["4.", "jms."])
def test_each_scenario_has_a_fault_that_it_notices(section: str) -> None:
    """A scenario that no change of the broker makes fail would show nothing."""
    named = {shown(part) for mutant in MUTANTS for part in mutant.suite}
    assert {one for one in _scenario_ids() if one.startswith(section)} - named == set()


def test_the_table_tells_each_fault_of_transactions_and_what_notices() -> None:
    """`python -m tests.mutants --table`."""
    mutant = Mutant("example", "a.py", "a", "b", ("tests/x.py::test_scenario[4.3/over]", "tests/y.py"), "13")
    assert table([mutant]).splitlines()[2:] == [
        f"| 13: {PROMISES['13']} | example | `4.3/over`, `tests/y.py` |"
    ]


def test_each_part_of_a_suite_can_be_judged_by_itself() -> None:
    """`--each`: of a suite of two files, two mutants, so that neither hides behind the other."""
    both = replace(_mutant("* 2", "* 3"), suite=("test_it.py", "test_nothing.py"))
    assert [mutant.suite for mutant in split([both])] == [("test_it.py",), ("test_nothing.py",)]
    assert [mutant.name for mutant in split([both])] == ["example (test_it.py)", "example (test_nothing.py)"]


def test_mutants_have_names_of_their_own() -> None:
    """A name is what a report shows."""
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names)
