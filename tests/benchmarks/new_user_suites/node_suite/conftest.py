"""Node is started once for all tests of a worker, and runs the program for each of them anew."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from amqp_broker import RunningBroker

NAMES = itertools.count(1)


class Program:
    """One program that runs against one broker."""

    def __init__(self, ask: Callable[..., Any], broker: RunningBroker, options: dict[str, Any]) -> None:
        self._ask = ask
        self._name = options["name"]
        ask("start", host=broker.host, port=broker.port, **options)

    @property
    def invoiced(self) -> list[str]:
        """The orders that it has written invoices for."""
        return list(self._ask("report", name=self._name)["invoiced"])

    @property
    def errors(self) -> list[str]:
        """The conditions of what it was refused."""
        return list(self._ask("report", name=self._name)["errors"])

    @property
    def connections(self) -> int:
        """How often it has connected."""
        return int(self._ask("report", name=self._name)["connections"])

    def learn(self, **prices: int) -> None:
        """What it did not know."""
        self._ask("learn", name=self._name, prices=prices)

    def stop(self) -> None:
        """It closes its connection."""
        self._ask("stop", name=self._name)


@pytest.fixture(scope="session")
def node() -> Iterator[Callable[..., Any]]:
    """A process that does what it is asked."""
    command = ["node", str(Path(__file__).with_name("host.js"))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    lines, answers = process.stdin, process.stdout

    def ask(what: str, **options: Any) -> Any:
        lines.write(json.dumps({"command": what, **options}) + "\n")
        lines.flush()
        answer = json.loads(answers.readline())
        assert "error" not in answer, answer["error"]
        return answer["result"]

    with process:
        yield ask
        lines.close()


Start = Callable[..., Program]


@pytest.fixture
def start(node: Callable[..., Any]) -> Iterator[Start]:
    """`start(broker, prices={...})`; it ends with the test."""
    programs: list[Program] = []

    def started(broker: RunningBroker, **options: Any) -> Program:
        program = Program(node, broker, {"name": f"invoicing-{next(NAMES)}", "wait": True, **options})
        programs.append(program)
        return program

    yield started
    for program in programs:
        program.stop()
