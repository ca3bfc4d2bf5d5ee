"""`amqp-broker test-server` and the case of unittest."""

from __future__ import annotations

import json
import subprocess
import sys
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from amqp_broker.client import (
    LinkGone,
    MessageRefused,
    OutcomeUnknown,
    WaitTimeout,
    connect,
)
from amqp_broker.testing import BrokerTestCase, FrameTrace, ScriptedFaults, memory_config, running_broker
from amqp_broker.testing.server import COMMANDS, answered


class Server:
    """A broker that another process runs, as a suite in another language has it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._in, self._out = process.stdin, process.stdout
        self.url = self._out.readline().strip()

    def say(self, line: str) -> Any:
        """The answer to a line."""
        self._in.write(f"{line}\n")
        self._in.flush()
        return json.loads(self._out.readline())

    def ask(self, *call: Any) -> Any:
        """The result of a command."""
        answer = self.say(json.dumps(call))
        assert "result" in answer, answer
        return answer["result"]


@contextmanager
def server(*options: str) -> Iterator[Server]:
    """One that ends with its input, and with status 0."""
    command = [sys.executable, "-W", "error", "-m", "amqp_broker", "test-server", *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Server(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait() == 0


def test_a_suite_in_another_language_has_what_ours_have(tmp_path: Path) -> None:
    """Depth, messages, faults, time and what was refused, over standard input."""
    (tmp_path / "broker.toml").write_text("[[queue]]\npattern = 'tight'\nmax_messages = 1\n")
    with server("--config", str(tmp_path / "broker.toml")) as broker, connect(broker.url) as connection:
        sender = connection.open_sender("orders")
        broker.ask("message", "reject", {"nth": 2, "text": "not today"})
        sender.send(b"one")
        with pytest.raises(MessageRefused, match="not today"):
            sender.send("two")
        sender.send(b"\xff")
        broker.ask("wait_for_depth", "orders", 2)
        first, second = broker.ask("peek", "orders")
        assert (first["body"], second["body"]) == ("one", {"base64": "/w=="})
        assert [each["description"] for each in broker.ask("refused")] == ["not today"]
        broker.ask("message", "delay", 60)
        assert broker.ask("advance", 30.5) is None
        broker.ask("attach", {"address": "secret"})
        broker.ask("slow_down", 0)
        assert broker.ask("ask", "READ", "queue", "orders")["kind"] == "queue"
        broker.ask("declare", "tight")
        assert broker.ask("ask", "READ", "queue", "tight")["max_messages"] == 1
        assert any("Transfer" in line for line in broker.ask("trace"))
        assert broker.ask("purge", "orders") == 2
        broker.ask("delete", "orders")
        assert "orders" not in broker.ask("queues")
        broker.ask("reset_connections")


def test_commits_and_frames_go_wrong_as_a_suite_says() -> None:
    """A full disk, a commit that takes its time, a frame that is lost, a link that is detached."""
    with server() as broker, connect(broker.url) as connection:
        sender = connection.open_sender("orders")
        broker.ask("commit", "refuse")
        with pytest.raises(MessageRefused, match="disk is full"):
            sender.send("no room")
        broker.ask("commit", "hold")
        with pytest.raises(WaitTimeout):
            sender.send("patience", timeout_s=0.2)
        assert broker.ask("depth", "orders") == 0
        broker.ask("commit", "go_on")
        broker.ask("wait_for_depth", "orders", 1)
        broker.ask("detach_at", {"text": "go away"})
        with pytest.raises((LinkGone, OutcomeUnknown), match="go away"):  # it may be accepted before
            sender.send_many(["the last one", *["nobody takes it"] * 2_000])
    with server() as broker, pytest.raises(OutcomeUnknown), connect(broker.url) as connection:
        broker.ask("frame", "reset_at", "Transfer")
        connection.open_sender("orders").send("never seen")


def test_what_is_no_command_is_answered_too() -> None:
    """With what would be one; the next line is heard."""
    with server() as broker:
        for line in ("{", "3", "[]", '["nothing"]', '["depth"]', '["message", "explode"]', '["advance", -1]'):
            assert "error" in broker.say(line), line
        assert all(name in broker.say("[]")["error"] for name in COMMANDS)
        assert broker.ask("depth", "orders") == 0


class Case(BrokerTestCase):
    """A test of somebody's."""

    broker_config = memory_config(container_id="ours")

    def test_mine(self) -> None:
        """It has a broker, and its faults."""
        self.broker.faults.message().drop()
        self.assertEqual(self.broker.config.container_id, "ours")
        self.assertEqual(self.broker.refused, [])
        type(self).seen = self.broker  # type: ignore[attr-defined]


def test_a_case_of_unittest_has_a_broker_of_its_own() -> None:
    """And it is stopped afterwards."""
    result = unittest.TestResult()
    Case("test_mine").run(result)
    assert result.wasSuccessful(), result.errors
    assert not Case.seen.alive  # type: ignore[attr-defined]


def test_between_two_tests_it_is_as_new() -> None:
    """Nothing is there, nothing is scripted, nothing was refused."""
    with server() as broker, connect(broker.url) as connection:
        sender = connection.open_sender("orders")
        sender.send("one")
        broker.ask("message", "reject", {"count": 2})
        with pytest.raises(MessageRefused):
            sender.send("two")
        assert broker.ask("reset") is None
        assert (broker.ask("depth", "orders"), broker.ask("refused")) == (0, [])
        connection.open_sender("orders").send("three")
        assert broker.ask("depth", "orders") == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "expected an array such as"),
        ("depth orders", "expected an array such as"),
        ('["depth"]', '["depth", queue]: missing a required argument'),
        ('["attach", "refuse"]', '["attach", {"nth": 1, '),
        ('["message", "reject", {"adress": "x"}]', "reject takes nth, count, address, condition, text"),
        ('["commit", "explode"]', "expected one of fail, refuse, reset_before, "),
        ('["commit", "hold", {"nth": 2}]', "hold takes nothing"),
        ('["frame", "drop", "Transport"]', "expected one of Open, Begin, "),
        ('["frame", "reset_at", "Transfer", {"count": 2}]', "reset_at takes performative, nth"),
        ('["peek", "orders"]', "there is no queue 'orders'"),
    ],
)
def test_a_line_that_cannot_be_understood_is_answered(line: str, said: str) -> None:
    """With what would be."""
    with running_broker(faults=ScriptedFaults(FrameTrace())) as broker:
        assert said in answered(broker, line)["error"]
