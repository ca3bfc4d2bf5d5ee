"""Receiving: deliveries from transfers, credit, and our outcomes, as transcripts (2.6.7, 2.6.12, 2.7.5)."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.frames import (
    RECEIVER,
    SENDER,
    Accepted,
    Detach,
    Disposition,
    Flow,
    Received,
    Rejected,
    Released,
    TransactionalState,
    Transfer,
    encode_frame,
)
from amqp_broker.links import (
    Account,
    DeliveriesReceived,
    DeliveriesSettled,
    Delivery,
    Limits,
    LinkDetached,
    MemoryBudget,
    PartialBytes,
    ReceiverLink,
)
from amqp_broker.links.receiver_link import CHUNK_BYTES
from tests.links.pair import NOW, of_type
from tests.links.raw_peer import RawPeer, attached, deliveries, detached_with, ended_with, flow, transfer

# --- deliveries


def test_what_a_delivery_tells() -> None:
    """2.7.5: id, tag, format, settled, state, modes and payload of the transfer."""
    peer, _ = attached()
    fields = {
        "message_format": 7,
        "settled": True,
        "batchable": True,
        "state": Received(section_number=0, section_offset=1),
    }
    (delivery,) = deliveries(peer.say(transfer(5, delivery_tag=b"tag", **fields), b"payload"))
    assert (delivery.delivery_id, delivery.delivery_tag, delivery.message_format) == (5, b"tag", 7)
    assert delivery.settled and delivery.batchable and delivery.rcv_settle_mode == 0
    assert delivery.payload == b"payload"
    assert delivery.state == Received(section_number=0, section_offset=1)


def test_a_transaction_is_told() -> None:
    """4.4.1: the txn-id of a transactional-state stands on the delivery."""
    peer, _ = attached()
    state = TransactionalState(txn_id=b"txn")
    (first, second) = deliveries(
        peer.feed(encode_frame(0, transfer(0, state=state), b"x") + encode_frame(0, transfer(1), b"y"))
    )
    assert first.txn_id == b"txn" and first.outcome is None
    assert second.txn_id is None and second.state is None


def test_a_read_is_one_run() -> None:
    """Many transfers in one read are one event; what comes with a different shape joins the run."""
    peer, _ = attached(credit=1000)
    data = b"".join(encode_frame(0, transfer(number), b"x" * (number % 7)) for number in range(300))
    data += encode_frame(0, transfer(300, settled=True), b"y") + encode_frame(0, transfer(301), b"z")
    events = peer.feed(data)
    assert [type(event) for event in events] == [DeliveriesReceived]
    assert [delivery.delivery_id for delivery in deliveries(events)] == list(range(302))
    assert [delivery.payload for delivery in deliveries(events)[:9]] == [
        b"x" * (number % 7) for number in range(9)
    ]


def test_several_transfers_make_one_delivery() -> None:
    """2.6.14: continuation transfers may leave out id, tag, format and settled."""
    peer, link = attached()
    assert peer.say(transfer(0, more=True), b"a") == []
    assert link.partial is not None
    assert peer.say(transfer(None, more=True), b"b") == []
    (delivery,) = deliveries(peer.say(transfer(0), b"c"))
    assert delivery.payload == b"abc" and not delivery.settled
    assert link.partial is None and peer.server.settings.partial_bytes.used_bytes == 0


def test_settled_on_any_transfer_settles_the_delivery() -> None:
    """2.7.5: unset means what a preceding transfer said; the delivery is then not unsettled here."""
    peer, link = attached()
    peer.say(transfer(0, more=True), b"a")
    assert link.flow_state.unsettled == 1
    peer.say(transfer(None, settled=True, more=True), b"b")
    (delivery,) = deliveries(peer.say(transfer(None), b"c"))
    assert delivery.settled
    assert link.flow_state.unsettled == 0 and link.session.unsettled_in.count == 0


def test_links_may_interleave() -> None:
    """2.6.14: transfers of different links may be mixed, those of one link not."""
    peer, _ = attached()
    peer.attach_sender(1, "other")
    peer.say(transfer(0, more=True), b"a")
    (other,) = deliveries(peer.say(transfer(1, handle=1), b"other"))
    (first,) = deliveries(peer.say(transfer(None), b"b"))
    assert other.payload == b"other" and first.payload == b"ab"


def test_an_aborted_delivery_is_forgotten() -> None:
    """2.7.5: aborted is implicitly settled, its payload ignored; credit, window and memory come back."""
    peer, link = attached(credit=1)
    peer.say(transfer(0, more=True), b"a" * 100)
    events = peer.say(transfer(None, aborted=True, more=True), b"ignored")
    assert events == []
    assert link.session.unsettled_in.count == link.session.held == link.flow_state.unsettled == 0
    assert peer.server.settings.partial_bytes.used_bytes == 0
    (renewal,) = peer.heard()
    assert isinstance(renewal, Flow) and renewal.link_credit == 1 and renewal.delivery_count == 1
    assert deliveries(peer.say(transfer(1), b"next"))[0].payload == b"next"


def test_a_delivery_may_be_aborted_in_its_first_transfer() -> None:
    """Nothing is told."""
    peer, _ = attached()
    assert peer.say(transfer(0, aborted=True), b"x") == []
    assert len(deliveries(peer.say(transfer(1), b"y"))) == 1


def test_a_resumed_delivery_is_ignored() -> None:
    """2.7.5: the receiver MUST ignore resumed deliveries that are not in its unsettled map; ours is empty."""
    peer, link = attached(unsettled={b"t": None})
    assert peer.say(transfer(0, resume=True), b"x") == []
    assert link.session.unsettled_in.count == 0
    assert len(deliveries(peer.say(transfer(1), b"y"))) == 1


# --- errors of the sender


def test_delivery_ids_are_consecutive() -> None:
    """2.6: a session scoped sequence; the first may be anything, also near 2^32."""
    peer, _ = attached()
    first, second = deliveries(peer.say(transfer(2**32 - 1), b"x") + peer.say(transfer(0), b"y"))
    assert (first.delivery_id, second.delivery_id) == (2**32 - 1, 0)
    peer.say(transfer(2), b"z")
    ended_with(peer, "amqp:invalid-field")


@pytest.mark.parametrize(
    ("wrong", "told", "condition"),
    [
        (transfer(None, delivery_tag=b"t"), ended_with, "amqp:invalid-field"),
        (transfer(0, delivery_tag=None), detached_with, "amqp:invalid-field"),
        (transfer(0, handle=1), ended_with, "amqp:not-allowed"),
    ],
)
def test_a_first_transfer_that_cannot_be(wrong: Transfer, told: Any, condition: str) -> None:
    """2.7.5: delivery-id and delivery-tag MUST be supplied on it; and a receiver, as on handle 1, does not
    send.
    """
    peer, _ = attached()
    peer.attach_receiver(1)
    peer.heard()
    assert not deliveries(peer.say(wrong, b"x"))
    told(peer, condition)


def test_a_tag_of_thirty_two_octets_and_no_more() -> None:
    """2.8.7: up to 32 octets; a longer one cannot be decoded."""
    peer, _ = attached()
    assert deliveries(peer.say(transfer(0, delivery_tag=b"t" * 32)))[0].delivery_tag == b"t" * 32
    frame = bytearray(encode_frame(0, transfer(1, delivery_tag=b"t" * 32)))
    frame[3] += 1
    at = bytes(frame).index(b"\xa0\x20")
    frame[at + 1] = 33
    frame[at + 2 : at + 2] = b"t"
    frame[12] += 1
    peer.feed(bytes(frame))
    assert peer.server.wants_close


def test_more_than_the_credit() -> None:
    """2.6.7: transfer-limit-exceeded detaches the link, the session lives."""
    peer, link = attached(credit=2)
    peer.say(transfer(0), b"x")
    peer.say(transfer(1), b"x")
    events = peer.say(transfer(2), b"x")
    assert not of_type(events, DeliveriesReceived)
    assert "credit is used up" in detached_with(peer, "amqp:link:transfer-limit-exceeded")
    assert not link.attached
    assert peer.attach_sender(1, "next").attached


def test_a_burst_beyond_the_credit_is_told_up_to_it() -> None:
    """The hot path stops where the credit ends."""
    peer, _ = attached(credit=3)
    events = peer.feed(b"".join(encode_frame(0, transfer(number), b"x") for number in range(5)))
    assert [delivery.delivery_id for delivery in deliveries(events)] == [0, 1, 2]
    detached_with(peer, "amqp:link:transfer-limit-exceeded")


def test_after_a_link_error_what_is_in_flight_is_dropped() -> None:
    """Transfers and flows until the peer's detach are dropped; delivery-ids and window go on counting."""
    peer, _ = attached(credit=1)
    peer.attach_sender(1, "other")
    peer.say(transfer(0), b"x")
    peer.say(transfer(1), b"beyond")
    assert peer.say(transfer(2), b"late") == []
    assert peer.say(transfer(3, more=True), b"late") == []
    assert peer.say(flow(handle=0, delivery_count=9)) == []
    (delivery,) = deliveries(peer.say(transfer(4, handle=1), b"other"))
    assert delivery.payload == b"other"
    assert peer.say(Detach(handle=0, closed=True)) == []
    assert peer.attach_sender(0, "again").attached


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_message_that_is_too_large(pieces: int) -> None:
    """2.7.3: message-size-exceeded, whether in one frame or many; memory comes back."""
    peer = RawPeer(credit=5)
    peer.max_message_size = 100
    peer, _ = attached(peer=peer)
    assert len(deliveries(peer.say(transfer(0), b"x" * 100))) == 1
    for index in range(pieces):
        peer.say(transfer(1, more=index < pieces - 1), b"x" * (101 if pieces == 1 else 40))
    assert "100 octets" in detached_with(peer, "amqp:link:message-size-exceeded")
    assert peer.server.settings.partial_bytes.used_bytes == 0


def test_a_message_that_is_too_large_within_a_run() -> None:
    """The hot path stops before it; what came before is told."""
    peer = RawPeer(credit=5)
    peer.max_message_size = 100
    peer, _ = attached(peer=peer)
    sizes = [10, 100, 101]
    data = b"".join(encode_frame(0, transfer(300 + index), b"x" * size) for index, size in enumerate(sizes))
    assert [len(delivery.payload) for delivery in deliveries(peer.feed(data))] == [10, 100]
    detached_with(peer, "amqp:link:message-size-exceeded")


def test_all_incomplete_deliveries_share_one_bound() -> None:
    """The limits table: a sum over the process; who goes beyond it is detached, and gives back what it
    had.
    """
    shared = PartialBytes(100)
    left, _ = attached(peer=RawPeer(partial_bytes=shared))
    right, _ = attached(peer=RawPeer(partial_bytes=shared))
    left.say(transfer(0, more=True), b"x" * 60)
    right.say(transfer(0, more=True), b"x" * 40)
    right.say(transfer(0, more=True), b"x")
    detached_with(right, "amqp:resource-limit-exceeded")
    assert shared.used_bytes == 60
    left.server.receive_eof(NOW)
    assert shared.used_bytes == 0


def test_an_incomplete_delivery_has_to_go_on() -> None:
    """60 s without a further transfer detach the link."""
    peer, _ = attached()
    peer.say(transfer(0, more=True), b"x")
    peer.now = NOW + 30
    peer.say(transfer(0, more=True), b"x")
    assert peer.server.next_deadline() == NOW + 90
    peer.feed(encode_frame(0, flow()))
    peer.events.extend(peer.server.handle_timeout(NOW + 89.9))
    assert not of_type(peer.events, LinkDetached)
    peer.events.extend(peer.server.handle_timeout(NOW + 90))
    detached_with(peer, "amqp:resource-limit-exceeded")


def test_an_incomplete_delivery_has_to_end() -> None:
    """Octet after octet does not hold the room for ever: a delivery that is not complete so long after its
    first transfer is detached, however often it goes on, and the error names the setting.
    """
    peer, _ = attached(peer=RawPeer(limits=Limits(partial_idle_s=60.0, partial_total_s=150.0)))
    for at in (0, 50, 100):
        peer.now = NOW + at
        peer.say(transfer(0, more=True), b"x")
    assert peer.server.next_deadline() == NOW + 150
    peer.events.extend(peer.server.handle_timeout(NOW + 149.9))
    assert not of_type(peer.events, LinkDetached)
    peer.events.extend(peer.server.handle_timeout(NOW + 150))
    (detach,) = of_type(peer.heard(), Detach)
    assert detach.error.condition == "amqp:resource-limit-exceeded"
    assert "limits.partial_total_ms" in detach.error.description
    assert peer.server.settings.partial_bytes.used_bytes == peer.server.settings.account.used_bytes == 0


def test_a_new_delivery_has_its_own_time() -> None:
    """The time of a delivery begins with its first transfer, not with its link."""
    peer, _ = attached(peer=RawPeer(limits=Limits(partial_total_s=100.0)))
    peer.say(transfer(0, more=True), b"x")
    peer.now = NOW + 55
    peer.say(transfer(0), b"x")
    peer.say(transfer(1, more=True), b"x")
    peer.events.extend(peer.server.handle_timeout(NOW + 110))
    assert not of_type(peer.events, LinkDetached)


def test_incomplete_deliveries_take_memory() -> None:
    """Also what they cost beside their octets counts; what does not fit is detached with the setting's name,
    and all of it is given back.
    """
    budget = MemoryBudget(100_000)
    peer, _ = attached(peer=RawPeer(account=Account(budget)))
    peer.say(transfer(0, more=True), b"x" * 10_000)
    peer.say(transfer(0, more=True), b"x")
    assert budget.used_bytes == 10_001 + 2 * CHUNK_BYTES
    peer.say(transfer(0, more=True), b"x" * 50_000)
    (detach,) = of_type(peer.heard(), Detach)
    assert detach.error.condition == "amqp:resource-limit-exceeded"
    assert "limits.memory_bytes" in detach.error.description
    assert budget.used_bytes == peer.server.settings.partial_bytes.used_bytes == 0


@pytest.mark.parametrize(("mode", "settled"), [(0, True), (1, False), (1, None)])
def test_the_negotiated_settle_mode_binds(mode: int, settled: bool | None) -> None:
    """2.7.5: settled deliveries only on a settled link, none on an unsettled one."""
    peer, _ = attached(snd_settle_mode=mode)
    assert not deliveries(peer.say(transfer(0, settled=settled), b"x"))
    detached_with(peer, "amqp:not-allowed")


def test_a_transfer_may_not_raise_the_receivers_mode() -> None:
    """2.7.5: mode second on a transfer is illegal on a link of mode first; ignored when settled."""
    peer, _ = attached()
    assert len(deliveries(peer.say(transfer(0, rcv_settle_mode=1, settled=True)))) == 1
    peer.say(transfer(1, rcv_settle_mode=1))
    detached_with(peer, "amqp:invalid-field")


# --- outcomes


def received(count: int, **fields: Any) -> tuple[RawPeer, ReceiverLink, list[Delivery]]:
    """A link with so many unsettled deliveries."""
    peer, link = attached(credit=100, **fields)
    data = b"".join(encode_frame(0, transfer(number), b"x") for number in range(count))
    return peer, link, deliveries(peer.feed(data))


def test_a_range_costs_one_disposition() -> None:
    """2.7.6: settled in mode first, and nothing is left unsettled."""
    peer, link, taken = received(50)
    link.settle(taken, Accepted())
    assert peer.heard() == [Disposition(role=RECEIVER, first=0, last=49, settled=True, state=Accepted())]
    assert link.session.unsettled_in.count == link.flow_state.unsettled == 0
    link.settle(taken, Accepted())
    assert peer.heard() == []


def test_gaps_cost_a_disposition_each() -> None:
    """Only what is in the list is settled, in its order."""
    peer, link, taken = received(10)
    link.settle([taken[1], taken[2], taken[7], taken[5]], Released())
    ranges = [(item.first, item.last) for item in peer.heard()]
    assert ranges == [(1, 2), (7, 7), (5, 5)]
    link.settle(taken, Rejected())
    assert [(item.first, item.last) for item in peer.heard()] == [(0, 0), (3, 4), (6, 6), (8, 9)]


def test_links_share_a_disposition() -> None:
    """2.7.6: a range names deliveries of the session, whatever their links; each link counts its own."""
    peer, first = attached(credit=20)
    links = [first, *[peer.attach_sender(handle, f"up{handle}") for handle in (1, 2)]]
    links.append(peer.attach_sender(3, "second", rcv_settle_mode=1))
    peer.heard()
    turns = (0, 1, 2, 0, 3, 2, 1, 0, 0)
    came = deliveries(
        peer.feed(
            b"".join(
                encode_frame(0, transfer(at, handle=handle, settled=at == 7), b"x")
                for at, handle in enumerate(turns)
            )
        )
    )
    runs = [(link, [came[at] for at, turn in enumerate(turns) if turn == i]) for i, link in enumerate(links)]
    links[0].session.settle(runs[1:2], Released())
    links[0].session.settle([runs[3], runs[2], runs[1], runs[0]], Accepted())
    told = [(each.first, each.last, each.settled, type(each.state)) for each in peer.heard()]
    assert told == [
        (1, 1, True, Released), (6, 6, True, Released),
        (4, 4, False, Accepted), (0, 0, True, Accepted), (2, 3, True, Accepted), (5, 5, True, Accepted),
        (8, 8, True, Accepted),
    ]  # fmt: skip
    assert [link.flow_state.unsettled for link in links] == [0, 0, 0, 1]
    assert links[0].session.unsettled_in.count == 1
    links[0].session.settle(runs, Accepted())
    assert [each.settled for each in peer.heard()] == [False]


def test_what_was_sent_settled_gets_no_disposition() -> None:
    """2.7.5: the sender has forgotten it."""
    peer, link = attached(credit=100)
    data = b"".join(encode_frame(0, transfer(number, settled=number % 2 == 0), b"x") for number in range(5))
    link.settle(deliveries(peer.feed(data)), Accepted())
    assert [(item.first, item.last) for item in peer.heard()] == [(1, 1), (3, 3)]


def test_any_state_can_be_told() -> None:
    """4.4.2: an outcome within a transaction, as it is."""
    peer, link, taken = received(1)
    state = TransactionalState(txn_id=b"t" * 300, outcome=Accepted())
    link.settle(taken, state)
    (disposition,) = peer.heard()
    assert disposition.state == state and disposition.settled


def test_the_sender_settles_first() -> None:
    """2.7.6: what the sender settled needs no disposition any more; its state of a link in mode first is not
    told.
    """
    peer, link, taken = received(5)
    assert peer.say(Disposition(role=SENDER, first=1, last=2, settled=True)) == []
    assert link.flow_state.unsettled == 3
    link.settle(taken, Accepted())
    assert [(item.first, item.last) for item in peer.heard()] == [(0, 0), (3, 4)]


def test_a_disposition_of_a_range_that_never_was() -> None:
    """Its cost is what is unsettled of it."""
    peer, link, _ = received(3)
    assert peer.say(Disposition(role=SENDER, first=0, last=2**31 - 1, settled=True)) == []
    assert link.session.unsettled_in.count == 0


def test_a_disposition_that_runs_backwards() -> None:
    """RFC 1982: last before first."""
    peer, _, _ = received(3)
    peer.say(Disposition(role=SENDER, first=2, last=1, settled=True))
    ended_with(peer, "amqp:invalid-field")


def test_mode_second_waits_for_the_sender() -> None:
    """2.6.12: an unsettled outcome, then the sender's settled disposition, then it is forgotten."""
    peer, link, taken = received(4, rcv_settle_mode=1)
    assert link.rcv_settle_mode == 1
    link.settle(taken[:3], Accepted())
    assert peer.heard() == [Disposition(role=RECEIVER, first=0, last=2, settled=False, state=Accepted())]
    assert link.session.unsettled_in.count == 4
    (told,) = of_type(peer.say(Disposition(role=SENDER, first=0, last=1, settled=True)), DeliveriesSettled)
    assert told.deliveries == taken[:2] and told.link is link
    assert taken[0].state == Accepted()
    (rest,) = of_type(peer.say(Disposition(role=SENDER, first=0, last=3, settled=True)), DeliveriesSettled)
    assert rest.deliveries == [taken[2]]
    assert link.session.unsettled_in.count == link.flow_state.unsettled == 0
    link.settle([taken[3]], Accepted())
    assert peer.heard() == []


def test_a_transfer_may_lower_the_mode() -> None:
    """2.7.5: first for one delivery on a link of mode second."""
    peer, link = attached(credit=10, rcv_settle_mode=1)
    taken = deliveries(
        peer.feed(encode_frame(0, transfer(0, rcv_settle_mode=0), b"x") + encode_frame(0, transfer(1), b"y"))
    )
    assert [delivery.rcv_settle_mode for delivery in taken] == [0, 1]
    link.settle(taken, Accepted())
    assert [(item.first, item.settled) for item in peer.heard()] == [(0, True), (1, False)]


# --- continuations


@pytest.mark.parametrize(
    ("first", "later", "named"),
    [
        ({}, {"delivery_id": 1}, "delivery-id 1"),
        ({}, {"delivery_tag": b"other"}, "delivery-tag"),
        ({}, {"message_format": 7}, "message-format 7"),
        ({"message_format": 7}, {"message_format": 0}, "message-format 0"),
        ({"settled": True}, {"settled": False}, "settled false"),
    ],
)
@pytest.mark.parametrize("more", [True, False])
@pytest.mark.parametrize("hot_path", [True, False])
def test_a_later_transfer_that_contradicts_the_first_is_an_error(
    first: dict[str, Any], later: dict[str, Any], named: str, more: bool, hot_path: bool
) -> None:
    """2.7.5: for delivery-id, delivery-tag and message-format in so many words; settled cannot go back."""
    peer, link = attached()
    peer.server.hot_path = hot_path
    peer.say(transfer(0, more=True, **first), b"a")
    fields = {"delivery_id": None, "message_format": None} | later
    events = peer.say(transfer(fields.pop("delivery_id"), more=more, **fields), b"b")
    assert deliveries(events) == []
    assert named in detached_with(peer, "amqp:invalid-field")
    assert link.session.unsettled_in.count == peer.server.settings.partial_bytes.used_bytes == 0


@pytest.mark.parametrize("hot_path", [True, False])
def test_a_later_transfer_may_repeat_the_first_or_leave_it_out(hot_path: bool) -> None:
    """The same values, none, and a settled that comes with the last transfer."""
    peer, link = attached()
    peer.server.hot_path = hot_path
    peer.say(transfer(0, more=True, message_format=7, settled=False), b"a")
    peer.say(transfer(0, more=True, message_format=7), b"b")
    peer.say(Transfer(handle=0, more=True), b"c")
    peer.say(Transfer(handle=0, more=True, settled=True), b"d")
    (delivery,) = deliveries(peer.say(Transfer(handle=0), b"e"))
    assert (delivery.payload, delivery.settled, delivery.message_format) == (b"abcde", True, 7)
    assert link.session.unsettled_in.count == 0


def test_what_a_disposition_settled_is_not_unsettled_by_a_later_transfer() -> None:
    """Settlement is final; a client that always writes the flag that it began with is not at fault."""
    peer, _ = attached()
    peer.say(transfer(0, more=True, settled=False), b"a")
    peer.say(Disposition(role=SENDER, first=0, settled=True))
    (delivery,) = deliveries(peer.say(transfer(None, delivery_tag=None, settled=False), b"b"))
    assert delivery.settled and peer.heard() == []


# --- detach


@pytest.mark.parametrize("closed", [True, False])
def test_a_detach_is_answered(closed: bool) -> None:
    """2.6.6: with the same closed flag; afterwards settling says nothing."""
    peer, link, taken = received(2)
    link.settle(taken, Accepted())
    link.processed(2)
    peer.heard()
    events = peer.say(Detach(handle=0, closed=closed))
    assert peer.heard() == [Detach(handle=0, closed=closed)]
    (told,) = of_type(events, LinkDetached)
    assert told.closed is closed and told.error is None and told.unsettled == []
    link.settle(taken, Accepted())
    link.processed(2)
    link.set_credit(7)
    link.detach()
    assert peer.heard() == []
    assert link.session.held == link.session.unsettled_in.count == 0


def test_our_detach_is_told_at_once_and_once() -> None:
    """The peer's answer is not told again."""
    peer, link, _ = received(2)
    link.detach()
    (told,) = peer.server.take_events()
    assert isinstance(told, LinkDetached) and told.link is link
    link.detach()
    assert peer.heard() == [Detach(handle=0, closed=True)]
    assert peer.say(Detach(handle=0, closed=True)) == []
    assert peer.heard() == []
