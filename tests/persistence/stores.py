"""What the tests of this room share: stores in temporary directories, damage, and children to kill."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from amqp_broker.persistence.checksums import node_checksum
from amqp_broker.persistence.node_rows import FORMER_NODE_COLUMNS
from amqp_broker.persistence.sqlite import SqliteStore
from amqp_broker.persistence.sqlite_library import connect
from amqp_broker.persistence.sqlite_store import DATABASE_NAME
from amqp_broker.testing.blocking_peer import PATIENCE_S

MIB = 1024 * 1024


def small_store(directory: Path, **changes: Any) -> SqliteStore:
    """A store without ballast."""
    return SqliteStore(directory, **{"ballast_bytes": 0, **changes})


def edit(directory: Path, sql: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Run one statement on the closed store's file, as a vandal would."""
    connection = connect(str(directory / DATABASE_NAME))
    try:
        return connection.execute(sql, parameters).fetchall()
    finally:
        connection.close()


def edit_nodes(directory: Path, sql: str) -> None:
    """The same where the rows of nodes are right afterwards, as if the store had written them so."""
    edit(directory, sql)
    for row in edit(directory, f"SELECT {FORMER_NODE_COLUMNS} FROM node"):
        edit(directory, "UPDATE node SET checksum=? WHERE id=?", node_checksum(*row), row[0])


def run_child(code: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
