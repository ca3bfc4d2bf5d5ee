"""The seeded faults, from the tables beside this module: what is changed where, and what has to notice.

    [promise] what is wrong then                    the promise in brackets only for rules of transactions
    file: suite suite ...                           tests for pytest, or ids of conformance scenarios
     a line that stays                              a change of whole lines, as a diff has it
    -a line that goes
    +a line that comes

An empty line stands between two of them; lines that begin with # are for readers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.mutants.mutant import Mutant, scenarios

TABLES: Final = Path(__file__).with_name("tables")
_TITLE: Final = re.compile(r"(?:\[(?P<rule>[^\]]*)\] )?(?P<name>.*)")


def read_table(text: str) -> Iterator[Mutant]:
    """The mutants of one table, in its order."""
    for block in text.strip().split("\n\n"):
        lines = [line for line in block.split("\n") if not line.startswith("#")]
        if not lines:
            continue
        title, where, *change = lines
        told = _TITLE.fullmatch(title)
        assert told is not None, title
        file, *suite = where.split()
        old, new = ("".join(f"{line[1:]}\n" for line in change if line[0] in kinds) for kinds in (" -", " +"))
        parts = tuple(part if part.startswith("tests/") else scenarios(part)[0] for part in suite)
        yield Mutant(told["name"], file.removesuffix(":"), old, new, parts, told["rule"] or "")


MUTANTS: Final = tuple(
    mutant for table in sorted(TABLES.glob("*.txt")) for mutant in read_table(table.read_text())
)
