"""A peer's detach or end behind messages that have no outcome yet: the outcomes first, then the answer."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.frames import (
    RECEIVER,
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    End,
    Error,
    Released,
    encode_frame,
)
from amqp_broker.links import (
    Delivery,
    Limits,
    LinkDetached,
    ReceiverLink,
    SessionEnded,
    SessionState,
)
from tests.links.pair import NOW, Message, Pair, of_type, taken
from tests.links.raw_peer import RawPeer, attached, deliveries, sender_attach, transfer

LEAVE: list[Detach | End] = [Detach(handle=0, closed=True), Detach(handle=0, closed=False), End()]
WAIT_S = Limits().outcome_wait_s


def accepted(first: int, last: int) -> Disposition:
    """What is awaited."""
    return Disposition(role=RECEIVER, first=first, last=last, settled=True, state=Accepted())


def left(leave: Detach | End, count: int = 2, **fields: Any) -> tuple[RawPeer, ReceiverLink, list[Delivery]]:
    """Messages and the leaving in one write."""
    peer, link = attached(credit=100, **fields)
    frames = [encode_frame(0, transfer(number), b"x") for number in range(count)]
    taken_now = deliveries(peer.feed(b"".join([*frames, encode_frame(0, leave)])))
    assert len(taken_now) == count
    return peer, link, taken_now


def ends(peer: RawPeer) -> list[Any]:
    """The ends that the caller was told of."""
    return of_type(peer.events + peer.server.take_events(), LinkDetached)


@pytest.mark.parametrize("leave", LEAVE)
def test_outcomes_come_before_the_answer(leave: Detach | End) -> None:
    """Both in one write: the caller has its time, then the peer hears disposition and answer, in that
    order.
    """
    peer, link, came = left(leave)
    assert peer.heard() == [] and ends(peer) == []
    link.settle(came, Accepted())
    assert peer.heard() == [accepted(0, 1)]
    link.processed(2)
    assert peer.heard() == [leave]
    (told,) = ends(peer)
    assert told.link is link and told.error is None
    assert link.session.held == link.session.unsettled_in.count == 0
    assert not peer.server.leaving_at and not link.session.output_links
    assert link.session.channel in peer.server.sessions or isinstance(leave, End)


@pytest.mark.parametrize("leave", LEAVE)
def test_one_by_one_and_in_any_order(leave: Detach | End) -> None:
    """The last outcome opens the door, whether told before or after processed, at once or later."""
    peer, link, came = left(leave, 3)
    link.processed(3)
    link.settle(came[2:], Released())
    link.settle_later(came[:1], Accepted())
    assert [type(item) for item in peer.heard()] == [Disposition, Disposition]
    link.settle(came[1:2], Accepted())
    assert [type(item) for item in peer.heard()] == [Disposition, type(leave)]


@pytest.mark.parametrize("leave", LEAVE)
def test_without_an_outcome_the_answer_comes_in_time(leave: Detach | End) -> None:
    """Nobody waits for ever: the deadline is told, and at it the end is as it was before."""
    peer, link, came = left(leave)
    assert peer.server.next_deadline() == NOW + WAIT_S
    assert peer.server.handle_timeout(NOW + WAIT_S - 0.01) == []
    assert peer.heard() == []
    told = peer.server.handle_timeout(NOW + WAIT_S)
    assert [event.link for event in of_type(told, LinkDetached)] == [link]
    assert peer.heard() == [leave]
    link.settle(came, Accepted())
    link.processed(2)
    assert peer.heard() == []
    assert peer.server.handle_timeout(NOW + 10 * WAIT_S) == []


@pytest.mark.parametrize("leave", LEAVE)
def test_what_is_settled_or_incomplete_owes_nothing(leave: Detach | End) -> None:
    """A half message will not be completed; without undecided ones the answer comes at once."""
    peer, link, came = left(leave, 0)
    assert peer.heard() == [leave]
    peer, link = attached(credit=100)
    peer.say(transfer(0, more=True), b"half")
    peer.say(leave)
    assert peer.heard() == [leave]
    assert link.session.held == link.session.unsettled_in.count == 0
    assert not peer.server.partial_links


def test_outcomes_of_mode_second_are_enough() -> None:
    """The sender that leaves does not settle any more: what counts is that it was told."""
    peer, link, came = left(LEAVE[0], rcv_settle_mode=1)
    link.processed(2)
    link.settle(came, Accepted())
    assert [type(item) for item in peer.heard()] == [Disposition, Detach]


def test_a_settled_message_is_done_with_first() -> None:
    """Who hears the answer knows that what was sent settled was taken, too."""
    peer, link = attached(credit=100)
    peer.feed(encode_frame(0, transfer(0, settled=True), b"x") + encode_frame(0, LEAVE[0]))
    assert peer.heard() == []
    link.processed(1)
    assert peer.heard() == [LEAVE[0]]


@pytest.mark.parametrize("leave", LEAVE)
def test_the_caller_may_answer_itself(leave: Detach | End) -> None:
    """A detach or end of ours meanwhile is the answer, with its error."""
    error = Error(condition="amqp:resource-deleted", description="gone")
    peer, link, _ = left(leave)
    if isinstance(leave, End):
        link.session.end(error)
        assert peer.heard() == [End(error=error)]
        assert link.session.state is SessionState.UNMAPPED
    else:
        link.detach(error)
        assert peer.heard() == [Detach(handle=0, closed=leave.closed, error=error)]
    assert len(ends(peer)) == 1 and not peer.server.leaving_at
    link.detach()
    link.session.end()
    assert [type(item) for item in peer.heard()] == ([] if isinstance(leave, End) else [End])


def test_the_peers_handle_is_free_at_once() -> None:
    """A client that attaches again behind its detach, with the same handle and another name, need not
    wait.
    """
    peer, link, came = left(LEAVE[0])
    other = peer.attach_sender(0, "other")
    assert other.attached and [item.name for item in peer.heard() if isinstance(item, Attach)] == ["other"]
    link.settle(came, Accepted())
    link.processed(2)
    assert peer.heard() == [accepted(0, 1), LEAVE[0]]
    assert other.attached and link.session.input_links == {0: other}
    (delivery,) = deliveries(peer.say(transfer(2), b"more"))
    assert delivery.payload == b"more"


def test_a_link_of_the_same_name_does_not_overtake_the_answer() -> None:
    """The peer hears of the old link's end before it hears of the new one."""
    peer, link, came = left(LEAVE[0])
    peer.say(sender_attach(0, "up"))
    heard = [item for item in peer.heard() if isinstance(item, (Attach, Detach))]
    assert [type(item) for item in heard] == [Detach, Attach]
    link.settle(came, Accepted())
    link.processed(2)
    assert peer.heard() == []


def test_the_peers_channel_is_free_at_once() -> None:
    """A begin behind the end on the same channel is another session."""
    peer, link, came = left(End())
    session = peer.begin()
    assert session is not link.session
    (begin,) = peer.heard()
    assert isinstance(begin, Begin)
    link.settle(came, Accepted())
    link.processed(2)
    assert [type(frame.performative) for frame in peer.frames()] == [Disposition, End]
    assert list(peer.server.sessions.values()) == [session]


def test_links_that_owe_nothing_end_with_the_peers_end() -> None:
    """Only the link with undecided messages waits: what was sent to the peer goes back at once."""
    pair = Pair().open()
    session, served = pair.begin()
    up, remote_up = pair.sending_client(session)
    _, remote_down = pair.receiving_client(session, credit=5)
    remote_down.send([Message(b"given")])
    pair.flush()
    up.send([Message(b"one")])
    session.end()
    pair.give(pair.server, taken(pair.client))
    assert [event.link for event in of_type(pair.server_events, LinkDetached)] == [remote_down]
    assert of_type(pair.server_events, SessionEnded) == [] and served.leaving is not None
    (came,) = [delivery for event in pair.server_events if hasattr(event, "deliveries")
               for delivery in event.deliveries]  # fmt: skip
    remote_up.settle([came], Accepted())
    remote_up.processed(1)
    assert of_type(pair.server.take_events(), SessionEnded)
    pair.flush()
    assert session.state is SessionState.UNMAPPED


def test_a_lost_connection_ends_what_waits() -> None:
    """Told once, and no deadline is left."""
    for leave in LEAVE:
        peer, link, _ = left(leave)
        events = peer.server.receive_eof(NOW)
        assert [event.link for event in of_type(events, LinkDetached)] == [link]
        assert not peer.server.leaving_at
        assert peer.server.handle_timeout(NOW + 2 * WAIT_S) == []


def test_a_client_answers_at_once() -> None:
    """The broker that detaches has decided what becomes of its deliveries: a client's outcome is too late."""
    pair = Pair().open()
    session, _ = pair.begin()
    _, remote = pair.receiving_client(session, credit=5)
    remote.send([Message(b"one")])
    pair.flush()
    remote.detach()
    pair.give(pair.client, taken(pair.server))
    assert b"\x00\x53\x16" in taken(pair.client)
