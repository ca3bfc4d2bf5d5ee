"""A commit that would leave out a part of its transaction: it is refused, says which part, and nothing of it
happens.
"""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.configuration import BrokerConfig, BrokerLimits, QueuePolicy
from amqp_broker.frames import (
    RECEIVER,
    Accepted,
    AmqpValue,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Modified,
    Properties,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
    encode_message,
    encode_state,
)
from amqp_broker.links import Delivery, ReceiverLink, SenderLink, in_words
from amqp_broker.persistence import RECORD_OVERHEAD_BYTES
from amqp_broker.testing import memory_config
from tests.links.pair import Message
from tests.support.by_hand import Main, Served, by_hand, drives, text
from tests.support.sequenced import annotated

MALFORMED = b"\x00\x53\x70\xc0"
CONFIG: BrokerConfig = memory_config(
    queue_policies=(
        QueuePolicy(pattern="small", max_messages=1),
        QueuePolicy(pattern="streams", sequence="required"),
    ),
    limits=BrokerLimits(transaction_operations=4, annotations_bytes=1_000),
)


class Work:
    """A transaction in which one good message was posted to `good`, on a link of another session than that of
    the control link.
    """

    def __init__(self, at: Served) -> None:
        self.at = at
        self.other = at.client.begin()
        self.txn_id = b""
        self.control: SenderLink

    async def begin(self) -> Work:
        """Declare, and post the good message."""
        at = self.at
        self.control = at.session.attach_sender("control", Source(), Coordinator())
        good = self.sender("good")
        await at.settle()
        answer = await self.ask(Declare())
        assert isinstance(answer, Declared)
        self.txn_id = answer.txn_id
        good.send_in([text(b"good")], self.state())
        await at.settle()
        assert at.outcomes.pop() == self.state(Accepted())
        return self

    def state(self, outcome: Any = None) -> TransactionalState:
        """In the transaction."""
        return TransactionalState(txn_id=self.txn_id, outcome=outcome)

    def sender(self, address: str | None, **fields: Any) -> SenderLink:
        """A link of the other session."""
        target = Target(address=address)
        return self.other.attach_sender(f"to {address}", Source(), target, **fields)

    async def ask(self, request: Any) -> Any:
        """The outcome of a request, which comes after whatever else does."""
        self.control.send([Message(encode_message(body=AmqpValue(request)))])
        await self.at.settle()
        return self.at.outcomes.pop()

    async def received(self, count: int, **fields: Any) -> tuple[ReceiverLink, list[Delivery]]:
        """Messages that wait in the queue `orders` have come."""
        at = self.at
        sender = self.other.attach_sender("orders", Source(), Target(address="orders"))
        await at.settle()
        sender.send([text(b"%d" % number) for number in range(count)])
        link = self.other.attach_receiver("r", Source(address="orders"), Target(), credit=count, **fields)
        await at.settle()
        at.outcomes.clear()
        assert len(at.received) == count
        return link, list(at.received)

    async def cannot_commit(self, *words: str) -> None:
        """The discharge is rejected, and why; nothing of it happened."""
        answer = await self.ask(Discharge(txn_id=self.txn_id, fail=False))
        assert isinstance(answer, Rejected), f"expected rejected, got {answer!r}"
        assert answer.error is not None and answer.error.condition == "amqp:transaction:rollback"
        for word in words:
            assert word in str(answer.error.description)
        assert self.at.broker.nodes.queues._queues["good"].message_count == 0
        assert not self.at.broker.transactions()
        assert isinstance(await self.ask(Declare()), Declared), "the control link works on"

    async def commits(self) -> None:
        """The discharge is accepted."""
        assert isinstance(await self.ask(Discharge(txn_id=self.txn_id, fail=False)), Accepted)
        assert self.at.broker.nodes.queues._queues["good"].message_count == 1


def run_in_work(main: Main) -> None:
    """Run it with one transaction."""

    async def run(at: Served) -> None:
        await main(at, await Work(at).begin())

    by_hand(run, CONFIG)


in_work = drives(run_in_work, given=2)

REFUSED = {
    "a relay without to": (None, text(b"x"), "properties.to is missing"),
    "a relay to an address that is none": (
        None, text(b"x", properties=Properties(to="a" * 300)), "amqp:invalid",
    ),
    "a relay to a node that is not there": (
        None, text(b"x", properties=Properties(to="$nowhere")), "amqp:not-found",
    ),
    "a node that takes part in none": ("$transactions", text(b"x"), "amqp:not-allowed"),
    "no half message": ("$half/shop/q", text(b"x"), "half:id-required"),
    "no resolution": ("$half-resolve/shop", text(b"x"), "amqp:"),
    "a resolution of what is decided": (
        "$half-resolve/shop",
        text(b"x", properties=Properties(correlation_id="decided", subject="commit")),
        "half:conflict",
    ),
    "no place in a stream": ("streams", text(b"x"), "seq:missing"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("together", [True, False])
@in_work
async def test_a_posting_that_was_refused(at: Served, work: Work, name: str, together: bool) -> None:
    """4.4.1: its sender hears of it, or does not look; with its discharge in the same read or not."""
    address, message, words = REFUSED[name]
    for decided, subject in (("$half/shop/q", None), ("$half-resolve/shop", "rollback")):
        link = await at.sender(decided, f"decided by {decided}")
        asked = Properties(message_id="decided", correlation_id="decided", subject=subject)
        link.send([text(b"x", properties=asked)])
        await at.settle()
        assert isinstance(at.outcomes.pop(), Accepted)
    sender = work.sender(address)
    await at.settle()
    sender.send_in([message], work.state())
    if not together:
        await at.settle()
        (told,) = at.outcomes
        assert isinstance(told.outcome, Rejected) and told.txn_id == work.txn_id
    await work.cannot_commit(words, f"on link 'to {address}'")


@pytest.mark.parametrize("settled", [True, False])
@in_work
async def test_a_posting_to_a_full_queue(at: Served, work: Work, settled: bool) -> None:
    """Sent settled or not; the room of what was taken is free again."""
    sender, to = work.sender(None), Properties(to="small")  # whose credit is not that of the queue
    await at.settle()
    sender.send_in([text(b"1", properties=to), text(b"2", properties=to)], work.state(), settled=settled)
    full = "queue 'small' is full (max_messages, 1, of its [[queue]])"
    await work.cannot_commit(full, "on link 'to None'")
    assert at.broker.nodes.queues._queues["small"].reserved_messages == 0


@pytest.mark.parametrize("address", ["q", None])
@in_work
async def test_a_malformed_posting(at: Served, work: Work, address: str | None) -> None:
    """It is refused, and nothing else ends."""
    sender = work.sender(address)
    await at.settle()
    sender.send_in([Message(MALFORMED)], work.state())
    await work.cannot_commit("on link")


@pytest.mark.parametrize("between", [False, True])
@in_work
async def test_postings_behind_one_that_ended_the_link(at: Served, work: Work, between: bool) -> None:
    """The first of them is outside of the transaction; in one run with it, or in another one."""
    sender, other = work.sender("q"), at.attach_sender("elsewhere")
    await at.settle()
    sender.send([Message(MALFORMED)], settled=True)
    if between:
        other.send([text(b"between")], settled=True)
    sender.send_in([text(b"x")], work.state())
    await work.cannot_commit("on link 'to q' can't be done")


@pytest.mark.parametrize("fit", [0, 1])
@in_work
async def test_postings_behind_one_that_ends_the_link_where_memory_is_short(
    at: Served, work: Work, fit: int
) -> None:
    """The first of a run names a transaction that nobody knows; so many of them fit."""
    sender = work.sender("q")
    await at.settle()
    account = at.connection.account
    one = text(b"x")
    room = 2 * (account.budget.used_bytes + len(one.body) + RECORD_OVERHEAD_BYTES)
    account.budget.limit_bytes, account.pressed = fit * room, True
    assert account.fits(room // 2 - account.budget.used_bytes) is bool(fit)
    sender.send_in([one], TransactionalState(txn_id=b"nobody's"))
    sender.send_in([text(b"y")], work.state())
    await at.settle()
    account.budget.limit_bytes, account.pressed = 1 << 30, False
    await work.cannot_commit("on link 'to q' can't be done")


@in_work
async def test_a_posting_that_is_sent_settled_where_its_answer_matters(at: Served, work: Work) -> None:
    """The link ends, and the answer is lost with it."""
    sender = work.sender("$half/shop/q")
    await at.settle()
    sender.send_in([text(b"x")], work.state(), settled=True)
    await work.cannot_commit("it was sent settled")


@pytest.mark.parametrize("before", [True, False])
@in_work
async def test_a_posting_to_a_queue_that_was_deleted(at: Served, work: Work, before: bool) -> None:
    """Before it came, or between the posting and the commit, also where nothing of it is for the store."""
    owner = work.other.attach_sender("owner", Source(), Target(dynamic=True))
    await at.settle()
    address = owner.target.address
    sender = work.sender(address)
    await at.settle()
    if not before:
        sender.send_in([text(b"x")], work.state())
        await at.settle()
        at.outcomes.clear()
    owner.detach()
    if before:
        sender.send_in([text(b"x")], work.state())
    await work.cannot_commit("deleted")


@in_work
async def test_a_refusal_for_the_place_in_a_stream_is_to_be_answered(at: Served, work: Work) -> None:
    """The sender sends again from where its stream stands, in the same transaction, which then commits."""
    sender = work.sender("streams")
    await at.settle()
    for place, condition in (((1, 2, 1), "seq:gap"), ((1, 1, 0), ""), ((1, 2, 1), "")):
        sender.send_in([Message(annotated(place))], work.state())
        await at.settle()
        told = at.outcomes.pop().outcome
        error = told.error if isinstance(told, Rejected) else None
        assert condition == ("" if error is None else error.condition)
    await work.commits()
    assert at.broker.nodes.queues._queues["streams"].message_count == 2


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("way", ["link gone", "settled before", "in part", "never sent"])
@in_work
async def test_an_outcome_for_a_delivery_that_is_not_there(
    at: Served, work: Work, way: str, settled: bool
) -> None:
    """Receive, detach, accept in the transaction, commit: the message comes again, and the commit says so."""
    link, came = await work.received(3)
    first, last = came[0].delivery_id, came[2].delivery_id
    if way == "link gone":
        link.detach()
    elif way == "settled before":
        link.dispose(came, Released(), True)
    elif way == "in part":
        link.dispose(came[1:2], Accepted(), True)
    else:
        last += 1
    await at.settle()
    state = encode_state(work.state(Accepted()))
    work.other.send_disposition(RECEIVER, first, last, settled, state)
    await work.cannot_commit(f"the outcome of {in_words(first, last)} can't be done")
    assert at.broker.nodes.queues._queues["orders"].message_count == (2 if way == "in part" else 3)


@in_work
async def test_an_outcome_for_a_delivery_whose_outcome_is_being_stored(at: Served, work: Work) -> None:
    """A terminal outcome stands (3.4): the second one, in the transaction, can't be."""
    link, came = await work.received(2)
    link.dispose(came[:1], Accepted(), False)
    link.dispose(came, work.state(Accepted()), False)
    await work.cannot_commit("another outcome of theirs stands", "on link 'r'")


@in_work
async def test_an_outcome_that_is_said_twice(at: Served, work: Work) -> None:
    """Once more for what it has settled in this transaction: that is no other part of it."""
    link, came = await work.received(3)
    state = work.state(Accepted())
    link.dispose(came[:2], state, True)
    first, last = came[0].delivery_id, came[2].delivery_id
    work.other.send_disposition(RECEIVER, first, last, True, encode_state(state))
    work.other.send_disposition(RECEIVER, first, last, True, encode_state(state))
    await work.commits()
    assert at.broker.nodes.queues._queues["orders"].message_count == 0


@in_work
async def test_another_outcome_for_what_it_has_settled(at: Served, work: Work) -> None:
    """Settling is for good (2.6.12): the second outcome can't be."""
    link, came = await work.received(1)
    link.dispose(came, work.state(Accepted()), True)
    number = came[0].delivery_id
    released = encode_state(work.state(Released()))
    work.other.send_disposition(RECEIVER, number, number, True, released)
    await work.cannot_commit("unknown or settled")


@in_work
async def test_an_outcome_that_the_source_does_not_offer(at: Served, work: Work) -> None:
    """The link ends; the deliveries come back."""
    source = Source(address="orders", outcomes=("amqp:released:list",))
    sender = work.sender("orders")
    await at.settle()
    sender.send([text(b"x")])
    link = work.other.attach_receiver("r", source, Target(), credit=1)
    await at.settle()
    at.outcomes.clear()
    link.dispose(at.received, work.state(Accepted()), False)
    await work.cannot_commit("the source does not offer it")


@in_work
async def test_an_outcome_that_adds_too_much(at: Served, work: Work) -> None:
    """The link ends."""
    link, came = await work.received(1)
    large = Modified(message_annotations={"x-opt-a": "a" * 2_000})
    link.dispose(came, work.state(large), False)
    await work.cannot_commit("message-annotations")


@in_work
async def test_too_much_work(at: Served, work: Work) -> None:
    """The limit is named, and what came behind it is refused for the same reason."""
    link, came = await work.received(4)
    link.dispose(came, work.state(Accepted()), False)
    await work.cannot_commit("operations")


@pytest.mark.parametrize("fail", [True, False])
@in_work
async def test_two_transactions_for_one_message_in_one_read(at: Served, work: Work, fail: bool) -> None:
    """The first is committed, or not asked for; in the second one the outcome can't be done then. The same
    as in one read for each.
    """
    link, came = await work.received(1)
    second = (await work.ask(Declare())).txn_id
    link.dispose(came, work.state(Accepted()), False)
    requests = [Discharge(txn_id=work.txn_id, fail=fail), Discharge(txn_id=second, fail=False)]
    payloads = [encode_message(body=AmqpValue(request)) for request in requests]
    work.control.send([Message(payloads[0])])
    link.dispose(came, TransactionalState(txn_id=second, outcome=Accepted()), False)
    work.control.send([Message(payloads[1])])
    await at.settle()
    answers = [each for each in at.outcomes if not isinstance(each, TransactionalState)]
    assert [type(each) for each in answers] == [Accepted, Accepted if fail else Rejected]
    assert at.broker.nodes.queues._queues["orders"].message_count == 0


@in_work
async def test_a_rollback_of_a_lost_part_is_a_rollback(at: Served, work: Work) -> None:
    """4.3: a discharge with fail always succeeds."""
    at.transactions.lose(work.txn_id, "a part", "no matter why")
    answer = await work.ask(Discharge(txn_id=work.txn_id, fail=True))
    assert isinstance(answer, Accepted) and not at.broker.transactions()
