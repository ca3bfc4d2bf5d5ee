"""Credit of a receiving link, as transcripts (2.6.7, 2.6.8)."""

from __future__ import annotations

import pytest

from amqp_broker.frames import Accepted, Disposition, Flow, encode_frame
from amqp_broker.links import CreditDrained, Limits
from tests.links.pair import Message, of_type, receiving, taken
from tests.links.raw_peer import RawPeer, attached, deliveries, detached_with, flow, transfer


def test_credit_is_renewed_below_half() -> None:
    """outstanding + unprocessed never exceed the target; the flow comes when half is used and processed."""
    peer, link = attached(credit=10)
    for number in range(5):
        peer.say(transfer(number, settled=True))
    assert link.credit == 5 and peer.heard() == []
    link.processed(1)
    (first,) = peer.heard()
    assert (first.link_credit, first.delivery_count) == (6, 5)
    link.processed(4)
    assert peer.heard() == []
    peer.say(transfer(5, settled=True))
    link.processed(1)
    (second,) = peer.heard()
    assert (second.link_credit, second.delivery_count) == (10, 6)


def test_credit_stays_below_the_unsettled_limit() -> None:
    """2,048 for each link: what is processed but not settled holds credit back, settling brings it."""
    peer = RawPeer(credit=100, limits=Limits(unsettled_per_link=4, unsettled_per_session=100))
    peer, link = attached(peer=peer)
    assert link.credit == 4
    taken = deliveries(peer.feed(b"".join(encode_frame(0, transfer(number)) for number in range(4))))
    link.processed(4)
    assert link.credit == 0 and peer.heard() == []
    link.settle(taken[:3], Accepted())
    disposition, renewal = peer.heard()
    assert isinstance(disposition, Disposition) and isinstance(renewal, Flow)
    assert renewal.link_credit == 3


def test_credit_can_be_taken_back() -> None:
    """2.6.7: what was in flight when the credit was reduced is handled normally."""
    peer, link = attached(credit=5)
    link.set_credit(0)
    (stop,) = peer.heard()
    assert stop.link_credit == 0
    assert len(deliveries(peer.feed(b"".join(encode_frame(0, transfer(number)) for number in range(5))))) == 5
    peer.say(transfer(5))
    detached_with(peer, "amqp:link:transfer-limit-exceeded")


def test_setting_the_same_credit_again_says_nothing() -> None:
    """A level is kept, not granted anew."""
    peer, link = attached(credit=10)
    link.set_credit(10)
    peer.say(transfer(0, settled=True))
    link.processed(1)
    link.set_credit(10)
    assert peer.heard() == []
    link.set_credit(12)
    assert peer.heard()[0].link_credit == 12


def test_delivery_count_turns_over() -> None:
    """2.6.7: RFC 1982; an initial delivery-count near 2^32."""
    peer, link = attached(credit=4, initial_delivery_count=2**32 - 2)
    assert link.credit == 4
    assert (
        len(
            deliveries(
                peer.feed(b"".join(encode_frame(0, transfer(number, settled=True)) for number in range(4)))
            )
        )
        == 4
    )
    link.processed(4)
    assert (peer.heard()[0].delivery_count, link.credit) == (2, 4)


def test_an_echo_on_a_link_is_answered_with_its_state() -> None:
    """2.7.4: once for each read."""
    peer, _ = attached(credit=10)
    peer.say(transfer(0))
    peer.feed(encode_frame(0, flow(handle=0, delivery_count=1, echo=True)) * 5)
    (answer,) = peer.heard()
    assert (answer.handle, answer.link_credit, answer.delivery_count) == (0, 9, 1)


def test_a_receiver_that_drains() -> None:
    """2.6.8: the client gets what is there, and then knows that nothing is left."""
    pair, receiver, sender = receiving()
    receiver.flow(5, drain=True)
    pair.flush()
    assert sender.drain and sender.credit == 5
    assert sender.send([Message(b"only")]) == 1
    sender.drained()
    sender.drained()
    pair.flush()
    assert len(deliveries(pair.client_events)) == 1
    assert [event.link for event in of_type(pair.client_events, CreditDrained)] == [receiver]
    assert receiver.credit == sender.credit == 0
    receiver.flow(1)
    pair.flush()
    assert sender.credit == 1 and not sender.drain


@pytest.mark.parametrize("level", [5, 3, 8, 0])
def test_a_level_of_credit_ends_a_drain(level: int) -> None:
    """2.6.7: the sender is told, also where the credit itself is the same; nothing is drained any more."""
    pair, receiver, sender = receiving()
    receiver.flow(5, drain=True)
    pair.flush()
    receiver.set_credit(level)
    pair.flush()
    assert (sender.drain, sender.credit, receiver.credit) == (False, level, level)
    assert of_type(pair.client_events, CreditDrained) == []
    sender.send([Message(b"later")])
    pair.flush()
    assert len(deliveries(pair.client_events)) == min(level, 1)


def test_a_drain_whose_answer_crosses_a_level_of_credit() -> None:
    """The sender has given the credit back already: it gets the level anew, and nobody waits for ever."""
    pair, receiver, sender = receiving()
    receiver.flow(5, drain=True)
    pair.flush()
    sender.drained()
    answered = taken(pair.server)
    receiver.set_credit(5)
    pair.flush()
    assert sender.credit == 0
    pair.give(pair.client, answered)
    pair.flush()
    assert (sender.drain, sender.credit, receiver.credit) == (False, 5, 5)
    assert of_type(pair.client_events, CreditDrained) == []
    sender.send([Message(b"later")] * 5)
    pair.flush()
    assert len(deliveries(pair.client_events)) == 5
