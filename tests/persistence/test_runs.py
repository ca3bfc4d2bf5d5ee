"""Bit sets of retired messages, and the bounded cache of runs."""

from __future__ import annotations

import itertools
from array import array
from itertools import accumulate
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from amqp_broker.persistence import Post, Record, Retire
from amqp_broker.persistence.questions import PageOf
from amqp_broker.persistence.runs import RUN, RUN_OVERHEAD, Run, bytes_of_bits, gone_bytes
from amqp_broker.testing.store_suite.helpers import do, messages, new_queue, node_of, offsets
from tests.persistence.stores import small_store
from tests.support.memory import left_by_each_round


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=70), st.integers(0, 1 << 70), st.integers(0, 5))
def test_bytes_of_bits(sizes: list[int], bits: int, position: int) -> None:
    """Groups of bits are summed by differences of ends, with the same result as one by one."""
    count = len(sizes)
    bits &= (1 << count) - 1
    ends = array("I", accumulate([9] * position + sizes))
    assert bytes_of_bits(bits, ends, position) == sum(size for i, size in enumerate(sizes) if bits >> i & 1)


@given(st.integers(1, 1024), st.integers(0, 1 << 1024))
def test_row_round_trip(count: int, gone: int) -> None:
    """A row gives the same run back. With any other value it does not match its checksum."""
    gone &= (1 << count) - 1
    run = Run(3, 1000, count, 17, 2, gone, count - gone.bit_count(), 55, 77)
    row = run.row()
    found = RUN.value(row)
    assert found is not None
    assert found.row() == row
    for index in range(11):
        value = row[index]
        changed = b"\x01" + (value or b"") if index == 5 else value + 1  # type: ignore[operator]
        assert RUN.value((*row[:index], changed, *row[index + 1 :])) is None


def test_bit_sets_are_as_long_as_needed() -> None:
    """A bit set has one bit for each message in whole bytes, and no byte while no message is gone."""
    assert gone_bytes(0, 1024) is None
    assert gone_bytes(1, 1024) == b"\x01" + bytes(127)
    assert gone_bytes(0b1_0000_0000, 9) == b"\x00\x01"


def test_cache_is_bounded_and_flat(tmp_path: Path) -> None:
    """Memory does not grow with the backlog: less than a byte for each message, even with a run for each."""
    store = small_store(tmp_path, run_cache_messages=50 * (1 + RUN_OVERHEAD), synchronous="OFF")
    queue_id = new_queue(store)

    count = 400
    rounds = itertools.count(1)

    def grow() -> None:
        end = next(rounds) * count
        for offset in range(end - count, end):
            do(store, Post(queue_id, [Record(offset, b"x" * 20)]))
        at = 0
        while at < end:
            at = store.ask(PageOf(queue_id, at, 100, 1 << 20)).next_offset
        assert store._runs.held <= 50 * (1 + RUN_OVERHEAD)

    assert left_by_each_round(grow, count) < count
    there = (next(rounds) - 1) * count
    do(store, Retire(queue_id, 7, there - 500))
    assert node_of(store, queue_id).message_count == 506
    assert offsets(store, queue_id) == [*range(7), *range(there - 499, there)]


def test_group_writes_once_for_each_run(tmp_path: Path) -> None:
    """What a group retires in one run, in however many ranges, changes one row."""
    store = small_store(tmp_path)
    queue_id = new_queue(store)
    do(store, Post(queue_id, messages(0, 1000)))
    changes = store._connection.total_changes
    do(store, *[Retire(queue_id, offset, offset) for offset in range(0, 900, 2)])
    assert store._connection.total_changes - changes == 1
    changes = store._connection.total_changes
    do(store, Post(queue_id, messages(1000, 50)), Retire(queue_id, 1000, 1049))
    assert store._connection.total_changes - changes == 1, "only next_offset"
