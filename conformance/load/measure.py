"""Measures our broker: `python -m amqp_broker.conformance.load.measure [--compiled]` prints the
table of docs/explanation/performance.md.

Every case that a single benchmark hides is in it, since each of them has once been bad
while the usual benchmark looked well.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from amqp_broker.conformance.load.compiled_tree import compile_copy
from amqp_broker.conformance.load.idle_connections import open_idle, raise_the_limit_of_files
from amqp_broker.conformance.load.load_client import (
    Load,
    LoadError,
    build,
    client,
    measured_load,
    run_load,
    run_round_trips,
)
from amqp_broker.conformance.load.processes import BrokerProcess, resident_kib, running, wait_for_quiet

CASES: Final = (
    Load(name="settled, 100 B", settled=True),
    Load(name="durable, 100 B", durable=True),
    Load(name="settled, 10 KiB", settled=True, body=10_240),
    Load(name="durable, 10 KiB", durable=True, body=10_240),
    Load(name="durable, window of 1", durable=True, credit=1, in_flight=1),
    Load(name="durable, window of 10", durable=True, credit=10, in_flight=10),
    Load(name="durable, window of 100", durable=True, credit=100, in_flight=100),
    Load(name="settled, 4 pairs", settled=True, pairs=4),
    Load(name="durable, 4 pairs", durable=True, pairs=4),
    Load(name="durable, a disposition for each message", durable=True, settle_each=True),
)
BACKLOG: Final = 500_000
SPARE: Final = 10_000  # more than the credit of a receiver
# Long enough that the settled traffic outlasts the durable one beside it.
BESIDE: Final = Load(name="settled traffic without an end", settled=True, most_seconds=600)


class Bench:
    """One sitting: the broker, the client, and how long each run lasts."""

    def __init__(self, broker: BrokerProcess, program: Path, options: argparse.Namespace) -> None:
        self.broker = broker
        self.program = program
        self.seconds: float = options.seconds
        self.runs: int = options.runs
        self.patience_s: float = options.patience
        self._queues = 0

    def address(self) -> str:
        """A queue that no run before has used."""
        self._queues += 1
        return f"load-{self._queues}"

    def throughput(self, load: Load) -> list[str]:
        """The median run of one case, as the columns of the table."""
        results = []
        for _ in range(self.runs):
            wait_for_quiet(self.patience_s)
            results.append(self.once(load))
        result = sorted(results, key=lambda found: found["rate"])[len(results) // 2]
        rates = [found["rate"] for found in results]
        return columns(load.name, result, f"{min(rates):,.0f} to {max(rates):,.0f}")

    def once(self, load: Load) -> dict[str, Any]:
        """One run of one case."""
        broker = self.broker
        return measured_load(
            self.program, load, self.seconds, broker.host, broker.port, self.address(), broker.pid
        )

    def round_trip(self, load: Load) -> list[str]:
        """200 messages a second, one at a time."""
        wait_for_quiet(self.patience_s)
        broker = self.broker
        trips = run_round_trips(
            self.program, load, int(self.seconds * 200), broker.host, broker.port, self.address(), 200.0
        )
        found = trips["delivery_us" if load.settled else "accept_us"]
        what = "delivered" if load.settled else "outcome"
        return [f"{load.name}: round trip ({what})", "", latency(found), "", "", ""]

    def beside(self, load: Load) -> list[str]:
        """Durable traffic beside settled traffic that takes all it can get."""
        broker, address = self.broker, self.address()
        options = BESIDE.options(10**9)
        target = (self.program, broker.host, broker.port, address)
        with (
            client(target[0], "recv", *target[1:], options) as receiver,
            client(target[0], "send", *target[1:], options),
        ):
            receiver.wait_until_attached()
            time.sleep(0.5)
            result = self.once(load)
        return columns(f"{load.name}, beside saturating settled traffic", result, "")

    def through_backlog(self, load: Load) -> list[str]:
        """Sent and received at once through a queue that holds many messages already.

        The receiver reads the old ones while the sender's stay, so the latency would be the backlog's age. It
        stops a little before the end of the old ones: it reads on to the end of a burst, and the new ones,
        which count from 0 again, would look like duplicates.
        """
        broker, address = self.broker, self.address()
        target = (broker.host, broker.port, address)
        with client(self.program, "send", *target, load.options(BACKLOG)) as sender:
            sender.result(600)
        count = min(BACKLOG - SPARE, int(self.once(load)["rate"] * self.seconds))
        result = run_load(self.program, load, count, *target, broker.pid)
        row = columns(f"{load.name}, through a backlog of {BACKLOG:,}", result, "")
        return [*row[:2], "", *row[3:]]


def latency(found: dict[str, float]) -> str:
    """p50 and p99 as text."""
    return " / ".join(
        f"{found[name]:,.0f} us" if found[name] < 10_000 else f"{found[name] / 1_000:,.0f} ms"
        for name in ("p50", "p99")
    )


def columns(name: str, result: dict[str, Any], spread: str) -> list[str]:
    """One row of the table."""
    wrong = result["gaps"] + result["duplicates"]
    return [
        name + (f" ({wrong} LOST OR DOUBLE)" if wrong else ""),
        f"{result['rate']:,.0f}",
        latency(result["latency_us"]),
        f"{result['broker_us']:.1f}",
        spread,
        f"{result['other_cores']:.2f}",
    ]


def idle_row(count: int, tree: Path | None) -> list[str]:
    """KiB that an idle connection with two sessions costs."""
    raise_the_limit_of_files()
    with running("--memory", tree=tree) as broker:
        first = [open_idle(broker.host, broker.port, number) for number in range(20)]
        before = resident_kib(broker.pid)
        idle = [open_idle(broker.host, broker.port, number) for number in range(20, 20 + count)]
        time.sleep(0.5)
        kib = (resident_kib(broker.pid) - before) / count
        for connected in first + idle:
            connected.close()
    return [f"an idle connection with two sessions (of {count:,})", f"{kib:.1f} KiB", "", "", "", ""]


def start_row(tree: Path | None) -> list[str]:
    """From the command to `listening on`, with a fresh store; the first start warms the file cache."""
    times = []
    for _ in range(6):
        with (
            tempfile.TemporaryDirectory() as folder,
            running("--data", f"{folder}/data", tree=tree) as broker,
        ):
            times.append(broker.started_in_s)
    return ["from the command to listening", f"{statistics.median(times[1:]):.2f} s", "", "", "", ""]


def rows(bench: Bench, options: argparse.Namespace) -> list[list[str]]:
    """All rows that the broker of this sitting gives."""
    durable, settled = Load(name="durable, 100 B", durable=True), Load(name="settled, 100 B", settled=True)
    jobs: list[tuple[str, Callable[[], list[str]]]] = [
        *((load.name, partial(bench.throughput, load)) for load in CASES),
        ("round trip, settled", partial(bench.round_trip, settled)),
        ("round trip, durable", partial(bench.round_trip, durable)),
        ("durable beside settled", partial(bench.beside, durable)),
        ("durable through a backlog", partial(bench.through_backlog, durable)),
    ]
    found = []
    for name, job in jobs:
        if options.only and options.only not in name:
            continue
        try:
            found.append(job())
        except LoadError as error:
            found.append([f"{name}: FAILED: {str(error)[:200]}", "", "", "", "", ""])
        print(" | ".join(found[-1]), file=sys.stderr, flush=True)
    return found


def table(found: list[list[str]], compiled: bool) -> str:
    """Markdown with what a reader needs to judge it."""
    command = "python -m amqp_broker.conformance.load.measure" + (" --compiled" if compiled else "")
    head = (
        f"{date.today().isoformat()}, amqp-broker {version('amqp-broker')} "
        f"({'compiled with mypyc' if compiled else 'pure Python'}), {platform.python_implementation()} "
        f"{platform.python_version()}, {platform.system()} {platform.machine()}, {cores()} cores: `{command}`"
    )
    names = [
        "case",
        "messages/s (median)",
        "latency p50 / p99",
        "broker us/message",
        "from to",
        "others, cores",
    ]
    lines = [head, "", "| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in found])


def cores() -> int:
    """How many processors the machine has."""
    return sum(line.startswith("processor") for line in Path("/proc/cpuinfo").read_text().splitlines())


def main(argv: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--compiled", action="store_true", help="compile a copy of this checkout and measure that")
    add("--tree", type=Path, help="measure this (compiled) copy")
    add("--seconds", type=float, default=3.0, help="of each run (default %(default)s)")
    add("--runs", type=int, default=3, help="runs of each case, of which the median counts")
    add("--patience", type=float, default=60.0, help="seconds to wait before each run for a quiet machine")
    add("--idle", type=int, default=1_000, help="idle connections (0: leave them out)")
    add("--only", default="", help="only the cases whose name holds this")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        tree: Path | None = options.tree
        if options.compiled and tree is None:
            tree = compile_copy(Path(folder) / "tree")
        with running("--data", f"{folder}/data", tree=tree) as broker:
            found = rows(Bench(broker, program, options), options)
        if options.idle and not options.only:
            found += [idle_row(options.idle, tree), start_row(tree)]
    print(table(found, options.compiled or tree is not None))
    return int(any("FAILED" in row[0] or "LOST" in row[0] for row in found))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
