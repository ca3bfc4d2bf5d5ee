"""Random operations: the store on disk against the one in memory, with restarts and crashes as rules."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from amqp_broker.persistence import (
    Configure,
    CreateNode,
    DeleteNode,
    Discharged,
    ForgetCursor,
    MemoryStore,
    Move,
    MoveCursor,
    Post,
    Purge,
    Record,
    Retain,
    Retire,
    Return,
    Unit,
)
from amqp_broker.persistence.questions import (
    CursorNames,
    CursorsOf,
    DischargedAt,
    OffsetAt,
    PageOf,
    RetainedBy,
)
from amqp_broker.persistence.sqlite import SqliteStore
from amqp_broker.testing.store_suite.helpers import do_idle_work, fields, read_all, read_all_retained
from tests.model.two_stores import ENDS, TwoStores, settings_of

NAMES = st.sampled_from(["a", "b", "c"])
CHOICE = st.integers(0, 1000)
SMALL = st.integers(0, 12)
KEEP_COUNT = 40  # outcomes of transactions
PART_MS = 7 * 86_400_000 // 16  # of the time for keeping: so far apart are two generations of outcomes
# Milliseconds, and bytes; 0 for both ends retention.
POLICIES = st.sampled_from([(0, 0), (3, 0), (1000, 0), (0, 5000), (1000, 20_000), (1 << 40, 0), (1 << 40, 0)])


def ends_a_transaction(unit: Unit) -> bool:
    return bool(unit) and isinstance(unit[-1], Discharged)


class StoreModel(TwoStores):
    """Messages, transactions, retention and cursors."""

    def __init__(self) -> None:
        super().__init__(MemoryStore(discharge_keep_count=KEEP_COUNT))
        self.transactions = 0
        self.at_ms = 5
        self.moved_into: set[int] = set()
        self.next_offsets: dict[int, int] = {}

    @initialize(cache=st.sampled_from([1, 300, 100_000]), policy=POLICIES)
    def start(self, cache: int, policy: tuple[int, int]) -> None:
        self.cache = cache
        self.store = self.open()
        self.add([CreateNode("a", "queue")])
        self.add([Retain(1, *policy)])

    def open(self) -> SqliteStore:
        return SqliteStore(
            self.directory,
            ballast_bytes=0,
            checkpoint_bytes=64 * 1024,
            run_cache_messages=self.cache,
            discharge_keep_count=KEEP_COUNT,
        )

    def group_is_over(self, *, lost: bool) -> None:
        super().group_is_over(lost=lost)
        self.next_offsets = {}

    def queue(self, choice: int) -> int:
        """A queue, which mostly exists."""
        ids = [node.queue_id for node in self.model.recover().nodes]
        return ids[choice % len(ids)] if ids and choice % 13 else choice

    def next_offset(self, queue_id: int) -> int:
        known = [node.next_offset for node in self.model.recover().nodes if node.queue_id == queue_id]
        return max(self.next_offsets.get(queue_id, 0), *known, 0)

    def offset_in(self, queue_id: int, choice: int) -> int:
        return choice % (self.next_offset(queue_id) + 2)

    @rule(name=NAMES, limit=CHOICE, policy=POLICIES, ends=ENDS)
    def create(self, name: str, limit: int, policy: tuple[int, int], ends: bool) -> None:
        """Make a node, perhaps with its retention."""
        self.add([CreateNode(name, "queue", {"limit": limit}, 0, *policy)], ends)

    @rule(choice=CHOICE, odds=st.integers(0, 4), ends=ENDS)
    def delete(self, choice: int, odds: int, ends: bool) -> None:
        if odds == 0:
            self.add([DeleteNode(self.queue(choice))], ends)

    @rule(choice=CHOICE, limit=CHOICE, ends=ENDS)
    def configure(self, choice: int, limit: int, ends: bool) -> None:
        self.add([Configure(self.queue(choice), {"limit": limit})], ends)

    @rule(
        choices=st.lists(CHOICE, min_size=1, max_size=3),
        to=CHOICE,
        gap=st.sampled_from([0, 0, 5]),
        archives=st.booleans(),
        ends=ENDS,
    )
    def move(self, choices: list[int], to: int, gap: int, archives: bool, ends: bool) -> None:
        """Move some queues to another one in one unit, and perhaps retire all there, as a log does."""
        self.group_ends()  # the time of what is posted and moved in one group is nobody's to tell
        target = self.queue(to)
        retained = self.model.ask(RetainedBy(target))
        if retained is not None and retained.keep_bytes:
            return  # the stores differ in how much of what was moved they drop at once
        self.moved_into.add(target)
        unit: Unit = []
        for queue_id in {self.queue(choice): None for choice in choices}:
            if queue_id != target:
                first = self.next_offset(target) + gap
                unit.append(Move(queue_id, target, first, self.at_ms))
                self.next_offsets[target] = first + self.next_offset(queue_id)
        if archives and unit:
            first_move = unit[0]
            assert isinstance(first_move, Move)
            unit.append(Retire(target, first_move.first_offset, self.next_offset(target)))
        self.add(unit, ends or retained is not None)

    @rule(
        choice=CHOICE,
        count=st.one_of(st.integers(1, 5), st.integers(1, 1200)),
        size=st.sampled_from([0, 1, 20, 400]),
        gap=st.sampled_from([0, 0, 0, 1, 7]),
        hole=st.booleans(),
        extras=st.integers(0, 63),
        ends=ENDS,
    )
    def post(self, choice: int, count: int, size: int, gap: int, hole: bool, extras: int, ends: bool) -> None:
        """Post messages, and perhaps retire them in the same unit, as a log does."""
        queue_id = self.queue(choice)
        first = self.next_offset(queue_id) + gap
        records = []
        for index in range(count):
            offset = first + index + (1 if hole and index > count // 2 else 0)
            record = Record(offset, bytes([index % 251]) * size)
            record.enqueued_at_ms = self.at_ms + (index if extras & 1 else 0)
            record.priority = index % 10 if extras & 2 else 4
            record.message_format = index if extras & 4 else 0
            record.expires_at_ms = index * 1000 if extras & 8 else 0
            if extras & 16 and index % 7 == 0:
                record.delivery_count = index + 1
                record.annotations = b"x" * index
            records.append(record)
        self.next_offsets[queue_id] = records[-1].offset + 1
        unit: Unit = [Post(queue_id, records)]
        if extras & 32:
            unit.append(Retire(queue_id, first, records[-1].offset))
        self.add(unit, ends)

    @rule(forward=st.sampled_from([-50, 1, 1, 2, 500]))
    def time_passes(self, forward: int) -> None:
        """Let the clock on the wall go on, or back."""
        self.at_ms = max(self.at_ms + forward, 0)

    @rule(choice=CHOICE, counts=st.lists(st.integers(1, 3), min_size=2, max_size=8))
    def post_runs(self, choice: int, counts: list[int]) -> None:
        """Post in small groups, one run each."""
        for count in counts:
            queue_id = self.queue(choice)
            first = self.next_offset(queue_id)
            records = [Record(first + i, b"body", enqueued_at_ms=self.at_ms + i) for i in range(count)]
            self.add([Post(queue_id, records)])

    @rule(choice=CHOICE, at=st.integers(0, 100_000), length=st.one_of(SMALL, st.integers(0, 3000)), ends=ENDS)
    def retire(self, choice: int, at: int, length: int, ends: bool) -> None:
        queue_id = self.queue(choice)
        first = self.offset_in(queue_id, at)
        self.add([Retire(queue_id, first, first + length)], ends)

    @rule(choice=CHOICE, at=st.integers(0, 100_000), step=st.integers(1, 9), length=SMALL, ends=ENDS)
    def retire_scattered(self, choice: int, at: int, step: int, length: int, ends: bool) -> None:
        """Retire ranges with holes between them in one unit, from near the end or from anywhere."""
        queue_id = self.queue(choice)
        first = max(0, self.next_offset(queue_id) - 60) if at % 2 else self.offset_in(queue_id, at)
        starts = range(first, first + 60, step + length)
        unit: Unit = [Retire(queue_id, start, start + length - 1) for start in starts if length]
        self.add(unit, ends)

    @rule(
        choice=CHOICE,
        at=st.integers(0, 100_000),
        many=SMALL,
        annotations=st.none() | st.binary(max_size=5),
        ends=ENDS,
    )
    def give_back(self, choice: int, at: int, many: int, annotations: bytes | None, ends: bool) -> None:
        queue_id = self.queue(choice)
        first = self.offset_in(queue_id, at)
        unit: Unit = [
            Return(queue_id, first + step * 3, step, annotations, step % 2 == 0) for step in range(many)
        ]
        self.add(unit, ends)

    @rule(choice=CHOICE, odds=st.integers(0, 3), ends=ENDS)
    def purge(self, choice: int, odds: int, ends: bool) -> None:
        if odds == 0:
            self.add([Purge(self.queue(choice))], ends)

    @rule(choice=CHOICE, policy=POLICIES, ends=ENDS)
    def retain(self, choice: int, policy: tuple[int, int], ends: bool) -> None:
        queue_id = self.queue(choice)
        self.add([Retain(queue_id, policy[0], 0 if queue_id in self.moved_into else policy[1])], ends)

    @rule(choice=CHOICE, name=NAMES, offset=SMALL, forgets=st.integers(0, 5), ends=ENDS)
    def cursor(self, choice: int, name: str, offset: int, forgets: int, ends: bool) -> None:
        """Move a cursor in a node or in the journal, or forget it, or both in either order in one unit."""
        move = MoveCursor(name, 0 if choice % 11 == 0 else self.queue(choice), offset, choice)
        forget = ForgetCursor(name)
        units: list[Unit] = [[forget], [move, forget], [forget, move], [move]]
        unit = units[min(forgets, 3)]
        self.add(unit, ends)

    @rule(
        at_ms=st.sampled_from([0, 1, PART_MS, PART_MS + 1, -5 * PART_MS]),
        alone=st.integers(0, 12),
        ends=ENDS,
    )
    def discharge(self, at_ms: int, alone: int, ends: bool) -> None:
        """Make the last unit a transaction, beside some that do nothing else."""
        unit: Unit = []
        if self.units and not ends_a_transaction(self.units[-1]):
            unit = self.units.pop()
        for _ in range(alone + 1):
            verb = Discharged(b"%d" % self.transactions, at_ms + self.transactions)
            self.transactions += 1
            self.add([*unit, verb], ends=False)
            unit = []
        if ends:
            self.group_ends()

    @rule()
    def ask_for_outcomes(self) -> None:
        for number in range(self.transactions + 1):
            name = b"%d" % number
            assert self.store.ask(DischargedAt(name)) == self.model.ask(DischargedAt(name))

    @rule()
    def idle(self) -> None:
        """Let both stores idle until nothing waits. Then both have dropped the same retained messages."""
        for _ in range(100):
            if not self.store.idle(0.0):
                break
        for _ in range(100):
            if not self.model.idle(0.0):
                break
        self.compare_retained()

    def compare_retained(self) -> None:
        for node in self.model.recover().nodes:
            queue_id = node.queue_id
            assert self.store.ask(RetainedBy(queue_id)) == self.model.ask(RetainedBy(queue_id))
            for at_ms in (0, 6, self.at_ms - 1, self.at_ms, self.at_ms + 5, 1 << 50):
                assert self.store.ask(OffsetAt(queue_id, at_ms)) == self.model.ask(OffsetAt(queue_id, at_ms))
        assert self.store.ask(CursorNames("", 2)) == self.model.ask(CursorNames("", 2))
        for name in ("a", "b", "c"):
            assert self.store.ask(CursorsOf(name)) == self.model.ask(CursorsOf(name))

    @rule(
        choice=CHOICE,
        at=st.integers(0, 100_000),
        page=st.integers(1, 500),
        size=st.sampled_from([1, 5000, 1 << 30]),
    )
    def read_retained(self, choice: int, at: int, page: int, size: int) -> None:
        """Read all retained messages from any offset on, in pages, with each hole."""
        self.compare_retained()
        queue_id = self.queue(choice)
        if any(node.queue_id == queue_id for node in self.model.recover().nodes):
            offset = self.offset_in(queue_id, at) if at % 3 else 0
            found = read_all_retained(self.store, queue_id, offset, page, size)
            assert found == read_all_retained(self.model, queue_id, offset, 1000, 1 << 30)

    @rule(choice=CHOICE, page=st.integers(1, 50), max_bytes=st.sampled_from([1, 300, 10_000, 1 << 30]))
    def read_in_pages(self, choice: int, page: int, max_bytes: int) -> None:
        nodes = self.model.recover().nodes
        if nodes:
            queue_id = nodes[choice % len(nodes)].queue_id
            found = read_all(self.store, queue_id, page, max_bytes)
            assert list(map(fields, found)) == list(map(fields, read_all(self.model, queue_id)))

    @rule(choice=CHOICE, at=st.integers(0, 100_000))
    def read_from(self, choice: int, at: int) -> None:
        nodes = self.model.recover().nodes
        if nodes:
            queue_id = nodes[choice % len(nodes)].queue_id
            offset = self.offset_in(queue_id, at)
            found = self.store.ask(PageOf(queue_id, offset, 5, 1 << 30)).records
            expected = self.model.ask(PageOf(queue_id, offset, 5, 1 << 30)).records[: len(found)]
            assert list(map(fields, found)) == list(map(fields, expected))
            assert bool(found) == bool(expected)

    @invariant()
    def both_recover_the_same(self) -> None:
        if hasattr(self, "store"):
            assert self.store.recover() == self.model.recover()

    def teardown(self) -> None:
        if hasattr(self, "store"):
            while self.store.idle(0.0):
                self.model.idle(0.0)
            do_idle_work(self.model, 0.0)
            self.ask_for_outcomes()
        super().teardown()


TestStoreModel = StoreModel.TestCase
TestStoreModel.settings = settings_of(50)
