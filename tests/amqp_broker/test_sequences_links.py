"""Links of sequenced streams: what an attach is answered, whose a stream is, what a queue says of sequences,
and ranges of outcomes on the wire.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from amqp_broker.authorisation import Principal
from amqp_broker.broker import Broker
from amqp_broker.configuration import AccessRule, BrokerConfig, ListenerConfig, QueuePolicy, UserConfig
from amqp_broker.frames import (
    RECEIVER,
    Disposition,
    Message,
    Properties,
    Symbol,
    Target,
    encode_message,
)
from amqp_broker.testing import memory_config
from amqp_broker.testing.peer import PeerError, PeerSender, PeerSession
from tests.support.broker_clients import (
    address_of,
    attach_with,
    message,
    receive,
    session_to,
    settle_down,
)
from tests.support.jumping_broker import JumpingBroker, Start
from tests.support.sequenced import (
    annotated,
    attached_sender,
    chain,
    left_at,
    outcomes,
    stream_of,
    words,
)


@pytest.fixture
def config() -> BrokerConfig:
    """A queue that wants sequences, one that knows none, and a small one."""
    policies = (
        QueuePolicy(pattern="required", sequence="required"),
        QueuePolicy(pattern="off", sequence="off"),
        QueuePolicy(pattern="small", max_messages=3),
    )
    return memory_config(queue_policies=policies)


def capabilities_of(link: Any) -> set[str]:
    """Of the target that the broker answered with."""
    return set(link.remote_attach.target.capabilities or ())


def properties_of(link: Any) -> dict[str, int] | None:
    """The numbers in the properties of the broker's attach."""
    properties = link.remote_attach.properties
    return None if properties is None else {name: value.value for name, value in properties.items()}


def refusal_of(session: PeerSession, address: str, stream: Any) -> str:
    """The condition with which an attach that names a stream is refused."""
    with pytest.raises(PeerError) as refused:
        attached_sender(session, "refused", address, stream)
    assert refused.value.error is not None
    return refused.value.error.condition


def test_an_attach_is_answered_with_where_its_stream_stands(
    broker: JumpingBroker, session: PeerSession
) -> None:
    """(0, 0) for a new one; also by another connection, at once."""
    first = attached_sender(session, "first", "q", "s")
    assert properties_of(first) == {"seq-id": 0, "seq-no": 0}
    assert "tx-sequence" in capabilities_of(first)
    assert words(outcomes(first, [annotated(p, None) for p in chain(1, 7, 3)])) == ["accepted"] * 7
    with session_to(broker) as other:
        assert properties_of(attached_sender(other, "o", "q", "s")) == {"seq-id": 3, "seq-no": 7}
        assert properties_of(attached_sender(other, "p", "q", "t")) == {"seq-id": 0, "seq-no": 0}
    plain = session.attach_sender("plain", "q")
    assert properties_of(plain) is None and "tx-sequence" in capabilities_of(plain)


def test_on_a_link_of_a_stream_every_message_has_its_place(session: PeerSession) -> None:
    """One without is refused, and what is behind it too (it is not there)."""
    link = attached_sender(session, "l", "q", "s")
    payloads = [annotated((1, 1, 0), None), message(b"none"), annotated((1, 2, 1), None)]
    assert words(outcomes(link, payloads)) == ["accepted", "seq:missing", "accepted"]
    assert left_at(session, "q", 2) == ["1.1", "1.2"]


@pytest.mark.parametrize("stream", ["", "x" * 129, 7, Symbol("s")])
def test_a_link_that_names_no_stream_is_refused(session: PeerSession, stream: Any) -> None:
    """With amqp:invalid-field."""
    assert refusal_of(session, "q", stream) == "amqp:invalid-field"


def test_required_refuses_what_has_no_place(session: PeerSession) -> None:
    """`seq:missing`; malformed fields say what is wrong with them; settled, the link ends."""
    sender = session.attach_sender("s", "required")
    payloads = [message(b"none"), annotated((1, 1, 0)), annotated((1, 0, 0))]
    assert words(outcomes(sender, payloads)) == ["seq:missing", "accepted", "amqp:invalid-field"]
    sender.send(message(b"none"), settled=True)
    with pytest.raises(PeerError, match="seq:missing"):
        session.connection.pump_until(lambda: sender.detached is not None)
    assert left_at(session, "required", 1) == ["1.1"]


def test_off_passes_the_fields_through(broker: JumpingBroker, session: PeerSession) -> None:
    """Nothing is judged, nothing is offered, and the octets arrive as they were."""
    sender = attached_sender(session, "s", "off", "s")
    assert capabilities_of(sender) == set() and properties_of(sender) is None
    payloads = [annotated((1, 5, 4)), annotated((1, 5, 4)), annotated((0, 0, 9)), message(b"plain")]
    assert words(outcomes(sender, payloads)) == ["accepted"] * 4
    receiver = session.attach_receiver("r", "off", credit=10)
    arrived = [delivery.payload for delivery in receive(receiver, 4)]
    sent = [payload[Message(payload).after_header_offset :] for payload in payloads]
    assert [payload[Message(payload).after_header_offset :] for payload in arrived] == sent
    assert stream_of(broker, "off") is None


def test_optional_takes_both_kinds_in_their_order(session: PeerSession) -> None:
    """Messages without a place stand between those with one where they were sent."""
    sender = session.attach_sender("s", "q")
    payloads = [message(b"a"), annotated((1, 1, 0)), message(b"b"), annotated((1, 3, 2)), message(b"c")]
    states = outcomes(sender, payloads)
    assert words(states) == ["accepted", "accepted", "accepted", "seq:gap", "accepted"]
    assert left_at(session, "q", 4) == ["a", "1.1", "b", "c"]


def test_what_was_sent_settled_is_judged_too(session: PeerSession) -> None:
    """A duplicate is discarded in silence; for a gap the link ends, its sender does not listen."""
    sender = session.attach_sender("s", "q")
    session.connection.pump_until(lambda: sender.may_send)
    for place in [(1, 1, 0), (1, 2, 1), (1, 1, 0), (1, 2, 1), (1, 3, 2), (1, 5, 4)]:
        sender.send(annotated(place), settled=True)
    with pytest.raises(PeerError, match="seq:gap"):
        session.connection.pump_until(lambda: sender.detached is not None)
    assert left_at(session, "q", 3) == ["1.1", "1.2", "1.3"]


def test_the_anonymous_terminus_judges_by_each_messages_node(
    broker: JumpingBroker, session: PeerSession
) -> None:
    """Its link may name the stream; where a node is full the stream does not move."""
    for address in ("small", "off"):
        session.attach_sender(f"make-{address}", address).detach()  # its credit is room, too
    relay = attached_sender(session, "relay", None, "s")
    assert properties_of(relay) is None

    def to(address: str, number: int) -> bytes:
        properties = {"seq_id": 1, "seq_no": number, "seq_prev": number - 1}
        return encode_message(
            properties=Properties(to=address),
            application_properties=properties,
            body=b"%d" % number,
        )

    assert words(outcomes(relay, [to("small", 1), to("off", 5), to("small", 3)])) == [
        "accepted", "accepted", "seq:gap",
    ]  # fmt: skip
    for number in (2, 3):
        assert words(outcomes(relay, [to("small", number)])) == ["accepted"]
    assert words(outcomes(relay, [to("small", 4)])) == ["amqp:resource-limit-exceeded"]
    assert stream_of(broker, "small").seq_no == 3
    assert left_at(session, "small", 3, take=True) == ["1", "2", "3"]
    assert words(outcomes(relay, [to("small", 4)])) == ["accepted"]


def test_a_temporary_queue_keeps_its_streams_in_memory(broker: JumpingBroker, session: PeerSession) -> None:
    """A dynamic target has the capability."""
    sender = attach_with(session, "d", target=Target(dynamic=True))
    assert isinstance(sender, PeerSender) and "tx-sequence" in capabilities_of(sender)
    states = outcomes(sender, [annotated(place) for place in [(1, 1, 0), (1, 1, 0), (1, 3, 2)]])
    assert words(states) == ["accepted", "accepted", "seq:gap"]
    assert stream_of(broker, address_of(sender)).seq_no == 1


def test_a_zombie_on_a_second_connection_changes_nothing(broker: JumpingBroker) -> None:
    """The new sender resends what it does not know of under the new id; what the old one still sends is
    discarded or stale, and every message is there once and in order.
    """
    with session_to(broker, "old") as old, session_to(broker, "new") as new:
        zombie = attached_sender(old, "s", "q", "s")
        outcomes(zombie, [annotated(place, None) for place in chain(1, 3)])
        successor = attached_sender(new, "s", "q", "s")
        assert properties_of(successor) == {"seq-id": 1, "seq-no": 3}
        assert words(outcomes(successor, [annotated((2, 1, 0), None)])) == ["accepted"]
        late = [annotated(place, None) for place in [(1, 3, 2), (1, 4, 3), (1, 5, 4)]]
        assert words(outcomes(zombie, late)) == ["accepted", "seq:stale", "seq:stale"]
        assert words(outcomes(successor, [annotated((2, 2, 1), None)])) == ["accepted"]
        assert left_at(new, "q", 5) == ["1.1", "1.2", "1.3", "2.1", "2.2"]


def test_an_administrator_has_a_stream_begin_anew(broker: JumpingBroker) -> None:
    """It is at (0, 0) then and nobody's, also for a link that is attached; False where there was none."""

    def reset(stream: str, queue: str = "q") -> object:
        async def there(running: Any) -> object:
            return await running.reset_stream(queue, stream)

        return broker.call(there)

    with session_to(broker) as session:
        sender = attached_sender(session, "s", "q", "s")
        outcomes(sender, [annotated(place, None) for place in chain(1, 3)])
        info = stream_of(broker, "q")
        assert (info.queue, info.stream, info.owner, info.seq_no) == ("q", "s", "anonymous", 3)
        assert info.last_access_ms > 0
        assert reset("s") is True
        assert stream_of(broker, "q") is None
        assert [reset("s"), reset("never"), reset("s", "nowhere"), reset("s", "*")] == [False] * 4
        assert words(outcomes(sender, [annotated((1, 4, 3), None)])) == ["seq:gap"]
        assert words(outcomes(sender, [annotated((1, 1, 0), None)])) == ["accepted"]


def test_an_administrator_pages_through_the_streams(broker: JumpingBroker) -> None:
    """In the order of their names; none of a queue that there is not."""

    def page(queue: str, after: str, count: int) -> list[str]:
        async def there(running: Any) -> list[str]:
            return [info.stream for info in await running.streams(queue, after, count)]

        found = broker.call(there)
        assert isinstance(found, list)
        return found

    with session_to(broker) as session:
        sender = session.attach_sender("s", "q")
        outcomes(sender, [annotated((1, 1, 0), name) for name in ("c", "a", "b", "d")])
        assert page("q", "", 3) == ["a", "b", "c"]
        assert page("q", "c", 3) == ["d"]
        assert page("nowhere", "", 3) == []


# Whose a stream is


@pytest.fixture
def guarded(start: Start) -> JumpingBroker:
    """A broker with three users, of whom `boss` may use everybody's streams."""
    everything = ("connect", "create", "send", "receive", "browse")
    rules = (
        AccessRule(users=("*",), actions=everything),
        AccessRule(users=("boss",), actions=("sequence",), nodes=("owned",)),
    )
    users = tuple(UserConfig(name=name) for name in ("ann", "ben", "boss"))
    listener = ListenerConfig(url="amqp://127.0.0.1:0", anonymous=True)
    return start(memory_config(users=users, access_rules=rules, listeners=(listener,)))


@contextmanager
def session_of(broker: JumpingBroker, user: str) -> Iterator[PeerSession]:
    """A session of a user."""

    def log_in(running: Broker) -> None:
        for task in running._connections:
            opened = task.engine.remote_open
            if opened is not None and opened.container_id == user:
                task.connection.principal = Principal(user, "PLAIN")

    with session_to(broker, user) as session:
        broker.call(log_in)
        yield session


def test_a_stream_belongs_to_who_used_it_first(guarded: JumpingBroker) -> None:
    """Others get amqp:unauthorized-access, at the attach and for each message; their own streams are theirs,
    and a reset gives it to the next one.
    """

    async def reset(running: Any) -> object:
        return await running.reset_stream("q", "s")

    with session_of(guarded, "ann") as ann, session_of(guarded, "ben") as ben:
        sender = ann.attach_sender("s", "q")
        assert words(outcomes(sender, [annotated((1, 1, 0))])) == ["accepted"]
        assert stream_of(guarded, "q").owner == "ann"
        foreign = ben.attach_sender("s", "q")
        payloads = [annotated((1, 2, 1)), annotated((1, 1, 0)), annotated((1, 1, 0), "own")]
        assert words(outcomes(foreign, payloads)) == [
            "amqp:unauthorized-access", "amqp:unauthorized-access", "accepted",
        ]  # fmt: skip
        info = stream_of(guarded, "q")
        assert (info.seq_no, info.reject_count) == (1, 0)
        assert refusal_of(ben, "q", "s") == "amqp:unauthorized-access"
        assert properties_of(attached_sender(ann, "t", "q", "s")) == {"seq-id": 1, "seq-no": 1}
        assert guarded.call(reset) is True
        assert words(outcomes(foreign, [annotated((1, 1, 0))])) == ["accepted"]
        assert words(outcomes(sender, [annotated((1, 2, 1))])) == ["amqp:unauthorized-access"]
        assert left_at(ann, "q", 3) == ["1.1", "1.1", "1.1"]


def test_a_refused_use_makes_nobody_the_owner(guarded: JumpingBroker) -> None:
    """Only what was accepted counts."""
    with session_of(guarded, "ann") as ann, session_of(guarded, "ben") as ben:
        assert words(outcomes(ann.attach_sender("s", "free"), [annotated((1, 2, 1))])) == ["seq:gap"]
        assert words(outcomes(ben.attach_sender("s", "free"), [annotated((1, 1, 0))])) == ["accepted"]
        assert stream_of(guarded, "free").owner == "ben"


def test_the_access_list_lets_others_use_a_stream(guarded: JumpingBroker) -> None:
    """The right `sequence` at the node; it stays its owner's."""
    with session_of(guarded, "ann") as ann, session_of(guarded, "boss") as boss:
        assert words(outcomes(ann.attach_sender("s", "owned"), [annotated((1, 1, 0))])) == ["accepted"]
        link = attached_sender(boss, "s", "owned", "s")
        assert properties_of(link) == {"seq-id": 1, "seq-no": 1}
        assert words(outcomes(link, [annotated((1, 2, 1))])) == ["accepted"]
        assert stream_of(guarded, "owned").owner == "ann"
        assert words(outcomes(ann.attach_sender("q", "q2"), [annotated((1, 1, 0))])) == ["accepted"]
        assert refusal_of(boss, "q2", "s") == "amqp:unauthorized-access"


# Ranges on the wire


def dispositions(session: PeerSession) -> list[tuple[int, int, str]]:
    """(first, last, outcome) of each disposition from now on, as a list that grows."""
    found: list[tuple[int, int, str]] = []
    on_performative = session.on_performative

    def record(performative: object, payload: bytes) -> None:
        if isinstance(performative, Disposition) and performative.role == RECEIVER:
            last = performative.first if performative.last is None else performative.last
            found.append((performative.first, last, words([performative.state])[0]))
        on_performative(performative, payload)

    session.on_performative = record  # type: ignore[method-assign]
    return found


def test_one_range_for_each_run_of_equal_outcomes(session: PeerSession) -> None:
    """Cut by a rejection: 39 accepted, 10 refused, 51 accepted in one write are three dispositions."""
    sender = session.attach_sender("s", "q")
    told = dispositions(session)
    places = [*chain(1, 39), *chain(50, 59), *chain(40, 90)]
    outcomes(sender, [annotated(place) for place in places])
    assert told == [(0, 38, "accepted"), (39, 48, "seq:gap"), (49, 99, "accepted")]


def test_a_range_is_cut_by_another_link(broker: JumpingBroker, session: PeerSession) -> None:
    """Delivery-ids belong to the session: where another link's stand between, there are two ranges."""
    sender = session.attach_sender("s", "q")
    other = session.attach_sender("o", "other")
    session.connection.pump_until(lambda: sender.may_send and other.may_send)
    told = dispositions(session)
    for link, place in [
        (sender, (1, 1, 0)), (sender, (1, 2, 1)), (other, (1, 1, 0)), (sender, (1, 3, 2)),
    ]:  # fmt: skip
        link.send(annotated(place))
    session.connection.pump_until(lambda: len(sender.outcomes) == 3 and len(other.outcomes) == 1)
    settle_down(broker, session)
    assert sorted(told) == [(0, 1, "accepted"), (2, 2, "accepted"), (3, 3, "accepted")]


def test_in_mode_second_outcomes_are_told_unsettled(session: PeerSession) -> None:
    """The sender settles then (2.6.12)."""
    sender = attach_with(session, "second", target=Target(address="q"), rcv_settle_mode=1)
    assert isinstance(sender, PeerSender)
    states = outcomes(sender, [annotated((1, 1, 0)), annotated((1, 3, 2))])
    assert words(states) == ["accepted", "seq:gap"] and not sender.settled
