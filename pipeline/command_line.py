"""`amqp-broker pipeline`: archive the broker's events, audit them, write the report, check histories.

    amqp-broker pipeline archive amqp://127.0.0.1:5672 ./archive
    amqp-broker pipeline report ./archive --out report.html

Exit status: 0 PASS or done, 1 FAIL (a fault was found), 2 something is missing or wrong, which the message
names.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from amqp_broker.pipeline.archive_layout import ArchiveLayout
from amqp_broker.pipeline.audit_result import FAIL, AuditResult, text_of
from amqp_broker.pipeline.errors import PipelineError
from amqp_broker.pipeline.losses import kinds_of, read_losses
from amqp_broker.pipeline.progress import Progress
from amqp_broker.pipeline.told import told

DONE: Final = 0
FAILED: Final = 1
WRONG: Final = 2
FEW_OCTETS: Final = 32 * 2**20
"""A smaller archive is audited sooner by interpreting plans in one partition than by compiling them."""
FEW_SETTINGS: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
}
PROGRAM: Final = "amqp-broker pipeline"
AUDIT_SETTINGS: Final = {
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "4",
    # What is shuffled here is numbers and short names, and a disk is slower than this.
    "spark.io.compression.codec": "lz4",
    "spark.log.level": "ERROR",
    # A busy machine may need a while until a Python worker is there.
    "spark.python.authenticate.socketTimeout": "120s",
}


def run(argv: Sequence[str]) -> int:
    """Run one command and return its exit status."""
    try:
        options = parser().parse_args(list(argv))
    except SystemExit as usage:
        return usage.code if isinstance(usage.code, int) else WRONG
    progress = Progress(quiet=options.quiet)
    try:
        status: int = options.run(options, progress)
    except KeyboardInterrupt:
        return WRONG
    except Exception as error:
        text = str(error) if isinstance(error, PipelineError | OSError) else told(error)
        if text is None:
            raise
        print(f"{PROGRAM}: {text}", file=sys.stderr)
        return WRONG
    return status


def parser() -> argparse.ArgumentParser:
    """The options of all commands."""
    main = argparse.ArgumentParser(prog=PROGRAM, description=__doc__.split("\n\n")[0])
    commands = main.add_subparsers(dest="command", required=True, metavar="COMMAND")

    archive = commands.add_parser("archive", help="write the events of a broker as Parquet")
    archive.add_argument("url", metavar="URL", help="the broker, as amqp://127.0.0.1:5672")
    archive.add_argument("directory", metavar="DIR", help="the archive: a folder, or a URL of a file system "
                         "that Hadoop knows; made if it is not there")
    archive.add_argument(
        "--name", default="audit", help="of the cursor that the broker keeps (default audit)"
    )
    archive.add_argument("--follow", action="store_true", help="go on until it is interrupted")
    archive.add_argument("--compact", action="store_true", help="afterwards by day and type in large files")
    archive.set_defaults(run=_archive)

    compact = commands.add_parser("compact", help="an archive by day and type in large files")
    compact.add_argument("directory", metavar="DIR")
    compact.set_defaults(run=_compact)

    audit = commands.add_parser("audit", help="all audits; the findings as text")
    audit.add_argument("--json", metavar="FILE", help="write everything that was found here, too")
    _auditing(audit)
    audit.set_defaults(run=_audit)

    report = commands.add_parser("report", help="all audits; one HTML file with plots")
    report.add_argument("--out", metavar="FILE", default="report.html", help="(default report.html)")
    report.add_argument("--title", default="Audit of the journal")
    _auditing(report)
    report.set_defaults(run=_report)

    check = commands.add_parser("check-history", help="what clients wrote down against what the broker did")
    check.add_argument("history", metavar="HISTORY", nargs="+", help="JSON lines (pipeline/history_file.py)")
    check.add_argument("--archive", metavar="DIR", help="the events of the same time, complete")
    check.add_argument("--drained", action="store_true", help="at the end everything was received")
    check.set_defaults(run=_check_history)
    for each in (archive, compact, audit, report, check):
        each.add_argument("--quiet", action="store_true", help="no progress on standard error")
        each.add_argument("--cores", type=int, default=2, metavar="N", help="of this machine (default 2)")
    return main


def _auditing(command: argparse.ArgumentParser) -> None:
    command.add_argument("directory", metavar="DIR", help="the archive")
    command.add_argument("--history", metavar="FILE", nargs="+", default=[], help="histories of clients")
    command.add_argument("--drained", action="store_true", help="at the end of the log all queues were empty")
    command.add_argument(
        "--losses", metavar="FILE", nargs="+", default=[], help="what queries went on without (LossListener)"
    )
    command.add_argument(
        "--unresolved-after-s", type=float, default=4 * 3600.0, metavar="S",
        help="a half message or set that is undecided for longer is a fault (default 14400)",
    )  # fmt: skip
    command.add_argument(
        "--stalled-minutes", type=int, default=10, metavar="N",
        help="a queue in which nothing moves for longer is a warning (default 10)",
    )  # fmt: skip


def _session(options: argparse.Namespace, progress: Progress, octets: int | None = None) -> Any:
    """The session for an archive of so many octets, or for something that is no archive yet."""
    from amqp_broker.pipeline.session import spark_session

    few = FEW_SETTINGS if octets is not None and octets < FEW_OCTETS else {}
    with progress.step("Spark starts"):
        spark = spark_session("amqp-broker", cores=options.cores, settings=AUDIT_SETTINGS | few)
    progress.watch(spark)
    return spark


def _layout(directory: str, options: argparse.Namespace, progress: Progress) -> ArchiveLayout[Any]:
    """The archive that a command names. Where it is on another file system, Spark's Java asks that one, so it
    starts before anything else.
    """
    if "://" in directory:
        _session(options, progress)
    return ArchiveLayout(directory)


def _archive(options: argparse.Namespace, progress: Progress) -> int:
    from amqp_broker.pipeline.archive import archive, read_events
    from amqp_broker.pipeline.compact import compact

    layout = _layout(options.directory, options, progress)
    spark = _session(options, progress)
    with progress.step("archive"):
        query = archive(spark, options.url, layout, cursor=options.name, follow=options.follow)
        try:
            query.awaitTermination()
        except KeyboardInterrupt:
            query.stop()
    if options.compact and layout.epochs():
        with progress.step("compact"):
            compact(spark, layout)
    found = read_events(spark, layout).count() if layout.epochs() or layout.segments() else 0
    print(f"{found:,} events in {layout.directory}" if found else "the broker has written no events yet")
    return DONE


def _compact(options: argparse.Namespace, progress: Progress) -> int:
    layout = _layout(options.directory, options, progress)
    layout.verify()
    spark = _session(options, progress)
    from amqp_broker.pipeline.compact import compact

    with progress.step("compact"):
        written = compact(spark, layout)
    print("nothing to compact" if written is None else f"batches {written[0]} to {written[1]} are compacted")
    return DONE


def audited(options: argparse.Namespace, progress: Progress) -> AuditResult:
    """Run the audits that a command asks for."""
    layout = _layout(options.directory, options, progress)
    layout.verify()
    histories = _existing(options.history)
    lost = kinds_of(loss for path in options.losses for loss in read_losses(path))
    octets = layout.octets() + sum(Path(path).stat().st_size for path in histories)
    spark = _session(options, progress, octets)
    from amqp_broker.pipeline.archive import read_events
    from amqp_broker.pipeline.audit_run import run_audits
    from amqp_broker.pipeline.audits.together import Bounds

    bounds = Bounds(
        unresolved_after_ms=round(options.unresolved_after_s * 1000),
        stalled_minutes=options.stalled_minutes,
        drained=options.drained,
    )
    history = _read_history(spark, histories) if histories else None
    result = run_audits(
        read_events(spark, layout), bounds, progress, str(layout.directory), history, layout.told()
    )
    return attrs.evolve(result, kinds=(*result.kinds, *lost))


def _audit(options: argparse.Namespace, progress: Progress) -> int:
    result = audited(options, progress)
    if options.json:
        Path(options.json).write_text(result.to_json())
    print(text_of(result))
    return FAILED if result.verdict == FAIL else DONE


def _report(options: argparse.Namespace, progress: Progress) -> int:
    from amqp_broker.pipeline.report import page

    result = audited(options, progress)
    Path(options.out).write_text(page(result, options.title))
    print(text_of(result))
    print(f"report: {options.out}")
    return FAILED if result.verdict == FAIL else DONE


def _check_history(options: argparse.Namespace, progress: Progress) -> int:
    histories = _existing(options.history)
    layout = _layout(options.archive, options, progress) if options.archive else None
    if layout is not None:
        layout.verify()
    octets = sum(Path(path).stat().st_size for path in histories)
    spark = _session(options, progress, octets + (layout.octets() if layout is not None else 0))
    from amqp_broker.pipeline.archive import read_events
    from amqp_broker.pipeline.audit_run import gathered
    from amqp_broker.pipeline.audits import history

    events = None if layout is None else read_events(spark, layout)
    lines = _read_history(spark, histories)
    with progress.step("history"):
        kinds = gathered(history.findings(lines, events, drained=options.drained))
    faults = sum(kind.count for kind in kinds if kind.severity == "fault")
    print(f"{'FAIL' if faults else 'PASS'}: {faults:,} faults in {lines.count():,} lines")
    for kind in kinds:
        print(f"{kind.severity} {kind.kind}, {kind.count:,} times")
        for each in kind.findings[:3]:
            print(f"    {each.key}: {each.detail} ({each.example})")
    return FAILED if faults else DONE


def _existing(paths: Sequence[str]) -> list[str]:
    for path in paths:
        if not Path(path).exists():
            raise PipelineError(f"{path}: expected a history of JSON lines, and there is no such file")
    return list(paths)


def _read_history(spark: Any, paths: list[str]) -> Any:
    from amqp_broker.pipeline.history_file import HISTORY_DDL

    return spark.read.schema(HISTORY_DDL).json(paths)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
