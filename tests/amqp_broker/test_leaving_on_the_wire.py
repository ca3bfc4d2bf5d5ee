"""A client that writes its message and its detach, end or close at once: it learns what became of the
message.
"""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from amqp_broker.broker import Broker
from amqp_broker.configuration import QueuePolicy
from amqp_broker.frames import (
    SENDER,
    Accepted,
    Attach,
    Begin,
    Close,
    Coordinator,
    Declare,
    Declared,
    Detach,
    Discharge,
    Disposition,
    End,
    Source,
    Target,
    Transfer,
    encode_composite,
)
from amqp_broker.testing import RunningBroker, memory_config, running_broker
from amqp_broker.testing.blocking_peer import BlockingPeer
from tests.support.broker_clients import at_rest
from tests.support.halves import half
from tests.support.sequenced import annotated

MESSAGE = b"\x00\x53\x70\xc0\x02\x01\x41\x00\x53\x75\xa0\x01x"  # durable
DECLARE = b"\x00\x53\x77" + encode_composite(Declare())


Leave = Detach | End | Close
LEAVE: list[Leave] = [Detach(handle=0, closed=True), Detach(handle=0), End(), Close()]


def heard(
    broker: RunningBroker, leave: Leave, target: Target | Coordinator, *payloads: Any, shut: bool = False
) -> list[object]:
    """What follows the attach of the broker when the leaving is written with the last payload. One that is a
    function is made of the answer to the one before. `shut`: the client's side of the stream ends with it.
    """
    attach = Attach(
        name="up", handle=0, role=SENDER, source=Source(), target=target, initial_delivery_count=0
    )
    with BlockingPeer.connect(broker.host, broker.port) as client:
        client.raises_errors = False
        client.put(Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100))
        client.put(attach)
        told: list[Any] = []
        while not told or not isinstance(told[-1], type(leave)):
            if not isinstance(found := client.next(), Attach | Disposition | Detach | End | Close):
                continue
            told.append(found)
            at = len(told) - 1
            if at >= len(payloads):
                continue
            payload = payloads[at](found) if callable(payloads[at]) else payloads[at]
            client.put(
                Transfer(handle=0, delivery_id=at, delivery_tag=b"t%d" % at, message_format=0), payload
            )
            if at == len(payloads) - 1:
                client.put(leave)
            client.flush()
            if shut and at == len(payloads) - 1:
                client.transport.shutdown(socket.SHUT_WR)
        return told[1:]


def discharge(answer: Any) -> bytes:
    """Of the transaction that was declared."""
    return b"\x00\x53\x77" + encode_composite(Discharge(txn_id=answer.state.txn_id, fail=False))


SAID: dict[str, tuple[Target | Coordinator, Any]] = {
    "a message": (Target(address="q"), [MESSAGE]),
    "a half message": (Target(address="$half/shop/q"), [half("1", to="q")]),
    "an acknowledgement that waits for company": (Target(address="placed"), [annotated((1, 1, 0))]),
    "a discharge": (Coordinator(), [DECLARE, discharge]),
}
PATIENT = QueuePolicy(pattern="placed", order_debounce_ms=60_000, order_max_delay_ms=60_000)


@pytest.mark.parametrize("leave", LEAVE)
@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("memory", [True, False])
def test_the_outcome_comes_before_the_answer(leave: Leave, said: str, memory: bool, tmp_path: Path) -> None:
    """What is committed after the detach was read is told: disposition, then the detach, end or close."""
    target, payloads = SAID[said]
    config = memory_config(memory=memory, data_dir=str(tmp_path), queue_policies=(PATIENT,))
    with running_broker(config) as broker:
        *_, outcome, answer = heard(broker, leave, target, *payloads)
        assert isinstance(outcome, Disposition)
        assert (outcome.settled, outcome.state) == (True, Accepted())
        assert type(answer) is type(leave)


@pytest.mark.parametrize("leave", LEAVE)
def test_a_declare_is_answered_before(leave: Leave) -> None:
    """So is what a coordinator is asked; the transaction itself is rolled back with its control link."""
    with running_broker() as broker:
        outcome, answer = heard(broker, leave, Coordinator(), DECLARE)
        assert isinstance(outcome, Disposition) and isinstance(outcome.state, Declared)
        assert type(answer) is type(leave)
        at_rest(broker)
        assert broker.call(Broker.transactions) == []


def test_the_answer_comes_also_to_who_says_no_more(tmp_path: Path) -> None:
    """The client's end of the stream behind its close takes nothing from what it is owed."""
    with running_broker(memory_config(memory=False, data_dir=str(tmp_path))) as broker:
        outcome, answer = heard(broker, Close(), Target(address="q"), MESSAGE, shut=True)
        assert isinstance(outcome, Disposition) and outcome.state == Accepted()
        assert isinstance(answer, Close)
