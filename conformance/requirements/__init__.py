"""The standard's requirements as data: one row for each MUST and SHOULD of its five parts; and the sentences
of protocols beside it.

Each row is shown by scenarios (they name the row) or says in a reason why none shows it.
"""

import tomllib
from functools import cache
from pathlib import Path

import attrs

KINDS = {
    "outside": "cannot be seen by a peer",
    "client": "binds the client's side",
    "not-offered": "is about something that a broker need not offer",
    "no-requirement": "uses the word without requiring anything",
    "not-yet": "is not yet shown",
}
"""Why a row is not shown by any scenario; the reason beside it says it in prose."""


PROTOCOLS = {
    "half": "half-messages", "seq": "sequences", "ret": "retention", "set": "sets", "jms": "jms",
}  # fmt: skip
"""Protocols beside the standard, each a profile and a page, by what sections and scenarios begin with
(half.put): those of this project, and what JMS programs need of any broker.
"""


@attrs.frozen
class Requirement:
    """One sentence of the standard, with its place, and the reason when no scenario shows it."""

    id: str
    section: str
    title: str
    level: str
    sentence: str
    kind: str = ""
    reason: str = ""

    @property
    def part(self) -> int:
        """The part of the standard (1 types, 2 transport, 3 messaging, 4 transactions, 5 security); 0 for a
        protocol beside it.
        """
        return 0 if self.protocol else int(self.section.split(".")[0])

    @property
    def protocol(self) -> str:
        """The protocol whose sentence it is; empty for the standard."""
        return PROTOCOLS.get(self.section.split(".")[0], "")

    @property
    def strength(self) -> str:
        """What counts are kept apart by: MUST, SHOULD, or other for what is said without such a word, and for
        what is not the standard's.
        """
        word = self.level.upper().split()[0]
        return word if word in ("MUST", "SHOULD") and not self.protocol else "other"

    @property
    def chapter(self) -> str:
        """The section at two levels, for counts: "2.7" for 2.7.5."""
        return ".".join(self.section.split(".")[:2])


def section_key(section: str) -> tuple[tuple[int, str], ...]:
    """Returns what sorts sections in the standard's order (2.9 before 2.10); names come behind."""
    return tuple((int(part), "") if part.isdigit() else (1_000, part) for part in section.split("."))


@cache
def load_requirements() -> dict[str, Requirement]:
    """Returns all rows by id, in the standard's order."""
    rows: list[Requirement] = []
    for path in Path(__file__).parent.glob("*.toml"):
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        rows.extend(Requirement(**row) for row in table["requirement"])
    rows.sort(key=lambda row: (section_key(row.section), row.level == "says", row.id))
    by_id = {row.id: row for row in rows}
    assert len(by_id) == len(rows), "two rows with one id"
    return by_id
