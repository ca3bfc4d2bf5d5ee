"""A broker process for tests of the pipeline: a durable store, and nodes that retain."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from tests.crash.broker_process import CHECKOUT, COMMAND, BrokerProcess

CONFIGURATION: Final = """\
[[queue]]
pattern = "in.*"
retention_ms = 86_400_000

[[queue]]
pattern = "out"
"""


class PipelineBroker(BrokerProcess):
    """One run on the data directory `folder`/data, or in memory; it retains what is sent to `in.*`.
    `port` is one that an earlier run had.
    """

    def __init__(
        self, folder: Path, configuration: str = CONFIGURATION, memory: bool = False, port: int = 0
    ) -> None:
        file = folder / "broker.toml"
        file.write_text(configuration, encoding="utf-8")
        where = ["--memory"] if memory else ["--data", str(folder / "data")]
        self.log = folder / "broker.log"
        with self.log.open("ab") as errors:
            self.process = subprocess.Popen(
                [*COMMAND, "serve", "--config", str(file), *where, "--listen", f"amqp://127.0.0.1:{port}"],
                stdout=subprocess.PIPE,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                env=dict(os.environ),
                cwd=CHECKOUT,
            )
        self.port = 0
        self.wait_until_listening()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"amqp://127.0.0.1:{self.port}"
