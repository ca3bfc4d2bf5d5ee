"""A link that sends to a queue, without a socket: runs, answers, credit, its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio.testing

from amqp_broker.authorisation import Principal
from amqp_broker.configuration import AT_START, STRICT, QueuePolicy
from amqp_broker.frames import Accepted, Error, Source, Target, TransactionalState
from amqp_broker.frames.hot_frames import Delivery
from amqp_broker.links import ReceiverLink, SenderLink
from amqp_broker.nodes.queue_sink import QueueSink
from amqp_broker.operations.posting import TOGETHER_BYTES, Posting, Postings
from amqp_broker.persistence import Record, StoreFull
from amqp_broker.persistence.questions import EventsFrom
from amqp_broker.testing import ScriptedFaults, memory_config
from tests.links.pair import Message
from tests.support.by_hand import Served, at_hand, by_hand, commits_held, text
from tests.support.jumping_broker import on_disk


@at_hand()
async def test_a_run_is_one_posting_and_one_answer(at: Served) -> None:
    """What came in one read is stored together, accepted together, and in the queue in its order."""
    sender = await at.sender("q")
    sink = at.context("up")
    assert isinstance(sink, QueueSink) and sink.queue.name == "q"
    sender.send([text(b"%d" % number) for number in range(5)])
    await at.settle()
    assert at.conditions == ["accepted"] * 5
    assert at.answers == [5]
    assert [record.offset for record in sink.queue.backlog.take(9)] == [0, 1, 2, 3, 4]


@at_hand()
async def test_links_that_take_turns_are_stored_and_told_together(at: Served) -> None:
    """One run for each link and read; each queue has its messages in order."""
    senders = [await at.sender(f"q{i}", f"up{i}") for i in range(3)]
    for number in range(12):
        senders[number % 3].send([text(b"%d" % number)])
    await at.settle()
    assert all(at.context(f"up{i}").link.apart for i in range(3))
    assert at.conditions == ["accepted"] * 12
    assert [await at.left(f"q{i}", f"down{i}") for i in range(3)] == [
        [b"%d" % number for number in range(i, 12, 3)] for i in range(3)
    ]


@pytest.mark.interpreted
@at_hand()
async def test_what_a_read_brings_for_many_queues_is_one_operation(
    at: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer is given it once, at one time; what memory keeps of it is what its postings keep."""
    senders = [await at.sender(f"q{i}", f"up{i}") for i in range(3)]
    writer = at.broker.nodes.writer
    collect, given = writer.collect, list[Any]()

    def seen(operation: Any, *, heavy: bool = False) -> None:
        given.append(operation)
        collect(operation, heavy=heavy)

    monkeypatch.setattr(writer, "collect", seen)
    for number in range(12):
        senders[number % 3].send([text(b"%d" % number)])
    await at.settle()
    (operation,) = given
    assert isinstance(operation, Postings) and at.conditions == ["accepted"] * 12
    assert operation.kept_bytes() == sum(part.kept_bytes() for part in operation.parts())
    assert len({record.enqueued_at_ms for part in operation.operations for record in part.records}) == 1
    given.clear()
    for number in range(9):
        senders[number % 3].send([text(b"x" * 25_000)])
    await at.settle()
    assert sum(part.size_bytes for each in given for part in each.parts()) >= 9 * 25_000
    assert all(each.kept_bytes() < 2 * TOGETHER_BYTES for each in given), "what is kept is soon counted"


def test_what_many_queues_get_is_stored_apart_where_it_is_refused_as_a_whole() -> None:
    """Each queue for itself: what the store takes of it is accepted, in order."""
    faults = ScriptedFaults()

    async def main(at: Served) -> None:
        senders = [await at.sender(f"q{i}", f"up{i}") for i in range(3)]
        faults.refuse_commit(1)
        for number in range(6):
            senders[number % 3].send([text(b"%d" % number)])
        await at.settle()
        assert at.conditions == ["accepted"] * 6
        found = [await at.left(f"q{i}", f"down{i}") for i in range(3)]
        assert found == [[b"0", b"3"], [b"1", b"4"], [b"2", b"5"]]

    by_hand(main, faults=faults)


@at_hand()
async def test_what_follows_a_transaction_in_a_read_of_many_queues_comes_behind_it(at: Served) -> None:
    """A run that names an unknown transaction ends its link alone; those before and behind it are stored."""
    senders = [await at.sender(f"q{i}", f"up{i}") for i in range(3)]
    senders[0].send([text(b"before")])
    senders[1].send_in([text(b"lost")], TransactionalState(txn_id=b"none"))
    senders[2].send([text(b"behind")])
    await at.settle()
    assert at.condition() == "amqp:transaction:unknown-id"
    assert [at.queue(f"q{i}").message_count for i in range(3)] == [1, 0, 1]


@at_hand(memory_config(queue_policies=(QueuePolicy(pattern="told.*", events=True),)))
async def test_the_journal_tells_of_queues_in_the_order_of_the_connection(at: Served) -> None:
    """An event for each message, where it stands: reads put nothing together."""
    senders = [await at.sender(f"told.{i}", f"up{i}") for i in range(2)]
    for number in range(6):
        senders[number % 2].send([text(b"%d" % number)])
    await at.settle()
    events = await at.broker.writer.ask(lambda store: store.ask(EventsFrom(1, 100)))
    assert [each.fields["address"] for each in events if each.kind == "put"] == ["told.0", "told.1"] * 3


@at_hand()
async def test_links_to_one_queue_keep_the_order_of_the_connection(at: Served) -> None:
    """A program that sends on two links finds its messages in the order in which it sent them, also where
    others come between, and after the first of the two was attached again.
    """
    senders = [await at.sender(address, f"up{i}") for i, address in enumerate(("q", "q", "other"))]
    turns = (0, 1, 2, 0, 1, 0, 2, 1, 1, 0)
    for again in range(2):
        for number, turn in enumerate(turns):
            senders[turn].send([text(b"%d" % number)])
        await at.settle()
        wanted = [b"%d" % number for number, turn in enumerate(turns) if turn < 2]
        assert await at.left("q", f"reads{again}") == wanted * (again + 1)
        senders[0].detach()
        await at.settle()
        senders[0] = await at.sender("q", "up0")


@at_hand(memory_config(queue_policies=(QueuePolicy(pattern="q", max_messages=2),)))
async def test_a_full_queue_takes_the_credit_and_gives_it_back(at: Served) -> None:
    """The bound of a queue reaches its senders in the protocol's own words, and so does room."""
    sender = await at.sender("q")
    sink = at.context("up")
    sender.send([text(b"a"), text(b"b")])
    await at.settle()
    assert (sink.blocked, sink.queue.blocked, sender.credit) == (True, [sink], 0)
    late = await at.sender("q", "late")
    assert (at.context("late").blocked, late.credit) == (True, 0)
    sink.queue.retire(sink.queue.backlog.take(2))
    at.broker.nodes.drained(sink.queue)
    await at.settle()
    assert (sink.blocked, sink.queue.blocked) == (False, [])
    assert sender.credit > 0 and late.credit > 0


@at_hand()
async def test_an_unknown_transaction_ends_the_link_and_stores_nothing(at: Served) -> None:
    """4.4.1: work that names no live transaction is done outside of none."""
    sender = await at.sender("q")
    queue = at.context("up").queue
    sender.send_in([text(b"lost")], TransactionalState(txn_id=b"none"))
    await at.settle()
    assert at.condition() == "amqp:transaction:unknown-id"
    assert queue.message_count == 0


@at_hand()
async def test_who_sent_settled_learns_of_a_full_store_by_the_end_of_the_link(at: Served) -> None:
    """A refusal that nobody would hear detaches; whoever listens is told each one."""
    sender = at.attach_sender("q", snd_settle_mode=1)
    await at.sender("q", "listens")
    sink, listens = at.context("up"), at.context("listens")
    assert sender.send([text(b"x")]) == 1
    await at.settle()
    full = Error(condition="amqp:resource-limit-exceeded", description="full")
    sink.refuse([Delivery(0, b"t", 0, True, b"", None, 0, False)], full)
    await at.settle()
    assert sink.ended and not sink.attached
    listens.refuse([Delivery(0, b"t", 0, False, b"", None, 0, False)], full)
    assert not listens.ended and listens.attached


@pytest.mark.parametrize("received", [False, True])
@at_hand()
async def test_a_temporary_queue_goes_with_its_link(at: Served, received: bool) -> None:
    """3.5.10: links of others to it end with amqp:resource-deleted, and what comes with the detach of its
    owner in one read is not accepted.
    """
    owner: SenderLink | ReceiverLink
    if received:
        owner = await at.receiver(Source(dynamic=True), 0)
        address = owner.source.address
    else:
        owner = await at.sender(Target(dynamic=True), "owner")
        address = owner.target.address
    sender = await at.sender(address)
    owner.detach()
    sender.send([text(b"x")])
    await at.settle()
    assert at.condition() == "amqp:resource-deleted"
    assert Accepted() not in at.outcomes
    assert at.broker.nodes.queues.queues() == []


@at_hand()
async def test_a_link_that_ends_in_the_midst_of_a_read_ends_alone(at: Served) -> None:
    """A settled message with malformed sections: its link is detached, what came before it is kept, and the
    attach behind it in the same read is answered.
    """
    sender = await at.sender("behind")
    sender.send([text(b"0"), text(b"1"), Message(b"\x00\x53\x75\xa0\xffshort")], settled=True)
    late = at.attach_sender("behind", "late")
    await at.settle()
    assert at.condition() == "amqp:decode-error"
    assert late.attached and [link.name for link in at.connection.links] == ["late"]
    assert await at.left("behind") == [b"0", b"1"]


# The making of a queue


def test_a_queue_is_made_although_the_one_who_asked_is_gone() -> None:
    """A connection that dies while its queue is being stored leaves a queue that others can use."""
    faults = ScriptedFaults()

    async def main(at: Served) -> None:
        with commits_held(at, faults):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(at.broker.nodes.queues.create, "orphan")
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
        await at.rest()
        await at.post("orphan", b"x")
        assert await at.left("orphan") == [b"x"]

    by_hand(main, faults=faults)


def test_a_queue_that_the_disk_has_no_room_for_is_refused_at_its_link() -> None:
    """A full disk refuses the link with amqp:resource-limit-exceeded; the connection goes on."""
    faults = ScriptedFaults()

    async def main(at: Served) -> None:
        faults.refuse_commit(1)
        await at.sender("no-room")
        (gone,) = at.detached
        assert gone.error is not None and StoreFull.__name__ not in (gone.error.description or "")
        assert at.condition() == "amqp:resource-limit-exceeded"
        await at.post("no-room", b"x")

    by_hand(main, faults=faults)


def test_queues_made_at_the_start_survive_a_restart(tmp_path: Path) -> None:
    """A queue of the configuration is made once; the next start finds it with its messages."""
    policies = (QueuePolicy(pattern="early", create=AT_START), QueuePolicy(pattern="**", create=STRICT))

    async def post(at: Served) -> None:
        await at.post("early", b"kept")

    async def look(at: Served) -> None:
        assert len(at.broker.nodes.queues.queues()) == 1
        assert await at.left("early") == [b"kept"]

    for main in (post, look, look):
        by_hand(main, on_disk(tmp_path, queue_policies=policies))


@at_hand()
async def test_a_container_id_gives_no_right_to_the_links_of_others(at: Served) -> None:
    """Links are stolen among connections of one user only: the container-id is what a peer claims."""
    claims, same = at.another("client"), at.another("client")
    claims.connection.principal = Principal("bob", "PLAIN")
    await at.receiver("q", 1)
    await claims.receiver("q", 1)
    assert not at.detached
    await same.receiver("q", 1)
    assert at.condition() == "amqp:link:stolen" and not claims.detached


@at_hand()
async def test_the_parts_of_a_posting_count_for_who_sent_it(at: Served) -> None:
    """A run of which the store has room for some messages only: what memory keeps of each is the sender's."""
    sender = await at.sender("q")
    mine = at.connection.account
    records = [Record(0, b"x", durable=False) for _ in range(2)]
    queue = at.context("up").queue
    deliveries = [Delivery(number, b"t", 0, False, b"x", None, 0, False) for number in range(2)]
    posting = Posting(
        at.broker.nodes, queue, records, at.connection.origin, at.context("up"), deliveries, account=mine
    )
    parts: list[Any] = [*posting.parts()]
    assert [part.account for part in parts] == [mine, mine]
    for part in parts:
        part.end()
    assert sender.credit > 0 and queue.pending_posts == 0
