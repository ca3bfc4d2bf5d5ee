"""`python -m tests.crash.fault_points`: one run for each named fault point of the store, with a kill at it.

Each run gives the broker a first life that dies at the point (after some passes of it), a second one that
recovers and dies there again where it passes it while starting, and a last one that is drained and checked.

With `--transactions` all runs have controllers beside the plain clients; the points of a discharge have them
in any case. At those it is also looked whether the discharge on whose way the broker died was in fact stored,
or not stored, as its place before or after the COMMIT says.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from amqp_broker.persistence.fault_points import ENVIRONMENT_VARIABLE, POINTS
from amqp_broker.testing.blocking_peer import PATIENCE_S
from tests.crash.broker_process import NotListening
from tests.crash.deaths import DISCHARGE_POINTS
from tests.crash.evidence import scratch_folder
from tests.crash.scenario import TRANSACTIONS, Load, Scenario
from tests.crash.traffic import Client

SECONDS_AGAIN: Final = 6.0
"""For the second life, which need not pass the point."""
PASSES: Final = (1, 3, 20)

_OTHER_WORK: Final = "no client of these loads makes half messages or streams: tests/persistence kills there"
_RETAINED: Final = (
    "no queue of these loads retains: tests/persistence/test_retain_fault_points.py kills there"
)
_SETS: Final = "no client of these loads makes half-message sets: tests/crash/set_kills.py kills there"
OUT_OF_REACH: Final = {
    "advance": "needs senders of sequenced streams: tests/crash/sequenced_kills.py kills there",
    "backup": "the broker makes no backup under load: tests/persistence kills there",
    "compact": "needs a file that is mostly free, or the command: tests/persistence kills there",
    "compaction": "needs a large segment of which little is live, which load makes by chance only: "
    "tests/persistence kills there",
    "cursor": _RETAINED,
    "decide": _OTHER_WORK,
    "epoch": _SETS,
    "expire": _OTHER_WORK,
    "forget": "needs a million outcomes or an age of days: tests/persistence kills there",
    "hold": _OTHER_WORK,
    "log": "only `amqp-broker check --give-up-log` passes there, on a closed store",
    "move": _SETS,
    "quarantine": "needs a damaged message: tests/persistence kills there",
    "retain": _RETAINED,
    "sweep": "needs a queue that is purged or deleted: tests/persistence kills there",
}
"""Points, by the word before the dot, that no load can reach, with the reason."""


@dataclass(slots=True)
class Run:
    """What came of the kills at one point, and how many lives ended there by themselves."""

    complaints: list[str]
    deaths: int
    summary: str


def reachable_points() -> list[str]:
    """The points at which a broker under load can be killed."""
    return sorted(point for point in POINTS if point.split(".")[0] not in OUT_OF_REACH)


def run_point(
    directory: Path, point: str, passes: int, seed: int, *, lives: int = 2, transactions: bool = False
) -> Run:
    """A run that dies at the `passes`-th pass of `point`."""
    controllers = transactions or point in DISCHARGE_POINTS
    scenario = Scenario(directory, seed, TRANSACTIONS if controllers else Load())
    with scenario.evidence(point=point, passes=passes, lives=lives, transactions=controllers) as evidence:
        for _ in range(lives):
            broker = scenario.start({ENVIRONMENT_VARIABLE: f"{point}:{passes}"})
            clients: list[Client] = []
            try:
                clients = scenario.clients(broker.wait_until_listening())
            except NotListening:
                pass  # it died while it was starting: the point is on that way
            scenario.wait_for_death(broker, point, SECONDS_AGAIN if scenario.deaths else PATIENCE_S)
            broker.kill()
            scenario.join(clients)
        evidence.before_the_drain()
        evidence.complaints += scenario.finish()
    told = scenario.count_transactions() if controllers else ""
    return Run(evidence.complaints, len(scenario.deaths), "; ".join(filter(None, [evidence.summary(), told])))


def main() -> int:
    """The command; its exit status is 1 when there are complaints or a point was never reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.fault_points", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--points", nargs="*", default=reachable_points())
    parser.add_argument("--passes", nargs="*", type=int, default=PASSES)
    parser.add_argument("--transactions", action="store_true", help="controllers at every point")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    bad = 0
    for point in options.points:
        reached_once = False
        for passes in options.passes:
            with scratch_folder("fault-point-") as directory:
                run = run_point(
                    directory, point, passes, options.seed, transactions=options.transactions
                )
            if not run.deaths:
                break  # more passes would not be reached either
            reached_once = True
            print(f"{point}:{passes}: {run.deaths} deaths; {run.summary}", flush=True)
            for complaint in run.complaints:
                print(f"  {complaint}")
            bad += bool(run.complaints)
        if not reached_once:
            print(f"{point}: never reached in {PATIENCE_S} s")
            bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
