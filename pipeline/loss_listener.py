"""Counts what a streaming query went on without.

    losses = LossListener(url, file="losses.jsonl")
    spark.streams.addListener(losses)
    ...
    print(losses.messages, *losses.losses, sep="\\n")

It says each loss on standard error, and appends it to `file`, if there is one, for `amqp-broker pipeline
report --losses`. It counts rows: the query has to read each of its batches once and whole, as one without
`limit` does (a `foreachBatch` that looks at its frame twice counts it twice, and hides what is missing). The
first batch of a checkpoint is not counted, since Spark does not tell where it began. Nothing that goes wrong
here reaches the query.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from amqp_broker.pipeline.losses import Firsts, Loss, missing_of, ranges_of
from amqp_broker.pipeline.offsets import read_place
from amqp_broker.pipeline.options import BrokerAddress, read_options


class LossListener(StreamingQueryListener):
    """For the queries of a session. `query` is the name or id of one of them, None for any; `source` its
    place among the sources of that query. `options` are those of the source that say how to connect; `url`
    names all of its brokers.
    """

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
        given = {"amqp.url": url, "subscribe": "-"} | dict(options or {})
        brokers = read_options(given, "source").brokers
        self._query = query
        self._source = source
        self._file = file
        self._firsts = firsts if firsts is not None else lambda: [_firsts_of(broker) for broker in brokers]
        self.losses: list[Loss] = []

    @property
    def messages(self) -> int:
        """How many are missing in all."""
        return sum(loss.messages for loss in self.losses)

    def onQueryStarted(self, event: Any) -> None:
        """Nothing was read yet."""

    def onQueryProgress(self, event: Any) -> None:
        """A batch is done: counts it."""
        progress = event.progress
        if self._query is not None and self._query not in (progress.name, str(progress.id)):
            return
        try:
            self._count(progress)
        except Exception as error:
            print(f"amqp losses: batch {progress.batchId} was not counted: {error}", file=sys.stderr)

    def onQueryIdle(self, event: Any) -> None:
        """Nothing new."""

    def onQueryTerminated(self, event: Any) -> None:
        """The last batch was told by its progress."""

    def _count(self, progress: Any) -> None:
        source = progress.sources[self._source]
        bounds = [json.loads(each) if each else None for each in (source.startOffset, source.endOffset)]
        if None in bounds:
            return
        ranges = ranges_of(*map(read_place, bounds))
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
    from amqp_broker.pipeline.retained_client import RetainedClient

    client = RetainedClient(broker)
    try:
        return {address: node.first for address, node in client.describe().nodes.items()}
    finally:
        client.close()
