"""The judgements of other brokers: each is of a scenario that there is, below the name of its broker."""

from pathlib import Path

from amqp_broker.conformance.load.judged import JUDGEMENTS, judgements
from amqp_broker.conformance.load.peers import PEERS
from amqp_broker.conformance.scenario import load_scenarios

ROOT = Path(__file__).resolve().parents[2]


def test_judgements_are_read_out_of_their_tables() -> None:
    """The first column of the tables below a broker's heading; several scenarios in a row are several."""
    rows = "| what | |\n|---|---|\n| `2.2/a`, `2.2/b` | see `2.3/c` |\n"
    text = f"# x\n## A broker 1.0: `one`\n{rows}## `two`\n| `3.1/d` |\n## Ours\n| `3.1/e` |\n"
    assert judgements(text) == {"one": {"2.2/a", "2.2/b"}, "two": {"3.1/d"}}


def test_each_judgement_is_of_a_scenario() -> None:
    """Nothing is judged that is not there, and no broker is left out."""
    judged = judgements((ROOT / JUDGEMENTS).read_text(encoding="utf-8"))
    known = {one.id for one in load_scenarios()}
    assert judged.keys() == PEERS.keys()
    assert {name: sorted(ids - known) for name, ids in judged.items()} == {name: [] for name in PEERS}
