"""What tracing costs, in microseconds of the processor: `python -m tests.benchmarks.tracing`.

for one run of messages where nobody looks on: what is called although there are no traces
for one message where somebody does: the look at what has no context, or one that is not sampled
for one span, with what the thread that exports it takes, to a collector that says nothing
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from amqp_broker.configuration import TracingConfig
from amqp_broker.frames import Properties, encode_message
from amqp_broker.persistence import Record
from amqp_broker.queue import Queue, QueueLimits
from amqp_broker.tracing.exporting import Exporting, provider_of
from amqp_broker.tracing.spans import Tracing
from amqp_broker.watching import UNWATCHED, Watcher
from tests.benchmarks.harness import options, spent

RUN = 100  # messages


class Nowhere(SpanExporter):
    """Takes everything."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """At once."""
        return SpanExportResult.SUCCESS


def record_of(named: dict[str, Any] | None) -> Record:
    """A message of 100 octets with these application-properties."""
    body = encode_message(
        properties=Properties(message_id="m-17"), application_properties=named, body=b"x" * 100
    )
    return Record(0, body, 0, 4, 0, 0, True)


def each_us(watcher: Watcher, queue: Queue, records: list[Record], messages: int) -> float:
    """For one run: it comes, is stored, and its commit is told."""
    runs = messages // len(records)
    with spent() as found:
        for _ in range(runs):
            watcher.came(queue, records)
            watcher.committed(0.001, 1)
            watcher.stored(records)
            watcher.told()
    return found.each_us(runs)


def main() -> None:
    """Measure, and print it."""
    asked = options(__doc__, messages=200_000)
    most = 1_000_000
    config = TracingConfig(
        endpoint="http://127.0.0.1:4318/v1/traces", spans_per_s=most, queue_spans=most, open_spans=most
    )
    exporting = Exporting(config, Nowhere())
    tracer = provider_of(config, exporting).get_tracer("benchmark")
    tracing = Tracing(config, exporting, tracer, lambda: 0)
    queue = Queue("q", 1, QueueLimits(0, 0, 0))
    context = f"00-{secrets.token_hex(16)}-{secrets.token_hex(8)}-0"
    plain, some = record_of(None), record_of({"kind": "order", "number": 17})
    unsampled, sampled = record_of({"traceparent": f"{context}0"}), record_of({"traceparent": f"{context}1"})
    print(f"a run, nobody looks on: {each_us(UNWATCHED, queue, [plain], asked.messages):.2f} us")
    for name, record in (("no properties", plain), ("without a context", some), ("not sampled", unsampled)):
        cost = each_us(tracing, queue, [record] * RUN, asked.messages) / RUN
        print(f"a message, {name}: {cost:.2f} us")
    print(f"a message with its span and its commit's: {each_us(tracing, queue, [sampled], 2_000):.1f} us")
    tracing.end()


if __name__ == "__main__":
    main()
