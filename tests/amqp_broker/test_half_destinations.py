"""Queues that take messages with a place in a stream only: what half messages, and sets of them, are told."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from amqp_broker.configuration import BrokerConfig, QueuePolicy
from amqp_broker.frames import Accepted, Message, Symbol
from amqp_broker.testing.peer import PeerError, PeerSession
from tests.support.broker_clients import counts, error_of, receive, session_to
from tests.support.half_sets import SetClient, row
from tests.support.halves import events_of, half, putter, resolution, resolver, tell
from tests.support.jumping_broker import PATIENT, JumpingBroker, on_disk, stopping

STREAMS = (QueuePolicy(pattern="q", sequence="required"),)


@pytest.fixture
def config() -> BrokerConfig:
    """The queue `q` wants each message in a stream."""
    return attrs.evolve(PATIENT, queue_policies=STREAMS)


def test_a_link_that_puts_for_a_queue_of_streams_is_refused(session: PeerSession) -> None:
    """As the staging of sets: amqp:not-allowed, and it says why."""
    with pytest.raises(PeerError, match="not-allowed.*place in a stream"):
        putter(session)


def test_a_put_through_the_anonymous_terminus_is_refused(broker: JumpingBroker, session: PeerSession) -> None:
    """It has no link of its own that could be refused."""
    relay = session.attach_sender("relay", None)
    tell(relay, half("1", to="q"))  # whatever its outcome: the queue exists now
    broker.call(lambda running: running.nodes.queues.create("q"))
    error = error_of(tell(relay, half("1", to="$half/g/q")))
    assert error.condition == "amqp:not-allowed"
    assert "place in a stream" in (error.description or "")


def test_a_queue_that_wants_streams_since_the_put_gets_no_half_message(tmp_path: Path) -> None:
    """The commit was promised: it is accepted, and the message goes to the dead letters with the reason."""
    config = on_disk(tmp_path)
    with stopping(JumpingBroker(config)) as before, session_to(before) as session:
        assert isinstance(tell(putter(session), half("1")), Accepted)
    wanted = attrs.evolve(config, queue_policies=STREAMS)
    with stopping(JumpingBroker(wanted, after=before)) as broker, session_to(broker) as session:
        resolve = resolver(session)
        assert isinstance(tell(resolve, resolution("1", "commit")), Accepted)
        assert isinstance(tell(resolve, resolution("1", "commit")), Accepted)  # a repeat
        (delivery,) = receive(session.attach_receiver("r", "dead-letters", credit=2), 1)
        annotations = Message(delivery.payload).message_annotations or {}
        assert "place in a stream" in annotations[Symbol("x-opt-dead-letter-reason")]
        assert annotations[Symbol("x-opt-half-id")] == "1"
        assert counts(broker, "q")[0] == 0
        assert broker.call(lambda running: running.nodes.queues._queues["q"].reserved_messages) == 0
        (committed,) = [event for event in events_of(broker) if event.kind == "half.committed"]
        assert committed.fields["queue"] == "dead-letters"


def test_an_epoch_for_a_queue_that_wants_streams_by_now_is_refused(tmp_path: Path) -> None:
    """As for a queue that is gone nothing happens: the set is still there, and can be voided."""
    config = on_disk(tmp_path)
    with stopping(JumpingBroker(config)) as before, session_to(before) as session:
        winner = SetClient(session).sealed("s", row(b"1"))
    wanted = attrs.evolve(config, queue_policies=STREAMS)
    with stopping(JumpingBroker(wanted, after=before)) as broker, session_to(broker) as session:
        client = SetClient(session)
        error = error_of(client.commit(winner))
        assert error.condition == "amqp:not-allowed"
        assert "place in a stream" in (error.description or "")
        assert counts(broker, "q")[0] == 0
        assert isinstance(client.void("s"), Accepted)
