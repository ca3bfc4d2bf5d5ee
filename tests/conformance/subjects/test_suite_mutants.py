"""Each broker with one rule broken is found by a scenario that names the rule, and by none that has nothing
to do with it: here by those that name it, and a sample of the others.
"""

from collections.abc import Iterator

import pytest

from amqp_broker.conformance.broker import Settings
from amqp_broker.conformance.dialogue_state import CLIENT
from amqp_broker.conformance.requirements import load_requirements
from amqp_broker.frames import Open, encode_frame
from amqp_broker.testing import running_broker
from tests.conformance.mutants.between import Direction, Mutant, Wiretap
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


def test_in_whatever_pieces_it_comes_the_same_goes_on() -> None:
    """Headers, frames and what is neither: four letters are no frame of 1,095,586,128 octets."""
    header, opened = b"AMQP\0\1\0\0", encode_frame(0, Open(container_id="in pieces"))
    for said in (header + opened, b"AMQP\3\1\0\0" + header + opened, b"GET / HTTP/1.1\r\n\r\n", b"AMQ"):
        for cut in range(len(said) + 1):
            direction = Direction(Wiretap(Mutant("none", "2.6.7-illegal")), CLIENT)
            first = direction.feed(said[:cut])
            assert first + direction.feed(said[cut:]) + direction.pending == said, (said, cut)
            assert said[0] == ord("G") or direction.pending in (b"", b"AMQ"), (said, cut)
