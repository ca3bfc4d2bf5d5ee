"""Figures of one broker as a table in Markdown."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Final

from amqp_broker.conformance.load.cases import Case
from amqp_broker.conformance.load.processes import wait_for_quiet
from amqp_broker.conformance.load.sitting import Report, Sitting

HEADS: Final = (
    "case", "a second (median)", "p50 / p99", "broker us each", "client us each", "from to", "others, cores",
)  # fmt: skip
Row = list[str]


def rows(cases: Iterable[Case], sitting: Sitting, runs: int, patience_s: float) -> Iterable[Row]:
    """A row for each case, each also on standard error when it is known."""
    for case in cases:
        if not case.fits(sitting):
            continue
        try:
            changes = case.sized(sitting)
            reports = []
            for _ in range(runs):
                wait_for_quiet(patience_s)
                reports.append(case.once(sitting, changes))
            found = row(case, reports)
        except RuntimeError as error:
            found = failed(case, error)
        print(" | ".join(found), file=sys.stderr, flush=True)
        yield found


def row(case: Case, reports: list[Report]) -> Row:
    """The columns of the table: of the run with the median figure."""
    ordered = sorted(reports, key=lambda report: float(report[case.rate]))
    median = ordered[len(ordered) // 2]
    spread = f"{number(ordered[0][case.rate])} to {number(ordered[-1][case.rate])}"
    return [
        case.name + remarks(reports, median),
        number(median[case.rate]),
        latency(median[case.latency]) if case.latency in median else "",
        *(f"{median[name]:.1f}" if name in median else "" for name in ("broker_us", "client_us")),
        spread if len(ordered) > 1 else "",
        f"{median['other_cores']:.2f}" if "other_cores" in median else "",
    ]


def remarks(reports: Sequence[Report], median: Report) -> str:
    """What a reader has to know before a figure is believed."""
    wrong = "" if all(report["clean"] for report in reports) else " (NOT CLEAN)"
    return wrong + (" (THE TOOL WAS BUSY)" if median.get("bottleneck") else "")


def failed(case: Case, error: RuntimeError) -> Row:
    """A row that says why there are no figures."""
    return [f"{case.name}: FAILED: {str(error)[:200]}"]


def is_wrong(found: Row) -> bool:
    """Whether a run failed, or lost or doubled a message."""
    return "FAILED" in found[0] or "NOT CLEAN" in found[0]


def number(value: float) -> str:
    """With as many digits as say something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def latency(found: dict[str, float]) -> str:
    """p50 and p99 as text."""
    return " / ".join(
        f"{found[name]:,.0f} us" if found[name] < 10_000 else f"{found[name] / 1_000:,.0f} ms"
        for name in ("p50", "p99")
    )


def table(heads: Sequence[str], found: list[Row], command: str, what: str) -> str:
    """Markdown with what a reader needs to judge it; short rows are filled up."""
    head = (
        f"{date.today().isoformat()}, {what}, {platform.python_implementation()} "
        f"{platform.python_version()}, {platform.system()} {platform.machine()}, {cores()} cores: `{command}`"
    )
    full = [line + [""] * (len(heads) - len(line)) for line in found]
    lines = [list(heads), ["---"] * len(heads), *full]
    return "\n".join([head, "", *("| " + " | ".join(line) + " |" for line in lines)])


def ours(compiled: bool) -> str:
    """This broker and how it is built, for the head of a table."""
    return f"amqp-broker {version('amqp-broker')} ({'compiled with mypyc' if compiled else 'pure Python'})"


def cores() -> int:
    """How many processors the machine has."""
    return sum(line.startswith("processor") for line in Path("/proc/cpuinfo").read_text().splitlines())
