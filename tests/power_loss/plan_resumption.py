"""Durable termini: messages that are posted with the outcomes of their deliveries, what is settled, and what
is held until it leaves with its row.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from amqp_broker.persistence import (
    ForgetHeld,
    ForgetTerminus,
    ForgetUnsettled,
    KeepHeld,
    KeepTerminus,
    KeepUnsettled,
    RecoveredNode,
    Retire,
    StoredTerminus,
    Unit,
)
from amqp_broker.persistence.questions import HeldBy, Termini, UnsettledOf
from amqp_broker.testing.store_suite.helpers import read_all
from tests.power_loss.plan import REFUSED
from tests.power_loss.plan_messages import Messages
from tests.promises.book import Book

NUMBERS: Final = range(1, 6)
"""Of termini. Each is changed by one unit of a group. To the even ones we send."""
STATES: Final = (b"accepted", b"rejected " * 20)


class Resumption(Messages):
    """No half messages and streams: those of `Messages` do for both."""

    def __init__(self, chance: random.Random, book: Book) -> None:
        super().__init__(chance, book)
        self.touched: set[int] = set()

    def units(self) -> Sequence[Callable[[], Unit]]:
        """Each terminus is changed once in a group."""
        self.touched.clear()
        return super().units()

    def unit(self) -> Unit:
        """Messages of one link, with what is remembered of them, or a change of its terminus alone."""
        chance, nodes = self.chance, self.nodes()
        self.numbered.clear()
        free = [number for number in NUMBERS if number not in self.touched]
        if not nodes or not free or chance.random() < 0.2:
            return super().unit()
        number = chance.choice(free)
        self.touched.add(number)
        if number not in {terminus.number for terminus in self.store.ask(Termini())}:
            return self.attached(number, {})
        if number % 2 == 0:
            return self.held(number, nodes)
        unsettled = self.store.ask(UnsettledOf(number))
        draw = chance.random()
        if draw < 0.5:
            return self.posted(number, self.some(nodes))
        if draw < 0.6:
            kept = {tag: state for tag, state in unsettled.items() if chance.random() < 0.5}
            return [ForgetTerminus(number), *self.attached(number, kept)]
        if draw < 0.7:
            return [ForgetTerminus(number)]
        if draw < 0.75:
            return [KeepUnsettled(number, {b"refused": STATES[0]}), REFUSED]
        settled = [tag for tag in unsettled if chance.random() < 0.7]
        return [ForgetUnsettled(number, [*settled, b"none"])]

    def held(self, number: int, nodes: dict[str, RecoveredNode]) -> Unit:
        """It takes some messages, or some leave with an outcome, or return; or it ends."""
        chance = self.chance
        draw = chance.random()
        held = self.store.ask(HeldBy(number))
        if draw < 0.1:
            return [ForgetTerminus(number), *(self.attached(number, {}) if draw < 0.05 else [])]
        if draw < 0.6 or not held:
            node = self.some(nodes)
            records = read_all(self.store, node.queue_id)
            taken = [each.offset for each in records if chance.random() < 0.3]
            tags = {offset: chance.randbytes(8) for offset in taken}
            return [KeepHeld(number, node.queue_id, tags)] if taken else []
        queue_id = chance.choice([queue_id for queue_id, _ in held.values()])
        offsets = [at for there, at in held.values() if there == queue_id and chance.random() < 0.7]
        leaves = chance.random() < 0.7
        retired = [Retire(queue_id, offset, offset) for offset in offsets if leaves]
        return [*retired, ForgetHeld(number, queue_id, [*offsets, 1 << 40])]

    def attached(self, number: int, unsettled: dict[bytes, bytes]) -> Unit:
        ends_at_ms = self.chance.choice((0, self.wall_ms))
        terminus = StoredTerminus(
            number, "u", "c", f"link {number}", "connection-close", 600, ends_at_ms, number % 2 == 0,
            self.chance.choice((0, 7)) if number % 2 == 0 else 0,
        )  # fmt: skip
        return [KeepTerminus(terminus), *([KeepUnsettled(number, unsettled)] if unsettled else [])]

    def posted(self, number: int, node: RecoveredNode) -> Unit:
        chance = self.chance
        post = self.post(node, chance.choice((1, 1, 2, 5)))
        tags = [chance.randbytes(chance.choice((1, 4, 32))) for _ in post.records]
        return [post, KeepUnsettled(number, {tag: chance.choice(STATES) for tag in tags})]
