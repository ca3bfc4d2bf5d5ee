"""Who answers check-backs as a process, asked by a broker about sets that nobody decided."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from amqp_broker.client import BlockingConnection, connect
from amqp_broker.configuration import HalfGroupConfig
from amqp_broker.frames import encode_message
from amqp_broker.pipeline.epochs import write_sets
from amqp_broker.pipeline.messages_of_rows import Encoded
from amqp_broker.pipeline.set_brokers import COORDINATOR, SetBrokers
from amqp_broker.pipeline.set_client import SetClient, SetGone
from amqp_broker.testing import memory_config, running_broker
from tests.pipeline.receiving import drained

GROUP = "spark"
PREPARING = ("decided", "forgotten", "gone", "alive")
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


def answers(folders: list[Path], *arguments: str) -> Iterator[dict[str, str]]:
    """Runs the program. After each of its lines: the last one about each producer."""
    command = [sys.executable, "-m", "amqp_broker.pipeline.check_backs", *arguments]
    command += [part for folder in folders for part in ("--checkpoint", str(folder))]
    asked: dict[str, str] = {}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as program:
        try:
            assert program.stderr is not None
            for line in program.stderr:
                asked[line.split()[3].rstrip(",")] = line
                yield asked
        finally:
            program.terminate()


def test_it_voids_the_sets_of_a_query_that_is_gone_and_no_others(
    url: str, connection: BlockingConnection, tmp_path: Path
) -> None:
    """One query has been silent for an hour, one is at work, one is unknown: the first one's set goes."""
    client = SetClient(connection, GROUP)
    brokers = SetBrokers([url], GROUP, lambda number: connection, lambda number: None)
    folders = [checkpoint(tmp_path, "gone", 0, 3_700), checkpoint(tmp_path, "alive", 0, 0)]
    rows = Encoded(None, [b""], [encode_message(body=b"row")])
    for producer in ("gone", "alive", "stranger"):
        write_sets(brokers, producer, 1, [rows], "out")
    for asked in answers(folders, "--url", url, "--group", GROUP):
        if len(asked) == 3 and not client.status("gone").sets:
            break
    assert "rollback, nothing changed in the checkpoint for 37" in asked["gone"]
    assert "unknown, the query may live" in asked["alive"]
    assert "unknown, no checkpoint of this producer" in asked["stranger"]
    assert [len(client.status(producer).sets) for producer in ("alive", "stranger")] == [1, 1]


def test_it_says_what_is_missing(tmp_path: Path) -> None:
    """No broker: exit status 1; no checkpoint: a line about it."""
    command = [sys.executable, "-m", "amqp_broker.pipeline.check_backs", "--url", "amqp://127.0.0.1:1"]
    ran = subprocess.run([*command, "--checkpoint", str(tmp_path)], capture_output=True, text=True)
    assert ran.returncode == 1
    assert "no checkpoint there yet" in ran.stderr
    assert "amqp://127.0.0.1:1" in ran.stderr


@pytest.fixture
def two() -> Iterator[list[str]]:
    """Two brokers that ask soon and often."""
    config = memory_config(half_groups=(ASKS_SOON,))
    with running_broker(config) as one, running_broker(config) as other:
        yield [one.url, other.url]


def test_it_ends_what_is_prepared_as_the_coordinator_says(two: list[str], tmp_path: Path) -> None:
    """Decided: applied, whoever the query is. Not decided: ruled out if its query is gone, or the coordinator
    does not know it any more; of a query that lives it stays.
    """
    folders = [checkpoint(tmp_path, "gone", 0, 3_700), checkpoint(tmp_path, "alive", 0, 0)]
    rows = Encoded(None, [b""] * 2, [encode_message(body=b"1"), encode_message(body=b"2")], [0, 1])
    with connect(two[0]) as first, connect(two[1]) as second:
        brokers = SetBrokers(two, GROUP, lambda number: (first, second)[number], lambda number: None)
        written = {name: write_sets(brokers, name, 1, [rows], "out") for name in PREPARING}
        decided, forgotten = written["decided"], written["forgotten"]
        brokers.ask(COORDINATOR, lambda client: client.commit_epoch("decided", 1, decided.sets))
        forgotten_ids = [each.set_id for each in forgotten.sets]
        brokers.ask(COORDINATOR, lambda client: client.void("forgotten", 1, forgotten_ids))
        for asked in answers(folders, "--url", ";".join(two)):
            left = {name: brokers.status(1, name, 1).sets for name in PREPARING}
            if asked.keys() >= set(PREPARING) and not any(left[name] for name in PREPARING[:3]):
                break
        assert "applied" in asked["decided"] and f"{two[0]} decided its epoch" in asked["decided"]
        assert "rollback" in asked["forgotten"] and "does not know it any more" in asked["forgotten"]
        assert "unknown, the query may live" in asked["alive"]
        assert [received.body for received in drained(second, "out")] == [b"2"]
        assert [received.body for received in drained(first, "out")] == [b"1"]
        assert [len(brokers.status(number, "alive", 1).sets) for number in (0, 1)] == [2, 1]
        with pytest.raises(SetGone):
            brokers.ask(COORDINATOR, lambda client: client.commit_epoch("gone", 1, written["gone"].sets))
