"""`amqp-broker bench URL`: what it takes, the runs that are asked for, progress, and the report."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from typing import Any, Final

import attrs

from amqp_broker.bench.report import as_text, combine, is_clean
from amqp_broker.bench.run import Client, Worker, measure, python_client
from amqp_broker.bench.settings import BenchSettings, parse_url

DESCRIPTION = """Sends and receives messages through an AMQP 1.0 broker and reports the rate, latencies,
losses, duplicates and order. The queue must exist (or be made on first use) and should be empty. Exit status:
0 when every message came once and in order, 1 when not, 2 for a wrong command. With --transactions it
measures declare, postings, retirements and discharge, and looks afterwards what is in the queues."""

OPTIONS: Final = {field.name: field for field in attrs.fields(BenchSettings) if field.metadata}


def run(argv: list[str], client: Client = python_client) -> int:
    """Run the command with these arguments; the exit status."""
    try:
        options = make_parser().parse_args(argv)
        runs = runs_of(options)
    except ValueError as error:
        print(f"amqp-broker bench: {error}", file=sys.stderr)
        return 2
    except SystemExit as left:
        return int(left.code or 0)
    progress = sys.stderr.isatty() or options.progress
    status = 0
    reports = []
    for settings in runs:
        try:
            results = measure(settings, client, progress=shown(settings) if progress else unseen)
        except RuntimeError as error:
            print(f"amqp-broker bench: {error}", file=sys.stderr)
            return 1
        if progress:
            print(file=sys.stderr)
        report = combine(settings, results)
        reports.append(report)
        if not options.json:
            print(as_text(report), flush=True)
        status |= not is_clean(settings, report)
    if options.json:
        print(json.dumps(reports if options.transactions else reports[0], indent=2))
    return status


def unseen(workers: list[Worker], elapsed: float) -> None:
    """Nobody looks at the progress."""


def shown(settings: BenchSettings) -> Callable[[list[Worker], float], None]:
    """One line that is written over and over."""
    total = (settings.transactions or settings.count) * settings.pairs

    def show(workers: list[Worker], elapsed: float) -> None:
        sent = sum(worker.at for worker in workers if worker.role != "receiver")
        received = sum(worker.at for worker in workers if worker.role != "sender")
        text = f"sent {sent:,}  received {received:,}"
        if settings.transactions:
            text = f"discharged {received:,}"
        print(f"\r{f'{elapsed:5.1f} s  {text} of {total:,}':<78}", end="", file=sys.stderr, flush=True)

    return show


def runs_of(options: argparse.Namespace) -> list[BenchSettings]:
    """The settings of the runs that are asked for; raises ValueError with a sentence."""
    lives = lives_of(options)
    asked = {name: value for name, value in vars(options).items() if name in OPTIONS and value is not None}
    for name, value in asked.items():
        least = OPTIONS[name].metadata["least"]
        if least is not None and name != "live" and value < least:
            unit = " bytes (run, number, time)" if name == "body" else ""
            raise ValueError(f"--{name.replace('_', '-')} must be at least {least}{unit}, got {value}")
    asked |= {"retire": options.retire or options.retire_settled}
    if asked["retire"] and options.in_each > options.credit:
        raise ValueError(f"--in-each {options.in_each} deliveries never come with --credit {options.credit}")
    if options.transactions * options.in_each >= 2**31:
        raise ValueError("--transactions times --in-each must stay below 2,147,483,648")
    asked = parse_url(options.url) | asked
    settings = [BenchSettings(**asked | {"live": live, "run": fresh_run()}) for live in lives]
    return settings if options.transactions else settings[:1]


def lives_of(options: argparse.Namespace) -> list[int]:
    """How many transactions are live at once, in each of the runs."""
    try:
        lives = [int(text) for text in options.live.split(",")]
    except ValueError:
        raise ValueError(f"--live must be numbers like 1,16, got {options.live!r}") from None
    if min(lives) < 1:
        raise ValueError(f"--live must be at least 1, got {min(lives)}")
    return lives


def fresh_run() -> int:
    """A run's number: it stands nowhere else, so that its messages are known by it."""
    return int.from_bytes(os.urandom(6), "big")


def make_parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(prog="amqp-broker bench", description=DESCRIPTION)
    parser.add_argument("url", help="amqp://[user:password@]host[:port][/address]")
    transactions = parser.add_argument_group(
        "transactions", "post to ADDRESS, and retire from ADDRESS-input; --pairs is the number of connections"
    )
    for name, field in OPTIONS.items():
        known = field.metadata
        default = known.get("several", None if known.get("of_url") else field.default)
        kind: dict[str, Any] = {"type": str if default is None else type(default), "default": default}
        if "metavar" in known:
            kind["metavar"] = known["metavar"]
        group = transactions if known.get("group") else parser
        group.add_argument(
            f"--{name.replace('_', '-')}",
            help=known["help"],
            **{"action": "store_true"} if default is False else kind,
        )
    add = parser.add_argument
    add("--json", action="store_true", help="print the report as JSON (of transactions: a list of reports)")
    add("--progress", action="store_true", help="show progress even when standard error is no terminal")
    return parser
