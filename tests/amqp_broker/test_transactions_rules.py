"""Rules of transactions that no peer alone can see: commits, crashes, restarts, full disks.

Their bounds are in test_transactions_bounds.py; what a peer can see is shown by the conformance scenarios of
part 4. The seeded faults of tests/mutants say which of them notices when a rule is broken.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from amqp_broker.frames import (
    Accepted,
    AmqpValue,
    Discharge,
    Message,
    Modified,
    Rejected,
    Released,
    Symbol,
    encode_message,
)
from amqp_broker.links import ReceiverLink
from amqp_broker.persistence import DeleteNode, DischargedAt, StoreFailed, StoreFull
from amqp_broker.testing import ScriptedFaults
from tests.links.pair import Message as Sendable
from tests.support.by_hand import (
    Control,
    Served,
    at_hand,
    by_hand,
    commits_held,
    condition_of,
    posted,
    within,
)
from tests.support.jumping_broker import on_disk

ROLLBACK = "amqp:transaction:rollback"
TRIED = Modified(delivery_failed=True, message_annotations={"x-opt-tried": True})


async def was_committed(at: Served, txn_id: bytes) -> bool:
    """Whether the store has the record of its discharge."""
    return await at.broker.writer.ask(DischargedAt(txn_id)) is not None


async def acquired(at: Served, link: ReceiverLink, txn_id: bytes, count: int = 1) -> list[Message]:
    """Messages that come for a flow which names the transaction; they are in `received`."""
    at.received.clear()
    link.flow(count, properties={"txn-id": txn_id})
    await at.settle()
    return [Message(each.payload) for each in at.received]


def test_a_discharge_is_accepted_after_the_commit_only() -> None:
    """Durability: while the commit is under way there is no answer, and nobody sees the messages."""
    faults = ScriptedFaults()

    async def main(at: Served) -> None:
        rival, control, sender = at.another("rival"), Control(at), await at.sender("q")
        await rival.receiver("q", 10)
        txn_id = await control.declare()
        await posted(at, sender, txn_id, b"1", b"2")
        with commits_held(at, faults):
            control.link.send([Sendable(encode_message(body=AmqpValue(Discharge(txn_id=txn_id))))])
            await at.settle()
            assert not at.outcomes and not rival.received
            (live,) = at.broker.transactions()
            assert live.state == "DISCHARGING"
        await at.settle()
        assert at.outcomes == [Accepted()]
        assert rival.bodies() == [b"1", b"2"]

    by_hand(main, faults=faults)


def test_everything_of_a_discharge_is_one_commit() -> None:
    """Row "half messages, ...": posts to two queues, what two others lose and get back, and the record of the
    discharge.
    """
    faults = ScriptedFaults()

    async def main(at: Served) -> None:
        await at.post("in", b"1", b"2", b"3")
        await at.post("more", b"4")
        control, receiver = Control(at), await at.receiver("in", 3)
        acquiring = await at.receiver("more", 0, "acquires")
        first, second, third = at.take()
        txn_id = await control.declare()
        await acquired(at, acquiring, txn_id)
        await posted(at, await at.sender("a", "a"), txn_id, b"a1", b"a2")
        await posted(at, await at.sender("b", "b"), txn_id, b"b1")
        receiver.dispose([first], within(txn_id, Accepted()), False)
        receiver.dispose([second], within(txn_id, Modified(delivery_failed=True)), True)
        receiver.dispose([third], within(txn_id, Rejected()), True)
        acquiring.dispose(at.take(), within(txn_id, Accepted()), False)
        receiver.set_credit(0)
        await at.rest()
        before = faults.commits
        await control.commit(txn_id)
        await at.rest()
        assert faults.commits == before + 1
        left = {name: await at.left(name) for name in ("in", "more", "a", "b")}
        assert left == {"in": [b"2"], "more": [], "a": [b"a1", b"a2"], "b": [b"b1"]}

    by_hand(main, faults=faults)


@pytest.mark.parametrize("moment", ["before", "after", "answered"])
def test_after_a_crash_all_of_it_is_there_or_nothing(moment: str, tmp_path: Path) -> None:
    """Durability: a crash before the COMMIT leaves nothing of the transaction, one after it all of it,
    whether the answer was sent or not; the record of the discharge says which.
    """
    faults, told = ScriptedFaults(), list[bytes]()

    async def work(at: Served) -> None:
        await at.post("in", b"1", b"2", b"3", b"4")
        control, receiver = Control(at), await at.receiver("in", 4)
        txn_id = await control.declare()
        told.append(txn_id)
        await posted(at, await at.sender("a", "a"), txn_id, b"a1")
        await posted(at, await at.sender("b", "b"), txn_id, b"b1", b"b2")
        for delivery, outcome in zip(at.take(), (Accepted(), TRIED, Rejected(), Released()), strict=True):
            receiver.dispose([delivery], within(txn_id, outcome), False)
        await at.rest()
        if moment != "answered":
            faults.fail_commit(happened=moment == "after")
        await control.commit(txn_id)

    async def look(at: Served) -> None:
        await at.receiver("in", 10)
        found = [Message(delivery.payload) for delivery in at.received]
        annotations = [one.message_annotations or {} for one in found]
        counts = [one.header.delivery_count for one in found]
        tried = {Symbol("x-opt-tried"): True}
        happened = moment != "before"
        assert (counts, annotations) == (([1, 0], [tried, {}]) if happened else ([0] * 4, [{}] * 4))
        for name, bodies in (("a", [b"a1"]), ("b", [b"b1", b"b2"])):
            assert await at.left(name, f"reads {name}") == (bodies if happened else [])
        assert await was_committed(at, *told) is happened

    with nullcontext() if moment == "answered" else pytest.raises(StoreFailed, match="scripted"):
        by_hand(work, on_disk(tmp_path), faults)
    by_hand(look, on_disk(tmp_path))


def test_what_was_sent_settled_is_there_until_its_commit(tmp_path: Path) -> None:
    """4.4.4.3: acquired by settled transfers, messages are counted and stored until the discharge; a rollback
    and a restart find them.
    """
    for end in ("roll back", "restart", "commit"):

        async def main(at: Served, end: str = end) -> None:
            if end == "roll back":
                await at.post("q", b"1", b"2")
            control, receiver = Control(at), await at.receiver("q", snd_settle_mode=1)
            txn_id = await control.declare()
            await acquired(at, receiver, txn_id, 2)
            assert at.bodies() == [b"1", b"2"] and all(one.settled for one in at.received)
            await at.rest()
            assert at.queue().message_count == 2
            if end == "roll back":
                await control.roll_back(txn_id)
                assert at.queue().message_count == 2
            elif end == "commit":
                await control.commit(txn_id)
                assert (at.queue().message_count, at.queue().byte_count) == (0, 0)

        by_hand(main, on_disk(tmp_path))

    async def nothing(at: Served) -> None:
        assert await at.left("q") == []

    by_hand(nothing, on_disk(tmp_path))


class FullDisk(ScriptedFaults):
    """While `full`, every commit finds the disk full."""

    full = False

    def before_commit(self) -> tuple[bool, Exception | None]:
        """(whether the commit is to happen, what to raise after it)."""
        if self.full:
            return False, StoreFull("scripted: the disk is full")
        return super().before_commit()


def test_a_full_disk_at_the_commit_rolls_back_and_the_broker_goes_on(tmp_path: Path) -> None:
    """Durability: rejected with amqp:transaction:rollback, everything undone in memory too; the same work can
    be committed later, and a restart finds it as it was told.
    """
    faults = FullDisk()
    expected = [b"0", b"a", b"b", b"c"]

    async def work(at: Served) -> None:
        await at.post("in", b"1", b"2")
        await at.post("out", b"0")
        control, sender, receiver = Control(at), await at.sender("out"), await at.receiver("in", 1)
        acquiring = await at.receiver("in", 0, "acquires")
        first = at.take()
        receiver.set_credit(0)
        for full in (True, False):
            txn_id = await control.declare()
            await acquired(at, acquiring, txn_id)
            await posted(at, sender, txn_id, b"a", b"b")
            receiver.dispose(first, within(txn_id, Accepted()), False)
            acquiring.dispose(at.take(), within(txn_id, Accepted()), False)
            await at.rest()
            faults.full = full
            answer = await control.discharge(txn_id)
            faults.full = False
            assert condition_of(answer) == (ROLLBACK if full else "accepted")
            if full:
                assert (at.queue("out").message_count, at.queue("in").message_count) == (1, 2)
            assert at.broker.transactions() == []
            assert await was_committed(at, txn_id) is not full
        await at.post("out", b"c")
        assert [record.offset for record in at.queue("out").backlog.peek(0, 100)] == [0, 1, 2, 3]
        await look(at)

    async def look(at: Served) -> None:
        assert await at.left("in") == [] and await at.left("out", "reads out") == expected

    by_hand(work, on_disk(tmp_path), faults)
    by_hand(look, on_disk(tmp_path))


@at_hand()
async def test_a_discharge_that_the_store_refuses_leaves_no_record(at: Served) -> None:
    """The record is part of the unit: who asks later is never told of a commit that did not happen."""
    control, sender = Control(at), await at.sender("q")
    txn_id = await control.declare()
    await posted(at, sender, txn_id, b"1")
    await at.broker.nodes.store_step([DeleteNode(at.queue().queue_id)])
    assert condition_of(await control.discharge(txn_id)) == ROLLBACK
    assert not await was_committed(at, txn_id)


def test_ids_are_never_used_again_in_the_life_of_a_store(tmp_path: Path) -> None:
    """Row "form of the txn-id": also after a restart an id that was told once means nothing else."""
    seen: set[bytes] = set()

    async def main(at: Served) -> None:
        control = Control(at)
        for _ in range(20):
            txn_id = await control.declare()
            assert len(txn_id) == 16 and txn_id not in seen
            assert not await was_committed(at, txn_id)
            seen.add(txn_id)
            await control.commit(txn_id)

    for _ in range(3):
        by_hand(main, on_disk(tmp_path))
