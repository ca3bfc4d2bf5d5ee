"""Transactions: what no peer alone can see of them; what it can, the scenarios of part 4 show."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerLimits, QueuePolicy
from amqp_broker.connection_task import ConnectionTask
from amqp_broker.embedding import running_broker
from amqp_broker.frames import (
    RECEIVER,
    SENDER,
    Accepted,
    AmqpValue,
    Declare,
    Declared,
    Discharge,
    Disposition,
    Message,
    Modified,
    Properties,
    Rejected,
    Released,
    Source,
    Symbol,
    TransactionalState,
    encode_frame,
    encode_message,
)
from amqp_broker.links import ReceiverLink
from amqp_broker.persistence import DeleteNode, MemoryStore, OutcomesDamaged, Store, StoreFailed, StoreFull
from amqp_broker.persistence.questions import DischargedAt, Question
from amqp_broker.testing import ScriptedFaults, memory_config
from amqp_broker.testing.frame_tap import FrameCutter
from tests.links.pair import Message as Sendable
from tests.support.broker_clients import (
    at_rest,
    bodies,
    body_of,
    counts,
    message,
    receive,
    round_trip,
    send,
    session_to,
)
from tests.support.by_hand import (
    Control,
    Served,
    asked,
    at_hand,
    by_hand,
    commits_held,
    condition_of,
    posted,
    text,
    within,
)
from tests.support.controllers import Controller
from tests.support.jumping_broker import JumpingBroker, on_disk, stopping

CONFIG = memory_config(
    limits=BrokerLimits(max_transactions=3), queue_policies=(QueuePolicy(pattern="small", max_messages=3),)
)
ROLLBACK = "amqp:transaction:rollback"
TOO_MUCH = "amqp:resource-limit-exceeded"


def reserved(at: Served) -> tuple[int, int]:
    """(messages, octets) that open transactions keep in `small`."""
    queue = at.queue("small")
    return queue.reserved_messages, queue.reserved_bytes


@at_hand(CONFIG)
async def test_a_post_keeps_room_until_its_transaction_ends(at: Served) -> None:
    """Capacity is reserved at the post (row "capacity and TTL"): there is no credit beyond it, for nobody,
    what comes without credit is rejected, provisionally in a transaction, and the rest of that can't be
    committed without it.
    """
    other = at.another()
    control, sender = Control(at), await at.sender("small")
    first, second = await control.declare(), await control.declare()
    assert await posted(at, sender, first, b"1", b"2") == [Accepted()] * 2
    assert await posted(at, sender, second, b"3") == [Accepted()]
    late, relay = await other.sender("small"), await other.sender(None, "relay")
    assert (late.credit, sender.credit, reserved(at)[0]) == (0, 0, 3)
    to_small = text(b"5", properties=Properties(to="small"))
    relay.send([to_small])
    await at.settle()
    assert other.conditions == [TOO_MUCH]
    own = await at.sender(None, "relay")
    assert (await posted(at, own, second, b"4", properties=Properties(to="small")))[0].error is not None
    answer = await control.discharge(second)
    assert condition_of(answer) == ROLLBACK
    assert f"on link 'relay': {TOO_MUCH}: queue 'small' is full" in str(answer.error.description)
    await control.commit(first)
    assert reserved(at) == (0, 0) and at.queue("small").message_count == 2
    relay.send([to_small])  # who was refused has his chance first
    await at.settle()
    assert other.conditions[1:] == ["accepted"] and late.credit == sender.credit == 0
    assert await at.left("small") == [b"1", b"2", b"5"]


@at_hand(CONFIG)
async def test_an_administrator_sees_live_transactions_and_rolls_one_back(at: Served) -> None:
    """Age, container and work done; after the forced rollback the controller is told why (4.4)."""
    broker = at.broker
    await at.post("q", b"a")
    control, sender, receiver = Control(at), await at.sender("q"), await at.receiver("q", 10)
    came = at.take()
    txn_id, other = await control.declare(), await control.declare()
    await posted(at, sender, txn_id, b"b", b"c")
    receiver.dispose(came, within(txn_id, Accepted()), False)
    await control.roll_back(other)
    (live,) = broker.transactions()
    assert (live.txn_id, live.container_id, live.state) == (txn_id, "client", "LIVE")
    assert (live.posted, live.retired, live.acquired) == (2, 1, 0)
    assert live.age_s >= 0 and live.timeout_in_s <= 120
    assert broker.roll_back_transaction(txn_id, "no work at night")
    assert not broker.roll_back_transaction(txn_id, "twice")
    assert broker.transactions() == []
    answer = await control.discharge(txn_id)
    assert condition_of(answer) == ROLLBACK and "no work at night" in answer.error.description
    receiver.settle(came, Released())  # a rolled back retirement leaves it acquired
    await at.settle()
    assert at.bodies() == [b"a"]


@at_hand(CONFIG)
async def test_a_browser_that_waits_is_shown_what_was_acquired_at_once(at: Served) -> None:
    """A message that never was available when the browser looked, because a transaction acquired it right
    after its post (row "isolation").
    """
    other = at.another()
    control, receiver = Control(at), await at.receiver("q")
    receiver.flow(5, properties={"txn-id": await control.declare()})
    await other.receiver(Source(address="q", distribution_mode="copy"), 5)
    await other.post("q", b"1")
    assert at.bodies() == other.bodies() == [b"1"]


# Asked by `$transactions`


async def ask(at: Served, correlation_id: object) -> str:
    """The word that another connection is answered with, or what its question is rejected with."""
    other = at.another("asker")
    await other.receiver("replies", 1)
    sender = await other.sender("$transactions")
    properties = Properties(correlation_id=correlation_id, reply_to="replies")
    sender.send([Sendable(encode_message(properties=properties, body=b""))])
    await other.settle()
    if other.conditions != ["accepted"]:
        assert not other.received
        return other.conditions[0]
    (section,) = Message(other.received[0].payload).body_sections()
    return str(section.value)


@at_hand(CONFIG)
async def test_a_damaged_record_of_outcomes_is_no_answer(at: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither committed nor not-committed: the question is rejected, and the broker goes on."""

    def damaged(self: MemoryStore, question: Question[Any]) -> Any:
        assert isinstance(question, DischargedAt)
        raise OutcomesDamaged("page 7")

    with monkeypatch.context() as planted:
        planted.setattr(MemoryStore, "ask", damaged)
        assert (await ask(at, b"some id")).startswith("amqp:internal-error")
    assert await ask(at, b"some id") == "not-committed"


# Ends


@pytest.mark.parametrize("end", ["cut", "session"])
@at_hand(CONFIG)
async def test_what_was_acquired_is_there_once_after_everything_ended_together(at: Served, end: str) -> None:
    """Links that end together, the control link first: its rollback gives the messages back, and the
    receiver's end does not do it again (4.1, 4.4.4).
    """
    await at.post("q", b"1", b"2")
    other, control, receiver = at.another(), Control(at), await at.receiver("q")
    receiver.flow(2, properties={"txn-id": await control.declare()})
    await at.settle()
    assert len(at.received) == 2
    if end == "session":
        at.session.end()
        await at.settle()
    else:
        await at.breaks()
    assert await other.left("q") == [b"1", b"2"]
    assert not at.broker.transactions()


@at_hand(CONFIG)
async def test_a_control_link_that_was_terminated_hears_nothing_more(at: Served) -> None:
    """4.4.2: an outcome in one transaction for what another holds terminates the control link; a discharge
    that was sent behind it commits nothing.
    """
    queue = await at.post("q", b"1")
    control, sender, receiver = Control(at), await at.sender("q"), await at.receiver("q", 1)
    first, second = await control.declare(), await control.declare()
    await posted(at, sender, second, b"2")
    for txn_id in (first, second):
        receiver.dispose(at.received, within(txn_id, Accepted()), False)
    control.link.send([Sendable(encode_message(body=AmqpValue(Discharge(txn_id=second))))])
    await at.settle()
    assert at.condition() == ROLLBACK
    assert queue.message_count == 1 and at.broker.transactions() == []


# Commits, crashes, restarts, full disks


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


def test_transactions_of_one_write_share_a_commit() -> None:
    """Nothing waits that need not: what comes behind it on its link is no reason."""
    with stopping(JumpingBroker()) as broker, session_to(broker) as session:
        sender, controller = session.attach_sender("s", "q"), Controller(session)
        txn_ids = [controller.declare() for _ in range(8)]
        at_rest(broker)
        before = broker.faults.commits
        asked = []
        for txn_id in txn_ids:
            for body in (b"1", b"2", b"3"):
                sender.send(message(body, durable=True), state=TransactionalState(txn_id=txn_id))
            asked.append(controller.ask(Discharge(txn_id=txn_id, fail=False)))
        assert [controller.answer(number) for number in asked] == [Accepted()] * len(txn_ids)
        assert broker.faults.commits == before + 1


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
        for name, posts in (("a", [b"a1"]), ("b", [b"b1", b"b2"])):
            assert await at.left(name, f"reads {name}") == (posts if happened else [])
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


# Bounds: their time, the credit of control links; and what is one write


TIMEOUT = "amqp:transaction:timeout"
UNKNOWN_ID = "amqp:transaction:unknown-id"
TIMEOUT_S = 5.0
SHORT = memory_config(
    limits=BrokerLimits(transaction_timeout_ms=int(TIMEOUT_S * 1_000)),
    queue_policies=(QueuePolicy(pattern="small", max_messages=3),),
)


def test_the_defaults_of_transactions_are_those_of_the_design() -> None:
    """Rows "timeout" and "limits": 120 s, 64 live ones, 10,000 operations, 64 MiB."""
    limits = attrs.asdict(BrokerLimits())
    found = {name: value for name, value in limits.items() if "transaction" in name}
    assert found == {
        "max_transactions": 64,
        "transaction_timeout_ms": 120_000,
        "transaction_operations": 10_000,
        "transaction_bytes": 64 * 1_024 * 1_024,
    }


@pytest.mark.parametrize("frames", [1, 2])
@at_hand()
async def test_what_an_outcome_ends_is_over_for_the_rest_of_its_range(at: Served, frames: int) -> None:
    """In one frame for deliveries of two links as in two: the first is another transaction's, so that the
    control link ends (4.4.2); the second one's then names an unknown transaction.
    """
    await at.post("q", b"1", b"2")
    one, two = Control(at, "one"), Control(at, "two")
    links = [await at.receiver("q", 1, name) for name in ("first", "second")]
    first, second = at.take()
    holding, over = await one.declare(), await two.declare()
    links[0].dispose([first], within(holding, Accepted()), False)
    await at.settle()
    for run in [[first, second]] if frames == 1 else [[first], [second]]:
        low, high = run[0].delivery_id, run[-1].delivery_id
        told = Disposition(role=RECEIVER, first=low, last=high, state=within(over, Accepted()))
        at.session.output.write(encode_frame(at.session.channel, told))
    await at.settle()
    ends = {gone.link.name: gone.error.condition for gone in at.detached if gone.error is not None}
    assert ends == {"two": ROLLBACK, "second": UNKNOWN_ID}
    await one.commit(holding)
    assert at.queue("q").message_count == 1


@pytest.mark.parametrize("how", ["one frame", "one read", "two reads"])
@pytest.mark.parametrize("named", [False, True])
@at_hand()
async def test_what_an_outcome_ends_is_over_for_the_next_one_of_its_link(
    at: Served, named: bool, how: str
) -> None:
    """However they come: the first outcome is for what another transaction holds, and ends the control link;
    the second one is for a delivery that nobody holds by then, or names a transaction that is over.
    """
    await at.post("q", b"1", b"2")
    one, two = Control(at, "one"), Control(at, "two")
    link = await at.receiver("q", 2)
    first, second = at.take()
    holding, over = await one.declare(), await two.declare()
    link.dispose([first] if named else [first, second], within(holding, Modified()), False)
    await at.settle()
    for run in [[first, second]] if how == "one frame" else [[first], [second]]:
        low, high = run[0].delivery_id, run[-1].delivery_id
        state = within(over, Released()) if named else Released()
        told = Disposition(role=RECEIVER, first=low, last=high, state=state)
        at.session.output.write(encode_frame(at.session.channel, told))
        if how == "two reads":
            await at.settle()
    await at.settle()
    ends = {gone.link.name: gone.error.condition for gone in at.detached if gone.error is not None}
    assert ends == ({"two": ROLLBACK, "down": UNKNOWN_ID} if named else {"one": ROLLBACK})
    assert at.queue("q").backlog.available() == 1


# Time


@at_hand(SHORT)
async def test_every_use_after_the_timeout_says_so(at: Served) -> None:
    """Row "timeout": a post, an outcome, a flow end their link with it, a discharge is rejected with it;
    to roll back is accepted (4.3); the connection lives.
    """
    await at.post("q", b"1")
    control, sender = Control(at), await at.sender("out")
    receiver, acquiring = await at.receiver("q", 1), await at.receiver("q", 0, "acquires")
    posting, retiring, flowing, committing, failing = [await control.declare() for _ in range(5)]
    await at.pass_time(1.02 * TIMEOUT_S)
    sender.send_in([text(b"too late")], within(posting))
    await at.settle()
    assert at.condition() == TIMEOUT
    receiver.dispose(at.received, within(retiring, Accepted()), False)
    await at.settle()
    assert at.condition() == TIMEOUT
    acquiring.flow(1, properties={"txn-id": flowing})
    await at.settle()
    assert at.condition() == TIMEOUT
    told = [await control.discharge(committing) for _ in range(2)]
    assert [condition_of(each) for each in told] == [TIMEOUT, UNKNOWN_ID]
    await control.roll_back(failing)
    await control.commit(await control.declare())
    assert (at.queue("out").message_count, at.queue("q").message_count) == (0, 1)


# Size


@pytest.mark.parametrize("work", ["posts", "octets", "outcomes", "settled outcomes", "acquisitions"])
@at_hand(transaction_operations=3, transaction_bytes=2_048, max_message_size_bytes=1_024)
async def test_work_beyond_the_limits_leaves_only_the_rollback(at: Served, work: str) -> None:
    """Row "limits": told at the post, or with the end of the link that acquires; a commit is then answered
    amqp:transaction:rollback, and nothing of the transaction has happened.
    """
    await at.post("q", b"1", b"2", b"3", b"4")
    control, sender, receiver = Control(at), await at.sender("out"), await at.receiver("q")
    txn_id = await control.declare()
    if work in ("posts", "octets"):
        fit, body = (3, b"x") if work == "posts" else (2, b"x" * 900)
        told = [condition_of((await posted(at, sender, txn_id, body))[0]) for _ in range(fit + 1)]
        assert told == ["accepted"] * fit + [TOO_MUCH]
    elif work == "acquisitions":
        receiver.flow(4, properties={"txn-id": txn_id})
        await at.settle()
        assert at.condition() == TOO_MUCH and len(at.received) == 3
    else:
        receiver.flow(4)
        await at.settle()
        for delivery in at.take():
            receiver.dispose([delivery], within(txn_id, Accepted()), work == "settled outcomes")
    assert condition_of(await control.discharge(txn_id)) == ROLLBACK
    assert (at.queue("out").message_count, at.queue("q").message_count) == (0, 4)
    assert at.queue("out").reserved_messages == 0
    await control.commit(await control.declare())


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("bodies", [[b"1", b"2", b"3", b"4"], [b"x" * 900, b"y" * 900, b"z" * 900]])
@pytest.mark.parametrize("mode", [0, 1])
@at_hand(transaction_operations=3, transaction_bytes=2_048, max_message_size_bytes=1_024)
async def test_an_acquisition_beyond_the_limits_is_told_however_the_messages_come(
    at: Served, mode: int, bodies: list[bytes], together: bool
) -> None:
    """Row "limits": a receiver that waits with credit gets what fits, and hears of the first that does not,
    whether the messages came in one read or each in its own.
    """
    control, acquiring = Control(at), await at.receiver("q", 0, snd_settle_mode=mode)
    txn_id = await control.declare()
    acquiring.flow(10, properties={"txn-id": txn_id})
    await at.settle()
    for run in [bodies] if together else [[body] for body in bodies]:
        await at.post("q", *run)
    assert at.condition() == TOO_MUCH and len(at.received) == len(bodies) - 1
    assert condition_of(await control.discharge(txn_id)) == ROLLBACK
    assert at.queue("q").message_count == len(bodies)


def test_a_control_link_keeps_its_credit_while_the_store_is_at_it() -> None:
    """Row "credit of a control link": at least 10, however many discharges wait for the disk."""
    faults = ScriptedFaults()

    async def main(at: Served) -> None:
        control = Control(at)
        requests = [Discharge(txn_id=await control.declare()) for _ in range(20)]
        with commits_held(at, faults):
            assert control.link.credit >= 20
            control.link.send([Sendable(encode_message(body=AmqpValue(each))) for each in requests])
            await at.settle()
            assert control.link.credit >= 10
            assert isinstance(await asked(at, control.link, Declare()), Declared)
            assert not at.outcomes
        await at.settle()
        assert at.outcomes == [Accepted()] * 20

    by_hand(main, faults=faults)


# On the wire


class WatchedStream(trio.abc.Stream):
    """A stream that writes down the performatives of each write."""

    def __init__(self, stream: trio.abc.Stream, writes: list[list[object]]) -> None:
        self._stream = stream
        self._writes = writes
        self._cutter = FrameCutter()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """As the stream."""
        self._writes.append([piece.performative for piece in self._cutter.feed(bytes(data))])
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """As the stream."""
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """As the stream."""
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        """As the stream."""
        await self._stream.aclose()


class Watcher:
    """No fault at all: it only looks at each write of the broker."""

    def __init__(self) -> None:
        self.writes: list[list[object]] = []

    def wrap_store(self, store: Store) -> Store:
        """The store itself."""
        return store

    def wrap_stream(self, stream: trio.abc.Stream) -> trio.abc.Stream:
        """A stream that is looked at."""
        return WatchedStream(stream, self.writes)

    def watch(self, task: ConnectionTask, stream: trio.abc.Stream) -> None:
        """Nothing else of it is looked at."""


@pytest.mark.parametrize("fail", [False, True])
def test_settlements_and_the_answer_are_one_write(fail: bool) -> None:
    """Row "order on the wire": the settlements of the transaction, then its outcome, in one write."""
    watcher = Watcher()
    with running_broker(faults=watcher) as broker, session_to(broker) as session:
        send(session.attach_sender("s", "q"), b"1", b"2", durable=True)
        controller, receiver = Controller(session), session.attach_receiver("r", "q")
        txn_id = controller.declare()
        receiver.flow(2, txn_id=txn_id)
        state = TransactionalState(txn_id=txn_id, outcome=Accepted())
        receiver.settle(receive(receiver, 2), state, settled=False)
        round_trip(session)
        at_rest(broker)
        watcher.writes.clear()
        assert isinstance(controller.discharge(txn_id, fail=fail), Accepted)
        dispositions = [[one for one in write if isinstance(one, Disposition)] for write in watcher.writes]
        assert [[one.role for one in write] for write in dispositions if write] == [[SENDER, RECEIVER]]


@pytest.mark.parametrize("settled", [False, True])
def test_what_is_half_sent_is_aborted_before_a_failed_discharge_is_answered(settled: bool) -> None:
    """4.4.3: "the resource MUST abort or complete the sending the remainder of the message before completing
    the discharge"; while the session's window is closed the answer waits.
    """
    body = b"x" * 200_000
    with running_broker() as broker, session_to(broker) as session, session_to(broker) as other:
        send(session.attach_sender("s", "q"), body)
        controller = Controller(session)
        txn_id = controller.declare()
        receiver = session.attach_receiver("r", "q", snd_settle_mode=1 if settled else 0)
        receiver.flow(1, txn_id=txn_id, incoming_window=1)
        session.connection.pump_until(lambda: receiver.partial is not None)
        number = controller.ask(Discharge(txn_id=txn_id, fail=True))
        session.connection.flush()
        (delivery,) = receive(other.attach_receiver("rival", "q", credit=1), 1)  # it is available again
        assert body_of(delivery) == body
        assert not session.connection.pump(0.05) and number not in controller.link.outcomes
        session.flow()
        assert isinstance(controller.answer(number), Accepted)
        assert receiver.partial is None and not receiver.deliveries


def test_a_transaction_times_out_although_nothing_comes() -> None:
    """Row "timeout": a timer of its own frees what it held, at once, while no connection says a word."""
    with (
        stopping(JumpingBroker(SHORT)) as broker,
        session_to(broker) as session,
        session_to(broker) as other,
    ):
        send(session.attach_sender("s", "q"), b"mine for a while")
        controller, sender = Controller(session), session.attach_sender("up", "small")
        receiver = session.attach_receiver("r", "q")
        txn_id = controller.declare()
        for body in (b"1", b"2", b"3"):
            sender.send(message(body), txn_id=txn_id)
        receiver.flow(1, txn_id=txn_id)
        receive(receiver, 1)
        rival = other.attach_receiver("rival", "q", credit=1)
        stranger = other.attach_sender("stranger", "small")
        broker.jump(0.98 * TIMEOUT_S)
        round_trip(session, other)
        assert not rival.deliveries and not stranger.credit
        broker.jump(0.04 * TIMEOUT_S)
        assert bodies(receive(rival, 1)) == [b"mine for a while"]
        other.connection.pump_until(lambda: stranger.may_send)
        assert broker.call(Broker.transactions) == [] and counts(broker, "small") == (0, 0)
