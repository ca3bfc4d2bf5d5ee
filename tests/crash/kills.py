"""`python -m tests.crash.kills --kills 200 --seed N`: kill -9 of a broker under load, at random moments and
at named points (tests/crash/lives.py). At the end everything is drained, and the whole history is checked.

`--with` names what the clients do, in each life of one broker. With `events` its queues have events, and at
the end the journal is held against what the clients know.

`--points` makes a run of its own, on a new store, for each named fault point that these clients pass, or for
those that follow: `--kills 2` lives of each end there.

The kills are shared out among `--processes`, each with a store of its own. `--beside 4` lets four others
compute on the same machine. A run that complains keeps its history and its store in a folder, which it names
(tests/crash/evidence.py).
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Final

from tests.crash.busy import busy_processes
from tests.crash.dead_letters import DeadLetters
from tests.crash.deaths import points_of
from tests.crash.events import Events
from tests.crash.evidence import scratch_folder
from tests.crash.halves import Halves
from tests.crash.lives import ALWAYS, STARTING, run_kills
from tests.crash.messages import TRANSACTIONS, Load, Messages
from tests.crash.replacing import Replacing
from tests.crash.resumption import Resumption
from tests.crash.sequences import Sequences
from tests.crash.sets import Sets
from tests.crash.topics import Topics
from tests.crash.workload import Workload

FEATURES: Final = {
    "messages": "plain clients",
    "transactions": "controllers and their discharges, beside plain clients",
    "halves": "half messages",
    "sets": "sets of half messages",
    "sequences": "sequenced streams",
    "topics": "publishers, and durable subscriptions that come and go",
    "dead-letters": "queues with dead letters, redelivery delays and messages for later",
    "resumption": "senders that resume their links to durable targets",
    "replacing": "rings and queues of last values",
    "events": "the journal of the queues of messages or transactions",
}
EVERYTHING: Final = "everything"


def workloads_of(names: Iterable[str], seed: int) -> list[Workload]:
    """What plugs in under these names of features."""
    names = {*FEATURES} if EVERYTHING in names else {*names}
    found: list[Workload] = []
    if names & {"messages", "transactions", "events"}:
        messages = Messages(seed, TRANSACTIONS if "transactions" in names else Load())
        found += [messages, Events(messages)] if "events" in names else [messages]
    kinds: dict[str, Callable[[int], Workload]] = {
        "halves": Halves,
        "sets": Sets,
        "sequences": Sequences,
        "topics": Topics,
        "dead-letters": DeadLetters,
        "resumption": Resumption,
        "replacing": Replacing,
    }
    return [*found, *(kind(seed) for name, kind in kinds.items() if name in names)]


def all_points(workloads: Iterable[Workload]) -> list[str]:
    """Each point that is passed under these."""
    starting = [f"{point}:1" for point in points_of(*STARTING)]
    found = [*starting, *points_of(*ALWAYS), *(point for each in workloads for point in each.points)]
    return list(dict.fromkeys(found))


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.crash.kills",
        description=__doc__,
        epilog="; ".join(f"{name}: {words}" for name, words in FEATURES.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument(
        "--with", dest="names", default="messages", metavar="FEATURE,...", type=lambda text: text.split(",")
    )
    parser.add_argument("--points", nargs="*", metavar="POINT[:PASSES]")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--beside", type=int, default=0, metavar="BUSY")
    options = parser.parse_args(arguments)
    if unknown := {*options.names} - {*FEATURES, EVERYTHING}:
        parser.error(f"no feature {sorted(unknown)}; there are {[*FEATURES, EVERYTHING]}")
    return options


@dataclass(frozen=True, slots=True)
class Run:
    """Some kills of the brokers on one store; `ends` None: as these workloads have it."""

    names: Sequence[str]
    kills: int
    seed: int
    ends: Sequence[str] | None = None

    def __call__(self) -> tuple[list[str], str]:
        """The complaints, and what to say of it."""
        with scratch_folder("kills-") as folder:
            workloads = workloads_of(self.names, self.seed)
            return run_kills(folder, workloads, self.kills, self.seed, points=self.ends, show=True)


def runs_of(options: argparse.Namespace) -> list[Run]:
    """A run for each point, or shares of the kills, each of which begins with its part of the points."""
    names, seed = options.names, options.seed
    workloads = workloads_of(names, seed)
    if options.points is not None:
        points = options.points or all_points(workloads)
        kills = {point: 1 if point.startswith(STARTING) else options.kills for point in points}
        return [Run(names, kills[point], seed, [point] * kills[point]) for point in points]
    shares = max(1, min(options.processes, options.kills))
    if shares == 1:
        return [Run(names, options.kills, seed)]
    points = list(dict.fromkeys(point for each in workloads for point in each.points))
    return [
        Run(names, len(range(share, options.kills, shares)), seed + share, points[share::shares])
        for share in range(shares)
    ]


def main() -> int:
    """The command; its exit status is 1 when there are complaints."""
    options = parsed()
    print(f"seed {options.seed}", flush=True)
    runs = runs_of(options)
    bad = False
    with busy_processes(options.beside), ProcessPoolExecutor(options.processes) as pool:
        for complaints, lines in pool.map(Run.__call__, runs) if len(runs) > 1 else [runs[0]()]:
            bad = bad or bool(complaints)
            print(*complaints, lines, sep="\n", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
