"""Random verbs about half messages, streams and events: the store on disk against the one in memory."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from amqp_broker.persistence import (
    Advance,
    CreateNode,
    Decide,
    DeleteNode,
    Event,
    EventRange,
    EventsFrom,
    ForgetStream,
    Half,
    HalfBodyOf,
    HalfOf,
    HalvesOf,
    Hold,
    Journal,
    MemoryStore,
    OpenHalves,
    Post,
    Purge,
    Record,
    Reschedule,
    Store,
    Stream,
    StreamOf,
    StreamsOf,
    Unit,
    Verb,
)
from amqp_broker.persistence.halves import COMMITTED, DECIDED, OPEN, PREPARED, ROLLED_BACK
from amqp_broker.persistence.sqlite import SqliteStore, check_directory
from amqp_broker.testing.store_suite.helpers import offsets

GROUPS = ("g", "h")
NAMES = st.tuples(st.sampled_from(GROUPS), st.sampled_from([b"\x01%d" % number for number in range(6)]))
STREAMS = ["a", "b", "ü"]
NUMBERS = st.sampled_from([0, 1, 5, 2**31, 2**32 - 1])
TIMES = st.sampled_from([0, 5, 1_700_000_000_000, 2**41])
BODIES = st.one_of(st.binary(max_size=20), st.sampled_from([b"", b"x" * 3000, b"y" * 100_000]))
ENDS = st.sampled_from([True, True, False])
REFUSED = Post(1_000_000, [Record(0, b"")])


def twin_of(unit: Unit) -> Unit:
    """A copy of a unit for the other store, since a store writes into some verbs."""
    return [own(verb) for verb in unit]


def own(verb: Verb) -> Verb:
    if isinstance(verb, Post):
        return Post(verb.queue_id, [Record(record.offset, record.body) for record in verb.records])
    return Journal(attrs.evolve(verb.event)) if isinstance(verb, Journal) else verb


class HalfModel(RuleBasedStateMachine):
    """`states` and `expiry` say which verbs are no mistakes after the units gathered so far."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.number = 0
        self.model = MemoryStore()
        self.units: list[Unit] = []
        self.states: dict[tuple[str, bytes], str] = {}
        self.expiry: dict[tuple[str, bytes], int] = {}
        self.committed: tuple[dict[tuple[str, bytes], str], dict[tuple[str, bytes], int]] = ({}, {})
        self.posted = 0
        self.queue_ids: list[int] = []

    @initialize(page_size=st.sampled_from([1024, 8192]))
    def start(self, page_size: int) -> None:
        self.page_size = page_size
        self.store = self.open()
        self.add([CreateNode("kept", "queue")], ends=True)
        self.add([CreateNode("gone", "queue")], ends=True)
        self.queue_ids = [node.queue_id for node in self.model.recover().nodes]

    @property
    def directory(self) -> Path:
        return Path(self.folder.name) / str(self.number)

    def open(self) -> SqliteStore:
        return SqliteStore(
            self.directory, ballast_bytes=0, checkpoint_bytes=64 * 1024, page_size_bytes=self.page_size
        )

    def add(self, unit: list[Verb], ends: bool) -> None:
        self.units.append(unit)
        if ends:
            self.group_ends()

    @rule(name=NAMES, at_ms=TIMES, body=BODIES, number=NUMBERS, ends=ENDS)
    def hold(self, name: tuple[str, bytes], at_ms: int, body: bytes, number: int, ends: bool) -> None:
        state = self.states.get(name)
        if state in OPEN or (state in DECIDED and self.expiry[name] > at_ms):
            return
        if state in DECIDED and self.committed[0].get(name) != state:
            return  # decided and expired within one group
        group, half_id = name
        half = Half(
            group, half_id, f"q{number}", PREPARED, bytes(32), at_ms, at_ms + 6, 9, "c", len(body), number
        )
        self.states[name] = PREPARED
        self.add([Hold(half, body)], ends)

    @rule(name=NAMES, state=st.sampled_from(OPEN), attempts=NUMBERS, due_at_ms=TIMES, ends=ENDS)
    def reschedule(
        self, name: tuple[str, bytes], state: str, attempts: int, due_at_ms: int, ends: bool
    ) -> None:
        if self.states.get(name) in OPEN:
            self.states[name] = state
            self.add([Reschedule(*name, state, attempts, due_at_ms, due_at_ms + 5)], ends)

    # Longer than a clock may be ahead after a crash: for less, one store may forget it before the other.
    @rule(name=NAMES, at_ms=TIMES, keep_ms=st.sampled_from([10**9, 10**10]), post=st.booleans(), ends=ENDS)
    def decide(self, name: tuple[str, bytes], at_ms: int, keep_ms: int, post: bool, ends: bool) -> None:
        if self.states.get(name) not in OPEN:
            return
        self.states[name] = COMMITTED if post else ROLLED_BACK
        self.expiry[name] = at_ms + keep_ms
        unit: list[Verb] = [Decide(*name, self.states[name], at_ms, "check", "wh\u00ff", at_ms + keep_ms)]
        if post:
            unit.append(Post(self.queue_ids[0], [Record(self.posted, b"body")]))
            self.posted += 1
        self.add(unit, ends)

    @rule(
        which=st.integers(0, 1),
        name=st.sampled_from(STREAMS),
        number=NUMBERS,
        forget=st.booleans(),
        ends=ENDS,
    )
    def advance(self, which: int, name: str, number: int, forget: bool, ends: bool) -> None:
        queue_id = self.queue_ids[which]
        if forget:
            self.add([ForgetStream(queue_id, name)], ends)
        else:
            former = tuple((2**64 - 1 - n, number) for n in range(number % 9))
            self.add([Advance(Stream(queue_id, name, "o", 2**64 - 1 - number, number, former, 1, 2))], ends)

    @rule(at_ms=TIMES, count=st.integers(1, 3), ends=ENDS)
    def journal(self, at_ms: int, count: int, ends: bool) -> None:
        self.add([Journal(Event("k", at_ms, {"n": n, "s": "\n"})) for n in range(count)], ends)

    @rule(at_ms=TIMES, count=st.sampled_from([1, 2, 5, 400]), columns=st.booleans(), ends=ENDS)
    def journal_run(self, at_ms: int, count: int, columns: bool, ends: bool) -> None:
        texts: list[str | int | None] = [None if n % 3 else f"{n} \u00fc" for n in range(count)]
        own = {"t": texts, "n": [*range(count)]} if columns else {}
        self.add([Journal(Event("run", at_ms, {"q": 1}, 0, count, own))], ends)

    @rule(first=st.integers(-1, 1000), count=st.integers(0, 20))
    def read_events(self, first: int, count: int) -> None:
        assert self.store.ask(EventsFrom(first, count)) == self.model.ask(EventsFrom(first, count))

    @rule(ends=ENDS)
    def refused(self, ends: bool) -> None:
        """Add a unit that cannot happen, with everything that it would have done."""
        half = Half("refused", b"id", "q", PREPARED, b"", 1, 2, 3, "c", 1)
        position = Advance(Stream(self.queue_ids[0], "refused", "o", 1, 1))
        self.add([Hold(half, b"body"), position, Journal(Event("refused", 1, {})), REFUSED], ends)

    @rule(odds=st.integers(0, 9))
    def delete(self, odds: int) -> None:
        """Delete or purge the second queue, with its streams."""
        verb = DeleteNode if odds == 0 else Purge
        self.add([verb(self.queue_ids[1])], ends=True)

    @precondition(lambda self: len(self.units) > 1)
    @rule()
    def join_units(self) -> None:
        if all(REFUSED not in unit for unit in self.units[-2:]):
            two, one = self.units.pop(), self.units.pop()
            self.units.append([*one, *two])

    def apply_both(self) -> None:
        twin = [twin_of(unit) for unit in self.units]
        answers, expected = self.store.apply(self.units), self.model.apply(twin)
        assert [type(answer) for answer in answers] == [type(answer) for answer in expected]
        assert numbers_of(self.units) == numbers_of(twin)

    @rule()
    def group_ends(self) -> None:
        self.apply_both()
        self.store.commit()
        self.model.commit()
        self.units = []
        self.committed = (dict(self.states), dict(self.expiry))

    def group_is_lost(self) -> None:
        self.units = []
        self.states, self.expiry = dict(self.committed[0]), dict(self.committed[1])
        self.posted = self.model.recover().nodes[0].next_offset

    @precondition(lambda self: self.units)
    @rule()
    def group_is_abandoned(self) -> None:
        self.apply_both()
        self.store.abandon()
        self.model.abandon()
        self.group_is_lost()

    @rule()
    def idle(self) -> None:
        self.store.idle(0.0)
        self.model.idle(0.0)

    @rule()
    def restart(self) -> None:
        self.store.close()
        assert check_directory(self.directory) == []
        self.store = self.open()

    @rule()
    def crash(self) -> None:
        """Go on with a copy of the open files, in which a group was never committed."""
        self.apply_both()
        before = self.directory
        self.number += 1
        shutil.copytree(before, self.directory)
        old, self.store = self.store, self.open()
        self.model.abandon()
        self.group_is_lost()
        old.close()
        shutil.rmtree(before)

    @rule(
        group=st.sampled_from(GROUPS), state=st.sampled_from([None, *OPEN, *DECIDED]), count=st.integers(1, 4)
    )
    def list_in_pages(self, group: str, state: str | None, count: int) -> None:
        after = b""
        while True:
            page = self.store.ask(HalvesOf(group, state, after, count))
            assert page == self.model.ask(HalvesOf(group, state, after, count))
            if not page:
                return
            after = page[-1].half_id

    @invariant()
    def both_tell_the_same(self) -> None:
        if self.queue_ids:
            assert answers_of(self.store, self.queue_ids) == answers_of(self.model, self.queue_ids)
            assert offsets(self.store, self.queue_ids[0]) == offsets(self.model, self.queue_ids[0])

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            assert check_directory(self.directory) == []
        self.folder.cleanup()


def numbers_of(units: list[Unit]) -> list[int]:
    """The numbers of events."""
    return [verb.event.seq for unit in units for verb in unit if isinstance(verb, Journal)]


def answers_of(store: Store, queue_ids: list[int]) -> list[object]:
    """All answers of a store."""
    answers: list[object] = [store.ask(OpenHalves()), store.ask(EventsFrom(0, 1000)), store.ask(EventRange())]
    for group in GROUPS:
        for number in range(6):
            half_id = b"\x01%d" % number
            answers += [store.ask(HalfOf(group, half_id)), store.ask(HalfBodyOf(group, half_id))]
        answers.append(store.ask(HalvesOf(group, None, b"", 100)))
    for queue_id in queue_ids:
        answers.append(store.ask(StreamsOf(queue_id, "", 10)))
        answers += [store.ask(StreamOf(queue_id, name)) for name in (*STREAMS, "refused")]
    return answers


TestHalfModel = HalfModel.TestCase
TestHalfModel.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
