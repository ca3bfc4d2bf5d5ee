"""Retiring within transactions: dispositions with a transactional-state, both ways (4.4.2)."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.frames import (
    RECEIVER,
    SENDER,
    Accepted,
    Declared,
    Disposition,
    Rejected,
    Released,
    TransactionalState,
    encode_frame,
)
from amqp_broker.links import (
    DeliveriesSettled,
    Delivery,
    OutcomesReceived,
    ReceiverLink,
    SenderLink,
)
from tests.links.pair import Message, Pair, of_type, receiving
from tests.links.raw_peer import RawPeer, deliveries

RETIRED = TransactionalState(txn_id=b"txn", outcome=Accepted())


def delivered(count: int, **fields: Any) -> tuple[Pair, ReceiverLink, SenderLink, list[Delivery]]:
    """A client that has received `count` messages."""
    pair, receiver, sender = receiving(credit=count, **fields)
    sender.send([Message(b"x")] * count)
    pair.flush()
    found = deliveries(pair.client_events)
    assert len(found) == count
    return pair, receiver, sender, found


def two_links() -> tuple[RawPeer, SenderLink, SenderLink]:
    """Ids 0 and 1 on the first link, 2 on the second, 3 and 4 on the first."""
    peer = RawPeer()
    peer.open().begin()
    first = peer.attach_receiver(credit=10)
    second = peer.attach_receiver(1, "second", credit=10)
    first.send([Message(b"x")] * 2)
    second.send([Message(b"x")])
    first.send([Message(b"x")] * 2)
    peer.heard()
    return peer, first, second


@pytest.mark.parametrize("settled", [True, False])
def test_a_range_over_links_is_one_event_for_each_run(settled: bool) -> None:
    """2.7.6: in order of the ids, each with the same state; an unsettled one settles nothing here."""
    peer, first, second = two_links()
    runs = of_type(
        peer.say(Disposition(role=RECEIVER, first=0, last=4, settled=settled, state=RETIRED)),
        OutcomesReceived,
    )
    ids = [(event.link, [one.delivery_id for one in event.deliveries]) for event in runs]
    assert ids == [(first, [0, 1]), (second, [2]), (first, [3, 4])]
    assert all(event.txn_id == b"txn" and event.outcome == Accepted() for event in runs)
    assert [event.settled for event in runs] == [settled] * 3
    assert (first.unsettled_count, second.unsettled_count) == ((0, 0) if settled else (4, 1))


def test_an_unsettled_outcome_stays_open() -> None:
    """4.4.2: the controller may change it until the discharge; then we settle, and what ends unsettled is
    told with its link.
    """
    peer, first, _ = two_links()
    peer.say(Disposition(role=RECEIVER, first=0, last=1, settled=False, state=RETIRED))
    other = TransactionalState(txn_id=b"next", outcome=Released())
    (event,) = of_type(
        peer.say(Disposition(role=RECEIVER, first=0, last=0, settled=False, state=other)), OutcomesReceived
    )
    assert event.txn_id == b"next" and [one.state for one in event.deliveries] == [other]
    assert peer.heard() == [] and first.unsettled_count == 4
    first.settle(event.deliveries, RETIRED)
    assert peer.heard() == [Disposition(role=SENDER, first=0, last=0, settled=True, state=RETIRED)]
    first.detach()
    (told,) = [event for event in peer.server.take_events() if hasattr(event, "unsettled")]
    assert [one.delivery_id for one in told.unsettled] == [1, 3, 4]
    assert [one.state for one in told.unsettled] == [RETIRED, None, None]


def test_one_by_one_in_one_transaction_is_one_run() -> None:
    """Clients that settle message by message cost one event for each read; another transaction, or another
    link, begins a new run.
    """
    peer, first, second = two_links()
    other = TransactionalState(txn_id=b"other", outcome=Accepted())
    states = [RETIRED, RETIRED, RETIRED, RETIRED, other]
    frames = [
        encode_frame(0, Disposition(role=RECEIVER, first=n, settled=True, state=state))
        for n, state in enumerate(states)
    ]
    runs = of_type(peer.feed(b"".join(frames)), OutcomesReceived)
    found = [(event.link, len(event.deliveries), event.txn_id) for event in runs]
    assert found == [(first, 2, b"txn"), (second, 1, b"txn"), (first, 1, b"txn"), (first, 1, b"other")]


def test_a_settled_one_does_not_join_unsettled_ones() -> None:
    """The same state, but not the same thing."""
    peer, _, _ = two_links()
    frames = [
        encode_frame(0, Disposition(role=RECEIVER, first=n, settled=n == 1, state=RETIRED)) for n in (0, 1)
    ]
    runs = of_type(peer.feed(b"".join(frames)), OutcomesReceived)
    assert [event.settled for event in runs] == [False, True]


def test_an_outcome_that_has_a_txn_id_is_not_in_a_transaction() -> None:
    """4.5.6: `declared` answers a declare; it is the outcome itself."""
    peer, _, _ = two_links()
    state = Declared(txn_id=b"new")
    (event,) = of_type(
        peer.say(Disposition(role=RECEIVER, first=0, settled=True, state=state)), OutcomesReceived
    )
    assert event.txn_id is None and event.outcome == state


# --- the controller's side


def test_a_client_retires_unsettled() -> None:
    """Unsettled in a link of mode first; the resource settles at the discharge, and that is told."""
    pair, receiver, sender, found = delivered(3)
    receiver.dispose(found, RETIRED, settled=False)
    pair.flush()
    (event,) = of_type(pair.server_events, OutcomesReceived)
    assert event.txn_id == b"txn" and not event.settled and sender.unsettled_count == 3
    sender.settle(event.deliveries, RETIRED)
    pair.flush()
    (settled,) = of_type(pair.client_events, DeliveriesSettled)
    assert settled.deliveries == found and receiver.session.unsettled_in.count == 0


@pytest.mark.parametrize("mode", [0, 1])
def test_a_client_retires_settled(mode: int) -> None:
    """Whatever the settle mode of the link: the outcome and the settlement in one."""
    pair, receiver, sender, found = delivered(3, rcv_settle_mode=mode)
    receiver.dispose(found, RETIRED, settled=True)
    pair.flush()
    (event,) = of_type(pair.server_events, OutcomesReceived)
    assert event.txn_id == b"txn" and event.settled and sender.unsettled_count == 0
    assert receiver.session.unsettled_in.count == 0


def test_a_client_tells_again_after_a_rollback() -> None:
    """4.4.2: the deliveries are still live; another outcome, then settled: each is told once more."""
    pair, receiver, sender, found = delivered(2)
    receiver.dispose(found, RETIRED, settled=False)
    receiver.dispose(found, TransactionalState(txn_id=b"next", outcome=Rejected()), settled=False)
    receiver.dispose(found[:1], Released(), settled=True)
    pair.flush()
    told = [
        (event.txn_id, len(event.deliveries), event.settled)
        for event in of_type(pair.server_events, OutcomesReceived)
    ]
    assert told == [(b"txn", 2, False), (b"next", 2, False), (None, 1, True)]
    assert sender.unsettled_count == 1
    receiver.dispose(found[:1], Accepted(), settled=False)
    assert pair.client.output_size() == 0, "what we settled is gone"
    sender.settle(of_type(pair.server_events, OutcomesReceived)[1].deliveries)
    pair.flush()
    (settled,) = of_type(pair.client_events, DeliveriesSettled)
    assert settled.deliveries == found[1:]
    assert not receiver._awaiting, "nothing of it is kept"


def test_nothing_is_told_of_a_link_that_went() -> None:
    """Nor of no deliveries."""
    pair, receiver, _, found = delivered(1)
    receiver.dispose([], RETIRED, settled=True)
    receiver.detach()
    pair.flush()
    receiver.dispose(found, RETIRED, settled=False)
    assert pair.client.output_size() == 0
