"""A cursor belongs to the principal that made it: who else may browse can neither move, forget nor hold it,
nor read on with it. An administrator can.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from amqp_broker.authorisation import ANONYMOUS, Principal
from amqp_broker.broker import Broker, open_broker
from amqp_broker.configuration import (
    AccessRule,
    BrokerConfig,
    BrokerLimits,
    ListenerConfig,
    QueuePolicy,
    UserConfig,
)
from amqp_broker.embedding import memory_config
from amqp_broker.frames import Accepted, AmqpValue, Properties, Source, Ulong, encode_message
from amqp_broker.links import ReceiverLink, SenderLink
from amqp_broker.testing import run_with_virtual_clock
from tests.links.pair import Message
from tests.support.by_hand import Main, Served, drives, text
from tests.support.retained import filters

ANN, BOB, ROOT = (Principal(name, "PLAIN") for name in ("ann", "bob", "root"))
BROWSERS = ("connect", "create", "send", "receive", "browse")
FOREIGN = "amqp:unauthorized-access"
LOCKED = "amqp:resource-locked"


def config(**limits: int) -> BrokerConfig:
    """A queue that retains; everybody may browse, and root administrates what is retained."""
    return memory_config(
        listeners=(ListenerConfig(url="amqp://127.0.0.1:0", anonymous=True),),
        queue_policies=(QueuePolicy(pattern="kept.*", retention_ms=3_600_000),),
        users=tuple(UserConfig(name=each.name) for each in (ANN, BOB, ROOT)),
        access_rules=(
            AccessRule(users=("*",), actions=BROWSERS),
            AccessRule(users=("root",), actions=("manage-write",), nodes=("$retained",)),
        ),
        limits=BrokerLimits(**limits),
    )


class User(Served):
    """One connection of one user, with links to `$retained`."""

    def __init__(self, broker: Broker, principal: Principal) -> None:
        super().__init__(broker)
        self.connection.principal = principal
        self.replies = f"replies.{principal.rule_name}"
        self.reader: ReceiverLink | None = None
        self._links_made = 0

    async def link(self) -> SenderLink:
        """To `$retained`."""
        self._links_made += 1
        await self.broker.nodes.queues.create(self.replies)
        link = self.attach_sender("$retained", f"asks-{self._links_made}")
        await self.settle()
        return link

    def tell(self, link: SenderLink, subject: str, **body: Any) -> None:
        """Send one request."""
        properties = Properties(subject=subject, reply_to=self.replies, correlation_id="c")
        link.send([Message(encode_message(properties=properties, body=AmqpValue(body)))])

    async def hear(self) -> None:
        """Have the broker read what was sent; nothing is committed yet."""
        await self.hear_later()

    async def ask(self, subject: str, link: SenderLink | None = None, **body: Any) -> str:
        """What becomes of a request: accepted, or a condition."""
        self.outcomes.clear()
        self.tell(link or await self.link(), subject, **body)
        await self.settle()
        (condition,) = self.conditions
        return condition

    async def move(self, to: int, cursor: str = "c", address: str = "kept.a") -> str:
        """Move a cursor."""
        return await self.ask("move", cursor=cursor, positions={address: Ulong(to)})

    async def read(self, cursor: str = "c", address: str = "kept.a", name: str = "reads") -> str:
        """Attach a link that reads with a cursor."""
        self.detached.clear()
        source = Source(address=address, distribution_mode="copy", filter=filters("first", cursor=cursor))
        self.reader = self.attach_receiver(source, 10, name)
        await self.settle()
        error = self.detached[0].error if self.detached else None
        return "accepted" if error is None else error.condition

    async def stands(self, cursor: str = "c") -> dict[str, int]:
        """Where a cursor stands, by the broker's own list."""
        for each in await self.broker.cursors():
            if each.name == cursor:
                return each.positions
        return {}


def by_users(of: BrokerConfig | None = None) -> Callable[[Main], Callable[..., None]]:
    """A test with Ann, Bob and the administrator at one broker, and five messages in `kept.a`."""
    return drives(lambda main: run_by_users(main, of), given=3)


def run_by_users(main: Main, of: BrokerConfig | None = None) -> None:
    """Run `main` with them."""

    async def run() -> None:
        async with open_broker(of or config()) as broker:
            ann, bob, root = (User(broker, principal) for principal in (ANN, BOB, ROOT))
            for address in ("kept.a", "kept.b"):
                sender = ann.attach_sender(address, address)
                await ann.settle()
                sender.send([text(b"%d" % number) for number in range(5)])
                await ann.settle()
            ann.outcomes.clear()
            await main(ann, bob, root)

    run_with_virtual_clock(run)


@by_users()
async def test_others_can_do_nothing_with_a_cursor(ann: User, bob: User, root: User) -> None:
    """Whatever they ask for: it stands where its owner left it, and is not theirs for a moment."""
    assert await ann.move(2) == "accepted"
    assert await bob.move(4) == FOREIGN
    assert await bob.move(1, address="kept.b") == FOREIGN
    assert await bob.ask("forget", cursor="c") == FOREIGN
    assert await bob.ask("hold", cursor="c", start={"kept.a": "first"}) == FOREIGN
    assert await bob.ask("hold", cursor="c", start={"kept.b": "first"}) == FOREIGN
    assert await bob.ask("hold", cursor="c", start={}) == FOREIGN
    assert await bob.read() == FOREIGN
    assert await bob.read(address="kept.b") == FOREIGN
    assert await ann.stands() == {"kept.a": 2}
    assert await ann.read() == "accepted"
    assert ann.bodies() == [b"2", b"3", b"4"]


@by_users()
async def test_an_administrator_can_and_does_not_take_it_over(ann: User, bob: User, root: User) -> None:
    """It is still its owner's."""
    assert await ann.move(1) == "accepted"
    assert await root.move(2) == "accepted"
    assert await root.move(1, address="kept.b") == "accepted"
    assert await bob.move(3) == FOREIGN
    assert await ann.move(3) == "accepted"
    assert await ann.stands() == {"kept.a": 3, "kept.b": 1}
    assert await root.ask("forget", cursor="c") == "accepted"
    assert await bob.move(1) == "accepted"
    assert await ann.move(2) == FOREIGN


@by_users()
async def test_a_cursor_is_its_makers_before_it_is_stored(ann: User, bob: User, root: User) -> None:
    """Who holds a new name, or reads with it, has it: nobody shares it at another address."""
    assert await ann.read("new") == "accepted"
    assert await bob.read("new", "kept.b") == FOREIGN
    assert await bob.move(1, "new", "kept.b") == FOREIGN
    assert await ann.read("new", "kept.b", "other") == "accepted"
    assert await ann.ask("hold", cursor="held", start={}) == "accepted"
    assert await bob.move(1, "held") == FOREIGN
    assert await bob.ask("hold", cursor="held", start={}) in (FOREIGN, LOCKED)


@by_users()
async def test_moves_of_one_group_are_judged_in_their_order(ann: User, bob: User, root: User) -> None:
    """The first one makes the cursor and has it; what it forgot is the next one's."""
    asks, wants = await ann.link(), await bob.link()
    ann.tell(asks, "move", cursor="n", positions={"kept.a": Ulong(1)})
    bob.tell(wants, "move", cursor="n", positions={"kept.a": Ulong(2)})
    for user in (ann, bob):
        await user.hear()
    await ann.settle()
    await bob.settle()
    assert (ann.conditions, bob.conditions) == (["accepted"], [FOREIGN])
    ann.outcomes.clear()
    bob.outcomes.clear()
    ann.tell(asks, "forget", cursor="n")
    bob.tell(wants, "move", cursor="n", positions={"kept.a": Ulong(2)})
    for user in (ann, bob):
        await user.hear()
    await ann.settle()
    await bob.settle()
    assert (ann.conditions, bob.conditions) == (["accepted"], ["accepted"])
    assert await ann.move(3, "n") == FOREIGN


def test_owners_are_known_after_a_restart(tmp_path: Path) -> None:
    """What the store has is what counts."""
    on_disk = attrs.evolve(config(), memory=False, data_dir=str(tmp_path / "data"))

    async def first(ann: User, bob: User, root: User) -> None:
        assert await ann.move(2) == "accepted"
        assert await ann.read("read") == "accepted"
        assert ann.reader is not None
        ann.reader.settle(ann.received, Accepted())
        await ann.settle()
        assert await ann.stands("read") == {"kept.a": 5}

    async def second(ann: User, bob: User, root: User) -> None:
        assert await bob.move(4) == FOREIGN
        assert await bob.read("read") == FOREIGN
        assert await ann.move(4) == "accepted"

    run_by_users(first, on_disk)
    run_by_users(second, on_disk)


def test_a_cursor_without_an_owner_is_the_first_ones() -> None:
    """Older stores know none; so it is with streams."""
    from amqp_broker.persistence import MemoryStore, MoveCursor, Retain

    async def run() -> None:
        store = MemoryStore()
        async with open_broker(config(), store=store) as broker:
            queue = await broker.nodes.queues.create("kept.a")
            await broker.nodes.store_step(
                [Retain(queue.queue_id, 3_600_000, 0), MoveCursor("old", queue.queue_id, 0, 1)]
            )
            broker.features.retained.cursors.recover(store)
            ann, bob = User(broker, ANN), User(broker, BOB)
            assert await bob.ask("hold", cursor="old", start={"kept.a": "first"}) == "accepted"
            assert await ann.move(0, "old") == FOREIGN

    run_with_virtual_clock(run)


def test_in_an_open_broker_everybody_is_everything() -> None:
    """Without users and rules there is one principal, who may all."""

    async def run() -> None:
        of = attrs.evolve(config(), access_rules=(), users=())
        async with open_broker(of) as broker:
            await broker.nodes.queues.create("kept.a")
            one, two = User(broker, ANONYMOUS), User(broker, ANN)
            assert await one.move(0) == "accepted"
            assert await two.move(0) == "accepted"

    run_with_virtual_clock(run)


# Bounds


@pytest.mark.parametrize("way", ["move", "hold", "hold nothing", "read"])
@by_users(config(max_cursors=2))
async def test_new_names_are_bounded_in_number_by_every_way(
    ann: User, bob: User, root: User, way: str
) -> None:
    """By `max_cursors`, whether they are stored, held, or read with; a name that is known goes on."""

    async def use(user: User, cursor: str) -> str:
        if way == "move":
            return await user.move(1, cursor)
        if way == "read":
            return await user.read(cursor, name=cursor)
        start = {"kept.a": "first"} if way == "hold" else {}
        return await user.ask("hold", user.asks, cursor=cursor, start=start)  # type: ignore[attr-defined]

    ann.asks = await ann.link()  # type: ignore[attr-defined]
    assert [await use(ann, name) for name in ("a", "b")] == ["accepted", "accepted"]
    assert await use(ann, "c") == "amqp:resource-limit-exceeded"
    if way != "read":
        assert "max_cursors" in ann.outcomes[0].error.description
        assert await use(ann, "a") == "accepted"
    if way == "move":
        assert await ann.ask("forget", cursor="a") == "accepted"
        assert await use(ann, "c") == "accepted"


@by_users(config(cursor_name_bytes=4))
async def test_names_are_bounded_in_length(ann: User, bob: User, root: User) -> None:
    """By `cursor_name_bytes`, in requests and in filters; the refusal names it."""
    assert await ann.move(1, "four") == "accepted"
    assert await ann.move(1, "fünf") == "amqp:invalid-field"
    assert "cursor_name_bytes" in ann.outcomes[0].error.description
    assert await ann.read("fünf") == "amqp:invalid-field"
    (refused,) = [each.error for each in ann.detached]
    assert refused is not None and "cursor_name_bytes" in (refused.description or "")
