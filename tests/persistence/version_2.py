"""A store of schema version 2, statement for statement as the broker of that version made it.

It holds what the store of version 1 holds, and the outcomes of two transactions. This never changes: files
like it are out there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.persistence.version_1 import STATEMENTS as FIRST_STATEMENTS
from tests.persistence.version_1 import write_file

STATEMENTS: Final = (
    *FIRST_STATEMENTS,
    """CREATE TABLE discharge_generation (
    first_number INTEGER PRIMARY KEY, opened_at_ms INTEGER NOT NULL, checksum INTEGER NOT NULL
) STRICT, WITHOUT ROWID""",
    """CREATE TABLE discharge (
    generation INTEGER NOT NULL, txn_id BLOB NOT NULL, at_ms INTEGER NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (generation, txn_id)
) STRICT, WITHOUT ROWID""",
    "INSERT INTO discharge_generation VALUES (0, 1000, 2372300572)",
    "INSERT INTO discharge VALUES (0, X'01010101010101010101010101010101', 1000, 2521481833)",
    "INSERT INTO discharge VALUES (0, X'74776F', 2000, 3640682969)",
    "PRAGMA user_version=2",
)


def write_version_2(directory: Path) -> None:
    """Make the file in a data directory."""
    write_file(directory, STATEMENTS)
