"""A small day of a broker as its log would tell it, with everything that may happen and nothing wrong.

A *world* is a set of addresses and groups of its own, so that many of them fit into one log: one truthful,
and one for each fault (events_with_faults.py). An event is a dict of the columns that it has, without its
number in the log, which the place in the list gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import Any

from amqp_broker.pipeline.event_schema import ARCHIVED, COMMITTED, EVENT_COLUMNS, ROLLED_BACK

MORNING = datetime(2026, 11, 1, 8, tzinfo=UTC)
TICK = timedelta(milliseconds=20)
Event = dict[str, Any]


class World:
    """Events in the order of the log."""

    def __init__(self, name: str, clock: Iterator[datetime]) -> None:
        self.name = name
        self.events: list[Event] = []
        self._clock = clock
        self._next_offset: dict[str, int] = {}

    def at(self, place: str) -> str:
        """The address of a place of this world."""
        return f"{self.name}.{place}"

    def say(self, kind: str, **fields: Any) -> Event:
        """One more event."""
        event = {"time": next(self._clock), **fields, "type": kind}
        self.events.append(event)
        return event

    def put(self, place: str, kind: str = "put", **fields: Any) -> int:
        """A message becomes available; its offset."""
        address = self.at(place)
        offset = self._next_offset.get(address, 0)
        self._next_offset[address] = offset + 1
        known = {"message_id": f"{place}-{offset}", "container": "shop", "producer": "shop"} | fields
        self.say(kind, address=address, offset=offset, **{"bytes": 200 + offset, **known})
        return offset

    def deliver(self, place: str, offset: int, attempt: int = 1) -> None:
        """It is sent to a consumer."""
        self.say("deliver", address=self.at(place), offset=offset, container="kitchen", attempt=attempt)

    def settle(self, place: str, offset: int, outcome: str = "accepted", **fields: Any) -> None:
        """The consumer's outcome."""
        known = {"address": self.at(place), "offset": offset, "container": "kitchen"}
        self.say("settle", **known, outcome=outcome, **fields)

    def fail(self, place: str, offset: int) -> None:
        """The consumer could not process it: its next attempt is another one."""
        self.settle(place, offset, "modified", reason="delivery-failed")

    @contextmanager
    def commit(self) -> Iterator[None]:
        """What is said within is stored at once, at one time."""
        clock, now = self._clock, next(self._clock)
        self._clock = repeat(now)
        yield
        self._clock = clock

    def consume(self, place: str, offset: int) -> None:
        """Delivered and accepted."""
        self.deliver(place, offset)
        self.settle(place, offset)

    def swap(self, place: str, *told: tuple[str, int]) -> None:
        """Two events, each the first of its kind about an offset, stand the wrong way round."""
        found = (self.find(type=kind, address=self.at(place), offset=offset)[0] for kind, offset in told)
        one, other = map(self.events.index, found)
        self.exchange(one, other)

    def exchange(self, one: int, other: int) -> None:
        """The events at these places change places; the times of the places stay."""
        first, second = self.events[one], self.events[other]
        self.events[one] = {**second, "time": first["time"]}
        self.events[other] = {**first, "time": second["time"]}

    def again(self, event: Event, **changes: Any) -> Event:
        """It is told once more, now."""
        return self.say(event["type"], **{**event, "time": next(self._clock), **changes, "type": None})

    def drop(self, place: str, offset: int, *kinds: str) -> None:
        """Nothing of these kinds, or of any, is in the log about a message."""
        about = self.find(address=self.at(place), offset=offset)
        gone = [event for event in about if not kinds or event["type"] in kinds]
        self.events[:] = [event for event in self.events if event not in gone]

    def find(self, **fields: Any) -> list[Event]:
        """The events that have these fields."""
        return [event for event in self.events if all(event.get(k) == v for k, v in fields.items())]


def clock() -> Iterator[datetime]:
    """The broker's clock: it goes on for all worlds."""
    now = MORNING
    while True:
        now += TICK
        yield now


def truthful_world(name: str, ticks: Iterator[datetime]) -> World:
    """A world in which everything is as it should be, and every message has come to its end."""
    world = World(name, ticks)
    _plain(world)
    _refused(world)
    _sequenced(world)
    _halves(world)
    _sets(world)
    _logs(world)
    _transaction(world)
    return world


def _plain(world: World) -> None:
    """Two at a time, accepted; some released first, or given back by a connection that broke."""
    for _ in range(6):
        pair = [world.put("plain"), world.put("plain")]
        for offset in pair:
            world.deliver("plain", offset)
        world.settle("plain", pair[1])
        world.settle("plain", pair[0], "released")
        world.deliver("plain", pair[0])
        world.fail("plain", pair[0])
        world.deliver("plain", pair[0], attempt=2)
        world.settle("plain", pair[0])
    world.deliver("plain", lost := world.put("plain"))  # and the consumer's connection broke
    world.consume("plain", lost)
    world.settle("plain", world.put("plain"))  # its delivery was not noted before a crash


def _refused(world: World) -> None:
    """Rejected, undeliverable, expired."""
    for outcome, said, why in (
        ("rejected", None, "rejected"), ("modified", "undeliverable-here", "undeliverable-here"),
    ):  # fmt: skip
        offset = world.put("orders")
        world.deliver("orders", offset)
        with world.commit():
            world.settle("orders", offset, outcome, reason=said)
            world.say("dead", address=world.at("orders"), offset=offset, reason=why)
    world.say("expire", address=world.at("orders"), offset=world.put("orders"))
    world.consume("orders", world.put("orders"))


def _sequenced(world: World) -> None:
    """Two streams, of which one begins a new id, and one was refused a number out of turn."""
    for seq_id, count in ((1, 6), (2, 3)):
        for number in range(1, count + 1):
            world.put("stream", seq_stream="till 1", seq_id=seq_id, seq_no=number)
    world.say("reject", address=world.at("stream"), seq_stream="till 1", seq_id=2, seq_no=9, reason="seq:gap")
    for number in range(1, 5):
        world.put("stream", seq_stream="till 2", seq_id=7, seq_no=number)
    for offset in range(13):
        world.consume("stream", offset)


def half(world: World, half_id: str) -> Event:
    """A half message is put."""
    about = {"group": world.name, "half_id": half_id, "address": world.at("paid")}
    return world.say("half", **about, container="shop", bytes=90)


def decide(world: World, half_id: str, outcome: str = COMMITTED, resolver: str = "producer") -> None:
    """It is decided; with a commit its message is told before the decision, and consumed."""
    about = {"group": world.name, "half_id": half_id}
    if outcome != COMMITTED:
        world.say("decide", **about, outcome=outcome, resolver=resolver)
        return
    with world.commit():
        offset = world.put("paid", "publish", **about, message_id=half_id, bytes=120)
        place = {"address": world.at("paid"), "offset": offset}
        world.say("decide", **about, **place, outcome=outcome, resolver=resolver)
    world.consume("paid", offset)


def _halves(world: World) -> None:
    about = {"group": world.name}
    for number in range(4):
        half(world, f"h{number}")
        decide(world, f"h{number}")
    half(world, "back")
    decide(world, "back", ROLLED_BACK)
    half(world, "asked")
    for attempt in (1, 2):
        world.say("check", **about, half_id="asked", attempt=attempt)
        if attempt == 1:
            world.say("answer", **about, half_id="asked", attempt=attempt)
    decide(world, "asked", resolver="check")
    half(world, "old")
    world.say("park", **about, half_id="old", resolver="deadline")
    world.say("resume", **about, half_id="old", resolver="admin")
    decide(world, "old", resolver="admin")
    half(world, "late")
    decide(world, "late", ROLLED_BACK, resolver="deadline")
    half(world, "open")  # decided after the end of the log


def row_of_set(world: World, epoch: int, set_id: str, row: int) -> int:
    """A message of a set becomes available; its offset."""
    about = {"group": world.name, "producer": "enrich", "epoch": epoch, "set_id": set_id}
    return world.put("rich", "publish", **about, container=None, message_id=f"{set_id}-{row}")


def _sets(world: World) -> None:
    """A sink of two tasks; at epoch 2 a task was tried again, and its first set given up."""
    for epoch in range(1, 4):
        about = {"group": world.name, "producer": "enrich", "epoch": epoch}
        if epoch == 2:
            world.say("seal", **about, set_id="first try", count=2)
            world.say("void", **about, set_id="first try", resolver="producer", reason="aborted")
        for task in range(2):
            world.say("seal", **about, set_id=f"{epoch}-{task}", count=2)
        if epoch == 3:
            world.say("seal", **about, set_id="too late", count=2)
        with world.commit():
            offsets = [
                row_of_set(world, epoch, f"{epoch}-{task}", row)
                for task in range(2)
                for row in range(2)
            ]
            world.say("decide", **about, outcome=COMMITTED, resolver="producer")
            if epoch == 3:
                late = about | {"set_id": "too late", "reason": "epoch 3 was committed without it"}
                world.say("void", **late)
        for offset in offsets:
            world.consume("rich", offset)


def _logs(world: World) -> None:
    """A log archives what comes, whoever it comes from; and a queue was made one while messages waited."""
    for _ in range(3):
        world.put("log", outcome=ARCHIVED)
    about = {"group": world.name, "half_id": "logged"}
    half(world, "logged")
    world.events[-1]["address"] = world.at("log")
    with world.commit():
        offset = world.put("log", "publish", **about, outcome=ARCHIVED, bytes=120)
        place = {"address": world.at("log"), "offset": offset}
        world.say("decide", **about, **place, outcome=COMMITTED, resolver="producer")
    made = {"outcome": ARCHIVED, "reason": "its queue is a log now"}
    waited = [world.put("turned") for _ in range(2)]
    world.consume("turned", world.put("turned"))
    world.deliver("turned", waited[0])
    with world.commit():
        for offset in waited:
            world.say("settle", address=world.at("turned"), offset=offset, **made)
            world.put("turned", message_id=None, container=None, producer=None, **made)


def _transaction(world: World) -> None:
    """One message comes and another one goes, with one discharge."""
    world.deliver("plain", taken := world.put("plain"))
    with world.commit():
        offset = world.put("plain", txn_id=world.name)
        world.settle("plain", taken, txn_id=world.name)
    world.consume("plain", offset)


def numbered(worlds: Iterable[World], first_lsn: int = 1) -> list[Event]:
    """All worlds one after the other as one log."""
    return numbered_events((event for world in worlds for event in world.events), first_lsn)


def numbered_events(events: Iterable[Event], first_lsn: int = 1) -> list[Event]:
    """Events with their places as their numbers."""
    return [{**event, "lsn": lsn} for lsn, event in enumerate(events, first_lsn)]


def rows(events: Iterable[Event]) -> list[tuple[Any, ...]]:
    """The events as rows of the archive."""
    names = [name for name, _ in EVENT_COLUMNS]
    return [tuple(event.get(name) for name in names) for event in events]
