"""Judges the lives of things by the tables of lives.py: pure functions over events in order, without Spark.

Events are dicts of the columns of the archive, with `at_us` instead of `time`. A judge is made for each
thing, told its events in the order of the log, and asked at the end; what it finds it adds to `found`.
carrying.py brings it what it needs on Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, NamedTuple

import attrs

from amqp_broker.pipeline.audits.lives import END, FAULTS, HALF, MESSAGE, SET, Cells, read
from amqp_broker.pipeline.event_schema import ARCHIVED, AVAILABLE, COMMITTED

Event = Mapping[str, Any]
UNRESOLVED_AFTER_MS: Final = 4 * 60 * 60 * 1000
"""The broker's own maximum age: what is older should have been decided by it."""
OVERTAKEN_BY: Final = 1000
"""A message is overtaken when so many later ones were delivered, and it never was: far more than any credit
window.
"""
LATE_CHECK_US: Final = 60 * 1_000_000
"""A check may be noted a moment after the decision that overtook it, not a minute."""
CRASH_US: Final = 2 * 1_000_000
"""An event may be so much earlier than the one before: a crash takes back a second of the broker's time."""
ANNOTATED_OCTETS: Final = 2_048
"""By so much a message may be longer than its half message was: its half-id and a reason are added to it."""
REJECTED: Final = "rejected"
"""Why something is dead that was rejected without a reason."""
FALLING: Final = 4
"""Deliveries in a row, each of a lower number than the one before, that somebody should look at."""
STORY: Final = 6
"""Places of the log that a finding names at most."""


class Found(NamedTuple):
    """One finding: its kind of FAULTS, whom it is about, why, and where to look."""

    kind: str
    key: str
    detail: str
    example: str


@attrs.frozen
class Beside:
    """What an address has otherwise: `first_offset` that was put, `delivered_offset`, the highest."""

    first_offset: int
    delivered_offset: int


@attrs.frozen
class Sight:
    """What an audit knows of the whole log: where it begins and ends, whether it is `complete` (begins with
    the first event ever written), whether all queues were empty at its end (`drained`), what is too long; and
    `addresses`, those that tell what becomes of their messages.
    """

    end_us: int
    complete: bool = True
    drained: bool = False
    unresolved_after_ms: int = UNRESOLVED_AFTER_MS
    addresses: Mapping[str, Beside] = attrs.field(factory=dict)


class Judge:
    """Base: one thing. `KEY` are the columns that say which, `TITLE` names it. Its own are the events of
    TYPES that have the columns of KEY and HAS and not that of HAS_NOT; LOOKS_AT is what else is looked at.
    """

    KEY: ClassVar[tuple[str, ...]] = ()
    TITLE: ClassVar[str] = ""
    TYPES: ClassVar[tuple[str, ...]] = ()
    HAS: ClassVar[tuple[str, ...]] = ()
    HAS_NOT: ClassVar[tuple[str, ...]] = ()
    LOOKS_AT: ClassVar[tuple[str, ...]] = ()
    __slots__ = ("_kinds", "_lsns", "sight", "found", "key")

    def __init__(self, key: tuple[Any, ...], sight: Sight, found: list[Found]) -> None:
        self.key = key
        self.sight = sight
        self.found = found
        self._lsns: list[str] = []
        self._kinds: set[tuple[str, str]] = set()

    @classmethod
    def takes(cls, event: Event) -> bool:
        """Whether an event is about such a thing."""
        return (
            event["type"] in cls.TYPES
            and all(event.get(name) is not None for name in (*cls.KEY, *cls.HAS))
            and all(event.get(name) is None for name in cls.HAS_NOT)
        )

    def tell(self, event: Event) -> None:
        """The next event."""
        raise AssertionError("a thing says what follows")

    def end(self) -> None:
        """The log is at its end."""

    def place(self, event: Event) -> None:
        """Where the log tells of it: the first places and the last one."""
        if len(self._lsns) == STORY:
            self._lsns.pop()
        self._lsns.append(f"{event['type']} lsn {event['lsn']}")

    def finding(self, kind: str, event: Event, title: str = "", example: str = "") -> None:
        """It must not be, and is told once."""
        shown = {name: "-" if value is None else value for name, value in event.items()}
        shown.update(zip(self.KEY, self.key, strict=True))
        key = (title or self.TITLE).format_map(shown)
        if (kind, key) not in self._kinds:
            self._kinds.add((kind, key))
            detail = FAULTS[kind].says.format_map(_Shown(shown))
            places = example or ", ".join(self._lsns) or f"lsn {event['lsn']}"
            self.found.append(Found(kind, key, detail, places))


class _Shown(dict[str, Any]):
    def __missing__(self, name: str) -> str:
        return "-"


class Life(Judge):
    """A thing with a table: its state, and the last event of each word."""

    CELLS: ClassVar[Cells]
    __slots__ = ("last", "state", "was")

    def __init__(self, key: tuple[Any, ...], sight: Sight, found: list[Found]) -> None:
        super().__init__(key, sight, found)
        self.state = "absent"
        self.was: dict[str, Event] = {}
        self.last: Event = {}

    def step(self, word: str, event: Event) -> None:
        """Look the word up."""
        self.place(event)
        self.state, fault = self.CELLS[self.state][word]
        if fault:
            self.fault(fault, event)
        self.was[word] = self.last = event

    def fault(self, fault: str, event: Event) -> None:
        """What the table says of it."""
        self.finding(fault, event)

    def end(self) -> None:
        """What the table says of the end. What the last commit of the log began is not judged: the rest of it
        may be missing.
        """
        if self.last:
            self.state, fault = self.CELLS[self.state][END]
            if fault and self.last["at_us"] < self.sight.end_us:
                self.fault(fault, self.last)


class Message(Life):
    """From its coming to its end."""

    KEY = ("address", "offset")
    TITLE = "{address} offset {offset}"
    TYPES = (*AVAILABLE, "deliver", "settle", "dead", "expire")
    LOOKS_AT = ("outcome", "container", "attempt", "reason")
    CELLS = read(MESSAGE)
    OUTCOMES: ClassVar[dict[str, str]] = {
        "accepted": "accepted", "rejected": "rejected", "released": "back", "modified": "back",
        ARCHIVED: "away",
    }  # fmt: skip
    __slots__ = ("_failed",)

    def __init__(self, key: tuple[Any, ...], sight: Sight, found: list[Found]) -> None:
        super().__init__(key, sight, found)
        self._failed = 0
        if not sight.complete:
            beside = sight.addresses.get(key[0])
            if beside is None or key[1] < beside.first_offset:
                self.state = "before"

    def tell(self, event: Event) -> None:
        """Its table, then what has to agree."""
        kind, last = event["type"], self.last
        if kind in AVAILABLE:
            word = "shelved" if event["outcome"] == ARCHIVED else "put"
        elif kind == "settle":
            word = self.OUTCOMES.get(event["outcome"], "back")
            if event["outcome"] == "modified" and "delivery-failed" in (event["reason"] or ""):
                word = "failed"
        else:
            word = kind
        before, delivered = self.state, self.was.get("deliver")
        self.step(word, event)
        if last and event["at_us"] < last["at_us"] - CRASH_US:
            self.finding("clock-backwards", event)
        if kind == "deliver":
            if delivered is not None and event["attempt"] != (delivered["attempt"] or 0) + self._failed:
                self.finding("attempt", event)
            self._failed = 0
        elif kind == "settle":
            self._failed += word == "failed"
            if delivered is not None and word != "away" and event["container"] != delivered["container"]:
                self.finding("settled-by-another", event)
        elif kind == "dead":
            self._died(before, last, event)

    def _died(self, before: str, last: Event, event: Event) -> None:
        """Of one that was rejected the same commit says that it is dead, and why, in the same words."""
        reason = event["reason"]
        if not reason:
            self.finding("dead-without-reason", event)
        elif before == "refused":
            if not (last["reason"] or REJECTED).startswith(reason):
                self.finding("dead-otherwise", event)
        elif reason == REJECTED and before not in ("before", "dead"):
            self.finding("dead-unrejected", event)
        if before == "refused" and event["at_us"] != last["at_us"]:
            self.finding("not-dead", event)

    def fault(self, fault: str, event: Event) -> None:
        """What is still there is lost if nothing should be."""
        if fault != "open":
            self.finding(fault, event)
        elif self.sight.drained:
            self.finding("lost", event)
        elif "deliver" not in self.was:
            beside = self.sight.addresses.get(self.key[0])
            if beside is not None and self.key[1] + OVERTAKEN_BY <= beside.delivered_offset:
                self.finding("overtaken", event)

    def end(self) -> None:
        """Messages that wait are judged whenever they came."""
        if self.state in ("waiting", "out"):
            self.fault("open", self.last)
        else:
            super().end()


class Half(Life):
    """From its put to its decision."""

    KEY = ("group", "half_id")
    TITLE = "group {group} half-id {half_id}"
    TYPES = ("half", "publish", "decide", "check", "answer", "park", "resume", "dead")
    LOOKS_AT = ("address", "offset", "outcome", "container", "bytes")
    CELLS = read(HALF)
    __slots__ = ("_answers",)

    def __init__(self, key: tuple[Any, ...], sight: Sight, found: list[Found]) -> None:
        super().__init__(key, sight, found)
        self._answers = 0  # without a check
        if not sight.complete:
            self.state = "before"

    def tell(self, event: Event) -> None:
        """Its table, then what has to agree."""
        word = kind = event["type"]
        if kind == "decide":
            word = "commit" if event["outcome"] == COMMITTED else "rollback"
        elif kind == "dead":
            word = "homeless"
        before = self.state
        self.step(word, event)
        if kind == "check":
            self._answers -= 1
        elif kind == "answer":
            self._answers += 1
            if self._answers > 0:
                self.finding("answer-without-check", event)
        elif kind == "publish" and (put := self.was.get("half")) is not None:
            longer = (event["bytes"] or 0) - (put["bytes"] or 0)
            if not 0 <= longer <= ANNOTATED_OCTETS or event["container"] != put["container"]:
                self.finding("visible-otherwise", event)
        elif word == "commit":
            self._agrees(event, before)
        elif kind == "half":
            self._answers = 0

    def _agrees(self, decided: Event, before: str) -> None:
        """The put, the decision and the message name one place, and the last two one instant."""
        put, published = self.was.get("half"), self.was.get("publish")
        address, moved = decided["address"], self.was.get("homeless")
        if published is not None and before == "shown":
            if published["at_us"] != decided["at_us"]:
                self.finding("visible-early", decided)
            if (published["address"], published["offset"]) != (address, decided["offset"]):
                self.finding("visible-elsewhere", decided)
        if put is not None:
            there = put["address"] if moved is None else address
            if there != address or (moved is not None and moved["address"] != put["address"]):
                self.finding("visible-elsewhere", decided)

    def fault(self, fault: str, event: Event) -> None:
        """What is undecided may be young, what is invisible may be in a queue that tells nothing."""
        if fault == "asked-after":
            decided = self.was.get("commit") or self.was["rollback"]
            if event["at_us"] > decided["at_us"] + LATE_CHECK_US:
                self.finding(fault, event)
        elif fault == "not-visible":
            if event["address"] in self.sight.addresses:
                self.finding(fault, event)
        elif fault != "undecided":
            self.finding(fault, event)
        elif "half" in self.was:
            age_us = self.sight.end_us - self.was["half"]["at_us"]
            if age_us > self.sight.unresolved_after_ms * 1000:
                self.finding("unresolved", self.was["half"])


class Set(Life):
    """Of a producer: told by it, and by its epochs."""

    KEY = ("group", "producer", "epoch", "set_id")
    TITLE = "group {group} producer {producer} epoch {epoch} set {set_id}"
    CELLS = read(SET)
    __slots__ = ("visible",)

    def __init__(self, key: tuple[Any, ...], sight: Sight, found: list[Found]) -> None:
        super().__init__(key, sight, found)
        self.visible = 0
        if not sight.complete:
            self.state = "before"

    def tell(self, event: Event) -> None:
        """Its own events, and each decision about its epoch or a later one."""
        word, before, seal = event["type"], self.state, self.was.get("seal")
        if word == "void" and event["resolver"] is None:
            word = "loses"
        published = self.was.get("publish")
        if word == "decide" and before == "sealed" and seal is not None and not seal["count"]:
            self.state = "empty"  # nothing has to become of it
            return
        if word in ("void", "loses") and before == "left" and event["at_us"] != self.was["decide"]["at_us"]:
            self.finding("set-left", event)
        self.step(word, event)
        self.visible += word == "publish"
        if before == "shown" and published is not None:
            if published["at_us"] != event["at_us"]:
                self.finding("set-early", event)
            if word == "decide" and seal is not None and seal["count"] != self.visible:
                self.finding("set-torn", event)

    def fault(self, fault: str, event: Event) -> None:
        """What is undecided may be young."""
        if fault != "set-unresolved":
            self.finding(fault, event)
        elif self.sight.end_us - self.was["seal"]["at_us"] > self.sight.unresolved_after_ms * 1000:
            self.finding(fault, event)


class Producer(Judge):
    """Of sets: its epochs, and the sets in them."""

    KEY = ("group", "producer")
    TITLE = "group {group} producer {producer}"
    EPOCH: Final = "group {group} producer {producer} epoch {epoch}"
    TYPES = ("seal", "publish", "void", "decide")
    HAS = ("epoch",)
    HAS_NOT = ("half_id",)
    LOOKS_AT = ("set_id", "count", "outcome", "resolver")
    __slots__ = ("_decided_us", "_epoch", "_epochs", "_open", "_sets")

    def __init__(self, key: tuple[Any, ...], sight: Sight, found: list[Found]) -> None:
        super().__init__(key, sight, found)
        self._epoch: int | None = None  # the highest that was decided
        self._epochs: set[int] = set()
        self._decided_us: int | None = None  # when that was, the last time
        self._sets: dict[tuple[Any, Any], Set] = {}
        self._open: dict[tuple[Any, Any], Set] = {}  # of which a decision says something

    def tell(self, event: Event) -> None:
        """A decision is one about all sets up to its epoch."""
        epoch, set_id = event["epoch"], event["set_id"]
        if event["type"] == "decide":
            self._decide(epoch, event)
            return
        if set_id is None:
            return
        one = self._sets.get((epoch, set_id))
        if one is None:
            one = self._sets[epoch, set_id] = Set((*self.key, epoch, set_id), self.sight, self.found)
        one.tell(event)
        if one.state in ("sealed", "shown"):
            self._open[epoch, set_id] = one
        if event["type"] == "void" and event["resolver"] is None and event["at_us"] != self._decided_us:
            if self._epoch is not None or self.sight.complete:
                one.finding("set-not-lost", event)
        if event["type"] == "seal" and self._epoch is not None and epoch <= self._epoch:
            one.finding("set-sealed-late", event)

    def _decide(self, epoch: int, event: Event) -> None:
        self.place(event)
        if event["outcome"] != COMMITTED:
            self.finding("epoch-rolled-back", event, self.EPOCH)
        if epoch in self._epochs:
            self.finding("epoch-twice", event, self.EPOCH)
        elif self._epoch is not None and epoch < self._epoch:
            self.finding("epoch-order", event, self.EPOCH)
        self._epochs.add(epoch)
        self._decided_us = event["at_us"]
        self._epoch = epoch if self._epoch is None else max(self._epoch, epoch)
        for each in [each for each in self._open if each[0] <= epoch]:
            one = self._open.pop(each)
            if one.state == "shown" and each[0] not in self._epochs:
                one.finding("set-undecided", event)  # a later epoch rules its sets out, and shows none
            one.tell(event)

    def end(self) -> None:
        """A producer of which nothing ever became visible may send to queues that tell nothing."""
        seen = any(one.visible for one in self._sets.values())
        for one in self._sets.values():
            if one.state == "left" and not seen:
                if one.last["at_us"] < self.sight.end_us:
                    self.finding("sets-unseen", one.last)
            else:
                one.end()


class Numbers:
    """Which numbers there were, of those from `low` to `high`: all but the ranges that are `missing`."""

    __slots__ = ("high", "low", "missing")

    def __init__(self) -> None:
        self.high: int | None = None
        self.low = 0
        self.missing: list[tuple[int, int]] = []

    def add(self, number: int) -> str:
        """How it follows: `next` (or first), `gap`, `late` (others were before it), `again`."""
        high = self.high
        if high is None or number > high:
            self.high = number
            if high is None:
                self.low = number
            elif number > high + 1:
                self.missing.append((high + 1, number - 1))
                return "gap"
            return "next"
        if number < self.low:
            if number < self.low - 1:
                self.missing.append((number + 1, self.low - 1))
            self.low = number
            return "late"
        for at, (first, last) in enumerate(self.missing):
            if first <= number <= last:
                rest = [(first, number - 1), (number + 1, last)]
                self.missing[at : at + 1] = [(one, other) for one, other in rest if one <= other]
                return "late"
        return "again"


class Queue(Judge):
    """Its numbers are given one after the other."""

    KEY = ("address",)
    TYPES = AVAILABLE
    HAS = ("offset",)
    __slots__ = ("_last", "_numbers")

    def __init__(self, key: tuple[Any, ...], sight: Sight, found: list[Found]) -> None:
        super().__init__(key, sight, found)
        self._numbers = Numbers()
        self._last: Event = {}

    def tell(self, event: Event) -> None:
        """The next one, mostly."""
        number = event["offset"]
        if self._numbers.add(number) == "late":
            above = {**event, "offset": number + 1}
            self.finding("order", above, Message.TITLE, f"offset {number} came at lsn {event['lsn']}")
        self._last = event

    def end(self) -> None:
        """What never came."""
        for first, last in self._numbers.missing:
            self.finding(
                "offset-missing", self._last, f"{{address}} offset {first} to {last}",
                f"between offset {first - 1} and offset {last + 1}",
            )  # fmt: skip


class Sequence(Judge):
    """Of a stream: (id, number) rises strictly with the log, and is there once. What is only in a group of
    messages has no seq_id, and may be numbered as its sender likes.
    """

    KEY = ("address", "seq_stream")
    TITLE = "{address} stream {seq_stream} id {seq_id} number {seq_no}"
    TYPES = AVAILABLE
    HAS = ("seq_id", "seq_no")
    LOOKS_AT = ("seq_prev",)
    __slots__ = ("_ids", "_last")

    def __init__(self, key: tuple[Any, ...], sight: Sight, found: list[Found]) -> None:
        super().__init__(key, sight, found)
        self._ids: dict[int, Numbers] = {}
        self._last: tuple[int, int] | None = None

    def tell(self, event: Event) -> None:
        """Compared with the one before it."""
        self.place(event)
        seq_id, number = place = (event["seq_id"], event["seq_no"])
        last, self._last = self._last, place
        if seq_id not in self._ids:
            self._ids[seq_id] = Numbers()
        again = self._ids[seq_id].add(number) == "again"
        example = f"lsn {event['lsn']}, after {last}"
        if again:
            self.finding("sequence-duplicate", event, example=example)
        if last is not None and place < last:
            self.finding("sequence-order", event, example=example)
        elif not again and (last is not None or self.sight.complete):
            before = last[1] if last is not None and last[0] == seq_id else 0
            said = number - 1 if event["seq_prev"] is None else event["seq_prev"]
            if said > before:
                self.finding("sequence-gap", event, example=example)


class Transaction(Judge):
    """All of it is one commit."""

    KEY = ("txn_id",)
    TITLE = "transaction {txn_id}"
    TYPES = (*AVAILABLE, "settle")
    __slots__ = ("_at_us",)

    def __init__(self, key: tuple[Any, ...], sight: Sight, found: list[Found]) -> None:
        super().__init__(key, sight, found)
        self._at_us: int | None = None

    def tell(self, event: Event) -> None:
        """At one time."""
        self.place(event)
        if self._at_us is None:
            self._at_us = event["at_us"]
        elif event["at_us"] != self._at_us:
            self.finding("transaction-torn", event)


class Consumer(Judge):
    """Priorities, filters and several links may turn the order of what a consumer gets now and then."""

    KEY = ("address", "container")
    TITLE = "{address} to {container}"
    TYPES = ("deliver",)
    HAS = ("offset",)
    LOOKS_AT = ("attempt",)
    __slots__ = ("_falling", "_last")

    def __init__(self, key: tuple[Any, ...], sight: Sight, found: list[Found]) -> None:
        super().__init__(key, sight, found)
        self._last: int | None = None
        self._falling = 0  # in a row

    def tell(self, event: Event) -> None:
        """First attempts."""
        if event["attempt"] != 1:
            return
        last, self._last = self._last, event["offset"]
        self._falling = self._falling + 1 if last is not None and event["offset"] < last else 0
        if self._falling == FALLING:
            self.finding("delivered-backwards", event)


JUDGES: Final[tuple[type[Judge], ...]] = (Message, Queue, Sequence, Consumer, Half, Producer, Transaction)


def judged(judge: type[Judge], events: Iterable[Event], sight: Sight) -> Iterator[Found]:
    """What is found of all things of one kind. `events` are theirs, those of one thing in a row, in order."""
    found: list[Found] = []
    one: Judge | None = None
    names = judge.KEY
    for event in events:
        key = tuple([event[name] for name in names])
        if one is None or one.key != key:
            if one is not None:
                one.end()
                yield from found
                found.clear()
            one = judge(key, sight, found)
        one.tell(event)
    if one is not None:
        one.end()
    yield from found
