"""A store of schema version 5, statement for statement as the broker of that version made it.

It holds what the store of version 4 holds; rows of nodes have checksums. This never changes: files like it
are out there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.persistence.version_1 import write_file
from tests.persistence.version_4 import STATEMENTS as FORMER_STATEMENTS

STATEMENTS: Final = (
    *FORMER_STATEMENTS,
    "ALTER TABLE node ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0",
    "UPDATE node SET checksum=2148757665 WHERE id=1",
    "UPDATE node SET checksum=2899548932 WHERE id=2",
    "UPDATE node SET checksum=3710121989 WHERE id=3",
    "UPDATE node SET checksum=1688273547 WHERE id=4",
    "PRAGMA user_version=5",
)


def write_version_5(directory: Path) -> None:
    """Make the file in a data directory."""
    write_file(directory, STATEMENTS)
