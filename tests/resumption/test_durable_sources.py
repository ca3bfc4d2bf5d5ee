"""Durable sources: what a client receives it works on once, also where the broker was started again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from amqp_broker.configuration import BrokerConfig, BrokerLimits, QueuePolicy
from amqp_broker.frames import (
    RECEIVER,
    Accepted,
    Described,
    Disposition,
    Header,
    Modified,
    Properties,
    Rejected,
    Released,
    Source,
    Symbol,
    TransactionalState,
    encode_message,
)
from amqp_broker.persistence import DeleteNode, StoreFailed
from amqp_broker.persistence.questions import HeldBy, Termini
from amqp_broker.persistence.sqlite import SqliteStore, verify_directory
from amqp_broker.testing.blocking_peer import ConnectionLost
from amqp_broker.testing.peer import PeerError, PeerReceiver, PeerSession
from tests.resumption.test_restarts import crashing
from tests.resumption.test_sources import answer_of, one, others
from tests.support.broker_clients import (
    bodies,
    counts,
    nothing_comes,
    receive,
    send,
    session_to,
    settle_down,
)
from tests.support.controllers import Controller
from tests.support.jumping_broker import PATIENT, JumpingBroker, on_disk, stopping
from tests.support.resuming import DURABLE, SECOND

QUEUE = "orders"
LIMITS = BrokerLimits(idle_time_out_ms=2**32 - 1, lasting_terminus_s=1_000)


@pytest.fixture(name="config")
def _config(tmp_path: Path) -> BrokerConfig:
    return on_disk(tmp_path, attrs.evolve(PATIENT, limits=LIMITS))


def attach(session: PeerSession, credit: int = 10, name: str = "r", /, **fields: Any) -> PeerReceiver:
    """A link in mode second whose source outlives the broker."""
    durable = {**DURABLE, **fields.pop("durable", {})}
    address = fields.pop("address", QUEUE)
    values = {"source": Source(address=address, **durable), "rcv_settle_mode": SECOND}
    return session.attach_receiver(name, address, credit=fields.pop("credit", credit), **values | fields)


def put(broker: JumpingBroker, *messages: bytes, durable: bool = True, address: str = QUEUE) -> None:
    """These are in the queue."""
    with session_to(broker) as session:
        send(session.attach_sender("s", address), *messages, durable=durable)


def left(broker: JumpingBroker, *messages: bytes, durable: bool = True, **fields: Any) -> list[bytes]:
    """The delivery-tags of these, on a connection that broke before anything was said of them."""
    put(broker, *messages, durable=durable)
    with session_to(broker) as session:
        tags = [each.delivery_tag for each in receive(attach(session, **fields), len(messages))]
        session.connection.abort()
    broker.rest()
    return tags


def in_store(config: BrokerConfig) -> dict[str, list[int]]:
    """The termini and the offsets that they hold, of a broker that has stopped."""
    store = SqliteStore(Path(config.data_dir))
    found = {
        each.name: sorted(offset for _, offset in store.ask(HeldBy(each.number)).values())
        for each in store.ask(Termini())
    }
    store.close()
    assert verify_directory(config.data_dir) == []
    return found


def test_what_both_have_is_resumed_after_restarts(config: BrokerConfig) -> None:
    """2.6.13 over two restarts: with its tag and the resume flag, in its order; meanwhile nobody else gets
    it.
    """
    with stopping(JumpingBroker(config)) as first:
        tags = left(first, b"a", b"b")
        put(first, b"c")
    with stopping(JumpingBroker(config, after=first)) as second:
        assert others(second) == [b"c"]
    with stopping(JumpingBroker(config, after=second)) as third, session_to(third) as session:
        link = attach(session, unsettled=dict.fromkeys(tags))
        source = link.remote_terminus
        assert (source.durable, source.expiry_policy, source.timeout) == (2, "connection-close", 600)
        assert answer_of(link).unsettled == dict.fromkeys(tags)
        for tag, body in zip(tags, (b"a", b"b"), strict=True):
            delivery = one(link)
            assert (delivery.delivery_tag, bodies([delivery])) == (tag, [body])
            assert delivery.transfer.resume and not delivery.settled
            link.settle([delivery], Accepted(), settled=False)
        session.connection.pump_until(lambda: len(link.confirmed) == 2)
        assert counts(third, QUEUE)[0] == 0
        session.connection.abort()
    assert in_store(config) == {"r": []}


@pytest.mark.parametrize("outcome", [Accepted(), Rejected(), Released(), Modified(delivery_failed=True)])
def test_an_outcome_that_was_not_heard_is_applied(config: BrokerConfig, outcome: Any) -> None:
    """3.4.6, tag 3: it is told, settled, without the message; then it holds, also after a further crash."""
    with stopping(JumpingBroker(config)) as broker:
        tags = left(broker, b"a", b"b")
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        link = attach(session, 1, unsettled={tags[0]: outcome, tags[1]: None})
        delivery = one(link)
        assert (delivery.delivery_tag, delivery.payload, delivery.state) == (tags[0], b"", outcome)
        assert delivery.transfer.resume and delivery.settled
        session.connection.abort()
        broker.rest()
        returns = isinstance(outcome, (Released, Modified))
        assert others(broker) == ([b"a"] if returns else [])
    assert in_store(config) == {"r": [1]}


def test_what_the_client_does_not_have_comes_anew(config: BrokerConfig) -> None:
    """3.4.6, tag 1: in its place, before what stands behind it, with another tag."""
    with stopping(JumpingBroker(config)) as broker:
        tags = left(broker, b"a", b"b")
        put(broker, b"c")
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        link = attach(session, unsettled={tags[1]: None})
        assert answer_of(link).unsettled == {tags[1]: None}
        found = receive(link, 3)
        assert bodies(found) == [b"b", b"a", b"c"]
        assert found[0].delivery_tag == tags[1]
        assert not {each.delivery_tag for each in found[1:]} & {*tags}
        assert [each.transfer.resume for each in found] == [True, False, False]


@pytest.mark.parametrize("happened", [True, False])
def test_nothing_is_sent_before_its_commit(config: BrokerConfig, happened: bool) -> None:
    """A crash at the commit: the message was not sent, and comes once."""
    with stopping(JumpingBroker(config)) as broker:
        put(broker, b"a")
    with crashing(config, happened=happened) as broker, session_to(broker) as session:
        link = attach(session, 0)
        broker.faults.fail_commit(happened=happened)
        link.flow(1)
        with pytest.raises((ConnectionLost, TimeoutError)):
            receive(link, 1)
        assert not link.deliveries
    assert in_store(config) == {"r": [0] if happened else []}
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        assert bodies([one(attach(session, unsettled={}))]) == [b"a"]
        assert counts(broker, QUEUE)[0] == 1


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("outcome", [Accepted(), Rejected(), Released(), Modified()])
def test_an_outcome_forgets_the_row(config: BrokerConfig, outcome: Any, settled: bool) -> None:
    """In its commit; what comes back is for others."""
    with stopping(JumpingBroker(config)) as broker:
        put(broker, b"a", b"b")
        with session_to(broker) as session:
            link = attach(session, 2)
            delivery, _ = receive(link, 2)
            link.settle([delivery], outcome, settled=settled)
            settle_down(broker, session)
            broker.jump(1)
            session.connection.abort()
    assert in_store(config) == {"r": [1]}
    with stopping(JumpingBroker(config)) as broker:
        assert others(broker) == ([b"a"] if isinstance(outcome, (Released, Modified)) else [])


@pytest.mark.parametrize("happened", [True, False])
def test_a_crash_at_the_commit_of_an_outcome(config: BrokerConfig, happened: bool) -> None:
    """The message is gone with its row, or both are there: then the client's outcome is applied."""
    with crashing(config, happened=happened) as broker:
        put(broker, b"a")
        with session_to(broker) as session:
            link = attach(session)
            delivery = one(link)
            broker.faults.fail_commit(happened=happened)
            link.settle([delivery], Accepted(), settled=False)
            with pytest.raises((ConnectionLost, TimeoutError)):
                session.connection.pump_until(lambda: link.confirmed)
    assert in_store(config) == {"r": [] if happened else [0]}
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        tag = delivery.delivery_tag
        link = attach(session, unsettled={tag: Accepted()})
        assert answer_of(link).unsettled == ({} if happened else {tag: Accepted()})
        if not happened:
            assert one(link).settled
        assert nothing_comes(broker, link)
        assert counts(broker, QUEUE)[0] == 0


@pytest.mark.parametrize("passed", [False, True])
def test_when_its_time_is_over_it_returns(config: BrokerConfig, passed: bool) -> None:
    """In its place, before what came later, wherever the window stands by then."""
    with stopping(JumpingBroker(config)) as broker:
        left(broker, b"a", b"b")
        put(broker, b"c")
    with stopping(JumpingBroker(config)) as broker:
        if passed:
            with session_to(broker, "another") as session:
                assert bodies([one(session.attach_receiver("other", QUEUE, credit=1))]) == [b"c"]
        broker.jump(601)
        assert others(broker) == [b"a", b"b", b"c"]
    assert in_store(config) == {}


@pytest.mark.parametrize("how", ["closed", "another link", "another queue"])
def test_what_ends_it_returns_what_it_holds(config: BrokerConfig, how: str) -> None:
    """A close, a link of its name that is not to be resumed, and one to another queue."""
    with stopping(JumpingBroker(config)) as broker:
        tags = left(broker, b"a")
    with stopping(JumpingBroker(config)) as broker:
        with session_to(broker) as session:
            if how == "closed":
                attach(session, 0, unsettled=dict.fromkeys(tags)).detach(closed=True)
            elif how == "another link":
                session.attach_receiver("r", "elsewhere", credit=0)
            else:
                link = attach(session, 0, unsettled=dict.fromkeys(tags), address="elsewhere")
                assert answer_of(link).unsettled == {}
            broker.rest()
            assert others(broker) == [b"a"]
    assert in_store(config) == ({"r": []} if how == "another queue" else {})


def test_a_released_message_is_held_by_the_next_one(config: BrokerConfig) -> None:
    """A message has one holder, over a crash, too."""
    with stopping(JumpingBroker(config)) as broker:
        put(broker, b"a")
        with session_to(broker) as session, session_to(broker, "another") as another:
            link = attach(session, 1)
            link.settle([one(link)], Released(), settled=True)
            settle_down(broker, session)
            one(attach(another, 1, "t"))
            session.connection.abort()
            another.connection.abort()
    assert in_store(config) == {"r": [], "t": [0]}


def test_tags_are_never_used_again(config: BrokerConfig) -> None:
    """Those of each attach are others, also after a restart."""
    seen: set[bytes] = set()
    for number in range(3):
        with stopping(JumpingBroker(config)) as broker:
            put(broker, b"%d" % number)
            with session_to(broker) as session:
                found = receive(attach(session, unsettled={}), number + 1)
                assert bodies(found) == [b"%d" % each for each in range(number + 1)]
                tags = {each.delivery_tag for each in found}
                assert not tags & seen
                seen |= tags
                session.connection.abort()


def test_what_only_memory_has_is_not_held(config: BrokerConfig) -> None:
    """It is gone with the broker, and whatever has its offset then is nobody's."""
    with stopping(JumpingBroker(config)) as broker:
        tags = left(broker, b"a", durable=False)
    assert in_store(config) == {"r": []}
    with stopping(JumpingBroker(config)) as broker:
        put(broker, b"another")
        with session_to(broker) as session:
            link = attach(session, unsettled=dict.fromkeys(tags))
            assert answer_of(link).unsettled == {}
            assert bodies([one(link)]) == [b"another"]


@pytest.mark.parametrize(
    ("asked", "fields", "made"),
    [
        ({}, {}, (2, "connection-close", 600)),
        ({"durable": 1}, {}, (1, "connection-close", 600)),
        ({"durable": 0}, {}, (0, "connection-close", 600)),
        ({"expiry_policy": "never", "timeout": 0}, {}, (2, "connection-close", 1_000)),
        ({"expiry_policy": "link-detach"}, {}, (2, "link-detach", 600)),
        ({"expiry_policy": "session-end", "timeout": 0}, {}, (0, "link-detach", 0)),
        ({}, {"rcv_settle_mode": 0}, (2, "connection-close", 600)),
        ({}, {"snd_settle_mode": 1}, (0, "link-detach", 0)),
        ({"distribution_mode": "copy"}, {}, (0, "link-detach", 0)),
    ],
)
def test_the_answer_says_what_holds(
    config: BrokerConfig, asked: dict[str, Any], fields: dict[str, Any], made: tuple[int, str, int]
) -> None:
    """3.5.5: not for what is sent settled, nor for browsers. What it says holds."""
    with stopping(JumpingBroker(config)) as broker:
        put(broker, b"a")
        with session_to(broker) as session:
            link = attach(session, durable=asked, **fields)
            source = link.remote_terminus
            assert (source.durable, source.expiry_policy, source.timeout) == made
            one(link)
            session.connection.abort()
            broker.rest()
    assert in_store(config) == ({"r": [0] if made[0] == 2 else []} if made[0] else {})


def test_a_temporary_queue_does_not_keep_it(config: BrokerConfig) -> None:
    """And says so."""
    with stopping(JumpingBroker(config)) as broker:
        with session_to(broker) as session:
            source = Source(dynamic=True, **DURABLE)
            assert session.attach_receiver("t", None, source=source).remote_terminus.durable == 0
    assert in_store(config) == {}


def test_a_broker_in_memory_keeps_nothing() -> None:
    """And says so."""
    with stopping(JumpingBroker(PATIENT)) as broker, session_to(broker) as session:
        assert attach(session).remote_terminus.durable == 0


def test_another_durability(config: BrokerConfig) -> None:
    """A link that comes back may ask for more, or for less: what it holds follows."""
    with stopping(JumpingBroker(config)) as broker:
        (tag,) = left(broker, b"a")
    for durable, there in ((2, [0]), (1, []), (2, [0]), (0, None), (2, [0])):
        with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
            link = attach(session, unsettled={tag: None}, durable={"durable": durable})
            delivery = one(link)
            tag = delivery.delivery_tag
            session.connection.abort()
            broker.rest()
        assert in_store(config) == ({} if there is None else {"r": there})


def test_no_more_than_the_limit(config: BrokerConfig) -> None:
    """max_unsettled_per_link, whatever the credit; and also where a link is only left for a while."""
    limits = attrs.evolve(LIMITS, max_unsettled_per_link=3)
    with stopping(JumpingBroker(attrs.evolve(config, limits=limits))) as broker:
        put(broker, *[b"%d" % number for number in range(5)])
        with session_to(broker) as session:
            link = attach(session, 2)
            found = receive(link, 2)
            link.detach(closed=False)
            again = attach(session, 5)
            receive(again, 1)
            assert nothing_comes(broker, again)
            link.settle(found[:1], Accepted(), settled=True)
            receive(again, 1)
            session.connection.abort()
    assert in_store(config) == {"r": [1, 2, 3]}


def test_an_ordinary_link_stores_nothing_more(config: BrokerConfig) -> None:
    """No terminus, no rows, no commit to be sent something."""
    commits = []
    for name in ("plain", "durable"):
        with stopping(JumpingBroker(config)) as broker:
            put(broker, b"a")
            with session_to(broker) as session:
                if name == "plain":
                    link = session.attach_receiver("p", QUEUE, credit=0)
                else:
                    link = attach(session, 0)
                before = broker.faults.commits
                link.flow(1)
                one(link)
                commits.append(broker.faults.commits - before)
                link.detach(closed=True)
    assert commits == [0, 1]


def post(session: PeerSession, *payloads: bytes) -> None:
    """Messages as they are encoded."""
    link = session.attach_sender("p", QUEUE)
    for payload in payloads:
        session.connection.pump_until(lambda: link.may_send)
        link.send(payload)
    session.connection.pump_until(lambda: len(link.outcomes) == len(payloads))
    link.detach(closed=True)


def encoded(body: bytes, priority: int = 4, **sections: Any) -> bytes:
    """A durable message."""
    header = Header(durable=True, priority=priority)
    return encode_message(header=header, body=body, **sections)


def test_priorities(config: BrokerConfig) -> None:
    """Nobody else gets what is held, and it comes back with its urgency."""
    config = attrs.evolve(config, queue_policies=(QueuePolicy(pattern="**", priorities=True),))
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        post(session, encoded(b"low"), encoded(b"high", 9))
        assert bodies(receive(attach(session, 2), 2)) == [b"high", b"low"]
        post(session, encoded(b"later", 9), encoded(b"latest"))
        session.connection.abort()
        broker.rest()
    with stopping(JumpingBroker(config)) as broker, session_to(broker, "another") as session:
        link = session.attach_receiver("other", QUEUE, credit=2)
        assert bodies(receive(link, 2)) == [b"later", b"latest"]
        broker.jump(601)
        link.flow(2)
        assert bodies(receive(link, 2)) == [b"high", b"low"]


@pytest.mark.parametrize("how", ["settled", "its time is over"])
def test_message_groups(config: BrokerConfig, how: str) -> None:
    """Nothing of a group overtakes what is held of it, also where a restart is between."""
    config = attrs.evolve(config, queue_policies=(QueuePolicy(pattern="**", groups=True),))

    def of(group: str, body: bytes) -> bytes:
        return encoded(body, properties=Properties(group_id=group))

    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        post(session, of("g", b"1"), of("h", b"2"))
        found = receive(attach(session, 2), 2)
        post(session, of("g", b"3"), of("i", b"4"), encoded(b"5"), of("h", b"6"))
        session.connection.abort()
    with stopping(JumpingBroker(config)) as broker, session_to(broker, "another") as other:
        link = other.attach_receiver("o", QUEUE, credit=10)
        assert bodies(receive(link, 2)) == [b"4", b"5"]
        assert nothing_comes(broker, link)
        if how == "settled":
            with session_to(broker) as session:
                tags = [each.delivery_tag for each in found]
                attach(session, 1, unsettled={tags[0]: Accepted(), tags[1]: None})
                assert bodies([one(link)]) == [b"3"]
                assert nothing_comes(broker, link)
        else:
            broker.jump(601)
            assert bodies(receive(link, 4)) == [b"1", b"2", b"3", b"6"]


def test_filters(config: BrokerConfig) -> None:
    """A link with a filter holds what it is for, and what is held is for no other one with a filter."""
    selector = Symbol("apache.org:selector-filter:string")
    wanted: dict[Any, Any] = {Symbol("f"): Described(selector, "colour = 'red'")}

    def of(colour: str) -> bytes:
        return encoded(colour.encode(), application_properties={"colour": colour})

    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        post(session, of("blue"), of("red"))
        source = Source(address=QUEUE, filter=wanted, **DURABLE)
        delivery = one(attach(session, source=source))
        assert bodies([delivery]) == [b"red"]
        session.connection.abort()
    with stopping(JumpingBroker(config)) as broker:
        with session_to(broker, "another") as session:
            other = session.attach_receiver("o", QUEUE, source=Source(address=QUEUE, filter=wanted), credit=1)
            assert nothing_comes(broker, other)
        with session_to(broker) as session:
            post(session, of("red"))
            link = attach(session, unsettled={delivery.delivery_tag: None}, source=source)
            again, new = receive(link, 2)
            assert (again.delivery_tag, again.transfer.resume) == (delivery.delivery_tag, True)
            assert bodies([new]) == [b"red"] and not new.transfer.resume


def test_rings(config: BrokerConfig) -> None:
    """What is held does not wait: a new message drops the oldest of those that do."""
    ring = QueuePolicy(pattern="**", message_type="normal", ring_messages=2)
    config = attrs.evolve(config, queue_policies=(ring,))
    with stopping(JumpingBroker(config)) as broker:
        tags = left(broker, b"a", b"b", credit=2)
    with stopping(JumpingBroker(config)) as broker:
        put(broker, b"c", b"d", b"e")
        assert others(broker) == [b"d", b"e"]
        with session_to(broker) as session:
            link = attach(session, 2, unsettled=dict.fromkeys(tags))
            assert bodies(receive(link, 2)) == [b"a", b"b"]


@pytest.mark.parametrize("replaced", ["before the restart", "after it", "never"])
def test_last_values(config: BrokerConfig, replaced: str) -> None:
    """What is held is left to its holder; an older value is gone when it comes back."""
    policy = QueuePolicy(pattern="**", message_type="normal", last_value_key="k", max_messages=1_000)
    config = attrs.evolve(config, queue_policies=(policy,))

    def value(session: PeerSession, body: bytes) -> None:
        post(session, encoded(body, application_properties={"k": 1}))

    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        value(session, b"old")
        one(attach(session, 1))
        if replaced == "before the restart":
            value(session, b"new")
        session.connection.abort()
        broker.rest()
    with stopping(JumpingBroker(config)) as broker:
        if replaced == "after it":
            with session_to(broker, "another") as session:
                value(session, b"new")
        broker.jump(601)
        assert others(broker) == ([b"old"] if replaced == "never" else [b"new"])
    assert in_store(config) == {}


def test_what_came_later(config: BrokerConfig) -> None:
    """A message that waited for its time is held as any other."""
    with stopping(JumpingBroker(config)) as first:
        with session_to(first) as session:
            post(session, encoded(b"a", message_annotations={Symbol("x-opt-delivery-delay"): 5_000}))
            link = attach(session)
            assert nothing_comes(first, link)
            first.jump(6)
            delivery = one(link)
            session.connection.abort()
    with stopping(JumpingBroker(config, after=first)) as broker, session_to(broker) as session:
        assert others(broker) == []
        again = one(attach(session, unsettled={delivery.delivery_tag: None}))
        assert (bodies([again]), again.transfer.resume) == ([b"a"], True)


@pytest.mark.parametrize("outcome", [Accepted(), Released(), Modified(delivery_failed=True)])
@pytest.mark.parametrize("happened", [True, False])
def test_an_outcome_in_a_transaction(config: BrokerConfig, outcome: Any, happened: bool) -> None:
    """The row goes with the commit of its discharge, or the delivery is unsettled again."""
    with crashing(config, happened=happened) as broker:
        put(broker, b"a")
        with session_to(broker) as session:
            delivery = one(attach(session, 1))
            controller = Controller(session)
            state = TransactionalState(txn_id=controller.declare(), outcome=outcome)
            session.put(Disposition(role=RECEIVER, first=delivery.delivery_id, settled=False, state=state))
            broker.faults.fail_commit(happened=happened)
            with pytest.raises((ConnectionLost, TimeoutError)):
                controller.commit(state.txn_id)
    assert in_store(config) == {"r": [] if happened else [0]}
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        tag = delivery.delivery_tag
        link = attach(session, 0, unsettled={tag: None})
        assert answer_of(link).unsettled == ({} if happened else {tag: None})
        assert counts(broker, QUEUE)[0] == (0 if happened and outcome == Accepted() else 1)


def test_nothing_is_acquired_in_a_transaction(config: BrokerConfig) -> None:
    """4.4.3: the link says that it can't be; what it holds stays."""
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        session.connection.raises_errors = False
        link = attach(session, 0)
        link.flow(1, txn_id=Controller(session).declare())
        session.connection.pump_until(lambda: link.detached is not None)
        assert link.detached is not None and link.detached.error is not None
        assert link.detached.error.condition == "amqp:not-implemented"


def test_an_outcome_after_a_detach(config: BrokerConfig) -> None:
    """2.7.6: the delivery is live in its session, and its row goes with the outcome."""
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        put(broker, b"a", b"b")
        link = attach(session, 2)
        first, _ = receive(link, 2)
        link.detach(closed=False)
        link.settle([first], Accepted(), settled=True)
        settle_down(broker, session)
        broker.jump(1)
        session.connection.abort()
    assert in_store(config) == {"r": [1]}


def test_a_queue_that_is_deleted(config: BrokerConfig) -> None:
    """What was held goes with it, also where a restart was between."""

    async def delete(running: Any) -> None:
        queue = running.nodes.queues.find(QUEUE)
        running.nodes.drop(queue, "an administrator deleted it")
        await running.nodes.store_step([DeleteNode(queue.queue_id)])

    with stopping(JumpingBroker(config)) as broker:
        tags = left(broker, b"a")
    with stopping(JumpingBroker(config)) as broker:
        broker.call(delete)
        with session_to(broker) as session:
            assert answer_of(attach(session, unsettled=dict.fromkeys(tags))).unsettled == {}
    assert in_store(config) == {"r": []}


def test_what_was_never_sent_is_not_held(config: BrokerConfig) -> None:
    """A link that goes while its message waits for the commit: others get that, also after a restart."""
    with stopping(JumpingBroker(config)) as broker:
        put(broker, b"a")
        with session_to(broker) as session:
            link = attach(session, 0)
            with broker.faults.held_commits():
                link.flow(1)
                session.connection.pump(0)
                session.connection.abort()
            broker.rest()
            broker.jump(1)
    assert in_store(config) == {"r": []}
    with stopping(JumpingBroker(config)) as broker:
        assert others(broker) == [b"a"]


def test_what_is_resumed_is_still_held(config: BrokerConfig) -> None:
    """Until it has an outcome: a link that only comes back changes nothing."""
    with stopping(JumpingBroker(config)) as broker:
        tags = left(broker, b"a", b"b")
    for credit in (0, 1, 0):
        with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
            link = attach(session, credit, unsettled=dict.fromkeys(tags))
            assert answer_of(link).unsettled == dict.fromkeys(tags)
            receive(link, credit)
            session.connection.abort()
        assert in_store(config) == {"r": [0, 1]}


def test_a_full_disk_refuses_the_link(config: BrokerConfig) -> None:
    """What can't be kept is not promised; the link may come again, and resumes all of it."""
    with stopping(JumpingBroker(config)) as broker:
        tags = left(broker, b"a", b"b")
    with stopping(JumpingBroker(config)) as broker:
        for refused in (True, False):
            with session_to(broker) as session:
                if refused:
                    broker.faults.refuse_commit()
                    with pytest.raises(PeerError, match="the disk is full"):
                        attach(session, unsettled=dict.fromkeys(tags))
                else:
                    link = attach(session, unsettled=dict.fromkeys(tags))
                    assert bodies(receive(link, 2)) == [b"a", b"b"]
                session.connection.abort()
    assert in_store(config) == {"r": [0, 1]}


@contextmanager
def _crashed(config: BrokerConfig) -> Iterator[JumpingBroker]:
    broker = JumpingBroker(config)
    yield broker
    broker.faults.fail_commit(happened=False)
    with session_to(broker) as session, pytest.raises((ConnectionLost, TimeoutError)):
        send(session.attach_sender("s", "other"), b"x", durable=True)
    with pytest.raises(StoreFailed):
        broker.stop()


def test_a_crash_is_the_end_of_the_link(config: BrokerConfig) -> None:
    """The link was in use: its time begins to run with the next start."""
    with _crashed(config) as broker:
        put(broker, b"a", b"b")
        with session_to(broker) as session:
            found = receive(attach(session), 2)
            session.connection.abort()
    with stopping(JumpingBroker(config)) as broker:
        assert others(broker) == []
        with session_to(broker) as session:
            link = attach(session, unsettled={found[0].delivery_tag: None, found[1].delivery_tag: Accepted()})
            first, second = receive(link, 2)
            assert (bodies([first]), second.state) == ([b"a"], Accepted())
