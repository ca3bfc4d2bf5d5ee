"""Sessions: begin, end, handles, windows and their errors, as transcripts (2.5)."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.frames import Attach, Begin, Detach, End, Error, Flow
from amqp_broker.links import (
    AttachReceived,
    CreditReceived,
    DeliveriesReceived,
    Limits,
    LinkDetached,
    LocalProtocolError,
    SessionBegun,
    SessionEnded,
)
from amqp_broker.links.session_frames import _handles
from amqp_broker.links.session_states import SessionState
from tests.links.pair import NOW, Message, Pair, of_type, receiving, taken
from tests.links.raw_peer import (
    WINDOW,
    RawPeer,
    closed_with,
    ended_with,
    flow,
    in_session,
    sender_attach,
    transfer,
)


def test_begin_is_answered_on_our_lowest_channel() -> None:
    """2.5.1: the answer names the peer's channel; channels are chosen independently."""
    peer = RawPeer().open()
    peer.heard()
    session = peer.begin(channel=5)
    (frame,) = peer.frames()
    assert frame.channel == 0
    assert frame.performative == Begin(
        remote_channel=5, next_outgoing_id=0, incoming_window=5000, outgoing_window=WINDOW, handle_max=4095
    )
    assert of_type(peer.events, SessionBegun)[0].session is session


def test_end_is_answered_and_frees_the_channels() -> None:
    """2.5.2: links go first, then the session; the channel can be used again."""
    peer = in_session()
    peer.attach_sender()
    peer.heard()
    events = peer.say(End(error=Error(condition="amqp:internal-error")))
    assert peer.heard() == [End()]
    assert [type(event) for event in events] == [LinkDetached, SessionEnded]
    assert events[1].error.condition == "amqp:internal-error"  # type: ignore[attr-defined]
    assert peer.begin().state is SessionState.MAPPED


def test_our_end_drops_what_is_on_its_way() -> None:
    """2.5.3: told at once; frames until the peer's end are dropped; it is not told twice."""
    peer = in_session()
    session = peer.server.incoming[0]
    peer.attach_sender()
    peer.heard()
    session.end()
    assert [type(event) for event in peer.server.take_events()] == [LinkDetached, SessionEnded]
    session.end()
    assert peer.heard() == [End()]
    assert peer.say(transfer(0), b"late") == []
    assert peer.say(sender_attach(3, "late")) == []
    assert peer.say(End()) == []
    assert session.state is SessionState.UNMAPPED
    assert peer.heard() == []


def test_both_end_at_once() -> None:
    """2.5.3: each takes the other's end as the answer."""
    pair = Pair().open()
    mine, theirs = pair.begin()
    mine.end()
    theirs.end()
    pair.flush()
    assert mine.state is theirs.state is SessionState.UNMAPPED
    assert not pair.client.sessions and not pair.server.sessions and not pair.server.incoming


@pytest.mark.parametrize("remote_channel", [0, 3])
def test_begin_as_an_answer_to_nothing(remote_channel: int) -> None:
    """2.5.1: remote-channel MUST NOT be set by the one who begins."""
    peer = RawPeer().open()
    peer.say(Begin(remote_channel=remote_channel, next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    closed_with(peer, "amqp:not-allowed")


def test_begin_on_a_channel_that_has_a_session() -> None:
    """2.5.1: an unused channel number."""
    peer = in_session()
    peer.say(Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    closed_with(peer, "amqp:not-allowed")


# --- handles


def test_a_handle_in_use_closes() -> None:
    """2.7.3: an immediate close carrying a handle-in-use session-error."""
    peer = in_session()
    peer.attach_sender(0, "one")
    peer.say(sender_attach(0, "two"))
    assert "'one'" in closed_with(peer, "amqp:session:handle-in-use")


def test_a_handle_beyond_handle_max_closes() -> None:
    """2.7.2: a handle outside the supported range MUST close with framing-error."""
    peer = in_session(handle_max=1)
    peer.attach_sender(1)
    peer.say(sender_attach(2, "two"))
    closed_with(peer, "amqp:connection:framing-error")


def test_four_thousand_and_ninety_six_links() -> None:
    """The limits table; the announced handle-max says so."""
    peer = in_session()
    session = peer.server.incoming[0]
    for handle in range(4_096):
        peer.attach_sender(handle, f"link {handle}")
    assert len(session.output_links) == 4_096
    peer.say(sender_attach(4_096, "beyond"))
    assert "limits.max_links_per_session" in closed_with(peer, "amqp:connection:framing-error")


def test_all_sessions_together_have_a_bound_of_links() -> None:
    """Refused links and those that we detached count until the peer has answered: they take memory, too."""
    limits = Limits(links_per_session=4, links_per_connection=6)
    peer = RawPeer(credit=1, limits=limits).open()
    first = peer.begin()
    for handle in range(4):
        peer.attach_sender(handle, f"link {handle}")
    peer.server.take_events()
    for link in list(first.output_links.values()):
        link.detach()
    peer.begin(1)
    for handle in range(2):
        peer.attach_sender(handle, f"other {handle}", channel=1)
    peer.heard()
    peer.say(sender_attach(2, "beyond"), channel=1)
    ended_with(peer, "amqp:resource-limit-exceeded")
    assert peer.server.link_count == 4
    peer.say(End(), channel=1)
    for handle in range(4):
        peer.say(Detach(handle=handle, closed=True))
    assert peer.server.link_count == 0
    assert peer.attach_sender(0, "again").attached


def test_the_lowest_free_handle_is_ours() -> None:
    """2.7.3: whatever was detached in between, and whatever handles the peer uses."""
    peer = in_session()
    session = peer.server.incoming[0]
    links = [peer.attach_sender(9 - handle, f"link {handle}") for handle in range(6)]
    assert [link.handle for link in links] == [0, 1, 2, 3, 4, 5]
    for number in (4, 1, 2):
        peer.say(Detach(handle=9 - number, closed=True))
    assert [peer.attach_sender(20 + n, f"new {n}").handle for n in range(4)] == [1, 2, 4, 6]
    peer.say(Detach(handle=9, closed=True))
    assert session.free_handle() == session.free_handle() == 0


@pytest.mark.parametrize(
    "frame",
    [transfer(0, handle=7), flow(handle=7, link_credit=1), Detach(handle=7)],
    ids=["transfer", "flow", "detach"],
)
def test_an_unattached_handle_ends_the_session(frame: object) -> None:
    """2.7.4, 2.8.17: and the text says which handles there are."""
    peer = in_session()
    for handle in range(4):
        peer.attach_sender(handle, f"link {handle}")
    events = peer.say(frame)
    name = type(frame).__name__.lower()
    assert ended_with(peer, "amqp:session:unattached-handle") == (
        f"{name} on handle 7, but the session has handles 0-3"
    )
    assert [type(event) for event in events] == [LinkDetached] * 4 + [SessionEnded]


def test_handles_in_words() -> None:
    """Short also when there are many."""
    assert _handles({}) == "no handles"
    assert _handles(dict.fromkeys([3])) == "handle 3"  # type: ignore[arg-type]
    assert _handles(dict.fromkeys([0, 1, 5])) == "handles 0-1, 5"  # type: ignore[arg-type]
    assert _handles(dict.fromkeys(range(0, 100, 2))).endswith("14, ...")  # type: ignore[arg-type]


def test_after_a_session_error_the_rest_is_dropped() -> None:
    """2.5.4: frames are discarded until the peer's end; other sessions go on."""
    peer = RawPeer(credit=10).open()
    peer.begin(channel=0)
    peer.begin(channel=1)
    other = peer.attach_sender(channel=1)
    peer.say(transfer(0, handle=7))
    peer.heard()
    assert peer.say(transfer(1, handle=7)) == []
    assert peer.say(sender_attach()) == []
    (event,) = peer.say(transfer(0), b"x", channel=1)
    assert isinstance(event, DeliveriesReceived) and event.link is other
    assert peer.say(End()) == []
    assert peer.heard() == []
    assert peer.begin(channel=0).state is SessionState.MAPPED


# --- windows


def test_transfers_beyond_the_window_end_the_session() -> None:
    """2.8.17: window-violation; what came before is told."""
    peer = in_session(credit=100, limits=Limits(unsettled_per_link=5, unsettled_per_session=5))
    peer.credit = 5
    peer.attach_sender(0, "a")
    peer.attach_sender(1, "b")
    for number in range(5):
        peer.say(transfer(number), b"x")
    events = peer.say(transfer(5, handle=1), b"x")
    assert not of_type(events, DeliveriesReceived)
    assert "5" in ended_with(peer, "amqp:session:window-violation")
    assert sum(len(event.deliveries) for event in of_type(peer.events, DeliveriesReceived)) == 5


def test_the_window_is_renewed_as_deliveries_are_processed() -> None:
    """Reading alone renews nothing; half of the window processed does (back-pressure in the protocol's
    words).
    """
    peer = in_session(credit=1000, limits=Limits(unsettled_per_link=10, unsettled_per_session=10))
    link = peer.attach_sender(snd_settle_mode=1)
    peer.heard()
    for number in range(10):
        peer.say(transfer(number, settled=True), b"x")
    assert peer.heard() == []
    link.processed(4)
    (first,) = peer.heard()
    assert isinstance(first, Flow) and first.incoming_window == 4 and first.next_incoming_id == 10
    link.processed(6)
    (second,) = peer.heard()
    assert isinstance(second, Flow) and second.incoming_window == 10 and second.link_credit == 10


def test_a_large_message_does_not_shut_the_window() -> None:
    """Frames of a delivery that is not complete are bounded by memory, not by the window."""
    peer = in_session(credit=1, limits=Limits(unsettled_per_link=4, unsettled_per_session=4))
    peer.attach_sender()
    for _ in range(50):
        peer.say(transfer(0, more=True), b"x" * 100)
    events = peer.say(transfer(0), b"end")
    assert len(of_type(events, DeliveriesReceived)[0].deliveries[0].payload) == 5003


def test_the_peers_window_stops_us() -> None:
    """2.5.6: no transfer beyond remote-incoming-window; when it opens, the caller is told."""
    peer = RawPeer().open()
    peer.begin(incoming_window=3)
    link = peer.attach_receiver(credit=0)
    peer.say(flow(incoming_window=3, handle=0, delivery_count=0, link_credit=10))
    messages = [Message(b"x")] * 8
    assert link.sendable() == 3
    assert link.send(messages) == 3
    assert link.send(messages) == 0
    events = peer.say(flow(next_incoming_id=3, incoming_window=2))
    assert [event.link for event in of_type(events, CreditReceived)] == [link]
    assert link.send(messages) == 2


def test_the_window_counts_from_where_the_peer_stands() -> None:
    """2.5.6: next-incoming-id + incoming-window - next-outgoing-id; what is in flight counts."""
    peer = RawPeer().open()
    session = peer.begin(incoming_window=10)
    link = peer.attach_receiver(credit=100)
    peer.say(flow(incoming_window=10))
    assert link.send([Message(b"x")] * 4) == 4
    peer.say(flow(next_incoming_id=1, incoming_window=10))
    assert session.window.remote_incoming_window == 7
    peer.say(flow(next_incoming_id=None, incoming_window=10))
    assert session.window.remote_incoming_window == 6


def test_echo_is_answered_once_for_each_read() -> None:
    """2.7.4: a flood of echoes costs one answer; the answer asks for nothing."""
    peer = in_session()
    from amqp_broker.frames import encode_frame

    peer.feed(encode_frame(0, flow(echo=True)) * 100)
    (answer,) = peer.heard()
    assert isinstance(answer, Flow) and not answer.echo and answer.handle is None


@pytest.mark.parametrize(
    "fields",
    [{"delivery_count": 1}, {"link_credit": 5}, {"available": 0}, {"drain": True}, {"properties": {"x": 1}}],
)
@pytest.mark.parametrize("hot_path", [True, False])
def test_a_link_state_without_a_link(fields: dict[str, Any], hot_path: bool) -> None:
    """2.7.4: without handle, none of the fields of a link's state MUST be set, nor the properties."""
    peer = RawPeer().open()
    peer.server.hot_path = hot_path
    peer.begin()
    peer.say(flow(**fields))
    ended_with(peer, "amqp:invalid-field")


def test_a_flow_of_a_session_alone() -> None:
    """What is about the session, with drain and echo said to be false, is taken."""
    peer = in_session()
    session = peer.server.incoming[0]
    peer.say(flow(drain=False, echo=False, incoming_window=7))
    assert peer.heard() == [] and session.window.remote_incoming_window == 7


# --- attach


def test_an_attached_sender_without_delivery_count() -> None:
    """2.7.3: initial-delivery-count MUST NOT be null if role is sender."""
    peer = in_session()
    peer.say(sender_attach(initial_delivery_count=None))
    ended_with(peer, "amqp:invalid-field")


def test_reading_stops_at_an_attach_until_it_is_answered() -> None:
    """Pipelined transfers wait for the answer, and are taken up to the credit given in it."""
    from amqp_broker.frames import encode_frame

    peer = in_session()
    peer.answering = False
    events = peer.feed(encode_frame(0, sender_attach()) + encode_frame(0, transfer(0), b"x"))
    assert [type(event) for event in events] == [AttachReceived]
    assert peer.feed(b"") == []
    events[0].link.accept(credit=1)  # type: ignore[attr-defined]
    assert [type(event) for event in peer.feed(b"")] == [DeliveriesReceived]
    with pytest.raises(LocalProtocolError):
        events[0].link.accept()  # type: ignore[attr-defined]


def test_a_refused_link() -> None:
    """2.6.3: an attach without our terminus, then a closing detach; transfers in flight are dropped."""
    peer = in_session()
    peer.answering = False
    (event,) = peer.say(sender_attach())
    assert isinstance(event, AttachReceived)
    peer.heard()
    event.link.refuse(Error(condition="amqp:not-found", description="no such queue"))
    attach, detach = peer.heard()
    assert isinstance(attach, Attach) and attach.target is None and attach.source is not None
    assert detach == Detach(
        handle=0, closed=True, error=Error(condition="amqp:not-found", description="no such queue")
    )
    assert peer.say(transfer(0), b"x") == []
    assert peer.say(flow(handle=0, delivery_count=0, link_credit=None)) == []
    assert peer.say(Detach(handle=0, closed=True)) == []
    assert peer.heard() == []
    peer.answering = True
    assert peer.attach_sender().attached


def test_a_refused_receiver_gets_no_source() -> None:
    """2.6.3: the local terminus is what is missing."""
    from tests.links.raw_peer import receiver_attach

    peer = in_session()
    peer.answering = False
    (event,) = peer.say(receiver_attach())
    peer.heard()
    event.link.refuse(Error(condition="amqp:not-found"))  # type: ignore[attr-defined]
    attach = peer.heard()[0]
    assert attach.source is None and attach.target is not None


def test_a_resumed_link_gets_our_empty_unsettled_map() -> None:
    """2.6.13: we keep nothing of former links, so the peer sends again; without a map there is none in the
    answer.
    """
    peer = in_session()
    peer.attach_sender(0, "resumed", unsettled={b"tag": None})
    peer.attach_sender(1, "fresh")
    resumed, fresh = [item for item in peer.heard() if isinstance(item, Attach)]
    assert resumed.unsettled == {} and fresh.unsettled is None


def test_a_link_is_stolen_by_an_attach_of_the_same_name() -> None:
    """2.6.1: the second attach succeeds, the first is closed with amqp:link:stolen, also across sessions."""
    peer = RawPeer().open()
    peer.begin(channel=0)
    peer.begin(channel=1)
    first = peer.attach_sender(0, "same", channel=0)
    down = peer.attach_receiver(1, "same", channel=0)
    peer.heard()
    second = peer.attach_sender(0, "same", channel=1)
    assert second.attached and not first.attached and down.attached
    detach = peer.heard()[0]
    assert isinstance(detach, Detach) and detach.closed and detach.error is not None
    assert detach.error.condition == "amqp:link:stolen"
    (told,) = of_type(peer.events, LinkDetached)
    assert told.link is first and told.closed


# --- the client's side


def test_a_client_attaches_before_its_begin_is_answered() -> None:
    """2.4.2: begin and attach may be pipelined."""
    pair = Pair().open()
    session = pair.client.begin()
    link = session.attach_sender("early")
    pair.flush()
    assert link.attached and link.credit == 100


def test_a_session_cannot_end_before_it_is_mapped() -> None:
    """2.5.5: BEGIN_SENT knows no end."""
    pair = Pair().open()
    session = pair.client.begin()
    with pytest.raises(LocalProtocolError):
        session.end()


def test_no_handle_is_left() -> None:
    """The peer's handle-max bounds the links that we attach."""
    pair = Pair(server={"handle_max": 1}).open()
    session, _ = pair.begin()
    session.attach_sender("a")
    session.attach_sender("b")
    with pytest.raises(LocalProtocolError):
        session.attach_sender("c")


def test_unsettled_goes_with_the_session() -> None:
    """What a sender had unsettled is told, in order, when the session ends."""
    pair, receiver, sender = receiving(credit=5)
    sender.send([Message(b"a"), Message(b"b")])
    pair.flush()
    receiver.session.end()
    events = pair.server.receive_data(taken(pair.client), NOW)
    (detached,) = of_type(events, LinkDetached)
    assert [delivery.message.body for delivery in detached.unsettled] == [b"a", b"b"]
