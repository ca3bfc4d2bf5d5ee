"""Sharded sets as a model: a coordinator, two shards, tasks, drivers, checkers, and a network that delays
and loses.

The machines are the rules of docs/protocols/sets.md, but for one: the coordinator does not remember its word
here, so that the clients' own rules (`enlist_once`, `vote_prepared`) are seen to be enough. The clients are
generators that ask and get an answer or none. A word that got none may be told again, and then arrives twice,
each time as late as it likes. Drivers are killed anywhere, sets reach their age and checkers look when they
like. At the end everybody finishes, and `faults` says what is wrong: each row of each epoch that was decided
has to be there once, of an epoch that was not none, and nothing is left prepared.

`Rules` turns single rules off, so that the tests see what each of them is good for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from random import Random
from typing import Any, Final

import attrs

BROKERS: Final = 3
COORDINATOR: Final = 0
EPOCHS: Final = 3
TASKS: Final = 2
TRIES: Final = 3
ROWS_OF_A_TASK: Final = 2
PATIENCE: Final = 6
"""How often a driver tells a word before it fails."""
DRIVERS_MAX: Final = 40
LATE: Final = 0.08
CHAOS_STEPS: Final = 250
"""After so many steps nobody is killed and nothing is lost any more."""
STEPS_MAX: Final = 5_000

Name = tuple[int, int]
"""A set: its number, and the broker that has its messages."""
Row = tuple[int, int]
Client = Generator["Ask", Any, Any]


@attrs.frozen
class Rules:
    """What holds. Each is true in the protocol."""

    vote: bool = True
    """A prepared set is voided only after coordinator voided it."""
    enlist_once: bool = True
    """An enlisting without an answer is not told again."""
    homes_winners: bool = True
    """What is applied is what the coordinator says, not what the driver named."""
    lower_first: bool = True
    """A shard carries no epoch out before those below it are settled."""
    enlist_first: bool = True
    """A set is enlisted at the coordinator before it is prepared."""
    vote_prepared: bool = True
    """The coordinator is asked to void what is prepared, and nothing that may still be enlisted."""


@attrs.define
class Staged:
    """A set at a broker; the enlisted one at the coordinator has no rows."""

    epoch: int
    rows: tuple[Row, ...]
    state: str = "open"


@attrs.frozen
class Status:
    """What a broker tells of an epoch."""

    decided: bool
    winners: tuple[Name, ...]
    prepared: tuple[Name, ...]


@attrs.frozen(eq=False)
class Ask:
    """A word on its way to a broker."""

    broker: int
    word: str
    epoch: int
    args: tuple[Any, ...] = ()


class Machine:
    """A broker: what is here is in its store."""

    def __init__(self, number: int, rules: Rules) -> None:
        self.number = number
        self.rules = rules
        self.sets: dict[Name, Staged] = {}
        self.decisions: dict[int, tuple[Name, ...]] = {}
        self.visible: list[Row] = []

    def refuses(self, epoch: int) -> str:
        """Why an epoch takes no sets; empty where it does."""
        if epoch in self.decisions:
            return "decided"
        return "stale" if epoch < max(self.decisions, default=-1) else ""

    def stage(self, epoch: int, name: Name, rows: tuple[Row, ...]) -> str:
        """Messages of a new set."""
        if not (refused := self.refuses(epoch)):
            self.sets[name] = Staged(epoch, rows)
        return refused

    def enlist(self, epoch: int, name: Name) -> str:
        """The coordinator: a sealed set whose messages are elsewhere."""
        if not (refused := self.refuses(epoch)):
            self.sets.setdefault(name, Staged(epoch, (), "sealed"))
        return refused

    def seal(self, epoch: int, name: Name, state: str) -> str:
        """Sealed, or prepared where the coordinator is another."""
        if refused := self.refuses(epoch):
            return refused
        if name not in self.sets:
            return "unknown"
        self.sets[name].state = state
        return ""

    def commit(self, epoch: int, names: tuple[Name, ...]) -> str:
        """The coordinator decides; a second decision is the repeat of the first, whatever it names."""
        if refused := self.refuses(epoch):
            return refused if refused == "stale" else ""
        found = [self.sets.get(name) for name in names]
        if any(each is None or each.state != "sealed" or each.epoch != epoch for each in found):
            return "unknown"
        self._decide(epoch, names)
        return ""

    def apply(self, epoch: int, names: tuple[Name, ...]) -> str | list[int]:
        """A shard does what the coordinator decided; the epochs that have to be settled before."""
        if refused := self.refuses(epoch):
            return refused if refused == "stale" else ""
        lower = {each.epoch for each in self.sets.values() if each.state == "prepared" and each.epoch < epoch}
        if lower and self.rules.lower_first:
            return sorted(lower)
        if any(name not in self.sets or self.sets[name].state != "prepared" for name in names):
            return "unknown"
        self._decide(epoch, names)
        return ""

    def _decide(self, epoch: int, names: tuple[Name, ...]) -> None:
        for name in names:
            self.visible += self.sets[name].rows
        self.decisions[epoch] = names
        self.sets = {name: each for name, each in self.sets.items() if each.epoch > epoch}

    def void(self, epoch: int, name: Name, voted: bool) -> str:
        """A set is not wanted."""
        if name in self.decisions.get(epoch, ()):
            return "conflict"
        if name in self.sets and self.sets[name].state == "prepared" and not voted:
            return "prepared"
        self.sets.pop(name, None)
        return ""

    def status(self, epoch: int) -> Status:
        """What is known."""
        prepared = [n for n, each in self.sets.items() if each.state == "prepared" and each.epoch == epoch]
        return Status(epoch in self.decisions, self.decisions.get(epoch, ()), tuple(prepared))

    def reaches_its_age(self, name: Name) -> None:
        """Given up; what is prepared is not."""
        if self.sets[name].state != "prepared" or not self.rules.vote:
            del self.sets[name]


class Failed(Exception):
    """A task or a query fails."""


def told(broker: int, word: str, epoch: int, *args: Any) -> Client:
    """Tells a word again until it is answered, or the patience is over."""
    for _ in range(PATIENCE):
        answer = yield Ask(broker, word, epoch, args)
        if answer is not None:
            return answer
    raise Failed(word)


def vote(epoch: int, name: Name) -> Client:
    """The coordinator voids a set, then its shard; whether coordinator agreed."""
    said = yield from told(COORDINATOR, "void", epoch, name, False)
    if said == "conflict":
        return False
    if name[1] != COORDINATOR:
        yield from told(name[1], "void", epoch, name, True)
    return True


def apply(shard: int, epoch: int, winners: Sequence[Name]) -> Client:
    """Until the shard has done what the coordinator decided, and what is below it is settled."""
    names = tuple(name for name in winners if name[1] == shard)
    while True:
        said = yield from told(shard, "apply", epoch, names)
        if not isinstance(said, list):
            return said
        for lower in said:
            yield from settle(shard, lower)


def settle(shard: int, epoch: int) -> Client:
    """An epoch of which a shard has prepared sets: as the coordinator decided it, else they are voted void.
    """
    found = yield from told(COORDINATOR, "status", epoch)
    if not found.decided:
        there = yield from told(shard, "status", epoch)
        agreed = True
        for name in there.prepared:
            agreed = (yield from vote(epoch, name)) and agreed
        if agreed:
            return
        found = yield from told(COORDINATOR, "status", epoch)
    yield from apply(shard, epoch, found.winners)


class World:
    """One run of the model."""

    def __init__(self, seed: int, rules: Rules) -> None:
        self.random = Random(seed)
        self.rules = rules
        self.brokers = [Machine(number, rules) for number in range(BROKERS)]
        self.flying: list[tuple[int, Ask]] = []
        self.answers: list[tuple[int, Ask, Any]] = []
        self.clients: dict[int, Client] = {}
        self.asking: dict[int, Ask] = {}
        self.results: dict[int, Any] = {}
        self.done = -1
        """The last batch that Spark noted as done."""
        self.driver: int | None = None
        self.drivers = 0
        self.skips = self.random.random() < 0.2
        """Whether a new driver may pass over an epoch, as a batch with the next version does."""
        self.chaos = True
        self._next = 0
        self._lost: list[tuple[int, Ask]] = []
        """Words whose answer will not come in time, and who waits for it."""
        self._late: list[tuple[int, Ask]] = []
        """Words that arrive at some time, when nobody waits for them any more."""
        self._waiting: tuple[int, Ask] | None = None
        """A driver, for its tasks."""

    # --- clients

    def begin(self, client: Client) -> int:
        """Runs it to its first word."""
        self._next += 1
        number = self._next
        self.clients[number] = client
        self._resume(number, None)
        return number

    def _resume(self, number: int, answer: Any) -> None:
        client = self.clients[number]
        try:
            ask = client.send(answer)
        except (StopIteration, Failed) as end:
            self.results[number] = end.value if isinstance(end, StopIteration) else None
            self._kill(number)
            if self._waiting is not None:
                self.answers.append((*self._waiting, ""))
                self._waiting = None
            return
        self.asking[number] = ask
        if ask.broker < 0:
            self._waiting = (number, ask)
        elif self.chaos and self.random.random() < LATE:
            self._late.append((number, ask))
            self._lost.append((number, ask))
        else:
            self.flying.append((number, ask))

    def task(self, epoch: int, number: int) -> Client:
        """One attempt: its sets; "skipped" where the epoch is decided, None where it fails."""
        found = yield Ask(COORDINATOR, "status", epoch)
        if found is None or found.decided:
            return None if found is None else "skipped"
        rows = [(epoch, number * ROWS_OF_A_TASK + each) for each in range(ROWS_OF_A_TASK)]
        parts: dict[int, list[Row]] = {}
        for row in rows:  # another attempt may send a row elsewhere
            parts.setdefault(self.random.randrange(BROKERS), []).append(row)
        names: list[Name] = []
        for broker, each in parts.items():
            self._next += 1
            names.append((self._next, broker))
            said = yield Ask(broker, "stage", epoch, (names[-1], tuple(each)))
            if said != "":
                return "skipped" if said == "decided" else (yield from self._fail(epoch, names))
        for name in names:
            said = yield from self._sealed(epoch, name)
            if said != "":
                return "skipped" if said == "decided" else (yield from self._fail(epoch, names))
        return tuple(names)

    def _sealed(self, epoch: int, name: Name) -> Client:
        if name[1] == COORDINATOR:
            return (yield Ask(COORDINATOR, "seal", epoch, (name, "sealed")))
        enlist = Ask(COORDINATOR, "enlist", epoch, (name,))
        prepare = Ask(name[1], "seal", epoch, (name, "prepared"))
        for ask in (enlist, prepare) if self.rules.enlist_first else (prepare, enlist):
            again = 2 if ask is prepare or not self.rules.enlist_once else 1
            for _ in range(again):
                said = yield ask
                if said is not None:
                    break
            if said != "":
                return said
        return ""

    def _fail(self, epoch: int, names: Sequence[Name]) -> Client:
        """A task that fails may tidy up."""
        if self.random.random() < 0.5:
            for name in names:
                yield from vote(epoch, name)

    def query(self) -> Client:
        """A driver: epoch after epoch, each by its tasks. Tasks are clients of their own."""
        epoch = self.done + 1
        if self.skips and self.drivers > 1 and self.random.random() < 0.3:
            epoch += 1
        while epoch < EPOCHS:
            receipts = []
            for number in range(TASKS):
                receipts.append((yield from self._receipt(epoch, number)))
            yield from self._commit(epoch, receipts)
            self.done = epoch
            epoch += 1

    def _receipt(self, epoch: int, number: int) -> Client:
        """Of the first attempt that has one, of several after and beside each other."""
        for _ in range(TRIES):
            beside = self.random.choice((1, 1, 2))
            tries = [self.begin(self.task(epoch, number)) for _ in range(beside)]
            while True:
                receipt = next((self.results[one] for one in tries if self.results.get(one)), None)
                if receipt is not None:
                    return receipt
                if not any(one in self.clients for one in tries):
                    break
                yield Ask(-1, "wait", epoch)
        raise Failed("a task")

    def _commit(self, epoch: int, receipts: Sequence[Any]) -> Client:
        winners = tuple(name for one in receipts if one != "skipped" for name in one)
        if "skipped" not in receipts:
            said = yield from self._told_or_voted(epoch, winners)
            if said != "":
                yield from self._abort(epoch, winners)
                raise Failed("commit")
        found = yield from told(COORDINATOR, "status", epoch)
        if not found.decided:
            raise Failed("decided no more")
        chosen = found.winners if self.rules.homes_winners or "skipped" in receipts else winners
        for shard in range(1, BROKERS):
            yield from apply(shard, epoch, chosen)

    def _told_or_voted(self, epoch: int, winners: tuple[Name, ...]) -> Client:
        try:
            return (yield from told(COORDINATOR, "commit", epoch, winners))
        except Failed:
            yield from self._abort(epoch, winners)
            raise

    def _abort(self, epoch: int, winners: Sequence[Name]) -> Client:
        for name in winners:
            if not (yield from vote(epoch, name)):
                return

    def check(self, broker: int, name: Name, staged: Staged) -> Client:
        """A checker that was asked about a set, and takes its query for gone, be it so or not. The
        coordinator may be asked only about what is prepared: what is not may be enlisted later.
        """
        epoch = staged.epoch
        if broker == COORDINATOR or (staged.state != "prepared" and self.rules.vote_prepared):
            yield from told(broker, "void", epoch, name, False)
            return
        if not (yield from vote(epoch, name)):
            found = yield from told(COORDINATOR, "status", epoch)
            yield from apply(broker, epoch, found.winners)

    # --- the network

    def step(self) -> None:
        """Something happens."""
        chance = self.random.random()
        if self.chaos and chance < 0.06:
            self._misfortune(chance)
        elif self._lost and chance < 0.10:
            self._answered(*self._lost.pop(self.random.randrange(len(self._lost))), None)
        elif self._late and (chance < 0.12 or not (self.chaos or self.flying)):
            self.flying.append(self._late.pop(self.random.randrange(len(self._late))))
        elif self.answers and (chance < 0.5 or not self.flying):
            self._answered(*self.answers.pop(self.random.randrange(len(self.answers))))
        elif self.flying:
            number, ask = self.flying.pop(self.random.randrange(len(self.flying)))
            answer = getattr(self.brokers[ask.broker], ask.word)(ask.epoch, *ask.args)
            if self.chaos and self.random.random() < 0.03:
                self._lost.append((number, ask))
            else:
                self.answers.append((number, ask, answer))
        elif self._lost:
            self._answered(*self._lost.pop(), None)

    def _answered(self, number: int, ask: Ask, answer: Any) -> None:
        if self.asking.get(number) is ask:
            self._resume(number, answer)

    def _misfortune(self, chance: float) -> None:
        random = self.random
        if chance < 0.025:
            # No answer in time: what was told is lost, or comes later.
            waits = [number for number, ask in self.asking.items() if ask.broker >= 0]
            if waits:
                number = random.choice(waits)
                if random.random() < 0.4:
                    self.flying = [each for each in self.flying if each[0] != number]
                self._resume(number, None)
        elif chance < 0.042 and self.driver in self.clients:
            self._kill(self.driver)
            for number in [each for each in self.clients if random.random() < 0.5]:
                self._kill(number)
        elif chance < 0.06:
            known = [(broker, name) for broker in self.brokers for name in broker.sets]
            if known:
                broker, name = random.choice(known)
                if random.random() < 0.5:
                    broker.reaches_its_age(name)
                else:
                    self.begin(self.check(broker.number, name, broker.sets[name]))

    def _kill(self, number: int) -> None:
        del self.clients[number]
        ask = self.asking.pop(number, None)
        if self._waiting is not None and self._waiting[1] is ask:
            self._waiting = None

    # --- the life

    def live(self) -> list[str]:
        """Drivers until one is done, or no more comes; then checkers. What is wrong."""
        goes_for_good = self.random.random() < 0.2
        drivers_max = self.random.randrange(1, 3) if goes_for_good else DRIVERS_MAX
        steps = 0
        while steps < STEPS_MAX:
            steps += 1
            self.chaos = steps < CHAOS_STEPS
            if self.driver not in self.clients and self.done < EPOCHS - 1 and self.drivers < drivers_max:
                self.drivers += 1
                self.driver = self.begin(self.query())
            elif not (self.flying or self.answers or self._lost or self._late) and not self._checkers():
                break
            self.step()
        faults = self.faults(complete=not goes_for_good)
        return faults if steps < STEPS_MAX else [*faults, "it does not end"]

    def _checkers(self) -> bool:
        """All is quiet: what is left is asked about."""
        self.chaos = False
        left = [
            (each.number, name, staged)
            for each in self.brokers
            for name, staged in each.sets.items()
            if staged.state == "prepared"
        ]
        for broker, name, staged in left:
            self.begin(self.check(broker, name, staged))
        return bool(left)

    def faults(self, complete: bool) -> list[str]:
        """What is wrong at the end."""
        found: list[str] = []
        seen = Counter(row for broker in self.brokers for row in broker.visible)
        coordinator = self.brokers[COORDINATOR]
        if complete and self.done < EPOCHS - 1:
            found.append(f"stuck after epoch {self.done}")
        for epoch in range(EPOCHS):
            if complete and not self.skips and epoch not in coordinator.decisions:
                found.append(f"epoch {epoch} was never decided")
            wanted = int(epoch in coordinator.decisions)
            for row in range(TASKS * ROWS_OF_A_TASK):
                if seen[epoch, row] != wanted:
                    found.append(f"epoch {epoch} row {row}: {seen[epoch, row]} times, expected {wanted}")
        for broker in self.brokers[1:]:
            for epoch, names in broker.decisions.items():
                decided = coordinator.decisions.get(epoch, ())
                chosen = tuple(name for name in decided if name[1] == broker.number)
                if names != chosen:
                    found.append(f"epoch {epoch}: losers are seen at shard {broker.number}")
        return found


def run(seed: int, rules: Rules = Rules()) -> list[str]:
    """One run; what is wrong."""
    return World(seed, rules).live()
