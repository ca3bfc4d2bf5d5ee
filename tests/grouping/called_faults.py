"""A fault in each function that the broker calls for a request: the request is done, or it never was, its
connection ends, and nobody else notices.

    scene -- request of connection 0, in which one function raises -- what is there: as without the request,
                                                                      or as with it
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Final

import attrs

from tests.grouping.pairs import KINDS, SCENE
from tests.grouping.stage import Observed, Program, Stage, one_by_one, run_program
from tests.grouping.steps import Leave, Step
from tests.grouping.stores import Stores
from tests.grouping.verdicts import wrongs

PEER_HEARD: Final = "amqp_broker.connection_task.ConnectionTask._take_input"
"""The first that is called for what a peer has sent: a fault in it is one before the request."""

MACHINERY: Final = (
    "amqp_broker.operations.writer.", "amqp_broker.persistence", "amqp_broker.timers.",
    "amqp_broker.broker.", "amqp_broker.links.", "amqp_broker.frames.",
    "amqp_broker.connection_task.ConnectionTask._handle", "amqp_broker.watching.", "amqp_broker.at_hand.",
)  # fmt: skip
"""Not tried: what is nobody's (a fault of the writer ends the broker), and the engine: messages that it has
in hand when it fails between two of its steps may be missing until the broker starts again. Who looks on
raises nothing, which is for it to see to; what the loop itself calls is of no request.
"""

KNOWN: Final = {
    "amqp_broker.connection.Connection.container_id",
    "amqp_broker.message_events.Origin.__init__",
    "amqp_broker.operations.posting.Posting.__init__",
    "amqp_broker.operations.posting.Arrival.__init__",
    "amqp_broker.operations.posting.Posting.at_once",
    "amqp_broker.operations.posting.Posting.refused",
    "amqp_broker.operations.posting.Arrival.end",
    "amqp_broker.operations.discharge.Discharge.__init__",
    "amqp_broker.backlog.Backlog.add",
    "amqp_broker.queue.Queue.count_credit",
    "amqp_broker.queue.Queue.unreserve",
    "amqp_broker.transactions.Transactions.enlist",
    "amqp_broker.transactions.Transactions._end",
    "amqp_broker.transactions.Transactions._execute",
    "amqp_broker.transactions._kept_bytes",
    "amqp_broker.live_transactions.LiveTransactions.leave",
    "amqp_broker.coordinator.transaction_table.TransactionTable._end",
    "amqp_broker.coordinator.transaction.Transaction.works",
    "amqp_broker.coordinator.transaction.Ended.__init__",
    "amqp_broker.nodes.queue_source.QueueSource.give_back",
    "amqp_broker.nodes.queue_source.QueueSource._change",
}
"""What memory counts (room that is kept, tries) is not what it should be after a fault between two lines of
these, until the broker starts again; no message is lost or there twice.
"""

ENDS: Final = "memory does not fit the store any more"
"""How the broker ends when a fault meets what follows a commit: the next start decides."""


class Planted(Exception):
    """The fault."""


@attrs.define
class Fault:
    """Notes which functions are called, in the order of their first calls; the one called `target` raises."""

    target: str = ""
    called: dict[str, None] = attrs.field(factory=dict)
    hit: bool = False

    def begin(self) -> None:
        """From now on."""
        sys.setprofile(self._profile)

    def end(self) -> None:
        """Nothing raises any more."""
        sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if event != "call" or not module.startswith("amqp_broker.") or frame.f_code.co_name.startswith("<"):
            return
        if _of_a_client(frame):
            return
        name = f"{module}.{frame.f_code.co_qualname}"
        self.called[name] = None
        if name == self.target and not self.hit:
            self.hit = True
            sys.setprofile(None)
            raise Planted(name)


@attrs.frozen
class Plant(Step):
    """A fault is there from now on."""

    fault: Fault

    def put(self, stage: Stage, key: int) -> None:
        self.fault.begin()


@attrs.frozen
class Lift(Step):
    """It is not there any more."""

    fault: Fault

    def put(self, stage: Stage, key: int) -> None:
        self.fault.end()


def run_with(fault: Fault, steps: tuple[Step, ...], at: int, stores: Stores) -> Observed:
    """The scene, and the steps up to number `at`, which meets the fault."""
    mine = (*steps[:at], Plant(-1, fault), steps[at], Lift(-1, fault))
    program = Program(SCENE, mine, "park")
    try:
        return run_program(program, one_by_one(list(enumerate(mine))), stores)
    finally:
        fault.end()


def places(kind: str) -> list[tuple[Step, ...]]:
    """The steps of a request, up to each of them."""
    steps = KINDS[kind](0)
    return [steps[: number + 1] for number in range(len(steps))]


@attrs.define
class Case:
    """One request, up to one of its steps, and what may be there after a fault in that."""

    steps: tuple[Step, ...]
    stores: Stores
    may_be: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    functions: list[str] = attrs.field(factory=list)

    def prepare(self) -> list[str]:
        """Run it without a fault, with one before it and with one after it; what is wrong with these."""
        at = len(self.steps) - 1
        whole = Fault()
        done = run_with(whole, self.steps, at, self.stores)
        before = run_with(Fault(PEER_HEARD), self.steps, at, self.stores)
        behind = (*self.steps, Leave(0, "half", closed=False))
        after = run_with(Fault(PEER_HEARD), behind, at + 1, self.stores)
        self.may_be = {"done": done.state, "before": before.state, "after": after.state}
        self.functions = [name for name in whole.called if not name.startswith(MACHINERY)]
        return [*wrongs(done), *wrongs(before), *wrongs(after)]

    def judge(self, function: str) -> list[str]:
        """What is wrong with a fault in this function; nothing if it was not called this time."""
        fault = Fault(function)
        run = run_with(fault, self.steps, len(self.steps) - 1, self.stores)
        if not fault.hit:
            return []
        if run.died:
            return [] if ENDS in run.died else [f"the broker died: {run.died}"]
        victims = [who for who, link in run.ends if not link]
        if len(victims) > 1:
            return [f"connections {victims} have ended"]
        found = [*run.faults]
        unlike = {name: _unlike(run.state, state, victims) for name, state in self.may_be.items()}
        if all(unlike.values()):
            found += [f"{name}: {each}" for name, each in unlike.items()]
        return found


def _bodies(queues: Any) -> dict[str, list[str]]:
    """Without tries and marks: the oldest message of a link that broke counts a try, and what was assigned
    may have been sent or not.
    """
    return {name: [each.partition(", count")[0] for each in messages] for name, messages in queues.items()}


def _of_a_client(frame: FrameType) -> bool:
    """Whether the test calls it, which has the codec in common with the broker."""
    caller = frame.f_back
    while caller is not None:
        module = caller.f_globals.get("__name__", "")
        if module.startswith("amqp_broker."):
            caller = caller.f_back
            continue
        return bool(module.startswith("tests."))
    return False


def _unlike(state: dict[str, Any], other: dict[str, Any], victims: list[int]) -> dict[str, Any]:
    """What of a state is not as it may be: once all clients have gone, and what the one beside has got."""
    found: dict[str, Any] = {}
    for key, value in other.items():
        if key == "figures" or key.startswith(tuple(f"arrived at {who}/" for who in (0, *victims))):
            continue
        mine = state.get(key)
        if key == "queues":
            mine, value = _bodies(mine), _bodies(value)
        if isinstance(mine, dict) and isinstance(value, dict):
            found |= {
                f"{key} {name}": (mine.get(name), value.get(name))
                for name in mine.keys() | value.keys()
                if mine.get(name) != value.get(name)
            }
        elif mine != value:
            found[key] = (mine, value)
    return found
