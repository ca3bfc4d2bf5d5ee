"""Connections and links as `$management` sees them, and the commands that ask it, over real sockets."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from amqp_broker.client import ConnectionGone, LinkRefused, OutcomeUnknown, connect
from amqp_broker.command_line import main
from amqp_broker.configuration import QueuePolicy
from amqp_broker.embedding import RunningBroker, running_broker
from amqp_broker.looking.output import as_json, as_table
from amqp_broker.management.command import DO
from amqp_broker.management.command_table import COMMANDS
from amqp_broker.testing import memory_config


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker in a thread."""
    small = QueuePolicy(pattern="small", max_messages=5)
    with running_broker(memory_config(queue_policies=(small,))) as running:
        yield running


def said(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> str:
    """What a command prints."""
    assert main([*arguments]) == status
    out, err = capsys.readouterr()
    return err if status else out


def test_a_connection_is_found_looked_at_and_closed(
    broker: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its client is told who closed it and why; nobody else's is."""
    at = ("--url", broker.url)
    with connect(broker.url, container_id="worker") as client, connect(broker.url) as other:
        sender = client.open_sender("jobs")
        sender.send("one")
        other_sender = other.open_sender("jobs")
        found = json.loads(said(capsys, "list", "connection", "--json", *at))
        (mine,) = [row for row in found if row["container_id"] == "worker"]
        assert (mine["links"], mine["sessions"], mine["user"], mine["tls"]) == (1, 1, "anonymous", False)
        links = json.loads(said(capsys, "list", "link", "--json", *at))
        (link,) = [row for row in links if row["connection"] == mine["identity"]]
        assert (link["address"], link["direction"], link["unsettled"]) == ("jobs", "in", 0)
        assert link["credit"] > 0
        assert said(capsys, "close", mine["identity"], "--reason", "too loud", *at) == ""
        # The message may be on its way when the connection ends.
        told = r"amqp:connection:forced: too loud \(anonymous\)"
        with pytest.raises((ConnectionGone, OutcomeUnknown), match=told):
            sender.send("two")
        other_sender.send("three")
    shown = said(capsys, "show", "queue", "jobs", *at)
    assert [line.split() for line in shown.splitlines() if line.startswith("messages")] == [["messages", "2"]]


def test_queues_are_declared_and_listed(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """As a table: numbers stand to the right."""
    at = ("--url", broker.url)
    said(capsys, "declare", "orders.eu", *at)
    said(capsys, "declare", "orders.eu", *at)
    with connect(broker.url) as client:
        sender = client.open_sender("orders.eu")
        sender.send_many([b"x"] * 12)
    lines = said(capsys, "list", "queue", *at).splitlines()
    names = ["name", "kind", "messages", "bytes", "consumers", "senders", "arrived", "sent"]
    assert lines[0].split() == names
    (row,) = [line for line in lines if line.startswith("orders.eu ")]
    assert row.split()[:3] == ["orders.eu", "queue", "12"]
    assert len({line.index("kind") if at == 0 else line.index("queue") for at, line in enumerate(lines)}) == 1


def test_what_a_broker_refuses_is_said_with_its_status(
    broker: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """1 where the broker says no, 69 where there is none."""
    at = ("--url", broker.url)
    assert "404: expected the identity of a queue, but there is no queue 'gone'" in said(
        capsys, "show", "queue", "gone", *at, status=1
    )
    assert "of the types broker, queue" in said(capsys, "list", "planet", *at, status=1)
    assert "404" in said(capsys, "transaction", "rollback", "00", *at, status=1)
    assert "127.0.0.1:1" in said(capsys, "list", "queue", "--url", "amqp://127.0.0.1:1", status=69)


def test_many_entities_come_in_pages(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """More than one reply holds: each once, in order."""
    at = ("--url", broker.url)
    with connect(broker.url) as client:
        for number in range(1_100):
            client.open_sender(f"many.{number:04}")
        rows = json.loads(said(capsys, "list", "queue", "--json", *at))
    names = [row["name"] for row in rows if row["name"].startswith("many.")]
    assert names == [f"many.{number:04}" for number in range(1_100)]


def test_nobody_receives_from_management(broker: RunningBroker) -> None:
    """Replies go where the request says."""
    with connect(broker.url) as client, pytest.raises(LinkRefused):
        client.open_receiver("$management")


def test_messages_are_sent_moved_and_received(
    broker: RunningBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than one group of them; each command says how many, and leaves the others."""
    at = ("--url", broker.url)
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{each}\n" for each in range(2_500))))
    assert said(capsys, "send", "from", *at) == "2500 messages sent\n"
    said(capsys, "declare", "there", *at)
    assert said(capsys, "copy", "from", "there", "--count", "3", *at) == "3 messages copied\n"
    assert said(capsys, "move", "from", "there", "--count", "2200", *at) == "2200 messages moved\n"
    assert json.loads(said(capsys, "purge", "from", "--json", *at)) == {"messages": 300}
    assert said(capsys, "receive", "there", "--count", "4", *at) == "0\n1\n2\n0\n"
    (first, second) = json.loads(said(capsys, "browse", "there", "--count", "2", "--json", *at))
    assert (first["offset"], first["body"], first["delivery_count"], second["body"]) == (4, "1", 0, "2")
    lines = said(capsys, "browse", "there", "--count", "1", *at).splitlines()
    assert [line.split() for line in lines] == [
        ["offset", "priority", "delivery_count", "bytes", "message_id", "subject", "body"],
        ["4", "4", "0", str(first["bytes"]), "-", "-", "1"],
    ]
    assert "state" in said(capsys, "show", "queue", "there", "--offset", "5", *at)
    assert said(capsys, "delete", "there", "--offset", "5", *at) == ""
    assert "404" in said(capsys, "show", "queue", "there", "--offset", "5", *at, status=1)
    assert "2198 messages: purge" in said(capsys, "delete", "there", *at, status=1)
    assert said(capsys, "delete", "there", "--force", *at) == ""
    assert "none came" in said(capsys, "receive", "there", "--wait", "0.1", *at, status=1)
    assert said(capsys, "redrive", "from", *at) == "0 messages moved back\n"


def test_what_was_done_before_a_refusal_is_said(
    broker: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """A queue gets full in between."""
    at = ("--url", broker.url)
    said(capsys, "send", "much", *map(str, range(8)), *at)
    said(capsys, "declare", "small", *at)
    told = said(capsys, "move", "much", "small", *at, status=1)
    assert "409: queue 'small' is full (max_messages, 5" in told and "(5 messages were moved before)" in told


def test_transactions_and_half_messages_are_decided(
    broker: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """By their identities, as `list` shows them."""
    at = ("--url", broker.url)
    with connect(broker.url, container_id="worker") as client:
        producer = client.producer("g")
        producer.send_half("paid", "one", half_id="a")
        (found,) = json.loads(said(capsys, "list", "half", "--json", *at))
        assert said(capsys, "half", "commit", found["identity"], "--reason", "checked", *at) == ""
        assert said(capsys, "receive", "paid", *at) == "one\n"
        assert "404" in said(capsys, "half", "rollback", found["identity"], *at, status=1)


def test_a_type_is_watched(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """So often as was said."""
    told = said(capsys, "watch", "broker", "--times", "2", "--every", "0", "--json", "--url", broker.url)
    assert len(told.splitlines()) == 2 and json.loads(told.splitlines()[0])[0]["identity"] == "self"


def test_a_watch_tells_how_many_a_second(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """From the second look on, by the time between: the requests themselves go over its connection."""
    at = ("--every", "0.05", "--url", broker.url)
    told = said(capsys, "watch", "connection", "--times", "2", "--json", *at)
    first, second = [json.loads(line)[-1] for line in told.splitlines()]
    assert (first["received/s"], first["received"]) == (None, 1)
    assert second["received"] == 2 and 0 < second["received/s"] <= 1 / 0.05
    table = said(capsys, "watch", "queue", "--times", "1", *at).splitlines()[0].split()
    assert table[-4:] == ["arrived", "sent", "arrived/s", "sent/s"]


def test_what_can_be_changed_is_set(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """Several attributes at once; a broker's no has its status, and what is no assignment is wrong usage."""
    at = ("--url", broker.url)
    said(capsys, "declare", "set.here", *at)
    found = json.loads(
        said(capsys, "set", "queue", "set.here", "max_messages=7", "max_deliveries=3", "--json", *at)
    )
    assert (found["max_messages"], found["max_deliveries"]) == (7, 3)
    told = said(capsys, "set", "queue", "set.here", "kind=log", *at, status=1)
    assert told.startswith("amqp-broker: 409: kind can't be changed")
    told = said(capsys, "set", "configuration", "logging.level", "value=loud", *at, status=1)
    assert '400: logging.level = "loud": must be one of' in told
    told = said(capsys, "set", "queue", "set.here", "max_messages", *at, status=2)
    assert "expected ATTRIBUTE=VALUE, got 'max_messages'" in told


def test_each_command_that_is_declared_is_done() -> None:
    """And no other."""
    assert {command.name for command in COMMANDS} == {*DO}


def test_a_shell_completes_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Commands, and their options."""
    script = tmp_path / "amqp-broker"
    script.write_text(said(capsys, "completion", "bash"))
    for words, found in ((("pur",), "purge"), (("move", "a", "b", "--sel"), "--selector")):
        typed = f"COMP_WORDS=(amqp-broker {' '.join(words)}); COMP_CWORD={len(words)}"
        ask = f"source {script}; {typed}; _shtab_amqp_broker; echo ${{COMPREPLY[@]}}"
        told = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
        assert told.stdout == f"{found}\n"
    assert "expected one of bash" in said(capsys, "completion", "cmd.exe", status=2)


def test_completion_says_what_it_needs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package that is not there by itself."""
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert "pip install 'amqp-broker[completion]'" in said(capsys, "completion", "bash", status=2)


def test_octets_in_json() -> None:
    """Text where they are UTF-8."""
    assert as_json({"a": b"x", "b": b"\xff"}) == '{"a": "x", "b": {"base64": "/w=="}}\n'


def test_colours_are_for_the_head_alone() -> None:
    """Where a terminal has them."""
    assert as_table(("a",), [[1]], colours=True) == "\x1b[1ma\x1b[0m\n1\n"


def test_a_name_cannot_steer_a_terminal() -> None:
    """What is not printable is shown as a sign for that."""
    table = as_table(("name", "messages"), [["a\x1b[2Jb", 1], ["q", None]])
    assert table == "name    messages\na\ufffd[2Jb         1\nq              -\n"
