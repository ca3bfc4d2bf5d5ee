"""A broker as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

WITH_BYTECODE: Final = {"PYTHONDONTWRITEBYTECODE": ""}
"""As an installed broker starts. Where the variable is set, each process compiles all its modules again,
which takes longer than all else that it does until it listens.
"""


class BrokerProcess:
    """A running broker: where it listens, and its process."""

    def __init__(self, process: subprocess.Popen[str], url: str, started_in_s: float) -> None:
        self.process = process
        self.url = url
        self.started_in_s = started_in_s
        parts = urlsplit(url)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 5672

    @property
    def pid(self) -> int:
        """The process's number."""
        return self.process.pid


@contextmanager
def running(*options: str, tree: Path | None = None, python: str = sys.executable) -> Iterator[BrokerProcess]:
    """`amqp-broker serve` on a free port with these options, stopped with SIGTERM at the end.

    `tree` is a checkout to run from (a compiled copy, say) instead of what is installed. Raises RuntimeError
    when the broker doesn't come up.
    """
    command = [python, "-m", "amqp_broker", "serve", "--listen", "amqp://127.0.0.1:0", *options]
    begun = time.monotonic()
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=tree, env=os.environ | WITH_BYTECODE
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line.startswith("listening on "):
                status = process.wait()
                log.seek(0)
                raise RuntimeError(f"the broker ended with {status}:\n{log.read()[-4_000:]}")
            yield BrokerProcess(process, line.split()[-1], time.monotonic() - begun)
        finally:
            stop(process)


def stop(process: subprocess.Popen[str]) -> None:
    """SIGTERM, and after ten seconds SIGKILL."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
