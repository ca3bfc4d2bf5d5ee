"""Transactions of one connection, without a socket: what the conformance scenarios can't see, and what they
stand on.
"""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.configuration import BrokerLimits, QueuePolicy
from amqp_broker.frames import (
    Accepted,
    AmqpValue,
    Discharge,
    Message,
    Modified,
    Properties,
    Released,
    Source,
    Symbol,
    encode_message,
)
from amqp_broker.persistence import DischargedAt, MemoryStore, OutcomesDamaged, Question
from amqp_broker.testing import memory_config
from tests.links.pair import Message as Sendable
from tests.support.by_hand import Control, Served, at_hand, condition_of, posted, text, within

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
async def test_a_rollback_gives_the_room_back(at: Served) -> None:
    """After a rollback senders that waited for room have credit again."""
    control, sender = Control(at), await at.sender("small")
    txn_id = await control.declare()
    await posted(at, sender, txn_id, b"1", b"2", b"3")
    assert sender.credit == 0
    await control.roll_back(txn_id)
    assert sender.credit > 0 and reserved(at) == (0, 0)


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
async def test_a_flood_of_declares_is_answered_and_leaks_nothing(at: Served) -> None:
    """max_transactions live ones for a connection; what comes beyond is rejected, and all is free again
    after its end.
    """
    control = Control(at)
    live = [await control.declare() for _ in range(3)]
    with pytest.raises(AssertionError, match="resource-limit-exceeded"):
        await control.declare()
    await control.roll_back(live[0])
    await control.declare()
    assert len(at.broker.transactions()) == 3
    await at.close()
    assert at.broker.transactions() == []


@at_hand(CONFIG)
async def test_a_browser_sees_what_a_live_transaction_has_acquired(at: Served) -> None:
    """Row "isolation": other links don't, and after the commit nobody does."""
    await at.post("q", b"1", b"2", b"3")
    control, receiver = Control(at), await at.receiver("q")
    txn_id = await control.declare()
    receiver.flow(2, properties={"txn-id": txn_id})
    await at.settle()
    assert at.bodies() == [b"1", b"2"]
    browser, rival = at.another("browser"), at.another("rival")
    await browser.receiver(Source(address="q", distribution_mode="copy"), 10)
    assert browser.bodies() == [b"1", b"2", b"3"]
    await rival.receiver("q", 10)
    assert rival.bodies() == [b"3"]
    receiver.dispose(at.take(), within(txn_id, Accepted()), True)
    await control.commit(txn_id)
    browser.take()
    await browser.receiver(Source(address="q", distribution_mode="copy"), 10, "late")
    assert not browser.received


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


@at_hand(CONFIG)
async def test_modified_in_a_transaction_changes_the_message_at_commit_only(at: Served) -> None:
    """A retirement with modified: the count and annotations are the message's after the commit (4.4.3)."""
    await at.post("q", b"1")
    control, receiver = Control(at), await at.receiver("q", 1)
    modified = Modified(delivery_failed=True, message_annotations={"x-opt-tried": True})
    for end in (control.roll_back, control.commit):
        came = at.take()
        assert Message(came[0].payload).header.delivery_count == 0
        txn_id = await control.declare()
        receiver.dispose(came, within(txn_id, modified), False)
        await end(txn_id)
        if end == control.roll_back:  # it stays acquired by the link: let it go, unchanged
            receiver.settle(came, Released())
        receiver.processed(1)
        await at.settle()
    found = Message(at.received[0].payload)
    assert found.header.delivery_count == 1
    assert found.message_annotations == {Symbol("x-opt-tried"): True}


# Asked by `$transactions`


async def ask(at: Served, correlation_id: object, reply_to: str | None = "replies") -> str:
    """The word that another connection is answered with, or what its question is rejected with."""
    other = at.another("asker")
    receiver = await other.receiver("replies", 1)
    sender = await other.sender("$transactions")
    properties = Properties(correlation_id=correlation_id, reply_to=reply_to)
    sender.send([Sendable(encode_message(properties=properties, body=b""))])
    await other.settle()
    (answer,) = other.outcomes
    if not isinstance(answer, Accepted):
        assert not other.received
        return f"{condition_of(answer)} {answer.error.description}"
    found = Message(other.received[0].payload)
    assert found.properties is not None and found.properties.correlation_id == correlation_id
    (section,) = found.body_sections()
    assert isinstance(section, AmqpValue) and section.value == found.properties.subject
    receiver.settle(other.received, Accepted())
    await other.close()
    return str(section.value)


@at_hand(CONFIG)
async def test_the_outcome_of_a_discharge_can_be_asked_by_anybody_who_knows_its_id(at: Served) -> None:
    """live, then committed or not-committed, from another connection, as binary and as hex digits."""
    control = Control(at)
    first, second = await control.declare(), await control.declare()
    assert await ask(at, first) == "live"
    await control.commit(first)
    await control.roll_back(second)
    for id_, word in ((first, ""), (first.hex(), ""), (second, "not-"), (b"no such id", "not-")):
        assert await ask(at, id_) == f"{word}committed"


@pytest.mark.parametrize(
    ("correlation_id", "reply_to", "word"),
    [
        (None, "replies", "correlation-id"),
        ("no hex", "replies", "correlation-id"),
        (b"x" * 33, "replies", "correlation-id"),
        (b"id", None, "amqp:invalid-field"),
        (b"id", "nowhere", "amqp:not-found"),
    ],
)
@at_hand(CONFIG)
async def test_a_question_without_an_id_or_without_a_queue_for_the_reply_is_rejected(
    at: Served, correlation_id: object, reply_to: str | None, word: str
) -> None:
    """The rejection says what was expected."""
    assert word in await ask(at, correlation_id, reply_to)


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
async def test_what_came_before_a_detach_counts(at: Served) -> None:
    """Posts that were sent settled and the detach of their link in one read: the messages are part of the
    transaction (4.4.4.1), and a discharge before the detach of its control link is done.
    """
    control, sender = Control(at), await at.sender("q", snd_settle_mode=1)
    txn_id = await control.declare()
    sender.send_in([text(b"1"), text(b"2")], within(txn_id), settled=True)
    sender.detach()
    control.link.send([Sendable(encode_message(body=AmqpValue(Discharge(txn_id=txn_id))))])
    control.link.detach()
    await at.settle()
    assert await at.left("q") == [b"1", b"2"]


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
