"""The backlog of one queue: its order, its bounded window, and what it wants read from the disk."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from amqp_broker.backlog import Backlog
from amqp_broker.persistence import Record
from tests.support.examples import examples

WINDOW = 8


def record(offset: int, *, durable: bool = True, size: int = 10) -> Record:
    return Record(offset, b"x" * size, durable=durable)


def offsets(records: list[Record]) -> list[int]:
    return [each.offset for each in records]


def test_first_in_first_out() -> None:
    """Messages are taken in the order in which they were added."""
    backlog = Backlog()
    backlog.add([record(0), record(1)])
    backlog.add([record(2)])
    assert offsets(backlog.take(2)) == [0, 1]
    assert offsets(backlog.take(2)) == [2]
    assert backlog.take(1) == []


def test_returned_messages_take_their_old_places() -> None:
    """What comes back is served before everything that stands behind it, in offset order."""
    backlog = Backlog()
    backlog.add([record(offset) for offset in range(6)])
    held = backlog.take(4)
    backlog.put_back(held[3])
    backlog.put_back(held[1])
    assert offsets(backlog.take(3)) == [1, 3, 4]


def test_a_full_window_leaves_durable_messages_on_disk() -> None:
    """Beyond the window only the first offset on disk and a count stay in memory."""
    backlog = Backlog(window_messages=WINDOW)
    backlog.add([record(offset) for offset in range(20)])
    assert backlog.loaded() == WINDOW
    assert (backlog.disk_from, backlog.disk_count, backlog.available()) == (WINDOW, 20 - WINDOW, 20)
    assert not backlog.page_wanted()
    backlog.take(WINDOW // 2 + 1)
    assert backlog.page_wanted()


def test_the_window_is_bounded_in_bytes() -> None:
    """Large messages fill the window before its count does, and the first one always fits."""
    backlog = Backlog(window_messages=100, window_bytes=1_000)
    backlog.add([record(offset, size=400) for offset in range(5)])
    assert backlog.loaded() == 2
    assert backlog.disk_count == 3


def test_non_durable_messages_wait_behind_the_disk() -> None:
    """A message that only memory holds keeps its place among those on disk."""
    backlog = Backlog(window_messages=2)
    backlog.add([record(0), record(1), record(2)])
    backlog.add([record(3, durable=False), record(4)])
    assert backlog.volatile_bytes > 0
    assert offsets(backlog.take(2)) == [0, 1]
    backlog.paged([record(2), record(4)], 5)
    assert offsets(backlog.take(9)) == [2, 3, 4]
    assert backlog.volatile_bytes == 0
    assert backlog.disk_from == -1


def test_messages_that_failed_their_checksums_are_no_longer_counted() -> None:
    """A quarantined message leaves the count of what is available."""
    backlog = Backlog(window_messages=1)
    backlog.add([record(0), record(1), record(2)])
    backlog.take(1)
    backlog.paged([record(2)], 3, lost=1)
    assert backlog.available() == 1


def test_a_page_without_messages_is_not_the_end_of_the_disk() -> None:
    """What was damaged may have been told before; the end is where a page comes no further."""
    backlog = Backlog(window_messages=1)
    backlog.add([record(0), record(1), record(2)])
    backlog.take(1)
    backlog.paged([], 2)
    assert backlog.disk_from == 2
    backlog.paged([record(2)], 3)
    assert (offsets(backlog.take(9)), backlog.disk_from, backlog.available()) == ([2], -1, 0)
    backlog.recovered(3, 9, 2)
    backlog.paged([], 3)
    assert (backlog.disk_from, backlog.available()) == (-1, 0)


class BacklogMachine(RuleBasedStateMachine):
    """A backlog with a small window against a plain sorted list; the disk holds what is durable and not
    gone.
    """

    def __init__(self) -> None:
        super().__init__()
        self.backlog = Backlog(window_messages=WINDOW, window_bytes=300)
        self.model: list[int] = []
        self.disk: dict[int, Record] = {}
        self.held: list[Record] = []
        self.next_offset = 0

    @rule(kinds=st.lists(st.booleans(), min_size=1, max_size=12), size=st.integers(1, 60))
    def make_available(self, kinds: list[bool], size: int) -> None:
        records = []
        for durable in kinds:
            fresh = record(self.next_offset, durable=durable, size=size)
            if durable:
                self.disk[self.next_offset] = fresh
            self.model.append(self.next_offset)
            self.next_offset += 1
            records.append(fresh)
        self.backlog.add(records)

    @rule(count=st.integers(1, 15))
    def take(self, count: int) -> None:
        got = offsets(taken := self.backlog.take(count))
        assert got == self.model[: len(got)]
        assert len(got) == min(count, len(got)) and (got or self.backlog.loaded() == 0)
        del self.model[: len(got)]
        self.held.extend(taken)

    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        if self.held:
            index = data.draw(st.integers(0, len(self.held) - 1))
            back = self.held.pop(index)
            self.model.append(back.offset)
            self.model.sort()
            self.backlog.put_back(back)

    @rule(data=st.data())
    def retire(self, data: st.DataObject) -> None:
        if self.held:
            self.disk.pop(self.held.pop(data.draw(st.integers(0, len(self.held) - 1))).offset, None)

    @rule()
    def page(self) -> None:
        backlog = self.backlog
        if not backlog.page_wanted():
            return
        most, _ = backlog.page_room()
        waiting = sorted(offset for offset in self.disk if offset >= backlog.disk_from)
        page = [self.disk[offset] for offset in waiting[:most]]
        rest = waiting[most:]
        backlog.paged(page, rest[0] if rest else self.next_offset)

    @invariant()
    def counts_agree(self) -> None:
        assert self.backlog.available() == len(self.model)
        assert self.backlog.loaded() - len(self.backlog.peek(0, 10**6)) == 0


TestBacklogAgainstModel = BacklogMachine.TestCase
TestBacklogAgainstModel.settings = examples(60, stateful_step_count=40)
