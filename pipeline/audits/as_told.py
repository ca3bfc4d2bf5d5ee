"""Are the events of an archive those that the broker told? Ranges of them have checksums (told_checksums.py).

Workers sum up what they have, of whatever order; the driver compares.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, Final

import pyarrow
import pyarrow.compute as compute
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from amqp_broker.event_checksums import FIELDS, MODULUS, NUMBER
from amqp_broker.pipeline.audits.carrying import map_in_arrow
from amqp_broker.pipeline.audits.judging import Found
from amqp_broker.pipeline.audits.lives import FAULTS
from amqp_broker.pipeline.told_checksums import BLOCK, Told, hexadecimal

SUMS_DDL: Final = "at int, count bigint, checksum string"
Batches = Iterator[pyarrow.RecordBatch]
Sums = dict[int, tuple[int, int]]
"""By the number of a range: how many events, and their checksum."""


def sums_of(batch: pyarrow.RecordBatch, starts: Sequence[int]) -> Sums:
    """What the rows of a batch come to in the ranges that begin at `starts`; -1: before all of them. Its
    columns are FIELDS, `time` in milliseconds.
    """
    found: Sums = {}
    at = count = total = 0
    low = high = 0  # the range of the row before
    rows = zip(batch.column("lsn").to_pylist(), _texts(batch).to_pylist(), strict=True)
    for lsn, text in rows:
        if not low <= lsn < high:
            if count:
                found[at] = _added(found.get(at), count, total)
            at = bisect_right(starts, lsn) - 1
            low = starts[at] if at >= 0 else 0
            high = starts[at + 1] if at + 1 < len(starts) else lsn + BLOCK
            count = total = 0
        count += 1
        total += int.from_bytes(sha256(text).digest(), "big")
    if count:
        found[at] = _added(found.get(at), count, total)
    return found


def _added(before: tuple[int, int] | None, count: int, total: int) -> tuple[int, int]:
    known, sum_before = before or (0, 0)
    return known + count, (sum_before + total) % MODULUS


def _texts(batch: pyarrow.RecordBatch) -> pyarrow.Array:
    """Of each row the text whose SHA-256 is its checksum, as octets."""
    lines = []
    for name, kind in FIELDS.items():
        column = batch.column(name)
        if kind is NUMBER:
            text = compute.cast(column, pyarrow.string())
        else:
            octets = compute.cast(compute.binary_length(column), pyarrow.string())
            text = compute.binary_join_element_wise(octets, column, ":")
        lines.append(compute.fill_null(text, "-"))
    return compute.cast(compute.binary_join_element_wise(*lines, "\n"), pyarrow.binary())


def as_told(events: DataFrame, told: Sequence[Told]) -> list[Found]:
    """The ranges whose events are not those that the broker told. What it told nothing of, before and after
    or in between, is not judged.
    """
    starts, of_start = _starts(told)
    time_us = F.unix_micros("time")
    time = F.when(time_us % 1_000 == 0, F.floor(time_us / 1_000))  # the broker's times are milliseconds
    columns = [time.alias("time") if name == "time" else F.col(name) for name in FIELDS]
    summed = map_in_arrow(events.select(*columns), _summing(starts), SUMS_DDL)
    found: Sums = {}
    for row in summed.collect():
        found[row["at"]] = _added(found.get(row["at"]), row["count"], int(row["checksum"], 16))
    return list(_compared(of_start, found))


def _starts(told: Sequence[Told]) -> tuple[list[int], list[Told | None]]:
    """Where ranges begin, of which nothing is told where there is None."""
    starts: list[int] = []
    of_start: list[Told | None] = []
    for number, one in enumerate(told):
        starts.append(one.first)
        of_start.append(None if one.untold else one)
        if number + 1 == len(told) or told[number + 1].first != one.next:
            starts.append(one.next)
            of_start.append(None)
    return starts, of_start


def _compared(of_start: Iterable[Told | None], found: Sums) -> Iterator[Found]:
    for at, one in enumerate(of_start):
        count, total = found.get(at, (0, 0))
        if one is None or (count, hexadecimal(total)) == (one.count, one.checksum):
            continue
        says = FAULTS["not-as-told"].says
        if count != one.count:
            says = f"the broker told of {one.count:,} events, and {count:,} are there"
        shown = f"told {one.checksum[:16]}..., there is {hexadecimal(total)[:16]}..."
        yield Found("not-as-told", f"lsn {one.first} to {one.next - 1}", says, shown)


def _summing(starts: Sequence[int]) -> Callable[[Batches], Batches]:
    def summing(batches: Batches) -> Batches:
        found: Sums = {}
        for batch in batches:
            for at, (count, total) in sums_of(batch, starts).items():
                found[at] = _added(found.get(at), count, total)
        rows: list[list[Any]] = [[], [], []]
        for at, (count, total) in found.items():
            for column, value in zip(rows, (at, count, hexadecimal(total)), strict=True):
                column.append(value)
        kinds = (pyarrow.int32(), pyarrow.int64(), pyarrow.string())
        arrays = [pyarrow.array(column, kind) for column, kind in zip(rows, kinds, strict=True)]
        yield pyarrow.RecordBatch.from_arrays(arrays, names=["at", "count", "checksum"])

    return summing
