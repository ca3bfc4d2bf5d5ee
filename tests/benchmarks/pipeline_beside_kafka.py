"""The data source `amqp` beside Spark's own for Kafka: the same rows, session, cores and disk, in turns.

    python -m tests.benchmarks.pipeline_beside_kafka [--rounds 3] [--scale 1.0] [--jars FOLDER]

Three cases for each size of a body: a batch that writes, a batch that reads (to Spark's sink noop), and a
streaming query from one address to another. A Kafka of one node and its jars come from Maven Central, once
(`--jars`: where they are, or go to). It leaves what it is told in the page cache; amqp-broker's commits are
on the disk before they are answered. Kafka's sink repeats rows after a failure; ours writes each once.
Prints a table with the median of the rounds, and how far they differ.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from amqp_broker.pipeline.java import find_java
from amqp_broker.pipeline.session import spark_session
from tests.pipeline.spark.pipeline_broker import PipelineBroker

ROWS: Final = {100: 100_000, 1_024: 50_000, 10_240: 10_000}
"""Messages for each size of a body, in octets."""
PARTS: Final = 2
SECONDS_TO_START: Final = 90.0
CONFIGURATION: Final = """\
[[queue]]
pattern = "**"
kind = "log"
retention_bytes = 8_000_000_000
"""
KAFKA: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={logs}
num.partitions={parts}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


def fetched(folder: Path) -> Path:
    """The jars, from Maven where they are not there."""
    if not list(folder.glob("spark-sql-kafka*.jar")):
        pom = Path(__file__).with_name("kafka_pom.xml")
        subprocess.run(
            [
                "mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies",
                "-DincludeScope=runtime", f"-DoutputDirectory={folder}",
            ],
            check=True,
        )  # fmt: skip
    return folder


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def kafka(folder: Path, jars: Path) -> Iterator[str]:
    """One node; its address. Raises TimeoutError when it does not come up."""
    import pyspark

    folder.mkdir()
    port, controller = _free_port(), _free_port()
    settings = folder / "server.properties"
    settings.write_text(
        KAFKA.format(port=port, controller=controller, logs=folder / "logs", parts=PARTS), encoding="utf-8"
    )
    classes = f"{jars}/*:{Path(pyspark.__file__).parent}/jars/*"
    java = [str(find_java() / "bin" / "java"), "-Xmx1g", "-cp", classes]
    with (folder / "kafka.log").open("wb") as log:
        subprocess.run(
            [*java, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(settings)],
            check=True, stdout=log, stderr=log,
        )  # fmt: skip
        process = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + SECONDS_TO_START
        while True:
            with socket.socket() as trial:
                if trial.connect_ex(("127.0.0.1", port)) == 0:
                    break
            if time.monotonic() > deadline or process.poll() is not None:
                raise TimeoutError(f"Kafka did not come up: {(folder / 'kafka.log').read_text()[-2_000:]}")
            time.sleep(0.2)
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


class Amqp:
    """The data source of this project."""

    name = "amqp"

    def __init__(self, url: str) -> None:
        self._given = {"amqp.url": url}

    def write(self, rows: Any, address: str) -> Any:
        """A writer of a batch."""
        return rows.write.format("amqp").options(**self._given, address=address).mode("append")

    def read(self, spark: Any, address: str) -> Any:
        """The bodies."""
        reader = spark.read.format("amqp").options(**self._given, minPartitions=PARTS)
        return reader.option("subscribe", address).option("columns", "body").load()

    def stream(self, spark: Any, source: str, target: str) -> Any:
        """A writer of a stream."""
        given = self._given | {"subscribe": source, "subscription": uuid.uuid4().hex, "columns": "body"}
        rows = spark.readStream.format("amqp").options(**given, minPartitions=PARTS).load()
        return rows.writeStream.format("amqp").options(**self._given, address=target)


class Kafka:
    """Spark's own for Kafka."""

    name = "kafka"

    def __init__(self, servers: str) -> None:
        self._given = {"kafka.bootstrap.servers": servers}

    def write(self, rows: Any, address: str) -> Any:
        """A writer of a batch."""
        rows = rows.withColumnRenamed("body", "value")
        return rows.write.format("kafka").options(**self._given, topic=address).mode("append")

    def read(self, spark: Any, address: str) -> Any:
        """The values."""
        reader = spark.read.format("kafka").options(**self._given, subscribe=address)
        return reader.load().select("value")

    def stream(self, spark: Any, source: str, target: str) -> Any:
        """A writer of a stream."""
        given = self._given | {"subscribe": source, "startingOffsets": "earliest"}
        rows = spark.readStream.format("kafka").options(**given).load().select("value")
        return rows.writeStream.format("kafka").options(**self._given, topic=target)


def _timed(act: Callable[[], Any]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def one_round(spark: Any, side: Amqp | Kafka, size: int, rows: int, folder: Path) -> dict[str, float]:
    """Rows a second of each case, on addresses of its own. Raises AssertionError where one is missing."""
    source, target = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("in", "out"))
    frame = spark.range(0, rows, 1, PARTS).selectExpr(f"cast(rpad(id, {size}, 'x') AS BINARY) AS body")
    took = {"write": _timed(side.write(frame, source).save)}
    took["read"] = _timed(side.read(spark, source).write.format("noop").mode("overwrite").save)
    writer = side.stream(spark, source, target).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(folder / uuid.uuid4().hex))
    took["stream"] = _timed(lambda: writer.start().awaitTermination())
    found = side.read(spark, target).count()
    assert found == rows, f"{side.name}: {found} of {rows}"
    return {case: rows / seconds for case, seconds in took.items()}


def table(rates: dict[tuple[str, int, str], list[float]]) -> str:
    """The medians, side by side, of what both have."""
    lines = [
        "| case | body, octets | amqp, rows/s | Kafka, rows/s | amqp, times | rounds differ by |",
        "|---|---|---|---|---|---|",
    ]
    for case in ("write", "read", "stream"):
        for size in ROWS:
            ours, theirs = (rates.get((side, size, case)) for side in ("amqp", "kafka"))
            if ours is None or theirs is None:
                continue  # a side gave up before
            spread = max((max(each) - min(each)) / median(each) for each in (ours, theirs))
            lines.append(
                f"| {case} | {size:,} | {median(ours):,.0f} | {median(theirs):,.0f} "
                f"| {median(ours) / median(theirs):.2f} | {spread:.0%} |"
            )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints."""
    name = "python -m tests.benchmarks.pipeline_beside_kafka"
    parser = argparse.ArgumentParser(prog=name, description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of the numbers of messages")
    parser.add_argument("--jars", type=Path, default=None, metavar="FOLDER")
    parsed = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="beside-kafka-"))
    rates: dict[tuple[str, int, str], list[float]] = {}
    try:
        jars = fetched(parsed.jars or folder / "jars")
        (folder / "amqp").mkdir()
        broker = PipelineBroker(folder / "amqp", CONFIGURATION)
        try:
            with kafka(folder / "kafka", jars) as servers:
                names = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2", "lz4")
                chosen = [str(jar) for name in names for jar in sorted(jars.glob(f"{name}*.jar"))]
                spark = spark_session("rates", settings={"spark.jars": ",".join(chosen)})
                for number in range(parsed.rounds + 1):  # the first one warms up
                    for size, rows in ROWS.items():
                        for side in (Amqp(broker.url), Kafka(servers)):
                            found = one_round(spark, side, size, int(rows * parsed.scale), folder)
                            told = ", ".join(f"{case} {rate:,.0f}" for case, rate in found.items())
                            print(number, side.name, size, told, file=sys.stderr, flush=True)
                            for case, rate in found.items():
                                if number:
                                    rates.setdefault((side.name, size, case), []).append(rate)
                spark.stop()
        finally:
            broker.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        print(f"{os.cpu_count()} processors, {parsed.rounds} rounds wanted\n\n{table(rates)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
