"""What stands on the terminal of a person whose query fails: captured from real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.sources import ROOT

NOBODY = "amqp://127.0.0.1:1"
PROGRAM = """
from amqp_broker.pipeline.session import spark_session

spark = spark_session("what users see", cores=1)
print(spark.range(7).count(), flush=True)
spark._jvm.org.slf4j.LoggerFactory.getLogger("somebody").warn("a warning stays")
source = spark.readStream.format("amqp").option("amqp.url", "{url}").option("subscribe", "orders")
query = source.load().writeStream.format("console").option("checkpointLocation", "checkpoint").start()
query.awaitTermination()
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A program of Python to its end."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.mark.timeout(600)
def test_a_program_starts_quietly_and_ends_with_what_is_to_do(tmp_path: Path) -> None:
    """Nothing but its own words until something is wrong; then a line of the log, its own place in the
    program, and the error with what to do as the last line.
    """
    (tmp_path / "program.py").write_text(PROGRAM.format(url=NOBODY))
    done = run(tmp_path, "program.py")
    assert done.returncode == 1 and done.stdout == "7\n"
    said = done.stderr.splitlines()
    last = said[-1]
    assert last.startswith("OptionError: option subscription is missing") and "one name for each" in last
    assert said[0].endswith("WARN somebody: a warning stays")
    assert "ERROR MicroBatchExecution: Query [id = " in said[1] and said[1].endswith(last)
    assert said[2] == "Traceback (most recent call last):" and "program.py" in said[3]
    assert not any("pyspark" in line or "Caused by" in line for line in said), done.stderr
    assert len(said) < 10


@pytest.mark.timeout(600)
def test_the_command_line_says_what_is_to_do(tmp_path: Path) -> None:
    """And nothing else but its progress."""
    done = run(tmp_path, "-m", "amqp_broker", "pipeline", "archive", NOBODY, str(tmp_path / "archive"))
    assert done.returncode == 2 and done.stdout == ""
    started, *_, last = done.stderr.splitlines()
    assert started.startswith("Spark starts: ")
    assert last.startswith(f"amqp-broker pipeline: BrokerUnreachable: no broker at {NOBODY} ")
    assert "start one with `amqp-broker serve`" in last
    assert "Traceback" not in done.stderr and "java" not in done.stderr, done.stderr
