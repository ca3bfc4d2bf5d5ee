"""Faults of single messages and attaches: each meets the one that was chosen, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from amqp_broker.client import LinkRefused, connect
from amqp_broker.embedding import RunningBroker, running_broker
from amqp_broker.frames import Accepted, Modified, Rejected, Released, Transfer, encode_message
from amqp_broker.testing import FrameTrace, ScriptedFaults, memory_config
from amqp_broker.testing.blocking_peer import BlockingPeer, ConnectionLost
from amqp_broker.testing.message_faults import MessageFault
from amqp_broker.testing.peer import PeerError, PeerSender

ACCEPTED = Accepted()


@contextmanager
def sending(broker: RunningBroker, address: str = "orders") -> Iterator[PeerSender]:
    """A sender that has credit."""
    with BlockingPeer.connect(broker.host, broker.port, container_id=address) as connection:
        sender = connection.begin().attach_sender("s", address)
        connection.pump_until(lambda: sender.may_send)
        yield sender


@pytest.fixture(name="broker")
def broker_fixture() -> Iterator[RunningBroker]:
    """One whose faults can be scripted while it runs."""
    with running_broker(faults=ScriptedFaults(FrameTrace())) as broker:
        yield broker


def outcomes(sender: PeerSender, *bodies: str) -> list[Any]:
    """Send these in one write, and wait for their outcomes."""
    connection: Any = sender.session.connection
    numbers = [sender.send(encode_message(body=body)) for body in bodies]
    connection.pump_until(lambda: all(number in sender.outcomes for number in numbers))
    return [sender.outcomes[number] for number in numbers]


def waiting(broker: RunningBroker, address: str = "orders") -> list[Any]:
    """The bodies that are in the queue."""
    return [each.body for each in broker.peek(address)]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (lambda chosen: chosen.reject("amqp:not-allowed", "not today"), Rejected),
        (MessageFault.release, Released),
        (lambda chosen: chosen.modify(undeliverable_here=True), Modified),
    ],
    ids=["reject", "release", "modify"],
)
def test_the_chosen_message_gets_its_outcome(
    broker: RunningBroker, fault: Callable[[MessageFault], None], kind: type
) -> None:
    """The second from now to this address, in the middle of a run; the others are stored, in order."""
    with sending(broker) as sender, sending(broker, "elsewhere") as other:
        assert outcomes(sender, "before") == [ACCEPTED]
        fault(broker.faults.message(2, address="orders"))
        assert outcomes(other, "a", "b", "c") == [ACCEPTED] * 3
        first, second, third = outcomes(sender, "1", "2", "3")
        assert (first, type(second), third) == (ACCEPTED, kind, ACCEPTED)
        if isinstance(second, Rejected):
            assert second.error is not None
            assert (second.error.condition, second.error.description) == ("amqp:not-allowed", "not today")
            assert [each.description for each in broker.refused] == ["not today"]
        if isinstance(second, Modified):
            assert (second.delivery_failed, second.undeliverable_here) == (True, True)
        assert waiting(broker) == ["before", "1", "3"]
        assert waiting(broker, "elsewhere") == ["a", "b", "c"]


def test_several_in_a_row_are_hit() -> None:
    """Credit is renewed for those that are not stored, too: more come than the link begins with."""
    with running_broker(faults=ScriptedFaults()) as broker, sending(broker) as sender:
        broker.faults.message(1, count=3_000).release()
        credit, sent = sender.credit, 0
        while sent < 3_000:
            found = outcomes(sender, *(["x"] * 500))
            sent += len(found)
            assert all(isinstance(each, Released) for each in found)
        assert credit < 3_000
        assert outcomes(sender, "y") == [ACCEPTED]
        assert waiting(broker) == ["y"]


def test_a_message_is_lost(broker: RunningBroker) -> None:
    """No outcome comes for it, and those behind it are taken."""
    with sending(broker) as sender:
        broker.faults.message().drop()
        lost = sender.send(encode_message(body="lost"))
        assert outcomes(sender, "found") == [ACCEPTED]
        assert lost not in sender.outcomes
        assert waiting(broker) == ["found"]


def test_a_message_comes_twice(broker: RunningBroker) -> None:
    """One outcome, two messages."""
    with sending(broker) as sender:
        broker.faults.message().duplicate()
        assert outcomes(sender, "twice", "once") == [ACCEPTED] * 2
        assert waiting(broker) == ["twice", "twice", "once"]


def test_a_message_comes_later(broker: RunningBroker) -> None:
    """By the clock of the broker: nobody waits for it."""
    with sending(broker) as sender:
        broker.faults.message().delay(3_600)
        late = sender.send(encode_message(body="late"))
        assert outcomes(sender, "soon") == [ACCEPTED]
        broker.clock.advance(3_500)
        assert waiting(broker) == ["soon"]
        broker.clock.advance(101)
        sender.session.connection.pump_until(lambda: late in sender.outcomes)
        assert waiting(broker) == ["soon", "late"]


@pytest.mark.parametrize("after", [False, True])
def test_the_sender_of_the_chosen_message_never_learns_of_its_commit(
    broker: RunningBroker, after: bool
) -> None:
    """The message is there once; connections of others stay."""
    with sending(broker) as sender, sending(broker, "elsewhere") as other:
        chosen = broker.faults.message(2, address="orders")
        (chosen.reset_after_commit if after else chosen.reset_before_commit)()
        assert outcomes(sender, "1") == [ACCEPTED]
        with pytest.raises(ConnectionLost):
            outcomes(sender, "2")
        broker.wait_until(lambda: waiting(broker) == ["1", "2"])
        assert outcomes(other, "x") == [ACCEPTED]


def test_an_attach_is_refused(broker: RunningBroker) -> None:
    """The chosen one alone."""
    with BlockingPeer.connect(broker.host, broker.port) as connection:
        session = connection.begin()
        broker.faults.attach(2, address="orders").refuse("amqp:unauthorized-access", "keep out")
        session.attach_sender("elsewhere", "elsewhere")
        session.attach_sender("first", "orders")
        with pytest.raises(PeerError, match="keep out"):
            session.attach_receiver("second", "orders")
        session.attach_receiver("third", "orders")
        (refusal,) = broker.refused
        assert (refusal.what, refusal.address, refusal.condition) == (
            "link", "orders", "amqp:unauthorized-access"
        )  # fmt: skip


def test_a_broker_is_slow(broker: RunningBroker) -> None:
    """What is sent waits for the broker's clock; and no more when it is quick again."""
    with sending(broker) as sender:
        broker.faults.slow_down(60)
        number = sender.send(encode_message(body="x"))
        connection: Any = sender.session.connection
        connection.flush()
        broker.wait_until(lambda: "Transfer" in str(broker.trace))
        broker.clock.advance(59)
        assert broker.depth("orders") == 0
        broker.faults.slow_down(0)
        broker.clock.advance(2)
        connection.pump_until(lambda: number in sender.outcomes)
        assert outcomes(sender, "y") == [ACCEPTED]


def test_what_is_cleared_never_happens(broker: RunningBroker) -> None:
    """Of all kinds; what has never happened is known until then."""
    faults = broker.faults
    faults.message().reject()
    faults.message(7, address="orders").release()
    faults.attach(2).refuse()
    faults.grant_no_credit()
    faults.slow_down(3_600)
    faults.refuse_commit()
    faults.reset_at(Transfer)
    faults.drop(Accepted)
    assert faults.waiting() == ["message 1", "message 7 to 'orders'", "attach 2"]
    faults.clear()
    assert faults.waiting() == []
    with sending(broker) as sender:
        assert outcomes(sender, "one") == [ACCEPTED]
        faults.message().release()
        assert outcomes(sender, "two") == [Released()] and faults.waiting() == []


@pytest.mark.parametrize(
    "wrong",
    [
        lambda faults: faults.message().delay(-1),
        lambda faults: faults.message().delay("soon"),
        lambda faults: faults.message().reject("not a condition"),
        lambda faults: faults.message().reject("amqp:not-allowed", 3),
        lambda faults: faults.attach().refuse(""),
        lambda faults: faults.message(0),
        lambda faults: faults.slow_down(float("inf")),
        lambda faults: faults.reset_at("Transfer"),
        lambda faults: faults.drop("Transfer"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(wrong: Callable[[ScriptedFaults], None]) -> None:
    """Where it is said, not where it would have happened."""
    with pytest.raises((ValueError, TypeError), match="expected"):
        wrong(ScriptedFaults())


def test_a_broker_without_faults_says_how_to_have_them() -> None:
    """And one that is configured by a text has what that says."""
    with running_broker("[limits]\nlink_credit = 7\n") as broker:
        assert broker.config.limits.link_credit == 7
        with pytest.raises(RuntimeError, match="say running_broker"):
            broker.faults.message()
    with pytest.raises(TypeError, match="did you mean container_id"):
        memory_config(continer_id="x")


def test_what_says_a_fault_returns_it() -> None:
    """Every verb of messages, and that of attaches: whether it happened can be waited for."""
    with running_broker(faults=ScriptedFaults()) as broker:
        script = broker.faults.message(address="nowhere")
        verbs = (
            script.reject, script.release, script.modify, script.drop, lambda: script.delay(1),
            script.duplicate, script.reset_before_commit, script.reset_after_commit,
        )  # fmt: skip
        assert all(verb() is script for verb in verbs) and not script.happened
        refused = broker.faults.attach(address="orders").refuse()
        with connect(broker.url) as connection, pytest.raises(LinkRefused):
            connection.open_sender("orders")
        assert refused.happened
