"""All audits of a log in one plan: the findings of each, and the tables that the report draws.

The messages, the halves and the steps are computed once and kept while the audits read them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
from pyspark import StorageLevel
from pyspark.sql import DataFrame

from amqp_broker.pipeline.audits import (
    as_told,
    carrying,
    history,
    ledger,
    suspects,
    tables,
    traffic,
    transactions,
)
from amqp_broker.pipeline.audits.findings import together
from amqp_broker.pipeline.audits.judging import (
    UNRESOLVED_AFTER_MS,
    Consumer,
    Half,
    Judge,
    Message,
    Producer,
    Queue,
    Sight,
    Transaction,
)
from amqp_broker.pipeline.audits.judging import Sequence as SequenceOfStream
from amqp_broker.pipeline.audits.lives import LEDGER, LOG, TRANSACTIONS
from amqp_broker.pipeline.audits.messages import messages
from amqp_broker.pipeline.audits.span import Span
from amqp_broker.pipeline.told_checksums import Told


@attrs.frozen
class Bounds:
    """What an audit takes for too long, and whether all queues were empty at the end of the log."""

    unresolved_after_ms: int = UNRESOLVED_AFTER_MS
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
    clients: DataFrame

    def forget(self) -> None:
        """Give the room back that the shared frames took."""
        for frame in (self.messages, self.halves, self.steps):
            frame.unpersist()


def all_audits(
    events: DataFrame, span: Span, bounds: Bounds, written: DataFrame | None = None, told: Sequence[Told] = ()
) -> Audits:
    """The audits of these events, of which the broker has `told` checksums, and of the history of `clients`
    if there is one. A log that begins in the middle says nothing about what clients remember, so it is left
    out of the latter.
    """
    level = StorageLevel.MEMORY_AND_DISK
    each = messages(events).persist(level)
    halves = transactions.halves(events).persist(level)
    step_s = traffic.step_s_of(span)
    steps = traffic.table(each, step_s).persist(level)
    sight = Sight(
        span.end_us, span.complete, bounds.drained, bounds.unresolved_after_ms, carrying.addresses(events)
    )
    is_small = span.events < suspects.FEW_EVENTS
    to_judge = None if is_small else suspects.of_all(events, each, halves, sight)

    def judged(*judges: type[Judge]) -> DataFrame:
        return together(*(carrying.findings(events, judge, sight, to_judge) for judge in judges))

    def log() -> DataFrame:
        if not told:
            return carrying.log_findings(events)
        others = carrying.found_rows(events.sparkSession, as_told.as_told(events, told))
        return together(carrying.log_findings(events), others)

    found: dict[str, Callable[[], DataFrame]] = {}
    if written is not None:
        log_of_all = events if span.complete and span.events else None
        found[history.AUDIT] = lambda: history.findings(written, log_of_all, drained=bounds.drained)
    return Audits(
        findings={
            LOG: log,
            LEDGER: lambda: together(
                judged(Message, Queue, SequenceOfStream, Consumer), ledger.duplicates(events)
            ),
            TRANSACTIONS: lambda: judged(Half, Producer, Transaction),
            traffic.AUDIT: lambda: traffic.findings(
                steps, span, step_s=step_s, stalled_minutes=bounds.stalled_minutes
            ),
            **found,
        },
        messages=each,
        halves=halves,
        steps=steps,
        deaths=tables.deaths(events),
        clients=tables.clients(events),
    )
