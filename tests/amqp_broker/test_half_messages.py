"""Half messages: put and resolve."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import attrs
import pytest

from amqp_broker.configuration import BrokerConfig, HalfGroupConfig, QueuePolicy
from amqp_broker.frames import Accepted, Message, Symbol, Ulong, encode_message
from amqp_broker.testing.peer import PeerError, PeerSession
from tests.support.broker_clients import at_rest, browse, counts, error_of, receive, session_to
from tests.support.controllers import Controller
from tests.support.half_set_groups import together
from tests.support.halves import half, putter, reserved, resolution, resolver, tell
from tests.support.jumping_broker import PATIENT, JumpingBroker


@pytest.fixture
def config() -> BrokerConfig:
    """A small queue, queues of each message type, and a small group."""
    policies = (
        QueuePolicy(pattern="small", max_messages=2),
        QueuePolicy(pattern="normal", message_type="normal"),
        QueuePolicy(pattern="halves-only", message_type="transaction"),
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


def test_an_id_of_another_type_or_group_is_another_id(session: PeerSession) -> None:
    """And unknown ids are half:unknown-id, which JMS does not take for a missing destination."""
    put = putter(session)
    tell(put, half("1"))
    resolve, other = resolver(session), resolver(session, "other")
    for link, half_id in ((resolve, b"1"), (resolve, Ulong(1)), (other, "1")):
        assert error_of(tell(link, resolution(half_id, "commit"))).condition == "half:unknown-id"
    assert isinstance(tell(resolve, resolution("1", "commit")), Accepted)


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


@pytest.mark.parametrize(
    "payload", [resolution("1", None), resolution("1", "perhaps"), resolution(None, "commit")]
)
def test_a_resolution_without_a_subject_or_an_id_is_refused(session: PeerSession, payload: bytes) -> None:
    """amqp:invalid-field, with what was expected."""
    error = error_of(tell(resolver(session), payload))
    assert error.condition == "amqp:invalid-field" and "expected" in (error.description or "")


def test_settled_is_refused(broker: JumpingBroker) -> None:
    """At the attach, and at a transfer."""
    with session_to(broker) as session:
        for address in ("$half/g/q", "$half-resolve/g"):
            with pytest.raises(PeerError, match="not-allowed"):
                session.attach_sender(f"settled {address}", address, snd_settle_mode=1)
    with session_to(broker) as session:
        put = putter(session)
        session.connection.pump_until(lambda: put.may_send)
        put.send(half("1"), settled=True)
        with pytest.raises(PeerError, match="not-allowed"):
            session.connection.pump_until(lambda: put.detached)


@pytest.mark.parametrize(
    "address",
    ["$half/g", "$half/g/", "$half/", "$half/a b/q", "$half-resolve/", "$half-resolve/g/x", "$half-check/g"],
)
def test_a_wrong_address_refuses_the_link(session: PeerSession, address: str) -> None:
    """Nobody is misled into sending what would be delivered at once."""
    with pytest.raises(PeerError, match="not-found|not-allowed|invalid-field"):
        session.attach_sender("s", address)


def test_message_types_of_destinations(broker: JumpingBroker) -> None:
    """`normal` takes no half messages, `transaction` takes nothing else."""
    with session_to(broker) as session:
        with pytest.raises(PeerError, match="not-allowed"):
            putter(session, destination="normal")
    with session_to(broker) as session:
        with pytest.raises(PeerError, match="not-allowed"):
            session.attach_sender("s", "halves-only")
    with session_to(broker) as session:
        assert isinstance(tell(putter(session, destination="halves-only"), half("1")), Accepted)


def test_the_room_of_a_half_message_is_kept(broker: JumpingBroker, session: PeerSession) -> None:
    """A full destination refuses a put; a rollback makes room; the commit always has its room."""
    put, resolve = putter(session, destination="small"), resolver(session)
    assert isinstance(tell(put, half("1")), Accepted) and isinstance(tell(put, half("2")), Accepted)
    assert error_of(tell(put, half("3"))).condition == "amqp:resource-limit-exceeded"
    tell(resolve, resolution("1", "rollback"))
    assert isinstance(tell(put, half("3")), Accepted)
    assert isinstance(tell(resolve, resolution("2", "commit")), Accepted)
    assert isinstance(tell(resolve, resolution("3", "commit")), Accepted)
    assert counts(broker, "small")[0] == 2 and reserved(broker, "small") == 0


def test_a_group_has_so_many_pending_ones_and_no_more(broker: JumpingBroker, session: PeerSession) -> None:
    """max_pending, and the room of the refused one is not kept."""
    put = putter(session, "tiny")
    tell(put, half("1"))
    tell(put, half("2"))
    assert error_of(tell(put, half("3"))).condition == "amqp:resource-limit-exceeded"
    assert reserved(broker, "q") == 2


def test_the_ttl_starts_at_the_commit(broker: JumpingBroker, session: PeerSession) -> None:
    """However long the half message waited."""
    put, resolve = putter(session), resolver(session)
    tell(put, half("1", ttl=5_000))
    broker.jump(60)
    tell(resolve, resolution("1", "commit"))
    broker.jump(4)
    (delivery,) = receive(session.attach_receiver("r", "q", credit=1), 1)
    assert Message(delivery.payload).header.ttl == 1_000


def test_the_anonymous_terminus_works_with_the_same_strings(session: PeerSession) -> None:
    """properties.to = $half/... and $half-resolve/...; the destination is made on first use."""
    receiver = session.attach_receiver("r", "q", credit=1)
    relay = session.attach_sender("relay", None)
    assert isinstance(tell(relay, half("1", to="$half/g/q")), Accepted)
    commit = encode_message(
        properties=attrs_properties(to="$half-resolve/g", correlation_id="1", subject="commit"), body=b""
    )
    assert isinstance(tell(relay, commit), Accepted)
    receive(receiver, 1)
    assert isinstance(tell(relay, half("2", to="$half/g/made")), Accepted)
    assert error_of(tell(relay, half("3", to="$half/g/temporary.gone"))).condition == "amqp:not-found"


def attrs_properties(**fields: Any) -> Any:
    """Properties of a message."""
    from amqp_broker.frames import Properties

    return Properties(**fields)


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


def test_puts_and_resolutions_in_a_transaction(broker: JumpingBroker, session: PeerSession) -> None:
    """Prepared and decided at the discharge, with everything else; nothing at a rollback."""
    controller = Controller(session)
    put, resolve = putter(session), resolver(session)
    for fail in (True, False):
        txn_id = controller.declare()
        tell(put, half("1"), txn_id)
        other = session.attach_sender(f"s-{fail}", "q")
        tell(other, encode_message(body=b"beside"), txn_id)
        assert error_of(tell(resolve, resolution("1", "commit"))).condition == "half:unknown-id"
        assert controller.discharge(txn_id, fail=fail) == Accepted()
    assert reserved(broker, "q") == 1 and counts(broker, "q")[0] == 1
    for fail in (True, False):
        txn_id = controller.declare()
        tell(resolve, resolution("1", "commit"), txn_id)
        assert counts(broker, "q")[0] == 1
        assert controller.discharge(txn_id, fail=fail) == Accepted()
    assert counts(broker, "q")[0] == 2 and reserved(broker, "q") == 0


def test_a_resolution_that_does_not_hold_at_the_discharge_rolls_it_back(
    broker: JumpingBroker, session: PeerSession
) -> None:
    """Somebody else decided in between: amqp:transaction:rollback, and nothing of it is there."""
    controller = Controller(session)
    put, resolve = putter(session), resolver(session)
    other = session.attach_sender("s", "beside")
    tell(put, half("1"))
    txn_id = controller.declare()
    tell(other, encode_message(body=b"beside"), txn_id)
    tell(resolve, resolution("1", "commit"), txn_id)
    assert isinstance(tell(resolve, resolution("1", "rollback")), Accepted)
    assert error_of(controller.discharge(txn_id)).condition == "amqp:transaction:rollback"
    at_rest(broker)
    assert counts(broker, "q") == (0, 0) and counts(broker, "beside") == (0, 0)
    txn_id = controller.declare()
    provisional = tell(resolve, resolution("1", "commit"), txn_id)
    assert error_of(provisional.outcome).condition == "half:conflict"
    controller.roll_back(txn_id)


def test_a_destination_that_is_gone_leaves_the_message_to_the_dead_letters(
    session: PeerSession, other: PeerSession
) -> None:
    """The commit is accepted, and the message says why it is there."""
    from amqp_broker.frames import Source
    from tests.support.broker_clients import address_of, attach_with

    temporary = attach_with(other, "t", source=Source(dynamic=True))
    put = putter(session, destination=address_of(temporary))
    tell(put, half("1"))
    temporary.detach()
    assert isinstance(tell(resolver(session), resolution("1", "commit")), Accepted)
    (delivery,) = receive(session.attach_receiver("r", "dead-letters", credit=1), 1)
    annotations = Message(delivery.payload).message_annotations or {}
    assert "is gone" in annotations[Symbol("x-opt-dead-letter-reason")]
