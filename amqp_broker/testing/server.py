"""`amqp-broker test-server`: a broker for a test suite in another language, which starts it as a process.

    standard output, first line    amqp://127.0.0.1:PORT
    standard input, each line      ["depth", "orders"]   ["message", "reject", {"nth": 2}]   ["advance", 30]
    standard output, a line each   {"result": 3}         {"result": null}                    {"error": "..."}
    standard input ends            it stops, with the suite that started it

`["reset"]` between two tests: what there was is deleted, faults and what was refused are forgotten; the
configuration and the time stay.

A line is a JSON array: the name of a command of `COMMANDS`, its arguments, and at last, perhaps, its options.
In answers octets are a string where they are UTF-8, else `{"base64": "..."}`.
"""

from __future__ import annotations

import base64
import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TextIO, TypeVar

import attrs

from amqp_broker.configuration import BrokerConfig, load_configuration
from amqp_broker.embedded_questions import WAIT_S
from amqp_broker.embedding import RunningBroker, memory_config, running_broker
from amqp_broker.frames import (
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    Transfer,
)
from amqp_broker.testing.message_faults import INTERNAL_ERROR, SCRIPTED
from amqp_broker.testing.scripted_faults import ScriptedFaults
from amqp_broker.testing.traces import FrameTrace

T = TypeVar("T")

LINE_CHARACTERS_MAX: Final = 1 << 20
MESSAGE_FAULTS: Final = {
    **{name: name for name in ("reject", "release", "modify", "delay", "drop", "duplicate")},
    **{name: name for name in ("reset_before_commit", "reset_after_commit")},
}
"""What can happen to a message, by its name on a line: the method of `MessageFault`."""
COMMIT_FAULTS: Final = {
    "fail": "fail_commit", "refuse": "refuse_commit", "reset_before": "reset_before_commit",
    "reset_after": "reset_after_commit", "hold": "hold_commits", "go_on": "let_commits_go_on",
}  # fmt: skip
"""What can happen to a commit: the method of `ScriptedFaults`."""
FRAME_FAULTS: Final = {"drop": "drop", "reset_at": "reset_at"}
"""What can happen to a frame."""
FRAMES: Final = {
    performative.__name__: performative
    for performative in (Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close)
}


def _message(
    broker: RunningBroker, verb: str, *arguments: Any, nth: int = 1, count: int = 1,
    address: str | None = None, **options: Any,
) -> None:  # fmt: skip
    name = _one_of(MESSAGE_FAULTS, verb)
    happens = getattr(broker.faults.message(nth, count=count, address=address), name)
    _call(happens, [verb, "nth", "count", "address"], arguments, options)


def _attach(
    broker: RunningBroker, *, nth: int = 1, count: int = 1, address: str | None = None,
    condition: str = INTERNAL_ERROR, text: str = SCRIPTED,
) -> None:  # fmt: skip
    broker.faults.attach(nth, count=count, address=address).refuse(condition, text)


def _commit(broker: RunningBroker, verb: str, **options: Any) -> None:
    _call(getattr(broker.faults, _one_of(COMMIT_FAULTS, verb)), [verb], (), options)


def _frame(broker: RunningBroker, verb: str, performative: str, **options: Any) -> None:
    frame = _one_of(FRAMES, performative)
    _call(getattr(broker.faults, _one_of(FRAME_FAULTS, verb)), [verb], (frame,), options)


def _detach_at(
    broker: RunningBroker, *, nth: int = 1, condition: str = INTERNAL_ERROR, text: str = SCRIPTED
) -> None:
    broker.faults.detach_at(nth, condition, text)


def _one_of(known: Mapping[str, T], said: str) -> T:
    """What a word of a line means. Raises ValueError."""
    if said not in known:
        raise ValueError(f"expected one of {', '.join(known)}, got {said!r:.80}")
    return known[said]


def _call(method: Callable[..., Any], named: Sequence[str], arguments: Any, options: dict[str, Any]) -> None:
    """Call a method of the script with what a line gives; `named` is its verb, and what was taken from the
    line before. Raises ValueError where it takes something else.
    """
    try:
        inspect.signature(method).bind(*arguments, **options)
    except TypeError as error:
        takes = [*named[1:], *inspect.signature(method).parameters]
        raise ValueError(f"{named[0]} takes {', '.join(takes) or 'nothing'}: {error}") from None
    method(*arguments, **options)


def _wait_for_depth(
    broker: RunningBroker, queue: str, depth: int, *, timeout_s: float = WAIT_S
) -> None:
    broker.wait_until(lambda: broker.depth(queue) == depth, timeout_s)


def _reset(broker: RunningBroker) -> None:
    broker.faults.clear()
    broker.clear()
    broker.trace.clear()


def _slow_down(broker: RunningBroker, seconds: float) -> None:
    broker.faults.slow_down(seconds)


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
    "commit": _commit,
    "frame": _frame,
    "detach_at": _detach_at,
    "grant_no_credit": lambda broker: broker.faults.grant_no_credit(),
    "slow_down": _slow_down,
    "reset_connections": lambda broker: broker.faults.reset_connections(),
    "reset": _reset,
}
"""What can be asked for, with the arguments that the methods of a running broker and of its faults take."""


def serve(config_file: str | None, commands: TextIO = sys.stdin, answers: TextIO = sys.stdout) -> int:
    """Run a broker until `commands` end; returns the exit status. Raises what a start of a broker raises."""
    say = partial(print, file=answers, flush=True)
    with running_broker(_config(config_file), faults=ScriptedFaults(FrameTrace())) as broker:
        say(broker.url)
        while line := commands.readline(LINE_CHARACTERS_MAX):
            say(json.dumps(answered(broker, line), default=_shown))
    return 0


def answered(broker: RunningBroker, line: str) -> dict[str, Any]:
    """The answer to one line."""
    try:
        try:
            call = json.loads(line)
        except ValueError:
            call = None
        if not isinstance(call, list) or not call or call[0] not in COMMANDS:
            names = ", ".join(COMMANDS)
            raise ValueError(f'expected an array such as ["depth", "orders"]; there are {names}')
        options = call.pop() if isinstance(call[-1], dict) else {}
        command = COMMANDS[call[0]]
        try:
            inspect.signature(command).bind(broker, *call[1:], **options)
        except TypeError as error:
            raise ValueError(f"{usage(call[0])}: {error}") from None
        return {"result": command(broker, *call[1:], **options)}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def usage(name: str) -> str:
    """How a command is called: `["depth", queue]`."""
    found = [json.dumps(name)]
    options = []
    for parameter in list(inspect.signature(COMMANDS[name]).parameters.values())[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY:
            options.append(f'"{parameter.name}": {json.dumps(parameter.default)}')
        elif parameter.kind is parameter.VAR_KEYWORD:
            options.append("...")
        elif parameter.kind is not parameter.VAR_POSITIONAL:
            found.append(parameter.name)
    return f"[{', '.join([*found, *(['{' + ', '.join(options) + '}'] if options else [])])}]"


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
