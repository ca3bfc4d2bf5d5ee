"""Measures transactions: `python -m amqp_broker.conformance.load.transactions [--compiled]` prints the
rows of docs/explanation/performance.md.

`amqp-broker bench --transactions` is the client: it takes about 70 us of processor time for a transaction of
ten postings and ten retirements, a fraction of what any broker takes, so that no C client is needed. It
verifies every run: what committed is in the queues once, and nothing else.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import attrs

from amqp_broker.bench.command_line import measure
from amqp_broker.bench.settings import BenchSettings
from amqp_broker.bench.transaction_report import combine, is_clean
from amqp_broker.conformance.load.compiled_tree import compile_copy
from amqp_broker.conformance.load.processes import (
    BrokerProcess,
    machine_seconds,
    processor_seconds,
    running,
    wait_for_quiet,
)

# name, settings, and the share of the transactions that one connection makes: fewer where each waits.
CASES: Final[tuple[tuple[str, dict[str, Any], float], ...]] = (
    ("10 postings, one at a time", {"live": 1}, 0.1),
    ("10 postings and 10 retirements, one at a time", {"retire": True, "live": 1}, 0.1),
    ("10 postings, 16 live", {"live": 16}, 1.0),
    ("10 postings and 10 retirements, 16 live", {"retire": True, "live": 16}, 1.0),
    ("the same, settled by the client before", {"retire": True, "retire_settled": True, "live": 16}, 1.0),
    ("the same, every fourth rolled back", {"retire": True, "live": 16, "roll_back_every": 4}, 1.0),
    ("10 and 10, 4 connections, one at a time each", {"retire": True, "live": 1, "pairs": 4}, 0.1),
    ("10 and 10, 4 connections, 16 live each", {"retire": True, "live": 16, "pairs": 4}, 0.25),
    ("1 posting and 1 retirement, 16 live", {"retire": True, "live": 16, "in_each": 1}, 1.0),
)
HEADS: Final = ("durable transactions of", "transactions/s (median)", "discharge p50 / p99")
MORE_HEADS: Final = ("broker us/transaction", "from to", "others, cores")


def once(broker: BrokerProcess, settings: BenchSettings) -> dict[str, Any]:
    """One run: the report, the broker's processor time for a transaction, and what others took meanwhile."""
    marks: list[tuple[float, float]] = []
    results = measure(settings, mark=lambda: marks.append((processor_seconds(broker.pid), machine_seconds())))
    report = combine(settings, results)
    (cpu, machine), (cpu_end, machine_end) = marks
    tool = sum(result["cpu_s"] for result in results.values())
    report["broker_us"] = (cpu_end - cpu) * 1e6 / max(1, report["discharged"])
    report["other_cores"] = max(0.0, machine_end - machine - (cpu_end - cpu) - tool) / report["elapsed_s"]
    report["clean"] = is_clean(settings, report)
    return report


def row(name: str, reports: list[dict[str, Any]]) -> list[str]:
    """The median run of one case, as the columns of the table."""
    rates = [report["transactions_per_second"] for report in reports]
    median = sorted(reports, key=lambda report: report["transactions_per_second"])[len(reports) // 2]
    latency = " / ".join(f"{median['discharge_us'][point]:,.0f} us" for point in ("p50", "p99"))
    wrong = "" if all(report["clean"] for report in reports) else " (NOT CLEAN)"
    wrong += " (THE TOOL WAS BUSY)" if median["bottleneck"] else ""
    return [
        name + wrong,
        f"{statistics.median_high(rates):,.0f}",
        latency,
        f"{median['broker_us']:.0f}",
        f"{min(rates):,.0f} to {max(rates):,.0f}",
        f"{median['other_cores']:.2f}",
    ]


def main(argv: list[str]) -> int:
    """Measure and print; 1 when a run was not clean."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--compiled", action="store_true", help="compile a copy of this checkout and measure that")
    add("--tree", type=Path, help="measure this (compiled) copy")
    add("--transactions", type=int, default=20_000, help="of a pipelined run (default %(default)s)")
    add("--runs", type=int, default=3, help="runs of each case, of which the median counts")
    add("--patience", type=float, default=60.0, help="seconds to wait before each run for a quiet machine")
    add("--only", default="", help="only the cases whose name holds this")
    options = parser.parse_args(argv)
    rows = [list(HEADS + MORE_HEADS), ["---"] * len(HEADS + MORE_HEADS)]
    with tempfile.TemporaryDirectory() as folder:
        tree: Path | None = options.tree
        if options.compiled and tree is None:
            tree = compile_copy(Path(folder) / "tree")
        with running("--data", f"{folder}/data", tree=tree) as broker:
            settings = BenchSettings(host=broker.host, port=broker.port, durable=True)
            for place, (name, changes, share) in enumerate(CASES):
                if options.only not in name:
                    continue
                count = max(1, int(options.transactions * share))
                reports = []
                for run in range(options.runs):
                    wait_for_quiet(options.patience)
                    case = attrs.evolve(
                        settings,
                        transactions=count,
                        address=f"transactions-{place}-{run}",
                        run=place * 100 + run + 1,
                        **changes,
                    )
                    reports.append(once(broker, case))
                rows.append(row(name, reports))
                print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    print("\n".join("| " + " | ".join(columns) + " |" for columns in rows))
    return int(any("NOT CLEAN" in columns[0] for columns in rows))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
