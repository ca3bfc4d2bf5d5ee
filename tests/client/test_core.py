"""The client's core back to back with an engine: opening, sessions and ends; sending; receiving."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.client import core_sender
from amqp_broker.client.core_receiver import ReceiverCore
from amqp_broker.client.core_session import SessionCore
from amqp_broker.client.errors import (
    ConnectionGone,
    LinkGone,
    LinkRefused,
    LoginRefused,
    MessageRefused,
    OutcomeUnknown,
    SessionGone,
    WrongUse,
)
from amqp_broker.client.messages import ReceivedMessage, body_of, message, outgoing
from amqp_broker.client.pending import Pending
from amqp_broker.frames import (
    AMQP_HEADER,
    EMPTY_FRAME,
    SETTLE_MODE_SETTLED,
    Accepted,
    Data,
    Error,
    Message,
    Modified,
    Properties,
    Received,
    Rejected,
    Released,
    Source,
    Target,
    encode_message,
)
from amqp_broker.links import (
    AttachReceived,
    ConnectionOpened,
    DeliveriesReceived,
    Limits,
    OutcomesReceived,
    SaslInitReceived,
    SaslResponseReceived,
)
from amqp_broker.sasl_mechanisms import Challenge, Scram
from amqp_broker.verifiers import make_verifier
from tests.client.back_to_back import BackToBack, sendable
from tests.links.pair import Message as Sendable

FORCED = Error(condition="amqp:connection:forced", description="the broker is stopping")


@pytest.fixture
def pair() -> BackToBack:
    """An open connection."""
    return BackToBack().open()


def test_open_tells_who_we_are_and_ends_with_the_peers_open() -> None:
    """The container-id, the host that was called, and bounds are in our open; the peer's is the answer."""
    pair = BackToBack({"container_id": "shop", "max_message_bytes": 1_000}, {"container_id": "the broker"})
    opened = pair.done(pair.core.open())
    assert opened.container_id == "the broker" and pair.core.remote_open is opened
    (event,) = [event for event in pair.events if isinstance(event, ConnectionOpened)]
    assert event.remote_open.container_id == "shop"
    assert event.remote_open.hostname == "127.0.0.1"
    link, remote = pair.receiver()
    assert remote.remote_max_message_size == 1_000 and pair.core.gone is None


def test_a_bare_open_needs_no_login() -> None:
    """sasl=False speaks the AMQP header at once."""
    pair = BackToBack({"sasl": False})
    opened = pair.core.open()
    first = pair.core.data_to_send()
    assert b"".join(first).startswith(AMQP_HEADER)
    assert not opened.done


def test_a_peer_without_our_mechanism_is_told_by_name() -> None:
    """The error says what we wanted and what was offered, and the connection ends."""
    pair = BackToBack({"user": "ada", "password": "word"}, {"sasl_mechanisms": ("ANONYMOUS", "EXTERNAL")})
    wanted = "one of SCRAM-SHA-512, SCRAM-SHA-256, SCRAM-SHA-1, PLAIN for user 'ada'"
    with pytest.raises(LoginRefused, match=wanted):
        pair.done(pair.core.open())
    assert pair.core.wants_close


def test_a_refused_login_is_a_login_refused() -> None:
    """The SASL code comes in words, the password does not."""
    pair = BackToBack({"user": "ada", "password": "s3cret"}, {"sasl_mechanisms": ("PLAIN",)})
    pair.answers[SaslInitReceived] = lambda event: pair.server.sasl_outcome(1)
    with pytest.raises(LoginRefused, match="refused PLAIN of user 'ada': code 1, wrong user") as caught:
        pair.done(pair.core.open())
    assert "s3cret" not in str(caught.value) and "s3cret" not in repr(pair.core.settings)


def test_a_peer_that_only_says_yes_has_not_proved_itself() -> None:
    """SCRAM: whoever does not know the password cannot sign, and gets no open out of us that counts."""
    pair = BackToBack({"user": "ada", "password": "word"}, {"sasl_mechanisms": ("SCRAM-SHA-256",)})
    verifier = make_verifier("SCRAM-SHA-256", "word", 4_096, bytes(range(16)))
    server = Scram("SCRAM-SHA-256", lambda name: (verifier, True))

    def challenge(event: SaslInitReceived) -> None:
        step = server.step(event.initial_response)
        assert isinstance(step, Challenge)
        pair.server.sasl_challenge(step.data)

    pair.answers[SaslInitReceived] = challenge
    pair.answers[SaslResponseReceived] = lambda event: pair.server.sasl_outcome(0, b"v=AAAA")
    with pytest.raises(LoginRefused, match="the peer did not prove that it knows user 'ada'"):
        pair.done(pair.core.open())
    assert pair.core.wants_close and pair.core.remote_open is None


def test_a_peer_that_speaks_something_else_ends_the_open() -> None:
    """Bytes that are no AMQP: the error says what was expected and what came."""
    pair = BackToBack()
    opened = pair.core.open()
    pair.core.data_to_send()
    pair.core.receive_data(b"HTTP/1.1 400 Bad Request\r\n", pair.now)
    with pytest.raises(ConnectionGone, match="expected the peer's open, .* expected the protocol header"):
        opened.result()


def test_an_open_that_does_not_come_is_given_up() -> None:
    """The bound is open_timeout_s, on the caller's clock."""
    pair = BackToBack({"open_timeout_s": 3.0})
    opened = pair.core.open()
    assert pair.core.next_deadline() == pair.now + 3.0
    pair.core.handle_timeout(pair.now + 2.9)
    assert not opened.done
    pair.core.handle_timeout(pair.now + 3.0)
    with pytest.raises(ConnectionGone, match="no open within 3 s"):
        opened.result()
    assert pair.core.wants_close


def test_the_peers_close_ends_everything_that_waits(pair: BackToBack) -> None:
    """An attach, an outcome and a message to come: each is told why, with the peer's condition."""
    sender, _ = pair.sender()
    receiver, _ = pair.receiver()
    outcome = sender.send(message("one"))
    arrival = receiver.arrival()
    pair.answers[AttachReceived] = lambda event: pair.server.close(FORCED)
    attaching = receiver.link.session.context.attach_sender("other")
    pair.flush()
    for pending, kind in ((outcome, OutcomeUnknown), (attaching, ConnectionGone)):
        with pytest.raises(kind, match="amqp:connection:forced: the broker is stopping") as caught:
            pending.result()
        assert caught.value.condition == "amqp:connection:forced"
    assert arrival.done
    with pytest.raises(ConnectionGone, match="expected a message from 'orders', but the connection"):
        receiver.take()
    assert pair.core.gone == "the peer closed it, amqp:connection:forced: the broker is stopping"


def test_after_the_end_every_call_fails_at_once(pair: BackToBack) -> None:
    """Nothing waits for what will never come."""
    sender, _ = pair.sender()
    session = sender.link.session.context
    pair.core.receive_eof(pair.now, "the cable was cut")
    for pending in (
        pair.core.begin(),
        session.attach_sender("a"),
        session.attach_receiver("a", 1),
        sender.send(message("one")),
    ):
        with pytest.raises(ConnectionGone, match="the cable was cut"):
            pending.result()
    assert pair.core.close().done


def test_close_waits_for_the_peers_close() -> None:
    """Ours is written first, and what has no outcome is unknown."""
    pair = BackToBack(server={"limits": Limits(outcome_wait_s=0.0)}).open()
    sender, _ = pair.sender()
    outcome = sender.send(message("one"))
    closing = pair.core.close()
    pair.flush()
    assert not closing.done
    pair.server.handle_timeout(pair.now)  # it had waited for the outcome
    with pytest.raises(OutcomeUnknown, match="we closed it; it may have been stored, or not"):
        outcome.result()
    pair.done(closing)
    assert pair.core.wants_close and pair.core.gone == "we closed it"
    assert pair.core.close().done


def test_close_does_not_wait_for_ever() -> None:
    """A peer that does not answer is left after close_timeout_s."""
    pair = BackToBack({"close_timeout_s": 1.0}).open()
    closing = pair.core.close()
    pair.core.handle_timeout(pair.now + 1.0)
    assert closing.done and pair.core.wants_close


def test_heartbeats_are_written_in_time_and_silence_is_noticed() -> None:
    """2.4.5: an empty frame after half of the peer's idle-time-out; nothing for twice ours is the end."""
    pair = BackToBack({"idle_time_out_ms": 10_000}, {"idle_time_out_ms": 4_000}).open()
    assert pair.core.next_deadline() == pair.now + 2.0
    pair.core.handle_timeout(pair.now + 2.0)
    assert b"".join(pair.core.data_to_send()) == EMPTY_FRAME
    begun = pair.core.begin()
    pair.core.handle_timeout(pair.now + 20.0)
    with pytest.raises(ConnectionGone, match="nothing came for 20 s"):
        begun.result()


def test_a_pending_is_told_only_to_a_shell_that_waits() -> None:
    """take_finished gives those with a waiter, once."""
    pair = BackToBack()
    opened = pair.core.open()
    opened.waiter = object()
    pair.flush()
    assert pair.core.take_finished() == [opened]
    assert pair.core.take_finished() == []
    pair.done(pair.core.begin())
    assert pair.core.take_finished() == []


# --- sessions and attaching


def test_a_session_that_the_peer_ends_takes_its_links_along(pair: BackToBack) -> None:
    """Others of the same connection go on."""
    sender, remote = pair.sender()
    other, _ = pair.sender("other")
    outcome = sender.send(message("one"))
    pair.flush()
    remote.session.end(Error(condition="amqp:internal-error", description="a fault"))
    pair.flush()
    with pytest.raises(OutcomeUnknown, match="the session ended: the peer ended it, amqp:internal-error"):
        outcome.result()
    with pytest.raises(SessionGone, match="amqp:internal-error: a fault"):
        sender.link.session.context.attach_sender("again").result()
    with pytest.raises(SessionGone, match="it was not sent"):
        sender.send(message("two")).result()
    assert isinstance(pair.begin(), SessionCore)
    other.send(message("three"))
    pair.flush()
    assert len(pair.received()) == 2


def test_a_session_that_we_end(pair: BackToBack) -> None:
    """Harmless twice."""
    sender, _ = pair.sender()
    sender.link.session.context.end()
    sender.link.session.context.end()
    with pytest.raises(SessionGone, match="we ended it"):
        sender.send(message("one")).result()


def test_more_sessions_than_the_peer_allows() -> None:
    """The bound is the peer's channel-max; the error is ours, and the connection lives."""
    pair = BackToBack(server={"channel_max": 1}).open()
    pair.begin()
    pair.begin()
    with pytest.raises(WrongUse, match="expected a new session, but"):
        pair.core.begin().result()
    assert pair.core.gone is None


def test_more_links_than_a_session_has_handles() -> None:
    """The bound is the peer's handle-max."""
    pair = BackToBack(server={"handle_max": 0}).open()
    session = pair.begin()
    pair.done(session.attach_sender("a"))
    with pytest.raises(WrongUse, match="expected a new link, but no handle is left"):
        session.attach_receiver("b", 1).result()


@pytest.mark.parametrize("sends", [True, False])
def test_a_refused_link_says_why(pair: BackToBack, sends: bool) -> None:
    """2.6.3: an attach without a terminus and a detach are one refusal."""
    error = Error(condition="amqp:not-found", description="no node 'orders'")
    pair.answers[AttachReceived] = lambda event: event.link.refuse(error)
    session = pair.begin()
    attaching: Pending[Any] = session.attach_sender("orders")
    if not sends:
        attaching = session.attach_receiver("orders", 1)
    with pytest.raises(LinkRefused, match="'orders', but it was refused, amqp:not-found: no node") as caught:
        pair.done(attaching)
    assert caught.value.condition == "amqp:not-found"


def test_an_attach_that_nobody_waits_for_is_undone(pair: BackToBack) -> None:
    """Messages must not go to a receiver whose caller gave up."""
    session = pair.begin()
    held: list[AttachReceived] = []
    pair.answers[AttachReceived] = held.append
    attaching = session.attach_receiver("orders", 10)
    pair.flush()
    assert attaching.give_up() == ""
    pair.accept_link(held[0])
    pair.flush()
    link = held[0].link
    assert not link.attached and session.gone is None


def test_a_peer_that_attaches_is_refused(pair: BackToBack) -> None:
    """This client attaches by itself; the connection goes on."""
    session = pair.begin()
    remote = pair.server.incoming[session.session.channel]
    link = remote.attach_sender("theirs", Source(address="a"), Target(address="b"))
    pair.flush()
    assert not link.attached
    pair.done(session.attach_sender("ours"))


def test_a_session_that_the_peer_begins_is_of_no_matter(pair: BackToBack) -> None:
    """The engine answers it; nobody waits for it."""
    theirs = pair.server.begin()
    pair.flush()
    assert theirs.writable
    theirs.end()
    pair.flush()
    assert pair.core.gone is None


def test_detaching_is_harmless_twice_and_final(pair: BackToBack) -> None:
    """A link that we detached takes nothing."""
    sender, remote = pair.sender()
    sender.detach()
    sender.detach()
    pair.flush()
    assert not remote.attached
    with pytest.raises(LinkGone, match="we detached it"):
        sender.send(message("one")).result()


# Sending: credit, outcomes, and what is known of a message when its link is gone


FULL = Error(condition="amqp:resource-limit-exceeded", description="the queue is full")


def test_an_accepted_message_came_as_it_was_made(pair: BackToBack) -> None:
    """The outcome is the answer, the octets are ours."""
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
def test_every_other_outcome_is_an_error(pair: BackToBack, outcome: Any, words: str) -> None:
    """A send that returns means accepted, and nothing else."""
    pair.answer_deliveries(outcome)
    sender, _ = pair.sender()
    with pytest.raises(MessageRefused) as caught:
        pair.done(sender.send(message("one")))
    assert str(caught.value).startswith(
        "expected accepted as the outcome of a message to 'orders', but it was"
    )
    assert words in str(caught.value) and caught.value.outcome == outcome
    assert caught.value.error == getattr(outcome, "error", None)


def test_an_unsettled_outcome_is_settled_by_us(pair: BackToBack) -> None:
    """2.6.12: the receiver in mode second waits for the sender; a state that is no outcome is passed over."""
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


def test_settled_without_an_outcome_is_unknown(pair: BackToBack) -> None:
    """Nobody said accepted."""
    pair.answer_deliveries(None)
    sender, _ = pair.sender()
    with pytest.raises(OutcomeUnknown, match="it was settled with no outcome; it may have been stored"):
        pair.done(sender.send(message("one")))


def test_without_credit_a_message_waits(pair: BackToBack) -> None:
    """It goes out with the credit, in order."""
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


def test_credit_that_is_wanted_back_is_given_back(pair: BackToBack) -> None:
    """Drain: what waits goes first."""
    pair.credit = 0
    sender, remote = pair.sender()
    waiting = sender.send(message("one"))
    remote.flow(5, drain=True)
    pair.flush()
    assert len(pair.received()) == 1 and remote.credit == 0 and not waiting.done
    assert sender.link.credit == 0


def test_a_message_that_nobody_waits_for_is_not_sent_later(pair: BackToBack) -> None:
    """Given up before it went: never sent. Given up after it went: unknown."""
    pair.credit = 1
    sender, remote = pair.sender()
    sent, waits = sender.send(message("sent")), sender.send(message("waits"))
    pair.flush()
    assert waits.give_up() == "it was not sent, for want of credit, and will not be"
    assert sent.give_up() == "it was sent, and may be stored, or not"
    remote.flow(10)
    pair.flush()
    assert len(pair.received()) == 1


def test_settled_messages_are_done_when_they_left(pair: BackToBack) -> None:
    """Nobody promises anything; both kinds keep their order on one link."""
    pair.answer_deliveries(Accepted())
    sender, _ = pair.sender()
    pendings = [sender.send(message(number), settled=number % 3 == 0) for number in range(7)]
    assert [pendings[index].done for index in (0, 3, 6)] == [True] * 3
    pair.flush()
    assert [pending.result() for pending in pendings] == [
        None if number % 3 == 0 else Accepted() for number in range(7)
    ]
    assert [body_of(Message(data)) for data in pair.received()] == list(range(7))


def test_a_link_of_settled_mode_sends_all_settled(pair: BackToBack) -> None:
    """The peer may have agreed on settled; there are no outcomes then."""
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


def test_more_than_the_windows_take_goes_on_by_itself(pair: BackToBack) -> None:
    """Twenty thousand messages at once: credit, session window, unsettled and output bounds all strike."""
    pair.answer_deliveries(Accepted())
    sender, _ = pair.sender()
    pendings = [sender.send(message(bytes(200))) for _ in range(20_000)]
    pair.flush()
    assert all(pending.done for pending in pendings) and sender.waiting == 0
    assert len(pair.received()) == 20_000 and not pair.core._engine.output.waiting


def test_too_large_a_message_is_never_begun(pair: BackToBack) -> None:
    """The peer's max-message-size is known from its attach."""
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


def test_a_detach_tells_what_is_unknown_and_what_was_not_sent(pair: BackToBack) -> None:
    """The difference decides whether sending again may make two of it."""
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


# Receiving: credit, outcomes, drain, and what a link that ends leaves


def take(receiver: ReceiverCore) -> ReceivedMessage:
    """The next message, which is here."""
    received = receiver.take()
    assert received is not None
    return received


def outcomes(pair: BackToBack) -> list[Any]:
    """What the server heard, one for each delivery."""
    heard = [event for event in pair.events if isinstance(event, OutcomesReceived)]
    return [event.state for event in heard for _ in event.deliveries]


def test_messages_come_in_order_with_all_their_parts(pair: BackToBack) -> None:
    """Sections are decoded when they are asked for; what is omitted reads as empty."""
    receiver, remote = pair.receiver()
    whole = encode_message(
        properties=Properties(subject="s"),
        application_properties={"a": 1},
        message_annotations={"x-opt-b": 2},
        body=[Data(b"on"), Data(b"e")],
    )
    remote.send([Sendable(whole), sendable("two"), sendable(["three"])])
    pair.flush()
    first, second, third = (take(receiver) for _ in range(3))
    assert (first.body, second.body, third.body) == (b"one", "two", ["three"])
    assert first.properties.subject == "s" and second.properties == Properties()
    assert set(first.application_properties) == {"a"} and second.application_properties == {}
    assert len(first.message_annotations) == 1 and second.message_annotations == {}
    assert receiver.take() is None


@pytest.mark.parametrize(
    "outcome",
    [Accepted(), Released(), Modified(delivery_failed=True), Rejected(error=Error(condition="a:b"))],
)
def test_an_outcome_reaches_the_sender_once(pair: BackToBack, outcome: Any) -> None:
    """A second one is a mistake of the caller's, and nothing is sent."""
    receiver, remote = pair.receiver()
    remote.send([sendable("one")])
    pair.flush()
    received = take(receiver)
    receiver.settle(received, outcome)
    pair.flush()
    assert outcomes(pair) == [outcome] and received.settled
    with pytest.raises(WrongUse, match="expected a message without an outcome"):
        receiver.settle(received, Accepted())
    pair.flush()
    assert len(outcomes(pair)) == 1


def test_credit_bounds_what_is_here_without_an_outcome(pair: BackToBack) -> None:
    """Taking a message makes no room; its outcome does."""
    receiver, remote = pair.receiver(credit=2)
    assert remote.send([sendable(number) for number in range(5)]) == 2
    pair.flush()
    first, _second = take(receiver), take(receiver)
    pair.flush()
    assert remote.credit == 0
    receiver.settle(first, Accepted())
    pair.flush()
    assert remote.credit == 1


def test_settled_messages_make_room_when_they_are_taken(pair: BackToBack) -> None:
    """They want no outcome, and get none."""
    receiver, remote = pair.receiver(credit=1)
    remote.send([sendable("one")], settled=True)
    pair.flush()
    received = take(receiver)
    pair.flush()
    assert received.settled and remote.credit == 1
    with pytest.raises(WrongUse, match="is settled"):
        receiver.settle(received, Accepted())


def test_a_message_of_another_link_is_refused(pair: BackToBack) -> None:
    """Outcomes belong to their link."""
    one, remote = pair.receiver("one")
    two, _ = pair.receiver("two")
    remote.send([sendable("one")])
    pair.flush()
    with pytest.raises(WrongUse, match="expected a message of <ReceiverCore 'two' attached>"):
        two.settle(take(one), Accepted())


def test_arrival_is_told_to_all_who_wait(pair: BackToBack) -> None:
    """One pending for all; done at once when something is here."""
    receiver, remote = pair.receiver()
    waiting = receiver.arrival()
    assert receiver.arrival() is waiting and not waiting.done
    remote.send([sendable("one")])
    pair.flush()
    assert waiting.done and receiver.arrival().done
    take(receiver)
    assert not receiver.arrival().done


def test_credit_can_be_changed(pair: BackToBack) -> None:
    """Up and down to nothing."""
    receiver, remote = pair.receiver(credit=1)
    receiver.set_credit(50)
    pair.flush()
    assert remote.credit == 50
    receiver.set_credit(0)
    pair.flush()
    assert remote.credit == 0


def test_drain_tells_when_nothing_more_is_there(pair: BackToBack) -> None:
    """What the peer has comes first; then the credit is zero, and new credit starts the flow again."""
    receiver, remote = pair.receiver(credit=10)
    draining = receiver.drain()
    again = receiver.drain()
    with pytest.raises(WrongUse, match="drained already"):
        again.result()
    pair.flush()
    assert remote.drain and not draining.done
    remote.send([sendable("one")])
    remote.drained()
    pair.done(draining)
    assert take(receiver).body == "one" and receiver.take() is None
    receiver.set_credit(receiver.credit)
    pair.flush()
    assert remote.credit == 9 and not remote.drain


def test_credit_during_a_drain_is_given_after_it(pair: BackToBack) -> None:
    """A flow in between would be undone by the peer's answer, and the link stand still for ever."""
    receiver, remote = pair.receiver(credit=10)
    receiver.drain()
    receiver.set_credit(20)
    pair.flush()
    assert remote.credit == 10
    remote.drained()
    pair.flush()
    assert remote.credit == 20


def test_drain_without_credit_ends_as_well(pair: BackToBack) -> None:
    """All of it is here without an outcome: the peer answers the echo."""
    receiver, remote = pair.receiver(credit=1)
    remote.send([sendable("one")])
    pair.flush()
    pair.done(receiver.drain())


def test_a_node_that_the_peer_makes_has_a_name(pair: BackToBack) -> None:
    """A dynamic source: the address comes with the attach."""
    asked: list[Source] = []

    def answer(event: AttachReceived) -> None:
        assert isinstance(event.attach.source, Source)
        asked.append(event.attach.source)
        event.link.accept(source=Source(address="temporary-1", dynamic=True))

    pair.answers[AttachReceived] = answer
    receiver, _ = pair.receiver(None)
    assert receiver.address == "temporary-1" and asked[0].dynamic and asked[0].address is None


def test_a_link_that_ends_keeps_what_was_settled(pair: BackToBack) -> None:
    """The rest will be delivered again: it is not shown, and an outcome for it is an error."""
    receiver, remote = pair.receiver()
    remote.send([sendable("taken"), sendable("lost")])
    remote.send([sendable("kept")], settled=True)
    pair.flush()
    taken = take(receiver)
    draining = receiver.drain()
    remote.detach(Error(condition="amqp:link:stolen"))
    pair.flush()
    assert take(receiver).body == "kept"
    with pytest.raises(LinkGone, match="expected a message from 'orders', .* amqp:link:stolen"):
        receiver.take()
    with pytest.raises(LinkGone, match="expected an outcome for"):
        receiver.settle(taken, Accepted())
    with pytest.raises(LinkGone, match="expected the end of what 'orders' has"):
        draining.result()
    assert receiver.arrival().done
    receiver.set_credit(5)
    with pytest.raises(LinkGone):
        receiver.drain().result()


def test_what_the_sender_settled_meanwhile_is_passed_over(pair: BackToBack) -> None:
    """An outcome that comes too late is no error: nothing is left to say."""
    receiver, remote = pair.receiver(credit=1)
    remote.send([sendable("one")])
    pair.flush()
    received = take(receiver)
    (delivery,) = remote.session.unsettled_out.values()
    remote.settle([delivery], Released())
    pair.flush()
    receiver.settle(received, Accepted())
    pair.flush()
    assert outcomes(pair) == [] and remote.credit == 1
