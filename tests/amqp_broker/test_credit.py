"""Credit for a queue with a bound: never more than there is room, and nobody waits for ever (paper 2.3.9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerConfig, BrokerLimits, QueuePolicy
from amqp_broker.frames import Accepted, Properties, Released
from amqp_broker.links import SenderLink
from amqp_broker.queue import Queue
from amqp_broker.testing import ScriptedFaults, memory_config
from tests.links.pair import Message as Sendable
from tests.support.by_hand import Main, Served, by_hand, commits_held, drives, text
from tests.support.examples import examples
from tests.support.halves import half, resolution

MOST = 10
PERIOD_S = 1.0
LIMITS = attrs.evolve(BrokerLimits(), idle_credit_ms=1_000, link_credit=100)


def bounded(**policy: Any) -> BrokerConfig:
    """Of a queue q, mostly with room for ten messages."""
    bounds = policy or {"max_messages": MOST}
    return memory_config(queue_policies=(QueuePolicy(pattern="q", **bounds),), limits=LIMITS)


class Sender:
    """A connection with one link that sends to q; a polite one gives credit back when it is asked to."""

    def __init__(self, broker: Broker, name: str, *, polite: bool) -> None:
        self.at = Served(broker)
        self.link: SenderLink = self.at.attach_sender("q", name)
        self.polite = polite

    def send(self, count: int) -> int:
        """As many as there is credit for."""
        return self.link.send([text(b"x")] * min(count, self.link.credit))


class Scene:
    """A broker, senders to q, one that takes from it, and one that sends through the anonymous terminus."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.senders: list[Sender] = []
        self.taker = Served(broker)
        self.relay: SenderLink | None = None

    async def begin(self) -> Scene:
        """The queue is there."""
        self.receiver = self.taker.attach_receiver("q", 0)
        self.relay = self.taker.attach_sender(None, "relay")
        await self.taker.settle()
        return self

    @property
    def queue(self) -> Queue:
        """The queue q."""
        (queue,) = self.broker.nodes.queues.queues()
        return queue

    async def attach(self, *, polite: bool = True) -> Sender:
        """One more sender."""
        sender = Sender(self.broker, f"s{len(self.senders)}", polite=polite)
        self.senders.append(sender)
        await self.rest()
        return sender

    async def rest(self) -> None:
        """Until nothing moves; the bound holds."""
        for _ in range(4):
            for sender in self.senders:
                await sender.at.settle()
                if sender.polite and sender.link.drain:
                    sender.link.drained()
            await self.taker.settle()
        self.check()

    def check(self) -> None:
        """What is there and what may come is no more than there is room for."""
        queue = self.queue
        out = sum(sink.out() for sink in queue.producers)
        credit = sum(each.link.credit for each in self.senders if each.link.attached)
        assert credit <= out, f"senders have credit {credit}, and the broker knows of {out}"
        there = queue.message_count + queue.reserved_messages
        assert there + out <= queue.limits.max_messages, f"{there} messages and {out} may come"

    async def take(self, count: int, outcome: Any) -> None:
        """So many leave the queue, or come back."""
        self.taker.received.clear()
        self.receiver.flow(count)
        await self.rest()
        self.receiver.settle(self.taker.received, outcome)
        self.receiver.processed(len(self.taker.received))
        self.receiver.flow(0)
        await self.rest()

    async def period(self) -> None:
        """Time goes by."""
        await self.taker.pass_time(PERIOD_S * 1.01)
        await self.rest()


def scene(config: BrokerConfig | None = None) -> Callable[[Main], Callable[..., None]]:
    """A test whose first parameter is one."""
    return drives(lambda main: run_scene(main, config))


def run_scene(main: Main, config: BrokerConfig | None = None) -> None:
    """Run `main` with one."""

    async def run(at: Served) -> None:
        await main(await Scene(at.broker).begin())

    by_hand(run, config or bounded())


@scene()
async def test_a_bound_is_a_bound(at: Scene) -> None:
    """One sender that sends whatever it may fills the queue, and no more; room is credit again."""
    sender = await at.attach()
    sent = 0
    for _ in range(5):
        sent += sender.send(1_000)
        await at.rest()
    assert sent == at.queue.message_count == MOST and sender.link.credit == 0
    await at.take(3, Accepted())
    assert sender.link.credit == 3


@scene()
async def test_three_senders_share_the_room(at: Scene) -> None:
    """Not the full credit for each: together they have what there is room for."""
    senders = [await at.attach() for _ in range(3)]
    assert sum(each.link.credit for each in senders) == MOST
    for _ in range(6):
        await at.period()
    assert all(each.link.credit > 0 for each in senders)


@pytest.mark.parametrize("polite", [True, False])
@scene()
async def test_credit_that_lies_unused_comes_to_others(at: Scene, polite: bool) -> None:
    """Asked for, or taken back; who sends gets on, up to the whole room."""
    for _ in range(4):
        await at.attach(polite=polite)
    busy = await at.attach()
    sent = 0
    for _ in range(60):
        sent += busy.send(1)
        await at.period()
    assert sent == MOST


@scene()
async def test_who_sends_late_on_credit_that_was_taken_back_is_heard_within_a_period(at: Scene) -> None:
    """What was under way when credit was taken back is taken as normal (2.6.7)."""
    idle = await at.attach(polite=False)
    await at.attach()
    for _ in range(3):
        await at.period()
    assert idle.link.credit == 0 and at.queue.message_count == 0
    sink = idle.at.context("s0")
    assert sink.out() > 0  # it may still come
    await at.period()
    assert sink.out() == idle.link.credit


@scene()
async def test_credit_that_was_taken_back_comes_again_when_nobody_waits_for_it(at: Scene) -> None:
    """Who wanted it has gone away, and it is no one else's: the sender that it was taken from gets on."""
    idle = await at.attach(polite=False)
    assert idle.link.credit == MOST and at.relay is not None
    credit = []
    for period in range(6):
        if period < 2:
            at.relay.send([text(b"r", properties=Properties(to="q"))])
            await at.rest()
        await at.period()
        credit.append(idle.link.credit)
    assert 0 in credit and credit[-1] == MOST, credit


@scene()
async def test_the_anonymous_terminus_takes_no_room_that_was_promised(at: Scene) -> None:
    """Full is full for a message without credit, too; unused credit makes room for a later one."""
    await at.attach()
    assert at.relay is not None
    for _ in range(6):
        at.relay.send([text(b"r", properties=Properties(to="q"))])
        await at.rest()
        await at.period()
    assert at.taker.conditions[0] == "amqp:resource-limit-exceeded"
    assert "accepted" in at.taker.conditions


@scene(bounded(max_messages=200))
async def test_with_plenty_of_room_nothing_is_counted(at: Scene) -> None:
    """Every link has all that it may, and renews it by itself; again when there is room again."""
    sender = await at.attach()
    assert sender.link.credit == 100 and not at.queue.scarce
    while at.queue.message_count < 150:
        assert sender.send(10) == 10
        await at.taker.settle()
        await sender.at.settle()
    assert at.queue.scarce
    while sender.send(1_000):
        await sender.at.settle()
    assert at.queue.message_count == 200
    for _ in range(3):
        at.receiver.flow(50)
        await at.taker.settle()
        at.receiver.settle(at.taker.received, Accepted())
        at.taker.received.clear()
        await at.taker.settle()
        await sender.at.settle()
    assert not at.queue.scarce and sender.link.credit == 100


@scene(bounded(max_bytes=1_000))
async def test_octets_stop_credit_when_they_are_there(at: Scene) -> None:
    """At the bound of octets no credit is given, and what there is goes back; below four fifths it comes."""
    sender = await at.attach()
    assert sender.link.send([text(b"x" * 400)] * 3) == 3
    await sender.at.settle()
    await at.taker.settle()
    assert at.queue.message_count == 3 and sender.link.credit == 0
    at.receiver.flow(2)
    await at.taker.settle()
    at.receiver.settle(at.taker.received, Accepted())
    await at.taker.settle()
    await sender.at.settle()
    assert sender.link.credit == 100


@scene()
async def test_a_committed_half_message_takes_the_room_that_was_kept_for_it(at: Scene) -> None:
    """Alone, and beside one that is rolled back in the same read: credit is given for the latter only."""
    put = at.taker.attach_sender("$half/g/q", "put")
    resolve = at.taker.attach_sender("$half-resolve/g", "resolve")
    await at.taker.settle()
    put.send([Sendable(half(half_id)) for half_id in "1234"])
    await at.taker.settle()
    sender = await at.attach()
    assert sender.send(MOST) == MOST - 4
    await at.rest()
    assert at.queue.message_count + at.queue.reserved_messages == MOST and sender.link.credit == 0
    resolve.send([Sendable(resolution("1", "commit"))])
    await at.rest()
    assert sender.link.credit == 0
    steps = {"2": "commit", "3": "rollback", "4": "commit"}
    resolve.send([Sendable(resolution(half_id, what)) for half_id, what in steps.items()])
    await at.rest()
    assert (at.queue.message_count, at.queue.reserved_messages) == (MOST - 1, 0)
    assert sender.link.credit == 1


@pytest.mark.parametrize("ends", ["link", "connection"])
def test_what_a_link_that_is_gone_has_posted_takes_room_until_it_is_decided(ends: str) -> None:
    """Its credit goes to others, but for the messages whose commit is under way."""
    faults = ScriptedFaults()

    async def main(at: Served) -> None:
        scene = await Scene(at.broker).begin()
        leaves, *_ = [await scene.attach() for _ in range(3)]
        with commits_held(at, faults):
            assert leaves.send(4) == 4
            await leaves.at.settle()
            if ends == "link":
                leaves.link.detach()
                await leaves.at.settle()
            else:
                await leaves.at.breaks()
            scene.senders.remove(leaves)
            for each in scene.senders:
                await each.at.settle()
        await scene.rest()
        assert scene.queue.message_count == 4 and scene.queue.left_messages == 0
        assert sum(each.link.credit for each in scene.senders) == MOST - 4

    by_hand(main, attrs.evolve(bounded(), limits=attrs.evolve(LIMITS, link_credit=4)), faults)


operations = st.one_of(
    st.tuples(st.just("attach"), st.booleans(), st.just(0)),
    st.tuples(st.just("send"), st.integers(0, 4), st.integers(1, 12)),
    st.tuples(st.just("send"), st.integers(0, 4), st.integers(1, 12)),
    st.tuples(st.just("take"), st.booleans(), st.integers(1, 12)),
    st.tuples(st.just("detach"), st.integers(0, 4), st.just(0)),
    st.tuples(st.just("relay"), st.just(0), st.just(0)),
    st.tuples(st.just("period"), st.just(0), st.just(0)),
)


async def do(at: Scene, what: str, who: int, count: int) -> None:
    """One step of a pattern."""
    attached = [each for each in at.senders if each.link.attached]
    if what == "attach" and len(attached) < 5:
        await at.attach(polite=bool(who))
    elif what == "send" and attached:
        attached[who % len(attached)].send(count)
    elif what == "detach" and attached:
        attached[who % len(attached)].link.detach()
    elif what == "relay" and at.relay is not None and at.relay.credit:
        at.relay.send([text(b"r", properties=Properties(to="q"))])
    elif what == "take":
        await at.take(count, Accepted() if who else Released())
    elif what == "period":
        await at.period()
    await at.rest()


@examples(25)
@given(st.lists(operations, min_size=3, max_size=25))
@scene()
async def test_whatever_they_do_the_bound_holds_and_each_gets_on(
    at: Scene, steps: list[tuple[str, Any, int]]
) -> None:
    """Any pattern of senders, messages and outcomes; then each in turn, while the others only hold credit."""
    for what, who, count in steps:
        await do(at, what, who, count)
    await at.attach()
    for sender in [each for each in at.senders if each.link.attached]:
        sent = 0
        for _ in range(40):
            sent += sender.send(3)
            await at.take(MOST, Accepted())
            await at.period()
            if sent >= 12:
                break
        assert sent >= 12, "a sender does not get on"
