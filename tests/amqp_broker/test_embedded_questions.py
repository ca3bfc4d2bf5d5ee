"""What a test asks the broker that it embeds: what is there, who is there, and what was refused."""

from __future__ import annotations

import pytest

from amqp_broker.client import ClientError, Resolution, connect, message
from amqp_broker.embedding import memory_config, running_broker
from amqp_broker.frames import Attach, Long, Source, Transfer, encode_message
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
        assert broker.queues() == []
        for ask in (broker.peek, broker.purge, broker.delete):
            with pytest.raises(Unmanageable, match="orders") as found:
                ask("orders")
            assert found.value.status == 404


ENDS = {
    "purged": lambda broker: broker.purge("orders"),
    "deleted with a delayed message": lambda broker: broker.delete("orders"),
    "a topic and its subscription are deleted": lambda broker: broker.clear("prices"),
    "all is cleared": lambda broker: broker.clear(),
}


@pytest.mark.parametrize("how", ENDS)
def test_what_goes_by_hand_makes_no_dead_letters(how: str) -> None:
    """Messages that are purged, or deleted with their queue, topic or subscription, are no dead letters."""
    prices = Source(address="prices", durable=2, expiry_policy="never", capabilities=("topic",))
    with running_broker() as broker, connect(broker.url) as connection:
        connection.open_receiver("prices", source=prices, name="mine")
        connection.open_sender("prices").send("dear")
        sender = connection.open_sender("orders")
        sender.send("now")
        sender.send(message("later", message_annotations={"x-opt-delivery-delay": Long(60_000)}))
        broker.wait_until(lambda: broker.entities("subscription")[0]["messages"] == 1)
        ENDS[how](broker)
        assert "dead-letters" not in broker.queues()


def test_only_what_expires_in_its_queue_is_a_dead_letter() -> None:
    """A time to live that runs out after the message was accepted makes no queue for dead letters."""
    with running_broker() as broker, connect(broker.url) as connection:
        sender, receiver = connection.open_sender("orders"), connection.open_receiver("orders")
        sender.send(message("in time", ttl_ms=60_000))
        receiver.accept(receiver.receive(timeout_s=10))
        receiver.close()
        broker.wait_until(lambda: broker.depth("orders") == 0)
        broker.clock.advance(3_600)
        assert broker.queues() == ["orders"]
        sender.send(message("late", ttl_ms=60_000))
        broker.clock.advance(3_600)
        assert (broker.depth("orders"), broker.depth("dead-letters")) == (0, 1)


def test_a_half_message_outlives_its_queue() -> None:
    """It was promised: where its queue was deleted, it is committed into the dead letters."""
    with running_broker() as broker, connect(broker.url) as connection:
        with connection.producer("shop", lambda half: Resolution.COMMIT) as producer:
            producer.send_in_transaction("orders", "shoes", lambda half_id: Resolution.UNKNOWN)
            assert broker.queues() == ["orders"]
            broker.delete("orders")
            assert broker.queues() == ["dead-letters"]
            broker.clock.advance(10)
            broker.wait_until(lambda: broker.depth("dead-letters") == 1)


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
