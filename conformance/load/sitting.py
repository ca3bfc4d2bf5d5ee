"""One sitting: a broker, a client, and cases that are measured in turn; a table says what was found."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Callable, Iterator
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import attrs

from amqp_broker.bench.command_line import fresh_run
from amqp_broker.bench.report import combine, is_clean
from amqp_broker.bench.run import Client, measure
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.conformance.load.processes import machine_seconds, processor_seconds, wait_for_quiet

HEADS: Final = (
    "case", "a second (median)", "p50 / p99", "broker us each", "client us each", "from to", "others, cores",
)  # fmt: skip
SMALLEST: Final = 200
Row = list[str]


@attrs.frozen
class Case:
    """One row of a table: its name, what differs from the usual settings, and which figures it shows."""

    name: str
    changes: dict[str, Any]
    rate: str = "messages_per_second"
    latency: str = "latency_us"


class Sitting:
    """Runs cases against one broker; `pid` is its process, 0 where that is not known."""

    def __init__(
        self, base: BenchSettings, client: Client, options: argparse.Namespace, pid: int, fixed: bool
    ) -> None:
        """`fixed`: every run uses the address of `base`; else each has one that no run before has used."""
        self.base = base
        self.client = client
        self.seconds: float = options.seconds
        self.runs: int = options.runs
        self.patience_s: float = options.patience
        self.pid = pid
        self.fixed = fixed
        self._queues = 0

    def settings(self, changes: dict[str, Any], address: str = "") -> BenchSettings:
        """Of the next run."""
        self._queues += 1
        address = address or (self.base.address if self.fixed else f"load-{self._queues}")
        return attrs.evolve(self.base, address=address, run=fresh_run(), **changes)

    def once(self, settings: BenchSettings, **options: Any) -> dict[str, Any]:
        """One run: the report, and what the broker, the client and others took meanwhile."""
        marks: list[tuple[float, float]] = []

        def mark() -> None:
            marks.append((processor_seconds(self.pid) if self.pid else 0.0, machine_seconds()))

        results = measure(settings, self.client, mark=mark, **options)
        report = combine(settings, results)
        broker, machine = (marks[1][place] - marks[0][place] for place in (0, 1))
        each = 1e6 / max(1, report.get("discharged") or report["received"] or report["sent"])
        report["broker_us"] = broker * each
        report["client_us"] = report["cpu_s"] * each
        report["other_cores"] = max(0.0, machine - broker - report["cpu_s"]) / report["elapsed_s"]
        report["clean"] = is_clean(settings, report)
        return report

    def sized(self, changes: dict[str, Any], rate: str) -> dict[str, Any]:
        """The changes with a count that lasts about `seconds`: as some runs before show."""
        name = "transactions" if rate.startswith("transactions") else "count"
        count = fitting = SMALLEST
        for _ in range(3):
            settings = self.settings(changes | {name: count})
            report = self.once(settings)
            fitting = max(SMALLEST, int(report[rate] / settings.pairs * self.seconds))
            if report["elapsed_s"] > self.seconds / 4:
                break
            count = min(fitting, count * 20)
        return changes | {name: fitting}

    def median(self, case: Case) -> Row:
        """The run with the median rate, as a row."""
        changes = self.sized(case.changes, case.rate)
        reports = []
        for _ in range(self.runs):
            wait_for_quiet(self.patience_s)
            reports.append(self.once(self.settings(changes)))
        return row(case, reports)


def row(case: Case, reports: list[dict[str, Any]], shows_latency: bool = True) -> Row:
    """The columns of the table."""
    ordered = sorted(reports, key=lambda report: float(report[case.rate]))
    median = ordered[len(ordered) // 2]
    wrong = "" if all(report["clean"] for report in reports) else " (NOT CLEAN)"
    wrong += " (THE TOOL WAS BUSY)" if median["bottleneck"] else ""
    spread = f"{ordered[0][case.rate]:,.0f} to {ordered[-1][case.rate]:,.0f}" if len(ordered) > 1 else ""
    return [
        case.name + wrong,
        f"{median[case.rate]:,.0f}",
        latency(median[case.latency]) if shows_latency else "",
        f"{median['broker_us']:.1f}",
        f"{median['client_us']:.1f}",
        spread,
        f"{median['other_cores']:.2f}",
    ]


def short(*columns: str) -> Row:
    """A row with only these columns."""
    return [*columns, *[""] * (len(HEADS) - len(columns))]


def latency(found: dict[str, float]) -> str:
    """p50 and p99 as text."""
    return " / ".join(
        f"{found[name]:,.0f} us" if found[name] < 10_000 else f"{found[name] / 1_000:,.0f} ms"
        for name in ("p50", "p99")
    )


def rows(jobs: dict[str, Callable[[], Row]], only: str) -> Iterator[Row]:
    """The rows of the cases whose name holds `only`, each also on standard error when it is known."""
    for name, job in jobs.items():
        if only not in name:
            continue
        try:
            found = job()
        except RuntimeError as error:
            found = short(f"{name}: FAILED: {str(error)[:200]}")
        print(" | ".join(found), file=sys.stderr, flush=True)
        yield found


def table(found: list[Row], command: str, compiled: bool) -> str:
    """Markdown with what a reader needs to judge it."""
    head = (
        f"{date.today().isoformat()}, amqp-broker {version('amqp-broker')} "
        f"({'compiled with mypyc' if compiled else 'pure Python'}), {platform.python_implementation()} "
        f"{platform.python_version()}, {platform.system()} {platform.machine()}, {cores()} cores: `{command}`"
    )
    lines = [list(HEADS), ["---"] * len(HEADS), *found]
    return "\n".join([head, "", *("| " + " | ".join(line) + " |" for line in lines)])


def cores() -> int:
    """How many processors the machine has."""
    return sum(line.startswith("processor") for line in Path("/proc/cpuinfo").read_text().splitlines())
