"""Sets of half messages: two producers stage sets for two queues that retain, seal and void them and commit
epochs. Between them other messages are sent and retired, cursors move, and everything is logged as events.
A third queue is a log: what comes there is retired in the unit that brings it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final
from zlib import crc32

from amqp_broker.persistence import (
    JOURNAL_ID,
    Configure,
    CreateNode,
    DecideEpoch,
    Decision,
    DeleteNode,
    Event,
    ForgetCursor,
    Journal,
    Move,
    MoveCursor,
    Post,
    Record,
    RecoveredNode,
    Retain,
    Retire,
    Unit,
    Verb,
)
from amqp_broker.persistence.halves import Columns, DecidedSet
from amqp_broker.persistence.questions import CursorsOf, EventRange, LatestDecisionOf, RetainedBy
from amqp_broker.testing.store_suite.helpers import offsets, read_all
from tests.power_loss.plan import REFUSED, START_MS, Workload
from tests.promises.book import Bound
from tests.promises.facts import PRODUCERS

QUEUES: Final = ("bytes", "log", "time")
KEEP: Final = {"bytes": (0, 1_500), "log": (0, 3_000), "time": (500_000, 0)}
"""(keep_ms, keep_bytes): the last one forgets with the next rest."""
CURSORS: Final = ("one", "two")
MAX_SETS: Final = 6
MAX_LIVE: Final = 25
SET_KIND: Final = "set"

Sets = dict[str, list[RecoveredNode]]
"""The hidden nodes of the parts of each set."""


class SetsOfHalves(Workload):
    """The journal is bounded at some runs of the events here, which a plan of forty groups passes."""

    SIZES = (1, 2, 3, 4, 6)
    SHARE_OF_RESTS = 0.12
    BOUND = Bound(6_000, 3_000)

    def units(self) -> Sequence[Callable[[], Unit]]:
        """The queues first, and then their policies."""
        nodes = self.nodes()
        if not nodes:
            return [lambda: [CreateNode(name, "queue") for name in QUEUES]]
        if self.store.ask(RetainedBy(nodes["time"].queue_id)) is None:
            return [lambda: [Retain(nodes[name].queue_id, *policy) for name, policy in KEEP.items()]]
        return super().units()

    def unit(self) -> Unit:
        """One of these."""
        kinds: dict[Callable[[], Unit], int] = {
            self.stage: 34, self.seal: 13, self.commit_epoch: 12, self.fail_epoch: 5, self.void: 4,
            self.send: 12, self.archive: 10, self.point: 10, self.keep: 6,
        }  # fmt: skip
        (make,) = self.chance.choices([*kinds], [*kinds.values()])
        return make()

    # Sets

    def sets(self) -> Sets:
        """Without those of this group."""
        found: Sets = {}
        for node in self.store.recover().nodes:
            if node.kind == SET_KIND:
                found.setdefault(str(node.settings["set"]), []).append(node)
        return {name: parts for name, parts in found.items() if not self.is_fresh(parts)}

    def is_fresh(self, parts: Iterable[RecoveredNode]) -> bool:
        return not self.fresh.isdisjoint(part.name for part in parts)

    def bodies(self, part: RecoveredNode) -> list[bytes]:
        return [record.body for record in read_all(self.store, part.queue_id)]

    def stage(self) -> Unit:
        parts = [part for parts in self.sets().values() if not is_sealed(parts) for part in parts]
        if not parts or (self.chance.random() < 0.2 and len(self.sets()) < MAX_SETS):
            return self.begin()
        part = self.chance.choice(parts)
        told = part.settings
        said = f"{told['producer']}.{told['epoch']}.{told['set']}."
        numbers = range(part.next_offset, part.next_offset + self.chance.choice((1, 2, 3, 8)))
        return [self.posted(part, [f"{said}{number}." for number in numbers])]

    def posted(self, node: RecoveredNode, said: list[str]) -> Post:
        first, sizes = node.next_offset, (0, 20, 60, 200)
        bodies = [each.encode() + self.chance.randbytes(self.chance.choice(sizes)) for each in said]
        records = [
            Record(first + at, body, enqueued_at_ms=self.wall_ms, queue_id=node.queue_id)
            for at, body in enumerate(bodies)
        ]
        return Post(node.queue_id, records)

    def begin(self) -> Unit:
        producer = self.chance.choice(PRODUCERS)
        latest = self.store.ask(LatestDecisionOf("g", producer))
        epoch = (latest.epoch + 1 if latest is not None else 0) + self.chance.choice((0, 0, 1))
        set_id = f"s{self.chance.getrandbits(32):x}"
        unit: Unit = []
        for queue in self.chance.choice((QUEUES, QUEUES[:1], QUEUES[1:2], QUEUES[2:])):
            name = f"$half-set/g/{producer}/{epoch}/{set_id}/{queue}"
            settings = {"producer": producer, "epoch": epoch, "set": set_id, "destination": queue}
            self.fresh.add(name)
            unit.append(CreateNode(name, SET_KIND, dict(settings)))
        return unit

    def seal(self) -> Unit:
        open_sets = [parts for parts in self.sets().values() if not is_sealed(parts)]
        if not open_sets:
            return []
        parts = max(open_sets, key=lambda each: sum(part.message_count for part in each))
        bodies = [body for part in parts for body in self.bodies(part)]
        sealed = {"sealed_count": len(bodies), "sealed_checksum": sum(map(crc32, bodies))}
        told = self.say("set.sealed", {"set": str(parts[0].settings["set"])})
        return [*(Configure(part.queue_id, {**part.settings, **sealed}) for part in parts), told]

    def void(self) -> Unit:
        sets = self.sets()
        if not sets:
            return []
        set_id = self.chance.choice(sorted(sets))
        gone = [DeleteNode(part.queue_id) for part in sets[set_id]]
        return [*gone, self.say("set.voided", {"set": set_id})]

    def fail_epoch(self) -> Unit:
        """Nothing of it may stay."""
        unit = self.commit_epoch()
        return [*unit, REFUSED] if unit else []

    def commit_epoch(self) -> Unit:
        sealed = {name: parts for name, parts in self.sets().items() if is_sealed(parts)}
        if not sealed:
            return []
        producer, epoch = epoch_of(self.chance.choice(sorted(sealed.items()))[1][0])
        parts = [node for node in self.store.recover().nodes if node.kind == SET_KIND]
        touched = [each for each in parts if (producer, -1) < epoch_of(each) <= (producer, epoch)]
        if self.is_fresh(touched):
            return []
        winners = [name for name in sorted(sealed) if epoch_of(sealed[name][0]) == (producer, epoch)]
        self.chance.shuffle(winners)
        del winners[: self.chance.choice((0, 0, 0, 1))]
        unit: Unit = []
        at = {name: node.next_offset for name, node in self.nodes().items()}
        for name in winners:
            for part in sealed[name]:
                unit += self.published(part, at)
        moved = {verb.from_queue_id for verb in unit if isinstance(verb, Move)}  # the others lose
        unit += [DeleteNode(each.queue_id) for each in touched if each.queue_id not in moved]
        told: list[DecidedSet] = [(name, *seal_of(sealed[name][0])) for name in winners]
        told += self.chance.choice(([], [("far", 3, 33, "another store")]))
        coordinator = self.chance.choice(("", "elsewhere"))
        unit.append(DecideEpoch(Decision("g", producer, epoch, START_MS + epoch, tuple(told), coordinator)))
        return [*unit, self.say("epoch.decided", {"producer": producer, "epoch": epoch})]

    def published(self, part: RecoveredNode, at: dict[str, int]) -> list[Verb]:
        """A part becomes the end of its queue."""
        if not part.message_count:
            return []
        name = str(part.settings["destination"])
        first = at[name]
        at[name] += part.message_count
        told = {"queue": name, "set": str(part.settings["set"])}
        said = self.say("message.put", told, range(first, at[name]))
        queue_id = self.nodes()[name].queue_id
        move = Move(part.queue_id, queue_id, first, self.wall_ms)
        return [move, *archived(name, queue_id, first, at[name]), said]

    # Queues, cursors and events

    def send(self) -> Unit:
        node = self.nodes()[self.chance.choice(QUEUES)]
        post = self.posted(node, ["-"] * self.chance.choice((1, 1, 3, 10)))
        numbers = range(node.next_offset, node.next_offset + len(post.records))
        gone = archived(node.name, node.queue_id, numbers.start, numbers.stop)
        return [post, *gone, self.say("message.put", {"queue": node.name}, numbers)]

    def archive(self) -> Unit:
        node = self.nodes()[self.chance.choice(QUEUES)]
        live = offsets(self.store, node.queue_id)
        if not live:
            return []
        first = live[0] if self.chance.random() < 0.7 else self.chance.choice(live)
        last = live[-1] if len(live) > MAX_LIVE else first + self.chance.choice((0, 1, 6))
        return [Retire(node.queue_id, first, last)]

    def point(self) -> Unit:
        cursor = self.chance.choice(CURSORS)
        if self.chance.random() < 0.1:
            return [ForgetCursor(cursor)]
        nodes = {name: (self.nodes()[name].queue_id, self.nodes()[name].next_offset) for name in QUEUES}
        nodes["$events"] = (JOURNAL_ID, self.store.ask(EventRange())[1])
        where, end = nodes[self.chance.choice(sorted(nodes))]
        stands = [one.offset for one in self.store.ask(CursorsOf(cursor)) if one.queue_id == where]
        return [MoveCursor(cursor, where, self.chance.randint(sum(stands), end), START_MS)]

    def keep(self) -> Unit:
        """Another bound in bytes for what the first queue retains."""
        return [Retain(self.nodes()["bytes"].queue_id, 0, self.chance.choice((1_500, 2_000, 3_000)))]

    def say(self, kind: str, fields: dict[str, Any], numbers: Sequence[int] = ()) -> Journal:
        """An event; of several messages a run of them, one for each."""
        columns: Columns = {"offset": [*numbers]} if len(numbers) > 1 else {}
        fields = {**fields, "offset": numbers[0]} if len(numbers) == 1 else fields
        at_ms = START_MS + len(self.book.pages)
        return Journal(Event(kind, at_ms, fields, 0, max(len(numbers), 1), columns))


def archived(name: str, queue_id: int, first: int, end: int) -> list[Verb]:
    """What a log does with what comes there."""
    return [Retire(queue_id, first, end - 1)] if name == "log" else []


def is_sealed(parts: list[RecoveredNode]) -> bool:
    return "sealed_count" in parts[0].settings


def seal_of(part: RecoveredNode) -> tuple[int, int]:
    return int(str(part.settings["sealed_count"])), int(str(part.settings["sealed_checksum"]))


def epoch_of(part: RecoveredNode) -> tuple[str, int]:
    return str(part.settings["producer"]), int(str(part.settings["epoch"]))
