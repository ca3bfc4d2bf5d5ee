"""Connections and links as `$management` sees them, and the commands that ask it, over real sockets."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from amqp_broker.client import ConnectionGone, LinkRefused, OutcomeUnknown, connect
from amqp_broker.command_line import main
from amqp_broker.embedding import RunningBroker, running_broker
from amqp_broker.management.command import as_table
from amqp_broker.testing import memory_config


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    """A broker in a thread."""
    with running_broker(memory_config()) as running:
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
    assert lines[0].split() == ["name", "kind", "messages", "bytes", "consumers", "senders"]
    (row,) = [line for line in lines if line.startswith("orders.eu ")]
    assert row.split()[:3] == ["orders.eu", "queue", "12"]
    assert len({line.index("kind") if at == 0 else line.index("queue") for at, line in enumerate(lines)}) == 1


def test_what_a_broker_refuses_is_said_with_its_status(
    broker: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """1 where the broker says no, 69 where there is none."""
    at = ("--url", broker.url)
    assert "404: expected the identity of a queue, got 'gone'" in said(
        capsys, "show", "queue", "gone", *at, status=1
    )
    assert "of the types broker, queue" in said(capsys, "list", "planet", *at, status=1)
    assert "404" in said(capsys, "rollback", "00", *at, status=1)
    assert "127.0.0.1:1" in said(capsys, "list", "queue", "--url", "amqp://127.0.0.1:1", status=69)


def test_many_entities_come_in_pages(broker: RunningBroker, capsys: pytest.CaptureFixture[str]) -> None:
    """More than one reply holds: each once, in order."""
    at = ("--url", broker.url)
    with connect(broker.url) as client:
        for number in range(1_100):
            client.open_sender(f"many.{number:04}").close()
    rows = json.loads(said(capsys, "list", "queue", "--json", *at))
    names = [row["name"] for row in rows if row["name"].startswith("many.")]
    assert names == [f"many.{number:04}" for number in range(1_100)]


def test_nobody_receives_from_management(broker: RunningBroker) -> None:
    """Replies go where the request says."""
    with connect(broker.url) as client, pytest.raises(LinkRefused):
        client.open_receiver("$management")


def test_a_name_cannot_steer_a_terminal() -> None:
    """What is not printable is shown as a sign for that."""
    table = as_table(("name", "messages"), [["a\x1b[2Jb", 1], ["q", None]])
    assert table == "name    messages\na\ufffd[2Jb         1\nq              -\n"
