"""One data directory, the lives of a broker on it under some workloads at once, and how each of them ends.

The first lives end at the named points of the workloads, one each, and from then on every second one does.
The others end at any moment: some while the broker starts (and so recovers), some in the first milliseconds
of its traffic, and half of them within milliseconds of a commit where there are such. In a last life the
workloads settle everything, and then say what is wrong.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from amqp_broker.persistence.fault_points import ENVIRONMENT_VARIABLE, POINTS
from amqp_broker.persistence.sqlite import verify_directory
from amqp_broker.testing.blocking_peer import PATIENCE_S
from tests.crash.broker_process import BrokerProcess, NotListening
from tests.crash.deaths import Death, count_deaths, died_at_a_point
from tests.crash.evidence import DATA, LOG, Evidence, Record
from tests.crash.workload import Workload

MOST_PASSES: Final = 12
SHARE_WHILE_STARTING: Final = 0.1
SHARE_IN_FIRST_MILLISECONDS: Final = 0.3
SHARE_AT_A_COMMIT: Final = 0.5
MAX_SECONDS_WHILE_STARTING: Final = 0.6
MAX_SECONDS_OF_TRAFFIC: Final = 1.0
"""For each workload that has clients."""
MAX_SECONDS_AFTER_A_COMMIT: Final = 0.006
SECONDS_TO_FIRST_RECORD: Final = 20.0
PROGRESS_EVERY: Final = 10
TICK: Final = 0.002
SHORT_TICK: Final = 0.000_2

ALWAYS: Final = ("apply", "commit", "checkpoint", "spool")
"""Points, by the word before the dot, that any load passes."""
STARTING: Final = ("migration",)
"""Those that only the first life of a store passes."""
OUT_OF_REACH: Final = {
    "backup": "nobody asks for a backup: tests/crash/store and tests/crash/backups.py kill there",
    "body_file": "needs 64 KiB of large bodies in one commit: tests/crash/store kills there",
    "compact": "needs a file that is mostly free, or the command: tests/crash/store kills there",
    "compaction": "needs a large segment of which little is live, which load makes by chance only: "
    "tests/crash/store kills there",
    "cursor": "no client moves one: tests/crash/store/test_plan_points.py kills there",
    "expire": "needs half messages or events that are too old: tests/crash/store kills there",
    "forget": "needs a million outcomes or an age of days: tests/crash/store kills there",
    "log": "only `amqp-broker check --give-up-log` passes there, on a closed store",
    "quarantine": "needs a damaged message: tests/crash/store kills there",
    "restore": "a command on a backup: tests/persistence/test_backup.py kills there",
    "retain": "no queue retains: tests/crash/store/test_plan_points.py kills there",
    "salvage": "a command on a closed store: tests/persistence/test_salvage.py kills there",
    "spread": "needs commits of small messages for many queues: tests/crash/store kills there",
    "sweep": "needs a queue that was deleted, and a store that rests: tests/crash/store kills there",
}
"""Points that no workload can reach, with the reason."""


def wait_until(reached: Callable[[], bool]) -> None:
    """Until something is recorded, or too much time has passed."""
    deadline = time.monotonic() + SECONDS_TO_FIRST_RECORD
    while not reached() and time.monotonic() < deadline:
        time.sleep(SHORT_TICK)


class Lives:
    """The lives so far, and complaints that are not those of a workload."""

    def __init__(self, directory: Path, workloads: Sequence[Workload]) -> None:
        self.directory = directory
        self.workloads = workloads
        self.deaths: list[Death] = []
        self.count = 0
        self._complaints: list[str] = []
        self._config: Path | None = None
        if configuration := "".join(workload.configuration for workload in workloads):
            self._config = directory / "broker.toml"
            self._config.write_text(configuration)

    @property
    def complaints(self) -> list[str]:
        """What is wrong already, in whatever."""
        return [*self._complaints, *(words for each in self.workloads for words in each.complaints)]

    @property
    def points(self) -> tuple[str, ...]:
        """Those of all workloads."""
        return tuple(dict.fromkeys(point for each in self.workloads for point in each.points))

    def records(self) -> Iterator[Record]:
        """What each client of each kind did and was told."""
        for each in self.workloads:
            yield from ({"clients": each.name, **record} for record in each.records())

    def _broker(self, end: str = "") -> BrokerProcess:
        environment = {ENVIRONMENT_VARIABLE: end} if _point_of(end) in POINTS else {}
        data, log = self.directory / DATA, self.directory / LOG
        return BrokerProcess(data, log, environment=environment, config=self._config)

    def live_until_any_moment(self, chance: random.Random) -> None:
        """A life that ends at a random moment."""
        moment = chance.random()
        if moment < SHARE_WHILE_STARTING:
            self.count += 1
            with self._broker():
                time.sleep(chance.uniform(0, MAX_SECONDS_WHILE_STARTING))
            return
        before = self._recorded()

        def reached() -> bool:
            wait_until(lambda: self._recorded() > before)
            if moment < SHARE_WHILE_STARTING + SHARE_IN_FIRST_MILLISECONDS:
                time.sleep(chance.choice((0.0, chance.uniform(0, 0.003), chance.uniform(0, 0.03))))
            else:
                kinds = sum(bool(each.clients) for each in self.workloads)
                time.sleep(chance.uniform(0, MAX_SECONDS_OF_TRAFFIC * kinds))
            commits = [each.awaited_commit() for each in self.workloads]
            for sent in filter(None, commits if chance.random() < SHARE_AT_A_COMMIT else []):
                wait_until(sent)
                time.sleep(chance.uniform(0, MAX_SECONDS_AFTER_A_COMMIT))
            return True

        self.live(until=reached)

    def _recorded(self) -> int:
        return sum(each.recorded() for each in self.workloads)

    def live(self, end: str = "", until: Callable[[], bool] = lambda: False) -> None:
        """A life that ends at a point, `name` or `name:passes`, or as soon as `until` is true."""
        self.count += 1
        with self._broker(end) as broker:
            try:
                port = broker.wait_until_listening()
            except NotListening as error:
                if end and died_at_a_point(broker):
                    self.deaths.append(Death(self.count, _point_of(end), starting=True))
                else:
                    self._complaints.append(f"life {self.count}: {error}")
                return
            for each in self.workloads:
                each.start(port, self.count, end)
            self._wait(broker, end, until)
            broker.kill()
            for each in self.workloads:
                each.join()

    def _wait(self, broker: BrokerProcess, end: str, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        reached = False
        while not reached and broker.process.poll() is None and time.monotonic() < deadline:
            reached = any(each.reached(end) for each in self.workloads) or until()
            time.sleep(0 if reached else TICK)
        if broker.process.poll() is None:
            if not reached:
                self._complaints.append(f"{end or 'the moment'} was not reached within {PATIENCE_S:.0f} s")
            for each in self.workloads:
                each.check_alive()
        elif end and died_at_a_point(broker):
            self.deaths.append(Death(self.count, _point_of(end)))
        else:
            self._complaints.append(f"life {self.count} ended by itself; {broker.log_tail()}")

    def finish(self) -> list[str]:
        """The last life: the workloads settle, the broker stops, the store and the workloads are looked at.
        All complaints.
        """
        self.count += 1
        with self._broker() as broker:
            port = broker.wait_until_listening()
            for each in self.workloads:
                each.settle(port, self.count)
            status = broker.stop()
            if status:
                self._complaints.append(f"a clean stop ended with {status}; {broker.log_tail()}")
        data = self.directory / DATA
        self._complaints += [f"checker: {words}" for words in verify_directory(data)]
        judged = [words for each in self.workloads for words in each.check(self._deaths_of(each), data)]
        return [*self.complaints, *judged]

    def _deaths_of(self, workload: Workload) -> list[Death]:
        """Those that may not have been on the way of others."""
        others = [each for each in self.workloads if each is not workload]
        return [death for death in self.deaths if all(death.point not in each.points for each in others)]


def _point_of(end: str) -> str:
    return end.partition(":")[0]


def run_kills(
    directory: Path,
    workloads: Sequence[Workload],
    kills: int,
    seed: int,
    *,
    points: Sequence[str] | None = None,
    show: bool = False,
) -> tuple[list[str], str]:
    """The complaints after so many kills, and lines that say what happened. `points` are ends of lives, with
    None those of the workloads; a point without passes ends a life at any pass.
    """
    chance = random.Random(seed)
    lives = Lives(directory, workloads)
    ends = lives.points if points is None else tuple(points)
    begun = time.monotonic()
    facts = {"kills": kills, "of": [each.name for each in workloads], "seed": seed}
    with Evidence(directory, facts, lives.records) as evidence:
        for number in range(kills):
            if number < len(ends) or (ends and number % 2):
                end = ends[number] if number < len(ends) else chance.choice(ends)
                lives.live(f"{end}:{chance.randint(1, MOST_PASSES)}" if end in POINTS else end)
            else:
                lives.live_until_any_moment(chance)
            if show and number % PROGRESS_EVERY == PROGRESS_EVERY - 1:
                told = ", ".join(f"{each.recorded():,} of {each.name}" for each in workloads)
                print(f"{number + 1} of {kills} kills: {told}", file=sys.stderr, flush=True)
            if lives.complaints:
                break
        evidence.before_the_drain()
        kills = lives.count
        evidence.complaints += lives.finish()
    ended = count_deaths(lives.deaths) or "none at a point"
    lines = [f"{kills} kills in {time.monotonic() - begun:.0f} s, {ended}"]
    lines += [f"{each.name}: {each.summary()}" for each in workloads]
    return evidence.complaints, "\n".join([*lines, evidence.summary()])
