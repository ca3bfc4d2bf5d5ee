"""Cases of half messages that no client can bring about alone: full disks, stores that fail, restarts, and
hours that pass.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from amqp_broker.broker import open_broker
from amqp_broker.configuration import BrokerConfig, HalfGroupConfig
from amqp_broker.coordinator import half_id_of
from amqp_broker.frames import Accepted, Disposition, Modified, Rejected, Released, Source
from amqp_broker.links import ReceiverLink
from amqp_broker.persistence import RowDamaged, StoreFailed
from amqp_broker.persistence.questions import HalfBodyOf, Question
from amqp_broker.persistence.sqlite import SqliteStore
from amqp_broker.testing.blocking_peer import ConnectionLost
from amqp_broker.testing.peer import PeerError, PeerReceiver, PeerSender, PeerSession
from tests.links.pair import Message as Sendable
from tests.support.broker_clients import (
    at_rest,
    counts,
    error_of,
    nothing_comes,
    receive,
    round_trip,
    send,
    session_to,
    settle_down,
)
from tests.support.by_hand import Served, in_virtual_time
from tests.support.controllers import Controller
from tests.support.halves import (
    checker,
    half,
    halves,
    named,
    parked,
    putter,
    reserved,
    resolution,
    resolver,
    tell,
)
from tests.support.jumping_broker import PATIENT, JumpingBroker, Start, on_disk, stopping

DAY_S = 24 * 3_600


def asked_about(check: PeerReceiver, count: int) -> dict[str, int]:
    """So many checks, none of them answered: half-id to attempt."""
    found = [named(each.payload) for each in receive(check, count)]
    return {each["half_id"]: each["half_attempt"].value for each in found}


# The disk is full, or the store fails


def test_a_put_that_finds_the_disk_full_is_told_and_leaves_nothing(
    broker: JumpingBroker, session: PeerSession
) -> None:
    """Its room is free again, the id is unknown, and the same put is accepted later."""
    put, resolve = putter(session), resolver(session)
    tell(put, half("0"))
    broker.faults.refuse_commit()
    error = error_of(tell(put, half("1")))
    assert error.condition == "amqp:resource-limit-exceeded" and "full" in (error.description or "")
    assert error_of(tell(resolve, resolution("1", "commit"))).condition == "half:unknown-id"
    assert set(halves(broker)) == {"0"} and reserved(broker, "q") == 1
    for half_id in ("1", "0"):
        assert isinstance(tell(put, half(half_id)), Accepted)
        assert isinstance(tell(resolve, resolution(half_id, "commit")), Accepted)
    assert counts(broker, "q")[0] == 2


@pytest.mark.parametrize("subject", ["commit", "rollback"])
def test_a_resolution_that_finds_the_disk_full_decides_nothing(
    broker: JumpingBroker, session: PeerSession, subject: str
) -> None:
    """The error is no conflict; nothing is delivered, it is asked about as before, and decided later."""
    put, resolve, check = putter(session), resolver(session), checker(session)
    tell(put, half("1"))
    broker.faults.refuse_commit()
    assert error_of(tell(resolve, resolution("1", subject))).condition == "amqp:resource-limit-exceeded"
    assert counts(broker, "q") == (0, 0) and halves(broker)["1"].lifecycle == "transaction pending"
    broker.jump(6)
    assert asked_about(check, 1) == {"1": 1}
    other = "rollback" if subject == "commit" else "commit"
    assert isinstance(tell(resolve, resolution("1", other)), Accepted)
    assert counts(broker, "q")[0] == (0 if subject == "commit" else 1)


def test_an_outcome_that_finds_the_disk_full_is_settled_released(
    broker: JumpingBroker, session: PeerSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who committed by outcome learns that it did not happen, and is asked again."""
    check = checker(session, by_outcome=True)
    tell(putter(session), half("1"))
    broker.jump(6)
    (delivery,) = receive(check, 1)
    at_rest(broker)  # the journal has its entry
    broker.faults.refuse_commit()
    told: list[Disposition] = []
    heard = session.on_disposition

    def listen(said: Disposition) -> None:
        told.append(said)
        heard(said)

    monkeypatch.setattr(session, "on_disposition", listen)
    check.settle([delivery], Accepted(), settled=False)
    settle_down(broker, session)
    assert [(said.first, said.settled, said.state) for said in told] == [
        (delivery.delivery_id, True, Released())
    ]
    assert counts(broker, "q") == (0, 0) and halves(broker)["1"].lifecycle == "transaction pending"
    for _ in range(60):
        if check.deliveries:
            break
        broker.jump(1)
        settle_down(broker, session)
    check.settle(receive(check, 1), Accepted())
    settle_down(broker, session)
    assert counts(broker, "q")[0] == 1


def test_a_transaction_that_finds_the_disk_full_leaves_both_as_they_were(
    broker: JumpingBroker, session: PeerSession
) -> None:
    """A put and a commit in one discharge: rejected, and neither happened."""
    put, resolve = putter(session), resolver(session)
    controller = Controller(session)
    tell(put, half("old"))
    txn_id = controller.declare()
    tell(put, half("new"), txn_id)
    tell(resolve, resolution("old", "commit"), txn_id)
    broker.faults.refuse_commit()
    assert isinstance(controller.discharge(txn_id), Rejected)
    settle_down(broker, session)
    assert {key: found.lifecycle for key, found in halves(broker).items()} == {
        "old": "transaction pending"
    }
    assert counts(broker, "q") == (0, 0)
    assert isinstance(tell(put, half("new")), Accepted)
    assert isinstance(tell(resolve, resolution("old", "commit")), Accepted)


def _consume_and_commit(session: PeerSession) -> Any:
    """Prepares a message and a half message; returns what commits both in one transaction."""
    controller = Controller(session)
    receiver = session.attach_receiver("in", "in", credit=1)
    (delivery,) = receive(receiver, 1)
    txn_id = controller.declare()
    receiver.settle([delivery], _within(txn_id, Accepted()))
    tell(resolver(session), resolution("old", "commit"), txn_id)
    return lambda: controller.discharge(txn_id)


def _within(txn_id: bytes, outcome: Any) -> Any:
    from amqp_broker.frames import TransactionalState

    return TransactionalState(txn_id=txn_id, outcome=outcome)


def _what(session: PeerSession, what: str) -> Any:
    """What is done while the store fails."""
    if what == "put":
        link: PeerSender = session.attach_sender("put", "$half/g/q")
        return lambda: tell(link, half("new"))
    if what == "consume and commit":
        return _consume_and_commit(session)
    link = resolver(session)
    return lambda: tell(link, resolution("old", what))


@pytest.mark.parametrize("happened", [False, True])
@pytest.mark.parametrize("what", ["put", "commit", "rollback", "consume and commit"])
def test_a_store_that_ends_before_or_after_its_commit(
    start: Start, tmp_path: Path, what: str, happened: bool
) -> None:
    """After the restart all of it is there or nothing, nobody was told of it, and asking again settles it."""
    broker = start(on_disk(tmp_path))
    with session_to(broker) as session:
        send(session.attach_sender("s", "in"), b"in", durable=True)
        tell(putter(session), half("old"))
        doing = _what(session, what)
        broker.faults.fail_commit(happened=happened)
        with pytest.raises((ConnectionLost, PeerError)):
            doing()
    with pytest.raises(StoreFailed):
        broker.stop()
    again = start(on_disk(tmp_path), after=broker)
    found = {key: each.state for key, each in halves(again).items()}
    if what == "put":
        assert set(found) == ({"old", "new"} if happened else {"old"})
    else:
        done = "rolled-back" if what == "rollback" else "committed"
        assert found == {"old": done if happened else "prepared"}
    both = what == "consume and commit" and happened
    assert counts(again, "in")[0] == (0 if both else 1)
    delivered = what in ("commit", "consume and commit") and happened
    assert counts(again, "q")[0] == (1 if delivered else 0)
    with session_to(again) as session:
        if what == "put":
            assert isinstance(tell(putter(session), half("new")), Accepted)
        else:
            subject = "commit" if what == "consume and commit" else what
            assert isinstance(tell(resolver(session), resolution("old", subject)), Accepted)
    assert counts(again, "q")[0] == (0 if what in ("put", "rollback") else 1)


# Restarts


def test_a_restart_with_ten_checks_out(start: Start, tmp_path: Path) -> None:
    """Due times and attempts are as stored: each is asked about once more, as the same attempt, and what was
    not due is not asked about early.
    """
    first = start(on_disk(tmp_path))
    with session_to(first) as session:
        put, check = putter(session), checker(session)
        for number in range(10):
            tell(put, half(f"{number}"))
        tell(put, half("later", named={"half_first_check_ms": 60_000}))
        first.jump(6)
        answered = receive(check, 10)
        check.settle(answered[:4], Accepted())  # an attempt: due again in 30 s
        check.flow(10)
        settle_down(first, session)
        first.jump(30)
        first.jump(1)
        outstanding = asked_about(check, 10)  # 4 in their second attempt, 6 whose lock is over
        assert sorted(outstanding.values()) == [1] * 6 + [2] * 4
        before = halves(first)
    second = start(on_disk(tmp_path), after=first)
    after = halves(second)
    for key, found in after.items():
        assert (found.attempts, found.due_at_ms, found.deadline_ms) == (
            before[key].attempts,
            before[key].due_at_ms,
            before[key].deadline_ms,
        ) or key in "456789"
    with session_to(second) as session:
        check = checker(session, credit=20)
        assert asked_about(check, 10) == outstanding
        assert nothing_comes(second, check)
        second.jump(22.9)
        assert "later" not in {named(each.payload)["half_id"] for each in check.deliveries}
        second.jump(0.2)
        settle_down(second, session)
        assert "later" in {named(each.payload)["half_id"] for each in check.deliveries}


def test_a_restart_after_the_maximum_age(start: Start, tmp_path: Path) -> None:
    """While the broker is down nothing grows older, whatever the clock on the wall says: what had time left
    has it at the start, and is rolled back when that has passed. Room that was kept is kept again.
    """
    first = start(on_disk(tmp_path))
    with session_to(first) as session:
        tell(putter(session), half("1", named={"half_max_age_ms": 60_000}))
        tell(putter(session, destination="r"), half("2"))
    first.stop()
    first.set_wall(61)  # the wall clock while nothing runs
    second = start(on_disk(tmp_path), after=first)
    second.jump(59)
    at_rest(second)
    assert halves(second)["1"].lifecycle == "transaction pending"
    second.jump(1.001)
    at_rest(second)
    found = halves(second)
    assert (found["1"].lifecycle, found["1"].resolver) == ("rollback", "deadline")
    assert found["2"].lifecycle == "transaction pending"
    assert reserved(second, "r") == 1


def test_decisions_outlive_restarts(start: Start, tmp_path: Path) -> None:
    """A repeat is accepted, a contradiction and a late put are conflicts, what is parked is still parked."""
    groups = (HalfGroupConfig(name="parking", max_attempts=1, policy="park"),)
    config = on_disk(tmp_path, half_groups=groups)
    first = start(config)
    with session_to(first) as session:
        tell(putter(session), half("1"))
        tell(resolver(session), resolution("1", "commit"))
        tell(putter(session, "parking"), half("2"))
        check = checker(session, "parking")
        first.jump(6)
        check.settle(receive(check, 1), Accepted())
        settle_down(first, session)
        first.jump(0.1)
        settle_down(first, session)
    second = start(config, after=first)
    with session_to(second) as session:
        resolve = resolver(session)
        assert isinstance(tell(resolve, resolution("1", "commit")), Accepted)
        assert error_of(tell(resolve, resolution("1", "rollback"))).condition == "half:conflict"
        assert error_of(tell(putter(session), half("1"))).condition == "half:conflict"
        look = parked(session, "parking")
        look.flow(1)
        receive(look, 1)
        settle_down(second, session)
        kinds = [event.kind for event in second.call(lambda running: running.half_messages.events())]
        assert kinds.count("half.parked") == 1
        assert isinstance(tell(resolver(session, "parking"), resolution("2", "commit")), Accepted)
    assert counts(second, "q")[0] == 2


@pytest.mark.parametrize("credit_first", [False, True])
def test_a_drain_brings_what_is_due(start: Start, tmp_path: Path, credit_first: bool) -> None:
    """Also where the body has to be read from the store first; the rest of the credit is used up."""
    first = start(on_disk(tmp_path))
    with session_to(first) as session:
        put = putter(session)
        for number in range(3):
            tell(put, half(f"{number}"))
    second = start(on_disk(tmp_path), after=first)
    with session_to(second) as session:
        check = checker(session, credit=0)
        if credit_first:
            check.flow(5)
        second.jump(6)
        if credit_first:
            assert len(asked_about(check, 3)) == 3
        check.drain_all(5)
        assert len(check.deliveries) == (0 if credit_first else 3)
        second.jump(10)
        assert nothing_comes(second, check) or not credit_first


# Time


def test_hours_later_by_another_connection(broker: JumpingBroker) -> None:
    """A half message is resolved long after its producer went, and its decision is remembered for days."""
    with session_to(broker, "producer") as session:
        tell(putter(session), half("1"))
    broker.jump(3.9 * 3_600)
    with session_to(broker, "another") as session:
        resolve = resolver(session)
        assert isinstance(tell(resolve, resolution("1", "commit")), Accepted)
        broker.jump(6.9 * DAY_S)
        assert isinstance(tell(resolve, resolution("1", "commit")), Accepted)
        assert error_of(tell(resolve, resolution("1", "rollback"))).condition == "half:conflict"
        assert counts(broker, "q")[0] == 1


def test_a_tombstone_that_has_expired_is_an_unknown_id(broker: JumpingBroker, session: PeerSession) -> None:
    """Seven days after the decision nothing is known of it any more, in a transaction neither."""
    put, resolve, controller = putter(session), resolver(session), Controller(session)
    tell(put, half("1"))
    tell(resolve, resolution("1", "rollback"))
    for _ in range(3):
        broker.jump(3 * DAY_S)
        at_rest(broker)
    assert error_of(tell(resolve, resolution("1", "rollback"))).condition == "half:unknown-id"
    txn_id = controller.declare()
    assert isinstance(tell(put, half("1"), txn_id).outcome, Accepted)
    controller.commit(txn_id)
    assert set(halves(broker)) == {"1"} and halves(broker)["1"].lifecycle == "transaction pending"


def test_what_comes_due_while_its_answer_is_stored_is_asked_about_again() -> None:
    """However long the commit takes: nobody else was asked meanwhile, and it is not forgotten after that."""
    slow = JumpingBroker(attrs.evolve(PATIENT, half_groups=(HalfGroupConfig(name="g", retry_ms=1_000),)))
    with stopping(slow) as broker, session_to(broker) as session:
        check = checker(session)
        tell(putter(session), half("1"))
        broker.jump(6)
        (delivery,) = receive(check, 1)
        at_rest(broker)
        with broker.faults.held_commits():
            check.settle([delivery], Modified(delivery_failed=True))
            round_trip(session)
            broker.jump(2)
            check.flow(10)
            round_trip(session)
            assert not check.deliveries
        settle_down(broker, session)
        broker.jump(1)
        settle_down(broker, session)
        assert [named(each.payload)["half_attempt"].value for each in check.deliveries] == [2]


PARKING = HalfGroupConfig(name="g", first_check_ms=1_000, max_age_ms=2_000, policy="park")


async def park_two(config: BrokerConfig) -> None:
    """A broker that has parked "1" and "2" when it stops."""
    async with open_broker(config) as broker:
        producer = Served(broker)
        put = producer.attach_sender("$half/g/q")
        await producer.settle()
        put.send([Sendable(half(half_id, half_id.encode())) for half_id in "12"])
        await producer.settle()
        await trio.sleep(3)


async def attach_to_parked(at: Served) -> ReceiverLink:
    """A link on which parked ones are looked at."""
    look = at.attach_receiver(Source(address="$half-parked/g", distribution_mode="copy"), 0)
    await at.settle()
    return look


@in_virtual_time
async def test_what_is_parked_again_is_shown_again(tmp_path: Path) -> None:
    """Each is shown once until then, in the order in which they were put."""
    config = on_disk(tmp_path, half_groups=(PARKING,))
    await park_two(config)
    async with open_broker(config) as broker:
        at = Served(broker)
        look = await attach_to_parked(at)
        look.flow(10)
        await at.settle()
        assert at.bodies() == [b"1", b"2"]
        source = at.context("down")
        _, second = source._group.open.values()
        source.parked(second)
        source.parked(second)
        await at.settle()
        await at.settle()  # its body was read meanwhile
        assert at.bodies() == [b"1", b"2", b"2"]


@in_virtual_time
async def test_what_is_decided_while_it_is_read_hides_no_other_parked_one(tmp_path: Path) -> None:
    """A resolution, and credit of who looks at parked ones, come in one read: the next one is shown."""
    config = on_disk(tmp_path, half_groups=(PARKING,))
    await park_two(config)
    async with open_broker(config) as broker:
        administrator = Served(broker)
        resolve = administrator.attach_sender("$half-resolve/g")
        look = await attach_to_parked(administrator)
        resolve.send([Sendable(resolution("1", "rollback"))])
        look.flow(10, drain=True)
        await administrator.settle()
        assert administrator.bodies() == [b"2"]
        assert look.credit == 0


@pytest.mark.parametrize("error", [RowDamaged("not as it was written"), RuntimeError("a fault")])
@in_virtual_time
async def test_what_cannot_be_read_hides_no_other_parked_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The next one is shown, and a drain has its answer."""
    config = on_disk(tmp_path, half_groups=(PARKING,))
    ask = SqliteStore.ask

    def faulty(store: SqliteStore, question: Question[Any]) -> Any:
        if isinstance(question, HalfBodyOf) and question.half_id == half_id_of("1"):
            raise error
        return ask(store, question)

    await park_two(config)
    monkeypatch.setattr(SqliteStore, "ask", faulty)
    async with open_broker(config) as broker:
        at = Served(broker)
        look = await attach_to_parked(at)
        look.flow(10, drain=True)
        await at.settle()
        await at.settle()
        assert at.bodies() == [b"2"]
        assert look.credit == 0
