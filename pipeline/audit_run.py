"""Runs the audits over an archive and gathers what they find."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import attrs
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from amqp_broker.pipeline.audit_result import AuditResult, Finding, Kind
from amqp_broker.pipeline.audits import traffic, transactions
from amqp_broker.pipeline.audits.span import Span, span_of
from amqp_broker.pipeline.audits.together import Audits, Bounds, all_audits
from amqp_broker.pipeline.progress import Progress
from amqp_broker.pipeline.told_checksums import Told

AT_A_TIME: Final = 2
EXAMPLES: Final = 10
"""How many counter-examples of each kind are kept; all of them are counted."""


def run_audits(
    events: DataFrame, bounds: Bounds, progress: Progress, archive: str, history: DataFrame | None = None,
    told: Sequence[Told] = (),
) -> AuditResult:  # fmt: skip
    """All audits of `events`, of which the broker has `told` checksums, and of the clients' `history` if
    there is one.
    """
    with progress.step("log: its span"):
        span = span_of(events)
    audits = all_audits(events, span, bounds, history, told)
    took: dict[str, float] = {}
    with progress.step("messages: what became of each"):
        messages = audits.messages.count()

    def run(name: str) -> list[Kind]:
        begun = time.monotonic()
        found = gathered(audits.findings[name]())
        took[name] = time.monotonic() - begun
        progress.say(f"audit: {name}: {took[name]:.1f} s", clear=progress.shows)
        return found

    # Two at a time: while one is planned, which is the work of one core, the other one computes.
    with progress.step("audits"), ThreadPoolExecutor(AT_A_TIME) as pool:
        kinds = [kind for found in pool.map(run, audits.findings) for kind in found]
    with progress.step("tables"):
        in_order = {name: took[name] for name in audits.findings}
        result = _result(archive, span, messages, in_order, kinds, audits)
        result = attrs.evolve(result, notes=(*result.notes, *_notes_of(told, span)))
    audits.forget()
    return result


def _result(
    archive: str, span: Span, messages: int, took: dict[str, float], kinds: Sequence[Kind], audits: Audits
) -> AuditResult:
    return AuditResult(
        archive=archive,
        log={
            "first_lsn": span.first_lsn,
            "last_lsn": span.last_lsn,
            "begin": span.begin.isoformat(timespec="seconds"),
            "end": span.end.isoformat(timespec="seconds"),
            "events": span.events,
            "step_s": traffic.step_s_of(span),
        },
        messages=messages,
        audits=took,
        kinds=tuple(sorted(kinds, key=lambda kind: (kind.severity, kind.audit, kind.kind))),
        steps=_table(audits.steps.orderBy("address", "step")),
        resolvers=_table(transactions.table(audits.halves).orderBy("resolver", "outcome")),
        deaths=_table(audits.deaths.orderBy(F.desc("n"), "address", "reason")),
        clients=_table(audits.clients),
        notes=_notes(span),
    )


def gathered(findings: DataFrame) -> list[Kind]:
    """Each kind with its count and its first examples, in one job."""
    of_kind = Window.partitionBy("audit", "kind", "severity")
    first = (
        findings.withColumn("count", F.count(F.lit(1)).over(of_kind))
        .withColumn("place", F.row_number().over(of_kind.orderBy("key")))
        .where(F.col("place") <= EXAMPLES)
        .orderBy("audit", "kind", "place")
    )
    kinds: dict[tuple[str, str, str], Kind] = {}
    for row in first.collect():
        key = (row["audit"], row["kind"], row["severity"])
        before = kinds[key].findings if key in kinds else ()
        found = Finding(row["key"], row["detail"], row["example"])
        kinds[key] = Kind(*key, int(row["count"]), (*before, found))
    return list(kinds.values())


def _table(frame: DataFrame) -> tuple[dict[str, Any], ...]:
    return tuple(row.asDict() for row in frame.collect())


def _notes(span: Span) -> tuple[str, ...]:
    if not span.events:
        return ("the archive is empty: nothing was audited",)
    if not span.complete:
        return (f"the log begins at lsn {span.first_lsn}: what came before is not judged by its beginning",)
    return ()


def _notes_of(told: Sequence[Told], span: Span) -> tuple[str, ...]:
    """What of the log the broker has told no checksums of."""
    if not span.events:
        return ()
    covered = sum(one.next - one.first for one in told if not one.untold)
    missing = span.last_lsn + 1 - span.first_lsn - covered
    if missing <= 0:
        return ()
    why = next((one.untold for one in told if one.untold), "")
    if not told:
        why = "it was archived by an older version, or made by hand"
    after = f": {why}" if why else ""
    return (f"of {missing:,} events there is no checksum that the broker told{after}",)
