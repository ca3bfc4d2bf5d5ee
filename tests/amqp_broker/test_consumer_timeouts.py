"""A consumer that keeps messages too long is detached, and its messages return."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.configuration import BrokerLimits, ConfigurationError, QueuePolicy
from amqp_broker.frames import Accepted, Source
from amqp_broker.testing import memory_config
from tests.support.by_hand import Control, Served, at_hand, within

TIMED = memory_config(
    queue_policies=(QueuePolicy(pattern="q", consumer_timeout_ms=60_000, max_deliveries=2),),
    limits=BrokerLimits(idle_time_out_ms=2**32 - 1),
)


async def wait(at: Served, seconds: int) -> None:
    """So many seconds, one by one."""
    for _ in range(seconds):
        await at.pass_time(1)


@at_hand(TIMED)
async def test_who_keeps_a_message_is_detached(at: Served) -> None:
    """Not before its time, and at the latest half as long after; the message goes to who waits for it."""
    other = at.another()
    await at.receiver("q", 1)
    await other.receiver("q", 1)
    await at.another("third").post("q", b"1")
    assert (at.bodies(), other.bodies()) == ([b"1"], [])
    await wait(at, 59)
    assert at.detached == []
    await wait(at, 32)
    (gone,) = at.detached
    assert gone.error is not None and "consumer_timeout_ms" in str(gone.error.description)
    assert at.condition() == "amqp:link:detach-forced"
    assert other.bodies() == [b"1"]
    assert at.queue().message_count == 1


@at_hand(TIMED)
async def test_who_settles_may_take_for_ever(at: Served) -> None:
    """The time is that of one message, not of the link."""
    link = await at.receiver("q", 3)
    await at.another().post("q", *(b"%d" % number for number in range(6)))
    for _ in range(6):
        await wait(at, 50)
        first = at.received.pop(0)
        link.settle([first], Accepted())
        link.flow(1)
        await at.settle()
    assert at.detached == []


@at_hand(TIMED)
async def test_a_message_that_nobody_can_handle_goes_to_the_dead_letters(at: Served) -> None:
    """The oldest one counts as tried, those behind it do not: a consumer that sticks does so at one."""
    await at.another().post("q", b"poison", b"fine")
    for number in range(2):
        await at.receiver("q", 2, f"try {number}")
        assert at.bodies() == [b"poison", b"fine"]
        at.received.clear()
        await wait(at, 91)
        assert at.condition() == "amqp:link:detach-forced"
    assert await at.left("q") == [b"fine"]
    assert await at.left("dead-letters") == [b"poison"]


@at_hand(TIMED, transaction_timeout_ms=600_000)
async def test_what_a_transaction_has_is_not_kept(at: Served) -> None:
    """The receiver has given its outcome; transactions have times of their own."""
    control = Control(at)
    txn_id = await control.declare()
    link = await at.receiver("q", 1, rcv_settle_mode=1)
    await at.another().post("q", b"1")
    await wait(at, 30)
    link.settle(at.take(), within(txn_id, Accepted()))
    await at.settle()
    await wait(at, 91)
    await control.commit(txn_id)
    assert at.detached == []
    assert at.queue().message_count == 0


@at_hand(TIMED)
async def test_browsers_and_idle_links_stay(at: Served) -> None:
    """They keep nothing from others."""
    await at.receiver("q", 5, "idle")
    await at.receiver(Source(address="elsewhere"), 5, "another queue")
    await at.another().post("elsewhere", b"1")
    browser = at.another("browser")
    await browser.receiver(Source(address="q", distribution_mode="copy"), 5)
    await wait(at, 200)
    assert (at.detached, browser.detached) == ([], [])


@pytest.mark.parametrize("wrong", [-1, "60"])
def test_what_is_no_time(wrong: Any) -> None:
    """Of a queue from which consumers take."""
    with pytest.raises(ConfigurationError, match="consumer_timeout_ms"):
        QueuePolicy(pattern="x", consumer_timeout_ms=wrong)
    with pytest.raises(ConfigurationError, match="consumer_timeout_ms"):
        QueuePolicy(pattern="x", kind="log", consumer_timeout_ms=1_000, retention_ms=1_000)
