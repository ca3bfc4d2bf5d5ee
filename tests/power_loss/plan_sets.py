"""What a workload of half-message sets does, made from a seed, and what the store must hold after each group.

Two producers stage sets for two queues that retain, seal and void them and commit epochs; between them other
messages are sent and retired, cursors move, and everything is logged as events. `execution_sets.py` carries
it out. The names of sets and what their bodies say tell which epoch a message belongs to, so that what is
found can be judged without a plan too.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from zlib import crc32

from amqp_broker.persistence import DecidedSet

GROUP: Final = "g"
PRODUCERS: Final = ("p0", "p1")
QUEUES: Final = ("bytes", "time")
KEEP: Final = {"bytes": (0, 1_500), "time": (1_500_000, 0)}
"""(keep_ms, keep_bytes): the second one forgets with the next idleness."""

CURSORS: Final = ("one", "two")
EVENTS: Final = "$events"
EVENT_KEEP_BYTES: Final = 6_000
"""Some of the runs of events here, which a plan of forty groups passes."""
MAX_SETS: Final = 6
MAX_LIVE: Final = 25
START_MS: Final = 1_700_000_000_000
IDLE_JUMP_MS: Final = 1_000_000_000
"""The clock goes on by this with each idleness: what was sent before it is over then."""

Winners = tuple[DecidedSet, ...]
Settings = Mapping[str, str | int]


@dataclass(frozen=True, slots=True)
class Message:
    """One of a retaining queue. `idles` is how often the store was idle before, `group` which one sent it."""

    body: bytes
    gone: bool
    idles: int
    group: int


@dataclass(frozen=True, slots=True)
class Kept:
    """A retaining queue. Its watermark stands at `swept` or above, and at `floor` or below: sweeps are the
    store's own matter.
    """

    policy: tuple[int, int] = (0, 0)
    next_offset: int = 0
    messages: Mapping[int, Message] = field(default_factory=dict)
    swept: int = 0
    floor: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """A hidden node: what a set has staged for one queue."""

    settings: Settings
    bodies: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """One of the journal. `idles`: those before it."""

    seq: int
    kind: str
    at_ms: int
    fields: Mapping[str, str | int]
    idles: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class SetSnapshot:
    """What a store holds; a cursor by its name and where it stands, a decision by producer and epoch."""

    queues: Mapping[str, Kept] = field(default_factory=dict)
    parts: Mapping[str, Part] = field(default_factory=dict)
    decisions: Mapping[tuple[str, int], Winners] = field(default_factory=dict)
    cursors: Mapping[tuple[str, str], int] = field(default_factory=dict)
    events: tuple[Entry, ...] = ()
    idles: int = 0
    event_keep_bytes: int = 0


@dataclass(frozen=True, slots=True)
class MakeNode:
    """Create a queue, or the hidden node of a part of a set."""

    name: str
    settings: Settings | None = None


@dataclass(frozen=True, slots=True)
class DropNode:
    """Delete a hidden node with what it holds."""

    name: str


@dataclass(frozen=True, slots=True)
class Keep:
    """Have a queue retain."""

    name: str
    policy: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Send:
    """Post to a queue or a hidden node."""

    name: str
    first_offset: int
    bodies: tuple[bytes, ...]
    at_ms: int


@dataclass(frozen=True, slots=True)
class Settle:
    """Replace the settings of a hidden node: its set is sealed."""

    name: str
    settings: Settings


@dataclass(frozen=True, slots=True)
class Publish:
    """Move a part to its queue."""

    name: str
    queue: str
    first_offset: int
    at_ms: int


@dataclass(frozen=True, slots=True)
class DecideSets:
    """Keep the decision about an epoch."""

    producer: str
    epoch: int
    winners: Winners


@dataclass(frozen=True, slots=True)
class Archive:
    """Retire a range of a queue."""

    name: str
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True)
class Point:
    """Move a cursor; None removes it from all nodes."""

    cursor: str
    name: str
    offset: int | None


@dataclass(frozen=True, slots=True)
class Say:
    """Append an event; with `offsets` a run of them, one for each."""

    kind: str
    at_ms: int
    fields: Settings
    offsets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Fail:
    """Makes the store refuse its unit, and that unit alone: it posts to a node that does not exist."""


SetStep = (
    MakeNode | DropNode | Keep | Send | Settle | Publish | DecideSets | Archive | Point | Say | Fail
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SetGroup:
    """The units of one commit; `idle_after` lets the store do its housekeeping afterwards."""

    units: tuple[tuple[SetStep, ...], ...]
    idle_after: bool


@dataclass(frozen=True, slots=True)
class SetPlan:
    """Groups in order, and the snapshot before the first and after each of them."""

    groups: tuple[SetGroup, ...]
    snapshots: tuple[SetSnapshot, ...]

    @property
    def event_keep_bytes(self) -> int:
        """So much of the journal is kept; 0: no such bound."""
        return self.snapshots[0].event_keep_bytes


def make_set_plan(seed: object, groups: int, start: SetSnapshot | None = None) -> SetPlan:
    """A plan of `groups` commits, which begins where the store holds `start`."""
    writer = _Writer(random.Random(f"sets {seed!r}"), start or SetSnapshot())
    done = []
    snapshots = [writer.snapshot()]
    for _ in range(groups):
        done.append(writer.group())
        snapshots.append(writer.snapshot())
    return SetPlan(tuple(done), tuple(snapshots))


class _Writer:
    def __init__(self, chance: random.Random, start: SetSnapshot) -> None:
        self.chance = chance
        self.queues = dict(start.queues)
        self.parts = dict(start.parts)
        self.decisions = dict(start.decisions)
        self.cursors = dict(start.cursors)
        self.events = list(start.events)
        self.idles = start.idles
        self.event_keep_bytes = start.event_keep_bytes or chance.choice((0, EVENT_KEEP_BYTES))
        self.idle_before = False
        self.groups = max(
            (m.group for kept in self.queues.values() for m in kept.messages.values()), default=0
        )
        self.fresh: set[str] = set()  # made by the group that is being written

    def snapshot(self) -> SetSnapshot:
        return SetSnapshot(
            dict(self.queues), dict(self.parts), dict(self.decisions), dict(self.cursors), tuple(self.events),
            self.idles, self.event_keep_bytes,
        )  # fmt: skip

    def group(self) -> SetGroup:
        self.fresh.clear()
        self.groups += 1
        if self.idle_before:
            self.queues = {name: _swept(kept) for name, kept in self.queues.items()}
        if len(self.queues) < len(QUEUES) or self.queues[QUEUES[-1]].policy == (0, 0):
            units = self.first_units()
        else:
            units = [self.unit() for _ in range(self.chance.choice((1, 2, 3, 4, 6)))]
        self.idle_before = self.chance.random() < 0.12
        self.idles += self.idle_before
        self.queues = {name: _may_be_swept(kept, self.idles) for name, kept in self.queues.items()}
        return SetGroup(tuple(units), self.idle_before)

    def first_units(self) -> list[tuple[SetStep, ...]]:
        """The queues, and then their policies."""
        if not self.queues:
            self.queues = {name: Kept() for name in QUEUES}
            return [(MakeNode(name),) for name in QUEUES]
        self.queues = {name: replace(kept, policy=KEEP[name]) for name, kept in self.queues.items()}
        return [tuple(Keep(name, policy) for name, policy in KEEP.items())]

    @property
    def wall_ms(self) -> int:
        return START_MS + self.idles * IDLE_JUMP_MS + self.groups

    def unit(self) -> tuple[SetStep, ...]:
        draw = self.chance.random()
        if draw < 0.34:
            return self.stage()
        if draw < 0.47:
            return self.seal()
        if draw < 0.59:
            return self.commit_epoch(fails=False)
        if draw < 0.64:
            return self.commit_epoch(fails=True)
        if draw < 0.68:
            return self.void()
        if draw < 0.80:
            return self.send(self.chance.choice(QUEUES))
        if draw < 0.90:
            return self.archive(self.chance.choice(QUEUES))
        return self.point()

    # Sets

    def sets(self) -> dict[str, list[str]]:
        """The names of their parts by set, without those of this group: their ids are not known yet."""
        found: dict[str, list[str]] = {}
        for name, part in self.parts.items():
            found.setdefault(str(part.settings["set"]), []).append(name)
        return {each: names for each, names in found.items() if not self.fresh & {*names}}

    def is_sealed(self, names: list[str]) -> bool:
        return "sealed_count" in self.parts[names[0]].settings

    def stage(self) -> tuple[SetStep, ...]:
        open_parts = [name for names in self.sets().values() if not self.is_sealed(names) for name in names]
        if not open_parts or (self.chance.random() < 0.2 and len(self.sets()) < MAX_SETS):
            return self.begin()
        name = self.chance.choice(open_parts)
        part = self.parts[name]
        told = part.settings
        said = f"{told['producer']}.{told['epoch']}.{told['set']}."
        first = len(part.bodies)
        bodies = tuple(self.body(f"{said}{first + at}.") for at in range(self.chance.choice((1, 2, 3, 8))))
        self.parts[name] = replace(part, bodies=part.bodies + bodies)
        return (Send(name, first, bodies, self.wall_ms),)

    def body(self, said: str) -> bytes:
        return said.encode() + self.chance.randbytes(self.chance.choice((0, 20, 60, 200)))

    def begin(self) -> tuple[SetStep, ...]:
        producer = self.chance.choice(PRODUCERS)
        epoch = self.next_epoch(producer) + self.chance.choice((0, 0, 1))
        set_id = f"s{self.groups}x{self.chance.getrandbits(32):x}"
        steps = []
        for queue in self.chance.choice((QUEUES, QUEUES[:1], QUEUES[1:])):
            name = f"$half-set/{GROUP}/{producer}/{epoch}/{set_id}/{queue}"
            settings: Settings = {"producer": producer, "epoch": epoch, "set": set_id, "destination": queue}
            self.parts[name] = Part(settings)
            self.fresh.add(name)
            steps.append(MakeNode(name, settings))
        return tuple(steps)

    def next_epoch(self, producer: str) -> int:
        return max((epoch for name, epoch in self.decisions if name == producer), default=-1) + 1

    def seal(self) -> tuple[SetStep, ...]:
        names = [names for names in self.sets().values() if not self.is_sealed(names)]
        if not names:
            return ()
        chosen = max(names, key=lambda each: sum(len(self.parts[name].bodies) for name in each))
        bodies = [body for name in chosen for body in self.parts[name].bodies]
        sealed = {"sealed_count": len(bodies), "sealed_checksum": sum(map(crc32, bodies))}
        steps: list[SetStep] = []
        for name in chosen:
            settings = {**self.parts[name].settings, **sealed}
            self.parts[name] = replace(self.parts[name], settings=settings)
            steps.append(Settle(name, settings))
        return (*steps, self.say("set.sealed", {"set": self.parts[chosen[0]].settings["set"]}))

    def void(self) -> tuple[SetStep, ...]:
        sets = self.sets()
        if not sets:
            return ()
        set_id = self.chance.choice(sorted(sets))
        for name in sets[set_id]:
            del self.parts[name]
        return (*[DropNode(name) for name in sets[set_id]], self.say("set.voided", {"set": set_id}))

    def commit_epoch(self, *, fails: bool) -> tuple[SetStep, ...]:
        """Of a unit that fails nothing may stay: the model is as it was before."""
        sets = self.sets()
        sealed = sorted(each for each, names in sets.items() if self.is_sealed(names))
        if not sealed:
            return ()
        told = self.parts[sets[self.chance.choice(sealed)][0]].settings
        producer, epoch = str(told["producer"]), int(told["epoch"])
        touched = {
            name for name, part in self.parts.items()
            if part.settings["producer"] == producer and int(part.settings["epoch"]) <= epoch
        }  # fmt: skip
        if touched & self.fresh:
            return ()
        before = (dict(self.queues), dict(self.parts), dict(self.decisions), list(self.events))
        winners = [each for each in sealed if self.epoch_of(sets[each]) == (producer, epoch)]
        self.chance.shuffle(winners)
        del winners[: self.chance.choice((0, 0, 0, 1))]
        steps = [step for each in winners for name in sets[each] for step in self.publish(name)]
        steps += [DropNode(name) for name in sorted(touched) if name in self.parts]
        named = tuple((each, *self.seal_of(before[1][sets[each][0]])) for each in winners)
        for name in touched:
            self.parts.pop(name, None)
        self.decisions[producer, epoch] = named
        steps += [DecideSets(producer, epoch, named)]
        steps += [self.say("epoch.decided", {"producer": producer, "epoch": epoch})]
        if fails:
            self.queues, self.parts, self.decisions, self.events = before
            steps += [Fail()]
        return tuple(steps)

    def epoch_of(self, names: list[str]) -> tuple[str, int]:
        told = self.parts[names[0]].settings
        return str(told["producer"]), int(told["epoch"])

    def seal_of(self, part: Part) -> tuple[int, int]:
        return int(part.settings["sealed_count"]), int(part.settings["sealed_checksum"])

    def publish(self, name: str) -> list[SetStep]:
        part = self.parts[name]
        if not part.bodies:
            return []  # it is dropped with those that lose
        del self.parts[name]
        queue = str(part.settings["destination"])
        first = self.queues[queue].next_offset
        self.add(queue, part.bodies)
        offsets = tuple(range(first, first + len(part.bodies)))
        said = self.say("message.put", {"queue": queue, "set": part.settings["set"]}, offsets)
        return [Publish(name, queue, first, self.wall_ms), said]

    # Queues, cursors and events

    def add(self, queue: str, bodies: tuple[bytes, ...]) -> None:
        kept = self.queues[queue]
        new = {
            kept.next_offset + at: Message(body, False, self.idles, self.groups)
            for at, body in enumerate(bodies)
        }
        self.queues[queue] = replace(
            kept, next_offset=kept.next_offset + len(bodies), messages={**kept.messages, **new}
        )

    def send(self, queue: str) -> tuple[SetStep, ...]:
        first = self.queues[queue].next_offset
        bodies = tuple(self.body("-") for _ in range(self.chance.choice((1, 1, 3, 10))))
        self.add(queue, bodies)
        offsets = tuple(range(first, first + len(bodies)))
        return Send(queue, first, bodies, self.wall_ms), self.say("message.put", {"queue": queue}, offsets)

    def archive(self, queue: str) -> tuple[SetStep, ...]:
        kept = self.queues[queue]
        live = [offset for offset, message in kept.messages.items() if not message.gone]
        if not live:
            return ()
        first = live[0] if self.chance.random() < 0.7 else self.chance.choice(live)
        last = live[-1] if len(live) > MAX_LIVE else first + self.chance.choice((0, 1, 6))
        last = min(last, kept.next_offset - 1)
        messages = {
            offset: replace(message, gone=True) if first <= offset <= last else message
            for offset, message in kept.messages.items()
        }
        self.queues[queue] = replace(kept, messages=messages)
        return (Archive(queue, first, last),)

    def point(self) -> tuple[SetStep, ...]:
        cursor = self.chance.choice(CURSORS)
        if self.chance.random() < 0.1:
            self.cursors = {key: offset for key, offset in self.cursors.items() if key[0] != cursor}
            return (Point(cursor, "", None),)
        name = self.chance.choice((*QUEUES, EVENTS))
        last = self.events[-1].seq + 1 if self.events else 1
        end = last if name == EVENTS else self.queues[name].next_offset
        offset = self.chance.randint(min(self.cursors.get((cursor, name), 0), end), end)
        self.cursors[cursor, name] = offset
        return (Point(cursor, name, offset),)

    def say(self, kind: str, fields: Settings, offsets: tuple[int, ...] = ()) -> Say:
        at_ms = START_MS + self.groups
        seq = self.events[-1].seq + 1 if self.events else 1
        for at, offset in enumerate(offsets or (-1,)):
            entry = {**fields, "offset": offset} if offsets else fields
            self.events.append(Entry(seq + at, kind, at_ms, entry, self.idles))
        return Say(kind, at_ms, fields, offsets)


def _may_be_swept(kept: Kept, idles: int) -> Kept:
    """A checkpoint brings a step of housekeeping too: after any group what is over may go, whole runs."""
    keep_ms, keep_bytes = kept.policy
    over = [offset for offset, message in kept.messages.items() if keep_ms and message.idles < idles]
    size = 0
    for offset in sorted(kept.messages, reverse=True):
        size += len(kept.messages[offset].body)
        if keep_bytes and size > keep_bytes:
            group = kept.messages[offset].group
            over += [each for each, message in kept.messages.items() if message.group <= group]
            break
    return replace(kept, floor=max([kept.floor, *[offset + 1 for offset in over]]))


def _swept(kept: Kept) -> Kept:
    """The store has had all the time that it wanted: its bound in bytes holds."""
    keep_bytes = kept.policy[1]
    if not keep_bytes:
        return kept
    size = 0
    swept = kept.swept
    for offset in sorted(kept.messages, reverse=True):
        size += len(kept.messages[offset].body)
        if size > keep_bytes:
            swept = max(swept, offset + 1)
            break
    messages = {
        offset: message for offset, message in kept.messages.items() if offset >= swept or not message.gone
    }
    return replace(kept, swept=swept, messages=messages)
