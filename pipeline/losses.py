"""What a query with `failOnDataLoss` `false` went on without, counted: by a listener, and in the report.

    {"query": "enrich", "batch": 7, "messages": 12, "ranges": ["offsets 0 to 11 of 'orders'"]}

The tasks that found them gone told them (`loss_messages`): offsets are dense, so a range says how many.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import attrs

from amqp_broker.pipeline.audit_result import Finding, Kind
from amqp_broker.pipeline.errors import PipelineError
from amqp_broker.pipeline.offsets import Range

EXAMPLES: Final = 10
"""Losses that a report shows; how many there are is counted."""


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


def union(ranges: Iterable[Range]) -> list[Range]:
    """The same messages, each in one range."""
    found: list[Range] = []
    for each in sorted(ranges, key=lambda one: (one.address, one.partition, one.low)):
        last = found[-1] if found else None
        same = last is not None and (last.address, last.partition) == (each.address, each.partition)
        if last is not None and same and each.low <= last.high:
            found[-1] = attrs.evolve(last, high=max(last.high, each.high))
        else:
            found.append(each)
    return found


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
    # A batch that was repeated was told again, with all that was known then.
    told = list({(loss.query, loss.batch): loss for loss in losses}.values())
    if not told:
        return ()
    findings = tuple(
        Finding(f"{loss.query}, batch {loss.batch}", f"{loss.messages:,} messages", "; ".join(loss.ranges))
        for loss in told[:EXAMPLES]
    )
    count = sum(loss.messages for loss in told)
    return (Kind("source", "lost before they were read", "warning", count, findings),)
