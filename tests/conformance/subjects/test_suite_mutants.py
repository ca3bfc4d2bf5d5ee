"""Each broker with one rule broken is found by a scenario that names the rule, and by none that has nothing
to do with it: here by those that name it, and a sample of the others.
"""

import socket
import time
from collections.abc import Iterator

import pytest

from amqp_broker.conformance.broker import Settings
from amqp_broker.conformance.requirements import load_requirements
from amqp_broker.frames import Open, encode_frame
from amqp_broker.testing import running_broker
from tests.conformance.mutants.between import Mutant, mutated
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


def _let_it_be_read() -> None:
    """A moment for the stranger to have read the first piece alone."""
    time.sleep(0.05)


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_header_in_two_pieces_is_one_to_the_stranger_too(settings: Settings, cut: int) -> None:
    """Wherever the pieces part: four letters are no frame of 1,095,586,128 octets."""
    header = b"AMQP\0\1\0\0"
    nobody = Mutant("none", "2.6.7-illegal")
    with (
        mutated(nobody, settings.address.host, settings.address.port) as port,
        socket.create_connection(("127.0.0.1", port), timeout=30) as client,
    ):
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.sendall(header[:cut])
        _let_it_be_read()
        client.sendall(header[cut:] + encode_frame(0, Open(container_id="in pieces")))
        answer = b""
        while len(answer) <= len(header):  # a broker that heard no header answers with one, and ends
            answer += client.recv(4096) or pytest.fail(f"the stream ended after {answer!r}")
