"""The tables of the load tool, each with one small case from start to end."""

from __future__ import annotations

import shutil

import pytest

from amqp_broker import RunningBroker
from amqp_broker.conformance.load.__main__ import main

SMALL = ["--seconds", "0.1", "--runs", "1", "--patience", "0"]


@pytest.mark.parametrize(
    ("table", "case"),
    [
        ("transactions", "every fourth rolled back"),
        ("halves", "put, committed and delivered"),
        ("messages", "durable, window of 10"),
    ],
)
def test_a_table_has_a_row_for_each_case(table: str, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A verified run, and what it cost the broker and the client."""
    client = [] if table == "halves" else ["--client", "python"]
    assert main([table, *SMALL, *client, "--only", case]) == 0
    said, empty, head, line, row, *_ = capsys.readouterr().out.splitlines()
    assert f"--only {case}" in said and not empty
    assert head.count("|") == line.count("|") == row.count("|") == 8
    assert f"{case} |" in row
    assert all(cell.strip() for cell in row.split("|")[2:6])


@pytest.mark.parametrize("case", ["settled, 4 pairs", "round trip (outcome)"])
def test_the_c_client_measures_any_broker(
    case: str, amqp_broker: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """It plays the roles of the Python client, and its figures go into the same table. Without a C compiler
    the Python client plays them.
    """
    client = "rawload" if shutil.which("cc") and shutil.which("make") else "python"
    options = ["--client", client, "--url", f"{amqp_broker.url}/given", "--only", case]
    assert main(["messages", *SMALL, *options]) == 0
    assert f"{case} |" in capsys.readouterr().out


def test_what_a_broker_refuses_is_said_in_the_row(
    amqp_broker: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table has its other rows, and the exit status is 1."""
    options = ["--client", "python", "--url", f"{amqp_broker.url}/no%20%07", "--only", "settled, 100 B"]
    assert main(["messages", *SMALL, *options]) == 1
    assert "FAILED: receiver-0: the broker refuses" in capsys.readouterr().out


def test_a_backlog_is_read_as_it_was_sent(capsys: pytest.CaptureFixture[str]) -> None:
    """`.ci/run backlog` sends two million."""
    assert main(["backlog", "--count", "3000"]) == 0
    said = capsys.readouterr().out
    assert "3,000 messages sent" in said and "3,000 messages received" in said
    assert said.endswith("lost 0, duplicates 0, out of order 0, foreign 0\npassed\n")
