"""The command: `python -m amqp_broker.conformance.load messages`, `transactions`, `halves` or `backlog`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from amqp_broker.bench.settings import BenchSettings, parse_url
from amqp_broker.conformance.load.backlog import passes
from amqp_broker.conformance.load.c_client import CLIENTS, client_of
from amqp_broker.conformance.load.cases import HALVES, MESSAGES, TRANSACTIONS, jobs
from amqp_broker.conformance.load.compiled_tree import compile_copy
from amqp_broker.conformance.load.sitting import Sitting, rows, table
from amqp_broker.testing.broker_process import running

PROGRAM = "python -m amqp_broker.conformance.load"
TABLES = {"messages": MESSAGES, "transactions": TRANSACTIONS, "halves": HALVES}


def make_parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Measures a broker and prints a table in Markdown, or judges a backlog. Exit status 1 if "
        "a message was lost or doubled, or the backlog did not pass.",
    )
    add = parser.add_argument
    add("what", choices=[*TABLES, "backlog"], help="the table, or two million messages within 128 MiB")
    add("--compiled", action="store_true", help="compile a copy of this checkout and measure that")
    add("--tree", type=Path, help="measure this (compiled) copy")
    add("--url", help="measure this broker: amqp://[user:password@]host[:port][/address]; every run uses the "
        "address, whose queue must be empty, where one is given")  # fmt: skip
    add("--pid", type=int, default=0, help="its process, for its processor time and memory")
    add("--client", choices=CLIENTS, default="", help="(default: rawload for messages, else python)")
    add("--seconds", type=float, default=3.0, help="of each run (default %(default)s)")
    add("--runs", type=int, default=3, help="runs of each case, of which the median counts")
    add("--patience", type=float, default=60.0, help="seconds to wait before each run for a quiet machine")
    add("--only", default="", help="only the cases whose name holds this")
    add("--count", type=int, default=2_000_000, help="messages of the backlog (default %(default)s)")
    return parser


@contextmanager
def sitting(options: argparse.Namespace) -> Iterator[tuple[Sitting, Path | None]]:
    """A sitting as the options say, and the copy that the broker runs from."""
    with tempfile.TemporaryDirectory() as folder:
        name = options.client or ("rawload" if options.what == "messages" else "python")
        client = client_of(name, Path(folder))
        if options.url:
            said = parse_url(options.url)
            base = BenchSettings(**said)
            yield Sitting(base, client, options, options.pid, fixed="address" in said), None
            return
        tree = compile_copy(Path(folder) / "tree") if options.compiled and not options.tree else options.tree
        with running("--data", f"{folder}/data", tree=tree) as broker:
            base = BenchSettings(host=broker.host, port=broker.port)
            yield Sitting(base, client, options, broker.pid, fixed=False), tree


def main(argv: list[str]) -> int:
    """Measure and print."""
    options = make_parser().parse_args(argv)
    with sitting(options) as (measured, tree):
        if options.what == "backlog":
            return 0 if passes(measured, options.count) else 1
        ours = not options.url
        found = list(rows(jobs(TABLES[options.what], measured, tree, ours), options.only))
    print(table(found, " ".join([PROGRAM, *argv]), tree is not None))
    return int(any("FAILED" in row[0] or "NOT CLEAN" in row[0] for row in found))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
