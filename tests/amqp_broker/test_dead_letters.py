"""Dead letters: what nobody accepts goes there, in one commit, and comes back when somebody says so."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import attrs
import pytest

from amqp_broker.configuration import BrokerLimits, QueuePolicy
from amqp_broker.dead_letters.dead_letters import Making
from amqp_broker.dead_letters.moving import DeadLetter
from amqp_broker.frames import (
    Accepted,
    Error,
    Header,
    Message,
    Modified,
    Rejected,
    Released,
    Source,
    Symbol,
    encode_message,
    plain_value,
)
from amqp_broker.links import Delivery
from amqp_broker.operations.operation import Refused
from amqp_broker.persistence import StoreFailed
from amqp_broker.testing import ScriptedFaults, memory_config
from tests.links.pair import Message as Sendable
from tests.support.by_hand import Control, Served, at_hand, by_hand, condition_of, text, within
from tests.support.event_replay import replay
from tests.support.topics import selector

FAILED = Modified(delivery_failed=True)
HERE = Modified(undeliverable_here=True)
REJECTED = Rejected(error=Error(condition="test:no", description="it is blue"))
POLICIES = (
    QueuePolicy(pattern="twice", max_deliveries=2, dead_letter_address="graves", events=True),
    QueuePolicy(pattern="late", expiry_address="expired"),
    QueuePolicy(
        pattern="slow", redelivery_delay_ms=1_000, redelivery_factor=3, redelivery_delay_max_ms=5_000
    ),
    QueuePolicy(pattern="for-ever", max_deliveries=0),
    QueuePolicy(pattern="alone", undeliverable_wait_ms=5_000),
    QueuePolicy(pattern="graves", max_messages=3, events=True),
)
CONFIG = memory_config(
    queue_policies=POLICIES, limits=BrokerLimits(dead_letter_messages=4, idle_time_out_ms=2**32 - 1)
)
here = at_hand(CONFIG)


def noted(delivery: Delivery) -> dict[str, Any]:
    """The annotations of a dead letter, without their common beginning and the time, which is checked."""
    annotations = plain_value(Message(delivery.payload).message_annotations or {})
    begin = "x-opt-dead-letter-"
    found = {key.removeprefix(begin): value for key, value in annotations.items() if key.startswith(begin)}
    assert found.pop("time") > 0
    return found


async def letters(at: Served, name: str = "dead-letters") -> list[Delivery]:
    """What a browser finds there."""
    await at.rest()
    if at.broker.nodes.queues.find(name) is None:
        return []
    looks = at.another("looks")
    link = looks.attach_receiver(Source(address=name, distribution_mode="copy"), 1_000)
    await looks.settle()
    link.detach()
    await looks.settle()
    at._together.remove(looks)
    return looks.received


def bodies(deliveries: list[Delivery]) -> list[bytes]:
    return [bytes(Message(each.payload).body_sections()[0].value) for each in deliveries]


@pytest.mark.parametrize("durable", [False, True])
@here
async def test_rejected_goes_to_the_dead_letters(at: Served, durable: bool) -> None:
    """With the reason, what the receiver said, the count and the former address; the bare message is as it
    was (paper 2.3.11.3).
    """
    await at.post("q", b"1", b"2", b"3", durable=durable)
    receiver = await at.receiver("q", 3)
    first, second, third = at.take()
    receiver.settle([first, second], REJECTED)
    receiver.settle([third], Accepted())
    found = await letters(at)
    assert bodies(found) == [b"1", b"2"]
    assert noted(found[0]) == {
        "reason": "rejected", "address": "q", "count": 0, "description": "test:no: it is blue",
    }  # fmt: skip
    assert Message(found[0].payload).bare == Message(first.payload).bare
    assert at.queue("q").message_count == 0 and await at.left("q") == []
    assert at.broker.dead_letters.moved == {"rejected": 2}


@here
async def test_annotations_of_the_message_stay(at: Served) -> None:
    """Its own and those of the outcome; those of a former death are replaced."""
    sender = await at.sender("twice")
    own = {Symbol("x-opt-own"): 7, Symbol("x-opt-dead-letter-reason"): "old"}
    sender.send([Sendable(encode_message(header=Header(durable=True), body=b"1", message_annotations=own))])
    await at.settle()
    receiver = await at.receiver("twice", 10)
    receiver.settle(at.take(), Modified(delivery_failed=True, message_annotations={"x-opt-try": "first"}))
    await at.settle()
    receiver.settle(at.take(), Modified(delivery_failed=True, message_annotations={"x-opt-try": "second"}))
    (found,) = await letters(at, "graves")
    annotations = plain_value(Message(found.payload).message_annotations)
    assert (annotations["x-opt-own"], annotations["x-opt-try"]) == (7, "second")
    assert noted(found) == {"reason": "max-deliveries", "address": "twice", "count": 2}


@here
async def test_ten_failed_deliveries_are_enough(at: Served) -> None:
    """The tenth is the last; the header counts them on the way, and among the dead letters still (3.2.1)."""
    await at.post("q", b"1", b"2")
    receiver = await at.receiver("q", 2)
    counts = []
    for _ in range(10):
        failed, *others = sorted(at.take(), key=lambda each: bodies([each]))
        assert bodies([failed]) == [b"1"]
        counts.append(Message(failed.payload).header.delivery_count or 0)
        receiver.settle(others, Released())
        receiver.settle([failed], FAILED)
        receiver.flow(2)
        await at.settle()
    assert counts == list(range(10))
    assert bodies(at.received) == [b"2"]
    (found,) = await letters(at)
    header = Message(found.payload).header
    assert (header.delivery_count, header.first_acquirer, header.ttl) == (10, False, None)
    assert noted(found)["count"] == 10


@here
async def test_released_never_counts(at: Served) -> None:
    """3.4.4: released does not raise the delivery-count."""
    await at.post("twice", b"1")
    receiver = await at.receiver("twice", 1)
    for _ in range(20):
        receiver.settle(at.take(), Released())
        receiver.flow(1)
        await at.settle()
    assert bodies(at.received) == [b"1"] and await letters(at, "graves") == []


@here
async def test_without_a_bound_a_message_may_fail_for_ever(at: Served) -> None:
    """max_deliveries = 0."""
    await at.post("for-ever", b"1")
    receiver = await at.receiver("for-ever", 1)
    for _ in range(20):
        receiver.settle(at.take(), FAILED)
        receiver.flow(1)
        await at.settle()
    assert (Message(at.take()[0].payload).header.delivery_count) == 20


@here
async def test_a_consumer_that_crashes_on_a_message(at: Served) -> None:
    """The oldest that nobody said anything of counts as a try when the connection breaks, and no other."""
    await at.post("q", b"1", b"2", b"3")
    for _ in range(10):
        client = at.another("crashes")
        await client.receiver("q", 3)
        assert bodies(client.received) == [b"1", b"2", b"3"]
        await client.breaks()
    assert bodies(await letters(at)) == [b"1"]
    await at.receiver("q", 3)
    assert bodies(at.received) == [b"2", b"3"]
    assert not Message(at.received[0].payload).header.delivery_count


@here
async def test_what_expires_has_an_address_of_its_own(at: Served) -> None:
    """In memory; a dead letter itself never expires. Without such an address it goes to the dead letters."""
    await at.post("late", b"1", ttl=100)
    await at.post("q", b"2", ttl=100)
    await at.pass_time(30)
    (first,), (second,) = await letters(at, "expired"), await letters(at)
    assert noted(first) == {"reason": "expired", "address": "late", "count": 0}
    assert bodies([second]) == [b"2"] and noted(second)["address"] == "q"
    assert Message(first.payload).header.ttl is None
    await at.pass_time(30)
    assert bodies(await letters(at)) == [b"2"]


@pytest.mark.parametrize("durable", [False, True])
@here
async def test_what_is_over_at_its_discharge_expires_in_its_queue(at: Served, durable: bool) -> None:
    """A message that waited for its transaction longer than it lives is among the dead letters, too."""
    control = Control(at)
    txn_id = await control.declare()
    link = await at.sender("late", "posts")
    link.send_in([text(b"1", durable=durable, ttl=100)], within(txn_id))
    await at.settle()
    await at.pass_time(5)
    await control.commit(txn_id)
    await at.receiver("late", 1)
    assert at.received == []
    await at.pass_time(30)
    (found,) = await letters(at, "expired")
    assert bodies([found]) == [b"1"] and noted(found)["reason"] == "expired"
    assert at.queue("late").message_count == 0


@here
async def test_undeliverable_everywhere(at: Served) -> None:
    """It waits for another link, for a while; then, if every link that is there said so, it is dead."""
    await at.post("alone", b"1", b"2")
    first = await at.receiver("alone", 2)
    one, two = at.take()
    first.settle([one, two], HERE)
    await at.pass_time(4)
    second = await at.receiver("alone", 1, "second")
    assert bodies(at.received) == [b"1"]
    await at.pass_time(2)
    assert await letters(at) == [], "the second link holds one, and could have the other"
    second.settle(at.take(), HERE)
    await at.pass_time(12)
    (found,) = await letters(at)
    assert bodies([found]) == [b"1"] and noted(found)["reason"] == "undeliverable-here"
    second.detach()
    await at.pass_time(12)
    assert bodies(await letters(at)) == [b"1", b"2"] and at.queue("alone").message_count == 0


@pytest.mark.parametrize("settled", [False, True])
@here
async def test_a_transaction_moves_at_its_discharge(at: Served, settled: bool) -> None:
    """rejected, and modified that fails too often: nothing before, all of it with the commit; what still has
    tries comes back.
    """
    await at.post("twice", b"1", b"2", b"3")
    receiver = await at.receiver("twice", 3)
    failed = at.take()
    receiver.settle(failed[:1], FAILED)
    receiver.flow(1)
    await at.settle()
    control = Control(at)
    txn_id = await control.declare()
    (once,) = at.take()
    receiver.dispose([once, failed[1]], within(txn_id, FAILED), settled)
    receiver.dispose(failed[2:], within(txn_id, REJECTED), settled)
    await at.settle()
    assert await letters(at, "graves") == []
    receiver.flow(0)
    await control.commit(txn_id)
    found = await letters(at, "graves")
    assert {(bodies([each])[0], noted(each)["reason"]) for each in found} == {
        (b"1", "max-deliveries"), (b"3", "rejected"),
    }  # fmt: skip
    assert at.queue("twice").message_count == 1
    receiver.detach()
    await at.settle()
    assert await at.left("twice") == [b"2"]


@here
async def test_a_rollback_moves_nothing(at: Served) -> None:
    """The deliveries are as they were; their real outcome may still be accepted."""
    await at.post("q", b"1", b"2")
    receiver = await at.receiver("q", 2)
    control = Control(at)
    txn_id = await control.declare()
    receiver.dispose(at.received, within(txn_id, REJECTED), False)
    await control.roll_back(txn_id)
    assert await letters(at) == [] and at.queue("q").message_count == 2
    receiver.settle(at.take(), Accepted())
    await at.settle()
    assert at.queue("q").message_count == 0


@here
async def test_rolled_back_ten_times(at: Served) -> None:
    """As a transacted session of JMS does it: settled acceptances, and modified as the default outcome."""
    await at.post("q", b"1")
    source = Source(address="q", default_outcome=FAILED)
    receiver = at.attach_receiver(source, 1)
    control = Control(at)
    for _ in range(10):
        txn_id = await control.declare()
        await at.settle()
        receiver.dispose(at.take(), within(txn_id, Accepted()), True)
        receiver.flow(1)
        await control.roll_back(txn_id)
    assert at.received == []
    assert noted((await letters(at))[0]) == {"reason": "max-deliveries", "address": "q", "count": 10}


@here
async def test_dead_letters_do_not_circle(at: Served) -> None:
    """Rejected there a message is gone, and it may fail for ever."""
    await at.post("q", b"1", b"2")
    receiver = await at.receiver("q", 2)
    receiver.settle(at.take(), REJECTED)
    await at.rest()
    sexton = await at.receiver("dead-letters", 1, "sexton")
    for _ in range(12):
        sexton.settle(at.take(), FAILED)
        sexton.flow(1)
        await at.settle()
    sexton.settle(at.take(), REJECTED)
    assert bodies(await letters(at)) == [b"2"]
    assert at.broker.dead_letters.moved == {"rejected": 2}


@pytest.mark.parametrize(("name", "into", "most"), [("q", "dead-letters", 4), ("twice", "graves", 3)])
@here
async def test_too_many_dead_letters(at: Served, name: str, into: str, most: int) -> None:
    """The oldest are dropped and counted: the default queue is bounded, others by their [[queue]]."""
    await at.post(name, *[b"%d" % number for number in range(6)])
    receiver = await at.receiver(name, 6)
    receiver.settle(at.take(), REJECTED)
    assert bodies(await letters(at, into)) == [b"%d" % number for number in range(6 - most, 6)]
    assert at.broker.dead_letters.dropped == 6 - most
    assert at.queue(into).message_count == most


def test_too_many_octets_of_dead_letters() -> None:
    """The other bound of the default queue."""
    config = memory_config(limits=BrokerLimits(dead_letter_bytes=64 * 1_024))

    async def main(at: Served) -> None:
        await at.post("q", *[bytes([number]) * 30_000 for number in range(4)])
        receiver = await at.receiver("q", 4)
        receiver.settle(at.take(), REJECTED)
        assert [body[0] for body in bodies(await letters(at))] == [2, 3]

    by_hand(main, config)


@here
async def test_a_failed_message_waits(at: Served) -> None:
    """Longer after each failure, up to the ceiling; others overtake it, and released ones do not wait."""
    await at.post("slow", b"1", b"2")
    receiver = await at.receiver("slow", 1)
    for wait_s in (1, 3, 5, 5):
        receiver.settle(at.take(), FAILED)
        receiver.flow(1)
        await at.settle()
        assert bodies(at.received) == [b"2"]
        receiver.settle(at.take(), Released())
        receiver.flow(0)
        await at.pass_time(wait_s - 0.01)
        receiver.flow(1)
        await at.settle()
        assert bodies(at.received) == [b"2"]
        receiver.settle(at.take(), Released())
        receiver.flow(0)
        await at.pass_time(0.02)
        receiver.flow(1)
        await at.settle()
        assert bodies(at.received) == [b"1"]


@here
async def test_a_transaction_that_fails_a_message_makes_it_wait(at: Served) -> None:
    """Its commit of modified, and its rollback where that is the default outcome."""
    await at.post("slow", b"1")
    receiver = at.attach_receiver(Source(address="slow", default_outcome=FAILED), 1)
    control = Control(at)
    txn_id = await control.declare()
    await at.settle()
    receiver.dispose(at.take(), within(txn_id, FAILED), False)
    receiver.flow(1)
    await control.commit(txn_id)
    assert at.received == []
    await at.pass_time(1.1)
    assert bodies(at.received) == [b"1"]
    txn_id = await control.declare()
    receiver.dispose(at.take(), within(txn_id, Accepted()), True)
    receiver.flow(1)
    await control.roll_back(txn_id)
    await at.pass_time(2.9)
    assert at.received == []
    await at.pass_time(0.2)
    assert bodies(at.received) == [b"1"]


@here
async def test_a_message_that_waits_is_in_its_queue(at: Served) -> None:
    """It takes room, and no drain waits for it; what a link that broke held waits, too."""
    await at.post("slow", b"1")
    crashes = at.another("crashes")
    await crashes.receiver("slow", 1)
    await crashes.breaks()
    receiver = await at.receiver("slow")
    receiver.flow(1, drain=True)
    await at.settle()
    assert receiver.credit == 0 and at.received == [] and at.queue("slow").message_count == 1
    receiver.flow(1)
    await at.pass_time(1.1)
    assert bodies(at.received) == [b"1"]


@here
async def test_a_browser_sees_a_message_that_waits(at: Served) -> None:
    """Once, at its place, whether it looks while the message waits or afterwards."""
    await at.post("slow", b"1", b"2", b"3")
    receiver = await at.receiver("slow", 2)
    _, second = at.take()
    receiver.settle([second], FAILED)
    await at.settle()
    assert bodies(await letters(at, "slow")) == [b"2", b"3"], "a consumer has the first"
    await at.pass_time(1.1)
    assert bodies(await letters(at, "slow")) == [b"2", b"3"]


def test_a_browser_sees_what_waits_among_what_is_on_disk(tmp_path: Path) -> None:
    """Where the page is read that has its place; nothing between is left out."""
    limits = attrs.evolve(CONFIG.limits, queue_window_messages=4)
    config = attrs.evolve(CONFIG, memory=False, data_dir=str(tmp_path), limits=limits)

    async def steps(at: Served) -> None:
        expected = [b"%d" % number for number in range(40)]
        await at.post("slow", *expected)
        source = Source(address="slow", filter=selector("n = 1"))
        link = await at.sender("slow", "one more")
        link.send([text(b"chosen", application_properties={"n": 1})])
        await at.settle()
        await at.post("slow", b"last")
        receiver = await at.receiver(source, 1)
        receiver.settle(at.take(), FAILED)
        await at.settle()
        assert bodies(await letters(at, "slow")) == [*expected, b"chosen", b"last"]

    by_hand(steps, config)


@here
async def test_the_way_back(at: Served) -> None:
    """Where they came from, with their tries anew; what has no such address stays, in its place."""
    await at.post("q", b"1", b"2")
    receiver = await at.receiver("q", 2)
    receiver.settle(at.take(), FAILED)
    receiver.processed(2)
    await at.settle()
    receiver.settle(at.take(), REJECTED)
    receiver.detach()
    await at.rest()
    await at.post("dead-letters", b"stray")
    assert await at.broker.redrive("dead-letters", 1) == 1
    assert bodies(await letters(at)) == [b"2", b"stray"]
    assert await at.broker.redrive() == 1
    await at.rest()
    assert bodies(await letters(at)) == [b"stray"] and at.queue("dead-letters").message_count == 1
    await at.receiver("q", 2, "again")
    header = Message(at.received[0].payload).header
    assert bodies(at.received) == [b"1", b"2"] and not header.delivery_count and not header.first_acquirer
    assert noted(at.received[0])["reason"] == "rejected"


@here
async def test_the_way_back_into_a_full_queue(at: Served) -> None:
    """Those for which there is no room stay."""
    await at.post("graves", b"0")
    await at.post("twice", b"1")
    at.queue("twice").limits.max_messages = 1
    receiver = await at.receiver("twice", 1)
    receiver.settle(at.take(), REJECTED)
    receiver.detach()
    await at.rest()
    await at.post("twice", b"2")
    assert await at.broker.redrive("graves") == 0
    assert bodies(await letters(at, "graves")) == [b"0", b"1"]
    queue = at.queue("twice")
    assert (queue.message_count, queue.reserved_messages) == (1, 0)


# On disk


def restarts(tmp_path: Path, *mains: Callable[[Served], Any], **changes: Any) -> None:
    """Run each with the same store, one broker after the other."""
    config = attrs.evolve(CONFIG, memory=False, data_dir=str(tmp_path / "data"))
    for main in mains:
        by_hand(main, attrs.evolve(config, **changes))


def test_after_a_restart(tmp_path: Path) -> None:
    """Dead letters, also of messages that were not durable, and the counts of tries are there; what waited is
    offered at once.
    """

    async def before(at: Served) -> None:
        await at.post("q", b"1", b"2", durable=False)
        await at.post("slow", b"3")
        receiver = await at.receiver("q", 2)
        receiver.settle(at.take(), REJECTED)
        await at.rest()
        slow = await at.receiver("slow", 1, "slow")
        slow.settle(at.take(), FAILED)
        await at.rest()
        assert at.received == []

    async def after(at: Served) -> None:
        found = await letters(at)
        assert bodies(found) == [b"1", b"2"] and noted(found[0])["reason"] == "rejected"
        await at.receiver("slow", 1)
        assert bodies(at.received) == [b"3"] and Message(at.take()[0].payload).header.delivery_count == 1
        assert await at.broker.redrive() == 2
        await at.rest()
        assert await at.left("q") == [b"1", b"2"] and at.queue("dead-letters").message_count == 0

    restarts(tmp_path, before, after)


def test_what_is_on_disk_only(tmp_path: Path) -> None:
    """Messages that expire there go to the dead letters, and the oldest dead letters there are dropped."""
    little = attrs.evolve(CONFIG.limits, queue_window_messages=2, dead_letter_messages=5)

    async def before(at: Served) -> None:
        await at.post("q", *[b"%d" % number for number in range(4)], ttl=1_000)
        await at.post("other", b"4", b"5", b"6")

    async def after(at: Served) -> None:
        await at.pass_time(60)
        assert bodies(await letters(at)) == [b"0", b"1", b"2", b"3"]

    async def at_last(at: Served) -> None:
        receiver = await at.receiver("other", 3)
        receiver.settle(at.take(), REJECTED)
        assert bodies(await letters(at)) == [b"2", b"3", b"4", b"5", b"6"]
        await at.broker.redrive()
        await at.rest()
        receiver.flow(0)
        assert at.queue("q").message_count == 2 and await letters(at) == []

    restarts(tmp_path, before, after, at_last, limits=little)


def test_a_crash_moves_wholly_or_not_at_all(tmp_path: Path) -> None:
    """The broker ends at a commit: before it the message is in its queue, after it with the dead letters."""
    for happened in (False, True):
        config = attrs.evolve(CONFIG, memory=False, data_dir=str(tmp_path / str(happened)))
        faults = ScriptedFaults()

        async def work(at: Served, faults: ScriptedFaults = faults, happened: bool = happened) -> None:
            await at.post("graves", b"0")
            await at.post("twice", b"1")
            receiver = await at.receiver("twice", 1)
            faults.fail_commit(happened=happened)
            receiver.settle(at.take(), REJECTED)
            await at.rest()

        async def look(at: Served, happened: bool = happened) -> None:
            assert bodies(await letters(at, "graves")) == ([b"0", b"1"] if happened else [b"0"])
            assert await at.left("twice") == ([] if happened else [b"1"])

        with pytest.raises(StoreFailed, match="scripted"):
            by_hand(work, config, faults)
        by_hand(look, config)


@here
async def test_the_journal_tells_it(at: Served) -> None:
    """What ends is dead where it was, and put where it goes; what is dropped there is dead, too."""
    await at.post("twice", b"1", b"2", b"3", b"4")
    receiver = await at.receiver("twice", 4)
    first, *others = at.take()
    receiver.settle(others, REJECTED)
    receiver.settle([first], FAILED)
    receiver.flow(1)
    await at.settle()
    receiver.settle(at.take(), FAILED)
    await at.rest()
    told = replay(await at.broker.half_messages.events(0, 1_000))
    assert told.problems == [] and told.offsets("twice") == [] and told.offsets("graves") == [1, 2, 3]


@here
async def test_a_fault_in_the_move_loses_nothing(at: Served) -> None:
    """A fault of the broker in it ends the receiver's connection; the message is in its queue."""
    await at.post("graves", b"0")
    await at.post("twice", b"1")
    receiver = await at.receiver("twice", 1)

    def fail(*_: object) -> None:
        raise ValueError("a fault")

    with patch.object(DeadLetter, "_record", fail):
        receiver.settle(at.take(), REJECTED)
        await at.rest()
    assert await at.left("twice") == [b"1"] and bodies(await letters(at, "graves")) == [b"0"]
    assert at.queue("graves").pending_posts == 0


@pytest.mark.parametrize("made", [False, True], ids=["its queue is made", "its queue is there"])
@pytest.mark.parametrize("settled", [False, True])
def test_a_full_disk_delays_the_move(settled: bool, made: bool) -> None:
    """The outcome waits for room, and the message is nowhere twice, and nowhere missing."""
    faults = ScriptedFaults()

    async def main(at: Served) -> None:
        await at.post("q", b"1")
        if made:
            await at.post("dead-letters", b"0")
        receiver = await at.receiver("q", 1)
        faults.refuse_commit(1, 6)
        receiver.dispose(at.take(), REJECTED, settled)
        await at.settle()
        assert await at.left("q") == [], "nobody else has it meanwhile"
        await at.pass_time(60)
        found = await letters(at)
        assert bodies(found) == [*[b"0"] * made, b"1"] and noted(found[-1])["reason"] == "rejected"
        assert at.queue("q").message_count == 0 and at.queue("dead-letters").pending_posts == 0

    by_hand(main, CONFIG, faults)


def test_a_full_disk_refuses_a_discharge_that_moves_messages() -> None:
    """Nothing has moved; the deliveries can be settled once more, and then they move once."""
    faults = ScriptedFaults()

    async def main(at: Served) -> None:
        await at.post("q", b"1")
        await at.post("dead-letters", b"0")
        receiver = await at.receiver("q", 1)
        (delivery,) = at.take()
        control = Control(at)
        txn_id = await control.declare()
        receiver.dispose([delivery], within(txn_id, REJECTED), False)
        faults.refuse_commit(1, 2)
        outcome = await control.discharge(txn_id)
        assert condition_of(outcome) == "amqp:transaction:rollback"
        assert bodies(await letters(at)) == [b"0"] and at.queue("q").message_count == 1
        receiver.settle([delivery], REJECTED)
        assert bodies(await letters(at)) == [b"0", b"1"] and at.queue("q").message_count == 0

    by_hand(main, CONFIG, faults)


@pytest.mark.parametrize("refused", [True, False], ids=["kept back", "moved"])
def test_what_was_kept_back_is_lost_with_its_queue(
    refused: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says first that the next start has it, and then that it is gone, where its queue has ended."""

    async def main(at: Served) -> None:
        queue = await at.post("q", b"1", b"2", b"3")
        error = Refused(Error(condition="amqp:resource-limit-exceeded", description="too many queues"))
        with patch.object(Making, "prepare", side_effect=error) if refused else nullcontext():
            at.broker.nodes.expire(queue, queue.backlog.take(2))
            await at.rest()
        assert (queue.leaving, queue.kept_back) == (0, 2 * refused)
        at.broker.nodes.store(at.broker.nodes.drop(queue))
        await at.rest()

    by_hand(main, CONFIG)
    lost = [line for line in caplog.messages if line.startswith("queue.kept_back_lost")]
    assert lost == ["queue.kept_back_lost queue='q' count=2"] * refused
