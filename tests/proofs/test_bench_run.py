"""The load tool against a running broker: every mode ends with every message once, in order; its tables."""

from __future__ import annotations

import json
import shutil
import socket

import attrs
import pytest

from amqp_broker import RunningBroker
from amqp_broker.bench.command_line import run
from amqp_broker.bench.controller import fill, leftovers
from amqp_broker.bench.receiver import Receiver
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.configuration import BrokerConfig, ListenerConfig
from amqp_broker.conformance.load.__main__ import main
from amqp_broker.embedding import running_broker


@pytest.mark.parametrize(
    "options",
    [
        ["--settled"],
        ["--durable"],
        ["--durable", "--settle-each", "--pairs", "2"],
        ["--credit", "1", "--in-flight", "1", "--count", "50"],
        ["--body", "200000", "--count", "40"],
        ["--rtt", "--count", "50", "--durable"],
        ["--rtt", "--count", "50", "--settled"],
        ["--no-sasl"],
    ],
    ids=" ".join,
)
def test_every_message_comes_once_and_in_order(
    options: list[str], amqp_broker: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status is 0, and the report says so in JSON."""
    status = run([amqp_broker.url, "--json", "--count", "3000", "--timeout", "20", *options])
    captured = capsys.readouterr()
    assert status == 0, captured
    report = json.loads(captured.out)
    assert report["lost"] == report["duplicates"] == report["out_of_order"] == report["foreign"] == 0
    assert report["received"] == report["sent"] > 0
    assert report["latency_us"]["max"] >= report["latency_us"]["p50"] > 0


def test_the_report_is_readable_and_progress_is_shown(
    amqp_broker: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rates, percentiles and counts in words; progress goes to standard error."""
    assert run([f"{amqp_broker.url}/named", "--count", "2000", "--progress"]) == 0
    captured = capsys.readouterr()
    assert "messages/s received" in captured.out
    assert "2,000 received: 0 lost, 0 duplicates, 0 out of order" in captured.out
    assert "of 2,000" in captured.err


def test_a_refused_address_is_reported(
    amqp_broker: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the broker says about the attach reaches the user."""
    assert run([amqp_broker.url, "--address", "no such thing \x07", "--count", "10"]) == 1
    assert "the broker refuses" in capsys.readouterr().err


def test_a_broker_that_is_not_there_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """A refused connection is a sentence and exit status 1, not a traceback."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    assert run([f"amqp://127.0.0.1:{port}", "--count", "10"]) == 1
    assert "refused" in capsys.readouterr().err


# Transactions


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--durable", "--retire", "--live", "1,7"],
        ["--durable", "--retire-settled", "--roll-back-every", "3"],
        ["--retire", "--roll-back-every", "4", "--settle-each", "--in-each", "6"],
        ["--settled", "--retire", "--roll-back-every", "2", "--pairs", "2"],
        ["--retire", "--in-each", "400", "--credit", "500", "--transactions", "12"],
        ["--retire-settled", "--credit", "10", "--roll-back-every", "5", "--live", "3"],
        ["--in-each", "1", "--body", "20000", "--no-sasl"],
    ],
    ids=" ".join,
)
def test_what_committed_is_there_once_and_nothing_else(
    options: list[str], amqp_broker: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit status is 0, and both queues hold what they must."""
    status = run([amqp_broker.url, "--json", "--transactions", "60", "--timeout", "20", *options])
    captured = capsys.readouterr()
    assert status == 0, captured
    for report in json.loads(captured.out):
        assert report["discharged"] == report["committed"] + report["rolled_back"] > 0
        assert report["transaction_us"]["max"] >= report["discharge_us"]["p50"] > 0
        there = report["postings_there"]["received"]
        assert there == report["posted"] * report["committed"] // report["discharged"]
        if "--roll-back-every" in options:
            assert report["rolled_back"] > 0
        if report["retired"]:
            assert report["input_there"]["received"] == report["input"] - there


def test_a_run_for_each_number_of_live_transactions(
    amqp_broker: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """By default one at a time, then sixteen: a reader sees latency and rate."""
    assert run([f"{amqp_broker.url}/named", "--transactions", "50", "--progress"]) == 0
    captured = capsys.readouterr()
    one, several = captured.out.split("50 transactions of 10 postings")[1:]
    assert "one at a time" in one
    assert "16 at once" in several
    assert "500 as they must be, 0 lost, 0 duplicates" in several
    assert "discharged 50 of 50" in captured.err or "discharged 0 of 50" in captured.err


def test_a_transaction_that_the_broker_refuses_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """Ten postings where five are allowed: rejected, none of them in the queue, exit status 1."""
    config = BrokerConfig(memory=True, listeners=(ListenerConfig(url="amqp://127.0.0.1:0"),))
    config = attrs.evolve(config, limits=attrs.evolve(config.limits, transaction_operations=5))
    with running_broker(config) as broker:
        assert run([broker.url, "--json", "--transactions", "8", "--live", "2"]) == 1
    (report,) = json.loads(capsys.readouterr().out)
    assert (report["refused"], report["committed"]) == (8, 0)
    assert "amqp:transaction:rollback" in report["first_refusal"]
    assert report["postings_there"]["received"] == report["postings_there"]["forbidden"] == 0


def ten_messages(broker: RunningBroker) -> BenchSettings:
    """Settings of a run whose queue holds its messages 0 to 9."""
    settings = BenchSettings(
        host=broker.host, port=broker.port, address="left", count=10, credit=4, timeout=20, run=1
    )
    fill(settings, 0)
    return settings


def test_leftovers_find_what_must_not_be_there(amqp_broker: RunningBroker) -> None:
    """Only three of the ten messages in the queue are wanted; the others are more than one credit holds."""
    found = leftovers(ten_messages(amqp_broker), 0, bytearray(b"\1\0\1\1\0\0\0\0\0\0"))
    assert (found["received"], found["lost"], found["forbidden"]) == (3, 0, 7)
    assert (found["duplicates"], found["foreign"]) == (0, 0)


def test_leftovers_wait_for_what_is_missing(amqp_broker: RunningBroker) -> None:
    """Two more are wanted than are in the queue: it is not finished when the others have come."""
    settings = ten_messages(amqp_broker)
    queue = Receiver(settings, 0, bytearray(b"\1" * 12))
    queue.wire.begin_run()
    while queue.position < 10:
        queue.turn()
        queue.wire.wait(1)
    assert (queue.ledger.received, queue.ledger.lost, queue.finished) == (10, 2, False)
    queue.wire.close()


def test_a_queue_with_messages_of_another_run_is_refused(
    amqp_broker: RunningBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a transaction retires must be the run's own, or the score would mean nothing."""
    fill(attrs.evolve(ten_messages(amqp_broker), address="used-input", count=3), 0)
    assert run([f"{amqp_broker.url}/used", "--transactions", "5", "--retire", "--live", "1"]) == 1
    assert "'used-input' must hold only the messages of this run" in capsys.readouterr().err


# Tables, each with one small case from start to end


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
