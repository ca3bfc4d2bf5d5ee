"""What the events of messages cost: `python -m tests.benchmarks.events`.

One broker process on disk, one pair that sends and receives through a queue without events and, in turns,
through one with them. Told are the medians of messages a second, of the processor time of the broker for each
message, and how many entries and rows the log has.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from amqp_broker.persistence import EventRange
from amqp_broker.persistence.sqlite import SqliteStore
from tests.crash.broker_process import BrokerProcess

CONFIGURATION: Final = '[[queue]]\npattern = "told"\nevents = true\n'
QUEUES: Final = ("plain", "told")
MODES: Final = {"durable": ["--durable"], "settled": ["--settled"]}
WARM_UP: Final = 5_000


def processor_s(pid: int) -> float:
    """Seconds that a process has used, of its own and the system's time."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def bench(url: str, queue: str, count: int, options: list[str]) -> float:
    """Messages a second of one pair."""
    command = [sys.executable, "-m", "amqp_broker", "bench", url, "--json", "--no-sasl", *options]
    done = subprocess.run(
        [*command, "--address", queue, "--count", str(count)], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    report = found[0] if isinstance(found, list) else found
    return float(report["messages_per_second"])


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.events", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="events-") as folder:
        directory = Path(folder)
        (directory / "broker.toml").write_text(CONFIGURATION)
        with BrokerProcess(
            directory / "data", directory / "broker.log", config=directory / "broker.toml"
        ) as broker:
            url = f"amqp://127.0.0.1:{broker.wait_until_listening()}"
            for mode, arguments in MODES.items():
                rates: dict[str, list[float]] = {queue: [] for queue in QUEUES}
                costs: dict[str, list[float]] = {queue: [] for queue in QUEUES}
                for queue in QUEUES:
                    bench(url, queue, WARM_UP, arguments)
                for number in range(options.rounds):
                    for queue in QUEUES[:: 1 if number % 2 else -1]:
                        before = processor_s(broker.process.pid)
                        rates[queue].append(bench(url, queue, options.count, arguments))
                        used = processor_s(broker.process.pid) - before
                        costs[queue].append(1e6 * used / options.count)
                for queue in QUEUES:
                    rate, cost = statistics.median(rates[queue]), statistics.median(costs[queue])
                    words = "with events" if queue == "told" else "without"
                    print(
                        f"{mode}, {words:12}{rate:9,.0f} messages/s, {cost:6.2f} us of the broker", flush=True
                    )
            broker.stop()
        store = SqliteStore(directory / "data", ballast_bytes=0)
        first, after = store.ask(EventRange())
        ((rows, octets),) = store._connection.execute(
            "SELECT count(*), sum(length(CAST(fields AS BLOB))) FROM event"
        ).fetchall()
        store.close()
        entries = after - first
        print(f"{entries:,} entries in {rows:,} rows, {octets / entries:.1f} octets of fields for each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
