"""The command `python -m amqp_broker.conformance.load`: tables of one broker, a comparison, a judgement."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from amqp_broker.bench.run import Client
from amqp_broker.conformance.load.backlog import passes
from amqp_broker.conformance.load.c_client import CLIENTS, client_of
from amqp_broker.conformance.load.cases import TABLES, Case
from amqp_broker.conformance.load.comparison import Rules, compared, heads
from amqp_broker.conformance.load.compiled_tree import compile_copy
from amqp_broker.conformance.load.contestants import Beside, Contestant, Running, Tree
from amqp_broker.conformance.load.gate import HEADS as GATE_HEADS
from amqp_broker.conformance.load.gate import judged
from amqp_broker.conformance.load.peers import PEERS, NotThereError
from amqp_broker.conformance.load.processes import sync_ns
from amqp_broker.conformance.load.tables import HEADS, Row, is_wrong, ours, rows, table

PROGRAM = "python -m amqp_broker.conformance.load"
GATE_S = 0.7


USUAL: Final = Rules()
"""Of a comparison."""


def make_parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Measures a broker and prints a table in Markdown, compares several in turns, or judges "
        "a backlog or some ratios. Exit status 1 if a message was lost or doubled, one is slower, or what "
        "is judged did not pass.",
    )
    kinds = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    for name, cases in TABLES.items():
        one = kinds.add_parser(name, help=f"the table of {name}: {len(cases)} cases, of one broker")
        add_broker(one)
        add_runs(one, seconds=3.0)
        one.add_argument("--runs", type=int, default=3, help="runs of each case; the median counts")
    backlog = kinds.add_parser("backlog", help="two million messages within 128 MiB")
    add_broker(backlog)
    backlog.add_argument("--count", type=int, default=2_000_000, help="messages (default %(default)s)")
    gate = kinds.add_parser("gate", help="what many queues or consumers cost beside one: ratios with limits")
    add_broker(gate)
    add_compare(kinds.add_parser("compare", help="the cases on several brokers, in turns: the ratios"))
    return parser


def add_broker(parser: argparse.ArgumentParser) -> None:
    """Which broker, and which client."""
    add = parser.add_argument
    add("--compiled", action="store_true", help="compile a copy of this checkout and measure that")
    add("--tree", type=Path, help="measure this (compiled) copy")
    add("--url", help="measure this broker: amqp://[user:password@]host[:port][/address]; every run uses the "
        "address, whose queue must be empty, where one is given")  # fmt: skip
    add("--pid", type=int, default=0, help="its process, for its processor time and memory")
    add("--client", choices=CLIENTS, default="", help="(default: rawload for messages, else python)")


def add_runs(parser: argparse.ArgumentParser, seconds: float) -> None:
    """How runs are made."""
    add = parser.add_argument
    add("--seconds", type=float, default=seconds, help="of each run (default %(default)s)")
    add("--patience", type=float, default=60.0, help="seconds to wait before each run for a quiet machine")
    add("--only", default="", help="only the cases whose name holds this")


def add_compare(parser: argparse.ArgumentParser) -> None:
    """The options of a comparison."""
    add = parser.add_argument
    add("trees", nargs="+", metavar="[NAME=]TREE", type=tree_of, help="a checkout, or a compiled copy; the "
        "first is what the others are compared with")  # fmt: skip
    add("--with", dest="beside", action="append", default=[], choices=PEERS, help="this broker as well, "
        "where it can be had; nobody is called slower for it")  # fmt: skip
    add("--tables", default=",".join(TABLES), help="whose cases (default %(default)s)")
    add("--rounds", type=int, default=USUAL.rounds, help="at least so many, each with "
        "a new process of each tree (default %(default)s)")  # fmt: skip
    add("--most-rounds", type=int, default=USUAL.most_rounds, help="and more until it is told, up to so many")
    add("--tolerance", type=float, default=100 * USUAL.tolerance, help="percent by which a rate may be lower")
    add("--turns", type=int, default=USUAL.turns, help="runs of each in a round (default %(default)s)")
    add_runs(parser, seconds=USUAL.seconds)


def tree_of(said: str) -> Tree:
    """`NAME=DIRECTORY`, or a directory whose name is its own. Raises argparse.ArgumentTypeError."""
    name, sign, folder = said.rpartition("=")
    path = Path(folder).resolve()
    if not (path / "amqp_broker").is_dir():
        raise argparse.ArgumentTypeError(f"{folder!r} is no checkout: it has no folder amqp_broker")
    return Tree(name if sign else path.name, path)


def chosen(names: str, only: str) -> dict[str, list[Case]]:
    """The cases of these tables whose name holds `only`."""
    return {name: [case for case in TABLES[name] if only in case.name] for name in names.split(",")}


def client_for(name: str, what: str, folder: str) -> Client:
    """The client that was asked for, or the one that can do it at the least cost."""
    return client_of(name or ("rawload" if what in ("messages", "gate") else "python"), Path(folder))


def compare(options: argparse.Namespace, folder: str) -> tuple[list[str], list[Row]]:
    """The heads and rows of a comparison."""
    with ExitStack() as stack:
        return compare_all([*options.trees, *beside(options.beside, stack)], options, folder)


def beside(names: Sequence[str], stack: ExitStack) -> Iterator[Contestant]:
    """The other brokers that can be had, running until the stack ends."""
    for name in names:
        try:
            yield Beside(PEERS[name], stack.enter_context(ExitStack()))
        except (NotThereError, RuntimeError) as error:
            print(f"{name}: not there: {error}", file=sys.stderr, flush=True)


def compare_all(
    contestants: list[Contestant], options: argparse.Namespace, folder: str
) -> tuple[list[str], list[Row]]:
    """The heads and rows of all cases that were asked for."""
    rules = Rules(
        options.rounds,
        options.most_rounds,
        options.tolerance / 100,
        options.turns,
        options.seconds,
        options.patience,
    )
    found: list[Row] = []
    for what, cases in chosen(options.tables, options.only).items():
        found += compared(cases, contestants, client_for("", what, folder), rules)
    return heads(contestants), found


def titles(options: argparse.Namespace) -> list[str]:
    """What the other brokers are, and how quick the disk is on which they and we sync."""
    with tempfile.TemporaryDirectory() as folder:
        disk = f"a disk that syncs 4 KiB in {sync_ns(Path(folder)) / 1_000:.0f} us"
    others = [PEERS[name] for name in options.beside]
    return [*(f"{peer.title} (accepted: {peer.accepted})" for peer in others), disk]


def main(argv: list[str]) -> int:
    """Measure and print."""
    options = make_parser().parse_args(argv)
    command = " ".join([PROGRAM, *argv])
    with tempfile.TemporaryDirectory() as folder:
        if options.what == "compare":
            columns, found = compare(options, folder)
            print(table(columns, found, command, "; ".join(["in turns", *titles(options)])))
            return int(any(map(is_wrong, found)) or any("SLOWER" in row for row in found))
        compiled = options.compiled and not options.tree
        tree = compile_copy(Path(folder) / "tree") if compiled else options.tree
        broker = Running(options.url, options.pid) if options.url else Tree("", tree)
        client = client_for(options.client, options.what, folder)
        with broker.sitting(client, getattr(options, "seconds", GATE_S)) as sitting:
            if options.what == "backlog":
                return 0 if passes(sitting, options.count) else 1
            if options.what == "gate":
                found = list(judged(sitting))
                print(table(GATE_HEADS, found, command, options.url or ours(tree is not None)))
                return int(any("FAILED" in row for row in found))
            cases = chosen(options.what, options.only)[options.what]
            found = list(rows(cases, sitting, options.runs, options.patience))
        print(table(HEADS, found, command, options.url or ours(tree is not None)))
    return int(any(map(is_wrong, found)))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started ends with it
    raise SystemExit(main(sys.argv[1:]))
