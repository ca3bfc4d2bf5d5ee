"""A million sequenced streams of one message each on one queue: `python -m tests.benchmarks.streams`.

Prints for each tenth of the streams what a message costs (judged, its stream looked up on disk, stored in
groups of 500 with one commit each), and what the process holds; then what duplicates of streams cost that
memory has forgotten, and that a page of the administrator's list is quick at any place. `--streams 20000` is
the size of the test in tests/amqp_broker/test_sequences_orders.py.
"""

from __future__ import annotations

import random
import resource
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import attrs
import trio

from amqp_broker.persistence.questions import StreamOf, StreamsOf
from amqp_broker.persistence.sqlite import SqliteStore
from tests.benchmarks.harness import options, spent
from tests.support.sequence_jobs import Bench, answers, bench

GROUP: Final = 500
PARTS: Final = 10
SAMPLE: Final = 2_000


@attrs.frozen
class Part:
    """What one part of the streams cost: microseconds for each message, and what was in memory after it."""

    streams: int
    microseconds: float
    positions: int
    resident_mib: float


@attrs.frozen
class Figures:
    """What a run found: parts in order, microseconds of a lookup on disk, of a duplicate, of a page."""

    parts: list[Part]
    lookup_us: float
    duplicate_us: float
    page_ms: float


def name_of(number: int) -> str:
    """The name of a stream; names do not come in their order."""
    return f"sensor-{number * 7_919 % 1_000_003:07}-{number}"


async def run(directory: Path, streams: int) -> Figures:
    """One message to each of so many streams, then questions about some."""
    store = SqliteStore(directory / "data")
    try:
        async with bench(store) as at:
            parts = [_post_part(at, streams, part) for part in range(PARTS)]
            return Figures(parts, *_ask(at, streams))
    finally:
        store.close()


def _post_part(at: Bench, streams: int, part: int) -> Part:
    first, end = streams * part // PARTS, streams * (part + 1) // PARTS
    with spent() as took:
        for start in range(first, end, GROUP):
            names = range(start, min(start + GROUP, end))
            postings = [at.posting((1, 1, 0), stream=name_of(number)) for number in names]
            at.commit(*postings)
            assert all(answers(posting) == ["accepted"] for posting in postings)
            if at.store.checkpoint_due:
                at.store.idle(time.monotonic())
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024
    return Part(end, took.wall / (end - first) * 1e6, len(at.service.positions), resident)


def _ask(at: Bench, streams: int) -> tuple[float, float, float]:
    """Microseconds of a lookup, of a duplicate that is looked up, and milliseconds of a page of 100."""
    chance = random.Random(4_711)
    numbers = [chance.randrange(streams) for _ in range(SAMPLE)]
    with spent() as lookups:
        found = [at.store.ask(StreamOf(at.queue.queue_id, name_of(number))) for number in numbers]
    assert all(stream is not None and stream.seq_no == 1 for stream in found)
    assert at.store.ask(StreamOf(at.queue.queue_id, "never")) is None
    before = at.queue.next_offset
    with spent() as duplicates:
        for start in range(0, SAMPLE, GROUP):
            names = [name_of(number) for number in numbers[start : start + GROUP]]
            postings = [at.posting((1, 1, 0), stream=name) for name in names]
            at.commit(*postings)
            assert all(answers(posting) == ["accepted"] for posting in postings)
    assert at.queue.next_offset == before, "a duplicate was stored"
    with spent() as page:
        assert len(at.store.ask(StreamsOf(at.queue.queue_id, "sensor-05", 100))) == 100
    return lookups.wall / SAMPLE * 1e6, duplicates.wall / SAMPLE * 1e6, page.wall * 1e3


def main() -> None:
    """The command."""
    streams = options(__doc__, streams=1_000_000).streams
    with TemporaryDirectory(prefix="streams-") as directory:
        figures = trio.run(run, Path(directory), streams)
    for part in figures.parts:
        print(
            f"{part.streams:>9,} streams: {part.microseconds:6.0f} us a message, "
            f"{part.positions:,} positions in memory, {part.resident_mib:,.0f} MiB resident at most"
        )
    print(
        f"a lookup on disk {figures.lookup_us:.0f} us, a duplicate {figures.duplicate_us:.0f} us, "
        f"a page of 100 streams {figures.page_ms:.1f} ms"
    )


if __name__ == "__main__":
    main()
