"""What the broker told of the ranges of its journal that an archive has: how many events, and their checksum.

    DIR/checksums.jsonl   a line for each range, in order:
    {"first": 1, "next": 4097, "count": 4096, "checksum": "5f0c...", "chain": "99ab..."}
    {"first": 4097, "next": 4100, "untold": "why the broker told nothing", "chain": "..."}

The chain of a line is the SHA-256 of the chain before it and of the rest of the line, so that no line is
taken out, put in, or another one unseen. A batch that begins again after a kill is told again: its lines take
the place of those that were there.

amqp_broker/event_checksums.py says what a checksum is, audits/as_told.py makes the same of the columns of the
archive.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import Any, Final

import attrs

from amqp_broker.event_checksums import OCTETS
from amqp_broker.pipeline.errors import BrokerRefused, PipelineError
from amqp_broker.pipeline.folders import Folder

BLOCK: Final = 4_096
"""Ranges end at multiples of it, and with their batch: where something is wrong is told by a range."""
NOTHING: Final = "0" * (2 * OCTETS)
"""The chain before the first line, and the checksum of no events."""


@attrs.frozen
class Told:
    """What was told of the events `first` to before `next`: so many, with this checksum in hexadecimal
    digits; or why it was not (`untold`)."""

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


def read_told(path: Folder) -> list[Told]:
    """What stands in such a file. Raises PipelineError, which names the line, where it was changed."""
    told: list[Told] = []
    before, place = NOTHING, 0
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            said = json.loads(line)
            chain = said.pop("chain")
            one = Told(**said)
            is_well = one.line(before) == line and place <= one.first < one.next
        except (ValueError, TypeError, KeyError, AttributeError):
            is_well = False
        if not is_well:
            raise PipelineError(f"{path}: expected what the broker has told, and line {number} was changed")
        before, place = chain, one.next
        told.append(one)
    return told


def note(path: Folder, told: Sequence[Told]) -> None:
    """Append what was told of a batch, in place of what may be there of it and behind it."""
    if not told:
        return
    kept = [one for one in (read_told(path) if path.exists() else []) if one.first < told[0].first]
    before, lines = NOTHING, []
    for one in [*kept, *told]:
        lines.append(one.line(before))
        before = json.loads(lines[-1])["chain"]
    path.replace_text("".join(f"{line}\n" for line in lines))


def ranges(first: int, end: int) -> Iterator[tuple[int, int]]:
    """The ranges from `first` to before `end`."""
    while first < end:
        after = min((first // BLOCK + 1) * BLOCK, end)
        yield first, after
        first = after


def ask(tell: Callable[[int, int], tuple[int, int]], first: int, end: int) -> list[Told]:
    """What a broker tells of the events `first` to before `end`. `tell(start, until)` gives the number of
    events and their checksum, or raises BrokerRefused: then nothing more is asked.
    """
    told: list[Told] = []
    why = ""
    for start, after in ranges(first, end):
        try:
            count, checksum = (0, 0) if why else tell(start, after)
        except BrokerRefused as error:
            why = str(error)
        one = Told(start, after, count, hexadecimal(checksum))
        told.append(Told(start, after, untold=why) if why else one)
    return told


def hexadecimal(checksum: int) -> str:
    """A checksum as it is written."""
    return checksum.to_bytes(OCTETS, "big").hex()
