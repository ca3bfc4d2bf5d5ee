"""Browsers and drains over queues whose backlog is on disk: nobody waits for ever, and nobody spins."""

from __future__ import annotations

import pytest

from amqp_broker.frames import Accepted, Source
from amqp_broker.links import ReceiverLink
from tests.support.by_hand import Served, at_hand, text

a_small_window = at_hand(queue_window_messages=4)
COPY = Source(address="q", distribution_mode="copy")
TWENTY = [b"%d" % index for index in range(20)]


async def mixed(at: Served, count: int, durable_every: int) -> list[bytes]:
    """Messages of which each `durable_every`-th is durable, and so may wait on disk."""
    sent = [b"%d" % index for index in range(count)]
    sender = await at.sender("q")
    sender.send([text(body, durable=index % durable_every == 0) for index, body in enumerate(sent)])
    await at.settle()
    assert at.conditions == ["accepted"] * count
    return sent


async def drain(at: Served, receiver: ReceiverLink, credit: int) -> list[bytes]:
    """Ask for `credit` messages at most; what came with the answer."""
    at.received.clear()
    receiver.flow(credit, drain=True)
    await at.rest()
    assert receiver.credit == 0, "the drain is answered (2.6.7)"
    return at.bodies()


@a_small_window
async def test_a_browser_past_the_end_of_the_disk_waits(at: Served) -> None:
    """A browser with more credit than there are messages gets them all, takes nothing, and the broker serves
    others.
    """
    await at.post("q", *TWENTY)
    browser = await at.receiver(COPY, 100)
    assert browser.source.distribution_mode == "copy" and at.bodies() == TWENTY
    await at.post("q", b"late")
    assert at.bodies() == [*TWENTY, b"late"]
    browser.settle(at.received, Accepted())
    browser.flow(100)
    assert await drain(at, await at.receiver("other", 0, "other"), 1) == []
    assert await at.left("q") == [*TWENTY, b"late"]


@pytest.mark.parametrize("mode", ["copy", "move"])
@a_small_window
async def test_volatile_messages_are_shown_between_those_on_disk(at: Served, mode: str) -> None:
    """Messages that only memory holds come in their places among those that are read from disk."""
    sent = await mixed(at, 100, durable_every=3)
    await at.receiver(Source(address="q", distribution_mode=mode), 100)
    assert at.bodies() == sent


@a_small_window
async def test_a_browser_with_little_credit_goes_on_page_by_page(at: Served) -> None:
    """Each grant of credit shows the next messages, none twice and none left out."""
    sent = await mixed(at, 40, durable_every=3)
    browser = await at.receiver(COPY)
    for _ in range(20):
        browser.flow(2)
        await at.settle()
    assert at.bodies() == sent


@a_small_window
async def test_a_draining_browser_is_answered_at_the_end_of_the_disk(at: Served) -> None:
    """When it has seen everything, also where the end is on disk."""
    await at.post("q", *TWENTY)
    browser = await at.receiver(COPY)
    assert [await drain(at, browser, 100) for _ in range(2)] == [TWENTY, []]


@a_small_window
async def test_a_browser_is_not_shown_what_expired(at: Served) -> None:
    """Messages past their time to live are passed over, in memory and on disk, and what follows is shown."""
    await at.post("q", *[b"stale"] * 12, ttl=1)
    await at.post("q", b"fresh")
    at.broker.clock._began_ms += 10  # and nobody was woken to look for what expired
    at.attach_receiver(COPY, 2)
    await at.rest()
    assert at.bodies() == [b"fresh"]


@a_small_window
async def test_a_drain_is_answered_when_all_on_disk_has_expired(at: Served) -> None:
    """The page that a draining consumer waits for may bring nothing that can be delivered."""
    await at.post("q", *[b"x"] * 30, ttl=1)
    at.broker.clock._began_ms += 10
    assert await drain(at, await at.receiver("q"), 50) == []


@a_small_window
async def test_a_drain_is_answered_when_another_consumer_takes_the_page(at: Served) -> None:
    """Two consumers share what is on disk; the one that drains is answered even if it gets less."""
    await at.post("q", *[b"x"] * 40)
    other = at.another()
    greedy, receiver = await other.receiver("q"), await at.receiver("q")
    greedy.flow(200)
    got = await drain(at, receiver, 50)
    assert len(got) + len(other.received) == 40
