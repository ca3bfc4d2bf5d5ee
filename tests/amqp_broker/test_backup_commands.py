"""Backups of a running broker, under load and under kills, and the commands for stores and messages."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from amqp_broker.client import connect, message
from amqp_broker.client.blocking_management import Refused as AskerRefused
from amqp_broker.command_line import main
from amqp_broker.configuration import BrokerConfig, BrokerLimits, ListenerConfig
from amqp_broker.embedding import RunningBroker, running_broker
from amqp_broker.exit_status import NOT_REACHED, REFUSED
from amqp_broker.frames import plain_value
from amqp_broker.management.command import Asker
from amqp_broker.management.transfers import LINE_BYTES_MAX
from amqp_broker.persistence.fault_points import arm, disarm
from amqp_broker.persistence.sqlite import verify_directory
from amqp_broker.persistence.store_file import DATABASE_NAME
from amqp_broker.testing.blocking_peer import PATIENCE_S
from tests.persistence.stores import edit

ANY = (ListenerConfig(url="amqp://127.0.0.1:0"),)


def config_of(directory: Path, **limits: int) -> BrokerConfig:
    """A broker on disk, with a place for backups."""
    (directory / "backups").mkdir(exist_ok=True)
    return BrokerConfig(
        data_dir=str(directory / "data"), backup_dir=str(directory / "backups"), listeners=ANY,
        limits=BrokerLimits(**limits),
    )  # fmt: skip


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """One with some messages."""
    with running_broker(config_of(tmp_path)) as running:
        with connect(running.url) as client:
            client.open_sender("orders").send_many([f"{number}".encode() * 500 for number in range(2_000)])
        yield running


def said(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    """What a command prints."""
    assert main([*arguments]) == status
    out, err = capsys.readouterr()
    return err if status > 1 or (status and not out) else out


def until(happened: Callable[[], bool]) -> None:
    """Wait for it."""
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def ended(asker: Asker, name: str) -> Any:
    """What a backup is after its end."""
    until(lambda: asker.ask("READ", "backup", identity=name)["state"] in ("done", "failed"))
    return asker.ask("READ", "backup", identity=name)


def bodies(url: str, queue: str) -> list[bytes]:
    """All messages of a queue, taken."""
    with connect(url) as client:
        receiver = client.open_receiver(queue, credit=100)
        found = []
        while (received := receiver.receive_now()) is not None:
            found.append(received.body)
            receiver.accept(received)
        return found


def test_a_backup_of_a_running_broker_is_restored(
    broker: RunningBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Made, listed, verified, restored, and served: all messages are there."""
    assert "bytes" in said(capsys, "backup", "monday", "--url", broker.url)
    (row,) = json.loads(said(capsys, "list", "backup", "--json", "--url", broker.url))
    assert (row["name"], row["state"], row["percent"]) == ("monday", "done", 100)
    assert row["begun_at_ms"] <= row["ended_at_ms"] and row["reason"] is None
    copy, again = tmp_path / "backups" / "monday", tmp_path / "restored"
    assert sorted(path.name for path in copy.iterdir()) == ["backup.json", DATABASE_NAME]
    assert {path.stat().st_mode & 0o777 for path in copy.iterdir()} == {0o600}
    assert copy.stat().st_mode & 0o777 == 0o700
    assert "as the store" in said(capsys, "restore", str(copy), str(again))
    assert "no faults found" in said(capsys, "check", str(again))
    with running_broker(BrokerConfig(data_dir=str(again), listeners=ANY)) as restored:
        assert bodies(restored.url, "orders") == [f"{number}".encode() * 500 for number in range(2_000)]


def test_what_a_backup_may_be_called(
    broker: RunningBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name becomes a directory below the configured one, and nothing else of the file system."""
    at = ("--url", broker.url)
    for name in ("..", "../x", "/tmp/x", "a/b", ".hidden", "", "x" * 129, "x.partial", "a b", "a\n"):
        assert "400" in said(capsys, "backup", name, *at, status=REFUSED), name
    (tmp_path / "backups" / "mine").write_text("mine")
    assert "never overwrites" in said(capsys, "backup", "mine", *at, status=REFUSED)
    assert os.listdir(tmp_path / "backups") == ["mine"]
    with running_broker(BrokerConfig(memory=True, listeners=ANY)) as other:
        assert "backup_dir" in said(capsys, "backup", "x", "--url", other.url, status=REFUSED)
    assert "expected a listener" in said(
        capsys, "backup", "x", "--url", "amqp://127.0.0.1:1", status=NOT_REACHED
    )


def test_a_store_in_memory_has_no_backup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says so."""
    config = BrokerConfig(memory=True, backup_dir=str(tmp_path), listeners=ANY)
    with running_broker(config) as broker:
        assert "in memory" in said(capsys, "backup", "x", "--url", broker.url, status=REFUSED)


def test_a_backup_that_cannot_be_written_fails_alone(
    broker: RunningBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its directory is gone: the broker says why, and goes on."""
    (tmp_path / "backups").rmdir()
    assert "could not be made" in said(capsys, "backup", "x", "--url", broker.url, status=REFUSED)
    (tmp_path / "backups").mkdir()
    said(capsys, "backup", "x", "--url", broker.url)


class Fault(Exception):
    pass


def _fail() -> None:
    raise Fault("nobody expected this")


def test_a_fault_in_a_backup_ends_the_backup(
    broker: RunningBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever it happens; nothing of it is left, and the broker serves."""
    for point in ("backup.before", "backup.step", "backup.before_rename"):
        arm(point, _fail)
        try:
            told = said(capsys, "backup", "x", "--url", broker.url, status=REFUSED)
        finally:
            disarm()
        assert "fault" in told.lower(), told
        assert not (tmp_path / "backups" / "x").exists()
    said(capsys, "backup", "x", "--url", broker.url)
    assert os.listdir(tmp_path / "backups") == ["x"]


def test_one_backup_at_a_time_and_it_can_be_given_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At one percent of the writer's time a backup takes long; `max_backups_listed` bounds what is told."""
    with running_broker(config_of(tmp_path, backup_share_percent=1, max_backups_listed=2)) as broker:
        with connect(broker.url) as client:
            client.open_sender("orders").send_many([b"x" * 10_000] * 2_000)
        with Asker(broker.url) as asker:
            assert asker.ask("CREATE", "backup", {}, name="one")["state"] == "running"
            with pytest.raises(AskerRefused, match="'one' is under way"):
                asker.ask("CREATE", "backup", {}, name="two")
            asker.ask("DELETE", "backup", identity="one")
            found = ended(asker, "one")
            assert (found["state"], found["reason"]) == ("failed", "it was given up by hand")
            assert os.listdir(tmp_path / "backups") == []
            with pytest.raises(AskerRefused, match="409"):
                asker.ask("DELETE", "backup", identity="one")
            for name in ("two", "three"):
                asker.ask("CREATE", "backup", {}, name=name)
                asker.ask("DELETE", "backup", identity=name)
                ended(asker, name)
            assert [row[0] for row in asker.all("backup")[1]] == ["three", "two"]
            asker.ask("CREATE", "backup", {}, name="late")
    # The broker ended while it was under way.
    assert os.listdir(tmp_path / "backups") == []
    assert verify_directory(tmp_path / "data") == []


def test_senders_are_served_while_a_backup_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The copy is one committed moment: what was accepted before it began is there, and of each sender's
    messages a beginning without a hole.
    """
    with running_broker(config_of(tmp_path)) as broker:
        stop = threading.Event()
        sent = [0, 0]

        def send(which: int) -> None:
            with connect(broker.url) as client:
                sender = client.open_sender(f"q{which}")
                while not stop.is_set():
                    sender.send(b"%d" % sent[which] + b" " * 4_000)
                    sent[which] += 1

        threads = [threading.Thread(target=send, args=(which,)) for which in (0, 1)]
        for thread in threads:
            thread.start()
        until(lambda: min(sent) >= 100)
        before = [*sent]
        said(capsys, "backup", "x", "--url", broker.url)
        after = [*sent]
        stop.set()
        for thread in threads:
            thread.join()
        assert min(sent) > 0
    restored = tmp_path / "restored"
    said(capsys, "restore", str(tmp_path / "backups" / "x"), str(restored), "--keep-id")
    assert "no faults found" in said(capsys, "check", str(restored))
    with running_broker(BrokerConfig(data_dir=str(restored), listeners=ANY)) as broker:
        for which in (0, 1):
            found = [int(body) for body in bodies(broker.url, f"q{which}")]
            assert found == [*range(len(found))]
            assert before[which] <= len(found) <= after[which] + 1


def test_a_closed_store_is_backed_up_salvaged_and_repaired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the commands, whose exit status tells whether something was found."""
    with running_broker(config_of(tmp_path)) as broker, connect(broker.url) as client:
        for body in (b"one", b"two", b"three"):
            client.open_sender("orders").send(body * 1_000)
    data = tmp_path / "data"
    assert "bytes" in said(capsys, "backup", str(tmp_path / "copy"), "--data", str(data))
    assert "overwrites" in said(capsys, "backup", str(tmp_path / "copy"), "--data", str(data), status=2)
    assert "holds a store" in said(capsys, "restore", str(tmp_path / "copy"), str(data), status=2)
    said(capsys, "salvage", str(data), str(tmp_path / "whole"))
    edit(data, "UPDATE segment SET bodies=zeroblob(length(bodies)) WHERE id=2")
    assert "checksum" in said(capsys, "check", str(data), status=1)
    told = said(capsys, "salvage", str(data), str(tmp_path / "new"), status=1)
    assert "repaired: put away: queue" in told and "no faults found" in told
    told = said(capsys, "check", "--repair", str(data))
    assert "repaired: put away: queue" in told and "no faults found" in told
    for directory in (tmp_path / "new", data):
        with running_broker(BrokerConfig(data_dir=str(directory), listeners=ANY)) as broker:
            assert [body[:3] for body in bodies(broker.url, "orders")] == [b"one", b"thr"]


# Messages


@pytest.mark.parametrize("form", ["json", "raw"])
def test_what_is_exported_is_imported(
    form: str, broker: RunningBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All sections, octet for octet; the messages stay; a file is never overwritten."""
    at, file = ("--url", broker.url), str(tmp_path / "messages")
    with connect(broker.url) as client:
        sender = client.open_sender("odd")
        sender.send(
            message({"deep": [1, None, 2.5, "ü"]}, subject="s", application_properties={"a": 1, "b": b"\xff"})
        )
        sender.send(message(bytes(range(256)), priority=7, message_annotations={"x-opt-a": 1}))
        sender.send(message("text", durable=False))
    export = ("export", "odd", "--format", form, "--output", file, *at)
    assert said(capsys, *export) == "3 messages exported\n"
    assert "exists" in said(capsys, *export, status=REFUSED)
    assert json.loads(said(capsys, "import", "even", "--format", form, "--input", file, "--json", *at)) == {
        "messages": 3
    }
    again = str(tmp_path / "again")
    said(capsys, "export", "even", "--format", form, "--output", again, *at)
    assert Path(again).read_bytes() == Path(file).read_bytes()
    assert len(bodies(broker.url, "odd")) == 3
    if form == "json":
        first = json.loads(Path(file).read_text().splitlines()[0])
        assert first["body"] == {"deep": [1, None, 2.5, "ü"]} and first["properties"]["subject"] == "s"
    said(
        capsys, "export", "orders", "--count", "5", "--format", form, "--output", str(tmp_path / "five"), *at
    )
    assert said(
        capsys, "import", "five", "--format", form, "--input", str(tmp_path / "five"), *at
    ).startswith("5 ")


def test_messages_written_by_hand_are_imported(
    broker: RunningBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A body, properties; and what is wrong in a line is told with its number, and what went before."""
    at, file = ("--url", broker.url), tmp_path / "lines"
    file.write_text('{"body": "one"}\n\n{"body": [1, 2], "properties": {"subject": "s"}}\n')
    assert said(capsys, "import", "hand", "--input", str(file), *at) == "2 messages imported\n"
    assert plain_value(bodies(broker.url, "hand")) == [b"one", [1, 2]]
    for line, words in (
        ("{", "line 2"), ("7", "expected a map"), ('{"boddy": 1}', "boddy"), ('{"octets": "?"}', "base64"),
        ('{"message_format": -1}', "message_format"), ('{"properties": {"nothing": 1}}', "nothing"),
    ):  # fmt: skip
        file.write_text('{"body": "one"}\n' + line + "\n")
        told = said(capsys, "import", "hand", "--input", str(file), *at, status=REFUSED)
        assert "line 2" in told and words in told, told


def test_a_raw_file_that_is_cut_or_too_large_is_told(
    broker: RunningBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where it is wrong, in octets."""
    at, file = ("--url", broker.url), tmp_path / "raw"
    for data, words in (
        (b"\0\0", "octet 0"),
        (b"\0\0\0\x05\0\0\0\0abc", "octet 0: expected a message of 5"),
        ((LINE_BYTES_MAX + 1).to_bytes(4) + b"\0" * 4, "at most"),
    ):
        file.write_bytes(data)
        assert words in said(
            capsys, "import", "raw", "--format", "raw", "--input", str(file), *at, status=REFUSED
        )
    assert "No such file" in said(
        capsys, "import", "raw", "--input", str(tmp_path / "none"), *at, status=REFUSED
    )
