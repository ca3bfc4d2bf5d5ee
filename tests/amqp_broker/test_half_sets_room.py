"""How much is staged in sets and how long, and what an administrator sees of them."""

from __future__ import annotations

import attrs
import pytest

from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerConfig, BrokerLimits, HalfGroupConfig, QueuePolicy
from amqp_broker.frames import Accepted
from amqp_broker.half_sets import reading as half_set_reading
from amqp_broker.halves.administration import HalfRefusedByHand
from amqp_broker.testing.peer import PeerError, PeerSession
from tests.support.broker_clients import bodies, condition_of, counts, receive, send, session_to, settle_down
from tests.support.half_sets import (
    SetClient,
    checksum,
    commit_of,
    ended,
    half_sets,
    refused,
    row,
    seal_of,
    stage,
    stager,
)
from tests.support.halves import events_of, resolver, tell
from tests.support.jumping_broker import PATIENT, JumpingBroker, Start

FOR_EVER_MS = 2**32 - 1


def small(**limits: int) -> BrokerConfig:
    """A configuration with these limits."""
    return attrs.evolve(PATIENT, limits=BrokerLimits(idle_time_out_ms=FOR_EVER_MS, **limits))


@pytest.fixture
def config() -> BrokerConfig:
    """A small queue, and a group whose sets do not become old."""
    policies = (QueuePolicy(pattern="small", max_messages=3), QueuePolicy(pattern="told", events=True))
    groups = (HalfGroupConfig(name="young", max_age_ms=60_000),)
    return attrs.evolve(PATIENT, queue_policies=policies, half_groups=groups)


# Room


def test_no_room_for_sets_stops_the_credit_and_a_commit_gives_it_back(start: Start) -> None:
    """Below the bound again, a sender that waits goes on."""
    broker = start(small(half_set_bytes=65_536, link_credit=4))
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
    broker = start(small(half_set_bytes=65_536, link_credit=4, half_set_wait_ms=5_000))
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
    early = client.staged("one", *[row(b"%d" % n) for n in range(4)], destination="small")
    early.detach()
    client.seal("one", *[row(b"%d" % n) for n in range(4)])
    assert isinstance(client.commit(("one", 4, checksum(*[row(b"%d" % n) for n in range(4)]))), Accepted)
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
    broker = start(small(max_half_sets=3, half_set_destinations=2))
    with session_to(broker) as session:
        for destination in "qr":
            stager(session, "one", destination=destination).detach()
        words = refused(session, "amqp:resource-limit-exceeded", "$half-set/g/p/1/one/t")
        assert "half_set_destinations" in words
    with session_to(broker) as session:
        stager(session, "two").detach()
        words = refused(session, "amqp:resource-limit-exceeded", "$half-set/g/p/1/three/q")
        assert "max_half_sets" in words
    with session_to(broker) as session:
        SetClient(session).void("two")
        stager(session, "three")


def test_what_a_commit_brings_is_loaded_as_it_is_consumed(start: Start) -> None:
    """However many messages a set has, memory holds no more of them than of any backlog; they come in
    order.
    """
    count, window = 3_000, 64
    broker = start(small(queue_window_messages=window))

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


def test_an_administrator_sees_sets_and_voids_them(broker: JumpingBroker) -> None:
    """With their ages, destinations and sizes."""
    with session_to(broker) as session:
        client = SetClient(session)
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


def test_the_journal_says_what_happened_to_sets(broker: JumpingBroker) -> None:
    """Sealed, decided, voided, each with who and why."""
    with session_to(broker) as session:
        client = SetClient(session)
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
