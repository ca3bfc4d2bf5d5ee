"""Durable targets: what a client sent is taken once, also where the broker was started again (3.5.5)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from amqp_broker.configuration import BrokerConfig, BrokerLimits
from amqp_broker.frames import SENDER, Accepted, Released, Target
from amqp_broker.persistence import StoreFailed
from amqp_broker.persistence.questions import Termini, UnsettledOf
from amqp_broker.persistence.sqlite import SqliteStore, verify_directory
from amqp_broker.testing.blocking_peer import ConnectionLost
from amqp_broker.testing.peer import PeerError, PeerSender, PeerSession
from tests.persistence.stores import edit
from tests.resumption.test_targets import answer_of, put
from tests.support.broker_clients import counts, message, send, session_to, settle_down
from tests.support.jumping_broker import PATIENT, JumpingBroker, on_disk, stopping
from tests.support.resuming import DURABLE, SECOND

QUEUE = "orders"
LIMITS = BrokerLimits(idle_time_out_ms=2**32 - 1, lasting_terminus_s=1_000, max_lasting_termini=2)


@pytest.fixture(name="config")
def _config(tmp_path: Path) -> BrokerConfig:
    return on_disk(tmp_path, attrs.evolve(PATIENT, limits=LIMITS))


def attach(session: PeerSession, name: str = "s", /, **fields: Any) -> PeerSender:
    """A link in mode second whose target outlives the broker."""
    durable = fields.pop("durable", DURABLE)
    values = {"target": Target(address=QUEUE, **durable), "rcv_settle_mode": SECOND}
    link = session.attach_sender(name, QUEUE, **values | fields)
    session.connection.pump_until(lambda: link.may_send)
    return link


def resumed(session: PeerSession, *tags: bytes, **fields: Any) -> PeerSender:
    """The link again, with these unsettled."""
    return attach(session, unsettled=dict.fromkeys(tags), **fields)


def left(broker: JumpingBroker, *tags: bytes, durable: bool = True, **fields: Any) -> None:
    """A connection that broke when these had their outcomes, which the client may not have heard."""
    with session_to(broker) as session:
        link = attach(session, **fields)
        for tag in tags:
            number = link.send(message(tag, durable=durable), delivery_tag=tag)
            session.connection.pump_until(lambda number=number: number in link.outcomes)  # type: ignore[misc]
        session.connection.abort()
    broker.rest()


def in_store(config: BrokerConfig) -> dict[str, set[bytes]]:
    """The termini and their unsettled deliveries, by name, of a broker that has stopped."""
    store = SqliteStore(Path(config.data_dir))
    found = {each.name: {*store.ask(UnsettledOf(each.number))} for each in store.ask(Termini())}
    store.close()
    assert verify_directory(config.data_dir) == []
    return found


@contextmanager
def crashing(config: BrokerConfig, *, happened: bool) -> Iterator[JumpingBroker]:
    """A broker that dies at its next commit, which has happened or has not, and tells nobody."""
    broker = JumpingBroker(config)
    try:
        yield broker
        broker.rest()
    finally:
        with pytest.raises(StoreFailed):
            broker.stop()
    assert verify_directory(config.data_dir) == []


@pytest.mark.parametrize("durable", [True, False])
def test_an_outcome_is_told_after_a_restart(config: BrokerConfig, durable: bool) -> None:
    """2.6.13 over two restarts: it is resumed, gets the outcome that it has, and is not posted twice. So with
    messages that only memory had.
    """
    with stopping(JumpingBroker(config)) as first:
        left(first, b"a", b"b", durable=durable)
    with stopping(JumpingBroker(config, after=first)) as second:
        second.rest()
    with stopping(JumpingBroker(config, after=second)) as third, session_to(third) as session:
        link = resumed(session, b"a", b"b", b"never came")
        target = link.remote_terminus
        assert (target.durable, target.expiry_policy, target.timeout) == (2, "connection-close", 600)
        assert answer_of(link).unsettled == {b"a": Accepted(), b"b": Accepted()}
        assert put(link, b"a", resume=True) == Accepted()
        link.send(b"", delivery_tag=b"b", resume=True, settled=True, state=Accepted())
        settle_down(third, session)
        assert counts(third, QUEUE)[0] == (2 if durable else 0)


@pytest.mark.parametrize("happened", [True, False])
def test_a_crash_at_the_commit(config: BrokerConfig, happened: bool) -> None:
    """The message is there with its outcome, or neither is."""
    with crashing(config, happened=happened) as broker, session_to(broker) as session:
        link = attach(session)
        broker.faults.fail_commit(happened=happened)
        link.send(message(b"a", durable=True), delivery_tag=b"a")
        with pytest.raises((ConnectionLost, TimeoutError)):
            session.connection.pump_until(lambda: link.outcomes)
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        link = resumed(session, b"a")
        assert answer_of(link).unsettled == ({b"a": Accepted()} if happened else {})
        assert put(link, b"a") == Accepted()
        assert counts(broker, QUEUE)[0] == 1


def test_what_the_client_has_settled_is_gone_from_the_store(config: BrokerConfig) -> None:
    """By a disposition, by its map, and with a link that is closed."""
    with stopping(JumpingBroker(config)) as broker:
        left(broker, b"a", b"b")
        with session_to(broker) as session:
            link = resumed(session, b"b")
            put(link, b"c")
            session.connection.abort()
    assert in_store(config) == {"s": {b"b", b"c"}}
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        link = resumed(session, b"b", b"c")
        link.send(b"", delivery_tag=b"b", resume=True, settled=True, state=Accepted())
        settle_down(broker, session)
        session.connection.abort()
        broker.rest()
    assert in_store(config) == {"s": {b"c"}}
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        resumed(session, b"c").detach(closed=True)
    assert in_store(config) == {}


def test_a_tag_is_free_when_the_client_hears_so(config: BrokerConfig) -> None:
    """What our attach does not have any more a crash does not bring back: its tag may be of another message
    by now.
    """
    with stopping(JumpingBroker(config)) as broker:
        left(broker, b"a")
    with crashing(config, happened=False) as broker, session_to(broker) as session:
        link = resumed(session)
        assert answer_of(link).unsettled == {}
        broker.faults.fail_commit(happened=False)
        link.send(message(b"another", durable=True), delivery_tag=b"a")
        session.connection.flush()
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        assert answer_of(resumed(session, b"a")).unsettled == {}


def test_an_attach_is_answered_after_its_commit(config: BrokerConfig) -> None:
    """What it says is durable is stored, and what it does not say any more is not."""
    with stopping(JumpingBroker(config)) as broker:
        left(broker, b"a")
        broker.jump(1)  # all is stored that was left for later
        with session_to(broker) as session:
            target = Target(address=QUEUE, **DURABLE)
            with broker.faults.held_commits():
                again = session.put_attach(
                    SENDER, "s", QUEUE, target=target, rcv_settle_mode=SECOND, unsettled={}
                )
                session.connection.pump(0)
                assert again.remote_attach is None
            session.connection.pump_until(lambda: again.remote_attach is not None)


@pytest.mark.parametrize("how", ["its state", "mode first"])
def test_what_we_settle_is_settled_for_good_first(config: BrokerConfig, how: str) -> None:
    """3.4.6, tag 13, and 2.8.3: where we settle, the tag is free when that is told, not before the commit."""
    with stopping(JumpingBroker(config)) as broker:
        left(broker, b"a")
    fields: dict[str, Any] = {"state": Released()} if how == "its state" else {"rcv_settle_mode": 0}
    with crashing(config, happened=False) as broker, session_to(broker) as session:
        link = resumed(session, b"a")
        broker.faults.fail_commit(happened=False)
        link.send(message(b"a"), delivery_tag=b"a", resume=True, **fields)
        with pytest.raises((ConnectionLost, TimeoutError)):
            session.connection.pump_until(lambda: link.settled)
        assert not link.settled
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        link = resumed(session, b"a")
        assert answer_of(link).unsettled == {b"a": Accepted()}
        link.send(message(b"a"), delivery_tag=b"a", resume=True, **fields)
        session.connection.pump_until(lambda: link.settled)
        session.connection.abort()
    assert in_store(config) == {"s": set()}


def test_a_refusal_is_kept(config: BrokerConfig) -> None:
    """What was rejected stays rejected."""
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        link = attach(session)
        link.send(b"\x00no message", delivery_tag=b"a")
        session.connection.pump_until(lambda: link.outcomes)
        (outcome,) = link.outcomes.values()
        session.connection.abort()
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        assert answer_of(resumed(session, b"a")).unsettled == {b"a": outcome}


@pytest.mark.parametrize(
    ("asked", "fields", "made"),
    [
        ({}, {}, 2),
        ({"durable": 1}, {}, 1),
        ({"expiry_policy": "never"}, {}, 2),
        ({"expiry_policy": "link-detach"}, {}, 2),
        ({}, {"rcv_settle_mode": 0}, 1),
        ({"durable": 0}, {}, 0),
        ({"expiry_policy": "session-end", "timeout": 0}, {}, 0),
    ],
)
def test_the_answer_says_what_holds(
    config: BrokerConfig, asked: dict[str, Any], fields: dict[str, Any], made: int
) -> None:
    """3.5.5: unsettled state only in mode second, in which there is some when it was told; nothing for a
    target that does not outlive its session. What it says holds.
    """
    durable = {**DURABLE, **asked}
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        link = attach(session, durable=durable, **fields)
        assert link.remote_terminus.durable == made
        put(link, b"a")
        session.connection.abort()
        broker.rest()
    assert in_store(config) == ({"s": {b"a"} if made == 2 else set()} if made else {})
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        unsettled = answer_of(resumed(session, b"a", durable=durable, **fields)).unsettled
        assert unsettled == ({b"a": Accepted()} if made == 2 else {})


def test_a_broker_in_memory_keeps_nothing() -> None:
    """And says so."""
    with stopping(JumpingBroker(PATIENT)) as broker, session_to(broker) as session:
        assert attach(session).remote_terminus.durable == 0


def test_another_durability(config: BrokerConfig) -> None:
    """A link that comes back may ask for more, or for less: what it has unsettled follows."""
    with stopping(JumpingBroker(config)) as broker:
        for durable, there in ((0, {}), (2, {"s": {b"0"}}), (1, {"s": set()}), (2, {"s": {b"0"}}), (0, {})):
            with session_to(broker) as session:
                link = resumed(session, b"0", durable={**DURABLE, "durable": durable})
                if counts(broker, QUEUE)[0] == 0:
                    put(link, b"0")
                session.connection.abort()
            broker.rest()
            assert in_running(broker) == there


def in_running(broker: JumpingBroker) -> dict[str, set[bytes]]:
    """What the store of a running broker has."""

    async def ask(running: Any) -> dict[str, set[bytes]]:
        writer = running.writer
        termini = await writer.ask(Termini())
        return {each.name: {*(await writer.ask(UnsettledOf(each.number)))} for each in termini}

    found: dict[str, set[bytes]] = broker.call(ask)
    return found


@pytest.mark.parametrize(("before", "after", "there"), [(500, 99, True), (500, 101, False), (0, 599, True)])
def test_its_time_goes_on_after_a_restart(
    config: BrokerConfig, before: int, after: int, there: bool
) -> None:
    """3.5.6: the seconds before the stop count, those while no broker runs do not."""
    with stopping(JumpingBroker(config)) as first:
        left(first, b"a")
        first.jump(before + 1)
    with stopping(JumpingBroker(config, after=first)) as second:
        second.set_wall(10_000)
        second.jump(after - 1)
        with session_to(second) as session:
            assert answer_of(resumed(session, b"a")).unsettled == ({b"a": Accepted()} if there else {})
    if not there:
        assert in_store(config) == {"s": set()}


def test_a_crash_is_the_end_of_the_link(config: BrokerConfig) -> None:
    """Its time begins to run with the next start, and goes on over further ones."""
    with crashing(config, happened=False) as broker, session_to(broker) as session:
        put(attach(session), b"a")
        broker.faults.fail_commit(happened=False)
        with pytest.raises(ConnectionLost):
            attach(session, "other")
    with stopping(JumpingBroker(config)) as first:
        first.jump(400)
    with stopping(JumpingBroker(config, after=first)) as second:
        second.jump(201)
    assert in_store(config) == {}


def test_termini_of_before_count(config: BrokerConfig) -> None:
    """max_lasting_termini holds over restarts; who has one may have it again."""
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        put(attach(session), b"a")
        attach(session, "t")
        session.connection.abort()
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        with pytest.raises(PeerError, match="the broker has 2 termini"):
            attach(session, "third")
        session = session.connection.begin()
        assert answer_of(resumed(session, b"a")).unsettled == {b"a": Accepted()}


def test_how_long_its_name_is(config: BrokerConfig) -> None:
    """terminus_name_bytes, for what stands in the store."""
    limits = attrs.evolve(LIMITS, terminus_name_bytes=len("test-peer") + 3, max_lasting_termini=3)
    with stopping(JumpingBroker(attrs.evolve(config, limits=limits))) as broker:
        with session_to(broker) as session:
            assert attach(session, "abc").remote_terminus.durable == 2
            assert attach(session, "long", durable={**DURABLE, "durable": 0}).remote_terminus.durable == 0
        with session_to(broker) as session, pytest.raises(PeerError, match="at most 12 octets together"):
            attach(session, "four")


def test_a_full_disk_refuses_the_link(config: BrokerConfig) -> None:
    """What can't be kept is not promised; the link may come again."""
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        put(session.attach_sender("first", QUEUE), b"x")
        broker.faults.refuse_commit()
        with pytest.raises(PeerError, match="the disk is full"):
            attach(session)
        session = session.connection.begin()
        assert attach(session).remote_terminus.durable == 2


def test_what_is_damaged_is_not_believed(config: BrokerConfig) -> None:
    """The client sends it again; the broker starts all the same."""
    with stopping(JumpingBroker(config)) as broker:
        left(broker, b"a", b"b")
    edit(Path(config.data_dir), "UPDATE unsettled SET state=X'01' WHERE delivery_tag=X'61'")
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        assert answer_of(resumed(session, b"a", b"b")).unsettled == {b"b": Accepted()}


def test_a_damaged_terminus_is_not_believed(config: BrokerConfig) -> None:
    """Nor are its deliveries taken for those of the one that comes after it."""
    with stopping(JumpingBroker(config)) as broker:
        left(broker, b"a")
    edit(Path(config.data_dir), "UPDATE terminus SET timeout_s=5")
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        assert answer_of(resumed(session, b"a")).unsettled == {}
    assert in_store(config) == {"s": set()}


def test_an_ordinary_link_stores_nothing_more(config: BrokerConfig) -> None:
    """No terminus, no rows, and not one commit more."""
    commits: list[int] = []
    for durable in ({}, DURABLE):
        with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
            link = attach(session, "o", durable=durable)
            before = broker.faults.commits
            send(link, b"x", durable=True)
            commits.append(broker.faults.commits - before)
            assert in_running(broker) == ({"o": {bytes(4)}} if durable else {})
            session.connection.abort()
    assert commits == [1, 1]
