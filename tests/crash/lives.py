"""One data directory, the lives of a broker on it under one workload, and how each of them ends.

The first lives end at the named points of the workload, one each, and from then on every second one does, in
turn; the others end at any moment, some of them while the broker starts. In a last life the workload settles
everything, and then says what is wrong.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from amqp_broker.persistence.fault_points import ENVIRONMENT_VARIABLE, POINTS
from amqp_broker.persistence.sqlite import check_directory
from amqp_broker.testing.blocking_peer import PATIENCE_S
from tests.crash.broker_process import BrokerProcess, NotListening
from tests.crash.deaths import Death, count_deaths, died_at_a_point
from tests.crash.evidence import DATA, LOG, Evidence, scratch_folder
from tests.crash.workload import Workload

MOST_PASSES: Final = 6
SHARE_WHILE_STARTING: Final = 0.1
MAX_SECONDS_WHILE_STARTING: Final = 0.5
MAX_SECONDS_OF_TRAFFIC: Final = 1.0
PROGRESS_EVERY: Final = 10
TICK: Final = 0.002


class Lives:
    """The lives so far, and complaints that are not the workload's."""

    def __init__(self, directory: Path, workload: Workload) -> None:
        self.directory = directory
        self.workload = workload
        self.complaints: list[str] = []
        self.deaths: list[Death] = []
        self.count = 0

    def _broker(self, point: str = "", passes: int = 1) -> BrokerProcess:
        environment = {ENVIRONMENT_VARIABLE: f"{point}:{passes}"} if point in POINTS else {}
        return BrokerProcess(self.directory / DATA, self.directory / LOG, environment=environment)

    def end_while_starting(self, seconds: float) -> None:
        """A life that ends before it has clients, or soon after it could."""
        self.count += 1
        with self._broker():
            time.sleep(seconds)

    def live(self, point: str, passes: int, seconds: float) -> None:
        """A life that ends at a pass of a point or, without one, after some seconds."""
        self.count += 1
        with self._broker(point, passes) as broker:
            try:
                port = broker.wait_until_listening()
            except NotListening as error:
                if not point or not died_at_a_point(broker):
                    self.complaints.append(f"life {self.count}: {error}")
                return
            self.workload.start(port, self.count, point)
            self._wait(broker, point, seconds)
            broker.kill()
            self.workload.join()

    def _wait(self, broker: BrokerProcess, point: str, seconds: float) -> None:
        deadline = time.monotonic() + (PATIENCE_S if point else seconds)
        while broker.process.poll() is None and time.monotonic() < deadline:
            if point and self.workload.reached(point):
                return
            time.sleep(TICK)
        if broker.process.poll() is None:
            if point:
                self.complaints.append(f"the point {point} was not reached within {PATIENCE_S:.0f} s")
        elif point and died_at_a_point(broker):
            self.deaths.append(Death(self.count, point))
        else:
            self.complaints.append(f"life {self.count} ended by itself; {broker.log_tail()}")

    def finish(self) -> list[str]:
        """The last life: the workload settles, the broker stops, the store and the workload are looked at."""
        with self._broker() as broker:
            self.workload.settle(broker.wait_until_listening())
            status = broker.stop()
            if status:
                self.complaints.append(f"a clean stop ended with {status}; {broker.log_tail()}")
        self.complaints += [f"checker: {words}" for words in check_directory(self.directory / DATA)]
        return [*self.complaints, *self.workload.check(self.deaths)]


def run_kills(
    directory: Path,
    workload: Workload,
    kills: int,
    seed: int,
    *,
    points: Sequence[str] | None = None,
    show: bool = False,
) -> tuple[list[str], str]:
    """The complaints after so many kills, and a line that says what happened."""
    chance = random.Random(seed)
    ends = workload.points if points is None else tuple(points)
    lives = Lives(directory, workload)
    begun = time.monotonic()
    evidence = Evidence(directory, {"kind": workload.name, "kills": kills, "seed": seed}, workload.records)
    with evidence:
        for number in range(kills):
            if number < len(ends) or (ends and number % 2):
                end = ends[number] if number < len(ends) else chance.choice(ends)
                lives.live(end, chance.randint(1, MOST_PASSES), 0)
            elif chance.random() < SHARE_WHILE_STARTING:
                lives.end_while_starting(chance.uniform(0, MAX_SECONDS_WHILE_STARTING))
            else:
                lives.live("", 1, chance.uniform(0, MAX_SECONDS_OF_TRAFFIC))
            if show and number % PROGRESS_EVERY == PROGRESS_EVERY - 1:
                print(f"{number + 1} of {kills} kills: {workload.summary()}", file=sys.stderr, flush=True)
            if lives.complaints:
                break
        evidence.before_the_drain()
        evidence.complaints += lives.finish()
    line = (
        f"{lives.count} kills in {time.monotonic() - begun:.0f} s: {workload.summary()}; deaths: "
        f"{count_deaths(lives.deaths) or 'none'}; {evidence.summary()}"
    )
    return evidence.complaints, line


def command(program: str, about: str | None, made: Callable[[int], Workload], kills: int) -> int:
    """A command that kills under one workload, made of a seed; its exit status is 1 when it complains."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=about)
    parser.add_argument("--kills", type=int, default=kills)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with scratch_folder(f"{program.rpartition('.')[2]}-") as directory:
        complaints, line = run_kills(directory, made(options.seed), options.kills, options.seed, show=True)
    for complaint in complaints:
        print(complaint)
    print(line)
    return 1 if complaints else 0
