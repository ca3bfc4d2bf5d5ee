"""Sets of half messages for an administrator: what is staged, and to void it by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from amqp_broker.coordinator import Resolver
from amqp_broker.coordinator.half_sets import StagedSet
from amqp_broker.halves.administration import HalfRefusedByHand, check_answer
from amqp_broker.log_setup import logger
from amqp_broker.operations.operation import answer_to

if TYPE_CHECKING:
    from amqp_broker.half_sets.half_sets import HalfSets


@attrs.frozen
class HalfSetInfo:
    """One set that is not decided. Ages are milliseconds that passed; `destinations` is how many
    messages are for each queue.

    `coordinator` is the store that decides about it and `store` the one that has its messages, where it is
    not this one. State `prepared`: only its coordinator ends it (`deadline_ms` is 2^63 - 1). State
    `voided`: what is kept of a set of another store that never wins.
    """

    group: str
    producer: str
    epoch: int
    set_id: str
    state: str
    count: int
    byte_count: int
    age_ms: int
    deadline_ms: int
    container_id: str
    destinations: dict[str, int]
    coordinator: str = ""
    store: str = ""


class SetAdministration:
    """What `Broker` offers of sets."""

    def __init__(self, sets: HalfSets) -> None:
        self._sets = sets

    def describe(self) -> list[HalfSetInfo]:
        """All that are not decided, the oldest first."""
        found = sorted(self._sets.sets(), key=_begun_at_ms)
        return [self._describe(each) for each in found if each.parts and each.state is not None]

    def _describe(self, staged: StagedSet) -> HalfSetInfo:
        assert staged.state is not None, "it is not decided"
        return HalfSetInfo(
            group=staged.producer.group,
            producer=staged.producer.name,
            epoch=staged.epoch,
            set_id=staged.set_id,
            state=staged.state.value,
            count=staged.count,
            byte_count=staged.byte_count,
            age_ms=max(0, self._sets.now_ms() - staged.begun_at_ms),
            deadline_ms=self._sets.shown(staged.deadline_ms),
            container_id=staged.container_id,
            destinations={part.destination: part.count for part in staged.parts.values() if not staged.store},
            coordinator=staged.coordinator,
            store=staged.store,
        )

    async def void(
        self, group: str, producer: str, set_id: str, who: str, reason: str, *, force: bool
    ) -> None:
        """By hand; by `force` also a prepared one. Raises HalfRefusedByHand."""
        sets = self._sets
        staged = sets.known(group, producer).sets.get(set_id)
        if staged is None:
            raise HalfRefusedByHand(f"no set {set_id!r} of producer {producer!r} in group {group!r}")
        why = f"{who}: {reason}" if reason else who
        if force:
            why = f"by force: {why}"
        check_answer(await answer_to(
            lambda answer: sets.void(staged, Resolver.ADMIN, why, answer, force=force)
        ))  # fmt: skip
        if force:  # whoever finds an epoch in part has to find this, too
            logger("half_sets").error(
                "set.forced", group=group, producer=producer, epoch=staged.epoch, set=set_id,
                coordinator=staged.coordinator, who=who, reason=reason,
            )  # fmt: skip


def _begun_at_ms(staged: StagedSet) -> int:
    return staged.begun_at_ms
