"""Links to half messages, without a socket: a read of puts is one unit, and checks are asked by credit."""

from __future__ import annotations

import attrs

from amqp_broker.configuration import AccessRule, HalfGroupConfig
from amqp_broker.frames import Accepted
from amqp_broker.halves.checking import CheckBackSource
from amqp_broker.halves.nodes import PutSink
from amqp_broker.testing import memory_config
from tests.links.pair import Message
from tests.support.by_hand import Served, by_hand
from tests.support.halves import half

AT_ONCE = memory_config(half_groups=(HalfGroupConfig(name="g", first_check_ms=1, retry_ms=60_000),))


def test_a_read_of_puts_is_one_answer_and_nobody_sees_them() -> None:
    """They keep room in their queue, and are in none."""

    async def main(at: Served) -> None:
        sender = at.attach_sender("$half/g/q")
        await at.settle()
        assert isinstance(at.context("up"), PutSink)
        sender.send([Message(half(f"h{number}")) for number in range(3)])
        await at.settle()
        (queue,) = at.broker.nodes.queues.queues()
        assert at.outcomes == [Accepted()] * 3 and at.answers == [3]
        assert (queue.reserved_messages, queue.message_count) == (3, 0)

    by_hand(main, memory_config())


def test_what_was_sent_settled_ends_the_link() -> None:
    """Its sender has to learn the outcome: on the link, and already at the attach."""

    async def main(at: Served) -> None:
        sender = at.attach_sender("$half/g/q")
        await at.settle()
        sender.send([Message(half("h"))], settled=True)
        at.attach_sender("$half/g/q", "settled", snd_settle_mode=1)
        await at.settle()
        assert [gone.link.name for gone in at.detached if gone.error is not None] == ["up", "settled"]
        assert {gone.error.condition for gone in at.detached if gone.error} == {"amqp:not-allowed"}

    by_hand(main, memory_config())


def test_a_check_goes_out_by_credit_and_comes_back_with_its_link() -> None:
    """It is asked on one link; when that goes, on another, and it was no attempt."""

    async def main(at: Served) -> None:
        sender = at.attach_sender("$half/g/q")
        await at.settle()
        sender.send([Message(half("h"))])
        await at.settle()
        at.broker.clock._began_ms += 1_000
        first = at.attach_receiver("$half-check/g", 1)
        await at.settle()
        source = at.context("down")
        assert isinstance(source, CheckBackSource) and len(at.received) == 1
        first.detach()
        await at.settle()
        at.broker.clock._began_ms += 10_000
        at.attach_receiver("$half-check/g", 1, "again")
        await at.settle()
        assert len(at.received) == 2

    by_hand(main, AT_ONCE)


def test_who_may_not_is_told_that_there_is_no_group() -> None:
    """The right is asked for before everything else."""

    async def main(at: Served) -> None:
        at.attach_sender("$half/g/q")
        await at.settle()
        (gone,) = at.detached
        assert gone.error is not None and gone.error.condition == "amqp:not-found"
        assert not at.broker.nodes.queues.queues()

    rules = (AccessRule(users=("anonymous",), actions=("connect", "create", "send"), nodes=("**",)),)
    by_hand(main, attrs.evolve(AT_ONCE, access_rules=rules))
