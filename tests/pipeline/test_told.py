"""The error of ours inside of what Spark raises."""

from __future__ import annotations

import subprocess
import sys

import pytest

from amqp_broker.pipeline.errors import OptionError
from amqp_broker.pipeline.told import told
from amqp_broker.testing.blocking_peer import PATIENCE_S

OF_SPARK = """[PYTHON_DATA_SOURCE_ERROR] Failed to plan: Traceback (most recent call last):
  File "pyspark/worker.py", line 5, in main
    pass
amqp_broker.pipeline.{room}.{name}: expected offsets 1 to 5, but there are none: do this

During handling of the above exception, another exception occurred:
UnboundLocalError: cannot access local variable
 SQLSTATE: 38000
"""
PROGRAM = """
import {first}
from amqp_broker.pipeline.told import tell_at_the_end
tell_at_the_end()
tell_at_the_end()
def job():
    raise RuntimeError({text!r})
job()
"""


@pytest.mark.parametrize(
    ("room", "name", "said"),
    [("errors", "OptionError", "OptionError"), ("retained_client", "Dropped", "DataLoss")],
)
def test_the_error_of_ours_is_found_in_that_of_spark(room: str, name: str, said: str) -> None:
    """By its documented name, without what stands around it."""
    error = RuntimeError(OF_SPARK.format(room=room, name=name))
    assert told(error) == f"{said}: expected offsets 1 to 5, but there are none: do this"


def test_errors_of_ours_and_of_others() -> None:
    """One that came as it is, and one that is none."""
    assert told(OptionError("expected a, found b")) == "OptionError: expected a, found b"
    assert told(RuntimeError("amqp_broker.pipeline is not at the beginning of a line: x")) is None


def ended(text: str) -> list[str]:
    """What a program says that ends with this error."""
    program = [sys.executable, "-c", PROGRAM.format(first="sys", text=text)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1 and not done.stdout
    return done.stderr.splitlines()


def test_a_program_says_at_its_end_what_is_to_do() -> None:
    """Where it was itself, and then the error; errors of others are as always."""
    lines = ended(OF_SPARK.format(room="errors", name="DataLoss"))
    assert lines[0] == "Traceback (most recent call last):" and "in job" in "".join(lines)
    assert lines[-1] == "DataLoss: expected offsets 1 to 5, but there are none: do this"
    assert ended("the disk is full")[-1] == "RuntimeError: the disk is full"
