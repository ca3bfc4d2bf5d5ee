"""`amqp-broker bench URL`: starts the processes of a run, shows progress, prints the report."""

from __future__ import annotations

import argparse
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable
from typing import IO, Any, Final

from amqp_broker.bench import report as report_module
from amqp_broker.bench import transaction_report
from amqp_broker.bench.settings import SMALLEST_BODY, BenchSettings, parse_url
from amqp_broker.bench.transaction_options import add_transactions, transactional

DESCRIPTION = """Sends and receives messages through an AMQP 1.0 broker and reports the rate, latencies,
losses, duplicates and order. The queue must exist (or be made on first use) and should be empty. Exit status:
0 when every message came once and in order, 1 when not, 2 for a wrong command. With --transactions it
measures declare, postings, retirements and discharge, and looks afterwards what is in the queues."""


NAMES: Final = {"send": "sender", "receive": "receiver", "rtt": "round-trips", "control": "controller"}


class Worker:
    """One process of the run and what it has said so far."""

    def __init__(self, settings: BenchSettings, role: str, pair: int) -> None:
        self.name = f"{NAMES[role]}-{pair}"
        self.role = role
        self.at = 0
        self.paused = False
        self.result: dict[str, Any] | None = None
        self.error: str | None = None
        command = [sys.executable, "-m", "amqp_broker.bench.worker", role, str(pair), settings.to_json()]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    @property
    def output(self) -> IO[bytes]:
        """Where its lines come from."""
        assert self.process.stdout is not None
        return self.process.stdout

    def read_line(self) -> bool:
        """Take one line in; False at the end of the output."""
        line = self.output.readline()
        if not line:
            return False
        said = json.loads(line)
        self.at = said.get("at", self.at)
        self.paused = said.get("paused", self.paused)
        self.result = said.get("result", self.result)
        self.error = said.get("error", self.error)
        return True

    def begin(self) -> None:
        """Let it go; one that has ended already says why itself."""
        assert self.process.stdin is not None
        self.paused = False
        try:
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return

    def end(self) -> None:
        """Leave no process behind."""
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def run(argv: list[str]) -> int:
    """Run the command with these arguments; the exit status."""
    parser = make_parser()
    try:
        options = parser.parse_args(argv)
        settings = make_settings(options)
        runs = transactional(options, settings) if options.transactions else [settings]
    except ValueError as error:
        print(f"amqp-broker bench: {error}", file=sys.stderr)
        return 2
    except SystemExit as left:
        return int(left.code or 0)
    status = 0
    reports = []
    for settings in runs:
        try:
            results = measure(settings, rtt=options.rtt, progress=sys.stderr.isatty() or options.progress)
        except RuntimeError as error:
            print(f"amqp-broker bench: {error}", file=sys.stderr)
            return 1
        report_of = transaction_report if settings.transactions else report_module
        report = report_of.combine(settings, results)
        reports.append(report)
        if not options.json:
            print(report_of.as_text(report), flush=True)
        status |= not report_of.is_clean(settings, report)
    if options.json:
        print(json.dumps(reports if options.transactions else reports[0], indent=2))
    return status


def no_mark() -> None:
    """Nobody wants to know when the measuring begins and ends."""


def measure(
    settings: BenchSettings, *, rtt: bool = False, progress: bool = False, mark: Callable[[], None] = no_mark
) -> dict[str, dict[str, Any]]:
    """Run the processes; their results by name. Raises RuntimeError with the first one's error.

    `mark` is called when the measuring begins and, of transactions, when it ends and the counting begins.
    """
    workers: list[Worker] = []
    try:
        roles = ["control"] if settings.transactions else ["rtt"] if rtt else ["receive", "send"]
        for role in roles:
            # Receivers stand before the first message is sent, so that a queue is never filled by accident.
            fresh = [Worker(settings, role, pair) for pair in range(settings.pairs)]
            workers += fresh
            for worker in fresh:
                if not worker.read_line() or worker.error:
                    raise RuntimeError(worker.error or f"{worker.name} ended with {worker.process.wait()}")
        mark()
        for worker in workers:
            worker.begin()
        listen(workers, settings, progress, mark)
        failed = next((worker for worker in workers if worker.result is None), None)
        if failed is not None:
            raise RuntimeError(failed.error or f"{failed.name} ended with {failed.process.wait()}")
        return {worker.name: worker.result for worker in workers if worker.result is not None}
    finally:
        for worker in workers:
            worker.end()


def listen(workers: list[Worker], settings: BenchSettings, progress: bool, mark: Callable[[], None]) -> None:
    """Until all have ended, or one has failed."""
    started, shown = time.monotonic(), False
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.output, selectors.EVENT_READ, worker)
        while selector.get_map():
            for key, _ in selector.select():
                worker = key.data
                if not worker.read_line():
                    selector.unregister(key.fileobj)
                if worker.error:
                    return
            if all(worker.paused for worker in workers):
                # All have measured: from now on they may disturb each other.
                mark()
                for worker in workers:
                    worker.begin()
            if progress:
                shown = show(workers, settings, time.monotonic() - started)
    if shown:
        print(file=sys.stderr)


def show(workers: list[Worker], settings: BenchSettings, elapsed: float) -> bool:
    """One line that is written over and over."""
    if settings.transactions:
        done, total = sum(worker.at for worker in workers), settings.transactions * settings.pairs
        print(f"\r{elapsed:5.1f} s  discharged {done:,} of {total:,}", end="", file=sys.stderr, flush=True)
        return True
    sent = sum(worker.at for worker in workers if worker.role != "receive")
    received = sum(worker.at for worker in workers if worker.role != "send")
    total = settings.count * settings.pairs
    text = f"{elapsed:5.1f} s  sent {sent:,}  received {received:,} of {total:,}"
    print(f"\r{text:<78}", end="", file=sys.stderr, flush=True)
    return True


def make_settings(options: argparse.Namespace) -> BenchSettings:
    """The settings that the options say; raises ValueError with a sentence."""
    host, port, user, password, address = parse_url(options.url)
    for name in ("count", "credit", "in_flight", "pairs"):
        if getattr(options, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')} must be at least 1, got {getattr(options, name)}")
    if options.body < SMALLEST_BODY:
        raise ValueError(
            f"--body must be at least {SMALLEST_BODY} bytes (run, number, time), got {options.body}"
        )
    return BenchSettings(
        host=host,
        port=port,
        user=options.user if options.user is not None else user,
        password=options.password if options.password is not None else password,
        sasl=not options.no_sasl,
        address=options.address or address or "bench",
        count=options.count,
        body=options.body,
        durable=options.durable,
        settled=options.settled,
        settle_each=options.settle_each,
        credit=options.credit,
        in_flight=options.in_flight,
        pairs=options.pairs,
        rate=options.rate,
        timeout_s=options.timeout,
        run=int.from_bytes(os.urandom(6), "big"),
    )


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
    add_transactions(parser)
    add("--timeout", type=float, default=30.0, help="give up after so many seconds without progress")
    add("--user", help="user for SASL PLAIN (default: the URL's, else ANONYMOUS)")
    add("--password", help="password for SASL PLAIN")
    add("--no-sasl", action="store_true", help="begin with the bare AMQP header")
    add("--json", action="store_true", help="print the report as JSON (of transactions: a list of reports)")
    add("--progress", action="store_true", help="show progress even when standard error is no terminal")
    return parser
