"""A pipeline on a Spark standalone cluster of two workers on this machine, with speculation.

    python -m tests.pipeline.spark.cluster [--rows 1200] [--times 1]

A master and two workers with a core each, all on loopback with ports of their own; the workers have
addresses of their own, too, for Spark runs no copy of a task on a host that has it already. In one
micro-batch a task seals its set and then does not end: Spark runs a copy of it on the other worker, which
seals a set of its own, wins, and is the one that is committed. Then executors are killed: one whose task is
staging, one whose task has sealed; the worker starts another, and the task runs again. Exit status 1 when a
row is lost, doubled or out of order, when a fault did not happen, when nobody speculated, or when a set is
left over.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from amqp_broker.pipeline.java import find_java, wrapper_for
from amqp_broker.pipeline.spark_home import installed_package, spark_home
from tests.crash.broker_process import CHECKOUT
from tests.pipeline.spark.class_archive import short_life
from tests.pipeline.spark.crash_points import World, judge
from tests.pipeline.spark.hooks import FAULT_FILE, taken_file
from tests.pipeline.spark.lives import lives, wait

HOSTS: Final = ("127.0.0.1", "127.0.0.2")
PARTITIONS: Final = 4
FAULTS: Final = ("slow", "executor staging", "executor sealed")
"""In micro-batches 1, 2, ...: each when the one before has happened."""
BATCHES: Final = 8
SECONDS_TO_START: Final = 120.0
SLOW_S: Final = 60.0
POLL_S: Final = 0.05
SPECULATION: Final = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": str(len(HOSTS)),
    # The batch is not to begin with one executor only: there would be no place for a copy.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC",
}


class Cluster:
    """A master and its workers, as processes. Raises TimeoutError when they do not come up."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        package = installed_package()
        assert package is not None
        self._environment = dict(os.environ) | dict(environment) | {
            "JAVA_HOME": str(wrapper_for(find_java())),
            "SPARK_HOME": str(spark_home(package) or package),
            "SPARK_LOCAL_DIRS": str(folder),
            "TMPDIR": str(folder),
            "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={folder} {short_life()}",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC",
        }  # fmt: skip
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""
        try:
            log = self._start("master.Master", "master", HOSTS[0], "--port", "0")
            self.url = self._wait(log, r"Starting Spark master at (spark://\S+)")
            for number, host in enumerate(HOSTS):
                work = str(folder / f"work-{number}")
                more = ("-c", "1", "-m", "600m", "-d", work, self.url)
                log = self._start("worker.Worker", f"worker-{number}", host, *more)
                self._wait(log, r"(Successfully registered with master)")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends all of them, and what they started."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, role: str, name: str, host: str, *arguments: str) -> Path:
        log = self._folder / f"{name}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [
                    str(Path(self._environment["SPARK_HOME"]) / "bin" / "spark-class"),
                    f"org.apache.spark.deploy.{role}", "--host", host, "--webui-port", "0", *arguments,
                ],
                stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=self._environment, cwd=self._folder,
            )  # fmt: skip
        self._processes.append(process)
        return log

    def _wait(self, log: Path, pattern: str) -> str:
        deadline = time.monotonic() + SECONDS_TO_START
        while time.monotonic() < deadline:
            found = re.search(pattern, log.read_text(errors="replace"))
            if found:
                return found[1]
            time.sleep(0.1)
        raise TimeoutError(
            f"expected {pattern!r} in {log.name}, found {log.read_text(errors='replace')[-2_000:]}"
        )


def speculated(attempts: Path) -> list[str]:
    """Tasks that ran more than once: batch-partition."""
    tasks = [entry.name.rpartition("-")[0] for entry in attempts.iterdir()]
    return sorted({task for task in tasks if tasks.count(task) > 1})


def run(folder: Path, rows: int) -> tuple[str, list[str]]:
    """One pipeline: its copies of tasks, and what is wrong with it."""
    attempts = folder / "attempts"
    attempts.mkdir()
    world = World(folder, rows, BATCHES)
    environment = {
        FAULT_FILE: str(world.fault),
        "AMQP_TEST_ATTEMPTS": str(attempts),
        "PYTHONPATH": str(CHECKOUT),
    }
    cluster = None
    try:
        cluster = Cluster(folder, environment)
        print(f"cluster at {cluster.url}: a master and {len(HOSTS)} workers", flush=True)
        world.fill()
        settings = SPECULATION | {f"spark.executorEnv.{name}": value for name, value in environment.items()}
        more = ["--master", cluster.url, "--partitions", str(PARTITIONS)]
        for name, value in settings.items():
            more += ["--set", f"{name}={value}"]
        process = world.launch(*more)
        due = list(FAULTS)
        try:
            while due and process.poll() is None:
                world.plant(due[0], len(FAULTS) - len(due) + 1, process.pid, seconds=SLOW_S)
                while process.poll() is None and not taken_file(world.fault).exists():
                    time.sleep(POLL_S)
                if taken_file(world.fault).exists():
                    due.pop(0)
        finally:
            status = wait(process)
        faults = [] if status == 0 else [f"the driver ended with {status}"]
        if due:
            faults.append(f"these did not happen: {', '.join(due)}")
        copies = speculated(attempts)
        if not copies:
            faults.append("nobody speculated")
        faults += judge(world.output(), rows)
        if left := world.undecided():
            faults.append(f"{left} sets are left without a decision")
        happened = ", ".join(FAULTS[: len(FAULTS) - len(due)])
        return f"{happened}; tasks that ran more than once: {', '.join(copies) or 'none'}", faults
    finally:
        if cluster is not None:
            cluster.close()
        world.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it, so many times."""
    parser = argparse.ArgumentParser(prog="python -m tests.pipeline.spark.cluster", description=__doc__)
    parser.add_argument("--rows", type=int, default=1_200)
    parser.add_argument("--times", type=int, default=1)
    parsed = parser.parse_args(arguments)
    bad = lives("pipeline-cluster", parsed.times, lambda number, folder: run(folder, parsed.rows))
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
