"""The load tool's transactional mode against a running broker."""

from __future__ import annotations

import json

import attrs
import pytest

from amqp_broker import RunningBroker
from amqp_broker.bench.command_line import run
from amqp_broker.bench.controller import fill, leftovers
from amqp_broker.bench.receiver import Receiver
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.configuration import BrokerConfig, ListenerConfig
from amqp_broker.embedding import running_broker
from tests.amqp_broker.test_bench_frames import RUN


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
        host=broker.host, port=broker.port, address="left", count=10, credit=4, timeout=20, run=RUN
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
