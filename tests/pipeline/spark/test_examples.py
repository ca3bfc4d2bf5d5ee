"""The examples of the pipeline run as they stand, and do what they say."""

from __future__ import annotations

import datetime
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pyarrow.parquet as pq
import pytest

from amqp_broker.client import BlockingConnection, connect
from amqp_broker.configuration import BrokerConfig, ListenerConfig, load_configuration
from amqp_broker.embedding import RunningBroker
from amqp_broker.testing import running_broker
from tests.pipeline.receiving import drained
from tests.pipeline.spark.class_archive import short_life
from tests.pipeline.spark.frames import for_few_rows
from tests.tidy.sources import ROOT

EXAMPLES = ROOT / "examples" / "pipeline"


def configured() -> BrokerConfig:
    """The examples' configuration, in memory and on a free port."""
    config = load_configuration(EXAMPLES / "broker.toml")
    return attrs.evolve(config, memory=True, listeners=(ListenerConfig(url="amqp://127.0.0.1:0"),))


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    """A broker as the examples want it."""
    with running_broker(configured()) as running:
        yield running


def run(folder: Path, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """An example to its end in a process of its own, in `folder`; what it said goes with the error when it
    fails.
    """
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=folder, env={**os.environ, "PYTHONPATH": path, "JAVA_TOOL_OPTIONS": short_life()},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture
def here(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., str]]:
    """Runs an example to its end in this process, with the session that there is; gives what it printed."""

    def run_here(name: str, *arguments: str) -> str:
        monkeypatch.setattr("sys.argv", [name, *arguments])
        try:
            runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        except SystemExit as end:
            assert not end.code, capsys.readouterr()
        return capsys.readouterr().out

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(type(spark), "stop", lambda session: None)
    with for_few_rows(spark):
        yield run_here


def order(number: int, item: str, pieces: int) -> bytes:
    """As a shop sends it."""
    return json.dumps({"order": f"order-{number}", "item": item, "pieces": pieces}).encode()


def taken(connection: BlockingConnection, address: str) -> list[Any]:
    """What is there, and no longer after this."""
    return [received.body for received in drained(connection, address)]


def test_the_configuration_keeps_what_the_examples_read() -> None:
    """Orders and invoices are there at the start, retain, and have events."""
    config = configured()
    assert config.queues_at_start() == ("orders", "invoices", "large-orders")
    assert all(
        config.policy_of(name).retains and config.policy_of(name).events for name in ("orders", "invoices")
    )


@pytest.mark.timeout(900)
def test_each_committed_order_has_one_invoice_whoever_dies(tmp_path: Path) -> None:
    """The shop and the query are killed; the example brings its own broker."""
    lines = run(tmp_path, "enrich_orders.py").stdout.splitlines()
    assert lines[1] == "order 1 is in the table and not committed, order 2 is in no table: the shop is killed"
    assert "order 1: the broker asks, the answer is commit" in lines
    assert "order 2: the broker asks, the answer is rollback" in lines
    killed = re.fullmatch(r"(\d+) invoices came; the query is killed, and started again", lines[-3])
    ended = re.fullmatch(r"(\d+) orders placed, (\d+) invoices: 0 missing, 0 too many, in order", lines[-1])
    assert killed and ended
    assert 0 < int(killed[1]) < int(ended[1]) == int(ended[2]) <= 109


def test_the_first_script_reads_the_day_and_goes_on_where_it_ended(
    here: Callable[..., str], broker: RunningBroker, tmp_path: Path
) -> None:
    """Totals of the whole day each time, large orders once each, over two runs; nothing is taken away."""
    day = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}"
    arguments = (broker.url, str(tmp_path / "checkpoint"), "--out", str(tmp_path / "totals"), "--day", day)
    with connect(broker.url) as connection:
        sender = connection.open_sender("orders")
        sender.send_many([order(1, "boots", 2), order(2, "socks", 30), order(3, "boots", 10)])
        assert "the stream read 3 new orders" in here("first_script.py", *arguments)
        assert totals(tmp_path / "totals") == {"boots": (2, 12), "socks": (1, 30)}
        assert taken(connection, "large-orders") == [order(2, "socks", 30), order(3, "boots", 10)]
        sender.send_many([order(4, "socks", 1), order(5, "laces", 11), b"no order"])
        assert "the stream read 3 new orders" in here("first_script.py", *arguments)
        assert totals(tmp_path / "totals") == {
            "boots": (2, 12),
            "laces": (1, 11),
            "socks": (2, 31),
            None: (1, None),
        }
        assert taken(connection, "large-orders") == [order(5, "laces", 11)]
        assert len(taken(connection, "orders")) == 6


def totals(folder: Path) -> dict[str | None, tuple[int, int | None]]:
    """Orders and pieces of each item, of all days."""
    rows = pq.read_table(folder).to_pylist()
    return {row["item"]: (row["orders"], row["pieces"]) for row in rows}


def test_the_audit_of_a_day_passes(here: Callable[..., str], tmp_path: Path) -> None:
    """Every order is accounted for, and the report is written."""
    said = here("audit_a_day.py", "--orders", "200", "--out", str(tmp_path / "report.html"))
    assert re.search(r"^\d+ orders were consumed$", said, re.MULTILINE)
    assert "PASS" in (tmp_path / "report.html").read_text(encoding="utf-8")
