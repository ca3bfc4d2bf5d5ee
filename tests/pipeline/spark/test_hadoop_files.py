"""Checkpoints and archives on another file system of Hadoop than that of this machine: a view of mounts
(viewfs).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from amqp_broker.client import connect
from amqp_broker.command_line import main
from amqp_broker.configuration import QueuePolicy
from amqp_broker.embedding import RunningBroker
from amqp_broker.pipeline.archive import read_events
from amqp_broker.pipeline.archive_layout import ArchiveLayout
from amqp_broker.pipeline.checkpoints import read_checkpoint
from amqp_broker.pipeline.folders import LocalPath
from amqp_broker.pipeline.hadoop_files import HadoopPath, hadoop_path
from amqp_broker.testing import memory_config, running_broker
from tests.pipeline.spark.queries import run_to_end


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
            query = run_to_end(writer.start)
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


def test_an_archive_is_kept_where_a_url_says(
    spark: Any, mounted: HadoopPath, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Written in two runs, compacted, verified and audited there; what is damaged there is told by its URL.
    The same folder, looked at from this machine, is the same archive.
    """
    url = str(mounted / "archive")
    here, there = ArchiveLayout(tmp_path / "archive"), ArchiveLayout(url)
    config = attrs.evolve(memory_config(), queue_policies=(QueuePolicy(pattern="**", events=True),))
    with running_broker(config) as broker, connect(broker.url) as connection:
        for run in range(2):
            connection.open_sender("in.archived").send(f"message {run}")
            assert main(["pipeline", "archive", broker.url, url, "--quiet"]) == 0, capsys.readouterr().err
            assert there.epochs() == here.epochs() == list(range(run + 1))
    assert there.octets() == here.octets() > 0
    assert there.lsns(1) == here.lsns(1) and there.lsns(1).start == there.lsns(0).stop
    assert main(["pipeline", "compact", url, "--quiet"]) == 0
    assert (there.epochs(), there.segments()) == ([], [(0, 1)])
    assert not (tmp_path / "archive/events/epoch=0").exists()
    there.verify()
    here.verify()
    assert there.told() == here.told()
    assert there.told()[-1].next == there.told()[0].first + read_events(spark, there).count()
    assert main(["pipeline", "audit", url, "--quiet"]) == 0, capsys.readouterr()
    file = sorted((tmp_path / "archive").rglob("*.parquet"))[0]
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    (file.parent / f".{file.name}.crc").unlink()
    capsys.readouterr()
    assert main(["pipeline", "audit", url, "--quiet"]) == 2
    said = capsys.readouterr().err
    assert f"{url}/compacted/0-1/" in said and "expected what was written, and it is damaged" in said


def test_a_file_is_replaced_as_a_whole(mounted: HadoopPath, tmp_path: Path) -> None:
    """A new one, then in place of the former; nothing else is left."""
    for text in ("one", "two, and longer", "3"):
        (mounted / "said").replace_text(text)
        assert (tmp_path / "said").read_text() == (mounted / "said").read_text() == text
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(".")) == ["said"]


def test_a_file_is_read_from_any_place(mounted: HadoopPath, tmp_path: Path) -> None:
    """As one of this machine."""
    (tmp_path / "file").write_bytes(bytes(range(100)))
    with (mounted / "file").reader() as there, LocalPath(tmp_path / "file").reader() as here:
        for file in (there, here):
            assert file.read(2) == b"\x00\x01"
            file.seek(-3, 2)
            assert (file.tell(), file.read()) == (97, b"abc")
            file.seek(10)
            assert file.read(1) == b"\n"
    assert (mounted / "file").sha256() == LocalPath(tmp_path / "file").sha256()
    assert (mounted / "file").octets() == 100


def test_a_scheme_that_hadoop_does_not_know_is_told(spark: Any) -> None:
    """With the words of Hadoop."""
    with pytest.raises(OSError, match="nowhere://x/y: .*No FileSystem for scheme"):
        hadoop_path("nowhere://x/y", spark).exists()
