"""The process that is recorded: carry out a pickled plan on a SqliteStore.

`python -m tests.power_loss.workload DIRECTORY PLAN MARKERS [--synchronous NORMAL] [--page-size N]
[--acknowledge-first] [--answer-first] [--close] [--workload sets]`

It writes "answers 0" once the store is open, and "begin N" and "done N" around its groups, to MARKERS, which
the recorder keeps in its log. The last line on standard output says how it ended: "finished", or "failed" (an
I/O error: what happened is unknown).
"""

from __future__ import annotations

import argparse
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from amqp_broker.persistence import StoreFailed, write_ahead_log
from amqp_broker.persistence.sqlite import SqliteStore
from tests.power_loss.execution import KEEP_OUTCOMES
from tests.power_loss.plan_halves import KEEP_MS
from tests.power_loss.workloads import MESSAGES, WORKLOADS

CHECKPOINT_BYTES: Final = 100_000
"""Small enough that a plan of forty groups passes through several checkpoints."""


PAGE_SIZE_BYTES: Final = 4096


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
    )


def run(store: SqliteStore, plan: Any, tell: Callable[[str], None], options: argparse.Namespace) -> None:
    """Carry out the plan; the store stays open unless it is asked to close."""
    executor = WORKLOADS[options.workload].executor(store)
    executor.run(plan, tell, acknowledge_first=options.acknowledge_first)
    if options.close:
        store.close()


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
    parser.add_argument("--workload", choices=[*WORKLOADS], default=MESSAGES)
    parser.add_argument("--close", action="store_true")
    options = parser.parse_args()
    plan = pickle.loads(options.plan.read_bytes())
    markers = os.open(options.markers, os.O_WRONLY | os.O_CREAT)

    def tell(words: str) -> None:
        os.write(markers, words.encode())

    if options.answer_first:
        write_ahead_log.make_durable = lambda unit, database: None
    try:
        # Referred to until the process ends: otherwise its connection would be closed, which tidies up.
        store = open_store(options.directory, options.synchronous, options.page_size, plan.event_keep_bytes)
        tell("answers 0")
        run(store, plan, tell, options)
        print("finished", flush=True)
    except (StoreFailed, OSError):
        print("failed", flush=True)
    os._exit(0)  # as a kill would end it: nothing is closed or flushed


if __name__ == "__main__":
    main()
