"""A fault at a step of an operation: the first one of connection 0 that takes this step raises what nobody
expects.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

import attrs

import amqp_broker
from amqp_broker.operations.operation import Operation
from tests.grouping.stage import Stage
from tests.grouping.steps import Step

STEPS: Final = ("prepare", "stored", "refused", "undo")
VICTIM: Final = "peer-0"


class Unexpected(Exception):
    """A fault of the broker, as a test has it."""


@attrs.define
class Fault:
    """Where it is, and the class of the operation that it met."""

    step: str
    armed: bool = False
    met: str = ""

    def strikes(self, operation: Operation) -> bool:
        """Whether this operation is the one."""
        if not self.armed or self.met:
            return False
        owner: Any = operation.asking_connection()
        if getattr(owner, "container_id", None) != VICTIM:
            return False
        self.met = type(operation).__name__
        return True


@attrs.frozen
class Arm(Step):
    """From now on it may strike."""

    fault: Fault

    def put(self, stage: Stage, key: int) -> None:
        """Without a frame."""
        self.fault.armed = True


@attrs.frozen
class Disarm(Step):
    """It strikes no more: what comes is the end of the connections."""

    fault: Fault

    def put(self, stage: Stage, key: int) -> None:
        """Without a frame."""
        self.fault.armed = False


def kinds_of_operations() -> list[type[Operation]]:
    """All classes of operations that the broker has."""
    for module in pkgutil.walk_packages(amqp_broker.__path__, "amqp_broker."):
        if not module.name.startswith(FOREIGN):
            importlib.import_module(module.name)
    found: list[type[Operation]] = []
    todo: list[type[Operation]] = [Operation]
    while todo:
        kind = todo.pop()
        found.append(kind)
        todo += kind.__subclasses__()
    return found


FOREIGN: Final = tuple(
    f"amqp_broker.{name}"
    for name in ("pipeline", "conformance", "bench", "testing", "__main__", "client", "command_line")
)
"""No part of a running broker."""


@contextmanager
def planted(fault: Fault) -> Iterator[None]:
    """The broker has the fault."""
    with ExitStack() as stack:
        for kind in kinds_of_operations():
            original = vars(kind).get(fault.step)
            if original is not None:
                stack.enter_context(patch.object(kind, fault.step, _faulty(original, fault)))
        yield


def _faulty(original: Any, fault: Fault) -> Any:
    def step(self: Operation, *arguments: Any) -> Any:
        if fault.strikes(self):
            raise Unexpected(f"{fault.step} of {fault.met}")
        return original(self, *arguments)

    return step
