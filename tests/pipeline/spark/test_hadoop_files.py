"""Checkpoints on another file system of Hadoop than that of this machine: a view of mounts (viewfs)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from amqp_broker.client import connect
from amqp_broker.embedding import RunningBroker
from amqp_broker.pipeline.checkpoints import read_checkpoint
from amqp_broker.pipeline.hadoop_files import HadoopPath, hadoop_path


@pytest.fixture
def mounted(spark: Any, tmp_path: Path) -> HadoopPath:
    """A folder of a file system with a scheme of its own, in which tmp_path is mounted."""
    name = tmp_path.name.replace("_", "")  # it stands where a host does
    configuration = spark._jsc.hadoopConfiguration()
    configuration.set(f"fs.viewfs.mounttable.{name}.link./work", tmp_path.as_uri())
    return hadoop_path(f"viewfs://{name}/work", spark)


def test_a_checkpoint_is_read_where_spark_keeps_it(
    spark: Any, broker: RunningBroker, mounted: HadoopPath, tmp_path: Path
) -> None:
    """A query writes it there and goes on from there, and whoever answers check-backs reads the same."""
    assert read_checkpoint(mounted / "checkpoint") is None
    rows = (
        spark.readStream.format("amqp")
        .options(**{"amqp.url": broker.url, "subscribe": "in.mounted", "subscription": "mounted"})
        .option("columns", "offset")
        .load()
    )
    writer = rows.writeStream.format("noop").trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(mounted / "checkpoint"))
    with connect(broker.url) as connection:
        for number in range(2):
            connection.open_sender("in.mounted").send(b"x")
            query = writer.start()
            query.awaitTermination()
            there = read_checkpoint(mounted / "checkpoint")
            assert there is not None and (there.query_id, there.done) == (str(query.id), number)
            here = read_checkpoint(tmp_path / "checkpoint")
            assert here is not None and there.changed_at_s == pytest.approx(here.changed_at_s, abs=2)


def test_files_are_written_named_listed_and_removed(mounted: HadoopPath, tmp_path: Path) -> None:
    """By the methods that a path of this machine has."""
    (mounted / "folder/fresh").write_bytes(b"text")
    (mounted / "folder/fresh").rename(mounted / "folder/file")
    assert (tmp_path / "folder/file").read_text() == (mounted / "folder/file").read_text() == "text"
    assert [entry.name for entry in (mounted / "folder").iterdir()] == ["file"]
    assert (mounted / "folder").is_dir() and not (mounted / "folder/file").is_dir()
    with pytest.raises(OSError, match="folder/none: it was not renamed to|FileNotFound"):
        (mounted / "folder/none").rename(mounted / "folder/file")
    with pytest.raises(OSError, match="FileNotFoundException"):
        (mounted / "folder/none").read_bytes()
    (mounted / "folder").remove()
    (mounted / "folder").remove()
    assert not (mounted / "folder").exists() and not (tmp_path / "folder").exists()


def test_a_scheme_that_hadoop_does_not_know_is_told(spark: Any) -> None:
    """With the words of Hadoop."""
    with pytest.raises(OSError, match="nowhere://x/y: .*No FileSystem for scheme"):
        hadoop_path("nowhere://x/y", spark).exists()
