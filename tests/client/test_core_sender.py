"""Sending: credit, outcomes, and what is known of a message when its link is gone."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.client import core_sender
from amqp_broker.client.errors import LinkGone, MessageRefused, OutcomeUnknown, WrongUse
from amqp_broker.client.messages import body_of, message, outgoing
from amqp_broker.frames import (
    SETTLE_MODE_SETTLED,
    Accepted,
    Error,
    Message,
    Modified,
    Received,
    Rejected,
    Released,
)
from amqp_broker.links import AttachReceived, DeliveriesReceived
from tests.client.back_to_back import BackToBack

FULL = Error(condition="amqp:resource-limit-exceeded", description="the queue is full")


def test_an_accepted_message_came_as_it_was_made() -> None:
    """The outcome is the answer, the octets are ours."""
    pair = BackToBack().open()
    pair.answer_deliveries(Accepted())
    sender, _ = pair.sender()
    content = message({"shoes": 2}, subject="order", application_properties={"shop": "here"})
    assert pair.done(sender.send(content)) == Accepted()
    assert pair.received() == [content.data]
    found = Message(content.data)
    assert found.header.durable and found.properties is not None and found.properties.subject == "order"


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Rejected(error=FULL), "rejected (amqp:resource-limit-exceeded: the queue is full)"),
        (Rejected(), "rejected"),
        (Released(), "released"),
        (Modified(delivery_failed=True), "modified (delivery_failed)"),
        (Modified(), "modified"),
    ],
)
def test_every_other_outcome_is_an_error(outcome: Any, words: str) -> None:
    """A send that returns means accepted, and nothing else."""
    pair = BackToBack().open()
    pair.answer_deliveries(outcome)
    sender, _ = pair.sender()
    with pytest.raises(MessageRefused) as caught:
        pair.done(sender.send(message("one")))
    assert str(caught.value).startswith(
        "expected accepted as the outcome of a message to 'orders', but it was"
    )
    assert words in str(caught.value) and caught.value.outcome == outcome
    assert caught.value.error == getattr(outcome, "error", None)


def test_an_unsettled_outcome_is_settled_by_us() -> None:
    """2.6.12: the receiver in mode second waits for the sender; a state that is no outcome is passed over."""
    pair = BackToBack().open()
    held: list[DeliveriesReceived] = []
    pair.answers[DeliveriesReceived] = held.append
    sender, remote = pair.sender()
    sending = sender.send(message("one"))
    pair.flush()
    remote.dispose(held[0].deliveries, Received(section_number=0, section_offset=0), settled=False)
    pair.flush()
    assert not sending.done
    remote.dispose(held[0].deliveries, Accepted(), settled=False)
    assert pair.done(sending) == Accepted()
    assert sender.link.unsettled_count == 0 and remote.session.unsettled_in.count == 0


def test_settled_without_an_outcome_is_unknown() -> None:
    """Nobody said accepted."""
    pair = BackToBack().open()
    pair.answer_deliveries(None)
    sender, _ = pair.sender()
    with pytest.raises(OutcomeUnknown, match="it was settled with no outcome; it may have been stored"):
        pair.done(sender.send(message("one")))


def test_without_credit_a_message_waits() -> None:
    """It goes out with the credit, in order."""
    pair = BackToBack().open()
    pair.credit = 0
    pair.answer_deliveries(Accepted())
    sender, remote = pair.sender()
    first, second = sender.send(message("one")), sender.send(message("two"))
    pair.flush()
    assert not first.done and sender.waiting == 2
    remote.flow(1)
    pair.flush()
    assert first.done and not second.done
    remote.flow(1)
    pair.done(second)
    assert [body_of(Message(data)) for data in pair.received()] == ["one", "two"]


def test_credit_that_is_wanted_back_is_given_back() -> None:
    """Drain: what waits goes first."""
    pair = BackToBack().open()
    pair.credit = 0
    sender, remote = pair.sender()
    waiting = sender.send(message("one"))
    remote.flow(5, drain=True)
    pair.flush()
    assert len(pair.received()) == 1 and remote.credit == 0 and not waiting.done
    assert sender.link.credit == 0


def test_a_message_that_nobody_waits_for_is_not_sent_later() -> None:
    """Given up before it went: never sent. Given up after it went: unknown."""
    pair = BackToBack().open()
    pair.credit = 1
    sender, remote = pair.sender()
    sent, waits = sender.send(message("sent")), sender.send(message("waits"))
    pair.flush()
    assert waits.give_up() == "it was not sent, for want of credit, and will not be"
    assert sent.give_up() == "it was sent, and may be stored, or not"
    remote.flow(10)
    pair.flush()
    assert len(pair.received()) == 1


def test_settled_messages_are_done_when_they_left() -> None:
    """Nobody promises anything; both kinds keep their order on one link."""
    pair = BackToBack().open()
    pair.answer_deliveries(Accepted())
    sender, _ = pair.sender()
    pendings = [sender.send(message(number), settled=number % 3 == 0) for number in range(7)]
    assert [pendings[index].done for index in (0, 3, 6)] == [True] * 3
    pair.flush()
    assert [pending.result() for pending in pendings] == [
        None if number % 3 == 0 else Accepted() for number in range(7)
    ]
    assert [body_of(Message(data)).value for data in pair.received()] == list(range(7))


def test_a_link_of_settled_mode_sends_all_settled() -> None:
    """The peer may have agreed on settled; there are no outcomes then."""
    pair = BackToBack().open()
    sender, _ = pair.sender(snd_settle_mode=SETTLE_MODE_SETTLED)
    assert pair.done(sender.send(message("one"), settled=True)) is None
    pair.done(sender.send(message("two")))
    assert len(pair.received()) == 2


def test_large_messages_go_in_pieces_beside_others() -> None:
    """More than a frame and more than the output takes at once, on two links at a time."""
    pair = BackToBack(server={"max_frame_size": 4_096}).open()
    pair.answer_deliveries(Accepted())
    one, _ = pair.sender("one")
    two, _ = pair.sender("two")
    large = bytes(1_000_000)
    pendings = [link.send(outgoing(large)) for link in (one, two) for _ in range(3)]
    pair.flush()
    assert [pending.result() for pending in pendings] == [Accepted()] * 6
    assert all(len(payload) > 1_000_000 for payload in pair.received())


def test_more_than_the_windows_take_goes_on_by_itself() -> None:
    """Twenty thousand messages at once: credit, session window, unsettled and output bounds all strike."""
    pair = BackToBack().open()
    pair.answer_deliveries(Accepted())
    sender, _ = pair.sender()
    pendings = [sender.send(message(bytes(200))) for _ in range(20_000)]
    pair.flush()
    assert all(pending.done for pending in pendings) and sender.waiting == 0
    assert len(pair.received()) == 20_000 and not pair.core.stalled


def test_too_large_a_message_is_never_begun() -> None:
    """The peer's max-message-size is known from its attach."""
    pair = BackToBack().open()
    pair.answers[AttachReceived] = lambda event: event.link.accept(max_message_size=100, credit=10)
    sender, _ = pair.sender()
    with pytest.raises(WrongUse, match="expected at most 100 octets to 'orders', found 1"):
        sender.send(message(bytes(100))).result()
    pair.flush()
    assert pair.received() == [] and sender.gone is None


def test_what_waits_for_credit_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that never waits is told."""
    monkeypatch.setattr(core_sender, "WAITING_MAX", 3)
    pair = BackToBack().open()
    pair.credit = 0
    sender, _ = pair.sender()
    for _ in range(3):
        sender.send(message("one"))
    with pytest.raises(WrongUse, match="3 messages to 'orders' wait for credit already"):
        sender.send(message("one")).result()


def test_a_detach_tells_what_is_unknown_and_what_was_not_sent() -> None:
    """The difference decides whether sending again may make two of it."""
    pair = BackToBack().open()
    pair.credit = 1
    sender, remote = pair.sender()
    sent, waits = sender.send(message("sent")), sender.send(message("waits"))
    pair.flush()
    remote.detach(Error(condition="amqp:resource-deleted", description="gone"))
    pair.flush()
    with pytest.raises(OutcomeUnknown, match="amqp:resource-deleted: gone; it may have"):
        sent.result()
    with pytest.raises(LinkGone, match=r"\(it was not sent\), but the link was detached: the peer"):
        waits.result()
    assert not pair.core.stalled
