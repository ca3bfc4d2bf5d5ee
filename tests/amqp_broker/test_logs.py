"""Logs: whatever way a message comes in, it is archived by the commit that makes it available;
who may attach, what the answers say, and what they keep.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerConfig, QueuePolicy
from amqp_broker.embedding import RunningBroker
from amqp_broker.frames import (
    Accepted,
    Described,
    Header,
    Message,
    Properties,
    Source,
    Symbol,
    Target,
    Ulong,
    encode_message,
)
from amqp_broker.retained.administration import RetainedInfo
from amqp_broker.testing.peer import PeerError, PeerReceiver, PeerSession
from tests.support.broker_clients import (
    attach_with,
    bodies,
    browse,
    message,
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
from tests.support.retained import Asker, offset_of, read
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
        running.nodes.post(queue, encode_message(body=b"own"))

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


@pytest.mark.parametrize("mode", [None, "move"])
def test_nobody_takes_messages(session: PeerSession, mode: str | None) -> None:
    """A consumer is refused, and told what to do; also where an offset is given, but mode move."""
    send(session.attach_sender("s", "q"), b"kept")
    with pytest.raises(PeerError) as caught:
        attach_with(session, "c", source=Source(address="q", distribution_mode=mode))
    assert caught.value.error is not None and caught.value.error.condition == "amqp:not-allowed"
    description = str(caught.value.error.description)
    assert "'q' is a log" in description and "rabbitmq:stream-offset-spec" in description
    if mode == "move":
        with pytest.raises(PeerError, match="amqp:not-allowed"):
            read(session, "q", "first", mode=mode)
    assert bodies(receive(read(session, "q", "first", mode=None), 1)) == [b"kept"]


def test_a_browser_is_shown_everything_from_the_first_on(session: PeerSession) -> None:
    """Mode copy without an offset: as in any queue; its drain is answered, and more comes as it comes."""
    sender = session.attach_sender("s", "q")
    send(sender, *[b"%d" % number for number in range(30)])
    browser = browse(session, "b", "q", credit=20)
    found = receive(browser, 20)
    assert bodies(found) == [b"%d" % number for number in range(20)]
    assert [offset_of(each) for each in found] == [*range(20)]
    browser.flow(50, drain=True)
    assert len(receive(browser, 10)) == 10
    session.connection.pump_until(lambda: browser.used_up)
    browser.flow(10)
    send(sender, b"more")
    assert bodies(receive(browser, 1)) == [b"more"]
    browser.settle(found, Accepted())
    assert all_of(session, "q", 31)[:1] == [b"0"]


def test_the_answers_say_that_it_is_a_log(session: PeerSession) -> None:
    """Capability `log` of the target, no capability `queue`; kind among the properties of a reader."""
    asked = ("queue",)
    sender = attach_with(session, "s", target=Target(address="q", capabilities=asked))
    target = sender.remote_attach.target if sender.remote_attach else None
    assert isinstance(target, Target)
    assert [str(one) for one in target.capabilities or ()] == ["log", "tx-sequence"]
    source = Source(address="q", distribution_mode="copy", capabilities=asked)
    reader = attach_with(session, "r", source=source)
    attach = reader.remote_attach
    assert attach is not None and isinstance(attach.source, Source) and attach.properties is not None
    assert attach.source.capabilities is None and attach.source.filter is None
    assert attach.source.distribution_mode == "copy"
    assert attach.properties["kind"] == "log" and attach.properties["start"] == Ulong(0)
    ordinary = attach_with(session, "o", target=Target(address="plain", capabilities=asked))
    there = ordinary.remote_attach.target if ordinary.remote_attach else None
    assert isinstance(there, Target)
    assert [str(one) for one in there.capabilities or ()] == ["queue", "tx-sequence"]


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


def test_the_octets_of_a_log_are_those_that_were_sent(session: PeerSession) -> None:
    """With the header of the broker, without a ttl."""
    payload = encode_message(
        header=Header(priority=7, ttl=1), properties=Properties(message_id="m"), body=b"a" * 300
    )
    assert outcomes(session.attach_sender("s", "q"), [payload]) == [Accepted()]
    found = Message(receive(read(session, "q", "first"), 1)[0].payload)
    assert found.bare == Message(payload).bare
    assert (found.header.priority, found.header.ttl, found.header.durable) == (7, None, True)
