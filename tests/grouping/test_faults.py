"""A fault has one owner: at whatever step of whatever operation it is, nobody else's work is lost."""

from __future__ import annotations

import pytest

from tests.grouping.faults import STEPS, Arm, Disarm, Fault, planted
from tests.grouping.held_store import DECOY
from tests.grouping.pairs import KINDS, SCENE
from tests.grouping.stage import Chunk, Observed, Program, run_program
from tests.grouping.steps import Disk, Send, Step
from tests.grouping.stores import MemoryStores

pytestmark = pytest.mark.interpreted

BESIDE = "beside " + DECOY.decode()
"""There is room for it also on a full disk."""

MEMORY_ONLY = ("post to a temporary queue", "move", "forget", "look")
"""About queues that only memory knows, or answered through one: no disk contradicts a memory that was
left half changed, and the connection is the only one that sees it.
"""
NO_OPERATION = ("release", "detach", "delete", "post and roll back")
"""Kinds for which nothing is stored when they are alone."""


def struck(kind: str, fault: Fault, room: str) -> tuple[Observed, int, int]:
    """A request of connection 0 meets a fault, between two posts of connection 1 in one group; the numbers of
    these.
    """
    post = Send(1, "a", ("plain", BESIDE, True))
    steps: tuple[Step, ...] = (Disk(-1, room), Arm(-1, fault), post, *KINDS[kind](0), post)
    end = Disarm(-1, fault)
    program = Program(SCENE, (*steps, end), "park", f"{kind}, {fault.step}, {room}")
    plan = (
        Chunk(tuple(enumerate(steps)), held=True, merged=False),
        Chunk(((len(steps), end),), held=False, merged=False),
    )
    with planted(fault):
        return run_program(program, plan, MemoryStores()), 2, len(steps) - 1


@pytest.mark.parametrize("room", ["enough", "units", "commits"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("kind", KINDS)
def test_one_victim(kind: str, step: str, room: str) -> None:
    """A fault before the commit ends one connection, and what others asked for in its group happens; one
    after the commit ends the broker at once.
    """
    fault = Fault(step)
    run, before, after = struck(kind, fault, room)
    if step in ("stored", "undo") and run.died:
        assert fault.met and f"{step} of {fault.met}" in run.died, f"{fault}: {run.died}"
        assert "spins" not in run.died, f"{fault}: {run.died}"
        return
    assert kind in MEMORY_ONLY or not (step == "stored" and fault.met), (
        f"{fault}: the broker goes on with a memory that may be wrong"
    )
    assert not run.died, f"{fault}: {run.died}"
    assert not run.faults, f"{fault}: {run.faults}"
    for key in (before, after):
        assert run.answers[key] == ("accepted!",), f"{fault}: the post beside it was told {run.answers[key]}"
    if fault.met:
        assert run.ends.get((0, "")) == "amqp:internal-error", f"{fault}: {run.ends}"
    assert sum(BESIDE in each for each in run.state["queues"]["a"]) == 2


def test_faults_strike() -> None:
    """Every kind of request meets a fault in its judgement, but for those that need no operation."""
    missed = []
    for kind in KINDS:
        fault = Fault("prepare")
        struck(kind, fault, "enough")
        if not fault.met:
            missed.append(kind)
    assert set(missed) <= {*NO_OPERATION}, missed
