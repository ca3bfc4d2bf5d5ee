"""`... | head`: a command whose reader has gone ends without a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from amqp_broker.exit_status import READER_GONE
from amqp_broker.persistence.sqlite import SqliteStore


@pytest.mark.parametrize(
    "command",
    [["amqp_broker", "check"], ["amqp_broker.conformance.command_line", "list", "scenarios"]],
    ids=["check", "list"],
)
def test_nobody_reads_what_it_says(command: list[str], tmp_path: Path) -> None:
    """Nothing on standard error, and the status of a program that SIGPIPE has ended."""
    SqliteStore(tmp_path / "data").close()
    where = [str(tmp_path / "data")] if command[-1] == "check" else []
    reads, writes = os.pipe()
    os.close(reads)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", *command, *where],
            stdout=writes, stderr=subprocess.PIPE, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(writes)
    assert (ended.stderr, ended.returncode) == (b"", READER_GONE)
