"""Sets that are not decided are asked about, by a clock that the test moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from amqp_broker.broker import open_broker
from amqp_broker.frames import Accepted, Error, Message, Modified, Rejected, Released, plain_value
from amqp_broker.halves.addresses import set_address
from amqp_broker.persistence.questions import PageOf, Question
from amqp_broker.persistence.sqlite import SqliteStore
from amqp_broker.testing.peer import PeerSession
from tests.links.pair import Message as Sendable
from tests.support.broker_clients import (
    at_rest,
    condition_of,
    counts,
    nothing_comes,
    receive,
    session_to,
    settle_down,
)
from tests.support.by_hand import Served, in_virtual_time
from tests.support.half_sets import SetClient, checksum, commit_of, ended, half_sets, row, seal_of, void_of
from tests.support.halves import answer, checker, events_of, half, named, putter, tell
from tests.support.jumping_broker import JumpingBroker, Start, on_disk


@pytest.mark.parametrize("sealed", [False, True])
def test_a_set_is_asked_about_at_6_s_and_not_before(
    broker: JumpingBroker, client: SetClient, session: PeerSession, sealed: bool
) -> None:
    """Open or sealed; the check says all that an answer needs, and nothing that could be taken for a half
    message.
    """
    check = checker(session)
    if sealed:
        client.sealed("one", row(b"1"), epoch=7)
    else:
        client.staged("one", row(b"1"), epoch=7).detach()
    if not sealed:
        client.staged("one", row(b"2"), epoch=7, destination="r").detach()
    broker.jump(5.9)
    assert nothing_comes(broker, check)
    broker.jump(0.1)
    (delivery,) = receive(check, 1)
    properties = Message(delivery.payload).properties
    assert properties is not None and properties.message_id
    assert (properties.reply_to, properties.subject) == ("$half-resolve/g", "check-set")
    assert properties.correlation_id is None
    assert plain_value(named(delivery.payload)) == {
        "half_set": "one",
        "half_producer": "p",
        "half_epoch": 7,
        "half_count": 1 if sealed else 2,
        "half_state": "sealed" if sealed else "open",
        "half_group": "g",
        "half_attempt": 1,
        "half_age_ms": 6_000,
        "half_deadline": broker.now_ms() - 6_000 + 4 * 3_600_000,
    }


@pytest.mark.parametrize(
    ("by_outcome", "outcome", "wait_s", "attempt"),
    [
        (False, Accepted(), 30, 2),
        (True, Accepted(), 30, 2),
        (False, Released(), 1, 1),
        (False, Modified(), 1, 1),
    ],
)
def test_only_its_epoch_commits_a_set(
    broker: JumpingBroker, client: SetClient, by_outcome: bool, outcome: Any, wait_s: int, attempt: int
) -> None:
    """An answer is one attempt, and asked again after 30 s; who was not asked is no attempt."""
    check = checker(client.session, by_outcome=by_outcome)
    winner = client.sealed("one", row(b"1"))
    broker.jump(6)
    answer(broker, check, receive(check, 1), outcome)
    assert [each.state for each in half_sets(broker)] == ["sealed"]
    broker.jump(wait_s - 0.1)
    assert nothing_comes(broker, check)
    broker.jump(0.1)
    assert plain_value(named(receive(check, 1)[0].payload))["half_attempt"] == attempt
    assert isinstance(client.commit(winner), Accepted) and counts(broker, "q")[0] == 1


def test_rejected_by_outcome_voids_a_set(broker: JumpingBroker) -> None:
    """With its reason in the journal; on the plain node it is one attempt."""
    with session_to(broker) as session, session_to(broker, "stages") as staging:
        link = SetClient(staging).staged("one", row(b"1"))
        plainly, check = checker(session), checker(session, by_outcome=True, credit=0)
        broker.jump(6)
        answer(broker, plainly, receive(plainly, 1), Rejected())
        assert len(half_sets(broker)) == 1
        plainly.detach()
        check.flow(1)
        broker.jump(30)
        error = Error(condition="job:gone", description="its checkpoint is deleted")
        answer(broker, check, receive(check, 1), Rejected(error=error))
        assert not half_sets(broker)
        ended(link, "half:voided")
    voided = [event.fields for event in events_of(broker) if event.kind == "set.voided"]
    assert [(each["set_id"], each["resolver"]) for each in voided] == [("one", "check")]
    assert voided[0]["reason"] == "job:gone: its checkpoint is deleted"


def test_a_decision_takes_an_outstanding_check_back(broker: JumpingBroker, session: PeerSession) -> None:
    """Its delivery is settled released; a late outcome does nothing, and it is never asked about again."""
    with session_to(broker, "asked") as other:
        client = SetClient(session)
        check = checker(other, by_outcome=True)
        winner = client.sealed("one", row(b"1"))
        client.staged("two", row(b"2")).detach()
        broker.jump(6)
        deliveries = receive(check, 2)
        assert isinstance(client.commit(winner), Accepted)
        answer(broker, check, deliveries, Rejected())
        assert counts(broker, "q")[0] == 1
        broker.jump(3_600)
        assert nothing_comes(broker, check)


def test_unknown_answers_end_no_set_and_its_age_does(broker: JumpingBroker, session: PeerSession) -> None:
    """However often: a query may run for long. At the maximum age it is voided, and nobody is asked."""
    SetClient(session).staged("one", row(b"1")).detach()
    check = checker(session)
    attempts = 0
    for _ in range(28):
        broker.jump(600)
        settle_down(broker, session)
        if check.deliveries:
            attempts += 1
            answer(broker, check, receive(check, 1), Modified(delivery_failed=True))
            check.flow(10)
    assert attempts > 15 and not half_sets(broker)
    assert nothing_comes(broker, check)


def test_sets_and_half_messages_are_asked_about_on_the_same_link(
    broker: JumpingBroker, client: SetClient, session: PeerSession
) -> None:
    """Each by its own fields; an id that both have is two things."""
    tell(putter(session), half("one"))
    client.staged("one", row(b"1")).detach()
    check = checker(session, by_outcome=True)
    broker.jump(6)
    deliveries = receive(check, 2)
    asked = {"half_set" in named(each.payload): each for each in deliveries}
    answer(broker, check, [asked[True]], Rejected())
    assert not half_sets(broker)
    answer(broker, check, [asked[False]], Accepted())
    assert counts(broker, "q")[0] == 1


def test_a_set_that_was_voided_while_it_was_asked_about(
    broker: JumpingBroker, client: SetClient, session: PeerSession
) -> None:
    """The answer to the check does nothing any more, also when the same id is staged again."""
    client.staged("one", row(b"1")).detach()
    check = checker(session, by_outcome=True)
    broker.jump(6)
    deliveries = receive(check, 1)
    assert isinstance(client.void("one"), Accepted)
    winner = client.sealed("one", row(b"2"))
    answer(broker, check, deliveries, Rejected())
    assert isinstance(client.commit(winner), Accepted)
    assert condition_of(client.void("one")) == "half:conflict"


def test_after_a_restart_it_is_asked_about_again(start: Start, tmp_path: Path) -> None:
    """Not before its time; how often it was asked is not forgotten, sealed or not, nor is its seal."""
    first = start(on_disk(tmp_path))
    with session_to(first) as session:
        client = SetClient(session)
        client.staged("one", row(b"1")).detach()
        client.staged("one", row(b"2"), destination="r").detach()
        winner = client.sealed("two", row(b"3"))
        check = checker(session)
        for wait_s in (6, 30):
            first.jump(wait_s)
            answer(first, check, receive(check, 2), Modified(delivery_failed=True))
    second = start(on_disk(tmp_path), after=first)
    with session_to(second) as session:
        check = checker(session)
        second.jump(50)
        assert nothing_comes(second, check), "after two answers it is asked 60 s later"
        second.jump(10)
        asked = [plain_value(named(delivery.payload)) for delivery in receive(check, 2)]
        assert sorted((found["half_set"], found["half_attempt"]) for found in asked) == [
            ("one", 3), ("two", 3),
        ]  # fmt: skip
        assert isinstance(SetClient(session).commit(winner), Accepted)


def test_the_journal_has_asks_and_answers(broker: JumpingBroker) -> None:
    """With the set, its producer and its epoch."""
    with session_to(broker) as session:
        SetClient(session).staged("one", row(b"1")).detach()
        check = checker(session)
        broker.jump(6)
        answer(broker, check, receive(check, 1), Modified(delivery_failed=True))
    broker.jump(1)
    at_rest(broker)
    found = [(event.kind, event.fields) for event in events_of(broker)]
    names = {"group": "g", "set_id": "one", "producer": "p", "epoch": 1}
    assert ("half.asked", {**names, "attempt": 1}) in found
    assert ("half.answered", {**names, "attempts": 1}) in found


async def stage_by_hand(producer: Served, payload: bytes) -> None:
    """One message in the set "one", which stays open."""
    link = producer.attach_sender(set_address("g", "p", 1, "one", "q"))
    await producer.settle()
    link.send([Sendable(payload)])
    await producer.settle()


@in_virtual_time
async def test_a_set_that_a_check_voids_while_its_seal_reads_it_back(tmp_path: Path) -> None:
    """After a restart, both in one read: the seal finds no set, and what comes behind it is answered."""
    config = on_disk(tmp_path)
    one = row(b"1")
    async with open_broker(config) as before:
        await stage_by_hand(Served(before), one)
    async with open_broker(config) as broker:
        at = Served(broker)
        check = at.attach_receiver("$half-check/g/by-outcome", 10)
        resolve = at.attach_sender("$half-resolve/g")
        await at.settle()
        await trio.sleep(7)
        await at.settle()
        check.settle(at.received, Rejected())
        resolve.send([Sendable(seal_of("one", 1, checksum(one))), Sendable(commit_of(epoch=2))])
        for _ in range(10):
            await at.settle()
        assert at.conditions == ["half:unknown-set", "accepted"]


@in_virtual_time
async def test_a_fault_while_a_set_is_read_back_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart: the seal is told, what comes behind it is answered, and the seal can come again."""
    config = on_disk(tmp_path)
    one = row(b"1")
    ask = SqliteStore.ask
    faults = [RuntimeError("a fault of the broker")]

    def faulty(store: SqliteStore, question: Question[Any]) -> Any:
        if faults and isinstance(question, PageOf):
            raise faults.pop()
        return ask(store, question)

    async with open_broker(config) as before:
        await stage_by_hand(Served(before), one)
    async with open_broker(config) as broker:
        at = Served(broker)
        resolve = at.attach_sender("$half-resolve/g")
        await at.settle()
        monkeypatch.setattr(SqliteStore, "ask", faulty)
        seal = Sendable(seal_of("one", 1, checksum(one)))
        resolve.send([seal, Sendable(void_of("two"))])
        await at.settle()
        await at.settle()
        resolve.send([seal])
        await at.settle()
        await at.settle()
        assert at.conditions == ["amqp:internal-error", "accepted", "accepted"]
