"""Logs: whatever way a message comes in, it is archived by the commit that makes it available; what they
keep, restarts, and queues whose kind was changed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from amqp_broker.broker import Broker, open_broker
from amqp_broker.configuration import BrokerConfig, QueuePolicy
from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import (
    Accepted,
    Described,
    Message,
    Properties,
    Source,
    Symbol,
    Target,
    encode_message,
)
from amqp_broker.operations.posting import Posting
from amqp_broker.origin import OF_THE_BROKER
from amqp_broker.persistence import CreateNode, MemoryStore, Post, Retain, StoreFailed, StoreFull, Unit
from amqp_broker.persistence.questions import RetainedPageOf
from amqp_broker.persistence.sqlite import SqliteStore, verify_directory
from amqp_broker.queue import Queue
from amqp_broker.records import record_of
from amqp_broker.retained.administration import RetainedInfo
from amqp_broker.retained.log_making import PAGE_MESSAGES
from amqp_broker.testing.peer import PeerError, PeerReceiver, PeerSession
from tests.persistence.stores import edit
from tests.support.broker_clients import (
    attach_with,
    bodies,
    message,
    post_own,
    receive,
    send,
    session_to,
    settle_down,
)
from tests.support.controllers import Controller
from tests.support.event_replay import replay
from tests.support.half_sets import SetClient, row
from tests.support.halves import half, putter, resolution, resolver, tell
from tests.support.jumping_broker import InEachStore, JumpingBroker, Start, stopping
from tests.support.logs import all_of, log_policy, logs, nothing_waits, with_policies
from tests.support.message_events import log_of, told
from tests.support.retained import DAY_MS, Asker, offset_of, read
from tests.support.sequenced import annotated, chain, outcomes


@pytest.fixture
def config(in_each_store: InEachStore) -> BrokerConfig:
    """The queues q, dead-letters and log.* are logs with events."""
    return in_each_store(logs("q", "dead-letters", "log.*", events=True))


def posted(session: PeerSession) -> list[bytes]:
    """Plain ones, durable and not, settled and not."""
    sender = session.attach_sender("s", "q")
    send(sender, b"not durable", b"expires", ttl=1)
    send(sender, b"durable", durable=True)
    send(sender, b"settled", settled=True)
    send(sender, b"last")
    return [b"not durable", b"expires", b"durable", b"settled", b"last"]


def relayed(session: PeerSession) -> list[bytes]:
    """Through the anonymous terminus, to a log that there is by then."""
    session.attach_sender("s", "q").detach()
    anonymous = attach_with(session, "relay", target=Target())
    payload = encode_message(properties=Properties(to="q"), body=b"relayed")
    assert outcomes(anonymous, [payload, payload]) == [Accepted(), Accepted()]  # type: ignore[arg-type]
    return [b"relayed", b"relayed"]


def in_transactions(session: PeerSession) -> list[bytes]:
    """One is discharged, one rolled back; what has a ttl is there whenever that is."""
    controller = Controller(session)
    sender = session.attach_sender("s", "q")
    for body, ends in ((b"one", controller.commit), (b"never", controller.roll_back)):
        txn_id = controller.declare()
        tell(sender, message(body, ttl=1), txn_id)
        tell(sender, message(body), txn_id)
        ends(txn_id)
    return [b"one", b"one"]


def sequenced(session: PeerSession) -> list[bytes]:
    """In a stream, one of them twice, then two in a transaction."""
    sender = session.attach_sender("s", "q")
    places = chain(1, 3)
    assert outcomes(sender, [annotated(place) for place in [*places, places[-1]]]) == [Accepted()] * 4
    controller = Controller(session)
    txn_id = controller.declare()
    for place in chain(4, 5):
        tell(sender, annotated(place), txn_id)
    controller.commit(txn_id)
    return [b"1.1", b"1.2", b"1.3", b"1.4", b"1.5"]


def halves(session: PeerSession) -> list[bytes]:
    """Half messages: one committed, one rolled back, one committed in a transaction."""
    put, resolve = putter(session), resolver(session)
    for half_id in ("a", "b", "c"):
        assert tell(put, half(half_id, half_id.encode(), ttl=1)) == Accepted()
    assert tell(resolve, resolution("a", "commit")) == Accepted()
    assert tell(resolve, resolution("b", "rollback")) == Accepted()
    controller = Controller(session)
    txn_id = controller.declare()
    tell(resolve, resolution("c", "commit"), txn_id)
    controller.commit(txn_id)
    return [b"a", b"c"]


def sets(session: PeerSession) -> list[bytes]:
    """Two sets of an epoch, and one that loses; then a larger one."""
    client = SetClient(session)
    rows = [row(b"%d" % number) for number in range(5)]
    one, two = client.sealed("one", *rows[:3]), client.sealed("two", *rows[3:])
    client.staged("loser", row(b"loser")).detach()
    assert client.commit(two, one) == Accepted()
    more = [row(b"m%d" % number) for number in range(300)]
    assert client.commit(client.sealed("more", *more, epoch=2), epoch=2) == Accepted()
    return [b"3", b"4", b"0", b"1", b"2", *[b"m%d" % number for number in range(300)]]


def all_together(session: PeerSession) -> list[bytes]:
    """One after the other into the same log."""
    found = posted(session)
    session.attach_sender("x", "q").detach()
    return [*found, *sets(session), *halves(session), *sequenced(session)]


@pytest.mark.parametrize("way", [posted, relayed, in_transactions, sequenced, halves, sets])
def test_every_way_in_is_archived_at_once(broker: RunningBroker, way: Any) -> None:
    """Read in order with dense offsets, also by a reader that waited; nothing is left for consumers, in
    memory or on disk; and the journal tells the end of each with its coming.
    """
    with session_to(broker) as session, session_to(broker) as other:
        tail = read(other, "q", "next", credit=1_000)
        expected = way(session)
        assert all_of(session, "q", len(expected)) == expected
        assert bodies(receive(tail, len(expected))) == expected
        assert nothing_waits(broker, "q")
    events = log_of(broker)
    found = told(events, "put", "outcome", "offset") + told(events, "publish", "outcome", "offset")
    assert sorted(found) == [("archived", offset) for offset in range(len(expected))]
    assert not replay(events).live and not replay(events).problems


def test_what_the_broker_posts_is_archived(broker: RunningBroker) -> None:
    """A message of the broker's own."""

    async def there(running: Broker) -> None:
        queue = await running.nodes.queues.create("log.own")
        post_own(running, queue, encode_message(body=b"own"))

    broker.call(there)
    with session_to(broker) as session:
        assert all_of(session, "log.own", 1) == [b"own"]
    assert nothing_waits(broker, "log.own")


def test_dead_letters_may_be_a_log(start: Start) -> None:
    """A half message whose destination is gone by its commit is archived there."""
    broker = start(logs("dead-letters", events=True))
    with session_to(broker) as session:
        with session_to(broker) as owner:
            made = attach_with(owner, "temporary", source=Source(dynamic=True))
            source = made.remote_attach.source if made.remote_attach else None
            assert isinstance(source, Source)
            assert tell(putter(session, destination=str(source.address)), half("h", b"h")) == Accepted()
        settle_down(broker, session)
        assert tell(resolver(session), resolution("h", "commit")) == Accepted()
        assert all_of(session, "dead-letters", 1) == [b"h"]
    assert nothing_waits(broker, "dead-letters")


def test_lists_show_the_kind() -> None:
    """`$retained` and the administrator see which is a log, a queue that retains, and the journal."""
    policies = (log_policy("q"), QueuePolicy(pattern="kept", retention_ms=1_000))
    with stopping(JumpingBroker(with_policies(logs(), *policies))) as broker, session_to(broker) as session:
        send(session.attach_sender("s", "q"), b"one")
        session.attach_sender("t", "kept").detach()
        kinds = {node["address"]: node["kind"] for node in Asker(session).ask("describe")["nodes"]}
        assert kinds == {"$events": "events", "kept": "queue", "q": "log"}

        async def there(running: Broker) -> list[RetainedInfo]:
            return await running.retained()

        found = broker.call(there)
        assert isinstance(found, list)
        assert {each.address: each.kind for each in found} == kinds


def test_a_log_is_never_full(start: Start, tmp_path: Path) -> None:
    """Neither messages nor bytes block a sender: what is too much is dropped from the low end."""
    config = with_policies(logs(), log_policy("q", retention_ms=0, retention_bytes=100_000))
    broker = start(attrs.evolve(config, memory=False, data_dir=str(tmp_path / "data")))
    with session_to(broker) as session:
        sender = session.attach_sender("s", "q")
        for number in range(40):
            send(sender, *[b"%d" % number + b"x" * 1_000] * 10)
        settle_down(broker, session)
        broker.jump(5)
        settle_down(broker, session)
        (node,) = Asker(session).ask("describe", address="q")["nodes"]
        assert node["next"] == 400 and 300 <= node["first"] < 400 and node["bytes"] <= 100_000
        found = receive(read(session, "q", "first"), 400 - node["first"])
        assert [offset_of(each) for each in found] == [*range(node["first"], 400)]
        with pytest.raises(PeerError, match="retained:dropped"):
            read(session, "q", 0, until=400)


def test_age_drops_from_a_log_that_nobody_reads(start: Start, tmp_path: Path) -> None:
    """Nobody has to consume anything for it."""
    config = with_policies(logs(), log_policy("q", retention_ms=10_000))
    broker = start(attrs.evolve(config, memory=False, data_dir=str(tmp_path / "data")))
    with session_to(broker) as session:
        sender = session.attach_sender("s", "q")
        send(sender, b"0", b"1")
        broker.jump(30)
        send(sender, b"2")
        for _ in range(3):
            broker.jump(2)
            settle_down(broker, session)
        (node,) = Asker(session).ask("describe", address="q")["nodes"]
        assert (node["first"], node["next"]) == (2, 3)


def test_a_cursor_goes_on_in_a_log(session: PeerSession) -> None:
    """As in any queue that retains."""
    send(session.attach_sender("s", "q"), b"0", b"1", b"2")
    reader = read(session, "q", "first", cursor="c")
    taken = receive(reader, 3)
    reader.settle(taken[:2], Accepted(), settled=False)
    session.connection.pump_until(lambda: len(reader.confirmed) == 2)
    reader.detach()
    assert bodies(receive(read(session, "q", cursor="c"), 1)) == [b"2"]


def test_other_filters_alone_do_not_make_a_reader(session: PeerSession) -> None:
    """A selector alone: without a mode the link is refused, a browser is shown what passes."""
    selector = {"where": Described(Symbol("apache.org:selector-filter:string"), "JMSPriority = 4")}
    send(session.attach_sender("s", "q"), b"kept")
    with pytest.raises(PeerError, match="amqp:not-allowed"):
        attach_with(session, "c", source=Source(address="q", filter=selector))
    source = Source(address="q", distribution_mode="copy", filter=selector)
    browser = attach_with(session, "b", source=source)
    assert isinstance(browser, PeerReceiver) and browser.remote_attach is not None
    answered = browser.remote_attach.source
    assert isinstance(answered, Source) and answered.filter == selector
    browser.flow(1)
    assert bodies(receive(browser, 1)) == [b"kept"]


def test_dynamic_nodes_are_queues() -> None:
    """Whatever the patterns say: they live in memory, and replies are taken from them."""
    with stopping(JumpingBroker(logs("**"))) as broker, session_to(broker) as session:
        replies = attach_with(session, "r", source=Source(dynamic=True))
        assert isinstance(replies, PeerReceiver) and replies.remote_attach is not None
        source = replies.remote_attach.source
        assert isinstance(source, Source)
        replies.flow(5)
        send(session.attach_sender("s", str(source.address)), b"reply")
        assert bodies(receive(replies, 1)) == [b"reply"]


# Restarts, crashes among them, and queues whose kind was changed: nothing is lost on the way


def on_disk(folder: Path, *policies: QueuePolicy) -> BrokerConfig:
    """A broker whose store is in `folder`."""
    return attrs.evolve(with_policies(logs(), *policies), memory=False, data_dir=str(folder / "data"))


def numbered(count: int, first: int = 0) -> list[bytes]:
    """So many bodies."""
    return [b"%d" % number for number in range(first, first + count)]


def accept(session: PeerSession, address: str, count: int) -> list[bytes]:
    """Consume so many messages."""
    consumer = session.attach_receiver("consumer", address, credit=count)
    deliveries = receive(consumer, count)
    consumer.settle(deliveries, Accepted(), settled=False)
    session.connection.pump_until(lambda: len(consumer.confirmed) == count)
    consumer.detach()
    return bodies(deliveries)


def test_a_log_is_there_after_a_restart(tmp_path: Path) -> None:
    """With its offsets, sets among them; nothing of it is loaded, and it goes on where it ended."""
    config = on_disk(tmp_path, log_policy("q"))
    for start in range(3):
        with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
            send(session.attach_sender("s", "q"), *numbered(3, 5 * start))
            client = SetClient(session)
            winner = client.sealed("w", *map(row, numbered(2, 5 * start + 3)), epoch=start)
            assert client.commit(winner, epoch=start) == Accepted()
            assert all_of(session, "q", 5 * start + 5) == numbered(5 * start + 5)
            assert nothing_waits(broker, "q")
    assert verify_directory(tmp_path / "data") == []


@pytest.mark.parametrize("events", [False, True])
@pytest.mark.parametrize("before", [0, DAY_MS])
def test_a_queue_becomes_a_log(tmp_path: Path, before: int, events: bool) -> None:
    """What waited in it is read by offset: in its old place where retention kept it, else posted again, in
    its order; what was consumed stays as it was, and annotations and priorities go along.
    """
    plain = QueuePolicy(pattern="q", retention_ms=before, events=events)
    with stopping(JumpingBroker(on_disk(tmp_path, plain))) as broker, session_to(broker) as session:
        send(session.attach_sender("s", "q"), *numbered(20), durable=True)
        assert accept(session, "q", 3) == numbered(3)
        settle_down(broker, session)
    config = on_disk(tmp_path, log_policy("q", events=events))
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        assert nothing_waits(broker, "q")
        (node,) = Asker(session).ask("describe", address="q")["nodes"]
        first, count = (0, 20) if before else (20, 17)
        assert (node["kind"], node["first"], node["next"]) == ("log", first, first + count)
        send(session.attach_sender("s", "q"), b"new")
        found = receive(read(session, "q", first, until=first + count + 1), count + 1)
        assert bodies(found) == [*numbered(count, 20 - count), b"new"]
        if events:
            replayed = replay(log_of(broker))
            assert (replayed.live, replayed.problems) == ({}, [])
    for _ in range(2):  # the same kind again: nothing is left to do
        with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
            (node,) = Asker(session).ask("describe", address="q")["nodes"]
            assert (node["first"], node["next"]) == (first, first + count + 1)
    assert verify_directory(tmp_path / "data") == []


def test_half_of_a_queue_was_kept_when_it_became_a_log(tmp_path: Path) -> None:
    """What was published before its retention began comes behind what it has kept."""
    with stopping(JumpingBroker(on_disk(tmp_path))) as broker, session_to(broker) as session:
        send(session.attach_sender("s", "q"), *numbered(4), durable=True)
        settle_down(broker, session)
    kept = QueuePolicy(pattern="q", retention_ms=DAY_MS)
    with stopping(JumpingBroker(on_disk(tmp_path, kept))) as broker, session_to(broker) as session:
        send(session.attach_sender("s", "q"), *numbered(3, 4))
        settle_down(broker, session)
    with stopping(JumpingBroker(on_disk(tmp_path, log_policy("q")))) as broker, session_to(broker) as session:
        assert nothing_waits(broker, "q")
        found = receive(read(session, "q", 4, until=11), 7)
        assert bodies(found) == [*numbered(3, 4), *numbered(4)]
    assert verify_directory(tmp_path / "data") == []


def test_nothing_expires_any_more_when_a_queue_is_a_log(tmp_path: Path) -> None:
    """Whatever time to live it had when it waited; also if that is over by the start that makes it one."""
    broker = JumpingBroker(on_disk(tmp_path))
    with stopping(broker), session_to(broker) as session:
        sender = session.attach_sender("s", "q")
        send(sender, *numbered(3), durable=True, ttl=10_000)
        send(sender, *numbered(3, 3), durable=True, ttl=1_000_000)
        settle_down(broker, session)
    broker.mock_clock.jump(60)
    broker = JumpingBroker(on_disk(tmp_path, log_policy("q")), broker)
    with stopping(broker), session_to(broker) as session:
        for _ in range(3):
            broker.jump(1_000)
            settle_down(broker, session)
        assert bodies(receive(read(session, "q", "first"), 6)) == numbered(6)


def test_a_log_becomes_a_queue(tmp_path: Path) -> None:
    """What is archived stays readable by offset, and is for no consumer; what comes now is."""
    with stopping(JumpingBroker(on_disk(tmp_path, log_policy("q")))) as broker, session_to(broker) as session:
        send(session.attach_sender("s", "q"), *numbered(5))
        settle_down(broker, session)
    kept = QueuePolicy(pattern="q", retention_ms=DAY_MS)
    with stopping(JumpingBroker(on_disk(tmp_path, kept))) as broker, session_to(broker) as session:
        send(session.attach_sender("s", "q"), b"5")
        assert accept(session, "q", 1) == [b"5"]
        assert all_of(session, "q", 6) == numbered(6)
    with stopping(JumpingBroker(on_disk(tmp_path))) as broker, session_to(broker) as session:
        with pytest.raises(PeerError, match="retains nothing"):
            read(session, "q", "first")
        send(session.attach_sender("s", "q"), b"6")
        assert accept(session, "q", 1) == [b"6"]
    assert verify_directory(tmp_path / "data") == []


def test_other_bounds_of_a_log(tmp_path: Path) -> None:
    """They may change at any start."""
    for keep_ms in (DAY_MS, 2 * DAY_MS):
        config = on_disk(tmp_path, log_policy("q", retention_ms=keep_ms))
        with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
            send(session.attach_sender("s", "q"), b"one")
            (node,) = Asker(session).ask("describe", address="q")["nodes"]
            assert node["retention_ms"] == keep_ms and node["first"] == 0


class Stopping(StoreFailed):
    """The store ends here."""


class Cut:
    """A store of which the process dies before its n-th commit, or after it."""

    def __init__(self, store: SqliteStore, commits: int, after: bool) -> None:
        self._store = store
        self._left = commits
        self._after = after

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    @property
    def kept_bytes(self) -> int:
        return self._store.kept_bytes

    @property
    def checkpoint_due(self) -> bool:
        """As the store says."""
        return self._store.checkpoint_due

    def commit(self) -> None:
        """Raises Stopping at the n-th."""
        self._left -= 1
        if self._left == 0:
            if self._after:
                self._store.commit()
            else:
                self._store.abandon()
            raise Stopping
        self._store.commit()


MANY = 3 * PAGE_MESSAGES + 7


def filled(folder: Path) -> None:
    """A store with a queue of MANY messages, which are not older than a retention, and no retention."""
    store = SqliteStore(folder, ballast_bytes=0)
    create = CreateNode("q", "queue")
    store.apply([[create]])
    store.commit()
    body = encode_message(body=b"x")
    records = [record_of(body, 0, round(time.time() * 1000), create.queue_id, True) for _ in range(MANY)]
    for offset, record in enumerate(records):
        record.offset = offset
        record.body = encode_message(body=b"%d" % offset)
    store.apply([[Post(create.queue_id, records)]])
    store.commit()
    store.close()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("commits", range(1, 6))
def test_making_a_log_goes_on_where_it_was_cut_off(tmp_path: Path, commits: int, after: bool) -> None:
    """Wherever it dies: at the end each message is there once, in its order."""
    filled(tmp_path)
    config = logs("q", events=True)

    async def main(store: object) -> list[bytes]:
        async with open_broker(config, store=store) as broker:  # type: ignore[arg-type]
            (queue,) = broker.nodes.queues.queues()
            found: list[bytes] = []
            at = MANY
            while at < queue.next_offset:
                page = await broker.writer.ask(RetainedPageOf(queue.queue_id, at, 1_000, 1 << 24))
                assert not page.quarantined
                found += [bytes(Message(record.body).body_sections()[0].value) for record in page.records]
                at = page.next_offset
            assert queue.message_count == 0
            return found

    store = SqliteStore(tmp_path, ballast_bytes=0)
    with pytest.raises(Stopping):
        trio.run(main, Cut(store, commits, after))
    store.close()
    assert verify_directory(tmp_path) == []
    store = SqliteStore(tmp_path, ballast_bytes=0)
    assert trio.run(main, store) == numbered(MANY)
    store.close()
    assert verify_directory(tmp_path) == []


class RefusingRetention(MemoryStore):
    """A store that is full for every Retain, and for nothing else."""

    def apply(self, units: Sequence[Unit]) -> list[Exception | None]:
        if any(isinstance(verb, Retain) for unit in units for verb in unit):
            raise StoreFull("scripted")
        return super().apply(units)


def test_no_message_comes_before_the_retention_of_its_log() -> None:
    """A log is made with its retention in one commit: what is archived in it is kept from the first on."""

    async def main() -> int:
        store = RefusingRetention(store_id="log")
        async with open_broker(logs("q"), store=store) as broker:
            queue = await broker.nodes.queues.create("q")
            submit(broker, queue)
            await broker.nodes.store_step([])
            page = await broker.writer.ask(RetainedPageOf(queue.queue_id, 0, 1_000, 1 << 24))
            return len(page.records)

    assert trio.run(main) == 1


def submit(broker: Broker, queue: Queue) -> None:
    """Post one message, with the next group."""
    record = record_of(encode_message(body=b"one"), 0, round(time.time() * 1000), queue.queue_id, True)
    record.durable = True
    broker.writer.submit(Posting(broker.nodes, queue, [record], OF_THE_BROKER))


def test_damage_is_told_when_a_queue_becomes_a_log(tmp_path: Path) -> None:
    """A message that cannot be read is put into quarantine and told to be dead; the others are there."""
    filled(tmp_path)
    damage(tmp_path)
    config = attrs.evolve(logs("q", events=True), memory=False, data_dir=str(tmp_path))
    with stopping(JumpingBroker(config)) as broker, session_to(broker) as session:
        assert nothing_waits(broker, "q")
        (node,) = Asker(session).ask("describe", address="q")["nodes"]
        dead = {offset for (offset,) in told(log_of(broker), "dead", "offset")}
        assert dead and node["next"] - node["first"] == MANY - len(dead)


def damage(folder: Path) -> None:
    """Flip a bit in the body of one message."""
    ((segment_id, octets),) = edit(folder, "SELECT id, bodies FROM segment ORDER BY id LIMIT 1")
    spoiled = bytearray(octets)
    spoiled[len(spoiled) // 2] ^= 1
    edit(folder, "UPDATE segment SET bodies=? WHERE id=?", bytes(spoiled), segment_id)
