"""``amqp-conformance``: runs the scenarios against any AMQP 1.0 broker, and tells what they showed.

Exit status: 0 everything passed, was skipped or is an admitted gap, 1 something failed, or the broker died,
hung or spun, 2 wrong usage, 3 cannot connect, 4 nothing failed, but not everything was run.
"""

import argparse
import secrets
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType

import attrs

from amqp_broker.conformance.broker import Settings, endpoint_of, probe
from amqp_broker.conformance.description import (
    DEFAULT_URL,
    OUR_PRODUCT,
    Description,
    described_by,
    load_description,
    ready_made,
)
from amqp_broker.conformance.gaps import load_gaps
from amqp_broker.conformance.outcomes import CannotConnect, Verdict
from amqp_broker.conformance.recorded import Unreadable, read, told
from amqp_broker.conformance.report_files import write_html, write_json, write_junit
from amqp_broker.conformance.report_html import comparison_page, load_run
from amqp_broker.conformance.report_terminal import TerminalReport
from amqp_broker.conformance.requirements import load_requirements
from amqp_broker.conformance.runner import Report
from amqp_broker.conformance.scenario import (
    PROFILES,
    Scenario,
    load_scenarios,
    select_scenarios,
    shown_by,
)
from amqp_broker.conformance.statement import counts_table, statuses_of, unseen_list, update_document
from amqp_broker.conformance.subject import Subject
from amqp_broker.conformance.survival import TIME_LIMIT_S, Stop, run
from amqp_broker.exit_status import until_reader_is_gone

EXIT_PASSED = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_CANNOT_CONNECT = 3
EXIT_NOT_ALL_RUN = 4

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


def _profiles(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in PROFILES:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(PROFILES)}")
    return names


def _limit(text: str) -> float:
    number = float(text)
    if not 1 <= number <= 86_400:
        raise argparse.ArgumentTypeError("must be 1 to 86400 seconds")
    return number


def _add_run(runs: argparse.ArgumentParser) -> None:
    runs.add_argument(
        "url", nargs="?", help="amqp://[user:password@]host[:port]; by default that of the description"
    )
    runs.add_argument(
        "--broker",
        metavar="FILE",
        help="what has to be known of the broker: TOML, or the name of a ready one (list brokers)",
    )
    runs.add_argument(
        "--profile",
        type=_profiles,
        metavar="NAME,...",
        help=f"what to run: {', '.join(PROFILES)} (list profiles)",
    )
    called = "by id, glob ('2.6*'), section, part or profile (repeatable)"
    runs.add_argument("--only", action="append", default=[], metavar="WHICH", help=f"only these, {called}")
    runs.add_argument(
        "--except", action="append", default=[], metavar="WHICH", dest="but", help=f"not these, {called}"
    )
    runs.add_argument("--address-prefix", help="before each queue's name, for example /queues/")
    runs.add_argument("--unknown-address", help="an address that must be refused")
    runs.add_argument(
        "--admit", type=Path, metavar="FILE", help="TOML of known gaps: they do not count as failures"
    )
    runs.add_argument("--jobs", type=_jobs, help="scenarios at a time (8)")
    runs.add_argument("--timeout", type=_seconds, help="seconds to wait for a frame (5)")
    runs.add_argument(
        "--time-limit",
        type=_limit,
        default=TIME_LIMIT_S,
        metavar="SECONDS",
        help=f"of the whole run: what is left then is not run ({TIME_LIMIT_S:g})",
    )
    runs.add_argument(
        "--restart", metavar="COMMAND", help="starts the broker again when it has died, hangs or spins"
    )
    runs.add_argument("--junit", type=Path, metavar="FILE", help="write JUnit XML")
    runs.add_argument("--json", type=Path, metavar="FILE", help="write JSON")
    runs.add_argument("--html", type=Path, metavar="FILE", help="write a page that needs nothing beside it")
    runs.add_argument(
        "--transcript", action="store_true", help="show every dialogue, not only those that failed"
    )


def make_parser() -> argparse.ArgumentParser:
    """The options of all commands."""
    parser = argparse.ArgumentParser(
        prog="amqp-conformance", description="Tests an AMQP 1.0 broker from outside."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    _add_run(commands.add_parser("run", help="run the scenarios against a broker"))
    lists = commands.add_parser(
        "list", help="list scenarios, the standard's rows and what shows them, profiles, or ready brokers"
    )
    lists.add_argument("what", choices=("scenarios", "requirements", "profiles", "brokers"))
    compares = commands.add_parser("compare", help="make one page of several runs")
    compares.add_argument("runs", nargs="+", type=Path, metavar="JSON", help="of run --json")
    compares.add_argument("--html", type=Path, metavar="FILE", required=True, help="write the page here")
    reads = commands.add_parser("read", help="judge a recorded dialogue of any client and broker")
    reads.add_argument("file", type=Path, metavar="FILE", help="a capture (pcap, pcapng), or a trace")
    states = commands.add_parser("statement", help="print the table of counts by section")
    states.add_argument("--json", type=Path, metavar="FILE", help="the JSON of a run: passed and failed, too")
    states.add_argument("--unseen", action="store_true", help="also list the rows without a scenario")
    states.add_argument(
        "--update", type=Path, metavar="FILE", help="replace the generated part of this document"
    )
    return parser


def _described(arguments: argparse.Namespace, found: Description) -> Description:
    """A description, as the command's options change it."""
    options = {
        "nodes_prefix": arguments.address_prefix,
        "nodes_unknown": arguments.unknown_address,
        "limits_jobs": arguments.jobs,
        "limits_timeout_s": arguments.timeout,
        "process_restart": arguments.restart,
        "profiles": arguments.profile,
    }
    changes = {name: value for name, value in options.items() if value is not None}
    if arguments.unknown_address is not None:
        changes["nodes_every_address_exists"] = False
    return attrs.evolve(found, **changes)


def _settings(arguments: argparse.Namespace, described: Description) -> Settings:
    """Raises OSError or ValueError with what is wrong with a URL or a list of gaps."""
    address = endpoint_of(arguments.url or described.url)
    if address.user is None and described.user_name is not None:
        address = attrs.evolve(address, user=described.user_name, password=described.user_password)
    return Settings(
        address,
        run_id=secrets.token_hex(3),
        address_prefix=described.nodes_prefix,
        unknown_address="" if described.nodes_every_address_exists else described.nodes_unknown,
        capabilities=described.nodes_capabilities,
        make_node=described.nodes_make,
        lacks=described.lacks,
        timeout_s=described.limits_timeout_s,
        gaps=load_gaps(arguments.admit) if arguments.admit else {},
    )


def _subject(described: Description, settings: Settings) -> Subject:
    start = described.process_start.replace("{python}", sys.executable)
    start = start.replace("{url}", str(settings.address))
    return Subject(
        settings, start=start, restart=described.process_restart, ready_s=described.process_ready_s
    )


def _reached(
    arguments: argparse.Namespace, found: Description, subject: Subject, stop: Stop
) -> tuple[Description, Settings]:
    """Finds out what the broker offers, after it has been started where nobody listens and its description
    says how; takes a ready description where its product has one. Raises CannotConnect.
    """
    settings = subject.settings
    if found.process_start and subject.look().trouble is not None:
        wrong = subject.start(stop)
        if wrong:
            raise CannotConnect(wrong)
    settings = attrs.evolve(settings, findings=probe(settings))
    product = settings.findings.properties.get("product")
    if not arguments.broker and (known := described_by(product)):
        found = _described(arguments, known)
        changed = _settings(arguments, attrs.evolve(found, user_name=None))
        settings = attrs.evolve(changed, address=settings.address)
        settings = attrs.evolve(settings, findings=probe(settings))
    return found, settings


def _selected(arguments: argparse.Namespace, described: Description, product: object) -> list[Scenario]:
    """What is run; what only this project promises is asked of its own broker alone."""
    promises = described.promises or product == OUR_PRODUCT
    chosen = select_scenarios(described.profiles, arguments.only, but=arguments.but)
    return [one for one in chosen if promises or not one.promise]


@contextmanager
def _stopped_by_signals(stop: Stop) -> Iterator[None]:
    """The first SIGTERM or SIGINT ends the run with its report; the next one ends the program."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.ask(f"the run was ended by {signal.Signals(number).name}")
        restore()

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        restore()


def _run(arguments: argparse.Namespace) -> int:
    stop = Stop(arguments.time_limit)
    try:
        if not arguments.url and not arguments.broker:
            raise ValueError(f"give the broker's URL, for example {DEFAULT_URL}, or --broker")
        known = load_description(arguments.broker) if arguments.broker else Description()
        found = _described(arguments, known)
        settings = _settings(arguments, found)
    except (OSError, ValueError) as error:
        print(f"amqp-conformance: {error}", file=sys.stderr)
        return EXIT_USAGE
    subject = _subject(found, settings)
    try:
        return _run_against(arguments, found, subject, stop)
    except CannotConnect as error:
        print(f"amqp-conformance: cannot connect: {error}", file=sys.stderr)
        return EXIT_CANNOT_CONNECT
    finally:
        subject.end()


def _run_against(arguments: argparse.Namespace, found: Description, subject: Subject, stop: Stop) -> int:
    if not select_scenarios(found.profiles, arguments.only, but=arguments.but):
        return _nothing_matches(arguments)
    found, settings = _reached(arguments, found, subject, stop)
    subject.settings = settings
    state = subject.look()
    if state.trouble is not None:
        raise CannotConnect(f"{settings.address}: the broker {state.trouble.value}: {state.detail}")
    scenarios = _selected(arguments, found, settings.findings.properties.get("product"))
    if not scenarios:
        return _nothing_matches(arguments)
    profile = ", ".join(found.profiles)
    terminal = TerminalReport(sys.stdout, len(scenarios), transcripts=arguments.transcript)
    terminal.begin(settings, settings.findings, profile)
    with _stopped_by_signals(stop):
        report = run(
            scenarios, settings, profile, found.limits_jobs, terminal.progress, stop=stop, subject=subject,
            title=found.title,
        )  # fmt: skip
    terminal.finish(report)
    return _written(arguments, report)


def _nothing_matches(arguments: argparse.Namespace) -> int:
    chosen = " ".join(arguments.only) or "all"
    but = f", and is none of {' '.join(arguments.but)}" if arguments.but else ""
    print(
        f"amqp-conformance: no scenario matches {chosen}{but}; see: amqp-conformance list scenarios",
        file=sys.stderr,
    )
    return EXIT_USAGE


def _written(arguments: argparse.Namespace, report: Report) -> int:
    try:
        for path, write in (
            (arguments.junit, write_junit),
            (arguments.json, write_json),
            (arguments.html, write_html),
        ):
            if path:
                write(report, path)
    except OSError as error:
        print(f"amqp-conformance: cannot write the report: {error}", file=sys.stderr)
        return EXIT_USAGE
    if report.count(Verdict.FAILED) or report.incidents:
        return EXIT_FAILED
    return EXIT_NOT_ALL_RUN if report.count(Verdict.NOT_RUN) else EXIT_PASSED


def _list(arguments: argparse.Namespace) -> int:
    if arguments.what == "scenarios":
        for one in load_scenarios():
            profile = "full" if one.promise else one.belongs_to
            print(f"{one.id:44} {profile:13} {one.title} ({', '.join(one.rows)})")
        return EXIT_PASSED
    if arguments.what == "profiles":
        for name, meaning in PROFILES.items():
            print(f"{name:14} {len(select_scenarios(name)):4}  {meaning}")
        return EXIT_PASSED
    if arguments.what == "brokers":
        for name, known in ready_made().items():
            print(f"{name:10} {known.title}: {', '.join(known.profiles)}. {known.setup}")
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


def _compare(arguments: argparse.Namespace) -> int:
    try:
        page = comparison_page([load_run(path) for path in arguments.runs])
        arguments.html.write_text(page, encoding="utf-8")
    except (OSError, ValueError) as error:
        print(f"amqp-conformance: {error}", file=sys.stderr)
        return EXIT_USAGE
    return EXIT_PASSED


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit status."""
    arguments = make_parser().parse_args(argv)
    commands = {
        "run": _run,
        "compare": _compare,
        "list": _list,
        "read": _read,
        "statement": _statement,
    }
    command = commands[arguments.command]
    return until_reader_is_gone(partial(command, arguments))


if __name__ == "__main__":
    sys.exit(main())
