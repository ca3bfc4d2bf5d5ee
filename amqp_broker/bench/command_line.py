"""`amqp-broker bench URL`: what it takes, the runs that are asked for, progress, and the report."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable

import attrs

from amqp_broker.bench.report import as_text, combine, is_clean
from amqp_broker.bench.run import Client, Worker, measure, python_client
from amqp_broker.bench.settings import SMALLEST_BODY, BenchSettings, parse_url

DESCRIPTION = """Sends and receives messages through an AMQP 1.0 broker and reports the rate, latencies,
losses, duplicates and order. The queue must exist (or be made on first use) and should be empty. Exit status:
0 when every message came once and in order, 1 when not, 2 for a wrong command. With --transactions it
measures declare, postings, retirements and discharge, and looks afterwards what is in the queues."""


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
    host, port, user, password, address = parse_url(options.url)
    lives = lives_of(options)
    least = {"count": 1, "credit": 1, "in_flight": 1, "pairs": 1, "in_each": 1}
    least |= {"transactions": 0, "roll_back_every": 0}
    for name, smallest in least.items():
        if getattr(options, name) < smallest:
            raise ValueError(
                f"--{name.replace('_', '-')} must be at least {smallest}, got {getattr(options, name)}"
            )
    if options.body < SMALLEST_BODY:
        raise ValueError(
            f"--body must be at least {SMALLEST_BODY} bytes (run, number, time), got {options.body}"
        )
    retire = options.retire or options.retire_settled
    if retire and options.in_each > options.credit:
        raise ValueError(f"--in-each {options.in_each} deliveries never come with --credit {options.credit}")
    if options.transactions * options.in_each >= 2**31:
        raise ValueError("--transactions times --in-each must stay below 2,147,483,648")
    values = vars(options)
    asked = {field.name: values[field.name] for field in attrs.fields(BenchSettings) if field.name in values}
    asked |= {
        "host": host,
        "port": port,
        "user": options.user if options.user is not None else user,
        "password": options.password if options.password is not None else password,
        "address": options.address or address or "bench",
        "retire": retire,
    }
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
    add = parser.add_argument
    add("url", help="amqp://[user:password@]host[:port][/address]")
    add("--address", help="queue to send to and receive from (default: the URL's path, or 'bench')")
    add("--count", type=int, default=100_000, help="messages for each pair (default %(default)s)")
    add("--body", type=int, default=100, help="bytes of the body, at least 24 (default %(default)s)")
    add("--durable", action="store_true", help="durable messages")
    add("--settled", action="store_true", help="sent settled: no outcome is waited for")
    add("--settle-each", action="store_true", help="the receiver answers each delivery alone: the worst case")
    add("--credit", type=int, default=1_000, help="the receiver's link credit (default %(default)s)")
    add(
        "--in-flight",
        type=int,
        default=1_000,
        help="unsettled deliveries of the sender (default %(default)s)",
    )
    add("--pairs", type=int, default=1, help="senders and receivers, each through ADDRESS0, ADDRESS1, ...")
    add("--rtt", action="store_true", help="one message at a time: the time of a round trip")
    add("--rate", type=float, default=0.0, help="with --rtt: messages a second at most (default: no limit)")
    add(
        "--half-group",
        default="",
        metavar="GROUP",
        help="half messages of this group, each put, committed and received",
    )
    add_transactions(parser)
    add("--timeout", type=float, default=30.0, help="give up after so many seconds without progress")
    add("--user", help="user for SASL PLAIN (default: the URL's, else ANONYMOUS)")
    add("--password", help="password for SASL PLAIN")
    add("--no-sasl", action="store_true", help="begin with the bare AMQP header")
    add("--json", action="store_true", help="print the report as JSON (of transactions: a list of reports)")
    add("--progress", action="store_true", help="show progress even when standard error is no terminal")
    return parser


def add_transactions(parser: argparse.ArgumentParser) -> None:
    """The options of the transactional mode."""
    add = parser.add_argument_group(
        "transactions", "post to ADDRESS, and retire from ADDRESS-input; --pairs is the number of connections"
    ).add_argument
    add("--transactions", type=int, default=0, help="measure so many transactions on each connection")
    add("--in-each", type=int, default=10, help="postings in each transaction (default %(default)s)")
    add("--retire", action="store_true", help="as many retirements as postings in each transaction")
    add(
        "--retire-settled",
        action="store_true",
        help="the same, settled by the controller before the discharge",
    )
    add(
        "--live",
        default="1,16",
        help="transactions that are live at once on a connection; several numbers are several runs "
        "(default %(default)s: one at a time, then pipelined)",
    )
    add("--roll-back-every", type=int, default=0, help="roll every n-th transaction back (default: none)")
