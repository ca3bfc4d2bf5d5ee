"""Requests and replies, and receiving what is settled, with the blocking client against a real broker."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from amqp_broker.client.blocking import BlockingConnection, connect
from amqp_broker.client.errors import LinkGone, MessageRefused, WaitTimeout, WrongUse
from amqp_broker.client.messages import ReceivedMessage, message
from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import (
    SETTLE_MODE_SETTLED,
    Array,
    Described,
    Double,
    Source,
    Symbol,
    Timestamp,
    Ulong,
    plain_value,
)
from amqp_broker.halves.addresses import resolve_address
from amqp_broker.testing.blocking_peer import PATIENCE_S
from tests.client.shops import PATIENT, shop_broker

WAIT_S = PATIENCE_S


def serve(url: str, requests: int, answer: Callable[[BlockingConnection, ReceivedMessage], None]) -> Any:
    """A thread that takes so many requests from the queue `service`; join it."""

    def run() -> None:
        with connect(url, timeout_s=WAIT_S) as connection:
            receiver = connection.open_receiver("service")
            for _ in range(requests):
                request = receiver.receive(WAIT_S)
                answer(connection, request)
                receiver.accept(request)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def reply(connection: BlockingConnection, request: ReceivedMessage, body: Any) -> None:
    """Answers to the address that the request named."""
    sender = connection.open_sender(request.properties.reply_to)
    sender.send(message(body, correlation_id=request.properties.correlation_id))
    sender.close()


def test_a_request_gets_the_reply_with_its_correlation_id(
    broker: RunningBroker, connection: BlockingConnection
) -> None:
    """Late replies to others are thrown away, and the values come plain."""

    def answer(peer: BlockingConnection, request: ReceivedMessage) -> None:
        stray = peer.open_sender(request.properties.reply_to)
        stray.send(message({"stray": True}, correlation_id="of another"))
        assert request.properties.subject == "describe"
        reply(peer, request, {"asked": request.body, "next": Ulong(7)})

    server = serve(broker.url, 2, answer)
    requester = connection.open_requester("service")
    assert requester.request("describe", {"address": "orders"}) == {"asked": {"address": "orders"}, "next": 7}
    assert requester.request("describe", {}) == {"asked": {}, "next": 7}
    server.join(WAIT_S)
    requester.close()
    assert requester.gone is not None


def test_a_refused_request_says_the_condition() -> None:
    """The node's rejection is raised as it came, and the next request may be another one."""
    with shop_broker() as broker, connect(broker.url, timeout_s=WAIT_S) as connection:
        requester = connection.open_requester(resolve_address(PATIENT))
        for _ in range(2):
            with pytest.raises(MessageRefused) as refused:
                requester.request("neither", {})
            assert refused.value.condition is not None


def test_a_reply_that_never_comes_is_a_timeout(connection: BlockingConnection) -> None:
    """It says what was asked of whom."""
    requester = connection.open_requester("service")
    with pytest.raises(WaitTimeout, match="reply of 'service' to 'describe' within 0.05 s"):
        requester.request("describe", {}, timeout_s=0.05)


def test_telling_needs_no_reply(broker: RunningBroker, connection: BlockingConnection) -> None:
    """It is done when the node accepted."""
    connection.open_requester("service").tell("void", {"producer": "p"})
    told = connection.open_receiver("service").receive(WAIT_S)
    assert (told.properties.subject, told.body, told.properties.reply_to) == ("void", {"producer": "p"}, None)


def test_settled_messages_are_taken_in_one_go(connection: BlockingConnection) -> None:
    """A browser whose sender settles gets each message once, credit is renewed, and the source is told."""
    connection.open_sender("orders").send_many(f"{number}".encode() for number in range(500))
    receiver = connection.open_receiver(
        "orders",
        credit=64,
        source=Source(address="orders", distribution_mode="copy"),
        snd_settle_mode=SETTLE_MODE_SETTLED,
    )
    assert receiver.core.remote_source.distribution_mode == "copy"
    taken: list[bytes] = []
    while len(taken) < 500:
        batch = receiver.receive_settled(WAIT_S)
        assert 0 < len(batch) <= 64
        taken += [delivery.payload[-3:] for delivery in batch]
    assert len(set(taken)) == 500
    with pytest.raises(WaitTimeout):
        receiver.receive_settled(0.01)
    receiver.close()
    with pytest.raises(LinkGone):
        receiver.receive_settled(WAIT_S)


def test_what_wants_an_outcome_is_not_taken_in_one_go(connection: BlockingConnection) -> None:
    """Messages would be lost otherwise; they can still be received one by one."""
    connection.open_sender("orders").send("one")
    receiver = connection.open_receiver("orders")
    with pytest.raises(WrongUse, match="sender settled"):
        receiver.receive_settled(WAIT_S)
    receiver.accept(receiver.receive(WAIT_S))


def test_plain_values_have_no_classes_of_the_wire() -> None:
    """Inside of maps, lists, arrays and described values as well."""
    name = uuid.uuid4()
    wire = {
        Symbol("a"): [Ulong(1), Timestamp(2), {"x": Double(0.5)}],
        "b": Array("uint", [Ulong(3)]),
        "c": Described(Symbol("d"), Symbol("e")),
        "n": None,
        "u": name,
    }
    assert plain_value(wire) == {"a": [1, 2, {"x": 0.5}], "b": [3], "c": "e", "n": None, "u": name}
