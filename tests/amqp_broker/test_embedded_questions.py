"""What a test asks the broker that it embeds: what is there, who is there, and what was refused."""

from __future__ import annotations

import pytest

from amqp_broker.client import ClientError, connect, message
from amqp_broker.embedding import memory_config, running_broker
from amqp_broker.frames import Attach, Transfer, encode_message
from amqp_broker.management.errors import Unmanageable
from amqp_broker.testing import FrameTrace, ScriptedFaults
from amqp_broker.testing.blocking_peer import BlockingPeer

CLOSED = """
[[access]]
users = ["*"]
actions = ["connect", "send", "create"]
nodes = ["open"]
"""


def test_what_waits_in_a_queue_can_be_looked_at() -> None:
    """The oldest first, with bodies of every kind, and it stays there."""
    with running_broker() as broker, connect(broker.url) as connection:
        sender = connection.open_sender("orders")
        sender.send(message(b"octets", subject="s", application_properties={"colour": "red", "size": 7}))
        sender.send(message("text", priority=9, durable=False))
        sender.send(message({"a": [1, 2]}))
        for _ in range(2):
            found = broker.peek("orders")
            assert [each.body for each in found] == [b"octets", "text", {"a": [1, 2]}]
        first, second, _ = found
        assert (first.properties, first.application_properties) == (
            {"subject": "s"}, {"colour": "red", "size": 7}
        )  # fmt: skip
        assert (first.durable, second.durable, second.priority, second.offset) == (True, False, 9, 1)
        assert [each.body for each in broker.peek("orders", 1)] == [b"octets"]


def test_many_are_looked_at_by_pages_and_purged_by_groups() -> None:
    """More than one request to the management brings."""
    with running_broker() as broker, connect(broker.url) as connection:
        connection.open_sender("orders").send_many(str(number) for number in range(2_500))
        assert [each.body for each in broker.peek("orders", 2_200)] == [str(at) for at in range(2_200)]
        assert (broker.depth("orders"), broker.purge("orders"), broker.depth("orders")) == (2_500, 2_500, 0)


def test_queues_are_made_and_deleted() -> None:
    """With what is in them, and with links to them."""
    with running_broker() as broker, connect(broker.url) as connection:
        assert (broker.queues(), broker.depth("orders")) == ([], 0)
        broker.declare("orders")
        broker.declare("orders")
        connection.open_sender("orders").send("x")
        assert broker.queues() == ["orders"]
        broker.delete("orders")
        assert "orders" not in broker.queues()
        for ask in (broker.peek, broker.purge, broker.delete):
            with pytest.raises(Unmanageable, match="orders") as found:
                ask("orders")
            assert found.value.status == 404


def test_who_is_connected_and_everything_else_that_management_tells() -> None:
    """Entities of any type, and any operation of `$management`."""
    with running_broker() as broker, connect(broker.url) as connection:
        connection.open_sender("orders")
        (found,) = broker.entities("connection")
        assert (found["links"], found["user"]) == (1, "anonymous")
        assert [each["address"] for each in broker.entities("link")] == ["orders"]
        broker.ask("UPDATE", "queue", "orders", {"max_messages": 1})
        assert broker.ask("READ", "queue", "orders")["max_messages"] == 1
        with pytest.raises(Unmanageable, match="expected one of"):
            broker.ask("NOTHING", "queue", "orders")


def test_the_owner_needs_no_right() -> None:
    """Where a peer has next to none; and nobody becomes the owner by that name."""
    config = memory_config(CLOSED)
    with running_broker(config, faults=ScriptedFaults(FrameTrace())) as broker:
        with connect(broker.url, container_id="shop") as connection:
            connection.open_sender("open").send("x")
            assert (broker.depth("open"), broker.purge("open")) == (1, 1)
            with pytest.raises(ClientError):
                connection.open_receiver("open")
            (refusal,) = broker.refused
            assert (refusal.what, refusal.client, refusal.address) == ("link", "shop", "open")
            assert refusal.condition == "amqp:unauthorized-access"


def test_a_message_that_was_refused_is_told_with_its_address() -> None:
    """And none that was accepted, on a session whose channels have different numbers on both sides."""
    with running_broker(faults=ScriptedFaults(FrameTrace())) as broker:
        with BlockingPeer.connect(broker.host, broker.port, container_id="shop") as connection:
            connection.begin().attach_sender("other", "elsewhere")
            sender = connection.begin().attach_sender("s", "orders")
            connection.pump_until(lambda: sender.may_send)
            sender.send(encode_message(body=b"good"))
            number = sender.send(b"no message at all")
            connection.pump_until(lambda: number in sender.outcomes)
        (refusal,) = broker.refused
        assert (refusal.what, refusal.client, refusal.address) == ("message", "shop", "orders")
        assert refusal.condition == "amqp:decode-error"


def test_the_frames_of_one_client_are_told_from_those_of_another() -> None:
    """By its container-id."""
    with running_broker(faults=ScriptedFaults(FrameTrace())) as broker:
        with connect(broker.url, container_id="one") as one, connect(broker.url, container_id="two") as two:
            one.open_sender("orders").send("x")
            two.open_receiver("orders")
        said = {
            name: {type(line.performative) for line in broker.trace.of(name) if line.sender == "C"}
            for name in ("one", "two")
        }
        assert Transfer in said["one"] and Transfer not in said["two"]
        assert Attach in said["one"] & said["two"]
        assert broker.trace.of("three") == []


def test_what_is_not_recorded_can_not_be_asked_for() -> None:
    """The error says how to record it."""
    with running_broker() as broker:
        with pytest.raises(RuntimeError, match="FrameTrace"):
            broker.refused  # noqa: B018


def test_who_waits_in_vain_is_told_what_there_is() -> None:
    """The depth of every queue is in the error."""
    with running_broker() as broker:
        broker.declare("orders")
        broker.wait_until(lambda: broker.queues() == ["orders"])
        with pytest.raises(TimeoutError, match=r"0\.01 s; messages in queues: {'orders': 0}"):
            broker.wait_until(lambda: broker.depth("orders"), 0.01)
