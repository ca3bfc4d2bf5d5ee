"""Whether runs of one program agree: with one serial order of its steps, and with what always holds."""

from __future__ import annotations

import random
from typing import Final

import attrs

from tests.grouping.stage import (
    Keyed,
    Observed,
    Plan,
    Program,
    all_in_one,
    by_connection,
    in_groups,
    one_by_one,
    run_program,
)
from tests.grouping.steps import Step
from tests.grouping.stores import Stores

UNKNOWN_TXN: Final = "amqp:transaction:unknown-id"
ORDERS_MAX: Final = 2_000
"""Serial orders that are tried before a run of several connections is called wrong."""


def ended(run: Observed) -> dict[tuple[int, str], str]:
    """How the broker ended links; not those that the client leaves by itself: its detach crosses the
    broker's.
    """
    return {
        (who, link): why
        for (who, link), why in run.ends.items()
        if (who, link) not in run.left and (not link or (who, None) not in run.left)
        # A control link ends what it declared when its detach is answered, which waits for outcomes: what
        # follows on other links comes before or after.
        if why != UNKNOWN_TXN or (who, "to coordinator") not in run.left
    }


def differences(serial: Observed, run: Observed) -> list[str]:
    """In what a run is not what this serial order gives."""
    found = wrongs(run)
    if found:
        return found
    for key, told in serial.answers.items():
        got = run.answers.get(key, ())
        missing = (got == () and key in run.excused) or (told == () and key in serial.excused)
        if got != told and not missing:
            found.append(f"step {key} was answered {got}, alone {told}")
    for place, told in serial.told.items():
        got = run.told.get(place, ())
        if got != told and ("over",) not in (got, told):
            found.append(f"delivery {place} was told {got}, alone {told}")
    if ended(run) != ended(serial):
        found.append(f"ended: {run.ends}, alone {serial.ends}")
    for what in sorted(serial.state.keys() & run.state.keys()):
        ours, theirs = run.state.get(what), serial.state.get(what)
        if ours != theirs:
            found.append(f"{what}: {ours}\n      alone: {theirs}")
    return found


def wrongs(run: Observed) -> list[str]:
    """What no run may show."""
    if run.died:
        return [f"the broker died: {run.died}"]
    return [*run.faults, *(f"step {key} is not answered at rest" for key in run.unanswered)]


def judge(program: Program, stores: Stores, seed: int) -> list[str]:
    """What is wrong with a program under the groupings that are tried; empty if nothing is."""
    rng = random.Random(f"groups {seed}")
    in_order = list(enumerate(program.steps))
    merged = by_connection(program.steps)
    serial = run_program(program, one_by_one(in_order), stores)
    if found := wrongs(serial):
        return ["one at a time:", *found]
    found = judged(program, in_groups(in_order, rng), in_order, serial, stores)
    if found:
        return ["in groups:", *found]
    alone = serial if merged == in_order else run_program(program, one_by_one(merged), stores, restart=False)
    found = judged(program, all_in_one(in_order), merged, alone, stores)
    return ["all in one group:", *found] if found else []


def judged(program: Program, plan: Plan, order: list[Keyed], serial: Observed, stores: Stores) -> list[str]:
    run = run_program(program, plan, stores)
    found = differences(serial, run)
    if not found or wrongs(run):
        return found
    for other in other_orders(order):
        if not differences(run_program(program, one_by_one(other), stores, restart=False), run):
            return []
    return found


def other_orders(order: list[Keyed]) -> list[list[Keyed]]:
    """Serial orders that keep that of each connection, and the places of the world's steps."""
    if len({step.who for _, step in order if step.who >= 0}) < 2:
        return []
    rng = random.Random(len(order))
    found: dict[tuple[int, ...], list[Keyed]] = {}
    for _ in range(ORDERS_MAX):
        other = _shuffled(order, rng)
        found[tuple(key for key, _ in other)] = other
    found.pop(tuple(key for key, _ in order), None)
    return list(found.values())


def _shuffled(order: list[Keyed], rng: random.Random) -> list[Keyed]:
    result: list[Keyed] = []
    part: list[Keyed] = []
    for each in [*order, (-1, Step(-1))]:
        if each[1].who >= 0:
            part.append(each)
            continue
        queues: dict[int, list[Keyed]] = {}
        for one in part:
            queues.setdefault(one[1].who, []).append(one)
        part = []
        while queues:
            who = rng.choice(list(queues))
            result.append(queues[who].pop(0))
            if not queues[who]:
                del queues[who]
        result.append(each)
    return result[:-1]


def shrunk(program: Program, stores: Stores, seed: int, tries: int = 200) -> Program:
    """A program with fewer steps that is wrong as well."""
    again = True
    while again and tries > 0:
        again = False
        for name in ("steps", "setup"):
            at = len(getattr(program, name)) - 1
            while at >= 0 and tries > 0:
                steps = getattr(program, name)
                smaller = attrs.evolve(program, **{name: steps[:at] + steps[at + 1 :]})
                tries -= 1
                at -= 1
                if judge(smaller, stores, seed):
                    program, again = smaller, True
    return program
