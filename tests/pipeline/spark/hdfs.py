"""An archive and a checkpoint on a real HDFS: a name node and a data node on loopback.

    python -m tests.pipeline.spark.hdfs [--messages 300]

The cluster is Hadoop's own for tests; Maven fetches its jars (110 MB), once. What is tried is in
`on_hadoop.py`; a process without a Spark session reads the checkpoint there, too. Exit status 1 where
something is not so.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from amqp_broker.conformance.load.peers.maven import Artifact, java_program
from amqp_broker.pipeline.session import spark_session
from tests.pipeline.spark.class_archive import ONE_COMPILER
from tests.pipeline.spark.lives import lives
from tests.pipeline.spark.on_hadoop import CONFIGURATION, RUNS, OnHadoop
from tests.pipeline.spark.pipeline_broker import PipelineBroker

SECONDS_TO_START: Final = 180.0
JARS: Final = (
    Artifact("org.apache.hadoop", "hadoop-client-minicluster", "3.5.0"),
    Artifact("org.junit.jupiter", "junit-jupiter-api", "5.13.4"),  # its programs want these two
    Artifact("org.mockito", "mockito-core", "4.11.0"),
)

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


def run(messages: int, number: int, folder: Path) -> tuple[str, list[str]]:
    """One cluster, and what is wrong with it."""
    broker = PipelineBroker(folder, CONFIGURATION)
    try:
        with hdfs(folder / "hdfs") as url:
            spark = spark_session("hdfs", settings={"spark.log.level": "ERROR"})
            try:
                tried = OnHadoop(spark, broker, url, messages)
                tried.query()
                tried.read_alone()
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
