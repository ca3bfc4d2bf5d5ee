"""The client's core: opening, sessions, ends, and what whoever waits is told."""

from __future__ import annotations

from typing import Any

import pytest

from amqp_broker.client.core_session import SessionCore
from amqp_broker.client.errors import (
    ConnectionGone,
    LinkGone,
    LinkRefused,
    LoginRefused,
    OutcomeUnknown,
    SessionGone,
    WrongUse,
)
from amqp_broker.client.messages import message
from amqp_broker.client.pending import Pending
from amqp_broker.frames import AMQP_HEADER, EMPTY_FRAME, Error, Source, Target
from amqp_broker.links import (
    AttachReceived,
    ConnectionOpened,
    Limits,
    SaslInitReceived,
    SaslResponseReceived,
)
from amqp_broker.sasl_mechanisms import Challenge, Scram
from amqp_broker.verifiers import make_verifier
from tests.client.back_to_back import BackToBack

FORCED = Error(condition="amqp:connection:forced", description="the broker is stopping")


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
    with pytest.raises(LoginRefused, match="one of SCRAM-SHA-512, SCRAM-SHA-256, PLAIN for user 'ada'"):
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


def test_the_peers_close_ends_everything_that_waits() -> None:
    """An attach, an outcome and a message to come: each is told why, with the peer's condition."""
    pair = BackToBack().open()
    sender, _ = pair.sender()
    receiver, _ = pair.receiver()
    outcome = sender.send(message("one"))
    arrival = receiver.arrival()
    pair.answers[AttachReceived] = lambda event: pair.server.close(FORCED)
    attaching = receiver.session.attach_sender("other")
    pair.flush()
    for pending, kind in ((outcome, OutcomeUnknown), (attaching, ConnectionGone)):
        with pytest.raises(kind, match="amqp:connection:forced: the broker is stopping") as caught:
            pending.result()
        assert caught.value.condition == "amqp:connection:forced"
    assert arrival.done
    with pytest.raises(ConnectionGone, match="expected a message from 'orders', but the connection"):
        receiver.take()
    assert pair.core.gone == "the peer closed it, amqp:connection:forced: the broker is stopping"


def test_after_the_end_every_call_fails_at_once() -> None:
    """Nothing waits for what will never come."""
    pair = BackToBack().open()
    sender, _ = pair.sender()
    session = sender.session
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


def test_a_session_that_the_peer_ends_takes_its_links_along() -> None:
    """Others of the same connection go on."""
    pair = BackToBack().open()
    sender, remote = pair.sender()
    other, _ = pair.sender("other")
    outcome = sender.send(message("one"))
    pair.flush()
    remote.session.end(Error(condition="amqp:internal-error", description="a fault"))
    pair.flush()
    with pytest.raises(OutcomeUnknown, match="the session ended: the peer ended it, amqp:internal-error"):
        outcome.result()
    with pytest.raises(SessionGone, match="amqp:internal-error: a fault"):
        sender.session.attach_sender("again").result()
    with pytest.raises(SessionGone, match="it was not sent"):
        sender.send(message("two")).result()
    assert isinstance(pair.begin(), SessionCore)
    other.send(message("three"))
    pair.flush()
    assert len(pair.received()) == 2


def test_a_session_that_we_end() -> None:
    """Harmless twice."""
    pair = BackToBack().open()
    sender, _ = pair.sender()
    sender.session.end()
    sender.session.end()
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
def test_a_refused_link_says_why(sends: bool) -> None:
    """2.6.3: an attach without a terminus and a detach are one refusal."""
    pair = BackToBack().open()
    error = Error(condition="amqp:not-found", description="no node 'orders'")
    pair.answers[AttachReceived] = lambda event: event.link.refuse(error)
    session = pair.begin()
    attaching: Pending[Any] = session.attach_sender("orders")
    if not sends:
        attaching = session.attach_receiver("orders", 1)
    with pytest.raises(LinkRefused, match="'orders', but it was refused, amqp:not-found: no node") as caught:
        pair.done(attaching)
    assert caught.value.condition == "amqp:not-found"


def test_an_attach_that_nobody_waits_for_is_undone() -> None:
    """Messages must not go to a receiver whose caller gave up."""
    pair = BackToBack().open()
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


def test_a_peer_that_attaches_is_refused() -> None:
    """This client attaches by itself; the connection goes on."""
    pair = BackToBack().open()
    session = pair.begin()
    remote = pair.server.incoming[session.session.channel]
    link = remote.attach_sender("theirs", Source(address="a"), Target(address="b"))
    pair.flush()
    assert not link.attached
    pair.done(session.attach_sender("ours"))


def test_a_session_that_the_peer_begins_is_of_no_matter() -> None:
    """The engine answers it; nobody waits for it."""
    pair = BackToBack().open()
    theirs = pair.server.begin()
    pair.flush()
    assert theirs.writable
    theirs.end()
    pair.flush()
    assert pair.core.gone is None


def test_detaching_is_harmless_twice_and_final() -> None:
    """A link that we detached takes nothing."""
    pair = BackToBack().open()
    sender, remote = pair.sender()
    sender.detach()
    sender.detach()
    pair.flush()
    assert not remote.attached
    with pytest.raises(LinkGone, match="we detached it"):
        sender.send(message("one")).result()
