"""A peer's detach, end or close behind messages that have no outcome yet: the outcomes first, then the
answer.
"""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.frames import (
    RECEIVER,
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Released,
    encode_frame,
)
from amqp_broker.links import (
    ConnectionClosed,
    Delivery,
    Limits,
    LinkDetached,
    LinkLeaving,
    ReceiverLink,
    SessionEnded,
)
from amqp_broker.links.session_states import SessionState
from tests.links.pair import NOW, Message, of_type, receiving, sending, taken
from tests.links.raw_peer import RawPeer, attached, deliveries, sender_attach, transfer

Leave = Detach | End | Close
LEAVE: list[Leave] = [Detach(handle=0, closed=True), Detach(handle=0, closed=False), End(), Close()]
WAIT_S = Limits().outcome_wait_s


def accepted(first: int, last: int) -> Disposition:
    """What is awaited."""
    return Disposition(role=RECEIVER, first=first, last=last, settled=True, state=Accepted())


def left(leave: Leave, count: int = 2, **fields: Any) -> tuple[RawPeer, ReceiverLink, list[Delivery]]:
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
def test_outcomes_come_before_the_answer(leave: Leave) -> None:
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
    assert link.session.channel in peer.server.sessions or not isinstance(leave, Detach)
    assert peer.server.wants_close is isinstance(leave, Close)


@pytest.mark.parametrize("leave", LEAVE)
def test_one_by_one_and_in_any_order(leave: Leave) -> None:
    """The last outcome opens the door, whether told before or after processed, at once or later."""
    peer, link, came = left(leave, 3)
    link.processed(3)
    link.settle(came[2:], Released())
    link.settle_later(came[:1], Accepted())
    assert [type(item) for item in peer.heard()] == [Disposition, Disposition]
    link.settle(came[1:2], Accepted())
    assert [type(item) for item in peer.heard()] == [Disposition, type(leave)]


@pytest.mark.parametrize("leave", LEAVE)
def test_without_an_outcome_the_answer_comes_in_time(leave: Leave) -> None:
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
def test_what_is_settled_or_incomplete_owes_nothing(leave: Leave) -> None:
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
def test_the_caller_may_answer_itself(leave: Leave) -> None:
    """A detach or end of ours meanwhile is the answer, with its error."""
    error = Error(condition="amqp:resource-deleted", description="gone")
    peer, link, _ = left(leave)
    if isinstance(leave, Close):
        peer.server.close(error)
        assert peer.heard() == [Close(error=error)]
        assert peer.server.wants_close
    elif isinstance(leave, End):
        link.session.end(error)
        assert peer.heard() == [End(error=error)]
        assert link.session.state is SessionState.UNMAPPED
    else:
        link.detach(error)
        assert peer.heard() == [Detach(handle=0, closed=leave.closed, error=error)]
    assert len(ends(peer)) == 1 and not peer.server.leaving_at
    link.detach()
    link.session.end()
    assert [type(item) for item in peer.heard()] == ([End] if isinstance(leave, Detach) else [])


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
    pair, up, remote_up = sending()
    session = up.session
    served = remote_up.session
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
    pair, _, remote = receiving(credit=5)
    remote.send([Message(b"one")])
    pair.flush()
    remote.detach()
    pair.give(pair.client, taken(pair.server))
    assert b"\x00\x53\x16" in taken(pair.client)


@pytest.mark.parametrize("leave", LEAVE)
def test_the_caller_is_told_where_the_peer_left(leave: Leave) -> None:
    """Once, and before what came later: what hangs on the link ends at that place, wherever a read ended."""
    peer, link = attached(credit=100)
    other = peer.attach_sender(1, "other")
    frames = [encode_frame(0, transfer(0), b"x"), encode_frame(0, leave)]
    if isinstance(leave, Detach):
        frames.append(encode_frame(0, transfer(1, handle=1), b"y"))
    frames.extend([] if isinstance(leave, Close) else [encode_frame(0, Close())])
    events = peer.feed(b"".join(frames))
    told = [event.link for event in of_type(events, LinkLeaving)]
    assert told == ([link, other] if isinstance(leave, Detach) else [link])
    if isinstance(leave, Detach):
        assert type(events[1]) is LinkLeaving
    else:
        assert [event.link for event in of_type(events, LinkDetached)] == [other]


def test_a_detach_and_an_end_before_the_close_are_answered_in_their_order() -> None:
    """Each waits for the same outcome; what comes behind a close is not read."""
    peer, link = attached(credit=100)
    say = [transfer(0), Detach(handle=0, closed=True), End(), Close()]
    peer.feed(b"".join([encode_frame(0, each, b"x" if each is say[0] else b"") for each in say]))
    (came,) = deliveries(peer.events)
    assert peer.heard() == []
    peer.feed(encode_frame(0, Begin(next_outgoing_id=0, incoming_window=9, outgoing_window=9)) + b"rubbish")
    assert not peer.server.takes_data()
    link.settle([came], Accepted())
    link.processed(1)
    assert [type(item) for item in peer.heard()] == [Disposition, End, Close]
    (closed,) = of_type(peer.server.take_events(), ConnectionClosed)
    assert closed.error is None and not closed.local


def test_the_close_waits_for_all_links_of_all_sessions() -> None:
    """One that we end meanwhile counts as answered; so does a session."""
    peer = RawPeer(credit=100).open()
    links = []
    for channel in range(4):
        peer.begin(channel)
        links.append(peer.attach_sender(0, f"up-{channel}", channel))
    down = peer.attach_receiver(1, "down", 3, credit=5)
    down.send([Message(b"given")])
    frames = [encode_frame(channel, transfer(0), b"x") for channel in range(4)]
    peer.heard()
    events = peer.feed(b"".join([*frames, encode_frame(0, Close())]))
    assert [event.link for event in of_type(events, LinkDetached)] == [down]
    came = deliveries(events)
    links[0].settle(came[:1], Accepted())
    links[0].processed(1)
    links[1].detach(Error(condition="amqp:not-found"))
    links[2].session.end(Error(condition="amqp:decode-error"))
    assert [type(item) for item in peer.heard()] == [Disposition, Detach, End]
    assert not peer.server.wants_close
    links[3].processed(1)
    links[3].settle_later(came[3:], Accepted())
    assert [type(item) for item in peer.heard()] == [Disposition, Close]
    assert peer.server.wants_close and len(of_type(peer.server.take_events(), LinkDetached)) == 4


def test_our_end_of_a_link_is_enough_for_the_peers_end() -> None:
    """The answer to it need not wait for its time: no outcome comes on a link that has ended."""
    peer, link, _ = left(End())
    link.detach(Error(condition="amqp:not-found"))
    assert [type(item) for item in peer.heard()] == [End]


def test_who_has_closed_is_not_taken_for_silent() -> None:
    """While its close waits nothing more comes, however long that may be."""
    peer = RawPeer(100, Limits(outcome_wait_s=3600.0))
    peer, link = attached(peer=peer)
    peer.feed(encode_frame(0, transfer(0), b"x") + encode_frame(0, Close()))
    for minute in range(1, 60):
        peer.server.handle_timeout(NOW + 60.0 * minute)
    assert peer.heard() == [] and not peer.server.wants_close
    peer.server.handle_timeout(NOW + 3600.0)
    assert peer.heard() == [Close()]
