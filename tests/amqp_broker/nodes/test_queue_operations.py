"""What is done by hand with the messages of a queue: each does what it says, beside what others hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import attrs
import pytest

from amqp_broker.configuration import BindingConfig, BrokerLimits, QueuePolicy
from amqp_broker.frames import (
    Accepted,
    Message,
    Properties,
    Rejected,
    Released,
    Source,
    encode_message,
    plain_value,
)
from amqp_broker.operations.moving import Moved
from amqp_broker.operations.removal import Removal
from amqp_broker.persistence import StoreFailed
from amqp_broker.testing import ScriptedFaults, memory_config
from tests.links.pair import Message as Sendable
from tests.support.by_hand import Control, Served, by_hand, posted, text
from tests.support.event_replay import replay
from tests.support.managing import Asking, asking, asks
from tests.support.topics import selector

POLICIES = (
    QueuePolicy(pattern="small", max_messages=2),
    QueuePolicy(pattern="told", events=True),
    QueuePolicy(pattern="kept", retention_ms=10_000, events=True),
    QueuePolicy(pattern="line", kind="log", retention_ms=10_000),
    QueuePolicy(pattern="placed", sequence="required"),
    QueuePolicy(pattern="gone", dead_letter_address="graves"),
)
LITTLE = BrokerLimits(queue_window_messages=4, idle_time_out_ms=2**32 - 1)
CONFIG = memory_config(queue_policies=POLICIES)
here = asks(CONFIG)
EVENS = "number = 0 OR number = 2 OR number = 4"


async def number(at: Served, address: str, count: int, **sections: Any) -> None:
    """So many messages in a queue, each with its number."""
    link = await at.sender(address, f"numbers {address}")
    at.outcomes.clear()
    for each in range(count):
        link.send([text(b"%d" % each, application_properties={"number": each}, **sections)])
    await at.settle()
    assert at.outcomes == [Accepted()] * count
    at.outcomes.clear()
    link.detach()
    await at.settle()
    at.detached.clear()


def done(messages: int, next_offset: int, end_offset: int) -> dict[str, int]:
    """A reply."""
    return {"messages": messages, "next_offset": next_offset, "end_offset": end_offset}


@here
async def test_a_purge_leaves_what_somebody_holds(one: Asking) -> None:
    """A consumer, or a transaction; and other queues. What is released after it is there."""
    at = one.at
    await at.post("q", *[b"%d" % each for each in range(6)])
    await at.post("other", b"x")
    holder = await at.receiver("q", 2)
    held = at.take()
    assert await one.body("PURGE", "queue", name="q") == done(4, 6, 6)
    assert at.queue().message_count == 2 and await at.left("other") == [b"x"]
    holder.settle([held[0]], Released())
    holder.flow(0)
    await at.settle()
    assert at.queue().backlog.available() == 1
    holder.settle([held[1]], Accepted())
    await at.settle()
    assert at.queue().message_count == 1


@here
async def test_a_purge_by_selector_and_count(one: Asking) -> None:
    """Only those that pass, the oldest first; the next request goes on behind them."""
    await number(one.at, "q", 6)
    told = {"name": "q", "selector": EVENS}
    assert await one.body("PURGE", "queue", count=2, **told) == done(2, 4, 6)
    assert await one.body("PURGE", "queue", count=0, **told) == done(0, 4, 6)
    assert await one.at.left("q") == [b"1", b"3", b"4", b"5"]
    assert await one.body("PURGE", "queue", offset=4, **told) == done(1, 6, 6)
    assert await one.at.left("q") == [b"1", b"3", b"5"]
    status, why = await one.refused("PURGE", "queue", name="q", selector="number >")
    assert status == 400 and why.startswith("selector: ")


@here
async def test_a_move_and_a_copy(one: Asking) -> None:
    """In their order, behind what is there; a copy leaves them."""
    at = one.at
    await number(at, "a", 5)
    await at.post("b", b"first")
    assert await one.body("COPY", "queue", name="a", to="b", count=2) == done(2, 2, 5)
    assert await at.left("b") == [b"first", b"0", b"1"] and at.queue("a").message_count == 5
    assert await one.body("MOVE", "queue", name="a", to="b", selector=EVENS) == done(3, 5, 5)
    assert await at.left("b") == [b"first", b"0", b"1", b"0", b"2", b"4"]
    assert await at.left("a") == [b"1", b"3"] and at.queue("a").message_count == 2


@here
async def test_a_move_as_far_as_there_is_room(one: Asking) -> None:
    """The rest stays, and is next; where there is none, nothing is done."""
    at = one.at
    await number(at, "a", 3)
    await one.ask("CREATE", "queue", name="small")
    assert await one.body("MOVE", "queue", name="a", to="small") == done(2, 2, 3)
    status, why = await one.refused("MOVE", "queue", name="a", to="small")
    assert status == 409 and "max_messages, 2" in why
    assert await at.left("a") == [b"2"] and await at.left("small") == [b"0", b"1"]
    small = at.queue("small")
    assert (small.message_count, small.reserved_messages, small.pending_posts) == (2, 0, 0)


@here
async def test_a_moved_message_goes_to_who_waits(one: Asking) -> None:
    """Its time to live goes on, what expired stays for its own end, and its tries begin anew."""
    at = one.at
    await at.post("a", b"1", ttl=10_000)
    waiting = await at.receiver("b", 5)
    await one.body("MOVE", "queue", name="a", to="b")
    (came,) = at.take()
    waiting.settle([came], Released())
    waiting.detach()
    await at.rest()
    assert at.queue("b").message_count == 1
    await at.pass_time(11)
    assert at.queue("b").message_count == 0


@pytest.mark.parametrize(
    ("to", "status", "words"),
    [
        ("q", 409, "another queue"),
        ("nowhere", 404, "that is there"),
        ("$management", 404, "that is there"),
        ("placed", 409, "place in a stream"),
        ("a*", 400, "patterns"),
        (None, 400, "application property to: expected a string"),
    ],
)
def test_where_messages_cannot_go(to: str | None, status: int, words: str) -> None:
    """Neither moved nor copied, and they are where they were."""

    @here
    async def run(one: Asking) -> None:
        await one.at.post("q", b"1")
        await one.ask("CREATE", "queue", name="placed")
        for operation in ("MOVE", "COPY"):
            found, why = await one.refused(operation, "queue", name="q", to=to)
            assert found == status and words in why
        assert await one.at.left("q") == [b"1"]

    run()


@here
async def test_a_log_keeps_what_it_has(one: Asking) -> None:
    """It takes copies, and nothing is taken from it."""
    at = one.at
    await at.post("line", b"0")
    await at.post("q", b"1")
    for operation, more in (("PURGE", {}), ("MOVE", {"to": "q"}), ("BROWSE", {}), ("DELETE", {})):
        status, why = await one.refused(operation, "queue", name="line", **more)
        assert status == 409 and "offset" in why
    assert await one.body("MOVE", "queue", name="q", to="line") == done(1, 1, 1)
    assert at.queue("line").next_offset == 2 and at.queue().message_count == 0


@here
async def test_messages_are_looked_at(one: Asking) -> None:
    """A page of what is available, with the first octets of each body; nothing is taken."""
    at = one.at
    link = await at.sender("q")
    link.send([text(
        b"abcdef", properties=Properties(subject="s", message_id="m"), application_properties={"n": 7}
    )])  # fmt: skip
    link.send([text(b"x", durable=False, ttl=5_000)])
    await at.settle()
    found = await one.body("BROWSE", "queue", name="q", body_bytes=4)
    first, second = found.pop("messages")
    assert found == {"next_offset": 2, "end_offset": 2}
    assert first == {
        "offset": 0, "state": "available", "durable": True, "priority": 4, "delivery_count": 0,
        "expires_at_ms": 0, "bytes": first["bytes"], "truncated": True,
        "properties": {"message_id": "m", "subject": "s"}, "application_properties": {"n": 7},
        "body_type": "data", "body": b"abcd",
    }  # fmt: skip
    assert (second["durable"], second["body"], second["truncated"]) == (False, b"x", False)
    assert second["expires_at_ms"] > 0
    found = await one.body("BROWSE", "queue", name="q", count=1, selector="n = 7")
    assert [each["offset"] for each in found["messages"]] == [0] and found["next_offset"] == 2
    assert at.queue().backlog.available() == 2


@here
async def test_a_page_has_a_largest_size(one: Asking) -> None:
    """Large bodies come in more pages."""
    for each in range(3):
        await one.at.post("q", b"%d" % each * 600_000)
    found = await one.body("BROWSE", "queue", name="q", body_bytes=1_000_000)
    assert len(found["messages"]) == 1 and found["next_offset"] == 1
    found = await one.body("BROWSE", "queue", name="q")
    assert [len(each["body"]) for each in found["messages"]] == [1_024] * 3
    for _ in range(30):
        await number(one.at, "large", 1, properties=Properties(subject="s" * 60_000))
    await number(one.at, "large", 1, properties=Properties(subject="s" * 70_000))
    found = await one.body("BROWSE", "queue", name="large", body_bytes=0)
    assert len(found["messages"]) == found["next_offset"] == 17
    assert len(found["messages"][0]["properties"]["subject"]) == 60_000
    (last,) = (await one.body("BROWSE", "queue", name="large", offset=30))["messages"]
    assert last["truncated"] and "properties" not in last and last["body"] == b"0"


@here
async def test_one_message_by_its_offset(one: Asking) -> None:
    """Shown also while somebody holds it; deleted only while nobody does."""
    at = one.at
    await at.post("q", b"0", b"1", b"2")
    await at.receiver("q", 1)
    at.take()
    shown = {each: (await one.body("READ-MESSAGE", "queue", name="q", offset=each)) for each in range(3)}
    assert [shown[each]["state"] for each in range(3)] == ["held", "available", "available"]
    assert [shown[each]["body"] for each in range(3)] == [b"0", b"1", b"2"]
    assert await one.body("DELETE-MESSAGE", "queue", name="q", offset=1) == {}
    for operation, offset in (("DELETE-MESSAGE", 0), ("DELETE-MESSAGE", 1), ("READ-MESSAGE", 1)):
        assert (await one.refused(operation, "queue", name="q", offset=offset))[0] == 404
    status, why = await one.refused("READ-MESSAGE", "queue", name="q")
    assert status == 400 and "offset: expected a number" in why
    assert at.queue().message_count == 2 and await at.left("q") == [b"2"]


@here
async def test_dead_letters_go_back_in_groups(one: Asking) -> None:
    """`count` in each request; what is stray stays, and is passed."""
    at = one.at
    await at.post("gone", b"1", b"2")
    await at.post("graves", b"stray")
    receiver = await at.receiver("gone", 2)
    receiver.settle(at.take(), Rejected())
    receiver.detach()
    await at.rest()
    assert await one.body("REDRIVE", "queue", name="graves", count=2) == done(1, 2, 3)
    assert await one.body("REDRIVE", "queue", name="graves", offset=2) == done(1, 3, 3)
    assert await at.left("gone") == [b"1", b"2"] and await at.left("graves") == [b"stray"]


@here
async def test_the_journal_tells_what_was_done(one: Asking) -> None:
    """Nothing that is gone waits in a replay, and what came elsewhere does."""
    at = one.at
    await at.post("told", *[b"%d" % each for each in range(6)])
    await one.body("PURGE", "queue", name="told", count=1)
    await at.post("kept", b"k")
    await one.body("MOVE", "queue", name="told", to="kept", count=2)
    await one.body("COPY", "queue", name="told", to="kept", count=1)
    await one.body("DELETE-MESSAGE", "queue", name="told", offset=5)
    told = replay(await at.broker.half_messages.events(0, 1_000))
    assert told.problems == [] and told.offsets("told") == [3, 4] and told.offsets("kept") == [0, 1, 2, 3]


@pytest.mark.interpreted
@here
async def test_what_is_expired_is_not_moved(one: Asking) -> None:
    """It has an end of its own, at the dead letters."""
    at = one.at
    await at.post("a", b"1", ttl=1_000)
    await at.post("b", b"first")
    clock = at.broker.clock
    later = clock.now_ms() + 2_000
    with patch.object(clock, "now_ms", lambda: later):
        assert (await one.body("MOVE", "queue", name="a", to="b"))["messages"] == 0
        assert (await one.body("PURGE", "queue", name="a"))["messages"] == 0
    assert at.queue("b").message_count == 1


@here
async def test_it_is_asked_through_the_anonymous_terminus_too(one: Asking) -> None:
    """Requests on one link are answered in their order."""
    at = one.at
    await at.post("q", b"1", b"2")
    relay = await at.sender(None, "relay")
    for offset, operation in enumerate(("DELETE-MESSAGE", "PURGE", "READ")):
        relay.send([Sendable(encode_message(
            properties=Properties(to="$management", reply_to="replies", message_id=operation),
            application_properties={"operation": operation, "type": "queue", "name": "q", "offset": offset},
        ))])  # fmt: skip
    await at.settle()
    replies = [Message(each.payload) for each in at.take()]
    ids = [each.properties and each.properties.correlation_id for each in replies]
    assert ids == ["DELETE-MESSAGE", "PURGE", "READ"]
    bodies = [plain_value(each.body_sections()[0].value) for each in replies]
    assert (bodies[0], bodies[1]["messages"], bodies[2]["messages"]) == ({}, 1, 0)


# The end of a queue


@here
async def test_an_unused_queue_is_deleted(one: Asking) -> None:
    """204; then there is none, and a link makes another one."""
    await one.at.post("q", b"1")
    await one.body("PURGE", "queue", name="q")
    assert (await one.ask("DELETE", "queue", name="q"))[0] == 204
    assert (await one.refused("READ", "queue", name="q"))[0] == 404
    assert (await one.at.post("q", b"2")).message_count == 1


@here
async def test_a_queue_that_is_used_stays(one: Asking) -> None:
    """With messages, links, or what a transaction has posted; each is told, and nothing is changed."""
    at = one.at
    await at.post("q", b"1")
    status, why = await one.refused("DELETE", "queue", name="q")
    assert status == 409 and "1 messages" in why
    await at.receiver("empty", 0, "looks")
    status, why = await one.refused("DELETE", "queue", name="empty")
    assert status == 409 and "1 links" in why
    control = Control(at)
    link = await at.sender("later", "posts")
    txn_id = await control.declare()
    await posted(at, link, txn_id, b"2")
    link.detach()
    await at.settle()
    status, why = await one.refused("DELETE", "queue", name="later")
    assert status == 409 and "1 messages of transactions" in why
    await control.commit(txn_id)
    assert await at.left("later") == [b"2"]
    for name, words in (("kept", "retains"), ("graves", "dead letters"), ("dead-letters", "dead letters")):
        await one.ask("CREATE", "queue", name=name)
        status, why = await one.refused("DELETE", "queue", name=name, force=True)
        assert status == 409 and words in why
    assert (await one.refused("DELETE", "queue", name="q", force="yes"))[0] == 400


@here
async def test_by_force_links_end_and_transactions_cannot_commit(one: Asking) -> None:
    """What is in it is gone with it; nothing else is."""
    at = one.at
    await at.post("q", b"1", b"2")
    await at.post("other", b"3")
    receiver = await at.receiver("q", 1)
    control = Control(at)
    link = await at.sender("q", "posts")
    both = await at.sender("other", "posts there")
    txn_id = await control.declare()
    await posted(at, link, txn_id, b"4")
    await posted(at, both, txn_id, b"5")
    assert (await one.ask("DELETE", "queue", name="q", force=True))[0] == 204
    ended = {gone.link.name: gone.error.condition for gone in at.detached if gone.error is not None}
    assert ended == {"down": "amqp:resource-deleted", "posts": "amqp:resource-deleted"}
    refused = await control.discharge(txn_id)
    assert refused.error.condition == "amqp:transaction:rollback"
    assert await at.left("other") == [b"3"] and not receiver.attached
    assert at.broker.nodes.queues.find("q") is None


@here
async def test_a_dynamic_queue_is_deleted_too(one: Asking) -> None:
    """Its link ends; that is no second end of the queue."""
    at = one.at
    link = await at.receiver(Source(dynamic=True), 10, "mine")
    name = link.source.address
    assert (await one.refused("DELETE", "queue", name=name))[0] == 409
    assert (await one.ask("DELETE", "queue", name=name, force=True))[0] == 204
    assert at.condition() == "amqp:resource-deleted" and not link.attached
    assert (await one.refused("READ", "queue", name=name))[0] == 404


@asks(attrs.evolve(CONFIG, bindings=(BindingConfig(topic="news", queue="all"),)))
async def test_a_bound_queue_stays(one: Asking) -> None:
    """What is sent to the topic has to go there."""
    status, why = await one.refused("DELETE", "queue", name="all", force=True)
    assert status == 409 and "[[binding]]" in why


# Over a restart


def on_disk(tmp_path: Path, **changes: Any) -> Any:
    """The same with a store on disk, and a window of four messages."""
    changes = {"limits": LITTLE, **changes}
    return attrs.evolve(CONFIG, memory=False, data_dir=str(tmp_path / "data"), **changes)


def runs(tmp_path: Path, *mains: Callable[[Asking], Any]) -> None:
    """Run each with the same store, one broker after the other."""
    for main in mains:

        async def run(at: Served, main: Callable[[Asking], Any] = main) -> None:
            await main(await asking(at))

        by_hand(run, on_disk(tmp_path))


async def in_groups(one: Asking, operation: str, **told: Any) -> int:
    """Ask until the end that the queue had."""
    offset, end, messages = 0, 1, 0
    while offset < end:
        reply = await one.body(operation, "queue", offset=offset, **told)
        end = end if offset else reply["end_offset"]
        offset, messages = reply["next_offset"], messages + reply["messages"]
    return messages


def test_what_is_on_disk_only(tmp_path: Path) -> None:
    """Purged, moved and browsed where it is; what is not durable comes in its place; all is so after a
    restart.
    """

    async def before(one: Asking) -> None:
        await number(one.at, "q", 12)
        await one.at.post("q", b"volatile", durable=False)
        await number(one.at, "q", 3)

    async def work(one: Asking) -> None:
        at = one.at
        await number(at, "q", 3)
        found = await one.body("BROWSE", "queue", name="q")
        assert [each["offset"] for each in found["messages"]] == [*range(12), *range(13, 19)]
        assert await in_groups(one, "PURGE", name="q", selector="number > 8") == 3
        await one.ask("CREATE", "queue", name="b")
        assert await in_groups(one, "MOVE", name="q", to="b", selector=EVENS) == 7
        assert await in_groups(one, "COPY", name="q", to="b", count=1) == 8
        queue = at.queue()
        assert queue.message_count == 8 and not queue.backlog.ahead

    async def after(one: Asking) -> None:
        left = [b"1", b"3", b"5", b"6", b"7", b"8", b"1", b"1"]
        assert await one.at.left("q") == left
        assert await one.at.left("b") == [b"0", b"2", b"4", b"0", b"2", b"0", b"2", *left]
        queue = one.at.queue()
        assert (queue.message_count, queue.backlog.available()) == (8, 8)
        receiver = await one.at.receiver("q", 20)
        receiver.settle(one.at.take(), Accepted())
        await one.at.settle()
        assert queue.message_count == 0 and queue.byte_count == 0

    runs(tmp_path, before, work, after)


def test_what_is_on_disk_beside_what_is_not(tmp_path: Path) -> None:
    """What only memory has comes in its place; what a consumer took ahead is left alone, and seen once when
    it is back.
    """

    async def main(one: Asking) -> None:
        at = one.at
        await number(at, "q", 12)
        await at.post("q", b"volatile", durable=False)
        await number(at, "q", 2)
        receiver = await at.receiver(Source(address="q", filter=selector("number = 10 OR number = 8")), 2)
        held = at.take()
        assert sorted(bytes(Message(each.payload).body_sections()[0].value) for each in held) == [b"10", b"8"]

        async def offsets() -> list[int]:
            found: list[int] = []
            offset, end = 0, 1
            while offset < end:
                page = await one.body("BROWSE", "queue", name="q", body_bytes=0, offset=offset)
                found += [each["offset"] for each in page["messages"]]
                offset, end = page["next_offset"], page["end_offset"]
            return found

        assert await offsets() == [*range(8), 9, *range(11, 15)]
        assert await in_groups(one, "PURGE", name="q", selector="number = 8") == 0
        receiver.settle(held[:1], Released())
        receiver.flow(0)
        receiver.detach()
        await at.settle()
        assert await offsets() == [*range(15)]
        assert await in_groups(one, "PURGE", name="q", selector="number > 7") == 4
        assert await in_groups(one, "COPY", name="q", to="replies", count=1) == 11
        at.take()
        assert await in_groups(one, "PURGE", name="q") == 11 and at.queue().message_count == 0
        assert at.queue().byte_count == 0 and at.queue().cached_bytes == 0

    runs(tmp_path, main)


def test_a_deleted_queue_is_gone_after_a_restart(tmp_path: Path) -> None:
    """With its messages, those of a consumer, too; another one of its name has nothing of it."""

    async def before(one: Asking) -> None:
        await number(one.at, "q", 12)
        await one.at.receiver("q", 2)
        assert (await one.ask("DELETE", "queue", name="q", force=True))[0] == 204
        await one.ask("CREATE", "queue", name="other")

    async def after(one: Asking) -> None:
        assert one.at.broker.nodes.queues.find("q") is None
        assert await one.at.left("q") == []

    runs(tmp_path, before, after)


@pytest.mark.parametrize("operation", ["MOVE", "COPY", "PURGE", "REDRIVE"])
def test_a_crash_does_a_group_wholly_or_not_at_all(tmp_path: Path, operation: str) -> None:
    """The broker ends at a commit: exactly once, here or there."""
    for happened in (False, True):
        folder = tmp_path / str(happened)
        faults = ScriptedFaults()

        async def work(at: Served, faults: ScriptedFaults = faults, happened: bool = happened) -> None:
            one = await asking(at)
            await number(at, "a", 3)
            await at.post("b", b"first")
            faults.fail_commit(happened=happened)
            one.send({"operation": operation, "type": "queue", "name": "a", "to": "b"})
            await at.rest()

        async def look(at: Served, happened: bool = happened) -> None:
            moved = happened and operation in ("MOVE", "COPY")
            left = happened and operation in ("MOVE", "PURGE")
            assert await at.left("a") == ([] if left else [b"0", b"1", b"2"])
            assert await at.left("b") == ([b"first", b"0", b"1", b"2"] if moved else [b"first"])

        if operation == "REDRIVE":  # nothing to store: none of them is a dead letter
            by_hand(work, on_disk(folder))
        else:
            with pytest.raises(StoreFailed, match="scripted"):
                by_hand(work, on_disk(folder), faults)
        by_hand(look, on_disk(folder))


@here
async def test_a_fault_in_the_move_loses_nothing(one: Asking) -> None:
    """They are available again, in their places, and the asker's connection is told."""
    at = one.at
    await number(at, "a", 3)
    await at.post("b", b"first")

    prepare = Moved.prepare

    def fail(moved: Moved, now_ms: int) -> Any:
        prepare(moved, now_ms)
        raise ValueError("a fault")

    with patch.object(Moved, "prepare", fail):
        one.send({"operation": "MOVE", "type": "queue", "name": "a", "to": "b"})
        await at.rest()
    queue = at.queue("b")
    assert at.queue("a").backlog.available() == 3
    assert (queue.message_count, queue.pending_posts, queue.reserved_messages) == (1, 0, 0)
    assert at.queue("replies").reserved_messages == 0


@here
async def test_a_deletion_that_was_not_stored_is_no_success(one: Asking) -> None:
    """The queue may be there again after a restart, and who asked is told."""
    await one.at.post("q", b"1")
    await one.body("PURGE", "queue", name="q")
    with patch.object(Removal, "prepare", side_effect=ValueError("a fault")):
        status, why, *_ = await one.ask("DELETE", "queue", name="q")
    assert status == 500 and "after a restart" in why
