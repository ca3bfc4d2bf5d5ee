"""What is open of half messages, in the memory of one broker: what the operations judge by, and change.

find, body_of, destination_of (prepare)    hold_room, keep_body    decided, available, parked (stored)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from amqp_broker.connection import Source
from amqp_broker.coordinator import (
    HalfAnswer,
    HalfGroup,
    HalfSettings,
    HalfState,
    OpenHalf,
    Resolver,
    shown_half_id,
)
from amqp_broker.coordinator.half_sets import NEVER_MS
from amqp_broker.frames import Error
from amqp_broker.halves.destinations import why_elsewhere
from amqp_broker.halves.known import NONE_LOOKED_UP, GroupFigures, KnownHalf, Posted, StoredHalves
from amqp_broker.log_setup import logger
from amqp_broker.nodes.refusals import NodeRefused
from amqp_broker.operations.operation import Operation
from amqp_broker.persistence import Half
from amqp_broker.persistence.questions import HalfBodyOf, HalfOf, SomeHalves
from amqp_broker.queue import Queue

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes

BODY_CACHE_BYTES: Final = 32 << 20  # bodies of open half messages that are kept in memory: the newest


class HalfSource(Source):
    """Base: a link on which the broker asks about half messages, or shows parked ones. From any task."""

    def assigned(self, half: OpenHalf) -> None:
        """The group will ask about `half` here: `ask` follows when its body is there. A drain waits for that.
        """

    def ask(self, half: OpenHalf, body: bytes | None) -> None:
        """Ask about `half`, whose stored bytes after the header are `body`, in the connection's next turn.
        Without a body nobody is asked, until the lock is over at least.
        """

    def settle_released(self, half: OpenHalf) -> None:
        """Nobody is to answer for `half` any more: it was decided, or the lock is over."""

    def parked(self, half: OpenHalf) -> None:
        """A half message was parked: show it, too."""


class HalfGroups:
    """The groups of half messages of one broker, and what is open in them."""

    def __init__(self, nodes: BrokerNodes) -> None:
        self._nodes = nodes
        self._bodies: OrderedDict[OpenHalf, bytes] = OrderedDict()
        self._body_bytes = 0
        self._rooms: dict[OpenHalf, Queue] = {}
        self._watchers: dict[HalfGroup, list[HalfSource]] = {}
        self._log = logger("halves")
        self._figures: dict[str, GroupFigures] = {}
        self.groups: dict[str, HalfGroup] = {}
        for config in nodes.config.half_groups:
            self.groups[config.name] = HalfGroup(config.name, config.settings())

    # Groups

    def group(self, name: str) -> HalfGroup | None:
        """The group of this name, made on first use where the configuration allows it. Raises NodeRefused at
        the bound.
        """
        found = self.groups.get(name)
        if found is None and self._nodes.config.half_groups_on_first_use:
            most = self._nodes.config.limits.max_half_groups
            if len(self.groups) >= most:
                self._forget_idle_groups()
            if len(self.groups) >= most:
                raise NodeRefused(
                    "amqp:resource-limit-exceeded",
                    f"there are {len(self.groups)} groups of half messages in use, as many as "
                    "limits.max_half_groups allows",
                )
            found = self.groups[name] = HalfGroup(name, HalfSettings())
        return found

    def _forget_idle_groups(self) -> None:
        """Forget groups that were made on first use and have nothing open and nobody attached: they make room
        for others.
        """
        kept = {config.name for config in self._nodes.config.half_groups}
        for group in list(self.groups.values()):
            if group.name not in kept and not (
                group.open or group.sets or group.checkers or self._watchers.get(group)
            ):
                del self.groups[group.name]
                self._figures.pop(group.name, None)
                self._watchers.pop(group, None)

    def present(self, group: HalfGroup) -> HalfGroup:
        """The group of this name as it is now: `group`, unless it was forgotten and made again meanwhile."""
        return self.groups.setdefault(group.name, group)

    def recover(self, halves: Iterable[Half]) -> None:
        """Take up what the store has: due times and attempts as stored."""
        for stored in halves:
            group = self.groups.get(stored.group)
            if group is None:  # it was made on first use, or left the configuration
                group = self.groups[stored.group] = HalfGroup(stored.group, HalfSettings())
            half = OpenHalf(
                stored.half_id, stored.destination, stored.digest, stored.put_at_ms, stored.due_at_ms,
                stored.deadline_ms, stored.container_id, stored.size_bytes, stored.attempts,
                HalfState(stored.state),
            )  # fmt: skip
            half.message_format, half.priority = stored.message_format, stored.priority
            half.ttl_ms = stored.ttl_ms
            group.add(half)
            group.schedule(half)
            queue = self._nodes.queues.find(stored.destination)
            if queue is not None:
                queue.reserve_one(stored.size_bytes, anyway=True)
                self._rooms[half] = queue
        for group in self.groups.values():
            self.rearm(group)

    def figures(self, group: str) -> GroupFigures:
        """The figures of a group since the start."""
        found = self._figures.get(group)
        if found is None:
            found = self._figures[group] = GroupFigures()
        return found

    # What operations ask for

    def shown(self, at_ms: int) -> int:
        """What the clock on the wall shows, or showed, at a time of the broker's."""
        return at_ms if at_ms == NEVER_MS else self._nodes.clock.shown(at_ms)

    def now_ms(self) -> int:
        """The broker's time."""
        return self._nodes.clock.now_ms()

    def find(
        self, group: HalfGroup, half_id: bytes, now_ms: int, stored_halves: StoredHalves = NONE_LOOKED_UP
    ) -> KnownHalf | None:
        """What is known of a half message at a time; only in `Operation.prepare`, since it may ask the store.
        """
        half = group.open.get(half_id)
        if half is not None:
            at_ms, resolver = half.resolved_at_ms, half.resolver
            return KnownHalf(half.state, half.digest, half.destination, half, self.shown(at_ms), resolver)
        if half_id in stored_halves:
            stored = stored_halves[half_id]
        else:
            stored = self._nodes.writer.lookup(HalfOf(group.name, half_id))
        if stored is None or 0 < stored.expires_at_ms <= now_ms:
            return None  # the store may be later than that with forgetting it
        return KnownHalf(
            HalfState(stored.state), stored.digest, stored.destination, None,
            self.shown(stored.resolved_at_ms), stored.resolver,
        )  # fmt: skip

    def look_up(self, group: HalfGroup, half_ids: list[bytes]) -> StoredHalves:
        """What the store has of the half messages that are not open; only in `Operation.prepare`."""
        open_ones = group.open
        closed = [half_id for half_id in half_ids if half_id not in open_ones]
        if len(closed) < 2:
            return NONE_LOOKED_UP
        return self._nodes.writer.lookup(SomeHalves(group.name, closed))

    def unknown(self, half_id: bytes) -> Error:
        """The error for a half-id of which nothing is known."""
        return Error(
            condition=HalfAnswer.UNKNOWN.value,
            description=f"no half message {shown_half_id(half_id):.300} in this group",
        )

    def keep_body(self, half: OpenHalf, body: bytes) -> None:
        """Keep in memory the body of a half message that is on its way to the store, and the newest ones
        after that.
        """
        self._bodies[half] = body
        self._cached(len(body))
        while self._body_bytes > BODY_CACHE_BYTES and len(self._bodies) > 1:
            oldest = next(iter(self._bodies))
            if oldest.changes:
                break
            self.drop_body(oldest)

    def drop_body(self, half: OpenHalf) -> None:
        """Keep the body of a half message in memory no longer."""
        body = self._bodies.pop(half, None)
        if body is not None:
            self._cached(-len(body))

    def _cached(self, octets: int) -> None:
        """Count octets of bodies that are in memory besides the store, or (negative) are no longer; a store
        in memory counts its own.
        """
        self._body_bytes += octets
        if not self._nodes.config.memory:
            self._nodes.memory.cache.change(octets)

    def body_of(self, group: HalfGroup, half: OpenHalf) -> bytes:
        """The body of a half message: everything after its header. Only in `Operation.prepare`, since it may
        ask the store.
        """
        body = self._bodies.get(half)
        if body is not None:
            return body
        found = self._nodes.writer.lookup(HalfBodyOf(group.name, half.half_id))
        assert found is not None, f"an open half message without a body: {half.half_id!r}"
        return found

    def destination_of(self, half: OpenHalf) -> tuple[Queue, str]:
        """Where the message of a half message goes: the dead letters, if its queue is gone or takes no such
        messages any more, and why.
        """
        queue = self._rooms.get(half)
        if queue is None or queue.deleted:  # there may be a new one of this name
            queue = self._nodes.queues.find(half.destination)
        reason = why_elsewhere(half.destination, queue)
        if queue is None or reason:
            queue = self._nodes.dead_letters
        return queue, "" if queue.name == half.destination else reason

    def hold_room(self, half: OpenHalf, queue: Queue) -> None:
        """Keep room in `queue` until the half message is decided."""
        self._rooms[half] = queue

    def wait_for(self, queue: Queue) -> bool:
        """Whether half messages for `queue` are undecided: they go to the dead letters when it is gone."""
        # By name: one whose rollback is being committed has no room there any more, and may come back.
        return any(
            half.destination == queue.name for group in self.groups.values() for half in group.open.values()
        )

    def free_room(self, half: OpenHalf) -> Queue | None:
        """The half message is decided: its room is free, in the queue that is returned."""
        queue = self._rooms.pop(half, None)
        if queue is not None:
            queue.unreserve(1, half.size_bytes)
        return queue

    def forget_half(self, half: OpenHalf) -> None:
        """The put of a half message was not stored; whoever kept room for it gives that back."""
        self._rooms.pop(half, None)
        self.drop_body(half)

    def room_again(self, queue: Queue) -> None:
        """There is room in `queue`: senders that wait for it may go on."""
        self._nodes.drained(queue)

    def available(self, posted: Posted) -> None:
        """Distribute what commits made available; then the room that decisions gave back, so that nobody is
        given what a message has that was committed.
        """
        for queue, records in posted.items():
            if records and not queue.deleted:
                queue.make_available(records, sum([len(record.body) for record in records]))
                self._nodes.pump(queue)
        for queue in posted:
            self._nodes.drained(queue)

    def decided(self, group: HalfGroup, half: OpenHalf, resolver: Resolver) -> Queue | None:
        """A half message was committed or rolled back, and that is stored. The queue that is returned keeps
        no room for it any more; `available` is to distribute that.
        """
        now_ms = self.now_ms()
        self.figures(group.name).decision(half.state, resolver, half.age_ms(now_ms))
        self.drop_body(half)
        self.take_back(half)
        return self.free_room(half)

    def parked(self, group: HalfGroup, half: OpenHalf) -> None:
        """A half message waits for an administrator; links that show parked ones see it."""
        self.take_back(half)
        for watcher in self._watchers.get(group, ()):
            watcher.parked(half)

    def watch_parked(self, group: HalfGroup, watcher: HalfSource) -> None:
        """`watcher.parked(half)` is called for each one that is parked from now on."""
        self._watchers.setdefault(group, []).append(watcher)

    def forget_watcher(self, group: HalfGroup, watcher: HalfSource) -> None:
        """The link of `watcher` is gone."""
        self._watchers[group].remove(watcher)

    def take_back(self, half: OpenHalf) -> None:
        """Nobody answers a check-back about this half message any more."""
        checker, half.asked_by = half.asked_by, None
        if checker is not None:
            source: HalfSource = checker.source
            source.settle_released(half)

    def submit(self, operation: Operation) -> None:
        """Have it judged and stored with the next group."""
        self._nodes.writer.submit(operation)

    def collect(self, operation: Operation) -> None:
        """Have it judged and stored at the end of a connection's turn."""
        self._nodes.writer.collect(operation)

    def rearm(self, group: HalfGroup) -> None:
        """Something of `group` may be due earlier, or later, than it was."""
        raise AssertionError("Halves has the timers")
