"""Durable termini: messages that are posted with the outcomes of their deliveries, and what is settled."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from amqp_broker.persistence import (
    ForgetTerminus,
    ForgetUnsettled,
    KeepTerminus,
    KeepUnsettled,
    RecoveredNode,
    StoredTerminus,
    Unit,
)
from amqp_broker.persistence.questions import Termini, UnsettledOf
from tests.power_loss.plan import REFUSED
from tests.power_loss.plan_messages import Messages
from tests.promises.book import Book

NUMBERS: Final = range(1, 6)
"""Of termini. Each is changed by one unit of a group."""
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

    def attached(self, number: int, unsettled: dict[bytes, bytes]) -> Unit:
        ends_at_ms = self.chance.choice((0, self.wall_ms))
        terminus = StoredTerminus(number, "u", "c", f"link {number}", "connection-close", 600, ends_at_ms)
        return [KeepTerminus(terminus), *([KeepUnsettled(number, unsettled)] if unsettled else [])]

    def posted(self, number: int, node: RecoveredNode) -> Unit:
        chance = self.chance
        post = self.post(node, chance.choice((1, 1, 2, 5)))
        tags = [chance.randbytes(chance.choice((1, 4, 32))) for _ in post.records]
        return [post, KeepUnsettled(number, {tag: chance.choice(STATES) for tag in tags})]
