"""Deliveries that nobody has whole: parts are taken as they come, and read as they are sent."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.frames import Accepted, Flow, Transfer
from amqp_broker.links import (
    BodyLost,
    BodySent,
    CreditReceived,
    DeliveriesReceived,
    Limits,
    PartReceived,
    SenderLink,
    StreamLost,
    StreamReceived,
)
from tests.links.pair import Message, of_type
from tests.links.raw_peer import RawPeer, detached_with, flow, transfer

LARGE = 5_000


class Pieces:
    """What a store has of a body; from `damaged_from` on it cannot be read."""

    def __init__(self, octets: bytes, damaged_from: int = LARGE + 1) -> None:
        self.size_bytes = len(octets)
        self.why = ""
        self.damaged = False
        self._octets = octets
        self._at = 0
        self._damaged_from = damaged_from

    def read(self, octets: int) -> bytes:
        """The next octets."""
        begin, self._at = self._at, min(self._at + octets, len(self._octets))
        if self._at >= self._damaged_from:
            self.why, self.damaged = "it is damaged", True
            return b""
        return self._octets[begin : self._at]


def to_send(window: int = 100, **attach: Any) -> tuple[RawPeer, SenderLink]:
    """A link on which we send, with credit."""
    peer = RawPeer().open(max_frame_size=512)
    peer.begin(incoming_window=window)
    link = peer.attach_receiver(**attach)
    peer.say(flow(incoming_window=window, handle=0, delivery_count=0, link_credit=10))
    peer.heard()
    return peer, link


def test_a_body_is_read_as_it_is_sent() -> None:
    """Header and head first; nothing is sent between its transfers, which tell its format."""
    peer, link = to_send()
    octets = bytes(range(250)) * 20
    pieces = Pieces(octets)
    message = Message(b"head", b"header")
    message.message_format = 7
    taken, (delivery,) = link.send_streamed(message, pieces)
    assert taken == 1 and delivery.message is message
    assert link.credit == 9 and link.unsettled_count == 1
    frames = peer.frames()
    assert frames[0].performative.message_format == 7
    assert b"".join(frame.payload for frame in frames) == b"headerhead" + octets
    assert [frame.performative.more for frame in frames] == [True] * (len(frames) - 1) + [False]
    assert not link.sending
    assert link.send([Message(b"next")]) == 1


def test_a_closed_window_reads_nothing() -> None:
    """A piece for each transfer that the peer takes, and no more in memory."""
    peer, link = to_send(window=2)
    pieces = Pieces(bytes(LARGE))
    assert link.send_streamed(Message(b"head", b"header"), pieces)[0] == 1
    assert len(peer.heard()) == 2 and link.sending and pieces._at < 512
    assert link.send_streamed(Message(b"head", b"header"), Pieces(b"x")) == (0, [])
    peer.say(flow(next_incoming_id=2, incoming_window=1))
    assert len(peer.heard()) == 1 and pieces._at < 1024


def test_a_drain_is_answered_behind_the_message_that_is_half_sent() -> None:
    """2.6.7: "after sending all available messages"; receivers count a delivery when all of it has come, and
    an answer before its last transfer would have them count it twice (Qpid JMS then asks for nothing more).
    """
    peer, link = to_send(window=2)
    peer.say(flow(incoming_window=2, handle=0, delivery_count=0, link_credit=1, drain=True))
    assert link.send([Message(bytes(LARGE), b"header")]) == 1 and link.sending
    assert [type(each) for each in peer.heard()] == [Transfer, Transfer]
    peer.say(flow(next_incoming_id=2, incoming_window=100))
    heard = peer.heard()
    assert not heard[-2].more
    assert (heard[-1].delivery_count, heard[-1].link_credit, heard[-1].drain) == (1, 0, True)
    assert of_type(heard[:-1], Flow) == []


def test_credit_is_given_back_behind_the_message_that_is_half_sent() -> None:
    """Its end is told, and the credit given back then; a receiver that does without has kept it."""
    peer, link = to_send(window=2)
    assert link.send([Message(bytes(LARGE), b"header")]) == 1
    closed = {"next_incoming_id": 2, "incoming_window": 0}
    peer.say(flow(**closed, handle=0, delivery_count=0, link_credit=10, drain=True))
    peer.heard()
    link.drained()
    assert peer.heard() == [] and link.credit == 9
    events = peer.say(flow(next_incoming_id=2, incoming_window=100))
    assert len(of_type(events, CreditReceived)) == 1
    assert of_type(peer.heard(), Flow) == []
    link.drained()
    (answer,) = peer.heard()
    assert (answer.delivery_count, answer.link_credit, answer.drain) == (10, 0, True)


def test_an_echo_does_not_count_what_is_half_sent() -> None:
    """2.7.4: it is credit that is not used yet, and the sum of both counts is what the receiver gave."""
    peer, link = to_send(window=2)
    assert link.send([Message(bytes(LARGE), b"header")]) == 1
    peer.heard()
    closed = {"next_incoming_id": 2, "incoming_window": 0}
    peer.say(flow(**closed, handle=0, delivery_count=0, link_credit=10, echo=True))
    (answer,) = of_type(peer.heard(), Flow)
    assert (answer.delivery_count, answer.link_credit) == (0, 10)
    peer.say(flow(next_incoming_id=2, handle=0, delivery_count=0, link_credit=10, incoming_window=100))
    peer.say(flow(handle=0, delivery_count=1, link_credit=9, incoming_window=100, echo=True))
    (answer,) = of_type(peer.heard(), Flow)
    assert (answer.delivery_count, answer.link_credit) == (1, 9)


@pytest.mark.parametrize("settled", [False, True])
def test_what_cannot_be_read_is_aborted(settled: bool) -> None:
    """Before its last transfer; the caller is told which, and the link goes on."""
    peer, link = to_send(snd_settle_mode=1 if settled else 0)
    message = Message(b"head", b"header")
    pieces = Pieces(bytes(LARGE), damaged_from=LARGE)
    assert link.send_streamed(message, pieces)[0] == 1
    frames = peer.heard()
    assert [item.more for item in frames[:-1]] == [True] * (len(frames) - 1)
    assert frames[-1].aborted and not link.sending and link.unsettled_count == 0
    events = peer.server.take_events()
    (lost,) = of_type(events, BodyLost)
    assert (lost.message, lost.why, lost.delivery is None) == (message, "it is damaged", settled)
    assert lost.damaged and of_type(events, BodySent) == []
    assert link.send([Message(b"next")]) == 1


@pytest.mark.parametrize("settled", [False, True])
def test_what_is_sent_settled_is_told_when_it_is_out(settled: bool) -> None:
    """Not before: until then it may turn out that it cannot be had."""
    peer, link = to_send(window=2, snd_settle_mode=1 if settled else 0)
    message = Message(b"head", b"header")
    assert link.send_streamed(message, Pieces(bytes(LARGE)))[0] == 1
    assert of_type(peer.server.take_events(), BodySent) == []
    events = peer.say(flow(next_incoming_id=2, incoming_window=100))
    assert [event.message for event in of_type(events, BodySent)] == [message] * settled


def test_one_with_a_tag_of_the_callers_is_read_as_it_is_sent() -> None:
    """For the first time, or resumed."""
    peer, link = to_send()
    octets = bytes(range(250)) * 20
    message = Message(b"head", b"header")
    assert link.send_tagged(message, b"tag", Pieces(octets))
    delivery = link.resume(b"tag", message, payload=True, pieces=Pieces(octets))
    frames = peer.frames()
    assert b"".join(frame.payload for frame in frames) == (b"headerhead" + octets) * 2
    assert delivery is not None and not link.sending and link.unsettled_count == 2


def test_links_that_waited_for_a_lost_one_go_on() -> None:
    """It is unsettled no longer: others of the session have its room."""
    peer = RawPeer(limits=Limits(unsettled_per_link=1, unsettled_per_session=1)).open(max_frame_size=512)
    peer.begin(incoming_window=2)
    link, other = peer.attach_receiver(), peer.attach_receiver(1, "other")
    for handle in (0, 1):
        peer.say(flow(incoming_window=2, handle=handle, delivery_count=0, link_credit=1))
    link.send_streamed(Message(b"head", b"header"), Pieces(bytes(LARGE), damaged_from=1_000))
    assert link.sending and other.send([Message(b"next")]) == 0
    events = peer.say(flow(next_incoming_id=2, incoming_window=100))
    assert other in [event.link for event in of_type(events, CreditReceived)]
    assert other.send([Message(b"next")]) == 1


def test_a_message_is_sent_as_it_was_when_it_began() -> None:
    """Others may change its header meanwhile: a browser and a consumer have the same message."""
    peer, link = to_send(window=2)
    body = bytes(range(250)) * 8
    message = Message(body, b"header")
    assert link.send([message]) == 1
    frames = peer.frames()
    message.header_bytes, message.body = b"", b"other"
    peer.say(flow(next_incoming_id=2, incoming_window=100))
    frames += peer.frames()
    assert b"".join(frame.payload for frame in frames) == b"header" + body


def to_receive(stream_bytes: int = 100) -> tuple[RawPeer, Any]:
    """A link on which the peer sends, and whose parts are told."""
    peer = RawPeer().open(max_frame_size=512)
    peer.begin()
    link = peer.attach_sender()
    link.stream_bytes = stream_bytes
    peer.heard()
    return peer, link


def say(peer: RawPeer, number: int, payload: bytes, **fields: Any) -> list[Any]:
    """A transfer of a delivery."""
    return peer.say(transfer(number, **fields), payload)


def test_parts_are_taken_as_they_come() -> None:
    """Their memory is given back, the last one comes with the delivery, and its size counts all of it."""
    peer, link = to_receive()
    account = link.session.account
    assert of_type(say(peer, 0, b"a" * 90, more=True), PartReceived) == []
    (part,) = of_type(say(peer, 0, b"b" * 90, more=True), PartReceived)
    assert part.partial is link.partial and account.used_bytes >= 180
    assert b"".join(link.take_parts(part.partial, "mine")) == b"a" * 90 + b"b" * 90
    assert link.session.partial_bytes.used_bytes == 0
    (again,) = of_type(say(peer, 0, b"c", more=True), PartReceived)
    events = say(peer, 0, b"d")
    (whole,) = of_type(events, StreamReceived)
    assert (whole.stream, whole.delivery.payload) == ("mine", b"cd") and again.partial is part.partial
    assert of_type(events, DeliveriesReceived) == [] and link.partial is None
    assert link.session.partial_bytes.used_bytes == 0
    link.settle([whole.delivery], Accepted())
    link.processed(1)
    (small,) = of_type(say(peer, 1, b"small"), DeliveriesReceived)
    assert small.deliveries[0].payload == b"small"


def test_who_does_not_take_parts_gets_the_whole() -> None:
    """Told once for each delivery."""
    peer, link = to_receive()
    assert len(of_type(say(peer, 0, b"a" * 200, more=True), PartReceived)) == 1
    assert of_type(say(peer, 0, b"b" * 200, more=True), PartReceived) == []
    (whole,) = of_type(say(peer, 0, b"c"), DeliveriesReceived)
    assert whole.deliveries[0].payload == b"a" * 200 + b"b" * 200 + b"c"


def test_an_aborted_one_is_told_to_who_has_its_parts() -> None:
    """And to nobody else."""
    peer, link = to_receive()
    (part,) = of_type(say(peer, 0, b"a" * 200, more=True), PartReceived)
    link.take_parts(part.partial, "mine")
    (lost,) = of_type(say(peer, 0, b"", aborted=True), StreamLost)
    assert lost.stream == "mine" and link.partial is None
    say(peer, 1, b"a" * 200, more=True)
    assert of_type(say(peer, 1, b"", aborted=True), StreamLost) == []


def test_the_limit_counts_what_was_taken() -> None:
    """max-message-size is of the message (2.7.3)."""
    peer, link = to_receive()
    link.max_message_size = 300
    (part,) = of_type(say(peer, 0, b"a" * 200, more=True), PartReceived)
    link.take_parts(part.partial, "mine")
    say(peer, 0, b"b" * 101, more=True)
    assert detached_with(peer, "amqp:link:message-size-exceeded")


def two_links(frame: int, **settings: Any) -> tuple[RawPeer, SenderLink, SenderLink]:
    """Two links of one session on which we send, with credit."""
    peer = RawPeer(**settings).open(max_frame_size=frame)
    peer.begin()
    links = peer.attach_receiver(), peer.attach_receiver(1, "other")
    for handle in (0, 1):
        peer.say(flow(handle=handle, delivery_count=0, link_credit=1_000))
    peer.heard()
    return peer, *links


@pytest.mark.parametrize("bound", [4_096, 262_144])
@pytest.mark.parametrize("frame", [512, 65_536, 1_000_000])
def test_one_that_is_being_sent_leaves_room_for_other_links(frame: int, bound: int) -> None:
    """A quarter of the output, each time that it is filled; what others send does not stop it."""
    peer, link, other = two_links(frame, limits=Limits(output_bytes=bound))
    small = Message(bytes(min(bound // 8, frame) - 100))
    size = max(20 * bound, 600_000)
    assert link.send([Message(bytes(size))]) == 1
    fills = 0
    while link.sending:
        assert other.send([small] * 2) == 2
        assert peer.server.output_size() <= bound
        assert peer.server.data_to_send()
        fills += 1
    assert size <= fills * bound <= 2 * size + bound


def test_those_that_are_being_sent_take_turns() -> None:
    """None waits for the end of another one."""
    peer, *links = two_links(65_536)
    for link in links:
        assert link.send([Message(bytes(2_000_000))]) == 1
    fills = 0
    while all(link.sending for link in links):
        first, second = [link._sending.sent_bytes for link in links if link._sending is not None]
        assert abs(first - second) <= 2 * 262_144
        peer.server.data_to_send()
        fills += 1
    assert fills > 15
