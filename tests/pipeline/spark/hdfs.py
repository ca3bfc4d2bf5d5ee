"""An archive and a checkpoint on a real HDFS: a name node and a data node on loopback.

    python -m tests.pipeline.spark.hdfs [--messages 300]

The cluster is Hadoop's own for tests; Maven fetches its jars (110 MB), once. A streaming query, started
twice, writes each message once, with its checkpoint on HDFS, which a process without a Spark session reads
there, too. The journal is archived to HDFS in two runs, compacted and audited there; then one of its files is
damaged, and the audit has to name it by its URL. Exit status 1 where something is not so.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any, Final

from amqp_broker.client import connect, message
from amqp_broker.command_line import main as amqp_broker
from amqp_broker.conformance.load.peers.maven import Artifact, java_program
from amqp_broker.pipeline.archive import read_events
from amqp_broker.pipeline.archive_layout import ArchiveLayout
from amqp_broker.pipeline.checkpoints import read_checkpoint
from amqp_broker.pipeline.hadoop_files import hadoop_path
from amqp_broker.pipeline.session import spark_session
from tests.crash.broker_process import CHECKOUT
from tests.pipeline.receiving import drained
from tests.pipeline.spark.class_archive import ONE_COMPILER
from tests.pipeline.spark.lives import lives
from tests.pipeline.spark.pipeline_broker import PipelineBroker
from tests.pipeline.spark.queries import run_to_end

SECONDS_TO_START: Final = 180.0
RUNS: Final = 2
JARS: Final = (
    Artifact("org.apache.hadoop", "hadoop-client-minicluster", "3.5.0"),
    Artifact("org.junit.jupiter", "junit-jupiter-api", "5.13.4"),  # its programs want these two
    Artifact("org.mockito", "mockito-core", "4.11.0"),
)
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


@contextmanager
def hdfs(folder: Path) -> Iterator[str]:
    """A cluster as a process, with its files in a folder; its URL. Raises TimeoutError when it does not come
    up, NotThereError where Java, Maven or a jar cannot be had.
    """
    folder.mkdir()
    said, log = folder / "details.json", folder / "hdfs.log"
    options = ("-Xmx512m", "-XX:+UseSerialGC", ONE_COMPILER, f"-Dtest.build.data={folder / 'data'}")
    cluster = (
        "org.apache.hadoop.test.MiniDFSClusterManager", "-datanodes", "1", "-format", "-nnport", "0",
        "-writeDetails", str(said), "-D", "dfs.replication=1",
    )  # fmt: skip
    program = java_program(folder, JARS, options, cluster)
    with log.open("wb") as out:
        process = subprocess.Popen(
            program.command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=folder
        )
    try:
        deadline = time.monotonic() + SECONDS_TO_START
        while not said.exists() or not said.read_text().endswith("}"):
            if time.monotonic() > deadline or process.poll() is not None:
                raise TimeoutError(f"expected an HDFS, found {log.read_text(errors='replace')[-2_000:]!r}")
            time.sleep(0.2)
        yield f"hdfs://127.0.0.1:{json.loads(said.read_text())['namenode_port']}"
    finally:
        process.terminate()
        process.wait(30)


class OnHdfs:
    """What is tried; `faults` are in words."""

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
        folder = f"{self.url}/checkpoints/copy"
        given = {"amqp.url": self.broker.url, "subscribe": "in", "subscription": "hdfs", "columns": "body"}
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
        alone = subprocess.run(
            [sys.executable, "-c", READ, folder], cwd=CHECKOUT, capture_output=True, text=True, check=False
        )
        self.expect("the checkpoint, read without a session", f"{query.id} {RUNS - 1}", alone.stdout.strip())

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


def run(messages: int, number: int, folder: Path) -> tuple[str, list[str]]:
    """One cluster, and what is wrong with it."""
    broker = PipelineBroker(folder, CONFIGURATION)
    try:
        with hdfs(folder / "hdfs") as url:
            spark = spark_session("hdfs", settings={"spark.log.level": "ERROR"})
            try:
                tried = OnHdfs(spark, broker, url, messages)
                tried.query()
                tried.archive()
            finally:
                spark.stop()
        return f"{RUNS * messages} messages, a checkpoint and an archive at {url}", tried.faults
    finally:
        broker.kill()


def main(arguments: Sequence[str] | None = None) -> int:
    """Tries it."""
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline.spark.hdfs", description=__doc__)
    parser.add_argument("--messages", type=int, default=300)
    parsed = parser.parse_args(arguments)
    return 1 if lives("hdfs", 1, partial(run, parsed.messages)) else 0


if __name__ == "__main__":
    raise SystemExit(main())
