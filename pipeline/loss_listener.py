"""Counts what a streaming query went on without.

    losses = LossListener(url, file="losses.jsonl")
    spark.streams.addListener(losses)
    ...
    print(losses.messages, *losses.losses, sep="\\n")

It says each loss on standard error, and appends it to `file`, if there is one, for `amqp-broker pipeline
report --losses`. It counts rows: the query has to read each of its batches once and whole, as one without
`limit` does (a `foreachBatch` that looks at its frame twice counts it twice, and hides what is missing). The
first batch of a checkpoint is not counted, since Spark does not tell where it began.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from amqp_broker.pipeline.listener import BatchListener
from amqp_broker.pipeline.losses import Firsts, Loss, missing_of, ranges_of
from amqp_broker.pipeline.offsets import read_place
from amqp_broker.pipeline.options import BrokerAddress
from amqp_broker.pipeline.retained_client import RetainedClient


class LossListener(BatchListener):
    """Keeps the `losses`, and writes them down."""

    def __init__(
        self,
        url: str,
        *,
        query: str | None = None,
        source: int = 0,
        file: str | Path | None = None,
        options: Mapping[str, str] | None = None,
        firsts: Callable[[], Sequence[Firsts]] | None = None,
    ) -> None:
        super().__init__("amqp losses: batch {batch} was not counted", url, query, source, options)
        self._file = file
        self._firsts = firsts or (lambda: [_firsts_of(broker) for broker in self.brokers])
        self.losses: list[Loss] = []

    @property
    def messages(self) -> int:
        """How many are missing in all."""
        return sum(loss.messages for loss in self.losses)

    def done(self, progress: Any, source: Any) -> None:
        """Counts the batch."""
        if not source.startOffset or not source.endOffset:
            return
        places = [json.loads(each) for each in (source.startOffset, source.endOffset)]
        if None in places:
            return
        ranges = ranges_of(*map(read_place, places))
        if sum(map(len, ranges)) <= source.numInputRows:
            return
        missing, told = missing_of(ranges, source.numInputRows, self._firsts())
        loss = Loss(progress.name or str(progress.id), progress.batchId, missing, told)
        self.losses.append(loss)
        print(f"amqp losses: {loss}", file=sys.stderr)
        if self._file is not None:
            with open(self._file, "a", encoding="utf-8") as file:
                file.write(f"{loss.to_json()}\n")


def _firsts_of(broker: BrokerAddress) -> Firsts:
    with closing(RetainedClient(broker)) as client:
        return {address: node.first for address, node in client.describe().nodes.items()}
