"""Half messages: put and resolve, where they may go, and who may."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import pytest

from amqp_broker.configuration import AccessRule, BrokerConfig, HalfGroupConfig, QueuePolicy
from amqp_broker.frames import Accepted, Message, Source, Symbol, Ulong, encode_message
from amqp_broker.testing.peer import PeerError, PeerSession
from tests.support.broker_clients import (
    attach_with,
    browse,
    counts,
    error_of,
    receive,
    session_to,
)
from tests.support.half_set_groups import together
from tests.support.half_sets import SetClient, row
from tests.support.halves import events_of, half, putter, reserved, resolution, resolver, tell
from tests.support.jumping_broker import PATIENT, JumpingBroker, Start, on_disk


@pytest.fixture
def config() -> BrokerConfig:
    """A small queue, queues of each message type and of streams, and a small group."""
    policies = (
        QueuePolicy(pattern="small", max_messages=2),
        QueuePolicy(pattern="normal", message_type="normal"),
        QueuePolicy(pattern="halves-only", message_type="transaction"),
        QueuePolicy(pattern="streams", sequence="required"),
    )
    groups = (HalfGroupConfig(name="tiny", max_pending=2),)
    return attrs.evolve(PATIENT, queue_policies=policies, half_groups=groups)


@pytest.mark.parametrize("half_id", ["order-1", b"\x01\x02", UUID(int=7), Ulong(7)])
def test_a_half_message_is_seen_after_its_commit_and_never_before(session: PeerSession, half_id: Any) -> None:
    """Invisible to consumers and browsers; the bare message octet for octet; the half-id as an annotation."""
    payload = half(half_id, b"x" * 300, named={"color": "blue"}, subject="order")
    put, resolve = putter(session), resolver(session)
    receiver = session.attach_receiver("r", "q", credit=10)
    assert isinstance(tell(put, payload), Accepted)
    browser = browse(session, "b", "q")
    browser.drain_all(1)
    assert not browser.deliveries and not receiver.deliveries
    assert isinstance(tell(resolve, resolution(half_id, "commit")), Accepted)
    (delivery,) = receive(receiver, 1)
    message = Message(delivery.payload)
    assert message.bare == Message(payload).bare
    assert message.message_annotations == {Symbol("x-opt-half-id"): half_id}
    assert message.header.durable


def test_a_repeated_put_is_one_row_and_other_content_is_refused(
    broker: JumpingBroker, session: PeerSession
) -> None:
    """The same digest and destination is accepted; creation-time and user-id do not count."""
    put, resolve = putter(session), resolver(session)
    named = {"half_id": "1"}
    for message_id in ("a", "b"):
        payload = half(message_id, named=named, creation_time=1_000 if message_id == "a" else 2_000)
        assert isinstance(tell(put, payload), Accepted)
    assert reserved(broker, "q") == 1
    assert error_of(tell(put, half("c", b"other", named=named))).condition == "half:id-conflict"
    elsewhere = putter(session, destination="elsewhere")
    assert error_of(tell(elsewhere, half("a", named=named))).condition == "half:id-conflict"
    tell(resolve, resolution("1", "commit"))
    assert counts(broker, "q")[0] == 1


@pytest.mark.parametrize(
    ("payload", "condition"),
    [
        (encode_message(body=b""), "half:id-required"),
        (half("x" * 257), "half:id-required"),
        (half("1", named={"half_id": 7}), "amqp:invalid-field"),
        (half("1", named={"half_first_check_ms": "soon"}), "amqp:invalid-field"),
        (half("1", named={"half_max_age_ms": -1}), "amqp:invalid-field"),
        (half("1", named={"half_max_age_ms": 10**12}), "amqp:invalid-field"),
        (half("1", named={"half_surprise": 1}), "amqp:not-allowed"),
        (half("1", named={"seq_no": 1}), "amqp:not-allowed"),
        (encode_message(message_annotations={Symbol("x-opt-seq-no"): 1}, body=b""), "amqp:not-allowed"),
        (
            encode_message(message_annotations={Symbol("x-opt-delivery-time"): 1}, body=b""),
            "amqp:not-allowed",
        ),
    ],
)
def test_nothing_is_dropped_in_silence(
    broker: JumpingBroker, session: PeerSession, payload: bytes, condition: str
) -> None:
    """A put that can't be kept as it is says why."""
    error = error_of(tell(putter(session), payload))
    assert error.condition == condition and error.description
    assert reserved(broker, "q") == 0


def test_a_group_has_so_many_pending_ones_and_no_more(broker: JumpingBroker, session: PeerSession) -> None:
    """max_pending, and the room of the refused one is not kept."""
    put = putter(session, "tiny")
    tell(put, half("1"))
    tell(put, half("2"))
    assert error_of(tell(put, half("3"))).condition == "amqp:resource-limit-exceeded"
    assert reserved(broker, "q") == 2


@pytest.mark.parametrize("subjects", [("commit", "rollback"), ("rollback", "commit")])
def test_commit_and_rollback_at_once_from_two_connections(
    broker: JumpingBroker, session: PeerSession, other: PeerSession, subjects: tuple[str, str]
) -> None:
    """One is accepted, the other a conflict, whichever is first in the group that both are in."""
    tell(putter(session), half("1"))
    asked = [
        (resolver(each), resolution("1", subject))
        for each, subject in zip((session, other), subjects, strict=True)
    ]
    first, second = together(broker, *asked)
    assert isinstance(first, Accepted) and error_of(second).condition == "half:conflict"


# Where they may go


STREAMS = (QueuePolicy(pattern="q", sequence="required"),)


def test_a_put_through_the_anonymous_terminus_is_refused(broker: JumpingBroker, session: PeerSession) -> None:
    """It has no link of its own that could be refused."""
    broker.call(lambda running: running.nodes.queues.create("streams"))
    error = error_of(tell(session.attach_sender("relay", None), half("1", to="$half/g/streams")))
    assert error.condition == "amqp:not-allowed"
    assert "place in a stream" in (error.description or "")


def test_a_queue_that_wants_streams_since_the_put_gets_no_half_message(start: Start, tmp_path: Path) -> None:
    """The commit was promised: it is accepted, and the message goes to the dead letters with the reason. An
    epoch was not: as for a queue that is gone nothing happens, the set is still there, and can be voided.
    """
    config = on_disk(tmp_path)
    before = start(config)
    with session_to(before) as session:
        assert isinstance(tell(putter(session), half("1")), Accepted)
        winner = SetClient(session).sealed("s", row(b"1"))
    broker = start(attrs.evolve(config, queue_policies=STREAMS), before)
    with session_to(broker) as session:
        client = SetClient(session)
        for _ in range(2):
            assert isinstance(tell(client.resolve, resolution("1", "commit")), Accepted)
        (delivery,) = receive(session.attach_receiver("r", "dead-letters", credit=2), 1)
        annotations = Message(delivery.payload).message_annotations or {}
        assert "place in a stream" in annotations[Symbol("x-opt-dead-letter-reason")]
        assert annotations[Symbol("x-opt-half-id")] == "1"
        (committed,) = [event for event in events_of(broker) if event.kind == "half.committed"]
        assert committed.fields["queue"] == "dead-letters"
        error = error_of(client.commit(winner))
        assert error.condition == "amqp:not-allowed" and "place in a stream" in (error.description or "")
        assert counts(broker, "q")[0] == reserved(broker, "q") == 0
        assert isinstance(client.void("s"), Accepted)


# Rights: without one there is no such group


@pytest.fixture
def guarded(start: Start) -> JumpingBroker:
    """Groups from the configuration only; anonymous peers may do one thing with each of three, and everything
    with one that there is not.
    """
    rules = [
        AccessRule(users=("anonymous",), actions=("connect", "create", "send", "receive"), nodes=("**",)),
        AccessRule(users=("anonymous",), actions=("half-put",), nodes=("puts", "no-such-group")),
        AccessRule(users=("anonymous",), actions=("half-resolve",), nodes=("resolves", "no-such-group")),
        AccessRule(users=("anonymous",), actions=("half-check",), nodes=("checks", "no-such-group")),
    ]
    groups = tuple(HalfGroupConfig(name=name) for name in ("puts", "resolves", "checks", "nobody"))
    config = attrs.evolve(PATIENT, half_groups=groups, half_groups_on_first_use=False)
    return start(attrs.evolve(config, access_rules=tuple(rules)))


ADDRESSES = {
    "put": "$half/{}/q",
    "resolve": "$half-resolve/{}",
    "check": "$half-check/{}",
    "by-outcome": "$half-check/{}/by-outcome",
    "parked": "$half-parked/{}",
}
GIVEN = {("put", "puts"), ("resolve", "resolves"), ("check", "checks")}


@pytest.mark.parametrize("group", ["puts", "resolves", "checks", "nobody", "no-such-group"])
@pytest.mark.parametrize("kind", ADDRESSES)
def test_without_the_right_there_is_no_such_group(guarded: JumpingBroker, kind: str, group: str) -> None:
    """The same condition and words for a group without the right and for no group; to answer by outcome needs
    the right to resolve, too.
    """
    address = ADDRESSES[kind].format(group)
    with session_to(guarded) as session:

        def attach() -> None:
            if kind in ("put", "resolve"):
                session.attach_sender("s", address)
            else:
                mode = "copy" if kind == "parked" else None
                attach_with(session, "r", source=Source(address=address, distribution_mode=mode))

        if (kind, group) in GIVEN:
            attach()
            return
        with pytest.raises(PeerError) as refused:
            attach()
        error = refused.value.error
        assert error is not None and error.condition == "amqp:not-found"
        assert error.description == f"no group of half messages {group!r} for you"
