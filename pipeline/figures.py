"""What a streaming query is doing, in figures, batch by batch: exported for people and for monitoring.

    figures = FigureListener(url, file="figures.jsonl", prometheus="/var/lib/node_exporter/query.prom")
    spark.streams.addListener(figures)

    {"query": "enrich", "batch": 7, "rows": 500, "rows_per_second": 812.5, "behind": 120, "lag_ms": 3400,
     "lost": 0, "addresses": {"orders/0": {"behind": 120, "lag_ms": 3400}}}

`behind`: messages that the brokers have and the query has not read. `lag_ms`: how long the oldest of those
waits already, by the broker's time of it and the clock of this machine; 0 where there is none. A source in
Python has no metrics of its own in Spark: what Spark's progress shows of ours is `behind` in `latestOffset`,
as of when the batch was planned. These here are asked of the brokers when the batch is done.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import attrs

from amqp_broker.pipeline.connections import connection_to
from amqp_broker.pipeline.listener import BatchListener
from amqp_broker.pipeline.loss_listener import LossListener
from amqp_broker.pipeline.offsets import Range, read_place
from amqp_broker.pipeline.options import BrokerAddress
from amqp_broker.pipeline.retained_client import RangeReader, RetainedClient

PROMETHEUS: Final = {
    "rows": ("amqp_query_batch_rows", "Rows that the last batch read."),
    "rows_per_second": ("amqp_query_rows_per_second", "Rows that it processed in a second."),
    "behind": ("amqp_query_behind_messages", "Messages that the brokers have and the query has not read."),
    "lag_ms": ("amqp_query_lag_milliseconds", "How long the oldest of those waits already."),
    "lost": ("amqp_query_lost_messages", "Messages that the query went on without, since it is listened to."),
}
"""Field, name of the metric, and what it is."""


@attrs.frozen
class Figures:
    """Those of one batch; `addresses` have a name and a partition, the place of the broker."""

    query: str
    batch: int
    rows: int
    rows_per_second: float
    behind: int
    lag_ms: int
    lost: int
    addresses: dict[str, dict[str, int]]


class FigureListener(BatchListener):
    """Keeps the figures of the last batch of each query in `latest`. `file`: each batch a line of JSON is
    appended; `prometheus`: a file in its text format, replaced as a whole; `losses`: who counts them.
    """

    def __init__(
        self,
        url: str,
        *,
        query: str | None = None,
        source: int = 0,
        file: str | Path | None = None,
        prometheus: str | Path | None = None,
        losses: LossListener | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__("amqp figures: batch {batch} was not measured", url, query, source, options)
        self._file = file
        self._prometheus = prometheus
        self._losses = losses
        self.latest: dict[str, Figures] = {}

    def done(self, progress: Any, source: Any) -> None:
        """Asks the brokers how far they are."""
        if not source.endOffset or source.endOffset == "null":
            return
        name = progress.name or str(progress.id)
        addresses = dict(self._addresses(source.endOffset))
        figures = Figures(
            name, progress.batchId, source.numInputRows, round(source.processedRowsPerSecond or 0.0, 3),
            sum(each["behind"] for each in addresses.values()),
            max((each["lag_ms"] for each in addresses.values()), default=0),
            sum(loss.messages for loss in self._losses.losses if loss.query == name) if self._losses else 0,
            addresses,
        )  # fmt: skip
        self.latest[name] = figures
        if self._file is not None:
            with open(self._file, "a", encoding="utf-8") as file:
                file.write(json.dumps(attrs.asdict(figures), separators=(",", ":")) + "\n")
        if self._prometheus is not None:
            fresh = Path(f"{self._prometheus}.fresh")
            fresh.write_text(self.text(), encoding="utf-8")
            os.replace(fresh, self._prometheus)

    def text(self) -> str:
        """All queries in the text format of Prometheus."""
        lines = []
        for field, (metric, meaning) in PROMETHEUS.items():
            lines += [f"# HELP {metric} {meaning}", f"# TYPE {metric} gauge"]
            for name, figures in self.latest.items():
                label = name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
                lines.append(f'{metric}{{query="{label}"}} {getattr(figures, field)}')
        return "\n".join(lines) + "\n"

    def _addresses(self, end: str) -> Iterator[tuple[str, dict[str, int]]]:
        places = read_place(json.loads(end)).brokers
        for partition, (broker, place) in enumerate(zip(self.brokers, places, strict=False)):
            with closing(RetainedClient(broker)) as client:
                nodes = client.describe().nodes
            for address, offset in place.positions.items():
                node = nodes.get(address)
                unread = Range(address, max(offset, node.first), node.next, partition) if node else None
                if unread is None or unread.low >= unread.high:
                    yield f"{address}/{partition}", {"behind": 0, "lag_ms": 0}
                else:
                    yield f"{address}/{partition}", {"behind": len(unread), "lag_ms": _lag_ms(broker, unread)}


def _lag_ms(broker: BrokerAddress, unread: Range) -> int:
    """How long its first message waits."""
    first = attrs.evolve(unread, high=unread.low + 1)
    reader = RangeReader(connection_to(broker), first, None, broker.timeout_ms / 1_000)
    (messages,) = reader.batches()
    return max(0, round(time.time() * 1_000) - messages.times_ms[0])
