"""`python -m tests.crash.kills --kills 200 --seed N`: kill -9 of the broker at random moments under load.

Some kills hit a broker that is starting (and so recovering), some the first milliseconds of its traffic, the
others any moment. At the end everything is drained, and the whole history is checked.

With `--transactions` there are controllers beside the plain clients. Some lives end at a named point of a
discharge, half of the other kills come within milliseconds of one, and how each discharge ended whose answer
was lost is asked after the restart.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from amqp_broker.persistence.fault_points import ENVIRONMENT_VARIABLE
from tests.crash.broker_process import NotListening
from tests.crash.deaths import DISCHARGE_POINTS
from tests.crash.history import count_events
from tests.crash.scenario import TRANSACTIONS, Load, Scenario

SHARE_WHILE_STARTING: Final = 0.1
SHARE_IN_FIRST_MILLISECONDS: Final = 0.3
MAX_SECONDS_WHILE_STARTING: Final = 0.6
MAX_SECONDS_OF_TRAFFIC: Final = 0.6
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
            time.sleep(chance.uniform(0, MAX_SECONDS_OF_TRAFFIC))
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


def die_at_a_point(scenario: Scenario, chance: random.Random) -> None:
    """One life that ends at a random pass of a named point of a discharge, or is killed in the end."""
    point = chance.choice(DISCHARGE_POINTS)
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
    directory: Path, kills: int, seed: int, *, load: Load | None = None, show: bool = True
) -> tuple[list[str], str]:
    """The complaints after `kills` kills, and lines that say what happened."""
    chance = random.Random(seed)
    scenario = Scenario(directory, seed, load or Load())
    started = time.monotonic()
    number = 0
    for number in range(1, kills + 1):
        if scenario.load.transactional and chance.random() < SHARE_AT_A_POINT:
            die_at_a_point(scenario, chance)
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
            )
        if scenario.complaints:
            break
    complaints = scenario.finish()
    if scenario.load.transactional and number >= KILLS_THAT_REACH_ALL:
        missed = set(DISCHARGE_POINTS) - {death.point for death in scenario.deaths}
        complaints += [f"no broker ever died at {point}" for point in sorted(missed)]
    counts = count_events(scenario.history.events)
    told = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
    seconds = time.monotonic() - started
    line = f"{number} kills in {seconds:.0f} s: {told}; {len(complaints)} complaints, seed {seed}"
    if scenario.load.transactional:
        line += f"\n{scenario.count_transactions()}"
    return complaints, line


def main() -> int:
    """The command; its exit status is 1 when there are complaints."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument(
        "--data", type=Path, help="keep everything in this new directory instead of a temporary one"
    )
    parser.add_argument("--transactions", action="store_true", help="with controllers and their discharges")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with TemporaryDirectory(prefix="kills-") as temporary:
        directory = options.data or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        complaints, line = run_kills(
            directory, options.kills, options.seed, load=TRANSACTIONS if options.transactions else None
        )
    for complaint in complaints:
        print(complaint)
    print(line)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
