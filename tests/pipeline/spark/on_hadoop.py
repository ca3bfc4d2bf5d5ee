"""What is tried on any file system that Hadoop knows: a query with its checkpoint, and an archive.

A streaming query, started twice, writes each message once. The journal is archived in two runs, compacted and
audited; then one of its files is damaged, and the audit has to name it by its URL.
"""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, Final

from amqp_broker.client import connect, message
from amqp_broker.command_line import main as amqp_broker
from amqp_broker.pipeline.archive import read_events
from amqp_broker.pipeline.archive_layout import ArchiveLayout
from amqp_broker.pipeline.checkpoints import read_checkpoint
from amqp_broker.pipeline.hadoop_files import hadoop_path
from tests.crash.broker_process import CHECKOUT
from tests.pipeline.receiving import drained
from tests.pipeline.spark.pipeline_broker import PipelineBroker
from tests.pipeline.spark.queries import run_to_end

RUNS: Final = 2
CHECKPOINT: Final = "checkpoints/copy"
CONFIGURATION: Final = """\
[[queue]]
pattern = "**"
events = true
retention_bytes = 100_000_000
"""
READ: Final = """\
import sys
from amqp_broker.pipeline.checkpoints import read_checkpoint
from amqp_broker.pipeline.folders import folder_of
found = read_checkpoint(folder_of(sys.argv[1]))
print(found.query_id, found.done)
"""


class OnHadoop:
    """What is tried on a file system, by the URL of a folder there; `faults` are in words."""

    def __init__(self, spark: Any, broker: PipelineBroker, url: str, messages: int) -> None:
        self.spark = spark
        self.broker = broker
        self.url = url
        self.messages = messages
        self.faults: list[str] = []

    def expect(self, what: str, wanted: Any, found: Any) -> None:
        """They are equal, or it is a fault."""
        if wanted != found:
            self.faults.append(f"{what}: expected {wanted!r:.300}, found {found!r:.300}")

    def query(self) -> None:
        """A stream that is started twice, each time with new messages."""
        folder = f"{self.url}/{CHECKPOINT}"
        given = {"amqp.url": self.broker.url, "subscribe": "in", "subscription": "copy", "columns": "body"}
        rows = self.spark.readStream.format("amqp").options(**given).load()
        writer = rows.writeStream.format("amqp").trigger(availableNow=True)
        writer = writer.options(**{"amqp.url": self.broker.url, "address": "out"})
        with connect(self.broker.url) as connection:
            sender = connection.open_sender("in")
            for run in range(RUNS):
                sender.send_many(message(b"%d %d" % (run, number)) for number in range(self.messages))
                query = run_to_end(writer.option("checkpointLocation", folder).start)
                found = read_checkpoint(hadoop_path(folder, self.spark))
                told = None if found is None else (found.query_id, found.done)
                self.expect("the checkpoint", (str(query.id), run), told)
            wanted = [b"%d %d" % (run, number) for run in range(RUNS) for number in range(self.messages)]
            self.expect("what was written", wanted, [each.body for each in drained(connection, "out")])
    def read_alone(self) -> None:
        """The checkpoint of `query`, by a process without a Spark session."""
        folder = f"{self.url}/{CHECKPOINT}"
        known = read_checkpoint(hadoop_path(folder, self.spark))
        wanted = None if known is None else f"{known.query_id} {known.done}"
        alone = subprocess.run(
            [sys.executable, "-c", READ, folder], cwd=CHECKOUT, capture_output=True, text=True, check=False
        )
        self.expect("the checkpoint, read without a session", wanted, alone.stdout.strip())

    def archive(self) -> None:
        """Two runs, compacted, audited; then with a damaged file."""
        url = f"{self.url}/archive"
        layout = ArchiveLayout(url)
        for run in range(RUNS):
            self._command(0, "archive", self.broker.url, url)
            self.expect("batches", list(range(run + 1)), layout.epochs())
            with connect(self.broker.url) as connection:
                connection.open_sender("in").send(f"after run {run}")
        self._command(0, "compact", url)
        self.expect("after compacting", ([], [(0, 1)]), (layout.epochs(), layout.segments()))
        last, first = layout.told()[-1], layout.told()[0]
        self.expect("events", last.next - first.first, read_events(self.spark, layout).count())
        self._command(0, "audit", url)
        file = min(layout.segment(0, 1).files(".parquet"), key=str)
        content = file.read_bytes()
        file.write_bytes(content[:-1] + b"?")
        said = self._command(2, "audit", url)
        if str(file) not in said or "it is damaged" not in said:
            self.faults.append(f"the damaged file {file} is not named in {said!r}")
        file.write_bytes(content)
        self._command(0, "audit", url)

    def _command(self, wanted: int, *arguments: str) -> str:
        out = io.StringIO()
        with redirect_stdout(out), redirect_stderr(out):
            status = amqp_broker(["pipeline", *arguments, "--quiet"])
        self.expect(f"pipeline {arguments[0]}: {out.getvalue()[-500:]}", wanted, status)
        return out.getvalue()
