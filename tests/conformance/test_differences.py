"""The table of requirements follows the OASIS Standard of 2012: each of its differences from the text of 2011
is there, or it is said why it is not.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from amqp_broker.conformance.requirements import load_requirements

DIFFERENCES: list[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("differences.toml").read_text(encoding="utf-8")
)["difference"]

LIST = Path(__file__).resolve().parents[3] / "shared" / "spec" / "amqp-1.0" / "oasis-differences.md"
"""The list of differences, where the project is developed; elsewhere `differences.toml` stands for it."""

NUMBERED = re.compile(r"^\| ([AB]\d+) \| ([^|]+) \|")
"""A row of the list's tables of differences: its number, and the section."""

RAISED = re.compile(r"^\| (\d[^|]*) \|")
"""A row of its tables of raised levels, which have sections only."""


def _listed(text: str) -> set[tuple[str, str]]:
    """Returns (number, section) of all differences in the list; part 0, without sections, is one."""
    listed: set[tuple[str, str]] = set()
    table = ""
    for line in text.splitlines():
        if heading := re.match(r"### (C\d)\.", line):
            table = heading.group(1)
        elif line.startswith("#"):
            table = ""
        if found := NUMBERED.match(line):
            in_part_0 = found.group(2)[:1].isupper()
            listed.add(("B1-B16", "0") if in_part_0 else (found.group(1), found.group(2).strip()))
        elif (found := RAISED.match(line)) and table in ("C1", "C2", "C3"):
            listed.add((table, found.group(1).strip()))
    return listed


def test_the_list_is_read_whole() -> None:
    """Differences by number, raised levels by section, and part 0 as one."""
    text = "| A2 | 1.4 | x |\n| B1 | MUST | y |\n### C1. `must`\n| 2.4.1 | z |\n## D\n| D1 | 2.7.3 | u |\n"
    assert _listed(text) == {("A2", "1.4"), ("B1-B16", "0"), ("C1", "2.4.1")}


def test_each_difference_of_the_list_is_judged() -> None:
    """None is passed over, none is invented, and what the Standard says is quoted as the list has it."""
    if not LIST.is_file():
        return  # `differences.toml` stands for it
    text = LIST.read_text(encoding="utf-8")
    assert {(one["number"], one["section"]) for one in DIFFERENCES} == _listed(text)
    plain = text.replace("**", "")
    of_rows = [one["says"] for one in DIFFERENCES if one["number"][0] == "A" and one.get("says")]
    assert [said for said in of_rows if said not in plain] == []


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda one: f"{one['number']} {one['section']}")
def test_a_difference_is_in_the_table(difference: dict[str, Any]) -> None:
    """Its rows stand in its section, with its level, and one of them says what the Standard says."""
    requirements = load_requirements()
    rows = [requirements[row_id] for row_id in difference.get("rows", ())]
    sections = set(re.findall(r"\d[\d.]*\d", difference["section"]))
    assert bool(rows) != bool(difference.get("reason"))
    assert not rows or {row.section for row in rows} == sections
    assert {row.level for row in rows} <= {difference.get("level", row.level) for row in rows}
    assert not rows or any(difference.get("says", "") in row.sentence for row in rows)
