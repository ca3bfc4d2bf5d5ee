"""What the broker told of the ranges of its journal that an archive has: how many events, and their checksum.

    DIR/checksums.jsonl   a line for each range, in order:
    {"first": 1, "next": 4097, "count": 4096, "checksum": "5f0c...", "chain": "99ab..."}
    {"first": 4097, "next": 4100, "untold": "why the broker told nothing", "chain": "..."}

The chain of a line is the SHA-256 of the chain before it and of the rest of the line, so that no line is taken
out, put in, or another one unseen. Ranges follow each other without a hole. A batch that begins again after a
kill is told again: its lines take the place of those that were there.

amqp_broker/event_checksums.py says what a checksum is; here the same is made of the columns of the archive.
"""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import attrs
import pyarrow
import pyarrow.compute as compute

from amqp_broker.event_checksums import FIELDS, MODULUS, NUMBER, OCTETS
from amqp_broker.pipeline.errors import PipelineError

BLOCK: Final = 4_096
"""Ranges end at multiples of it, and with their batch: where something is wrong is told by a range."""
NOTHING: Final = "0" * (2 * OCTETS)
"""The chain before the first line, and the checksum of no events."""


@attrs.frozen
class Told:
    """What was told of the events `first` to before `next`: so many, with this checksum in hexadecimal digits;
    or why it was not (`untold`)."""

    first: int
    next: int
    count: int = 0
    checksum: str = NOTHING
    untold: str = ""

    def line(self, before: str) -> str:
        """As it stands in the file, behind a line with the chain `before`."""
        said: dict[str, Any] = {"first": self.first, "next": self.next}
        said |= {"untold": self.untold} if self.untold else {"count": self.count, "checksum": self.checksum}
        chain = sha256(f"{before}{json.dumps(said)}".encode()).hexdigest()
        return json.dumps({**said, "chain": chain})


def read_told(path: Path) -> list[Told]:
    """What stands in such a file. Raises PipelineError, which names the line, where it was changed."""
    before, place, told = NOTHING, None, []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            said = json.loads(line)
            chain = said.pop("chain")
            one = Told(**said)
            is_well = one.line(before) == line and one.first < one.next and place in (None, one.first)
        except (ValueError, TypeError, KeyError, AttributeError):
            is_well = False
        if not is_well:
            raise PipelineError(f"{path}: expected what the broker has told, and line {number} was changed")
        before, place = chain, one.next
        told.append(one)
    return told


def note(path: Path, told: Sequence[Told]) -> None:
    """Append what was told of a batch, in place of what may be there of it and behind it."""
    if not told:
        return
    kept = [one for one in (read_told(path) if path.exists() else []) if one.first < told[0].first]
    if kept and kept[-1].next != told[0].first:
        raise PipelineError(
            f"{path}: expected that the events from {kept[-1].next} on are archived next, and they are those "
            f"from {told[0].first} on: another broker, or another cursor, writes into this archive"
        )
    before, lines = NOTHING, []
    for one in [*kept, *told]:
        lines.append(one.line(before))
        before = json.loads(lines[-1])["chain"]
    new = path.with_suffix(".new")
    new.write_text("".join(f"{line}\n" for line in lines))
    os.replace(new, path)


def ranges(first: int, end: int) -> Iterator[tuple[int, int]]:
    """The ranges from `first` to before `end`."""
    while first < end:
        after = min((first // BLOCK + 1) * BLOCK, end)
        yield first, after
        first = after


def ask(tell: Callable[[int, int], tuple[int, int]], first: int, end: int) -> list[Told]:
    """What a broker tells of the events `first` to before `end`. `tell(start, until)` gives the number of
    events and their checksum, or raises PipelineError: then nothing more is asked.
    """
    told: list[Told] = []
    why = ""
    for start, after in ranges(first, end):
        try:
            count, checksum = (0, 0) if why else tell(start, after)
        except PipelineError as error:
            why = str(error)
        told.append(Told(start, after, untold=why) if why else Told(start, after, count, hexadecimal(checksum)))
    return told


def hexadecimal(checksum: int) -> str:
    """A checksum as it is written."""
    return checksum.to_bytes(OCTETS, "big").hex()


# --- of the rows of an archive

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
