"""Random histories of subscriptions against a plain model: each holds exactly what was posted to addresses
that it is for while it existed, in order, until it was accepted; starts of the broker are among them.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import attrs
import pytest

from amqp_broker.addresses import parse_topic_pattern
from amqp_broker.configuration import BindingConfig
from amqp_broker.frames import Accepted, Released
from amqp_broker.links import ReceiverLink
from amqp_broker.persistence.sqlite import verify_directory
from amqp_broker.testing import ScriptedFaults, memory_config, run_with_virtual_clock
from tests.support.by_hand import Control, Served, served, text, within
from tests.support.examples import seeds
from tests.support.topics import durable, publisher, selector, shared_durable, topic

ADDRESSES = ("a.x", "a.y", "b.x", "b")
PATTERNS = ("a.x", "a.*", "#", "#.x", "b.#")
FILTERS = (None, 0, 1)
VOLATILE = b"v"
"""So begin messages that are not durable: a start forgets them."""
BOUND = BindingConfig(topic="a.#", queue="bound", selector="n = 1")


@attrs.define(eq=False)
class Held:
    """A subscription as it should be: what it holds, in order, and the link that receives from it."""

    name: str
    pattern: str
    wanted: int | None
    kind: str
    holds: list[bytes] = attrs.field(factory=list)
    at: Served | None = None
    link: ReceiverLink | None = None

    def source(self) -> Any:
        """What its link asks for."""
        make = {"link": topic, "durable": durable, "shared": shared_durable}[self.kind]
        return make(self.pattern, filter=None if self.wanted is None else selector(f"n = {self.wanted}"))

    def gets(self, address: str, number: int, body: bytes) -> None:
        """Something was posted."""
        if parse_topic_pattern(self.pattern).matches(address) and self.wanted in (None, number % 2):
            self.holds.append(body)


class History:
    """One broker after the other on the same store."""

    def __init__(self, seed: int, directory: Path) -> None:
        self.chance = random.Random(seed)
        self.config = attrs.evolve(
            memory_config(), memory=False, data_dir=str(directory), bindings=(BOUND,)
        )
        self.held: list[Held] = [Held("bound", "a.#", 1, "bound")]
        self.number = 0
        self.count = 0

    def run(self) -> None:
        """A few lives of a broker."""
        for _ in range(self.chance.randint(1, 4)):
            run_with_virtual_clock(self._live)
            self.held = [each for each in self.held if each.kind != "link"]
            for each in self.held:
                each.at = each.link = None
                each.holds = [body for body in each.holds if not body.startswith(VOLATILE)]
            assert verify_directory(self.config.data_dir) == []

    async def _live(self) -> None:
        self.faults = ScriptedFaults()
        async with served(self.config, self.faults) as at:
            for address in ADDRESSES:
                await publisher(at, address, f"declares {address}")
            for _ in range(self.chance.randint(5, 25)):
                step = self.chance.choice(
                    (self._post, self._post, self._post, self._subscribe, self._take, self._take, self._leave,
                     self._end, self._transaction)
                )  # fmt: skip
                await step(at)
            for each in list(self.held):
                await self._look(at, each)

    def _message(self, address: str) -> tuple[Any, bytes]:
        self.number += 1
        lasts = self.chance.random() < 0.8
        body = b"%s%d" % (b"" if lasts else VOLATILE, self.number)
        return text(body, durable=lasts, application_properties={"n": self.number % 2}), body

    async def _post(self, at: Served) -> None:
        address = self.chance.choice(ADDRESSES)
        link = await at.sender(address, f"posts {self.number}")
        direct = await at.sender("bound", f"directly {self.number}")
        made = [(self.number + 1, *self._message(address)) for _ in range(self.chance.randint(1, 5))]
        if self.chance.random() < 0.3:  # no room on the disk: what was grouped is tried one by one
            self.faults.refuse_commit(1, self.chance.randint(1, 3))
        link.send([message for _, message, _ in made])
        await at.rest()
        told, self.faults._commit_errors = at.conditions, []
        at.outcomes.clear()
        assert set(told) <= {"accepted", "amqp:resource-limit-exceeded"} and len(told) == len(made)
        one, body = self._message(address)
        link.send([one])
        sent = [(self.number, one, body)]
        other, beside = self._message(address)
        direct.send([other])
        await at.settle()
        assert at.conditions == ["accepted"] * 2
        at.outcomes.clear()
        for each in (link, direct):
            each.detach()
        await at.settle()
        at.detached.clear()
        self._posted(address, [each for each, how in zip(made, told, strict=True) if how == "accepted"])
        self._posted(address, sent)
        self.held[0].holds.append(beside)

    def _posted(self, address: str, made: list[tuple[int, Any, bytes]]) -> None:
        for number, _, body in made:
            for each in self.held:
                each.gets(address, number, body)

    async def _transaction(self, at: Served) -> None:
        control = Control(at, f"control {self.number}")
        txn_id = await control.declare()
        made = {address: [(self.number + 1, *self._message(address))] for address in ADDRESSES[:2]}
        for address, messages in made.items():
            link = await at.sender(address, f"within {address} {self.number}")
            link.send_in([message for _, message, _ in messages], within(txn_id), False)
            await at.settle()
        at.outcomes.clear()
        if self.chance.random() < 0.5:
            await control.commit(txn_id)
            for address, messages in made.items():
                self._posted(address, messages)
        else:
            await control.roll_back(txn_id)

    async def _subscribe(self, at: Served) -> None:
        self.count += 1
        kind = self.chance.choice(("link", "durable", "shared"))
        name, wanted = f"s{self.count}", self.chance.choice(FILTERS)
        one = Held(name, self.chance.choice(PATTERNS), wanted, kind)
        again = [each for each in self.held if each.kind == "durable" and each.link is None]
        if again and self.chance.random() < 0.3:  # for something else: a new one
            former = self.chance.choice(again)
            one.name, one.kind = former.name, "durable"
            same = (one.pattern, one.wanted) == (former.pattern, former.wanted)
            one.holds = former.holds if same else []
            self.held.remove(former)
        self.held.append(one)
        await self._attach(at, one)

    async def _attach(self, at: Served, one: Held) -> None:
        one.at = at.another("me" if one.kind != "link" else one.name)
        one.link = await one.at.receiver(one.source(), 0, one.name)
        assert not one.at.detached, one.at.detached[0].error

    def _one(self) -> Held | None:
        mine = [each for each in self.held if each.kind != "bound"]
        return self.chance.choice(mine) if mine else None

    async def _take(self, at: Served) -> None:
        """Some of it comes, in order; a part is accepted, and the rest goes back."""
        one = self._one()
        if one is None:
            return
        if one.link is None:
            await self._attach(at, one)
        assert one.link is not None and one.at is not None
        count = self.chance.randint(1, 6)
        one.link.flow(count)
        await at.settle()
        bodies, came = one.at.bodies(), one.at.take()
        assert bodies == one.holds[: len(bodies)] and len(bodies) == min(count, len(one.holds))
        accepted = self.chance.randint(0, len(came))
        if came[:accepted]:
            one.link.dispose(came[:accepted], Accepted(), True)
        if came[accepted:]:
            one.link.dispose(came[accepted:], Released(), True)
        one.link.flow(0)
        await at.settle()
        del one.holds[:accepted]

    async def _leave(self, at: Served) -> None:
        """The link goes, by a detach or with its connection."""
        one = self._one()
        if one is None or one.link is None:
            return
        await self._go(one, closed=False)
        if one.kind == "link":
            self.held.remove(one)

    async def _go(self, one: Held, *, closed: bool) -> None:
        assert one.link is not None and one.at is not None
        if closed or self.chance.random() < 0.5:
            one.link.detach(closed=closed)
            await one.at.settle()
            await one.at.close()
        else:
            await one.at.breaks()
        one.at = one.link = None

    async def _end(self, at: Served) -> None:
        """It is closed."""
        one = self._one()
        if one is None:
            return
        if one.link is None:
            await self._attach(at, one)
        await self._go(one, closed=True)
        self.held.remove(one)

    async def _look(self, at: Served, one: Held) -> None:
        if one.kind == "bound":
            assert await at.left("bound", f"looks {self.number}") == one.holds
            return
        if one.link is None:
            await self._attach(at, one)
        assert one.link is not None and one.at is not None
        one.link.flow(10_000)
        await at.settle()
        assert one.at.bodies() == one.holds
        one.link.dispose(one.at.take(), Released(), True)
        one.link.flow(0)
        await at.settle()


@pytest.mark.parametrize("seed", seeds(25))
def test_each_subscription_holds_what_was_posted_for_it(seed: int, tmp_path: Path) -> None:
    """Of links, durable, shared durable, by patterns and selectors; a bound queue; restarts."""
    History(seed, tmp_path).run()
