"""Streams are bounded in number: by `max_streams` where a store keeps them, by `max_temporary_streams` in
each queue that lives in memory. Groups of half messages by `max_half_groups`. What is known already goes on.
"""

from __future__ import annotations

import attrs
import pytest
import trio

from amqp_broker.broker import open_broker
from amqp_broker.configuration import BrokerLimits
from amqp_broker.frames import Target
from amqp_broker.persistence import MemoryStore
from amqp_broker.testing import memory_config
from tests.links.pair import Message
from tests.support.by_hand import Served, by_hand
from tests.support.sequence_jobs import Bench, answers
from tests.support.sequenced import annotated

FULL = "amqp:resource-limit-exceeded"


def at_a_bench(main: object, most: int) -> None:
    """Run `main` at a queue of a broker that has room for so many streams."""

    async def run() -> None:
        store = MemoryStore()
        async with open_broker(memory_config(limits=BrokerLimits(max_streams=most)), store=store) as broker:
            queue = await broker.nodes.queues.create("q")
            await main(Bench(broker, store, queue))  # type: ignore[operator]

    trio.run(run)


def test_streams_are_bounded_in_number() -> None:
    """In one group, over groups, and after an administrator's reset; the refusal names the setting."""

    async def main(at: Bench) -> None:
        first, second, third = (at.posting((1, 1, 0), (1, 2, 1), stream=name) for name in "abc")
        at.commit(first, second, third)
        assert [answers(each) for each in (first, second, third)] == [
            ["accepted", "accepted"],
            ["accepted", "accepted"],
            [FULL, "seq:gap"],
        ]
        assert "max_streams" in third.outcomes[0].error.description
        known, new = at.posting((1, 3, 2), stream="a"), at.posting((1, 1, 0), stream="d")
        at.commit(known, new)
        assert (answers(known), answers(new)) == (["accepted"], [FULL])
        assert await at.broker.reset_stream("q", "a")
        again, more = at.posting((1, 1, 0), stream="d"), at.posting((1, 1, 0), stream="a")
        at.commit(again, more)
        assert (answers(again), answers(more)) == (["accepted"], [FULL])

    at_a_bench(main, 2)


def test_what_is_undone_makes_no_stream() -> None:
    """The group is made again: nothing is counted twice."""

    async def main(at: Bench) -> None:
        posting = at.posting((1, 1, 0), stream="a")
        for _ in range(3):
            posting.prepare(1)
            posting.undo()
        other = at.posting((1, 1, 0), stream="b")
        at.commit(posting, other)
        assert (answers(posting), answers(other)) == (["accepted"], ["accepted"])

    at_a_bench(main, 2)


def test_streams_are_counted_after_a_restart() -> None:
    """What the store has counts."""
    store = MemoryStore(store_id="s")

    async def life(name: str, expected: list[str]) -> None:
        config = memory_config(limits=BrokerLimits(max_streams=1))
        async with open_broker(config, store=store) as broker:
            at = Bench(broker, store, await broker.nodes.queues.create("q"))
            posting = at.posting((1, 1, 0), stream=name)
            at.commit(posting)
            assert answers(posting) == expected

    trio.run(life, "a", ["accepted"])
    trio.run(life, "b", [FULL])
    trio.run(life, "a", ["accepted"])


def test_a_temporary_queue_names_its_own_setting() -> None:
    """`max_temporary_streams`."""

    async def main(at: Served) -> None:
        sender = at.attach_sender(Target(dynamic=True))
        await at.settle()
        for name in ("a", "b", "a"):
            sender.send([Message(annotated((1, 1, 0), name))])
            await at.settle()
        assert at.conditions == ["accepted", FULL, "accepted"]
        assert "max_temporary_streams" in at.outcomes[1].error.description

    by_hand(main, memory_config(limits=BrokerLimits(max_temporary_streams=1)))


@pytest.mark.parametrize("address", ["$half/new/q", "$half-resolve/new"])
def test_groups_of_half_messages_are_bounded_in_number(address: str) -> None:
    """Idle ones make room; where none is idle the refusal names the setting."""

    async def main(at: Served) -> None:
        for name in ("a", "b"):
            at.attach_receiver(f"$half-check/{name}", 1, name)
            await at.settle()
        assert at.detached == []
        at.attach_sender(address)
        await at.settle()
        (refused,) = at.detached
        assert refused.error is not None and refused.error.condition == FULL
        assert "max_half_groups" in (refused.error.description or "")

    by_hand(main, attrs.evolve(memory_config(), limits=BrokerLimits(max_half_groups=2)))
