"""Subscribers and publishers of topics, on connections that are driven by hand."""

from __future__ import annotations

from typing import Any

from amqp_broker.frames import Accepted, Described, Source, Symbol, Target, Ulong
from amqp_broker.links import ReceiverLink, SenderLink
from tests.support.by_hand import Served, text

TOPIC = ("topic",)


def selector(words: str) -> dict[Any, Any]:
    """The filters of a source, with a selector of JMS."""
    return {Symbol("jms-selector"): Described(Symbol("apache.org:selector-filter:string"), words)}


def no_local(code: bool = False) -> dict[Any, Any]:
    """The filters of a source, with that of the JMS mapping for noLocal."""
    descriptor = Ulong(0x0000_468C_0000_0003) if code else Symbol("apache.org:no-local-filter:list")
    return {Symbol("no-local"): Described(descriptor, [])}


def topic(address: str | None, **fields: Any) -> Source:
    """A source that is a topic by its capability."""
    capabilities = (*TOPIC, *fields.pop("also", ()))
    return Source(address=address, capabilities=capabilities, **fields)


def durable(address: str, **fields: Any) -> Source:
    """The source of a durable subscription, as a JMS client asks for it."""
    return topic(address, durable=2, expiry_policy="never", distribution_mode="copy", **fields)


def shared(address: str, *more: str, **fields: Any) -> Source:
    """The source of a shared subscription that is not durable."""
    return topic(address, also=("shared", *more), **fields)


def shared_durable(address: str, *more: str, **fields: Any) -> Source:
    """The source of a shared durable subscription."""
    return durable(address, also=("shared", *more), **fields)


async def publisher(at: Served, address: str, name: str = "") -> SenderLink:
    """A link that sends to a topic."""
    return await at.sender(Target(address=address, capabilities=TOPIC), name or f"to {address}")


async def publish(at: Served, address: str, *bodies: bytes, **sections: Any) -> None:
    """Messages to a topic, all of which are accepted."""
    link = await publisher(at, address)
    assert link.send([text(body, **sections) for body in bodies]) == len(bodies)
    await at.settle()
    told, at.outcomes[-len(bodies) :] = at.outcomes[-len(bodies) :], []
    assert told == [Accepted()] * len(bodies), told
    link.detach()
    await at.settle()
    at.detached.pop()


async def subscribe(at: Served, source: Source, name: str = "sub", credit: int = 100) -> ReceiverLink:
    """A link that receives from a subscription; it was not refused."""
    link = await at.receiver(source, credit, name)
    assert not at.detached, at.detached[0].error
    return link


def got(at: Served, link: ReceiverLink | None = None) -> list[bytes]:
    """What has come; with `link`, on which it came, it is accepted."""
    bodies = at.bodies()
    came = at.take()
    if link is not None and came:
        link.dispose(came, Accepted(), True)
    return bodies
