"""Random verbs about half messages, streams and events: the store on disk against the one in memory."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from amqp_broker.persistence import (
    Advance,
    CreateNode,
    Decide,
    DeleteNode,
    Event,
    ForgetStream,
    Half,
    Hold,
    Journal,
    MemoryStore,
    Post,
    Purge,
    Record,
    Reschedule,
    Stream,
    Verb,
)
from amqp_broker.persistence.halves import COMMITTED, DECIDED, OPEN, PREPARED, ROLLED_BACK
from amqp_broker.persistence.questions import EventsFrom, HalvesOf, SomeHalves, StreamOf
from amqp_broker.persistence.sqlite import SqliteStore
from tests.model.two_stores import REFUSED, TwoStores, settings_of
from tests.promises.facts import facts_of

GROUPS = ("g", "h")
HALF_IDS = [b"\x01%d" % number for number in range(6)]
NAMES = st.tuples(st.sampled_from(GROUPS), st.sampled_from(HALF_IDS))
STREAMS = ["a", "b", "ü"]
NUMBERS = st.sampled_from([0, 1, 5, 2**31, 2**32 - 1])
TIMES = st.sampled_from([0, 5, 1_700_000_000_000, 2**41])
BODIES = st.one_of(st.binary(max_size=20), st.sampled_from([b"", b"x" * 3000, b"y" * 100_000]))
ENDS = st.sampled_from([True, True, False])
PAGE = 500  # below that of all facts, so that each thing is asked for by its name, too


class HalfModel(TwoStores):
    """`states` and `expiry` say which verbs are no mistakes after the units gathered so far."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.states: dict[tuple[str, bytes], str] = {}
        self.expiry: dict[tuple[str, bytes], int] = {}
        self.committed: tuple[dict[tuple[str, bytes], str], dict[tuple[str, bytes], int]] = ({}, {})
        self.posted = 0
        self.queue_ids: list[int] = []

    @initialize(page_size=st.sampled_from([1024, 8192]))
    def start(self, page_size: int) -> None:
        self.page_size = page_size
        self.store = self.open()
        self.add([CreateNode("kept", "queue")])
        self.add([CreateNode("gone", "queue")])
        self.queue_ids = [node.queue_id for node in self.model.recover().nodes]

    def open(self) -> SqliteStore:
        return SqliteStore(
            self.directory, ballast_bytes=0, checkpoint_bytes=64 * 1024, page_size_bytes=self.page_size
        )

    def group_is_over(self, *, lost: bool) -> None:
        super().group_is_over(lost=lost)
        if lost:
            self.states, self.expiry = dict(self.committed[0]), dict(self.committed[1])
            self.posted = self.model.recover().nodes[0].next_offset
        self.committed = (dict(self.states), dict(self.expiry))

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
        self.add([verb(self.queue_ids[1])])

    @rule()
    def idle(self) -> None:
        self.store.idle(0.0)
        self.model.idle(0.0)

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
            assert facts_of(self.store, PAGE) == facts_of(self.model, PAGE)
            for group in GROUPS:
                some = SomeHalves(group, HALF_IDS)
                assert self.store.ask(some) == self.model.ask(some)
            for queue_id in self.queue_ids:
                assert self.store.ask(StreamOf(queue_id, "refused")) is None


TestHalfModel = HalfModel.TestCase
TestHalfModel.settings = settings_of(40)
