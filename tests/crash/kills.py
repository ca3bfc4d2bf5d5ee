"""`python -m tests.crash.kills --kills 200 --seed N`: kill -9 of a broker under load, at random moments and
at named points (tests/crash/lives.py). At the end everything is drained, and the whole history is checked.

`--with` names what the clients do, in each life of one broker. With `events` its queues have events, and at
the end the event log is held against what the clients know.

`--points` makes a run of its own, on a new store, for each named fault point that these clients pass, or for
those that follow: `--kills 2` lives of each end there.

`--beside 4` lets four processes compute on the same machine. A run that complains keeps its history and its
store in a folder, which it names (tests/crash/evidence.py).
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterable, Sequence
from typing import Final

from tests.crash.busy import busy_processes
from tests.crash.deaths import points_of
from tests.crash.events import Events
from tests.crash.evidence import scratch_folder
from tests.crash.halves import Halves
from tests.crash.lives import ALWAYS, STARTING, run_kills
from tests.crash.messages import TRANSACTIONS, Load, Messages
from tests.crash.sequences import Sequences
from tests.crash.sets import Sets
from tests.crash.workload import Workload

FEATURES: Final = {
    "messages": "plain clients",
    "transactions": "controllers and their discharges, beside plain clients",
    "halves": "half messages",
    "sets": "sets of half messages",
    "sequences": "sequenced streams",
    "events": "the event log of the queues of messages or transactions",
}
EVERYTHING: Final = "everything"


def workloads_of(names: Iterable[str], seed: int) -> list[Workload]:
    """What plugs in under these names of features."""
    names = {*FEATURES} if EVERYTHING in names else {*names}
    found: list[Workload] = []
    if names & {"messages", "transactions", "events"}:
        messages = Messages(seed, TRANSACTIONS if "transactions" in names else Load())
        found += [messages, Events(messages)] if "events" in names else [messages]
    kinds = {"halves": Halves, "sets": Sets, "sequences": Sequences}
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
    parser.add_argument("--beside", type=int, default=0, metavar="BUSY")
    options = parser.parse_args(arguments)
    if unknown := {*options.names} - {*FEATURES, EVERYTHING}:
        parser.error(f"no feature {sorted(unknown)}; there are {[*FEATURES, EVERYTHING]}")
    return options


def main() -> int:
    """The command; its exit status is 1 when there are complaints."""
    options = parsed()
    print(f"seed {options.seed}", flush=True)
    runs: list[Sequence[str] | None] = [None]
    if options.points is not None:
        points = options.points or all_points(workloads_of(options.names, options.seed))
        runs = [[point] * options.kills for point in points]
    bad = False
    for ends in runs:
        workloads = workloads_of(options.names, options.seed)
        with scratch_folder("kills-") as directory, busy_processes(options.beside):
            kills = 1 if ends and ends[0].startswith(STARTING) else options.kills
            complaints, lines = run_kills(directory, workloads, kills, options.seed, points=ends, show=True)
        bad = bad or bool(complaints)
        print(*complaints, lines, sep="\n", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
