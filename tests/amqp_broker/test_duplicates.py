"""Duplicate detection: what was posted within the window is accepted, and not posted again, by its
message-id; remembered with the posting, whatever shares its commit, and after a restart.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

import attrs
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from amqp_broker.broker import Broker
from amqp_broker.configuration import BindingConfig, QueuePolicy
from amqp_broker.dead_letters.redrive import redrive
from amqp_broker.duplicates import duplicates, seen
from amqp_broker.duplicates.duplicates import WindowRule
from amqp_broker.duplicates.seen import KEY_OCTETS, Change, Seen, Window, key_of
from amqp_broker.frames import Accepted, Header, Properties, Rejected, Ulong, encode_message
from amqp_broker.judged_queue import JudgedQueue
from amqp_broker.persistence import StoreFull
from amqp_broker.persistence.questions import PageOf
from amqp_broker.testing.peer import PeerSession
from tests.links.pair import Message as Sendable
from tests.support.broker_clients import at_rest, bodies, session_to, take_everything
from tests.support.by_hand import Control, Served, at_hand, posted, text
from tests.support.examples import examples, seeds
from tests.support.jumping_broker import PATIENT, InEachStore, JumpingBroker, Start, on_disk

WINDOW_MS = 60_000
POLICIES = (
    QueuePolicy(pattern="q", duplicate_window_ms=WINDOW_MS),
    QueuePolicy(pattern="few", duplicate_window_ms=WINDOW_MS, max_duplicate_ids=3),
    QueuePolicy(pattern="told", duplicate_window_ms=WINDOW_MS, events=True, retention_ms=WINDOW_MS),
    QueuePolicy(pattern="small", duplicate_window_ms=WINDOW_MS, max_messages=2),
    QueuePolicy(pattern="topic", kind="topic"),
)
CONFIG = attrs.evolve(
    PATIENT, queue_policies=POLICIES,
    bindings=(BindingConfig(topic="topic", queue="q"), BindingConfig(topic="topic", queue="all")),
)  # fmt: skip
BURYING = attrs.evolve(
    CONFIG,
    queue_policies=(
        QueuePolicy(pattern="buried", dead_letter_address="graves"),
        QueuePolicy(pattern="graves", duplicate_window_ms=WINDOW_MS),
    ),
)
here = at_hand(CONFIG)


def named(message_id: Any, body: bytes, **sections: Any) -> Sendable:
    """A message with its id."""
    return text(body, properties=Properties(message_id=message_id), **sections)


def rule_of(broker: Broker, name: str = "q") -> WindowRule:
    """The one rule of a queue."""
    queue = broker.nodes.queues.find(name)
    assert isinstance(queue, JudgedQueue)
    (found,) = queue.rules
    assert isinstance(found, WindowRule)
    return found


async def stored_ids(at: Served) -> list[bytes]:
    """What the store keeps of them."""
    node_id = at.broker.features.duplicates.node_id
    page = await at.broker.writer.ask(PageOf(node_id, 0, 10_000, 1 << 30))
    return [record.body[8:] for record in page.records]


# Pure


def body_with(message_id: Any) -> bytes:
    """A message without its header."""
    return encode_message(properties=Properties(message_id=message_id), body=b"x")


def test_ids_of_four_types_are_different() -> None:
    """A string, octets, a uuid and a number that look alike; one of any length is itself only."""
    uuid = UUID(int=0x31)
    same = ["1", b"1", uuid, Ulong(1), str(uuid), uuid.bytes, Ulong(0x31), "", b"", Ulong(0)]
    same += ["1" * KEY_OCTETS, b"1" * KEY_OCTETS, "1" * (KEY_OCTETS + 1)]
    same += ["1" * 300, "1" * 299 + "2", b"1" * 300]
    keys = [key_of(body_with(each)) for each in same]
    assert len(set(keys)) == len(same) and all(keys) and max(map(len, keys)) <= KEY_OCTETS
    assert key_of(encode_message(body=b"x")) == key_of(body_with(None)) == b""


@pytest.mark.parametrize("sections", [{}, {"message_annotations": {"x-opt-a": 1}}])
def test_the_layout_does_not_matter(sections: dict[str, Any]) -> None:
    """An id is the same wherever it stands, and however it is encoded."""
    plain = encode_message(properties=Properties(message_id=Ulong(7)), body=b"x", **sections)
    assert plain.count(b"\x53\x07") == 1
    wide = plain.replace(b"\x53\x07", b"\x80" + (7).to_bytes(8, "big"))
    at = wide.index(b"\x00\x53\x73\xc0")
    wide = wide[: at + 4] + bytes([wide[at + 4] + 7]) + wide[at + 5 :]
    long = wide[: at + 3] + b"\xd0" + (wide[at + 4] + 3).to_bytes(4, "big") + bytes(3) + wide[at + 5 :]
    assert key_of(plain) == key_of(wide) == key_of(long) == b"n7"
    subject = Properties(message_id="a", subject="s" * 300)
    assert key_of(encode_message(properties=subject, body=b"x", **sections)) == b"sa"


class RandomWindows(RuleBasedStateMachine):
    """A window against a list of what was posted, with postings that are undone."""

    def __init__(self) -> None:
        super().__init__()
        self.window = Window(10, 5)
        self.now_ms = 1_000
        self.log: list[tuple[bytes, int]] = []  # of all that were ever posted
        self.undone: list[tuple[Change, int]] = []  # can be, the last first
        self.offsets = count()

    @rule(keys=st.lists(st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"f", b"g"]), max_size=8))
    def post(self, keys: Sequence[bytes]) -> None:
        """Some messages, of which the window knows some."""
        change = Change()
        self.undone.append((change, len(self.log)))
        for key in keys:
            young = [each for each, at_ms in self.log[-5:] if self.now_ms - at_ms < 10]
            known = self.window.knows(key, self.now_ms)
            assert known == (key in young)
            if not known:
                self.window.remember(Seen(key, self.now_ms, next(self.offsets)), change)
                self.log.append((key, self.now_ms))
        self.window.forget_old(self.now_ms, change)

    @precondition(lambda self: self.undone)
    @rule()
    def undo(self) -> None:
        """The last posting."""
        change, length = self.undone.pop()
        self.window.undo(change)
        del self.log[length:]

    @rule(ms=st.integers(1, 11))
    def pass_time(self, ms: int) -> None:
        """What was posted cannot be undone after that."""
        self.now_ms += ms
        self.undone.clear()

    @invariant()
    def knows_the_youngest(self) -> None:
        """At most the bound; each that is young and among the last ones."""
        assert len(self.window) <= 5
        for key in (b"a", b"b", b"c", b"d", b"e", b"f", b"g"):
            young = key in [each for each, at_ms in self.log[-5:] if self.now_ms - at_ms < 10]
            assert self.window.knows(key, self.now_ms) == young
        assert set(self.window._by_key.values()) <= set(self.window._in_order)


TestWindows = RandomWindows.TestCase
TestWindows.settings = examples(200, stateful_step_count=30)


# A broker


@pytest.mark.parametrize("durable", [True, False])
@here
async def test_a_message_that_comes_again_is_accepted_and_not_posted(at: Served, durable: bool) -> None:
    """From any connection, also when the first one was settled; of another id, or without one, it comes. A
    second of them in the same read is a duplicate as well.
    """
    sender = await at.sender("q")
    sender.send([
        named("a", b"1", durable=durable), named("a", b"2", durable=durable), text(b"3", durable=durable),
        text(b"3", durable=durable), named(b"a", b"4", durable=durable),
    ])  # fmt: skip
    await at.rest()
    assert at.conditions == ["accepted"] * 5
    receiver = await at.receiver("q", 10)
    assert at.bodies() == [b"1", b"3", b"3", b"4"]
    receiver.settle(at.take(), Accepted())
    await at.rest()
    other = at.another()
    link = await other.sender("q")
    link.send([named("a", b"5", durable=durable), named("b", b"6", durable=durable)])
    await other.rest()
    assert other.conditions == ["accepted"] * 2 and at.bodies() == [b"6"]
    queue = at.queue()
    assert isinstance(queue, JudgedQueue)
    assert (queue.duplicates, queue.message_count, queue.pending_posts) == (2, 1, 0)
    assert len(await stored_ids(at)) == (3 if durable else 0) and len(rule_of(at.broker).window) == 3


@here
async def test_the_window_ends(at: Served) -> None:
    """Counted from the first posting; what was forgotten has left the store with the next one."""
    sender = await at.sender("q")
    for body, seconds in ((b"1", 30.0), (b"2", 29.9), (b"3", 0.1), (b"4", 0.0)):
        sender.send([named("a", body)])
        await at.pass_time(seconds)
    assert await at.left("q") == [b"1", b"4"] and await stored_ids(at) == [b"sa"]


@here
async def test_at_the_bound_the_oldest_is_forgotten(at: Served) -> None:
    """One for each that comes: also within one run that is larger than the bound."""
    sender = await at.sender("few")
    sender.send([named(each, b"%d" % number) for number, each in enumerate("abcdea")])
    await at.rest()
    assert await stored_ids(at) == [b"sd", b"se", b"sa"]
    sender.send([named(each, each.encode()) for each in "aeb"])
    await at.rest()
    assert at.conditions == ["accepted"] * 9
    assert await at.left("few") == [b"0", b"1", b"2", b"3", b"4", b"5", b"b"]
    assert await stored_ids(at) == [b"se", b"sa", b"sb"]


@here
async def test_a_transaction_is_judged_at_its_discharge(at: Served) -> None:
    """Two in one, one that others posted meanwhile, and what was rolled back."""
    control = Control(at)
    link = await at.sender("q")
    sender = await at.sender("q", "plain")
    first, second, dropped = await control.declare(), await control.declare(), await control.declare()
    same: dict[str, Any] = {"properties": Properties(message_id="a")}
    other: dict[str, Any] = {"properties": Properties(message_id="b")}
    await posted(at, link, dropped, b"0", **same)
    await posted(at, link, first, b"1", b"2", **same)
    await posted(at, link, second, b"3", **same)
    await posted(at, link, second, b"4", **other)
    await control.roll_back(dropped)
    await control.commit(first)
    await control.commit(second)
    sender.send([named("b", b"5"), named("c", b"6")])
    await at.rest()
    assert await at.left("q") == [b"1", b"4", b"6"]
    queue = at.queue()
    assert (queue.reserved_messages, queue.reserved_bytes, queue.pending_posts) == (0, 0, 0)


@here
async def test_what_could_not_be_stored_is_not_remembered(at: Served) -> None:
    """Its sender tries again, and then it comes, once."""
    sender = await at.sender("q")
    sender.send([named("x", b"0")])
    await at.rest()
    with patch.object(at.broker.writer._store, "apply", side_effect=StoreFull("a fault")):
        sender.send([named("a", b"1"), named("a", b"2"), named("x", b"3")])
        await at.rest()
    refused = at.conditions[1:]
    assert "amqp:resource-limit-exceeded" in refused and rule_of(at.broker).window._by_key.keys() == {b"sx"}
    sender.send([named("a", b"4"), named("a", b"5")])
    await at.rest()
    assert await at.left("q") == [b"0", b"4"] and await stored_ids(at) == [b"sx", b"sa"]


@here
async def test_what_the_broker_moves_is_no_duplicate(at: Served) -> None:
    """A message that waited for its time, and a dead letter that goes back."""
    sender = await at.sender("q")
    sender.send([
        named("a", b"1", message_annotations={"x-opt-delivery-delay": 1_000}), named("b", b"2"),
        named("a", b"3", message_annotations={"x-opt-delivery-delay": 1_000}),
    ])  # fmt: skip
    await at.pass_time(1)
    receiver = await at.receiver("q", 2)
    assert at.bodies() == [b"2", b"1"]
    receiver.settle(at.take(), Rejected())
    await at.rest()
    assert await redrive(at.broker.nodes, "dead-letters") == 2
    assert await at.left("q") == [b"2", b"1"] and at.queue("dead-letters").message_count == 0


@at_hand(BURYING)
async def test_the_first_dead_letter_makes_its_queue_and_is_there(at: Served) -> None:
    """Before there is a place for ids: none of it is kept, and nothing is delivered once more."""
    sender = await at.sender("buried")
    sender.send([named("a", b"1"), named("a", b"2")])
    receiver = await at.receiver("buried", 10)
    receiver.settle(at.take(), Rejected())
    await at.rest()
    assert at.bodies() == [] and at.queue("buried").message_count == 0
    assert at.queue("graves").message_count == 2


@here
async def test_each_queue_of_a_topic_has_its_own_window(at: Served) -> None:
    """A copy that its queue knows does not come there; others get it."""
    direct = await at.sender("q")
    direct.send([named("a", b"1")])
    await at.rest()
    sender = await at.sender("topic", "to topic")
    sender.send([named("a", b"2"), named("b", b"3"), named("b", b"4", durable=False)])
    await at.rest()
    assert at.conditions == ["accepted"] * 4
    assert await at.left("q") == [b"1", b"3"] and await at.left("all") == [b"2", b"3", b"4"]
    for name in ("q", "all"):
        queue = at.queue(name)
        assert (queue.pending_posts, queue.reserved_messages, queue.reserved_bytes) == (0, 0, 0)


@here
async def test_a_copy_that_is_not_numbered_keeps_nothing(at: Served) -> None:
    """Where there is no place for ids, what is posted to the topic is refused, and comes later."""
    sender = await at.sender("topic")
    direct = await at.sender("q", "direct")
    features = at.broker.features.duplicates
    node_id, features.node_id = features.node_id, 0
    with patch.object(features, "_make"):
        sender.send([named("a", b"1")])
        await at.rest()
        direct.send([named("a", b"2")])
        await at.rest()
    assert at.conditions == ["amqp:resource-limit-exceeded"] * 2
    features.node_id = node_id
    sender.send([named("a", b"3")])
    await at.rest()
    assert await at.left("q") == await at.left("all") == [b"3"]
    for name in ("q", "all"):
        queue = at.queue(name)
        assert (queue.pending_posts, queue.reserved_messages, queue.next_offset) == (0, 0, 1)


@here
async def test_a_duplicate_has_no_offset_and_no_event(at: Served) -> None:
    """Retained offsets have no holes, and the journal tells of what came."""
    sender = await at.sender("told")
    sender.send([named("a", b"1"), named("a", b"2", durable=False), named("b", b"3", durable=False)])
    await at.rest()
    events = [each for each in await at.broker.half_messages.events() if each.kind == "put"]
    assert [each.fields.get("offset") for each in events] == [0, 1]
    assert at.queue("told").next_offset == 2


@here
async def test_a_duplicate_takes_no_room(at: Served) -> None:
    """Credit comes back for it."""
    sender = await at.sender("small")
    for _ in range(5):
        sender.send([named("a", b"1")])
        await at.pass_time(10)
    assert at.conditions == ["accepted"] * 5 and at.queue("small").message_count == 1 and sender.credit == 1


@here
async def test_a_queue_that_goes_takes_its_ids_with_it(at: Served) -> None:
    """One of that name begins anew."""
    sender = await at.sender("q")
    sender.send([named("a", b"1"), named("b", b"1", durable=False)])
    await at.rest()
    rule = rule_of(at.broker)
    assert rule.kept_bytes() > 0 and len(await stored_ids(at)) == 1
    at.broker.nodes.drop(at.queue())
    await at.rest()
    assert await stored_ids(at) == [] and rule.kept_bytes() == len(rule.window) == 0


@pytest.mark.parametrize("name", ["few", "q"])
@here
async def test_the_memory_that_ids_take_is_counted(at: Served, name: str) -> None:
    """And given back with them."""
    sender = await at.sender(name)
    own = at.broker.memory.own
    before = own.used_bytes
    sender.send([named("a" * 20, b"1", durable=False), named("b" * 20, b"2", durable=False)])
    await at.rest()
    used = rule_of(at.broker, name).kept_bytes()
    assert used == 2 * (seen.ENTRY_BYTES + 21) and own.used_bytes - before == used
    sender.send([named(f"{number:020}", b"", durable=False) for number in range(50)])
    await at.rest()
    assert rule_of(at.broker, name).kept_bytes() == used / 2 * (3 if name == "few" else 52)


# A broker that is started again


def send_named(session: PeerSession, *entries: tuple[Any, bytes, bool], address: str = "q") -> None:
    """Messages with ids, durable or not, in one write, all accepted."""
    link = session.attach_sender(f"to {address}", address)
    numbers = [
        link.send(
            encode_message(
                header=Header(durable=durable), properties=Properties(message_id=message_id), body=body
            )
        )
        for message_id, body, durable in entries
    ]
    session.connection.pump_until(lambda: all(number in link.outcomes for number in numbers))
    assert {type(link.outcomes[number]) for number in numbers} <= {Accepted}
    link.detach()


def there(broker: JumpingBroker) -> list[bytes]:
    """What the queue has, which is taken."""
    at_rest(broker)
    with session_to(broker, "takes") as session:
        return bodies(take_everything(session.attach_receiver("takes", "q")))


def test_ids_survive_a_restart(start: Start, tmp_path: Path) -> None:
    """Those of durable messages, taken or not; of others nothing is left, nor of them. The window goes on."""
    config = on_disk(tmp_path, CONFIG)
    broker = start(config)
    uuid = uuid4()
    with session_to(broker) as session:
        send_named(session, ("a", b"1", True), (uuid, b"2", True), ("v", b"3", False))
        broker.jump(40)
        send_named(session, ("late", b"4", True))
    assert there(broker) == [b"1", b"2", b"3", b"4"]
    broker.stop()
    broker = start(config, broker)
    with patch.object(duplicates, "PAGE_MESSAGES", 1), session_to(broker) as session:
        send_named(session, ("a", b"5", True), (uuid, b"6", True), ("v", b"7", True), ("late", b"8", True))
        assert there(broker) == [b"7"]
        broker.jump(21)
        send_named(session, ("a", b"9", True), ("late", b"10", True))
    assert there(broker) == [b"9"]


def test_a_queue_without_the_setting_forgets(start: Start, tmp_path: Path) -> None:
    """What no window wants any more leaves the store at the start; and no queue has to be there before."""
    config = on_disk(tmp_path, CONFIG)
    broker = start(config)
    with session_to(broker) as session:
        send_named(session, ("a", b"1", True))
    broker.stop()
    broker = start(on_disk(tmp_path, PATIENT), broker)
    at_rest(broker)
    broker.stop()
    broker = start(config, broker)
    with session_to(broker) as session:
        send_named(session, ("a", b"2", True), ("a", b"3", True))
    assert there(broker) == [b"1", b"2"]


@pytest.mark.parametrize("seed", seeds(6))
def test_random_histories(start: Start, in_each_store: InEachStore, seed: int) -> None:
    """Posts, time, and starts in between: what comes is what a list of postings says."""
    chance = Random(f"histories {seed}")
    config = in_each_store(CONFIG)
    broker = start(config)
    posted_at: dict[Any, tuple[float, bool]] = {}
    expected: list[bytes] = []
    now = 0.0
    ids: list[Any] = ["a", b"a", Ulong(1), Ulong(2), UUID(int=1), "b" * 100, None]
    for number in range(60):
        kind = chance.random()
        if kind < 0.15:
            seconds = chance.choice((1, 20, 61))
            now += seconds
            broker.jump(seconds)
        elif kind < 0.25 and not config.memory:
            broker.stop()
            broker = start(config, broker)
            posted_at = {key: value for key, value in posted_at.items() if value[1]}
            continue
        entries = []
        for at in range(chance.choice((1, 1, 2, 5))):
            message_id, durable = chance.choice(ids), chance.random() < 0.7
            body = b"%d.%d" % (number, at)
            entries.append((message_id, body, durable))
            before = posted_at.get(message_id, (-1e9, True))[0]
            if message_id is None or now - before >= WINDOW_MS / 1_000:
                posted_at[message_id] = (now, durable)
                expected.append(body)
        with session_to(broker) as session:
            send_named(session, *entries)
        assert there(broker) == expected
        expected.clear()
