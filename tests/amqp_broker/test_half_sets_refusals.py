"""What is refused to who stages sets, and to who asks for something to be done with them."""

from __future__ import annotations

import attrs
import pytest

from amqp_broker.configuration import AccessRule, BrokerConfig, QueuePolicy
from amqp_broker.frames import (
    Accepted,
    Header,
    Long,
    Message,
    Properties,
    Source,
    Symbol,
    Target,
    TransactionalState,
    Ulong,
    encode_message,
)
from amqp_broker.testing.peer import PeerError, PeerSession
from tests.support.broker_clients import (
    attach_with,
    bodies,
    condition_of,
    counts,
    error_of,
    receive,
    session_to,
    settle_down,
)
from tests.support.controllers import Controller
from tests.support.half_sets import (
    SetClient,
    checksum,
    commit_of,
    ended,
    half_sets,
    refused,
    request,
    row,
    seal_of,
    stage,
    stager,
    void_of,
)
from tests.support.halves import resolver, tell
from tests.support.jumping_broker import PATIENT, JumpingBroker, Start


@pytest.fixture
def config() -> BrokerConfig:
    """Queues of all types of messages."""
    policies = (
        QueuePolicy(pattern="normal", message_type="normal"),
        QueuePolicy(pattern="halves-only", message_type="transaction"),
        QueuePolicy(pattern="streams", sequence="required"),
    )
    return attrs.evolve(PATIENT, queue_policies=policies)


# Links


@pytest.mark.parametrize(
    "rest",
    [
        "g/p/1/s",
        "g/p/1/s/",
        "g/p//s/q",
        "g/p/-1/s/q",
        "g/p/one/s/q",
        "g/p/9223372036854775808/s/q",
        "g//1/s/q",
        "g/p/1//q",
        "g/p q/1/s/q",
        f"g/{'p' * 129}/1/s/q",
        f"g/p/1/{'s' * 129}/q",
        "",
        "g",
    ],
)
def test_an_address_that_does_not_keep_the_grammar_is_refused(session: PeerSession, rest: str) -> None:
    """And says what was expected: nobody is misled into staging what would be delivered at once."""
    words = refused(session, "amqp:not-found", f"$half-set/{rest}")
    assert "$half-set/<group>/<producer>/<epoch>/<set>/<destination>" in words


def test_a_set_of_the_highest_epoch_and_the_longest_names(
    broker: JumpingBroker, session: PeerSession
) -> None:
    """What the grammar allows works to the end; leading zeros are the same epoch."""
    epoch, producer, set_id = (1 << 63) - 1, "p" * 128, "s" * 128
    link = session.attach_sender("l", f"$half-set/{'g' * 64}/{producer}/{epoch}/{set_id}/{'q' * 255}")
    stage(link, row(b"1"))
    link.detach()
    resolve = resolver(session, "g" * 64)
    sealing = seal_of(set_id, 1, checksum(row(b"1")), epoch=epoch, producer=producer)
    assert isinstance(tell(resolve, sealing), Accepted)
    winner = (set_id, 1, checksum(row(b"1")))
    assert isinstance(tell(resolve, commit_of(winner, epoch=epoch, producer=producer)), Accepted)
    assert counts(broker, "q" * 255)[0] == 1
    session.attach_sender("zeros", "$half-set/g/p/007/s/q").detach()
    assert [each.epoch for each in half_sets(broker)] == [7]


@pytest.mark.parametrize(
    ("destination", "words"),
    [("normal", "message_type normal"), ("streams", "place in a stream"), ("temporary", "temporary")],
)
def test_destinations_that_take_no_sets(
    broker: JumpingBroker, session: PeerSession, destination: str, words: str
) -> None:
    """amqp:not-allowed, and why; nothing is left of the attempt."""
    if destination == "temporary":
        link = attach_with(session, "r", source=Source(dynamic=True))
        attach = link.remote_attach
        assert attach is not None and isinstance(attach.source, Source)
        destination = str(attach.source.address)
    assert words in refused(session, "amqp:not-allowed", f"$half-set/g/p/1/s/{destination}")
    assert half_sets(broker) == []


def test_a_queue_for_half_messages_only_takes_sets(client: SetClient) -> None:
    """They are half messages."""
    client.staged("one", row(b"1"), destination="halves-only").detach()
    client.seal("one", row(b"1"))
    assert isinstance(client.commit(("one", 1, checksum(row(b"1")))), Accepted)


def test_who_is_told_nothing_stages_nothing(broker: JumpingBroker) -> None:
    """A link that sends settled is refused, a transfer that was sent settled ends the link."""
    with session_to(broker) as session:
        refused(session, "amqp:not-allowed", "$half-set/g/p/1/s/q", snd_settle_mode=1)
        link = stager(session)
        session.connection.pump_until(lambda: link.may_send)
        link.send(row(b"1"), settled=True)
        ended(link, "amqp:not-allowed")
    assert [each.count for each in half_sets(broker)] == [0]


def test_the_answer_to_an_attach_says_what_it_is(session: PeerSession) -> None:
    """The capability and the version, as on other nodes of half messages."""
    attach = stager(session).remote_attach
    assert attach is not None and isinstance(attach.target, Target)
    assert [str(each) for each in attach.target.capabilities or ()] == ["half-messages"]
    told = {str(key): value for key, value in (attach.properties or {}).items()}
    assert told["half-version"] == Long(1)


def test_neither_the_anonymous_terminus_nor_a_receiver_gets_at_a_set(broker: JumpingBroker) -> None:
    """What is staged needs its own link, and is for nobody to see."""
    with session_to(broker) as session:
        stage(stager(session), row(b"1"))
        relay = session.attach_sender("relay", None)
        outcome = tell(relay, row(b"2", to="$half-set/g/p/1/s1/q"))
        assert condition_of(outcome) == "amqp:not-allowed"
        with pytest.raises(PeerError, match="amqp:not-allowed"):
            session.attach_receiver("r", "$half-set/g/p/1/s1/q")
    assert [each.count for each in half_sets(broker)] == [1]


def test_rights(start: Start) -> None:
    """To put in the group, to send to the destination, and to resolve; without one there is no such group."""
    rules = (
        AccessRule(users=("anonymous",), actions=("connect", "create"), nodes=("**",)),
        AccessRule(users=("anonymous",), actions=("send",), nodes=("open.**",)),
        AccessRule(users=("anonymous",), actions=("half-put",), nodes=("puts",)),
        AccessRule(users=("anonymous",), actions=("half-resolve",), nodes=("resolves",)),
    )
    broker = start(attrs.evolve(PATIENT, access_rules=rules))
    with session_to(broker) as session:
        stage(stager(session, group="puts", destination="open.q"), row(b"1"))
        assert "resolves" in refused(session, "amqp:not-found", "$half-set/resolves/p/1/s/open.q")
    with session_to(broker) as session:
        refused(session, "amqp:unauthorized-access", "$half-set/puts/p/1/s/closed")
    with session_to(broker) as session:
        refused(session, "amqp:not-found", "$half-resolve/puts")
    with session_to(broker) as session:
        resolve = resolver(session, "resolves")
        assert isinstance(tell(resolve, void_of("s1")), Accepted)
        outcome = tell(resolve, request("status", {"producer": "p"}, reply_to="closed"))
        assert condition_of(outcome) == "amqp:unauthorized-access"


def test_a_set_is_of_one_epoch(session: PeerSession) -> None:
    """Its id with another epoch is refused."""
    stager(session, "one", epoch=1)
    assert "epoch 1" in refused(session, "amqp:not-allowed", "$half-set/g/p/2/one/q")


# Messages


def test_transactions_stage_and_decide_nothing(
    broker: JumpingBroker, client: SetClient, session: PeerSession
) -> None:
    """A provisional amqp:not-allowed for each, and the transaction can't be committed without it."""
    controller = Controller(session)
    link = stager(session)
    tells = [(link, row(b"1"))]
    tells += [(client.resolve, payload) for payload in (
        seal_of("s1", 1, 1), commit_of(), void_of("s1"), request("status", {"producer": "p"})
    )]  # fmt: skip
    for sender, payload in tells:
        txn_id = controller.declare()
        state = tell(sender, payload, txn_id)
        assert isinstance(state, TransactionalState)
        assert condition_of(state.outcome) == "amqp:not-allowed"
        assert condition_of(controller.discharge(txn_id)) == "amqp:transaction:rollback"
    stage(link, row(b"2"))
    assert [(each.state, each.count) for each in half_sets(broker)] == [("open", 1)]
    assert client.status()["decided"] is False


def test_a_transfer_of_an_unknown_transaction_ends_the_link(broker: JumpingBroker) -> None:
    """Nothing is staged outside of the transaction that was meant."""
    with session_to(broker) as session:
        link = stager(session)
        session.connection.pump_until(lambda: link.may_send)
        link.send(row(b"1"), txn_id=b"never declared")
        ended(link, "amqp:transaction:unknown-id")
    assert [each.count for each in half_sets(broker)] == [0]


@pytest.mark.parametrize("by", ["annotation", "property"])
def test_sequence_fields_are_refused_and_the_rest_of_the_run_is_staged(session: PeerSession, by: str) -> None:
    """Nothing is dropped in silence."""
    if by == "annotation":
        bad = encode_message(message_annotations={Symbol("x-opt-seq-no"): Ulong(1)}, body=b"bad")
    else:
        bad = encode_message(application_properties={"seq_no": 1}, body=b"bad")
    link = stager(session)
    session.connection.pump_until(lambda: link.may_send)
    numbers = [link.send(payload) for payload in (row(b"1"), bad, row(b"2"))]
    session.connection.pump_until(lambda: all(number in link.outcomes for number in numbers))
    told = [link.outcomes[number] for number in numbers]
    assert isinstance(told[0], Accepted) and isinstance(told[2], Accepted)
    assert condition_of(told[1]) == "amqp:not-allowed"
    assert isinstance(SetClient(session).seal("s1", row(b"1"), row(b"2")), Accepted)


def test_what_stands_around_a_malformed_message_is_staged(broker: JumpingBroker) -> None:
    """The message itself is rejected, as everywhere."""
    with session_to(broker) as session:
        link = stager(session)
        session.connection.pump_until(lambda: link.may_send)
        numbers = [link.send(payload) for payload in (row(b"1"), b"\x00\x53\x99not a section", row(b"2"))]
        session.connection.pump_until(lambda: all(number in link.outcomes for number in numbers))
        assert condition_of(link.outcomes[numbers[1]]) == "amqp:decode-error"
    settle = half_sets(broker)
    assert [each.count for each in settle] == [2]


def test_header_and_delivery_annotations_do_not_count(client: SetClient, session: PeerSession) -> None:
    """The checksum is over what follows them; the message is durable whatever its header says, and has its
    priority.
    """
    rest = row(b"1", message_id="m")
    header = encode_message(header=Header(durable=False, priority=7), body=b"")
    payload = encode_message(
        header=Header(durable=False, priority=7),
        delivery_annotations={Symbol("x-opt-hop"): 1},
        properties=Properties(message_id="m"),
        body=b"1",
    )
    assert len(header) < len(payload) and payload.endswith(rest)
    client.staged("one", payload).detach()
    assert isinstance(client.seal("one", rest), Accepted)
    client.commit(("one", 1, checksum(rest)))
    (found,) = receive(session.attach_receiver("r", "q", credit=1), 1)
    assert found.payload.endswith(rest)
    told = Message(found.payload).header
    assert told.durable and told.priority == 7
    assert Message(found.payload).delivery_annotations is None


def test_time_to_live_begins_when_a_message_is_staged(
    broker: JumpingBroker, client: SetClient, session: PeerSession
) -> None:
    """What expired before its epoch was committed is not delivered, the rest is."""
    mortal = encode_message(header=Header(ttl=1_000), body=b"mortal")
    winner = [row(b"1"), row(b"2")]
    client.staged("one", winner[0], mortal, winner[1]).detach()
    total = checksum(winner[0], encode_message(body=b"mortal"), winner[1])
    assert isinstance(tell(client.resolve, seal_of("one", 3, total)), Accepted)
    broker.jump(2)
    assert isinstance(client.commit(("one", 3, total)), Accepted)
    receiver = session.attach_receiver("r", "q", credit=5)
    assert bodies(receive(receiver, 2)) == [b"1", b"2"]
    settle_down(broker, session)
    assert not receiver.deliveries


# Requests


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (encode_message(properties=Properties(subject="seal"), body=b""), "amqp-value"),
        (request("seal", "text"), "map"),
        (request("seal", {}), "producer"),
        (request("seal", {"producer": "p q"}), "producer"),
        (request("seal", {"producer": "p", "set": "s", "count": 1, "checksum": 1}), "epoch"),
        (request("seal", {"producer": "p", "epoch": "1", "set": "s"}), "epoch"),
        (request("seal", {"producer": "p", "epoch": 1, "count": 1, "checksum": 1}), "set"),
        (request("seal", {"producer": "p", "epoch": 1, "set": "s", "checksum": 1}), "count"),
        (request("seal", {"producer": "p", "epoch": 1, "set": "s", "count": Long(-1)}), "count"),
        (request("seal", {"producer": "p", "epoch": 1, "set": "s", "count": 1}), "checksum"),
        (request("commit-epoch", {"producer": "p", "epoch": 1}), "sets"),
        (request("commit-epoch", {"producer": "p", "epoch": 1, "sets": ["s"]}), "sets"),
        (request("commit-epoch", {"producer": "p", "epoch": 1, "sets": [{"set": "s"}]}), "count"),
        (request("commit-epoch", {"producer": "p", "sets": []}), "epoch"),
        (request("void", {"producer": "p"}), "sets"),
        (request("void", {"producer": "p", "sets": [1]}), "sets"),
        (request("void", {"producer": "p", "sets": ["s"] * 10_001}), "sets"),
        (request("status", {"epoch": 1}, reply_to="q"), "producer"),
        (request("status", {"producer": "p"}), "reply-to"),
        (request("status", {"producer": "p"}, reply_to=7), "found long"),
        (request("Seal", {}), "commit or rollback"),
    ],
)
def test_a_malformed_request_says_what_was_expected(session: PeerSession, payload: bytes, words: str) -> None:
    """amqp:invalid-field, the field, and nothing happened."""
    error = error_of(tell(resolver(session), payload))
    assert error.condition == ("amqp:decode-error" if "found long" in words else "amqp:invalid-field")
    assert words in (error.description or ""), error


def test_numbers_may_be_of_any_integral_type(client: SetClient) -> None:
    """A client without unsigned numbers sends a checksum above 2^63 as a negative one."""
    client.staged("one", row(b"1")).detach()
    total = checksum(row(b"1"))
    body = {"producer": "p", "epoch": Long(1), "set": "one", "count": 1, "checksum": Long(total - 2**64)}
    if total < 2**63:
        body["checksum"] = Long(total)
    assert isinstance(tell(client.resolve, request("seal", body)), Accepted)
    named = {"set": "one", "count": Long(1), "checksum": Long(total)}
    body = {"producer": "p", "epoch": 1, "sets": [named]}
    assert isinstance(tell(client.resolve, request("commit-epoch", body)), Accepted)
