"""docs/conformance.md says of gaps and counts what today's scenarios and requirements say."""

import re
from pathlib import Path

from amqp_broker.conformance.gaps import load_gaps
from amqp_broker.conformance.requirements import KINDS
from amqp_broker.conformance.scenario import load_scenarios
from amqp_broker.conformance.statement import BEGIN, counts_table

ROOT = Path(__file__).resolve().parents[2]
GAPS = load_gaps(ROOT / "conformance" / "admitted_gaps.toml")


def test_the_statement_admits_each_gap() -> None:
    """docs/conformance.md speaks of each scenario that is listed as a gap, and of no other as one."""
    statement = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
    gaps = statement.split("## Gaps", 1)[1].split("\n## ", 1)[0]
    assert set(re.findall(r"`(\d[\d.]*/[\w-]+)`", gaps)) == set(GAPS)


def _columns(text: str, *names: str) -> list[list[str]]:
    """Returns these columns of the first table in a Markdown text, line by line."""
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"
    ]
    return [[cells[lines[0].index(name)] for name in ("section", *names)] for cells in lines]


def test_the_statement_counts_todays_rows() -> None:
    """The table in docs/conformance.md has the numbers of today's rows and reasons."""
    statement = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
    generated = statement.split(BEGIN, 1)[1]
    assert _columns(generated, "rows", *KINDS) == _columns(counts_table({}), "rows", *KINDS)
    assert f"\n{sum(not one.protocol for one in load_scenarios())} scenarios." in generated
