"""Messages that come later, and those with an absolute expiry (3.2.4): by the broker's time, never early, in
the order of their times, behind what their queue has by then.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.broker import Broker
from amqp_broker.configuration import BindingConfig, QueuePolicy
from amqp_broker.delays import room
from amqp_broker.delivery_times import WAIT_MS_MAX, DeliveryTimes
from amqp_broker.frames import Accepted, Header, Long, Properties, Source, Timestamp, encode_message
from amqp_broker.persistence import StoreFull
from amqp_broker.persistence.questions import PageOf
from amqp_broker.records import record_of
from amqp_broker.testing.peer import PeerSession
from amqp_broker.waiting import NEVER, Waiting
from tests.links.pair import Message as Sendable
from tests.support.broker_clients import at_rest, bodies, counts, session_to, take_everything
from tests.support.by_hand import Control, Served, at_hand, posted, text, within
from tests.support.jumping_broker import EPOCH_MS, PATIENT, InEachStore, JumpingBroker, Start, on_disk

POLICIES = (
    QueuePolicy(pattern="small", max_messages=3),
    QueuePolicy(pattern="told", events=True),
    QueuePolicy(pattern="log", kind="log", retention_ms=3_600_000),
    QueuePolicy(pattern="topic", kind="topic"),
    QueuePolicy(pattern="late", expiry_address="expired"),
)
CONFIG = attrs.evolve(
    PATIENT, queue_policies=POLICIES,
    bindings=(BindingConfig(topic="topic", queue="a"), BindingConfig(topic="topic", queue="b")),
)  # fmt: skip
here = at_hand(CONFIG)
HOUR_MS = 3_600_000


def later(body: bytes, delay_ms: int, *, durable: bool = True, ttl: int | None = None) -> Sendable:
    """A message that waits."""
    return text(body, durable=durable, ttl=ttl, message_annotations={"x-opt-delivery-delay": delay_ms})


def waiting(broker: Broker) -> int:
    """How many wait."""
    return len(broker.features.delays)


async def stored_there(at: Served) -> int:
    """How many the store has of those that wait."""
    node_id = at.broker.features.delays.node_id
    return len((await at.broker.writer.ask(PageOf(node_id, 0, 10_000, 1 << 30))).records)


# Pure


@given(st.lists(st.tuples(st.integers(0, 1 << 61), st.integers(0, 9))))
def test_the_earliest_first(entries: list[tuple[int, int]]) -> None:
    """As a sorted list; nothing before its time."""
    waits = Waiting()
    for number, at_ms in entries:
        waits.enter(number, at_ms)
    by_time = sorted((at_ms, number) for number, at_ms in entries)
    assert waits.next_ms() == (by_time[0][0] if entries else NEVER)
    for now_ms in range(10):
        due = [entry for entry in by_time if entry[0] == now_ms]
        assert waits.take_due(now_ms, 2) + waits.take_due(now_ms) == due
    assert not len(waits) and waits.next_ms() == NEVER


def times_of(**sections: Any) -> tuple[int, int]:
    """(due, expiry) of a message that comes at 1,000, when the clock on the wall shows 5,000."""
    times = DeliveryTimes(lambda shown_ms: shown_ms - 4_000)
    ttl = sections.pop("ttl", None)
    payload = encode_message(header=Header(durable=True, ttl=ttl), body=b"x", **sections)
    record = record_of(payload, 0, 1_000, 1, True, None, times)
    assert times.waits is (record.due_at_ms > 0)
    return record.due_at_ms, record.expires_at_ms


@pytest.mark.parametrize("kind", [Timestamp, Long])
def test_times_are_read_when_a_message_comes(kind: Any) -> None:
    """A delay from now; a time of the clock on the wall, which wins; what is over is now."""
    assert times_of(message_annotations={"x-opt-delivery-delay": kind(7)}) == (1_007, 0)
    assert times_of(message_annotations={"x-opt-delivery-time": kind(5_009)}) == (1_009, 0)
    both = {"x-opt-delivery-time": kind(5_009), "x-opt-delivery-delay": kind(7)}
    assert times_of(message_annotations=both) == (1_009, 0)
    assert times_of(message_annotations={"x-opt-delivery-time": kind(5_000)}) == (0, 0)
    assert times_of(message_annotations={"x-opt-delivery-delay": kind(0)}) == (0, 0)
    assert times_of(message_annotations={"x-opt-delivery": kind(7), "n": "x-opt-delivery-delay"}) == (0, 0)


def test_the_earlier_expiry_counts() -> None:
    """Of ttl and absolute-expiry-time; one that is over has expired."""
    at_5_500 = Properties(absolute_expiry_time=5_500)
    assert times_of(properties=at_5_500) == (0, 1_500)
    assert times_of(properties=at_5_500, ttl=400) == (0, 1_400)
    assert times_of(properties=at_5_500, ttl=600) == (0, 1_500)
    assert times_of(properties=Properties(absolute_expiry_time=0)) == (0, 1)
    assert times_of(properties=Properties(creation_time=7)) == (0, 0)
    late = Properties(absolute_expiry_time=2**63 - 1)
    assert times_of(properties=late) == (0, 1_000 + WAIT_MS_MAX)


# A broker


@pytest.mark.parametrize("value", ["soon", -1, True, WAIT_MS_MAX + 1, 2.5])
@here
async def test_what_is_no_delay_is_refused(at: Served, value: Any) -> None:
    """That message alone; it does not come early in silence."""
    sender = await at.sender("q")
    sender.send([text(b"1"), text(b"2", message_annotations={"x-opt-delivery-delay": value}), text(b"3")])
    await at.settle()
    assert sorted(at.conditions) == ["accepted", "accepted", "amqp:decode-error"]
    assert at.queue().message_count == 2


@pytest.mark.parametrize("durable", [True, False])
@here
async def test_a_message_comes_at_its_time(at: Served, durable: bool) -> None:
    """Not before; in the order of the times; those without one overtake it. Nothing of it is left where it
    waited.
    """
    receiver = await at.receiver("q", 10)
    sender = await at.sender("q")
    sender.send([
        later(b"3", 3_000, durable=durable), text(b"0", durable=durable),
        later(b"1", 1_000, durable=durable), later(b"2", 2_000, durable=durable),
    ])  # fmt: skip
    await at.rest()
    assert at.conditions == ["accepted"] * 4 and at.bodies() == [b"0"]
    await at.pass_time(0.999)
    assert at.bodies() == [b"0"]
    await at.pass_time(0.001)
    assert at.bodies() == [b"0", b"1"]
    await at.pass_time(5)
    assert at.bodies() == [b"0", b"1", b"2", b"3"]
    receiver.settle(at.take(), Accepted())
    await at.rest()
    queue, delays = at.queue(), at.broker.features.delays
    assert (queue.message_count, queue.reserved_messages, queue.reserved_bytes) == (0, 0, 0)
    assert queue._volatile_bytes == queue._kept.used_bytes == delays._kept.used_bytes == 0
    assert len(delays) == 0 and not delays._volatile and await stored_there(at) == 0


@here
async def test_who_comes_late_or_looks_sees_nothing_of_what_waits(at: Served) -> None:
    """Browsers, drains, links with a filter."""
    sender = await at.sender("q")
    sender.send([later(b"1", 5_000)])
    await at.rest()
    assert await at.left("q") == []
    await at.receiver(Source(address="q", distribution_mode="copy"), 5, "looks")
    drains = await at.receiver("q", name="drains")
    drains.flow(5, drain=True)
    await at.rest()
    assert at.bodies() == [] and drains.credit == 0
    await at.pass_time(5)
    assert at.bodies() == [b"1"]


@here
async def test_it_keeps_its_room(at: Served) -> None:
    """What waits counts for `max_messages`, on its way, too."""
    sender = await at.sender("small")
    sender.send([later(b"1", 5_000), later(b"2", 5_000, durable=False), text(b"3")])
    await at.rest()
    queue = at.queue("small")
    assert sender.credit == 0 and queue.full() and queue.message_count == 1
    await at.pass_time(5)
    assert sender.credit == 0 and (queue.message_count, queue.reserved_messages) == (3, 0)


@here
async def test_in_a_transaction(at: Served) -> None:
    """It waits from its coming on, not from the discharge; with a rollback it never comes."""
    control = Control(at)
    link = await at.sender("q")
    kept, dropped = await control.declare(), await control.declare()
    delay: dict[str, Any] = {"message_annotations": {"x-opt-delivery-delay": 5_000}}
    await posted(at, link, kept, b"kept", **delay)
    await posted(at, link, dropped, b"dropped", **delay)
    await at.pass_time(3)
    await control.commit(kept)
    await control.roll_back(dropped)
    receiver = await at.receiver("q", 5)
    await at.pass_time(1.9)
    assert at.bodies() == []
    await at.pass_time(0.1)
    assert at.bodies() == [b"kept"]
    receiver.settle(at.take(), within(await control.declare(), Accepted()))
    await at.rest()
    assert at.queue().reserved_messages == waiting(at.broker) == 0


@here
async def test_each_copy_of_a_topic_waits(at: Served) -> None:
    """In each queue that gets one; those of messages that don't wait are there at once."""
    sender = await at.sender("topic")
    sender.send([text(b"0"), later(b"1", 1_000), later(b"2", 2_000, durable=False)])
    await at.rest()
    assert at.conditions == ["accepted"] * 3
    for name in ("a", "b"):
        assert await at.left(name) == [b"0"]
    await at.pass_time(1)
    assert await at.left("a") == await at.left("b") == [b"0", b"1"]
    await at.pass_time(1)
    assert await at.left("a") == await at.left("b") == [b"0", b"1", b"2"]


@here
async def test_in_a_log_nothing_waits(at: Served) -> None:
    """Nobody takes its messages: they are archived when they come."""
    sender = await at.sender("log")
    sender.send([later(b"1", 5_000)])
    await at.rest()
    assert at.conditions == ["accepted"] and waiting(at.broker) == 0
    assert at.queue("log").next_offset == 1


@here
async def test_the_journal_tells_of_it_when_it_comes(at: Served) -> None:
    """Once, at its place."""
    sender = await at.sender("told")
    sender.send([later(b"1", 5_000, durable=False), text(b"2")])
    await at.rest()

    async def told() -> list[Any]:
        events = await at.broker.half_messages.events()
        return [event.fields.get("offset") for event in events if event.kind == "put"]

    assert await told() == [0]
    await at.pass_time(5)
    assert await told() == [0, 1]


@here
async def test_what_expires_before_it_is_due_expires(at: Served) -> None:
    """At its time, and it goes where what expires goes."""
    sender = await at.sender("late")
    sender.send([later(b"1", 60_000, ttl=5_000), later(b"2", 1_000, ttl=60_000)])
    await at.rest()
    await at.pass_time(2)
    assert await at.left("late") == [b"2"]
    await at.pass_time(4)
    await at.pass_time(2)
    assert await at.left("expired") == [b"1"] and at.queue("late").reserved_messages == 0


@here
async def test_an_absolute_expiry_is_honoured(at: Served) -> None:
    """As a ttl of what was left of it when the message came."""
    shown_ms = at.broker.clock.shown(at.broker.clock.now_ms())
    sender = await at.sender("late")
    sender.send([text(b"1", properties=Properties(absolute_expiry_time=shown_ms + 5_000)), text(b"2")])
    await at.rest()
    await at.pass_time(4.9)
    assert await at.left("late") == [b"1", b"2"]
    for _ in range(2):
        await at.pass_time(1)
    assert await at.left("late") == [b"2"] and await at.left("expired") == [b"1"]


@here
async def test_a_temporary_queue_takes_with_it_what_waits(at: Served) -> None:
    """In memory at once; nothing comes, and nothing is kept."""
    receiver = await at.receiver(Source(dynamic=True), 5)
    (name,) = [queue.name for queue in at.broker.nodes.queues.queues() if not queue.persistent]
    sender = await at.sender(name)
    sender.send([later(b"1", 5_000), later(b"2", 1_000)])
    await at.rest()
    await at.pass_time(1)
    assert at.bodies() == [b"2"]
    receiver.detach()
    await at.rest()
    delays = at.broker.features.delays
    assert not delays._volatile and delays._kept.used_bytes < 100
    await at.pass_time(5)
    assert len(delays) == 0 and delays._kept.used_bytes == 0


@here
async def test_a_part_comes_in_each_commit(at: Served) -> None:
    """Many at once, in their order, also where their bodies are too large together."""
    sender = await at.sender("q")
    sender.send([later(b"%d" % number, 1_000 + number // 7) for number in range(100)])
    await at.rest()
    with patch.object(room, "COME_AT_ONCE", 9), patch.object(room, "COME_AT_ONCE_BYTES", 50):
        await at.pass_time(3)
    assert await at.left("q") == [b"%d" % number for number in range(100)]


@pytest.mark.parametrize("seed", range(3))
@here
async def test_in_the_order_of_their_times_wherever_they_stand(at: Served, seed: int) -> None:
    """Far apart in the store, durable or not, more than one commit brings."""
    chance = Random(seed)
    sender = await at.sender("q")
    delays = [chance.randrange(1, 1_000) for _ in range(60)]
    sender.send([later(b"%d" % each, each, durable=chance.random() < 0.8) for each in delays])
    await at.rest()
    assert await at.left("q") == []
    await at.pass_time(0.5)
    await at.pass_time(0.5)
    assert [int(body) for body in await at.left("q")] == sorted(delays)


@here
async def test_a_fault_puts_it_off(at: Served) -> None:
    """Of the store or in the reading: it comes a second later, once."""
    sender = await at.sender("q")
    sender.send([later(b"1", 1_000), later(b"2", 1_000, durable=False)])
    await at.rest()
    with patch.object(room.Room, "_read", side_effect=RuntimeError("a fault")):
        await at.pass_time(1)
    with patch.object(room.Coming, "prepare", side_effect=StoreFull("a fault")):
        await at.pass_time(1)
    assert await at.left("q") == [] and waiting(at.broker) == 2
    await at.pass_time(1)
    assert await at.left("q") == [b"1", b"2"] and at.queue().reserved_messages == 0


# A broker that is started again


def send_later(session: PeerSession, address: str, *entries: tuple[bytes, str, int]) -> None:
    """Durable messages with a delay or a time, accepted."""
    link = session.attach_sender(f"to {address}", address)
    numbers = [
        link.send(
            encode_message(
                header=Header(durable=True), body=body,
                message_annotations={f"x-opt-delivery-{key}": Long(value)},
            )
        )
        for body, key, value in entries
    ]  # fmt: skip
    session.connection.pump_until(lambda: all(number in link.outcomes for number in numbers))
    assert {type(link.outcomes[number]) for number in numbers} == {Accepted}
    link.detach()


def there(broker: JumpingBroker, address: str) -> list[bytes]:
    """What a queue has, which is taken."""
    at_rest(broker)
    with session_to(broker, "takes") as session:
        return bodies(take_everything(session.attach_receiver("takes", address)))


@pytest.mark.parametrize("set_by_s", [-HOUR_MS // 1_000, 0, 100 * HOUR_MS // 1_000])
def test_order_and_times_survive_a_restart(start: Start, tmp_path: Path, set_by_s: int) -> None:
    """Elapsed time counts, whatever happens to the clock on the wall."""
    config = on_disk(tmp_path, CONFIG)
    broker = start(config)
    with session_to(broker) as session:
        send_later(
            session, "q", (b"4", "delay", 4 * HOUR_MS), (b"2", "time", EPOCH_MS + 2 * HOUR_MS),
            (b"1", "delay", HOUR_MS), (b"3", "delay", 3 * HOUR_MS),
        )  # fmt: skip
        broker.jump(HOUR_MS / 1_000)
    assert there(broker, "q") == [b"1"]
    broker.stop()
    broker.set_wall(set_by_s)
    broker = start(config, broker)
    at_rest(broker)
    assert counts(broker, "q")[0] == 0
    queue = broker.call(lambda running: running.nodes.queues.find("q"))
    assert queue.reserved_messages == 3 and queue.reserved_bytes > 0
    broker.jump(0.9 * HOUR_MS / 1_000)
    assert there(broker, "q") == []
    broker.jump(0.2 * HOUR_MS / 1_000)
    assert there(broker, "q") == [b"2"]
    with session_to(broker) as session:
        send_later(session, "q", (b"3.5", "delay", int(1.5 * HOUR_MS)))
    broker.jump(3 * HOUR_MS / 1_000)
    assert there(broker, "q") == [b"3", b"3.5", b"4"]
    assert queue.reserved_messages == queue.reserved_bytes == 0


@pytest.mark.parametrize("by_s", [-HOUR_MS // 1_000, 100 * HOUR_MS // 1_000])
def test_no_jump_of_the_clock_makes_it_early_or_late(
    start: Start, in_each_store: InEachStore, by_s: int
) -> None:
    """The time was read when the message came."""
    broker = start(in_each_store(CONFIG))
    with session_to(broker) as session:
        send_later(session, "q", (b"1", "time", EPOCH_MS + HOUR_MS), (b"2", "delay", HOUR_MS))
    broker.set_wall(by_s)
    broker.jump(0.9 * HOUR_MS / 1_000)
    assert there(broker, "q") == []
    broker.jump(0.1 * HOUR_MS / 1_000)
    assert there(broker, "q") == [b"1", b"2"]
