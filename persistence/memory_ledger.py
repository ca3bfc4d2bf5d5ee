"""Half messages, streams, events, cursors and termini in memory: the reference for what they mean."""

from __future__ import annotations

from bisect import bisect_right
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Final

import attrs

from amqp_broker.persistence import questions
from amqp_broker.persistence.half_changes import CursorKey, HalfChanges, Key, NumberedHalf, StreamKey, copy_of
from amqp_broker.persistence.halves import (
    KEEP_DECISIONS,
    OPEN,
    Decision,
    Event,
    Half,
    Stream,
    keeps_body,
    size_of_event,
)
from amqp_broker.persistence.keep_clock import FORGET_HALVES, FORGET_ROWS, KeepClock
from amqp_broker.persistence.retention import Cursor
from amqp_broker.persistence.termini import StoredTerminus
from amqp_broker.persistence.verbs import KeepTime

MEMORY_EVENTS: Final = 1_000_000  # kept at most, as soon as `idle` runs
MEMORY_EVENT_BYTES: Final = 100  # what one costs, about


class MemoryLedger:
    """What the last commit left."""

    def __init__(self, event_keep_ms: int, event_keep_bytes: int = 0, half_keep_bytes: int = 0) -> None:
        assert event_keep_ms > 0 and event_keep_bytes >= 0, f"keep events for {event_keep_ms} ms"
        self._event_keep_ms = event_keep_ms
        self._event_keep_bytes = event_keep_bytes
        self._half_keep_bytes = half_keep_bytes
        self._kept_bytes = 0  # of bodies of half messages that are decided
        self._event_bytes = 0  # counted only where they are bounded
        self._clock = KeepClock()
        self._halves: dict[Key, Half] = {}  # oldest first
        self._bodies: dict[Key, bytes] = {}
        self._body_bytes = 0
        self._forget: list[tuple[int, Key]] = []  # a heap of decided ones, by the time of forgetting
        self._streams: dict[StreamKey, Stream] = {}
        self._decisions: dict[tuple[str, str], dict[int, Decision]] = {}  # of a producer, by epoch, in order
        self._events: list[tuple[Event, int]] = []  # runs in order, with their stamps
        self._next_seq = 1
        self._cursors: dict[CursorKey, Cursor] = {}
        self._termini: dict[int, StoredTerminus] = {}
        self._unsettled: dict[int, dict[bytes, bytes]] = {}  # by the number of the terminus
        self._held: dict[tuple[int, int], tuple[int, bytes]] = {}  # by queue and offset: number, delivery-tag
        self.time = 0, ""
        """What `KeepTime` said last: (now_ms, notes)."""

    # Answers

    def half(self, asked: questions.HalfOf) -> Half | None:
        half = self._halves.get((asked.group, asked.half_id))
        return None if half is None else copy_of(half)

    def some(self, asked: questions.SomeHalves) -> dict[bytes, Half | None]:
        return {half_id: self.half(questions.HalfOf(asked.group, half_id)) for half_id in asked.half_ids}

    def body(self, asked: questions.HalfBodyOf) -> bytes | None:
        return self._bodies.get((asked.group, asked.half_id))

    def open_ones(self, _: questions.OpenHalves) -> list[Half]:
        return [copy_of(half) for half in self._halves.values() if half.state in OPEN]

    def page(self, asked: questions.HalvesOf) -> list[Half]:
        of_group = [half for half in self._halves.values() if half.group == asked.group]
        found = [half for half in of_group if half.half_id > asked.after]
        chosen = [half for half in found if asked.state in (None, half.state)]
        chosen.sort(key=attrgetter("half_id"))
        return [copy_of(half) for half in chosen[: asked.count]]

    def stream(self, asked: questions.StreamOf) -> Stream | None:
        found = self._streams.get((asked.queue_id, asked.stream))
        return None if found is None else attrs.evolve(found)

    def stream_count(self, _: questions.StreamCount) -> int:
        return len(self._streams)

    def streams(self, asked: questions.StreamsOf) -> list[Stream]:
        of_queue = [key for key in self._streams if key[0] == asked.queue_id and key[1] > asked.after]
        return [attrs.evolve(self._streams[key]) for key in sorted(of_queue)[: asked.count]]

    def events(self, asked: questions.EventsFrom) -> list[Event]:
        from_seq, count = asked.from_seq, asked.count
        found: list[Event] = []
        at = max(bisect_right(self._events, from_seq, key=lambda kept: kept[0].seq) - 1, 0)
        while at < len(self._events) and len(found) < count:
            run = self._events[at][0]
            start = max(from_seq - run.seq, 0)
            found.extend(run.singles(start, min(run.count, start + count - len(found))))
            at += 1
        return found

    def event_range(self, _: questions.EventRange) -> tuple[int, int]:
        return (self._events[0][0].seq if self._events else self._next_seq), self._next_seq

    def cursors(self, asked: questions.CursorsOf) -> list[Cursor]:
        return [attrs.evolve(self._cursors[key]) for key in sorted(self._cursors) if key[0] == asked.name]

    def cursor_names(self, asked: questions.CursorNames) -> list[str]:
        return sorted({name for name, _ in self._cursors if name > asked.after})[: asked.count]

    def decision(self, asked: questions.DecisionOf) -> Decision | None:
        return self._decisions.get((asked.group, asked.producer), {}).get(asked.epoch)

    def latest_decision(self, asked: questions.LatestDecisionOf) -> Decision | None:
        return next(iter(self.decisions(questions.DecisionsOf(asked.group, asked.producer, 1))), None)

    def decisions(self, asked: questions.DecisionsOf) -> list[Decision]:
        return [*reversed(self._decisions.get((asked.group, asked.producer), {}).values())][: asked.count]

    def termini(self, _: questions.Termini) -> list[StoredTerminus]:
        return [attrs.evolve(self._termini[number]) for number in sorted(self._termini)]

    def unsettled(self, asked: questions.UnsettledOf) -> dict[bytes, bytes]:
        return dict(sorted(self._unsettled.get(asked.number, {}).items()))

    def held(self, asked: questions.HeldBy) -> dict[bytes, tuple[int, int]]:
        return {tag: key for key, (number, tag) in sorted(self._held.items()) if number == asked.number}

    @property
    def kept_bytes(self) -> int:
        """Octets of memory for half messages and events that only the store knows of."""
        first, end = self.event_range(questions.EventRange())
        return self._body_bytes + (end - first) * MEMORY_EVENT_BYTES

    # Writing

    def changes(self) -> HalfChanges:
        """The changes of a new group, none at first."""
        return HalfChanges(self._find, self._next_seq, self._is_decided)

    def _find(self, group: str, half_id: bytes) -> NumberedHalf | None:
        half = self.half(questions.HalfOf(group, half_id))
        return None if half is None else (1, half)

    def _is_decided(self, group: str, producer: str, epoch: int) -> bool:
        return self.decision(questions.DecisionOf(group, producer, epoch)) is not None

    def tell(self, time: KeepTime) -> None:
        """Take the time: what is kept is so much older, whatever becomes of the group."""
        self._clock.tick(time.now_ms / 1_000)

    def keep(self, changes: HalfChanges) -> None:
        """Apply the changes of a group."""
        if changes.time is not None:
            self.time = changes.time.now_ms, changes.time.notes
        stamp = self._clock.stamp() if changes.dated else 0
        for key, change in changes.halves.items():
            if change.replaces:
                self._drop(key)
                self._forget = [entry for entry in self._forget if entry[1] != key]
                heapify(self._forget)
            self._halves[key] = change.half
            if change.body is not None:
                self._lose_body(key)
                self._bodies[key] = change.body
                self._body_bytes += len(change.body)
            if not keeps_body(change.half):
                self._lose_body(key)
            if change.decided and key in self._bodies:
                self._kept_bytes += change.half.size_bytes
            if change.decided:
                keep_ms = change.half.expires_at_ms - change.half.resolved_at_ms
                heappush(self._forget, (max(stamp + keep_ms, 1), key))
        for stream_key, stream in changes.streams.items():
            if stream is None:
                self._streams.pop(stream_key, None)
            else:
                self._streams[stream_key] = stream
        for (group, producer, epoch), decision in changes.decisions.items():
            former = self._decisions.get((group, producer), {}) | {epoch: decision}
            newest = sorted(former)[-KEEP_DECISIONS:]
            self._decisions[group, producer] = {number: former[number] for number in newest}
        for event in changes.events:
            self._events.append((event.copy(), stamp))
            if self._event_keep_bytes:
                self._event_bytes += size_of_event(event)
        self._next_seq = changes.next_seq
        for cursor_key in [key for key in self._cursors if key[0] in changes.forgotten_cursors]:
            del self._cursors[cursor_key]
        self._cursors.update(changes.cursors)
        if changes.of_termini:
            self._keep_termini(changes)

    def _keep_termini(self, changes: HalfChanges) -> None:
        for number in changes.forgotten_termini:
            self._termini.pop(number, None)
            self._unsettled.pop(number, None)
            self._held = {key: pair for key, pair in self._held.items() if pair[0] != number}
        self._termini.update(changes.termini)
        for (number, delivery_tag), state in changes.unsettled.items():
            of_terminus = self._unsettled.setdefault(number, {})
            if state is None:
                of_terminus.pop(delivery_tag, None)
            else:
                of_terminus[delivery_tag] = state
        for key, (number, tag) in changes.held.items():
            if tag is not None:
                self._held[key] = number, tag
            elif self._held.get(key, (0, b""))[0] == number:
                del self._held[key]

    def forget_queue(self, queue_id: int) -> None:
        """Forget the streams and cursors of a queue that was deleted, and who holds its messages."""
        self._held = {key: pair for key, pair in self._held.items() if key[0] != queue_id}
        for key in [key for key in self._streams if key[0] == queue_id]:
            del self._streams[key]
        for cursor_key in [key for key in self._cursors if key[1] == queue_id]:
            del self._cursors[cursor_key]

    def forget_step(self, now: float) -> bool:
        """Forget some of what was kept long enough; True if more waits."""
        clock_ms = self._clock.tick(now)
        halves = 0
        while self._forget and self._forget[0][0] <= clock_ms and halves < FORGET_HALVES:
            self._drop(heappop(self._forget)[1])
            halves += 1
        if self._half_keep_bytes and self._kept_bytes > self._half_keep_bytes:
            self._drop_bodies()
        old = 0
        for run, event_stamp in self._events[: min(FORGET_ROWS, len(self._events) - 1)]:
            too_many = self._next_seq - run.seq > MEMORY_EVENTS
            too_large = bool(self._event_keep_bytes) and self._event_bytes > self._event_keep_bytes
            if not too_many and not too_large and event_stamp + self._event_keep_ms > clock_ms:
                break
            old += 1
            if self._event_keep_bytes:
                self._event_bytes -= size_of_event(run)
        del self._events[:old]
        return halves == FORGET_HALVES or old == FORGET_ROWS

    def _drop(self, key: Key) -> None:
        half = self._halves.pop(key, None)
        if self._lose_body(key) and half is not None:
            self._kept_bytes -= half.size_bytes

    def _lose_body(self, key: Key) -> bool:
        body = self._bodies.pop(key, None)
        self._body_bytes -= len(body or b"")
        return body is not None

    def _drop_bodies(self) -> None:
        """Drop bodies of what policy rolled back, the oldest first, down to the bound."""
        for key, half in self._halves.items():
            if self._kept_bytes <= self._half_keep_bytes:
                return
            if half.state not in OPEN and self._lose_body(key):
                self._kept_bytes -= half.size_bytes
