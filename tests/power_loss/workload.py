"""The process that is recorded: carry out the pickled groups of a plan on a SqliteStore.

`python -m tests.power_loss.workload DIRECTORY PLAN MARKERS [--synchronous NORMAL] [--page-size N]
[--acknowledge-first] [--answer-first] [--bodies-unsynced] [--close]`

It writes "answers 0" once the store is open, and "begin N" and "done N" around its groups, to MARKERS, which
the recorder keeps in its log. The last line on standard output says how it ended: "finished", or "failed" (an
I/O error: what happened is unknown).
"""

from __future__ import annotations

import argparse
import os
import pickle
from collections.abc import Callable, Sequence
from copy import copy
from pathlib import Path
from typing import Final

from amqp_broker.persistence import (
    LargeRecord,
    Post,
    PostLarge,
    Record,
    Spool,
    StoreFailed,
    Unit,
    store_file,
)
from amqp_broker.persistence.body_files import BodyFileSizes
from amqp_broker.persistence.spreads import SpreadSizes
from amqp_broker.persistence.sqlite import SqliteStore
from tests.power_loss.plan import REST_MS, START_MS, Group, is_refused
from tests.power_loss.plan_messages import KEEP_MS
from tests.promises.book import KEEP_OUTCOMES

CHECKPOINT_BYTES: Final = 100_000
"""Small enough that a plan of forty groups passes through several checkpoints."""


PAGE_SIZE_BYTES: Final = 4096
BODY_FILES: Final = BodyFileSizes(large_body=60, commit=200, file=8 * 1024)
"""About half of the commits have bodies for a file, and a plan fills some."""


SPREAD: Final = SpreadSizes(runs=2, messages=6, most=12, gathered=8)
"""A group of posts to two queues is spread, and a plan has some gathered."""


def open_store(
    directory: Path,
    synchronous: str = "FULL",
    page_size_bytes: int = PAGE_SIZE_BYTES,
    event_keep_bytes: int = 0,
) -> SqliteStore:
    """A store with small limits, so that little work passes through all of its code."""
    return SqliteStore(
        directory,
        synchronous=synchronous,
        page_size_bytes=page_size_bytes,
        checkpoint_bytes=CHECKPOINT_BYTES,
        ballast_bytes=0,
        discharge_keep_count=KEEP_OUTCOMES,
        event_keep_ms=KEEP_MS,
        event_keep_bytes=event_keep_bytes,
        body_files=BODY_FILES,
        spread=SPREAD,
    )


HEAD_BYTES: Final = 32
"""Of a large body: what is copied to its row, and how much of the rest is written at once."""


class Executor:
    """Has a store do what a plan says; `rests` is how often it rested before."""

    def __init__(self, store: SqliteStore, rests: int = 0) -> None:
        self.store = store
        self.now = (START_MS + rests * REST_MS) / 1_000

    def run(
        self, groups: Sequence[Group], tell: Callable[[str], None], *, acknowledge_first: bool = False
    ) -> None:
        """Every group. `tell` hears "begin N" before a group and "done N" when its commit returned.

        With `acknowledge_first` it hears the latter before the commit: the mistake that the proof must find.
        """
        for number, group in enumerate(groups):
            units, spools = spooled(self.store, group.units)
            tell(f"begin {number}")
            errors = self.store.apply(units)
            if acknowledge_first:
                tell(f"done {number}")
            self.store.commit()
            for spool in spools:
                self.store.end_spool(spool, stored=True)
            if not acknowledge_first:
                tell(f"done {number}")
            check_errors(group.units, errors)
            if group.rests:
                self.rest()
            elif self.store.checkpoint_due:
                self.store.idle(self.now)

    def rest(self) -> None:
        """Let the store do all of its housekeeping."""
        self.now += REST_MS / 1_000
        while self.store.idle(self.now):
            pass


def spooled(store: SqliteStore, units: Sequence[Unit]) -> tuple[list[Unit], list[Spool]]:
    """The same units, but large messages that are posted alone have come to files of their own piece by piece
    by then; and what has to be ended after the commit.
    """
    spools: list[Spool] = []
    found: list[Unit] = []
    for unit in units:
        verbs: Unit = []
        for verb in unit:
            spool = store.begin_spool() if is_for_a_spool(verb) else None
            if spool is None:
                verbs.append(verb)
                continue
            assert isinstance(verb, Post)
            spools.append(spool)
            verbs.append(PostLarge(verb.queue_id, to_spool(spool, verb.records[0])))
        found.append(verbs)
    return found, spools


def is_for_a_spool(verb: object) -> bool:
    """Whether it posts one large message, and no other."""
    if not isinstance(verb, Post) or verb.contents is not None or len(verb.records) != 1:
        return False
    return len(verb.records[0].body) >= BODY_FILES.large_body and verb.records[0].annotations is None


def to_spool(spool: Spool, record: Record) -> LargeRecord:
    """The message, whose body is on the disk when this returns."""
    head = copy(record)
    head.body = record.body[:HEAD_BYTES]
    for at in range(0, len(record.body), HEAD_BYTES):
        spool.write(record.body[at : at + HEAD_BYTES])
    spool.finish()
    return LargeRecord(head, spool.tail(head.body))


def check_errors(units: Sequence[Unit], errors: Sequence[Exception | None]) -> None:
    """Exactly the units that must be refused were."""
    for unit, error in zip(units, errors, strict=True):
        assert is_refused(unit) == (error is not None), f"unit {unit}: {error!r}"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("plan", type=Path)
    parser.add_argument("markers")
    parser.add_argument("--synchronous", default="FULL")
    parser.add_argument("--page-size", type=int, default=PAGE_SIZE_BYTES)
    parser.add_argument("--acknowledge-first", action="store_true")
    parser.add_argument("--answer-first", action="store_true")
    parser.add_argument("--bodies-unsynced", action="store_true")
    parser.add_argument("--close", action="store_true")
    options = parser.parse_args()
    groups, rests, event_bytes = pickle.loads(options.plan.read_bytes())
    markers = os.open(options.markers, os.O_WRONLY | os.O_CREAT)

    def tell(words: str) -> None:
        os.write(markers, words.encode())

    if options.answer_first:
        store_file.make_durable = lambda unit, database: None  # type: ignore[attr-defined]
    if options.bodies_unsynced:
        os.fdatasync = lambda fd: None
    try:
        # Referred to until the process ends: otherwise its connection would be closed, which tidies up.
        store = open_store(options.directory, options.synchronous, options.page_size, event_bytes)
        tell("answers 0")
        Executor(store, rests).run(groups, tell, acknowledge_first=options.acknowledge_first)
        if options.close:
            store.close()
        print("finished", flush=True)
    except (StoreFailed, OSError):
        print("failed", flush=True)
    os._exit(0)  # as a kill would end it: nothing is closed or flushed


if __name__ == "__main__":
    main()
