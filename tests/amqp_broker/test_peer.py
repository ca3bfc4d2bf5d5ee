"""The frame-level peer counts what passes in either direction, and writes what it is told to."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.frames import (
    AMQP_HEADER,
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Frame,
    FrameReader,
    Open,
    ProtocolHeader,
    Released,
    Source,
    Target,
    TransactionalState,
    Transfer,
    encode_frame,
)
from amqp_broker.testing.peer import Peer, PeerError, PeerReceiver, PeerSender, PeerSession, ids_of

LAST = 2**32 - 1


def told(peer: Peer, performative: object, payload: bytes = b"") -> None:
    """The other side says something on its channel 7."""
    peer.feed(encode_frame(7, performative, payload))
    assert isinstance(peer.received(), Frame) and peer.received() is None


def begun(incoming_window: int = 10) -> tuple[Peer, PeerSession]:
    """A peer with a session that the other side has begun, too, its ids about to wrap."""
    peer = Peer()
    session = peer.begin()
    windows: dict[str, Any] = {"incoming_window": incoming_window, "outgoing_window": 10}
    told(peer, Begin(remote_channel=0, next_outgoing_id=LAST, **windows))
    return peer, session


def sending(credit: int, incoming_window: int = 10) -> tuple[Peer, PeerSender]:
    """A peer with a sending link that has credit, its delivery-count about to wrap."""
    peer, session = begun(incoming_window)
    link = session.attach_sender("s", "q", initial_delivery_count=LAST)
    told(peer, Attach(name="s", handle=5, role=RECEIVER, source=Source(), target=Target(address="q")))
    told(peer, flow(handle=5, delivery_count=LAST, link_credit=credit, incoming_window=incoming_window))
    return peer, link


def receiving(credit: int) -> tuple[Peer, PeerReceiver]:
    """A peer with a receiving link that gave credit, its delivery-count about to wrap."""
    peer, session = begun()
    link = session.attach_receiver("r", "q")
    attach = Attach(name="r", handle=6, role=SENDER, source=Source(address="q"), target=Target())
    attach.initial_delivery_count = LAST
    told(peer, attach)
    link.flow(credit)
    return peer, link


def flow(incoming_window: int = 10, **fields: Any) -> Flow:
    """A flow of the other side, which has received nothing."""
    windows: dict[str, Any] = {"incoming_window": incoming_window, "outgoing_window": 10}
    return Flow(next_incoming_id=0, next_outgoing_id=0, **windows, **fields)


def put(peer: Peer) -> list[object]:
    """What the peer has put since the last call."""
    reader = FrameReader(65_536)
    reader.feed(peer.take())
    return [frame.performative for frame in iter(reader.next, None) if isinstance(frame, Frame)]


def test_credit_and_window_are_used_up_by_what_is_sent() -> None:
    """Credit by delivery, the window by frame; a flow counts from what the other side had received
    (2.6.7).
    """
    peer, link = sending(credit=2, incoming_window=4)
    first = link.send(b"x" * 100_000)
    assert (link.credit, link.delivery_count, link.session.remote_incoming_window) == (1, 0, 2)
    told(peer, flow(handle=5, delivery_count=LAST, link_credit=2, incoming_window=4))
    assert (link.credit, link.session.remote_incoming_window) == (1, 2)
    assert link.send(b"y") == first + 1 and not link.may_send
    with pytest.raises(AssertionError, match="credit 0, window 1"):
        link.send(b"z")
    peer.checks_credit = False
    link.send(b"z")
    assert link.credit == -1


def test_a_frame_of_ones_own_counts_like_one_of_the_peers() -> None:
    """A transfer that is put by hand takes an id, credit and window; its later frames only window."""
    peer, link = sending(credit=5)
    session = link.session
    session.put(Transfer(handle=link.handle, delivery_id=8, delivery_tag=b"t", more=True), b"x")
    link.send_more(more=True)
    assert (link.credit, session.next_delivery_id, session.next_outgoing_id) == (4, 9, 2)
    assert session.sent_unsettled == {8: link}
    link.send_more(aborted=True)
    assert session.sent_unsettled == {} and link.incomplete is None
    peer.put(Transfer(handle=99), b"x", channel=50)
    assert isinstance(put(peer)[-1], Transfer), "what names nothing is written all the same"


def test_outcomes_of_a_range_that_wraps() -> None:
    """A settled outcome forgets the delivery; one that is not settled is followed by another."""
    peer, link = sending(credit=5)
    link.session.next_delivery_id = LAST
    assert [link.send(b"x") for _ in range(3)] == [LAST, 0, 1]
    told(peer, Disposition(role=RECEIVER, first=LAST, last=0, settled=True, state=Accepted()))
    told(peer, Disposition(role=RECEIVER, first=1, settled=False, state=Released()))
    assert link.outcomes == {LAST: Accepted(), 0: Accepted(), 1: Released()}
    assert list(link.settled) == [LAST, 0] and link.session.sent_unsettled == {1: link}
    assert len(list(ids_of(Disposition(role=RECEIVER, first=0, last=LAST)))) == 65_536


def test_a_delivery_takes_its_credit_with_its_first_frame() -> None:
    """It is there with its last one, with the state that it came in; a drain gives back the rest (2.6.7)."""
    peer, link = receiving(credit=3)
    state = TransactionalState(txn_id=b"t")
    told(peer, Transfer(handle=6, delivery_id=4, delivery_tag=b"t", more=True, state=state), b"one ")
    assert (link.credit, link.delivery_count, link.used_up) == (2, 0, False) and not link.deliveries
    link.flow(2, drain=True)
    told(peer, flow(handle=6, delivery_count=2, link_credit=0))
    assert (link.credit, link.delivery_count, link.used_up) == (0, 2, False)
    told(peer, Transfer(handle=6), b"two")
    (delivery,) = link.deliveries
    assert (delivery.payload, delivery.state, link.used_up) == (b"one two", state, True)
    assert link.session.next_incoming_id == 1
    link.settle([delivery], Accepted())
    assert link.session.received_unsettled == {}


def test_what_is_put_and_what_came() -> None:
    """A header, an open, a begin; nothing is answered but an echo."""
    peer = Peer()
    peer.open("c", channel_max=7)
    opening = Open(container_id="c", max_frame_size=65_536, channel_max=7)
    assert peer.take() == AMQP_HEADER + encode_frame(0, opening)
    peer.feed(AMQP_HEADER[:5])
    assert peer.received() is None
    peer.feed(AMQP_HEADER[5:] + encode_frame(0, Open(container_id="d")))
    assert isinstance(peer.received(), ProtocolHeader)
    assert isinstance(peer.received(), Frame) and peer.remote_open == Open(container_id="d")
    peer, link = receiving(credit=3)
    peer.take()
    told(peer, flow(handle=6, delivery_count=LAST, link_credit=3))
    assert put(peer) == []
    told(peer, flow(handle=6, delivery_count=LAST, link_credit=3, echo=True))
    (answer,) = put(peer)
    assert isinstance(answer, Flow) and (answer.handle, answer.link_credit) == (link.handle, 3)


def test_what_belongs_to_nothing_is_an_error() -> None:
    """A frame of no session or link, and an answer to nothing, are not taken."""
    peer, session = begun()
    link = session.attach_sender("s", "q")
    for performative, message in (
        (Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1), "answers none of ours"),
        (Attach(name="s", handle=5, role=SENDER, initial_delivery_count=0), "answers none of ours"),
        (flow(handle=3, link_credit=1), "on handle 3, of no link"),
    ):
        with pytest.raises(AssertionError, match=message):
            told(peer, performative)
    told(peer, Attach(name="s", handle=5, role=RECEIVER, target=Target(address="q")))
    with pytest.raises(AssertionError, match="on which we send"):
        told(peer, Transfer(handle=5, delivery_id=0, delivery_tag=b"t"))
    told(peer, Detach(handle=5))
    with pytest.raises(AssertionError, match="of no link"):
        told(peer, flow(handle=5, link_credit=1))
    assert link.credit == 0


def test_a_channel_is_free_when_both_have_ended() -> None:
    """A session that is begun before that gets another one; or the test says which."""
    peer, session = begun()
    session.end()
    assert peer.begin().channel == 1
    told(peer, End())
    assert session.ended == End() and peer.begin().channel == 2
    assert peer.begin(0).channel == 0


def test_fields_change_the_first_transfer() -> None:
    """Later ones have only the state; each carries as much as was asked for."""
    peer, link = sending(credit=5)
    state = TransactionalState(txn_id=b"t")
    link.send(b"abcde", frame_octets=2, state=state, delivery_tag=b"tag", settled=None)
    first, second, third = put(peer)[-3:]
    assert first == Transfer(
        handle=0, delivery_id=0, delivery_tag=b"tag", message_format=0, more=True, state=state
    )
    assert (second, third) == (Transfer(handle=0, more=True, state=state), Transfer(handle=0, state=state))


def test_a_disposition_for_each_run() -> None:
    """One delivery is named alone, a run by its ends."""
    peer, link = receiving(credit=9)
    link.settle([1, 2, 3, 5])
    assert [(one.first, one.last) for one in put(peer) if isinstance(one, Disposition)] == [(1, 3), (5, None)]


def test_a_detach_with_an_error_is_raised_unless_a_test_looks_itself() -> None:
    """A handle is free when both sides have detached."""
    for raises in (True, False):
        peer, link = sending(credit=1)
        peer.raises_errors = raises
        detach = Detach(handle=5, closed=True, error=Error(condition="amqp:resource-deleted"))
        if raises:
            with pytest.raises(PeerError, match="link s: .*resource-deleted"):
                told(peer, detach)
        else:
            told(peer, detach)
        assert link.detached == detach and link.session.links == {0: link}
        link.detach()
        assert link.session.links == {}
