"""A control link, without a socket: declare, discharge, what is enlisted, and its end."""

from __future__ import annotations

import pytest

from amqp_broker.frames import (
    Accepted,
    AmqpValue,
    Declare,
    Declared,
    Discharge,
    Rejected,
    Released,
    Source,
    Target,
    TransactionalState,
    encode_message,
)
from amqp_broker.links import OutcomesLost
from amqp_broker.transactions import LOOK_OCTETS
from tests.links.pair import Message
from tests.support.by_hand import Served, asked, at_hand, declared, text


@at_hand()
async def test_what_is_posted_in_a_transaction_is_there_after_its_discharge(at: Served) -> None:
    """Provisionally accepted at once, seen by nobody before the commit (4.4.1)."""
    sender = at.attach_sender("q")
    control, txn_id = await declared(at)
    sender.send_in([text(b"x")], TransactionalState(txn_id=txn_id))
    await at.settle()
    queue = at.context("up").queue
    assert isinstance(at.outcomes.pop(), TransactionalState) and queue.message_count == 0
    answer = await asked(at, control, Discharge(txn_id=txn_id, fail=False))
    assert type(answer).__name__ == "Accepted" and queue.message_count == 1


@at_hand()
async def test_the_end_of_a_control_link_rolls_back(at: Served) -> None:
    """4.1: what it declared and did not discharge; the room that was kept is free."""
    sender = at.attach_sender("q")
    control, txn_id = await declared(at)
    sender.send_in([text(b"x")], TransactionalState(txn_id=txn_id))
    await at.settle()
    queue = at.context("up").queue
    assert queue.reserved_messages == 1
    control.detach()
    await at.settle()
    assert (queue.reserved_messages, queue.message_count) == (0, 0)
    assert not at.broker.transactions()


@at_hand()
async def test_nothing_is_heard_behind_a_request_that_ended_its_link(at: Served) -> None:
    """4.3: the source excludes rejected, so what can't be done ends the link; a discharge behind it in the
    same read commits nothing.
    """
    sender = at.attach_sender("q")
    control, txn_id = await declared(at, "amqp:accepted:list")
    sender.send_in([text(b"x")], TransactionalState(txn_id=txn_id))
    await at.settle()
    unknown = AmqpValue(Discharge(txn_id=b"unknown", fail=True))
    commit = AmqpValue(Discharge(txn_id=txn_id, fail=False))
    control.send([Message(encode_message(body=each)) for each in (unknown, commit)])
    await at.settle()
    assert at.condition() == "amqp:transaction:unknown-id"
    assert at.context("up").queue.message_count == 0 and not at.broker.transactions()


@at_hand()
async def test_a_failed_commit_is_rejected_where_outcomes_are_unset(at: Served) -> None:
    """4.3: python-qpid-proton and its C++ sister attach so, and never learn of a detach."""
    at.attach_sender("q")
    control, txn_id = await declared(at)
    at.transactions.lose(txn_id, "a part", "of no matter")
    answer = await asked(at, control, Discharge(txn_id=txn_id, fail=False))
    assert isinstance(answer, Rejected) and answer.error is not None
    assert answer.error.condition == "amqp:transaction:rollback"
    assert answer.error.description == "a part can't be done: of no matter"
    assert not at.detached and isinstance(await asked(at, control, Declare()), Declared)


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("leave", ["detach", "end"])
@at_hand()
async def test_work_behind_the_end_of_a_control_link_is_too_late(
    at: Served, leave: str, together: bool
) -> None:
    """4.1: its transactions roll back at its place in the order of the wire, also while the answer to its
    detach waits for that to a declare: in one read or in several, the link that names them later is ended.
    """
    other = at.client.begin()
    sender = other.attach_sender("up", Source(), Target(address="q"))
    control, txn_id = await declared(at)
    control.send([Message(encode_message(body=AmqpValue(Declare())))])
    if leave == "detach":
        control.detach()
    else:
        at.session.end()
    if not together:
        await at.settle()
    sender.send_in([text(b"x")], TransactionalState(txn_id=txn_id))
    await at.settle()
    (gone,) = [each for each in at.detached if each.error is not None]
    assert gone.error is not None and gone.error.condition == "amqp:transaction:unknown-id"
    assert not at.broker.transactions()


@at_hand()
async def test_nothing_is_acquired_behind_the_end_of_the_control_link(at: Served) -> None:
    """4.4.4.3: a plain outcome for what a transaction holds terminates its control link, which rolls back at
    that place: what the same range gives back is not acquired in it any more.
    """
    sender = at.attach_sender("q")
    control, txn_id = await declared(at)
    await at.settle()
    sender.send([text(b"1"), text(b"2")])
    plain = await at.receiver("q", 1, "plain")
    acquiring = await at.receiver("q", 0, "acquiring")
    acquiring.flow(2, properties={"txn-id": txn_id})
    await at.settle()
    free, held = at.received
    plain.dispose([free], Released(), True)
    acquiring.dispose([held], Released(), True)
    await at.settle()
    assert len(at.received) == 2
    ended = {each.link.name: each.error.condition for each in at.detached if each.error is not None}
    assert ended == dict.fromkeys(("control", "acquiring"), "amqp:transaction:rollback")


@pytest.mark.parametrize("reads", [1, 2])
@at_hand(max_transactions=1)
async def test_a_transaction_that_is_being_discharged_takes_no_place(at: Served, reads: int) -> None:
    """A discharge and a declare, in one read or in two, where there may be one transaction."""
    control, txn_id = await declared(at)
    asks = [encode_message(body=AmqpValue(each)) for each in (Discharge(txn_id=txn_id), Declare())]
    for ask in asks:
        control.send([Message(ask)])
        if reads == 2:
            await at.settle()
    await at.settle()
    assert [type(each) for each in at.outcomes] == [Accepted, Declared]
    assert isinstance(await asked(at, control, Declare()), Rejected)


@at_hand()
async def test_outcomes_for_what_is_not_there_give_others_a_turn(at: Served) -> None:
    """Each of them is looked for among all that its transaction holds."""
    sender = at.attach_sender("q")
    receiver = at.attach_receiver("q", 3)
    _, txn_id = await declared(at)
    sender.send([text(b"x")] * 3)
    await at.settle()
    state = TransactionalState(txn_id=txn_id, outcome=Accepted())
    receiver.dispose(at.received, state, False)
    await at.settle()
    (session,) = {link.session for link in at.connection.links}
    at.connection.spent_octets = 0
    at.connection.on_outcomes_lost(OutcomesLost(session, 90, 99, set(), state, False))
    assert at.connection.spent_octets == 3 * LOOK_OCTETS
