"""Small requests in pairs: every kind beside every kind, on different links, over the same objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.grouping.stage import FIRST_CHECK_MS, Program, all_in_one, by_connection, one_by_one, run_program
from tests.grouping.steps import AttachReceiver, AttachSender, Leave, Pass, Send, Settle, Step
from tests.grouping.stores import Stores
from tests.grouping.verdicts import judged, wrongs

Kind = Callable[[int], tuple[Step, ...]]
"""The steps of a request of this connection."""

BY_OUTCOME: Final = "$half-check/g/by-outcome"


def _send(link: str, *message: object, settled: bool = False) -> Kind:
    return lambda who: (Send(who, link, message, settled=settled),)


def _in_transaction(link: str, *message: object, fail: bool = False) -> Kind:
    def steps(who: int) -> tuple[Step, ...]:
        name = f"t{who}"
        return Send(who, link, message, txn=name), Send(who, "control", ("discharge", name, fail))

    return steps


def _settle(outcome: str, settled: bool) -> Kind:
    return lambda who: (Settle(who, "from", 0, 1, outcome, settled),)


def _answer(outcome: str) -> Kind:
    return lambda who: (Settle(0, "checks again", 0, 0, outcome, True),)


def _settle_in_transaction(who: int) -> tuple[Step, ...]:
    name = f"t{who}"
    return (
        Settle(who, "from", 0, 1, "accepted", True, txn=name),
        Send(who, "control", ("discharge", name, False)),
    )


def _leave(link: str, whose: int | None = None) -> Kind:
    return lambda who: (Leave(who if whose is None else whose, link, True),)


KINDS: Final[dict[str, Kind]] = {
    "post": _send("a", "plain", "posted", True),
    "post, settled": _send("a", "plain", "posted", False, settled=True),
    "accept": _settle("accepted", True),
    "accept, not settled": _settle("accepted", False),
    "release": _settle("released", False),
    "modify": _settle("modified", False),
    "reject": _settle("rejected", True),
    "detach": _leave("from"),
    "put": _send("half", "half", "new", "body"),
    "put again": _send("half", "half", "h", "body"),
    "put another": _send("half", "half", "h", "another body"),
    "commit": _send("resolve", "resolve", "h", "commit"),
    "roll back": _send("resolve", "resolve", "h", "rollback"),
    "answer": _answer("accepted"),
    "answer no": _answer("rejected"),
    "answer nothing, and park": _answer("modified"),
    "stage": _send("set", "row", "another row"),
    "seal": _send("resolve", "seal", "s1", 1, ("row 1",)),
    "commit epoch 1": _send("resolve", "commit-epoch", 1, (("s1", ("row 1",)),)),
    "commit epoch 2": _send("resolve", "commit-epoch", 2, (("s2", ("row 2",)),)),
    "void 1": _send("resolve", "void", "s1"),
    "void 2": _send("resolve", "void", "s2"),
    "step": _send("stream", "sequenced", 1, 1, 0),
    "step over a gap": _send("stream", "sequenced", 1, 3, 2),
    "move": _send("asks", "cursor", "move", "c", (("r.d", 1),)),
    "forget": _send("asks", "cursor", "forget", "c", ()),
    "look": _send("asks", "cursor", "cursor", "c", ()),
    "post and discharge": _in_transaction("a", "plain", "posted", True),
    "post and roll back": _in_transaction("a", "plain", "posted", True, fail=True),
    "decide and discharge": _in_transaction("resolve", "resolve", "h", "commit"),
    "step and discharge": _in_transaction("stream", "sequenced", 1, 1, 0),
    "accept and discharge": _settle_in_transaction,
    "post to a temporary queue": _send("@0/temporary", "plain", "posted", True),
    "delete": _leave("temporary", 0),
}


TOPICS: Final = (
    KINDS.keys() & {
        "post", "post, settled", "accept", "accept, not settled", "release", "modify", "reject", "detach",
        "post and discharge", "post and roll back", "accept and discharge",
    },
    KINDS.keys() & {
        "put", "put again", "put another", "commit", "roll back", "answer", "answer no",
        "answer nothing, and park", "decide and discharge",
    },
    KINDS.keys() & {"stage", "seal", "commit epoch 1", "commit epoch 2", "void 1", "void 2"},
    KINDS.keys() & {"step", "step over a gap", "step and discharge"},
    KINDS.keys() & {"move", "forget", "look"},
    KINDS.keys() & {"post to a temporary queue", "delete"},
)  # fmt: skip
"""Kinds that are about the same objects."""


def related(first: str, second: str) -> bool:
    """Whether two kinds are about the same objects."""
    return any(first in topic and second in topic for topic in TOPICS)


def _scene() -> tuple[Step, ...]:
    steps: list[Step] = [AttachReceiver(0, "temporary", None)]
    for who in (0, 1):
        steps += [AttachSender(who, name, address) for name, address in (
            ("a", "a"), ("half", "$half/g/b"), ("resolve", "$half-resolve/g"), ("stream", "s"),
            ("asks", "$retained"), ("control", None), ("@0/temporary", "@0/temporary"), ("kept", "r.d"),
        )]  # fmt: skip
        steps += [
            AttachReceiver(who, "replies", None, 100, settled=True),
            Send(who, "control", ("declare", f"t{who}")),
        ]
    steps += [Send(0, "a", ("plain", f"m{number}", number % 2 == 0)) for number in range(4)]
    steps += [AttachReceiver(who, "from", "a", 2) for who in (0, 1)]
    return (
        *steps,
        Send(0, "kept", ("plain", "kept", True)),
        Send(0, "half", ("half", "h", "body")),
        AttachReceiver(0, "checks", BY_OUTCOME, 1),
        Pass(-1, FIRST_CHECK_MS + 100),
        Settle(0, "checks", 0, 0, "modified", True),
        AttachReceiver(0, "checks again", BY_OUTCOME, 1),
        Pass(-1, 31_000),
        *(AttachSender(who, "set", "$half-set/g/p/1/s1/b") for who in (0, 1)),
        Send(0, "set", ("row", "row 1")),
        AttachSender(0, "set 2", "$half-set/g/p/2/s2/b"),
        Send(0, "set 2", ("row", "row 2")),
        Send(0, "resolve", ("seal", "s2", 2, ("row 2",))),
        Send(0, "asks", ("cursor", "move", "c", (("r.d", 0),))),
    )


SCENE: Final = _scene()


def pair(first: str, second: str) -> Program:
    """One request of the first connection, and one of the second."""
    steps = (*KINDS[first](0), *KINDS[second](1))
    return Program(SCENE, steps, "park", f"{first}; {second}")


def judge_pair(first: str, second: str, stores: Stores) -> list[str]:
    """What is wrong with a pair in one group; empty if it is as in some order of the two connections."""
    program = pair(first, second)
    keyed = by_connection(program.steps)
    serial = run_program(program, one_by_one(keyed), stores, restart=False)
    if found := wrongs(serial):
        return found
    return judged(program, all_in_one(keyed), keyed, serial, stores)
