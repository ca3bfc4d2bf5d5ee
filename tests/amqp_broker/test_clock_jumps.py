"""A clock is a witness, not a judge: what is kept for an hour is kept for an hour that passed, whatever the
clock on the wall does meanwhile, and however often the broker is started again.

Two clocks: the test moves that of the wall and the one that only goes on, each for itself.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest

from amqp_broker.broker import Broker
from amqp_broker.configuration import BrokerLimits, HalfGroupConfig, QueuePolicy
from amqp_broker.frames import Accepted, Rejected, Timestamp
from amqp_broker.persistence import JOURNAL_ID, MoveCursor
from amqp_broker.persistence.questions import CursorsOf, DischargedAt, EventRange, Question, RetainedBy
from amqp_broker.testing.peer import PeerSession
from tests.support.broker_clients import at_rest, counts, receive, send, session_to
from tests.support.controllers import Controller
from tests.support.half_sets import SetClient, half_sets, row
from tests.support.halves import checker, half, putter, resolution, resolver, tell
from tests.support.jumping_broker import JumpingBroker, on_disk
from tests.support.retained import event_of, read, time_of

HOUR_S = 3_600
HOUR_MS = HOUR_S * 1_000
DAY_S = 24 * HOUR_S
SIZES = {"a minute": 60, "a day": DAY_S, "ten years": 10 * 365 * DAY_S}
JUMPS = {
    f"{name} {way}": sign * seconds
    for name, seconds in SIZES.items()
    for way, sign in (("on", 1), ("back", -1))
}

LIMITS = BrokerLimits(idle_time_out_ms=2**32 - 1, event_keep_ms=HOUR_MS, transaction_timeout_ms=HOUR_MS)
POLICIES = (
    QueuePolicy(pattern="log", kind="log", retention_ms=HOUR_MS),
    QueuePolicy(pattern="retaining", retention_ms=HOUR_MS),
    QueuePolicy(pattern="told", events=True),
)
GROUPS = (
    HalfGroupConfig(name="g", first_check_ms=HOUR_MS // 2, max_age_ms=HOUR_MS),
    HalfGroupConfig(name="asked", first_check_ms=HOUR_MS),
    HalfGroupConfig(name="decided", tombstone_ms=HOUR_MS),
    HalfGroupConfig(name="locked", first_check_ms=1, lock_ms=HOUR_MS),
)


class Life:
    """Brokers on one data directory, one after the other."""

    def __init__(self, folder: Path) -> None:
        self._stack = ExitStack()
        self.config = on_disk(folder, limits=LIMITS, queue_policies=POLICIES, half_groups=GROUPS)
        self.broker = JumpingBroker(self.config)
        self.session = self._connect()

    def _connect(self) -> PeerSession:
        return self._stack.enter_context(session_to(self.broker))

    def restart(self, set_by_s: int) -> None:
        """Stop and start, with a clock on the wall that was set meanwhile."""
        self.close()
        self.broker.set_wall(set_by_s)
        self.broker = JumpingBroker(self.config, self.broker)
        self.session = self._connect()

    def restart_on(self, data_dir: Path, set_by_s: int) -> None:
        """The same on other files."""
        self.config = attrs.evolve(self.config, data_dir=str(data_dir))
        self.restart(set_by_s)

    def close(self) -> None:
        """The end, of this broker at least."""
        self._stack.close()
        self.broker.stop()

    def pass_time(self, seconds: float) -> None:
        """So much time, in some steps, and what it leads to."""
        for _ in range(4):
            self.broker.jump(seconds / 4)
            self.look_around()

    def look_around(self) -> None:
        """Something is stored, and then nothing for a while: the store does its own."""
        link = self.session.attach_sender("nudge", "told")
        send(link, b"nudge", durable=True)
        link.detach()
        at_rest(self.broker)
        self.broker.call(lambda running: running.writer.wake())
        at_rest(self.broker)

    def look(self, question: Callable[[Broker], Any]) -> Any:
        """What the broker has."""
        return self.broker.call(question)

    def ask(self, question: Question[Any]) -> Any:
        """What its store has."""

        async def there(running: Broker) -> Any:
            return await running.writer.ask(question)

        return self.broker.call(there)

    def sent(self, address: str, *bodies: bytes, ttl: int | None = None) -> None:
        """Messages that are stored."""
        link = self.session.attach_sender(f"to {address}", address)
        send(link, *bodies, durable=True, ttl=ttl)
        link.detach()


class Kind:
    """Something that the broker keeps, or waits with, for an hour. `outlives` restarts; `ends` after it."""

    outlives = True
    ends = True

    def begin(self, life: Life) -> None:
        """The hour begins."""

    def there(self, life: Life) -> bool:
        """Whether it is as it was."""
        raise AssertionError("a kind says what is there")


class Ttl(Kind):
    """A message whose time to live is an hour."""

    def begin(self, life: Life) -> None:
        life.sent("q", b"short", ttl=HOUR_MS)

    def there(self, life: Life) -> bool:
        return counts(life.broker, "q")[0] == 1


class Retention(Kind):
    """Messages of a log that keeps them for an hour."""

    address = "log"

    def begin(self, life: Life) -> None:
        life.sent(self.address, b"1", b"2")

    def there(self, life: Life) -> bool:
        queue_id = life.look(lambda running: running.nodes.queues._queues[self.address].queue_id)
        return bool(life.ask(RetainedBy(queue_id)).first_offset == 0)


class ConsumedRetention(Retention):
    """Messages of a queue that keeps them for an hour, consumed."""

    address = "retaining"

    def begin(self, life: Life) -> None:
        super().begin(life)
        consumer = life.session.attach_receiver("consumer", self.address, credit=2)
        consumer.settle(receive(consumer, 2), Accepted())
        consumer.detach()


class Events(Kind):
    """Entries of the journal."""

    def begin(self, life: Life) -> None:
        life.sent("told", b"event")

    def there(self, life: Life) -> bool:
        return bool(life.ask(EventRange())[0] == 1)


class HalfState(Kind):
    """A half message with an hour to its deadline, of which nobody asks."""

    group = "g"

    def begin(self, life: Life) -> None:
        tell(putter(life.session, self.group), half(self.group))

    def there(self, life: Life) -> bool:
        return bool(self.state(life).state == "prepared")

    def state(self, life: Life) -> Any:
        """What an administrator sees."""
        async def look(running: Broker) -> Any:
            (found,) = await running.half_messages.messages(self.group)
            return found

        return life.look(look)


class Check(HalfState):
    """A half message that is asked about in an hour."""

    group = "asked"

    def there(self, life: Life) -> bool:
        return bool(life.look(lambda running: running.half_messages.figures("asked").due_unasked) == 0)


class Lock(HalfState):
    """A check that waits for its answer: an hour is its."""

    group = "locked"
    outlives = False  # its link goes

    def begin(self, life: Life) -> None:
        super().begin(life)
        link = checker(life.session, self.group)
        life.broker.jump(1)
        receive(link, 1)

    def there(self, life: Life) -> bool:
        return bool(life.look(lambda running: running.half_messages.figures("locked").asks) == 1)


class Tombstone(Kind):
    """What a group says of a half message that was rolled back."""

    def begin(self, life: Life) -> None:
        tell(putter(life.session, "decided"), half("x"))
        self._resolve(life, "rollback")

    def _resolve(self, life: Life, what: str) -> Any:
        link = resolver(life.session, "decided")
        outcome = tell(link, resolution("x", what))
        link.detach()
        return outcome

    def there(self, life: Life) -> bool:
        outcome = self._resolve(life, "commit")
        assert isinstance(outcome, Rejected) and outcome.error is not None
        return outcome.error.condition == "half:conflict"


class StagedSets(Kind):
    """A set that is not decided."""

    def begin(self, life: Life) -> None:
        SetClient(life.session).staged("s1", row(b"1")).detach()

    def there(self, life: Life) -> bool:
        return [each.set_id for each in half_sets(life.broker)] == ["s1"]


class LiveTransaction(Kind):
    """A transaction that was declared."""

    outlives = False

    def begin(self, life: Life) -> None:
        Controller(life.session).declare()

    def there(self, life: Life) -> bool:
        return len(life.look(lambda running: running.transactions())) == 1


class Outcome(Kind):
    """That a transaction was committed: kept for a week, not only for an hour."""

    ends = False
    txn_id = b""

    def begin(self, life: Life) -> None:
        controller = Controller(life.session, "outcomes")
        self.txn_id = controller.declare()
        controller.commit(self.txn_id)

    def there(self, life: Life) -> bool:
        return life.ask(DischargedAt(self.txn_id)) is not None


class CursorKept(Kind):
    """A durable cursor, which no time ends."""

    ends = False

    def begin(self, life: Life) -> None:
        life.look(lambda running: running.nodes.store([MoveCursor("c", JOURNAL_ID, 2, 0)]))

    def there(self, life: Life) -> bool:
        return [cursor.offset for cursor in life.ask(CursorsOf("c"))] == [2]


KINDS: tuple[type[Kind], ...] = (
    Ttl, Retention, ConsumedRetention, Events, HalfState, Check, Lock, Tombstone, StagedSets, LiveTransaction,
    Outcome, CursorKept,
)  # fmt: skip


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    """A broker on disk that can be started again."""
    found = Life(tmp_path)
    try:
        yield found
    finally:
        found.close()


def begun(life: Life, *kinds: type[Kind]) -> list[Kind]:
    """One of each kind."""
    found = [kind() for kind in kinds]
    for kind in found:
        kind.begin(life)
    life.look_around()
    assert seen(life, found) == {type(kind): True for kind in found}
    return found


def seen(life: Life, kinds: list[Kind]) -> dict[type[Kind], bool]:
    """What is there."""
    return {type(kind): kind.there(life) for kind in kinds}


@pytest.mark.parametrize("where", ["running", "restarted"])
@pytest.mark.parametrize("jump", JUMPS)
def test_no_jump_of_the_clock_makes_anything_early_or_late(life: Life, jump: str, where: str) -> None:
    """Everything is there until an hour has passed, and little longer, wherever the clock on the wall is."""
    restarted = where == "restarted"
    kinds = begun(life, *[kind for kind in KINDS if kind.outlives or not restarted])
    life.pass_time(HOUR_S / 4)
    if restarted:
        life.restart(JUMPS[jump])
    else:
        life.broker.set_wall(JUMPS[jump])
    everything = {type(kind): True for kind in kinds}
    life.look_around()
    assert seen(life, kinds) == everything, "at once"
    life.pass_time(HOUR_S / 2)
    assert seen(life, kinds) == everything, "before its time"
    life.pass_time(HOUR_S / 4)
    life.pass_time(HOUR_S / 8)
    assert seen(life, kinds) == {type(kind): not kind.ends for kind in kinds}, "after its time"


def test_people_see_the_times_of_the_clock_on_the_wall(life: Life) -> None:
    """Of messages and events, each as that clock stood when they came; and they are found by it."""
    began_ms = life.broker.now_ms()
    times: list[int] = []
    for set_by_s in (0, DAY_S, -2 * DAY_S):
        life.broker.set_wall(set_by_s)
        life.broker.jump(60)
        times.append(life.broker.now_ms())
        life.sent("log", b"message")
        life.sent("told", b"event")
    life.restart(3 * DAY_S)
    life.broker.jump(60)
    times.append(life.broker.now_ms())
    life.sent("log", b"message")
    life.sent("told", b"event")
    minute_ms, day_ms = 60_000, DAY_S * 1_000
    assert [at_ms - began_ms for at_ms in times] == [
        minute_ms, day_ms + 2 * minute_ms, -day_ms + 3 * minute_ms, 2 * day_ms + 4 * minute_ms
    ]  # fmt: skip
    session = life.session
    assert [time_of(each) for each in receive(read(session, "log", "first"), 4)] == times
    events = receive(read(session, "$events", "first"), 4)
    assert [event_of(each)["time"] for each in events] == times
    for number, at_ms in ((0, times[0]), (1, times[0] + 1), (1, times[1]), (2, times[1] + 1), (3, times[3])):
        for address in ("log", "$events"):
            found = receive(read(session, address, Timestamp(at_ms)), 1)[0]
            assert time_of(found) == times[number], (address, number)


def test_a_crash_makes_nothing_early(life: Life, tmp_path: Path) -> None:
    """What the files say at any moment is enough: they are copied while the broker runs, and opened later."""
    kinds = begun(life, *[kind for kind in KINDS if kind.outlives])
    life.pass_time(HOUR_S / 2)
    copied = tmp_path / "copied"
    shutil.copytree(tmp_path / "data", copied)
    life.restart_on(copied, DAY_S)
    life.pass_time(HOUR_S / 4)
    assert seen(life, kinds) == {type(kind): True for kind in kinds}
    life.pass_time(HOUR_S / 4)
    life.pass_time(HOUR_S / 8)
    assert seen(life, kinds) == {type(kind): not kind.ends for kind in kinds}
