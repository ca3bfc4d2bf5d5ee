"""What a query with `failOnDataLoss` `false` went on without, counted: by a listener, and in the report.

    {"query": "enrich", "batch": 7, "messages": 12, "ranges": ["offsets 0 to 11 of 'orders'"]}

Offsets are dense, so a batch has as many rows as its offsets say, or lacks some. Spark tells a listener both
numbers; which messages they were is what the broker retains no more. Where that is not the same number
(damage in the midst of a range, retention that went on since then), `ranges` are those in which they were.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from amqp_broker.pipeline.audit_result import Finding, Kind
from amqp_broker.pipeline.errors import PipelineError
from amqp_broker.pipeline.offsets import Place, Range, ranges_between

EXAMPLES: Final = 10
"""Losses that a report shows; how many there are is counted."""

Firsts = Mapping[str, int]
"""The first offset that a broker has of each address."""


@attrs.frozen
class Loss:
    """What one batch of a query lacks: so many messages of these ranges."""

    query: str
    batch: int
    messages: int
    ranges: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"query {self.query}, batch {self.batch}: {self.messages} messages are missing, "
            f"{'; '.join(self.ranges)}"
        )

    def to_json(self) -> str:
        """One line."""
        return json.dumps(attrs.asdict(self), separators=(",", ":"))


def ranges_of(start: Place, end: Place) -> list[Range]:
    """What a batch was to read. An address that is new in it is left out: where it began is not told."""
    found = []
    for partition, (before, after) in enumerate(zip(start.brokers, end.brokers, strict=False)):
        found += ranges_between(before, after, {}, partition)
    return found


def missing_of(ranges: Sequence[Range], rows: int, firsts: Sequence[Firsts]) -> tuple[int, tuple[str, ...]]:
    """How many messages a batch with so many rows lacks, and of which ranges; `firsts` of each broker."""
    missing = sum(map(len, ranges)) - rows
    if missing <= 0:
        return 0, ()
    gone = []
    for each in ranges:
        known = firsts[each.partition] if each.partition < len(firsts) else {}
        high = min(known.get(each.address, each.low), each.high)
        if high > each.low:
            gone.append(attrs.evolve(each, high=high))
    exact = sum(map(len, gone)) == missing
    return missing, tuple(str(each) for each in (gone if exact else ranges))


def read_losses(path: str | Path) -> list[Loss]:
    """The losses in a file that a listener wrote. Raises PipelineError for something else."""
    losses = []
    try:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            found = json.loads(line)
            losses.append(Loss(found["query"], found["batch"], found["messages"], tuple(found["ranges"])))
    except FileNotFoundError:
        raise PipelineError(f"{path}: expected the losses that a query told, there is no such file") from None
    except (ValueError, KeyError, TypeError):
        raise PipelineError(f"{path}: expected lines of losses, found something else") from None
    return losses


def kinds_of(losses: Iterable[Loss]) -> tuple[Kind, ...]:
    """The losses as findings of an audit: warnings, since whoever set the option wanted to go on."""
    # A batch that was repeated was told twice.
    told = list({(loss.query, loss.batch): loss for loss in losses}.values())
    if not told:
        return ()
    findings = tuple(
        Finding(f"{loss.query}, batch {loss.batch}", f"{loss.messages:,} messages", "; ".join(loss.ranges))
        for loss in told[:EXAMPLES]
    )
    count = sum(loss.messages for loss in told)
    return (Kind("source", "lost before they were read", "warning", count, findings),)
