"""`python -m tests.crash.fault_points`: one run for each named fault point of the store, with a kill at it.

Each run gives the broker a first life that dies at the point (after some passes of it), a second one that
recovers and dies there again where it passes it while starting, and a last one that is drained and checked.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from amqp_broker.persistence.fault_points import ENVIRONMENT_VARIABLE, POINTS
from tests.crash.broker_process import NotListening
from tests.crash.scenario import Scenario

SECONDS_TO_REACH: Final = 20.0
PASSES: Final = (1, 3, 20)

OUT_OF_REACH: Final = {
    "backup": "the broker makes no backup under load: tests/persistence kills there",
    "compaction": "needs a large segment of which little is live, which load makes by chance only: "
    "tests/persistence kills there",
    "quarantine": "needs a damaged message: tests/persistence kills there",
    "sweep": "needs a queue that is purged or deleted: tests/persistence kills there",
}
"""Points, by the word before the dot, that no load can reach, with the reason."""


def reachable_points() -> list[str]:
    """The points at which a broker under load can be killed."""
    return sorted(point for point in POINTS if point.split(".")[0] not in OUT_OF_REACH)


def run_point(
    directory: Path, point: str, passes: int, seed: int, *, lives: int = 2
) -> tuple[list[str], bool]:
    """The complaints of a run that dies at the `passes`-th pass of `point`, and whether it died there."""
    scenario = Scenario(directory, seed)
    reached = False
    for _ in range(lives):
        broker = scenario.start({ENVIRONMENT_VARIABLE: f"{point}:{passes}"})
        clients = []
        try:
            clients = scenario.clients(broker.wait_until_listening())
            deadline = time.monotonic() + (SECONDS_TO_REACH if not reached else SECONDS_TO_REACH / 10)
            while broker.process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
        except NotListening:
            pass  # it died while it was starting: the point is on that way
        reached |= broker.process.poll() is not None
        broker.kill()
        scenario.join(clients)
    return scenario.finish(), reached


def main() -> int:
    """The command; its exit status is 1 when there are complaints or a point was never reached."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.fault_points", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--points", nargs="*", default=reachable_points())
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    bad = 0
    for point in options.points:
        reached_once = False
        for passes in PASSES:
            with TemporaryDirectory(prefix="fault-point-") as temporary:
                complaints, reached = run_point(Path(temporary), point, passes, options.seed)
            if not reached:
                break  # more passes would not be reached either
            reached_once = True
            print(f"{point}:{passes}: {len(complaints)} complaints", flush=True)
            for complaint in complaints:
                print(f"  {complaint}")
            bad += bool(complaints)
        if not reached_once:
            print(f"{point}: never reached in {SECONDS_TO_REACH} s")
            bad += 1
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
