"""An archive and a checkpoint in a bucket, over HTTP in the words of S3, by Hadoop's `s3a`.

    python -m tests.pipeline.spark.object_store [--messages 300]

The server is S3Proxy, a process on loopback that keeps its objects in memory; Maven fetches it, Hadoop's
module and the parts of the SDK that it needs (110 MB), once. What is tried is in `on_hadoop.py`. Exit status
1 where something is not so.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import time
import urllib.request
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
BUCKET: Final = "journal"
SERVER: Final = (Artifact("org.gaul", "s3proxy", "3.1.0"),)
SDK: Final = "2.35.4"
"""What this Hadoop is built with. Its whole bundle has 600 MB."""
CLIENT: Final = (
    Artifact("org.apache.hadoop", "hadoop-aws", "3.5.0", alone=True),
    *(Artifact("software.amazon.awssdk", name, SDK) for name in ("s3", "s3-transfer-manager", "sts")),
    Artifact("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1"),
)
STARTED: Final = re.compile(r"Started .*\{127\.0\.0\.1:(\d+)\}")
LOGGING: Final = """\
<configuration>
  <appender name="out" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%msg%n</pattern></encoder>
  </appender>
  <root level="info"><appender-ref ref="out"/></root>
</configuration>
"""


@contextmanager
def object_store(folder: Path) -> Iterator[str]:
    """A server as a process, with a bucket; its URL. Raises TimeoutError when it
    does not come up, NotThereError where Java, Maven or a jar cannot be had.
    """
    folder.mkdir()
    log, settings = folder / "s3.log", folder / "s3.properties"
    settings.write_text(
        "s3proxy.authorization=none\ns3proxy.endpoint=http://127.0.0.1:0\n"
        "jclouds.provider=transient\njclouds.identity=nobody\njclouds.credential=none\n"
    )
    logging = folder / "logback.xml"
    logging.write_text(LOGGING)
    options = ("-Xmx256m", "-XX:+UseSerialGC", ONE_COMPILER, f"-Dlogback.configurationFile={logging}")
    program = java_program(folder, SERVER, options, ("org.gaul.s3proxy.Main", "--properties", str(settings)))
    with log.open("wb") as out:
        process = subprocess.Popen(
            program.command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, cwd=folder
        )
    try:
        deadline = time.monotonic() + SECONDS_TO_START
        while not (started := STARTED.search(log.read_text(errors="replace"))):
            if time.monotonic() > deadline or process.poll() is not None:
                raise TimeoutError(f"expected a server, found {log.read_text(errors='replace')[-2_000:]!r}")
            time.sleep(0.2)
        url = f"http://127.0.0.1:{started[1]}"
        with urllib.request.urlopen(urllib.request.Request(f"{url}/{BUCKET}", method="PUT")):
            yield url
    finally:
        process.terminate()
        process.wait(30)


def settings_of(url: str, folder: Path) -> dict[str, str]:
    """Of a session that reads and writes there."""
    jars = java_program(folder, CLIENT, (), ()).command[-1]
    s3a = {
        "endpoint": url, "endpoint.region": "us-east-1", "path.style.access": "true",
        "connection.ssl.enabled": "false", "access.key": "nobody", "secret.key": "none",
        "multiobjectdelete.enable": "false",  # with a checksum of another kind than this server knows
    }  # fmt: skip
    return {
        "spark.log.level": "ERROR", "spark.jars": jars.replace(":", ","),
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()},
    }  # fmt: skip


def run(messages: int, number: int, folder: Path) -> tuple[str, list[str]]:
    """One server, and what is wrong with it."""
    broker = PipelineBroker(folder, CONFIGURATION)
    try:
        with object_store(folder / "s3") as url:
            spark = spark_session("object store", settings=settings_of(url, folder))
            try:
                tried = OnHadoop(spark, broker, f"s3a://{BUCKET}", messages)
                tried.query()
                tried.archive()
            finally:
                spark.stop()
        return f"{RUNS * messages} messages, a checkpoint and an archive in {BUCKET} at {url}", tried.faults
    finally:
        broker.kill()


def main(arguments: Sequence[str] | None = None) -> int:
    """Tries it."""
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline.spark.object_store", description=__doc__)
    parser.add_argument("--messages", type=int, default=300)
    parsed = parser.parse_args(arguments)
    return 1 if lives("object-store", 1, partial(run, parsed.messages)) else 0


if __name__ == "__main__":
    raise SystemExit(main())
