"""``amqp-conformance``: runs the scenarios against any AMQP 1.0 broker, and tells what they showed.

Exit status: 0 everything passed, was skipped or is an admitted gap, 1 something failed, 2 wrong usage, 3
cannot connect.
"""

import argparse
import secrets
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import attrs

from amqp_broker.conformance.broker import DEFAULT_UNKNOWN_ADDRESS, Settings, endpoint_of, probe
from amqp_broker.conformance.gaps import load_gaps
from amqp_broker.conformance.outcomes import CannotConnect, Verdict
from amqp_broker.conformance.recorded import Unreadable, read, told
from amqp_broker.conformance.report_files import write_json, write_junit
from amqp_broker.conformance.report_terminal import TerminalReport
from amqp_broker.conformance.requirements import load_requirements
from amqp_broker.conformance.runner import run
from amqp_broker.conformance.scenario import PROFILES, load_scenarios, select_scenarios, shown_by
from amqp_broker.conformance.statement import counts_table, statuses_of, unseen_list, update_document
from amqp_broker.conformance.wire import STEP_TIMEOUT_S
from amqp_broker.reader_gone import until_reader_is_gone

EXIT_PASSED = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_CANNOT_CONNECT = 3

MAX_JOBS = 64


def _jobs(text: str) -> int:
    number = int(text)
    if not 1 <= number <= MAX_JOBS:
        raise argparse.ArgumentTypeError(f"must be 1 to {MAX_JOBS}")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0.1 <= number <= 600:
        raise argparse.ArgumentTypeError("must be 0.1 to 600 seconds")
    return number


def make_parser() -> argparse.ArgumentParser:
    """The options of all commands."""
    parser = argparse.ArgumentParser(
        prog="amqp-conformance", description="Tests an AMQP 1.0 broker from outside."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    runs = commands.add_parser("run", help="run the scenarios against a broker")
    runs.add_argument("url", help="amqp://[user:password@]host[:port]")
    runs.add_argument(
        "--profile",
        choices=PROFILES,
        default="core",
        help="core: what the standard asks of every broker; full: this project's promises, too; "
        "half-messages, sequences, retention, sets: that protocol of this project, and nothing else; "
        "jms: what JMS programs need",
    )
    runs.add_argument(
        "--only", action="append", default=[], metavar="ID-GLOB", help="for example '2.6*' (repeatable)"
    )
    runs.add_argument("--address-prefix", default="", help="before each queue's name, for example /queues/")
    runs.add_argument(
        "--unknown-address", default=DEFAULT_UNKNOWN_ADDRESS, help="an address that must be refused"
    )
    runs.add_argument(
        "--admit", type=Path, metavar="FILE", help="TOML of known gaps: they do not count as failures"
    )
    runs.add_argument("--jobs", type=_jobs, default=8, help="scenarios at a time (8)")
    runs.add_argument(
        "--timeout", type=_seconds, default=STEP_TIMEOUT_S, help="seconds to wait for a frame (5)"
    )
    runs.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML")
    runs.add_argument("--json", type=Path, metavar="FILE", help="write JSON")
    runs.add_argument(
        "--transcript", action="store_true", help="show every dialogue, not only those that failed"
    )
    lists = commands.add_parser("list", help="list scenarios, or the standard's rows and what shows them")
    lists.add_argument("what", choices=("scenarios", "requirements"))
    reads = commands.add_parser("read", help="judge a recorded dialogue of any client and broker")
    reads.add_argument("file", type=Path, metavar="FILE", help="a capture (pcap, pcapng), or a trace")
    states = commands.add_parser("statement", help="print the table of counts by section")
    states.add_argument("--json", type=Path, metavar="FILE", help="the JSON of a run: passed and failed, too")
    states.add_argument("--unseen", action="store_true", help="also list the rows without a scenario")
    states.add_argument(
        "--update", type=Path, metavar="FILE", help="replace the generated part of this document"
    )
    return parser


def _run(arguments: argparse.Namespace) -> int:
    try:
        address = endpoint_of(arguments.url)
        gaps = load_gaps(arguments.admit) if arguments.admit else {}
    except (OSError, ValueError) as error:
        print(f"amqp-conformance: {error}", file=sys.stderr)
        return EXIT_USAGE
    scenarios = select_scenarios(arguments.profile, arguments.only)
    if not scenarios:
        print(
            f"amqp-conformance: no scenario matches {' '.join(arguments.only)};",
            "see: amqp-conformance list scenarios",
            file=sys.stderr,
        )
        return EXIT_USAGE
    settings = Settings(
        address,
        run_id=secrets.token_hex(3),
        address_prefix=arguments.address_prefix,
        unknown_address=arguments.unknown_address,
        timeout_s=arguments.timeout,
        gaps=gaps,
    )
    try:
        settings = attrs.evolve(settings, findings=probe(settings))
    except CannotConnect as error:
        print(f"amqp-conformance: cannot connect: {error}", file=sys.stderr)
        return EXIT_CANNOT_CONNECT
    terminal = TerminalReport(sys.stdout, len(scenarios), transcripts=arguments.transcript)
    terminal.begin(settings, settings.findings, arguments.profile)
    report = run(scenarios, settings, arguments.profile, arguments.jobs, terminal.progress)
    terminal.finish(report)
    try:
        if arguments.junit:
            write_junit(report, arguments.junit)
        if arguments.json:
            write_json(report, arguments.json)
    except OSError as error:
        print(f"amqp-conformance: cannot write the report: {error}", file=sys.stderr)
        return EXIT_USAGE
    return EXIT_FAILED if report.count(Verdict.FAILED) else EXIT_PASSED


def _list(arguments: argparse.Namespace) -> int:
    if arguments.what == "scenarios":
        for one in load_scenarios():
            print(f"{one.id:44} {one.profile:5} {one.title} ({', '.join(one.rows)})")
        return EXIT_PASSED
    shown = shown_by()
    for row in load_requirements().values():
        by = ", ".join(shown.get(row.id, [])) or f"({row.kind}) {row.reason}"
        print(f"{row.id:14} {row.level:10} {row.title}: {row.sentence}\n{'':14} {by}")
    return EXIT_PASSED


def _statement(arguments: argparse.Namespace) -> int:
    try:
        statuses = statuses_of(arguments.json) if arguments.json else {}
        table = counts_table(statuses)
        if arguments.unseen:
            table += "\n\n" + unseen_list()
        if arguments.update:
            update_document(arguments.update, table)
        else:
            print(table)
    except (OSError, ValueError) as error:
        print(f"amqp-conformance: {error}", file=sys.stderr)
        return EXIT_USAGE
    return EXIT_PASSED


def _read(arguments: argparse.Namespace) -> int:
    try:
        recordings = read(arguments.file)
    except (OSError, Unreadable) as error:
        print(f"amqp-conformance: {error}", file=sys.stderr)
        return EXIT_USAGE
    print("\n".join(told(recordings)) or f"{arguments.file} has no connection of AMQP from its beginning")
    found = any(recording.dialogue.breaches for recording in recordings)
    return EXIT_FAILED if found else EXIT_PASSED


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    arguments = make_parser().parse_args(argv)
    command = {"run": _run, "list": _list, "read": _read, "statement": _statement}[arguments.command]
    return until_reader_is_gone(partial(command, arguments))


if __name__ == "__main__":
    sys.exit(main())
