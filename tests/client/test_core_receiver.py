"""Receiving: credit, outcomes, drain, and what a link that ends leaves."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.client.core_receiver import ReceiverCore
from amqp_broker.client.errors import LinkGone, WrongUse
from amqp_broker.client.messages import ReceivedMessage
from amqp_broker.frames import (
    Accepted,
    Data,
    Error,
    Modified,
    Properties,
    Rejected,
    Released,
    Source,
    encode_message,
)
from amqp_broker.links import AttachReceived, OutcomesReceived
from tests.client.back_to_back import BackToBack, sendable
from tests.links.pair import Message


def take(receiver: ReceiverCore) -> ReceivedMessage:
    """The next message, which is here."""
    received = receiver.take()
    assert received is not None
    return received


def outcomes(pair: BackToBack) -> list[Any]:
    """What the server heard, one for each delivery."""
    heard = [event for event in pair.events if isinstance(event, OutcomesReceived)]
    return [event.state for event in heard for _ in event.deliveries]


def test_messages_come_in_order_with_all_their_parts() -> None:
    """Sections are decoded when they are asked for; what is omitted reads as empty."""
    pair = BackToBack().open()
    receiver, remote = pair.receiver()
    whole = encode_message(
        properties=Properties(subject="s"),
        application_properties={"a": 1},
        message_annotations={"x-opt-b": 2},
        body=[Data(b"on"), Data(b"e")],
    )
    remote.send([Message(whole), sendable("two"), sendable(["three"])])
    pair.flush()
    first, second, third = (take(receiver) for _ in range(3))
    assert (first.body, second.body, third.body) == (b"one", "two", ["three"])
    assert first.properties.subject == "s" and second.properties == Properties()
    assert set(first.application_properties) == {"a"} and second.application_properties == {}
    assert len(first.message_annotations) == 1 and second.message_annotations == {}
    assert receiver.take() is None


@pytest.mark.parametrize(
    "outcome",
    [Accepted(), Released(), Modified(delivery_failed=True), Rejected(error=Error(condition="a:b"))],
)
def test_an_outcome_reaches_the_sender_once(outcome: Any) -> None:
    """A second one is a mistake of the caller's, and nothing is sent."""
    pair = BackToBack().open()
    receiver, remote = pair.receiver()
    remote.send([sendable("one")])
    pair.flush()
    received = take(receiver)
    receiver.settle(received, outcome)
    pair.flush()
    assert outcomes(pair) == [outcome] and received.settled
    with pytest.raises(WrongUse, match="expected a message without an outcome"):
        receiver.settle(received, Accepted())
    pair.flush()
    assert len(outcomes(pair)) == 1


def test_credit_bounds_what_is_here_without_an_outcome() -> None:
    """Taking a message makes no room; its outcome does."""
    pair = BackToBack().open()
    receiver, remote = pair.receiver(credit=2)
    assert remote.send([sendable(number) for number in range(5)]) == 2
    pair.flush()
    first, _second = take(receiver), take(receiver)
    pair.flush()
    assert remote.credit == 0
    receiver.settle(first, Accepted())
    pair.flush()
    assert remote.credit == 1


def test_settled_messages_make_room_when_they_are_taken() -> None:
    """They want no outcome, and get none."""
    pair = BackToBack().open()
    receiver, remote = pair.receiver(credit=1)
    remote.send([sendable("one")], settled=True)
    pair.flush()
    received = take(receiver)
    pair.flush()
    assert received.settled and remote.credit == 1
    with pytest.raises(WrongUse, match="is settled"):
        receiver.settle(received, Accepted())


def test_a_message_of_another_link_is_refused() -> None:
    """Outcomes belong to their link."""
    pair = BackToBack().open()
    one, remote = pair.receiver("one")
    two, _ = pair.receiver("two")
    remote.send([sendable("one")])
    pair.flush()
    with pytest.raises(WrongUse, match="expected a message of <ReceiverCore 'two' attached>"):
        two.settle(take(one), Accepted())


def test_arrival_is_told_to_all_who_wait() -> None:
    """One pending for all; done at once when something is here."""
    pair = BackToBack().open()
    receiver, remote = pair.receiver()
    waiting = receiver.arrival()
    assert receiver.arrival() is waiting and not waiting.done
    remote.send([sendable("one")])
    pair.flush()
    assert waiting.done and receiver.arrival().done
    take(receiver)
    assert not receiver.arrival().done


def test_credit_can_be_changed() -> None:
    """Up and down to nothing."""
    pair = BackToBack().open()
    receiver, remote = pair.receiver(credit=1)
    receiver.set_credit(50)
    pair.flush()
    assert remote.credit == 50
    receiver.set_credit(0)
    pair.flush()
    assert remote.credit == 0


def test_drain_tells_when_nothing_more_is_there() -> None:
    """What the peer has comes first; then the credit is zero, and new credit starts the flow again."""
    pair = BackToBack().open()
    receiver, remote = pair.receiver(credit=10)
    draining = receiver.drain()
    again = receiver.drain()
    with pytest.raises(WrongUse, match="drained already"):
        again.result()
    pair.flush()
    assert remote.drain and not draining.done
    remote.send([sendable("one")])
    remote.drained()
    pair.done(draining)
    assert take(receiver).body == "one" and receiver.take() is None
    receiver.set_credit(receiver.credit)
    pair.flush()
    assert remote.credit == 9 and not remote.drain


def test_credit_during_a_drain_is_given_after_it() -> None:
    """A flow in between would be undone by the peer's answer, and the link stand still for ever."""
    pair = BackToBack().open()
    receiver, remote = pair.receiver(credit=10)
    receiver.drain()
    receiver.set_credit(20)
    pair.flush()
    assert remote.credit == 10
    remote.drained()
    pair.flush()
    assert remote.credit == 20


def test_drain_without_credit_ends_as_well() -> None:
    """All of it is here without an outcome: the peer answers the echo."""
    pair = BackToBack().open()
    receiver, remote = pair.receiver(credit=1)
    remote.send([sendable("one")])
    pair.flush()
    pair.done(receiver.drain())


def test_a_node_that_the_peer_makes_has_a_name() -> None:
    """A dynamic source: the address comes with the attach."""
    pair = BackToBack().open()
    asked: list[Source] = []

    def answer(event: AttachReceived) -> None:
        assert isinstance(event.attach.source, Source)
        asked.append(event.attach.source)
        event.link.accept(source=Source(address="temporary-1", dynamic=True))

    pair.answers[AttachReceived] = answer
    receiver, _ = pair.receiver(None)
    assert receiver.address == "temporary-1" and asked[0].dynamic and asked[0].address is None


def test_a_link_that_ends_keeps_what_was_settled() -> None:
    """The rest will be delivered again: it is not shown, and an outcome for it is an error."""
    pair = BackToBack().open()
    receiver, remote = pair.receiver()
    remote.send([sendable("taken"), sendable("lost")])
    remote.send([sendable("kept")], settled=True)
    pair.flush()
    taken = take(receiver)
    draining = receiver.drain()
    remote.detach(Error(condition="amqp:link:stolen"))
    pair.flush()
    assert take(receiver).body == "kept"
    with pytest.raises(LinkGone, match="expected a message from 'orders', .* amqp:link:stolen"):
        receiver.take()
    with pytest.raises(LinkGone, match="expected an outcome for"):
        receiver.settle(taken, Accepted())
    with pytest.raises(LinkGone, match="expected the end of what 'orders' has"):
        draining.result()
    assert receiver.arrival().done
    receiver.set_credit(5)
    with pytest.raises(LinkGone):
        receiver.drain().result()


def test_what_the_sender_settled_meanwhile_is_passed_over() -> None:
    """An outcome that comes too late is no error: nothing is left to say."""
    pair = BackToBack().open()
    receiver, remote = pair.receiver(credit=1)
    remote.send([sendable("one")])
    pair.flush()
    received = take(receiver)
    (delivery,) = remote.session.unsettled_out.values()
    remote.settle([delivery], Released())
    pair.flush()
    receiver.settle(received, Accepted())
    pair.flush()
    assert outcomes(pair) == [] and remote.credit == 1
