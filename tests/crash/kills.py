"""`python -m tests.crash.kills --kills 200 --seed N`: kill -9 of the broker at random moments under load.

Some kills hit a broker that is starting (and so recovering), some the first milliseconds of its traffic, the
others any moment. At the end everything is drained, and the whole history is checked.

With `--transactions` there are controllers beside the plain clients. Some lives end at a named point of a
discharge, half of the other kills come within milliseconds of one, and how each discharge ended whose answer
was lost is asked after the restart.

With `--everything` there are besides these the clients of half_kills, set_kills and sequenced_kills in each
life, and lives end at their named points, too. `--beside 4` lets four processes compute on the same machine.

A run that complains keeps its history and its store in a folder, which it names (tests/crash/evidence.py).
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from amqp_broker.persistence.fault_points import ENVIRONMENT_VARIABLE
from tests.crash.broker_process import NotListening
from tests.crash.busy import busy_processes
from tests.crash.evidence import scratch_folder
from tests.crash.half_kills import HalfWorkload
from tests.crash.history import count_events
from tests.crash.scenario import TRANSACTIONS, Load, Scenario
from tests.crash.sequenced_kills import SequencedWorkload
from tests.crash.set_kills import SetWorkload
from tests.crash.workload import Workload

SHARE_WHILE_STARTING: Final = 0.1
SHARE_IN_FIRST_MILLISECONDS: Final = 0.3
MAX_SECONDS_WHILE_STARTING: Final = 0.6
MAX_SECONDS_OF_TRAFFIC: Final = 0.6
MAX_SECONDS_OF_EVERYTHING: Final = 4.0
SHARE_AT_A_POINT: Final = 0.3
MOST_PASSES: Final = 12
SECONDS_TO_REACH: Final = 20.0
KILLS_THAT_REACH_ALL: Final = 200
"""After so many kills every point of a discharge has had its death."""

SHARE_AT_A_DISCHARGE: Final = 0.5
MAX_SECONDS_AFTER_A_DISCHARGE: Final = 0.006
PROGRESS_EVERY: Final = 10


def kill_once(scenario: Scenario, chance: random.Random) -> None:
    """One life that ends with a kill at a random moment."""
    broker = scenario.start()
    try:
        moment = chance.random()
        if moment < SHARE_WHILE_STARTING:
            time.sleep(chance.uniform(0, MAX_SECONDS_WHILE_STARTING))
            return
        before = len(scenario.history.events)
        try:
            clients = scenario.clients(broker.wait_until_listening())
        except NotListening as error:
            scenario.complaints.append(f"life {scenario.lives}: {error}")
            return
        scenario.wait_for_traffic(before)
        if moment < SHARE_WHILE_STARTING + SHARE_IN_FIRST_MILLISECONDS:
            time.sleep(chance.choice((0.0, chance.uniform(0, 0.003), chance.uniform(0, 0.03))))
        else:
            most = MAX_SECONDS_OF_EVERYTHING if scenario.others else MAX_SECONDS_OF_TRAFFIC
            time.sleep(chance.uniform(0, most))
        if scenario.load.transactional and chance.random() < SHARE_AT_A_DISCHARGE:
            scenario.wait_for_commit()
            time.sleep(chance.uniform(0, MAX_SECONDS_AFTER_A_DISCHARGE))
        scenario.check_alive(clients)
        if broker.process.poll() is not None:
            scenario.complaints.append(f"life {scenario.lives} ended by itself; {broker.log_tail()}")
        broker.kill()
        scenario.join(clients)
    finally:
        broker.kill()


def die_at_a_point(scenario: Scenario, chance: random.Random, point: str) -> None:
    """One life that ends at a random pass of a named point, or is killed in the end."""
    broker = scenario.start({ENVIRONMENT_VARIABLE: f"{point}:{chance.randint(1, MOST_PASSES)}"})
    try:
        clients = scenario.clients(broker.wait_until_listening())
        if not scenario.wait_for_death(broker, point, SECONDS_TO_REACH):
            scenario.check_alive(clients)
        broker.kill()
        scenario.join(clients)
    except NotListening as error:
        scenario.complaints.append(f"life {scenario.lives}: {error}")
    finally:
        broker.kill()


def run_kills(
    directory: Path,
    kills: int,
    seed: int,
    *,
    load: Load | None = None,
    others: Sequence[Workload] = (),
    show: bool = True,
) -> tuple[list[str], str]:
    """The complaints after `kills` kills, and lines that say what happened."""
    scenario = Scenario(directory, seed, load or Load(), others=others)
    started = time.monotonic()
    kinds = {"transactions": scenario.load.transactional, "others": [other.name for other in others]}
    with scenario.evidence(kills=kills, **kinds) as evidence:
        number = _kill(scenario, kills, random.Random(seed), show=show)
        evidence.before_the_drain()
        evidence.complaints += scenario.finish()
        if number >= KILLS_THAT_REACH_ALL:
            missed = scenario.missed_discharges()
            evidence.complaints += [f"no broker ever died at {point}" for point in missed]
    counts = count_events(scenario.history.events)
    told = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
    lines = [f"{number} kills in {time.monotonic() - started:.0f} s: {told}; {evidence.summary()}"]
    if scenario.load.transactional:
        lines.append(scenario.count_transactions())
    lines += [f"{other.name}: {other.summary()}" for other in others]
    return evidence.complaints, "\n".join(lines)


def _kill(scenario: Scenario, kills: int, chance: random.Random, *, show: bool) -> int:
    """So many lives, unless there is something to complain of; how many they were."""
    started = time.monotonic()
    points = scenario.points
    number = at_points = 0
    for number in range(1, kills + 1):
        if points and chance.random() < SHARE_AT_A_POINT:
            die_at_a_point(scenario, chance, points[at_points % len(points)])
            at_points += 1
        else:
            kill_once(scenario, chance)
        if show and number % PROGRESS_EVERY == 0:
            counts = count_events(scenario.history.events)
            print(
                f"{number} of {kills} kills in {time.monotonic() - started:.0f} s: "
                f"{counts['accepted']:,} accepted, {counts['settled']:,} settled, "
                f"{len(scenario.history.steps):,} steps of transactions, "
                f"{len(scenario.complaints)} complaints",
                file=sys.stderr,
                flush=True,
            )
        if scenario.complaints:
            break
    return number


def main() -> int:
    """The command; its exit status is 1 when there are complaints."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--transactions", action="store_true", help="with controllers and their discharges")
    parser.add_argument(
        "--everything",
        action="store_true",
        help="with controllers, half messages, sets of them and streams, in each life of one broker",
    )
    parser.add_argument(
        "--beside", type=int, default=0, metavar="BUSY", help="so many processes that do nothing but compute"
    )
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    load = TRANSACTIONS if options.transactions or options.everything else None
    others: list[Workload] = []
    if options.everything:
        others = [HalfWorkload(options.seed), SetWorkload(options.seed), SequencedWorkload(options.seed)]
    with scratch_folder("kills-") as directory, busy_processes(options.beside):
        complaints, line = run_kills(directory, options.kills, options.seed, load=load, others=others)
    for complaint in complaints:
        print(complaint)
    print(line)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
