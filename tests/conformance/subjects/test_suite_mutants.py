"""Each broker with one rule broken is found by a scenario that names the rule, and by none that has nothing
to do with it: here by those that name it, and a sample of the others.
"""

from collections.abc import Iterator

import pytest

from amqp_broker.conformance.broker import Settings
from amqp_broker.conformance.requirements import load_requirements
from amqp_broker.testing import running_broker
from tests.conformance.mutants.between import Mutant
from tests.conformance.mutants.hunt import finders, hunt, sample
from tests.conformance.mutants.table import MUTANTS
from tests.conformance.probed import probed

SAMPLE = 4


@pytest.fixture(scope="module")
def settings() -> Iterator[Settings]:
    """A broker without a fault, behind which the mutants stand."""
    with running_broker() as broker:
        yield probed(broker.url)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[one.name for one in MUTANTS])
def test_a_mutant_is_found(settings: Settings, mutant: Mutant) -> None:
    """By who names its rule; who is about something else passes."""
    told = hunt(mutant, settings, [*finders(mutant), *sample(mutant, SAMPLE)])
    assert told.found, f"nobody found {mutant.name}"
    assert [(one.scenario.id, one.message) for one in told.blamed] == []


def test_there_are_mutants_enough() -> None:
    """Sixty at least, each with a name of its own and rows that there are."""
    assert len(MUTANTS) >= 60 and len({one.name for one in MUTANTS}) == len(MUTANTS)
    rows = load_requirements()
    assert [one.name for one in MUTANTS if not set(one.rows.split()) <= set(rows)] == []


def test_without_a_fault_nothing_is_found(settings: Settings) -> None:
    """The stranger on the wire who changes nothing is not noticed."""
    told = hunt(Mutant("none", "2.6.7-illegal"), settings, finders(Mutant("none", "2.6.7-illegal 2.7.5-01")))
    assert told.found == () and told.blamed == ()
