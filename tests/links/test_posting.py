"""Posting within transactions: what the transfers of one delivery say of theirs (4.4.1)."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.frames import Accepted, Declared, Received, TransactionalState, encode_frame
from amqp_broker.links import DeliveriesReceived, LinkDetached
from tests.links.pair import Message, of_type, sending
from tests.links.raw_peer import attached, deliveries, detached_with, transfer

ONE = TransactionalState(txn_id=b"one")
OTHER = TransactionalState(txn_id=b"other")


@pytest.mark.parametrize(
    ("states", "found"),
    [
        ((ONE, ONE, ONE), b"one"),
        ((ONE, None, None), b"one"),
        ((ONE, None, ONE), b"one"),
        ((None, None, None), None),
        ((None, Accepted(), None), None),
    ],
)
def test_one_delivery_one_transaction(states: tuple[object, ...], found: bytes | None) -> None:
    """2.7.5: later transfers may leave the state out; it is the delivery's and not the transfer's."""
    peer, _ = attached()
    for index, state in enumerate(states):
        peer.say(transfer(0 if index == 0 else None, more=index < 2, state=state), b"part")
    (delivery,) = deliveries(peer.events)
    assert delivery.txn_id == found and delivery.payload == b"part" * 3


@pytest.mark.parametrize(
    ("first", "later", "words"),
    [
        (ONE, OTHER, (b"one".hex(), b"other".hex())),
        (None, ONE, ("no transaction", b"one".hex())),
        (Accepted(), ONE, ("no transaction", b"one".hex())),
        (ONE, Accepted(), (b"one".hex(), "no transaction")),
        (ONE, Received(section_number=0, section_offset=0), (b"one".hex(), "no transaction")),
    ],
)
@pytest.mark.parametrize("fields", [{}, {"more": True}, {"aborted": True}])
def test_a_delivery_of_two_transactions_ends_the_link(
    first: Any, later: Any, words: tuple[str, str], fields: dict[str, bool]
) -> None:
    """4.4.1: "all frames MUST be explicitly associated with the same transaction"; both are named."""
    peer, link = attached()
    peer.say(transfer(0, more=True, state=first), b"part")
    peer.say(transfer(None, state=later, **fields), b"part")
    said = detached_with(peer, "amqp:not-allowed")
    assert words[0] in said and words[1] in said
    assert not deliveries(peer.events) and not peer.server.partial_txn_ids()
    assert link.session.held == link.session.unsettled_in.count == 0


def test_the_transactions_of_incomplete_deliveries() -> None:
    """4.4.1: it is an error to discharge a transaction against which a partial delivery has been posted."""
    peer, _ = attached()
    peer.attach_sender(1, "second")
    peer.attach_sender(2, "third")
    assert peer.server.partial_txn_ids() == set()
    peer.say(transfer(0, more=True, state=ONE), b"part")
    peer.say(transfer(1, handle=1, more=True, state=OTHER), b"part")
    peer.say(transfer(2, handle=2, more=True), b"part")
    assert peer.server.partial_txn_ids() == {b"one", b"other"}
    peer.say(transfer(None), b"end")
    assert peer.server.partial_txn_ids() == {b"other"}
    peer.say(transfer(None, handle=1, aborted=True))
    assert peer.server.partial_txn_ids() == set()
    assert len(deliveries(peer.events)) == 1


def test_another_state_with_a_txn_id_is_no_transaction() -> None:
    """`declared` has no place on a transfer; the caller judges the delivery."""
    peer, _ = attached()
    peer.say(transfer(0, more=True, state=Declared(txn_id=b"one")), b"part")
    assert peer.server.partial_txn_ids() == set() and len(peer.server.partial_links) == 1


def test_incomplete_deliveries_of_all_sessions() -> None:
    """A transaction may span the sessions of its connection; a lost session takes its own with it."""
    peer, link = attached()
    peer.begin(channel=1)
    peer.attach_sender(0, "elsewhere", channel=1)
    peer.say(transfer(0, more=True, state=ONE), b"part")
    peer.say(transfer(0, more=True, state=OTHER), b"part", channel=1)
    assert peer.server.partial_txn_ids() == {b"one", b"other"}
    link.session.end()
    assert peer.server.partial_txn_ids() == {b"other"}
    assert of_type(peer.server.take_events(), LinkDetached)


@pytest.mark.parametrize("hot_path", [True, False])
def test_a_run_of_posts_has_one_state(hot_path: bool) -> None:
    """The state is the transaction's in each delivery; on the hot path it is one object, also between runs of
    two links in turns.
    """
    peer, _ = attached(credit=100)
    peer.attach_sender(1, "second")
    peer.server.hot_path = hot_path
    frames = [encode_frame(0, transfer(n, handle=n // 3 % 2, state=ONE), b"x") for n in range(18)]
    found = deliveries(peer.feed(b"".join(frames)))
    assert [delivery.state for delivery in found] == [ONE] * 18
    if hot_path:
        assert all(delivery.state is found[0].state for delivery in found)


def test_a_large_post_of_our_own_engine() -> None:
    """All pieces name the transaction, so any broker takes them; it is told while it is incomplete."""
    pair, sender, _ = sending(server={"max_frame_size": 512})
    assert sender.send_in([Message(b"x" * 5_000)], ONE)[0] == 1
    written = b"".join(pair.client.data_to_send())
    pair.give(pair.server, written[:3_000])
    assert pair.server.partial_txn_ids() == {b"one"}
    pair.give(pair.server, written[3_000:])
    pair.flush()
    (event,) = of_type(pair.server_events, DeliveriesReceived)
    assert event.deliveries[0].txn_id == b"one" and len(event.deliveries[0].payload) == 5_000
