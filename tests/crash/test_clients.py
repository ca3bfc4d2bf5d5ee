"""Who waits for what a drain brings waits for the last frame of it: a large message comes in several."""

from __future__ import annotations

import random

import pytest

from amqp_broker.testing.blocking_peer import BlockingPeer
from tests.crash.controllers import Live
from tests.crash.history import History
from tests.crash.traffic import DrainingClient, encode_body
from tests.crash.transactional_traffic import AcquiringController, BrowsingClient, TransformingController
from tests.crash.workload import drain
from tests.support.broker_clients import bodies, message, take_everything
from tests.support.halting_peer import HaltingPeer

TXN_ID = b"\x01\x02"


def named(count: int, txn_id: bytes = b"", settled: bool = False) -> HaltingPeer:
    """A peer with messages as the clients of kills send them."""
    messages = [encode_body(("p", number), 10) for number in range(count)]
    return HaltingPeer(messages, txn_id=txn_id, settled=settled)


def history_of(count: int) -> History:
    """It knows that these were sent."""
    history = History()
    history.record("sent", 1, "p", [("p", number) for number in range(count)])
    return history


def seen(history: History, kind: str) -> list[int]:
    """The numbers of the messages of one kind of event."""
    return [event.message[1] for event in history.events if event.kind == kind]


def test_a_receiver_with_half_a_message_has_not_used_its_credit_up() -> None:
    """The credit goes with the first frame (2.6.7), and the delivery is there with the last one."""
    connection = HaltingPeer([message(b"one")])
    receiver = connection.begin().attach_receiver("r", "q", credit=1)
    connection.pump(0)
    assert receiver.credit == 0 and receiver.partial and not receiver.used_up
    connection.pump(0)
    assert receiver.used_up and len(receiver.deliveries) == 1


@pytest.mark.parametrize("presettled", [False, True])
def test_an_acquiring_controller_takes_what_is_half_here(presettled: bool) -> None:
    """Otherwise its commit could be the acceptance of a message that it never sees."""
    connection = named(100, TXN_ID, settled=presettled)
    history = history_of(100)
    controller = AcquiringController("a", 0, 1, "q", history, random.Random(1), ("other",))
    controller.prepare(connection)
    controller.presettled = presettled
    controller._acquire(connection, Live(TXN_ID), drain=True)
    assert controller.receiver is not None and controller.receiver.used_up
    assert seen(history, "received") == list(range(controller.receiver.delivery_count))


def test_an_acquiring_controller_waits_for_the_rest_of_a_transaction() -> None:
    """With credit left over, a message may be half here when the commit is answered."""
    connection = named(100, TXN_ID)
    history = history_of(100)
    controller = AcquiringController("a", 0, 1, "q", history, random.Random(1), ("other",))
    controller.prepare(connection)
    controller.presettled = False
    live = Live(TXN_ID)
    receiver = controller.receiver
    assert receiver is not None
    receiver.flow(2, txn_id=TXN_ID)
    while not receiver.partial:
        connection.pump(0)
    controller.look_after(connection, live)
    assert seen(history, "received") == seen(history, "accept_sent") == [0, 1]


def test_a_controller_that_leaves_may_have_everything_that_it_settled_in_a_transaction() -> None:
    """The outcome may be lost with the connection: of such messages the broker counts the oldest as a failed
    try.
    """
    connection = named(10, TXN_ID)
    history = history_of(10)
    controller = AcquiringController("a", 0, 1, "q", history, random.Random(1), ("other",))
    controller.prepare(connection)
    controller.presettled = False
    live = Live(TXN_ID)
    controller.lives[TXN_ID] = live
    assert controller.receiver is not None
    controller.receiver.flow(5, drain=True, txn_id=TXN_ID)
    while not controller.receiver.used_up:
        connection.pump(0)
    controller.take(live)
    controller.give(live, {number: live.kept.pop(number) for number in [*live.kept]}, settled=True)
    controller.leave()
    assert seen(history, "retired_settled") == seen(history, "dropped") == [0, 1, 2, 3, 4]


def test_a_transforming_controller_that_quiesces_has_everything() -> None:
    """What it left half here would be given back unseen."""
    connection = named(100)
    history = history_of(100)
    controller = TransformingController("t", 0, 1, "q", history, random.Random(1), ("other",))
    controller.prepare(connection)
    controller.quiesce(connection)
    assert seen(history, "received") == list(range(60))


def test_a_browser_sees_the_last_message() -> None:
    """It settles what it saw, and detaches."""
    connection = named(100)
    history = history_of(100)
    client = BrowsingClient("b", 0, 1, "q", history)
    client.look(connection.begin(), "b.1")
    assert seen(history, "browsed") == list(range(100))


@pytest.mark.parametrize("count", [1, 1_000])
def test_a_drain_ends_with_the_last_message(count: int) -> None:
    """The last life takes everything, also what is half here when the broker says that the drain is over."""
    history = history_of(count)
    DrainingClient("d", 0, 2, "q", history).drive(named(count))
    assert seen(history, "settled") == list(range(count))


@pytest.mark.parametrize("count", [1, 500])
def test_the_drain_of_the_other_kinds_ends_with_the_last_message(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """That of half messages and of streams."""
    peer = HaltingPeer([message(f"{number}".encode()) for number in range(count)])
    monkeypatch.setattr(BlockingPeer, "connect", lambda *_, **__: peer)
    assert drain(0, "q") == [f"{number}" for number in range(count)]


def test_everything_is_taken_in_several_drains() -> None:
    """A drain whose credit was used up is followed by another one."""
    peer = HaltingPeer([message(b"%d" % number) for number in range(700)])
    receiver = peer.begin().attach_receiver("r", "q")
    assert bodies(take_everything(receiver)) == [b"%d" % number for number in range(700)]
