"""Random programs: a few families of requests over the same objects, from one to four connections."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from tests.grouping.stage import DELAY_MS, FIRST_CHECK_MS, MAX_AGE_MS, TOMBSTONE_MS, WINDOW_MS, Program
from tests.grouping.steps import (
    AttachReceiver,
    AttachSender,
    Disk,
    Leave,
    Pass,
    Send,
    Settle,
    Step,
    Subscribe,
)

STEPS_MAX: Final = 12
SELECTORS: Final = ("", "", "", "JMSXDeliveryCount = 1", "JMSPriority = 4")
"""Of links that receive, mostly none; what is there at first passes, so that no credit is left to race
for.
"""
PRIORITIES: Final = ("", "", "JMSPriority = 4", "JMSPriority = 9")
"""Of subscriptions: all, or none, of what programs send."""
Family = Callable[["Maker"], list[Callable[[], None]]]
"""Prepares its objects; gives what makes one more step of it."""


class Maker:
    """Gathers a program."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"program {seed}")
        self.selectors = random.Random(f"selectors {seed}")
        self.connections = self.rng.choice((1, 1, 1, 2, 2, 3, 4))
        self.setup: list[Step] = []
        self.steps: list[Step] = []
        self.transactions: list[tuple[int, str]] = []
        self._attached: set[tuple[int, str]] = set()
        self._bodies = 0

    def who(self) -> int:
        """Some connection."""
        return self.rng.randrange(self.connections)

    def body(self) -> str:
        """One that no message had before."""
        self._bodies += 1
        return f"m{self._bodies}"

    def sender(self, who: int, address: str | None, **fields: Any) -> str:
        """The name of a link that is attached in the preparation."""
        name = f"to {address or 'coordinator'}"
        if (who, name) not in self._attached:
            self._attached.add((who, name))
            self.setup.append(AttachSender(who, name, address, **fields))
        return name

    def prepare(self, who: int, address: str | None, message: tuple[Any, ...]) -> None:
        """A message that is sent, and answered, before the program begins."""
        self.setup.append(Send(who, self.sender(who, address), message))

    def send(self, address: str | None, *message: Any, who: int | None = None, txn: bool = False) -> None:
        """A message of the program, sometimes in a transaction of its connection."""
        who = self.who() if who is None else who
        mine = [name for whose, name in self.transactions if whose == who]
        name = self.rng.choice(mine) if txn and mine and self.rng.random() < 0.6 else None
        self.steps.append(Send(who, self.sender(who, address), message, txn=name))

    def txn_of(self, who: int) -> str | None:
        """A transaction of a connection, or none."""
        mine = [name for whose, name in self.transactions if whose == who]
        return self.rng.choice(mine) if mine and self.rng.random() < 0.6 else None


def queues(make: Maker) -> list[Callable[[], None]]:
    """Posts and outcomes, in any order, repeated and overlapping; links that go."""
    rng = make.rng
    name = rng.choice(("a", "e.c", "x.f", "r.d", "y.g"))
    links: list[tuple[int, str, int]] = []
    for number in range(rng.choice((1, 1, 2))):
        who, count = make.who(), rng.choice((1, 2, 3, 4))
        for _ in range(count):
            make.prepare(0, name, ("plain", make.body(), rng.random() < 0.7))
        link = f"from {name} {number}"
        make.setup.append(AttachReceiver(who, link, name, count, selector=make.selectors.choice(SELECTORS)))
        links.append((who, link, count))

    def post() -> None:
        who = make.who()
        message = ("plain", make.body(), rng.random() < 0.7)
        make.steps.append(
            Send(who, make.sender(who, name), message, settled=rng.random() < 0.3, txn=make.txn_of(who))
        )

    def settle() -> None:
        who, link, count = rng.choice(links)
        first = rng.randrange(count)
        last = rng.choice((first, rng.randrange(first, count)))
        outcome = rng.choice(("accepted", "rejected", "released", "modified", "modified-here"))
        make.steps.append(Settle(who, link, first, last, outcome, rng.random() < 0.4, make.txn_of(who)))

    def leave() -> None:
        who, link, _ = rng.choice(links)
        make.steps.append(Leave(who, link if rng.random() < 0.7 else None, rng.random() < 0.5))

    def later() -> None:
        make.steps.append(Pass(-1, rng.choice((DELAY_MS // 2, DELAY_MS + 1))))

    kinds = [post, post, settle, settle, settle, settle, leave]
    return [*kinds, later] if name == "y.g" else kinds


def topics(make: Maker) -> list[Callable[[], None]]:
    """Posts to topics, outcomes, and subscriptions that end and begin; the links of the program have no
    credit, so that none is left to race for.
    """
    rng = make.rng
    base = rng.choice("ttu")
    addresses = (f"{base}.a", f"{base}.b")
    patterns = (*addresses, f"{base}.#")
    count = rng.choice((1, 2, 3))
    links: list[tuple[int, str, int]] = []
    names: list[tuple[int, str, str]] = []
    for number in range(rng.choice((1, 2, 2, 3))):
        who, kind = make.who(), rng.choice(("durable", "durable", "shared-durable", "shared", "link"))
        name = f"sub {number}" if "shared" not in kind else f"shared {number}|"
        pattern = rng.choice(patterns)
        credit = count * (2 if pattern == patterns[-1] else 1)
        selector = make.selectors.choice(PRIORITIES)
        make.setup.append(Subscribe(who, name, name, pattern, kind, credit, selector))
        links.append((who, name, credit))
        names.append((who, name, kind))
    for address in addresses:
        for _ in range(count):
            make.prepare(0, address, ("plain", make.body(), rng.random() < 0.8))
    for who in range(make.connections):
        for address in addresses:
            make.sender(who, address)

    def post() -> None:
        make.send(rng.choice(addresses), "plain", make.body(), rng.random() < 0.8, txn=True)

    def settle() -> None:
        who, link, most = rng.choice(links)
        first = rng.randrange(most)
        last = rng.choice((first, rng.randrange(first, most)))
        outcome = rng.choice(("accepted", "rejected", "released", "modified", "modified-here"))
        make.steps.append(Settle(who, link, first, last, outcome, rng.random() < 0.4, make.txn_of(who)))

    def leave() -> None:
        who, link, _ = rng.choice(links)
        make.steps.append(Leave(who, link if rng.random() < 0.9 else None, rng.random() < 0.5))

    def again() -> None:
        """What was left before: no link is stolen, which would race with its end."""
        left = {(step.who, step.link) for step in make.steps if isinstance(step, Leave)}
        free = [each for each in names if each[:2] in left]
        if not free:
            return leave()
        who, name, kind = rng.choice(free)
        names.remove((who, name, kind))
        link = f"{name} again"
        if rng.random() < 0.4:
            make.steps.append(Subscribe(who, link, name, None))
        else:
            selector = rng.choice(PRIORITIES)
            make.steps.append(Subscribe(who, link, name, rng.choice(patterns), kind, 0, selector))
        if rng.random() < 0.5:
            make.steps.append(Leave(who, link, rng.random() < 0.7))
        return None

    return [post, post, post, settle, settle, settle, leave, again]


def duplicates(make: Maker) -> list[Callable[[], None]]:
    """Messages with some ids again and again, outcomes of what came, and time."""
    rng = make.rng
    name = rng.choice(("i.a", "i.b"))
    count = rng.choice((1, 2, 3))
    for number in range(count):
        make.prepare(0, name, ("named", f"id {number}", make.body(), True))
    who = make.who()
    make.setup.append(AttachReceiver(who, f"from {name}", name, count))
    for each in range(make.connections):
        make.sender(each, name)

    def post() -> None:
        make.send(name, "named", f"id {rng.randrange(5)}", make.body(), rng.random() < 0.7, txn=True)

    def settle() -> None:
        outcome = rng.choice(("accepted", "rejected", "released", "modified"))
        make.steps.append(Settle(who, f"from {name}", 0, rng.randrange(count), outcome, rng.random() < 0.4))

    def later() -> None:
        make.steps.append(Pass(-1, rng.choice((WINDOW_MS // 2, WINDOW_MS + 1))))

    return [post, post, post, post, settle, later]


def rings(make: Maker) -> list[Callable[[], None]]:
    """More messages than a ring has places, and outcomes of what a link held before; it has no credit, so
    that none is left to race for.
    """
    rng = make.rng
    count = rng.choice((1, 2))
    who = make.who()
    for _ in range(count):
        make.prepare(0, "o.a", ("plain", make.body(), rng.random() < 0.7))
    make.setup.append(AttachReceiver(who, "from o.a", "o.a", count))
    for each in range(make.connections):
        make.sender(each, "o.a")

    def post() -> None:
        make.send("o.a", "plain", make.body(), rng.random() < 0.6, txn=True)

    def settle() -> None:
        outcome = rng.choice(("accepted", "rejected", "released", "modified"))
        make.steps.append(Settle(who, "from o.a", 0, rng.randrange(count), outcome, rng.random() < 0.4))

    return [post, post, post, post, settle]


def last_values(make: Maker) -> list[Callable[[], None]]:
    """Values of some keys, and outcomes of what a link held before, which may have credit for more."""
    rng = make.rng
    count = rng.choice((1, 2, 3))
    who = make.who()
    for number in range(count):
        make.prepare(0, "v.a", ("keyed", f"k{number}", make.body(), rng.random() < 0.7))
    make.setup.append(AttachReceiver(who, "from v.a", "v.a", count + rng.choice((0, 0, 1, 2))))
    for each in range(make.connections):
        make.sender(each, "v.a")

    def post() -> None:
        key = rng.choice(("", "k0", "k0", "k1", "k2", "k3"))
        make.send("v.a", "keyed", key, make.body(), rng.random() < 0.6, txn=True)

    def settle() -> None:
        outcome = rng.choice(("accepted", "rejected", "released", "modified"))
        make.steps.append(Settle(who, "from v.a", 0, rng.randrange(count), outcome, rng.random() < 0.4))

    return [post, post, post, post, settle]


def halves(make: Maker) -> list[Callable[[], None]]:
    """Half messages put, put again, asked about, answered, decided and contradicted."""
    rng = make.rng
    destination = rng.choice(("b", "b", "r.d"))
    address = f"$half/g/{destination}"
    count = rng.choice((1, 2, 3))
    ids = [f"h{number}" for number in range(count)]
    for half_id in ids:
        make.prepare(0, address, ("half", half_id, f"body of {half_id}"))
    checks = rng.random() < 0.7
    checker = make.who()
    if checks:
        by_outcome = rng.random() < 0.7
        where = "$half-check/g/by-outcome" if by_outcome else "$half-check/g"
        make.setup += [AttachReceiver(checker, "checks", where, count), Pass(-1, FIRST_CHECK_MS + 100)]
    some = [*ids, "new 1", "new 2"]

    def put() -> None:
        half_id = rng.choice(some)
        other = "other " if rng.random() < 0.1 else ""
        make.send(address, "half", half_id, f"{other}body of {half_id}", txn=True)

    def decide() -> None:
        verdict = rng.choice(("commit", "commit", "rollback"))
        make.send("$half-resolve/g", "resolve", rng.choice(some), verdict, txn=True)

    def answer() -> None:
        if checks:
            first = rng.randrange(count)
            last = rng.choice((first, rng.randrange(first, count)))
            outcome = rng.choice(("accepted", "accepted", "rejected", "released", "modified"))
            make.steps.append(Settle(checker, "checks", first, last, outcome, rng.random() < 0.4))

    def later() -> None:
        ms = rng.choice((500, FIRST_CHECK_MS + 100, 31_000, MAX_AGE_MS, MAX_AGE_MS + 1_000, TOMBSTONE_MS))
        make.steps.append(Pass(-1, ms))

    return [put, put, decide, decide, decide, answer, answer, answer, later]


def sets(make: Maker) -> list[Callable[[], None]]:
    """Sets of a few epochs staged, sealed, committed and voided."""
    rng = make.rng
    destination = rng.choice(("b", "b", "r.d", "e.c"))
    names = [f"s{number}" for number in range(1, rng.choice((1, 2, 3)) + 1)]
    epochs = {name: rng.choice((number, number, 1)) for number, name in enumerate(names, 1)}
    staged: dict[str, tuple[str, ...]] = dict.fromkeys(names, ())
    owner = {name: make.who() for name in names}

    def address(name: str) -> str:
        return f"$half-set/g/p/{epochs[name]}/{name}/{destination}"

    for name in names:
        make.sender(owner[name], address(name))
        if rng.random() < 0.7:
            staged[name] = (make.body(),)
            make.prepare(owner[name], address(name), ("row", staged[name][0]))
            if rng.random() < 0.7:
                make.prepare(owner[name], "$half-resolve/g", ("seal", name, epochs[name], staged[name]))

    def stage() -> None:
        name = rng.choice(names)
        body = make.body()
        staged[name] += (body,)
        make.send(address(name), "row", body, who=owner[name])

    def seal() -> None:
        name = rng.choice(names)
        who = owner[name] if rng.random() < 0.8 else None
        make.send("$half-resolve/g", "seal", name, epochs[name], staged[name], who=who)

    def commit() -> None:
        epoch = rng.choice(list(epochs.values()))
        chosen = tuple((name, staged[name]) for name in names if epochs[name] == epoch and rng.random() < 0.9)
        make.send("$half-resolve/g", "commit-epoch", epoch, chosen)

    def void() -> None:
        make.send("$half-resolve/g", "void", rng.choice(names))

    return [stage, stage, seal, seal, commit, commit, commit, void]


def sequences(make: Maker) -> list[Callable[[], None]]:
    """A stream with duplicates, gaps and new ids."""
    rng = make.rng
    name = rng.choice(("s", "s", "x.f"))
    make.sender(0, name)
    at = [1, 0]

    def step() -> None:
        kind = rng.choice(("next", "next", "next", "again", "gap", "id"))
        if kind == "next":
            at[1] += 1
            place = (at[0], at[1], at[1] - 1)
        elif kind == "again":
            place = (at[0], max(1, at[1]), max(1, at[1]) - 1)
        elif kind == "gap":
            place = (at[0], at[1] + 3, at[1] + 2)
        else:
            at[0], at[1] = at[0] + 1, 1
            place = (at[0], 1, 0)
        make.send(name, "sequenced", *place, txn=True)

    return [step]


def transactions(make: Maker) -> list[Callable[[], None]]:
    """Transactions that the other families use, and their ends."""
    rng = make.rng
    for number in range(rng.choice((1, 2, 3))):
        who, name = make.who(), f"t{number}"
        make.prepare(who, None, ("declare", name))
        make.transactions.append((who, name))

    def discharge() -> None:
        who, name = rng.choice(make.transactions)
        make.send(None, "discharge", name, rng.random() < 0.3, who=who)

    def leave() -> None:
        who, _ = rng.choice(make.transactions)
        make.steps.append(Leave(who, "to coordinator", True))

    return [discharge, discharge, discharge, leave]


def cursors(make: Maker) -> list[Callable[[], None]]:
    """Cursors moved and forgotten, beside posts to what they stand in."""
    rng = make.rng
    for _ in range(3):
        make.prepare(0, "r.d", ("plain", make.body(), True))
    for who in range(make.connections):
        make.setup.append(AttachReceiver(who, "replies", None, 100, settled=True))
        make.sender(who, "$retained")
    make.setup.append(Send(0, "to $retained", ("cursor", "move", "c0", (("r.d", 1),))))

    def move() -> None:
        make.send("$retained", "cursor", "move", f"c{rng.randrange(2)}", (("r.d", rng.randrange(5)),))

    def forget() -> None:
        make.send("$retained", "cursor", "forget", f"c{rng.randrange(2)}", ())

    def look() -> None:
        make.send("$retained", "cursor", "cursor", f"c{rng.randrange(2)}", ())

    def post() -> None:
        make.send("r.d", "plain", make.body(), True)

    return [move, move, forget, look, post]


def temporary(make: Maker) -> list[Callable[[], None]]:
    """A queue that goes with its link, and senders to it."""
    rng = make.rng
    owner = make.who()
    make.setup.append(AttachReceiver(owner, "temporary", None, rng.choice((0, 0, 2))))
    address = f"@{owner}/temporary"
    for who in range(make.connections):
        make.sender(who, address)

    def post() -> None:
        make.send(address, "plain", make.body(), rng.random() < 0.5, txn=True)

    def leave() -> None:
        make.steps.append(Leave(owner, "temporary", True))

    return [post, post, post, leave]


def disk(make: Maker) -> list[Callable[[], None]]:
    """A disk without room, for a while."""
    rng = make.rng

    def change() -> None:
        make.steps.append(Disk(-1, rng.choice(("enough", "units", "groups", "commits"))))

    return [change]


FAMILIES: Final[dict[str, Family]] = {
    "queues": queues,
    "halves": halves,
    "sets": sets,
    "sequences": sequences,
    "cursors": cursors,
    "temporary": temporary,
    "topics": topics,
    "duplicates": duplicates,
    "rings": rings,
    "last values": last_values,
}


def random_program(seed: int) -> Program:
    """A program; the same seed gives the same."""
    make = Maker(seed)
    rng = make.rng
    names = rng.sample(list(FAMILIES), rng.choice((1, 1, 2, 3)))
    kinds: list[list[Callable[[], None]]] = []
    if rng.random() < 0.35:
        kinds.append(transactions(make))
        names.append("transactions")
    kinds += [FAMILIES[name](make) for name in names if name in FAMILIES]
    if rng.random() < 0.12:
        kinds.append(disk(make))
        names.append("disk")
    for _ in range(rng.randint(2, STEPS_MAX)):
        rng.choice(rng.choice(kinds))()
    policy = rng.choice(("rollback", "park"))
    return Program(tuple(make.setup), tuple(make.steps), policy, f"{seed} ({', '.join(names)})")
