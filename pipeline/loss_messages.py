"""What a query goes on without, as messages: each range that is gone, told by the task that found it so.

To the address of the option lossAddress, durable, an amqp-value with a map:

    {"query": "<id of the query>", "batch": 7, "address": "orders", "partition": 0, "low": 500, "high": 520}

The messages at the offsets from `low` on, before `high`, were not read. A task that is run again, a second
action over the same batch, or a batch that is repeated tells its ranges again: who counts takes the union of
the ranges of a query, batch, address and partition. Outside of a streaming query `query` is empty.
"""

from __future__ import annotations

from typing import Any, Final

import attrs
from pyspark import TaskContext

from amqp_broker.client import message
from amqp_broker.pipeline.connections import connection_to
from amqp_broker.pipeline.errors import PipelineError
from amqp_broker.pipeline.offsets import Range
from amqp_broker.pipeline.options import Options
from amqp_broker.pipeline.variants import inner

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""Local properties of a task of a micro-batch."""


@attrs.frozen
class LostRange:
    """One message of these."""

    query: str
    batch: int
    part: Range

    @property
    def body(self) -> dict[str, Any]:
        """Its map."""
        part = self.part
        return {
            "query": self.query, "batch": self.batch, "address": part.address, "partition": part.partition,
            "low": part.low, "high": part.high,
        }  # fmt: skip


def read_lost_range(body: Any) -> LostRange:
    """From the map of such a message. Raises PipelineError for another one."""
    try:
        batch, partition, low, high = (
            int(inner(body[name])) for name in ("batch", "partition", "low", "high")
        )
        return LostRange(str(body["query"]), batch, Range(str(body["address"]), low, high, partition))
    except (KeyError, TypeError, ValueError):
        raise PipelineError(f"expected a message about a lost range, found {body!r:.200}") from None


def send_loss(options: Options, part: Range) -> None:
    """Tells it, from within a task, where the option lossAddress says so. Raises ClientError."""
    if not options.given("lossAddress"):
        return
    context = TaskContext.get()
    query = context and context.getLocalProperty(QUERY_ID)
    batch = context and context.getLocalProperty(BATCH_ID)
    lost = LostRange(query or "", int(batch or 0), part)
    sender = connection_to(options.broker).open_sender(options["lossAddress"])
    try:
        sender.send(message(lost.body, subject="data-loss"))
    finally:
        sender.close()
