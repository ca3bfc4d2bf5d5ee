"""A client that writes its message and its detach or end at once: it learns what became of the message."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from amqp_broker.configuration import BrokerConfig
from amqp_broker.frames import (
    AMQP_HEADER,
    SENDER,
    Accepted,
    Attach,
    Begin,
    Coordinator,
    Declare,
    Detach,
    Disposition,
    End,
    Frame,
    FrameReader,
    Open,
    Source,
    Target,
    Transfer,
    encode_composite,
    encode_frame,
)
from amqp_broker.testing import RunningBroker, running_broker

MESSAGE = b"\x00\x53\x70\xc0\x02\x01\x41\x00\x53\x75\xa0\x01x"  # durable
DECLARE = b"\x00\x53\x77" + encode_composite(Declare())


def heard(
    broker: RunningBroker, leave: Detach | End, target: Target | Coordinator, payload: bytes
) -> list[object]:
    """What follows the attach of the broker when everything is written at once."""
    attach = Attach(
        name="up", handle=0, role=SENDER, source=Source(), target=target, initial_delivery_count=0
    )
    with socket.create_connection((broker.host, broker.port), timeout=20) as client:
        client.sendall(
            AMQP_HEADER
            + encode_frame(0, Open(container_id="hasty"))
            + encode_frame(0, Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100))
            + encode_frame(0, attach)
        )
        reader = FrameReader(65_536)
        reader.expect_header()
        told: list[object] = []
        wrote = False
        while not told or not isinstance(told[-1], (Detach, End)):
            item = reader.next()
            if item is None:
                data = client.recv(65_536)
                assert data, "the broker closed the connection"
                reader.feed(data)
            elif isinstance(item, Frame) and isinstance(
                item.performative, (Attach, Disposition, Detach, End)
            ):
                told.append(item.performative)
                if not wrote:
                    wrote = True
                    transfer = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0)
                    client.sendall(encode_frame(0, transfer, payload) + encode_frame(0, leave))
        return told[1:]


@pytest.mark.parametrize("leave", [Detach(handle=0, closed=True), Detach(handle=0), End()])
@pytest.mark.parametrize("memory", [True, False])
def test_the_outcome_comes_before_the_answer(leave: Detach | End, memory: bool, tmp_path: Path) -> None:
    """A message that is committed after the detach was read: disposition, then the detach or end."""
    with running_broker(BrokerConfig(memory=memory, data_dir=str(tmp_path))) as broker:
        outcome, answer = heard(broker, leave, Target(address="q"), MESSAGE)
        assert isinstance(outcome, Disposition)
        assert (outcome.first, outcome.settled, outcome.state) == (0, True, Accepted())
        assert type(answer) is type(leave)


def test_a_declare_is_answered_before_the_detach() -> None:
    """So is what a coordinator is asked."""
    with running_broker() as broker:
        outcome, answer = heard(broker, Detach(handle=0, closed=True), Coordinator(), DECLARE)
        assert isinstance(outcome, Disposition)
        assert isinstance(answer, Detach)
