"""`amqp-broker test-server`: a broker for a test suite in another language, which starts it as a process.

    standard output, first line    amqp://127.0.0.1:PORT
    standard input, each line      ["depth", "orders"]   ["message", "reject", {"nth": 2}]   ["advance", 30]
    standard output, a line each   {"result": 3}         {"result": null}                    {"error": "..."}
    standard input ends            it stops, with the suite that started it

A line is a JSON array: the name of a command of `COMMANDS`, its arguments, and at last, perhaps, its options.
In answers octets are a string where they are UTF-8, else `{"base64": "..."}`.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TextIO

import attrs

from amqp_broker.configuration import BrokerConfig, load_configuration
from amqp_broker.embedding import RunningBroker, memory_config, running_broker
from amqp_broker.testing.scripted_faults import ScriptedFaults
from amqp_broker.testing.traces import FrameTrace

LINE_CHARACTERS_MAX: Final = 1 << 20
VERBS: Final = (
    "reject", "release", "modify", "delay", "drop", "duplicate", "reset_before_commit", "reset_after_commit",
)  # fmt: skip
"""What can happen to a message."""


def _message(
    broker: RunningBroker, verb: str, *arguments: Any, nth: int = 1, count: int = 1,
    address: str | None = None, **options: Any,
) -> None:  # fmt: skip
    if verb not in VERBS:
        raise ValueError(f"expected one of {', '.join(VERBS)}, got {verb!r:.80}")
    getattr(broker.faults.message(nth, count=count, address=address), verb)(*arguments, **options)


def _attach(
    broker: RunningBroker, *, nth: int = 1, count: int = 1, address: str | None = None, **options: Any
) -> None:
    broker.faults.attach(nth, count=count, address=address).refuse(**options)


def _wait_for_depth(broker: RunningBroker, queue: str, depth: int, **options: Any) -> None:
    broker.wait_until(lambda: broker.depth(queue) == depth, **options)


def _of_faults(name: str) -> Callable[..., Any]:
    return lambda broker, *arguments: getattr(broker.faults, name)(*arguments)


COMMANDS: Final[dict[str, Callable[..., Any]]] = {
    "advance": lambda broker, seconds: broker.clock.advance(seconds),
    "depth": RunningBroker.depth,
    "wait_for_depth": _wait_for_depth,
    "peek": RunningBroker.peek,
    "queues": RunningBroker.queues,
    "purge": RunningBroker.purge,
    "declare": RunningBroker.declare,
    "delete": RunningBroker.delete,
    "entities": RunningBroker.entities,
    "ask": RunningBroker.ask,
    "refused": lambda broker: broker.refused,
    "trace": lambda broker: str(broker.trace).splitlines(),
    "message": _message,
    "attach": _attach,
    "grant_no_credit": _of_faults("grant_no_credit"),
    "slow_down": _of_faults("slow_down"),
    "reset_connections": _of_faults("reset_connections"),
}
"""What can be asked for, with the arguments that the methods of a running broker and of its faults take."""


def serve(config_file: str | None, commands: TextIO = sys.stdin, answers: TextIO = sys.stdout) -> int:
    """Run a broker until `commands` end; returns the exit status. Raises what a start of a broker raises."""
    say = partial(print, file=answers, flush=True)
    with running_broker(_config(config_file), faults=ScriptedFaults(FrameTrace())) as broker:
        say(broker.url)
        while line := commands.readline(LINE_CHARACTERS_MAX):
            if line.strip():
                say(json.dumps(answered(broker, line), default=_shown))
    return 0


def answered(broker: RunningBroker, line: str) -> dict[str, Any]:
    """The answer to one line."""
    try:
        call = json.loads(line)
        if not isinstance(call, list) or not call or call[0] not in COMMANDS:
            raise ValueError(f"expected an array that begins with one of {', '.join(COMMANDS)}")
        options = call.pop() if isinstance(call[-1], dict) else {}
        return {"result": COMMANDS[call[0]](broker, *call[1:], **options)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _config(file: str | None) -> BrokerConfig:
    if file is None:
        return memory_config()
    config = load_configuration(file)
    return attrs.evolve(config, memory=True, listeners=memory_config().listeners)


def _shown(value: Any) -> Any:
    """What JSON has no word for."""
    if attrs.has(type(value)):
        return attrs.asdict(value)
    if isinstance(value, bytes | memoryview):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    return str(value)
