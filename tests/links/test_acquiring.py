"""Sending within transactions: transfers with their state, and flows that name a transaction (4.4.3)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.frames import (
    RECEIVER,
    Accepted,
    Disposition,
    Flow,
    TransactionalState,
    Transfer,
    Uint,
    encode_frame,
)
from amqp_broker.links import (
    CreditReceived,
    DeliveriesReceived,
    Event,
    FlowReceived,
    LocalProtocolError,
    OutcomesReceived,
    SenderLink,
)
from tests.links.pair import Message, of_type, receiving, sending
from tests.links.raw_peer import RawPeer, deliveries, flow, transfer
from tests.support.examples import examples

STATE = TransactionalState(txn_id=b"txn-one")


def attached(credit: int = 100, frame: int | None = None, **fields: Any) -> tuple[RawPeer, SenderLink]:
    """A peer with one link on which it receives."""
    peer = RawPeer()
    peer.open(**({} if frame is None else {"max_frame_size": frame})).begin()
    link = peer.attach_receiver(credit=credit, **fields)
    peer.heard()
    return peer, link


def credit(count: int, txn_id: Any = None, **fields: Any) -> Flow:
    """A flow of handle 0 that gives credit, in a transaction or not."""
    properties = None if txn_id is None else {"txn-id": txn_id}
    return flow(handle=0, delivery_count=0, link_credit=count, properties=properties, **fields)


def ending(count: int) -> Flow:
    """A flow of handle 0 whose properties name no transaction."""
    return flow(handle=0, delivery_count=0, link_credit=count, properties={})


def names(events: list[Event]) -> list[str]:
    """What kinds of events these are."""
    return [type(event).__name__ for event in events]


# --- send_in


def test_transfers_of_an_acquisition_carry_the_state() -> None:
    """4.4: the txn-ids included MUST correctly indicate with which transaction this work is associated."""
    peer, link = attached()
    sent = [Message(b"one", b"head", 5), Message(b"two"), Message(b"three")]
    count, deliveries = link.send_in(sent, STATE)
    assert count == 3 and [delivery.message for delivery in deliveries] == sent
    first, second, third = peer.frames()
    assert first.performative == Transfer(
        handle=0, delivery_id=0, delivery_tag=b"\0\0\0\0", message_format=5, settled=False, state=STATE
    )
    assert (first.payload, second.payload, third.payload) == (b"headone", b"two", b"three")
    assert second.performative.state == third.performative.state == STATE
    assert link.credit == 97 and link.unsettled_count == 3


def test_the_deliveries_are_those_that_outcomes_tell() -> None:
    """The same objects, so that work can be found again by identity."""
    peer, link = attached()
    link.send([Message(b"outside")])
    _, deliveries = link.send_in([Message(b"a"), Message(b"b")], STATE)
    (event,) = of_type(
        peer.say(Disposition(role=RECEIVER, first=1, last=2, settled=False, state=STATE)), OutcomesReceived
    )
    assert len(event.deliveries) == 2
    assert all(told is sent for told, sent in zip(event.deliveries, deliveries, strict=True))


@pytest.mark.parametrize("mode", [1, 2])
def test_a_settled_acquisition_has_no_deliveries(mode: int) -> None:
    """What is sent settled is forgotten at once; how many went is still told."""
    peer, link = attached(snd_settle_mode=mode)
    assert link.send_in([Message(b"a"), Message(b"b")], STATE, settled=mode == 2) == (2, [])
    assert [(item.settled, item.state) for item in peer.heard()] == [(True, STATE)] * 2


def test_transactions_and_plain_sends_take_turns() -> None:
    """Each send has its own state; none of it stays for the next."""
    peer, link = attached()
    other = TransactionalState(txn_id=b"other")
    link.send_in([Message(b"a")], STATE)
    link.send([Message(b"b")])
    link.send_in([Message(b"c")], other)
    link.send_in([Message(b"d")], STATE)
    link.send_in([Message(b"e")], TransactionalState(txn_id=b"txn-one"))
    link.send_in([Message(b"f")], None)
    assert [item.state for item in peer.heard()] == [STATE, None, other, STATE, STATE, None]


def test_send_in_takes_what_send_would() -> None:
    """Credit, and only that of an attached link."""
    peer, link = attached(credit=2)
    messages = [Message(b"x")] * 5
    count, deliveries = link.send_in(messages, STATE)
    assert count == len(deliveries) == 2
    assert link.send_in(messages, STATE) == (0, [])
    peer.say(credit(9, b"t"))
    link.flow_handled()
    link.detach()
    assert link.send_in(messages, STATE) == (0, [])


def test_a_state_that_is_no_transactions_does_not_go() -> None:
    """The head of a transfer stays within its bound; nothing is sent."""
    peer, link = attached()
    with pytest.raises(LocalProtocolError):
        link.send_in([Message(b"x")], TransactionalState(txn_id=b"t" * 300))
    assert peer.heard() == [] and link.credit == 100


@examples(30)
@given(st.integers(400, 3_000), st.sampled_from([512, 600]), st.booleans(), st.integers(1, 32))
def test_all_pieces_of_a_large_message_name_the_transaction(
    size: int, frame: int, settled: bool, id_bytes: int
) -> None:
    """4.4.1: all frames of a split delivery are explicitly associated; none is larger than the peer takes."""
    peer, link = attached(frame=frame)
    state = TransactionalState(txn_id=b"t" * id_bytes)
    large = Message(b"b" * size, b"h" * 40)
    count, deliveries = link.send_in([Message(b"small"), large], state, settled=settled)
    assert count == 2 and len(deliveries) == (0 if settled else 2)
    frames = peer.frames()
    assert all(item.performative.state == state for item in frames)
    assert all(len(encode_frame(0, item.performative, item.payload)) <= frame for item in frames)
    assert b"".join(item.payload for item in frames[1:]) == large.header_bytes + large.body


# --- FlowReceived


def test_a_flow_that_names_a_transaction_is_told() -> None:
    """4.4.3: the txn-id is state of the link; properties set or end it, a flow without any leaves it."""
    peer, link = attached(credit=5)
    events = peer.say(credit(6, b"t"))
    assert names(events) == ["FlowReceived", "CreditReceived"]
    assert isinstance(events[0], FlowReceived) and events[0].link is link and events[0].txn_id == b"t"
    (event,) = of_type(peer.say(credit(7, b"t")), FlowReceived)
    assert event.txn_id == b"t"
    assert not of_type(peer.say(credit(8)), FlowReceived), "more credit for the same transaction"
    assert not of_type(peer.say(flow()), FlowReceived)
    (event,) = of_type(peer.say(ending(7)), FlowReceived)
    assert event.txn_id is None
    assert not of_type(peer.say(credit(8)), FlowReceived)
    assert not of_type(peer.say(flow(handle=0, link_credit=1, properties={"other": b"1"})), FlowReceived)


@pytest.mark.parametrize("txn_id", [Uint(7), "text", [b"list"], {"a": b"1"}, b"", b"t" * 300])
def test_what_a_txn_id_is_the_caller_judges(txn_id: Any) -> None:
    """Any type comes through; nothing of the engine breaks."""
    peer, _ = attached()
    (event,) = of_type(peer.say(credit(6, txn_id)), FlowReceived)
    assert event.txn_id == txn_id
    (event,) = of_type(peer.say(ending(6)), FlowReceived)
    assert event.txn_id is None


def test_nothing_is_sent_before_the_answer() -> None:
    """Credit of a transactional flow is not used by a handler of an event that came before it."""
    peer, link = attached(credit=0)
    events = peer.feed(encode_frame(0, credit(3)) + encode_frame(0, credit(5, b"t")))
    assert names(events) == ["CreditReceived", "FlowReceived"]
    assert link.credit == 5 and link.sendable() == 0
    assert link.send([Message(b"x")]) == 0 and link.send_in([Message(b"x")], STATE) == (0, [])
    assert peer.heard() == []
    link.flow_handled()
    assert names(peer.server.take_events()) == ["CreditReceived"]
    assert link.sendable() == 5 and link.send([Message(b"x")]) == 1


def test_each_flow_wants_its_answer() -> None:
    """A transaction, its end and the next one in one read: three events in order, three answers."""
    peer, link = attached(credit=0)
    frames = [credit(2, b"a"), ending(2), credit(2, b"b")]
    events = peer.feed(b"".join(encode_frame(0, frame) for frame in frames))
    assert [event.txn_id for event in of_type(events, FlowReceived)] == [b"a", None, b"b"]
    for _ in range(2):
        link.flow_handled()
        assert link.sendable() == 0 and peer.server.take_events() == []
    link.flow_handled()
    assert names(peer.server.take_events()) == ["CreditReceived"] and link.sendable() == 2
    link.flow_handled()
    assert peer.server.take_events() == [] and link.sendable() == 2


def test_a_flow_stands_at_its_place() -> None:
    """Between the messages (a discharge, say) that came before and after it."""
    peer, _ = attached()
    peer.attach_sender(1, "up")
    frames = [transfer(0, handle=1), credit(2, b"a"), transfer(1, handle=1), ending(2), transfer(2, handle=1)]
    events = peer.feed(b"".join(encode_frame(0, item) for item in frames))
    kinds = [type(event) for event in events if not isinstance(event, CreditReceived)]
    assert kinds == [DeliveriesReceived, FlowReceived] * 2 + [DeliveriesReceived]


def test_a_drain_waits_for_the_answer() -> None:
    """2.6.7: no credit is given back before the transaction's messages were looked for; then it is."""
    peer, link = attached(credit=0)
    peer.say(credit(5, b"t", drain=True, echo=True))
    link.drained()
    (answer,) = peer.heard()
    assert (answer.delivery_count, answer.link_credit) == (0, 5), "only the echo"
    link.flow_handled()
    link.send_in([Message(b"x")], STATE)
    link.drained()
    message, answer = peer.heard()
    assert isinstance(message, Transfer)
    assert (answer.delivery_count, answer.link_credit, answer.drain) == (5, 0, True)


def test_a_flow_that_takes_all_credit_is_answered_at_once() -> None:
    """4.4.3: a controller reduces the credit to zero and waits to hear that the sender has seen it."""
    peer, link = attached(credit=0)
    peer.say(credit(5, b"t"))
    link.flow_handled()
    peer.say(flow(handle=0, delivery_count=0, link_credit=0, echo=True))
    (answer,) = peer.heard()
    assert (answer.delivery_count, answer.link_credit) == (0, 0)


def test_a_link_that_went_before_the_answer() -> None:
    """The answer is harmless."""
    peer, link = attached(credit=0)
    peer.say(credit(5, b"t"))
    link.detach()
    peer.server.take_events()
    link.flow_handled()
    assert peer.server.take_events() == []


def test_a_client_acquires_in_a_transaction() -> None:
    """Our own engine as the controller: credit with a txn-id, and the state on what comes."""
    pair, receiver, sender = receiving()
    receiver.flow(2, properties={"txn-id": b"txn-one"})
    pair.flush()
    (event,) = of_type(pair.server_events, FlowReceived)
    assert event.txn_id == b"txn-one"
    sender.flow_handled()
    assert sender.send_in([Message(b"a"), Message(b"b"), Message(b"c")], STATE)[0] == 2
    pair.flush()
    found = deliveries(pair.client_events)
    assert [one.txn_id for one in found] == [b"txn-one"] * 2
    receiver.flow(2, drain=True, properties={})
    pair.flush()
    assert of_type(pair.server_events, FlowReceived)[-1].txn_id is None and sender.drain


def test_a_client_posts_in_a_transaction() -> None:
    """4.4.1: `send_in` is how a controller posts."""
    pair, sender, receiver = sending()
    sender.send_in([Message(b"a")], STATE)
    sender.send_in([Message(b"b")], STATE, settled=True)
    pair.flush()
    found = deliveries(pair.server_events)
    assert [(one.txn_id, one.settled) for one in found] == [(b"txn-one", False), (b"txn-one", True)]
    receiver.settle(found[:1], TransactionalState(txn_id=b"txn-one", outcome=Accepted()))
    pair.flush()
    (event,) = of_type(pair.client_events, OutcomesReceived)
    assert event.txn_id == b"txn-one" and event.outcome == Accepted() and event.settled
