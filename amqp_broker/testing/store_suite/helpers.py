"""What the suite, and the tests of a store's own features, are written with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from typing import Final

import attrs

from amqp_broker.persistence import CreateNode, Record, RecoveredNode, Store, Unit, Verb
from amqp_broker.persistence.questions import PageOf, RetainedBy, RetainedPageOf

MakeStore = Callable[..., Store]
"""A new, empty store with these limits, which are keywords as those of `MemoryStore`; none: with its own."""

Check = Callable[[Store], None]


@attrs.frozen
class StoreTest:
    """A test of the suite: what it does with a new, empty store that has these limits."""

    check: Check
    limits: dict[str, int]

    @property
    def name(self) -> str:
        """What it says about every store."""
        return self.check.__name__

    def __call__(self, make_store: MakeStore) -> None:
        """Make a store, run, and close it. Raises AssertionError with what was expected."""
        with closing(make_store(**self.limits)) as store:
            self.check(store)


SUITE: Final[list[StoreTest]] = []


def store_test(**limits: int) -> Callable[[Check], Check]:
    """Take a function into the suite; its store has these limits."""

    def take(check: Check) -> Check:
        SUITE.append(StoreTest(check, limits))
        return check

    return take


LATE_S: Final = 120.0  # a store may forget this much later than it should


def do(store: Store, *verbs: Verb) -> None:
    """Commit one unit, which the store must not refuse."""
    errors = do_units(store, [list(verbs)])
    assert errors == [None], f"expected the unit to happen, got {errors!r}"


def do_units(store: Store, units: Iterable[Unit]) -> list[Exception | None]:
    """Commit one group of units. Gives the error of each, or None."""
    errors = store.apply(list(units))
    store.commit()
    return errors


def is_refused(call: Callable[[], object], error: type[Exception] = AssertionError) -> bool:
    """Whether a call raises this error. An AssertionError says that the caller made a mistake."""
    try:
        call()
    except error:
        return True
    return False


def is_a_mistake(store: Store, *units: Unit) -> bool:
    """Whether the store refuses a group of units as a mistake of its caller."""
    if is_refused(partial(store.apply, list(units))):
        return True
    store.abandon()
    return False


def do_idle_work(store: Store, now: float) -> None:
    """Let the store finish the work that it does between two commits, at this time in seconds."""
    while store.idle(now):
        pass


def new_queue(store: Store, name: str = "orders") -> int:
    """Make a queue. Gives its id."""
    create = CreateNode(name, "queue")
    do(store, create)
    return create.queue_id


def messages(first: int, count: int, size: int = 10) -> list[Record]:
    """Messages with consecutive offsets whose bodies tell them apart."""
    return [Record(offset, (b"%d:" % offset).ljust(size, b".")) for offset in range(first, first + count)]


def fields(record: Record) -> tuple[object, ...]:
    """All that a store keeps of a message."""
    return (
        record.queue_id,
        record.offset,
        record.body,
        record.message_format,
        record.priority,
        record.expires_at_ms,
        record.enqueued_at_ms,
        record.durable,
        record.delivery_count,
        record.acquired_before,
        record.annotations,
    )


def read_all(
    store: Store, queue_id: int, page: int = 1000, max_bytes: int = 1 << 40, node: RecoveredNode | None = None
) -> list[Record]:
    """All messages of a queue, read page by page. Each page keeps its bounds. `node` is what recovery says
    about it where that was asked already.
    """
    found: list[Record] = []
    node = node or node_of(store, queue_id)
    at = 0
    while at < node.next_offset:
        result = store.ask(PageOf(queue_id, at, page, max_bytes))
        assert not result.quarantined, result.quarantined
        assert len(result.records) <= page, f"{len(result.records)} messages, asked for {page}"
        size = sum(len(record.body) for record in result.records)
        assert size <= max_bytes or len(result.records) == 1, f"{size} bytes, asked for {max_bytes}"
        assert result.records or result.next_offset == node.next_offset, "an empty page before the end"
        assert result.next_offset > at, "a page that does not get on"
        found.extend(result.records)
        at = result.next_offset
    return found


def read_all_retained(
    store: Store, queue_id: int, from_offset: int = 0, page: int = 1000, max_bytes: int = 1 << 40
) -> tuple[list[tuple[object, ...]], list[int]]:
    """The fields of all retained messages, read page by page, and the offsets without a message."""
    found: list[Record] = []
    missing: list[int] = []
    at = from_offset
    end = node_of(store, queue_id).next_offset
    retained = store.ask(RetainedBy(queue_id))
    expected = max(at, retained.first_offset if retained is not None else end)
    while at < end:
        result = store.ask(RetainedPageOf(queue_id, at, page, max_bytes))
        holes = [quarantined.offset for quarantined in result.quarantined]
        here = sorted([*[record.offset for record in result.records], *holes])
        assert here == [*range(expected, result.next_offset)], f"{here} from {expected}: not dense"
        assert len(result.records) <= page, f"{len(result.records)} messages, asked for {page}"
        size = sum(len(record.body) for record in result.records)
        assert size <= max_bytes or len(result.records) == 1, f"{size} bytes, asked for {max_bytes}"
        assert result.next_offset > at, f"no progress at {at}"
        found.extend(result.records)
        missing.extend(holes)
        at = expected = result.next_offset
    return [*map(fields, found)], missing


def offsets(store: Store, queue_id: int) -> list[int]:
    """The offsets that a queue holds."""
    return [record.offset for record in read_all(store, queue_id)]


def node_of(store: Store, queue_id: int) -> RecoveredNode:
    """What recovery says about a node."""
    (node,) = [node for node in store.recover().nodes if node.queue_id == queue_id]
    return node
