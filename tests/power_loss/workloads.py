"""The workloads that can be recorded, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from amqp_broker.persistence.sqlite import SqliteStore
from tests.power_loss.execution import Executor, differences, read_snapshot
from tests.power_loss.execution_sets import SetExecutor, read_set_snapshot, set_differences
from tests.power_loss.plan import make_plan
from tests.power_loss.plan_sets import make_set_plan

MESSAGES: Final = "messages"
SETS: Final = "sets"


@dataclass(frozen=True, slots=True)
class Workload:
    """How a plan is made, carried out, read back and compared; plans and snapshots are its own matter."""

    make_plan: Callable[[object, int, Any], Any]
    executor: Callable[[SqliteStore], Executor]
    read: Callable[[SqliteStore, int], Any]
    differences: Callable[[Any, Any], list[str]]


WORKLOADS: Final = {
    MESSAGES: Workload(make_plan, Executor, read_snapshot, differences),
    SETS: Workload(make_set_plan, SetExecutor, read_set_snapshot, set_differences),
}
