"""Sets of half messages: stage, seal, commit an epoch, void, ask; what is refused; how much, and how long."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from amqp_broker.broker import Broker
from amqp_broker.configuration import AccessRule, BrokerConfig, BrokerLimits, HalfGroupConfig, QueuePolicy
from amqp_broker.frames import (
    Accepted,
    Header,
    Long,
    Message,
    Properties,
    Source,
    Symbol,
    TransactionalState,
    encode_message,
)
from amqp_broker.half_sets import reading as half_set_reading
from amqp_broker.halves.administration import HalfRefusedByHand
from amqp_broker.testing.peer import PeerError, PeerSession
from tests.support.broker_clients import (
    address_of,
    attach_with,
    bodies,
    browse,
    condition_of,
    counts,
    error_of,
    receive,
    send,
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
from tests.support.halves import events_of, resolver, tell
from tests.support.jumping_broker import PATIENT, JumpingBroker, Start
from tests.support.sequenced import outcomes, words


def with_limits(**limits: int) -> BrokerConfig:
    """A configuration with these limits."""
    return attrs.evolve(PATIENT, limits=BrokerLimits(idle_time_out_ms=2**32 - 1, **limits))


@pytest.fixture
def config() -> BrokerConfig:
    """Queues of all types of messages, a small one, and a group whose sets do not become old."""
    policies = (
        QueuePolicy(pattern="normal", message_type="normal"),
        QueuePolicy(pattern="halves-only", message_type="transaction"),
        QueuePolicy(pattern="streams", sequence="required"),
        QueuePolicy(pattern="small", max_messages=3),
        QueuePolicy(pattern="told", events=True),
    )
    groups = (HalfGroupConfig(name="young", max_age_ms=60_000),)
    return attrs.evolve(PATIENT, queue_policies=policies, half_groups=groups)


def test_what_is_staged_is_seen_after_the_commit_of_its_epoch_and_never_before(client: SetClient) -> None:
    """Sets in the order named, messages in the order staged, octet for octet; browsers too."""
    rows = [row(b"%d" % number, message_id=f"m{number}") for number in range(6)]
    browser = browse(client.session, "b", "q", 10)
    one = client.sealed("one", *rows[:3])
    two = client.sealed("two", *rows[3:])
    client.status()
    assert not browser.deliveries
    assert isinstance(client.commit(two, one), Accepted)
    assert bodies(receive(browser, 6)) == [b"3", b"4", b"5", b"0", b"1", b"2"]
    found = receive(client.session.attach_receiver("r", "q", credit=10), 6)
    assert bodies(found) == [b"3", b"4", b"5", b"0", b"1", b"2"]
    assert [each.payload[-len(rows[0]) :] for each in found] == [*rows[3:], *rows[:3]]
    header = Message(found[0].payload).header
    assert header.durable and header.first_acquirer


# What is refused: links


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
    """What the grammar allows works to the end; leading zeros are the same epoch; a queue for half messages
    only takes sets.
    """
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
    session.attach_sender("zeros", "$half-set/g/p/007/s/halves-only").detach()
    assert [each.epoch for each in half_sets(broker)] == [7]
    assert "epoch 7" in refused(session, "amqp:not-allowed", "$half-set/g/p/2/s/q"), "a set is of one epoch"


@pytest.mark.parametrize(
    ("destination", "words"),
    [("normal", "message_type normal"), ("streams", "place in a stream"), ("temporary", "temporary")],
)
def test_destinations_that_take_no_sets(
    broker: JumpingBroker, session: PeerSession, destination: str, words: str
) -> None:
    """amqp:not-allowed, and why; nothing is left of the attempt."""
    if destination == "temporary":
        destination = address_of(attach_with(session, "r", source=Source(dynamic=True)))
    assert words in refused(session, "amqp:not-allowed", f"$half-set/g/p/1/s/{destination}")
    assert half_sets(broker) == []


def test_neither_the_anonymous_terminus_nor_a_receiver_gets_at_a_set(
    broker: JumpingBroker, session: PeerSession
) -> None:
    """What is staged needs its own link, and is for nobody to see."""
    stage(stager(session), row(b"1"))
    outcome = tell(session.attach_sender("relay", None), row(b"2", to="$half-set/g/p/1/s1/q"))
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
    with session_to(start(attrs.evolve(PATIENT, access_rules=rules))) as session:
        stage(stager(session, group="puts", destination="open.q"), row(b"1"))
        assert "resolves" in refused(session, "amqp:not-found", "$half-set/resolves/p/1/s/open.q")
        refused(session, "amqp:unauthorized-access", "$half-set/puts/p/1/s/closed")
        refused(session, "amqp:not-found", "$half-resolve/puts")
        resolve = resolver(session, "resolves")
        assert isinstance(tell(resolve, void_of("s1")), Accepted)
        outcome = tell(resolve, request("status", {"producer": "p"}, reply_to="closed"))
        assert condition_of(outcome) == "amqp:unauthorized-access"


# Messages


@pytest.mark.parametrize(
    ("fields", "condition"),
    [({"settled": True}, "amqp:not-allowed"), ({"txn_id": b"never declared"}, "amqp:transaction:unknown-id")],
)
def test_what_cannot_be_told_or_meant_ends_the_link(
    broker: JumpingBroker, session: PeerSession, fields: dict[str, Any], condition: str
) -> None:
    """A transfer that was sent settled, or in a transaction that nobody knows: nothing is staged."""
    refused(session, "amqp:not-allowed", "$half-set/g/p/1/s/q", snd_settle_mode=1)
    link = stager(session)
    session.connection.pump_until(lambda: link.may_send)
    link.send(row(b"1"), **fields)
    ended(link, condition)
    assert [each.count for each in half_sets(broker)] == [0]


@pytest.mark.parametrize(
    ("bad", "condition"),
    [
        (encode_message(message_annotations={Symbol("x-opt-seq-no"): 1}, body=b"bad"), "amqp:not-allowed"),
        (encode_message(application_properties={"seq_no": 1}, body=b"bad"), "amqp:not-allowed"),
        (b"\x00\x53\x99not a section", "amqp:decode-error"),
    ],
    ids=["annotation", "property", "malformed"],
)
def test_what_stands_around_a_refused_message_is_staged(
    client: SetClient, bad: bytes, condition: str
) -> None:
    """A place in a stream is not dropped in silence; a malformed message is rejected, as everywhere."""
    told = outcomes(stager(client.session), [row(b"1"), bad, row(b"2")])
    assert words(told) == ["accepted", condition, "accepted"]
    assert isinstance(client.seal("s1", row(b"1"), row(b"2")), Accepted)


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


# How much is staged, and how long


def test_no_room_for_sets_stops_the_credit_and_a_commit_gives_it_back(start: Start) -> None:
    """Below the bound again, a sender that waits goes on."""
    broker = start(with_limits(half_set_bytes=65_536, link_credit=4))
    with session_to(broker) as session, session_to(broker, "waits") as waiting:
        client = SetClient(session)
        big = [row(bytes(20_000)) for _ in range(4)]
        winner = client.sealed("one", *big[:3])
        link = stager(waiting, "two", producer="other")
        stage(link, big[3])
        settle_down(broker, waiting)
        assert not link.may_send
        assert isinstance(client.commit(winner), Accepted)
        waiting.connection.pump_until(lambda: link.may_send)
        stage(link, big[3])


def test_who_waits_for_room_too_long_is_told(start: Start) -> None:
    """The bound is named: sets that wait for each other would wait for ever."""
    broker = start(with_limits(half_set_bytes=65_536, link_credit=4, half_set_wait_ms=5_000))
    with session_to(broker) as session:
        link = stager(session)
        stage(link, *[row(bytes(20_000)) for _ in range(4)])
        settle_down(broker, session)
        assert not link.may_send
        broker.jump(4.9)
        settle_down(broker, session)
        assert link.detached is None
        broker.jump(0.2)
        with pytest.raises(PeerError, match="half_set_bytes"):
            session.connection.pump_until(lambda: link.detached)


def test_a_full_destination_stops_the_credit_until_it_is_consumed(
    broker: JumpingBroker, client: SetClient, session: PeerSession
) -> None:
    """As for whoever posts there; what is staged already can be committed nevertheless."""
    rows = [row(b"%d" % number) for number in range(4)]
    client.staged("one", *rows, destination="small").detach()
    client.seal("one", *rows)
    assert isinstance(client.commit(("one", 4, checksum(*rows))), Accepted)
    late = stager(session, "two", epoch=2, destination="small")
    settle_down(broker, session)
    assert not late.may_send and counts(broker, "small")[0] == 4
    receiver = session.attach_receiver("r", "small", credit=4)
    receiver.settle(receive(receiver, 4), Accepted())
    settle_down(broker, session)
    broker.jump(1)  # what was settled by its receiver is stored when it suits
    session.connection.pump_until(lambda: late.may_send)
    stage(late, row(b"5"))


def test_limits_with_names(start: Start) -> None:
    """Sets at once, and destinations of one set."""
    with session_to(start(with_limits(max_half_sets=3, half_set_destinations=2))) as session:
        for destination in "qr":
            stager(session, "one", destination=destination).detach()
        words = refused(session, "amqp:resource-limit-exceeded", "$half-set/g/p/1/one/t")
        assert "half_set_destinations" in words
        stager(session, "two").detach()
        words = refused(session, "amqp:resource-limit-exceeded", "$half-set/g/p/1/three/q")
        assert "max_half_sets" in words
        SetClient(session).void("two")
        stager(session, "three")


def test_what_a_commit_brings_is_loaded_as_it_is_consumed(start: Start) -> None:
    """However many messages a set has, memory holds no more of them than of any backlog; they come in
    order.
    """
    count, window = 3_000, 64
    broker = start(with_limits(queue_window_messages=window))

    def loaded() -> int:
        found = broker.call(lambda b: b.nodes.queues._queues["q"].backlog.loaded())
        assert isinstance(found, int)
        return found

    rows = [row(b"%d" % number) for number in range(count)]
    with session_to(broker) as session:
        client = SetClient(session)
        winner = client.sealed("one", *rows)
        early = client.sealed("two", row(b"last"))
        assert isinstance(client.commit(winner, early), Accepted)
        assert loaded() == 0 and counts(broker, "q")[0] == count + 1
        receiver = session.attach_receiver("r", "q", credit=10)
        found: list[bytes] = []
        page = receive(receiver, 10)
        while True:
            found += bodies(page)
            assert loaded() <= window
            if len(found) == count + 1:
                break
            receiver.settle(page, Accepted())
            wanted = min(1_000, count + 1 - len(found))
            receiver.flow(wanted)
            page = receive(receiver, wanted)
        assert found == [*[b"%d" % number for number in range(count)], b"last"]


# Age


def test_a_set_is_voided_at_the_maximum_age_of_its_group(broker: JumpingBroker, session: PeerSession) -> None:
    """Open or sealed, from the moment it was begun; the link that stages is told, the commit finds
    nothing.
    """
    with session_to(broker, "stages") as staging:
        link = stager(staging, "open", group="young")
        stage(link, row(b"1"))
        sealed = stager(session, "sealed", group="young")
        stage(sealed, row(b"2"))
        sealed.detach()
        resolve = resolver(session, "young")
        assert isinstance(tell(resolve, seal_of("sealed", 1, checksum(row(b"2")))), Accepted)
        broker.jump(59.9)
        settle_down(broker, session, staging)
        assert len(half_sets(broker)) == 2
        broker.jump(0.2)
        ended(link, "half:voided")
        assert half_sets(broker) == []
        outcome = tell(resolve, commit_of(("sealed", 1, checksum(row(b"2")))))
        assert condition_of(outcome) == "half:unknown-set"
        assert isinstance(tell(resolve, commit_of()), Accepted)
        assert counts(broker, "q") == (0, 0)


# Administration


def test_an_administrator_sees_sets_and_voids_them(broker: JumpingBroker, client: SetClient) -> None:
    """With their ages, destinations and sizes."""
    client.staged("one", row(b"1"), row(b"2"), epoch=3).detach()
    client.staged("one", row(b"3"), epoch=3, destination="r").detach()
    broker.jump(2)
    client.sealed("two", row(b"4"))
    one, two = half_sets(broker)
    assert (one.group, one.producer, one.epoch, one.set_id, one.state) == ("g", "p", 3, "one", "open")
    assert one.destinations == {"q": 2, "r": 1} and one.count == 3 and one.age_ms == 2_000
    assert one.byte_count == 3 * len(row(b"1")) and one.container_id == "test-peer"
    assert (two.set_id, two.state, two.age_ms) == ("two", "sealed", 0)

    async def void(running: Broker) -> None:
        await running.void_half_set("g", "p", "one", "admin", "a test")
        with pytest.raises(HalfRefusedByHand, match="no set"):
            await running.void_half_set("g", "p", "one", "admin")

    broker.call(void)
    assert [each.set_id for each in half_sets(broker)] == ["two"]


def test_the_journal_says_what_happened_to_sets(broker: JumpingBroker, client: SetClient) -> None:
    """Sealed, decided, voided, each with who and why."""
    winner = client.sealed("one", row(b"1"))
    client.staged("two", row(b"2")).detach()
    client.staged("three", row(b"3"), epoch=2).detach()
    client.commit(winner)
    client.void("three")
    told = [(event.kind, event.fields) for event in events_of(broker)]
    assert [kind for kind, _ in told] == ["set.sealed", "epoch.decided", "set.voided", "set.voided"]
    common = {"group": "g", "producer": "p"}
    assert told[0][1] == {**common, "set_id": "one", "epoch": 1, "count": 1}
    assert told[1][1] == {**common, "epoch": 1, "outcome": "committed", "resolver": "producer"}
    reason = "epoch 1 was committed without it"
    assert told[2][1] == {**common, "set_id": "two", "epoch": 1, "reason": reason}
    assert told[3][1]["set_id"] == "three" and told[3][1]["resolver"] == "producer"


@pytest.mark.parametrize("named", [5, 1, 0])
def test_the_journal_tells_of_each_message_that_became_available(
    broker: JumpingBroker, monkeypatch: pytest.MonkeyPatch, named: int
) -> None:
    """In a queue with events: its offset, the set and epoch that it came from, and its id, as long as one
    commit does not bring too many; they are read page by page before it.
    """
    monkeypatch.setattr(half_set_reading, "PAGE_MESSAGES", 3)
    monkeypatch.setattr(half_set_reading, "NAMED_MESSAGES", named)
    rows = [row(b"%d" % number, message_id=f"m{number}") for number in range(6)]
    with session_to(broker) as session:
        client = SetClient(session)
        send(session.attach_sender("o", "told"), b"ordinary")
        client.staged("one", *rows[:4], destination="told").detach()
        client.staged("one", rows[4], destination="q").detach()
        client.staged("two", rows[5], destination="told").detach()
        assert isinstance(client.seal("one", *rows[:5]), Accepted)
        assert isinstance(client.seal("two", rows[5]), Accepted)
        winners = [("one", 5, checksum(*rows[:5])), ("two", 1, checksum(rows[5]))]
        assert isinstance(client.commit(*winners), Accepted)
        assert isinstance(client.commit(*winners), Accepted)
    events = events_of(broker)
    found = [event.fields for event in events if event.kind == "publish"]
    assert [event.fields["offset"] for event in events if event.kind == "put"] == [0]
    common = {"group": "g", "producer": "p", "epoch": 1, "address": "told"}
    ids = [f"m{number}" for number in (0, 1, 2, 3, 5)]
    told = {5: ids, 1: [None] * 4 + ids[4:], 0: [None] * 5}[named]
    assert [each.get("message_id") for each in found] == told
    assert [each.get("bytes") is not None for each in found] == [each is not None for each in told]
    assert [{key: each[key] for key in common} for each in found] == [common] * 5
    assert [(each["offset"], each["set_id"]) for each in found] == [
        (1, "one"), (2, "one"), (3, "one"), (4, "one"), (5, "two")
    ]  # fmt: skip
