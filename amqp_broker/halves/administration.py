"""Half messages for an administrator: what there is, and to have it decided or asked again by hand.

prepared --> "transaction pending"     rolled-back --> "rollback"
parked --> "parked"                    committed --> "ready", "in flight", "acknowledged": where its
                                                     message stands in its queue
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from amqp_broker.coordinator import (
    HalfGroup,
    HalfInput,
    HalfState,
    Resolver,
    half_id_of,
    half_id_value,
)
from amqp_broker.frames import Rejected
from amqp_broker.operations.operation import answer_to
from amqp_broker.persistence import Event, Half, Store
from amqp_broker.persistence.questions import EventsFrom, HalfBodyOf, HalvesOf, PageOf

if TYPE_CHECKING:
    from amqp_broker.broker_nodes import BrokerNodes
    from amqp_broker.halves.halves import Halves

PAGE: Final = 1_000
PENDING: Final = "transaction pending"
READY: Final = "ready"
IN_FLIGHT: Final = "in flight"
ACKNOWLEDGED: Final = "acknowledged"
ROLLBACK: Final = "rollback"
PARKED: Final = "parked"
_OPEN_WORDS: Final = {HalfState.PREPARED.value: PENDING, HalfState.PARKED.value: PARKED}


class HalfRefusedByHand(Exception):
    """What an administrator asked for can't be done; the text says what was found."""


def check_answer(outcome: Any) -> None:
    """Raises HalfRefusedByHand for a rejection."""
    error = outcome.error if isinstance(outcome, Rejected) else None
    if error is not None:
        raise HalfRefusedByHand(f"{error.condition}: {error.description}")


@attrs.frozen
class HalfMessage:
    """One half message. Ages are milliseconds that passed, times those of the clock on the wall.

    `lifecycle` is one of the words of RocketMQ's picture: transaction pending, parked, rollback, ready, in
    flight, acknowledged. `half_id` has the type that the producer gave it.
    """

    group: str
    half_id: Any
    lifecycle: str
    state: str
    destination: str
    attempts: int
    age_ms: int
    due_at_ms: int
    deadline_ms: int
    container_id: str
    size_bytes: int
    resolver: str
    resolved_at_ms: int
    reason: str


@attrs.frozen
class HalfFigures:
    """The figures of one group: pending ones as they are now, the rest since the start of the broker."""

    group: str
    prepared: int
    parked: int
    oldest_age_ms: int
    due_unasked: int
    asks: int
    conflicts: int
    unknown_ids: int
    decided: dict[tuple[str, str], int]
    """How many were decided, by (state, resolver)."""
    mean_resolution_ms: float
    """The mean time from storage to decision."""


class HalfAdministration:
    """What `Broker` offers of half messages."""

    def __init__(self, nodes: BrokerNodes, halves: Halves) -> None:
        self._nodes = nodes
        self._halves = halves

    async def messages(
        self, group: str, state: str | None = None, after: object = None, count: int = PAGE
    ) -> list[HalfMessage]:
        """At most `count` half messages of a group, in the order of their ids, behind the id `after`;
        `state` is prepared, parked, committed or rolled-back.
        """
        start = b"" if after is None else half_id_of(after) or b""

        def look(store: Store) -> list[HalfMessage]:
            return [self._describe(half, store) for half in store.ask(HalvesOf(group, state, start, count))]

        return await self._nodes.writer.ask(look)

    def _describe(self, half: Half, store: Store) -> HalfMessage:
        shown = self._halves.shown
        return HalfMessage(
            group=half.group,
            half_id=half_id_value(half.half_id),
            lifecycle=self._lifecycle(half, store),
            state=half.state,
            destination=half.destination,
            attempts=half.attempts,
            age_ms=max(0, self._nodes.clock.now_ms() - half.put_at_ms),
            due_at_ms=shown(half.due_at_ms),
            deadline_ms=shown(half.deadline_ms),
            container_id=half.container_id,
            size_bytes=half.size_bytes,
            resolver=half.resolver,
            resolved_at_ms=half.resolved_at_ms and shown(half.resolved_at_ms),
            reason=half.reason,
        )

    def _lifecycle(self, half: Half, store: Store) -> str:
        word = _OPEN_WORDS.get(half.state)
        if word is not None:
            return word
        if half.state == HalfState.ROLLED_BACK.value:
            return ROLLBACK
        queue = self._nodes.queues.find(half.queue or half.destination)
        if queue is None or half.offset < 0:
            return ACKNOWLEDGED
        if queue.persistent:
            stored = store.ask(PageOf(queue.queue_id, half.offset, 1, 1))
            if not any(record.offset == half.offset for record in stored.records):
                return ACKNOWLEDGED
        elif not queue.offers(half.offset):
            return ACKNOWLEDGED
        return READY if queue.offers(half.offset) else IN_FLIGHT

    async def body(self, group: str, half_id: object) -> bytes | None:
        """The stored bytes after the header, also of one that the broker's policy rolled back, while it is
        remembered and `half_keep_bytes` has room for it.
        """
        key = half_id_of(half_id) or b""
        return await self._nodes.writer.ask(HalfBodyOf(group, key))

    def figures(self, group: str) -> HalfFigures:
        """The figures of one group; zeros for a group that there is not."""
        halves = self._halves
        found = halves.groups.get(group)
        figures = halves.figures(group)
        now_ms = self._nodes.clock.now_ms()
        return HalfFigures(
            group=group,
            prepared=0 if found is None else found.count(HalfState.PREPARED),
            parked=0 if found is None else found.count(HalfState.PARKED),
            oldest_age_ms=0 if found is None else found.oldest_age_ms(now_ms),
            due_unasked=0 if found is None else found.due_unasked(now_ms),
            asks=figures.asks,
            conflicts=figures.conflicts,
            unknown_ids=figures.unknown_ids,
            decided=dict(figures.decided),
            mean_resolution_ms=figures.mean_resolution_ms(),
        )

    async def commit(self, group: str, half_id: object, who: str, reason: str = "") -> None:
        """Commit a half message by hand. Raises HalfRefusedByHand."""
        await self._change(group, half_id, HalfInput.COMMIT, who, reason)

    async def roll_back(self, group: str, half_id: object, who: str, reason: str = "") -> None:
        """Roll a half message back by hand. Raises HalfRefusedByHand."""
        await self._change(group, half_id, HalfInput.ROLLBACK, who, reason)

    async def resume(self, group: str, half_id: object, who: str, reason: str = "") -> None:
        """Have a parked one asked again, with fresh attempts. Raises HalfRefusedByHand."""
        await self._change(group, half_id, HalfInput.RESUME, who, reason)

    async def _change(self, group: str, half_id: object, what: HalfInput, who: str, reason: str) -> None:
        key = half_id_of(half_id)
        found: HalfGroup | None = self._halves.groups.get(group)
        if key is None or found is None:
            raise HalfRefusedByHand(
                f"expected the id of a half message of a group, got {group!r}, {half_id!r:.80}"
            )
        halves = self._halves
        check_answer(await answer_to(
            lambda answer: halves.change(found, key, what, Resolver.ADMIN, reason, answer, who)
        ))  # fmt: skip

    async def events(self, from_seq: int = 0, count: int = PAGE) -> list[Event]:
        """The journal from `from_seq` on: every put, ask, answer, decision, parking and resumption."""
        found = await self._nodes.writer.ask(EventsFrom(from_seq, count))
        return [attrs.evolve(event, at_ms=self._halves.shown(event.at_ms)) for event in found]
