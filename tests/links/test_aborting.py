"""Half sent messages whose transaction is over, or that nobody wants any more: aborted transfers (2.6.14)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import (
    RECEIVER,
    SENDER,
    Accepted,
    Disposition,
    Modified,
    Rejected,
    Released,
    TransactionalState,
    Transfer,
)
from amqp_broker.links import (
    CreditReceived,
    OutcomesReceived,
    OutgoingDelivery,
    SenderLink,
)
from tests.links.pair import Message, of_type, receiving
from tests.links.raw_peer import RawPeer, deliveries, flow, receiver_attach

STATE = TransactionalState(txn_id=b"txn")
LARGE = 5_000


def half_sent(
    window: int, settled: bool = False
) -> tuple[RawPeer, SenderLink, Message, list[OutgoingDelivery]]:
    """A large message of which `window` frames went; the message, and the delivery unless it is settled."""
    peer = RawPeer().open(max_frame_size=512)
    peer.begin(incoming_window=window)
    link = peer.attach_receiver()
    peer.say(flow(incoming_window=window, handle=0, delivery_count=0, link_credit=10))
    peer.heard()
    message = Message(b"x" * LARGE)
    count, sent = link.send_in([message], STATE, settled=settled)
    assert count == 1 and link.sending
    assert [item.more for item in peer.heard()] == [True] * window
    return peer, link, message, sent


def widen(peer: RawPeer, transfers: int, window: int = 10) -> list[Any]:
    """The peer has seen so many transfers, and takes more."""
    return peer.say(flow(next_incoming_id=transfers, incoming_window=window))


@pytest.mark.parametrize("state", [None, Released(), Rejected(), Modified(), STATE])
def test_the_abort_waits_for_the_window(state: Any) -> None:
    """2.5.6: the frame takes a place in the session's window; nothing of the link overtakes it."""
    peer, link, _, sent = half_sent(2)
    link.settle(sent, state)
    assert peer.heard() == [] and link.sending and link.unsettled_count == 0
    assert link.send([Message(b"next")]) == link.sendable() == 0
    events = widen(peer, 2)
    assert peer.heard() == [Transfer(handle=0, aborted=True, state=STATE)]
    assert not link.sending and of_type(events, CreditReceived)
    assert link.session.window.next_outgoing_id == 3
    assert link.send([Message(b"next")]) == 1
    (following,) = peer.heard()
    assert following.delivery_id == 1


def test_an_abort_is_said_once() -> None:
    """Settling twice, or aborting what was settled, adds nothing."""
    peer, link, message, sent = half_sent(1)
    link.settle(sent, Released())
    link.settle(sent, Released())
    assert link.abort_sending(message) and link.unsettled_count == 0
    widen(peer, 1)
    assert len(peer.heard()) == 1
    assert not link.abort_sending(message)
    widen(peer, 2)
    assert peer.heard() == []


@pytest.mark.parametrize("settled", [True, False])
def test_abort_sending(settled: bool) -> None:
    """Also what was sent settled, of which there is no delivery to settle."""
    peer, link, message, sent = half_sent(2, settled)
    assert len(sent) == (0 if settled else 1)
    assert not link.abort_sending(Message(b"another"))
    assert link.abort_sending(message)
    assert link.unsettled_count == 0 and not link.session.unsettled_out
    widen(peer, 2)
    assert peer.heard() == [Transfer(handle=0, aborted=True, state=STATE)]
    assert not link.abort_sending(message) and not link.sending


def test_what_the_receiver_settled_is_aborted_by_its_delivery() -> None:
    """4.4.3: it settled in the transaction before it had all; a discharge that fails ends the sending too."""
    peer, link, message, sent = half_sent(2)
    peer.say(Disposition(role=RECEIVER, first=0, settled=True, state=STATE))
    link.settle(sent, Released())
    assert link.sending and link.unsettled_count == 0
    assert not link.abort_sending(OutgoingDelivery(1, link, message))
    assert link.abort_sending(sent[0])
    widen(peer, 2)
    assert peer.heard() == [Transfer(handle=0, aborted=True, state=STATE)]
    assert not link.abort_sending(sent[0])


def test_an_abort_does_not_wait_for_the_output() -> None:
    """It is on its way before what the caller writes next: the answer to the discharge (4.4.3)."""
    peer = RawPeer().open(max_frame_size=65_536)
    peer.begin()
    link = peer.attach_receiver(credit=10)
    peer.heard()
    _, (delivery,) = link.send_in([Message(b"x" * 2_000_000)], STATE)
    assert link.sending
    link.settle([delivery], Released())
    link.session.send_disposition(RECEIVER, 0, 0, True, b"")
    abort, answer = peer.heard()[-2:]
    assert abort == Transfer(handle=0, aborted=True, state=STATE) and isinstance(answer, Disposition)


def test_an_aborted_delivery_has_used_its_credit() -> None:
    """2.6.7: the delivery-count went on with its first transfer and does not come back, nor do ids."""
    peer, link, _, sent = half_sent(1)
    assert (link.credit, link.flow_state.delivery_count) == (9, 1)
    link.settle(sent, Released())
    widen(peer, 1)
    assert (link.credit, link.flow_state.delivery_count) == (9, 1)
    peer.say(flow(next_incoming_id=2, handle=0, delivery_count=1, link_credit=2, drain=True))
    link.drained()
    answer = peer.heard()[-1]
    assert (answer.delivery_count, answer.link_credit) == (3, 0)


@pytest.mark.parametrize("state", [Accepted(), TransactionalState(txn_id=b"txn", outcome=Accepted())])
def test_an_accepted_message_is_completed(state: Any) -> None:
    """The receiver wants it and we have retired it: an abort would lose it."""
    peer, link, message, _ = half_sent(2)
    (event,) = of_type(
        peer.say(Disposition(role=RECEIVER, first=0, settled=False, state=Accepted())), OutcomesReceived
    )
    link.settle(event.deliveries, state)
    (disposition,) = peer.heard()
    assert disposition == Disposition(role=SENDER, first=0, last=0, settled=True, state=state)
    widen(peer, 2, 100)
    frames = peer.frames()
    assert not frames[-1].performative.more and not frames[-1].performative.aborted
    assert sum(len(item.payload) for item in frames) > 0 and not link.sending
    assert not link.abort_sending(message)


def test_others_of_the_same_range_get_their_disposition() -> None:
    """Only the last one is being sent; those before it are settled as ever."""
    peer = RawPeer().open(max_frame_size=512)
    peer.begin()
    link = peer.attach_receiver()
    peer.say(flow(incoming_window=4, handle=0, delivery_count=0, link_credit=10))
    peer.heard()
    messages = [Message(b"a"), Message(b"b"), Message(b"x" * LARGE)]
    _, sent = link.send_in(messages, STATE)
    peer.heard()
    link.settle(sent, Released())
    assert peer.heard() == [Disposition(role=SENDER, first=0, last=1, settled=True, state=Released())]
    widen(peer, 4)
    assert peer.heard() == [Transfer(handle=0, aborted=True, state=STATE)]
    assert link.unsettled_count == 0


def test_a_link_that_ends_is_not_aborted_too() -> None:
    """The detach ends the delivery; the abort that waited is forgotten."""
    peer, link, _, sent = half_sent(1)
    link.settle(sent, Released())
    link.detach()
    widen(peer, 1)
    assert not of_type(peer.heard(), Transfer) and not peer.server.sending_links


def test_room_that_an_abort_makes_wakes_others() -> None:
    """The unsettled bounds are the session's: another link may send again."""
    peer, link, _, sent = half_sent(1)
    peer.say(receiver_attach(1, "other"))
    other = link.session.input_links[1]
    assert isinstance(other, SenderLink)
    peer.say(flow(next_incoming_id=1, incoming_window=0, handle=1, delivery_count=0, link_credit=9))
    assert other.send([Message(b"x")]) == 0 and other.blocked and link.sending
    peer.server.take_events()
    link.settle(sent, Released())
    assert other in [event.link for event in of_type(peer.server.take_events(), CreditReceived)]


@given(st.lists(st.tuples(st.integers(1, 3_000), st.booleans()), min_size=1, max_size=8), st.integers(1, 5))
def test_whatever_is_aborted_the_rest_arrives(plan: list[tuple[int, bool]], window: int) -> None:
    """Two engines: each message arrives whole or not at all, both agree on delivery-count, and nothing stays
    unsettled of what was aborted.
    """
    pair, receiver, sender = receiving(credit=50, client={"max_frame_size": 512})
    session = receiver.session
    remote = sender.session
    expected = []
    for size, aborted in plan:
        message = Message(b"m" * size)
        remote.window.remote_incoming_window = window
        count, sent = sender.send_in([message], STATE)
        assert count == 1
        if aborted and sender.sending:
            sender.settle(sent, Released())
        else:
            expected.append(message.body)
        while sender.sending:
            remote.window.remote_incoming_window = window
            sender.go_on()
        pair.flush()
    found = deliveries(pair.client_events)
    assert [one.payload for one in found] == expected
    assert receiver.flow_state.delivery_count == sender.flow_state.delivery_count == len(plan)
    assert session.unsettled_in.count == sender.unsettled_count == len(expected)
