"""Last-value queues: of each key the last message waits, whatever shared its commit, and after a restart;
what a consumer holds is left to it, and gone as replaced when it comes back.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch
from uuid import UUID

import attrs
import pytest

from amqp_broker.broker import open_broker
from amqp_broker.configuration import (
    LAST_VALUES_MAX,
    BindingConfig,
    BrokerLimits,
    ConfigurationError,
    QueuePolicy,
    parse_configuration,
)
from amqp_broker.frames import (
    Accepted,
    Header,
    Modified,
    Properties,
    Rejected,
    Released,
    Source,
    Symbol,
    Target,
    TransactionalState,
    Ulong,
    encode_message,
)
from amqp_broker.judged_queue import JudgedQueue
from amqp_broker.links import ReceiverLink
from amqp_broker.persistence import CreateNode, Post, Record, StoreFull
from amqp_broker.persistence.sqlite import SqliteStore
from amqp_broker.records import record_of
from amqp_broker.replacing.keys import KEY_OCTETS, Keys, key_of
from amqp_broker.replacing.replacing import Replacing
from amqp_broker.testing import ScriptedFaults
from amqp_broker.testing.peer import Delivery, PeerReceiver, PeerSession
from tests.links.pair import Message as Sendable
from tests.support.broker_clients import body_of, counts, session_to, settle_down, take_everything
from tests.support.by_hand import (
    Control,
    Served,
    at_hand,
    by_hand,
    commits_held,
    in_virtual_time,
    text,
    within,
)
from tests.support.controllers import Controller
from tests.support.examples import seeds
from tests.support.jumping_broker import PATIENT, InEachStore, JumpingBroker, Start

KEY = "symbol"
MOST = 100_000


def last(pattern: str, **fields: Any) -> QueuePolicy:
    """The setting."""
    given: dict[str, Any] = {"max_messages": MOST, "message_type": "normal"} | fields
    return QueuePolicy(pattern=pattern, last_value_key=KEY, **given)


POLICIES = (
    last("q", dead_letter_address="dead"),
    last("told", events=True),
    last("urgent", priorities=True),
    last("once", duplicate_window_ms=60_000),
    last("grouped", groups=True),
    last("ring", ring_messages=3),
    last("slow", redelivery_delay_ms=1_000),
    last("few", max_messages=2),
    QueuePolicy(pattern="topic", kind="topic"),
)
CONFIG = attrs.evolve(
    PATIENT, queue_policies=POLICIES,
    bindings=(BindingConfig(topic="topic", queue="q"), BindingConfig(topic="topic", queue="all")),
)  # fmt: skip
LITTLE = attrs.evolve(CONFIG, limits=BrokerLimits(idle_time_out_ms=2**32 - 1, queue_window_messages=4))
here = at_hand(CONFIG)
in_little_memory = at_hand(LITTLE)


def values(*words: str, durable: bool = True, **sections: Any) -> list[Sendable]:
    """Messages whose key is their first letter; `-` has none."""
    return [value(word, durable=durable, **sections) for word in words]


def value(word: str, *, durable: bool = True, **sections: Any) -> Sendable:
    """One of them."""
    if word[0] != "-":
        sections["application_properties"] = {KEY: word[0], "other": 1}
    return text(word.encode(), durable=durable, **sections)


def judged(at: Served, name: str = "q") -> JudgedQueue:
    """Such a queue, which is at rest."""
    queue = at.queue(name)
    assert isinstance(queue, JudgedQueue)
    assert (queue.pending_posts, queue.reserved_messages, len(queue.never)) == (0, 0, 0)
    return queue


def keys_of(queue: JudgedQueue) -> Keys:
    """What its rule knows."""
    (rule,) = [rule for rule in queue.rules if isinstance(rule, Replacing)]
    assert (rule.kept_bytes() > 0) == (rule.keys.octets > 0) and rule.kept_bytes() == rule.keys.octets
    return rule.keys


async def seen(at: Served, name: str = "q") -> list[str]:
    """What a browser sees: nobody holds any of it."""
    looks = at.another("looks")
    await looks.receiver(Source(address=name, distribution_mode="copy"), 1_000)
    await looks.close()
    return [body.decode() for body in looks.bodies()]


def came(at: Served) -> list[str]:
    """What a consumer has been given."""
    return [body.decode() for body in at.bodies()]


@pytest.mark.parametrize("durable", [True, False])
@here
async def test_a_new_value_replaces_the_one_before_it(at: Served, durable: bool) -> None:
    """One by one, and many at once, at the end of the queue; what has no key is left alone."""
    sender = await at.sender("q")
    for word in ("a1", "b1", "-1", "a2", "c1", "-2"):
        sender.send(values(word, durable=durable))
        await at.rest()
    assert await seen(at) == ["b1", "-1", "a2", "c1", "-2"]
    sender.send(values("a3", "a4", "d1", "c2", "d2", durable=durable))
    await at.rest()
    assert at.conditions == ["accepted"] * 11
    assert await seen(at) == ["b1", "-1", "-2", "a4", "c2", "d2"]
    queue = judged(at)
    assert (queue.message_count, queue.replaced, queue.dropped, len(keys_of(queue))) == (6, 5, 0, 4)


@in_little_memory
async def test_what_is_on_disk_only_is_replaced(at: Served) -> None:
    """Wherever it stands, before a consumer comes to it."""
    sender = await at.sender("q")
    sender.send(values(*(f"{letter}1" for letter in "abcdefghijkl")))
    await at.rest()
    sender.send(values("h2", "b2", "l2"))
    sender.send(values("h3", "a2", durable=False))
    await at.rest()
    expected = ["c1", "d1", "e1", "f1", "g1", "i1", "j1", "k1", "b2", "l2", "h3", "a2"]
    assert await seen(at) == expected
    await at.receiver("q", 100)
    assert came(at) == expected and judged(at).replaced == 5


@pytest.mark.parametrize("outcome", [Released(), Modified(delivery_failed=True), Modified()])
@here
async def test_what_a_consumer_holds_is_gone_when_it_comes_back(at: Served, outcome: Any) -> None:
    """If a newer value came meanwhile, whatever became of that; in its old place, if none did."""
    sender = await at.sender("q")
    receiver = await at.receiver("q", 3)
    sender.send(values("a1", "b1", "c1"))
    await at.rest()
    held = at.take()
    sender.send(values("a2", "c2"))
    await at.rest()
    assert await seen(at) == ["a2", "c2"] and judged(at).replaced == 0
    receiver.flow(1)
    await at.rest()
    (newer,) = at.take()
    receiver.settle([newer], Accepted())
    await at.rest()
    receiver.settle(held, outcome)
    await at.rest()
    assert await seen(at) == ["b1", "c2"]
    queue = judged(at)
    assert (queue.message_count, queue.replaced, len(keys_of(queue))) == (2, 2, 2)
    sender.send(values("b2", "a3"))
    await at.rest()
    assert await seen(at) == ["c2", "b2", "a3"] and judged(at).replaced == 3


@here
async def test_an_older_value_is_gone_with_its_consumer(at: Served) -> None:
    """Unsettled at the end of a link, or of a connection."""
    sender = await at.sender("q")
    other = at.another("other")
    await other.receiver("q", 2)
    sender.send(values("a1", "b1"))
    await at.rest()
    sender.send(values("a2"))
    await at.rest()
    await other.breaks()
    await at.rest()
    assert await seen(at) == ["b1", "a2"] and judged(at).replaced == 1


@here
async def test_a_consumer_that_keeps_up_gets_each_value(at: Served) -> None:
    """However many come at once, as far as its credit reaches."""
    receiver = await at.receiver("q", 5)
    sender = await at.sender("q")
    sender.send(values("a1", "a2", "b1", "a3", "b2", "a4", "b3", "a5"))
    await at.rest()
    assert came(at) == ["a1", "a2", "b1", "a3", "b2"] and await seen(at) == ["b3", "a5"]
    receiver.settle(at.take(), Released())
    receiver.flow(10)
    await at.rest()
    assert came(at) == ["b3", "a5"] and judged(at).replaced == 6


@here
async def test_what_was_asked_for_in_vain_is_gone(at: Served) -> None:
    """A link had credit for an older value, which is too large for it."""
    link = ReceiverLink(at.session, "narrow", at.session.free_handle())
    link.max_message_size = 300
    at.session._attach(link, Source(address="q"), Target(), {})
    link.set_credit(2)
    await at.settle()
    sender = await at.sender("q")
    sender.send([value("a1" + "x" * 400), *values("a2", "b1")])
    await at.rest()
    assert came(at) == ["a2", "b1"] and await seen(at) == [] and judged(at).replaced == 1


@here
async def test_a_transaction_replaces_at_its_discharge(at: Served) -> None:
    """Not before, and not at all where it rolls back; what it acquires is left to it."""
    sender = await at.sender("q", "plain")
    sender.send(values("a1", "b1"))
    control, link = Control(at), await at.sender("q")
    kept, dropped = await control.declare(), await control.declare()
    link.send_in(values("a2", "a3"), within(kept))
    link.send_in(values("b2"), within(dropped))
    await at.rest()
    assert await seen(at) == ["a1", "b1"]
    await control.roll_back(dropped)
    assert await seen(at) == ["a1", "b1"]
    await control.commit(kept)
    assert await seen(at) == ["b1", "a3"] and judged(at).replaced == 2
    receiver = await at.receiver("q", 2)
    taken, given_up = await control.declare(), await control.declare()
    first, second = at.take()
    receiver.settle([first], TransactionalState(txn_id=taken, outcome=Accepted()))
    receiver.settle([second], TransactionalState(txn_id=given_up, outcome=Accepted()))
    link.send_in(values("b4"), within(taken))
    sender.send(values("a4"))
    await at.rest()
    await control.commit(taken)
    await control.roll_back(given_up)
    receiver.settle([second], Released())
    await at.rest()
    assert await seen(at) == ["a4", "b4"] and judged(at).replaced == 3


@here
async def test_what_is_not_stored_replaces_nothing(at: Served) -> None:
    """Those that waited are there again, in their places; what comes back meanwhile, too."""
    sender = await at.sender("q")
    receiver = await at.receiver("q", 1)
    sender.send(values("a1", "b1", "c1"))
    await at.rest()
    held = at.take()
    with patch.object(at.broker.writer._store, "apply", side_effect=StoreFull("a fault")):
        sender.send([*values("a2", "b2", "b3"), *values("c2", durable=False)])
        receiver.settle(held, Released())
        await at.rest()
    assert at.conditions[3:] == ["amqp:resource-limit-exceeded"] * 4
    assert await seen(at) == ["a1", "b1", "c1"]
    queue = judged(at)
    assert (queue.replaced, len(keys_of(queue))) == (0, 3)
    sender.send(values("b4", "a3"))
    await at.rest()
    assert await seen(at) == ["c1", "b4", "a3"]


@pytest.mark.parametrize("credit", [0, 1])
@pytest.mark.parametrize("first", ["post", "release"])
def test_what_comes_back_in_one_group_with_a_newer_one(first: str, credit: int) -> None:
    """It is gone if the newer one was posted first; if not, a link has asked for it before that."""
    faults = ScriptedFaults()

    async def main(at: Served) -> None:
        sender, other = await at.sender("q"), await at.sender("all", "other")
        receiver = await at.receiver("q", 1)
        sender.send(values("a1"))
        await at.rest()
        held = at.take()
        with commits_held(at, faults):
            other.send(values("x1"))  # whose commit is under way
            await at.hear_later()
            for what in ("post", "release") if first == "post" else ("release", "post"):
                if what == "post":
                    sender.send(values("a2"))
                else:
                    receiver.settle(held, Released())
                    receiver.flow(credit)
                await at.hear_later()
        await at.rest()
        there = came(at) if credit else await seen(at)
        queue = judged(at)
        assert (there, queue.replaced) == ((["a1"], 0) if first == "release" and credit else (["a2"], 1))
        assert queue.message_count == 2 - queue.replaced and len(keys_of(queue)) == 1

    by_hand(main, CONFIG, faults)


@pytest.mark.parametrize("fails", [True, False])
def test_what_came_back_beside_a_refused_newer_one_waits(fails: bool) -> None:
    """The commit of the newer one is under way while it comes back."""
    faults = ScriptedFaults()

    async def main(at: Served) -> None:
        sender = await at.sender("q")
        receiver = await at.receiver("q", 1)
        sender.send(values("a1"))
        await at.rest()
        held = at.take()
        if fails:
            faults.refuse_commit()
        with commits_held(at, faults):
            sender.send(values("a2"))
            await at.hear_later()
            receiver.settle(held, Released())
            await at.hear_later()
            assert at.queue("q").backlog.available() == 0
        await at.rest()
        assert at.conditions == ["accepted", "amqp:resource-limit-exceeded" if fails else "accepted"]
        assert await seen(at) == (["a1"] if fails else ["a2"])
        assert judged(at).replaced == (0 if fails else 1)

    by_hand(main, CONFIG, faults)


@here
async def test_the_journal_tells_of_it(at: Served) -> None:
    """Behind the coming of the newer one; of what came back, when it did."""
    sender = await at.sender("told")
    receiver = await at.receiver("told", 1)
    sender.send(values("a1", "b1"))
    await at.rest()
    sender.send(values("b2", "a2"))
    await at.rest()
    receiver.settle(at.take(), Released())
    await at.rest()
    events = [each for each in await at.broker.half_messages.events() if each.kind in ("put", "dead")]
    told = [(each.kind, each.fields["offset"]) for each in events]
    assert told == [("put", 0), ("put", 1), ("put", 2), ("put", 3), ("dead", 1), ("dead", 0)]
    assert {each.fields["reason"] for each in events[4:]} == {"replaced: a newer value of its key came"}


@in_virtual_time
async def test_after_a_crash_one_value_of_each_key_is_left(tmp_path: Path) -> None:
    """What a consumer held is in the store beside the newer one; many more values than the window has."""
    words = ["a1", "b1", "-1", *(f"{letter}1" for letter in "cdefghijkl"), "b2", "a2", "-2"]
    store = SqliteStore(tmp_path)
    node = CreateNode("q", "queue")
    bodies = [value(word).body for word in words]
    records = [record_of(body, 0, 0, 1, True) for body in bodies]
    for offset, record in enumerate(records):
        record.offset = offset
    store.apply([[node], [Post(1, records)]])
    store.commit()
    left = [word for word in words if word not in ("a1", "b1")]
    for older in (2, 0):
        async with open_broker(attrs.evolve(LITTLE, memory=False), store=store) as broker:
            at = Served(broker)
            await at.rest()
            assert await seen(at) == left and len(keys_of(judged(at))) == 12
            assert judged(at).replaced == older
    sender_words = [word for word in left if word != "c1"]
    async with open_broker(attrs.evolve(LITTLE, memory=False), store=store) as broker:
        at = Served(broker)
        (await at.sender("q")).send(values("c2"))
        await at.rest()
        assert await seen(at) == [*sender_words, "c2"]
    store.close()


@here
async def test_beside_priorities_groups_delays_and_duplicates(at: Served) -> None:
    """What waits for its time replaces when it comes, a duplicate nothing; a ring drops the oldest."""
    sender = await at.sender("urgent")
    for word, priority in (("a1", 9), ("b1", 1), ("a2", 1), ("c1", 5)):
        header, key = Header(durable=True, priority=priority), {KEY: word[0]}
        body = encode_message(header=header, application_properties=key, body=word.encode())
        sender.send([Sendable(body)])
        await at.rest()
    assert await at.left("urgent") == [b"c1", b"b1", b"a2"]
    grouped = await at.sender("grouped", "grouped")
    grouped.send(values("a1", "b1", "a2", properties=Properties(group_id="g")))
    await at.rest()
    assert await at.left("grouped") == [b"b1", b"a2"]
    late = await at.sender("q", "late")
    late.send(values("a1", "b1", message_annotations={"x-opt-delivery-delay": 1_000}))
    late.send(values("a2", "c1"))
    await at.rest()
    assert await seen(at) == ["a2", "c1"]
    await at.pass_time(1)
    assert await seen(at) == ["c1", "a1", "b1"]
    once = await at.sender("once", "once")
    once.send([value(f"a{n}", properties=Properties(message_id=f"{n // 2}")) for n in range(4)])
    await at.rest()
    assert await seen(at, "once") == ["a2"] and judged(at, "once").duplicates == 2
    ring = await at.sender("ring", "ring")
    ring.send(values("a1", "b1", "c1", "b2", "d1", "e1", "d2"))
    await at.rest()
    queue = judged(at, "ring")
    assert await seen(at, "ring") == ["b2", "e1", "d2"] and (queue.dropped, queue.replaced) == (2, 2)


@here
async def test_what_failed_waits_and_is_gone(at: Served) -> None:
    """It is overtaken while it waits for its next try, and no browser sees it then."""
    sender = await at.sender("slow")
    receiver = await at.receiver("slow", 1)
    sender.send(values("a1"))
    await at.rest()
    receiver.settle(at.take(), Modified(delivery_failed=True))
    await at.rest()
    assert await seen(at, "slow") == ["a1"]
    sender.send(values("a2"))
    await at.rest()
    assert await seen(at, "slow") == ["a2"]
    await at.pass_time(2)
    assert await seen(at, "slow") == ["a2"] and judged(at, "slow").replaced == 1


@here
async def test_expiry_rejection_and_what_is_moved(at: Served) -> None:
    """A value that is gone stands for nothing; what is rejected is a dead letter, older or not."""
    sender = await at.sender("q")
    sender.send(values("a1"))
    sender.send([text(b"a2", ttl=1_000, application_properties={KEY: "a"})])
    await at.rest()
    await at.pass_time(5)
    assert await seen(at) == [] and len(keys_of(judged(at))) == 0
    receiver = await at.receiver("q", 1)
    sender.send(values("a3"))
    await at.rest()
    held = at.take()
    sender.send(values("a4"))
    await at.rest()
    receiver.settle(held, Rejected())
    await at.rest()
    assert await seen(at, "dead") == ["a2", "a3"] and await seen(at) == ["a4"]


@here
async def test_a_copy_of_a_topic_replaces_in_its_queue(at: Served) -> None:
    """And nowhere else."""
    sender = await at.sender("topic")
    sender.send(values("a1", "b1", "a2"))
    await at.rest()
    assert await seen(at) == ["b1", "a2"] and len(await seen(at, "all")) == 3
    assert judged(at).replaced == 1


@here
async def test_a_full_queue_goes_on(at: Served) -> None:
    """What is replaced makes room for the next value."""
    sender = await at.sender("few")
    for number in range(10):
        sender.send(values(f"a{number}"))
        await at.pass_time(10)
    assert at.conditions == ["accepted"] * 10 and await seen(at, "few") == ["a9"]


@here
async def test_what_management_shows(at: Served) -> None:
    """What the queue is, and what was replaced since the start."""
    sender = await at.sender("ring")
    sender.send(values("a1", "a2"))
    await at.rest()
    kinds = {each.name: each for each in at.broker.managed.management._types.values()}
    shown = kinds["queue"].attributes
    queue = at.queue("ring")
    told = [shown[name](queue) for name in ("last_value_key", "ring_messages", "ring_bytes", "replaced")]
    assert told == [KEY, 3, 0, 1]


@pytest.mark.parametrize(
    ("lines", "field"),
    [
        ("max_messages = 3", "message_type"),
        ('message_type = "normal"', "max_messages"),
        (f'message_type = "normal"\nmax_messages = {LAST_VALUES_MAX + 1}', "max_messages"),
        (f'message_type = "normal"\nring_messages = {LAST_VALUES_MAX + 1}', "ring_messages"),
        ('message_type = "normal"\nring_messages = 3\nmax_messages = 3', "ring_messages"),
        ('message_type = "normal"\nmax_messages = 9\nring_bytes = 9\nmax_bytes = 9', "ring_bytes"),
        ('kind = "log"\nretention_ms = 1', "last_value_key"),
        ('kind = "topic"', "last_value_key"),
    ],
)
def test_what_does_not_go_together(lines: str, field: str) -> None:
    """Half messages, more keys than there may be, a bound that is met before the ring's, other kinds."""
    with pytest.raises(ConfigurationError) as caught:
        parse_configuration(f'[[queue]]\npattern = "q"\nlast_value_key = "k"\n{lines}\n')
    assert [problem.field for problem in caught.value.problems] == [f"queue[0].{field}"]


def test_keys_of_different_types_are_different() -> None:
    """Text, octets, numbers, and what is none; long ones are known by their digests."""
    def key(given: Any) -> bytes:
        body = encode_message(application_properties={"other": "x", KEY: given}, body=b"")
        return key_of(Record(0, body), KEY, {KEY.encode(): KEY})

    uuid = UUID(int=7)
    given = ["1", b"1", 1, True, 1.5, uuid, "", "x" * 300, "x" * 301, b"x" * 300]
    assert len({key(each) for each in given}) == len(given)
    assert all(key(each) for each in given) and max(len(key(each)) for each in given) <= KEY_OCTETS
    assert key(None) == b"" and key(Ulong(1)) == key(1) and key(Symbol("1")) == key("1")
    assert key_of(Record(0, encode_message(body=b"")), KEY, {KEY.encode(): KEY}) == b""


def test_what_comes_while_keys_are_read_is_the_newest() -> None:
    """A message whose time has come may be posted before all keys of a start are known."""
    keys = Keys()
    keys.came(7, b"a", [])
    octets = keys.octets
    assert keys.found(2, b"a") and not keys.found(3, b"b") and not keys.found(7, b"a")
    assert keys.overtaken(2) and not keys.overtaken(3) and not keys.overtaken(7)
    assert keys.octets == 3 * octets and len(keys) == 2
    for offset in (2, 3, 7):
        keys.left(offset)
    assert (keys.octets, len(keys)) == (0, 0)


# Random histories


class Client:
    """Sends, takes some, gives back or accepts; `waits` is what a plain list and a dictionary say."""

    def __init__(self, broker: JumpingBroker) -> None:
        self.broker = broker
        self.waits: list[int] = []
        self.held: dict[int, Delivery | None] = {}
        self.newest: dict[str, int] = {}
        self.key_of: dict[int, str] = {}
        self.durable: set[int] = set()
        self.next = 0
        self.begin()

    def begin(self) -> None:
        """One link each way."""
        self.open = session_to(self.broker)
        self.session: PeerSession = self.open.__enter__()
        self.sender = self.session.attach_sender("to", "q")
        self.receiver: PeerReceiver = self.session.attach_receiver("from", "q")
        self.control = Controller(self.session)
        self.held = {}

    def _made(self, chance: Random) -> tuple[int, bytes]:
        number = self.next
        self.next += 1
        key = self.key_of[number] = chance.choice(("", "a", "a", "b", "c", "d" * 100, "e", "f"))
        if chance.random() < 0.7:
            self.durable.add(number)
        named = {KEY: key} if key else {"other": 1}
        header = Header(durable=number in self.durable)
        return number, encode_message(header=header, application_properties=named, body=b"%d" % number)

    def _posted(self, numbers: list[int]) -> None:
        for number in numbers:
            key = self.key_of[number]
            if key:
                self.waits = [each for each in self.waits if self.key_of[each] != key]
                self.newest[key] = number
            self.waits.append(number)

    def post(self, count: int, chance: Random) -> None:
        """So many in one write; all accepted."""
        made = [self._made(chance) for _ in range(count)]
        told = [self.sender.send(payload) for _, payload in made]
        self.session.connection.pump_until(lambda: all(each in self.sender.outcomes for each in told))
        assert {type(self.sender.outcomes[each]) for each in told} == {Accepted}
        self._posted([number for number, _ in made])

    def transact(self, count: int, chance: Random, rolls_back: bool) -> None:
        """So many in a transaction."""
        txn_id = self.control.declare()
        made = [self._made(chance) for _ in range(count)]
        for _, payload in made:
            self.sender.send(payload, state=TransactionalState(txn_id=txn_id))
        settle_down(self.broker, self.session)
        if rolls_back:
            self.control.roll_back(txn_id)
        else:
            self.control.commit(txn_id)
            self._posted([number for number, _ in made])

    def take(self, count: int) -> None:
        """So many, which are held."""
        self.receiver.drain_all(count)
        there = [int(body_of(each)) for each in self.receiver.deliveries]
        assert there == self.waits[:count], f"expected {self.waits[:count]}, got {there}"
        self.held |= dict(zip(there, self.receiver.deliveries, strict=True))
        self.receiver.deliveries.clear()
        del self.waits[:count]

    def decide(self, number: int, outcome: Any) -> None:
        """About one that is held."""
        delivery = self.held.pop(number)
        assert delivery is not None
        self.receiver.settle([delivery], outcome)
        key = self.key_of[number]
        if not isinstance(outcome, Accepted):
            if not key or self.newest.get(key) == number:
                self.waits = sorted([*self.waits, number])
        elif self.newest.get(key) == number:
            del self.newest[key]
        settle_down(self.broker, self.session)

    def restart(self, start: Start, config: Any) -> None:
        """What was held comes back first; what is durable is there again, and the last of its key."""
        back = [each for each in self.held if self.newest.get(self.key_of[each], each) == each]
        back = [each for each in back if not self.key_of[each] or self.key_of[each] in self.newest]
        left = sorted(each for each in [*self.waits, *back] if each in self.durable)
        self.newest = {self.key_of[each]: each for each in left if self.key_of[each]}
        newest = {*self.newest.values()}
        self.waits = [each for each in left if each in newest or not self.key_of[each]]
        self.broker.stop()
        self.broker = start(config, self.broker)
        self.begin()


@pytest.mark.parametrize("seed", seeds(12))
def test_random_histories(start: Start, in_each_store: InEachStore, seed: int) -> None:
    """Posts, transactions, deliveries, outcomes and starts, with a window smaller than the queue: as a plain
    list.
    """
    chance = Random(f"last values {seed}")
    config = in_each_store(LITTLE)
    client = Client(start(config))
    for _ in range(70):
        kind = chance.random()
        if kind < 0.4:
            client.post(chance.choice((1, 1, 2, 5, 20)), chance)
        elif kind < 0.5:
            client.transact(chance.choice((1, 3)), chance, chance.random() < 0.3)
        elif kind < 0.65:
            client.take(chance.randrange(1, 6))
        elif kind < 0.92 and client.held:
            outcome = chance.choice((Accepted(), Released(), Modified(delivery_failed=True)))
            client.decide(chance.choice([*client.held]), outcome)
        elif kind > 0.95 and not config.memory:
            client.restart(start, config)
        settle_down(client.broker, client.session)
        assert counts(client.broker, "q")[0] == len(client.waits) + len(client.held)
    left = [int(body_of(each)) for each in take_everything(client.receiver)]
    assert left == client.waits
