"""A control link, without a socket: declare, discharge, what is enlisted, and its end."""

from __future__ import annotations

from typing import Any

from amqp_broker.frames import (
    AmqpValue,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    TransactionalState,
    encode_message,
)
from amqp_broker.links import SenderLink
from amqp_broker.nodes.coordinator import ControlSink
from tests.links.pair import Message
from tests.support.by_hand import Served, by_hand, text


async def asked(at: Served, control: SenderLink, request: Any) -> Any:
    """The outcome of a request."""
    control.send([Message(encode_message(body=AmqpValue(request)))])
    await at.settle()
    return at.outcomes.pop()


async def declared(at: Served) -> tuple[SenderLink, bytes]:
    """A control link, and a transaction that it declared."""
    control = at.attach_sender(Coordinator(), "control")
    await at.settle()
    assert isinstance(at.context("control"), ControlSink)
    answer = await asked(at, control, Declare())
    assert isinstance(answer, Declared)
    return control, answer.txn_id


def test_what_is_posted_in_a_transaction_is_there_after_its_discharge() -> None:
    """Provisionally accepted at once, seen by nobody before the commit (4.4.1)."""

    async def main(at: Served) -> None:
        sender = at.attach_sender("q")
        control, txn_id = await declared(at)
        sender.send_in([text(b"x")], TransactionalState(txn_id=txn_id))
        await at.settle()
        queue = at.context("up").queue
        assert isinstance(at.outcomes.pop(), TransactionalState) and queue.message_count == 0
        answer = await asked(at, control, Discharge(txn_id=txn_id, fail=False))
        assert type(answer).__name__ == "Accepted" and queue.message_count == 1

    by_hand(main)


def test_the_end_of_a_control_link_rolls_back() -> None:
    """4.1: what it declared and did not discharge; the room that was kept is free."""

    async def main(at: Served) -> None:
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

    by_hand(main)


def test_nothing_is_heard_behind_a_request_that_ended_its_link() -> None:
    """4.3: the source offers no rejected, so what can't be done ends the link; a declare behind it in the
    same read declares nothing.
    """

    async def main(at: Served) -> None:
        control, _ = await declared(at)
        unknown = AmqpValue(Discharge(txn_id=b"unknown", fail=True))
        declare = AmqpValue(Declare())
        control.send([Message(encode_message(body=each)) for each in (unknown, declare)])
        await at.settle()
        (gone,) = at.detached
        assert gone.error is not None and gone.error.condition == "amqp:transaction:unknown-id"
        assert not at.outcomes and not at.broker.transactions()

    by_hand(main)
