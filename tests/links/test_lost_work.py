"""Work of transactions that nobody can be given: the caller is told, so that no commit leaves it out."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.frames import (
    RECEIVER,
    Accepted,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    TransactionalState,
    encode_frame,
)
from amqp_broker.links import Limits, OutcomesLost, WorkLost
from tests.links.pair import Message, of_type
from tests.links.raw_peer import RawPeer, attached, flow, in_session, transfer

TXN = TransactionalState(txn_id=b"txn")
ACCEPT = TransactionalState(txn_id=b"txn", outcome=Accepted())


def lost(peer: RawPeer) -> list[tuple[bytes, str]]:
    """Transactions that lost a message, and what became of it; each loss may be told more than once."""
    peer.events.extend(peer.server.take_events())
    told = of_type(peer.events, WorkLost)
    return list(dict.fromkeys((event.txn_id, f"{event.part}: {event.why}") for event in told))


def first_lost(peer: RawPeer) -> str:
    """What became of the message that the transaction lost."""
    assert {txn_id for txn_id, _ in lost(peer)} == {b"txn"}
    return lost(peer)[0][1]


def outcome(first: int, last: int, state: Any = ACCEPT, settled: bool = False) -> Disposition:
    """What a receiver says."""
    return Disposition(role=RECEIVER, first=first, last=last, state=state, settled=settled)


def received(count: int) -> RawPeer:
    """A peer that has received so many unsettled messages, on one link."""
    peer = in_session()
    link = peer.attach_receiver(credit=100)
    assert link.send([Message(b"x")] * count) == count
    return peer


@pytest.mark.parametrize("error", [None, Error(condition="amqp:not-found", description="gone")])
def test_a_message_for_a_link_that_we_have_ended(error: Error | None) -> None:
    """It was on its way when the link ended; the rest of its session works on."""
    peer, link = attached()
    link.detach(error)
    peer.say(transfer(0, state=TXN), b"x")
    assert first_lost(peer) == "delivery 0 on link 'up': its link has ended"


def test_a_message_for_a_session_that_we_have_ended() -> None:
    """So it is with the session; what is outside of transactions is nobody's loss."""
    peer, link = attached()
    link.session.end(Error(condition="amqp:decode-error", description="bad"))
    peer.say(transfer(0), b"x")
    assert lost(peer) == []
    peer.say(transfer(1, state=TXN), b"x")
    assert "its session has ended" in first_lost(peer)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (transfer(0, state=TXN, delivery_tag=None), "delivery-tag"),
        (transfer(None, state=TXN), "has no delivery-id"),
        (transfer(0, state=TXN, handle=7), "handle 7"),
        (transfer(0, state=TXN, rcv_settle_mode=1), "rcv-settle-mode"),
        (transfer(0, state=TXN, resume=True), "did not come to its end"),
        (transfer(0, state=TXN, settled=True), "snd-settle-mode is unsettled"),
    ],
)
def test_a_message_that_ends_its_link_or_session(frame: Any, words: str) -> None:
    """Whatever is wrong with its transfer."""
    peer, _ = attached(snd_settle_mode=0)
    peer.say(frame, b"x")
    assert words in first_lost(peer)


def test_a_message_that_is_too_large_or_beyond_the_credit() -> None:
    """Both end the link, in the first transfer or in a later one that names no transaction."""
    for more in (False, True):
        peer = RawPeer()
        peer.max_message_size = 4
        attached(peer=peer)
        peer.say(transfer(0, state=TXN, more=more), b"12" if more else b"12345")
        if more:
            peer.say(transfer(None, more=False), b"345")
        assert "more than 4 octets" in first_lost(peer)
    peer, _ = attached(credit=1)
    peer.say(transfer(0, state=TXN), b"x")
    assert lost(peer) == []
    peer.say(transfer(1, state=TXN), b"x")
    assert "credit is used up" in first_lost(peer)


@pytest.mark.parametrize("leave", [Detach(handle=0, closed=True), End(), Close()])
def test_the_rest_of_a_message_that_does_not_come(leave: Any) -> None:
    """Its sender went before its last transfer."""
    peer, _ = attached()
    peer.say(transfer(0, state=TXN, more=True), b"half")
    peer.say(leave)
    assert first_lost(peer) == "delivery 0 on link 'up': it did not come to its end on this link"


def test_the_rest_of_a_message_that_comes_too_late_or_never() -> None:
    """We ended its link, or it stood still for too long."""
    peer, link = attached()
    peer.say(transfer(0, state=TXN, more=True), b"half")
    link.detach()
    assert "did not come to its end" in first_lost(peer)
    peer, _ = attached()
    peer.say(transfer(0, state=TXN, more=True), b"half")
    peer.events.extend(peer.server.handle_timeout(peer.now + Limits().partial_idle_s))
    assert "did not come to its end" in first_lost(peer)


def test_what_its_sender_aborts_is_no_loss() -> None:
    """2.6.14: it takes the message back; and nothing is lost of what arrives."""
    peer, _ = attached()
    peer.say(transfer(0, state=TXN, more=True), b"half")
    peer.say(transfer(None, aborted=True))
    peer.say(transfer(1, state=TXN), b"whole")
    peer.say(Detach(handle=0, closed=True))
    assert lost(peer) == []


@pytest.mark.parametrize(
    ("first", "last", "found"),
    [(0, 3, {0, 1, 2}), (5, 5, set()), (2**31, 2**31, set()), (1, 2**31 - 1, {1, 2})],
)
@pytest.mark.parametrize("settled", [False, True])
def test_outcomes_for_unknown_deliveries(first: int, last: int, found: set[int], settled: bool) -> None:
    """Those that are there get theirs; the caller learns that there are others, at no cost for a range."""
    peer = received(3)
    peer.say(outcome(first, last, settled=settled))
    (event,) = of_type(peer.events, OutcomesLost)
    assert event.last - event.first == last - first and event.found == found
    assert event.state == ACCEPT and event.settled is settled


def test_outcomes_for_deliveries_whose_link_has_gone_or_that_are_settled() -> None:
    """Receive, detach, accept in the transaction: there is nothing to accept any more."""
    peer = received(3)
    peer.say(outcome(0, 0, Accepted(), settled=True))
    peer.say(outcome(0, 1))
    peer.say(Detach(handle=0, closed=True))
    peer.say(outcome(1, 2))
    found = [event.found for event in of_type(peer.events, OutcomesLost)]
    assert found == [{1}, set()]


def test_outcomes_on_a_session_that_we_have_ended() -> None:
    """They were on their way."""
    peer = received(2)
    peer.server.incoming[0].end(Error(condition="amqp:decode-error", description="bad"))
    peer.say(outcome(0, 1))
    (event,) = of_type(peer.events, OutcomesLost)
    assert event.found == set() and (event.first, event.last) == (0, 1)


def test_outcomes_that_are_there_or_want_nothing() -> None:
    """All deliveries are unsettled; outside of transactions; or a state that decides nothing."""
    peer = received(3)
    peer.say(outcome(0, 2))
    peer.say(outcome(0, 7, Accepted()))
    peer.say(outcome(0, 7, TXN))
    peer.feed(encode_frame(0, outcome(0, 2, settled=True)))
    assert of_type(peer.events, OutcomesLost) == []


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("state", [None, TXN])
@pytest.mark.parametrize("leave", [Detach(handle=0, closed=True), End(), Close()])
def test_a_message_that_a_transaction_acquires_in_part(leave: Any, state: Any, settled: bool) -> None:
    """Sent settled, its commit would be its acceptance, and its receiver has not got all of it. What is sent
    unsettled comes back.
    """
    peer = RawPeer().open(max_frame_size=512)
    peer.begin(incoming_window=1)
    link = peer.attach_receiver(credit=1)
    peer.say(flow(handle=0, delivery_count=0, link_credit=1, incoming_window=1))
    if state is None:
        assert link.send([Message(b"x" * 2_000)], settled) == 1
    else:
        assert link.send_in([Message(b"x" * 2_000)], state, settled)[0] == 1
    assert link.sending
    peer.say(leave)
    if state is not None and settled:
        assert first_lost(peer) == "delivery 0 on link 'down': the link ended before all of it was sent"
    else:
        assert lost(peer) == []


def test_a_message_that_a_transaction_acquired_in_part_before_the_next_one_began() -> None:
    """While it is on its way, the caller would send more of the next transaction, and has to wait."""
    peer = RawPeer().open(max_frame_size=512)
    peer.begin(incoming_window=1)
    link = peer.attach_receiver(credit=2)
    peer.say(flow(handle=0, delivery_count=0, link_credit=2, incoming_window=1))
    assert link.send_in([Message(b"x" * 2_000)], TXN, True)[0] == 1
    assert link.send_in([Message(b"y")], TransactionalState(txn_id=b"next"), True)[0] == 0
    peer.say(Detach(handle=0, closed=True))
    assert first_lost(peer) == "delivery 0 on link 'down': the link ended before all of it was sent"
