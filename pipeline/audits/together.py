"""All audits of a log in one plan: the findings of each, and the tables that the report draws.

The messages, the halves and the steps are computed once and kept while the audits read them.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
from pyspark import StorageLevel
from pyspark.sql import DataFrame

from amqp_broker.pipeline.audits import dead_letters, half_sets, history, ledger, log, traffic, transactions
from amqp_broker.pipeline.audits.messages import messages
from amqp_broker.pipeline.audits.span import Span


@attrs.frozen
class Bounds:
    """What an audit takes for too long, and whether all queues were empty at the end of the log."""

    unresolved_after_ms: int = transactions.UNRESOLVED_AFTER_MS
    stalled_minutes: int = traffic.STALLED_MINUTES
    drained: bool = False


@attrs.frozen
class Audits:
    """Frames that nothing has been computed of yet: findings by the name of their audit, and tables."""

    findings: dict[str, Callable[[], DataFrame]]
    messages: DataFrame
    halves: DataFrame
    steps: DataFrame
    deaths: DataFrame

    def forget(self) -> None:
        """Give the room back that the shared frames took."""
        for frame in (self.messages, self.halves, self.steps):
            frame.unpersist()


def all_audits(events: DataFrame, span: Span, bounds: Bounds, clients: DataFrame | None = None) -> Audits:
    """The audits of these events, and of the history of `clients` if there is one. A log that begins in the
    middle says nothing about what clients remember, so it is left out of the latter.
    """
    level = StorageLevel.MEMORY_AND_DISK
    each = messages(events).persist(level)
    halves = transactions.halves(events).persist(level)
    step_s = traffic.step_s_of(span)
    steps = traffic.table(each, step_s).persist(level)
    late = bounds.unresolved_after_ms

    def decisions() -> DataFrame:
        single = transactions.findings(events, halves, span, unresolved_after_ms=late)
        return single.unionByName(half_sets.findings(events, span, unresolved_after_ms=late))

    found: dict[str, Callable[[], DataFrame]] = {}
    if clients is not None:
        log_of_all = events if span.complete and span.events else None
        found[history.AUDIT] = lambda: history.findings(clients, log_of_all, drained=bounds.drained)
    return Audits(
        findings={
            log.AUDIT: lambda: log.findings(events),
            ledger.AUDIT: lambda: ledger.findings(events, each, span, drained=bounds.drained),
            dead_letters.AUDIT: lambda: dead_letters.findings(each, span),
            transactions.AUDIT: decisions,
            traffic.AUDIT: lambda: traffic.findings(
                each, steps, span, step_s=step_s, stalled_minutes=bounds.stalled_minutes
            ),
            **found,
        },
        messages=each,
        halves=halves,
        steps=steps,
        deaths=dead_letters.table(events),
    )
