"""Sending: transfers, credit, drain, outcomes and settling, as transcripts (2.6.7, 2.6.12, 2.6.14)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import (
    RECEIVER,
    SENDER,
    Accepted,
    Attach,
    Detach,
    Disposition,
    Flow,
    Modified,
    Released,
    TransactionalState,
    Transfer,
    encode_frame,
)
from amqp_broker.links import (
    CreditReceived,
    Limits,
    LinkDetached,
    LocalProtocolError,
    OutcomesReceived,
    SenderLink,
)
from tests.links.pair import Message, of_type, taken
from tests.links.raw_peer import RawPeer, flow, in_session
from tests.support.examples import examples


def attached(
    credit: int = 100, peer: RawPeer | None = None, frame: int | None = None, **fields: Any
) -> tuple[RawPeer, SenderLink]:
    """A peer with one link on which it receives."""
    peer = peer or RawPeer()
    peer.open(**({} if frame is None else {"max_frame_size": frame})).begin()
    link = peer.attach_receiver(credit=credit, **fields)
    peer.heard()
    return peer, link


def messages(count: int) -> list[Message]:
    """Small messages with a header section each."""
    return [Message(b"body %d" % index, b"header ") for index in range(count)]


# --- transfers


def test_what_is_larger_than_the_peer_takes_is_not_sent() -> None:
    """2.7.3: the peer's max-message-size goes, header and all; an octet more is the caller's mistake."""
    peer, link = attached(max_message_size=100)
    assert link.remote_max_message_size == 100
    assert link.send([Message(bytes(96), b"head")]) == 1
    peer.frames()
    for attempt in (link.send, lambda each: link.send_in(each, TransactionalState(txn_id=b"1"))):
        with pytest.raises(LocalProtocolError, match="100 octets"):
            attempt([Message(b"fits"), Message(bytes(97), b"head")])
    assert peer.frames() == []


class Numbered(Message):
    """A message with an offset, as what is read by one."""

    def __init__(self, offset: int, body: bytes) -> None:
        super().__init__(body)
        self.offset = offset


def test_copies_are_forgotten_when_they_are_out() -> None:
    """Of what is only a copy memory keeps the offset while it is unsettled, not its octets: those of a large
    one as soon as its last transfer is written.
    """
    peer, link = attached(frame=512)
    link.copies = True
    assert link.send([Numbered(5, b"small"), Numbered(6, bytes(2_000))]) == 2
    small, large = peer.server.sessions[0].unsettled_out.values()
    assert (small.message.offset, hasattr(small.message, "body")) == (5, False)
    assert b"".join(frame.payload for frame in peer.frames()) == b"small" + bytes(2_000)
    assert (large.message.offset, hasattr(large.message, "body")) == (6, False)
    peer.say(Disposition(role=RECEIVER, first=0, last=1, settled=True, state=Accepted()))
    assert [each.message.offset for each in of_type(peer.events, OutcomesReceived)[0].deliveries] == [5, 6]


def test_what_is_sent() -> None:
    """2.7.5: id, tag, format, settled, and the message's bytes unchanged: header_bytes, then body."""
    peer, link = attached()
    assert link.send([Message(b"body", b"head", 5), Message(b"next")]) == 2
    first, second = peer.frames()
    assert first.performative == Transfer(
        handle=0, delivery_id=0, delivery_tag=b"\0\0\0\0", message_format=5, settled=False
    )
    assert first.payload == b"headbody"
    assert second.performative.delivery_id == 1 and second.performative.message_format == 0
    assert second.payload == b"next"


@pytest.mark.parametrize(
    ("mode", "asked", "settled"), [(0, True, False), (1, False, True), (2, False, False), (2, True, True)]
)
def test_the_settle_mode_of_the_link_decides(mode: int, asked: bool, settled: bool) -> None:
    """2.7.3: the receiver's wish is honoured; in mode mixed the caller decides."""
    peer, link = attached(snd_settle_mode=mode)
    assert link.snd_settle_mode == mode
    link.send(messages(1), settled=asked)
    assert [item.settled for item in peer.heard()] == [settled]
    assert link.unsettled_count == (0 if settled else 1)


def test_credit_is_never_exceeded() -> None:
    """2.6.7: what is taken is what credit allows."""
    peer, link = attached(credit=3)
    assert link.sendable() == 3
    assert link.send(messages(5)) == 3
    assert link.send(messages(5)) == 0
    events = peer.say(flow(handle=0, delivery_count=2, link_credit=3))
    assert [event.link for event in of_type(events, CreditReceived)] == [link]
    assert link.credit == 2
    assert link.send(messages(5)) == 2


def test_credit_from_a_receiver_that_knows_no_count() -> None:
    """2.6.7: an unset delivery-count is the initial one."""
    peer = RawPeer(initial_delivery_count=2**32 - 1)
    peer, link = attached(credit=0, peer=peer)
    peer.say(flow(handle=0, link_credit=4))
    assert link.send(messages(9)) == 4
    peer.say(flow(handle=0, delivery_count=3, link_credit=1))
    assert link.send(messages(9)) == 1


def test_the_delivery_count_is_announced() -> None:
    """2.7.3: initial-delivery-count MUST NOT be null for a sender."""
    peer = in_session(initial_delivery_count=7)
    peer.attach_receiver()
    (attach,) = [item for item in peer.heard() if isinstance(item, Attach)]
    assert attach.initial_delivery_count == 7


def test_ids_turn_over() -> None:
    """Transfer-ids and delivery-ids wrap at 2^32; outcomes find their deliveries."""
    peer = RawPeer(next_outgoing_id=2**32 - 2)
    peer, link = attached(credit=0, peer=peer)
    peer.say(flow(next_incoming_id=2**32 - 2, handle=0, delivery_count=0, link_credit=10))
    assert link.send(messages(4)) == 4
    assert [item.delivery_id for item in peer.heard()] == [2**32 - 2, 2**32 - 1, 0, 1]
    (event,) = peer.say(Disposition(role=RECEIVER, first=2**32 - 1, last=0, settled=True, state=Accepted()))
    assert [delivery.delivery_id for delivery in event.deliveries] == [2**32 - 1, 0]  # type: ignore[attr-defined]
    assert [delivery.delivery_tag for delivery in event.deliveries] == [b"\xff\xff\xff\xff", b"\0\0\0\0"]  # type: ignore[attr-defined]


@pytest.mark.parametrize("settled", [True, False])
def test_a_large_message_goes_in_pieces(settled: bool) -> None:
    """2.6.14: more on all but the last; no frame is larger than the peer takes; one delivery, one credit."""
    peer, link = attached(frame=512, credit=2, snd_settle_mode=1 if settled else 0)
    large = Message(bytes(range(256)) * 20, b"head" * 200)
    assert link.send([Message(b"small"), large, Message(b"never")]) == 2
    frames = peer.frames()
    small, first, *rest = frames
    assert small.payload == b"small" and first.performative.more
    assert all(frame.performative.delivery_id is None for frame in rest)
    assert [frame.performative.more for frame in rest] == [True] * (len(rest) - 1) + [False]
    assert b"".join(frame.payload for frame in frames[1:]) == large.header_bytes + large.body
    assert link.credit == 0 and link.unsettled_count == (0 if settled else 2)


@examples(30)
@given(st.lists(st.integers(0, 3_000), min_size=1, max_size=6), st.sampled_from([512, 600, 1_000]))
def test_no_frame_is_too_large_and_no_byte_is_lost(sizes: list[int], frame: int) -> None:
    """Whatever the sizes, the frames keep the peer's limit and carry the messages."""
    peer, link = attached(frame=frame)
    sent = [Message(b"b" * size, b"h" * (size % 50)) for size in sizes]
    assert link.send(sent) == len(sent)
    data = taken(peer.server)
    payloads: list[bytes] = [b""]
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        assert size <= frame
        from amqp_broker.frames import FrameReader

        reader = FrameReader(frame)
        reader.feed(data[at : at + size])
        item: Any = reader.next()
        payloads[-1] += item.payload
        if not item.performative.more:
            payloads.append(b"")
        at += size
    assert payloads[:-1] == [message.header_bytes + message.body for message in sent]


def test_a_large_message_waits_for_the_window() -> None:
    """2.5.6: it stops in the middle, nothing of the link overtakes it, and it goes on with the window."""
    peer = RawPeer().open(max_frame_size=512)
    peer.begin(incoming_window=2)
    link = peer.attach_receiver()
    peer.say(flow(incoming_window=2, handle=0, delivery_count=0, link_credit=10))
    peer.heard()
    assert link.send([Message(b"x" * 1_800), Message(b"y")]) == 1
    assert link.send([Message(b"y")]) == link.sendable() == 0
    assert len(peer.heard()) == 2
    events = peer.say(flow(next_incoming_id=2, incoming_window=10))
    assert len(peer.heard()) == 2
    assert [event.link for event in of_type(events, CreditReceived)] == [link]
    assert link.send([Message(b"y")]) == 1


def test_a_large_message_waits_for_the_output() -> None:
    """The output bound holds; what is left follows as the transport takes it."""
    peer, link = attached(frame=65_536)
    assert link.send([Message(b"x" * 2_000_000), Message(b"y")]) == 1
    assert peer.server.output_size() < 262_144 + 65_536
    pieces = []
    while chunks := peer.server.data_to_send():
        assert sum(map(len, chunks)) < 262_144 + 65_536
        pieces.extend(chunks)
    assert 2_000_000 < len(b"".join(pieces)) < 2_010_000
    assert link.send([Message(b"y")]) == 1


def test_full_output_takes_nothing() -> None:
    """256 KiB wait, then send takes nothing until they were taken."""
    peer, link = attached(credit=10_000)
    count = link.send([Message(b"x" * 1_000)] * 2_000)
    assert 250 < count < 300
    output = peer.server.output
    assert link.send(messages(1)) == link.sendable() == 0 and output.next_waiting() is None
    taken(peer.server)
    assert output.next_waiting() is link and output.next_waiting() is None
    assert link.send(messages(1)) == 1


def test_one_that_is_gone_waits_for_no_room() -> None:
    """Who is asked next is there to be asked."""
    peer, link = attached(credit=10_000)
    link.send([Message(b"x" * 1_000)] * 2_000)
    peer.say(Detach(handle=0, closed=True))
    assert not peer.server.output.waiting


def test_unsettled_limits_stop_the_sender() -> None:
    """2,048 for each link, 5,000 for each session; outcomes make room and the caller is told."""
    peer = RawPeer(limits=Limits(unsettled_per_link=3, unsettled_per_session=5))
    peer, first = attached(peer=peer, credit=100)
    second = peer.attach_receiver(1, "second", credit=100)
    peer.heard()
    assert first.send(messages(9)) == 3
    assert second.send(messages(9)) == 2
    assert first.send(messages(9)) == second.send(messages(9)) == 0
    assert not peer.server.output.waiting  # which has room
    events = peer.say(Disposition(role=RECEIVER, first=0, last=0, settled=True, state=Accepted()))
    assert [event.link for event in of_type(events, CreditReceived)] == [first, second]
    assert second.send(messages(9)) == 1
    assert first.send(messages(9)) == 0


def test_a_receiver_with_an_incomplete_map_gets_nothing_new() -> None:
    """2.7.3: on receipt of an incomplete unsettled map no new deliveries MUST be sent."""
    peer, link = attached(unsettled={b"t": None}, incomplete_unsettled=True)
    assert link.credit == 100
    assert link.send(messages(1)) == link.sendable() == 0


# --- drain


def test_drained_gives_the_credit_back() -> None:
    """2.6.7: the delivery-count advances by what is left, and the flow says so."""
    peer, link = attached(credit=0)
    peer.say(flow(handle=0, delivery_count=0, link_credit=10, drain=True))
    assert link.drain
    assert link.send(messages(4)) == 4
    link.set_available(0)
    link.drained()
    answer = peer.heard()[-1]
    assert isinstance(answer, Flow)
    assert (answer.delivery_count, answer.link_credit, answer.available, answer.drain) == (10, 0, 0, True)
    assert link.credit == 0
    link.drained()
    assert peer.heard() == []


def test_drained_without_a_wish_says_nothing() -> None:
    """Only the receiver can ask for it."""
    peer, link = attached(credit=5)
    link.drained()
    assert peer.heard() == [] and link.credit == 5


def test_a_drain_without_credit_is_answered() -> None:
    """A receiver that asks with nothing outstanding gets its word; so does one whose credit went into
    messages.
    """
    peer, link = attached(credit=0)
    peer.say(flow(handle=0, delivery_count=0, link_credit=0, drain=True))
    (answer,) = peer.heard()
    assert (answer.delivery_count, answer.link_credit) == (0, 0)
    peer.say(flow(handle=0, delivery_count=0, link_credit=2, drain=True))
    assert link.send(messages(2)) == 2
    assert isinstance(peer.heard()[-1], Flow)


def test_available_is_told() -> None:
    """2.6.7: in the answer to an echo, reduced by what was sent since."""
    peer, link = attached(credit=10)
    link.set_available(50)
    link.send(messages(3))
    peer.heard()
    peer.say(flow(handle=0, delivery_count=3, link_credit=7, echo=True))
    (answer,) = peer.heard()
    assert (answer.available, answer.link_credit, answer.delivery_count) == (47, 7, 3)
    peer.say(flow(handle=0, delivery_count=3, link_credit=0, echo=True))
    link.set_available(60)
    assert peer.server.output_size() > 0
    (answer,) = peer.heard()
    assert (answer.available, answer.link_credit) == (60, 0)


def test_many_flows_are_one_event() -> None:
    """A read tells each link's credit once."""
    peer, link = attached(credit=0)
    frames = b"".join(encode_frame(0, flow(handle=0, delivery_count=0, link_credit=n)) for n in range(50))
    assert [type(event) for event in peer.feed(frames)] == [CreditReceived]
    assert link.credit == 49
    assert [type(event) for event in peer.feed(frames)] == [CreditReceived]


# --- outcomes


def test_a_range_is_one_event() -> None:
    """2.7.6: the deliveries in order, with what the caller gave; the state stands on each."""
    peer, link = attached()
    sent = messages(10)
    link.send(sent)
    (event,) = of_type(
        peer.say(Disposition(role=RECEIVER, first=2, last=5, settled=True, state=Released())),
        OutcomesReceived,
    )
    assert event.link is link and event.state == Released() and event.settled
    assert [delivery.message for delivery in event.deliveries] == sent[2:6]
    assert all(delivery.state == Released() for delivery in event.deliveries)
    assert link.unsettled_count == 6
    assert peer.say(Disposition(role=RECEIVER, first=2, last=5, settled=True, state=Accepted())) == []


def test_one_by_one_is_one_event_too() -> None:
    """Dispositions of one read with the same plain outcome join; another outcome starts a new run."""
    peer, link = attached()
    link.send(messages(10))
    frames = b"".join(
        encode_frame(0, Disposition(role=RECEIVER, first=n, settled=True, state=Accepted())) for n in range(5)
    )
    frames += encode_frame(0, Disposition(role=RECEIVER, first=5, settled=True, state=Released()))
    runs = of_type(peer.feed(frames), OutcomesReceived)
    assert [len(event.deliveries) for event in runs] == [5, 1]


def test_a_range_costs_what_is_unsettled() -> None:
    """The limits table: 2^31 numbers over three deliveries."""
    peer, link = attached()
    link.send(messages(3))
    (event,) = of_type(
        peer.say(Disposition(role=RECEIVER, first=0, last=2**31 - 1, settled=True, state=Accepted())),
        OutcomesReceived,
    )
    assert len(event.deliveries) == 3 and link.unsettled_count == 0


def test_an_unsettled_outcome_is_settled_by_us() -> None:
    """2.6.12, mode second: the outcome, then our settled disposition for each range."""
    peer, link = attached(rcv_settle_mode=1)
    link.send(messages(6))
    (event,) = of_type(
        peer.say(Disposition(role=RECEIVER, first=0, last=4, settled=False, state=Accepted())),
        OutcomesReceived,
    )
    assert not event.settled and link.unsettled_count == 6
    peer.heard()
    link.settle([event.deliveries[index] for index in (0, 1, 4)], Accepted())
    assert peer.heard() == [
        Disposition(role=SENDER, first=0, last=1, settled=True, state=Accepted()),
        Disposition(role=SENDER, first=4, last=4, settled=True, state=Accepted()),
    ]
    assert link.unsettled_count == 3
    link.settle(event.deliveries, None)
    assert peer.heard() == [Disposition(role=SENDER, first=2, last=3, settled=True)]


def test_an_outcome_within_a_transaction() -> None:
    """4.4.2: the txn-id and the inner outcome stand on the event; the state itself is told as it came."""
    peer, link = attached()
    link.send(messages(1))
    state = TransactionalState(txn_id=b"t", outcome=Modified(delivery_failed=True))
    (event,) = of_type(
        peer.say(Disposition(role=RECEIVER, first=0, settled=True, state=state)), OutcomesReceived
    )
    assert event.txn_id == b"t" and event.outcome == Modified(delivery_failed=True) and event.state == state


def test_a_disposition_of_the_other_role_is_not_about_us() -> None:
    """2.7.6: the role says whose deliveries are meant."""
    peer, link = attached()
    link.send(messages(1))
    assert peer.say(Disposition(role=SENDER, first=0, settled=True, state=Accepted())) == []
    assert link.unsettled_count == 1


# --- detach


def test_a_detach_tells_what_was_unsettled() -> None:
    """In delivery order, with what the receiver said of it; late outcomes say nothing."""
    peer, link = attached(rcv_settle_mode=1)
    sent = messages(4)
    link.send(sent)
    peer.say(Disposition(role=RECEIVER, first=1, settled=False, state=Accepted()))
    peer.say(Disposition(role=RECEIVER, first=0, settled=True, state=Accepted()))
    (told,) = of_type(peer.say(Detach(handle=0, closed=True)), LinkDetached)
    assert [delivery.message for delivery in told.unsettled] == sent[1:]
    assert [delivery.state for delivery in told.unsettled] == [Accepted(), None, None]
    assert peer.say(Disposition(role=RECEIVER, first=0, last=9, settled=True, state=Accepted())) == []
    assert link.send(messages(1)) == 0
    assert len(link.session.unsettled_out) == 0


def test_a_large_message_ends_with_its_link() -> None:
    """Nothing of it is written after the detach."""
    peer, link = attached(frame=512)
    link.send([Message(b"x" * 1_000_000)])
    link.detach()
    frames = peer.heard()
    assert isinstance(frames[-1], Detach)
    assert not peer.server.sending_links


def test_a_flow_after_our_detach_is_dropped() -> None:
    """The peer cannot know yet."""
    peer, link = attached()
    link.detach()
    peer.heard()
    events = peer.say(flow(handle=0, delivery_count=0, link_credit=5, echo=True))
    assert not of_type(events, CreditReceived) and peer.heard() == []
