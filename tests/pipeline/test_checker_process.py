"""The checker as a process, asked by a broker about sets that nobody decided."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from amqp_broker.client import BlockingConnection, connect
from amqp_broker.configuration_halves import HalfGroupConfig
from amqp_broker.frames import encode_message
from amqp_broker.pipeline.messages_of_rows import Encoded
from amqp_broker.pipeline.set_client import SetClient
from amqp_broker.pipeline.set_writer import write_set
from amqp_broker.testing import memory_config, running_broker

GROUP = "spark"
ASKS_SOON = HalfGroupConfig(name=GROUP, first_check_ms=20, retry_ms=20, retry_max_ms=20, max_attempts=50)


@pytest.fixture
def url() -> Iterator[str]:
    """A broker that asks soon and often."""
    with running_broker(memory_config(half_groups=(ASKS_SOON,))) as broker:
        yield broker.url


@pytest.fixture
def connection(url: str) -> Iterator[BlockingConnection]:
    """To that broker."""
    with connect(url) as opened:
        yield opened


def checkpoint(folder: Path, query_id: str, done: int, age_s: float) -> Path:
    """The checkpoint of a query that planned the batch after `done`."""
    path = folder / query_id
    for name, last in (("offsets", done + 1), ("commits", done)):
        (path / name).mkdir(parents=True)
        for batch in range(last + 1):
            (path / name / str(batch)).write_text("v1\n{}")
    (path / "metadata").write_text(f'{{"id":"{query_id}"}}')
    then = time.time() - age_s
    for changed in (path / "metadata", path / "offsets", path / "commits"):
        os.utime(changed, (then, then))
    return path


def test_it_voids_the_sets_of_a_query_that_is_gone_and_no_others(
    url: str, connection: BlockingConnection, tmp_path: Path
) -> None:
    """One query has been silent for an hour, one is at work, one is unknown: the first one's set goes."""
    client = SetClient(connection, GROUP)
    folders = [checkpoint(tmp_path, "gone", 0, 3_700), checkpoint(tmp_path, "alive", 0, 0)]
    rows = Encoded(None, [b""], [encode_message(body=b"row")])
    for producer in ("gone", "alive", "stranger"):
        write_set(client, producer, 1, [rows], "out")
    command = [sys.executable, "-m", "amqp_broker.pipeline.checker", "--url", url, "--group", GROUP]
    command += [part for folder in folders for part in ("--checkpoint", str(folder))]
    asked: dict[str, str] = {}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as checker:
        try:
            assert checker.stderr is not None
            for line in checker.stderr:
                words = line.split()
                asked[words[3].rstrip(",")] = line
                if len(asked) == 3 and not client.status("gone").sets:
                    break
        finally:
            checker.terminate()
    assert "rollback, nothing changed in the checkpoint for 37" in asked["gone"]
    assert "unknown, the query may live" in asked["alive"]
    assert "unknown, no checkpoint of this producer" in asked["stranger"]
    assert [len(client.status(producer).sets) for producer in ("alive", "stranger")] == [1, 1]


def test_it_says_what_is_missing(tmp_path: Path) -> None:
    """No broker: exit status 1; no checkpoint: a line about it."""
    command = [sys.executable, "-m", "amqp_broker.pipeline.checker", "--url", "amqp://127.0.0.1:1"]
    ran = subprocess.run([*command, "--checkpoint", str(tmp_path)], capture_output=True, text=True)
    assert ran.returncode == 1
    assert "no checkpoint there yet" in ran.stderr
    assert "amqp://127.0.0.1:1" in ran.stderr
