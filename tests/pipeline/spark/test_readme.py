"""The README's lines that archive and report run as they stand there, on a fresh broker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from amqp_broker import connect
from amqp_broker.embedding import memory_config, running_broker
from tests.examples.snippets import snippet
from tests.tidy.sources import ROOT


def test_archive_and_report(tmp_path: Path) -> None:
    """Each line; the report is there."""
    command = tmp_path / "amqp-broker"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m amqp_broker "$@"\n')
    command.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with running_broker(memory_config()) as broker:
        with connect(broker.url) as connection:
            connection.open_sender("orders").send("one")
        script = snippet("amqp-broker pipeline archive").at(broker.port)
        done = subprocess.run(
            ["sh", "-e"], input=script, cwd=tmp_path, env=environment, capture_output=True, text=True
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "report.html").exists()
