"""The snippets of the documents that run on Spark, as they stand there, on a fresh broker."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from amqp_broker import connect
from amqp_broker.command_line import main
from amqp_broker.configuration import QueuePolicy
from amqp_broker.embedding import memory_config, running_broker
from amqp_broker.pipeline.told import told
from tests.examples.snippets import snippets
from tests.pipeline.spark.frames import for_few_rows


def test_archive_and_report(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line is a command that ends well; the report is there."""
    monkeypatch.chdir(tmp_path)
    (found,) = snippets("docs/how-to/audit.md")
    with running_broker(memory_config()) as broker, for_few_rows(spark):
        with connect(broker.url) as connection:
            connection.open_sender("orders").send("one")
        # Spark's process has a working directory of its own.
        for line in found.at(broker.port).text.replace("./archive", f"{tmp_path}/archive").splitlines():
            command, *arguments = shlex.split(line)
            assert command == "amqp-broker" and main(arguments) == 0, line
    assert (tmp_path / "report.html").exists()


def test_reading_and_writing(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page from its top to its end: what is sent to `orders` is in `invoices`, once."""
    monkeypatch.chdir(tmp_path)
    reading, writing, listening, waiting = snippets("docs/how-to/spark.md", "python")
    (tables,) = snippets("docs/how-to/spark.md", "sql")
    policies = (QueuePolicy(pattern="orders", retention_ms=86_400_000),)
    with running_broker(memory_config(queue_policies=policies)) as broker:
        with connect(broker.url) as connection:
            connection.open_sender("orders").send("one pair of shoes")
        space: dict[str, Any] = {"told": told}
        exec(reading.at(broker.port).text, space)
        space["invoices"] = space["orders"].select("body_value")
        # Spark's process has a working directory of its own: where it stands, nothing is to be left.
        elsewhere = writing.at(broker.port).text.replace('"checkpoints/', f'"{tmp_path}/checkpoints/')
        assert str(tmp_path) in elsewhere
        exec(listening.at(broker.port).text, space)
        exec(elsewhere, space)
        space["query"].processAllAvailable()
        space["query"].stop()
        for listener in (space["losses"], space["figures"]):
            spark.streams.removeListener(listener)
        exec(waiting.text, space)
        with connect(broker.url) as connection:
            invoices = connection.open_receiver("invoices")
            assert invoices.receive(timeout_s=5).body == "one pair of shoes"
            assert invoices.receive_now() is None
        spark.sql("DROP TABLE IF EXISTS orders")
        statements = tables.at(broker.port).text.split(";\n")
        made, counted, inserted = [spark.sql(text).collect() for text in statements if text.strip()]
        assert made == inserted == [] and counted[0][0] == 1 and spark.table("orders").count() == 2
        spark.sql("DROP TABLE orders")
